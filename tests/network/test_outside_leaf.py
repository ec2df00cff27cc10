"""A distribution that a user writes outside the package works like those of the language: one class says all about it.

Pareto  p(x) = α mᵅ / x^(α + 1) for x > m: a Gamma is conjugate to α, since log(x / m) ~ Exp(α).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import natgrad as ng
from natgrad import families
from natgrad.network.language.cdfs import Cdf
from natgrad.network.language.expressions import POSITIVE
from natgrad.network.language.nodes import ScalarNode, Slot, must_be_observed, numbers
from natgrad.network.polynomial import Polynomial

Array = npt.NDArray[Any]
RNG = np.random.default_rng(11)
LEAST = 2.0
ALPHA = {"north": 3.0, "south": 1.2}
SITES = RNG.choice(list(ALPHA), 400)
TABLE = {"loss": LEAST * np.exp(RNG.exponential(1.0 / np.array([ALPHA[site] for site in SITES]))), "site": SITES}
PRIOR = 2.0, 1.0


class Pareto(ScalarNode):
    """x ~ Pareto(tail) above ``least``, observed."""

    family = families.Gamma()
    kind = POSITIVE
    data_stand_in = 1e6
    slots_of = (Slot("least", POSITIVE, fixed=True), Slot("tail", POSITIVE))

    def __init__(
        self, name: str, least: Any, tail: Any, *, plate: Any = None, observed: Any = None, mask: Any = None
    ) -> None:
        must_be_observed(name, observed, "Pareto", "values")
        super().__init__(name, {"least": least, "tail": tail}, plate, observed, mask)

    def log_density(self, scope: Any) -> Polynomial:
        least, tail, x = numbers(self.parameters["least"]), self.parameters["tail"], np.asarray(self.value)
        above = scope.numbers(np.log(x / least))
        return tail.stat("log", scope) - above * tail.stat("x", scope) - scope.numbers(np.log(x))

    def sample_given(self, slots: dict[str, Array], rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(slots["least"] * np.exp(rng.exponential(1.0 / slots["tail"], shape)))

    def log_density_given(self, x: Array, slots: dict[str, Array]) -> Array:
        tail = slots["tail"]
        return np.asarray(np.log(tail) + tail * np.log(slots["least"]) - (tail + 1.0) * np.log(x))

    def cdf_given(self, slots: dict[str, Array]) -> Cdf:
        return Cdf(
            lambda x, least, tail: -np.expm1(-tail * np.log(np.maximum(x, least) / least)),
            (slots["least"], slots["tail"]),
        )


def declared() -> Any:
    site = ng.Plate("site")
    tail = ng.Gamma("tail", *PRIOR, plate=site)
    return Pareto("loss", LEAST, tail[ng.Column("site")], plate=ng.Plate("rows"), observed=ng.Column("loss"))


def posterior(site: str) -> tuple[float, float]:
    """Shape and rate: a + n and b + Σ log(x / m)."""
    x = TABLE["loss"][TABLE["site"] == site]
    return PRIOR[0] + len(x), PRIOR[1] + float(np.log(x / LEAST).sum())


def quantile(site: str, p: float) -> float:
    """Of a new row: P(x > c) = (1 + log(c / m) / rate)^(−shape)."""
    shape, rate = posterior(site)
    return float(LEAST * np.exp(rate * ((1.0 - p) ** (-1.0 / shape) - 1.0)))


@pytest.fixture(scope="module")
def fit() -> Any:
    return ng.Network(declared()).fit(TABLE)


@pytest.mark.parametrize("chunk_rows", [None, 90])
def test_the_posterior_is_that_of_its_conjugate_prior(chunk_rows: int | None) -> None:
    found = ng.Network(declared()).fit(TABLE, chunk_rows=chunk_rows)["tail"]
    for site, shape, rate in zip(found.labels["site"], *(found.parameters[n] for n in ("shape", "rate")), strict=True):
        np.testing.assert_allclose((shape, rate), posterior(str(site)), rtol=1e-10)


def test_new_rows_have_intervals_densities_and_draws(fit: Any) -> None:
    new = fit.predict({"site": ["north", "south"]})["loss"]
    low, high = new.interval(0.9)
    for row, site in enumerate(("north", "south")):
        np.testing.assert_allclose((low[row], high[row]), (quantile(site, 0.05), quantile(site, 0.95)), rtol=0.02)
    drawn = new.sample(0, 4_000)
    assert np.mean(drawn[:, 1] < quantile("south", 0.5)) == pytest.approx(0.5, abs=0.03)
    shape, rate = posterior("north")
    x = np.array([3.0, 3.0])
    expected = np.log(shape / rate) - (shape + 1) * np.log1p(np.log(x[0] / LEAST) / rate) - np.log(x[0])
    np.testing.assert_allclose(new.log_density(x)[0], expected, atol=0.01)


def test_draws_simulations_and_reports_have_it(fit: Any, tmp_path: Path) -> None:
    draws = fit.draws(n=300, chains=2, verbose=False)
    np.testing.assert_allclose(draws["tail"].mean(), fit["tail"].mean(), rtol=0.05)
    assert (fit.simulate(seed=1)["loss"] > LEAST).all()
    fit.report(tmp_path / "page.html")
    assert "loss" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_file_has_what_was_found_and_its_program_the_rest(fit: Any, tmp_path: Path) -> None:
    """A file names no class from outside the package, which nobody but its author could call; it says so, and can be attached."""
    with pytest.warns(UserWarning, match="a Pareto is not a node of the language.*attach"):
        fit.save(tmp_path / "fit.natgrad")
    again = ng.load(tmp_path / "fit.natgrad").attach(ng.Network(declared()).bind(TABLE))
    np.testing.assert_array_equal(again["tail"].mean(), fit["tail"].mean())
    assert again.elbo == pytest.approx(fit.elbo, rel=1e-12)
