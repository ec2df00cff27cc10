"""A distribution is one class in one file: everything works with `Rayleigh`, and no other file of the library describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import natgrad as ng

SOURCE = Path(ng.__file__).parent
RNG = np.random.default_rng(7)
TABLE = {
    "speed": RNG.rayleigh(2.0, 600),
    "site": RNG.choice(["hill", "valley", "coast"], 600),
}
PRIOR = 2.0, 3.0


def declared() -> Any:
    site = ng.Plate("site")
    tau = ng.Gamma("tau", *PRIOR, plate=site)
    rows = ng.Plate("rows")
    return ng.Rayleigh("speed", tau[ng.Column("site")], plate=rows, observed=ng.Column("speed"))


def posterior(site: str) -> tuple[float, float]:
    """Shape and rate: a + n and b + ½ Σ x²."""
    x = TABLE["speed"][TABLE["site"] == site]
    return PRIOR[0] + len(x), PRIOR[1] + 0.5 * float((x**2).sum())


@pytest.fixture(scope="module")
def fit() -> Any:
    return ng.Network(declared()).fit(TABLE)


def test_files_that_mention_it() -> None:
    """One has the class; the others are lists of public names."""
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py*") if path.suffix in (".py", ".pyi")
             and "Rayleigh" in path.read_text(encoding="utf-8")}  # fmt: skip
    assert found == {"network/language/continuous.py", "network/language/__init__.py", "__init__.pyi"}


@pytest.mark.parametrize("chunk_rows", [None, 100])
def test_the_posterior_is_that_of_its_conjugate_prior(chunk_rows: int | None) -> None:
    found = ng.Network(declared()).fit(TABLE, chunk_rows=chunk_rows)
    usual = found["tau"].parameters
    for site, shape, rate in zip(found["tau"].labels["site"], usual["shape"], usual["rate"], strict=True):
        np.testing.assert_allclose((shape, rate), posterior(str(site)), rtol=1e-10)


def test_the_bound_is_the_evidence(fit: Any) -> None:
    """One factor is exact: log p(x) = Σ log x + Σ_sites log of the normalisers' quotient."""
    from scipy.special import gammaln

    evidence = float(np.log(TABLE["speed"]).sum())
    for site in np.unique(TABLE["site"]):
        (a, b), (shape, rate) = PRIOR, posterior(str(site))
        evidence += a * np.log(b) - gammaln(a) + gammaln(shape) - shape * np.log(rate)
    np.testing.assert_allclose(fit.elbo, evidence, rtol=1e-10)


def test_new_rows_are_predicted(fit: Any) -> None:
    """The predictive distribution is x = √(2 e / τ) with e ~ Exponential(1): P(x > c) = (1 + c² / 2 rate)^(−shape)."""
    new = fit.predict({"site": ["hill", "coast"]})["speed"]
    low, high = new.interval(0.9)
    for row, site in enumerate(("hill", "coast")):
        shape, rate = posterior(site)
        for end, p in ((low[row], 0.05), (high[row], 0.95)):
            np.testing.assert_allclose(end, np.sqrt(2 * rate * ((1 - p) ** (-1 / shape) - 1)), rtol=0.02)
    draws = new.sample(0, 4_000)
    assert (
        st.kstest(draws[:, 0], lambda c: 1 - (1 + c**2 / (2 * posterior("hill")[1])) ** -posterior("hill")[0]).pvalue
        > 1e-3
    )


def test_draws_files_and_reports_have_it(fit: Any, tmp_path: Path) -> None:
    draws = fit.draws(n=300, chains=2, verbose=False)
    np.testing.assert_allclose(draws["tau"].mean(), fit["tau"].mean(), rtol=0.05)
    simulated = fit.simulate(seed=1)["speed"]
    assert simulated.shape == (600,)
    assert (simulated > 0).all()
    fit.save(tmp_path / "fit.natgrad")
    again = ng.load(tmp_path / "fit.natgrad")
    rows = {"site": ["hill", "valley"]}
    np.testing.assert_array_equal(again.predict(rows)["speed"].mean(), fit.predict(rows)["speed"].mean())
    fit.report(tmp_path / "page.html")
    assert "speed" in (tmp_path / "page.html").read_text(encoding="utf-8")
