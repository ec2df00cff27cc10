"""Simulated data, parameters from their priors: how often 90 % intervals of q, linear response and draws hold the truth.

Called by ``uncertainty.py coverage``, which goes on where it stopped: what each simulation held is in the results. Components
have no names of their own: draws are put into the order of q by their categories, and so is the truth, by the categories that
were drawn with it (the rule of ``network.calibrate``).
"""

import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"


class Case(NamedTuple):
    """A network of simulated data, its start, and the true value of each node that is compared.

    ``functions`` are of values of nodes, where these have no values of their own: predictions of a factorisation. All have a
    factor for each node (``joint=None``), which is what linear response repairs.
    """

    network: ng.Network
    init: Any
    truth: dict[str, np.ndarray]
    # True ones, which tell which component is which, and the axes of other nodes that are components.
    categories: Mapping[str, tuple[np.ndarray, dict[str, tuple[int, ...]]]] = MappingProxyType({})
    functions: Mapping[str, tuple[Callable[[Any], Any], np.ndarray]] = MappingProxyType({})
    warmup: int = 40
    response: tuple[str, ...] | None = None  # the nodes of which linear response is asked; all by default
    dear: tuple[str, ...] = ()  # those of which it is asked in the first simulations alone
    times: int = 1  # so many times the draws, where chains mix slowly: an interval of few effective draws is too narrow


def regression(rng: np.random.Generator) -> Case:
    """Groups with slopes and intercepts around common ones, uncentred inputs, each coefficient a node or plate of its own."""
    groups, n = 5, 60
    of, x = rng.integers(0, groups, n), 3.0 + rng.normal(size=n)
    level, slope = rng.normal(size=2)
    spread, tau = rng.gamma(4.0, 0.25), rng.gamma(4.0, 0.25)
    offsets = level + rng.normal(size=groups) / np.sqrt(spread)
    y = offsets[of] + slope * x + rng.normal(size=n) / np.sqrt(tau)
    a = ng.Normal("level", 0.0, 1.0)
    b = ng.Normal("slope", 0.0, 1.0)
    c = ng.Normal("offset", a, ng.Gamma("spread", 4.0, 4.0), plate=ng.Plate("group", groups))
    node = ng.Normal("y", c[of] + b * x, ng.Gamma("tau", 4.0, 4.0), plate=ng.Plate("n", n), observed=y)
    truth = {"level": level, "slope": slope, "offset": offsets, "spread": spread, "tau": tau}
    return Case(ng.Network(node, joint=None), None, {k: np.asarray(v) for k, v in truth.items()})


def mixture(rng: np.random.Generator) -> Case:
    """Two overlapping Gaussians."""
    n = 150
    shares, means, tau = rng.dirichlet([5.0, 5.0]), np.sort(rng.normal(scale=1.5, size=2)), rng.gamma(8.0, 1 / 8.0)
    z = rng.choice(2, n, p=shares)
    y = means[z] + rng.normal(size=n) / np.sqrt(tau)
    component = ng.Plate("component", 2)
    w = ng.Dirichlet("w", [5.0, 5.0])
    mu = ng.Normal("mu", 0.0, 1 / 2.25, plate=component)
    point = ng.Plate("point", n)
    chosen = ng.Categorical("z", w, plate=point)
    node = ng.Normal("y", mu[chosen], ng.Gamma("tau", 8.0, 8.0), plate=point, observed=y)
    return Case(
        ng.Network(node),
        {"mu": means, "w": shares},
        {"mu": means, "w": shares, "tau": np.asarray(tau)},
        {"z": (z, {"mu": (0,), "w": (0,)})},
    )


def chain(rng: np.random.Generator) -> Case:
    """Two hidden states with emissions that overlap."""
    n = 120
    rows, means = np.array([rng.dirichlet([8.0, 2.0]), rng.dirichlet([2.0, 8.0])]), np.sort(rng.normal(size=2))
    z = np.full(n, rng.integers(2))
    for t in range(1, n):
        z[t] = rng.choice(2, p=rows[z[t - 1]])
    y = means[z] + rng.normal(size=n)
    state, time = ng.Plate("state", 2), ng.Plate("time", n)
    transition = ng.Dirichlet("A", [[8.0, 2.0], [2.0, 8.0]], plate=state)
    mu = ng.Normal("mu", 0.0, 1.0, plate=state)
    hidden = ng.MarkovChain("z", [0.5, 0.5], transition, plate=time)
    node = ng.Normal("y", mu[hidden], 1.0, plate=time, observed=y)
    categories = {"z": (z, {"mu": (0,), "A": (0, 1)})}
    return Case(ng.Network(node), {"mu": means, "A": rows}, {"mu": means, "A": rows}, categories, warmup=200, times=4)


def topics(
    rng: np.random.Generator,
    k: int = 3,
    n_words: int = 20,
    n_docs: int = 60,
    length: int = 40,
) -> Case:
    """Three topics of twenty words, sixty documents of forty."""
    phi, theta = rng.dirichlet(np.full(n_words, 0.3), k), rng.dirichlet(np.full(k, 0.3), n_docs)
    table = np.array([rng.multinomial(length, share @ phi) for share in theta])
    docs, words = np.nonzero(table)
    doc, topic = ng.Plate("doc", n_docs), ng.Plate("topic", k)
    cell = ng.Plate("cell", len(docs), weight=table[docs, words])
    shares = ng.Dirichlet("theta", 0.3, size=k, plate=doc)
    terms = ng.Dirichlet("phi", 0.3, size=n_words, plate=topic)
    z = ng.Categorical("z", shares[docs], plate=cell)
    network = ng.Network(ng.Categorical("w", terms[z], plate=cell, observed=words))
    init = {"phi": 0.9 * phi + 0.1 / n_words, "theta": 0.9 * theta + 0.1 / k}
    return Case(network, init, {"phi": phi, "theta": theta}, warmup=100, dear=("theta",), times=2)


class Corpus(NamedTuple):
    """Counts that LDA generated, for the ready model."""

    counts: np.ndarray
    phi: np.ndarray
    theta: np.ndarray


def many_topics(rng: np.random.Generator) -> Corpus:
    """Ten topics of three hundred words, four hundred documents of a hundred."""
    phi, theta = rng.dirichlet(np.full(300, 0.1), 10), rng.dirichlet(np.full(10, 0.3), 400)
    return Corpus(np.array([rng.multinomial(100, share @ phi) for share in theta]), phi, theta)


def held_topics(corpus: Corpus, draws: int) -> dict[str, tuple[int, ...]]:
    """As `held`, of `ng.LDA` with its own start, q, linear response and the finish."""
    levels = [*_q_and_response(corpus), _topics(gibbs_sweeps=2 * draws).fit(corpus.counts).posterior_]
    return {
        name: (truth.size, *(_inside(corpus, level, name) for level in levels))
        for name, truth in (("phi", corpus.phi), ("theta", corpus.theta))
    }


def _topics(**options: Any) -> ng.LDA:
    return ng.LDA(10, doc_prior=0.3, topic_prior=0.1, verbose=False, **options)


def _q_and_response(corpus: Corpus) -> tuple[Any, Any]:
    """Linear response goes to the maximum beside the fit first, and has no shares: documents are differentiated through."""
    model = _topics(inference="vb").fit(corpus.counts)
    return model.posterior_, model.linear_response(corpus.counts)


def _inside(corpus: Corpus, level: Any, name: str) -> int:
    """How many true values are inside the intervals, topics matched to the truth by their words; −1 of what is not there."""
    if name not in level:
        return -1
    order = linear_sum_assignment(np.sqrt(corpus.phi) @ np.sqrt(level["phi"].mean()).T, maximize=True)[1]
    truth = getattr(corpus, name)
    low, high = (end[order] if name == "phi" else end[:, order] for end in level[name].interval(0.9))
    return int(((low <= truth) & (truth <= high)).sum())


def factorisation(rng: np.random.Generator) -> Case:
    """Thirty users, twenty items, 240 ratings; the expected ratings of forty pairs that nobody rated."""
    u, v, tau = rng.normal(size=(30, 2)), rng.normal(size=(20, 2)), rng.gamma(8.0, 1 / 8.0)
    pairs = rng.permutation(600)
    who, what = np.divmod(pairs[:240], 20)
    new, other = np.divmod(pairs[240:280], 20)
    y = (u[who] * v[what]).sum(1) + rng.normal(size=240) / np.sqrt(tau)
    users = ng.MultivariateNormal("u", np.zeros(2), np.eye(2), plate=ng.Plate("user", 30))
    items = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=ng.Plate("item", 20))
    noise = ng.Gamma("tau", 8.0, 8.0)
    node = ng.Normal("y", ng.dot(users[who], items[what]), noise, plate=ng.Plate("rating", 240), observed=y)

    def predicted(m: Any) -> Any:
        return (m["u"][..., new, :] * m["v"][..., other, :]).sum(-1)

    truth = predicted({"u": u, "v": v})
    return Case(
        ng.Network(node), {"u": u, "v": v}, {"tau": np.asarray(tau)}, functions={"expected ratings": (predicted, truth)}
    )


def factors(rng: np.random.Generator) -> Case:
    """Factor analysis: forty rows of six columns, two factors; what rows would be without noise, and the noise."""
    w, x, tau = rng.normal(size=(6, 2)), rng.normal(size=(40, 2)), rng.gamma(8.0, 1 / 8.0)
    y = x @ w.T + rng.normal(size=(40, 6)) / np.sqrt(tau)
    row, column = ng.Plate("row", 40), ng.Plate("column", 6)
    loadings = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), plate=column)
    scores = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    node = ng.Normal("y", ng.dot(scores, loadings), ng.Gamma("tau", 8.0, 8.0), plate=(row, column), observed=y)
    at, of = rng.integers(0, 40, 30), rng.integers(0, 6, 30)

    def clean(m: Any) -> Any:
        return (m["x"][..., at, :] * m["w"][..., of, :]).sum(-1)

    truth = clean({"x": x, "w": w})
    return Case(
        ng.Network(node), {"w": w, "x": x}, {"tau": np.asarray(tau)}, functions={"rows without noise": (clean, truth)}
    )


def blocks(rng: np.random.Generator) -> Case:
    """A block model: two groups of senders and of receivers, 14 by 12, ties that do not tell much."""
    b, p, q = rng.beta(2.0, 2.0, (2, 2)), rng.dirichlet([5.0, 5.0]), rng.dirichlet([5.0, 5.0])
    sent, got = rng.choice(2, 14, p=p), rng.choice(2, 12, p=q)
    ties = rng.random((14, 12)) < b[sent][:, got]
    one, two = ng.Plate("one", 2), ng.Plate("two", 2)
    sender, receiver = ng.Plate("sender", 14), ng.Plate("receiver", 12)
    rate = ng.Beta("rate", 2.0, 2.0, plate=(one, two))
    z = ng.Categorical("z", ng.Dirichlet("p", 5.0, size=2), plate=sender)
    c = ng.Categorical("c", ng.Dirichlet("q", 5.0, size=2), plate=receiver)
    node = ng.Bernoulli("y", rate[z, c], plate=(sender, receiver), observed=ties.astype(int))
    truth, groups = {"rate": b, "p": p, "q": q}, {"z": sent, "c": got}
    axes = {"z": {"rate": (0,), "p": (0,)}, "c": {"rate": (1,), "q": (0,)}}
    categories = {name: (groups[name], axes[name]) for name in groups}
    return Case(ng.Network(node), {"rate": 0.9 * b + 0.05, **groups}, truth, categories, warmup=100, times=2)


CHAINS, TAILS, Z = 16, (0.05, 0.95), 1.6449

CASES: dict[str, tuple[str, Callable[[np.random.Generator], Case | Corpus]]] = {
    "regression": ("regression with groups, scalars", regression),
    "mixture": ("mixture of two Gaussians that overlap", mixture),
    "chain": ("hidden Markov model, emissions that overlap", chain),
    "topics": ("LDA, K = 3", topics),
    "many topics": ("LDA, K = 10", many_topics),
    "factorisation": ("factorisation", factorisation),
    "factors": ("factor analysis", factors),
    "blocks": ("block model", blocks),
}


def in_order_of(fit: Any, case: Case) -> dict[str, np.ndarray]:
    """True values with the components in the order of those of the fit whose categories agree most with the true ones."""
    true = dict(case.truth)
    for name, (z, axes) in case.categories.items():
        shares = np.asarray(fit[name].mean()).reshape(len(z), -1)
        order = linear_sum_assignment(shares.T @ np.eye(shares.shape[1])[z], maximize=True)[1]
        for node, own in axes.items():
            for axis in own:
                true[node] = np.take(true[node], order, axis)
    return true


def held(case: Case | Corpus, draws: int) -> dict[str, tuple[int, ...]]:
    """For each node: how many numbers, how many inside the intervals of q, of linear response, and of so many draws."""
    if isinstance(case, Corpus):
        return held_topics(case, draws)
    fit = case.network.fit(init=case.init, verbose=False, tol=1e-6)
    response = list(case.truth) if case.response is None else list(case.response)
    lr = fit.linear_response(response, exact=True) if response or case.functions else None
    drawn = fit.draws(case.times * draws // CHAINS, chains=CHAINS, warmup=case.warmup, starts="q", verbose=False)
    true = in_order_of(fit, case)
    found = {}
    for name in case.truth:
        truth = true[name]
        counts = [truth.size]
        for level in (fit, lr, drawn):
            if level is None or (level is lr and name not in response):
                counts.append(-1)
                continue
            low, high = level[name].interval(0.9)
            counts.append(int(((low <= truth) & (truth <= high)).sum()))
        found[name] = tuple(counts)
    rng = np.random.default_rng(0)
    for name, (function, truth) in case.functions.items():
        of_q = function({node: fit[node].sample(rng, 1000) for node in fit})
        mean = np.asarray(function({node: fit[node].mean() for node in fit}))
        sd = lr.std(function)
        values = function({node: drawn[node].values for node in drawn}).reshape(-1, truth.size)
        limits = [np.quantile(of_q, TAILS, axis=0), (mean - Z * sd, mean + Z * sd), np.quantile(values, TAILS, axis=0)]
        found[name] = (truth.size, *(int(((low <= truth) & (truth <= high)).sum()) for low, high in limits))
    return found


DEAR = 10  # simulations with a linear response that takes longer than all the rest
LEVELS = ("q", "linear_response", "draws")
HEAD = (
    "| model | node | simulations | numbers | q | linear response | draws | not a maximum | CPU s a simulation |",
    "|---|---|---|---|---|---|---|---|---|",
)


def coverage(runs: int, chosen: list[str], draws: int, afresh: bool = False) -> None:
    """Coverage of 90 % intervals by model and node; simulations that were made are not made again, unless ``afresh``."""
    path = RESULTS / "uncertainty-coverage.json"
    models = json.loads(path.read_text())["models"] if path.exists() else {}
    for key in chosen:
        words, make = CASES[key]
        done = models.get(words)
        if afresh or done is None or done["draws"] != draws:
            models[words] = done = {"draws": draws, "seconds": 0.0, "held": []}
        for seed in range(len(done["held"]), runs):
            begin = time.process_time()
            case = make(np.random.default_rng([seed, 7]))
            if isinstance(case, Case) and seed >= DEAR and case.dear:
                case = case._replace(response=tuple(name for name in case.truth if name not in case.dear))
            try:
                one = held(case, draws)
            except ng.errors.NotAtMaximum:
                one = None
            done["held"].append(one)
            done["seconds"] += time.process_time() - begin
            write(path, models)
        print("\n".join(lines_of(words, done)), flush=True)


def write(path: Path, models: dict[str, Any]) -> None:
    """The counts of all simulations as JSON, a line for each model, and the table."""
    rows = ",\n".join(f"  {json.dumps(words)}: {json.dumps(done)}" for words, done in models.items())
    head = f'{{"machine": "{platform.machine()}", "natgrad": "{ng.__version__}", "models": {{\n'
    path.write_text(f"{head}{rows}\n}}}}\n")
    lines = [line for words, done in models.items() for line in lines_of(words, done)]
    path.with_suffix(".md").write_text("\n".join([*HEAD, *lines]) + "\n")


def lines_of(words: str, done: dict[str, Any]) -> list[str]:
    """Rows of the table, one a node. Errors are of simulations: numbers of one simulation are in or out together."""
    made = [one for one in done["held"] if one is not None]
    lines = []
    for node in made[0]:
        counts = np.array([one[node] for one in made], float)
        cells = [words, node, str(len(done["held"])), str(int(counts[:, 0].sum()))]
        for level in range(1, 1 + len(LEVELS)):
            shares = (counts[:, level] / counts[:, 0])[counts[:, level] >= 0]
            error = shares.std(ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else np.nan
            some = "" if len(shares) == len(made) else f" ({len(shares)} simulations)"
            cells.append(f"{shares.mean():.1%} ± {error:.1%}{some}" if len(shares) else "")
        cells += [str(len(done["held"]) - len(made)), f"{done['seconds'] / len(done['held']):.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
