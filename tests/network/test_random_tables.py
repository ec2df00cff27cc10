"""Random networks of columns: arrays, chunks, other orders of rows, and rows that come and go end at the same bound."""

from typing import Any

import numpy as np
import pytest

import natgrad as ng

FIT: dict[str, Any] = {"verbose": False, "tol": 1e-9, "max_steps": 600}
LEAVES = ("Normal", "StudentT", "Laplace", "LogNormal", "logit", "probit", "Binomial", "NegativeBinomial", "Ordinal")


class Drawn:
    """A regression on random parts, with a random leaf; ``table`` has its rows, some with weight 0, some missing."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 14))
        self.leaf, self.joint = str(rng.choice(LEAVES)), ("auto", "full", None)[seed % 3]
        self.parts = {name for name in ("item", "slope", "slopes", "vector", "shared", "weight") if rng.random() < 0.45}
        y = 1.5 * rng.normal(size=n)
        made = {"LogNormal": np.exp(y), "logit": y > 0, "probit": y > 0, "Ordinal": np.digitize(y, [-0.5, 0.7])}
        y = np.asarray(made.get(self.leaf, rng.integers(0, 4, n) if "Binomial" in self.leaf else y), dtype=float)
        gaps = rng.random(n) < 0.15
        users = rng.choice(["ann", "bob", "7", "007", "é"], n) if rng.random() < 0.7 else rng.choice([3, 10, 200], n)
        self.table = {
            "user": users,
            "item": rng.choice(["x", "y", "z"], n),
            "a": rng.normal(size=n),
            "b": rng.normal(size=n),
            "w": rng.choice([1.0, 2.0, 0.5, 0.0], n),
            "y": np.where(gaps, np.nan, y),
        }
        for at in (0, n // 2):  # both halves have something to learn from
            self.table["w"][at], self.table["y"][at] = 1.0, y[at]

    def network(self, table: Any = None) -> ng.Network:
        """With columns, or with the arrays of a table."""
        there: Any = ng.Column if table is None else table.__getitem__
        n = None if table is None else len(table["y"])
        row = ng.Plate("row", n, weight=there("w") if "weight" in self.parts else None)
        user, of = self._levels("user", table)
        item, which = self._levels("item", table)
        base, tau = ng.Normal("base", 0.3, 0.5), ng.Gamma("tau", 2.0, 1.0)
        shared = "shared" in self.parts
        prior = (base, ng.Gamma("spread", 2.0, 1.0)) if shared else (0.0, 1.5)
        mean = ng.Normal("user effect", *prior, plate=user)[of]
        mean = mean if shared else mean + base
        if "item" in self.parts:
            mean = mean + ng.Normal("item effect", 0.0, 2.0, plate=item)[which]
        if "slope" in self.parts:
            mean = mean + ng.Normal("slope", 0.1, 1.0) * there("a")
        if "slopes" in self.parts:
            mean = mean + ng.Normal("slopes", 0.0, 2.0, plate=user)[of] * there("b")
        if "vector" in self.parts:
            columns = ng.Columns("a", "b") if table is None else np.column_stack([table["a"], table["b"]])
            mean = mean + ng.dot(ng.MultivariateNormal("vector", np.zeros(2), 2.0 * np.eye(2)), columns)
        rest = {"plate": row, "observed": there("y")}
        leaf = {
            "Normal": lambda: ng.Normal("y", mean, tau, **rest),
            "StudentT": lambda: ng.StudentT("y", mean, tau, df=4.0, **rest),
            "Laplace": lambda: ng.Laplace("y", mean, 1.3, **rest),
            "LogNormal": lambda: ng.LogNormal("y", mean, tau, **rest),
            "logit": lambda: ng.Bernoulli("y", logit=mean, **rest),
            "probit": lambda: ng.Bernoulli("y", probit=mean, **rest),
            "Binomial": lambda: ng.Binomial("y", 5, logit=mean, **rest),
            "NegativeBinomial": lambda: ng.NegativeBinomial("y", 3.0, logit=mean, **rest),
            "Ordinal": lambda: ng.Ordinal("y", mean, cutpoints=[-0.5, 0.7], **rest),
        }[self.leaf]()
        return ng.Network(leaf, joint=self.joint)

    def _levels(self, name: str, table: Any) -> tuple[ng.Plate, Any]:
        if table is None:
            return ng.Plate(name), ng.Column(name)
        ids, codes = np.unique(table[name], return_inverse=True)
        return ng.Plate(name, len(ids)), codes


def rows(table: dict[str, Any], which: Any) -> dict[str, Any]:
    return {name: column[which] for name, column in table.items()}


@pytest.mark.parametrize("seed", [3, 11, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 300))])
def test_however_the_rows_come(seed: int) -> None:
    drawn = Drawn(seed)
    table, network = drawn.table, drawn.network()
    fit, half = network.fit(table, **FIT), len(table["y"]) // 2
    first, second = rows(table, slice(0, half)), rows(table, slice(half, None))
    part, chunks = network.fit(first, **FIT), network.fit(table, chunk_rows=4, **FIT)
    gone = np.arange(half, len(table["y"]))
    same = {
        "arrays": drawn.network(table).fit(**FIT),
        "chunks": chunks,
        "another order": network.fit(rows(table, drawn.rng.permutation(len(table["y"]))), **FIT),
        "update": part.update(second, **FIT),
    }
    for name, other in same.items():
        assert other.elbo == pytest.approx(fit.elbo, rel=2e-6, abs=2e-6), name
    for whole in (fit, chunks):
        assert whole.forget(gone, **FIT).elbo == pytest.approx(part.elbo, rel=2e-6, abs=2e-6)
    if drawn.leaf == "Normal":
        found = fit.predict(rows(table, slice(0, 1)), ["y"])["y"].mean()
        assert found == pytest.approx(by_hand(drawn, fit), abs=1e-8)


def by_hand(drawn: Drawn, fit: Any) -> float:
    """The mean of the first row, from the means of what it reads."""
    table = drawn.table
    user, item = (np.unique(table[name]).tolist().index(table[name][0]) for name in ("user", "item"))
    mean = fit["user effect"].mean()[user] + (0.0 if "shared" in drawn.parts else fit["base"].mean())
    mean += fit["item effect"].mean()[item] if "item" in drawn.parts else 0.0
    mean += fit["slope"].mean() * table["a"][0] if "slope" in drawn.parts else 0.0
    mean += fit["slopes"].mean()[user] * table["b"][0] if "slopes" in drawn.parts else 0.0
    return float(mean + (fit["vector"].mean() @ [table["a"][0], table["b"][0]] if "vector" in drawn.parts else 0.0))
