"""Callbacks: functions, trackers known by what they can do, the log, and held-out scores while a fit goes on."""

import logging

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import natgrad as ng

TEXTS = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
HELD = ["pear apple", "screw nut"]


class Tracker:
    """As MLflow's module has it: both, of which the first is preferred."""

    def __init__(self):
        self.seen = {}

    def log_metrics(self, metrics, step):
        self.seen[step] = metrics
        return {"ignored": True}  # some trackers return a future

    def log_metric(self, key, value, step):
        raise AssertionError


class Plain:
    def __init__(self):
        self.seen = []

    def log_metric(self, key, value, step=None):
        self.seen.append((step, key, value))


class Writer:
    """As TensorBoard's SummaryWriter."""

    def __init__(self):
        self.seen = []

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.seen.append((global_step, tag, scalar_value))


def counts():
    return CountVectorizer().fit_transform(TEXTS)


def series(rng):
    return np.repeat(rng.normal([-2.0, 2.0]), 30)[:, None] + rng.normal(size=(60, 1))


def rows(rng):
    x = rng.normal(size=(40, 1))
    return x, np.sin(x[:, 0])


MODELS = {
    "LDA": lambda rng: (ng.LDA(2, inference="vb", max_passes=4, tol=0), (TEXTS,), (HELD,)),
    "LDA of a stream": lambda rng: (
        ng.LDA(2, inference="vb", max_passes=2, tol=0),
        ([counts()[:10], counts()[10:]],),
        (counts()[:3],),
    ),
    "MatrixFactorization": lambda rng: (
        ng.MatrixFactorization(1, max_steps=4, tol=0),
        (rng.normal(size=(6, 5)),),
        (ng.Ratings([0, 1], [2, 3], [0.5, -0.5]),),
    ),
    "GaussianMixture": lambda rng: (
        ng.GaussianMixture(2, n_init=1, max_passes=3, tol=0),
        (series(rng),),
        (series(rng),),
    ),
    "GaussianHMM": lambda rng: (ng.GaussianHMM(2, n_init=1, max_passes=3, tol=0), (series(rng),), (series(rng),)),
    "SparseGPRegressor": lambda rng: (ng.SparseGPRegressor(n_inducing=5, max_steps=4, tol=0), rows(rng), rows(rng)),
    "SparseGPClassifier": lambda rng: (
        ng.SparseGPClassifier(n_inducing=5, max_steps=4, tol=0),
        (rows(rng)[0], np.arange(40) % 2),
        (rows(rng)[0], np.arange(40) % 2),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_estimator_tells_trackers_and_scores_held_out_data(name, rng):
    model, data, held = MODELS[name](rng)
    tracker, plain, writer, steps = Tracker(), Plain(), Writer(), []
    callbacks = [ng.HeldOut(*held, share=1.0), tracker, plain, writer, lambda seen: steps.append(seen.t)]
    model.fit(*data, callbacks=callbacks)
    assert steps == model.trace_["t"].tolist() == list(tracker.seen)
    scores = model.trace_["held_out"]
    assert np.isfinite(scores).all()
    assert tracker.seen[steps[-1]]["held_out"] == scores[-1]
    assert tracker.seen[steps[-1]]["seconds"] > 0
    assert writer.seen == plain.seen
    assert all(np.isfinite(value) for _, _, value in writer.seen)
    if "GP" not in name:  # whose last step is followed by an exact pass
        assert scores[-1] == pytest.approx(model.score(*held), rel=1e-6)


def test_what_a_callback_sees_is_the_fit_that_would_be(rng):
    data = rng.normal(size=30)
    mu = ng.Normal("mu", 0.0, 1.0)
    tau = ng.Gamma("tau", 1.0, 1.0)
    network = ng.Network(ng.Normal("x", mu, tau, plate=ng.Plate("n", 30), observed=data))
    seen = []
    fit = network.fit(ng.VB(), max_steps=3, tol=0, callbacks=[lambda step: seen.append(step.model())])
    # A sweep sums the bound in another order than `elbo` does.
    np.testing.assert_allclose([part.elbo for part in seen], fit.trace["elbo"], rtol=1e-14)
    short = network.fit(ng.VB(), max_steps=2, tol=0)
    np.testing.assert_array_equal(short["mu"].mean(), seen[1]["mu"].mean())


def test_held_out_scores_end_a_fit_and_cost_their_share(monkeypatch):
    calls = []
    monkeypatch.setattr(ng.LDA, "score", lambda self, X: calls.append(1) or -1.0)
    model = ng.LDA(2, inference="vb", max_passes=30, tol=0).fit(
        TEXTS, callbacks=[ng.HeldOut(HELD, share=1.0, patience=3)]
    )
    assert len(calls) == 4
    assert "has not risen above -1 for 3 scores" in str(model.stop_)
    calls.clear()
    slow = ng.HeldOut(HELD, share=1e-12)  # a score that took a microsecond is due again after days
    ng.LDA(2, inference="vb", max_passes=30, tol=0).fit(TEXTS, callbacks=[slow])
    assert len(calls) == 1
    ng.LDA(2, inference="vb", max_passes=3, tol=0).fit(TEXTS, callbacks=[slow])  # another fit, from the beginning
    assert len(calls) == 2


def test_a_callback_ends_a_stream():
    model = ng.LDA(2, inference="vb", max_passes=5).fit([counts(), counts()], callbacks=[lambda seen: seen.t == 3])
    assert model.n_steps_ == 3
    assert "a callback ended the run" in str(model.stop_)


@pytest.mark.parametrize("wrong", [[3], [Writer], Writer(), None])
def test_what_cannot_be_told_is_refused(wrong):
    with pytest.raises(TypeError, match="log_metrics, log_metric or add_scalar"):
        ng.LDA(2).fit(TEXTS, callbacks=wrong)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ng.HeldOut(), "needs data"),
        (lambda: ng.HeldOut(1, share=0), "share must lie"),
        (lambda: ng.HeldOut(1, patience=0), "patience must be"),
    ],
)
def test_wrong_settings_of_held_out(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_held_out_scores_what_a_sampler_has_averaged(rng):
    """Sweeps that do not count are not scored, each of the others is: the last score is that of the fit."""
    X, held, seen, scores = rng.poisson(1.0, (30, 12)), rng.poisson(1.0, (5, 12)), [], []

    def look(step):
        seen.append(step.model())
        scores.append(step.trace["held_out"][-1])

    model = ng.LDA(2, gibbs_sweeps=8, max_passes=2).fit(X, callbacks=[ng.HeldOut(held, share=1.0), look])
    assert len(set(scores[1:6])) == 1  # after the second pass, and four sweeps that do not count
    assert len(set(scores[5:])) == 5
    assert scores[-1] == model.score(held) == model.trace_["held_out"][-1]
    np.testing.assert_array_equal(seen[-1].topics_, model.topics_)
    np.testing.assert_array_equal(seen[-1].posterior_["theta"].mean(), model.posterior_["theta"].mean())
    patient = ng.LDA(2, gibbs_sweeps=40).fit(X, callbacks=[ng.HeldOut(held, share=1.0, patience=2)])
    assert 22 <= len(patient.log_likelihood_) <= 40


def test_held_out_needs_a_score():
    mu = ng.Normal("mu", 0.0, 1.0)
    network = ng.Network(ng.Normal("x", mu, 1.0, observed=1.0))
    with pytest.raises(TypeError, match="Fit has none"):
        network.fit(callbacks=[ng.HeldOut(1.0)])


def test_the_log_tells_the_beginning_each_step_and_the_end(caplog):
    with caplog.at_level(logging.DEBUG, logger="natgrad"):
        model = ng.LDA(2, inference="vb", max_passes=3, tol=0).fit(TEXTS)
    assert caplog.messages[0].startswith("fit of phi: ")
    assert sum(message.startswith("step ") for message in caplog.messages) == len(model.trace_)
    assert str(model.stop_).removesuffix(f" ({model.inference_})") in caplog.messages[-1]


def test_patience_survives_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(ng.LDA, "score", lambda self, X: -1.0)
    settings = {"tol": 0, "max_passes": 2, "seed": 0}
    kept = {"checkpoint": tmp_path, "every": 1}
    ng.LDA(2, **settings).fit(TEXTS, callbacks=[ng.HeldOut(HELD, share=1.0, patience=5)], **kept)
    fresh = ng.HeldOut(HELD, share=1.0, patience=5)
    model = ng.LDA(2, **{**settings, "max_passes": 30}).fit(TEXTS, callbacks=[fresh], resume=True, **kept)
    # The first score is the best, and five more are no better, whoever asked for them.
    assert len(model.trace_) == 6
    assert "has not risen above -1 for 5 scores" in str(model.stop_)
