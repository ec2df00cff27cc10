"""One chain along all rows of a table in chunks: its ends are carried from chunk to chunk, and nothing else changes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad import families

TIMES = 90


def gaussian_path(times: int, size: int, plates: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    A, Q = 0.9 * turn, np.diag(rng.uniform(1.0, 3.0, size))
    J = -0.5 * (Q + A.T @ Q @ A + (0.1 + rng.random((*plates, times, 1, 1))) * np.eye(size))
    C = np.broadcast_to(Q @ A, J.shape).copy()
    return rng.normal(size=(*plates, times, size)), J, C


def state_path(times: int, size: int, plates: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    potentials, transition = rng.normal(size=(*plates, times, size)), rng.normal(size=(size, size))
    return potentials, rng.normal(size=size), transition


def cut_up(lam: tuple[np.ndarray, ...], edges: list[int], gaussian: bool) -> list[tuple[np.ndarray, ...]]:
    """Stretches that share a time, which belongs to the first of the two; the initial law to the first stretch."""
    parts = []
    for k, (a, b) in enumerate(pairwise(edges)):
        along = [1, 2, 2] if gaussian else [1]
        own = [part[(..., slice(a, b + 1), *(slice(None),) * n)].copy() for part, n in zip(lam, along, strict=False)]
        for part, n in zip(own[:2], along, strict=False):
            part[(..., 0, *(slice(None),) * n)] *= k == 0
        parts.append(tuple(own) if gaussian else (own[0], lam[1] * (k == 0), lam[2]))
    return parts


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize(("times", "cuts", "plates"), [(7, [3], ()), (60, [1, 2, 40], (2,)), (1500, [700], ())])
def test_stretches_with_their_messages_are_the_whole(
    gaussian: bool, times: int, cuts: list[int], plates: tuple[int, ...], rng: np.random.Generator
) -> None:
    family: Any = families.GaussianChain() if gaussian else families.MarkovChain()
    lam = (gaussian_path if gaussian else state_path)(times, 3, plates, rng)
    whole, entropy = family.moments_entropy(lam)
    edges = [0, *cuts, times - 1]
    parts = cut_up(lam, edges, gaussian)
    condensed = zip(*(family.condensed(part) for part in parts), strict=True)
    found = family.end_messages(tuple(np.stack(stats) for stats in condensed))
    total, pairs = -found.shared, 0.0
    for k, part in enumerate(parts):
        told = (tuple(m[k] for m in messages) for messages in (found.before, found.after))
        stats, own = family.moments_entropy(family.at_ends(part, *told))
        total, pairs = total + own, pairs + (0.0 if gaussian else stats[2])
        here = slice(edges[k], edges[k + 1] + 1)
        np.testing.assert_allclose(stats[0], whole[0][..., here, :], rtol=0, atol=1e-12)
        if gaussian:
            np.testing.assert_allclose(stats[1], whole[1][..., here, :, :], rtol=0, atol=1e-12)
            later = whole[2][..., here, :, :][..., 1:, :, :]
            np.testing.assert_allclose(stats[2][..., 1:, :, :], later, rtol=0, atol=1e-12)
    np.testing.assert_allclose(total, entropy, rtol=1e-12)
    if not gaussian:
        np.testing.assert_allclose(pairs, whole[2], rtol=1e-12)


# -- networks --


def state_space() -> tuple[ng.Network, dict[str, Any], dict[str, Any]]:
    """Learned dynamics, inputs, noise and loadings; gaps, some of them where chunks meet."""
    rng = np.random.default_rng(3)
    signal = np.cumsum(rng.normal(size=TIMES))[:, None] * [1.0, -0.5] + rng.normal(size=(TIMES, 2))
    signal[28:33], signal[60, 1] = np.nan, np.nan
    time, row, sensor = ng.Plate("time"), ng.Plate("row", 2), ng.Plate("sensor", 2)
    A = ng.MultivariateNormal("A", np.eye(2), 1.0, plate=row)
    noise = ng.diag(ng.Gamma("noise", 1.0, 1.0, plate=ng.Plate("entry", 2)))
    x = ng.GaussianChain("x", np.zeros(2), 1.0, A, noise, plate=time)
    C = ng.MultivariateNormal("C", np.zeros(2), 0.1, plate=sensor)
    tau = ng.Gamma("tau", 1.0, 1.0)
    y = ng.Normal("y", ng.dot(C, x), tau, plate=(time, sensor), observed=ng.Columns("a", "b"))
    return ng.Network(y), {"a": signal[:, 0], "b": signal[:, 1]}, {"C": np.array([[1.0, 0.2], [-0.5, 0.3]])}


def hidden_markov() -> tuple[ng.Network, dict[str, Any], dict[str, Any]]:
    """Learned start, transitions and emissions; some states are known, some observations missing."""
    rng = np.random.default_rng(4)
    states = np.arange(TIMES) // 12 % 3
    values = np.array([-2.0, 0.0, 3.0])[states] + 0.7 * rng.normal(size=TIMES)
    values[[0, 30, 31, 89]] = np.nan
    known = np.where(rng.random(TIMES) < 0.1, states, np.nan)
    time, state = ng.Plate("time"), ng.Plate("state", 3)
    moves = ng.Dirichlet("moves", 1.0, size=3, plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("start", 1.0, size=3), moves, plate=time, observed=ng.Column("z"))
    mu, tau = ng.Normal("mu", 0.0, 0.1, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
    y = ng.Normal("y", mu[z], tau[z], plate=time, observed=ng.Column("y"))
    return ng.Network(y), {"y": values, "z": known}, {"mu": np.array([-1.0, 0.0, 1.0])}


def two_walks() -> tuple[ng.Network, dict[str, Any], dict[str, Any]]:
    """A walk for each of two series along the same rows, and rows that read levels of their own: no sums over all chunks."""
    rng = np.random.default_rng(5)
    group = np.arange(TIMES) * 7 % 5
    value = np.cumsum(rng.normal(size=TIMES)) + rng.normal(size=5)[group]
    time, where = ng.Plate("time"), ng.Plate("where")
    level = ng.GaussianChain("level", 0.0, 1.0, 1.0, ng.Gamma("moves", 1.0, 1.0), plate=time)
    effect = ng.Normal("effect", 0.0, ng.Gamma("spread", 1.0, 1.0), plate=where)
    slope = ng.Normal("slope", 0.0, 1.0)
    mean = level[:, 0] + effect[ng.Column("where")] + slope * ng.Column("u")
    y = ng.Normal("y", mean, ng.Gamma("tau", 1.0, 1.0), plate=time, observed=ng.Column("y"))
    return ng.Network(y), {"y": value, "where": group, "u": rng.normal(size=TIMES)}, {}


MAKERS = {"state space": state_space, "hidden Markov": hidden_markov, "levels": two_walks}


def fitted(net: ng.Network, table: Any, init: Any, **options: Any) -> Any:
    given = {"method": ng.VB(), "init": init or None, "max_steps": 6, "tol": 0, "verbose": False, **options}
    return net.fit(table, given.pop("method"), **given)


@pytest.mark.filterwarnings("ignore:the fit has not converged")
@pytest.mark.parametrize("which", MAKERS)
@pytest.mark.parametrize("chunk_rows", [8, 31, TIMES - 1, pytest.param(2, marks=pytest.mark.slow)])
def test_chunks_are_the_whole(which: str, chunk_rows: int) -> None:
    net, table, init = MAKERS[which]()
    # One chunk is the whole table: the same order of updates, and no ends.
    whole, chunks = (fitted(net, table, init, chunk_rows=size) for size in (10 * TIMES, chunk_rows))
    np.testing.assert_allclose(chunks.trace["elbo"], whole.trace["elbo"], rtol=1e-12)
    for name in whole:
        np.testing.assert_allclose(chunks[name].mean(), whole[name].mean(), rtol=1e-10, atol=1e-12)
    assert chunks.problem.n_observed == whole.problem.n_observed
    assert np.diff(chunks.trace["elbo"]).min() > -1e-9


@pytest.mark.filterwarnings("ignore:the fit has not converged")
@pytest.mark.parametrize("which", ["state space", "hidden Markov"])
def test_one_chunk_is_the_network_in_memory(which: str) -> None:
    net, table, init = MAKERS[which]()
    chain = "x" if which == "state space" else "z"
    chunks = fitted(net, table, init, chunk_rows=20)
    whole = fitted(net, table, init, order=[chain, *chunks])
    np.testing.assert_allclose(chunks.trace["elbo"], whole.trace["elbo"], rtol=1e-12)


def test_what_a_chain_along_all_rows_forbids() -> None:
    net, table, init = hidden_markov()
    for method in (ng.SVI({"time": 20}), ng.Children(4), ng.GlobalBatch(10)):
        with pytest.raises(
            ng.errors.PlateMismatch, match="'z' is one chain along all rows of 'time', of which no part"
        ):
            fitted(net, table, init, chunk_rows=20, method=method)
    with pytest.raises(ng.errors.PlateMismatch, match="chunk_rows = 1: 'z' is one chain along all rows"):
        fitted(net, table, init, chunk_rows=1)
    time = ng.Plate("time", weight=ng.Column("w"))
    level = ng.GaussianChain("level", 0.0, 1.0, 1.0, 1.0, plate=time)
    y = ng.Normal("y", level[:, 0], ng.Gamma("tau", 1.0, 1.0), plate=time, observed=ng.Column("y"))
    weighed = {"y": np.zeros(9), "w": np.ones(9)}
    with pytest.raises(ng.errors.PlateMismatch, match="the time plate 'time' of a chain cannot carry weights"):
        ng.Network(y).fit(weighed, chunk_rows=4)
    time = ng.Plate("time")
    level = ng.GaussianChain("level", 0.0, 1.0, 1.0, ng.Gamma("moves", 1.0, 1.0), plate=time)
    won = ng.Bernoulli("won", logit=level[:, 0], plate=time, observed=ng.Column("won"))
    with pytest.raises(ng.errors.NotConjugate, match=r"'won.omega', which is hidden in rows too, meets it in 'won'"):
        ng.Network(won).fit({"won": np.arange(9) % 2}, chunk_rows=4)


@pytest.mark.parametrize("which", ["state space", "hidden Markov"])
@pytest.mark.parametrize("chunk_rows", [2, 31])
@pytest.mark.filterwarnings("ignore:the fit has not converged")
def test_states_come_chunk_by_chunk(which: str, chunk_rows: int) -> None:
    """What one chunk, the whole table, says of every row."""
    net, table, init = MAKERS[which]()
    chain = "x" if which == "state space" else "z"
    (whole,) = fitted(net, table, init, chunk_rows=TIMES, max_steps=2).rows(chain)
    fit = fitted(net, table, init, chunk_rows=chunk_rows, max_steps=2)
    parts = list(fit.rows(chain))
    np.testing.assert_allclose(np.concatenate([part.mean() for part in parts]), whole.mean(), rtol=0, atol=1e-11)
    np.testing.assert_allclose(np.concatenate([part.var() for part in parts]), whole.var(), rtol=0, atol=1e-11)
    with pytest.raises(KeyError, match=rf"fit.rows\('{chain}'\) has them, chunk by chunk"):
        fit[chain]
    with pytest.raises(KeyError, match=rf"'tau' is not hidden in rows; hidden there are {chain}"):
        next(fit.rows("tau"))
    with pytest.raises(TypeError, match="this table was not read in chunks"):
        next(fitted(net, table, init, max_steps=1).rows(chain))
