"""Random networks of scalars with known precisions: with the factors that they share by default the bound is the evidence.

The reference knows nothing of natgrad: the joint law of all scalars and data is a Gaussian, built row by row.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import natgrad as ng


class Scalars:
    """Scalars whose means are sums of earlier ones, and data whose means are sums of some of them times known numbers."""

    def __init__(self, seed):
        rng = np.random.default_rng([seed, 99])
        n, self.offset = int(rng.integers(2, 7)), 10.0 ** rng.integers(-1, 4)
        self.mean, self.covariance = np.zeros(n), np.zeros((n, n))  # of the scalars before any data
        names = [str(name) for name in rng.permutation(["a", "mean", "0", "x+y", "sample", "τ", "joint"])[:n]]
        self.nodes, self.names = [], names
        for k, name in enumerate(names):
            parents = [j for j in range(k) if rng.random() < 0.4]
            numbers, constant, precision = rng.normal(size=len(parents)), rng.normal(), rng.gamma(2.0) + 0.1
            self.mean[k] = constant + numbers @ self.mean[parents]
            row = numbers @ self.covariance[parents]
            self.covariance[k], self.covariance[:, k] = row, row
            self.covariance[k, k] = numbers @ self.covariance[np.ix_(parents, parents)] @ numbers + 1.0 / precision
            mean = sum((float(c) * self.nodes[j] for c, j in zip(numbers, parents, strict=True)), float(constant))
            self.nodes.append(ng.Normal(name, mean, precision))
        self.children, self.data, rows, noise, shift = [], [], [], [], []
        for c in range(int(rng.integers(1, 4))):
            size, read = int(rng.integers(1, 6)), [j for j in range(n) if rng.random() < 0.6] or [0]
            numbers, precision = rng.normal(size=(len(read), size)), rng.gamma(2.0) + 0.1
            y = self.offset + rng.normal(size=size)
            mean = sum(numbers[i] * self.nodes[j] for i, j in enumerate(read))
            plate = ng.Plate(f"plate {c}", size)
            self.children.append(ng.Normal(f"y{c}", mean + self.offset, precision, plate=plate, observed=y))
            design = np.zeros((size, n))
            design[:, read] = numbers.T
            rows.append(design)
            noise.append(np.full(size, 1.0 / precision))
            shift.append(np.full(size, self.offset))
            self.data.append(y)
        self.design, self.noise = np.concatenate(rows), np.concatenate(noise)
        self.y = np.concatenate(self.data) - np.concatenate(shift)

    def exact(self):
        """Evidence, and means and covariances of the scalars given the data."""
        both = self.design @ self.covariance @ self.design.T + np.diag(self.noise)
        gain = np.linalg.solve(both, self.design @ self.covariance).T
        mean = self.mean + gain @ (self.y - self.design @ self.mean)
        return (
            multivariate_normal(self.design @ self.mean, both).logpdf(self.y),
            mean,
            self.covariance - gain @ self.design @ self.covariance,
        )


@pytest.mark.parametrize("start", [0, pytest.param(20, marks=pytest.mark.slow)])
def test_the_bound_of_scalars_that_share_a_factor_is_the_evidence(start):
    joined = 0
    for seed in range(start, start + (20 if start == 0 else 980)):
        case = Scalars(seed)
        evidence, mean, covariance = case.exact()
        network = ng.Network(*case.children)
        fit = network.fit(tol=1e-10, max_steps=2000, verbose=False)
        assert fit.elbo <= evidence + 1e-8 * (1 + abs(evidence)), seed
        groups = {member.joint for member in network.problem.plan.members.values()}
        joined += bool(groups)
        alone = network.with_joint(None).fit(tol=1e-10, max_steps=2000, verbose=False)
        assert fit.elbo >= alone.elbo - 1e-7 * (1 + abs(alone.elbo)), seed
        there = [k for k, name in enumerate(case.names) if name in fit]  # the others have no path to data
        means, sds = (np.array([getattr(fit[case.names[k]], what)() for k in there]) for what in ("mean", "std"))
        sd = np.sqrt(np.diag(covariance))[there]
        np.testing.assert_allclose((means - mean[there]) / sd, 0.0, atol=1e-4, err_msg=str(seed))
        if len(network.problem.blocks) == 1:
            np.testing.assert_allclose(fit.elbo, evidence, rtol=1e-9, err_msg=str(seed))
            np.testing.assert_allclose(sds, sd, rtol=1e-7, err_msg=str(seed))
    assert joined >= 0.7 * (20 if start == 0 else 980)
