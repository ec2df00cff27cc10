"""Foti, Xu, Laird and Fox (2014), repeated: lengths in; transition errors and held-out scores, a table and a figure out.

Every run of one task and seed starts at the same point, the best of several after some exact sweeps. What differs between runs is
then the length of the subchains and whether they have buffers, not which optimum was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

import natgrad as ng
from natgrad.data.datasets.generated import ChainTask, Emissions, Task, paper_chain
from natgrad.models.hmm import Subchains

__all__ = ["FULL", "QUICK", "ChainPlan", "ChainRun", "chain_table", "draw_chains", "run_chains"]

Watch = Callable[[int, int, str], None]
TASKS: tuple[Task, ...] = ("diagonal", "cycles")
EMISSIONS: tuple[Emissions, ...] = ("easy", "ambiguous")
NAMES = {"diagonal": "diagonally dominant", "cycles": "reversed cycles"}
HOW = {"none": "no buffer", "grow": "grown buffer", "batch": "batch VB"}
# Observations that a step reads, whatever the length of its subchains.
PER_STEP = 504


@dataclass(frozen=True)
class ChainPlan:
    """Sizes of the experiment."""

    n_times: int
    n_test: int
    lengths: tuple[int, ...]
    seeds: tuple[int, ...]
    passes: float


FULL = ChainPlan(10_000, 3_000, (2, 3, 6, 12, 24, 51), (0, 1, 2, 3, 4), 12.0)
QUICK = ChainPlan(3_000, 1_000, (2, 6, 24), (0,), 8.0)


class ChainRun(NamedTuple):
    """One fit: ‖A − Â‖_F after matching states, and log p of a held-out observation, also at the truth."""

    task: str
    emissions: str
    how: str
    length: int
    seed: int
    error: float
    held_out: float
    truth: float


def run_chains(plan: ChainPlan, jobs: int | None = None, watch: Watch | None = None) -> list[ChainRun]:
    """All fits of a plan."""
    cases = [(task, emissions, seed) for task in TASKS for emissions in EMISSIONS for seed in plan.seeds]
    runs: list[ChainRun] = []
    for done, (task, emissions, seed) in enumerate(cases):
        data = paper_chain(task, emissions, plan.n_times + plan.n_test, seed)
        truth = _true_score(data, plan.n_times)
        for how, length in [("batch", plan.n_times), *((h, n) for n in plan.lengths for h in ("none", "grow"))]:
            model = _model(how, length, plan, seed, jobs).fit(data.observations[: plan.n_times])
            held_out = model.score(data.observations[plan.n_times :]) / plan.n_test
            error = _error(model, data, plan.n_times)
            runs.append(ChainRun(task, emissions, how, length, seed, error, held_out, truth))
        if watch is not None:
            watch(done + 1, len(cases), f"{NAMES[task]}, {emissions}")
    return runs


def _model(how: str, length: int, plan: ChainPlan, seed: int, jobs: int | None) -> Any:
    usual: dict[str, Any] = {"seed": seed, "n_jobs": jobs, "n_init": 8, "verbose": False}
    if how == "batch":
        return ng.GaussianHMM(8, method=ng.VB(), **usual)
    size = max(1, PER_STEP // length)
    buffer: Literal["grow"] | None = "grow" if how == "grow" else None
    return ng.GaussianHMM(8, method=Subchains(size, length, buffer), max_passes=plan.passes, **usual)


def _error(model: Any, data: ChainTask, n_times: int) -> float:
    """States are matched by how often they are named together on the training data."""
    named = np.zeros((8, 8))
    shares = model.predict_proba(data.observations[:n_times])
    for k in range(8):
        named[k] = shares[data.states[:n_times] == k].sum(0)
    _, match = linear_sum_assignment(-named)
    return float(np.linalg.norm(data.transition - model.transmat_[np.ix_(match, match)]))


def _true_score(data: ChainTask, n_times: int) -> float:
    """Log p of a held-out observation at the true parameters, by the definition."""
    part = data.observations[n_times:]
    logs = -0.5 * ((part[:, None, :] - data.means[None]) ** 2).sum(2) - np.log(2.0 * np.pi)
    here: npt.NDArray[np.float64] = np.full(8, 1.0 / 8.0)
    total = 0.0
    for row in logs:
        top = row.max()
        here = here * np.exp(row - top)
        scale = float(here.sum())
        total += top + float(np.log(scale))
        here = (here / scale) @ data.transition
    return total / len(part)


def chain_table(runs: Sequence[ChainRun], plan: ChainPlan) -> str:
    """Means over seeds as Markdown."""
    lines = [
        f"T = {plan.n_times:,}, {len(plan.seeds)} seeds, {plan.passes:g} passes of subchains, {PER_STEP} observations a step.",
        "",
        "| task | emissions | L | ‖A − Â‖, no buffer | ‖A − Â‖, grown | held-out, no buffer | held-out, grown |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for emissions in EMISSIONS:
            case = [run for run in runs if run.task == task and run.emissions == emissions]
            truth = np.mean([run.truth for run in case])
            for length in plan.lengths:
                cells = [_mean(case, how, length, what) for what in ("error", "held_out") for how in ("none", "grow")]
                shown = f"{cells[0]:.3f} | {cells[1]:.3f} | {cells[2]:.4f} | {cells[3]:.4f}"
                lines.append(f"| {NAMES[task]} | {emissions} | {length} | {shown} |")
            error, score = (_mean(case, "batch", plan.n_times, what) for what in ("error", "held_out"))
            lines.append(
                f"| {NAMES[task]} | {emissions} | batch VB | {error:.3f} | | {score:.4f} | truth {truth:.4f} |"
            )
    return "\n".join(lines) + "\n"


def _mean(runs: Sequence[ChainRun], how: str, length: int, what: str) -> float:
    return float(np.mean([getattr(run, what) for run in runs if run.how == how and run.length == length]))


def _error_of(run: ChainRun) -> float:
    return run.error


def _behind_truth(run: ChainRun) -> float:
    return run.held_out - run.truth


def draw_chains(runs: Sequence[ChainRun], plan: ChainPlan, path: Path) -> Path:
    """Transition error (above) and held-out score less that of the truth (below) against L; bars span the seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 4, sharex=True)
    for column, (task, emissions) in enumerate((t, e) for t in TASKS for e in EMISSIONS):
        case = [run for run in runs if run.task == task and run.emissions == emissions]
        axes[0, column].set_title(f"{NAMES[task]}, {emissions}", fontsize=9)
        for row, value in enumerate((_error_of, _behind_truth)):
            axis = axes[row, column]
            for how, colour in (("none", "tab:red"), ("grow", "tab:blue")):
                values = [[value(run) for run in case if run.how == how and run.length == n] for n in plan.lengths]
                middle = np.array([np.mean(v) for v in values])
                # Lists: matplotlib 3.9 takes an array of one for a number.
                reach = [(middle - [min(v) for v in values]).tolist(), ([max(v) for v in values] - middle).tolist()]
                axis.errorbar(plan.lengths, middle, yerr=reach, marker="o", color=colour, label=HOW[how], capsize=2)
            axis.axhline(np.mean([value(run) for run in case if run.how == "batch"]), color="k", label=HOW["batch"])
            axis.set_xscale("log")
            axis.set_xticks(plan.lengths, labels=[str(n) for n in plan.lengths])
            axis.minorticks_off()
    axes[0, 0].set_ylabel("‖A − Â‖")
    axes[1, 0].set_ylabel("held-out − truth, nats")
    for axis in axes[1]:
        axis.set_xlabel("subchain length L")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    return path
