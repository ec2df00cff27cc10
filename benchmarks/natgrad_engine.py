"""Seconds per sweep of natgrad on one problem: an .npz file comes in, a JSON record goes out.

Run by ``benchmarks/engine.py`` in a fresh process, so that ``cold_seconds``, the first ``fit(max_steps=1)``,
includes every compilation:

    python benchmarks/natgrad_engine.py mixture_small arrays.npz result.json --sweeps 10

A sweep is one step of ``ng.VB()``: every latent factor once, then the bound. Small networks make several in one
call, so the seconds of a sweep are those of a whole fit after its first sweep, shared out; five fits.
"""

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

import natgrad as ng


class Case(NamedTuple):
    network: ng.Network
    init: dict[str, np.ndarray]  # point masses; the other factors begin at their priors
    order: list[str]


Arrays = dict[str, np.ndarray]
ROUNDS = 5


def mixture(a: Arrays) -> Case:
    (N, D), K = a["y"].shape, len(a["start_mu"])
    point, component = ng.Plate("point", N), ng.Plate("component", K)
    alpha = ng.Dirichlet("alpha", 1.0, size=K)
    z = ng.Categorical("z", alpha, plate=point)
    mu = ng.MultivariateNormal("mu", np.zeros(D), 1e-2 * np.eye(D), plate=component)
    lam = ng.Wishart("lam", D, np.eye(D), plate=component)
    y = ng.MultivariateNormal("y", mu[z], lam[z], plate=point, observed=a["y"])
    return Case(ng.Network(y), {"mu": a["start_mu"]}, ["z", "mu", "lam", "alpha"])


def pca(a: Arrays) -> Case:
    (N, D), K = a["y"].shape, a["start_w"].shape[1]
    row, column, factor = ng.Plate("row", N), ng.Plate("column", D), ng.Plate("factor", K)
    ard = ng.Gamma("ard", 1e-3, 1e-3, plate=factor)
    w = ng.MultivariateNormal("w", np.zeros(K), ng.diag(ard), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(K), np.eye(K), plate=row)
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    y = ng.Normal("y", ng.dot(w, x), tau, plate=(row, column), observed=a["y"])
    return Case(ng.Network(y), {"w": a["start_w"]}, ["x", "w", "ard", "tau"])


def regression(a: Arrays) -> Case:
    N, D = a["X"].shape
    row, column = ng.Plate("row", N), ng.Plate("column", D)
    alpha = ng.Gamma("alpha", 1e-3, 1e-3, plate=column)
    w = ng.MultivariateNormal("w", np.zeros(D), ng.diag(alpha))
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    y = ng.Normal("y", ng.dot(w, a["X"]), tau, plate=row, observed=a["y"])
    return Case(ng.Network(y), {}, ["w", "alpha", "tau"])


def factorization(a: Arrays) -> Case:
    n_users, (n_items, K) = a["user"].max() + 1, a["start_v"].shape
    user, item = ng.Plate("user", int(n_users)), ng.Plate("item", n_items)
    rating = ng.Plate("rating", len(a["rating"]))
    u = ng.MultivariateNormal("u", np.zeros(K), np.eye(K), plate=user)
    v = ng.MultivariateNormal("v", np.zeros(K), np.eye(K), plate=item)
    r = ng.Normal("r", ng.dot(u[a["user"]], v[a["item"]]), 1.0, plate=rating, observed=a["rating"])
    return Case(ng.Network(r), {"v": a["start_v"]}, ["u", "v"])


def hmm(a: Arrays) -> Case:
    (T, D), K = a["y"].shape, len(a["start_mu"])
    time_, state = ng.Plate("time", T), ng.Plate("state", K)
    pi = ng.Dirichlet("pi", 1.0, size=K)
    trans = ng.Dirichlet("trans", 1.0, size=K, plate=state)
    z = ng.MarkovChain("z", pi, trans, plate=time_)
    mu = ng.MultivariateNormal("mu", np.zeros(D), 1e-2 * np.eye(D), plate=state)
    lam = ng.Wishart("lam", D, np.eye(D), plate=state)
    y = ng.MultivariateNormal("y", mu[z], lam[z], plate=time_, observed=a["y"])
    return Case(ng.Network(y), {"mu": a["start_mu"]}, ["z", "mu", "lam", "pi", "trans"])


def lda(a: Arrays) -> Case:
    (n_docs, K), V = a["start_theta"].shape, a["start_phi"].shape[1]
    doc, token, topic = ng.Plate("doc", n_docs), ng.Plate("token", len(a["word"])), ng.Plate("topic", K)
    theta = ng.Dirichlet("theta", 0.5, size=K, plate=doc)
    phi = ng.Dirichlet("phi", 0.1, size=V, plate=topic)
    z = ng.Categorical("z", theta[a["doc"]], plate=token)
    w = ng.Categorical("w", phi[z], plate=token, observed=a["word"])
    start = {"theta": a["start_theta"], "phi": a["start_phi"]}
    return Case(ng.Network(w), start, ["z", "theta", "phi"])


MODELS: dict[str, Callable[[Arrays], Case]] = {
    "mixture": mixture,
    "mixture_small": mixture,
    "pca": pca,
    "regression": regression,
    "factorization": factorization,
    "hmm": hmm,
    "lda": lda,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("arrays")
    parser.add_argument("result")
    parser.add_argument("--sweeps", type=int, default=20)
    options = parser.parse_args()

    with np.load(options.arrays) as file:
        case = MODELS[options.model]({name: file[name] for name in file.files})

    def sweep(steps: int) -> Mapping[str, np.ndarray]:
        return case.network.fit(ng.VB(), max_steps=steps, tol=0, init=case.init, order=case.order, backend="jax").trace

    begin = time.perf_counter()
    sweep(1)
    cold = time.perf_counter() - begin
    traces = [sweep(options.sweeps) for _ in range(ROUNDS)]
    record = {
        "cold_seconds": cold,
        "seconds": [float(np.ptp(trace["seconds"])) / (options.sweeps - 1) for trace in traces],
        "elbo": np.asarray(traces[0]["elbo"]).tolist(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "versions": {
            "natgrad": ng.__version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    with open(options.result, "w") as file:
        json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
