"""Fits that go on: after a signal, from a folder of checkpoints, from a model file."""

import os
import signal

import numpy as np
from adversary.watch import watching
from cli.calls import call, one_line, right

import natgrad as ng

WORDS = ("fit", "lda", "letters", "--n-topics", 2, "--inference", "vb", "--max-passes", 6, "--tol", 0)


def ctrl_c(trace):
    if len(trace) == 3:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_fit_goes_on_with_resume(workspace):
    kept = (*WORDS, "-o", "m", "--checkpoint", "kept", "--every", 2, "--doc-prior", "learn")
    with watching(ctrl_c):
        said = one_line(call(*kept), 130)
    assert "the same command with --resume goes on" in said
    right(*WORDS, "-o", "whole", "--doc-prior", "learn")
    right(*kept, "--resume")
    np.testing.assert_array_equal(ng.load(workspace / "m").components_, ng.load(workspace / "whole").components_)
    assert "--force replaces it" in one_line(call(*kept, "--resume"))
    assert "another run" in one_line(call(*kept, "--resume", "--force", "--seed", 3))


def test_ratings_that_a_model_keeps_are_not_given_again(workspace):
    right("fit", "mf", "ratings.csv", "-o", "model", "--n-factors", 2, "--max-steps", 3)
    before = (workspace / "model").read_bytes()
    said = one_line(call("continue", "model", "ratings.csv", "-o", "new"), code=2)
    assert "natgrad fit mf ratings.csv -o new" in said
    assert (workspace / "model").read_bytes() == before
    right("continue", "model", "-o", "new")


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


def test_what_is_known_of_users_is_read_from_a_file(workspace):
    rng = np.random.default_rng(0)
    rows = [f"u{u},i{i},{rng.normal():.3f}" for u in range(8) for i in range(6) if (u + i) % 3]
    (workspace / "r.csv").write_text("\n".join(["user,item,value", *rows]) + "\n")
    (workspace / "u.csv").write_text("\n".join(["who,age", *(f"u{u},{u % 3}" for u in range(9))]) + "\n")
    words = ("fit", "mf", "r.csv", "--n-factors", 2, "--tol", 0, "--user-features", "u.csv")
    right(*words, "--max-steps", 6, "-o", "whole")
    kept = (*words, "-o", "again", "--checkpoint", "kept")
    right(*kept, "--max-steps", 3)
    right(*kept, "--max-steps", 6, "--resume", "--force")
    assert ng.load("again").elbo_ == ng.load("whole").elbo_
    model = ng.load("whole")
    assert len(model.ratings_.user_ids) == 9  # one who is known and has not rated
    known = ng.MatrixFactorization(2, tol=0, max_steps=6, verbose=False).fit(
        ng.data.read_ratings("r.csv"), user_features={f"u{u}": [u % 3] for u in range(9)}
    )
    np.testing.assert_array_equal(model.user_factors_, known.user_factors_)
    (workspace / "v.csv").write_text("who,age\nx,1\n")
    said = one_line(call("fit", "mf", "r.csv", "-o", "n", "--user-features", "v.csv"))
    assert "--user-features v.csv: no id of its first column 'who' ('x', …)" in said
    (workspace / "v.csv").write_text("who,age\nu1,1\nu1,2\n")
    assert "'u1' is there 2 times" in one_line(call("fit", "mf", "r.csv", "-o", "n", "--user-features", "v.csv"))
    (workspace / "v.csv").write_text("who\nu1\n")
    assert "has one column" in one_line(call("fit", "mf", "r.csv", "-o", "n", "--item-features", "v.csv"))
