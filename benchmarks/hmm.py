"""Hidden Markov models: seconds, memory, reads and quality of natgrad, hmmlearn and dynamax on the same chains.

    python benchmarks/hmm.py speed memory reads genome marks quality     # or some of these
        --hmmlearn PYTHON --dynamax PYTHON      interpreters that have the peers (hmmlearn 0.3.3, dynamax 1.0.1)

speed     one pass at K = 8, D = 2: subchains, the exact chain, and the peers' E-steps with statistics; medians after a warm-up
memory    peak resident bytes of one iteration at T = 2 M, each in a process of its own
reads     T = 1 M: held-out log p of subchains after a part of one pass, and of batch VB
genome    4.9 M symbols, K = 4 and 8;   marks   672 k × 10 binary marks, K = 10
quality   five seeds, T = 100 k: who reaches the truth − 0.02, and in what time

Results: ``benchmarks/results/hmm-<task>.json`` and ``.md``.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from hmm_data import generated, genome, marks, true_score

HERE = Path(__file__).resolve().parent
RESULTS, PEER = HERE / "results", HERE / "peers" / "hmm_peer.py"


def peer(python, *arguments):
    """One call of a peer, or None where there is none."""
    if python is None:
        return None
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    out = subprocess.run([python, str(PEER), *map(str, arguments)], check=True, capture_output=True, text=True, env=env)
    return json.loads(out.stdout.strip().splitlines()[-1])


def seconds_of_a_pass(model, X):
    """The median of passes after the first, by a callback."""
    at = []
    model.set_params(n_init=1, max_passes=5, tol=0, verbose=False).fit(
        X, callbacks=[lambda progress: at.append(time.perf_counter())]
    )
    return float(np.median(np.diff(at)[1:]))


def speed(args):
    import natgrad as ng

    rows, n_times = [], 300_000
    transition, means, X, _ = generated(n_times, 0)
    with tempfile.TemporaryDirectory() as folder:
        data, truth = Path(folder) / "x.npy", Path(folder) / "m.npz"
        np.save(data, X)
        np.savez(truth, transition=transition, means=means)
        for covariance in ("full", "diag"):
            for n_jobs in (1, 2):
                length, size = 100, 3000  # a step reads as many times as a pass
                ours = {"covariance": covariance, "n_jobs": n_jobs}
                exact = seconds_of_a_pass(ng.GaussianHMM(len(means), method=ng.VB(), **ours), X)
                chains = ng.models.hmm.Subchains(size, length)
                sampled = seconds_of_a_pass(ng.GaussianHMM(len(means), method=chains, **ours), X)
                rows.append((f"natgrad, subchains of {length}, {n_jobs} threads", covariance, n_times / sampled))
                rows.append((f"natgrad, exact chain, {n_jobs} threads", covariance, n_times / exact))
            for name, python in (("hmmlearn", args.hmmlearn), ("dynamax", args.dynamax)):
                found = peer(python, "estep", name, data, truth, covariance)
                if found:
                    rows.append((name, covariance, n_times / float(np.median(found["seconds"]))))
    rate = {(who, covariance): value for who, covariance, value in rows}
    lines = ["| | covariance | observations a second | × hmmlearn | × dynamax |", "|---|---|---|---|---|"]
    for who, covariance, value in rows:
        ratios = [rate.get((name, covariance)) for name in ("hmmlearn", "dynamax")]
        cells = " | ".join(f"{value / r:.1f}" if r else "" for r in ratios)
        lines.append(f"| {who} | {covariance} | {value:,.0f} | {cells} |")
    write("speed", lines, rows)


def memory(args):
    transition, means, X, _ = generated(2_000_000, 0)
    with tempfile.TemporaryDirectory() as folder:
        data, truth = Path(folder) / "x.npy", Path(folder) / "m.npz"
        np.save(data, X)
        np.savez(truth, transition=transition, means=means)
        rows = []
        for name, more in (("natgrad", []), ("natgrad, where pandas and PyArrow are installed", ["--extras"])):
            command = [sys.executable, __file__, "one-iteration", "--data", str(data), "--truth", str(truth), *more]
            for _ in range(2):  # the first may compile
                ours = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
            rows.append((name, json.loads(ours.stdout)["bytes"]))
        found = peer(args.hmmlearn, "memory", "hmmlearn", data, truth, "full")
        if found:
            rows.append(("hmmlearn", found["bytes"]))
    lines = ["| peak resident memory, T = 2 M, K = 8, D = 2 | MB |", "|---|---|"]
    lines += [f"| {name} | {value / 1e6:,.0f} |" for name, value in rows]
    write("memory", lines, rows)


def one_iteration(args):
    if not args.extras:  # no dependencies of natgrad or hmmlearn, but scikit-learn imports them where it finds them
        sys.modules.update(dict.fromkeys(("pandas", "pyarrow")))
    import natgrad as ng

    ng.GaussianHMM(8, method=ng.VB(), n_init=1, max_passes=1, tol=0, n_jobs=2, verbose=False).fit(np.load(args.data))
    print(json.dumps({"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def fitted(model, X, test):
    begin, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    read = model.trace_.last.messages_read / (2 * model.n_states * len(X))
    return {"held_out": model.score(test) / len(test), "passes": read, "seconds": seconds, "cpu": cpu}


def reads(args):
    import natgrad as ng

    rows = []
    for seed in range(args.seeds):
        transition, means, X, test = generated(1_000_000, seed, n_test=100_000)
        truth = true_score(transition, means, test)
        runs = {"batch VB": {"method": ng.VB()}, "subchains": {"method": ng.models.hmm.Subchains(), "max_passes": 0.32}}
        for name, settings in runs.items():
            rows.append(
                {"seed": seed, "run": name, "truth": truth, **fitted(ng.GaussianHMM(8, seed=seed, **settings), X, test)}
            )
    tabulate("reads", "T = 1 M, K = 8, D = 2", rows)


def genome_task(args):
    import natgrad as ng

    codes = np.asarray(genome())
    X, test = codes[:-500_000, None], codes[-500_000:, None]
    earlier = RESULTS / "hmm-genome.json"
    rows = json.loads(earlier.read_text()) if args.only else []
    runs = {
        "batch VB": (X, {"method": ng.VB(), "max_passes": 100}),
        "subchains": (X, {"method": ng.models.hmm.Subchains()}),
        "batch VB, first 500 k": (X[:500_000], {"method": ng.VB()}),
        "hmmlearn EM, first 500 k, 3 starts": (X[:500_000], None),
    }
    for n_states in (4, 8):
        for name, (train, settings) in runs.items():
            if args.only not in (None, f"{n_states} {name}"):
                continue
            rows = [row for row in rows if (row["K"], row["run"]) != (n_states, name)]
            if settings is not None:
                found = fitted(ng.CategoricalHMM(n_states, seed=0, **settings), train, test)
            elif args.hmmlearn:
                found = em(args, "categorical", train, test, n_states, 3)
            else:
                continue
            rows.append({"K": n_states, "run": name, **found})
    rows.sort(key=lambda row: (row["K"], list(runs).index(row["run"])))
    tabulate("genome", "E. coli, 4.4 M symbols for training, 0.5 M held out", rows)


def marks_task(args):
    import natgrad as ng

    X = marks()
    X, test = X[:-100_000], X[-100_000:]
    rows = []
    for name, settings in {
        "batch VB": {"method": ng.VB()},
        "subchains": {"method": ng.models.hmm.Subchains(), "max_passes": 1.5},
    }.items():
        rows.append({"K": 10, "run": name, **fitted(ng.BernoulliHMM(10, seed=0, **settings), X, test)})
    tabulate("marks", "chromatin marks, 572 k × 10 for training, 100 k held out", rows)


def em(args, kind, X, test, n_states, restarts):
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", X)
        np.save(f"{folder}/t.npy", test)
        return peer(args.hmmlearn, "em", kind, f"{folder}/x.npy", f"{folder}/t.npy", n_states, restarts)


def quality(args):
    import natgrad as ng

    earlier = RESULTS / "hmm-quality.json"
    rows = json.loads(earlier.read_text()) if args.first else []
    ng.GaussianHMM(8).fit(generated(2_000, 9)[2])  # compile
    for seed in range(args.first, args.first + args.seeds):
        transition, means, X, test = generated(100_000, seed, n_test=20_000)
        truth = true_score(transition, means, test)
        ours = {"run": "natgrad", **fitted(ng.GaussianHMM(8, seed=seed), X, test)}
        runs = [ours]
        if args.hmmlearn:
            runs.append({"run": "hmmlearn EM, 10 starts", **em(args, "gaussian", X, test, 8, 10)})
        rows += [{"seed": seed, "truth": truth, "reached": run["held_out"] > truth - 0.02, **run} for run in runs]
        tabulate("quality", "T = 100 k, K = 8, D = 2; cpu: seconds of all threads", rows)


def tabulate(task, title, rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [title, "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [f"{v:.5f}" if n in ("held_out", "truth") else f"{v:.3g}" if isinstance(v, float) else str(v)
                 for n, v in ((n, row.get(n, "")) for n in names)]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    write(task, lines, rows)


def write(task, lines, rows):
    import natgrad as ng

    versions = (
        f"natgrad {ng.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    text = "\n".join([*lines, "", f"`python benchmarks/hmm.py {task}`; {versions}.", ""])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"hmm-{task}.md").write_text(text, encoding="utf-8")
    (RESULTS / f"hmm-{task}.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(text)


TASKS = {
    "speed": speed, "memory": memory, "reads": reads, "genome": genome_task, "marks": marks_task, "quality": quality,
    "one-iteration": one_iteration,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="+", choices=list(TASKS))
    for name in ("hmmlearn", "dynamax", "data", "truth", "folder"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--only", help='one run of genome, such as "8 batch VB"; earlier results of the others are kept'
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed of quality; earlier results are kept")
    parser.add_argument("--extras", action="store_true", help="one-iteration: with pandas and PyArrow")
    args = parser.parse_args()
    for task in args.tasks:
        TASKS[task](args)


if __name__ == "__main__":
    main()
