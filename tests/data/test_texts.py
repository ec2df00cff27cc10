"""Texts to counts: phrases, stop words of a corpus, and languages without spaces."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.texts import count_texts
from natgrad.data.words import analyser_of, words_of


def counts(corpus):
    table = corpus.to_sparse().toarray()
    return [{corpus.vocabulary[v]: int(row[v]) for v in np.flatnonzero(row)} for row in table]


def test_languages_without_spaces_are_cut_into_pairs_and_others_stay():
    assert words_of("深層学習とLDA、猫") == ["深層", "層学", "学習", "習と", "lda", "猫"]
    assert words_of("딥 러닝 모델") == ["러닝", "모델"]
    assert words_of("Größe, naïve café 42") == ["größe", "naïve", "café", "42"]
    a, b = "机器学习很有用", "天气很好今天很好"
    model = ng.LDA(2, seed=0, max_passes=20).fit([a, b] * 20)
    assert model.transform([a])[0].argmax() != model.transform([b])[0].argmax()


def test_phrases_are_words_that_come_together_and_are_found_in_later_texts():
    rng = np.random.default_rng(0)
    filler = [f"w{i}" for i in range(40)]
    texts = [" ".join([*rng.choice(filler, 6), "machine", "learning", *rng.choice(filler, 4)]) for _ in range(60)]
    texts += [" ".join([*rng.choice(filler, 5), "statistical", "machine", "learning"]) for _ in range(30)]
    plain, two, three = (count_texts(texts, phrases=n) for n in (1, 2, 3))
    assert "machine learning" not in plain.vocabulary
    assert "machine learning" in two.vocabulary
    assert any(name.count(" ") == 2 for name in three.vocabulary)
    assert not any(name.startswith("w") and " " in name for name in two.vocabulary)
    found = counts(two)[0]
    assert found["machine learning"] == 1
    assert "machine" not in found
    model = ng.LDA(2, seed=0, max_passes=5).fit(two)
    raw = model.transform(["machine learning w1"])
    np.testing.assert_allclose(raw, model.transform([["machine learning", "w1"]]))
    np.testing.assert_allclose(raw, model.transform([["machine", "learning", "w1"]]))  # words of a list are joined, too
    np.testing.assert_allclose(raw[0], model.infer("machine learning w1"), rtol=1e-5)
    assert not np.allclose(raw, model.transform(["machine w1"]))
    assert analyser_of(two.vocabulary.tolist())("Machine learning machine") == ["machine learning", "machine"]


def test_stop_words_are_those_that_are_spread_by_chance():
    rng = np.random.default_rng(1)
    texts = []
    for number in range(200):
        topic = ["goal", "team", "match"] if number % 2 else ["cell", "gene", "protein"]
        texts.append(" ".join(rng.permutation([*rng.choice(topic, 12), *rng.choice(["the", "of", "and"], 12)])))
    corpus = count_texts(texts, stop_words="corpus", phrases=2)
    assert set(corpus.vocabulary) == {"goal", "team", "match", "cell", "gene", "protein"}
    named = count_texts(texts, stop_words=["goal", "the"])
    assert {"goal", "the"}.isdisjoint(named.vocabulary)


def test_what_is_wrong_is_named():
    with pytest.raises(TypeError, match="one text"):
        count_texts("a text")
    with pytest.raises(ValueError, match='stop_words must be "corpus"'):
        count_texts(["a text here"], stop_words="english")
    with pytest.raises(ValueError, match="no words are left of 2"):
        count_texts(["text here"], least_documents=2)
    with pytest.raises(ValueError, match="phrases must be"):
        count_texts(["text here"], phrases=0)
    with pytest.raises(ValueError, match="texts is empty"):
        count_texts([])


def test_a_phrase_may_hold_a_word_that_alone_is_spread_by_chance():
    """ "new" is everywhere, "new york" is not: the pair is asked, and of "new" what the phrases leave of it."""
    rng = np.random.default_rng(0)
    texts = []
    for number in range(200):
        city, words = number % 3 == 0, []
        for word in rng.integers(0, 30, 20):
            words += [f"{'w' if city else 'v'}{word}", *(["new", "york"] if city and rng.random() < 0.25 else [])]
            words += (
                ["new"] * (rng.random() < 0.08) + ["the"] * (rng.random() < 0.3) + ["et", "al"] * (rng.random() < 0.08)
            )
        texts.append(" ".join(words))
    one, two = (count_texts(texts, phrases=n, stop_words="corpus").vocabulary for n in (1, 2))
    assert {word for word in one if not word[1:].isdigit()} == {"york"}
    assert {word for word in two if not word[1:].isdigit()} == {"new york"}


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


def test_stop_words_are_cut_as_texts_are():
    """ "The" was left in, since texts are in lower case."""
    assert count_texts(["The apple", "the plum"], stop_words=["The"]).vocabulary.tolist() == ["apple", "plum"]


def test_pairs_of_letters_that_overlap_are_no_phrase():
    corpus = count_texts(["機械学習は楽しい", "機械学習と統計"] * 6, phrases=2)
    assert not any(" " in word for word in corpus.vocabulary)


@pytest.mark.parametrize("documents", [{"first": "apple pear"}, {"apple pear", "plum"}])
def test_documents_without_an_order_are_refused(documents):
    """Of a dict the keys were read as documents; a set has another order in every process."""
    with pytest.raises(TypeError, match="as a list"):
        count_texts(documents)
    with pytest.raises(TypeError, match="as a list"):
        ng.LDA(2).fit(documents)


def test_what_is_no_text_is_named():
    with pytest.raises(TypeError, match=r"texts\[1\] is None"):
        count_texts(["apple", None])
