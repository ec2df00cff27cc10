"""A process that was forked after a fit: ready models work there, and what needs JAX says so instead of waiting for ever."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

BEGIN = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
import numpy as np
import natgrad as ng
from natgrad.models.factorization import rows, sides
from natgrad import threads
# Every loop is cut for several threads, however small it is, on every machine.
threads.LITTLE_WORK = sides.LEAST_RATINGS = rows.LEAST_RATINGS = 0
threads.most_threads = lambda: 2
rng = np.random.default_rng(0)
counts = rng.poisson(0.7, (60, 20))
table = np.where(rng.random((30, 20)) < 0.5, rng.integers(1, 6, (30, 20)), np.nan)
series = rng.normal(size=(200, 2))
normal = ng.Normal("mu", 0.0, 1.0)
data = ng.Normal("y", normal, 1.0, plate=ng.Plate("n", 5), observed=np.arange(5.0))
FITS = {
    "lda": lambda: ng.LDA(2, inference="vb", max_passes=2, verbose=False).fit(counts).elbo_,
    "gibbs": lambda: ng.LDA(2, inference="gibbs", max_passes=2, verbose=False).fit(counts).components_.sum(),
    "factors": lambda: ng.MatrixFactorization(2, max_steps=3, verbose=False).fit(table).elbo_,
    "hmm": lambda: ng.GaussianHMM(2, max_passes=3, n_init=1, n_jobs=2, verbose=False).fit(series).elbo_,
    "gp": lambda: ng.SparseGPRegressor(n_inducing=5, max_steps=5, verbose=False).fit(series[:, :1], series[:, 1]).elbo_,
    "network": lambda: ng.Network(data).fit(verbose=False).elbo,
    "compiled network": lambda: ng.Network(data).fit(verbose=False, backend="jax").elbo,
}


def fitted(name):
    return FITS[name]()


def forked(names):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(fitted, names)
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_ready_models_fit_in_a_pool_of_forked_processes():
    names = ["lda", "gibbs", "factors", "hmm", "gp", "network"]
    assert (
        run(f"""
names = {names}
here = list(map(fitted, names))
assert threads._POOL._threads is not None, "no thread was ever needed: this test shows nothing"
assert forked(names * 2) == here * 2
print("same")
""")
        == "same\n"
    )


def test_a_compiled_network_in_a_forked_child_says_what_to_do_instead_of_hanging():
    said = run("""
fitted("compiled network")
try:
    forked(["compiled network"])
except RuntimeError as error:
    print(error)
""")
    assert '.get_context("spawn")' in said


def test_a_fork_before_the_first_fit_is_fine():
    assert (
        run("""
(there,) = forked(["compiled network"])
assert there == fitted("compiled network")
print("same")
""")
        == "same\n"
    )
