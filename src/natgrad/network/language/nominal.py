"""Abstract classes whose instances are those of their subclasses, and of nothing else."""

from __future__ import annotations

from abc import ABCMeta

__all__ = ["Nominal"]


class Nominal(ABCMeta):
    """What an expression is, is what it inherits from: asked many times in a fit, and slowly the first time of each class.

    `ABCMeta` looks for classes that were registered, through all subclasses; nobody registers any here.
    """

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__
