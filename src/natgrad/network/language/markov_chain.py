"""`MarkovChain`: a path of categories along time, one factor for the whole of it; some of its states may be known."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.errors import PlateMismatch
from natgrad.network.language.expressions import CATEGORY, LOG_ZERO, SIMPLEX
from natgrad.network.language.node_helpers import Plates, checked_lengths, event_length
from natgrad.network.language.nodes import Node, Slot
from natgrad.network.language.plates import Plate, as_plates, plates_in_words
from natgrad.network.language.scope import Scope
from natgrad.network.language.slots import checked_categories, checked_mask
from natgrad.network.polynomial import Factor, Label, Polynomial
from natgrad.validation import as_observed

__all__ = ["MarkovChain"]


@final
class MarkovChain(Node):
    """z_1 ~ Cat(initial), z_t ~ Cat(transition[z_{t−1}]) along the last plate: one factor for the whole chain.

    Parameters
    ----------
    initial : Dirichlet or probabilities [K]
    transition : Dirichlet on a plate of K states, or probabilities [K, K]; row i holds P(next | i)
    plate : Plate or several
        The last one is time; those before it are independent sequences of equal length.
    lengths : ints, optional
        Several sequences laid end to end on the time plate: the length of each.
    observed : integers [plates…, time], optional
        States that are known; NaN, or ``mask`` False, where they are not. The others are inferred given these.
    """

    kind = CATEGORY
    is_chain = True
    slots_of = (Slot("initial", SIMPLEX), Slot("transition", SIMPLEX, events=2))

    def __init__(
        self,
        name: str,
        initial: Any,
        transition: Any,
        *,
        plate: Plates,
        lengths: Any = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        plates = as_plates(name, plate)
        if not plates:
            raise PlateMismatch(f"{name!r}: a chain needs a plate of time steps: give plate=Plate('time', n)")
        if plates[-1].weight is not None and plates[-1].begins is None:
            raise PlateMismatch(f"{name!r}: the time plate {plates[-1].name!r} of a chain cannot carry weights")
        self.family = families.MarkovChain(checked_lengths(name, lengths, plates[-1]))
        self._evidence: npt.NDArray[np.float64] | None = None
        self._states = observed, mask
        super().__init__(name, {"initial": initial, "transition": transition}, plates)

    @property
    def block_plates(self) -> tuple[Plate, ...]:
        return self.plates[:-1]

    def stat_shapes(self) -> list[tuple[int, ...]]:
        marginals, first, pairs = super().stat_shapes()
        return [(*marginals[:-2], self.plates[-1].size, marginals[-1]), first, pairs]

    def _event_size(self, observed: Any) -> int | None:
        sizes = {name: event_length(self.parameters[name]) for name in ("initial", "transition")}
        if sizes["initial"] != sizes["transition"]:
            raise PlateMismatch(
                f"{self.name!r}: initial has {sizes['initial']} states, but the rows of transition have {sizes['transition']}"
            )
        size = sizes["initial"]
        assert size is not None
        self._evidence = self._checked_states(size)
        self.has_evidence = self._evidence is not None
        return size

    def _checked_states(self, size: int) -> npt.NDArray[np.float64] | None:
        """The potentials [plates…, time, state] of states that were observed: they rule out all others."""
        observed, mask = self._states
        if observed is None:
            if mask is not None:
                raise ValueError(
                    f"{self.name!r}: mask says which states were observed, but there are none: give observed= too"
                )
            return None
        states = as_observed(observed, f"{self.name!r}: observed")
        shape = tuple(plate.size for plate in self.plates)
        if states.shape != shape:
            raise PlateMismatch(
                f"{self.name!r}: observed has shape {states.shape}, but {shape} is needed ({plates_in_words(self.plates)})"
            )
        present = ~np.isnan(states) & checked_mask(self.name, mask, shape)
        chosen = checked_categories(f"{self.name!r}: observed", states, size, present)
        return np.where(present[..., None] & (np.arange(size) != chosen[..., None]), LOG_ZERO, 0.0)

    def log_density(self, scope: Scope) -> Polynomial:
        # The term lives on the sequences; time is inside the factor.
        scope.plates = self.block_plates
        initial, transition, size = self.parameters["initial"], self.parameters["transition"], self.size
        assert size is not None
        for slot, expression in self.parameters.items():
            if any(plate.name == self.plates[-1].name for a in expression.accesses() for plate in a.leftover(scope)):
                raise PlateMismatch(
                    f"{self.name!r}: {slot} = {expression} lies on the time plate {self.plates[-1].name!r}, but a chain has one "
                    f"{slot} for all times"
                )
        i, j, k = (scope.fresh("k", size) for _ in range(3))
        if transition.is_known:
            table = transition.stat("log", scope, (i, j))
        else:
            plate = scope.single_leftover(transition, f"transition = {transition}, a row for each state,")
            scope.check_size(plate, i, f"transition = {transition}, a row for each state,")
            table = transition.stat("log", scope, (j,), {plate.name: i})
        first = self._chain("first", scope, (k,)) * initial.stat("log", scope, (k,))
        if (begins := self.plates[-1].begins) is not None:
            first *= Polynomial.of([Factor(scope.register(np.asarray(begins)), 0, (), known=True)])
        density = first + self._chain("pairs", scope, (i, j)) * table
        if self._evidence is None:
            return density
        time, state = scope.fresh("time", self.plates[-1].size), scope.fresh("k", size)
        axes = (*scope.plate_names, time, state)
        seen = Polynomial.of([Factor(scope.register(self._evidence), 0, axes, known=True)])
        return density + seen * self._chain("x", scope, (time, state))

    def _chain(self, name: str, scope: Scope, labels: tuple[Label, ...]) -> Polynomial:
        stat = self.family.stat_names.index(name)
        axes = (*scope.plate_names, *labels)
        return Polynomial.of([Factor(self.name, stat, axes, known=False)])
