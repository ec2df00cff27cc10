"""Fit a mixture of Gaussians to rows: `GaussianMixture`.

    π ~ Dir(α),   Λ_k ~ Wishart(ν, R),   μ_k | Λ_k ~ N(m, (κ Λ_k)⁻¹),   z_n ~ Cat(π),   x_n ~ N(μ_z, Λ_z⁻¹)

Attias (2000); Bishop (2006), section 10.2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, Unpack, cast, final

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin

from natgrad.data.held import HeldRows
from natgrad.data.rows import checked_arrays
from natgrad.data.sequences import as_columns, chunks_of
from natgrad.data.stream import Stream, as_stream
from natgrad.inference.engine import Phase
from natgrad.inference.methods import VB, Method
from natgrad.inference.options import FitOptions, all_or_nothing, checked_method, checked_step
from natgrad.inference.problem import State
from natgrad.inference.schema import check, either
from natgrad.inference.steppers.gibbs import point_stats
from natgrad.inference.streams import Chunk, Kept
from natgrad.inference.trace import Stop, Trace, levels_to_the_caller
from natgrad.models.base import Estimator, number_of, starts_wanted
from natgrad.models.gaussian_prior import (
    COVARIANCES,
    covariance_of,
    finite_numbers,
    gaussian_of,
    gaussian_prior,
    prior_tables,
)
from natgrad.models.registry import EVERY_MODEL
from natgrad.models.uncertainty import as_means, drawn_from_priors, with_locations
from natgrad.posterior.drawing import drawn_rule, saved_draws
from natgrad.posterior.export import Posterior, factors_of
from natgrad.posterior.files.tables import RUN, group_state
from natgrad.validation import is_masked, require, whole_number

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.inference.proposals import Starts
    from natgrad.inference.rows import RowProblem
    from natgrad.models.hmm.kinds import Gaussian
    from natgrad.models.mixture.components import MixtureComponents
    from natgrad.models.mixture.problem import MixtureProblem
    from natgrad.posterior.draws import DrawnFactor

__all__ = ["GaussianMixture", "MixtureModel"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# Fewer rows are read as a whole; more in so many batches, which takes fewer passes.
FEW_ROWS, BATCHES = 20_000, 20
# There after a fit, but not after partial_fit alone.
OF_A_RUN = ("trace_", "stop_")
FITTED: dict[str, Any] = {
    "n_rows_seen": "positive",
    "n_features": "size column",
    "feature_names?": "names [column]",
    "elbo": "float",
    "run": either({}, {"trace_": Trace, "stop_": Stop}),
    "draws?": drawn_rule,
}
# The most components that "auto" finds.
MAX_COMPONENTS = 30
# Draws over which predictions are averaged.
DRAWS_AVERAGED = 100
SETTINGS: dict[str, Any] = {
    **{name: rule for name, rule in RUN.items() if name != "step"},
    "n_init": "none | natural",
    "max_passes": "none | positive",
    "max_seconds": "none | positive",
    "n_components": either("'auto' | size component", ("'auto'", "natural")),
    "weight_prior": "none | positive | positive list [component]",
    "inference": "'vb' | 'gibbs'",
    "n_sweeps": "none | natural",
}


class MixtureModel(NamedTuple):
    """Priors: α [K] of the weights, and m, κ, ν and R of the components, measured from the origin."""

    alpha: Floats
    covariance: str
    mean: Floats
    scale: float
    dof: float
    rate: Floats
    origin: Floats

    @property
    def emission(self) -> Any:
        """What a component is."""
        from natgrad.models.gaussians import GAUSSIANS

        return GAUSSIANS[self.covariance](len(self.alpha), *self[2:])


@final
@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name; the rest is scikit-learn's
class GaussianMixture(DensityMixin, Estimator):
    """A mixture of Gaussians, by variational inference; components that the data do not need keep their prior.

    Parameters
    ----------
    n_components : int, "auto" or ("auto", most)
        K, how many components; with "auto" it is found, up to ``most`` (30), for which the model has room: components are born,
        merged and deleted as the exact bound says (`finding K <finding-k.md>`_).
    covariance : "full", "diag", "tied", "spherical" or `Gaussian`
        A precision matrix for each component; one for each component and column; one matrix for all components; one number for
        each component. With "diag" and "spherical" single entries may be missing (NaN). `natgrad.models.hmm.Gaussian` has a kind
        of covariance and the prior of a component, ``Gaussian("diag", mean_scale=1.0)``; by default it follows from the data.
    weight_prior : float or array [K], optional
        α, concentration of the weights; by default 1/K, with which components that are not needed become empty. Of "auto" a
        number, by default 1/most.
    inference : "vb" or "gibbs"
        "gibbs" goes on from the fit of "vb" by Gibbs sampling on all rows: `posterior_`, predictions and intervals are those of
        the draws, `draws_`, and there is no bound.
    n_sweeps : int, optional
        Sweeps of each of four chains of "gibbs", by default 500; the second half counts.
    method : as in ``Network.fit``
        By default exact sweeps of up to 20,000 rows, memoised VB in batches of more; `trace_.strategy` says why. `VB()`;
        `SVI({"row": size})`.
    n_init : int, optional
        Starts, by default 8 (one where the number is found), that are improved on a slice of the data; the best one goes on.
    max_passes, max_seconds : limits
        Most readings of the data, most time.
    tol : float
        Nats a row left to gain, as the last passes tell, below which the fit has converged; 0 runs all passes.
    seed : int
        Every random choice is a function of the seed and the number of the step.
    n_jobs : int, optional
        Threads; by default all. The result is the same for any number.
    executor : None, an address, `distributed.Client` or cluster, or `natgrad.Dask`
        Who computes: this process, or the workers of a Dask cluster, which hold the rows; a .npy file that they see they read
        themselves. The result is the same.
    verbose : bool, optional
        Show a progress bar; by default on a terminal.

    Attributes
    ----------
    n_components_ : int, K, as given or as found; of "auto" the components are those found, the heaviest first
    weights_, means_ : arrays [K], [K, D], E[π] and E[μ]
    covariances_ : array [K, D, D], [K, D], [D, D] or [K], E[Λ]⁻¹
    deviations_ : array [K, D], standard deviations of the columns in each component
    posterior_ : {"weights", "components"}, a Factor each
    elbo_, trace_, stop_ : the bound (of streams: its estimate), its history, and why the run ended

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4.0, 1.0, (50, 2)), rng.normal(4.0, 1.0, (150, 2))])
    >>> model = GaussianMixture(2, seed=0).fit(X)
    >>> sorted(model.weights_.round(2).tolist())
    [0.25, 0.75]
    >>> model.predict_proba(X).shape
    (200, 2)
    >>> GaussianMixture("auto", seed=0).fit(X).n_components_
    2
    """

    kind: ClassVar[str] = "mixture"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "n_jobs", "partial_fit", "executor", "draws", "linear_response", "calibrate", "sample_weight", "missing", "predict",
    }  # fmt: skip

    n_components: int | Literal["auto"] | tuple[Literal["auto"], int] = 4
    _: KW_ONLY
    method: Method | None = None
    n_init: int | None = None
    max_passes: float | None = 200
    max_seconds: float | None = None
    tol: float = 1e-6
    seed: int = 0
    n_jobs: int | None = None
    executor: Any = None
    verbose: bool | None = None
    weight_prior: Any = None
    inference: Literal["vb", "gibbs"] = "vb"
    n_sweeps: int | None = None
    covariance: Literal["full", "diag", "tied", "spherical"] | Gaussian = "full"

    # -- fitting --

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        moves: Literal["keep"] | None = None,
        **keep: Unpack[FitOptions],
    ) -> Self:
        """Fit to rows.

        Parameters
        ----------
        X : array [N, D] (NumPy, memory-mapped, a table), the name of a .npy or .parquet file, or a stream of such chunks: an
            iterator is read once, a source with ``chunks()`` or a list of tables up to ``max_passes`` times, by sampled steps
        y : ignored
        sample_weight : array [N], optional
            A row of weight 2 counts as two rows; not for streams.
        moves : "keep", optional
            Leave poor optima by moves that keep the number of components: two are merged, or one deleted, and another is split,
            where that raises the exact bound. Of streams, in their first chunk.
        checkpoint, every, resume, callbacks : as in ``Network.fit``; a stream is given from its beginning to go on
        """
        stream = None if isinstance(X, (str, Path)) else as_stream(X)
        with self._threads():
            self._check_sampling(stream is not None)
            if stream is None:
                self._fit_rows(X, sample_weight, keep, moves)
            else:
                self._fit_chunks(stream, sample_weight, keep, moves)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, n_rows: float | None = None) -> Self:
        """One step from some rows of a stream: λ ← (1 − ρ) λ + ρ (η̃ + scale · messages).

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        n_rows : float, optional
            How many rows the stream stands for; by default those seen so far.
        """
        self._needs_vb("partial_fit", "update(X) adds the rows and samples again")
        fresh = not hasattr(self, "_state")
        if fresh and self._finds_number:  # the number is found in the first rows
            return cast("Self", self._begun_with(self.fit(X, sample_weight=sample_weight)))
        with self._threads():
            x, weight = self._rows(X, sample_weight, fresh)
            model = self._prepared(x, weight) if fresh else self._model_
            own = float(len(x) if weight is None else weight.sum())
            seen = own + (0.0 if fresh else self.n_rows_seen_)
            problem = self._problem(model, x, weight, population=len(x) * max(seen, n_rows or 0.0) / own)
            models = [model]
            look = self._look(seen - own, own, lambda grown: models.append(grown.model)) if self._finds_number else None
            result = self._step_once(problem, self._starts(problem) if fresh else self._state, look)
        self._publish(models[-1], result.state)
        self.n_rows_seen_, self.elbo_, self._data = seen, result.trace.last.elbo_estimate, None
        return self

    def _more(self, X: Any, y: Any = None, sample_weight: Any = None) -> HeldRows:
        return HeldRows(self._rows(X, sample_weight, False))

    def _go_on(self, held: HeldRows) -> None:
        x, weight = held.arrays
        with self._threads():
            self._run_rows(self._model_, x, weight, {}, self._state)

    def _fit_rows(self, X: Any, sample_weight: Any, options: FitOptions, keep: str | None = None) -> None:
        x, weight = self._rows(X, sample_weight, True)
        self._run_rows(self._prepared(x, weight), x, weight, options, keep=keep)

    def _run_rows(
        self,
        model: Any,
        x: Any,
        weight: Floats | None,
        options: FitOptions,
        state: State | None = None,
        keep: str | None = None,
    ) -> None:
        """A run from the start, or from a state: then by whole sweeps, which forget nothing of it."""
        method = checked_method(self.method)
        if method is None and state is not None:
            method = VB()
        if method is None and len(x) <= FEW_ROWS:
            method = VB()
        if (number := self._number_in(model)) > len(x) and state is None and not self._finds_number:
            words = (
                f'{number} components for {len(x)} rows: those without a row keep their prior; give fewer, or "auto"'
            )
            warnings.warn(words, UserWarning, stacklevel=levels_to_the_caller())
        problem = self._problem(model, x, weight, batch_size=-(-len(x) // BATCHES) if len(x) > FEW_ROWS else None)
        number_known = state is not None or not self._finds_number  # an update keeps the number that was found
        moves = None if keep is None and number_known else self._moves(problem, keep)
        phase = Phase(problem, method, checked_step(None, method, problem), tuple(problem.blocks), moves=moves)
        result = self._run(
            phase, (lambda: self._starts(problem)) if state is None else state, self._limits(problem.total_weight), model,
            options=options,
            table=lambda: (group_state(problem), {}),
        )  # fmt: skip
        self._publish(model, result.state)
        last = result.trace.last.elbo if len(result.trace) else np.nan
        self.elbo_: float = last if np.isfinite(last) else problem.bound(result.state)
        self.n_rows_seen_ = problem.total_weight
        self._data = HeldRows((x, weight))
        if self.inference == "gibbs":
            self._sample(self._draws_problem(x, weight))

    def _fit_chunks(self, stream: Stream, sample_weight: Any, options: FitOptions, moves: str | None) -> None:
        if sample_weight is not None:
            raise ValueError("a stream takes no sample_weight: give the weights of each chunk to partial_fit")
        models: list[Any] = []
        started: list[State] = []
        resumed: list[dict[str, Any]] = []

        def chunk(part: Any) -> Chunk:
            x, weight = self._rows(part, None, not models)
            if not models and resumed:
                models.append(self._with_number(self._prepared(x, weight), resumed[0]["components"]))
            elif not models and (self._finds_number or moves is not None):
                first = self._found_in(moves, x, sample_weight=weight)
                models.append(first._model_)
                started.append(first._state)
            elif not models:
                models.append(self._prepared(x, weight))
            own = len(x) if weight is None else int(weight.sum())
            return Chunk(
                lambda n: self._problem(models[-1], x, weight, population=n * len(x) / own), own, own,
                arrivals=(lambda before: self._look(before, own, lambda grown: models.append(grown.model)))
                if self._finds_number
                else None,
            )  # fmt: skip

        def start(problem: MixtureProblem) -> State | Starts:
            return started[0] if started else self._starts(problem)

        state, phases = self._run_stream(
            stream.read, chunk, start, lambda: models[-1], options=options, rereadable=stream.rereadable,
            max_passes=np.inf if self.max_passes is None else self.max_passes, n_groups=stream.n_total,
            kept=Kept(lambda: {"components": self._number_in(models[-1])}, resumed.append),
            table=lambda problem: (group_state(problem), {}),
        )  # fmt: skip
        self._publish(models[-1], state)
        self.n_rows_seen_, self.elbo_, self._data = float(phases.seen), phases.elbo, None

    # -- parts --

    def _response_problem(self, X: Any, sample_weight: Any = None) -> RowProblem:
        return self._problem(self._model_, *self._rows(X, sample_weight, False))

    def _by_row(self, X: Any, function: Callable[[Array, Any], Any], **how: Any) -> Any:
        """What a function says of each of other rows, given what rows are sent (``how`` are options of the problem's `sent`)."""
        self._check_fitted()
        with self._threads():
            problem = self._problem(self._model_, self._rows(X, None, reset=False, fitting=False)[0], None)
            return problem.by_row(function, problem.sent(self._state, **how))

    def _threads(self) -> Any:
        from natgrad.threads import at_most

        self._check_from_table()
        return at_most(self.n_jobs)

    def _rows(self, X: Any, sample_weight: Any, reset: bool, fitting: bool = True) -> tuple[Array, Floats | None]:
        """Checked rows, as they lie, and their weights; rows in which everything is missing have none."""
        if isinstance(X, (str, Path)):
            X = as_columns(X)
        if is_masked(X):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        x: Array = checked_arrays(
            self, X, reset=reset, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False
        )
        weight = _checked_weight(sample_weight, len(x))
        takes_nan = self._takes_nan
        for begin, part in chunks_of(x):
            missing = np.isnan(part)
            require(~np.isinf(part), part, f"X[{begin}:]", "finite, or NaN where it is missing (no inf/infinity)")
            if missing.any() and not takes_nan:
                row, column = (int(i) for i in np.argwhere(missing)[0])
                raise ValueError(
                    f"X[{begin + row}, {column}] is NaN, which this {type(self).__name__} does not take: leave out such rows, "
                    'or fill them in; covariance="diag" and covariance="spherical" take missing entries'
                )
            if (empty := missing.all(1)).any():
                weight = np.ones(len(x)) if weight is None else weight
                weight[begin : begin + len(part)][empty] = 0.0
        if fitting and weight is not None and not weight.any():
            raise ValueError("nothing to fit to: every row of X has a weight of zero, or no entry that is not missing")
        return x, weight

    # -- files --

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        check(saved := fitted.get("model"), dict, where="fitted['model']")
        assert isinstance(saved, dict)
        own, table = cls._model_table(saved)
        sizes = check(saved, table, where="fitted['model']")
        problem = cls()._problem(MixtureModel(**saved), np.empty((0, sizes["column"])), None)
        return {**cls._settings_table(), **own}, {"model": table, "state": group_state(problem), **FITTED}

    def _saved(self) -> dict[str, Any]:
        fields = {
            "state": self._state,
            "model": self._model_._asdict(),
            "n_rows_seen": self.n_rows_seen_,
            "n_features": self.n_features_in_,
            "elbo": self.elbo_,
            "run": {name: getattr(self, name) for name in OF_A_RUN if hasattr(self, name)},
        }
        if "draws_" in vars(self):
            fields["draws"] = self.draws_.content()
        names = getattr(self, "feature_names_in_", None)
        return fields if names is None else {**fields, "feature_names": names}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self.n_features_in_: int = saved["n_features"]
        if "feature_names" in saved:
            self.feature_names_in_: Array = saved["feature_names"]
        self.n_rows_seen_, self.elbo_ = saved["n_rows_seen"], saved["elbo"]
        for name, value in saved["run"].items():
            setattr(self, name, value)
        self._publish(MixtureModel(**saved["model"]), saved["state"])
        if "draws" in saved:
            self._use_draws(saved_draws(saved["draws"]))

    # -- memberships and densities --

    def predict_proba(self, X: Any) -> Floats:
        """q(z), the probability of each component for each row [N, K]; of draws their mean."""
        from natgrad.models.mixture.problem import memberships

        each = self._by_point(X, lambda x, sent: memberships(x, sent)[1].T)
        return np.asarray(sum(each) / len(each))

    def _by_point(self, X: Any, function: Callable[[Any, Any], Any], **how: Any) -> list[Any]:
        """What a function says of rows given q; or at each of some draws."""
        if "draws_" not in vars(self):
            return [self._by_row(X, function, **how)]
        with self._threads():
            problem = self._problem(self._model_, self._rows(X, None, False, fitting=False)[0], None, truncated=False)
            states, kept = [], {name: self.draws_[name].kept for name in problem.blocks}
            values = {name: draws.reshape(-1, *draws.shape[2:]) for name, draws in kept.items() if draws is not None}
            n_draws = len(values["weights"])
            for draw in np.linspace(0, n_draws - 1, min(n_draws, DRAWS_AVERAGED)).astype(int):
                mu = {n: point_stats(problem.blocks[n].family, own[draw], None) for n, own in values.items()}
                states.append(State({}, mu, 0))
            return [problem.by_row(function, problem.sent(state)) for state in states]

    @property
    def _exchangeable(self) -> bool:
        """Whether components in another order are the same model."""
        return bool((self._model_.alpha == self._model_.alpha[0]).all())

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """The likeliest component of each row."""
        return np.asarray(self.predict_proba(X).argmax(1))

    def score_samples(self, X: Any) -> Floats:
        """The log density of each row at the mean of q; of draws the logarithm of their mean density."""
        from natgrad.models.mixture.problem import memberships

        each = self._by_point(X, lambda x, sent: memberships(x, sent)[2], at_mean=True)
        return np.asarray(np.logaddexp.reduce(each) - np.log(len(each)))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log density of a row; higher is better."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, seed: int | None = None) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Rows drawn from the mixture at the mean of q, and the component of each."""
        self._check_fitted()
        rng, weights = np.random.default_rng(seed), self.posterior_["weights"].mean()
        z = rng.choice(len(weights), whole_number(n_samples, "n_samples"), p=weights)
        return self._model_.emission.draw(self._state.lam["components"], z, rng), z

    # -- what every model of rows needs --

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_nan
        return tags

    def _concentration(self) -> Floats:
        """α [K], checked; of "auto" that of the most components."""
        n, finds_number = number_of(self.n_components, "n_components", MAX_COMPONENTS)
        shapes: list[tuple[int, ...]] = [()] if finds_number else [(), (n,)]
        alpha = finite_numbers(1.0 / n if self.weight_prior is None else self.weight_prior, "weight_prior", shapes)
        require(alpha > 0, alpha, "weight_prior", "> 0")
        return np.full(n, alpha)

    @property
    def _finds_number(self) -> str:
        return 'n_components="auto"' if isinstance(self.n_components, (str, tuple, list)) else ""

    @property
    def _places(self) -> int:
        """The components that the model has room for."""
        return number_of(self.n_components, "n_components", MAX_COMPONENTS)[0]

    def _problem(self, model: Any, x: Any, weight: Floats | None, **options: Any) -> MixtureProblem:
        from natgrad.models.mixture.problem import MixtureProblem

        return MixtureProblem(model, x, weight, **{"truncated": bool(self._finds_number), **options})

    def _starts(self, problem: MixtureProblem) -> State | Starts:
        from natgrad.models.clusters import row_starts

        n_init = starts_wanted(self.n_init, self._finds_number)
        if self._finds_number:
            return problem.updated(problem.clustered(np.ones((1, problem.n_groups)), [0]))

        return row_starts(problem, len(problem.model.alpha), int(self.seed), n_init)

    def _moves(self, problem: MixtureProblem, keep: str | None) -> Moves:
        from natgrad.inference.moves import checked_moves

        return checked_moves((self._components(problem),), keep, self._finds_number)

    def _components(self, problem: MixtureProblem) -> MixtureComponents:
        from natgrad.models.mixture.components import MixtureComponents

        return MixtureComponents(problem)

    def _number_in(self, model: Any) -> int:
        return len(model.alpha)

    def _with_number(self, model: Any, number: int) -> Any:
        return model._replace(alpha=model.alpha[:number])

    def _room(self, problem: MixtureProblem, state: State) -> tuple[MixtureProblem, dict[str, Any]] | None:
        alpha, size = problem.model.alpha, self._places
        wide = problem.model._replace(alpha=np.full(size, alpha[0]))
        return (self._problem(wide, *problem.data), {}) if size > len(alpha) else None

    def _narrowed(self, problem: MixtureProblem, wide: MixtureProblem, state: State) -> tuple[MixtureProblem, State]:
        from natgrad.models.mixture.components import found_components

        model, after = found_components(wide, state)
        return self._problem(model, *problem.data, population=problem.population), after

    def _publish(self, model: Any, state: State) -> None:
        if self._finds_number:
            from natgrad.models.mixture.components import found_components

            model, state = found_components(self._problem(model, np.empty((0, self.n_features_in_)), None), state)
        self.n_components_: int = len(model.alpha)
        self._state, self._model_ = state._replace(memory={}), model
        self.__dict__.pop("draws_", None)
        empty = self._problem(model, np.empty((0, self.n_features_in_)), None)
        self.posterior_ = Posterior(factors_of(empty.blocks, state))
        self.n_steps_: int = state.t
        self.means_, self.covariances_, self.deviations_ = empty.emission.located(state.lam["components"])
        self.weights_: Floats = self.posterior_["weights"].mean()

    # -- draws and calibration --

    def _draws_problem(self, X: Any, sample_weight: Any = None) -> MixtureProblem:
        # Of the components that were found, which may all be drawn: none is left out as empty.
        return self._problem(self._model_, *self._rows(X, sample_weight, False), truncated=False)

    def _simulated(self, size: int, rng: np.random.Generator) -> tuple[dict[str, Any], Floats, Any]:
        problem = self._problem(self._model_, np.empty((0, self.n_features_in_)), None)
        truth = drawn_from_priors(problem, rng)
        z = rng.choice(len(truth["weights"]), size, p=truth["weights"])
        return truth, problem.emission.draw(as_means(problem, "components", truth), z, rng), z

    def _with_same_priors(self) -> dict[str, Any]:
        # Also where it was found.
        return {"_prepared": lambda x, weight: self._model_, "n_components": self.n_components_}

    @property
    def _takes_nan(self) -> bool:
        return getattr(self.covariance, "covariance", self.covariance) in ("diag", "spherical")

    def _prepared(self, x: Any, weight: Floats | None) -> MixtureModel:
        alpha, kind = self._concentration(), gaussian_of(self.covariance)
        return MixtureModel(alpha, kind.covariance, *gaussian_prior(kind, x, len(alpha), weight)[:5])

    def _drawn_as(self, problem: MixtureProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        return with_locations(factors, "components", problem.emission, "component")

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        if name == "components" and self._model_.covariance == "tied":
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[order]

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**SETTINGS, "covariance": covariance_of(tuple(COVARIANCES))}

    @classmethod
    def _model_table(cls, model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        check(
            model.get("covariance"),
            " | ".join(f"'{kind}'" for kind in COVARIANCES),
            where="fitted['model']['covariance']",
        )
        settings, prior = prior_tables(model["covariance"])
        return settings, {"alpha": "positive [component]", "covariance": "text", **prior, "origin": prior["mean"]}


def _checked_weight(weight: Any, n_rows: int) -> Floats | None:
    """A copy of the weights, a number or one for each row."""
    if weight is None:
        return None
    try:
        weights = np.array(np.broadcast_to(np.asarray(weight, dtype=np.float64), (n_rows,)))
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight must be numbers ≥ 0, one for each of {n_rows} rows, got shape {np.shape(weight)}"
        ) from None
    require(np.isfinite(weights) & (weights >= 0), weights, "sample_weight", "finite and ≥ 0")
    return weights
