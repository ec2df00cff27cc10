"""`UncertaintyMixin`: a fitted ready model in; linear response and posterior draws of its parameters out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from natgrad.errors import NotConverged
from natgrad.inference.options import CheckpointOptions
from natgrad.posterior.draws import derived
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.inference.problem import GroupProblem, State
    from natgrad.posterior.calibration import Calibration
    from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings
    from natgrad.posterior.export import Posterior
    from natgrad.posterior.response.operator import Linearised
    from natgrad.posterior.response.result import LinearResponse

__all__ = ["UncertaintyMixin", "as_means", "drawn_from_priors", "with_locations"]


# Sweeps of each chain of ``inference="gibbs"`` if ``n_sweeps`` is None; the second half of them counts.
GIBBS_SWEEPS, GIBBS_CHAINS = 500, 4


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
        from natgrad.models.rivals import missed_by
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
            keep=cast(CheckpointOptions, keep),
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
        cast(Any, self)._publish(self._model_, self._state._replace(lam=lam, mu=mu))
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
        from natgrad.models.calibrate import calibrate_model

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
    if family.name == "NormalGamma":
        located["means"] = derived(factor, "means", (plate, "column"), lambda x: x[..., 0])
        located["covariances"] = derived(factor, "covariances", (plate, "column"), lambda x: 1.0 / x[..., 1])
    elif family.name == "NormalWishart":
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
