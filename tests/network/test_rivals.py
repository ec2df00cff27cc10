"""Modes that no renumbering joins: a fit that ends elsewhere is told of if chains do not leave it, and not if they do."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import PoorMixing
from natgrad.network.draws.rivals import rivals_of

OFF = np.array([-1.2, -0.7, -0.3, 0.1, 0.4, 0.9])
# Three groups for two components: the one in the middle goes with either, and y and −y are the same data.
Y = np.concatenate([-6.0 + OFF, 0.1 * OFF, -0.1 * OFF, 6.0 - OFF])


def mixture(y, size=2):
    row = ng.Plate("row", len(y))
    w = ng.Dirichlet("w", np.full(size, 2.0))
    mu = ng.Normal("mu", 0.0, 0.02, plate=ng.Plate("part", size))
    return ng.Network(ng.Normal("y", mu[ng.Categorical("z", w, plate=row)], 1.0, plate=row, observed=y))


def test_a_mode_that_chains_do_not_reach_is_said():
    fit = mixture(Y).fit(verbose=False)
    (rival,) = rivals_of(fit, 300, 0)
    assert rival.gain == pytest.approx(0.0, abs=0.01)  # the mirror image: half of the posterior
    np.testing.assert_allclose(np.sort(rival.fit["mu"].mean()), np.sort(-fit["mu"].mean()), atol=0.01)
    with pytest.warns(PoorMixing, match="another start has a bound 0.0 nats lower, which is a share of about 50%"):
        draws = fit.draws(200, verbose=False)
    assert draws.message.startswith("the chains agree")  # R̂ cannot tell
    with pytest.warns(PoorMixing, match="do not agree yet on mu"):
        both = fit.draws(200, verbose=False, starts="restarts")
    ends = np.sort(both["mu"].values.mean(1), axis=-1)
    assert np.ptp(ends[:, 0]) > 3.0  # some here, some there
    with pytest.warns(PoorMixing, match="do not agree yet on mu"):
        given = fit.draws(60, warmup=20, verbose=False, starts=[rival.fit])
    assert np.ptp(np.sort(given["mu"].values.mean(1), axis=-1)[:, 0]) > 3.0


def test_a_mode_that_is_a_renumbering_or_far_below_is_none():
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(-4.0, 1.0, 40), rng.normal(4.0, 1.0, 40)])
    fit = mixture(two).fit(verbose=False)
    assert rivals_of(fit, 300, 0) == []
    three = np.concatenate([rng.normal(m, 1.0, n) for m, n in ((-6.0, 12), (0.0, 6), (6.0, 12))])
    best = mixture(three, 3).fit(verbose=False)
    assert rivals_of(best, 300, 0) == []


def test_the_sentence_stays_with_the_draws(tmp_path):
    fit = mixture(Y).fit(verbose=False)
    with pytest.warns(PoorMixing):
        draws = fit.draws(200, chains=2, verbose=False)
    draws.save(tmp_path / "draws")
    assert ng.load(tmp_path / "draws").notes == draws.notes
    assert ng.load(tmp_path / "draws").attach(mixture(Y)).message == draws.message
    quiet = fit.draws(200, chains=2, verbose=False, starts="q")
    assert quiet.notes == []
    np.testing.assert_array_equal(quiet["mu"].values, draws["mu"].values)  # looking changes no draw


def test_wrong_starts_say_what_is_wanted():
    fit = mixture(Y).fit(verbose=False)
    with pytest.raises(ValueError, match='starts must be "q", "restarts" or a list of fits, got \'random\''):
        fit.draws(10, starts="random")
    with pytest.raises(ValueError, match=r"starts\[0\] must be a fit of the same network, got 3"):
        fit.draws(10, starts=[3])
    with pytest.raises(ValueError, match=r"starts\[0\] must be a fit of the same network"):
        fit.draws(10, starts=[mixture(Y, 3).fit(verbose=False)])
