"""`SimulationMixin`: what a declaration can do without data of its own, ``simulate``, ``observing`` and ``calibrate``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.compile.joint_factors import checked_joint
from natgrad.network.compile.plan import make_plan
from natgrad.network.language.nodes import Node

if TYPE_CHECKING:
    from natgrad.network.network import Network
    from natgrad.network.results.calibrate import Level
    from natgrad.posterior.calibration import Calibration
    from natgrad.posterior.draws import Draws

__all__ = ["SimulationMixin"]


class SimulationMixin:
    """Methods of `natgrad.Network`."""

    nodes: dict[str, Node]
    template: Any
    _joint: Any

    def simulate(self, seed: int = 0, size: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Values of all nodes drawn from the model itself, parents first: what it expects before it sees data.

        Observed nodes that others read are covariates and stay as they are, unless something hidden decides them: those are
        drawn like everything else. What is missing of the data is drawn, too.

        Parameters
        ----------
        seed : int
        size : int, optional
            How many draws, along a new first axis; one without it by default.

        Examples
        --------
        >>> import natgrad as ng
        >>> mu = ng.Normal("mu", 0.0, 1.0)
        >>> x = ng.Normal("x", mu, 4.0, plate=ng.Plate("n", 3), observed=[0.1, 0.2, 0.3])
        >>> drawn = ng.Network(x).simulate(size=1000)
        >>> drawn["x"].shape, round(float(drawn["x"].var()), 1)
        ((1000, 3), 1.3)
        """
        from natgrad.network.results.simulate import simulate_nodes

        self._check_bound("simulate")
        # Nodes one by one, whatever they share in q.
        return simulate_nodes(make_plan(list(self.nodes.values())), seed, size)

    def observing(self, data: Mapping[str, Any]) -> Network:
        """The same network with other data: ``data`` has values of each observed node that no other node reads.

        What is missing stays missing.
        """
        from natgrad.network.results.simulate import observing

        self._check_bound("observing")
        again: Network = type(self)(*observing(self.nodes, data))  # type: ignore[assignment]
        return again.with_joint(self._joint)

    def with_joint(self, joint: Any) -> Network:
        """The same network and data with other joint factors: groups of nodes, "auto", "full" or None, as in `Network`."""
        again = copy.copy(self)
        again.__dict__.pop("_plan", None)
        again.__dict__.update(_joint=checked_joint(joint, self.nodes), _problems={}, _choices={})
        return again  # type: ignore[return-value]

    def calibrate(
        self,
        n: int = 100,
        *,
        level: Level = "q",
        names: Sequence[str] | None = None,
        n_ranks: int = 99,
        seed: int = 0,
        fit_options: Mapping[str, Any] | None = None,
        draws_options: Mapping[str, Any] | None = None,
        verbose: bool | None = None,
    ) -> Calibration:
        """Whether intervals hold what they promise: simulation-based calibration of this network.

        Hidden values and data are drawn from the model ``n`` times, the network is fitted to each, and the rank of every hidden
        value among ``n_ranks`` draws from its posterior is noted. Where the posterior is right, all ranks are equally frequent.

        Parameters
        ----------
        n : int
            Simulations.
        level : "q", "linear_response" or "draws"
            Which posterior: the factors of the fit, their standard deviations by linear response, or posterior draws.
        names : list of hidden nodes, optional
            By default all that have an order: everything but categories.
        n_ranks : int
        seed : int
        fit_options, draws_options : mapping, optional
            Arguments of ``fit`` and of ``draws``.
        verbose : bool, optional
            Show a progress bar; by default on a terminal.

        Examples
        --------
        >>> import natgrad as ng
        >>> mu = ng.Normal("mu", 0.0, 1.0)
        >>> x = ng.Normal("x", mu, 4.0, plate=ng.Plate("n", 3), observed=[0.1, 0.2, 0.3])
        >>> calibration = ng.Network(x).calibrate(50)
        >>> 0.7 < calibration.coverage(0.9)["mu"] <= 1.0
        True
        """
        from natgrad.network.results.calibrate import calibrate_network

        return calibrate_network(
            cast("Network", self),
            n,
            level,
            names,
            n_ranks,
            seed,
            dict(fit_options or {}),
            dict(draws_options or {}),
            verbose,
        )

    def attached_draws(self, draws: Draws) -> Draws:
        """Draws that were loaded from a file with this network, of which they must be."""
        from natgrad.network.draws.run import attached

        return attached(self, draws)

    def _check_bound(self, what: str) -> None:
        if self.template is not None:
            raise PlateMismatch(f"{what}: this network gets its data at fit; bind(table) gives one that has them")
