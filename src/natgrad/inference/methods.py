"""The methods a user names: which children are read at each step, and when the parameters move.

`VB` reads all of them; `Children` is Algorithm 1 and `GlobalBatch` Algorithm 2 of Paquet (2014); `SVI` is Hoffman et al.
(2013): a batch of groups whose local variables are optimised first. Under option "a" each block moves at once and the
next one sees it; under "b" all targets are computed at the old state and all blocks move together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from natgrad.validation import real_number, whole_number

__all__ = ["SVI", "VB", "Children", "GlobalBatch", "Method"]

Option = Literal["a", "b"]
Ints = npt.NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True)
class VB:
    """Coordinate ascent on all the data: every block in turn, from all its children. The bound never falls.

    With option "b" every block moves at the same time, which may overshoot: see the docs on methods.
    """

    option: Option = "a"

    def __post_init__(self) -> None:
        _check_option(self.option)


@final
@dataclass(frozen=True, slots=True)
class Children:
    """Algorithm 1: every hidden variable draws at most ``C`` of its own children, with weight N_i/C.

    Parameters
    ----------
    C : int, float or function
        A number of children; a fraction of N_i (a float in (0, 1)); or a function of N_i (an array of them or one).
        A variable with children in several nodes draws C from each. Variables that differ only along a gated axis (the
        components of a mixture) have the same children and share the draw.
    option : "a" or "b"
        Move each block at once, or all together.

    Examples
    --------
    >>> Children(5).counts(np.array([2, 10, 300]))
    array([2, 5, 5])
    >>> Children(lambda n: np.sqrt(n)).counts(np.array([2, 10, 300]))
    array([ 2,  4, 18])
    """

    C: float | Callable[[Any], Any] = 1
    option: Option = "a"

    def __post_init__(self) -> None:
        _check_option(self.option)
        if callable(self.C):
            return
        if isinstance(self.C, bool) or not isinstance(self.C, (int, float, np.integer, np.floating)):
            raise TypeError(f"C must be a number of children, a fraction or a function of N_i, got {self.C!r}")
        if not (self.C >= 1 and float(self.C).is_integer()) and not 0 < self.C < 1:
            raise ValueError(f"C must be a whole number ≥ 1 or a fraction in (0, 1), got {self.C}")

    def counts(self, degree: Ints) -> Ints:
        """How many children each variable draws."""
        if callable(self.C):
            wanted = _vectorised(self.C, degree)
        elif self.C < 1:
            wanted = np.ceil(float(self.C) * degree)
        else:
            wanted = np.full(len(degree), float(self.C))
        if (bad := np.flatnonzero(~(np.isfinite(wanted) & (wanted >= 0)))).size:
            raise ValueError(
                f"C must return a finite number ≥ 0 of children, but C({degree[bad[0]]}) = {wanted[bad[0]]:g}"
            )
        least = np.minimum(1, degree)
        return np.clip(np.ceil(wanted).astype(np.int64), least, degree)


@final
@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """Algorithm 2: one batch D of ``size`` observed variables; what has a child in D steps with weight N_i/|D_i|.

    The other variables stay; those without observed children (hyper-parameters) are updated after, from all children.
    """

    size: int
    option: Option = "a"

    def __post_init__(self) -> None:
        _check_option(self.option)
        whole_number(self.size, "GlobalBatch: size")


@final
@dataclass(frozen=True, eq=False, slots=True)
class SVI:
    """Hoffman's stochastic variational inference: sample groups, optimise their local variables, step the globals.

    Parameters
    ----------
    batch : {plate: size}
        The plate whose elements are the groups (documents, sequences, rows, single observations) and how many to draw.
    local_tol, local_steps : float, int
        The local variables of the batch are swept until their moments change by less than ``local_tol``, relative
        to the largest of their kind, at most ``local_steps`` times.
    """

    batch: Mapping[Any, int]
    local_tol: float = 1e-4
    local_steps: int = 100

    def __post_init__(self) -> None:
        wanted = (
            f"batch must name one plate and how many of its elements to draw, as {{documents: 64}}, got {self.batch!r}"
        )
        if not isinstance(self.batch, Mapping) or not all(isinstance(_name_of(plate), str) for plate in self.batch):
            raise TypeError(wanted)
        if len(self.batch) != 1:
            raise ValueError(wanted)
        whole_number(self.size, f"batch: the number of elements of {self.plate!r}")
        if not real_number(self.local_tol, "local_tol") > 0:
            raise ValueError(f"local_tol must be > 0, got {self.local_tol!r}")
        whole_number(self.local_steps, "local_steps")

    @property
    def plate(self) -> str:
        """The name of the sampled plate."""
        (plate,) = self.batch
        name: str = _name_of(plate)
        return name

    @property
    def size(self) -> int:
        """Groups in a batch."""
        (size,) = self.batch.values()
        return size


Method = VB | Children | GlobalBatch | SVI


def _check_option(option: str) -> None:
    if option not in ("a", "b"):
        raise ValueError(f'option must be "a" (each block moves at once) or "b" (all move together), got {option!r}')


def _vectorised(function: Callable[[Any], Any], degree: Ints) -> npt.NDArray[np.float64]:
    """A function of N_i applied to all of them, whether or not it takes arrays."""
    try:
        values = np.asarray(function(degree), dtype=np.float64)
        if values.shape == degree.shape:
            return values
    except (TypeError, ValueError):
        pass  # written for a single number: min(20, n) and the like
    unique, where = np.unique(degree, return_inverse=True)
    return np.array([real_number(function(int(n)), f"C({n})") for n in unique])[where]


def _name_of(plate: Any) -> Any:
    """The name of a plate, which may be given by it."""
    return plate if isinstance(plate, str) else getattr(plate, "name", None)
