"""Texts to counts: words of all scripts, vocabularies, and what is no text."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.data.words import words_of

written = st.lists(st.text(alphabet="ab cZ_1é-.'ß", max_size=30), min_size=1, max_size=6)


@given(written)
@example(["Größe", "naïve naïve"])
@settings(max_examples=60)
def test_counts_are_those_of_scikit_learn(documents):
    counter = CountVectorizer()
    try:
        wanted = counter.fit_transform(documents)
    except ValueError:
        with pytest.raises(ValueError, match="empty vocabulary"):
            as_corpus(documents)
        return
    found = as_corpus(documents)
    assert found.vocabulary.tolist() == counter.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found.to_sparse().toarray(), wanted.toarray())
    assert [words_of(text) for text in documents] == [counter.build_analyzer()(text) for text in documents]


@given(written)
@settings(max_examples=20)
def test_counts_of_a_vocabulary_are_those_of_scikit_learn(documents):
    vocabulary = ["ba", "ab", "zz"]
    found = as_corpus(documents, vocabulary)
    wanted = CountVectorizer(vocabulary=vocabulary).transform(documents)
    np.testing.assert_array_equal(found.to_sparse().toarray(), wanted.toarray())
    assert found.vocabulary.tolist() == vocabulary


def test_mistakes_of_vocabularies_are_named():
    with pytest.raises(ValueError, match="empty vocabulary"):
        as_corpus(["a", "b"])
    with pytest.raises(ValueError, match=r"[Dd]uplicate"):
        as_corpus(["pear plum"], vocabulary=["pear", "pear"])


@pytest.mark.parametrize("odd", ["new york", "e-mail", "Pear", "x", "深層学習"])
def test_texts_are_refused_if_the_vocabulary_has_words_that_none_is_cut_into(odd):
    """They would be counted as if these words were nowhere."""
    lists = [["pear", odd], ["plum", "pear"], [odd, odd]] * 10
    model = ng.LDA(2, inference="vb", max_passes=1, tol=0).fit(lists)
    for read in (lambda: model.transform([f"{odd} pear"]), lambda: model.infer(f"{odd} pear")):
        with pytest.raises(ValueError, match=f"the vocabulary has {odd!r}.*vectoriser"):
            read()
    np.testing.assert_allclose(model.transform([[odd, "pear"]])[0], model.infer([odd, "pear"]), rtol=1e-5)


def test_phrases_of_a_vectoriser_are_words_of_the_model():
    texts = ["new york is large", "the subway of new york", "york is old", "a day is new"] * 5
    counter = CountVectorizer(ngram_range=(1, 2), min_df=2)
    counts = counter.fit_transform(texts)
    model = ng.LDA(2, inference="vb", max_passes=3).fit(counts, vocabulary=counter.get_feature_names_out())
    assert "new york" in model.vocabulary_.tolist()
    assert model.transform(counter.transform(["new york"])).shape == (1, 2)


def test_languages_without_spaces_are_cut_into_pairs_and_others_stay():
    assert words_of("深層学習とLDA、猫") == ["深層", "層学", "学習", "習と", "lda", "猫"]
    assert words_of("딥 러닝 모델") == ["러닝", "모델"]
    assert words_of("Größe, naïve café 42") == ["größe", "naïve", "café", "42"]
    a, b = "机器学习很有用", "天气很好今天很好"
    model = ng.LDA(2, seed=0, inference="vb", max_passes=20).fit([a, b] * 20)
    assert model.transform([a])[0].argmax() != model.transform([b])[0].argmax()


def test_words_of_scripts_with_marks_are_whole():
    """Of Hindi only what came before the first vowel sign was left, and of three words one."""
    assert words_of("नमस्ते दुनिया हिन्दी") == ["नमस्ते", "दुनिया", "हिन्दी"]
    assert words_of("ไทย") == ["ไท", "ทย"]
    assert words_of("สวัสดี") == ["สวั", "วัส", "สดี"]


def test_what_only_looks_different_is_one_word():
    assert words_of("cafe\u0301 caf\u00e9") == ["caf\u00e9"] * 2
    assert words_of("\ufb01ne fine \uff26\uff29\uff2e\uff25") == ["fine"] * 3
    assert words_of("\u0130stanbul istanbul") == ["istanbul"] * 2
    assert words_of("co\u00adoperate cooperate") == ["cooperate"] * 2


@pytest.mark.parametrize("documents", [{"first": "apple pear"}, {"apple pear", "plum"}])
def test_documents_without_an_order_are_refused(documents):
    """Of a dict the keys were read as documents; a set has another order in every process."""
    with pytest.raises(TypeError, match="as a list"):
        ng.LDA(2).fit(documents)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["aa", None], r"\[1\] is None.*fillna"),
        (["aa", float("nan")], r"\[1\] is nan.*fillna"),
        (pd.Series(["aa", pd.NA], dtype="string"), r"\[1\] is <NA>.*fillna"),
        ([b"aa"], r"\[0\] is bytes.*decode"),
        (["aa", 3], r"\[1\] is 3"),
    ],
)
def test_what_is_missing_among_texts_is_named(texts, words):
    with pytest.raises(TypeError, match=words):
        ng.LDA(2).fit(texts)


def test_files_and_tables_among_texts_are_explained():
    with pytest.raises(TypeError, match=r"column 'a' of texts.*X\['a'\]"):
        ng.LDA(2).fit(pd.DataFrame({"a": ["some text"], "b": [1]}))
    with pytest.raises(TypeError, match="read_documents"):
        ng.LDA(2).fit([Path("a.txt")])
