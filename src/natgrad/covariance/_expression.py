"""A covariance function as an expression: leaves with positive parameters, sums and products; matrices out.

θ, what a fit moves, is a tuple with the logarithm of every parameter, leaf after leaf in the order in which they are written.
The structure (types, active columns, the tree) is hashable and compiled in; θ and the inputs are arguments.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = ["Covariance", "Leaf", "Product", "Sum", "covariance_from_data"]

Array = Any
Theta = tuple[Array, ...]
Floats = npt.NDArray[np.float64]


class Covariance(abc.ABC):
    """A covariance function k(x, z); add and multiply them, scale them by numbers, call them on arrays.

    Examples
    --------
    >>> from natgrad.covariance import RBF, Linear
    >>> k = 2.0 * RBF(lengthscale=0.5) + Linear()
    >>> k
    Constant(variance=2) * RBF(variance=1, lengthscale=0.5) + Linear(variance=1)
    >>> k([[0.0], [1.0]]).round(3).tolist()
    [[2.0, 0.271], [0.271, 3.0]]
    """

    @property
    @abc.abstractmethod
    def theta(self) -> Theta:
        """The logarithms of all parameters."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """A name for each entry of θ."""

    @property
    @abc.abstractmethod
    def structure(self) -> tuple[Any, ...]:
        """Everything but the values: hashable, equal for equal code."""

    @abc.abstractmethod
    def at(self, theta: Sequence[Array]) -> Covariance:
        """The same function with parameters exp(θ)."""

    @abc.abstractmethod
    def matrix(self, theta: Sequence[Array], x: Array, z: Array | None = None) -> Array:
        """K [N, M]; with ``z=None`` the symmetric K(x, x). In JAX, or in NumPy if the inputs are its arrays."""

    @abc.abstractmethod
    def diagonal(self, theta: Sequence[Array], x: Array) -> Array:
        """k(x_n, x_n) [N], in JAX or NumPy as in `matrix`."""

    @abc.abstractmethod
    def check(self, n_columns: int) -> None:
        """Raise if the parameters do not fit inputs with so many columns."""

    @abc.abstractmethod
    def to_data(self) -> dict[str, Any]:
        """The expression as numbers, strings and lists."""

    @abc.abstractmethod
    def in_units(self, shift: Floats, scale: Floats, variance: float = 1.0) -> Covariance:
        """Change the units: k'(x', z') = k(x, z)/variance where x = shift + scale x', with scales [D] of `units`."""

    @property
    @abc.abstractmethod
    def leaves(self) -> tuple[Leaf, ...]:
        """The functions that it is made of."""

    def units(self, scale: Floats) -> Floats | None:
        """The scales [D] nearest to these that `in_units` can follow; None if it contains code, which reads inputs as they are.

        Columns have the same where a part has one length for several of them.
        """
        if not all("variance" in leaf._values for leaf in self.leaves):
            return None
        tied = any(
            np.ndim(leaf._values[name]) == 0 and (len(scale) if leaf.active is None else len(leaf.active)) > 1
            for leaf in self.leaves
            for name in leaf.lengths
        )
        return np.full(len(scale), np.sqrt(np.mean(scale**2))) if tied and np.ptp(scale) > 0.0 else scale

    @property
    def parameters(self) -> dict[str, Floats]:
        """The values of all parameters, by name."""
        return {name: np.exp(np.asarray(value)) for name, value in zip(self.names, self.theta, strict=True)}

    def __call__(self, X: Any, Z: Any = None) -> Floats:
        """K(X, Z) [N, M], or K(X, X)."""
        x = as_inputs(X, "X")
        self.check(x.shape[1])
        return np.array(self.matrix(self.theta, x, None if Z is None else as_inputs(Z, "Z")))

    def __add__(self, other: Any) -> Covariance:
        return Sum(self, as_covariance(other))

    def __radd__(self, other: Any) -> Covariance:
        return Sum(as_covariance(other), self)

    def __mul__(self, other: Any) -> Covariance:
        return Product(self, as_covariance(other))

    def __rmul__(self, other: Any) -> Covariance:
        return Product(as_covariance(other), self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Covariance):
            return NotImplemented
        pairs = zip(self.theta, other.theta, strict=False)
        return self.structure == other.structure and all(np.array_equal(a, b) for a, b in pairs)

    def __hash__(self) -> int:
        return hash(self.structure)


class Leaf(Covariance):
    """A covariance function with parameters of its own; abstract."""

    # Parameters that have the unit of a column, and the power of it.
    lengths: Mapping[str, float] = {}

    def __init__(self, values: Mapping[str, Any], active: Sequence[int] | None) -> None:
        for name, value in values.items():
            setattr(self, name, _positive(value, f"{type(self).__name__}: {name}"))
        self._values = {name: getattr(self, name) for name in values}
        self.active = None if active is None else _columns(active, type(self).__name__)

    @property
    def theta(self) -> Theta:
        """The logarithms of the parameters."""
        return tuple(np.log(value) for value in self._values.values())

    @property
    def names(self) -> tuple[str, ...]:
        """``RBF.lengthscale`` and so on."""
        return tuple(f"{type(self).__name__}.{name}" for name in self._values)

    @property
    def structure(self) -> tuple[Any, ...]:
        """The type, the shapes of its parameters and its columns."""
        return type(self), tuple(np.shape(v) for v in self._values.values()), self.active

    def at(self, theta: Sequence[Array]) -> Covariance:
        """The same function with parameters exp(θ)."""
        values: dict[str, Any] = {
            name: np.exp(np.asarray(part)) for name, part in zip(self._values, theta, strict=True)
        }
        return type(self)(**values, active=self.active)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Itself."""
        return (self,)

    def in_units(self, shift: Floats, scale: Floats, variance: float = 1.0) -> Covariance:
        """Lengths divided by the scales, and the variance by its own."""
        values, own = dict(self._values), self._cut(scale)
        for name, power in self.lengths.items():
            values[name] = values[name] / (own if np.ndim(values[name]) else own[0]) ** power
        values["variance"] = values["variance"] / variance
        return type(self)(**values, active=self.active)

    def check(self, n_columns: int) -> None:
        """Columns exist, and lengths agree with them."""
        name = type(self).__name__
        if self.active is not None and max(self.active) >= n_columns:
            raise ValueError(f"{name}: active names column {max(self.active)}, and the inputs have {n_columns}")
        width = n_columns if self.active is None else len(self.active)
        for parameter, value in self._values.items():
            if np.ndim(value) == 1 and len(value) != width:
                raise ValueError(
                    f"{name}: {parameter} has {len(value)} values for {width} columns: give one for each, or a number"
                )

    def to_data(self) -> dict[str, Any]:
        """{"type": …, "parameters": …, "active": …}."""
        values = {name: np.asarray(value).tolist() for name, value in self._values.items()}
        return {
            "type": type(self).__name__,
            "parameters": values,
            "active": None if self.active is None else [*self.active],
        }

    def matrix(self, theta: Sequence[Array], x: Array, z: Array | None = None) -> Array:
        """K [N, M] of the active columns."""
        cut = self._cut
        return self._matrix(self._exp(theta, x), cut(x), None if z is None else cut(z))

    def diagonal(self, theta: Sequence[Array], x: Array) -> Array:
        """k(x_n, x_n) [N] of the active columns."""
        return self._diagonal(self._exp(theta, x), self._cut(x))

    def _exp(self, theta: Sequence[Array], x: Array) -> dict[str, Array]:
        return dict(zip(self._values, map(namespace(x).exp, theta), strict=True))

    def _cut(self, x: Array) -> Array:
        return x if self.active is None else x[..., np.asarray(self.active)]

    @abc.abstractmethod
    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array: ...

    def _diagonal(self, values: Mapping[str, Array], x: Array) -> Array:
        """That of a stationary function."""
        return values["variance"] * namespace(x).ones(x.shape[0])

    def __repr__(self) -> str:
        parts = [f"{name}={_shown(value)}" for name, value in self._values.items()]
        parts += [] if self.active is None else [f"active={list(self.active)}"]
        return f"{type(self).__name__}({', '.join(parts)})"


class _Combined(Covariance):
    """Two or more covariance functions as one; abstract."""

    parts: tuple[Covariance, ...]

    def __init__(self, *parts: Covariance) -> None:
        flat: list[Covariance] = []
        for part in parts:
            flat.extend(part.parts if type(part) is type(self) and isinstance(part, _Combined) else [part])
        self.parts = tuple(flat)

    @property
    def theta(self) -> Theta:
        """Those of the parts, one after the other."""
        return tuple(value for part in self.parts for value in part.theta)

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the parts; numbered where two are the same."""
        names = [name for part in self.parts for name in part.names]
        number = [names[:place].count(name) for place, name in enumerate(names)]
        return tuple(
            f"{name}:{n + 1}" if names.count(name) > 1 else name for name, n in zip(names, number, strict=True)
        )

    @property
    def structure(self) -> tuple[Any, ...]:
        """The type and the structures of the parts."""
        return type(self), tuple(part.structure for part in self.parts)

    def at(self, theta: Sequence[Array]) -> Covariance:
        """The same function with parameters exp(θ)."""
        return type(self)(*(part.at(own) for part, own in self._shared(theta)))

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Those of the parts."""
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    def in_units(self, shift: Floats, scale: Floats, variance: float = 1.0) -> Covariance:
        """All parts; the variance of a product is that of its first."""
        first, *rest = self.parts
        others = variance if isinstance(self, Sum) else 1.0
        return type(self)(first.in_units(shift, scale, variance), *(p.in_units(shift, scale, others) for p in rest))

    def check(self, n_columns: int) -> None:
        """Every part; columns of categories are numbers to nobody."""
        for part in self.parts:
            part.check(n_columns)
        kinds, numbers = (_read(self, n_columns, of_kinds) for of_kinds in (True, False))
        if both := kinds.keys() & numbers.keys():
            column = min(both)
            raise ValueError(
                f"{kinds[column]} reads column {column} as categories and {numbers[column]} as numbers: "
                f"give {numbers[column]} active= without it"
            )

    def to_data(self) -> dict[str, Any]:
        """{"type": …, "parts": […]}."""
        return {"type": type(self).__name__, "parts": [part.to_data() for part in self.parts]}

    def _shared(self, theta: Sequence[Array]) -> list[tuple[Covariance, Sequence[Array]]]:
        shares, begin = [], 0
        for part in self.parts:
            end = begin + len(part.theta)
            shares.append((part, theta[begin:end]))
            begin = end
        return shares


@final
class Sum(_Combined):
    """k₁ + k₂ + …: independent functions added up."""

    def matrix(self, theta: Sequence[Array], x: Array, z: Array | None = None) -> Array:
        """Σ K_i."""
        first, *rest = (part.matrix(own, x, z) for part, own in self._shared(theta))
        return sum(rest, first)

    def diagonal(self, theta: Sequence[Array], x: Array) -> Array:
        """Σ k_i(x_n, x_n)."""
        first, *rest = (part.diagonal(own, x) for part, own in self._shared(theta))
        return sum(rest, first)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@final
class Product(_Combined):
    """k₁ · k₂ · …, element by element."""

    def matrix(self, theta: Sequence[Array], x: Array, z: Array | None = None) -> Array:
        """Π K_i."""
        first, *rest = (part.matrix(own, x, z) for part, own in self._shared(theta))
        for part in rest:
            first = first * part
        return first

    def diagonal(self, theta: Sequence[Array], x: Array) -> Array:
        """Π k_i(x_n, x_n)."""
        first, *rest = (part.diagonal(own, x) for part, own in self._shared(theta))
        for part in rest:
            first = first * part
        return first

    def __repr__(self) -> str:
        return " * ".join(f"({part!r})" if isinstance(part, Sum) else repr(part) for part in self.parts)


def _read(kernel: Covariance, n_columns: int, of_kinds: bool) -> dict[int, str]:
    """Columns that leaves read as categories, or as numbers, with the name of one that does."""
    if isinstance(kernel, _Combined):
        return {column: name for part in kernel.parts for column, name in _read(part, n_columns, of_kinds).items()}
    name = type(kernel).__name__
    if not isinstance(kernel, Leaf) or name in ("Constant", "White") or (name == "Categories") != of_kinds:
        return {}
    return dict.fromkeys(range(n_columns) if kernel.active is None else kernel.active, name)


def covariance_from_data(data: Mapping[str, Any]) -> Covariance:
    """The expression that `Covariance.to_data` wrote down.

    Examples
    --------
    >>> from natgrad.covariance import RBF, White
    >>> covariance_from_data((RBF() + White()).to_data()) == RBF() + White()
    True
    """
    from natgrad import covariance

    kind = data.get("type")
    known = getattr(covariance, str(kind), None) if kind in covariance.__all__ else None
    if isinstance(known, type) and issubclass(known, _Combined):
        return known(*(covariance_from_data(part) for part in data["parts"]))
    if not (isinstance(known, type) and issubclass(known, Leaf)) or kind == "Function":
        raise ValueError(f"there is no covariance function of type {kind!r} that can be read from data")
    return known(**data["parameters"], active=data["active"])


def namespace(array: Array) -> Any:
    """NumPy for its own arrays, where nothing is compiled; JAX for all others."""
    if isinstance(array, (np.ndarray, np.number)):
        return np
    import jax.numpy as jnp

    return jnp


def as_covariance(value: Any) -> Covariance:
    """A covariance function, or a positive number as a constant one."""
    from natgrad.covariance._functions import Constant

    if isinstance(value, Covariance):
        return value
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return Constant(variance=float(value))
    raise TypeError(f"a covariance function can be combined with another one or with a number, got {value!r}")


def as_inputs(value: Any, what: str) -> Floats:
    """Rows of finite numbers [N, D]; a vector is one column."""
    array = np.asarray(value, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite numbers [rows, columns], got shape {np.shape(value)}")
    return array


def _positive(value: Any, what: str) -> Any:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1 or not (np.isfinite(array) & (array > 0)).all() or array.size == 0:
        raise ValueError(f"{what} must be a positive number, or one for each column, got {value!r}")
    return float(array) if array.ndim == 0 else array


def _columns(active: Sequence[int], name: str) -> tuple[int, ...]:
    columns = tuple(int(column) for column in np.atleast_1d(np.asarray(active, dtype=np.int64)))
    if not columns or min(columns) < 0 or len(set(columns)) < len(columns):
        raise ValueError(f"{name}: active must be different columns 0, 1, …, got {active!r}")
    return columns


def _shown(value: Any) -> str:
    return f"{value:.4g}" if np.ndim(value) == 0 else "[" + ", ".join(f"{v:.4g}" for v in value) + "]"
