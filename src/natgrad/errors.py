"""The errors natgrad raises for states and declarations; plain mistakes in values raise ValueError or TypeError."""

from __future__ import annotations

__all__ = [
    "CoupledCategories",
    "LostDigits",
    "ModelFileError",
    "NotAdditive",
    "NotAtMaximum",
    "NotConjugate",
    "NotConverged",
    "PlateMismatch",
    "PoorApproximation",
    "PoorMixing",
    "SymmetricStart",
    "UnreachedNode",
]


class ModelFileError(ValueError):
    """A file is not a model file, is damaged, or comes from a newer natgrad; the text says which."""


class NotAdditive(ValueError):
    """What groups tell the globals has no finite summary that adds up, so it cannot be remembered; the text says why."""


class NotAtMaximum(ValueError):
    """Linear response was asked for where the bound has no strict maximum; the text says along what it rises or is flat."""


class NotConjugate(TypeError):
    """An edge of the network has no closed-form message; the text names the edge and what would fit."""


class PlateMismatch(ValueError):
    """Plates, shapes or index arrays do not fit together; the text names the nodes and the sizes."""


class SymmetricStart(ValueError):
    """Every component of a mixture starts equal, so no update could ever tell them apart."""


class NotConverged(UserWarning):
    """A fit stopped at a limit before it converged, or a number was computed from such a fit; the text says what to do."""


class UnreachedNode(UserWarning):
    """A hidden node has no path to data: its posterior is its prior."""


class CoupledCategories(UserWarning):
    """Hidden categories are tied by tables with probabilities near 0 or 1, which independent factors cannot follow."""


class LostDigits(UserWarning):
    """Known numbers lie so far from zero, for how little they differ, that their squares lose what tells them apart."""


class PoorApproximation(UserWarning):
    """Draws from q cannot be weighted into draws from the posterior: intervals are not to be relied on."""


class PoorMixing(UserWarning):
    """Chains of posterior draws do not agree with one another yet: their intervals are not to be relied on."""
