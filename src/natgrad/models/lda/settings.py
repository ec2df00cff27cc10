"""The settings of `LDA` checked, every mistake named, and the problem that they make of documents."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.methods import SVI, VB
from natgrad.inference.options import LocalOptions, checked_method
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.corpus import Corpus
    from natgrad.models.lda.problem import LDAProblem

__all__ = [
    "batch_size",
    "cheap_batches",
    "check_gibbs_sweeps",
    "check_settings",
    "checked_priors",
    "finds_topics",
    "local_options",
    "most_passes",
    "prior_value",
    "problem_of",
    "runs_gibbs",
    "runs_vb",
    "topic_number",
]

MAX_PASSES = 200
# A visit ends with an update of all K·V numbers; batches this many times V entries long make it a small part.
ENTRIES_PER_WORD, MOST_BATCHES = 20, 50
# Nats a word left to gain, if ``tol`` is None.
TOL = 1e-3
# Gibbs sampling forgets where it started: one pass is as good a start as fifty.
MAX_PASSES_BEFORE_GIBBS = 1
# Merges and splits that keep the number of topics go on as long as a sampler leads higher: on text, ten times as long as a fit.
MAX_PASSES_WITH_MOVES = 50
# Sweeps of collapsed Gibbs sampling if ``gibbs_sweeps`` is None: of the inference, and of the initialisation of VB.
GIBBS_SWEEPS = 300
# How the description of a sampled fit begins.
SAMPLED = "collapsed Gibbs sampling from a VB start"
INITIAL_SWEEPS = 100
# α and β, or where learning starts.
PRIORS = {"doc_prior": 0.1, "topic_prior": 0.05}
# The most topics that n_topics="auto" finds.
MAX_TOPICS = 100


def runs_gibbs(model: Any, corpus: Corpus, moves: str | None = None) -> bool:
    """Return whether `fit` samples these documents: with ``inference="gibbs"``, unless they cannot be sampled, which warns."""
    model._check_choices()
    if model.inference == "vb":
        return False
    fractions = np.flatnonzero(corpus.counts != np.rint(corpus.counts))
    if finds_topics(model) or moves is not None:
        name = 'n_topics="auto"' if finds_topics(model) else f"moves={moves!r}"
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


def local_options(model: Any) -> LocalOptions:
    """The options of the local step, by default those of `LocalOptions`."""
    if model.local is None:
        return LocalOptions()
    if not isinstance(model.local, LocalOptions):
        raise TypeError(f"local must be LocalOptions(...), as in local=ng.LocalOptions(tol=1e-6), got {model.local!r}")
    return model.local


def batch_size(model: Any) -> int | None:
    """The documents of a batch, as ``method`` or ``local`` says; refuse two sizes, and one where there are no batches."""
    method, size = checked_method(model.method), local_options(model).batch_size
    if size is not None and method is not None:
        raise ValueError(
            f"batch_size={size} in local= has no effect with method={method}: leave one out; SVI has a size of its own"
        )
    return method.size if isinstance(method, SVI) else size


def cheap_batches(corpus: Corpus) -> int:
    """How many batches there may be of which the update of the topics is a small part."""
    return max(1, min(len(corpus.words) // (ENTRIES_PER_WORD * max(1, corpus.n_words)), MOST_BATCHES))


def topic_number(model: Any) -> tuple[int, bool]:
    """K, or the most topics that may be found, and whether the number is found."""
    given = model.n_topics
    if isinstance(given, str) and given == "auto":
        return MAX_TOPICS, True
    if isinstance(given, (tuple, list)) and len(given) == 2 and given[0] == "auto":
        return whole_number(given[1], 'most of n_topics=("auto", most)'), True
    if isinstance(given, (str, tuple, list)):
        raise ValueError(f'n_topics must be a whole number ≥ 1, "auto" or ("auto", most), got {given!r}')
    return whole_number(given, "n_topics"), False


def finds_topics(model: Any) -> bool:
    """Whether the number of topics is found."""
    return topic_number(model)[1]


def prior_value(given: Any, name: str) -> float:
    """The concentration that is given, or where learning starts."""
    if given is None or (isinstance(given, str) and given == "learn"):
        return PRIORS[name]
    if isinstance(given, str):
        raise ValueError(f'{name} must be > 0, "learn" or None, got {given!r}')
    value = real_number(given, name)
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {given!r}")
    return float(value)


def checked_priors(model: Any, sampled: bool = False) -> tuple[npt.NDArray[np.float64], float, frozenset[str]]:
    """α [K], β, and which of "doc" and "topic" are learned; ``sampled``: in a fit that ends with samples."""
    model._check_choices()
    n_topics, found = topic_number(model)
    learn = {
        name.removesuffix("_prior")
        for name in PRIORS
        if isinstance(given := getattr(model, name), str) or (given is None and (sampled or found))
    }
    beta = prior_value(model.topic_prior, "topic_prior")
    if found:
        return np.full(n_topics, prior_value(model.doc_prior, "doc_prior")), beta, frozenset({"doc", *learn})
    if model.doc_prior is None or isinstance(model.doc_prior, str):
        alpha = np.asarray(prior_value(model.doc_prior, "doc_prior"))
    else:
        alpha = np.asarray(model.doc_prior, dtype=np.float64)
    if alpha.shape not in ((), (n_topics,)) or not (np.isfinite(alpha) & (alpha > 0)).all():
        raise ValueError(
            f"doc_prior (α) must be > 0, a number or one for each of {n_topics} topics, got {model.doc_prior!r}"
        )
    return np.broadcast_to(alpha, (n_topics,)).copy(), beta, frozenset(learn)


def check_settings(model: Any) -> None:
    """What is neither a prior nor a method."""
    batch_size(model)
    if model.gibbs_sweeps is not None:
        whole_number(model.gibbs_sweeps, "gibbs_sweeps", least=0 if model.inference == "vb" else 1)
    whole_number(model.seed, "seed", least=0)
    if model.n_jobs is not None:
        whole_number(model.n_jobs, "n_jobs")
    if finds_topics(model) and local_options(model).topics == "point":
        raise ValueError(
            'n_topics="auto" compares exact bounds of log p(w): it takes topics="posterior" in local=, got "point"'
        )


def check_gibbs_sweeps(model: Any, reason: str) -> None:
    """Refuse sweeps that are asked for and have no effect, for this reason."""
    if model.inference == "vb" and model.gibbs_sweeps:
        raise ValueError(
            f'gibbs_sweeps={model.gibbs_sweeps} has no effect: with inference="vb" sweeps initialise memoised passes, '
            f"and {reason}; leave it out"
        )


def most_passes(model: Any, moves: str | None = None, sampled: bool = False) -> int:
    """How often an `LDA` reads its documents at most, ``sampled``: before samples, once unless ``tol`` is given."""
    if model.max_passes is not None:
        return whole_number(model.max_passes, "max_passes")
    if sampled and model.tol is None:
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
    options, (_, finds) = local_options(model), topic_number(model)
    local = Local(
        options.topics, options.tol, options.max_rounds, float(options.skip_below), np.dtype(options.dtype).type
    )
    if number_known and finds:
        alpha, beta = np.asarray(model.doc_prior_, np.float64), model.topic_prior_
    elif number_known:  # what was learned goes on from there
        if (model.doc_prior is None or isinstance(model.doc_prior, str)) and len(model.doc_prior_) == len(alpha):
            alpha = np.array(model.doc_prior_)
        beta = model.topic_prior_ if model.topic_prior is None or isinstance(model.topic_prior, str) else beta
    initial_sweeps = INITIAL_SWEEPS if model.gibbs_sweeps is None or sampled else model.gibbs_sweeps
    if isinstance(model.method, VB) or np.any(corpus.counts % 1.0):
        initial_sweeps = 0
    return LDAProblem(
        corpus, alpha, beta, local, batch_size=options.batch_size, population=population, learn=learn,
        truncated=finds and not number_known, start_sweeps=initial_sweeps,
    )  # fmt: skip
