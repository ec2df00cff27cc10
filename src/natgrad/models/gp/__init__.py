"""Gaussian processes: `StateSpaceGP`, along time. The sparse ones are at the top of natgrad.

The name is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.models.gp.state_space import StateSpaceGP

__all__ = ["StateSpaceGP"]


def __getattr__(name: str) -> Any:
    """The model."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from natgrad.models.registry import model_class

    return model_class(name)


def __dir__() -> list[str]:
    return list(__all__)
