"""What a model file may hold of a sparse Gaussian process: the tables of its settings, of q(u) and of what was learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad.covariance import Covariance
from natgrad.inference.schema import check, record, refuse, state_of
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.settings import Adam, Settings
from natgrad.posterior.files.tables import RUN

__all__ = ["GPFiles", "law_of", "state_table"]

# Logarithms whose exponentials are numbers.
LOG = "in [-200, 200]"
# Units of data whose squares, divided by those of the shortest length scale, are numbers.
WIDE, SPREAD = "in [-1e30, 1e30]", "in [1e-30, 1e30]"
COUNT = "whole [] in [0, 2147483647)"


def _kernel(value: Any, sizes: dict[str, int], where: str) -> None:
    if not isinstance(value, Covariance):
        refuse(where, f"is no covariance function but a {type(value).__name__}")
    value.check(sizes["column"])


def _kernel_or_none(value: Any, sizes: dict[str, int], where: str) -> None:
    if value is not None and not (isinstance(value, str) and value == "auto"):
        _kernel(value, sizes, where)


def _order(value: Any, sizes: dict[str, int], where: str) -> None:
    """Classes from the lowest to the highest, or None."""
    if value is not None and not (
        isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value)
    ):
        refuse(where, "is no list of classes")


SETTINGS: dict[str, Any] = {
    **{name: rule for name, rule in RUN.items() if name != "n_jobs"},
    "kernel": _kernel_or_none,
    "n_inducing": "'auto' | natural",
    "batch_size": "natural",
    "inducing": "none | real list [_, column]",
    "learn_kernel": "flag",
    "learn_inducing": "flag",
    "learning_rate": "real in (0, 1]",
    "max_steps": "natural",
    "max_seconds": "none | positive",
    "validation_fraction": "real in [0, 1)",
    "standardize": "flag",
    "jitter": "real in [0, 0.01)",
}
# Of a regressor alone.
REGRESSOR: dict[str, Any] = {
    "likelihood": "'gaussian' | 'student_t' | 'poisson' | 'negative_binomial' | 'heteroskedastic'",
    "learn_noise": "flag",
    "noise_variance": "none | real in (0, 1e100]",
    "df": "positive",
    "outputs": "none | 'correlated' | 'independent'",
}
CLASSIFIER: dict[str, Any] = {
    "likelihood": "none | 'probit' | 'softmax' | 'ordinal'",
    "order": _order,
}
# Parameters of a likelihood, where they are not one for each output.
CORRELATED = "correlated"
PSI = {"ordinal": "real [cut]", "heteroskedastic": "real [measured, 2]", CORRELATED: "real [measured, mixed]"}
FITTED: dict[str, Any] = {
    "lam": "MultivariateNormal [factor; stacked]",
    "x_scaling": (f"real [column] {WIDE}", f"real [column] {SPREAD}"),
    "y_scaling": (f"real [measured] {WIDE}", f"real [measured] {SPREAD}"),
    "offset": f"real [output] {WIDE}",
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
    "_part?": "real in (0, 1]",
}


class GPFiles(Estimator):
    """The tables of `Estimator` for sparse Gaussian processes."""

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**SETTINGS, **(CLASSIFIER if cls.__name__ == "SparseGPClassifier" else REGRESSOR)}

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        classes = cls.__name__ == "SparseGPClassifier"
        own = (
            {"classes_": "ids [class]", "_link?": "'probit' | 'softmax' | 'ordinal'"}
            if classes
            else {"_flat": "flag", "_correlated?": "flag"}
        )

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, {**FITTED, "settings": tuple, "fitted": {**ALONG, **own}}, sizes, where)
            law = str(value["fitted"].get("_link", "probit") if classes else settings.get("likelihood"))
            mixed = bool(value["fitted"].get("_correlated", False))
            check(
                value["settings"],
                _learned(value["kernel"], CORRELATED if mixed else law),
                sizes,
                f"{where}['settings']",
            )
            _check_factors(mixed, sizes)
            n = len(value["kernel"].theta) + 2
            _check_adam(value["settings"][n + 1 : 2 * n + 1], value["settings"][2 * n + 1 :])
            if ("trace_" in value["fitted"]) != ("stop_" in value["fitted"]):
                refuse(where, "has a trace without an end, or an end without a trace")
            if sizes["output"] != sizes["measured"] * (2 if law == "heteroskedastic" else 1):
                refuse(where, f"has {sizes['output']} functions of {sizes['measured']} outputs")
            if classes:
                _check_classes(value["fitted"]["classes_"], law, sizes)
            elif value["fitted"]["_flat"] and sizes["measured"] > 1:
                refuse(where, f"has one output, and {sizes['measured']} of them")

        return cls._settings_table(), of


def _learned(kernel: Covariance, law: str) -> tuple[Any, ...]:
    """The leaves of `natgrad.models.gp.settings.Settings`: θ, inducing inputs and ψ, then what Adam remembers of each."""
    moving = (*_theta(kernel), "real [inducing, column]", PSI.get(law, "real [output]"))
    here = (*(f"{rule} {LOG}" for rule in moving[:-2]), f"{moving[-2]} {WIDE}", f"{moving[-1]} {LOG}")
    squares = tuple(rule.replace("real", "nonnegative") for rule in moving)
    return (*here, COUNT, *moving, *squares)


def law_of(likelihood: Likelihood) -> str:
    """What the parameters of a likelihood go by here."""
    return CORRELATED if likelihood.mixes else likelihood.name


def _check_factors(mixed: bool, sizes: Mapping[str, int]) -> None:
    """A factor of q for each function, or, where outputs go together, one for all of them; numbers that mix functions."""
    n, size = sizes["output"], sizes["inducing"]
    kinds = [(n, size), (1, n * size)][: 2 if mixed else 1]
    if (sizes["factor"], sizes["stacked"]) not in kinds:
        refuse(
            "lam", f"is of shape [{sizes['factor']}, {sizes['stacked']}], with {n} functions and {size} inducing inputs"
        )
    if mixed and sizes["mixed"] != 2 + n:
        refuse("settings", f"has {sizes['mixed']} columns of parameters for {n} outputs that go together")


def _check_adam(mu: Any, nu: Any) -> None:
    """Averages of a slope and of its square: the first is never larger than 7.3 roots of the second, whatever the slopes."""
    for first, second in zip(mu, nu, strict=True):
        if not (np.abs(first) <= 10.0 * np.sqrt(second) + 1e-12).all():
            refuse("Adam's memory", "has averages of slopes that are larger than those of their squares allow")


def state_table(kernel: Covariance, law: str) -> Any:
    """The table of a state, in which the same numbers are in their records."""
    leaves, n = _learned(kernel, law), len(kernel.theta) + 2
    here, count, moving, squares = leaves[:n], leaves[n], leaves[n + 1 : 2 * n + 1], leaves[2 * n + 1 :]

    def settings(parts: tuple[Any, ...], adam: Any) -> Any:
        return record(Settings, theta=parts[:-2], inducing=parts[-2], psi=parts[-1], adam=adam)

    adam = record(Adam, count=count, mu=settings(moving, "none"), nu=settings(squares, "none"))
    whole = state_of({"v": FITTED["lam"]}, hyper={"settings": settings(here, adam)})

    def of(value: Any, sizes: dict[str, int], where: str) -> None:
        whole(value, sizes, where)
        kept = value.hyper["settings"].adam
        _check_adam(*((*part.theta, part.inducing, part.psi) for part in (kept.mu, kept.nu)))

    return of


def _theta(kernel: Covariance) -> tuple[str, ...]:
    return tuple(f"real {list(np.shape(part))}" for part in kernel.theta)


def _check_classes(classes: Any, law: str, sizes: Mapping[str, int]) -> None:
    """In order, and a function for each, or one for two; of an ordinal scale one function, and cutpoints between the classes."""
    ordinal = law == "ordinal"
    if sizes["output"] != (1 if ordinal or (len(classes) == 2 and law == "probit") else len(classes)):
        refuse("classes_", f"are {len(classes)}, with {sizes['output']} functions")
    if ordinal and sizes["cut"] != len(classes) - 1:
        refuse("classes_", f"are {len(classes)}, with {sizes['cut']} cutpoints")
    if len(classes) < 2 or len(np.unique(classes)) != len(classes):
        refuse("classes_", "are not two or more, each once")
    if not ordinal and not np.array_equal(np.unique(classes), classes):
        refuse("classes_", "are not in order")
