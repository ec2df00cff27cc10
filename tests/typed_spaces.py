"""A second program of a user: every name of the namespaces, checked with mypy --strict and pyright, so that each has a type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import natgrad as ng

data_classes: list[Any] = [
    ng.data.Ratings,
    ng.data.RatingsSource,
]
data_functions: list[Callable[..., Any]] = [
    ng.data.allele_frequencies,
    ng.data.genotypes,
    ng.data.make_ratings,
    ng.data.match_rows,
    ng.data.open_source,
    ng.data.read_documents,
    ng.data.read_ratings,
    ng.data.train_test_split,
]
inference_classes: list[Any] = [
    ng.inference.Auto,
    ng.inference.Children,
    ng.inference.Constant,
    ng.inference.Dask,
    ng.inference.GlobalBatch,
    ng.inference.HeldOut,
    ng.inference.HoldThenDecay,
    ng.inference.LocalOptions,
    ng.inference.PerNode,
    ng.inference.Progress,
    ng.inference.Reason,
    ng.inference.RobbinsMonro,
    ng.inference.SVI,
    ng.inference.Stop,
    ng.inference.VB,
]
language_classes: list[Any] = [
    ng.language.Bernoulli,
    ng.language.Beta,
    ng.language.Binomial,
    ng.language.Categorical,
    ng.language.Column,
    ng.language.Columns,
    ng.language.Dirichlet,
    ng.language.Exponential,
    ng.language.Gamma,
    ng.language.GammaShape,
    ng.language.GaussianChain,
    ng.language.GaussianProcess,
    ng.language.HalfCauchy,
    ng.language.HalfNormal,
    ng.language.Laplace,
    ng.language.LogNormal,
    ng.language.MarkovChain,
    ng.language.Multinomial,
    ng.language.MultivariateNormal,
    ng.language.NegativeBinomial,
    ng.language.Normal,
    ng.language.Ordinal,
    ng.language.Plate,
    ng.language.Poisson,
    ng.language.Rayleigh,
    ng.language.StickBreaking,
    ng.language.StudentT,
    ng.language.TruncatedNormal,
    ng.language.Wishart,
]
language_functions: list[Callable[..., Any]] = [
    ng.language.block_diag,
    ng.language.censored,
    ng.language.concatenate,
    ng.language.diag,
    ng.language.dot,
    ng.language.frequencies,
    ng.language.kron,
    ng.language.sum_over,
    ng.language.table,
]
topic_models: list[Any] = [
    ng.topics.AuthorTopics,
    ng.topics.CorrelatedTopics,
    ng.topics.DynamicTopics,
    ng.topics.SupervisedLDA,
]
recommenders: list[Any] = [
    ng.recommenders.ContextFactorization,
    ng.recommenders.FactorPriors,
    ng.recommenders.ItemWishart,
    ng.recommenders.Stacked,
]
covariance_classes: list[Any] = [
    ng.covariance.Categories,
    ng.covariance.Constant,
    ng.covariance.Covariance,
    ng.covariance.Function,
    ng.covariance.Inducing,
    ng.covariance.Linear,
    ng.covariance.Matern12,
    ng.covariance.Matern32,
    ng.covariance.Matern52,
    ng.covariance.Periodic,
    ng.covariance.Product,
    ng.covariance.RBF,
    ng.covariance.RationalQuadratic,
    ng.covariance.Sum,
    ng.covariance.White,
]
covariance_functions: list[Callable[..., Any]] = [
    ng.covariance.covariance_from_data,
    ng.covariance.diagonal,
    ng.covariance.direct_of,
    ng.covariance.factorised,
]
families_classes: list[Any] = [
    ng.families.Array,
    ng.families.Bernoulli,
    ng.families.Beta,
    ng.families.Binary,
    ng.families.Categorical,
    ng.families.ConcentrationBound,
    ng.families.Dirichlet,
    ng.families.Family,
    ng.families.Gamma,
    ng.families.GammaShape,
    ng.families.GaussianChain,
    ng.families.GaussianGamma,
    ng.families.HalfNormalPrecision,
    ng.families.LaplaceWeight,
    ng.families.LogGamma,
    ng.families.LogisticBound,
    ng.families.MarkovChain,
    ng.families.MatrixNormalWishart,
    ng.families.MultivariateNormal,
    ng.families.Normal,
    ng.families.NormalGamma,
    ng.families.NormalWishart,
    ng.families.Param,
    ng.families.Poisson,
    ng.families.PolyaGamma,
    ng.families.Shares,
    ng.families.StickBound,
    ng.families.Sticks,
    ng.families.TiedNormalWishart,
    ng.families.TruncatedExponential,
    ng.families.TruncatedNormal,
    ng.families.Wishart,
]
families_functions: list[Callable[..., Any]] = [
    ng.families.spd_inverse_logdet,
    ng.families.spd_logdet,
]
families_others: list[Any] = [
    ng.families.Stats,
]
errors_classes: list[type[Exception]] = [
    ng.errors.CoupledCategories,
    ng.errors.LostDigits,
    ng.errors.ModelFileError,
    ng.errors.NotAdditive,
    ng.errors.NotAtMaximum,
    ng.errors.NotConjugate,
    ng.errors.NotConverged,
    ng.errors.PlateMismatch,
    ng.errors.PoorApproximation,
    ng.errors.PoorMixing,
    ng.errors.SymmetricStart,
    ng.errors.UnreachedNode,
]

table: ng.data.Ratings = ng.data.make_ratings(n_users=20, n_items=9, n_ratings=60).ratings
step = ng.inference.RobbinsMonro(delay=1.0)
kernel: ng.covariance.Covariance = ng.covariance.RBF() + ng.covariance.White(0.1)
node: ng.language.Laplace = ng.language.Laplace("x", 0.0, 1.0)


def stop_at_ten(progress: ng.inference.Progress) -> bool:
    """A callback."""
    return progress.t >= 10


model: ng.MatrixFactorization = ng.MatrixFactorization(2).fit(table, callbacks=[stop_at_ten])
reason: ng.inference.Reason = model.stop_.reason
print(kernel, node.name, reason.name, model.set_params(tol=0.0).continue_fit(max_steps=1).elbo_)
