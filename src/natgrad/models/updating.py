"""``update`` and ``forget``: a fitted estimator and data that come or go in; the fit given all that is left out.

A fit holds what it was made of, as it lies and not in files. What comes joins it, what goes leaves it, sums over all that is left
are made anew (nothing is subtracted), and the engine goes on from the state that was reached. A model says how it reads more data
(`_more`) and how it goes on (`_go_on`); the rest is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from natgrad.inference.options import all_or_nothing

if TYPE_CHECKING:
    from natgrad.data.held import Held

__all__ = ["UpdateMixin"]


class UpdateMixin:
    """What every ready model has beside ``fit``: data that come and go."""

    # What the fit was made of; None after a stream or a file. Not in the file, and not in a pickle.
    _data: Any = None
    _keeps_data: ClassVar[bool] = True

    if TYPE_CHECKING:

        def _check_fitted(self) -> None: ...

    @all_or_nothing
    def update(self, X: Any, y: Any = None, **data: Any) -> Self:
        """The fit given more data: those of the fit, which are held, and these; it goes on from where it was, to ``tol``.

        Parameters
        ----------
        X, y, **data : as in `fit`
            Documents may bring new words, ratings new users and items; a pair that was rated before has its new rating.

        Where the data of the fit are gone (a model that was loaded, or fitted to a stream), ``partial_fit`` takes a step.

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.concatenate([np.zeros(40), np.full(40, 5.0)])[:, None] + np.random.default_rng(0).normal(
        ...     size=(80, 1)
        ... )
        >>> model = ng.GaussianMixture(2).fit(X[:60])
        >>> model.update(X[60:]).n_rows_seen_
        80.0
        """
        held = self._needed_data("update")
        self._go_on(held.joined(self._more(X, y, **data)))
        return self

    @all_or_nothing
    def forget(self, which: Any) -> Self:
        """The fit without some of its data: sums over the others are made anew, and it goes on from where it was, to ``tol``.

        Parameters
        ----------
        which : numbers, or a flag for each
            Of rows, documents, sequences or ratings, in the order in which they came. Ratings also by ids,
            ``{"user": ["ann"]}`` or ``{"item": [7]}``. Users and items without ratings, and words of texts that no document has
            any more, are gone: nothing of them is in the file that ``save`` writes.

        Examples
        --------
        >>> import natgrad as ng
        >>> ratings = ng.Ratings(["ann", "ann", "bob", "bob", "cid"], ["x", "y", "x", "z", "y"], [5, 3, 4, 1, 2])
        >>> model = ng.MatrixFactorization(2).fit(ratings)
        >>> model.forget({"user": ["bob"]}).ratings_.user_ids.tolist(), model.ratings_.item_ids.tolist()
        (['ann', 'cid'], ['x', 'y'])
        """
        from natgrad.data.held import chosen_elements

        held = self._needed_data("forget")
        flags = chosen_elements(held, which)
        if flags.all():
            raise ValueError(f"forget: none of the {held.n_elements} {held.noun} would be left")
        self._go_on(held.taken(np.flatnonzero(~flags)) if flags.any() else held)
        return self

    def _needed_data(self, what: str) -> Held:
        self._check_fitted()
        if not self._keeps_data:
            more = what == "update" and hasattr(self, "partial_fit")
            advice = "partial_fit() takes more of them in" if more else "fit() again, with all that count"
            raise ValueError(f"{what}: {type(self).__name__} keeps no data of its fit; {advice}")
        if self._data is None:
            advice = "partial_fit() takes a step from new ones" if what == "update" else "fit() again, without them"
            raise ValueError(
                f"{what}: the data of this {type(self).__name__} are not here: it was loaded from a file, or took a stream; "
                f"{advice}"
            )
        held: Held = self._data
        return held

    def _more(self, *data: Any, **others: Any) -> Any:
        """More data, checked as those of the fit were."""
        raise NotImplementedError

    def _go_on(self, held: Any) -> None:
        """Run to tolerance on these data, from the state of the fit; set ``_data`` at the end."""
        raise NotImplementedError
