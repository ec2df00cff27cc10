"""`GaussianMixture`: rows in; components with their uncertainty, and each row's memberships, out.

    π ~ Dir(α),   Λ_k ~ Wishart(ν, R),   μ_k | Λ_k ~ N(m, (κ Λ_k)⁻¹),   z_n ~ Cat(π),   x_n ~ N(μ_z, Λ_z⁻¹)

Attias (2000); Bishop (2006), section 10.2. Memberships, densities, moves and draws are those of every mixture (`Mixture`); the
loop, the steps, streams, clusters and files those of every model of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.inference.schema import check
from natgrad.models.gaussian_prior import COVARIANCES, covariance_of, gaussian_of, gaussian_prior, prior_tables
from natgrad.models.mixture.base import SETTINGS, Mixture
from natgrad.models.uncertainty import with_locations

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.hmm.kinds import Gaussian
    from natgrad.models.mixture.problem import MixtureProblem
    from natgrad.posterior.draws import DrawnFactor

__all__ = ["GaussianMixture", "MixtureModel"]

Floats = npt.NDArray[np.float64]


class MixtureModel(NamedTuple):
    """Priors: α [K] of the weights, and m, κ, ν and R of the components, measured from the origin."""

    alpha: Floats
    covariance: str
    mean: Floats
    scale: float
    dof: float
    rate: Floats
    origin: Floats

    @property
    def emission(self) -> Any:
        """What a component is."""
        from natgrad.models.gaussians import GAUSSIANS

        return GAUSSIANS[self.covariance](len(self.alpha), *self[2:])


@final
@dataclass(repr=False, eq=False)
class GaussianMixture(Mixture):
    """A mixture of Gaussians, by variational inference; components that the data do not need keep their prior.

    Parameters
    ----------
    n_components : int, "auto" or ("auto", most)
        K, how many components; with "auto" it is found, up to ``most`` (30), for which the model has room: components are born,
        merged and deleted as the exact bound says (`finding K <finding-k.md>`_).
    covariance : "full", "diag", "tied", "spherical" or `Gaussian`
        A precision matrix for each component; one for each component and column; one matrix for all components; one number for
        each component. With "diag" and "spherical" single entries may be missing (NaN). `natgrad.models.hmm.Gaussian` has a kind
        of covariance and the prior of a component, ``Gaussian("diag", mean_scale=1.0)``; by default it follows from the data.
    weight_prior : float or array [K], optional
        α, concentration of the weights; by default 1/K, with which components that are not needed become empty. Of "auto" a
        number, by default 1/most.
    inference : "vb" or "gibbs"
        "gibbs" goes on from the fit of "vb" by Gibbs sampling on all rows: `posterior_`, predictions and intervals are those of
        the draws, `draws_`, and there is no bound.
    n_sweeps : int, optional
        Sweeps of each of four chains of "gibbs", by default 500; the second half counts.
    Further settings are those of every model of rows, see `RowEstimator`.

    Attributes
    ----------
    n_components_ : int, K, as given or as found; of "auto" the components are those found, the heaviest first
    weights_, means_ : arrays [K], [K, D], E[π] and E[μ]
    covariances_ : array [K, D, D], [K, D], [D, D] or [K], E[Λ]⁻¹
    deviations_ : array [K, D], standard deviations of the columns in each component
    posterior_ : {"weights", "components"}, a Factor each
    elbo_, trace_, stop_ : the bound (of streams: its estimate), its history, and why the run ended

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4.0, 1.0, (50, 2)), rng.normal(4.0, 1.0, (150, 2))])
    >>> model = GaussianMixture(2, seed=0).fit(X)
    >>> sorted(model.weights_.round(2).tolist())
    [0.25, 0.75]
    >>> model.predict_proba(X).shape
    (200, 2)
    >>> GaussianMixture("auto", seed=0).fit(X).n_components_
    2
    """

    _: KW_ONLY
    covariance: Literal["full", "diag", "tied", "spherical"] | Gaussian = "full"

    _model_class = MixtureModel
    _nan_advice = '; covariance="diag" and covariance="spherical" take missing entries'

    # -- what every mixture says --

    @property
    def _takes_nan(self) -> bool:
        return getattr(self.covariance, "covariance", self.covariance) in ("diag", "spherical")

    def _prepared(self, x: Any, weight: Floats | None) -> MixtureModel:
        alpha, kind = self._concentration(), gaussian_of(self.covariance)
        return MixtureModel(alpha, kind.covariance, *gaussian_prior(kind, x, len(alpha), weight)[:5])

    def _name(self, problem: MixtureProblem, state: State) -> None:
        self.means_, self.covariances_, self.deviations_ = problem.emission.located(state.lam["components"])

    def _drawn_as(self, problem: MixtureProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        return with_locations(factors, "components", problem.emission, "component")

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        if name == "components" and self._model_.covariance == "tied":
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[order]

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**SETTINGS, "covariance": covariance_of(tuple(COVARIANCES))}

    @classmethod
    def _model_table(cls, model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        check(
            model.get("covariance"),
            " | ".join(f"'{kind}'" for kind in COVARIANCES),
            where="fitted['model']['covariance']",
        )
        settings, prior = prior_tables(model["covariance"])
        return settings, {"alpha": "positive [component]", "covariance": "text", **prior, "origin": prior["mean"]}
