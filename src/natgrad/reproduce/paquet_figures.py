"""Runs of one algorithm in, its figure out: the bound against accesses, options in columns, magnifications in rows.

As in Paquet (2014), Figures 2 and 3: full VB in black, C by colour, accesses on a logarithmic axis. The upper row reaches
ten times as far below the best bound as the start; the middle row begins at the start; the lower row shows its last tenth.
Sampled runs begin at the left edge, at the bound of their common start, full VB after its first sweep. A run that the guard
stopped has a cross at the lower edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.reproduce.paquet import Finding
from natgrad.reproduce.paquet_runs import Outcome, Setting

__all__ = ["draw_figure"]

OPTIONS = {"a": "option (a): each variable moves at once", "b": "option (b): all variables move together"}
REACH = (10.0, 1.05, 0.1)


def draw_figure(
    findings: Mapping[Setting, Finding], algorithm: int, *, tuned: bool, title: str, notes: Sequence[str], path: Path
) -> Path:
    """Draw Figure 2 (Alg. 1) or Figure 3 (Alg. 2) and save it.

    Parameters
    ----------
    found : findings by setting, full VB included
    algorithm : 1 or 2
    tuned : bool
        Every run from the largest ρ₁ that converged, not from 1.
    title, notes
        What is written above and below the panels.
    path : Path
        Where the picture goes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    full = findings[Setting(0)].runs[0]
    lines = _lines(findings, algorithm, tuned)
    sizes = [setting.size for setting, _ in lines]
    colour = ScalarMappable(Normalize(min(sizes, default=0), max(sizes, default=1)), "turbo")
    best = max(float(run.bound.max()) for run in [full, *(run for _, run in lines)])
    gap = best - full.start
    figure = Figure(figsize=(9.6, 9.4), layout="constrained")
    FigureCanvasAgg(figure)
    edge = 0.5 * min(
        float(run.messages_read[1]) for run in [full, *(run for _, run in lines)] if len(run.messages_read) > 1
    )
    axes = figure.subplots(len(REACH), len(OPTIONS), sharex=True, sharey="row")
    for row, reach in zip(axes, REACH, strict=True):
        low = best - reach * gap
        for axis, option in zip(row, OPTIONS, strict=True):
            for setting, run in lines:
                if setting.option == option:
                    _draw(axis, run, colour.to_rgba(np.array(setting.size)), (edge, low))
            axis.plot(full.messages_read[1:], full.bound[1:], "-", color="black", linewidth=1.8)
            axis.set(xscale="log", xlim=(edge, None), ylim=(low, best + 0.04 * reach * gap))
            axis.yaxis.set_major_formatter(EngFormatter(sep=""))
            axis.grid(alpha=0.25, linewidth=0.5)
            axis.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("bound, in nats")
    for axis, words in zip(axes[0], OPTIONS.values(), strict=True):
        axis.set_title(words, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("accesses")
    name = "C" if algorithm == 1 else "C_global"
    figure.colorbar(
        colour, ax=axes, label=f"{name} (full VB in black)", ticks=sorted(set(sizes)), shrink=0.5, aspect=40
    )
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("\n".join(notes), fontsize=7, color="dimgrey", x=0.01, ha="left")
    figure.savefig(path, dpi=100)
    return path


def _lines(findings: Mapping[Setting, Finding], algorithm: int, tuned: bool) -> list[tuple[Setting, Outcome]]:
    chosen = [(s, f.tuned if tuned else f.runs[0]) for s, f in findings.items() if s.algorithm == algorithm]
    return [(setting, run) for setting, run in chosen if run is not None]


def _draw(axis: Any, run: Outcome, colour: Any, corner: tuple[float, float]) -> None:
    edge, low = corner
    accesses, bound = np.maximum(run.messages_read, edge), run.bound
    if run.diverged:
        # The step that was refused is not in the trace; it read about as much as the first one.
        end = accesses[-1] + (accesses[1] if len(accesses) > 1 else edge)
        axis.plot(end, low, "x", color=colour, markersize=5, markeredgewidth=1.3, clip_on=False, zorder=5)
        accesses, bound = np.append(accesses, end), np.append(bound, min(low, float(bound[-1])) * 10)
    axis.plot(accesses, bound, "-", color=colour, linewidth=1.0)
