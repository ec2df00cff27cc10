"""`RatingUncertainty`: a fitted factorisation in; linear response of its vectors, biases, precisions and predictions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings
    from natgrad.inference.engine import Result
    from natgrad.posterior.response.operator import Linearised

__all__ = ["Expected", "RatingUncertainty"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Ratings whose products are made at once.
PAIRS = 50_000


class Expected(NamedTuple):
    """What ratings of some pairs would be without noise, as a function of the vectors "u" and "v", with its derivative."""

    users: Ints
    items: Ints
    n_factors: int
    offset: float

    def __call__(self, means: Any) -> Floats:
        """[pairs]."""
        u, v, k = means["u"][self.users], means["v"][self.items], self.n_factors
        biases = 0.0 if u.shape[1] == k else u[:, k] + v[:, k]
        return np.asarray((u[:, :k] * v[:, :k]).sum(1) + biases + self.offset)

    def derivatives(self, means: Any) -> list[dict[str, Floats]]:
        """Of each pair, by the numbers of all vectors."""
        u, v, derivatives = means["u"], means["v"], []
        for user, item in zip(self.users, self.items, strict=True):
            own = {"u": np.zeros_like(u), "v": np.zeros_like(v)}
            own["u"][user, : self.n_factors], own["v"][item, : self.n_factors] = (
                v[item, : self.n_factors], u[user, : self.n_factors],
            )  # fmt: skip
            own["u"][user, self.n_factors :] = own["v"][item, self.n_factors :] = 1.0
            derivatives.append(own)
        return derivatives


class Densities(NamedTuple):
    """The expected log density of each rating as a function of the moments, but for what does not depend on them."""

    ratings: Ratings
    offset: float
    biases: int
    kind: Any

    def __call__(self, mu: Any) -> dict[str, Any]:
        """½ E log τ − ½ E[τ] E[(y − u·v − biases)²], τ with the noise of its user and item."""
        who, what = self.ratings.users, self.ratings.items
        u, v = mu["u"], mu["v"]
        error = self.ratings.values - self.offset
        tau, log_tau = np.ones(len(who)), np.zeros(len(who))
        for name, place in (("noise", ...), ("user_noise", who), ("item_noise", what)):
            if name in mu:
                tau, log_tau = tau * mu[name][0][place], log_tau + mu[name][1][place]
        if "noise" not in mu:
            tau = tau * self.kind.priors.noise
        mean, square, k = np.zeros(len(who)), np.zeros(len(who)), u[0].shape[1] - self.biases
        for begin in range(0, len(who), PAIRS):
            part = slice(begin, begin + PAIRS)
            x, xx, y, yy = u[0][who[part]], u[1][who[part]], v[0][what[part]], v[1][what[part]]
            mean[part] = (x[:, :k] * y[:, :k]).sum(1)
            square[part] = (xx[:, :k, :k] * yy[:, :k, :k]).sum((1, 2))
            if self.biases:
                mean[part] += x[:, k] + y[:, k]
                square[part] += xx[:, k, k] + yy[:, k, k] + 2.0 * x[:, k] * y[:, k]
                square[part] += 2.0 * ((xx[:, :k, k] * y[:, :k]).sum(1) + (x[:, :k] * yy[:, :k, k]).sum(1))
        return {"rating": 0.5 * log_tau - 0.5 * tau * (error**2 - 2.0 * error * mean + square)}


class RatingUncertainty:
    """``linear_response()`` of `MatrixFactorization`, and what is asked of it."""

    if TYPE_CHECKING:
        _kind: Any
        ratings_: Ratings
        result_: Result
        offset_: float
        _kept_draws: Any

        def _check_fitted(self) -> None: ...
        def _pairs(self, users: Any, items: Any) -> tuple[Any, Any]: ...

    _draws_advice = (
        'a factorisation makes its draws at the end of a fit, and predicts with them: fit with inference="gibbs", then '
        "`draws_` has those of users, items and noise, and predict, interval and recommend are averages over them"
    )

    def _linearised(self, X: Any, **data: Any) -> tuple[Linearised, float, float | None]:
        """Of the ratings that the model holds."""
        from natgrad.posterior.response.linearised import linearised_edges, settled

        if X is not None or data:
            raise TypeError("linear_response() of a factorisation is of the ratings that the model holds: leave X out")
        if self._kept_draws is not None:
            raise TypeError(
                'linear response corrects q, and inference="gibbs" has draws: posterior_ and interval have their spread'
            )
        if self._kind.settings.likelihood != "gaussian":
            raise TypeError(
                f"linear response is for Gaussian ratings, and likelihood={self._kind.settings.likelihood!r} has bounds in their "
                "place, which move with q: declare the model as a network"
            )
        problem = self._kind._problem(self.ratings_)
        state, gained = settled(problem, self.result_.state, problem.order)
        densities = Densities(self.ratings_, float(self.offset_), int(problem.priors.biases), self._kind)
        return linearised_edges(problem, state, problem.order, densities.__call__), gained, None

    def expected(self, users: Any, items: Any) -> Expected:
        """What ratings of pairs would be without noise, as a function of the means that ``linear_response().std`` takes.

        Vectors of users and items can be rotated together where their precisions are alike, and then have no spread of their
        own; inner products do.

        Parameters
        ----------
        users, items : ids as they were given to `fit`, of the same length

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> rng = np.random.default_rng(0)
        >>> table = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(12, 8))
        >>> table[rng.random(table.shape) < 0.4] = np.nan
        >>> model = ng.MatrixFactorization(2, tol=1e-9, verbose=False).fit(table)
        >>> model.linear_response().std(model.expected([0, 1], [3, 3])).shape
        (2,)
        """
        self._check_fitted()
        rows, columns = self._pairs(users, items)
        return Expected(np.asarray(rows), np.asarray(columns), self._kind.n_factors, float(self.offset_))
