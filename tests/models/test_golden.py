"""Model files that version 0.1.0 wrote: every kind still loads, and says the numbers that it said then."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import natgrad as ng

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NUMBERS = json.loads((GOLDEN / "numbers-0.1.0.json").read_text())


def data():
    """What the models were fitted to, drawn in the same order."""
    rng = np.random.default_rng(0)
    rng.poisson(0.7, (20, 8))
    table = np.round(rng.normal(size=(9, 2)) @ rng.normal(size=(2, 7)), 3)
    rng.random(table.shape)
    return {
        "gp": np.linspace(0, 3, 25)[:, None],
    }  # fmt: skip


def said(name, model):
    kind = name.split("-")[0]
    if kind == "fit":
        return model["mu"].mean()
    if kind == "factorization":
        return model.predict([0, 1], [2, 3])
    return (model.predict_proba if name == "gp-classifier" else model.predict)(data()["gp"][:4])


@pytest.mark.parametrize("name", NUMBERS)
def test_a_file_of_the_first_version_says_what_it_said(name, tmp_path):
    model = ng.load(GOLDEN / f"{name}-0.1.0.natgrad")
    np.testing.assert_allclose(np.ravel(said(name, model)), NUMBERS[name], rtol=1e-7, atol=1e-10)
    assert len(str(model.stop if name.startswith("fit") else model.stop_)) > 10
    trace = model.trace if name.startswith("fit") else model.trace_
    assert (np.diff(trace["messages_read"]) > 0).all()
    if not name.startswith("fit"):
        model.save(tmp_path / "again")
        np.testing.assert_array_equal(said(name, ng.load(tmp_path / "again")), said(name, model))


def test_settings_have_their_new_names():
    loaded = {name: ng.load(GOLDEN / f"{name}-0.1.0.natgrad") for name in NUMBERS if not name.startswith("fit")}
    assert loaded["factorization"].noise_per == "user"
    assert loaded["factorization"].noise_dof == 5.0
    assert loaded["factorization"].max_messages == 10**6
    assert loaded["factorization-likes"].n_negatives == 3.0


@pytest.mark.parametrize("name", [name for name in NUMBERS if name.startswith("fit")])
def test_a_network_goes_on_from_its_file(name):
    rng = np.random.default_rng(1)
    point, component = ng.Plate("point", 12), ng.Plate("component", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=point)
    mu, tau = ng.Normal("mu", 0.0, 0.1, plate=component), ng.Gamma("tau", 1.0, 1.0)
    y = np.concatenate([rng.normal(size=6) - 2, rng.normal(size=6) + 2])
    network = ng.Network(ng.Normal("y", mu[z], tau, plate=point, observed=y))
    fit = ng.load(GOLDEN / f"{name}-0.1.0.natgrad").attach(network).continue_fit(ng.VB(), max_steps=200)
    best = network.fit(init={"mu": [-1.0, 1.0]}, max_steps=300)
    assert fit.elbo == pytest.approx(best.elbo, abs=1e-2)


def test_the_fit_of_a_network_is_read_where_nothing_of_networks_was_imported():
    path = GOLDEN / "fit-accelerated-0.1.0.natgrad"
    code = f"import natgrad as ng; print(type(ng.load({str(path)!r})).__name__)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "SavedFit", ended.stderr
