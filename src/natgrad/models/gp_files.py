"""What a model file may hold of a sparse Gaussian process: the tables of its settings, of q(u) and of what was learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad.covariance import Covariance
from natgrad.inference.trace import Stop, Trace
from natgrad.models.saving import SaveMixin
from natgrad.posterior.tables import RUN
from natgrad.schema import check, refuse

__all__ = ["GPFiles"]

# Logarithms whose exponentials are numbers.
LOG = "in [-700, 700]"


def _kernel(value: Any, sizes: dict[str, int], where: str) -> None:
    if not isinstance(value, Covariance):
        refuse(where, f"is no covariance function but a {type(value).__name__}")
    value.check(sizes["column"])


def _kernel_or_none(value: Any, sizes: dict[str, int], where: str) -> None:
    if value is not None:
        _kernel(value, sizes, where)


SETTINGS: dict[str, Any] = {
    **{name: rule for name, rule in RUN.items() if name != "n_jobs"},
    "kernel": _kernel_or_none,
    "n_inducing": "natural",
    "batch_size": "natural",
    "inducing": "none | real list [_, column]",
    "learn_kernel": "flag",
    "learn_inducing": "flag",
    "learning_rate": "real in (0, 1e3]",
    "max_steps": "natural",
    "max_seconds": "none | positive",
    "validation_fraction": "real in [0, 1)",
    "standardize": "flag",
    "jitter": "real in [0, 0.01)",
}
# Of a regressor alone.
REGRESSOR: dict[str, Any] = {
    "likelihood": "'gaussian' | 'student_t' | 'poisson'",
    "learn_noise": "flag",
    "noise_variance": "real in (0, 1e100]",
    "df": "positive",
}
FITTED: dict[str, Any] = {
    "lam": "MultivariateNormal [output; inducing]",
    "x_scaling": ("real [column]", "positive [column]"),
    "y_scaling": ("real [output]", "positive [output]"),
    "offset": "real [output]",
    "t": "whole in [0, 1e12]",
    "jitter": ("nonnegative", "whole"),
    "kernel": _kernel,
}
ALONG: dict[str, Any] = {
    "n_features_in_": "size column",
    "feature_names_in_?": "ids [column]",
    "elbo_": "float",
    "trace_?": Trace,
    "stop_?": Stop,
    "n_rows_seen_": "natural",
}


class GPFiles(SaveMixin):
    """The tables of `SaveMixin` for sparse Gaussian processes."""

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        classes = cls.__name__ == "SparseGPClassifier"
        own = {"classes_": "ids [class]"} if classes else {"_flat": "flag"}

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, {**FITTED, "settings": tuple, "fitted": {**ALONG, **own}}, sizes, where)
            check(value["settings"], _learned(value["kernel"]), sizes, f"{where}['settings']")
            if classes:
                _check_classes(value["fitted"]["classes_"], sizes["output"])
            elif value["fitted"]["_flat"] and sizes["output"] > 1:
                refuse(where, f"has one output, and {sizes['output']} of them")

        return {**SETTINGS, **({} if classes else REGRESSOR)}, of


def _learned(kernel: Covariance) -> tuple[Any, ...]:
    """The leaves of `natgrad.models.gp_settings.Settings`: θ, inducing inputs and ψ, then what Adam remembers of each."""
    shapes = [", ".join(map(str, np.shape(part))) for part in kernel.theta]
    moving = tuple(f"real [{shape}]" for shape in shapes)
    rest = ("real [inducing, column]", "real [output]")
    squares = tuple(rule.replace("real", "nonnegative") for rule in (*moving, *rest))
    here = (*(f"{rule} {LOG}" for rule in moving), rest[0], f"{rest[1]} {LOG}")
    return (*here, "whole [] in [0, 2147483647)", *moving, *rest, *squares)


def _check_classes(classes: Any, n_outputs: int) -> None:
    """In order, and a function for each, or one for two."""
    if n_outputs != (1 if len(classes) == 2 else len(classes)):
        refuse("classes_", f"are {len(classes)}, with {n_outputs} functions")
    if len(classes) < 2 or not np.array_equal(np.unique(classes), classes):
        refuse("classes_", "are not two or more in order")
