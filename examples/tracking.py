"""A path in the plane: a moving thing is seen by noisy fixes, some of them wild, and not at all for a while.

state = (place, velocity):  place moves on by the velocity, the velocity changes a little at every step
fix ~ Student-t(place), which gives wild fixes little weight
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import natgrad as ng

STEPS, HIDDEN = 160, slice(70, 95)


def made(seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    place = np.cumsum(np.cumsum(rng.normal(0.0, 0.12, (STEPS, 2)), axis=0), axis=0)
    fixes = place + rng.normal(0.0, 1.0, (STEPS, 2))
    wild = rng.random(STEPS) < 0.06
    fixes[wild] += rng.normal(0.0, 15.0, (int(wild.sum()), 2))
    fixes[HIDDEN] = np.nan
    return place, fixes


def main(figure: str | None = None) -> tuple[float, float]:
    place, fixes = made()
    time, axis = ng.Plate("time", STEPS), ng.Plate("axis", 2)
    moves = np.block([[np.eye(2), np.eye(2)], [np.zeros((2, 2)), np.eye(2)]])
    jolt, tau = ng.Gamma("jolt", 1.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
    x = ng.GaussianChain("x", np.zeros(4), 1e-2, moves, ng.block_diag(1e4 * np.eye(2), jolt * np.eye(2)), plate=time)
    y = ng.StudentT("y", ng.dot(np.eye(4)[:2], x), tau, df=3.0, plate=(time, axis), observed=fixes)
    fit = ng.Network(y).fit(max_steps=300)

    mean, (low, high) = fit["x"].mean()[:, :2], fit["x"].interval(0.9)
    raw, error = (float(np.sqrt(np.nanmean(((path - place) ** 2).sum(-1)))) for path in (fixes, mean))
    inside = ((place > low[:, :2]) & (place < high[:, :2]))[HIDDEN].mean()
    print(fit.stop, f"root mean squared distance: fixes {raw:.2f}, path {error:.2f}", sep="\n")
    print(f"the velocity changes by {fit['jolt'].mean() ** -0.5:.3f} a step (0.12 in truth)")
    print(f"where there are no fixes {inside:.0%} of the path is inside the 90 % intervals")

    if figure:
        axes = (picture := Figure(figsize=(8, 4), layout="constrained")).subplots()
        axes.plot(*fixes.T[::-1], ".", color="0.6", label="fixes")
        axes.plot(*place.T[::-1], color="0.2", lw=1, label="truth")
        axes.plot(*mean.T[::-1], color="#4477aa", label="path")
        axes.plot(*mean[HIDDEN].T[::-1], color="#ee6677", lw=3, alpha=0.6, label="no fixes")
        low, high = np.stack([place.min(0), place.max(0)]) + 0.1 * np.ptp(place) * np.array([[-1.0], [1.0]])
        axes.set(xlim=(low[1], high[1]), ylim=(low[0], high[0]), aspect="equal")
        axes.legend()
        picture.savefig(figure, dpi=100)
    return raw, error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
