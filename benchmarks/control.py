"""How natgrad converges without tuning: against plain full VB, and against the best Robbins–Monro schedule of a grid.

    python benchmarks/control.py --part table --jobs 2     # any of the parts below, or all
    python benchmarks/control.py --part all --quick        # small data, to try it

table     every sampled method with `Auto` on three sets of ratings: diverged?, messages to 1 % of the converged bound
grid      Robbins–Monro: 25 pairs (κ, ρ₁) for C = 1 and 20, the best one on five seeds
figure    the paper's Figure 2 with the default over it, docs/figures/control.png

A finished run is a file in ``.bench/control``, so that an interrupted part goes on where it was; delete that folder to
measure again. Tables and numbers: ``benchmarks/results/control-*.md`` and ``.json``.
"""

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
from control_data import ROOT, TITLES, is_there
from control_runs import Record, Run, execute
from control_tables import (
    DEFINITIONS,
    best_of,
    gap,
    is_finite,
    spread,
    table,
    to_within,
    write,
    yes,
)

SETS = ("paper", "jester", "stars")
SIZES, BATCHES = (1, 2, 5, 10, 20), (100, 500, 1000)
# Accesses in sweeps: what sampled methods get, and get instead while they are not within 1 %.
BUDGET, LONGER, MOST = 5.5, (12.0, 30.0), 30.0
DEFAULT_SWEEPS, VB_SWEEPS = 100.0, 300.0
KAPPAS, FIRSTS = (0.51, 0.6, 0.7, 0.8, 1.0), (1 / 2048, 1 / 512, 1 / 128, 1 / 32, 1 / 8)
# The grid is sieved: all pairs get the first budget, the best few of them the second.
SIEVE, GRID_SWEEPS, KEPT = 2.5, 15.0, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="small data; tables go to .bench/control/quick")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--seeds", type=int, default=5, help="most starts of a row; fewer take less time")
    options = parser.parse_args()
    for name in PARTS if options.part == "all" else [options.part]:
        PARTS[name](options)


def sets_there(names: tuple[str, ...] = SETS) -> list[str]:
    for name in names:
        if not is_there(name):
            print(f"{TITLES[name]}: the file is not there, left out (set NATGRAD_DATA)")
    return [name for name in names if is_there(name)]


def seeds_of(options: argparse.Namespace, count: int = 5) -> range:
    return range(min(2 if options.quick else options.seeds, count))


# -- what the best bound is --


def references(data: str, options: argparse.Namespace, n_factors: int = 5) -> tuple[list[Record], list[Record]]:
    """Long runs of the default and, for K = 5, of plain full VB from every start."""
    common = {"data": data, "n_factors": n_factors, "quick": options.quick, "tol": 1e-9}
    default = [Run(seed=s, sweeps=DEFAULT_SWEEPS if n_factors <= 5 else 40.0, **common) for s in seeds_of(options)]
    common |= {"method": "vb", "tol": 0.0}
    plain = [Run(seed=s, sweeps=VB_SWEEPS, **common) for s in seeds_of(options)] if n_factors == 5 else []
    records = execute([*default, *plain], options.jobs, f"{data}, long runs")
    return records[: len(default)], records[len(default) :]


# -- part: table --


def table_runs(data: str, options: argparse.Namespace, goal: float) -> dict[str, list[Run]]:
    """Every sampled method with `Auto`, by the name of its row."""
    base = Run(data, sweeps=BUDGET, longer=LONGER, quick=options.quick, goal=goal)
    rows = {}
    for method, sizes in (("children", SIZES), ("batch", BATCHES)):
        for size, option in product(sizes, "ab"):
            run = replace(base, method=method, size=size, option=option)
            rows[label(run)] = [replace(run, seed=s) for s in seeds_of(options)]
    for method, size, option in (("children", 1, "a"), ("children", 1, "b"), ("batch", 1000, "a")):
        run = replace(base, method=method, size=size, option=option, rotate=False)
        rows[label(run)] = [replace(run, seed=s) for s in seeds_of(options, 2)]
    return rows


def label(run: Run) -> str:
    if run.method in ("default", "vb"):
        return {"default": "default (no method)", "vb": "full VB, plain"}[run.method]
    kind = (
        f"Children({run.size}, {run.option})" if run.method == "children" else f"GlobalBatch({run.size}, {run.option})"
    )
    return kind if run.rotate else f"{kind}, rotate=False"


def part_table(options: argparse.Namespace) -> None:
    body, rows, everything = [DEFINITIONS, ""], [], []
    for data in sets_there():
        default, plain = references(data, options)
        best = best_of([*default, *plain])
        plan = table_runs(data, options, best - 0.01 * abs(best))
        flat = execute([run for runs in plan.values() for run in runs], options.jobs, f"{data}, table")
        found = {label(Run(data, "vb")): plain, label(Run(data)): default}
        for name, runs in plan.items():
            found[name], flat = flat[: len(runs)], flat[len(runs) :]
        records = [record for group in found.values() for record in group]
        best = best_of(records)
        base = np.median([to_within(record, best, 1) for record in plain])
        body += [f"## {TITLES[data]}", "", f"Converged bound: {best:,.0f}.", ""]
        lines = [table_row(name, group, best, base) for name, group in found.items()]
        body += table([name.replace("_", " ") for name in lines[0]], [list(line.values()) for line in lines])
        rows += [{"data": data, "best": best, **line} for line in lines]
        everything += records
    body += [
        "K = 5, seeds from 0 on. Converged bound: the best over all runs of the table, with the default for up to "
        f"{DEFAULT_SWEEPS:g} sweeps (tol 1e-9) and plain full VB for {VB_SWEEPS:g} from every start. Sampled methods, all "
        f"with `Auto()`, read {BUDGET:g} sweeps' worth, then {' or '.join(f'{n:g}' for n in LONGER)} as long as they are "
        "not within 1 %. *Final gap*: at the end of what was read, median and range. *Ratio*: full VB's median divided by "
        "the row's.",
        "",
    ]
    write("table", "Sampled methods without a step size", body, rows, everything, options.quick)


def table_row(name: str, group: list[Record], best: float, base: float) -> dict[str, str]:
    most = VB_SWEEPS if "VB" in name else MOST
    reached = [to_within(record, best, 1) for record in group]
    median = float(np.median(reached))
    ratio = f"{'> ' if np.isinf(base) else ''}{min(base, VB_SWEEPS) / median:.3g}" if np.isfinite(median) else "–"
    return {
        "method": name,
        "starts": str(len(group)),
        "diverged": yes([record["diverged"] for record in group]),
        "finite": yes([is_finite(record) for record in group]),
        "sweeps_to_1 %": spread(reached, most),
        "ratio": "1" if "VB" in name else ratio,
        "final_gap, %": spread([gap(record, best) for record in group], digits=2),
        "sweeps_read": spread([record["spent"] for record in group]),
    }


# -- part: grid --


def part_grid(options: argparse.Namespace) -> None:
    rows, everything = [], []
    pairs = list(product(KAPPAS, FIRSTS))[:: 6 if options.quick else 1]
    for data in sets_there():
        default, plain = references(data, options)
        best = best_of([*default, *plain])
        for size in (1, 20):
            base = Run(data, "children", size, every=0.2, quick=options.quick)
            sieved = [replace(base, kappa=k, first=f, sweeps=SIEVE) for k, f in pairs]
            records = execute(sieved, options.jobs, f"{data}, grid, C = {size}")
            lost = sum(record["diverged"] for record in records)
            kept = [sieved[i] for i in sorted(range(len(pairs)), key=lambda i: merit(records[i], best))[:KEPT]]
            kept = [replace(run, sweeps=GRID_SWEEPS) for run in kept]
            longer = execute(kept, options.jobs, f"{data}, grid, C = {size}, the best {KEPT}")
            winner = kept[min(range(len(kept)), key=lambda i: merit(longer[i], best))]
            starts = [replace(winner, seed=s) for s in seeds_of(options)]
            group = execute(starts, options.jobs, f"{data}, grid, the best pair")
            reached = [to_within(record, best, 1) for record in group]
            rows.append({
                "data": data, "C": size, "pairs": len(pairs), "diverged": lost,
                "best κ": winner.kappa, "best ρ₁": f"1/{1 / winner.first:g}", "starts": len(group),
                "sweeps to 1 %": spread(reached, GRID_SWEEPS),
                "gap at the end, %": spread([gap(record, best) for record in group]),
            })  # fmt: skip
            everything += [*records, *longer, *group]
    body = [DEFINITIONS, "", *table(list(rows[0]), [list(row.values()) for row in rows])]
    body += [f"- {name}: {TITLES[name]}." for name in sets_there()]
    body += [
        "",
        f"Children(C, a) with ρ_t = (t + τ)^(−κ), κ in {KAPPAS}, ρ₁ in {', '.join(f'1/{1 / f:g}' for f in FIRSTS)}; "
        f"K = 5. All pairs read {SIEVE:g} sweeps' worth from seed 0, the best {KEPT} then {GRID_SWEEPS:g}, and the best of "
        "these as much from the other seeds. *Diverged*: pairs that left in the first round. Best: fewest messages to 1 % of "
        "the converged bound (that of the long runs of the default and of full VB), else the highest bound.",
        "",
    ]
    write("grid", "The best Robbins–Monro schedule of a grid", body, rows, everything, options.quick)


def merit(record: Record, best: float) -> tuple[bool, float, float]:
    return record["diverged"], to_within(record, best, 1), gap(record, best)


# -- the figure --


def part_figure(options: argparse.Namespace) -> None:
    from control_figure import draw, textbook

    default, plain = references("paper", options)
    runs = textbook(options.quick)
    records = execute(runs, options.jobs, "figure")
    folder = ROOT / (".bench/control/quick" if options.quick else "docs/figures")
    folder.mkdir(parents=True, exist_ok=True)
    print(draw(runs, records, default[0], plain[0], folder / "control.png"))


PARTS = {
    "table": part_table,
    "grid": part_grid,
    "figure": part_figure,
}


if __name__ == "__main__":
    main()
