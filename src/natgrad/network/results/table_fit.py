"""What a fit can do that knows its declaration and its levels: predict for new tables, take rows and let rows go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from natgrad.inference.problem import State
from natgrad.network.compile.joint_factors import Member, groups_of
from natgrad.network.results.joint import marginal
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.inference.trace import Trace
    from natgrad.network.bind.bound import Binding
    from natgrad.network.results.fit import Fit, Settings
    from natgrad.network.results.predict import Predictions

__all__ = ["TableMixin"]


class TableMixin:
    """``predict``, ``update`` and ``forget`` for fits of networks that were declared with columns, loaded ones too.

    ``forgotten`` is, after ``update(rows, drift="auto")``, the part of what each hidden node had learned that no longer counts.
    """

    forgotten: Mapping[str, float] | None = None

    if TYPE_CHECKING:
        binding: Binding | None
        settings: Settings
        state: State
        trace: Trace

        def __getitem__(self, name: str) -> Factor: ...
        def __iter__(self) -> Iterator[str]: ...

    def predict(self, data: Any, nodes: Any = None) -> Predictions:
        """The predictive distributions for the rows of a new table, of a network that was declared with columns.

        Parameters
        ----------
        data : table, or tables by plate, as in ``Network.fit``
            Columns of observed nodes may be missing: these nodes are predicted. What is there tells about the hidden nodes of
            its rows, the assignments of a mixture for example. An id that was not there has its prior.
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
        from natgrad.network.bind.chunked import Chunked

        key, problem = getattr(name, "name", name), vars(self).get("problem")
        if problem is None:
            raise TypeError(
                f"rows({key!r}): a fit that was loaded has no data; predict(table) has what it says of a table"
            )
        blocks: Any = problem.blocks
        if not isinstance(problem, Chunked):
            raise TypeError(f"rows({key!r}): this table was not read in chunks, and fit[{key!r}] has all of its rows")
        member = self._members.get(key)
        whole = key if member is None else member.joint
        if whole not in problem.program.local or problem.plan.nodes[whole].is_observed:
            hidden = [n for n in problem.program.local if not problem.plan.nodes[n].is_observed]
            raise KeyError(f"{key!r} is not hidden in rows; hidden there are {', '.join(hidden) or 'none'}")
        mu = {n: problem.program.problem.moments(own, self.state.lam[n]) for n, own in blocks.items()}
        for block, lam in problem.in_rows(whole, mu):
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

        Rows that are held, or read again from their files, are summed up anew with the new ones. Where they are gone, in a fit
        that was loaded or with ``forgetting``, they speak through what they told last (streaming variational Bayes).
        """
        from natgrad.network.bind.updating import update_rows

        binding = self._needed_binding("update")
        options = self._moving(options)
        groups = groups_of(binding.template.joint, self._members)
        return update_rows(
            binding, self._factors(), groups, self.settings, self.state.t, rows, forgetting, drift, options
        )

    def forget(self, rows: Any, **options: Any) -> Fit:
        """The fit without some rows: the others are summed up anew, and sweeps go on from here.

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
