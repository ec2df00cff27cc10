"""Numbers in; the short texts that people read, and the round numbers of an axis, out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["count", "log_ticks", "percent", "percent_range", "seconds", "short", "tick_labels", "ticks"]

Floats = npt.NDArray[np.float64]
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUS = "\N{MINUS SIGN}"


def short(value: float, digits: int = 4) -> str:
    """A number with a few digits; a true minus, no exponent where it can be avoided.

    Examples
    --------
    >>> short(1234567.0), short(0.00123456), short(-12.0)
    ('1,234,567', '0.001235', '−12')
    """
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: f"{MINUS}∞"}.get(value, "not known")
    size = abs(value)
    whole = 10.0 ** (digits - 1) <= size < 1e12
    text = f"{value:,.0f}" if whole else f"{value:.{digits}g}"
    return MINUS + text[1:] if text.startswith("-") else text


def count(value: float) -> str:
    """A whole number with commas."""
    return f"{value:,.0f}".replace("-", MINUS)


def percent(share: float) -> str:
    """A share in per cent, with as many digits as it deserves.

    Examples
    --------
    >>> percent(0.5), percent(0.0123), percent(0.000123)
    ('50 %', '1.2 %', '0.012 %')
    """
    value = 100.0 * share
    digits = 0 if value >= 9.95 else 1 if value >= 0.995 else 2 if value >= 0.0995 else 3
    return f"{value:.{digits}f} %"


def percent_range(mean: float, low: float, high: float) -> tuple[str, str]:
    """A share and its interval, with decimals enough to tell the ends apart.

    Examples
    --------
    >>> percent_range(0.15, 0.149, 0.152)
    ('15.0 %', '14.9 to 15.2 %')
    """
    width = 100.0 * (high - low)
    decimals = min(4, max(0, math.ceil(-math.log10(width)))) if width > 0 else 2
    return f"{100 * mean:.{decimals}f} %", f"{100 * low:.{decimals}f} to {100 * high:.{decimals}f} %"


def seconds(value: float) -> str:
    """A time in the unit that fits."""
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def ticks(low: float, high: float, most: int = 6) -> Floats:
    """Round numbers from low to high, at most ``most`` of them.

    Examples
    --------
    >>> ticks(0.0, 9.0).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    span = high - low
    if not span > 0:
        return np.array([low])
    rough = span / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if power * factor >= rough * (1 - 1e-9))
    return step * np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1, dtype=np.float64)


def log_ticks(low: float, high: float, most: int = 6) -> Floats:
    """Powers of ten from low to high, evenly thinned; for less than a decade, round numbers."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        places = ticks(low, high, most)
        return places[places > 0]
    stride = -(-(last - first) // (most - 1))
    return 10.0 ** np.arange(first, last + 1, stride, dtype=np.float64)


def tick_labels(values: Any) -> list[str]:
    """The labels of an axis: one unit and as many decimals as tell them apart.

    Examples
    --------
    >>> tick_labels([-1200000.0, -1100000.0, -1000000.0])
    ['−1.2M', '−1.1M', '−1.0M']
    >>> tick_labels([0.0, 2.5, 5.0])
    ['0.0', '2.5', '5.0']
    """
    numbers = np.asarray(values, dtype=np.float64)
    largest = float(np.abs(numbers).max(initial=0.0))
    gap = float(np.min(np.diff(numbers))) if len(numbers) > 1 else largest
    if largest and (largest >= 1e15 or largest < 1e-3):
        digits = max(2, 2 + math.floor(math.log10(largest)) - math.floor(math.log10(gap)))
        return [f"{value:.{digits}g}".replace("-", MINUS) for value in numbers]
    scale, unit = next((pair for pair in UNITS if largest >= 10 * pair[0]), (1.0, ""))
    if largest >= 1e6:
        scale, unit = next(pair for pair in UNITS if largest >= pair[0])
    step = gap / scale or 1.0
    decimals = max(0, min(8, -math.floor(math.log10(step) + 1e-9)))
    if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1
    return [f"{value / scale:.{decimals}f}{unit}".replace("-", MINUS) for value in numbers]
