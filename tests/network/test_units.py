"""Units and offsets: of data a·y + b, with priors that are transformed alike, everything found is transformed alike.

b is in standard deviations of the noise, up to 10⁹: double precision then leaves seven digits of the data themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

import natgrad as ng

N = 60
rng = np.random.default_rng(20)
GROUP = rng.integers(5, size=N)
X = np.column_stack([np.ones(N), rng.normal(size=N), 20 + rng.normal(size=N)])
NOISE = rng.normal(size=N)
ROWS = np.vstack([rng.normal(size=(30, 2)) - 3, rng.normal(size=(30, 2)) + 3])
LABELS = np.repeat([0, 1], 30)
SCORES, WEIGHTS = rng.normal(size=(20, 2)), rng.normal(size=(6, 2))
TABLE = SCORES @ WEIGHTS.T + 0.3 * rng.normal(size=(20, 6)) + np.arange(6)
LEVELS = np.array([3.0, -1.0, 2.0, 0.5, -2.0])
PRICE = rng.normal(size=7)
MIX = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1], [1.0, 0.0, 0.0]])


class Case(NamedTuple):
    """A network of data a·(y + b), its start, and how each of its nodes is transformed."""

    node: ng.Normal
    init: dict
    kinds: dict[str, str]  # location: a·(x + b), scale: a·x, precision: x/a², plain: x
    count: int  # of observed numbers: the density of each is divided by a


def hierarchy(a: float, b: float) -> Case:
    """Groups around a mean, a slope on known numbers, a sum."""
    group, n = ng.Plate("group", 5), ng.Plate("n", N)
    grand = ng.Normal("grand", a * b, 1e-4 / a**2)
    spread = ng.Gamma("spread", 1.0, a**2)
    level = ng.Normal("level", grand, spread, plate=group)
    slope = ng.Normal("slope", 0.0, 1e-2 / a**2)
    tau = ng.Gamma("tau", 1e-3, 1e-3 * a**2)
    values = a * (LEVELS[GROUP] + 0.7 * X[:, 1] + NOISE + b)
    y = ng.Normal("y", level[GROUP] + slope * X[:, 1], tau, plate=n, observed=values)
    kinds = {"grand": "location", "spread": "precision", "level": "location", "slope": "scale", "tau": "precision"}
    return Case(y, {}, kinds, N)


def regression(a: float, b: float) -> Case:
    """The intercept is a column of ones."""
    n = ng.Plate("n", N)
    w = ng.MultivariateNormal("w", [a * b, 0.0, 0.0], np.diag([1e-4, 1e-2, 1.0]) / a**2)
    tau = ng.Gamma("tau", 1e-3, 1e-3 * a**2)
    values = a * (X @ [1.0, 2.0, 0.1] + NOISE + b)
    y = ng.Normal("y", ng.dot(X, w), tau, plate=n, observed=values)
    return Case(y, {}, {"w": "intercept", "tau": "precision"}, N)


def mixture(a: float, b: float) -> Case:
    """Vectors with precision matrices, chosen by a category."""
    k, n = ng.Plate("k", 2), ng.Plate("n", len(ROWS))
    share = ng.Dirichlet("share", 1.0, size=2)
    z = ng.Categorical("z", share, plate=n)
    mu = ng.MultivariateNormal("mu", np.full(2, a * b), 1e-2 * np.eye(2) / a**2, plate=k)
    lam = ng.Wishart("lam", 3.0, np.eye(2) * a**2, plate=k)
    y = ng.MultivariateNormal("y", mu[z], lam[z], plate=n, observed=a * (ROWS + b))
    kinds = {"share": "plain", "z": "plain", "mu": "location", "lam": "precision"}
    return Case(
        y, {"z": np.eye(2)[LABELS] * 0.6 + 0.2, "mu": a * (np.array([[-1.0, -1.0], [1.0, 1.0]]) + b)}, kinds, 120
    )


def components(a: float, b: float) -> Case:
    """A product of random factors beside a mean for each column."""
    row, column, f = ng.Plate("row", 20), ng.Plate("column", 6), ng.Plate("f", 2)
    x = ng.Normal("x", 0.0, 1.0, plate=(row, f))
    w = ng.Normal("w", 0.0, 1.0 / a**2, plate=(column, f))
    m = ng.Normal("m", a * b, 1e-4 / a**2, plate=column)
    tau = ng.Gamma("tau", 1e-3, 1e-3 * a**2)
    y = ng.Normal("y", ng.dot(x, w) + m, tau, plate=(row, column), observed=a * (TABLE + b))
    kinds = {"x": "plain", "w": "scale", "m": "location", "tau": "precision"}
    init = {"x": SCORES, "w": a * WEIGHTS, "m": a * (np.zeros(6) + b), "tau": 1.0 / a**2}
    return Case(y, init, kinds, 120)


def middle(a: float, b: float) -> Case:
    """An observed node that another reads through an index, and one number alone."""
    day, sale = ng.Plate("day", 7), ng.Plate("sale", N)
    base = ng.Normal("base", 0.0, 1e-2 / a**2)
    level = ng.Normal("level", a * b, 1e-4 / a**2)
    price = ng.Normal("price", level, 1.0 / a**2, plate=day, observed=a * (PRICE + b))
    index = np.arange(N) % 7
    values = a * (PRICE[index] + 5.0 + NOISE + b)
    y = ng.Normal("y", base + price[index], 1.0 / a**2, plate=sale, observed=values)
    z = ng.Normal("z", y[np.array(3)] + base, 1.0 / a**2, observed=a * (PRICE[3] + 9.0 + b))
    return Case(z, {}, {"base": "scale", "level": "location"}, N + 8)


def mapped(a: float, b: float) -> Case:
    """A known matrix times a random vector, whose rows add up to one."""
    n = ng.Plate("n", 15)
    x = ng.MultivariateNormal("x", np.full(3, a * b), np.eye(3) / a**2)
    lam = ng.Wishart("lam", 5.0, np.eye(4) * a**2)
    y = ng.MultivariateNormal("y", MIX @ x, lam, plate=n, observed=a * (NOISE.reshape(15, 4) + b))
    return Case(y, {}, {"x": "location", "lam": "precision"}, N)


CASES = {case.__name__: case for case in (hierarchy, regression, mixture, components, middle, mapped)}


def summary(case: Case, a: float, b: float) -> dict[str, np.ndarray]:
    """What a fit says, in the units of a = 1 and b = 0."""
    fit = ng.Network(case.node).fit(ng.VB(), init=case.init or None, max_steps=12, tol=0)
    found = {"elbo": np.asarray(fit.elbo + case.count * np.log(a))}
    found["trace"] = np.asarray(fit.trace["elbo"][-3:]) + case.count * np.log(a)
    for name, kind in case.kinds.items():
        factor = fit[name]
        unit = {"precision": a**-2, "plain": 1.0}.get(kind, a)
        offset = {"location": a * b, "intercept": a * b * np.array([1.0, 0, 0])}.get(kind, 0.0)
        found[name] = (factor.mean() - offset) / unit
        found[f"{name} var"] = factor.var() / unit**2
        if kind != "plain":
            found[f"{name} low"] = (factor.interval(0.8)[0] - offset) / unit if kind != "precision" else found[name]
            draws = factor.sample(0, 3)
            found[f"{name} draws"] = (draws - offset) / unit
        if kind == "location":
            found[f"{name} parameters"] = (factor.parameters["mean"] - offset) / unit
    predicted = fit.predictive(case.node.name)
    found["predicted"] = predicted.mean() / a - b
    found["predicted var"] = predicted.var() / a**2
    low, high = predicted.interval(0.5)
    found["predicted interval"] = (high - low) / a
    return found


def compare(build: Callable[[float, float], Case], a: float, b: float, reference: dict[str, np.ndarray]) -> None:
    # The data have an error of b · 2⁻⁵³, and data that are not measured anew lose the square of their distance. Of that, a
    # thousand times in what is computed from them: a regression on x = 20 ± 1 alone multiplies errors by 20².
    atol = 1e3 * (1e4 + abs(b)) * 2.0**-53
    found = summary(build(a, b), a, b)
    for name, expected in reference.items():
        scale = 1.0 + np.abs(expected).max()
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=atol * scale, err_msg=f"{name} {a=} {b=}")


@pytest.fixture(scope="module")
def references() -> dict[str, dict[str, np.ndarray]]:
    return {}


def reference(references: dict, name: str) -> dict[str, np.ndarray]:
    if name not in references:
        references[name] = summary(CASES[name](1.0, 0.0), 1.0, 0.0)
    return references[name]


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [("hierarchy", 1e-12, 1e9), ("mixture", 1e12, -1e9), ("middle", 1e-6, 1e9)],
)
def test_results_are_transformed_like_the_data(name: str, a: float, b: float, references: dict) -> None:
    compare(CASES[name], a, b, reference(references, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("a", [1e-12, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("b", [0.0, 90.0, 500.0, -1e5, 1e7, 1e9])
def test_results_are_transformed_like_the_data_on_a_grid(name: str, a: float, b: float, references: dict) -> None:
    compare(CASES[name], a, b, reference(references, name))


def far(values: np.ndarray) -> ng.Network:
    n = ng.Plate("n", len(values))
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    return ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 1e-20), tau, plate=n, observed=values))


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(5).normal(size=200)


@pytest.mark.parametrize("offset", [1e7, 1e9])
def test_the_bound_of_far_data_rises_and_the_precision_is_right(offset: float, values: np.ndarray) -> None:
    fit = far(values + offset).fit()
    assert fit["tau"].mean() == pytest.approx(1.0 / values.var(), rel=0.02)
    assert np.diff(fit.trace["elbo"]).min() >= -1e-9
    assert fit["mu"].mean() == pytest.approx(offset + values.mean(), abs=1e-5)


def test_everything_that_shows_or_takes_values_is_in_the_units_of_the_data(tmp_path, values: np.ndarray) -> None:
    pytest.importorskip("xarray")
    network = far(values + 1e7)
    fit = network.fit(init={"mu": 1e7 + 3.0}, max_steps=20, tol=0)
    mean, precision = fit["mu"].parameters["mean"], fit["mu"].parameters["precision"]
    np.testing.assert_allclose(fit["mu"].natural["x"], precision * mean, rtol=1e-12)
    np.testing.assert_allclose(fit["mu"].moments["xx"], mean**2 + 1 / precision, rtol=1e-12)
    assert fit.to_xarray()["mu"].item() == pytest.approx(mean, rel=1e-15)
    # One step of length one along the natural gradient is the exact update: here it leaves the mean where it is.
    updated = [part + away for part, away in zip(fit["mu"].natural.values(), fit.natural_gradient("mu"), strict=True)]
    assert updated[0] / (-2.0 * updated[1]) == pytest.approx(mean, rel=0, abs=1e-6)
    assert fit.psis(200).log_evidence == pytest.approx(fit.elbo, abs=0.05)
    fit.save(tmp_path / "fit.natgrad")
    saved = ng.load(tmp_path / "fit.natgrad")
    assert saved["mu"].mean() == fit["mu"].mean()
    # A fit has the bound of its last sweep; attached, it is added up anew: the same bits as anew before, another order of sums.
    attached = saved.attach(network)
    assert attached.elbo == fit.problem.bound(fit.state)
    assert attached.elbo == pytest.approx(fit.elbo, rel=1e-14)
    # Other data: the same posterior, measured from elsewhere; the fit goes on from there.
    other = saved.attach(far(values + 1e7 + 50.0))
    assert other["mu"].mean() == pytest.approx(mean, abs=1e-7)
    assert other.continue_fit().predictive("y").mean()[0] == pytest.approx(1e7 + 50 + values.mean(), abs=1e-6)


def test_components_that_differ_in_a_small_unit_are_not_taken_for_equal() -> None:
    a, k, n = 1e-13, ng.Plate("k", 2), ng.Plate("n", 60)
    mu = ng.Normal("mu", 0.0, 1e-2 / a**2, plate=k)
    z = ng.Categorical("z", [0.5, 0.5], plate=n)
    y = ng.Normal("y", mu[z], 1.0 / a**2, plate=n, observed=a * ROWS[:, 0])
    fit = ng.Network(y).fit(init={"mu": [-a, a]}, max_steps=30)
    np.testing.assert_allclose(np.sort(fit["mu"].mean()) / a, [-3.0, 3.0], atol=0.7)


@pytest.mark.parametrize("away", [0.0, 1e4, 1e6, 1e8, 1e9])
@pytest.mark.parametrize("precision", [1e-6, 1.0])
@pytest.mark.parametrize("written", ["mean", "dot of scalars", "dot of a vector"])
def test_bounds_far_from_a_fixed_prior_are_right_to_the_last_digits(away, precision, written):
    """The evidence in rational numbers. At 1e8 from a prior of variance 1 it is −5e15 nats: its last digit is one nat."""
    y = np.random.default_rng(0).normal(size=200) + away
    row, ones = ng.Plate("row", 200), np.ones((200, 1))
    mean = {
        "mean": lambda: ng.Normal("w", 0.0, precision),
        "dot of scalars": lambda: ng.dot(ones, ng.Normal("w", 0.0, precision, plate=ng.Plate("column", 1))),
        "dot of a vector": lambda: ng.dot(ones, ng.MultivariateNormal("w", np.zeros(1), precision * np.eye(1))),
    }[written]()
    found = ng.Network(ng.Normal("y", mean, 1.0, plate=row, observed=y)).fit().elbo
    exact, tau = [Fraction(float(value)) for value in y], Fraction(precision)
    squares = sum(value * value for value in exact) - sum(exact) ** 2 / (tau + 200)
    evidence = -float(squares / 2) - 0.5 * (200 * np.log(2 * np.pi) + np.log1p(200 / precision))
    # Prior, likelihood and entropy are added up: a few units in the last place of the largest.
    assert abs(found - evidence) <= 4 * np.spacing(abs(evidence))
