"""`table`: known numbers in; ``table[z]``, what a category chooses among them, wherever numbers can stand.

    emission = ng.table([[0.9, 0.1], [0.3, 0.7]])
    y = ng.Categorical("y", emission[z], plate=time, observed=data)

A table is no random variable: it has no term of its own in the bound. E[log p(y | table[z])] = Σ_k E[z_k] log p(y | table_k).
"""

from __future__ import annotations

import operator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.language.columns import Recorded, is_deferred, records
from natgrad.network.language.expressions import REAL, Access, Call, Constant, Expression, Kind, Untyped
from natgrad.network.language.nodes import check_range
from natgrad.network.language.plates import Plate
from natgrad.validation import as_numbers, require

__all__ = ["Choice", "Table", "table"]

OPERATIONS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}
# What remains of a table for one element, by the number of axes.
REMAINS = ("a number", "a vector", "a matrix")


@records
def table(values: npt.ArrayLike) -> Table:
    """Known numbers from which categories choose: ``table(values)[z]`` stands where numbers, means or probabilities can.

    Parameters
    ----------
    values : array [categories of each index…, event…]
        Its first axes are chosen, one by each index: a hidden or observed `Categorical` or `MarkovChain`, or integers. What is
        left for each choice is what the parameter takes: a number (a mean, a rate), a vector (probabilities, a vector mean), a
        matrix. Probabilities may be 0: what they rule out has probability 0.

    Examples
    --------
    >>> import natgrad as ng
    >>> n = ng.Plate("n", 3)
    >>> z = ng.Categorical("z", [0.5, 0.5], plate=n)
    >>> y = ng.Bernoulli("y", ng.table([0.0, 0.25])[z], plate=n, observed=[0, 1, 0])
    >>> ng.Network(y).fit()["z"].mean().round(3).tolist()
    [[0.571, 0.429], [0.0, 1.0], [0.571, 0.429]]
    """
    return Table(values)


@final
class Table:
    """Known numbers from which categories choose, made by `table`."""

    def __init__(self, values: npt.ArrayLike) -> None:
        if isinstance(values, Expression):
            raise TypeError(
                f"table takes known numbers, got {values}: a random table is a node on plates, indexed itself"
            )
        self.values = as_numbers(values, "table: values")
        if self.values.ndim == 0:
            raise PlateMismatch(f"table: a single number, {self.values:g}, leaves nothing to choose: give an array")

    def __getitem__(self, key: Any) -> Any:
        if is_deferred(key):
            return Recorded("read", (self, key))
        keys = key if isinstance(key, tuple) else (key,)
        while keys and isinstance(keys[-1], slice) and keys[-1] == slice(None):
            keys = keys[:-1]
        return Choice(self.values, keys)

    def call(self) -> Call:
        """How it is written."""
        return Call("table", (self.values,))

    def __repr__(self) -> str:
        return f"table{list(self.values.shape)}"


@final
class Choice(Untyped):
    """What categories choose from a table; the place where it stands says what kind of numbers these are."""

    def __init__(self, values: npt.NDArray[np.float64], keys: tuple[Any, ...]) -> None:
        self.values, self.keys = values, keys
        if not keys:
            raise PlateMismatch("table[:]: nothing is chosen: give a category or integers")
        # Every mistake in an index is found here, whatever the numbers will mean.
        self._chosen = _read(Constant(REAL, values), values.ndim, keys)
        if any(selector is None for selector in self._chosen.selectors[: len(keys)]):
            raise PlateMismatch(f"{self}: ':' may only stand last, for what is left of the table")

    def of_kind(self, kind: Kind, events: int, what: str) -> Expression:
        """The same as an expression of a kind, with ``events`` axes left; ``what`` names its place in errors."""
        left = self.values.ndim - len(self.keys)
        if left != events:
            remains = REMAINS[left] if left < len(REMAINS) else f"an array with {left} axes"
            raise PlateMismatch(
                f"{what} takes {REMAINS[events]} for each element, but {self} leaves {remains} of the table of shape "
                f"{list(self.values.shape)}: index its first {max(self.values.ndim - events, 0)} axes"
            )
        if events == 2 and self.values.shape[-1] != self.values.shape[-2]:
            raise PlateMismatch(f"{what} takes square matrices, but the table has shape {list(self.values.shape)}")
        check_range(f"{what}: table", kind, self.values)
        return _read(Constant(kind, self.values), len(self.keys), self.keys)

    def call(self) -> Call:
        """How it is written."""
        return Call("read", (Call("table", (self.values,)), self.keys))

    def __neg__(self) -> Choice:
        return Choice(-self.values, self.keys)

    def _combined(self, function: str, left: Any, right: Any) -> Any:
        """One number goes into the table; with what differs by element, or is chosen too, it is an expression of real numbers."""
        other, operate = right if left is self else left, OPERATIONS[function]
        if isinstance(other, Expression) or is_deferred(other):
            return NotImplemented
        if function == "divide" and right is self:
            require(self.values != 0, self.values, f"x / {self}: table", "different from 0")
            return Choice(1.0 / self.values, self.keys) * other
        if isinstance(other, Choice) or np.ndim(other):
            own = self.of_kind(REAL, 0, f"{self} in a sum or a product")
            return operate(own, other) if left is self else operate(other, own)
        number = as_numbers(other, f"{self} and a number")
        if function == "divide":
            require(number != 0, number, f"{self} / x: x", "different from 0")
        return Choice(operate(self.values, number) if left is self else operate(number, self.values), self.keys)

    def __str__(self) -> str:
        return str(self._chosen)

    __repr__ = __str__


@final
class Known:
    """A table as a reading sees it: like an observed node, but declared nowhere, so that it has no term."""

    name = "table"
    is_observed = True
    is_declared = False
    mask = None
    entries = None

    def __init__(self, constant: Constant, lead: int) -> None:
        shape = constant.value.shape
        self.constant, self.kind = constant, constant.kind
        self.size = shape[-1] if len(shape) > lead and constant.kind != REAL else None
        self.plates = tuple(Plate(f"axis {i}", n) for i, n in enumerate(shape[:lead]))

    def call(self) -> Call:
        """How it is written."""
        return Call("table", (self.constant.value,))

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        """The table itself, or its logarithms."""
        return self.constant.array(name)


def _read(constant: Constant, lead: int, keys: tuple[Any, ...]) -> Access:
    known: Any = Known(constant, lead)
    access = Access(known, (None,) * lead)[keys]
    assert isinstance(access, Access)
    return access
