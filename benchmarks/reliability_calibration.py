"""Are posteriors as wide as they should be? Parameters drawn from the prior, data from them, and where the truth lies in q.

    python benchmarks/reliability_calibration.py            # 1,000 and 100 simulations; some minutes
    python benchmarks/reliability_calibration.py --quick    # fewer, to try it

Conjugate networks, whose q is the posterior: simulation-based calibration (Talts, Betancourt, Simpson, Vehtari and Gelman, 2018).
The rank of the truth among draws of q is uniform, and its distribution must stay in the simultaneous 95 % band. One network holds
all simulations, along a plate.

Ready models, whose q is an approximation: the probabilities q(parameter ≤ truth) must be symmetric (VSBC: Yao, Vehtari, Simpson
and Gelman, 2018; a lack of symmetry is bias, a bowl is too narrow a q), and the share of truths inside 90 % intervals is stated.
Components are matched with the true ones by the best assignment. One probability of each simulation enters the test of
symmetry; the coverage has all of them.

Results: ``benchmarks/results/reliability-calibration.md`` and ``.json``, pictures in ``docs/figures``.
"""

import argparse
import json
import platform
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from scipy.optimize import linear_sum_assignment

import natgrad as ng
from natgrad import covariance
from natgrad.models.gp import Solver

HERE = Path(__file__).resolve().parent
RESULTS, FIGURES = HERE / "results", HERE.parent / "docs" / "figures"
DRAWS, MASS = 99, 0.9

# -- conjugate networks: {name: (truth [simulations], draws [DRAWS, simulations])} --


def plates(n, each):
    return ng.Plate("simulation", n), ng.Plate("row", n * each), np.repeat(np.arange(n), each)


def mean_of_normal(n, rng):
    sims, rows, of = plates(n, 7)
    truth = rng.normal(1.0, 2.0, n)
    mu = ng.Normal("mu", 1.0, 0.25, plate=sims)
    fit = ng.Network(ng.Normal("x", mu[of], 0.5, plate=rows, observed=rng.normal(truth[of], 2**0.5))).fit()
    return truth, fit["mu"].sample(rng, DRAWS)


def precision_of_normal(n, rng):
    sims, rows, of = plates(n, 7)
    truth = rng.gamma(3.0, 1 / 2.0, n)
    tau = ng.Gamma("tau", 3.0, 2.0, plate=sims)
    fit = ng.Network(ng.Normal("x", 1.0, tau[of], plate=rows, observed=rng.normal(1.0, truth[of] ** -0.5))).fit()
    return truth, fit["tau"].sample(rng, DRAWS)


def rate_of_poisson(n, rng):
    sims, rows, of = plates(n, 5)
    truth = rng.gamma(2.0, 1.0, n)
    rate = ng.Gamma("rate", 2.0, 1.0, plate=sims)
    fit = ng.Network(ng.Poisson("x", rate[of], plate=rows, observed=rng.poisson(truth[of]))).fit()
    return truth, fit["rate"].sample(rng, DRAWS)


def chance_of_bernoulli(n, rng):
    sims, rows, of = plates(n, 9)
    truth = rng.beta(2.0, 3.0, n)
    chance = ng.Beta("chance", 2.0, 3.0, plate=sims)
    fit = ng.Network(ng.Bernoulli("x", chance[of], plate=rows, observed=rng.random(len(of)) < truth[of])).fit()
    return truth, fit["chance"].sample(rng, DRAWS)


def shares_of_categories(n, rng):
    sims, rows, of = plates(n, 9)
    truth = rng.dirichlet([1.0, 1.0, 1.0], n)
    share = ng.Dirichlet("share", 1.0, size=3, plate=sims)
    seen = (rng.random(len(of))[:, None] > np.cumsum(truth[of], 1)[:, :2]).sum(1)
    fit = ng.Network(ng.Categorical("x", share[of], plate=rows, observed=seen)).fit()
    return truth[:, 0], fit["share"].sample(rng, DRAWS)[..., 0]


def regression(n, rng):
    sims, rows, of = plates(n, 8)
    truth, x = rng.normal(size=(n, 2)), rng.normal(size=(8 * n, 2))
    w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), plate=sims)
    y = rng.normal((x * truth[of]).sum(1), 0.5)
    fit = ng.Network(ng.Normal("y", ng.dot(x, w[of]), 4.0, plate=rows, observed=y)).fit()
    return truth[:, 0], fit["w"].sample(rng, DRAWS)[..., 0]


CONJUGATE = {
    "mean of a Normal": mean_of_normal, "precision of a Normal": precision_of_normal, "rate of a Poisson": rate_of_poisson,
    "chance of a Bernoulli": chance_of_bernoulli, "shares of categories": shares_of_categories, "linear regression": regression,
}  # fmt: skip

# -- ready models: probabilities q(parameter ≤ truth) [parameters] of one simulation --


def dirichlet_places(concentration, truth):
    """Of every element of rows of Dirichlets, by its Beta marginal."""
    total = concentration.sum(-1, keepdims=True)
    return scipy.stats.beta.cdf(truth, concentration, total - concentration)


def topics(rng):
    phi, theta = rng.dirichlet(np.full(12, 0.5), 3), rng.dirichlet(np.full(3, 0.5), 150)
    counts = rng.multinomial(60, theta @ phi)
    model = ng.LDA(
        3, doc_prior=0.5, topic_prior=0.5, inference="vb", method=ng.VB(), max_passes=200, tol=1e-7, n_jobs=1
    ).fit(counts)
    _, mine = linear_sum_assignment(np.abs(phi[:, None] - model.topics_[None]).sum(-1))
    return dirichlet_places(model.components_[mine], phi).ravel()


def chain(rng):
    transition = rng.dirichlet([4.0, 1.0], 2)[[0, 1]]
    transition[1] = transition[1][::-1]
    emission = rng.dirichlet(np.full(4, 0.5), 2)
    states = np.zeros(600, dtype=int)
    for t in range(1, 600):
        states[t] = rng.random() > transition[states[t - 1], 0]
    seen = (rng.random(600)[:, None] > np.cumsum(emission[states], 1)[:, :3]).sum(1)
    prior = np.array([[4.0, 1.0], [1.0, 4.0]])
    model = ng.CategoricalHMM(
        2,
        categories=ng.models.hmm.Categorical(4, emission_prior=0.5),
        transitions=ng.models.hmm.Transitions(prior),
        n_init=4,
        n_jobs=1,
    ).fit(seen[:, None])
    _, mine = linear_sum_assignment(np.abs(emission[:, None] - model.emissionprob_[None]).sum(-1))
    found = model.posterior_["emission"].lam[0] + 1.0
    rows = model.posterior_["transition"].lam[0] + 1.0
    places = [dirichlet_places(found[mine], emission)[:, :3].ravel()]
    return np.concatenate([*places, dirichlet_places(rows[mine][:, mine], transition)[:, 0]])


def factors(rng):
    u, v = rng.normal(size=(40, 2)), rng.normal(size=(30, 2))
    full = u @ v.T + rng.normal(0.0, 0.7, (40, 30))
    held = rng.random((40, 30)) < 0.3
    model = ng.MatrixFactorization(2, priors=ng.recommenders.FactorPriors(biases=False), max_steps=200).fit(
        np.where(held, np.nan, full)
    )
    users, items = np.nonzero(held)
    mean, sd = model.predict(users, items, return_std=True)
    return rng.permutation(scipy.stats.norm.cdf((full[held] - mean) / sd))[:200]


def process(rng):
    x = rng.uniform(0, 5, (80, 1))
    kernel = covariance.RBF(variance=1.0, lengthscale=1.0)
    f = rng.multivariate_normal(np.zeros(80), kernel(x) + 1e-10 * np.eye(80), method="cholesky")
    y = f + rng.normal(0.0, 0.3, 80)
    model = ng.SparseGPRegressor(
        kernel, inducing=np.linspace(0, 5, 25)[:, None], fixed=["kernel", "noise", "inducing"],
        solver=Solver(standardize=False, method=ng.VB()), noise_variance=0.09, max_steps=1,
    ).fit(x[:60], y[:60])  # fmt: skip
    mean, sd = model.predict(x[60:], return_std=True)
    return scipy.stats.norm.cdf((y[60:] - mean) / sd)


READY = {"LDA: words of topics": topics, "HMM: emissions, transitions": chain, "Factorisation: new ratings": factors,
         "Gaussian process: new outputs": process}  # fmt: skip


def band(n, rng, rounds=2000, mass=0.95):
    """Distances of the distribution of n uniform ranks 0 … DRAWS from a straight line that hold for all at once."""
    levels = np.arange(1, DRAWS + 1) / (DRAWS + 1)
    sets = rng.multinomial(n, np.full(DRAWS + 1, 1 / (DRAWS + 1)), rounds)
    scores = np.abs(np.cumsum(sets, 1)[:, :-1] / n - levels) / np.sqrt(levels * (1 - levels) / n)
    return levels, np.quantile(scores.max(1), mass) * np.sqrt(levels * (1 - levels) / n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    n_conjugate, n_ready = (200, 10) if chosen.quick else (1000, 100)
    rng = np.random.default_rng(chosen.seed)
    levels, half = band(n_conjugate, rng)
    found, ranks_of, places_of = {"conjugate": {}, "ready": {}}, {}, {}
    for name, simulate in CONJUGATE.items():
        truth, draws = simulate(n_conjugate, rng)
        ranks_of[name] = ranks = (draws < truth).sum(0)
        apart = (np.array([(ranks < k).mean() for k in range(1, DRAWS + 1)]) - levels) / half
        found["conjugate"][name] = {"simulations": n_conjugate, "largest": float(np.abs(apart).max())}
        print(name, found["conjugate"][name], flush=True)
    for name, simulate in READY.items():
        places_of[name] = places = np.array([simulate(rng) for _ in range(n_ready)])
        one = places[np.arange(n_ready), rng.integers(places.shape[1], size=n_ready)]
        test = scipy.stats.ks_2samp(one, 1.0 - one)
        inside = np.abs(places - 0.5) <= MASS / 2
        found["ready"][name] = {"simulations": n_ready, "symmetry_p": float(test.pvalue), "coverage": float(inside.mean()),
                                "coverage_error": float(inside.mean(1).std() / n_ready**0.5)}  # fmt: skip
        print(name, found["ready"][name], flush=True)
    write(found, chosen)
    draw(levels, half, ranks_of, places_of)
    if any(r["largest"] > 1 for r in found["conjugate"].values()):
        raise SystemExit("a conjugate network left the band")


def write(found, chosen):
    RESULTS.mkdir(exist_ok=True)
    table = ["| conjugate network | simulations | largest distance, as a part of the 95 % band |", "|---|--:|--:|"]
    table += [f"| {name} | {r['simulations']:,} | {r['largest']:.2f} |" for name, r in found["conjugate"].items()]
    table += ["", "| ready model | simulations | symmetry, p | inside 90 % intervals |", "|---|--:|--:|--:|"]
    for name, r in found["ready"].items():
        inside = f"{100 * r['coverage']:.1f} ± {100 * r['coverage_error']:.1f} %"
        table.append(f"| {name} | {r['simulations']:,} | {r['symmetry_p']:.2f} | {inside} |")
    (RESULTS / "reliability-calibration.md").write_text("\n".join(table) + "\n")
    versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
    kept = {"versions": versions, "seed": chosen.seed, "results": found}
    (RESULTS / "reliability-calibration.json").write_text(json.dumps(kept, indent=1) + "\n")
    print("\n".join(table))


def draw(levels, half, ranks_of, places_of):
    figure, axes = plt.subplots(2, 3, figsize=(10, 5), sharex=True, sharey=True, layout="constrained")
    for axis, (name, ranks) in zip(axes.flat, ranks_of.items(), strict=True):
        axis.fill_between(levels, -half, half, color="0.85", lw=0)
        axis.plot(levels, np.array([(ranks < k).mean() for k in range(1, DRAWS + 1)]) - levels, color="C0")
        axis.set_title(name, fontsize=10)
    figure.supxlabel("rank of the truth among draws of q")
    figure.supylabel("share of ranks below, minus uniform")
    figure.savefig(FIGURES / "reliability-sbc.png", dpi=110)
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
    for axis, (name, places) in zip(axes, places_of.items(), strict=True):
        axis.hist(places.ravel(), bins=20, range=(0, 1), density=True, color="C0")
        axis.axhline(1.0, color="0.3", lw=1, ls="--")
        axis.set_title(name, fontsize=9)
    figure.supxlabel("q(parameter ≤ truth)")
    figure.savefig(FIGURES / "reliability-vsbc.png", dpi=110)


if __name__ == "__main__":
    main()
