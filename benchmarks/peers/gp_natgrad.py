"""natgrad: steps of `SparseGPRegressor.partial_fit`, each on a batch that is handed in."""

import jax
import numpy as np
from threadpoolctl import threadpool_limits

import natgrad as ng
from natgrad.models.gp import Solver


def build(start):
    threadpool_limits(1, user_api="blas")
    solver = Solver(
        batch_size=int(start["batch"]), learning_rate=float(start["rate"]), step=ng.Constant(float(start["rho"])),
        standardize=False, jitter=1e-6,
    )  # fmt: skip
    kernel = ng.covariance.RBF(lengthscale=start["lengthscale"])
    model = ng.SparseGPRegressor(
        kernel, inducing=start["z"], noise_variance=float(start["noise"]), solver=solver, verbose=False
    )

    def take(x, y):
        model.partial_fit(x, y, n_total=len(start["x"]))

    def predict(x):
        mean, std = model.predict(np.asarray(x), return_std=True)
        return mean, std**2

    return take, predict, {"natgrad": ng.__version__, "jax": jax.__version__}
