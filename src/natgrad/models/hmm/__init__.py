"""Hidden Markov models: `HMM`, its kinds of emissions, durations, `Transitions` and `Subchains`.

Models of one kind are at the top.
"""

from natgrad._lazy import attach

__all__ = [
    "HMM",
    "Autoregressive",
    "Bernoulli",
    "Categorical",
    "Explicit",
    "Gaussian",
    "Mixture",
    "NegativeBinomial",
    "Poisson",
    "StudentT",
    "Subchains",
    "Transitions",
]

__getattr__, __dir__ = attach(__name__, __file__)
