"""Check the parameters of a `MatrixFactorization`, and compute from them what is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

import numpy as np

from natgrad.posterior.files.container import register
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.models.factorization.estimator import MatrixFactorization

__all__ = ["FactorPriors", "RatingSettings", "check_settings", "refuse_time"]

USUAL_DOF = 4.0  # ν of noise that differs


class RatingSettings(NamedTuple):
    """What is fitted, with nothing left open."""

    n_factors: int
    likelihood: str
    biases: bool
    learn_noise: bool
    learn_priors: bool
    noise_per: str | None
    noise_dof: float
    noise_precision: float | None
    prior_precision: float | None
    n_negatives: float | None


@final
@dataclass(frozen=True, slots=True)
class FactorPriors:
    """What is assumed of users and items before any rating, as ``priors=`` of `MatrixFactorization` takes it.

    Parameters
    ----------
    precision : "learn" or float, default="learn"
        Precision of vectors and biases: learned for each factor and for the biases on both sides, or a known number.
    biases : bool, optional
        Whether users and items have a number besides the vectors, and ratings a mean; by default True, and False where every pair
        of likes counts: there popularity multiplies tastes.
    n_negatives : float, optional
        N, of likes: all pairs of a user that are not stored weigh about as much as N dislikes for each like of the user: each
        N n/(N n + m), of n likes and m such pairs; by default 6. With 0 stored likes and dislikes alone count, by a logistic
        model.

    Examples
    --------
    >>> import natgrad as ng
    >>> known = ng.recommenders.FactorPriors(precision=1.0, biases=False)
    >>> model = ng.MatrixFactorization(5, noise=4.0, priors=known)
    """

    precision: Literal["learn"] | float = "learn"
    biases: bool | None = None
    n_negatives: float | None = None

    def __post_init__(self) -> None:
        if self.biases is not None and not isinstance(self.biases, bool):
            raise ValueError(f"FactorPriors: biases must be True or False, got {self.biases!r}")
        if self.precision != "learn":
            _positive(self.precision, 'FactorPriors: precision, if it is not "learn",')
        if (
            self.n_negatives is not None
            and not 0 <= real_number(self.n_negatives, "FactorPriors: n_negatives") < np.inf
        ):
            raise ValueError(f"FactorPriors: n_negatives must be ≥ 0 and finite, got {self.n_negatives!r}")


register(FactorPriors, "ratings.FactorPriors")


def check_settings(model: MatrixFactorization) -> RatingSettings:
    """Compute what is to be fitted from the parameters; raise for those that are wrong, each alone or together."""
    model._check_choices()
    for name, least in (("n_jobs", 1), ("n_sweeps", 2)):
        if getattr(model, name) is not None:
            whole_number(getattr(model, name), name, least=least)
    whole_number(model.n_factors, "n_factors")
    whole_number(model.seed, "seed", least=0)
    own = FactorPriors() if model.priors is None else model.priors
    if not isinstance(own, FactorPriors):
        raise TypeError(f"priors must be FactorPriors(...), as in priors=FactorPriors(biases=False), got {own!r}")
    kind, negatives, noise, gibbs = model.likelihood, own.n_negatives, model.noise, model.inference == "gibbs"
    per, dof, known = _noise_of(noise)
    every_pair = kind == "bernoulli" and negatives != 0
    biases = not every_pair if own.biases is None else own.biases
    learn = own.precision == "learn"
    for wrong, words in (
        (model.n_sweeps is not None and not gibbs,
         f'n_sweeps={model.n_sweeps!r} belongs to inference="gibbs": leave it out, or say inference="gibbs"'),
        (gibbs and model.executor is not None,
         f'executor={model.executor!r} computes sweeps of VB, and inference="gibbs" samples in this process: '
         'leave out executor=, or say inference="vb"'),
        (negatives is not None and kind != "bernoulli",
         f'priors: n_negatives={negatives!r} belongs to likelihood="bernoulli": leave it out, or say it'),
        (kind == "poisson" and own != FactorPriors(),
         f'priors={own!r}: likelihood="poisson" has Gamma factors, whose priors are learned; leave it out'),
        (noise is not None and kind != "gaussian" and not every_pair,
         f'noise={noise!r} belongs to likelihood="gaussian", and to likes where every pair counts: leave it out'),
        (per is not None and every_pair, f'noise={noise!r} belongs to likelihood="gaussian": give "learn" or a number'),
    ):  # fmt: skip
        if wrong:
            raise ValueError(words)
    return RatingSettings(
        model.n_factors, kind, biases, known is None, learn, per, dof, known,
        None if isinstance(own.precision, str) else own.precision, negatives,
    )  # fmt: skip


def _noise_of(noise: Any) -> tuple[str | None, float, float | None]:
    """Whose noise differs, its ν, and the precision where it is known."""
    if noise is None or (isinstance(noise, str) and noise == "learn"):
        return None, USUAL_DOF, None
    if not isinstance(noise, (str, tuple, list)):
        return None, USUAL_DOF, _positive(noise, "noise")
    whose, nu = (noise, USUAL_DOF) if isinstance(noise, str) or len(noise) != 2 else noise
    if whose not in ("user", "item", "both"):
        raise ValueError(f'noise must be "learn", a number, "user", "item", "both" or ("user", ν), got {noise!r}')
    return whose, _positive(nu, f"noise: ν of {whose!r}"), None


def _positive(value: Any, what: str) -> float:
    if not 0 < real_number(value, what) < np.inf:
        raise ValueError(f"{what} must be > 0 and finite, got {value!r}")
    return float(value)


def refuse_time(options: Mapping[str, Any]) -> None:
    """Say who takes times and contexts of ratings."""
    for name in ("time", "context"):
        if name in options:
            raise TypeError(
                f"{name}= is not for MatrixFactorization: ng.recommenders.ContextFactorization has ratings in time and context"
            )
