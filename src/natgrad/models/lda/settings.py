"""The settings of `LDA` checked, every mistake named, and the problem that they make of documents."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.corpus import Corpus
    from natgrad.models.lda.problem import LDAProblem

__all__ = [
    "DOC_PRIOR",
    "LearnPriors",
    "check_settings",
    "checked_priors",
    "most_passes",
    "problem_of",
    "runs_gibbs",
    "runs_vb",
]

MAX_PASSES = 200
# Gibbs sampling forgets where it started: one pass is as good a start as fifty.
MAX_PASSES_BEFORE_GIBBS = 1
# Merges and splits that keep the number of topics go on as long as a sampler leads higher: on text, ten times as long as a fit.
MAX_PASSES_WITH_MOVES = 50
# Sweeps of collapsed Gibbs sampling if ``gibbs_sweeps`` is None: of the inference, and of the initialisation of VB.
GIBBS_SWEEPS = 300
# How the description of a sampled fit begins.
SAMPLED = "collapsed Gibbs sampling from a VB start"
INITIAL_SWEEPS = 100
# α and β if ``doc_prior`` and ``topic_prior`` are None.
DOC_PRIOR = 0.1
TOPIC_PRIOR = 0.05

LearnPriors = bool | Literal["auto", "doc", "topic"]
LEARNED: dict[Any, frozenset[str]] = {
    False: frozenset(),
    "auto": frozenset(),
    True: frozenset({"doc", "topic"}),
    "doc": frozenset({"doc"}),
    "topic": frozenset({"topic"}),
}


def runs_gibbs(model: Any, corpus: Corpus, moves: str | None = None) -> bool:
    """Return whether `fit` samples these documents: with ``inference="gibbs"``, unless they cannot be sampled, which warns."""
    model._check_choices()
    if model.inference == "vb":
        return False
    fractions = np.flatnonzero(corpus.counts != np.rint(corpus.counts))
    if model.n_topics == "auto" or moves is not None:
        name = 'n_topics="auto"' if model.n_topics == "auto" else f"moves={moves!r}"
        return runs_vb(model, f"{name} compares topics by the ELBO")
    if model.executor is not None:
        return runs_vb(model, "the workers of executor= do not sample")
    if len(fractions):
        document = int(np.searchsorted(corpus.start, fractions[0], "right")) - 1
        place = f"X[{document}, {corpus.words[fractions[0]]}] = {corpus.counts[fractions[0]]:g}"
        return runs_vb(model, f"Gibbs sampling needs whole counts, but {place}")
    return True


def runs_vb(model: Any, reason: str) -> bool:
    """Warn that a fit with ``inference="gibbs"`` runs VB, for this reason; return False: it does not sample."""
    if model.inference == "gibbs":
        warnings.warn(f'this fit runs VB: {reason}; pass inference="vb" to say so', UserWarning, stacklevel=5)
    return False


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
    if model.gibbs_sweeps is not None:
        whole_number(model.gibbs_sweeps, "gibbs_sweeps", least=0 if model.inference == "vb" else 1)
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
        return MAX_PASSES_BEFORE_GIBBS
    return MAX_PASSES if moves is None else MAX_PASSES_WITH_MOVES


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
    initial_sweeps = INITIAL_SWEEPS if model.gibbs_sweeps is None or sampled else model.gibbs_sweeps
    return LDAProblem(
        corpus, alpha, beta, local, batch_size=model.batch_size, population=population, learn=learn,
        truncated=finds, start_sweeps=initial_sweeps,
    )  # fmt: skip
