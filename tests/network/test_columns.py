"""Declarations with columns: the same fit as with arrays, from every kind of table; mistakes are named."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from network.bound_cases import CASES, Twins, factorisation, pca, regression

import natgrad as ng

FIT: dict[str, Any] = {"seed": 3, "max_steps": 5, "verbose": False}


@pytest.mark.parametrize("name", CASES)
def test_a_table_gives_the_fit_of_its_arrays(name: str) -> None:
    case = CASES[name]()
    later = case.columns.fit(case.table, init=case.init, **FIT)
    now = case.arrays.fit(init=case.init, **FIT)
    assert later.trace["elbo"].tolist() == now.trace["elbo"].tolist()
    for node in now:
        assert all(map(np.array_equal, later[node].lam, now[node].lam))


def forms(case: Twins, folder: Path) -> dict[str, Any]:
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    import pyarrow.parquet

    frame = pandas.DataFrame(case.table)
    first, second = frame.iloc[:15], frame.iloc[15:]
    frame.to_csv(folder / "whole.csv", index=False)
    frame.to_json(folder / "whole.jsonl", orient="records", lines=True)
    for number, part in enumerate((first, second)):
        pyarrow.parquet.write_table(arrow.Table.from_pandas(part), folder / f"part{number}.parquet")
    return {
        "pandas": frame,
        "nullable": frame.convert_dtypes(),
        "polars": polars.DataFrame(case.table),
        "lazy": polars.DataFrame(case.table).lazy(),
        "arrow": arrow.Table.from_pandas(frame),
        "structured": frame.to_records(index=False),
        "lists": {name: list(values) for name, values in case.table.items()},
        "parts": [first, second],
        "iterator": iter([first, second]),
        "glob": str(folder / "part*.parquet"),
        "path": folder / "part0.parquet",
        "jsonl": folder / "whole.jsonl",
        "csv": folder / "whole.csv",
    }


@pytest.mark.parametrize("form", ["pandas", "nullable", "polars", "lazy", "arrow", "structured", "lists", "parts",
                                  "iterator", "glob", "path", "jsonl", "csv"])  # fmt: skip
def test_every_form_of_a_table(form: str, tmp_path: Path) -> None:
    case = regression() if form == "csv" else factorisation()
    table = forms(case, tmp_path)[form]
    if form == "path":
        case = case._replace(table={name: values[:15] for name, values in case.table.items()})
    found = case.columns.fit(table, init=case.init, **FIT)
    expected = case.columns.fit(case.table, init=case.init, **FIT)
    # Text and JSON are written with 15 digits or so.
    assert found.elbo == pytest.approx(expected.elbo, rel=1e-9)


def test_results_carry_ids() -> None:
    case = factorisation()
    pandas = pytest.importorskip("pandas")
    fit = case.columns.fit(pandas.DataFrame(case.table), init="random", **FIT)
    users = fit["bias"].frame()
    assert users["user"].tolist() == ["ann", "bob", "cid"]
    assert np.allclose(users["mean"], fit["bias"].mean())
    assert fit["u"].frame().columns.tolist() == [
        "user",
        *(f"{w}_{i}" for i in (0, 1) for w in ("mean", "sd", "lower", "upper")),
    ]
    assert fit.to_pandas(["bias"]).index.tolist() == ["bias[ann]", "bias[bob]", "bias[cid]"]
    pca_case = pca()
    names = pca_case.columns.fit(pca_case.table, init=pca_case.init, **FIT)["w"].frame()["feature"]
    assert names.tolist() == ["a", "b", "c", "d"]


def test_the_order_of_rows_and_the_names_of_levels_do_not_matter() -> None:
    case = factorisation()
    order = np.random.default_rng(1).permutation(40)
    options = {**FIT, "max_steps": 60, "tol": 1e-7}
    one = case.columns.fit(case.table, init="random", **options)
    other = case.columns.fit({name: values[order] for name, values in case.table.items()}, init="random", **options)
    # Levels are numbered in the order of their names, so starts are the same and sums differ in their order alone.
    assert other.elbo == pytest.approx(one.elbo, rel=1e-12)


def side_information() -> ng.Network:
    user = ng.Plate("user")
    age = ng.Column("age")
    slope = ng.Normal("slope", 0.0, 1.0)
    skill = ng.Normal("skill", slope * age, 1.0, plate=user)
    height = ng.Normal("height", skill, 2.0, plate=user, observed=ng.Column("height"))
    score = ng.Normal("score", skill[ng.Column("who")], 4.0, plate=ng.Plate("game"), observed=ng.Column("points"))
    return ng.Network(height, score)


def test_two_tables_are_joined_by_id() -> None:
    pytest.importorskip("pandas")
    games = {"who": ["b", "a", "b", "c"], "points": [1.0, 2.0, 3.0, 0.5]}
    users = {"who": ["c", "a", "b"], "age": [0.3, 0.1, 0.2], "height": [1.0, np.nan, 2.0]}
    fit = side_information().fit({"game": games, "user": users}, **FIT)
    user = ng.Plate("user", 3)
    slope = ng.Normal("slope", 0.0, 1.0)
    skill = ng.Normal("skill", slope * np.array([0.1, 0.2, 0.3]), 1.0, plate=user)
    height = ng.Normal("height", skill, 2.0, plate=user, observed=[np.nan, 2.0, 1.0])
    score = ng.Normal("score", skill[[1, 0, 1, 2]], 4.0, plate=ng.Plate("game", 4), observed=games["points"])
    now = ng.Network(height, score).fit(**FIT)
    assert fit.trace["elbo"].tolist() == now.trace["elbo"].tolist()
    assert fit["skill"].frame()["user"].tolist() == ["a", "b", "c"]


def wrong(column: str, values: Any) -> dict[str, Any]:
    return {**regression().table, column: values}


MISTAKES = {
    "a missing column": (lambda: {"age": [1.0], "incone": [1.0]}, ValueError, "no column 'income'.*did you mean 'incone'"),
    "a wrong type": (lambda: wrong("y", ["1.0"] * 29 + ["x"]), TypeError, "column 'y', row 0: '1.0' is not a number"),
    "a known number is infinite": (
        lambda: wrong("age", [np.inf, *range(29)]), ValueError, "column 'age', row 0: inf, but what .* takes must be finite",
    ),
    "a known number is too large": (lambda: wrong("age", [1e200, *range(29)]), ValueError, "column 'age', row 0: 1e.200.*unit"),
    "a known number is missing": (lambda: wrong("age", [None, *range(29)]), ValueError, "column 'age', row 0 is missing.*known"),
    "dates": (lambda: wrong("y", np.array(["2020-01-01"] * 30, "M8[D]")), TypeError, "column 'y' is of type datetime"),
    "an empty table": (lambda: {name: values[:0] for name, values in regression().table.items()}, ValueError, "no rows"),
    "different lengths": (lambda: wrong("y", [1.0]), ValueError, "columns have different lengths"),
    "no table": (lambda: None, TypeError, "declared with columns.*give the table"),
    "not a table": (lambda: 3, TypeError, "must be a pandas or Polars frame.*got int"),
    "no such file": (lambda: "nowhere.parquet", FileNotFoundError, "no such file"),
    "no such files": (lambda: "nowhere*.parquet", FileNotFoundError, "no file is called like this"),
    "a chunk with other columns": (
        lambda: [regression().table, {"age": [1.0], "y": [1.0]}], ValueError, "chunk 1: there is no column 'income'"
    ),
    "negative weights": (lambda: wrong("times", -np.ones(30)), ValueError, r"weight\[0\] = -1 must be"),
    "an infinite value": (lambda: wrong("y", [np.inf] * 30), ValueError, "is not finite"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_in_tables_are_named(what: str) -> None:
    make, error, words = MISTAKES[what]
    with pytest.raises(error, match=words):
        regression().columns.fit(make(), **FIT)


def test_mistakes_in_ids_are_named() -> None:
    case = factorisation()
    ids = case.table["userId"].astype(object)
    ids[4] = None
    with pytest.raises(ValueError, match="column 'userId', row 4 is missing"):
        case.columns.fit({**case.table, "userId": ids}, **FIT)
    sized = ng.Normal("a", 0.0, 1.0, plate=ng.Plate("k", 3))
    y = ng.Normal("y", sized[ng.Column("g")], 1.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    with pytest.raises(TypeError, match=r"plate 'k'.*Leave the size of the plate out"):
        ng.Network(y).fit({"g": ["a", "b"], "y": [1.0, 2.0]}, **FIT)
    with pytest.raises(IndexError, match="outside plate 'k'"):
        ng.Network(y).fit({"g": [0, 3], "y": [1.0, 2.0]}, **FIT)


def test_mistakes_in_declarations_are_named() -> None:
    row = ng.Plate("row")
    with pytest.raises(ng.errors.PlateMismatch, match="lies on no plate"):
        ng.Network(ng.Normal("y", 0.0, 1.0, observed=ng.Column("y")))
    stray = ng.Normal("w", 0.0, 1.0, plate=ng.Plate("k"))
    with pytest.raises(ng.errors.PlateMismatch, match="plate 'k' has no size, and no table tells it"):
        ng.Network(ng.Normal("y", ng.dot([1.0, 2.0], stray), 1.0, plate=row, observed=ng.Column("y")))
    with pytest.raises(TypeError, match="name of a column"):
        ng.Column(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no truth value"):
        bool(ng.Column("a") == 3 or ng.Column("b") + 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'men'"):
        ng.Normal("y", 0.0, 1.0, plate=row, men=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="declared with arrays"):
        regression().arrays.fit(pytest.importorskip("pandas").DataFrame())


def test_two_tables_in_chunks_are_the_whole() -> None:
    pytest.importorskip("pandas")
    games = {"who": ["b", "a", "b", "c", "a"], "points": [1.0, 2.0, 3.0, 0.5, np.nan]}
    users = {"who": ["c", "a", "b"], "age": [0.3, 0.1, 0.2], "height": [1.0, np.nan, 2.0]}
    options = {"verbose": False, "tol": 0, "max_steps": 30, "method": ng.VB()}
    whole, chunks = (
        side_information().fit({"game": games, "user": users}, **options, **rows)
        for rows in ({}, {"chunk_rows": 2, "backend": "numpy"})
    )
    assert chunks.elbo == pytest.approx(whole.elbo, rel=1e-10)
    assert chunks["skill"].frame()["mean"].tolist() == pytest.approx(whole["skill"].mean().tolist(), rel=1e-8)


def test_ids_that_a_table_lacks_are_named() -> None:
    users = {"who": ["c", "a"], "age": [0.3, 0.1], "height": [1.0, 2.0]}
    with pytest.raises(
        ValueError, match=r"'user': column 'who' lacks 'q', which other tables name \(1 such\).*column 'age'"
    ):
        side_information().fit({"game": {"who": ["a", "q"], "points": [1.0, 2.0]}, "user": users}, **FIT)
    numbered = {**users, "who": ["7", "8"]}
    with pytest.raises(ValueError, match="it has '7', a str, where another table has 7, a int: convert"):
        side_information().fit({"game": {"who": [7, 8], "points": [1.0, 2.0]}, "user": numbered}, **FIT)


def levels() -> ng.Network:
    level = ng.Normal("level", 0.0, 0.1, plate=ng.Plate("group"))
    return ng.Network(ng.Normal("y", level[ng.Column("g")], 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))


LARGE = [2**63, 2**63 + 5, 2**63 + 2, 2**63]
ZONED = [datetime(2020, 1, 1 + day, tzinfo=UTC) for day in (0, 1, 2, 0)]
IDS = {
    "large": np.array(LARGE, dtype=np.uint64), "large, in a list": [*LARGE[:3], 3], "larger": [2**70, 2**70 + 1, 5, 2**70],
    "UUID": [UUID(int=i) for i in (0, 1, 2, 0)], "zoned": ZONED, "pairs": [("a", UUID(int=1)), ("a", 2), ("b", 1), ("b", 2)],
}  # fmt: skip


@pytest.mark.parametrize("name", IDS)
def test_ids_that_fit_are_saved_and_found_again(name: str, tmp_path: Path) -> None:
    ids = IDS[name]
    fit = levels().fit({"g": ids, "y": np.arange(4.0)}, **FIT)
    assert len(fit["level"].mean()) == len(set(ids if isinstance(ids, list) else ids.tolist()))
    fit.save(tmp_path / "fit.natgrad")
    loaded = ng.load(tmp_path / "fit.natgrad")
    assert np.array_equal(loaded.predict({"g": ids})["y"].mean(), fit.predict({"g": ids})["y"].mean())
    assert fit.predict({"g": ids}, ["y"])["y"].std().max() < 1.4  # none is new


def test_ids_that_cannot_be_saved_are_refused_before_the_fit() -> None:
    with pytest.raises(
        TypeError, match=r"column 'g', row 0: Decimal\('1.5'\) cannot be an id.*Convert the column to text"
    ):
        levels().fit({"g": [Decimal("1.5"), Decimal("2")], "y": [1.0, 2.0]}, **FIT)


@pytest.mark.parametrize("words", [("True", "False"), ("true", "FALSE"), ("1", "0")])
def test_a_mask_of_a_text_file(words: tuple[str, str], tmp_path: Path) -> None:
    yes, no = words
    (tmp_path / "rows.csv").write_text(f"x,seen\n1.0,{yes}\n2.0,{no}\n3.0,{yes}\n")
    y = ng.Normal(
        "y", ng.Normal("mu", 0.0, 1.0), 1.0, plate=ng.Plate("row"), observed=ng.Column("x"), mask=ng.Column("seen")
    )
    assert ng.Network(y).fit(tmp_path / "rows.csv", **FIT)["mu"].mean() == pytest.approx(4.0 / 3.0)


def test_counts_in_columns_whose_trials_are_their_sums() -> None:
    counts = np.array([[1, 2], [3, 4], [0, 5]])

    def declared(plate: ng.Plate, observed: Any) -> ng.Network:
        return ng.Network(ng.Multinomial("y", None, ng.Dirichlet("p", 1.0, size=2), plate=plate, observed=observed))

    table = {"a": counts[:, 0], "b": counts[:, 1]}
    by_columns = declared(ng.Plate("row"), ng.Columns("a", "b")).fit(table, verbose=False)
    by_arrays = declared(ng.Plate("row", 3), counts).fit(verbose=False)
    assert by_columns.elbo == by_arrays.elbo
    np.testing.assert_array_equal(by_columns["p"].mean(), by_arrays["p"].mean())


@pytest.mark.parametrize("n_rows", [2, 3])
@pytest.mark.parametrize("rows_first", [True, False])
@pytest.mark.parametrize("what", ["scalars", "probabilities", "vectors"])
def test_columns_side_by_side_are_a_plate_or_entries_whichever_plate_comes_first(
    n_rows: int, rows_first: bool, what: str
) -> None:
    """Also where there are as many rows as columns: the numbers are those of arrays with the axes of the declaration."""
    rng = np.random.default_rng(n_rows)
    numbers, seen = rng.dirichlet(np.ones(2), n_rows), rng.normal(size=(n_rows, 2))
    table = dict(zip("abpq", (*numbers.T, *seen.T), strict=True))
    other = ng.Plate("other", 2)

    def network(row: ng.Plate, known: Any, observed: Any) -> ng.Network:
        plates = (row, other) if rows_first else (other, row)
        if what == "vectors":
            shift = ng.MultivariateNormal("shift", np.zeros(2), np.eye(2), plate=other)
            mean = ng.MultivariateNormal("mean", known, np.eye(2), plate=plates)
            read = ng.Normal("read", ng.dot(mean, shift), 1.0, plate=plates, observed=observed)
            return ng.Network(read)
        shift = ng.Normal("shift", 0.0, 1.0, plate=other)
        if what == "scalars":
            return ng.Network(ng.Normal("y", shift + known, 1.0, plate=plates, observed=observed))
        z = ng.Categorical("z", known, plate=plates)
        level = ng.Normal("level", [-1.0, 1.0], 1.0, plate=ng.Plate("level of", 2))
        return ng.Network(ng.Normal("y", level[z] + shift, 1.0, plate=plates, observed=observed))

    entries = what != "scalars"
    wide = numbers[:, None] if rows_first else numbers
    known = wide if entries else (numbers if rows_first else numbers.T)
    by_columns = network(ng.Plate("row"), ng.Columns("a", "b"), ng.Columns("p", "q")).fit(table, verbose=False)
    by_arrays = network(ng.Plate("row", n_rows), known, seen if rows_first else seen.T).fit(verbose=False)
    assert by_columns.elbo == pytest.approx(by_arrays.elbo, rel=1e-12)
    np.testing.assert_allclose(by_columns["shift"].mean(), by_arrays["shift"].mean(), rtol=1e-10)
