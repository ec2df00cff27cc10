"""The reproduction of the paper: its data, its files, its verdicts, its table, and the command from end to end."""

import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import natgrad as ng
from natgrad.cli import main as command
from natgrad.data.datasets.generated import paper_ratings
from natgrad.data.io.ratings import read_ratings
from natgrad.data.ratings import Ratings
from natgrad.reproduce import paquet, paquet_runs
from natgrad.reproduce.paquet_runs import Outcome, Setting, Shelf, Trial
from natgrad.reproduce.paquet_table import claims, markdown

# -- generated ratings --


@st.composite
def sizes(draw):
    n_users, n_items = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    return n_users, n_items, draw(st.integers(max(n_users, n_items), n_users * n_items))


@given(sizes(), st.integers(0, 3))
def test_generated_ratings_keep_their_promises(size, seed):
    n_users, n_items, n_ratings = size
    data = paper_ratings(n_users, n_items, n_ratings, seed=seed)
    assert len(data.values) == n_ratings
    assert len(set(zip(data.users.tolist(), data.items.tolist(), strict=True))) == n_ratings
    assert np.bincount(data.users, minlength=n_users).min() >= 1
    assert np.bincount(data.items, minlength=n_items).min() >= 1
    assert (data.n_users, data.n_items) == (n_users, n_items)
    assert set(data.values.tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    again = paper_ratings(n_users, n_items, n_ratings, seed=seed)
    np.testing.assert_array_equal(again.values, data.values)
    np.testing.assert_array_equal(again.items, data.items)


def test_generated_degrees_are_uneven_and_ratings_not_centred():
    data = paper_ratings(400, 1300, 20_000)
    users, items = np.bincount(data.users), np.bincount(data.items)
    assert users.max() > 20 * np.median(users) / 2
    assert items.max() > 20 * np.median(items)
    assert 3.2 < data.values.mean() < 4.0
    assert set(data.values.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}


@pytest.mark.parametrize("n_ratings", [0, 9, 51])
def test_sizes_that_cannot_be_are_refused(n_ratings):
    with pytest.raises(ValueError, match=rf"n_ratings must lie between .* \(10, .*\(50\), got {n_ratings}"):
        paper_ratings(5, 10, n_ratings)


# -- files --

LINES = [("7", "40", "3"), ("7", "50", "4.5"), ("9", "40", "1")]
TEXTS = {
    "comma": "\n".join(",".join(line) for line in LINES),
    "header": "userId,movieId,rating,timestamp\n" + "\n".join(",".join(line) + ",99" for line in LINES) + "\n",
    "other order": "rating;item_id;user_id\n" + "\n".join(";".join(reversed(line)) for line in LINES),
    "other names": "member,film,stars\n" + "\n".join(",".join(line) for line in LINES),
    "movielens": "\n".join("::".join(line) + "::978300760" for line in LINES),
    "tabs and blank lines": "\n\n".join("\t".join(line) for line in LINES) + "\n\n",
    "windows": "\ufeffuser,item,rating\r\n" + "\r\n".join(",".join(line) for line in LINES),
    "quoted": '"user","item","rating"\n' + "\n".join(",".join(f'"{field}"' for field in line) for line in LINES),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_files_are_read(name, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(TEXTS[name], encoding="utf-8", newline="")
    data = read_ratings(path)
    np.testing.assert_array_equal(data.values, [3, 4.5, 1])
    assert (data.n_users, data.n_items) == (2, 2)


def test_names_are_identifiers_too(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("ann,up,3\nbob,up,4\nann,jaws,5\n")
    data = read_ratings(path)
    assert (data.n_users, data.n_items) == (2, 2)


WRONG_TEXTS = {
    "1,2,3\n1,3,bad\n": r"line 2, column 3: the rating must be a finite number, got 'bad'",
    "1,2,bad\n": r"line 1, column 3: the rating must be a finite number, got 'bad'",
    "1,2,nan\n": r"line 1, column 3: the rating must be a finite number, got 'nan'",
    "1,2,3\n1,3\n": r"line 2: 2 columns, but at least 3 are needed; expected lines of user,item,rating",
    "1,2,3\n,3,4\n": r"line 2, column 1: the user is empty",
    "5,6,1\n1,2,3\n\n1,2,4\n": r"line 4: user 1 rates item 2 a second time, after line 2 \(1 such\)",
    "who,film,stars given\n1,2,3\n": r"line 1: cannot tell which column is the user or the value among",
    "1,2,1_0\n": r"line 1, column 3: the rating must be a finite number, got '1_0'",
    "hello\n": r"line 1: no separator in 'hello'; expected lines of user,item,rating",
    "": r"there are no ratings in it; expected",
    "user,item,rating\n": r"there are no ratings in it; expected",
}


@pytest.mark.parametrize("text", WRONG_TEXTS)
def test_wrong_text_is_said_with_its_place(text, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"ratings.csv(, |: ){WRONG_TEXTS[text]}"):
        read_ratings(path)


def test_other_files_are_said(tmp_path):
    (tmp_path / "no.csv").write_bytes(b"1,2,3\n\xff\xfe")
    with pytest.raises(ValueError, match=r"line 2: not a text in UTF-8: byte 6 is 0xff"):
        read_ratings(tmp_path / "no.csv")
    with pytest.raises(ValueError, match=r"cannot be read \(No such file"):
        read_ratings(tmp_path / "nowhere.csv")


# -- verdicts and the table --

PRIOR = -50.0


def outcome(*bound, diverged=False):
    return Outcome(10.0 * np.arange(len(bound)), np.array(bound, dtype=float), diverged, "made up", 0.1)


RUNS = {
    "guard": outcome(-100, diverged=True),
    "below": outcome(-100, -1e9, -200),
    "short": outcome(-100, -90, -70),
    "dip": outcome(-100, -1e6, -30, -20),
    "calm": outcome(-100, -60, -10),
    "shallow": outcome(-100, -150, -10),
}


@pytest.mark.parametrize(
    ("name", "word", "calm"),
    [
        ("guard", "diverged", False),
        ("below", "diverged", False),
        ("short", "unfinished", True),
        ("dip", "converged", False),
        ("calm", "converged", True),
        ("shallow", "converged", True),
    ],
)
def test_verdict(name, word, calm):
    assert paquet.verdict(RUNS[name], PRIOR) == word
    assert paquet.steady(RUNS[name]) == calm


def test_scan_halves_until_a_run_is_steady():
    trial = Trial(Setting(1, "a", 1), 0, 1.0, 0)
    assert paquet.following(trial, RUNS["guard"], 3).first == 0.5
    assert paquet.following(trial, RUNS["dip"], 3).halvings == 1
    assert paquet.following(trial, RUNS["calm"], 3) is None
    assert paquet.following(trial, RUNS["short"], 3) is None
    assert paquet.following(replace(trial, halvings=3), RUNS["guard"], 3) is None
    assert paquet.following(Trial(Setting(0), 0, 1.0, 0), RUNS["guard"], 3) is None


def made_up(as_in_the_paper):
    """Findings that agree with every statement of the paper, or with none."""
    lists = {
        Setting(0): ["calm"],
        Setting(1, "a", 1): ["guard"] * 7 + ["dip"] * 2 + ["calm"] if as_in_the_paper else ["calm"],
        Setting(1, "b", 1): ["below"] * 6 + ["calm"] if as_in_the_paper else ["calm"],
        Setting(1, "a", 20): ["calm"] if as_in_the_paper else ["guard"] * 3,
        Setting(1, "b", 20): ["calm"],
        Setting(2, "a", 100): ["dip", "calm"] if as_in_the_paper else ["guard", "calm"],
        Setting(2, "b", 100): ["guard"] * 5 + ["calm"] if as_in_the_paper else ["calm"],
        Setting(2, "b", 200): ["guard"] * 6 + ["calm"] if as_in_the_paper else ["calm"],
    }
    runs = {Trial(s, j, 1.0, 0): RUNS[name] for s, names in lists.items() for j, name in enumerate(names)}
    return paquet.findings(runs, PRIOR)


def test_findings_name_the_largest_first_step():
    found = made_up(True)
    first = found[Setting(1, "a", 1)]
    assert (first.largest, first.steady) == (7, 9)
    assert first.tuned is RUNS["dip"]
    lost = made_up(False)[Setting(1, "a", 20)]
    assert (lost.largest, lost.steady, lost.tuned) == (None, None, None)


@pytest.mark.parametrize("same", [True, False])
def test_claims_compare_with_the_paper(same):
    seen = claims(made_up(same))
    assert len(seen) == 6
    assert [claim.same for claim in seen] == [same] * 6
    if same:
        assert seen[2].here == "1/128; without a fall 1/512"
        assert seen[5].here == "1/32 (1 of 2), 1/64 (1 of 2)"


def test_table_has_a_row_for_every_size():
    text = markdown(made_up(True), ["what was set"], PRIOR)
    assert "| 1 | diverged | 1/128 | 1/512 | -20 | diverged | 1/64 | 1/64 | -10 |" in text
    assert "| 20 | -10 | 1 | 1 | -10 | -10 | 1 | 1 | -10 |" in text
    assert "| 200 |  |  |  |  | diverged | 1/64 | 1/64 | -10 |" in text
    assert "- what was set" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| ")}
    assert widths == {5, 10}


# -- runs that are kept --

TINY = paquet.Plan(
    children=(1, 8), batches=(50, 10_000), children_sweeps=1, batch_sweeps=0.5, vb_sweeps=3, most_halvings=2
)


@pytest.fixture(scope="module")
def tiny():
    return paper_ratings(30, 40, 400)


@pytest.fixture(scope="module")
def problem(tiny):
    return paquet_runs.declare(tiny).problem


def test_prior_bound_is_the_bound_at_the_prior(tiny):
    # Two draws of u and v from the prior give an unbiased estimate of E[(r − u·v)²]; the closed form is their limit.
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, 200_000, paquet_runs.N_FACTORS))
    square = np.mean((tiny.values.mean() - (u * v).sum(1)) ** 2)
    assert square == pytest.approx(tiny.values.mean() ** 2 + 5, rel=0.02)  # standard error: 0.3 %
    expected = -0.5 * (np.log(2 * np.pi) * 400 + np.sum(tiny.values**2) + 5 * 400)
    assert paquet_runs.prior_bound(tiny) == pytest.approx(expected)


def test_outcome_starts_at_the_start_and_stays_within_its_accesses(problem):
    run = paquet_runs.compute(problem, Trial(Setting(1, "b", 8), 3, 2.0, 0))
    assert run.messages_read[0] == 0
    assert run.start == pytest.approx(problem.bound(paquet_runs.prior_draw(problem, 0)))
    assert np.isfinite(run.bound).all()
    assert (np.diff(run.messages_read) > 0).all()
    assert 2 * 4000 * 0.5 < run.messages_read[-1] < 2 * 4000 * 1.5
    assert not run.diverged


def test_full_vb_rises_from_the_same_start(problem):
    run = paquet_runs.compute(problem, Trial(Setting(0), 0, 3.0, 0))
    assert run.start == pytest.approx(problem.bound(paquet_runs.prior_draw(problem, 0)))
    np.testing.assert_array_equal(run.messages_read, [0, 4000, 8000, 12_000])
    assert (np.diff(run.bound) > 0).all()


def test_finished_runs_are_not_run_again(tiny, tmp_path, monkeypatch):
    first = paquet.run_experiment(tiny, TINY, tmp_path)
    assert {s.size for s in first} == {0, 1, 8, 50}  # no batch is larger than the data
    monkeypatch.setattr(paquet, "compute", lambda *_: pytest.fail("a finished run was run again"))
    seen = []
    second = paquet.run_experiment(tiny, TINY, tmp_path, watch=lambda *what: seen.append(what))
    assert list(second) == list(first)
    for setting, finding in first.items():
        for j, run in finding.runs.items():
            np.testing.assert_array_equal(second[setting].runs[j].bound, run.bound)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (7, 7)
    assert len(seen) == len(list(tmp_path.iterdir()))


def test_key_changes_with_whatever_changes_a_run(tiny, tmp_path, monkeypatch):
    trial = Trial(Setting(1, "a", 1), 0, 1.0, 0)
    shelf = Shelf(tmp_path, paquet_runs.fingerprint(tiny))
    paths = {shelf.path(trial)}
    paths |= {shelf.path(replace(trial, **{name: 2})) for name in ("halvings", "sweeps", "seed")}
    paths |= {shelf.path(replace(trial, setting=Setting(1, "b", 1)))}
    other = Ratings(tiny.users, tiny.items, 6 - tiny.values)
    paths |= {Shelf(tmp_path, paquet_runs.fingerprint(other)).path(trial)}
    monkeypatch.setattr(ng, "__version__", "another")
    paths |= {shelf.path(trial)}
    assert len(paths) == 7


def test_broken_file_is_run_again(tmp_path):
    shelf, trial = Shelf(tmp_path, "data"), Trial(Setting(1, "a", 1), 0, 1.0, 0)
    assert shelf.get(trial) is None
    shelf.put(trial, RUNS["dip"])
    np.testing.assert_array_equal(shelf.get(trial).bound, RUNS["dip"].bound)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    whole = shelf.path(trial).read_bytes()
    shelf.path(trial).write_bytes(whole[: len(whole) // 2])
    assert shelf.get(trial) is None


# -- the command --


def call(*arguments):
    return CliRunner().invoke(command.main, [str(argument) for argument in arguments])


def test_command_from_end_to_end(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(paquet, "QUICK", TINY)
    np.savetxt(tmp_path / "mine.csv", np.column_stack([tiny.users, tiny.items, tiny.values]), delimiter=",", fmt="%g")
    arguments = ("reproduce", "paquet", "--quick", "--ratings", tmp_path / "mine.csv", "--output", tmp_path / "out")
    result = call(*arguments, "--jobs", 1, "--seed", 1, "--no-progress")
    assert result.exit_code == 0, result.output
    text = re.sub(r"\s+", " ", result.output)
    assert "means drawn from the prior" in text
    assert "a sweep of full VB is 2·K·|R| = 4,000 of them" in text
    assert "Alg. 1 (a) from ρ₁ = 1" in text
    out = tmp_path / "out"
    for name in ("figure2.png", "figure2-tuned.png", "figure3.png", "figure3-tuned.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert (out / name).stat().st_size < 250_000
    assert "mine.csv, 30 users, 40 items, 400 ratings" in (out / "table.md").read_text()


@pytest.mark.parametrize("name", ["missing.csv", "wrong.csv"])
def test_wrong_file_is_one_line_and_exit_code_one(name, tmp_path):
    (tmp_path / "wrong.csv").write_text("user,item,rating\n1,2,x\n")
    result = call("reproduce", "paquet", "--ratings", tmp_path / name, "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
    assert ("line 2, column 3" in result.output) == (name == "wrong.csv")
    assert not (tmp_path / "out").exists()


def test_output_that_is_a_file_is_said(tiny, tmp_path):
    np.savetxt(tmp_path / "r.csv", np.column_stack([tiny.users, tiny.items, tiny.values]), delimiter=",", fmt="%g")
    result = call("reproduce", "paquet", "--ratings", tmp_path / "r.csv", "--output", tmp_path / "r.csv")
    assert result.exit_code == 1
    assert "cannot be made a folder" in result.output


def test_interrupted_call_says_how_to_go_on(tiny, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    np.savetxt(tmp_path / "r.csv", np.column_stack([tiny.users, tiny.items, tiny.values]), delimiter=",", fmt="%g")
    monkeypatch.setattr(paquet, "run_experiment", stop)
    result = call("reproduce", "paquet", "--ratings", tmp_path / "r.csv", "--output", tmp_path / "out")
    assert result.exit_code == 130
    assert "the same call goes on from there" in re.sub(r"\s+", " ", result.output)


@pytest.mark.parametrize("code", [0, 1])
def test_demo_command_passes_on_the_verdict(code, monkeypatch):
    from natgrad.reproduce import pitfall

    seen = []
    monkeypatch.setattr(pitfall, "show_demo", lambda *paths: seen.append([path.name for path in paths]) or code)
    assert call("demo", "--plot", "here.png").exit_code == code
    assert seen == [["here.png", "demo.html"]]
