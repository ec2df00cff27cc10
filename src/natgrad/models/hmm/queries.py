"""A fitted hidden Markov model and sequences in; their states, paths and probabilities out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.data.dates import dates_of
from natgrad.data.io.npy import RowWriter
from natgrad.data.sequences import check_names, columns_and_lengths

if TYPE_CHECKING:
    from natgrad.data.sequences import Sequences
    from natgrad.inference.problem import State
    from natgrad.models.hmm.problem import HMMModel, SequenceProblem

__all__ = ["StateQueries"]

Array = npt.NDArray[Any]


class StateQueries:
    """What hidden Markov models say of sequences; of the estimator it needs the fitted model and its state."""

    if TYPE_CHECKING:
        n_jobs: int | None
        _model_: HMMModel
        _state: State

        def _check_fitted(self) -> None: ...
        @property
        def _one_dimensional(self) -> bool: ...
        def _sequences(
            self, columns: Array, lengths: Any, labels: Any, emission: Any, held_out: bool = False
        ) -> Sequences: ...

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Log p(X) of sequences at the mean of q; neither batches nor subchains change it. See `fit` for ``y``."""
        problem = self._held_out(X, lengths, y)
        return self._counted(problem, None)

    def score_samples(self, X: Any, lengths: Any = None, *, out: Any = None) -> tuple[float, Array]:
        """Log p(X) and the probabilities of the states [T, K]; see `predict_proba` for ``out``."""
        problem = self._held_out(X, lengths)
        with RowWriter(out, (problem.data.n_times, problem.model.n_states), np.float64) as rows:
            log_prob = self._counted(problem, rows)
        return log_prob, _with_dates(rows.result, X, out)

    def predict_proba(self, X: Any, lengths: Any = None, *, out: Any = None) -> Array:
        """p(x_t | X) at the mean of q [T, K]; of tables with dates in their index a table with these.

        ``out``, an array of yours or the name of a .npy file, is written segment by segment; then nothing of this size is held.
        The rows of a file are returned mapped into memory.
        """
        return self.score_samples(X, lengths, out=out)[1]

    def decode(self, X: Any, lengths: Any = None, *, out: Any = None) -> tuple[float, Array]:
        """The log probability of the likeliest path of each sequence, summed, and the states on it [T].

        Of tables with dates in their index, the states are a series with these. See `predict_proba` for ``out``; a file has the
        smallest whole numbers that hold the states.
        """
        from natgrad.models.hmm.forward_backward import viterbi

        problem = self._held_out(X, lengths)
        chain, n_times = problem.model.chain, problem.data.n_times
        smallest = np.min_scalar_type(problem.model.n_states - 1)
        weights = problem.at_point(self._state)
        with RowWriter(out, (n_times,), np.int64, smallest) as rows:
            if chain is None:
                log_prob = viterbi(weights, problem.data, problem.n_jobs, rows)
            else:  # the likeliest path of the longer chain
                with RowWriter(None, (n_times,), np.int64) as stages:
                    log_prob = viterbi(weights, problem.data, problem.n_jobs, stages)
                rows.write(0, chain.states[stages.result])
        return log_prob + problem.data.base, _with_dates(rows.result, X, out)

    def predict(self, X: Any, lengths: Any = None, *, out: Any = None) -> Array:
        """The states on the likeliest path (Viterbi) [T]; see `decode` for ``out``."""
        return self.decode(X, lengths, out=out)[1]

    def _held_out(self, X: Any, lengths: Any, y: Any = None) -> SequenceProblem:
        from natgrad.models.hmm.problem import SequenceProblem

        self._check_fitted()
        data = self._sequences(*self._columns(X, y, lengths), None, self._model_.emission, held_out=True)
        return SequenceProblem(data, self._model_, n_jobs=self.n_jobs)

    def _counted(self, problem: SequenceProblem, out: RowWriter | None) -> float:
        from natgrad.models.hmm.forward_backward import count, whole_sequences

        weights = problem.at_point(self._state)
        windows = whole_sequences(weights, problem.data, None, problem.n_jobs)
        chain = problem.model.chain
        counts = count(weights, windows, problem.n_sums, problem.n_jobs, out if chain is None else None)
        if chain is not None and out is not None:
            out.write(0, chain.folded(counts.sums))
        return counts.log_z + problem.data.base

    # -- columns --

    def _columns(self, X: Any, y: Any, lengths: Any, fresh: bool = False) -> tuple[Array, Any]:
        """The columns of X, those of the fit unless it is ``fresh``, and the lengths of the sequences."""
        if hasattr(X, "to_frame") and not self._one_dimensional:  # a Series is a column with a name
            X = X.to_frame()
        if not self._found_by_name:
            check_names(self, X, fresh)
        X = self._as_arrays(X, fresh)
        alone = self._one_dimensional or (isinstance(X, np.ndarray) and (fresh or self.n_features_in_ == 1))
        columns, lengths = columns_and_lengths(X, y, lengths, one_dimensional=alone)
        self.n_features_in_: int = columns.shape[1] if fresh else self.n_features_in_
        if columns.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {columns.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input"
            )
        return columns, lengths

    @property
    def _found_by_name(self) -> bool:
        """Whether a setting names the columns that are read, in whatever order a table has them."""
        return False

    def _as_arrays(self, X: Any, fresh: bool) -> Any:
        """X with numbers in place of labels."""
        return X


def _with_dates(values: Array, X: Any, out: Any) -> Any:
    """States of rows with dates as a series, their probabilities as a table; others as they are."""
    if out is not None or (dates := dates_of(X)) is None:
        return values
    import pandas as pd

    return pd.Series(values, dates, name="state") if values.ndim == 1 else pd.DataFrame(values, dates)
