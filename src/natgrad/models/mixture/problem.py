"""A mixture as the engine's `RowProblem`: blocks π and φ; log-likelihoods and statistics by matrix products.

π ~ Dir(α),   φ_k ~ conjugate (`natgrad.models.gaussians`, `natgrad.models.hmm.emissions`),   z_n ~ Cat(π),   x_n ~ p(x | φ_z)
q = q(π) q(φ) Π q(z_n);   q(z_n = k) ∝ exp(E log π_k + E log p(x_n | φ_k)),   log Z_n its sum

Bishop (2006), section 10.2. A row is a group. Of what a component is, only its `Emission` knows: log p(x | φ_k) is linear in
statistics of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from natgrad.families import Categorical, Dirichlet
from natgrad.inference.problem import Block, State
from natgrad.inference.rows import RowProblem, RowShard
from natgrad.inference.sampler import GroupDraw, alike
from natgrad.models.gaussians import n_statistics, statistics
from natgrad.threads import in_order

__all__ = ["MembershipSampler", "MixtureProblem", "MixtureWeights", "memberships"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
Array = npt.NDArray[Any]


class MixtureWeights(NamedTuple):
    """log p(x, k) as linear forms [K, F] of the statistics of x − origin, and log π [K].

    Where only some components may hold rows, these are theirs, and ``places`` says which of all ``size`` they are.
    """

    by_column: bool
    origin: Floats
    forms: Floats
    log_shares: Floats
    places: npt.NDArray[np.int64] | None = None
    size: int = 0

    def spread(self, values: Floats) -> Floats:
        """Values of the components that are here [K', …] among those of all [K, …]; the others have none."""
        if self.places is None:
            return values
        out = np.zeros((self.size, *values.shape[1:]))
        out[self.places] = values
        return out


def memberships(x: Any, sent: MixtureWeights) -> tuple[Floats, Floats, Floats]:
    """Statistics [F, n], q(z) [K', n] of the components that are here, and log Z [n] of rows."""
    phi = statistics(x - sent.origin, sent.by_column)
    q = sent.forms @ phi
    q += sent.log_shares[:, None]
    top = q.max(0)
    np.exp(np.subtract(q, top, out=q), out=q)
    total = q.sum(0)
    q /= total
    return phi, q, np.log(total) + top


def summarise(shard: RowShard, sent: MixtureWeights, given: Floats | None = None) -> Stats:
    """Σ w log Z, Σ w q(z) [K] and Σ w φ(x) q(z) [F, K]; ``given`` is q(z) if it is known."""
    if given is not None:
        phi, q, log_z = statistics(shard.x - sent.origin, sent.by_column), given, np.zeros(len(shard.x))
    else:
        phi, q, log_z = memberships(shard.x, sent)
    if shard.weight is None:
        return log_z.sum(), sent.spread(q.sum(1)), sent.spread(q @ phi.T).T if sent.places is not None else phi @ q.T
    q = q * shard.weight
    sums = sent.spread(q @ phi.T).T if sent.places is not None else phi @ q.T
    return log_z @ shard.weight, sent.spread(q.sum(1)), sums


class MixtureProblem(RowProblem):
    """Rows of a mixture; ``model`` has the priors ``alpha`` [K] and ``emission``, and the ``origin`` of rows.

    ``truncated``: components at their prior hold no rows, so that they are empty until a move fills them (decision 0040).
    """

    summarise = staticmethod(summarise)

    def __init__(self, model: Any, x: Any, weight: Floats | None, *, truncated: bool = False, **options: Any) -> None:
        self.truncated = truncated
        self.model, n = model, len(model.alpha)
        self.emission = g = model.emission
        super().__init__(x, weight, n_statistics=n_statistics(x.shape[1], g.by_column), n_readers=2 * n, **options)
        components = Block("components", g.family, ("component", "column")[: len(g.shape)], g.shape, origin=g.origin)
        self.blocks = {"weights": Block("weights", Dirichlet(), (), ()), "components": components}

    @cached_property
    def sampler(self) -> MembershipSampler:  # type: ignore[override]
        """Draws memberships."""
        return MembershipSampler(self)

    def prior_of(self, name: str) -> Stats:
        """η̃."""
        return self.emission.prior if name == "components" else (self.model.alpha - 1.0,)

    def of_rows(self, x: Any, weight: Floats | None) -> Self:
        """The same mixture of other rows."""
        return type(self)(self.model, x, weight, truncated=self.truncated)

    def sent(self, state: State, at_mean: bool = False) -> MixtureWeights:
        """Expectations under q; or the mixture at the mean of q, which is a density."""
        g, mu, log_shares = self.emission, state.mu["components"], state.mu["weights"][0]
        if at_mean:
            mu, log_shares = g.point(state.lam["components"]), np.log(Dirichlet().mean(state.lam["weights"]))
        forms = g.weights(mu)
        if self.truncated:
            places = np.flatnonzero(state.lam["weights"][0] != self.empty_prior("weights")[0])
            return MixtureWeights(
                g.by_column, self.model.origin, forms[places], log_shares[places], places, len(log_shares)
            )
        return MixtureWeights(g.by_column, self.model.origin, forms, log_shares)

    def told(self, sums: Stats) -> dict[str, Stats]:
        """Counts, and sums of statistics as natural parameters."""
        return {"weights": (sums[0],), "components": self.emission.message(sums[1])}

    def told_along(self, state: State, rows: Any, direction: Mapping[str, Stats]) -> Floats:
        """⟨m_n, dμ⟩ of every row: what log p(x, k) changes by, averaged over memberships; it is linear in the moments."""
        moved = {n: tuple(a + b for a, b in zip(state.mu[n], direction[n], strict=True)) for n in self.blocks}
        sent, there = self.sent(state), self.sent(state._replace(mu=moved))

        def changes(x: Any, sent: MixtureWeights) -> Floats:
            phi, q, _ = memberships(x, sent)
            change = (there.forms - sent.forms) @ phi + (there.log_shares - sent.log_shares)[:, None]
            return np.asarray((q * change).sum(0))

        each = self.by_row(changes, sent)
        return each if self.data.weight is None else each * self.data.weight

    def clustered(self, member: Floats, places: Any = None) -> dict[str, Stats]:
        """What all rows tell if q(z) [K, n] is given; of some components alone, if ``places`` says which."""
        size = len(self.model.alpha)
        rule = MixtureWeights(self.emission.by_column, self.model.origin, np.empty(0), np.empty(0), places, size)
        pieces = [slice(n, n + self.piece) for n in range(0, self.n_groups, self.piece)]
        parts = [summarise(self.data.rows(piece), rule, member[:, piece])[1:] for piece in pieces]
        return self.told(tuple(map(sum, zip(*parts, strict=True))))


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
