"""No name that a user can choose means something inside: the same network under other names is the same, bit for bit."""

from functools import cache

import numpy as np
import pytest

import natgrad as ng

PLAIN = {"k": "component", "n": "point", "w": "weights", "mu": "mu", "tau": "tau", "z": "z", "x": "x"}
ODD = [
    {"k": "sample", "n": "draw"},
    {"k": "draw", "n": "sample"},
    {"k": "gate'0", "n": "k'1", "z": "weight:k'1", "mu": "weight:gate'0"},
    {"k": "Mark('k', 0)", "n": "Mark('sample', -1)", "x": "folded:x:3", "z": "statistic:x:0"},
    {"k": "i", "n": "0", "w": "n", "mu": "lam", "tau": "mu", "z": "t", "x": "z"},
]


def mixture(names, weight=None):
    """Two components with a weight for each point, under the given names."""
    rng = np.random.default_rng(1)
    data = np.concatenate([rng.normal(-3, 1, 60), rng.normal(3, 1, 60)])
    k, n = ng.Plate(names["k"], 2), ng.Plate(names["n"], 120, weight=weight)
    pi = ng.Dirichlet(names["w"], np.ones(2))
    mu = ng.Normal(names["mu"], 0.0, 0.01, plate=k)
    tau = ng.Gamma(names["tau"], 1.0, 1.0, plate=k)
    z = ng.Categorical(names["z"], pi, plate=n)
    return ng.Network(ng.Normal(names["x"], mu[z], tau[z], plate=n, observed=data))


@cache
def found(case):
    """What a network finds under plain names (None) or odd ones: by Hoffman's method, or with weights by exact sweeps."""
    number, method, weight = case
    names = PLAIN if number is None else {**PLAIN, **ODD[number]}
    network = mixture(names, np.repeat([1.0, 2.0, 0.0], 40) if weight else None)
    options = {"init": {names["mu"]: [-1.0, 1.0]}, "max_steps": 30, "tol": 0}
    fit = network.fit(ng.SVI({names["n"]: 3}) if method == "SVI" else ng.VB(), **options)
    drawn = fit.predictive(names["x"], sizes={names["n"]: 4})
    return [
        fit.elbo,
        fit[names["mu"]].mean(),
        fit[names["z"]].mean(),
        drawn.sample(0, 3),
        drawn.log_density(np.zeros(4)),
    ]


@pytest.mark.parametrize(
    "case", [(0, "SVI", False), (1, "VB", True), (2, "VB", True), (3, "VB", True), (4, "VB", True)]
)
def test_names_mean_nothing(case):
    for one, other in zip(found((None, *case[1:])), found(case), strict=True):
        np.testing.assert_array_equal(one, other)
