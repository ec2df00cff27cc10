"""Figure 2 of Paquet (2014) again, with the default over it: records of runs in, a picture out.

Left option (a), right option (b): Children(C) with the textbook steps ρ_t = t^−0.6 from ρ₁ = 1; the exact bound against
messages. What leaves the frame below has diverged.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from control_runs import Record, Run

SIZES = (1, 2, 5, 10, 20)
TITLES = {"a": "option (a): each variable moves at once", "b": "option (b): all variables move together"}


def textbook(quick: bool) -> list[Run]:
    """The textbook recipe for every C and option, then C = 1 with `Auto`."""
    base = Run("paper", "children", every=0.0, sweeps=20.0, quick=quick)
    steps = {"kappa": 0.6, "first": 1.0}
    runs = [Run(**{**vars(base), **steps, "size": C, "option": o}) for o, C in product("ab", SIZES)]
    return runs + [Run(**{**vars(base), "size": 1, "option": o, "every": 0.05}) for o in "ab"]


def draw(runs: list[Run], records: list[Record], default: Record, plain: Record, path: Path) -> str:
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = dict(zip(TITLES, figure.subplots(1, 2, sharex=True, sharey=True), strict=True))
    colours = dict(zip(SIZES, colormaps["plasma"](np.linspace(0.05, 0.85, len(SIZES))), strict=True))
    best = max(default["elbo"])
    # The frame ends where full VB is after two sweeps, or somewhat lower.
    low = best - 1.5 * (best - plain["elbo"][1])
    for run, record in zip(runs, records, strict=True):
        if run.first > 0:
            line(axes[run.option], record, low, color=colours[run.size], label=f"textbook, C = {run.size}")
        else:
            line(axes[run.option], record, low, color="tab:green", linestyle="--", label="C = 1 with ng.Auto()")
    for option, axis in axes.items():
        line(axis, plain, low, color="black", label="full VB")
        line(axis, default, low, color="tab:green", linewidth=2.4, label="natgrad's default")
        axis.set(xscale="log", ylim=(low, best + 0.06 * (best - low)), xlim=(5e-3, 300))
        axis.set_xlabel("messages, in full sweeps (2·K·|R|)")
        axis.set_title(TITLES[option], fontsize=10)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes["a"].set_ylabel("exact lower bound")
    axes["a"].plot([], [], "v", color="grey", markersize=6, label="diverged")
    handles, labels = axes["a"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    return f"{path}: {path.stat().st_size / 1000:.0f} kB"


def line(axis: Any, record: Record, low: float, **style: Any) -> None:
    """One curve; a triangle at the lower edge where a diverging one leaves for good."""
    sweeps, bound = np.array(record["sweeps"]), np.array(record["elbo"])
    axis.plot(sweeps, np.maximum(bound, low - 1e12), **{"linewidth": 1.3, **style})
    if record["diverged"]:
        inside = np.flatnonzero(bound >= low)
        where = sweeps[min(inside[-1] + 1, len(sweeps) - 1)] if len(inside) else (sweeps[0] if len(sweeps) else 5e-3)
        axis.plot(max(where, 5e-3), low, "v", color=style["color"], markersize=6, clip_on=False, zorder=5)
