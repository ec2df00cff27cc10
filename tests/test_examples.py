"""The examples run, stay short, and recover what the tutorials say they recover. `make examples` renews what the pages show."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
TUTORIALS = ROOT / "docs" / "tutorials"


def run(name, figure):
    sys.path.append(str(ROOT / "examples"))  # as of a program that is started there
    spec = importlib.util.spec_from_file_location(name, EXAMPLES[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.main(str(figure))
    assert figure.stat().st_size > 5000
    return found


@pytest.fixture
def figure(tmp_path):
    return tmp_path / "figure.png"


def test_topics_predict_held_out_words_and_tell_packages_apart(figure, monkeypatch):
    """On texts made for it: what the installed packages say differs between machines."""
    rng = np.random.default_rng(0)
    packages = ["asyncio", "email", "jax", "matplotlib", "numpy", "scipy", "sklearn"]
    letters = np.array(list("abcdefghijklmnopqrst"))
    words = np.array(["".join(row) for row in rng.choice(letters, (400, 6))])
    laws = rng.dirichlet(np.full(len(words), 0.05), len(packages))
    whose = rng.integers(0, len(packages), 3000)
    texts = [" ".join(rng.choice(words, 25, p=0.7 * laws[k] + 0.3 / len(words))) for k in whose]
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    docstrings = importlib.import_module("generated.docstrings")
    monkeypatch.setattr(docstrings, "read_docstrings", lambda *_, **__: (texts, [packages[k] for k in whose]))
    ratio, gain = run("topics_of_text", figure)
    assert ratio < 0.6
    assert gain > 0.6


@pytest.mark.slow
def test_topics_of_what_is_installed(figure):
    ratio, gain = run("topics_of_text", figure)
    # The corpus is that of this machine, so these are far from what was seen: 0.55 and 0.45.
    assert ratio < 0.8
    assert gain > 0.15


@pytest.mark.slow
def test_ancestry_is_recovered(figure):
    assert run("ancestry", figure) < 0.1  # 0.35 for somebody who knows only the means; seen: 0.06


@pytest.mark.slow
def test_cell_types_and_markers_are_recovered(figure):
    error, recovered = run("cell_types", figure)
    assert error < 0.06  # seen: 0.04
    assert recovered > 0.85  # seen: 0.98


@pytest.mark.slow
def test_isotopes_are_found_and_false_alarms_are_as_rare_as_stated(figure):
    apart, false_alarms, detected = run("isotopes", figure)
    assert apart < 0.25  # seen: 0.15
    # 1 % stated; the threshold of 1,999 and the count of 4,000 both vary: a standard deviation of about 0.27 %.
    assert false_alarms < 0.01 + 3 * 0.0027
    assert detected > 0.75  # of sources with a tenth of the counts; seen: 0.87


@pytest.mark.slow
def test_chromatin_states_are_recovered(figure):
    right, off = run("chromatin", figure)
    assert right > 0.97  # seen: 0.996
    assert off < 0.05  # seen: 0.019


@pytest.mark.slow
def test_ratings_are_foreseen_with_honest_intervals(figure):
    error, plain, inside = run("ratings", figure)
    assert error < 0.93 * plain
    assert 0.85 < inside < 0.95


@pytest.mark.slow
def test_delays_are_found_far_below_their_noise(figure):
    error, straight, inside = run("flight_delays", figure)
    assert error < 0.8 * straight
    assert 0.85 < inside < 0.96


def test_a_network_of_your_own_beats_factories_that_stand_alone(figure):
    error, alone, inside = run("own_network", figure)
    assert error < 0.75 * alone
    assert inside >= 0.8


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_has_a_tutorial_with_its_output(name):
    assert len(EXAMPLES[name].read_text().splitlines()) < 60
    pages = [page for page in TUTORIALS.glob("*.md") if f'"examples/{name}.py"' in page.read_text()]
    assert len(pages) == 1
    assert f'"docs/tutorials/output/{name}.txt"' in pages[0].read_text()
    assert (TUTORIALS / "output" / f"{name}.txt").is_file()
    assert (ROOT / "docs" / "figures" / "examples" / f"{name}.png").stat().st_size < 100_000


@pytest.mark.slow
def test_a_path_is_found_between_wild_fixes(figure):
    raw, error = run("tracking", figure)
    assert error < 0.4 * raw  # seen: 0.87 of 3.60


@pytest.mark.slow
def test_regimes_are_told_apart(figure):
    right, angles = run("switching", figure)
    assert right > 0.94  # seen: 0.978
    np.testing.assert_allclose(angles, [0.15, 0.6], atol=0.05)


def test_the_level_of_the_nile(figure):
    exact, noise, moves = run("nile", figure)
    assert exact == pytest.approx(-641.5856, abs=1e-4)  # Kalman filters of other libraries, at the same variances
    assert 10_000 < noise < 20_000  # at the maximum of the likelihood: 15 099
    assert 300 < moves < 5_000  # 1 469


# -- notebooks and gallery --


def tool(name):
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_notebooks_are_the_programs(name):
    """`make notebooks` writes them: their code is that of the examples, and they hold the picture."""
    made = tool("notebooks")
    held = json.loads((made.NOTEBOOKS / f"{name}.ipynb").read_text())
    code = ["".join(cell["source"]) for cell in held["cells"] if cell["cell_type"] == "code"]
    assert code == made.cells_of(EXAMPLES[name].read_text()), "run make notebooks"
    outputs = [output for cell in held["cells"] for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any(output.get("name") == "stdout" for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_notebooks_run(name, tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    made = tool("notebooks")
    notebook = made.executed(made.notebook_of(name), tmp_path)
    kinds = {kind for cell in notebook.cells for out in cell.get("outputs", ()) for kind in out.get("data", {})}
    assert "image/png" in kinds


@pytest.mark.slow
def test_the_gallery_draws_every_model(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "figures" / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    monkeypatch.setattr(gallery, "FOLDER", tmp_path)
    gallery.main([])
    page = (ROOT / "docs" / "gallery.md").read_text()
    for name in gallery.DRAWN:
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
        assert f"figures/gallery/{name}.png" in page
    for name in EXAMPLES:
        assert f"notebooks/{name}.ipynb" in page
