"""What JAX compiled is shared by networks of one structure and kept across processes; without a place nothing is lost."""

import gc
import os
import subprocess
import sys
import weakref

import jax
import numpy as np
import pytest

import natgrad as ng
from natgrad import _programs
from natgrad._jax import in_64_bits
from natgrad.network.execute.source import plan_hash


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, on disk and in memory."""
    monkeypatch.setenv("NATGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NATGRAD_CACHE_SOURCE", "on")
    begin_anew(monkeypatch)
    yield tmp_path / "cache" / "programs"
    _programs.cache_folder.cache_clear()


@pytest.fixture
def compilations(monkeypatch):
    """How often JAX was asked to compile."""
    count, compile_ = [], jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self, *a: count.append(1) or compile_(self, *a))
    return count


def begin_anew(monkeypatch):
    """As a new process would."""
    _programs.cache_folder.cache_clear()
    monkeypatch.setattr(_programs, "PROGRAMS", _programs.Programs())


def network(size=6, seed=0, name="mu"):
    data = np.random.default_rng(seed).normal(size=size)
    n = ng.Plate("n", size)
    mu, tau = ng.Normal(name, 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("y", mu, tau, plate=n, observed=data))


def fitted(*arguments):
    return network(*arguments).fit(ng.VB(), max_steps=3, tol=0, backend="jax", verbose=False)


def test_the_same_declaration_is_compiled_once(folder, compilations):
    first = fitted()
    assert compilations
    compilations.clear()
    again, other = fitted(), fitted(6, 1)  # other data, too
    assert again.elbo == first.elbo
    assert other.elbo != first.elbo
    assert not compilations
    fitted(7)
    assert compilations  # another shape is another program


def test_names_of_nodes_do_not_matter_on_disk(folder, compilations, monkeypatch):
    first = fitted()
    begin_anew(monkeypatch)
    compilations.clear()
    renamed = fitted(6, 0, "location")
    np.testing.assert_array_equal(renamed["location"].mean(), first["mu"].mean())
    assert not compilations


def test_another_process_compiles_nothing_and_has_the_same_bits(folder, compilations, monkeypatch):
    first = fitted()
    begin_anew(monkeypatch)
    compilations.clear()
    second = fitted()
    assert not compilations
    np.testing.assert_array_equal(second.trace["elbo"], first.trace["elbo"])


@pytest.fixture
def traced(monkeypatch):
    """How often a network was traced."""
    count, lower = [], jax.stages.Traced.lower
    monkeypatch.setattr(jax.stages.Traced, "lower", lambda self, *a, **k: count.append(1) or lower(self, *a, **k))
    return count


def test_another_process_does_not_even_trace_what_it_had(folder, traced, monkeypatch):
    first = fitted()
    assert traced
    traced.clear()
    assert fitted().elbo == first.elbo  # the same declaration once more
    begin_anew(monkeypatch)
    second = fitted()
    assert not traced
    np.testing.assert_array_equal(second.trace["elbo"], first.trace["elbo"])


@pytest.mark.parametrize(
    "change",
    [
        lambda patched: {"seed": 1},  # one number of the data
        lambda patched: patched.setattr(_programs, "_code", lambda: "an edited file"),
        lambda patched: patched.setattr("natgrad.network.execute.choice.MOST_AHEAD", 8),
    ],
    ids=["data", "code", "constant"],
)
def test_whatever_is_another_is_traced(folder, traced, monkeypatch, change):
    fitted()
    begin_anew(monkeypatch)
    traced.clear()
    arguments = change(monkeypatch) or {}
    found = network(**arguments).fit(ng.VB(), max_steps=3, tol=0, backend="jax", verbose=False)
    assert traced
    expected = network(**arguments).fit(ng.VB(), max_steps=3, tol=0, backend="numpy", verbose=False)
    np.testing.assert_allclose(found.trace["elbo"], expected.trace["elbo"], rtol=1e-12)


def test_settings_of_jax_are_part_of_what_is_traced(folder, traced):
    fitted()
    traced.clear()
    with jax.default_matmul_precision("float32"):
        fitted()
    assert traced


def test_classes_of_others_are_traced(folder, traced, monkeypatch):
    class Own(ng.Gamma):
        """A class whose code is in no file of natgrad."""

    def declared(kind):
        n = ng.Plate("n", 3)
        return ng.Network(ng.Poisson("y", kind("rate", 1.0, 1.0, plate=n), plate=n, observed=[1, 2, 3]))

    assert plan_hash(declared(ng.Gamma)._plan) is not None
    assert plan_hash(declared(Own)._plan) is None


def test_the_hash_of_a_plan_is_that_of_its_numbers_and_names():
    hashes = [
        plan_hash(network(*arguments)._plan) for arguments in [(), (6, 0, "mu"), (6, 1), (7,), (6, 0, "location")]
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


@pytest.mark.slow
def test_a_program_that_calls_lapack_runs_without_being_lowered(folder):
    """In a process of its own: nothing else has told JAX where LAPACK is, nor imported the package that has it."""
    code = """
import sys
import numpy as np
import natgrad as ng
rng = np.random.default_rng(0)
X, n = rng.normal(size=(30, 3)), ng.Plate("n", 30)
w = ng.MultivariateNormal("w", np.zeros(3), np.eye(3))
fit = ng.Network(ng.Normal("y", ng.dot(w, X), ng.Gamma("tau", 1.0, 1.0), plate=n, observed=X.sum(1))).fit(
    ng.VB(), max_steps=4, tol=0, backend="jax", verbose=False)
print(repr(fit.elbo))
"""
    told = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert told[0] == told[1]


def test_the_bound_of_a_fit_compiles_nothing(folder, compilations):
    fit = fitted()
    compilations.clear()
    assert fit.elbo == fit.trace["elbo"][-1]
    assert not compilations
    assert sum(fit.elbo_by_node().values()) == pytest.approx(fit.elbo, rel=1e-13)  # evaluated directly
    assert compilations


@pytest.mark.parametrize("given", [float, lambda number: np.full(4, number)], ids=["numbers", "arrays"])
def test_numbers_of_priors_compile_nothing(folder, compilations, given):
    def with_prior(mean, precision, backend="jax"):
        n = ng.Plate("n", 4)
        mu = ng.Normal("mu", given(mean), given(precision), plate=n)
        y = ng.Normal("y", mu, given(precision), plate=n, observed=np.arange(4.0))
        return ng.Network(y).fit(backend=backend, verbose=False)

    first = with_prior(1.0, 1.3)
    compilations.clear()
    second = with_prior(2.0, 1.3)
    np.testing.assert_allclose(second["mu"].mean() - first["mu"].mean(), 0.5)
    third = with_prior(-0.5, 2.0)  # −½ of the density times 2 is a number that other densities have
    assert not compilations
    np.testing.assert_allclose(third.elbo, with_prior(-0.5, 2.0, "numpy").elbo, rtol=1e-12)


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 500)])
def test_a_damaged_file_is_compiled_anew(folder, compilations, monkeypatch, damage):
    first = fitted()
    for path in folder.iterdir():
        damage(path)
    begin_anew(monkeypatch)
    compilations.clear()
    assert fitted().elbo == first.elbo
    assert compilations


def test_a_program_that_does_not_run_is_compiled_after_all(folder, compilations, monkeypatch):
    first = fitted()

    def broken(*arguments):
        def program(*arguments):
            raise jax.errors.JaxRuntimeError("NOT_FOUND: Function fusion not found")

        return program

    begin_anew(monkeypatch)
    compilations.clear()
    monkeypatch.setattr("jax.experimental.serialize_executable.deserialize_and_load", broken)
    assert fitted().elbo == first.elbo
    assert compilations


def test_a_cache_of_the_users_own_is_left_to_jax(folder, monkeypatch):
    # What JAX loads from its cache cannot be written down again.
    monkeypatch.setattr(_programs, "_jax_keeps", lambda: True)
    assert np.isfinite(fitted().elbo)
    assert not list(folder.iterdir())


def test_off_means_off(folder, monkeypatch):
    monkeypatch.setenv("NATGRAD_CACHE", "off")
    _programs.cache_folder.cache_clear()
    assert np.isfinite(fitted().elbo)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_or_is_not_ours_alone_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("NATGRAD_CACHE_DIR", str(tmp_path / "file"))
    begin_anew(monkeypatch)
    assert _programs.cache_folder() is None
    assert np.isfinite(fitted(9).elbo)
    shared = tmp_path / "shared" / "programs"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    monkeypatch.setenv("NATGRAD_CACHE_DIR", str(tmp_path / "shared"))
    begin_anew(monkeypatch)
    assert (_programs.cache_folder() is None) == hasattr(os, "getuid")
    _programs.cache_folder.cache_clear()


def test_where_the_folder_is(monkeypatch, tmp_path):
    for name in ("NATGRAD_CACHE_DIR", "NATGRAD_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _programs.cache_folder.cache_clear()
    assert _programs.cache_folder() == tmp_path / "natgrad" / "programs"
    _programs.cache_folder.cache_clear()


def test_the_oldest_files_go_first(folder, monkeypatch):
    folder.mkdir(parents=True)
    for age, name in enumerate("abc"):
        (folder / name).write_bytes(bytes(600_000))
        os.utime(folder / name, (1000 + age, 1000 + age))
    monkeypatch.setenv("NATGRAD_CACHE_SIZE", "1")
    _programs._shrink(folder)
    assert [path.name for path in folder.iterdir()] == ["c"]


def test_memory_is_bounded_and_networks_are_freed(folder, monkeypatch):
    monkeypatch.setattr(_programs, "KEPT", 4)
    dropped = [weakref.ref(fitted(size).problem) for size in (11, 12, 13)]
    gc.collect()
    assert all(reference() is None for reference in dropped)
    assert len(_programs.PROGRAMS._kept) <= 4


def test_shapes_types_and_static_arguments(folder):
    function = _programs.compiled(lambda n, x, y: x * n + y, static=(0,))
    plain = _programs.compiled(lambda x: x + 1)
    with in_64_bits():
        assert function(2, np.arange(3.0), 1.0).tolist() == [1.0, 3.0, 5.0]
        assert function(3, np.arange(3.0), 1.0).tolist() == [1.0, 4.0, 7.0]
        assert function(3, np.arange(2), 1).dtype == np.int64
        for argument in (np.arange(2.0), np.arange(3.0), np.arange(3), np.float32(1.0), 1.0, {"a": 1.0}["a"]):
            found = np.asarray(plain(argument))
            np.testing.assert_array_equal(found, np.asarray(argument) + 1)
            assert found.dtype == np.asarray(argument).dtype


def test_the_configuration_of_the_process_stays_as_it_is(folder):
    before = {name: getattr(jax.config, name) for name in ("jax_compilation_cache_dir", "jax_enable_x64")}
    fitted()
    assert {name: getattr(jax.config, name) for name in before} == before
