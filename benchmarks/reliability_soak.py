"""partial_fit on endless streams with garbage mixed in: is it refused, is the model as it was, does memory grow?

    python benchmarks/reliability_soak.py --minutes 60    # what the page shows says how long it ran
    python benchmarks/reliability_soak.py --minutes 1     # to try it

Batches of generated data go to an LDA, a Gaussian hidden Markov model, a Gaussian process, a classifier and a factorisation in
turn. One batch in four is garbage: numbers that are missing, infinite, negative or too many, wrong widths and lengths, text,
nothing at all. It must be refused with a ValueError or a TypeError, and the model must be bit by bit what it was. Memory is the
resident set, its mean over the last quarter of the time against that over the second one. Results:
``benchmarks/results/reliability-soak.md`` and ``.json``.
"""

import argparse
import json
import platform
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from adversary.files import bits_of
from adversary.inputs import GARBAGE, garbage

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"
SHARE = 0.25


class Topics:
    """Documents of 60 words."""

    def __init__(self):
        self.model = ng.LDA(5, n_jobs=1)

    def feed(self, rng, spoil):
        counts = rng.poisson(0.5, (40, 60)).astype(float)
        if spoil is not None:
            counts = garbage(counts, rng, spoil)
        self.model.partial_fit(counts, n_documents=10_000)


class Chain:
    """Three states of two numbers."""

    def __init__(self):
        self.model = ng.GaussianHMM(3, n_init=2, n_jobs=1)

    def feed(self, rng, spoil):
        states = np.repeat(rng.integers(0, 3, 20), 10)
        values = 3.0 * states[:, None] + rng.normal(size=(200, 2))
        if spoil is not None:
            # A missing or a negative number is no garbage here.
            values = garbage(values, rng, "inf" if spoil in ("nan", "negative") else spoil)
        self.model.partial_fit(values, n_times=100_000)


class Process:
    """A curve with noise, or its sign."""

    def __init__(self, kind):
        self.model = kind(n_inducing=15, batch_size=50)
        self.classes = kind is ng.SparseGPClassifier

    def feed(self, rng, spoil):
        x = rng.uniform(-2, 2, (50, 2))
        y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=50)
        y = (y > 0).astype(int) if self.classes else y
        if spoil == "lengths":
            y = y[:-3]
        elif spoil is not None:
            x = garbage(x, rng, "inf" if spoil == "negative" else spoil)
        self.model.partial_fit(x, y, n_total=10_000)


class Ratings:
    """The same pairs again and again, with new ratings; others would have to be kept."""

    def __init__(self):
        self.model = ng.MatrixFactorization(3)

    def feed(self, rng, spoil):
        table = np.where(np.arange(30 * 20).reshape(30, 20) % 2, np.nan, rng.normal(size=(30, 20)))
        if spoil is not None:
            how = "inf" if spoil == "negative" else spoil
            table = np.full((30, 20), np.nan) if spoil == "nan" else garbage(table, rng, how)
        self.model.partial_fit(table)


def resident() -> float:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096.0


def soak(minutes, seed):
    rng = np.random.default_rng(seed)
    streams = {
        "LDA": Topics(), "GaussianHMM": Chain(), "SparseGPRegressor": Process(ng.SparseGPRegressor),
        "SparseGPClassifier": Process(ng.SparseGPClassifier), "MatrixFactorization": Ratings(),
    }  # fmt: skip
    found = {name: Counter(good=0, garbage=0, refused=0, changed=0, other_errors=0) for name in streams}
    others, memory, begin = Counter(), [], time.monotonic()
    while (now := time.monotonic() - begin) < 60 * minutes:
        for name, stream in streams.items():
            fresh = found[name]["good"] == 0
            if fresh or rng.random() > SHARE:
                stream.feed(rng, None)
                found[name]["good"] += 1
                continue
            how, before = GARBAGE[rng.integers(len(GARBAGE))], bits_of(stream.model)
            found[name]["garbage"] += 1
            try:
                stream.feed(rng, how)
                others[f"{name}, {how}: taken"] += 1
            except (ValueError, TypeError):
                found[name]["refused"] += 1
            except Exception as error:
                found[name]["other_errors"] += 1
                others[f"{name}, {how}: {type(error).__name__}: {str(error)[:80]}"] += 1
            found[name]["changed"] += bits_of(stream.model) != before
        memory.append((now, resident()))
    return found, others, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("error")
    found, others, memory = soak(chosen.minutes, chosen.seed)
    times, sizes = np.array(memory).T
    quarter = [sizes[(times >= a * times[-1]) & (times <= b * times[-1])].mean() for a, b in ((0.25, 0.5), (0.75, 1.0))]
    growth = quarter[1] / quarter[0] - 1.0
    keys = ("good", "garbage", "refused", "changed", "other_errors")
    table = [
        "| model | good batches | garbage | refused | model changed by it | other errors |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    table += [f"| {name} | " + " | ".join(f"{counts[key]:,}" for key in keys) + " |" for name, counts in found.items()]
    words = (
        f"{chosen.minutes:g} minutes, one process; resident memory {quarter[0] / 1e6:.0f} MB in the second quarter and "
        f"{quarter[1] / 1e6:.0f} MB in the last one: {100 * growth:+.1f} %."
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "reliability-soak.md").write_text("\n".join([*table, "", words]) + "\n")
    versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
    kept = {"versions": versions, "minutes": chosen.minutes, "growth": growth, "results": found, "others": others}
    (RESULTS / "reliability-soak.json").write_text(json.dumps(kept, indent=1) + "\n")
    print("\n".join([*table, words]), dict(others))
    if others or growth > 0.05 or any(counts["changed"] for counts in found.values()):
        raise SystemExit("some garbage was taken, changed a model, or memory grew")


if __name__ == "__main__":
    main()
