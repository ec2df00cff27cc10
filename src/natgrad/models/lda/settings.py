"""The settings of `LDA` checked, every mistake named, and the problem that they make of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.models.lda.thinned import repeated
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.corpus import Corpus
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["DOC_PRIOR", "LearnPriors", "check_settings", "checked_priors", "ends_sampled", "most_passes", "problem_of"]

# Passes at most if none are given, before a finish, and with moves that keep the number of topics: those go on as long as a
# sampler leads higher, which on text is ten times as long as a fit.
PASSES, BEFORE_FINISH, KEEPING = 200, 1, 50
# α and β where none are given, and what else a fit has unless it is told: of what says something about passes.
DOC_PRIOR, TOPIC_PRIOR = 0.1, 0.05
OF_PASSES: dict[str, Any] = {
    "method": None, "step": None, "local": "vb", "start_sweeps": 100, "max_passes": None, "max_steps": None,
    "tol": 1e-3, "executor": None,
}  # fmt: skip
# Fewer documents are read by passes alone. So are counts that are large in the mean: a sweep takes as long as there are tokens,
# passes as long as there are words, and what is counted so often is certain without samples.
FEWEST_SAMPLED = 100

LearnPriors = bool | Literal["auto", "doc", "topic"]
LEARNED: dict[Any, frozenset[str]] = {
    False: frozenset(),
    "auto": frozenset(),
    True: frozenset({"doc", "topic"}),
    "doc": frozenset({"doc"}),
    "topic": frozenset({"topic"}),
}


def ends_sampled(model: Any, corpus: Corpus, moves: str | None = None) -> bool:
    """Whether a fit ends with samples: as ``finish`` says, and with "auto" where they are what predicts words best.

    They need whole counts in memory, and leave no bound that passes raise: whoever says how passes are to be made gets these.
    """
    if model.finish != "auto":
        return bool(model.finish == "gibbs")
    if moves is not None or model.n_topics == "auto" or len(corpus) < FEWEST_SAMPLED:
        return False
    if any(getattr(model, name) != value for name, value in OF_PASSES.items()):
        return False
    return repeated(corpus) == 1.0 and bool((corpus.counts == np.rint(corpus.counts)).all())


def checked_priors(model: Any, sampled: bool = False) -> tuple[npt.NDArray[np.float64], float, frozenset[str]]:
    """α [K], β, and which priors are learned; ``sampled``: in a fit that ends with samples."""
    model._check_choices()
    if model.n_topics == "auto":
        return _priors_of_auto(model)
    if isinstance(model.n_topics, str):
        raise ValueError(f'n_topics must be a whole number ≥ 1, or "auto", got {model.n_topics!r}')
    n_topics = whole_number(model.n_topics, "n_topics")
    beta = TOPIC_PRIOR if model.topic_prior is None else real_number(model.topic_prior, "topic_prior (β)")
    if not beta > 0:
        raise ValueError(f"topic_prior (β) must be > 0, got {model.topic_prior!r}")
    alpha = np.asarray(DOC_PRIOR if model.doc_prior is None else model.doc_prior, dtype=np.float64)
    if alpha.shape not in ((), (n_topics,)) or not (np.isfinite(alpha) & (alpha > 0)).all():
        raise ValueError(
            f"doc_prior (α) must be > 0, a number or one for each of {n_topics} topics, got {model.doc_prior!r}"
        )
    learn = LEARNED[model.learn_priors]
    if model.learn_priors == "auto" and sampled:
        learn = frozenset(name for name in ("doc", "topic") if getattr(model, f"{name}_prior") is None)
    return np.broadcast_to(alpha, (n_topics,)).copy(), float(beta), learn


def _priors_of_auto(model: Any) -> tuple[npt.NDArray[np.float64], float, frozenset[str]]:
    """α of as many topics as there may be, and β; both priors are learned, but for β where only "doc" is asked for."""
    n_topics = whole_number(model.max_topics, "max_topics")
    for name, allowed in (("learn_priors", ("auto", False, True, "doc")), ("local", ("vb",))):
        if getattr(model, name) not in allowed:
            raise ValueError(
                f'n_topics="auto" learns its priors, by exact bounds of log p(w): it takes {name}='
                f"{' or '.join(map(repr, allowed))}, got {getattr(model, name)!r}"
            )
    values = {"doc_prior": DOC_PRIOR, "topic_prior": TOPIC_PRIOR}
    for name in values:
        if getattr(model, name) is not None:
            values[name] = float(real_number(getattr(model, name), name))
        if not values[name] > 0:
            raise ValueError(f'{name} must be a number > 0 with n_topics="auto", got {getattr(model, name)!r}')
    learn = LEARNED["doc" if model.learn_priors == "doc" else True]
    return np.full(n_topics, values["doc_prior"]), values["topic_prior"], learn


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


def most_passes(model: Any, moves: str | None = None, sampled: bool = False) -> int:
    """How often an `LDA` reads its documents at most, ``sampled``: before samples."""
    if model.max_passes is not None:
        return whole_number(model.max_passes, "max_passes")
    if sampled:
        return BEFORE_FINISH
    return PASSES if moves is None else KEEPING


def problem_of(
    model: Any, corpus: Corpus, population: float | None = None, number_known: bool = False, sampled: bool = False
) -> LDAProblem:
    """The problem that an `LDA` is, with its settings checked, on documents that stand for so many.

    ``number_known``: of an `LDA` that was fitted, whose number of topics may have been found, and its priors, where nobody has
    given them; ``sampled``: of a fit that ends with samples.
    """
    from natgrad.models.lda.problem import LDAProblem, Local

    alpha, beta, learn = checked_priors(model, sampled)
    check_settings(model)
    local = Local(model.local, model.local_tol, model.local_steps, float(model.skip_below), np.dtype(model.dtype).type)
    finds = model.n_topics == "auto" and not number_known
    if number_known and model.n_topics == "auto":
        alpha, beta = np.asarray(model.doc_prior_, np.float64), model.topic_prior_
    elif number_known and model.learn_priors == "auto":
        alpha = np.array(model.doc_prior_) if model.doc_prior is None and len(model.doc_prior_) == len(alpha) else alpha
        beta = model.topic_prior_ if model.topic_prior is None else beta
    return LDAProblem(
        corpus, alpha, beta, local, batch_size=model.batch_size, population=population, learn=learn,
        truncated=finds, start_sweeps=model.start_sweeps,
    )  # fmt: skip
