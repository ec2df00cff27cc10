"""`make demo`: the pitfall of stochastic variational inference in miniature, two models in a few lines each, and a page.

    python -m natgrad.demo [--plot demo.png] [--page demo.html]

The exit code is 0 only if what the text claims was seen: the textbook recipe diverges with one child a step, under both
options, and every run with the default step ends finite and above where it began.

The model of the first part is that of Paquet (2014), section 3: r ~ N(uᵀv, 1), fully factorised, ratings not centred.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from sklearn.feature_extraction.text import CountVectorizer

import natgrad as ng
from natgrad.data.datasets.generated import paper_ratings
from natgrad.data.ratings import Ratings
from natgrad.inference.methods import Method
from natgrad.network.results.fit import Fit
from natgrad.network.start.initial import make_start
from natgrad.reproduce.pitfall import Curve, plot_pitfall

__all__ = [
    "Run",
    "curves",
    "factorisation",
    "main",
    "make_ratings",
    "plan_runs",
    "run_all",
    "start_bound",
    "verdict",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
TEXTBOOK = ng.inference.RobbinsMonro(delay=0, forgetting=0.6)
# Every sampled run reads this many sweeps' worth of messages; full VB takes its own number of sweeps.
BUDGET, VB_SWEEPS = 10, 50
SEED = 3


class Run(NamedTuple):
    """One way to fit the same network. ``step`` None is the default."""

    name: str
    method: Method
    step: ng.inference.RobbinsMonro | None
    steps: int

    @property
    def option(self) -> str:
        """When the variables move; full VB needs no such choice here."""
        return "" if isinstance(self.method, ng.VB) else str(getattr(self.method, "option", ""))

    @property
    def size(self) -> str:
        """What one step reads: children of each variable, or a batch."""
        if isinstance(self.method, ng.Children):
            return f"{self.method.C}"
        return f"{self.method.size} in all" if isinstance(self.method, ng.inference.GlobalBatch) else "all"


def make_ratings(n_users: int = 300, n_items: int = 200, n_ratings: int = 10_000, seed: int = 0) -> Ratings:
    """Few ratings of the law that `natgrad reproduce paquet` has a million of."""
    return paper_ratings(n_users, n_items, n_ratings, seed=seed)


def factorisation(data: Ratings, n_factors: int = 5) -> ng.Network:
    """Every u_mk and v_nk is a node of its own: the fully factorised model of the paper."""
    user, item = ng.Plate("user", data.n_users), ng.Plate("item", data.n_items)
    factor, rating = ng.Plate("factor", n_factors), ng.Plate("rating", len(data.values))
    u = ng.Normal("u", 0.0, 1.0, plate=(user, factor))
    v = ng.Normal("v", 0.0, 1.0, plate=(item, factor))
    r = ng.Normal("r", ng.dot(u[data.users], v[data.items]), 1.0, plate=rating, observed=data.values)
    return ng.Network(r)


def plan_runs(data: Ratings, budget: float = BUDGET, sweeps: int = VB_SWEEPS) -> list[Run]:
    """Full VB, the textbook recipe and the default step: the same methods with one and the other."""
    n_ratings = len(data.values)
    per_step = (data.n_users + data.n_items) / (2 * n_ratings)  # sweeps that one child of each variable amounts to
    batch = max(1, n_ratings // 50)
    runs = [Run("full VB", ng.VB(), None, sweeps)]
    for step, name in ((TEXTBOOK, "textbook"), (None, "default")):
        for C in (1, 8):
            steps = max(1, round(budget / (C * per_step)))
            runs += [Run(name, ng.Children(C, "a"), step, steps), Run(name, ng.Children(C, "b"), step, steps)]
        steps = max(1, round(budget * n_ratings / batch))
        runs += [
            Run(name, ng.inference.GlobalBatch(batch, "a"), step, steps),
            Run(name, ng.inference.GlobalBatch(batch, "b"), step, steps),
        ]
    return runs


def run_all(network: ng.Network, runs: Sequence[Run], seed: int = SEED) -> list[Fit]:
    """Fit the network in every way, all from the same start: a draw from the prior."""
    common: dict[str, Any] = {"tol": 0, "init": "random", "seed": seed, "order": ("u", "v"), "verbose": False}
    return [network.fit(run.method, step=run.step, max_steps=run.steps, **common) for run in runs]


def start_bound(network: ng.Network, seed: int = SEED) -> float:
    """The bound where all runs begin; a trace has its first entry after the first step."""
    return network.problem.bound(make_start(network.problem, "random", seed))


def verdict(runs: Sequence[Run], fits: Sequence[Fit]) -> list[str]:
    """What was claimed and not seen; nothing, if all went as the text says."""
    wrong = []
    for run, fit in zip(runs, fits, strict=True):
        what = f"{run.name}, {run.size}, option {run.option or '-'}"
        textbook = run.name == "textbook"
        if textbook and isinstance(run.method, ng.Children) and run.method.C == 1 and not fit.stop.diverged:
            wrong.append(f"{what}: expected to diverge, but {fit.stop}")
        if not textbook and not _improved(fit):
            wrong.append(f"{what}: expected to end finite and above its start, but {fit.stop}")
    return wrong


def curves(runs: Sequence[Run], fits: Sequence[Fit]) -> tuple[list[Curve], float]:
    """The traces as lines to draw, messages counted in full sweeps, and the best bound among them."""
    sweep = float(fits[0].trace["messages_read"][0])
    colours = {"all": "black", "1": "tab:red", "8": "tab:blue"}
    lines = []
    for run, fit in zip(runs, fits, strict=True):
        sample = f", C = {run.size}" if isinstance(run.method, ng.Children) else ""
        sample = f", batch of {run.method.size}" if isinstance(run.method, ng.inference.GlobalBatch) else sample
        lines.append(
            Curve(
                run.name + sample,
                (run.option,) if run.option else ("a", "b"),
                fit.trace["messages_read"] / sweep,
                fit.trace["elbo"],
                fit.stop.diverged,
                colours.get(run.size, "tab:green"),
                dashed=run.name == "textbook",
            )
        )
    return lines, max(float(np.max(line.bound)) for line in lines if not line.diverged)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if every claim was seen."""
    parser = argparse.ArgumentParser(prog="python -m natgrad.demo", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--plot", type=Path, default=Path("demo.png"), help="where the picture goes (demo.png)")
    parser.add_argument("--page", type=Path, help="where the page goes (demo.html beside the picture)")
    options = parser.parse_args(arguments)
    page = options.page or options.plot.with_name("demo.html")
    for name, path in (("plot", options.plot), ("page", page)):
        if not path.absolute().parent.is_dir():
            parser.error(f"--{name}: there is no folder {path.parent}")
    begin = time.perf_counter()
    console = Console(highlight=False)
    wrong = _show_pitfall(console, options.plot)
    _show_mixture(console)
    _show_topics(console)
    _show_page(console, page)
    for line in wrong:
        console.print(f"[red]not as claimed:[/red] {escape(line)}", soft_wrap=True)
    console.print(f"\n{'Something was not as claimed' if wrong else 'Done'}, {time.perf_counter() - begin:.0f} s.")
    return 1 if wrong else 0


# -- 1: the pitfall --


def _show_pitfall(console: Console, path: Path) -> list[str]:
    data = make_ratings()
    runs = plan_runs(data)
    console.rule("1. The pitfall", align="left")
    console.print(
        f"{data.n_users} users, {data.n_items} items, {len(data.values):,} ratings: r ~ N(u·v, 1), five factors, each\n"
        "number u and v with a posterior of its own. A variable that reads C of its N\n"
        "ratings counts each N/C times. The textbook step t^-0.6 begins at ρ = 1, the\n"
        "default step near C/N, for each variable its own.\n"
    )
    network = factorisation(data)
    with console.status("fitting the same network in several ways"):
        fits = run_all(network, runs)
    console.print(_table(runs, fits))
    lost = next((fit for fit in fits if fit.stop.diverged), None)
    if lost is not None:
        console.print(f"\nThe first of these ended with: [i]{escape(str(lost.stop))}[/i]")
    lines, best = curves(runs, fits)
    picture = plot_pitfall(lines, start=start_bound(network), reference=best, path=path)
    console.print(f"\nThe bounds against messages read: [b]{picture}[/b]\n", soft_wrap=True)
    return verdict(runs, fits)


def _table(runs: Sequence[Run], fits: Sequence[Fit]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in ("method", "option", "C", "step"):
        table.add_column(name)
    table.add_column("what happened")
    for name in ("bound", "sweeps"):
        table.add_column(name, justify="right")
    sweep = fits[0].trace["messages_read"][0]
    for run, fit in zip(runs, fits, strict=True):
        lost = fit.stop.diverged
        read = fit.trace["messages_read"][-1] / sweep if len(fit.trace) else 0.0
        table.add_row(
            type(run.method).__name__,
            run.option,
            run.size,
            "ρ = 1" if run.size == "all" else "t^-0.6" if run.step else "default",
            f"diverged, step {len(fit.trace) + 1}" if lost else f"{len(fit.trace)} steps",
            f"{fit.elbo:.1e}" if fit.elbo < -1e7 else f"{fit.elbo:,.0f}",
            f"{read:.2f}",
            style="red" if lost else None,
        )
    return table


def _improved(fit: Fit) -> bool:
    bounds = fit.trace["elbo"]
    return bool(not fit.stop.diverged and np.isfinite(bounds).all() and bounds[-1] > bounds[0])


# -- 2: a mixture --


def mixture(points: Floats, n_components: int) -> ng.Network:
    """A mixture of Gaussians."""
    point = ng.Plate("point", len(points))
    component = ng.Plate("component", n_components)
    weight = ng.Dirichlet("weight", 1.0, size=n_components)
    z = ng.Categorical("z", weight, plate=point)
    mu = ng.MultivariateNormal("mu", 0.0, 0.01, size=2, plate=component)
    tau = ng.Wishart("tau", 2, np.eye(2), plate=component)
    x = ng.MultivariateNormal("x", mu[z], tau[z], plate=point, observed=points)
    return ng.Network(x)


def _show_mixture(console: Console) -> None:
    rng = np.random.default_rng(0)
    true = np.array([[-3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])
    points = true[rng.choice(3, 400, p=[0.5, 0.3, 0.2])] + rng.normal(size=(400, 2))
    _show_code(console, "2. A mixture of Gaussians", mixture)
    fit = mixture(points, 3).fit(init="kmeans", seed=0, verbose=False)
    (low, high), mean = fit["mu"].interval(0.9), fit["mu"].mean()
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in ("weight", "mean, with 90 % intervals", "generated around"):
        table.add_column(name)
    for k in np.argsort(-fit["weight"].mean()):
        near = true[np.argmin(((true - mean[k]) ** 2).sum(1))]
        where = ", ".join(f"{mean[k, d]:5.2f} ({low[k, d]:.2f} to {high[k, d]:.2f})" for d in range(2))
        table.add_row(f"{fit['weight'].mean()[k]:.2f}", where, ", ".join(f"{value:g}" for value in near))
    console.print(table)
    console.print(f"bound {fit.elbo:.2f} after {len(fit.trace)} sweeps: {fit.stop}\n")


# -- 3: topics --

WORDS = {
    "kitchen": ["flour", "butter", "oven", "sugar", "salt", "dough"],
    "garden": ["soil", "seed", "rain", "root", "leaf", "spade"],
    "sea": ["wave", "sail", "harbour", "tide", "anchor", "salt"],
}


def topics(doc_of: Ints, word: Ints, count: Ints, n_words: int, n_topics: int) -> ng.Network:
    """Latent Dirichlet allocation on a bag of words: one cell for each document and word in it."""
    doc = ng.Plate("doc", int(doc_of.max()) + 1)
    topic = ng.Plate("topic", n_topics)
    cell = ng.Plate("cell", len(word), weight=count)
    theta = ng.Dirichlet("theta", 0.5, size=n_topics, plate=doc)
    phi = ng.Dirichlet("phi", 0.1, size=n_words, plate=topic)
    z = ng.Categorical("z", theta[doc_of], plate=cell)
    w = ng.Categorical("w", phi[z], plate=cell, observed=word)
    return ng.Network(w)


def _show_topics(console: Console) -> None:
    rng = np.random.default_rng(1)
    names = list(dict.fromkeys(word for group in WORDS.values() for word in group))
    phi = np.array([[0.9 / len(group) if word in group else 0.0 for word in names] for group in WORDS.values()])
    phi += 0.1 / len(names)
    counts = rng.poisson(60 * rng.dirichlet(np.full(3, 0.3), 150) @ (phi / phi.sum(1, keepdims=True)))
    doc_of, word = np.nonzero(counts)
    _show_code(console, "3. A topic model", topics)
    network = topics(doc_of, word, counts[doc_of, word], len(names), 3)
    fit = max((network.fit(init="random", seed=seed, verbose=False) for seed in range(3)), key=lambda found: found.elbo)
    (low, high), mean = fit["phi"].interval(0.9), fit["phi"].mean()
    for k in range(3):
        best = np.argsort(-mean[k])[:6]
        shown = ", ".join(f"{names[v]} {mean[k, v]:.2f}" for v in best)
        first = best[0]
        console.print(
            f"topic {k + 1}: {shown}\n         90 % interval of {names[first]!r}: {low[k, first]:.3f} to {high[k, first]:.3f}"
        )
    console.print(f"bound {fit.elbo:.2f}, the best of three starts")


# -- 4: a page --

PACKAGES = ["asyncio", "email", "jax", "matplotlib", "numpy", "scipy", "sklearn"]


def write_page(path: Path, limit: int = 3000, n_topics: int = 20) -> ng.LDA:
    """Topics of docstrings, which every machine has, and the page of the fit."""
    docstrings = ng.data.load_docstrings(limit=limit, packages=PACKAGES)
    counter = CountVectorizer(stop_words="english", min_df=5, max_df=0.3, token_pattern="[a-zA-Z]{3,}")
    counts = counter.fit_transform(docstrings.texts)
    model = ng.LDA(n_topics, seed=0, verbose=False).fit(counts, vocabulary=counter.get_feature_names_out())
    model.report(
        path,
        data=counts,
        names=_snippets(docstrings.names, docstrings.texts),
        title="What Python's docstrings are about",
    )
    return model


def _snippets(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    return [f"{name}: {' '.join(text.split())[:200]}" for name, text in zip(names, texts, strict=True)]


def _show_page(console: Console, path: Path) -> None:
    console.rule("4. A page", align="left")
    console.print(f"Documents are the docstrings of {', '.join(PACKAGES)}; twenty topics.\n")
    with console.status("reading docstrings and fitting topics"):
        model = write_page(path)
    for words in model.top_words(6, by="relevance")[:5]:
        console.print("  " + escape(" ".join(words)), soft_wrap=True)
    console.print(f"  …\n\nAll of it, to open in a browser: [b]{path}[/b]", soft_wrap=True)


def _show_code(console: Console, title: str, function: Callable[..., Any]) -> None:
    console.rule(title, align="left")
    body = [line[4:] for line in inspect.getsource(function).splitlines() if line.startswith("    ")]
    code = "\n".join(line for line in body if not line.startswith('"""'))
    console.print(Padding(Syntax(code, "python", background_color="default", word_wrap=True), (0, 0, 1, 2)))


if __name__ == "__main__":
    sys.exit(main())
