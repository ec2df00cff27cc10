"""Settings and rows in; the conjugate prior of Gaussian components out, with the data's say where the user has none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.schema import check
from natgrad.validation import check_unit, real_number

__all__ = [
    "ARGUMENTS",
    "COVARIANCES",
    "GaussianPrior",
    "covariance_of",
    "finite_numbers",
    "gaussian_of",
    "gaussian_prior",
    "mean_and_variance",
    "prior_tables",
]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# Rows from which priors are read off, evenly from all over the data.
PRIOR_ROWS = 200_000
# Columns whose mean is so many standard deviations from zero are far: squares of their numbers lose the digits that matter.
FAR = 1e2
# What a file holds of a prior, and of R by the kind of covariance.
ARGUMENTS = {
    "mean": "real [column] in [-1e100, 1e100]",
    "scale": "real in (0, 1e100]",
    "dof": "real in (0, 1e100]",
}
COVARIANCES = {
    "full": "real [column, column]",
    "diag": "positive [column]",
    "tied": "real [column, column]",
    "spherical": "positive []",
}


def prior_tables(covariance: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of the settings of a Gaussian prior, and of what it is made of, for one kind of covariance."""
    rate = COVARIANCES[covariance]
    return {"covariance": covariance_of((covariance,))}, {**ARGUMENTS, "rate": rate}


def covariance_of(kinds: Collection[str]) -> Callable[[Any, dict[str, int], str], None]:
    """The rule of a setting that is one of these kinds of covariance, or a Gaussian with such a covariance and its prior."""

    def rule(value: Any, sizes: dict[str, int], where: str) -> None:
        from natgrad.models.hmm.kinds import Gaussian

        words = " | ".join(f"'{kind}'" for kind in kinds)
        if not isinstance(value, Gaussian):
            check(value, words, sizes, where)
            return
        rate = COVARIANCES[value.covariance]
        check(value.covariance, words, sizes, f"{where}.covariance")
        check(value.mean_prior, "none | real list [column]", sizes, f"{where}.mean_prior")
        check(value.mean_scale, "positive", sizes, f"{where}.mean_scale")
        check(value.dof_prior, "none | positive", sizes, f"{where}.dof_prior")
        one = "positive" if value.covariance == "spherical" else rate.replace(" [", " list [")
        check(value.scale_prior, f"none | {one}", sizes, f"{where}.scale_prior")

    return rule


def gaussian_of(covariance: Any) -> Any:
    """The Gaussian that the setting ``covariance`` declares, with its prior."""
    from natgrad.models.hmm.kinds import Gaussian

    return covariance if isinstance(covariance, Gaussian) else Gaussian(covariance)


class GaussianPrior(NamedTuple):
    """μ | Λ ~ N(mean, (scale Λ)⁻¹), Λ ~ Wishart(dof, rate); ``origin`` is the mean of the data, perhaps ``far``."""

    mean: Floats
    scale: float
    dof: float
    rate: Floats
    origin: Floats
    far: bool


def gaussian_prior(model: Any, X: Array, n_components: int, weight: Floats | None = None) -> GaussianPrior:
    """What ``mean_prior``, ``mean_scale``, ``dof_prior`` and ``scale_prior`` say, or the data where they say nothing.

    By default the mean of each column, D + 2 degrees of freedom, and the variance of each column divided by K^(2/D), a guess of
    what one component covers; of spherical components the mean of these.
    """
    width, covariance = X.shape[1], model.covariance
    origin, variance = mean_and_variance(X, weight)
    mean = origin if model.mean_prior is None else finite_numbers(model.mean_prior, "mean_prior", [(width,)])
    dof = width + 2.0 if model.dof_prior is None else real_number(model.dof_prior, "dof_prior")
    scale = real_number(model.mean_scale, "mean_scale")
    rate = variance * n_components ** (-2.0 / width)
    shape = {"diag": (width,), "spherical": ()}.get(covariance, (width, width))
    if model.scale_prior is not None:
        rate = finite_numbers(model.scale_prior, "scale_prior", [shape])
    elif covariance != "diag":
        rate = np.asarray(rate.mean()) if covariance == "spherical" else np.diag(rate)
    return GaussianPrior(mean, scale, dof, rate, origin, bool(np.any(np.abs(origin) > FAR * np.sqrt(variance))))


def mean_and_variance(X: Array, weight: Floats | None = None, words: bool = True) -> tuple[Floats, Floats]:
    """Of each column, from rows all over the data; a column that never varies gets a variance all the same."""
    stride = max(1, len(X) // PRIOR_ROWS)
    few = slice(None, None, stride)
    rows = np.asarray(X[few], dtype=np.float64)
    check_unit(rows, "X", stride)
    seen = np.isfinite(rows)
    count = seen if weight is None else seen * weight[few][:, None]
    size = np.maximum(count.sum(0), 1) if weight is None else np.where(count.any(0), count.sum(0), 1.0)
    clean = np.where(seen, rows, 0.0)
    mean = (clean if weight is None else clean * count).sum(0) / size
    off = np.where(seen, rows - mean, 0.0) ** 2
    variance = (off if weight is None else off * count).sum(0) / size
    there = count > 0
    lowest, highest = np.where(there, rows, np.inf).min(0), np.where(there, rows, -np.inf).max(0)
    flat = lowest >= highest
    if words and flat.any() and len(X) > 1 and not np.isinf(rows).any():
        warnings.warn(
            f"X[:, {int(np.argmax(flat))}] does not vary ({int(flat.sum())} such columns): it tells nothing of states or groups",
            stacklevel=6,
        )
    return mean, np.where(flat, np.where(mean == 0, 1.0, mean**2), variance)


def finite_numbers(value: Any, what: str, shapes: list[tuple[int, ...]]) -> Floats:
    """Finite numbers of one of these shapes."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must hold numbers, got {value!r}") from None
    if array.shape not in shapes or not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite, of shape {' or '.join(str(s) for s in shapes)}, got {value!r}")
    return array
