"""Compare fits of the same data: a table of their bounds, with and without labellings of components, and of their scores."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.posterior.export import Table
from natgrad.showing import reporter

__all__ = ["Comparison", "compare", "compare_by", "difference_of_data", "score_of"]

# What a fit holds of its data is compared by numbers that no order of rows or columns changes: how many there are, and sums,
# with the weights of plates. A model that was loaded knows how many it has seen.

# Attributes of ready models that count what they have seen, and what it is called. A time is a row of a sequence.
SEEN = {"n_rows_seen_": "rows", "n_times_seen_": "rows", "n_documents_seen_": "documents"}
OBSERVATIONS = "observations"  # of a network
# Rows whose columns are summed.
ROWS = 1_000_000
# Sums of the same numbers in another order.
ROUNDING = 1e-9


class _Known(NamedTuple):
    """What a fit was made of: so many of these, and sums of what it holds, or none."""

    noun: str
    size: float
    sums: npt.NDArray[np.float64] | None


def difference_of_data(fits: Mapping[str, Any]) -> str | None:
    """A sentence on the first two fits that are of different data; None where no such are known."""
    first: tuple[str, _Known] | None = None
    for name, fit in fits.items():
        known = _known(fit)
        if known is None:
            continue
        if first is None:
            first = name, known
            continue
        one, other = f"{first[1].size:.10g} {first[1].noun}", f"{known.size:.10g} {known.noun}"
        # A row of a ready model is as many observations of a network as it has columns: their sums are compared.
        counts_alike = first[1].noun == known.noun or not {first[1].noun, known.noun} <= {"rows", OBSERVATIONS}
        if counts_alike and one != other:
            return f"{first[0]!r} is a fit of {one}, and {name!r} of {other}"
        if not _same(first[1].sums, known.sums):
            each = f", {one} each" if one == other else ""
            return f"{first[0]!r} and {name!r} are fits of other numbers{each}"
    return None


def _known(fit: Any) -> _Known | None:
    held = getattr(fit, "_data", None)
    if (ratings := getattr(fit, "ratings_", None)) is not None:
        values = np.asarray(ratings.values, np.float64)
        return _Known("ratings", len(values), np.array([values.sum(), (values**2).sum()]))
    for name, noun in SEEN.items():
        if hasattr(fit, name):
            return _Known(noun, float(getattr(fit, name)), _sums(held))
    if "log_likelihood" in (groups := getattr(fit, "children", {})):
        return _of_tree(groups)
    plan = getattr(getattr(fit, "problem", None), "plan", None)
    return None if plan is None else _of_network(plan)


def _of_network(plan: Any) -> _Known | None:
    """What was observed of all nodes, with the weights of their plates; None where some of it is not held."""
    leaves = [node for node in plan.declared.values() if node.is_observed]
    if not leaves or any(getattr(node, "value", None) is None for node in leaves):
        return None
    size, sums = 0.0, []
    for node in leaves:
        value, present = np.asarray(node.value), np.asarray(node._present(), bool)
        weight = np.ones(present.shape)
        for axis, plate in enumerate(node.plates):
            if plate.weight is not None:
                weight = weight * np.reshape(plate.weight, [-1 if here == axis else 1 for here in range(weight.ndim)])
        weight = np.where(present, weight, 0.0)
        size += float(weight.sum())
        sums.append(_weighted(value, weight))
    return _Known(OBSERVATIONS, size, _in_order(sums))


def _of_tree(groups: Mapping[str, Any]) -> _Known:
    """As many as have a log likelihood; sums of the group of observed data, where there is one."""
    likelihood = groups["log_likelihood"].dataset
    size = sum(v.size / (v.sizes["chain"] * v.sizes["draw"]) for v in likelihood.data_vars.values())
    if "observed_data" not in groups:
        return _Known(OBSERVATIONS, size, None)
    seen = groups["observed_data"].dataset
    return _Known(
        OBSERVATIONS,
        size,
        _in_order(
            [_weighted(np.asarray(v), np.ones(likelihood[n].shape[2:])) for n, v in seen.items() if n in likelihood]
        ),
    )


def _weighted(value: npt.NDArray[Any], weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weighted sums, and those of squares [2, entries of an event]; a category counts as its number."""
    columns = np.asarray(value, np.float64).reshape(weight.size, -1)
    columns = np.where(weight.reshape(-1, 1) > 0, columns, 0.0)
    return np.stack([weight.ravel() @ columns, weight.ravel() @ columns**2])


def _in_order(sums: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64] | None:
    return np.sort(np.concatenate(sums, axis=1), axis=1).ravel() if sums else None


def _sums(held: Any) -> npt.NDArray[np.float64] | None:
    """Sums of columns and of their squares, in order of size; of documents their words; None of what is not held."""
    if (corpus := getattr(held, "corpus", None)) is not None:
        return np.array([corpus.counts.sum()], np.float64)
    arrays = getattr(held, "arrays", None) or (getattr(held, "columns", None),)
    if arrays[0] is None or np.ndim(arrays[0]) != 2 or np.asarray(arrays[0][:1]).dtype.kind not in "biuf":
        return None
    columns = np.asarray(arrays[0][:ROWS], np.float64)
    return np.concatenate([np.sort(np.nansum(columns, 0)), np.sort(np.nansum(columns**2, 0))])


def _same(one: npt.NDArray[np.float64] | None, other: npt.NDArray[np.float64] | None) -> bool:
    if one is None or other is None:
        return True
    if len(one) != len(other):
        return False
    return bool(np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * max(1.0, float(np.abs(one).max(initial=0.0)))))


Floats = npt.NDArray[np.float64]
# The attributes of ready models that count exchangeable components. Empty topics are no part of a model with learned priors
# (decision 0040), and so have no places.
COUNTED = ("n_components_", "n_topics_", "n_states_")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Table):
    """Fits side by side, the best first: prints as text, and in notebooks as a table.

    Attributes
    ----------
    names : of the fits
    columns : {"K", "bound", "corrected", "held_out", "loo", "se", "difference", "difference_se", "pareto_k", "seconds": array
        [fits]}; NaN where a fit does not say. What fits are ranked by is the held-out score, otherwise LOO, otherwise the
        corrected bound: ``se`` is the standard error of that number over observations, ``difference`` how far it is below the
        best, ``difference_se`` the standard error of this, from differences of single observations (no bound has one).
        ``pareto_k`` is the largest of LOO's shapes: above 0.7 that LOO is not reliable
    """

    names: tuple[str, ...]
    columns: Mapping[str, Floats]

    @property
    def _row_names(self) -> tuple[str, ...]:
        return self.names

    @property
    def best(self) -> str:
        """The name of the first: by held-out score, otherwise LOO, otherwise the corrected bound."""
        return self.names[0]

    def draw(self) -> Any:
        """The bounds, with and without the correction, against K, as an SVG; ``.save(path)`` writes it."""
        return reporter("charts.comparison").draw_comparison(self)

    def _cells(self) -> tuple[list[str], dict[str, list[str]]]:
        """The columns that some fit has."""
        return list(self.names), {
            name: ["–" if math.isnan(value) else f"{value:.0f}" if name == "K" else f"{value:.7g}" for value in values]
            for name, values in self.columns.items()
            if not np.isnan(values).all()
        }

    def _repr_html_(self) -> str:
        return f"{super()._repr_html_()}{self.draw()}"


def compare(fits: Mapping[str, Any] | Sequence[Any], held_out: Any = None) -> Comparison:
    """Fits of the same data side by side: the bound, the bound corrected for labellings, held-out score and LOO.

    A bound is that of one labelling of the components; the posterior has one mode for each, and all hold the same mass. Adding
    log K!, or log of the ways to choose K places of as many as there may be, where K was found, makes bounds of different K
    comparable; empty places of topics are no part of the model, and states that have an order have one labelling. Bounds
    and LOO rank models of the same observations alone: fits that are known to be of others are refused, by how many they have
    seen and sums of what they hold, weights included; with ``held_out`` their bounds are left out.

    Parameters
    ----------
    fits : {name: fit}, or a list
        Fits of networks, fitted estimators, draws of networks, and posteriors of ArviZ with a ``log_likelihood`` group: the LOO
        of the last two is computed by ArviZ. It is that of elements given all hidden nodes, categories of single rows, too.
    held_out : optional
        Data that no fit has seen; the ``score`` of every estimator on them, (X, y) where it asks for a target. Models whose
        scores are of different kinds, such as a mixture and a hidden Markov model, are refused.

    Examples
    --------
    >>> import numpy as np, natgrad as ng
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4.0, 1.0, (60, 1)), rng.normal(4.0, 1.0, (60, 1))])
    >>> found = ng.compare({f"K = {k}": ng.GaussianMixture(k, seed=0).fit(X) for k in (1, 2, 3)})
    >>> found.names[-1]
    'K = 1'
    >>> [int(k) for k in sorted(found["K"])]
    [1, 2, 3]
    """
    return compare_by(fits, None if held_out is None else lambda fit: _score(fit, held_out))


def compare_by(
    fits: Mapping[str, Any] | Sequence[Any], score: Callable[[Any], tuple[float, Floats | None]] | None
) -> Comparison:
    """As `compare`, with a function that scores an estimator on held-out data, and each of these where that is known."""
    if not isinstance(fits, (Mapping, list, tuple)):
        raise TypeError(f"compare takes {{name: fit, …}} or a list of fits, got a {type(fits).__name__}")
    named = dict(fits) if isinstance(fits, Mapping) else {_default_name(fit, i): fit for i, fit in enumerate(fits)}
    if not named:
        raise ValueError("compare needs fits: compare({name: fit, …})")
    if len({str(name) for name in named}) < len(named):
        raise ValueError(f"compare: two of the names {list(named)} read alike")
    scored = {} if score is None else {str(name): fit for name, fit in named.items() if hasattr(fit, "score")}
    _refuse_other_scores(scored)
    readable = {str(name): _with_likelihood(str(name), fit) for name, fit in named.items()}
    measured: dict[str, Any] = {
        name: _measured(name, fit, score if name in scored else None) for name, fit in readable.items()
    }
    rows, singles = ({name: part[i] for name, part in measured.items()} for i in (0, 1))
    columns = {key: np.array([row[key] for row in rows.values()]) for key in next(iter(rows.values()))}
    if (why := difference_of_data(readable)) is not None:
        if not scored:
            raise ValueError(
                f"compare: {why}; bounds and LOO of different data have no order: give held_out= data that none has seen"
            )
        columns |= {name: np.full(len(rows), math.nan) for name in ("bound", "corrected", "loo", "pareto_k")}
    by = next((name for name in ("held_out", "loo") if not np.isnan(columns[name]).all()), "corrected")
    key = columns[by]
    order = np.argsort(np.where(np.isnan(key), np.inf, -key), kind="stable")
    columns |= _differences(key, order[0], [single.get(by) for single in singles.values()], is_mean=by == "held_out")
    return Comparison(tuple(np.array(list(rows))[order].tolist()), {n: values[order] for n, values in columns.items()})


def _score(fit: Any, held_out: Any) -> tuple[float, Floats | None]:
    """On held-out data, with a target where the model asks for one."""
    required = [
        p for p in inspect.signature(fit.score).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if len(required) < 2:
        return score_of(fit, (held_out,))
    if not isinstance(held_out, tuple) or len(held_out) != len(required):
        raise TypeError(f"compare: {type(fit).__name__} is scored by rows and a target: give held_out=(X, y)")
    return score_of(fit, held_out)


def score_of(fit: Any, data: Sequence[Any]) -> tuple[float, Floats | None]:
    """The score, and the scores of single rows of which it is the mean; None where it is no such mean."""
    score = float(fit.score(*data))
    if len(data) != 1 or not hasattr(fit, "score_samples"):
        return score, None
    rows = np.asarray(fit.score_samples(*data), np.float64)
    return score, rows if rows.ndim == 1 and np.isclose(rows.mean(), score, rtol=1e-9) else None


def _refuse_other_scores(scored: Mapping[str, Any]) -> None:
    """A mean over rows and the log probability of a sequence have no order."""
    kinds = {name: inspect.unwrap(type(fit).score) for name, fit in scored.items()}
    if len(set(kinds.values())) > 1:
        one, *others = kinds
        other = next(name for name in others if kinds[name] is not kinds[one])
        said = [(inspect.getdoc(kinds[name]) or kinds[name].__qualname__).splitlines()[0] for name in (one, other)]
        raise ValueError(
            f"compare: the scores of {one!r} and {other!r} are of different kinds, which have no order: "
            f"{said[0]!r} and {said[1]!r}"
        )


def _default_name(fit: Any, number: int) -> str:
    return f"{number}: {type(fit).__name__}"


def _differences(key: Floats, best: int, singles: Sequence[Floats | None], is_mean: bool) -> dict[str, Floats]:
    """How far each fit is below the best, and standard errors of a sum, or of a mean, over observations."""

    def error(values: Floats | None) -> float:
        if values is None or len(values) < 2:
            return math.nan
        root = math.sqrt(len(values))
        return float(np.std(values, ddof=1)) * (1.0 / root if is_mean else root)

    def beside(values: Floats | None) -> Floats | None:
        first = singles[best]
        return None if values is None or first is None or len(values) != len(first) else first - values

    return {
        "se": np.array([error(values) for values in singles]),
        "difference": key[best] - key,
        "difference_se": np.array([error(beside(values)) for values in singles]),
    }


def _with_likelihood(name: str, fit: Any) -> Any:
    """Draws as ArviZ reads them."""
    from natgrad.posterior.draws import Draws

    if not isinstance(fit, Draws):
        return fit
    tree = fit.to_arviz(groups=["posterior", "observed_data", "log_likelihood"])
    if not _has_log_likelihood(tree):
        raise TypeError(
            f"compare: {name!r} are draws without a log likelihood, so that there is no LOO: compare the fit they came from"
        )
    return tree


def _measured(
    name: str, fit: Any, score: Callable[[Any], tuple[float, Floats | None]] | None
) -> tuple[dict[str, float], dict[str, Floats]]:
    """The row of a fit, and the parts that single observations have in its score and its LOO."""
    bound = getattr(fit, "elbo_", getattr(fit, "elbo", None))
    likelihood = _has_log_likelihood(fit)
    if bound is None and not likelihood:
        raise TypeError(
            f"compare: {name!r} is a {type(fit).__name__}, which has no bound: give fits, or fitted estimators"
        )
    value = math.nan if bound is None else float(bound)
    size, labellings = _components(fit)
    trace = getattr(fit, "trace_", getattr(fit, "trace", None))
    loo = _loo(fit) if likelihood else None
    held_out, single = (math.nan, None) if score is None else score(fit)
    row = {
        "K": float(size) if size else math.nan,
        "bound": value,
        "corrected": value + labellings,
        "held_out": held_out,
        "loo": math.nan if loo is None else float(loo[0].sum()),
        "se": math.nan,
        "difference": math.nan,
        "difference_se": math.nan,
        "pareto_k": math.nan if loo is None else loo[1],
        "seconds": float(trace.last.seconds) if trace is not None and len(trace) else math.nan,
    }
    parts = {"held_out": single, "loo": None if loo is None else loo[0]}
    return row, {by: part for by, part in parts.items() if part is not None}


def _components(fit: Any) -> tuple[int, float]:
    """K, and the logarithm of the number of labellings that give the same fit: of one labelling, 0."""
    for name in COUNTED:
        if hasattr(fit, name):
            k = int(getattr(fit, name))
            room = int(getattr(fit, "_places", k))
            return k, _log_ways(room, k) if getattr(fit, "_exchangeable", True) else 0.0
    counted: Mapping[str, tuple[int, int]] = getattr(fit, "component_counts", {})
    total, ways = 0, 0.0
    for k, room in counted.values():
        total, ways = total + k, ways + _log_ways(room, k)
    return total, ways


def _log_ways(room: int, k: int) -> float:
    """Log of room! / (room − k)!."""
    return math.lgamma(room + 1) - math.lgamma(room - k + 1)


def _has_log_likelihood(fit: Any) -> bool:
    return "log_likelihood" in getattr(fit, "children", {})


def _loo(fit: Any) -> tuple[Floats, float]:
    """The LOO of each observation, of all variables that have a likelihood, and the largest Pareto k."""
    try:
        from arviz_stats import loo
    except ImportError:
        raise ImportError("LOO needs arviz-stats: pip install 'natgrad[arviz]'") from None
    found = [loo(fit, pointwise=True, var_name=str(name)) for name in fit.children["log_likelihood"].dataset.data_vars]
    singles = np.concatenate([np.ravel(estimate.elpd_i) for estimate in found])
    return singles, max(float(np.max(estimate.pareto_k)) for estimate in found)
