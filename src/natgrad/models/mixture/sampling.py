"""Memberships of a mixture drawn given its parameters, with what they tell these: the local part of Gibbs sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.families import Categorical
from natgrad.inference.problem import Block, State
from natgrad.inference.sampler import GroupDraw, alike
from natgrad.models.mixture.problem import memberships
from natgrad.threads import in_order

if TYPE_CHECKING:
    from natgrad.models.mixture.problem import MixtureProblem

__all__ = ["MembershipSampler"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
Array = npt.NDArray[Any]


class MembershipSampler:
    """The `GroupSampler` of a mixture.

    A row that counts w times is w rows with the same numbers, each with a membership of its own; the membership that is kept is
    that of the first.
    """

    def __init__(self, problem: MixtureProblem) -> None:
        self.problem, self.n_labels = problem, len(problem.model.alpha)
        self.local_blocks = {"membership": Block("membership", Categorical(), ("row",), (problem.n_groups,))}
        self.classes, self.known = alike(problem.model.alpha, [0]), np.zeros(0, dtype=np.int64)
        weight = problem.data.weight
        if weight is not None and (bad := np.flatnonzero(weight != np.round(weight))).size:
            raise ValueError(
                f"draws: sample_weight[{bad[0]}] = {weight[bad[0]]:g} is no whole number, so there is no such number of "
                "memberships to draw. Use whole weights, or none"
            )
        self._times = None if weight is None else weight.astype(np.int64)

    def draw(self, state: State, rng: np.random.Generator, chances: bool) -> GroupDraw:
        """A membership of each row."""
        problem, sent = self.problem, self.problem.sent(state)
        uniforms = rng.random(problem.n_groups)
        seeds = rng.integers(2**63, size=-(-problem.n_groups // problem.piece))
        z = np.empty(problem.n_groups, dtype=np.int64)
        kept = np.empty((problem.n_groups, self.n_labels)) if chances else None

        def piece(number: int) -> tuple[Floats, Floats]:
            here = slice(number * problem.piece, (number + 1) * problem.piece)
            phi, q, _ = memberships(problem.data.x[here], sent)
            # Up to the last with some weight: a uniform beyond the rounded sum must not choose an impossible one.
            cut = np.minimum(np.cumsum(q, axis=0), q.sum(0))
            z[here] = np.minimum((cut <= uniforms[here] * cut[-1]).sum(0), self.n_labels - 1)
            if kept is not None:
                kept[here] = q.T
            chosen = (np.arange(self.n_labels)[:, None] == z[here]) * 1.0
            if self._times is not None:
                chosen = self._copies(chosen, q, self._times[here], np.random.default_rng(int(seeds[number])))
            return chosen.sum(1), phi @ chosen.T

        parts = in_order(piece, range(len(seeds)))
        sums = tuple(np.sum(part, axis=0) for part in zip(*parts, strict=True))
        return GroupDraw(problem.told(sums), {"membership": z}, {} if kept is None else {"membership": kept})

    def _copies(self, chosen: Floats, q: Floats, times: Array, rng: np.random.Generator) -> Floats:
        """How many of the copies of each row are of each component [K, n]; the first is where it was drawn."""
        others = rng.multinomial(np.maximum(times - 1, 0), (q / q.sum(0)).T).T
        return (chosen + others) * (times > 0)

    def probabilities(self, state: State, most: int) -> dict[str, Floats]:
        """q(z) of the first rows; of those that do not count nothing."""
        x, weight = self.problem.data.rows(slice(0, most))
        q = memberships(x, self.problem.sent(state))[1].T
        return {"membership": q if weight is None else q * weight[:, None]}

    def renumbered_message(self, name: str, message: Stats, order: Array) -> Stats:
        """What is told weights and components in another order; what all components share they tell together."""
        axes = self.problem.emission.axes if name == "components" else ((0,),)
        pairs = zip(message, axes, strict=True)
        return tuple(np.take(part, order, axis=own[0]) if own else part for part, own in pairs)
