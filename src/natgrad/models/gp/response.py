"""A fitted sparse Gaussian process in; how well its data determine kernel and noise out: `HyperResponse`.

A fit has one value of each hyper-parameter h (logarithms of the kernel's parameters and of the noise), where the bound, with the
best q(u) for each h, is largest. That bound is a log marginal likelihood, exact for Gaussian noise and enough inducing inputs;
its curvature says how far h may move: Cov(h) = (−∇²F)⁻¹, for a prior that is flat in h. ∇F needs no derivative of q, which is
at its own optimum; ∇²F is taken by differences of it. Inducing inputs are no parameters of the model, and stay.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from natgrad.errors import NotAtMaximum, NotConverged, PoorApproximation
from natgrad.families._family import tails
from natgrad.inference.problem import GroupResult, State
from natgrad.models.gp import algebra
from natgrad.models.gp.likelihoods import Scaled
from natgrad.models.gp.outputs import Coregionalised
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.settings import Settings
from natgrad.posterior.response.result import correlated_normals
from natgrad.random import sample_generator
from natgrad.threads import one_blas_thread

__all__ = ["NOISE", "HyperResponse", "hyper_response", "information_response"]

Floats = npt.NDArray[np.float64]
Quantity = str | Callable[[Mapping[str, Floats]], Any]
# Steps of differences in a logarithm; of Newton's method, and the nats below which it has arrived; above which the fit had not.
STEP, MOST_STEPS, NEAR, FAR = 1e-4, 30, 1e-8, 0.1
# Updates of q at one h, where it is not found at once, and what still moves then.
MOST_UPDATES, STILL = 500, 1e-9
# A standard deviation of a logarithm with which a 90% interval spans more than seven powers of ten.
UNDETERMINED = 5.0
NOISE = "noise"


@final
@dataclass(frozen=True)
class HyperFactor:
    """One hyper-parameter, whose logarithm is Gaussian: value at the optimum, spread from the curvature there."""

    name: str
    log_mean: Floats
    log_std: Floats

    def mean(self) -> Floats:
        """The value at the optimum of the bound, in the units of the fit's `kernel_` (of noise: of y, squared)."""
        return np.exp(self.log_mean)

    def std(self) -> Floats:
        """The standard deviation, by the derivative of exp."""
        return np.exp(self.log_mean) * self.log_std

    def interval(self, mass: float = 0.9) -> tuple[Floats, Floats]:
        """The central interval of a log-normal law, with probability ``mass``."""
        half = ndtri(tails(mass)[1]) * self.log_std
        with np.errstate(over="ignore"):  # who made it has warned of what the data do not determine
            return np.exp(self.log_mean - half), np.exp(self.log_mean + half)


def information_response(
    names: Sequence[str], at: Sequence[Any], moves: npt.NDArray[np.bool_], information: Floats
) -> HyperResponse:
    """The response of logarithms ``at``, by name, whose elements have an information [h, h]; ``moves`` [h] are learned."""
    if not moves.any():
        raise ValueError("no hyper-parameter was learned: kernel and noise are fixed, and nothing can move")
    covariance = np.asarray(np.linalg.inv(information[np.ix_(moves, moves)]), np.float64)
    sd, factors, places, begin, end = np.sqrt(np.diagonal(covariance)), {}, {}, 0, 0
    for name, value in zip(names, at, strict=True):
        learned = bool(moves[begin])
        begin += np.size(value)
        if learned:
            places[name] = slice(end, end := end + np.size(value))
            factors[name] = HyperFactor(name, np.asarray(value), sd[places[name]].reshape(np.shape(value)))
    warn_of_undetermined(factors, {NOISE: ". Where y has no noise, give noise_variance= and keep it fixed"})
    return HyperResponse(factors, covariance, 0.0, places)


def warn_of_undetermined(factors: Mapping[str, HyperFactor], advice: Mapping[str, str]) -> None:
    """Say which hyper-parameters have intervals over many powers of ten; ``advice`` says of some what to do."""
    for name, factor in factors.items():
        if (spread := float(np.max(factor.log_std))) > UNDETERMINED:
            value = float(np.ravel(factor.mean())[0])
            words = (
                f"linear_response: the data do not determine {name!r}, which is {value:.3g}: its logarithm "
                f"has a standard deviation of {spread:.3g}, and its interval says nothing"
            )
            warnings.warn(words + advice.get(name, ""), PoorApproximation, stacklevel=3)


@final
@dataclass(frozen=True)
class HyperResponse(Mapping[str, HyperFactor]):
    """Standard deviations, intervals and correlations of hyper-parameters: ``lr["RBF.lengthscale"].interval(0.9)``.

    Attributes
    ----------
    covariance : array [p, p], of the logarithms of all of them, one after the other
    left : float, nats that the fit was below the optimum with its inducing inputs held
    """

    factors: Mapping[str, HyperFactor]
    covariance: Floats
    left: float
    _places: Mapping[str, slice] = field(repr=False)
    _told: Callable[[Floats], Floats] | None = field(default=None, repr=False)

    def __getitem__(self, name: str) -> HyperFactor:
        if name not in self.factors:
            raise KeyError(f"{name!r} is no hyper-parameter that was learned; these are {', '.join(self.factors)}")
        return self.factors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.factors)

    def __len__(self) -> int:
        return len(self.factors)

    def mean(self, quantity: Quantity) -> Floats:
        """The value at the optimum, of a hyper-parameter or of a function of all of them by name."""
        return self._asked(quantity)[0]

    def cov(self, first: Quantity, second: Quantity) -> Floats:
        """Covariances of every element of one quantity with every element of another, by their derivatives."""
        (one, left), (two, right) = self._asked(first), self._asked(second)
        return np.asarray(left @ self.covariance @ right.T).reshape(one.shape + two.shape)

    def var(self, quantity: Quantity) -> Floats:
        """The variance of each element."""
        value, slopes = self._asked(quantity)
        return np.asarray(np.einsum("ip,pq,iq->i", slopes, self.covariance, slopes)).reshape(value.shape)

    def std(self, quantity: Quantity) -> Floats:
        """The standard deviation of each element: ``lr.std(lambda m: m["noise"] / m["RBF.variance"])``."""
        return np.sqrt(self.var(quantity))

    def interval(self, quantity: Quantity, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Of a hyper-parameter that of a log-normal law, of a function that of a Gaussian, with probability ``mass``."""
        if not callable(quantity):
            return self[quantity].interval(mass)
        value, half = self.mean(quantity), ndtri(tails(mass)[1]) * self.std(quantity)
        return value - half, value + half

    def correlation(self, first: Quantity, second: Quantity) -> Floats:
        """Of each element of one with each of the other."""
        return np.asarray(self.cov(first, second) / np.multiply.outer(self.std(first), self.std(second)))

    def influence(self, quantity: Quantity) -> dict[str, Floats]:
        """How far each row moves a quantity: the derivative by its weight in the likelihood, {"row": [axes of it, rows]}.

        The infinitesimal jackknife: −influence is, to first order, the change if the row were left out.
        """
        if self._told is None:
            raise ValueError(
                "influence is not known of rows along time: leave rows out and fit again, or use SparseGPRegressor"
            )
        value, slopes = self._asked(quantity)
        rows = np.array([self._told(self.covariance @ slope) for slope in slopes])
        return {"row": rows.reshape(*value.shape, -1)}

    def _asked(self, quantity: Quantity) -> tuple[Floats, Floats]:
        """The value, and the derivative [elements, p] by the logarithms."""
        if not callable(quantity):
            value = self[quantity].mean()
            slopes = np.zeros((value.size, len(self.covariance)))
            slopes[:, self._places[quantity]] = np.diag(value.ravel())
            return value, slopes

        def at(change: Floats) -> Floats:
            moved = {
                name: np.exp(f.log_mean + change[self._places[name]].reshape(np.shape(f.log_mean)))
                for name, f in self.factors.items()
            }
            return np.asarray(quantity(moved), np.float64)

        steps = STEP * np.eye(len(self.covariance))
        value = at(np.zeros(len(self.covariance)))
        columns = [np.ravel(at(step) - at(-step)) / (2.0 * STEP) for step in steps]
        if not np.all(np.isfinite(value)) or not np.all(np.isfinite(columns)):
            raise ValueError("the function, or its derivative, is not finite at the hyper-parameters")
        return value, np.stack(columns, axis=1)

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> dict[str, Floats]:
        """Joint draws [n, …] of all of them, or one [1, …]: Gaussian in the logarithms."""
        generator, n = sample_generator(rng, n, "linear response"), n or 1
        sd, normal = correlated_normals(self.covariance, n, generator)
        drawn = sd * normal
        return {
            name: np.exp(f.log_mean + drawn[:, self._places[name]].reshape((n, *np.shape(f.log_mean))))
            for name, f in self.factors.items()
        }


def hyper_response(
    problem: GPProblem, state: State, units: Mapping[str, Floats], given_up: float = 0.0
) -> HyperResponse:
    """The response of all hyper-parameters that the fit learned, with ``units`` added to their logarithms.

    Nats that the fit gave up after that are no sign of a short one.
    """
    with one_blas_thread():
        bound = _Collapsed(*_with_mixing_held(problem, state))
        if not len(bound.start):
            raise ValueError("no hyper-parameter was learned: kernel and noise are fixed, and nothing can move")
        at, hessian, left = _optimum(bound)
    if left > FAR + given_up:
        warnings.warn(
            f"the fit was {left:.2g} nats below the optimum of its hyper-parameters, and these are of the optimum. Fit with a "
            "smaller tol, or more steps",
            NotConverged,
            stacklevel=3,
        )
    covariance = np.asarray(np.linalg.inv(-hessian), np.float64)
    sd, factors = np.sqrt(np.diagonal(covariance)), {}
    for name, place in bound.places.items():
        values = at[place].reshape(bound.shapes[name])
        if name == NOISE:
            values = np.log([problem.likelihood.own.variance(float(p)) for p in values])  # type: ignore[attr-defined]
        factors[name] = HyperFactor(
            name, np.asarray(values) + units.get(name, 0.0), sd[place].reshape(bound.shapes[name])
        )

    def told(direction: Floats) -> Floats:
        length = float(np.abs(direction).max()) or 1.0
        with one_blas_thread():
            up, down = (bound.rows(at + sign * (STEP / length) * direction) for sign in (1.0, -1.0))
        return np.asarray((up - down) * (length / (2.0 * STEP)))

    warn_of_undetermined(factors, {})
    return HyperResponse(factors, covariance, left, dict(bound.places), told)


def _with_mixing_held(problem: GPProblem, state: State) -> tuple[GPProblem, State]:
    """Outputs that go together by the B of the fit, whatever kernel and noise are."""
    likelihood, settings = problem.likelihood, state.hyper["settings"]
    own, mixing = likelihood.parts(np.asarray(settings.psi))
    if mixing is None:
        return problem, state
    assert isinstance(likelihood.own, Scaled)
    learned = problem.learned._replace(noise=isinstance(likelihood, Coregionalised) and likelihood.moves_noise)
    held = GPProblem(
        problem.data, problem.kernel, Coregionalised(likelihood.own, held=mixing), n_inducing=problem.n_inducing,
        learned=learned, jitter=problem.jitter, population=problem.population, offset=problem.offset, joint=True,
    )  # fmt: skip
    return held, held.widened(state._replace(hyper={"settings": settings._replace(psi=own, adam=None)}))


class _Collapsed:
    """The bound as a function of h alone: q(u) is at its optimum for each."""

    def __init__(self, problem: GPProblem, state: State) -> None:
        self.problem, self.state = problem, state
        settings, learned = state.hyper["settings"], problem.learned
        parts: dict[str, Floats] = {}
        if learned.kernel:
            for name, value in zip(problem.kernel.names, settings.theta, strict=True):
                parts[name] = np.asarray(value, np.float64)
        self.n_theta = len(parts)
        if learned.noise and isinstance(problem.likelihood.own, Scaled):  # others than a scale stay
            parts[NOISE] = np.asarray(settings.psi, np.float64)
        self.shapes = {name: np.shape(value) for name, value in parts.items()}
        ends = np.cumsum([0, *(value.size for value in parts.values())])
        self.places = {name: slice(int(a), int(b)) for name, a, b in zip(parts, ends[:-1], ends[1:], strict=True)}
        self.start = np.concatenate([np.ravel(value) for value in parts.values()]) if parts else np.zeros(0)

    def _settings(self, h: Floats) -> Settings:
        old: Settings = self.state.hyper["settings"]
        arrays = [h[place].reshape(self.shapes[name]) for name, place in self.places.items()]
        theta = tuple(arrays[: self.n_theta]) if self.n_theta else old.theta
        return Settings(theta, old.inducing, arrays[-1] if NOISE in self.places else old.psi, old.adam)

    def rows(self, h: Floats) -> Floats:
        """What each row adds to the bound, E log p(y_n | f_n), at the best q."""
        state, _ = self._at(h)
        settings, q, values = state.hyper["settings"], self.problem.marginal(state), []
        for batch in self.problem._pieces(settings):
            mean = np.array([batch.a.T @ m for m in q.mean]) + self.problem.offset[:, None]
            pairs = zip(q.covariance, q.scale, strict=True)
            spread = np.array(
                [b * batch.k_nn + np.einsum("mn,mn->n", batch.a, c @ batch.a - b * batch.a) for c, b in pairs]
            )
            said = self.problem.likelihood.expected_rows(np.ravel(settings.psi), batch.y, mean, np.maximum(spread, 0.0))
            values.append(np.reshape(said.value, (-1, len(batch.x))).sum(0))
        return np.concatenate(values)

    def _words(self, h: Floats) -> str:
        return ", ".join(f"{name} = {np.exp(np.ravel(h[place])[0]):.3g}" for name, place in self.places.items())

    def _at(self, h: Floats) -> tuple[State, float]:
        """The best q, and the bound; steps are halved where they would lower it, as whole ones from far away can."""
        problem, settings = self.problem, self._settings(h)
        state = self.state._replace(hyper={"settings": settings})
        rho, value = problem.likelihood.stride, -np.inf if problem.conjugate else float(problem.bound(state))
        for _ in range(MOST_UPDATES):
            after = problem.centred(problem.sweep(state, rho=rho).state)
            reached = float(problem.bound(after))
            gain, still = reached - value, STILL * max(1.0, abs(reached))
            if gain < -still:
                rho *= 0.5
                continue
            state, value = after, reached
            if problem.conjugate or gain < rho * still:
                break
        else:
            raise NotConverged(
                f"q(u) does not settle while hyper-parameters are held at {self._words(h)}: linear response has no optimum to "
                "start from. The classes or counts may be told apart so well that the variance of the kernel has no end: hold it "
                '(fixed="kernel"), or ask a probit model, or predictions, which do not need it'
            )
        return state, value

    def __call__(self, h: Floats) -> tuple[float, Floats]:
        """The bound and its slope."""
        problem, (state, value) = self.problem, self._at(h)
        settings = state.hyper["settings"]
        scale = problem.population / problem.n_groups
        slopes = [np.zeros(np.shape(part)) for part in (*settings.theta, settings.psi)]
        for batch in problem._pieces(settings):
            rows = (batch, algebra.totals(batch)) if problem.summed else (batch,)
            gradient = problem.gradient(state, GroupResult(rows, {}, 0.0, 1, len(batch.x)), scale)
            pulled = problem.matrices.pulled(settings, batch.x, gradient)
            slopes = [a + np.asarray(b) for a, b in zip(slopes, (*pulled.theta, pulled.psi), strict=True)]
        chosen = [*(slopes[:-1] if self.n_theta else []), *(slopes[-1:] if NOISE in self.places else [])]
        return value, np.concatenate([np.ravel(part) for part in chosen])


def _optimum(bound: _Collapsed) -> tuple[Floats, Floats, float]:
    """H at the optimum by Newton's method, the Hessian there, and the nats on the way."""
    h = bound.start
    first, slope = value, slope = bound(h)
    for _ in range(MOST_STEPS):
        hessian = _hessian(bound, h)
        curvatures, turn = np.linalg.eigh(hessian)
        scale = np.maximum(np.abs(curvatures), 1e-6 * np.abs(curvatures).max())
        step = turn @ ((turn.T @ slope) / scale)
        gain = 0.5 * float(slope @ step)
        if gain < NEAR:
            break
        length = 1.0
        while True:
            trial, new = bound(h + length * step)
            if trial > value or length < 1e-4:
                break
            length *= 0.5
        if trial <= value:
            break  # to rounding
        h, value, slope = h + length * step, trial, new
    if curvatures[-1] >= -1e-8 * max(1.0, -curvatures[0]):
        worst = np.abs(turn[:, -1])
        names = [name for name, place in bound.places.items() if (worst[place] > 0.3).any()]
        raise NotAtMaximum(
            f"the bound is flat in, or rises with, {' and '.join(names)}: the data do not determine it, and it has no standard "
            'deviation. Keep it with fixed="kernel" or fixed="noise", or leave a column out'
        )
    return h, hessian, value - first


def _hessian(bound: _Collapsed, h: Floats) -> Floats:
    """Differences of the slope."""
    columns = [bound(h + STEP * e)[1] - bound(h - STEP * e)[1] for e in np.eye(len(h))]
    differences = np.array(columns) / (2.0 * STEP)
    return 0.5 * (differences + differences.T)
