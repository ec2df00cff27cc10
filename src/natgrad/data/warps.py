"""A column of numbers in; a monotone map that spreads its values evenly out, and back: for inputs over powers of ten.

    rank   x ↦ Φ⁻¹(F(x)), F the share of rows below x and half of those at it: the normal law, whatever the column's own is
    log    x ↦ log x where all are positive, log(x + c) where the least is zero, sinh⁻¹((x − median)/s) elsewhere

Both are kept as tables, K knots with straight lines between, and beyond the first and the last: they increase strictly, have an
inverse everywhere, and a file holds them as numbers. Knots lie at quantiles that are equally far apart under a normal law: tails
have theirs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad import special as sp

__all__ = ["Kind", "Warp", "is_skewed", "warp_of"]

Floats = npt.NDArray[np.float64]
Kind = Literal["log", "rank"]  # of maps that the column alone decides of
# Knots of a table, and the fewest values of a column that is bent: a map of two is a line.
KNOTS, FEWEST = 65, 3
# A column that is skewed or heavy-tailed beyond these may be bent: the third and fourth moment of one that is standardised. Those
# of a normal law are 0 and 3, of a uniform one 0 and 1.8, of an exponential one 2 and 9.
SKEWNESS, KURTOSIS = 1.0, 6.0
# Of a column that has zeros, the quantile of its positive values that is added before its logarithm is taken.
ADDED = 0.1


class Warp(NamedTuple):
    """A strictly increasing map of one column: straight lines between knots and their values, and beyond them."""

    column: int
    kind: str
    knots: Floats
    values: Floats

    def apply(self, x: Floats) -> Floats:
        """The map."""
        return _lines(x, self.knots, self.values)

    def undo(self, z: Floats) -> Floats:
        """Its inverse."""
        return _lines(z, self.values, self.knots)


def warp_of(x: Floats, column: int, kind: Kind) -> Warp | None:
    """The map of a column of numbers [N]; None where it has too few values.

    Examples
    --------
    >>> amounts = np.exp(np.linspace(-4.0, 4.0, 201))
    >>> warp = warp_of(amounts, 0, "log")
    >>> warp.apply(np.array([0.1, 2.0, 10.0])).round(1).tolist()
    [-2.3, 0.7, 2.3]
    >>> bool(np.allclose(warp.undo(warp.apply(amounts)), amounts))
    True
    """
    distinct, counts = np.unique(x, return_counts=True)
    if len(distinct) < FEWEST:
        return None
    levels = (np.cumsum(counts) - 0.5 * counts) / len(x)
    knots = distinct
    if len(distinct) > KNOTS:
        # Equally spaced under a normal law; the first and the last value are knots.
        first, last = sp.ndtri(levels[[0, -1]])
        wanted = sp.ndtr(np.linspace(first, last, KNOTS))
        knots = np.interp(wanted, levels, distinct)
        knots[[0, -1]] = distinct[[0, -1]]
    values = sp.ndtri(np.interp(knots, distinct, levels)) if kind == "rank" else _logarithms(knots, x)
    # Where neighbours cannot be told from one another, before or after, one knot is enough for both.
    kept = [0]
    for place in range(1, len(knots)):
        if knots[place] > knots[kept[-1]] and values[place] > values[kept[-1]]:
            kept.append(place)
    return Warp(column, kind, knots[kept], values[kept]) if len(kept) >= FEWEST else None


def is_skewed(x: Floats) -> bool:
    """Whether a column [N] is skewed or has heavy tails, so that a map of it may help."""
    centred = x - x.mean()
    if np.count_nonzero(centred) == 0 or len(np.unique(x)) < FEWEST:
        return False
    centred /= np.abs(centred).max()
    variance = float(np.mean(centred**2))
    skewness, kurtosis = (float(np.mean(centred**power)) / variance ** (power / 2) for power in (3, 4))
    return bool(abs(skewness) > SKEWNESS or kurtosis > KURTOSIS)


def _logarithms(knots: Floats, x: Floats) -> Floats:
    least = float(x.min())
    if least > 0.0:
        return np.log(knots)
    if least == 0.0:
        return np.log(knots + float(np.quantile(x[x > 0.0], ADDED)))
    middle = float(np.median(x))
    apart = np.abs(x - middle)
    return np.arcsinh((knots - middle) / float(np.median(apart[apart > 0.0])))


def _lines(x: Floats, knots: Floats, values: Floats) -> Floats:
    """Straight lines through points, and beyond the outer two of them."""
    place = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    slopes = np.diff(values) / np.diff(knots)
    return np.asarray(values[place] + slopes[place] * (x - knots[place]))
