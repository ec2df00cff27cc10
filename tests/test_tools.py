"""What the tools of the house count."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def test_lines_of_code_are_counted_without_prose():
    spec = importlib.util.spec_from_file_location("lines", ROOT / "tools" / "lines.py")
    lines = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lines)
    assert lines.code_lines(TEXT) == 3 + 1 + 2
