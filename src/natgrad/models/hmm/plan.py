"""How a hidden Markov model is fitted: settings and data in; the problem, the method and its limits, and why, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from natgrad.data.sequences import Sequences
from natgrad.inference.methods import SVI, VB, Method
from natgrad.kernels.hmm.emissions import n_statistics
from natgrad.models.hmm.parts import Subchains
from natgrad.models.hmm.problem import HMMModel, SequenceProblem
from natgrad.models.hmm.subchains import SubchainProblem
from natgrad.models.hmm.tracks import Tracks
from natgrad.posterior.fit_options import checked_method
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.hmm.estimator import HiddenMarkov

__all__ = ["EXACT_PASSES", "SAMPLED_PASSES", "RunPlan", "passes_of", "plan_of"]

# The exact chain is run where it is expected to take so many seconds at most, or where its start reads all data anyway
# (`natgrad.models.hmm.start`); beyond, one pass of subchains ends nearly as high (`python benchmarks/hmm.py either`). The more
# states, the more passes until it converges.
MOST_SECONDS, FEW_TIMES, PASSES_OF_A_STATE = 5.0, 20_000, 25
# Seconds of a pass for each time: of any, for each state and statistic, and for each pair of states, on one core in 2026
# (`python benchmarks/hmm.py sizes`); several tracks and longer chains take about three times as long.
PER_TIME, PER_STATISTIC, PER_PAIR, OF_TRACKS = 1.0e-7, 2.0e-9, 5.8e-10, 3.0
# Readings of the data, if the user does not say.
EXACT_PASSES, SAMPLED_PASSES = 200.0, 1.0
# Memoised VB needs enough sequences to cut into batches.
LEAST_SEQUENCES, BATCHES = 50, 10


class RunPlan(NamedTuple):
    """How a fit is run, and why; ``steps`` are those of subchains, of which readings of the data make no whole number."""

    problem: SequenceProblem
    method: Method | None
    steps: int | None
    words: str


def pass_seconds(data: Sequences, model: HMMModel) -> float:
    """What an exact pass is expected to take; a function of the sizes of data and model alone.

    T (a + b K F + c K²) for K states of the chain and F statistics of an observation.
    """
    tracks = isinstance(model.emission, Tracks)
    n_states = model.n_states if model.chain is None else len(model.chain.states)
    width = data.values.shape[1] if len(data.codes) == 0 else 0
    n = 1 if len(data.codes) else 3 * width if tracks else n_statistics(model.emission.kind, width, 0)
    a_time = PER_TIME + PER_STATISTIC * n_states * n + PER_PAIR * n_states**2
    return data.n_times * a_time * (OF_TRACKS if tracks else 1.0)


def plan_of(estimator: HiddenMarkov, data: Sequences, model: HMMModel) -> RunPlan:
    """What the user fixed, and the rest by the size of the data."""
    method = checked_method(estimator.method)
    longest, total = int(data.lengths.max()), data.n_times
    passes = min(EXACT_PASSES, PASSES_OF_A_STATE * model.n_states)
    long = total > FEW_TIMES and passes * pass_seconds(data, model) > MOST_SECONDS
    words = f"{total:,} times in {len(data):,} sequence{'s' * (len(data) != 1)}"
    if estimator._finds_number:
        problem = SequenceProblem(data, model, n_jobs=estimator.n_jobs, truncated=True)
        return RunPlan(
            problem, VB() if method is None else method, None, f"{words}: exact sweeps, between which states move"
        )
    if (isinstance(method, SVI) and method.plate == "subchain") or (
        method is None and estimator.step is None and long and longest * LEAST_SEQUENCES > total
    ):  # fmt: skip
        how = _subchains(estimator, longest, method.size if isinstance(method, SVI) else None)
        problem = SubchainProblem(data, model, how, estimator.n_jobs)
        steps = max(1, round(passes_of(estimator, SAMPLED_PASSES) * total / (how.size * how.length)))
        why = f"{words}: a pass takes long, so subchains of {how.length} times are sampled"
        return RunPlan(problem, SVI({"subchain": how.size}), steps, "" if method is not None else why)
    if method is None and estimator.step is None and len(data) >= LEAST_SEQUENCES and long:
        size = -(-len(data) // BATCHES)
        return RunPlan(SequenceProblem(data, model, batch_size=size, n_jobs=estimator.n_jobs), None, None, words)
    whole = SequenceProblem(data, model, n_jobs=estimator.n_jobs)
    if isinstance(method, SVI):
        whole = SequenceProblem(data, model, batch_size=method.size, n_jobs=estimator.n_jobs)
        return RunPlan(whole, method, None, words)
    return RunPlan(whole, VB() if method is None else method, None, f"{words}: exact sweeps are cheap")


def passes_of(estimator: HiddenMarkov, usual: float) -> float:
    """Readings of the data, as many as usual if the user does not say."""
    return usual if estimator.max_passes is None else float(estimator.max_passes)


def _subchains(estimator: HiddenMarkov, longest: int, size: int | None) -> Subchains:
    usual = Subchains()
    length = (
        usual.length
        if estimator.subchain_length is None
        else whole_number(estimator.subchain_length, "subchain_length", 2)
    )
    if estimator.buffer is not None and estimator.buffer != "grow":
        whole_number(estimator.buffer, "buffer", 0)
    n = size or (usual.size if estimator.n_subchains is None else whole_number(estimator.n_subchains, "n_subchains"))
    # A sequence shorter than a subchain is read as a whole; if all are, so is every group.
    return usual._replace(
        length=max(2, min(length, longest)), size=n, buffer=estimator.buffer, tol=estimator.buffer_tol
    )
