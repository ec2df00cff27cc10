"""Small data of the first-fit benchmark, drawn from models like those of public examples; NumPy alone, for both libraries."""

from typing import Any

import numpy as np

__all__ = ["data_of"]


def data_of(name: str) -> dict[str, Any]:
    """The arrays of one model, always the same."""
    return globals()[f"_{name}"](np.random.default_rng(0))


def _coin(rng):
    return {"y": (rng.random(20) < 0.3).astype(int)}


def _binomial(rng):
    n = rng.integers(5, 20, 12)
    return {"n": n, "y": rng.binomial(n, 0.4)}


def _dice(rng):
    return {"y": rng.integers(0, 6, 60)}


def _votes(rng):
    return {"y": rng.multinomial(20, [0.5, 0.3, 0.2], 8)}


def _normal(rng):
    return {"y": 3.0 + 2.0 * rng.normal(size=50)}


def _covariance(rng):
    return {"y": rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3)) + 1.0}


def _regression(rng):
    x = np.column_stack([np.ones(60), rng.normal(size=(60, 2))])
    return {"x": x, "y": x @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=60)}


def _ard(rng):
    x = rng.normal(size=(100, 10))
    w = np.where(np.arange(10) < 3, 2.0, 0.0)
    return {"x": x, "y": x @ w + 0.5 * rng.normal(size=100)}


def _autoregression(rng):
    y = np.zeros(120)
    for t in range(2, 120):
        y[t] = 0.6 * y[t - 1] - 0.3 * y[t - 2] + rng.normal()
    return {"x": np.column_stack([y[1:-1], y[:-2]]), "y": y[2:]}


def _hierarchical(rng):
    group = np.repeat(np.arange(8), 6)
    return {"group": group, "y": (2.0 + rng.normal(size=8))[group] + rng.normal(size=48)}


def _schools(rng):
    return {
        "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
        "se": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    }


def _rats(rng):
    days = np.array([8.0, 15.0, 22.0, 29.0, 36.0]) - 22.0
    start, slope = 240.0 + 10.0 * rng.normal(size=30), 6.0 + 0.5 * rng.normal(size=30)
    return {"days": days, "y": start[:, None] + slope[:, None] * days + 6.0 * rng.normal(size=(30, 5))}


def _radon(rng):
    county, floor = rng.integers(0, 40, 300), rng.integers(0, 2, 300).astype(float)
    y = (1.4 + 0.3 * rng.normal(size=40))[county] - 0.7 * floor + 0.7 * rng.normal(size=300)
    return {"county": county, "floor": floor, "y": y}


def _anova(rng):
    return {"y": rng.normal(size=(6, 1)) + rng.normal(size=(1, 5)) + 0.5 * rng.normal(size=(6, 5))}


def _pumps(rng):
    time = rng.uniform(1.0, 100.0, 10)
    return {"time": time, "y": rng.poisson(rng.gamma(1.0, 0.5, 10) * time)}


def _survival(rng):
    arm = rng.integers(0, 2, 60)
    return {"arm": arm, "y": rng.exponential(np.array([1.0, 2.5])[arm])}


def _measurement(rng):
    x = rng.normal(size=40)
    return {"x": x + 0.3 * rng.normal(size=40), "y": 1.0 + 2.0 * x + 0.3 * rng.normal(size=40)}


def _mixture1d(rng):
    return {"y": rng.normal([-3.0, 0.0, 4.0], 1.0, (500, 3)).ravel()}


_readme = _mixture1d


def _faithful(rng):
    long = rng.random(272) < 0.64
    wait = np.where(long, 80.0, 54.5) + 5.8 * rng.normal(size=272)
    return {"y": np.column_stack([np.where(long, 4.3, 2.0) + 0.35 * rng.normal(size=272), wait / 10.0])}


def _bernoullis(rng):
    p = rng.beta(0.5, 0.5, (3, 12))
    return {"y": (rng.random((100, 12)) < p[rng.integers(0, 3, 100)]).astype(int)}


def _poissons(rng):
    return {"y": rng.poisson(np.array([1.0, 6.0, 20.0])[rng.integers(0, 3, 150)])}


def _zeros(rng):
    return {"y": np.where(rng.random(120) < 0.4, 0, rng.poisson(4.0, 120))}


def _outliers(rng):
    x = np.column_stack([np.ones(60), rng.normal(size=60)])
    noise = np.where(rng.random(60) < 0.1, 8.0, 0.3) * rng.normal(size=60)
    return {"x": x, "y": x @ [1.0, 2.0] + noise}


def _switching(rng):
    x = np.column_stack([np.ones(100), rng.normal(size=100)])
    w = np.array([[0.0, 2.0], [1.0, -2.0]])[rng.integers(0, 2, 100)]
    return {"x": x, "y": (x * w).sum(1) + 0.3 * rng.normal(size=100)}


def _lda(rng):
    topics = rng.dirichlet(np.full(30, 0.2), 3)
    counts = np.array([rng.multinomial(40, rng.dirichlet(np.full(3, 0.3)) @ topics) for _ in range(20)])
    documents, words = np.nonzero(counts)
    repeat = counts[documents, words]
    return {"document": np.repeat(documents, repeat), "word": np.repeat(words, repeat), "shape": (20, 30)}


def _pca(rng):
    return {"y": rng.normal(size=(50, 2)) @ rng.normal(size=(2, 8)) + 0.2 * rng.normal(size=(50, 8))}


def _missing(rng):
    y = _pca(rng)["y"]
    return {"y": np.where(rng.random(y.shape) < 0.2, np.nan, y)}


def _factors(rng):
    noise = rng.uniform(0.1, 1.0, 8)
    return {"y": rng.normal(size=(60, 2)) @ rng.normal(size=(2, 8)) + noise * rng.normal(size=(60, 8))}


def _ratings(rng):
    user, item = rng.integers(0, 12, 80), rng.integers(0, 9, 80)
    u, v = rng.normal(size=(12, 2)), rng.normal(size=(9, 2))
    return {"user": user, "item": item, "y": (u[user] * v[item]).sum(1) + 0.3 * rng.normal(size=80), "shape": (12, 9)}


def _chain(rng, length: int, states: int) -> Any:
    z = np.zeros(length, dtype=int)
    for t in range(1, length):
        z[t] = z[t - 1] if rng.random() < 0.9 else rng.integers(states)
    return z


def _discrete_hmm(rng):
    p = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    return {"y": np.array([rng.choice(3, p=p[z]) for z in _chain(rng, 100, 2)])}


def _gaussian_hmm(rng):
    return {"y": np.array([-3.0, 0.0, 3.0])[_chain(rng, 200, 3)] + 0.7 * rng.normal(size=200)}


def _factorial_hmm(rng):
    first, second = np.array([0.0, 4.0]), np.array([0.0, 1.5])
    return {"y": first[_chain(rng, 120, 2)] + second[_chain(rng, 120, 2)] + 0.3 * rng.normal(size=120)}


def _annotators(rng):
    truth = rng.integers(0, 3, 40)
    item, person = np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40)
    right = rng.random(200) < 0.75
    return {"item": item, "person": person, "y": np.where(right, truth[item], rng.integers(0, 3, 200))}


def _blocks(rng):
    group = rng.integers(0, 2, 20)
    p = np.array([[0.7, 0.1], [0.1, 0.6]])
    first, second = np.triu_indices(20, 1)
    y = (rng.random(len(first)) < p[group[first], group[second]]).astype(int)
    return {"first": first, "second": second, "y": y}


def _skills(rng):
    first = rng.integers(0, 10, 60)
    second = (first + 1 + rng.integers(0, 9, 60)) % 10
    skill = rng.normal(size=10)
    return {"first": first, "second": second, "y": skill[first] - skill[second] + 0.5 * rng.normal(size=60)}


def _sprinkler(rng):
    return {
        "sprinkler": np.array([[0.5, 0.5], [0.9, 0.1]]),
        "rain": np.array([[0.8, 0.2], [0.2, 0.8]]),
        "grass": np.array([[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]]),
    }


def _bayes(rng):
    label = rng.integers(0, 3, 60)
    p = rng.dirichlet(np.ones(4), (3, 5))
    words = np.array([[rng.choice(4, p=p[k, j]) for j in range(5)] for k in label])
    return {"label": label[:50], "words": words[:50], "new": words[50:]}
