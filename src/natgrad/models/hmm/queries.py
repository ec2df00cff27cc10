"""Answer questions about sequences by a fitted model: states, paths, probabilities, and how well a number of states fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.data.dates import dates_of
from natgrad.data.io.npy import RowWriter
from natgrad.data.sequences import check_names, columns_and_lengths
from natgrad.models.hmm.files import HMMFiles
from natgrad.models.hmm.priors import FORBIDDEN
from natgrad.models.hmm.tracks import Track, Tracks, own_of
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.hmm.problem import SequenceProblem

__all__ = ["StateQueries", "n_free", "named_parameters"]

Array = npt.NDArray[Any]
CHAIN = (("initial", "startprob_"), ("transition", "transmat_"))
NAMES = {"positive": "rates", "unit": "probabilities"}


class StateQueries(HMMFiles):
    """What hidden Markov models say of sequences; of the estimator it needs the fitted model and its state."""

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

    startprob_: Array
    transmat_: Array

    @property
    def n_parameters_(self) -> int:
        """Free numbers of the model: probabilities that may move, and parameters of the emissions."""
        self._check_fitted()
        of_chain = sum(int(_open(self._model_, part, getattr(self, name))) for part, name in CHAIN)
        emission, chain = self._model_.emission, self._model_.chain
        of_chain += 0 if chain is None or chain.durations is None else chain.n_states * chain.durations.n_free
        return of_chain + n_free(emission, own_of(emission, self._state.lam))

    @property
    def _exchangeable(self) -> bool:
        """Whether states in another order are the same model: their priors are alike, and none is known."""
        prior, rows = np.asarray(self._model_.initial), np.atleast_3d(np.asarray(self._model_.transition).T).T
        parts = prior, np.einsum("ckk->ck", rows), rows[:, ~np.eye(len(prior), dtype=bool)]
        alike = all((part == part[..., :1]).all() for part in parts)
        of_symbols = np.asarray(getattr(self._model_.emission, "arguments", {}).get("concentration", 0.0))
        known = getattr(getattr(self, "_data", None), "labels", None) is not None
        return alike and not known and bool((of_symbols == of_symbols[:1]).all() if of_symbols.ndim else True)

    @property
    def mean_durations_(self) -> Array:
        """How long each state lasts, expected at the mean of q [K]: 1 / (1 − A_kk), or what ``durations`` says.

        With inputs [C, K]: as long as the input stays the same.
        """
        self._check_fitted()
        if self._model_.chain is not None and self._model_.chain.durations is not None:
            return np.asarray(self._model_.chain.durations.mean(self._state.lam["duration"]))
        stay = np.clip(np.diagonal(self.transmat_, axis1=-2, axis2=-1), 0.0, 1.0 - 1e-12)
        return np.asarray(1.0 / (1.0 - stay))

    def aic(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Akaike's information criterion of data, −2 log p(X) + 2 parameters, at the mean of q; lower is better.

        Parameters
        ----------
        X, y, lengths : sequences, as for `score`

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.random.default_rng(0).normal(np.repeat([0.0, 5.0, 0.0], 40), 1.0)[:, None]
        >>> fits = {k: ng.GaussianHMM(k, seed=0).fit(X) for k in (1, 2)}
        >>> fits[2].aic(X) < fits[1].aic(X), fits[2].bic(X) < fits[1].bic(X)
        (True, True)
        """
        return -2.0 * self.score(X, y, lengths) + 2.0 * self.n_parameters_

    def bic(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Schwarz's information criterion of data, −2 log p(X) + parameters · log T, at the mean of q; lower is better.

        Parameters
        ----------
        X, y, lengths : sequences, as for `score`
        """
        n_times = self._held_out(X, lengths, y).data.n_times
        return -2.0 * self.score(X, y, lengths) + self.n_parameters_ * float(np.log(max(n_times, 1)))

    def sample_paths(self, X: Any, lengths: Any = None, *, n: int = 1, seed: int = 0) -> Array:
        """Paths of states drawn from p(x | X) at the mean of q [n, T]; how often a state comes at a time is `predict_proba`.

        Parameters
        ----------
        X, lengths : sequences, as for `predict`
        n : int
            How many paths of all sequences.
        seed : int

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.random.default_rng(0).normal(np.repeat([0.0, 5.0, 0.0], 40), 1.0)[:, None]
        >>> model = ng.GaussianHMM(2, seed=0).fit(X)
        >>> model.sample_paths(X, n=3).shape
        (3, 120)
        """
        from natgrad.models.hmm.sampling import drawn_paths

        problem = self._held_out(X, lengths)
        rng = np.random.default_rng(whole_number(seed, "seed", least=0))
        return drawn_paths(problem, problem.at_point(self._state), rng, whole_number(n, "n"))

    def emission_parameters(self) -> dict[str, Any]:
        """What each state emits, by name: "means" and "covariances" [K, …], "probabilities" or "rates", expectations under q.

        Of several tracks such a dict of each; of mixtures [K, m, …], and their "weights" [K, m]. ``posterior_["emission"]`` has
        the same in one array, as the engine needs it.

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.random.default_rng(0).poisson(np.repeat([1.0, 9.0], 50))[:, None]
        >>> {name: values.shape for name, values in ng.PoissonHMM(2, seed=0).fit(X).emission_parameters().items()}
        {'rates': (2, 1)}
        """
        self._check_fitted()
        emission = self._model_.emission
        return named_parameters(emission, own_of(emission, self._state.lam))


def _with_dates(values: Array, X: Any, out: Any) -> Any:
    """States of rows with dates as a series, their probabilities as a table; others as they are."""
    if out is not None or (dates := dates_of(X)) is None:
        return values
    import pandas as pd

    return pd.Series(values, dates, name="state") if values.ndim == 1 else pd.DataFrame(values, dates)


def _open(model: Any, part: str, values: Array) -> int:
    """Free probabilities of rows that sum to one; those that a prior of 0 forbids are not free."""
    prior = np.asarray(getattr(model, part))
    allowed = prior > FORBIDDEN if prior.shape == values.shape else np.ones(values.shape, dtype=bool)
    return int(allowed.sum() - np.prod(values.shape[:-1], dtype=int))


def named_parameters(emission: Any, lam: Any) -> dict[str, Any]:
    """Expectations under q: {"means", "covariances"}, {"rates"} or {"probabilities"}; of several tracks such a dict of each."""
    if isinstance(emission, Tracks):
        return {track.name: _of_track(track, lam) for track in emission.tracks}
    name = NAMES.get(emission.family.support)
    if name is not None:
        return {name: np.asarray(emission.family.mean(lam))}
    return dict(emission.named(lam)) if hasattr(emission, "named") else _gaussian(emission, lam)


def n_free(emission: Any, lam: Any) -> int:
    """Free numbers of the emissions: shares that sum to one have one less, matrices are symmetric."""
    if isinstance(emission, Tracks):
        chances = sum(track.n_states * (track.n_components - 1) for track in emission.tracks)
        return chances + sum(n_free(track.emission, track.together(lam[track.name])) for track in emission.tracks)
    named = named_parameters(emission, lam)
    total = 0
    for name, values in named.items():
        if name == "covariances" and not emission.by_column:
            d = values.shape[-1]
            total += values.size // d**2 * d * (d + 1) // 2
        else:
            total += values.size - (len(values) if emission.family.is_simplex else 0)
    return int(total)


def _gaussian(emission: Any, lam: Any) -> dict[str, Array]:
    means, covariances, _ = emission.located(lam)
    return {"means": np.asarray(means), "covariances": np.asarray(covariances)}


def _of_track(track: Track, lam: Any) -> dict[str, Array]:
    named = named_parameters(track.emission, track.together(lam[track.name]))
    if track.n_components == 1:
        return named
    apart = {name: values.reshape(-1, track.n_components, *values.shape[1:]) for name, values in named.items()}
    return {"weights": track.leaf_shares(lam), **apart}
