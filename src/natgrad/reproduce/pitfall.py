"""Fit one network with the textbook step and with the default one, and draw who converges: the pitfall in miniature.

The network is that of Paquet (2014), section 3: r ~ N(uᵀv, 1), fully factorised, ratings not centred. `show_demo` prints what
happened and returns 0 only if what the text claims was seen: the textbook recipe diverges with one child a step, under both
options, and every run with the default step ends finite and above where it began.

In the picture the horizontal axis counts messages read, in units of one full sweep; the vertical axis is the distance to a
reference bound in nats, growing downwards; both are logarithmic. All runs begin at the left edge, at the bound of their common
start, and one that the guard stopped has a cross at the lower edge.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import natgrad as ng
from natgrad.data.datasets.generated import paper_ratings
from natgrad.data.ratings import Ratings
from natgrad.inference.methods import Method
from natgrad.network.results.fit import Fit
from natgrad.network.start.initial import make_start
from natgrad.reproduce.paquet_runs import declare

__all__ = [
    "Curve", "Run", "curves", "plan_runs", "plot_pitfall", "run_all", "show_demo", "start_bound",
    "verdict",
]  # fmt: skip

TEXTBOOK = ng.inference.RobbinsMonro(delay=0, forgetting=0.6)
# Every sampled run reads this many sweeps' worth of messages; full VB takes its own number of sweeps.
BUDGET, VB_SWEEPS = 10, 50
SEED = 3
# Users, items and ratings of the demo.
SIZES = 300, 200, 10_000
# Closer than this many nats to the reference is drawn at the upper edge; further away than the other is out of the frame.
NEAREST, FURTHEST = 100.0, 1e9


class Run(NamedTuple):
    """One way to fit the same network. ``step`` None is the default."""

    name: str
    method: Method
    step: ng.inference.RobbinsMonro | None
    steps: int

    @property
    def option(self) -> str:
        """When the variables move; full VB needs no such choice here."""
        return "" if isinstance(self.method, ng.VB) else str(getattr(self.method, "option", ""))

    @property
    def size(self) -> str:
        """What one step reads: children of each variable, or a batch."""
        if isinstance(self.method, ng.Children):
            return f"{self.method.C}"
        return f"{self.method.size} in all" if isinstance(self.method, ng.inference.GlobalBatch) else "all"


def plan_runs(data: Ratings, budget: float = BUDGET, sweeps: int = VB_SWEEPS) -> list[Run]:
    """Full VB, the textbook recipe and the default step: the same methods with one and the other."""
    n_ratings = len(data.values)
    per_step = (data.n_users + data.n_items) / (2 * n_ratings)  # sweeps that one child of each variable amounts to
    batch = max(1, n_ratings // 50)
    runs = [Run("full VB", ng.VB(), None, sweeps)]
    for step, name in ((TEXTBOOK, "textbook"), (None, "default")):
        for C in (1, 8):
            steps = max(1, round(budget / (C * per_step)))
            runs += [Run(name, ng.Children(C, "a"), step, steps), Run(name, ng.Children(C, "b"), step, steps)]
        steps = max(1, round(budget * n_ratings / batch))
        runs += [
            Run(name, ng.inference.GlobalBatch(batch, "a"), step, steps),
            Run(name, ng.inference.GlobalBatch(batch, "b"), step, steps),
        ]
    return runs


def run_all(network: ng.Network, runs: Sequence[Run], seed: int = SEED) -> list[Fit]:
    """Fit the network in every way, all from the same start: a draw from the prior."""
    common: dict[str, Any] = {"tol": 0, "init": "random", "seed": seed, "order": ("u", "v"), "verbose": False}
    return [network.fit(run.method, step=run.step, max_steps=run.steps, **common) for run in runs]


def start_bound(network: ng.Network, seed: int = SEED) -> float:
    """The bound where all runs begin; a trace has its first entry after the first step."""
    return network.problem.bound(make_start(network.problem, "random", seed))


def verdict(runs: Sequence[Run], fits: Sequence[Fit]) -> list[str]:
    """What was claimed and not seen; nothing, if all went as the text says."""
    wrong = []
    for run, fit in zip(runs, fits, strict=True):
        what = f"{run.name}, {run.size}, option {run.option or '-'}"
        textbook = run.name == "textbook"
        if textbook and isinstance(run.method, ng.Children) and run.method.C == 1 and not fit.stop.diverged:
            wrong.append(f"{what}: expected to diverge, but {fit.stop}")
        if not textbook and not _improved(fit):
            wrong.append(f"{what}: expected to end finite and above its start, but {fit.stop}")
    return wrong


def show_demo(plot: Path, page: Path) -> int:
    """Run the pitfall, then a ready model of the same ratings with its page; return 0 if every claim was seen."""
    begin, console = time.perf_counter(), Console(highlight=False)
    data = paper_ratings(*SIZES)
    wrong = _show_pitfall(console, data, plot)
    console.rule("2. A ready model", align="left")
    model = ng.MatrixFactorization(5, verbose=False).fit(data)
    console.print(f"{model.stop_}\nIts page, to open in a browser: [b]{model.report(page)}[/b]", soft_wrap=True)
    for line in wrong:
        console.print(f"[red]not as claimed:[/red] {escape(line)}", soft_wrap=True)
    console.print(f"\n{'Something was not as claimed' if wrong else 'Done'}, {time.perf_counter() - begin:.0f} s.")
    return 1 if wrong else 0


def _show_pitfall(console: Console, data: Ratings, path: Path) -> list[str]:
    runs = plan_runs(data)
    console.rule("1. The pitfall", align="left")
    console.print(
        f"{data.n_users} users, {data.n_items} items, {len(data.values):,} ratings: r ~ N(u·v, 1), five factors, each\n"
        "number u and v with a posterior of its own. A variable that reads C of its N\n"
        "ratings counts each N/C times. The textbook step t^-0.6 begins at ρ = 1, the\n"
        "default step near C/N, for each variable its own.\n"
    )
    network = declare(data)
    with console.status("fitting the same network in several ways"):
        fits = run_all(network, runs)
    console.print(_table(runs, fits))
    lost = next((fit for fit in fits if fit.stop.diverged), None)
    if lost is not None:
        console.print(f"\nThe first of these ended with: [i]{escape(str(lost.stop))}[/i]")
    lines, best = curves(runs, fits)
    picture = plot_pitfall(lines, start=start_bound(network), reference=best, path=path)
    console.print(f"\nThe bounds against messages read: [b]{picture}[/b]\n", soft_wrap=True)
    return verdict(runs, fits)


def _table(runs: Sequence[Run], fits: Sequence[Fit]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in ("method", "option", "C", "step"):
        table.add_column(name)
    table.add_column("what happened")
    for name in ("bound", "sweeps"):
        table.add_column(name, justify="right")
    sweep = fits[0].trace["messages_read"][0]
    for run, fit in zip(runs, fits, strict=True):
        lost = fit.stop.diverged
        read = fit.trace["messages_read"][-1] / sweep if len(fit.trace) else 0.0
        table.add_row(
            type(run.method).__name__,
            run.option,
            run.size,
            "ρ = 1" if run.size == "all" else "t^-0.6" if run.step else "default",
            f"diverged, step {len(fit.trace) + 1}" if lost else f"{len(fit.trace)} steps",
            f"{fit.elbo:.1e}" if fit.elbo < -1e7 else f"{fit.elbo:,.0f}",
            f"{read:.2f}",
            style="red" if lost else None,
        )
    return table


def _improved(fit: Fit) -> bool:
    bounds = fit.trace["elbo"]
    return bool(not fit.stop.diverged and np.isfinite(bounds).all() and bounds[-1] > bounds[0])


# -- the picture --


class Curve(NamedTuple):
    """The bound of one run against the messages it read."""

    label: str
    panels: tuple[str, ...]
    sweeps: npt.NDArray[np.float64]
    bound: npt.NDArray[np.float64]
    diverged: bool
    colour: str
    dashed: bool = False


def curves(runs: Sequence[Run], fits: Sequence[Fit]) -> tuple[list[Curve], float]:
    """The traces as lines to draw, messages counted in full sweeps, and the best bound among them."""
    sweep = float(fits[0].trace["messages_read"][0])
    colours = {"all": "black", "1": "tab:red", "8": "tab:blue"}
    lines = []
    for run, fit in zip(runs, fits, strict=True):
        sample = f", C = {run.size}" if isinstance(run.method, ng.Children) else ""
        sample = f", batch of {run.method.size}" if isinstance(run.method, ng.inference.GlobalBatch) else sample
        lines.append(
            Curve(
                run.name + sample,
                (run.option,) if run.option else ("a", "b"),
                fit.trace["messages_read"] / sweep,
                fit.trace["elbo"],
                fit.stop.diverged,
                colours.get(run.size, "tab:green"),
                dashed=run.name == "textbook",
            )
        )
    return lines, max(float(np.max(line.bound)) for line in lines if not line.diverged)


def plot_pitfall(curves: Sequence[Curve], *, start: float, reference: float, path: str | Path) -> Path:
    """Draw the curves in one panel for each option and save the picture.

    Parameters
    ----------
    curves : sequence of Curve
    start : float
        The bound before the first step.
    reference : float
        The bound from which distances are measured: the best one known.
    path : str or Path
        Where the picture goes; the suffix chooses the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = {"a": "option (a): each variable moves at once", "b": "option (b): all variables move together"}
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(titles), sharex=True, sharey=True)
    edge = 0.5 * min(float(curve.sweeps[0]) for curve in curves if len(curve.sweeps))
    for panel, axis in zip(titles, axes, strict=True):
        for curve in curves:
            if panel in curve.panels:
                _draw(axis, curve, start, reference, edge)
        axis.set(xscale="log", yscale="log", ylim=(FURTHEST, NEAREST), xlabel="messages read, in full sweeps")
        axis.set_xlim(left=edge)
        axis.set_title(titles[panel], fontsize=10)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("nats below the best bound")
    axes[0].plot([], [], "x", color="grey", markersize=7, markeredgewidth=2, label="stopped by the guard")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    target = Path(path)
    figure.savefig(target, dpi=110)
    return target


def _draw(axis: Any, curve: Curve, start: float, reference: float, edge: float) -> None:
    bound, sweeps = np.append(start, curve.bound), np.append(edge, curve.sweeps)
    gap = np.maximum(reference - bound, NEAREST)
    if curve.diverged:
        # The step that was refused is not in the trace; it would have read as much as the first one.
        end = sweeps[-1] + (curve.sweeps[0] if len(curve.sweeps) else edge)
        axis.plot(end, FURTHEST, "x", color=curve.colour, markersize=7, markeredgewidth=2, clip_on=False, zorder=5)
        sweeps, gap = np.append(sweeps, end), np.append(gap, max(float(gap[-1]), FURTHEST))
    style = "--" if curve.dashed else "-"
    axis.plot(sweeps, gap, style, color=curve.colour, linewidth=1.4, label=curve.label)
