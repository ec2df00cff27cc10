"""Where a fit of a sparse Gaussian process starts: rows in; the problem and its first settings out."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance
from natgrad.data.rows import Rows, Scaling
from natgrad.models.gp import choosing
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.reading import GPReading
from natgrad.models.gp.settings import Learned, Settings
from natgrad.random import Stream, generator
from natgrad.threads import one_blas_thread
from natgrad.validation import whole_number

__all__ = ["GPStarting", "variance_unit"]

Floats = npt.NDArray[np.float64]
# Rows that the offset is taken from.
MOST_STARTING_ROWS = 20_000
# Rows that say whether the first kernel is fine enough: a matrix is decomposed, in a twentieth of a second.
FEW = 400
# Of the variance of y, what is noise at first; of counts, the dispersion.
FIRST_NOISE = 0.1


def variance_unit(y_scaling: Scaling, likelihood: Likelihood) -> float:
    """The square of the unit of f, which a kernel's variance has; 1 where functions of several units share a kernel."""
    alone = likelihood.standardised and likelihood.n_functions(len(y_scaling.sd)) == 1
    return float(y_scaling.sd[0]) ** 2 if alone else 1.0


class GPStarting(GPReading):
    """The kernel and inducing inputs; abstract."""

    def _held_out(self, rows: Rows) -> tuple[Rows, Rows | None]:
        """The rows to learn from, and those that judge; the same for the same seed."""
        if not self.validation_fraction:
            return rows, None
        return rows.split(
            self.validation_fraction, generator(whole_number(self.seed, "seed", least=0), Stream.START, 1)
        )

    def _clock(self, began: float) -> Callable[[], bool]:
        """Whether there is time to choose among kernels: a third of all."""
        until = np.inf if self.max_seconds is None else began + float(self.max_seconds) / 3.0
        return lambda: time.perf_counter() < until

    def _scaled(self, rows: Rows, outputs: bool) -> Rows:
        """Rows with their columns standardised, as the settings say."""
        if not self.standardize:
            return rows
        rows = rows.standardised(outputs)
        if not isinstance(self.kernel, Covariance):
            return rows
        # Units in which the kernel that was given is one of the same kind.
        scale = self.kernel.units(rows.x_scaling.sd)
        if scale is not None:
            return rows.scaled_by(rows.x_scaling._replace(sd=scale), rows.y_scaling)
        none = Scaling.none(rows.n_columns)
        return rows.scaled_by(none, rows.y_scaling._replace(sd=np.ones(rows.n_outputs)))

    def _begun(
        self,
        rows: Rows,
        likelihood: Likelihood,
        seed: int,
        in_time: Callable[[], bool],
        population: float | None = None,
    ) -> tuple[GPProblem, Settings]:
        """The problem and the settings it starts with."""
        sample = rows.take(None if len(rows) <= MOST_STARTING_ROWS else np.arange(MOST_STARTING_ROWS))[1]
        offset = likelihood.offsets(sample)
        if self.kernel == "auto" or self.n_inducing == "auto":
            kernel, settings = self._chosen(rows, likelihood, seed, offset, in_time)
        else:
            kernel = self._first_kernel(rows, likelihood, seed)
            settings = self._first_settings(kernel, self._first_inducing(rows, seed), rows, likelihood)
        return self._problem(rows, kernel, likelihood, len(settings.inducing), offset, population), settings

    def _first_kernel(self, rows: Rows, likelihood: Likelihood, seed: int) -> Covariance:
        kernel = choosing.usual(rows.n_columns) if self.kernel is None else self.kernel
        if self.kernel is None and self.learn_kernel:
            few = generator(seed, Stream.START, 6).permutation(len(rows))[:FEW]
            with one_blas_thread():
                kernel = choosing.fine_enough(*rows.take(np.sort(few)))
        if not isinstance(kernel, Covariance):
            raise TypeError(f'kernel must be a natgrad.covariance function, "auto" or None, got {kernel!r}')
        kernel.check(rows.n_columns)
        if self.kernel is None or kernel.units(rows.x_scaling.sd) is None:
            return kernel
        return kernel.in_units(rows.x_scaling.mean, rows.x_scaling.sd, variance_unit(rows.y_scaling, likelihood))

    def _first_settings(self, kernel: Covariance, inducing: Floats, rows: Rows, likelihood: Likelihood) -> Settings:
        some = rows.take(np.arange(min(len(rows), MOST_STARTING_ROWS)))[1]
        given, sd = self.noise_variance, rows.y_scaling.sd
        if given is not None:
            noise = float(given) / float(np.mean(sd**2))  # in the units of y, squared
        else:
            noise = FIRST_NOISE
            if likelihood.standardised and (sd == 1.0).all():
                noise *= float(np.nanvar(some, axis=0).mean()) or 1.0
        return Settings(kernel.theta, inducing, likelihood.first(some, noise))

    def _trials(
        self, few: Rows, likelihood: Likelihood, seed: int, offset: Floats, in_time: Callable[[], bool]
    ) -> choosing.Trials:
        """Short fits to some rows."""

        def make(kernel: Covariance, n_inducing: int) -> GPProblem:
            return self._problem(few, kernel, likelihood, n_inducing, offset, None)

        def first(kernel: Covariance, wanted: int) -> Settings:
            return self._first_settings(kernel, choosing.spread_inducing(few, seed, wanted), few, likelihood)

        return choosing.Trials(make, first, seed, in_time)

    def _chosen(
        self, rows: Rows, likelihood: Likelihood, seed: int, offset: Floats, in_time: Callable[[], bool]
    ) -> tuple[Covariance, Settings]:
        """Kernel, where it is "auto", and inducing inputs, by short fits to some rows."""
        numbers = np.sort(generator(seed, Stream.START, 2).permutation(len(rows))[: choosing.ROWS])
        trials = self._trials(Rows(*rows.take(numbers)), likelihood, seed, offset, in_time)  # standardised already
        if self.kernel == "auto":
            bare = rows.scaled_by(Scaling.none(rows.n_columns), rows.y_scaling)
            kinds = choosing.few_valued(bare.take(numbers)[0])
            kernel, settings = choosing.chosen_kernel(trials, rows.take(numbers)[0], kinds)
        else:
            kernel = self._first_kernel(rows, likelihood, seed)
            settings = trials.tried(kernel).settings
        if self.inducing is not None:
            return kernel, settings._replace(inducing=self._first_inducing(rows, seed))
        wanted = None if self.n_inducing == "auto" else whole_number(self.n_inducing, "n_inducing")
        rng = generator(seed, Stream.START, 3)
        return kernel, settings._replace(
            inducing=choosing.greedy_inducing(rows, kernel, settings, likelihood, wanted, rng)
        )

    def _problem(
        self,
        rows: Rows,
        kernel: Covariance,
        likelihood: Likelihood,
        n_inducing: int,
        offset: Floats,
        population: float | None,
        joint: bool = False,
    ) -> GPProblem:
        moves = (self.learn_noise or (likelihood.mixes and self.learn_kernel)) and likelihood.has_parameter
        learned = Learned(self.learn_kernel, moves, self.learn_inducing)
        return GPProblem(
            rows, kernel, likelihood, n_inducing=n_inducing, learned=learned, rate=float(self.learning_rate),
            jitter=float(self.jitter), batch_size=self.batch_size, population=population, offset=offset,
            joint=joint or (likelihood.mixes and rows.gaps),
        )  # fmt: skip

    def _first_inducing(self, rows: Rows, seed: int) -> Floats:
        """The inputs that were given, or k-means++ among some rows; never two the same."""
        if self.inducing is not None:
            given = np.asarray(self.inducing, dtype=np.float64)
            if given.ndim != 2 or given.shape[1] != rows.n_columns or not np.isfinite(given).all():
                raise ValueError(
                    f"inducing must be finite numbers [M, {rows.n_columns}], got an array of shape {given.shape}"
                )
            return rows.x_scaling.apply(given)
        return choosing.spread_inducing(rows, seed, whole_number(self.n_inducing, "n_inducing"))
