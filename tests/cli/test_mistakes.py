"""The command line: mistakes are one helpful line."""

import pytest
from cli.calls import call, one_line, right


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "lda", "nowhere", "-o", "m"), "nowhere: there is no such file or folder (looked for /"),
        (("fit", "mf", "nowhere.csv", "-o", "m"), "there is no such file of ratings"),
        (("fit", "lda", "ratings.csv", "-o", "m"), "which column has the texts? It has 'user', 'item', 'rating'"),
        (
            ("fit", "lda", "ratings.csv", "-o", "m", "--column", "itm"),
            "no column 'itm'; it has 'user', 'item', 'rating'; did",
        ),
        (("fit", "lda", "letters", "-o", "no/m"), "there is no folder no"),
        (("fit", "lda", "letters", "-o", "ratings.csv"), "--force replaces it"),
        (
            ("fit", "lda", "letters", "-o", "m", "--pattern", "*.md"),
            "there are no files '*.md' in this folder; it has 00.txt",
        ),
        (("fit", "lda", "letters", "-o", "m", "--min-documents", "31"), "no words are left of 30 documents"),
        (("fit", "lda", "letters", "-o", "m", "--topic-prior", "-1"), "--topic-prior must be > 0, got -1"),
        (("topics", "nowhere"), "there is no such model"),
        (("fit", "gp", "nowhere.csv", "-o", "m"), "nowhere.csv: there is no such file"),
        (("fit", "hmm", "letters", "-o", "m"), "expected a file ending in .csv"),
        (("fit", "gp", "rows.csv", "-o", "m", "--target", "z"), "there is no column 'z'; it has 'x', 'y', 'kind'"),
        (("fit", "gp", "rows.csv", "-o", "m", "--target", "y"), "column 'kind' holds 'up', which is no number"),
        (("topics", "ratings.csv"), "ratings.csv"),
        (("report", "nowhere", "-o", "p.html"), "there is no such model"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_one(arguments, said, workspace):
    assert said in one_line(call(*arguments))
    assert not (workspace / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "lda", "letters"), "Missing option '-o'"),
        (("fit", "lda", "letters", "-o", "m", "--max-passes", "many"), "'many' is not a valid integer"),
        (("fit", "lda", "letters", "-o", "m", "--inference", "x"), "'x' is not one of 'gibbs', 'vb'"),
        (("fit", "nonsense", "letters"), "No such command 'nonsense'"),
        (("topics",), "Missing argument 'MODEL'"),
    ],
)
def test_calls_that_are_not_understood_have_exit_code_two(arguments, said, workspace):
    assert said in one_line(call(*arguments), code=2)


def test_model_of_another_kind_is_said(workspace):
    right("fit", "mf", "ratings.csv", "-o", "m", "--max-steps", 2)
    refused = one_line(call("topics", "m"))
    assert "topics is for LDA, " in refused
    assert "this is MatrixFactorization; it has natgrad predict and natgrad recommend" in refused
    assert "there is no user 'zoe'" in one_line(call("recommend", "m", "zoe"))
    (workspace / "bad.csv").write_text("user,what\nann,1\n")
    assert "cannot tell which column is the item among 'user', 'what'" in one_line(call("predict", "m", "bad.csv"))


def test_traceback_is_there_for_those_who_want_it(workspace, monkeypatch):
    monkeypatch.setenv("NATGRAD_TRACEBACK", "1")
    assert isinstance(call("topics", "nowhere").exception, FileNotFoundError)
