"""GPyTorch on outputs with missing entries: an .npz file comes in, predictions and seconds go out.

    .bench/gpytorch/bin/python benchmarks/peers/gp_outputs_gpytorch.py rows.npz found.npz --seconds 1.5 --steps 50 100

Its exact Hadamard multitask process, as its documentation builds it: an RBF of the inputs times an IndexKernel of any rank over
the entries that are seen, a noise for each output where this version has such a likelihood; Adam with rate 0.1. A prediction is
made when so many processor seconds are over, and others after so many steps. Arrays: x [N, D], y [N, P] standardised, NaN where
hidden.
"""

import argparse
import time

import gpytorch
import numpy as np
import torch

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Model(gpytorch.models.ExactGP):
    def __init__(self, inputs, y, likelihood, n_columns, n_outputs):
        super().__init__(inputs, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.RBFKernel(ard_num_dims=n_columns)
        self.task_covar_module = gpytorch.kernels.IndexKernel(num_tasks=n_outputs, rank=n_outputs)

    def forward(self, task, x):  # in this order, as the likelihood reads the first
        covariance = self.covar_module(x).mul(self.task_covar_module(task))
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), covariance)


def likelihood_of(n_outputs):
    """Noise by output, which newer versions have."""
    hadamard = getattr(gpytorch.likelihoods, "HadamardGaussianLikelihood", None)
    return (hadamard(num_tasks=n_outputs), True) if hadamard else (gpytorch.likelihoods.GaussianLikelihood(), False)


def predictions(model, likelihood, by_task, x, n_outputs):
    model.eval(), likelihood.eval()
    means, sds = [], []
    with torch.no_grad():
        for p in range(n_outputs):
            task = torch.full((len(x), 1), p, dtype=torch.long)
            out = model(task, x)
            out = likelihood(out, [task, x]) if by_task else likelihood(out)
            means.append(out.mean.numpy()), sds.append(out.stddev.numpy())
    model.train(), likelihood.train()
    return np.stack(means, 1), np.stack(sds, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows")
    parser.add_argument("found")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--steps", type=int, nargs="+", default=[50])
    given = parser.parse_args()
    torch.manual_seed(0)  # an IndexKernel starts at random
    rows = np.load(given.rows)
    began = time.process_time()
    x, y = rows["x"], rows["y"]
    n_outputs = y.shape[1]
    where, task = np.nonzero(~np.isnan(y))
    inputs = torch.from_numpy(task)[:, None], torch.from_numpy(x[where])
    seen = torch.from_numpy(y[where, task])
    likelihood, by_task = likelihood_of(n_outputs)
    model = Model(inputs, seen, likelihood, x.shape[1], n_outputs)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    found, all_x = {}, torch.from_numpy(x)

    def note(name):
        mean, sd = predictions(model, likelihood, by_task, all_x, n_outputs)
        found.update({f"mean_{name}": mean, f"sd_{name}": sd, f"seconds_{name}": time.process_time() - began})

    # Beyond 800 rows it would take conjugate gradients, which do not converge here.
    gpytorch.settings.max_cholesky_size._set_value(100_000)
    for step in range(1, max(given.steps) + 1):
        adam.zero_grad()
        loss = -evidence(model(*inputs), seen, list(inputs)) if by_task else -evidence(model(*inputs), seen)
        loss.backward()
        adam.step()
        if "mean_equal" not in found and time.process_time() - began > given.seconds:
            note("equal")
        if step in given.steps:
            note(str(step))
    if "mean_equal" not in found:
        note("equal")
    np.savez(given.found, version=gpytorch.__version__, by_task=by_task, **found)


if __name__ == "__main__":
    main()
