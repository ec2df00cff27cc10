"""Draws of small networks by the compiled loop: its rows are the conditionals, its chains have the law of the interpreted ones,
and neither how many sweeps a call makes nor how many threads there are shows in a bit."""

import numpy as np
import pytest
from random_draws import accepted
from random_generator import draw
from scipy.stats import ks_2samp

import natgrad as ng
from natgrad.kernels.network.relabel import put_back
from natgrad.kernels.network.rows import add_up
from natgrad.network.draws import run as compiled_module
from natgrad.network.draws import run as draws_run
from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.gibbs import Gibbs, Schedule
from natgrad.network.draws.labels import Relabelling, renumber
from natgrad.network.draws.run import compiled_gibbs
from natgrad.network.execute.problem import NetworkProblem
from natgrad.threads import at_most

pytestmark = [
    pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing"),
    pytest.mark.filterwarnings("ignore::natgrad.errors.UnreachedNode"),
]
REAL = [0.4, -1.2, 2.2, 0.1, 1.7, 0.9, -0.3, 1.1]


# -- rows --


def check_rows(case):
    """Rows are the natural parameters of elements, and A and b of groups, at the values of both chains; None if not suited."""
    gibbs = case.gibbs
    quick = compiled_gibbs(gibbs, case.plan, case.state, 0)
    if quick is None:
        return None
    numbers = quick.numbers
    tables, layout = numbers.tables, numbers.layout
    stats = quick._packed(case.state.mu, case.state.memory)[0]
    together = {name for group in gibbs.groups for name in group.names}
    scales = {scale.name for own in gibbs.scales.values() for scale in own}
    for chain, own in enumerate(stats):
        rows = np.empty(len(tables.starts) - 1)
        add_up(tables.starts, tables.coefs, tables.factors, own, rows)
        for name, block in case.problem.blocks.items():
            if name in together | scales or block.family.name == "MultivariateNormal":
                continue
            for number, part in enumerate(gibbs.conditional(block, case.state.mu)):
                got = rows[layout.places(name, number)]
                np.testing.assert_allclose(got, np.broadcast_to(part[chain], got.shape), rtol=1e-9, atol=1e-9)
        for op in tables.ops[tables.ops[:, 0] >= 6]:
            kind, size, first, table = op[[0, 5, 7, 8]]
            envelope, places = tables.envelope[table : table + size], tables.variables[table : table + size, 0]
            count = envelope[-1, 1] + size - envelope[-1, 0]
            whole = rows[first : first + count + size]
            if kind == 7:
                whole = whole + own[op[1]] * rows[first + count + size : first + 2 * (count + size)]
            matrix = np.zeros((size, size))
            for i, (start, begin) in enumerate(envelope):
                matrix[i, start : i + 1] = matrix[start : i + 1, i] = whole[begin : begin + i + 1 - start]
            wanted, b = forms(case, chain, places, layout)
            np.testing.assert_allclose(matrix, wanted, rtol=1e-9, atol=1e-9 * (1 + np.abs(wanted).max()))
            np.testing.assert_allclose(whole[count:], b, rtol=1e-9, atol=1e-9 * (1 + np.abs(b).max()))
    return quick


def forms(case, chain, places, layout):
    """A and b of the Gaussian numbers at these places, by the interpreter."""
    for group in case.gibbs.groups:
        own = np.concatenate([layout.places(name, 0).reshape(-1) for name in group.names])
        if set(places) == set(own):
            precision, b = group.form(case.state.mu)
            order = [int(np.flatnonzero(own == place)[0]) for place in places]
            return precision[chain][np.ix_(order, order)], b[chain][order]
    for name, block in case.problem.blocks.items():  # a vector
        first = layout.places(name, 0)
        if np.isin(places, first).all():
            own = first.reshape(-1, first.shape[-1])
            row = int(np.flatnonzero((own == places.min()).any(1))[0])
            order = [int(np.flatnonzero(own[row] == place)[0]) for place in places]
            shape = (len(own), first.shape[-1])
            one, two = (np.asarray(part[chain]) for part in case.gibbs.conditional(block, case.state.mu))
            one, two = np.broadcast_to(one, first.shape), np.broadcast_to(two, (*first.shape, first.shape[-1]))
            matrix = -2.0 * two.reshape(*shape, shape[1])[row]
            return matrix[np.ix_(order, order)], one.reshape(shape)[row][order]
    raise AssertionError(places)


def test_rows_are_the_conditionals_of_random_networks():
    suited = [
        quick for seed in range(40) if (case := accepted(seed, draw(seed))) is not None and (quick := check_rows(case))
    ]
    kinds = {int(kind) for quick in suited for kind in quick.numbers.tables.ops[:, 0]}
    assert len(suited) > 8
    assert kinds >= {0, 1, 4, 5, 6}


@pytest.mark.slow
def test_rows_are_the_conditionals_of_many_networks():
    suited = 0
    for seed in range(40, 2000):
        if (case := accepted(seed, draw(seed))) is not None:
            suited += check_rows(case) is not None
    assert suited > 300


# -- laws --


def regression():
    rows, x = ng.Plate("rows", 8), np.linspace(-1, 1, 8)
    a, b = ng.Normal("a", 0.0, 0.5), ng.Normal("b", 0.0, ng.Gamma("t", 2.0, 1.0))
    return ng.Normal("y", a + b * x, ng.Gamma("s", 2.0, 1.0), plate=rows, observed=REAL)


def vectors():
    rows, X = ng.Plate("rows", 8), np.stack([np.ones(8), np.linspace(-1, 1, 8), np.linspace(-1, 1, 8) ** 2], 1)
    w = ng.MultivariateNormal("w", [0.0, 1.0, 0.0], np.diag([1.0, 2.0, 3.0]))
    return ng.Normal("y", ng.dot(X, w), ng.Gamma("s", 2.0, 1.0), plate=rows, observed=REAL)


def shares():
    """A share of which some are seen, and two that are not."""
    share = ng.Beta("share", 0.6, 3.0)
    new = ng.Bernoulli("new", share, plate=ng.Plate("unseen", 2))
    return new, ng.Bernoulli("seen", share, plate=ng.Plate("rows", 8), observed=[1, 0, 0, 1, 0, 0, 0, 0])


def components():
    rows, k = ng.Plate("rows", 8), ng.Plate("k", 2)
    z = ng.Categorical("z", ng.Dirichlet("w", 3.0, size=2), plate=rows)
    mu = ng.Normal("mu", 0.0, 0.5, plate=k)
    return ng.Normal("y", mu[z], ng.Gamma("s", 3.0, 1.0), plate=rows, observed=REAL)


def fitted(declared):
    nodes = declared()
    return ng.Network(*(nodes if isinstance(nodes, tuple) else (nodes,))).fit(
        init={"mu": [-1.0, 1.5]} if declared is components else None, verbose=False
    )


def summaries(draws):
    """What is compared: every number, or the share of the first category."""
    return {
        name: (factor.values == 0) * 1.0 if factor.family.name == "Categorical" else factor.values
        for name, factor in draws.items()
    }


@pytest.mark.parametrize("declared", [regression, vectors, shares, components])
def test_the_law_is_that_of_interpreted_sweeps(declared):
    """Far apart along each chain, draws are nearly independent: two samples of one law."""
    fit = fitted(declared)
    options = {"chains": 40, "warmup": 40, "thin": 8, "verbose": False, "starts": "q"}
    quick = fit.draws(50, seed=1, **options)
    slow = fit.draws(20, seed=2, backend="numpy", **options)
    for name, own in summaries(quick).items():
        other = summaries(slow)[name]
        for place in np.ndindex(own.shape[2:]):
            a, b = own[(..., *place)].ravel(), other[(..., *place)].ravel()
            assert ks_2samp(a, b).pvalue > 1e-4, (name, place)
    for name, factor in quick.items():  # averages of conditionals
        for own, other in zip((factor.first, factor.second), (slow[name].first, slow[name].second), strict=True):
            if own.shape == factor.first.shape:
                a, b = own / factor.count, other / slow[name].count  # of each chain
                error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
                assert (np.abs(a.mean(0) - b.mean(0)) < 4.5 * error + 1e-9).all(), name


def used(monkeypatch):
    """Which draws were made by the compiled loop."""
    found = []

    def noted(*arguments):
        found.append(compiled_gibbs(*arguments))
        return found[-1]

    monkeypatch.setattr(draws_run, "compiled_gibbs", noted)
    return found


def test_what_is_compiled(monkeypatch):
    found = used(monkeypatch)
    fit = fitted(regression)
    fit.draws(200, verbose=False)
    fit.draws(20, warmup=10, verbose=False)
    chain = ng.MarkovChain("z", [0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], plate=ng.Plate("t", 8))
    states = ng.Normal("mu", [-1.0, 1.5], 1.0, plate=ng.Plate("k", 2))
    network = ng.Network(ng.Normal("y", states[chain], 1.0, plate=chain.plates, observed=REAL))
    network.fit(verbose=False).draws(300, starts="q", verbose=False)
    assert [quick is not None for quick in found] == [True, False, False]


# -- bits --


@pytest.mark.parametrize("declared", [regression, components])
def test_calls_and_threads_do_not_show(declared, monkeypatch):
    fit = fitted(declared)
    options = {"chains": 3, "warmup": 7, "thin": 3, "seed": 5, "verbose": False, "starts": "q"}
    whole = fit.draws(91, **options)
    monkeypatch.setattr(compiled_module, "MOST_WORK", 20_000)
    with at_most(1):
        pieces = fit.draws(91, **options)
    seen = []
    looked = fit.draws(91, callbacks=[lambda progress: seen.append(progress.t)], **options)
    assert seen == list(range(1, 281))
    for name, factor in whole.items():
        for other in (pieces[name], looked[name]):
            np.testing.assert_array_equal(factor.values, other.values)
            np.testing.assert_array_equal(factor.first, other.first)


def test_a_large_node_keeps_the_draws_that_it_would(monkeypatch):
    fit = fitted(components)
    options = {"chains": 2, "warmup": 100, "verbose": False, "starts": "q"}
    whole = fit.draws(101, **options)
    monkeypatch.setattr(draws_run, "MOST_KEPT", 500)
    monkeypatch.setattr(compiled_module, "MOST_RECORDED", 350)
    some = fit.draws(101, **options)
    assert some["z"].stride == 4
    assert some["mu"].stride == 1
    np.testing.assert_array_equal(some["z"].values, whole["z"].values[:, ::4])
    np.testing.assert_array_equal(some["mu"].values, whole["mu"].values)
    np.testing.assert_array_equal(some["z"].mean(), whole["z"].mean())


def test_labels_are_put_back_as_by_the_interpreter():
    check_put_back(40)


def check_put_back(times):
    rows, k = ng.Plate("rows", 8), ng.Plate("k", 3)
    z = ng.Categorical("z", ng.Dirichlet("w", 3.0, size=3), plate=rows)
    mu = ng.Normal("mu", 0.0, 0.5, plate=k)
    fit = ng.Network(ng.Normal("y", mu[z], 1.0, plate=rows, observed=REAL)).fit(
        init={"mu": [-1.0, 0.5, 2.0]}, verbose=False
    )
    plan = fit.problem.plan
    relabel = Relabelling(plan, fit.state.mu)
    gibbs = Gibbs(NetworkProblem(with_chains(plan, times), "numpy"), Schedule(0, 1, 1), {}, relabel)
    state = gibbs.start(fit.state.lam, 0)
    quick = compiled_gibbs(gibbs, plan, state, 0)
    rng = np.random.default_rng(0)
    stats, values = dict(state.mu), dict(state.memory["values"])
    for entry in relabel.sets:  # every chain in an order of its own
        orders = np.array([rng.permutation(entry.size) for _ in range(times)])
        renumber(plan, entry, np.arange(times), orders, stats, values)
    packed, numbers, _ = quick._packed(stats, {**state.memory, "values": values})
    averages = rng.normal(size=(2, times, quick.numbers.layout.n_averages))
    first = {n: averages[0][:, a : a + p[0][0].size].reshape(p[0].shape) for n, (a, p) in sums_of(quick, state).items()}
    moved = relabel.put_back(stats, values, first)
    got = [put_back(quick.numbers.tables, packed[c], numbers[c], averages[0][c], averages[1][c]) for c in range(times)]
    assert moved.sum() > times / 3
    np.testing.assert_array_equal(got, moved)
    wanted, wanted_values, _ = quick._packed(stats, {**state.memory, "values": values})
    np.testing.assert_array_equal(packed, wanted)
    np.testing.assert_array_equal(numbers, wanted_values)
    for name, (at, pair) in sums_of(quick, state).items():
        np.testing.assert_array_equal(averages[0][:, at : at + pair[0][0].size].reshape(pair[0].shape), first[name])


def sums_of(quick, state):
    return {name: (at, state.memory["sums"][name]) for name, at in quick.numbers.layout.averages.items()}


def test_a_conditional_that_is_no_distribution_is_an_error(monkeypatch):
    fit = fitted(regression)
    inner = compiled_module.run_sweeps

    def broken(stats, *rest):
        stats[:] = np.nan
        stats[:, 0] = 1.0
        inner(stats, *rest)

    monkeypatch.setattr(compiled_module, "run_sweeps", broken)
    with pytest.raises(FloatingPointError, match="no distribution"):
        fit.draws(300, verbose=False)
