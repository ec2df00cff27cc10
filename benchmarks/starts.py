"""Where fits of networks with several optima end: the default start, clusters and draws over ten seeds, and the best of 50 draws.

    python benchmarks/starts.py                 # all models, a few minutes
    python benchmarks/starts.py --only faithful blocks
    python benchmarks/starts.py --first-seed 10   # seeds that nothing was chosen on; prints alone

Bounds are relative to the best of 50 runs with ``init="random"``: 0 is as good, −3 is three nats below, +3 above. Processor
seconds are those of one fit in a process that is warm.

Results: ``benchmarks/results/starts.json`` and ``benchmarks/results/starts.md``.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from first_fit_data import data_of

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"
SEEDS, DRAWS = 10, 50
MODELS: dict[str, Callable[[], ng.Network]] = {}


def model(function: Callable[[], ng.Network]) -> Callable[[], ng.Network]:
    MODELS[function.__name__] = function
    return function


def category(size: int, n: int, concentration: float = 1.0) -> tuple[Any, ng.Plate, ng.Plate]:
    """A hidden category for each point, the points and the components."""
    point = ng.Plate("point", n)
    weight = ng.Dirichlet("weight", concentration, size=size)
    return ng.Categorical("z", weight, plate=point), point, ng.Plate("component", size)


def gaussians(y: Any, size: int, concentration: float, prior: float) -> ng.Network:
    z, point, component = category(size, len(y), concentration)
    mu = ng.MultivariateNormal("mu", np.zeros(2), prior * np.eye(2), plate=component)
    precision = ng.Wishart("precision", 2.0, prior * np.eye(2), plate=component)
    return ng.Network(ng.MultivariateNormal("y", mu[z], precision[z], plate=point, observed=y))


@model
def faithful() -> ng.Network:
    return gaussians(data_of("faithful")["y"], 10, 1e-5, 1e-5)


@model
def blobs() -> ng.Network:
    rng = np.random.default_rng(1)
    centres = 2.5 * rng.normal(size=(7, 2))
    return gaussians(centres[rng.integers(0, 7, 300)] + rng.normal(size=(300, 2)), 7, 1.0, 0.1)


@model
def scalars() -> ng.Network:
    d = data_of("mixture1d")
    z, point, component = category(3, len(d["y"]))
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    return ng.Network(ng.Normal("y", mu[z], 1.0, plate=point, observed=d["y"]))


@model
def bernoullis() -> ng.Network:
    d = data_of("bernoullis")
    z, point, component = category(3, 100)
    feature = ng.Plate("feature", 12)
    p = ng.Beta("p", 0.5, 0.5, plate=(component, feature))
    return ng.Network(ng.Bernoulli("y", p[z], plate=(point, feature), observed=d["y"]))


@model
def poissons() -> ng.Network:
    d = data_of("poissons")
    z, point, component = category(4, 150)
    return ng.Network(ng.Poisson("y", ng.Gamma("rate", 1.0, 0.1, plate=component)[z], plate=point, observed=d["y"]))


@model
def classes() -> ng.Network:
    """Latent classes: six questions with four answers each."""
    rng = np.random.default_rng(2)
    table, truth = rng.dirichlet(np.full(4, 0.4), size=(4, 6)), rng.integers(0, 4, 200)
    y = np.array([[rng.choice(4, p=table[t, q]) for q in range(6)] for t in truth])
    z, point, component = category(4, 200)
    question = ng.Plate("question", 6)
    p = ng.Dirichlet("p", 1.0, size=4, plate=(component, question))
    return ng.Network(ng.Categorical("y", p[z], plate=(point, question), observed=y))


@model
def switching() -> ng.Network:
    d = data_of("switching")
    z, point, component = category(3, 100)
    w = ng.MultivariateNormal("w", np.zeros(2), 1e-2 * np.eye(2), plate=component)
    tau = ng.Gamma("tau", 1.0, 1.0, plate=component)
    return ng.Network(ng.Normal("y", ng.dot(d["x"], w[z]), tau[z], plate=point, observed=d["y"]))


@model
def topics() -> ng.Network:
    d = data_of("lda")
    documents, words = d["shape"]
    theta = ng.Dirichlet("theta", 0.3, size=3, plate=ng.Plate("document", documents))
    phi = ng.Dirichlet("phi", 0.2, size=words, plate=ng.Plate("topic", 3))
    token = ng.Plate("token", len(d["word"]))
    z = ng.Categorical("z", theta[d["document"]], plate=token)
    return ng.Network(ng.Categorical("w", phi[z], plate=token, observed=d["word"]))


@model
def gaussian_hmm() -> ng.Network:
    d = data_of("gaussian_hmm")
    time_, state = ng.Plate("time", 200), ng.Plate("state", 4)
    rows = ng.Dirichlet("rows", 1.0, size=4, plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("first", 1.0, size=4), rows, plate=time_)
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
    return ng.Network(ng.Normal("y", mu[z], tau[z], plate=time_, observed=d["y"]))


@model
def discrete_hmm() -> ng.Network:
    d = data_of("discrete_hmm")
    time_, state = ng.Plate("time", 100), ng.Plate("state", 3)
    rows = ng.Dirichlet("rows", 1.0, size=3, plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("first", 1.0, size=3), rows, plate=time_)
    return ng.Network(ng.Categorical("y", ng.Dirichlet("p", 1.0, size=3, plate=state)[z], plate=time_, observed=d["y"]))


@model
def factorial_hmm() -> ng.Network:
    d = data_of("factorial_hmm")
    time_, parts = ng.Plate("time", 120), []
    for name in ("a", "b"):
        state = ng.Plate(f"state {name}", 2)
        rows = ng.Dirichlet(f"rows {name}", 1.0, size=2, plate=state)
        z = ng.MarkovChain(f"z {name}", ng.Dirichlet(f"first {name}", 1.0, size=2), rows, plate=time_)
        parts.append(ng.Normal(f"mu {name}", 0.0, 0.1, plate=state)[z])
    tau = ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("y", parts[0] + parts[1], tau, plate=time_, observed=d["y"]))


@model
def blocks() -> ng.Network:
    rng, truth = np.random.default_rng(3), np.arange(24) % 3
    first, second = np.triu_indices(24, 1)
    edge = rng.random(len(first)) < np.where(truth[first] == truth[second], 0.7, 0.1)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=3), plate=ng.Plate("vertex", 24))
    p = ng.Beta("p", 1.0, 1.0, plate=(ng.Plate("group", 3), ng.Plate("other", 3)))
    pair = ng.Plate("pair", len(first))
    return ng.Network(ng.Bernoulli("y", p[z[first], z[second]], plate=pair, observed=edge.astype(int)))


def runs(network: ng.Network, init: Any, seeds: range) -> dict[str, Any] | None:
    """Bounds over some seeds, and processor seconds of one fit; None where there is no such start."""
    begin, bounds = time.process_time(), []
    for seed in seeds:
        try:
            bounds.append(float(network.fit(init=init, seed=seed, verbose=False).elbo))
        except ValueError:
            return None
    return {"bounds": bounds, "cpu": (time.process_time() - begin) / len(seeds)}


def measured(name: str, first_seed: int) -> dict[str, Any]:
    network, seeds = MODELS[name](), range(first_seed, first_seed + SEEDS)
    draws = runs(network, "random", range(first_seed, first_seed + DRAWS))
    assert draws is not None
    first = {"bounds": draws["bounds"][:SEEDS], "cpu": draws["cpu"]}
    found = {"default": runs(network, None, seeds), "kmeans": runs(network, "kmeans", seeds), "random": first}
    return {"model": name, "best": max(draws["bounds"]), **found}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | best of 50 draws | default: worst | median | best | cpu s | k-means: worst | median | best | cpu s | "
        "draw: worst | median | best | cpu s |",
        "|---|" + "---:|" * 13,
    ]
    behind = []
    for row in rows:
        cells = [row["model"], f"{row['best']:.2f}"]
        for kind in ("default", "kmeans", "random"):
            found = row[kind]
            if found is None:
                cells += [""] * 4
                continue
            gaps = [bound - row["best"] for bound in found["bounds"]]
            cells += [f"{x:+.2f}" for x in (min(gaps), statistics.median(gaps), max(gaps))] + [f"{found['cpu']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
        others = [row[kind]["bounds"] for kind in ("kmeans", "random") if row[kind] is not None]
        ours = row["default"]["bounds"]
        if any(our < max(pair) - 0.1 for our, pair in zip(ours, zip(*others, strict=True), strict=True)):
            count = sum(our < max(pair) - 0.1 for our, pair in zip(ours, zip(*others, strict=True), strict=True))
            behind.append(f"{row['model']} ({count} of {len(ours)} seeds)")
    lines += ["", f"The default is behind the better of k-means and draws with the same seed, by more than 0.1 nats, in: "
              f"{', '.join(behind) or 'none'}."]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in options.only or MODELS:
        rows.append(measured(name, options.first_seed))
        print(table(rows[-1:]).splitlines()[2], flush=True)
    print(table(rows))
    if options.only is None and not options.first_seed:
        RESULTS.joinpath("starts.json").write_text(json.dumps(rows, indent=1) + "\n")
        RESULTS.joinpath("starts.md").write_text(table(rows))


if __name__ == "__main__":
    main()
