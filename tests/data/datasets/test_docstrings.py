"""The corpus of docstrings: parsed and not imported, no text twice, the same order every time."""

import pytest

from natgrad.data import load_docstrings

LONG = "one two three four five six seven eight nine ten {}"


@pytest.fixture
def tree(tmp_path):
    """Two packages and a module: nested definitions, a copy, a short text, a broken file, tests, a module that must not run."""
    files = {
        "alpha/__init__.py": f'"""{LONG.format("alpha")}"""\nraise SystemExit("imported!")\n',
        "alpha/deep/inner.py": (
            f'class A:\n    """{LONG.format("class")}"""\n    def f(self):\n        """{LONG.format("method")}"""\n'
            f'async def g():\n    r"""{LONG.format("escape")} \\d"""\n    def h():\n        """{LONG.format("local")}"""\n'
        ),
        "beta/copy.py": f'"""{LONG.format("class")}"""\ndef s():\n    """too short"""\n',
        "beta/broken.py": "def f(:\n",
        "beta/tests/test_it.py": f'"""{LONG.format("test")}"""\n',
        "gamma.py": f'"""{LONG.format("gamma")}"""\nx = "\\d"\n',
        "notes.txt": "no Python",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_definition_once(tree):
    found = load_docstrings(folders=[tree])
    assert sorted(text.split()[-1].strip("\\") for text in found.texts) == sorted(
        ["alpha", "class", "method", "d", "local", "gamma"]
    )
    assert found.unreadable == 1
    where = dict(zip(found.texts, found.names, strict=True))
    assert where[LONG.format("alpha")] == "alpha"
    assert where[LONG.format("method")] == "alpha.deep.inner.A.f"
    assert where[LONG.format("local")] == "alpha.deep.inner.g.h"
    assert where[LONG.format("class")] in ("alpha.deep.inner.A", "beta.copy")  # the copy that came first
    assert [name.partition(".")[0] for name in found.names] == found.packages


def test_limit_takes_the_first_of_the_same_order(tree):
    every = load_docstrings(limit=None, folders=[tree])
    for limit in range(1, len(every.texts) + 2):
        assert load_docstrings(limit, folders=[tree]).names == every.names[:limit]


def test_packages_and_lengths_are_chosen(tree):
    assert set(load_docstrings(packages=["alpha", "gamma"], folders=[tree]).packages) == {"alpha", "gamma"}
    assert "too short" in load_docstrings(min_words=0, folders=[tree]).texts


def test_mistakes_are_named(tree):
    with pytest.raises(ValueError, match="'delta', of which no source file"):
        load_docstrings(packages=["delta"], folders=[tree])
    with pytest.raises(TypeError, match=r"write \['alpha'\]"):
        load_docstrings(packages="alpha", folders=[tree])
    with pytest.raises(ValueError, match="limit must be a whole number ≥ 1"):
        load_docstrings(0, folders=[tree])
    with pytest.raises(FileNotFoundError, match="no folder"):
        load_docstrings(folders=[tree / "nowhere"])


def test_the_standard_library_has_real_text():
    found = load_docstrings(limit=60, packages=["email", "logging"])
    assert len(found.texts) == len(set(found.texts)) == 60


@pytest.mark.slow
def test_a_machine_has_tens_of_thousands_of_short_documents():
    found = load_docstrings(limit=20_000)
    assert len(found.texts) == 20_000
    assert len(set(found.packages)) > 50
