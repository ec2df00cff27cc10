"""The interpreter is the slow twin of the compiler: every function of a network is the same on both, to rounding."""

import numpy as np
import pytest
from generators.checks import REFUSALS, Case
from generators.generator import draw
from marking import some_slow
from promises.networks import CASES, factorised, mixture
from trees import RTOL, same

import natgrad as ng
from natgrad.inference.problem import State
from natgrad.network.execute.backend import choose_backend
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


# Each is a program to compile.
@pytest.mark.parametrize("name", some_slow(CASES, ["factorised", "skills"]))
def test_a_sweep_and_the_bound_are_the_same(name):
    case = CASES[name]()
    problem = case.network.problem_on("numpy")
    order = tuple(case.order or problem.blocks)
    state = problem.sweep(make_start(problem, case.init, 0), order).state
    check_sweep(case.network, state, order)


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
    check_sweep(network, make_start(problem, {}, 0), tuple(problem.blocks))


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
