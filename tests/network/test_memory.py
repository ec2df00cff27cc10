"""Networks that are dropped leave nothing behind: no problem, no compiled function, no arrays."""

import gc
import weakref

import jax
import numpy as np

import natgrad as ng


def fitted(size, method=None):
    """A network of its own shapes, fitted and dropped; a weak reference to what was compiled."""
    n, data = ng.Plate("n", size), np.linspace(-1.0, 1.0, size)
    mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    b = ng.Normal("b", mu, 1.0, plate=n)
    network = ng.Network(ng.Normal("y", b, tau, plate=n, observed=data))
    fit = network.fit(method, max_steps=2, tol=0)
    assert np.isfinite(fit.elbo)
    return weakref.ref(network.problem)


def alive():
    """Arrays that JAX still holds."""
    gc.collect()
    return len(jax.live_arrays())


def test_dropped_networks_are_freed():
    for method in (None, ng.SVI({"n": 3})):
        fitted(7, method)
    before = alive()
    dropped = [fitted(size) for size in (8, 9, 10)] + [fitted(11, ng.SVI({"n": 3}))]
    assert alive() <= before
    assert all(reference() is None for reference in dropped)
