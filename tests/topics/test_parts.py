"""Topic models whose documents come in parts, through files and command lines: what all of `natgrad.topics` share."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from promises.cases import DECLARED_TOPICS, known_documents, of_documents
from reference.coherence import c_v_slowly
from sklearn.base import clone

import natgrad as ng
from natgrad.models.lda.topics import aligned
from natgrad.topics.base import told_apart

FAST = {"max_steps": 8, "tol": 0}


MODELS = {name: (case.kind(2, **FAST), case.role) for name, case in DECLARED_TOPICS.items()}


def parts(role: str | None, cuts: list[int]):
    yield from (of_documents(role, low, high) for low, high in pairwise(cuts))


@pytest.fixture(params=list(MODELS))
def streamed(request):
    """A model, what is known besides, and the model after one part and after two."""
    return after_two(request.param)


@cache
def after_two(name: str):
    made, role = MODELS[name]
    first, second = parts(role, [0, 25, 40])
    one = clone(made).partial_fit(*first)
    told = {name: [np.array(part) for part in message] for name, message in one._told.items()}
    before = one.topics_
    both = one.partial_fit(*second)
    return made, role, told, before, both


def test_the_first_part_is_a_fit_and_the_second_adds_its_words(streamed) -> None:
    made, role, _, before, both = streamed
    (first,) = parts(role, [0, 25])
    fitted = clone(made).fit(*first)
    assert np.array_equal(fitted.topics_, before)
    assert both.n_documents_seen_ == 40
    assert np.sum(both._word_counts()) == pytest.approx(40 * 20, rel=1e-9)
    (whole,) = parts(role, [0, 40])
    assert aligned(clone(made).fit(*whole)._mean_topics(), both._mean_topics()).distance.max() < 0.1


@pytest.mark.parametrize("name", ["SupervisedLDA", "AuthorTopics"])
def test_what_was_told_is_what_a_prior_would_say(name) -> None:
    """The posterior of the first part as the prior of a network that is declared by hand gives the second posterior."""
    _, role, told, _, both = after_two(name)
    _, second = parts(role, [0, 25, 40])
    network = both.network_
    phi = ng.Dirichlet("phi", 0.05 + told["phi"][0], plate=ng.Plate("topic", 2))
    counts = second[0]
    if role == "authors":
        docs, words = counts.nonzero()
        cell = ng.Plate("cell", len(docs), weight=counts[docs, words])
        theta = ng.Dirichlet("theta", 0.1 + told["theta"][0], plate=ng.Plate("author", 3))
        x = ng.Categorical("x", both._chances(second[1])[docs], plate=cell)
        hand = ng.Network(
            ng.Categorical("w", phi[ng.Categorical("z", theta[x], plate=cell)], plate=cell, observed=words)
        )
    else:
        tokens = np.array([np.repeat(np.arange(20), row) for row in counts])
        doc, token = ng.Plate("doc", len(counts)), ng.Plate("token", 20)
        z = ng.Categorical("z", ng.Dirichlet("theta", 0.1, size=2, plate=doc), plate=(doc, token))
        w = ng.Categorical("w", phi[z], plate=(doc, token), observed=tokens)
        linear, square = told["eta"]
        precision = 0.1 * np.eye(2) - 2.0 * square
        eta = ng.MultivariateNormal("eta", np.linalg.solve(precision, linear), precision)
        minus_rate, shape = (float(part) for part in told["tau"])
        tau = ng.Gamma("tau", 1.0 + shape, 0.1 - minus_rate)
        value = (second[1] - both.scale_[0]) / both.scale_[1]
        mean = ng.dot(ng.frequencies(z, token), eta)
        hand = ng.Network(w, ng.Normal("y", mean, tau, plate=doc, observed=value))
    state = hand.problem_on("numpy").sweep(both.fit_.state, both.fit_.settings.order).state
    own = network.problem_on("numpy").sweep(both.fit_.state, both.fit_.settings.order).state
    for node, lam in own.lam.items():
        for a, b in zip(lam, state.lam[node], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8, err_msg=node)


def test_pages_show_topics_and_what_the_model_has_besides(streamed, tmp_path) -> None:
    _, role, _, _, both = streamed
    key = {"y": "responses", None: "correlations", "times": "times", "authors": "authors"}[role]
    (held,) = parts(role, [0, 5])
    page = both.report(tmp_path / "p.html", data=known_documents()["X"], held_out=held if role else held[0])
    text = page.read_text()
    assert f'id="{key}"' in text
    assert "held-out score" in text
    assert 'id="topics-data"' in text


def test_coherence_is_that_of_the_likeliest_words(streamed) -> None:
    """C_v of counts by its definition; its NPMI is held to another in `tests/models/lda`."""
    model, counts = streamed[-1], known_documents()["X"]
    documents = [set(np.flatnonzero(row).tolist()) for row in counts]
    wanted = [c_v_slowly(words, documents) for words in model.top_words(4)]
    np.testing.assert_allclose(model.coherence(counts, 4, "c_v"), wanted, rtol=1e-10)
    assert model.coherence(counts, 4).shape == (2,)


def test_callbacks_see_the_model_as_it_would_be(streamed) -> None:
    made, role, _, _, _ = streamed
    (first,) = parts(role, [0, 25])
    seen = []
    model = clone(made).fit(*first, callbacks=[ng.HeldOut(*first, share=1), lambda p: seen.append(p.model())])
    assert [type(shown) for shown in seen] == [type(made)] * len(model.trace_)
    assert model.trace_["held_out"][-1] == pytest.approx(model.score(*first))
    assert np.array_equal(seen[-1].topics_, model.topics_)


def test_new_authors_and_new_times_join() -> None:
    known = known_documents()
    counts = known["X"]
    model = ng.topics.AuthorTopics(2, **FAST).partial_fit(counts[:20], [["bob"]] * 20)
    model.partial_fit(counts[20:], [["ann"]] * 10 + [["zoe", "bob"]] * 10)
    assert model.authors_.tolist() == ["ann", "bob", "zoe"]
    assert model._told["theta"][0].sum() == pytest.approx(800)
    moving = ng.topics.DynamicTopics(2, **FAST).partial_fit(counts[:20], np.full(20, 2021))
    moving.partial_fit(counts[20:], np.repeat([2020, 2022], 10))
    assert moving.times_.tolist() == [2020, 2021, 2022]
    assert moving.topics_.shape == (3, 2, 20)
    assert moving._word_counts().sum() == pytest.approx(800)
    assert known["times"][0] == 2020


def test_what_is_refused_of_later_parts() -> None:
    known = known_documents()
    counts = known["X"]
    model = ng.topics.SupervisedLDA(2, **FAST).partial_fit(counts[:20], known["y"][:20])
    topics = model.topics_
    with pytest.raises(ValueError, match="vocabulary is for the first documents"):
        model.partial_fit(counts[20:], known["y"][20:], vocabulary=list(range(20)))
    with pytest.raises(ValueError, match="19"):
        model.partial_fit(counts[20:, :19], known["y"][20:])
    with pytest.raises(ValueError, match="Later documents without any come together with others"):
        model.partial_fit(counts[20:], np.full(20, np.nan))
    assert model.topics_ is topics


def test_a_file_has_no_documents_to_go_on_with(streamed, tmp_path) -> None:
    streamed[-1].save(tmp_path / "m")
    with pytest.raises(ValueError, match="have no documents"):
        ng.load(tmp_path / "m").continue_fit()


def test_the_first_topics_and_all_parts_have_one_clock():
    """Each had seconds of its own: a stream of ten parts took ten times as long."""
    counts = np.random.default_rng(0).poisson(1.0, (40, 12))
    model = ng.topics.CorrelatedTopics(2, max_seconds=1e-9, verbose=False)
    with pytest.warns(ng.errors.NotConverged, match="max_seconds = 1e-09"):
        model.fit(iter([counts[:20], counts[20:]]))
    assert model.n_documents_seen_ == 20
    assert len(model.trace_) == 1


def test_topics_that_begin_alike_are_told_apart() -> None:
    """Of documents that are all alike the first fit finds topics that are: no update could part them."""
    one = np.array([[0.2, 0.3, 0.5]])
    np.testing.assert_array_equal(told_apart(one, 0), one)
    for n in (2, 3):
        apart = told_apart(np.repeat(one, n, axis=0), 0)
        np.testing.assert_allclose(apart.sum(1), 1.0)
        assert np.abs(np.diff(apart, axis=0)).max(1).min() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_counts_where_no_word_is_drawn(name: str) -> None:
    made, role = MODELS[name]
    counts, *known = of_documents(role)
    if name == "SupervisedLDA":
        with pytest.raises(ValueError, match="counts must be whole numbers"):
            clone(made).fit(counts * 0.5, *known)
        return
    assert np.isfinite(clone(made).fit(counts * 0.5, *known).elbo_)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_batches_end_where_sweeps_do(name: str) -> None:
    made, role = MODELS[name]
    model = clone(made).set_params(**DECLARED_TOPICS[name].shared, max_steps=20).fit(*of_documents(role))
    assert model.trace_.strategy.startswith("per-node steps" if name == "SupervisedLDA" else "memoised VB in")
    assert model.elbo_ > -2100.0  # the first sweep is 300 nats below


@pytest.mark.parametrize("name", [name for name, (_, role) in MODELS.items() if role])
def test_what_is_refused_of_streams(name: str, tmp_path) -> None:
    made, role = MODELS[name]
    first, second = parts(role, [0, 25, 40])
    with pytest.raises(ValueError, match="leave out the second argument"):
        clone(made).fit(iter([first]), first[1])
    with pytest.raises(TypeError, match=r"part 1 of the stream must be a pair \(documents, .*got ndarray"):
        clone(made).fit(iter([first, second[0]]))
    with pytest.raises(ValueError, match=r"part 1 of the stream: .*15"):
        clone(made).fit(iter([first, (second[0], second[1][:3])]))
    with pytest.raises(ValueError, match="a stream without parts"):
        clone(made).fit(iter([]))
    with pytest.raises((TypeError, ValueError), match="checkpoint"):
        clone(made).fit(iter([first]), checkpoint=tmp_path / "c")


@pytest.mark.parametrize("name", MODELS)
def test_documents_that_are_all_alike_are_fitted(name: str) -> None:
    """The first topics were then equal, and the fit ended with an error about its own start."""
    made, role = MODELS[name]
    known = {"y": [0.0, 1.0], "times": [0, 1], "authors": [["a"], ["b"]]}.get(role or "")
    for counts in (np.eye(2, dtype=int), np.ones((2, 3), dtype=int)):
        model = clone(made).fit(counts, *([] if known is None else [known]))
        assert np.isfinite(model.elbo_)


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_topics_is_given(name: str) -> None:
    with pytest.raises(TypeError, match="n_topics must be a whole number"):
        type(MODELS[name][0])("auto").fit(*of_documents(MODELS[name][1]))
