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
from natgrad.models.gaussian_prior import COVARIANCES, gaussian_prior, prior_tables
from natgrad.models.mixture.base import SETTINGS, Mixture
from natgrad.models.uncertainty import with_locations

if TYPE_CHECKING:
    from natgrad.inference.problem import State
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
    n_components : int, K, or "auto"
        How many components; with "auto" it is found: components are born, merged and deleted as the exact bound says, from one
        up to ``max_components`` (`finding K <finding-k.md>`_).
    max_components : int
        The most that "auto" may find; part of the model, which has room for so many.
    covariance : "full", "diag", "tied" or "spherical"
        A precision matrix for each component; one for each component and column; one matrix for all components; one number for
        each component. With "diag" and "spherical" single entries may be missing (NaN).
    weight_prior : float or array [K], optional
        α, concentration of the weights; by default 1/K, with which components that are not needed become empty. Of "auto" a
        number, by default 1/max_components.
    mean_prior : array [D], optional
        m. By default the mean of each column.
    mean_scale : float, κ
        How many rows the prior mean is worth.
    dof_prior : float, optional
        ν of Λ ~ Wishart(ν, R), E[Λ] = ν R⁻¹; of "diag" and "spherical", τ ~ Gamma(ν/2, R/2). By default D + 2.
    scale_prior : array [D, D] (full, tied), [D] (diag) or a number (spherical), optional
        R. By default the variance of each column divided by K^(2/D), a guess of what one component covers; of "spherical" the
        mean of these. For "auto" K is max_components here.
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
    covariance: Literal["full", "diag", "tied", "spherical"] = "full"
    mean_prior: Any = None
    mean_scale: float = 0.01
    dof_prior: float | None = None
    scale_prior: Any = None

    _model_class = MixtureModel
    _nan_advice = '; covariance="diag" and covariance="spherical" take missing entries'

    # -- what every mixture says --

    @property
    def _takes_nan(self) -> bool:
        return self.covariance in ("diag", "spherical")

    def _prepared(self, x: Any, weight: Floats | None) -> MixtureModel:
        alpha = self._concentration()
        return MixtureModel(alpha, self.covariance, *gaussian_prior(self, x, len(alpha), weight)[:5])

    def _name(self, problem: MixtureProblem, state: State) -> None:
        self.means_, self.covariances_, self.deviations_ = problem.emission.located(state.lam["components"])

    def _drawn_as(self, problem: MixtureProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        return with_locations(factors, "components", problem.emission, "component")

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        if name == "components" and self.covariance == "tied":
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[order]

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        tables = [prior_tables(kind)[0] for kind in COVARIANCES]
        joined = {name: " | ".join(dict.fromkeys(table[name] for table in tables)) for name in tables[0]}
        return {**SETTINGS, **joined}

    @classmethod
    def _model_table(cls, model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        check(
            model.get("covariance"),
            " | ".join(f"'{kind}'" for kind in COVARIANCES),
            where="fitted['model']['covariance']",
        )
        settings, prior = prior_tables(model["covariance"])
        return settings, {"alpha": "positive [component]", "covariance": "text", **prior, "origin": prior["mean"]}
