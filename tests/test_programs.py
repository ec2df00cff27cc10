"""Compiled programs are shared by networks of one structure."""

import gc
import weakref

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


def test_the_bound_of_a_fit_compiles_nothing(programs):
    fit = fitted()
    known = set(programs)
    assert fit.elbo == fit.trace["elbo"][-1]
    assert set(programs) == known
    assert sum(fit.elbo_by_node().values()) == pytest.approx(fit.elbo, rel=1e-13)  # evaluated directly
    assert set(programs) > known


@pytest.mark.parametrize("given", [float, lambda number: np.full(4, number)], ids=["numbers", "arrays"])
def test_numbers_of_priors_compile_nothing(programs, given):
    def with_prior(mean, precision, backend="jax"):
        n = ng.Plate("n", 4)
        mu = ng.Normal("mu", given(mean), given(precision), plate=n)
        y = ng.Normal("y", mu, given(precision), plate=n, observed=np.arange(4.0))
        return ng.Network(y).fit(backend=backend, verbose=False)

    first = with_prior(1.0, 1.3)
    known = set(programs)
    second = with_prior(2.0, 1.3)
    np.testing.assert_allclose(second["mu"].mean() - first["mu"].mean(), 0.5)
    third = with_prior(-0.5, 2.0)  # −½ of the density times 2 is a number that other densities have
    assert set(programs) == known
    np.testing.assert_allclose(third.elbo, with_prior(-0.5, 2.0, "numpy").elbo, rtol=1e-12)


def test_memory_is_bounded_and_networks_are_freed(programs, monkeypatch):
    monkeypatch.setattr(_jax, "MAX_PROGRAMS", 4)
    dropped = [weakref.ref(fitted(size).problem) for size in (11, 12, 13)]
    gc.collect()
    assert all(reference() is None for reference in dropped)
    assert len(programs) <= 4


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
