"""E-steps of small and large models and of every kind, for `benchmarks/hmm.py sizes kinds either`."""

import tempfile
import time
from pathlib import Path

import numpy as np
from hmm_data import generated
from hmm_live import quickest


def quickest_step(problem, state):
    """Processor seconds of an E-step with statistics."""
    return quickest(lambda: problem.solve(state, None, None, 0.0, 1))


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


# Times and states of data that may be fitted either way.
EITHER = (
    *((n_times, n_states) for n_times in (2_000, 20_000) for n_states in (2, 8, 32, 64)),
    *((200_000, n_states) for n_states in (2, 8, 32)),
    (400_000, 4),
    *((2_000_000, n_states) for n_states in (2, 8)),
)


def chain_or_subchains(sizes=EITHER, held_out=20_000, most_seconds=60.0):
    """Processor seconds on one thread of one pass of subchains, of the exact chain until it predicts as well, and to its end.

    Scores are nats a time of data that were not fitted; scoring them is not counted.
    """
    import natgrad as ng

    ng.GaussianHMM(2, max_passes=1, verbose=False).fit(generated(20_000, 1, 2)[2])  # kernels are read from disk
    rows = []
    for n_times, n_states in sizes:
        _, _, X, _ = generated(n_times + held_out, 0, n_states)
        X, test = X[:n_times], X[n_times:]
        begin = time.process_time()
        model = ng.GaussianHMM(n_states, method=ng.models.hmm.Subchains(), n_jobs=1, seed=0, verbose=False).fit(X)
        sampled, goal = time.process_time() - begin, model.score(test) / held_out
        watch = Watch(test, goal, most_seconds)
        model = ng.GaussianHMM(n_states, method=ng.VB(), n_jobs=1, seed=0, verbose=False).fit(X, callbacks=[watch])
        seconds = time.process_time() - watch.begin - watch.spent
        ended = len(model.trace_), model.score(test) / held_out
        rows.append((n_times, n_states, sampled, goal, watch.reached, seconds, *ended))
    return either_table(rows), rows


class Watch:
    """A callback that scores after each pass, and remembers when a score was reached; its own time is not counted."""

    def __init__(self, test, goal, most_seconds):
        self.test, self.goal, self.most = test, goal, most_seconds
        self.begin, self.spent, self.reached = time.process_time(), 0.0, None

    def __call__(self, seen):
        now = time.process_time()
        taken = now - self.begin - self.spent
        if self.reached is None and seen.model().score(self.test) / len(self.test) >= self.goal:
            self.reached = taken, seen.t
        self.spent += time.process_time() - now
        return taken > self.most


def either_table(rows):
    head = ("T", "K", "subchains, CPU s", "their score", "exact chain to that score, CPU s (passes)",
            "to its end, CPU s (passes)", "its score")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for n_times, n_states, sampled, goal, reached, seconds, passes, score in rows:
        when = "not reached" if reached is None else f"{reached[0]:.2f} ({reached[1]})"
        end = f"{seconds:.2f} ({passes}) | {score:.4f}"
        lines.append(f"| {n_times:,} | {n_states} | {sampled:.2f} | {goal:.4f} | {when} | {end} |")
    return lines


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
            model = hmm.HMM(n_states, emissions=emissions, transitions=hmm.Transitions(durations=durations), n_jobs=1)
            made = model._model(model._columns(X, None, None, fresh=True)[0])
            problem = SequenceProblem(model._sequences(X, None, None, made.emission), made, n_jobs=1)
            state = starts_of(problem.data, made, 0, 1, 1).candidates[0]()
            rows.append((name, n_states, n_times / quickest_step(problem, state)))
    lines = ["| emissions, durations | K | observations a CPU second |", "|---|---|---|"]
    lines += ["| {} | {} | {:,.0f} |".format(*row) for row in rows]
    return lines, rows
