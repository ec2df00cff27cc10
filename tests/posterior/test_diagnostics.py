"""R̂ and effective sample sizes are those of arviz-stats, whatever the draws."""

import numpy as np
import pytest

from natgrad.posterior.draws import ess, r_hat, worst


def chains(rng, count, n, memory):
    noise = rng.normal(size=(count, n))
    draws = noise.copy()
    for t in range(1, n):
        draws[:, t] = memory * draws[:, t - 1] + noise[:, t]
    return draws


def cases():
    """Fast and slow chains, odd and even lengths, ties, chains apart, heavy tails, two values."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 5):
        for n in (4, 5, 10, 33, 120):
            for memory in (-0.9, 0.0, 0.97):
                plain = chains(rng, count, n, memory)
                yield from (
                    plain,
                    np.round(plain),
                    plain + 9.0 * np.arange(count)[:, None],
                    np.exp(3 * plain),
                    (plain > 0) * 1.0,
                )


def test_values_are_those_of_arviz_stats():
    stats = pytest.importorskip("arviz_stats.base.array").array_stats
    axes = {"chain_axis": 0, "draw_axis": 1}
    compared = 0
    for draws in cases():
        if (draws == draws[0, 0]).all():
            continue
        with np.errstate(all="ignore"):
            wanted = [
                stats.rhat(draws, method="rank", **axes),
                stats.ess(draws, method="bulk", **axes),
                stats.ess(draws, method="tail", prob=(0.05, 0.95), **axes),
            ]
        got = [r_hat(draws), ess(draws), ess(draws, "tail")]
        np.testing.assert_allclose(got, np.array(wanted, dtype=float), rtol=1e-12)
        compared += 1
    assert compared > 200


def test_elements_are_looked_at_one_by_one():
    rng = np.random.default_rng(2)
    draws = np.stack([chains(rng, 4, 50, memory) for memory in (0.0, 0.5, 0.9)], -1)
    draws = np.concatenate([draws, np.ones((4, 50, 1)), np.full((4, 50, 1), np.nan)], -1)
    np.testing.assert_array_equal(ess(draws)[:3], [ess(draws[..., k]) for k in range(3)])
    assert np.isnan(r_hat(draws)[3:]).all()
    found = worst(draws)
    assert found == (np.nanmax(r_hat(draws)), np.nanmin(ess(draws)), np.nanmin(ess(draws, "tail")))
    assert worst(draws[:, :3]) is None
    assert worst(np.ones((4, 50))) is None
    assert ess(draws.reshape(4, 50, 1, 5)).shape == (1, 5)
