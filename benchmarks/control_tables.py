"""Records of runs in, numbers and Markdown tables out."""

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from control_runs import CACHE, Record

import natgrad as ng

HERE = Path(__file__).resolve().parent
DEFINITIONS = (
    "One message is one pair of a rating and a scalar variable that reads it; a full sweep has 2·K·|R|. *Within 1 %* means "
    "bound ≥ best − 0.01·|best|, and the messages given are those after which the bound, evaluated about every tenth of a "
    "sweep, is within for good. Evaluations of the bound are not counted; exact sweeps that a method makes for its checks are."
)


# -- numbers --


def best_of(records: Sequence[Record]) -> float:
    """The highest bound that any run saw; of finite ones only."""
    return max(value for record in records for value in [*record["elbo"], record["end"] or -np.inf])


def gap(record: Record, best: float) -> float:
    """How far below the best bound a run ended, in % of it."""
    return np.inf if record["end"] is None else 100 * (best - record["end"]) / abs(best)


def to_within(record: Record, best: float, percent: float, column: str = "sweeps") -> float:
    """Sweeps (or seconds) after which the bound stays within so many percent of the best; infinite if it never does."""
    outside = np.flatnonzero(np.array(record["elbo"]) < best - percent / 100 * abs(best))
    first = outside[-1] + 1 if len(outside) else 0
    return record[column][first] if first < len(record[column]) and not record["diverged"] else np.inf


def is_finite(record: Record) -> bool:
    return not record["diverged"] and record["end"] is not None and record.get("finite_means", True)


# -- words --


def spread(values: Sequence[float], most: float = np.inf, digits: int = 3) -> str:
    """The median, and from where to where; infinite values were never reached."""
    shown = [number(value, most, digits) for value in (np.median(values), min(values), max(values))]
    return shown[0] if shown[1] == shown[2] else f"{shown[0]} ({shown[1]}–{shown[2]})"


def number(value: float, most: float = np.inf, digits: int = 3) -> str:
    if np.isfinite(value):
        return f"{value:.{digits}g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"> {most:g}" if np.isfinite(most) else "never"


def yes(values: Sequence[bool]) -> str:
    return "yes" if all(values) else f"{sum(values)} of {len(values)}" if any(values) else "no"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return lines + [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows] + [""]


# -- files --


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("jax", "numba", "numpy")}
    return {"natgrad": ng.__version__, **found, "python": platform.python_version()}


def write(part: str, title: str, body: Sequence[str], rows: Any, records: Sequence[Record], quick: bool) -> None:
    """The table for people and the numbers behind it; a quick look is kept apart."""
    folder = CACHE / "quick" if quick else HERE / "results"
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted({record["source"] for record in records})
    command = f"python benchmarks/control.py --part {part}{' --quick' if quick else ''}"
    made = ", ".join(f"{name} {number}" for name, number in versions().items())
    mixed = f" Runs of {len(sources)} states of the code: {', '.join(sources)}." if len(sources) > 1 else ""
    end = [f"{made}; {os.cpu_count()} cores, {platform.machine()}. Command: `{command}`.{mixed}", ""]
    small = ["A quick look: all data are made small, whatever their titles say.", ""] if quick else []
    text = "\n".join([f"# {title}", "", *small, *body, *end])
    (folder / f"control-{part}.md").write_text(text)
    data = {"part": part, "versions": versions(), "cores": os.cpu_count(), "sources": sources, "rows": rows}
    (folder / f"control-{part}.json").write_text(json.dumps(data, indent=1, default=float) + "\n")
    print(text)
