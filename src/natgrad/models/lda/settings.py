"""The settings of `LDA` checked, every mistake named, and the problem that they make of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.corpus import Corpus
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["LearnPriors", "check_settings", "checked_priors", "most_passes", "problem_of"]

# Passes at most if none are given, before a finish, and with moves that keep the number of topics: those go on as long as a
# sampler leads higher, which on text is ten times as long as a fit.
PASSES, BEFORE_FINISH, KEEPING = 200, 1, 50

LearnPriors = bool | Literal["doc", "topic"]
LEARNED: dict[Any, frozenset[str]] = {
    False: frozenset(),
    True: frozenset({"doc", "topic"}),
    "doc": frozenset({"doc"}),
    "topic": frozenset({"topic"}),
}


def checked_priors(model: Any) -> tuple[npt.NDArray[np.float64], frozenset[str]]:
    """α [K], and which priors are learned."""
    model._check_choices()
    if model.n_topics == "auto":
        return _priors_of_auto(model)
    if isinstance(model.n_topics, str):
        raise ValueError(f'n_topics must be a whole number ≥ 1, or "auto", got {model.n_topics!r}')
    n_topics = whole_number(model.n_topics, "n_topics")
    if not real_number(model.topic_prior, "topic_prior (β)") > 0:
        raise ValueError(f"topic_prior (β) must be > 0, got {model.topic_prior!r}")
    alpha = np.asarray(model.doc_prior, dtype=np.float64)
    if alpha.shape not in ((), (n_topics,)) or not (np.isfinite(alpha) & (alpha > 0)).all():
        raise ValueError(
            f"doc_prior (α) must be > 0, a number or one for each of {n_topics} topics, got {model.doc_prior!r}"
        )
    return np.broadcast_to(alpha, (n_topics,)).copy(), LEARNED[model.learn_priors]


def _priors_of_auto(model: Any) -> tuple[npt.NDArray[np.float64], frozenset[str]]:
    """α of as many topics as there may be; both priors are learned, but for β where only "doc" is asked for."""
    n_topics = whole_number(model.max_topics, "max_topics")
    for name, allowed in (("learn_priors", (False, True, "doc")), ("local", ("vb",))):
        if getattr(model, name) not in allowed:
            raise ValueError(
                f'n_topics="auto" learns its priors, by exact bounds of log p(w): it takes {name}='
                f"{' or '.join(map(repr, allowed))}, got {getattr(model, name)!r}"
            )
    for name in ("doc_prior", "topic_prior"):
        if not real_number(getattr(model, name), name) > 0:
            raise ValueError(f'{name} must be a number > 0 with n_topics="auto", got {getattr(model, name)!r}')
    return np.full(n_topics, float(model.doc_prior)), LEARNED["doc" if model.learn_priors == "doc" else True]


def check_settings(model: Any) -> None:
    """What is neither a prior nor a method."""
    whole_number(model.finish_sweeps, "finish_sweeps")
    whole_number(model.start_sweeps, "start_sweeps", least=0)
    if not real_number(model.local_tol, "local_tol") >= 0:
        raise ValueError(f"local_tol must be ≥ 0, got {model.local_tol!r}")
    if not 0 <= real_number(model.skip_below, "skip_below") <= 0.1:
        raise ValueError(
            f"skip_below must lie in [0, 0.1], got {model.skip_below!r}: it is a small part of a document's words"
        )
    whole_number(model.local_steps, "local_steps")
    whole_number(model.seed, "seed", least=0)
    for name, value in (("batch_size", model.batch_size), ("n_jobs", model.n_jobs)):
        if value is not None:
            whole_number(value, name)


def most_passes(model: Any, moves: str | None = None) -> int:
    """How often an `LDA` reads its documents at most."""
    if model.max_passes is not None:
        return whole_number(model.max_passes, "max_passes")
    if model.finish is not None:
        return BEFORE_FINISH
    return PASSES if moves is None else KEEPING


def problem_of(model: Any, corpus: Corpus, population: float | None = None, number_known: bool = False) -> LDAProblem:
    """The problem that an `LDA` is, with its settings checked, on documents that stand for so many.

    ``found``: of an `LDA` whose number of topics was found, with these.
    """
    from natgrad.models.lda.problem import LDAProblem, Local

    alpha, learn = checked_priors(model)
    check_settings(model)
    local = Local(model.local, model.local_tol, model.local_steps, float(model.skip_below), np.dtype(model.dtype).type)
    finds = model.n_topics == "auto" and not number_known
    beta = model.topic_prior
    if number_known and model.n_topics == "auto":
        alpha, beta = np.asarray(model.doc_prior_, np.float64), model.topic_prior_
    return LDAProblem(
        corpus, alpha, beta, local, batch_size=model.batch_size, population=population, learn=learn,
        truncated=finds, start_sweeps=model.start_sweeps,
    )  # fmt: skip
