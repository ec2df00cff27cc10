"""Topic models beyond LDA beside tomotopy and gensim: held-out score, coherence, what was drawn, and CPU seconds.

    python benchmarks/topics.py --peers /path/to/peer/environment      # runs what is not in results/topics.json yet
    python benchmarks/topics.py table                                  # from the runs there are

Supervised LDA, correlated topics and dynamic topics beside tomotopy's SLDAModel, CTModel and DTModel (collapsed Gibbs sampling),
author–topic beside gensim's AuthorTopicModel (online VB). Each system runs in a process of its own with one thread, on the same
counts. Generated corpora have known topics; ACL are abstracts, CVE descriptions with the question whether a word was among them,
which was taken out. Scores are by document completion with one evaluator (`lda_evaluator.score`, α = 0.1) for all, by author the
log probability of a word given its authors. Seconds are those of the fit alone, in a process that has imported the packages and
fitted nothing of the kind; natgrad's include what JAX compiles, which is kept for later fits of the same shape, and leave out
Numba's kernels, which are kept on disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sparse
from lda_evaluator import data_folder, halves, score
from scipy.optimize import linear_sum_assignment

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "topics.json"
ALPHA = 0.1
N_TIMES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="run", choices=("run", "table"))
    parser.add_argument("--peers", type=Path, help="environment, or folder of packages, with tomotopy and gensim")
    parser.add_argument("--only", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument(
        "--one", nargs=2, help=argparse.SUPPRESS
    )  # a file of data, a file for the result: a run of ours
    options = parser.parse_args()
    if options.one:
        run_ours(*options.one)
        return
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.what == "run":
        for task in options.only:
            run_task(task, options, runs)
    text = markdown(runs)
    RESULTS.with_suffix(".md").write_text(text)
    print(text)


def run_task(task: str, options: argparse.Namespace, runs: dict) -> None:
    data = TASKS[task]()
    systems = ["natgrad", *(["peer"] if options.peers else [])]
    for system in systems:
        if f"{task}|{system}" in runs:
            continue
        with tempfile.TemporaryDirectory() as folder:
            given, found = f"{folder}/data.npz", f"{folder}/found.npz"
            np.savez(given, **{name: value for name, value in data.items() if not name.startswith("true_")})
            if system == "natgrad":
                command = [sys.executable, __file__, "--one", given, found]
            else:
                own = options.peers / "bin" / "python"
                python, path = (own, "") if own.exists() else (sys.executable, str(options.peers))
                command = [python, HERE / "peers" / "topics_peers.py", given, found]
            threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            if system == "peer" and path:
                threads["PYTHONPATH"] = path
            subprocess.run(command, check=True, env={**os.environ, **threads})
            with np.load(found, allow_pickle=False) as file:
                runs[f"{task}|{system}"] = measured(data, {name: file[name] for name in file.files})
        print(task, system, runs[f"{task}|{system}"], flush=True)
        RESULTS.write_text(json.dumps(runs, indent=1) + "\n")


# -- data --


def drawn_counts(rng, topics, shares, n_words):
    return np.array([rng.multinomial(n_words, share @ topic) for share, topic in zip(shares, topics, strict=True)])


def supervised():
    rng = np.random.default_rng(1)
    n, topics = 800, np.random.default_rng(2).dirichlet(np.full(500, 0.05), 8)
    shares = rng.dirichlet(np.full(8, 0.2), n)
    taken = np.array([rng.multinomial(60, share) for share in shares])
    counts = np.array([sum(rng.multinomial(m, topic) for m, topic in zip(row, topics, strict=True)) for row in taken])
    y = taken / 60 @ np.linspace(-2.0, 2.0, 8) + 0.3 * rng.normal(size=n)
    return {"kind": "supervised", "k": 8, "train": counts[:500], "test": counts[500:], "y": y[:500], "true_y": y[500:],
            "true_topics": topics, "response": "gaussian"}  # fmt: skip


def questions():
    """Whether a description has the word "overflow"; without it, of at most 40 words, of at least five documents each."""
    counts = sparse.csr_array(sparse.load_npz(data_folder() / "text" / "cve.npz")).astype(np.int64)[:4000]
    counts = counts[counts.sum(1) <= 40][:1500]
    words = (data_folder() / "text" / "cve.vocab.txt").read_text().split("\n")
    asked = words.index("overflow")
    y = (counts[:, [asked]].toarray()[:, 0] > 0).astype(float)
    keep = np.flatnonzero((counts[:500] > 0).sum(0) >= 5)
    counts = counts[:, keep[keep != asked]].toarray()
    return {"kind": "supervised", "k": 10, "train": counts[:500], "test": counts[500:], "y": y[:500], "true_y": y[500:],
            "response": "bernoulli"}  # fmt: skip


def correlated():
    rng = np.random.default_rng(3)
    k, topics = 8, np.random.default_rng(4).dirichlet(np.full(500, 0.05), 8)
    covariance = 3.0 * np.eye(k)
    for i in range(0, k, 2):
        covariance[i, i + 1] = covariance[i + 1, i] = 2.0
    logs = rng.multivariate_normal(np.zeros(k), covariance, 1100)
    shares = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
    counts = np.array([rng.multinomial(80, share @ topics) for share in shares])
    return {"kind": "correlated", "k": k, "train": counts[:800], "test": counts[800:], "true_topics": topics}


def abstracts():
    counts = sparse.csr_array(sparse.load_npz(data_folder() / "text" / "acl_abstracts.npz")).astype(np.int64)[:1200]
    keep = np.flatnonzero((counts[:700] > 0).sum(0) >= 10)
    counts = counts[:, keep].toarray()
    return {"kind": "correlated", "k": 10, "train": counts[:700], "test": counts[700:]}


def dynamic():
    moves, rng = np.random.default_rng(5), np.random.default_rng(6)
    logs = np.log(moves.dirichlet(np.full(400, 0.05), 6) + 1e-4)
    topics = []
    for _ in range(N_TIMES):
        logs = logs + 0.3 * moves.normal(size=logs.shape)
        topics.append(np.exp(logs) / np.exp(logs).sum(1, keepdims=True))
    topics, times = np.array(topics), np.tile(np.arange(N_TIMES), 150)
    counts = drawn_counts(rng, topics[times], rng.dirichlet(np.full(6, 0.2), len(times)), 60)
    return {"kind": "dynamic", "k": 6, "train": counts[:800], "test": counts[800:], "times": times[:800],
            "test_times": times[800:], "true_topics": topics}  # fmt: skip


def authors():
    rng, fixed = np.random.default_rng(7), np.random.default_rng(8)
    topics, shares = fixed.dirichlet(np.full(400, 0.05), 8), fixed.dirichlet(np.full(8, 0.15), 60)
    member = np.zeros((1000, 60))
    for row in member:
        row[rng.choice(60, rng.integers(1, 4), replace=False)] = 1.0
    counts = np.array([rng.multinomial(60, share @ topics) for share in member / member.sum(1, keepdims=True) @ shares])
    return {"kind": "authors", "k": 8, "train": counts[:700], "test": counts[700:], "authors": member[:700],
            "test_authors": member[700:], "true_topics": topics, "true_shares": shares}  # fmt: skip


TASKS = {
    "supervised, generated": supervised,
    "supervised, CVE": questions,
    "correlated, generated": correlated,
    "correlated, ACL": abstracts,
    "dynamic, generated": dynamic,
    "authors, generated": authors,
}
PEERS = {"supervised": "tomotopy SLDAModel", "correlated": "tomotopy CTModel", "dynamic": "tomotopy DTModel",
         "authors": "gensim AuthorTopicModel"}  # fmt: skip


# -- natgrad --


def run_ours(given: str, out: str) -> None:
    import natgrad as ng

    warnings.simplefilter("ignore")
    with np.load(given, allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    kind, k, train, test = str(data["kind"]), int(data["k"]), data["train"], data["test"]
    ng.LDA(
        k,
        local=ng.LocalOptions(topics="point"),
        doc_prior="learn",
        topic_prior=0.05,
        gibbs_sweeps=2,
        max_passes=1,
        n_jobs=1,
    ).fit(train[:50])
    kinds, found = ng.topics, {}  # imported
    begun = time.process_time()
    if kind == "supervised":
        model = kinds.SupervisedLDA(k, response=str(data["response"]), verbose=False).fit(train, data["y"])
    elif kind == "correlated":
        model = kinds.CorrelatedTopics(k, verbose=False).fit(train)
    elif kind == "dynamic":
        model = kinds.DynamicTopics(k, verbose=False).fit(train, data["times"])
    else:
        model = kinds.AuthorTopics(k, verbose=False).fit(train, lists(data["authors"]))
    used = time.process_time() - begun
    if kind == "supervised":
        binary = str(data["response"]) == "bernoulli"
        found["predicted"] = model.predict_proba(test)[:, 1] if binary else model.predict(test)
    elif kind == "authors":
        found["shares"] = model.author_shares_
    np.savez(out, topics=model.topics_, cpu=used, **found)


def lists(member: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in member]


# -- measures --


def measured(data: dict, found: dict) -> dict:
    topics, kind = np.maximum(found["topics"], 1e-12), str(data["kind"])
    topics = topics / topics.sum(-1, keepdims=True)
    row = {"cpu": float(found["cpu"])}
    mean = topics.mean(0) if kind == "dynamic" else topics
    row["npmi"] = npmi(np.argsort(-mean, axis=1)[:, :10], data["train"] > 0)
    if "true_topics" in data:
        pairs = zip(data["true_topics"], topics, strict=True) if kind == "dynamic" else [(data["true_topics"], topics)]
        row["error"] = float(np.mean([apart(truth, own) for truth, own in pairs]))
    if kind == "authors":
        member = data["test_authors"] / data["test_authors"].sum(1, keepdims=True)
        chance = member @ found["shares"] @ topics
        row["score"] = float((data["test"] * np.log(chance)).sum() / data["test"].sum())
    elif kind == "dynamic":
        parts = [data["test"][data["test_times"] == t] for t in range(N_TIMES)]
        row["score"] = float(np.mean([completed(own, part) for own, part in zip(topics, parts, strict=True)]))
    else:
        row["score"] = completed(topics, data["test"])
    if "true_y" in data:
        truth, predicted = data["true_y"], found["predicted"]
        if str(data["response"]) == "bernoulli":
            row["response"] = f"AUC {auc(truth, predicted):.3f}"
        else:
            row["response"] = f"R² {1 - np.mean((truth - predicted) ** 2) / truth.var():.3f}"
    return row


def npmi(words: np.ndarray, seen: np.ndarray) -> float:
    """Normalised pointwise mutual information of pairs of words of a topic, −1 of those that are never together; the mean."""
    found = []
    for row in words:
        together = seen[:, row].T.astype(float) @ seen[:, row] / len(seen)
        alone, (i, j) = np.diag(together), np.triu_indices(len(row), 1)
        pairs = np.maximum(together[i, j], 1e-12)
        value = np.log(pairs / (alone[i] * alone[j])) / -np.log(pairs)
        found.append(np.nanmean(np.where(together[i, j] > 0, value, np.where(alone[i] * alone[j] > 0, -1.0, np.nan))))
    return float(np.nanmean(found))


def apart(truth: np.ndarray, topics: np.ndarray) -> float:
    """The mean distance in total variation of topics from true ones, matched one to one."""
    distance = 0.5 * np.abs(truth[:, None] - topics[None]).sum(-1)
    return float(distance[linear_sum_assignment(distance)].mean())


def completed(topics: np.ndarray, counts: np.ndarray) -> float:
    return score(topics, np.full(len(topics), ALPHA), halves(sparse.csr_array(counts), 1))


def auc(truth: np.ndarray, predicted: np.ndarray) -> float:
    order = np.argsort(np.argsort(predicted)) + 1
    positive = truth == 1
    n = positive.sum()
    return float((order[positive].sum() - n * (n + 1) / 2) / (n * (~positive).sum()))


def markdown(runs: dict) -> str:
    lines = [
        "| task | system | held-out score | NPMI | topic error | response | CPU, s |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    keys = [f"{task}|{system}" for task in TASKS for system in ("natgrad", "peer")]
    for key in [key for key in keys if key in runs]:
        (task, system), row = key.split("|"), runs[key]
        name = "natgrad" if system == "natgrad" else PEERS[task.split(",")[0]]
        error = f"{row['error']:.3f}" if "error" in row else ""
        response = row.get("response", "")
        lines.append(
            f"| {task} | {name} | {row['score']:.4f} | {row['npmi']:.3f} | {error} | {response} | {row['cpu']:.1f} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
