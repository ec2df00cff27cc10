"""Likes alone, for `benchmarks/factorization.py`: a generated set in which taste decides, and models judged by held-out likes."""

import time

import numpy as np

import natgrad as ng
from natgrad.data.datasets.generated.ratings import paper_ratings
from natgrad.models.factorization.metrics import ranking_scores

SHOWN = 20


def generated(n_users=2000, n_items=3000, n_likes=200_000, rank=5, strength=1.0, seed=0):
    """Train, test, shape, and the true order of every user's items.

    Users and items are as busy and as popular as in the generated ratings; a user draws items without replacement in
    proportion to popularity · exp(taste · trait), where taste · trait has the standard deviation ``strength``.
    """
    rng = np.random.default_rng(seed)
    like = paper_ratings(n_users, n_items, n_likes)
    degree = np.bincount(like.users, minlength=n_users)
    popularity = np.log(np.bincount(like.items, minlength=n_items))
    scale = np.sqrt(strength / np.sqrt(rank))
    taste, trait = scale * rng.normal(size=(n_users, rank)), scale * rng.normal(size=(n_items, rank))
    weight = popularity + taste @ trait.T
    race = weight + rng.gumbel(size=weight.shape)
    chosen = [np.argpartition(-race[user], n - 1)[:n] for user, n in enumerate(degree)]
    users, items = np.repeat(np.arange(n_users), degree), np.concatenate(chosen)
    held = np.zeros(len(users), dtype=bool)
    held[rng.permutation(len(users))[: len(users) // 10]] = True
    ones = np.ones(len(users))
    train, test = ([part[some] for part in (users, items, ones)] for some in (~held, held))
    return train, test, (n_users, n_items), weight


def compared(train, test, shape, truth, rank, ask):
    """Measures of natgrad, of popularity, of implicit's models, and of the truth where it is known."""
    order = np.argsort(test[0], kind="stable")
    start = np.searchsorted(test[0][order], np.arange(shape[0] + 1))

    def judged(best):
        ten, twenty = (ranking_scores(best[:, :k].astype(np.int64), start, test[1][order]) for k in (10, SHOWN))
        return {"ndcg@10": ten["ndcg"], "recall@20": twenty["recall"], "map@10": ten["map"]}

    ratings = ng.data.Ratings(*train, shape=shape)
    began = time.perf_counter()
    model = ng.MatrixFactorization(rank, likelihood="bernoulli", n_negatives=2, max_steps=25, verbose=False).fit(
        ratings
    )
    seconds = time.perf_counter() - began
    best = model._best(None, SHOWN, True)[0]
    found = {"natgrad": {"version": f"natgrad {ng.__version__}", "seconds": seconds, **judged(best)}}
    popular = np.bincount(train[1], minlength=shape[1]).astype(np.float64)
    known = {"popularity": np.broadcast_to(popular, shape)} | ({} if truth is None else {"the truth": truth})
    for name, scores in known.items():
        found[name] = {"version": "", "seconds": 0.0, **judged(_best_unseen(scores, ratings))}
    for name in ("implicit_als", "implicit_bpr"):
        facts, answer = ask(name, train, test, shape)
        found[name] = {**facts, **judged(answer["best"])}
    return found


def _best_unseen(scores, ratings):
    """The best items that each user has not seen."""
    rows, best = ratings.sorted_by_user, np.empty((ratings.n_users, SHOWN), dtype=np.int64)
    for user in range(ratings.n_users):
        mine = np.array(scores[user])
        mine[rows.other[rows.start[user] : rows.start[user + 1]]] = -np.inf
        best[user] = np.argsort(-mine, kind="stable")[:SHOWN]
    return best
