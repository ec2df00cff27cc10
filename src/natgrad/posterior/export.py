"""Summaries of a fit as tables, frames and arviz objects."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad._version import __version__
from natgrad.inference.problem import Block, State
from natgrad.posterior.factor import Factor

__all__ = [
    "ExportMixin",
    "Posterior",
    "Summary",
    "Table",
    "checked_groups",
    "element_frame",
    "factors_of",
    "listed",
    "summary_arrays",
]

Floats = npt.NDArray[np.float64]
# Rows that are printed of a longer table, from its beginning and from its end.
HEAD, TAIL = 40, 10
# Elements of a node whose R̂ and ESS are worked out for a table: some ten milliseconds a hundred.
MOST_DIAGNOSED = 20_000


class Table(ABC):
    """Numbers by row and column; prints as text, and in notebooks as a table."""

    columns: Mapping[str, Floats]
    _foot: str = ""

    @property
    @abstractmethod
    def _row_names(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _cells(self) -> tuple[list[str], dict[str, list[str]]]:
        """Names of the rows that are shown, and their texts by column."""

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return _imported("pandas", "to_pandas", "table").DataFrame(dict(self.columns), index=list(self._row_names))

    def __getitem__(self, column: str) -> Floats:
        if column not in self.columns:
            raise KeyError(f"{column!r} is not a column; these are {', '.join(self.columns)}")
        return self.columns[column]

    def __len__(self) -> int:
        return len(self._row_names)

    def __str__(self) -> str:
        names, columns = self._cells()
        width = max(map(len, names), default=0)
        lines = [" " * width, *(name.ljust(width) for name in names)]
        for heading, cells in columns.items():
            wide = max(len(heading), *map(len, cells)) if cells else len(heading)
            lines = [f"{line}  {cell.rjust(wide)}" for line, cell in zip(lines, [heading, *cells], strict=True)]
        return "\n".join([*(line.rstrip() for line in lines), *([self._foot] if self._foot else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names, columns = self._cells()
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in columns)
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{cells[i]}</td>' for cells in columns.values())}</tr>"
            for i, name in enumerate(names)
        )
        foot = f"<p>{html.escape(self._foot)}</p>" if self._foot else ""
        return f"<table><tr><th></th>{head}</tr>{body}</table>{foot}"


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Table):
    """A table of a posterior, a row for each element; prints as text, and in notebooks as a table.

    Attributes
    ----------
    rows : names of the elements, such as ``mu[2]``
    columns : {name: array [rows]}
    level : where the mean and the interval come from: "q", "linear response" or "draws"
    mass : probability of the intervals
    note : what the fit took, where it judged proposals
    """

    rows: tuple[str, ...]
    columns: Mapping[str, Floats]
    level: str
    mass: float
    note: str = ""

    @property
    def _row_names(self) -> tuple[str, ...]:
        return self.rows

    @property
    def _foot(self) -> str:  # type: ignore[override]
        return "\n".join(line for line in (f"mean and {self.mass:.0%} interval: {self.level}", self.note) if line)

    def _cells(self) -> tuple[list[str], dict[str, list[str]]]:
        """All rows of a short table; of a longer one the first and the last, with an ellipsis between them."""
        n, shown = len(self.rows), list(range(len(self.rows)))
        if n > HEAD + TAIL:
            shown = [*range(HEAD), -1, *range(n - TAIL, n)]
        texts = {
            name: ["" if i < 0 else _text(name, values[i]) for i in shown] for name, values in self.columns.items()
        }
        return ["…" if i < 0 else self.rows[i] for i in shown], texts


def _text(column: str, value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:.0f}" if column == "ESS" else f"{value:.3f}" if column == "R̂" else f"{value:.4g}"


# A variable has the plates of its node as its first axes, under their names. Event axes are called ``name_dim_0`` and so on,
# unless the model knows better. xarray and pandas are imported when they are asked for.

Array = npt.NDArray[Any]
GROUPS = ("posterior", "observed_data", "log_likelihood", "posterior_predictive", "prior", "prior_predictive")


def factors_of(blocks: Mapping[str, Block], state: State) -> dict[str, Factor]:
    """The factor of each block at a state."""
    return {name: Factor(name, b.family, b.plates, state.lam[name], b.origin) for name, b in blocks.items()}


class ExportMixin:
    """``to_xarray``, ``to_pandas`` and ``to_arviz`` for whatever maps names to factors."""

    _level: str = "q"  # what the factors are of, as a summary calls it
    _columns: tuple[str, ...] = ("mean", "sd", "lower", "upper")  # of `to_pandas`
    _axes: Mapping[str, tuple[str, ...]] = {}
    _labels: Mapping[str, Any] = {}

    @abstractmethod
    def __getitem__(self, name: str) -> Factor: ...

    @abstractmethod
    def __iter__(self) -> Iterator[str]: ...

    def to_xarray(self, names: Sequence[str] | None = None, *, mass: float = 0.9) -> Any:
        """The posterior in numbers, as an xarray Dataset.

        Each variable is a posterior mean; beside ``mu`` are ``mu_sd``, ``mu_lower`` and ``mu_upper``, the ends of its interval,
        unless it is a category.

        Parameters
        ----------
        names : which variables; by default all
        mass : float
            Probability of the intervals.
        """
        xarray = _imported("xarray", "to_xarray", "arviz")
        variables: dict[str, tuple[tuple[str, ...], Array]] = {}
        for name in self._chosen(names):
            for suffix, values in summary_arrays(self[name], mass).items():
                key = name if suffix == "mean" else f"{name}_{suffix}"
                if key in variables:
                    raise ValueError(f"{key!r} is the name of two variables of the dataset: choose nodes with names=")
                variables[key] = (self._dims(name, values.ndim), values)
        return xarray.Dataset(
            _apart(variables),
            self._coordinates(variables),
            {"library": "natgrad", "version": __version__, "mass": mass},
        )

    def to_pandas(self, names: Sequence[str] | None = None, *, mass: float = 0.9) -> Any:
        """The posterior in numbers, as a pandas DataFrame: a row for each element, with mean, sd, lower and upper.

        Rows are called like ``mu[2]`` or ``phi[0, apple]``. Categories have no interval, and NaN there.

        Parameters
        ----------
        names : which variables; by default all
        mass : float
            Probability of the intervals.
        """
        pandas = _imported("pandas", "to_pandas", "table")
        rows, columns = self._by_element(self._chosen(names), self._columns, lambda name: self._numbers(name, mass))
        return pandas.DataFrame(columns, index=rows)

    def _numbers(self, name: str, mass: float) -> dict[str, Array]:
        return summary_arrays(self[name], mass)

    def _by_element(
        self, names: Sequence[str], heads: Sequence[str], columns_of: Callable[[str], Mapping[str, Any]]
    ) -> tuple[list[str], dict[str, Floats]]:
        """Names of all elements of some nodes, and their numbers by column; NaN where a node has none."""
        rows: list[str] = []
        parts: dict[str, list[Floats]] = {head: [np.zeros(0)] for head in heads}
        for name in names:
            found = columns_of(name)
            shape = np.shape(found["mean"])
            marks = [self._marks(dim, size) for dim, size in zip(self._dims(name, len(shape)), shape, strict=True)]
            rows += [_row(name, place, marks) for place in np.ndindex(shape)]
            for head, own in parts.items():
                own.append(np.broadcast_to(found.get(head, np.nan), shape).ravel())
        return rows, {head: np.concatenate(own) for head, own in parts.items()}

    def to_arviz(
        self,
        names: Sequence[str] | None = None,
        *,
        n: int = 1000,
        seed: int = 0,
        groups: Sequence[str] | None = None,
    ) -> Any:
        """Draws from q as ArviZ reads them: an xarray DataTree with a group "posterior", one chain, ``n`` draws.

        They are independent draws from the approximation: summaries and plots work, and diagnostics of Markov chains have
        nothing to find in them. The tree of a network also has what was observed, the log likelihood of every observed element,
        data drawn from the posterior and from the prior, so that ``loo``, ``compare`` and ``plot_ppc`` work.

        Parameters
        ----------
        names : which variables of the posterior; by default all, which takes n times the memory of the posterior
        n : int
            Number of draws.
        seed : int
        groups : list of names, optional
            Of "posterior", "observed_data", "log_likelihood", "posterior_predictive", "prior" and "prior_predictive". By default
            all that there are; those that are too large, or not known, are named in the attributes of the tree.
        """
        _imported("xarray", "to_arviz", "arviz")
        asked, rng = checked_groups(groups), np.random.default_rng(seed)
        chosen = self._chosen(names)
        drawn = {name: values[None] for name, values in self._draws(self._needed(chosen, asked, n), rng, n).items()}
        return self._tree({name: drawn[name] for name in chosen}, drawn, asked, np.arange(n), seed)

    def _tree(
        self,
        posterior: Mapping[str, Array],
        drawn: Mapping[str, Array],
        asked: Sequence[str] | None,
        numbers: Array,
        seed: int,
    ) -> Any:
        """Groups of arrays [chain, draw, …] with the names of their axes."""
        import xarray

        more, missing = self._more_groups(drawn, asked, seed)
        parts = {"posterior": {name: (self._dims(name, v.ndim - 2), v) for name, v in posterior.items()}, **more}
        attributes = {"inference_library": "natgrad", "inference_library_version": __version__}
        sets = {}
        for group, variables in parts.items():
            if asked is not None and group not in asked:
                continue
            lead = () if group == "observed_data" else ("chain", "draw")
            placed = {
                name: ((*lead, *self._apart_of(name, dims)), values) for name, (dims, values) in variables.items()
            }
            coordinates = self._coordinates(placed)
            if lead and placed:
                chains, draws = next(iter(placed.values()))[1].shape[:2]
                coordinates["chain"] = np.arange(chains)
                coordinates["draw"] = numbers if draws == len(numbers) else np.arange(draws)
            sets[group] = xarray.Dataset(_apart(placed), coordinates, attributes)
        tree = xarray.DataTree.from_dict(sets)
        tree.attrs.update({f"without_{group}": why for group, why in missing.items()})
        return tree

    def _more_groups(self, drawn: Mapping[str, Array], asked: Sequence[str] | None, seed: int) -> tuple[Any, Any]:
        """Groups beside the posterior, and why some are missing; of a network alone."""
        if wanted := [group for group in asked or () if group != "posterior"]:
            raise TypeError(
                f"to_arviz: {wanted[0]!r} is known of networks alone; ready models have score(X) for held-out data"
            )
        return {}, {}

    def _needed(self, chosen: list[str], asked: Sequence[str] | None, n: int) -> list[str]:
        """Variables of which draws are made."""
        return chosen

    def _apart_of(self, name: str, dims: tuple[str, ...]) -> tuple[str, ...]:
        """No axis has the name of a variable, as xarray demands."""
        taken = {*self, name}
        return tuple(f"{dim}_axis" if dim in taken else dim for dim in dims)

    def summary(
        self,
        names: Sequence[str] | None = None,
        *,
        mass: float = 0.9,
        linear_response: Any = None,
        draws: Any = None,
    ) -> Summary:
        """A table of means, standard deviations and intervals: prints, and converts with ``.to_pandas()``.

        Parameters
        ----------
        names : which variables; by default all but categories
        mass : float
            Probability of the intervals, which are those of the best level that is there.
        linear_response, draws : results of ``linear_response()`` and ``draws()``, optional
            Levels to show beside q; a fit shows those that were last asked of it.
        """
        chosen = self._chosen(names)
        if names is None:
            chosen = [name for name in chosen if not self[name].family.is_discrete]
        known = {"q": None, "linear response": linear_response, "draws": draws, self._level: self}
        levels = {level: entries for level, entries in known.items() if entries is not None}
        best, factors = list(levels.items())[-1]

        def columns(name: str) -> dict[str, Any]:
            found: dict[str, Any] = summary_arrays(factors[name], mass)
            found |= {f"sd ({level})": entries[name].std() for level, entries in levels.items()}
            if best == "draws" and factors[name].is_ordered and found["mean"].size <= MOST_DIAGNOSED:
                found |= {"R̂": factors[name].r_hat(), "ESS": factors[name].ess()}
            return found

        heads = ["mean", *(f"sd ({level})" for level in levels), "lower", "upper"]
        rows, parts = self._by_element(chosen, [*heads, *(["R̂", "ESS"] if best == "draws" else [])], columns)
        return Summary(tuple(rows), parts, best, mass)

    def _draws(self, names: Sequence[str], rng: np.random.Generator, n: int) -> dict[str, Array]:
        """``n`` draws of each variable."""
        return {name: self[name].sample(rng, n) for name in names}

    def _chosen(self, names: Sequence[str] | None) -> list[str]:
        chosen = list(self) if names is None else listed(names)
        for name in chosen:
            self[name]  # whose error says which there are
        return chosen

    def _dims(self, name: str, ndim: int) -> tuple[str, ...]:
        """Names of the axes; an axis that has the name of a variable is called ``name_axis``, as xarray demands."""
        plates, own = self[name].plates, self._axes.get(name, ())
        rest = ndim - len(plates)
        events = own if len(own) == rest else tuple(f"{name}_dim_{i}" for i in range(rest))
        return self._apart_of(name, (*plates, *events))

    def _coordinates(self, variables: Mapping[str, tuple[tuple[str, ...], Array]]) -> dict[str, Any]:
        sizes = {dim: size for dims, values in variables.values() for dim, size in zip(dims, values.shape, strict=True)}
        return {dim: self._marks(dim, size) for dim, size in sizes.items() if dim not in ("chain", "draw")}

    def _marks(self, dim: str, size: int) -> Array:
        labels = self._labels.get(dim)
        marks = np.arange(size) if labels is None or len(labels) != size else np.asarray(labels)
        # Words come as objects; as texts they can be written to a file.
        return marks.astype(str) if marks.dtype.kind == "O" and all(isinstance(m, str) for m in marks) else marks


def listed(names: Sequence[str] | None) -> list[str]:
    """Names as a list; one text is refused, whose letters would be taken as names."""
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names, got the text {names!r}: write [{names!r}]")
    return list(names or ())


def checked_groups(groups: Sequence[str] | None) -> list[str] | None:
    """Names of groups of an ArviZ tree, checked."""
    if groups is None:
        return None
    asked = [groups] if isinstance(groups, str) else list(groups)
    for group in asked:
        if group not in GROUPS:
            raise ValueError(f"groups: there is no group {group!r}; there are {', '.join(GROUPS)}")
    return asked


class Posterior(ExportMixin, Mapping[str, Factor]):
    """The factors that an estimator found, by name.

    Examples
    --------
    >>> import natgrad as ng
    >>> posterior = ng.LDA(n_topics=2, seed=1).fit(["a pear", "a plum", "the nut"]).posterior_
    >>> posterior
    Posterior(phi on topic, theta on doc)
    >>> posterior["phi"].mean().shape
    (2, 4)
    """

    def __init__(
        self,
        factors: Mapping[str, Factor],
        *,
        axes: Mapping[str, tuple[str, ...]] | None = None,
        labels: Mapping[str, Any] | None = None,
        level: str = "q",
    ) -> None:
        self._factors, self._axes, self._labels = dict(factors), dict(axes or {}), dict(labels or {})
        self._level = level

    def __getitem__(self, name: str) -> Factor:
        if name not in self._factors:
            raise KeyError(f"{name!r} is not in this posterior; it has {', '.join(self._factors)}")
        return self._factors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factors)

    def __len__(self) -> int:
        return len(self._factors)

    def __repr__(self) -> str:
        parts = (name + (f" on {', '.join(f.plates)}" if f.plates else "") for name, f in self._factors.items())
        return f"Posterior({', '.join(parts)})"


def element_frame(
    summary: Mapping[str, Array], plates: Sequence[str], labels: Mapping[str, Any] | None, categories: Any = None
) -> Any:
    """A pandas DataFrame with a row for each element of some plates.

    Parameters
    ----------
    summary : arrays by name, plates first: "mean", "sd", "lower" and "upper", or "prob"
    plates : their names, which are those of the first columns
    labels : ids of the elements, by plate; elements of others are numbered
    categories : names of the last axis, optional; entries are numbered otherwise
    """
    pandas = _imported("pandas", "frame", "table")
    n_plates, whole = len(plates), next(iter(summary.values())).shape
    shape, events = whole[:n_plates], whole[n_plates:]
    places = np.indices(shape).reshape(n_plates, int(np.prod(shape)))
    columns: dict[str, Any] = {}
    for plate, place, size in zip(plates, places, shape, strict=True):
        known = (labels or {}).get(plate)
        columns[plate] = place if known is None or len(known) != size else np.asarray(known)[place]
    for entry in np.ndindex(events):
        suffix = "".join(f"_{place if categories is None else categories[place]}" for place in entry)
        for column, values in summary.items():
            columns[f"{column}{suffix}"] = values.reshape(-1, *events)[(slice(None), *entry)]
    return pandas.DataFrame(columns)


def summary_arrays(factor: Any, mass: float) -> dict[str, Array]:
    """Mean, sd and the ends of the interval of a factor or a predictive distribution; of categories mean and sd."""
    columns = {"mean": factor.mean(), "sd": factor.std()}
    with suppress(TypeError):  # categories have no order, hence no interval
        columns["lower"], columns["upper"] = factor.interval(mass)
    return columns


def _apart(variables: Mapping[str, tuple[tuple[str, ...], Array]]) -> dict[str, tuple[tuple[str, ...], Array]]:
    """Variables whose axes have different names within each array: xarray takes no name twice."""
    return {
        name: (tuple(dim if dim not in dims[:i] else f"{dim}_{i}" for i, dim in enumerate(dims)), values)
        for name, (dims, values) in variables.items()
    }


def _row(name: str, place: tuple[int, ...], marks: list[Array]) -> str:
    inside = ", ".join(str(mark[i]) for mark, i in zip(marks, place, strict=True))
    return f"{name}[{inside}]" if inside else name


def _imported(module: str, what: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f"{what}() needs {module}: pip install 'natgrad[{extra}]'") from None
