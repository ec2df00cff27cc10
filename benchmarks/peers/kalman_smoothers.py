"""Seconds of dynamax's and statsmodels' smoothers on one problem: an .npz file comes in, a JSON record goes out.

Run by ``benchmarks/chains.py`` inside an environment of their own. Compilation is not counted: the best of several calls is.
"""

import json
import sys
import time
from functools import partial

import numpy as np


def best_of(function, repeats=3):
    """The fewest processor seconds of several calls, after one that warms up, and the last result."""
    result, seconds = function(), []
    for _ in range(repeats):
        own = time.process_time()
        result = function()
        seconds.append(time.process_time() - own)
    return min(seconds), result


def with_dynamax(given):
    """Covariance form, compiled by JAX in double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_smoother

    size, n_seen = given["A"].shape[0], given["C"].shape[0]
    model = LinearGaussianSSM(size, n_seen)
    params, _ = model.initialize(
        jax.random.PRNGKey(0),
        initial_mean=jnp.zeros(size), initial_covariance=jnp.eye(size), dynamics_weights=jnp.asarray(given["A"]),
        dynamics_covariance=jnp.asarray(given["Q"]), emission_weights=jnp.asarray(given["C"]),
        emission_covariance=jnp.asarray(given["R"]),
    )  # fmt: skip
    smooth = jax.jit(lgssm_smoother)
    y = jnp.asarray(given["y"])
    seconds, found = best_of(lambda: jax.block_until_ready(smooth(params, y)))
    return seconds, np.asarray(found.smoothed_means)


def with_statsmodels(given, steady=True):
    """Its compiled filter and smoother, states and their covariances; it stops updating covariances that have settled."""
    from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

    size, n_seen = given["A"].shape[0], given["C"].shape[0]
    model = KalmanSmoother(k_endog=n_seen, k_states=size)
    model.bind(np.ascontiguousarray(given["y"]))
    model["design"], model["transition"], model["selection"] = given["C"], given["A"], np.eye(size)
    model["state_cov"], model["obs_cov"] = given["Q"], given["R"]
    model.initialize_known(np.zeros(size), np.eye(size))
    if not steady:
        model.tolerance = 0.0
    seconds, found = best_of(lambda: model.smooth(smoother_output=0x01 | 0x02))
    return seconds, np.asarray(found.smoothed_state).T


def main():
    given, record = np.load(sys.argv[1]), {}
    peers = {"dynamax": with_dynamax, "statsmodels": with_statsmodels}
    peers["statsmodels, every step"] = partial(with_statsmodels, steady=False)
    for name, function in peers.items():
        seconds, means = function(given)
        record[name] = {"cpu": seconds, "error": float(np.abs(means - given["means"]).max())}
    with open(sys.argv[2], "w") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main()
