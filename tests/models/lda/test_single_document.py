"""One document at a time: the shares of `transform`, whatever its form, in less than a millisecond; mistakes explained."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sparse
from reference.lda import draw_documents

import natgrad as ng
from natgrad import threads
from natgrad.models.lda.queries import FINE_TOL

WORDS = [f"word{v}" for v in range(60)]


@cache
def fitted(**options):
    return ng.LDA(8, seed=2, inference="vb", max_passes=3, **options).fit(
        draw_documents(200, 60, 5, 60, seed=1).counts, vocabulary=WORDS
    )


def check_single_precision(little, wanted, X):
    """Rounding may make one more round of a document, and a document ends when a round moves γ by K tol or less in all."""
    most = wanted.shape[1] * FINE_TOL / X.sum(1)
    assert (np.abs(little - wanted).sum(1) <= 2 * most).all()  # what is moved is taken from one and given to another


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"local": ng.LocalOptions(topics="point")},
        {"local": ng.LocalOptions(dtype="float64")},
        {"doc_prior": "learn"},
    ],
    ids=str,
)
def test_every_form_gives_the_row_of_transform(options, monkeypatch):
    model = fitted(**options)
    X = draw_documents(20, 60, 5, 60, seed=4).counts
    little = model.transform(X)
    monkeypatch.setattr(threads, "MOST", -1.0)  # the same compiled loops, and not NumPy's for few documents
    wanted = model.transform(X)
    if "dtype" in options:  # in double precision, round by round the same
        np.testing.assert_allclose(little, wanted, rtol=1e-12)
    else:
        check_single_precision(little, wanted, X)
    for row, shares in zip(X, wanted, strict=True):
        pairs = [(int(v), int(n)) for v, n in enumerate(row) if n]
        text = " ".join(word for word, n in zip(WORDS, row, strict=True) for _ in range(n))
        forms = [row, pairs, pairs[::-1], sparse.csr_array(row[None]), sparse.csr_matrix(row), text]
        # A word given twice counts twice.
        forms.append([pair for v, n in pairs for pair in [(v, 1)] * n])
        for form in forms:
            np.testing.assert_array_equal(model.infer(form), shares)


def test_a_document_without_known_words_has_the_prior():
    for form in ([], "nothing known here", np.zeros(60)):
        np.testing.assert_allclose(fitted().infer(form), 1 / 8, rtol=1e-6)


def test_it_follows_the_model(monkeypatch):
    monkeypatch.setattr(threads, "MOST", -1.0)
    model = ng.LDA(4, seed=0).partial_fit(["plum pear fig", "fig plum"] * 5)
    before = model.infer("bolt fig")
    model.partial_fit(["nut bolt plum", "bolt nut"] * 5, vocabulary=["bolt", "nut", "plum"])
    np.testing.assert_array_equal(model.infer("bolt fig"), model.transform(["bolt fig"])[0])
    assert not np.array_equal(model.infer("bolt fig"), before)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([(60, 1)], "word number 60"),
        ([(-1, 1)], "word number -1"),
        ([(3, -2)], "word 3 has -2"),
        ([(3, 1), (3, np.nan)], "word 3 has nan"),
        (np.zeros(59), "counts of 59 words and the model has 60"),
        (sparse.csr_array(np.ones((1, 61))), "counts of 61 words"),
    ],
    ids=str,
)
def test_mistakes_are_explained(document, words):
    with pytest.raises(ValueError, match=words):
        fitted().infer(document)
    unnamed = ng.LDA(2, inference="vb", max_passes=1).fit([[1, 2], [3, 1]])
    with pytest.raises(ValueError, match="have names"):
        unnamed.infer("a text")
