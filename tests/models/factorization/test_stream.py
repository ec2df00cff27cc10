"""Ratings in chunks of whole users: the items that a fit in memory finds, from one chunk at a time."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors
from natgrad.models.factorization.stream import UsersProblem


class Chunks:
    """Users of a low-rank table, a few hundred at a time."""

    def __init__(self, n_chunks=8, users=150, rereadable=True, names=str):
        rng = np.random.default_rng(0)
        self.rereadable, self.items = rereadable, rng.normal(size=(40, 3))
        self.parts = []
        for number in range(n_chunks):
            table = 3.0 + rng.normal(size=(users, 3)) @ self.items.T + 0.3 * rng.normal(size=(users, 40))
            who, what = np.nonzero(rng.random(table.shape) < 0.5)
            ids = [names(number * users + n) for n in who]
            self.parts.append(ng.Ratings(ids, [f"item{j}" for j in what], table[who, what]))

    def chunks(self):
        return iter(self.parts)


def error(model, ratings):
    known = model.fold_in(ratings)
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return float(np.sqrt(np.mean((known.predict(users, items) - ratings.values) ** 2)))


def test_items_of_a_stream_are_as_good_as_those_in_memory():
    stream = Chunks()
    test = Chunks(n_chunks=9).parts[-1]
    settings = {"n_factors": 3, "max_steps": 60, "tol": 0.0}
    found = ng.MatrixFactorization(**settings).fit(stream)
    whole = ng.MatrixFactorization(**settings).fit(iter(stream.parts))
    assert found.n_steps_ >= 60
    assert found.ratings_.n_users == 150
    assert error(found, test) < 1.05 * error(whole, test)
    estimates = found.trace_["elbo_estimate"]
    assert estimates[-8:].mean() > estimates[8:16].mean()  # the last pass against the second: the first knows few users


def test_a_step_of_length_one_from_all_users_is_the_exact_update_of_the_items():
    ratings = ng.data.make_ratings(30, 12, 200).ratings
    full = FullRatingsProblem(ratings, 2, RatingPriors(learn_precision=False, learn_noise=False), offset=3.0)
    state = full.start(0)
    problem = UsersProblem(full, np.ones(3))
    told = problem.solve(state, None, None, 0.0, 1).messages["v"]
    exact = full.sweep(full.sweep(state, ("u",)).state, ("v",)).state.lam["v"]
    for message, prior, wanted in zip(told, problem.prior_of("v"), exact, strict=True):
        np.testing.assert_allclose(message + prior, wanted, rtol=1e-10, atol=1e-10)


def test_the_estimate_of_the_bound_from_all_users_is_the_bound():
    ratings = ng.data.make_ratings(30, 12, 200).ratings
    full = FullRatingsProblem(ratings, 2, RatingPriors(learn_precision=False), offset=3.0)
    state = full.sweep(full.start(0), ("u", "v", "noise", "u")).state
    problem = UsersProblem(full, np.ones(3))
    found = problem.solve(state, None, None, 0.0, 1)
    bound = found.rest + problem.global_bound(state.lam, state.mu, found.messages)
    assert bound == pytest.approx(full.bound(state), rel=1e-9)


def test_what_cannot_be_read_again_is_read_once():
    model = ng.MatrixFactorization(3).fit(Chunks(n_chunks=3, rereadable=False))
    assert model.n_steps_ == 3
    assert "read once" in str(model.stop_)
    assert model.item_factors_.mean.shape == (40, 3)


def test_a_refused_chunk_is_named():
    stream = Chunks(n_chunks=2)
    stream.parts.insert(1, np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match="chunk 1 of the stream: X of shape"):
        ng.MatrixFactorization(3).fit(stream)


def test_kinds_that_are_not_streamed_say_so():
    with pytest.raises(ValueError, match=r"method=VB.* a source of ratings is read by one step a chunk"):
        ng.MatrixFactorization(3, method=ng.VB()).fit(Chunks(n_chunks=2))
    with pytest.raises(ValueError, match="n_users=9 is the length of a source"):
        ng.MatrixFactorization(3).fit(Chunks(n_chunks=1).parts[0], n_users=9)
    with pytest.raises(ValueError, match=r'likelihood="gaussian" and one noise, got likelihood=.poisson.'):
        ng.MatrixFactorization(3, likelihood="poisson").fit(Chunks(n_chunks=1))
