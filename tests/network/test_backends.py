"""The interpreter is the slow twin of the compiler: every function of a network is the same on both, to rounding."""

import subprocess
import sys

import numpy as np
import pytest
from marking import some_slow
from networks import CASES, factorised, mixture
from random_checks import REFUSALS, Case
from random_generator import draw
from trees import RTOL, same

import natgrad as ng
from natgrad.inference.problem import Sampled, State
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.network.execute.choice import choose_backend
from natgrad.network.execute.numpy_contraction import Contraction
from natgrad.network.groups.groups import Batch, Groups
from natgrad.network.groups.summary import NotAdditive
from natgrad.network.start.initial import make_start


def check_sweep(network: ng.Network, state: State, order: tuple[str, ...], rtol: float = RTOL) -> None:
    """One sweep and the bound."""
    first, second = (network.problem_on(name) for name in ("numpy", "jax"))
    ours, theirs = first.sweep(state, order), second.sweep(state, order)
    same(ours.bound, theirs.bound, "the bound of the sweep", rtol)
    same(ours.state.lam, theirs.state.lam, "λ", rtol)
    same(ours.state.mu, theirs.state.mu, "μ", rtol)
    assert {n: bool(i.valid) for n, i in ours.info.items()} == {n: bool(i.valid) for n, i in theirs.info.items()}
    # A node's part is a difference, of numbers as large as the other parts or larger.
    parts = [p.bound_by_node(ours.state) for p in (first, second)]
    same(*(np.array([part[name] for name in parts[0]]) for part in parts), "the bound", rtol)


def check_targets(network: ng.Network, state: State, seed: int) -> None:
    """Targets of every block: all data, a sample of each term, and one column."""
    first, second = (network.problem_on(name) for name in ("numpy", "jax"))
    rng = np.random.default_rng(seed)
    for name, block in first.blocks.items():
        column = None if block.column_axis is None else block.n_columns - 1
        samples = []
        for children in first.child_sets(name):
            chosen = rng.integers(0, len(children.children), 3) if len(children.children) else np.zeros(0, dtype=int)
            zipped = children.zipped(children.children[chosen])
            samples.append(Sampled(children.term, children.occurrence, zipped, rng.random(len(chosen))))
        for arguments in [(None, (), None), ((name,), tuple(samples), column)]:
            ours, theirs = (p.target(block, state, *arguments) for p in (first, second))
            same(ours, theirs, f"target of {name!r}")


# Each is a program to compile.
@pytest.mark.parametrize("name", some_slow(CASES, ["hmm", "factorised", "counts", "skills"]))
def test_a_sweep_and_the_bound_are_the_same(name):
    case = CASES[name]()
    problem = case.network.problem_on("numpy")
    order = tuple(case.order or problem.blocks)
    state = problem.sweep(make_start(problem, case.init, 0), order).state
    check_sweep(case.network, state, order)


@pytest.mark.parametrize(
    "name", [n if n in ("factorised", "skills") else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_targets_are_the_same(name):
    case = CASES[name]()
    problem = case.network.problem_on("numpy")
    state = problem.sweep(make_start(problem, case.init, 0), tuple(case.order or problem.blocks)).state
    check_targets(case.network, state, 0)


def test_a_column_whose_prior_lies_on_a_diagonal():
    """A table that a plate reads along two axes is cut along both; cut along one, the other was summed over."""
    row, kind, other = ng.Plate("row", 3), ng.Plate("kind", 2), ng.Plate("other", 2)
    tau = ng.Gamma("tau", 2.0, np.array([[1.0, 4.0], [0.5, 9.0]]), plate=(other, kind))
    w = ng.Normal("w", 0.7, tau[kind.index(np.array([1, 0])), :], plate=kind)
    X = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -2.0]])
    y = ng.Normal("y", ng.dot(X, w, over=kind), 1.0, plate=row, observed=np.array([1.0, -2.0, 0.5]))
    network = ng.Network(y)
    problem = network.problem_on("numpy")
    assert problem.blocks["w"].column_axis == 0
    check_targets(network, make_start(problem, {}, 0), 0)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(s, marks=pytest.mark.slow) for s in [*range(8, 12), *range(30_000, 30_200)])]
)
def test_random_networks_are_the_same(seed):
    try:
        case = Case(seed, draw(seed))
    except REFUSALS:
        return
    if seed < 12:  # nothing to compile but this
        problems = (case.network.problem_on(name) for name in ("numpy", "jax"))
        same(*(p.bound_by_node(case.state) for p in problems), f"the bound of seed {seed}")
        return
    check_sweep(case.network, case.state, case.order)
    check_targets(case.network, case.state, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40_000, 40_200))
def test_traces_of_random_networks_are_the_same(seed):
    try:
        case = Case(seed, draw(seed))
    except REFUSALS:
        return
    traces = []
    for backend in ("numpy", "jax"):
        problem, state, bounds = case.network.problem_on(backend), case.state, []
        for _ in range(5):
            result = problem.sweep_jointly(state, case.order)
            state = result.state
            bounds.append(result.bound)
        traces.append(np.array(bounds))
    same(*traces, f"the trace of seed {seed}", 1e-10)


TRACES = {
    "VB": (mixture, None, {}),
    "rotation": (CASES["pca"], None, {}),
    "joint": (CASES["blocks"], None, {}),
    "columns": (CASES["factorised"], ng.Children(2), {}),
    "batches": (CASES["blocks"], ng.GlobalBatch(7), {}),
    "groups": (CASES["scalar_mixture"], ng.SVI({"point": 6}), {}),
    "documents": (CASES["lda"], ng.SVI({"doc": 2}), {}),
    "SVI": (CASES["hmm"], ng.SVI({"sequence": 2}), {"step": ng.RobbinsMonro()}),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in TRACES])
def test_traces_are_the_same(name):
    make, method, options = TRACES[name]
    case = make()
    ours, theirs = (
        case.network.fit(method, init=case.init, max_steps=10, tol=0, backend=b, **options) for b in ("numpy", "jax")
    )
    for column in ("elbo", "messages_read", "rho"):
        same(ours.trace[column], theirs.trace[column], f"{name}: {column}", 1e-10)
    assert "as asked" in theirs.trace.strategy


def test_a_batch_says_the_same_and_its_local_variables_are_the_same():
    """Summaries with sums by element of an index, local solves of a padded batch, the bound that a batch estimates."""
    case = CASES["lda"]()
    found = []
    for backend in ("numpy", "jax"):
        problem = case.network.problem_on(backend)
        state = make_start(problem, case.init, 0)
        order = tuple(case.order)
        groups = Groups(problem, "doc", order)
        batch = Batch(groups, np.array([1, 4]))
        local = groups.solve(state, groups.rows(state, batch), batch, 1e-6, 20)
        method = ng.SVI({"doc": 2})
        kept = {n: tuple(map(np.asarray, v)) for n, v in local.lam.items()}
        summed = problem.grouping.remembered(method, order)._contribution(kept, batch)
        forgotten = problem.grouping.along(method, order)
        limits = method.size, method.local_tol, method.local_steps
        after, info = GroupStepper(forgotten, *limits, ng.Constant(0.5), remember=False).step(state, 0)
        found.append(
            (dict(local.lam), dict(local.mu), local.iterations, summed[0], summed[1], after.lam, info.estimate)
        )
    same(*found, "a batch", 1e-11)
    grouping = CASES["skills"]().network.problem_on("numpy").grouping
    with pytest.raises(NotAdditive):
        grouping.remembered(ng.SVI({"game": 3}), ("skill", "noise"))


def test_a_small_fit_does_not_import_jax():
    """Nor does it, or the import, bring along what takes longer than the fit."""
    code = """
import sys
import numpy as np, natgrad as ng
assert not {"jax", "sklearn", "scipy.optimize", "scipy.sparse", "scipy.stats", "numba", "pandas"} & set(sys.modules)
from networks import CASES
case = CASES["mixture"]()
fit = case.network.fit(init="kmeans")
fit.elbo, fit.natural_gradient("mu"), fit.continue_fit(ng.SVI({"point": 5}), max_steps=2)
CASES["pca"]().network.fit(), CASES["hmm"]().network.fit(init="random")
CASES["factorised"]().network.fit(ng.Children(2), init="random", max_steps=3)
assert not {"jax", "sklearn", "scipy.optimize", "scipy.sparse", "numba"} & set(sys.modules)
fit.predictive("y").sample(0, 1)
assert "jax" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def _environment() -> dict[str, str]:
    import os
    from pathlib import Path

    here = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}


def test_the_choice_is_the_problem_s_alone_and_says_why():
    small, large = mixture(n=30).network, factorised(size=40, n_users=3000, n_items=300, n_ratings=50_000).network
    assert choose_backend(small.problem_on("numpy").plan).name == "numpy"
    chosen = choose_backend(large.problem_on("numpy").plan)
    assert chosen.name == "jax"
    assert "compiled by JAX: 60 sweeps" in chosen.words
    assert choose_backend(large.problem_on("numpy").plan) == chosen
    # What is read through two indices, b[who][when], is one number of a row.
    who, when, effects = np.arange(6000) % 50, np.arange(6000) % 7, (ng.Plate("user", 50), ng.Plate("bin", 7))
    crossed = ng.Normal(
        "y", ng.Normal("b", 0.0, 1.0, plate=effects)[who, when], 1.0, plate=ng.Plate("n", 6000), observed=1.0 * who
    )
    assert choose_backend(ng.Network(crossed).problem_on("numpy").plan).name == "numpy"
    with pytest.raises(ValueError, match='backend must be "numpy", "jax" or None, got \'torch\''):
        small.fit(backend="torch")
    case = CASES["scalar_mixture"]()
    assert "interpreted by NumPy: 60 sweeps" in case.network.fit(init=case.init, max_steps=2, tol=0).trace.strategy


@pytest.mark.parametrize(
    ("out", "inputs", "sizes"),
    [
        ("", ["ab", "bc", "ca"], {"a": 30, "b": 40, "c": 50}),
        ("ac", ["nab", "ncb", "n"], {"n": 700, "a": 3, "b": 2, "c": 4}),
        ("na", ["nab", "nb"], {"n": 900, "a": 3, "b": 2}),
        ("ck", ["cnk"], {"c": 6, "n": 300, "k": 2}),  # a sum before a short axis, and before a long one
        ("ck", ["cnk"], {"c": 6, "n": 30, "k": 40}),
        ("ckj", ["cnk", "cj"], {"c": 6, "n": 300, "k": 2, "j": 3}),
        ("ba", ["aab", "cca"], {"a": 20, "b": 60, "c": 7}),
        ("kij", ["nk", "ni", "nj"], {"n": 60_000, "k": 10, "i": 4, "j": 4}),
        ("nk", ["ni", "nj", "kij"], {"n": 60_000, "k": 20, "i": 4, "j": 4}),
        ("a", ["a", "b", "c", "d", "e", "abcde", "f"], {"a": 8, "b": 7, "c": 6, "d": 5, "e": 4, "f": 3}),
    ],
)
def test_contractions_are_those_of_einsum(out, inputs, sizes):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=[sizes[x] for x in labels]) for labels in inputs]
    found = Contraction(tuple(out), [tuple(labels) for labels in inputs], [a.shape for a in arrays])(arrays)
    same(found, np.einsum(",".join(inputs) + "->" + out, *arrays, optimize=True), "product", 1e-11)
