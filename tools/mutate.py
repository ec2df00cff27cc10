"""Draw mutations of the source at random, run the tests of the room that each is in, and list those that no test noticed.

    python tools/mutate.py --n 50 --seed 0                      every room, its own tests and the table of promises
    python tools/mutate.py --n 5 --rooms families inference     some rooms
    python tools/mutate.py --show --n 20                        only say which mutations these are

A mutation is a sign, an index, a comparison, a constant off by one, a term or a transposition that is left out, two axes or two
arguments that change places. All run in one copy of the tree, tests that name what was changed first; nothing is written into the
tree itself. A test that hangs for a third of ``--seconds`` catches a mutation; where all tests together take longer than
``--seconds``, the verdict is "undecided". Ends with 1 if a mutation survived.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "natgrad"
ROOMS = (
    "families", "inference", "kernels", "network", "posterior", "data", "covariance", "recommenders", "topics",
    "models/hmm", "models/lda", "models/mixture", "models/gp", "models/factorization",
)  # fmt: skip
COMPILED = "kernels/**/__pycache__/*.nb[ic]"
OTHER = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
         ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And}  # fmt: skip


class Mutation(NamedTuple):
    """One change of one node of a file's tree: what it was, and what it becomes."""

    path: Path
    line: int
    kind: str
    before: str
    after: str
    text: str


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], ast.AST]]]:
    """What can be done to a node: a name, and a function that makes the changed node."""
    if isinstance(node, ast.BinOp) and type(node.op) in OTHER:
        yield (
            "sign" if isinstance(node.op, ast.Add | ast.Sub) else "factor",
            lambda: ast.BinOp(node.left, OTHER[type(node.op)](), node.right),
        )
        if isinstance(node.op, ast.Add | ast.Sub):
            yield "dropped term", lambda: node.left
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", lambda: node.operand
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OTHER:
        yield "comparison", lambda: ast.Compare(node.left, [OTHER[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BoolOp):
        yield "condition", lambda: ast.BoolOp(OTHER[type(node.op)](), node.values)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one", lambda: ast.Constant(node.value + 1)
    if isinstance(node, ast.Attribute) and node.attr == "T" and isinstance(node.ctx, ast.Load):
        yield "dropped transposition", lambda: node.value
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        yield (
            "swapped arguments",
            lambda: ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords),
        )


def sites(tree: ast.AST, quiet: bool = False) -> Iterator[tuple[ast.AST, str, int, int]]:
    """Nodes that compute something: no messages, annotations or decorators; with the place in their parent."""
    for name, value in ast.iter_fields(tree):
        inside = quiet or isinstance(tree, ast.Raise) or name in ("annotation", "returns", "decorator_list", "bases")
        inside = inside or (isinstance(tree, ast.Call) and ast.unparse(tree.func).split(".")[-1] in ("warn", "TypeVar"))
        for number, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                if not inside and not isinstance(child, ast.JoinedStr):
                    for which, _ in enumerate(changes(child)):
                        yield tree, name, number, which
                if not isinstance(child, ast.JoinedStr):
                    yield from sites(child, inside)


def drawn(path: Path, rng: random.Random) -> Mutation | None:
    """A mutation of a file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = list(sites(tree))
    if not found:
        return None
    parent, name, number, which = rng.choice(found)
    held = getattr(parent, name)
    node = held[number] if isinstance(held, list) else held
    kind, make = list(changes(node))[which]
    before, line, new = ast.unparse(node), node.lineno, copy.deepcopy(make())
    if isinstance(held, list):
        held[number] = new
    else:
        setattr(parent, name, new)
    return Mutation(path, line, kind, before, ast.unparse(new), ast.unparse(ast.fix_missing_locations(tree)))


def draw(rooms: list[str], n: int, seed: int) -> list[tuple[str, Mutation]]:
    """Mutations, room by room in turn; a file as often as it has bytes."""
    rng, found = random.Random(seed), []
    while len(found) < n:
        room = rooms[len(found) % len(rooms)]
        files = [path for path in (SOURCE / room).rglob("*.py") if path.name != "__init__.py"]
        mutation = drawn(rng.choices(files, [path.stat().st_size for path in files])[0], rng)
        if mutation and mutation.before != mutation.after:
            found.append((room, mutation))
    return found


def copy_tree(folder: Path) -> None:
    """Copy what git lists, and compiled kernels, so that the tests write into the copy alone and compile nothing twice."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copy_files((ROOT / name for name in listed.split("\0") if name), folder)
    copy_files(SOURCE.glob(COMPILED), folder)


def copy_files(paths: Iterable[Path], folder: Path) -> None:
    """Copy files of the tree to their places in a copy."""
    for path in paths:
        if path.is_file():
            copied = folder / path.relative_to(ROOT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)


def files_of(room: str, mutation: Mutation) -> list[str]:
    """Tests of a room; first those that name the mutated module, and the functions and classes around the mutation."""
    tree = ast.parse(mutation.path.read_text(encoding="utf-8"))
    around = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.lineno <= mutation.line <= (node.end_lineno or 0)
    ]
    words = re.compile(r"\b(" + "|".join(map(re.escape, [mutation.path.stem, *around])) + r")\b")
    files = sorted((ROOT / "tests" / room).rglob("test_*.py"))
    files.sort(key=lambda path: -len(set(words.findall(path.read_text(encoding="utf-8")))))
    return [str(path.relative_to(ROOT)) for path in files]


def caught(room: str, mutation: Mutation, seconds: float, extra: list[str], tree: Path) -> str:
    """What the tests of a room, and then ``extra`` ones, say of a mutation of a copied tree."""
    mutated = tree / mutation.path.relative_to(ROOT)
    mutated.write_text(mutation.text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    limit = ["-o", f"faulthandler_timeout={seconds / 3}", "-o", "faulthandler_exit_on_timeout=true"]
    end = time.monotonic() + seconds
    try:
        for tests in [files_of(room, mutation), extra]:
            if not tests:
                continue
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", *limit, *tests]
            left = max(1.0, end - time.monotonic())
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=left, check=False
            )
            if done.returncode not in (0, 5):
                lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return f"caught: {lines[0][:110] if lines else (done.stdout + done.stderr)[-80:]}"
    except subprocess.TimeoutExpired:
        return "undecided"
    finally:
        copy_files([mutation.path], tree)
        if "kernels" in mutation.path.parts:  # what was compiled is that of the mutation
            copy_files(SOURCE.glob(COMPILED), tree)
    return "survived"


def main() -> int:
    """Draw, run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="so many first ones, which a former run has tried")
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS))
    parser.add_argument("--seconds", type=float, default=900.0, help="most time for a mutation")
    parser.add_argument("--extra", nargs="*", default=["tests/promises"], help="tests that follow those of the room")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "natgrad"
        if not options.show:
            copy_tree(tree)
        for number, (room, mutation) in enumerate(draw(options.rooms, options.n, options.seed)[options.skip :]):
            where = f"{number + options.skip} {mutation.path.relative_to(SOURCE)}:{mutation.line}"
            verdict = "" if options.show else caught(room, mutation, options.seconds, options.extra, tree)
            survived += verdict == "survived"
            print(f"{where}  {mutation.kind}: {mutation.before[:60]} → {mutation.after[:60]}  {verdict}", flush=True)
    return int(survived > 0)


if __name__ == "__main__":
    raise SystemExit(main())
