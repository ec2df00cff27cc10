"""Checkpoints of streams: a run that is given the stream again goes on where it was, and ends with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.corpus import as_corpus

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [8.0, 8.0], [-9.0, 6.0], [10.0, -7.0]])
WORDS = np.array([f"w{i:02d}" for i in range(24)])


def rows(k: int, n: int = 60) -> Any:
    return CENTRES[np.arange(n) % k] + RNG.normal(size=(n, 2))


def times(k: int, n: int = 120) -> Any:
    return CENTRES[np.repeat(np.arange(n // 10), 10) % k] + RNG.normal(size=(n, 2))


def texts(k: int, n: int = 40) -> list[str]:
    """Topic j has the words 6 j to 6 j + 5; those of the last come late."""
    return [" ".join(RNG.choice(WORDS[6 * (d % k) : 6 * (d % k) + 6], 30)) for d in range(n)]


def ratings(users: range, items: int) -> ng.Ratings:
    pairs = [(f"u{u}", f"i{i}") for u in users for i in range(items) if (u + i) % 3]
    return ng.Ratings([u for u, _ in pairs], [i for _, i in pairs], RNG.normal(3, 1, len(pairs)))


ROWS = [rows(2), rows(2), rows(4, 90), rows(4, 50), rows(4)]
FEW = [rows(1, 12), rows(1, 9), rows(2, 24)]
TIMES = [times(2), times(2), times(4, 200), times(4, 80), times(4)]
TEXTS = [texts(2), texts(2), texts(4, 60), texts(4, 30), texts(4)]


class Rated:
    """A source of chunks of whole users; items come later."""

    parts = (ratings(range(8), 6), ratings(range(8, 20), 9), ratings(range(20, 27), 9), ratings(range(27, 40), 12))

    def chunks(self) -> Iterator[ng.Ratings]:
        yield from self.parts


def topics(model: Any) -> list[Any]:
    return [model.components_, model.doc_prior_, model.topic_prior_, model.vocabulary_, model.elbo_]


def mixture(model: Any) -> list[Any]:
    return [*model._state.lam["components"], model.weights_, model.elbo_, model.n_rows_seen_]


def chain(model: Any) -> list[Any]:
    return [*model._state.lam["emission"], model.transmat_, model.elbo_, model.n_times_seen_]


def factors(model: Any) -> list[Any]:
    return [model.posterior_["v"].mean(), model.posterior_["u"].mean(), model.elbo_]


Case = tuple[Callable[..., Any], Callable[[], Any], Callable[[Any], list[Any]]]
CASES: dict[str, Case] = {
    "mixture, auto": (
        lambda **s: ng.GaussianMixture(("auto", 8), tol=0, **{"max_passes": 2, **s}), lambda: ROWS, mixture,
    ),
    "few rows": (
        lambda **s: ng.GaussianMixture(("auto", 4), tol=0, **{"max_passes": 2, **s}), lambda: FEW, mixture,
    ),
    "mixture": (lambda **s: ng.GaussianMixture(4, n_init=2, tol=0, **{"max_passes": 2, **s}), lambda: ROWS, mixture),
    "mixture, read once": (lambda **s: ng.GaussianMixture(("auto", 8), **s), lambda: iter(ROWS), mixture),
    "mixture, moves": (
        lambda **s: ng.GaussianMixture(4, n_init=1, tol=0, **{"max_passes": 2, **s}), lambda: ROWS, mixture,
    ),
    "chain, auto": (lambda **s: ng.GaussianHMM(("auto", 6), **s), lambda: iter(TIMES), chain),
    "chain": (lambda **s: ng.GaussianHMM(3, n_init=2, **s), lambda: iter(TIMES), chain),
    "topics, auto": (
        lambda **s: ng.LDA(("auto", 8), inference="vb", tol=0, **{"max_passes": 2, **s}), lambda: Texts(), topics,
    ),
    "topics, in batches": (
        lambda **s: ng.LDA(4, inference="vb", tol=0, local=ng.LocalOptions(batch_size=15), **{"max_passes": 3, **s}),
        lambda: Texts(), topics,
    ),
    "ratings": (
        lambda **s: ng.MatrixFactorization(2, tol=0, **{"max_steps": 2 * len(Rated.parts), **s}), Rated, factors,
    ),
}  # fmt: skip


class Texts:
    """A source of named counts, of which later ones bring words."""

    def chunks(self) -> Iterator[Any]:
        yield from (as_corpus(part) for part in TEXTS)


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "mixture" else [pytest.mark.slow]) for name in CASES],
)
def test_a_run_goes_on_with_the_bits_of_one_that_never_stopped(name: str, tmp_path: Path) -> None:
    made, stream, parts = CASES[name]
    options: dict[str, Any] = {"moves": "keep"} if name == "mixture, moves" else {}
    whole = made(verbose=False).fit(stream(), **options)
    n_steps = len(whole.trace_)
    assert n_steps >= 4

    def kill(progress: Any) -> None:
        if progress.t == at:
            raise Killed

    for at in (2, n_steps // 2 + 1, n_steps):
        folder = tmp_path / str(at)
        with pytest.raises(Killed):
            made(verbose=False).fit(stream(), checkpoint=folder, every=1, callbacks=[kill], **options)
        again = made(verbose=False).fit(stream(), checkpoint=folder, every=1, resume=True, **options)
        for one, other in zip(parts(whole), parts(again), strict=True):
            np.testing.assert_array_equal(one, other)
        assert again.trace_.moves == whole.trace_.moves
        np.testing.assert_array_equal(whole.trace_["elbo_estimate"], again.trace_["elbo_estimate"])
        # All was read: what is found is the end itself, and nothing more is done.
        ended = made(verbose=False).fit(stream(), checkpoint=folder, resume=True, **options)
        for one, other in zip(parts(whole), parts(ended), strict=True):
            np.testing.assert_array_equal(one, other)
        assert ended.stop_ == again.stop_


def until(n: int) -> Callable[[Any], bool]:
    """End a run after so many steps."""
    return lambda progress: progress.t >= n


def test_a_run_that_has_read_all_goes_on_when_more_passes_are_allowed(tmp_path: Path) -> None:
    made, stream, parts = CASES["mixture"]
    whole = made(max_passes=3, verbose=False).fit(stream())
    made(max_passes=1, verbose=False).fit(stream(), checkpoint=tmp_path)
    again = made(max_passes=3, verbose=False).fit(stream(), checkpoint=tmp_path, resume=True)
    for one, other in zip(parts(whole), parts(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_stream_is_refused(tmp_path: Path) -> None:
    made, stream, _ = CASES["mixture"]
    made(verbose=False).fit(stream(), checkpoint=tmp_path, callbacks=[until(7)])
    again = made(verbose=False)
    with pytest.raises(ValueError, match="not the stream of the earlier run, which had read 120 rows in 2 parts"):
        again.fit([ROWS[1], ROWS[0][:50], *ROWS[2:]], checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="an iterator cannot be read again"):
        again.fit(iter(ROWS), checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="seed was '0' and is '1'"):
        made(verbose=False, seed=1).fit(stream(), checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="of another run"):
        again.fit(np.concatenate(ROWS), checkpoint=tmp_path, resume=True)
    whole = tmp_path / "whole"
    made(verbose=False).fit(np.concatenate(ROWS), checkpoint=whole, callbacks=[until(2)])
    with pytest.raises(ValueError, match="of a run that read no stream"):
        again.fit(stream(), checkpoint=whole, resume=True)
