"""A matrix: every node, hidden and as a leaf, times everything that a network can do. What is refused is refused by name."""

import pickle

import numpy as np
import pytest
from promises.combined import ALONG_TIME, COMBINED
from promises.nodes import HIDDEN, LEAVES
from promises.structures import STRUCTURES

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

CASES = {f"leaf {name}": make for name, make in LEAVES.items()} | {
    f"hidden {name}": make for name, make in HIDDEN.items()
}
CASES |= STRUCTURES | COMBINED


def fitted(network, **options):
    return network.fit(ng.VB(), max_steps=5, tol=0, seed=0, verbose=False, **{"backend": "numpy", **options})


def predictive(network, fit, path):
    assert np.isfinite(fit.predictive("y").sample(0, 3)).all()


def log_density(network, fit, path):
    assert np.isfinite(fit.predictive("y").log_density(network.nodes["y"].value)).all()


def simulate(network, fit, path):
    drawn = network.simulate(0, 4)
    assert all(np.isfinite(value).all() for value in drawn.values())
    assert set(fit) <= set(drawn)


def simulate_posterior(network, fit, path):
    assert np.isfinite(fit.simulate(0, 4)["y"]).all()


def draws(network, fit, path):
    found = fit.draws(n=10, chains=2, warmup=5, verbose=False)
    assert all(np.isfinite(np.asarray(found[name].mean())).all() for name in fit)


def linear_response(network, fit, path):
    found = fit.linear_response()
    assert all(
        np.isfinite(found[name].std()).all() for name in fit if not hasattr(fit[name].family, "allows_minus_inf")
    )


def mini_batches(network, fit, path):
    plates = {plate.name for node in network.nodes.values() for plate in node.plates}
    sample = {"sequence": 2} if "sequence" in plates else {"n": 4}
    assert np.isfinite(network.fit(ng.SVI(sample), max_steps=5, verbose=False, backend="numpy").elbo)


def sampled_children(network, fit, path):
    assert np.isfinite(network.fit(ng.Children(4), max_steps=5, verbose=False, backend="numpy").elbo)


def saving(network, fit, path):
    """A fit that was saved is the fit, and goes on as if it never had been."""
    fit.save(path / "fit.natgrad")
    loaded = ng.load(path / "fit.natgrad")
    assert (loaded.elbo, str(loaded.stop), loaded.settings) == (fit.elbo, str(fit.stop), fit.settings)
    for name in fit:
        np.testing.assert_array_equal(loaded[name].mean(), fit[name].mean())
    one, other = fit.continue_fit(max_steps=2, tol=0), loaded.attach(network).continue_fit(max_steps=2, tol=0)
    np.testing.assert_array_equal(one.trace["elbo"], other.trace["elbo"])
    assert pickle.loads(pickle.dumps(fit)).elbo == fit.elbo


def drawing(network, fit, path):
    picture = network._repr_html_()
    assert all(name in picture for name in ("y", *(name for name in fit if "." not in name)))
    assert str(fit.summary(linear_response=None))  # five steps may not be at a maximum


def compiled(network, fit, path):
    np.testing.assert_allclose(fitted(network, backend="jax").trace["elbo"], fit.trace["elbo"], rtol=1e-8)


CAPABILITIES = (
    predictive, log_density, simulate, simulate_posterior, draws, linear_response, mini_batches, sampled_children, saving,
    drawing, compiled,
)  # fmt: skip
CUT = "cannot be cut into independent groups"
REFUSED = {
    ("hidden Dirichlet, learned", "draws"): (NotConjugate, "Declare it as a GammaShape"),
    ("Pitman–Yor, learned", "draws"): (NotConjugate, "leave discount= out"),
    **{
        (f"hidden {name}", "mini_batches"): (PlateMismatch, CUT)
        for name in ("MarkovChain", "GaussianChain", "GaussianChain, inputs")
    },
    **{(name, "mini_batches"): (PlateMismatch, CUT) for name in ALONG_TIME},
    **{
        (name, "mini_batches"): (PlateMismatch, CUT)
        for name in STRUCTURES
        if name.startswith(("switching", "left to right")) or (name.startswith("state space") and "inputs" not in name)
    },
}


# A dozen of nodes, structures and combinations: the gate saves them and goes on; everything else of them, and the rest, is slow.
DOZEN = (
    "leaf Normal, censored", "leaf Bernoulli, logit", "leaf Multinomial", "hidden StudentT", "hidden Dirichlet, shared",
    "hidden MarkovChain", "hidden GaussianChain", "censored mixture", "ordinal slopes", "level slopes and groups",
    "experts with labels", "horseshoe",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # few steps do not converge
@pytest.mark.parametrize("name", DOZEN)
def test_a_dozen_are_saved_and_drawn(name, tmp_path):
    network = ng.Network(CASES[name]())
    fit = fitted(network)
    for capability in (saving, drawing, predictive, simulate):
        capability(network, fit, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # few draws mix poorly, and few steps do not converge
@pytest.mark.parametrize("name", CASES)
def test_every_node_can_do_everything(name, tmp_path):
    network = ng.Network(CASES[name]())
    fit = fitted(network)
    assert np.diff(fit.trace["elbo"]).min() > -1e-8
    for capability in CAPABILITIES:
        expected = REFUSED.get((name, capability.__name__))
        if expected is None:
            capability(network, fit, tmp_path)
        else:
            with pytest.raises(expected[0], match=expected[1]):
                capability(network, fit, tmp_path)


def test_every_node_is_in_the_matrix():
    declared = {name for name in ng.language.__all__ if isinstance(getattr(ng.language, name), type)}
    tried = {name.split(",")[0] for name in (*LEAVES, *HIDDEN)}
    assert declared - tried <= {"Column", "Columns", "Plate"}
