"""Predict what a new table does not have: the observed nodes whose columns it lacks, and the hidden nodes of its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.problem import State
from natgrad.network.bind.bound import Binding, aligned, find_domain, held, id_column, open_tables
from natgrad.network.bind.build import Builder, Domain, Template, made_parents, with_ancestors
from natgrad.network.bind.levels import Levels, ids_of
from natgrad.network.bind.tables import Table
from natgrad.network.compile.joint_factors import Member, groups_inside, groups_of, with_joint_factors
from natgrad.network.compile.plan import make_plan
from natgrad.network.language.columns import Column, Columns, Recorded, RecordedNode, walk
from natgrad.network.language.missing import hidden_in_part
from natgrad.network.language.nodes import Node, StandIn
from natgrad.network.language.plates import Plate
from natgrad.network.results.joint import marginal
from natgrad.network.results.predictive import Predictive, hidden_twin
from natgrad.posterior.factor import Factor

__all__ = ["Predictions", "predict"]

# Predict what a new table does not have: the observed nodes whose columns it lacks, and the hidden nodes of its rows.
#
#     levels      those that the new rows name, with their q; a new one at its prior, given its parents' q
#     locals      hidden nodes of the new rows: inferred from what the table has observed, the globals held fixed; where it has
#                 nothing, drawn from their conditional
#     targets     observed nodes that the table lacks, or nodes that were asked for, observed or hidden in the rows
#
# Only the levels that occur are looked at: one row costs the same, however many users there are.

Stats = tuple[npt.NDArray[Any], ...]
# Sweeps over the hidden nodes of new rows, at most, and the relative change of their λ below which they have settled.
MOST_SWEEPS, SETTLED = 100, 1e-8


@final
class Predictions(Mapping[str, Any]):
    """Distributions by the name of a node, or the node itself: `Predictive`, or the `Factor` of a hidden node of the rows."""

    def __init__(self, found: Mapping[str, Predictive | Factor]) -> None:
        self._found = dict(found)

    def __getitem__(self, key: Any) -> Any:
        name = key.name if isinstance(key, (Node, RecordedNode)) else key
        if name not in self._found:
            raise KeyError(f"{name!r} was not predicted; predicted are {', '.join(self._found)}: name it in nodes=")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<Predictions of {', '.join(self._found)}>"


def predict(
    binding: Binding,
    factors: Mapping[str, Factor],
    members: Mapping[str, Member],
    data: Any,
    nodes: Collection[Any] | None = None,
) -> Predictions:
    """Predictive distributions for the rows of a table.

    Parameters
    ----------
    binding : of the fit
    factors : of its hidden nodes, and those that some of them share
    members : where these nodes are in the factors that they share
    data : table, or tables by plate
    nodes : names of nodes, optional
        Observed ones to predict, whether the table has their columns or not, by default those it has not; and nodes that are
        hidden in the rows, whose q given the rest of the table is asked for.
    """
    return Predictions(_Prediction(binding, factors, members, data, nodes).found())


class _Gaps(NamedTuple):
    """Observed nodes of which the new table misses cells that others read, by where these come from."""

    inferred: frozenset[str]
    drawn: frozenset[str]


class _Prediction:
    def __init__(
        self,
        binding: Binding,
        factors: Mapping[str, Factor],
        members: Mapping[str, Member],
        data: Any,
        nodes: Collection[Any] | None,
    ) -> None:
        template = self.template = binding.template
        self.fitted, self.factors, self.members = binding.domain, factors, members
        self.groups = groups_of(template.joint, members)
        opened = open_tables(template, data, "the new table", partial=True)
        self.targets, self.hidden = targets, hidden = _targets(template, opened, nodes)
        read = held(template, opened, {plate: _needed(template, plate, opened[plate], targets) for plate in opened})
        self.domain = domain = _levels_that_occur(template, read, self.fitted)
        # Of the rows of tables of levels, in their order.
        self.ids = {p: ids_of(read[p], id_column(template, p, read[p])) for p in domain.levels if p in read}
        self.tables = tables = aligned(template, read, domain)
        self.rows = {plate for plate in tables if plate not in template.level_plates}
        # Without a table of its own, what lies on rows is of no use here.
        there = {name for name, plate in template.row_plates.items() if plate in tables}
        self.seen = [n for n in template.observed() if n in there and n not in targets]
        self.local = [name for name, node in template.nodes.items() if not node.is_observed and self._is_local(node)]
        self.wanted = self._ancestors([*targets, *hidden, *self.seen])
        self.lam: dict[str, Stats] = {}
        self.inferred: dict[str, Factor] = {}  # of the hidden nodes of the rows
        self.made: dict[str, Node] = {}

    def found(self) -> dict[str, Predictive | Factor]:
        """The distribution of every target."""
        for name, node in made_parents(self.template).items():
            if name in self.factors:
                self.lam[name], self.made[name] = self.factors[name].lam, node
        self._place_joint(self.lam)
        for name in self.wanted:
            if name in self.factors and not self._is_local(self.template.nodes[name]):
                self._place(self.template.nodes[name])
                self._place_joint((name,))
        plain: dict[str, Any] = dict.fromkeys(
            self.tables
        )  # weights say how often rows count in a fit, not what they are
        kept = [name for name in self.wanted if name in self.local or name in self.targets or name in self.seen]
        nodes = Builder(
            self.template, self.tables, self.domain, self.made, left_out=self.targets, weights=plain, part=self.rows
        ).nodes(kept)
        informed, gaps = self._informed(), self._gaps(nodes)
        if informed or gaps.inferred:
            self._infer({**self.made, **nodes}, informed, gaps.inferred)
        drawn = [*(name for name in self.local if name not in informed), *gaps.drawn]
        new = {name: hidden_twin(nodes[name]) for name in drawn if name in nodes}
        origins, parts = self._origins(), gaps.inferred | gaps.drawn
        places = {plate: self.domain.levels[plate].find(ids) for plate, ids in self.ids.items()}
        labels = {**self.domain.labels(self.template), **self.ids}
        members = {member: m for member, m in self.members.items() if m.joint in self.lam}
        return {
            name: replace(self.inferred[name], labels=labels)
            if name in self.inferred
            else Predictive(
                hidden_twin(nodes[name]), self.lam, {n: node for n, node in new.items() if n != name}, origins, parts=parts,
                places=places, labels=labels, members=members, categories=self._names_of_categories(name),
                rows=frozenset(self.rows),
            )
            for name in (*self.targets, *self.hidden)
        }  # fmt: skip

    def _names_of_categories(self, name: str) -> Any:
        columns = _observed_columns(self.template, name)
        levels = self.domain.categories.get(columns[0]) if columns else None
        return None if levels is None else levels.ids

    # -- levels --

    def _place(self, node: RecordedNode) -> None:
        """λ of a global for the levels that occur, and a node that stands for it."""
        name, factor = node.name, self.factors[node.name]
        lam, new = self._taken(factor)
        if not new:
            self.lam[name] = lam
            self.made[name] = self._stand_in(node, factor)
            return
        # A new level has its prior, given what its parents were found to be.
        made = Builder(self.template, self.tables, self.domain, self.made).nodes([name])[name]
        self.made[name] = made
        self.lam[name] = self._mixed(factor, lam, self._prior((name,)))

    def _stand_in(self, node: RecordedNode, factor: Factor) -> Node:
        """A node on the levels that occur, to be read as what was fitted."""
        if factor.family.is_path:
            raise TypeError(f"{factor.name!r}: a {factor.family.name} cannot be read by new rows")
        levels, n_plates = self.domain.levels, len(factor.plates)
        sizes = [len(levels[p]) if p in levels else n for p, n in zip(factor.plates, factor.lam[0].shape, strict=False)]
        plates = tuple(Plate(name, size) for name, size in zip(factor.plates, sizes, strict=True))
        events = [part.shape[-1] for part in factor.lam if part.ndim > n_plates]
        return StandIn(factor.name, node.function, factor.family, plates, events[0] if events else None)

    def _place_joint(self, placed: Collection[str]) -> None:
        """λ of the factors that these nodes share with others, for the levels that occur, once all of them are placed."""
        for group in self.groups:
            if not set(group).isdisjoint(placed) and all(name in self.lam for name in group):
                name = self.members[group[0]].joint
                lam, new = self._taken(self.factors[name])
                self.lam[name] = self._mixed(self.factors[name], lam, self._prior(group)) if new else lam

    def _taken(self, factor: Factor) -> tuple[Stats, bool]:
        """λ at the levels that occur, and whether some of them are new."""
        lam, new = factor.lam, False
        for axis, plate in enumerate(factor.plates):
            if plate in self.domain.levels:
                codes = self.fitted.levels[plate].find(self.domain.levels[plate].ids)
                new |= bool((codes < 0).any())
                lam = tuple(np.take(part, np.maximum(codes, 0), axis=axis) for part in lam)
        return lam, new

    def _prior(self, names: tuple[str, ...]) -> Stats:
        """λ of a node, or of the factor of several, given what their parents were found to be."""
        nodes = {name: self.made[name] for name in names}
        parents = {p.name: p for node in nodes.values() for p in self._parents_made(node) if p.name not in nodes}
        problem = self._problem([*parents.values(), *nodes.values()])
        member = problem.plan.members.get(names[0])
        name = names[0] if member is None else member.joint
        state = self._state(problem, [other for other in problem.blocks if other != name])
        empty = tuple(np.zeros(shape) for shape in problem.plan.nodes[name].stat_shapes())
        state = state._replace(mu={**state.mu, name: empty})
        return tuple(np.asarray(p) for p in problem.target(problem.blocks[name], state, (name,)))

    def _problem(self, nodes: list[Node], read: frozenset[str] | None = None) -> Any:
        """A problem of some nodes, parents first; those of a group share a factor if all of it is there."""
        from natgrad.network.execute.problem import NetworkProblem

        plan = make_plan(nodes, self._origins(), read=read)
        return NetworkProblem(with_joint_factors(plan, groups_inside(self.groups, plan)), "numpy")

    def _mixed(self, factor: Factor, lam: Stats, prior: Stats) -> Stats:
        """λ of known levels, and the prior of new ones."""
        lam = tuple(np.array(part) for part in lam)
        for axis, plate in enumerate(factor.plates):
            if plate in self.domain.levels:
                codes = self.fitted.levels[plate].find(self.domain.levels[plate].ids)
                place = (slice(None),) * axis + (codes < 0,)
                for part, own in zip(lam, prior, strict=True):
                    part[place] = np.broadcast_to(own, part.shape)[place]
        return lam

    def _parents_made(self, node: Node) -> list[Node]:
        return [self.made.get(parent.name, parent) for parent in node.parents()]

    # -- local variables --

    def _is_local(self, node: RecordedNode) -> bool:
        return any(plate.name in self.rows for plate in node.plates)

    def _ancestors(self, names: list[str]) -> list[str]:
        """The recorded nodes that some depend on, and themselves; parents first."""
        wanted, waiting = set(names), list(names)
        while waiting:
            node = self.template.nodes[waiting.pop()]
            parts = (part for value in node.options.values() for part in walk(value, inside=False))
            for parent in (part for part in parts if isinstance(part, RecordedNode)):
                known = parent.name in self.factors and not self._is_local(parent)
                if parent.name not in wanted:
                    beside = {n for group in self.groups if parent.name in group for n in group} - wanted
                    wanted |= {parent.name, *beside}
                    # The parents of what was fitted matter where a level is new.
                    if not known or self._has_new_levels(parent):
                        waiting += [parent.name, *(name for name in beside if name in self.template.nodes)]
        return [name for name in self.template.nodes if name in wanted]

    def _has_new_levels(self, node: RecordedNode) -> bool:
        plates = [plate.name for plate in node.plates if plate.name in self.domain.levels]
        return any((self.fitted.levels[p].find(self.domain.levels[p].ids) < 0).any() for p in plates)

    def _informed(self) -> list[str]:
        """Local variables below which something is observed; and chains, which are drawn from their q as a whole."""
        above = set(self._ancestors(list(self.seen)))
        chains = {name for name in self.local if self.template.nodes[name].function.is_chain}
        return [name for name in self.local if name in self.wanted and (name in above or name in chains)]

    def _gaps(self, nodes: Mapping[str, Node]) -> _Gaps:
        """Observed nodes that miss cells in the new table which others read: inferred, or drawn where nothing informs them."""
        read = {parent.name for node in nodes.values() for parent in node.parents()}
        lost = [name for name in self.seen if name in read and nodes[name].mask is not None]
        informed = {name for name in lost if name in self._ancestors([other for other in self.seen if other != name])}
        informed |= {name for name in lost if nodes[name].entries is not None}
        return _Gaps(frozenset(informed), frozenset(lost) - informed)

    def _infer(self, nodes: Mapping[str, Node], informed: list[str], gaps: frozenset[str]) -> None:
        inside = [nodes[name] for name in (*informed, *(n for n in self.seen if n in nodes))]
        needed = {parent.name: parent for node in inside for parent in node.parents()}
        needed.update({node.name: node for node in inside})
        ranked = with_ancestors(needed)
        problem = self._problem(ranked, gaps | hidden_in_part(ranked))
        # What makes an observed leaf conjugate is hidden in its rows, too.
        joint = {problem.plan.members[name].joint for name in informed if name in problem.plan.members}
        inside_rows = tuple(n for n in problem.blocks if n in informed or n in joint or n not in self.lam)
        state = self._state(problem, [name for name in problem.blocks if name not in inside_rows])
        for name in inside_rows:
            block = problem.blocks[name]
            empty = tuple(np.zeros(shape) for shape in problem.plan.nodes[name].stat_shapes())
            state = state._replace(mu={**state.mu, name: empty})
            lam = problem.target(block, state, (name,))
            state = state._replace(lam={**state.lam, name: lam}, mu={**state.mu, name: problem.moments(block, lam)})
        for _ in range(MOST_SWEEPS):
            result = problem.sweep(state, inside_rows)
            state = result.state
            if max(float(info.relative_change) for info in result.info.values()) < SETTLED:
                break
        found = {name: tuple(map(np.asarray, state.lam[name])) for name in inside_rows}
        for name in (*informed, *gaps):
            if (member := problem.plan.members.get(name)) is not None:
                self.lam[member.joint] = found[member.joint]
                factor = marginal(name, member, problem.blocks[member.joint], found[member.joint])
            else:
                block = problem.blocks[name]
                factor = Factor(name, block.family, block.plates, found[name], block.origin)
            self.lam[name], self.inferred[name] = factor.lam, factor

    def _state(self, problem: Any, names: list[str]) -> State:
        lam = {name: self.lam[name] for name in names}
        return State(lam, {name: problem.moments(problem.blocks[name], lam[name]) for name in names}, 0)

    def _origins(self) -> dict[str, npt.NDArray[np.float64]]:
        return {name: factor.origin for name, factor in self.factors.items() if factor.origin is not None}


# -- what a new table has --


def _targets(
    template: Template, tables: Mapping[str, Any], nodes: Collection[Any] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Observed nodes to predict, and hidden nodes of the rows that are asked for."""
    there = [name for name in template.observed() if template.row_plates[name] in tables]
    if nodes is not None:
        asked = [nodes] if isinstance(nodes, (str, RecordedNode)) else list(nodes)
        names = [node.name if isinstance(node, RecordedNode) else node for node in asked]
        rows = {plate for plate in tables if plate not in template.level_plates}
        hidden = [
            name for name, n in template.nodes.items() if not n.is_observed and any(p.name in rows for p in n.plates)
        ]
        for name in names:
            if name not in there and name not in hidden:
                listed = ", ".join(map(repr, (*there, *hidden)))
                raise ValueError(f"nodes: {name!r} is not on the rows of the new table; those are {listed}")
        return tuple(n for n in names if n in there), tuple(n for n in names if n in hidden)
    lacking = []
    for name in there:
        columns = _observed_columns(template, name)
        if not all(column in tables[template.row_plates[name]] for column in columns):
            lacking.append(name)
    if not lacking:
        raise ValueError(
            f"the new table has the columns of all observed nodes, {', '.join(map(repr, there))}: there is nothing to predict. "
            "Name those that you want in nodes="
        )
    return tuple(lacking), ()


def _observed_columns(template: Template, name: str) -> tuple[str, ...]:
    return tuple(use.column.name for use in template.uses if use.node == name and use.role == "observed")


def _needed(template: Template, plate: str, table: Any, targets: tuple[str, ...]) -> list[str]:
    """The columns that a new table must have; the error for a wrong name lists those that are there."""
    from natgrad.data.frames import choose_columns

    names = [
        use.column.name
        for use in template.uses
        if template.plate_of(use) == plate
        and use.role not in ("weight", "size")
        and not (use.node in targets and use.role in ("observed", "mask"))
    ]
    if plate in template.level_plates:
        names.append(id_column(template, plate, table))
    return choose_columns(table.where, list(table.names), list(dict.fromkeys(names))) if names else [table.names[0]]


def _levels_that_occur(template: Template, rows: Mapping[str, Table], fitted: Domain) -> Domain:
    levels: dict[str, Levels] = {}
    whole = _read_whole(template)
    for plate in template.level_plates:
        is_used = any(template.plate_of(use) in rows for use in template.level_plates[plate])
        if plate in whole or not (is_used or plate in rows):
            if plate in whole:
                levels[plate] = find_domain(template, rows, fitted).levels[plate]
            continue
        before = Domain({plate: Levels(fitted.levels[plate].ids[:0])}, fitted.categories)
        levels[plate] = find_domain(template, rows, before).levels[plate]
    return Domain(levels, fitted.categories)


def _read_whole(template: Template) -> set[str]:
    """Plates of levels of which some node reads all, not those that its index names."""
    plates: set[str] = set()

    def look(value: Any, own: set[str]) -> None:
        if isinstance(value, RecordedNode):
            plates.update(p.name for p in value.plates if p.name in template.level_plates and p.name not in own)
        elif isinstance(value, Recorded) and value.function == "read":
            target, key = value.arguments
            keys = key if isinstance(key, tuple) else (key,)
            if isinstance(target, RecordedNode):
                named = {p.name for p, k in zip(target.plates, keys, strict=False) if isinstance(k, (Column, Columns))}
                look(target, own | named)
            else:
                look(target, own)
            for entry in keys:
                look(entry, own)
        elif isinstance(value, Recorded):
            for part in (*value.arguments, *value.options.values()):
                look(part, own)

    for node in template.nodes.values():
        for value in node.options.values():
            look(value, {plate.name for plate in node.plates})
    return plates


def needs_binding(what: str) -> PlateMismatch:
    """An error for fits of networks that were declared with arrays."""
    return PlateMismatch(
        f"{what} needs a network that was declared with ng.Column and fitted to a table; this one was declared with arrays: "
        "write new parameters with fit.predictive(name, …), or declare it with columns"
    )
