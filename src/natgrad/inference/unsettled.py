"""A run that a limit has ended before it converged, in; a warning, at the line of the user's program, out."""

from __future__ import annotations

import functools
import os
import sys
import warnings

from natgrad.errors import NotConverged
from natgrad.inference.trace import Stop

__all__ = ["warn_if_ran_out"]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn_if_ran_out(stop: Stop) -> None:
    """Warn of a fit that has not converged; ``tol=0`` asks for all steps, and says nothing."""
    if stop.ran_out:
        words = f"the fit has not converged: {stop}"
        warnings.warn(words, _category(), stacklevel=_levels_to_the_caller())


def _category() -> type[Warning]:
    """Ours; one that is also scikit-learn's where that is loaded: nobody else can ask for it by its class."""
    theirs = sys.modules.get("sklearn.exceptions")
    return NotConverged if theirs is None else _as_theirs(theirs.ConvergenceWarning)


@functools.cache
def _as_theirs(theirs: type[Warning]) -> type[Warning]:
    return type("ConvergenceWarning", (NotConverged, theirs), {"__module__": __name__, "__doc__": NotConverged.__doc__})


def _levels_to_the_caller() -> int:
    """How far above `warn_if_ran_out` the first line stands that is not of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
