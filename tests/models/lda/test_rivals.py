"""Two chains of a finish: one from the topics of the pass, one from random ones; the one whose tokens are likelier goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.lda import gibbs
from natgrad.models.lda.gibbs import GibbsSweeps


def drawn(seed: int, n: int = 120, words: int = 60) -> Any:
    rng = np.random.default_rng(seed)
    topics, shares = rng.dirichlet(np.full(40, 0.2), 6), rng.dirichlet(np.full(6, 0.3), n)
    return np.array([rng.multinomial(words, share @ topics) for share in shares])


def fitted(counts: Any, **settings: Any) -> Any:
    return ng.LDA(3, seed=1, n_jobs=1, verbose=False, **settings).fit(counts)


@pytest.fixture
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gibbs, "TRIAL", 20)
    monkeypatch.setattr(gibbs, "RIVAL_FROM", 50)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, short_trials: None) -> list[Any]:
    """What was compared: the values of both chains, and which one went on."""
    found: list[Any] = []
    choose = GibbsSweeps._choose

    def noted(self: GibbsSweeps) -> None:
        n = self.problem.corpus.n_tokens
        values = self.log_likelihood.copy(), np.array(self._rival_values) / n
        choose(self)
        found.append((*values, self.from_random))

    monkeypatch.setattr(GibbsSweeps, "_choose", noted)
    return found


def test_the_chain_whose_tokens_are_likelier_goes_on(seen: list[Any]) -> None:
    chosen = set()
    for seed in range(4):
        model = fitted(drawn(seed), finish_sweeps=50)
        own, other, from_random = seen[-1]
        assert len(own) == len(other) == 20
        assert from_random == (other[-5:].mean() > own[-5:].mean())
        assert len(model.log_likelihood_) == 50
        np.testing.assert_array_equal(model.log_likelihood_[:20], other if from_random else own)
        assert ("of a chain that began at random" in model.stop_.message) == from_random
        chosen.add(from_random)
    assert chosen == {True, False}  # or nothing was tested


def test_a_chain_that_is_not_chosen_leaves_no_trace(seen: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    both = {seed: fitted(drawn(seed), finish_sweeps=50) for seed in range(4)}
    lost = [seed for seed, (_, _, from_random) in zip(both, seen, strict=True) if not from_random]
    monkeypatch.setattr(gibbs, "RIVAL_FROM", 10**9)
    for seed in lost:
        alone = fitted(drawn(seed), finish_sweeps=50)
        np.testing.assert_array_equal(alone.topics_, both[seed].topics_)
        np.testing.assert_array_equal(alone.log_likelihood_, both[seed].log_likelihood_)
    assert lost


def test_short_finishes_and_fits_that_go_on_have_one_chain(seen: list[Any]) -> None:
    counts = drawn(0)
    model = fitted(counts, finish="gibbs", finish_sweeps=49)
    assert not seen
    model.finish_sweeps = 60  # `set_params` would import scikit-learn
    model.continue_fit(counts)
    model.update(counts[:20])
    assert not seen


def test_what_both_chains_read_is_counted(short_trials: None) -> None:
    counts = drawn(0)
    one, two = (fitted(counts, finish="gibbs", finish_sweeps=sweeps).trace_.last.messages_read for sweeps in (49, 50))
    passes = one / 50  # one pass, and 49 sweeps
    assert two == pytest.approx(passes * (1 + 50 + 20), rel=0.05)
