"""An oracle for topics of tokens: all assignments enumerated, or collapsed Gibbs sampling token by token, in plain Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Tokens", "enumerated_counts", "naive_sweep", "sampled_counts", "tokens_of"]

Floats = npt.NDArray[np.float64]


class Tokens(NamedTuple):
    """The document and the word of every token, and how many of both there are."""

    documents: list[int]
    words: list[int]
    n_documents: int
    n_words: int


def tokens_of(X: npt.ArrayLike) -> Tokens:
    """The tokens of counts [D, V], document by document and word by word.

    Examples
    --------
    >>> tokens_of([[0, 2], [1, 0]]).words
    [1, 1, 0]
    """
    counts = np.asarray(X)
    places = [(d, v) for d, row in enumerate(counts) for v, n in enumerate(row) for _ in range(int(n))]
    return Tokens([d for d, _ in places], [v for _, v in places], *counts.shape)


def enumerated_counts(tokens: Tokens, alpha: Sequence[float], beta: float) -> tuple[Floats, Floats, float]:
    """E[n_wk] [V, K], E[n_dk] [D, K] and log p(w), from every assignment of topics to tokens."""
    size = len(alpha)
    logs, by_word, by_document = [], [], []
    for z in itertools.product(range(size), repeat=len(tokens.words)):
        nw, nd = _counts(tokens, z, size)
        logs.append(_log_joint(nw, nd, alpha, beta))
        by_word.append(nw)
        by_document.append(nd)
    top = max(logs)
    weights = np.exp(np.array(logs) - top)
    evidence = top + math.log(weights.sum())
    weights /= weights.sum()
    return np.tensordot(weights, np.array(by_word), 1), np.tensordot(weights, np.array(by_document), 1), evidence


def naive_sweep(tokens: Tokens, z: list[int], alpha: Sequence[float], beta: float, rng: np.random.Generator) -> None:
    """Every token's topic drawn from its complete conditional given all others; ``z`` changes in place."""
    size = len(alpha)
    for i, (d, v) in enumerate(zip(tokens.documents, tokens.words, strict=True)):
        others = [(tokens.documents[j], tokens.words[j], z[j]) for j in range(len(z)) if j != i]
        weights = []
        for k in range(size):
            in_document = sum(1 for e, _, t in others if e == d and t == k)
            of_word = sum(1 for _, u, t in others if u == v and t == k)
            of_topic = sum(1 for _, _, t in others if t == k)
            weights.append((in_document + alpha[k]) * (of_word + beta) / (of_topic + tokens.n_words * beta))
        z[i] = int(rng.choice(size, p=np.array(weights) / sum(weights)))


def sampled_counts(
    tokens: Tokens, alpha: Sequence[float], beta: float, sweeps: int, seed: int
) -> npt.NDArray[np.float64]:
    """n_wk [sweeps, V, K] after each sweep of the oracle."""
    rng = np.random.default_rng(seed)
    z = rng.integers(0, len(alpha), len(tokens.words)).tolist()
    out = np.empty((sweeps, tokens.n_words, len(alpha)))
    for number in range(sweeps):
        naive_sweep(tokens, z, alpha, beta, rng)
        out[number] = _counts(tokens, z, len(alpha))[0]
    return out


def _counts(tokens: Tokens, z: Sequence[int], size: int) -> tuple[Floats, Floats]:
    by_word, by_document = np.zeros((tokens.n_words, size)), np.zeros((tokens.n_documents, size))
    for d, v, k in zip(tokens.documents, tokens.words, z, strict=True):
        by_word[v, k] += 1
        by_document[d, k] += 1
    return by_word, by_document


def _log_joint(by_word: Floats, by_document: Floats, alpha: Sequence[float], beta: float) -> float:
    """Log p(w, z): θ and φ integrated out."""
    total, smooth = 0.0, beta * len(by_word)
    for k in range(by_word.shape[1]):
        total += math.lgamma(smooth) - math.lgamma(smooth + by_word[:, k].sum())
        total += sum(math.lgamma(beta + n) - math.lgamma(beta) for n in by_word[:, k])
    for row in by_document:
        total += math.lgamma(sum(alpha)) - math.lgamma(sum(alpha) + row.sum())
        total += sum(math.lgamma(a + n) - math.lgamma(a) for a, n in zip(alpha, row, strict=True))
    return total
