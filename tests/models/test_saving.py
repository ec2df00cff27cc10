"""Saved models: after loading everything is as it was, and going on gives the same bits as never having stopped."""

import numpy as np
import pytest
from loops import compiled_loops  # noqa: F401 - for all tests here
from promises import networks
from promises.promises import same_attributes
from sklearn.exceptions import NotFittedError

import natgrad as ng
from natgrad.models.registry import MODELS

TEXTS = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 8


@pytest.fixture
def counts(rng) -> np.ndarray:
    return rng.poisson(0.4, size=(120, 30))


def test_a_compact_file_answers_alike_and_goes_on_upwards(counts, tmp_path) -> None:
    model = ng.LDA(3, inference="vb", max_passes=3, tol=0, seed=5, local=ng.LocalOptions(batch_size=20)).fit(counts)
    model.save(tmp_path / "whole")
    model.save(tmp_path / "compact", compact=True)
    assert (tmp_path / "compact").stat().st_size < 0.5 * (tmp_path / "whole").stat().st_size
    again = ng.load(tmp_path / "compact")
    np.testing.assert_array_equal(model.components_, again.components_)
    assert list(again.posterior_) == ["phi"]  # not the documents of the fit
    np.testing.assert_array_equal(model.transform(counts), again.transform(counts))
    again.continue_fit(counts, max_passes=2)
    assert again.elbo_ > model.elbo_
    assert len(again.trace_) > len(model.trace_)


def test_a_compact_fit_of_a_network_answers_alike(tmp_path) -> None:
    net, init, order = networks.scalar_mixture()
    fit = net.fit(max_steps=5, tol=0, init=init, order=order)
    assert fit.state.memory
    fit.save(tmp_path / "compact", compact=True)
    again = ng.load(tmp_path / "compact").attach(net)
    assert not again.state.memory
    for name, part in fit.state.lam.items():
        assert all(map(np.array_equal, part, again.state.lam[name]))
    assert again.continue_fit(max_steps=5, tol=0).elbo > fit.elbo


def test_a_stream_goes_on_with_words_it_never_saw(tmp_path) -> None:
    model = ng.LDA(2).partial_fit(TEXTS[:4]).partial_fit(TEXTS[4:8])
    model.save(tmp_path / "topics")
    again = ng.load(tmp_path / "topics")
    same_attributes(model, again)
    more = [[1, 2], [0, 1]]
    for one in (model, again):
        one.partial_fit(more, vocabulary=["fig", "apple"])
    same_attributes(model, again)
    assert again.vocabulary_.tolist()[-1] == "fig"


def test_settings_changed_after_the_fit_do_not_change_the_fit(counts, tmp_path) -> None:
    model = ng.LDA(3, inference="vb", max_passes=3, seed=5).fit(counts).set_params(seed=7, doc_prior=2.0)
    model.save(tmp_path / "topics")
    again = ng.load(tmp_path / "topics")
    np.testing.assert_array_equal(model.transform(counts), again.transform(counts))
    np.testing.assert_array_equal(model.posterior_["theta"].lam[0], again.posterior_["theta"].lam[0])
    assert again.seed == 7


def test_a_fit_is_attached_only_to_its_own_network(tmp_path) -> None:
    data = np.array([1.2, -0.3, 0.8, 2.1, 0.4])
    mu, points = ng.Normal("mu", 0.1, 0.5), ng.Plate("n", 5)
    network = ng.Network(ng.Normal("x", mu, 2.0, plate=points, observed=data))
    network.fit().save(tmp_path / "fit")
    saved = ng.load(tmp_path / "fit")
    fit = saved.attach(network)
    assert fit.elbo == pytest.approx(saved.elbo, rel=1e-12)
    with pytest.raises(ValueError, match="hidden nodes"):
        saved.attach(networks.pca().network)
    each = ng.Normal("mu", 0.1, 0.5, plate=points)
    with pytest.raises(ValueError, match="in the network"):
        saved.attach(ng.Network(ng.Normal("x", each, 2.0, plate=points, observed=data)))
    with pytest.raises(KeyError, match="not a hidden node of this fit"):
        saved["nothing"]


def test_what_cannot_be_saved_is_refused_in_words(counts, tmp_path) -> None:
    with pytest.raises(NotFittedError):
        ng.LDA(2).save(tmp_path / "topics")
    model = ng.MatrixFactorization(1, max_steps=2, method=ng.Children(lambda n: 2)).fit(counts[:5, :4] * 1.0)
    with pytest.raises(TypeError, match=r"method'\]\.C = .*function"):
        model.save(tmp_path / "factors")
    with pytest.raises(FileNotFoundError):
        ng.LDA(2, inference="vb", max_passes=1).fit(counts).save(tmp_path / "nowhere" / "topics")


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_is_a_public_estimator(kind) -> None:
    assert getattr(ng, kind).__module__ == MODELS[kind]
