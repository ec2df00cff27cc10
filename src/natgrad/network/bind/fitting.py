"""A template, a table and the options of a fit in; the fit, which carries the ids of the data, out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from natgrad.inference.methods import SVI
from natgrad.inference.monitor import Since
from natgrad.network.bind.bound import Binding, Rows, aligned, find_domain, held, open_tables
from natgrad.network.bind.build import Domain, build_nodes
from natgrad.network.bind.tables import LARGE, TableChunks
from natgrad.network.bind.template import Template
from natgrad.network.language.columns import RecordedNode

if TYPE_CHECKING:
    from natgrad.network.network import Network
    from natgrad.network.results.fit import Fit

__all__ = ["bind_network", "bound_network", "fit_table"]


def fit_table(template: Template, data: Any, method: Any, chunk_rows: int | None, options: dict[str, Any]) -> Fit:
    """The fit of a network that was declared with columns."""
    if isinstance(seconds := options["max_seconds"], (int, float)) and not isinstance(seconds, (bool, Since)):
        options["max_seconds"] = Since(seconds)  # reading the table is a part of the fit
    tables = open_tables(template, data)
    init = options["init"]
    if isinstance(init, Mapping):
        options["init"] = {key.name if isinstance(key, RecordedNode) else key: value for key, value in init.items()}
    if chunk_rows is not None or is_large(tables) or _is_shared_out(options.get("executor"), method):
        from natgrad.network.bind.streaming import CannotBeCut, fit_chunks

        with suppress(CannotBeCut):  # then all rows are read into memory
            return fit_chunks(template, tables, method, chunk_rows, options)
    rows = held(template, tables)
    domain = find_domain(template, rows)
    network = bind_network(template, rows, domain)
    return network.fit(method, **options).bound_to(Binding(template, domain, rows))


def bind_network(template: Template, rows: Mapping[str, Any], domain: Domain) -> Network:
    """The network of these rows, made by the language as if it had been declared with their arrays."""
    from natgrad.network.network import Network

    nodes = build_nodes(template, aligned(template, rows, domain), domain)
    roots = (nodes[root.name] if isinstance(root, RecordedNode) else root for root in template.roots)
    return Network(*roots, joint=template.joint)


def bound_network(template: Template, data: Any) -> Network:
    """The network of the rows of a table."""
    rows = held(template, open_tables(template, data))
    return bind_network(template, rows, find_domain(template, rows))


def _is_shared_out(executor: Any, method: Any) -> bool:
    """Whether others compute, by more than batches of groups: then they are handed chunks."""
    return executor not in (None, "threads") and not isinstance(method, SVI)


def is_large(tables: Rows) -> bool:
    """Whether there are files of so many rows that they are read in chunks."""
    return any(isinstance(table, TableChunks) and (table.n_rows or 0) > LARGE for table in tables.values())
