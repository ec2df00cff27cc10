"""GPyTorch's exact multitask process on the rows of `benchmarks/gp_outputs.py`: error, log density, processor seconds."""

import sys
import time

import gpytorch
import numpy as np
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
STEPS, RATE = 100, 0.1


class Tasks(gpytorch.models.ExactGP):
    """Every entry that is seen is a row with the number of its output."""

    def __init__(self, inputs, outputs, likelihood, n_tasks):
        super().__init__(inputs, outputs, likelihood)
        self.mean = gpytorch.means.ZeroMean()
        self.k = gpytorch.kernels.RBFKernel(ard_num_dims=inputs[0].shape[1])
        self.b = gpytorch.kernels.IndexKernel(num_tasks=n_tasks, rank=n_tasks)

    def forward(self, x, task):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.k(x).mul(self.b(task)))


def fitted(inputs, outputs, n_tasks):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Tasks(inputs, outputs, likelihood, n_tasks).double()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        adam.zero_grad()
        (-loss(model(*inputs), outputs)).backward()
        adam.step()
    return model.eval(), likelihood.eval()


def main():
    data = np.load(sys.argv[1])
    x, y, hidden = data["x"], data["y"], data["hidden"]
    seen = np.where(hidden, np.nan, y)
    y = (y - np.nanmean(seen, 0)) / np.nanstd(seen, 0)
    x = torch.tensor((x - x.mean(0)) / x.std(0))

    def entries(which):
        rows, tasks = np.nonzero(which)
        return (x[rows], torch.tensor(tasks)[:, None]), torch.tensor(y[rows, tasks])

    began = time.process_time()
    model, likelihood = fitted(*entries(~hidden), y.shape[1])
    inputs, truth = entries(hidden)
    with torch.no_grad():
        law = likelihood(model(*inputs))
    seconds = time.process_time() - began
    off, variance = truth.numpy() - law.mean.numpy(), law.variance.numpy()
    density = -0.5 * (np.log(2 * np.pi * variance) + off**2 / variance)
    print(float(np.sqrt(np.mean(off**2))), float(density.mean()), seconds)


if __name__ == "__main__":
    main()
