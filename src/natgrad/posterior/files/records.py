"""The classes of natgrad that model files may hold, each under a name that stays for good.

A class that is not here is refused when a model is saved, so a file can never ask for anything else when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad import covariance, families
from natgrad.data.ratings import Ratings
from natgrad.inference import auto, methods, step_sizes
from natgrad.inference.local_options import LocalOptions
from natgrad.inference.problem import State
from natgrad.inference.schema import check
from natgrad.inference.steppers import accelerated, checked, group_memory, message_memory
from natgrad.inference.trace import MoveRecord, Reason, StartRecord, StepRecord, Stop, Trace
from natgrad.posterior.factor import Factor
from natgrad.posterior.files.values import register

__all__ = ["register"]

INTEGERS = ("t", "messages_read")
# Columns of the trace and reasons to stop as files before 0.2 called them.
COLUMNS = {"accesses": "messages_read", "moved": "relative_change"}
REASONS = {"ACCESSES": "MESSAGES"}


def _trace_fields(trace: Trace) -> dict[str, Any]:
    columns = {name: trace[name].astype(np.int64 if name in INTEGERS else np.float64) for name in Trace.columns}
    starts = {"starts": [tuple(start) for start in trace.starts]} if trace.starts else {}
    moves = {"moves": [tuple(move) for move in trace.moves]} if trace.moves else {}
    return {"columns": columns, "strategy": trace.strategy, "schedule": trace.schedule, **starts, **moves}


def _trace_of(kept: Mapping[str, Any]) -> Trace:
    kept = {"strategy" if name == "choice" else name: value for name, value in kept.items()}
    if isinstance(kept.get("columns"), Mapping):
        kept["columns"] = {COLUMNS.get(name, name): value for name, value in kept["columns"].items()}
    _check_trace(kept)
    names = [name for name in Trace.columns if name in kept["columns"]]  # an older file may have fewer
    columns = [kept["columns"][name].tolist() for name in names]
    trace = Trace([StepRecord(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)])
    trace.strategy, trace.schedule = kept["strategy"], kept.get("schedule", trace.schedule)
    trace.starts = tuple(StartRecord(*start) for start in kept.get("starts", ()))
    trace.moves = [MoveRecord(*move) for move in kept.get("moves", ())]
    return trace


def _check_trace(kept: Mapping[str, Any]) -> None:
    """One number for each step and column."""
    columns = {f"{name}?": f"{'whole' if name in INTEGERS else 'float'} [_]" for name in Trace.columns}
    moves = [("whole", "text", "text", ["whole"], "float", "float", "flag", "whole", "float")]
    table: dict[str, Any] = {"columns": columns, "strategy": "text", "schedule?": ("text", "whole in [1, 1e9]")}
    table |= {"starts?": [("text", "whole", "float")], "moves?": moves}
    check(kept, table, where="the trace")


def _stop_of(kept: Mapping[str, Any]) -> Stop:
    kept = {"message" if name == "words" else name: value for name, value in kept.items()}
    names = [*(reason.name for reason in Reason), *REASONS]
    check(kept, {"reason": " | ".join(f"'{name}'" for name in names), "message": "text"}, where="the stop")
    return Stop(Reason[REASONS.get(kept["reason"], kept["reason"])], kept["message"])


def _svi_fields(method: methods.SVI) -> dict[str, Any]:
    return {
        "batch": {method.plate: method.size},
        "local_tol": method.local_tol,
        "local_steps": method.local_steps,
    }


def _ratings_fields(ratings: Ratings) -> dict[str, Any]:
    names = ("users", "items", "values", "user_ids", "item_ids")
    return {name: getattr(ratings, name) for name in names}


_PLAIN: dict[str, tuple[type, ...]] = {
    "family": (
        families.Bernoulli, families.Beta, families.Binary, families.Categorical, families.Dirichlet, families.Gamma,
        families.GaussianChain, families.MarkovChain, families.MultivariateNormal, families.Normal, families.NormalGamma,
        families.NormalWishart, families.Poisson, families.TiedNormalWishart, families.Wishart,
        families.PolyaGamma, families.LaplaceWeight, families.TruncatedNormal, families.TruncatedExponential, families.Shares,
        families.Sticks, families.ConcentrationBound, families.LogGamma, families.LogisticBound, families.GammaShape,
        families.HalfNormalPrecision, families.GaussianGamma, families.StickBound, families.MatrixNormalWishart,
    ),
    "method": (methods.VB, methods.Children, methods.GlobalBatch, LocalOptions),
    "step": (step_sizes.RobbinsMonro, step_sizes.Constant, step_sizes.HoldThenDecay, step_sizes.PerNode),
}  # fmt: skip
for _group, _classes in _PLAIN.items():
    for _class in _classes:
        register(_class, f"{_group}.{_class.__name__}")
register(methods.SVI, "method.SVI", _svi_fields)
register(auto.Auto, "step.Auto", renamed={"reads": "data_access"})
# What methods remember; names in files are those of the first version.
_ROTATION = {"turning": "use_rotation"}
register(accelerated.History, "memory.History", renamed=_ROTATION)
register(checked.Snapshot, "memory.Snapshot", renamed=_ROTATION)
register(message_memory.Checked, "memory.Checked", renamed=_ROTATION)
register(group_memory.BatchMemory, "memory.Kept")
register(group_memory.GroupMemory, "memory.Remembered")
register(State)
# What elements are called is kept once, with the declaration.
register(
    Factor,
    None,
    lambda f: {name: getattr(f, name) for name in ("name", "family", "plates", "lam", "origin", "seen", "values")},
)
register(Trace, None, _trace_fields, _trace_of)
register(Stop, None, lambda stop: {"reason": stop.reason.name, "message": stop.message}, _stop_of)
register(Ratings, None, _ratings_fields, lambda kept: Ratings.numbered(**kept))
for _name in covariance.__all__:
    _class = getattr(covariance, _name)
    if isinstance(_class, type) and issubclass(_class, covariance.Covariance) and _class is not covariance.Covariance:
        # The expression as data; a Function of the user's own is code, and refuses.
        register(
            _class,
            f"covariance.{_name}",
            lambda kernel: {"data": kernel.to_data()},
            lambda kept: covariance.covariance_from_data(kept["data"]),
        )
