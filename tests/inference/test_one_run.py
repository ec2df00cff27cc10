"""A whole fit is one run: one clock, one count of messages, one list of callbacks, one reason to stop, whatever its phases."""

import time

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.monitor import Since
from natgrad.inference.trace import Reason
from natgrad.models import hmm


def table(rng, users=40, items=30):
    full = rng.normal(size=(users, 2)) @ rng.normal(size=(2, items))
    return np.where(rng.random((users, items)) < 0.5, full, np.nan)


class Chunks:
    """A source of ratings, whole users in each chunk."""

    rereadable = True

    def __init__(self, ratings, size=10):
        self.ratings, self.size = ratings, size

    def chunks(self):
        for begin in range(0, len(self.ratings), self.size):
            users, items = np.nonzero(~np.isnan(self.ratings[begin : begin + self.size]))
            values = self.ratings[begin : begin + self.size][users, items]
            yield ng.Ratings(users + begin, items, values)


@pytest.mark.parametrize("kind", ["ratings", "documents", "sequences"])
def test_streams_call_callbacks_and_know_the_time(kind, rng):
    """A stream of ratings never called anybody, and looked at no clock."""
    if kind == "ratings":
        model, X = ng.MatrixFactorization(2, tol=0.0, max_steps=10**6), Chunks(table(rng))
    elif kind == "documents":
        parts = [rng.poisson(0.5, (20, 15)) for _ in range(4)]

        class Documents:
            rereadable = True

            def chunks(self):
                return iter(parts)

        model, X = ng.LDA(2, inference="vb", max_passes=10**6, tol=0.0), Documents()
    else:
        model, X = ng.GaussianHMM(2, n_init=1), (rng.normal(size=(30, 1)) for _ in range(10**6))
    seen = []

    def ends_after_five(progress):
        seen.append((progress.t, progress.model()))
        return len(seen) == 5

    model.fit(X, callbacks=[ends_after_five])
    assert [t for t, _ in seen] == [1, 2, 3, 4, 5]
    assert type(seen[0][1]) is type(model)
    assert model.stop_.reason is Reason.CALLBACK
    assert len(model.trace_) == 5
    model.set_params(max_seconds=0.2)
    more = X if kind != "sequences" else (rng.normal(size=(30, 1)) for _ in range(10**6))
    seen.clear()
    model.fit(more, callbacks=[lambda progress: seen.append(time.sleep(0.02))])
    assert model.stop_.reason is Reason.SECONDS
    assert len(seen) <= 11  # as many steps as fit into its time, and the one that finds that it is over


def test_a_fit_inside_a_callback_has_callbacks_of_its_own(rng):
    """It inherited those of the fit outside, and fitted without end."""
    X, inner = rng.poisson(0.5, (20, 15)), []

    def fits(progress):
        inner.append(ng.LDA(2, inference="vb", max_passes=1, tol=0.0, seed=0).fit(X).elbo_)

    model = ng.LDA(2, inference="vb", max_passes=3, tol=0.0, seed=0).fit(X, callbacks=[fits])
    assert len(inner) == len(model.trace_)
    assert len(set(inner)) == 1


def test_a_callback_that_ends_a_fit_of_subchains_is_the_reason(rng):
    """The words said that all the data were read, five times."""
    X = rng.normal(size=(2000, 1))
    model = ng.GaussianHMM(2, method=hmm.Subchains(4, 20), max_passes=5, n_init=1)
    model.fit(X, callbacks=[lambda progress: progress.t == 2])
    assert model.stop_.reason is Reason.CALLBACK
    assert len(model.trace_) == 2
    assert "times the data" not in str(model.stop_)
    whole = model.fit(X)
    assert whole.stop_.reason is Reason.PASSES
    assert "5 times the data" in str(whole.stop_)


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (ng.LDA(2, inference="vb", max_passes=1, tol=1e-12), "max_passes"),
        (ng.GaussianHMM(2, max_passes=1, n_init=1, tol=1e-12), "max_passes"),
        (ng.MatrixFactorization(2, max_steps=1, tol=1e-12), "max_steps"),
        (ng.SparseGPRegressor(n_inducing=3, max_steps=2, tol=1e-12), "max_steps"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_what_a_fit_that_ran_out_advises_can_be_done(model, advice, rng):
    """LDA and HMMs were told to raise steps, which they have not, or to go on by a method that they have not."""
    if isinstance(model, ng.SparseGPRegressor):
        model.fit(rng.normal(size=(30, 1)), rng.normal(size=30))
    else:
        model.fit(rng.poisson(1.0, (30, 4)).astype(float))
    words = str(model.stop_)
    assert f"raise {advice}" in words
    assert advice in model.get_params()
    assert ("continue_fit()" in words) == hasattr(model, "continue_fit")


def test_the_ranking_of_starts_is_counted(rng):
    X = rng.normal(size=(200, 1))
    one, many = (ng.GaussianHMM(2, n_init=n, max_passes=1, tol=0.0).fit(X) for n in (1, 8))
    assert many.trace_["messages_read"][0] > one.trace_["messages_read"][0] > 0


def test_passes_are_readings_of_the_data_whatever_the_method(rng):
    X = rng.poisson(0.5, (60, 15))
    for method in (None, ng.VB(), ng.SVI({"doc": 20})):
        local = ng.LocalOptions(batch_size=20 if method is None else None)
        model = ng.LDA(2, inference="vb", method=method, local=local, max_passes=3, tol=0.0).fit(X)
        per_pass = 1 if isinstance(method, ng.VB) else 3
        assert len(model.trace_) == 3 * per_pass, method


def test_seconds_of_which_some_have_gone_by_are_those_of_the_whole_fit(rng):
    x = ng.Normal("x", 0.0, 1.0)
    network = ng.Network(ng.Normal("y", x, 1.0, plate=ng.Plate("n", 5), observed=rng.normal(size=5)))
    with pytest.warns(ng.errors.NotConverged):
        fit = network.fit(max_seconds=Since(60.0, begun=time.perf_counter() - 61.0))
    assert fit.stop.reason is Reason.SECONDS
    assert "max_seconds = 60 " in fit.stop.message
    assert network.fit(max_seconds=Since(60.0)).stop.converged


def test_what_has_not_converged_says_how_much_is_left(rng):
    X = rng.poisson(1.0, (30, 40))
    with pytest.warns(
        ng.errors.NotConverged,
        match=r"tol = 1e-12 for each .* \(about [^ ]+ nats left to gain\): raise max_passes, or tol",
    ):
        ng.LDA(3, inference="vb", max_passes=12, tol=1e-12, method=ng.VB()).fit(X)
