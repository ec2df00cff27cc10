"""How a hidden Markov model is fitted: settings and data in; the problem, the method and the number of steps, and why, out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from natgrad.data.sequences import Sequences
from natgrad.inference.methods import SVI, VB, Method
from natgrad.models.hmm.parts import Subchains
from natgrad.models.hmm.problem import HMMModel, SequenceProblem
from natgrad.models.hmm.subchains import SubchainProblem
from natgrad.posterior.fit_options import checked_method
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.hmm.estimator import HiddenMarkov

__all__ = ["SAMPLED_PASSES", "RunPlan", "passes_of", "plan_of"]

# Up to so many times, exact sweeps take less than a second or two; beyond, a part of one pass of subchains does as well.
EXACT_TIMES = 300_000
# Readings of the data, if the user does not say.
EXACT_PASSES, SAMPLED_PASSES = 200.0, 1.0
# Memoised VB needs enough sequences to cut into batches.
LEAST_SEQUENCES, BATCHES = 50, 10


class RunPlan(NamedTuple):
    """How a fit is run, and why."""

    problem: SequenceProblem
    method: Method | None
    steps: int
    words: str


def plan_of(estimator: HiddenMarkov, data: Sequences, model: HMMModel) -> RunPlan:
    """What the user fixed, and the rest by the size of the data."""
    method = checked_method(estimator.method)
    longest, total = int(data.lengths.max()), data.n_times
    words = f"{total:,} times in {len(data):,} sequence{'s' * (len(data) != 1)}"
    if estimator._finds_number:
        problem = SequenceProblem(data, model, n_jobs=estimator.n_jobs, truncated=True)
        steps = math.ceil(passes_of(estimator, EXACT_PASSES))
        return RunPlan(
            problem, VB() if method is None else method, steps, f"{words}: exact sweeps, between which states move"
        )
    if (isinstance(method, SVI) and method.plate == "subchain") or (
        method is None and estimator.step is None and total > EXACT_TIMES and longest * LEAST_SEQUENCES > total
    ):  # fmt: skip
        how = _subchains(estimator, longest, method.size if isinstance(method, SVI) else None)
        problem = SubchainProblem(data, model, how, estimator.n_jobs)
        steps = max(1, round(passes_of(estimator, SAMPLED_PASSES) * total / (how.size * how.length)))
        why = f"{words}: a pass takes long, so subchains of {how.length} times are sampled"
        return RunPlan(problem, SVI({"subchain": how.size}), steps, "" if method is not None else why)
    if method is None and estimator.step is None and len(data) >= LEAST_SEQUENCES and total > EXACT_TIMES:
        size = -(-len(data) // BATCHES)
        return RunPlan(
            SequenceProblem(data, model, batch_size=size, n_jobs=estimator.n_jobs),
            None,
            BATCHES * math.ceil(passes_of(estimator, EXACT_PASSES)),
            words,
        )
    whole = SequenceProblem(data, model, n_jobs=estimator.n_jobs)
    if isinstance(method, SVI):
        whole = SequenceProblem(data, model, batch_size=method.size, n_jobs=estimator.n_jobs)
        return RunPlan(
            whole, method, -(-len(data) // method.size) * math.ceil(passes_of(estimator, EXACT_PASSES)), words
        )
    steps = math.ceil(passes_of(estimator, EXACT_PASSES))
    return RunPlan(whole, VB() if method is None else method, steps, f"{words}: exact sweeps are cheap")


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
