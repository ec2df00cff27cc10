"""Declarations whose data come later: `Column`, `Columns`, and what is written with them, recorded.

    row, user = ng.Plate("row"), ng.Plate("user")                         no sizes: they come with the data
    skill = ng.Normal("skill", 0.0, 1.0, plate=user)
    y = ng.Normal("y", skill[ng.Column("user")], 1.0, plate=row, observed=ng.Column("score"))

A column stands wherever an array can. Whatever has a column or a plate without a size in it is not evaluated: it is recorded, as
the name of a function of the language and its arguments. With a table the same functions are called again, on arrays
(`natgrad.network.bind`): there is one language, and a declaration is data.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import wraps
from typing import Any, TypeVar, cast, final

from natgrad.network.language.expressions import Expression, Kind, Untyped
from natgrad.network.language.plates import Plate, as_plates

__all__ = ["Column", "Columns", "Deferred", "Recorded", "RecordedNode", "is_deferred", "records", "walk"]

Function = TypeVar("Function")


class Deferred(Untyped):
    """What is known when there is a table: sums, products and readings of it are recorded."""

    is_deferred = True
    # An index that never ends is not a sequence.
    __iter__ = None

    def of_kind(self, kind: Kind, events: int, what: str) -> Expression:
        """Never: it has no numbers yet."""
        raise TypeError(f"{what}: {self} has no numbers before there is a table")

    def _combined(self, function: str, left: Any, right: Any) -> Recorded:
        return Recorded(function, (left, right))

    def __rmatmul__(self, other: Any) -> Recorded:
        return Recorded("transform", (other, self))

    def __neg__(self) -> Recorded:
        return Recorded("negate", (self,))

    def __getitem__(self, key: Any) -> Recorded:
        return Recorded("read", (self, key))

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth value: it has no numbers before there is a table")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError(f"{self} has no numbers before there is a table, and cannot become an array")


@final
class Column(Deferred):
    """A column of the table that a network is fitted to, wherever an array can stand.

    Observed values, known numbers, masks and weights are read as they are; a missing cell is missing data. As an index,
    ``u[ng.Column("user")]``, its values may be ids of any type: the plate of ``u``, declared without a size, has one element for
    each different id. As ``size=`` it counts the different values of the column, and as ``lengths=`` of a `MarkovChain` a new
    sequence begins where its value changes.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> import natgrad as ng
    >>> row, group = ng.Plate("row"), ng.Plate("group")
    >>> level = ng.Normal("level", 0.0, 0.1, plate=group)
    >>> y = ng.Normal("y", level[ng.Column("school")], 1.0, plate=row, observed=ng.Column("score"))
    >>> fit = ng.Network(y).fit({"school": ["b", "a", "b"], "score": [1.0, 2.0, 3.0]})
    >>> fit["level"].frame()[["group", "mean"]].round(3).values.tolist()
    [['a', 1.818], ['b', 1.905]]
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            hint = ": several columns are Columns(*names)" if isinstance(name, (list, tuple)) else ""
            raise TypeError(f"Column takes the name of a column, a non-empty string, got {name!r}{hint}")
        self.name = name

    def __repr__(self) -> str:
        return f"Column({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("column", self.name))


@final
class Columns(Deferred):
    """Several columns side by side: a known or observed vector for each row.

    Parameters
    ----------
    *names : str

    Examples
    --------
    >>> import natgrad as ng
    >>> w = ng.MultivariateNormal("w", 0.0, 1.0, size=2)
    >>> row = ng.Plate("row")
    >>> y = ng.Normal("y", ng.dot(ng.Columns("age", "income"), w), 1.0, plate=row, observed=ng.Column("y"))
    >>> ng.Network(y).fit({"age": [0.1, 0.7], "income": [1.0, 2.0], "y": [0.9, 2.1]})["w"].mean().round(2).tolist()
    [0.25, 0.79]
    """

    def __init__(self, *names: Any) -> None:
        if len(names) == 1 and isinstance(names[0], (list, tuple)):
            names = tuple(names[0])
        if not names:
            raise TypeError('Columns takes the names of columns: Columns("age", "income")')
        self.columns = tuple(Column(name) for name in names)
        self.names = tuple(column.name for column in self.columns)
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"Columns: {max(self.names, key=self.names.count)!r} is given twice")

    def __repr__(self) -> str:
        return f"Columns({', '.join(map(repr, self.names))})"


class Recorded(Deferred):
    """A function of the language by its name, or a node's class, and its arguments."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any] | None = None) -> None:
        self.function, self.arguments, self.options = function, arguments, dict(options or {})

    def __repr__(self) -> str:
        if self.function == "read":
            keys = self.arguments[1] if isinstance(self.arguments[1], tuple) else (self.arguments[1],)
            return f"{_short(self.arguments[0])}[{', '.join(map(_short, keys))}]"
        sign = {"add": "+", "subtract": "−", "multiply": "·", "divide": "/", "transform": "@"}.get(self.function)
        if sign is not None:
            return f"({_short(self.arguments[0])} {sign} {_short(self.arguments[1])})"
        return f"{self.function}({', '.join(map(_short, self.arguments))})"


@final
class RecordedNode(Recorded):
    """A node that is made when there is a table."""

    def __init__(self, cls: type, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        made: Any = cls
        try:
            signature = inspect.signature(made.__init__)
            bound = signature.bind(None, *arguments, **options).arguments
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        given = {
            key: value
            for key, value in list(bound.items())[1:]
            if value is not None or signature.parameters[key].default is inspect.Parameter.empty
        }
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise TypeError(f"a node's name comes first and is a non-empty string, got {name!r}")
        super().__init__(cls, (), given)
        self.name, self.plates = name, as_plates(name, given.get("plate"))

    @property
    def is_observed(self) -> bool:
        """Whether it has observed=."""
        return "observed" in self.options

    def __repr__(self) -> str:
        plates = ", ".join(p.name for p in self.plates)
        seen = (
            f" observed in {self.options['observed']!r}" if isinstance(self.options.get("observed"), Deferred) else ""
        )
        return f"<{self.function.__name__} {self.name!r}{' on ' + plates if plates else ''}{seen}>"


def is_deferred(value: Any) -> bool:
    """Whether something that is known only with a table stands in an argument."""
    if isinstance(value, Plate):
        return value.is_open
    if isinstance(value, (list, tuple)) and len(value) <= LONGEST:
        return any(is_deferred(part) for part in value)
    return bool(getattr(value, "is_deferred", False))


# Longer lists are data.
LONGEST = 64


def records(function: Function) -> Function:
    """Have a function of the language recorded where an argument is not known yet."""
    call: Any = function

    @wraps(call)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if any(map(is_deferred, arguments)) or any(map(is_deferred, options.values())):
            return Recorded(call.__name__, arguments, options)
        return call(*arguments, **options)

    return cast("Function", wrapped)


def walk(value: Any, inside: bool = True) -> Iterator[Any]:
    """Every part of what was recorded, itself first; with ``inside=False`` not those of other nodes."""
    yield value
    if isinstance(value, RecordedNode) and not inside:
        return
    if isinstance(value, Recorded):
        parts: Any = (*value.arguments, *value.options.values())
    elif isinstance(value, (list, tuple)) and len(value) <= LONGEST:
        parts = value
    else:
        return
    for part in parts:
        yield from walk(part, inside)


def _short(value: Any) -> str:
    if isinstance(value, (RecordedNode, Plate)):
        return value.name
    if isinstance(value, slice):
        return ":"
    return str(value) if isinstance(value, (Expression, Deferred, int, float, str)) else type(value).__name__
