"""The models of the first-fit benchmark in BayesPy, as far as it has them: a name in, seconds and the bound out.

Run by ``benchmarks/first_fit.py`` inside BayesPy's own environment, where natgrad is not installed. Updates are repeated until
BayesPy says that it has converged, by its own rule, as a user would.
"""

import contextlib
import io
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
import numpy as np  # noqa: E402
from bayespy.inference import VB  # noqa: E402
from bayespy.nodes import (  # noqa: E402
    Add,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    CategoricalMarkovChain,
    Dirichlet,
    Gamma,
    Gate,
    Gaussian,
    GaussianARD,
    Mixture,
    Multinomial,
    Poisson,
    SumMultiply,
    Take,
    Wishart,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from first_fit_data import data_of  # noqa: E402

Data = dict[str, Any]
MODELS: dict[str, Callable[[Data], VB]] = {}


def model(function: Callable[[Data], VB]) -> Callable[[Data], VB]:
    MODELS[function.__name__] = function
    return function


def seen(node: Any, d: Data, **options: Any) -> Any:
    node.observe(d["y"], **options)
    return node


@model
def coin(d: Data) -> VB:
    p = Beta([1.0, 1.0])
    return VB(seen(Bernoulli(p, plates=(20,)), d), p)


@model
def binomial(d: Data) -> VB:
    p = Beta([1.0, 1.0])
    return VB(seen(Binomial(d["n"], p, plates=(12,)), d), p)


@model
def dice(d: Data) -> VB:
    p = Dirichlet(np.ones(6))
    return VB(seen(Categorical(p, plates=(60,)), d), p)


@model
def votes(d: Data) -> VB:
    p = Dirichlet(np.ones(3))
    return VB(seen(Multinomial(d["y"].sum(1), p, plates=(8,)), d), p)


@model
def normal(d: Data) -> VB:
    mu, tau = GaussianARD(0, 1e-3), Gamma(1e-3, 1e-3)
    return VB(seen(GaussianARD(mu, tau, plates=(50,)), d), mu, tau)


@model
def covariance(d: Data) -> VB:
    mu, precision = Gaussian(np.zeros(3), 1e-3 * np.eye(3)), Wishart(3, np.eye(3))
    return VB(seen(Gaussian(mu, precision, plates=(80,)), d), mu, precision)


@model
def regression(d: Data) -> VB:
    w, tau = GaussianARD(0, 1e-3, shape=(d["x"].shape[1],)), Gamma(1e-3, 1e-3)
    return VB(seen(GaussianARD(SumMultiply("i,i", w, d["x"]), tau), d), w, tau)


autoregression = MODELS["autoregression"] = regression


@model
def ard(d: Data) -> VB:
    alpha, tau = Gamma(1e-3, 1e-3, plates=(10,)), Gamma(1e-3, 1e-3)
    w = GaussianARD(0, alpha, shape=(10,))
    return VB(seen(GaussianARD(SumMultiply("i,i", w, d["x"]), tau), d), w, alpha, tau)


@model
def hierarchical(d: Data) -> VB:
    mu, spread, tau = GaussianARD(0, 1e-3), Gamma(1, 1), Gamma(1, 1)
    theta = GaussianARD(mu, spread, plates=(8,))
    return VB(seen(GaussianARD(Take(theta, d["group"]), tau), d), theta, mu, spread, tau)


@model
def schools(d: Data) -> VB:
    mu, tau = GaussianARD(0, 1e-2), Gamma(1, 10)
    theta = GaussianARD(mu, tau, plates=(8,))
    return VB(seen(GaussianARD(theta, 1 / d["se"] ** 2), d), theta, mu, tau)


@model
def rats(d: Data) -> VB:
    a0, b0, ta, tb, tau = GaussianARD(0, 1e-6), GaussianARD(0, 1e-6), *(Gamma(1e-3, 1e-3) for _ in range(3))
    alpha, beta = GaussianARD(a0, ta, plates=(30, 1)), GaussianARD(b0, tb, plates=(30, 1))
    mean = Add(alpha, SumMultiply(",", beta, d["days"]))
    return VB(seen(GaussianARD(mean, tau, plates=(30, 5)), d), alpha, beta, a0, b0, ta, tb, tau)


@model
def radon(d: Data) -> VB:
    mu, beta, between, tau = GaussianARD(0, 1e-2), GaussianARD(0, 1e-2), Gamma(1, 1), Gamma(1, 1)
    alpha = GaussianARD(mu, between, plates=(40,))
    mean = Add(Take(alpha, d["county"]), SumMultiply(",", beta, d["floor"]))
    return VB(seen(GaussianARD(mean, tau), d), alpha, beta, mu, between, tau)


@model
def anova(d: Data) -> VB:
    mu, ta, tb, tau = GaussianARD(0, 1e-2), Gamma(1, 1), Gamma(1, 1), Gamma(1, 1)
    a, b = GaussianARD(0, ta, plates=(6, 1)), GaussianARD(0, tb, plates=(1, 5))
    return VB(seen(GaussianARD(Add(mu, a, b), tau, plates=(6, 5)), d), mu, a, b, ta, tb, tau)


@model
def survival(d: Data) -> VB:
    rate = Gamma(1, 1, plates=(2,))
    return VB(seen(Gamma(1, Take(rate, d["arm"])), d), rate)


@model
def measurement(d: Data) -> VB:
    a, b, tau, true = GaussianARD(0, 1e-2), GaussianARD(0, 1e-2), Gamma(1, 1), GaussianARD(0, 1, plates=(40,))
    x = GaussianARD(true, 1 / 0.3**2)
    x.observe(d["x"])
    b.initialize_from_value(1.0)
    return VB(x, seen(GaussianARD(Add(a, SumMultiply(",", b, true)), tau), d), true, a, b, tau)


def chosen(n: int, k: int, alpha: float = 1.0) -> tuple[Any, Any]:
    weight = Dirichlet(np.full(k, alpha))
    return Categorical(weight, plates=(n,)), weight


@model
def mixture1d(d: Data) -> VB:
    z, weight = chosen(1500, 3)
    mu = GaussianARD(0, 0.01, plates=(3,))
    z.initialize_from_random()
    return VB(seen(Mixture(z, GaussianARD, mu, 1.0), d), mu, z, weight)


@model
def faithful(d: Data) -> VB:
    z, weight = chosen(272, 6, 0.1)
    mu, precision = Gaussian(np.zeros(2), 0.01 * np.eye(2), plates=(6,)), Wishart(2, 0.1 * np.eye(2), plates=(6,))
    z.initialize_from_random()
    return VB(seen(Mixture(z, Gaussian, mu, precision), d), mu, precision, z, weight)


@model
def bernoullis(d: Data) -> VB:
    weight = Dirichlet(np.ones(3))
    z = Categorical(weight, plates=(100, 1))
    p = Beta([0.5, 0.5], plates=(12, 3))
    p.initialize_from_random()
    return VB(seen(Mixture(z, Bernoulli, p), d), z, weight, p)


@model
def poissons(d: Data) -> VB:
    z, weight = chosen(150, 3)
    rate = Gamma(1, 0.1, plates=(3,))
    z.initialize_from_value(np.minimum(d["y"] // 4, 2))
    return VB(seen(Mixture(z, Poisson, rate), d), rate, z, weight)


@model
def zeros(d: Data) -> VB:
    z, weight = chosen(120, 2)
    rate = Gamma([1e-2, 1.0], [10.0, 0.1], plates=(2,))
    z.initialize_from_value((d["y"] > 0).astype(int))
    return VB(seen(Mixture(z, Poisson, rate), d), rate, z, weight)


@model
def outliers(d: Data) -> VB:
    z, weight = chosen(60, 2)
    w, tau = GaussianARD(0, 1e-2, shape=(2,)), Gamma([2.0, 2.0], [0.1, 20.0], plates=(2,))
    return VB(seen(GaussianARD(SumMultiply("i,i", w, d["x"]), Gate(z, tau)), d), w, z, weight, tau)


@model
def switching(d: Data) -> VB:
    z, weight = chosen(100, 2)
    w, tau = GaussianARD(0, 1e-2, plates=(2,), shape=(2,)), Gamma(1, 1, plates=(2,))
    w.initialize_from_value(np.array([[0.0, 1.0], [0.0, -1.0]]))
    mean = SumMultiply("i,i", w, d["x"][:, None, :])
    return VB(seen(Mixture(z, GaussianARD, mean, tau, cluster_plate=-1), d), z, weight, w, tau)


@model
def lda(d: Data) -> VB:
    theta, phi = Dirichlet(np.full(3, 0.3), plates=(20,)), Dirichlet(np.full(30, 0.2), plates=(3,))
    z = Categorical(Take(theta, d["document"]))
    w = Mixture(z, Categorical, phi)
    w.observe(d["word"])
    phi.initialize_from_random()
    theta.initialize_from_random()
    return VB(w, z, theta, phi)


def decomposed(d: Data, factors: int, ard: Any, tau: Any, *others: Any) -> VB:
    (rows, columns), there = d["y"].shape, np.isfinite(d["y"])
    w = GaussianARD(0, ard, plates=(columns,), shape=(factors,))
    x = GaussianARD(0, 1, plates=(rows, 1), shape=(factors,))
    y = GaussianARD(SumMultiply("i,i", w, x), tau, plates=(rows, columns))
    y.observe(np.where(there, d["y"], 0.0), mask=there)
    w.initialize_from_random()
    return VB(y, x, w, tau, *others)


@model
def pca(d: Data) -> VB:
    ard = Gamma(1e-2, 1e-2, plates=(3,))
    return decomposed(d, 3, ard, Gamma(1e-2, 1e-2), ard)


missing = MODELS["missing"] = pca


@model
def factors(d: Data) -> VB:
    return decomposed(d, 2, 1, Gamma(1, 1, plates=(8,)))


@model
def ratings(d: Data) -> VB:
    u, v = (GaussianARD(0, 1, plates=(n,), shape=(2,)) for n in d["shape"])
    tau = Gamma(1, 1)
    v.initialize_from_random()
    mean = SumMultiply("i,i", Take(u, d["user"]), Take(v, d["item"]))
    return VB(seen(GaussianARD(mean, tau), d), u, v, tau)


def chained(length: int, k: int, stay: float = 4.0) -> tuple[Any, Any, Any]:
    first, rows = Dirichlet(np.ones(k)), Dirichlet(np.ones((k, k)) + stay * np.eye(k), plates=(k,))
    return CategoricalMarkovChain(first, rows, states=length), first, rows


@model
def discrete_hmm(d: Data) -> VB:
    z, first, rows = chained(100, 2)
    p = Dirichlet([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], plates=(2,))
    return VB(seen(Mixture(z, Categorical, p), d), z, p, first, rows)


@model
def gaussian_hmm(d: Data) -> VB:
    z, first, rows = chained(200, 3)
    mu, tau = GaussianARD(0, 0.01, plates=(3,)), Gamma(1, 1, plates=(3,))
    mu.initialize_from_value(np.array([-2.0, 0.0, 2.0]))
    return VB(seen(Mixture(z, GaussianARD, mu, tau), d), z, mu, tau, first, rows)


@model
def factorial_hmm(d: Data) -> VB:
    (z1, f1, r1), (z2, f2, r2) = chained(120, 2), chained(120, 2)
    m1, m2, tau = GaussianARD(0, 0.1, plates=(2,)), GaussianARD(0, 0.1, plates=(2,)), Gamma(1, 1)
    m1.initialize_from_value(np.array([0.0, 3.0]))
    m2.initialize_from_value(np.array([0.0, 1.0]))
    return VB(seen(GaussianARD(Add(Gate(z1, m1), Gate(z2, m2)), tau), d), z1, z2, m1, m2, tau, f1, r1, f2, r2)


@model
def skills(d: Data) -> VB:
    skill, tau = GaussianARD(0, 1, shape=(10,)), Gamma(1, 1)
    sign = np.zeros((60, 10))
    sign[np.arange(60), d["first"]] += 1.0
    sign[np.arange(60), d["second"]] -= 1.0
    return VB(seen(GaussianARD(SumMultiply("i,i", skill, sign), tau), d), skill, tau)


@model
def sprinkler(d: Data) -> VB:
    cloudy = Categorical([0.5, 0.5])
    sprinkler, rain = Mixture(cloudy, Categorical, d["sprinkler"]), Mixture(cloudy, Categorical, d["rain"])
    with np.errstate(all="ignore"):
        grass = Mixture(sprinkler, Mixture, rain, Categorical, np.maximum(d["grass"], 1e-12))
    grass.observe(1)
    return VB(grass, cloudy, sprinkler, rain)


@model
def bayes(d: Data) -> VB:
    share, p = Dirichlet(np.ones(3)), Dirichlet(np.ones(4), plates=(5, 3))
    words = []
    for key in ("words", "new"):
        z = Categorical(share, plates=(len(d[key]), 1))
        if key == "words":
            z.observe(d["label"][:, None])
        words.append((z, Mixture(z, Categorical, p)))
        words[-1][1].observe(d[key])
    (old, x), (new, y) = words
    return VB(x, y, old, p, new, share)


def main() -> None:
    name = sys.argv[1]
    if name not in MODELS:
        print(json.dumps(None))
        return
    data = data_of(name)
    np.random.seed(0)  # noqa: NPY002 - what BayesPy draws from
    begin, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        vb = MODELS[name](data)
        vb.update(repeat=1000)
    bound = float(vb.compute_lowerbound())
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu": cpu, "bound": bound, "steps": int(vb.iter)}))


if __name__ == "__main__":
    main()
