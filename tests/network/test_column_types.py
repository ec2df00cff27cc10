"""Columns of every type through every expression of columns: the numbers are those of float64."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import natgrad as ng

ROWS = 4
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def network() -> ng.Network:
    """A shift of each expression of two columns: its posterior mean is minus the mean of the expression."""
    a, b, both = ng.Column("a"), ng.Column("b"), ng.Columns("a", "b")
    known = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), observed=[1.0, -2.0])
    means = {
        "a + b": a + b, "a − b": a - b, "100 a": 100 * a, "a 100": a * np.int8(100), "−a": -a, "a b": a * b, "a / b": a / b,
        "200 − a": 200 - a, "a − 200": a - 200, "1 / b": 1 / b, "(a − b) a": (a - b) * a, "dot": ng.dot(both, known),
        "−dot": ng.dot(-both, known),
    }  # fmt: skip
    row = ng.Plate("row")
    read = [
        ng.Normal(f"y {name}", ng.Normal(f"m {name}", 0.0, 1.0) + mean, 1.0, plate=row, observed=ng.Column("y"))
        for name, mean in means.items()
    ]
    seen = ng.Normal("y seen", ng.Normal("m seen", 0.0, 1.0), 1.0, plate=row, observed=a - b)
    slope = ng.Normal("y slope", ng.Normal("m slope", 0.0, 1.0) * (a - b), 1.0, plate=row, observed=ng.Column("y"))
    return ng.Network(*read, seen, slope)


def columns(dtype: str) -> tuple[Any, Any]:
    """Values at both ends of what the type can hold."""
    if dtype == "bool":
        return np.array([True, False, True, False]), np.ones(ROWS, dtype=bool)
    if dtype.startswith("float"):
        return np.array([1.5, -2.25, 3.0, 200.0], dtype), np.array([0.5, 4.0, -8.0, 100.0], dtype)
    bounds = np.iinfo(dtype)
    return np.array([bounds.min, bounds.max, 1, 100], dtype), np.array([bounds.max, 1, 100, bounds.max - 1], dtype)


def forms() -> dict[str, Any]:
    """The same columns as arrays, lists, and columns of pandas, Arrow and Polars."""
    pandas, arrow, polars = (pytest.importorskip(name) for name in ("pandas", "pyarrow", "polars"))
    made: dict[str, Any] = {dtype: columns(dtype) for dtype in (*INTEGERS, "bool", "float16", "float32", "float64")}
    small, large = columns("uint8"), columns("int64")
    made["lists"] = tuple(column.tolist() for column in large)
    made["Decimal"] = tuple([Decimal(int(value)) for value in column] for column in small)
    made["masked"] = tuple(np.ma.masked_array(column, np.zeros(ROWS, dtype=bool)) for column in small)
    for name, nullable in (("uint8", "UInt8"), ("int64", "Int64"), ("bool", "boolean"), ("float32", "Float32")):
        made[nullable] = tuple(pandas.array(column, dtype=nullable) for column in columns(name))
        made[f"arrow {name}"] = tuple(arrow.array(column) for column in columns(name))
        made[f"polars {name}"] = tuple(polars.Series(column) for column in columns(name))
        made[f"pyarrow {name}"] = tuple(
            pandas.Series(column).convert_dtypes(dtype_backend="pyarrow") for column in columns(name)
        )
    return made


def test_expressions_of_columns_of_every_type_are_those_of_floats() -> None:
    declared = network()
    for name, (a, b) in forms().items():
        table = {"a": a, "b": b, "y": np.zeros(ROWS)}
        floats = {key: np.array([float(cell) for cell in np.asarray(column).tolist()]) for key, column in table.items()}
        found, expected = (declared.bind(columns)._plan.known for columns in (table, floats))
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[key], expected[key]) for key in expected), name
    a, b = (column.astype(float) for column in columns("uint8"))
    fit = declared.fit(dict(zip("aby", (*columns("uint8"), np.zeros(ROWS)), strict=True)), verbose=False)
    assert fit["m a − b"].mean() == pytest.approx(-(a - b).sum() / (ROWS + 1))  # the conjugate update
    assert fit["m seen"].mean() == pytest.approx((a - b).sum() / (ROWS + 1))


def test_expressions_in_chunks_are_those_of_floats() -> None:
    a, b, c = map(ng.Column, "abc")
    row = ng.Plate("row")
    small = ng.Normal("y", ng.Normal("small", 0.0, 1.0) + (a - b) * a, 1.0, plate=row, observed=a - b)
    large = ng.Normal("z", ng.Normal("large", 0.0, 1.0) - c * c, 1.0, plate=row, observed=100 * a)
    table = dict(zip("abc", (*columns("uint8"), np.full(ROWS, 4_000_000_000)), strict=True))
    fit = ng.Network(small, large).fit(table, verbose=False, chunk_rows=2, backend="numpy")
    x, y, z = (column.astype(float) for column in table.values())
    assert fit["small"].mean() == pytest.approx(((x - y) * (1 - x)).sum() / (ROWS + 1))
    assert fit["large"].mean() == pytest.approx((100 * x + z * z).sum() / (ROWS + 1))


@pytest.mark.parametrize("dtype", [*INTEGERS, "float32", "object"])
def test_whole_numbers_of_every_type_choose_elements(dtype: str) -> None:
    """Of a table, of a plate with a size, and of one that has an element for each of them."""
    row, three, group = ng.Plate("row"), ng.Plate("three", 3), ng.Plate("group")
    sized, by_id = ng.Normal("sized", 0.0, 1.0, plate=three), ng.Normal("by id", 0.0, 1.0, plate=group)
    at = ng.Column("at")
    mean = sized[at] + by_id[at] + ng.table([1.0, 2.0, 4.0])[at]
    network = ng.Network(ng.Normal("y", mean, 1.0, plate=row, observed=ng.Column("y")))
    y = np.array([0.5, 1.0, -2.0, 3.0])
    found, expected = (
        network.fit({"at": np.array([0, 2, 1, 2]).astype(kind), "y": y}, verbose=False) for kind in (dtype, "int64")
    )
    assert found.elbo == expected.elbo
    for name in expected:
        np.testing.assert_array_equal(found[name].mean(), expected[name].mean())
