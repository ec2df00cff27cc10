"""Gaussian processes along time (`StateSpaceGP`) and from nearest rows (`VecchiaGPRegressor`); sparse ones are at the top.

`Solver` has the numbers of how sparse ones are fitted.
"""

from natgrad._lazy import attach

__all__ = ["Solver", "StateSpaceGP", "VecchiaGPRegressor"]

__getattr__, __dir__ = attach(__name__, __file__)
