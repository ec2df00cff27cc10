"""Documents in any common form become the same corpus; what cannot be one is refused in words."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from sklearn.feature_extraction.text import CountVectorizer

import natgrad as ng
from natgrad.data.corpus import Corpus, as_corpus

X = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [0, 3, 0, 1]])
PAIRS = [[(0, 2), (2, 1)], [], [(3, 1), (1, 3)]]
FORMS = {
    "dense": X,
    "floats": X.astype(np.float32),
    "lists": X.tolist(),
    "csr": sparse.csr_matrix(X),
    "csc": sparse.csc_array(X),
    "coo with duplicates": sparse.coo_array(
        ([1, 1, 1, 3, 1, 0], ([0, 0, 0, 2, 2, 1], [0, 0, 2, 1, 3, 1])), shape=(3, 4)
    ),
    "frame": pd.DataFrame(X, columns=list("abcd")),
    "pairs": PAIRS,
    "corpus": as_corpus(X),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_corpus(form):
    corpus = as_corpus(FORMS[form])
    np.testing.assert_array_equal(corpus.to_sparse().toarray(), X)
    np.testing.assert_array_equal(corpus.lengths, [3, 0, 4])
    assert (corpus.counts > 0).all()
    assert all((np.diff(corpus.words[a:b]) > 0).all() for a, b in zip(corpus.start[:-1], corpus.start[1:], strict=True))


def test_input_is_not_modified():
    table = sparse.csr_matrix(X.astype(float))
    table.data[0] = 0.0
    before = table.copy()
    as_corpus(table)
    np.testing.assert_array_equal(table.data, before.data)
    np.testing.assert_array_equal(table.indices, before.indices)


def test_texts_with_the_usual_vectoriser_or_your_own():
    texts = ["a plum and a pear", "pear pear"]
    assert as_corpus(texts).vocabulary.tolist() == ["and", "pear", "plum"]
    corpus = as_corpus(texts, vectoriser=CountVectorizer(stop_words=["and"]))
    np.testing.assert_array_equal(corpus.to_sparse().toarray(), [[1, 1], [2, 0]])
    known = as_corpus(["plum fig"], vocabulary=["fig", "kiwi"])
    assert known.to_sparse().toarray().tolist() == [[1, 0]]


def test_documents_cut_into_words():
    words = [["a", "Pear", "pear"], [], ("pear", "new york")]
    corpus = as_corpus(words)
    assert corpus.vocabulary.tolist() == [
        "Pear",
        "a",
        "new york",
        "pear",
    ]  # as they are: nothing is cut, dropped or made small
    np.testing.assert_array_equal(corpus.to_sparse().toarray(), [[1, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 1]])
    known = as_corpus([["a", "fig"]], vocabulary=corpus.vocabulary)
    assert known.to_sparse().toarray().tolist() == [[0, 1, 0, 0]]
    model = ng.LDA(2, inference="vb", max_passes=2, verbose=False).fit(words)
    np.testing.assert_allclose(model.infer(["a", "pear"]), model.transform([["a", "pear"]])[0], rtol=1e-5)


def test_names_of_columns_are_the_vocabulary():
    assert as_corpus(FORMS["frame"]).vocabulary.tolist() == list("abcd")
    assert as_corpus(X, vocabulary="abcd").vocabulary.tolist() == list("abcd")


def test_some_documents():
    part = as_corpus(X).documents(np.array([2, 1, 0]))
    np.testing.assert_array_equal(part.to_sparse().toarray(), X[::-1])


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ([[1, -2], [0, 1]], ValueError, r"X\[0, 1\] = -2 \(1 such\)"),
        (sparse.csr_array([[1.0, 0.0], [np.nan, 1.0]]), ValueError, r"X\[1, 0\] = NaN"),
        ([[1, np.inf]], ValueError, r"X\[0, 1\] = inf"),
        (np.empty((0, 3)), ValueError, "no documents"),
        ([1, 2, 3], ValueError, "two axes"),
        ("one text", TypeError, "one text"),
        ([[(-1, 2)]], ValueError, "≥ 0"),
        ([["a", 1]], TypeError, r"X\[0\]\[1\] is 1, and other words are strings"),
    ],
)
def test_what_is_no_corpus_is_refused(wrong, error, words):
    with pytest.raises(error, match=words):
        as_corpus(wrong)


def test_sizes_that_differ_are_named():
    with pytest.raises(ValueError, match="vocabulary has 3 words and X has 4"):
        as_corpus(X, vocabulary="abc")
    with pytest.raises(ValueError, match="X has 4 features, but LDA is expecting 5"):
        as_corpus(X, n_words=5)
    with pytest.raises(ValueError, match="word number 3, and the vocabulary has 2"):
        as_corpus(PAIRS, n_words=2)


def test_fractional_counts_are_weights():
    assert as_corpus([[0.5, 0.25]]).n_tokens == 0.75
    assert isinstance(as_corpus([[0.5, 0.25]]), Corpus)


def cells(**parts):
    """What an AnnData looks like to us."""
    return SimpleNamespace(X=np.log1p(X), var_names=pd.Index(list("abcd")), layers={}, **parts)


def test_cells_and_genes():
    data = cells()
    np.testing.assert_allclose(as_corpus(data).to_sparse().toarray(), np.log1p(X))
    data.layers["counts"] = sparse.csr_matrix(X)
    corpus = as_corpus(data)
    np.testing.assert_array_equal(corpus.to_sparse().toarray(), X)
    assert corpus.vocabulary.tolist() == list("abcd")
    data.layers["counts"] = SimpleNamespace(to_memory=lambda: sparse.csr_matrix(X))  # on disk
    np.testing.assert_array_equal(as_corpus(data).to_sparse().toarray(), X)
    data.var_names = pd.Index(["a", "b", "a", "c"])
    with pytest.raises(ValueError, match=r"'a' twice, at 0 and 2.*var_names_make_unique"):
        as_corpus(data)


def test_columns_with_names_are_matched_by_name():
    turned = pd.DataFrame(X[:, ::-1], columns=list("dcba"))
    np.testing.assert_array_equal(as_corpus(turned, "abcd").to_sparse().toarray(), X)
    fewer = as_corpus(turned[["b", "a"]], "abcd", 4)
    np.testing.assert_array_equal(fewer.to_sparse().toarray(), X * [1, 1, 0, 0])
    with pytest.raises(ValueError, match=r"the word 'd'.*\(1 such\).*partial_fit"):
        as_corpus(turned, "abc")
    with pytest.raises(ValueError, match="'a' twice, at 0 and 3"):
        as_corpus(X, "abca")
    numbered = as_corpus(pd.DataFrame(X), "abcd")
    assert numbered.vocabulary.tolist() == list("abcd")


def test_labelled_arrays_bring_their_words():
    xarray = pytest.importorskip("xarray")
    words = ["apple", "nut", "pear"]
    table = xarray.DataArray(np.array([[2, 0, 1], [0, 3, 0]]), dims=("doc", "word"), coords={"word": words})
    corpus = as_corpus(table)
    assert corpus.vocabulary.tolist() == words
    np.testing.assert_array_equal(corpus.to_sparse().toarray(), table.values)
    model = ng.LDA(2, inference="vb", max_passes=2).fit(table)
    np.testing.assert_allclose(model.transform(table[:, ::-1]), model.transform(table))  # matched by name
    assert as_corpus(table.drop_vars("word")).vocabulary is None
    with pytest.raises(TypeError, match=r"a Dataset of counts.*genotypes"):
        ng.LDA(2).fit(table.to_dataset(name="counts"))
