"""A stream that is generated on the fly through LDA, factorisation and HMM: how much memory a fit of data of any size takes.

    python benchmarks/scale_stream.py                          # 20 GB through each, an hour on two cores
    python benchmarks/scale_stream.py --gigabytes 2            # to try it
    python benchmarks/scale_stream.py --gigabytes 2 lda        # one of lda, factorisation, hmm

A gigabyte is one of arrays as the models read them: 12 bytes for a word and its count, 24 for a rating (user, item, value), 8
for a value of a time. Each model has a process of its own, whose peak of resident memory is reported; nothing but the model is
kept between chunks. Results: ``benchmarks/results/scale-stream.md`` and ``.json``.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sparse

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"
CAP = 1e9


class Stream:
    """Chunks until so many bytes were handed out."""

    rereadable, n_total = False, None

    def __init__(self, n_bytes: float) -> None:
        self.n_bytes, self.given = n_bytes, 0

    def chunks(self) -> Iterator:
        number = 0
        while self.given < self.n_bytes:
            chunk, size = self.made(np.random.default_rng([7, number]))
            self.given, number = self.given + size, number + 1
            yield chunk

    def made(self, rng: np.random.Generator) -> tuple[object, int]:
        raise NotImplementedError


class Documents(Stream):
    """20,000 documents of 100 words each, of 20 topics that overlap, in a vocabulary of 20,000."""

    def made(self, rng: np.random.Generator) -> tuple[object, int]:
        n, length, n_words, n_topics = 20_000, 100, 20_000, 20
        topic = rng.integers(0, n_topics, (n, 2))[np.arange(n)[:, None], rng.integers(0, 2, (n, length))]
        words = (topic * (n_words // n_topics) + (n_words ** rng.random((n, length))).astype(np.int64)) % n_words
        start = np.arange(0, n * length + 1, length)
        table = sparse.csr_array((np.ones(n * length), words.ravel().astype(np.int32), start), shape=(n, n_words))
        table.sum_duplicates()
        return table, 12 * table.nnz


class Users(Stream):
    """10,000 users with 100 ratings each, of 5,000 items with five factors."""

    def __init__(self, n_bytes: float) -> None:
        super().__init__(n_bytes)
        self.items = np.random.default_rng(0).normal(size=(5_000, 5))

    def made(self, rng: np.random.Generator) -> tuple[object, int]:
        n, length = 10_000, 100
        users, items = (
            np.repeat(np.arange(n), length),
            (50 * np.arange(length) + rng.integers(0, 50, (n, length))).ravel(),
        )
        liking = np.einsum("nk,nk->n", rng.normal(size=(n, 5))[users], self.items[items])
        values = 3.0 + liking + 0.5 * rng.normal(size=n * length)
        first = self.given // 24 // length
        return ng.data.Ratings(users + first, items, values, duplicates="keep"), 24 * len(users)


class Times(Stream):
    """A million times of a chain with four states and Gaussian emissions in two columns."""

    def made(self, rng: np.random.Generator) -> tuple[object, int]:
        n = 1_000_000
        state = np.cumsum(rng.random(n) < 0.02) % 4
        return 2.0 * np.array([[0, 0], [1, 2], [2, 0], [3, 3]])[state] + rng.normal(size=(n, 2)), 16 * n


def fitted(name: str, n_bytes: float) -> dict[str, float]:
    stream = {"lda": Documents, "factorisation": Users, "hmm": Times}[name](n_bytes)
    begin = time.perf_counter()
    if name == "lda":
        model = ng.LDA(20, verbose=False).fit(stream)
        steps = model.n_steps_
    elif name == "factorisation":
        model = ng.MatrixFactorization(5, verbose=False).fit(stream)
        steps = model.n_steps_
    else:
        model = ng.GaussianHMM(4, verbose=False).fit(stream.chunks())
        steps = model.n_steps_
    return {
        "bytes": stream.given, "seconds": time.perf_counter() - begin, "steps": steps,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="of lda, factorisation, hmm")
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--alone", action="store_true", help="print the result of one model, in this process")
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(fitted(asked.models[0], asked.gigabytes * 1e9)))
        return
    file = RESULTS / "scale-stream.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    for name in asked.models or ["lda", "factorisation", "hmm"]:
        command = [sys.executable, __file__, name, "--gigabytes", str(asked.gigabytes), "--alone"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[name] = json.loads(said.splitlines()[-1])
        print(name, found[name], flush=True)
        found["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
        file.write_text(json.dumps(found, indent=1))
    rows = [
        f"| {name} | {r['bytes'] / 1e9:.1f} GB | {r['steps']:,} | {r['seconds']:.0f} s | {r['peak_bytes'] / 1e6:.0f} MB | "
        f"{'yes' if r['peak_bytes'] < CAP else 'NO'} |"
        for name, r in found.items()
        if name != "machine"
    ]
    head = "| model | streamed | steps | time | peak of resident memory | below 1 GB |\n|---|---|---|---|---|---|\n"
    (RESULTS / "scale-stream.md").write_text(head + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
