"""`ng.compare`: bounds with and without labellings, held-out scores, the command, and what learned priors switch off."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import natgrad as ng
from natgrad.cli.main import main


def rows() -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(-4.0, 1.0, (40, 2)), rng.normal(4.0, 1.0, (40, 2))])


@pytest.fixture(scope="module")
def fits() -> dict[str, ng.GaussianMixture]:
    found = {str(k): ng.GaussianMixture(k, seed=0, n_init=2).fit(rows()) for k in (1, 2, 3)}
    return {**found, "auto": ng.GaussianMixture("auto", max_components=6).fit(rows())}


def test_bounds_and_labellings(fits: dict[str, ng.GaussianMixture]) -> None:
    table = ng.compare(fits)
    assert table.names[-1] == "1"
    for place, name in enumerate(table.names):
        fit, k = fits[name], int(table["K"][place])
        ways = 6 * 5 if name == "auto" else math.factorial(k)
        assert k == fit.n_components_
        assert table["bound"][place] == fit.elbo_
        assert table["corrected"][place] == pytest.approx(fit.elbo_ + math.log(ways))
    assert (np.diff(table["corrected"]) <= 0).all()
    assert np.isnan(table["held_out"]).all()
    assert "corrected" in str(table)
    assert "held_out" not in str(table)
    assert "<table>" in table._repr_html_()
    assert str(table.draw()).startswith("<svg")


def test_held_out_scores_come_first(fits: dict[str, ng.GaussianMixture]) -> None:
    table = ng.compare(fits, held_out=rows()[::2])
    assert (np.diff(table["held_out"]) <= 0).all()
    assert table["held_out"][-1] == fits["1"].score(rows()[::2])


def test_networks_count_their_labellings() -> None:
    row, component = ng.Plate("row", 80), ng.Plate("component", 4, grow=True)
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(4, 0.25)), plate=row)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    grown = ng.Network(ng.Normal("x", mu[z], 1.0, plate=row, observed=rows()[:, 0])).fit()
    alone = ng.Network(ng.Normal("x", ng.Normal("m", 0.0, 0.01), 1.0, plate=row, observed=rows()[:, 0])).fit()
    table = ng.compare({"grown": grown, "alone": alone})
    assert table.names == ("grown", "alone")
    assert table["corrected"][0] - table["bound"][0] == pytest.approx(math.log(4 * 3))
    assert table["corrected"][1] == table["bound"][1]


def test_what_has_no_bound_is_refused() -> None:
    with pytest.raises(TypeError, match="which has no bound"):
        ng.compare({"a": 3})
    with pytest.raises(ValueError, match="compare needs fits"):
        ng.compare([])


def test_the_command(fits: dict[str, ng.GaussianMixture], tmp_path: Path) -> None:
    for name in ("1", "2"):
        fits[name].save(tmp_path / f"{name}.natgrad")
    files = [str(tmp_path / "1.natgrad"), str(tmp_path / "2.natgrad")]
    found = CliRunner().invoke(main, ["compare", *files, "--picture", str(tmp_path / "k.svg")])
    assert found.exit_code == 0, found.output
    assert found.output.splitlines()[1].startswith("2.natgrad")
    assert (tmp_path / "k.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_report_draws_k(fits: dict[str, ng.GaussianMixture], tmp_path: Path) -> None:
    page = fits["auto"].report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The number of components along" in page
    assert "The number of components along" not in fits["2"].report(tmp_path / "two.html").read_text(encoding="utf-8")


def test_learned_priors_switch_factors_off() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 30)) + 0.3 * rng.normal(size=(40, 30))
    assert ng.MatrixFactorization(n_factors=6, max_steps=300).fit(table).n_factors_ == 2
