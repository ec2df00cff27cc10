"""A Gaussian process along time as the engine's Problem: kernel and noise, everything else integrated out exactly.

A sum of Matérn kernels of one input is a state of one to three numbers a kernel that is Markov along time
(`natgrad.kernels.state_space.process`): log p(y), its slope and its information take one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance, Matern12, Matern32, Matern52, Sum
from natgrad.inference.problem import Block, Problem, State
from natgrad.inference.steppers.scoring import Score
from natgrad.kernels.state_space.process import draw_path, filter_path, score_path, smooth_path

__all__ = ["ChainProblem", "Chains", "chains_of", "kernel_of", "parts_of"]

Floats = npt.NDArray[np.float64]
SIZES: dict[type, int] = {Matern12: 1, Matern32: 2, Matern52: 3}
# √(2ν) of the sizes.
ROOTS = np.sqrt([0.0, 1.0, 3.0, 5.0])


class Chains(NamedTuple):
    """Kernels as the loops take them: sizes of states, variances, rates √(2ν)/ℓ, and the variance of the noise."""

    sizes: npt.NDArray[np.int64]
    variances: Floats
    rates: Floats
    noise: float

    @property
    def size(self) -> int:
        """D, numbers of the state of a row."""
        return int(self.sizes.sum())

    def smoothed(self, times: Floats, y: Floats, seen: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Mean and variance of f at sorted times, given the rows that are seen."""
        mean, spread, error = (np.empty(len(y)) for _ in range(3))
        held, steps = np.empty((len(y), self.size)), np.diff(times, prepend=times[:1])
        filter_path(*self, steps, y, seen, mean, spread, error, held)
        smooth_path(*self, steps, seen, mean, spread, error, held)
        return mean, spread

    def drawn(self, times: Floats, y: Floats, seen: npt.NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """A draw of f at sorted times, given the rows that are seen: one of the prior, bent to the data (Matheron's rule)."""
        f, steps = np.empty(len(y)), np.diff(times, prepend=times[:1])
        draw_path(*self[:3], steps, rng.standard_normal((len(y), self.size)), f)
        noisy = f + np.sqrt(self.noise) * rng.standard_normal(len(y))
        return np.asarray(f + self.smoothed(times, np.where(seen, y - noisy, 0.0), seen)[0])


def parts_of(kernel: Covariance) -> tuple[Covariance, ...]:
    """The kernels of a sum, or the kernel; each a Matérn of one input."""
    parts = kernel.parts if isinstance(kernel, Sum) else (kernel,)
    for part in parts:
        if type(part) not in SIZES:
            raise TypeError(
                f"kernel: {part!r} is none of Matern12, Matern32 and Matern52: a process along time takes these and sums; "
                "SparseGPRegressor takes all"
            )
    return tuple(parts)


def chains_of(kernel: Covariance, h: Floats) -> Chains:
    """The kernel with parameters h: logarithms of variance and length scale of each part, and of the noise."""
    sizes = np.array([SIZES[type(part)] for part in parts_of(kernel)], dtype=np.int64)
    return Chains(sizes, np.exp(h[:-1:2]), ROOTS[sizes] * np.exp(-h[1:-1:2]), float(np.exp(h[-1])))


def kernel_of(kernel: Covariance, h: Floats) -> Covariance:
    """The kernel with the values of h."""
    shapes = [np.shape(part) for part in kernel.theta]
    return kernel.at([np.full(shape, value) for shape, value in zip(shapes, h[:-1], strict=True)])


class ChainProblem(Problem):
    """Rows along time: sorted times [T], outputs [T] less their mean, and the structure of the kernel."""

    def __init__(self, kernel: Covariance, times: Floats, y: Floats) -> None:
        self.kernel, self.times, self.y = kernel, times, np.ascontiguousarray(y)
        self._steps = np.diff(times, prepend=times[:1])

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """None: all that is hidden is integrated out."""
        return {}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All rows."""
        return {"y": len(self.y)}

    @property
    def n_messages(self) -> int:
        """A row is read once."""
        return len(self.y)

    def score(self, h: Floats) -> Score:
        """Log p(y | h), its slope and the information."""
        n = len(h)
        slope, information = np.empty(n), np.empty((n, n))
        value = score_path(*chains_of(self.kernel, h), self._steps, self.y, slope, information)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return Score(-np.inf, np.zeros(n), np.eye(n))
        return Score(float(value), slope, information)

    def bound(self, state: State) -> float:
        """Log p(y), which is exact."""
        return self.score(np.asarray(state.hyper["h"])).value

    def start(self, h: Any) -> State:
        """The state that a run begins with."""
        return State({}, {}, 0, hyper={"h": np.asarray(h, dtype=np.float64)})
