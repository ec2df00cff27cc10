"""Fits in; a table of their bounds, with and without the labellings of their components, and of their scores, out."""

from __future__ import annotations

import html
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.posterior.same_data import difference_of_data
from natgrad.showing import reporter

__all__ = ["Comparison", "compare", "compare_by"]

Floats = npt.NDArray[np.float64]
# The attributes of ready models that count exchangeable components: as found, and the setting of the most. Empty topics are no
# part of a model with learned priors (decision 0040), and so have no places.
COUNTED = (("n_components_", "max_components"), ("n_topics_", "n_topics_"), ("n_states_", "max_states"))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Fits side by side, the best first: prints as text, and in notebooks as a table.

    Attributes
    ----------
    names : of the fits
    columns : {"K", "bound", "corrected", "held_out", "loo", "seconds": array [fits]}; NaN where a fit does not say
    """

    names: tuple[str, ...]
    columns: Mapping[str, Floats]

    def __getitem__(self, column: str) -> Floats:
        if column not in self.columns:
            raise KeyError(f"{column!r} is not a column; these are {', '.join(self.columns)}")
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def best(self) -> str:
        """The name of the first: by held-out score, otherwise LOO, otherwise the corrected bound."""
        return self.names[0]

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas() needs pandas: pip install 'natgrad[table]'") from None
        return pandas.DataFrame(dict(self.columns), index=list(self.names))

    def draw(self) -> Any:
        """The bounds, with and without the correction, against K, as an SVG; ``.save(path)`` writes it."""
        return reporter("charts.comparison").draw_comparison(self)

    def _cells(self) -> dict[str, list[str]]:
        """Texts of the columns that some fit has."""
        return {
            name: ["–" if math.isnan(value) else f"{value:.0f}" if name == "K" else f"{value:.7g}" for value in values]
            for name, values in self.columns.items()
            if not np.isnan(values).all()
        }

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [" " * width, *(name.ljust(width) for name in self.names)]
        for heading, cells in self._cells().items():
            wide = max([len(heading), *map(len, cells)])
            lines = [f"{line}  {cell.rjust(wide)}" for line, cell in zip(lines, [heading, *cells], strict=True)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = self._cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in cells)
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{column[i]}</td>' for column in cells.values())}</tr>"
            for i, name in enumerate(self.names)
        )
        return f"<table><tr><th></th>{head}</tr>{body}</table>{self.draw()}"


def compare(fits: Mapping[str, Any] | Sequence[Any], held_out: Any = None) -> Comparison:
    """Fits of the same data side by side: the bound, the bound corrected for labellings, held-out score and LOO.

    A bound is that of one labelling of the components; the posterior has one mode for each, and all hold the same mass. Adding
    log K!, or log of the ways to choose K places of as many as there may be, where K was found, makes bounds of different K
    comparable; empty places of topics are no part of the model, and states that have an order have one labelling. Bounds compare
    models of the same data alone: fits that are known to be of others are refused, by how many they have seen and sums of what
    they hold; with ``held_out`` their bounds are left out. Networks do not say what they were fitted to.

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


def compare_by(fits: Mapping[str, Any] | Sequence[Any], score: Callable[[Any], float] | None) -> Comparison:
    """As `compare`, with a function that scores an estimator on held-out data."""
    if not isinstance(fits, (Mapping, list, tuple)):
        raise TypeError(f"compare takes {{name: fit, …}} or a list of fits, got a {type(fits).__name__}")
    named = dict(fits) if isinstance(fits, Mapping) else {_default_name(fit, i): fit for i, fit in enumerate(fits)}
    if not named:
        raise ValueError("compare needs fits: compare({name: fit, …})")
    if len({str(name) for name in named}) < len(named):
        raise ValueError(f"compare: two of the names {list(named)} read alike")
    scored = {} if score is None else {str(name): fit for name, fit in named.items() if hasattr(fit, "score")}
    _refuse_other_scores(scored)
    rows = {str(name): _measured(str(name), fit, score if str(name) in scored else None) for name, fit in named.items()}
    columns = {key: np.array([row[key] for row in rows.values()]) for key in next(iter(rows.values()))}
    if (why := difference_of_data({str(name): fit for name, fit in named.items()})) is not None:
        if not scored:
            raise ValueError(
                f"compare: {why}; bounds of different data have no order: give held_out= data that none has seen"
            )
        columns |= {name: np.full(len(rows), math.nan) for name in ("bound", "corrected")}
    key = next(
        (columns[name] for name in ("held_out", "loo") if not np.isnan(columns[name]).all()), columns["corrected"]
    )
    order = np.argsort(np.where(np.isnan(key), np.inf, -key), kind="stable")
    return Comparison(tuple(np.array(list(rows))[order].tolist()), {n: values[order] for n, values in columns.items()})


def _score(fit: Any, held_out: Any) -> float:
    """On held-out data, with a target where the model asks for one."""
    required = [
        p for p in inspect.signature(fit.score).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if len(required) < 2:
        return float(fit.score(held_out))
    if not isinstance(held_out, tuple) or len(held_out) != len(required):
        raise TypeError(f"compare: {type(fit).__name__} is scored by rows and a target: give held_out=(X, y)")
    return float(fit.score(*held_out))


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


def _measured(name: str, fit: Any, score: Callable[[Any], float] | None) -> dict[str, float]:
    from natgrad.posterior.draws import Draws

    if isinstance(fit, Draws):
        fit = fit.to_arviz(groups=["posterior", "log_likelihood"])
        if not _has_log_likelihood(fit):
            raise TypeError(
                f"compare: {name!r} are draws without a log likelihood, so that there is no LOO: compare the fit they came from"
            )
    bound = getattr(fit, "elbo_", getattr(fit, "elbo", None))
    likelihood = _has_log_likelihood(fit)
    if bound is None and not likelihood:
        raise TypeError(
            f"compare: {name!r} is a {type(fit).__name__}, which has no bound: give fits, or fitted estimators"
        )
    value = math.nan if bound is None else float(bound)
    size, labellings = _components(fit)
    trace = getattr(fit, "trace_", getattr(fit, "trace", None))
    return {
        "K": float(size) if size else math.nan,
        "bound": value,
        "corrected": value + labellings,
        "held_out": math.nan if score is None else score(fit),
        "loo": _loo(fit) if likelihood else math.nan,
        "seconds": float(trace.last.seconds) if trace is not None and len(trace) else math.nan,
    }


def _components(fit: Any) -> tuple[int, float]:
    """K, and the logarithm of the number of labellings that give the same fit: of one labelling, 0."""
    for name, most in COUNTED:
        if hasattr(fit, name):
            k, auto = int(getattr(fit, name)), name.rstrip("_")
            room = int(getattr(fit, most)) if getattr(fit, auto, None) == "auto" else k
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


def _loo(fit: Any) -> float:
    try:
        from arviz_stats import loo
    except ImportError:
        raise ImportError("LOO needs arviz-stats: pip install 'natgrad[arviz]'") from None
    estimate = loo(fit)
    return float(getattr(estimate, "elpd", getattr(estimate, "elpd_loo", math.nan)))
