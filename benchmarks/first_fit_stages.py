"""Where the milliseconds of a first fit go: each stage of ten small models in a fresh process, and again in the same process.

    python benchmarks/first_fit_stages.py

The models are those around the median of ``first_fit.py``. Functions of natgrad are wrapped with a clock of processor seconds;
what one stage calls of another counts there. Eleven processes of each, of which the quickest counts. "Cold" is the first fit of
its process, "warm" the quickest of twenty more: what is between the two is code and memory that are touched for the first time,
and nothing that is imported or compiled.

Results: ``benchmarks/results/first-fit-stages.json`` and ``benchmarks/results/first-fit-stages.md``.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NAMES = (
    "coin",
    "normal",
    "covariance",
    "regression",
    "ard",
    "hierarchical",
    "anova",
    "sprinkler",
    "switching",
    "bayes",
)
STAGES = ("declare", "plan", "estimate", "start", "first sweep", "other sweeps", "the rest")
REPEATS, AGAIN = 11, 20


class Clock:
    """Processor seconds by stage; a stage that another one enters takes over."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.stack, self.since, self.steps = ["the rest"], time.process_time(), 0

    def switch(self) -> None:
        now = time.process_time()
        self.seconds[self.stack[-1]] += now - self.since
        self.since = now

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        whole: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            self.switch()
            self.steps += stage == "first sweep"
            self.stack.append("other sweeps" if stage == "first sweep" and self.steps > 1 else stage)
            try:
                return whole(*args, **options)
            finally:
                self.switch()
                self.stack.pop()

        setattr(owner, name, timed)


def one(name: str) -> dict[str, dict[str, float]]:
    """Seconds by stage of the first fit of this process, and of the quickest of some more."""
    import warnings

    warnings.simplefilter("ignore")
    from first_fit_data import data_of
    from first_fit_models import MODELS

    import natgrad as ng
    from natgrad.inference.engine import _Loop
    from natgrad.network import network
    from natgrad.network.language.nodes import Node

    data, _ = data_of(name), ng.Network
    clock = Clock()
    clock.wrap(Node, "__init__", "declare")
    clock.wrap(network, "make_plan", "plan")
    clock.wrap(network, "choose_backend", "estimate")
    clock.wrap(network, "find_start", "start")
    clock.wrap(_Loop, "step", "first sweep")
    found = []
    for _ in range(1 + AGAIN):
        clock.seconds, clock.steps, clock.since = dict.fromkeys(STAGES, 0.0), 0, time.process_time()
        _ = MODELS[name](data).elbo
        clock.switch()
        found.append(clock.seconds)
    return {"cold": found[0], "warm": min(found[1:], key=lambda seconds: sum(seconds.values()))}


def measured(name: str) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, str(HERE / "first_fit_stages.py"), name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        "model": name,
        **{kind: min((r[kind] for r in runs), key=lambda s: sum(s.values())) for kind in ("cold", "warm")},
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"| model, ms | cold | warm | {' | '.join(STAGES)} |", "|---|" + "---:|" * (2 + len(STAGES))]
    for row in rows:
        totals = [f"{1e3 * sum(row[kind].values()):.2f}" for kind in ("cold", "warm")]
        stages = [f"{1e3 * row['cold'][stage]:.2f}" for stage in STAGES]
        lines.append(f"| {' | '.join([row['model'], *totals, *stages])} |")
    share = {s: sum(r["cold"][s] / sum(r["cold"].values()) for r in rows) / len(rows) for s in STAGES}
    ratio = sum(sum(r["cold"].values()) / sum(r["warm"].values()) for r in rows) / len(rows)
    words = ", ".join(f"{stage} {100 * share[stage]:.0f} %" for stage in STAGES)
    lines += [
        "",
        f"Stages are those of the cold fit; of the mean model: {words}. A cold fit takes {ratio:.1f} times a warm one.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1])))
        return
    rows = [measured(name) for name in NAMES]
    print(table(rows))
    RESULTS.joinpath("first-fit-stages.json").write_text(json.dumps(rows, indent=1) + "\n")
    RESULTS.joinpath("first-fit-stages.md").write_text(table(rows))


if __name__ == "__main__":
    main()
