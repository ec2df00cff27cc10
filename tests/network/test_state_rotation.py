"""State spaces that are rotated: the data are as likely, the cost is the bound, its slope its derivative; others are not."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.rotation import rotate_pair
from natgrad.network.execute import state_rotation

SIZE, TIMES, SENSORS = 3, 25, 4
LENGTHS = (10, 14, 1)


def make_network(learned=True, lengths=None, noise=1.0, entry=False, lead=(), inputs=None):
    """A state space; precisions of dynamics and loadings are learned for each column, or known."""
    rng = np.random.default_rng(3)
    shape = (*(plate.size for plate in lead), TIMES, SENSORS)
    y = np.cumsum(rng.normal(size=shape), axis=-2)
    y[rng.random(shape) < 0.2] = np.nan
    times, sensor = ng.Plate("time", TIMES), ng.Plate("sensor", SENSORS)
    own = [
        ng.diag(ng.Gamma(name, 0.5 + np.arange(SIZE), 0.3, plate=ng.Plate(f"{name} column", SIZE)))
        if learned
        else known
        for name, known in (("alpha", 2.0 * np.eye(SIZE)), ("gamma", np.eye(SIZE) + 0.3))
    ]
    width = SIZE if inputs is None else SIZE + inputs.shape[-1]
    precision = own[0] if inputs is None else 1.0
    a = ng.MultivariateNormal("A", 0.0, precision, plate=ng.Plate("row", SIZE), size=width)
    x = ng.GaussianChain(
        "x", np.arange(SIZE) - 0.5, np.eye(SIZE) + 0.2, a, noise, plate=(*lead, times), lengths=lengths, inputs=inputs
    )
    c = ng.MultivariateNormal("C", 0.0, own[1], plate=sensor, size=SIZE)
    tau = ng.Gamma("tau", 1.0, 1.0)
    seen = ng.Normal("y", ng.dot(c, x), tau, plate=(*lead, times, sensor), observed=y)
    return ng.Network(
        seen, *(ng.Normal("v", x[:, 0], 1.0, plate=times, observed=np.zeros(TIMES)) for _ in range(entry))
    )


def start():
    rng = np.random.default_rng(1)
    return {"A": 0.5 * np.eye(SIZE), "C": rng.normal(size=(SENSORS, SIZE))}


NETWORKS = {
    "relevances": lambda: make_network(),
    "known precisions": lambda: make_network(learned=False, noise=np.diag([1.0, 2.0, 0.5])),
    "sequences end to end": lambda: make_network(lengths=LENGTHS),
    "a plate of sequences": lambda: make_network(lead=(ng.Plate("sequence", 2),)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_cost_of_a_basis_is_the_bound(name, monkeypatch):
    """For any R, the bound at the turned state; its slope is its derivative, and the best R does not lower it."""
    network = NETWORKS[name]()
    problem = network.problem_on("numpy")
    (space,) = problem.state_spaces
    state = network.fit(ng.VB(), init=start(), max_steps=3, tol=0, backend="numpy").state
    sums = state_rotation._sums(space, state)
    priors = [state_rotation._prior(problem, part, space, state) for part in (space.loadings, space.dynamics)]
    best = state_rotation.best_basis(space, sums, *priors)

    def turned(basis):
        monkeypatch.setattr(state_rotation, "best_basis", lambda *_: basis)
        found = rotate_pair(problem, ("x", "C"), state)
        for block, lam in found.state.lam.items():  # λ and μ belong together
            for mine, theirs in zip(problem.moments(problem.blocks[block], lam), found.state.mu[block], strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-9)
        return problem.bound_by_node(found.state), state_rotation._cost(space, sums, *priors, basis)

    here, (cost, _) = turned(np.eye(SIZE))
    assert turned(best)[1][0] <= cost
    rng = np.random.default_rng(0)
    for _ in range(2):
        basis = np.eye(SIZE) + 0.4 * rng.normal(size=(SIZE, SIZE))
        there, (value, slope) = turned(basis)
        assert there["y"] == pytest.approx(here["y"], abs=1e-8)
        assert sum(there.values()) - sum(here.values()) == pytest.approx(cost - value, rel=1e-9, abs=1e-8)
        shift = 1e-5 * rng.normal(size=basis.shape)
        change = [state_rotation._cost(space, sums, *priors, basis + s * shift)[0] for s in (1, -1)]
        assert (change[0] - change[1]) / 2 == pytest.approx(np.sum(slope * shift), rel=1e-5)


def test_rotated_sweeps_rise_and_are_ahead_of_others():
    network = make_network()
    options = {"init": start(), "max_steps": 12, "tol": 0, "backend": "numpy"}
    turned, plain = (network.fit(step=ng.Auto(rotate=rotate), **options) for rotate in (True, False))
    assert "x·C" in turned.trace.strategy
    assert np.diff(turned.trace["elbo"]).min() > -1e-7
    assert turned.elbo > plain.elbo + 1.0


@pytest.mark.slow
def test_compiled_sweeps_are_rotated_alike():
    network = make_network()
    options = {"init": start(), "max_steps": 6, "tol": 0}
    fits = [network.fit(backend=backend, **options) for backend in ("numpy", "jax")]
    np.testing.assert_allclose(*(fit.trace["elbo"] for fit in fits), rtol=1e-8)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: make_network(noise=np.eye(SIZE) + 0.1),  # correlated noise reads rows of the dynamics together
        lambda: make_network(noise=ng.Gamma("q", 1.0, 1.0)),  # learned noise is seen in these coordinates
        lambda: make_network(entry=True),  # so is an entry that is read by itself
        lambda: make_network(inputs=np.ones((TIMES, 1))),
    ],
)
def test_other_state_spaces_are_left_alone(declare):
    assert declare().problem_on("numpy").state_spaces == ()
