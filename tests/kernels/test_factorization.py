"""Every kernel of the ratings equals its slow twin, for any number of threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ratings as naive

from natgrad.data.ratings import Ratings
from natgrad.models.factorization import sides as rating_sides
from natgrad.models.factorization.rows import Numbers, Sample, Scalars, Vectors
from natgrad.threads import at_most

pytestmark = pytest.mark.usefixtures("loops")

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)


class Problem:
    """Ratings with rows that have none, and moments of both sides."""

    def __init__(self, seed: int, size: int, vectors: bool = False) -> None:
        rng = np.random.default_rng(seed)
        n_users, n_items = (int(n) for n in rng.integers(1, 7, 2))
        n = int(rng.integers(1, n_users * n_items + 1))
        cells = rng.choice(n_users * n_items, n, replace=False)
        self.own, self.other = (side.astype(np.int32) for side in (cells // n_items, cells % n_items))
        self.values = rng.normal(3.0, 1.0, n)
        self.ratings = Ratings(self.own, self.other, self.values, shape=(n_users, n_items))
        self.side = (Vectors() if vectors else Scalars()).side(self.ratings.sorted_by_user)
        self.numbers = Numbers(*rng.uniform(0.2, 3.0, 2))
        self.rho = float(rng.choice([1.0, 0.3]))
        self.lam, self.mu = _random(rng, n_users, size, vectors)
        _, self.others = _random(rng, n_items, size, vectors)
        chosen = rng.integers(0, n, 2 * n)
        self.sample = Sample(self.own[chosen], self.other[chosen], self.values[chosen], rng.uniform(0, 5, 2 * n))


def _random(rng, n_rows, size, vectors):
    mean = rng.normal(size=(n_rows, size))
    if not vectors:
        precision = rng.uniform(0.5, 4.0, (n_rows, size))
        return (precision * mean, -0.5 * precision), (mean, mean**2 + 1 / precision)
    roots = rng.normal(size=(n_rows, size, size + 1))
    precision = roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(size)
    lam = ((precision @ mean[..., None])[..., 0], -0.5 * precision)
    return lam, (mean, np.linalg.inv(precision) + mean[:, :, None] * mean[:, None, :])


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@given(seeds, sizes)
@settings(max_examples=40)
def test_sweep_of_scalars(seed, size):
    p = Problem(seed, size)
    new = Scalars().sweep(p.side, p.lam, p.mu, p.others, p.numbers, p.rho, last=True)
    triples = (p.own, p.other, p.values)
    lam, mu = naive.naive_sweep(*triples, p.lam, p.mu[0], p.others, *p.numbers, p.rho)
    same(new.lam, lam)
    same(new.mu, mu)
    same([new.errors, Scalars().errors(p.side, mu, p.others)], [naive.naive_errors(*triples, mu, p.others)] * 2)


@given(seeds, sizes)
@settings(max_examples=40)
def test_sweep_of_scalars_with_joint_means(seed, size):
    p = Problem(seed, size)
    new = Scalars().sweep_jointly(p.side, p.mu, p.others, p.numbers, last=True)
    lam, mu = naive.naive_sweep_jointly(p.own, p.other, p.values, p.side.n_rows, p.others, *p.numbers)
    same(new.lam, lam)
    same(new.mu, mu)
    same([new.errors], [naive.naive_errors(p.own, p.other, p.values, mu, p.others)])


@given(seeds, sizes)
@settings(max_examples=40)
def test_targets_of_scalars(seed, size):
    p = Problem(seed, size)
    law, ones = Scalars(), np.ones(len(p.own))
    full = naive.naive_target(p.own, p.other, p.values, ones, p.mu[0], p.others, *p.numbers)
    same(law.full_target(p.side, p.mu, p.others, p.numbers, None), full)
    sampled = naive.naive_target(*p.sample, p.mu[0], p.others, *p.numbers)
    out = law.prior(p.side.n_rows, size, p.numbers.prior)
    law.add_sample(p.sample, p.mu, p.others, p.numbers, None, out)
    same(out, sampled)
    for column in range(size):
        here = (slice(None), [column])
        same(law.full_target(p.side, p.mu, p.others, p.numbers, column), [part[here] for part in full])
        out = law.prior(p.side.n_rows, 1, p.numbers.prior)
        law.add_sample(p.sample, p.mu, p.others, p.numbers, column, out)
        same(out, [part[here] for part in sampled])


@given(seeds, sizes, st.sampled_from([1, 2**20]), st.sampled_from([1, 2**20]))
@settings(max_examples=40)
def test_sweep_and_targets_of_vectors(seed, size, blocks, scratch):
    p = Problem(seed, size, vectors=True)
    law, triples, n_rows = Vectors(), (p.own, p.other, p.values), p.side.n_rows
    # The other side in blocks of one row or all at once, own rows in runs of one or all at once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rating_sides, "BLOCK", blocks)
        patch.setattr(rating_sides, "SCRATCH", scratch)
        check_vectors(p, law, triples, n_rows, size)


def check_vectors(p, law, triples, n_rows, size):
    new = law.sweep(p.side, p.lam, p.mu, p.others, p.numbers, p.rho, last=True)
    lam, mu = naive.naive_vector_sweep(*triples, p.lam, p.others, *p.numbers, p.rho)
    same(new.lam, lam)
    same(new.mu, mu)
    same([new.errors, law.errors(p.side, mu, p.others)], [naive.naive_vector_errors(*triples, mu, p.others)] * 2)
    full = naive.naive_vector_target(*triples, np.ones(len(p.own)), n_rows, p.others, *p.numbers)
    same(law.full_target(p.side, p.mu, p.others, p.numbers, None), full)
    out = law.prior(n_rows, size, p.numbers.prior)
    law.add_sample(p.sample, p.mu, p.others, p.numbers, None, out)
    same(out, naive.naive_vector_target(*p.sample, n_rows, p.others, *p.numbers))


def test_a_precision_that_is_not_definite_gives_nan_moments():
    p = Problem(0, 3, vectors=True)
    bad = (p.lam[0], np.ones_like(p.lam[1]) * 100.0)
    new = Vectors().sweep(p.side, bad, p.mu, p.others, p.numbers, 0.1, last=True)
    assert np.isnan(new.mu[1]).any()


@pytest.mark.parametrize("law", [Scalars(), Vectors()], ids=["scalars", "vectors"])
def test_threads_change_no_bit(law, rng):
    users, items = rng.integers(0, 300, 20_000), rng.integers(0, 200, 20_000)
    ratings = Ratings(users, items, rng.normal(3, 1, 20_000), shape=(300, 200), duplicates="keep")
    side, numbers = law.side(ratings.sorted_by_user), Numbers(1.0, 2.0)
    lam, mu = _random(rng, 300, 4, isinstance(law, Vectors))
    _, others = _random(rng, 200, 4, isinstance(law, Vectors))
    found = []
    for threads in (1, None):
        with at_most(threads):
            new = law.sweep(side, lam, mu, others, numbers, 1.0, last=True)
            joint = law.sweep_jointly(side, mu, others, numbers, last=True)
            full = law.full_target(side, mu, others, numbers, None)
            found.append([*new.lam, *new.mu, new.errors, *joint.lam, joint.errors, *full, law.errors(side, mu, others)])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
