"""Ready models with random settings and odd data against the networks that declare them, and against enumeration.

A factorisation's bound is a function of its posterior alone: the network's must be the same number there. Chains are summed over
all paths. Topics are compared sweep by sweep. What a model is given in another form, it must find to be the same.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.special as sp
import scipy.stats

import natgrad as ng
from natgrad import covariance as cov
from natgrad.data.corpus import as_corpus
from natgrad.data.sequences import Sequences, as_ends
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import State
from natgrad.models import hmm
from natgrad.models.gp import Solver
from natgrad.models.hmm.problem import SequenceProblem
from natgrad.models.lda.problem import LDAProblem, Local


def few_or_many(few: int, many: int) -> list:
    """Seeds: a few on every run, the others among the slow tests."""
    return [pytest.param(seed, marks=[] if seed < few else [pytest.mark.slow]) for seed in range(many)]


# -- factorisation --


def drawn_ratings(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Pairs with numbers; the last user and the last item have none, and some others may have none either."""
    n_users, n_items = (int(n) for n in rng.integers(3, 9, 2))
    cells = rng.choice(
        (n_users - 1) * (n_items - 1), int(rng.integers(4, (n_users - 1) * (n_items - 1) + 1)), replace=False
    )
    values = (rng.normal(size=len(cells)) + rng.choice([0.0, 1e6])) * 10.0 ** rng.integers(-6, 7)
    return cells // (n_items - 1), cells % (n_items - 1), values, (n_users, n_items)


def declared_ratings(model: ng.MatrixFactorization, ratings: ng.Ratings) -> ng.Network:
    """u·v + b + c as the inner product of (u, b, 1) and (v, 1, c), with the priors that the model chose."""
    priors, n_factors = model._kind.priors, model._kind.n_factors
    user, item = ng.Plate("user", ratings.n_users), ng.Plate("item", ratings.n_items)
    rating, size = ng.Plate("rating", len(ratings)), n_factors + priors.biases
    factor, rows = ng.Plate("factor", size), []
    for name, plate in (("u", user), ("v", item)):
        precision = np.diag(priors.precisions(n_factors))
        if priors.learn_precision:
            rates = priors.rate * np.array([priors.unit] * n_factors + [priors.unit**2] * priors.biases)
            precision = ng.diag(ng.Gamma(f"{plate.name}_precision", priors.shape, rates, plate=factor))
        rows.append(ng.MultivariateNormal(name, np.zeros(size), precision, plate=plate))
    noise = ng.Gamma("noise", priors.shape, priors.rate * priors.unit**2) if priors.learn_noise else priors.noise
    for plate, freedom, index in ((user, priors.user_noise, ratings.users), (item, priors.item_noise, ratings.items)):
        if freedom is not None:
            noise = noise * ng.Gamma(f"{plate.name}_noise", freedom / 2, freedom / 2, plate=plate)[index]
    left, right = rows[0][ratings.users], rows[1][ratings.items]
    if priors.biases:
        left, right = _with_one(left, size, size), _with_one(right, size, size - 1)
    return ng.Network(ng.Normal("r", ng.dot(left, right), noise, plate=rating, observed=ratings.values - model.offset_))


def _with_one(row: object, size: int, place: int) -> object:
    matrix, one = np.eye(size + 1), np.zeros(size + 1)
    one[place] = 1.0
    return np.delete(matrix, place, axis=1) @ row + one


# Of seed 11 the precision matrices have a condition of 10¹¹: A(λ) − ⟨λ, μ⟩ was off by 10⁵ nats.
@pytest.mark.parametrize("seed", [11, *few_or_many(1, 25)])
def test_a_factorisation_has_the_bound_of_its_network(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    users, items, values, shape = drawn_ratings(rng)
    known = bool(rng.integers(2))
    settings = {
        "n_factors": int(rng.integers(1, 5)),  # also more than there are users
        # In the unit of the ratings: where the noise is far below it, a precision matrix has fewer digits than the bound needs.
        "noise": 2.0 / values.var() if known else [None, "user", "item", "both"][rng.integers(4)],
        "priors": ng.recommenders.FactorPriors(biases=bool(rng.integers(2))),
    }
    ratings = ng.Ratings(users, items, values, shape=shape)
    model = ng.MatrixFactorization(**settings, max_steps=int(rng.integers(1, 40)), seed=seed).fit(ratings)
    problem = declared_ratings(model, ratings).problem
    lam = model.result_.state.lam
    assert set(lam) == set(problem.blocks)
    state = State(lam, {name: problem.moments(problem.blocks[name], part) for name, part in lam.items()}, 0)
    scale = len(values) * (1.0 + abs(np.log(values.std())))
    # Few ratings can be met exactly: then the learned noise vanishes, and log|Λ| has as many digits as the condition of Λ leaves.
    condition = max(float(np.linalg.cond(lam[name][1]).max()) for name in "uv")
    tolerance = 1e-9 * scale + 16 * condition * 2.0**-53 * sum(shape)
    # A network has E[(r − u·v)²] as a sum of expected squares: without a mean of its own it rounds as they do.
    noise = model.posterior_["noise"].mean() if not known else model._kind.priors.noise
    tolerance += 8 * 2.0**-53 * float(noise * np.sum((values - model.offset_) ** 2))
    assert problem.bound(state) == pytest.approx(model.elbo_, rel=1e-9, abs=tolerance), settings


@pytest.mark.parametrize("seed", few_or_many(4, 25))
def test_the_order_of_users_items_and_ratings_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    users, items, values, shape = drawn_ratings(rng)
    ratings = ng.Ratings(users, items, values, shape=shape)
    model = ng.MatrixFactorization(3, noise="user", max_steps=5).fit(ratings)
    problem, state = model._kind._problem(ratings), model.result_.state
    rows, columns, order = (rng.permutation(n) for n in (*shape, len(values)))
    moved = ng.Ratings(np.argsort(rows)[users][order], np.argsort(columns)[items][order], values[order], shape=shape)
    by = {"u": rows, "user_noise": rows, "v": columns}
    lam = {name: tuple(p[by[name]] for p in part) if name in by else part for name, part in state.lam.items()}
    other = model._kind._problem(moved)
    mu = {name: other.moments(other.blocks[name], part) for name, part in lam.items()}
    one, two = problem.sweep(state, problem.order), other.sweep(State(lam, mu, state.t), other.order)
    assert two.bound == pytest.approx(one.bound, rel=1e-9)


# -- chains --


def drawn_chain(kind: str, rng: np.random.Generator) -> tuple[object, np.ndarray, list[int]]:
    """A model with random settings, and two short sequences with something missing."""
    lengths = [int(n) for n in rng.integers(1, 5, 2)]
    n, n_columns, n_states = sum(lengths), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    chain = {
        "transitions": hmm.Transitions(initial=float(rng.gamma(1.0) + 0.1), sticky=float(rng.integers(3))),
        "n_init": 1,
        "max_passes": 3,
    }
    missing = rng.random((n, n_columns)) < 0.2
    if kind in ("full", "diag", "tied", "spherical"):
        X = (rng.normal(size=(n, n_columns)) + rng.choice([0.0, 1e6])) * 10.0 ** rng.integers(-6, 7)
        X[missing.any(1) if kind in ("full", "tied") else missing] = np.nan
        if np.isnan(X).all():
            X[:] = rng.normal(size=X.shape)
        return (
            ng.GaussianHMM(n_states, covariance=hmm.Gaussian(kind, mean_scale=float(rng.gamma(1.0) + 0.01)), **chain),
            X,
            lengths,
        )
    if kind == "poisson":
        X = np.where(missing, np.nan, rng.poisson(3.0, (n, n_columns)) * 1.0)
        return ng.PoissonHMM(n_states, rate_prior=(1.5, 0.5), **chain), X, lengths
    if kind == "bernoulli":
        X = np.where(missing, np.nan, rng.integers(0, 2, (n, n_columns)) * 1.0)
        return ng.BernoulliHMM(n_states, track_prior=(0.7, 2.0), **chain), X, lengths
    X = np.where(missing[:, :1], np.nan, rng.integers(0, 4, (n, 1)) * 1.0)
    return ng.CategoricalHMM(n_states, categories=hmm.Categorical(4, emission_prior=0.6), **chain), X, lengths


def expected_density(kind: str, factor: object, y: np.ndarray) -> np.ndarray:
    """E log p(y | k) of one row for every state, entry by entry; what is missing says nothing."""
    usual = factor.parameters
    if kind == "tied":  # one precision for the means of all states
        usual = {"mean": usual["mean"][0], "scale": usual["scale"][0]} | {
            name: np.repeat(usual[name][:1], len(usual["mean"][0]), axis=0) for name in ("dof", "rate")
        }
    if kind == "spherical":  # and for those of all columns
        usual = {"mean": usual["mean"][..., 0], "scale": usual["scale"]} | {
            "shape": 0.5 * np.repeat(usual["dof"][:, None], len(y), axis=1),
            "rate": 0.5 * np.repeat(usual["rate"][:, :, 0], len(y), axis=1),
        }
    total = np.zeros(len(usual["mean"] if kind in ("tied", "spherical") else factor.lam[0]))
    if kind in ("full", "tied"):
        if np.isnan(y).any():
            return total
        for k in range(len(total)):
            dof, d = usual["dof"][k], len(y)
            precision = dof * np.linalg.inv(usual["rate"][k])
            log = sp.psi(0.5 * (dof - np.arange(d))).sum() + d * np.log(2) - np.linalg.slogdet(usual["rate"][k])[1]
            away = y - usual["mean"][k]
            total[k] = 0.5 * (log - d * np.log(2 * np.pi) - away @ precision @ away - d / usual["scale"][k])
        return total
    for d, value in enumerate(y):
        if np.isnan(value):
            continue
        if kind in ("diag", "spherical"):
            shape, rate = usual["shape"][:, d], usual["rate"][:, d]
            away = shape / rate * (value - usual["mean"][:, d]) ** 2 + 1 / usual["scale"][:, d]
            total += 0.5 * (sp.psi(shape) - np.log(rate) - np.log(2 * np.pi) - away)
        elif kind == "poisson":
            shape, rate = usual["shape"][:, d], usual["rate"][:, d]
            total += value * (sp.psi(shape) - np.log(rate)) - shape / rate - sp.gammaln(value + 1)
        elif kind == "bernoulli":
            a, b = usual["a"][:, d], usual["b"][:, d]
            total += value * sp.psi(a) + (1 - value) * sp.psi(b) - sp.psi(a + b)
        else:
            alpha = usual["concentration"]
            total += sp.psi(alpha[:, int(value)]) - sp.psi(alpha.sum(1))
    return total


@pytest.mark.parametrize("kind", ["full", "diag", "tied", "spherical", "poisson", "bernoulli", "categorical"])
@pytest.mark.parametrize("seed", few_or_many(6, 100))
@pytest.mark.filterwarnings("ignore:X.* does not vary")
def test_a_chain_has_the_bound_that_all_paths_add_up_to(kind: str, seed: int) -> None:
    model, X, lengths = drawn_chain(kind, np.random.default_rng([seed, 3]))
    model.fit(X, lengths=lengths)
    emission, blocks = model._model_.emission, model.posterior_
    seen = emission.observe(X)
    data = Sequences(seen.codes, seen.values, as_ends(lengths, len(X)), seen.patterns, base=seen.base)
    problem = SequenceProblem(data, model._model_)
    log_pi, log_a = (
        sp.psi(f.parameters["concentration"]) - sp.psi(f.parameters["concentration"].sum(-1, keepdims=True))
        for f in (blocks["initial"], blocks["transition"])
    )
    densities = np.array([expected_density(kind, blocks["emission"], row) for row in X])
    wanted, begin = 0.0, 0
    for length in lengths:
        here = densities[begin : begin + length]
        paths = np.array(list(itertools.product(range(model.n_states), repeat=length)))
        logs = log_pi[paths[:, 0]] + here[np.arange(length), paths].sum(1) + log_a[paths[:, :-1], paths[:, 1:]].sum(1)
        wanted += float(sp.logsumexp(logs))
        begin += length
    for name in blocks:
        prior = tuple(
            np.broadcast_to(p, g.shape) for p, g in zip(problem.full_prior(name), blocks[name].lam, strict=True)
        )
        wanted -= float(np.sum(blocks[name].family.kl(blocks[name].lam, prior)))
    assert problem.bound(model._state) == pytest.approx(wanted, rel=1e-8, abs=1e-7)


# -- topics --


@pytest.mark.parametrize("seed", few_or_many(2, 15))
def test_topics_are_those_of_the_network_sweep_by_sweep(seed: int) -> None:
    rng = np.random.default_rng([seed, 4])
    n_docs, n_words, n_topics = int(rng.integers(1, 12)), int(rng.integers(2, 15)), int(rng.integers(2, 7))
    X = rng.poisson(rng.gamma(0.5, size=(n_docs, n_words)))
    X[rng.random(n_docs) < 0.2] = 0  # empty documents, and below a word that never occurs
    X[:, -1], X[0, 0] = 0, max(1, X[0, 0])
    alpha, beta = float(rng.gamma(1.0) + 0.05), float(rng.gamma(1.0) + 0.05)
    if seed % 2:
        X = X * rng.gamma(2.0, 0.5, X.shape)  # weights other than counts
    document, word = np.nonzero(X)
    doc, topic = ng.Plate("doc", n_docs), ng.Plate("topic", n_topics)
    cell = ng.Plate("cell", len(word), weight=X[document, word].astype(float))
    theta = ng.Dirichlet("theta", alpha, size=n_topics, plate=doc)
    phi = ng.Dirichlet("phi", beta, size=n_words, plate=topic)
    z = ng.Categorical("z", theta[document], plate=cell)
    network = ng.Network(ng.Categorical("w", phi[z], plate=cell, observed=word))
    shares, start = rng.dirichlet(np.ones(n_topics), n_docs), rng.dirichlet(np.ones(n_words), n_topics)
    init = {"theta": shares, "phi": start}
    wanted = network.fit(ng.VB(), max_steps=8, tol=0, init=init, order=("z", "phi", "theta"))
    ours = LDAProblem(as_corpus(X), np.full(n_topics, alpha), beta, Local(tol=0.0, limit=1), shares=shares)
    first = ours.start(0)._replace(mu={"phi": (np.asfortranarray(np.log(start)),)})
    found = run(Phase(ours, ng.VB(), ng.Constant(1.0), ("phi",)), first, limits=Limits(8, 0.0), seed=0)
    np.testing.assert_allclose(found.trace["elbo"], wanted.trace["elbo"], rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(found.state.lam["phi"][0], np.asarray(wanted.state.lam["phi"][0]), rtol=1e-7, atol=1e-8)


# -- Gaussian processes --


@pytest.mark.parametrize("seed", few_or_many(2, 15))
def test_a_process_with_all_rows_as_inducing_inputs_is_the_exact_one(seed: int) -> None:
    """Its bound is the evidence, and so is that of the network that declares it; rows may be there twice."""
    rng = np.random.default_rng([seed, 5])
    n, n_columns = int(rng.integers(3, 9)), int(rng.integers(1, 3))
    X = rng.normal(size=(n, n_columns))
    kernel = [cov.RBF, cov.Matern32, cov.Matern52][rng.integers(3)](
        variance=float(rng.gamma(2.0) + 0.1), lengthscale=float(rng.gamma(2.0) + 0.3)
    )
    noise, twice = float(rng.gamma(1.0) + 0.1), rng.integers(0, n, int(rng.integers(3)))
    rows = np.concatenate([np.arange(n), twice])
    y = rng.multivariate_normal(np.zeros(n), kernel(X) + 1e-9 * np.eye(n))[rows] + np.sqrt(noise) * rng.normal(
        size=len(rows)
    )
    model = ng.SparseGPRegressor(
        kernel, inducing=X, n_inducing=n, noise_variance=noise, fixed=["kernel", "inducing", "noise"], max_steps=3,
        solver=Solver(standardize=False, batch_size=len(rows), jitter=0.0), verbose=False,
    ).fit(X[rows], y)  # fmt: skip
    covariance = kernel(X)[np.ix_(rows, rows)] + noise * np.eye(len(rows))
    # The model takes the mean of the outputs for that of the process.
    away = y - model._offset[0]
    wanted = float(scipy.stats.multivariate_normal(np.zeros(len(rows)), covariance).logpdf(away))
    assert model.elbo_ == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    f = ng.GaussianProcess("f", kernel, inducing=X)
    network = ng.Network(ng.Normal("y", f(X[rows]), 1.0 / noise, plate=ng.Plate("row", len(rows)), observed=away))
    assert network.fit(ng.VB()).elbo == pytest.approx(wanted, rel=1e-5, abs=1e-4)
    mean = model.predict(X)
    gain = kernel(X)[:, rows] @ np.linalg.inv(covariance)
    np.testing.assert_allclose(mean, model._offset[0] + gain @ away, rtol=1e-5, atol=1e-6)


# -- the same data in other forms --

COUNTS = np.random.default_rng(6).poisson(1.0, (12, 9))


SPARSE = {
    "csr": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_array,
    "explicit zeros": lambda X: scipy.sparse.csr_array(
        (X.ravel(), np.tile(np.arange(X.shape[1]), len(X)), np.arange(len(X) + 1) * X.shape[1]), shape=X.shape
    ),
}
ESTIMATORS = {
    "lda": lambda: ng.LDA(3, inference="vb", max_passes=3, seed=0),
    "gaussian": lambda: ng.GaussianHMM(3, n_init=2, max_passes=5),
    "diagonal": lambda: ng.GaussianHMM(3, covariance="diag", n_init=2, max_passes=5),
    "poisson": lambda: ng.PoissonHMM(3, n_init=2, max_passes=5),
    "ratings": lambda: ng.MatrixFactorization(3, max_steps=5),
    "counts": lambda: ng.MatrixFactorization(3, likelihood="poisson", max_steps=5),
}


def bound(name: str, X: object) -> float:
    model = ESTIMATORS[name]().fit(X)
    return float(model.elbo_)


@pytest.mark.parametrize("name", ["lda", "counts"])
def test_zeros_that_are_stored_are_zeros(name: str) -> None:
    wanted = bound(name, COUNTS.astype(np.float64))
    for form, change in SPARSE.items():
        assert bound(name, change(COUNTS)) == pytest.approx(wanted, rel=1e-9), form


def test_counts_of_a_word_that_are_stored_in_parts_are_added_and_ratings_are_asked_about() -> None:
    half = COUNTS.ravel() // 2
    parts = np.concatenate([half, COUNTS.ravel() - half])
    X = scipy.sparse.coo_array((parts, np.tile(np.indices(COUNTS.shape).reshape(2, -1), 2)), shape=COUNTS.shape)
    assert bound("lda", X) == pytest.approx(bound("lda", COUNTS), rel=1e-9)
    with pytest.raises(ValueError, match="user 0 rates item 0 twice"):
        bound("counts", X)
