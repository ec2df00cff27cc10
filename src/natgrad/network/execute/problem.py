"""A planned network as the engine's Problem: blocks, exact sweeps, sampled targets, the bound.

The functions are written once and run by a backend: compiled by JAX, or interpreted by NumPy. Numbers are arguments of compiled
functions and structure is static, so a second fit of the same network compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import (
    Block,
    BlockInfo,
    ChildSet,
    EdgeProblem,
    LocalPart,
    LocalResult,
    Sampled,
    State,
    SweepResult,
    Sweeps,
)
from natgrad.inference.rotation import Rotation
from natgrad.network.compile.gauge import StateSpace, find_gauges, find_state_spaces
from natgrad.network.compile.plan import Plan, child_sets, coupling, n_reads, present_elements
from natgrad.network.execute.backend import BackendName, choose_backend, make_backend, sweeps_in_a_call
from natgrad.network.execute.groups import NetworkGrouping
from natgrad.network.execute.joint import JointMeans
from natgrad.network.execute.program import BoundProgram, Program
from natgrad.network.execute.state_rotation import rotation_of
from natgrad.network.execute.update import (
    Repeated,
    Sweep,
    all_told,
    blended_block,
    choose,
    one_sweep,
    put_column,
    repeated_sweeps,
    solve_rows,
    take_column,
    told,
)
from natgrad.network.language.expressions import LOG_ZERO

__all__ = ["LocalPart", "LocalResult", "NetworkProblem"]

Array = Any
Stats = tuple[Array, ...]
# Numbers in a block up to which its first moments are found without compiling: a fraction of a second in NumPy.
SMALL = 5_000_000
# A bound below this has met the logarithm of a probability of 0.
IMPOSSIBLE = 1e-10 * LOG_ZERO


class NetworkProblem(EdgeProblem):
    """The functions of one plan on one backend, with its known arrays where the backend wants them.

    Parameters
    ----------
    plan : Plan
    backend : "numpy" or "jax"; by default whichever is expected to be done first
    find_probes : finds the proposals off a saddle that a run makes when it has converged; optional
    """

    source = None  # known arrays are in memory

    def __init__(
        self,
        plan: Plan,
        backend: BackendName | None = None,
        find_probes: Callable[[NetworkProblem], tuple[Callable[..., State | None], ...]] | None = None,
    ) -> None:
        self.plan, self.find_probes = plan, find_probes
        self.backend = make_backend(backend or choose_backend(plan).name)
        self.program = Program(plan, self.backend)
        self.blocks: Mapping[str, Block] = plan.blocks
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._known: tuple[str, ...] = ()
        self._device: tuple[Array, ...] = ()
        self._folded = False
        self._child_sets: dict[str, list[ChildSet]] = {}
        self._counts: dict[int, Array] = {}
        self._sweeps: dict[tuple[str, ...], Sweep] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies hold the plan; what was compiled is made again where it is needed."""
        return type(self), (self.plan, self.backend.name, self.find_probes)

    @cached_property
    def observed(self) -> dict[str, npt.NDArray[np.int64]]:
        """For every observed node, its elements that are not missing."""
        return {name: present_elements(self.plan.terms[name]) for name, n in self.plan.nodes.items() if n.is_observed}

    def child_sets(self, name: str) -> list[ChildSet]:
        """Who reads the block, found once."""
        if name not in self._child_sets:
            self._child_sets[name] = child_sets(self.plan, self.blocks[name])
        return self._child_sets[name]

    def coupling(self, name: str) -> int:
        """ω: the most variables that meet a block's element in one term, itself included."""
        return coupling(self.plan, self.blocks[name])

    @cached_property
    def n_messages(self) -> int:
        """Messages that one exact sweep reads."""
        return sum(n_reads(self.plan, block) for block in self.blocks.values())

    def neighbours(self, name: str) -> set[str]:
        """The other blocks that share a term with a block."""
        terms = self.plan.terms_of(name)
        return {other for term in terms for other in (term.node, *term.readings) if other in self.blocks} - {name}

    @cached_property
    def probes(self) -> tuple[Callable[..., State | None], ...]:  # type: ignore[override]
        """Proposals off a saddle, where the problem was made for a run."""
        return () if self.find_probes is None else self.find_probes(self)

    @cached_property
    def grouping(self) -> NetworkGrouping:  # type: ignore[override]
        """A network remembers what its groups tell, not single messages."""
        return NetworkGrouping(self)

    @cached_property
    def gauges(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        """Pairs of blocks that their children see only through an inner product; chains and their loadings among them."""
        return (*self.products, *((space.chain, space.loadings) for space in self.state_spaces))

    @cached_property
    def products(self) -> tuple[tuple[str, str], ...]:
        """Those of them that are vectors, or scalars along a plate, with priors of their own."""
        return find_gauges(self.plan)

    @cached_property
    def state_spaces(self) -> tuple[StateSpace, ...]:
        """Chains whose coordinates nobody sees, with their dynamics and loadings."""
        chains = any(block.family.is_path and not block.family.is_category for block in self.blocks.values())
        return find_state_spaces(self.plan) if chains else ()

    @cached_property
    def rotate_pair(self) -> Callable[..., Rotation | None] | None:  # type: ignore[override]
        """State spaces have a rotation of their own."""
        return rotation_of(self)

    def interpreted(self) -> NetworkProblem:
        """The same network on NumPy."""
        return self if self.backend.name == "numpy" else NetworkProblem(self.plan, "numpy", self.find_probes)

    def prior(self, fixed: Mapping[str, Stats]) -> State:
        """Every block at its prior, given its parents there; ``fixed`` gives the moments of those that start elsewhere."""
        lam: dict[str, Stats] = {}
        mu: dict[str, Stats] = {}
        for name, block in self.blocks.items():
            parents = {parent: mu[parent] for parent in self.plan.parents_of(name) if parent in mu}
            lam[name] = self._priors.prior(block, parents)
            node = self.plan.nodes[name]
            if node.is_improper or node.is_auxiliary or node.has_no_mean:
                lam[name] = block.family.proper(lam[name])
            mu[name] = fixed[name] if name in fixed else self._first_moments(block, lam[name])
        return State(lam, mu, 0)

    @cached_property
    def _priors(self) -> BoundProgram:
        """Of NumPy, whichever backend: compiling a prior for one use would take longer."""
        if self.interpreter is not None:
            return self.interpreter
        program = Program(self.plan, make_backend("numpy"))
        return BoundProgram(program, program.known)

    def _first_moments(self, block: Block, lam: Stats) -> Stats:
        """Moments at the start: in NumPy, because compiling them for one use would take longer unless it is large."""
        if max(part.size for part in lam) > SMALL:
            return self.moments(block, lam)
        return tuple(map(np.asarray, block.family.expected_stats(tuple(map(np.asarray, lam)))))

    # -- exact --

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Update every block once, in order, each from the freshest neighbours; the bound comes with it."""
        exact = rho == 1.0
        whole = len(order) == len(self.blocks)
        self.swept += self.n_messages if whole else sum(c.n_reads for name in order for c in self.child_sets(name))
        if self.interpreter is not None:
            return self._possible(self._interpreted(state, order, None if exact else rho), state)
        if exact and self.ahead > 1:
            made = self.sweeps_ahead(state, order, 1)
            return SweepResult(made.end, *made.results[0])
        function = self.compiled(("sweep", order, exact), lambda: one_sweep(self, order, exact))
        lam, mu, numbers = function(self.repeated.once(state.lam, order) if exact else state.lam, state.mu, rho)
        lam = self.repeated.for_all(lam, order) if exact else lam
        bound, info = told(order, np.asarray(numbers).tolist())  # one transfer for all of them
        return self._possible(SweepResult(State(lam, mu, state.t + 1, state.memory), bound, info), state)

    def _interpreted(self, state: State, order: tuple[str, ...], rho: float | None) -> SweepResult:
        with self.backend.running():
            if order not in self._sweeps:
                assert self.interpreter is not None
                self._sweeps[order] = Sweep(self.interpreter, order, lambda: self.late())
            lam, mu, info, bound = self._sweeps[order](state.lam, state.mu, rho)
        return SweepResult(State(lam, mu, state.t + 1, state.memory), float(bound), info)

    def sweeps_ahead(self, state: State, order: tuple[str, ...], count: int) -> Sweeps:
        """Exact sweeps in one call of a compiled program; of a network with long sweeps, or interpreted, there is one."""
        if self.ahead == 1:
            return super().sweeps_ahead(state, order, count)
        if count not in self._counts:  # a number is put there once
            with self.backend.running():
                self._counts[count] = self.backend.put(np.int32(count))
        function = self.compiled(("sweeps", order), lambda: repeated_sweeps(self, order))
        lam, mu, rows = function(self.repeated.once(state.lam, order), state.mu, self._counts[count])
        results = all_told(order, np.asarray(rows))
        end = State(self.repeated.for_all(lam, order), mu, state.t + len(results), state.memory)
        for t, (bound, info) in enumerate(results, state.t):
            self._possible(SweepResult(end, bound, info), state._replace(t=t))
        return Sweeps(results, end)

    @cached_property
    def ahead(self) -> int:  # type: ignore[override]
        """How many sweeps one call may make: where a sweep takes less time than the call."""
        return 1 if self.backend.name == "numpy" else sweeps_in_a_call(self.plan)

    @cached_property
    def repeated(self) -> Repeated:
        """λ that is the same for many elements, and goes through a compiled sweep once."""
        return Repeated(self.program)

    def _possible(self, result: SweepResult, before: State) -> SweepResult:
        """The start may rule out more than the data do; a second sweep may not, nor one that reads nothing of the start."""
        if result.bound < IMPOSSIBLE and (before.t > 0 or not any(map(self.neighbours, self.blocks))):
            raise ValueError(self._impossible(result.state))
        return result

    @cached_property
    def interpreter(self) -> BoundProgram | None:
        """What NumPy calls without going through compiled functions; None where JAX compiles."""
        if self.backend.name != "numpy":
            return None
        return BoundProgram(self.program, self.known_arrays)

    def _impossible(self, state: State) -> str:
        ruled = [repr(name) for name, value in self.bound_by_node(state).items() if value < IMPOSSIBLE]
        return (
            f"the data have probability 0: whatever is hidden, {' and '.join(ruled)} would have taken a value with a known "
            "probability of 0. Look for the 0 in its table or for a wrong observation, or give what can happen a small one"
        )

    def sweep_jointly(self, state: State, order: tuple[str, ...]) -> SweepResult:
        """The same sweep, after the Gaussian means that meet in a term were solved together."""
        if state.t == 0 or not self.joint.groups:  # a start counts as it is
            return self.sweep(state, order)
        solved, reads = self.joint.solved(state)
        return self.sweep(solved, order)._replace(reads=reads)

    @cached_property
    def joint(self) -> JointMeans:
        """The groups of Gaussian blocks that are solved together."""
        return JointMeans(self)

    def bound(self, state: State) -> float:
        """The evidence lower bound at a state."""
        return float(sum(self.bound_by_node(state).values()))

    def bound_by_node(self, state: State) -> dict[str, float]:
        """E[log p(x | parents)] of each node, plus its entropy where it is hidden; they add up to the bound."""
        values = self.compiled("bound", lambda: self.program.bounds)(state.lam)
        return {name: float(value) for name, value in values.items()}

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Stats:
        """λ^temp of eq. (6): prior message plus messages of children, whole terms in ``full``, the rest sampled."""
        if not sampled and column is None and self.interpreter is not None:
            with self.backend.running():
                return tuple(map(np.asarray, self.interpreter.target(block, (), full)(state.mu)[1]))
        layouts = tuple(s.layout for s in sampled)
        key = ("target", block.name, full, layouts, column is not None)
        arrays = [s.arrays for s in sampled]

        def build() -> Callable[..., Any]:
            def function(mu: Any, arrays: Any, column: Any, known: Any) -> Stats:
                samples = list(map(Sampled.rebuilt, layouts, arrays))
                return self.program.target(block, mu, known, full, samples, column)

            return function

        result: Stats = self.compiled(key, build)(state.mu, arrays, None if column is None else np.int32(column))
        return result

    def step_block(
        self, block: Block, state: State, target: Stats, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp for a block or one column of it; ρ is a number or one for each element."""
        rate, on = np.asarray(rho, dtype=np.float64), self.backend

        def build() -> Callable[..., Any]:
            def function(lam: Stats, mu: Stats, target: Stats, rho: Array, column: Any, known: Any) -> Any:
                old, stats = lam, mu
                if column is not None:
                    old, stats = take_column(on, block, lam, column), take_column(on, block, mu, column)
                new, fresh, _, info = blended_block(on, block, old, target, rho)
                if rho.ndim:  # an element that does not step keeps its moments, those of a point mass too
                    fresh = choose(rho > 0, fresh, stats, on.xp)
                if column is not None:
                    new, fresh = put_column(on, block, lam, new, column), put_column(on, block, mu, fresh, column)
                return new, fresh, info

            return function

        function = self.compiled(("advance", block.name, rate.ndim, column is not None), build)
        name, number = block.name, None if column is None else np.int32(column)
        new, fresh, info = function(state.lam[name], state.mu[name], target, rate, number)
        return state._replace(lam={**state.lam, name: new}, mu={**state.mu, name: fresh}), info

    def partial_bound(
        self, state: State, whole: tuple[str, ...], sampled: tuple[Sampled, ...], blocks: tuple[str, ...]
    ) -> float:
        """The bound of some terms whole and others sampled, with the entropies of the named blocks."""
        layouts = tuple(s.layout for s in sampled)
        arrays = [s.arrays for s in sampled]
        build = partial(partial, self.program.partial_bound, whole, layouts)
        lam = {name: state.lam[name] for name in blocks}
        return float(self.compiled(("partial", whole, layouts, blocks), build)(lam, state.mu, arrays))

    def moments(self, block: Block, lam: Stats) -> Stats:
        """μ = ∇A(λ)."""
        if self.interpreter is not None:
            return tuple(map(np.asarray, block.family.expected_stats(lam)))

        def build() -> Callable[..., Any]:
            return lambda lam, known: block.family.moments(lam)[0]

        result: Stats = self.compiled(("moments", block.name), build)(lam)
        return result

    # -- local variables of a batch (Hoffman's SVI) --

    def solve_local(
        self, state: State, parts: tuple[LocalPart, ...], lam: dict[str, Stats], tol: float, limit: int
    ) -> LocalResult:
        """Optimise the local blocks of a batch to tolerance, the globals held fixed.

        ``lam`` holds the batch's rows of each local block; the result has the new rows and their moments.
        """
        layouts = tuple((part.block, tuple(s.layout for s in part.sampled)) for part in parts)
        arrays = [(dict(part.rows), part.real, [s.arrays for s in part.sampled]) for part in parts]
        function = self.compiled(("local", layouts), lambda: partial(solve_rows, self, layouts))
        new, mu, iterations, entropy = function(state.mu, lam, arrays, float(tol), np.int32(limit))
        return LocalResult(new, mu, int(iterations), entropy)

    # -- compilation --

    def compiled(self, key: Any, build: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """A function with the known arrays as its last argument, as the backend runs it."""

        def call(*arguments: Any) -> Any:
            with self.backend.running():
                self._fold_everything()
                if key not in self._compiled:
                    self._compiled[key] = self.backend.compile(self._of_known(build()))
                return self._compiled[key](*arguments, self._device)

        return call

    @property
    def known_arrays(self) -> dict[str, Array]:
        """The known arrays by name, where the backend wants them."""
        self._fold_everything()
        return dict(zip(self._known, self._device, strict=True))

    def _fold_everything(self) -> None:
        """Put the known arrays on the device once; folding happens here so that tracing never meets a new one."""
        if self._folded:
            return
        for term in self.plan.terms.values():
            self.program.pieces(term)
            for name in (term.node, *term.readings):
                if name in self.blocks:
                    self.program.pieces(term, self.program.dropped(self.blocks[name], term))
        # In the order in which the structure asks for them: their names depend on the data, and a program must not.
        self._known = tuple(self.program.known)
        self._device = tuple(self.backend.put(array) for array in self.program.known.values())
        self._folded = True

    def _of_known(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of known arrays by name as one of the arrays alone."""

        def called(*arguments: Any) -> Any:
            return function(*arguments[:-1], dict(zip(self._known, arguments[-1], strict=True)))

        return called
