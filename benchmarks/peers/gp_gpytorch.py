"""GPyTorch: NGD on q(u) in natural parameters, Adam on the rest, one backward pass for both."""

import gpytorch
import torch

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, start):
        z = torch.tensor(start["z"])
        q = gpytorch.variational.NaturalVariationalDistribution(len(z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, z, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ZeroMean()
        base = gpytorch.kernels.RBFKernel(ard_num_dims=z.shape[1])
        base.lengthscale = torch.tensor(start["lengthscale"])
        self.covar_module = gpytorch.kernels.ScaleKernel(base)
        self.covar_module.outputscale = 1.0

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def build(start):
    model, likelihood = Model(start), gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = float(start["noise"])
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(start["x"]))
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(start["x"]), lr=float(start["rho"]))
    rest = [*model.hyperparameters(), *likelihood.parameters()]
    adam = torch.optim.Adam(rest, lr=float(start["rate"]))
    model.train()
    likelihood.train()

    def take(x, y):
        natural.zero_grad()
        adam.zero_grad()
        loss = -bound(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        natural.step()
        adam.step()

    def predict(x):
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            out = likelihood(model(torch.from_numpy(x)))
            mean, var = out.mean.numpy().copy(), out.variance.numpy().copy()
        model.train()
        likelihood.train()
        return mean, var

    return take, predict, {"gpytorch": gpytorch.__version__, "torch": torch.__version__}
