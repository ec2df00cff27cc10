"""Generated data are functions of their seed, follow the laws they state, and return the truth that made them."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad import data

sys.path.append(str(Path(__file__).parents[3] / "examples"))  # whose data these are
spectra_of, *others = (
    import_module(f"generated.{name}") for name in ("spectra", "ancestry", "cells", "chromatin", "flights")
)
ISOTOPES, RESOLUTION, make_spectra = spectra_of.ISOTOPES, spectra_of.RESOLUTION, spectra_of.make_spectra
make_ancestry, make_cells, make_chromatin, make_flights = (
    getattr(module, f"make_{module.__name__.split('.')[1]}") for module in others
)

SMALL = {
    "ancestry": lambda seed: make_ancestry(20, 50, 3, missing=0.1, seed=seed),
    "cells": lambda seed: make_cells(20, 60, 3, n_markers=5, dispersion=0.2, seed=seed),
    "spectra": lambda seed: make_spectra(20, 64, seed=seed),
    "flights": lambda seed: make_flights(50, seed=seed),
    "chromatin": lambda seed: make_chromatin(200, 3, 6, seed=seed),
}


def parts(made):
    return [part.toarray() if sparse.issparse(part) else np.asarray(part) for part in made]


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_same_seed_same_data(make):
    for here, again in zip(parts(make(4)), parts(make(4)), strict=True):
        np.testing.assert_array_equal(here, again)
    assert any(not np.array_equal(here, other) for here, other in zip(parts(make(4)), parts(make(5)), strict=True))


def test_ratings_come_with_the_liking_behind_them():
    made = data.make_ratings(40, 60, 500, seed=1)
    again = data.make_ratings(40, 60, 500, seed=1)
    np.testing.assert_array_equal(made.ratings.values, again.ratings.values)
    # Stars are the liking, plus noise of 0.75 stars, rounded and limited: both pull by less than a star in the mean.
    assert np.abs(made.ratings.values - made.liking).mean() < 1.0
    assert np.corrcoef(made.ratings.values, made.liking)[0, 1] > 0.6


@given(st.integers(1, 5), st.floats(0.05, 5.0), st.integers(0, 1000))
@settings(max_examples=25)
def test_distributions_sum_to_one(k, concentration, seed):
    genome = make_ancestry(5, 7, k, concentration=concentration, seed=seed)
    cells = make_cells(5, 30, k, n_markers=4, concentration=concentration, seed=seed)
    spectra = make_spectra(8, 40, tuple(ISOTOPES)[:k], seed=seed)
    tracks = make_chromatin(20, k, 6, seed=seed)
    for rows in (
        genome.ancestry, cells.shares, cells.programmes, spectra.templates, spectra.shares, tracks.transition,
        tracks.initial[None],
    ):  # fmt: skip
        assert (rows >= 0).all()
        np.testing.assert_allclose(rows.sum(axis=-1), 1.0, rtol=1e-12)
    assert ((genome.frequencies >= 0) & (genome.frequencies <= 1)).all()


def test_allele_frequencies_have_the_moments_of_balding_and_nichols():
    fst, n_loci = 0.15, 40_000
    genome = make_ancestry(40, n_loci, 2, fst=fst, seed=0)
    apart = genome.frequencies - genome.ancestral
    spread = fst * genome.ancestral * (1 - genome.ancestral)
    # Means over 80,000 draws of things of order 1 that are known up to 4 standard errors.
    assert abs(apart.mean()) < 4 * np.sqrt(spread.mean() / apart.size)
    assert abs((apart**2 / spread).mean() - 1) < 4 * (apart**2 / spread).std() / np.sqrt(apart.size)


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


def test_dispersion_makes_counts_vary_more_than_poisson():
    index = [np.var(make_cells(300, 50, 1, n_markers=1, dispersion=d, seed=0).X.toarray(), axis=0) for d in (0, 1)]
    assert (index[1] > index[0]).mean() > 0.9


def test_cells_become_anndata_where_it_is_installed(monkeypatch):
    import sys
    from types import SimpleNamespace

    cells = make_cells(6, 20, 2, n_markers=3)
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match="pip install anndata"):
        cells.to_anndata()
    fake = SimpleNamespace(AnnData=lambda X: SimpleNamespace(X=X, obsm={}, varm={}, var={}))
    monkeypatch.setitem(sys.modules, "anndata", fake)
    table = cells.to_anndata()
    assert table.X.shape == (len(table.obs_names), len(table.var_names)) == (6, 20)
    assert [np.flatnonzero(table.var["marker_of"] == k).tolist() for k in range(2)] == cells.markers.tolist()


@pytest.mark.parametrize("name", ISOTOPES)
def test_the_strongest_line_is_where_the_isotope_has_it(name):
    spectra = make_spectra(1, 1024, (name,))
    template = spectra.templates[1]
    # Seen most: the line whose intensity times peak efficiency is largest; within one width of the detector.
    seen = max(ISOTOPES[name], key=lambda line: line[1] * min(1.0, (line[0] / 100.0) ** -0.7) / np.sqrt(line[0]))
    width = RESOLUTION * np.sqrt(seen[0] * 661.7)
    assert abs(spectra.energies[template.argmax()] - seen[0]) < width


def test_spectra_are_counts_of_their_mixtures():
    spectra = make_spectra(300, 100, counts=500.0, seed=3)
    mean = 500.0 * spectra.shares @ spectra.templates
    rest = (spectra.counts - mean).sum(axis=1) / np.sqrt(500.0)
    assert abs(rest.mean()) < 4 / np.sqrt(300)
    assert abs(rest.var() - 1) < 4 * np.sqrt(2 / 300)
    assert (make_spectra(50, with_source=0.0).shares[:, 0] == 1).all()
    sources = (make_spectra(400, with_source=1.0).shares[:, 1:] > 0).sum(axis=1)
    assert set(sources.tolist()) == {1, 2}


@pytest.mark.parametrize("late", [0.0, 0.15])
def test_delays_have_the_stated_mean_and_spread(late):
    flights = make_flights(200_000, late=late, seed=0)
    rest = flights.y - flights.mean
    assert abs(rest.mean()) < 4 * flights.noise_std / np.sqrt(len(rest))
    assert rest.std() == pytest.approx(flights.noise_std, rel=0.02)  # of 4 standard errors with these tails
    assert flights.X.shape[1] == len(flights.names)
    assert np.isfinite(flights.X).all()


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
