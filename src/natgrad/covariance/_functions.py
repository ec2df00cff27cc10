"""The covariance functions themselves: positive parameters and inputs in, matrices out, in JAX or, for its arrays, in NumPy.

    RBF                v exp(−r²/2)                    r² = Σ_d (x_d − z_d)² / ℓ_d²
    Matern12           v exp(−r)
    Matern32           v (1 + √3 r) exp(−√3 r)
    Matern52           v (1 + √5 r + 5/3 r²) exp(−√5 r)
    RationalQuadratic  v (1 + r²/(2α))^(−α)
    Periodic           v exp(−½ Σ_d sin²(π (x_d − z_d)/p_d) / ℓ_d²)
    Linear             Σ_d v_d (x_d − o_d) (z_d − o_d)
    Constant, White    v, v δ(x, z)
    Categories         v exp(−Σ_d [x_d ≠ z_d] / ℓ_d)

Squared distances are |x|² + |z|² − 2 x·z, one matrix product. Rasmussen and Williams (2006), chapter 4.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from natgrad._jax import in_64_bits
from natgrad.covariance._expression import Covariance, Leaf, namespace

__all__ = [
    "RBF",
    "Categories",
    "Constant",
    "Function",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "RationalQuadratic",
    "White",
]

# Numbers of two categories, standardised, are farther apart: those of whole numbers over 32 bits are. Where some were nearer than
# this and others not, "the same" would not be transitive, and K no covariance matrix.
SAME = 1e-9
Array = Any
Active = Sequence[int] | None


class _Stationary(Leaf):
    """v g(r²) with a length scale, one for all columns or one for each; abstract."""

    lengths = {"lengthscale": 1.0}  # noqa: RUF012

    def __init__(self, variance: Any = 1.0, lengthscale: Any = 1.0, *, active: Active = None) -> None:
        super().__init__({"variance": variance, "lengthscale": lengthscale}, active)

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        ell = values["lengthscale"]
        return values["variance"] * self._of(_squared(x / ell, None if z is None else z / ell))

    def _of(self, squared: Array) -> Array:
        raise NotImplementedError


@final
class RBF(_Stationary):
    """v exp(−r²/2): smooth functions. An array of length scales has one for each column (ARD).

    Parameters
    ----------
    variance : float, v
    lengthscale : float or array [D], ℓ
    active : columns that it reads; by default all

    Examples
    --------
    >>> RBF(lengthscale=2.0)([[0.0]], [[2.0]]).round(4).tolist()
    [[0.6065]]
    """

    def _of(self, squared: Array) -> Array:
        return namespace(squared).exp(-0.5 * squared)


@final
class Matern12(_Stationary):
    """v exp(−r): continuous, rough functions."""

    def _of(self, squared: Array) -> Array:
        return namespace(squared).exp(-_root(squared))


@final
class Matern32(_Stationary):
    """v (1 + √3 r) exp(−√3 r): functions with one derivative."""

    def _of(self, squared: Array) -> Array:
        r = np.sqrt(3.0) * _root(squared)
        return (1.0 + r) * namespace(r).exp(-r)


@final
class Matern52(_Stationary):
    """v (1 + √5 r + 5/3 r²) exp(−√5 r): functions with two derivatives."""

    def _of(self, squared: Array) -> Array:
        r = np.sqrt(5.0) * _root(squared)
        return (1.0 + r + 5.0 / 3.0 * squared) * namespace(r).exp(-r)


@final
class RationalQuadratic(Leaf):
    """v (1 + r²/(2α))^(−α): RBFs of many length scales; α → ∞ is one RBF."""

    lengths = {"lengthscale": 1.0}  # noqa: RUF012

    def __init__(
        self, variance: Any = 1.0, lengthscale: Any = 1.0, alpha: float = 1.0, *, active: Active = None
    ) -> None:
        super().__init__({"variance": variance, "lengthscale": lengthscale, "alpha": alpha}, active)

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        xp, ell, alpha = namespace(x), values["lengthscale"], values["alpha"]
        squared = _squared(x / ell, None if z is None else z / ell)
        return values["variance"] * xp.exp(-alpha * xp.log1p(squared / (2.0 * alpha)))


@final
class Periodic(Leaf):
    """v exp(−½ Σ_d sin²(π (x_d − z_d)/p_d)/ℓ_d²): functions that repeat after p; ℓ has no unit."""

    lengths = {"period": 1.0}  # noqa: RUF012

    def __init__(
        self, variance: Any = 1.0, lengthscale: Any = 1.0, period: Any = 1.0, *, active: Active = None
    ) -> None:
        super().__init__({"variance": variance, "lengthscale": lengthscale, "period": period}, active)

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        xp = namespace(x)

        # sin²(a/2) = |(cos, sin)(x) − (cos, sin)(z)|²/4 with a the difference of angles: a distance on circles, so one product.
        def around(a: Array) -> Array:
            angle = 2.0 * np.pi * a / values["period"]
            return xp.concatenate([xp.cos(angle) / values["lengthscale"], xp.sin(angle) / values["lengthscale"]], 1)

        squared = 0.25 * _squared(around(x), None if z is None else around(z))
        return values["variance"] * xp.exp(-0.5 * squared)


@final
class Linear(Leaf):
    """Σ_d v_d (x_d − o_d) (z_d − o_d): straight lines that are zero at the origin o, which is not learned.

    Examples
    --------
    >>> Linear(origin=2.0)([[0.0], [3.0]]).tolist()
    [[4.0, -2.0], [-2.0, 1.0]]
    """

    lengths = {"variance": -2.0}  # noqa: RUF012

    def __init__(self, variance: Any = 1.0, origin: Any = 0.0, *, active: Active = None) -> None:
        super().__init__({"variance": variance}, active)
        o = np.asarray(origin, dtype=np.float64)
        if o.ndim > 1 or not np.isfinite(o).all():
            raise ValueError(f"Linear: origin must be a finite number, or one for each column, got {origin!r}")
        self.origin: Any = tuple(o.tolist()) if o.ndim else float(o)

    @property
    def structure(self) -> tuple[Any, ...]:
        """With the origin."""
        return self.origin, *super().structure

    def at(self, theta: Sequence[Array]) -> Covariance:
        """The same function with variances exp(θ)."""
        return Linear(np.exp(np.asarray(theta[0])), self.origin, active=self.active)

    def in_units(self, shift: Any, scale: Any, variance: float = 1.0) -> Covariance:
        """With its origin."""
        moved = super().in_units(shift, scale, variance)
        origin = (np.asarray(self.origin) - self._cut(shift)) / self._cut(scale)
        return Linear(moved._values["variance"], origin if np.any(origin) else 0.0, active=self.active)  # type: ignore[attr-defined]

    def check(self, n_columns: int) -> None:
        """The origin has a number for each column."""
        super().check(n_columns)
        width = n_columns if self.active is None else len(self.active)
        if np.ndim(self.origin) and len(self.origin) != width:
            raise ValueError(f"Linear: origin has {len(self.origin)} values for {width} columns: give one for each")

    def to_data(self) -> dict[str, Any]:
        """With the origin, where there is one."""
        data = super().to_data()
        if np.any(self.origin):
            data["parameters"]["origin"] = np.asarray(self.origin).tolist()
        return data

    def __repr__(self) -> str:
        if not np.any(self.origin):
            return super().__repr__()
        ends = ", ".join(f"{o:.4g}" for o in np.ravel(self.origin))
        return (
            super().__repr__().replace("(", f"(origin=[{ends}], " if np.ndim(self.origin) else f"(origin={ends}, ", 1)
        )

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        origin = np.asarray(self.origin)
        return ((x - origin) * values["variance"]) @ ((x if z is None else z) - origin).T

    def _diagonal(self, values: Mapping[str, Array], x: Array) -> Array:
        return ((x - np.asarray(self.origin)) ** 2 * values["variance"]).sum(1)


@final
class Constant(Leaf):
    """v: an unknown level; as a factor, a scale."""

    def __init__(self, variance: float = 1.0, *, active: Active = None) -> None:
        super().__init__({"variance": variance}, active)

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        return values["variance"] * namespace(x).ones((x.shape[0], (x if z is None else z).shape[0]))


@final
class White(Leaf):
    """v on the diagonal of K(x, x) and nothing elsewhere: a part of f that no other point shares.

    K(x, z) is zero, also where a row of z equals one of x: inducing points cannot carry it.
    """

    def __init__(self, variance: float = 1.0, *, active: Active = None) -> None:
        super().__init__({"variance": variance}, active)

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        xp = namespace(x)
        return values["variance"] * xp.eye(x.shape[0]) if z is None else xp.zeros((x.shape[0], z.shape[0]))


@final
class Categories(Leaf):
    """v exp(−Σ_d [x_d ≠ z_d] / ℓ_d): columns of categories, whose numbers have no order.

    A small ℓ makes the categories of a column independent, a large one all the same. Inducing inputs stay at the categories
    that they begin with, so no other covariance function may read these columns. Give whole numbers: what is nearer than 1e-9
    standard deviations of the column is one category.

    Parameters
    ----------
    variance : float, v
    lengthscale : float or array [D], ℓ
    active : columns that it reads; by default all

    Examples
    --------
    >>> Categories(lengthscale=0.5)([[0.0], [3.0]], [[3.0]]).round(4).tolist()
    [[0.1353], [1.0]]
    >>> Categories(active=[0]) * RBF(active=[1])
    Categories(variance=1, lengthscale=1, active=[0]) * RBF(variance=1, lengthscale=1, active=[1])
    """

    def __init__(self, variance: float = 1.0, lengthscale: Any = 1.0, *, active: Active = None) -> None:
        super().__init__({"variance": variance, "lengthscale": lengthscale}, active)

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        xp, other = namespace(x), x if z is None else z
        ell = xp.broadcast_to(values["lengthscale"], (x.shape[1],))
        apart = sum((xp.abs(x[:, d, None] - other[:, d]) > SAME) / ell[d] for d in range(x.shape[1]))
        return values["variance"] * xp.exp(-apart)


@final
class Function(Leaf):
    """Any covariance function k(x [N, D], z [M, D], **parameters) → [N, M] written in JAX.

    Parameters
    ----------
    function : callable
        Pure, with JAX arrays; its parameters are positive numbers.
    active : columns that it reads; by default all
    **parameters : float, the starting values

    Examples
    --------
    >>> def brownian(x, z, variance):
    ...     import jax.numpy as jnp
    ...
    ...     return variance * jnp.minimum(x, z.T)
    >>> Function(brownian, variance=2.0)([[1.0], [3.0]]).tolist()
    [[2.0, 2.0], [2.0, 6.0]]
    """

    def __init__(self, function: Callable[..., Any], *, active: Active = None, **parameters: Any) -> None:
        if not callable(function):
            raise TypeError(f"Function: expected a function of two arrays written in JAX, got {function!r}")
        super().__init__(parameters, active)
        self.function = function

    @property
    def names(self) -> tuple[str, ...]:
        """With the name of the function."""
        return tuple(f"{self._called}.{name}" for name in self._values)

    @property
    def structure(self) -> tuple[Any, ...]:
        """The function belongs to it."""
        return self.function, *super().structure

    def at(self, theta: Sequence[Array]) -> Covariance:
        """The same function with parameters exp(θ)."""
        values = {name: np.exp(np.asarray(part)) for name, part in zip(self._values, theta, strict=True)}
        return Function(self.function, active=self.active, **values)

    def to_data(self) -> dict[str, Any]:
        """Refused: files hold no code."""
        raise ValueError(
            f"{self!r} has code of its own, and model files hold none: save the parameters and the data instead"
        )

    def _matrix(self, values: Mapping[str, Array], x: Array, z: Array | None) -> Array:
        z = x if z is None else z
        out = _in_jax(lambda a, b, v: self.function(a, b, **v), x, z, values)
        wanted = (x.shape[0], z.shape[0])
        if np.shape(out) != wanted:
            raise ValueError(f"{self._called}(x, z) returned shape {np.shape(out)}, expected {wanted}")
        return out

    def _diagonal(self, values: Mapping[str, Array], x: Array) -> Array:
        import jax

        def own(a: Array, v: Mapping[str, Array]) -> Array:
            return jax.vmap(lambda row: self.function(row[None], row[None], **v)[0, 0])(a)

        return _in_jax(own, x, values)

    @property
    def _called(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __repr__(self) -> str:
        parts = ", ".join([self._called, *(f"{name}={value:.4g}" for name, value in self._values.items())])
        known = inspect.isfunction(self.function) and self.active is not None
        return f"Function({parts}{f', active={list(self.active or ())}' if known else ''})"


def _in_jax(function: Callable[..., Array], x: Array, *others: Any) -> Array:
    """Code of the user sees JAX arrays of 64 bits, also where ours reads NumPy's."""
    if namespace(x) is not np:
        return function(x, *others)
    import jax

    with in_64_bits():
        return np.asarray(function(*jax.tree.map(jax.numpy.asarray, (x, *others))))


def _squared(x: Array, z: Array | None) -> Array:
    """Squared distances [N, M]; exactly zero on the diagonal of a symmetric matrix."""
    xp, other = namespace(x), x if z is None else z
    squared = xp.maximum((x * x).sum(1)[:, None] + (other * other).sum(1)[None, :] - 2.0 * x @ other.T, 0.0)
    return squared if z is not None else squared * (1.0 - xp.eye(x.shape[0]))


def _root(squared: Array) -> Array:
    """√ with slope zero at zero, where it has none."""
    xp, positive = namespace(squared), squared > 0.0
    return xp.where(positive, xp.sqrt(xp.where(positive, squared, 1.0)), 0.0)
