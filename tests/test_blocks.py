"""The marks that say which statements the tests ran: they must tell what ran, and change nothing."""

import linecache
import traceback

import blocks
import pytest

TEXT = '''"""Prose."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nothing


def f(x):
    """Prose."""
    if x > 0:
        y = 1
        return y
    for z in range(x + 2):
        if z == 1:
            break
    else:
        return "never left early"
    try:
        raise ValueError(x)
    except ValueError as error:
        return error
    finally:
        x = None


class A:
    b = 1

    def g(self):
        return __name__
'''


@pytest.fixture
def run():
    found = blocks.marked(TEXT.encode(), "text.py")
    names = {"__name__": "text", blocks.NAME: bytearray(len(found.sizes))}
    exec(found.code, names)
    return found.sizes, names


def count(sizes, names):
    return sum(size for size, hit in zip(sizes, names[blocks.NAME], strict=True) if hit)


def test_every_statement_belongs_to_one_mark(run):
    sizes, _ = run
    # import, f, A, b, g; of f 2 + 1 of the first branch, …, and of g one.
    assert sizes[0] == 5
    assert sum(sizes[1:]) == (1 + 2) + (1 + 1 + 1 + 1) + (1 + 1 + 1 + 1) + 1


def test_what_ran_is_marked_and_nothing_else(run):
    sizes, names = run
    assert count(sizes, names) == 0  # the mark of the module is its loader's
    assert names["f"](1) == 1
    assert count(sizes, names) == 3
    assert isinstance(names["f"](0), ValueError)
    assert count(sizes, names) == 3 + 3 + 4
    assert names["f"](-1) == "never left early"
    assert count(sizes, names) == 3 + 4 + 4
    assert names["A"]().g() == "text"
    assert count(sizes, names) == sum(sizes[1:])


def test_lines_of_errors_stay_where_they_were(run):
    _, names = run
    error = names["f"](0)
    (frame,) = traceback.extract_tb(error.__traceback__)
    linecache.clearcache()
    assert TEXT.splitlines()[frame.lineno - 1].strip() == "raise ValueError(x)"


def test_what_workers_ran_is_added(monkeypatch):
    monkeypatch.setattr(blocks, "HITS", {"a.py": bytearray([1, 0, 0])})
    blocks.add({"a.py": bytes([0, 0, 1]), "b.py": bytes([1])})
    assert {"a.py": bytearray([1, 0, 1]), "b.py": bytearray([1])} == blocks.HITS
