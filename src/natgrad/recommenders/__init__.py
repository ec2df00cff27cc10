"""Recommenders beyond `ng.MatrixFactorization`: ratings in time and context, items by their likes, weighted means of several."""

from natgrad.recommenders.context import ContextFactorization
from natgrad.recommenders.likes import ItemWishart, Stacked

__all__ = ["ContextFactorization", "ItemWishart", "Stacked"]
