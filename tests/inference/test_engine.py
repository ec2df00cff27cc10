"""Promises of the engine: the guard, limits, callbacks, seeds, the trace, going on."""

import math

import numpy as np
import pytest
from marking import some_slow
from promises.networks import CASES, factorised, ratings

import natgrad as ng
from natgrad.inference.trace import Reason
from natgrad.network.execute.groups import NetworkGroups
from natgrad.network.start.initial import make_start

METHODS = {
    "vb": ng.VB(),
    "children_a": ng.Children(2),
    "children_b": ng.Children(2, option="b"),
    "global_a": ng.GlobalBatch(10),
    "global_b": ng.GlobalBatch(10, option="b"),
    "svi": ng.SVI({"user": 3}),
}


def states(fit):
    return [np.asarray(part) for name in fit for part in fit.state.lam[name]]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_same_seed_same_fit_and_going_on_is_never_having_stopped(method):
    case = CASES["factorised"]()
    whole = case.network.fit(method, max_steps=8, tol=0, seed=3, init="random")
    again = case.network.fit(method, max_steps=8, tol=0, seed=3, init="random")
    half = case.network.fit(method, max_steps=5, tol=0, seed=3, init="random").continue_fit(max_steps=3, tol=0)
    for a, b, c in zip(states(whole), states(again), states(half), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(whole.trace["elbo"], half.trace["elbo"])
    np.testing.assert_array_equal(whole.trace["messages_read"], half.trace["messages_read"])
    assert whole.trace["t"].tolist() == half.trace["t"].tolist() == list(range(1, 9))
    assert (np.diff(half.trace["seconds"]) >= 0).all()
    if method != ng.VB():
        other = case.network.fit(method, max_steps=8, tol=0, seed=4, init="random")
        assert not np.array_equal(states(whole)[0], states(other)[0])


@pytest.mark.parametrize("name", some_slow(CASES, ["scalar_mixture", "factorised", "hmm", "several"]))
def test_default_steps_do_not_diverge_with_one_child(name):
    case = CASES[name]()
    for option in ("a", "b"):
        fit = case.network.fit(ng.Children(1, option=option), max_steps=60, tol=0, init=case.init, order=case.order)
        assert fit.stop.reason is Reason.STEPS, str(fit.stop)
        assert np.isfinite(fit.trace["elbo"]).all()
        first, last = fit.trace["elbo"][0], fit.trace["elbo"][-10:].mean()
        if name == "several":
            # Its Gaussians are solved jointly: the first step is at the optimum, around which sampled steps wander.
            best = case.network.fit(ng.VB(), init=case.init, order=case.order, tol=1e-9).elbo
            assert first == pytest.approx(best, abs=1e-8)
            assert last > case.network.problem.bound(make_start(case.network.problem, case.init, 0))
        else:
            assert last > first


def test_the_textbook_recipe_diverges_and_the_guard_keeps_the_last_good_state():
    case = factorised(size=5, n_users=30, n_items=20, n_ratings=400)
    fit = case.network.fit(ng.Children(1), step=ng.RobbinsMonro(), max_steps=300, tol=0, init="random")
    assert fit.stop.diverged
    assert not fit.stop.converged
    words = str(fit.stop)
    assert "diverged at step" in words
    assert "C = 1" in words
    assert "ρ =" in words
    for array in states(fit):
        assert np.isfinite(array).all()
    assert np.isfinite(fit.elbo)
    assert np.isfinite(fit.trace["elbo"]).all()
    assert (fit["u"].var() > 0).all()


@pytest.mark.parametrize("method", [ng.VB(), ng.SVI({"user": 3})], ids=str)
def test_a_bound_that_is_no_number_ends_the_run_before_it(method, monkeypatch):
    """A bound that steps bring along was passed over where it was NaN, because NaN said that there was none yet."""
    case = CASES["factorised"]()
    problem = case.network.problem
    owner, name = (problem, "sweep") if method == ng.VB() else (NetworkGroups, "_settle")
    right, calls = getattr(owner, name), []

    def wrong(*args):
        calls.append(1)
        out = right(*args)
        if len(calls) < 7:
            return out
        return out._replace(bound=math.nan)

    monkeypatch.setattr(owner, name, wrong)
    fit = case.network.fit(method, step=ng.Constant(1.0) if name == "sweep" else ng.Auto(), max_steps=20, init="random")
    assert fit.stop.diverged
    assert "to nan" in str(fit.stop)
    assert len(fit.trace) < 7
    assert math.isfinite(fit.elbo)


def test_an_invalid_parameter_names_its_node():
    """A step longer than one can leave the parameter space: here it makes a Gamma's rate negative."""
    tau = ng.Gamma("tau", 2.0, 50.0)
    y = ng.Normal("y", 0.0, tau, plate=ng.Plate("n", 3), observed=[0.0, 0.1, 0.0])
    network = ng.Network(y)
    fit = network.fit(ng.VB(), step=ng.Constant(2.0), init={"tau": 1e-6}, max_steps=50, tol=0)
    assert fit.stop.diverged
    assert "'tau'" in str(fit.stop)
    assert (fit["tau"].parameters["rate"] > 0).all()


def test_accesses_count_pairs_of_a_rating_and_a_scalar():
    case = factorised(size=3)
    n_ratings = len(ratings()["values"])
    fit = case.network.fit(ng.VB(), max_steps=2, tol=0, init="random")
    assert fit.trace["messages_read"].tolist() == [2 * 3 * n_ratings, 4 * 3 * n_ratings]
    fit = case.network.fit(ng.Children(1), step=ng.PerNode(), max_steps=2, tol=0, init="random")
    assert fit.trace["messages_read"].tolist() == [3 * (8 + 6), 6 * (8 + 6)]
    fit = case.network.fit(ng.GlobalBatch(7), step=ng.PerNode(), max_steps=1, tol=0, init="random")
    assert fit.trace["messages_read"].tolist() == [2 * 3 * 7]


def test_stops_by_tolerance_time_and_callback():
    case = CASES["scalar_mixture"]()
    options = {"init": case.init, "order": case.order}
    fit = case.network.fit(tol=1e-8, **options)
    assert fit.stop.reason is Reason.TOLERANCE
    assert fit.stop.converged
    assert len(fit.trace) < 1000
    fit = case.network.fit(tol=0, max_steps=10**6, max_seconds=0.2, **options)
    assert fit.stop.reason is Reason.SECONDS
    seen = []
    fit = case.network.fit(tol=0, callbacks=[lambda p: seen.append(p.elbo) or p.t == 4], **options)
    assert fit.stop.reason is Reason.CALLBACK
    assert len(fit.trace) == 4
    np.testing.assert_array_equal(seen, fit.trace["elbo"])


def test_trace_as_table_and_words():
    pytest.importorskip("pandas")
    case = CASES["scalar_mixture"]()
    fit = case.network.fit(max_steps=20, tol=0, init=case.init, order=case.order)
    frame = fit.trace.to_frame()
    assert frame.index.tolist() == list(range(1, 21))
    np.testing.assert_array_equal(frame["elbo"], fit.trace["elbo"])
    assert "elbo" in str(fit.trace)
    assert "20 steps" in repr(fit.trace)
    with pytest.raises(KeyError, match="no column 'loss'"):
        fit.trace["loss"]


def test_a_point_mass_lasts_until_the_first_update():
    case = CASES["lda"]()
    fit = case.network.fit(ng.SVI({"doc": 2}), max_steps=1, tol=0, init=case.init, order=case.order)
    stats = np.asarray(fit.state.mu["theta"][0])
    untouched = np.isclose(stats, np.log(case.init["theta"])).all(axis=1)
    assert untouched.sum() == 5


def test_bound_every_leaves_gaps_that_say_so():
    case = CASES["factorised"]()
    fit = case.network.fit(ng.Children(1), step=ng.PerNode(), max_steps=9, tol=0, bound_every=3, init="random")
    known = np.isfinite(fit.trace["elbo"])
    assert known.tolist() == [t % 3 == 0 for t in range(1, 10)]
    assert np.isfinite(fit.elbo)


@pytest.mark.parametrize("counts", [0.25, lambda n: np.sqrt(n), lambda n: min(3, n)])
def test_numbers_of_children_as_fraction_and_function(counts):
    case = CASES["factorised"]()
    fit = case.network.fit(ng.Children(counts), max_steps=30, tol=0, init="random")
    assert fit.stop.reason is Reason.STEPS
    assert fit.trace["elbo"][-1] > fit.trace["elbo"][0]


def test_a_symmetric_start_that_is_asked_for_is_an_error_and_others_are_not():
    case = CASES["scalar_mixture"]()
    with pytest.raises(ng.errors.SymmetricStart, match="all start equal"):
        case.network.fit(init={"mu": [1.0, 1.0]})
    for init in (None, "random", "kmeans", {"mu": "random"}, {"z": "kmeans"}, {"mu": [-1.0, 1.0]}):
        fit = case.network.fit(init=init, max_steps=50)
        assert np.ptp(fit["mu"].mean()) > 1.0


def test_the_user_s_precision_setting_is_left_alone():
    import jax
    import jax.numpy as jnp

    case = CASES["scalar_mixture"]()
    case.network.fit(max_steps=2, tol=0, init=case.init, backend="jax")
    assert not jax.config.jax_enable_x64
    assert jnp.ones(3).dtype == jnp.float32
