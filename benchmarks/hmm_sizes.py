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


def quickest_step(problem, state):
    """Processor seconds of an E-step with statistics, the quickest of three after a first one."""
    problem.solve(state, None, None, 0.0, 1)
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        problem.solve(state, None, None, 0.0, 1)
        seconds.append(time.process_time() - begin)
    return min(seconds)


def estep_sizes(problem_of, peer, python, n_times=60_000):
    """Processor seconds of an E-step with statistics on one thread, against dynamax, for K from 2 to 64."""
    rows = []
    for n_states in (2, 4, 8, 16, 32, 64):
        transition, means, X, _ = generated(n_times, 0, n_states)
        problem, state = problem_of(X, means, transition, "full", 1)
        ours, theirs = quickest_step(problem, state), None
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
EITHER = ((20_000, 1, 4), (20_000, 100, 4), (100_000, 1, 4), (400_000, 1, 4), (400_000, 40, 4))


def chain_or_subchains(sizes=EITHER, held_out=20_000):
    """Processor seconds of a fit on one thread, and its score of data that were not fitted: exact, subchains, the default."""
    import natgrad as ng

    ng.GaussianHMM(2, max_passes=1, verbose=False).fit(generated(20_000, 1, 2)[2])  # kernels are read from disk
    rows = []
    for n_times, n_sequences, n_states in sizes:
        _, _, X, _ = generated(n_times + held_out, 0, n_states)
        lengths, test = [n_times // n_sequences] * n_sequences, X[n_times:]
        methods = {"exact chain": ng.VB(), "subchains": ng.SVI({"subchain": 63}), "default": None}
        for name, method in methods.items():
            begin = time.process_time()
            model = ng.GaussianHMM(n_states, method=method, n_jobs=1, seed=0, verbose=False)
            model.fit(X[:n_times], lengths=lengths)
            seconds, chosen = time.process_time() - begin, model.trace_.strategy
            found = "subchains" if "subchain" in chosen else "memoised VB" if "memoised" in chosen else "exact chain"
            how = found if method is None else name
            rows.append((n_times, n_sequences, n_states, name, how, seconds, model.score(test) / held_out))
    lines = ["| T | sequences | K | fit | how | CPU s | held-out nats a time |", "|---|---|---|---|---|---|---|"]
    lines += ["| {:,} | {} | {} | {} | {} | {:.2f} | {:.4f} |".format(*row) for row in rows]
    return lines, rows


def kinds_of_emissions(n_times=60_000):
    """Observations a processor second of an E-step with statistics, on one thread, of `HMM` with each kind of emissions."""
    from natgrad.models import hmm
    from natgrad.models.hmm.problem import SequenceProblem
    from natgrad.models.hmm.start import starts_of

    kinds = {
        "Gaussian(), as GaussianHMM": (hmm.Gaussian(), None),
        "two tracks of Gaussian()": ({0: hmm.Gaussian(), 1: hmm.Gaussian()}, None),
        "StudentT()": (hmm.StudentT(), None),
        "Autoregressive(1)": (hmm.Autoregressive(1), None),
        "Mixture(Gaussian(), 2)": (hmm.Mixture(hmm.Gaussian(), 2), None),
        "Gaussian(), NegativeBinomial(3)": (hmm.Gaussian(), hmm.NegativeBinomial(3)),
        "Gaussian(), Explicit(10)": (hmm.Gaussian(), hmm.Explicit(10)),
    }
    rows = []
    for n_states in (4, 16):
        _, _, X, _ = generated(n_times, 0, n_states)
        for name, (emissions, durations) in kinds.items():
            model = hmm.HMM(n_states, emissions=emissions, durations=durations, n_jobs=1)
            made = model._model(model._columns(X, None, None, fresh=True)[0])
            problem = SequenceProblem(model._sequences(X, None, None, made.emission), made, n_jobs=1)
            state = starts_of(problem.data, made, 0, 1, 1).candidates[0]()
            rows.append((name, n_states, n_times / quickest_step(problem, state)))
    lines = ["| emissions, durations | K | observations a CPU second |", "|---|---|---|"]
    lines += ["| {} | {} | {:,.0f} |".format(*row) for row in rows]
    return lines, rows
