"""No engine: the calls of BLAS and LAPACK that a step of every sparse GP must make, and nothing between them.

With K_mm = L Lᵀ, A = L⁻¹ K_mn, a Gaussian q(v) in natural parameters and the slopes of its bound in θ, Z and noise:

    dgemm  Z Zᵀ, X Zᵀ               squared distances of every pair that the kernel reads
    dpotrf K_mm                     L: there is no other way to |K_mm| and to K_mm⁻¹
    dtrtri L, dtrmm L⁻¹ K_mn        A. Four products with L⁻¹ follow; an inverse and products take less than as many solves
    dsyrk  A Aᵀ, dgemv A y          what the batch says of q: the natural step, and with it the bound
    dpotrf, dpotri of −2 λ₂         S and |S| of the new q, without which neither bound nor slope is known; dgemv S λ₁
    dgemm  (I − S) A Aᵀ             G Aᵀ, the slope of the bound in L
    dtrmm  twice, L⁻ᵀ · L⁻¹         back through the Cholesky factor, to the slope in K_mm
    dtrmm, dgemm  L⁻ᵀ (I − S) A     the slope in K_mn; (I − S) A itself, and a solve after it, would take half as much again
    dgemv, dger                     residuals, and what the mean of q adds to both slopes
    dgemm  Wᵀ X, W Z                back through the distances, to the slopes in Z and the length scales

Sizes, types and values are those of a step of natgrad at the same start; exponentials, sums and copies are left out.
"""

import gp_natgrad
import numpy as np
import scipy
from scipy.linalg import blas, lapack

from natgrad.covariance import RBF


def build(start):
    gp_natgrad.build(start)  # one thread of BLAS
    theta = RBF(lengthscale=start["lengthscale"]).theta
    size, batch, rate = len(start["z"]), int(start["batch"]), float(start["noise"])
    x, z = (np.asfortranarray(start[name][: max(size, batch)] / np.exp(theta[1])) for name in "xz")
    x = np.asfortranarray(x[:batch])
    kernel = RBF()
    k_mm = np.asfortranarray(kernel(z) + 1e-6 * np.eye(size))
    k_mn = np.asfortranarray(kernel(z, x))
    y = np.array(start["y"][:batch])
    eye = np.asfortranarray(np.eye(size))
    factor = lapack.dpotrf(k_mm, lower=1, clean=1)[0]
    a = blas.dtrmm(1.0, lapack.dtrtri(factor, lower=1)[0], k_mn, lower=1)
    precision = np.asfortranarray(eye + len(start["x"]) / batch / rate * (a @ a.T))
    shrink = np.asfortranarray(eye - np.linalg.inv(precision))
    # Buffers that calls may overwrite: a step has such ones, too.
    work = {name: np.array(value, order="F") for name, value in (("k", k_mm), ("p", precision), ("a", k_mn))}

    def step(_x, _y):
        work["k"][...], work["p"][...] = k_mm, precision
        blas.dgemm(1.0, z, z, trans_b=1)
        blas.dgemm(1.0, x, z, trans_b=1)
        lower = lapack.dpotrf(work["k"], lower=1, clean=1, overwrite_a=1)[0]
        inverse = lapack.dtrtri(lower, lower=1)[0]
        a = blas.dtrmm(1.0, inverse, k_mn, lower=1)
        outer = blas.dsyrk(1.0, a)
        by_y = blas.dgemv(1.0, a, y)
        of_q = lapack.dpotrf(work["p"], lower=0, clean=1, overwrite_a=1)[0]
        covariance = lapack.dpotri(of_q, lower=0, overwrite_c=1)[0]
        mean = blas.dsymv(1.0, covariance, by_y)
        residual = blas.dgemv(-1.0, a, mean, trans=1)
        g_at = blas.dgemm(1.0, shrink, outer)
        g_at = blas.dger(1.0, mean, by_y, a=g_at, overwrite_a=1)
        half = blas.dtrmm(-0.5, inverse, g_at, lower=1, trans_a=1, overwrite_b=1)
        slope_mm = blas.dtrmm(1.0, inverse, half, lower=1, side=1, overwrite_b=1)
        lifted = blas.dtrmm(1.0, inverse, shrink, lower=1, trans_a=1)
        slope_mn = blas.dgemm(1.0, lifted, a)
        slope_mn = blas.dger(1.0, mean, residual, a=slope_mn, overwrite_a=1)
        blas.dgemm(1.0, slope_mn, x)
        blas.dgemm(1.0, slope_mm, z)

    def predict(rows):
        return np.zeros(len(rows)), np.ones(len(rows))

    return step, predict, {"scipy": scipy.__version__}
