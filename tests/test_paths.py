"""The five paths, with the very commands of the page, in an environment that has nothing but the installed wheel (slow)."""

import os
import re
import subprocess
import venv

import numpy as np
import pytest
from test_docs import DOCS, blocks
from test_package import built, told  # noqa: F401  # a fixture

PAGE = DOCS / "paths.md"


def ways():
    """Python and commands under each heading, in order; the imports at the top belong to all."""
    text = PAGE.read_text()
    code: dict[str, list[str]] = {}
    for block in blocks(PAGE):
        code.setdefault(block.heading, []).append(block.code)
    first = code.pop("Five paths")
    found = {}
    for heading, part in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S):
        commands = re.findall(r"^    (natgrad .+)$", part, flags=re.M)
        found[heading] = "\n".join([*first, *code[heading]]) if heading in code else None, commands
    return found


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "environment", with_pip=True)
    told(folder / "environment" / "bin" / "python", "-m", "pip", "install", "--quiet", built[0])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("heading", list(ways()))
def test_a_path(environment, heading):
    code, commands = ways()[heading]
    assert code or commands
    _write_letters(environment)
    run = {**os.environ, "PATH": f"{environment / 'environment' / 'bin'}:{os.environ['PATH']}"}
    run.pop("PYTHONPATH", None)
    if code:
        told("python", "-c", code, cwd=environment, env=run)
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=environment, env=run, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_every_path_of_the_page_has_code_or_commands():
    assert ways()
    assert all(code or commands for code, commands in ways().values())


def _write_letters(folder):
    rng = np.random.default_rng(0)
    themes = [["sea", "wave", "sail", "tide", "boat"], ["bread", "oven", "flour", "salt", "yeast"]]
    for name, n in (("letters", 40), ("new-letters", 5)):
        (folder / name).mkdir(exist_ok=True)
        for i in range(n):
            (folder / name / f"{i:02}.txt").write_text(" ".join(rng.choice(themes[i % 2], 30)))
