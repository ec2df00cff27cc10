"""Jumps along columns: where they are, what is none, units and order, missing and constant outputs; stairs."""

import numpy as np
import pytest

from natgrad.data.jumps import LARGEST, jumps_of, stair
from natgrad.data.warps import warp_of
from natgrad.models.gp.warping import SURE, jumping, stairs_of


def table(rng, n=1000):
    x = rng.random((n, 3))
    y = 2.0 * (x[:, 0] > 0.37) - 1.0 * (x[:, 2] > 0.8) + 0.3 * rng.normal(size=n)
    return x, y[:, None]


def test_thresholds_lie_between_the_rows_around_the_jump(rng):
    x, y = table(rng)
    found = jumps_of(x, y)
    assert jumping(x, y) == [0, 2]
    for column, jump in ((0, 0.37), (2, 0.8)):
        highest = int(np.argmax(found[column].heights))
        below, above = found[column].below[highest], found[column].above[highest]
        assert abs(0.5 * (below + above) - jump) < 0.01  # ten rows
        assert not ((x[:, column] > below) & (x[:, column] < above)).any()
    np.testing.assert_allclose(found[0].heights.sum() / found[2].heights.sum(), 2.0, rtol=0.3)


def test_units_order_and_outputs_that_are_missing_or_constant_change_nothing(rng):
    x, y = table(rng, 400)
    once = jumps_of(x, y)
    assert once.keys() >= {0, 2}

    def same(others, scale=1.0, shift=0.0, columns=(0, 1, 2)):
        for column, jumps in once.items():
            other = others[columns.index(column)]
            np.testing.assert_allclose(other.below, scale * jumps.below + shift)
            np.testing.assert_allclose(other.heights, jumps.heights, rtol=1e-6)
            np.testing.assert_allclose(other.nats, jumps.nats, rtol=1e-6)

    same(jumps_of(1e6 * x + 1e6, 1e9 + 1e6 * y), 1e6, 1e6)
    rows = rng.permutation(len(x))
    same(jumps_of(x[rows], y[rows]))
    same(jumps_of(x[:, [2, 0, 1]], y), columns=(2, 0, 1))
    same(jumps_of(np.column_stack([x, np.full(400, 5.0)]), np.column_stack([y, np.full(400, 7.0)])))
    same(jumps_of(np.vstack([x, x[:50]]), np.vstack([y, np.full((50, 1), np.nan)])))


@pytest.mark.parametrize("n", [0, 1, 30, 39, 500])
def test_noise_and_few_rows_have_none(n, rng):
    x = rng.normal(size=(n, 2))
    assert jumps_of(x, rng.normal(size=(n, 1))) == {}
    assert jumps_of(x, np.full((n, 2), 3.0)) == {}
    assert jumps_of(np.ones((n, 2)), rng.normal(size=(n, 1))) == {}


def test_smooth_functions_have_thresholds_and_no_jumps(rng):
    x = rng.uniform(-2, 2, (1500, 3))
    mean = np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + np.tanh(3 * x[:, 2])
    for noise in (0.02, 0.1, 0.5):
        found = jumps_of(x, (mean + noise * rng.normal(size=1500))[:, None])
        assert len(found) == 3
        assert max(jumps.nats for jumps in found.values()) < SURE
    few = np.round(2.0 * x)  # levels of few values are no jumps
    assert jumping(few, few[:, :1] + 0.1 * rng.normal(size=(1500, 1))) == []


def test_wide_tables_are_read_in_part(rng):
    n = LARGEST // 100
    x = rng.random((2 * n, 100))
    y = (np.arange(2 * n) < n) * 1.0 + 3.0 * (
        x[:, 5] > 0.5
    )  # what the first rows have in common is no jump of a column
    assert [*jumps_of(x, y[:, None])] == [5]


def test_stairs_rise_at_thresholds_and_have_an_inverse(rng):
    x, y = table(rng, 400)
    amounts = np.exp(3.0 * x[:, :1])
    for under in (None, warp_of(amounts[:, 0], 0, "log")):
        warp = stair(0, amounts[:, 0], jumps_of(amounts, y)[0], under)
        assert warp.kind == "step"
        assert (np.diff(warp.knots) > 0).all()
        assert (np.diff(warp.values) > 0).all()
        wide = np.linspace(-5.0, 30.0, 300)
        np.testing.assert_allclose(warp.undo(warp.apply(wide)), wide, rtol=1e-9, atol=1e-6)
        low, before, after, high = warp.apply(np.exp(3.0 * np.array([0.02, 0.34, 0.40, 0.98])))
        assert after - before > 10.0 * max(before - low, high - after)
    kept = stairs_of(amounts, y, [7], (warp,))
    assert [one.kind for one in kept] == ["step"]
