"""Inputs that are bent: monotone maps and their inverses, which columns, chosen by the bound; streams, files, units, mistakes."""

import numpy as np
import pytest
from scipy.stats import norm

import natgrad as ng
from natgrad.covariance import RBF
from natgrad.data.jumps import Jumps
from natgrad.data.warps import KNOTS, is_skewed, warp_of
from natgrad.models.gp.warping import chosen_warps

SHORT = {"n_inducing": 12, "max_steps": 60, "verbose": False}


def columns(rng, n=400):
    """Columns of many kinds."""
    return {
        "normal": rng.normal(size=n),
        "amounts": np.exp(2.0 * rng.normal(size=n)),
        "counts": rng.poisson(np.exp(rng.normal(size=n))).astype(float),
        "both signs": rng.standard_t(1.5, size=n),
        "shifted": 1e9 + np.exp(2.0 * rng.normal(size=n)),
        "tiny": 1e-6 * np.exp(2.0 * rng.normal(size=n)),
        "mostly zero": np.where(rng.random(n) < 0.8, 0.0, rng.exponential(size=n)),
        "three values": rng.integers(0, 3, n).astype(float),
    }


@pytest.mark.parametrize("kind", ["log", "rank"])
def test_maps_increase_and_have_an_inverse_everywhere(kind, rng):
    for name, x in columns(rng).items():
        warp = warp_of(x, 0, kind)
        assert warp is not None, name
        assert len(warp.knots) <= KNOTS
        assert (np.diff(warp.knots) > 0).all(), name
        assert (np.diff(warp.values) > 0).all(), name
        wide = x.min() + (x.max() - x.min()) * np.linspace(-3.0, 4.0, 301)  # beyond both ends, too
        z = warp.apply(wide)
        assert np.isfinite(z).all(), name
        assert (np.diff(z) >= 0).all(), name
        # Slopes may be a thousand times smaller in the tails than in the middle, and what is lost there is rounding of z.
        np.testing.assert_allclose(warp.undo(z), wide, rtol=1e-9, atol=1e-9 * np.ptp(x), err_msg=name)
        np.testing.assert_allclose(warp.apply(warp.undo(z)), z, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", ["log", "rank"])
def test_columns_with_fewer_than_three_values_stay(kind):
    for x in (np.full(50, 7.0), np.repeat([0.0, 1.0], [45, 5]), np.repeat([1e300, 1e300 + 1.0], 25)):
        assert warp_of(x, 0, kind) is None
        assert not is_skewed(x)


def test_ranks_are_those_of_a_normal_law_whatever_the_column_is(rng):
    z = rng.normal(size=2000)
    bent = {name: warp_of(make(z), 0, "rank").apply(make(z)) for name, make in MONOTONE.items()}
    for name, values in bent.items():
        # Between knots, a fifteenth of the range of z apart, lines are drawn in other units.
        np.testing.assert_allclose(values, bent["itself"], atol=0.03, err_msg=name)
    levels = (np.arange(2000) + 0.5) / 2000
    np.testing.assert_allclose(np.sort(bent["itself"]), norm.ppf(levels), atol=0.11)  # as far as knots are apart


MONOTONE = {
    "itself": lambda z: z,
    "amounts": lambda z: np.exp(2.0 * z),
    "other units": lambda z: 1e9 + 1e6 * np.exp(z),
    "cubes": lambda z: z**3 + z,
}


def test_logarithms_are_logarithms(rng):
    x = np.exp(rng.normal(size=3000))
    warp = warp_of(x, 0, "log")
    # Between two points h apart, a line is at most exp(h) h²/8 from a logarithm.
    apart = np.diff(warp.values).max()
    np.testing.assert_allclose(warp.apply(x), np.log(x), atol=np.exp(apart) * apart**2 / 8)
    np.testing.assert_allclose(warp.apply(warp.knots), np.log(warp.knots), atol=1e-12)
    big = warp_of(1e6 * x, 0, "log")
    np.testing.assert_allclose(big.apply(1e6 * x) - np.log(1e6), warp_of(x, 0, "log").apply(x), atol=1e-9)


def test_only_columns_that_are_skewed_or_heavy_tailed_may_be_bent(rng):
    found = {name: is_skewed(x) for name, x in columns(rng, 2000).items()}
    assert found.pop("normal") is False
    assert found.pop("three values") is False
    assert all(found.values())
    assert not is_skewed(rng.random(2000))
    assert is_skewed(rng.exponential(size=2000))


def test_the_bound_decides_of_each_column(rng):
    x = np.exp(rng.normal(size=(200, 3)))
    x[:, 2] = rng.normal(size=200)
    asked = []

    def bound(wanted):
        def of(warps):
            kinds = {warp.column: warp.kind for warp in warps}
            asked.append(kinds)
            return -float(sum(kinds.get(column) != kind for column, kind in wanted.items()))

        return of

    for wanted in ({}, {0: "log", 1: "log"}, {0: "rank", 1: "rank"}, {1: "log"}, {0: "rank"}):
        whole = {0: None, 1: None} | wanted
        warps = chosen_warps(x, bound(whole), lambda: True)
        kinds = {warp.column: warp.kind for warp in warps}
        assert kinds == wanted or (wanted == {0: "rank"} and not kinds)  # a tie of all three kinds is left as it is
    assert not any(2 in kinds for kinds in asked)
    assert chosen_warps(x, bound({0: "log"}), lambda: False) == ()
    assert chosen_warps(x[:20], bound({0: "log"}), lambda: True) == ()


def skewed(rng, n=500):
    x = np.exp(2.0 * rng.normal(size=(n, 2)))
    x[:, 1] = rng.normal(size=n)
    return x, np.sin(2.0 * np.log(x[:, 0])) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.slow
def test_skewed_inputs_do_not_ruin_a_process(rng, tmp_path):
    x, y = skewed(rng)
    bent = ng.SparseGPRegressor(n_inducing=30, max_steps=200, verbose=False).fit(x, y)
    plain = ng.SparseGPRegressor(n_inducing=30, max_steps=200, warp_inputs=None, verbose=False).fit(x, y)
    assert [*bent.input_warps_] == [0]
    assert plain.input_warps_ == {}
    assert bent.elbo_ > plain.elbo_ + 0.3 * len(y)
    assert (bent.inducing_[:, 0] > -1.0).all()  # in the units of the data
    bent.save(tmp_path / "gp.natgrad")
    loaded = ng.load(tmp_path / "gp.natgrad")
    wide = np.array([[-1e6, 0.0], [0.0, 0.0], [1e9, 0.0], [1.0, 1e3]])
    for model in (bent, loaded):
        mean, sd = model.predict(wide, return_std=True)
        assert np.isfinite(mean).all()
        assert (sd[[2, 3]] > 0.5).all()  # far outside nothing is known
    np.testing.assert_array_equal(loaded.predict(x), bent.predict(x))
    assert loaded.input_warps_ == bent.input_warps_
    np.testing.assert_array_equal(loaded.continue_fit(x, y, max_steps=5).inducing_.shape, bent.inducing_.shape)
    labels = ng.SparseGPClassifier(**SHORT).fit(x, np.sin(2.0 * np.log(x[:, 0])) > 0)
    assert [*labels.input_warps_] == [0]


def test_inputs_that_are_not_skewed_stay_bit_by_bit(rng):
    flat = rng.normal(size=(200, 2))
    usual = [ng.SparseGPRegressor(**SHORT, warp_inputs=w).fit(flat, flat[:, 0]) for w in ("auto", None)]
    np.testing.assert_array_equal(usual[0].predict(flat), usual[1].predict(flat))


@pytest.mark.parametrize("kind", ["log", "rank"])
def test_units_do_not_matter(kind, rng):
    x, y = skewed(rng, 200)
    one = ng.SparseGPRegressor(**SHORT, warp_inputs=kind).fit(x, y)
    two = ng.SparseGPRegressor(**SHORT, warp_inputs=kind).fit(x * 1e6, y)
    np.testing.assert_allclose(two.predict(x * 1e6), one.predict(x), atol=1e-5)
    if kind == "rank":  # also where all zeros of the scale are gone
        far = ng.SparseGPRegressor(**SHORT, warp_inputs=kind).fit(x + 1e9, y)
        np.testing.assert_allclose(far.predict(x + 1e9), one.predict(x), atol=1e-2)


def test_streams_are_bent_as_arrays_are_and_the_first_chunk_decides_of_endless_ones(rng):
    x, y = skewed(rng, 300)
    whole = ng.SparseGPRegressor(**SHORT, warp_inputs="rank").fit(x, y)
    pieces = ng.SparseGPRegressor(**SHORT, warp_inputs="rank").fit(
        (x[i : i + 70], y[i : i + 70]) for i in range(0, 300, 70)
    )
    np.testing.assert_array_equal(pieces.predict(x), whole.predict(x))
    endless = ng.SparseGPRegressor(**SHORT, warp_inputs="rank").partial_fit(x[:150], y[:150])
    knots = endless._x_scaling.warps[0].knots
    endless.partial_fit(100.0 * x[150:], y[150:])
    np.testing.assert_array_equal(endless._x_scaling.warps[0].knots, knots)


def stepped(rng, n=400):
    """A jump along one column, a curve along another, and one that says nothing."""
    x = rng.random((n, 3))
    return x, 2.0 * (x[:, 0] > 0.37) + np.sin(5.0 * x[:, 1]) + 0.2 * rng.normal(size=n)


def test_stairs_are_chosen_where_y_jumps_and_files_keep_them(rng, tmp_path):
    x, y = stepped(rng)
    bent = ng.SparseGPRegressor(**SHORT).fit(x, y)
    plain = ng.SparseGPRegressor(**SHORT, warp_inputs=None).fit(x, y)
    assert bent.input_warps_ == {0: "step"}
    assert "step of column 0" in bent.trace_.strategy
    assert bent.elbo_ > plain.elbo_ + 0.3 * len(y)
    assert (bent.inducing_[:, 0] > -1.0).all()  # in the units of the data
    # Nearer to the jump than a length scale of the curve, and on the right sides of it.
    low, high = bent.predict([[0.34, 0.5, 0.5], [0.40, 0.5, 0.5]])
    assert high - low > 1.6
    bent.save(tmp_path / "gp.natgrad")
    loaded = ng.load(tmp_path / "gp.natgrad")
    np.testing.assert_array_equal(loaded.predict(x), bent.predict(x))
    assert loaded.input_warps_ == bent.input_warps_
    far = ng.SparseGPRegressor(**SHORT).fit(1e6 * x + 1e6, y)
    np.testing.assert_allclose(far.predict(1e6 * x + 1e6), bent.predict(x), atol=1e-5)


def test_stairs_that_are_asked_for_are_of_all_columns_with_a_threshold(rng):
    x, y = stepped(rng, 200)
    assert ng.SparseGPRegressor(RBF(), **SHORT, warp_inputs="step").fit(x, y).input_warps_.keys() >= {0}
    assert ng.SparseGPRegressor(**SHORT, warp_inputs="step").fit(x, rng.normal(size=200)).input_warps_ == {}
    labels = ng.SparseGPClassifier(**SHORT, warp_inputs="step").fit(x, x[:, 0] > 0.37)
    assert labels.input_warps_ == {0: "step"}
    both = np.column_stack([y, -y])
    both[::3, 1] = np.nan
    assert 0 in ng.SparseGPRegressor(**SHORT, warp_inputs="step").fit(x, both).input_warps_


def test_rows_that_did_not_make_stairs_decide(rng, monkeypatch):
    """Stairs for jumps that are not there are refused, however sure the rows that made them are."""

    def made_up(x, y):
        low, high = np.quantile(x[:, 0], [0.6, 0.601])
        return {0: Jumps(np.array([low]), np.array([high]), np.array([1.0]), 1e3)}

    x, y = stepped(rng)
    monkeypatch.setattr("natgrad.models.gp.warping.jumps_of", made_up)
    assert ng.SparseGPRegressor(**SHORT).fit(x, np.sin(8.0 * x[:, 0]) + 0.1 * y).input_warps_ == {}
    monkeypatch.undo()
    assert ng.SparseGPRegressor(**SHORT).fit(x, y).input_warps_ == {0: "step"}


def test_a_kernel_that_is_given_keeps_its_units(rng):
    x, y = skewed(rng, 200)
    assert ng.SparseGPRegressor(RBF(), **SHORT).fit(x, y).input_warps_ == {}
    assert ng.SparseGPRegressor(**SHORT, standardize=False).fit(x, y).input_warps_ == {}
    assert ng.SparseGPRegressor(RBF(), **SHORT, warp_inputs="log").fit(x, y).input_warps_ == {0: "log", 1: "log"}
    raw = ng.SparseGPRegressor(**SHORT, warp_inputs="log", standardize=False).fit(x, y)
    assert raw._x_scaling.sd.tolist() == [1.0, 1.0]


def test_mistakes_are_explained(rng):
    x, y = skewed(rng, 60)
    with pytest.raises(ValueError, match='warp_inputs must be None, "auto", "log", "rank" or "step", got \'square\''):
        ng.SparseGPRegressor(**SHORT, warp_inputs="square").fit(x, y)
    holey = x.copy()
    holey[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"X\[3, 0\] = nan"):
        ng.SparseGPRegressor(**SHORT, warp_inputs="rank").fit(holey, y)


@pytest.mark.parametrize("spoilt", ["twice", "falls", "short", "column"])
def test_forged_maps_are_refused(spoilt, rng, tmp_path):
    x, y = skewed(rng, 60)
    model = ng.SparseGPRegressor(**SHORT, warp_inputs="rank").fit(x, y)
    first, second = model._x_scaling.warps
    forged = {
        "twice": (first, first),
        "falls": (first._replace(values=first.values[::-1].copy()), second),
        "short": (first._replace(knots=first.knots[1:]), second),
        "column": (first._replace(column=2), second),
    }[spoilt]
    model._x_scaling = model._x_scaling._replace(warps=forged)
    with pytest.raises(
        ValueError, match=r"could not be loaded again: .*warps"
    ):  # one table for what is written and read
        model.save(tmp_path / "gp.natgrad")


def test_smooth_outputs_get_no_stairs():
    # The bound of a trial was that of a q from before the last step of the noise, by chance 1,000 nats too low: a stair won, and
    # errors of ±sin x were seven times as large.
    rng = np.random.default_rng(1006)
    x = rng.uniform(0, 10, (400, 1))
    y = np.sin(x) * [1.0, -2.0] + 0.1 * rng.normal(size=(400, 2))
    model = ng.SparseGPRegressor(n_inducing=20, max_steps=20, tol=0, finish=None, verbose=False).fit(x, y)
    assert model.input_warps_ == {}
