"""The public surface: few names at the top, namespaces for the rest."""

import ast
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import natgrad as ng


def test_at_most_forty_names_are_what_most_programs_need() -> None:
    assert len(ng.__all__) == len(set(ng.__all__)) <= 40
    assert set(ng.__all__) <= set(dir(ng))


@pytest.mark.parametrize("package", [ng, ng.data], ids=["natgrad", "natgrad.data"])
def test_every_name_of_the_stub_resolves_to_what_its_home_has(package) -> None:
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    homes = {alias.name: (node.module, alias.asname) for node in stub.body[1:] for alias in node.names}
    assert set(homes) == set(dir(package)) >= set(package.__all__)
    for name, (home, shown) in homes.items():
        assert shown == name  # a stub shows nothing else to type checkers
        expected = import_module(f"{home}.{name}") if home == package.__name__ else getattr(import_module(home), name)
        assert getattr(package, name) is expected


def test_every_model_of_the_registry_is_a_public_name() -> None:
    from natgrad.models.registry import MODELS

    assert {name: getattr(ng, name).__module__ for name in MODELS} == MODELS
    assert set(MODELS) <= set(dir(ng))


def test_the_whole_language_resolves_at_the_top_and_in_its_namespace() -> None:
    for name in ng.language.__all__:
        assert getattr(ng, name) is getattr(ng.language, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'natgrad' has no attribute 'Nonsense'"):
        ng.Nonsense  # noqa: B018


def test_a_program_of_a_user_is_typed():
    """`make lint` checks tests/typed_user.py with mypy --strict; it uses every name at the top."""
    text = (Path(__file__).parent / "typed_user.py").read_text()
    assert [name for name in ng.__all__ if f"ng.{name}" not in text] == []


def test_a_second_program_uses_the_namespaces():
    text = (Path(__file__).parent / "typed_spaces.py").read_text()
    spaces = ("data", "inference", "language", "topics", "recommenders", "covariance", "families", "errors")
    names = [f"ng.{space}.{name}" for space in spaces for name in getattr(ng, space).__all__]
    assert [name for name in names if not re.search(rf"{re.escape(name)}\b", text)] == []
    assert "ignore" not in text


@pytest.mark.slow
def test_programs_of_users_pass_pyright():
    """Where it is installed: it brings Node.js along."""
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    programs = [Path(__file__).parent / name for name in ("typed_user.py", "typed_spaces.py")]
    done = subprocess.run(
        [pyright, "--pythonpath", sys.executable, *programs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["typed_user.py", "typed_spaces.py"])
def test_a_program_of_a_user_runs(name):
    program = Path(__file__).parent / name
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
