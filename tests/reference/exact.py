"""Exact results by closed forms, enumeration and quadrature, and coordinate ascent written out by hand: no natgrad in here.

`reference(name)` is what `tests/network/test_references.py` and the problems of the ready models are held to.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np
from scipy import integrate, stats
from scipy.special import betaln, digamma, gammaln, logsumexp, multigammaln, softmax

LOG_2PI = np.log(2 * np.pi)
REAL = np.array([1.2, -0.3, 0.8, 2.1, 0.4])


@cache
def reference(name: str) -> Any:
    """One of the results below, by its name."""
    return {"exact_conjugate": exact_conjugate, "gmm_small": mixture, "linreg_small": regression, "lda_small": topics,
            "hmm_small": chain}[name]()  # fmt: skip


# -- models whose evidence is known --


def exact_conjugate() -> dict[str, Any]:
    g = np.random.default_rng(0)
    design = g.normal(size=(10, 3))
    target = design @ [1, -2, 0.5] + 0.3 * g.normal(size=10)
    pairs = g.normal(size=(12, 2)) @ [[1, 0.3], [0, 0.7]]
    return {
        "normal_known_precision": known_precision(REAL, 0.1, 0.5, 2.0),
        "beta_bernoulli": coins(np.array([1, 0, 1, 1, 0, 1, 1, 1]), 2.0, 3.0),
        "gamma_poisson": counts(np.array([3, 0, 2, 5, 1]), 1.5, 0.7),
        "dirichlet_categorical": categories([0, 2, 1, 1, 2, 2, 2, 0], np.array([0.5, 1.0, 2.0])),
        "gamma_exponential": waits(np.array([0.3, 1.1, 0.7]), 2.0, 1.0),
        "gamma_normal_known_mean": known_mean(REAL, 0.2, 2.0, 1.5),
        "linreg_known_noise": linear(design, target, 0.5, 1 / 0.09),
        "wishart_mvnormal_zero_mean": wishart(pairs, 4.0, 1.5 * np.eye(2)),
        "normal_gamma_meanfield": mean_field(REAL, 0.0, 0.1, 1.0, 1.0),
        "hmm_fixed_parameters": forward_backward(),
        "lda_exact_tiny": all_topics(),
        "gmm_exact_tiny": all_labels(),
        "local_level_kalman": local_level(),
        "sgpr_titsias": titsias(),
    }


def known_precision(y: Any, mean: float, prior: float, noise: float) -> dict[str, Any]:
    n = len(y)
    covariance = np.eye(n) / noise + 1 / prior
    post = prior + n * noise
    return {
        "data": list(y), "prior_mean": mean, "prior_prec": prior, "noise_prec": noise, "post_prec": post,
        "post_mean": (prior * mean + noise * y.sum()) / post,
        "log_evidence": stats.multivariate_normal(np.full(n, mean), covariance).logpdf(y),
    }  # fmt: skip


def coins(y: Any, a: float, b: float) -> dict[str, Any]:
    post = a + y.sum(), b + len(y) - y.sum()
    return {"data": list(y), "a": a, "b": b, "post": post, "log_evidence": betaln(*post) - betaln(a, b)}


def gamma_ratio(a: float, b: float, shape: float, rate: float) -> float:
    """The log of the normaliser of a Gamma before over that after."""
    return float(a * np.log(b) - gammaln(a) + gammaln(shape) - shape * np.log(rate))


def counts(y: Any, a: float, b: float) -> dict[str, Any]:
    post = a + y.sum(), b + len(y)
    evidence = gamma_ratio(a, b, *post) - gammaln(y + 1).sum()
    return {"data": list(y), "a": a, "b": b, "post": post, "log_evidence": evidence}


def categories(y: Any, alpha: Any) -> dict[str, Any]:
    post = alpha + np.bincount(y, minlength=len(alpha))
    evidence = gammaln(alpha.sum()) - gammaln(alpha).sum() + gammaln(post).sum() - gammaln(post.sum())
    return {"data": list(y), "alpha": alpha, "post": post, "log_evidence": evidence}


def waits(y: Any, a: float, b: float) -> dict[str, Any]:
    post = a + len(y), b + y.sum()
    return {"data": list(y), "a": a, "b": b, "post": post, "log_evidence": gamma_ratio(a, b, *post)}


def known_mean(y: Any, mean: float, a: float, b: float) -> dict[str, Any]:
    post = a + len(y) / 2, b + ((y - mean) ** 2).sum() / 2
    evidence = gamma_ratio(a, b, *post) - len(y) / 2 * LOG_2PI
    return {"data": list(y), "mean": mean, "a": a, "b": b, "post": post, "log_evidence": evidence}


def linear(X: Any, y: Any, alpha: float, beta: float) -> dict[str, Any]:
    precision = alpha * np.eye(X.shape[1]) + beta * X.T @ X
    evidence = stats.multivariate_normal(np.zeros(len(y)), np.eye(len(y)) / beta + X @ X.T / alpha).logpdf(y)
    mean = np.linalg.solve(precision, beta * X.T @ y)
    return {"alpha": alpha, "beta": beta, "post_mean": mean, "post_prec": precision, "log_evidence": evidence}


def wishart(y: Any, nu: float, v: Any) -> dict[str, Any]:
    (n, d), dof, rate = y.shape, nu + len(y), v + y.T @ y
    evidence = multigammaln(dof / 2, d) - multigammaln(nu / 2, d) - n * d / 2 * np.log(np.pi)
    evidence += nu / 2 * np.linalg.slogdet(v)[1] - dof / 2 * np.linalg.slogdet(rate)[1]
    return {"Y": y.tolist(), "nu": nu, "V": v, "post_nu": dof, "post_V": rate, "log_evidence": evidence}


def mean_field(y: Any, mu: float, prior: float, a: float, b: float) -> dict[str, Any]:
    """Two factors of one mean and one precision: their fixed point, its bound, and the evidence by quadrature."""
    n, tau = len(y), a / b
    shape = a + n / 2
    for _ in range(2000):
        precision = prior + n * tau
        mean = (prior * mu + tau * y.sum()) / precision
        rate = b + (((y - mean) ** 2).sum() + n / precision) / 2
        tau = shape / rate
    log_tau = digamma(shape) - np.log(rate)
    bound = n / 2 * (log_tau - LOG_2PI) - tau * (rate - b)
    bound += 0.5 * (np.log(prior / precision) + 1 - prior * ((mean - mu) ** 2 + 1 / precision))
    bound += gamma_ratio(a, b, shape, rate) - (shape - a) * log_tau + (rate - b) * tau

    def density(t: float) -> float:
        """Of the data and the precision: the mean integrated out."""
        given = stats.multivariate_normal(np.full(n, mu), np.eye(n) / t + 1 / prior).pdf(y)
        return float(given * stats.gamma(a, scale=1 / b).pdf(t))

    evidence = np.log(integrate.quad(density, 0, 50, epsabs=0, epsrel=1e-11, limit=500)[0])
    point = {"mean": mean, "prec": precision, "a": shape, "b": rate}
    known = {"data": list(y), "mu0": mu, "tau0": prior, "a0": a, "b0": b}
    return {**known, "fixed_point": point, "elbo": bound, "log_evidence_quadrature": evidence}


def forward_backward() -> dict[str, Any]:
    """By enumeration of all paths."""
    pi, move, emit = (
        np.array([0.6, 0.4]),
        np.array([[0.7, 0.3], [0.2, 0.8]]),
        np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]),
    )
    seen, total, smoothed = [0, 1, 2, 2, 1, 0, 2], 0.0, np.zeros((7, 2))
    for path in product(range(2), repeat=7):
        p = pi[path[0]] * np.prod([emit[z, x] for z, x in zip(path, seen, strict=True)])
        p *= np.prod([move[path[t], path[t + 1]] for t in range(6)])
        total += p
        smoothed[range(7), path] += p
    known = {"pi": pi.tolist(), "A": move.tolist(), "B": emit.tolist(), "obs": seen}
    return {**known, "log_likelihood": np.log(total), "smoothed": (smoothed / total).tolist()}


def all_topics() -> dict[str, Any]:
    """Evidence of eight words in two documents, summed over all topics of all words."""
    doc, w, size, words, alpha, beta = [0] * 4 + [1] * 4, [0, 0, 1, 0, 2, 2, 1, 2], 2, 3, 0.5, 0.4

    def urn(table: Any, prior: float) -> float:
        n = table.shape[1]
        own = (
            gammaln(n * prior) - n * gammaln(prior) + gammaln(table + prior).sum(1) - gammaln(table.sum(1) + n * prior)
        )
        return float(own.sum())

    terms = []
    for z in product(range(size), repeat=8):
        by_doc, by_topic = np.zeros((2, size)), np.zeros((size, words))
        np.add.at(by_doc, (doc, z), 1)
        np.add.at(by_topic, (z, w), 1)
        terms.append(urn(by_doc, alpha) + urn(by_topic, beta))
    known = {"doc": doc, "w": w, "K": size, "V": words, "alpha": alpha, "beta": beta}
    return {**known, "log_evidence": logsumexp(terms)}


def all_labels() -> dict[str, Any]:
    """Evidence of six points in two components, summed over all labels."""
    y, terms = np.array([-2.1, -1.9, -2.4, 1.8, 2.2, 2.0]), []
    for z in product(range(2), repeat=6):
        sizes = np.bincount(z, minlength=2)
        term = gammaln(2.0) + gammaln(sizes + 1.0).sum() - gammaln(8.0)
        for k in range(2):
            own = y[np.array(z) == k]
            if len(own):
                term += stats.multivariate_normal(np.zeros(len(own)), np.eye(len(own)) + 10.0).logpdf(own)
        terms.append(term)
    known = {"y": y.tolist(), "K": 2, "mu_prior_var": 10, "noise_prec": 1, "alpha": 1}
    return {**known, "log_evidence": logsumexp(terms)}


def local_level() -> dict[str, Any]:
    """A random walk with noise, as one Normal."""
    y = np.array([0.1, 0.5, 0.9, 0.3, 1.2, 1.5])
    t = np.arange(6)
    state = 1.0 + 0.5 * np.minimum.outer(t, t)
    known = {"y": y.tolist(), "init_var": 1.0, "state_var": 0.5, "noise_var": 1.0}
    seen = state + np.eye(6)
    smoothed = state @ np.linalg.solve(seen, y)
    evidence = stats.multivariate_normal(np.zeros(6), seen).logpdf(y)
    return {**known, "log_likelihood": evidence, "smoothed_mean": smoothed.tolist()}


def titsias() -> dict[str, Any]:
    """The bound of Titsias (2009), equation 9: log N(y | 0, Q + σ² I) − tr(K − Q) / (2 σ²)."""
    g = np.random.default_rng(5)
    x = np.sort(g.uniform(0, 5, 30))
    y, z, noise = np.sin(x) + 0.1 * g.normal(size=30), np.linspace(0, 5, 6), 0.01

    def rbf(a: Any, b: Any) -> Any:
        return np.exp(-0.5 * (a[:, None] - b[None]) ** 2)

    inner, cross = rbf(z, z) + 1e-10 * np.eye(6), rbf(z, x)
    near = cross.T @ np.linalg.solve(inner, cross)
    bound = stats.multivariate_normal(np.zeros(30), near + noise * np.eye(30)).logpdf(y)
    evidence = stats.multivariate_normal(np.zeros(30), rbf(x, x) + noise * np.eye(30)).logpdf(y)
    mean = inner @ np.linalg.solve(inner + cross @ cross.T / noise, cross @ y) / noise
    return {
        "bound": bound - (30 - np.trace(near)) / (2 * noise), "exact_gp_log_evidence": evidence, "q_u_mean": mean.tolist(),
    }  # fmt: skip


# -- coordinate ascent, sweep by sweep --


def kl_dirichlet(post: Any, prior: Any) -> float:
    post, prior = np.broadcast_arrays(post, prior)
    log_p = digamma(post) - digamma(post.sum(-1, keepdims=True))
    own = gammaln(post.sum(-1)) - gammaln(post).sum(-1) - gammaln(prior.sum(-1)) + gammaln(prior).sum(-1)
    return float(np.sum(own + ((post - prior) * log_p).sum(-1)))


def log_det_mean(nu: Any, v: Any) -> Any:
    """E[log |Λ|] of Wishart matrices with E[Λ] = ν V⁻¹."""
    d = v.shape[-1]
    return sum(digamma((nu - i) / 2) for i in range(d)) + d * np.log(2) - np.linalg.slogdet(v)[1]


def kl_wishart(nu: Any, v: Any, nu0: float, v0: Any) -> float:
    d = v.shape[-1]

    def log_z(dof: Any, rate: Any) -> Any:
        return dof * d / 2 * np.log(2) + multigammaln(dof / 2, d) - dof / 2 * np.linalg.slogdet(rate)[1]

    trace = np.trace(np.linalg.solve(v, v0 - v), axis1=-2, axis2=-1)
    return float(
        np.sum((nu - nu0) / 2 * log_det_mean(nu, v) + nu / 2 * trace + log_z(nu0, v0))
        - np.sum([log_z(a, b) for a, b in zip(nu, v, strict=True)])
    )


def kl_normal(mean: Any, covariance: Any, precision: Any) -> float:
    """From a Normal of mean zero."""
    own = np.trace(precision @ covariance, axis1=-2, axis2=-1) + np.einsum("ki,ij,kj->k", mean, precision, mean)
    return float(0.5 * np.sum(own - mean.shape[1] - np.linalg.slogdet(precision)[1] - np.linalg.slogdet(covariance)[1]))


class Clouds:
    """Normal components with means N(0, 100 I) and precisions Wishart(D, I), each a factor of its own."""

    def __init__(self, y: Any, start: Any) -> None:
        self.y, self.mean = y, start.copy()
        size, d = start.shape
        self.prior, self.v0 = 0.01 * np.eye(d), np.eye(d)
        self.covariance, self.nu, self.v = (
            np.zeros((size, d, d)),
            np.full(size, float(d)),
            np.tile(np.eye(d), (size, 1, 1)),
        )

    def log_density(self) -> Any:
        precision, d = self.precision(), self.y.shape[1]
        away = self.y[:, None] - self.mean
        square = np.einsum("nki,kij,nkj->nk", away, precision, away)
        square += np.trace(precision @ self.covariance, axis1=-2, axis2=-1)
        return 0.5 * (log_det_mean(self.nu, self.v) - d * LOG_2PI - square)

    def precision(self) -> Any:
        return self.nu[:, None, None] * np.linalg.inv(self.v)

    def move(self, r: Any) -> None:
        sizes, precision = r.sum(0), self.precision()
        self.covariance = np.linalg.inv(self.prior + sizes[:, None, None] * precision)
        self.mean = np.einsum("kij,kjl,kl->ki", self.covariance, precision, r.T @ self.y)
        self.nu = self.v0.shape[0] + sizes
        away = self.y[:, None] - self.mean
        self.v = self.v0 + np.einsum("nk,nki,nkj->kij", r, away, away) + sizes[:, None, None] * self.covariance

    def kl(self) -> float:
        d = self.y.shape[1]
        return kl_normal(self.mean, self.covariance, self.prior) + kl_wishart(self.nu, self.v, float(d), self.v0)


def mixture() -> dict[str, Any]:
    n, d, size = 500, 3, 4
    rng = np.random.default_rng(0)
    means = rng.normal(0, 5, (size, d))
    y = means[rng.integers(0, size, n)] + rng.normal(0, 1, (n, d))
    clouds, alpha = Clouds(y, y[np.random.default_rng(2).choice(n, size, replace=False)]), np.ones(size)

    def sweeps() -> Iterator[float]:
        nonlocal alpha
        while True:
            r = softmax(clouds.log_density() + digamma(alpha) - digamma(alpha.sum()), axis=1)
            clouds.move(r)
            alpha = 1.0 + r.sum(0)
            log_share = digamma(alpha) - digamma(alpha.sum())
            entropy = -np.sum(r * np.log(np.where(r > 0, r, 1.0)))
            yield (
                np.sum(r * (clouds.log_density() + log_share))
                + entropy
                - kl_dirichlet(alpha, np.ones(size))
                - clouds.kl()
            )

    bounds = list(islice(sweeps(), 60))
    post = {
        "alpha": alpha, "mu_mean": clouds.mean, "mu_cov_diag": np.diagonal(clouds.covariance, axis1=1, axis2=2),
        "Lambda_mean": clouds.precision(),
    }  # fmt: skip
    return {"N": n, "D": d, "K": size, "elbo": bounds, "post": post}


def regression() -> dict[str, Any]:
    n, d, a0, b0 = 80, 8, 1e-3, 1e-3
    rng = np.random.default_rng(0)
    X = rng.normal(0, 1, (n, d))
    w = np.where(np.arange(d) < d // 2, rng.normal(0, 2, d), 0.0)
    y = X @ w + 0.3 * rng.normal(0, 1, n)
    alpha, tau, bounds = np.full(d, a0 / b0), a0 / b0, []
    a, c = a0 + 0.5, a0 + n / 2
    for _ in range(80):
        covariance = np.linalg.inv(np.diag(alpha) + tau * X.T @ X)
        mean = tau * covariance @ X.T @ y
        b = b0 + 0.5 * (mean**2 + np.diag(covariance))
        alpha = a / b
        e = b0 + 0.5 * (((y - X @ mean) ** 2).sum() + np.trace(X.T @ X @ covariance))
        tau = c / e
        log_alpha, log_tau = digamma(a) - np.log(b), digamma(c) - np.log(e)
        bound = n / 2 * (log_tau - LOG_2PI) - tau * (e - b0) + 0.5 * np.sum(log_alpha) - np.sum(alpha * (b - b0))
        bound += 0.5 * (np.linalg.slogdet(covariance)[1] + d)
        bound += sum(gamma_ratio(a0, b0, a, rate) - (a - a0) * lg + (rate - b0) * m
                     for rate, lg, m in zip(b, log_alpha, alpha, strict=True))  # fmt: skip
        bound += gamma_ratio(a0, b0, c, e) - (c - a0) * log_tau + (e - b0) * tau
        bounds.append(bound)
    post = {"w_mean": mean, "w_cov": covariance, "alpha_mean": alpha, "tau_mean": tau}
    return {"N": n, "D": d, "elbo": bounds, "post": post}


def topics() -> dict[str, Any]:
    docs, size, words, tokens = 12, 4, 15, 600
    rng = np.random.default_rng(0)
    shares, tables = rng.dirichlet(0.1 * np.ones(size), docs), rng.dirichlet(0.1 * np.ones(words), size)
    doc = rng.integers(0, docs, tokens)
    w = np.array([rng.choice(words, p=tables[k]) for k in [rng.choice(size, p=shares[d]) for d in doc]])
    start = np.random.default_rng(1)
    log_theta, log_phi = np.log(start.dirichlet(np.ones(size), docs)), np.log(start.dirichlet(np.ones(words), size))
    bounds = []
    for _ in range(60):
        r = softmax(log_theta[doc] + log_phi[:, w].T, axis=1)
        phi, theta = np.full((size, words), 0.1), np.full((docs, size), 0.5)
        np.add.at(phi.T, w, r)
        np.add.at(theta, doc, r)
        log_phi = digamma(phi) - digamma(phi.sum(1, keepdims=True))
        log_theta = digamma(theta) - digamma(theta.sum(1, keepdims=True))
        entropy = -np.sum(r * np.log(np.where(r > 0, r, 1.0)))
        bound = np.sum(r * (log_theta[doc] + log_phi[:, w].T)) + entropy
        bounds.append(bound - kl_dirichlet(theta, np.full((1, 1), 0.5)) - kl_dirichlet(phi, np.full((1, 1), 0.1)))
    return {
        "Ndocs": docs,
        "K": size,
        "V": words,
        "Ntokens": tokens,
        "elbo": bounds,
        "post": {"theta": theta, "phi": phi},
    }


def chain() -> dict[str, Any]:
    length, d, size = 300, 2, 3
    rng = np.random.default_rng(0)
    means, move = rng.normal(0, 4, (size, d)), 0.9 * np.eye(size) + 0.1 / size
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.choice(size, p=move[states[t - 1]])
    y = means[states] + rng.normal(0, 1, (length, d))
    clouds = Clouds(y, y[np.random.default_rng(2).choice(length, size, replace=False)])
    first, rows, bounds = np.ones(size), np.ones((size, size)), []
    for _ in range(40):
        log_first = digamma(first) - digamma(first.sum())
        log_rows = digamma(rows) - digamma(rows.sum(1, keepdims=True))
        given = clouds.log_density()
        ahead, back = np.zeros((length, size)), np.zeros((length, size))
        ahead[0] = log_first + given[0]
        for t in range(1, length):
            ahead[t] = given[t] + logsumexp(ahead[t - 1][:, None] + log_rows, axis=0)
        for t in range(length - 2, -1, -1):
            back[t] = logsumexp(log_rows + given[t + 1] + back[t + 1], axis=1)
        total = logsumexp(ahead[-1])
        r = np.exp(ahead + back - total)
        pairs = np.exp(ahead[:-1, :, None] + log_rows + (given + back)[1:, None] - total)
        entropy = total - np.sum(r * given) - r[0] @ log_first - np.sum(pairs.sum(0) * log_rows)
        clouds.move(r)
        first, rows = 1.0 + r[0], 1.0 + pairs.sum(0)
        log_first = digamma(first) - digamma(first.sum())
        log_rows = digamma(rows) - digamma(rows.sum(1, keepdims=True))
        bound = np.sum(r * clouds.log_density()) + r[0] @ log_first + np.sum(pairs.sum(0) * log_rows) + entropy
        bounds.append(bound - clouds.kl() - kl_dirichlet(first, np.ones(size)) - kl_dirichlet(rows, np.ones((1, size))))
    return {"T": length, "D": d, "K": size, "elbo": bounds, "post": {"pi": first, "A": rows, "mu": clouds.mean}}
