"""`SamplingMixin`: what a fit can draw, from the posterior (``draws``) and of new data (``simulate``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate
from natgrad.inference.options import CheckpointOptions

if TYPE_CHECKING:
    from natgrad.network.execute.backend import BackendName
    from natgrad.network.results.fit import Fit
    from natgrad.posterior.draws import Draws

__all__ = ["SamplingMixin"]


class SamplingMixin:
    """Methods of the fit of a network."""

    def draws(
        self,
        n: int = 1000,
        *,
        chains: int = 4,
        warmup: int | None = None,
        thin: int = 1,
        seed: int = 0,
        names: Sequence[str] | None = None,
        starts: Literal["q", "restarts"] | Sequence[Fit] | None = None,
        backend: BackendName | None = None,
        max_seconds: float | None = None,
        callbacks: Sequence[Any] = (),
        verbose: bool | None = None,
        **keep: Unpack[CheckpointOptions],
    ) -> Draws:
        """Draws from the posterior itself, by Gibbs sampling from the same declaration; chains begin at draws from this fit.

        A factorised q has good means and intervals that are too narrow; draws have neither the one nor the other error, and cost
        hundreds of sweeps. Gaussian nodes that meet in a term are drawn together, chains of states by forward filtering and
        backward sampling. Where components of a mixture can change places, draws have the labels of the fit. A table that was
        read in chunks is read so again, once for each sweep of all chains (once in all, if rows have no hidden nodes); what is
        hidden in rows is drawn with them, and not kept.

        Parameters
        ----------
        n : int
            Draws of each chain.
        chains : int
            Chains that run side by side, each with random numbers of its own.
        warmup : int, optional
            Sweeps before the first draw; by default half as many as draws, at least 100.
        thin : int
            Sweeps from one draw to the next.
        seed : int
            Every random number is a function of the seed, the chain, the sweep and the node.
        names : list of nodes, optional
            Nodes of which all draws are kept, however large. Of others, a large one keeps as many as fit into 32 MB; averages are
            always of all draws.
        starts : "q", "restarts" or list of fits, optional
            Where chains begin: "q" at this fit; "restarts" at this fit and at those that random starts end at, if these are not
            far below, in turn; or at fits of the same network. By default at this fit, and where categories are hidden and draws
            are at least 300 sweeps, a fit that ends elsewhere, and that chains do not leave, is told of.
        backend, max_seconds, callbacks, verbose, checkpoint, every, resume : as in ``Network.fit``

        Warns
        -----
        PoorMixing
            If chains do not agree yet (R̂, effective sample sizes), or if there is a place with a share of the
            posterior that they do not reach.

        Examples
        --------
        >>> import natgrad as ng
        >>> mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        >>> x = ng.Normal("x", mu, tau, plate=ng.Plate("n", 5), observed=[1.2, -0.3, 0.8, 2.1, 0.4])
        >>> draws = ng.Network(x).fit().draws(n=200, verbose=False)
        >>> draws["mu"].values.shape
        (4, 200)
        """
        from natgrad.network.draws.rivals import begins_of
        from natgrad.network.draws.run import draw_posterior
        from natgrad.network.results.joint import apart
        from natgrad.posterior.drawing import schedule_of

        fit = cast("Fit", self)
        if fit.binding is not None and fit.binding.chunk_rows is not None:
            from natgrad.network.draws.chunked import draw_chunks

            if starts not in (None, "q"):
                raise NotConjugate(
                    "starts= is for networks in memory: fit without chunk_rows= to begin chains elsewhere"
                )
            limits = {"max_seconds": max_seconds, "callbacks": callbacks, "verbose": verbose, "keep": keep}
            draws = draw_chunks(fit, n, chains, warmup, thin, seed, names, **limits)
            draws.warn_if_poor()
            fit._drawn = draws
            return draws
        begins, notes = begins_of(fit, starts, schedule_of(n, chains, warmup, thin, seed)[0].sweeps, seed)
        begins = [apart(begin) if begin.problem.plan.members else begin for begin in begins]
        draws = draw_posterior(
            begins[0], n, chains, warmup, thin, seed, names, backend, max_seconds, callbacks, verbose, keep, begins, notes
        )  # fmt: skip
        draws.warn_if_poor()
        fit._drawn = draws
        return draws

    def simulate(self, seed: int = 0, size: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Values of all nodes under the posterior: hidden ones drawn from q, data given these (posterior predictive draws).

        Parameters
        ----------
        seed : int
        size : int, optional
            How many draws, along a new first axis; one without it by default.
        """
        from natgrad.network.results.joint import sampled_nodes
        from natgrad.network.results.simulate import simulate_nodes
        from natgrad.random import Stream, generator

        fit = cast("Fit", self)
        fit._refuse_chunks("simulate")
        rng = generator(seed, Stream.SIMULATION, 1)
        plan, given = sampled_nodes(fit, rng, 1 if size is None else size)
        return simulate_nodes(plan, seed, size, given)

    # -- the groups of `to_arviz` --

    def _draws(self, names: Sequence[str], rng: np.random.Generator, n: int) -> dict[str, npt.NDArray[Any]]:
        """Draws from q; nodes of one factor are drawn together."""
        from natgrad.network.results.joint import part_of_joint

        fit, together = cast("Fit", self), dict[str, Any]()
        plan = fit.problem.plan
        return {
            name: part_of_joint(plan.members[name], fit.state.lam, plan.origins, rng, n, together)
            if name in plan.members
            else fit[name].sample(rng, n)
            for name in names
        }

    def _needed(self, chosen: list[str], asked: Sequence[str] | None, n: int) -> list[str]:
        from natgrad.network.results.arviz_groups import MOST_NUMBERS, read_by_data

        fit = cast("Fit", self)
        if asked == ["posterior"] or (fit.binding is not None and fit.binding.chunk_rows is not None):
            return chosen
        more = [name for name in read_by_data(fit.problem.plan) if name not in chosen]
        if asked is None and n * sum(fit[name].lam[0].size for name in more) > MOST_NUMBERS:
            return chosen
        return [*chosen, *more]

    def _more_groups(self, drawn: Any, asked: Sequence[str] | None, seed: int) -> tuple[Any, Any]:
        from natgrad.network.results.arviz_groups import network_groups

        fit = cast("Fit", self)
        if fit.binding is not None and fit.binding.chunk_rows is not None:  # the rows are not held
            if asked is not None and asked != ["posterior"]:
                fit._refuse_chunks("to_arviz")
            return {}, {}
        return network_groups(fit.problem.plan, drawn, asked, seed)
