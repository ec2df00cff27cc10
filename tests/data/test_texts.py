"""Texts to counts: phrases, stop words of a corpus, and languages without spaces."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natgrad as ng
from natgrad.data.markup import plain_text
from natgrad.data.texts import count_texts
from natgrad.data.words import Cutter, analyser_of, words_of


def counts(corpus):
    table = corpus.to_sparse().toarray()
    return [{corpus.vocabulary[v]: int(row[v]) for v in np.flatnonzero(row)} for row in table]


def test_languages_without_spaces_are_cut_into_pairs_and_others_stay():
    assert words_of("深層学習とLDA、猫") == ["深層", "層学", "学習", "習と", "lda", "猫"]
    assert words_of("딥 러닝 모델") == ["러닝", "모델"]
    assert words_of("Größe, naïve café 42") == ["größe", "naïve", "café", "42"]
    a, b = "机器学习很有用", "天气很好今天很好"
    model = ng.LDA(2, seed=0, inference="vb", max_passes=20).fit([a, b] * 20)
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
    model = ng.LDA(2, seed=0, inference="vb", max_passes=5).fit(two)
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<p class="lead">Hello</p><p>world</p><br/>', ["hello", "world"]),
        ("<UL><LI>one<LI>two</UL>", ["one", "two"]),
        ("<script>var code = 1</script>tea<style>p {color: red}</style><!-- not this -->", ["tea"]),
        ("H<sub>2</sub>O b<b>ol</b>d su<wbr>per", ["h2o", "bold", "super"]),
        ("caf&eacute; &amp; tea&nbsp;time &#x41;B &lt;b&gt;", ["caf\u00e9", "tea", "time", "ab"]),
        ("AT&T; R&D &unknown; &", ["at", "unknown"]),
        ("if a <b and c> dd: List<String>", ["if", "and", "dd", "list", "string"]),
        ("<script>never closed", ["never", "closed"]),
        ("see https://example.org/a?b=c#d, (www.example.com) or ftp://x.y", ["see", "or"]),
        ("\u8acb\u770bhttps://example.org/\uff0c\u8b1d\u8b1d", ["\u8acb\u770b", "\u8b1d\u8b1d"]),
        ("ask First.Last+tag@mail.example.co.uk or @handle #topic", ["ask", "or", "handle", "topic"]),
        ("mailto:me@example.org now", ["now"]),
        ("httpsx wwwx a@b", ["httpsx", "wwwx"]),
    ],
)
def test_markup_links_and_addresses_are_no_words(text, words):
    assert words_of(text) == words


def test_texts_that_look_like_markup_and_never_end_are_read_in_one_go():
    """In milliseconds; a search that begins again at every letter takes hours."""
    for part in ("<script>", "<a ", "<!--", "&amp", "a.b.", "x@", "<p a=", "www.", "-a"):
        assert len(plain_text(part * 100_000)) <= len(part) * 100_000
        Cutter("-'", emoji=True)(part * 100_000 + "\u00e9")


def test_signs_and_emoji_count_where_that_is_asked_for():
    text = "Don\u2019t e\u2011mail -- rock-n-roll, 'quoted' well- x"
    assert Cutter("-'")(text) == ["don't", "e-mail", "rock-n-roll", "quoted", "well"]
    assert Cutter("-'")(text.replace("\u2019", "'").replace("\u2011", "-")) == Cutter("-'")(text)
    assert words_of(text) == ["don", "mail", "rock", "roll", "quoted", "well"]
    faces = "I \u2764\ufe0f pizza \U0001f44d\U0001f3fd\U0001f44d \U0001f1e9\U0001f1ea"
    found = ["\u2764", "pizza", "\U0001f44d", "\U0001f44d", "\U0001f1e9\U0001f1ea"]
    assert Cutter(emoji=True)(faces) == found
    assert words_of(faces) == ["pizza"]


def test_later_texts_are_cut_as_those_of_the_fit():
    texts = ["Don't e-mail \U0001f355 now 2020", "a well-known oven: \U0001f355 pizza new york"] * 60
    for options in ({}, {"join": "-'", "emoji": True}, {"phrases": 2, "numbers": False}, {"join": "-", "phrases": 2}):
        corpus = count_texts(texts, **options)
        again = count_texts(texts, vocabulary=corpus.vocabulary)
        np.testing.assert_array_equal(again.to_sparse().toarray(), corpus.to_sparse().toarray())
        model = ng.LDA(2, seed=0, inference="vb", max_passes=1, tol=0).fit(corpus)
        np.testing.assert_allclose(model.transform(texts[:2]), model.transform(corpus.run(0, 2)))
        np.testing.assert_allclose(model.infer(texts[0]), model.transform(texts[:1])[0], rtol=1e-4)
    assert "2020" not in count_texts(texts, numbers=False).vocabulary
    assert "2020" in count_texts(texts).vocabulary


def test_a_cutter_of_ones_own_is_taken_for_later_texts_with_the_vocabulary():
    corpus = count_texts(["A-b c", "c c"], words=str.split)
    assert counts(count_texts(["c A-b d"], words=str.split, vocabulary=corpus.vocabulary)) == [{"A-b": 1, "c": 1}]


def test_texts_come_from_files_tables_and_generators(tmp_path):
    wanted = [{"apple": 1, "pear": 1}, {"plum": 2}]
    documents = ["apple pear", "plum plum"]
    for number, text in enumerate(documents):
        (tmp_path / f"{number}.txt").write_text(text)
    assert counts(count_texts(tmp_path)) == wanted
    assert counts(count_texts(sorted(tmp_path.glob("*.txt")))) == wanted
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n".join(json.dumps({"id": n, "text": text}) for n, text in enumerate(documents)))
    assert counts(count_texts(lines, column="text")) == wanted
    with pytest.raises(ValueError, match="which column has the texts"):
        count_texts(lines)
    assert counts(count_texts(text for text in documents)) == wanted
    frame = pd.DataFrame({"text": documents})
    assert counts(count_texts(frame["text"])) == counts(count_texts(frame, column="text")) == wanted
    with pytest.raises(FileNotFoundError, match="no such file"):
        count_texts(tmp_path / "nothing.txt")


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
        count_texts(texts)
    with pytest.raises(TypeError, match=words):
        ng.LDA(2).fit(texts)


def test_options_that_contradict_are_named():
    with pytest.raises(ValueError, match="join must be signs"):
        count_texts(["aa"], join="a")
    with pytest.raises(ValueError, match="leave out join"):
        count_texts(["aa"], join="-", words=str.split)
    with pytest.raises(ValueError, match="leave out phrases"):
        count_texts(["aa"], vocabulary=["aa"], phrases=2)
    with pytest.raises(ValueError, match="texts have no words"):
        count_texts(["!", "?"])
    with pytest.raises(ValueError, match="say which has them with column="):
        count_texts(pd.DataFrame({"a": ["x"], "b": ["y"]}))
    with pytest.raises(TypeError, match=r"column 'a' of texts.*X\['a'\]"):
        ng.LDA(2).fit(pd.DataFrame({"a": ["some text"], "b": [1]}))
    with pytest.raises(TypeError, match="count_texts"):
        ng.LDA(2).fit([Path("a.txt")])
