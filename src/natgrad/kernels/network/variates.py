"""The state of a generator in, a number of a law out: uniform, normal, gamma.

SplitMix64 (Steele, Lea and Flood 2014): a counter in steps of the golden ratio, mixed. So a generator begins anywhere at no cost,
and random numbers are functions of the seed, the chain and the sweep. Normals by the polar method (Marsaglia and Bray 1964), gammas
by Marsaglia and Tsang (2000).

``random`` [1] is the state; ``spare`` [2] says whether the polar method has a second number, and which.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import serial_kernel

__all__ = ["draw_variates"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_A, SHIFT_B, SHIFT_C, LOW_BITS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
UNIT = 1.0 / 9007199254740992.0


@serial_kernel
def _mixed(z):
    z = (z ^ (z >> SHIFT_A)) * FIRST
    z = (z ^ (z >> SHIFT_B)) * SECOND
    return z ^ (z >> SHIFT_C)


@serial_kernel
def _begin(key, chain, sweep, random, spare):
    """The generator of one sweep of one chain."""
    random[0] = _mixed(_mixed(_mixed(key) + np.uint64(chain)) + np.uint64(sweep))
    spare[0] = 0.0


@serial_kernel
def _uniform(random):
    """A number in (0, 1), neither end among them."""
    random[0] += GOLDEN
    return (float(_mixed(random[0]) >> LOW_BITS) + 0.5) * UNIT


@serial_kernel
def _normal(random, spare):
    if spare[0] != 0.0:
        spare[0] = 0.0
        return spare[1]
    while True:
        u, v = 2.0 * _uniform(random) - 1.0, 2.0 * _uniform(random) - 1.0
        square = u * u + v * v
        if 0.0 < square < 1.0:
            scale = math.sqrt(-2.0 * math.log(square) / square)
            spare[0], spare[1] = 1.0, scale * v
            return scale * u


@serial_kernel
def _gamma(shape, random, spare):
    """Of a shape of at least one."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = _normal(random, spare)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            u = _uniform(random)
            if u < 1.0 - 0.0331 * x * x * x * x or math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return d * v


@serial_kernel
def _log_gamma(shape, random, spare):
    """Its logarithm, of any shape: below one Γ(α) is Γ(α + 1) · U^(1/α), which may be too small for a number."""
    if shape >= 1.0:
        return math.log(_gamma(shape, random, spare))
    return math.log(_gamma(shape + 1.0, random, spare)) + math.log(_uniform(random)) / shape


@serial_kernel
def draw_variates(key, kind, shape, out):
    """Numbers of one law, for tests: 0 uniform, 1 normal, 2 the logarithm of a gamma; one generator for each."""
    random, spare = np.empty(1, np.uint64), np.empty(2)
    for i in range(out.shape[0]):
        _begin(key, 0, i, random, spare)
        if kind == 0:
            out[i] = _uniform(random)
        elif kind == 1:
            out[i] = _normal(random, spare) if i % 2 else _spared(random, spare)
        else:
            out[i] = _log_gamma(shape, random, spare)


@serial_kernel
def _spared(random, spare):
    _normal(random, spare)
    return _normal(random, spare)
