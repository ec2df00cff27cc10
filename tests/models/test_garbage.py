"""Numbers that nothing can be computed with, and settings that are none: refused with their place or their name."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.models import hmm


@pytest.mark.parametrize("unit", [1e-300, 1e300, 1e40])
def test_counts_beyond_what_can_be_multiplied_are_refused(unit):
    counts = np.random.default_rng(0).poisson(1.0, (8, 5)) * unit
    with pytest.raises(ValueError, match=r"X\[\d, \d\] = .* count in another unit"):
        ng.LDA(2, inference="vb", max_passes=1, verbose=False).fit(counts)


def test_categories_that_are_no_numbers_of_categories():
    codes = np.random.default_rng(0).integers(0, 4, 40)
    model = ng.CategoricalHMM(2, max_passes=1, n_init=1, verbose=False)
    with pytest.raises(ValueError, match=r"X\[\d+, 0\] = 3e\+15.*np\.unique"):
        model.fit(codes * 10**15)
    with pytest.raises(ValueError, match=r"X\[3, 0\] = inf must be a category"):
        model.fit(np.where(np.arange(40) == 3, np.inf, codes))
    with pytest.raises(ValueError, match=r"emission_prior = 1e-300 must be ≥ 1e-08"):
        ng.CategoricalHMM(2, categories=hmm.Categorical(emission_prior=1e-300)).fit(codes)
    with pytest.raises(TypeError, match="emission_prior must hold numbers, got 'x'"):
        ng.CategoricalHMM(2, categories=hmm.Categorical(emission_prior="x")).fit(codes)
    with pytest.raises(TypeError, match=r"Transitions: prior must hold numbers ≥ 0, got \{\}"):
        ng.CategoricalHMM(2, transitions=hmm.Transitions({})).fit(codes)


@pytest.mark.parametrize("n_jobs", [0, -1, 1.5, "x", True])
@pytest.mark.parametrize("model", [ng.LDA, ng.MatrixFactorization, ng.GaussianHMM, ng.GaussianMixture])
def test_numbers_of_threads(model, n_jobs):
    with pytest.raises((TypeError, ValueError), match="n_jobs must be a whole number ≥ 1"):
        model(2, n_jobs=n_jobs).fit(np.random.default_rng(0).poisson(1.0, (8, 5)))


# -- flags and words --

SERIES = np.random.default_rng(1).normal(size=(20, 2))
LABELS = SERIES[:, 0] > 0
FITTED = {
    "LDA": (lambda **more: ng.LDA(2, **more), (np.ones((4, 3), int),)),
    "MatrixFactorization": (lambda **more: ng.MatrixFactorization(2, **more), (SERIES,)),
    "GaussianHMM": (lambda **more: ng.GaussianHMM(2, **more), (SERIES,)),
    "GaussianMixture": (lambda **more: ng.GaussianMixture(2, **more), (SERIES,)),
    "PoissonHMM": (lambda **more: ng.PoissonHMM(2, **more), (LABELS[:, None] * 1,)),
    "SparseGPRegressor": (lambda **more: ng.SparseGPRegressor(n_inducing=4, **more), (SERIES, SERIES[:, 0])),
    "SparseGPClassifier": (lambda **more: ng.SparseGPClassifier(n_inducing=4, **more), (SERIES, LABELS)),
}


def choices(model):
    """The settings that are true or false, or one of a few words, as the tables of files have them."""
    rules = {name: rule for name, rule in model._settings_table().items() if isinstance(rule, str)}
    return {
        name: rule
        for name, rule in rules.items()
        if all(part in ("flag", "none") or part.startswith("'") for part in rule.split(" | "))
    }


@pytest.mark.parametrize("name", FITTED)
def test_what_is_chosen_from_a_few_is_checked_by_fit(name):
    """Python takes "False", "no" and 2 for true."""
    make, data = FITTED[name]
    found = choices(make())
    assert found, name
    for setting, rule in found.items():
        for wrong in ("False", "no", 2, 0.0, [True]):
            with pytest.raises(ValueError, match=f"^{setting} must be .* or .*, got ") as said:
                make(**{setting: wrong}).fit(*data)
            assert ("True, False" in str(said.value) or "True or False" in str(said.value)) == ("flag" in rule)
    assert {"learn_kernel", "verbose", "covariance"} & set(found)


# -- units that nothing can be computed in --

NOISE = np.random.default_rng(2).normal(size=(20, 2))
WIDE = {
    "ratings": (lambda X: ng.MatrixFactorization(2, verbose=False).fit(X), "values"),
    "full": (lambda X: ng.GaussianHMM(2, verbose=False).fit(X), "X"),
    "diag": (lambda X: ng.GaussianHMM(2, covariance="diag", verbose=False).fit(X), "X"),
    "inputs": (lambda X: ng.SparseGPRegressor(n_inducing=4, verbose=False).fit(X, NOISE[:, 0]), "X"),
    "outputs": (lambda X: ng.SparseGPRegressor(n_inducing=4, verbose=False).fit(NOISE, X[:, 0]), "y"),
    "classes": (lambda X: ng.SparseGPClassifier(n_inducing=4, verbose=False).fit(X, NOISE[:, 0] > 0), "X"),
}


@pytest.mark.parametrize("name", WIDE)
def test_numbers_whose_squares_overflow_or_vanish_are_refused_with_their_place(name):
    """They ended in overflows of NumPy, divisions by zero, and "no path of states is possible"."""
    fit, what = WIDE[name]
    single = NOISE.copy()
    single[3, 0] = 1e300
    place = {"values": 6, "y": 3}.get(what, "3, 0")
    with pytest.raises(
        ValueError, match=rf"^{what}\[{place}\] = 1e\+300, .*up to 1e\+100: .* give {what} in another unit"
    ):
        fit(single)
    for X in (NOISE * 1e300, NOISE + 1e300):
        with pytest.raises(ValueError, match=rf"^{what}\[0.*up to 1e\+100"):
            fit(X)
    with pytest.raises(ValueError, match=rf"^{what}\[\d+.* all squares vanish; give {what} in another unit"):
        fit(NOISE * 1e-300)


@pytest.mark.parametrize("unit", [1e20, 1e300])
def test_more_counts_than_can_be_told_apart_are_refused(unit):
    counts = np.random.default_rng(0).poisson(3.0, (8, 5)) * unit
    with pytest.raises(ValueError, match=r"^values\[\d+\] = .*counts may be up to 1e\+15; count in another unit"):
        ng.MatrixFactorization(2, likelihood="poisson", verbose=False).fit(counts)
    with pytest.raises(ValueError, match=r"^X\[\d, \d\] = .*counts may be up to 1e\+15"):
        ng.PoissonHMM(2, verbose=False).fit(counts)
