"""`LDA` as users meet it: topics found, promises kept, complaints about other libraries answered, mistakes explained."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from marking import some_slow
from reference.lda import draw_documents
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import natgrad as ng
from natgrad.models.lda.queries import FINE_TOL

WORDS = np.array([f"w{v}" for v in range(60)], dtype=object)


@cache
def drawn():
    return draw_documents(300, 60, 5, 60, seed=1, doc_prior=0.1, topic_prior=0.05)


@cache
def fitted():
    return ng.LDA(5, seed=2).fit(drawn().counts, vocabulary=WORDS)


@pytest.mark.parametrize("seed", some_slow(range(3), [0]))
@pytest.mark.parametrize("options", [{"inference": "vb"}, {"local": ng.LocalOptions(topics="point")}, {}], ids=str)
def test_surplus_topics_are_not_identical_and_empty_ones_are_told(options, seed, caplog):
    """Six times as many topics as the documents were drawn from: VB may leave some without words, the others leave none."""
    X = draw_documents(400, 100, 5, 60, seed=9, topic_prior=0.1).counts
    model = ng.LDA(30, gibbs_sweeps=30, seed=seed, **options).fit(X)
    used = (model.components_ - model.topic_prior_).sum(1) > 1.0
    distance = 0.5 * np.abs(model.topics_[:, None] - model.topics_[None]).sum(-1) + np.eye(30)
    assert distance[used][:, used].min() > 0.05
    assert used.all() if "finish" not in options else used.sum() >= 27
    assert ("hold no words" in caplog.text) == (not used.all())


def test_perplexity_does_not_change_with_batch_size():
    X = drawn().counts
    model = fitted()
    whole = model.perplexity(X)
    assert (
        clone(model).set_params(local=ng.LocalOptions(batch_size=10), max_passes=1).fit(X).n_steps_ > 10
    )  # the batches are really others
    for size in (1, 7, 300):
        other = ng.LDA(5, seed=2, local=ng.LocalOptions(batch_size=size))
        other.__dict__.update(
            {name: value for name, value in vars(model).items() if name.endswith("_") or name[0] == "_"}
        )
        assert other.perplexity(X) == whole
    # Nor with how the documents are split: the scores of parts add up.
    parts = [(model.score(part), part.sum()) for part in np.array_split(X, 3)]
    assert np.exp(-sum(s * n for s, n in parts) / X.sum()) == pytest.approx(whole, rel=1e-9)


def test_an_empty_document_keeps_the_prior_and_changes_no_score():
    model, X = fitted(), drawn().counts
    mean, sd = model.transform(np.zeros((1, 60)), return_std=True)
    prior = model.doc_prior_ / model.doc_prior_.sum()
    np.testing.assert_allclose(mean[0], prior, rtol=1e-6)
    # Dir(α): variance m (1 − m) / (Σα + 1).
    np.testing.assert_allclose(sd[0], np.sqrt(prior * (1 - prior) / (model.doc_prior_.sum() + 1)), rtol=1e-6)
    assert model.score(np.vstack([X, np.zeros((2, 60))])) == pytest.approx(model.score(X), rel=1e-12)


def test_bound_rises_and_posterior_is_there():
    # Heavily mixed documents are slow: after 100 steps there are 63 nats to gain, after 300 there are 11, after 750 none.
    model = ng.LDA(
        5, seed=2, local=ng.LocalOptions(dtype="float64", skip_below=0.0), inference="vb", tol=1e-06, max_passes=500
    ).fit(drawn().counts)
    bounds = model.trace_["elbo"]
    bounds = bounds[np.isfinite(bounds)]
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()
    assert model.stop_.converged
    assert model.elbo_ == bounds[-1]
    np.testing.assert_allclose(model.posterior_["phi"].mean(), model.topics_)
    # Documents of the fit went their own way to a local optimum, those of `transform` start afresh: mostly the same one.
    gap = np.abs(model.posterior_["theta"].mean() - model.transform(drawn().counts)).max(1)
    assert (gap < 0.02).mean() > 0.9
    low, high = model.posterior_["phi"].interval(0.9)
    assert (low <= model.topics_).mean() > 0.5
    assert (low <= high).all()


def test_single_precision_and_skipping_give_nearly_the_same_fit():
    X = drawn().counts
    exact = ng.LDA(
        5, seed=2, local=ng.LocalOptions(dtype="float64", skip_below=0.0), inference="vb", max_passes=10, tol=0
    ).fit(X)
    quick = ng.LDA(5, seed=2, inference="vb", max_passes=10, tol=0).fit(X)
    assert quick.elbo_ == pytest.approx(exact.elbo_, rel=1e-4)


def test_new_words_join_the_topics():
    first, second = ["plum pear fig", "fig plum"] * 10, ["nut bolt plum", "bolt nut"] * 10
    model = ng.LDA(2, seed=0).partial_fit(first)
    assert model.vocabulary_.tolist() == ["fig", "pear", "plum"]
    for _ in range(10):
        model.partial_fit(second, vocabulary=["bolt", "nut", "plum"])
    assert model.vocabulary_.tolist() == ["fig", "pear", "plum", "bolt", "nut"]
    assert model.components_.shape == (2, 5)
    assert {"bolt", "nut"} <= {word for words in model.top_words(3) for word in words}
    assert model.transform(["bolt fig"]).shape == (1, 2)
    assert np.isfinite(model.components_).all()


def test_forms_of_input_give_the_same_fit():
    X = drawn().counts[:60]
    pairs = [[(int(v), int(n)) for v, n in enumerate(row) if n] for row in X]
    forms = [X, sparse.csr_matrix(X), sparse.csc_array(X.astype(float)), pd.DataFrame(X, columns=WORDS)]
    fits = [ng.LDA(3, inference="vb", max_passes=3).fit(form) for form in forms] + [
        ng.LDA(3, inference="vb", max_passes=3).fit(pairs, vocabulary=WORDS)
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].components_, other.components_)
    assert fits[3].vocabulary_.tolist() == WORDS.tolist()


def test_words_ranked_by_probability_lift_and_relevance():
    model = fitted()
    probable = model.top_words(4)
    for row, words in zip(model.topics_, probable, strict=True):
        assert words == WORDS[np.argsort(-row, kind="stable")[:4]].tolist()
    counts = model.components_.sum(1)
    lift = model.topics_ / (counts / counts.sum() @ model.topics_)
    for row, words in zip(lift, model.top_words(4, by="lift"), strict=True):
        assert set(words) == set(WORDS[np.argsort(-row)[:4]])
    assert len(model.top_words(4, by="relevance")) == 5
    with pytest.raises(ValueError, match="by must be"):
        model.top_words(by="beauty")


def test_coherence_is_npmi():
    X = np.array([[1, 1, 0, 0]] * 4 + [[0, 0, 1, 1]] * 4)
    model = ng.LDA(2, seed=0).fit(X)
    np.testing.assert_allclose(model.coherence(X, n=2), 1.0)  # always together: log(p / p²) / −log p
    np.testing.assert_allclose(model.coherence(X, n=4), (2 * 1.0 + 4 * -1.0) / 6)
    assert np.isnan(model.coherence(np.array([[1, 0, 1, 0]]), n=2)).all()


def test_similar_documents_infer_and_align():
    model, X = fitted(), drawn().counts
    order, closeness = model.similar_documents(X[17], X, n=3)
    assert order[0] == 17
    assert closeness[0] == pytest.approx(1.0, abs=1e-5)
    # A single document by compiled loops, few by NumPy's, in single precision: see test_single_document.
    moved = np.abs(model.infer(X[17]) - model.transform(X[17:18])[0]).sum()
    assert moved <= 2 * model.n_topics * FINE_TOL / X[17].sum()
    pairs = [(int(v), int(n)) for v, n in enumerate(X[17]) if n]
    np.testing.assert_allclose(model.infer(pairs), model.infer(X[17]))
    same = model.align(model)
    assert same.other.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(same.distance, 0.0, atol=1e-12)


def test_completion_predicts_better_than_unigrams():
    X = drawn().counts
    held = draw_documents(300, 60, 5, 60, seed=1).counts[-50:]
    unigram = X.sum(0) / X.sum()
    words = np.exp(-(held @ np.log(np.maximum(unigram, 1e-12))).sum() / held.sum())
    assert fitted().perplexity(held, how="completion") < 0.8 * words
    with pytest.raises(ValueError, match="whole numbers"):
        fitted().perplexity(held * 0.5, how="completion")
    with pytest.raises(ValueError, match="how must be"):
        fitted().perplexity(held, how="guess")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"n_topics": 0}, ValueError, "n_topics must be a whole number ≥ 1"),
        ({"doc_prior": -1.0}, ValueError, "doc_prior"),
        ({"doc_prior": [0.1, 0.2]}, ValueError, "one for each of 5 topics"),
        ({"topic_prior": 0.0}, ValueError, "topic_prior"),
        ({"local": "map"}, TypeError, r"local must be LocalOptions\(\.\.\.\).* got 'map'"),
        ({"topic_prior": "learned"}, ValueError, '"learn"'),
        ({"n_topics": ("auto", 0)}, ValueError, 'n_topics=\\("auto", most\\)'),
        ({"n_topics": "all"}, ValueError, '"auto"'),
        ({"inference": "vb", "method": ng.VB(), "gibbs_sweeps": 5}, ValueError, "gibbs_sweeps=5 has no effect"),
        ({"inference": "vb", "n_topics": "auto", "gibbs_sweeps": 5}, ValueError, "gibbs_sweeps=5 has no effect"),
        ({"max_passes": 0}, ValueError, "max_passes"),
        ({"method": ng.Children(1)}, TypeError, "groups are sampled"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_wrong_settings_are_explained(options, error, words):
    with pytest.raises(error, match=words):
        ng.LDA(**{"n_topics": 5, **options}).fit(drawn().counts)


def test_wrong_data_are_explained():
    with pytest.raises(NotFittedError, match="call fit"):
        ng.LDA(3).transform(drawn().counts)
    with pytest.raises(ValueError, match="vocabulary has 60 words and X has 59"):
        fitted().transform(drawn().counts[:, :59])
    with pytest.raises(ValueError, match="X has 59 features, but LDA is expecting 60"):
        ng.LDA(3, inference="vb", max_passes=1).fit(drawn().counts).transform(drawn().counts[:, :59])
    with pytest.raises(ValueError, match="'fig'"):
        fitted().transform(pd.DataFrame(drawn().counts, columns=["fig", *WORDS[1:]]))
    with pytest.raises(ValueError, match=r"X\[0, 1\] = -1"):
        ng.LDA(3).fit([[1, -1]])
    with pytest.raises(ValueError, match="no words to score"):
        fitted().score(np.zeros((2, 60)))


def test_a_corpus_without_words_is_refused_and_documents_without_words_keep_the_prior():
    with pytest.raises(ValueError, match="3 documents and no words"):
        ng.LDA(2).fit(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="no words"):
        ng.LDA(2).partial_fit(np.zeros((3, 4)))
    shares = fitted().transform(np.zeros((2, 60)))
    prior = fitted().doc_prior_ / fitted().doc_prior_.sum()
    np.testing.assert_allclose(shares, np.tile(prior, (2, 1)), rtol=1e-5)


def test_texts_in_any_container_are_cut_into_the_same_words() -> None:
    """Strings of NumPy went another way, on which Chinese and Japanese stayed in one piece."""
    pd = pytest.importorskip("pandas")
    texts = ["The quick brown fox", "机器学习模型很有用", "ニューラルネットワーク", "fox and model"] * 5
    first = ng.LDA(2, inference="vb", max_passes=2, tol=0, n_jobs=1).fit(texts)
    assert "学习" in first.vocabulary_
    for form in (tuple(texts), np.array(texts), pd.Series(texts)):
        other = ng.LDA(2, inference="vb", max_passes=2, tol=0, n_jobs=1).fit(form)
        assert other.vocabulary_.tolist() == first.vocabulary_.tolist()
        assert np.array_equal(other.components_, first.components_)


@pytest.mark.parametrize("gap", [None, float("nan"), 3])
def test_a_document_that_is_no_text_among_texts_is_named(gap) -> None:
    with pytest.raises(TypeError, match=r"X\[1\] is .*, and no text: .*give '' for .* without words"):
        ng.LDA(2).fit(["apple pear", gap, "plum"])
