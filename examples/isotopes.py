"""Radioactive material in gamma spectra: isotopes found without labels, then an alarm with a stated false-alarm rate.

A spectrum is counts over energy channels: a document whose words are energies. The topics are the background and the isotopes.
"""

import argparse

import numpy as np
from generated.spectra import make_spectra
from matplotlib.figure import Figure

import natgrad as ng

RATE = 0.01  # of false alarms


def main(figure: str | None = None) -> tuple[float, float, float]:
    seen = make_spectra(600, seed=0)
    model = ng.LDA(n_topics=5, doc_prior=0.1, inference="vb", max_passes=100, tol=1e-6, seed=0, verbose=False).fit(
        seen.counts
    )
    order = ng.data.match_rows(model.topics_, seen.templates)  # gives the topics their names
    apart = np.abs(model.topics_[order] - seen.templates).sum(axis=1) / 2
    print("total variation from the true spectrum: " + ", ".join(
        f"{name} {distance:.2f}" for name, distance in zip(seen.names, apart, strict=True)
    ))  # fmt: skip

    def evidence(counts: np.ndarray) -> np.ndarray:
        """The share of a spectrum that is not background."""
        return 1.0 - model.transform(counts)[:, order[0]]

    # The threshold is an order statistic of fresh background: a further one exceeds it with chance RATE at most.
    quiet = np.sort(evidence(make_spectra(1999, with_source=0.0, seed=1).counts))
    threshold = quiet[int(np.ceil((len(quiet) + 1) * (1 - RATE))) - 1]
    false_alarms = np.mean(evidence(make_spectra(4000, with_source=0.0, seed=2).counts) > threshold)
    print(f"false alarms: stated {RATE:.1%}, measured {false_alarms:.2%} of 4,000 spectra of background")

    strengths = (0.02, 0.05, 0.1, 0.2)
    detected = []
    for strength in strengths:
        sources = make_spectra(400, with_source=1.0, strength=(strength, strength), seed=3)
        detected.append(float(np.mean(evidence(sources.counts) > threshold)))
        print(f"a source with {strength:.0%} of 1,000 counts: detected {detected[-1]:.0%}")

    if figure:
        picture = Figure(figsize=(9, 3.4), layout="constrained")
        for axes, k in zip(picture.subplots(1, 5, sharey=True), range(5), strict=True):
            axes.semilogy(seen.energies, seen.templates[k], color="0.6", lw=3)
            axes.semilogy(seen.energies, model.topics_[order[k]], color="#4477aa", lw=1)
            axes.set(title=seen.names[k], xlabel="keV", ylim=(1e-5, 0.3))
        picture.suptitle("Spectra found (blue) and true (grey)")
        picture.savefig(figure, dpi=100)
    return float(apart.max()), float(false_alarms), detected[2]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
