"""Which settings of LDA a user should get: held-out score and CPU seconds, and how near generated topics are found.

    python benchmarks/lda_default.py corpora --seeds 2     # parts of 5,000 documents of two corpora
    python benchmarks/lda_default.py generated --seeds 3   # 400 documents of 100 words with ten known topics
    python benchmarks/lda_default.py table                 # from the runs there are

Scores are those of `lda_evaluator`; errors are mean total variations of matched topics. One thread; seconds are of the processor
and leave out compilation.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results" / "lda-default.json"
DOCUMENTS, TOPICS = 5_000, 50
SETTINGS = {
    "plain VB": {},
    'learn_priors="doc"': {"learn_priors": "doc"},
    'local="map", learn_priors="doc"': {"local": "map", "learn_priors": "doc"},
    'fifty passes, finish="gibbs"': {"max_passes": 50, "finish": "gibbs"},
    'finish="gibbs"': {"finish": "gibbs"},
    'learn_priors=True, finish="gibbs"': {"learn_priors": True, "finish": "gibbs"},
    'local="map", learn_priors=True, finish="gibbs"': {"local": "map", "learn_priors": True, "finish": "gibbs"},
}
FURTHER = {
    "plain VB, three passes": {"max_passes": 3, "tol": 0},
    "plain VB, tol=1e-9": {"tol": 1e-9, "max_passes": 500},
    "plain VB, α and β as drawn": {"doc_prior": "true", "topic_prior": 0.1},
    "plain VB, learn_priors=True from α = 1": {"doc_prior": 1.0, "learn_priors": True},
    'plain VB, fit(moves="keep")': {"moves": "keep"},
    "plain VB from the true topics": None,
}
CONCENTRATIONS = (0.1, 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("corpora", "generated", "table"))
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.what != "table":
        for seed in range(options.seeds):
            (corpora if options.what == "corpora" else generated)(runs, seed)
    text = "\n".join([*corpora_table(runs), "", *generated_table(runs), ""])
    RESULTS.with_suffix(".md").write_text(text)
    print(text)


def keep(runs: dict, key: str, row: dict) -> None:
    runs[key] = row
    print(key, row, flush=True)
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n")


def corpora(runs: dict, seed: int) -> None:
    from lda_evaluator import score, splits

    import natgrad as ng

    for corpus in ("acl", "cve"):
        data = splits(corpus, DOCUMENTS)
        for name, settings in SETTINGS.items():
            key = f"{corpus}|{name}|{seed}"
            if key in runs:
                continue
            few = {**settings, "max_passes": 2, "finish_sweeps": 2}
            ng.LDA(TOPICS, **few, n_jobs=1, verbose=False).fit(data.train[:300])  # compiles
            begun = time.process_time()
            model = ng.LDA(TOPICS, **settings, seed=seed, n_jobs=1, verbose=False).fit(data.train)
            used = time.process_time() - begun
            keep(runs, key, {"score": score(model.topics_, model.doc_prior_, data.test), "cpu": used})


def generated(runs: dict, seed: int) -> None:
    import natgrad as ng
    from natgrad.models.lda.topics import aligned

    for alpha in CONCENTRATIONS:
        rng = np.random.default_rng(seed)
        topics, shares = rng.dirichlet(np.full(300, 0.1), 10), rng.dirichlet(np.full(10, alpha), 400)
        counts = np.array([rng.multinomial(100, share @ topics) for share in shares])
        for name, settings in {**SETTINGS, **FURTHER}.items():
            key = f"generated {alpha}|{name}|{seed}"
            if key in runs:
                continue
            begun = time.process_time()
            if settings is None:
                found, elbo = from_truth(counts, topics)
            else:
                own = {**settings, **({"doc_prior": alpha} if settings.get("doc_prior") == "true" else {})}
                moves = {"moves": own.pop("moves")} if "moves" in own else {}
                model = ng.LDA(10, **own, seed=seed, n_jobs=1, verbose=False).fit(counts, **moves)
                found, elbo = model.topics_, model.elbo_
            error = float(np.mean(aligned(topics, found).distance))
            keep(runs, key, {"error": error, "elbo": elbo, "cpu": time.process_time() - begun})


def from_truth(counts: np.ndarray, topics: np.ndarray) -> tuple[np.ndarray, float]:
    """Plain VB with the default priors that begins at the topics of which the documents were drawn."""
    from natgrad.data.corpus import as_corpus
    from natgrad.inference.engine import Limits, Phase, run
    from natgrad.inference.methods import VB
    from natgrad.models.lda.problem import LDAProblem, Local

    problem = LDAProblem(as_corpus(counts), np.full(10, 0.1), 0.05, Local("vb", 1e-5, 1000, 0.0, np.float64))
    limits = Limits(300, 1e-4, share=counts.sum())
    done = run(
        Phase(problem, VB(), None, ("phi",)), problem.at(topics * counts.sum() / 10 + 0.05), limits=limits, seed=0
    )
    concentration = done.state.lam["phi"][0] + 1.0
    return concentration / concentration.sum(1, keepdims=True), problem.bound(done.state)


def mean(runs: dict, first: str, name: str, field: str) -> float | None:
    values = [row[field] for key, row in runs.items() if key.startswith(f"{first}|{name}|")]
    return float(np.mean(values)) if values else None


def corpora_table(runs: dict) -> list[str]:
    lines = [
        f"Parts of {DOCUMENTS:,} documents, K = {TOPICS}: mean log probability of a held-out word, and CPU seconds.", "",
        "| settings | ACL | CPU, s | CVE | CPU, s |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name in SETTINGS:
        cells = [mean(runs, corpus, name, field) for corpus in ("acl", "cve") for field in ("score", "cpu")]
        if None not in cells:
            lines.append(f"| {name} | {cells[0]:.4f} | {cells[1]:.1f} | {cells[2]:.4f} | {cells[3]:.1f} |")
    return lines


def generated_table(runs: dict) -> list[str]:
    head = " | ".join(f"error, α = {alpha} | bound" for alpha in CONCENTRATIONS)
    lines = [
        "400 documents of 100 words drawn with ten topics over 300 words, β = 0.1: mean total variation of matched "
        "topics, the bound, CPU seconds.", "",
        f"| settings | {head} | CPU, s |", "|---|" + "---:|" * (2 * len(CONCENTRATIONS) + 1),
    ]  # fmt: skip
    for name in {**SETTINGS, **FURTHER}:
        cells = [
            mean(runs, f"generated {alpha}", name, field) for alpha in CONCENTRATIONS for field in ("error", "elbo")
        ]
        if None not in cells:
            shown = " | ".join(
                f"{error:.2f} | {elbo:,.0f}" for error, elbo in zip(cells[::2], cells[1::2], strict=True)
            )
            used = np.mean([mean(runs, f"generated {alpha}", name, "cpu") for alpha in CONCENTRATIONS])
            lines.append(f"| {name} | {shown} | {used:.1f} |")
    return lines


if __name__ == "__main__":
    main()
