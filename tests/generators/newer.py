"""Random networks of nodes that `generator.py` does not draw, each with its evidence by plain NumPy and SciPy.

Chains of Gaussian states, tables that a category chooses from, stick-breaking, counts of summed rates, and leaves with auxiliary
variables. A network is some such parts side by side: on plates of equal sizes, with weights, gaps and names that mean something
inside. Its evidence is the sum of those of its parts. Where q is exact the bound is the evidence; elsewhere it is no higher.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from generators.networks import NAMES
from scipy import stats
from scipy.special import betaln, expit, logsumexp

import natgrad as ng


class Part(NamedTuple):
    """A leaf, the log evidence of its data, and whether the bound reaches it."""

    leaf: Any
    evidence: float
    exact: bool


class Drawing:
    """What all parts of a network have in common: names that are left, and the plates."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.names = [str(name) for name in self.rng.permutation(NAMES)]
        n = int(self.rng.integers(2, 5))
        self.weight = self.rng.choice([0.0, 1.0, 2.0, 0.5], n) if self.rng.random() < 0.4 else np.ones(n)
        self.weight[0] = 1.0  # not all may be zero
        weighted = None if (self.weight == 1.0).all() else self.weight
        self.row, self.time = ng.Plate(self.names.pop(), n, weight=weighted), ng.Plate(self.names.pop(), n)
        self.n = n

    def gaps(self, data: np.ndarray) -> np.ndarray:
        """Some of the data missing, but for the first."""
        gone = self.rng.random(self.n) < 0.2
        gone[0] = False
        return np.where(gone, np.nan, data)

    def chosen(self, logs: np.ndarray) -> float:
        """Σ_n w_n log Σ_k exp of logs [n, k]."""
        return float(self.weight @ logsumexp(logs, axis=1))

    def integral(self, log_likelihood: Callable[..., Any], *priors: Any) -> float:
        """log ∫ of a function of numbers with these priors, by their quantiles: the midpoints of equal shares."""
        share = 400 if len(priors) > 1 else 20_000
        at = np.meshgrid(*(prior.ppf((np.arange(share) + 0.5) / share) for prior in priors), indexing="ij")
        logs = log_likelihood(*(axis.ravel() for axis in at))
        return float(logsumexp(logs) - np.log(len(logs)))


def chain(own: Drawing) -> Part:
    """A path that is read by a dot with known vectors: all of it is one Gaussian."""
    rng, n, size = own.rng, own.n, int(own.rng.integers(1, 4))
    dynamics, first = 0.6 * rng.normal(size=(size, size)), rng.normal(size=size)
    begin, noise, tau = (float(number) for number in rng.uniform(0.5, 3.0, 3))
    lengths = (1, n - 1) if rng.random() < 0.5 and n > 1 else (n,)
    rows, y = rng.normal(size=(n, size)), own.gaps(rng.normal(size=n))
    x = ng.GaussianChain(own.names.pop(), first, begin * np.eye(size), dynamics, noise * np.eye(size), plate=own.time,
                         lengths=lengths)  # fmt: skip
    leaf = ng.Normal(own.names.pop(), ng.dot(x, rows), tau, plate=own.time, observed=y)
    starts = set(np.cumsum((0, *lengths[:-1])).tolist())
    mean, cov = np.zeros((n, size)), np.zeros((n, size, n, size))
    for t in range(n):
        if t in starts:
            mean[t], cov[t, :, t] = first, np.eye(size) / begin
            continue
        mean[t] = dynamics @ mean[t - 1]
        cov[t, :, :t] = np.einsum("ij,jsk->isk", dynamics, cov[t - 1, :, :t])
        cov[:t, :, t] = np.moveaxis(cov[t, :, :t], 0, -1)
        cov[t, :, t] = dynamics @ cov[t - 1, :, t - 1] @ dynamics.T + np.eye(size) / noise
    seen = np.isfinite(y)
    matrix = np.einsum("ti,tisj,sj->ts", rows, cov, rows) + np.eye(n) / tau
    law = stats.multivariate_normal((rows * mean).sum(1)[seen], matrix[np.ix_(seen, seen)])
    return Part(leaf, float(law.logpdf(y[seen])), True)


def table(own: Drawing) -> Part:
    """A hidden category for each row chooses from known numbers: probabilities, with zeros, or a mean, a multiple of it."""
    rng, n, size = own.rng, own.n, int(own.rng.integers(2, 5))
    probs = rng.dirichlet(np.ones(size))
    z = ng.Categorical(own.names.pop(), probs, plate=own.row)
    if rng.random() < 0.5:
        means, y, tau = rng.normal(size=size), own.gaps(rng.normal(size=n)), float(rng.uniform(0.5, 2.0))
        scale, shift = (2.0, 1.0) if rng.random() < 0.5 else (1.0, 0.0)
        read = ng.table(means)[z]
        leaf = ng.Normal(
            own.names.pop(), read if scale == 1.0 else scale * read + shift, tau, plate=own.row, observed=y
        )
        logs = stats.norm.logpdf(y[:, None], scale * means + shift, tau**-0.5)
        return Part(leaf, own.chosen(np.log(probs) + np.where(np.isnan(y)[:, None], 0.0, logs)), True)
    rows = rng.dirichlet(np.ones(3), size)
    rows[0] = [0.5, 0.0, 0.5]
    y = rng.integers(0, 3, n)
    leaf = ng.Categorical(own.names.pop(), ng.table(rows)[z], plate=own.row, observed=y)
    with np.errstate(divide="ignore"):
        return Part(leaf, own.chosen(np.log(probs) + np.log(rows.T[y])), True)


def sticks(own: Drawing) -> Part:
    """Observed categories of a truncated process: each stick is a Beta, and conjugate."""
    rng, size, alpha = own.rng, int(own.rng.integers(2, 5)), float(own.rng.uniform(0.3, 3.0))
    discount = float(rng.choice([0.0, 0.4]))
    y = rng.integers(0, size, own.n)
    pi = ng.StickBreaking(own.names.pop(), alpha, size=size, discount=discount)
    leaf = ng.Categorical(own.names.pop(), pi, plate=own.row, observed=y)
    counts = np.bincount(y, own.weight, minlength=size)
    a, b = np.full(size - 1, 1.0 - discount), alpha + discount * np.arange(1, size)
    behind = np.cumsum(counts[::-1])[::-1][1:]
    return Part(leaf, float((betaln(a + counts[:-1], b + behind) - betaln(a, b)).sum()), True)


def rates(own: Drawing) -> Part:
    """Counts of a sum of two rates, of which one may be known."""
    rng, y = own.rng, own.rng.poisson(3.0, own.n).astype(float)
    laws = [(float(rng.uniform(1.0, 4.0)), float(rng.uniform(0.5, 2.0))) for _ in range(2)]
    parts = [ng.Gamma(own.names.pop(), *law) for law in laws]
    leaf = ng.Poisson(own.names.pop(), parts[0] + parts[1], plate=own.row, observed=y)

    def log_likelihood(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(stats.poisson.logpmf(y[:, None], first + second).T @ own.weight)

    return Part(leaf, own.integral(log_likelihood, *(stats.gamma(a, scale=1 / b) for a, b in laws)), False)


def augmented(own: Drawing) -> Part:
    """A leaf with auxiliary variables whose location is one Normal, or a known multiple of it in each row."""
    rng, n = own.rng, own.n
    mean, precision = float(rng.normal()), float(rng.uniform(0.3, 2.0))
    x = rng.normal(size=n) if rng.random() < 0.5 else np.ones(n)
    theta = ng.Normal(own.names.pop(), mean, precision)
    location = x * theta if (x != 1.0).any() else theta
    name, plate = own.names.pop(), own.row
    real, count, tau = own.gaps(rng.standard_t(3, n)), rng.poisson(2.0, n).astype(float), float(rng.uniform(0.5, 2.0))
    binary, sd, df = (count > 1) * 1.0, tau**-0.5, float(rng.uniform(1.0, 9.0))
    leaf, density = [
        (lambda: ng.Bernoulli(name, logit=location, plate=plate, observed=binary),
         lambda at: np.log(expit(np.where(binary > 0, at, -at)))),
        (lambda: ng.Bernoulli(name, probit=location, plate=plate, observed=binary),
         lambda at: stats.norm.logcdf(np.where(binary > 0, at, -at))),
        (lambda: ng.NegativeBinomial(name, 1.5, logit=location, plate=plate, observed=count),
         lambda at: stats.nbinom.logpmf(count, 1.5, expit(-at))),
        (lambda: ng.StudentT(name, location, tau, df=df, plate=plate, observed=real),
         lambda at: stats.t.logpdf(real, df, at, sd)),
    ][int(rng.integers(4))]  # fmt: skip

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(np.isnan(found := density(at[:, None] * x)), 0.0, found) @ own.weight)

    return Part(leaf(), own.integral(log_likelihood, stats.norm(mean, precision**-0.5)), False)


PARTS = (chain, table, sticks, rates, augmented)


def draw(seed: int) -> list[Part]:
    """Two to four parts, in any order, on the same plates."""
    own = Drawing(seed)
    number = int(own.rng.integers(2, 5))
    return [PARTS[int(kind)](own) for kind in own.rng.integers(0, len(PARTS), number)]
