"""What a file of a fit holds: factors, the bound and the trace; with the network, the fit that it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from natgrad.inference.engine import Result
from natgrad.inference.problem import Block, State
from natgrad.inference.schema import Misfit, check
from natgrad.inference.trace import Stop, Trace
from natgrad.network.compile.joint_factors import Member
from natgrad.network.results.fit import Fit, Settings
from natgrad.network.results.joint import marginal
from natgrad.network.results.table_fit import TableMixin
from natgrad.posterior.export import ExportMixin
from natgrad.posterior.factor import Factor, shifted
from natgrad.showing import ShowMixin

if TYPE_CHECKING:
    from natgrad.network.bind.bound import Binding

__all__ = ["SavedFit"]


@dataclass(frozen=True)
class SavedFit(TableMixin, ExportMixin, ShowMixin):
    """A fit that was loaded from a file: what it found, without the network and the data that it was found with.

    ``saved["mu"]`` is the factor of node ``mu``. `attach` gives the whole `Fit` back.

    Attributes
    ----------
    factors : {name: Factor}
    elbo, trace, stop, settings, state : as in `Fit`
    """

    kind: ClassVar[str] = "network"
    abilities: ClassVar[frozenset[str]] = frozenset({"predict"})
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
        from natgrad.network.results.files import shapes_of, state_table

        try:
            check(self.state, state_table(shapes_of(network.problem)), where="the state")
        except Misfit as reason:
            raise ValueError(f"the fit is not one of this network: {reason}") from None
        state = _measured_anew(self.state, self.factors, blocks)
        return Fit(network.problem, Result(state, self.trace, self.stop), self.settings, network._continue)

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
