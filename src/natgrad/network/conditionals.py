"""The nodes of the language: each declares its conditional once, as its expected log density.

Everything else (messages, targets, natural gradients, the bound) is derived from these polynomials. Precision
everywhere: ``Normal(mean, precision)``, ``Gamma(shape, rate)``, ``Wishart(dof, rate)`` with E = dof · rate⁻¹.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, multigammaln

from natgrad import families
from natgrad.errors import PlateMismatch
from natgrad.network.expressions import (
    CATEGORY,
    COUNT,
    MATRIX,
    POSITIVE,
    REAL,
    SIMPLEX,
    UNIT,
    VECTOR,
    Access,
    Constant,
)
from natgrad.network.nodes import Node, Slot, category_take, checked_categories
from natgrad.network.plates import Index, Plate
from natgrad.network.polynomial import Factor, Monomial, Polynomial, number
from natgrad.network.scope import Scope

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "MarkovChain",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "Poisson",
    "Wishart",
]

Plates = Plate | tuple[Plate, ...] | list[Plate] | None
LOG_2PI = float(np.log(2.0 * np.pi))


class _Scalar(Node):
    def _event_size(self, observed: Any) -> int | None:
        return None


@final
class Normal(_Scalar):
    """x ~ N(mean, 1/precision).

    Examples
    --------
    >>> import natgrad as ng
    >>> mu = ng.Normal("mu", 0.0, 0.1)
    >>> ng.Normal("x", mu, 2.0, plate=ng.Plate("n", 3), observed=[1.2, -0.3, 0.8])
    <Normal 'x' on n=3 observed>
    """

    family = families.Normal()
    kind = REAL
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def __init__(
        self,
        name: str,
        mean: Any,
        precision: Any,
        *,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision = self.parameters["mean"], self.parameters["precision"]
        x, xx = self.own("x", scope), self.own("xx", scope)
        m, mm = mean.stat("x", scope), mean.stat("xx", scope)
        t, log_t = precision.stat("x", scope), precision.stat("log", scope)
        return t * (x * m - 0.5 * xx - 0.5 * mm) + 0.5 * log_t - 0.5 * LOG_2PI


@final
class MultivariateNormal(Node):
    """x ~ N(mean, precision⁻¹) for vectors of length ``size`` (found from the parameters or the data)."""

    family = families.MultivariateNormal()
    kind = VECTOR
    slots_of = (Slot("mean", VECTOR), Slot("precision", MATRIX))

    def __init__(
        self,
        name: str,
        mean: Any,
        precision: Any,
        *,
        size: int | None = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self._size = size
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        sizes = [self._size, *(_last(self.parameters[name]) for name in ("mean", "precision"))]
        if observed is not None and np.ndim(observed):
            sizes.append(int(np.shape(observed)[-1]))
        known = [size for size in sizes if size is not None]
        if not known:
            raise PlateMismatch(
                f"{self.name!r}: the length of the vector cannot be told from its parameters: give size="
            )
        return known[0]

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision = self.parameters["mean"], self.parameters["precision"]
        assert self.size is not None
        i, j = scope.fresh("i", self.size), scope.fresh("i", self.size)
        quadratic = self.own("x", scope, (i,)) * mean.stat("x", scope, (j,))
        quadratic += -0.5 * self.own("xx", scope, (i, j)) - 0.5 * mean.stat("xx", scope, (i, j))
        constant = 0.5 * precision.stat("log", scope) - 0.5 * self.size * LOG_2PI
        return precision.stat("x", scope, (i, j)) * quadratic + constant


@final
class Gamma(_Scalar):
    """x ~ Gamma(shape, rate), mean shape/rate; conjugate for precisions and for rates."""

    family = families.Gamma()
    kind = POSITIVE
    slots_of = (Slot("shape", POSITIVE, fixed=True), Slot("rate", POSITIVE))

    def __init__(
        self,
        name: str,
        shape: Any,
        rate: Any,
        *,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        super().__init__(name, {"shape": shape, "rate": rate}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        return _positive(self, value, present)

    def log_density(self, scope: Scope) -> Polynomial:
        shape, rate = _numbers(self.parameters["shape"]), self.parameters["rate"]
        log_x, x = self.own("log", scope), self.own("x", scope)
        a = _known(scope, shape)
        return (
            a * rate.stat("log", scope)
            + _known(scope, shape - 1.0) * log_x
            - rate.stat("x", scope) * x
            - _known(scope, gammaln(shape))
        )


@final
class Exponential(_Scalar):
    """x ~ Exp(rate), mean 1/rate: a Gamma with shape 1."""

    family = families.Gamma()
    kind = POSITIVE
    slots_of = (Slot("rate", POSITIVE),)

    def __init__(self, name: str, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"rate": rate}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, value >= 0, present, "values ≥ 0")
        return np.where(present, value, 1.0)

    def log_density(self, scope: Scope) -> Polynomial:
        rate = self.parameters["rate"]
        return rate.stat("log", scope) - rate.stat("x", scope) * self.own("x", scope)


@final
class Wishart(Node):
    """X ~ Wishart(dof, rate), E[X] = dof · rate⁻¹: the prior of a precision matrix."""

    family = families.Wishart()
    kind = MATRIX
    slots_of = (Slot("dof", POSITIVE, fixed=True), Slot("rate", MATRIX))

    def __init__(
        self,
        name: str,
        dof: Any,
        rate: Any,
        *,
        size: int | None = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self._size = size
        super().__init__(name, {"dof": dof, "rate": rate}, plate, observed, mask)
        smallest = float(_numbers(self.parameters["dof"]).min())
        if self.size is not None and smallest <= self.size - 1:
            raise ValueError(f"{name!r}: dof = {smallest:g} must be larger than the dimension − 1 = {self.size - 1}")

    def _event_size(self, observed: Any) -> int | None:
        size = self._size if self._size is not None else _last(self.parameters["rate"])
        if size is None:
            raise PlateMismatch(f"{self.name!r}: the dimension cannot be told from rate: give size= or a matrix")
        return size

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        filled = np.where(present[..., None, None], value, np.eye(value.shape[-1]))
        smallest = np.linalg.eigvalsh(filled).min(axis=-1)
        if (bad := np.argwhere(smallest <= 0)).size:
            raise ValueError(f"{self.name!r}: observed{bad[0].tolist()} is not positive definite")
        return filled

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        assert self.value is not None
        return np.linalg.slogdet(self.value)[1] if name == "log" else self.value

    def log_density(self, scope: Scope) -> Polynomial:
        dof, rate, size = _numbers(self.parameters["dof"]), self.parameters["rate"], self.size
        assert size is not None
        i, j = scope.fresh("i", size), scope.fresh("i", size)
        normaliser = 0.5 * dof * size * np.log(2.0) + multigammaln(0.5 * dof, size)
        return (
            _known(scope, 0.5 * dof) * rate.stat("log", scope)
            - 0.5 * rate.stat("x", scope, (i, j)) * self.own("x", scope, (i, j))
            + _known(scope, 0.5 * (dof - size - 1.0)) * self.own("log", scope)
            - _known(scope, normaliser)
        )


@final
class Dirichlet(Node):
    """x ~ Dir(concentration), probabilities over ``size`` categories; one number means a symmetric prior."""

    family = families.Dirichlet()
    kind = SIMPLEX
    slots_of = (Slot("concentration", POSITIVE, fixed=True),)

    def __init__(
        self,
        name: str,
        concentration: Any,
        *,
        size: int | None = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self._size = size
        super().__init__(name, {"concentration": concentration}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        values = _numbers(self.parameters["concentration"])
        size = self._size if self._size is not None else (values.shape[-1] if values.ndim else None)
        if size is None or size < 2:
            raise PlateMismatch(
                f"{self.name!r}: give size= (at least 2), or a vector of concentrations, got size {size}"
            )
        if values.ndim and values.shape[-1] not in (1, size):
            raise PlateMismatch(f"{self.name!r}: concentration has length {values.shape[-1]}, but size = {size}")
        return int(size)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        good = (value > 0) & (np.abs(value.sum(-1, keepdims=True) - 1) < 1e-8)
        self._support(value, good, present, "positive entries that sum to 1")
        return np.where(present[..., None], value, 1.0)

    def concentration(self) -> npt.NDArray[np.float64]:
        """The prior's parameter with its event axis written out."""
        values = _numbers(self.parameters["concentration"])
        assert self.size is not None
        return np.broadcast_to(values, (*values.shape[:-1], self.size)) if values.ndim else np.full(self.size, values)

    def log_density(self, scope: Scope) -> Polynomial:
        alpha = self.concentration()
        assert self.size is not None
        k = scope.fresh("k", self.size)
        normaliser = gammaln(alpha.sum(-1)) - gammaln(alpha).sum(-1)
        return Polynomial.of([scope.constant(alpha - 1.0, (k,))]) * self.own("log", scope, (k,)) + _known(
            scope, normaliser
        )


@final
class Beta(_Scalar):
    """x ~ Beta(a, b), a probability."""

    family = families.Beta()
    kind = UNIT
    slots_of = (Slot("a", POSITIVE, fixed=True), Slot("b", POSITIVE, fixed=True))

    def __init__(
        self, name: str, a: Any, b: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        super().__init__(name, {"a": a, "b": b}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value > 0) & (value < 1), present, "values strictly between 0 and 1")
        return np.where(present, value, 0.5)

    def log_density(self, scope: Scope) -> Polynomial:
        a, b = _numbers(self.parameters["a"]), _numbers(self.parameters["b"])
        normaliser = gammaln(a + b) - gammaln(a) - gammaln(b)
        log_x, log_rest = self.own("log", scope), self.own("log1m", scope)
        return _known(scope, a - 1.0) * log_x + _known(scope, b - 1.0) * log_rest + _known(scope, normaliser)


@final
class Categorical(Node):
    """z ~ Cat(probs): an integer 0 … K − 1. Hidden, it chooses components: ``mu[z]``."""

    family = families.Categorical()
    kind = CATEGORY
    slots_of = (Slot("probs", SIMPLEX),)

    def __init__(self, name: str, probs: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"probs": probs}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        return _last(self.parameters["probs"])

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        assert self.size is not None
        return checked_categories(self.name, value, self.size, present)

    def observed_index(self, access: Access) -> Index | None:
        return _observed_index(self, access)

    def log_density(self, scope: Scope) -> Polynomial:
        probs = self.parameters["probs"]
        assert self.size is not None
        if not self.is_observed:
            k = scope.fresh("k", self.size)
            return self.own("x", scope, (k,)) * probs.stat("log", scope, (k,))
        k = scope.fresh("k", self.size)
        table, take = probs.stat("log", scope, (k,)), category_take(self, scope)
        return Polynomial(tuple(_picked(monomial, k, take) for monomial in table.monomials))


@final
class Bernoulli(_Scalar):
    """x ~ Bernoulli(prob): 0 or 1."""

    family = families.Bernoulli()
    kind = COUNT
    slots_of = (Slot("prob", UNIT),)

    def __init__(self, name: str, prob: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"prob": prob}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value == 0) | (value == 1), present, "0 or 1")
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        prob, x = self.parameters["prob"], self.own("x", scope)
        return x * prob.stat("log", scope) + (1.0 + -1.0 * x) * prob.stat("log1m", scope)


@final
class Binomial(_Scalar):
    """x ~ Binomial(trials, prob), observed."""

    family = families.Bernoulli()
    kind = COUNT
    slots_of = (Slot("trials", POSITIVE, fixed=True), Slot("prob", UNIT))

    def __init__(
        self,
        name: str,
        trials: Any,
        prob: Any,
        *,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        _must_be_observed(name, observed, "Binomial")
        super().__init__(name, {"trials": trials, "prob": prob}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        trials = _numbers(self.parameters["trials"])
        self._support(
            value,
            (value >= 0) & (value <= trials) & (value == np.round(value)),
            present,
            "whole numbers 0 … trials",
        )
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        trials, prob = _numbers(self.parameters["trials"]), self.parameters["prob"]
        x = self.own("x", scope)
        ways = gammaln(trials + 1.0) - gammaln(self.value + 1.0) - gammaln(trials - self.value + 1.0)
        rest = _known(scope, trials) - x
        return x * prob.stat("log", scope) + rest * prob.stat("log1m", scope) + _known(scope, ways)


@final
class Multinomial(Node):
    """Counts [K] of ``trials`` draws from ``probs``, observed; ``trials=None`` takes the row sums."""

    family = families.Dirichlet()  # only for the shape of a value: a vector
    kind = COUNT
    slots_of = (Slot("probs", SIMPLEX),)

    def __init__(
        self,
        name: str,
        trials: Any,
        probs: Any,
        *,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        _must_be_observed(name, observed, "Multinomial")
        self._trials = None if trials is None else np.asarray(trials, dtype=np.float64)
        super().__init__(name, {"probs": probs}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        return _last(self.parameters["probs"])

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        if value.shape[-1] != self.size:
            raise PlateMismatch(
                f"{self.name!r}: observed has {value.shape[-1]} columns, but probs has {self.size} categories"
            )
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        filled = np.where(present[..., None], value, 0).astype(np.float64)
        if self._trials is not None and (bad := np.argwhere(present & (filled.sum(-1) != self._trials))).size:
            raise ValueError(
                f"{self.name!r}: observed{bad[0].tolist()} sums to {filled.sum(-1)[tuple(bad[0])]:g}, not to trials; "
                "trials=None takes the row sums"
            )
        return filled

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.size is not None
        assert self.value is not None
        k = scope.fresh("k", self.size)
        ways = gammaln(self.value.sum(-1) + 1.0) - gammaln(self.value + 1.0).sum(-1)
        return self.own("x", scope, (k,)) * self.parameters["probs"].stat("log", scope, (k,)) + _known(scope, ways)


@final
class Poisson(_Scalar):
    """x ~ Poisson(rate): a count."""

    family = families.Poisson()
    kind = COUNT
    slots_of = (Slot("rate", POSITIVE),)

    def __init__(self, name: str, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"rate": rate}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        rate, x = self.parameters["rate"], self.own("x", scope)
        density = x * rate.stat("log", scope) - rate.stat("x", scope)
        # A hidden count has the same base measure −log x! in q, so the two cancel in the bound.
        return density if self.value is None else density - _known(scope, gammaln(self.value + 1.0))


@final
class MarkovChain(Node):
    """z_1 ~ Cat(initial), z_t ~ Cat(transition[z_{t−1}]) along the last plate: one factor for the whole chain.

    Parameters
    ----------
    initial : Dirichlet or probabilities [K]
    transition : Dirichlet on a plate of K states, or probabilities [K, K]; row i holds P(next | i)
    plate : Plate or several
        The last one is time; those before it are independent sequences of equal length.
    lengths : ints, optional
        Several sequences laid end to end on the time plate: the length of each.
    """

    kind = CATEGORY
    slots_of = (Slot("initial", SIMPLEX), Slot("transition", SIMPLEX))

    def __init__(
        self,
        name: str,
        initial: Any,
        transition: Any,
        *,
        plate: Plates,
        lengths: Any = None,
        observed: Any = None,
    ) -> None:
        if observed is not None:
            raise TypeError(
                f"{name!r}: an observed chain is a Categorical with probs=transition[previous state]; leave observed out"
            )
        lengths = None if lengths is None else tuple(int(n) for n in lengths)
        self.family = families.MarkovChain(lengths)
        super().__init__(name, {"initial": initial, "transition": transition}, plate)
        if not self.plates:
            raise PlateMismatch(f"{name!r}: a chain needs a plate: time")
        if lengths is not None and (sum(lengths) != self.plates[-1].size or min(lengths) < 1):
            raise PlateMismatch(
                f"{name!r}: lengths sum to {sum(lengths)} (smallest {min(lengths)}), but plate {self.plates[-1].name!r} has "
                f"{self.plates[-1].size} elements"
            )
        if self.plates[-1].weight is not None:
            raise PlateMismatch(f"{name!r}: the time plate {self.plates[-1].name!r} of a chain cannot carry weights")

    @property
    def block_plates(self) -> tuple[Plate, ...]:
        return self.plates[:-1]

    def stat_shapes(self) -> list[tuple[int, ...]]:
        marginals, first, pairs = super().stat_shapes()
        return [(*marginals[:-2], self.plates[-1].size, marginals[-1]), first, pairs]

    def _event_size(self, observed: Any) -> int | None:
        sizes = {name: _last(self.parameters[name]) for name in ("initial", "transition")}
        if sizes["initial"] != sizes["transition"]:
            raise PlateMismatch(
                f"{self.name!r}: initial has {sizes['initial']} states, transition {sizes['transition']}"
            )
        return sizes["initial"]

    def log_density(self, scope: Scope) -> Polynomial:
        # The term lives on the sequences; time is inside the factor.
        scope.plates = self.block_plates
        initial, transition, size = self.parameters["initial"], self.parameters["transition"], self.size
        assert size is not None
        i, j, k = (scope.fresh("k", size) for _ in range(3))
        if isinstance(transition, Constant):
            table = transition.stat("log", scope, (i, j))
        else:
            plate = scope.single_leftover(transition, "transition")
            scope.check_size(plate, i, f"transition {transition}")
            table = transition.stat("log", scope, (j,), {plate.name: i})
        return (
            self._chain("first", scope, (k,)) * initial.stat("log", scope, (k,))
            + self._chain("pairs", scope, (i, j)) * table
        )

    def _chain(self, name: str, scope: Scope, labels: tuple[str, ...]) -> Polynomial:
        stat = self.family.stat_names.index(name)
        axes = (*scope.plate_names, *labels)
        return Polynomial.of([Factor(self.name, stat, axes, known=False)])


def _numbers(expression: Any) -> npt.NDArray[np.float64]:
    assert isinstance(expression, Constant)
    return expression.value


def _known(scope: Scope, array: Any) -> Polynomial:
    values = np.asarray(array, dtype=np.float64)
    return number(float(values)) if values.ndim == 0 else Polynomial.of([scope.constant(values)])


def _last(expression: Any) -> int | None:
    if isinstance(expression, Constant):
        return int(expression.value.shape[-1]) if expression.value.ndim else None
    size = expression.size
    return None if size is None else int(size)


def _picked(monomial: Monomial, label: str, take: Any) -> Monomial:
    """The same monomial with one event axis read through observed categories."""
    factors = []
    for factor in monomial.factors:
        axes = tuple(take if axis == label else axis for axis in factor.axes)
        factors.append(Factor(factor.source, factor.stat, axes, factor.known, factor.occurrence))
    return Monomial(monomial.coefficient, tuple(factors), monomial.deltas)


def _observed_index(node: Node, access: Access) -> Index | None:
    if node.value is None:
        return None
    if node.mask is not None:
        raise ValueError(f"{node.name!r} chooses components but has missing values: leave it hidden, or fill them in")
    values, names = node.value, tuple(plate.name for plate in node.plates)
    if any(isinstance(selector, Index) for selector in access.selectors):
        if len(access.selectors) > 1:
            raise PlateMismatch(
                f"{access}: an observed category on several plates cannot be gathered; index its values"
            )
        index = access.selectors[0]
        assert isinstance(index, Index)
        return Index(values[index.values], index.plates)
    return Index(values, names)


def _positive(node: Node, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    node._support(value, value > 0, present, "values > 0")
    return np.where(present, value, 1.0).astype(np.float64)


def _must_be_observed(name: str, observed: Any, what: str) -> None:
    if observed is None:
        raise TypeError(f"{name!r}: a {what} must be observed: give observed=counts")
