"""What ready models can do, a function for each ability: an option in, nothing out where it does it; an error where not."""

from __future__ import annotations

import contextlib
import copy
import csv
import dataclasses
import inspect
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from adversary.files import bits_of
from adversary.inputs import garbage
from cli.calls import call
from inference.executors.test_threads import Elsewhere
from promises.cases import LENGTHS, Case
from sklearn.base import clone

import natgrad as ng
from natgrad.errors import NotAtMaximum, NotConjugate, NotConverged, PlateMismatch
from natgrad.inference.trace import Reason

matplotlib.use("Agg")
Ability = Callable[[Case, Path], None]


def answers(model: Any, case: Case, data: tuple[Any, ...] | None = None) -> list[Any]:
    """What a model says of the data of its fit."""
    data = case.data if data is None else data
    if model.kind == "topics":
        return [model.transform(*(data[:1] if "predict" in model.abilities else data))]
    if isinstance(model, ng.GaussianMixture):
        return [model.predict_proba(data[0]), model.score_samples(data[0])]
    if isinstance(model, ng.MatrixFactorization):
        return [*model.predict(data[0], return_std=True), model.recommend("u0", 3, exclude_seen=False).items]
    if isinstance(model, ng.recommenders.ContextFactorization):
        return list(model.predict(*data[0].T, True, **case.named))
    if isinstance(model, ng.SparseGPClassifier):
        return [model.predict_proba(data[0])]
    if isinstance(model, (ng.SparseGPRegressor, ng.StateSpaceGP, ng.VecchiaGPRegressor)):
        return list(model.predict(data[0], return_std=True))
    X, _, lengths = data
    return [model.predict_proba(X, lengths), model.score(X, lengths), model.predict(X, lengths)]


def same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


# -- settings and repeats --


def settings(case: Case, _: Path) -> None:
    model = case.made()
    params = model.get_params()
    assert {name: getattr(model, name) for name in params} == params
    assert vars(type(model)()).keys() == type(model)().get_params(deep=False).keys()
    changed = type(model)().set_params(**params)
    assert changed.get_params() == params
    assert repr(clone(model).get_params()) == repr(params)  # methods are copied
    assert type(model).__name__ in repr(case.fitted())


def pickled(case: Case, _: Path) -> None:
    model = case.fitted()
    again = pickle.loads(pickle.dumps(model))
    same(answers(model, case), answers(again, case))


def repeated(case: Case, _: Path) -> None:
    before = copy.deepcopy((case.data, dict(case.named)))
    one, other = case.fitted(), case.fitted()
    same(answers(one, case), answers(other, case))
    np.testing.assert_array_equal(one.trace_["elbo"], other.trace_["elbo"])
    unchanged((case.data, case.named), before)


def unchanged(now: Any, before: Any) -> None:
    """What was given to a fit is as it was."""
    if isinstance(now, np.ndarray):
        np.testing.assert_array_equal(now, before)
    elif isinstance(now, ng.Ratings):
        same([now.users, now.items, now.values], [before.users, before.items, before.values])
    elif isinstance(now, (tuple, dict)):
        pairs = (
            zip(now.values(), before.values(), strict=True) if isinstance(now, dict) else zip(now, before, strict=True)
        )
        for one, other in pairs:
            unchanged(one, other)
    else:
        assert now == before


def threads(case: Case, _: Path) -> None:
    same(answers(case.fitted(n_jobs=1), case), answers(case.fitted(n_jobs=2), case))


# -- runs --


def checkpointed(case: Case, folder: Path) -> None:
    whole = case.fitted(**{case.limit: 6})
    case.fitted({"checkpoint": folder / "c", "every": 1}, **{case.limit: 3})
    resumed = case.fitted({"checkpoint": folder / "c", "resume": True}, **{case.limit: 6})
    same(answers(whole, case), answers(resumed, case))
    assert len(resumed.trace_) == len(whole.trace_)


def continued(case: Case, _: Path) -> None:
    """A fit that is continued is one that never stopped; processes end with an exact step, contexts start anew from means."""
    if not hasattr(case.kind, "continue_fit"):
        return
    whole, half = case.fitted(**{case.limit: 6}), case.fitted(**{case.limit: 3})
    before = objective(half)
    gathered = isinstance(case.data[0], ng.Ratings) or case.of_network
    half.continue_fit(*(() if gathered else case.data), **{case.limit: 3})
    sampled = case.settings.get("inference") == "gibbs" and case.kind is ng.LDA
    bits = case.kind in (ng.LDA, ng.MatrixFactorization) or half.kind == "topics"
    if bits and not sampled and case.settings.get("n_topics") != "auto":
        same(answers(whole, case), answers(half, case))
        np.testing.assert_array_equal(half.trace_["elbo"], whole.trace_["elbo"])
    again = case.kind is ng.recommenders.ContextFactorization  # from means
    assert not objective(half) < before - (0.1 if again else 0.01) * abs(before)  # draws have no bound


class Killed(Exception):
    """What ends a run without a word to it."""


def killed(case: Case, folder: Path) -> None:
    def kill(progress: Any) -> None:
        if progress.t == 3:
            raise Killed

    whole = case.fitted(**{case.limit: 6})
    try:
        case.fitted({"checkpoint": folder / "c", "every": 1, "callbacks": [kill]}, **{case.limit: 6})
    except Killed:
        pass
    else:
        assert len(whole.trace_) < 3, "the callback was not called at step 3"
    resumed = case.fitted({"checkpoint": folder / "c", "resume": True}, **{case.limit: 6})
    same(answers(whole, case), answers(resumed, case))


class Source:
    """Chunks of the data of a case that can be read again."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def chunks(self) -> Iterator[Any]:
        yield from self.parts


def stream_of(case: Case) -> Any:
    """The data of a case in four chunks; sequences are read once."""
    first = case.data[0]
    if not isinstance(first, ng.Ratings):
        parts = np.array_split(first, 4)
        return iter(parts) if len(case.data) == 3 else Source(parts)
    places = np.array_split(np.argsort(first.users, kind="stable"), 4)
    return Source(
        [ng.Ratings(first.user_ids[first.users[k]], first.item_ids[first.items[k]], first.values[k]) for k in places]
    )


def stream_resumed(case: Case, folder: Path) -> None:
    """A run that is killed amid a stream ends, when it is given the stream again, with the bits of one that never was."""

    def kill(progress: Any) -> None:
        if progress.t == 3:
            raise Killed

    if case.of_network:
        return  # streams of parts, of which each is a fit
    try:
        whole = case.made().fit(stream_of(case))
    except (*REFUSALS, UserWarning):  # of what gathers all rows, or samples
        return
    with pytest.raises(Killed):
        case.made().fit(stream_of(case), checkpoint=folder / "c", every=1, callbacks=[kill])
    resumed = case.made().fit(stream_of(case), checkpoint=folder / "c", resume=True)
    same(*([factor.mean() for factor in model.posterior_.values()] for model in (whole, resumed)))
    assert resumed.trace_.moves == whole.trace_.moves
    np.testing.assert_array_equal(whole.trace_["elbo_estimate"], resumed.trace_["elbo_estimate"])


def limited(case: Case, _: Path) -> None:
    short = case.fitted(max_seconds=1e-9, **{case.limit: 1000})
    assert short.stop_.reason is Reason.SECONDS or short.stop_.converged, short.stop_
    assert len(short.trace_) <= 1, len(short.trace_)
    seen: list[int] = []

    def stop(progress: Any) -> bool:
        seen.append(progress.t)
        progress.model()
        return len(seen) == 2

    stopped = case.fitted({"callbacks": [stop]}, **{case.limit: 1000})
    assert len(seen) == len(stopped.trace_) <= 2, (len(seen), len(stopped.trace_))


def on_a_cluster(case: Case, _: Path) -> None:
    there = Elsewhere()
    # Of declared networks what is cut otherwise is added up otherwise.
    same(answers(case.fitted(**case.shared), case), answers(case.fitted(**case.shared, executor=there), case))
    assert there.calls, "nothing was sent"


# -- data that come and go --


def in_parts(case: Case, _: Path) -> None:
    model = case.made()
    names = {name: value for name, value in case.named.items() if name in ("time", "context")}
    extra = {"classes": np.unique(case.data[1])} if isinstance(model, ng.SparseGPClassifier) else {}
    first = case.data[:1] if len(case.data) == 3 else case.data
    model.partial_fit(*first, **names, **extra)
    model.partial_fit(*case.more, **{name: value[: len(case.more[0])] for name, value in names.items()})
    answers(model, case)


def refused_batches(case: Case, _: Path) -> None:
    """A batch, or a stream, that nobody can use is refused, and the model is bit by bit what it was."""
    first, *rest = case.more
    if "partial_fit" not in case.made().abilities or not isinstance(first, np.ndarray) or first.dtype.kind not in "if":
        return
    model = case.fitted()
    before, rng = bits_of(model), np.random.default_rng(0)
    for how in ("nan", "negative") if model.kind == "topics" else ():
        refuse(model, garbage(first.astype(float), rng, how), rest)
    for how in ("inf", "width", "empty", "text", "shape"):
        refuse(model, garbage(first.astype(float), rng, how), rest)
    assert bits_of(model) == before
    held = {name: id(value) for name, value in vars(model).items()}
    for stream in (iter([]), broken(case)):
        with contextlib.suppress(ValueError, TypeError, OSError):
            model.fit(stream)
            raise AssertionError(f"{stream} was taken")
    assert {name: id(value) for name, value in vars(model).items()} == held


def broken(case: Case) -> Iterator[Any]:
    """A stream that ends with an error of its own."""
    yield case.more[0] if len(case.more) == 1 else case.more
    raise OSError("the connection was lost")


def refuse(model: Any, batch: Any, rest: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        model.partial_fit(batch, *(part[: len(batch)] for part in rest))


def as_stream(case: Case, _: Path) -> None:
    """A stream is read once: processes gather all rows, the others take a step of `partial_fit` for each chunk."""
    first = case.data[:1] if len(case.data) == 3 else case.data
    if isinstance(case.data[0], np.ndarray) and len(case.data) == 2 and not case.of_network:
        sevens = (tuple(part[n : n + 7] for part in first) for n in range(0, len(first[0]), 7))
        same(answers(case.made().fit(sevens), case), answers(case.fitted(), case))
        return
    pieces = [part[0] if len(part) == 1 else part for part in (first, case.more)]
    if case.kind is ng.recommenders.ContextFactorization:
        pieces = [frame_of(case, "pandas")]
        answers(case.made(**named_settings(case)).fit(iter(pieces)), case)
        return
    model = case.made().fit(iter(pieces), **case.named)
    if isinstance(first[0], ng.Ratings) or any("auto" in str(value) for value in case.settings.values()):
        answers(model, case)  # ratings that come again replace earlier ones; moves of later chunks go on from the first
        return
    steps = case.made()
    for piece in pieces:
        steps.partial_fit(*(piece if case.role else [piece]))
    same(answers(model, case), answers(steps, case))


def updated(case: Case, _: Path) -> None:
    model = case.fitted()
    names = {name: value for name, value in case.named.items() if name in ("time", "context")}
    model.update(*case.more, **{name: value[: len(case.more[0])] for name, value in names.items()})
    assert all(np.isfinite(np.asarray(part, dtype=float)).all() for part in answers(model, case)[:2])


def forgetful(case: Case, _: Path) -> None:
    model = case.fitted()
    model.forget([0])
    answers(model, case)


def weighted(case: Case, _: Path) -> None:
    twice = case.made().fit(*case.data, **case.named, sample_weight=np.full(len(case.data[0]), 2.0))
    assert np.isfinite(twice.elbo_)


# -- files and pages --


def in_files(case: Case, folder: Path) -> None:
    """A model that was saved is the model, to the last bit of all that it has, and goes on as if it never had been."""
    model = case.fitted()
    model.save(folder / "m")
    again = ng.load(folder / "m")
    assert again.stop_ == model.stop_
    assert str(again) == str(model)
    assert again.inference_ == model.inference_
    same_attributes(model, again)
    same(answers(model, case), answers(again, case))
    with contextlib.suppress(*REFUSALS), warnings.catch_warnings():  # of one that does not take rows and let them go
        warnings.filterwarnings("ignore", "this fit runs VB")  # draws have no step: partial_fit says so
        in_parts(case, folder)
        names = {name: value[: len(case.more[0])] for name, value in case.named.items() if name in ("time", "context")}
        for one in (model, again):
            one.partial_fit(*case.more, **names)
        same(answers(model, case), answers(again, case))


def same_attributes(model: Any, other: Any) -> None:
    """Arrays, numbers, words and factors that a fit has set."""
    left_out = vars(model).keys() & {"network_", "fit_", "posterior_"} if hasattr(model, "fit_") else set()
    assert vars(model).keys() | {"_data"} == vars(other).keys() | left_out | {"_data"}
    for name, value in vars(model).items():
        if isinstance(value, np.ndarray) or (name.endswith("_") and isinstance(value, (int, float, str))):
            np.testing.assert_array_equal(getattr(other, name), value, err_msg=name)
    for name, factor in {} if left_out else model.posterior_.items():
        np.testing.assert_array_equal(factor.mean(), other.posterior_[name].mean(), err_msg=name)
        np.testing.assert_array_equal(factor.std(), other.posterior_[name].std(), err_msg=name)
    for column in ("t", "elbo", "messages_read") if hasattr(model, "trace_") else ():  # steps of partial_fit have none
        np.testing.assert_array_equal(model.trace_[column], other.trace_[column])


def shown(case: Case, folder: Path) -> None:
    model = case.fitted()
    data = case.data if len(case.data) == 2 and not case.role else case.data[0]
    data = (data, LENGTHS) if len(case.data) == 3 else data
    page = model.report(folder / "p.html", data=data).read_text()
    assert type(model).__name__ in page
    model.save(folder / "m")
    assert ng.load(folder / "m").report(folder / "q.html").exists()
    run, intervals = model.plot()
    assert run.lines
    if not isinstance(model, (ng.StateSpaceGP, ng.VecchiaGPRegressor)):  # whose parameters are point estimates
        assert {label.get_text() for label in intervals.get_yticklabels()} <= {*model.summary().rows, ""}
    run.figure.canvas.draw()
    plt.close(run.figure)


def commanded(case: Case, folder: Path) -> None:
    table = dict(case.table)
    if "--sequence" in case.command:
        table["run"] = np.repeat(["a", "b"], LENGTHS)
    if "--column" in case.command:
        table = {"text": [" ".join(np.repeat(list(table), row)) for row in case.data[0]]}
        if case.role:
            table[case.role] = [";".join(v) if isinstance(v, list) else v for v in case.data[1]]
    path = written(table, folder / "d.csv")
    words = list(case.command)
    if "--user-features" in words:
        known = case.named["user_features"]
        columns = np.array([*known.values()]).T
        told = written({"user": list(known), "age": columns[0], "size": columns[1]}, folder / "users.csv")
        words[words.index("users.csv")] = str(told)
    fit = ["fit", case.command[0], path, "-o", folder / "m", *words[1:], f"--{case.limit.replace('_', '-')}", 4]
    result = call(*fit, "--tol", 0)
    assert result.exit_code == 0, result.output
    model = ng.load(folder / "m")
    if "--column" not in case.command and "auto" not in case.settings.values():
        np.testing.assert_allclose(objective(model), objective(case.fitted(**unsaid(case))), rtol=1e-9)
    asking = "decode" if "--sequence" in case.command else "transform" if "--column" in case.command else "predict"
    asked = call(asking, folder / "m", path, "-o", folder / "out.csv")
    assert asked.exit_code == 0, asked.output
    if asking != "transform":
        column, known = written_of(model, case, table)
        found = [row[column] for row in csv.DictReader((folder / "out.csv").read_text().splitlines())]
        if column in ("mean", "mean 0"):
            np.testing.assert_allclose(np.array(found, dtype=float), known, rtol=1e-4, atol=1e-5)
        else:
            assert found == [str(value) for value in known]
    if asking == "decode":
        inputs = ("--inputs", "0,1") if any("inputs=" in word for word in case.command) else ()
        ahead = call("forecast", folder / "m", "--data", path, "--steps", 2, *inputs)
        assert ahead.exit_code == 0, ahead.output
        assert [line.split(",")[:2] for line in ahead.stdout.splitlines()[1:]] == [
            ["a", "1"],
            ["a", "2"],
            ["b", "1"],
            ["b", "2"],
        ]


def written_of(model: Any, case: Case, table: dict[str, Any]) -> tuple[str, Any]:
    """A column of what the command predicts, and what the model says in Python."""
    if case.command[0] in ("mf", "context"):
        known = {role: table[role] for role in ("time", "context") if role in table}
        return "mean", model.predict(table["user"], table["item"], **known)
    if len(case.data) == 3:
        return "state", model.predict(frame_of(case, "pandas") if named_settings(case) else case.data[0], LENGTHS)
    found = model.predict(case.data[0])
    if found.ndim == 2:
        return "mean 0", found[:, 0]
    return {"mixture": "component", "gp-classifier": "class"}.get(case.command[0], "mean"), found


def objective(model: Any) -> float:
    """What the fit maximised: the bound, or the log likelihood of a model that has none."""
    return float(model.elbo_ if hasattr(model, "elbo_") else model.log_likelihood_)


def unsaid(case: Case) -> dict[str, Any]:
    """Settings that the command line was not told, as they are by default."""
    usual = case.kind().get_params()
    names = ("n_init", "solver")
    said = {word[2:].replace("-", "_") for word in case.command if word.startswith("--")}
    return {name: usual[name] for name in names if name in usual and name not in said}


def written(table: Any, path: Path) -> Path:
    rows = zip(*table.values(), strict=True)
    lines = [
        ",".join(table),
        *(",".join(repr(float(v)) if isinstance(v, float) else str(v) for v in row) for row in rows),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


# -- uncertainty --


def with_draws(case: Case, _: Path) -> None:
    model = case.fitted()
    where = model.fit_ if case.of_network else model
    for what in ("draws", "linear_response") if case.of_network else ():
        with pytest.raises(TypeError, match=rf"model.fit_.{what}\(\)"):
            getattr(model, what)()
    data = () if where is not model else case.data
    data = (data[0],) if len(data) == 3 else data
    named = {"lengths": LENGTHS} if len(case.data) == 3 else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        drawn = where.draws(*data[:1], n=8, chains=2, warmup=2, starts="q", **named)
    assert all(np.isfinite(drawn[name].mean()).all() for name in drawn)


def responding(case: Case, _: Path) -> None:
    model = case.fitted(**{case.limit: 40})
    where = model.fit_ if case.of_network else model
    data = () if where is not model or isinstance(case.data[0], ng.Ratings) else case.data
    data = (data[0],) if len(data) == 3 else data
    named = {"lengths": LENGTHS} if len(case.data) == 3 else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that have not converged
        with contextlib.suppress(NotAtMaximum):  # so few data do not determine everything, and it says so
            response = where.linear_response(*data, **named)
            name = next(iter(response))
            assert np.isfinite(response[name].std()).all()


def calibrated(case: Case, _: Path) -> None:
    model = case.fitted()
    assert set(model.posterior_) == set(model.calibrate(2, size=20).coverage(0.9))


# -- tables and what is missing --


def frame_of(case: Case, library: str) -> Any:
    columns = {name: np.asarray(column) for name, column in case.table.items()}
    return pytest.importorskip(library).DataFrame(columns)


def by_name(library: str) -> Ability:
    def ability(case: Case, folder: Path) -> None:
        frame, model = frame_of(case, library), case.made(**named_settings(case))
        known = case.fitted()
        if case.command[0] in ("mf", "context"):
            model.fit(frame, **features_of(case))
            np.testing.assert_allclose(objective(model), objective(known), rtol=1e-9)
            return
        y = [name for name in case.table if name.startswith("target")]
        names = [name for name in case.table if name not in y]
        target = [frame[y[0]] if len(y) == 1 else frame[y]] if y else [*case.data[1:]] if case.role else []
        last = [None, LENGTHS] if len(case.data) == 3 else []
        model.fit(frame[names], *target, *last)
        np.testing.assert_allclose(objective(model), objective(known), rtol=1e-9)
        here = answers(model, case, (frame[names], *target, *last))
        turned = (frame[names[::-1]], *target, *last)
        if len(names) == 1 or model.kind == "topics" or isinstance(case.settings.get("emissions"), dict):
            same(here, answers(model, case, turned))
            return
        # Never read by place in silence, nor after a file.
        model.save(folder / "m")
        for one in (model, ng.load(folder / "m")):
            with pytest.raises(
                ValueError, match=r"columns are read by their places|Feature names must be in the same order"
            ):
                answers(one, case, turned)

    return ability


def named_settings(case: Case) -> dict[str, Any]:
    """Settings that name columns by number, by their names in the table."""
    names = list(case.table)
    if isinstance(emissions := case.settings.get("emissions"), dict):
        return {"emissions": {names[key]: kind for key, kind in emissions.items()}}
    if (own := case.settings.get("transitions")) is not None and own.inputs is not None:
        return {"transitions": dataclasses.replace(own, inputs="regime")}
    return {role: role for role in ("time", "context") if role in case.named}


def features_of(case: Case) -> dict[str, Any]:
    return {name: value for name, value in case.named.items() if name not in ("time", "context")}


def with_room(part: Any) -> Any:
    """A copy that can hold NaN."""
    values = np.asarray(part)
    return values.astype(float) if values.dtype.kind in "if" else values.copy()


def with_gaps(case: Case, _: Path) -> None:
    """One entry is missing."""
    if isinstance(case.data[0], ng.Ratings):
        table = np.full((20, 12), np.nan)
        ratings = case.data[0]
        table[ratings.users, ratings.items] = ratings.values
        named = {name: np.asarray([*value.values()]) for name, value in case.named.items()}
        model = case.made().fit(table, **named)
        assert np.isfinite(model.predict(table)).all()
        return
    data = [part if part is None or part is LENGTHS else with_room(part) for part in case.data]
    if len(data) == 2 and data[1].dtype.kind == "U":
        data[1] = data[1].astype(object)
        data[1][3] = None
    elif len(data) == 2:
        (data[1] if data[1].ndim == 1 else data[1][:, 0])[3] = np.nan
    elif data[0].ndim == 1:
        data[0] = data[0].astype(object)
        data[0][3] = None
    else:
        data[0][3, 0] = np.nan
    model = case.made().fit(*data, **case.named)
    assert np.isfinite(model.elbo_)


# -- what runs, and why --

# What may be changed without another number: where and how long a fit runs, and what it shows.
ABOUT_THE_RUN = (
    "verbose",
    "n_jobs",
    "executor",
    "seed",
    "max_passes",
    "max_steps",
    "max_seconds",
    "max_messages",
    "tol",
)
REFUSALS = (AttributeError, NotConjugate, NotConverged, NotImplementedError, PlateMismatch, TypeError, ValueError)


def run_of(model: Any, case: Case) -> list[Any]:
    """What two fits have in common if they are the same: bits of the bound, and of all answers."""
    return [model.inference_, model.trace_["elbo"], getattr(model, "elbo_", None), *answers(model, case)]


def copied(value: Any) -> Any:
    """An equal value that is another object: a default is recognised by its value, not by who wrote it."""
    return float(repr(value)) if type(value) is float else copy.deepcopy(value)


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a function that have a default."""
    parameters = inspect.signature(function).parameters
    return {name: copied(one.default) for name, one in parameters.items() if one.default is not inspect.Parameter.empty}


def defaults(case: Case, _: Path) -> None:
    """A default is a value that the user could write down: all of them, written down, give the same bits."""
    bare = case.fitted()
    said = {name: value for name, value in arguments(case.kind).items() if name not in case.made_with}
    given = {name: value for name, value in arguments(case.kind.fit).items() if name not in ("X", "y", *case.names)}
    same(run_of(bare, case), run_of(case.fitted(given, **said), case))
    for name, value in case.resolved.items():  # what None stands for
        same(run_of(bare, case), run_of(case.fitted(**{name: value}), case))


# What a model is, and which column is which: other numbers are other models.
PARTS_OF_THE_MODEL = ("n_states", "n_components", "n_topics", "n_factors", "seed")


def moved(case: Case, sign: int) -> dict[str, Any]:
    """Every number among the arguments, a thousandth further; whole numbers by one at least."""
    values = case.made().get_params(deep=False)
    numbers = {n: v for n, v in values.items() if v and type(v) in (int, float) and n not in PARTS_OF_THE_MODEL}
    return {
        name: max(1, v + sign * max(1, round(1e-3 * v))) if type(v) is int else v * (1 + sign * 1e-3)
        for name, v in numbers.items()
    }


# The inference first, then its schedule and what it took.
HOW = r"(, (memoised|sampled|by gradients|natural steps on all rows|natural steps))?, [\d,.]+ (sweep|pass|step)(e?s)?"
INFERENCE = re.compile(rf"(VB|exact|Vecchia's likelihood){HOW}|.*Gibbs.*")


def kept(case: Case, _: Path) -> None:
    """Which inference runs hangs on no number: not a little more or less of one, not on who computes, nor on more data."""
    whole = case.fitted()
    named = kind_of(whole)
    assert INFERENCE.fullmatch(whole.inference_), whole.inference_
    assert repr(whole).endswith(f"  # {whole.inference_}")
    for sign in (1, -1):
        assert kind_of(case.fitted(**moved(case, sign))) == named
    for settings in ({"n_jobs": 2}, {"executor": Elsewhere()}):
        with saying_so():
            assert kind_of(case.fitted(**settings)) == named, settings
    with saying_so():
        names = {name: value[: len(case.more[0])] for name, value in case.named.items() if name in ("time", "context")}
        assert kind_of(whole.update(*case.more, **names)) == named, "update"


@contextlib.contextmanager
def saying_so() -> Iterator[None]:
    """What cannot be kept is refused, or warned of."""
    with contextlib.suppress(*REFUSALS, UserWarning), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the fit has not converged")
        yield


def kind_of(model: Any) -> str:
    """The inference alone: the schedule and what it took come after a comma."""
    return model.inference_.partition(",")[0]


def sizes(*around: int) -> Ability:
    def ability(case: Case, _: Path) -> None:
        """n and n + 1 rows are fitted by the same inference."""
        for n in around:
            if n < case.least:
                continue
            kinds = {kind_of(case.made().fit(*data, **named)) for data, named in (case.of_size(n), case.of_size(n + 1))}
            assert len(kinds) == 1, (n, kinds)

    return ability


def reordered(case: Case, _: Path) -> None:
    """Rows are answered one by one: in another order they have the same answers, in that order."""
    model = case.fitted()
    if len(case.data) == 3 or isinstance(case.data[0], ng.Ratings):
        whole = answers(model, case)
        X = case.data[0]
        if isinstance(X, ng.Ratings):
            order = np.random.default_rng(0).permutation(len(X))
            means, doubts = model.predict(X, return_std=True)
            named = [[ids[place] for place in places] for ids, places in ((X.user_ids, X.users), (X.item_ids, X.items))]
            turned = model.predict(*([column[k] for k in order] for column in named), return_std=True)
            same([means[order], doubts[order]], turned)
            return
        split = np.cumsum(LENGTHS)[:-1]
        turned = np.concatenate(np.split(X, split)[::-1])
        found = model.predict_proba(turned, LENGTHS[::-1])
        np.testing.assert_allclose(found, np.concatenate(np.split(whole[0], split)[::-1]), atol=1e-12)
        return
    order = np.random.default_rng(0).permutation(len(case.data[0]))
    named = {name: np.asarray(value)[order] for name, value in case.named.items() if name in ("time", "context")}
    other = dataclasses.replace(case, data=tuple(part[order] for part in case.data), named={**case.named, **named})
    for found, known in zip(answers(model, other), answers(model, case), strict=True):
        np.testing.assert_allclose(found, np.asarray(known)[order], rtol=1e-9, atol=1e-12)


def sources(case: Case, folder: Path) -> Iterator[tuple[dict[str, Any], tuple[Any, ...], Any]]:
    """The data of a case in other places of memory and in files, with the settings that name columns and what has a name."""
    first, *rest = case.data
    if isinstance(first, np.ndarray):
        frozen = first.copy()
        frozen.setflags(write=False)
        for other in (
            np.asfortranarray(first),
            frozen,
            np.ascontiguousarray(first[::-1])[::-1],
            np.repeat(first, 2, 0)[::2],
        ):
            yield {}, (other, *rest), case.named
    if case.command[0].startswith(("hmm", "mixture")):
        if first.dtype.kind == "U" or "regime" in case.table:
            return  # labels, and the column of inputs, are of tables
        np.save(folder / "rows.npy", first)
        yield {}, (folder / "rows.npy", *rest), {}
        yield {}, (np.load(folder / "rows.npy", mmap_mode="r"), *rest), {}
    elif case.command[0] not in ("gp", "mf", "context"):
        return
    targets = [name for name in case.table if name.startswith("target")]
    frame_of(case, "pandas").to_parquet(folder / "rows.parquet", row_group_size=7)
    if case.command[0] == "mf":
        yield {}, (written(case.table, folder / "rows.csv"),), features_of(case)
    if len(targets) < 2:
        columns = () if case.command[0] in ("mf", "context") else (targets or rest)
        yield named_settings(case), (folder / "rows.parquet", *columns), features_of(case)


def from_any_source(case: Case, folder: Path) -> None:
    """Arrays however they lie in memory, memory maps and files of the same data give the same fit."""
    known = answers(case.fitted(), case)
    for settings, data, names in sources(case, folder):
        same(answers(case.made(**settings).fit(*data, **names), case), known)


def other_units(case: Case, _: Path) -> None:
    """Rows and targets in another unit, from another origin, are the same data: so are states, shares, bounds and predictions."""
    first, *rest = case.data
    scale, shift = 2.0**20, 2.0**24  # by powers of two, of which rounding knows nothing
    model, values = (
        case.fitted(),
        first.values if isinstance(first, ng.Ratings) else rest[0] if len(rest) == 1 else first,
    )
    if values.dtype.kind != "f" or (values == np.round(values)).all(0).any():
        return  # counts, levels, classes, inputs
    if isinstance(case.settings.get("noise"), float):
        return  # a given noise has units
    if isinstance(first, ng.Ratings):
        shift *= model.item_biases_ is not None  # without biases nothing follows an origin
        moved = ng.Ratings(first.user_ids[first.users], first.item_ids[first.items], scale * (values + shift))
        other = case.made().fit(moved, **case.named)
        one, two = model.predict(first), other.predict(moved) / scale - shift
    elif len(rest) == 1:
        if case.settings.get("kernel") not in (None, "auto") or case.of_network:
            return  # a given kernel has units
        other = case.made().fit(scale * first, scale * (values + shift))
        one, two = model.predict(first), other.predict(scale * first) / scale - shift
    else:
        X = scale * (first + shift)
        other = case.made().fit(X, *rest)
        one, two = model.predict_proba(first, *rest[1:]), other.predict_proba(X, *rest[1:])
    searched = "auto" in case.settings.values()  # what is tried next hangs on the last digits
    np.testing.assert_allclose(two, one, atol=5e-3 if searched else 1e-4 * max(1.0, np.abs(one).max()))
    if not searched and "Autoregressive" not in str(case.settings) and "method" not in case.settings:  # of all rows
        density = values.size * np.log(scale)
        assert objective(other) + density == pytest.approx(objective(model), abs=1e-6 * density, nan_ok=True)


# Why few rows are refused.
TOO_FEW = re.compile("take a smaller order|a batch of .* is larger than|a classifier needs two|must be a whole number")


def few_rows(case: Case, _: Path) -> None:
    """One row, one row many times, a column that does not vary, zeros and tiny numbers have finite fits, or are refused."""
    first, *rest = case.data
    if not isinstance(first, np.ndarray) or case.kind is ng.recommenders.ContextFactorization:
        return
    odd = [first[:1], first[:2], np.repeat(first[:1], 20, axis=0), np.repeat(first[:2], 10, axis=0)]
    if first.dtype.kind == "f":
        still = first[:20].copy()
        still[:, 0] = 7.0
        odd += [still, np.zeros((5, first.shape[1])), 1e-90 * first[:20], first[:20].astype(np.float32)]
    for X in odd:
        others = [np.resize(part, (len(X), *part.shape[1:])) if isinstance(part, np.ndarray) else part for part in rest]
        data = (X, *(others if len(case.data) != 3 else (None, [len(X)])))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what does not vary, and of more components than rows
            try:
                model = case.made().fit(*data)
            except ValueError as error:
                if not TOO_FEW.search(str(error)):
                    raise
                continue
            assert all(np.isfinite(np.asarray(part, dtype=float)).all() for part in answers(model, case, data)[:1])


def alternatives(value: Any) -> list[Any]:
    """Other values of the kind of a default."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value + 1]
    return [3.0 * value + 0.01] if isinstance(value, float) else []


def alike(one: Any, other: Any) -> bool:
    """Whether two answers have the same bits; where neither has a number, they have."""
    first, second = np.asarray(one), np.asarray(other)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == second.dtype.kind == "f")


def silent(case: Case, names: Any) -> list[str]:
    """Of these arguments the ones that another value of changes nothing, and is no error."""
    bare, found = run_of(case.fitted(), case), []
    for name, value in arguments(case.kind).items():
        for other in case.others.get(name, alternatives(value)) if name in names else ():
            try:
                changed = run_of(case.fitted(**{name: other}), case)
            except REFUSALS:
                continue
            if len(changed) == len(bare) and all(map(alike, changed, bare)):
                found.append(name)
            assert name == "inference" or changed[0].partition(",")[0] == bare[0].partition(",")[0], (name, other)
    return found


def heard(case: Case, _: Path) -> None:
    """No argument is without effect in silence, and none but `inference` chooses the inference: others are errors that say so."""
    exempt = {*ABOUT_THE_RUN, *case.settings}
    assert not silent(case, arguments(case.kind).keys() - exempt)


ABILITIES: dict[str, Ability] = {
    "clone, `get_params`, `set_params`": settings,
    "pickle": pickled,
    "same seed, same fit": repeated,
    "`n_jobs`": threads,
    "checkpoint, resume": checkpointed,
    "resume after a crash": killed,
    "`max_seconds`, callbacks": limited,
    "`partial_fit`": in_parts,
    "`fit` to a stream": as_stream,
    "`update`": updated,
    "`forget`": forgetful,
    "`executor=`": on_a_cluster,
    "`save`, `load`": in_files,
    "`report`": shown,
    "command line": commanded,
    "`draws`": with_draws,
    "`linear_response`": responding,
    "`calibrate`": calibrated,
    "`sample_weight`": weighted,
    "pandas": by_name("pandas"),
    "Polars": by_name("polars"),
    "missing entries": with_gaps,
}
# What every option keeps.
CHARTER: dict[str, Ability] = {
    "defaults": defaults,
    "inference kept": kept,
    "n and n + 1 rows": sizes(10, 100),
    "arguments heard": heard,
    "order of the rows": reordered,
    "any source": from_any_source,
    "few rows": few_rows,
    "other units": other_units,
    "continue_fit": continued,
    "stream, resume": stream_resumed,
    "refused batches": refused_batches,
}
