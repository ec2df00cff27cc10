"""Random declarations of augmented leaves: whatever is read, at whatever scale, the bound never falls and nothing is NaN."""

import numpy as np
import pytest

import natgrad as ng

pytestmark = pytest.mark.filterwarnings("ignore::natgrad.errors.PoorApproximation")
SIZES = (1, 2, 7, 23)


def reading(rng, n, scale):
    """What a leaf reads: a dot, gathers, gates, products, sums and known multiples of these; and the plate it lies on."""
    row = ng.Plate("row", n)
    w = ng.MultivariateNormal("w", np.zeros(2), float(10.0 ** rng.uniform(-3, 2)))
    parts = [ng.dot(scale * rng.normal(size=(n, 2)), w)]
    group = ng.Plate("group", 3)
    tau = rng.choice([0, 1, 2])
    precision = [1.0, ng.Gamma("spread", 1.0, 1.0), ng.HalfCauchy("spread", 1.0)][tau]
    effect = ng.Normal("effect", 0.0, precision, plate=group)
    if rng.random() < 0.6:
        parts.append(effect[rng.integers(0, 3, n)])
    elif rng.random() < 0.4:
        z = ng.Categorical("z", [0.2, 0.3, 0.5], plate=row)
        parts.append(effect[z])
    if rng.random() < 0.3:
        parts.append(ng.Normal("a", 0.0, 1.0) * ng.Normal("b", 1.0, 1.0, plate=row))
    if rng.random() < 0.3:
        parts.append(scale * ng.Laplace("sparse", 0.0, 1.0))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return row, total


def leaf(rng, row, mean, scale):
    """A random leaf with data that fit it, some missing."""
    n = row.size
    kind = rng.integers(0, 10)
    real = scale * rng.standard_t(2, n)
    tau = ng.Gamma("tau", 1.0, 1.0) if rng.random() < 0.5 else float(10.0 ** rng.uniform(-2, 2))
    flags = rng.random(n) < 0.5
    count = rng.negative_binomial(1, 0.2, n).astype(float)
    if rng.random() < 0.3 and n > 2:
        gone = rng.integers(0, n)
        real[gone], count[gone] = np.nan, np.nan
    binary = np.where(np.isnan(count), np.nan, (count > 2) * 1.0)
    rank = np.where(np.isnan(count), np.nan, np.clip(count, 0, 3))
    cuts = np.sort(scale * rng.normal(size=3)) + np.arange(3) * 1e-3
    made = {
        0: lambda: ng.Bernoulli("y", logit=mean, plate=row, observed=binary),
        1: lambda: ng.Bernoulli("y", probit=mean, plate=row, observed=binary),
        2: lambda: ng.Binomial("y", 50, logit=mean, plate=row, observed=np.minimum(count, 50)),
        3: lambda: ng.NegativeBinomial("y", float(rng.gamma(2.0)) + 0.01, logit=mean, plate=row, observed=count),
        4: lambda: ng.StudentT("y", mean, tau, df=float(rng.uniform(0.5, 30)), plate=row, observed=real),
        5: lambda: ng.Laplace("y", mean, tau, plate=row, observed=real),
        6: lambda: ng.LogNormal(
            "y", mean, tau, plate=row, observed=ng.censored(np.exp(np.clip(real, -50, 50)), right=flags)
        ),
        7: lambda: ng.Normal("y", mean, tau, plate=row, observed=ng.censored(real, left=flags)),
        8: lambda: ng.Normal("y", mean, tau, plate=row, observed=ng.censored(real - 0.1 * scale, real + 0.1 * scale)),
        9: lambda: ng.Ordinal("y", mean, tau, cutpoints=cuts, plate=row, observed=rank),
    }
    return made[int(kind)]()


def softmax_leaf(rng, row, scale):
    """Scores of kinds: rows of vectors, effects of groups for each kind, mixtures of these; or a vector. Some are missing."""
    n, kinds = row.size, int(rng.integers(2, 6))
    seen = rng.integers(0, kinds, n).astype(float)
    if rng.random() < 0.3 and n > 2:
        seen[rng.integers(0, n)] = np.nan
    kind, precision = ng.Plate("kind", kinds), float(10.0 ** rng.uniform(-3, 2))
    if rng.random() < 0.2:
        scores = ng.MultivariateNormal("w", scale * rng.normal(size=kinds), precision)
        return ng.Categorical("y", softmax=scores, plate=row, observed=seen)
    w = ng.MultivariateNormal("w", np.zeros(2), precision, plate=kind)
    scores = ng.dot(scale * rng.normal(size=(n, 2)), w)
    if rng.random() < 0.6:
        effect = ng.Normal("effect", 0.0, ng.Gamma("spread", 1.0, 1.0), plate=(ng.Plate("group", 3), kind))
        z = ng.Categorical("z", [0.2, 0.3, 0.5], plate=row)
        scores = scores + (effect[z] if rng.random() < 0.3 else effect[rng.integers(0, 3, n)])
    return ng.Categorical("y", softmax=scores, plate=row, observed=seen)


def last_digit(fit) -> float:
    """How far the bound moves when the last digit of λ does: what no way of computing can be better than.

    A design of 1e5 with one row and a prior precision of 0.01 has a Λ whose condition is 1e14. Among 1,500 seeds no bound
    falls by more than 1.5 times of this; 13,000 nats were lost where means were products with an inverse.
    """
    problem, state, rng = fit.problem, fit.state, np.random.default_rng(0)
    bounds = [problem.bound(state)]
    for _ in range(6):
        lam = {}
        for name, stats in state.lam.items():
            moved = tuple(np.asarray(s) * (1 + np.finfo(float).eps * rng.integers(-1, 2, np.shape(s))) for s in stats)
            lam[name] = problem.blocks[name].family.project(moved)
        mu = {name: problem.moments(problem.blocks[name], stats) for name, stats in lam.items()}
        bounds.append(problem.bound(state._replace(lam=lam, mu=mu)))
    return float(np.ptp(bounds))


def check(seed: int, softmax: bool = False) -> None:
    rng = np.random.default_rng(seed)
    scale = float(10.0 ** rng.choice([-3, 0, 0, 0, 2, 5]))
    if softmax:
        y = softmax_leaf(rng, ng.Plate("row", int(rng.choice(SIZES))), scale)
    else:
        row, mean = reading(rng, int(rng.choice(SIZES)), scale)
        y = leaf(rng, row, mean, scale)
    fit = ng.Network(y).fit(ng.VB(), max_steps=15, tol=0, backend="numpy", init="random", seed=seed)
    bounds = fit.trace["elbo"]
    assert not fit.stop.diverged, (seed, fit.stop)
    assert np.isfinite(bounds).all(), seed
    rounding = 1e-9 * max(1.0, np.abs(bounds).max()) + 4 * last_digit(fit)
    assert np.diff(bounds).min() >= -rounding, seed
    for name in fit.problem.blocks:
        assert all(np.isfinite(part).all() for part in fit.state.mu[name]), (seed, name)
    assert np.isfinite(fit.predictive("y").sample(0, 3)).all() or type(y).__name__ == "LogNormal", seed


# 29, 504: fitted values were lost in the product of an inverse and a vector: 0.7 nats too low, and falls of 13,000.
@pytest.mark.parametrize("seed", [*range(12), 29, 504])
def test_a_random_declaration(seed):
    check(seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_softmax(seed):
    check(seed, softmax=True)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(3))
def test_three_hundred_of_softmax(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        check(seed, softmax=True)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_random_declarations(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        check(seed)
