"""Say what to write instead: of unknown arguments, of nodes of another kind, of operations that expressions do not have."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from natgrad.errors import NotConjugate

if TYPE_CHECKING:
    from natgrad.network.language.expressions import Expression

__all__ = ["Refusals", "check_arguments", "instead", "no_attribute", "of_another_kind", "of_no_numbers", "of_numpy"]

# What NumPy asks for where an array stands beside an expression, and the method that answers.
OPERATIONS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "true_divide": "truediv",
    "matmul": "matmul",
}
LEVELS = "a Categorical or a Bernoulli chooses between levels"
WHY = {
    "exp": "positive numbers are Gammas: put a Gamma where a rate, a precision or a scale is needed",
    "log": "logarithms of data are taken beforehand: observed=numpy.log(y)",
    "sqrt": "a Normal takes a precision, which a Gamma can be, and no standard deviation",
    "square": "powers of known numbers are columns: dot(numpy.stack([x, x**2], -1), w)",
    "tanh": f"{LEVELS}, and a GaussianProcess is a smooth function of known inputs",
    "reciprocal": "give Normal a precision and Gamma a rate, which multiply instead of divide",
}
WHY |= dict.fromkeys(("sin", "cos", "logaddexp", "arctan"), WHY["tanh"])
WHY |= dict.fromkeys(("maximum", "minimum"), f"{LEVELS}, as in mu[z]")
WHY |= dict.fromkeys(("log1p", "log2", "log10", "expm1"), WHY["log"])
NOTHING = "only sums, known multiples, products of two different nodes and dot have one"


MOST_NODES = 64  # of a list; a longer one is data
# Names that other libraries give to parameters, and what is said where one of them is not ours.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "mean": ("mu", "loc", "location"),
    "prob": ("p", "probs", "theta"),
    "probs": ("p", "prob", "theta", "weights"),
    "logit": ("logits", "logit_p", "eta"),
    "logits": ("logit", "logit_p", "eta"),
    "rate": ("lam", "beta", "mu", "lambda_", "inverse_scale"),
    "shape": ("alpha", "k", "a", "n"),
    "trials": ("n", "total_count"),
    "a": ("alpha", "concentration1"),
    "b": ("beta", "concentration0"),
    "noise_precision": ("Q", "q", "innovations", "process_noise"),
    "dynamics": ("A", "transition", "F", "transition_matrix"),
    "lower": ("low", "left", "min"),
    "upper": ("high", "right", "max"),
    "inducing": ("Z", "inducing_points"),
    "concentration": ("alpha", "a", "concentrations"),
    "dof": ("nu", "df", "n"),
    "df": ("nu", "dof"),
    "plate": ("plates", "dims", "shape", "n"),
    "observed": ("obs", "data", "value", "values", "y"),
}
SCALES = ("sigma", "sd", "std", "scale", "stddev", "variance", "var", "covariance", "cov", "covariance_matrix")
METHODS = {
    "mean": "after a fit, fit[{name!r}].mean() is its expectation; the mean of known numbers is numpy.mean",
    "sum": "write natgrad.sum_over({name}, plate)",
    "T": "a random vector is no matrix: for an inner product write natgrad.dot({name}, x)",
    "dot": "write natgrad.dot({name}, x)",
    "shape": "it has plates, {name}.plates, and vectors have {name}.size",
    "observe": "data are given where it is declared: observed=values",
    "random": "network.simulate(seed) draws from the prior; after a fit, fit[{name!r}].sample(rng, n)",
    "std": "after a fit, fit[{name!r}].std() is its standard deviation",
    "var": "after a fit, fit[{name!r}].var() is its variance",
    "reshape": "it has plates in place of axes, {name}.plates: declare it on those that are needed",
    "log_prob": "after a fit, fit.predictive({name!r}).log_density(values) is that of data",
    "logp": "after a fit, fit.predictive({name!r}).log_density(values) is that of data",
    "sample": "after a fit, fit[{name!r}].sample(rng, n); network.simulate(seed) draws from the prior",
}


@cache
def _parameters(cls: type) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """All parameters of a node, those by position, and those that must be given."""
    # What inspect.signature says of a plain function, without the half a millisecond that it takes at the first fit.
    function: Any = inspect.unwrap(cls.__init__)  # type: ignore[misc]
    code = function.__code__
    by_place = code.co_varnames[1 : code.co_argcount]
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    n_needed = len(by_place) - len(function.__defaults__ or ())
    by_name = (name for name in names[len(by_place) :] if name not in (function.__kwdefaults__ or {}))
    return names, by_place, (*by_place[:n_needed], *by_name)


def _meant(given: str, value: Any, names: tuple[str, ...]) -> str:
    """What to write in place of an argument that a node does not have, with the parameters ``names``."""
    if given in SCALES and "precision" in names:
        return ": it takes a precision, which is 1 / sd²"
    if given == "scale" and "rate" in names:
        return ": it takes a rate, which is 1 / scale"
    if given in ("mu", "mean", "sigma", "sd") and {"shape", "rate"} <= set(names):
        return ": its mean is shape / rate, and its variance shape / rate²"
    if given == "observed":
        return ": it is hidden only"
    if (meant := next((name for name in names if given in ALIASES.get(name, ())), None)) is not None:
        return f": write {meant}="
    several = given == "size" and "plate" in names
    return f": several of them are declared with plate=Plate('name', {value!r})" if several else ""


def check_arguments(cls: type, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """What Python would say of a wrong or missing argument, with what to write instead."""
    names, by_place, needed = _parameters(cls)
    label = options.get("name", arguments[0] if arguments else "name")
    if (given := next((name for name in options if name not in names), None)) is not None:
        known = ", ".join(name for name in names if name != "name")
        advice = _meant(given, options[given], names)
        raise TypeError(f"{label!r}: a {cls.__name__} has no {given}{advice}. It takes {known}")
    missing = [name for name in needed if name not in by_place[: len(arguments)] and name not in options]
    if missing and len(arguments) <= len(by_place):
        order = ", ".join([*by_place, *(f"{name}=…" for name in missing if name not in by_place)])
        raise TypeError(f"{label!r}: {' and '.join(missing)} must be given: {cls.__name__}({order})")


def of_another_kind(node: str, wanted: str, given: str, value: str) -> str:
    """What an error adds where an expression of another kind was given."""
    of_several = f"For a link write logits={value} (stick-breaking) or softmax={value}"
    advice = {
        ("a probability", "a real number"): f"For a logistic link write logit={value}",
        ("a vector of probabilities", "a real number"): of_several,
        ("a vector of probabilities", "a vector"): of_several,
        ("a precision matrix", "a positive number"): f"For a multiple of the identity write {value} * numpy.eye(size)",
    }
    if node == "Poisson":
        advice["a positive number", "a real number"] = "For a log link write NegativeBinomial(name, shape, logit=…)"
    return f". {advice[wanted, given]}" if (wanted, given) in advice else ""


def of_no_numbers(value: Any) -> str:
    """What to write where something that is no number, node or expression stands in a parameter; empty if nothing is known."""
    from natgrad.network.language.expressions import Expression
    from natgrad.network.language.process import GaussianProcess

    if isinstance(value, GaussianProcess):
        return f": write {value.node.name}(X), its values at the inputs X"
    if isinstance(value, (list, tuple)) and any(isinstance(part, Expression) for part in value[:MOST_NODES]):
        return (
            ": several nodes in one place are one node on a plate, Normal(name, …, plate=Plate(…)); a vector of them is "
            "natgrad.concatenate([…])"
        )
    return ""


def no_attribute(expression: Any, name: str) -> AttributeError:
    """For what arrays have and expressions have not."""
    advice = METHODS.get(name)
    kind = type(expression).__name__.lstrip("_")
    if advice is None or name.startswith("_"):
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    return AttributeError(f"{expression} is random and has no {name}: {advice.format(name=str(expression))}")


def instead(expression: Any, otherwise: str) -> str:
    """What to write where an array or an index was wanted."""
    if getattr(getattr(expression, "node", expression), "categories", None) is not None:
        return f"to choose from known numbers with it write natgrad.table(numbers)[{expression}]"
    return otherwise


def of_numpy(
    expression: Expression, ufunc: Any, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """The operators that NumPy hands to us, or an error that says what has a closed form."""
    name: str = ufunc.__name__
    if method == "__call__" and not options:
        first = inputs[0] is expression
        other = inputs[-1] if first else inputs[0]
        if name in ("equal", "not_equal"):
            expression._compared(other)
        if name == "negative":
            return -expression
        if name == "power" and first:
            return expression**other
        if name in OPERATIONS:
            return getattr(expression, f"__{'' if first else 'r'}{OPERATIONS[name]}__")(other)
    if method == "reduce" and name == "add":
        raise TypeError(f"numpy.sum({expression}) has no array to sum: write natgrad.sum_over({expression}, plate)")
    if options:
        raise TypeError(
            f"{expression} is random and cannot be put into an array: write a new expression, without +=, *= or out="
        )
    name = {"true_divide": "divide"}.get(name, name)
    raise NotConjugate(f"numpy.{name}({expression}): the expectation has no closed form; {WHY.get(name, NOTHING)}")


class Refusals(ABC):
    """Operators, conversions and comparisons that an expression refuses."""

    # What is random stands in a declaration already; only columns of a table wait for one (`columns.py`).
    is_deferred = False

    @abstractmethod
    def __str__(self) -> str: ...

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self} is random and has no elements to go through: its sum along a plate is natgrad.sum_over({self}, plate), and "
            f"one of its elements {self}[0]"
        )

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise TypeError(
            f"{self} is random and cannot become an array: {instead(self, 'for X @ w write natgrad.dot(X, w)')}"
        )

    def __index__(self) -> NoReturn:
        raise TypeError(f"{self} is random and cannot be an index: {instead(self, 'only categories choose')}")

    def __float__(self) -> NoReturn:
        raise TypeError(
            f"{self} is random and has no single value: after a fit, fit[{str(self)!r}].mean() is its expectation"
        )

    def __abs__(self) -> NoReturn:
        raise NotConjugate(f"abs({self}): the expectation of an absolute value has no closed form")

    def _compared(self, other: Any) -> NoReturn:
        raise TypeError(
            f"{self} is random, and comparing it with {other} is no expression: a component that depends on a condition is "
            "chosen by a Bernoulli or a Categorical, as in mu[z]"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (bool, int, float, np.generic, np.ndarray)):
            self._compared(other)  # False, which is Python's answer, would decide in silence
        return self is other

    __hash__ = object.__hash__

    def _combined(self, other: Any = None) -> NoReturn:
        raise TypeError(
            f"{self} is random: what follows from coins by and, or, not is a table of them, as in "
            "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"
        )

    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = __invert__ = _combined

    def _whole(self, other: Any = None) -> NoReturn:
        raise NotConjugate(f"{self}: a remainder, a whole part and rounding have no closed form; round data beforehand")

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __round__ = _whole

    if not TYPE_CHECKING:  # who checks types must see that there is no such thing

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self} is random: it has no truth value")
