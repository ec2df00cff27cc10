"""Fit a Gaussian process whose function is integrated out: natural steps on a log likelihood, rows that the model holds.

    θ ← θ + ρ I⁻¹ ∇ log p(y | θ)          θ: logarithms of the kernel's parameters, and of the noise

`StateSpaceGP` (an exact process along one input) and `VecchiaGPRegressor` (nearest rows) have the likelihood, its slope and its
information I; reading, steps, predictions, files and updates are the same for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, Unpack, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp
from sklearn.base import RegressorMixin

from natgrad.covariance import Covariance
from natgrad.data.held import HeldRows
from natgrad.data.rows import joined_pairs
from natgrad.inference.engine import Phase
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.inference.problem import Block, Problem, State
from natgrad.inference.schema import refuse, state_of
from natgrad.inference.steppers.stepper import Score, ScoringStepper
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.gp.likelihoods import is_function
from natgrad.models.gp.response import NOISE, HyperResponse, information_response
from natgrad.models.gp.settings import FIXABLE, LOG, WIDE, checked_fixed, settings_table, stored_kernel
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior
from natgrad.validation import OnlyWhere, real_number, whole_number

__all__ = ["ScoredGP", "ScoredProblem"]

Floats = npt.NDArray[np.float64]
ADVICE = "raise max_steps, or call continue_fit()"


class ScoredProblem(Problem):
    """A log likelihood of hyper-parameters θ; it has no blocks."""

    kernel: Covariance
    y: Floats
    blocks: ClassVar[Mapping[str, Block]] = {}  # type: ignore[misc]

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All rows."""
        return {"y": len(self.y)}

    @abstractmethod
    def score(self, h: Floats) -> Score:
        """The log likelihood, its slope and its information."""

    @final
    def kernel_at(self, h: Floats) -> Covariance:
        """The kernel with the values of h."""
        parts, begin = [], 0
        for part in self.kernel.theta:
            end = begin + np.size(part)
            parts.append(h[begin:end].reshape(np.shape(part)))
            begin = end
        return self.kernel.at(parts)

    @final
    def start(self, h: Any) -> State:
        """The state that a run begins with."""
        return State({}, {}, 0, hyper={"h": np.asarray(h, dtype=np.float64)})


class ScoredGP(RegressorMixin, Estimator, ABC):
    """The common part; abstract."""

    kind: ClassVar[str] = "process"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {"linear_response", "predict"}
    # How the likelihood is read, for `inference_`; the attribute that has it; what a file holds besides.
    _named: ClassVar[str]
    _likelihood_name: ClassVar[str]
    kernel: Any
    kernel_: Covariance
    noise_variance: float | None
    noise_variance_: float
    mean_: float
    fixed: str | Sequence[str]
    seed: int
    n_steps_: int
    n_rows_seen_: int
    _h: Floats

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to rows and numbers [N], or to an iterator of such pairs, all of which are held.

        ``checkpoint``, ``every``, ``resume`` and ``callbacks`` are those of ``Network.fit``.
        """
        self._check_settings()
        if isinstance(X, Iterator):
            X, y = joined_pairs(X, y)
        self._fit_rows(*self._read(X, y, reset=True), None, keep)
        return self

    @OnlyWhere(
        lambda model: False,
        "would let rows go, and predictions need them: update(X, y) takes more rows, from what was learned",
    )
    def partial_fit(self, X: Any, y: Any) -> Self:
        """There is none: `update` takes more rows."""
        raise NotImplementedError

    @all_or_nothing
    def continue_fit(self, X: Any, y: Any, max_steps: int | None = None) -> Self:
        """Continue from the end of the last fit, on the same rows, for ``max_steps`` further steps."""
        self._check_fitted()
        self._check_settings()
        self._fit_rows(*self._read(X, y, reset=False), self._h, {}, max_steps)
        return self

    def predict(self, X: Any, return_std: bool = False, *, what: Literal["y", "f"] = "y") -> Any:
        """The mean at rows [N] (of new observations, or of the function: the same); ``return_std``: and standard deviations."""
        mean, var = self._latent(X)
        if not is_function(what):
            var = var + self.noise_variance_
        return (mean, np.sqrt(var)) if return_std else mean

    def interval(self, X: Any, mass: float = 0.9, *, what: Literal["y", "f"] = "y") -> tuple[Floats, Floats]:
        """Ends of the central interval of a new observation, or of the function (``what="f"``), with probability ``mass``."""
        if not 0 < real_number(mass, "mass") < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass!r}")
        mean, sd = self.predict(X, return_std=True, what=what)
        half = float(sp.ndtri(0.5 + 0.5 * mass)) * sd
        return mean - half, mean + half

    def sample(self, X: Any, n: int = 1, *, what: Literal["f", "y"] = "f", seed: int | None = None) -> Floats:
        """Joint draws of the function, or of observations, at the rows of X: [n, N]."""
        self._check_fitted()
        rng = np.random.default_rng(self.seed if seed is None else seed)
        draws = self._drawn_functions(X, whole_number(n, "n"), rng)
        if not is_function(what):
            draws = draws + np.sqrt(self.noise_variance_) * rng.standard_normal(draws.shape)
        return draws

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """Log p(y_n | data) of each row [N]."""
        mean, sd = self.predict(X, return_std=True)
        given = np.asarray(y, dtype=np.float64)
        if given.shape != mean.shape:
            raise ValueError(f"y must have shape {mean.shape}, got {given.shape}")
        return np.asarray(-0.5 * (np.log(2.0 * np.pi * sd**2) + ((given - mean) / sd) ** 2))

    def linear_response(self, X: Any = None, y: Any = None) -> HyperResponse:  # type: ignore[override]
        """How well the data determine kernel and noise, from the information in them: logarithms are Gaussian.

        Parameters
        ----------
        X, y : not needed, since the model holds its rows
        """
        self._check_fitted()
        information = self._scored_problem().score(self._h).information
        at = [*self.kernel_.theta, np.log(self.noise_variance_)]
        return information_response([*self.kernel_.names, NOISE], at, self._moves(len(self._h)), information)

    _draws_advice = "sample(X, n) draws functions, and linear_response().sample() hyper-parameters"

    @property
    def inference_(self) -> str:
        """Which inference was run, and after a comma its schedule."""
        self._check_fitted()
        return f"{self._named}, {self.n_steps_:,} steps"

    # -- hooks --

    @abstractmethod
    def _read(self, X: Any, y: Any, reset: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Checked rows [N, D] and numbers [N]."""

    @abstractmethod
    def _fit_rows(
        self, x: Any, y: Any, start: Floats | None, options: FitOptions, max_steps: int | None = None
    ) -> None:
        """Make the problem of these rows, run, and hold the rows."""

    @abstractmethod
    def _scored_problem(self) -> ScoredProblem:
        """The problem of the fit."""

    @abstractmethod
    def _latent(self, X: Any) -> tuple[Floats, Floats]:
        """Mean and variance of the function, in the units of y."""

    @abstractmethod
    def _drawn_functions(self, X: Any, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of the function [n, N], in the units of y."""

    # -- parts --

    def _steps(
        self, problem: ScoredProblem, h: Floats, options: FitOptions, max_steps: int | None, share: float | None
    ) -> State:
        """Natural steps from h; publish the result."""
        limit = whole_number(self.max_steps if max_steps is None else max_steps, "max_steps")
        result = self._run(
            Phase(problem, stepper=ScoringStepper(problem, self._moves(len(h)))), problem.start(h),
            self._limits(share, ADVICE, max_steps=limit), problem, options=options,
            table=lambda: (state_of({}, hyper={"h": f"real [theta] {LOG}"}), {"theta": len(h)}),
        )  # fmt: skip
        self._publish(problem, result.state)
        return result.state

    def _publish(self, problem: Any, state: State) -> None:
        self._state, self._h, self.n_steps_ = state, np.asarray(state.hyper["h"]), state.t
        self.n_rows_seen_, self.posterior_ = len(problem.y), Posterior({}, axes={})

    @property
    def _held(self) -> tuple[str, ...]:
        return checked_fixed(self.fixed, FIXABLE[:2])

    def _moves(self, size: int) -> npt.NDArray[np.bool_]:
        return np.array(["kernel" not in self._held] * (size - 1) + ["noise" not in self._held])

    def _check_settings(self) -> None:
        self._check_from_table()
        checked_fixed(self.fixed, FIXABLE[:2])

    def _more(self, X: Any, y: Any = None) -> HeldRows:
        x, numbers = self._read(X, y, reset=False)
        return HeldRows((x, numbers[:, None]))

    def _go_on(self, held: HeldRows) -> None:
        self._check_settings()
        x, y = (np.asarray(part) for part in held.arrays)
        self._fit_rows(x, y[:, 0], self._h, {})

    # -- files --

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**settings_table(cls._check_kernel), "noise_variance": "none | positive"}

    @classmethod
    def _fitted_table(cls, columns: str = "size column") -> dict[str, Any]:
        """The table of what every file holds."""
        along = {
            "n_features_in_": columns,
            "feature_names_in_?": "ids [_]",
            cls._likelihood_name: "float",
            "trace_": Trace,
            "stop_": Stop,
        }
        return {
            "h": f"real [theta] {LOG}",
            "t": "whole in [0, 1e12]",
            "y": f"real [row] {WIDE}",
            "fitted": along,
            "kernel": cls._check_kernel,
        }

    @classmethod
    def _check_kernel(cls, value: Any, sizes: dict[str, int], where: str) -> None:
        stored_kernel(value, sizes, where)

    @staticmethod
    def _check_theta(value: Mapping[str, Any], sizes: Mapping[str, int], where: str) -> None:
        if sizes["theta"] != sum(map(np.size, value["kernel"].theta)) + 1:
            refuse(where, f"has {sizes['theta']} parameters of kernel and noise")

    def _saved(self) -> dict[str, Any]:
        kept = ("n_features_in_", "feature_names_in_", self._likelihood_name, "trace_", "stop_")
        fitted = {name: getattr(self, name) for name in kept if hasattr(self, name)}
        return {"h": self._h, "t": self.n_steps_, "fitted": fitted, **self._saved_rows()}

    @abstractmethod
    def _saved_rows(self) -> dict[str, Any]:
        """Rows and kernel as a file holds them."""
