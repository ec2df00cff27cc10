"""What a sparse Gaussian process regressor has learned besides the function: noise, covariances of outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from natgrad.models.gp.base import SparseGP
from natgrad.models.gp.joint import Heteroskedastic
from natgrad.models.gp.likelihood import Scaled
from natgrad.models.gp.starting import variance_unit

__all__ = ["LearnedNoise"]

Floats = npt.NDArray[np.float64]


class LearnedNoise(SparseGP):
    """Noise and covariances of outputs; abstract."""

    _flat: bool

    def noise_std(self, X: Any) -> Floats:
        """The standard deviation of the noise at the rows of X [N] or [N, P]: of likelihood="heteroskedastic" √E[σ²(x)].

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(0, 6, (300, 1))
        >>> y = np.sin(x[:, 0]) + (0.05 + 0.1 * x[:, 0]) * rng.normal(size=300)
        >>> model = ng.SparseGPRegressor(n_inducing=15, likelihood="heteroskedastic", max_steps=300).fit(x, y)
        >>> quiet, loud = model.noise_std([[0.5], [5.5]])
        >>> bool(quiet < 0.2 < 0.4 < loud)
        True
        """
        mean, var = self._latent(X)
        likelihood = self._likelihood
        if isinstance(likelihood, Heteroskedastic):
            noise = likelihood.predict_rows(self._psi, mean, var)[1] - self._means(var)
            return self._shaped(np.sqrt(noise) * self._y_scaling.sd)
        return self._shaped(np.broadcast_to(np.sqrt(self.noise_variance_), (len(mean), len(self._y_scaling.sd))).copy())

    @property
    def noise_variance_(self) -> Floats:
        """σ² of each output, in its units squared; for "student_t" the squared scale."""
        return self._variances("noise variance") * self._y_scaling.sd**2

    @property
    def output_covariance_(self) -> Floats:
        """B [P, P] in the units of y: Cov(f_p(x), f_q(x')) = B_pq `kernel_`(x, x'); of one output [[1]].

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> model = ng.SparseGPRegressor(n_inducing=10, max_steps=100).fit(x, np.hstack([np.sin(x), -2 * np.sin(x)]))
        >>> bool(model.output_covariance_[0, 1] < 0), bool(model.output_correlation_[0, 1] < -0.9)
        (True, True)
        """
        check_is_fitted(self)
        sd, mixing = self._y_scaling.sd, self._predictor.mixing
        sd = sd / np.sqrt(variance_unit(self._y_scaling, self._likelihood))  # which `kernel_` has
        return np.asarray(np.outer(sd, sd) * (np.eye(len(sd)) if mixing is None else mixing @ mixing.T))

    @property
    def output_correlation_(self) -> Floats:
        """Correlations of the functions of the outputs [P, P]; of the functions, not of their noise."""
        covariance = self.output_covariance_
        sd = np.sqrt(np.diagonal(covariance))
        return np.asarray(covariance / np.outer(sd, sd))

    @property
    def dispersion_(self) -> Floats:
        """α of each output with likelihood="negative_binomial": counts of mean μ have the variance μ + α μ²."""
        return self._variances("dispersion")

    # -- parts --

    @property
    def _psi(self) -> Floats:
        return np.asarray(self._predictor.settings.psi)

    def _means(self, functions: Floats) -> Floats:
        """Of all functions [..., F], those that are means of the columns of y."""
        return functions[..., : len(self._y_scaling.sd)]

    def _shaped(self, values: Floats) -> Floats:
        return values[:, 0] if self._flat else values

    def _variances(self, what: str) -> Floats:
        check_is_fitted(self)
        likelihood = self._likelihood.own
        if not isinstance(likelihood, Scaled) or likelihood.parameter != what:
            hint = ": it varies, and noise_std(X) has it" if isinstance(likelihood, Heteroskedastic) else ""
            raise AttributeError(f"likelihood {likelihood.name!r} has no {what}{hint}")
        return np.array([likelihood.variance(float(psi)) for psi in self._likelihood.parts(self._psi)[0]])
