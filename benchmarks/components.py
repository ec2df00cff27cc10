"""How often the number of components is found: sets with a known truth, a grid of K with restarts beside, and peers.

    python benchmarks/components.py                        all of it: 100 sets of each kind, hours
    python benchmarks/components.py --sets 10 --grid 2     10 sets, a grid of every K on the first 2 of them
    python benchmarks/components.py mixture-2 blocks       some kinds
    python benchmarks/components.py faithful               best of 50 restarts on Old Faithful, in one run

A set counts if K is the truth or one beside it; the goal is 95 of 100, and at most a fifth of the processor seconds of the grid.
Results go to standard output as a table, one line a kind, with MISSED where a goal was not met.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import natgrad as ng

Floats = npt.NDArray[Any]
RESTARTS = 10
FAITHFUL = Path(__file__).resolve().parents[2] / "shared" / "data" / "faithful.csv"


class Kind(NamedTuple):
    """Generated sets: their truth, one set, the K that is found, and the bound of a fit with K and a seed given."""

    truth: int
    make: Callable[[np.random.Generator], Any]
    found: Callable[[Any], int]
    given: Callable[[Any, int, int], float]
    most: int
    peer: Callable[[Any], int] | None = None


def mixture(width: int, k: int = 8, n: int = 1000) -> Callable[[np.random.Generator], Floats]:
    """Gaussians with covariances of their own, centres at least four apart."""

    def make(rng: np.random.Generator) -> Floats:
        while True:
            centres = rng.uniform(-10, 10, (k, width)) if width == 2 else rng.normal(0, 3, (k, width))
            distance = np.linalg.norm(centres[:, None] - centres, axis=-1) + 1e9 * np.eye(k)
            if distance.min() > 4.0:
                break
        z = rng.choice(k, n, p=rng.dirichlet(np.full(k, 10.0)))
        factors = [
            np.linalg.cholesky(np.cov(rng.normal(size=(3 * width, width)).T) + 0.2 * np.eye(width)) for _ in range(k)
        ]
        return centres[z] + np.einsum("nij,nj->ni", np.array(factors)[z], rng.normal(size=(n, width)))

    return make


def topics(
    bars: bool, k: int = 10, n_documents: int = 500, length: int = 80
) -> Callable[[np.random.Generator], Floats]:
    """Rows and columns of a square as topics, or draws of a Dirichlet over 200 words."""

    def make(rng: np.random.Generator) -> Floats:
        if bars:
            side = k // 2
            square = np.zeros((k, side, side))
            for i in range(side):
                square[i, i, :] = square[side + i, :, i] = 1.0 / side
            phi = square.reshape(k, -1)
        else:
            phi = rng.dirichlet(np.full(200, 0.05), k)
        shares = rng.dirichlet(np.full(k, 0.1), n_documents)
        return np.array([rng.multinomial(length, share @ phi) for share in shares])

    return make


def chain(categories: bool, k: int = 5, n: int = 2000, stay: float = 0.9) -> Callable[[np.random.Generator], Floats]:
    """States that last ten times in the mean; Gaussians in the plane, or twelve symbols."""

    def make(rng: np.random.Generator) -> Floats:
        rows = np.full((k, k), (1.0 - stay) / (k - 1))
        np.fill_diagonal(rows, stay)
        states = [int(rng.integers(k))]
        for _ in range(n - 1):
            states.append(int(rng.choice(k, p=rows[states[-1]])))
        if categories:
            chance = rng.dirichlet(np.full(12, 0.3), k)
            return np.array([rng.choice(12, p=chance[state]) for state in states])[:, None]
        means = 3.0 * rng.permutation(k)[:, None] + rng.normal(size=(k, 2))
        return means[states] + rng.normal(size=(n, 2))

    return make


def graph(rng: np.random.Generator, k: int = 4, n: int = 60) -> tuple[Floats, Floats, Floats]:
    """A block model: 0.6 within, 0.1 between."""
    z = rng.integers(k, size=n)
    i, j = np.triu_indices(n, 1)
    return i, j, (rng.random(len(i)) < np.where(z[i] == z[j], 0.6, 0.1)).astype(int)


def blocks(data: Any, size: int, grow: bool) -> ng.Network:
    i, j, y = data
    sender, receiver = ng.Plate("from", size, grow=grow), ng.Plate("to", size, grow=grow)
    node, edge = ng.Plate("node", int(j.max()) + 1), ng.Plate("edge", len(i))
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(size, 1.0 / size)), plate=node)
    return ng.Network(
        ng.Bernoulli("y", ng.Beta("p", 1.0, 1.0, plate=(sender, receiver))[z[i], z[j]], plate=edge, observed=y)
    )


def _blocks_given(data: Any, k: int, seed: int) -> float:
    if k == 1:
        return -np.inf
    fit = blocks(data, k, False).fit(init="random", n_init=1, seed=seed)
    return float(fit.elbo)


def _peer(data: Any) -> int:
    """scikit-learn's Dirichlet-process mixture: components that hold at least one row of 1,000."""
    from sklearn.mixture import BayesianGaussianMixture

    model = BayesianGaussianMixture(n_components=20, max_iter=500, random_state=0).fit(data)
    return int((model.weights_ > 1.0 / len(data)).sum())


def _of(estimator: Any, setting: str, **options: Any) -> tuple[Callable[[Any], int], Callable[[Any, int, int], float]]:
    def found(data: Any) -> int:
        return int(getattr(estimator("auto", **options).fit(data), f"{setting}_"))

    def given(data: Any, k: int, seed: int) -> float:
        own = {name: value for name, value in options.items() if not name.startswith("max_") or name == "max_passes"}
        own |= {} if estimator is ng.LDA else {"n_init": 1}
        return float(estimator(k, seed=seed, **own).fit(data).elbo_)

    return found, given


GAUSSIAN = _of(ng.GaussianMixture, "n_components", max_components=20)
LDA = _of(ng.LDA, "n_topics", max_topics=20, max_passes=200, learn_priors="doc")
KINDS = {
    "mixture-2": Kind(8, mixture(2), *GAUSSIAN, 14, _peer),
    "mixture-10": Kind(8, mixture(10), *GAUSSIAN, 14, _peer),
    "topics-bars": Kind(10, topics(True), *LDA, 16),
    "topics-dirichlet": Kind(10, topics(False), *LDA, 16),
    "hmm-gaussian": Kind(5, chain(False), *_of(ng.GaussianHMM, "n_states", max_states=12), 9),
    "hmm-categorical": Kind(5, chain(True), *_of(ng.CategoricalHMM, "n_states", max_states=12), 9),
    "blocks": Kind(4, graph, lambda d: blocks(d, 8, True).fit().n_components["from"], _blocks_given, 8),
}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return function(), time.process_time() - begun


def measure(name: str, n_sets: int, n_grid: int) -> None:
    """One line: how often K was found, with what time, and the same of the grid and of a peer."""
    kind, found, seconds, grid, grid_seconds, peer = KINDS[name], [], [], [], [], []
    for number in range(n_sets):
        data = kind.make(np.random.default_rng([number, 7]))
        k, spent = timed(lambda data=data: kind.found(data))
        found.append(k)
        seconds.append(spent)
        if kind.peer is not None:
            peer.append(kind.peer(data))
        if number < n_grid:
            sizes = range(1, kind.most + 1)
            bounds, spent = timed(
                lambda data=data, sizes=sizes: [
                    max(kind.given(data, k, seed) for seed in range(RESTARTS)) for k in sizes
                ]
            )
            corrected = [bound + sum(np.log(np.arange(1, k + 1))) for k, bound in zip(sizes, bounds, strict=True)]
            grid.append(int(np.argmax(corrected)) + 1)
            grid_seconds.append(spent)
    near = sum(abs(k - kind.truth) <= 1 for k in found)
    words = f"{name:17} K = {kind.truth:2}: {near} of {n_sets} within 1, {sum(k == kind.truth for k in found)} exact"
    words += f", {np.mean(seconds):6.2f} processor seconds" + ("" if near >= 0.95 * n_sets else "  MISSED")
    if grid:
        share = np.mean(seconds[: len(grid)]) / np.mean(grid_seconds)
        words += f"; grid: {sum(abs(k - kind.truth) <= 1 for k in grid)} of {len(grid)}, {np.mean(grid_seconds):.1f} s"
        words += f", ratio {share:.3f}" + ("" if share <= 0.2 else "  MISSED")
    if peer:
        near = sum(abs(k - kind.truth) <= 1 for k in peer)
        words += f"; scikit-learn's DP: {near} of {n_sets} (median K {np.median(peer):.0f})"
    print(words, flush=True)


def faithful(n_runs: int) -> None:
    """One run with moves against the best of 50 restarts, K = 6 given, on Old Faithful."""
    if not FAITHFUL.exists():
        print(f"faithful: {FAITHFUL} is not there")
        return
    rows = np.genfromtxt(FAITHFUL, delimiter=",", skip_header=1)[:, -2:]
    starts, spent = timed(lambda: [ng.GaussianMixture(6, n_init=1, seed=seed).fit(rows).elbo_ for seed in range(50)])
    best, one = max(starts), spent / 50
    reached, taken = 0, []
    for seed in range(n_runs):
        fit, seconds = timed(lambda seed=seed: ng.GaussianMixture(6, n_init=1, seed=seed).fit(rows, moves="keep"))
        reached += fit.elbo_ >= best - 1e-4 * abs(best)
        taken.append(seconds)
    alone = sum(bound >= best - 1e-4 * abs(best) for bound in starts)
    ratio = np.mean(taken) / one
    print(
        f"faithful: {reached} of {n_runs} runs with moves reach the best of 50 within 0.01 % ({alone} of 50 restarts do), "
        f"{ratio:.1f} times one fit" + ("" if reached >= 0.9 * n_runs and ratio <= 3 else "  MISSED")
    )
    auto, seconds = timed(lambda: ng.GaussianMixture("auto", max_components=20).fit(rows))
    print(f"faithful: auto finds K = {auto.n_components_}, bound {auto.elbo_:.2f}, {seconds:.2f} s; DP {_peer(rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(KINDS)}, faithful; all by default")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--grid", type=int, default=10, help="sets on which the grid of K is fitted, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of peers that have not converged
    for name in given.kinds or [*KINDS, "faithful"]:
        faithful(min(given.sets, 100)) if name == "faithful" else measure(name, given.sets, given.grid)


if __name__ == "__main__":
    main()
