"""What a model file keeps of a fitted `LDA`: the topics, what the method remembers, the vocabulary; not the documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.data.corpus import Corpus
from natgrad.inference.options import LocalOptions
from natgrad.inference.schema import check, either, like, record, state_of
from natgrad.inference.steppers.groups import n_remembered
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.posterior.export import Posterior
from natgrad.posterior.files.tables import RUN, groups_of

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["LDAFiles"]

# There after a fit, but not after partial_fit alone.
OF_A_RUN = ("trace_", "stop_", "log_likelihood_", "draws_moments_")
# Moments and draws of Gibbs samples.
MOMENTS: dict[str, Any] = {
    "count": "natural",
    "phi": ("nonnegative [topic, word]", "nonnegative [topic, word]"),
    "theta?": ("nonnegative [_, topic]", "nonnegative [_, topic]"),
    "strides": {"phi?": "natural", "theta?": "natural"},
    "draws": {"phi?": "nonnegative [_, topic, word]", "theta?": "nonnegative [_, _, topic]"},
}
# Concentrations that single precision can hold along with counts.
PRIOR = "in [1e-30, 1e6]"
LOCAL = record(
    LocalOptions, tol="nonnegative", max_rounds="natural", skip_below="nonnegative", batch_size="none | natural",
    dtype="'float32' | 'float64'", topics="'posterior' | 'point'",
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    **{name: rule for name, rule in RUN.items() if name != "step"},
    "n_topics": either("'auto' | size topic", ("'auto'", "natural")),
    "doc_prior": f"none | 'learn' | real {PRIOR} | real list [topic] {PRIOR}",
    "topic_prior": f"none | 'learn' | real {PRIOR}",
    "local": either("none", LOCAL),
    "inference": "'gibbs' | 'vb'",
    "gibbs_sweeps": "none | whole in [0, 1e6]",
    "max_passes": "none | natural",
    "tol": "none | nonnegative",
    "max_seconds": "none | positive",
}
FITTED: dict[str, Any] = {
    "seed": "whole",
    "doc_prior": f"real [topic] {PRIOR}",
    "topic_prior": f"real {PRIOR}",
    "learn?": ["'doc' | 'topic'"],
    "local": {
        "topics": "'posterior' | 'point'",
        "tol": "positive",
        "limit": "natural",
        "skip": "nonnegative",
        "dtype": "'float32' | 'float64'",
    },
    "vocabulary": "none | ids [word]",
    "n_words": "size word",
    "n_documents_seen": "natural",
    "n_tokens_seen?": "nonnegative",
    "elbo": "float",
    "run": either({}, {"trace_": Trace, "stop_": Stop, "log_likelihood_?": "float [_]", "draws_moments_?": MOMENTS}),
}
TOPICS = "Dirichlet [topic; word]"
LEARNED = {"doc_prior": f"real [topic] {PRIOR}", "topic_prior": f"real {PRIOR}"}


def state_table(topics: str, learn: Collection[str]) -> Any:
    """The table of a state, with what memoised documents say: counts, and of a learned α Σ E[log θ] and how many they are."""
    said = {"phi": like(TOPICS), **({"theta": ("real [topic]", "real [1]")} if "doc" in learn else {})}
    memory = groups_of(said, ("positive [_, topic]",))
    moments = _log_mean if topics == "point" else None
    return state_of({"phi": TOPICS}, memory=memory, hyper=either(LEARNED, {}), moments=moments)


def run_table(problem: LDAProblem) -> tuple[Any, dict[str, int]]:
    """The table of a state of a run, and its sizes."""
    sizes = {"topic": problem.n_topics, "word": problem.corpus.n_words}
    return state_table(problem.local.topics, problem.learn), sizes


class LDAFiles(Estimator):
    """The hooks of `Estimator` for `LDA`."""

    n_documents_seen_: int
    n_tokens_seen_: float
    elbo_: float
    _state: State
    _fitted: LDAProblem
    _names: Any
    _seed: int

    def _publish(self, problem: LDAProblem, state: State, seed: int | None = None) -> None:
        raise NotImplementedError

    def _show_draws(self, kept: dict[str, Any]) -> None:
        """Have the posterior that Gibbs samples have in place of a point."""
        from natgrad.models.lda.gibbs import drawn_factors

        self.draws_moments_ = kept
        axes, labels = {"phi": ("word",), "theta": ("topic",)}, {"word": self._names}
        self.posterior_: Any = Posterior(drawn_factors(kept), axes=axes, labels=labels, level="draws")  # type: ignore[arg-type]

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return SETTINGS

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        check(fitted.get("local"), FITTED["local"], where="fitted['local']")
        learn = fitted.get("learn", ())
        check(learn, FITTED["learn?"], where="fitted['learn']")
        return SETTINGS, {"state": state_table(fitted["local"]["topics"], learn), **FITTED}

    def _saved(self) -> dict[str, Any]:
        problem = self._fitted
        return {
            "state": self._state,
            "seed": self._seed,
            "vocabulary": self._names,
            "n_words": problem.corpus.n_words,
            "n_documents_seen": self.n_documents_seen_,
            "n_tokens_seen": float(self.n_tokens_seen_),
            "elbo": self.elbo_,
            "doc_prior": problem.doc_prior,
            "topic_prior": problem.topic_prior,
            "learn": sorted(problem.learn),
            "local": {**problem.local._asdict(), "dtype": np.dtype(problem.local.dtype).name},
            "run": {name: getattr(self, name) for name in OF_A_RUN if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Documents without words stand for those that the model was fitted to and still remembers."""
        from natgrad.models.lda.problem import LDAProblem, Local

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
        counted = float((saved["state"].lam["phi"][0] + 1.0 - saved["topic_prior"]).sum())  # in files before 0.3
        self.n_tokens_seen_ = saved.get("n_tokens_seen", counted)
        for name in OF_A_RUN:
            if name in saved["run"]:
                setattr(self, name, saved["run"][name])
        if "draws_moments_" in saved["run"]:
            self._show_draws(saved["run"]["draws_moments_"])


def _log_mean(name: str, lam: Any) -> tuple[Any, ...]:
    """Log E[φ]: what stands for topics that are a point."""
    concentration = lam[0] + 1.0
    return (np.log(concentration / concentration.sum(1, keepdims=True)),)
