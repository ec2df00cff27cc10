"""Compare posterior draws with the reference draws of ten posteriors of posteriordb; write a table of docs/draws.md.

python benchmarks/uncertainty_draws.py
"""

import json
import time
import warnings
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats

import natgrad as ng

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
        worth = min(float(array_stats.ess(x, chain_axis=0, draw_axis=1)) for x in found.values())
        lines.append(f"| {name} | {error:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {worth:,.0f} | {spent:.1f} |")
        print(lines[-1], flush=True)
    (FIGURES / "draws-posteriordb.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", ng.errors.PoorMixing)
    posteriordb()
