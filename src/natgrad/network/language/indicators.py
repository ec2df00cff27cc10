"""`frequencies`: categories along a plate in; how often each was taken, a vector for each element of the other plates, out.

    z̄ = Σ_s w_s e(z_s),   e the unit vectors

    E[z̄_k] = Σ_s w_s q_sk
    E[z̄_k z̄_l] = Σ_st w_s w_t q_sk q_tl + Σ_s w_s² (δ_kl q_sk − q_sk q_sl)

The second sum corrects the first where s = t. What remains is linear in each q_s, and categories of one element take turns, as
whatever is summed along a plate does. A regression on the shares of topics in a document, for example (Blei and McAuliffe, 2007).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.language.columns import records
from natgrad.network.language.expressions import CATEGORY, NOUN, VECTOR, Access, Bind, Expression, as_access
from natgrad.network.language.plates import Plate
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Delta, Label, Polynomial
from natgrad.validation import as_numbers, require

__all__ = ["Frequencies", "frequencies"]


@records
def frequencies(categories: Expression, over: Plate, weights: npt.ArrayLike | None = None) -> Expression:
    """How often each category was taken along a plate, a vector: ``dot(frequencies(z, word), eta)`` is a regression on them.

    Parameters
    ----------
    categories : a hidden `Categorical`
    over : Plate
        The plate that is summed over; the reader does not have it.
    weights : array [size of ``over``], or [plates of the reader…, size of ``over``], optional
        What each element counts, 0 where there is none; by default 1 / size, so that frequencies sum to 1.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> person, item = ng.Plate("person", 2), ng.Plate("item", 3)
    >>> z = ng.Categorical("z", [0.5, 0.5], plate=(person, item))
    >>> eta = ng.MultivariateNormal("eta", np.zeros(2), np.eye(2))
    >>> y = ng.Normal("y", ng.dot(ng.frequencies(z, item), eta), 1.0, plate=person, observed=[1.0, 2.0])
    """
    access = as_access(categories) if isinstance(categories, Expression) else None
    if access is None or access.kind != CATEGORY or access.size is None:
        given = f"{categories}, {NOUN[categories.kind]}" if isinstance(categories, Expression) else repr(categories)
        raise TypeError(f"frequencies takes a Categorical along a plate, not {given}")
    if not isinstance(over, Plate):
        raise TypeError(f"frequencies: the plate to sum over comes second, got {over!r}")
    known = np.full(over.size, 1.0 / over.size) if weights is None else as_numbers(weights, "frequencies: weights")
    if known.ndim == 0 or known.shape[-1] != over.size:
        raise PlateMismatch(
            f"frequencies: weights must have {over.size} numbers along their last axis, one for each element of plate "
            f"{over.name!r}, got shape {known.shape}"
        )
    require(np.isfinite(known), known, "frequencies: weights", "finite")
    return Frequencies(access, over, known)


@final
class Frequencies(Expression):
    """Σ_s w_s e(z_s) along a plate, a vector."""

    kind = VECTOR

    def __init__(self, categories: Access, over: Plate, weights: npt.NDArray[np.float64]) -> None:
        self.categories, self.over, self.weights = categories, over, weights
        self.size = categories.size

    def accesses(self) -> Iterator[Access]:
        yield from self.categories.accesses()

    def __str__(self) -> str:
        return f"frequencies({self.categories}, {self.over.name})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if self.over.name in scope.plate_names:
            raise PlateMismatch(
                f"{scope.node!r} lies on plate {self.over.name!r}, and {self} sums over it: sum over a plate that "
                f"{scope.node!r} does not have"
            )
        scope.couple(self, self.over)
        f = scope.fresh(self.over.name, self.over.size)
        if name == "x":
            return self._at(scope, f, labels)
        g = scope.fresh(self.over.name, self.over.size)
        first, second = (labels[:1], labels[1:])
        apart = self._at(scope, f, first) * self._at(scope, g, second)
        own = self._weight(scope, f) * (
            self._at(scope, f, first) * Polynomial.of([], Delta(*labels))
            - self._at(scope, f, first) * self._indicator(scope, f, second)
        )
        return apart + own

    def _at(self, scope: Scope, label: Label, axes: tuple[Label, ...]) -> Polynomial:
        return self._weight(scope, label) * self._indicator(scope, label, axes)

    def _weight(self, scope: Scope, label: Label) -> Polynomial:
        return Polynomial.of([scope.constant(self.weights, (label,))])

    def _indicator(self, scope: Scope, label: Label, axes: tuple[Label, ...]) -> Polynomial:
        return self.categories.stat("x", scope, axes, {self.over.name: label})
