"""kill -9 at random moments of fits that keep checkpoints: is anything lost, left behind, or different at the end?

    python benchmarks/reliability_kills.py                     # 300 kills of each model; about half an hour
    python benchmarks/reliability_kills.py --kills 20          # to try it
    python benchmarks/reliability_kills.py --only LDA --kills 300

A server process imports the library, and forks a child for each fit, which writes a checkpoint after every step: so a large
part of the kills hits a write. The child is killed at a moment drawn uniformly over the length of a whole fit, and the next one
resumes, until a fit ends; then another begins. After each kill the folder is looked at:

    lost        a step was reported as done, and no checkpoint of it, or of the step before it, can be read
    unreadable  a file with the name of a checkpoint that cannot be read
    orphan      a file that is neither checkpoint nor the temporary one of the write that was hit, or anything but two
                checkpoints when the run has ended
    different   a resumed run that did not end with the bits of one that never stopped

A kill ends a process, not the machine: what a disk does to files when the power fails is up to fsync, which is called.
Kernels of Numba are compiled before the fork; JAX must not be started before it, so that its functions come from a cache on disk.
Results: ``benchmarks/results/reliability-kills.md`` and ``.json``.
"""

import argparse
import json
import os
import platform
import signal
import struct
import tempfile
import time
import traceback
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / "natgrad-reliability-jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import numpy as np  # noqa: E402
from adversary.files import bits_of  # noqa: E402

import natgrad as ng  # noqa: E402
from natgrad.errors import ModelFileError  # noqa: E402
from natgrad.posterior.files.checkpoints import PATTERN, checkpoints_in  # noqa: E402
from natgrad.posterior.files.container import read_model  # noqa: E402

ng.SparseGPRegressor  # noqa: B018  its checkpoints hold records that are known once it is imported

RESULTS = Path(__file__).resolve().parent / "results"
TROUBLES = ("lost", "unreadable", "orphans", "different")


def topics(**keep):
    counts = np.random.default_rng(1).poisson(0.4, size=(400, 60))
    return ng.LDA(
        5,
        doc_prior="learn",
        topic_prior="learn",
        local=ng.LocalOptions(batch_size=50),
        inference="vb",
        max_passes=8,
        tol=0,
        n_jobs=1,
    ).fit(counts, **keep)


def factors(**keep):
    rng = np.random.default_rng(2)
    table = np.where(rng.random((80, 50)) < 0.6, np.nan, rng.normal(size=(80, 50)))
    return ng.MatrixFactorization(4, max_steps=60, tol=0).fit(table, **keep)


def chain(**keep):
    rng = np.random.default_rng(3)
    states = np.repeat(rng.integers(0, 3, 300), 10)
    values = states[:, None] + 0.3 * rng.normal(size=(3000, 1))
    method = ng.models.hmm.Subchains(4, 20)
    return ng.GaussianHMM(3, method=method, max_passes=2.0, n_init=2, n_jobs=1).fit(values, **keep)


def process(**keep):
    rng = np.random.default_rng(4)
    x = rng.uniform(-2, 2, size=(400, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=400)
    return ng.SparseGPRegressor(n_inducing=15, batch_size=100, max_steps=60, tol=0).fit(x, y, **keep)


def classes(**keep):
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, size=(400, 2))
    return ng.SparseGPClassifier(n_inducing=15, batch_size=100, max_steps=60, tol=0).fit(
        x, x[:, 0] * x[:, 1] > 0, **keep
    )


def network(**keep):
    rng = np.random.default_rng(6)
    point, part = ng.Plate("point", 200), ng.Plate("part", 3)
    share = ng.Dirichlet("share", 1.0, size=3)
    mean = ng.Normal("mean", 0.0, 0.01, plate=part)
    precision = ng.Gamma("precision", 1.0, 1.0, plate=part)
    z = ng.Categorical("z", share, plate=point)
    values = rng.normal(4.0 * rng.integers(0, 3, 200), 1.0)
    net = ng.Network(ng.Normal("x", mean[z], precision[z], plate=point, observed=values))
    return net.fit(init={"mean": np.array([-1.0, 4.0, 9.0])}, max_steps=60, tol=0, **keep)


# The last word says whether the fit may run before the fork.
MODELS = {
    "LDA": (topics, True), "MatrixFactorization": (factors, True), "GaussianHMM": (chain, True),
    "SparseGPRegressor": (process, False), "SparseGPClassifier": (classes, False), "Network": (network, False),
}  # fmt: skip


class Child:
    """A forked fit that reports every step, and at the end its bits."""

    def __init__(self, fit, folder):
        self.read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.read)
                os.write(write, struct.pack("<q", 0))

                def said(seen):  # returns nothing: a number would be a wish to stop
                    os.write(write, struct.pack("<q", seen.t))

                fitted = fit(checkpoint=folder, every=1, resume=True, callbacks=[said])
                os.write(write, struct.pack("<q", -1) + bytes.fromhex(bits_of(fitted)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(write)

    def wait_for_start(self):
        os.read(self.read, 8)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def end(self):
        """The last step it reported, its bits if it ended, and how."""
        said = b""
        while part := os.read(self.read, 65536):
            said += part
        os.close(self.read)
        _, status = os.waitpid(self.pid, 0)
        bits, steps = None, said
        if (mark := struct.pack("<q", -1)) in said:
            steps, bits = said.split(mark, 1)
        numbers = struct.unpack(f"<{len(steps) // 8}q", steps[: len(steps) // 8 * 8])
        return (numbers[-1] if numbers else 0), bits, status


def looked_at(folder, done, found):
    """What a kill left behind: problems are counted."""
    newest = 0  # without a checkpoint the run begins anew, which loses what was done after the start
    for path in checkpoints_in(folder):
        try:
            newest = max(newest, read_model(path).value["run"].state.t)
        except ModelFileError:
            found["unreadable"] += 1
    # The report of a step comes before its checkpoint, so that of the step before it must be there.
    found["lost"] += newest < done - 1
    others = [p.name for p in folder.iterdir() if not PATTERN.fullmatch(p.name)] if folder.is_dir() else []
    found["in_a_write"] += len(others) == 1
    found["orphans"] += len(others) > 1 or any(not name.endswith(".tmp") for name in others)


def measure(name, n_kills, seed):
    fit, warm = MODELS[name]
    rng = np.random.default_rng([seed, sorted(MODELS).index(name)])
    if warm:
        fit()
    found = {"kills": 0, "runs": 0, "in_a_write": 0, **dict.fromkeys(TROUBLES, 0)}
    with tempfile.TemporaryDirectory() as place:
        lengths = []
        for number in range(2):  # the first one may compile
            begin = time.perf_counter()
            child = Child(fit, Path(place) / f"whole{number}")
            child.wait_for_start()
            steps, expected, _ = child.end()
            lengths.append(time.perf_counter() - begin)
        found |= {"steps": steps, "seconds_of_a_fit": lengths[-1]}
        assert expected is not None, f"{name} does not even end"
        while found["kills"] < n_kills:
            folder = Path(place) / f"run{found['runs']}"
            found["runs"] += 1
            ended = False
            while not ended:
                child = Child(fit, folder)
                child.wait_for_start()
                if found["kills"] < n_kills:
                    time.sleep(rng.uniform(0.0, lengths[-1]))
                    child.kill()
                done, bits, status = child.end()
                ended = bits is not None
                found["kills"] += os.WIFSIGNALED(status)
                if not (ended or os.WIFSIGNALED(status)):
                    raise SystemExit(f"{name}: a child failed by itself")
                looked_at(folder, done, found)
            found["different"] += bits != expected
            found["orphans"] += sorted(folder.iterdir()) != checkpoints_in(folder)[-2:]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--only", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    file = RESULTS / "reliability-kills.json"
    kept = json.loads(file.read_text())["results"] if file.exists() else {}
    # JAX must not have been started when a child is forked, and a fit of a network starts it: one server for each model.
    for name in chosen.only:
        read, write = os.pipe()
        server = os.fork()
        if server == 0:
            os.write(write, json.dumps(measure(name, chosen.kills, chosen.seed)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            kept[name] = json.load(answer)
        os.waitpid(server, 0)
        print(name, kept[name], flush=True)
        versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps({"versions": versions, "results": kept}, indent=1) + "\n")
    head = ["model", "steps of a fit", "kills", "of them in a write", "runs to the end", *TROUBLES]
    table = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    keys = ("steps", "kills", "in_a_write", "runs", *TROUBLES)
    table += [
        f"| {name} | " + " | ".join(str(kept[name][key]) for key in keys) + " |" for name in MODELS if name in kept
    ]
    (RESULTS / "reliability-kills.md").write_text("\n".join(table) + "\n")
    print("\n".join(table))
    if any(kept[name][trouble] for name in kept for trouble in TROUBLES):
        raise SystemExit("something was lost, left behind or different")


if __name__ == "__main__":
    main()
