"""The demo in small: its data, its runs, its verdict and its picture."""

import numpy as np
import pytest
from cli.calls import call

import natgrad as ng
from natgrad.data.datasets.generated import paper_ratings
from natgrad.reproduce import pitfall
from natgrad.reproduce.paquet_runs import declare
from natgrad.reproduce.pitfall import SIZES, Curve, plot_pitfall


@pytest.fixture(scope="module")
def small():
    """A quarter of the demo's ratings, a short budget, and only the runs that the verdict is about."""
    data = paper_ratings(100, 60, 2500)
    network = declare(data)
    runs = [run for run in pitfall.plan_runs(data, budget=2, sweeps=5) if run.size in ("all", "1")]
    return network, runs, pitfall.run_all(network, runs)


def test_ratings_are_stars_with_uneven_degrees():
    data = paper_ratings(*SIZES, seed=1)
    assert set(np.unique(data.values)) == {1, 2, 3, 4, 5}
    pairs = data.users.astype(int) * data.n_items + data.items
    assert len(np.unique(pairs)) == len(pairs) == 10_000
    for who, size in ((data.users, data.n_users), (data.items, data.n_items)):
        degree = np.bincount(who, minlength=size)
        assert degree.min() > 0
        assert degree.max() > 5 * degree.min()
    assert data.values.mean() > 3  # not centred: it is what makes the textbook step diverge early


def test_runs_have_the_same_budget():
    data = paper_ratings(*SIZES)
    runs = pitfall.plan_runs(data)
    sampled = [run for run in runs if run.option]
    assert {run.option for run in sampled} == {"a", "b"}
    assert len(sampled) == 2 * len([run for run in sampled if run.step is not None])
    for run in sampled:
        if isinstance(run.method, ng.Children):
            read = run.steps * run.method.C * (data.n_users + data.n_items) / (2 * len(data.values))
        else:
            read = run.steps * run.method.size / len(data.values)
        assert read == pytest.approx(pitfall.BUDGET, rel=0.02)


def test_textbook_diverges_and_default_does_not(small):
    _, runs, fits = small
    assert pitfall.verdict(runs, fits) == []
    lost = {(run.name, run.option): fit.stop.diverged for run, fit in zip(runs, fits, strict=True)}
    assert lost == {
        ("full VB", ""): False,
        ("textbook", "a"): True,
        ("textbook", "b"): True,
        ("default", "a"): False,
        ("default", "b"): False,
    }


def test_verdict_names_what_was_not_seen(small):
    _, runs, fits = small
    swapped = [fits[0], fits[3], fits[4], fits[1], fits[2]]
    complaints = pitfall.verdict(runs, swapped)
    assert [line.split(",")[0] for line in complaints] == ["textbook", "textbook", "default", "default"]
    assert "expected to diverge" in complaints[0]
    assert "above its start" in complaints[2]


def test_picture_is_drawn_with_and_without_steps_before_the_end(small, tmp_path):
    network, runs, fits = small
    lines, best = pitfall.curves(runs, fits)
    assert best == max(fit.trace["elbo"].max() for fit in fits if not fit.stop.diverged)
    assert lines[0].sweeps.tolist() == [1, 2, 3, 4, 5]
    at_once = Curve("lost at the first step", ("a",), np.empty(0), np.empty(0), diverged=True, colour="tab:red")
    path = plot_pitfall(
        [*lines, at_once], start=pitfall.start_bound(network), reference=best, path=tmp_path / "pitfall.png"
    )
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 150_000


@pytest.mark.parametrize(("wrong", "code"), [([], 0), (["something else happened"], 1)])
def test_exit_code_is_the_verdict(wrong, code, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(pitfall, "_show_pitfall", lambda console, data, path: wrong)
    monkeypatch.setattr(pitfall, "SIZES", (20, 15, 100))
    assert pitfall.show_demo(tmp_path / "demo.png", tmp_path / "demo.html") == code
    assert ("not as claimed: something else happened" in capsys.readouterr().out) == bool(wrong)
    assert "20" in (tmp_path / "demo.html").read_text()


def test_missing_folder_is_said_before_anything_runs(tmp_path):
    result = call("demo", "--plot", tmp_path / "nowhere" / "pitfall.png")
    assert result.exit_code == 1
    assert "--plot: there is no folder" in result.output


@pytest.mark.slow
def test_whole_demo(tmp_path, capsys):
    assert pitfall.show_demo(tmp_path / "demo.png", tmp_path / "demo.html") == 0
    text = capsys.readouterr().out
    assert "diverged, step 2" in text
    assert (tmp_path / "pitfall.png").stat().st_size < 150_000
    assert (tmp_path / "demo.html").stat().st_size < 500_000
