"""Predictions for new tables: closed forms, enumeration, new levels at their prior, every kind of node."""

from contextlib import nullcontext as nothing
from typing import Any

import numpy as np
import pytest
from network.bound_cases import factorisation, regression, topics
from scipy import stats
from scipy.special import softmax

import natgrad as ng

QUIET: dict[str, Any] = {"verbose": False, "tol": 1e-10}


def test_a_regression_with_known_noise_is_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    y = x @ [1.0, -1.0] + rng.normal(size=20) / 2
    w = ng.MultivariateNormal("w", 0.0, 1.0, size=2)
    node = ng.Normal("y", ng.dot(ng.Columns("a", "b"), w), 4.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    fit = ng.Network(node).fit({"a": x[:, 0], "b": x[:, 1], "y": y}, **QUIET)
    new = rng.normal(size=(5, 2))
    found = fit.predict({"a": new[:, 0], "b": new[:, 1]})[node]
    covariance = np.linalg.inv(np.eye(2) + 4.0 * x.T @ x)
    mean, var = new @ (covariance @ (4.0 * x.T @ y)), np.einsum("ni,ij,nj->n", new, covariance, new) + 0.25
    np.testing.assert_allclose(found.mean(), mean, rtol=1e-10)
    np.testing.assert_allclose(found.std(), np.sqrt(var), rtol=1e-10)
    low, high = found.interval(0.9)
    np.testing.assert_allclose(low, mean - 1.645 * np.sqrt(var), atol=0.12)
    np.testing.assert_allclose(high, mean + 1.645 * np.sqrt(var), atol=0.12)
    np.testing.assert_allclose(found.log_density(mean, n=4000), stats.norm.logpdf(0.0, 0.0, np.sqrt(var)), atol=0.05)


def test_rows_of_the_table_are_predicted_as_with_arrays() -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", **QUIET)
    mine = fit.predict(case.table, nodes=["r"])["r"]
    arrays = fit.predictive("r")
    np.testing.assert_allclose(mine.mean(), arrays.mean(), rtol=1e-8)
    np.testing.assert_allclose(mine.std(), arrays.std(), rtol=1e-8)


def test_a_new_level_has_its_prior_given_what_was_learned() -> None:
    rng = np.random.default_rng(1)
    top, spread = ng.Normal("top", 0.0, 0.01), ng.Gamma("spread", 2.0, 1.0)
    level = ng.Normal("level", top, spread, plate=ng.Plate("group"))
    y = ng.Normal("y", level[ng.Column("g")], 4.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    groups = rng.integers(0, 6, 60)
    table = {"g": [f"g{i}" for i in groups], "y": 5.0 + rng.normal(size=6)[groups] + 0.5 * rng.normal(size=60)}
    fit = ng.Network(y).fit(table, **QUIET)
    found = fit.predict({"g": ["g1", "new", "g3"]})["y"]
    expected = [fit["level"].mean()[1], fit["top"].mean(), fit["level"].mean()[3]]
    np.testing.assert_allclose(found.mean(), expected, rtol=1e-9)
    precision = fit["spread"].parameters["shape"] / fit["spread"].parameters["rate"]
    variance = found.std()[1] ** 2 - 0.25
    assert variance == pytest.approx(1.0 / precision, rel=1e-6)


def mixture_of_two() -> tuple[ng.Network, dict[str, Any]]:
    """One hidden category in each row, behind a number and a count."""
    rng = np.random.default_rng(2)
    row, part = ng.Plate("row"), ng.Plate("part", 2)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=row)
    mu, rate = ng.Normal("mu", 0.0, 0.1, plate=part), ng.Gamma("rate", 1.0, 0.1, plate=part)
    x = ng.Normal("x", mu[z], 1.0, plate=row, observed=ng.Column("x"))
    n = ng.Poisson("n", rate[z], plate=row, observed=ng.Column("n"))
    hidden = rng.integers(0, 2, 80)
    table = {"x": 6.0 * hidden - 3.0 + rng.normal(size=80), "n": rng.poisson(np.array([2.0, 15.0])[hidden])}
    return ng.Network(x, n), table


def test_hidden_nodes_of_new_rows_are_inferred_from_what_is_there() -> None:
    network, table = mixture_of_two()
    fit = network.fit(table, init={"mu": [-1.0, 1.0]}, **QUIET)
    new = np.array([-3.0, 0.2, 3.0])
    found = fit.predict({"x": new})["n"]
    moments, share = fit["mu"].moments, fit["share"].moments["log"]
    weights = softmax(share + new[:, None] * moments["x"] - 0.5 * moments["xx"], axis=1)
    np.testing.assert_allclose(found.mean(), weights @ fit["rate"].mean(), rtol=0.05)
    # With nothing observed the category comes from its own distribution.
    alone = fit.predict({"row": [0, 1]})["n"].mean()
    np.testing.assert_allclose(alone, fit["share"].mean() @ fit["rate"].mean(), rtol=0.05)


def hidden_in_rows(kind: str) -> tuple[ng.Network, dict[str, Any]]:
    rng = np.random.default_rng(4)
    row, part, y = ng.Plate("row"), ng.Plate("part", 2), np.where(rng.random(60) < 0.5, -3.0, 3.0) + rng.normal(size=60)
    if kind == "number":
        return ng.Network(
            ng.Normal("y", ng.Normal("h", 1.0, 0.5, plate=row), 2.0, plate=row, observed=ng.Column("y"))
        ), {"y": y}
    mu = ng.Normal("mu", 0.0, 0.1, plate=part)
    if kind == "category":
        h: Any = ng.Categorical("h", ng.Dirichlet("share", 1.0, size=2), plate=row)
    elif kind == "coin":
        h = ng.Bernoulli("h", ng.Beta("share", 1.0, 1.0), plate=row)
    else:
        h = ng.MarkovChain("h", np.full(2, 0.5), ng.Dirichlet("move", 1.0, size=2, plate=part), plate=row)
    return ng.Network(ng.Normal("y", mu[h], 1.0, plate=row, observed=ng.Column("y"))), {"y": y}


@pytest.mark.parametrize("kind", ["category", "coin", "chain", "number"])
def test_hidden_nodes_of_new_rows_are_those_of_the_fit(kind: str) -> None:
    """q of the rows that were fitted, asked for as new ones, is the fit's own; in another order in that order."""
    network, table = hidden_in_rows(kind)
    fit = network.fit(table, verbose=False, tol=1e-12)
    again = fit.predict(table, nodes=["h"])["h"]
    np.testing.assert_allclose(again.mean(), fit["h"].mean(), atol=1e-5)
    np.testing.assert_allclose(again.std(), fit["h"].std(), atol=1e-4)
    if kind in ("category", "coin"):
        np.testing.assert_allclose(again.probabilities().sum(-1), 1.0)
        turned = fit.predict({"y": table["y"][::-1]}, nodes=["h"])["h"]
        np.testing.assert_allclose(turned.probabilities()[::-1], again.probabilities(), rtol=1e-6)
        unseen = fit.predict({"y": np.full(3, np.nan)}, nodes=["h"])["h"]  # nothing is known of these rows
        share = fit["share"].mean()
        np.testing.assert_allclose(
            unseen.probabilities()[0], share if kind == "category" else [1.0 - share, share], atol=0.02
        )
    else:
        with pytest.raises(TypeError, match="only categories have probabilities") if kind == "number" else nothing():
            again.probabilities()


def test_components_of_new_rows_are_those_of_the_ready_mixture() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(150, 2)) + 5.0 * rng.normal(size=(3, 2))[rng.integers(3, size=150)]
    row, part = ng.Plate("row"), ng.Plate("part", 3)
    z = ng.Categorical("z", ng.Dirichlet("weights", 1.0, size=3), plate=row)
    precision = ng.Wishart("precision", 4.0, np.eye(2), plate=part)
    mu = ng.MultivariateNormal("mu", np.zeros(2), 0.1 * precision, plate=part)
    y = ng.MultivariateNormal("y", mu[z], precision[z], plate=row, observed=ng.Columns("a", "b"))
    fit = ng.Network(y, joint=[("mu", "precision")]).fit({"a": x[:, 0], "b": x[:, 1]}, verbose=False, tol=1e-9)
    model = ng.GaussianMixture(
        3, weight_prior=1.0, covariance=ng.models.hmm.Gaussian("full", np.zeros(2), 0.1, 4.0, np.eye(2)), tol=1e-12,
        verbose=False,
    ).fit(x)  # fmt: skip
    assert fit.elbo == pytest.approx(model.elbo_, rel=1e-7)
    new = 3.0 * rng.normal(size=(40, 2))
    found = fit.predict({"a": new[:, 0], "b": new[:, 1]}, nodes=["z"])["z"].probabilities()
    wanted = model.predict_proba(new)
    order = [int(np.argmin(np.abs(wanted - found[:, [k]]).sum(0))) for k in range(3)]
    np.testing.assert_allclose(found, wanted[:, order], atol=1e-4)


def test_a_document_is_known_by_its_id_and_a_new_one_has_prior_shares() -> None:
    case = topics()
    fit = case.columns.fit(case.table, init=case.init, **QUIET)
    found = fit.predict({"doc": ["news", "diary"]})["w"].probabilities()
    theta = np.stack([fit["theta"].mean()[1], [0.5, 0.5]])
    np.testing.assert_allclose(found, theta @ fit["phi"].mean(), atol=0.02)


KINDS: dict[str, tuple[Any, Any]] = {
    "Normal": (lambda s, **o: ng.Normal("y", s, 2.0, **o), [1.0, 2.0, 0.5]),
    "Gamma": (lambda s, **o: ng.Gamma("y", 2.0, 3.0, **o), [1.0, 2.0, 0.5]),
    "Exponential": (lambda s, **o: ng.Exponential("y", 3.0, **o), [1.0, 2.0, 0.5]),
    "Beta": (lambda s, **o: ng.Beta("y", 2.0, 3.0, **o), [0.1, 0.2, 0.5]),
    "Bernoulli": (lambda s, **o: ng.Bernoulli("y", 0.3, **o), [1, 0, 1]),
    "Binomial": (lambda s, **o: ng.Binomial("y", ng.Column("t"), 0.3, **o), [1, 0, 2]),
    "Poisson": (lambda s, **o: ng.Poisson("y", 3.0, **o), [1, 0, 4]),
    "Categorical": (lambda s, **o: ng.Categorical("y", [0.2, 0.8], **o), [1, 0, 1]),
    "Multinomial": (lambda s, **o: ng.Multinomial("y", ng.Column("t"), [0.2, 0.8], **o), [[1, 3], [0, 4], [4, 0]]),
    "MultivariateNormal": (
        lambda s, **o: ng.MultivariateNormal("y", [1.0, 2.0], 2.0 * np.eye(2), **o), [[1.0, 0.0], [0.5, 2.0], [1.0, 1.0]]
    ),
    "Dirichlet": (lambda s, **o: ng.Dirichlet("y", [2.0, 3.0], **o), [[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]]),
    "Wishart": (
        lambda s, **o: ng.Wishart("y", 4.0, np.eye(2), **o), [2.0 * np.eye(2), np.eye(2), [[1.0, 0.3], [0.3, 2.0]]]
    ),
}  # fmt: skip
PEERS: dict[str, Any] = {
    "Gamma": stats.gamma(2.0, scale=1 / 3), "Exponential": stats.expon(scale=1 / 3), "Beta": stats.beta(2.0, 3.0),
    "Poisson": stats.poisson(3.0), "Bernoulli": stats.bernoulli(0.3), "Binomial": stats.binom(4, 0.3),
    "MultivariateNormal": stats.multivariate_normal([1.0, 2.0], 0.5 * np.eye(2)),
    "Multinomial": stats.multinomial(4, [0.2, 0.8]), "Dirichlet": stats.dirichlet([2.0, 3.0]),
    "Wishart": stats.wishart(4, np.eye(2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_observed_node_is_predicted(kind: str) -> None:
    make, values = KINDS[kind]
    row = ng.Plate("row")
    level = ng.Normal("level", 0.0, 1.0)
    other = ng.Normal("other", level, 1.0, plate=row, observed=ng.Column("o"))
    node = make(level, plate=row, observed=ng.Column("y"))
    table: dict[str, Any] = {"o": np.zeros(3), "t": [4, 4, 4], "y": np.array(values)}
    fit = ng.Network(other, node).fit(table, **QUIET)
    found = fit.predict({"o": np.zeros(3), "t": [4, 4, 4]})["y"]
    shape = np.shape(values)
    draws = found.sample(1, 4000)
    assert draws.shape == (4000, *shape)
    logs = found.log_density(np.array(values))
    assert logs.shape == shape[:1]
    assert np.isfinite(logs).all()
    if kind != "Categorical":
        assert found.mean().shape == found.std().shape == found.interval()[0].shape == shape
    if kind in PEERS:
        peer = PEERS[kind]
        density = peer.logpdf if hasattr(peer, "logpdf") and not hasattr(peer.__class__, "pmf") else None
        points = [np.asarray(value) for value in values]
        expected = [(peer.logpmf if kind in ("Poisson", "Bernoulli", "Binomial", "Multinomial") else density or peer.logpdf)(p)
                    for p in points]  # fmt: skip
        np.testing.assert_allclose(logs, np.ravel(expected), rtol=1e-9)
        mean = peer.mean() if callable(peer.mean) else peer.mean
        np.testing.assert_allclose(draws.mean(axis=(0, 1)), mean, atol=0.1)


def test_mistakes_in_new_tables_are_named() -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", max_steps=3, verbose=False)
    with pytest.raises(ValueError, match="there is no column 'movieId'"):
        fit.predict({"userId": ["ann"]})
    with pytest.raises(ValueError, match="there is nothing to predict"):
        fit.predict(case.table)
    with pytest.raises(ValueError, match=r"nodes: 'x' is not on the rows.*'r'"):
        fit.predict(case.table, nodes=["x"])
    with pytest.raises(KeyError, match=r"'u' was not predicted; predicted are r"):
        fit.predict({"userId": ["ann"], "movieId": [3]})["u"]
    with pytest.raises(ng.errors.PlateMismatch, match="declared with arrays"):
        case.arrays.fit(max_steps=3, init="random", verbose=False).predict(case.table)
    words = topics()
    fit = words.columns.fit(words.table, init=words.init, max_steps=3, verbose=False)
    two = ng.Network(*regression().columns.template.roots)  # type: ignore[union-attr]
    assert two.hidden == ("w", "level", "tau")


def with_gaps() -> ng.Network:
    """A predictor x that may be missing, what reads it, and something else that tells of it."""
    row = ng.Plate("row")
    m = ng.Normal("m", 0.0, 1e6)
    x = ng.Normal("x", m, 1.0, plate=row, observed=ng.Column("x"))
    return ng.Network(
        ng.Normal("y", 2.0 * x, 1.0, plate=row, observed=ng.Column("y")),
        ng.Normal("z", 1.0 * x, 1.0, plate=row, observed=ng.Column("z")),
    )


@pytest.mark.parametrize("chunk_rows", [None, 4])
def test_a_cell_that_is_missing_in_a_new_row_is_not_taken_for_zero(chunk_rows):
    """It is drawn where nothing tells of it, and inferred where something does: x | z ~ N(z/2, 1/2), y | z ~ N(z, 3)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=9)
    table = {"x": x, "y": 2.0 * x + rng.normal(size=9), "z": x + rng.normal(size=9)}
    fit = with_gaps().fit(table, chunk_rows=chunk_rows, verbose=False)
    new = {"x": [1.5, np.nan, np.nan], "z": [0.0, 3.0, -1.0]}
    found = fit.predict(new)["y"]
    np.testing.assert_allclose(found.mean(), [3.0, 3.0, -1.0], atol=0.02)
    np.testing.assert_allclose(found.std(), np.sqrt([1.0, 3.0, 3.0]), atol=0.08)
    for given, wanted in ((np.nan, 0.0), (4.0, 8.0)):
        alone = fit.predict({"x": [given], "y": [0.0], "z": [np.nan]}, ["y"])["y"]
        assert alone.mean()[0] == pytest.approx(wanted, abs=0.15)
        assert alone.std()[0] == pytest.approx(np.sqrt(5.0 if np.isnan(given) else 1.0), abs=0.15)
    low, high = found.interval(0.9)
    assert (high - low)[1] > 1.6 * (high - low)[0]


def test_predictions_of_levels_are_in_the_order_of_their_rows_with_ids(rng: np.random.Generator) -> None:
    """Two tables in any order of rows give the same answers by id, those of a level that was not fitted included."""
    pandas = pytest.importorskip("pandas")
    user = ng.Plate("user")
    age = ng.Column("age")
    skill = ng.Normal("skill", ng.Normal("slope", 0.0, 1.0) * age, 1.0, plate=user)
    height = ng.Normal("height", skill, 2.0, plate=user, observed=ng.Column("height"))
    kind = ng.Categorical(
        "kind", ng.Dirichlet("shares", 1.0, size=ng.Column("kind")), plate=user, observed=ng.Column("kind")
    )
    score = ng.Normal("score", skill[ng.Column("who")], 4.0, plate=ng.Plate("game"), observed=ng.Column("points"))
    network = ng.Network(height, kind, score)
    ids = np.array(["u9", "b", "u10", "a", "z"])
    users = pandas.DataFrame(
        {"who": ids, "age": [3.0, 1.0, 2.0, 0.5, 4.0], "kind": list("xyxyx"), "height": rng.normal(size=5)}
    )
    games = pandas.DataFrame({"who": rng.choice(ids, 30), "points": rng.normal(size=30)})
    new = pandas.DataFrame({"who": ["z", "new", "a"], "age": [4.0, 9.0, 0.5]})
    values = pandas.Series([1.0, 2.0, 3.0], index=new["who"])
    answers = []
    for _ in range(3):
        users, games, new = (table.sample(frac=1, random_state=rng) for table in (users, games, new))
        fit = network.fit({"game": games, "user": users}, **QUIET)
        # A game of somebody without a row in the table of users: he is not among its results.
        predicted = fit.predict({"user": new, "game": {"who": ["z", "a"]}})
        found = predicted["height"]
        frame = found.frame()
        assert frame["user"].tolist() == predicted["kind"].frame()["user"].tolist() == new["who"].tolist()
        assert np.array_equal(frame["mean"], found.mean())
        assert np.array_equal(frame["lower"], found.interval()[0])
        known = dict(zip(fit["skill"].frame()["user"], fit["skill"].mean(), strict=True)) | {
            "new": 9 * fit["slope"].mean()
        }
        assert frame["mean"].tolist() == pytest.approx([known[name] for name in new["who"]])
        density = found.log_density(values[new["who"]].to_numpy())
        assert found.sample(0, 4).shape == (4, 3)
        assert found.sample(np.random.default_rng(0)).shape == (3,)
        table = frame.assign(density=density).merge(predicted["kind"].frame(), on="user").set_index("user")
        assert list(table.filter(like="prob")) == ["prob_x", "prob_y"]
        answers.append((table.sort_index(), fit["skill"].frame().set_index("user").sort_index()))
    for one, other in zip(answers[0], answers[2], strict=True):
        pandas.testing.assert_frame_equal(one, other, rtol=1e-8)
    alone = fit.predict({"user": new})["height"].frame()  # the columns that name its rows are those of the fit
    assert alone["mean"].tolist() == pytest.approx(frame["mean"].tolist())
