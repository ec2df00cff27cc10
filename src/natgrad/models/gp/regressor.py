"""`SparseGPRegressor`: rows in; predictions with their uncertainty out, for any number of rows.

    f ~ GP(0, k),   y_n ~ p(y | f(x_n));   q(u) = N(m, S) for the values u of f at M inducing inputs

Hensman, Fusi and Lawrence (2013). The loop, the natural steps and the guard are those of every network;
`natgrad.models.gp.problem` has the mathematics.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, Unpack, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from natgrad.data.rows import Rows
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.models.gp.joint import Heteroskedastic, likelihood_named
from natgrad.models.gp.likelihoods import Gaussian, Likelihood, Scaled, is_function
from natgrad.models.gp.outputs import Coregionalised
from natgrad.models.gp.settings import checked_fixed
from natgrad.models.gp.sparse import SparseGP, variance_unit
from natgrad.validation import as_numbers, real_number, whole_number

__all__ = ["SparseGPRegressor"]

Floats = npt.NDArray[np.float64]


@final
@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class SparseGPRegressor(RegressorMixin, SparseGP):
    """Gaussian process regression with inducing inputs, for any number of rows.

    Parameters
    ----------
    kernel : natgrad.covariance function or "auto", optional
        In the units of X and y; its values are where learning starts. (Of several outputs, or with "heteroskedastic" noise, which
        share one kernel, its variance is a part of that of each output.) By default ``RBF(lengthscale=[…])`` with a length scale
        for each column; it starts at √D standard deviations, or shorter where that explains nothing of y. "auto" takes the one of
        RBF, Matérns and sums of them with linear functions, waves, functions of single columns, or categories for columns of few
        values, that has the largest bound after a short fit (a third of ``max_seconds`` at most); `kernel_` says which.
    n_inducing : int or "auto", optional
        Their number, M, by default 200: more are slower and nearer to the exact process. "auto": as leave 0.01 nats a row to
        gain, up to 500.
    likelihood : "gaussian", "student_t", "poisson", "negative_binomial" or "heteroskedastic"
        Counts have the mean μ = exp(f); those of a negative binomial the variance μ + α μ², with α learned (`dispersion_`).
        "heteroskedastic" has Gaussian noise whose logarithm is a second function with the same kernel (`noise_std`).
    inducing : array [M, D], optional
        Where the inducing inputs start, in the units of X; by default k-means++.
    noise_variance : float, optional
        Where the noise starts, in the units of y squared, by default a tenth of its variance; of "negative_binomial" the
        dispersion α, by default 0.1.
    df : float, optional
        Degrees of freedom of "student_t", by default 4.
    outputs : "correlated" or "independent", optional
        Of several columns of y (an error with one): whether what is seen of one tells of the others, Cov(f_p(x), f_q(x')) =
        B_pq k(x, x') with any covariance matrix B (`output_covariance_`). By default they are where the noise is Gaussian, as
        far as correlations gain more than chance, and independent functions with one kernel for other likelihoods. NaN in y is
        an entry that is missing.
    fixed : "kernel", "noise", "inducing", or a list of some of them
        What does not move with the gradient of the bound and stays where it starts.
    solver : Solver, optional
        Batch size, learning rate, optimizer, method, steps, jitter, and whether data are standardised; by default ``Solver()``.
    max_steps, max_seconds : limits
    tol : float
        Nats a row left to gain below which the fit has converged; 0 takes all steps, on batches alone.
    seed : int
    verbose : bool, optional

    Attributes
    ----------
    kernel_, inducing_, noise_variance_ : as learned, in the units of the data
    output_covariance_, output_correlation_ : arrays [P, P], B in the units of y, and B with ones on its diagonal
    elbo_, trace_, stop_, n_steps_ : the bound of log p(y) at the end, its history, why the fit ended
    n_readings_ : how often L-BFGS has read all rows at the end of the fit
    posterior_ : {"v": Factor}, the whitened inducing variables of each output
    jitter_, jitter_raised_ : the largest jitter, and for how many factorisations it was raised

    Examples
    --------
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> model = SparseGPRegressor(n_inducing=10, max_steps=100).fit(x, np.sin(x[:, 0]))
    >>> mean, sd = model.predict([[1.0], [20.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.1), bool(sd[1] > 2 * sd[0])
    (True, True)
    """

    abilities: ClassVar[frozenset[str]] = SparseGP.abilities | {"missing"}  # of several outputs

    likelihood: str = "gaussian"
    _: KW_ONLY
    noise_variance: float | None = None
    df: float | None = None
    outputs: Literal["correlated", "independent"] | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to rows.

        Parameters
        ----------
        X : array or memory map [N, D]; the path of a Parquet file; or an iterator of pairs (X, y)
        y : array [N] or [N, P]; for a Parquet file, the name of the output column, or a list of names
            Of several outputs some may be missing in a row: NaN, None or masked.
        checkpoint, every, resume, callbacks : as in ``Network.fit``
        """
        rows = self._read(X, y, True)
        likelihood = self._own_likelihood()
        self._fit_rows(rows, likelihood, likelihood.standardised, keep)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, *, n_total: float | None = None) -> Self:
        """Steps on the rows of a stream; the first chunk sets the scales and the inducing inputs.

        Parameters
        ----------
        X, y : arrays [N, D], [N] or [N, P]
        n_total : float, optional
            How many rows the stream stands for; by default those seen so far.
        """
        rows = self._read(X, y, not hasattr(self, "_state"))
        likelihood = self._own_likelihood()
        self._partial(rows, likelihood, likelihood.standardised, n_total)
        return self

    def predict(self, X: Any, return_std: bool = False, *, what: Literal["y", "f"] = "y", given: Any = None) -> Any:
        """The mean of new observations, or of the function, [N] or [N, P]; ``return_std``: and the standard deviation.

        Parameters
        ----------
        X : array [N, D]
        what : "y" or "f", observations or the function without noise
        given : array [N, P], optional
            What is known of some outputs of these rows, NaN elsewhere; outputs that are correlated are predicted from it, row by
            row. What is known of an output is its prediction, with standard deviation zero, unless ``what`` is "f".
        """
        if given is not None:
            mean, covariance = self._law(X, given, what)
            var = np.einsum("npp->np", covariance)
        else:
            mean, var = self._observed(*self._latent(X), what)
        shaped = self._shaped(mean)
        return (shaped, self._shaped(np.sqrt(var))) if return_std else shaped

    def predict_cov(self, X: Any, *, what: Literal["y", "f"] = "y", given: Any = None) -> Floats:
        """Covariances of the outputs with one another at each row of X [N, P, P]; ``what`` and ``given`` as in `predict`.

        Examples
        --------
        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> wave = np.sin(x)
        >>> model = SparseGPRegressor(n_inducing=10, max_steps=100).fit(x, np.hstack([wave, -wave]))
        >>> model.predict_cov([[20.0]], what="f")[0, 0, 1] < 0
        np.True_
        """
        return self._law(X, given, what)[1]

    def interval(self, X: Any, mass: float = 0.9, *, what: Literal["y", "f"] = "y") -> tuple[Floats, Floats]:
        """Ends of the central interval of a new observation, or of the function (``what="f"``), with probability ``mass``."""
        if not 0 < real_number(mass, "mass") < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass!r}")
        mean, var = self._latent(X)
        of_f, ends = is_function(what), []
        for level in (0.5 - 0.5 * mass, 0.5 + 0.5 * mass):
            end = (
                self._means(mean) + sp.ndtri(level) * np.sqrt(self._means(var))
                if of_f
                else self._likelihood.quantile_rows(self._psi, level, mean, var)
            )
            ends.append(self._shaped(end * self._y_scaling.sd + self._y_scaling.mean))
        return ends[0], ends[1]

    def sample(self, X: Any, n: int = 1, *, what: Literal["f", "y"] = "f", seed: int | None = None) -> Floats:
        """Joint draws of the function, or of observations, at the rows of X: [n, N] or [n, N, P]."""
        rng = np.random.default_rng(self.seed if seed is None else seed)
        draws = self._latent_draws(X, whole_number(n, "n"), rng)
        if not is_function(what):
            draws = self._likelihood.sample_rows(self._psi, draws, rng)
        draws = self._means(draws) * self._y_scaling.sd + self._y_scaling.mean
        return draws[..., 0] if self._flat else draws

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """Log p(y_n | data) of each row [N], of all its outputs together; of those that are not NaN."""
        x = self._inputs(X)
        targets = self._targets(y, len(x), "y")
        density = self._predictor.log_density(x, self._y_scaling.apply(targets))
        return np.asarray(density - ~np.isnan(targets) @ np.log(self._y_scaling.sd))

    # -- what was learned --

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

    # -- parts --

    def _own_likelihood(self) -> Likelihood:
        if self.df is not None and not real_number(self.df, "df") > 0:
            raise ValueError(f"df must be > 0, got {self.df!r}")
        law = self._with_noise(likelihood_named(self.likelihood, 4.0 if self.df is None else float(self.df)))
        for name, belongs in (("df", law.name == "student_t"), ("noise_variance", law.has_parameter)):
            if (given := getattr(self, name)) is not None and not belongs:
                raise ValueError(f"{name}={given!r} is no setting of likelihood={law.name!r}: leave it out")
        if not getattr(self, "_correlated", False):
            return law
        assert isinstance(law, Gaussian)
        fixed = checked_fixed(self.fixed)
        return Coregionalised(law, "noise" not in fixed, "kernel" not in fixed)

    def _read(self, X: Any, y: Any, reset: bool) -> Rows:
        rows = self._rows(X, y, reset, multi_output=True, y_numeric=True)
        self._flat = rows.n_outputs == 1 and (self._is_stream(X) or np.asarray(y).ndim == 1)
        if reset:
            self._correlated = self._goes_together(rows.n_outputs)
        likelihood = self._own_likelihood()
        for _, outputs in rows.pieces():
            likelihood.check(outputs, "y")
        if rows.gaps and not likelihood.own.skips:
            raise ValueError(f"y has missing entries (NaN), and likelihood={likelihood.name!r} needs whole rows")
        if reset and rows.gaps and len(unseen := np.flatnonzero(rows.n_seen == 0)):
            raise ValueError(
                f"y[:, {unseen[0]}] has no number, all of its entries are missing (NaN): an output must be seen in some rows; "
                "leave the column out"
            )
        return rows

    def _goes_together(self, n_outputs: int) -> bool:
        """Whether outputs are correlated."""
        self._check_choices(besides=("likelihood",))
        if self.outputs is not None and n_outputs == 1:
            raise ValueError(f"outputs={self.outputs!r} is for several columns of y, and y has one: leave it out")
        law = likelihood_named(self.likelihood, 1.0)
        if self.outputs == "correlated" and not isinstance(law, Gaussian):
            raise ValueError(
                f'outputs="correlated" is for likelihood="gaussian", and likelihood is {law.name!r}: others have a function for '
                'each output, outputs="independent"'
            )
        return n_outputs > 1 and isinstance(law, Gaussian) and self.outputs != "independent"

    def _law(self, X: Any, given: Any, what: str) -> tuple[Floats, Floats]:
        """Means [N, P] and covariances [N, P, P] of outputs, in the units of y."""
        x, scale = self._inputs(X), self._y_scaling
        if not isinstance(self._likelihood.own, Gaussian):
            raise ValueError(
                f"covariances of outputs are for Gaussian noise, and likelihood is {self._likelihood.name!r}"
            )
        known = None if given is None else scale.apply(self._targets(given, len(x), "given"))
        mean, covariance = self._predictor.law(x, is_function(what), known)
        return mean * scale.sd + scale.mean, covariance * np.outer(scale.sd, scale.sd)

    def _targets(self, y: Any, n_rows: int, what: str) -> Floats:
        """Outputs of so many rows [N, P], NaN where they are missing."""
        targets = as_numbers(y, what, missing=True)
        targets = targets[:, None] if targets.ndim == 1 else targets
        if targets.shape != (n_rows, len(self._y_scaling.sd)):
            raise ValueError(f"{what} must have shape {(n_rows, len(self._y_scaling.sd))}, got {np.shape(y)}")
        if (bad := np.argwhere(np.isinf(targets))).size:
            raise ValueError(
                f"{what}{bad[0].tolist()} = {targets[tuple(bad[0])]:g} must be finite, or NaN where it is not known"
            )
        return targets

    def _observed(self, mean: Floats, var: Floats, what: str = "y") -> tuple[Floats, Floats]:
        scale = self._y_scaling
        if is_function(what):
            mean, var = self._means(mean), self._means(var)
        else:
            mean, var = self._likelihood.predict_rows(self._psi, mean, var)
        return mean * scale.sd + scale.mean, var * scale.sd**2

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
