"""Networks and ready models without JAX: who asks for it is told what is missing (slow)."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "optax"):
            raise ImportError(f"no {name} here")

sys.meta_path.insert(0, Missing())
import numpy as np, natgrad as ng

rng = np.random.default_rng(0)
y = rng.normal(3.0, 1.0, 20)
network = ng.Network(ng.Normal("y", ng.Normal("m", 0.0, 0.01), ng.Gamma("t", 1.0, 1.0), plate=ng.Plate("n", 20), observed=y))
fit = network.fit()
assert abs(fit["m"].mean() - y.mean()) < 0.1
fit.draws(n=20, warmup=5, chains=2, verbose=False)
fit.linear_response()
fit.summary()
w, five = ng.Wishart("w", 4.0, np.eye(2)), ng.Plate("p", 5)
v = ng.MultivariateNormal("v", np.zeros(2), w, plate=five, observed=rng.normal(size=(5, 2)))
ng.Network(v).fit()
ng.LDA(2).fit(rng.poisson(1, (20, 8)))
ng.MatrixFactorization(2).fit(ng.data.make_ratings(30, 20, 200, seed=0).ratings)
ng.GaussianHMM(2).fit(rng.normal(size=(60, 1)))
ng.GaussianMixture(2).fit(rng.normal(size=(60, 2)))
ng.SparseGPRegressor(max_steps=2).fit(y[:, None], y)
try:
    network.fit(backend="jax")
except ImportError as error:
    assert "pip install jax" in str(error), error
else:
    raise AssertionError("there is no JAX here")
print("fine")
"""


@pytest.mark.slow
def test_networks_and_ready_models_work_without_jax():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr
