"""Theorems of variational inference, checked on every small network."""

import itertools

import numpy as np
import pytest
from promises.networks import CASES, factorised, lda, ratings, scalar_mixture

import natgrad as ng
from natgrad.inference.engine import Result
from natgrad.inference.problem import Sampled, State
from natgrad.network.fit_run import Whole


def assert_same_state(one, other, rtol=1e-9):
    for name in one.state.lam:
        for a, b in zip(one.state.lam[name], other.state.lam[name], strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_the_bound_never_falls_and_is_the_sum_of_its_parts(name):
    case = CASES[name]()
    fit = case.network.fit(ng.VB(), max_steps=25, tol=0, init=case.init, order=case.order)
    bounds = fit.trace["elbo"]
    assert np.isfinite(bounds).all()
    # Rounding: a bound of size b is known to about 1e-12 b.
    assert np.diff(bounds).min() >= -1e-11 * np.abs(bounds).max()
    assert fit.elbo == pytest.approx(bounds[-1], rel=1e-11)
    assert sum(fit.elbo_by_node().values()) == pytest.approx(fit.elbo, rel=1e-12)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "augmented" else n for n in CASES])
def test_natural_gradient_is_the_fisher_preconditioned_gradient(name):
    """∇_λ ELBO = G(λ) (λ* − λ): finite differences on the left, Fisher information times `natural_gradient` on the right."""
    case = CASES[name]()
    fit = case.network.fit(ng.VB(), max_steps=2, tol=0, init=case.init, order=case.order)
    problem, rng = case.network.problem, np.random.default_rng(3)
    for block in problem.blocks.values():
        # Away from the optimum, so that the gradient is not zero.
        settings = [name in block.family.settings for name in block.family.stat_names]
        start = tuple(
            np.asarray(s) * (1.0 if fixed else 1.03)
            for s, fixed in zip(fit.state.lam[block.name], settings, strict=True)
        )
        state = State(
            {**fit.state.lam, block.name: start},
            {**fit.state.mu, block.name: block.family.expected_stats(start)},
            fit.state.t,
        )
        target = problem.target(block, state)
        there = Whole(problem, "").fit_at(Result(state, fit.trace, fit.stop), fit.settings)
        gradient = there.natural_gradient(block.name)
        for g, t, s in zip(gradient, target, start, strict=True):
            np.testing.assert_allclose(g, np.asarray(t) - s, rtol=1e-12, atol=1e-12, err_msg=block.name)
        assert max(np.abs(g).max() for g in gradient) > 1e-3, "there must be something to compare"
        fisher = block.family.fisher(start).reshape(-1, *[flat_size(block, start)] * 2)
        rows = np.concatenate([g.reshape(len(fisher), -1) for g in gradient], axis=1)
        expected = np.einsum("npq,nq->np", fisher, rows)
        for plate in block.plates:
            if plate in problem.plan.weights:  # an element that counts c times has c times the gradient
                expected *= problem.plan.weights[plate][:, None]
        # Settings are known numbers that travel in λ: they do not move.
        direction = [rng.normal(size=s.shape) * (not fixed) for s, fixed in zip(start, settings, strict=True)]
        direction = block.family.project(tuple(direction))
        slope = sum(
            float((d.reshape(len(fisher), -1) * e).sum())
            for d, e in zip(direction, split(expected, start, len(fisher)), strict=True)
        )
        step = 1e-6
        ends = []
        for sign in (1, -1):
            lam = tuple(s + sign * step * d for s, d in zip(start, direction, strict=True))
            moved = State({**state.lam, block.name: lam}, {**state.mu, block.name: block.family.expected_stats(lam)}, 0)
            ends.append(problem.bound(moved))
        # Central differences: error step² plus rounding of the bound over 2 step, about 1e-7 relative to the bound.
        scale = abs(slope) + 1e-2 * abs(ends[0]) + 1.0
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, abs=2e-5 * scale), block.name


def flat_size(block, lam):
    count = int(np.prod(block.shape))
    return sum(s.size // count for s in lam)


def split(rows, lam, count):
    widths = np.cumsum([s.size // count for s in lam])[:-1]
    return np.split(rows, widths, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_length_one_on_all_the_data_is_an_exact_sweep(name):
    case = CASES[name]()
    options = {"max_steps": 3, "tol": 0, "init": case.init, "order": case.order}
    exact = case.network.fit(ng.VB(), **options)
    every = case.network.fit(ng.Children(10**6), step=ng.Constant(1.0), **options)
    assert_same_state(every, exact)
    np.testing.assert_allclose(every.trace["elbo"], exact.trace["elbo"], rtol=1e-9)
    np.testing.assert_array_equal(every.trace["messages_read"], exact.trace["messages_read"])


@pytest.mark.parametrize("name", ["factorised", "blocks", "pca", "skills", "pca_missing"])
def test_a_global_batch_of_everything_is_an_exact_sweep(name):
    case = CASES[name]()
    problem = case.network.problem
    seen = [n for n in problem.blocks if any(s.term in ("r", "y", "margin") for s in problem.child_sets(n))]
    order = [*seen, *(n for n in problem.blocks if n not in seen)]
    options = {"max_steps": 3, "tol": 0, "init": case.init, "order": order}
    exact = case.network.fit(ng.VB(), **options)
    node = next(n for n in case.network.nodes.values() if n.is_observed)
    size = int(np.prod([p.size for p in node.plates])) if node.mask is None else int(node.mask.sum())
    batch = case.network.fit(ng.GlobalBatch(size), step=ng.Constant(1.0), **options)
    assert_same_state(batch, exact)


@pytest.mark.parametrize(("name", "plate"), [("mixture", "point"), ("scalar_mixture", "point"), ("hmm", "sequence")])
def test_svi_on_all_groups_with_length_one_is_an_exact_sweep(name, plate):
    """Local variables that do not read one another converge in one sweep, so the local step is the exact update."""
    case = CASES[name]()
    size = {p.name: p.size for n in case.network.nodes.values() for p in n.plates}[plate]
    options = {"max_steps": 3, "tol": 0, "init": case.init, "order": case.order}
    exact = case.network.fit(ng.VB(), **options)
    svi = case.network.fit(ng.SVI({plate: size}), step=ng.Constant(1.0), **options)
    assert_same_state(svi, exact)


@pytest.mark.parametrize(
    ("name", "plate"), [("lda", "doc"), ("mixture", "point"), ("factorised", "user"), ("hmm", "sequence")]
)
def test_the_estimate_of_a_full_batch_is_the_exact_bound(name, plate):
    case = CASES[name]()
    size = {p.name: p.size for n in case.network.nodes.values() for p in n.plates}[plate]
    fit = case.network.fit(ng.SVI({plate: size}), max_steps=4, tol=0, init=case.init, order=case.order)
    np.testing.assert_allclose(fit.trace["elbo_estimate"], fit.trace["elbo"], rtol=1e-10)


@pytest.mark.parametrize("name", ["mixture", "scalar_mixture", "pca", "factorised", "lda", "several"])
def test_targets_averaged_over_all_samples_of_children_are_the_full_target(name):
    """Every row draws the same ranks of its children; over all choices of ranks each subset of a row comes equally often."""
    case = CASES[name]()
    fit = case.network.fit(max_steps=1, tol=0, init=case.init, order=case.order)
    problem, compared = case.network.problem, {}
    for block in problem.blocks.values():
        sets = problem.child_sets(block.name)
        if not sets:
            continue
        longest = max(int(s.degree.max()) for s in sets)
        # All pairs of ranks among the longest row; a shorter row sees the ranks it has: only rows of the longest length
        # are compared, for the others the draw would not be uniform.
        if longest < 2 or longest > 40:
            continue
        total, count = None, 0
        for ranks in itertools.combinations(range(longest), 2):
            samples = []
            for children in sets:
                chosen = children.start[:-1, None] + np.array(ranks)[None, :]
                inside = chosen < children.start[1:, None]
                chosen = np.where(inside, chosen, children.start[:-1, None]).clip(0, len(children.children) - 1)
                weight = np.where(inside, children.degree[:, None] / 2.0, 0.0)
                zipped = children.zipped(children.children[chosen.ravel()])
                samples.append(Sampled(children.term, children.occurrence, zipped, weight.ravel()))
            columns = [None] if block.column_axis is None else range(block.n_columns)
            parts = [problem.target(block, fit.state, (block.name,), tuple(samples), column) for column in columns]
            target = (
                parts[0]
                if block.column_axis is None
                else [np.stack([np.asarray(p[s]) for p in parts], axis=block.column_axis) for s in range(len(parts[0]))]
            )
            total = (
                [np.asarray(t) for t in target]
                if total is None
                else [a + np.asarray(t) for a, t in zip(total, target, strict=True)]
            )
            count += 1
        full = problem.target(block, fit.state)
        rows = np.all([s.spread(s.degree == longest) for s in sets], axis=0)
        compared[block.name] = int(rows.sum())
        for mean, exact in zip(total, full, strict=True):
            np.testing.assert_allclose(
                (mean / count)[rows], np.asarray(exact)[rows], rtol=1e-9, atol=1e-9, err_msg=block.name
            )
    assert sum(compared.values()) > 0, compared


def test_messages_of_shards_add_up_to_the_full_target():
    case = CASES["factorised"]()
    fit = case.network.fit(max_steps=1, tol=0, init="random")
    problem = case.network.problem
    block = problem.blocks["u"]
    (children,) = problem.child_sets(block.name)
    prior = problem.target(block, fit.state, ("u",), (), 0)
    halves = [children.children[::2], children.children[1::2]]
    parts = [
        problem.target(block, fit.state, ("u",), (Sampled("r", 0, children.zipped(h), np.ones(len(h))),), 0)
        for h in halves
    ]
    full = problem.target(block, fit.state, None, (), 0)
    for p, a, b, whole in zip(prior, *parts, full, strict=True):
        np.testing.assert_allclose(np.asarray(a) + np.asarray(b) - np.asarray(p), whole, rtol=1e-12)


def test_algorithm_one_is_equation_seven():
    """One step of Algorithm 1 with every child read, written out as in the paper's eq. (7), scalar by scalar."""
    case = factorised(seed=4, size=3)
    r = ratings(4)
    before = case.network.fit(max_steps=1, tol=0, init="random", seed=2, order=["u", "v"])
    fit = before.continue_fit(ng.Children(10**6), step=ng.Constant(0.3), max_steps=1, tol=0)
    mean = {k: np.asarray(before.state.mu[k][0]).copy() for k in "uv"}
    square = {k: np.asarray(before.state.mu[k][1]).copy() for k in "uv"}
    lam = {k: [np.asarray(s).copy() for s in before.state.lam[k]] for k in "uv"}
    sides = {"u": (r["users"], "v", r["items"]), "v": (r["items"], "u", r["users"])}
    for own in "uv":
        mine, other, theirs = sides[own]
        for k in range(3):
            for m in range(len(mean[own])):
                precision, weighted = 1.0, 0.0
                for j in np.flatnonzero(mine == m):
                    n = theirs[j]
                    rest = sum(mean[own][m, c] * mean[other][n, c] for c in range(3) if c != k)
                    precision += square[other][n, k]
                    weighted += mean[other][n, k] * (r["values"][j] - rest)
                lam[own][0][m, k] = 0.7 * lam[own][0][m, k] + 0.3 * weighted
                lam[own][1][m, k] = 0.7 * lam[own][1][m, k] + 0.3 * (-0.5 * precision)
            mean[own][:, k] = -0.5 * lam[own][0][:, k] / lam[own][1][:, k]
            square[own][:, k] = mean[own][:, k] ** 2 - 0.5 / lam[own][1][:, k]
    for own in "uv":
        for stat in range(2):
            np.testing.assert_allclose(fit.state.lam[own][stat], lam[own][stat], rtol=1e-10)


def test_counts_as_weights_equal_repeated_rows():
    rng = np.random.default_rng(0)
    y, repeat = rng.normal(size=12), rng.integers(0, 4, 12)
    weighted, repeated = scalar_mixture(y=y, weight=repeat), scalar_mixture(y=np.repeat(y, repeat))
    options = {"max_steps": 15, "tol": 0, "init": {"mu": [-1.0, 1.0]}, "order": ["z", "mu", "tau"]}
    one, other = weighted.network.fit(**options), repeated.network.fit(**options)
    np.testing.assert_allclose(one.trace["elbo"], other.trace["elbo"], rtol=1e-12)
    np.testing.assert_allclose(one["mu"].mean(), other["mu"].mean(), rtol=1e-10)
    one, other = lda(counts=True), lda(counts=False)
    options = {"max_steps": 15, "tol": 0, "init": one.init, "order": one.order}
    a, b = one.network.fit(**options), other.network.fit(**options)
    np.testing.assert_allclose(a.trace["elbo"], b.trace["elbo"], rtol=1e-12)
    np.testing.assert_allclose(a["phi"].mean(), b["phi"].mean(), rtol=1e-10)


def test_permuting_a_plate_changes_nothing():
    rng = np.random.default_rng(0)
    y = rng.normal(size=24)
    order = rng.permutation(24)
    one, other = scalar_mixture(y=y), scalar_mixture(y=y[order])
    a, b = (c.network.fit(max_steps=10, tol=0, init=c.init, order=c.order) for c in (one, other))
    np.testing.assert_allclose(a.trace["elbo"], b.trace["elbo"], rtol=1e-12)
    np.testing.assert_allclose(a["z"].mean()[order], b["z"].mean(), rtol=1e-9, atol=1e-12)


def test_splitting_a_plate_changes_nothing():
    """Twenty observations as one node, and as two nodes of eight and twelve."""
    rng = np.random.default_rng(0)
    y = rng.normal(2.0, 1.5, size=20)

    def network(parts):
        mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        leaves = [ng.Normal(f"y{i}", mu, tau, plate=ng.Plate(f"n{i}", len(p)), observed=p) for i, p in enumerate(parts)]
        return ng.Network(*leaves)

    one, other = (network(parts).fit(max_steps=20, tol=0, order=["mu", "tau"]) for parts in ([y], [y[:8], y[8:]]))
    np.testing.assert_allclose(one.trace["elbo"], other.trace["elbo"], rtol=1e-12)
    np.testing.assert_allclose(one["tau"].mean(), other["tau"].mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("dim", "coupling"),
    [(2, 0.9), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((5, 0.5), (5, 0.9), (10, 0.9)))],
)
def test_simultaneous_steps_are_stable_exactly_below_the_closed_form(dim, coupling):
    """D scalars explain one residual: precision r 11ᵀ + (1 − r) I; option (b) is stable iff ρ < 2 / (1 + (D − 1) r)."""
    x = ng.Normal("x", 0.0, 1.0 - coupling, plate=ng.Plate("d", dim))
    y = ng.Normal("y", ng.dot(np.ones((1, dim)), x), coupling, plate=ng.Plate("one", 1), observed=[0.0])
    network = ng.Network(y)
    limit = 2.0 / (1.0 + (dim - 1) * coupling)

    def size(rho, steps):
        fit = network.fit(ng.VB(option="b"), step=ng.Constant(rho), max_steps=steps, tol=0, init={"x": np.ones(dim)})
        return np.abs(fit["x"].mean()).max(), fit

    # At 2 % from the limit each step multiplies the error by 1 ∓ 0.04, once the precisions have settled.
    assert size(0.98 * limit, 400)[0] < 1e-3
    grown, fit = size(1.02 * limit, 400)
    assert grown > 1e2 or fit.stop.diverged
    in_turn = network.fit(ng.VB(), max_steps=2000, tol=0, init={"x": np.ones(dim)})
    assert np.abs(in_turn["x"].mean()).max() < 1e-3
