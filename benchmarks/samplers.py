"""Effective draws for each processor second of the worst parameter: natgrad's draws, NumPyro's NUTS and JAGS in one run.

    python benchmarks/samplers.py [--draws 1000] [--models topics] [--peers jags]     # what is not run keeps its last results

A regression (kidiq with two predictors), eight schools, a mixture of two Gaussians of 200 rows, and LDA with 200 documents of 30
words (K = 3; JAGS begins at the truth, tomotopy's draws are of E[φ | z], which vary less; ESS of one chain says little, so
natgrad's and tomotopy's are those of four runs, added up). NUTS has z summed out and its programs
compiled before the clock starts; natgrad's seconds have the fit in them; JAGS' those of its process. Chains of natgrad
are one axis of its arrays, so it makes 256 short ones from q, and 4 long ones in a line of their own; so does NUTS with --many.
Eight schools are declared with a Normal scale times the effects; JAGS samples that and the plain ones. Peers that are not
installed are left out (`pip install numpyro`, Debian's package jags). Every sampler is checked against the others' means.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
from arviz_stats.base import array_stats
from uncertainty_draws import REFERENCES, regression, schools

import natgrad as ng

RESULTS = Path(__file__).parent / "results"
CHAINS, MANY, SHORT, WARM, RUNS = 4, 256, 150, 50, 4


def mixture_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.where(rng.random(200) < 0.4, -1.5, 1.5) + rng.normal(size=200)


class Corpus(NamedTuple):
    """Tokens of 200 documents with the topics that made them."""

    docs: np.ndarray
    words: np.ndarray
    phi: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        table = np.zeros((200, self.phi.shape[1]), dtype=np.int64)
        np.add.at(table, (self.docs, self.words), 1)
        return table


@functools.cache
def corpus() -> Corpus:
    rng = np.random.default_rng(0)
    phi, theta = rng.dirichlet(np.full(30, 0.5), 3), rng.dirichlet(np.full(3, 0.5), 200)
    docs = np.repeat(np.arange(200), 30)
    topics = np.array([rng.choice(3, p=theta[d]) for d in docs])
    return Corpus(docs, np.array([rng.choice(30, p=phi[k]) for k in topics]), phi)


def worst(found: dict[str, np.ndarray]) -> float:
    """The smallest effective size; of several runs, those of all added up."""
    by_run: dict[str, list[float]] = {}
    for key, values in found.items():
        by_run.setdefault(key.partition(" run ")[2], []).append(
            float(np.min(array_stats.ess(values, chain_axis=0, draw_axis=1)))
        )
    return sum(map(min, by_run.values()))


# -- ours --


def mixture() -> tuple[ng.Network, object]:
    k, n, y = ng.Plate("k", 2), ng.Plate("n", 200), mixture_rows()
    tau = ng.Gamma("tau", 4.0, 4.0, plate=k)
    mu = ng.Normal("mu", 0.0, 0.25 * tau, plate=k)
    z = ng.Categorical("z", ng.Dirichlet("w", 4.0, size=2), plate=n)
    network = ng.Network(ng.Normal("y", mu[z], tau[z], plate=n, observed=y))
    return network, lambda draws: {"mu": draws["mu"].values, "p": draws["w"].values[..., 1]}


def ours(name: str, references: dict, n: int, chains: int, warmup: int) -> dict[str, np.ndarray]:
    if name == "topics":
        settings = {"doc_prior": 0.5, "topic_prior": 0.5, "gibbs_sweeps": 2 * n, "verbose": False}
        models = [ng.LDA(3, seed=run, **settings).fit(corpus().counts) for run in range(RUNS)]
        return {f"phi run {run}": model.posterior_["phi"].values for run, model in enumerate(models)}
    if name == "mixture":
        (network, read), init = mixture(), {"mu": [-1.5, 1.5]}
    else:
        make, key = (regression, KIDIQ) if name == "regression" else (schools, SCHOOLS)
        (network, read), init = make(references[key], True), None
    return read(network.fit(init=init, verbose=False).draws(n, chains=chains, warmup=warmup, verbose=False))


KIDIQ, SCHOOLS = "kidiq-kidscore_momhsiq", "eight_schools-eight_schools_noncentered"


# -- NUTS --


def nuts(name: str, references: dict, n: int, chains: int, warmup: int) -> tuple[dict[str, np.ndarray], float]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    if name == "regression":
        record = references[KIDIQ]
        x, y = jnp.array(record["X"]), jnp.array(record["y"])

        def model() -> None:
            w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), (x.shape[1],)))
            sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
            numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)
    elif name == "schools":
        record = references[SCHOOLS]
        y, se = jnp.array(record["y"], float), jnp.array(record["se"], float)

        def model() -> None:
            mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
            eta = numpyro.sample("eta", dist.Normal(0, 1).expand([8]).to_event(1))
            numpyro.sample("y", dist.Normal(numpyro.deterministic("theta", mu + tau * eta), se), obs=y)
    else:
        y = jnp.array(mixture_rows())

        def model() -> None:
            p = numpyro.sample("p", dist.Beta(4.0, 4.0))
            tau = numpyro.sample("t", dist.Gamma(4.0, 4.0).expand([2]).to_event(1))
            mu = numpyro.sample("mu", dist.Normal(0.0, (0.25 * tau) ** -0.5).to_event(1))
            logs = jnp.log(jnp.stack([1 - p, p])) + dist.Normal(mu, tau**-0.5).log_prob(y[:, None])
            numpyro.factor("y", jax.nn.logsumexp(logs, axis=1).sum())

    init = (
        {"init_strategy": numpyro.infer.init_to_value(values={"mu": jnp.array([-1.5, 1.5])})}
        if name == "mixture"
        else {}
    )
    sizes = {"num_warmup": warmup, "num_samples": n, "num_chains": chains}
    mcmc = MCMC(NUTS(model, **init), **sizes, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0))  # compiles
    begun = time.process_time()
    mcmc.run(jax.random.PRNGKey(1))
    found = {key: np.asarray(value) for key, value in mcmc.get_samples(group_by_chain=True).items()}
    spent = time.process_time() - begun
    if name == "regression":
        return {"w": found["w"], "sigma": found["sigma"]}, spent
    if name == "schools":
        return {key: found[key] for key in ("mu", "tau", "theta")}, spent
    return {key: found[key] for key in ("mu", "p")}, spent


# -- tomotopy --


def tomotopy(name: str, references: dict, n: int) -> tuple[dict[str, np.ndarray], float]:
    import tomotopy as tp

    tokens, found, spent = corpus(), {}, 0.0
    for run in range(RUNS):
        model = tp.LDAModel(tw=tp.TermWeight.ONE, k=3, alpha=0.5, eta=0.5, seed=1 + run)
        model.optim_interval = 0
        for document in range(200):
            model.add_doc([str(word) for word in tokens.words[tokens.docs == document]])
        draws = []
        begun = time.process_time()
        model.train(n // 2, workers=1)
        for _ in range(n):
            model.train(1, workers=1)
            draws.append([model.get_topic_word_dist(k) for k in range(3)])
        spent += time.process_time() - begun
        found[f"phi run {run}"] = np.array(draws)[None]
    return found, spent


# -- JAGS --

PROGRAMS = {
    "regression": """model {
  for (i in 1:K) { w[i] ~ dnorm(0, 1.0E-12) }
  t ~ dgamma(0.5, r)
  r ~ dgamma(0.5, 0.16)
  m <- X %*% w
  for (i in 1:N) { y[i] ~ dnorm(m[i], t) }
  sigma <- pow(t, -0.5)
}""",
    "schools": """model {
  mu ~ dnorm(0, 0.04)
  r ~ dgamma(0.5, 0.04)
  t ~ dgamma(0.5, r)
  for (i in 1:8) { theta[i] ~ dnorm(mu, t); y[i] ~ dnorm(theta[i], p[i]) }
  tau <- pow(t, -0.5)
}""",
    "expanded": """model {
  mu ~ dnorm(0, 0.04)
  s ~ dnorm(0, 0.04)
  t ~ dgamma(0.5, 0.5)
  for (i in 1:8) { eta[i] ~ dnorm(0, t); theta[i] <- mu + s * eta[i]; y[i] ~ dnorm(theta[i], p[i]) }
  tau <- abs(s) * pow(t, -0.5)
}""",
    "mixture": """model {
  pi[1:2] ~ ddirch(a)
  for (k in 1:2) { t[k] ~ dgamma(4, 4); mu[k] ~ dnorm(0, 0.25 * t[k]) }
  for (i in 1:N) { z[i] ~ dcat(pi); y[i] ~ dnorm(mu[z[i]], t[z[i]]) }
  p <- pi[2]
}""",
    "topics": """model {
  for (k in 1:3) { phi[k,1:30] ~ ddirch(b) }
  for (d in 1:200) { theta[d,1:3] ~ ddirch(a) }
  for (i in 1:N) { z[i] ~ dcat(theta[doc[i],1:3]); w[i] ~ dcat(phi[z[i],1:30]) }
}""",
}
MONITORS = {"regression": ["w", "sigma"], "schools": ["mu", "tau", "theta"], "mixture": ["mu", "p"], "topics": ["phi"]}
MONITORS["expanded"] = MONITORS["schools"]


def dump(data: dict[str, np.ndarray | float]) -> str:
    """Numbers as R writes them."""
    lines = []
    for name, value in data.items():
        array = np.asarray(value, float)
        text = ",".join(repr(float(v)) for v in array.ravel(order="F"))
        if array.ndim == 2:
            text = f"structure(c({text}), .Dim=c({array.shape[0]},{array.shape[1]}))"
        lines.append(f"{name} <- {text if array.ndim != 1 else f'c({text})'}")
    return "\n".join(lines) + "\n"


def jags(name: str, references: dict, n: int) -> tuple[dict[str, np.ndarray], float]:
    record = references[KIDIQ] if name == "regression" else references[SCHOOLS]
    start = ""
    if name == "regression":
        x = np.asarray(record["X"])
        data = {"X": x, "y": record["y"], "N": len(x), "K": x.shape[1]}
    elif name in ("schools", "expanded"):
        data = {"y": record["y"], "p": np.asarray(record["se"]) ** -2.0}
    elif name == "topics":
        tokens = corpus()
        known = {"doc": tokens.docs + 1, "w": tokens.words + 1, "N": len(tokens.docs)}
        data, start = {**known, "a": np.full(3, 0.5), "b": np.full(30, 0.5)}, dump({"phi": tokens.phi})
    else:
        data, start = {"y": mixture_rows(), "N": 200, "a": [4.0, 4.0]}, dump({"mu": [-1.5, 1.5]})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.bug").write_text(PROGRAMS[name])
        (place / "data.txt").write_text(dump(data))
        script = ["model in model.bug", "data in data.txt", f"compile, nchains({CHAINS})"]
        if start:
            (place / "start.txt").write_text(start)
            script.append("parameters in start.txt")
        script += [
            "initialize",
            f"update {n // 2}",
            *(f"monitor {m}" for m in MONITORS[name]),
            f"update {n}",
            "coda *",
            "exit",
        ]
        (place / "run.cmd").write_text("\n".join(script) + "\n")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["jags", "run.cmd"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        chains = [np.loadtxt(place / f"CODAchain{c + 1}.txt")[:, 1] for c in range(CHAINS)]
        found: dict[str, list[np.ndarray]] = {}
        for line in (place / "CODAindex.txt").read_text().splitlines():
            key, first, last = line.split()
            part = np.stack([chain[int(first) - 1 : int(last)] for chain in chains])
            found.setdefault(key.split("[")[0], []).append(part)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {key: np.stack(parts, -1) if len(parts) > 1 else parts[0] for key, parts in found.items()}, spent


def peers_of(name: str, references: dict, n: int, many: bool) -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Names, samplers and their arguments."""
    if name == "topics":
        return [
            ("tomotopy", tomotopy, (name, references, n)),
            (f"JAGS, {CHAINS} chains", jags, (name, references, n // 10)),
        ]
    peers: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        (f"NumPyro NUTS, {CHAINS} chains", nuts, (name, references, n, CHAINS, n // 2))
    ]
    if many:
        peers += [(f"NumPyro NUTS, {MANY} chains", nuts, (name, references, SHORT, MANY, n // 2))]
    peers += [(f"JAGS, {CHAINS} chains", jags, (name, references, 10 * n))]
    return peers + (
        [("JAGS, scale times effects", jags, ("expanded", references, 10 * n))] if name == "schools" else []
    )


def parsed(line: str) -> tuple[str, float, float]:
    """The sampler, the effective size and the seconds of an earlier line."""
    _, _, peer, size, seconds, *_ = (cell.strip() for cell in line.split("|"))
    return peer, float(size.replace(",", "")), float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument(
        "--many", action="store_true", help=f"NUTS with {MANY} chains, too; it takes minutes to compile"
    )
    parser.add_argument("--models", nargs="+", default=["regression", "schools", "mixture", "topics"])
    parser.add_argument("--peers", nargs="+", default=["nuts", "jags", "tomotopy"])
    options = parser.parse_args()
    n = options.draws
    references = json.loads(REFERENCES.read_text())
    warnings.simplefilter("ignore", ng.errors.PoorMixing)
    path = RESULTS / "samplers.json"
    found: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    for name in options.models:
        rows = []
        sizes = ((n, 1, n),) if name == "topics" else ((SHORT, MANY, WARM), (n, CHAINS, n // 2))
        ours(name, references, n, CHAINS, 10)  # imports, and kernels from their cache
        for size in sizes:
            begun = time.process_time()
            values = ours(name, references, *size)
            words = 'LDA(inference="gibbs")' if name == "topics" else f"{size[1]} chains"
            rows.append((f"natgrad, {words}", values, time.process_time() - begun))
        for peer, function, arguments in peers_of(name, references, n, options.many):
            if function.__name__ not in options.peers:
                continue
            try:
                rows.append((peer, *function(*arguments)))
            except (ImportError, FileNotFoundError) as reason:
                print(f"{peer} is left out: {reason}")
        measured = [(peer, worst(values), seconds) for peer, values, seconds in rows]
        measured += [old for old in map(parsed, found.get(name, [])) if old[0] not in [peer for peer, *_ in rows]]
        ours_rate = measured[0][1] / measured[0][2]
        found[name] = []
        for number, (peer, size, seconds) in enumerate(measured):
            rate = size / seconds
            line = f"| {name} | {peer} | {size:,.0f} | {seconds:.2f} | {rate:,.1f} | {ours_rate / rate:.2f} |"
            found[name].append(line)
            values = rows[number][1] if number < len(rows) else {}
            means = {key: np.round(value.mean((0, 1)), 2).ravel()[:9].tolist() for key, value in values.items()}
            print(line, means, flush=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    head = [
        "| model | sampler | smallest ESS | processor seconds | ESS a second | ours over it |",
        "|---|---|---|---|---|---|",
    ]
    size = f"{CHAINS} chains of {n} draws after {n // 2}, {MANY} of {SHORT} after {WARM}"
    size += "; JAGS ten times as many as the 4, of topics a tenth; topics: four runs of one chain"
    (RESULTS / "samplers.md").write_text(
        "\n".join([*head, *(line for part in found.values() for line in part)]) + f"\n\n{size}.\n"
    )


if __name__ == "__main__":
    main()
