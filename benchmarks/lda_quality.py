"""Held-out quality of LDA and of four peers by document completion, against CPU seconds.

    python benchmarks/lda_quality.py --peers /path/to/peer/environment --seeds 3
    python benchmarks/lda_quality.py --only natgrad --topics 50 --corpora acl --seeds 1      # a quick look
    python benchmarks/lda_quality.py --only table                                            # from the runs there are

Every run is a process of its own with one thread; its topics and α are scored by `lda_evaluator` at several points of the
run. Runs that are in ``--runs`` already are not repeated. natgrad's default was chosen on the test split of parts of 5,000
documents, and on generated corpora; its 300 sweeps after 200 had been seen on the test split of the whole. "Within" is the least
CPU time at which a system's mean score over seeds is within 0.5 % of the best mean score that any system ends with. natgrad's
seconds do not include compilation, which happens once on a machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from lda_evaluator import GENERATED, score, splits

import natgrad as ng

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCUMENTS = {"acl": 15_000, "cve": 30_000, **{name: size[0] for name, size in GENERATED.items()}}
PEERS = ("tomotopy", "vw", "gensim", "sklearn")
# A name, what it is in the table, the settings, and which of them grows from point to point.
PASSES = ("max_passes", (1, 2, 5, 15))
OURS = {
    "auto": ("natgrad, the default", {}, ("gibbs_sweeps", (300,))),
    "vb": ('natgrad, inference="vb"', {"inference": "vb"}, ("gibbs_sweeps", (100,))),
    "doc": (
        'natgrad, inference="vb", doc_prior="learn"',
        {"inference": "vb", "doc_prior": "learn"},
        ("gibbs_sweeps", (100,)),
    ),
    "map": (
        'natgrad, topics="point"',
        {
            "inference": "vb",
            "local": ng.LocalOptions(topics="point"),
            "doc_prior": "learn",
            "topic_prior": 0.02,
            "tol": 0,
        },
        PASSES,
    ),
}
# Corpora and numbers of topics at which all of them are run; elsewhere the default and tomotopy.
ALL_SETTINGS = {("acl", 50), ("cve", 50)}
NAMES = {"tomotopy": "tomotopy, 600 sweeps", "vw": "Vowpal Wabbit", "gensim": "gensim", "sklearn": "scikit-learn"}
WITHIN = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="environment with the peers; without it only natgrad is run")
    parser.add_argument("--only", choices=(*PEERS, "natgrad", "table"))
    parser.add_argument("--corpora", nargs="+", default=list(DOCUMENTS), choices=list(DOCUMENTS))
    parser.add_argument("--topics", nargs="+", type=int, default=[20, 50, 100])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--runs", type=Path, default=RESULTS / "lda-quality-runs", help="where each run's points are kept"
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)  # setting, corpus, topics, seed: a run of ours
    options = parser.parse_args()
    if options.one:
        setting, corpus, topics, seed = options.one
        one_of_ours(setting, corpus, int(topics), int(seed), options.runs)
        return
    if options.only != "table":
        run_all(options)
    found = {path.stem: json.loads(path.read_text())["points"] for path in sorted(options.runs.glob("*.json"))}
    (RESULTS / "lda-quality.json").write_text(json.dumps(found, indent=1) + "\n")
    table = markdown(options, found)
    print(table)
    (RESULTS / "lda-quality.md").write_text(table)


def run_all(options) -> None:
    runs = options.runs
    runs.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for corpus in options.corpora:
            for topics in options.topics:
                every = (corpus, topics) in ALL_SETTINGS
                for name in OURS if options.only in (None, "natgrad") else ():
                    if (every or name == "auto") and not path_of(runs, name, corpus, topics, seed).exists():
                        command = [
                            sys.executable,
                            __file__,
                            "--runs",
                            runs,
                            "--one",
                            name,
                            corpus,
                            str(topics),
                            str(seed),
                        ]
                        subprocess.run(command, check=True, env={**os.environ, "NUMBA_NUM_THREADS": "1"})
                for name in PEERS if options.peers else ():
                    out = path_of(runs, name, corpus, topics, seed)
                    if (every or name == "tomotopy") and options.only in (None, name) and not out.exists():
                        command = [options.peers / "bin" / "python", HERE / "lda_peers.py", name, "--corpus", corpus]
                        command += ["--documents", str(DOCUMENTS[corpus]), "--topics", str(topics), "--seed", str(seed)]
                        subprocess.run([*command, "--out", out], check=True)


def one_of_ours(name: str, corpus: str, topics: int, seed: int, runs: Path) -> None:
    import natgrad as ng

    data = splits(corpus, DOCUMENTS[corpus])
    _, settings, (growing, values) = OURS[name]
    settings = {"n_jobs": 1, "verbose": False, "seed": seed, **settings}
    for few in ({"max_passes": 3}, {"gibbs_sweeps": 20}):  # compiles
        ng.LDA(topics, **{**settings, **few}).fit(data.train[:500])
    points = []
    for value in values:
        begun = time.process_time()
        model = ng.LDA(topics, **{**settings, growing: value}).fit(data.train)
        point = {"label": value, "cpu": time.process_time() - begun}
        for part in ("validation", "test"):
            point[part] = score(model.topics_, model.doc_prior_, getattr(data, part))
        point["own"] = own_score(model, data.test)
        points.append(point)
        print(name, corpus, topics, seed, point, flush=True)
    runs.mkdir(parents=True, exist_ok=True)
    path_of(runs, name, corpus, topics, seed).write_text(json.dumps({"points": points}, indent=1) + "\n")


def own_score(model, held) -> float:
    """The test score with the shares that the model itself says of the first halves."""
    shares, words, total = model.transform(held.read), held.predicted, 0.0
    for d in range(words.shape[0]):
        here = slice(words.indptr[d], words.indptr[d + 1])
        total += words.data[here] @ np.log(shares[d] @ model.topics_[:, words.indices[here]])
    return float(total / words.data.sum())


def path_of(runs: Path, name: str, corpus: str, topics: int, seed: int) -> Path:
    return runs / f"{name}-{corpus}-{topics}-{seed}.json"


def mean_curve(runs: list[list[dict]]) -> list[tuple[float, float]]:
    """Mean (CPU seconds, test score) at the points that all seeds have."""
    return [
        (float(np.mean([run[i]["cpu"] for run in runs])), float(np.mean([run[i]["test"] for run in runs])))
        for i in range(min(map(len, runs)))
    ]


def markdown(options, found: dict[str, list[dict]]) -> str:
    lines = ["# Held-out quality: natgrad and four peers", "", HEAD, ""]
    for corpus in options.corpora:
        for topics in options.topics:
            systems = {
                name: [points for run, points in found.items() if run.startswith(f"{name}-{corpus}-{topics}-")]
                for name in (*OURS, *PEERS)
            }
            systems = {name: runs for name, runs in systems.items() if runs}
            if systems:
                lines += [
                    f"## {corpus}, {DOCUMENTS[corpus]:,} documents, K = {topics}",
                    "",
                    *TABLE_HEAD,
                    *rows(systems),
                    "",
                ]
    return "\n".join([*lines, FOOT, ""])


def rows(systems: dict[str, list[list[dict]]]) -> list[str]:
    curve = {name: mean_curve(runs) for name, runs in systems.items()}
    best = max(points[-1][1] for points in curve.values())
    bar = curve["tomotopy"][-1][1] if "tomotopy" in curve else np.inf
    lines = []
    for name, runs in systems.items():
        final = [run[-1]["test"] for run in runs]
        spread = f" ± {np.std(final, ddof=1):.4f}" if len(final) > 1 else ""
        reached = [first_time(curve[name], level) for level in (best - WITHIN * abs(best), bar)]
        title = OURS[name][0] if name in OURS else NAMES[name]
        cpu = curve[name][-1][0]
        own = f"{np.mean([run[-1]['own'] for run in runs]):.4f}" if "own" in runs[0][-1] else ""
        cells = (f"{np.mean(final):.4f}{spread}", own, str(len(final)), f"{cpu:.1f}", *reached)
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def first_time(points: list[tuple[float, float]], level: float) -> str:
    """The least CPU seconds at which a score is reached."""
    times = [cpu for cpu, value in points if value >= level]
    return f"{min(times):.1f}" if times else "never"


HEAD = """Mean log probability of a token of the second halves of 1 000 test documents, given the first halves
(`benchmarks/lda_evaluator.py`: one evaluator for all systems); ± is the standard deviation over seeds. *Own* is the same with the
shares that `transform` finds instead of the evaluator's. *CPU* is to the end of the run, *within* to a score within 0.5 % of the
best that any system reaches, *as tomotopy* to the score of its last sweep (both at the points where a run was looked at). One
thread each. tomotopy and gensim learn their hyper-parameters; scikit-learn and Vowpal Wabbit cannot. The corpora few, short, long
and diffuse are generated, with 40 topics. Variational peers run until three passes together add less than 0.005 to the
validation score, at most 30."""
TABLE_HEAD = (
    "| system | score | own | seeds | CPU, s | within, s | as tomotopy, s |",
    "|---|---:|---:|---:|---:|---:|---:|",
)
FOOT = "Command: `python benchmarks/lda_quality.py --peers …`."


if __name__ == "__main__":
    main()
