"""What is predicted of a row is a function of this row: equal rows are predicted alike, however many others there are."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, roots_hermitenorm

import natgrad as ng

C, N = ng.Column, 40
rng = np.random.default_rng(0)
X, SIDE = rng.normal(size=N), rng.integers(0, 2, N)
ETA = np.where(SIDE, 1.5, -1.0) * X
TABLE = {
    "x": X, "v": rng.normal(size=N) + 2.0 * SIDE, "real": ETA + 0.3 * rng.normal(size=N), "positive": np.exp(0.5 * ETA),
    "binary": (rng.random(N) < expit(ETA)) * 1.0, "count": rng.poisson(2.0, N) * 1.0, "level": np.digitize(ETA, [-0.5, 0.7]),
}  # fmt: skip
LEAVES: dict[str, Any] = {
    "Normal": lambda eta, o: ng.Normal("y", eta, ng.Gamma("tau", 2.0, 1.0), observed=C("real"), **o),
    "StudentT": lambda eta, o: ng.StudentT("y", eta, ng.Gamma("tau", 2.0, 1.0), df=4.0, observed=C("real"), **o),
    "Laplace": lambda eta, o: ng.Laplace("y", eta, 1.3, observed=C("real"), **o),
    "LogNormal": lambda eta, o: ng.LogNormal("y", eta, 4.0, observed=C("positive"), **o),
    "logit": lambda eta, o: ng.Bernoulli("y", logit=eta, observed=C("binary"), **o),
    "probit": lambda eta, o: ng.Bernoulli("y", probit=eta, observed=C("binary"), **o),
    "Binomial": lambda eta, o: ng.Binomial("y", 5, logit=eta, observed=C("level"), **o),
    "NegativeBinomial": lambda eta, o: ng.NegativeBinomial("y", 3.0, logit=eta, observed=C("count"), **o),
    "Ordinal": lambda eta, o: ng.Ordinal("y", eta, cutpoints=[-0.5, 0.7], observed=C("level"), **o),
}


def declared(kind: str, leaf: str) -> ng.Network:
    """A leaf of a mixture or of a hidden number of each row; with ``seen`` another child of that is observed."""
    row, side = ng.Plate("row"), ng.Plate("side", 2)
    options = {"plate": row}
    if "mixture" in kind:
        z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=2), plate=row)
        eta, below = ng.Normal("m", 0.0, 0.3, plate=side)[z], ng.Normal("mv", 0.0, 0.1, plate=side)[z]
    elif "rate" in kind:  # random numbers that are not moved and stretched ones
        h = ng.Gamma("h", 2.0, ng.Gamma("b", 1.0, 1.0), plate=row)
        leaves = [ng.Poisson("y", h, observed=C("count"), **options)]
        return ng.Network(*leaves, *([ng.Poisson("v", h, observed=C("level"), **options)] if "seen" in kind else []))
    else:
        eta = below = ng.Normal("h", ng.Normal("a", 0.0, 1.0) * C("x"), 2.0, plate=row)
    leaves = [LEAVES[leaf](eta, options)]
    return ng.Network(*leaves, *([ng.Normal("v", below, 2.0, plate=row, observed=C("v"))] if "seen" in kind else []))


KINDS = ("mixture", "mixture, seen", "number", "number, seen")
CASES = [(kind, leaf) for kind in KINDS for leaf in LEAVES] + [("rate", "Poisson"), ("rate, seen", "Poisson")]


@pytest.mark.parametrize(("kind", "leaf"), CASES)
def test_equal_rows_are_predicted_alike_and_alone(kind: str, leaf: str) -> None:
    fit = declared(kind, leaf).fit(TABLE, verbose=False, max_steps=20, tol=0.0, backend="numpy")
    rows = np.array([0, 1, 2, 0, 1, 3, 2])

    def predicted(which: Any) -> dict[str, np.ndarray]:
        law = fit.predict({name: TABLE[name][which] for name in ("x", "v", "level")}, ["y"])["y"]
        density = law.log_density(np.ones(len(which)))
        return {"mean": law.mean(), "sd": law.std(), "interval": np.stack(law.interval(), 1), "density": density}

    order = np.array([6, 2, 0, 5, 4, 3, 1])
    found, turned, alone = predicted(rows), predicted(rows[order]), predicted(rows[5:6])
    for what, numbers in found.items():
        np.testing.assert_allclose(numbers[[0, 1, 2]], numbers[[3, 4, 6]], rtol=1e-12, err_msg=what)
        np.testing.assert_allclose(turned[what], numbers[order], rtol=1e-12, err_msg=what)
        np.testing.assert_allclose(alone[what][0], numbers[5], rtol=1e-9, err_msg=what)


@pytest.mark.parametrize("leaf", ["logit", "NegativeBinomial", "StudentT", "Normal", "LogNormal"])
def test_predictions_of_a_mixture_are_those_of_fine_integration(leaf: str) -> None:
    """Over q of the component means by Gauss and Hermite, over the components by their expected shares."""
    fit = declared("mixture", leaf).fit(TABLE, verbose=False, max_steps=20, tol=0.0, backend="numpy")
    law = fit.predict({"x": X[:2]}, ["y"])["y"]
    nodes, weights = roots_hermitenorm(200)
    eta, weights = fit["m"].mean()[:, None] + fit["m"].std()[:, None] * nodes, weights / weights.sum()
    noise = 0.0
    if leaf in ("StudentT", "Normal"):  # E[1/τ] of a Gamma: rate / (shape − 1)
        rate = fit["tau"].mean() / fit["tau"].var()
        noise = float(rate / (rate * fit["tau"].mean() - 1.0))
    mean, var = {
        "logit": (expit(eta), expit(eta) * expit(-eta)),
        "NegativeBinomial": (3.0 * np.exp(eta), 3.0 * np.exp(eta) * (1.0 + np.exp(eta))),
        "StudentT": (eta, 2.0 * noise + 0.0 * eta),
        "Normal": (eta, noise + 0.0 * eta),
        "LogNormal": (np.exp(eta + 0.125), np.expm1(0.25) * np.exp(2.0 * eta + 0.25)),
    }[leaf]
    shares = fit["pi"].mean()
    exact = shares @ (mean @ weights)
    spread = np.sqrt(shares @ ((var + (mean - exact) ** 2) @ weights))
    np.testing.assert_allclose(law.mean(), exact, atol=2e-3 * spread)
    if leaf != "LogNormal":  # whose square is so skewed that no 2,000 draws tell it
        np.testing.assert_allclose(law.std(), spread, rtol=5e-3)
