"""The four hidden Markov models: `GaussianHMM`, `CategoricalHMM`, `PoissonHMM` and `BernoulliHMM`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import numpy.typing as npt

from natgrad.models.gaussian_prior import gaussian_of
from natgrad.models.hmm.estimator import HiddenMarkov
from natgrad.models.hmm.kinds import (
    Bernoulli,
    Categorical,
    Gaussian,
    Poisson,
    as_categories,
    categories_in,
    encoded,
    flat_labels,
    holds_labels,
    is_several,
)

if TYPE_CHECKING:
    from natgrad.data.held import HeldSequences
    from natgrad.models.hmm.emissions import Emission, Observed

__all__ = ["BernoulliHMM", "CategoricalHMM", "GaussianHMM", "PoissonHMM"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


@final
@dataclass(repr=False, eq=False)
class GaussianHMM(HiddenMarkov):
    """A hidden Markov model of real vectors: each state has a mean and a precision, N(μ_k, Λ_k⁻¹).

    Parameters
    ----------
    n_states : int or "auto"
        The number of hidden states, K; "auto" finds it.
    covariance : "full", "diag", "tied", "spherical" or `Gaussian`
        A precision matrix for each state, q(μ_k, Λ_k) is Normal–Wishart; one for each state and column, Normal–Gamma; one matrix
        for all states; one number for each state. With "diag" and "spherical" single entries may be missing (NaN), with the
        others whole rows. `natgrad.models.hmm.Gaussian` has a kind of covariance and its prior, ``Gaussian("diag",
        mean_scale=1.0)``; by default it follows from the data.
    Further settings are those of every hidden Markov model, see `HiddenMarkov`.

    Attributes
    ----------
    means_ : array [K, D], E[μ]
    covars_ : array [K, D, D], [K, D], [D, D] or [K], E[Λ]⁻¹
    deviations_ : array [K, D], standard deviations of the columns in each state

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 100)
    >>> X = np.array([[-2.0, 0.0], [2.0, 0.0]])[states] + rng.normal(size=(400, 2))
    >>> model = GaussianHMM(n_states=2, seed=0).fit(X)
    >>> sorted(model.means_[:, 0].round().tolist())
    [-2.0, 2.0]
    >>> bool(np.mean(model.predict(X) == model.predict(X)[0]) > 0.4)
    True
    """

    _: KW_ONLY
    covariance: Literal["full", "diag", "tied", "spherical"] | Gaussian = "full"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = gaussian_of(self.covariance).covariance in (
            "diag",
            "spherical",
        )  # of single entries
        return tags

    def _emission(self, X: Array) -> Emission:
        made: Emission = gaussian_of(self.covariance).emission(X, self._places)
        return made

    def _name(self, emission: Any, lam: Any) -> None:
        self.means_: Floats
        self.covars_: Floats
        self.deviations_: Floats
        self.means_, self.covars_, self.deviations_ = emission.located(lam)


@final
@dataclass(repr=False, eq=False)
class CategoricalHMM(HiddenMarkov):
    """A hidden Markov model of symbols: each state has its own probabilities of them.

    Symbols are whole numbers 0 … V − 1, or labels: strings and whatever else can be told apart. A symbol that the fit has not
    seen has a probability, too, when it occurs later: that of one more category with the prior of the others.

    Parameters
    ----------
    n_states : int or "auto"
        The number of hidden states, K; "auto" finds it.
    categories : int, sequence or `Categorical`, optional
        V, by default the largest symbol plus one; or the labels, if X holds labels, by default those that occur, in their order.
        One that never occurs keeps its prior, and a number beyond V is refused. `natgrad.models.hmm.Categorical` has categories
        and their prior, ``Categorical(4, emission_prior=0.5)``.
    Further settings are those of every hidden Markov model, see `HiddenMarkov`.

    Attributes
    ----------
    emissionprob_ : array [K, V], E[φ]
    categories_ : array [V], what the columns of emissionprob_ stand for; of numbers None

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([0, 1] * 20 + [2, 3] * 20)[:, None]
    >>> model = CategoricalHMM(n_states=4, seed=0).fit(X)
    >>> model.emissionprob_.shape
    (4, 4)
    >>> words = CategoricalHMM(n_states=2, seed=0).fit(["sun", "sun", "rain", "rain", "rain", "sun"] * 10)
    >>> words.categories_.tolist()
    ['rain', 'sun']
    >>> words.predict_proba(["sun", "snow"]).shape  # snow was never seen
    (2, 2)
    """

    _: KW_ONLY
    categories: Sequence[Any] | int | Categorical | None = None

    @property
    def _kind(self) -> Categorical:
        return self.categories if isinstance(self.categories, Categorical) else Categorical(self.categories)

    @property
    def _one_dimensional(self) -> bool:
        return True  # one column of symbols

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.input_tags.categorical = True
        return tags

    def _emission(self, X: Array) -> Emission:
        made: Emission = self._kind.emission(X, self._places, self.categories_)
        return made

    def _as_arrays(self, X: Any, fresh: bool) -> Any:
        named = holds_labels(X)
        if fresh:
            self.categories_: Array | None = None
            if named or self._kind.labels is not None:
                self.categories_ = self._labels_of(X)
        if self.categories_ is None and named:
            raise TypeError(
                f"X holds labels, but {type(self).__name__} was fitted to numbers 0 … {self.emissionprob_.shape[1] - 1}"
            )
        if self.categories_ is None:
            return X
        known = self.categories_
        return [encoded(part, known) for part in X] if is_several(X) else encoded(X, known)

    def _labels_of(self, X: Any) -> Array:
        if (given := self._kind.labels) is not None:
            return as_categories(given)
        return categories_in(np.concatenate([flat_labels(p) for p in X]) if is_several(X) else flat_labels(X))

    def _more(self, X: Any, y: Any = None, lengths: Any = None, labels: Any = None) -> HeldSequences:
        held = super()._more(X, y, lengths, labels)
        self._refuse_new(held.columns, self._model_.emission)  # by its row here, not among all rows
        return held

    def _observe(self, emission: Any, columns: Array, ends: Array, held_out: bool) -> Observed:
        if not held_out:
            self._refuse_new(columns, emission)
        return emission.observe(  # type: ignore[no-any-return]
            columns, unseen=held_out and (self.categories_ is not None or self._kind.categories is None)
        )

    def _refuse_new(self, columns: Array, emission: Any) -> None:
        if self.categories_ is not None and (new := columns[:, 0] >= emission.n_categories).any():
            raise ValueError(
                f"X[{int(np.argmax(new))}] is a label that is none of the {emission.n_categories} categories of the model: "
                "nothing can be learned of it. Name all that may occur with categories=[…], and fit anew"
            )

    def _named_values(self, drawn: Array) -> Array:
        return drawn if self.categories_ is None else self.categories_[drawn]

    def _names(self) -> Array | None:
        return self.categories_

    def _name(self, emission: Any, lam: Any) -> None:
        self.emissionprob_: Floats = emission.family.mean(lam)
        if not hasattr(self, "categories_"):
            self.categories_ = None


@final
@dataclass(repr=False, eq=False)
class PoissonHMM(HiddenMarkov):
    """A hidden Markov model of counts: each state has a rate for each column.

    Parameters
    ----------
    n_states : int or "auto"
        The number of hidden states, K; "auto" finds it.
    rate_prior : (shape, rate), optional
        Of the Gamma prior of the rates; by default shape 1 and the mean of X.
    Further settings are those of every hidden Markov model, see `HiddenMarkov`.

    Attributes
    ----------
    rates_ : array [K, D], E of the rates

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).poisson(np.repeat([1.0, 20.0], 50))[:, None]
    >>> sorted(PoissonHMM(n_states=2, seed=0).fit(X).rates_.ravel().round(-1).tolist())
    [0.0, 20.0]
    """

    _: KW_ONLY
    rate_prior: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = tags.input_tags.categorical = True  # whole numbers ≥ 0
        return tags

    def _emission(self, X: Array) -> Emission:
        made: Emission = Poisson(self.rate_prior).emission(X, self._places)
        return made

    def _name(self, emission: Any, lam: Any) -> None:
        self.rates_: Floats = emission.family.mean(lam)


@final
@dataclass(repr=False, eq=False)
class BernoulliHMM(HiddenMarkov):
    """A hidden Markov model of binary tracks: each state has a probability for each column, as in chromatin segmentation.

    Parameters
    ----------
    n_states : int or "auto"
        The number of hidden states, K; "auto" finds it.
    track_prior : (a, b)
        Of the Beta prior of the probabilities.
    Further settings are those of every hidden Markov model, see `HiddenMarkov`.

    Attributes
    ----------
    probs_ : array [K, D], E of the probabilities

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((200, 3)) < np.repeat([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]], 100, axis=0)).astype(int)
    >>> BernoulliHMM(n_states=2, seed=0).fit(X).probs_.shape
    (2, 3)
    """

    _: KW_ONLY
    track_prior: tuple[float, float] = (1.0, 1.0)

    def _emission(self, X: Array) -> Emission:
        made: Emission = Bernoulli(self.track_prior).emission(X, self._places)
        return made

    def _name(self, emission: Any, lam: Any) -> None:
        self.probs_: Floats = emission.family.mean(lam)
