"""Findings in, text out: what the paper says beside what was seen, then every setting, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from natgrad.data.ratings import Ratings
from natgrad.reproduce.paquet import OPTIONS, Finding, Plan, lost
from natgrad.reproduce.paquet_runs import N_FACTORS, Setting

__all__ = ["Claim", "claims", "markdown", "notes"]


class Claim(NamedTuple):
    """One statement of the paper and what was seen here."""

    what: str
    paper: str
    here: str
    same: bool


def notes(ratings: Ratings, plan: Plan, source: str) -> list[str]:
    """The settings that decide what diverges: they belong beside every figure."""
    n_users, n_items = ratings.n_users, ratings.n_items
    return [
        f"Data: {source}, {n_users:,} users, {n_items:,} items, {len(ratings.values):,} ratings, not centred. "
        f"Model: r ~ N(u·v, 1), N(0, 1) priors, K = {N_FACTORS}, a factor for every scalar.",
        f"Start: means drawn from the prior N(0, 1), precisions 1 (seed {plan.seed}). Users move before items, scalar "
        "after scalar. ρ_t = (t + τ)^(−0.6), τ = ρ₁^(−1/0.6) − 1.",
        "Alg. 1: every scalar draws its own min(C, N_i) ratings, without replacement. Alg. 2: only variables with a rating "
        "in D move, with weight N_i/|D_i|.",
        "An access is one pair of a rating and a scalar variable that reads it; a sweep of full VB is "
        f"2·K·|R| = {2 * N_FACTORS * len(ratings.values):,} of them.",
        f"Accesses of a run, in such sweeps: {plan.children_sweeps:g} for Alg. 1, {plan.batch_sweeps:g} for Alg. 2, "
        f"{plan.vb_sweeps:g} for full VB.",
    ]


def claims(findings: Mapping[Setting, Finding]) -> list[Claim]:
    """The paper's statements against the findings."""
    lines = []
    for option in OPTIONS:
        some = {s.size: f for s, f in findings.items() if s.algorithm == 1 and s.option == option}
        gone = [size for size, finding in some.items() if lost(finding.runs[0])]
        here = _diverging("C", gone)
        same = bool(gone) and min(some) in gone and max(some) not in gone
        lines.append(Claim(f"Alg. 1 ({option}) from ρ₁ = 1", "small C diverges", here, same))
    for option, wanted in zip(OPTIONS, (9, 6), strict=True):
        finding = findings.get(Setting(1, option, 1))
        if finding is not None:
            here = f"{rate(finding.largest)}; without a fall {rate(finding.steady)}"
            # The paper does not say what counts as converging; its value should lie between the two that can be meant.
            low, high = finding.largest, finding.steady
            same = low is not None and high is not None and low <= wanted <= high
            lines.append(Claim(f"Alg. 1 ({option}), C = 1: largest ρ₁", rate(wanted), here, same))
    batches = {(s.option, s.size): f for s, f in findings.items() if s.algorithm == 2}
    if batches:
        gone = [size for (option, size), finding in batches.items() if option == "a" and lost(finding.runs[0])]
        here = _diverging("C_global", gone)
        lines.append(Claim("Alg. 2 (a) from ρ₁ = 1", "converges for all", here, not gone))
        largest = [finding.largest for (option, _), finding in batches.items() if option == "b"]
        here = ", ".join(f"{rate(j)} ({largest.count(j)} of {len(largest)})" for j in _ordered(largest))
        same = _ordered(largest)[:1] == [5] and None not in largest
        lines.append(Claim("Alg. 2 (b): largest ρ₁", "1/32, smaller for some", here, same))
    return lines


def markdown(findings: Mapping[Setting, Finding], settings: Sequence[str], prior: float) -> str:
    """The whole report: statements, one table for each algorithm, the settings."""
    full = findings[Setting(0)].runs[0]
    parts = ["| | paper | here | |", "|---|---|---|---|"]
    parts += [
        f"| {c.what} | {c.paper} | {c.here} | {'as in the paper' if c.same else 'differs'} |" for c in claims(findings)
    ]
    for algorithm, name in ((1, "C"), (2, "C_global")):
        sizes = sorted({s.size for s in findings if s.algorithm == algorithm})
        if sizes:
            parts += ["", f"Algorithm {algorithm}:", "", *_rows(findings, algorithm, name, sizes)]
    parts += [
        "",
        f"The bound is {full.start:,.0f} at the start and {prior:,.0f} at the prior; full VB ends at {full.end:,.0f}. "
        "*Diverged*: stopped by the guard, or ended below the start. *Largest ρ₁*: the largest 2^−j that did not diverge and "
        "ended above the prior. *Without a fall*: the same, and the bound was never below twice its start.",
        "",
        *(f"- {line}" for line in settings),
        "",
    ]
    return "\n".join(parts)


def rate(halvings: int | None) -> str:
    """ρ₁ = 2^−j as a fraction."""
    return "none" if halvings is None else "1" if halvings == 0 else f"1/{2**halvings}"


def _rows(findings: Mapping[Setting, Finding], algorithm: int, name: str, sizes: Sequence[int]) -> list[str]:
    columns = ("from ρ₁ = 1", "largest ρ₁", "without a fall", "bound from the largest ρ₁")
    header = [name, *(f"({option}) {column}" for option in OPTIONS for column in columns)]
    rows = ["| " + " | ".join(header) + " |", "|" + "---:|" * len(header)]
    for size in sizes:
        cells = [str(size)]
        for option in OPTIONS:
            finding = findings.get(Setting(algorithm, option, size))
            cells += _cells(finding) if finding is not None else [""] * len(columns)
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _cells(finding: Finding) -> list[str]:
    one = finding.runs[0]
    first = "diverged" if lost(one) else f"{one.end:,.0f}"
    end = "" if finding.tuned is None else f"{finding.tuned.end:,.0f}"
    return [first, rate(finding.largest), rate(finding.steady), end]


def _diverging(name: str, sizes: Sequence[int]) -> str:
    if not sizes:
        return "none diverges"
    return f"{name} = {_listed(sizes)} diverge{'s' if len(sizes) == 1 else ''}"


def _listed(sizes: Sequence[int]) -> str:
    """Whole numbers as ranges where they follow one another: 1–4, 7."""
    spans: list[list[int]] = []
    step = 100 if all(size % 100 == 0 for size in sizes) else 1
    for size in sorted(sizes):
        if spans and size == spans[-1][-1] + step:
            spans[-1].append(size)
        else:
            spans.append([size])
    return ", ".join(f"{span[0]}–{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def _ordered(largest: Sequence[int | None]) -> list[int | None]:
    return sorted(set(largest), key=lambda j: 99 if j is None else j)
