"""Compute the linear response, posterior draws and calibration of a fitted ready model: `UncertaintyMixin`.

Draws look for other places where the posterior may have mass, as those of networks do (`natgrad.network.draws.rivals`): fits from
other starts, and a few chains that begin at both ends. Calibration is simulation-based: parameters are drawn from the priors,
data from these, and each parameter is ranked among draws from its posterior.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged, PoorMixing
from natgrad.inference.callbacks import progress_bar
from natgrad.inference.engine import few_steps
from natgrad.inference.options import CheckpointOptions
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.sampler import best_order
from natgrad.inference.steppers.gibbs import GroupGibbs, Schedule
from natgrad.inference.trace import StepRecord, Trace
from natgrad.posterior.calibration import LEVELS, Calibration, normal_ranks, spaced_draws
from natgrad.posterior.drawing import EACH, FAR, SAME, SWEEPS, is_gap, words_of
from natgrad.posterior.draws import derived
from natgrad.random import Stream, generator
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.inference.problem import GroupProblem, State
    from natgrad.posterior.calibration import Calibration
    from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings
    from natgrad.posterior.export import Posterior
    from natgrad.posterior.response.operator import Linearised
    from natgrad.posterior.response.result import LinearResponse

__all__ = ["UncertaintyMixin", "as_means", "calibrate_model", "drawn_from_priors", "missed_by", "with_locations"]


# Sweeps of each chain of ``inference="gibbs"`` if ``n_sweeps`` is None; the second half of them counts.
GIBBS_SWEEPS, GIBBS_CHAINS = 500, 4
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# Fits from other starts, each of one start and at most so many passes; draws of fewer sweeps are made without looking.
STARTS, PASSES, FEWEST = 4, 50, 300
# Local variables by which labels of two fits are compared.
MOST_COMPARED = 10_000


class UncertaintyMixin:
    """``linear_response(X)`` and ``draws(X)`` of a model whose problem has groups, and ``inference="gibbs"``."""

    posterior_: Posterior
    draws_: Draws
    elbo_: float
    _state: State
    # The settings of a model that can sample; LDA and factorisations sample otherwise.
    inference: Any = "vb"
    n_sweeps: int | None = None
    executor: Any

    if TYPE_CHECKING:
        seed: int
        verbose: bool | None
        _model_: Any

        def _check_fitted(self) -> None: ...

    def linear_response(
        self,
        X: Any = None,
        *,
        names: Sequence[str] | None = None,
        tol: float = 1e-6,
        max_iterations: int = 200,
        probes: int = 32,
        exact: bool | None = None,
        seed: int = 0,
        **data: Any,
    ) -> LinearResponse:
        """Standard deviations and covariances of the parameters that the factorised q has lost, on the data of the fit.

        What belongs to single rows, documents or sequences is differentiated through. A product of the operator solves all of
        them twice, so this takes some tens of passes over the data.

        Parameters
        ----------
        X, **data : the data of the fit, as `fit` takes them
        names, tol, max_iterations, probes, exact, seed : as in ``Fit.linear_response``

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.concatenate([np.zeros(40), np.ones(40)])[:, None] * 3 + np.random.default_rng(0).normal(size=(80, 1))
        >>> model = ng.GaussianMixture(2, tol=1e-9).fit(X)
        >>> lr = model.linear_response(X)
        >>> bool((lr["weights"].std() > model.posterior_["weights"].std()).all())
        True
        """
        from natgrad.posterior.response.result import LinearResponse
        from natgrad.posterior.response.solvers import LEFT

        self._check_fitted()
        if "draws_" in vars(self):
            raise TypeError(
                'linear response is that of q, and this fit has inference="gibbs": posterior_ has the deviations of its draws'
            )
        at, gained, left = self._linearised(X, **data)
        factors = {name: self.posterior_[name] for name in at.blocks}
        if gained > LEFT:
            warnings.warn(
                f"the fit has not converged: exact steps gained {gained:.2g} nats, and linear response is that of the optimum, "
                "as are its means. Fit with a smaller tol; LDA also with local=LocalOptions(tol=1e-6, skip_below=0)",
                NotConverged,
                stacklevel=2,
            )
            factors = {name: replace(factor, lam=at.lam[name]) for name, factor in factors.items()}
        response = LinearResponse(
            at, factors, names, tol=tol, max_iterations=max_iterations, probes=probes, exact=exact, seed=seed, left=left
        )
        response._axes, response._labels = self.posterior_._axes, self.posterior_._labels
        return response

    def _linearised(self, X: Any, **data: Any) -> tuple[Linearised, float, float | None]:
        """The problem near its optimum, the nats that exact steps to it gained, and those that are left, where they are known."""
        from natgrad.posterior.response.linearised import optimum_of_groups

        return optimum_of_groups(self._response_problem(self._data_of_fit(X, "linear_response"), **data), self._state)

    def _data_of_fit(self, X: Any, what: str) -> Any:
        if X is None:
            raise TypeError(f"{what}() reads the data of the fit again: give them, model.{what}(X)")
        return X

    def _response_problem(self, X: Any, *args: Any, **data: Any) -> GroupProblem:
        """The problem of groups that the fit was, in double precision."""
        raise TypeError(
            f"{type(self).__name__} has no linear response: declare the model as a network, whose fit has one, or use draws"
        )

    def draws(
        self,
        X: Any = None,
        n: int = 1000,
        *,
        chains: int = 4,
        warmup: int | None = None,
        thin: int = 1,
        seed: int = 0,
        names: Sequence[str] | None = None,
        starts: Literal["q"] | None = None,
        max_seconds: float | None = None,
        callbacks: Sequence[Any] = (),
        verbose: bool | None = None,
        **data: Any,
    ) -> Draws:
        """Draws from the posterior itself, by Gibbs sampling on the data of the fit; chains begin at draws from q.

        Given parameters, memberships of rows or paths of states (forward filtering, backward sampling) are drawn; given these,
        all parameters at once. They are draws of the same posterior as those of the network that declares the model. Where
        components or states can change places, draws have the labels of the fit.

        Parameters
        ----------
        X, **data : the data of the fit, as `fit` takes them
        n, chains, warmup, thin, seed : as in ``Fit.draws``
        names : list of variables, optional
            Of which all draws are kept, however large. Of others, a large one keeps as many as fit into 32 MB; averages are
            always of all draws.
        starts : "q", optional
            By default, if draws are at least 300 sweeps, a few fits from other starts are made, and one that ends elsewhere, and
            that chains do not leave, is told of; "q" leaves that out.
        max_seconds, callbacks, verbose, checkpoint, every, resume : as in ``Network.fit``

        Warns
        -----
        PoorMixing
            If chains do not agree yet (R̂, effective sample sizes), or if there is a place with a share of the
            posterior that they do not reach.

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.concatenate([np.zeros(40), np.ones(40)])[:, None] * 6 + np.random.default_rng(0).normal(size=(80, 1))
        >>> model = ng.GaussianMixture(2, weight_prior=1.0).fit(X)
        >>> draws = model.draws(X, 200, verbose=False)
        >>> draws["means"].values.shape, draws["membership"].mean().shape
        ((4, 200, 2, 1), (80, 2))
        >>> low, high = draws["means"].interval(0.9)
        >>> bool((low < model.means_).all() and (model.means_ < high).all())
        True
        """
        from natgrad.posterior.drawing import schedule_of

        self._check_fitted()
        keep = {name: data.pop(name) for name in CheckpointOptions.__annotations__ if name in data}
        problem = self._draws_problem(X, **data)
        if starts not in (None, "q"):
            raise ValueError(f'starts must be "q" or None, got {starts!r}: chains of ready models begin at their fit')
        schedule, settings = schedule_of(n, chains, warmup, thin, seed)
        notes = missed_by(self, problem, X, data, schedule.sweeps, seed) if starts is None else []
        draws = self._gibbs_draws(
            problem, settings, names, notes, max_seconds=max_seconds, callbacks=callbacks, verbose=verbose,
            keep=cast("CheckpointOptions", keep),
        )  # fmt: skip
        draws.warn_if_poor()
        return draws

    def _gibbs_draws(
        self,
        problem: GroupProblem,
        how: DrawsSettings,
        names: Sequence[str] | None,
        notes: Sequence[str],
        **options: Any,
    ) -> Draws:
        """Draws of a problem by Gibbs sampling from q, as users know the parameters."""
        from natgrad.posterior.drawing import draw_groups
        from natgrad.posterior.draws import Draws
        from natgrad.threads import at_most

        def made(factors: dict[str, DrawnFactor], settings: Any, moves: Any) -> Draws:
            shown = self._drawn_as(problem, factors)
            axes, labels = self.posterior_._axes, self.posterior_._labels
            return Draws(shown, settings, *moves, axes=axes, labels=labels, notes=notes)

        with at_most(getattr(self, "n_jobs", None)):
            return draw_groups(
                problem, self._state, how.n, how.chains, how.warmup, how.thin, how.seed, names, made, **options
            )

    # -- inference="gibbs" --

    def _check_sampling(self, stream: bool = False) -> None:
        """Refuse settings that belong to the other inference, and data that cannot be sampled, before a number changes."""
        if self.inference != "gibbs":
            if self.n_sweeps is not None:
                raise ValueError(
                    f'n_sweeps={self.n_sweeps!r} belongs to inference="gibbs", got inference={self.inference!r}'
                )
            return
        if self.n_sweeps is not None:
            whole_number(self.n_sweeps, "n_sweeps", 2)
        if self.executor is not None:
            raise ValueError(
                f'executor={self.executor!r}: inference="gibbs" samples in this process; leave executor= out'
            )
        if stream:
            raise ValueError(
                'inference="gibbs" samples data that are held, and a stream is read and let go: use inference="vb"'
            )

    def _needs_vb(self, what: str, instead: str) -> None:
        """Refuse what would go back to q, before a number changes."""
        if self.inference == "gibbs" or "draws_" in vars(self):
            raise ValueError(
                f'{what} is for inference="vb", and this model has inference="gibbs": {instead}, or fit with "vb"'
            )

    def _sample(self, problem: GroupProblem) -> None:
        """Sample from q on; have the draws as the posterior, and the mean of q where theirs is."""
        from natgrad.posterior.drawing import schedule_of

        sweeps = GIBBS_SWEEPS if self.n_sweeps is None else self.n_sweeps
        how = schedule_of(sweeps - sweeps // 2, GIBBS_CHAINS, sweeps // 2, 1, whole_number(self.seed, "seed", 0))[1]
        draws = self._gibbs_draws(problem, how, None, (), verbose=self.verbose)
        for name in problem.sampler.local_blocks:  # type: ignore[union-attr]
            del draws.factors[name]
        lam = {
            name: block.family.centred(
                draws[name].mean() - (0.0 if block.origin is None else block.origin), self._state.lam[name]
            )
            for name, block in problem.blocks.items()
        }
        mu = {name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
        cast("Any", self)._publish(self._model_, self._state._replace(lam=lam, mu=mu))
        self.elbo_ = np.nan
        self._use_draws(draws)
        draws.warn_if_poor()

    def _use_draws(self, draws: Draws) -> None:
        draws._axes, draws._labels = self.posterior_._axes, self.posterior_._labels
        self.draws_ = self.posterior_ = draws  # type: ignore[assignment]

    def _sampling(self) -> str:
        """The sampler whose draws the posterior is, and its number of sweeps; empty where the posterior is q."""
        if "draws_" not in vars(self):
            return ""
        how = self.draws_.settings
        return f"Gibbs from a VB start, {how.warmup + how.n} sweeps of {how.chains} chains (mean of the last {how.n})"

    def calibrate(
        self,
        n: int = 100,
        *,
        size: int = 100,
        level: Literal["q", "linear_response", "draws"] = "q",
        n_ranks: int = 99,
        seed: int = 0,
        draws_options: Mapping[str, Any] | None = None,
        verbose: bool | None = None,
    ) -> Calibration:
        """Whether intervals hold what they promise: simulation-based calibration with the priors of this fit.

        Parameters and ``size`` rows, or times of one sequence, are drawn from the model ``n`` times, the model is fitted to
        each, and the rank of every parameter among ``n_ranks`` draws from its posterior is noted. Where the posterior is right,
        all ranks are equally frequent. Priors that followed from data stay as they are. For mixtures and hidden Markov models.

        Parameters
        ----------
        n, level, n_ranks, seed, draws_options, verbose : as in ``Network.calibrate``
        size : int

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.random.default_rng(0).normal(size=(20, 1))
        >>> model = ng.GaussianMixture(1, covariance=ng.models.hmm.Gaussian(mean_scale=1.0)).fit(X)
        >>> 0.6 < model.calibrate(10, size=10).coverage(0.9)["components"] <= 1.0
        True
        """
        self._check_fitted()
        return calibrate_model(self, n, size, level, n_ranks, seed, dict(draws_options or {}), verbose)

    def _simulated(self, size: int, rng: np.random.Generator) -> tuple[dict[str, Any], Any, Any]:
        """Parameters from the priors of the fit (less their origins), data of so many rows, and their local variables."""
        raise TypeError(f"{type(self).__name__} has no calibrate(): declare the model as a network, which has it")

    def _with_same_priors(self) -> dict[str, Any]:
        """Attributes that have a fit use the priors of this one."""
        return {}

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        """A value of a parameter with its labels in another order."""
        return value[order]

    def _draws_problem(self, X: Any, *args: Any, **data: Any) -> GroupProblem:
        """The problem of groups that the fit was, whose local variables can be drawn."""
        raise TypeError(f"{type(self).__name__} has no draws(): {self._draws_advice}")

    _draws_advice = "declare the model as a network, whose fit has them"

    def _drawn_as(self, problem: Any, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        """The draws as users know the parameters."""
        return factors


def with_locations(factors: dict[str, DrawnFactor], name: str, gaussians: Any, plate: str) -> dict[str, DrawnFactor]:
    """The draws, and those of the means and covariances (of columns or of all: variances) that Gaussian components pack."""
    factor, located = factors[name], dict(factors)
    family, by_column = factor.family, gaussians.by_column
    if family.event_ndim == 1:
        located["means"] = derived(factor, "means", (plate, "column"), lambda x: x[..., 0])
        located["covariances"] = derived(factor, "covariances", (plate, "column"), lambda x: 1.0 / x[..., 1])
    elif family.stat_ndims[1] == 0:  # one mean
        located["means"] = derived(factor, "means", (plate, "column"), lambda x: x[..., 0])
        located["covariances"] = derived(factor, "covariances", (plate,), lambda x: np.linalg.inv(x[..., 1:]))
    elif by_column:
        located["means"] = derived(factor, "means", (plate, "column"), lambda x: x[..., 0, :-1])
        located["covariances"] = derived(factor, "covariances", (plate,), lambda x: 1.0 / x[..., 0, -1])
    else:
        width = gaussians.n_columns
        located["means"] = derived(
            factor, "means", (plate, "column"), lambda x: np.swapaxes(x[:, :, 0, :, :-width], -1, -2)
        )
        located["covariances"] = derived(factor, "covariances", (), lambda x: np.linalg.inv(x[:, :, 0, :, -width:]))
    return located


def drawn_from_priors(problem: GroupProblem, rng: np.random.Generator) -> dict[str, Any]:
    """A value of every global block, less its origin."""
    return {name: block.family.sample(problem.full_prior(name), rng) for name, block in problem.blocks.items()}


def as_means(problem: GroupProblem, name: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """λ whose mean is a value: what simulates at the mean of q then simulates at the value."""
    family = problem.blocks[name].family
    return family.centred(values[name], tuple(np.asarray(part) for part in problem.full_prior(name)))


def calibrate_model(
    model: UncertaintyMixin,
    n: int,
    size: int,
    level: Literal["q", "linear_response", "draws"],
    n_ranks: int,
    seed: int,
    draws_options: dict[str, Any],
    verbose: bool | None,
) -> Calibration:
    """Ranks of parameters that were drawn from the priors of a fitted model, each among draws from its posterior."""
    whole_number(n, "n")
    whole_number(size, "size", least=2)
    whole_number(n_ranks, "n_ranks", least=9)
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    ranks: dict[str, list[Array]] = {}
    failed, trace = 0, Trace()
    with progress_bar(n, verbose) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorMixing)
        warnings.simplefilter("ignore", NotConverged)
        for number in range(n):
            rng = generator(whole_number(seed, "seed", least=0), Stream.SIMULATION, number)
            truth, X, z = model._simulated(size, rng)
            other: Any = copy.copy(model)
            other.__dict__.update(model._with_same_priors(), inference="vb", n_sweeps=None, seed=number, verbose=False)
            try:
                other.fit(X)
                own_ranks = _ranks(other, X, truth, z, level, n_ranks, rng, {"seed": number, **draws_options})
            except (FloatingPointError, ValueError):
                failed += 1
                if failed == n:
                    raise
                continue
            for name, own in own_ranks.items():
                ranks.setdefault(name, []).append(own)
            trace.append(StepRecord(number + 1, np.nan, np.nan, np.nan, 0.0, 0, 0.0))
            bar(trace)
    return Calibration({name: np.stack(own_ranks) for name, own_ranks in ranks.items()}, n_ranks, level, failed)


def _ranks(
    model: Any, X: Array, truth: dict[str, Array], z: Array, level: str, n_ranks: int, rng: np.random.Generator,
    options: dict[str, Any],
) -> dict[str, Array]:  # fmt: skip
    problem = model._draws_problem(X)
    (wanted,) = problem.sampler.probabilities(model._state, len(z)).values()
    agree = np.array([np.bincount(z, wanted[:, k], problem.sampler.n_labels) for k in range(wanted.shape[1])])
    order = best_order(agree, problem.sampler.classes)
    if order is not None:  # true parameters in the order of the fit
        truth = {name: model._renumbered(name, value, order) for name, value in truth.items()}
    origins = {name: 0.0 if b.origin is None else b.origin for name, b in problem.blocks.items()}
    truth = {name: value + origins[name] for name, value in truth.items()}
    if level == "linear_response":
        response = model.linear_response(X)
        return {n: normal_ranks(v, response[n].mean(), response[n].std(), n_ranks) for n, v in truth.items()}
    if level == "q":
        samples = {name: model.posterior_[name].sample(rng, n_ranks) for name in truth}
    else:
        draws = model.draws(X, **{"n": 250, "chains": 2, "warmup": 100, "verbose": False, "starts": "q", **options})
        samples = {name: spaced_draws(draws[name].values, n_ranks) for name in truth}
    return {name: _ranked(value, samples[name], rng) for name, value in truth.items()}


def _ranked(value: Array, samples: Array, rng: np.random.Generator) -> Array:
    """How many samples are smaller; of those that are equal any number, as of a transition that is certain."""
    return np.asarray((samples < value).sum(0) + rng.integers(0, (samples == value).sum(0) + 1))


def missed_by(model: Any, problem: GroupProblem, X: Any, data: Mapping[str, Any], sweeps: int, seed: int) -> list[str]:
    """A sentence, if a fit from another start ends elsewhere, not far below, and chains do not get from one to the other."""
    here: State = model._state
    if sweeps < FEWEST or problem.sampler is None or problem.sampler.n_labels < 2:
        return []
    bound = problem.bound(here)
    best: tuple[float, State] | None = None
    for number in range(STARTS):
        other: Any = copy.copy(model)
        settings = {
            "inference": "vb",
            "n_sweeps": None,
            "seed": seed + 1 + number,
            "n_init": 1,
            "max_passes": PASSES,
            "verbose": False,
        }
        other.__dict__.update(model._with_same_priors(), **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)
            try:
                other.fit(X, **data)
            except (FloatingPointError, ValueError):
                continue  # a start that leads nowhere says nothing of the posterior
        there: State = other._state
        if any(np.shape(a) != np.shape(b) for n in here.lam for a, b in zip(here.lam[n], there.lam[n], strict=True)):
            continue
        gain = problem.bound(there) - bound
        if gain > -FAR and (best is None or gain > best[0]) and not _is_same(problem, here, there, gain):
            best = float(gain), there
    if best is None or not _stay_apart(problem, here, best[1], min(SWEEPS, sweeps // 10), seed):
        return []
    return [words_of(best[0], "fit again with another seed or a larger n_init", "look at fits with other seeds")]


def _is_same(problem: GroupProblem, here: State, there: State, gain: float) -> bool:
    """Whether two fits are at the same place, but for the numbers of components that are alike."""
    sampler = problem.sampler
    if sampler is None or abs(gain) > SAME:
        return False
    agree = np.zeros((sampler.n_labels, sampler.n_labels))
    for one, two in zip(*(sampler.probabilities(s, MOST_COMPARED).values() for s in (here, there)), strict=True):
        agree += one.T @ two
    order = best_order(agree, sampler.classes)
    for name, block in problem.blocks.items():
        lam = there.lam[name] if order is None else sampler.renumbered_message(name, there.lam[name], order)
        away = np.abs(block.family.mean(lam) - block.family.mean(here.lam[name]))
        if (away > 0.5 * np.sqrt(block.family.var(here.lam[name]))).any():
            return False
    return True


def _stay_apart(problem: GroupProblem, here: State, there: State, sweeps: int, seed: int) -> bool:
    sampler, schedule = problem.sampler, Schedule(sweeps, sweeps, 1)
    assert sampler is not None
    some_alike = len(np.unique(sampler.classes)) < sampler.n_labels
    wanted = sampler.probabilities(here, MOST_COMPARED) if some_alike else {}
    gibbs = GroupGibbs(problem, schedule, 2 * EACH, dict.fromkeys(problem.blocks, 1), wanted)
    start = gibbs.start([here.lam] * EACH + [there.lam] * EACH, seed)
    result = few_steps(problem, gibbs, start, schedule.sweeps, seed)
    return any(is_gap(draws[:EACH], draws[EACH:]) for draws in result.state.memory["kept"].values())
