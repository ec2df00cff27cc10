"""The per-node step with and without its correction for coupled scalars: final bounds of Algorithm 1 on two networks.

    python benchmarks/coupled_steps.py

A regression with one factor for each coefficient, and a fully factorised matrix factorisation; options a and b, C = 1 and
5, medians over three seeds. Prints a Markdown table; `docs/decisions/0005-coupled-scalars.md` shows it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import natgrad as ng


@dataclass(frozen=True)
class Uncorrected:
    """ρ_{i,1} = C_i/N_i, whatever is coupled."""

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Any:
        return ng.inference.PerNode().rate(t, ratio)


def regression() -> ng.Network:
    rng = np.random.default_rng(0)
    design = rng.normal(size=(50, 50))
    y = design @ rng.normal(size=50) + rng.normal(size=50)
    w = ng.Normal("w", 0.0, 1.0, plate=ng.Plate("coefficient", 50))
    return ng.Network(ng.Normal("y", ng.dot(design, w), 1.0, plate=ng.Plate("row", 50), observed=y))


def factorisation() -> ng.Network:
    rng = np.random.default_rng(0)
    n_users, n_items, n_ratings, size = 300, 200, 10_000, 5
    users = np.minimum((rng.pareto(1, n_ratings) * 20).astype(int), n_users - 1)
    items = np.minimum((rng.pareto(1, n_ratings) * 15).astype(int), n_items - 1)
    scores = (rng.normal(size=(n_users, size))[users] * rng.normal(size=(n_items, size))[items]).sum(1)
    stars = np.clip(np.round(3.5 + 0.5 * scores + 0.5 * rng.normal(size=n_ratings)), 1, 5)
    factor = ng.Plate("factor", size)
    u = ng.Normal("u", 0.0, 1.0, plate=(ng.Plate("user", n_users), factor))
    v = ng.Normal("v", 0.0, 1.0, plate=(ng.Plate("item", n_items), factor))
    rating = ng.Plate("rating", n_ratings)
    return ng.Network(ng.Normal("r", ng.dot(u[users], v[items]), 1.0, plate=rating, observed=stars))


def final_bound(network: ng.Network, method: ng.Children, step: Any, steps: int) -> str:
    bounds = []
    for seed in range(3):
        fit = network.fit(method, step=step, max_steps=steps, tol=0, seed=seed, bound_every=50)
        bounds.append(-np.inf if fit.stop.diverged else fit.elbo)
    middle = float(np.median(bounds))
    return "diverged" if not np.isfinite(middle) else f"{middle:,.0f}"


def main() -> None:
    print("| network | option | C | ρ₁ = C/N | corrected | full VB |\n|---|---|---:|---:|---:|---:|")
    for name, network, steps in (("regression", regression(), 1500), ("factorisation", factorisation(), 400)):
        full = network.fit(max_steps=300, tol=0).elbo
        for option in ("a", "b"):
            for count in (1, 5):
                method = ng.Children(count, option=option)
                plain, corrected = (
                    final_bound(network, method, s, steps) for s in (Uncorrected(), ng.inference.PerNode())
                )
                print(f"| {name} | {option} | {count} | {plain} | {corrected} | {full:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
