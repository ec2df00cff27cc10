"""`MatrixFactorization`: ratings, likes or counts in; factors with their uncertainty, predictions and recommendations out.

    gaussian    r_n ~ N(m + u_i · v_j + b_i + c_j, 1/τ)
    bernoulli   r_n ~ Bernoulli(σ(m + u_i · v_j + b_i + c_j))
    ordinal     r_n is the level of N(u_i · v_j + b_i + c_j, 1) between learned cutpoints
    poisson     r_n ~ Poisson(θ_i · β_j), Gamma factors

With known precisions and no biases, the first is the model of Paquet (2014), section 3. The loop, the samplers, the steps and
the guard are those of every network.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError

from natgrad.data.held import HeldRatings
from natgrad.data.rating_forms import as_ratings
from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Phase
from natgrad.inference.methods import Method
from natgrad.inference.options import FitOptions, all_or_nothing, checked_method, checked_step
from natgrad.inference.problem import State
from natgrad.inference.trace import Stop, Trace
from natgrad.models.factorization.checks import FactorPriors, RatingSettings, check_settings, refuse_time
from natgrad.models.factorization.features import known_features
from natgrad.models.factorization.files import Factors, RatingFiles, Subject, run_table
from natgrad.models.factorization.likelihoods import LikelihoodModel, likelihood_of
from natgrad.models.factorization.problem import counted_pairs, unseen_weights
from natgrad.models.factorization.recommend import RecommendMixin
from natgrad.models.factorization.response import RatingUncertainty
from natgrad.models.factorization.rows import check_columns, matched_state
from natgrad.threads import at_most, one_blas_thread

__all__ = ["Factors", "MatrixFactorization", "as_ratings"]

Floats = npt.NDArray[np.float64]
Likelihood = Literal["gaussian", "bernoulli", "ordinal", "poisson"]
# Sweeps over everything for a new chunk of ratings, and of new users alone for their vectors.
PARTIAL_STEPS = 4


@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class MatrixFactorization(RecommendMixin, RatingUncertainty, RatingFiles):
    """Bayesian matrix factorisation of ratings, likes and counts; with times or contexts `recommenders.ContextFactorization`.

    Parameters
    ----------
    n_factors : int
        The length K of the vectors of users and items; with learned priors an upper bound.
    likelihood : "gaussian", "bernoulli", "ordinal" or "poisson"
        Ratings; likes (1), with dislikes (0) or alone; ratings on an ordered scale of few levels, such as stars, whose
        distances are learned; counts, where what is not stored is a zero.
    noise : "learn", float, "user", "item", "both" or (one of these three, ν), optional
        Precision of the noise: learned, by default, or a known number. "user", "item" and "both" learn whose noise differs:
        s_i, t_j ~ Gamma(ν/2, ν/2) multiply the precision, ν = 4. Which of them has the highest bound, `ng.compare` tells.
    priors : natgrad.recommenders.FactorPriors, optional
        Precisions of vectors and biases, whether there are biases, and what pairs that are not stored count among likes.
    method : as in ``Network.fit``, optional
        Which ratings each step reads; by default all of them.
    max_steps, max_seconds, tol : limits
        Most steps and time, and the nats a rating left to gain below which the fit has converged (0 runs on).
    inference : "vb" or "gibbs", default="vb"
        "vb" maximises the evidence lower bound. "gibbs" samples Gaussian ratings in memory, from where such a fit ends:
        ``posterior_``, predictions, intervals and recommendations are those of the draws, and ``elbo_`` is NaN. Limits and
        ``tol`` are those of the VB start. `update` samples again; `partial_fit` and `fold_in` need "vb".
    n_sweeps : int, optional
        Sweeps of Gibbs sampling, of which the first third is warm-up; by default 200. Only with ``inference="gibbs"``.
    seed : int
        Every random choice is a function of the seed and the number of the step.
    n_jobs : int, optional
        Threads; by default all. The result is the same for any number.
    executor : None, an address, `distributed.Client` or cluster, or `natgrad.inference.Dask`
        Who computes exact sweeps: this process, or the workers of a Dask cluster, which hold the ratings. The result is the same.
        "gibbs" samples in this process.
    verbose : bool, optional
        Show a progress bar; by default on a terminal.

    Attributes
    ----------
    inference_ : str, what was run, such as "VB, 37 sweeps"
    elbo_ : float, the exact evidence lower bound; NaN with "gibbs", which has none
    trace_ : Trace, one entry a step: ``trace_["elbo"]``, ``["messages_read"]``, ``["seconds"]``
    stop_ : Stop, why the run ended
    n_steps_ : int
    n_factors_ : int, the factors that are used: learned priors switch off those that the data do not need. One is off where its
        products of means, squared and summed over users and items, are less than 1e-6 of the largest factor's
    user_factors_, item_factors_ : mean and sd [rows, K], rows in the order of ``ratings_.user_ids``, ``ratings_.item_ids``;
        None with "gibbs", whose draws are rotated against one another
    user_biases_, item_biases_ : mean and sd [rows]; None without biases
    offset_ : float, m
    levels_ : array, the levels of an ordinal scale; None of other likelihoods. `predict_proba` has the probability of each
    noise_per_ : None, "user", "item" or "both"
    posterior_ : {name: Factor}; the last number of a vector of "u" and "v" is its bias. With "gibbs" it is ``draws_``
    ratings_ : Ratings, what was fitted
    draws_ : Draws of "u", "v" and "noise", only with "gibbs"; vectors can be rotated, so their averages mean nothing

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 15))
    >>> table[rng.random(table.shape) < 0.3] = np.nan
    >>> model = MatrixFactorization(n_factors=2).fit(table)
    >>> model.stop_.converged
    True
    >>> model.predict([0, 1], [3, 3]).shape
    (2,)
    >>> model.recommend(0, n=2, exclude_seen=False).items.shape
    (2,)
    """

    n_factors: int = 20
    _: KW_ONLY
    likelihood: Likelihood = "gaussian"
    noise: Literal["learn", "user", "item", "both"] | tuple[str, float] | float | None = None
    priors: FactorPriors | None = None
    method: Method | None = None
    max_steps: int = 1000
    max_seconds: float | None = None
    tol: float = 1e-5
    inference: Literal["vb", "gibbs"] = "vb"
    n_sweeps: int | None = None
    seed: int = 0
    n_jobs: int | None = None
    executor: Any = None
    verbose: bool | None = None

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        user_features: Any = None,
        item_features: Any = None,
        n_users: float | None = None,
        **keep: Unpack[FitOptions],
    ) -> Self:
        """Fit to ratings.

        Parameters
        ----------
        X : Ratings, sparse matrix, table of three columns, array [users, items] with NaN where there is no rating, a path (text,
            .parquet), or an iterator of chunks of any of these. A source with ``chunks()``, such as
            `natgrad.data.RatingsSource`, is never held as a whole: whole users come in chunks, each makes a step of the items,
            and at the end the users of the last chunk are known; `fold_in` tells others.
        y : array of numbers [n], optional
            The ratings, if X is rows of user and item: an array [n, 2] or a table with these columns, as scikit-learn's searches
            cut into folds. With any other X it is ignored.
        user_features, item_features : numbers that are known of users or items, optional
            An array with a row for each (in the order of ``Ratings``), a table with ids as its index, or {id: numbers}. They
            move the prior mean of the vectors, by a learned linear map, from which rows without ratings are predicted.
        n_users : how many users a source has, if that is known
        checkpoint, every, resume, callbacks : as in ``Network.fit``
        """
        settings = self._settings()
        refuse_time(keep)
        if callable(getattr(X, "chunks", None)):
            from natgrad.models.factorization.stream import fit_rating_stream

            fit_rating_stream(self, X, settings, n_users, (user_features, item_features), keep)
            return self
        if n_users is not None:
            raise ValueError(
                f"n_users={n_users!r} is the length of a source of ratings, and X has its own: leave it out"
            )
        ratings, features = known_features(as_ratings(X, y), user_features, item_features)
        with at_most(self.n_jobs), one_blas_thread():
            kind = likelihood_of(settings, ratings, None, features, int(self.seed))
        self._optimise(kind, ratings, None, Trace(), options=keep)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: None = None) -> Self:
        """Fit to more ratings, by a few sweeps over these and all that came before.

        New users and items may appear; a pair that comes again has its new rating. Earlier ratings are kept (16 bytes each), so
        that nothing is forgotten. Precisions of factors stay as they are until `continue_fit` is called, or `fit`.
        """
        settings = self._settings()
        self._needs_vb("partial_fit", "update(X) keeps all ratings and samples again")
        chunk = as_ratings(X)
        if not hasattr(self, "posterior_"):
            kind = likelihood_of(settings, chunk)
            self._optimise(kind, chunk, None, Trace(), True, max_steps=2 * PARTIAL_STEPS, max_seconds=None)
            return self
        check_columns(X, self.ratings_.n_items)
        ratings = self.ratings_.extended(chunk)
        state = self._kind.extended(self.result_.state, ratings, int(self.seed))
        self._optimise(self._kind, ratings, state, Trace(list(self.trace_.records)), True, max_steps=PARTIAL_STEPS)
        return self

    @all_or_nothing
    def continue_fit(self, max_steps: int | None = None, *, max_seconds: float | None = None) -> Self:
        """Go on from where the last fit ended, on the same ratings; the trace continues.

        The limits are those of the additional run, by default the ones of the estimator.
        """
        self._check_fitted()
        self._settings()
        given: dict[str, Any] = {
            n: v for n, v in (("max_steps", max_steps), ("max_seconds", max_seconds)) if v is not None
        }
        self._optimise(self._kind, self.ratings_, self.result_.state, Trace(list(self.trace_.records)), **given)
        return self

    def _more(self, X: Any, y: Any = None) -> HeldRatings:
        if y is None:
            check_columns(X, self.ratings_.n_items)
        return HeldRatings(as_ratings(X, y))

    def _go_on(self, held: HeldRatings) -> None:
        self._settings()
        old, ratings = self.ratings_, held.ratings
        kind, state = matched_state(self._kind, self.result_.state, self._factors_of_q(), old, ratings, int(self.seed))
        self._optimise(kind, ratings, state, Trace())

    def fold_in(self, X: Any) -> Self:
        """A copy of the model that knows more users, or more ratings of known ones; the items stay as they are.

        Only the vectors of these users are fitted: milliseconds, not a new fit. Items must be known. Of new users alone
        nothing is copied until others are asked for beside them.

        Examples
        --------
        >>> import natgrad as ng
        >>> likes = ng.data.Ratings([0, 0, 1, 1, 2, 2, 3], list("abababa"))
        >>> model = ng.MatrixFactorization(likelihood="bernoulli").fit(likes)
        >>> model.fold_in(ng.data.Ratings(["zoe"], ["a"])).recommend("zoe", n=1).items.tolist()
        ['b']
        """
        from natgrad.models.factorization.rows import with_newcomers, with_told

        self._check_fitted()
        self._needs_vb("fold_in", "update(X) adds the ratings and samples again")
        chunk = as_ratings(X)
        self.ratings_.find_items(chunk.item_ids, "items")
        # What is known of users is a table with a row for each of those fitted: others have none.
        plain = not (self._kind.saved().get("learned") or {}).get("features")
        fresh = plain and (self.ratings_.places_of_users(chunk.user_ids) < 0).all()
        return with_newcomers(self, chunk) if fresh else with_told(self, chunk)

    def _sampling(self) -> str:
        if (kept := self._kept_draws) is None:
            return ""
        from natgrad.models.factorization.gibbs import burn_in

        last = kept.sweeps - burn_in(kept.sweeps)
        mean = f"the last {last}" if len(kept.noise) == last else f"{len(kept.noise)} of the last {last}"
        return f"Gibbs from a VB start, {kept.sweeps} sweeps (mean of {mean})"

    # -- parts --

    def _needs_vb(self, what: str, instead: str) -> None:
        """Refuse what would go back to q, before a number changes."""
        if self.inference == "gibbs" or vars(self).get("_kept_draws") is not None:
            raise ValueError(
                f'{what} is for inference="vb", and this model has inference="gibbs": {instead}, or fit with "vb"'
            )

    def _optimise(
        self,
        kind: LikelihoodModel,
        ratings: Ratings,
        state: State | None,
        trace: Trace,
        growing: bool = False,
        options: FitOptions | None = None,
        **limits: Any,
    ) -> None:
        method, seed, subject = checked_method(self.method), int(self.seed), Subject(kind, ratings)

        def phase(t: int) -> Phase | Stop:
            upcoming = kind.phase(ratings, seed, t, method, growing)
            if isinstance(upcoming, Stop) and not hasattr(
                subject, "problem"
            ):  # a run that had ended is looked at again
                upcoming = kind.phase(ratings, seed, 0, method, growing)
            if isinstance(upcoming, Stop):
                return upcoming
            subject.problem = upcoming.problem
            return replace(upcoming, step=checked_step(None, method, upcoming.problem))

        sampler = None
        if self.inference == "gibbs":
            from natgrad.models.factorization.gibbs import DEFAULT_SWEEPS, RatingGibbs, gibbs_problem

            sampler = RatingGibbs(gibbs_problem(kind, ratings), int(self.n_sweeps or DEFAULT_SWEEPS))
        negatives = getattr(kind, "negatives", 0.0)
        observed = counted_pairs(ratings, unseen_weights(ratings, negatives)) if negatives else len(ratings)
        start = (lambda: kind.start(ratings, seed, 1.0)) if state is None else state
        with at_most(self.n_jobs):
            result = self._run(
                phase, start, self._limits(observed, "raise max_steps, or call continue_fit()", **limits), subject,
                options=options, trace=trace, table=lambda: run_table(kind, ratings),
                closing=() if sampler is None else [
                    Phase(sampler.problem, stepper=sampler, until=sampler.sweeps)
                ],
            )  # fmt: skip
            self.elbo_: float = subject.problem.bound(result.state) if result.bound is None else result.bound
        self._published(*subject.published(result))
        if sampler is not None:
            if sampler.made < sampler.sweeps:
                raise RuntimeError(
                    f'inference="gibbs" made {sampler.made} of {sampler.sweeps} sweeps ({result.stop}): '
                    'inference="vb" fits q alone'
                )
            self._show_draws(sampler.kept())

    def _settings(self) -> RatingSettings:
        """The parameters that say what is fitted, checked."""
        return check_settings(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _check_fitted(self) -> None:
        if "posterior_" not in vars(self) and "_newcomers" not in vars(self):
            raise NotFittedError("this MatrixFactorization is not fitted yet: call fit(ratings) first")
