"""`Auto`: which stepper for which problem and why, exactly what was asked where it was asked, and the safeguard at work."""

import functools
import re

import numpy as np
import pytest
from marking import some_slow
from promises.networks import CASES, scalar_mixture

import natgrad as ng
from natgrad.inference.auto import choose, free_memory, largest_coupling
from natgrad.inference.steppers.groups import GroupStepper, WholePasses
from natgrad.inference.steppers.sampled import ChildrenStepper, GlobalBatchStepper
from natgrad.inference.steppers.sweep import SAFEGUARD, AcceleratedStepper, ExactStepper, SafeguardedStepper
from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors
from natgrad.reproduce.paquet_runs import declare

ORDERS = {"ratings": ("u", "v"), "vectors": ("u", "v"), "many": ("z", "mu", "tau")}


@functools.cache
def problem_of(name):
    if name in ("ratings", "vectors"):
        rng = np.random.default_rng(0)
        cells = rng.choice(8 * 6, 40, replace=False)
        table = ng.Ratings(cells // 6, cells % 6, rng.normal(size=40), shape=(8, 6))
        known = RatingPriors(biases=False, learn_precision=False, learn_noise=False)
        return declare(table, 3).problem if name == "ratings" else FullRatingsProblem(table, 3, known)
    network = scalar_mixture(n=2400).network if name == "many" else CASES[name]().network
    return network.problem


def chosen(name, method, step):
    problem = problem_of(name)
    order = ORDERS.get(name) or tuple(problem.blocks)
    return choose(problem, method, step, order)


# -- exactly what was asked --


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (None, ExactStepper),
        (ng.VB(), ExactStepper),
        (ng.VB("b"), ExactStepper),
        (ng.Children(2, "b"), ChildrenStepper),
        (ng.GlobalBatch(5), GlobalBatchStepper),
        (ng.SVI({"point": 5}), GroupStepper),
    ],
    ids=str,
)
def test_a_method_with_a_step_is_taken_as_asked(method, kind):
    step = ng.RobbinsMonro(first=0.1)
    stepper, words = chosen("scalar_mixture", method, step)
    assert type(stepper) is kind
    assert stepper.schedule is step
    if kind is not GroupStepper:
        assert stepper.method == (ng.VB() if method is None else method)
    assert words == f"{ng.VB() if method is None else method} with {step}, as asked"


@pytest.mark.parametrize("method", [ng.VB(), ng.Children(1), ng.GlobalBatch(5), ng.SVI({"point": 5})], ids=str)
def test_settings_keep_what_was_asked(method):
    case = CASES["scalar_mixture"]()
    step = ng.Constant(0.5)
    fit = case.network.fit(method, step=step, max_steps=1, tol=0, init=case.init)
    assert fit.settings.method is method
    assert fit.settings.step is step
    assert ", as asked; interpreted by NumPy: " in fit.trace.strategy
    on = fit.continue_fit(max_steps=1, tol=0)
    assert (on.settings.method, on.settings.step) == (method, step)
    assert on.trace.strategy == fit.trace.strategy
    assert fit.trace.strategy in str(fit.trace)
    if not isinstance(method, ng.GlobalBatch):  # whose mean length counts variables that it does not touch
        np.testing.assert_array_equal(on.trace["rho"], 0.5)


# -- what is chosen --

CHOICES = [
    # nothing fixed
    ("ratings", None, ng.Auto(), AcceleratedStepper, "data access is cheap, and the product u·v has a free rotation"),
    ("ratings", None, ng.Auto(rotate=False), AcceleratedStepper, "data access is cheap, and there are few independent groups"),
    ("ratings", None, ng.Auto("expensive"), SafeguardedStepper, "checked by exact sweeps$"),
    ("ratings", None, ng.Auto("stream"), ChildrenStepper, "per-node steps: the data are a stream"),
    ("pca", None, ng.Auto(), AcceleratedStepper, "the product w·x has a free rotation"),
    ("many", None, ng.Auto(), AcceleratedStepper, "there are few independent groups"),
    ("many", None, ng.Auto("expensive"), WholePasses, "memoised VB in 12 batches of 'point'"),
    ("many", None, ng.Auto("stream"), GroupStepper, "per-node steps: the data are a stream"),
    ("scalar_mixture", None, ng.Auto(), AcceleratedStepper, "there are few independent groups"),
    ("skills", None, ng.Auto("expensive"), SafeguardedStepper, "checked by exact sweeps$"),
    # the method fixed
    ("ratings", ng.VB(), ng.Auto(), AcceleratedStepper, "exact sweeps were asked for"),
    ("ratings", ng.VB("b"), ng.Auto(), ExactStepper, "all blocks move together, by 1/ω of the way"),
    ("ratings", ng.Children(2), ng.Auto(), SafeguardedStepper, "checked by exact sweeps$"),
    ("ratings", ng.GlobalBatch(8, "b"), ng.Auto(rotate=False), SafeguardedStepper, "checked by exact sweeps$"),
    ("ratings", ng.Children(2), ng.Auto("stream"), ChildrenStepper, "a stream, nothing is remembered"),
    ("ratings", ng.GlobalBatch(8), ng.Auto("stream"), GlobalBatchStepper, "a stream, nothing is remembered"),
    ("vectors", ng.Children(2), ng.Auto(), SafeguardedStepper, "checked by exact sweeps$"),
    ("scalar_mixture", ng.GlobalBatch(8), ng.Auto(), SafeguardedStepper, "checked by exact sweeps$"),
    ("scalar_mixture", ng.SVI({"point": 5}), ng.Auto(), GroupStepper, "memoised VB in 5 batches of 'point'"),
    ("scalar_mixture", ng.SVI({"point": 5}), ng.Auto("stream"), GroupStepper, "a stream, nothing is remembered"),
    ("skills", ng.SVI({"game": 5}), ng.Auto(), GroupStepper, "per-node steps: 'skill' is read twice by one term"),
    # no room
    ("scalar_mixture", ng.SVI({"point": 5}), ng.Auto(memory=0), GroupStepper, "local variables takes .* MB, more than there is"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "method", "auto", "kind", "words"), CHOICES)
def test_each_problem_gets_its_stepper_and_the_words_for_it(name, method, auto, kind, words):
    stepper, said = chosen(name, method, auto)
    assert type(stepper) is kind
    assert re.search(words, said), said
    if hasattr(stepper, "use_rotation"):
        assert stepper.use_rotation == (auto.rotate and bool(problem_of(name).gauges))


def test_free_memory_decides_no_more_than_the_schedule():
    problem = scalar_mixture(n=240_000).network.problem
    assert type(choose(problem, None, ng.Auto(memory=1e12), ("z", "mu", "tau")).stepper) is WholePasses
    stepper, words = choose(problem, None, ng.Auto(memory=0), ("z", "mu", "tau"))
    assert type(stepper) is AcceleratedStepper
    assert "local variables takes" in words


def test_half_of_the_free_memory_may_be_taken():
    assert ng.Auto().memory_budget == pytest.approx(0.5 * free_memory(), rel=0.5)


def test_blocks_that_move_together_move_by_one_over_the_coupling():
    stepper, _ = chosen("ratings", ng.VB("b"), ng.Auto())
    assert largest_coupling(problem_of("ratings")) == 6
    assert stepper.schedule == ng.Constant(1 / 6)


@pytest.mark.parametrize("step", [ng.Auto(), ng.PerNode()], ids=str)
def test_groups_need_a_declared_network(step):
    with pytest.raises(TypeError, match="needs a declared network"):
        chosen("vectors", ng.SVI({"user": 2}), step)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"data_access": "free"}, ValueError, 'data_access must be "cheap", "expensive" or "stream", got \'free\''),
        ({"memory": -1}, ValueError, "memory must be ≥ 0 bytes, got -1: 0 remembers nothing"),
        ({"memory": float("nan")}, ValueError, "memory must be"),
        ({"memory": "2 GB"}, TypeError, "memory must be"),
    ],
)
def test_wrong_arguments_are_named_and_explained(options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        ng.Auto(**options)


def test_a_wrong_step_is_refused_and_auto_is_among_what_is_accepted():
    with pytest.raises(TypeError, match=r"Auto\(\)"):
        CASES["scalar_mixture"]().network.fit(step=0.5)


# -- the safeguard --


@functools.cache
def regression():
    """Forty scalar coefficients of nearly the same column, vague priors: moved together, they overshoot together."""
    rng = np.random.default_rng(0)
    X = 1.0 + 0.3 * rng.normal(size=(60, 40))
    y = X @ rng.normal(size=40) + rng.normal(size=60)
    w = ng.Normal("w", 0.0, 1e-3, plate=ng.Plate("k", 40))
    return ng.Network(ng.Normal("y", ng.dot(X, w), 1.0, plate=ng.Plate("n", 60), observed=y))


def guarded(method, steps, network=None, **options):
    """A default fit, and its last check after every step."""
    seen = []
    fit = (network or regression()).fit(
        method, max_steps=steps, tol=0, callbacks=[lambda p: seen.append(p.state.memory[SAFEGUARD])], **options
    )
    return fit, seen


@pytest.mark.parametrize(
    "method", some_slow([ng.Children(5, "b"), ng.GlobalBatch(10, "b")], [ng.Children(5, "b")]), ids=str
)
def test_steps_that_diverge_on_their_own_are_brought_back_damped_and_end_higher(method):
    alone = regression().fit(method, step=ng.PerNode(), max_steps=100, tol=0)
    assert alone.stop.diverged
    fit, seen = guarded(method, 150)
    assert not fit.stop.diverged
    assert np.isfinite(fit.trace["elbo"]).all()
    first = regression().fit(ng.VB(), max_steps=1, tol=0).elbo
    assert seen[-1].bound > first + 50.0  # the exact sweeps alone do not stand still, nor do the steps between them
    assert seen[-1].damping < 1.0
    bounds = np.array([last.bound for last in seen if np.isfinite(last.bound)])
    assert np.diff(bounds).min() >= -1e-11 * np.abs(bounds).max()
    # What the user sees is the best of the last check and the last step.
    assert fit.elbo >= seen[-1].bound - 1e-11 * abs(seen[-1].bound)


@pytest.mark.parametrize(
    "method",
    some_slow(
        [ng.Children(2), ng.Children(2, "b"), ng.GlobalBatch(10), ng.GlobalBatch(10, "b")],
        [ng.GlobalBatch(10)],  # children of every node are drawn by the test of steps that diverge
    ),
    ids=str,
)
def test_sampled_steps_of_a_network_end_near_coordinate_ascent_without_a_step_size(method):
    case = CASES["factorised"]()
    wanted = case.network.fit(ng.VB(), max_steps=200, tol=0, init=case.init, order=case.order).elbo
    fit, seen = guarded(method, 150, case.network, init=case.init, order=case.order)
    assert np.isfinite(fit.trace["elbo"]).all()
    assert fit.trace["elbo"].max() >= wanted - 0.01 * abs(wanted)
    bounds = np.array([last.bound for last in seen if np.isfinite(last.bound)])
    assert np.diff(bounds).min() >= -1e-11 * np.abs(bounds).max()
    assert bounds[-1] == bounds.max()


def test_going_on_under_the_safeguard_is_exact_to_the_bit():
    network = CASES["factorised"]().network
    whole = network.fit(ng.Children(2), max_steps=20, tol=0, init="random")
    first = network.fit(ng.Children(2), max_steps=9, tol=0, init="random")
    rest = first.continue_fit(max_steps=11, tol=0)
    np.testing.assert_array_equal(rest["u"].mean(), whole["u"].mean())
    np.testing.assert_array_equal(rest.trace["elbo"], whole.trace["elbo"])
    np.testing.assert_array_equal(rest.trace["messages_read"], whole.trace["messages_read"])
