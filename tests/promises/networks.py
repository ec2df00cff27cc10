"""Small networks that many tests run on: every node, every expression, each with data drawn from a seed."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import natgrad as ng


class Case(NamedTuple):
    network: ng.Network
    init: Any = None
    order: list[str] | None = None


def mixture(seed: int = 0, n: int = 30) -> Case:
    rng = np.random.default_rng(seed)
    y = np.array([[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]])[rng.integers(0, 3, n)] + 0.5 * rng.normal(size=(n, 2))
    point, component = ng.Plate("point", n), ng.Plate("component", 3)
    alpha = ng.Dirichlet("alpha", 1.0, size=3)
    z = ng.Categorical("z", alpha, plate=point)
    mu = ng.MultivariateNormal("mu", np.zeros(2), 0.1 * np.eye(2), plate=component)
    precision = ng.Wishart("Lambda", 3.0, np.eye(2), plate=component)
    x = ng.MultivariateNormal("y", mu[z], precision[z], plate=point, observed=y)
    return Case(ng.Network(x), {"mu": y[:3] + 0.1}, ["z", "mu", "Lambda", "alpha"])


def scalar_mixture(seed: int = 0, n: int = 24, weight: Any = None, y: Any = None) -> Case:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, -2.0, 1.5) + 0.4 * rng.normal(size=n) if y is None else np.asarray(y)
    point, component = ng.Plate("point", len(y), weight=weight), ng.Plate("component", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=point)
    mu = ng.Normal("mu", 0.0, 0.1, plate=component)
    tau = ng.Gamma("tau", 2.0, 1.0, plate=component)
    return Case(
        ng.Network(ng.Normal("y", mu[z], tau[z], plate=point, observed=y)), {"mu": [-1.0, 1.0]}, ["z", "mu", "tau"]
    )


def pca(seed: int = 0, missing: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(20, 6))
    if missing:
        y[rng.random(y.shape) < 0.2] = np.nan
    row, column, factor = ng.Plate("row", 20), ng.Plate("column", 6), ng.Plate("factor", 2)
    ard = ng.Gamma("ard", 1.0, 1.0, plate=factor)
    w = ng.MultivariateNormal("w", np.zeros(2), ng.diag(ard), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    tau = ng.Gamma("tau", 1.0, 1.0)
    y_node = ng.Normal("y", ng.dot(w, x), tau, plate=(row, column), observed=y)
    return Case(ng.Network(y_node), {"w": rng.normal(size=(6, 2))}, ["x", "w", "ard", "tau"])


def ratings(seed: int = 0, n_users: int = 8, n_items: int = 6, n_ratings: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    users = np.concatenate([np.arange(n_users), rng.integers(0, n_users, n_ratings - n_users)])
    items = np.concatenate([np.arange(n_items), rng.integers(0, n_items, n_ratings - n_items)])
    values = np.round(3 + rng.normal(size=n_ratings)).clip(1, 5)
    return {"users": users, "items": items, "values": values, "shape": (n_users, n_items)}


def factorised(seed: int = 0, size: int = 3, **options: Any) -> Case:
    """The paper's model: every scalar u_mk, v_nk a factor of its own (eq. 7)."""
    r = ratings(seed, **options)
    user, item = ng.Plate("user", r["shape"][0]), ng.Plate("item", r["shape"][1])
    rating, factor = ng.Plate("rating", len(r["values"])), ng.Plate("factor", size)
    u = ng.Normal("u", 0.0, 1.0, plate=(user, factor))
    v = ng.Normal("v", 0.0, 1.0, plate=(item, factor))
    y = ng.Normal("r", ng.dot(u[r["users"]], v[r["items"]]), 1.0, plate=rating, observed=r["values"])
    return Case(ng.Network(y), "random", ["u", "v"])


def blocks(seed: int = 0, size: int = 2) -> Case:
    """Block factors with user and item biases, a global mean and learned noise."""
    r = ratings(seed)
    user, item, rating = ng.Plate("user", 8), ng.Plate("item", 6), ng.Plate("rating", 40)
    u = ng.MultivariateNormal("u", np.zeros(size), np.eye(size), plate=user)
    v = ng.MultivariateNormal("v", np.zeros(size), np.eye(size), plate=item)
    bias = ng.Normal("bias", 0.0, 1.0, plate=user)
    tau = ng.Gamma("tau", 1.0, 1.0)
    mean = ng.dot(u[r["users"]], v[r["items"]]) + bias[r["users"]] + 3.0
    return Case(ng.Network(ng.Normal("r", mean, tau, plate=rating, observed=r["values"])), "random")


def lda(seed: int = 0, counts: bool = True) -> Case:
    rng = np.random.default_rng(seed)
    table = rng.poisson(0.8, size=(7, 9)) + np.eye(7, 9, dtype=int)
    docs, words = np.nonzero(table)
    weight = table[docs, words]
    if not counts:
        docs, words, weight = np.repeat(docs, weight), np.repeat(words, weight), None
    doc, cell, topic = ng.Plate("doc", 7), ng.Plate("cell", len(docs), weight=weight), ng.Plate("topic", 3)
    theta = ng.Dirichlet("theta", 0.5, size=3, plate=doc)
    phi = ng.Dirichlet("phi", 0.3, size=9, plate=topic)
    z = ng.Categorical("z", theta[docs], plate=cell)
    w = ng.Categorical("w", phi[z], plate=cell, observed=words)
    start = np.random.default_rng(5)
    return Case(
        ng.Network(w),
        {"phi": start.dirichlet(np.ones(9), 3), "theta": start.dirichlet(np.ones(3), 7)},
        ["z", "phi", "theta"],
    )


def hmm(seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    y = np.repeat([-2.0, 2.0, -2.0, 2.0], 8) + 0.7 * rng.normal(size=32)
    sequence, time, state = ng.Plate("sequence", 4), ng.Plate("time", 8), ng.Plate("state", 2)
    pi = ng.Dirichlet("pi", 1.0, size=2)
    rows = ng.Dirichlet("A", [[3.0, 1.0], [1.0, 3.0]], plate=state)
    z = ng.MarkovChain("z", pi, rows, plate=(sequence, time))
    mu = ng.Normal("mu", 0.0, 0.1, plate=state)
    tau = ng.Gamma("tau", 1.0, 1.0, plate=state)
    x = ng.Normal("y", mu[z], tau[z], plate=(sequence, time), observed=y.reshape(4, 8))
    return Case(ng.Network(x), {"mu": [-1.0, 1.0]}, ["z", "mu", "tau", "pi", "A"])


def counts(seed: int = 0) -> Case:
    """A hierarchical Poisson–Gamma model with known exposures."""
    rng = np.random.default_rng(seed)
    group, unit = ng.Plate("group", 4), ng.Plate("unit", 20)
    where, exposure = rng.integers(0, 4, 20), rng.uniform(0.5, 2.0, 20)
    rate = ng.Gamma("rate", 2.0, 1.0)
    theta = ng.Gamma("theta", 3.0, rate, plate=group)
    x = ng.Poisson("x", theta[where] * exposure, plate=unit, observed=rng.poisson(3.0, 20))
    return Case(ng.Network(x))


def several(seed: int = 0) -> Case:
    """Many nodes at once: Beta with Bernoulli and Binomial, Exponential, Multinomial, a vector sum, a hidden Normal."""
    rng = np.random.default_rng(seed)
    n = ng.Plate("n", 10)
    p = ng.Beta("p", 2.0, 2.0)
    rate = ng.Gamma("rate", 2.0, 1.0)
    share = ng.Dirichlet("share", [1.0, 2.0, 3.0])
    a = ng.MultivariateNormal("a", np.zeros(2), np.eye(2))
    b = ng.MultivariateNormal("b", np.zeros(2), np.eye(2), plate=n)
    level = ng.Normal("level", 0.0, 0.1)
    hidden = ng.Normal("hidden", level, 2.0, plate=n)
    leaves = [
        ng.Bernoulli("flip", p, plate=n, observed=rng.integers(0, 2, 10)),
        ng.Binomial("wins", 5, p, plate=n, observed=rng.integers(0, 6, 10)),
        ng.Exponential("wait", rate, plate=n, observed=rng.exponential(size=10)),
        ng.Multinomial("votes", None, share, plate=n, observed=rng.integers(0, 4, (10, 3))),
        ng.MultivariateNormal("place", a + b, 2.0 * np.eye(2), plate=n, observed=rng.normal(size=(10, 2))),
        ng.Normal("seen", 2.0 * hidden - 1.0, 3.0, plate=n, observed=rng.normal(size=10)),
    ]
    return Case(ng.Network(*leaves))


def skills(seed: int = 0) -> Case:
    """Every game reads the same node twice."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 7, 30)
    second = (first + 1 + rng.integers(0, 6, 30)) % 7
    skill = ng.Normal("skill", 0.0, 0.5, plate=ng.Plate("player", 7))
    noise = ng.Gamma("noise", 2.0, 2.0)
    score = skill[first] - skill[second]
    y = ng.Normal("margin", score, noise, plate=ng.Plate("game", 30), observed=rng.normal(size=30))
    return Case(ng.Network(y))


def augmented(seed: int = 0) -> Case:
    """Leaves that are conjugate by an auxiliary variable, on one plate and beside one another; some values are missing."""
    rng = np.random.default_rng(seed)
    n, k, cut = ng.Plate("n", 9), ng.Plate("k", 2), ng.Plate("cut", 2)
    x = rng.normal(size=(9, 2))
    w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    theta = ng.Gamma("theta", [1.0, 2.0], 1.0, plate=k)
    tau, stick = ng.HalfCauchy("tau", 1.0), ng.Normal("stick", 0.0, 1.0, plate=cut)
    mean, flips = ng.dot(x, w), rng.integers(0, 2, 9).astype(float)
    flips[4] = np.nan
    leaves = [
        ng.Bernoulli("logit", logit=mean, plate=n, observed=flips),
        ng.Bernoulli("probit", probit=mean, plate=n, observed=flips),
        ng.StudentT("student", mean, tau, df=3.0, plate=n, observed=rng.standard_t(3, 9)),
        ng.Laplace("laplace", mean, tau, plate=n, observed=rng.laplace(size=9)),
        ng.Poisson("counts", ng.dot(rng.uniform(size=(9, 2)), theta) + 0.5, plate=n, observed=rng.poisson(2.0, 9)),
        ng.Categorical("kinds", logits=stick, plate=n, observed=rng.integers(0, 3, 9)),
    ]
    return Case(ng.Network(*leaves))


# Cached: a network keeps what it compiled, and the tests only read it.
CASES: dict[str, Callable[[], Case]] = {
    "mixture": cache(mixture),
    "scalar_mixture": cache(scalar_mixture),
    "pca": cache(pca),
    "pca_missing": cache(lambda: pca(missing=True)),
    "factorised": cache(factorised),
    "blocks": cache(blocks),
    "lda": cache(lda),
    "hmm": cache(hmm),
    "counts": cache(counts),
    "several": cache(several),
    "skills": cache(skills),
    "augmented": cache(augmented),
}
