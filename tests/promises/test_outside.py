"""What users rely on outside this process: workers of Dask, the command as a shell sees it, a run that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from promises.cases import CASES
from promises.promises import answers, same

import natgrad as ng
from natgrad.posterior.files.checkpoints import checkpoints_in

# What the installed script `natgrad` does.
COMMAND = "import sys; sys.argv[0] = 'natgrad'; from natgrad.cli.main import main; sys.exit(main())"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(ng.__file__).parents[1])}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as made:
        yield made


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("family", "option"), [("Hidden Markov models", "PoissonHMM"), ("Topics", "LDA"), ("Ratings", 'noise="user"')]
)
def test_dask_gives_the_same_bits(family: str, option: str, cluster: Any) -> None:
    case = CASES[family][option]
    same(answers(case.fitted(), case), answers(case.fitted(executor=cluster), case))


def natgrad(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300, **options)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of two clusters, and the mixture that a command fitted to them."""
    folder = tmp_path_factory.mktemp("shell with a space")
    rows = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * (np.arange(60) % 2)[:, None]
    (folder / "rows.csv").write_text("\n".join(["x,y", *(f"{x:.3f},{y:.3f}" for x, y in rows), ""]))
    done = natgrad("fit", "mixture", "rows.csv", "-o", "m", "--n-components", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_command_fits_and_another_process_predicts(shell: Path) -> None:
    done = natgrad("predict", "m", "rows.csv", cwd=shell)
    assert done.returncode == 0, done.stderr
    found = [line.split(",") for line in done.stdout.splitlines()[1:]]
    model = ng.load(shell / "m")
    rows = np.loadtxt(shell / "rows.csv", delimiter=",", skiprows=1)
    assert len(found) == 60
    places = [k for k, column in enumerate(zip(*found, strict=True)) if column[0] in "01"]
    assert any([int(line[k]) for line in found] == model.predict(rows).tolist() for k in places), done.stdout[:200]


def test_a_mistake_is_one_line_and_exit_code_one(shell: Path) -> None:
    done = natgrad("predict", "m", "nowhere.csv", cwd=shell)
    assert done.returncode == 1
    assert "nowhere.csv" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""


def test_a_reader_that_closes_the_pipe_ends_a_command_quietly(shell: Path) -> None:
    words = f'"{sys.executable}" -c "{COMMAND}" predict m rows.csv | head -n 1'
    done = subprocess.run(words, shell=True, cwd=shell, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


RUN = """
import sys
import numpy as np
import natgrad as ng

counts = np.random.default_rng(0).poisson(0.3, size=(2000, 200))
ng.LDA(10, inference="vb", max_passes=int(sys.argv[2]), tol=0).fit(counts, checkpoint=sys.argv[1], every=1, resume=True)
"""


def test_a_run_that_was_killed_goes_on_bit_by_bit(tmp_path: Path) -> None:
    """SIGKILL as soon as there is a checkpoint of the run, which would go on for minutes."""
    process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path / "c"), "100000"], env=ENVIRONMENT)
    while not checkpoints_in(tmp_path / "c"):
        assert process.poll() is None, "the run ended before it kept anything"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    counts = np.random.default_rng(0).poisson(0.3, size=(2000, 200))
    steps = int(checkpoints_in(tmp_path / "c")[-1].stem.split("-")[-1])

    def stop(progress):
        return progress.t >= steps + 2

    model = ng.LDA(10, inference="vb", max_passes=100_000, tol=0)
    resumed = model.fit(counts, checkpoint=tmp_path / "c", resume=True, callbacks=[stop])
    whole = ng.LDA(10, inference="vb", max_passes=100_000, tol=0).fit(counts, callbacks=[stop])
    np.testing.assert_array_equal(resumed.components_, whole.components_)
