"""Intervals of predictions: quantiles of mixtures of known laws, so that equal rows have equal intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import natgrad as ng
from natgrad.network.language.cdfs import Cdf
from natgrad.network.results.predictive import mixture_quantiles

RNG = np.random.default_rng(0)
TABLE = {
    "x": RNG.normal(size=40),
    "y": RNG.normal(size=40),
    "k": RNG.poisson(3, 40),
    "e": RNG.exponential(2.0, 40),
    "m": np.where(np.arange(40) % 2, 5.0, -5.0) + RNG.normal(size=40),
}


A, B = np.full((1, 2), 1.7), np.array([[0.4, 2.5]])
ONE_PART: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "Gamma": (ng.Gamma, {"shape": A, "rate": B}, st.gamma(A[0], scale=1 / B[0])),
    "Exponential": (ng.Exponential, {"rate": B}, st.expon(scale=1 / B[0])),
    "Beta": (ng.Beta, {"a": A, "b": B}, st.beta(A[0], B[0])),
    "StudentT": (ng.StudentT, {"mean": A, "precision": B**-2.0, "df": 3.0 + A}, st.t(4.7, A[0], B[0])),
    "Laplace": (ng.Laplace, {"mean": A, "precision": B**-2.0}, st.laplace(A[0], B[0])),
    "LogNormal": (ng.LogNormal, {"mean": A, "precision": B**-2.0}, st.lognorm(B[0], scale=np.exp(A[0]))),
    "Rayleigh": (ng.Rayleigh, {"precision": B}, st.rayleigh(scale=B[0] ** -0.5)),
    "Poisson": (ng.Poisson, {"rate": 3.0 * A}, st.poisson(5.1)),
    "Binomial": (ng.Binomial, {"prob": 0.2 * A}, st.binom(10, 0.34)),
    "NegativeBinomial": (ng.NegativeBinomial, {"shape": A, "prob": 1.0 - 0.2 * A}, st.nbinom(1.7, 0.34)),
}


@pytest.mark.parametrize("kind", ONE_PART)
@pytest.mark.parametrize("parts", [1, 200])
def test_one_distribution_has_the_quantiles_of_scipy(kind: str, parts: int) -> None:
    """As one part, and as a mixture of many that are nearly the same."""
    node, slots, twin = ONE_PART[kind]
    wiggle = 1.0 + (1e-9 * np.linspace(-1, 1, parts)[:, None] if parts > 1 else np.zeros((1, 1)))
    cdf = cdf_of(node, **{name: value * wiggle for name, value in slots.items()})
    levels = (0.05, 0.9)
    for p, found in zip(levels, mixture_quantiles([cdf], np.full((1, parts, 2), 1 / parts), levels), strict=True):
        np.testing.assert_allclose(found, np.broadcast_to(twin.ppf(p), 2), rtol=1e-7)


@pytest.mark.parametrize("kind", ["Normal", "Gamma", "Beta", "StudentT", "Laplace", "Poisson", "TruncatedNormal"])
def test_mixtures_of_many_parts_are_p_at_their_quantiles(kind: str) -> None:
    """200 parts that differ, and so it is where two far modes leave a gap at p."""
    rng = np.random.default_rng(3)
    wide = rng.gamma(4.0, size=(200, 5)) + np.where(
        rng.random((200, 5)) < 0.5, 1.0, np.array([1.0, 1.0, 2.0, 30.0, 300.0])
    )
    other = rng.gamma(9.0, 0.2, size=(200, 5))
    slots: dict[str, Any] = {
        "Poisson": {"rate": wide},
        "StudentT": {"mean": wide, "precision": other, "df": 3.0 + other},
        "Gamma": {"shape": wide, "rate": other},
        "Beta": {"a": wide, "b": other},
    }.get(kind, {"mean": wide, "precision": other})
    weights, cdf = rng.dirichlet(np.ones(200), 5).T, cdf_of(getattr(ng.language, kind), **slots)
    for p in (1e-4, 0.05, 0.5, 0.95):
        (found,) = mixture_quantiles([cdf], weights[None], [p])
        reached = (weights * cdf.function(found, *cdf.arguments)).sum(0)
        if kind == "Poisson":
            assert (reached >= p - 1e-12).all()
            assert ((weights * cdf.function(found - 1, *cdf.arguments)).sum(0) < p).all()
        else:
            np.testing.assert_allclose(reached, p, atol=2e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0, 1e12, 1e200])
@pytest.mark.parametrize("place", [0.0, -3.0, 1e6])
def test_quantiles_need_no_scale(scale: float, place: float) -> None:
    rng = np.random.default_rng(8)
    mean, sd = scale * (place + rng.normal(size=(300, 3))), scale * rng.gamma(4.0, size=(300, 3))
    cdf = Cdf(lambda x, mean, sd: st.norm.cdf((x - mean) / sd), (mean, sd))
    for p, found in zip(
        (1e-6, 0.5, 0.99), mixture_quantiles([cdf], np.full((1, 300, 3), 1 / 300), (1e-6, 0.5, 0.99)), strict=True
    ):
        np.testing.assert_allclose(cdf.function(found, mean, sd).mean(0), p, atol=2e-9)


@pytest.mark.parametrize(
    ("lower", "upper"), [(0.0, None), (-1.0, 0.5), (40.0, 45.0), (None, -9.0), (-60.0, -50.0), (None, None)]
)
def test_a_truncated_normal_has_the_quantiles_of_scipy(lower: float | None, upper: float | None) -> None:
    node = ng.language.TruncatedNormal("x", 0.5, 4.0, lower=lower, upper=upper)
    cdf = node.cdf_given({"mean": np.full((1, 3), 0.5), "precision": np.full((1, 3), 4.0)})
    low, high = (-np.inf if lower is None else lower), (np.inf if upper is None else upper)
    twin = st.truncnorm((low - 0.5) / 0.5, (high - 0.5) / 0.5, 0.5, 0.5)
    levels = (0.01, 0.5, 0.975)
    for p, found in zip(levels, mixture_quantiles([cdf], np.ones((1, 1, 3)), levels), strict=True):
        np.testing.assert_allclose(found, twin.ppf(p), rtol=1e-8)
        np.testing.assert_allclose(cdf.function(found, *cdf.arguments), p, rtol=1e-7)


def networks() -> dict[str, Any]:
    row, comp = ng.Plate("row"), ng.Plate("comp", 2)
    z = ng.Categorical("z", ng.Dirichlet("w", 1.0, size=2), plate=row)
    mean, precision = ng.Normal("mu", 0.0, 0.01, plate=comp), ng.Gamma("t", 1.0, 1.0, plate=comp)
    line = ng.Normal("a", 0.0, 0.01) + ng.Normal("b", 0.0, 0.01) * ng.Column("x")
    return {
        "y": ng.Normal("y", line, ng.Gamma("s", 1.0, 1.0), plate=row, observed=ng.Column("y")),
        "k": ng.Poisson("k", ng.Gamma("l", 1.0, 0.1), plate=row, observed=ng.Column("k")),
        "e": ng.Exponential("e", ng.Gamma("l", 1.0, 0.1), plate=row, observed=ng.Column("e")),
        "m": ng.Normal("m", mean[z], precision[z], plate=row, observed=ng.Column("m")),
    }


@pytest.mark.parametrize("name", ["y", "k", "e", "m"])
def test_equal_rows_have_equal_intervals_and_those_of_many_draws(name: str) -> None:
    """They were quantiles of 2,000 draws of each row; those of one law must not differ from row to row."""
    fit = ng.Network(networks()[name]).fit(TABLE, verbose=False)
    law = fit.predict({"x": np.array([0.3, 0.3, -1.0])})[name]
    low, high = law.interval(0.9)
    assert (low[0], high[0]) == (low[1], high[1])
    draws = law.sample(1, 40_000)
    # Between 0.04 and 0.06 of all draws, of which there are as many as there are whole numbers, lie on either side.
    assert (np.abs((draws < low).mean(0) - 0.05) < 0.01).all() or name == "k"
    assert (np.abs((draws > high).mean(0) - 0.05) < 0.01).all() or name == "k"
    assert ((draws < low).mean(0) <= 0.05).all() or name != "k"
    assert ((draws <= high).mean(0) >= 0.94).all()


def test_a_rate_of_a_gamma_has_the_quantiles_of_a_lomax() -> None:
    """∫ Exp(e; l) Gamma(l; a, b) dl, of which an interval from draws of e had an error of a tenth."""
    fit = ng.Network(networks()["e"]).fit(TABLE, verbose=False)
    a, b = 1.0 + 40, 0.1 + TABLE["e"].sum()
    low, high = fit.predict({"x": np.zeros(1)})["e"].interval(0.9)
    np.testing.assert_allclose([low[0], high[0]], st.lomax(a, scale=b).ppf([0.05, 0.95]), rtol=0.02)


def leaves() -> dict[str, Any]:
    """Nodes whose intervals were quantiles of draws, and what they are observed at."""
    row, comp = ng.Plate("row", 30), ng.Plate("comp", 2)
    rng = np.random.default_rng(6)
    mu = ng.Normal("mu", 0.0, 1.0)
    z = ng.Categorical("z", ng.Dirichlet("w", 1.0, size=2), plate=row)
    centre = ng.MultivariateNormal("c", np.zeros(2), 0.01 * np.eye(2), plate=comp)
    points = np.where(np.arange(30) % 2, 4.0, -4.0)[:, None] + rng.normal(size=(30, 2))
    shares = rng.dirichlet([2.0, 1.0, 3.0], 30)
    alpha = ng.language.GammaShape("alpha", 2.0, 1.0, plate=ng.Plate("share", 3))
    return {
        "ordinal": ng.Ordinal("y", mu, cutpoints=[-1.0, 0.5, 1.0], plate=row, observed=rng.integers(0, 4, 30)),
        "vectors": ng.MultivariateNormal("y", centre[z], np.eye(2), plate=row, observed=points),
        "counts": ng.Multinomial(
            "y", 20, ng.Dirichlet("s", 1.0, size=3), plate=row, observed=rng.multinomial(20, [0.2, 0.5, 0.3], 30)
        ),
        "simplex": ng.Dirichlet("y", alpha, plate=row, observed=shares),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ordinal", "vectors", "counts", "simplex"])
def test_closed_forms_have_the_intervals_of_draws(name: str) -> None:
    """Within the error of 40,000 draws; of whole numbers at least as much lies inside, and one less would be too little."""
    law = ng.Network(leaves()[name]).fit(verbose=False).predictive("y", sizes={"row": 4})
    low, high = law.interval(0.8)
    assert (low == low[:1]).all()
    assert (high == high[:1]).all()
    assert law._mixture(np.random.default_rng(0)) is not None
    draws = law.sample(1, 40_000)
    if name in ("ordinal", "counts"):
        assert (draws <= low).mean(0).min() >= 0.1 - 0.01
        assert (draws < low).mean(0).max() < 0.1 + 0.01
        assert (draws <= high).mean(0).min() >= 0.9 - 0.01
        assert (draws < high).mean(0).max() < 0.9 + 0.01
    else:
        np.testing.assert_allclose((draws < low).mean(0), 0.1, atol=0.012)
        np.testing.assert_allclose((draws < high).mean(0), 0.9, atol=0.012)


def test_shares_of_a_dirichlet_and_categories_of_counts_have_marginals_of_scipy() -> None:
    alpha = np.array([2.0, 1.0, 3.0])
    found = mixture_quantiles([ng.Dirichlet("x", alpha).cdf_given({})], np.ones((1, 1, 3)), [0.1, 0.9])
    np.testing.assert_allclose(found, [st.beta(alpha, 6.0 - alpha).ppf(p) for p in (0.1, 0.9)], rtol=1e-8)
    probs = np.array([[0.2, 0.5, 0.3]])
    counts = ng.Multinomial("k", 20, probs[0], observed=[4, 10, 6])
    found = mixture_quantiles([counts.cdf_given({"probs": 2.0 * probs})], np.ones((1, 1, 3)), [0.1, 0.9])
    np.testing.assert_array_equal(found, [st.binom(20, probs[0]).ppf(p) for p in (0.1, 0.9)])


def test_levels_and_precisions_have_the_quantiles_of_their_sums() -> None:
    mean, cut = np.random.default_rng(7).normal(size=(100, 4)), np.array([-1.0, 0.5, 1.0])
    ordinal = ng.Ordinal("y", 0.0, cutpoints=cut, observed=1)
    cdf = ordinal.cdf_given({"mean": mean, "precision": np.ones((100, 4))})
    levels = (0.05, 0.3, 0.5, 0.999)
    reached = np.array([st.norm.cdf(c - mean).mean(0) for c in cut])
    for p, found in zip(levels, mixture_quantiles([cdf], np.full((1, 100, 4), 0.01), levels), strict=True):
        np.testing.assert_array_equal(found, (reached < p).sum(0))
    (found,) = mixture_quantiles(
        [cdf_of(ng.language.HalfCauchy, scale=np.array([[0.5, 2.0]]))], np.ones((1, 1, 2)), [0.3]
    )
    # P((s |c|)⁻² < x) = P(|c| > 1 / (s √x))
    np.testing.assert_allclose(st.halfcauchy.sf(1.0 / (np.array([0.5, 2.0]) * np.sqrt(found))), 0.3, rtol=1e-8)


def cdf_of(kind: Any, **slots: Any) -> Cdf:
    """The distribution function of a node whose parameters are given; of a Binomial ten trials, of a truncated Normal 3 to 4."""
    known: dict[Any, Any] = {
        ng.Binomial: lambda: ng.Binomial("x", 10, 0.5, observed=1),
        ng.language.TruncatedNormal: lambda: ng.language.TruncatedNormal("x", 0.0, 1.0, lower=3.0, upper=4.0),
    }
    node = known.get(kind, lambda: object.__new__(kind))()
    found = node.cdf_given(slots)
    assert found is not None
    return found
