"""The posteriors of posteriordb that natgrad can declare, from a JSON file of their data and the moments of reference draws.

Half-Cauchy(A) scales are declared exactly: σ⁻² ~ Gamma(½, b), b ~ Gamma(½, 1/A²). A flat σ is σ⁻² ~ Gamma(10⁻⁶, 10⁻⁶), which is
flat in log σ. Coefficients with an improper flat prior have a precision of 10⁻¹⁰ in units of the largest coefficient's square.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import natgrad as ng

REFERENCES = Path(__file__).resolve().parents[1].parent / "shared" / "references" / "posteriordb.json"


class Posterior(NamedTuple):
    """A declared posterior: its network, where it starts, and each parameter of the reference as a function of the means."""

    network: ng.Network
    init: Any
    quantities: dict[str, Callable[[Any], Any]]
    reference: dict[str, dict[str, float]]


def read_references(path: Path = REFERENCES) -> dict[str, Any]:
    """The file's records by name."""
    return json.loads(path.read_text())


def declare(record: dict[str, Any], scalars: bool) -> Posterior:
    """A record as a network; regressions with one Normal a coefficient, or with one vector."""
    make = {"regression": _regression, "schools": _schools, "chain": _chain}[record["kind"]]
    network, init, quantities = make(record, scalars)
    return Posterior(network, init, quantities, record["reference"])


def _scale(name: str, prior: str) -> Any:
    """σ⁻² under a prior of σ."""
    if prior == "flat":
        return ng.Gamma(name, 1e-6, 1e-6)
    width = float(prior.removeprefix("half-Cauchy(").removesuffix(")"))
    return ng.Gamma(name, 0.5, ng.Gamma(f"{name}_rate", 0.5, width**-2))


def _regression(record: dict[str, Any], scalars: bool) -> Any:
    x, y = np.asarray(record["X"]), np.asarray(record["y"])
    names, size = record["coefficients"], x.shape[1]
    means = np.broadcast_to(np.asarray(record["coefficient_prior_mean"], float), size)
    given = np.broadcast_to(np.asarray(record["coefficient_prior_precision"], float), size)
    largest = max(abs(record["reference"][name]["mean"]) for name in names)
    precisions = np.where(given > 0, given, 1e-10 / largest**2)
    tau = _scale("tau", record["sigma_prior"])
    plate = ng.Plate("n", len(y))
    quantities: dict[str, Callable[[Any], Any]] = {"sigma": lambda m: m["tau"] ** -0.5}
    if scalars:
        nodes = [ng.Normal(f"b{i}", means[i], precisions[i]) for i in range(size)]
        mean = sum(node * x[:, i] for i, node in enumerate(nodes))
        quantities |= {name: (lambda m, i=i: m[f"b{i}"]) for i, name in enumerate(names)}
    else:
        mean = ng.dot(x, ng.MultivariateNormal("b", means, np.diag(precisions)))
        quantities |= {name: (lambda m, i=i: m["b"][i]) for i, name in enumerate(names)}
    # A factor for each node: what linear response has to repair.
    return ng.Network(ng.Normal("y", mean, tau, plate=plate, observed=y), joint=None), None, quantities


def _schools(record: dict[str, Any], scalars: bool) -> Any:
    school = ng.Plate("school", len(record["y"]))
    mu = ng.Normal("mu", 0.0, 1 / 25)
    precision = _scale("precision", "half-Cauchy(5)")
    theta = ng.Normal("theta", mu, precision, plate=school)
    y = ng.Normal("y", theta, np.asarray(record["se"]) ** -2.0, plate=school, observed=record["y"])
    quantities: dict[str, Callable[[Any], Any]] = {
        f"theta[{i + 1}]": (lambda m, i=i: m["theta"][i]) for i in range(len(record["y"]))
    }
    quantities |= {"mu": lambda m: m["mu"], "tau": lambda m: m["precision"] ** -0.5}
    return ng.Network(y), None, quantities


def _chain(record: dict[str, Any], scalars: bool) -> Any:
    time, state = ng.Plate("time", len(record["y"])), ng.Plate("state", 2)
    rows = ng.Dirichlet("theta", np.ones((2, 2)), plate=state)
    mu = ng.Normal("mu", [3.0, 10.0], 1.0, plate=state)
    z = ng.MarkovChain("z", [0.5, 0.5], rows, plate=time)
    y = ng.Normal("y", mu[z], 1.0, plate=time, observed=record["y"])
    quantities: dict[str, Callable[[Any], Any]] = {
        f"theta{i + 1}[{j + 1}]": (lambda m, i=i, j=j: m["theta"][i, j]) for i in range(2) for j in range(2)
    }
    quantities |= {f"mu[{i + 1}]": (lambda m, i=i: m["mu"][i]) for i in range(2)}
    return ng.Network(y), {"mu": [3.0, 10.0]}, quantities
