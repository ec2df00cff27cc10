"""Define what a fit returns: named factors, the bound, the trace, why it stopped, draws, linear response and ways to go on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, cast

import numpy as np
import numpy.typing as npt

from natgrad._jax import on_host
from natgrad.errors import PlateMismatch, PoorApproximation
from natgrad.families import PolyaGamma
from natgrad.inference.auto import Control
from natgrad.inference.engine import Result
from natgrad.inference.methods import Method
from natgrad.inference.options import CheckpointOptions
from natgrad.inference.problem import Block, State
from natgrad.inference.trace import Stop, Trace, levels_to_the_caller, warn_if_ran_out
from natgrad.network.compile.joint_factors import Member, groups_of
from natgrad.network.compile.plan import make_plan
from natgrad.network.execute.tangent import Tangent
from natgrad.network.language.auxiliary import LatentNormal
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import CATEGORY
from natgrad.network.language.missing import seen_values
from natgrad.network.language.nodes import Node
from natgrad.network.results.joint import correlation, marginal, part_of_joint
from natgrad.posterior.export import ExportMixin
from natgrad.posterior.factor import Factor, shifted
from natgrad.posterior.files.container import register, write_model
from natgrad.posterior.response.operator import Linearised
from natgrad.showing import ShowMixin

if TYPE_CHECKING:
    from natgrad.network.bind.bound import Binding
    from natgrad.network.execute.backend import BackendName
    from natgrad.network.execute.problem import NetworkProblem
    from natgrad.network.fit_run import Source
    from natgrad.network.results.predict import Predictions
    from natgrad.network.results.predictive import Predictive
    from natgrad.network.results.psis import Importance
    from natgrad.posterior.draws import Draws
    from natgrad.posterior.export import Summary
    from natgrad.posterior.response.result import LinearResponse

__all__ = ["Fit", "Settings", "TableFit", "linearised", "linearised_chunks", "warn_at_end"]


# The part of the true standard deviation that a logit has under q, below which a fit says so.
MUCH_NARROWER = 0.5
BACKEND_NAMES = {"numpy": "NumPy", "jax": "JAX"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a fit was made, so that it can be repeated and continued."""

    method: Method | None
    step: Control
    order: tuple[str, ...]
    seed: int
    version: str


register(Settings)


class TableFit(ExportMixin, ShowMixin):
    """``predict``, ``update`` and ``forget`` for fits of networks that were declared with columns, loaded ones too.

    ``forgotten`` is, after ``update(rows, drift="auto")``, the part of what each hidden node had learned that no longer counts.
    """

    forgotten: Mapping[str, float] | None = None

    kind: ClassVar[str] = "network"
    abilities: ClassVar[frozenset[str]] = frozenset({"predict"})
    binding: Binding | None = None  # of a network that was declared with columns
    settings: Settings
    state: State
    trace: Trace

    def predict(self, data: Any, nodes: Any = None) -> Predictions:
        """The predictive distributions for the rows of a new table, of a network that was declared with columns.

        Parameters
        ----------
        data : table, or tables by plate, as in ``Network.fit``
            Columns of observed nodes may be missing: these nodes are predicted. Columns that are there inform the hidden nodes
            of the rows, the assignments of a mixture for example. An id that was not there has its prior.
        nodes : names of nodes, optional
            Observed ones to predict, whether the table has their columns or not (these columns are then not used); or nodes that
            are hidden in its rows, such as the component of a mixture, whose posterior given the other columns is returned.

        Returns
        -------
        Predictions, by name
            Each has ``mean``, ``std``, ``interval``, ``sample`` and ``log_density``; categories have ``probabilities``.
        """
        from natgrad.network.results.predict import predict

        return predict(self._needed_binding("predict"), self._factors(), self._members, data, nodes)

    def rows(self, name: Any) -> Iterator[Factor]:
        """The factor of a node that is hidden in the rows of a table that was read in chunks, chunk after chunk.

        Such nodes are not held: they are solved given the rest, in one more pass, and come as long as they are asked for.

        Parameters
        ----------
        name : str or node, hidden in the rows

        Examples
        --------
        >>> import natgrad as ng, numpy as np
        >>> row = ng.Plate("row")
        >>> level = ng.Normal("level", ng.Normal("mean", 0.0, 1.0), 1.0, plate=row)
        >>> y = ng.Normal("y", level, 1.0, plate=row, observed=ng.Column("y"))
        >>> fit = ng.Network(y).fit({"y": np.arange(6.0)}, chunk_rows=4)
        >>> [levels.mean().round(1).tolist() for levels in fit.rows("level")]
        [[0.9, 1.4, 1.9, 2.4], [2.9, 3.4]]
        """
        key, problem = getattr(name, "name", name), vars(self).get("problem")
        if problem is None:
            raise TypeError(
                f"rows({key!r}): a fit that was loaded has no data; predict(table) has what it says of a table"
            )
        source: Any = problem.source
        if source is None:
            raise TypeError(f"rows({key!r}): this table was not read in chunks, and fit[{key!r}] has all of its rows")
        member = self._members.get(key)
        whole = key if member is None else member.joint
        if whole not in source.chunks.local or problem.plan.nodes[whole].is_observed:
            hidden = [n for n in source.chunks.local if not problem.plan.nodes[n].is_observed]
            raise KeyError(f"{key!r} is not hidden in rows; hidden there are {', '.join(hidden) or 'none'}")
        mu = {n: problem.moments(own, self.state.lam[n]) for n, own in source.blocks.items()}
        for block, lam in source.in_rows(whole, mu):
            if member is not None:
                yield marginal(key, member, block, lam)
            else:
                yield Factor(key, block.family, block.plates, lam, block.origin)

    def update(
        self, rows: Any, *, forgetting: float | None = None, drift: Literal["auto"] | None = None, **options: Any
    ) -> Fit:
        """The fit given more rows: ids that were not there are new levels, and sweeps go on from here.

        Parameters
        ----------
        rows : table, or tables by plate, with all columns that the network reads
        forgetting : float in [0, 1), optional
            The part of what was learned before that no longer counts, for streams that change.
        drift : "auto", optional
            Learn that part from the new rows, for each hidden node that all rows share: what they contradict is forgotten.
            ``fit.forgotten`` has what was found.
        **options
            Limits and callbacks, as of ``Fit.continue_fit``.

        Examples
        --------
        >>> import natgrad as ng, numpy as np
        >>> level = ng.Normal("level", 0.0, 0.01)
        >>> y = ng.Normal("y", level, 1.0, plate=ng.Plate("row"), observed=ng.Column("y"))
        >>> fit = ng.Network(y).fit({"y": np.zeros(100)})
        >>> round(float(fit.update({"y": np.full(50, 3.0)})["level"].mean()), 2)  # of all 150 rows
        1.0
        >>> jumped = fit.update({"y": np.full(50, 3.0)}, drift="auto")
        >>> round(float(jumped["level"].mean()), 2), jumped.forgotten["level"] > 0.9
        (2.99, True)

        Rows that are held, or read again from their files, are summed again with the new ones. Where they are gone, in a fit
        that was loaded or with ``forgetting``, their last messages stand for them (streaming variational Bayes).
        """
        from natgrad.network.bind.updating import update_rows

        binding = self._needed_binding("update")
        options = self._moving(options)
        groups = groups_of(binding.template.joint, self._members)
        return update_rows(
            binding, self._factors(), groups, self.settings, self.state.t, rows, forgetting, drift, options
        )

    def forget(self, rows: Any, **options: Any) -> Fit:
        """The fit without some rows: the others are summed again, and sweeps go on from here.

        Parameters
        ----------
        rows : {column: ids}, numbers of rows, or a flag for each row
            With ids, the rows of every table that has the column are forgotten: ``fit.forget({"user": ["ann"]})``. A level
            without rows is gone.
        **options
            Limits and callbacks, as of ``Fit.continue_fit``.
        """
        from natgrad.network.bind.updating import forget_rows

        binding, options = self._needed_binding("forget"), self._moving(options)
        return forget_rows(binding, self._factors(), self.settings, self.state.t, rows, options)

    def _moving(self, options: dict[str, Any]) -> dict[str, Any]:
        """Components go on moving, if they did."""
        return options if self.trace.first_sizes or "moves" in options else {**options, "moves": False}

    @property
    def _members(self) -> Mapping[str, Member]:
        """Where nodes are that share a factor."""
        problem = vars(self).get("problem")
        members: Mapping[str, Member] = vars(self)["members"] if problem is None else problem.plan.members
        return members

    def _factors(self) -> dict[str, Factor]:
        """Of every hidden node and every joint factor, those too that make others conjugate."""
        return {name: self[name] for name in (*self.state.lam, *self._members)}

    def _needed_binding(self, what: str) -> Binding:
        if self.binding is None:
            from natgrad.network.results.predict import needs_binding

            raise needs_binding(what)
        return self.binding


class Fit(TableFit):
    """The posterior of a network. ``fit["mu"]``, or ``fit[mu]`` with the node itself, is the factor of node ``mu``.

    Attributes
    ----------
    elbo : float, the exact evidence lower bound
    trace : Trace, one entry a step: ``fit.trace["elbo"]``, ``["messages_read"]``, ``["rho"]``, ``["seconds"]``
    stop : Stop, why the run ended; ``fit.stop.converged``, ``str(fit.stop)``
    inference : str, which inference was run and for how long
    settings : method, step, order, seed and version
    """

    def __init__(self, problem: NetworkProblem, result: Result, settings: Settings, source: Source) -> None:
        self.problem = problem
        self._source = source
        self._response: LinearResponse | None = None  # the last ones that were asked for
        self._drawn: Draws | None = None
        self.state, self.trace = result.state, result.trace
        self.stop: Stop = result.stop
        self._bound = result.bound
        self.settings = settings

    def _name(self, key: Any) -> str:
        """The name of a node that was given by its name or itself."""
        if isinstance(key, RecordedNode):
            return key.name
        if not isinstance(key, Node):
            return str(key)
        if self.problem.plan.declared.get(key.name) is not key:
            raise KeyError(f"{key!r} is not in this network; nodes are {', '.join(self.problem.plan.declared)}")
        return key.name

    def __getitem__(self, name: str | Node) -> Factor:
        name = self._name(name)
        if (member := self.problem.plan.members.get(name)) is not None:
            factor = marginal(name, member, self.problem.blocks[member.joint], self.state.lam[member.joint])
            return replace(factor, labels=self._labels)
        block = self.problem.blocks.get(name)
        if block is None:
            what = "is observed" if name in self.problem.plan.nodes else "is not in this network"
            if name in self.problem.plan.blocks:
                what = f"is hidden in rows that were read in chunks, and not held: fit.rows({name!r}) has them, chunk by chunk"
            raise KeyError(f"{name!r} {what}; hidden nodes are {', '.join(self)}")
        lam = tuple(np.asarray(part, dtype=np.float64) for part in self.state.lam[name])
        node = self.problem.plan.nodes[name]
        seen = values = None
        if node.is_observed and node.kind != CATEGORY:  # a category that was observed is certain without this
            seen, values = seen_values(node)
        return Factor(name, block.family, block.plates, lam, block.origin, seen, values, self._labels)

    if not TYPE_CHECKING:  # who checks types must see that there is no such thing

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and "problem" in self.__dict__:
                if name in self:
                    raise AttributeError(f"a fit has no {name}: fit[{name!r}] is the factor of that node")
                if hasattr(Factor, name):
                    raise AttributeError(
                        f"a fit has no {name}: each node has, as in fit[{next(iter(self), 'x')!r}].{name}"
                    )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[str]:
        plan = self.problem.plan
        for name in self.problem.blocks:
            if not plan.nodes[name].is_auxiliary:
                yield from (node.name for node in plan.in_factor(name))

    def __contains__(self, name: object) -> bool:
        if isinstance(name, Node):
            return self.problem.plan.declared.get(name.name) is name and name.name in self
        return name in self.problem.blocks or name in self.problem.plan.members

    def bound_to(self, binding: Binding) -> Fit:
        """The same fit, which knows its declaration and the ids of its data."""
        self.binding, self._labels = binding, binding.domain.labels(binding.template)
        return self

    @property
    def inference(self) -> str:
        """Which inference was run, after a comma its schedule, and the backend: "VB, memoised, 37 passes in JAX"."""
        return f"{self.trace.inference} in {BACKEND_NAMES[self.problem.backend.name]}"

    @property
    def elbo(self) -> float:
        """The exact bound at the final state."""
        return self.problem.bound(self.state) if self._bound is None else self._bound

    @property
    def n_components(self) -> dict[str, int]:
        """How many components were found along each plate that grows; empty if none does."""
        moves = self._source.moves_for(None, self.settings)
        return {} if moves is None else {part.plate: int(part.active(self.state).sum()) for part in moves.parts}

    @property
    def component_counts(self) -> dict[str, tuple[int, int]]:
        """Along each plate from which hidden categories choose: components that are used, and places for them.

        The same as places where the plate does not grow. `natgrad.compare` counts labellings by these.
        """
        from natgrad.network.start.components import counted_components

        return counted_components(self.problem, self.state, self.settings.order)

    def elbo_by_node(self) -> dict[str, float]:
        """The bound's parts: E[log p(x | parents)] of each node, plus the entropy of q where it is hidden."""
        if self.problem.source is not None:
            raise NotImplementedError("the bound by node is not known of a network that was read in chunks; elbo is")
        return self.problem.bound_by_node(self.state)

    def natural_gradient(self, name: str | Node) -> tuple[npt.NDArray[Any], ...]:
        """λ* − λ of one node, on all the data: the direction in which a step of length one is the exact update."""
        if (joint := self.problem.plan.members.get(self._name(name))) is not None:
            raise ValueError(f"{name!r} is a part of one factor: ask for that of {joint.joint!r}")
        block = self.problem.blocks[self[name].name]
        name = block.name
        target = self.problem.target(block, self.state)
        change = tuple(np.asarray(t) - np.asarray(old) for t, old in zip(target, self.state.lam[name], strict=True))
        return shifted(block.family, change, block.origin)

    def predictive(self, name: str | Node, *, sizes: dict[Any, int] | None = None, **slots: Any) -> Predictive:
        """The distribution of new data of a node under the posterior.

        Parameters
        ----------
        name : str or node
            The node, usually an observed one.
        sizes : {plate: size}, optional
            New sizes of plates; found from the new arrays where these have them.
        **slots
            Parameters of the node written again with new gathers and constants, as in
            ``fit.predictive("y", mean=ng.dot(X_new, w))``; those left out stay as declared.

        Hidden nodes that live on a resized plate (the categories of new points) are drawn from their own conditional.
        """
        from natgrad.network.results.predictive import make_predictive

        self._refuse_chunks("predictive")

        return make_predictive(self.problem.plan, self.state.lam, self._name(name), sizes or {}, slots)

    @property
    def _is_chunked(self) -> bool:
        """Whether the table was read in chunks, so that its rows are not held."""
        return self.binding is not None and self.binding.chunk_rows is not None

    def _refuse_chunks(self, what: str) -> None:
        if self._is_chunked:
            raise PlateMismatch(
                f"{what}: this network was read in chunks, and its rows are not held; predict(table) takes new ones"
            )

    def psis(self, n: int = 1000, seed: int = 0) -> Importance:
        """How far q can be trusted, by Pareto-smoothed importance weights of ``n`` draws; needs arviz-stats.

        A ``k_hat`` above 0.7 comes with a `PoorApproximation` warning: q misses too much of the posterior.
        """
        from natgrad.network.results.psis import importance

        self._refuse_chunks("psis")
        return importance(self.problem, self.state, n, seed)

    def linear_response(
        self,
        names: Sequence[str] | None = None,
        *,
        tol: float = 1e-9,
        max_iterations: int = 1000,
        probes: int = 32,
        exact: bool | None = None,
        seed: int = 0,
    ) -> LinearResponse:
        """Standard deviations and covariances that the factorised q has lost: how the fit moves when the log joint is tilted.

        Exact where the posterior is Gaussian. The means stay those of q. ``lr["mu"].std()``, ``lr.cov("a", "b")``,
        ``lr.std(lambda m: m["a"] - m["b"])``, ``lr.influence("a")`` and ``lr.contraction`` are computed when they are asked for.

        Parameters
        ----------
        names : list of names, optional
            Nodes whose variances are computed at once, and which exports hold; by default all but categories, when asked for.
        tol, max_iterations : float, int
            Conjugate gradients stop at this part of their right-hand side, or after so many products, which is a warning.
        probes : int
            Random signs with which variances of nodes with more than 256 elements are estimated; ``lr["u"].std_error()`` says
            how well.
        exact : bool, optional
            True for one solve for each element instead, however many; False for probes always.
        seed : int, of the probes

        Raises
        ------
        NotAtMaximum
            Where the bound rises, or is flat, along some direction.

        Examples
        --------
        >>> import natgrad as ng
        >>> n = ng.Plate("n", 4)
        >>> a, b = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0)
        >>> y = ng.Normal("y", a + b, 1.0, plate=n, observed=[1.0, 2.0, 0.5, 1.5])
        >>> fit = ng.Network(y, joint=None).fit()
        >>> lr = fit.linear_response()
        >>> print(f"{fit['a'].std():.4f} {lr['a'].std():.4f} {lr.correlation('a', 'b'):.4f}")
        0.4472 0.7454 -0.8000
        """
        from natgrad.posterior.response.result import LinearResponse

        chosen = None if names is None else [self[name].name for name in names]
        at = (
            linearised_chunks(self.problem, self.state)
            if self._is_chunked
            else linearised(self.problem, self.state, self.settings.order)
        )
        factors = {name: self[name] for name in self}
        response = LinearResponse(
            at, factors, chosen, tol=tol, max_iterations=max_iterations, probes=probes, exact=exact, seed=seed
        )
        response._labels, self._response = self._labels, response
        return response

    def correlation(self, first: str | Node, second: str | Node) -> Any:
        """The correlation of two nodes under q: 0 unless they are in one factor (``Network(joint=…)``).

        That of the posterior is ``fit.linear_response().correlation(first, second)``.
        """
        plan, names = self.problem.plan, [self[name].name for name in (first, second)]
        return correlation(plan.members, self.problem.blocks, self.state.lam, *names)

    def summary(self, names: Sequence[str] | None = None, **options: Any) -> Summary:
        """A table of means, standard deviations of every level that was computed, and intervals; see `ExportMixin.summary`.

        Examples
        --------
        >>> import natgrad as ng
        >>> n = ng.Plate("n", 4)
        >>> a, b = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0)
        >>> fit = ng.Network(ng.Normal("y", a + b, 1.0, plate=n, observed=[1.0, 2.0, 0.5, 1.5]), joint=None).fit()
        >>> lr = fit.linear_response()
        >>> fit.summary()
             mean  sd (q)  sd (linear response)    lower  upper
        a  0.5556  0.4472                0.7454  -0.6704  1.782
        b  0.5556  0.4472                0.7454  -0.6704  1.782
        mean and 90% interval: linear response
        """
        options.setdefault("linear_response", self._response)
        options.setdefault("draws", self._drawn)
        return replace(super().summary(names, **options), note=self.trace.effort)

    def continue_fit(self, method: Method | None = None, **options: Any) -> Fit:
        """Go on from here for more steps; takes the arguments of ``Network.fit``. The trace continues."""
        from natgrad.network.fit_run import FitRun

        return FitRun.continued(self._source, self.settings, self.trace, method, self._moving(options)).run(self.state)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, compact: bool = False) -> None:
        """Write the fit to one file; `natgrad.load` gives a `SavedFit`.

        Of a network that was declared with columns the file holds the declaration, as data, and the ids of its levels, no rows:
        it predicts, and takes more rows, without the program that declared it. Of others `SavedFit.attach` needs the network.

        Parameters
        ----------
        path : where to; the folder must exist
        overwrite : bool
            Whether a file that is there may be replaced; otherwise it is a FileExistsError.
        compact : bool
            Whether to leave out what the method remembers between steps, which only an exact continuation needs.
        """
        content = {
            "factors": {name: self[name] for name in self.problem.blocks},
            "auxiliary": [name for name in self.problem.blocks if self.problem.plan.nodes[name].is_auxiliary],
            "state": self.state._replace(memory={}) if compact else self.state,
            "trace": self.trace,
            "stop": self.stop,
            "settings": self.settings,
            "elbo": self.elbo,
            "members": {name: member.saved() for name, member in self.problem.plan.members.items()},
        }
        if self.binding is not None:
            try:
                from natgrad.network.bind.declaration import binding_to_data

                content["declaration"] = binding_to_data(self.binding)
            except TypeError as reason:
                words = f"{reason}: the file will hold what was found, but it cannot predict; attach(network) gives the fit back"
                warnings.warn(words, stacklevel=2)
        write_model(path, "Fit", content, overwrite=overwrite)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies: a linear response is asked for again, and arrays of JAX, read back, would have 32 bits."""
        if self._is_chunked:
            raise TypeError(
                "a fit to chunks reads its table again when it goes on, and cannot be pickled: save(path) keeps it"
            )
        return {**self.__dict__, "_response": None, "state": on_host(self.state)}

    def __repr__(self) -> str:
        return f"<Fit of {', '.join(self)}: {self.inference}, elbo {self.elbo:.6g}; {self.stop}>"

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
        """Draws from the posterior itself, by Gibbs sampling from the same declaration; chains begin at draws from this self.

        A factorised q has good means and intervals that are too narrow; draws have neither the one nor the other error, and cost
        hundreds of sweeps. Gaussian nodes that meet in a term are drawn together, chains of states by forward filtering and
        backward sampling. Where components of a mixture can change places, draws have the labels of the self. A table that was
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
            are at least 300 sweeps, a warning names a fit that ends elsewhere and that chains do not leave.
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
        from natgrad.network.draws.rivals import chain_inits
        from natgrad.network.draws.run import draw_posterior
        from natgrad.network.results.joint import as_separate_factors
        from natgrad.posterior.drawing import schedule_of

        if self._is_chunked:
            raise TypeError(
                "draws() sweeps over all rows at once, and this table is read in chunks: use linear_response(), which reads "
                "chunks, or fit rows that are held in memory, without chunk_rows="
            )
        begins, notes = chain_inits(self, starts, schedule_of(n, chains, warmup, thin, seed)[0].sweeps, seed)
        begins = [as_separate_factors(begin) for begin in begins]
        draws = draw_posterior(
            begins[0], n, chains, warmup, thin, seed, names, backend, max_seconds, callbacks, verbose, keep, begins, notes
        )  # fmt: skip
        draws.warn_if_poor()
        self._drawn = draws
        return draws

    def simulate(self, seed: int = 0, size: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Values of all nodes under the posterior: hidden ones drawn from q, data given these (posterior predictive draws).

        Parameters
        ----------
        seed : int
        size : int, optional
            How many draws, along a new first axis; one without it by default.
        """
        from natgrad.network.results.simulate import simulate_nodes
        from natgrad.random import Stream, generator

        self._refuse_chunks("simulate")
        plan = self.problem.plan
        given = self._draws(list(self), generator(seed, Stream.SIMULATION, 1), 1 if size is None else size)
        plan = make_plan(list(plan.declared.values())) if plan.members else plan
        return simulate_nodes(plan, seed, size, given)

    # -- the groups of `to_arviz` --

    def _draws(self, names: Sequence[str], rng: np.random.Generator, n: int) -> dict[str, npt.NDArray[Any]]:
        """Draws from q; nodes of one factor are drawn together."""
        together = dict[str, Any]()
        plan = self.problem.plan
        return {
            name: part_of_joint(plan.members[name], self.state.lam, plan.origins, rng, n, together)
            if name in plan.members
            else self[name].sample(rng, n)
            for name in names
        }

    def _needed(self, chosen: list[str], asked: Sequence[str] | None, n: int) -> list[str]:
        from natgrad.network.results.arviz_groups import MOST_NUMBERS, read_by_data

        if asked == ["posterior"] or self._is_chunked:
            return chosen
        more = [name for name in read_by_data(self.problem.plan) if name not in chosen]
        if asked is None and n * sum(self[name].lam[0].size for name in more) > MOST_NUMBERS:
            return chosen
        return [*chosen, *more]

    def _more_groups(self, drawn: Any, asked: Sequence[str] | None, seed: int) -> tuple[Any, Any]:
        from natgrad.network.results.arviz_groups import network_groups

        if self._is_chunked:  # the rows are not held
            if asked is not None and asked != ["posterior"]:
                self._refuse_chunks("to_arviz")
            return {}, {}
        return network_groups(self.problem.plan, drawn, asked, seed)


def warn_at_end(problem: NetworkProblem, result: Result) -> None:
    """Say that a run has not converged, and where q of what auxiliary variables stand for is far too narrow.

    Pólya–Gamma weights give a logit the precision Σ E[ω], E[ω] = b tanh(c/2) / 2c; the likelihood's curvature is b σ(c) σ(−c),
    c² = E[ψ²]. They are equal at c = 0; for rare events, and for counts far above the shape of a negative binomial, ω varies with
    the logit, and most of that precision is not there. A latent z ~ N(ψ, 1/τ) between bounds gives ψ the precision τ, and the
    curvature is τ (1 − τ Var_q[z]): next to nothing where the bounds exclude next to nothing.
    """
    warn_if_ran_out(result.stop)
    state, whole = result.state, problem.blocks.keys() == problem.plan.blocks.keys()
    for name, block in problem.plan.blocks.items():
        latent, owner = isinstance(problem.plan.nodes[name], LatentNormal), name.rpartition(".")[0]
        if not isinstance(block.family, PolyaGamma) and not latent:
            continue
        what, why = "logit", "its events are rare (or nearly certain)"
        weight = curvature = 0.0
        if latent:
            what, why = "mean", "what was seen of it was nearly certain"
            weight = curvature = float(problem.n_observed[owner])
        held: Any = (
            [(block, state.lam[name])] if name in state.lam else cast(Any, problem).source.in_rows(name, state.mu)
        )
        for _, stats in held:
            lam = tuple(np.asarray(part, np.float64) for part in stats)
            usual = block.family.usual(lam)
            if latent:  # those that were seen as they are, or not at all, have no precision
                curvature -= float(np.sum(usual["precision"] * block.family.var(lam), where=usual["precision"] > 0))
                continue
            half, trials = np.broadcast_arrays(0.5 * usual["tilt"], usual["trials"])
            half, trials = half[half > 0], trials[half > 0]  # of what is missing it is zero
            weight += float((trials * np.tanh(half) / half).sum())
            curvature += float((trials / np.cosh(np.minimum(half, 300.0)) ** 2).sum())
        if curvature < MUCH_NARROWER**2 * weight:
            draws = "; fit.draws() is exact, but needs many draws here" if whole else ""
            warnings.warn(
                f"standard deviations of what the {what} of {owner!r} reads may be about "
                f"{np.sqrt(max(curvature, 0.0) / weight):.2g} of the true ones under q: {why}, and q takes auxiliary "
                "variables as independent of what they stand for. Use fit.linear_response() for standard "
                f"deviations and intervals{draws}",
                PoorApproximation,
                stacklevel=levels_to_the_caller(),
            )


Stats = tuple[Any, ...]


def linearised(
    problem: NetworkProblem, state: State, order: tuple[str, ...], tangent: Tangent | None = None
) -> Linearised:
    """A network near a state. A point mass of the start counts as the q that stands behind it: μ = ∇A(λ) everywhere."""
    lam = {name: tuple(np.asarray(part, np.float64) for part in stats) for name, stats in state.lam.items()}
    mu = {name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
    here = State(lam, mu, 1)
    along = Tangent(problem) if tangent is None else tangent

    def sweep(lam: dict[str, Stats]) -> Mapping[str, Stats]:
        moments = {name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
        return problem.sweep(State(dict(lam), moments, 1), order).state.lam

    return Linearised(
        problem.blocks,
        lam,
        {name: problem.target(block, here) for name, block in problem.blocks.items()},
        lambda direction: along.targets(mu, direction),
        {name: weight for name, block in problem.blocks.items() if (weight := _weight(problem, block)) is not None},
        sweep,
        lambda direction: along.rows(mu, direction),
        lambda lam: linearised(problem, State(lam, {}, 1), order, along),
        {name: (member.joint, member.place) for name, member in problem.plan.members.items()},
        cache(lambda: along.matrix(mu)) if along.has_matrix else None,
    )


def linearised_chunks(problem: Any, state: State) -> Linearised:
    """A network that was read in chunks near a state: what is hidden in rows is solved again at each product, in two passes."""
    from natgrad.posterior.response.linearised import by_differences

    linearised = by_differences(problem.blocks, state.lam, problem.source.targets)
    views = {name: (member.joint, member.place) for name, member in problem.plan.members.items()}
    return linearised._replace(elsewhere=lambda lam: linearised_chunks(problem, State(lam, {}, 1)), views=views)


def _weight(problem: NetworkProblem, block: Block) -> npt.NDArray[np.float64] | None:
    """The product of the weights of a block's plates, for each element; None where none has any."""
    weights = problem.plan.weights
    if not any(plate in weights for plate in block.plates):
        return None
    total = np.ones(block.shape)
    for axis, plate in enumerate(block.plates):
        if plate in weights:
            total = total * weights[plate].reshape([-1 if here == axis else 1 for here in range(len(block.shape))])
    return total
