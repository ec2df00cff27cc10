"""Chains for the benchmarks of hidden Markov models: generated ones, a genome and chromatin marks."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("NATGRAD_DATA") or ROOT.parent / "shared" / "data")


def generated(n_times: int, seed: int, n_states: int = 8, n_columns: int = 2, n_test: int = 0):
    """K states with random transitions (half of the mass stays) and means of spread 2 in unit noise."""
    rng = np.random.default_rng(seed)
    transition = 0.5 * rng.dirichlet(np.ones(n_states), n_states) + 0.5 * np.eye(n_states)
    means = rng.normal(0.0, 2.0, (n_states, n_columns))
    moves, states = np.cumsum(transition, axis=1), np.zeros(n_times + n_test, np.int64)
    for t, u in enumerate(rng.random(len(states) - 1)):
        states[t + 1] = min(np.searchsorted(moves[states[t]], u), n_states - 1)
    values = means[states] + rng.standard_normal((n_times + n_test, n_columns))
    return transition, means, values[:n_times], values[n_times:]


def true_score(transition: np.ndarray, means: np.ndarray, values: np.ndarray) -> float:
    """log p of an observation at the true parameters."""
    logs = -0.5 * ((values[:, None, :] - means[None]) ** 2).sum(2) - 0.5 * values.shape[1] * np.log(2.0 * np.pi)
    top = logs.max(1)
    weights, here, total = np.exp(logs - top[:, None]), np.full(len(means), 1.0 / len(means)), top.sum()
    for row in weights:
        here = here * row
        scale = here.sum()
        total += np.log(scale)
        here = (here / scale) @ transition
    return float(total / len(values))


def genome() -> np.ndarray:
    """0–3 = ACGT of a whole E. coli genome."""
    return np.load(DATA / "hmm" / "ecoli536_acgt_u8.npy", mmap_mode="r")


def marks() -> np.ndarray:
    """Ten binary chromatin marks in bins of 200 base pairs."""
    with gzip.open(DATA / "hmm" / "chromhmm_GM12878_chr11_binary.txt.gz", "rt") as file:
        rows = [line for line in file.read().splitlines() if line and line[0] in "01"]
    return np.array([[int(v) for v in row.split()] for row in rows], dtype=np.uint8)
