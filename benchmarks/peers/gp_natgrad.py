"""natgrad: the engine's step on the sparse GP problem."""

import time

import jax
import numpy as np
from threadpoolctl import threadpool_limits

import natgrad
from natgrad.covariance import RBF
from natgrad.data.rows import Scaling
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.groups import FOLLOWING, ExactPass, GroupStepper
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.problem import GPProblem, Predictor
from natgrad.models.gp.settings import Settings


class Handed:
    """Rows that are handed in batch by batch, so that every engine reads the same."""

    n_outputs = 1

    def __init__(self, x, y):
        self.x, self.y, self.n, self.batch = x, y, len(x), None
        self.y_scaling = Scaling.none(self.n_outputs)

    def __len__(self):
        return self.n

    def take(self, numbers):
        return self.batch

    def pieces(self, size):
        for begin in range(0, self.n, size):
            yield self.x[begin : begin + size], self.y[begin : begin + size, None]


def build(start):
    threadpool_limits(1, user_api="blas")
    kernel, likelihood = RBF(lengthscale=start["lengthscale"]), Gaussian()
    rows = Handed(start["x"], start["y"])
    problem = GPProblem(rows, kernel, likelihood, n_inducing=len(start["z"]), rate=float(start["rate"]), jitter=1e-6)
    psi = np.array([likelihood.start(float(start["noise"]))])
    held = {"state": problem.start(Settings(kernel.theta, start["z"], psi))}
    rho = float(start["rho"])
    rule = Constant(rho) if rho > 0 else FOLLOWING
    stepper = GroupStepper(problem, int(start["batch"]), *problem.local_limits, rule, remember=False)

    def take(x, y):
        rows.batch = x, y[:, None]
        held["state"], _ = stepper.step(held["state"], 0)

    def exact():
        """The exact pass that ends a fit, in seconds."""
        begin = time.perf_counter()
        held["end"], _ = ExactPass(problem).step(held["state"], 0)
        return time.perf_counter() - begin

    def predict(x):
        state = held.pop("end", held["state"])
        settings = state.hyper["settings"]
        q, inducing = problem.posterior(state.lam["v"]), problem.factor(settings)
        mean, var = Predictor(problem.kernel, settings, inducing, q, problem.offset).latent(x)
        return mean[:, 0], var[:, 0] + likelihood.variance(float(settings.psi[0]))

    if start.get("exact"):
        predict.exact = exact
    return take, predict, {"natgrad": natgrad.__version__, "jax": jax.__version__}
