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
    "the default": {},
    "learn_priors=False": {"learn_priors": False},
    'inference="vb"': {"inference": "vb"},
    'inference="vb", gibbs_sweeps=40': {"inference": "vb", "gibbs_sweeps": 40},
    'inference="vb", gibbs_sweeps=0': {"inference": "vb", "gibbs_sweeps": 0},
    'fit(moves="keep")': {"moves": "keep"},
    'inference="vb", learn_priors="doc"': {"inference": "vb", "learn_priors": "doc"},
    'inference="vb", learn_priors=True': {"inference": "vb", "learn_priors": True},
    'local="map", learn_priors="doc"': {"local": "map", "learn_priors": "doc"},
}
FURTHER = {
    'inference="vb", gibbs_sweeps=0, three passes': {"inference": "vb", "gibbs_sweeps": 0, "max_passes": 3, "tol": 0},
    'inference="vb", gibbs_sweeps=0, tol=1e-9': {"inference": "vb", "gibbs_sweeps": 0, "tol": 1e-9, "max_passes": 500},
    'inference="vb", gibbs_sweeps=0, α and β as drawn': {
        "inference": "vb",
        "gibbs_sweeps": 0,
        "doc_prior": "true",
        "topic_prior": 0.1,
    },
    'inference="vb", α and β as drawn': {"inference": "vb", "doc_prior": "true", "topic_prior": 0.1},
    'inference="vb", learn_priors=True from α = 1': {"inference": "vb", "doc_prior": 1.0, "learn_priors": True},
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

    for corpus in ("acl", "cve"):
        data = splits(corpus, DOCUMENTS)
        for name, settings in SETTINGS.items():
            key = f"{corpus}|{name}|{seed}"
            if key in runs:
                continue
            for few in ({"max_passes": 2}, {"gibbs_sweeps": 2}):  # compiles
                fitted({**settings, **few}, TOPICS, data.train[:300], seed)
            model, used = fitted(settings, TOPICS, data.train, seed)
            row = {"score": score(model.topics_, model.doc_prior_, data.test), "elbo": model.elbo_, "cpu": used}
            keep(runs, key, row)


def fitted(settings: dict, n_topics: int, counts, seed: int):
    """A fit with these settings, of which ``moves`` is one of the call, and its CPU seconds."""
    import natgrad as ng

    own = dict(settings)
    moves = {"moves": own.pop("moves")} if "moves" in own else {}
    begun = time.process_time()
    model = ng.LDA(n_topics, **own, seed=seed, n_jobs=1, verbose=False).fit(counts, **moves)
    return model, time.process_time() - begun


def generated(runs: dict, seed: int) -> None:
    from lda_evaluator import halves, score
    from scipy.sparse import csr_array

    from natgrad.models.lda.topics import aligned

    fitted({"max_passes": 2}, 10, np.random.default_rng(0).poisson(1.0, (400, 300)), 0)  # compiles
    for alpha in CONCENTRATIONS:
        rng = np.random.default_rng(seed)
        topics, shares = rng.dirichlet(np.full(300, 0.1), 10), rng.dirichlet(np.full(10, alpha), 400)
        counts = np.array([rng.multinomial(100, share @ topics) for share in shares])
        others = rng.dirichlet(np.full(10, alpha), 200)
        held = halves(csr_array(np.array([rng.multinomial(100, share @ topics) for share in others])), 1)
        for name, settings in {**SETTINGS, **FURTHER}.items():
            key = f"generated {alpha}|{name}|{seed}"
            if key in runs:
                continue
            if settings is None:
                begun = time.process_time()
                found, elbo = from_truth(counts, topics)
                used, prior = time.process_time() - begun, np.full(10, 0.1)
            else:
                drawn = {"doc_prior": alpha} if settings.get("doc_prior") == "true" else {}
                model, used = fitted({**settings, **drawn}, 10, counts, seed)
                found, elbo, prior = model.topics_, model.elbo_, model.doc_prior_
            error = float(np.mean(aligned(topics, found).distance))
            keep(runs, key, {"error": error, "score": score(found, prior, held), "elbo": elbo, "cpu": used})


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
        f"Parts of {DOCUMENTS:,} documents, K = {TOPICS}: mean log probability of a held-out word, the bound, and CPU seconds.",
        "", "| settings | ACL | bound | CPU, s | CVE | bound | CPU, s |", "|---|" + "---:|" * 6,
    ]  # fmt: skip
    for name in SETTINGS:
        cells = [mean(runs, corpus, name, field) for corpus in ("acl", "cve") for field in ("score", "elbo", "cpu")]
        if None not in cells:
            shown = [f"{s:.4f} | {b:,.0f} | {c:.1f}" for s, b, c in (cells[:3], cells[3:])]
            lines.append(f"| {name} | {shown[0]} | {shown[1]} |")
    return lines


def generated_table(runs: dict) -> list[str]:
    head = " | ".join(f"error, α = {alpha} | score | bound" for alpha in CONCENTRATIONS)
    lines = [
        "400 documents of 100 words drawn with ten topics over 300 words, β = 0.1: mean total variation of matched "
        "topics, mean log probability of a held-out word of 200 more documents, the bound, CPU seconds.", "",
        f"| settings | {head} | CPU, s |", "|---|" + "---:|" * (3 * len(CONCENTRATIONS) + 1),
    ]  # fmt: skip
    for name in {**SETTINGS, **FURTHER}:
        rows = [
            [mean(runs, f"generated {alpha}", name, field) for field in ("error", "score", "elbo", "cpu")]
            for alpha in CONCENTRATIONS
        ]
        if not any(None in row for row in rows):
            shown = " | ".join(f"{error:.2f} | {score:.4f} | {elbo:,.0f}" for error, score, elbo, _ in rows)
            lines.append(f"| {name} | {shown} | {np.mean([row[3] for row in rows]):.1f} |")
    return lines


if __name__ == "__main__":
    main()
