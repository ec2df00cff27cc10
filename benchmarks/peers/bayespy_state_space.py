"""BayesPy's linear state-space model with its rotations: an .npz file comes in, a JSON record goes out.

Run by ``benchmarks/state_space.py`` inside BayesPy's own environment, where natgrad is not installed. Nodes, start and order of
updates are those of its demonstration; the data and the values of the start come from the file.
"""

import argparse
import contextlib
import io
import json
import time

import numpy as np
from bayespy.inference import VB
from bayespy.inference.vmp import transformations
from bayespy.nodes import Gamma, GaussianARD, GaussianMarkovChain, SumMultiply


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arrays")
    parser.add_argument("result")
    parser.add_argument("--sweeps", type=int, default=1000)
    options = parser.parse_args()
    given = np.load(options.arrays)
    y, size = given["y"].T, given["A"].shape[0]  # sensors first
    alpha = Gamma(1e-5, 1e-5, plates=(size,), name="alpha")
    dynamics = GaussianARD(0, alpha, shape=(size,), plates=(size,), name="A")
    dynamics.initialize_from_value(given["A"])
    x = GaussianMarkovChain(np.zeros(size), 1e-3 * np.identity(size), dynamics, np.ones(size), n=y.shape[1], name="X")
    gamma = Gamma(1e-5, 1e-5, plates=(size,), name="gamma")
    loadings = GaussianARD(0, gamma, shape=(size,), plates=(y.shape[0], 1), name="C")
    loadings.initialize_from_value(given["C"][:, None, :])
    tau = Gamma(1e-5, 1e-5, name="tau")
    tau.initialize_from_value(float(given["tau"]))
    seen = GaussianARD(SumMultiply("i,i", loadings, x), tau, name="Y")
    seen.observe(np.nan_to_num(y), mask=~np.isnan(y))
    engine = VB(x, loadings, gamma, dynamics, alpha, tau, seen)
    chain = transformations.RotateGaussianMarkovChain(x, transformations.RotateGaussianARD(dynamics, alpha))
    turn = transformations.RotationOptimizer(chain, transformations.RotateGaussianARD(loadings, gamma), size)
    engine.callback = turn.rotate
    wall, own = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        engine.update(repeat=options.sweeps)
    bounds = [float(bound) for bound in engine.L if np.isfinite(bound)]
    record = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - own, "bounds": bounds}
    with open(options.result, "w") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main()
