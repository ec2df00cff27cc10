"""`HMMCriteria`: what says how many states, aic and bic; paths of states drawn given data; emission parameters by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.parameters import n_free, named_parameters
from natgrad.models.hmm.priors import FORBIDDEN
from natgrad.models.hmm.tracks import own_of
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.hmm.problem import SequenceProblem

__all__ = ["HMMCriteria"]

Array = npt.NDArray[Any]
CHAIN = (("initial", "startprob_"), ("transition", "transmat_"))


class HMMCriteria:
    """Methods of the hidden Markov models."""

    startprob_: Array
    transmat_: Array

    if TYPE_CHECKING:
        # The estimator's own.
        _state: Any
        _model_: Any

        def _held_out(self, X: Any, lengths: Any, y: Any = None) -> SequenceProblem: ...
        def _check_fitted(self) -> None: ...
        def score(self, X: Any, y: Any = None, lengths: Any = None) -> float: ...

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


def _open(model: Any, part: str, values: Array) -> int:
    """Free probabilities of rows that sum to one; those that a prior of 0 forbids are not free."""
    prior = np.asarray(getattr(model, part))
    allowed = prior > FORBIDDEN if prior.shape == values.shape else np.ones(values.shape, dtype=bool)
    return int(allowed.sum() - np.prod(values.shape[:-1], dtype=int))
