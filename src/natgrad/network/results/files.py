"""Check and read the fit of a network from a file: factors, settings, bound and trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad import families
from natgrad.families import Family
from natgrad.inference.engine import Result
from natgrad.inference.problem import Block, State
from natgrad.inference.schema import Misfit, check, either, record, refuse
from natgrad.inference.steppers.groups import BatchMemory, GroupMemory
from natgrad.inference.trace import Stop, Trace
from natgrad.network.compile.joint_factors import Member
from natgrad.network.language.plates import Plate
from natgrad.network.results.fit import Fit, Settings, TableFit
from natgrad.network.results.joint import marginal
from natgrad.posterior.factor import Factor, shifted
from natgrad.posterior.files.container import register
from natgrad.posterior.files.tables import METHOD, STEP, check_origin, check_seen, check_sums, memory_of

if TYPE_CHECKING:
    from natgrad.network.bind.bound import Binding
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["SavedFit", "check_fit", "check_member", "members_of", "saved_fit", "shapes_of", "state_table"]


@dataclass(frozen=True)
class SavedFit(TableFit):
    """A fit that was loaded from a file: what it found, without the network and the data that it was found with.

    ``saved["mu"]`` is the factor of node ``mu``. `attach` gives the whole `Fit` back.

    Attributes
    ----------
    factors : {name: Factor}
    elbo, trace, stop, settings, state : as in `Fit`
    """

    factors: Mapping[str, Factor]
    state: State
    trace: Trace
    stop: Stop
    settings: Settings
    elbo: float
    auxiliary: tuple[str, ...] = ()  # nodes that others declared: not listed, but there when asked for
    binding: Binding | None = None
    members: Mapping[str, Member] = field(default_factory=dict)  # nodes that share a factor

    @property
    def _labels(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {} if self.binding is None else self.binding.domain.labels(self.binding.template)

    @property
    def inference(self) -> str:
        """Which inference was run, and after a comma its schedule."""
        return self.trace.inference

    def __getitem__(self, name: str) -> Factor:
        if (member := self.members.get(name)) is not None:
            joint = self.factors[member.joint]
            return replace(marginal(name, member, joint, joint.lam), labels=self._labels)
        if name not in self.factors:
            raise KeyError(f"{name!r} is not a hidden node of this fit; these are {', '.join(self)}")
        return replace(self.factors[name], labels=self._labels)

    def __iter__(self) -> Iterator[str]:
        for factor in (name for name in self.factors if name not in self.auxiliary):
            yield from [name for name, member in self.members.items() if member.joint == factor] or [factor]

    def __contains__(self, name: object) -> bool:
        return name in self.factors or name in self.members

    def attach(self, network: Any) -> Fit:
        """The fit of a network that is declared as it was: predictions, and more steps with ``continue_fit``.

        Parameters
        ----------
        network : Network, with the same hidden nodes; its data are not compared
        """
        network = _factorised_as(network, self.factors)
        blocks = network.problem.blocks
        if list(blocks) != list(self.factors):
            raise ValueError(f"the network has hidden nodes {', '.join(blocks)}, and the fit {', '.join(self.factors)}")
        for name, factor in self.factors.items():
            block, shape = blocks[name], factor.lam[0].shape[: len(factor.plates)]
            if (block.family, block.plates, tuple(block.shape)) != (factor.family, factor.plates, shape):
                raise ValueError(
                    f"{name!r} is {block.family.name} on {dict(zip(block.plates, block.shape, strict=True))} in the network, and "
                    f"{factor.family.name} on {dict(zip(factor.plates, shape, strict=True))} in the fit"
                )

        try:
            check(self.state, state_table(shapes_of(network.problem)), where="the state")
        except Misfit as reason:
            raise ValueError(f"the fit is not one of this network: {reason}") from None
        state = _measured_anew(self.state, self.factors, blocks)
        return network.source.fit_at(Result(state, self.trace, self.stop), self.settings)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<SavedFit of {', '.join(self)}: {self.inference}, elbo {self.elbo:.6g}; {self.stop}>"


def _factorised_as(network: Any, factors: Mapping[str, Factor]) -> Any:
    """The network with a factor for each node, if the fit has those: those of ``joint=None``."""
    members = network.problem.plan.members
    return network.with_joint(None) if members and not any(m.joint in factors for m in members.values()) else network


def _measured_anew(state: State, factors: Mapping[str, Factor], blocks: Mapping[str, Block]) -> State:
    """The state of a network whose locations are measured from elsewhere, because its data are others."""
    lam, mu = dict(state.lam), dict(state.mu)
    moved = False
    for name, block in blocks.items():
        old, new = (np.zeros(()) if o is None else o for o in (factors[name].origin, block.origin))
        if np.any(old != new):
            moved = True
            lam[name] = shifted(block.family, lam[name], old - new)
            mu[name] = block.family.expected_stats(lam[name])
    # What a method remembers is in the old coordinates, and a method can do without.
    return state._replace(lam=lam, mu=mu, memory={}) if moved else state


MEMBER = {"joint": "text", "begin": "whole", "size": "none | natural", "family": "text"}


def members_of(entries: Mapping[str, Any], factors: Mapping[str, Factor]) -> dict[str, Member]:
    """Where each node is in its factor; ``entries`` are checked."""
    found = {}
    for name, entry in entries.items():
        family, whole = getattr(families, entry["family"])(), factors[entry["joint"]].family
        found[name] = Member(entry["joint"], entry["begin"], entry["size"], family, whole)
    return found


def check_member(name: Any, entry: Any, factors: Mapping[str, Factor]) -> None:
    """A node that shares a factor with others is a part of a vector that is there."""
    check(name, "text", where="the name of a node")
    check(entry, MEMBER, where=f"members[{name!r}]")
    joint = factors.get(entry["joint"])
    if name in factors or joint is None or entry["family"] not in joint.family.parts:
        refuse(f"members[{name!r}]", "is no part of a factor")
    family = getattr(families, entry["family"])
    if (not family.event_ndim) != (entry["size"] is None):
        refuse(f"members[{name!r}]", f"is a {entry['family']} of size {entry['size']}")
    precision, total = family.is_precision, np.shape(joint.lam[0])[-1]
    end = entry["begin"] if precision else entry["begin"] + (entry["size"] or 1)
    if end > total or (precision and end != total) or (joint.family.event_ndim == 2 and entry["size"] != total):
        refuse(f"members[{name!r}]", f"lies outside the factor {entry['joint']!r}")


# What a model file may hold of a network's fit: contents in, an error if they are no consistent fit.
#
# The shapes come from the file itself, since the network is not there; ``SavedFit.attach`` compares them with it.

Sizes = dict[str, int]
FIT: dict[str, Any] = {
    "factors": dict,
    "state": State,
    "trace": Trace,
    "stop": Stop,
    "settings": record(Settings, method=METHOD, step=STEP, order=["text"], seed="whole", version="text"),
    "elbo": "float",
    "auxiliary": ["text"],
    "declaration?": dict,
    "members?": dict,
}
register(Plate, None, lambda plate: {"name": plate.name, "size": plate.size, "weight": plate.weight})


def saved_fit(content: Any) -> SavedFit:
    """The fit that a file holds, checked."""
    check_fit(content)
    declaration, auxiliary = content.pop("declaration", None), tuple(content["auxiliary"])
    members = members_of(content.pop("members", {}), content["factors"])
    binding = None
    if declaration is not None:
        from natgrad.network.bind.declaration import binding_from_data

        binding = binding_from_data(declaration, content["factors"], auxiliary, members)
    return SavedFit(**{**content, "auxiliary": auxiliary}, binding=binding, members=members)


def check_fit(content: Any) -> None:
    """Refuse contents that are no fit of a network."""
    check(content, FIT, where="the fit")
    if type(content["settings"].order) is not tuple or sorted(content["settings"].order) != sorted(content["factors"]):
        refuse("settings.order", "does not name every node once")
    blocks = {}
    for name, factor in content["factors"].items():
        check(name, "text", where="the name of a node")
        check(factor, record(Factor, plates=["text"], lam=tuple), where=f"factors[{name!r}]")
        if factor.name != name or not isinstance(factor.family, Family) or type(factor.plates) is not tuple:
            refuse(f"factors[{name!r}]", "is not the factor of this node")
        shapes = [np.shape(part) for part in factor.lam]
        if len(shapes) != len(factor.family.stat_ndims):
            refuse(f"factors[{name!r}]", f"is not the natural parameter of a {factor.family.name}")
        plates = shapes[0][: len(factor.plates)]
        for shape, ndim in zip(shapes, factor.family.stat_ndims, strict=True):
            if len(shape) != len(factor.plates) + ndim or shape[: len(plates)] != plates:
                refuse(f"factors[{name!r}]", f"has the shapes {shapes} on {len(factor.plates)} plates")
        check_origin(factor, f"factors[{name!r}]")
        check_seen(factor, plates, f"factors[{name!r}]")
        blocks[name] = factor.family, shapes
    for name, entry in content.get("members", {}).items():
        check_member(name, entry, content["factors"])
    check(content["state"], state_table(blocks), where="state")
    for name, factor in content["factors"].items():
        if not all(map(np.array_equal, factor.lam, content["state"].lam[name])):
            refuse(f"factors[{name!r}]", "is not that of the state")


def _block_table(family: Family, shapes: Any) -> Any:
    """Natural parameters of a family with these shapes."""
    parts = tuple(f"float {list(shape)}" for shape in shapes)

    def of(value: Any, sizes: Sizes, where: str) -> None:
        check(value, parts, sizes, where)
        moments, _ = family.moments(value)
        if [np.shape(part) for part in moments] != [tuple(shape) for shape in shapes]:
            refuse(where, f"has shapes that no {family.name} has")
        if not np.all(family.valid(value)):
            refuse(where, f"is outside the natural parameters of a {family.name}")

    return of


def shapes_of(problem: NetworkProblem) -> dict[str, tuple[Family, Any]]:
    """The family and the shapes of every hidden node of a network."""
    return {name: (block.family, problem.plan.nodes[name].stat_shapes()) for name, block in problem.blocks.items()}


def state_table(blocks: Mapping[str, tuple[Family, Any]], seed: int | None = None) -> Any:
    """The state of a network with blocks of these families and shapes, in a run with this seed.

    A node that was not updated yet may be a point mass, so that moments need not follow from natural parameters.
    """
    lam = {name: _block_table(*block) for name, block in blocks.items()}
    mu = {name: tuple(f"real {list(shape)}" for shape in shapes) for name, (_, shapes) in blocks.items()}
    points = {name: mu[name][:1] if family.is_gaussian else lam[name] for name, (family, _) in blocks.items()}
    memory = memory_of(points, (lam, mu))
    batch = record(BatchMemory, rows=[{f"{name}?": tuple for name in blocks}], messages=_arrays, rest="real")
    groups = record(
        GroupMemory,
        messages=_arrays,
        rest="real",
        batches=[either("none", batch)],
        cut=("text", "natural", "whole" if seed is None else f"whole in [{seed}, {seed}]"),
    )

    def remembered(value: Any, sizes: Sizes, where: str) -> None:
        groups(value, sizes, where)
        check_sums(value, where)

    memory["groups?"] = remembered
    return record(State, lam=lam, mu=mu, t="whole in [0, 1e12]", memory=memory, hyper={})


def _arrays(value: Any, sizes: Sizes, where: str) -> None:
    """Arrays of finite numbers by name; their shapes are those of a network that is not there."""
    if not isinstance(value, Mapping):
        refuse(where, "is not a mapping")
    for name, parts in value.items():
        here = f"{where}[{str(name)[:60]!r}]"
        if type(parts) is not tuple or len(parts) != 1:
            refuse(here, "is not a tuple of one array")
        check(parts[0], f"real | real {list(np.shape(parts[0]))}", sizes, here)
