"""The documentation is true: its Python runs, its tables are complete, the files and functions it names exist."""

import ast
import contextlib
import importlib.util
import io
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import natgrad as ng
from natgrad import threads
from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.steppers.sampled import StepInfo
from natgrad.inference.trace import StepRecord
from natgrad.network.results.fit import Fit

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MODELS = DOCS / "models.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
WIDEST = 72  # a line of code is read without scrolling on a desktop; on a phone it is wrapped (docs/assets/site.css)


class Block(NamedTuple):
    """A fenced block of Python, with the heading above it, the line of its fence, and the output that is shown below it."""

    heading: str
    line: int
    code: str
    shown: str | None = None


def blocks(page: Path) -> list[Block]:
    found, heading = [], ""
    fences = (
        r"^```python\n(?P<code>.*?)\n```$(?:\n+^```text\n(?P<shown>.*?)\n?```$)?|^```.*?^```$|^#+ (?P<heading>[^\n]*)$"
    )
    text = page.read_text()
    for match in re.finditer(fences, text, flags=re.MULTILINE | re.DOTALL):
        heading = match["heading"] or heading
        if match["code"] is not None:
            found.append(Block(heading, text.count("\n", 0, match.start()) + 1, match["code"], match["shown"]))
    return found


def run(page: Path, some: list[Block], names: dict[str, object]) -> None:
    """Execute blocks in one namespace; a traceback shows the line of the page. What is shown below a block is what it prints."""
    for block in some:
        code = compile("\n" * block.line + block.code, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        if block.shown is not None:
            assert_same_output(printed.getvalue(), block.shown)


def assert_same_output(printed: str, shown: str) -> None:
    """The same words, and numbers to two digits: the last ones differ between processors.

    Of draws one digit: a last digit of the fit that differs decides a rejection, and from there on all random numbers are others.
    """
    pattern = r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    assert re.sub(pattern, "0", printed).split() == re.sub(pattern, "0", shown).split(), printed
    numbers = [[float(n.replace("−", "-")) for n in re.findall(pattern, text)] for text in (printed, shown)]
    drawn = "(draws)" in shown
    np.testing.assert_allclose(*numbers, rtol=0.15 if drawn else 0.02, atol=0.1 if drawn else 1e-9, err_msg=printed)


def sections() -> list[str]:
    return [heading for heading in dict.fromkeys(b.heading for b in blocks(MODELS)) if heading != "Eight models"]


# Pages whose many small fits take NumPy's loops for a user; those of the others do here, too (tests/loops.py).
COMPILED = ("hmm.md", "lda.md", "scale.md", "sources.md")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p != MODELS and blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_python_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in COMPILED:
        monkeypatch.setattr(threads, "MOST", -1.0)
    run(page, blocks(page), {"__name__": "page"})


@pytest.mark.parametrize("section", sections())
def test_model_runs_and_its_bound_never_falls(section: str) -> None:
    page = blocks(MODELS)
    names: dict[str, object] = {}
    chosen = [b for b in page if b.heading in ("Eight models", section)]
    if section == "Fully factorised":  # shares the data of the section it belongs to
        chosen = [b for b in page if b.heading in ("Eight models", "Matrix factorisation")][:2] + chosen[1:]
    run(MODELS, chosen, names)
    fit = names["fit"]
    assert isinstance(fit, Fit)
    bounds = fit.trace["elbo"]
    bounds = bounds[np.isfinite(bounds)]  # memoised VB has none in its first pass
    assert len(bounds) > 1 or len(fit.problem.blocks) == 1  # one block that reads no other is exact after one sweep
    # Exact sweeps raise the bound; rounding of the sums is of the order 1e-12 of its size.
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds).max())
    assert fit.stop.converged, fit.stop
    assert bounds[-1] == pytest.approx(fit.elbo, rel=1e-9)


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.parent.name != "reference" and p.stem != "architecture"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_lines_of_code_are_short(page: Path) -> None:
    """But for generated help, and the drawing of the engine."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text := page.read_text(), flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(
        r"(?<=\n\n)((?: {4}.*\n)+)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    lines = [line for block in fenced for line in block.splitlines()]
    lines += [line[4:] for block in indented for line in block.splitlines()]
    assert not [line for line in lines if len(line) > WIDEST]


def test_the_reference_is_what_the_code_says() -> None:
    """`tools/reference.py` writes it: every public name with the place where it is defined, and the help of every command."""
    # Not by its name alone: the slow twins of the tests are called so, too.
    spec = importlib.util.spec_from_file_location("tools_reference", ROOT / "tools" / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    listed = {name.split(".")[-1] for names in reference.entries().values() for name in names}
    spaces = [
        getattr(ng, name) for name in ("data", "inference", "language", "topics", "covariance", "families", "errors")
    ]
    public = {*ng.__all__, *(name for space in spaces for name in space.__all__)}
    assert not public - listed - {space.__name__.split(".")[-1] for space in spaces}
    wrong = [name for name, text in reference.pages().items() if (DOCS / "reference" / name).read_text() != text]
    if version("click") < "8.2":  # which wraps help in another way
        wrong = [name for name in wrong if name != "commands.md"]
    assert not wrong, "run python tools/reference.py"


def test_every_field_of_a_record_is_in_the_notation_table() -> None:
    rows = [row.split("|") for row in (DOCS / "notation.md").read_text().splitlines() if row.startswith("|")]
    codes = {code for row in rows for code in re.findall(r"`(\w+)`", row[2])}
    for record in (State, StepInfo, StepRecord, BlockInfo):
        missing = set(record._fields) - codes
        assert not missing, f"{record.__name__}: {sorted(missing)} missing from docs/notation.md"


def test_files_and_names_of_the_architecture_page_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    source = ROOT / "src" / "natgrad"
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert (source / path).is_file() or (ROOT / path).is_file(), path
    rows = re.findall(r"^\|(?: \d+ \|)? `((?:\w+/)+\w+\.py)` \| `(\w+)` \|", text, flags=re.MULTILINE)
    assert rows
    for path, name in rows:
        tree = ast.parse((source / path).read_text())
        defined = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
        assert name in defined, f"{path} does not define {name}"


def test_every_node_is_in_the_table_of_the_language() -> None:
    from natgrad.network.language.nodes import Node

    text = (DOCS / "language.md").read_text()
    nodes = {name for name in ng.__all__ if isinstance(getattr(ng, name), type) and issubclass(getattr(ng, name), Node)}
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, flags=re.MULTILINE))
    assert nodes - set(rows) == set()
    for name in nodes:
        for slot in getattr(ng, name).slots_of:
            assert slot.name in rows[name], f"{name}: {slot.name} is missing from docs/language.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_benchmarks_that_are_listed_exist():
    listed = re.findall(r"`(?:python benchmarks/)?(\w+\.py)\b", (DOCS / "benchmarks.md").read_text())
    assert len(set(listed)) > 10
    for script in listed:
        assert (ROOT / "benchmarks" / script).is_file(), script


def programs() -> list[Path]:
    return sorted(
        path for folder in ("benchmarks", "examples", "docs", "tools") for path in (ROOT / folder).rglob("*.py")
    )


@pytest.mark.parametrize("program", programs(), ids=lambda p: str(p.relative_to(ROOT)))
def test_programs_beside_the_library_import_what_exists(program: Path) -> None:
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "natgrad":
            home = import_module(node.module)
            for alias in node.names:
                if not hasattr(home, alias.name):
                    import_module(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "natgrad":
                    import_module(alias.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ng":
            assert hasattr(ng, node.attr), f"line {node.lineno}: ng.{node.attr}"
