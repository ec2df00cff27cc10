"""How LDA grows: tokens a second and peak memory against documents, topics and words.

    python benchmarks/lda_growth.py --write
    python benchmarks/lda_growth.py --most 100000        # a quick look

Documents are drawn from a topic model (50 tokens each on average, 50 topics whose words follow a power law) and written to
disk as compressed rows; `partial_fit` reads them from a memory map, 10 000 at a time, once. Each case runs in a fresh process,
all threads. Memory is the largest resident set of the process, Python and compiled code included; pages of the file that the
system keeps in its cache and maps into the process are a part of it. Results: ``benchmarks/results/lda-growth.json`` and ``.md``.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sparse

HERE = Path(__file__).resolve().parent
CHUNK, LENGTH, DRAWN_TOPICS, TABLE = 10_000, 50, 50, 1 << 14
DOCUMENTS, TOPICS, WORDS = (10_000, 100_000, 1_000_000), (20, 50, 100, 200, 500, 1_000), (5_000, 50_000, 500_000)
# What stays while another number grows.
HERE_DOCUMENTS, HERE_TOPICS, HERE_WORDS = 50_000, 50, 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=DOCUMENTS[-1], help="documents at most")
    parser.add_argument("--write", action="store_true", help="write the results")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)  # the measuring child: folder, documents, topics
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(Path(options.case[0]), *(int(number) for number in options.case[1:]))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        generate(place / "documents", min(options.most, DOCUMENTS[-1]), HERE_WORDS)
        few = min(options.most, HERE_DOCUMENTS)
        for n in (n for n in DOCUMENTS if n <= options.most):
            rows.append(asked("documents", place / "documents", n, HERE_TOPICS))
        for n_topics in TOPICS:
            rows.append(asked("topics", place / "documents", few, n_topics))
        for n_words in WORDS:
            generate(place / f"words-{n_words}", few, n_words)
            rows.append(asked("words", place / f"words-{n_words}", few, HERE_TOPICS))
    if options.write:
        report(rows)


def generate(place: Path, n_documents: int, n_words: int) -> None:
    """Counts in compressed rows on disk, drawn chunk by chunk."""
    rng = np.random.default_rng(0)
    place.mkdir()
    # Each topic likes words of its own order; their probabilities fall as 1/rank.
    ranks = np.minimum(np.exp(rng.random((DRAWN_TOPICS, TABLE)) * np.log(n_words)).astype(np.int64), n_words - 1)
    orders = rng.integers(0, n_words, (DRAWN_TOPICS, 2)) * 2 + 1
    table = (ranks * orders[:, :1] + orders[:, 1:]) % n_words
    start = [np.zeros(1, np.int64)]
    total = 0
    with (place / "words").open("wb") as words, (place / "counts").open("wb") as counts:
        for begin in range(0, n_documents, CHUNK):
            size = min(CHUNK, n_documents - begin)
            lengths = rng.poisson(LENGTH, size)
            document = np.repeat(np.arange(size), lengths)
            shares = np.cumsum(rng.dirichlet(np.full(DRAWN_TOPICS, 0.1), size), 1)
            topic = (rng.random(len(document))[:, None] > shares[document]).sum(1).clip(max=DRAWN_TOPICS - 1)
            word = table[topic, rng.integers(0, TABLE, len(document))]
            pairs, count = np.unique(document * n_words + word, return_counts=True)
            (pairs % n_words).astype(np.int32).tofile(words)
            count.astype(np.float32).tofile(counts)
            start.append(total + np.cumsum(np.bincount(pairs // n_words, minlength=size)))
            total += len(pairs)
    np.save(place / "start.npy", np.concatenate(start))
    (place / "shape").write_text(f"{n_documents} {n_words}")


def chunks(place: Path, n_documents: int) -> Any:
    """CSR counts of so many documents, read from the map."""
    n_words = int((place / "shape").read_text().split()[1])
    start = np.load(place / "start.npy", mmap_mode="r")
    words, counts = (np.memmap(place / name, kind, "r") for name, kind in (("words", np.int32), ("counts", np.float32)))
    for begin in range(0, n_documents, CHUNK):
        ends = np.array(start[begin : min(begin + CHUNK, n_documents) + 1])
        part = slice(ends[0], ends[-1])
        yield sparse.csr_array((counts[part], words[part], ends - ends[0]), shape=(len(ends) - 1, n_words))


def measure(place: Path, n_documents: int, n_topics: int) -> dict[str, Any]:
    import natgrad as ng

    options = {"n_topics": n_topics, "seed": 0, "verbose": False}
    for X in chunks(place, 200):  # compiles
        ng.LDA(**options).partial_fit(X[:200]).partial_fit(X[:200])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model, tokens, entries = ng.LDA(**options), 0.0, 0
    began = time.perf_counter()
    for X in chunks(place, n_documents):
        model.partial_fit(X, n_documents=n_documents)
        tokens, entries = tokens + float(X.data.sum()), entries + X.nnz
    seconds = time.perf_counter() - began
    return {
        "documents": n_documents,
        "K": n_topics,
        "V": model.n_features_in_,
        "tokens": int(tokens),
        "seconds": round(seconds, 2),
        "million tokens a second": round(tokens / seconds / 1e6, 3),
        "peak memory, GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "before, GB": round(before / 1e6, 2),
        "bound a word": round(float(model.elbo_) / n_documents / (tokens / n_documents), 3),
    }


def asked(grows: str, place: Path, n_documents: int, n_topics: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", str(place), str(n_documents), str(n_topics)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row = {"grows": grows} | json.loads(done.stdout.splitlines()[-1])
    print(*row.values(), sep=" | ", flush=True)
    return row


def report(rows: list[dict[str, Any]]) -> None:
    import numba

    about = {
        "numba": numba.__version__, "numpy": np.__version__, "python": platform.python_version(), "cores": os.cpu_count(),
        "command": "python benchmarks/lda_growth.py --write",
    }  # fmt: skip
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0])]
    lines += [" | ".join(str(value) for value in row.values()) for row in rows]
    text = ["# How LDA grows", "", f"One pass of `partial_fit` over documents on disk, {CHUNK} at a time. {about}", ""]
    text += [*(f"| {line} |" for line in lines), ""]
    (HERE / "results" / "lda-growth.md").write_text("\n".join(text))
    (HERE / "results" / "lda-growth.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
