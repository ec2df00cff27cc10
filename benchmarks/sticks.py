"""Whether sticks of which nothing is said, which grow, end as high as truncated ones, and what that takes.

    python benchmarks/sticks.py                       all, minutes
    python benchmarks/sticks.py mixture chain --sets 3
    python benchmarks/sticks.py --first 100           sets that nobody has looked at
    python benchmarks/sticks.py --table               the table of what was measured so far

Every set is fitted with ``StickBreaking(…, grow=False)``, with ``grow=True``, which begins with one component and moves, and with
neither, which also follows other starts to their ends where that is quick. Every fit is a line of ``sticks.jsonl`` in
``benchmarks/results``; the table is ``sticks.md`` there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from components import timed
from components_files import Lines, markdown

import natgrad as ng

LINES = Lines("sticks")
MODES = (False, True, None)


def _choice(rows: ng.Plate, size: int, grow: bool | None) -> Any:
    return ng.Categorical("z", ng.StickBreaking("pi", ng.Gamma("alpha", 1.0, 1.0), size=size, grow=grow), plate=rows)


def mixture(rng: np.random.Generator, grow: bool | None, columns: int = 2, size: int = 20) -> ng.Network:
    """Gaussian clusters, some of which overlap."""
    n, k = 400, int(rng.integers(3, 8))
    x = rng.normal(scale=6.0, size=(k, columns))[rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))]
    x = x + rng.normal(size=(n, columns))
    row, column, component = ng.Plate("row", n), ng.Plate("column", columns), ng.Plate("component", size)
    z, tau = _choice(row, size, grow), ng.Gamma("tau", 1.0, 1.0, plate=(component, column))
    mu = ng.Normal("mu", 0.0, 0.01, plate=(component, column))
    return ng.Network(ng.Normal("x", mu[z], tau[z], plate=(row, column), observed=x))


def counts(rng: np.random.Generator, grow: bool | None) -> ng.Network:
    """Rates of counts."""
    n, k = 300, int(rng.integers(2, 6))
    rate = np.exp(rng.uniform(0.0, 5.0, k))
    row, component = ng.Plate("row", n), ng.Plate("component", 20)
    y = rng.poisson(rate[rng.integers(k, size=n)])
    rates = ng.Gamma("rate", 1.0, 0.05, plate=component)
    return ng.Network(ng.Poisson("y", rates[_choice(row, 20, grow)], plate=row, observed=y))


def regressions(rng: np.random.Generator, grow: bool | None) -> ng.Network:
    """Lines."""
    n, k = 300, int(rng.integers(2, 5))
    X = np.column_stack([np.ones(n), rng.uniform(-3.0, 3.0, n)])
    y = (X * rng.normal(scale=4.0, size=(k, 2))[rng.integers(k, size=n)]).sum(1) + 0.5 * rng.normal(size=n)
    row, component = ng.Plate("row", n), ng.Plate("component", 15)
    z, tau = _choice(row, 15, grow), ng.Gamma("tau", 1.0, 1.0, plate=component)
    w = ng.MultivariateNormal("w", np.zeros(2), 0.01 * np.eye(2), plate=component)
    return ng.Network(ng.Normal("y", ng.dot(X, w[z]), tau[z], plate=row, observed=y))


def chain(rng: np.random.Generator, grow: bool | None) -> ng.Network:
    """States of a chain, each with sticks to the others."""
    n, k, size = 400, int(rng.integers(3, 6)), 15
    states = np.zeros(n, int)
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < 0.9 else rng.integers(k)
    y = rng.normal(scale=5.0, size=k)[states] + rng.normal(size=n)
    time, state = ng.Plate("time", n), ng.Plate("state", size)
    transition = ng.StickBreaking("transition", 1.0, size=size, plate=state, grow=grow)
    z = ng.MarkovChain("z", ng.StickBreaking("initial", 1.0, size=size, grow=grow), transition, plate=time)
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
    return ng.Network(ng.Normal("y", mu[z], tau[z], plate=time, observed=y))


def topics(rng: np.random.Generator, grow: bool | None) -> ng.Network:
    """Topics of documents, each of which has sticks of its own."""
    documents, words, length, size = 60, 40, 50, 12
    k = int(rng.integers(3, 6))
    beta = rng.dirichlet(np.full(words, 0.1), size=k)
    document = np.repeat(np.arange(documents), length)
    theta = rng.dirichlet(np.full(k, 0.3), size=documents)
    word = np.array([rng.choice(words, p=beta[rng.choice(k, p=theta[d])]) for d in document])
    row, topic = ng.Plate("token", len(word)), ng.Plate("topic", size)
    shares = ng.StickBreaking("theta", 1.0, size=size, plate=ng.Plate("document", documents), grow=grow)
    z = ng.Categorical("z", shares[document], plate=row)
    return ng.Network(
        ng.Categorical("w", ng.Dirichlet("beta", np.full(words, 0.1), plate=topic)[z], plate=row, observed=word)
    )


CASES: dict[str, tuple[str, Callable[[np.random.Generator, bool | None], ng.Network]]] = {
    "mixture": ("mixture, D = 2, 20 sticks", mixture),
    "mixture-10": ("mixture, D = 10, 20 sticks", lambda rng, grow: mixture(rng, grow, 10)),
    "mixture-50": ("mixture, D = 2, 50 sticks", lambda rng, grow: mixture(rng, grow, 2, 50)),
    "counts": ("counts, 20 sticks", counts),
    "regressions": ("regressions, 15 sticks", regressions),
    "chain": ("chain, 15 sticks", chain),
    "topics": ("topics, 12 sticks", topics),
}


def measure(name: str, number: int) -> None:
    """Both fits of a set."""
    make = CASES[name][1]
    for grow in MODES:
        if LINES.has(case=name, set=number, grow=grow):
            continue
        network = make(np.random.default_rng([number, 11]), grow)
        fit, seconds = timed(lambda network=network: network.fit(verbose=False))
        found = next(iter(fit.n_components.values()), None)
        LINES.add(case=name, set=number, grow=grow, bound=fit.elbo, seconds=round(seconds, 3), k=found)


def table() -> str:
    """Of every case: how often growing ends higher, as high, lower; by how much; and how long it takes."""
    rows = []
    for name, (words, _) in CASES.items():
        by = {grow: {line["set"]: line for line in LINES.all(case=name, grow=grow)} for grow in MODES}
        sets = sorted(by[False].keys() & by[True].keys() & by[None].keys())
        if not sets:
            continue
        seconds = {grow: float(np.mean([by[grow][s]["seconds"] for s in sets])) for grow in MODES}
        for grow, how in ((True, "grow=True"), (None, "by default")):
            gains = np.array([by[grow][s]["bound"] - by[False][s]["bound"] for s in sets])
            rows.append(
                [
                    words, how, f"{len(sets)}", f"{(gains > 0.1).sum()}", f"{(gains < -0.1).sum()}",
                    f"{np.median(gains):+.1f}", f"{gains.min():+.1f}", f"{gains.max():+.1f}", f"{seconds[False]:.2f}",
                    f"{seconds[grow]:.2f}", f"{seconds[grow] / seconds[False]:.1f}",
                ]
            )  # fmt: skip
    head = [
        "network", "sticks", "sets", "higher", "lower", "nats gained: median", "least", "most", "cpu s, truncated", "cpu s",
        "ratio",
    ]  # fmt: skip
    return markdown(head, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    for case in [] if given.table else given.cases:
        for number in range(given.first, given.first + given.sets):
            measure(case, number)
    LINES.write(table())
