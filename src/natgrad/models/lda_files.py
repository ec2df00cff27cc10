"""What a model file keeps of a fitted `LDA`: the topics, what the method remembers, the vocabulary; not the documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.data.corpora import Corpus
from natgrad.inference.additive import n_remembered
from natgrad.models.saving import SaveMixin

if TYPE_CHECKING:
    from natgrad.models.lda_problem import LDAProblem
    from natgrad.problem import State

__all__ = ["LDAFiles"]

# There after a fit, but not after partial_fit alone.
OF_A_RUN = ("trace_", "stop_", "log_likelihood_")


class LDAFiles(SaveMixin):
    """The hooks of `SaveMixin` for `LDA`."""

    n_documents_seen_: int
    elbo_: float
    _state: State
    _fitted: LDAProblem
    _names: Any
    _seed: int

    def _publish(self, problem: LDAProblem, state: State, seed: int | None = None) -> None:
        raise NotImplementedError

    def _saved(self) -> dict[str, Any]:
        problem = self._fitted
        return {
            "state": self._state,
            "seed": self._seed,
            "vocabulary": self._names,
            "n_words": problem.corpus.n_words,
            "n_documents_seen": self.n_documents_seen_,
            "elbo": self.elbo_,
            "doc_prior": problem.doc_prior,
            "topic_prior": problem.topic_prior,
            "learn": sorted(problem.learn),
            "local": {**problem.local._asdict(), "dtype": np.dtype(problem.local.dtype).name},
            "run": {name: getattr(self, name) for name in OF_A_RUN if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Documents without words stand for those that the model was fitted to and still remembers."""
        from natgrad.models.lda_problem import LDAProblem, Local  # Numba takes a while to import

        local = Local(**{**saved["local"], "dtype": np.dtype(saved["local"]["dtype"]).type})
        shape = saved["state"].lam["phi"][0].shape
        if shape != (len(saved["doc_prior"]), saved["n_words"]):
            raise ValueError(f"topics of shape {shape}, with {saved['n_words']} words")
        start = np.zeros(n_remembered(saved["state"]) + 1, dtype=np.int64)
        nothing = Corpus(start, np.empty(0, dtype=np.int32), np.empty(0), saved["n_words"], saved["vocabulary"])
        learn = frozenset(saved.get("learn", ()))
        problem = LDAProblem(nothing, saved["doc_prior"], saved["topic_prior"], local, learn=learn)
        self._publish(problem, saved["state"], saved["seed"])
        self.n_documents_seen_, self.elbo_ = saved["n_documents_seen"], saved["elbo"]
        for name in OF_A_RUN:
            if name in saved["run"]:
                setattr(self, name, saved["run"][name])
