"""What a random declaration has in it: a set of words, so that a generator that stops drawing something is noticed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from generators.networks import (
    NAMES,
    Const,
    Declaration,
    Diag,
    Dot,
    Map,
    Minus,
    NodeSpec,
    Product,
    Read,
    Rows,
    Sum,
    Take,
    parents,
    parts,
)


def features(declaration: Declaration) -> set[str]:
    """Every feature of a declaration."""
    found = set(_of_plates(declaration))
    children = set().union(*(parents(node) for node in declaration.nodes.values()))
    for node in declaration.nodes.values():
        found.add(f"{'hidden' if node.hidden else 'observed'} {node.type}")
        if not node.hidden and node.name in children:
            found.add(f"observed {node.kind} in the middle")
        if node.mask is not None:
            found.add("missing values")
        if node.lengths is not None:
            found.add("chains end to end")
        for tree in node.slots.values():
            for part in parts(tree):
                found |= set(_of_part(declaration, node, part))
    return found


def _of_plates(declaration: Declaration) -> Iterator[str]:
    sizes = [plate.size for plate in declaration.plates.values()]
    if len(set(sizes)) < len(sizes):
        yield "plates of equal sizes"
    if 1 in sizes:
        yield "a plate of one"
    weights = [plate.weight for plate in declaration.plates.values() if plate.weight is not None]
    if weights:
        yield "weights"
    if any((weight == 0).any() for weight in weights):
        yield "weights of zero"
    if any(node.size in sizes for node in declaration.nodes.values() if node.kind == "vector"):
        yield "a vector as long as a plate"
    for name in {*declaration.plates, *declaration.nodes} & set(NAMES):
        yield f"name {name}"
    if set(declaration.plates) & set(declaration.nodes):
        yield "a plate called like a node"


def _of_part(declaration: Declaration, reader: NodeSpec, part: Any) -> Iterator[str]:
    words = {
        Sum: "sum",
        Minus: "difference",
        Product: "product",
        Diag: "diag",
        Rows: "random transition",
        Map: "known map",
    }
    if type(part) in words:
        yield words[type(part)]
    if isinstance(part, Product) and not isinstance(part.left, Const) and not isinstance(part.right, Const):
        yield "product of two random things"
        if isinstance(part.left, Read) and isinstance(part.right, Read) and part.left.node == part.right.node:
            yield "product of two elements of one node"
    if isinstance(part, Const) and part.plates:
        yield "numbers on plates"
    if isinstance(part, Dot):
        yield "dot along a plate" if part.over else "dot of vectors"
        if part.over and any(isinstance(side, (Sum, Product)) for side in part[:2]):
            yield "something beside a side of a dot"
    if isinstance(part, Read):
        yield from _of_read(declaration, part)


def _of_read(declaration: Declaration, part: Read) -> Iterator[str]:
    node = declaration.nodes[part.node]
    who = "hidden" if node.hidden else "observed"
    if node.plates and all(entry is None for entry in part.by):
        yield f"{who} as it is"
    if sum(isinstance(entry, Read) for entry in part.by) > 1:
        yield "two gates"
    for entry in part.by:
        if isinstance(entry, Take):
            yield f"{who} gathered"
            yield "an index that says its plate" if entry.said else "an index found by its length"
            if len(entry.plates) > 1:
                yield "an index on two plates"
        elif isinstance(entry, Read):
            gate = declaration.nodes[entry.node]
            yield f"{who} {node.kind} gated by {'hidden' if gate.hidden else 'observed'} {gate.type}"
            yield f"{who} gated"
            if any(isinstance(inner, (Take, int, np.integer)) for inner in entry.by):
                yield "a gathered gate"
            if any(isinstance(inner, Read) for inner in entry.by):
                yield "a gated gate"
        elif entry is not None:
            yield f"{who} at an integer"


def count_read(declaration: Declaration, node: NodeSpec) -> int:
    """A limit on the random elements that one element of a term reads, a path or a vector counted by its points."""
    total = 0
    for tree in node.slots.values():
        for part in parts(tree):
            repeats = declaration.plates[part.over].size if isinstance(part, (Dot, Diag, Rows)) and part.over else 1
            reads = [p for p in parts(part) if isinstance(p, Read)] if repeats > 1 else []
            total += (repeats - 1) * sum(_cost(declaration, p.node) for p in reads)
            if isinstance(part, Read):
                total += _cost(declaration, part.node)
    return total


def _cost(declaration: Declaration, name: str) -> int:
    node = declaration.nodes[name]
    if not node.hidden:
        return 0
    if node.type == "MarkovChain":
        return 3
    return {"real": 1, "vector": 2, "category": 1}.get(node.kind, 0)


def reads_left_out(declaration: Declaration, node: NodeSpec) -> bool:
    """Whether a term reads elements of a weighted plate one by one other than on that plate: weight 0 has no meaning there."""
    for tree in node.slots.values():
        for part in parts(tree):
            if not isinstance(part, Read) or not declaration.nodes[part.node].hidden:
                continue
            for plate, entry in zip(declaration.nodes[part.node].plates, part.by, strict=True):
                weight = declaration.plates[plate].weight
                if weight is not None and (weight == 0).any() and (entry is not None or plate not in node.plates):
                    return True
    return False
