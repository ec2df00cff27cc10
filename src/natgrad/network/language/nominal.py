"""A metaclass of abstract classes whose instances are told by inheritance alone."""

from abc import ABCMeta

__all__ = ["Nominal"]


class Nominal(ABCMeta):
    """What an expression is, is what it inherits from: asked many times, the first time of each class too."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__
