"""Our counter of words counts as scikit-learn's does."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from natgrad.data.corpus import as_corpus
from natgrad.data.words import count_words, words_of

texts = st.lists(st.text(alphabet="ab cZ_1é-.'ß", max_size=30), min_size=1, max_size=6)


def check(found, wanted):
    """The same counts, words in order and none twice."""
    table = csr_array((found.counts, found.words, found.start), shape=wanted.shape)
    np.testing.assert_array_equal(table.toarray(), wanted.toarray())
    assert table.has_canonical_format


@given(texts)
@example(["Größe", "naïve naïve"])
@settings(max_examples=60)
def test_counts_are_those_of_scikit_learn(documents):
    counter = CountVectorizer()
    found = count_words(documents, None)
    try:
        wanted = counter.fit_transform(documents)
    except ValueError:  # no words at all
        assert found is None
        return
    assert found.names == counter.get_feature_names_out().tolist()
    check(found, wanted)
    assert [words_of(text) for text in documents] == [counter.build_analyzer()(text) for text in documents]


@given(texts)
@settings(max_examples=20)
def test_of_a_vocabulary(documents):
    vocabulary = ["ba", "ab", "zz"]
    wanted = CountVectorizer(vocabulary=vocabulary).transform(documents)
    found = count_words(documents, vocabulary)
    assert found.names == vocabulary
    check(found, wanted)


def test_mistakes_are_said_as_before():
    with pytest.raises(ValueError, match="empty vocabulary"):
        as_corpus(["a", "b"])
    with pytest.raises(ValueError, match=r"[Dd]uplicate"):
        as_corpus(["pear plum"], vocabulary=["pear", "pear"])
