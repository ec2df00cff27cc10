"""Options whose files are forged, and what is done with a file that loads; also a worker that tries forgeries of one of them.

PYTHONPATH=tests python tests/adversary/cases.py --worker LDA 0 100
"""

import contextlib
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from adversary.forgeries import work
from adversary.networks import NETWORKS, Case, look
from promises.cases import CHAINS, MIXTURES, PROCESSES, RATINGS, TOPICS
from promises.cases import Case as Option
from promises.promises import answers

import natgrad as ng
from natgrad.models import hmm

WORDS = [f"word{v}" for v in range(12)]
COUNTS = TOPICS["LDA"].data[0]


def use_topics(model: Any) -> None:
    look(model)
    np.testing.assert_allclose(model.transform(COUNTS).sum(1), 1.0, rtol=1e-4)
    model.infer(COUNTS[0]), model.score(COUNTS), model.perplexity(COUNTS, "completion"), model.top_words(3)
    model.continue_fit(COUNTS, 1)
    model.partial_fit(COUNTS[:5])
    if model._names is None:
        model.transform(COUNTS[:, : len(model.vocabulary_)])
    else:
        model.partial_fit(COUNTS[:5, :2], vocabulary=["word1", "fresh"])
        model.transform([["word1"]])


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


def use_rows(option: Option, model: Any) -> None:
    look(model)
    X, *more = option.data
    for found in answers(model, option):
        assert np.isfinite(found).all()
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0, rtol=1e-6)
    if len(more) == 1:  # functions
        # Classes may have other names in a forged file, and a stranger's names are names.
        own = model.classes_[np.unique(more[0], return_inverse=True)[1]] if hasattr(model, "classes_") else more[0]
        model.sample(X[:5], 2, seed=0)
        model.continue_fit(X, own, max_steps=2)
        if not isinstance(model, ng.StateSpaceGP):
            model.partial_fit(X, own)
    else:
        states = model.predict(X)
        assert ((states >= 0) & (states < (model.n_states if "n_states" in vars(model) else model.n_components))).all()
        model.score(X), model.sample(5, seed=0)
        model.partial_fit(X)
    model.predict(X)


def forged(option: Option, /, **settings: Any) -> Case:
    """An option, with other settings where they are given."""
    option = replace(option, settings={**option.settings, **settings})
    uses = {"LDA": use_topics, "MatrixFactorization": use_factors, "ContextFactorization": use_drift}
    return Case(lambda **keep: option.fitted(keep), uses.get(option.kind.__name__, partial(use_rows, option)))


NAMED = {name: replace(option, named={"vocabulary": WORDS}) for name, option in TOPICS.items()}
BARE, TWO = RATINGS["known precisions"], PROCESSES['outputs="correlated"']
GAPS = replace(TWO, data=(TWO.data[0], np.where(TWO.data[1] > [np.inf, 0.5], np.nan, TWO.data[1])))
STAGES = hmm.Transitions(durations=hmm.NegativeBinomial(2))
CASES = {
    "LDA": forged(NAMED["LDA"], local=ng.LocalOptions(batch_size=8)),
    "learned priors": forged(NAMED["learned priors"], method=ng.VB()),
    "point": forged(NAMED["batches of documents"], local=ng.LocalOptions(topics="point")),
    **{name: forged(RATINGS[name], max_steps=12) for name in
       ("gaussian", "known precisions", "ordinal", "likes and dislikes", "poisson")},
    "likes alone": forged(RATINGS["likes alone"], max_steps=25),
    "sampled children": forged(BARE, method=ng.Children(2), max_steps=12),
    'noise="both"': forged(RATINGS['noise="both"'], method=ng.Children(2), max_steps=12),
    "times and contexts": forged(RATINGS["times and contexts"], n_bins=2),
    **{name: forged(CHAINS[name]) for name in (
        *(f'GaussianHMM("{kind}")' for kind in ("full", "diag", "tied", "spherical")), "CategoricalHMM", "PoissonHMM",
        "BernoulliHMM", "several tracks", "Mixture(StudentT())", "Autoregressive()", "durations=Explicit")},
    "stages": forged(CHAINS["durations=NegativeBinomial"], emissions=hmm.Gaussian("tied"), transitions=STAGES),
    **{name: forged(option) for name, option in MIXTURES.items() if "auto" not in name},
    **{name: forged(PROCESSES[name]) for name in (
        "SparseGPRegressor", "heteroskedastic", 'outputs="correlated"', "softmax", "ordinal classes", "StateSpaceGP")},
    "gaps": forged(GAPS),
    **NETWORKS,
}  # fmt: skip
# Checkpoints: the run is stopped before its end, and goes on from the forged file.
RUNS = [
    "LDA", "learned priors", "gaussian", 'noise="both"', "likes alone", "poisson", 'GaussianHMM("full")', "CategoricalHMM",
    "several tracks", "durations=Explicit", 'covariance="full"', "batches of rows", "SparseGPRegressor", "softmax",
    "heteroskedastic", 'outputs="correlated"', "gaps", "StateSpaceGP",
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
