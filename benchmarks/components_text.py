"""Topics of real text: ``n_topics="auto"``, the best of some given K, and two peers that find K, scored by one evaluator.

    python benchmarks/components_text.py                       all abstracts, hours
    python benchmarks/components_text.py --documents 5000      some of them
    python benchmarks/components_text.py --only auto 50        some systems: auto, a number of topics, 50-keep, tomotopy, gensim
    python benchmarks/components_text.py --corpus cve          another corpus
    python benchmarks/components_text.py --first 10000         other documents for training
    python benchmarks/components_text.py --table               the table of what was measured so far

The score is the mean log probability of the second halves of 1,000 held-out abstracts given their first halves, by
`lda_evaluator.py`, which is the same for everyone. The best K is the one of the best score on a second thousand. Fits with K
given learn both priors, as "auto" does; those with ``moves="keep"`` are shown beside, and are not among those to beat.
Results: ``benchmarks/results``, ``components-text.jsonl`` and ``.md`` there.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from components_files import Lines, markdown
from lda_evaluator import FILES, Splits, score, splits

import natgrad as ng

Floats = npt.NDArray[Any]
LINES = Lines("components-text")
GIVEN, MOST = (20, 50, 100, 200), 200
# Passes of a fit with K given, twice as many to find it, and sweeps of a sampler.
PASSES, SWEEPS = 50, 300


def auto(data: Splits) -> tuple[Floats, Floats]:
    model = ng.LDA("auto", max_topics=MOST, inference="vb", max_passes=2 * PASSES).fit(data.train)
    return model.topics_, model.doc_prior_


def given(n_topics: int, moves: Any = None) -> Callable[[Splits], tuple[Floats, Floats]]:
    def fitted(data: Splits) -> tuple[Floats, Floats]:
        model = ng.LDA(n_topics, learn_priors=True, inference="vb", max_passes=PASSES).fit(data.train, moves=moves)
        return model.topics_, model.doc_prior_

    return fitted


def tomotopy(data: Splits) -> tuple[Floats, Floats]:
    """Hierarchical Dirichlet process by collapsed Gibbs sampling; topics that still have words."""
    import tomotopy as tp

    model = tp.HDPModel(seed=1)
    for d in range(data.train.shape[0]):
        row = slice(data.train.indptr[d], data.train.indptr[d + 1])
        model.add_doc(np.repeat(data.train.indices[row], data.train.data[row]).astype(str).tolist())
    model.train(SWEEPS, workers=1)
    live = [k for k in range(model.k) if model.is_live_topic(k)]
    topics = np.full((len(live), data.train.shape[1]), 1e-9)
    words = np.array(list(model.used_vocabs), dtype=np.int64)
    for place, k in enumerate(live):
        topics[place, words] = model.get_topic_word_dist(k)
    tokens = np.array(model.get_count_by_topics(), dtype=np.float64)[live]
    return topics / topics.sum(1, keepdims=True), model.alpha * tokens / tokens.sum()


def gensim(data: Splits) -> tuple[Floats, Floats]:
    """Hierarchical Dirichlet process by stochastic variational inference; topics with a millionth of the mass, of 150 at most."""
    from gensim.models import HdpModel

    logging.getLogger("gensim").setLevel(logging.ERROR)
    table = data.train
    documents = [
        list(zip(table.indices[a:b].tolist(), table.data[a:b].tolist(), strict=True))
        for a, b in zip(table.indptr[:-1], table.indptr[1:], strict=True)
    ]
    model = HdpModel(documents, {w: str(w) for w in range(table.shape[1])}, random_state=0)
    alpha, topics = model.hdp_to_lda()
    used = alpha > 1e-6
    return np.asarray(topics)[used] / np.asarray(topics)[used].sum(1, keepdims=True), np.asarray(alpha)[used]


SYSTEMS: dict[str, Callable[[Splits], tuple[Floats, Floats]]] = {
    "auto": auto, **{str(k): given(k) for k in GIVEN}, **{f"{k}-keep": given(k, "keep") for k in GIVEN},
    "tomotopy": tomotopy, "gensim": gensim,
}  # fmt: skip
WORDS = {"auto": 'LDA("auto")', "tomotopy": "tomotopy HDPModel", "gensim": "gensim HdpModel"}


def measure(name: str, corpus: str, n_documents: int | None, first: int) -> None:
    data = splits(corpus, n_documents, first)
    size = int(data.train.shape[0])
    corpus = f"{corpus} from {first:,}" if first else corpus
    if LINES.has(system=name, corpus=corpus, documents=size):
        return
    if name not in WORDS or name == "auto":  # kernels are compiled, or read
        ng.LDA(3, learn_priors=True, inference="vb", max_passes=3).fit(data.train[:100])
    begun = time.process_time()
    topics, alpha = SYSTEMS[name](data)
    seconds = time.process_time() - begun
    scores = {part: score(topics, alpha, getattr(data, part)) for part in ("validation", "test")}
    LINES.add(system=name, corpus=corpus, documents=size, k=len(topics), **scores, seconds=round(seconds, 2))


def rows() -> list[list[str]]:
    found = []
    for corpus, size in sorted({(line["corpus"], line["documents"]) for line in LINES.all()}):
        lines = {line["system"]: line for line in LINES.all(corpus=corpus, documents=size)}
        grid = [lines[str(k)] for k in GIVEN if str(k) in lines]
        best = max(grid, key=lambda line: line["validation"], default=None)
        for name in (name for name in SYSTEMS if name in lines):
            line = lines[name]
            behind = name == "auto" and best is not None and line["test"] < best["test"]
            size_of, _, keeps = name.partition("-")
            words = WORDS.get(name, f"LDA({size_of})" + (', moves="keep"' if keeps else ""))
            words += ", the best K" if line is best else ""
            found.append([
                words, f"{size:,} of {corpus}", str(line["k"]), f"{line['test']:.4f}" + (" MISSED" if behind else ""),
                f"{line['seconds']:.0f}",
            ])  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", choices=FILES, default="acl")
    parser.add_argument("--documents", type=int, default=None, help="training documents; all by default")
    parser.add_argument("--first", type=int, default=0, help="documents that are left out: others than those looked at")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in () if options.table else options.only or SYSTEMS:
        measure(name, options.corpus, options.documents, options.first)
    LINES.write(markdown(["system", "documents", "K", "held-out nats a word", "cpu s"], rows()))


if __name__ == "__main__":
    main()
