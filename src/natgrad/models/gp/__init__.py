"""Gaussian processes along time (`StateSpaceGP`) and from nearest rows (`VecchiaGPRegressor`); sparse ones are at the top.

The names are imported when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.models.gp.state_space import StateSpaceGP
    from natgrad.models.gp.vecchia import VecchiaGPRegressor

__all__ = ["StateSpaceGP", "VecchiaGPRegressor"]


def __getattr__(name: str) -> Any:
    """The model."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from natgrad.models.registry import model_class

    return model_class(name)


def __dir__() -> list[str]:
    return list(__all__)
