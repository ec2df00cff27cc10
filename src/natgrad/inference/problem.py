"""Define what the engine knows of a model: one of two kinds of problems, and the records that it passes on.

    GroupProblem    groups that are independent given the global blocks: documents, sequences, rows, users
                    solve       local step and summary: some groups' local variables, and what they tell the globals
                    global_step the globals from what all groups tell
    EdgeProblem     blocks whose co-parents are global, too: networks, factorisations
                    target      λ^temp of one block from all or some of its children
                    sweep       every block once

What not every model has is a declared field, None where it is not there: nothing is found by asking for attributes. All functions
are pure: a state in, a new state out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.families.natural_step import blend, relative_change

if TYPE_CHECKING:
    from natgrad.families import Family
    from natgrad.inference.methods import SVI
    from natgrad.inference.sampler import GroupSampler

__all__ = [
    "Block",
    "BlockInfo",
    "ChildSet",
    "EdgeProblem",
    "GlobalResult",
    "GroupProblem",
    "GroupResult",
    "Grouping",
    "Hyper",
    "LocalPart",
    "LocalResult",
    "Problem",
    "Pruning",
    "Sampled",
    "State",
    "SweepResult",
    "Sweeps",
    "zip_plates",
]

Array = Any
Stats = tuple[Array, ...]
Ints = npt.NDArray[np.int64]
# A bound that is lower by this part of its size fell by rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Block:
    """A hidden node as the engine sees it: its family and the shape of its plates.

    ``column_axis`` is the plate along which elements are co-parents of one child and are updated in turn; ``colours``
    [plates] does the same for nodes that a term reads twice: elements of one colour never meet. λ and μ of a location are those
    of x − ``origin``, a number or a vector that is the same for all elements; None is zero.
    """

    name: str
    family: Family
    plates: tuple[str, ...]
    shape: tuple[int, ...]
    column_axis: int | None = None
    colours: npt.NDArray[np.int32] | None = None
    origin: npt.NDArray[np.float64] | None = None

    @property
    def n_columns(self) -> int:
        """How many groups of elements are updated one after the other."""
        if self.column_axis is not None:
            return self.shape[self.column_axis]
        return 1 if self.colours is None else int(self.colours.max()) + 1


class State(NamedTuple):
    """Everything the next step needs: natural parameters, their moments, the number of steps taken, the method's memory.

    A node that starts as a point mass has the moments of that point until its first update; from then on μ = ∇A(λ).
    ``memory`` belongs to the method: arrays and numbers by name, empty for methods that remember nothing. ``hyper`` holds
    hyper-parameters that the problem learns, by name; empty if it learns none.
    """

    lam: dict[str, Stats]
    mu: dict[str, Stats]
    t: int
    memory: Mapping[str, Any] = {}
    hyper: Mapping[str, Any] = {}


class BlockInfo(NamedTuple):
    """What one update did: whether λ stayed valid, and how far it moved (‖Δλ‖ / ‖λ‖)."""

    valid: Array
    relative_change: Array


class SweepResult(NamedTuple):
    """A state after every block was updated once, the bound there, and what each update did.

    ``reads`` are messages read beyond those of a sweep, where blocks were solved together.
    """

    state: State
    bound: float
    info: dict[str, BlockInfo]
    reads: int = 0

    def rose(self, last: float) -> bool:
        """Whether the sweep is valid and its bound not below the last one, but for rounding."""
        valid = all(bool(info.valid) for info in self.info.values())
        return valid and math.isfinite(self.bound) and self.bound >= last - ROUNDING * abs(last)


class Sweeps(NamedTuple):
    """Sweeps that were made in one call: the bound and what each update did, after each of them, and the state after the last."""

    results: list[tuple[float, dict[str, BlockInfo]]]
    end: State


class Sampled(NamedTuple):
    """A sample of one term for one reading of a block: which elements, with what weight.

    ``zipped`` has one index array for each sampled label; ``moved`` re-addresses nodes whose arrays are cut to the batch.
    """

    term: str
    occurrence: int | None
    zipped: Mapping[str, Array]
    weight: Array
    moved: Mapping[tuple[str, int], Array | None] = {}

    @property
    def layout(self) -> tuple[Any, ...]:
        """The part that is compiled in: two samples with the same layout run the same code."""
        return self.term, self.occurrence, tuple(self.zipped), tuple(self.moved)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The part that is passed in."""
        return dict(self.zipped), self.weight, dict(self.moved)

    @classmethod
    def rebuilt(cls, layout: tuple[Any, ...], arrays: tuple[Any, ...]) -> Sampled:
        """A sample from its layout and its (traced) arrays."""
        return cls(layout[0], layout[1], *arrays)


class LocalPart(NamedTuple):
    """How one local block of a batch gets its messages.

    ``rows`` are the elements of the batch, by plate; ``real`` says which of them are not padding, over the block's plates.
    """

    block: str
    sampled: tuple[Sampled, ...]
    rows: Mapping[str, Array]
    real: Array


class LocalResult(NamedTuple):
    """Rows of the local blocks after the local step."""

    lam: dict[str, Stats]
    mu: dict[str, Stats]
    iterations: int
    entropy: dict[str, Array]


@dataclass(frozen=True)
class ChildSet:
    """The children of a block in one term, read in one way: compressed rows, one for each key.

    A key is what the child's element determines of the parent's element; parents that differ only along gated or summed
    axes have the same children and share a row. Missing observations are nobody's children. ``sizes`` are those of the
    term's plates, in order; ``observed`` says whether the children are data.
    """

    term: str
    observed: bool
    occurrence: int
    block: Block
    axes: tuple[int, ...]
    sizes: Mapping[str, int]
    children: Ints
    start: Ints

    @cached_property
    def degree(self) -> Ints:
        """N_i of each row."""
        return np.diff(self.start)

    @cached_property
    def key_of_child(self) -> Ints:
        """The row of each child in ``children``."""
        return np.repeat(np.arange(len(self.degree)), self.degree)

    @cached_property
    def row_of_element(self) -> Ints:
        """The row of each element of the term; −1 for missing ones, which are never drawn."""
        rows = np.full(int(np.prod(list(self.sizes.values()))), -1)
        rows[self.children] = self.key_of_child
        return rows

    @property
    def n_sharing(self) -> int:
        """How many elements share a row."""
        return int(np.prod([n for axis, n in enumerate(self.block.shape) if axis not in self.axes]))

    @property
    def n_reads(self) -> int:
        """Messages that the block gets from all these children."""
        return len(self.children) * self.n_sharing

    def spread(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A value for each row as an array over the block's plates."""
        kept = [self.block.shape[axis] if axis in self.axes else 1 for axis in range(len(self.block.shape))]
        return np.broadcast_to(rows.reshape(kept), self.block.shape)

    def zipped(self, children: Ints) -> dict[str, npt.NDArray[np.int32]]:
        """The index of each child along each plate of its term."""
        return zip_plates(self.sizes, children)


def zip_plates(sizes: Mapping[str, int], elements: Ints) -> dict[str, npt.NDArray[np.int32]]:
    """Flat elements of a term as one index array for each of its plates."""
    if not sizes:
        return {}
    indices = np.unravel_index(elements, list(sizes.values()))
    return {label: index.astype(np.int32) for label, index in zip(sizes, indices, strict=True)}


class Pruning(Protocol):
    """The components of an `EdgeProblem` that may be switched off: the columns of some blocks, which sweeps do without."""

    @property
    def n_columns(self) -> int:
        """All of them."""
        ...

    def live(self, state: State) -> Ints:
        """The columns that are not off."""
        ...

    def reduced(self, state: State, kept: Ints) -> tuple[EdgeProblem, State]:
        """The problem and the state of some columns; its bound is that of the whole with the others off."""
        ...

    def whole(self, problem: EdgeProblem, state: State, kept: Ints) -> State:
        """The state of all columns, with the same bound."""
        ...

    def fading(self, state: State) -> Ints | None:
        """The columns to be kept, where some components fade; None where none does."""
        ...


class Problem(ABC):
    """A model with its data: what both kinds have.

    ``n_observed`` counts, for every observed node, the elements that are there; ``n_messages`` are those that one exact sweep
    reads. ``probes`` propose ways up when a run has converged (`natgrad.inference.proposals`). ``placed`` is set while the shards
    of a problem that can be shared out are where they are computed on, ``shards_by_row`` says that nothing is added up over them.
    ``swept`` counts the messages that sweeps have read, so that those which construct a proposal are accounted for.
    """

    blocks: Mapping[str, Block]
    probes: tuple[Callable[..., State | None], ...] = ()
    placed: Any = None
    shards_by_row: bool = False
    swept: int = 0

    @property
    @abstractmethod
    def n_observed(self) -> Mapping[str, int]:
        """Observations that are not missing, by the name of their node."""

    @property
    @abstractmethod
    def n_messages(self) -> int:
        """Messages that one exact sweep reads: one for each pair of a hidden variable and a child of it."""

    @abstractmethod
    def bound(self, state: State) -> float:
        """The evidence lower bound at a state."""

    def moments(self, block: Block, lam: Stats) -> Stats:
        """μ = ∇A(λ)."""
        return block.family.expected_stats(lam)

    def shards(self, size: int) -> Sequence[Any] | None:
        """The data cut for batches of this many groups; None if they cannot be shared out."""
        return None


class GroupResult(NamedTuple):
    """Some groups with their local variables optimised: λ of these, what they tell the globals, and the rest of their bound.

    ``iterations`` is the most that a group took, ``reads`` counts the messages computed.
    """

    rows: Any
    messages: Any
    rest: float
    iterations: int
    reads: int


class GlobalResult(NamedTuple):
    """A state with its globals updated, what that did, and `GroupProblem.global_bound` there if it came for free."""

    state: State
    info: dict[str, BlockInfo]
    bound: float | None = None


class Hyper(NamedTuple):
    """Hyper-parameters that a problem learns; they live in ``State.hyper``.

    ``at(state)`` is the problem at those of a state. ``step(state, found, messages, scale, rho)`` makes them better, a part ρ of
    the way, from what groups tell the globals. Sampled steps begin with it ``after`` so many.
    """

    at: Callable[[State], Any]
    step: Callable[[State, GroupResult, Any, float, float], State]
    after: int = 0


class GroupProblem(Problem):
    """Groups that are independent given the global blocks, each telling a block an additive natural parameter:

        λ*    = η̃ + Σ_g m_g                                     the exact update
        bound = Σ_g rest_g + Σ_blocks [⟨Σ_g m_g + η̃ − λ, μ⟩ + A(λ) − A(η̃)]

    A model says how its groups are solved and what its priors are; everything else follows, and may be overridden where a model
    knows a faster way.

    Parameters
    ----------
    group_plate : what a group is called, as in ``SVI({"doc": 100})``
    n_groups, batch_size : how many there are, and how many are in a batch if the user does not say
    population : how many groups the data stand for, more than there are if they are a part of a stream
    local_limits : tolerance and most rounds of the local variables, where the method does not say
    row_bytes : what remembering one group takes
    step : set where groups overlap, so that nothing may be remembered
    conjugate : False where messages depend on q, so that steps must be checked
    follows_gradient : True where hyper-parameters move at every step, so that what was told before is out of date
    hyper : Hyper, where hyper-parameters are learned
    revive : gives back what a sampled pass has lost, before anything is remembered; its last argument tells whether time is up
    summarises : `solve` with a limit of 0 leaves local variables as they are
    leading : globals that a sweep updates before the local variables: their start counts, and they wait for a pass after it
    sampler : draws the local variables, for Gibbs sampling
    tangent : from a state, its solved groups, and whether one at no maximum is an error, to how what all tell changes with dμ
    told_along : from a state, rows and a direction dμ to ⟨m_g, dμ⟩ of every group, where that need not be group by group
    past : what was learned before these groups came, {block: natural parameters}: it is added to η̃, and so a part of the prior
    """  # noqa: D400

    group_plate: str
    local_limits: tuple[float, int] = (1e-6, 1)
    row_bytes: int = 0
    step: Any = None
    conjugate: bool = True
    follows_gradient: bool = False
    hyper: Hyper | None = None
    revive: Callable[[State, int, Callable[[], bool]], State] | None = None
    summarises: bool = False
    leading: tuple[str, ...] = ()
    sampler: GroupSampler | None = None
    tangent: Callable[[State, GroupResult, bool], Callable[[Any], Any]] | None = None
    told_along: Callable[[State, Any, Any], npt.NDArray[np.float64]] | None = None
    past: Mapping[str, Stats] | None = None

    n_groups: int
    batch_size: int
    population: float

    @abstractmethod
    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """Optimise the local variables of some groups (None: all) from their ``rows`` (None: afresh), the globals fixed."""

    @abstractmethod
    def prior_of(self, name: str) -> Stats:
        """η̃ of a block, before anything was seen; it broadcasts."""

    # -- what follows --

    def solve_all(self, state: State) -> GroupResult:
        """As `solve` for all groups; of data that do not fit in memory piece by piece."""
        return self.solve(state, None, None, *self.local_limits)

    def empty_prior(self, name: str) -> Stats:
        """η̃ at the shape of the block."""
        block = self.blocks[name]
        parts = zip(self.prior_of(name), block.family.stat_ndims, strict=True)
        return tuple(np.broadcast_to(p, (*block.shape, *np.shape(p)[np.ndim(p) - n :])) for p, n in parts)

    def full_prior(self, name: str) -> Stats:
        """The same with what was learned before these groups came."""
        return self._with_past(name, self.empty_prior(name))

    def _with_past(self, name: str, prior: Stats) -> Stats:
        return prior if self.past is None else tuple(p + q for p, q in zip(prior, self.past[name], strict=True))

    @property
    def message_bytes(self) -> int:
        """What remembering the messages of one batch takes."""
        return 8 * sum(int(np.size(part)) for name in self.blocks for part in self.full_prior(name))

    def is_valid(self, block: Block, lam: Stats, mu: Stats) -> bool:
        """Whether a new λ with these moments is in its space."""
        return bool(np.all(block.family.valid(lam)))

    def global_step(self, state: State, messages: Any, rho: Any = 1.0) -> GlobalResult:
        """λ ← (1 − ρ) λ + ρ (η̃ + m) for every block."""
        lam, mu, info = dict(state.lam), dict(state.mu), {}
        for name, block in self.blocks.items():
            prior = self._with_past(name, self.prior_of(name))
            target = tuple(np.asarray(p + m, np.float64) for p, m in zip(prior, messages[name], strict=True))
            old, lam[name] = lam[name], blend(lam[name], target, rho)
            mu[name] = self.moments(block, lam[name])
            info[name] = BlockInfo(self.is_valid(block, lam[name], mu[name]), relative_change(old, lam[name]))
        return GlobalResult(state._replace(lam=lam, mu=mu), info)

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """Σ_blocks [⟨m + η̃ − λ, μ⟩ + A(λ) − A(η̃)]."""
        total = 0.0
        for name, block in self.blocks.items():
            family, prior = block.family, self.full_prior(name)
            slack = tuple(m + p - g for m, p, g in zip(messages[name], prior, lam[name], strict=True))
            normalizers = family.log_normalizer(lam[name]) - family.log_normalizer(prior)
            total += float(np.sum(family.inner(slack, mu[name]) + normalizers))
        return total

    def batch_bound(self, state: State, solved: GroupResult, messages: Any, scale: float) -> float:
        """The bound as some groups, standing for ``scale`` times as many, estimate it."""
        return scale * solved.rest + self.global_bound(state.lam, state.mu, messages)

    def scaled(self, messages: Any, scale: float) -> Any:
        """Messages of some groups that stand for ``scale`` times as many."""
        return {
            name: tuple(np.multiply(part, scale, dtype=np.float64) for part in parts)
            for name, parts in messages.items()
        }

    def bound(self, state: State) -> float:
        """The evidence lower bound, with every local variable optimised afresh."""
        here = self if self.hyper is None else self.hyper.at(state)
        solved = here.solve_all(state)
        return float(solved.rest + here.global_bound(state.lam, state.mu, solved.messages))

    def sweep(self, state: State, order: tuple[str, ...] = (), rho: float = 1.0) -> SweepResult:
        """All groups afresh, then all blocks; they do not read one another."""
        solved = self.solve_all(state)
        after, info, bound = self.global_step(state, solved.messages, rho)
        total = solved.rest + (self.global_bound(after.lam, after.mu, solved.messages) if bound is None else bound)
        return SweepResult(after._replace(t=state.t + 1, memory={}), float(total), info)

    # -- local variables that are part of the state; ready models have none --

    def begin(self, state: State) -> tuple[State, int]:
        """The state before its first batch is read, and what that took."""
        return state, 0

    def rows_in(self, state: State, groups: Ints | None) -> Any:
        """The local variables of some groups that a state has; None if it has none."""
        return None

    def fits(self, rows: Any, groups: Ints | None, state: State, where: str) -> bool:
        """Whether rows that were remembered are of these groups; ``where`` names them in an error."""
        length = self.n_groups if groups is None else len(groups)
        return all(len(part) == length for part in rows)

    def write_rows(self, state: State, groups: Ints | None, solved: GroupResult) -> State:
        """The state with the local variables that were just found."""
        return state

    def collect(self, state: State, batches: Sequence[tuple[Ints | None, Any]]) -> State:
        """The state with the remembered local variables of all batches (None: not seen yet)."""
        return state


class Grouping(Protocol):
    """The independent groups of an `EdgeProblem`, along any plate that has them."""

    def best(self, order: tuple[str, ...], observations: int) -> SVI | None:
        """The plate whose groups hold the most local variables, cut into batches; None if there are not enough groups."""
        ...

    def coupled_means(self, method: SVI, order: tuple[str, ...]) -> tuple[str, ...]:
        """Gaussians that sweeps solve together and groups along the plate would update in turn; none where that is no loss."""
        ...

    def along(self, method: SVI, order: tuple[str, ...], executor: Any = None) -> GroupProblem:
        """The problem whose groups lie along a plate, for steps that remember nothing."""
        ...

    def remembered(self, method: SVI, order: tuple[str, ...], executor: Any = None) -> GroupProblem:
        """The same for memoised steps; raises `NotAdditive` where what groups say does not add up."""
        ...


class EdgeProblem(Problem):
    """Blocks and their children, edge by edge: some of a block's co-parents are global, too.

    Parameters
    ----------
    gauges : pairs of blocks that their children see only through an inner product
    rotate_pair : rotates one of them, where a problem knows more of it than `natgrad.inference.rotation`
    extrapolated : the blocks that accelerated sweeps may move ahead; all of them if None
    grouping : finds groups that are independent given the rest; None where there are none
    ahead : how many sweeps one call of `sweeps_ahead` may make
    pruning : which components are switched off, and the problem without them; None where all are always in use
    late : whether time is up, told by the run: what takes long within a sweep, elements that take turns, ends then
    """

    gauges: tuple[tuple[str, str], ...] = ()
    rotate_pair: Callable[..., Any] | None = None
    extrapolated: tuple[str, ...] | None = None
    grouping: Grouping | None = None
    ahead: int = 1
    pruning: Pruning | None = None
    late: Callable[[], bool] = bool  # which is False

    @property
    @abstractmethod
    def observed(self) -> Mapping[str, Ints]:
        """For every observed node, its elements that are not missing."""

    @abstractmethod
    def child_sets(self, name: str) -> Sequence[ChildSet]:
        """Who reads the block: one set for every term that does, and every way in which it does."""

    @abstractmethod
    def coupling(self, name: str) -> int:
        """ω: the most variables that meet a block's element in one term, itself included."""

    @abstractmethod
    def neighbours(self, name: str) -> set[str]:
        """The other blocks that a block's update reads."""

    @abstractmethod
    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Update every block once, in order, each from the freshest neighbours; the bound comes with it."""

    @abstractmethod
    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Stats:
        """λ^temp of eq. (6): prior message plus messages of children, whole terms in ``full``, the rest sampled."""

    @abstractmethod
    def step_block(
        self, block: Block, state: State, target: Stats, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp for a block or one column of it; ρ is a number or one for each element."""

    def sweep_jointly(self, state: State, order: tuple[str, ...]) -> SweepResult:
        """An exact sweep that may optimise the elements of a block together where `sweep` takes them in turn."""
        return self.sweep(state, order)

    def sweeps_ahead(self, state: State, order: tuple[str, ...], count: int) -> Sweeps:
        """Up to ``count`` exact sweeps; fewer if one of them is invalid, which is the last then."""
        result = self.sweep(state, order)
        return Sweeps([(result.bound, result.info)], result.state)

    @property
    def n_observed(self) -> Mapping[str, int]:
        """Observations that are not missing, by the name of their node."""
        return {name: len(elements) for name, elements in self.observed.items()}

    @cached_property
    def n_messages(self) -> int:
        """Messages that one exact sweep reads."""
        return sum(children.n_reads for name in self.blocks for children in self.child_sets(name))
