"""Data and starts of the engine benchmark: a name comes in, plain arrays go out (to be saved as .npz).

Only NumPy is used, and every array is made here once, so that all engines read the same numbers. Keys that
begin with ``start_`` hold the values at which a factor begins as a point mass; all other factors begin at
their priors.
"""

from collections.abc import Callable

import numpy as np

__all__ = ["PROBLEMS", "Arrays", "ratings"]

Arrays = dict[str, np.ndarray]


def mixture(N: int, D: int, K: int) -> Arrays:
    rng = np.random.default_rng(0)
    means = rng.normal(0, 5, (K, D))
    y = means[rng.integers(0, K, N)] + rng.normal(0, 1, (N, D))
    return {"y": y, "start_mu": y[rng.choice(N, K, replace=False)]}


def pca(N: int, D: int, K: int) -> Arrays:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(D, K)) * np.linspace(1, 0.1, K)
    y = rng.normal(size=(N, K)) @ w.T + 0.5 * rng.normal(size=(N, D))
    return {"y": y, "start_w": rng.normal(size=(D, K))}


def regression(N: int, D: int) -> Arrays:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, D))
    w = rng.normal(size=D) * (np.arange(D) < D // 2)
    return {"X": X, "y": X @ w + rng.normal(size=N)}


def factorization(N: int, n_users: int, n_items: int, K: int) -> Arrays:
    rng = np.random.default_rng(3)
    user, item = ratings(rng, N, n_users, n_items)
    u, v = rng.normal(size=(n_users, K)), rng.normal(size=(n_items, K))
    rating = np.einsum("nk,nk->n", u[user], v[item]) + rng.normal(size=N)
    return {"user": user, "item": item, "rating": rating, "start_v": rng.normal(size=(n_items, K))}


def hmm(T: int, D: int, K: int) -> Arrays:
    rng = np.random.default_rng(4)
    means = rng.normal(0, 3, (K, D))
    jump, goal = rng.random(T) < 0.1, rng.integers(0, K, T)
    state = np.zeros(T, int)
    for t in range(1, T):
        state[t] = goal[t] if jump[t] else state[t - 1]
    y = means[state] + rng.normal(0, 1, (T, D))
    return {"y": y, "start_mu": y[rng.choice(T, K, replace=False)]}


def lda(n_docs: int, V: int, K: int, N: int) -> Arrays:
    rng = np.random.default_rng(5)
    phi, theta = rng.dirichlet(np.full(V, 0.1), K), rng.dirichlet(np.full(K, 0.5), n_docs)
    doc = np.sort(rng.integers(0, n_docs, N))
    word = _categories(rng, phi[_categories(rng, theta[doc])])
    # Starts away from zero: a point mass at θ_k = 0 would forbid topic k for ever.
    start_theta = rng.dirichlet(np.full(K, 5.0), n_docs) * 0.99 + 0.01 / K
    start_phi = rng.dirichlet(np.full(V, 1.0), K) * 0.99 + 0.01 / V
    return {"doc": doc, "word": word, "start_theta": start_theta, "start_phi": start_phi}


PROBLEMS: dict[str, Callable[[], Arrays]] = {
    "mixture": lambda: mixture(100_000, 10, 20),
    "pca": lambda: pca(10_000, 50, 10),
    "regression": lambda: regression(100_000, 50),
    "factorization": lambda: factorization(200_000, 2_000, 1_500, 5),
    "hmm": lambda: hmm(10_000, 5, 8),
    "lda": lambda: lda(300, 100, 10, 5_000),
    "mixture_small": lambda: mixture(500, 3, 4),
}


def ratings(rng: np.random.Generator, N: int, n_users: int, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """N distinct (user, item) pairs in random order, with power-law degrees on both sides."""
    keys = np.empty(0, np.int64)
    while len(keys) < N:
        more = _power_law(rng, n_users, N) * n_items + _power_law(rng, n_items, N)
        keys = np.unique(np.concatenate([keys, more]))
    keys = rng.permutation(keys)[:N]
    return keys // n_items, keys % n_items


def _power_law(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    weight = (10.0 + np.arange(n)) ** -0.8
    return rng.permutation(n)[rng.choice(n, size, p=weight / weight.sum())]


def _categories(rng: np.random.Generator, probs: np.ndarray) -> np.ndarray:
    """One category per row of probs [N, K]."""
    return (probs.cumsum(1)[:, :-1] < rng.random((len(probs), 1))).sum(1)
