"""Coherence of topics: by hand on a small example, and as its slow twin on random ones."""

import numpy as np
import pytest
from reference.coherence import c_v_slowly, windows_slowly

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.models.lda.topics import c_v, npmi, of_documents, of_windows


def test_c_v_by_hand():
    # Four documents: a and b together twice, c alone once, one document without any. p_a = p_b = p_ab = 1/2, p_c = 1/4.
    # NPMI(a, b) = log(½ / ¼) / −log ½ = 1; NPMI(a, c) = log(ε / ⅛) / −log ε = x, with log ε = −27.631: x = −0.92474.
    # Vectors a = b = (1, 1, x), c = (x, x, 1); their sum is (2 + x, 2 + x, 1 + 2x) = (1.07526, 1.07526, −0.84948).
    # cos(a, sum) = (2.15052 + 0.78555) / (1.68972 · 1.74183) = 0.99757
    # cos(c, sum) = (−1.98867 − 0.84948) / (1.64630 · 1.74183) = −0.98974;  the mean is (2 · 0.99757 − 0.98974) / 3
    corpus = as_corpus([[1, 1, 0, 1], [2, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    together = of_documents(np.array([[0, 1, 2]]), corpus)
    assert c_v(together)[0] == pytest.approx((2 * 0.99757 - 0.98974) / 3, abs=1e-5)
    # Two of three pairs are never together.
    assert npmi(together)[0] == pytest.approx((1 - 1 - 1) / 3)


@pytest.mark.parametrize("seed", range(5))
def test_c_v_of_documents_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.4, size=(30, 12))
    X[0] += 1  # every word occurs
    words = np.array([rng.permutation(12)[:5] for _ in range(4)])
    documents = [set(np.flatnonzero(row).tolist()) for row in X]
    expected = [c_v_slowly(row.tolist(), documents) for row in words]
    np.testing.assert_allclose(c_v(of_documents(words, as_corpus(X))), expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 3, 110])
def test_c_v_of_windows_is_its_definition(size, rng):
    names = [f"word{v}" for v in range(8)]
    texts = [" ".join(rng.choice(names, size=length)) for length in (0, 2, 5, 20, 40, 8)]
    texts.append(" ".join(names))
    words = np.array([[0, 1, 2, 3], [7, 4, 1, 0]])
    windows = windows_slowly([text.split() for text in texts], size)
    expected = [c_v_slowly([names[v] for v in row], windows) for row in words]
    np.testing.assert_allclose(c_v(of_windows(words, texts, names, size)), expected, rtol=1e-12)


def test_words_that_are_nowhere_are_left_out_and_words_that_are_everywhere_go_together():
    corpus = as_corpus([[1, 1, 0, 0], [1, 1, 0, 0]])
    together = of_documents(np.array([[0, 1, 2], [0, 2, 3]]), corpus)
    for measure in (npmi, c_v):
        assert measure(together)[0] == pytest.approx(1.0, abs=1e-15)
        assert np.isnan(measure(together)[1])


def test_topics_of_their_own_documents_are_coherent():
    texts = ["apple pear plum fig", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 10
    model = ng.LDA(2, seed=1).fit(texts)
    # Mixed topics, for comparison.
    mixed = ng.LDA(2, seed=1).fit(texts)
    mixed.topics_ = mixed.topics_[:, np.random.default_rng(0).permutation(mixed.topics_.shape[1])]
    for how in ("npmi", "c_v"):
        for X in (texts, model._held_out(texts).to_sparse()):
            assert model.coherence(X, 3, how).min() > mixed.coherence(X, 3, how).max()
    with pytest.raises(ValueError, match="npmi"):
        model.coherence(texts, how="umass")
