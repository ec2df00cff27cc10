"""Evaluate cumulative distribution functions of single numbers, those that several nodes have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special as sp

__all__ = ["Cdf", "beta_cdf", "binomial_cdf", "gamma_cdf", "normal_cdf", "truncated_cdf"]


class Cdf(NamedTuple):
    """A distribution function of every element, for every draw of the parents: F(x) = function(x, *arguments).

    Attributes
    ----------
    function : callable, of arrays that broadcast
    arguments : arrays [draw, plates, event]
    is_whole : whether it is a step function, of whole numbers from 0 on
    back : where a quantile leads, such as exp if F is that of logarithms
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    is_whole: bool = False
    back: Callable[[Any], Any] | None = None


def normal_cdf(x: Any, mean: Any, sd: Any) -> Any:
    """F of N(mean, sd²)."""
    return sp.ndtr((x - mean) / sd)


def gamma_cdf(x: Any, shape: Any, rate: Any) -> Any:
    """F of Gamma(shape, rate)."""
    return sp.gammainc(shape, rate * np.maximum(x, 0.0))


def beta_cdf(x: Any, a: Any, b: Any) -> Any:
    """F of Beta(a, b)."""
    return sp.betainc(a, b, np.clip(x, 0.0, 1.0))


def binomial_cdf(x: Any, trials: Any, prob: Any) -> Any:
    """F of Binomial(trials, prob)."""
    inside = sp.betainc(np.maximum(trials - x, 1e-300), np.maximum(x, 0.0) + 1.0, 1.0 - prob)
    return np.where(x >= trials, 1.0, np.where(x < 0, 0.0, inside))


def truncated_cdf(x: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    """(Φ(z) − Φ(a)) / (Φ(b) − Φ(a)), each relative to Φ(b), which may underflow; mirrored where ``sign`` is −1."""
    z = np.clip(sign * (x - mean) / sd, a, b)
    whole = sp.log_ndtr(b)
    least = np.exp(sp.log_ndtr(a) - whole)
    part = (np.exp(sp.log_ndtr(z) - whole) - least) / (1.0 - least)
    return np.where(sign > 0, part, 1.0 - part)
