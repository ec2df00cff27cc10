"""Recommenders beyond `ng.MatrixFactorization`: ratings in time and context, items by their likes, weighted means of several."""

from natgrad.models.factorization.checks import FactorPriors
from natgrad.recommenders.context import ContextFactorization
from natgrad.recommenders.likes import ItemWishart, Stacked

__all__ = ["ContextFactorization", "FactorPriors", "ItemWishart", "Stacked"]
