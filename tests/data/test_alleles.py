"""Genotypes become counts of alleles; frequencies and shares of generated populations are found again."""

import numpy as np
import pytest
import scipy.sparse as sparse

import natgrad as ng
from natgrad.data.alleles import allele_frequencies, genotypes
from natgrad.models.lda.topics import aligned


def test_every_copy_of_a_locus_is_a_word():
    G = np.array([[0, 1, 2], [2, -1, 9], [np.nan, 0, 1]])
    corpus = genotypes(G)
    np.testing.assert_array_equal(
        corpus.to_sparse().toarray(), [[0, 2, 1, 1, 2, 0], [2, 0, 0, 0, 0, 0], [0, 0, 0, 2, 1, 1]]
    )
    assert corpus.vocabulary.tolist() == ["0 alt", "0 ref", "1 alt", "1 ref", "2 alt", "2 ref"]
    some = np.nan_to_num(G, nan=-1).astype(np.int8)
    np.testing.assert_array_equal(genotypes(some).counts, corpus.counts)
    np.testing.assert_array_equal(
        genotypes(sparse.csr_array(G[:1])).to_sparse().toarray(), genotypes(G[:1]).to_sparse().toarray()
    )


@pytest.mark.parametrize(
    ("G", "error", "words"),
    [
        ([[0, 3]], ValueError, r"G\[0, 1\] = 3"),
        ([[0.5, 1]], ValueError, r"G\[0, 0\] = 0.5 .*rounded"),
        ([0, 1, 2], ValueError, "two axes"),
        ([["A", "T"]], TypeError, "numbers 0, 1 or 2"),
        ([[-1, 9]], ValueError, "no words"),
    ],
)
def test_what_is_no_genotype_is_refused(G, error, words):
    with pytest.raises(error, match=words):
        ng.LDA(2).fit(genotypes(G))


def test_names_must_fit():
    with pytest.raises(ValueError, match="names has 1 loci and G has 2"):
        genotypes([[0, 1]], names=["rs1"])


@pytest.mark.slow
def test_populations_are_found_again(seed):
    # Two populations, frequencies independent at 400 loci, 5 % missing; the bag of alleles recovers both sides.
    rng = np.random.default_rng([seed, 3])
    frequencies, shares = rng.uniform(0.05, 0.95, (2, 400)), rng.dirichlet([0.3, 0.3], 150)
    G = rng.binomial(2, shares @ frequencies)
    G[rng.random(G.shape) < 0.05] = -1
    model = ng.LDA(2, doc_prior=0.3, topic_prior=1.0, seed=1).fit(genotypes(G))
    match = aligned(frequencies / 400, allele_frequencies(model.topics_) / 400).other
    # The standard error of a frequency from about 150 copies is 0.04; of a share from 760 alleles, 0.03.
    assert np.abs(allele_frequencies(model.topics_)[match] - frequencies).mean() < 0.06
    assert np.abs(model.transform(genotypes(G))[:, match] - shares).mean() < 0.05


def test_calls_of_sgkit_are_counted():
    xarray = pytest.importorskip("xarray")
    calls = np.array([[[0, 0], [0, 1]], [[1, 1], [-1, 0]]])  # [variants, samples, ploidy]
    data = xarray.Dataset(
        {
            "call_genotype": (("variants", "samples", "ploidy"), calls),
            "variant_id": (("variants",), ["rs1", "rs2"]),
        }
    )
    found, wanted = genotypes(data), genotypes([[0, 2], [1, -1]], names=["rs1", "rs2"])
    assert found.vocabulary.tolist() == wanted.vocabulary.tolist()
    np.testing.assert_array_equal(found.to_sparse().toarray(), wanted.to_sparse().toarray())
    with pytest.raises(ValueError, match="no call_genotype; it has variant_id"):
        genotypes(data[["variant_id"]])
    with pytest.raises(ValueError, match="two alleles a call"):
        genotypes(data.isel(ploidy=[0]))
