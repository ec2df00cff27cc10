"""What is released: wheel and source distribution, built and installed in an environment of their own (slow)."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import natgrad as ng

ROOT = Path(__file__).resolve().parents[1]
FIRST = """
import numpy as np, natgrad as ng
x = ng.Normal("x", ng.Normal("mean", 0.0, 0.01), 1.0, plate=ng.Plate("n", 5), observed=np.arange(5.0))
fit = ng.Network(x).fit()
assert abs(fit["mean"].mean() - 2.0) < 0.01, fit["mean"].mean()
model = ng.GaussianMixture(2).fit(np.r_[np.zeros((9, 1)), np.ones((9, 1))])
fit.report("fit.html")
print(ng.__version__)
"""


def told(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Both distributions, made of a copy so that nothing is left in the repository."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    told(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.mark.slow
def test_distributions_hold_the_package_and_its_licence(built):
    wheel, source = built
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("natgrad/py.typed", "natgrad/report/assets/page.css"):
        assert wanted in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]
    metadata = next(name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    for field in (
        "Name: natgrad",
        f"Version: {ng.__version__}",
        "License-Expression: Apache-2.0",
        "Keywords:",
        "Project-URL:",
    ):
        assert field in text
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "src/natgrad/__init__.py",
        "tests/conftest.py",
    } <= inside


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0, 1], ids=["wheel", "sdist"])
def test_installs_and_works_in_a_clean_environment(built, kind, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    told(python, "-m", "pip", "install", "--quiet", built[kind], cwd=tmp_path)
    told(python, "-m", "pip", "check", cwd=tmp_path)
    assert told(python, "-c", FIRST, cwd=tmp_path) == ng.__version__
    assert told(environment / "bin" / "natgrad", "--version", cwd=tmp_path).endswith(ng.__version__)
    assert "Usage: natgrad" in told(environment / "bin" / "natgrad", "--help", cwd=tmp_path)
