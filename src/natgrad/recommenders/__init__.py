"""Recommenders beyond `ng.MatrixFactorization`, `ng.recommenders`: each is a declared network with a thin estimator."""

from natgrad.recommenders.context import ContextFactorization

__all__ = ["ContextFactorization"]
