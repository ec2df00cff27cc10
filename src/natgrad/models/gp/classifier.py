"""`SparseGPClassifier`: rows and their classes in; probabilities out, for any number of rows.

f ~ GP(0, k),   p(y_n = second) = Φ(f(x_n));   more classes: a function for each, one against the rest
"""

from __future__ import annotations

from typing import Any, Literal, Self, Unpack, final

import numpy as np
import numpy.typing as npt

from natgrad import special as sp
from natgrad.covariance import Covariance
from natgrad.data.rows import Rows, validated
from natgrad.inference.methods import Method
from natgrad.inference.step_sizes import Step
from natgrad.models.gp.base import SparseGP
from natgrad.models.gp.likelihoods import Bernoulli, Likelihood
from natgrad.models.scikit import ClassifierMixin
from natgrad.posterior.fit_options import FitOptions, all_or_nothing
from natgrad.renamed import says_new_names
from natgrad.validation import whole_number

__all__ = ["SparseGPClassifier"]

Floats = npt.NDArray[np.float64]


@final
@says_new_names
class SparseGPClassifier(ClassifierMixin, SparseGP):
    """Gaussian process classification with inducing inputs, for any number of rows.

    Two classes: p(y = second) = Φ(f). More classes: one against the rest, a function for each with a common kernel; their
    probabilities are divided by their sum.

    Parameters
    ----------
    kernel, n_inducing, batch_size, inducing, learn_kernel, learn_inducing, learning_rate, method, step, max_steps, max_seconds, \
tol, validation_fraction, standardize, jitter, seed, verbose : as in `SparseGPRegressor`

    Attributes
    ----------
    classes_ : array [K]
    kernel_, inducing_, elbo_, trace_, stop_, n_steps_, posterior_, jitter_, jitter_raised_ : as in `SparseGPRegressor`;
        with more than two classes `elbo_` is the sum over the K two-class problems

    Examples
    --------
    >>> x = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> model = SparseGPClassifier(n_inducing=6, max_steps=50).fit(x, ["no"] * 3 + ["yes"] * 3)
    >>> model.predict([[-1.2], [1.2]]).tolist()
    ['no', 'yes']
    """

    # Read by the common part; classes have no noise of their own.
    noise_variance, learn_noise = 1.0, False

    def __init__(
        self,
        kernel: Covariance | Literal["auto"] | None = None,
        n_inducing: int | Literal["auto"] = 200,
        *,
        batch_size: int = 512,
        inducing: Any = None,
        learn_kernel: bool = True,
        learn_inducing: bool = True,
        learning_rate: float = 0.04,
        method: Method | None = None,
        step: Step | None = None,
        max_steps: int = 2000,
        max_seconds: float | None = None,
        tol: float = 1e-3,
        validation_fraction: float = 0.0,
        standardize: bool = True,
        jitter: float = 1e-8,
        seed: int = 0,
        verbose: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.inducing = inducing
        self.learn_kernel = learn_kernel
        self.learn_inducing = learn_inducing
        self.learning_rate = learning_rate
        self.method = method
        self.step = step
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.tol = tol
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.jitter = jitter
        self.seed = seed
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to rows [N, D] and classes [N]; in Parquet files and iterators of (X, y) the classes are numbers.

        ``checkpoint``, ``every``, ``resume`` and ``callbacks`` are those of ``Network.fit``.
        """
        self._fit_rows(self._read(X, y, True), Bernoulli(), False, keep)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, n_total: float | None = None) -> Self:
        """Steps on the rows of a stream; ``classes`` lists all of them at the first call."""
        self._partial(self._read(X, y, not hasattr(self, "_state"), classes), Bernoulli(), False, n_total)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class [N, K]."""
        mean, var = self._latent(X)
        p = Bernoulli().predict(0.0, mean, var)[0]
        if len(self.classes_) == 2:
            return np.hstack([1.0 - p, p])
        p = np.maximum(p, np.finfo(float).tiny)
        return np.asarray(p / p.sum(1, keepdims=True))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likeliest class of each row."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def decision_function(self, X: Any) -> Floats:
        """E[f]/√(1 + var f), whose Φ is the probability: [N] for two classes, [N, K] for more."""
        mean, var = self._latent(X)
        mean = mean / np.sqrt(1.0 + var)
        return mean[:, 0] if len(self.classes_) == 2 else mean

    def sample(self, X: Any, n: int = 1, *, seed: int | None = None) -> Floats:
        """Joint draws of the probability of the second class [n, N]; of every class [n, N, K] if there are more."""
        rng = np.random.default_rng(self.seed if seed is None else seed)
        p = sp.ndtr(self._latent_draws(X, whole_number(n, "n"), rng))
        return p[..., 0] if len(self.classes_) == 2 else np.asarray(p / p.sum(-1, keepdims=True))

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """The log probability of each row's class [N]."""
        probabilities = self.predict_proba(X)
        places = np.searchsorted(self.classes_, np.asarray(y))
        bad = np.flatnonzero(self.classes_[np.minimum(places, len(self.classes_) - 1)] != np.asarray(y))
        if len(bad):
            raise ValueError(
                f"y[{bad[0]}] = {np.asarray(y)[bad[:1]].tolist()[0]!r} is none of the classes {self.classes_.tolist()}"
            )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probabilities[np.arange(len(places)), places]))

    def _own_likelihood(self) -> Likelihood:
        return Bernoulli()

    def _read(self, X: Any, y: Any, reset: bool, classes: Any = None) -> Rows:
        """±1 for the second class of two, or for each class against the rest."""
        if self._is_stream(X):
            source = self._rows(X, y, reset)
            X, y = source.inputs, np.array(source.outputs[:, 0])
        else:
            X, y = validated(self, X, y, dtype=(np.float64, np.float32), reset=reset)
        if reset:
            if y.dtype.kind not in "biU":  # what these hold are classes
                from sklearn.utils.multiclass import check_classification_targets

                check_classification_targets(y)
            self.classes_: npt.NDArray[Any] = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_.tolist()[0]!r}: a classifier needs two")
        unknown = np.flatnonzero(~np.isin(y, self.classes_))
        if len(unknown):
            raise ValueError(
                f"y[{unknown[0]}] = {y[unknown[:1]].tolist()[0]!r} is none of the classes {self.classes_.tolist()}"
            )
        hit = y[:, None] == (self.classes_[1:] if len(self.classes_) == 2 else self.classes_)
        return Rows(X, np.where(hit, 1.0, -1.0))
