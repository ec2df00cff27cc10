"""Small networks whose files are forged, the data of all forgeries, and what is done with a fit that loads."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import natgrad as ng

RNG = np.random.default_rng(0)
SERIES = RNG.normal(size=(60, 2)) + 3 * (np.arange(60) // 15 % 2)[:, None]
ROWS = RNG.uniform(size=(40, 2))
TARGET = np.sin(4 * ROWS[:, 0])
KINDS = np.array(["no", "so", "yes"])[np.digitize(ROWS[:, 0], [0.3, 0.6])]


class Case(NamedTuple):
    """``fit(**keep)`` makes a fitted model, and ``use`` does all that may be done with a loaded one."""

    fit: Callable[..., Any]
    use: Callable[[Any], None]


def look(model: Any) -> None:
    repr(model)
    for name in model.posterior_:
        factor = model.posterior_[name]
        assert np.isfinite(factor.mean()).all()
        factor.std(), factor.interval(), factor.sample(0, 1)
    if hasattr(model, "trace_"):
        assert len(model.trace_["elbo"]) == len(model.trace_)
        str(model.stop_), model.trace_.strategy


def network() -> ng.Network:
    mu = ng.Normal("mu", 0.0, 1.0)
    tau = ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("x", mu, tau, plate=ng.Plate("n", 40), observed=TARGET))


def mixture() -> ng.Network:
    n, k = ng.Plate("n", 60), ng.Plate("k", 2)
    pi = ng.Dirichlet("pi", [1.0, 1.0])
    z = ng.Categorical("z", pi, plate=n)
    mu = ng.Normal("mu", 0.0, 0.1, plate=k)
    return ng.Network(ng.Normal("x", mu[z], 1.0, plate=n, observed=SERIES[:, 0]))


def chains() -> ng.Network:
    """A path of vectors and a path of states, with what they choose from."""
    time, state = ng.Plate("time", 12), ng.Plate("state", 2)
    path = ng.GaussianChain("path", np.zeros(2), np.eye(2), 0.7 * np.eye(2), np.eye(2), plate=time)
    rows = ng.Dirichlet("rows", 1.0, size=2, plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("first", 1.0, size=2), rows, plate=time)
    mu = ng.Normal("mu", 0.0, 0.1, plate=state)
    return ng.Network(
        ng.Normal("x", ng.dot(path, np.ones((12, 2))), ng.Gamma("tau", 1.0, 1.0), plate=time, observed=TARGET[:12]),
        ng.Normal("y", mu[z], 1.0, plate=time, observed=3.0 * (np.arange(12) // 4 % 2) + TARGET[:12]),
    )


def regression() -> ng.Network:
    """Scalars that share a factor, a vector, leaves with variables of their own, sticks and summed rates."""
    row = ng.Plate("n", 40)
    base, slope = ng.Normal("base", 0.0, 0.1), ng.Normal("slope", 0.0, 0.1)
    w = ng.MultivariateNormal("w", np.zeros(2), ng.Wishart("matrix", 3.0, np.eye(2)))
    x, counts = ROWS[:, 0], np.arange(40) % 4
    return ng.Network(
        ng.StudentT("t", base + x * slope, ng.Gamma("tau", 1.0, 1.0), df=4.0, plate=row, observed=TARGET),
        ng.Bernoulli("b", logit=base + ng.dot(np.column_stack([x, x**2]), w), plate=row, observed=(TARGET > 0) * 1.0),
        ng.Poisson("p", ng.Gamma("one", 1.0, 1.0) + ng.Gamma("other", 1.0, 1.0), plate=row, observed=counts),
        ng.Categorical("c", ng.StickBreaking("sticks", 1.0, size=4), plate=row, observed=counts),
    )


TABLE = {"shop": np.array(["a", "b", "c", "d"])[np.arange(40) % 4], "x": ROWS[:, 0], "y": TARGET}


def by_table() -> ng.Network:
    """A declaration with columns: its file holds the declaration."""
    row, shop = ng.Plate("row"), ng.Plate("shop")
    effect = ng.Normal("effect", ng.Normal("base", 0.0, 0.1), ng.Gamma("spread", 1.0, 1.0), plate=shop)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=row)
    mean = effect[ng.Column("shop")] + 2.0 * ng.Column("x") + ng.table([-1.0, 1.0])[z]
    return ng.Network(ng.Normal("y", mean, ng.Gamma("tau", 1.0, 1.0), plate=row, observed=ng.Column("y")))


LEAVES = {
    "shop": TABLE["shop"],
    "user": np.arange(40) // 4,
    "x": ROWS[:, 0],
    "w": ROWS[:, 1],
    "kind": KINDS,
    "level": np.digitize(TARGET, [-0.3, 0.4]),
    "flag": (TARGET > 0) * 1,
    "first": TARGET,
    "second": ROWS[:, 1],
}


def by_leaves() -> ng.Network:
    """Columns under links, vectors of columns, sequences, a smooth function, a table of categories."""
    row, shop = ng.Plate("row"), ng.Plate("shop")
    b = ng.MultivariateNormal("b", np.zeros(2), ng.Wishart("matrix", 4.0, np.eye(2)), plate=shop)
    x, at = ng.Columns("x", "w"), ng.Column("shop")
    bend = ng.GaussianProcess("bend", ng.covariance.RBF(), inducing=[[0.0], [0.5], [1.0]])
    state = ng.Plate("state", 2)
    rows = ng.Dirichlet("rows", 1.0, size=2, plate=state)
    z = ng.MarkovChain("z", [0.5, 0.5], rows, plate=row, lengths=ng.Column("user"))
    kinds = ng.Dirichlet("kinds", 1.0, size=ng.Column("kind"), plate=shop)
    pair = ng.Normal("pair", 0.0, 0.1, plate=ng.Plate("part"))
    return ng.Network(
        ng.Bernoulli("flag", logit=ng.dot(x, b[at]), plate=row, observed=ng.Column("flag")),
        ng.Ordinal("level", ng.dot(x, b[at]), cutpoints=[0.0, 1.0], plate=row, observed=ng.Column("level")),
        ng.Normal("first", ng.Normal("mu", 0.0, 0.1, plate=state)[z] + bend(ng.Column("x")), 2.0, plate=row,
                  observed=ng.Column("first")),
        ng.Categorical("kind", kinds[at], plate=row, observed=ng.Column("kind")),
        ng.Normal("both", pair, 1.0, plate=(row, pair.plates[0]), observed=ng.Columns("first", "second")),
    )  # fmt: skip


def together() -> ng.Network:
    """A location and its precision, and scalars of a regression, in one factor each."""
    row, shop = ng.Plate("n", 40), ng.Plate("shop", 4)
    mu, slope, tau = ng.Normal("mu", 0.0, 0.1), ng.Normal("slope", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    effect, spread = ng.Normal("effect", 0.0, 1.0, plate=shop), ng.Gamma("spread", 1.0, 1.0, plate=shop)
    at = np.arange(40) % 4
    return ng.Network(
        ng.Normal("x", mu + slope * ROWS[:, 0], tau, plate=row, observed=TARGET),
        ng.Normal("y", effect[at], spread[at], plate=row, observed=ROWS[:, 1]),
        joint="full",
    )


def growing() -> ng.Network:
    """Components that are born and go, chosen by sticks."""
    n, k = ng.Plate("n", 60), ng.Plate("k", 6, grow=True)
    z = ng.Categorical("z", ng.StickBreaking("pi", 1.0, size=6), plate=n)
    mu, tau = ng.Normal("mu", 0.0, 0.1, plate=k), ng.Gamma("tau", 1.0, 1.0, plate=k)
    return ng.Network(ng.Normal("x", mu[z], tau[z], plate=n, observed=SERIES[:, 0]))


def use_table(saved: Any) -> None:
    repr(saved)
    for name in saved:
        saved[name].mean(), saved[name].frame()
    len(saved.trace["elbo"]), str(saved.stop)
    new = {"shop": ["a", "d", "new"], "x": [0.1, 0.2, 0.3]}
    # A forged declaration may observe what it reads, too: then it is asked for what it observes.
    nodes = list(saved.binding.template.observed())
    found = saved.predict(new, nodes=nodes)
    for name in found:
        assert np.shape(found[name].sample(0, 2))[-1] == 3
    saved.update({**new, "y": [0.5, -0.3, 0.1]}, max_steps=2, tol=0)


def use_leaves(saved: Any) -> None:
    repr(saved)
    for name in saved:
        saved[name].mean()
    # A forged declaration may read a column of another name.
    table = {**dict.fromkeys(saved.binding.template.columns, LEAVES["flag"]), **LEAVES}
    found = saved.predict(
        {name: column[:3] for name, column in table.items()}, nodes=list(saved.binding.template.observed())
    )
    for name in found:
        assert np.shape(found[name].sample(0, 2))[1] == 3
    saved.update({name: column[:8] for name, column in table.items()}, max_steps=2, tol=0)


def use_draws(draws: Any) -> None:
    repr(draws), draws.summary()
    for name in draws:
        factor = draws[name]
        factor.mean(), factor.std(), factor.interval(), factor.sample(0, 1)


def use_fit(declared: Callable[[], ng.Network]) -> Callable[[Any], None]:
    kept: list[ng.Network] = []  # compiled once for all forgeries

    def use(saved: Any) -> None:
        if not kept:
            kept.append(declared())
        repr(saved)
        for name in saved:
            factor = saved[name]
            factor.mean(), factor.std(), factor.sample(0, 1)
        len(saved.trace["elbo"]), str(saved.stop)
        fit = attached(saved, kept[0])
        if fit is not None:
            fit.continue_fit(max_steps=2, tol=0)
            fit.elbo_by_node()

    return use


def attached(saved: Any, network: ng.Network) -> Any:
    """The whole fit; None if it is that of another network, which is said."""
    try:
        return saved.attach(network)
    except ValueError as reason:
        if "network" not in str(reason):
            raise
        return None


NETWORKS = {
    "network": Case(lambda **keep: network().fit(max_steps=5, tol=0, **keep), use_fit(network)),
    "mixture": Case(
        lambda **keep: mixture().fit(
            ng.SVI({"n": 20}), step=ng.Auto(), max_steps=7, tol=0, init={"mu": [0.0, 3.0]}, **keep
        ),
        use_fit(mixture),
    ),
    "chains": Case(lambda **keep: chains().fit(max_steps=5, tol=0, **keep), use_fit(chains)),
    "regression": Case(lambda **keep: regression().fit(max_steps=5, tol=0, **keep), use_fit(regression)),
    "table": Case(lambda **keep: by_table().fit(TABLE, max_steps=5, tol=0, **keep), use_table),
    "table, chunks": Case(lambda **keep: by_table().fit(TABLE, max_steps=5, tol=0, chunk_rows=16, **keep), use_table),
    "table, leaves": Case(lambda **keep: by_leaves().fit(LEAVES, max_steps=5, tol=0, **keep), use_leaves),
    "joint": Case(lambda **keep: together().fit(max_steps=5, tol=0, **keep), use_fit(together)),
    "growing": Case(lambda **keep: growing().fit(max_steps=8, tol=0, **keep), use_fit(growing)),
    "draws": Case(lambda **keep: together().fit(max_steps=5, tol=0).draws(30, warmup=5, chains=2), use_draws),
}
