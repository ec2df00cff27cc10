"""The predictive distribution of a node under posterior draws: its parents at values that were drawn together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import Plan
from natgrad.network.language.nodes import Node
from natgrad.network.results.predictive import Predictive, make_predictive
from natgrad.posterior.draws import Draws

__all__ = ["DrawnPredictive", "predictive_of_draws"]

Array = npt.NDArray[Any]


def predictive_of_draws(
    plan: Plan, draws: Draws, name: str, sizes: Mapping[Any, int], slots: Mapping[str, Any]
) -> DrawnPredictive:
    """As `make_predictive`, with draws of the posterior in the place of q."""
    made = make_predictive(plan, {}, name, sizes, slots)
    return DrawnPredictive(made.node, draws, made._new)


class DrawnPredictive(Predictive):
    """The distribution of a node's new values, averaged over draws of its parents; arrays have its plates first."""

    def __init__(self, node: Node, draws: Draws, new: Mapping[str, Node]) -> None:
        super().__init__(node, {}, new, {})
        self._draws = draws
        self._picked: Array | None = None

    def _exact_mean(self) -> Array | None:
        return None

    def _exact_variance(self) -> Array | None:
        return None

    def _slots(self, node: Node, rng: np.random.Generator, n: int, drawn: dict[str, Array]) -> dict[str, Array]:
        if not drawn:
            self._picked = None
        return super()._slots(node, rng, n, drawn)

    def _posterior(self, parent: Node, rng: np.random.Generator, n: int) -> Array:
        """Values of a parent at the same draws as those of all others."""
        names = [name for name in self._draws if self._draws[name].kept is not None]
        stride = max((self._draws[name].stride for name in names), default=1)
        factor = self._draws[parent.name]
        values = factor.values[:, :: stride // factor.stride]
        flat = values.reshape(-1, *values.shape[2:])
        if self._picked is None:
            # All of them as often as one another, as far as n goes; the rest at random.
            whole = np.tile(np.arange(len(flat)), n // len(flat))
            self._picked = np.concatenate([whole, rng.choice(len(flat), n - len(whole), replace=False)])
        return np.asarray(flat[self._picked])
