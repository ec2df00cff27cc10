"""`SupervisedLDA`: documents and a number or a yes and no for each in; topics that explain both, and predictions, out.

    θ_d ~ Dir(α),   φ_k ~ Dir(β),   z ~ Cat(θ_d),   w ~ Cat(φ_z)
    y_d ~ N(η · z̄_d, 1/τ)   or   y_d ~ Bernoulli(σ(η · z̄_d)),   z̄_d the shares of the topics among the words of d

Blei and McAuliffe (2007). η ~ N(0, 1/λ); with E[z̄ z̄ᵀ] as it is (`natgrad.language.frequencies`), and for yes and no the bound of
every logit. The words of a document take turns, since they meet in its response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, Unpack, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.network.language import (
    Bernoulli,
    Categorical,
    Dirichlet,
    Gamma,
    MultivariateNormal,
    Normal,
    Plate,
    dot,
    frequencies,
)
from natgrad.network.network import Network
from natgrad.topics.base import First, FixedTopics, as_shares, as_tokens, read_documents
from natgrad.topics.known import as_classes, is_missing
from natgrad.validation import OnlyWhere, require

__all__ = ["SupervisedLDA"]

Floats = npt.NDArray[np.float64]
# Of the noise at the start, in units of standardised responses: an exact fit would hold the words where they are.
LEAST_VARIANCE = 0.01


@final
@dataclass(repr=False, eq=False)
class SupervisedLDA(FixedTopics):
    """Topics of documents that also predict a response of each: a number, or yes and no.

    Parameters
    ----------
    n_topics : int
    response : "gaussian" or "bernoulli"
        What y is: numbers, standardised inside, or two classes: 0 and 1, or any two names or whole numbers.
    doc_prior, topic_prior : float
        α and β, the concentrations of a document's shares and of a topic's words.
    coefficient_prior : float
        λ, the precision of η a priori, in units of standardised responses.
    Further settings are those of every model here, see `TopicNetwork`.

    Attributes
    ----------
    topics_ : array [K, V], E[φ]
    coefficients_ : array [K], E[η] in units of y (of the logit, for yes and no): the response of a document with this topic alone
    noise_ : float, the standard deviation of y about its prediction; "gaussian" alone
    classes_ : array [2], no and yes; "bernoulli" alone. The second in order is yes
    network_, fit_ : the declaration and its fit
    elbo_, trace_, stop_, vocabulary_ : as of `natgrad.LDA`

    Examples
    --------
    >>> import natgrad as ng
    >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
    >>> model = ng.topics.SupervisedLDA(2, seed=1).fit(texts, [1.0, 1.1, -1.0, -0.9] * 5)
    >>> model.predict(["apple plum", "bolt bolt"]).round(1).tolist()
    [1.0, -0.9]
    """

    abilities: ClassVar[frozenset[str]] = (FixedTopics.abilities - {"executor"}) | {"draws", "missing", "predict"}

    _: KW_ONLY
    response: Literal["gaussian", "bernoulli"] = "gaussian"
    doc_prior: float = 0.1
    coefficient_prior: float = 0.1

    @all_or_nothing
    def fit(
        self, X: Any, y: Any = None, *, vocabulary: Sequence[Any] | None = None, **keep: Unpack[FitOptions]
    ) -> Self:
        """Fit to documents and their responses.

        Parameters
        ----------
        X : documents, as `natgrad.LDA.fit` takes them, with whole counts; or a stream, an iterator of pairs (documents, y)
        y : array [D]
            NaN, or None, where a response is not known: its document tells of the topics alone.
        vocabulary : the V words, optional
        checkpoint, every, resume, callbacks : as in ``Network.fit``; of these, streams take callbacks alone
        """
        return self._learn(X, y, vocabulary, keep)

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, *, vocabulary: Sequence[Any] | None = None) -> Self:
        """Take more documents in; what the earlier ones told counts on.

        Parameters
        ----------
        X, y : as in `fit`
            The first responses decide the scale in which all are seen inside.
        vocabulary : the V words, optional
            With the first documents; later ones are read with the same words.
        """
        return self._learn(X, y, vocabulary, {}, anew=False)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected response of documents [D]; with ``return_std`` also its standard deviation, where yes and no are 1 and 0.

        Of two classes, the likelier one.
        """
        mean, variance = self._predictor(X)
        if self.response == "bernoulli":
            chance = _chance(mean, variance)
            label = self.classes_[(chance > 0.5).astype(np.int64)]
            return (label, np.sqrt(chance * (1.0 - chance))) if return_std else label
        return (mean, np.sqrt(variance + self.noise_**2)) if return_std else mean

    @OnlyWhere(
        lambda model: model.response == "bernoulli", 'is for response="bernoulli"; numbers are predicted by predict'
    )
    def predict_proba(self, X: Any) -> Floats:
        """The probabilities of no and yes, as `classes_` has them [D, 2]."""
        chance = _chance(*self._predictor(X))
        return np.stack([1.0 - chance, chance], axis=1)

    # -- what the base asks --

    def _side(self, known: Any, n_documents: int, anew: bool) -> Floats:
        self.classes_: npt.NDArray[Any]
        if self.response == "bernoulli":
            values, self.classes_ = as_classes(known, n_documents, None if anew else self.classes_)
        else:
            values = self._responses(known, n_documents)
            self.__dict__.pop("classes_", None)  # of an earlier fit
        if np.isnan(values).all():
            raise ValueError(
                "y: no response is known; without any, LDA is the model. Later documents without any come together with others"
            )
        if anew:
            self.scale_: Floats = np.array(self._scale(values))
        return values

    @staticmethod
    def _responses(y: Any, n_documents: int) -> Floats:
        given = np.asarray(y, dtype=object)
        try:
            values = np.array([np.nan if is_missing(v) else v for v in given.ravel().tolist()], dtype=np.float64)
        except (TypeError, ValueError):
            place, value = next(
                (p, v) for p, v in enumerate(given.ravel().tolist()) if isinstance(v, str) or np.ndim(v)
            )
            raise TypeError(
                f'y must be numbers, got y[{place}] = {value!r}; two classes are for response="bernoulli"'
            ) from None
        if given.shape != (n_documents,):
            raise ValueError(f"y must have one number for each of {n_documents} documents, got shape {given.shape}")
        require(~np.isinf(values), values, "y", "finite, or NaN where it is not known")
        return values

    def _scale(self, y: Floats) -> tuple[float, float]:
        if self.response == "bernoulli":
            return 0.0, 1.0
        spread = float(np.nanstd(y))
        return float(np.nanmean(y)), spread if spread > 0 else 1.0

    def _network(self, corpus: Corpus, side: Floats) -> Network:
        words, there = as_tokens(corpus, self.n_topics)
        lengths = there.sum(1, keepdims=True)
        centre, spread = self.scale_
        known = ~np.isnan(side) & (lengths[:, 0] > 0)
        doc, token = Plate("doc", len(corpus)), Plate("token", words.shape[1])
        topic, size = Plate("topic", self.n_topics), self.n_topics
        phi = Dirichlet("phi", self.topic_prior, size=corpus.n_words, plate=topic)
        theta = Dirichlet("theta", self.doc_prior, size=size, plate=doc)
        ragged = None if there.all() else there
        z = Categorical("z", theta, plate=(doc, token), mask=ragged)
        w = Categorical("w", phi[z], plate=(doc, token), observed=words, mask=ragged)
        eta = MultivariateNormal("eta", np.zeros(size), self.coefficient_prior * np.eye(size))
        mean = dot(frequencies(z, token, there / np.maximum(lengths, 1)), eta)
        mask = None if known.all() else known
        value = np.where(known, (side - centre) / spread, 0.0)
        if self.response == "bernoulli":
            return Network(w, Bernoulli("y", logit=mean, plate=doc, observed=value, mask=mask))
        tau = Gamma("tau", 1.0, 0.1)
        return Network(w, Normal("y", mean, tau, plate=doc, observed=value, mask=mask))

    def _start(self, first: First, corpus: Corpus, side: Floats) -> dict[str, Any]:
        """Coefficients by ridge regression on the first shares: from their prior, with its variance, words would part evenly."""
        known = ~np.isnan(side) & (np.diff(corpus.start) > 0)
        centre, spread = self.scale_
        shares, value = first.shares[known], (side[known] - centre) / spread
        if self.response == "bernoulli":
            value = 4.0 * value - 2.0  # a logit of ±2: the least squares of a label
        precision = shares.T @ shares + self.coefficient_prior * np.eye(self.n_topics)
        eta = np.linalg.solve(precision, shares.T @ value)
        start: dict[str, Any] = {"phi": first.topics, "eta": eta}
        if self.response == "gaussian":
            start["tau"] = 1.0 / max(float(np.mean((value - shares @ eta) ** 2)), LEAST_VARIANCE)
        return start

    def _publish_fit(self, fit: Any) -> None:
        centre, spread = self.scale_
        self.topics_ = fit["phi"].mean()
        # z̄ sums to 1, so that the centre of the responses is the same number in every coefficient.
        self.coefficients_: Floats = centre + spread * np.asarray(fit["eta"].mean())
        self.coefficient_covariance_: Floats = spread**2 * np.linalg.inv(fit["eta"].parameters["precision"])
        gaussian = self.response == "gaussian"
        self.noise_: float = spread / float(np.sqrt(fit["tau"].mean())) if gaussian else 0.0

    def _predictor(self, X: Any) -> tuple[Floats, Floats]:
        """E[η · z̄] and its variance, by the coefficients and by which topic each word has."""
        corpus = self._new_documents(X)
        gamma = read_documents(corpus, self.topics_, np.full(self.n_topics, float(self.doc_prior)))
        counts = np.maximum(gamma - self.doc_prior, 0.0)
        lengths = counts.sum(1, keepdims=True)
        prior = np.full(self.n_topics, 1.0 / self.n_topics)
        often = np.where(lengths > 0, counts / np.maximum(lengths, 1e-300), prior)
        mean = often @ self.coefficients_
        apart = often @ self.coefficients_**2 - mean**2
        variance = np.einsum("dk,kl,dl->d", often, self.coefficient_covariance_, often)
        return mean, variance + np.maximum(apart, 0.0) / np.maximum(lengths[:, 0], 1.0)

    def _shares(self, corpus: Corpus) -> Floats:
        return as_shares(read_documents(corpus, self._topics_now(), np.full(self.n_topics, float(self.doc_prior))))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True  # scikit-learn's word for whole numbers
        return tags

    @classmethod
    def _own_settings(cls) -> Mapping[str, Any]:
        return {"response": "'gaussian' | 'bernoulli'", "doc_prior": "positive", "coefficient_prior": "positive"}

    @classmethod
    def _own_fitted(cls) -> Mapping[str, Any]:
        return {
            "topics_": "share [topic, word]",
            "coefficients_": "real [topic]",
            "coefficient_covariance_": "real [topic, topic]",
            "noise_": "nonnegative",
            "scale_": "real [two]",
            "classes_?": "ids [classes]",
        }

    @classmethod
    def _told_table(cls, own: Any) -> Mapping[str, Any]:
        return {
            "phi": ("real [topic, word]",),
            "eta": ("real [topic]", "real [topic, topic]"),
            "tau?": ("real", "real"),
        }


def _chance(mean: Floats, variance: Floats) -> Floats:
    """E σ(x) of x ~ N(mean, variance), by MacKay's approximation: σ(mean / √(1 + π variance / 8))."""
    return np.asarray(sp.expit(mean / np.sqrt(1.0 + np.pi / 8.0 * variance)))
