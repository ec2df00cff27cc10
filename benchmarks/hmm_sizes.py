"""Rows as they come, and E-steps of small and large models, for `benchmarks/hmm.py live sizes`."""

import tempfile
import time
from pathlib import Path

import numpy as np
from hmm_data import generated


def live_rows(n_times=4000):
    """Microseconds a row, alone and with the mean of the next one; in processor seconds, the quickest of three."""
    import natgrad as ng

    rows = []
    for n_states in (2, 8, 32):
        for covariance in ("full", "diag"):
            _, _, X, _ = generated(n_times, 0, n_states)
            model = ng.GaussianHMM(
                n_states, covariance=covariance, n_init=1, max_passes=5, n_jobs=1, verbose=False
            ).fit(X)
            found = []
            for ask in (False, True):
                seconds = []
                for _ in range(3):
                    live, begin = model.filter(), time.process_time()
                    for row in X:
                        live.update(row)
                        if ask:
                            live.forecast(1).mean()
                    seconds.append(time.process_time() - begin)
                found.append(min(seconds) / n_times * 1e6)
            begin = time.process_time()
            model.filter(X)
            found.append((time.process_time() - begin) / n_times * 1e6)
            begin = time.process_time()
            for _ in range(5):
                model.predict_proba(X)
            found.append((time.process_time() - begin) / 5 * 1e6)
            rows.append((n_states, covariance, *found))
    lines = [
        "| K | covariance | a row, µs | with the mean of the next, µs | rows at once, µs each | all of the past, µs |",
        "|---|---|---|---|---|---|",
    ]
    lines += ["| {} | {} | {:.1f} | {:.1f} | {:.2f} | {:,.0f} |".format(*row) for row in rows]
    return lines, rows


def estep_sizes(problem_of, peer, python, n_times=60_000):
    """Processor seconds of an E-step with statistics on one thread, against dynamax, for K from 2 to 64."""
    rows = []
    for n_states in (2, 4, 8, 16, 32, 64):
        transition, means, X, _ = generated(n_times, 0, n_states)
        problem, state = problem_of(X, means, transition, "full", 1)
        problem.solve(state, None, None, 0.0, 1)
        seconds = []
        for _ in range(3):
            begin = time.process_time()
            problem.solve(state, None, None, 0.0, 1)
            seconds.append(time.process_time() - begin)
        ours, theirs = min(seconds), None
        if python:
            with tempfile.TemporaryDirectory() as folder:
                data, truth = Path(folder) / "x.npy", Path(folder) / "m.npz"
                np.save(data, X)
                np.savez(truth, transition=transition, means=means)
                theirs = min(peer(python, "estep", "dynamax", data, truth, "full")["cpu"])
        rows.append((n_states, n_times / ours, None if theirs is None else n_times / theirs))
    lines = ["| K | natgrad, observations a CPU second | dynamax | ratio |", "|---|---|---|---|"]
    for n_states, ours, theirs in rows:
        other = f"{theirs:,.0f} | {ours / theirs:.1f}" if theirs else " | "
        lines.append(f"| {n_states} | {ours:,.0f} | {other} |")
    return lines, rows


# Times, sequences and states of data that may be fitted either way.
EITHER = (
    (20_000, 1, 4),
    (20_000, 100, 4),
    (100_000, 1, 4),
    (400_000, 1, 4),
    (400_000, 40, 4),
    (400_000, 1, 16),
    (1_000_000, 1, 4),
)


def chain_or_subchains(sizes=EITHER, held_out=50_000):
    """Processor seconds of a fit on one thread, and its score of data that were not fitted: exact, subchains, the default."""
    import natgrad as ng

    rows = []
    for n_times, n_sequences, n_states in sizes:
        _, _, X, _ = generated(n_times + held_out, 0, n_states)
        lengths, test = [n_times // n_sequences] * n_sequences, X[n_times:]
        methods = {"exact chain": ng.VB(), "subchains": ng.SVI({"subchain": 63}), "default": None}
        for name, method in methods.items():
            seconds, score, chosen = [], 0.0, ""
            for _ in range(2):
                begin = time.process_time()
                model = ng.GaussianHMM(n_states, method=method, n_jobs=1, seed=0, verbose=False)
                model.fit(X[:n_times], lengths=lengths)
                seconds.append(time.process_time() - begin)
                score, chosen = model.score(test) / held_out, model.trace_.strategy
            how = (
                "subchains"
                if "subchains" in chosen or name == "subchains"
                else "sequences"
                if "memoised" in chosen
                else "exact"
            )
            rows.append((n_times, n_sequences, n_states, name, how, min(seconds), score))
    lines = ["| T | sequences | K | fit | how | CPU s | held-out nats a time |", "|---|---|---|---|---|---|---|"]
    lines += ["| {:,} | {} | {} | {} | {} | {:.2f} | {:.4f} |".format(*row) for row in rows]
    return lines, rows
