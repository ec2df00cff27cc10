"""`n_topics="auto"`: topics are born, merged and deleted on the exact bound, with a learned prior of their shares."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.models.lda.components import TopicComponents
from natgrad.models.lda.problem import LDAProblem


def counts(n_documents: int = 60) -> npt.NDArray[np.int64]:
    """Three topics of four words each; a document has one or two of them."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(3), np.full((1, 4), 0.25))
    shares = rng.dirichlet(np.full(3, 0.2), n_documents)
    return np.array([rng.multinomial(25, share @ topics) for share in shares])


@pytest.fixture(scope="module")
def fitted() -> ng.LDA:
    return ng.LDA("auto", max_topics=6, max_passes=100).fit(counts())


def test_topics_are_found_and_the_bound_never_falls(fitted: ng.LDA) -> None:
    assert fitted.n_topics_ == 3 == len(fitted.topics_) == len(fitted.doc_prior_)
    bounds = fitted.trace_["elbo"]
    assert (np.diff(bounds) >= -1e-6 * np.abs(bounds[1:])).all()  # documents are solved in single precision
    blocks = fitted.topics_.reshape(3, 3, 4).sum(2)
    assert sorted(blocks.argmax(1).tolist()) == [0, 1, 2]
    assert (blocks.max(1) > 0.95).all()
    assert fitted.transform(counts()).shape == (60, 3)
    assert fitted.trace_.n_active()[0] == 1
    assert fitted.posterior_["theta"].mean().shape == (60, 3)


def test_files_streams_and_steps_after(fitted: ng.LDA, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.natgrad")
    again = ng.load(tmp_path / "a.natgrad")
    assert again.n_topics_ == 3
    assert (again.transform(counts()) == fitted.transform(counts())).all()
    assert again.partial_fit(counts()[:10]).n_topics_ == 3
    ng.LDA("auto", max_topics=6, max_passes=100, max_steps=4).fit(counts(), checkpoint=tmp_path / "run", every=1)
    resumed = ng.LDA("auto", max_topics=6, max_passes=100).fit(
        counts(), checkpoint=tmp_path / "run", every=1, resume=True
    )
    assert resumed.elbo_ == fitted.elbo_
    assert resumed.trace_.moves == fitted.trace_.moves
    assert (resumed.components_ == fitted.components_).all()


def test_streams_find_topics_in_their_first_chunk() -> None:
    x = counts()
    model = ng.LDA("auto", max_topics=6).fit(iter([x[:40], x[40:]]))
    assert model.n_topics_ == 3 == len(model.doc_prior_)
    assert model.n_documents_seen_ == 60
    assert set(model.trace_.n_active()) == {3}
    blocks = model.topics_.reshape(3, 3, 4).sum(2)
    assert sorted(blocks.argmax(1).tolist()) == [0, 1, 2]
    begun = ng.LDA("auto", max_topics=6).partial_fit(x[:40])
    assert begun.n_topics_ == 3
    assert begun.partial_fit(x[40:]).n_steps_ == 2
    assert begun.n_documents_seen_ == 60
    assert ng.LDA(3, max_passes=2).fit(iter([x[:40], x[40:]]), moves="keep").n_topics_ == 3


def test_a_merge_after_a_birth_restores_the_topics() -> None:
    problem = LDAProblem(as_corpus(counts()), np.full(5, 0.1), 0.05, learn=frozenset({"doc"}), truncated=True)
    parts, state = TopicComponents(problem), problem.start(0)
    birth = parts.split(state, 0, [1], 0, 0)
    assert birth is not None
    assert parts.active(birth.state).tolist() == [True, True, False, False, False]
    back = parts.merge(birth.state, 0, 1)
    assert back.lam["phi"][0] == pytest.approx(state.lam["phi"][0], rel=1e-10, abs=1e-10)
    assert parts.held(back).sum() == pytest.approx(as_corpus(counts()).n_tokens)


def test_empty_topics_change_nothing() -> None:
    """The bound of K topics with room for more is that of K topics."""
    corpus, alpha = as_corpus(counts()), np.full(3, 0.1)
    narrow = LDAProblem(corpus, alpha, 0.05, learn=frozenset({"doc"}))
    wide = LDAProblem(corpus, np.full(7, 0.1), 0.05, learn=frozenset({"doc"}), truncated=True)
    topics = np.random.default_rng(1).gamma(1.0, 10.0, (3, corpus.n_words)) + 0.05
    more = np.vstack([topics, np.full((4, corpus.n_words), 0.05)])
    assert wide.bound(wide.at(more)) == pytest.approx(narrow.bound(narrow.at(topics)), rel=1e-10)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="it takes local='vb'"):
        ng.LDA("auto", local="map").fit(counts())
    with pytest.raises(ValueError, match="give n_topics, or leave out finish"):
        ng.LDA("auto", finish="gibbs").fit(counts())
    with pytest.raises(ValueError, match="n_topics must be"):
        ng.LDA("few").fit(counts())  # type: ignore[arg-type]
