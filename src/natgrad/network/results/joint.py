"""Split a joint factor into its members' own factors and draws, which users read by the names that were declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.inference.engine import Result
from natgrad.inference.problem import Block, State
from natgrad.network.compile.joint_factors import Member
from natgrad.network.compile.plan import Plan, make_plan
from natgrad.network.language.expressions import Constant
from natgrad.network.language.nodes import Node
from natgrad.posterior.factor import Factor, Part, shifted

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit

__all__ = ["as_separate_factors", "correlation", "expanded", "joined_init", "marginal", "part_of_joint"]

Stats = tuple[Any, ...]


def marginal(name: str, member: Member, block: Block | Factor, lam: Stats) -> Factor:
    """The factor of one member: its own law out of that of all.

    Marginals of Gaussians are Gaussian. Those of numbers beside their precision are not: the factor then has the law of all, and
    beside it the member of the node's family with the same mean and variance.
    """
    whole = tuple(np.asarray(part, np.float64) for part in lam)
    fixed = block.origin is None or member.family.is_precision
    origin = None if fixed else np.asarray(block.origin)[(..., *member.place)]
    part = None if block.family.is_gaussian else Part(block.family, whole, member.place)
    return Factor(name, member.family, block.plates, _matched(member, whole), origin, part=part)


def _matched(member: Member, lam: Stats) -> Stats:
    """λ of the node's own family with the mean and the variance that the node has in its joint factor."""
    family, usual = member.family, member.whole.usual(lam)
    if member.whole.event_ndim == 2:
        if family.is_precision:
            return _arrays(family.natural(dof=usual["dof"], rate=usual["rate"]))
        freedom = usual["dof"] - usual["mean"].shape[-1] - 1
        spread = usual["scale"] * np.where(freedom > 0, freedom, usual["dof"])  # x may have no variance
        precision: Any = spread[..., None, None] * np.linalg.inv(usual["rate"])
        return _arrays(family.natural(mean=usual["mean"], precision=0.5 * (precision + np.swapaxes(precision, -1, -2))))
    (place,) = member.place
    mean, covariance = member.whole.mean(lam)[..., place], _covariance(member.whole, lam)[..., place, place]
    if member.size is not None:
        precision = np.linalg.inv(covariance)
        return _arrays(family.natural(mean=mean, precision=0.5 * (precision + np.swapaxes(precision, -1, -2))))
    if family.is_precision:
        return _arrays(family.natural(shape=mean**2 / covariance, rate=mean / covariance))
    return _arrays(family.natural(mean=mean, precision=1.0 / covariance))


def _covariance(family: families.Family, lam: Stats) -> npt.NDArray[np.float64]:
    """That of the numbers of a joint factor."""
    if isinstance(family, families.GaussianGamma):
        return family.value_covariance(lam)
    try:
        return np.asarray(np.linalg.inv(family.usual(lam)["precision"]))
    except np.linalg.LinAlgError:
        raise FloatingPointError(
            "nodes that share a factor have no covariance: their precision is singular in double precision. Centre the columns "
            "of data that they multiply, and scale them"
        ) from None


def _arrays(stats: Stats) -> Stats:
    return tuple(np.asarray(part) for part in stats)


def correlation(
    members: Mapping[str, Member], blocks: Mapping[str, Block], lam: Mapping[str, Stats], first: str, second: str
) -> Any:
    """The correlation of scalars under q; 0 for nodes of different factors."""
    one, two = members.get(first), members.get(second)
    if first == second:
        return np.ones(blocks[one.joint if one else first].shape)
    if one is None or two is None or one.joint != two.joint:
        shape = np.broadcast_shapes(*(blocks[m.joint if m else n].shape for m, n in ((one, first), (two, second))))
        return np.zeros(shape)
    if one.size is not None or two.size is not None:
        raise TypeError(
            f"correlation is for scalars; draws of vectors and matrices show theirs: fit[{one.joint!r}].sample()"
        )
    covariance = _covariance(one.whole, tuple(map(np.asarray, lam[one.joint])))
    i, j = one.place[0], two.place[0]
    return covariance[..., i, j] / np.sqrt(covariance[..., i, i] * covariance[..., j, j])


def joined_init(init: Any, plan: Plan) -> Any:
    """Starts of members as one of their vector; those that have none begin at the means of their priors."""
    members = plan.members
    if not members or not isinstance(init, Mapping):
        return init
    by_name: dict[str, Any] = {str(getattr(key, "name", key)): value for key, value in init.items()}
    joined = {name: value for name, value in by_name.items() if name not in members}
    for joint in dict.fromkeys(members[name].joint for name in by_name if name in members):
        group = {name: member for name, member in members.items() if member.joint == joint}
        given = next(by_name[name] for name in group if name in by_name)
        values = [
            by_name[name] if name in by_name else given if isinstance(given, str) else _prior_mean(plan.declared[name])
            for name in group
        ]
        if any(isinstance(value, str) for value in values):
            if any(not isinstance(value, str) or value != values[0] for value in values):
                raise ValueError(f"init: the nodes of {joint!r} are in one factor, and start in the same way")
            joined[joint] = values[0]
            continue
        joined[joint] = _packed(plan.nodes[joint], group, values)
    return joined


def _packed(node: Node, group: Mapping[str, Member], values: list[Any]) -> npt.NDArray[np.float64]:
    """Values of the members as those of their factor."""
    arrays = [np.asarray(value, np.float64) for value in values]
    events = [member.family.event_ndim for member in group.values()]
    plates = np.broadcast_shapes(*(a.shape[: a.ndim - e] for a, e in zip(arrays, events, strict=True)))
    packed = np.zeros((*plates, *node.value_shape()[len(node.plates) :]))
    for member, array in zip(group.values(), arrays, strict=True):
        packed[(..., *member.place)] = array
    return packed


def _prior_mean(node: Node) -> npt.NDArray[np.float64]:
    """The mean of a node's prior, where it is known; otherwise 0, and 1 for a precision."""
    if node.family.is_precision:
        top, rate = (node.parameters.get(name) for name in ("shape" if node.size is None else "dof", "rate"))
        if not isinstance(rate, Constant) or not isinstance(top, Constant):
            return np.ones(()) if node.size is None else np.eye(node.size)
        if node.size is None:
            return np.asarray(top.value / rate.value)
        return np.asarray(np.asarray(top.value)[..., None, None] * np.linalg.inv(rate.value))
    mean = node.parameters["mean"]
    zero = np.zeros(() if node.size is None else (node.size,))
    return np.asarray(mean.value, np.float64) + zero if isinstance(mean, Constant) else zero


def as_separate_factors(fit: Fit) -> Fit:
    """The fit with a factor for each node, joint factors by their marginals; itself where none is joint."""
    if not fit.problem.plan.members:
        return fit
    problem = type(fit.problem)(make_plan(list(fit.problem.plan.declared.values())), fit.problem.backend.name)
    lam = {name: shifted_to(fit[name], block.origin) for name, block in problem.blocks.items()}
    mu = {name: block.family.expected_stats(lam[name]) for name, block in problem.blocks.items()}
    settings = replace(fit.settings, order=tuple(problem.blocks))
    return type(fit)(problem, Result(State(lam, mu, fit.state.t), fit.trace, fit.stop), settings, fit._source)


def shifted_to(factor: Factor, origin: Any) -> Stats:
    """λ of a factor, measured from another origin."""
    old, new = (np.zeros(()) if o is None else o for o in (factor.origin, origin))
    moved = shifted(factor.family, factor.lam, old - new) if np.any(old != new) else factor.lam
    return tuple(np.asarray(part) for part in moved)


def expanded(plan: Plan, lam: Mapping[str, Stats]) -> tuple[dict[str, Stats], dict[str, Any]]:
    """λ and origins of all nodes, those of joint factors by their marginals."""
    members, origins = plan.members, plan.origins
    own = {
        name: marginal(name, m, plan.blocks[m.joint], lam[m.joint]).lam for name, m in members.items() if m.joint in lam
    }
    start = {
        name: origins[m.joint][(..., *m.place)]
        for name, m in members.items()
        if m.joint in origins and not m.family.is_precision
    }
    return {**lam, **own}, {**origins, **start}


def part_of_joint(
    member: Member,
    lam: Mapping[str, Stats],
    origins: Mapping[str, Any],
    rng: np.random.Generator,
    n: int,
    drawn: dict[str, Any],
) -> Any:
    """Draws of a node that shares a factor with others: these are drawn together, and kept in ``drawn``."""
    if member.joint not in drawn:
        joint = tuple(np.asarray(part) for part in lam[member.joint])
        drawn[member.joint] = member.whole.sample(joint, rng, n) + origins.get(member.joint, 0)
    return np.asarray(drawn[member.joint][(..., *member.place)])
