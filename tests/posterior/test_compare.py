"""`ng.compare`: bounds with and without labellings, held-out scores, the command, and what learned priors switch off."""

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import natgrad as ng
from natgrad.cli.main import main
from natgrad.models import hmm


def rows() -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(-4.0, 1.0, (40, 2)), rng.normal(4.0, 1.0, (40, 2))])


@pytest.fixture(scope="module")
def fits() -> dict[str, ng.GaussianMixture]:
    found = {str(k): ng.GaussianMixture(k, seed=0, n_init=2).fit(rows()) for k in (1, 2, 3)}
    return {**found, "auto": ng.GaussianMixture(("auto", 6)).fit(rows())}


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


def test_a_picture_stands_alone(fits: dict[str, ng.GaussianMixture], tmp_path: Path) -> None:
    """A file has no style sheet and no page: it is XML of its namespace, with its colours; K is a whole number."""
    table = ng.compare(fits)
    root = ElementTree.parse(table.draw().save(tmp_path / "fits.svg")).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    style = root.findtext(f"{space}style")
    assert style is not None
    drawn = {path.get("class") for path in root.iter(f"{space}path")}
    assert {"line", "second", "dots"} <= drawn
    assert all(f".{name}" in style for name in drawn if name)
    texts = [text.text or "" for text in root.iter(f"{space}text")]
    assert {"bound", "bound with log of the labellings", "K"} <= set(texts)
    assert not [text for text in texts if text.replace(".", "").isdigit() and "." in text]  # no 2.5 components


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


def test_draws_have_their_loo() -> None:
    """Of Normal data with a known mean and precision, LOO of draws that are all the truth is the log density."""
    from_dict, loo = pytest.importorskip("arviz_base").from_dict, pytest.importorskip("arviz_stats").loo
    x, rng = rows()[:, 0], np.random.default_rng(1)
    trees = {}
    for name, precision in (("narrow", 1.0), ("wide", 1 / 17)):
        mean = rng.normal(x.mean(), np.sqrt(1 / (precision * len(x))), (2, 250))
        density = -0.5 * (np.log(2 * np.pi / precision) + precision * (x - mean[..., None]) ** 2)
        trees[name] = from_dict({"posterior": {"mean": mean}, "log_likelihood": {"x": density}})
    table = ng.compare(trees)
    assert table.names == ("wide", "narrow")
    assert table["loo"] == pytest.approx([loo(trees[name]).elpd for name in table.names])
    total = -0.5 * (np.log(2 * np.pi * 17) + (x - x.mean()) ** 2 / 17).sum()
    assert total - 3.0 < table["loo"][0] < total
    assert np.isnan(table["bound"]).all()
    assert "loo" in str(table)
    # Draws of a network know their log likelihood.
    prior = ng.Normal("mean", 0.0, 1e-6)
    network = ng.Network(ng.Normal("x", prior, 1 / 17, plate=ng.Plate("row", 80), observed=x))
    draws = network.fit().draws(300, chains=2, seed=0)
    found = ng.compare({"draws": draws, **trees})
    assert found["loo"][list(found.names).index("draws")] == pytest.approx(table["loo"][0], abs=0.3)
    # Standard errors, of differences too, and Pareto k are those of ArviZ.
    of_rows = {name: np.asarray(loo(trees[name], pointwise=True).elpd_i) for name in table.names}
    apart = of_rows["wide"] - of_rows["narrow"]
    assert table["se"] == pytest.approx([loo(trees[name]).se for name in table.names], rel=0.02)
    assert table["difference"] == pytest.approx([0.0, apart.sum()], rel=1e-6)
    assert table["difference_se"] == pytest.approx([0.0, np.sqrt(80) * apart.std()], rel=0.02)
    assert table["pareto_k"][0] == pytest.approx(float(loo(trees["wide"], pointwise=True).pareto_k.max()))
    # Draws of other observations have no order, by how many there are or by what they are.
    other = ng.Network(ng.Normal("x", prior, 1 / 17, plate=ng.Plate("row", 80), observed=3 * x))
    with pytest.raises(ValueError, match="'b' are fits of other numbers, 80 observations each"):
        ng.compare({"a": draws, "b": other.fit().draws(100, chains=2, seed=0)})
    few = ng.Network(ng.Normal("x", prior, 1 / 17, plate=ng.Plate("row", 60), observed=x[:60]))
    with pytest.raises(ValueError, match="60 observations"):
        ng.compare({**trees, "few": few.fit().draws(100, chains=2, seed=0)})
    assert "leave-one-out" in table.draw()
    assert 'class="dots"' in table.draw()


def test_what_has_no_bound_is_refused() -> None:
    with pytest.raises(TypeError, match="which has no bound"):
        ng.compare({"a": 3})
    with pytest.raises(ValueError, match="compare needs fits"):
        ng.compare([])


def test_fits_of_other_data_are_refused(fits: dict[str, ng.GaussianMixture], tmp_path: Path) -> None:
    brief = {"n_init": 1, "max_passes": 5, "tol": 0.0}
    fewer, scaled = (ng.GaussianMixture(2, **brief).fit(x) for x in (rows()[:60], 3 * rows()))
    turned = ng.GaussianMixture(2, **brief).fit(rows()[::-1, ::-1])  # the same rows and columns in another order
    with pytest.raises(
        ValueError, match="'2' is a fit of 80 rows, and 'fewer' of 60 rows; bounds and LOO of different"
    ):
        ng.compare({"2": fits["2"], "fewer": fewer})
    with pytest.raises(ValueError, match="'2' and 'scaled' are fits of other numbers, 80 rows each"):
        ng.compare({"2": fits["2"], "scaled": scaled})
    assert len(ng.compare({"2": fits["2"], "turned": turned})) == 2
    fewer.save(tmp_path / "fewer")
    with pytest.raises(ValueError, match="of 60 rows"):
        ng.compare([fits["2"], ng.load(tmp_path / "fewer")])
    # Where data decide that none has seen, bounds do not, and are left out.
    table = ng.compare({"2": fits["2"], "fewer": fewer}, held_out=rows()[::2])
    assert np.isnan(table["bound"]).all()
    assert np.isfinite(table["held_out"]).all()
    with pytest.raises(ValueError, match="of 30 documents"):
        ng.compare([fits["2"], ng.LDA(2, inference="vb", max_passes=1).fit(np.ones((30, 3), int))])


def test_networks_of_other_observations_are_refused() -> None:
    """Of other values, numbers, missing elements, nodes or weights; not of other parents, order or names."""
    x, rng = rows()[:, 0], np.random.default_rng(0)

    def fit(
        values: npt.NDArray[np.float64], name: str = "x", weight: float | None = None, more: bool = False
    ) -> ng.Network:
        weights = None if weight is None else np.full(len(values), weight)
        mean, row = ng.Normal("mean", 0.0, 1e-3), ng.Plate("row", len(values), weight=weights)
        nodes = [ng.Normal(name, mean, 1.0, plate=row, observed=values)]
        nodes += [ng.Normal("z", mean, 1.0, plate=row, observed=values)] if more else []
        return ng.Network(*nodes).fit(max_steps=3)

    one, holes = fit(x), np.where(np.arange(80) < 3, np.nan, x)
    for same in (fit(rng.permutation(x)), fit(x, "other"), fit(x, weight=1.0)):
        assert len(ng.compare([one, same])) == 2
    other = {
        "values": fit(x + 0.1),
        "number": fit(x[1:]),
        "holes": fit(holes),
        "weights": fit(x, weight=2.0),
        "nodes": fit(x, more=True),
    }
    for name, fitted in other.items():
        with pytest.raises(ValueError, match=r"compare: 'one' (is a fit|and ).* of different data have no order"):
            ng.compare({"one": one, name: fitted})
    # A declared mixture beside the ready one: rows of one are vectors of the other.
    vectors = ng.MultivariateNormal(
        "x",
        ng.MultivariateNormal("m", np.zeros(2), 0.01 * np.eye(2)),
        np.eye(2),
        plate=ng.Plate("row", 80),
        observed=rows(),
    )
    ready = ng.GaussianMixture(1).fit(rows())
    assert len(ng.compare([ready, ng.Network(vectors).fit()])) == 2
    with pytest.raises(ValueError, match="fits of other numbers"):
        ng.compare([ready, one])


def test_held_out_rows_give_standard_errors(fits: dict[str, ng.GaussianMixture]) -> None:
    new = rows()[::3] + 0.1
    table = ng.compare(fits, held_out=new)
    best, last = (fits[name].score_samples(new) for name in (table.names[0], table.names[-1]))
    n = len(new)
    assert table["se"][0] == pytest.approx(best.std(ddof=1) / np.sqrt(n))
    assert table["difference"][-1] == pytest.approx(best.mean() - last.mean())
    assert table["difference_se"][-1] == pytest.approx((best - last).std(ddof=1) / np.sqrt(n))
    assert table["difference"][0] == table["difference_se"][0] == 0.0


def test_scores_of_different_kinds_have_no_order(fits: dict[str, ng.GaussianMixture]) -> None:
    """A mean over rows was ranked before the log probability of a whole sequence."""
    chain = ng.GaussianHMM(2, n_init=1, max_passes=2, tol=0.0).fit(rows())
    assert len(ng.compare({"rows": fits["2"], "times": chain})) == 2  # bounds of the same data
    with pytest.raises(ValueError, match=r"of different kinds, which have no order: 'The mean log density of a row"):
        ng.compare({"rows": fits["2"], "times": chain}, held_out=rows())
    process = ng.SparseGPRegressor(n_inducing=4, max_steps=2).fit(rows(), rows()[:, 0])
    assert ng.compare([process], held_out=(rows(), rows()[:, 0]))["held_out"][0] == process.score(rows(), rows()[:, 0])
    with pytest.raises(TypeError, match=r"give held_out=\(X, y\)"):
        ng.compare([process], held_out=rows())


def test_components_that_are_told_apart_have_one_labelling() -> None:
    x, brief = rows(), {"n_init": 1, "max_passes": 2, "tol": 0.0}
    labels = np.repeat([0, 1], 40)
    uneven = np.array([[1.0, 2.0], [1.0, 1.0]])
    symbols = (x[:, :1] > 0).astype(int)
    counts = np.ones((30, 3), int)
    alike = {
        "chain": ng.GaussianHMM(2, transitions=hmm.Transitions(sticky=3.0), **brief).fit(x),
        "mixture": ng.GaussianMixture(2, **brief).fit(x),
        "symbols": ng.CategoricalHMM(2, **brief).fit(symbols),
        "learned": ng.LDA(2, doc_prior="learn", topic_prior="learn", inference="vb", max_passes=2).fit(counts),
    }
    apart = {
        "ordered": ng.GaussianHMM(2, transitions=hmm.Transitions(topology="left-to-right"), **brief).fit(x),
        "transitions": ng.GaussianHMM(2, transitions=hmm.Transitions(uneven), **brief).fit(x),
        "known": ng.GaussianHMM(2, **brief).fit(x, labels=labels),
        "weights": ng.GaussianMixture(2, weight_prior=[1.0, 5.0], **brief).fit(x),
        "emissions": ng.CategoricalHMM(2, categories=hmm.Categorical(emission_prior=uneven), **brief).fit(symbols),
        "shares": ng.LDA(2, doc_prior=[0.1, 0.2], inference="vb", max_passes=2).fit(counts),
    }
    for fits, ways in ((alike, 2), (apart, 1)):
        for name, fit in fits.items():
            table = ng.compare({name: fit})
            assert table["corrected"][0] - table["bound"][0] == pytest.approx(math.log(ways)), name


def test_names_are_all_there(fits: dict[str, ng.GaussianMixture], tmp_path: Path) -> None:
    """Files of the same name in two folders were one line."""
    with pytest.raises(ValueError, match="read alike"):
        ng.compare({1: fits["1"], "1": fits["2"]})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="or a list of fits, got a GaussianMixture"):
        ng.compare(fits["1"])  # type: ignore[arg-type]
    files = [tmp_path / name / "m.natgrad" for name in ("1", "2")]
    for path in files:
        path.parent.mkdir()
        fits[path.parent.name].save(path)
    np.savetxt(tmp_path / "rows.csv", rows()[::2], delimiter=",", header="a,b", comments="")
    asked = ["compare", *map(str, files), "--held-out", str(tmp_path / "rows.csv")]
    found = CliRunner().invoke(main, asked)
    assert found.exit_code == 0, found.output
    assert len(found.output.splitlines()) == 3
    assert found.output.splitlines()[1].startswith(str(files[1]))


def test_the_report_draws_k(fits: dict[str, ng.GaussianMixture], tmp_path: Path) -> None:
    page = fits["auto"].report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The number of components along" in page
    assert "The number of components along" not in fits["2"].report(tmp_path / "two.html").read_text(encoding="utf-8")
