"""Generated data are functions of their seed, follow the laws they state, and return the truth that made them."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from natgrad import data

sys.path.append(str(Path(__file__).parents[3] / "examples"))  # whose data these are
spectra_of, *others = (
    import_module(f"generated.{name}") for name in ("spectra", "ancestry", "cells", "chromatin", "flights")
)
ISOTOPES, RESOLUTION, make_spectra = spectra_of.ISOTOPES, spectra_of.RESOLUTION, spectra_of.make_spectra
make_ancestry, make_cells, make_chromatin, make_flights = (
    getattr(module, f"make_{module.__name__.split('.')[1]}") for module in others
)


def test_ratings_come_with_the_liking_behind_them():
    made = data.make_ratings(40, 60, 500, seed=1)
    again = data.make_ratings(40, 60, 500, seed=1)
    np.testing.assert_array_equal(made.ratings.values, again.ratings.values)
    # Stars are the liking, plus noise of 0.75 stars, rounded and limited: both pull by less than a star in the mean.
    assert np.abs(made.ratings.values - made.liking).mean() < 1.0
    assert np.corrcoef(made.ratings.values, made.liking)[0, 1] > 0.6


def test_genotypes_are_two_draws_from_the_mixed_frequencies():
    genome = make_ancestry(300, 400, 3, seed=2)
    chance = genome.ancestry @ genome.frequencies
    rest = (genome.genotypes - 2 * chance) / np.sqrt(2 * chance * (1 - chance) + 1e-9)
    assert abs(rest.mean()) < 4 / np.sqrt(rest.size)
    assert abs((rest**2).mean() - 1) < 0.05  # heavy-tailed where the allele is rare
    half = make_ancestry(100, 400, 2, missing=0.5, seed=2).genotypes
    assert abs((half == -1).mean() - 0.5) < 4 * 0.5 / np.sqrt(half.size)


def test_markers_are_raised_and_counts_follow_the_depth():
    cells = make_cells(400, 200, 3, n_markers=10, fold=6.0, depth=2000.0, seed=1)
    for k, genes in enumerate(cells.markers):
        others = np.delete(cells.programmes, k, axis=0)[:, genes]
        # The fold itself, but for the normalisation of each programme, which differs by less than two.
        assert (cells.programmes[k, genes] > 3 * others).all()
    assert len(np.unique(cells.markers)) == cells.markers.size
    assert abs(np.log(np.median(cells.X.sum(axis=1)) / 2000.0)) < 4 * 0.35 * 1.25 / np.sqrt(400)


def test_spectra_are_counts_of_their_mixtures():
    spectra = make_spectra(300, 100, counts=500.0, seed=3)
    mean = 500.0 * spectra.shares @ spectra.templates
    rest = (spectra.counts - mean).sum(axis=1) / np.sqrt(500.0)
    assert abs(rest.mean()) < 4 / np.sqrt(300)
    assert abs(rest.var() - 1) < 4 * np.sqrt(2 / 300)
    assert (make_spectra(50, with_source=0.0).shares[:, 0] == 1).all()
    sources = (make_spectra(400, with_source=1.0).shares[:, 1:] > 0).sum(axis=1)
    assert set(sources.tolist()) == {1, 2}


def test_tracks_follow_their_states_and_states_their_chain():
    genome = make_chromatin(60_000, 4, 8, n_chromosomes=3, seed=1)
    assert genome.lengths.sum() == len(genome.tracks) == 60_000
    inside = np.ones(60_000, dtype=bool)
    inside[np.cumsum(genome.lengths)[:-1] - 1] = False  # no step leads from one chromosome to the next
    here, after = genome.states[:-1][inside[:-1]], genome.states[1:][inside[:-1]]
    for k in range(4):
        shown = genome.tracks[genome.states == k].mean(axis=0)
        n = (genome.states == k).sum()
        assert (np.abs(shown - genome.emissions[k]) < 5 * np.sqrt(0.25 / n)).all()
        went = np.bincount(after[here == k], minlength=4) / (here == k).sum()
        assert (np.abs(went - genome.transition[k]) < 5 * np.sqrt(0.25 / (here == k).sum())).all()


def test_rows_are_matched_whatever_their_order(rng):
    truth = rng.dirichlet(np.ones(6), 5)
    order = rng.permutation(5)
    found = truth[order] + 1e-3 * rng.random((5, 6))
    np.testing.assert_array_equal(data.match_rows(found, truth), np.argsort(order))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_ancestry(concentration=0), "concentration must be > 0"),
        (lambda: make_cells(n_genes=10), "no gene marks two"),
        (lambda: make_cells(fold=0), "fold must be > 0"),
        (lambda: make_cells(dispersion=-1), "dispersion must be ≥ 0"),
        (lambda: make_spectra(isotopes=("Xx-1",)), "'Xx-1'; known are Cs-137"),
        (lambda: make_spectra(counts=0), "counts must be > 0"),
        (lambda: make_chromatin(stay=1.0), "stay must be > 1"),
        (lambda: data.match_rows([[1.0]], [[1.0], [0.0]]), r"got shapes \(1, 1\) and \(2, 1\)"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
