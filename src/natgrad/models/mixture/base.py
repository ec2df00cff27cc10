"""`Mixture`, what mixtures of any kind of component share: rows in; components, each row's memberships and densities out.

    π ~ Dir(α),   φ_k ~ conjugate,   z_n ~ Cat(π),   x_n ~ p(x | φ_z)

A mixture says what its priors are (`_prepared`: a NamedTuple with ``alpha``, ``origin`` and ``emission``), what a fit is called
(`_name`), and what a file holds of the priors. Densities, moves that find K, draws, calibration and all that `RowEstimator` does
come from here.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin

from natgrad.inference.problem import State
from natgrad.inference.schema import either
from natgrad.inference.steppers.gibbs import point_stats
from natgrad.models.gaussian_prior import finite_numbers
from natgrad.models.registry import EVERY_MODEL
from natgrad.models.rows import SETTINGS as ROW_SETTINGS
from natgrad.models.rows import RowEstimator, number_of
from natgrad.models.uncertainty import as_means, drawn_from_priors
from natgrad.validation import require, whole_number

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.starts import Starts
    from natgrad.models.mixture.components import MixtureComponents
    from natgrad.models.mixture.problem import MixtureProblem

__all__ = ["SETTINGS", "Mixture"]

Floats = npt.NDArray[np.float64]
# The most components that "auto" finds.
MAX_COMPONENTS = 30
# Draws over which predictions are averaged.
DRAWS_AVERAGED = 100
SETTINGS: dict[str, Any] = {
    **ROW_SETTINGS,
    "n_components": either("'auto' | size component", ("'auto'", "natural")),
    "weight_prior": "none | positive | positive list [component]",
    "inference": "'vb' | 'gibbs'",
    "n_sweeps": "none | natural",
}


@dataclass(repr=False, eq=False)
class Mixture(DensityMixin, RowEstimator, ABC):
    """A mixture without its components; abstract. `GaussianMixture` has the parameters."""

    kind: ClassVar[str] = "mixture"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "n_jobs", "partial_fit", "executor", "draws", "linear_response", "calibrate", "sample_weight", "missing", "predict",
    }  # fmt: skip

    n_components: int | Literal["auto"] | tuple[Literal["auto"], int] = 4
    _: KW_ONLY
    weight_prior: Any = None
    inference: Literal["vb", "gibbs"] = "vb"
    n_sweeps: int | None = None

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

        if self._finds_number:
            return problem.updated(problem.clustered(np.ones((1, problem.n_groups)), [0]))

        return row_starts(problem, len(problem.model.alpha), int(self.seed), int(self.n_init))

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
        super()._publish(model, state)
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
