"""Several starts of a network: what the user asked for in; a state, or candidates for the run to compare, out.

    init="kmeans"       as many clusters as components, or fewer; again from other first centres
    init="random"       draws, and other draws
    values              as they are; with several starts, what was not given is drawn
    nothing             the priors, if they tell the components of every mixture apart; otherwise clusters, points far from one
                        another, and draws

A candidate makes exact sweeps in an order in which its start counts; the best half goes on, and the last two until it is clear
which is higher. The run goes on from there. Of a small network, whose start was left to us, the runs that ``init="kmeans"`` and
``init="random"`` would be are made, too, when it has settled: which optimum is reached depends on all that happens on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from natgrad.errors import SymmetricStart
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.starts import Ended, Rivals, Starts
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo, Stepper
from natgrad.inference.trace import StartRecord
from natgrad.network.start.initial import DRAWN_KINDS, Init, make_start, make_starts, started_nodes
from natgrad.network.start.moving import start_of_one
from natgrad.network.start.order import default_order
from natgrad.network.start.sample import sample_of, start_of_whole

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["find_start", "random_starts", "rivals_of"]

# Starts of a mixture of which nothing was said; of one that reads so many messages in a sweep that each of them counts, fewer.
STARTS, FEWER, LARGE = 8, 3, 200_000
# Starts of runs that are made to their end, in a network whose fit is short.
RIVALS = ("kmeans", "random")
# Seconds, as they are estimated from the plan, that a fit may take of which three are made.
SMALL = 1.0
# Sweeps of every candidate, of those that are left after each round, and rounds of the last two.
SWEEPS, ROUNDS = (5, 5), 5
# The same of a large network.
LARGE_SWEEPS = (2, 2)
# Work of all starts together, after which the one that leads is taken: messages, or sweeps where these read more. A run makes
# some dozens of sweeps, of a large network at least so many.
BUDGET, BUDGET_SWEEPS, LARGE_BUDGET_SWEEPS = 4_000_000, 60, 20


class _Candidate(NamedTuple):
    name: str
    kind: str  # clusters, points, draws, …
    make: Callable[[], State]
    order: tuple[str, ...]
    lasts: bool = False  # whether it is followed to its end, if it may be the highest


class _Sweeps(NothingToFinish):
    """Exact sweeps for a comparison: what leaves its space, or rules out the data, is not an error but the last of all."""

    monotone, steps_per_pass, batches = True, 1, 1

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
        return start_of_one(problem, moves, problem.prior({}))
    if problem.interpreter is None and problem.n_messages <= LARGE:
        # Starts are few sweeps in many orders: compiling each would take longer, and every backend begins with the same bits.
        problem = problem.interpreted()
    sample = None
    if init is None and problem.n_messages > LARGE:
        sample = sample_of(problem, _order(problem, None), seed)
    compared = problem if sample is None else sample
    candidates = _candidates(compared, init, seed, n_init)
    if len(candidates) == 1:
        return candidates[0].make() if sample is None else _candidates(problem, init, seed, n_init)[0].make()
    is_large = compared.n_messages > LARGE
    sweeps = LARGE_BUDGET_SWEEPS if is_large else BUDGET_SWEEPS

    def finish(state: State) -> State:
        return state._replace(t=0, memory={}) if sample is None else start_of_whole(problem, state)

    return Starts(
        [candidate.make for candidate in candidates],
        lambda number: _Sweeps(compared, candidates[number].order),
        LARGE_SWEEPS if is_large else SWEEPS,
        finish,
        patience=ROUNDS,
        names=tuple(candidate.name for candidate in candidates),
        kinds=tuple(candidate.kind for candidate in candidates),
        budget=max(BUDGET, sweeps * compared.n_messages),
        lasting=frozenset(n for n, candidate in enumerate(candidates) if candidate.lasts),
    )


def rivals_of(problem: NetworkProblem, seed: int, seconds: float) -> Rivals | None:
    """Whole runs from clusters and from a draw, for a network with hidden categories whose fit is estimated to be short.

    Each is the fit that ``init="kmeans"`` or ``init="random"`` with this seed is, so that leaving the choice to us never ends
    lower than either.
    """
    if seconds > SMALL or not problem.plan.choices:
        return None
    return Rivals(tuple(map(_to_the_end, RIVALS)), lambda limits: _ends(problem.interpreted(), seed, limits))


def _to_the_end(init: str) -> str:
    return f"init={init!r}, to its end"


def _ends(problem: NetworkProblem, seed: int, limits: Limits) -> list[Ended]:
    """Where they end; of those that can be, and do not rule out the data on their way."""
    ends = []
    for init in RIVALS:
        try:
            start = find_start(problem, init, seed, None)
            result = run(Phase(problem, order=_order(problem, init)), start, limits=limits, seed=seed, verbose=False)
        except ValueError:
            continue
        if not result.stop.diverged and result.bound is not None:
            record = StartRecord(_to_the_end(init), len(result.trace), result.bound)
            ends.append(Ended(record, result.state, result.trace.last.messages_read))
    return ends


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
        candidates = [_Candidate("priors", "priors", lambda: first, _order(problem, None))]
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
        candidates = _of(problem, "kmeans", seed, 0)
    except ValueError:
        return [candidate for number in range(wanted) for candidate in _of(problem, "random", seed, number)]
    for number in range(1, wanted):
        if number % 2 or is_large:  # draws go in another order, which would be compiled, too
            candidates += _of(problem, "kmeans", seed, number, seeds=True)[:1]
        else:
            candidates += _of(problem, "random", seed, number - 2)
    if is_large:
        return candidates
    # What init="kmeans" and init="random" would begin with last: whoever leaves the choice to us should not end lower.
    return [candidate._replace(lasts="again" not in candidate.name) for candidate in candidates]


def _of(problem: NetworkProblem, init: Init, seed: int, number: int, seeds: bool = False) -> list[_Candidate]:
    order = _order(problem, init)
    again = f", again {number}" if number else ""
    return [
        _Candidate(f"{name}{again}", name.split()[-1], make, order)
        for name, make in make_starts(problem, init, seed, number, seeds)
    ]


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
