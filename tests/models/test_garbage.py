"""Streams with garbage in them: each such batch is refused, and the model is bit by bit what it was."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.testing.files import bits_of
from natgrad.testing.inputs import GARBAGE, garbage


def counts(rng):
    return rng.poisson(0.5, (20, 12)).astype(float)


def values(rng):
    return rng.normal(size=(60, 2)) + 4.0 * np.repeat([[0.0], [1.0], [0.0]], 20, axis=0)


MODELS = {
    "LDA": (lambda: ng.LDA(3, n_jobs=1), counts, GARBAGE),
    "GaussianHMM": (
        lambda: ng.GaussianHMM(2, n_init=1, n_jobs=1), values, ("inf", "width", "empty", "text", "shape"),
    ),
    "MatrixFactorization": (lambda: ng.MatrixFactorization(2), values, ("inf", "width", "empty", "text", "shape")),
}  # fmt: skip


@pytest.mark.parametrize("name", ["LDA", *(pytest.param(n, marks=pytest.mark.slow) for n in list(MODELS)[1:])])
def test_garbage_is_refused_and_changes_nothing(name, rng):
    make, draw, kinds = MODELS[name]
    model = make().partial_fit(draw(rng))
    for how in kinds:
        before = bits_of(model)
        with pytest.raises((ValueError, TypeError)):
            model.partial_fit(garbage(draw(rng), rng, how))
        assert bits_of(model) == before, how
        assert bits_of(model.partial_fit(draw(rng))) != before
