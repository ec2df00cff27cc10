"""Fits that go on: what a folder of checkpoints may say, and what only the command line may."""

import json
import os
import signal

import numpy as np
import pytest
from adversary.watch import watching
from cli.calls import call, one_line, right

import natgrad as ng
from natgrad.cli.inputs import MODELS
from natgrad.cli.resume import as_words, kept_options

WORDS = ("fit", "lda", "letters", "--n-topics", 2, "--max-passes", 6, "--tol", 0)


def ctrl_c(trace):
    if len(trace) == 3:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def kept(workspace):
    """The folder of a fit that was interrupted."""
    with watching(ctrl_c):
        said = one_line(call(*WORDS, "-o", "m", "--checkpoint", "kept", "--every", 2, "--learn-priors", "doc"), 130)
    assert "natgrad resume kept letters -o m goes on" in said
    return workspace / "kept"


def refused(*arguments):
    """The last line of a call that was a mistake; the line before it may show what would be run."""
    result = call(*arguments)
    assert result.exit_code == 1, result.output
    return result.output.strip().splitlines()[-1]


def forge(folder, **options):
    """Other options in ``call.json``; everything else as it was."""
    path = folder / "call.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "options": {**found["options"], **options}}))


def test_an_interrupted_fit_goes_on_from_its_folder(kept, workspace):
    right(*WORDS, "-o", "whole", "--learn-priors", "doc")
    shown = right("resume", "kept", "letters", "-o", "m").stderr
    assert "natgrad fit lda letters" in shown
    assert "--n-topics=2" in shown
    np.testing.assert_array_equal(ng.load(workspace / "m").components_, ng.load(workspace / "whole").components_)
    assert "--force replaces it" in refused("resume", "kept", "letters", "-o", "m")
    assert "name the data and the output anew" in one_line(call("resume", "kept"), code=2)
    assert "name the data and the output anew" in one_line(call("resume", "kept", "letters"), code=2)


def test_a_folder_holds_settings_and_no_file_machine_or_callback(kept):
    found = json.loads((kept / "call.json").read_text())
    assert set(found) == {"layout", "model", "options", "data"}
    assert found["options"].keys() <= kept_options(MODELS["lda"]).keys()
    assert not {"executor", "output", "force", "report", "vocabulary", "file", "checkpoint"} & found["options"].keys()
    assert str(kept.parent) not in (kept / "call.json").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output": "victim"}, "'output', which it may not have"),
        ({"force": True}, "'force', which it may not have"),
        ({"executor": "tcp://192.0.2.1:8786"}, "'executor', which it may not have"),
        ({"report": "victim"}, "'report', which it may not have"),
        ({"vocabulary": "/etc/passwd"}, "'vocabulary', which it may not have"),
        ({"config": "victim"}, "'config', which it may not have"),
        ({"--force": True}, "'--force', which it may not have"),
        ({"n_topics": ["--force"]}, "not a value of it"),
        ({"n_topics": True}, "not a value of it"),
        ({"n_topics": 10**12}, "no such array"),
        ({"n_topics": "2 --force"}, "--n-topics must be a whole number"),
        ({"local": "--force"}, "--local"),
        ({"method": "__import__('os').system('true')"}, "method"),
        ({"pattern": "../*.txt"}, "leaves the folder"),
        ({"seed": 3}, "another run"),
    ],
)
def test_a_forged_call_is_refused(options, said, kept, workspace):
    (workspace / "victim").write_text("precious")
    before = {path.name for path in workspace.iterdir()}
    forge(kept, **options)
    result = call("resume", "kept", "letters", "-o", "new")
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert (workspace / "victim").read_text() == "precious"
    assert {path.name for path in workspace.iterdir()} == before


def test_a_call_of_an_older_version_is_not_run(kept, workspace):
    (workspace / "victim").write_text("precious")
    words = ["letters", "-o", "victim", "--force", "--executor", "tcp://192.0.2.1:8786"]
    (kept / "call.json").write_text(json.dumps({"model": "lda", "words": words, "folder": str(workspace)}))
    said = one_line(call("resume", "kept", "letters", "-o", "new"))
    assert "call natgrad fit again with --checkpoint kept --resume" in said
    assert (workspace / "victim").read_text() == "precious"
    (kept / "call.json").unlink()
    assert "has no call.json" in one_line(call("resume", "kept", "letters", "-o", "new"))


def test_other_data_are_refused(kept, workspace):
    (workspace / "letters" / "00.txt").write_text("flour butter oven harbour harbour harbour")
    assert "the data are not those of the run in kept" in refused("resume", "kept", "letters", "-o", "m")
    assert not (workspace / "m").exists()


def test_a_model_is_no_folder_and_data_are_not_ignored(workspace):
    right("fit", "mf", "ratings.csv", "-o", "model", "--n-factors", 2, "--max-steps", 3)
    before = (workspace / "model").read_bytes()
    assert "natgrad continue model ratings.csv -o NEW" in one_line(call("resume", "model", "ratings.csv"))
    said = one_line(call("continue", "model", "ratings.csv", "-o", "new"), code=2)
    assert "natgrad fit mf ratings.csv -o new" in said
    assert (workspace / "model").read_bytes() == before
    right("continue", "model", "-o", "new")
    assert "natgrad resume letters FILE -o OUT" in one_line(call("continue", "letters", "-o", "newer"))


@pytest.mark.parametrize("name", list(MODELS))
def test_every_option_that_is_kept_is_a_word_of_the_command_line(name):
    known = kept_options(MODELS[name])
    options = {key: True if option.secondary_opts else 1 for key, option in known.items()}
    for word in as_words(options, known):
        assert word.startswith("--")
        assert "executor" not in word


def test_ctrl_c_keeps_the_model_so_far(workspace):
    before = signal.getsignal(signal.SIGINT)
    with watching(ctrl_c):
        ended = call(*WORDS, "-o", "m")
    assert ended.exit_code == 130
    assert ended.stderr.strip().endswith(
        "interrupted: m is the model so far; natgrad continue m letters -o NEW goes on"
    )
    model = ng.load("m")
    assert len(model.trace_) == 3
    assert not model.stop_.converged
    assert "interrupted after step" in str(model.stop_)
    right("continue", "m", "letters", "-o", "longer")
    assert signal.getsignal(signal.SIGINT) is before


def test_asked_twice_it_ends_at_once(workspace):
    def impatient(trace):
        ctrl_c(trace)
        if len(trace) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with watching(impatient):
        assert one_line(call(*WORDS, "-o", "m"), 130) == "Error: interrupted, and nothing was written"
    assert not (workspace / "m").exists()


def test_what_is_known_of_users_is_read_from_a_file_and_named_anew(workspace):
    rng = np.random.default_rng(0)
    rows = [f"u{u},i{i},{rng.normal():.3f}" for u in range(8) for i in range(6) if (u + i) % 3]
    (workspace / "r.csv").write_text("\n".join(["user,item,value", *rows]) + "\n")
    (workspace / "u.csv").write_text("\n".join(["who,age", *(f"u{u},{u % 3}" for u in range(9))]) + "\n")
    words = ("fit", "mf", "r.csv", "--n-factors", 2, "--tol", 0, "--user-features", "u.csv")
    right(*words, "--max-steps", 6, "-o", "whole")
    right(*words, "--max-steps", 3, "-o", "half", "--checkpoint", "kept")
    forged = json.loads((workspace / "kept" / "call.json").read_text())
    assert "user_features" not in forged["options"]  # a folder names no file
    again = ("resume", "kept", "r.csv", "-o", "again")
    assert "the data are not those" in refused(*again)
    right(*again, "--user-features", "u.csv")
    model = ng.load("whole")
    assert len(model.ratings_.user_ids) == 9  # one who is known and has not rated
    known = ng.MatrixFactorization(2, tol=0, max_steps=6, verbose=False).fit(
        ng.data.read_ratings("r.csv"), user_features={f"u{u}": [u % 3] for u in range(9)}
    )
    np.testing.assert_array_equal(model.user_factors_, known.user_factors_)
    (workspace / "v.csv").write_text("who,age\nx,1\n")
    said = refused("fit", "mf", "r.csv", "-o", "n", "--user-features", "v.csv")
    assert "--user-features v.csv: no id of its first column 'who' ('x', …)" in said
    (workspace / "v.csv").write_text("who,age\nu1,1\nu1,2\n")
    assert "'u1' is there 2 times" in refused("fit", "mf", "r.csv", "-o", "n", "--user-features", "v.csv")
    (workspace / "v.csv").write_text("who\nu1\n")
    assert "has one column" in refused("fit", "mf", "r.csv", "-o", "n", "--item-features", "v.csv")
