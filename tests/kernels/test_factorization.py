"""Every kernel of the ratings equals its slow twin, for any number of threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ratings as naive

from natgrad.data.ratings import Ratings
from natgrad.models.factorization import sides as rating_sides
from natgrad.models.factorization.sides import SideRatings, add_sampled
from natgrad.threads import at_most

pytestmark = pytest.mark.usefixtures("loops")

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)


class Problem:
    """Ratings with rows that have none, and moments of both sides."""

    def __init__(self, seed: int, size: int) -> None:
        rng = np.random.default_rng(seed)
        n_users, n_items = (int(n) for n in rng.integers(1, 7, 2))
        n = int(rng.integers(1, n_users * n_items + 1))
        cells = rng.choice(n_users * n_items, n, replace=False)
        self.own, self.other = (side.astype(np.int32) for side in (cells // n_items, cells % n_items))
        self.values = rng.normal(3.0, 1.0, n)
        self.ratings = Ratings(self.own, self.other, self.values, shape=(n_users, n_items))
        self.side = SideRatings(self.ratings.sorted_by_user, biased=False)
        self.numbers = tuple(rng.uniform(0.2, 3.0, 2))  # α and τ
        self.rho = float(rng.choice([1.0, 0.3]))
        self.lam, self.mu = _random(rng, n_users, size)
        _, self.others = _random(rng, n_items, size)
        chosen = rng.integers(0, n, 2 * n)
        self.sample = self.own[chosen], self.other[chosen], self.values[chosen], rng.uniform(0, 5, 2 * n)


def sweep(side, lam, others, numbers, rho):
    prior, ones = np.full(lam[0].shape[1], numbers[0]), (np.ones(len(others[0])), np.ones(len(lam[0])))
    return side.sweep(others, *ones, prior, np.zeros((1, len(prior))), numbers[1], rho, lam)


def prior_of(n_rows, size, numbers):
    return np.zeros((n_rows, size)), np.tile(-0.5 * numbers[0] * np.eye(size), (n_rows, 1, 1))


def full_target(side, others, numbers):
    out = prior_of(side.n_rows, others[0].shape[1], numbers)
    side.add_targets(others, np.ones(len(others[0])), np.full(side.n_rows, numbers[1]), out)
    return out


def _random(rng, n_rows, size):
    mean = rng.normal(size=(n_rows, size))
    roots = rng.normal(size=(n_rows, size, size + 1))
    precision = roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(size)
    lam = ((precision @ mean[..., None])[..., 0], -0.5 * precision)
    return lam, (mean, np.linalg.inv(precision) + mean[:, :, None] * mean[:, None, :])


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@given(seeds, sizes, st.sampled_from([1, 2**20]), st.sampled_from([1, 2**20]))
@settings(max_examples=40)
def test_sweep_and_targets_of_vectors(seed, size, blocks, scratch):
    p = Problem(seed, size)
    # The other side in blocks of one row or all at once, own rows in runs of one or all at once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rating_sides, "BLOCK", blocks)
        patch.setattr(rating_sides, "SCRATCH", scratch)
        check_vectors(p, size)


def check_vectors(p, size):
    triples, n_rows = (p.own, p.other, p.values), p.side.n_rows
    new = sweep(p.side, p.lam, p.others, p.numbers, p.rho)
    lam, mu = naive.naive_vector_sweep(*triples, p.lam, p.others, *p.numbers, p.rho)
    same(new.lam, lam)
    same(new.mu, mu)
    errors = p.side.errors(mu, p.others, np.ones(len(p.others[0])))
    same([new.errors, errors], [naive.naive_vector_errors(*triples, mu, p.others)] * 2)
    full = naive.naive_vector_target(*triples, np.ones(len(p.own)), n_rows, p.others, *p.numbers)
    same(full_target(p.side, p.others, p.numbers), full)
    out = prior_of(n_rows, size, p.numbers)
    add_sampled(*p.sample[:3], p.numbers[1] * p.sample[3], p.others, False, out)
    same(out, naive.naive_vector_target(*p.sample, n_rows, p.others, *p.numbers))


def test_a_precision_that_is_not_definite_gives_nan_moments():
    p = Problem(0, 3)
    new = sweep(p.side, (p.lam[0], np.ones_like(p.lam[1]) * 100.0), p.others, p.numbers, 0.1)
    assert np.isnan(new.mu[1]).any()


def test_threads_change_no_bit(rng):
    users, items = rng.integers(0, 300, 20_000), rng.integers(0, 200, 20_000)
    ratings = Ratings(users, items, rng.normal(3, 1, 20_000), shape=(300, 200), duplicates="keep")
    side, numbers = SideRatings(ratings.sorted_by_user, biased=False), (1.0, 2.0)
    lam, mu = _random(rng, 300, 4)
    _, others = _random(rng, 200, 4)
    found = []
    for threads in (1, None):
        with at_most(threads):
            new = sweep(side, lam, others, numbers, 1.0)
            errors = side.errors(mu, others, np.ones(200))
            found.append([*new.lam, *new.mu, new.errors, *full_target(side, others, numbers), errors])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
