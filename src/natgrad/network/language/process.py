"""Define `GaussianProcess`: by a kernel and inducing inputs, an expression for every set of inputs.

    f = ng.GaussianProcess("f", kernel, inducing=Z)
    y = ng.Normal("y", f(X), tau, plate=rows, observed=Y)

The node is v ~ N(0, I) with f(Z) = L v and K_mm = L Lᵀ. At an input, f_n = a_nᵀ v + rest with a_n = L⁻¹ k_n known and a rest of
variance k_nn − a_nᵀ a_n that belongs to the prior: the trace term of the bound. Hensman, Fusi and Lawrence (2013).
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance, Inducing, factorised
from natgrad.errors import PlateMismatch
from natgrad.network.language.columns import Recorded, is_deferred
from natgrad.network.language.continuous import MultivariateNormal
from natgrad.network.language.expressions import REAL, Access, Bind, Expression
from natgrad.network.language.nodes import Plates
from natgrad.network.language.operators import dot
from natgrad.network.language.plates import as_plates
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Label, Polynomial
from natgrad.validation import as_numbers, real_number

__all__ = ["GaussianProcess"]

Floats = npt.NDArray[np.float64]


class Function(NamedTuple):
    """Mean and variance of f at some inputs, both [..., N]."""

    mean: Floats
    var: Floats


@final
class GaussianProcess:
    """f ~ GP(0, kernel) through its values at inducing inputs; ``f(X)`` stands wherever a Normal mean can.

    Parameters
    ----------
    name : str
    kernel : natgrad.covariance function, fixed
    inducing : array [M, D]
    jitter : float
        Added to the diagonal of K_mm, as a part of its mean.
    plate : Plate or several, optional
        Independent functions with this kernel: ``f(X)[z]`` is the one that a category chooses (a mixture of processes),
        ``f(X)[group_of]`` that of a group.

    Examples
    --------
    >>> import natgrad as ng
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> f = ng.GaussianProcess("f", ng.covariance.RBF(), inducing=x[::5])
    >>> tau = ng.Gamma("tau", 1.0, 0.01)
    >>> y = ng.Normal("y", f(x), tau, plate=ng.Plate("n", 40), observed=np.sin(x[:, 0]))
    >>> fit = ng.Network(y).fit()
    >>> bool(abs(f.at(fit["f"], [[1.0]]).mean[0] - np.sin(1.0)) < 0.05)
    True
    """

    def __init__(
        self, name: str, kernel: Covariance, *, inducing: Any, jitter: float = 1e-8, plate: Plates = None
    ) -> None:
        if not isinstance(kernel, Covariance):
            raise TypeError(f"{name!r}: kernel must be a natgrad.covariance function, got {kernel!r}")
        self.kernel, self.inducing, self.jitter = kernel, _inputs(inducing, f"{name!r}: inducing"), jitter
        if not 0 <= real_number(jitter, f"{name!r}: jitter") < 1e-2:
            raise ValueError(
                f"{name!r}: jitter must lie in [0, 0.01), as a part of the kernel's variance, got {jitter!r}"
            )
        try:
            self.factor: Inducing = factorised(kernel(self.inducing), float(jitter))
        except FloatingPointError as error:
            raise FloatingPointError(f"{name!r}: kernel {kernel!r}: {error}") from None
        size, plates = len(self.inducing), as_plates(name, plate)
        if any(entry.is_open for entry in plates):
            raise PlateMismatch(f"{name!r}: the plate of a GaussianProcess needs a size: Plate('component', 2)")
        self.node = MultivariateNormal(name, np.zeros(size), np.eye(size), plate=plates)

    def __call__(self, X: Any) -> Any:
        """The values of f at rows X [N, D], one for each element of the node that reads it."""
        if is_deferred(X):
            return Recorded("evaluate", (self, X))
        rows, rest = self._rows(X)
        return _Values(self.node.whole, rows, rest)

    def __getitem__(self, key: Any) -> NoReturn:
        raise TypeError(
            f"{self.node.name}[…]: a function is read at inputs first, and chosen then: {self.node.name}(X)[z]"
        )

    def at(self, factor: Any, X: Any) -> Function:
        """Mean and variance of f at new inputs, given the fitted factor of this node: ``f.at(fit["f"], X)``.

        Those of functions on plates lie along the first axes.
        """
        rows, rest = self._rows(X)
        moments = factor.moments
        mean = moments["x"] @ rows.T
        second = np.einsum("ni,...ij,nj->...n", rows, moments["xx"], rows, optimize=True)
        return Function(mean, rest + second - mean**2)

    def _rows(self, X: Any) -> tuple[Floats, Floats]:
        """a_n [N, M], and k_nn − a_n·a_n [N]."""
        x = _inputs(X, f"{self.node.name!r}(X): X")
        if x.shape[1] != self.inducing.shape[1]:
            columns = self.inducing.shape[1]
            raise ValueError(
                f"{self.node.name!r}(X): X has {x.shape[1]} columns, and the inducing inputs have {columns}"
            )
        rows = self.kernel(x, self.inducing) @ self.factor.inverse.T
        own = np.asarray(self.kernel.diagonal(self.kernel.theta, x))
        return rows, np.maximum(own - (rows**2).sum(1), 0.0)

    def __repr__(self) -> str:
        return f"<GaussianProcess {self.node.name!r}: {self.kernel!r}, {len(self.inducing)} inducing inputs>"


class _Values(Expression):
    """a_nᵀ v + rest: E[f] is that of the dot, E[f²] has the variance of the rest added."""

    kind = REAL

    def __init__(self, function: Access, rows: Floats, rest: Floats) -> None:
        self.function, self.rows, self.rest = function, rows, rest
        self.dot = dot(rows, function)
        self.parts = (self.dot,)

    def __getitem__(self, key: Any) -> _Values:
        """The functions that integers or a category choose; all have the same kernel, and thus the same rest."""
        count = len(key) if isinstance(key, tuple) else 1
        if count > len(self.function.node.plates):
            raise PlateMismatch(
                f"{self}[…] got {count} indices, and {self.function.node.name!r} has {len(self.function.node.plates)} plate(s): "
                "give GaussianProcess(plate=) one for the functions to choose from"
            )
        return _Values(self.function[key], self.rows, self.rest)

    def __str__(self) -> str:
        name = str(self.function)
        return f"{self.function.node.name}(X){name[len(self.function.node.name) :]}"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if scope.plate_names and scope.plate_names[-1] in {plate.name for plate in self.function.open_plates()}:
            raise PlateMismatch(
                f"{scope.node!r} reads {self}, whose inputs lie along the last plate of {scope.node!r}, and that is "
                f"{scope.plate_names[-1]!r}, the plate of its functions: put the plate of the inputs last"
            )
        value = self.dot.stat(name, scope, labels, bind)
        return value if name == "x" else value + scope.numbers(self.rest)


def _inputs(value: Any, what: str) -> Floats:
    array = as_numbers(value, what)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{what} must be rows of inputs [rows, columns], got shape {array.shape}")
    return array
