"""`Network`: a declared graph collected from its observed leaves, compiled once, fitted as often as wanted."""

from __future__ import annotations

import copy
import html
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from natgrad._version import __version__
from natgrad.errors import PlateMismatch, UnreachedNode
from natgrad.inference.engine import TOLERANCE, BoundEvery
from natgrad.inference.methods import VB, Method
from natgrad.inference.options import CheckpointOptions, checked_every, checked_method, checked_step, refuse_unknown
from natgrad.inference.step_sizes import Step
from natgrad.network.compile.joint_factors import checked_joint, joined_plan
from natgrad.network.compile.origins import warn_of_offsets
from natgrad.network.compile.plan import Plan, make_plan
from natgrad.network.execute.backend import BACKENDS, BackendChoice, BackendName, choose_backend
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.fit_run import FitRun, Whole
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import Expression
from natgrad.network.language.missing import hidden_in_part
from natgrad.network.language.nodes import Node, parents_first
from natgrad.network.results.fit import Fit, Settings
from natgrad.network.results.joint import joined_init
from natgrad.network.results.query import Answer, query
from natgrad.network.results.ties import warn_of_ties
from natgrad.network.start.components import asked_moves
from natgrad.network.start.initial import Init, started_nodes, symmetry_watch
from natgrad.network.start.order import checked_order
from natgrad.network.start.probes import probes_of
from natgrad.network.start.restarts import find_start
from natgrad.showing import reporter
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.network.bind.build import Template
    from natgrad.network.results.calibrate import Level
    from natgrad.posterior.calibration import Calibration
    from natgrad.posterior.draws import Draws

__all__ = ["Network", "check_plates", "check_roots", "warn_unreached"]


def check_roots(roots: Collection[Any]) -> None:
    """A network is made of nodes, not of nothing, names, lists or expressions."""
    if not roots:
        raise TypeError("Network needs the observed nodes: Network(y), or Network(y1, y2)")
    for node in roots:
        if not isinstance(node, (Node, RecordedNode)):
            hint = ": write Network(*nodes)" if isinstance(node, (list, tuple)) else ""
            hint = ": give the node, not its name" if isinstance(node, str) else hint
            given = f"the expression {node}" if isinstance(node, Expression) else type(node).__name__
            raise TypeError(f"Network takes nodes, got {given}{hint}")


def check_plates(nodes: Iterable[Node]) -> None:
    """Plates of one name must be one plate."""
    seen: dict[str, Any] = {}
    for node in nodes:
        for plate in node.plates:
            other = seen.setdefault(plate.name, plate)
            if other.size != plate.size or not _same_weight(other.weight, plate.weight):
                what = (
                    f"of sizes {other.size} and {plate.size}" if other.size != plate.size else "with different weights"
                )
                raise PlateMismatch(
                    f"{node.name!r}: there are two plates called {plate.name!r}, {what}; use one Plate for both, or two names"
                )


def _same_weight(first: npt.NDArray[Any] | None, second: npt.NDArray[Any] | None) -> bool:
    return first is second or (first is not None and second is not None and np.array_equal(first, second))


def warn_unreached(nodes: dict[str, Node]) -> None:
    """A warning, where the network is made, for every hidden node that no data depend on."""
    reached: set[str] = set()
    for node in reversed(list(nodes.values())):
        if node.is_observed or node.has_evidence or node.name in reached:
            reached.update(parent.name for parent in node.parents())
    for name, node in nodes.items():
        if not (node.is_observed or node.has_evidence) and name not in reached:
            warnings.warn(
                f"{name!r} is hidden and has no path to data: its posterior will be its prior. Leave it out, or observe a "
                "node that depends on it",
                UnreachedNode,
                stacklevel=3,
            )


class Network:
    """A Bayesian network, collected from its observed nodes.

    Parameters
    ----------
    *observed : nodes
        The observed leaves; every ancestor comes along.
    joint : list of groups of nodes, "auto", "full" or None
        Gaussian nodes that share one factor of q, so that their correlation is kept: ``joint=[("slope", "start")]``. They lie on
        the same plates, and children read them linearly, each element of one beside that of the other. A Gamma that is the
        precision of their child may be with them, or a Wishart. "auto", the default, joins Normals without plates that meet in
        a term, up to 32 in a factor; "full" joins precisions with them, too. None gives every node a factor of its own, as in
        the paper.

    Examples
    --------
    >>> import natgrad as ng
    >>> n = ng.Plate("n", 5)
    >>> mu = ng.Normal("mu", 0.1, 0.5)
    >>> x = ng.Normal("x", mu, 2.0, plate=n, observed=[1.2, -0.3, 0.8, 2.1, 0.4])
    >>> fit = ng.Network(x).fit()
    >>> print(f"{fit['mu'].mean():.4f}  {fit.elbo:.6f}")
    0.8048  -7.726467
    """

    def __init__(self, *observed: Any, joint: Any = "auto") -> None:
        check_roots(observed)
        self.template: Template | None = None  # a declaration whose data come later
        self._joint: Any = None
        self.nodes: dict[str, Node] = {}
        if any(isinstance(node, RecordedNode) for node in observed):
            from natgrad.network.bind.build import Template  # readers of files take a while to import

            self.template = Template(observed, joint)
            return
        self.nodes = parents_first(observed, Node.parents)
        self._problems: dict[BackendName, NetworkProblem] = {}
        self._choices: dict[BackendName | None, BackendChoice] = {}
        check_plates(self.nodes.values())
        self.states: dict[str, tuple[str, ...]] = {}
        self._joint = checked_joint(joint, self.nodes)
        if any(node.is_observed or node.has_evidence for node in self.nodes.values()):
            warn_unreached(self.nodes)
        elif any(node.categories is None for node in self.nodes.values()):  # without data, categories have queries
            raise ValueError(self._nothing_observed)

    @property
    def _nothing_observed(self) -> str:
        return f"no node is observed among {', '.join(self.nodes)}: give observed= to at least one"

    def query(self, names: Any, given: Mapping[Any, Any] | None = None) -> Answer:
        """The exact joint distribution of some hidden categories, given the data and more evidence, by variable elimination.

        For networks in which everything hidden is a `Categorical` or a `Bernoulli` and all else is known: probability tables,
        observed nodes of any kind below them. The cost is the largest table on the way (``answer.largest``), at most 2²⁴ numbers;
        a network that needs more is refused before anything is computed.

        Parameters
        ----------
        names : names or nodes
            An element of a node on plates is written ``("z", 3)``.
        given : {name: state}, optional
            Evidence beside the observed nodes: whole numbers, or names of states, if ``network.states`` has them: {name: names}.

        Examples
        --------
        >>> import natgrad as ng
        >>> rain = ng.Bernoulli("rain", 0.2)
        >>> sprinkler = ng.Bernoulli("sprinkler", ng.table([0.4, 0.01])[rain])
        >>> wet = ng.Bernoulli("wet", ng.table([[0.0, 0.9], [0.8, 0.99]])[rain, sprinkler])
        >>> answer = ng.Network(wet).query(["rain"], given={"wet": 1})
        >>> answer.table.round(4).tolist()
        [0.6423, 0.3577]
        """
        return query(self, names, given)

    @property
    def problem(self) -> NetworkProblem:
        """The network on the backend that is expected to be done first."""
        return self.problem_on(None)

    def problem_on(self, backend: BackendName | None) -> NetworkProblem:
        """The network on a backend; made at the first fit and kept, so that a second fit compiles nothing."""
        self._refuse_template("its problem")
        name = backend if backend in BACKENDS else self._chosen(backend).name
        if name not in self._problems:
            self._problems[name] = NetworkProblem(self._plan, name, probes_of)
        return self._problems[name]

    def bind(self, data: Any) -> Network:
        """Of a network declared with columns, the network of these rows: as if it had been declared with their arrays.

        Parameters
        ----------
        data : table, or tables by plate, as in `fit`
        """
        if self.template is None:
            raise TypeError("this network was declared with arrays: it has its data")
        from natgrad.network.bind.bound import bound_network

        return bound_network(self.template, data)

    def _refuse_template(self, what: str) -> None:
        if self.template is not None:
            raise TypeError(
                f"a network declared with columns has {what} only with a table: write net.bind(table) first"
            )

    def _chosen(self, backend: BackendName | None) -> BackendChoice:
        if backend not in self._choices:
            self._choices[backend] = choose_backend(self._plan, backend)  # which says what is wrong
        return self._choices[backend]

    @cached_property
    def _plan(self) -> Plan:
        return joined_plan(make_plan(list(self.nodes.values())), self._joint)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the hidden nodes, parents first; those that are observed in part, and read where they are not, among them.

        Auxiliary ones, which other nodes declared, are not listed.
        """
        if self.template is not None:
            from natgrad.network.bind.build import made_parents

            nodes: dict[str, Any] = {**made_parents(self.template), **self.template.nodes}
            return tuple(name for name, node in nodes.items() if not node.is_observed)
        parts = hidden_in_part(self.nodes.values())
        return tuple(
            name
            for name, node in self.nodes.items()
            if not node.is_auxiliary and (not node.is_observed or node.entries is not None or name in parts)
        )

    def draw(self) -> Any:
        """The network as an SVG: parents above children, observed nodes shaded, plates as boxes; ``.save(path)`` writes it."""
        self._refuse_template("a picture")
        return reporter("charts.drawing").draw_network(self.nodes)

    def to_dot(self) -> str:
        """The network in the language of Graphviz, whose layouts suit large ones: plates are clusters, observed nodes filled."""
        self._refuse_template("a picture")
        dot: str = reporter("charts.drawing").to_dot(self.nodes)
        return dot

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>" if self.template is not None else str(self.draw())

    def fit(
        self,
        data: Any = None,
        method: Method | None = None,
        *,
        step: Step | None = None,
        max_steps: int = 1000,
        max_passes: float | None = None,
        max_seconds: float | None = None,
        max_messages: int | None = None,
        tol: float = TOLERANCE,
        seed: int = 0,
        init: Init = None,
        n_init: int | None = None,
        order: Sequence[str] | None = None,
        callbacks: Sequence[Any] = (),
        bound_every: BoundEvery = None,
        executor: Any = None,
        backend: BackendName | None = None,
        verbose: bool | None = None,
        chunk_rows: int | None = None,
        moves: Any = None,
        **keep: Unpack[CheckpointOptions],
    ) -> Fit:
        """Fit the approximation q = Π q_i to the data.

        Parameters
        ----------
        data : table, optional
            Of a network declared with `Column`: a pandas or Polars frame, an Arrow table, a dict of columns, the name of a file
            or of several (CSV, JSON lines, Parquet, Arrow; ``"ratings/*.parquet"``), a source or an iterator of such tables; or a
            dict of them, by the plate whose elements are their rows. A network declared with arrays has its data: here its
            first argument is ``method``.
        method : VB, Children, GlobalBatch or SVI, optional
            Which data each step reads; all of it by default.
        step : step size, optional
            ``RobbinsMonro``, ``Constant``, ``HoldThenDecay`` or ``PerNode``. By default exact updates for `VB` and
            per-node steps, which need no tuning, for sampled methods.
        max_steps, max_passes, max_seconds, max_messages, tol : limits
            Most steps, readings of the data, time and messages read, and the nats left to gain below which the fit has converged
            (0 runs all steps). A step is a pass over all data, unless ``method`` reads a part of them.
        seed : int
            Every random choice is a function of the seed and the number of the step.
        init : mapping, "random", "kmeans", optional
            Where nodes start: values (a point mass until the first update), a draw from the prior, or clusters of the data. The
            others start at their priors. By default components of a mixture that would all start equal start from the best of
            some clusters and draws. Nodes that are multiplied with one another and would both start at zero are drawn.
        n_init : int, optional
            How many starts are compared, after a few exact sweeps of each, before the best goes on; ``trace.starts`` lists them.
            What ``init`` leaves open differs between them: draws and clusters.
        order : names, optional
            The order of updates in a sweep: every hidden node once. By default it follows from the graph and from what has a
            start, not from how the network was written.
        callbacks : functions of the progress, or experiment trackers
            Called after each step with its numbers, the state, and ``model()``, the fit if it ended there; one that returns True
            ends the fit. Objects with ``log_metrics``, ``log_metric`` or ``add_scalar`` (MLflow, TensorBoard) get the numbers.
            What a callback has as ``memory`` (plain values and arrays) is part of a checkpoint.
        bound_every : int or "log", optional
            How often a sampled method evaluates the exact bound: every so many steps, or evenly on a logarithmic axis of
            messages; by default at every step when that is cheap.
        executor : None, an address, `distributed.Client` or cluster, or `natgrad.inference.Dask`
            Who computes: this process, or the workers of a Dask cluster. Of ``data`` they are handed chunks of rows, whatever
            the network. Of a network that holds its arrays, the independent groups of a batch (`SVI`). The result is the same.
        backend : "numpy" or "jax", optional
            Who multiplies the arrays: NumPy at once, or JAX after it has compiled the network, which takes seconds and pays for
            large ones. By default whichever an estimate of the work expects to be done first; ``trace.strategy`` says which.
            The numbers agree to rounding.
        verbose : bool, optional
            Show a progress bar; by default on a terminal.
        chunk_rows : int, optional
            Read the table so many rows at a time: what does not fit in memory is fitted by exact sweeps over its chunks. By
            default files of more than two million rows are, and tables in memory are not.
        moves : "keep" or False, optional
            Components along plates that grow (``Plate(name, size, grow=True)``) are born, merged and deleted between passes, as
            the exact bound says. "keep": of a network with a given number of components, exchanges that keep it, which escape
            poor starts. False leaves both out, and the probes of a fit that has settled.
        checkpoint : folder, optional
            Where to keep the state of the run, so that nothing is lost: the last two files are kept, each written as a whole or
            not at all. Ctrl-C and SIGTERM finish the step, and write it.
        every : int or str
            So many steps (100) or seconds ("60s", the default) are between two checkpoints.
        resume : bool
            Whether to go on from there, if the folder has a state of this run; the result is that of a run that never stopped.
        """
        refuse_unknown(keep, self.fit.__annotations__)
        options = {
            "step": step, "max_steps": max_steps, "max_passes": max_passes, "max_seconds": max_seconds, "seed": seed,
            "max_messages": max_messages, "tol": tol, "init": init, "n_init": n_init, "order": order, "callbacks": callbacks,
            "bound_every": bound_every, "executor": executor, "backend": backend, "verbose": verbose, "moves": moves, **keep,
        }  # fmt: skip
        if self.template is not None:
            from natgrad.network.bind.bound import fit_table

            return fit_table(self.template, data, method, chunk_rows, options)
        if chunk_rows is not None:
            raise TypeError("chunk_rows= is for networks declared with Column: this one has its data, in arrays")
        if not any(node.is_observed or node.has_evidence for node in self.nodes.values()):
            raise ValueError(f"{self._nothing_observed}; query() answers without data")
        return self.fit_whole(self._only_method(data, method), options)

    def fit_whole(self, method: Method | None, options: Mapping[str, Any]) -> Fit:
        """The fit of a network that has its data; ``options`` are all of those of `fit`."""
        method = checked_method(method)
        if (every := checked_every(options["bound_every"])) is not None and method in (None, VB()):
            raise TypeError(
                f"bound_every={every!r} is for methods that sample, Children(C), GlobalBatch(size) and SVI(batch): exact "
                "sweeps have the bound after each of them. Leave it out, or give method="
            )
        init, n_init, moves = options["init"], options["n_init"], options["moves"]
        init = joined_init(init, self._plan) if self._plan.members else init
        restarts = None if n_init is None else whole_number(n_init, "n_init")
        chosen = self._chosen(options["backend"])
        source = Whole(problem := self.problem_on(chosen.name), chosen.words)
        settings = Settings(
            method, checked_step(options["step"], method, problem),
            checked_order(self._plan, options["order"], started_nodes(problem, init)),
            whole_number(options["seed"], "seed", least=0), __version__,
        )  # fmt: skip
        warn_of_ties(self._plan)
        warn_of_offsets(self._plan)
        about: dict[str, Any] = {"method": method, "step": settings.step, "init": init, "backend": chosen.name}
        about |= {name: options[name] for name in ("n_init", "moves") if options[name] is not None}
        moving = source.moves_for(asked_moves(self._plan, moves, method, n_init), settings)
        return FitRun(source, settings, options, moving, probed=moves is not False).run(
            lambda: find_start(problem, init, settings.seed, restarts, moving),
            (symmetry_watch(problem, init),) if self._plan.choices else (),
            about,
        )

    @property
    def source(self) -> Whole:
        """The network with its data, for runs that go on from a state."""
        return Whole(self.problem, self._chosen(None).words)

    @staticmethod
    def _only_method(data: Any, method: Method | None) -> Any:
        """The method, of a network that has its data: it may come first."""
        if data is not None and not isinstance(data, Method):
            from natgrad.data.frames import is_frame

            if is_frame(data):
                raise TypeError(
                    "this network was declared with arrays, and has its data: with observed=ng.Column(name) it takes tables"
                )
        if data is not None and method is not None:
            raise TypeError(f"this network has its data, in arrays, and takes one method, got {data!r} and {method!r}")
        return method if data is None else data

    def __repr__(self) -> str:
        if self.template is not None:
            return repr(self.template)
        return f"Network({', '.join(repr(node) for node in self.nodes.values())})"

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
        again: Network = type(self)(*observing(self.nodes, data))
        return again.with_joint(self._joint)

    def with_joint(self, joint: Any) -> Network:
        """The same network and data with other joint factors: groups of nodes, "auto", "full" or None, as in `Network`."""
        again = copy.copy(self)
        again.__dict__.pop("_plan", None)
        again.__dict__.update(_joint=checked_joint(joint, self.nodes), _problems={}, _choices={})
        return again

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

        given = dict(fit_options or {}), dict(draws_options or {})
        return calibrate_network(self, n, level, names, n_ranks, seed, *given, verbose)

    def attached_draws(self, draws: Draws) -> Draws:
        """Draws that were loaded from a file with this network, of which they must be."""
        from natgrad.network.draws.run import attached

        return attached(self, draws)

    def _check_bound(self, what: str) -> None:
        if self.template is not None:
            raise PlateMismatch(f"{what}: this network gets its data at fit; bind(table) gives one that has them")
