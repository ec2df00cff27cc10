"""Run chains of draws, say how far they missed modes, and keep them in files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad._version import __version__
from natgrad.families import Family
from natgrad.inference.callbacks import as_callbacks
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.options import CheckpointOptions
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.schema import check, record, refuse
from natgrad.inference.steppers.gibbs import GroupGibbs, Schedule, moves_of
from natgrad.inference.trace import Trace
from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings
from natgrad.posterior.export import listed
from natgrad.posterior.files.checkpoints import checkpointer_of
from natgrad.validation import whole_number

__all__ = [
    "EACH",
    "FAR",
    "MOST_KEPT",
    "SAME",
    "SWEEPS",
    "draw_groups",
    "drawn_rule",
    "draws_so_far",
    "is_gap",
    "run_chains",
    "saved_draws",
    "schedule_of",
    "stride_of",
    "words_of",
]

SETTINGS = record(
    DrawsSettings, n="natural", chains="natural", warmup="whole", thin="natural", seed="whole", version="text"
)


def saved_draws(content: Any) -> Draws:
    """The draws that a file holds, checked."""
    counts = {"relabelled": "whole [chain]", "exchanged": "whole [chain]"}
    check(content, {"factors": dict, "settings": SETTINGS, "notes": ["text"], **counts}, where="the draws")
    settings, chains = content["settings"], content["settings"].chains
    if len(content["relabelled"]) != chains:
        refuse("relabelled", f"is not of {chains} chains")
    for name, factor in content["factors"].items():
        where = f"factors[{str(name)[:60]!r}]"
        check(factor, record(
            DrawnFactor, name="text", family=_family, plates=["text"], kept=_arrays, first=_arrays, second=_arrays,
            count="natural", stride="natural", origin=_arrays,
        ), where=where)  # fmt: skip
        if factor.name != name or type(factor.plates) is not tuple or factor.count != settings.n:
            refuse(where, "is not of this node, or of another number of draws")
        shape = np.shape(factor.first)
        if not shape or shape[0] not in (1, chains) or len(shape) < 1 + len(factor.plates):
            refuse(where, f"has averages of shape {list(shape)}")
        if np.shape(factor.second) not in ((1,), shape):
            refuse(where, f"has second moments of shape {list(np.shape(factor.second))} beside {list(shape)}")
        if factor.kept is not None and np.shape(factor.kept)[:2] != (chains, -(-settings.n // factor.stride)):
            refuse(where, f"has {list(np.shape(factor.kept)[:2])} draws")
    return Draws(content["factors"], settings, content["relabelled"], content["exchanged"], notes=content["notes"])


def drawn_rule(value: Any, sizes: Any, where: str) -> None:
    """The rule of a table: draws that are a part of a fit."""
    if type(value) is not dict:
        refuse(where, "is no draws")
    saved_draws(value)


def _family(value: Any, sizes: Any, where: str) -> None:
    if not isinstance(value, Family):
        refuse(where, "is no family")


def _arrays(value: Any, sizes: Any, where: str) -> None:
    """None, or finite numbers; their shapes are those of a network that is not there."""
    if value is not None:
        kind = "whole" if np.asarray(value).dtype.kind in "iu" else "real"
        check(value, f"{kind} {list(np.shape(value))}" if np.ndim(value) else kind, sizes, where)


Array = npt.NDArray[Any]
# Nats below the fit at which another place has no mass to speak of (a twentieth), and what is the same bound to a short fit.
FAR, SAME = 3.0, 0.05
# Chains at either place, and their sweeps: a tenth of those of the draws, at most these; as many before they count.
EACH, SWEEPS = 2, 60


def is_gap(here: Array, there: Array) -> bool:
    """Whether there is a gap between two sets of draws [chain, draw, …], wider than either spreads, in some element.

    Chains that mix slowly have different averages, and a large R̂, but reach into one another.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 50, 3))
    >>> is_gap(x, x + [0.0, 0.0, 9.0]), is_gap(x, x + 2.0)
    (True, False)
    """
    one, two = (draws.reshape(draws.shape[0] * draws.shape[1], -1) for draws in (here, there))
    gap = np.maximum(one.min(0) - two.max(0), two.min(0) - one.max(0))
    return bool((gap > np.maximum(one.std(0), two.std(0))).any())


def words_of(gain: float, if_higher: str, if_lower: str) -> str:
    """What to say of a place whose bound is so many nats above, with advice."""
    what = (
        f"{gain:.1f} nats higher"
        if gain > SAME
        else f"{abs(gain):.1f} nats lower, which is a share of about {1.0 / (1.0 + np.exp(-gain)):.0%} of the two"
    )
    return (
        f"a fit from another start has a bound {what}. Chains from there stay there, and these draws miss it: "
        f"{if_higher if gain > SAME else if_lower}"
    )


# Numbers of kept draws of one node; of a larger one every second draw is kept, every fourth, …
MOST_KEPT = 4_000_000
# Probabilities of local variables that are averaged unasked, and elements by which labels are put back.
MOST_AVERAGED, MOST_COMPARED = 20_000_000, 100_000


def schedule_of(n: int, chains: int, warmup: int | None, thin: int, seed: int) -> tuple[Schedule, DrawsSettings]:
    """The arguments of ``draws``, checked."""
    warm = max(100, whole_number(n, "n") // 2) if warmup is None else whole_number(warmup, "warmup", least=0)
    schedule = Schedule(warm, n, whole_number(thin, "thin"))
    chains, seed = whole_number(chains, "chains"), whole_number(seed, "seed", least=0)
    return schedule, DrawsSettings(n, chains, warm, schedule.thin, seed, __version__)


def stride_of(numbers: int, schedule: Schedule, chains: int, most: int = MOST_KEPT) -> int:
    """Every how many draws of so many numbers one is kept: a power of two, so that draws of the rarest are draws of all."""
    stride = 1
    while stride < schedule.n and chains * schedule.n * numbers / stride > most:
        stride *= 2
    return stride


def draws_so_far(schedule: Schedule, settings: DrawsSettings, t: int) -> DrawsSettings:
    """How the draws up to sweep ``t`` were made; an error if there are none yet."""
    done = schedule.done(t)
    if done == 0:
        raise ValueError(f"there are no draws yet: {t} of {schedule.warmup} sweeps of the warm-up were made")
    return settings if done == settings.n else replace(settings, n=done)


def run_chains(
    problem: Any,
    stepper: Any,
    start: State,
    settings: DrawsSettings,
    about: dict[str, Any],
    draws_at: Callable[[State], Draws],
    *,
    max_seconds: float | None = None,
    callbacks: Sequence[Any] = (),
    verbose: bool | None = None,
    keep: CheckpointOptions | None = None,
) -> Draws:
    """All sweeps of a stepper; ``about`` says what a resumed run must be the same in, ``found`` what a state's draws are."""
    schedule = stepper.schedule
    about = {"draws": [settings.n, settings.chains, settings.warmup, settings.thin], **about}
    result = run(
        Phase(problem, stepper=stepper, bound_every="never", why="Gibbs sampling"), start,
        limits=Limits(schedule.sweeps, 0.0, max_seconds, advice="make more draws"), seed=settings.seed,
        callbacks=as_callbacks(callbacks), verbose=verbose, trace=Trace(), model_at=draws_at,
        checkpointer=checkpointer_of(keep or {}, lambda: about, lambda: (_table(start), {})),
    )  # fmt: skip
    if result.stop.diverged:
        reason = str(result.stop).split(": ", 1)[-1].split(". ")[0]
        raise FloatingPointError(
            f"sweep {result.state.t + 1} met a conditional that is no distribution ({reason}): priors may "
            "be improper, or numbers far apart in size. Give proper priors, or measure in other units"
        )
    return draws_at(result.state)


def draw_groups(
    problem: GroupProblem,
    state: State,
    n: int,
    chains: int,
    warmup: int | None,
    thin: int,
    seed: int,
    names: Sequence[str] | None,
    made: Callable[[dict[str, DrawnFactor], DrawsSettings, Any], Draws],
    **options: Any,
) -> Draws:
    """Draws of the globals and local variables of a problem of groups; ``made`` makes them of factors.

    Labels are those of q: they are put back by the first 100,000 local variables.
    """
    schedule, settings = schedule_of(n, chains, warmup, thin, seed)
    sampler = problem.sampler
    assert sampler is not None
    local = sampler.local_blocks
    asked = _asked(names, [*problem.blocks, *local])
    sizes = {name: math.prod(block.shape) for name, block in local.items()}
    sizes |= {name: int(np.size(block.family.mean(state.lam[name]))) for name, block in problem.blocks.items()}
    strides = {n: 1 if n in asked else stride_of(size, schedule, settings.chains) for n, size in sizes.items()}
    averaged = [n for n in local if n in asked or sizes[n] * sampler.n_labels <= MOST_AVERAGED]
    some_alike = len(np.unique(sampler.classes)) < sampler.n_labels
    wanted = sampler.probabilities(state, MOST_COMPARED) if some_alike else {}
    gibbs = GroupGibbs(problem, schedule, settings.chains, strides, wanted, averaged)
    start = gibbs.start(state.lam, settings.seed)

    def found(here: State) -> Draws:
        made_so_far, factors = draws_so_far(schedule, settings, here.t), {}
        for name, (first, second) in here.memory["sums"].items():
            block, kept = gibbs.blocks[name], here.memory["kept"][name][:, : -(-made_so_far.n // strides[name])]
            factors[name] = DrawnFactor(
                name, block.family, block.plates, kept, first, second, made_so_far.n, strides[name], block.origin
            )
        return made(factors, made_so_far, moves_of(here.memory))

    return run_chains(problem, gibbs, start, settings, {"names": sorted(asked)}, found, **options)


def _asked(names: Sequence[str] | None, there: Sequence[str]) -> set[str]:
    asked = listed(names)
    for name in asked:
        if name not in there:
            raise ValueError(f"names: there is no variable {name!r}; there are {', '.join(there)}")
    return set(asked)


def _table(state: State) -> Any:
    """What a checkpoint of a run may hold: arrays of the shapes of its start."""

    def arrays(tree: Any) -> Any:
        if isinstance(tree, Mapping):
            return {name: arrays(part) for name, part in tree.items()}
        if isinstance(tree, tuple):
            return tuple(arrays(part) for part in tree)
        kind = "whole" if np.asarray(tree).dtype.kind in "iu" else "real"
        return f"{kind} {list(np.shape(tree))}" if np.ndim(tree) else kind

    return record(State, lam={}, mu=arrays(state.mu), t="whole in [0, 1e12]", memory=arrays(state.memory), hyper={})
