"""Likes alone, for `benchmarks/factorization.py likes`: models judged by a fifth of each user's likes, held out.

Peers are tuned on another fifth of what is left, by NDCG@10 over the grids below, and fitted anew to all of it; their time is
that of the last fit and of recommending to everybody, without the tuning. That of natgrad includes its own.
"""

import json
import time

import numpy as np
import scipy.linalg
import scipy.sparse

import natgrad as ng

SHOWN = 20


def generated(n_users=2000, n_items=3000, n_likes=200_000, rank=5, strength=1.0, seed=0, with_taste=1.0):
    """Users and items of likes, shape, and the true order of every user's items.

    Users and items are as busy and as popular as in the generated ratings; a user draws items without replacement in
    proportion to popularity · exp(taste · trait), where taste · trait has the standard deviation ``strength``. A share
    ``with_taste`` of the users have one, the others take what is popular.
    """
    rng = np.random.default_rng(seed)
    like = ng.data.make_ratings(n_users, n_items, n_likes).ratings
    degree = np.bincount(like.users, minlength=n_users)
    popularity = np.log(np.bincount(like.items, minlength=n_items))
    scale = np.sqrt(strength / np.sqrt(rank))
    taste, trait = scale * rng.normal(size=(n_users, rank)), scale * rng.normal(size=(n_items, rank))
    if with_taste < 1.0:
        taste[rng.random(n_users) >= with_taste] = 0.0
    weight = popularity + taste @ trait.T
    race = weight + rng.gumbel(size=weight.shape)
    chosen = [np.argpartition(-race[user], n - 1)[:n] for user, n in enumerate(degree)]
    users, items = np.repeat(np.arange(n_users), degree), np.concatenate(chosen)
    return users, items, (n_users, n_items), weight


def films(n_users=6000, n_items=3500, n_likes=1_000_000, rank=12, seed=0):
    """As `generated`, of the size and the skew of a set of films: some busy users, many genres, and series that go together."""
    rng = np.random.default_rng(seed)
    degree = 20 + rng.lognormal(4.3, 1.1, n_users)
    degree = np.minimum(degree * (n_likes / degree.sum()), 0.5 * n_items).astype(np.int64)
    depth = (1.0 + np.arange(rank)) ** -0.5
    depth *= 2.0 / np.sqrt((depth**2).sum())
    weight = (rng.normal(size=(n_users, rank)) * depth) @ rng.normal(size=(rank, n_items))
    series = rng.integers(0, n_items // 6, n_items)
    weight += 2.0 * rng.normal(size=n_items) + 0.8 * rng.normal(size=(n_users, n_items // 6))[:, series]
    race = weight + rng.gumbel(size=weight.shape)
    chosen = [np.argpartition(-race[user], n - 1)[:n] for user, n in enumerate(degree)]
    return np.repeat(np.arange(n_users), degree), np.concatenate(chosen), (n_users, n_items), weight


def crowd():
    """Likes that popularity alone decides, of another size."""
    return generated(4000, 1500, 250_000, strength=0.0, seed=11)


def half_and_half():
    """A third of the users have a taste, and a weaker one; the others take what is popular."""
    return generated(3000, 2000, 200_000, rank=8, strength=0.7, seed=12, with_taste=1.0 / 3.0)


def held_out(users, items, rng, share=0.2):
    """Flags: this share of the likes of each user."""
    order = np.lexsort((rng.random(len(users)), users))
    degree = np.bincount(users)
    rank = np.arange(len(users)) - np.repeat(np.cumsum(degree) - degree, degree)
    flags = np.zeros(len(users), dtype=bool)
    flags[order] = rank < np.round(share * np.repeat(degree, degree))
    return flags


def judged(best, users, items, n_users):
    """NDCG@10 and recall@20 of the best items of each user."""
    liked = _matrix(users, items, (n_users, 1 + max(items.max(), best.max())))
    hits = np.stack([liked[row, best[row]].toarray().ravel() for row in range(n_users)]) * (best >= 0)
    degree = np.bincount(users, minlength=n_users)
    gains = 1.0 / np.log2(np.arange(2, 12))
    ideal = np.concatenate([[1.0], np.cumsum(gains)])[np.minimum(degree, 10)]
    some = degree > 0
    ndcg, recall = (hits[:, :10] @ gains / ideal)[some], (hits[:, :SHOWN].sum(1)[some] / degree[some])
    return {"ndcg@10": float(ndcg.mean()), "recall@20": float(recall.mean())}


def best_unseen(scores_of, seen):
    """The best items that each user has not seen; ``scores_of`` takes a slice of users."""
    best = np.empty((seen.shape[0], SHOWN), dtype=np.int64)
    for first in range(0, seen.shape[0], 500):
        some = slice(first, first + 500)
        scores = np.array(scores_of(some), dtype=np.float32)
        scores[seen[some].nonzero()] = -np.inf
        top = np.argpartition(-scores, SHOWN - 1, axis=1)[:, :SHOWN]
        order = np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable")
        best[some] = np.take_along_axis(top, order, 1)
    return best


def ease(seen, ridge):
    """Steck (2019): the ridge regression of each item on all others, in closed form."""
    many = seen.shape[1] > MOST_ITEMS
    gram = (seen.astype(np.float32 if many else np.float64).T @ seen).toarray(order="F")
    gram[np.diag_indices_from(gram)] += ridge
    factorise, invert = scipy.linalg.get_lapack_funcs(("potrf", "potri"), (gram,))
    factor, _ = factorise(gram, lower=1, overwrite_a=1, clean=0)
    inverse, _ = invert(factor, lower=1, overwrite_c=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = (inverse / -np.diagonal(inverse)).astype(np.float32)
    np.fill_diagonal(weights, 0.0)
    return best_unseen(lambda some: seen[some].astype(np.float32) @ weights, seen)


EASE_GRID = (20, 50, 100, 200, 500, 1000, 2000, 5000)
MOST_ITEMS, FEW_RIDGES = 6000, (200, 1000, 5000)  # of EASE: beyond, in single precision and with fewer ridges


EVERYBODY = ("natgrad", "known", "EASE", "ALS", "BPR", "BM25")


def compared(users, items, shape, truth, ask, who=EVERYBODY, seed=0):
    """Measures and processor seconds of natgrad, and of popularity, EASE, implicit's models, and the truth where it is known."""
    rng = np.random.default_rng(seed)
    test = held_out(users, items, rng)
    train = users[~test], items[~test]
    tuning = held_out(*train, rng)
    score = lambda best: judged(best, users[test], items[test], shape[0])  # noqa: E731
    found = {}
    if "natgrad" in who:
        found |= _natgrad(train, shape, score)
    if "known" in who:
        found |= _known_orders(train, shape, truth, score)
    if "EASE" in who:
        found["EASE"] = _tuned_ease(train, tuning, shape, score)
    if models := [name for name in ("ALS", "BPR", "BM25") if name in who]:
        held = {"tuning": tuning, "held_user": train[0][tuning], "held_item": train[1][tuning], "models": models}
        ones = np.ones(len(train[0]))
        facts, answer = ask("implicit_tuned", (*train, ones), (users[test], items[test]), shape, **held)
        for name, row in json.loads(facts["rows"]).items():
            found[name] = {**row, "version": facts["version"], **score(answer[name])}
    return found


def _natgrad(train, shape, score):
    """The one-class factorisation and the Wishart over items with their defaults, and both stacked."""
    ratings = ng.data.Ratings(*train, np.ones(len(train[0])), shape=shape)
    factors = ng.MatrixFactorization(likelihood="bernoulli", n_jobs=1, verbose=False)
    items = ng.recommenders.ItemWishart()
    models = {"natgrad, one class": factors, "natgrad, items": items}
    models["natgrad, stacked"] = ng.recommenders.Stacked([factors, items])
    found = {}
    for name, model in models.items():
        began = time.process_time()
        scores = model.fit(ratings).scores()
        seconds = time.process_time() - began
        best = best_unseen(lambda some, scores=scores: scores[some], _matrix(*train, shape))
        chosen = {"natgrad, items": "ridge_", "natgrad, stacked": "weights_"}.get(name)
        found[name] = {"cpu": seconds, "chosen": f"{chosen} {getattr(model, chosen)}" if chosen else "", **score(best)}
    return found


def _matrix(users, items, shape):
    return scipy.sparse.csr_matrix((np.ones(len(users)), (users, items)), shape=shape)


def _known_orders(train, shape, truth, score):
    """Popularity, and the order that made the likes."""
    seen = _matrix(*train, shape)
    popular = np.asarray(seen.sum(0)).ravel()
    known = {"popularity": lambda some: np.broadcast_to(popular, (len(range(*some.indices(shape[0]))), shape[1]))}
    if truth is not None:
        known["the truth"] = lambda some: truth[some]
    return {name: {"cpu": 0.0, "chosen": "", **score(best_unseen(scores, seen))} for name, scores in known.items()}


def _tuned_ease(train, tuning, shape, score):
    part = _matrix(train[0][~tuning], train[1][~tuning], shape)
    held = train[0][tuning], train[1][tuning], shape[0]
    grid = EASE_GRID if shape[1] <= MOST_ITEMS else FEW_RIDGES
    ridge = max(grid, key=lambda ridge: judged(ease(part, ridge), *held)["ndcg@10"])
    seen = _matrix(*train, shape)
    began = time.process_time()
    best = ease(seen, ridge)
    return {"cpu": time.process_time() - began, "chosen": f"ridge {ridge}", "grid": f"ridges {grid}", **score(best)}
