"""Seconds per sweep of BayesPy on one problem: an .npz file comes in, a JSON record goes out.

Run by ``benchmarks/engine.py`` inside BayesPy's own environment, where natgrad is not installed:

    .bench/bayespy/bin/python benchmarks/peers/bayespy_engine.py lda arrays.npz result.json --sweeps 10

A sweep is one call of ``VB.update``: every latent factor once, then the bound, as BayesPy does it by itself.
"""

import argparse
import contextlib
import io
import json
import platform
import resource
import time
import warnings
from collections.abc import Callable

import bayespy
import numpy as np
import scipy
from bayespy.inference import VB
from bayespy.nodes import (
    Categorical,
    CategoricalMarkovChain,
    Dirichlet,
    Dot,
    Gamma,
    Gaussian,
    GaussianARD,
    Mixture,
    SumMultiply,
    Take,
    Wishart,
)

Arrays = dict[str, np.ndarray]


def mixture(a: Arrays) -> VB:
    (N, D), K = a["y"].shape, len(a["start_mu"])
    alpha = Dirichlet(np.ones(K))
    z = Categorical(alpha, plates=(N,))
    mu, lam = _components(a, D, K)
    y = Mixture(z, Gaussian, mu, lam)
    y.observe(a["y"])
    return VB(y, z, mu, lam, alpha)


def pca(a: Arrays) -> VB:
    (N, D), K = a["y"].shape, a["start_w"].shape[1]
    ard = Gamma(1e-3, 1e-3, plates=(K,))
    w = GaussianARD(0, ard, plates=(D,), shape=(K,))
    x = GaussianARD(0, 1, plates=(N, 1), shape=(K,))
    tau = Gamma(1e-3, 1e-3)
    y = GaussianARD(Dot(w, x), tau)
    y.observe(a["y"])
    w.initialize_from_value(a["start_w"])
    return VB(y, x, w, ard, tau)


def regression(a: Arrays) -> VB:
    D = a["X"].shape[1]
    alpha = Gamma(1e-3, 1e-3, plates=(D,))
    w = GaussianARD(0, alpha, shape=(D,))
    tau = Gamma(1e-3, 1e-3)
    y = GaussianARD(SumMultiply("d,d", w, a["X"]), tau)
    y.observe(a["y"])
    return VB(y, w, alpha, tau)


def factorization(a: Arrays) -> VB:
    n_users, (n_items, K) = a["user"].max() + 1, a["start_v"].shape
    u = GaussianARD(0, 1, plates=(n_users,), shape=(K,))
    v = GaussianARD(0, 1, plates=(n_items,), shape=(K,))
    r = GaussianARD(Dot(Take(u, a["user"]), Take(v, a["item"])), 1)
    r.observe(a["rating"])
    v.initialize_from_value(a["start_v"])
    return VB(r, u, v)


def factorization_dense(a: Arrays) -> VB:
    """The same model as a masked matrix of users × items: BayesPy's other way, kept to compare."""
    n_users, (n_items, K) = a["user"].max() + 1, a["start_v"].shape
    value, seen = np.zeros((n_users, n_items)), np.zeros((n_users, n_items), bool)
    value[a["user"], a["item"]], seen[a["user"], a["item"]] = a["rating"], True
    u = GaussianARD(0, 1, plates=(n_users, 1), shape=(K,))
    v = GaussianARD(0, 1, plates=(n_items,), shape=(K,))
    r = GaussianARD(Dot(u, v), 1)
    r.observe(value, mask=seen)
    v.initialize_from_value(a["start_v"])
    return VB(r, u, v)


def hmm(a: Arrays) -> VB:
    (T, D), K = a["y"].shape, len(a["start_mu"])
    pi = Dirichlet(np.ones(K))
    trans = Dirichlet(np.ones(K), plates=(K,))
    z = CategoricalMarkovChain(pi, trans, states=T)
    mu, lam = _components(a, D, K)
    y = Mixture(z, Gaussian, mu, lam)
    y.observe(a["y"])
    return VB(y, z, mu, lam, pi, trans)


def lda(a: Arrays) -> VB:
    (n_docs, K), V = a["start_theta"].shape, a["start_phi"].shape[1]
    theta = Dirichlet(np.full(K, 0.5), plates=(n_docs,))
    phi = Dirichlet(np.full(V, 0.1), plates=(K,))
    z = Categorical(Take(theta, a["doc"]))
    w = Mixture(z, Categorical, phi)
    w.observe(a["word"])
    theta.initialize_from_value(a["start_theta"])
    phi.initialize_from_value(a["start_phi"])
    return VB(w, z, theta, phi)


MODELS: dict[str, Callable[[Arrays], VB]] = {
    "mixture": mixture,
    "mixture_small": mixture,
    "pca": pca,
    "regression": regression,
    "factorization": factorization,
    "factorization_dense": factorization_dense,
    "hmm": hmm,
    "lda": lda,
}


def _components(a: Arrays, D: int, K: int) -> tuple[Gaussian, Wishart]:
    mu = Gaussian(np.zeros(D), 1e-2 * np.eye(D), plates=(K,))
    lam = Wishart(D, np.eye(D), plates=(K,))
    mu.initialize_from_value(a["start_mu"])
    return mu, lam


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("arrays")
    parser.add_argument("result")
    parser.add_argument("--sweeps", type=int, default=10)
    options = parser.parse_args()

    warnings.simplefilter("ignore")
    with np.load(options.arrays) as file:
        vb = MODELS[options.model]({name: file[name] for name in file.files})
    seconds, elbo = [], []
    for _ in range(options.sweeps):
        begin = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):  # update prints, and has its own idea of convergence
            vb.update(repeat=1, tol=0)
        seconds.append(time.perf_counter() - begin)
        elbo.append(float(vb.compute_lowerbound()))
    record = {
        "seconds": seconds,
        "elbo": elbo,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "versions": {
            "bayespy": bayespy.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "python": platform.python_version(),
        },
    }
    with open(options.result, "w") as file:
        json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
