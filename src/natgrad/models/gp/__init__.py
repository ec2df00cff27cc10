"""Gaussian processes along time (`StateSpaceGP`) and from nearest rows (`VecchiaGPRegressor`); sparse ones are at the top.

`Solver` has the numbers of how sparse ones are fitted. The names are imported when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.models.gp.settings import Solver
    from natgrad.models.gp.state_space import StateSpaceGP
    from natgrad.models.gp.vecchia import VecchiaGPRegressor

__all__ = ["Solver", "StateSpaceGP", "VecchiaGPRegressor"]


def __getattr__(name: str) -> Any:
    """The model."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Solver":
        from natgrad.models.gp.settings import Solver

        return Solver
    from natgrad.models.registry import model_class

    return model_class(name)


def __dir__() -> list[str]:
    return list(__all__)
