"""Networks declared twice: with columns and a table, and with the arrays that the table holds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import natgrad as ng


class Twins(NamedTuple):
    columns: ng.Network
    table: Any
    arrays: ng.Network
    init: Any = None


def factorisation() -> Twins:
    rng = np.random.default_rng(0)
    users, movies = rng.choice(["cid", "ann", "bob"], 40), rng.choice([7, 3, 900, 12], 40)
    stars = rng.normal(size=40)
    stars[5] = np.nan
    table = {"userId": users, "movieId": movies, "stars": stars}

    def declared(row: ng.Plate, user: ng.Plate, movie: ng.Plate, i: Any, j: Any, y: Any) -> ng.Network:
        u = ng.MultivariateNormal("u", 0.0, 1.0, size=2, plate=user)
        v = ng.MultivariateNormal("v", 0.0, 1.0, size=2, plate=movie)
        bias = ng.Normal("bias", 0.0, 1.0, plate=user)
        tau = ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("r", ng.dot(u[i], v[j]) + bias[i], tau, plate=row, observed=y))

    later = declared(
        ng.Plate("row"), ng.Plate("user"), ng.Plate("movie"), *map(ng.Column, ("userId", "movieId", "stars"))
    )
    codes = [np.unique(ids, return_inverse=True)[1] for ids in (users, movies)]
    now = declared(ng.Plate("row", 40), ng.Plate("user", 3), ng.Plate("movie", 4), *codes, stars)
    return Twins(later, table, now, "random")


def regression() -> Twins:
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(30, 2)), rng.integers(1, 4, 30)
    y = 3.0 + x @ [1.0, -2.0] + 0.3 * rng.normal(size=30)
    table = {"age": x[:, 0], "income": x[:, 1], "y": y, "offset": np.arange(30.0), "times": weight}

    def declared(row: ng.Plate, rows: Any, offset: Any, observed: Any) -> ng.Network:
        w = ng.MultivariateNormal("w", 0.0, 0.01, size=2)
        level, tau = ng.Normal("level", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
        mean = ng.dot(rows, w) + level + 0.5 * offset
        return ng.Network(ng.Normal("y", mean, tau, plate=row, observed=observed))

    later = declared(
        ng.Plate("row", weight=ng.Column("times")),
        ng.Columns("age", "income"),
        ng.Column("offset"),
        ng.Column("y"),
    )
    return Twins(later, table, declared(ng.Plate("row", 30, weight), x, np.arange(30.0), y))


def mixture() -> Twins:
    rng = np.random.default_rng(2)
    y = np.array([[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]])[rng.integers(0, 3, 50)] + 0.5 * rng.normal(size=(50, 2))

    def declared(row: ng.Plate, observed: Any) -> ng.Network:
        part = ng.Plate("part", 3)
        z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=3), plate=row)
        mu = ng.MultivariateNormal("mu", np.zeros(2), 0.1 * np.eye(2), plate=part)
        precision = ng.Wishart("precision", 3.0, np.eye(2), plate=part)
        return ng.Network(ng.MultivariateNormal("x", mu[z], precision[z], plate=row, observed=observed))

    later = declared(ng.Plate("row"), ng.Columns("a", "b"))
    return Twins(later, {"a": y[:, 0], "b": y[:, 1]}, declared(ng.Plate("row", 50), y), {"mu": y[:3] + 0.1})


def topics() -> Twins:
    rng = np.random.default_rng(3)
    docs, words = rng.choice(["letter", "news", "poem"], 60), rng.choice(["pear", "plum", "nut", "bolt"], 60)

    def declared(doc: ng.Plate, token: ng.Plate, size: Any, d: Any, w: Any) -> ng.Network:
        theta = ng.Dirichlet("theta", 0.5, size=2, plate=doc)
        phi = ng.Dirichlet("phi", 0.3, size=size, plate=ng.Plate("topic", 2))
        z = ng.Categorical("z", theta[d], plate=token)
        return ng.Network(ng.Categorical("w", phi[z], plate=token, observed=w))

    later = declared(ng.Plate("doc"), ng.Plate("token"), ng.Column("word"), ng.Column("doc"), ng.Column("word"))
    codes = [np.unique(ids, return_inverse=True)[1] for ids in (docs, words)]
    start = rng.dirichlet(np.ones(4), 2)
    return Twins(
        later,
        {"doc": docs, "word": words},
        declared(ng.Plate("doc", 3), ng.Plate("token", 60), 4, *codes),
        {"phi": start},
    )


def pca() -> Twins:
    rng = np.random.default_rng(4)
    y = rng.normal(size=(25, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(25, 4))
    y[3, 1] = y[7, 2] = np.nan
    start = rng.normal(size=(4, 2))

    def declared(row: ng.Plate, feature: ng.Plate, observed: Any) -> ng.Network:
        w = ng.MultivariateNormal("w", 0.0, 1.0, size=2, plate=feature)
        x = ng.MultivariateNormal("x", 0.0, 1.0, size=2, plate=row)
        tau = ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", ng.dot(w, x), tau, plate=(row, feature), observed=observed))

    later = declared(ng.Plate("row"), ng.Plate("feature"), ng.Columns("a", "b", "c", "d"))
    table = dict(zip("abcd", y.T, strict=True))
    return Twins(later, table, declared(ng.Plate("row", 25), ng.Plate("feature", 4), y), {"w": start})


def sequences() -> Twins:
    rng = np.random.default_rng(5)
    series, y = np.repeat(["s", "t", "r"], [10, 12, 8]), np.repeat([-2.0, 2.0, -2.0], 10) + 0.7 * rng.normal(size=30)

    def declared(time: ng.Plate, lengths: Any, observed: Any) -> ng.Network:
        state = ng.Plate("state", 2)
        pi, rows = ng.Dirichlet("pi", 1.0, size=2), ng.Dirichlet("A", [[3.0, 1.0], [1.0, 3.0]], plate=state)
        z = ng.MarkovChain("z", pi, rows, plate=time, lengths=lengths)
        mu, tau = ng.Normal("mu", 0.0, 0.1, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
        return ng.Network(ng.Normal("y", mu[z], tau[z], plate=time, observed=observed))

    later = declared(ng.Plate("time"), ng.Column("series"), ng.Column("y"))
    now = declared(ng.Plate("time", 30), [10, 12, 8], y)
    return Twins(later, {"series": series, "y": y}, now, {"mu": [-1.0, 1.0]})


def contests() -> Twins:
    rng = np.random.default_rng(6)
    players = np.array(["x", "q", "m", "b", "k"])
    games = np.array([rng.choice(5, 2, replace=False) for _ in range(40)])
    margin = rng.normal(size=40)
    table = {"winner": players[games[:, 0]], "loser": players[games[:, 1]], "margin": margin}

    def declared(game: ng.Plate, player: ng.Plate, i: Any, j: Any, y: Any) -> ng.Network:
        skill = ng.Normal("skill", 0.0, 1.0, plate=player)
        return ng.Network(ng.Normal("margin", skill[i] - skill[j], ng.Gamma("tau", 1.0, 1.0), plate=game, observed=y))

    later = declared(ng.Plate("game"), ng.Plate("player"), *map(ng.Column, ("winner", "loser", "margin")))
    rank = np.argsort(np.argsort(players))
    now = declared(ng.Plate("game", 40), ng.Plate("player", 5), rank[games[:, 0]], rank[games[:, 1]], margin)
    return Twins(later, table, now)


def interacting() -> Twins:
    """Two hidden nodes in each row that read one another, and a hierarchy above the levels."""
    rng = np.random.default_rng(7)
    group = rng.choice(["b", "a"], 24)
    y, x = rng.normal(size=24), rng.normal(size=24)
    table = {"group": group, "y": y, "x": x}

    def declared(row: ng.Plate, groups: ng.Plate, i: Any, y: Any, x: Any) -> ng.Network:
        top, spread = ng.Normal("top", 0.0, 0.1), ng.Gamma("spread", 2.0, 1.0)
        level = ng.Normal("level", top, spread, plate=groups)
        h = ng.Normal("h", level[i], 2.0, plate=row)
        k = ng.Normal("k", h, 3.0, plate=row)
        tau = ng.Gamma("tau", 2.0, 1.0)
        return ng.Network(
            ng.Normal("y", k + 0.5 * x, tau, plate=row, observed=y),
            ng.Poisson("n", 2.0 * tau, plate=row, observed=x * 0),
        )

    row = ng.Plate("row")
    later = declared(row, ng.Plate("groups"), ng.Column("group"), ng.Column("y"), ng.Column("x"))
    codes = np.unique(group, return_inverse=True)[1]
    return Twins(later, table, declared(ng.Plate("row", 24), ng.Plate("groups", 2), codes, y, x))


def smoothed() -> Twins:
    """Random walks of different lengths, some of their values missing."""
    rng = np.random.default_rng(0)
    series, y = np.repeat(["s", "t", "r", "q"], [6, 9, 4, 5]), rng.normal(size=24).cumsum()
    y[[3, 11]] = np.nan

    def declared(time: ng.Plate, lengths: Any, observed: Any) -> ng.Network:
        walk = ng.GaussianChain("x", 0.0, 0.1, 1.0, ng.Gamma("q", 1.0, 1.0), plate=time, lengths=lengths)
        tau = ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", walk[:, 0], tau, plate=time, observed=observed))

    later = declared(ng.Plate("time"), ng.Column("series"), ng.Column("y"))
    return Twins(later, {"series": series, "y": y}, declared(ng.Plate("time", 24), [6, 9, 4, 5], y))


def gaps() -> Twins:
    """A predictor with gaps that a response reads, and vectors of which single entries are missing."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=30)
    y = 2.0 * x + 0.3 * rng.normal(size=30)
    both = rng.normal(size=(30, 2))
    x[[4, 5, 17]] = y[[2, 5]] = both[[1, 9], [0, 1]] = np.nan
    table = {"x": x, "y": y, "a": both[:, 0], "b": both[:, 1]}

    def declared(row: ng.Plate, x: Any, y: Any, both: Any) -> ng.Network:
        level, slope, tau = ng.Normal("level", 0.0, 0.1), ng.Normal("slope", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        seen = ng.Normal("seen", level, 1.0, plate=row, observed=x)
        centre = ng.MultivariateNormal("centre", 0.0, 1.0, size=2)
        return ng.Network(
            ng.Normal("y", slope * seen, tau, plate=row, observed=y),
            ng.MultivariateNormal("v", centre, ng.Wishart("K", 4.0, np.eye(2)), plate=row, observed=both),
        )

    later = declared(ng.Plate("row"), ng.Column("x"), ng.Column("y"), ng.Columns("a", "b"))
    return Twins(later, table, declared(ng.Plate("row", 30), x, y, both), {"slope": 0.5})


def robust() -> Twins:
    """A scale and a category hidden in every row, and two indices: locals are solved in each pass of a sweep."""
    table = factorisation().table

    def declared(row: ng.Plate, user: ng.Plate, movie: ng.Plate, i: Any, j: Any, y: Any) -> ng.Network:
        u = ng.MultivariateNormal("u", 0.0, 1.0, size=2, plate=user)
        v = ng.MultivariateNormal("v", 0.0, 1.0, size=2, plate=movie)
        z = ng.Categorical("z", [0.3, 0.7], plate=row)
        mean = ng.dot(u[i], v[j]) + ng.Normal("shift", 0.0, 1.0, plate=ng.Plate("part", 2))[z]
        return ng.Network(ng.language.StudentT("r", mean, ng.Gamma("tau", 1.0, 1.0), df=4.0, plate=row, observed=y))

    later = declared(ng.Plate("row"), ng.Plate("user"), ng.Plate("movie"), *map(ng.Column, table))
    codes = [np.unique(table[name], return_inverse=True)[1] for name in ("userId", "movieId")]
    now = declared(ng.Plate("row", 40), ng.Plate("user", 3), ng.Plate("movie", 4), *codes, table["stars"])
    start = {"u": np.ones((3, 2)), "v": np.arange(8.0).reshape(4, 2) / 8, "shift": [-1.0, 1.0]}
    return Twins(later, table, now, start)


CASES: dict[str, Callable[[], Twins]] = {
    case.__name__: case
    for case in (
        factorisation, regression, mixture, topics, pca, sequences, contests, interacting, smoothed, gaps, robust,
    )
}  # fmt: skip
# Hidden nodes of a row are solved to the end in chunks; in memory they take turns with the globals.
SOLVED_IN_ROWS = ("interacting", "robust")


def _leaf(kind: str, mean: Any, tau: Any, **options: Any) -> Any:
    """A leaf that is conjugate by augmentation: something hidden in every row makes it so."""
    made: dict[str, Callable[[], Any]] = {
        "logit": lambda: ng.Bernoulli("y", logit=mean, **options),
        "probit": lambda: ng.Bernoulli("y", probit=mean, **options),
        "student": lambda: ng.language.StudentT("y", mean, tau, df=4.0, **options),
        "laplace": lambda: ng.language.Laplace("y", mean, tau, **options),
        "lognormal": lambda: ng.language.LogNormal("y", mean, tau, **options),
        "ordinal": lambda: ng.language.Ordinal("y", mean, cutpoints=[-0.5, 0.5], **options),
        "negative": lambda: ng.language.NegativeBinomial("y", 3.0, logit=mean, **options),
        "binomial": lambda: ng.Binomial("y", 3, logit=mean, **options),
    }
    return made[kind]()


def augmented(kind: str) -> Twins:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(40, 2))
    noisy = x[:, 0] + 0.5 * rng.normal(size=40)
    values: dict[str, Any] = {
        "logit": noisy > 0, "probit": noisy > 0, "student": noisy, "laplace": noisy, "lognormal": np.exp(noisy),
        "ordinal": np.digitize(noisy, [-0.5, 0.5]), "negative": rng.poisson(3.0, 40), "binomial": rng.integers(0, 4, 40),
    }  # fmt: skip

    def declared(row: ng.Plate, rows: Any, observed: Any) -> ng.Network:
        w, tau = ng.MultivariateNormal("w", 0.0, 1.0, size=2), ng.language.HalfCauchy("tau", 1.0)
        return ng.Network(_leaf(kind, ng.dot(rows, w), tau, plate=row, observed=observed))

    y = values[kind].astype(float)
    later = declared(ng.Plate("row"), ng.Columns("a", "b"), ng.Column("y"))
    return Twins(later, {"a": x[:, 0], "b": x[:, 1], "y": y}, declared(ng.Plate("row", 40), x, y))


AUGMENTED = ("logit", "probit", "student", "laplace", "lognormal", "ordinal", "negative", "binomial")
