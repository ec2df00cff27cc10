"""Leaves by augmentation beside NumPyro's NUTS: twelve regressions, their predictive density and their coefficients.

    python benchmarks/leaves.py --numpyro PYTHON     # the interpreter of an environment with NumPyro

Four data sets are scikit-learn's, in nine regressions; the others are generated. A third of the rows is held out. The log
predictive density a row is that of draws of the coefficients: of q, of Gibbs sampling started at the fit (`Fit.draws`, 16,000 of
which 4,000 are kept), and of NUTS (2,000 after 500). Differences of means are in standard deviations of NUTS, the largest of all
coefficients. Results:
``benchmarks/results/leaves.md``.
"""

import argparse
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import gammaln, log_expit, log_ndtr, logsumexp
from sklearn import datasets

import natgrad as ng

HERE = Path(__file__).resolve().parent
NOISY = ("student", "laplace", "censored", "lognormal")
CUTS = np.array([-0.5, 0.5])


def make_sets() -> dict[str, dict[str, Any]]:
    """Name → kind, x, y, what else the leaf knows (one value a row, or cutpoints), and how many logits."""
    rng = np.random.default_rng(0)

    def design(table: np.ndarray) -> np.ndarray:
        return np.c_[np.ones(len(table)), (table - table.mean(0)) / table.std(0)]

    cancer, flowers, wine, sugar = (
        getattr(datasets, f"load_{name}")(return_X_y=True) for name in ("breast_cancer", "iris", "wine", "diabetes")
    )
    x = design(sugar[0][:, [0, 2, 3, 8]])
    level = (sugar[1] - sugar[1].mean()) / sugar[1].std()
    made = design(rng.normal(size=(400, 4)))
    truth = np.array([0.3, 1.0, -0.7, 0.4, 0.0])
    psi, tries = made @ truth, rng.integers(1, 12, 400)
    sets = {
        "breast cancer, logit": ("logit", design(cancer[0][:, :5]), cancer[1], 0.0),
        "breast cancer, probit": ("probit", design(cancer[0][:, 5:9]), cancer[1], 0.0),
        "iris, logits": ("logits", design(flowers[0][:, :2]), flowers[1], 0.0),
        "wine, logits": ("logits", design(wine[0][:, :3]), wine[1], 0.0),
        "diabetes, Student": ("student", x, level, 0.0),
        "diabetes, Laplace": ("laplace", x, level, 0.0),
        "diabetes, censored": ("censored", x, np.minimum(level, 0.8), (level > 0.8) * 1.0),
        "diabetes, log-normal": ("lognormal", x, sugar[1] / 100.0, 0.0),
        "diabetes, ordinal": ("ordinal", x, np.digitize(level, CUTS), 0.0),
        "generated, logit": ("logit", made, rng.random(400) < 1 / (1 + np.exp(-psi)), 0.0),
        "generated, binomial": ("binomial", made, rng.binomial(tries, 1 / (1 + np.exp(-psi))), tries),
        "generated, counts": ("negative", made, rng.negative_binomial(3.0, 1 / (1 + np.exp(psi))), 3.0),
    }
    found = {}
    for name, (kind, rows, y, extra) in sets.items():
        shuffled = rng.permutation(len(rows))
        full = np.broadcast_to(np.asarray(extra, dtype=np.float64), (len(rows),))
        record = {
            "kind": kind,
            "x": rows[shuffled],
            "y": np.asarray(y, dtype=np.float64)[shuffled],
            "extra": full[shuffled],
            "size": 2,
        }
        found[name] = record
    return found


def part(data: dict[str, Any], train: bool) -> dict[str, Any]:
    """Two thirds of the rows, or the rest; cutpoints in place of what else is known of an ordinal leaf."""
    cut = 2 * len(data["x"]) // 3
    chosen = slice(None, cut) if train else slice(cut, None)
    some = {key: value[chosen] if key in ("x", "y", "extra") else value for key, value in data.items()}
    return {**some, "extra": CUTS} if data["kind"] == "ordinal" else some


def make_network(data: dict[str, Any]) -> ng.Network:
    """The same priors as NumPyro's model."""
    kind, x, y, extra = (data[key] for key in ("kind", "x", "y", "extra"))
    options = {"plate": ng.Plate("row", len(x)), "observed": y}
    along = {"plate": ng.Plate("cut", data["size"])} if kind == "logits" else {}
    w = ng.MultivariateNormal("w", np.zeros(x.shape[1]), 0.5, **along)
    psi = ng.dot(x, w)
    tau = ng.Gamma("tau", 1.0, 1.0) if kind in NOISY else None
    made = {
        "logit": lambda: ng.Bernoulli("y", logit=psi, **options),
        "probit": lambda: ng.Bernoulli("y", probit=psi, **options),
        "logits": lambda: ng.Categorical("y", logits=psi, **options),
        "binomial": lambda: ng.Binomial("y", extra, logit=psi, **options),
        "negative": lambda: ng.NegativeBinomial("y", extra, logit=psi, **options),
        "ordinal": lambda: ng.Ordinal("y", psi, cutpoints=CUTS, **options),
        "student": lambda: ng.StudentT("y", psi, tau, df=4.0, **options),
        "laplace": lambda: ng.Laplace("y", psi, tau, **options),
        "lognormal": lambda: ng.LogNormal("y", psi, tau, **options),
        "censored": lambda: ng.Normal("y", psi, tau, plate=options["plate"], observed=ng.censored(y, right=extra == 1)),
    }
    return ng.Network(made[kind]())


def log_density(data: dict[str, Any], w: np.ndarray, tau: np.ndarray) -> float:
    """The log predictive density a row of draws w [S, (K,) D], tau [S]."""
    kind, x, y, extra = (data[key] for key in ("kind", "x", "y", "extra"))
    psi, scale = np.moveaxis(w @ x.T, -1, 1), tau[:, None] ** -0.5  # [S, n(, K)]
    if kind == "logits":
        reached, taken = y[:, None] >= np.arange(2), y[:, None] == np.arange(2)
        values = np.where(taken, log_expit(psi), np.where(reached, log_expit(-psi), 0.0)).sum(-1)
    elif kind == "ordinal":
        ends, at = np.concatenate([[-np.inf], CUTS, [np.inf]]), y.astype(int)
        values = np.log(stats.norm.cdf(ends[at + 1] - psi) - stats.norm.cdf(ends[at] - psi))
    else:
        values = {
            "logit": lambda: log_expit(np.where(y == 1, psi, -psi)),
            "probit": lambda: log_ndtr(np.where(y == 1, psi, -psi)),
            "binomial": lambda: y * log_expit(psi) + (extra - y) * log_expit(-psi) + gammaln(extra + 1) - gammaln(y + 1)
            - gammaln(extra - y + 1),
            "negative": lambda: y * log_expit(psi) + extra * log_expit(-psi) + gammaln(y + extra) - gammaln(extra)
            - gammaln(y + 1),
            "student": lambda: stats.t.logpdf(y, 4.0, psi, scale),
            "laplace": lambda: stats.laplace.logpdf(y, psi, scale),
            "lognormal": lambda: stats.norm.logpdf(np.log(y), psi, scale) - np.log(y),
            "censored": lambda: np.where(extra == 1, stats.norm.logsf(y, psi, scale), stats.norm.logpdf(y, psi, scale)),
        }[kind]()  # fmt: skip
    return float((logsumexp(values, axis=0) - np.log(len(values))).mean())


def fit_ours(data: dict[str, Any]) -> dict[str, Any]:
    """Draws of q and of Gibbs sampling, standard deviations of the linear response, and the seconds of fit and draws."""
    own = time.process_time()
    fit = make_network(data).fit(verbose=False, backend="numpy")
    seconds = [time.process_time() - own]
    rng, names = np.random.default_rng(0), ("w", "tau") if data["kind"] in NOISY else ("w",)
    q = {name: fit[name].sample(rng, 2000) for name in names}
    own = time.process_time()
    gibbs = fit.draws(1000, chains=4, thin=4, names=list(names))  # probits mix slowly
    seconds.append(time.process_time() - own)
    drawn = {name: gibbs[name].values.reshape(-1, *gibbs[name].values.shape[2:]) for name in names}
    response = fit.linear_response()["w"].std()
    falls = np.diff(fit.trace["elbo"]).min() if len(fit.trace.records) > 1 else 0.0
    return {"q": q, "draws": drawn, "mean": fit["w"].mean(), "response": response, "seconds": seconds, "falls": falls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numpyro", type=Path, required=True)
    options = parser.parse_args()
    sets = make_sets()
    with tempfile.TemporaryDirectory() as folder:
        arrays, result = Path(folder) / "arrays.npz", Path(folder) / "result.npz"
        np.savez(arrays, **{f"{n}/{key}": value for n, data in sets.items() for key, value in part(data, True).items()})
        script = HERE / "peers" / "nuts_leaves.py"
        subprocess.run([options.numpyro, "-W", "ignore", script, arrays, result], check=True)
        theirs = dict(np.load(result))
    lines = [
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, natgrad "
        f"{ng.__version__}; processor seconds, NUTS' with compilation.",
        "",
        "| data | log density, q | draws | NUTS | means: q | draws | sd ÷ NUTS: q | response | draws "
        "| fit, s | draws, s | NUTS, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, data in sets.items():
        ours, held = fit_ours(part(data, True)), part(data, False)
        w, tau = theirs[f"{name}/w"], theirs[f"{name}/tau"]
        scores = [
            log_density(held, found["w"], found.get("tau", np.ones(len(found["w"]))))
            for found in (ours["q"], ours["draws"], {"w": w, "tau": tau})
        ]
        sd = w.std(0)
        means = [np.abs((mean - w.mean(0)) / sd).max() for mean in (ours["mean"], ours["draws"]["w"].mean(0))]
        widths = [
            np.median(width / sd) for width in (ours["q"]["w"].std(0), ours["response"], ours["draws"]["w"].std(0))
        ]
        seconds = [*ours["seconds"], float(theirs[f"{name}/cpu"])]
        assert ours["falls"] > -1e-8, name
        cells = [
            *(f"{s:.4f}" for s in scores),
            *(f"{m:.2f}" for m in means),
            *(f"{s:.2f}" for s in widths),
            *(f"{s:.1f}" for s in seconds),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    (HERE / "results" / "leaves.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
