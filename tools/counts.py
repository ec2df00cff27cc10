"""How many places say the same: evaluators of the polynomial, loops over columns, problem classes, tables by name, solvers.

    python tools/counts.py                              the table, for src/natgrad
    python tools/counts.py --places                     with the places that were counted
    python tools/counts.py --source TREE/src/natgrad    another tree, of an earlier version say

What is counted is found in the syntax, not by names of files, so that two trees can be compared:

evaluators      `network/execute/lower.py`, once, and functions of `network` beside it that go through factors of monomials
                and multiply labelled arrays themselves, or have products lowered one by one
loops           loops of `network` and `inference` over the columns or colours of a block
problems        classes of `network` that are a problem of the engine
names           comparisons with the name of a family
tables          dictionaries and tuples that list three or more nodes or families, outside the rooms where these are defined
gradients       functions that make steps of conjugate gradients themselves
runs            places that start the loop of a run
"""

from __future__ import annotations

import argparse
import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

ENGINE = "natgrad.inference.engine"
SOURCE = Path(__file__).resolve().parents[1] / "src" / "natgrad"
LOWER = "network/execute/lower.py"
MULTIPLY = {"einsum", "Contraction", "contract", "product_of", "grad", "linearize", "lower_product", "times_unread"}
PROBLEMS = {"EdgeProblem", "GroupProblem", "Problem"}
HOMES = {"network/language", "families"}
Found = tuple[str, int]


def _attributes(node: ast.AST) -> set[str]:
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            yield part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", ""), part


def evaluators(tree: ast.AST) -> Iterator[int]:
    """Functions that read factors or monomials and multiply."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and {"factors", "monomials", "inner", "labels"} & _attributes(node):
            inner = [part for part in ast.walk(node) if isinstance(part, ast.FunctionDef) and part is not node]
            if MULTIPLY & {name for name, _ in _calls(node)} and not any(list(evaluators(part)) for part in inner):
                yield node.lineno


def loops(tree: ast.AST) -> Iterator[int]:
    """``range(block.n_columns)`` and ``repeat(block.n_columns, …)``."""
    for name, call in _calls(tree):
        if name in ("range", "repeat") and call.args and "n_columns" in _attributes(call.args[0]):
            yield call.lineno


def problems(tree: ast.AST) -> Iterator[int]:
    """Classes with a problem among their bases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and PROBLEMS & {ast.unparse(base).split("[")[0] for base in node.bases}:
            yield node.lineno


def names(tree: ast.AST) -> Iterator[int]:
    """``family.name == …`` and the like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Attribute) and side.attr == "name" and ast.unparse(side.value).endswith("family")
            for side in (node.left, *node.comparators)
        ):
            yield node.lineno


def tables(tree: ast.AST, kinds: set[str]) -> Iterator[int]:
    """Literals with three or more nodes or families."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict | ast.Tuple | ast.Set):
            continue
        entries = node.keys if isinstance(node, ast.Dict) else node.elts
        said = [e.value if isinstance(e, ast.Constant) else getattr(e, "id", getattr(e, "attr", None)) for e in entries]
        if sum(isinstance(entry, str) and entry in kinds for entry in said) >= 3:
            yield node.lineno


def _said(node: ast.FunctionDef) -> str:
    """A function's name and docstring."""
    return node.name.replace("_", " ") + (ast.get_docstring(node) or "")


def gradients(tree: ast.AST) -> Iterator[int]:
    """Functions whose names or docstrings say so, and which loop without `conjugate_step`, or are it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "conjugate_step":
            yield node.lineno
        if not isinstance(node, ast.FunctionDef) or "onjugate gradient" not in _said(node):
            continue
        if "conjugate_step" in {name for name, _ in _calls(node)}:
            continue
        if any(isinstance(part, ast.While) for part in ast.walk(node)) or "repeat_while" in _attributes(node):
            yield node.lineno


def runs(tree: ast.AST) -> Iterator[int]:
    """Calls of `run`, in `inference/engine.py` and where it is imported from there; a `FitRun` starts one, whoever makes it."""
    parts = list(ast.walk(tree))
    made = any(isinstance(part, ast.ClassDef) and part.name == "Phase" for part in parts)
    froms = (part for part in parts if isinstance(part, ast.ImportFrom) and part.module == ENGINE)
    if made or any(alias.name == "run" for part in froms for alias in part.names):
        yield from (call.lineno for _, call in _calls(tree) if ast.unparse(call.func) == "run")


def count(source: Path) -> dict[str, list[Found]]:
    """Every place, by what it is counted as."""
    trees = {str(path.relative_to(source)): ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    kinds = {
        node.name
        for path, tree in trees.items()
        if any(path.startswith(home) for home in HOMES)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    found: dict[str, list[Found]] = {}

    def add(what: str, path: str, lines: Iterator[int]) -> None:
        found.setdefault(what, []).extend((path, line) for line in lines)

    for path, tree in trees.items():
        network = path.startswith("network/")
        walkers = evaluators(tree) if network and not path.endswith("contraction.py") else iter(())
        add("evaluators", path, itertools.islice(walkers, 1) if path == LOWER else walkers)
        add("loops", path, loops(tree) if network or path.startswith("inference/") else iter(()))
        add("problems", path, problems(tree) if network else iter(()))
        add("names", path, names(tree))
        add("tables", path, tables(tree, kinds) if not any(path.startswith(home) for home in HOMES) else iter(()))
        add("gradients", path, gradients(tree))
        add("runs", path, runs(tree))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--places", action="store_true")
    given = parser.parse_args()
    for what, places in count(given.source).items():
        print(f"{len(places):5d}  {what}")
        for path, line in places if given.places else ():
            print(f"         {path}:{line}")


if __name__ == "__main__":
    main()
