"""Covariances under q in closed form: those of the Fisher information, of the derivative of the mean, of the variance."""

import numpy as np
import pytest

from natgrad import families
from natgrad.families import Family
from natgrad.families.fisher import _differentiated, covariances

CASES = {
    "Normal": (families.Normal(), {"mean": [1.5, -30.0], "precision": [2.0, 0.3]}),
    "MultivariateNormal": (
        families.MultivariateNormal(),
        {"mean": [[1.0, -2.0]], "precision": [[[2.0, 0.5], [0.5, 1.0]]]},
    ),
    "Gamma": (families.Gamma(), {"shape": [0.4, 7.0], "rate": [2.0, 0.1]}),
    "Wishart": (families.Wishart(), {"dof": [3.5], "rate": [[[2.0, 0.3], [0.3, 1.0]]]}),
    "Dirichlet": (families.Dirichlet(), {"concentration": [[0.3, 2.0, 9.0], [1.0, 1.0, 1.0]]}),
    "Beta": (families.Beta(), {"a": [0.5, 4.0], "b": [3.0, 4.0]}),
    "Categorical": (families.Categorical(), {"probs": [[0.2, 0.5, 0.3]]}),
    "Bernoulli": (families.Bernoulli(), {"prob": [0.2, 0.9]}),
    "Poisson": (families.Poisson(), {"rate": [0.2, 30.0]}),
    "two chains": (
        families.MarkovChain(lengths=(2, 3)),
        {
            "potentials": [[[0.1, -0.5], [1.0, 0.0], [0.3, 0.2], [0.0, 2.0], [-1.0, 0.5]], [[0.0, 0.3]] * 5],
            "log_initial": [-0.5, -0.9],
            "log_transition": [[-0.3, -1.4], [-1.0, -0.5]],
        },
    ),
    "MarkovChain": (
        families.MarkovChain(),
        {
            "potentials": [[0.1, -0.5], [1.0, 0.0], [0.3, 0.2]],
            "log_initial": [-0.5, -0.9],
            "log_transition": [[-0.3, -1.4], [-1.0, -0.5]],
        },
    ),
}
# Whose value packs a mean beside its precision, so that it is no statistic: its covariances are differentiated.
JOINT = {
    "Binary": (families.Binary(), {"prob": [0.2, 0.9]}),
    "NormalGamma": (
        families.NormalGamma(),
        {"mean": [1.5, -3.0], "scale": [2.0, 0.3], "shape": [0.4, 7.0], "rate": [2.0, 0.1]},
    ),
    "NormalWishart": (
        families.NormalWishart(),
        {"mean": [[1.0, -2.0]], "scale": [0.7], "dof": [3.5], "rate": [[[2.0, 0.3], [0.3, 1.0]]]},
    ),
    "MatrixNormalWishart": (
        families.MatrixNormalWishart(),
        {
            "mean": [[[1.0, -2.0], [0.5, 3.0]]],
            "scale": [[[0.7, 0.2], [0.2, 2.0]]],
            "dof": [3.5],
            "rate": [[[2.0, 0.3], [0.3, 1.0]]],
        },
    ),
    "TiedNormalWishart": (
        families.TiedNormalWishart(),
        {"mean": [[[1.0, -2.0], [0.5, 3.0]]], "scale": [[0.7, 2.0]], "dof": [3.5], "rate": [[[2.0, 0.3], [0.3, 1.0]]]},
    ),
}


def natural(name: str) -> tuple[Family, tuple[np.ndarray, ...]]:
    family, usual = (CASES | JOINT)[name]
    lam = family.natural(**{key: np.array(value) for key, value in usual.items()})
    return family, tuple(map(np.asarray, lam))


def slope(function, lam: tuple, change: tuple, step: float = 1e-5) -> list[np.ndarray]:
    """A derivative along a direction, by central differences."""
    ends = [function(tuple(g + sign * step * c for g, c in zip(lam, change, strict=True))) for sign in (1.0, -1.0)]
    return [(np.asarray(a) - np.asarray(b)) / (2.0 * step) for a, b in zip(*ends, strict=True)]


@pytest.mark.parametrize("name", CASES | JOINT)
def test_times_is_the_derivative_of_the_moments(name):
    family, lam = natural(name)
    rng = np.random.default_rng(3)
    change = family.project(tuple(rng.normal(size=g.shape) for g in lam))
    for found, wanted in zip(
        covariances(family, lam).times(change), slope(family.expected_stats, lam, change), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_read_as_the_mean_changes_and_varies_as_it_does_under_q(name):
    family, lam = natural(name)
    rng = np.random.default_rng(4)
    found = covariances(family, lam)
    change = family.project(tuple(rng.normal(size=g.shape) for g in lam))
    (wanted,) = slope(lambda lam: (family.mean(lam),), lam, change)
    np.testing.assert_allclose(found.value_by(change), wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    # Cov(φ, x) is the transpose of Cov(x, φ).
    weights = rng.normal(size=wanted.shape)
    if family.name == "Wishart":
        weights = 0.5 * (weights + np.swapaxes(weights, -1, -2))
    inner = sum(float(np.vdot(a, b)) for a, b in zip(found.stats_by(weights), change, strict=True))
    np.testing.assert_allclose(inner, np.vdot(weights, found.value_by(change)), rtol=1e-9)
    if family.name == "MarkovChain":
        return  # whose states at different times are not independent
    unit = np.zeros(wanted.shape)
    unit.reshape(-1)[0] = 1.0
    np.testing.assert_allclose(found.own(unit).reshape(-1)[0], family.var(lam).reshape(-1)[0], rtol=1e-10)


def test_what_is_differentiated_by_jax_is_the_same():
    family, lam = natural("Gamma")
    change = (np.array([0.3, -1.0]), np.array([1.0, 0.2]))
    for found, wanted in zip(_differentiated(family, lam)(change), covariances(family, lam).times(change), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
