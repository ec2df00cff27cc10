"""What every engine of the GP benchmark shares: the start file, the clock and the marks. Needs NumPy alone.

An engine is a module with ``build(start) → (step, predict)``: ``step(x, y)`` takes one natural step on q(u) and one Adam step on
kernel, noise and inducing inputs; ``predict(x)`` gives mean and variance of new observations.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

for name in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402


def batches(start, seed=0):
    """The same batches for every engine, drawn before the clock starts."""
    rng = np.random.default_rng(seed)
    n, size = len(start["x"]), int(start["batch"])
    while True:
        chosen = rng.choice(n, size, replace=False)
        yield start["x"][chosen], start["y"][chosen]


def density(predict, start):
    """Mean negative log predictive density and root mean squared error on the test rows."""
    mean, var = predict(start["x_test"])
    off = start["y_test"] - mean
    return float(np.mean(0.5 * (np.log(2 * np.pi * var) + off**2 / var))), float(np.sqrt(np.mean(off**2)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("start", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--marks", type=float, nargs="*", default=[])
    options = parser.parse_args()
    start = dict(np.load(options.start))
    sys.path.insert(0, str(Path(__file__).parent))
    step, predict, versions = importlib.import_module(options.engine).build(start)
    stream = batches(start)
    for _ in range(3):
        step(*next(stream))
    print(json.dumps({"engine": options.engine, "versions": versions, **run(step, predict, stream, start, options)}))


def run(step, predict, stream, start, options):
    """Seconds of each step, in wall time and in time of this process; test scores at the marks, which are CPU seconds."""
    wall, cpu, marks, waiting = [], [], [], sorted(options.marks)
    while len(wall) < options.steps if not options.marks else waiting:
        batch = next(stream)
        begin, used = time.perf_counter(), time.process_time()
        step(*batch)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
        while waiting and sum(cpu) >= waiting[0]:
            marks.append([waiting.pop(0), *density(predict, start)])
    end = density(predict, start)
    return {
        "steps": len(wall), "wall": float(np.median(wall)), "cpu": float(np.median(cpu)), "least_cpu": float(min(cpu)),
        "marks": marks, "nlpd": end[0], "rmse": end[1],
    }  # fmt: skip


if __name__ == "__main__":
    main()
