"""`SparseGPClassifier`: rows and their classes in; probabilities out, for any number of rows.

f ~ GP(0, k),   p(y_n = second) = Φ(f(x_n));   more classes: a function for each, and their softmax
ordered classes: one function, and cutpoints;  y_n is the number of those below f(x_n) + N(0, 1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, Unpack, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from natgrad.data.rows import Rows, validated
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.models.gp.joint import Ordinal, Softmax, cutpoints, softmax
from natgrad.models.gp.likelihoods import Bernoulli, Likelihood
from natgrad.models.gp.sparse import SparseGP
from natgrad.validation import whole_number

__all__ = ["SparseGPClassifier"]

Floats = npt.NDArray[np.float64]


@final
@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class SparseGPClassifier(ClassifierMixin, SparseGP):
    """Gaussian process classification with inducing inputs, for any number of rows.

    Two classes: p(y = second) = Φ(f). More classes: a function for each, with a common kernel, and the softmax of them.

    Parameters
    ----------
    likelihood : "probit", "softmax" or "ordinal", optional
        By default "probit" for two classes and "softmax" for more, one model of all classes. "probit" of more is one against the
        rest, a model for each, with probabilities divided by their sum. "ordinal" is for classes in an order, such as stars: one
        function, and cutpoints that are learned.
    order : list of classes, optional
        From the lowest to the highest, for "ordinal"; by default numbers in their order.
    kernel, n_inducing, inducing, fixed, solver, max_steps, max_seconds, tol, seed, verbose : as in `SparseGPRegressor`

    Attributes
    ----------
    classes_ : array [K], sorted; of likelihood="ordinal" in their order
    cutpoints_ : array [K − 1], of likelihood="ordinal"
    kernel_, inducing_, elbo_, trace_, stop_, n_steps_, posterior_, jitter_, jitter_raised_ : as in `SparseGPRegressor`;
        with "probit" and more than two classes `elbo_` is the sum over the K two-class problems

    Examples
    --------
    >>> x = np.array([[-2.0], [-1.5], [-1.0], [1.0], [1.5], [2.0]])
    >>> model = SparseGPClassifier(n_inducing=6, max_steps=50).fit(x, ["no"] * 3 + ["yes"] * 3)
    >>> model.predict([[-1.2], [1.2]]).tolist()
    ['no', 'yes']
    >>> stars = SparseGPClassifier(n_inducing=6, likelihood="ordinal", max_steps=50).fit(x, [1, 1, 2, 2, 3, 3])
    >>> stars.predict([[-2.0], [2.0]]).tolist()
    [1, 3]
    """

    _link = "probit"
    # Read by the common part; classes have no noise, but cutpoints are learned.
    noise_variance = 1.0

    likelihood: Literal["probit", "softmax", "ordinal"] | None = None
    _: KW_ONLY
    order: Sequence[Any] | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to rows [N, D] and classes [N], or an iterator of such pairs; in Parquet files the classes are numbers.

        ``checkpoint``, ``every``, ``resume`` and ``callbacks`` are those of ``Network.fit``.
        """
        rows = self._read(X, y, True)
        self._fit_rows(rows, self._own_likelihood(), False, keep)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, n_total: float | None = None) -> Self:
        """Steps on the rows of a stream; ``classes`` lists all of them at the first call."""
        rows = self._read(X, y, not hasattr(self, "_state"), classes)
        self._partial(rows, self._own_likelihood(), False, n_total)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class [N, K]."""
        return self._probabilities(self._chances(*self._latent(X)))

    def _chances(self, mean: Floats, var: Floats) -> Floats:
        """From means and variances of functions [..., F]: probabilities of classes, or Φ of each function."""
        likelihood = self._likelihood
        if isinstance(likelihood, Ordinal):
            return likelihood.probabilities(self._psi, mean[..., 0], var[..., 0])
        if isinstance(likelihood, Softmax):
            return softmax(mean) if not var.any() else likelihood.predict_rows(self._psi, mean, var)[0]
        return np.asarray(sp.ndtr(mean / np.sqrt(1.0 + var)))

    def _probabilities(self, p: Floats) -> Floats:
        """Of the classes [..., K], from what `_chances` has."""
        if self._link != "probit":
            return p
        if len(self.classes_) == 2:
            return np.concatenate([1.0 - p, p], axis=-1)
        p = np.maximum(p, np.finfo(float).tiny)
        return np.asarray(p / p.sum(-1, keepdims=True))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likeliest class of each row."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def decision_function(self, X: Any) -> Floats:
        """[N] for two classes, [N, K] for more: what probabilities grow with.

        "probit": E[f]/√(1 + var f), whose Φ is the probability; "softmax": log probabilities, of two
        classes their difference; "ordinal": E[f] [N], whatever the number of classes.
        """
        if self._link == "softmax":
            logs = np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))
            return np.asarray(logs[:, 1] - logs[:, 0]) if len(self.classes_) == 2 else logs
        mean, var = self._latent(X)
        mean = mean / np.sqrt(1.0 + var) if self._link == "probit" else mean
        return mean[:, 0] if mean.shape[1] == 1 else mean

    def sample(self, X: Any, n: int = 1, *, seed: int | None = None) -> Floats:
        """Joint draws of the probability of the second class [n, N]; of every class [n, N, K] if there are more."""
        rng = np.random.default_rng(self.seed if seed is None else seed)
        f = self._latent_draws(X, whole_number(n, "n"), rng)
        p = self._probabilities(self._chances(f, np.zeros_like(f)))
        return p[..., 1] if len(self.classes_) == 2 else p

    @property
    def cutpoints_(self) -> Floats:
        """Between the classes of likelihood="ordinal" [K − 1]: a class is the number of them below f + N(0, 1)."""
        check_is_fitted(self)
        if self._link != "ordinal":
            raise AttributeError(f'likelihood "{self._link}" has no cutpoints')
        return cutpoints(self._psi)

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """The log probability of each row's class [N]."""
        probabilities = self.predict_proba(X)
        places = self._numbers(np.asarray(y))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probabilities[np.arange(len(places)), places]))

    @property
    def _psi(self) -> Floats:
        return np.asarray(self._predictor.settings.psi)

    def _own_likelihood(self) -> Likelihood:
        if self._link == "ordinal":
            return Ordinal(len(self.classes_))
        return self._with_noise(Softmax() if self._link == "softmax" else Bernoulli())

    def _numbers(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The place of each class among the classes [N]."""
        order = np.argsort(self.classes_, kind="stable")
        places = np.minimum(np.searchsorted(self.classes_, y, sorter=order), len(order) - 1)
        numbers = order[places]
        bad = np.flatnonzero(self.classes_[numbers] != y)
        if len(bad):
            raise ValueError(
                f"y[{bad[0]}] = {y[bad[:1]].tolist()[0]!r} is none of the classes {self.classes_.tolist()}"
            )
        return numbers

    def _found_classes(self, y: npt.NDArray[Any], classes: Any) -> None:
        """The classes in their order, and the law of them."""
        self._check_choices()
        self.classes_: npt.NDArray[Any] = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_.tolist()[0]!r}: a classifier needs two")
        usual = "probit" if len(self.classes_) == 2 else "softmax"
        self._link = usual if self.likelihood is None else self.likelihood
        if self._link != "ordinal":
            if self.order is not None:
                raise ValueError('order is for likelihood="ordinal": the classes of others have none')
        elif self.order is not None:
            given = np.asarray(self.order)
            if given.ndim != 1 or len(np.unique(given)) != len(given) or len(given) < 2:
                raise ValueError(f"order must list two classes or more, each once, got {self.order!r}")
            self.classes_ = given
        elif self.classes_.dtype.kind not in "biuf":
            raise ValueError(
                f"classes {self.classes_.tolist()} are words, which have no order: give order=, from the lowest to the highest"
            )

    def _read(self, X: Any, y: Any, reset: bool, classes: Any = None) -> Rows:
        """±1 for the second class of two, or for each class; numbers of classes in an order."""
        if self._is_stream(X):
            names: dict[Any, int] = {}
            source = self._rows(numbered(X, names) if isinstance(X, Iterator) else X, y, reset)
            X, y = source.inputs, np.array(source.outputs[:, 0])
            y = np.array(list(names))[y.astype(np.int64)] if names else y
        else:
            X, y = validated(self, X, y, dtype=(np.float64, np.float32), reset=reset)
        if y.dtype.kind == "O" and (gone := [row for row, name in enumerate(y.tolist()) if name is None]):
            raise ValueError(
                f"y[{gone[0]}] is None: a row must have a class; leave out rows with NaN, None or no class"
            )
        if reset:
            if y.dtype.kind not in "biU":  # what these hold are classes
                from sklearn.utils.multiclass import check_classification_targets

                check_classification_targets(y)
            self._found_classes(y, classes)
        numbers = self._numbers(y)
        if self._link == "ordinal":
            return Rows(X, numbers[:, None].astype(np.float64))
        columns = [1] if len(self.classes_) == 2 and self._link == "probit" else np.arange(len(self.classes_))
        return Rows(X, np.where(numbers[:, None] == columns, 1.0, -1.0))


def numbered(chunks: Iterator[Any], names: dict[Any, int]) -> Iterator[Any]:
    """Pairs (X, y) with numbers in place of classes that are words, as ``names`` notes them; other pairs as they are."""
    for number, chunk in enumerate(chunks):
        words = isinstance(chunk, (tuple, list)) and len(chunk) == 2 and _has_words(np.asarray(chunk[1]))
        if number and words != bool(names):
            raise ValueError(f"chunk {number} of the stream: y must be words in all chunks, or numbers in all")
        if not words:
            yield chunk
            continue
        x, y = chunk[0], np.asarray(chunk[1])
        if (
            bad := [place for place, name in enumerate(y.ravel().tolist()) if not isinstance(name, str)]
        ) or y.ndim != 1:
            raise ValueError(
                f"chunk {number} of the stream: y must be a class for each row, words or numbers; "
                + (f"y[{bad[0]}] = {y.ravel()[bad[0]]!r}" if bad else f"got the shape {y.shape}")
            )
        yield x, np.array([names.setdefault(name, len(names)) for name in y.tolist()], dtype=np.float64)


def _has_words(y: npt.NDArray[Any]) -> bool:
    return y.dtype.kind == "U" or (y.dtype.kind == "O" and any(isinstance(name, str) for name in y.ravel().tolist()))
