"""One evaluator for all systems: topics and a document prior in, the score by document completion out. NumPy and SciPy only.

Each held-out document's tokens are cut in two halves at random. Its shares are inferred from the first half, and

    score = Σ over the tokens of the second halves of log Σ_k θ_dk φ_kw  /  their number.

The shares are inferred by one algorithm for everyone: θ ∝ α + Σ_w n_w r_w with r_wk ∝ θ_k φ_kw, to a fixed point. That is
EM for log p(words | θ, φ) + Σ_k α_k log θ_k, which is concave in θ: the fixed point is the only one, no start matters, and
none of the systems uses exactly this rule for its own documents. A system hands over its topics [K, V], each summing to one,
and its α [K], learned if it learns one.

The first documents of a corpus are the test split, those after them the validation split, the rest is for training. Words
that no training document has are left out of all splits.

Generated corpora are drawn from LDA itself with 40 topics: words by rank as in text (a topic is a Dirichlet draw about a Zipf
law), some topics in most documents and most in few (α drawn, its sum is 2), lengths Poisson.
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse

FILES = {"acl": "text/acl_abstracts.npz", "cve": "text/cve.npz"}
# Documents in training, words in each, words of the vocabulary.
GENERATED = {
    "few": (600, 80, 2_000),
    "short": (20_000, 15, 5_000),
    "long": (3_000, 400, 5_000),
    "diffuse": (4_000, 80, 3_000),
}
DRAWN_TOPICS, TOTAL_ALPHA = 40, {"diffuse": 20.0}
HELD_OUT = 1_000
ROUNDS, TOLERANCE = 200, 1e-4


class Halves(NamedTuple):
    """Held-out documents: what shares are inferred from, and what is predicted."""

    read: sparse.csr_array
    predicted: sparse.csr_array


class Splits(NamedTuple):
    train: sparse.csr_array
    validation: Halves
    test: Halves


def data_folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("NATGRAD_DATA", default))


def splits(corpus: str, n_train: int | None = None, first: int = 0) -> Splits:
    """The three splits of a corpus; ``n_train`` limits the training documents, ``first`` of them are left out before."""
    if corpus in GENERATED:
        counts = drawn(corpus)
    else:
        counts = sparse.csr_array(sparse.load_npz(data_folder() / FILES[corpus])).astype(np.int64)
    begin = 2 * HELD_OUT + first
    last = len(counts.indptr) - 1 if n_train is None else begin + n_train
    train = counts[begin:last]
    used = np.flatnonzero(train.sum(0))
    test, validation = (
        halves(counts[part][:, used], seed) for part, seed in ((slice(HELD_OUT), 1), (slice(HELD_OUT, 2 * HELD_OUT), 2))
    )
    return Splits(train[:, used], validation, test)


def drawn(corpus: str) -> sparse.csr_array:
    """A generated corpus, with the held-out documents first."""
    n_documents, length, n_words = GENERATED[corpus]
    rng = np.random.default_rng(list(GENERATED).index(corpus))
    law = 1.0 / np.arange(3, n_words + 3)
    topics = rng.dirichlet(0.03 * n_words * law / law.sum() + 1e-3, DRAWN_TOPICS)
    alpha = rng.gamma(1.0, 1.0, DRAWN_TOPICS) + 0.1
    alpha *= TOTAL_ALPHA.get(corpus, 2.0) / alpha.sum()
    shares = rng.dirichlet(alpha, n_documents + 2 * HELD_OUT)
    lengths = rng.poisson(length - 1, len(shares)) + 1
    rows = [sparse.csr_array(rng.multinomial(n, share @ topics)) for n, share in zip(lengths, shares, strict=True)]
    return sparse.csr_array(sparse.vstack(rows)).astype(np.int64)


def halves(counts: sparse.csr_array, seed: int) -> Halves:
    """Every second token of each document in a random order."""
    rng = np.random.default_rng(seed)
    tokens = np.repeat(np.arange(counts.nnz), counts.data)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))[tokens]
    order = np.lexsort((rng.random(len(tokens)), rows))
    first = np.bincount(tokens[order[_place_in_row(rows) % 2 == 0]], minlength=counts.nnz)
    parts = []
    for data in (first, counts.data - first):
        part = sparse.csr_array((data, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape)
        part.eliminate_zeros()
        parts.append(part)
    return Halves(*parts)


def score(topics: np.ndarray, alpha: np.ndarray, held: Halves) -> float:
    """The mean log probability of a predicted token."""
    by_word = np.ascontiguousarray(np.asarray(topics, np.float64).T)
    by_word /= by_word.sum(0)
    total = 0.0
    for d in range(held.read.shape[0]):
        predicted = slice(held.predicted.indptr[d], held.predicted.indptr[d + 1])
        if predicted.start == predicted.stop:
            continue
        read = slice(held.read.indptr[d], held.read.indptr[d + 1])
        theta = shares(by_word[held.read.indices[read]], held.read.data[read], alpha)
        probability = by_word[held.predicted.indices[predicted]] @ theta
        total += held.predicted.data[predicted] @ np.log(np.maximum(probability, 1e-300))
    return float(total / held.predicted.data.sum())


def shares(block: np.ndarray, counts: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """θ of one document whose words have the rows ``block`` [words, K]."""
    theta = alpha / alpha.sum()
    for _ in range(ROUNDS):
        expected = theta * ((counts / np.maximum(block @ theta, 1e-300)) @ block)
        new = (alpha + expected) / (alpha.sum() + counts.sum())
        done = np.abs(new - theta).sum() < TOLERANCE
        theta = new
        if done:
            break
    return theta


def _place_in_row(rows: np.ndarray) -> np.ndarray:
    """0, 1, 2, … within each run of equal values."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(rows)) + 1, [len(rows)]])
    return np.arange(len(rows)) - np.repeat(begins[:-1], np.diff(begins))
