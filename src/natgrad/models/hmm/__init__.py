"""Hidden Markov models: `HMM`, its kinds of emissions, durations, `Transitions` and `Subchains`.

Models of one kind are at natgrad's top.
Each name is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.models.hmm.durations import Explicit, NegativeBinomial
    from natgrad.models.hmm.general import HMM
    from natgrad.models.hmm.kinds import Autoregressive, Bernoulli, Categorical, Gaussian, Mixture, Poisson, StudentT
    from natgrad.models.hmm.parts import Subchains
    from natgrad.models.hmm.priors import Transitions

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


def __getattr__(name: str) -> Any:
    """A kind of emission or of durations, a method, or the model."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "HMM":
        from natgrad.models.registry import model_class

        return model_class(name)
    homes = {"Explicit": "durations", "NegativeBinomial": "durations", "Subchains": "parts", "Transitions": "priors"}
    home = homes.get(name, "kinds")
    return getattr(import_module(f"natgrad.models.hmm.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
