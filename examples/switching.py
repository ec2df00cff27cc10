"""Two ways to move: a signal that swings fast or slowly, and changes between the two without saying so.

    regime ~ Markov chain,   state ~ Normal(A[regime] · state before),   signal ~ Normal(first entry of the state)

The path of states is one factor of q and the path of regimes another; both matrices are learned, from rough starts.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import natgrad as ng


def turn(angle: float) -> np.ndarray:
    return 0.99 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def made(steps: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    regime = (np.arange(steps) // 80) % 2
    state, signal = np.array([3.0, 0.0]), np.empty(steps)
    for t in range(steps):
        state = turn((0.15, 0.6)[regime[t]]) @ state + rng.normal(0.0, 0.15, 2)
        signal[t] = state[0] + rng.normal(0.0, 0.3)
    return regime, signal


def main(figure: str | None = None) -> tuple[float, np.ndarray]:
    regime, signal = made()
    time, kind, row = ng.Plate("time", len(signal)), ng.Plate("kind", 2), ng.Plate("row", 2)
    z = ng.MarkovChain("z", [0.5, 0.5], ng.Dirichlet("move", [[50.0, 1.0], [1.0, 50.0]], plate=kind), plate=time)
    A = ng.MultivariateNormal("A", np.stack([turn(0.3), turn(0.45)]), 20.0, plate=(kind, row))
    x = ng.GaussianChain("x", np.zeros(2), 0.1, A[z], 40.0, plate=time)
    y = ng.Normal("y", x[:, 0], 10.0, plate=time, observed=signal)
    fit = ng.Network(y).fit(max_steps=300)

    right = float((((fast := fit["z"].mean()[:, 1]) > 0.5) == regime).mean())
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(fit["A"].mean()))).max(-1))
    print(fit.stop, f"{right:.1%} of times in the right regime; angles {angles.round(2)} (truth 0.15, 0.6)", sep="\n")

    if figure:
        picture = Figure(figsize=(9, 4), layout="constrained")
        above, below = picture.subplots(2, sharex=True, height_ratios=[3, 1])
        above.plot(signal, ".", ms=3, color="0.5", label="signal")
        above.plot(fit["x"].mean()[:, 0], color="#4477aa", label="state")
        below.fill_between(np.arange(len(fast)), fast, color="#ee6677", alpha=0.5, label="P(fast)")
        below.plot(regime, color="0.2", lw=1, label="truth")
        below.set(xlabel="time", yticks=[0, 1])
        picture.legend(loc="outside upper right", ncols=4)
        picture.savefig(figure, dpi=100)
    return right, angles


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
