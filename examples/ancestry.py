"""Ancestry from genotypes: the shares of three populations in the genomes of 200 admixed individuals.

Each locus gives an individual two words, one for each allele, with counts g and 2 − g.
"""

import argparse

import numpy as np
from generated.ancestry import make_ancestry
from matplotlib.figure import Figure

import natgrad as ng


def main(figure: str | None = None) -> float:
    genome = make_ancestry(n_individuals=200, n_loci=1200, n_populations=3, fst=0.1, seed=1)
    alleles = ng.data.genotypes(genome.genotypes)  # of PLINK: bed_reader.open_bed("people.bed").read(dtype="int8")

    # Allele frequencies have the prior Beta(1/2, 1/2).
    model = ng.LDA(3, doc_prior=0.3, topic_prior=0.5, inference="vb", method=ng.VB(), tol=1e-6, verbose=False)
    model.fit(alleles)
    shares = model.transform(alleles)

    # A topic is a distribution over all alleles of all loci; within a locus it is an allele frequency.
    frequencies = ng.data.allele_frequencies(model.topics_)
    order = ng.data.match_rows(frequencies, genome.frequencies)
    error = np.sqrt(np.mean((shares[:, order] - genome.ancestry) ** 2))
    off = np.sqrt(np.mean((frequencies[order] - genome.frequencies) ** 2))
    ignorant = np.sqrt(genome.ancestry.var(axis=0).mean())
    print(f"ancestry shares: root mean square error {error:.3f}; {ignorant:.3f} if everybody were average")
    print(f"allele frequencies: root mean square error {off:.3f}")

    if figure:
        draw(shares[:, order], genome.ancestry, figure)
    return float(error)


def draw(found: np.ndarray, truth: np.ndarray, path: str) -> None:
    """The admixture plot: a bar for each individual, found above, true below."""
    order = np.lexsort((-truth.max(axis=1), truth.argmax(axis=1)))
    picture = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, shares, title in zip(picture.subplots(2, 1, sharex=True), (found, truth), ("found", "true"), strict=True):
        below = np.zeros(len(shares))
        for column, colour in zip(shares[order].T, ("#4477aa", "#ddaa33", "#bb5566"), strict=True):
            axes.bar(range(len(shares)), column, bottom=below, width=1.0, color=colour)
            below += column
        axes.set(ylabel=title, ylim=(0, 1), xlim=(-0.5, len(shares) - 0.5), xticks=[])
    picture.suptitle("Ancestry of 200 individuals")
    picture.savefig(path, dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
