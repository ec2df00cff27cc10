"""Small fits whose files are forged, and what is done with a file that loads; also a worker that tries forgeries of one of them.

python tests/forgery_cases.py --worker LDA 0 100
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from adversary.forgeries import work
from forgery_networks import (
    BARE,
    CODES,
    COUNTS,
    ITEMS,
    KINDS,
    NAMES,
    NETWORKS,
    ROWS,
    SERIES,
    STARS,
    TARGET,
    TRACKS,
    USERS,
    WORDS,
    Case,
    look,
)  # fmt: skip

import natgrad as ng
from natgrad.models import hmm as chain

BESIDE = np.column_stack([SERIES[:, 0], CODES[:, 0]])


def ratings(values: Any) -> ng.Ratings:
    return ng.Ratings(NAMES[USERS], ITEMS, values)


def use_topics(model: Any) -> None:
    look(model)
    shares = model.transform(COUNTS)
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-4)
    model.infer(COUNTS[0]), model.score(COUNTS), model.perplexity(COUNTS, "completion"), model.top_words(3)
    model.continue_fit(COUNTS, 1)
    model.partial_fit(COUNTS[:5])
    model.partial_fit(COUNTS[:5, :2], vocabulary=["word1", "fresh"] if model._names is not None else None) if (
        model._names is not None
    ) else None
    model.transform(COUNTS[:, : len(model.vocabulary_)] if model._names is None else [["word1"]])


def use_factors(model: Any) -> None:
    look(model)
    known = model.ratings_
    who, what = known.user_ids[:3], known.item_ids[:3]
    mean, sd = model.predict(who, what, return_std=True)
    assert np.isfinite(mean).all()
    assert (sd >= 0).all()
    model.recommend(who[0], n=2, exclude_seen=False), model.score(known)
    model.continue_fit(2)
    model.fold_in(ng.Ratings(["fresh"], what[:1], [1.0]) if known.user_ids.dtype.kind in "UO" else known)
    model.partial_fit(ng.Ratings(who[:1], what[:1], [1.0]))
    model.predict(who, what)


def use_drift(model: Any) -> None:
    asked = {"time": [1.0, 9.0], "context": "home"}
    mean, sd = model.predict(model.user_ids_[:2], model.item_ids_[:2], True, **asked)
    assert np.isfinite(mean).all()
    assert (sd >= 0).all()
    model.recommend(model.user_ids_[0], n=2, exclude_seen=False, time=1.0, context="home")
    # A forged file may hold a larger model, which takes its time.
    if len(model.user_ids_) * len(model.time_edges_) < 1000:
        model.continue_fit(2)


def use_chain(X: Any) -> Callable[[Any], None]:
    def use(model: Any) -> None:
        look(model)
        states = model.predict(X)
        assert ((states >= 0) & (states < model.n_states)).all()
        np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0, rtol=1e-6)
        model.score(X), model.sample(5, seed=0)
        model.partial_fit(X)
        model.predict(X)

    return use


def use_mixture(model: Any) -> None:
    look(model)
    np.testing.assert_allclose(model.predict_proba(SERIES).sum(1), 1.0, rtol=1e-6)
    assert ((model.predict(SERIES) >= 0) & (model.predict(SERIES) < model.n_components)).all()
    model.score(SERIES), model.sample(5, seed=0)
    model.partial_fit(SERIES)
    model.predict(SERIES)


def use_times(model: Any) -> None:
    look(model)
    mean, sd = model.predict(ROWS[:, 0], return_std=True)
    assert np.isfinite(mean).all()
    assert (sd >= 0).all()
    model.sample(ROWS[:5, 0], 2, seed=0)
    model.continue_fit(ROWS[:, 0], TARGET, max_steps=2)


def use_process(y: Any) -> Callable[[Any], None]:
    def use(model: Any) -> None:
        look(model)
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(model.predict_proba(ROWS).sum(1), 1.0, rtol=1e-6)
        else:
            mean, sd = model.predict(ROWS, return_std=True)
            assert np.isfinite(mean).all()
            assert (sd >= 0).all()
        model.predict(ROWS), model.sample(ROWS[:5], 2, seed=0)
        # Classes may have other names in a forged file, and a stranger's names are names.
        own = model.classes_[np.unique(y, return_inverse=True)[1]] if hasattr(model, "classes_") else y
        model.continue_fit(ROWS, own, max_steps=2)
        model.partial_fit(ROWS, own)
        model.predict(ROWS)

    return use


STAGES = chain.Transitions(durations=chain.NegativeBinomial(2))


def hmm(cls: Any, X: Any, **settings: Any) -> Case:
    return Case(lambda **keep: cls(2, n_init=1, max_passes=4, tol=0, **settings).fit(X, **keep), use_chain(X))


def clusters(covariance: str, **settings: Any) -> Case:
    options = {"covariance": covariance, "n_init": 1, "max_passes": 4, "tol": 0, **settings}
    return Case(lambda **keep: ng.GaussianMixture(2, **options).fit(SERIES, **keep), use_mixture)


def factors(values: Any, **settings: Any) -> Case:
    options = {"max_steps": 12, "tol": 0, **settings}
    return Case(lambda **keep: ng.MatrixFactorization(2, **options).fit(ratings(values), **keep), use_factors)


def topics(**settings: Any) -> Case:
    options = {"inference": "vb", "max_passes": 3, "tol": 0, **settings}
    return Case(lambda **keep: ng.LDA(2, **options).fit(COUNTS, vocabulary=WORDS, **keep), use_topics)


def process(cls: Any, y: Any, **settings: Any) -> Case:
    return Case(lambda **keep: cls(n_inducing=4, max_steps=5, **settings).fit(ROWS, y, **keep), use_process(y))


CASES = {
    "LDA": topics(gibbs_sweeps=0, local=ng.LocalOptions(batch_size=8)),
    "LDA, learned priors": topics(doc_prior="learn", topic_prior="learn", method=ng.VB()),
    "LDA, point": topics(local=ng.LocalOptions(topics="point"), method=ng.SVI({"doc": 8})),
    "ratings": factors(STARS),
    "ratings, paper": factors(STARS, **BARE),
    "ratings, children": factors(STARS, method=ng.Children(2), **BARE),
    "ratings, guarded": factors(STARS, method=ng.Children(2), noise="both"),
    "stars": factors(np.sign(STARS), likelihood="ordinal"),
    "likes": factors((STARS > 0) * 1.0, likelihood="bernoulli", priors=ng.recommenders.FactorPriors(n_negatives=0)),
    "likes alone": factors(np.ones(len(STARS)), likelihood="bernoulli", max_steps=25),
    "counts": factors(np.round(np.exp(STARS)), likelihood="poisson"),
    "ratings in time and context": Case(
        lambda **keep: ng.recommenders.ContextFactorization(2, n_bins=2, max_steps=3, tol=0.0).fit(
            ratings(STARS), time=np.arange(len(STARS)), context=np.resize(["home", "work"], len(STARS)), **keep
        ),
        use_drift,
    ),
    "GaussianHMM": hmm(ng.GaussianHMM, SERIES),
    "GaussianHMM, diagonal": hmm(ng.GaussianHMM, SERIES, covariance="diag"),
    "CategoricalHMM": hmm(ng.CategoricalHMM, CODES),
    "PoissonHMM": hmm(ng.PoissonHMM, CODES),
    "BernoulliHMM": hmm(ng.BernoulliHMM, TRACKS),
    **{f"GaussianMixture, {kind}": clusters(kind) for kind in ("full", "diag", "tied", "spherical")},
    "GaussianMixture, batches": clusters("tied", method=ng.SVI({"row": 8})),
    "SparseGPRegressor": process(ng.SparseGPRegressor, TARGET),
    "SparseGPClassifier": process(ng.SparseGPClassifier, KINDS),
    "SparseGPClassifier, ordered": process(ng.SparseGPClassifier, np.digitize(TARGET, [-0.5, 0.5]), likelihood="ordinal"),
    "SparseGPRegressor, noise": process(ng.SparseGPRegressor, TARGET, likelihood="heteroskedastic"),
    "SparseGPRegressor, outputs": process(ng.SparseGPRegressor, np.stack([TARGET, -TARGET], 1)),
    "SparseGPRegressor, gaps": process(ng.SparseGPRegressor, np.stack([TARGET, np.where(TARGET > 0.5, np.nan, -TARGET)], 1)),
    "StateSpaceGP": Case(
        lambda **keep: ng.StateSpaceGP(max_steps=5, tol=0.0).fit(ROWS[:, 0], TARGET, **keep), use_times
    ),
    **NETWORKS,
    "GaussianHMM, tied": hmm(ng.GaussianHMM, SERIES, covariance="tied"),
    "GaussianHMM, spherical": hmm(ng.GaussianHMM, SERIES, covariance="spherical"),
    "HMM, tracks": hmm(ng.HMM, BESIDE, emissions={0: chain.Mixture(chain.StudentT()), 1: chain.Categorical()}),
    "HMM, regression": hmm(ng.HMM, SERIES, emissions=chain.Autoregressive(2)),
    "HMM, stages": hmm(ng.HMM, SERIES, emissions=chain.Gaussian("tied"), transitions=STAGES),
    "HMM, durations": hmm(ng.HMM, CODES, emissions=chain.Poisson(), transitions=chain.Transitions(durations=chain.Explicit(3))),
}  # fmt: skip
# Checkpoints: the run is stopped before its end, and goes on from the forged file.
RUNS = [
    "LDA", "LDA, learned priors", "ratings", "ratings, messages", "ratings, guarded", "likes alone", "counts", "GaussianHMM",
    "CategoricalHMM", "HMM, tracks", "HMM, durations", "GaussianMixture, full", "GaussianMixture, batches",
    "SparseGPRegressor", "SparseGPClassifier", "SparseGPRegressor, noise", "SparseGPRegressor, outputs",
    "SparseGPRegressor, gaps", "StateSpaceGP",
    "network", "mixture", "chains", "regression",
    "table, chunks", "joint", "growing",
]  # fmt: skip
CHECKPOINT = "checkpoint of "
STEPS = {"LDA": 8}  # before a run is killed, where the first pass is not enough to remember anything
ALL = [*CASES, *(f"{CHECKPOINT}{name}" for name in RUNS)]


def made(name: str, folder: Path) -> bytes:
    """The file of a case."""
    case = CASES[name.removeprefix(CHECKPOINT)]
    if name.startswith(CHECKPOINT):
        run = folder / "run"

        def stop(progress: Any) -> None:
            if progress.t == STEPS.get(name.removeprefix(CHECKPOINT), 3):
                raise RuntimeError("the lights are out")

        with contextlib.suppress(RuntimeError):
            case.fit(checkpoint=run, every=2, callbacks=[stop])
        path = max(run.glob("checkpoint-*"))
    else:
        path = folder / "model"
        case.fit().save(path)
    return path.read_bytes()


def used(name: str, target: Path) -> None:
    """Load a file and do everything with it, or go on from it."""
    case = CASES[name.removeprefix(CHECKPOINT)]
    if not name.startswith(CHECKPOINT):
        case.use(ng.load(target))
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "checkpoint-000000000002.natgrad").write_bytes(target.read_bytes())
        try:
            case.fit(checkpoint=folder, every=1000, resume=True)
        except ValueError as reason:
            if "checkpoint of another run" not in str(reason):
                raise


if __name__ == "__main__" and "--worker" in sys.argv:
    _, _, which, begin, end = sys.argv
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        work(lambda: made(which, here), lambda target: used(which, target), int(begin), int(end), here)
