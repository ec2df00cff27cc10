"""The components of a mixture for `natgrad.inference.moves`: a component's rows split in two by a fit to them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.group_components import Birth, GroupComponents, restricted, settled
from natgrad.inference.problem import State
from natgrad.kmeans import k_means, nearest
from natgrad.models.clusters import standard_columns
from natgrad.models.mixture.problem import MixtureProblem, memberships
from natgrad.random import Stream, generator

__all__ = ["MixtureComponents", "found_components"]

Floats = npt.NDArray[np.float64]
# Rows of a component that are looked at for a split, the least share of a row that is one of them, and the least it must hold.
MOST_ROWS, MEMBER, LEAST_HELD = 2_000, 0.1, 2.0
# Parts of a component of some rows, and of most rows; sweeps of each way, restricted to its rows, until one gains so few nats.
PARTS, MORE_PARTS, SWEEPS, LITTLE = (2, 2, 4), (2, 2, 4, 8), 12, 0.3


class MixtureComponents(GroupComponents):
    """Components of a `MixtureProblem`; ``problem.truncated`` keeps those at their prior empty."""

    problem: MixtureProblem

    def __init__(self, problem: MixtureProblem) -> None:
        axes = {"weights": ((0,),), "components": problem.emission.axes}
        super().__init__(problem, "component", len(problem.model.alpha), axes, ["components"])

    @property
    def may_empty(self) -> bool:
        """With α < 1 rows are better in few components than in many."""
        return bool((self.problem.model.alpha < 1.0).all())

    def held(self, state: State) -> Floats:
        """Σ q(z)."""
        return np.asarray(state.lam["weights"][0] - self._prior("weights")[0], np.float64)

    def split(
        self, state: State, k: int, empty: Sequence[int], number: int, seed: int, *, goal: float = -np.inf
    ) -> Birth | None:
        """The best of some ways to split, by the bound of several components on the rows of one."""
        problem, held = self.problem, self.held(state)
        if held[k] < LEAST_HELD:
            return None
        share = problem.by_row(lambda x, sent: sent.spread(memberships(x, sent)[1])[k], problem.sent(state))
        weight = share if problem.data.weight is None else share * problem.data.weight
        rng = generator(seed, Stream.MOVES, state.t, k, number)
        chosen = np.flatnonzero(share > MEMBER)
        if len(chosen) > MOST_ROWS:
            chosen = np.sort(rng.choice(chosen, MOST_ROWS, replace=False))
        if len(chosen) < 2 or not weight[chosen].any():
            return None
        parts: tuple[int, ...] = MORE_PARTS if held[k] > 0.5 * held.sum() else PARTS
        if len(empty) == 1:  # one place, as after a merge: the first way is along the longest axis, the next one is not
            parts = (2,) if number % 2 == 0 else (0, 2)
        sizes = [n for n in parts if n <= min(len(empty) + 1, held[k] / LEAST_HELD)]
        best = self._best_way(problem.data.x[chosen], weight[chosen] * (held[k] / weight[chosen].sum()), sizes, rng)
        if best is None:
            return None
        gain, part, split_state = best
        # Of every row that k holds, the parts that the components take.
        taken = (
            share
            * problem.by_row(lambda x, sent: sent.spread(memberships(x, sent)[1])[:-1].T, part.sent(split_state)).T
        )
        places = [k, *empty[: len(taken) - 1]]
        new, old = problem.clustered(taken, places), self.told(state)
        after = {
            name: tuple(_replaced(o, n, a, places) for o, n, a in zip(old[name], new[name], axes, strict=True))
            for name, axes in self.axes.items()
        }
        return Birth(self.at(state, after), gain, tuple(places[1:]))

    def _best_way(
        self, x: Any, weight: Floats, sizes: Sequence[int], rng: np.random.Generator
    ) -> tuple[float, MixtureProblem, State] | None:
        """The problem and the state of several components of these rows, and how much higher its bound is than that of one."""
        problem, rows = self.problem, standard_columns(np.asarray(x, np.float64), weight)
        ways: list[tuple[float, MixtureProblem, State]] = []
        for way, size in enumerate(sizes):
            labels = None if size == 0 else _labels(rows, weight, size, rng, along_axis=way == 0)
            if labels is None:
                continue
            # So many of them, and the weight of all others, which get nothing.
            alpha = problem.model.alpha
            own = np.append(alpha[:size], max(alpha[size:].sum(), alpha.min()))
            part = type(problem)(problem.model._replace(alpha=own), x, weight, truncated=True)
            alone = part.sweep(part.updated(part.clustered(np.ones((1, len(rows))), [0]))).bound
            member = (labels == np.arange(size)[:, None]).astype(np.float64)
            bound, state = settled(part, part.updated(part.clustered(member, list(range(size)))), SWEEPS, LITTLE)
            ways.append((bound - alone, part, state))
        return max(ways, key=lambda one: one[0]) if ways else None


def found_components(problem: MixtureProblem, state: State) -> tuple[Any, State]:
    """Priors and state of the components that hold something alone, the heaviest first.

    The weights of some components, divided by their sum, have the Dirichlet law of their own concentrations.
    """
    components = MixtureComponents(problem)
    held = components.held(state)
    order = np.argsort(-held, kind="stable")
    order = order[components.active(state)[order]]
    model = problem.model._replace(alpha=problem.model.alpha[order])
    fewer = type(problem)(model, problem.data.x, None)
    lam = {
        name: restricted(
            state.lam[name], components.axes[name], order, problem.full_prior(name), fewer.full_prior(name)
        )
        for name in problem.blocks
    }
    return model, fewer.at(lam, state.t)


def _replaced(old: Any, new: Any, axes: tuple[int, ...], places: list[int]) -> Any:
    """What was told, with that of some components replaced; statistics that all share stay as they are."""
    out = np.array(old, dtype=np.float64)
    for axis in axes:
        np.moveaxis(out, axis, 0)[places] = np.moveaxis(np.asarray(new), axis, 0)[places]
    return out


def _labels(
    rows: Floats, weight: Floats, n: int, rng: np.random.Generator, along_axis: bool
) -> npt.NDArray[np.int64] | None:
    """The cluster of each row: two, begun along the longest axis, or some, from rows that lie apart; None if one is empty."""
    if along_axis:
        centred = rows - np.average(rows, 0, weight)
        _, _, axes = np.linalg.svd(centred * np.sqrt(weight / weight.sum())[:, None], full_matrices=False)
        second = centred @ axes[0] > 0
        if not second.any() or second.all():
            return None
        centres = np.stack([np.average(rows[second == side], 0, weight[second == side]) for side in (False, True)])
    else:
        centres = k_means(rows, n, rng, weight, trials=1)
    labels = nearest(rows, centres)
    return labels if len(np.unique(labels)) == n else None
