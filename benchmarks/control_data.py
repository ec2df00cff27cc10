"""The name of a problem in, its ratings or its network out; ``None`` where a file of real data is absent.

Real data are looked for in ``$NATGRAD_DATA``, else in ``../shared/data`` from the project's root. With ``quick`` the same
problems are made small, to try the scripts.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import natgrad as ng
from natgrad.data.datasets.generated import paper_ratings
from natgrad.data.ratings import Ratings

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("NATGRAD_DATA", ROOT.parent / "shared" / "data"))
TITLES = {
    "paper": "generated, the paper's shape: 4,805 users × 16,015 items, 1 M ratings of 1–5 stars",
    "jester": "Jester as it is: 24,983 users × 100 items, 1.81 M ratings from −10 to 10",
    "stars": "Jester scaled to stars, 1 + 4 (r + 10)/20",
    "stress": "generated: 2,000 users with 1 rating, 1,500 with 50, 8 with 10,000; 12,000 items",
    "mixture": "Gaussian mixture, 5,000 × 8, K = 10, overlapping clusters",
    "topics": "LDA, the first 500 abstracts of the ACL Anthology, K = 50",
    "chain": "HMM, 200 sequences × 50, K = 5, Normal emissions",
    "vectors": "factorisation network, 100 k ratings, K = 5, MultivariateNormal u and v",
    "scalars": "the same with scalar Normals",
    "pca": "probabilistic PCA network, 2,000 × 30, K = 6, one precision for the noise",
}
NETWORKS = ("mixture", "topics", "chain", "vectors", "scalars", "pca")


class Case(NamedTuple):
    """A network, and the plate (and batch) that stochastic inference samples."""

    network: ng.Network
    plate: str = ""
    batch: int = 0


def is_there(name: str) -> bool:
    files = {"jester": JESTER, "stars": JESTER, "topics": ABSTRACTS}
    return name not in files or files[name].exists()


JESTER, ABSTRACTS = DATA / "ratings" / "jester1.npz", DATA / "text" / "acl_abstracts.npz"


@lru_cache(maxsize=3)
def load_ratings(name: str, quick: bool, scale: float = 1.0) -> Ratings:
    if name == "paper":
        ratings = paper_ratings(300, 1000, 20_000) if quick else paper_ratings(seed=0)
    elif name == "stress":
        ratings = _uneven(quick)
    else:
        ratings = _jester(quick, stars=name == "stars")
    if scale == 1.0:
        return ratings
    return Ratings(ratings.users, ratings.items, scale * ratings.values, shape=(ratings.n_users, ratings.n_items))


def _jester(quick: bool, stars: bool) -> Ratings:
    with np.load(JESTER) as file:
        user, item, rating, shape = (file[name] for name in ("user", "item", "rating", "shape"))
    rating = rating.astype(np.float64)
    n_users = 500 if quick else int(shape[0])
    kept = user < n_users
    values = 1 + 4 * (rating[kept] + 10) / 20 if stars else rating[kept]
    return Ratings(user[kept], item[kept], values, shape=(n_users, int(shape[1])))


def _uneven(quick: bool) -> Ratings:
    """Users with one rating next to users with ten thousand."""
    rng = np.random.default_rng(0)
    n_items = 1200 if quick else 12_000
    groups = ((200, 1), (150, 20), (4, 1000)) if quick else ((2000, 1), (1500, 50), (8, 10_000))
    degree = np.concatenate([np.full(n, d) for n, d in groups])
    user = np.repeat(np.arange(len(degree)), degree)
    item = np.concatenate([rng.choice(n_items, d, replace=False) for d in degree])
    u, v = 0.6 * rng.normal(size=(len(degree), 5)), 0.6 * rng.normal(size=(n_items, 5))
    liking = 3.6 + np.einsum("rk,rk->r", u[user], v[item]) + 0.75 * rng.normal(size=len(user))
    return Ratings(user, item, np.clip(np.round(liking), 1, 5), shape=(len(degree), n_items))


# -- networks --


@lru_cache(maxsize=2)
def load_network(name: str, quick: bool) -> Case:
    make = {"mixture": _mixture, "topics": _topics, "chain": _chain, "pca": _pca}
    return make[name](quick) if name in make else _factorisation(quick, vectors=name == "vectors")


def _mixture(quick: bool) -> Case:
    rng = np.random.default_rng(0)
    N, D, K = (500, 3, 4) if quick else (5000, 8, 10)
    points = 1.2 * rng.normal(size=(K, D))[rng.integers(K, size=N)] + rng.normal(size=(N, D))
    point, component = ng.Plate("point", N), ng.Plate("component", K)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=K), plate=point)
    mu = ng.MultivariateNormal("mu", 0.0, 0.01, size=D, plate=component)
    tau = ng.Wishart("tau", D, np.eye(D), plate=component)
    x = ng.MultivariateNormal("x", mu[z], tau[z], plate=point, observed=points)
    return Case(ng.Network(x), "point", N // 50)


def _topics(quick: bool) -> Case:
    from scipy import sparse

    n_docs, K = (100, 5) if quick else (500, 50)
    counts = sparse.load_npz(ABSTRACTS)[:n_docs].tocoo()
    words, word = np.unique(counts.col, return_inverse=True)  # words that occur in these documents
    cell = ng.Plate("cell", len(word), weight=counts.data.astype(np.int64))
    theta = ng.Dirichlet("theta", 0.5, size=K, plate=ng.Plate("doc", int(counts.row.max()) + 1))
    phi = ng.Dirichlet("phi", 0.1, size=len(words), plate=ng.Plate("topic", K))
    z = ng.Categorical("z", theta[counts.row.astype(np.int64)], plate=cell)
    return Case(ng.Network(ng.Categorical("w", phi[z], plate=cell, observed=word)), "doc", n_docs // 50)


def _chain(quick: bool) -> Case:
    rng = np.random.default_rng(0)
    S, T, K = (100, 10, 3) if quick else (200, 50, 5)
    moves = 0.8 * np.eye(K) + 0.2 / K
    path = np.empty((S, T), dtype=np.int64)
    path[:, 0] = rng.integers(K, size=S)
    for t in range(1, T):
        path[:, t] = (moves[path[:, t - 1]].cumsum(1)[:, :-1] < rng.random((S, 1))).sum(1)
    values = 1.5 * path + rng.normal(size=(S, T))
    sequence, time, state = ng.Plate("sequence", S), ng.Plate("time", T), ng.Plate("state", K)
    initial, transition = ng.Dirichlet("initial", 1.0, size=K), ng.Dirichlet("transition", 1.0, size=K, plate=state)
    z = ng.MarkovChain("z", initial, transition, plate=(sequence, time))
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
    y = ng.Normal("y", mu[z], tau[z], plate=(sequence, time), observed=values)
    return Case(ng.Network(y), "sequence", S // 50)


def _factorisation(quick: bool, vectors: bool) -> Case:
    from natgrad.reproduce.paquet_runs import declare

    data = paper_ratings(300, 500, 10_000) if quick else paper_ratings(1500, 3000, 100_000)
    if not vectors:
        return Case(declare(data))
    K = 5
    user, item = ng.Plate("user", data.n_users), ng.Plate("item", data.n_items)
    u = ng.MultivariateNormal("u", np.zeros(K), np.eye(K), plate=user)
    v = ng.MultivariateNormal("v", np.zeros(K), np.eye(K), plate=item)
    plate = ng.Plate("rating", len(data.values))
    r = ng.Normal("r", ng.dot(u[data.users], v[data.items]), 1.0, plate=plate, observed=data.values)
    return Case(ng.Network(r))


def _pca(quick: bool) -> Case:
    rng = np.random.default_rng(0)
    N, D, K = (200, 10, 3) if quick else (2000, 30, 6)
    values = rng.normal(size=(N, K)) @ rng.normal(size=(K, D)) + rng.normal(size=(N, D))
    row, column = ng.Plate("row", N), ng.Plate("column", D)
    w = ng.MultivariateNormal("w", np.zeros(K), np.eye(K), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(K), np.eye(K), plate=row)
    y = ng.Normal("y", ng.dot(w, x), ng.Gamma("tau", 1e-3, 1e-3), plate=(row, column), observed=values)
    return Case(ng.Network(y))
