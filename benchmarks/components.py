"""How often the number of components is found: sets with a known truth, a grid of K with restarts beside, and a peer.

    python benchmarks/components.py                        all of it: 100 sets of each kind, hours
    python benchmarks/components.py --sets 10 --grid 2     10 sets, a grid of K on the first 2 of them
    python benchmarks/components.py mixture-2 blocks       some kinds
    python benchmarks/components.py --first 100            100 other sets
    python benchmarks/components.py --table                the table of what was measured so far

A set counts if K is the truth or one beside it; the goal is 95 of 100, and at most a fifth of the processor seconds of the grid.
Every set is a line of ``benchmarks/results/components.jsonl`` as soon as it is measured, and is not measured again: a run that
was stopped goes on. The table, ``benchmarks/results/components.md``, says how many sets it is about, and MISSED where a goal was
not met.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from components_files import Lines, markdown

import natgrad as ng

Floats = npt.NDArray[Any]
RESTARTS = 10
LINES = Lines("components")


class Kind(NamedTuple):
    """Generated sets: their truth, one set, K and bound as found, the bound with K and a seed given, the grid of K."""

    truth: int
    make: Callable[[np.random.Generator], Any]
    found: Callable[[Any], tuple[int, float]]
    given: Callable[[Any, int, int], float]
    sizes: range
    peer: Callable[[Any], tuple[int, float]] | None = None


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


def _blocks_found(data: Any) -> tuple[int, float]:
    fit = blocks(data, 8, True).fit()
    return fit.n_components["from"], float(fit.elbo)


def _peer(data: Any) -> tuple[int, float]:
    """scikit-learn's Dirichlet-process mixture: components that hold at least one row of 1,000, and its own bound."""
    from sklearn.mixture import BayesianGaussianMixture

    model = BayesianGaussianMixture(n_components=20, max_iter=500, random_state=0).fit(data)
    return int((model.weights_ > 1.0 / len(data)).sum()), float(model.lower_bound_)


def _of(
    estimator: Any, setting: str, most: int | None = None, **options: Any
) -> tuple[Callable[[Any], tuple[int, float]], Callable[[Any, int, int], float]]:
    def found(data: Any) -> tuple[int, float]:
        model = estimator("auto" if most is None else ("auto", most), **options).fit(data)
        return int(getattr(model, f"{setting}_")), float(model.elbo_)

    def given(data: Any, k: int, seed: int) -> float:
        own = {**options, **({} if estimator is ng.LDA else {"n_init": 1})}
        return float(estimator(k, seed=seed, **own).fit(data).elbo_)

    return found, given


GAUSSIAN = _of(ng.GaussianMixture, "n_components", 20)
LDA = _of(ng.LDA, "n_topics", max_passes=200, doc_prior="learn", topic_prior="learn")
KINDS = {
    "mixture-2": Kind(8, mixture(2), *GAUSSIAN, range(1, 15), _peer),
    "mixture-10": Kind(8, mixture(10), *GAUSSIAN, range(1, 15), _peer),
    "topics-bars": Kind(10, topics(True), *LDA, range(2, 17, 2)),
    "topics-dirichlet": Kind(10, topics(False), *LDA, range(2, 17, 2)),
    "hmm-gaussian": Kind(5, chain(False), *_of(ng.GaussianHMM, "n_states", 12), range(1, 10)),
    "hmm-categorical": Kind(5, chain(True), *_of(ng.CategoricalHMM, "n_states", 12), range(1, 10)),
    "blocks": Kind(4, graph, _blocks_found, _blocks_given, range(1, 9)),
}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return function(), time.process_time() - begun


def grid(name: str, number: int, data: Any) -> dict[str, Any]:
    """The K of the highest bound with log K! added, of the best of some restarts each; every K is a line of its own."""
    kind, about = KINDS[name], {"kind": name, "part": "given", "set": number}
    for k in kind.sizes:
        if not LINES.has(**about, k=k):
            best, seconds = timed(lambda k=k: max(kind.given(data, k, seed) for seed in range(RESTARTS)))
            LINES.add(**about, k=k, bound=best, seconds=round(seconds, 3))
    lines = [LINES.all(**about, k=k)[0] for k in kind.sizes]
    best = np.array([line["bound"] for line in lines])
    corrected = best + [math.lgamma(k + 1) for k in kind.sizes]
    seconds = round(sum(line["seconds"] for line in lines), 3)
    return {"k": kind.sizes[int(np.argmax(corrected))], "bound": float(best.max()), "seconds": seconds}


def measure(name: str, numbers: range, part: str) -> None:
    """A line for every set that has none yet."""
    kind, warm = KINDS[name], False
    does = {"auto": kind.found, "grid": None, "dp": kind.peer}[part]
    if part == "dp" and does is None:
        return
    for number in numbers:
        if LINES.has(kind=name, part=part, set=number):
            continue
        if not warm:  # kernels are compiled, or read
            kind.given(kind.make(np.random.default_rng([1_000_000, 7])), 2, 0)
            warm = True
        data = kind.make(np.random.default_rng([number, 7]))
        if does is None:
            LINES.add(kind=name, part=part, set=number, **grid(name, number, data))
            continue
        (k, bound), seconds = timed(lambda data=data: does(data))
        LINES.add(kind=name, part=part, set=number, k=k, bound=bound, seconds=round(seconds, 3))


def row(name: str) -> list[str]:
    """A line of the table."""
    truth = KINDS[name].truth

    def near(lines: list[dict[str, Any]]) -> str:
        return f"{sum(abs(line['k'] - truth) <= 1 for line in lines)} of {len(lines)}"

    auto, grids, peer = (LINES.all(kind=name, part=part) for part in ("auto", "grid", "dp"))
    if not auto:
        return [name, str(truth), *[""] * 8]
    good = sum(abs(line["k"] - truth) <= 1 for line in auto)
    cells = [name, str(truth), near(auto) + ("" if good >= 0.95 * len(auto) else " MISSED")]
    cells += [str(sum(line["k"] == truth for line in auto)), f"{np.mean([line['seconds'] for line in auto]):.2f}"]
    if grids:
        same = {line["set"]: line["seconds"] for line in auto}
        pairs = [(same[line["set"]], line["seconds"]) for line in grids if line["set"] in same]
        share = np.sum(pairs, 0)[0] / np.sum(pairs, 0)[1]
        cells += [near(grids), f"{np.mean([line['seconds'] for line in grids]):.1f}"]
        cells += [f"{share:.3f}" + ("" if share <= 0.2 else " MISSED")]
    else:
        cells += ["", "", ""]
    if peer:
        seconds = np.mean([line["seconds"] for line in peer])
        return [*cells, f"{near(peer)}, median K {np.median([line['k'] for line in peer]):.0f}", f"{seconds:.2f}"]
    return [*cells, "", ""]


HEADINGS = [
    "sets",
    "truth",
    "found within 1",
    "exact",
    "cpu s",
    "grid within 1",
    "grid cpu s",
    "ratio",
    "scikit-learn's DP",
    "DP cpu s",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(KINDS)}; all by default")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first set: others than those looked at")
    parser.add_argument("--grid", type=int, default=10, help="sets on which the grid of K is fitted, too")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of peers that have not converged
    for name in () if given.table else given.kinds or KINDS:
        sets = range(given.first, given.first + given.sets)
        measure(name, sets, "auto")
        measure(name, sets, "dp")
        measure(name, sets[: given.grid], "grid")
    LINES.write(markdown(HEADINGS, [row(name) for name in KINDS]))


if __name__ == "__main__":
    main()
