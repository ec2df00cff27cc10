"""A hidden Markov model and an iterator of parts in; each part is sequences of their own, and a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from natgrad.inference.streams import Chunk, StreamPhases
from natgrad.inference.trace import Trace
from natgrad.models.hmm.problem import HMMModel, SequenceProblem
from natgrad.posterior.fit_options import FitOptions, refuse_checkpoint, split_options

if TYPE_CHECKING:
    from natgrad.models.hmm.estimator import HiddenMarkov

__all__ = ["fit_stream"]


def fit_stream(model: HiddenMarkov, parts: Iterable[Any], options: FitOptions) -> None:
    """Parts of an iterator, one after the other, each a step."""
    refuse_checkpoint(split_options(options)[1])
    trace, made = Trace(), list[HMMModel]()

    def chunk(part: Any) -> Chunk:
        columns, lengths = model._columns(part, None, None, fresh=not made)
        if not made:
            made.append(model._model(columns))
        data = model._sequences(columns, lengths, None, made[0].emission)

        def problem(n_times: float) -> SequenceProblem:
            population = len(data) * n_times / data.n_times
            return SequenceProblem(data, made[0], population=population, n_jobs=model.n_jobs)

        return Chunk(problem, data.n_times, data.n_times)

    phases = StreamPhases(
        lambda: parts, chunk, trace, step=model.step, rereadable=False, max_passes=1, tol=model.tol, n_groups=None,
        words="rows",
    )  # fmt: skip
    result = model._run(
        phases, lambda: model._starts(cast(SequenceProblem, phases.first())), model._limits(max_passes=None),
        lambda: made[0], options=options, trace=trace,
    )  # fmt: skip
    model._publish(made[0], result.state)
    model.n_times_seen_, model.elbo_ = phases.seen, phases.elbo
