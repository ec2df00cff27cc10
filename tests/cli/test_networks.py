"""`natgrad predict` and `natgrad update` of a network that was fitted to a table."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from network.bound_cases import factorisation, topics

import natgrad as ng
from natgrad.cli.main import main


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def written(path: Path, columns: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def test_predictions_and_updates_of_a_table(tmp_path: Path) -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", max_steps=20, verbose=False)
    model = tmp_path / "model.natgrad"
    fit.save(model)
    new = {"userId": ["bob", "zed"], "movieId": [3, 12]}
    # Ids of a text file are text; those that were fitted were numbers.
    found = run("predict", model, written(tmp_path / "new.csv", new), "-o", tmp_path / "out.csv")
    assert found.exit_code == 0, found.output
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    expected = fit.predict(new)["r"]
    np.testing.assert_allclose([float(row["r mean"]) for row in rows], expected.mean(), rtol=1e-4)
    np.testing.assert_allclose([float(row["r sd"]) for row in rows], expected.std(), rtol=1e-4)
    assert [row["userId"] for row in rows] == ["bob", "zed"]
    more = written(tmp_path / "more.csv", {**new, "stars": [1.0, 2.0]})
    found = run("update", model, more, "-o", tmp_path / "newer.natgrad")
    assert found.exit_code == 0, found.output
    newer = ng.load(tmp_path / "newer.natgrad")
    assert newer["bias"].frame()["user"].tolist() == ["ann", "bob", "cid", "zed"]
    assert newer["v"].frame()["movie"].tolist() == [3, 7, 12, 900]
    again = run("update", model, more, "-o", tmp_path / "newer.natgrad")
    assert again.exit_code == 1
    assert "newer.natgrad" in again.output


def test_categories_are_called_by_their_names(tmp_path: Path) -> None:
    case = topics()
    case.columns.fit(case.table, init=case.init, max_steps=5, verbose=False).save(tmp_path / "m.natgrad")
    found = run("predict", tmp_path / "m.natgrad", written(tmp_path / "new.csv", {"doc": ["news"]}))
    assert found.exit_code == 0, found.output
    head, row = found.output.splitlines()
    assert head == "doc,w,w probability"
    assert row.split(",")[1] in case.table["word"]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    case = factorisation()
    case.arrays.fit(init="random", max_steps=2, verbose=False).save(tmp_path / "arrays.natgrad")
    new = written(tmp_path / "new.csv", {"userId": ["bob"]})
    found = run("predict", tmp_path / "arrays.natgrad", new)
    assert found.exit_code == 1
    assert "declared with arrays" in found.output
    case.columns.fit(case.table, init="random", max_steps=2, verbose=False).save(tmp_path / "m.natgrad")
    found = run("predict", tmp_path / "m.natgrad", new)
    assert found.exit_code == 1
    assert "there is no column 'movieId'" in found.output


def test_a_summary_names_elements_by_their_ids() -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", max_steps=5, verbose=False)
    assert "bias[ann]" in str(fit.summary())
