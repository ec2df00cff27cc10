"""Simulation-based calibration of ready models: coverage of 90 % intervals and the band of their ranks, q and draws.

    python benchmarks/uncertainty_sbc.py --runs 1000

Sizes are small, so that a thousand simulations take minutes. Ranks are thinned draws; a model is inside if the share of bins
outside their own 95 % band is what chance allows (p of χ² above 0.05 divided by the number of blocks).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import natgrad as ng

RESULTS = Path(__file__).parent / "results"


def models() -> dict[str, tuple[object, int]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 1))
    mixture = {"mean_scale": 0.2, "weight_prior": 3.0, "dof_prior": 6.0, "n_init": 2, "verbose": False}
    chain = {"transition_prior": 2.0, "initial_prior": 2.0, "n_init": 2, "verbose": False}
    counts = rng.poisson(3.0, (30, 1))
    return {
        "mixture, diag": (ng.GaussianMixture(2, covariance="diag", **mixture).fit(x), 30),
        "mixture, tied": (ng.GaussianMixture(2, covariance="tied", **mixture).fit(x), 30),
        "GaussianHMM": (ng.GaussianHMM(2, mean_scale=0.2, dof_prior=6.0, **chain).fit(x), 40),
        "PoissonHMM": (ng.PoissonHMM(2, rate_prior=(4.0, 1.0), **chain).fit(counts), 40),
        "CategoricalHMM": (ng.CategoricalHMM(2, n_categories=4, emission_prior=1.0, **chain).fit(counts % 4), 40),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--levels", nargs="+", default=["q", "draws"])
    parser.add_argument("--only", nargs="+", help="models")
    options = parser.parse_args()
    lines = [
        "| model | level | 90 % intervals hold | smallest p of uniform ranks | processor seconds |",
        "|---|---|---|---|---|",
    ]
    for name, (model, size) in models().items():
        if options.only and name not in options.only:
            continue
        for level in options.levels:
            begin = time.process_time()
            found = model.calibrate(
                options.runs, size=size, level=level, n_ranks=19, draws_options={"n": 200, "warmup": 60}, verbose=False
            )
            held = ", ".join(f"{block} {100 * share:.1f} %" for block, share in found.coverage(0.9).items())
            worst = min(found.p_values(10).values())
            lines.append(f"| {name} | {level} | {held} | {worst:.3f} | {time.process_time() - begin:.0f} |")
            print(lines[-1], flush=True)
    (RESULTS / "uncertainty-sbc.md").write_text("\n".join(lines) + f"\n\n{options.runs} simulations each.\n")


if __name__ == "__main__":
    main()
