"""What all hidden Markov models share: sequences in; states, transitions and emissions with their uncertainty out.

    x_1 ~ Cat(π),   x_t ~ Cat(A_{x_{t−1}}),   y_t ~ p(y | φ_{x_t});   q(π) q(A) q(φ) q(x)

Batch VB runs forward–backward over all data; its bound never falls. With ``method=Subchains()`` long data are read as subchains
of L times with steps of the natural gradient (Foti, Xu, Laird and Fox, 2014).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, cast

import numpy as np
import numpy.typing as npt

from natgrad.data.dates import dates_of
from natgrad.data.held import HeldSequences
from natgrad.data.sequences import Sequences, as_ends, as_labels, is_stream
from natgrad.inference.engine import Phase
from natgrad.inference.methods import SVI, VB, Method
from natgrad.inference.options import FitOptions, all_or_nothing, checked_method, checked_step
from natgrad.inference.proposals import Starts
from natgrad.inference.streams import Chunk, Kept
from natgrad.inference.trace import Reason, Stop, levels_to_the_caller
from natgrad.models.base import number_of, starts_wanted
from natgrad.models.hmm.expansions import InputChain
from natgrad.models.hmm.files import run_table
from natgrad.models.hmm.live import LiveHMM, checked_clocks
from natgrad.models.hmm.priors import FORBIDDEN, Transitions, walk
from natgrad.models.hmm.tracks import Tracks, own_of, parts_of
from natgrad.models.registry import EVERY_MODEL
from natgrad.models.uncertainty import as_means, drawn_from_priors, with_locations
from natgrad.posterior.export import Posterior, factors_of
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.sequences import Sequences
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.models.hmm.components import HMMComponents
    from natgrad.models.hmm.emissions import Emission
    from natgrad.models.hmm.parts import Subchains
    from natgrad.models.hmm.problem import HMMModel, SequenceProblem
    from natgrad.posterior.draws import DrawnFactor

__all__ = ["MAX_STATES", "HiddenMarkov"]

# Readings of the data, if the user does not say: they end fits that do not converge.
EXACT_PASSES, SAMPLED_PASSES = 1000.0, 1.0
# More times, in so many sequences, are read in so many memoised batches.
FEW_TIMES, LEAST_SEQUENCES, BATCHES = 20_000, 50, 10

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# The most states that "auto" finds.
MAX_STATES = 20


@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name; the rest is scikit-learn's
class HiddenMarkov(LiveHMM, ABC):
    """A hidden Markov model without its emissions: what `GaussianHMM`, `CategoricalHMM`, `PoissonHMM` and `BernoulliHMM` share.

    Parameters
    ----------
    n_states : int, "auto" or ("auto", most)
        How many states; with "auto" it is found, up to ``most`` (20): states are born, merged and deleted as the exact bound says
        (`finding K <finding-k.md>`_). Concentrations are then numbers, shared out among ``most``.
    transitions : `natgrad.models.hmm.Transitions`, optional
        The prior of first states and transitions, and what they may be: ``Transitions(sticky=5.0)`` favours staying in a state,
        ``Transitions(topology="left-to-right")`` orders the states. By default ``Transitions()``, uniform.
    method : optional
        By default exact sweeps, of many sequences in memoised batches. `VB()`; `SVI({"sequence": size})`, sampled batches;
        `hmm.Subchains() <natgrad.models.hmm.Subchains>`, sampled subchains of long sequences, whose bound is an estimate.
    inference : "vb" or "gibbs"
        "gibbs" goes on from the fit of "vb" by Gibbs sampling of paths and parameters: `posterior_` and intervals are those of
        the draws, `draws_`, predictions are at their mean, and there is no bound.
    n_sweeps : int, optional
        Sweeps of each of four chains of "gibbs", by default 500; the second half counts.
    n_init : int, optional
        Starts, by default 8 (one where the number is found), that are improved on a slice of the data; the best one goes on.
    max_passes : float, optional
        Most readings of the data; by default 1000 by exact methods, and one by sampled subchains.
    max_seconds : float, optional
        Most time.
    tol : float
        Nats a time left to gain, as the last sweeps tell, below which the fit has converged; 0 runs all sweeps.
    seed : int
        Every random choice is a function of the seed and the number of the step.
    n_jobs : int, optional
        Threads; by default all. The result is the same for any number.
    executor : None, an address, `distributed.Client` or cluster, or `natgrad.inference.Dask`
        Who computes: this process, or the workers of a Dask cluster, which hold the data; a .npy file that they see they read
        themselves. The result is the same.
    verbose : bool, optional
        Show a progress bar; by default on a terminal.

    Attributes
    ----------
    n_states_ : int, K, as given or as found; of "auto" the states are those found, the most frequent first
    startprob_, transmat_ : arrays [K], [K, K], E[π] and E[A]
    posterior_ : {"initial", "transition", "emission"}, a Factor each
    elbo_, trace_, stop_ : the bound (of sampled subchains: its estimate), its history, and why the run ended
    """

    kind: ClassVar[str] = "states"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "n_jobs", "partial_fit", "executor", "draws", "linear_response", "calibrate", "missing", "decode", "forecast",
    }  # fmt: skip

    n_states: int | Literal["auto"] | tuple[Literal["auto"], int] = 4
    _: KW_ONLY
    transitions: Transitions | None = None
    inference: Literal["vb", "gibbs"] = "vb"
    n_sweeps: int | None = None
    method: Method | Subchains | None = None
    n_init: int | None = None
    max_passes: float | None = None
    max_seconds: float | None = None
    tol: float = 1e-6
    seed: int = 0
    n_jobs: int | None = None
    executor: Any = None
    verbose: bool | None = None

    @abstractmethod
    def _emission(self, X: Array) -> Emission:
        """The emission with its prior; what the user left open follows from the data."""

    @abstractmethod
    def _name(self, emission: Any, lam: Any) -> None:
        """Set the attributes that users of this kind of emission expect."""

    @property
    def _one_dimensional(self) -> bool:
        """Whether [T] is the natural shape of X, not [T, D]."""
        return False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # -- fitting --

    @all_or_nothing
    def fit(
        self, X: Any, y: Any = None, lengths: Any = None, *, labels: Any = None,
        moves: Literal["keep"] | None = None, **keep: Unpack[FitOptions],
    ) -> Self:  # fmt: skip
        """Fit to sequences.

        Parameters
        ----------
        X : array [T, D] (NumPy, memory-mapped, a table), a list of such sequences, the name of a .npy or .parquet file, or an
            iterator of parts
        y : optional
            With an entry for each row of X a target, as scikit-learn passes it, and ignored; anything else is ``lengths``, as
            hmmlearn's users write it: ``fit(X, [700, 800])``.
        lengths : ints, optional
            Of the sequences in X, one after the other; by default X is one sequence. Parts of an iterator are sequences.
        labels : ints [T], optional
            Known states; −1 where the state is unknown.
        moves : "keep", optional
            Leave poor optima by moves that keep the number of states: two are merged, or one deleted, and another is split, where
            that raises the exact bound. Of iterators, in their first part.
        checkpoint, every, resume, callbacks : as in ``Network.fit``; not for iterators
        """
        self._check_choices()
        self._check_sampling(is_stream(X))
        if is_stream(X):
            if not all(given is None for given in (y, lengths, labels)):
                raise ValueError("an iterator takes no lengths or labels: its parts are sequences")
            self._fit_stream(X, keep, moves)
            return self
        columns, lengths = self._columns(X, y, lengths, fresh=True)
        model = self._model(columns)
        if self._finds_number and labels is not None:
            raise ValueError('labels name states, and n_states="auto" is to find them: give n_states')
        self._fit_held(self._kept(X, columns, lengths, labels), model, keep, moves=moves)
        return self

    def _fit_held(
        self, held: HeldSequences, model: HMMModel, options: FitOptions, state: State | None = None, moves: Any = None
    ) -> None:
        from natgrad.models.hmm.problem import SequenceProblem

        data = self._sequences(held.columns, held.lengths, held.labels, model.emission)
        if model.n_states > data.n_times and state is None and not self._finds_number:
            times = f"{data.n_times} time{'s' * (data.n_times != 1)}"
            words = f"{model.n_states} states for {times}: those without one keep their prior; give fewer, or more data"
            warnings.warn(words, UserWarning, stacklevel=levels_to_the_caller())
        self._optimise(data, model, options, state, moves)
        self.n_times_seen_, self._data = data.n_times, held
        if self.inference == "gibbs":
            self._sample(SequenceProblem(data, self._model_, n_jobs=self.n_jobs))

    def _more(self, X: Any, y: Any = None, lengths: Any = None, labels: Any = None) -> HeldSequences:
        return self._kept(X, *self._columns(X, y, lengths), labels)

    def _kept(self, X: Any, columns: Array, lengths: Any, labels: Any) -> HeldSequences:
        known = None if labels is None else as_labels(labels, len(columns), self._places)
        ends = as_ends(lengths, len(columns))
        return HeldSequences(columns, np.diff(ends), known, checked_clocks(dates_of(X), *ends[1:]))

    def _go_on(self, held: HeldSequences) -> None:
        self._fit_held(held, self._model_, {}, self._state)

    @all_or_nothing
    def partial_fit(
        self, X: Any, y: Any = None, lengths: Any = None, *, labels: Any = None, n_times: float | None = None
    ) -> Self:
        """One step from a part of a stream: λ ← (1 − ρ) λ + ρ (η̃ + scale · counts).

        Parameters
        ----------
        X, y, lengths, labels : as in `fit`
        n_times : float, optional
            How many times the stream stands for; by default those seen so far.
        """
        from natgrad.models.hmm.problem import SequenceProblem

        self._needs_vb("partial_fit", "update(X) adds the sequences and samples again")
        fresh = not hasattr(self, "_state")
        if fresh and self._finds_number:  # the number is found in the first times
            return cast("HiddenMarkov", self._begun_with(self.fit(X, y, lengths, labels=labels)))
        columns, lengths = self._columns(X, y, lengths, fresh)
        model = self._model(columns) if fresh else self._model_
        data = self._sequences(columns, lengths, labels, model.emission)
        seen = data.n_times + (0 if fresh else self.n_times_seen_)
        population = len(data) * max(seen, n_times or 0) / data.n_times
        problem = SequenceProblem(data, model, population=population, n_jobs=self.n_jobs)
        start, models = self._starts(problem) if fresh else self._state, [model]
        finds = self._finds_number and labels is None
        look = (
            self._look(seen - data.n_times, data.n_times, lambda grown: models.append(grown.model)) if finds else None
        )
        result = self._step_once(problem, start, look)
        self._publish(models[-1], result.state)
        self.n_times_seen_, self.elbo_, self._data = seen, result.trace.last.elbo_estimate, None
        return self

    # -- parts --

    def _optimise(
        self, data: Sequences, model: HMMModel, options: FitOptions, state: State | None = None, moves: Any = None
    ) -> None:
        problem, method, steps = self._plan(data, model)
        sampled = problem.overlapping
        phase = Phase(
            problem, method, checked_step(None, method, problem), tuple(problem.blocks),
            why=f"{data.n_times:,} times in {len(data):,} sequence{'s' * (len(data) != 1)}",
            bound_every="never" if sampled else None, moves=self._moves(problem, moves),
        )  # fmt: skip
        # Of subchains a pass is as many times as the data have, without the buffers.
        given: dict[str, Any] = {"max_passes": self.max_passes or EXACT_PASSES}
        if steps is not None:
            given = {"max_passes": None, "max_steps": steps}
        limits = self._limits(problem.data.n_times, **given)
        start = self._starts(problem) if state is None else state
        result = self._run(phase, start, limits, problem.model, options=options, table=lambda: run_table(problem.model))
        if steps is not None and result.stop.reason is Reason.STEPS:
            read = len(result.trace) / steps * (self.max_passes or SAMPLED_PASSES)
            self.stop_ = Stop(
                Reason.PASSES, f"subchains have read {read:g} times the data in {len(result.trace)} steps"
            )
        self._publish(problem.model, result.state)
        records = result.trace.records
        # Of sampled steps, the mean of what the later half of them said.
        said = [r.elbo_estimate for r in records[len(records) // 2 :]] if sampled else [records[-1].elbo]
        self.elbo_ = float(np.mean(said))

    def _plan(self, data: Sequences, model: HMMModel) -> tuple[SequenceProblem, Method | None, int | None]:
        """The problem, the method and, of subchains, the number of steps: as asked for, or exact."""
        from natgrad.models.hmm.parts import Subchains
        from natgrad.models.hmm.problem import SequenceProblem, SubchainProblem

        method = self.method
        if isinstance(method, Subchains):
            if self._finds_number:
                raise TypeError(
                    f"{self._finds_number} compares states by the exact bound, and subchains have none: leave method= out"
                )
            # A sequence shorter than a subchain is read as a whole; if all are, so is every group.
            how = replace(method, length=max(2, min(method.length, int(data.lengths.max()))))
            steps = max(1, round((self.max_passes or SAMPLED_PASSES) * data.n_times / (how.size * how.length)))
            return SubchainProblem(data, model, how, self.n_jobs), SVI({"subchain": how.size}), steps
        method = checked_method(method)
        if isinstance(method, SVI) and method.plate == "subchain":
            raise ValueError(
                f"{method} draws subchains: write method=hmm.Subchains({method.size}), of natgrad.models.hmm"
            )
        size = None
        if isinstance(method, SVI):
            size = method.size
        elif method is None and (self._finds_number or data.n_times <= FEW_TIMES or len(data) < LEAST_SEQUENCES):
            method = VB()
        elif method is None:
            size = -(-len(data) // BATCHES)
        truncated = bool(self._finds_number)
        return SequenceProblem(data, model, batch_size=size, n_jobs=self.n_jobs, truncated=truncated), method, None

    def _fit_stream(self, parts: Iterable[Any], options: FitOptions, moves: str | None) -> None:
        """Parts of an iterator, one after the other, each a step."""
        from natgrad.models.hmm.problem import SequenceProblem

        models, started, resumed = list["HMMModel"](), list["State"](), list[dict[str, Any]]()

        def chunk(part: Any) -> Chunk:
            columns, lengths = self._columns(part, None, None, fresh=not models)
            if not models and resumed:
                models.append(self._with_number(self._model(columns), resumed[0]["components"]))
            elif not models and (self._finds_number or moves is not None):
                first = self._found_in(moves, columns, lengths=lengths)
                models.append(first._model_)
                started.append(first._state)
            elif not models:
                models.append(self._model(columns))
            data = self._sequences(columns, lengths, None, models[0].emission)

            def problem(n_times: float) -> SequenceProblem:
                population = len(data) * n_times / data.n_times
                return SequenceProblem(data, models[-1], population=population, n_jobs=self.n_jobs)

            def arrivals(before: float) -> Any:
                return self._look(before, data.n_times, lambda grown: models.append(grown.model))

            return Chunk(problem, data.n_times, data.n_times, arrivals=arrivals if self._finds_number else None)

        def start(problem: SequenceProblem) -> State | Starts:
            return started[0] if started else self._starts(problem)

        kept = Kept(lambda: {"components": models[-1].n_states}, resumed.append)
        state, phases = self._run_stream(
            lambda: parts, chunk, start, lambda: models[-1], options=options, kept=kept,
            table=lambda problem: run_table(problem.model),
        )  # fmt: skip
        self._publish(models[-1], state)
        self.n_times_seen_, self.elbo_, self._data = phases.seen, phases.elbo, None

    def _starts(self, problem: SequenceProblem) -> State | Starts:
        from natgrad.models.hmm.start import start_of_one, starts_of

        n_init = starts_wanted(self.n_init, self._finds_number)
        if self._finds_number:
            return start_of_one(problem)

        return starts_of(problem.data, problem.model, int(self.seed), n_init, self.n_jobs)

    def _publish(self, model: HMMModel, state: State) -> None:
        from natgrad.models.hmm.problem import blocks_of

        if self._finds_number and model.n_states > 1:
            from natgrad.models.hmm.components import found_states

            model, state = found_states(model, state)
        self.n_states_: int = model.n_states
        self._state, self._model_ = state._replace(memory={}), model
        self.__dict__.pop("draws_", None)
        axes = {"initial": ("state",), "transition": ("next_state",)}
        self.posterior_ = Posterior(factors_of(blocks_of(model), state), axes=axes)
        self.startprob_: Floats = self.posterior_["initial"].mean()
        self.transmat_: Floats = self.posterior_["transition"].mean()
        self.n_steps_: int = state.t
        self._name(model.emission, own_of(model.emission, state.lam))

    def _sequences(self, columns: Array, lengths: Any, labels: Any, emission: Any, held_out: bool = False) -> Sequences:
        ends = as_ends(lengths, len(columns))
        seen = self._observe(emission, columns, ends, held_out)
        known = as_labels(labels, len(columns), self._places)
        return Sequences(seen.codes, seen.values, ends, seen.patterns, known, seen.base)

    def _model(self, X: Array) -> HMMModel:
        """Priors, with all settings checked."""
        from natgrad.models.hmm.problem import HMMModel

        self._check_choices()
        n_states, _ = number_of(self.n_states, "n_states", MAX_STATES)
        whole_number(self.seed, "seed", least=0)
        if self.n_jobs is not None:
            whole_number(self.n_jobs, "n_jobs")
        if self.max_passes is not None and not real_number(self.max_passes, "max_passes") > 0:
            raise ValueError(f"max_passes must be > 0, got {self.max_passes!r}")
        initial, rows = self._transitions.concentrations(n_states, shared=bool(self._finds_number))
        chain = self._chain(n_states)
        if chain is not None and chain.inputs is not None:
            rows = np.repeat(rows[None], chain.size, axis=0)
        elif chain is not None:
            rows = np.where(np.eye(n_states, dtype=bool), FORBIDDEN, rows)
        return HMMModel(initial, rows, self._emission(X), chain)

    def _chain(self, n_states: int) -> Any:
        """The longer chain that durations or inputs make, if they are declared."""
        if self._transitions.durations is not None or self._transitions.inputs is not None:
            raise ValueError(
                f"{type(self).__name__} has no durations or inputs: write hmm.HMM(emissions=…, transitions=…)"
            )

    @property
    def _finds_number(self) -> str:
        return 'n_states="auto"' if isinstance(self.n_states, (str, tuple, list)) else ""

    @property
    def _places(self) -> int:
        """The states that the model has room for."""
        return number_of(self.n_states, "n_states", MAX_STATES)[0]

    @property
    def _transitions(self) -> Transitions:
        """The setting ``transitions``, checked."""
        if not isinstance(given := Transitions() if self.transitions is None else self.transitions, Transitions):
            raise TypeError(f"transitions must be Transitions(…) of natgrad.models.hmm, got {given!r}")
        return given

    def _moves(self, problem: SequenceProblem, keep: Any) -> Moves | None:
        if keep is None and not self._finds_number:
            return None
        from natgrad.inference.moves import checked_moves

        if self._transitions.topology != "ergodic":
            raise ValueError(
                f"states of topology={self._transitions.topology!r} have an order, in which none can be born or merged"
            )
        if problem.model.chain is not None:
            raise ValueError('durations and inputs have no moves of states: leave out moves="keep"')
        return checked_moves((self._components(problem),), keep, self._finds_number)

    def _components(self, problem: SequenceProblem) -> HMMComponents:
        from natgrad.models.hmm.components import HMMComponents

        return HMMComponents(problem)

    def _with_number(self, model: HMMModel, number: int) -> HMMModel:
        """The priors of so many of the states that there is room for; all are alike where they are found."""
        from natgrad.models.hmm.components import with_states
        from natgrad.models.hmm.problem import HMMModel

        if number == model.n_states:
            return model
        return HMMModel(model.initial[:number], model.transition[:number, :number], with_states(model.emission, number))

    def _room(self, problem: SequenceProblem, state: State) -> tuple[SequenceProblem, dict[str, Any]] | None:
        from natgrad.models.hmm.components import with_states
        from natgrad.models.hmm.problem import HMMModel, SequenceProblem

        if self._places <= problem.model.n_states:
            return None
        wide = HMMModel(
            *self._transitions.concentrations(self._places, shared=True),
            with_states(problem.model.emission, self._places),
        )
        return SequenceProblem(problem.data, wide, n_jobs=self.n_jobs, truncated=True), {}

    def _narrowed(self, problem: SequenceProblem, wide: SequenceProblem, state: State) -> tuple[SequenceProblem, State]:
        from natgrad.models.hmm.components import found_states
        from natgrad.models.hmm.problem import SequenceProblem

        model, after = found_states(wide.model, state)
        return SequenceProblem(problem.data, model, population=problem.population, n_jobs=self.n_jobs), after

    def _response_problem(self, X: Any, y: Any = None, lengths: Any = None, labels: Any = None) -> SequenceProblem:
        from natgrad.models.hmm.problem import SequenceProblem

        data = self._sequences(*self._columns(X, y, lengths), labels, self._model_.emission)
        return SequenceProblem(data, self._model_, n_jobs=self.n_jobs)

    def _draws_problem(self, X: Any, y: Any = None, lengths: Any = None, labels: Any = None) -> SequenceProblem:
        return self._response_problem(X, y, lengths, labels)

    def _drawn_as(self, problem: SequenceProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        emission: Any = problem.model.emission
        gaussian = hasattr(emission, "located")  # of several tracks each has its block
        return with_locations(factors, "emission", emission, "state") if gaussian else factors

    def _simulated(self, size: int, rng: np.random.Generator) -> tuple[dict[str, Any], Array, Array]:
        _refuse_simulation(self._model_)
        problem = self._draws_problem(np.full((1, self.n_features_in_), np.nan))
        truth, chain = drawn_from_priors(problem, rng), problem.model.chain
        first, steps = truth["initial"], truth["transition"]
        if chain is not None:
            with np.errstate(divide="ignore"):  # what is forbidden
                logs = {n: problem.blocks[n].family.stats_of(truth[n]) for n in ("initial", "transition", "duration")}
            first, steps = chain.weights(logs)
        path = walk(np.cumsum(np.vstack([first, steps]), axis=1), rng.random(size))
        states = path if chain is None else chain.states[path]
        emission = problem.model.emission
        lam = {name: as_means(problem, name, truth) for name in problem.emitted}
        return truth, emission.draw(own_of(emission, lam), states, rng), states

    def _with_same_priors(self) -> dict[str, Any]:
        return {"_model": lambda X: self._model_, "n_states": self.n_states_}  # also where it was found

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        part = parts_of(self._model_.emission).get(name)
        if part is not None and part.shape == (1,):  # one matrix for all states, behind their means
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[..., order, :][..., order] if name == "transition" else value[order]


def _refuse_simulation(model: HMMModel) -> None:
    """Models whose data cannot be drawn from their priors alone, or whose parameters have no labels to compare them by."""
    tracks = model.emission.tracks if isinstance(model.emission, Tracks) else ()
    for refused, why in (
        (isinstance(model.chain, InputChain), "inputs= are known and not drawn"),
        (any(t.n_components > 1 for t in tracks), "components of a Mixture() can change places within their state"),
        (any(t.order for t in tracks), "of Autoregressive() the first observations are given and not drawn"),
    ):
        if refused:
            raise TypeError(f"calibrate: {why}; declare the model as a network, whose calibrate() simulates all of it")
