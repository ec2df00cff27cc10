"""Choose among several starts of a network by a few exact sweeps of each; large networks compare them on a sample."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import SymmetricStart
from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.proposals import Starts
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.execute.groups import Groups
from natgrad.network.language.expressions import CATEGORY
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Plate
from natgrad.network.polynomial import Take
from natgrad.network.start.components import start_of_one
from natgrad.network.start.initial import DRAWN_KINDS, Init, make_start, make_starts, started_nodes
from natgrad.network.start.order import default_order
from natgrad.network.start.probes import probes_of, shares_of_groups
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["find_start", "part_of_plan", "random_starts", "sample_of", "start_of_whole"]

# Compare starts of a large network on a random sample of its groups: rows of a mixture, documents of a corpus.
#
# The sample is a network of its own, whose plan is cut out of the whole one: numbers, indices and sizes of the plates that are
# sampled. Its bound ranks the starts, and the globals of the best one, at the natural parameters that they have there, are where
# the whole network starts; local variables follow from them in the first sweep.

Ints = npt.NDArray[np.int64]
# Messages that a sweep of a network reads in which each start counts, and that one of a sample reads: some milliseconds.
LARGE = 200_000
# Observations that a group plate must have to be sampled.
MIN_OBSERVATIONS = 1_000
# Stream of the random groups, beside those of nodes.
SAMPLE = 2**21


def sample_of(problem: NetworkProblem, order: tuple[str, ...], seed: int) -> NetworkProblem | None:
    """The network of a random sample of the groups, on NumPy; None where there are no groups, or a few are as many as all."""
    from natgrad.network.execute.problem import NetworkProblem

    method = problem.grouping.best(order, MIN_OBSERVATIONS)
    if method is None or problem.n_messages < 2 * LARGE:
        return None
    groups = Groups(problem, method.plate, order)
    n_groups = max(1, len(groups) * LARGE // problem.n_messages)
    chosen = np.sort(generator(seed, Stream.START, SAMPLE).choice(len(groups), n_groups, replace=False))
    elements = {plate: np.sort(groups.grouping.elements(plate, chosen)) for plate in groups.grouping.members}
    plan = part_of_plan(problem.plan, elements)
    return None if plan is None else NetworkProblem(plan, "numpy", probes_of)


def start_of_whole(problem: NetworkProblem, start: State) -> State:
    """The state of a network whose globals are where those of a sample of it are, and the others at their priors."""
    same = {name: lam for name, lam in start.lam.items() if _shapes(lam) == _shapes_of(problem, name)}
    state = problem.prior({name: start.mu[name] for name in same})
    return State({**state.lam, **same}, state.mu, 0)


def _shapes(lam: Any) -> list[tuple[int, ...]]:
    return [np.shape(part) for part in lam]


def _shapes_of(problem: NetworkProblem, name: str) -> list[tuple[int, ...]]:
    return [tuple(shape) for shape in problem.plan.nodes[name].stat_shapes()]


def part_of_plan(plan: Plan, elements: Mapping[str, Ints]) -> Plan | None:
    """The plan of some elements of some plates; None where a node has more than numbers, indices and plates to be cut."""
    cut = _Cut(plan, elements)
    try:
        terms = {name: cut.term(term) for name, term in plan.terms.items()}
        nodes = {name: cut.node(node) for name, node in plan.nodes.items()}
    except _Whole:
        return None
    blocks = {
        name: replace(
            block,
            shape=tuple(cut.size(plate, size) for plate, size in zip(block.plates, block.shape, strict=True)),
            colours=None if block.colours is None else cut.array(block.colours, block.plates),
        )
        for name, block in plan.blocks.items()
    }
    weights = {plate: cut.array(weight, (plate,)) for plate, weight in plan.weights.items()}
    return replace(plan, nodes=nodes, terms=terms, blocks=blocks, known=cut.known(), weights=weights)


class _Whole(Exception):
    """Something that cannot be cut."""


class _Cut:
    """Cuts the elements of some plates out of terms, nodes and known arrays."""

    def __init__(self, plan: Plan, elements: Mapping[str, Ints]) -> None:
        self.plan, self.elements = plan, elements
        # How each known array is cut: the labels of its axes, and of an index the plate whose elements it names.
        self.ways: dict[str, tuple[tuple[Any, ...], str | None]] = {}

    def size(self, plate: Any, size: int) -> int:
        return len(self.elements[plate]) if plate in self.elements else size

    def array(self, array: npt.NDArray[Any], labels: tuple[Any, ...]) -> npt.NDArray[Any]:
        """An array whose leading axes have these labels."""
        for axis, label in enumerate(labels):
            if label in self.elements:
                array = np.take(array, self.elements[label], axis=axis)
        return array

    def term(self, term: PlannedTerm) -> PlannedTerm:
        for monomial in term.monomials:
            for factor in monomial.factors:
                plates = () if factor.known else tuple(p.name for p in self.plan.nodes[factor.source].plates)
                self._look(factor.axes, plates)
                if factor.known:
                    self._note(factor.source, tuple(None if isinstance(a, Take) else a for a in factor.axes), None)
        for name, readings in term.readings.items():
            for reading in readings:
                self._look(reading.axes, tuple(p.name for p in self.plan.nodes[name].plates))
        sizes = {label: self.size(label, size) for label, size in term.sizes.items()}
        present = None if term.present is None else self.array(term.present, term.plates)
        return replace(term, sizes=sizes, present=present)

    def _look(self, axes: tuple[Any, ...], plates: tuple[str, ...]) -> None:
        for position, axis in enumerate(axes):
            if isinstance(axis, Take):
                self._note(axis.index, axis.labels, plates[position] if position < len(plates) else None)

    def _note(self, key: str, labels: tuple[Any, ...], target: str | None) -> None:
        way = tuple(label if label in self.elements else None for label in labels), target
        if self.ways.setdefault(key, way) != way:
            raise _Whole

    def known(self) -> dict[str, npt.NDArray[Any]]:
        """The known arrays, indices with the places of the elements that are left."""
        return {key: self._known(key, array) for key, array in self.plan.known.items()}

    def _known(self, key: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        labels, target = self.ways.get(key, ((), None))
        array = self.array(array, labels)
        if target is None or target not in self.elements:
            return array
        return np.searchsorted(self.elements[target], array).astype(array.dtype)

    def node(self, node: Node) -> Node:
        names = tuple(plate.name for plate in node.plates)
        if not any(name in self.elements for name in names):
            return node
        is_simple = not node.is_auxiliary and node.entries is None and not hasattr(node, "members")
        if not is_simple or node.name in self.plan.parts or "trials" in node.parameters:
            raise _Whole
        is_cut_in_time = node.block_plates != node.plates and names[-1] in self.elements
        if is_cut_in_time or any(isinstance(value, np.ndarray) for value in vars(node.family).values()):
            raise _Whole
        if any(
            p.weight is not None and not p.weight[self.elements[p.name]].any()
            for p in node.plates
            if p.name in self.elements
        ):
            raise _Whole
        twin = copy.copy(node)
        twin.plates = tuple(
            Plate(
                p.name, len(self.elements[p.name]), weight=None if p.weight is None else p.weight[self.elements[p.name]]
            )
            if p.name in self.elements
            else p
            for p in node.plates
        )
        twin.value = None if node.value is None else self.array(node.value, names)
        twin.mask = None if node.mask is None else self.array(node.mask, names)
        return twin


#     init="kmeans"       as many clusters as components, or fewer; again from other first centres
#     init="random"       draws, and other draws
#     values              as they are; with several starts, what was not given is drawn
#     nothing             the priors, if they tell the components of every mixture apart; otherwise clusters, points far from one
#                         another, and draws; of the topics of words in documents draws alone
#
# A candidate makes exact sweeps in an order in which its start counts, as long as it may overtake the first. The run goes on from
# the best.

# Starts of a mixture of which nothing was said; of a large one fewer.
STARTS, FEWER = 5, 3
# Sweeps of every candidate, and of those that are left in each later round.
SWEEPS = (5, 5)
# The same of a large network.
LARGE_SWEEPS = (2, 2)
# Sweeps of all starts together, about as many as a run makes, and of each that was asked for beyond the default ones.
BUDGET, LARGE_BUDGET, BUDGET_BEYOND = 60, 20, 20


class _Candidate(NamedTuple):
    name: str
    make: Callable[[], State]
    order: tuple[str, ...]


class _Sweeps(Stepper):
    """Exact sweeps for a comparison: what leaves its space, or rules out the data, is not an error but the last of all."""

    def __init__(self, problem: NetworkProblem, order: tuple[str, ...]) -> None:
        self.problem, self.order = problem, order

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        try:
            result = self.problem.sweep_jointly(state, self.order)
        except ValueError:
            lost = {name: BlockInfo(False, 0.0) for name in self.order}
            return state, StepInfo(lost, 1.0, self.problem.n_messages, float("-inf"))
        return result.state, StepInfo(result.info, 1.0, self.problem.n_messages + result.reads, result.bound)


def find_start(
    problem: NetworkProblem, init: Init, seed: int, n_init: int | None, moves: Moves | None = None
) -> State | Starts:
    """The state before the first step, or the candidates for it.

    Parameters
    ----------
    problem : NetworkProblem
    init : as the user gave it
    seed : int
    n_init : int or None, how many starts are wanted; by default one, or some where nothing tells components apart
    moves : the components that grow from one, if there are some and ``init`` says nothing else
    """
    if moves is not None and not moves.keep and init is None:
        return start_of_one(moves, problem.prior({}))
    if problem.interpreter is None and problem.n_messages <= LARGE:
        # Starts are few sweeps in many orders: compiling each would take longer, and every backend begins with the same bits.
        problem = problem.interpreted()
    sample = None
    if init is None and problem.n_messages > LARGE:
        sample = sample_of(problem, _order(problem, None), seed)
    compared = problem if sample is None else sample
    swept = problem.swept
    candidates = _candidates(compared, init, seed, n_init)
    if len(candidates) == 1:
        chosen = candidates if sample is None else _candidates(problem, init, seed, n_init)
        state = chosen[0].make()
        if sample is not None or problem.swept == swept:
            return state
        candidates = [candidates[0]._replace(make=lambda: state)]
    is_large = compared.n_messages > LARGE
    rounds = LARGE_SWEEPS if is_large else SWEEPS

    def finish(state: State) -> State:
        return state._replace(t=0, memory={}) if compared is problem else start_of_whole(problem, state)

    return Starts(
        compared,
        [candidate.make for candidate in candidates],
        lambda number: _Sweeps(compared, candidates[number].order),
        rounds if len(candidates) > 1 else (0, 0),
        finish,
        (LARGE_BUDGET if is_large else BUDGET) + BUDGET_BEYOND * max(0, (n_init or 0) - STARTS),
        names=tuple(candidate.name for candidate in candidates),
        read=compared.swept if compared is not problem else problem.swept - swept,
    )


def random_starts(problem: NetworkProblem, seed: int, n: int) -> list[tuple[Callable[[], State], Stepper]]:
    """States that are drawn, and what makes exact sweeps from each in an order in which it counts."""
    candidates = [candidate for number in range(n) for candidate in _of(problem, "random", seed, number)]
    return [(candidate.make, _Sweeps(problem, candidate.order)) for candidate in candidates]


def _candidates(problem: NetworkProblem, init: Init, seed: int, n_init: int | None) -> list[_Candidate]:
    if init is None:
        try:
            first = make_start(problem, None, seed)
        except SymmetricStart:
            return _automatic(problem, seed, n_init)
        candidates = [_Candidate("priors", lambda: first, _order(problem, None))]
    else:
        candidates = _of(problem, init, seed, 0)
    for number in range(1, n_init or 1):
        candidates += _of(problem, _opened(problem, init), seed, number)
    return candidates


def _automatic(problem: NetworkProblem, seed: int, n_init: int | None) -> list[_Candidate]:
    """Clusters where the data can be clustered; then points and draws in turn, or draws alone."""
    is_large = problem.n_messages > LARGE
    wanted = (FEWER if is_large else STARTS) if n_init is None else n_init
    try:
        candidates = [] if _are_words(problem) else _of(problem, "kmeans", seed, 0)
    except ValueError:
        candidates = []
    if not candidates:
        return [candidate for number in range(wanted) for candidate in _of(problem, "random", seed, number)]
    for number in range(1, wanted):
        if number % 2 or is_large:  # draws go in another order, which would be compiled, too
            candidates += _of(problem, "kmeans", seed, number, seeds=True)[:1]
        else:
            candidates += _of(problem, "random", seed, number - 2)
    return candidates


def _are_words(problem: NetworkProblem) -> bool:
    """Whether all that is chosen are single words of documents: clusters of them do not say which go together."""
    nodes, gates = problem.plan.nodes, {gate for gate, _ in shares_of_groups(problem)}
    names = {name: [plate.name for plate in node.plates] for name, node in nodes.items()}
    return all(
        gate in gates and all(nodes[term].kind == CATEGORY and names[term] == names[gate] for term, *_ in chosen)
        for gate, chosen in problem.plan.choices.items()
    )


def _of(problem: NetworkProblem, init: Init, seed: int, number: int, seeds: bool = False) -> list[_Candidate]:
    order = _order(problem, init)
    again = f", again {number}" if number else ""
    return [_Candidate(f"{name}{again}", make, order) for name, make in make_starts(problem, init, seed, number, seeds)]


def _order(problem: NetworkProblem, init: Init) -> tuple[str, ...]:
    return default_order(problem.plan, started_nodes(problem, init))


def _opened(problem: NetworkProblem, init: Init) -> Init:
    """For another start: what was given stays, and all other nodes that can be are drawn."""
    if isinstance(init, str):
        return init
    given = {str(getattr(key, "name", key)): value for key, value in (init or {}).items()}
    chosen = {name for gate in given for _, name, _ in problem.plan.choices.get(gate, ())}
    free = [name for name in problem.blocks if problem.plan.nodes[name].kind in DRAWN_KINDS and name not in chosen]
    return {**dict.fromkeys(free, "random"), **given}
