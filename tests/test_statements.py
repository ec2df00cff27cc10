"""What the pages say of the length of models is what is in them, and never more than the shortest of others."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def statements():
    spec = importlib.util.spec_from_file_location("statements", ROOT / "benchmarks" / "statements.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_say_how_many_statements_there_are(statements):
    own, said = statements.ours(), statements.said()
    assert len(own) >= 60
    assert {title: said.get(title) for title in own} == own


def test_no_model_is_longer_than_the_shortest_of_others(statements):
    table = (ROOT / "benchmarks" / "results" / "statements.md").read_text()
    assert table in (ROOT / "docs" / "models-of-others-shapes.md").read_text()
    own, rows = statements.ours(), re.findall(r"^\| ([^|]+) \| (\d+) \| (.+) \|$", table, re.M)
    assert {title for title, *_ in rows} == set(statements.THEIRS)
    for title, number, others in rows:
        assert int(number) == own[title]
        assert int(number) <= min(int(other) for other in re.findall(r"(\d+) \(", others)), title


def test_counting(statements):
    import ast

    code = """
n = ng.Plate("n", 3)
a, b = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0)
sizes = len(data)
c = 2 * a
y = ng.Normal("y", c + b, 1.0, plate=n, observed=data)
fit = ng.Network(y).fit()
print(fit)
"""
    assert statements.counted(ast.parse(code).body, {"ng"}, "ng.Network") == 5
    program = "data { int N; }\nparameters {\n  real mu; // a mean\n}\nmodel {\n  for (n in 1:N)\n    y[n] ~ normal(mu, 1);\n}\n"
    assert statements.count(statements.Source(statements.STAN, "x.stan"), program) == 3
