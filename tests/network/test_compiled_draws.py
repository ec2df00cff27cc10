"""Draws of small networks by the compiled loop: its chains have the law of the interpreted ones, and neither a callback nor
how many threads there are shows in a bit."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

import natgrad as ng
from natgrad.threads import at_most

pytestmark = [
    pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing"),
    pytest.mark.filterwarnings("ignore::natgrad.errors.UnreachedNode"),
]
REAL = [0.4, -1.2, 2.2, 0.1, 1.7, 0.9, -0.3, 1.1]


# -- laws --


def regression():
    rows, x = ng.Plate("rows", 8), np.linspace(-1, 1, 8)
    a, b = ng.Normal("a", 0.0, 0.5), ng.Normal("b", 0.0, ng.Gamma("t", 2.0, 1.0))
    return ng.Normal("y", a + b * x, ng.Gamma("s", 2.0, 1.0), plate=rows, observed=REAL)


def vectors():
    rows, X = ng.Plate("rows", 8), np.stack([np.ones(8), np.linspace(-1, 1, 8), np.linspace(-1, 1, 8) ** 2], 1)
    w = ng.MultivariateNormal("w", [0.0, 1.0, 0.0], np.diag([1.0, 2.0, 3.0]))
    return ng.Normal("y", ng.dot(X, w), ng.Gamma("s", 2.0, 1.0), plate=rows, observed=REAL)


def shares():
    """Shares of two groups, and one of which one is seen; hidden Bernoullis are not compiled."""
    share, other = ng.Beta("share", 0.6, 3.0, plate=ng.Plate("group", 2)), ng.Beta("other", 2.0, 5.0)
    rows, group = ng.Plate("rows", 8), [0, 0, 0, 1, 1, 1, 1, 1]
    seen = ng.Bernoulli("seen", share[group], plate=rows, observed=[1, 0, 0, 1, 0, 0, 1, 1])
    return seen, ng.Bernoulli("once", other, observed=0)


def components():
    rows, k = ng.Plate("rows", 8), ng.Plate("k", 2)
    z = ng.Categorical("z", ng.Dirichlet("w", 3.0, size=2), plate=rows)
    mu = ng.Normal("mu", 0.0, 0.5, plate=k)
    return ng.Normal("y", mu[z], ng.Gamma("s", 3.0, 1.0), plate=rows, observed=REAL)


def fitted(declared):
    nodes = declared()
    return ng.Network(*(nodes if isinstance(nodes, tuple) else (nodes,))).fit(
        init={"mu": [-1.0, 1.5]} if declared is components else None, verbose=False
    )


def summaries(draws):
    """What is compared: every number, or the share of the first category."""
    return {
        name: (factor.values == 0) * 1.0 if factor.family.name == "Categorical" else factor.values
        for name, factor in draws.items()
    }


@pytest.mark.parametrize("declared", [regression, vectors, shares, components])
def test_the_law_is_that_of_interpreted_sweeps(declared):
    """Far apart along each chain, draws are nearly independent: two samples of one law."""
    fit = fitted(declared)
    options = {"chains": 40, "warmup": 40, "thin": 8, "verbose": False, "starts": "q"}
    quick = fit.draws(50, seed=1, **options)
    slow = fit.draws(20, seed=2, backend="numpy", **options)
    for name, own in summaries(quick).items():
        other = summaries(slow)[name]
        for place in np.ndindex(own.shape[2:]):
            a, b = own[(..., *place)].ravel(), other[(..., *place)].ravel()
            assert ks_2samp(a, b).pvalue > 1e-4, (name, place)
    for name, factor in quick.items():  # averages of conditionals
        for own, other in zip((factor.first, factor.second), (slow[name].first, slow[name].second), strict=True):
            if own.shape == factor.first.shape:
                a, b = own / factor.count, other / slow[name].count  # of each chain
                error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
                assert (np.abs(a.mean(0) - b.mean(0)) < 4.5 * error + 1e-9).all(), name


# -- bits --


@pytest.mark.parametrize("declared", [regression, components])
def test_calls_and_threads_do_not_show(declared):
    fit = fitted(declared)
    options = {"chains": 3, "warmup": 7, "thin": 3, "seed": 5, "verbose": False, "starts": "q"}
    whole = fit.draws(91, **options)
    with at_most(1):
        pieces = fit.draws(91, **options)
    seen = []
    looked = fit.draws(91, callbacks=[lambda progress: seen.append(progress.t)], **options)
    assert seen == list(range(1, 281))
    for name, factor in whole.items():
        for other in (pieces[name], looked[name]):
            np.testing.assert_array_equal(factor.values, other.values)
            np.testing.assert_array_equal(factor.first, other.first)
