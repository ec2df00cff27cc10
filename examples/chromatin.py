"""Chromatin states: hidden states of the genome from ten binary marks, 20,000 bins on four chromosomes.

The tracks are generated, so the state of each bin, the marks of each state and the transitions are known.
"""

import argparse

import numpy as np
from generated.chromatin import make_chromatin
from matplotlib.figure import Figure

import natgrad as ng

K = 5


def main(figure: str | None = None) -> tuple[float, float]:
    genome = make_chromatin(n_bins=20_000, n_states=K, n_marks=10, n_chromosomes=4, seed=0)
    model = ng.BernoulliHMM(n_states=K, seed=0, verbose=False).fit(genome.tracks, genome.lengths)

    order = ng.data.match_rows(model.probs_, genome.emissions)
    path = np.argsort(order)[model.predict(genome.tracks, genome.lengths)]
    right = float(np.mean(path == genome.states))
    off = float(np.abs(model.probs_[order] - genome.emissions).max())
    stays = 1.0 / (1.0 - np.diag(model.transmat_)[order])
    true = 1.0 / (1.0 - np.diag(genome.transition))
    print(f"{model.stop_}")
    print(
        f"bins in their true state: {right:.1%}; {np.bincount(genome.states).max() / 20_000:.1%} by the commonest state"
    )
    print(f"chances of the marks: largest error {off:.3f}")
    print(
        "mean stay in bins, found and true: " + ", ".join(f"{a:.0f}/{b:.0f}" for a, b in zip(stays, true, strict=True))
    )

    if figure:
        picture = Figure(figsize=(9, 3.6), layout="constrained")
        above, below = picture.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        above.imshow(genome.tracks[:600].T, aspect="auto", cmap="Greys", interpolation="nearest")
        above.set(ylabel="mark", yticks=range(0, 10, 3))
        below.imshow(
            np.stack([path, genome.states])[:, :600], aspect="auto", cmap="tab10", vmax=9, interpolation="nearest"
        )
        below.set(yticks=(0, 1), yticklabels=("found", "true"), xlabel="bin")
        picture.savefig(figure, dpi=100)
    return right, off


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
