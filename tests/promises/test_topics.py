"""What each topic model can do: every cell of the table in `docs/topic-models.md` is tried, and what is refused says why."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.executors.test_threads import Elsewhere
from sklearn.base import clone
from topics.test_parts import FAST, drawn, parts

import natgrad as ng
from natgrad.cli.inputs import MODELS as COMMANDS
from natgrad.errors import PlateMismatch

PAGE = Path(__file__).parents[2] / "docs" / "topic-models.md"
ROLES = {
    "LDA": None,
    "SupervisedLDA": "y",
    "CorrelatedTopics": None,
    "DynamicTopics": "times",
    "AuthorTopics": "authors",
}
# Documents are groups; where they are no plate of their own, words are.
BATCHES = {name: {"cell": 100} if name == "AuthorTopics" else {"doc": 10} for name in ROLES}


def made(name: str, **settings: Any) -> Any:
    if name == "LDA":
        return ng.LDA(2, **{"inference": "vb", "max_passes": 4, "tol": 0, **settings})
    return getattr(ng.topics, name)(2, **{**FAST, **settings})


def documents(name: str, cuts: list[int]) -> list[tuple[Any, ...]]:
    return list(parts(ROLES[name], cuts))


def fitted(name: str, **settings: Any) -> Any:
    return made(name, **settings).fit(*documents(name, [0, 40])[0])


def in_parts(name: str, _: Path) -> None:
    model = made(name)
    for part in documents(name, [0, 25, 40]):
        model.partial_fit(*part)
    assert model.n_documents_seen_ == 40


def as_stream(name: str, _: Path) -> None:
    """A stream is its parts, one after the other; of LDA, its batches."""
    pieces = documents(name, [0, 25, 40])
    model = made(name).fit(part if ROLES[name] else part[0] for part in pieces)
    assert model.n_documents_seen_ == 40
    if name != "LDA":
        again = made(name)
        for part in pieces:
            again.partial_fit(*part)
        np.testing.assert_array_equal(model.topics_, again.topics_)


def of_weights(name: str, _: Path) -> None:
    counts, *known = documents(name, [0, 40])[0]
    assert np.isfinite(made(name).fit(counts * 0.5, *known).elbo_)


def in_batches(name: str, _: Path) -> None:
    model = fitted(name, method=ng.SVI(BATCHES[name]), max_steps=20)
    assert model.trace_.strategy.startswith("per-node steps" if name == "SupervisedLDA" else "memoised VB in")
    assert model.elbo_ > -2100.0  # the first sweep is 300 nats below


def on_a_cluster(name: str, _: Path) -> None:
    """Workers get parts of the batches as bytes, and the result has the same bits."""
    settings = {"method": ng.SVI(BATCHES[name]), "max_steps": 8}
    here, there = fitted(name, **settings), fitted(name, **settings, executor=Elsewhere())
    np.testing.assert_array_equal(here.topics_, there.topics_)


def in_files(name: str, folder: Path) -> None:
    """Also what it says of documents, and how it goes on."""
    model, data = fitted(name, method=ng.VB()), documents(name, [0, 40])[0]
    model.save(folder / "m")
    loaded = ng.load(folder / "m")
    assert loaded.get_params() == model.get_params()
    read = data[:1] if name == "SupervisedLDA" else data
    for again in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.topics_, model.topics_)
        np.testing.assert_array_equal(again.transform(*read), model.transform(*read))
        assert again.elbo_ == model.elbo_
    more = documents(name, [0, 10, 30])[1]
    np.testing.assert_array_equal(loaded.partial_fit(*more).topics_, model.partial_fit(*more).topics_)


def checkpointed(name: str, folder: Path) -> None:
    limit = "max_passes" if name == "LDA" else "max_steps"
    data, whole = documents(name, [0, 40])[0], fitted(name, **{limit: 6})
    made(name, **{limit: 3}).fit(*data, checkpoint=folder / "c", every=1)
    resumed = made(name, **{limit: 6}).fit(*data, checkpoint=folder / "c", resume=True)
    np.testing.assert_array_equal(resumed.topics_, whole.topics_)


def shown(name: str, folder: Path) -> None:
    assert 'id="topics-data"' in fitted(name).report(folder / "p.html", data=drawn()[0]).read_text()


def commanded(name: str, _: Path) -> None:
    if name not in {command.estimator for command in COMMANDS.values()}:
        raise ValueError("there is no such command")


def with_draws(name: str, _: Path) -> None:
    model = fitted(name)
    if name == "LDA":
        model.draws(documents(name, [0, 40])[0][0])
    for what in ("draws", "linear_response"):
        with pytest.raises(TypeError, match=rf"model.fit_.{what}\(\)"):
            getattr(model, what)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        drawn_ones = model.fit_.draws(n=8, chains=2, warmup=2, starts="q")
    assert np.isfinite(drawn_ones["r0" if name == "DynamicTopics" else "phi"].mean()).all()


def found(name: str, _: Path) -> None:
    kind = ng.LDA if name == "LDA" else getattr(ng.topics, name)
    assert kind("auto").fit(*documents(name, [0, 40])[0]).n_topics_ >= 1


ABILITIES: dict[str, Callable[[str, Path], None]] = {
    "`partial_fit`": in_parts,
    "`fit` to a stream": as_stream,
    "weights as counts": of_weights,
    "batches, `method=SVI({…})`": in_batches,
    "a cluster, `executor=`": on_a_cluster,
    "`save` and `load`": in_files,
    "checkpoints": checkpointed,
    "`report`": shown,
    "command line": commanded,
    "draws (`model.fit_.draws()`)": with_draws,
    '`n_topics="auto"`': found,
}
# What is refused, and the words that say what to do instead.
REFUSED = {
    ("weights as counts", "SupervisedLDA"): "counts must be whole numbers",
    ("a cluster, `executor=`", "SupervisedLDA"): "leave executor= out",
    ("draws (`model.fit_.draws()`)", "LDA"): 'LDA(inference="gibbs") fits by collapsed Gibbs',
    **{
        ("draws (`model.fit_.draws()`)", name): "write the rows out as often as they count"
        for name in ("CorrelatedTopics", "DynamicTopics", "AuthorTopics")
    },
    **{('`n_topics="auto"`', name): "n_topics must be a whole number" for name in ROLES if name != "LDA"},
}


# The gate tries what the models share once each; with `-m slow` every cell.
OFTEN = ("`save` and `load`", "`partial_fit`", "`fit` to a stream", "weights as counts", "command line")


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize(
    "ability", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in ABILITIES]
)
def test_ability(ability: str, name: str, tmp_path: Path) -> None:
    words = REFUSED.get((ability, name))
    if words is None:
        ABILITIES[ability](name, tmp_path)
    else:
        with pytest.raises((TypeError, ValueError, PlateMismatch), match=re.escape(words)):
            ABILITIES[ability](name, tmp_path)


def test_the_table_of_the_docs_is_this_one() -> None:
    lines = ["| | " + " | ".join(f"`{name}`" for name in ROLES) + " |", "|---|" + "---|" * len(ROLES)]
    for ability in ABILITIES:
        lines.append(f"| {ability} | " + " | ".join("no" if (ability, n) in REFUSED else "yes" for n in ROLES) + " |")
    assert "\n".join(lines) in PAGE.read_text(), "\n".join(["the table is", *lines])


@pytest.mark.parametrize("name", [name for name, role in ROLES.items() if role])
def test_what_is_refused_of_streams(name: str, tmp_path: Path) -> None:
    first, second = documents(name, [0, 25, 40])
    with pytest.raises(ValueError, match="leave out the second argument"):
        made(name).fit(iter([first]), first[1])
    with pytest.raises(TypeError, match=r"part 1 of the stream must be a pair \(documents, .*got ndarray"):
        made(name).fit(iter([first, second[0]]))
    with pytest.raises(ValueError, match=r"part 1 of the stream: .*15"):
        made(name).fit(iter([first, (second[0], second[1][:3])]))
    with pytest.raises(ValueError, match="a stream without parts"):
        made(name).fit(iter([]))
    with pytest.raises((TypeError, ValueError), match="checkpoint"):
        made(name).fit(iter([first]), checkpoint=tmp_path / "c")


def test_a_stream_that_is_refused_leaves_the_model_as_it_was() -> None:
    first, _ = documents("SupervisedLDA", [0, 25, 40])
    model = made("SupervisedLDA").fit(*first)
    topics = model.topics_
    with pytest.raises(TypeError, match="part 1"):
        model.fit(iter([first, "not a pair"]))
    assert model.topics_ is topics


@pytest.mark.parametrize("name", [name for name in ROLES if name != "LDA"])
def test_documents_that_are_all_alike_are_fitted(name: str) -> None:
    """The first topics were then equal, and the fit ended with an error about its own start."""
    role = ROLES[name]
    known = {"y": [0.0, 1.0], "times": [0, 1], "authors": [["a"], ["b"]]}.get(role or "")
    for counts in (np.eye(2, dtype=int), np.ones((2, 3), dtype=int)):
        model = clone(made(name)).fit(counts, *([] if known is None else [known]))
        assert np.isfinite(model.elbo_)
