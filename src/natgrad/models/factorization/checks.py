"""The parameters of a `MatrixFactorization` in; the first that makes no sense, named with its value, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.models.factorization.estimator import MatrixFactorization

__all__ = ["check_settings", "refuse_time"]


def check_settings(model: MatrixFactorization) -> None:
    """Raise for parameters that say what is fitted and are wrong, each alone or together."""
    model._check_choices()
    if model.n_jobs is not None:
        whole_number(model.n_jobs, "n_jobs")
    whole_number(model.n_factors, "n_factors")
    whole_number(model.seed, "seed", least=0)
    if model.n_sweeps is not None:
        whole_number(model.n_sweeps, "n_sweeps", least=2)
        if model.inference != "gibbs":
            raise ValueError(
                f'n_sweeps={model.n_sweeps!r} belongs to inference="gibbs": leave it out, or say inference="gibbs"'
            )
    if model.inference == "gibbs" and model.executor is not None:
        raise ValueError(
            f'executor={model.executor!r} computes sweeps of VB, and inference="gibbs" samples in this process: '
            'leave out executor=, or say inference="vb"'
        )
    if model.n_negatives is not None:
        if model.likelihood != "bernoulli":
            raise ValueError(
                f'n_negatives={model.n_negatives!r} belongs to likelihood="bernoulli": leave it out, or say it'
            )
        if not 0 <= real_number(model.n_negatives, "n_negatives") < np.inf:
            raise ValueError(f"n_negatives must be ≥ 0 and finite, got {model.n_negatives!r}")
    for name in ("noise_precision", "prior_precision", "init_scale", "noise_dof"):
        value = getattr(model, name)
        if value is None and name in ("noise_precision", "prior_precision"):
            continue
        if not 0 < real_number(value, name) < np.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value!r}")
    learned = [
        n
        for n in ("biases", "learn_noise", "learn_priors", "noise_per")
        if getattr(model, n) not in (False, None) or (n in ("biases", "learn_priors") and getattr(model, n) is None)
    ]
    if model.factorized and learned and model.likelihood != "poisson":
        raise ValueError(
            f"factorized=True is the paper's model, with known precisions and no biases: {learned[0]}="
            f"{getattr(model, learned[0])!r} needs factorized=False"
        )


def refuse_time(options: Mapping[str, Any]) -> None:
    """Say who takes times and contexts of ratings."""
    for name in ("time", "context"):
        if name in options:
            raise TypeError(
                f"{name}= is not for MatrixFactorization: ng.recommenders.ContextFactorization has ratings in time and context"
            )
