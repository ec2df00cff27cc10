"""Posterior draws against reference posteriors, and coverage of intervals on simulated data; writes the tables of docs/draws.md.

python benchmarks/uncertainty_draws.py posteriordb [file]      ten posteriors with reference draws
python benchmarks/uncertainty_draws.py coverage [simulations]  mixture, hidden Markov model, topics, hierarchical regression
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import natgrad as ng
from natgrad.errors import PoorMixing
from natgrad.posterior.draws import ess

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
REFERENCES = Path(__file__).parent.parent.parent / "shared" / "references" / "posteriordb.json"


def half_cauchy(name, scale):
    """A precision whose standard deviation is half-Cauchy."""
    return ng.Gamma(name, 0.5, ng.Gamma(f"{name}_rate", 0.5, 1.0 / scale**2))


def regression(reference, vector):
    X, y = np.array(reference["X"]), np.array(reference["y"])
    mean = np.array(reference["coefficient_prior_mean"])
    precision = np.maximum(reference["coefficient_prior_precision"], 1e-12)
    tau = half_cauchy("tau", 2.5 if reference["sigma_prior"] != "flat" else 1e4 * y.std())
    if vector:
        expected = ng.dot(X, ng.MultivariateNormal("w", mean, np.diag(precision)))
    else:
        scalars = [ng.Normal(f"w{i}", m, p) for i, (m, p) in enumerate(zip(mean, precision, strict=True))]
        expected = X[:, 0] * scalars[0]
        for column, scalar in zip(X.T[1:], scalars[1:], strict=True):
            expected = expected + column * scalar
    network = ng.Network(ng.Normal("y", expected, tau, plate=ng.Plate("row", len(y)), observed=y))

    def read(draws):
        names = reference["coefficients"]
        parts = {n: draws["w"].values[..., i] if vector else draws[f"w{i}"].values for i, n in enumerate(names)}
        return {**parts, "sigma": draws["tau"].values ** -0.5}

    return network, read


def schools(reference, expanded):
    y, se, school = np.array(reference["y"]), np.array(reference["se"]), ng.Plate("school", 8)
    mu = ng.Normal("mu", 0.0, 1 / 25)
    if expanded:
        scale, t = ng.Normal("scale", 0.0, 1 / 25), ng.Gamma("t", 0.5, 0.5)
        effects = mu + scale * ng.Normal("eta", 0.0, t, plate=school)
    else:
        effects = ng.Normal("theta", mu, half_cauchy("t", 5.0), plate=school)
    network = ng.Network(ng.Normal("y", effects, 1 / se**2, plate=school, observed=y))

    def read(draws):
        mu, tau = draws["mu"].values, draws["t"].values ** -0.5
        if expanded:
            scale = draws["scale"].values
            theta, tau = mu[..., None] + scale[..., None] * draws["eta"].values, np.abs(scale) * tau
        else:
            theta = draws["theta"].values
        return {**{f"theta[{i + 1}]": theta[..., i] for i in range(8)}, "mu": mu, "tau": tau}

    return network, read


def chain(reference):
    y, time_, state = np.array(reference["y"]), ng.Plate("time", len(reference["y"])), ng.Plate("state", 2)
    rows = ng.Dirichlet("rows", 1.0, size=2, plate=state)
    z = ng.MarkovChain("z", [0.5, 0.5], rows, plate=time_)
    mu = ng.Normal("mu", [3.0, 10.0], 1.0, plate=state)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=time_, observed=y))

    def read(draws):
        rows, mu = draws["rows"].values, draws["mu"].values
        found = {f"theta{i + 1}[{j + 1}]": rows[..., i, j] for i in range(2) for j in range(2)}
        return {**found, "mu[1]": mu[..., 0], "mu[2]": mu[..., 1]}

    return network, read


def cases():
    for name, reference in json.loads(REFERENCES.read_text()).items():
        if reference["kind"] == "regression":
            yield f"{name}, one vector", reference, regression(reference, True), 2500
            yield f"{name}, a Normal each", reference, regression(reference, False), 2500
        elif reference["kind"] == "schools":
            yield f"{name}, centred", reference, schools(reference, False), 10_000
            yield f"{name}, expanded", reference, schools(reference, True), 10_000
        else:
            yield name, reference, chain(reference), 2500


def posteriordb():
    lines = [
        "| posterior, how it is declared | largest error of a mean, in sd | ratio of sd | smallest ESS | CPU s |",
        "|---|---|---|---|---|",
    ]
    for name, reference, (network, read), n in cases():
        fit = network.fit(max_steps=2000, verbose=False)
        begun = time.process_time()
        draws = fit.draws(n, warmup=500, verbose=False)
        spent = time.process_time() - begun
        wanted, found = reference["reference"], read(draws)
        error = max(abs(x.mean() - wanted[key]["mean"]) / wanted[key]["sd"] for key, x in found.items())
        ratios = [x.std() / wanted[key]["sd"] for key, x in found.items()]
        worth = min(float(ess(x)) for x in found.values())
        lines.append(f"| {name} | {error:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {worth:,.0f} | {spent:.1f} |")
        print(lines[-1], flush=True)
    (FIGURES / "draws-posteriordb.md").write_text("\n".join(lines) + "\n")


# -- coverage --


def mixture():
    """Two components one standard deviation to each side."""
    n, k = ng.Plate("n", 60), ng.Plate("k", 2)
    z = ng.Categorical("z", ng.Dirichlet("weights", 4.0, size=2), plate=n)
    mu, tau = ng.Normal("mu", 0.0, 0.25, plate=k), ng.Gamma("tau", 4.0, 4.0, plate=k)
    y = ng.Normal("y", mu[z], tau[z], plate=n, observed=np.zeros(60))
    return ng.Network(y), {"init": "kmeans"}, ["weights", "mu", "tau"]


def hidden_markov():
    """Emissions that overlap."""
    t, k = ng.Plate("t", 80), ng.Plate("k", 2)
    rows = ng.Dirichlet("rows", [[4.0, 1.0], [1.0, 4.0]], plate=k)
    z = ng.MarkovChain("z", [0.5, 0.5], rows, plate=t)
    mu = ng.Normal("mu", 0.0, 0.25, plate=k)
    return ng.Network(ng.Normal("y", mu[z], 1.0, plate=t, observed=np.zeros(80))), {"init": "kmeans"}, ["rows", "mu"]


def topics():
    """Twenty documents of thirty words, three topics."""
    doc, topic, token = ng.Plate("doc", 20), ng.Plate("topic", 3), ng.Plate("token", 600)
    theta = ng.Dirichlet("theta", 0.5, size=3, plate=doc)
    phi = ng.Dirichlet("phi", 0.3, size=12, plate=topic)
    z = ng.Categorical("z", theta[np.repeat(np.arange(20), 30)], plate=token)
    w = ng.Categorical("w", phi[z], plate=token, observed=np.zeros(600, dtype=int))
    return ng.Network(w), {"init": "random"}, ["theta", "phi"]


def hierarchy():
    """Eight groups of five, with a slope for each observation's covariate."""
    n, g = ng.Plate("n", 40), ng.Plate("g", 8)
    x = np.linspace(2.0, 4.0, 40)
    spread, tau = ng.Gamma("spread", 3.0, 3.0), ng.Gamma("tau", 3.0, 3.0)
    mean, slope = ng.Normal("mean", 0.0, 0.25), ng.Normal("slope", 0.0, 1.0)
    level = ng.Normal("level", mean, spread, plate=g)
    y = ng.Normal("y", level[np.repeat(np.arange(8), 5)] + x * slope, tau, plate=n, observed=np.zeros(40))
    return ng.Network(y), {}, ["mean", "slope", "level", "spread", "tau"]


def coverage(simulations):
    lines = ["| model | parameters | q | draws | CPU s for a posterior by draws |", "|---|---|---|---|---|"]
    for make in (mixture, hidden_markov, topics, hierarchy):
        network, options, names = make()
        q = network.calibrate(simulations, names=names, fit_options=options)
        begun = time.process_time()
        drawn = network.calibrate(
            simulations, level="draws", names=names, fit_options=options, draws_options={"n": 300, "warmup": 200}
        )
        spent = (time.process_time() - begun) / simulations
        for name in names:
            held = [found.coverage(0.9)[name] for found in (q, drawn)]
            model, (of_q, of_draws) = make.__name__.replace("_", " "), (100 * share for share in held)
            lines.append(f"| {model} | {name} | {of_q:.0f} % | {of_draws:.0f} % | {spent:.1f} |")
            print(lines[-1], flush=True)
    (FIGURES / "draws-coverage.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", PoorMixing)
    if sys.argv[1:2] == ["coverage"]:
        coverage(int(sys.argv[2]) if len(sys.argv) > 2 else 100)
    else:
        posteriordb()
