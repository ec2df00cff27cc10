"""How much to forget, learned: by quadrature, and on streams that jump, in one of their parameters."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import natgrad as ng
from natgrad.network.bind.remembering import _expected, _log_integral

QUIET: dict[str, Any] = {"verbose": False}


@pytest.mark.parametrize("omega", [-900.0, -30.0, -2.0, -1e-4, 0.0, 1e-4, 2.0, 30.0, 900.0])
def test_the_density_of_what_is_kept(omega: float) -> None:
    scale = max(omega, 0.0)
    total = quad(lambda r: np.exp(omega * r - scale), 0, 1, points=[0.0, 0.01, 0.99, 1.0])[0]
    mean = quad(lambda r: r * np.exp(omega * r - scale), 0, 1, points=[0.0, 0.01, 0.99, 1.0])[0] / total
    assert _log_integral(omega) == pytest.approx(np.log(total) + scale, abs=1e-6)
    assert _expected(omega) == pytest.approx(mean, abs=1e-6)


def moved(network: ng.Network, before: Any, after: Any) -> Any:
    return network.fit({"y": before}, **QUIET).update({"y": after}, drift="auto", **QUIET)


def test_what_new_rows_contradict_is_forgotten_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    mu, tau = ng.Normal("mu", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
    network = ng.Network(ng.Normal("y", mu, tau, plate=ng.Plate("row"), observed=ng.Column("y")))
    old = rng.normal(size=200)
    jumped = moved(network, old, 5.0 + rng.normal(size=50))
    assert jumped["mu"].mean() == pytest.approx(5.0, abs=0.3)
    assert jumped["tau"].mean() == pytest.approx(1.0, abs=0.2)
    assert jumped.forgotten["mu"] > 0.99 > 0.6 > jumped.forgotten["tau"]
    noisier = moved(network, old, 6.0 * rng.normal(size=100))
    assert noisier.forgotten["tau"] > 0.9 > noisier.forgotten["mu"]
    same = moved(network, old, rng.normal(size=50))
    assert max(same.forgotten.values()) < 0.5
    # A fit that took rows this way takes more of them.
    again = jumped.update({"y": 5.0 + rng.normal(size=50)}, drift="auto", **QUIET)
    assert again["mu"].std() < jumped["mu"].std()


def test_the_posterior_is_that_of_the_power_prior() -> None:
    """One Gaussian block: precision and mean from what is kept, in closed form."""
    network = ng.Network(ng.Normal("y", ng.Normal("mu", 1.0, 0.5), 2.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    fit = moved(network, np.full(10, 0.3), np.full(5, 0.9))
    kept = 1.0 - fit.forgotten["mu"]
    precision = 0.5 + 2.0 * (10 * kept + 5)
    assert fit["mu"].var() == pytest.approx(1.0 / precision, rel=1e-9)
    assert fit["mu"].mean() == pytest.approx((0.5 + 2.0 * (10 * kept * 0.3 + 5 * 0.9)) / precision, rel=1e-6)


def test_mistakes() -> None:
    network = ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 0.0), 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    fit = network.fit({"y": np.zeros(5)}, **QUIET)
    with pytest.raises(ValueError, match="which is flat"):
        fit.update({"y": np.ones(5)}, drift="auto", **QUIET)
    with pytest.raises(ValueError, match='drift must be "auto"'):
        fit.update({"y": np.ones(5)}, drift="none", **QUIET)
    with pytest.raises(ValueError, match="give one of them"):
        fit.update({"y": np.ones(5)}, drift="auto", forgetting=0.5, **QUIET)
