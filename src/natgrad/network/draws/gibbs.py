"""Sample all hidden nodes in turn given the others: sweeps of Gibbs sampling as steps of the loop.

P, the expected log joint, at the statistics of values is the log joint itself, and affine in the statistics of one element. So
the complete conditional of a block has the natural parameter ∂P/∂μ_i at the statistics φ_j(x_j) of the values of its neighbours:
the target of variational inference, with values in the place of expectations. Elements that meet in a child go in turn, as there:
column after column, colour after colour. Gaussian nodes that meet are drawn together (`natgrad.network.draws.gaussian`), and
precisions of theirs with them.

Chains are an axis of every array, and random numbers those of one generator for all: a sweep of a hundred chains of a small
network takes little longer than one of four.

**Weights.** A weight of 3 stands for three rows with the same data, each with its own hidden value.

Variational inference has the same factor for all three. Draws differ: what enters the terms of others is the average of the
statistics of three draws, times the weight. That is exact where the polynomial is linear in them, which it is unless two hidden
nodes of the plate meet; then the average of the products is wanted, and there is no more to do than to write the rows out.

**Precisions of Gaussian nodes that are drawn together** are drawn with these nodes integrated out. A chain that draws a scale
given its effects, and the effects given the scale, creeps where the scale is near zero: each holds the other. Given everything
else, the effects x of a precision t are Gaussian, and can be integrated out,

    log p(t | rest) = ⟨λ₀, φ(t)⟩ + ½ bᵀA⁻¹b − ½ log|A| + const,

with A and b of their conditional at t, and λ₀ the conditional of t where all terms that have x are left out. t is drawn by slice
sampling of log t (Neal, 2003), and x right after it: together they are one draw of (t, x).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.families import Family
from natgrad.inference.problem import Block, BlockInfo, State
from natgrad.inference.sampler import sliced
from natgrad.inference.steppers.gibbs import Schedule, drawn_point, keep_draw, no_moves, point_stats, room_for
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.gaussian import GaussianDraw, drawn_together
from natgrad.network.draws.labels import Exchange, Relabelling, exchange_labels, exchanges_of
from natgrad.network.draws.softmax import ClassWeights, auxiliaries, class_weights_of, exact_softmax
from natgrad.network.execute.backend import HOST, BackendName
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.execute.program import BoundProgram
from natgrad.network.execute.update import Parts, update
from natgrad.random import Stream, generator

__all__ = ["Copies", "Gibbs", "ScaleDraw", "Schedule", "copies_of", "point_stats", "sampler_of", "scales_of"]

Array = npt.NDArray[Any]


class Copies(NamedTuple):
    """How many values each element of a block stands for, on its plates."""

    counts: npt.NDArray[np.int64]

    def drawn(
        self, family: Family, lam: tuple[Array, ...], rng: np.random.Generator, size: int | None
    ) -> tuple[Array, ...]:
        """The average of the statistics of so many draws; of one draw where the weight is 0, which no node reads."""
        counts = np.maximum(self.counts, 1)
        if family.is_category and not family.is_path:
            chances = family.mean(lam)
            return (rng.multinomial(counts, chances / chances.sum(-1, keepdims=True)) / counts[..., None],)
        values = family.sample(lam, rng, int(counts.max()))
        total: tuple[Array, ...] = ()
        for number, value in enumerate(values):
            wanted = (number < counts) / counts
            stats = point_stats(family, value, size)
            parts = [wanted.reshape(wanted.shape + (1,) * (s.ndim - wanted.ndim)) * s for s in stats]
            total = tuple(parts) if not total else tuple(a + b for a, b in zip(total, parts, strict=True))
        return total


def copies_of(plan: Plan, left_out: Collection[str] = ()) -> dict[str, Copies]:
    """The blocks whose elements stand for several values; a weight that is no whole number is refused. Not those ``left_out``."""
    copies = {}
    for name, block in plan.blocks.items():
        if name in left_out:
            continue
        weighted = [plate for plate in block.plates if plate in plan.weights]
        if not weighted or all(np.isin(plan.weights[plate], (0.0, 1.0)).all() for plate in weighted):
            continue
        for plate in weighted:
            weight = plan.weights[plate]
            if (bad := np.flatnonzero(weight != np.round(weight))).size:
                raise PlateMismatch(
                    f"draws: {name!r} is hidden and lies on plate {plate!r}, whose weight[{bad[0]}] = {weight[bad[0]]:g} is no "
                    "whole number: there is no such number of hidden values to draw. Plates of observed nodes may have any"
                )
            _check_alone(plan, name, plate)
        counts = np.ones(
            [size for plate, size in zip(block.plates, block.shape, strict=True) if isinstance(plate, str)]
        )
        plates = [plate for plate in block.plates if isinstance(plate, str)]
        for axis, plate in enumerate(plates):
            if plate in plan.weights:
                counts = counts * plan.weights[plate].reshape([-1 if i == axis else 1 for i in range(len(plates))])
        copies[name] = Copies(counts.astype(np.int64))
    return copies


def _check_alone(plan: Plan, name: str, plate: str) -> None:
    """Check that no other hidden node of the plate meets the node, and that all read it element by element."""
    advice = "write the rows out as often as they count, without weight="
    for term in plan.terms_of(name):
        for reading in term.readings.get(name, ()):
            if plate not in reading.axes:
                raise PlateMismatch(
                    f"draws: {term.node!r} reads {name!r} through an index or a sum along plate {plate!r}, which has weights "
                    f"other than 0 and 1: {advice}"
                )
        for monomial in term.monomials:
            there = [f for f in monomial.factors if not f.known and plate in f.axes]
            if any(f.source == name for f in there) and len(there) > 1:
                others = sorted({f.source for f in there} - {name}) or [name]
                raise PlateMismatch(
                    f"draws: {name!r} and {others[0]!r} are both hidden on plate {plate!r}, which has weights other than 0 and "
                    f"1, and meet in {term.node!r}: {advice}"
                )


Stats = tuple[Any, ...]
# A matrix is factorised at every look at the density: only small ones are.
LARGEST = 40


def scales_of(problem: NetworkProblem, group: GaussianDraw, taken: Sequence[str]) -> list[ScaleDraw]:
    """The precisions of members of a group: single numbers whose effects are all in it."""
    scales = []
    for name, block in problem.blocks.items():
        is_number = block.family.is_precision and not block.family.event_ndim
        if not is_number or len(block.shape) != 1 or name in taken or group.size > LARGEST:
            continue
        children = [term.node for term in problem.plan.terms.values() if name in term.readings]
        if any(node in group.names for node in children):
            scales.append(ScaleDraw(block, group))
    return scales


class ScaleDraw:
    """One precision, drawn with a group of Gaussian nodes integrated out."""

    def __init__(self, block: Block, group: GaussianDraw) -> None:
        self.block, self.group, self.name = block, group, block.name

    def sample(
        self,
        stats: Mapping[str, Stats],
        value: Array,
        conditional: Callable[[Block, Mapping[str, Stats]], Stats],
        rng: np.random.Generator,
    ) -> tuple[Array, Callable[[np.random.Generator], Array]] | None:
        """A new value of each chain, and what draws the Gaussian nodes [chain, size] at it; None where the density is none."""
        here = dict(stats)
        for name in self.group.names:
            here[name] = tuple(np.zeros_like(part) for part in stats[name])
        rest = conditional(self.block, here)
        pencil = self._pencil(here)
        if pencil is None:
            return None
        old = np.log(np.maximum(value, 1e-300))

        def density(log_value: Array) -> Array:
            """The log density of log t given the rest, of every chain."""
            return np.asarray(
                rest[0] * np.exp(log_value) + (rest[1] + 1.0) * log_value + pencil.log_integral(log_value - old)
            )

        new = sliced(density, old, rng)
        return np.exp(new), partial(pencil.sample, new - old)

    def _pencil(self, stats: Mapping[str, Stats]) -> _Pencil | None:
        at = {**stats, self.name: tuple(np.zeros_like(part) for part in stats[self.name])}
        (precision, b), (without, b_without) = self.group.form(stats), self.group.form(at)
        try:
            scale = 1.0 / np.sqrt(np.einsum("cii->ci", precision))
            wide = scale[:, :, None] * scale[:, None, :]
            back = np.linalg.inv(np.linalg.cholesky(precision * wide))
            d, turn = np.linalg.eigh(back @ ((precision - without) * wide) @ back.transpose(0, 2, 1))
        except np.linalg.LinAlgError:
            return None
        basis = scale[:, :, None] * (back.transpose(0, 2, 1) @ turn)
        start = (b_without[:, None] @ basis)[:, 0]
        return _Pencil(np.clip(d, 0.0, 1.0), basis, start, (b[:, None] @ basis)[:, 0] - start)


class _Pencil(NamedTuple):
    """The Gaussian conditional of x at every multiple r of the value that t has, for every chain.

    A and b are affine in t: A₀ + r A₁ and b₀ + r b₁. With A₀ + A₁ = LLᵀ and L⁻¹A₁L⁻ᵀ = UDUᵀ the matrix at r is
    LU(I + (r − 1)D)UᵀLᵀ, so that one factorisation serves all r. ``basis`` is W = L⁻ᵀU, ``start`` Wᵀb₀, ``slope`` Wᵀb₁.
    """

    d: Array
    basis: Array
    start: Array
    slope: Array

    def log_integral(self, log_r: Array) -> Array:
        """The logarithm of ∫ exp(−½ xᵀAx + bᵀx) dx, up to a constant."""
        r = np.exp(log_r)[:, None]
        size = np.maximum(1.0 + (r - 1.0) * self.d, 1e-300)
        return np.asarray(0.5 * ((self.start + r * self.slope) ** 2 / size - np.log(size)).sum(1))

    def sample(self, log_r: Array, rng: np.random.Generator) -> Array:
        """Draws from N(A⁻¹b, A⁻¹)."""
        r = np.exp(log_r)[:, None]
        size = np.maximum(1.0 + (r - 1.0) * self.d, 1e-300)
        at = (self.start + r * self.slope) / size + rng.standard_normal(size.shape) / np.sqrt(size)
        return np.asarray((self.basis @ at[..., None])[..., 0])


def sampler_of(
    plan: Plan, moments: Mapping[str, Stats], chains: int, schedule: Schedule, backend: BackendName
) -> tuple[Gibbs, Plan]:
    """The sampler of a network, which keeps no draws yet, and the plan of what it draws; labels are those of ``moments``."""
    exact = exact_softmax(plan)
    gibbs = Gibbs(NetworkProblem(with_chains(exact, chains), backend), schedule, {}, Relabelling(plan, moments))
    gibbs.exchanges = exchanges_of(exact, chains, gibbs.redrawn)
    return gibbs, exact


class Gibbs(Stepper):
    """A stepper: one sweep of all chains, after its ``exchanges``, moves that have labels change places.

    The state of a chain is in ``State.mu`` (statistics of the values) and in the memory: ``values`` as they are, ``sums`` of what
    is averaged, ``kept`` draws [chain, draw, …] and how often labels were put back. Kept draws are written where they belong as
    they come; those of sweeps after ``State.t`` do not count.

    Parameters
    ----------
    problem : NetworkProblem, with chains (`natgrad.network.draws.chains`)
    schedule : Schedule
    strides : {node: every how many draws one is kept}; a node that is not there keeps none
    relabel : Relabelling, optional
    together : whether Gaussian nodes that meet are drawn from their joint conditional
    """

    monotone = False

    def __init__(
        self,
        problem: NetworkProblem,
        schedule: Schedule,
        strides: Mapping[str, int],
        relabel: Relabelling | None = None,
        together: bool = True,
    ) -> None:
        self.problem, self.schedule, self.strides, self.relabel = problem, schedule, strides, relabel
        self.exchanges: Sequence[Exchange] = ()
        self.chains = next(iter(problem.blocks.values())).shape[0]
        self.classes: list[ClassWeights] = class_weights_of(problem)
        self.redrawn = auxiliaries(self.classes)
        by_class = {name for weights in self.classes for name in weights.readers}
        self.groups: Sequence[GaussianDraw] = drawn_together(problem, by_class) if together else []
        self.copies: dict[str, Copies] = copies_of(problem.plan, self.redrawn)
        self.scales: dict[GaussianDraw, list[ScaleDraw]] = {}
        for group in self.groups:
            taken = [scale.name for scales in self.scales.values() for scale in scales]
            self.scales[group] = scales_of(problem, group, [*taken, *self.copies])
        self._group_of = {name: group for group in self.groups for name in group.names}
        self._with_group = {scale.name for scales in self.scales.values() for scale in scales}
        self._bound: BoundProgram | None = None
        self.sizes = {name: problem.plan.nodes[name].size for name in problem.blocks}
        self._near = {name: (name, *sorted(problem.neighbours(name))) for name in problem.blocks}

    # -- the start --

    def start(self, lam: Mapping[str, Stats] | Sequence[Mapping[str, Stats]], seed: int) -> State:
        """Every chain at a draw of its own from factors with these natural parameters; of several, in turn."""
        begins = lam if isinstance(lam, Sequence) else [lam]
        turn = [begins[chain % len(begins)] for chain in range(self.chains)]
        rng = generator(seed, Stream.DRAWS)
        stats: dict[str, Stats] = {}
        values: dict[str, Array] = {}
        sums: dict[str, tuple[Array, Array]] = {}
        for name, block in self.problem.blocks.items():
            if name in self.redrawn:
                values[name] = np.zeros(block.shape)
                stats[name] = point_stats(block.family, values[name], self.sizes[name])
                continue
            wide = tuple(np.broadcast_to(part, (self.chains, *np.shape(part))) for part in turn[0][name])
            if len(begins) > 1:
                wide = tuple(np.stack(parts) for parts in zip(*(own[name] for own in turn), strict=True))
            with np.errstate(all="ignore"):
                values[name], stats[name] = self._drawn(block, wide, rng)
                first, second = self._summand(block, wide, values[name])
            sums[name] = np.zeros_like(first), np.zeros_like(second)
        kept = room_for(values, self.strides, self.schedule)
        return State({}, stats, 0, {"values": values, "sums": sums, "kept": kept, **no_moves(self.chains)})

    # -- a sweep --

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Every block once; then, if the sweep counts, its values are kept."""
        rng = generator(seed, Stream.DRAWS, 1 + state.t)
        counts = self.schedule.number(state.t) is not None
        stats, values = dict(state.mu), dict(state.memory["values"])
        first: dict[str, Array] = {}
        second: dict[str, Array] = {}
        info: dict[str, BlockInfo] = {}
        with np.errstate(all="ignore"):
            exchanged = exchange_labels(self.exchanges, stats, values, seed, state.t)
            for name, block in self.problem.blocks.items():
                if name in info or name in self._with_group or name in self.redrawn:
                    continue
                if name in self._group_of:
                    info.update(self._together(self._group_of[name], stats, values, first, second, rng))
                    continue
                lam, values[name], stats[name], good = self._in_turn(block, stats, values[name], rng)
                info[name] = BlockInfo(good, 0.0)
                if good and counts:
                    first[name], second[name] = self._summand(block, lam, values[name])
        if not all(bool(entry.valid) for entry in info.values()):
            return state, StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        memory = {**state.memory, "values": values, "exchanged": state.memory["exchanged"] + exchanged}
        if self.relabel is not None:
            moved = self.relabel.put_back(stats, values, first, second)
            memory |= {"values": values, "relabelled": state.memory["relabelled"] + moved}
        keep_draw(memory, self.schedule, self.strides, state.t, first, second)
        done = StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        return State({}, stats, state.t + 1, memory), done

    def _together(
        self, group: GaussianDraw, stats: dict[str, Stats], values: dict[str, Array], first: dict[str, Array],
        second: dict[str, Array], rng: np.random.Generator,
    ) -> dict[str, BlockInfo]:  # fmt: skip
        """A group of Gaussian nodes, in place, after the precisions that are drawn with them."""
        info = {}
        x: Array | None = None
        for scale in self.scales[group]:
            n = scale.name
            together = scale.sample(stats, values[n], self.conditional, rng)
            if together is None:
                return {n: BlockInfo(False, 0.0)}
            values[n], sample = together
            stats[n] = point_stats(self.problem.blocks[n].family, values[n], self.sizes[n])
            first[n], second[n], info[n] = values[n], values[n] ** 2, BlockInfo(bool(np.isfinite(values[n]).all()), 0.0)
        if info:
            x = sample(rng)  # at the last one, given the others
        drawn, good = group.sample(stats, rng) if x is None else group.named(x)
        for n, value in drawn.items():
            values[n], stats[n] = value, point_stats(self.problem.blocks[n].family, value, self.sizes[n])
            first[n], second[n] = value, value**2
        return info | {n: BlockInfo(good, 0.0) for n in group.names}

    def conditional(self, block: Block, stats: Mapping[str, Stats], column: int | None = None) -> Stats:
        """The natural parameter of a block given the values of the others; of one column, if they go in turn."""
        if column is None and self.problem.interpreter is not None:
            if self._bound is None:
                self._bound = BoundProgram(self.problem.program, self.problem.known_arrays, (self.chains,))
            return tuple(map(np.asarray, self._bound.target(block)(stats)[1]))
        function = self.problem.compiled(("conditional", block.name, column is not None), partial(self._build, block))
        near = {name: stats[name] for name in self._near[block.name]}
        lam = function(near, None if column is None else np.int32(column))
        return tuple(np.asarray(part) for part in lam)

    def _build(self, block: Block) -> Callable[..., Any]:
        def function(stats: Any, column: Any, known: Any) -> Stats:
            return self.problem.program.target(block, stats, known, column=column)

        return function

    def _in_turn(
        self, block: Block, stats: Mapping[str, Stats], value: Array, rng: np.random.Generator
    ) -> tuple[Stats, Array, Stats, bool]:
        """Conditionals, values and statistics of a block; the conditional of each element is that at its turn."""
        name, good = block.name, True
        weights = [entry for entry in self.classes if name in entry.readers]

        def message(number: int | None, parts: Parts) -> Stats:
            here = {**stats, name: parts[1]}
            for entry in weights:
                entry.refresh(here, number, rng)
            return self.conditional(block, here, number)

        def draw(old: Parts, target: Stats) -> Parts:
            nonlocal good
            lam = tuple(np.broadcast_to(part, like.shape) for part, like in zip(target, old[1], strict=True))
            good = bool(np.all(block.family.valid(lam)))
            if not good:
                return old
            drawn, fresh = self._drawn(block, lam, rng)
            return lam, fresh, (drawn,)

        start = tuple(np.zeros_like(part) for part in stats[name]), stats[name], (value,)
        lam, fresh, (drawn,) = update(HOST, block, start, message, draw, lambda: not good)
        return lam, drawn, fresh, good

    def _drawn(self, block: Block, lam: Stats, rng: np.random.Generator) -> tuple[Array, Stats]:
        """Values of a block, of all chains, and their statistics."""
        if block.name in self.copies:
            copies, size = self.copies[block.name], self.sizes[block.name]
            if block.family.is_category and not block.family.is_path:  # all chains at once
                stats = copies.drawn(block.family, lam, rng, size)
                return stats[0], stats
            parts = [tuple(part[chain] for part in lam) for chain in range(self.chains)]
            by_chain = [copies.drawn(block.family, own, rng, size) for own in parts]
            stats = tuple(np.stack(entries) for entries in zip(*by_chain, strict=True))
            return stats[0], stats
        return drawn_point(block.family, lam, rng, self.sizes[block.name])

    def _summand(self, block: Block, lam: Stats, value: Array) -> tuple[Array, Array]:
        """What is averaged over the draws: the mean and the second moment of the conditional, which vary less than its values.

        Of a chain of states the values themselves: their probabilities would take another pass along it.
        """
        family = block.family
        if family.is_category and family.is_path:
            copied = block.name in self.copies  # whose value is an average of statistics already
            return value if copied else np.eye(self.sizes[block.name] or 0)[value], np.zeros(1)
        mean = family.mean(lam)
        if family.is_category:
            return mean, np.zeros(1)
        return mean, family.var(lam) + mean**2
