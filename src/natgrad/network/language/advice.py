"""What people type that no network has, in; what to write instead, out: functions of NumPy, arrays, indices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from natgrad.errors import NotConjugate

if TYPE_CHECKING:
    from natgrad.network.language.expressions import Expression

__all__ = ["instead", "of_numpy"]

# What an array on the left asks for, and an expression can do.
OPERATORS: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: b + a,
    "subtract": lambda a, b: b.__rsub__(a),
    "multiply": lambda a, b: b * a,
    "divide": lambda a, b: b.__rtruediv__(a),
    "matmul": lambda a, b: b.__rmatmul__(a),
    "negative": operator.neg,
}
WHY = {
    "exp": "positive numbers are Gammas: put a Gamma where a rate, a precision or a scale is needed",
    "log": "logarithms of data are taken beforehand: observed=numpy.log(y)",
    "sqrt": "a Normal takes a precision, which a Gamma can be, and no standard deviation",
    "square": "powers of known numbers are columns: dot(numpy.stack([x, x**2], -1), w)",
    "tanh": "a Categorical or a Bernoulli chooses between levels, and a GaussianProcess is a smooth function of known inputs",
    "maximum": "a Categorical or a Bernoulli chooses between levels, as in mu[z]",
    "minimum": "a Categorical or a Bernoulli chooses between levels, as in mu[z]",
    "reciprocal": "give Normal a precision and Gamma a rate, which multiply instead of divide",
}
WHY |= dict.fromkeys(("sin", "cos", "logaddexp", "arctan"), WHY["tanh"])
WHY |= dict.fromkeys(("log1p", "log2", "log10", "expm1"), WHY["log"])
NOTHING = "only sums, known multiples, products of two different nodes and dot have one"


def instead(expression: Expression, otherwise: str) -> str:
    """What to write where an array or an index was wanted."""
    if getattr(getattr(expression, "node", expression), "categories", None) is not None:
        return f"to choose from known numbers with it write natgrad.table(numbers)[{expression}]"
    return otherwise


def of_numpy(
    expression: Expression, ufunc: Any, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """The operators that NumPy hands to us, or an error that says what has a closed form."""
    name = {"true_divide": "divide"}.get(ufunc.__name__, ufunc.__name__)
    if method == "__call__" and not options:
        if name in ("equal", "not_equal"):
            return name == "not_equal"
        if name in OPERATORS and (len(inputs) == 1 or inputs[1] is expression):
            return OPERATORS[name](*inputs)
        if name in PLAIN and inputs[0] is expression:
            return PLAIN[name](*inputs)
    if method == "reduce" and name == "add":
        raise TypeError(f"numpy.sum({expression}) has no array to sum: write natgrad.sum_over({expression}, plate)")
    if options:
        raise TypeError(
            f"{expression} is random and cannot be put into an array: write a new expression, without +=, *= or out="
        )
    raise NotConjugate(f"numpy.{name}({expression}): the expectation has no closed form; {WHY.get(name, NOTHING)}")


# The same with the array on the right, as numpy.add(mu, 1.0) and the like ask.
PLAIN: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
    "matmul": operator.matmul,
}
