"""hmmlearn and dynamax on the same chains; one JSON line for each call. Runs in an environment of its own.

python hmm_peer.py estep hmmlearn X.npy model.npz full      seconds of E-steps with statistics, after a warm-up
python hmm_peer.py estep dynamax X.npy model.npz full
python hmm_peer.py memory hmmlearn X.npy model.npz full     peak resident bytes of one EM iteration
python hmm_peer.py em gaussian X.npy test.npy K restarts    held-out log p for each observation, and seconds
python hmm_peer.py em categorical|bernoulli X.npy test.npy K restarts
"""

import json
import resource
import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")


def hmmlearn_model(arrays, covariance):
    from hmmlearn.hmm import GaussianHMM

    n_states, n_columns = arrays["means"].shape
    model = GaussianHMM(n_states, covariance, implementation="scaling", n_iter=1, tol=0, init_params="")
    model.startprob_, model.transmat_, model.means_ = (
        np.full(n_states, 1 / n_states),
        arrays["transition"],
        arrays["means"],
    )
    one = np.eye(n_columns) if covariance == "full" else np.ones(n_columns)
    model.covars_ = np.stack([one] * n_states)
    return model


def hmmlearn_estep(X, arrays, covariance):
    model = hmmlearn_model(arrays, covariance)
    model.fit(X[:1000])
    seconds, cpu = [], []
    for _ in range(3):
        model = hmmlearn_model(arrays, covariance)
        begin, began = time.perf_counter(), time.process_time()
        model.fit(X)  # one EM iteration; its M-step takes microseconds
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - began)
    return seconds, cpu


def dynamax_estep(X, arrays, covariance):
    import jax
    from dynamax.hidden_markov_model import DiagonalGaussianHMM, GaussianHMM

    n_states, n_columns = arrays["means"].shape
    kind = GaussianHMM if covariance == "full" else DiagonalGaussianHMM
    model = kind(n_states, n_columns)
    params, _ = model.initialize(jax.random.PRNGKey(0), method="prior", emission_means=arrays["means"])
    step = jax.jit(lambda p, y: model.e_step(p, y))
    jax.block_until_ready(step(params, X))
    seconds, cpu = [], []
    for _ in range(3):
        begin, began = time.perf_counter(), time.process_time()
        jax.block_until_ready(step(params, X))
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - began)
    return seconds, cpu


def em(kind, X, test, n_states, restarts):
    from hmmlearn import hmm

    begin, cpu, best = time.perf_counter(), time.process_time(), (-np.inf, None)
    for seed in range(restarts):
        if kind == "gaussian":
            model = hmm.GaussianHMM(n_states, "full", implementation="scaling", n_iter=200, tol=1e-2, random_state=seed)
        elif kind == "categorical":
            model = hmm.CategoricalHMM(n_states, implementation="scaling", n_iter=100, tol=1e-2, random_state=seed)
            model.n_features = int(X.max()) + 1
        else:
            # No Bernoulli emissions: patterns of tracks as categories would be another model; a Gaussian is none either.
            raise SystemExit("hmmlearn has no Bernoulli emissions")
        model.fit(X)
        score = model.score(X)
        best = max(best, (score, seed, model.score(test) / len(test)))
    return {"held_out": best[2], "seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}


def main(argv):
    task = argv[0]
    if task == "em":
        X, test = np.load(argv[2]), np.load(argv[3])
        print(json.dumps(em(argv[1], X, test, int(argv[4]), int(argv[5]))))
        return
    X, arrays = np.load(argv[2]), dict(np.load(argv[3]))
    if task == "estep":
        run = {"hmmlearn": hmmlearn_estep, "dynamax": dynamax_estep}[argv[1]]
        seconds, cpu = run(X, arrays, argv[4])
        print(json.dumps({"seconds": seconds, "cpu": cpu}))
        return
    hmmlearn_model(arrays, argv[4]).fit(X)
    print(json.dumps({"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


main(sys.argv[1:])
