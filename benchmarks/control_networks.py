"""A mixture, a topic model and an HMM: the default, plain full VB and the best of a grid of SVI at equal messages."""

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
from control_data import TITLES
from control_runs import Record, Run, execute
from control_tables import best_of, bound_after, number, table, to_within, write

KAPPAS, FIRSTS, LOCAL_STEPS = (0.51, 0.7, 0.9), (1.0, 0.5, 0.1, 0.02), (1, 100)
MILESTONES = (1, 2, 5, 10, 20)
# Sweeps' worth of messages for every pair of the grid, and then for the best one; a step of SVI on the topics updates all words.
SIEVE, FINAL = {"topics": 2.0}, {"topics": 6.0}
WORDS = """Columns 1 to 20: the bound after so many sweeps' worth of messages, relative to full VB's at the same point, in %; “?”
where no exact bound is known yet. *To 1 %*: sweeps after which the bound is within 1 % of the best of the three from this
start, for good. *Never worse*: at no sweep below full VB; the worst case in brackets. *To SVI's end*:
messages to the bound where the best SVI with Robbins–Monro steps ended, divided by SVI's own; more than one is later."""
NOTES = """All start at init="random", the same for a seed. A message is a pair of a hidden variable and a child of
it; a full sweep reads all of them, and every local iteration of SVI reads the batch again. Full VB and the default read 40
sweeps' worth (topics: 20), SVI 20 (topics: 6). SVI: the best of a grid of κ in 0.51, 0.7, 0.9, ρ₁ in 1, 0.5, 0.1, 0.02 and at
most 1 or 100 local iterations (topics: 1), chosen on seed 0 by the bound after 10 sweeps' worth (topics: 2); batches of a
fiftieth of the groups."""


def compare_networks(options: argparse.Namespace, names: list[str], seeds: range) -> None:
    rows, everything, lost = [], [], []
    for data in names:
        base = Run(data, quick=options.quick, sweeps=20.0 if data == "topics" else 40.0)
        plain, default = (
            execute([replace(base, method=m, seed=s) for s in seeds], options.jobs, f"{data}, {m}")
            for m in ("vb", "default")
        )
        svi = replace(base, method="svi", sweeps=SIEVE.get(data, 10.0), every=0.2)
        local = LOCAL_STEPS[:1] if data == "topics" else LOCAL_STEPS
        grid = [replace(svi, size=n, kappa=k, first=f) for n, k, f in product(local, KAPPAS, FIRSTS)]
        grid = grid[:: 5 if options.quick else 1]
        tried = execute(grid, options.jobs, f"{data}, grid")
        winner = grid[min(range(len(grid)), key=lambda i: (tried[i]["diverged"], -(tried[i]["end"] or -np.inf)))]
        monro = execute(
            [replace(winner, seed=s, sweeps=FINAL.get(data, 20.0)) for s in seeds],
            options.jobs,
            f"{data}, the best pair",
        )
        lost.append(f"{data}: {sum(record['diverged'] for record in tried)} of {len(grid)}")
        for seed, (a, b, c) in enumerate(zip(plain, default, monro, strict=True)):
            best = best_of([a, b, c])
            name = f"SVI, κ = {winner.kappa:g}, ρ₁ = {winner.first:g}, {winner.size} local"
            for how, record in (("full VB", a), ("default", b), (name, c)):
                rows.append(network_row(data, seed, how, record, a, best) | {"to SVI's end": against(c, record)})
        everything += [*plain, *default, *tried, *monro]
    body = [WORDS, "", *table(list(rows[0]), [list(row.values()) for row in rows])]
    body += [*(f"- {name}: {TITLES[name]}." for name in names), "", NOTES, f"Diverged: {'; '.join(lost)}.", ""]
    write("networks", "Mixture, topics, HMM: default against full VB", body, rows, everything, options.quick)


def network_row(data: str, seed: int, how: str, record: Record, plain: Record, best: float) -> dict[str, object]:
    after = {m: bound_after(record, m) for m in MILESTONES}
    base = {m: bound_after(plain, m) for m in MILESTONES}
    row = {"network": data, "seed": seed, "method": how}
    # Relative to full VB at the same messages, in %: above zero is better.
    row |= {f"{m}": _signed(100 * (after[m] - base[m]) / abs(base[m])) for m in MILESTONES}
    row |= {"to 1 %": number(to_within(record, best, 1)), "to 0.1 %": number(to_within(record, best, 0.1))}
    common = [s for s in plain["sweeps"] if s <= record["spent"] * (1 + 1e-9)]
    worst = min((_relative(bound_after(record, s), bound_after(plain, s)) for s in common), default=np.nan)
    never = "yes" if worst >= -1e-6 else "no"
    row |= {"never worse": "–" if record is plain else f"{never} ({_signed(worst)} %)"}
    return row


def against(monro: Record, record: Record) -> str:
    """Accesses of this run to the bound where SVI ended, divided by SVI's own; more than one is later than SVI."""
    end = monro["elbo"][-1]
    mine = to_within(record, end, 0)
    return number(mine / to_within(monro, end, 0)) if np.isfinite(mine) else "never"


def _relative(value: float, base: float) -> float:
    # Before its first exact bound a run is not judged.
    return np.inf if np.isnan(value) else 100 * (value - base) / abs(base)


def _signed(value: float) -> str:
    return "?" if not np.isfinite(value) else f"{value:+.2g}"
