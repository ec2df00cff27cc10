"""A number of flights in; eight columns like those of the airline delays, and arrival delays with their known mean, out.

The columns are those of Hensman, Fusi and Lawrence (2013). The mean delay is a smooth function of five of them: it rises over
the day, more so in summer and in December, on Thursdays and Fridays, and a little with the distance and the age of the aircraft;
the noise has heavy tails to the right, as lateness has: a normal part, and for some flights an exponential one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Flights", "make_flights"]

Floats = npt.NDArray[np.float64]
COLUMNS = ("month", "day", "weekday", "aircraft_age", "distance", "air_time", "departure", "arrival")
JITTER, LONG = 12.0, 45.0  # minutes: standard deviation of every flight, mean of a late one's further delay


class Flights(NamedTuple):
    """Flights and their delays, and what made them.

    Attributes
    ----------
    X : array [flights, 8]
    y : array [flights], arrival delay in minutes
    names : the columns of X
    mean : array [flights], E[y | X]
    noise_std : float, the standard deviation of y about it, the same for every flight
    """

    X: Floats
    y: Floats
    names: tuple[str, ...]
    mean: Floats
    noise_std: float


def make_flights(n_flights: int = 10_000, *, late: float = 0.15, seed: int = 0) -> Flights:
    """Flights with known mean delays.

    Parameters
    ----------
    n_flights : int
    late : float
        Chance of a long delay; with 0 the noise is normal.
    seed : int
        The same numbers give the same data.

    Examples
    --------
    >>> flights = make_flights(100)
    >>> flights.X.shape, flights.names[:3]
    ((100, 8), ('month', 'day', 'weekday'))
    >>> round(flights.noise_std, 2)
    26.57
    """
    rng = np.random.default_rng(seed)
    day_of_year = rng.integers(0, 365, n_flights)
    month, day = day_of_year // 30.5 + 1.0, day_of_year % 30.5 // 1 + 1.0
    weekday = day_of_year % 7 + 1.0
    age = np.floor(rng.gamma(3.0, 4.0, n_flights))
    distance = np.clip(rng.lognormal(6.5, 0.6, n_flights), 80.0, 5000.0)  # miles
    air_time = 25.0 + distance / 8.0 + rng.normal(0.0, 5.0, n_flights)  # minutes
    departure = 5.5 + 17.5 * rng.beta(1.6, 1.7, n_flights)  # hours
    arrival = (departure + air_time / 60.0) % 24.0
    season = 0.6 * np.exp(-(((month - 7.0) / 1.5) ** 2)) + 0.8 * np.exp(-(((month - 12.5) / 1.0) ** 2))
    mean = (
        -6.0
        + 22.0 * (0.5 + season) / (1.0 + np.exp(-(departure - 16.0) / 2.5))  # lateness piles up over the day
        + 4.0 * np.sin(np.pi * np.clip(weekday - 2.0, 0.0, 4.0) / 4.0)
        - 2.0 * np.log(distance / 665.0)
        + 0.15 * age
    )
    # What late flights add in the mean is part of the mean, so that the noise has mean zero.
    further = np.where(rng.random(n_flights) < late, rng.exponential(LONG, n_flights), 0.0) - late * LONG
    y = mean + JITTER * rng.normal(size=n_flights) + further
    # The variance of the further delay: E[e²] − E[e]² = 2 · late · LONG² − (late · LONG)².
    noise_std = float(np.sqrt(JITTER**2 + 2.0 * late * LONG**2 - (late * LONG) ** 2))
    X = np.stack([month, day, weekday, age, distance, air_time, departure, arrival], axis=1)
    return Flights(X, y, COLUMNS, mean, noise_std)
