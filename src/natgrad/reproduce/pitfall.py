"""Bounds of several runs in, one picture out: who converges, who leaves the frame, and after how many messages.

The horizontal axis counts messages read, in units of one full sweep; the vertical axis is the distance to a reference bound
in nats, growing downwards; both are logarithmic. All runs begin at the left edge, at the bound of their common start, and
one that the guard stopped has a cross at the lower edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Curve", "plot_pitfall"]

# Closer than this many nats to the reference is drawn at the upper edge; further away than the other is out of the frame.
NEAREST, FURTHEST = 100.0, 1e9


class Curve(NamedTuple):
    """The bound of one run against the messages it read."""

    label: str
    panels: tuple[str, ...]
    sweeps: npt.NDArray[np.float64]
    bound: npt.NDArray[np.float64]
    diverged: bool
    colour: str
    dashed: bool = False


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
