"""`ShowMixin`: a fit in, its page and its place in a notebook out.

The pages are made in `natgrad.report`, a layer above the models. It is looked up by name when somebody asks for a page, so
that no model depends on how it is shown.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ShowMixin", "reporter"]


def reporter(module: str) -> Any:
    """A module of the layer above."""
    return importlib.import_module(f"natgrad.report.{module}")


class ShowMixin:
    """``report(path)``, ``plot``, and a summary where notebooks show objects."""

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        data: Any = None,
        names: Sequence[str] | None = None,
        held_out: Any = None,
        title: str | None = None,
    ) -> Path:
        """Write one self-contained HTML page: the run, and what the model found.

        Parameters
        ----------
        path : where to; the folder must exist
        data : what was fitted, or other data of the kind, optional
            Documents, ratings, series: what the model shows them for is said with the model.
        names : a name for each row of the data, optional
        held_out : data that were not fitted, optional
            The model's score on them is shown.
        title : the heading, optional
        """
        written: Path = reporter("page").write_report(
            self, os.fspath(path), data=data, names=names, held_out=held_out, title=title
        )
        return written

    @property
    def plot(self) -> Any:
        """Pictures with matplotlib: ``plot()``, ``plot.trace()``, ``.forest()``, ``.posterior()`` and, of networks, ``.ppc()``.

        Each takes axes to draw on and returns axes.

        Examples
        --------
        >>> import natgrad as ng
        >>> bias = ng.Beta("bias", 1.0, 1.0, plate=ng.Plate("coin", 3))
        >>> fit = ng.Network(ng.Binomial("heads", 10, bias, plate=bias.plates[0], observed=[2, 5, 9])).fit()
        >>> fit.plot.forest().get_xlabel()
        'mean, 45% and 90% intervals (q)'
        """
        return reporter("charts.plots").Plots(self)

    def _html_repr(self) -> str:
        """What a notebook shows: a summary of the fit, or scikit-learn's diagram before there is one."""
        if not any(hasattr(self, name) for name in ("trace_", "trace")):
            base: Any = super()
            # Before version 1.7 of scikit-learn it has another name.
            unfitted: str = base._html_repr() if hasattr(base, "_html_repr") else base._repr_html_inner()
            return unfitted
        return str(reporter("notebook").summary(self))

    def _repr_html_(self) -> str:
        return self._html_repr()
