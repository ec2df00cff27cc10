"""The models of the first-fit benchmark in natgrad: the data of a model in, a fit out."""

from collections.abc import Callable
from typing import Any

import numpy as np

import natgrad as ng

__all__ = ["LARGE", "MODELS"]

Data = dict[str, Any]
MODELS: dict[str, Callable[[Data], Any]] = {}


def model(function: Callable[[Data], Any]) -> Callable[[Data], Any]:
    MODELS[function.__name__] = function
    return function


def fitted(*observed: Any, **options: Any) -> Any:
    return ng.Network(*observed).fit(verbose=False, **options)


@model
def coin(d: Data) -> Any:
    p = ng.Beta("p", 1.0, 1.0)
    return fitted(ng.Bernoulli("y", p, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def binomial(d: Data) -> Any:
    p = ng.Beta("p", 1.0, 1.0)
    return fitted(ng.Binomial("y", d["n"], p, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def dice(d: Data) -> Any:
    p = ng.Dirichlet("p", 1.0, size=6)
    return fitted(ng.Categorical("y", p, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def votes(d: Data) -> Any:
    p = ng.Dirichlet("p", 1.0, size=3)
    return fitted(ng.Multinomial("y", None, p, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def normal(d: Data) -> Any:
    mu, tau = ng.Normal("mu", 0.0, 1e-3), ng.Gamma("tau", 1e-3, 1e-3)
    return fitted(ng.Normal("y", mu, tau, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def covariance(d: Data) -> Any:
    mu = ng.MultivariateNormal("mu", np.zeros(3), 1e-3 * np.eye(3))
    precision = ng.Wishart("precision", 3.0, np.eye(3))
    return fitted(ng.MultivariateNormal("y", mu, precision, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def regression(d: Data) -> Any:
    w = ng.MultivariateNormal("w", np.zeros(3), 1e-3 * np.eye(3))
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    return fitted(ng.Normal("y", ng.dot(d["x"], w), tau, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def ard(d: Data) -> Any:
    alpha = ng.Gamma("alpha", 1e-3, 1e-3, plate=ng.Plate("feature", 10))
    w = ng.MultivariateNormal("w", np.zeros(10), ng.diag(alpha))
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    return fitted(ng.Normal("y", ng.dot(d["x"], w), tau, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def autoregression(d: Data) -> Any:
    w = ng.MultivariateNormal("w", np.zeros(2), 1e-3 * np.eye(2))
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    return fitted(ng.Normal("y", ng.dot(d["x"], w), tau, plate=ng.Plate("time", len(d["y"])), observed=d["y"]))


@model
def hierarchical(d: Data) -> Any:
    mu, spread, tau = ng.Normal("mu", 0.0, 1e-3), ng.Gamma("spread", 1.0, 1.0), ng.Gamma("tau", 1.0, 1.0)
    theta = ng.Normal("theta", mu, spread, plate=ng.Plate("group", 8))
    return fitted(ng.Normal("y", theta[d["group"]], tau, plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def schools(d: Data) -> Any:
    school = ng.Plate("school", 8)
    mu, tau = ng.Normal("mu", 0.0, 1e-2), ng.Gamma("tau", 1.0, 10.0)
    theta = ng.Normal("theta", mu, tau, plate=school)
    return fitted(ng.Normal("y", theta, 1.0 / d["se"] ** 2, plate=school, observed=d["y"]))


@model
def rats(d: Data) -> Any:
    rat, day = ng.Plate("rat", 30), ng.Plate("day", 5)
    a0, b0 = ng.Normal("a0", 0.0, 1e-6), ng.Normal("b0", 0.0, 1e-6)
    alpha = ng.Normal("alpha", a0, ng.Gamma("ta", 1e-3, 1e-3), plate=rat)
    beta = ng.Normal("beta", b0, ng.Gamma("tb", 1e-3, 1e-3), plate=rat)
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    return fitted(ng.Normal("y", alpha + beta * d["days"], tau, plate=(rat, day), observed=d["y"]))


@model
def radon(d: Data) -> Any:
    mu, beta = ng.Normal("mu", 0.0, 1e-2), ng.Normal("beta", 0.0, 1e-2)
    alpha = ng.Normal("alpha", mu, ng.Gamma("between", 1.0, 1.0), plate=ng.Plate("county", 40))
    tau = ng.Gamma("tau", 1.0, 1.0)
    mean = alpha[d["county"]] + beta * d["floor"]
    return fitted(ng.Normal("y", mean, tau, plate=ng.Plate("house", len(d["y"])), observed=d["y"]))


@model
def anova(d: Data) -> Any:
    row, column = ng.Plate("row", 6), ng.Plate("column", 5)
    mu = ng.Normal("mu", 0.0, 1e-2)
    a = ng.Normal("a", 0.0, ng.Gamma("ta", 1.0, 1.0), plate=row)
    b = ng.Normal("b", 0.0, ng.Gamma("tb", 1.0, 1.0), plate=column)
    return fitted(ng.Normal("y", mu + a + b, ng.Gamma("tau", 1.0, 1.0), plate=(row, column), observed=d["y"]))


@model
def pumps(d: Data) -> Any:
    pump = ng.Plate("pump", 10)
    theta = ng.Gamma("theta", 1.0, ng.Gamma("rate", 0.1, 1.0), plate=pump)
    return fitted(ng.Poisson("y", theta * d["time"], plate=pump, observed=d["y"]))


@model
def survival(d: Data) -> Any:
    rate = ng.Gamma("rate", 1.0, 1.0, plate=ng.Plate("arm", 2))
    return fitted(ng.Exponential("y", rate[d["arm"]], plate=ng.Plate("n", len(d["y"])), observed=d["y"]))


@model
def measurement(d: Data) -> Any:
    n = ng.Plate("n", 40)
    a, b = ng.Normal("a", 0.0, 1e-2), ng.Normal("b", 0.0, 1e-2)
    true = ng.Normal("true", 0.0, 1.0, plate=n)
    seen = ng.Normal("seen", true, 1.0 / 0.3**2, plate=n, observed=d["x"])
    y = ng.Normal("y", a + b * true, ng.Gamma("tau", 1.0, 1.0), plate=n, observed=d["y"])
    return fitted(seen, y, init={"b": 1.0})


@model
def mixture1d(d: Data) -> Any:
    point, component = ng.Plate("point", len(d["y"])), ng.Plate("component", 3)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=3), plate=point)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    return fitted(ng.Normal("y", mu[z], 1.0, plate=point, observed=d["y"]), init="kmeans")


@model
def readme(d: Data) -> Any:
    """The first example of the README, as it is written there."""
    point, component = ng.Plate("point", len(d["y"])), ng.Plate("component", 3)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=3), plate=point)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    return fitted(ng.Normal("y", mu[z], 1.0, plate=point, observed=d["y"]))


@model
def faithful(d: Data) -> Any:
    point, component = ng.Plate("point", 272), ng.Plate("component", 6)
    z = ng.Categorical("z", ng.Dirichlet("weight", 0.1, size=6), plate=point)
    mu = ng.MultivariateNormal("mu", np.zeros(2), 0.01 * np.eye(2), plate=component)
    precision = ng.Wishart("precision", 2.0, 0.1 * np.eye(2), plate=component)
    return fitted(ng.MultivariateNormal("y", mu[z], precision[z], plate=point, observed=d["y"]), init="kmeans")


@model
def bernoullis(d: Data) -> Any:
    point, feature, component = ng.Plate("point", 100), ng.Plate("feature", 12), ng.Plate("component", 3)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=3), plate=point)
    p = ng.Beta("p", 0.5, 0.5, plate=(component, feature))
    return fitted(ng.Bernoulli("y", p[z], plate=(point, feature), observed=d["y"]), init="random")


@model
def poissons(d: Data) -> Any:
    point, component = ng.Plate("point", 150), ng.Plate("component", 3)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=3), plate=point)
    rate = ng.Gamma("rate", 1.0, 0.1, plate=component)
    return fitted(ng.Poisson("y", rate[z], plate=point, observed=d["y"]), init={"z": np.minimum(d["y"] // 4, 2)})


@model
def zeros(d: Data) -> Any:
    point = ng.Plate("point", 120)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=2), plate=point)
    rate = ng.Gamma("rate", [1e-2, 1.0], [10.0, 0.1], plate=ng.Plate("component", 2))
    return fitted(ng.Poisson("y", rate[z], plate=point, observed=d["y"]), init={"z": (d["y"] > 0).astype(int)})


@model
def outliers(d: Data) -> Any:
    point = ng.Plate("point", 60)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=2), plate=point)
    w = ng.MultivariateNormal("w", np.zeros(2), 1e-2 * np.eye(2))
    tau = ng.Gamma("tau", [2.0, 2.0], [0.1, 20.0], plate=ng.Plate("component", 2))
    return fitted(ng.Normal("y", ng.dot(d["x"], w), tau[z], plate=point, observed=d["y"]))


@model
def switching(d: Data) -> Any:
    point, component = ng.Plate("point", 100), ng.Plate("component", 2)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=2), plate=point)
    w = ng.MultivariateNormal("w", np.zeros(2), 1e-2 * np.eye(2), plate=component)
    tau = ng.Gamma("tau", 1.0, 1.0, plate=component)
    start = {"w": np.array([[0.0, 1.0], [0.0, -1.0]])}
    return fitted(ng.Normal("y", ng.dot(d["x"], w[z]), tau[z], plate=point, observed=d["y"]), init=start)


@model
def lda(d: Data) -> Any:
    documents, words = d["shape"]
    document, token, topic = ng.Plate("document", documents), ng.Plate("token", len(d["word"])), ng.Plate("topic", 3)
    theta = ng.Dirichlet("theta", 0.3, size=3, plate=document)
    phi = ng.Dirichlet("phi", 0.2, size=words, plate=topic)
    z = ng.Categorical("z", theta[d["document"]], plate=token)
    return fitted(ng.Categorical("w", phi[z], plate=token, observed=d["word"]), init="random")


@model
def pca(d: Data) -> Any:
    rows, columns = d["y"].shape
    row, column, factor = ng.Plate("row", rows), ng.Plate("column", columns), ng.Plate("factor", 3)
    w = ng.MultivariateNormal("w", np.zeros(3), ng.diag(ng.Gamma("ard", 1e-2, 1e-2, plate=factor)), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(3), np.eye(3), plate=row)
    tau = ng.Gamma("tau", 1e-2, 1e-2)
    return fitted(ng.Normal("y", ng.dot(w, x), tau, plate=(row, column), observed=d["y"]))


@model
def missing(d: Data) -> Any:
    return pca(d)


@model
def factors(d: Data) -> Any:
    rows, columns = d["y"].shape
    row, column = ng.Plate("row", rows), ng.Plate("column", columns)
    w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    tau = ng.Gamma("tau", 1.0, 1.0, plate=column)
    return fitted(ng.Normal("y", ng.dot(w, x), tau, plate=(row, column), observed=d["y"]))


@model
def ratings(d: Data) -> Any:
    user, item, rating = (ng.Plate(n, k) for n, k in zip(("user", "item", "rating"), (*d["shape"], 80), strict=True))
    u = ng.MultivariateNormal("u", np.zeros(2), np.eye(2), plate=user)
    v = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=item)
    tau = ng.Gamma("tau", 1.0, 1.0)
    return fitted(ng.Normal("y", ng.dot(u[d["user"]], v[d["item"]]), tau, plate=rating, observed=d["y"]))


@model
def discrete_hmm(d: Data) -> Any:
    time, state = ng.Plate("time", 100), ng.Plate("state", 2)
    rows = ng.Dirichlet("rows", [[5.0, 1.0], [1.0, 5.0]], plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("first", 1.0, size=2), rows, plate=time)
    p = ng.Dirichlet("p", [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], plate=state)
    return fitted(ng.Categorical("y", p[z], plate=time, observed=d["y"]))


@model
def gaussian_hmm(d: Data) -> Any:
    time, state = ng.Plate("time", 200), ng.Plate("state", 3)
    rows = ng.Dirichlet("rows", np.ones((3, 3)) + 4.0 * np.eye(3), plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("first", 1.0, size=3), rows, plate=time)
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
    return fitted(ng.Normal("y", mu[z], tau[z], plate=time, observed=d["y"]), init={"mu": [-2.0, 0.0, 2.0]})


@model
def factorial_hmm(d: Data) -> Any:
    time = ng.Plate("time", 120)
    parts = []
    for name in ("a", "b"):
        state = ng.Plate(f"state {name}", 2)
        rows = ng.Dirichlet(f"rows {name}", np.ones((2, 2)) + 4.0 * np.eye(2), plate=state)
        z = ng.MarkovChain(f"z {name}", ng.Dirichlet(f"first {name}", 1.0, size=2), rows, plate=time)
        parts.append(ng.Normal(f"mu {name}", 0.0, 0.1, plate=state)[z])
    tau = ng.Gamma("tau", 1.0, 1.0)
    start = {"mu a": [0.0, 3.0], "mu b": [0.0, 1.0]}
    return fitted(ng.Normal("y", parts[0] + parts[1], tau, plate=time, observed=d["y"]), init=start)


@model
def annotators(d: Data) -> Any:
    item, person, label = ng.Plate("item", 40), ng.Plate("person", 5), ng.Plate("label", 3)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=3), plate=item)
    confusion = ng.Dirichlet("confusion", np.ones((3, 3)) + 2.0 * np.eye(3), plate=(person, label))
    said = confusion[d["person"], z[d["item"]]]
    return fitted(ng.Categorical("y", said, plate=ng.Plate("answer", 200), observed=d["y"]))


@model
def blocks(d: Data) -> Any:
    vertex, group = ng.Plate("vertex", 20), ng.Plate("group", 2)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=vertex)
    p = ng.Beta("p", np.ones((2, 2)) + np.eye(2), 1.0, plate=(group, ng.Plate("other", 2)))
    pair = ng.Plate("pair", len(d["y"]))
    return fitted(ng.Bernoulli("y", p[z[d["first"]], z[d["second"]]], plate=pair, observed=d["y"]), init="random")


@model
def skills(d: Data) -> Any:
    skill = ng.Normal("skill", 0.0, 1.0, plate=ng.Plate("player", 10))
    margin = skill[d["first"]] - skill[d["second"]]
    return fitted(ng.Normal("y", margin, ng.Gamma("tau", 1.0, 1.0), plate=ng.Plate("game", 60), observed=d["y"]))


@model
def sprinkler(d: Data) -> Any:
    cloudy = ng.Categorical("cloudy", [0.5, 0.5])
    sprinkler = ng.Categorical("sprinkler", ng.table(d["sprinkler"])[cloudy])
    rain = ng.Categorical("rain", ng.table(d["rain"])[cloudy])
    return fitted(ng.Categorical("grass", ng.table(d["grass"])[sprinkler, rain], observed=1))


@model
def bayes(d: Data) -> Any:
    kind, word = ng.Plate("class", 3), ng.Plate("word", 5)
    share = ng.Dirichlet("share", 1.0, size=3)
    p = ng.Dirichlet("p", np.ones(4), plate=(kind, word))
    old, new = ng.Plate("old", 50), ng.Plate("new", 10)
    label = ng.Categorical("label", share, plate=old, observed=d["label"])
    guess = ng.Categorical("guess", share, plate=new)
    seen = ng.Categorical("seen", p[label], plate=(old, word), observed=d["words"])
    fresh = ng.Categorical("fresh", p[guess], plate=(new, word), observed=d["new"])
    # All components start equal, and the labels tell them apart in the first sweep: any start will do.
    return fitted(seen, fresh, init={"p": "random"})


def nodes(_: Data) -> Any:
    """A random walk declared node by node: 1,000 hidden levels and 1,000 observations."""
    rng = np.random.default_rng(0)
    level, leaves = ng.Normal("level 0", 0.0, 1.0), []
    for t, value in enumerate(np.cumsum(rng.normal(size=1000)) + rng.normal(size=1000)):
        leaves.append(ng.Normal(f"y {t}", level, 1.0, observed=value))
        if t < 999:
            level = ng.Normal(f"level {t + 1}", level, 1.0)
    return fitted(*leaves, max_steps=20, tol=0)


def levels(_: Data) -> Any:
    """Ten levels of plates, each three times as wide as the one above: 29,524 hidden means."""
    rng = np.random.default_rng(0)
    above = ng.Normal("level 0", 0.0, 1e-2, plate=ng.Plate("plate 0", 1))
    for depth in range(1, 10):
        tau = ng.Gamma(f"tau {depth}", 1.0, 1.0)
        plate = ng.Plate(f"plate {depth}", 3**depth)
        above = ng.Normal(f"level {depth}", above[np.repeat(np.arange(3 ** (depth - 1)), 3)], tau, plate=plate)
    size = 2 * 3**9
    tau, where = ng.Gamma("tau", 1.0, 1.0), np.repeat(np.arange(3**9), 2)
    y = ng.Normal("y", above[where], tau, plate=ng.Plate("n", size), observed=rng.normal(size=size))
    return fitted(y, max_steps=20, tol=0)


def elements(_: Data) -> Any:
    """Ten million observations of a thousand groups; the seconds include making them."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 1_000, 10_000_000)
    mu, spread, tau = ng.Normal("mu", 0.0, 1e-3), ng.Gamma("spread", 1.0, 1.0), ng.Gamma("tau", 1.0, 1.0)
    theta = ng.Normal("theta", mu, spread, plate=ng.Plate("group", 1_000))
    seen = rng.normal(size=len(group)) + rng.normal(size=1_000)[group]
    return fitted(ng.Normal("y", theta[group], tau, plate=ng.Plate("n", len(group)), observed=seen), max_steps=5, tol=0)


LARGE = {"nodes": nodes, "levels": levels, "elements": elements}
