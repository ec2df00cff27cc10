"""What the house promises of itself: files and functions of a size that is read in one go, and a mixture that is small."""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "natgrad"
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_LINES_OF_THE_MIXTURE = 400, 60, 150


@pytest.fixture(scope="module")
def lines():
    spec = importlib.util.spec_from_file_location("lines", ROOT / "tools" / "lines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_file_is_too_long_to_read():
    long = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {name: size for name, size in long.items() if size > MOST_LINES} == {}


def test_no_function_is_too_long_to_read(lines):
    long = {}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        rows = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                body = rows[node.body[0].lineno - 1 : node.end_lineno]  # what is read in one go; a signature is a list
                code = lines.code_lines("def f():\n" + "\n".join(body)) - 1
                if code > MOST_LINES_OF_A_FUNCTION:
                    long[f"{path.relative_to(SOURCE)}: {node.name}"] = code
    assert long == {}


TEXT = '''"""Prose

of a module."""

# why
x = (
    1,  # one
)


def f():
    """Prose."""
    return """text
    of two lines"""
'''


def test_lines_of_code_are_counted_without_prose(lines):
    assert lines.code_lines(TEXT) == 3 + 1 + 2


def test_a_gaussian_mixture_adds_few_lines(lines):
    """All that is Gaussian: priors, what a fit is called, and what a file holds. `Mixture` takes any kind of component."""
    own = lines.code_lines((SOURCE / "models" / "mixture" / "estimator.py").read_text())
    assert own <= MOST_LINES_OF_THE_MIXTURE
    for path in (SOURCE / "models" / "mixture").glob("*.py"):
        if path.name != "estimator.py":
            names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
            assert not [name for name in names if "aussian" in name], f"{path.name} knows what a component is"
