"""Memoised VB: sums that add up over groups, exact updates and an exact bound from them, and no step size."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from promises.networks import CASES, scalar_mixture

import natgrad as ng
from natgrad.inference.schema import Misfit
from natgrad.inference.steppers.groups import KEY, BatchMemory, GroupMemory
from natgrad.network.execute.groups import Groups
from natgrad.network.execute.summary import NotAdditive, Summary
from natgrad.posterior.files.tables import check_sums

# Few different lengths of batches: each is compiled once.
BATCH = {"point": 6, "doc": 4, "sequence": 2, "row": 10}


def arrays(stats):
    return tuple(np.asarray(part) for part in stats)


def options(name, **more):
    case = CASES[name]()
    return {"tol": 0, "init": case.init, "order": case.order, **more}


def n_groups(name, plate):
    return {p.name: p.size for node in CASES[name]().network.nodes.values() for p in node.plates}[plate]


@pytest.mark.parametrize(("name", "plate"), [("mixture", "point"), ("lda", "doc"), ("pca", "row")])
def test_one_batch_of_everything_is_an_exact_sweep(name, plate):
    case = CASES[name]()
    groups = Groups(case.network.problem, plate, tuple(case.order))
    # Local variables start at their priors: a point mass, as `VB` has it, would be the q around that point here.
    init = {key: value for key, value in case.init.items() if key not in groups.local}
    chosen = {"max_steps": 3, "tol": 0, "init": init, "order": [*groups.local, *groups.globals]}
    exact = case.network.fit(ng.VB(), **chosen)
    fit = case.network.fit(ng.SVI({plate: len(groups)}, local_steps=1), **chosen)
    assert "memoised" in fit.trace.strategy
    for block in exact.state.lam:
        for a, b in zip(fit.state.lam[block], exact.state.lam[block], strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-10, err_msg=block)
    np.testing.assert_allclose(fit.trace["elbo"], exact.trace["elbo"], rtol=1e-10)


@given(st.sampled_from([1, 6, 7, 24]), st.integers(0, 10**6))
@settings(max_examples=10)
def test_after_the_first_pass_the_bound_never_falls_whatever_the_batches(size, seed):
    fit = CASES["scalar_mixture"]().network.fit(
        ng.SVI({"point": size}), max_steps=3 * math.ceil(24 / size), seed=seed, **options("scalar_mixture")
    )
    bounds = fit.trace["elbo"]
    n_batches = math.ceil(24 / size)
    assert np.isnan(bounds[: n_batches - 1]).all()
    assert np.isfinite(bounds[n_batches - 1 :]).all()
    assert np.diff(bounds[n_batches - 1 :]).min() >= -1e-11 * np.abs(bounds[n_batches - 1 :]).max()
    assert fit.elbo == pytest.approx(bounds[-1], rel=1e-10)


@pytest.mark.parametrize(("name", "plate"), [("hmm", "sequence"), ("pca", "row")])
def test_the_free_bound_is_the_exact_one_and_never_falls(name, plate):
    n_batches = math.ceil(n_groups(name, plate) / BATCH[plate])
    fit = CASES[name]().network.fit(ng.SVI({plate: BATCH[plate]}), max_steps=4 * n_batches, **options(name))
    assert f"{n_batches} batches" in fit.trace.strategy
    bounds = fit.trace["elbo"][n_batches - 1 :]
    assert np.isfinite(bounds).all()
    assert np.diff(bounds).min() >= -1e-11 * np.abs(bounds).max()
    assert fit.elbo == pytest.approx(bounds[-1], rel=1e-10)


def test_groups_that_are_all_alike_speak_for_those_not_yet_seen():
    """In the first pass the sums are scaled: any part of equal groups says what all of them say."""
    point, component = ng.Plate("point", 12), ng.Plate("component", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=point)
    mu = ng.Normal("mu", 0.0, 0.1, plate=component)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=point, observed=np.full(12, 1.0)))
    chosen = {"tol": 0, "init": {"mu": [-1.0, 1.0]}, "order": ["z", "mu"]}
    fit = network.fit(ng.SVI({"point": 3}), max_steps=1, **chosen)
    sweep = network.fit(ng.VB(), max_steps=1, **chosen)
    np.testing.assert_allclose(fit["mu"].mean(), sweep["mu"].mean(), rtol=1e-12)
    assert fit.trace["elbo_estimate"][0] == pytest.approx(sweep.trace["elbo"][0], rel=1e-12)


@cache
def settled(name, plate, size):
    return CASES[name]().network.fit(ng.SVI({plate: size}), max_steps=600, **options(name))


@pytest.mark.parametrize(
    ("name", "plate", "size"),
    [("scalar_mixture", "point", 6), pytest.param("hmm", "sequence", 2, marks=pytest.mark.slow)],
)
def test_where_it_converges_every_natural_gradient_is_zero(name, plate, size):
    fit = settled(name, plate, size)
    for block in fit:
        for part, lam in zip(fit.natural_gradient(block), fit.state.lam[block], strict=True):
            np.testing.assert_allclose(part, 0.0, atol=1e-6 * (1.0 + np.abs(np.asarray(lam)).max()), err_msg=block)


def test_it_stops_when_a_whole_pass_changes_little():
    fit = CASES["scalar_mixture"]().network.fit(
        ng.SVI({"point": 6}), max_steps=2000, **options("scalar_mixture", tol=1e-7)
    )
    assert fit.stop.converged
    assert fit.elbo == pytest.approx(settled("scalar_mixture", "point", 6).elbo, rel=1e-5)


# -- promises --


@pytest.mark.parametrize("half", [1, 7])
@pytest.mark.parametrize(("name", "plate", "size"), [("scalar_mixture", "point", 6), ("hmm", "sequence", 2)])
def test_going_on_is_exact_to_the_bit(name, plate, size, half):
    network = CASES[name]().network
    whole = network.fit(ng.SVI({plate: size}), max_steps=10, **options(name))
    first = network.fit(ng.SVI({plate: size}), max_steps=half, **options(name))
    for rest in (first.continue_fit(max_steps=10 - half, tol=0), first.continue_fit(max_steps=10 - half, tol=0)):
        for block in whole.state.lam:
            for a, b in zip(arrays(rest.state.lam[block]), arrays(whole.state.lam[block]), strict=True):
                np.testing.assert_array_equal(a, b)
        for column in ("elbo", "elbo_estimate", "messages_read"):
            np.testing.assert_array_equal(rest.trace[column], whole.trace[column])


def test_going_on_from_another_method_starts_from_its_local_variables():
    case = CASES["scalar_mixture"]()
    vb = case.network.fit(ng.VB(), max_steps=4, **options("scalar_mixture"))
    on = vb.continue_fit(ng.SVI({"point": 6}), max_steps=6, tol=0)
    bounds = on.trace["elbo"]
    assert np.isfinite(bounds).all()
    assert np.diff(bounds).min() >= -1e-11 * np.abs(bounds).max()
    # The first step also reads all the data once, for the sums.
    reads = np.diff(on.trace["messages_read"])
    assert reads[4 - 1] > reads[4]


def test_going_on_after_another_method_forgets_what_was_remembered_before_it():
    case = CASES["scalar_mixture"]()
    first = case.network.fit(ng.SVI({"point": 6}), max_steps=5, **options("scalar_mixture"))
    exact = first.continue_fit(ng.VB(), max_steps=50, tol=0)
    assert KEY not in exact.state.memory
    again = exact.continue_fit(ng.SVI({"point": 6}), max_steps=5, tol=0)
    assert again.trace["elbo"][-5:].min() >= exact.elbo - 1e-10 * abs(exact.elbo)


@pytest.mark.parametrize("size", [3, 12])
def test_going_on_with_other_batches_keeps_what_was_learned(size):
    case = CASES["scalar_mixture"]()
    first = case.network.fit(ng.SVI({"point": 6}), max_steps=20, **options("scalar_mixture"))
    other = first.continue_fit(ng.SVI({"point": size}), max_steps=4, tol=0)
    assert other.trace["elbo"][-4:].min() >= first.elbo - 1e-10 * abs(first.elbo)


def test_sums_remembered_of_other_data_are_made_anew(tmp_path):
    """A loaded fit that went on with data of the same size kept the sums of the old ones: its bound was above the evidence."""
    case = CASES["scalar_mixture"]()
    case.network.fit(ng.SVI({"point": 6}), max_steps=20, **options("scalar_mixture")).save(tmp_path / "fit")
    other = scalar_mixture(seed=1).network
    fit = ng.load(tmp_path / "fit").attach(other).continue_fit(max_steps=120, tol=0)
    assert fit.trace["elbo"][-1] == pytest.approx(fit.elbo, abs=1e-8)
    assert fit.elbo == pytest.approx(other.fit(ng.VB(), max_steps=200, **options("scalar_mixture")).elbo, abs=1e-6)


# -- where nothing adds up --


def test_globals_read_through_two_indices_have_no_sums_and_fall_back_with_a_word():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 3, 12), rng.integers(0, 4, 12)
    a = ng.Normal("a", 0.0, 1.0, plate=ng.Plate("group", 3))
    b = ng.Normal("b", 0.0, 1.0, plate=ng.Plate("kind", 4))
    n = ng.Plate("n", 12)
    level = ng.Normal("level", a[first] + b[second], 2.0, plate=n)
    network = ng.Network(ng.Normal("y", level, 1.0, plate=n, observed=rng.normal(size=12)))
    problem = network.problem
    groups = Groups(problem, "n", ("level", "b", "a"))
    with pytest.raises(NotAdditive, match="different indices"):
        Summary(problem, groups.local, groups.globals, groups.plate_of)
    fit = network.fit(ng.SVI({"n": 4}), max_steps=2, tol=0)
    assert fit.trace.strategy.startswith("per-node steps")
    assert "different indices" in fit.trace.strategy
    assert math.isfinite(fit.elbo)


def test_local_variables_of_two_plates_end_where_vb_does(rng):
    """A batch of users has a varying number of ratings and is padded; the padding says nothing to anybody."""
    user, rating = ng.Plate("user", 6), ng.Plate("rating", 20)
    who = np.concatenate([np.arange(6), rng.integers(0, 6, 14)])
    taste = ng.Normal("taste", ng.Normal("level", 0, 0.1), 1, plate=user)
    mood = ng.Normal("mood", taste[who], 2, plate=rating)
    network = ng.Network(ng.Normal("y", mood, 3, plate=rating, observed=rng.normal(size=20)))
    exact = network.fit(ng.VB(), max_steps=200, tol=1e-12)
    every = ng.SVI({user: 6}, local_tol=1e-9)
    fits = [network.fit(every, step=ng.Constant(1.0), max_steps=50, tol=1e-12)]
    fits += [network.fit(ng.SVI({user: 2}, local_tol=1e-9), max_steps=150, tol=1e-12)]
    assert "memoised" in fits[1].trace.strategy
    for fit in fits:
        assert fit.elbo == pytest.approx(exact.elbo, rel=1e-9)
        for name in ("taste", "mood"):
            np.testing.assert_allclose(fit[name].mean(), exact[name].mean(), rtol=1e-6, atol=1e-6)


def _remembered(*told: float, total: float, rest: float = 3.0) -> GroupMemory:
    batches = tuple(BatchMemory([], {"x": (np.array([value]),)}, rest / len(told)) for value in told)
    return GroupMemory({"x": (np.array([total]),)}, rest, batches, ("row", len(told), 0))


def test_sums_that_are_not_those_of_their_batches_are_refused() -> None:
    """Exchanging batches would have kept the difference for ever: a forged checkpoint in chunks converged to wrong numbers."""
    right = _remembered(1.0, 2.5, 4.0, total=7.5)
    check_sums(right, "what was remembered")
    for wrong in (_remembered(1.0, 2.5, 4.0, total=37.0), right._replace(rest=1e9)):
        with pytest.raises(Misfit, match="is not the sum over its batches"):
            check_sums(wrong, "what was remembered")
    with pytest.raises(Misfit, match="sums of the shapes"):
        check_sums(right._replace(messages={"x": (np.full((1, 1), 7.5),)}), "what was remembered")
