"""`LDA`: documents in; topics with their uncertainty, and each document's shares of them out.

    θ_d ~ Dir(α),   φ_k ~ Dir(β),   z ~ Cat(θ_d),   w ~ Cat(φ_z)

Blei, Ng and Jordan (2003); Pritchard, Stephens and Donnelly (2000); Hoffman, Blei and Bach (2010). The loop, the steps and the
guard are those of every network; `natgrad.models.lda.problem` has the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from natgrad.data.corpus import Corpus, as_corpus, with_words
from natgrad.data.held import HeldDocuments
from natgrad.data.stream import as_stream, origin_of_array
from natgrad.inference.engine import Phase
from natgrad.inference.methods import VB, Method
from natgrad.inference.options import FitOptions, LocalOptions, all_or_nothing, checked_method, checked_step
from natgrad.inference.problem import GroupProblem
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.models.lda.files import LDAFiles, run_table
from natgrad.models.lda.queries import TopicQueries
from natgrad.models.lda.settings import (
    GIBBS_SWEEPS,
    MAX_PASSES_BEFORE_GIBBS,
    TOL,
    batch_size,
    check_gibbs_sweeps,
    finds_topics,
    most_passes,
    prior_value,
    problem_of,
    runs_gibbs,
    runs_vb,
    topic_number,
)  # fmt: skip
from natgrad.models.lda.stream import arriving, fit_stream, grown, located
from natgrad.models.lda.topics import tell_empty_topics, warn_of_many_topics
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior, factors_of
from natgrad.threads import at_most
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.models.lda.components import TopicComponents
    from natgrad.models.lda.gibbs import GibbsSweeps
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["LDA"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Entries up to which a corpus whose topics move is read as a whole.
FEW_ENTRIES = 5_000_000
# The part of the tolerance that counts where topics move: what a move gains is weighed against it.
MOVING = 0.1


@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TopicQueries, LDAFiles):
    """Latent Dirichlet allocation: topics of documents, by variational inference and collapsed Gibbs sampling.

    Parameters
    ----------
    n_topics : int, "auto" or ("auto", most), default=50
        How many topics. With "auto" the number is found, up to ``most`` (100): topics are born, merged and deleted as the exact
        bound says (`finding K <finding-k.md>`_). α and β are then learned: an α for each topic from ``doc_prior`` on, and β, up
        to 0.05, unless it is given.
    doc_prior : None, "learn", float or array [K]
        α, the concentration of a document's shares of the topics. A number is kept. "learn": one for each topic is learned, from
        0.1 on. None is "learn" with ``inference="gibbs"`` and 0.1 with "vb".
    topic_prior : None, "learn" or float
        β, the concentration of a topic's words, in the same way; None is "learn" or 0.05. What is learned stays between 0.001 and
        1000: by counts of the samples, or in VB by Newton steps, which are taken only if they raise the objective.
    inference : "gibbs" or "vb", default="gibbs"
        "gibbs": a pass of VB, then collapsed Gibbs sampling, of which the second half is averaged. Topics are the posterior mean,
        `posterior_` has the moments of the samples, and `elbo_` is the lower bound of log p(w) for q(φ) = Dir(mean counts + β).
        It predicts words best. "vb": variational inference until ``tol``. What cannot be sampled (fractional counts, a stream, a
        cluster, ``n_topics="auto"``, ``moves``) is fitted by VB, with a warning.
    gibbs_sweeps : int, default=300 for "gibbs", 100 for "vb"
        Sweeps over all tokens. With "vb" they initialise the memoised passes after the first of them, and 0 is none.
    method : None, VB or SVI
        Schedule of the VB passes. By default memoised VB in batches, whose bound never falls once all documents were seen;
        `VB()` sweeps over all documents at once, `SVI({"doc": size})` takes sampled steps.
    local : LocalOptions, optional
        Tolerance, precision and batches of the documents' (E) step, and which topic estimate it uses.
    max_passes, max_seconds : limits
        Most passes over the corpus, most time. By default 200 passes, 50 with ``moves="keep"``, and before Gibbs sampling one,
        or 200 if ``tol`` is given. Sampling ends when ``max_seconds`` are over.
    tol : float, default=1e-3
        Nats a word left to gain below which the VB passes have converged; 0 runs all passes. 0.001 nats a word are 0.1 % of the
        perplexity, less than what seeds differ by. Where topics are born, merged and exchanged ("auto", ``moves``) it is a tenth
        of it, for a topic may be worth less. Before Gibbs sampling it ends the VB passes, of which there are then several.
    seed : int
        Every random choice is a function of the seed and the number of the step.
    n_jobs : int, optional
        Threads; by default all. The result is the same for any number.
    executor : None, an address, `distributed.Client` or cluster, or `natgrad.inference.Dask`
        Where the computation runs: in this process, or on the workers of a Dask cluster, which hold the documents. Workers do
        not sample: the result is that of ``inference="vb"`` here.
    verbose : bool, optional
        Show a progress bar; by default on a terminal.

    Attributes
    ----------
    n_topics_ : int, K, as given or as found; of "auto" the topics are those found, the largest first
    components_ : array [K, V], concentrations of the topics, as in scikit-learn
    topics_ : array [K, V], E[φ]
    doc_prior_, topic_prior_ : array [K] and float, α and β; as given, or as learned
    vocabulary_ : array [V] of words, or of their numbers
    elbo_, trace_, stop_ : the bound, its history, and why the run ended
    log_likelihood_ : array [gibbs_sweeps], mean log predictive probability of a token given the others; of Gibbs sampling
    inference_ : str, the inference that was run, its schedule after a comma
    posterior_ : {"phi": Factor, "theta": Factor}; θ only if the method remembers the documents

    Examples
    --------
    >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
    >>> model = LDA(n_topics=2, seed=1).fit(texts)
    >>> sorted(" ".join(sorted(words)) for words in model.top_words(3))
    ['apple pear plum', 'bolt nut screw']
    >>> model.transform(["apple plum"]).shape
    (1, 2)
    """

    kind: ClassVar[str] = "topics"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "n_jobs", "partial_fit", "executor", "linear_response", "transform", "topics",
    }  # fmt: skip
    _keeps_draws = True  # of Gibbs sampling; a fit that is only the start of another goes without

    n_topics: int | Literal["auto"] | tuple[Literal["auto"], int] = 50
    _: KW_ONLY
    doc_prior: Any = None
    topic_prior: float | Literal["learn"] | None = None
    inference: Literal["gibbs", "vb"] = "gibbs"
    gibbs_sweeps: int | None = None
    method: Method | None = None
    local: LocalOptions | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    tol: float | None = None
    seed: int = 0
    n_jobs: int | None = None
    executor: Any = None
    verbose: bool | None = None

    @all_or_nothing
    def fit(
        self, X: Any, y: None = None, *, vocabulary: Sequence[Any] | None = None, n_documents: float | None = None,
        moves: Literal["keep"] | None = None, **keep: Unpack[FitOptions],
    ) -> Self:  # fmt: skip
        """Fit to documents.

        Parameters
        ----------
        X : counts [D, V] (sparse, dense, a DataFrame, an AnnData), texts, lists of words or (word, count), a Corpus, or a stream:
            an iterator is read once, a source with ``chunks()`` or another iterable up to ``max_passes`` times, by sampled steps
        y : ignored
        vocabulary : the V words, optional; of a stream by default those of its first chunk
        n_documents : how many documents a stream has, if that is known
        moves : "keep", optional
            Leave poor optima by moves that keep the number of topics: two are merged, or one deleted, and another is split,
            where that raises the exact bound. Of streams, in their first chunk.
        checkpoint, every, resume, callbacks : as in ``Network.fit``; a stream is given from its beginning to go on
        """
        stream = as_stream(X, batch_size(self))
        if stream is not None:
            check_gibbs_sweeps(self, "a stream has none")
            if isinstance(self.method, VB):
                raise ValueError("method=VB() reads all documents at each step, and X is a stream: leave it out")
            fit_stream(self, stream, vocabulary, n_documents, keep, moves)
            return self
        if n_documents is not None:
            raise ValueError(f"n_documents={n_documents!r} is the length of a stream, and X has its own: leave it out")
        corpus = located(with_words(as_corpus(X, vocabulary)), X, origin_of_array(X))
        sampled = runs_gibbs(self, corpus, moves)
        if not finds_topics(self):
            warn_of_many_topics(topic_number(self)[0], corpus.n_words)
        if finds_topics(self):
            check_gibbs_sweeps(self, 'n_topics="auto" has none')
        elif isinstance(self.method, VB):
            check_gibbs_sweeps(self, "method=VB() has none")
        elif np.any(corpus.counts % 1.0):
            check_gibbs_sweeps(self, "only whole counts can be sampled")
        problem = self._problem(corpus, sampled=sampled)
        start, passes = lambda: problem.start(int(self.seed)), most_passes(self, moves, sampled)
        self._optimise(problem, start, Trace(), passes, keep, moves=moves, sampled=sampled)
        self._data = HeldDocuments(problem.corpus, vocabulary is None and isinstance(X, (list, tuple)))
        return self

    @all_or_nothing
    def continue_fit(self, X: Any, max_passes: int | None = None) -> Self:
        """Go on from where the last fit ended, on the same documents; the trace continues."""
        self._check_fitted()
        corpus = as_corpus(X, self._names, len(self.vocabulary_))
        sampled = runs_gibbs(self, corpus)
        problem = self._problem(corpus, number_known=True, sampled=sampled)
        passes = most_passes(self, sampled=sampled) if max_passes is None else whole_number(max_passes, "max_passes")
        self._optimise(problem, self._resumed(problem), Trace(list(self.trace_.records)), passes, sampled=sampled)
        self._data = HeldDocuments(problem.corpus)
        return self

    @all_or_nothing
    def partial_fit(
        self,
        X: Any,
        y: None = None,
        *,
        vocabulary: Sequence[Any] | None = None,
        n_documents: float | None = None,
    ) -> Self:
        """One step from the documents of a stream: λ ← (1 − ρ) λ + ρ (η̃ + scale · counts).

        Parameters
        ----------
        X : as in `fit`
        y : ignored
        vocabulary : the words of the columns of X; words that were never seen join the topics with their prior
        n_documents : float, optional
            How many documents the stream stands for; by default those seen so far.
        """
        if hasattr(self, "log_likelihood_"):
            runs_vb(self, "partial_fit takes a VB step from the topics of the Gibbs samples")
        corpus = arriving(X, vocabulary, *self._words())
        if not hasattr(self, "_state") and finds_topics(self):  # the number is found in the first documents
            return cast("Self", self._begun_with(self.fit(corpus)))
        seen = getattr(self, "n_documents_seen_", 0) + len(corpus)
        problem = self._problem(corpus, float(max(seen, n_documents or 0)), number_known=hasattr(self, "_state"))
        state = grown(problem, self._resumed(problem)) if hasattr(self, "_state") else problem.start(int(self.seed))
        problems, before = [problem], self.n_tokens_seen_ if hasattr(self, "_state") else 0.0
        look = self._look(before, corpus.n_tokens, problems.append) if finds_topics(self) else None
        with self._threads():
            result = self._step_once(problem, state, look)
        self._publish(problems[-1], result.state)
        self.n_documents_seen_, self.elbo_, self._data = seen, result.trace.last.elbo_estimate, None
        self.n_tokens_seen_ = before + corpus.n_tokens
        return self

    # scikit-learn gives `set_output` to what a class defines itself, and to nothing that it inherits.
    transform = TopicQueries.transform

    # -- parts --

    def _optimise(
        self,
        problem: LDAProblem,
        start: Any,
        trace: Trace,
        passes: int,
        options: FitOptions | None = None,
        method: Method | None = None,
        moves: Any = None,
        sampled: bool = False,
    ) -> None:
        method, moving = self._moving(problem, checked_method(self.method) if method is None else method, moves)
        step = checked_step(None, method, problem)
        phase = Phase(problem, method, step, ("phi",), moves=moving)
        sampler = None
        if sampled:
            from natgrad.models.lda.gibbs import GibbsSweeps

            sweeps = GIBBS_SWEEPS if self.gibbs_sweeps is None else self.gibbs_sweeps
            sampler = GibbsSweeps(problem, sweeps, self._keeps_draws)
        advice = "raise max_passes, or tol= if so little does not matter, or call continue_fit()"
        limits = self._limits(problem.corpus.n_tokens, advice, max_passes=passes)
        if moving is not None:
            limits = replace(limits, tol=MOVING * limits.tol)
        if sampler is not None and passes == MAX_PASSES_BEFORE_GIBBS:
            limits = replace(limits, tol=0.0)  # one pass is not meant to converge
        with self._threads():
            result = self._run(
                phase, start, limits, problem if sampler is None else sampler,
                options=options, trace=trace, table=lambda: run_table(problem),
                closing=() if sampler is None else [Phase(problem, stepper=sampler, until=sampler.sweeps, optional=True)],
            )  # fmt: skip
            if sampler is not None and sampler.averaged:
                self.elbo_ = sampler.bound(result.state)
                self.trace_.bounded(self.elbo_)
                if self.stop_.reason is Reason.PASSES:
                    self.stop_ = Stop(Reason.PHASES, sampler.description)
                self.trace_.strategy = f"{sampler.description}; the start: {self.trace_.strategy}"
            else:
                last = result.trace.last.elbo if len(result.trace) else np.nan
                self.elbo_ = last if np.isfinite(last) else problem.bound(result.state)
        self.n_documents_seen_, self.n_tokens_seen_ = problem.n_groups, problem.corpus.n_tokens
        self._publish(problem if sampler is None else sampler, result.state)
        tell_empty_topics(self.components_, self.topic_prior_)

    def _moving(self, problem: LDAProblem, method: Method | None, keep: Any) -> tuple[Method | None, Moves | None]:
        """The topics that move, and a method whose bound tells after every pass."""
        if keep is None and not problem.truncated:
            return method, None
        from natgrad.inference.moves import checked_moves

        if method is None and problem.truncated and len(problem.corpus.words) <= FEW_ENTRIES:
            method = VB()  # a few topics of few documents need no batches
        auto_setting = 'n_topics="auto"' if problem.truncated else ""
        return method, checked_moves((self._components(problem),), keep, auto_setting)

    def _publish(self, subject: LDAProblem | GibbsSweeps, state: State, seed: int | None = None) -> None:
        """Set what a fit sets at this state of VB, or from the sweeps that count: topics are then a point, their mean."""
        sampler = None if isinstance(subject, GroupProblem) else subject
        problem = subject if isinstance(subject, GroupProblem) else subject.problem
        if sampler is not None and sampler.averaged:
            problem, state = sampler.point(state)
        if problem.truncated:
            from natgrad.models.lda.components import found_topics

            problem, state = found_topics(problem, state)
        self.n_topics_: int = problem.n_topics
        for name in ("draws_moments_", "log_likelihood_"):  # of another run
            self.__dict__.pop(name, None)
        # The seed is kept apart from the parameter, which may be changed before the next fit.
        self._state, self._fitted, self._seed = state, problem, int(self.seed) if seed is None else seed
        posterior = factors_of(problem.blocks, state) | problem.shares(state, self._seed)
        self._names = names = problem.corpus.vocabulary
        self.posterior_ = Posterior(posterior, axes={"phi": ("word",), "theta": ("topic",)}, labels={"word": names})
        self.components_: Floats = np.ascontiguousarray(state.lam["phi"][0] + 1.0)
        self.topics_: Floats = self.components_ / self.components_.sum(1, keepdims=True)
        self.vocabulary_: npt.NDArray[Any] = np.arange(problem.corpus.n_words) if names is None else names
        self.n_features_in_: int = problem.corpus.n_words
        self._n_features_out = problem.n_topics
        self.n_steps_: int = state.t
        here = problem.with_hyper(state)
        self.doc_prior_: Floats = here.doc_prior
        self.topic_prior_: float = here.topic_prior
        if sampler is not None and sampler.averaged:
            self.log_likelihood_: Floats = sampler.log_likelihood
            if sampler.moments is not None:
                self._show_draws(sampler.moments.kept())

    _draws_advice = (
        'LDA(inference="gibbs") fits by collapsed Gibbs sampling, and posterior_ has the moments of its samples'
    )

    def _sampling(self) -> str:
        return self.trace_.strategy if hasattr(self, "log_likelihood_") else ""

    def _response_problem(self, X: Any) -> LDAProblem:
        if self._fitted.local.topics == "point":
            raise TypeError(
                "linear response is that of topics under q, and these are a point: fit with inference='vb', and with "
                "topics='posterior' in local=; "
                "after samples posterior_ has their deviations"
            )
        return self._fitted.of(self._held_out(X), self._state, exact=True)

    def _problem(
        self, corpus: Corpus, population: float | None = None, number_known: bool = False, sampled: bool = False
    ) -> LDAProblem:
        return problem_of(self, corpus, population, number_known, sampled)

    def _components(self, problem: LDAProblem) -> TopicComponents:
        from natgrad.models.lda.components import TopicComponents

        return TopicComponents(problem)

    def _room(self, problem: LDAProblem, state: State) -> tuple[LDAProblem, dict[str, Any]] | None:
        """With the priors as they are; α of topics that come is learned from their documents, β is that of the past."""
        here = problem.with_hyper(state)
        room = topic_number(self)[0] - here.n_topics
        if room <= 0:
            return None
        alpha = np.append(here.doc_prior, np.full(room, prior_value(self.doc_prior, "doc_prior")))
        learn = problem.learn - {"topic"}
        wide = type(here)(here.corpus, alpha, here.topic_prior, here.local, learn=learn, truncated=True)
        return wide, {"doc_prior": alpha, "topic_prior": here.topic_prior}

    def _narrowed(self, problem: LDAProblem, wide: LDAProblem, state: State) -> tuple[LDAProblem, State]:
        from natgrad.models.lda.components import found_topics

        fewer, after = found_topics(wide, state)
        here = fewer.with_hyper(after)
        own = here.corpus, here.doc_prior, here.topic_prior, here.local
        return type(here)(*own, population=problem.population, learn=problem.learn), after

    @property
    def _tol(self) -> float:
        return TOL if self.tol is None else self.tol

    def _threads(self) -> AbstractContextManager[None]:
        return at_most(self.n_jobs)

    def _words(self) -> tuple[Any, int | None]:
        """The names of the words of the fit, None if they have none, and how many there are; None before there is a fit."""
        return (self._names, len(self.vocabulary_)) if hasattr(self, "_state") else (None, None)

    def _more(self, X: Any, y: Any = None, vocabulary: Sequence[Any] | None = None) -> HeldDocuments:
        named = (
            self._data.open_words and vocabulary is None and isinstance(X, (list, tuple)) and self._names is not None
        )
        return HeldDocuments(arriving(as_corpus(X) if named else X, vocabulary, *self._words()))

    def _go_on(self, held: HeldDocuments) -> None:
        """By whole sweeps, which forget nothing of the topics; words that no document has any more are gone."""
        corpus, state, components = held.corpus, self._state, self.components_
        if held.open_words:
            used = np.unique(corpus.words).astype(np.int64)
            if len(used) < corpus.n_words:
                corpus = corpus.only(used)
                grown_ones = np.full((len(components), held.corpus.n_words - components.shape[1]), self.topic_prior_)
                components = np.hstack([components, grown_ones])[:, used]
        sampled = runs_gibbs(self, corpus)
        problem = self._problem(corpus, number_known=True, sampled=sampled)
        start = grown(problem, problem.at(components, state.t)._replace(hyper=state.hyper))
        method = VB() if self.method is None else None
        self._optimise(problem, start, Trace(), most_passes(self, sampled=sampled), method=method, sampled=sampled)
        self._data = held._replace(corpus=corpus)

    def _resumed(self, problem: LDAProblem) -> State:
        """The last state as this problem sees topics: those of Gibbs sampling are a point."""
        if self._fitted.local.topics == problem.local.topics:
            return self._state
        return problem.at(self.components_, self._state.t)._replace(hyper=self._state.hyper)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags
