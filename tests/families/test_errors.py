"""The border: what natural() refuses, and where valid() says no."""

from typing import Any

import jax
import numpy as np
import pytest

from natgrad import families as nf

EYE = np.eye(2)


@pytest.mark.parametrize(
    ("family", "usual", "message"),
    [
        (nf.Normal(), {"mean": 0.0, "precision": [1, 1, 1, -1]}, r"precision\[3\] = -1 must be > 0"),
        (nf.Normal(), {"mean": np.nan, "precision": 1.0}, r"mean = nan must be finite"),
        (nf.Gamma(), {"shape": [[1.0, 0.0]], "rate": 1.0}, r"shape\[0, 1\] = 0 must be > 0"),
        (nf.Bernoulli(), {"prob": [0.5, 1.0]}, r"prob\[1\] = 1 must lie strictly between"),
        (nf.Categorical(), {"probs": [[0.5, 0.5], [0.5, 0.6]]}, r"probs.sum\(-1\)\[1\] = 1.1 must be 1"),
        (nf.Categorical(), {"probs": 0.5}, r"probs needs 1 event axes"),
        (
            nf.MultivariateNormal(),
            {"mean": [0, 0], "precision": [EYE, -EYE]},
            r"smallest eigenvalue of precision\[1\] = -1 must be > 0",
        ),
        (nf.MultivariateNormal(), {"mean": [0, 0], "precision": [[1, 0.5], [0, 1]]}, "symmetric"),
        (nf.MultivariateNormal(), {"mean": [0, 0], "precision": [[1, 0.5]]}, "square"),
        (nf.Wishart(), {"dof": [3.0, 1.0], "rate": EYE}, r"dof\[1\] = 1 must be > D − 1 = 1"),
        (nf.NormalWishart(), {"mean": [0, 0], "scale": 1, "dof": 1, "rate": EYE}, "dof = 1 must be > D − 1"),
        (
            nf.MarkovChain(),
            {"potentials": [[0.0, np.inf]], "log_initial": [0, 0], "log_transition": EYE},
            r"potentials\[0, 1\] = inf",
        ),
    ],
)
def test_natural_names_the_offending_element(family: nf.Family, usual: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.natural(**usual)


def test_natural_names_its_arguments() -> None:
    with pytest.raises(TypeError, match="Normal takes mean, precision; got mean, variance"):
        nf.Normal().natural(mean=0.0, variance=1.0)


def test_natural_can_be_traced() -> None:
    with jax.enable_x64(True):
        lam = jax.jit(lambda p: nf.Normal().natural(mean=1.0, precision=p))(-2.0)
        assert not nf.Normal().valid(lam)


@pytest.mark.parametrize(
    ("family", "border"),
    [
        (nf.Normal(), (1.0, 0.0)),
        (nf.Normal(), (1.0, 0.1)),
        (nf.MultivariateNormal(), (np.zeros(2), -0.5 * np.ones((2, 2)))),
        (nf.MultivariateNormal(), (np.zeros(2), 0.5 * EYE)),
        (nf.Gamma(), (0.0, 1.0)),
        (nf.Gamma(), (-1.0, -1.0)),
        (nf.Wishart(), (-EYE, -1.0)),
        (nf.Wishart(), (EYE, 1.0)),
        (nf.Dirichlet(), (np.array([0.0, -1.0]),)),
        (nf.Beta(), (-1.0, 0.0)),
        (nf.Beta(), (0.0, -1.0)),
        (nf.Bernoulli(), (-np.inf,)),
        (nf.Poisson(), (800.0,)),
        (nf.NormalGamma(), (1.0, -0.5, -0.5, 1.0)),
        (nf.NormalGamma(), (1.0, -0.5, -1.0, -0.5)),
        (nf.NormalWishart(), (np.array([1.0, 0.0]), -0.5, -0.5 * np.array([[1.0, 0], [0, 2]]), 1.0)),
        (nf.MarkovChain(), (np.array([[0.0, 0.0], [-np.inf, -np.inf]]), np.zeros(2), np.zeros((2, 2)))),
    ],
)
def test_valid_says_no_at_the_border(family: nf.Family, border: tuple[Any, ...]) -> None:
    lam = tuple(np.asarray(g) for g in border)
    assert not family.valid(lam)
    family.moments(lam)  # NaN or infinite, but neither an exception nor a warning
    with jax.enable_x64(True):
        assert not jax.jit(family.valid)(tuple(jax.numpy.asarray(g) for g in lam))


def test_categories_need_a_size() -> None:
    for family in (nf.Categorical(), nf.MarkovChain()):
        with pytest.raises(ValueError, match="size"):
            family.stats_of(np.array([0, 1]))


def test_chain_lengths_are_checked() -> None:
    with pytest.raises(ValueError, match="lengths must be positive"):
        nf.MarkovChain((2, 0))
    with pytest.raises(ValueError, match="lengths sum to 3, but the chain has T = 4"):
        nf.MarkovChain((1, 2)).moments((np.zeros((4, 2)), np.zeros(2), np.zeros((2, 2))))
