"""Simulation-based calibration of networks and ready models: coverage of 90 % intervals and the band of their ranks.

    python benchmarks/uncertainty_sbc.py --runs 1000 --only mixture regression      # some of them; others keep their last results
    python benchmarks/uncertainty_sbc.py --runs 1000                                 # all: most of an hour

Sizes are small, so that a thousand simulations take minutes. Labels have no order under the priors, and truths are put into that
of the fit. Ranks are of thinned draws of eight chains that begin at q. A model
is inside the band if the smallest p of χ² over its nodes is above 0.05 divided by their number (ten bins a node).
Results: ``benchmarks/results/uncertainty-sbc.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import natgrad as ng
from natgrad.errors import PoorMixing

RESULTS = Path(__file__).parent / "results"
DRAWS = {"n": 30, "chains": 8, "warmup": 60}


def regression() -> ng.Network:
    """Four groups around a level, a slope."""
    of, x = np.arange(24) % 4, np.linspace(1.0, 4.0, 24)
    a, b = ng.Normal("level", 0.0, 1.0), ng.Normal("slope", 0.0, 1.0)
    c = ng.Normal("offset", a, ng.Gamma("spread", 4.0, 4.0), plate=ng.Plate("group", 4))
    return ng.Network(
        ng.Normal("y", c[of] + b * x, ng.Gamma("tau", 4.0, 4.0), plate=ng.Plate("n", 24), observed=np.zeros(24))
    )


def mixture() -> ng.Network:
    """Two components that overlap."""
    component, point = ng.Plate("component", 2), ng.Plate("point", 30)
    z = ng.Categorical("z", ng.Dirichlet("w", [5.0, 5.0]), plate=point)
    mu = ng.Normal("mu", 0.0, 1 / 2.25, plate=component)
    return ng.Network(ng.Normal("y", mu[z], ng.Gamma("tau", 8.0, 8.0), plate=point, observed=np.zeros(30)))


def chain() -> ng.Network:
    """Two states with means that overlap."""
    state, when = ng.Plate("state", 2), ng.Plate("time", 40)
    rows = ng.Dirichlet("A", [[8.0, 2.0], [2.0, 8.0]], plate=state)
    z = ng.MarkovChain("z", [0.5, 0.5], rows, plate=when)
    mu = ng.Normal("mu", 0.0, 1 / 2.25, plate=state)
    return ng.Network(ng.Normal("y", mu[z], 1.0, plate=when, observed=np.zeros(40)))


def topics() -> ng.Network:
    """Two topics of six words, ten documents of twelve."""
    docs = np.repeat(np.arange(10), 12)
    theta = ng.Dirichlet("theta", 0.5, size=2, plate=ng.Plate("doc", 10))
    phi = ng.Dirichlet("phi", 0.5, size=6, plate=ng.Plate("topic", 2))
    word = ng.Plate("word", 120)
    z = ng.Categorical("z", theta[docs], plate=word)
    return ng.Network(ng.Categorical("w", phi[z], plate=word, observed=np.arange(120) % 6))


def factorisation() -> ng.Network:
    """Eight users, six items, 36 ratings; vectors can be rotated, so that the noise is what has ranks."""
    who, what = np.divmod(np.random.default_rng(0).permutation(48)[:36], 6)
    u = ng.MultivariateNormal("u", np.zeros(2), np.eye(2), plate=ng.Plate("user", 8))
    v = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=ng.Plate("item", 6))
    tau, rating = ng.Gamma("tau", 8.0, 8.0), ng.Plate("rating", 36)
    return ng.Network(ng.Normal("y", ng.dot(u[who], v[what]), tau, plate=rating, observed=np.zeros(36)))


def factors() -> ng.Network:
    """Fifteen rows of four columns, two factors."""
    row, column = ng.Plate("row", 15), ng.Plate("column", 4)
    w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    tau = ng.Gamma("tau", 8.0, 8.0)
    return ng.Network(ng.Normal("y", ng.dot(x, w), tau, plate=(row, column), observed=np.zeros((15, 4))))


def blocks() -> ng.Network:
    """Eight senders and seven receivers in two groups each."""
    one, two, sender, receiver = ng.Plate("one", 2), ng.Plate("two", 2), ng.Plate("sender", 8), ng.Plate("receiver", 7)
    rate = ng.Beta("rate", 2.0, 2.0, plate=(one, two))
    z = ng.Categorical("z", ng.Dirichlet("p", [5.0, 5.0]), plate=sender)
    c = ng.Categorical("c", ng.Dirichlet("q", [5.0, 5.0]), plate=receiver)
    return ng.Network(ng.Bernoulli("y", rate[z, c], plate=(sender, receiver), observed=np.zeros((8, 7), int)))


NETWORKS: dict[str, tuple[Callable[[], ng.Network], list[str] | None, Any]] = {
    "regression": (regression, None, None),
    "mixture": (mixture, None, {"mu": [-1.0, 1.0]}),
    "chain": (chain, None, {"mu": [-1.0, 1.0]}),
    "topics": (topics, None, "random"),
    "factorisation": (factorisation, ["tau"], "random"),
    "factors": (factors, ["tau"], "random"),
    "blocks": (blocks, None, "random"),
}


def ready_models() -> dict[str, tuple[Any, int]]:
    """Fits whose priors are used, and the rows of a simulation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 1))
    mixed = {"weight_prior": 3.0, "n_init": 2, "verbose": False}
    diag, tied, full = (
        ng.models.hmm.Gaussian(kind, mean_scale=0.2, dof_prior=6.0) for kind in ("diag", "tied", "full")
    )
    chained = {"transitions": ng.models.hmm.Transitions(2.0, 2.0), "n_init": 2, "verbose": False}
    counts = rng.poisson(3.0, (30, 1))
    return {
        "GaussianMixture, diag": (ng.GaussianMixture(2, covariance=diag, **mixed).fit(x), 30),
        "GaussianMixture, tied": (ng.GaussianMixture(2, covariance=tied, **mixed).fit(x), 30),
        "GaussianHMM": (ng.GaussianHMM(2, covariance=full, **chained).fit(x), 40),
        "PoissonHMM": (ng.PoissonHMM(2, rate_prior=(4.0, 1.0), **chained).fit(counts), 40),
        "CategoricalHMM": (ng.CategoricalHMM(2, categories=4, **chained).fit(counts % 4), 40),
    }


def calibrated(name: str, runs: int, level: str) -> Any:
    """The ranks of one model."""
    options = {"level": level, "n_ranks": 19, "draws_options": DRAWS, "verbose": False}
    if name in NETWORKS:
        make, names, init = NETWORKS[name]
        return make().calibrate(runs, names=names, fit_options={"init": init}, **options)
    model, size = ready_models()[name]
    return model.calibrate(runs, size=size, **options)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    held = ", ".join(f"{node} {100 * share:.1f} %" for node, share in row["coverage"].items())
    limit = 0.05 / len(row["coverage"])
    inside = "yes" if row["p"] > limit else "no"
    return f"| {row['model']} | {row['level']} | {row['runs']} | {held} | {row['p']:.3f} | {inside} | {row['seconds']:.0f} |"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ready = ["GaussianMixture, diag", "GaussianMixture, tied", "GaussianHMM", "PoissonHMM", "CategoricalHMM"]
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--levels", nargs="+", default=["draws"], choices=["q", "linear_response", "draws"])
    parser.add_argument("--only", nargs="+", choices=[*NETWORKS, *ready], default=[*NETWORKS, *ready])
    options = parser.parse_args()
    warnings.simplefilter("ignore", PoorMixing)
    path = RESULTS / "uncertainty-sbc.json"
    for name in options.only:
        for level in options.levels:
            begin = time.process_time()
            found = calibrated(name, options.runs, level)
            row = {
                "model": name, "level": level, "runs": options.runs, "coverage": found.coverage(0.9),
                "p": min(found.p_values(10).values()), "seconds": time.process_time() - begin,
            }  # fmt: skip
            print(line(row), flush=True)
            rows = json.loads(path.read_text()) if path.exists() else []  # another process may have written meanwhile
            rows = [r for r in rows if (r["model"], r["level"]) != (name, level)] + [row]
            path.write_text(json.dumps(rows, indent=1) + "\n")
            head = (
                "| model | level | simulations | 90 % intervals hold | smallest p of uniform ranks | inside | CPU s |",
                "|---|---|---|---|---|---|---|",
            )
            (RESULTS / "uncertainty-sbc.md").write_text("\n".join([*head, *map(line, rows)]) + "\n")


if __name__ == "__main__":
    main()
