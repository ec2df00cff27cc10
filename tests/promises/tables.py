"""The networks of `promises.nodes`, declared with columns, and the table that they are fitted to."""

from typing import Any

import numpy as np
from promises import nodes as given

import natgrad as ng

CHAINS = ("MarkovChain", "GaussianChain", "GaussianChain, inputs")
SERIES = np.repeat(["s", "t", "r"], [5, 4, 3])


def table() -> dict[str, Any]:
    """Every column that a case reads; the second row of what ends in a dash is missing."""
    columns: dict[str, Any] = {"series": SERIES, "late": given.REAL > 1.0, "real": given.REAL}
    for name in ("REAL", "POSITIVE", "BINARY", "COUNT", "CLASS"):
        columns[f"{name}-"] = given.gap(getattr(given, name))
    for name in ("X", "VECTORS", "COUNTS"):
        array = getattr(given, name)
        for place in range(array.shape[1]):
            columns[f"{name}{place}"] = array[:, place]
            columns[f"{name}{place}-"] = given.gap(array)[:, place]
    return columns


def _later(values: Any) -> Any:
    """The column that stands for an array with a gap."""
    if isinstance(values, ng.Columns):  # the known numbers, patched below
        return values
    for name, array in vars(given).items():
        if array is values and isinstance(array, np.ndarray):
            names = [f"{name}-"] if array.ndim == 1 else [f"{name}{place}-" for place in range(array.shape[1])]
            return ng.Column(*names) if array.ndim == 1 else ng.Columns(*names)
    raise KeyError("no column stands for this array")


_ROWS: list[ng.Plate] = []


def row() -> ng.Plate:
    """The plate of the network that is being declared."""
    return _ROWS[0]


def _gap_in_a_parent() -> Any:
    x = ng.Normal("x", given.effect(), given.gamma(), plate=row(), observed=ng.Column("X0-"))
    return ng.Normal("y", 2.0 * x, 1.0, plate=row(), observed=ng.Column("real"))


def _vectors(mean: Any, precision: Any, *names: str) -> Any:
    return ng.MultivariateNormal("y", mean, precision, plate=row(), observed=ng.Columns(*names))


def _process() -> Any:
    process = ng.GaussianProcess("x", ng.covariance.RBF(), inducing=np.linspace(-2, 2, 4)[:, None])
    return given.reader(process(ng.Columns("X0")))


def _states() -> Any:
    moves = ng.Dirichlet("move", 1.0, size=3, plate=ng.Plate("state", 3))
    return given.component(
        ng.MarkovChain("x", ng.Dirichlet("p", 1.0, size=3), moves, plate=row(), lengths=ng.Column("series"))
    )


def _walk(**options: Any) -> Any:
    return given.reader(given.chain(lengths=ng.Column("series"), **options)[:, 0])


def _driven() -> Any:
    move = np.c_[0.9 * np.eye(2), [1.0, 0.0]]
    walk = ng.GaussianChain(
        "x", np.zeros(2), 1.0, move, 1.0, inputs=ng.Columns("X0"), plate=row(), lengths=ng.Column("series")
    )
    return given.reader(walk[:, 0])


OWN = {
    "leaf Normal, censored": lambda: ng.Normal(
        "y",
        given.effect(),
        given.gamma(),
        plate=row(),
        observed=ng.censored(ng.Column("REAL-"), right=ng.Column("late")),
    ),
    "leaf MultivariateNormal, Kronecker": lambda: _vectors(
        np.zeros(4), ng.kron(ng.Wishart("W", 4.0, np.eye(2)), np.eye(2)), "VECTORS0-", "VECTORS1-", "X0-", "X1-"
    ),
    "leaf MultivariateNormal, blocks": lambda: _vectors(
        np.zeros(3), ng.block_diag([[2.0]], ng.Wishart("W", 4.0, np.eye(2))), "REAL-", "X0-", "X1-"
    ),
    "hidden Normal, gap": _gap_in_a_parent,
    "hidden MarkovChain": _states,
    "hidden GaussianChain": _walk,
    "hidden GaussianChain, inputs": _driven,
    "hidden GaussianProcess": _process,
}
NAMES = [*(f"leaf {name}" for name in given.LEAVES), *(f"hidden {name}" for name in given.HIDDEN)]


def declared(name: str, monkeypatch: Any) -> ng.Network:
    """The network of a case, without data."""
    cases = {f"leaf {key}": make for key, make in given.LEAVES.items()} | {
        f"hidden {key}": make for key, make in given.HIDDEN.items()
    }
    _ROWS[:] = [ng.Plate("n")]
    with monkeypatch.context() as patched:
        patched.setattr(given, "n", row)
        patched.setattr(given, "gap", _later)
        patched.setattr(given, "X", ng.Columns("X0", "X1"))
        return ng.Network(OWN.get(name, cases[name])())
