"""Which statements of natgrad the tests ran: a pytest plugin that is cheap enough to be on in every `make test`.

Tracing every line, as Python before 3.12 must, takes 40 % more time. Instead natgrad's modules are compiled with a mark at the
head of every run of statements that nothing can leave half-way: of a function's body, of each branch, and after each statement
that has branches. A mark is one assignment to an array of bytes. What is reported is statements, those of kernels aside, whose
compiled code leaves no trace, and those that run in other processes alone, which count as not run.

On with NATGRAD_COVERAGE=1. Compiled modules are kept beside pytest's cache.
"""

from __future__ import annotations

import ast
import hashlib
import marshal
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "natgrad"
KEPT = ROOT / ".pytest_cache" / "blocks"
# The name under which a module finds its marks; double underscores on both sides are not mangled inside classes.
NAME = "__hits__"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LISTS = ("body", "orelse", "finalbody")
WORST = 12
# Another way to mark makes other programs.
OWN = Path(__file__).read_bytes()


class Marked(NamedTuple):
    """A module with marks, and the number of statements that each stands for."""

    code: CodeType
    sizes: tuple[int, ...]


def marked(source: bytes, path: str) -> Marked:
    """Compile a module with marks."""
    tree = ast.parse(source, path)
    sizes: list[int] = []
    # What runs when the module is imported runs as a whole: names, imports, classes, signatures.
    sizes.append(_mark_definitions(tree.body, sizes))
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return Marked(code, tuple([sizes[-1], *sizes[:-1]]))


def _mark_definitions(body: list[ast.stmt], sizes: list[int]) -> int:
    """Mark the functions in the body of a module or class; how many statements it has besides."""
    count = 0
    for statement in body:
        if _is_prose(statement) or _is_for_types(statement):
            continue
        count += 1
        if isinstance(statement, FUNCTIONS):
            _mark_function(statement, sizes)
        elif isinstance(statement, ast.ClassDef):
            count += _mark_definitions(statement.body, sizes)
        else:
            for inner in _lists_of(statement):
                count += _mark_definitions(inner, sizes)
    return count


def _mark_function(function: Any, sizes: list[int]) -> None:
    if not all(_is_prose(statement) or isinstance(statement, ast.Pass) for statement in function.body):
        first = 1 if ast.get_docstring(function, clean=False) is not None else 0
        function.body[first:] = _marked_list(function.body[first:], sizes)


def _marked_list(body: list[ast.stmt], sizes: list[int]) -> list[ast.stmt]:
    """The statements of a branch, with a mark before the first and after each that may end elsewhere."""
    out: list[ast.stmt] = []
    here = -1
    for statement in body:
        if here < 0:
            sizes.append(0)
            here = len(sizes)  # the first mark is that of the module
            out.append(_mark(here, statement))
        sizes[here - 1] += 1
        out.append(statement)
        if isinstance(statement, FUNCTIONS):
            _mark_function(statement, sizes)
        elif isinstance(statement, ast.ClassDef):
            sizes[here - 1] += _mark_definitions(statement.body, sizes)
        else:
            branches = list(_lists_of(statement))
            for inner in branches:
                inner[:] = _marked_list(inner, sizes)
            here = -1 if branches else here
    return out


def _lists_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The lists of statements inside one."""
    for name in LISTS:
        inner = getattr(statement, name, None)
        if inner:
            yield inner
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _mark(number: int, before: ast.stmt) -> ast.stmt:
    found = ast.parse(f"{NAME}[{number}] = 1").body[0]
    for node in ast.walk(found):
        ast.copy_location(node, before)
    return found


def _is_prose(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_for_types(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def compiled(path: Path) -> Marked:
    """A module with marks, from the disk if it was compiled before."""
    source = path.read_bytes()
    words = (sys.implementation.cache_tag, str(path), OWN, source)
    key = hashlib.sha256(repr(words).encode()).hexdigest()
    file = KEPT / key[:32]
    try:
        return Marked(*marshal.loads(file.read_bytes()))
    except (OSError, EOFError, ValueError, TypeError):
        found = marked(source, str(path))
    try:
        KEPT.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(marshal.dumps(tuple(found)))
        part.replace(file)
    except OSError:
        pass  # it is compiled again, by the next process
    return found


class Loader(SourceFileLoader):
    """Loads a module with marks."""

    def exec_module(self, module: ModuleType) -> None:
        found = compiled(Path(self.path))
        hits = HITS.setdefault(_place(Path(self.path)), bytearray(len(found.sizes)))
        hits[0] = 1
        module.__dict__[NAME] = hits
        exec(found.code, module.__dict__)


class Finder(MetaPathFinder):
    """Finds natgrad's modules, and has `Loader` load them."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.split(".")[0] != "natgrad" or fullname.startswith("natgrad.kernels"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin and Path(spec.origin).is_relative_to(SOURCE):
            spec.loader = Loader(fullname, spec.origin)
        return spec


HITS: dict[str, bytearray] = {}
ON = os.environ.get("NATGRAD_COVERAGE") == "1"
if ON and not any(isinstance(finder, Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, Finder())


def _place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def add(hits: dict[str, bytes]) -> None:
    """What another process has run."""
    for name, theirs in hits.items():
        ours = HITS.setdefault(name, bytearray(len(theirs)))
        for number, hit in enumerate(theirs):
            ours[number] |= hit


def table() -> list[str]:
    """Statements and how many of them were run: of each folder, of the files with the most that were not, and of all."""
    files: dict[str, tuple[int, int]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = _place(path)
        if name.startswith("kernels/"):
            continue
        sizes = compiled(path).sizes
        hits = HITS.get(name, bytes(len(sizes)))
        files[name] = sum(sizes), sum(size for size, hit in zip(sizes, hits, strict=True) if hit)
    folders: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, (n, run) in files.items():
        folder = name.split("/")[0] if "/" in name else "natgrad"
        folders[folder] = folders[folder][0] + n, folders[folder][1] + run
    folders["all"] = (sum(n for n, _ in files.values()), sum(run for _, run in files.values()))
    lines = [f"{'statements':>24} {'not run':>8} {'run':>7}"]
    lines += [_row(name, n, run) for name, (n, run) in folders.items()]
    worst = sorted(files.items(), key=lambda item: item[1][1] - item[1][0])[:WORST]
    lines += ["", "the files with the most statements that were not run"]
    lines += [f"{n - run:6d} of {n:4d}  {name}" for name, (n, run) in worst if run < n]
    return lines


def _row(name: str, n: int, run: int) -> str:
    return f"{name:<12} {n:11,d} {n - run:8,d} {run / max(n, 1):7.1%}"


# -- what pytest calls --


def pytest_sessionfinish(session: Any) -> None:
    """A worker hands over what it has run."""
    output = getattr(session.config, "workeroutput", None)
    if ON and output is not None:
        output["natgrad_hits"] = {name: bytes(hits) for name, hits in HITS.items()}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if ON:
        terminalreporter.section("statements that the tests ran")
        for line in table():
            terminalreporter.write_line(line)


class FromWorkers:
    """Registered where workers exist."""

    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        add(getattr(node, "workeroutput", {}).get("natgrad_hits", {}))


def pytest_configure(config: Any) -> None:
    if ON and config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FromWorkers())
