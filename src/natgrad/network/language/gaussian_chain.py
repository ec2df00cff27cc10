"""Define `GaussianChain`, a linear state-space model with one factor for the whole path of its states.

    x_1 ~ N(initial_mean, initial_precision⁻¹),   x_t ~ N(A x_{t−1} + B u_t, noise_precision⁻¹)

What observes the states is declared as always: ``ng.Normal("y", ng.dot(C, x), tau, plate=(sensor, time), observed=data)``.

Its dynamics may be known or hidden, by rows; precisions may be diagonal (`Dynamics`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.expressions import (
    MATRIX,
    POSITIVE,
    REAL,
    VECTOR,
    Access,
    Bind,
    Constant,
    Expression,
    Untyped,
)
from natgrad.network.language.nodes import Node, Plates, Slot, chain_plates, check_slot_shape, given_size
from natgrad.network.language.operators import Diag, Product
from natgrad.network.language.plates import Plate, as_plates, plates_in_words
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Axis, Delta, Label, Polynomial, Take, number
from natgrad.validation import as_numbers

__all__ = ["GaussianChain", "Rows", "diagonal", "rows_of"]


class Rows:
    """The dynamics as rows a_i: known numbers, vectors along a plate, or numbers along two."""

    def __init__(self, dynamics: Expression, scope: Scope) -> None:
        self.dynamics, self.scope, self.known = dynamics, scope, dynamics.is_known
        if not self.known:
            self.plate = scope.single_leftover(dynamics, f"dynamics = {dynamics}, a row for each entry of the state,")

    def _bind(self, i: Label) -> Bind:
        self.scope.check_size(self.plate, i, f"dynamics = {self.dynamics}, a row for each entry of the state,")
        return {self.plate.name: i}

    def mean(self, i: Label, k: Label) -> Polynomial:
        """E[a_ik]."""
        if self.known:
            return self.dynamics.stat("x", self.scope, (i, k))
        return self.dynamics.stat("x", self.scope, (k,), self._bind(i))

    def second(self, i: Label, k: Label, m: Label) -> Polynomial:
        """E[a_ik a_im]."""
        return self.dynamics.stat("xx", self.scope, (k, m), self._bind(i))

    def couple(self) -> None:
        """Rows that meet in one term are updated in turn."""
        self.scope.couple(self.dynamics, self.plate)


class _Matrix(Expression):
    """Normal numbers on plates (row, column) as rows: the entries of a row are independent of one another."""

    kind = VECTOR

    def __init__(self, entries: Expression, columns: Plate) -> None:
        self.entries, self.columns, self.size, self.parts = entries, columns, columns.size, (entries,)

    def accesses(self) -> Iterator[Access]:
        for access in self.entries.accesses():
            yield _Hidden(access, self.columns.name)

    def __str__(self) -> str:
        return str(self.entries)

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        scope.couple(self.entries, self.columns)

        def entry(stat: str, label: Label) -> Polynomial:
            return self.entries.stat(stat, scope, (), {**(bind or {}), self.columns.name: label})

        if name == "x":
            return entry("x", labels[0])
        k, m = labels
        same = (entry("xx", k) - entry("x", k) * entry("x", k)) * Polynomial.of([], Delta(k, m))
        return entry("x", k) * entry("x", m) + same


class _Hidden(Access):
    """A reading of which one plate is used up already."""

    def __init__(self, access: Access, plate: str) -> None:
        super().__init__(access.node, access.selectors)
        self._used = plate

    def open_plates(self) -> list[Plate]:
        return [plate for plate in super().open_plates() if plate.name != self._used]


def diagonal(precision: Expression, scope: Scope, i: Label, size: int) -> Polynomial | None:
    """The entries of a diagonal precision; None for one that is not diagonal."""
    if isinstance(precision, Constant):
        value = precision.value
        if value.ndim == 0:
            return number(float(value))
        off = value * (1.0 - np.eye(size))
        return None if off.any() else scope.numbers(np.diagonal(value, axis1=-2, axis2=-1), i)
    if isinstance(precision, Product):
        right = diagonal(precision.right, scope, i, size)
        return None if right is None else precision.left.stat("x", scope) * right
    if isinstance(precision, Diag):
        plate = scope.single_leftover(precision.entries, str(precision))
        return precision.entries.stat("x", scope, (), {plate.name: i})
    return precision.stat("x", scope, (i, i)) if size == 1 else None


def diagonal_numbers(precision: Expression, size: int) -> npt.NDArray[np.float64] | None:
    """The entries [size] of a known diagonal precision that is the same at all times; None for any other."""
    if not isinstance(precision, Constant) or precision.value.ndim not in (0, 2):
        return None
    value = precision.value * np.eye(size) if precision.value.ndim == 0 else precision.value
    return None if (value * (1.0 - np.eye(size))).any() else np.diagonal(value).copy()


def rows_of(name: str, dynamics: Expression, own: tuple[Plate, ...]) -> Expression:
    """Random dynamics as vectors along a plate of rows; ``own`` are the plates of the chain, one matrix for each element."""
    if dynamics.kind == REAL:
        plates = dynamics.leftover(own)
        if len(plates) < 2:
            raise PlateMismatch(
                f"{name!r}: dynamics = {dynamics} must lie on a plate of rows and one of columns; for one number times the "
                "identity give a number"
            )
        return _Matrix(dynamics, list(plates.values())[-1])
    if dynamics.kind != VECTOR:
        raise NotConjugate(
            f"{name!r}: dynamics cannot be {dynamics}: they take a known matrix, a MultivariateNormal on a plate of rows, or "
            "Normals on plates (row, column)"
        )
    return dynamics


Floats = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2.0 * np.pi))


@final
class GaussianChain(Node):
    """x_1 ~ N(initial_mean, initial_precision⁻¹), x_t ~ N(dynamics · [x_{t−1}, u_t], noise_precision⁻¹) along the last plate.

    The path is one factor, updated by a forward and a backward pass: with known parameters and Gaussian observations it is the
    Kalman smoother, and the bound is the exact evidence. A time without observations is missing data, or a forecast.

    Parameters
    ----------
    initial_mean : vector, number or expression of a vector
    initial_precision, noise_precision : matrix, positive number, Wishart, `diag` of a Gamma, or a Gamma (times the identity)
    dynamics : how a state follows from the one before
        Known: a matrix [D, D] ([T, D, D] if it changes in time; one number times the identity). Random: a `MultivariateNormal` on
        a plate of D rows, or `Normal` numbers on plates (row, column); ``dynamics[z]``, with a category or a `MarkovChain` z
        along time, for switching dynamics.
    plate : Plate or several
        The last one is time; those before it are independent sequences of equal length.
    inputs : array [..., T, U], optional
        Known inputs u_t; the dynamics then have U more columns, for B. What stands at the start of a sequence is not used.
    size : int, optional
        D, where the parameters do not tell; 1 if they are all single numbers.
    lengths : ints, optional
        Several sequences laid end to end on the time plate: the length of each.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> time = ng.Plate("time", 5)
    >>> level = ng.GaussianChain("level", 0.0, 0.01, 1.0, 4.0, plate=time)  # a random walk
    >>> y = ng.Normal("y", level[:, 0], 1.0, plate=time, observed=[1.0, 1.2, np.nan, 0.7, 0.9])
    >>> fit = ng.Network(y).fit()
    >>> fit["level"].mean()[:, 0].round(2).tolist()
    [1.0, 1.0, 0.95, 0.9, 0.9]
    """

    kind = VECTOR
    is_chain = True
    slots_of = (
        Slot("initial_mean", VECTOR),
        Slot("initial_precision", MATRIX),
        Slot("dynamics", VECTOR, events=2),
        Slot("noise_precision", MATRIX),
    )

    def __init__(
        self,
        name: str,
        initial_mean: Any,
        initial_precision: Any,
        dynamics: Any,
        noise_precision: Any,
        *,
        plate: Plates,
        inputs: Any = None,
        size: int | None = None,
        lengths: Any = None,
        observed: Any = None,
    ) -> None:
        if observed is not None:
            raise TypeError(
                f"{name!r}: the states of a chain are hidden: give observed= to a Normal that reads them. A chain whose values "
                "are known is a regression on the values before: ng.Normal(name, ng.dot(previous, a), tau, observed=values)"
            )
        self.advice = (
            f". Its states are vectors: one entry of each is {name}[{', '.join(':' * len(as_plates(name, plate)))}, 0], and "
            f"natgrad.dot(C, {name}) adds them up"
        )
        plates, lengths = chain_plates(name, plate, lengths)
        self.family = self._chain = families.GaussianChain(lengths)
        self.inputs = None if inputs is None else _checked_inputs(name, inputs, plates)
        self._size = given_size(name, size)
        extra = 0 if self.inputs is None else self.inputs.shape[-1]
        given = {"initial_mean": initial_mean, "initial_precision": initial_precision, "dynamics": dynamics}
        given["noise_precision"] = noise_precision
        self._found = _size_of(name, self._size, given, extra)
        super().__init__(name, _written_out(name, given, self._found, extra, plates), plates)

    @property
    def block_plates(self) -> tuple[Plate, ...]:
        return self.plates[:-1]

    def stat_shapes(self) -> list[tuple[int, ...]]:
        lead, size = tuple(plate.size for plate in self.plates), self.size or 0
        return [(*lead, size), (*lead, size, size), (*lead, size, size)]

    def value_shape(self) -> tuple[int, ...]:
        return self.stat_shapes()[0]

    def _event_size(self, observed: Any) -> int | None:
        return self._found

    @property
    def _width(self) -> int:
        """The columns of the dynamics: states, then inputs."""
        return (self.size or 0) + (0 if self.inputs is None else self.inputs.shape[-1])

    def _check_slot_size(self, slot: Slot) -> None:
        expression = self.parameters[slot.name]
        if slot.name == "dynamics" and not isinstance(expression, Constant):
            if expression.size not in (None, self._width):
                inputs = (
                    "" if self.inputs is None else f" ({self.size} states and {self._width - (self.size or 0)} inputs)"
                )
                raise PlateMismatch(
                    f"{self.name!r}: dynamics = {expression} has rows of length {expression.size}, but {self._width} is needed"
                    f"{inputs}"
                )
            return
        super()._check_slot_size(slot)

    def _check_shape(self, slot: Slot, shape: tuple[int, ...]) -> None:
        size = self.size or 0
        events = {VECTOR: (size,), MATRIX: (size, size)}[slot.kind] if slot.name != "dynamics" else (size, self._width)
        plates = self.block_plates if slot.name.startswith("initial") else self.plates
        if shape:
            check_slot_shape(self.name, slot, shape, plates, events)

    # -- the term --

    @property
    def inside_times(self) -> npt.NDArray[np.bool_]:
        """Which times are not the start of a sequence."""
        return ~self._chain.starts(self.plates[-1].size)

    def saved_options(self) -> None:
        return None

    def log_density(self, scope: Scope) -> Polynomial:
        inside = self.inside_times
        time = (self.plates[-1].name,)
        first, later = (scope.laid(mask, time) for mask in (~inside * 1.0, inside * 1.0))
        density = first * self._start(scope)
        return density + later * self._moves(scope) if inside.any() else density

    def _start(self, scope: Scope) -> Polynomial:
        """Log N(x_1; initial_mean, initial_precision⁻¹), for every time."""
        size = self.size or 0
        mean, precision = (_at_every_time(self.parameters[f"initial_{what}"]) for what in ("mean", "precision"))
        i, j = scope.fresh("i", size), scope.fresh("i", size)
        quadratic = self._own("x", scope, (i,)) * mean.stat("x", scope, (j,))
        quadratic += -0.5 * self._own("xx", scope, (i, j)) - 0.5 * mean.stat("xx", scope, (i, j))
        return (
            precision.stat("x", scope, (i, j)) * quadratic + 0.5 * precision.stat("log", scope) - 0.5 * size * LOG_2PI
        )

    def _moves(self, scope: Scope) -> Polynomial:
        """Log N(x_t; A w_t, Q⁻¹) with w_t = (x_{t−1}, u_t), for every time."""
        size, width = self.size or 0, self._width
        dynamics, noise = self.parameters["dynamics"], self.parameters["noise_precision"]
        i, j = (scope.fresh("i", size) for _ in range(2))
        k, m = (scope.fresh("k", width) for _ in range(2))
        rows = Rows(dynamics, scope)
        precision = noise.stat("x", scope, (i, j))
        before, after = self._regressors(scope, i, k, m)
        density = precision * (-0.5 * self._own("xx", scope, (i, j)) + rows.mean(j, k) * after)
        entries = diagonal(noise, scope, i, size)
        if rows.known:
            density += -0.5 * precision * (rows.mean(i, k) * rows.mean(j, m) * before)
        elif entries is not None:
            density += -0.5 * entries * rows.second(i, k, m) * before
        else:
            # Rows are independent of one another: E[a_i a_jᵀ] is a product but for i = j.
            own = noise.stat("x", scope, (i, i))
            density += -0.5 * precision * (rows.mean(i, k) * rows.mean(j, m) * before)
            density += -0.5 * own * (rows.second(i, k, m) - rows.mean(i, k) * rows.mean(i, m)) * before
            rows.couple()
        return density + 0.5 * noise.stat("log", scope) - 0.5 * size * LOG_2PI

    def _regressors(self, scope: Scope, i: Label, k: Label, m: Label) -> tuple[Polynomial, Polynomial]:
        """E[w_k w_m] and E[x_i w_k]."""
        if self.inputs is None:
            return self._own("xx", scope, (k, m), lag=True), self._own("lagged", scope, (i, k))
        size = self.size or 0
        states, other = (scope.fresh("i", size) for _ in range(2))
        chosen = np.eye(self._width)[:, :size]
        padded = np.concatenate([np.zeros((*self.inputs.shape[:-1], size)), self.inputs], axis=-1)

        def entry(row: Label, column: Label) -> Polynomial:
            return scope.laid(chosen, (row, column))

        def given(row: Label) -> Polynomial:
            return scope.numbers(padded, row)

        def state(row: Label) -> Polynomial:
            label = scope.fresh("i", size)
            return entry(row, label) * self._own("x", scope, (label,), lag=True)

        squares = entry(k, states) * entry(m, other) * self._own("xx", scope, (states, other), lag=True)
        before = squares + state(k) * given(m) + given(k) * state(m) + given(k) * given(m)
        label = scope.fresh("i", size)
        after = entry(k, label) * self._own("lagged", scope, (i, label)) + given(k) * self._own("x", scope, (i,))
        return before, after

    def _own(self, name: str, scope: Scope, labels: tuple[Label, ...], lag: bool = False) -> Polynomial:
        """A statistic of the chain at each time, or at the time before."""
        time: Axis = self.plates[-1].name
        if lag:
            previous = np.maximum(np.arange(self.plates[-1].size) - 1, 0).astype(np.int32)
            time = Take(scope.register(previous), (self.plates[-1].name,))
        lead = tuple(plate.name for plate in self.plates[:-1])
        return scope.moment(self, name, (*lead, time, *labels))


def _at_every_time(expression: Expression) -> Expression:
    """Numbers for each sequence, where the time is the last plate."""
    if not isinstance(expression, Constant):
        return expression
    events = {VECTOR: 1, MATRIX: 2}[expression.kind]
    if expression.value.ndim <= events:
        return expression
    return Constant(expression.kind, np.expand_dims(expression.value, -events - 1), expression.size)


def _checked_inputs(name: str, inputs: Any, plates: tuple[Plate, ...]) -> Floats:
    array = as_numbers(inputs, f"{name!r}: inputs")
    wanted = tuple(plate.size for plate in plates)
    if array.ndim < 2 or array.shape[-2] != wanted[-1] or array.shape[:-1] not in (wanted, wanted[-1:]):
        raise PlateMismatch(
            f"{name!r}: inputs have shape {array.shape}, but {(*wanted, 'inputs')} is needed ({plates_in_words(plates)}); write "
            "one input as a column"
        )
    return array


def _size_of(name: str, size: int | None, given: dict[str, Any], extra: int) -> int:
    """D, from whatever tells it."""
    lengths = {} if size is None else {"size": size}
    for slot, value in given.items():
        if isinstance(value, Expression):
            length = value.size if value.kind in (VECTOR, MATRIX) else None
            if slot == "dynamics":
                length = None if length is None else length - extra
        elif isinstance(value, Untyped):
            length = None
        else:
            shape = np.shape(value)
            length = None if not shape else int(shape[-2]) if slot == "dynamics" and len(shape) > 1 else int(shape[-1])
        if length is not None:
            lengths[slot] = length
    if len(set(lengths.values())) > 1:
        raise PlateMismatch(
            f"{name!r}: the length of the states is not clear: {', '.join(f'{k} says {v}' for k, v in lengths.items())}"
        )
    return next(iter(lengths.values()), 1)


def _written_out(name: str, given: dict[str, Any], size: int, extra: int, plates: tuple[Plate, ...]) -> dict[str, Any]:
    """Single numbers and Gammas as the matrices that they stand for."""
    parameters = dict(given)
    for slot in ("initial_precision", "noise_precision"):
        value = given[slot]
        if isinstance(value, Expression) and value.kind == POSITIVE:
            parameters[slot] = Product(value, Constant(MATRIX, 1.0, size))
    dynamics = given["dynamics"]
    if isinstance(dynamics, Expression):
        parameters["dynamics"] = rows_of(name, dynamics, plates)
    elif not isinstance(dynamics, Untyped) and np.ndim(dynamics) == 0:
        if extra:
            raise PlateMismatch(f"{name!r}: dynamics must be a matrix [{size}, {size + extra}] where there are inputs")
        parameters["dynamics"] = as_numbers(dynamics, f"{name!r}: dynamics") * np.eye(size)
    return parameters
