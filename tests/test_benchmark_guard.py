"""The guard over benchmark results: it must say what got slower, and nothing else."""

import importlib.util
import json
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[1] / "benchmarks" / "compare.py"


@pytest.fixture(scope="module")
def compare():
    spec = importlib.util.spec_from_file_location("compare", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_slower_and_larger_are_found_whatever_the_order_of_rows(compare):
    before = [{"run": "a", "seconds": 1.0, "rmse": 3.0}, {"run": "b", "seconds": 2.0, "peak_MB": 100.0}]
    now = [{"run": "b", "seconds": 2.0, "peak_MB": 250.0}, {"run": "a", "seconds": 3.0, "rmse": 9.0}]
    assert compare.compared(before, now, "x.json") == {
        "/run=b/seconds": 1.0,
        "/run=b/peak_MB": 2.5,
        "/run=a/seconds": 3.0,
    }


def test_speeds_count_the_other_way_round(compare):
    before = [["natgrad", "full", 4.0e6]]
    now = [["natgrad", "full", 1.0e6]]
    assert list(compare.compared(before, now, "hmm-speed.json").values()) == [4.0]


def test_every_table_of_costs_has_numbers_to_compare(compare):
    """Every committed result of a speed benchmark is understood: compared with itself it has costs, and none changed."""

    for stem in ("engine", "hmm-speed", "lda-speed", "gp-speed", "factorization", "lda-growth", "hmm-memory"):
        result = json.loads((compare.RESULTS / f"{stem}.json").read_text())
        factors = compare.compared(result, result, f"{stem}.json")
        assert factors, stem
        assert set(factors.values()) == {1.0}, stem


@pytest.mark.parametrize(("factor", "said"), [(1.0, "nothing got slower"), (1.5, "all of it, or the machine")])
def test_a_file_that_is_slower_as_a_whole_is_told(compare, monkeypatch, tmp_path, capsys, factor, said):
    """Without peers in it, the median of a file is no measure of the machine alone."""
    before = [{"run": name, "seconds": 1.0} for name in "abc"]
    now = [{**row, "seconds": factor} for row in before]
    (tmp_path / "x.json").write_text(json.dumps(now))
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    monkeypatch.setattr(compare, "committed", lambda path, base: before)
    monkeypatch.setattr("sys.argv", ["compare.py"])
    assert compare.main() == (factor > 1.2)
    assert said in capsys.readouterr().out
