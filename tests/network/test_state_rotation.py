"""State spaces that are rotated: the data are as likely, the cost is the bound, its slope its derivative; others are not."""

import numpy as np
import pytest

import natgrad as ng

SIZE, TIMES, SENSORS = 3, 25, 4


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


def test_rotated_sweeps_rise_and_are_ahead_of_others():
    network = make_network()
    options = {"init": start(), "max_steps": 12, "tol": 0, "backend": "numpy"}
    turned, plain = (network.fit(step=ng.Auto(rotate=rotate), **options) for rotate in (True, False))
    assert "x·C" in turned.trace.strategy
    assert np.diff(turned.trace["elbo"]).min() > -1e-7
    assert turned.elbo > plain.elbo + 1.0


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
