"""Compiled programs are shared by networks of one structure."""

import jax
import numpy as np
import pytest

import natgrad as ng
from natgrad import _jax
from natgrad._jax import compiled, in_64_bits


@pytest.fixture
def programs(monkeypatch):
    """The programs in memory, none at first."""
    monkeypatch.setattr(_jax, "_PROGRAMS", type(_jax._PROGRAMS)())
    return _jax._PROGRAMS


def fitted(size=6, seed=0, backend="jax"):
    data = np.random.default_rng(seed).normal(size=size)
    n = ng.Plate("n", size)
    mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    network = ng.Network(ng.Normal("y", mu, tau, plate=n, observed=data))
    return network.fit(ng.VB(), max_steps=3, tol=0, backend=backend, verbose=False)


def test_one_structure_is_compiled_once(programs):
    first = fitted()
    known = set(programs)
    assert known
    again, other = fitted(), fitted(seed=1)
    assert set(programs) == known
    np.testing.assert_array_equal(again.trace["elbo"], first.trace["elbo"])
    np.testing.assert_allclose(other.trace["elbo"], fitted(seed=1, backend="numpy").trace["elbo"], rtol=1e-12)
    fitted(7)
    assert set(programs) > known  # another shape is another program


def test_functions_with_the_same_shapes_and_other_constants_are_other_programs(programs):
    with in_64_bits():
        found = [float(compiled(lambda x, c=c: x * c)(np.float64(3.0))) for c in (1.0, 2.0, np.nextafter(2.0, 3.0))]
    assert found == [3.0, 6.0, float(np.nextafter(2.0, 3.0) * 3.0)]


def test_shapes_types_and_static_arguments(programs):
    function = compiled(lambda n, x, y: x * n + y, static=(0,))
    plain = compiled(lambda x: x + 1)
    with in_64_bits():
        assert function(2, np.arange(3.0), 1.0).tolist() == [1.0, 3.0, 5.0]
        assert function(3, np.arange(3.0), 1.0).tolist() == [1.0, 4.0, 7.0]
        assert function(3, np.arange(2), 1).dtype == np.int64
        for argument in (np.arange(2.0), np.arange(3.0), np.arange(3), np.float32(1.0), 1.0, {"a": 1.0}["a"]):
            found = np.asarray(plain(argument))
            np.testing.assert_array_equal(found, np.asarray(argument) + 1)
            assert found.dtype == np.asarray(argument).dtype


def test_the_configuration_of_the_process_stays_as_it_is(programs):
    before = {name: getattr(jax.config, name) for name in ("jax_compilation_cache_dir", "jax_enable_x64")}
    fitted()
    assert {name: getattr(jax.config, name) for name in before} == before
