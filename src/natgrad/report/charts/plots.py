"""Draw a fit or a fitted model with matplotlib: the run, marginal posteriors, intervals, a check of predictions.

Every function takes ``ax`` or ``axes`` to draw on, by default those of a new figure of pyplot, and returns what it drew on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.report.charts.svg import Line

__all__ = ["Plots", "bound_curve"]

Floats = npt.NDArray[np.float64]
EXACT = "exact bound"
BLUE, PALE, DARK = "#08519c", "#9ecae1", "0.25"
# Most panels and rows of one figure; more would be too small to read.
PANELS, ROWS = 24, 60
# Probabilities, none of them ½, at which a marginal density is found from its quantiles.
GRID = np.concatenate([[1e-4, 1e-3, 4e-3], np.linspace(0.01, 0.99, 98), [1 - 4e-3, 1 - 1e-3, 1 - 1e-4]])


class Plots:
    """Pictures of one fit: ``fit.plot()`` for the run beside the intervals, ``fit.plot.trace()`` and so on for one of them.

    Parameters
    ----------
    subject : a fit of a network, or a fitted estimator
    """

    def __init__(self, subject: Any) -> None:
        self._subject = subject

    def __call__(self, names: Sequence[str] | None = None, *, mass: float = 0.9, axes: Any = None) -> Any:
        """The bound of the run, and the intervals of the nodes.

        Parameters
        ----------
        names : which nodes; by default all but categories
        mass : float
            Probability of the intervals.
        axes : two matplotlib axes, optional
        """
        if axes is None:
            height = 0.8 + 0.28 * len(self._fitting(names, mass, ROWS)[0])
            axes = _pyplot().subplots(1, 2, figsize=(10, max(3.4, height)), layout="constrained")[1]
        self.trace(ax=axes[0])
        if self._nodes(names):
            self.forest(names, mass=mass, ax=axes[1])
        else:
            axes[1].set_axis_off()
            axes[1].text(0.5, 0.5, "no parameters that have intervals", ha="center", va="center")
        return axes

    def trace(self, *, against: str = "messages_read", ax: Any = None) -> Any:
        """The bound, at every step that measured it, or its estimates by batches where it was never measured.

        Parameters
        ----------
        against : "messages_read", "seconds", "data_read" or another column of the trace, or "step"
        ax : matplotlib axes, optional
        """
        curve = bound_curve(getattr(self._subject, "trace", None) or self._subject.trace_, against)
        there = np.isfinite(curve.y)
        ax = _one(ax)
        ax.plot(curve.x[there], curve.y[there], ".-" if there.sum() < 60 else "-", ms=4, lw=1.2, color=BLUE)
        if not there.any():
            ax.text(0.5, 0.5, "this inference has no bound", ha="center", va="center", transform=ax.transAxes)
        ax.set_xlabel(against.replace("_", " "))
        ax.set_ylabel("evidence lower bound" if curve.name == EXACT else curve.name)
        ax.ticklabel_format(axis="y", useOffset=False)
        return ax

    def forest(self, names: Sequence[str] | None = None, *, mass: float = 0.9, ax: Any = None) -> Any:
        """Means and intervals of every element, a line for each: thin for ``mass``, thick for half of it.

        The intervals are those of the best level that was computed: q, linear response or draws. Of more than 60 elements, small
        nodes are drawn whole and larger ones in part; the title says what is left out.

        Parameters
        ----------
        names : which nodes; by default all but categories
        mass : float
            Probability of the thin intervals.
        ax : matplotlib axes, optional
        """
        (wide, left_out), (narrow, _) = (self._fitting(names, part, ROWS) for part in (mass, mass / 2))
        if not len(wide):
            raise ValueError("there is nothing to draw: only categories are hidden")
        ax = _one(ax, (6.4, 0.9 + 0.28 * len(wide)))
        y = np.arange(len(wide))[::-1]
        ax.hlines(y, wide["lower"], wide["upper"], color=BLUE, lw=1.2)
        ax.hlines(y, narrow["lower"], narrow["upper"], color=BLUE, lw=3.6)
        ax.plot(wide["mean"], y, "o", ms=5, mfc="white", mec=BLUE)
        ax.set_yticks(y, wide.rows)
        ax.set_ylim(-0.7, len(wide) - 0.3)
        ax.set_xlabel(f"mean, {mass / 2:.0%} and {mass:.0%} intervals ({wide.level})")
        if left_out:
            ax.set_title(left_out, fontsize="small")
        return ax

    def posterior(self, names: Sequence[str] | None = None, *, mass: float = 0.9, axes: Any = None) -> Any:
        """The marginal density of every element, with its mean and its interval.

        Densities of q and of linear response follow from quantiles; those of draws are histograms. Of more than 24 elements,
        small nodes are drawn whole and larger ones in part; a line below says what is left out.

        Parameters
        ----------
        names : which nodes; by default all but categories
        mass : float
            Probability that is shaded.
        axes : array of matplotlib axes, optional
        """
        (table, left_out), best = self._fitting(names, mass, PANELS), self._best()
        rows = list(table.rows)
        if not rows:
            raise ValueError("there is nothing to draw: only categories are hidden")
        if axes is None:
            across = min(4, max(1, len(rows)))
            down = -(-len(rows) // across)
            axes = _pyplot().subplots(
                down, across, figsize=(2.8 * across, 2.1 * down), layout="constrained", squeeze=False
            )[1]
        panels = np.asarray(axes, dtype=object).ravel()
        if len(panels) < len(rows):
            raise ValueError(f"axes: {len(panels)} are not enough for {len(rows)} densities")
        # The table is made node by node in the order of its rows.
        parts = self._parts(names, PANELS)[1]
        for place, (ax, row, (x, density, stepped)) in enumerate(
            zip(panels, rows, _densities(best, parts), strict=False)
        ):
            low, high = table["lower"][place], table["upper"][place]
            ax.plot(x, density, color=BLUE, lw=1.4, drawstyle="steps-mid" if stepped else "default")
            ax.fill_between(
                x, density, where=(x >= low) & (x <= high), color=PALE, lw=0, step="mid" if stepped else None
            )
            ax.axvline(table["mean"][place], color=DARK, lw=0.8, ls=":")
            ax.set_title(row, fontsize="medium")
            ax.set_yticks([])
            ax.set_ylim(bottom=0)
        for ax in panels[len(rows) :]:
            ax.set_axis_off()
        if left_out:
            panels[0].figure.supxlabel(left_out, fontsize="small")
        return axes

    def ppc(self, name: str | None = None, *, n: int = 50, seed: int = 0, ax: Any = None) -> Any:
        """A posterior predictive check: the histogram of the data within those of ``n`` data sets that the fit would make.

        Parameters
        ----------
        name : an observed node; by default the only one, or the last
        n : int
            How many data sets are simulated.
        seed : int
        ax : matplotlib axes, optional
        """
        observed, simulated = self._replicated(name, n, seed)
        ax = _one(ax)
        whole = np.all(observed == np.round(observed)) and np.ptp(observed) < 200
        if whole:
            edges = np.arange(min(observed.min(), simulated.min()), max(observed.max(), simulated.max()) + 2) - 0.5
        else:
            edges = np.histogram_bin_edges(observed, bins=min(60, max(10, int(2 * np.sqrt(observed.size)))))
            step = edges[1] - edges[0]
            low, high = np.quantile(simulated, [0.001, 0.999])
            left, right = max(0, int(np.ceil((edges[0] - low) / step))), max(0, int(np.ceil((high - edges[-1]) / step)))
            edges = edges[0] + step * np.arange(-left, len(edges) + right)
        middle = 0.5 * (edges[1:] + edges[:-1])
        counts = np.array([np.histogram(one, edges)[0] for one in simulated]) / observed.size
        low, high = np.quantile(counts, [0.05, 0.95], axis=0)
        ax.fill_between(middle, low, high, step="mid", color=PALE, lw=0, label=f"90% of {n} simulated data sets")
        ax.step(middle, counts.mean(0), where="mid", color=BLUE, lw=1.4, ls="--", label="their mean")
        ax.step(middle, np.histogram(observed, edges)[0] / observed.size, where="mid", color="k", lw=1.6, label="data")
        ax.set_xlabel(self._observed_name(name))
        ax.set_ylabel("share")
        ax.legend(fontsize="small", frameon=False)
        return ax

    # -- what is drawn --

    def _factors(self) -> Any:
        return (
            self._subject if hasattr(self._subject, "problem") else getattr(self._subject, "posterior_", self._subject)
        )

    def _parts(self, names: Sequence[str] | None, most: int) -> tuple[dict[str, int], dict[str, int]]:
        """How many elements each node has, and how many are drawn, ``most`` in all: of small nodes all, of others the first."""
        nodes, factors = self._nodes(names), self._factors()
        sizes = {name: int(np.size(factors[name].mean())) for name in nodes}
        parts = dict.fromkeys(nodes, 0)
        for name in sorted(nodes, key=sizes.__getitem__):
            parts[name] = min(sizes[name], most - sum(parts.values()))
        return sizes, parts

    def _fitting(self, names: Sequence[str] | None, mass: float, most: int) -> tuple[Any, str]:
        """The part of the summary that fits into a picture, and in words what does not."""
        sizes, parts = self._parts(names, most)
        table = self._subject.summary([name for name, n in parts.items() if n], mass=mass)
        places: list[int] = []
        begin = 0
        for name, n in parts.items():  # the table is made node by node
            places += range(begin, begin + n)
            begin += sizes[name] if n else 0
        words = ", ".join(f"{sizes[name] - n:,} of {name}" for name, n in parts.items() if n < sizes[name])
        columns = {key: column[places] for key, column in table.columns.items()}
        shown = replace(table, rows=tuple(table.rows[place] for place in places), columns=columns)
        return shown, f"not drawn: {words} (names= chooses)" if words else ""

    def _best(self) -> Any:
        """Whatever has the factors that the summary shows: draws, linear response or q."""
        drawn, response = (getattr(self._subject, key, None) for key in ("_drawn", "_response"))
        return drawn or response or self._factors()

    def _nodes(self, names: Sequence[str] | None) -> list[str]:
        factors = self._factors()
        return [name for name in factors if not factors[name].family.is_discrete] if names is None else list(names)

    def _observed_name(self, name: str | None) -> str:
        nodes: Mapping[str, Any] = (
            {} if (problem := getattr(self._subject, "problem", None)) is None else problem.plan.nodes
        )
        seen = [key for key, node in nodes.items() if node.is_observed]
        if not seen:
            raise TypeError("a predictive check simulates the data of a network: declare the model as one")
        if name is not None and name not in seen:
            raise KeyError(f"{name!r} is not an observed node; these are {', '.join(seen)}")
        return seen[-1] if name is None else name

    def _replicated(self, name: str | None, n: int, seed: int) -> tuple[Floats, Floats]:
        """The data that are there, and as many in each of ``n`` simulated sets."""
        from natgrad.network.language.missing import seen_values

        key = self._observed_name(name)
        simulated = np.asarray(self._subject.simulate(seed, size=n)[key], np.float64)
        node = self._subject.problem.plan.nodes[key]
        values = np.asarray(node.value, np.float64)
        there = np.ones(values.shape, bool)
        if node.mask is not None or node.entries is not None:
            there = seen_values(node)[0]
        return values[there], simulated.reshape(n, -1)[:, there.ravel()]


def bound_curve(trace: Any, against: str) -> Line:
    """Select the curve of a run that pictures and pages draw: the exact bound, or its estimates if it was never evaluated."""
    exact = np.asarray(trace["elbo"], np.float64)
    measured = bool(np.isfinite(exact).any())
    bound = exact if measured else np.asarray(trace["elbo_estimate"], np.float64)
    steps = np.arange(1, len(bound) + 1) if against == "step" else trace[against]
    return Line(np.asarray(steps, np.float64), bound, EXACT if measured else "estimate of the bound")


def _densities(fit: Any, parts: Mapping[str, int]) -> Any:
    """Of the first elements of each node: points, densities there, and whether they are bars."""
    for name, n in parts.items():
        if not n:
            continue
        factor = fit[name]
        if (values := getattr(factor, "values", None)) is not None:
            flat = np.asarray(values, np.float64).reshape(values.shape[0] * values.shape[1], -1)
            for column in flat.T[:n]:
                density, edges = np.histogram(column, bins="auto", density=True)
                yield 0.5 * (edges[1:] + edges[:-1]), density, True
            continue
        # An interval of mass |1 − 2p| ends at the quantiles of p and 1 − p.
        ends = [factor.interval(abs(1 - 2 * p))[0 if p < 0.5 else 1] for p in GRID]
        quantiles = np.asarray(ends, np.float64).reshape(len(GRID), -1)
        for column in quantiles.T[:n]:
            gaps = np.maximum(np.diff(column), np.finfo(float).tiny)
            yield 0.5 * (column[1:] + column[:-1]), np.diff(GRID) / gaps, False


def _pyplot() -> Any:
    import matplotlib.pyplot as pyplot

    return pyplot


def _one(ax: Any, size: tuple[float, float] = (6.4, 3.8)) -> Any:
    return _pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax
