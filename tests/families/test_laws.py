"""The theorems every family obeys. A new family is one more line in `CASES`."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import scipy.special as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad import families as nf
from natgrad._jax import compiled

Rng = np.random.Generator


def _spd(rng: Rng, *shape: int) -> np.ndarray:
    size = shape[-1]
    root = rng.normal(size=(*shape, size + 2))
    return root @ np.swapaxes(root, -1, -2) + 0.2 * np.eye(size)


def _positive(rng: Rng, *shape: int) -> np.ndarray:
    return np.exp(rng.normal(size=shape))


class Case(NamedTuple):
    """A family and random usual parameters with the given plates; `size` is K where values are categories."""

    family: nf.Family
    usual: Callable[[Rng, tuple[int, ...]], dict[str, np.ndarray]]
    size: int | None = None

    def lam(self, rng: Rng, plates: tuple[int, ...] = (2,)) -> nf.Stats:
        return self.family.natural(**self.usual(rng, plates))


def _chain(rng: Rng, p: tuple[int, ...]) -> dict[str, np.ndarray]:
    shapes = {"potentials": (5, 3), "log_initial": (3,), "log_transition": (3, 3)}
    return {k: 2 * rng.normal(size=(*p, *s)) for k, s in shapes.items()}


def _path(rng: Rng, p: tuple[int, ...]) -> dict[str, np.ndarray]:
    """λ of a path of three numbers (tests/families/test_gaussian_chain.py has vectors): P = L Lᵀ with L bidiagonal."""
    own, back = _spd(rng, *p, 3, 1), rng.normal(size=(*p, 3, 1, 1))
    diagonal = own @ np.swapaxes(own, -1, -2) + back @ np.swapaxes(back, -1, -2)
    beside = back[..., 1:, :, :] @ np.swapaxes(own, -1, -2)[..., :-1, :, :]
    beside = np.concatenate([np.zeros_like(beside[..., :1, :, :]), beside], axis=-3)
    return {"h": rng.normal(size=(*p, 3, 1)), "J": -0.5 * diagonal, "C": -beside}


def _bounds(p: tuple[int, ...], sides: tuple[float, ...]) -> dict[str, np.ndarray]:
    return {"lower": np.full(p, 0.3), "upper": np.full(p, 1.1), "sides": np.resize(sides, p)}


def _truncated(rng: Rng, p: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"mean": rng.normal(size=p), "precision": _positive(rng, *p)} | _bounds(p, (1.0, 3.0, 2.0, 0.0))


def _gaussian_gamma(rng: Rng, p: tuple[int, ...]) -> dict[str, np.ndarray]:
    """With a rate that leaves τ a law: what is left of it after the best x is positive."""
    linear, scaled = rng.normal(size=(*p, 2)), _spd(rng, *p, 2)
    best = 0.5 * (linear * np.linalg.solve(scaled, linear[..., None])[..., 0]).sum(-1)
    return {
        "linear": rng.normal(size=(*p, 2)),
        "precision": _spd(rng, *p, 2),
        "scaled_linear": linear,
        "scaled_precision": scaled,
        "rate": best + _positive(rng, *p),
        "shape": 1.5 + _positive(rng, *p),
    }


def _sticks(rng: Rng, p: tuple[int, ...]) -> dict[str, np.ndarray]:
    free = np.arange(4) < 3  # the last stick is taken whole
    return {name: np.where(free, 0.2 + _positive(rng, *p, 4), 1.0) for name in ("a", "b")}


CASES = [
    Case(nf.Normal(), lambda r, p: {"mean": r.normal(size=p), "precision": _positive(r, *p)}),
    Case(nf.MultivariateNormal(), lambda r, p: {"mean": r.normal(size=(*p, 3)), "precision": _spd(r, *p, 3)}),
    Case(nf.Gamma(), lambda r, p: {"shape": _positive(r, *p), "rate": _positive(r, *p)}),
    Case(nf.Wishart(), lambda r, p: {"dof": 2 + _positive(r, *p), "rate": _spd(r, *p, 3)}),
    Case(nf.Dirichlet(), lambda r, p: {"concentration": _positive(r, *p, 4)}),
    Case(nf.Beta(), lambda r, p: {"a": _positive(r, *p), "b": _positive(r, *p)}),
    Case(nf.Categorical(), lambda r, p: {"probs": r.dirichlet(np.ones(4), p)}, 4),
    Case(nf.Bernoulli(), lambda r, p: {"prob": r.uniform(0.01, 0.99, p)}),
    Case(nf.Binary(), lambda r, p: {"prob": r.uniform(0.01, 0.99, p)}),
    Case(nf.Poisson(), lambda r, p: {"rate": 3 * _positive(r, *p)}),
    Case(
        nf.NormalGamma(),
        lambda r, p: {"mean": r.normal(size=p)} | {k: _positive(r, *p) for k in ("scale", "shape", "rate")},
    ),
    Case(
        nf.NormalWishart(),
        lambda r, p: {
            "mean": r.normal(size=(*p, 2)),
            "scale": _positive(r, *p),
            "dof": 1 + _positive(r, *p),
            "rate": _spd(r, *p, 2),
        },
    ),
    Case(
        nf.TiedNormalWishart(),
        lambda r, p: {
            "mean": r.normal(size=(*p, 3, 2)),
            "scale": _positive(r, *p, 3),
            "dof": 1 + _positive(r, *p),
            "rate": _spd(r, *p, 2),
        },
    ),
    Case(
        nf.MatrixNormalWishart(),
        lambda r, p: {
            "mean": r.normal(size=(*p, 3, 2)),
            "scale": _spd(r, *p, 3),
            "dof": 1 + _positive(r, *p),
            "rate": _spd(r, *p, 2),
        },
    ),
    Case(nf.GaussianGamma(), _gaussian_gamma),
    Case(nf.PolyaGamma(), lambda r, p: {"trials": np.full(p, 1.5), "tilt": 0.3 * _positive(r, *p) ** 2}),
    Case(nf.LaplaceWeight(), lambda r, p: {"distance": _positive(r, *p)}),
    Case(nf.LogGamma(), lambda r, p: {"shape": _positive(r, *p)}),
    Case(
        nf.GammaShape(),
        lambda r, p: {"shape": 1 + _positive(r, *p), "rate": r.normal(size=p), "count": np.full(p, 3.0)},
    ),
    Case(
        nf.HalfNormalPrecision(),
        lambda r, p: {"power": r.normal(size=p)} | {k: _positive(r, *p) for k in ("rate", "inverse_rate")},
    ),
    Case(nf.TruncatedNormal(), _truncated),
    Case(nf.TruncatedExponential(), lambda r, p: {"rate": _positive(r, *p)} | _bounds(p, (1.0, 3.0))),
    Case(nf.Shares(), lambda r, p: {"probs": r.dirichlet(np.ones(4), p), "count": np.full(p, 7.0)}),
    Case(nf.Sticks(), _sticks),
    Case(nf.MarkovChain(), _chain, 3),
    Case(nf.MarkovChain((2, 3)), _chain, 3),
    Case(nf.GaussianChain((1, 2)), _path),
]


def repr_of(case: Case) -> str:
    return repr(case.family)


def _is_auxiliary(family: nf.Family) -> bool:
    """Whether its second derivatives are seldom asked for, and long to compile."""
    return bool(family.settings) or isinstance(family, nf.LaplaceWeight | nf.Sticks)


every_family = pytest.mark.parametrize("case", CASES, ids=repr_of)
# The usual parameters of a chain are its marginals, which do not determine λ in closed form.
INVERTIBLE = [case for case in CASES if not isinstance(case.family, nf.MarkovChain | nf.GaussianChain)]


PLATES = (4,)


def seeds(test: Callable[..., None]) -> Callable[..., None]:
    """Random seeds for random λ: ten, of PLATES elements each, for each of the families."""
    return settings(max_examples=10)(given(seed=st.integers(0, 2**32 - 1))(test))


def _close(a: nf.Stats, b: nf.Stats, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=atol)


@every_family
@seeds
def test_gradient_of_log_normalizer_is_the_moments(case: Case, seed: int) -> None:
    lam = case.lam(np.random.default_rng(seed), PLATES)
    _close(_compiled(case.family, lam)[-1], case.family.expected_stats(lam), rtol=1e-8, atol=1e-8)


@every_family
@seeds
def test_numpy_and_jax_agree(case: Case, seed: int) -> None:
    lam = case.lam(np.random.default_rng(seed), PLATES)
    mu, a = case.family.moments(lam)
    _close(mu, case.family.expected_stats(lam))
    np.testing.assert_allclose(a, case.family.log_normalizer(lam))
    assert all(isinstance(m, np.ndarray | np.floating) for m in (*mu, a))
    mu_jax, a_jax, ok, total, entropy, _ = _compiled(case.family, lam)
    assert all(m.dtype == np.float64 for m in mu_jax)
    _close(mu_jax, mu)
    np.testing.assert_allclose(a_jax, a, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total, case.family.inner(lam, mu), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(entropy, case.family.entropy(lam), rtol=1e-8, atol=1e-8)
    assert ok.shape == a.shape
    assert np.all(ok)
    assert np.all(case.family.valid(lam))


@pytest.mark.parametrize("case", INVERTIBLE, ids=lambda c: repr(c.family))
@seeds
def test_natural_and_usual_are_inverse(case: Case, seed: int) -> None:
    usual = case.usual(np.random.default_rng(seed), PLATES)
    back = case.family.usual(case.family.natural(**usual))
    assert list(back) == [p.name for p in case.family.params]
    for name, value in usual.items():
        np.testing.assert_allclose(back[name], value, rtol=1e-8, atol=1e-9)


@every_family
@seeds
def test_kl_is_a_divergence(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lam, other = case.lam(rng, PLATES), case.lam(rng, PLATES)
    assert np.all(case.family.kl(lam, other) >= -1e-9)
    np.testing.assert_allclose(case.family.kl(lam, lam), 0, atol=1e-9)


@every_family
def test_kl_and_entropy_are_averages_over_samples(case: Case, rng: Rng) -> None:
    lam, other = case.lam(rng), case.lam(rng)
    n = 20_000
    phi = case.family.stats_of(case.family.sample(lam, rng, n), case.size)
    ratio = case.family.inner(lam, phi) - case.family.inner(other, phi)
    ratio = ratio - case.family.log_normalizer(lam) + case.family.log_normalizer(other)
    # Six standard errors of the mean: one failure in 1e9 for light tails.
    assert np.all(abs(ratio.mean(0) - case.family.kl(lam, other)) < 6 * ratio.std(0) / np.sqrt(n) + 1e-9)
    if not isinstance(case.family, nf.Poisson):  # its f(x) has a test of its own
        log_q = case.family.inner(lam, phi) - case.family.log_normalizer(lam)
        assert np.all(abs(log_q.mean(0) + case.family.entropy(lam)) < 6 * log_q.std(0) / np.sqrt(n) + 1e-9)


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if _is_auxiliary(c.family) else c for c in CASES], ids=repr_of
)
def test_fisher_is_the_covariance_of_the_statistics(case: Case, rng: Rng) -> None:
    lam = case.lam(rng)
    fisher = case.family.fisher(lam)
    assert isinstance(fisher, np.ndarray)
    assert fisher.dtype == np.float64
    np.testing.assert_allclose(fisher, np.swapaxes(fisher, -1, -2), rtol=1e-9, atol=1e-9)
    eigenvalues = np.linalg.eigvalsh(fisher)
    assert np.all(eigenvalues > -1e-9 * eigenvalues.max())
    # A number of an auxiliary law that is no parameter (its trials, its bounds) has a statistic that is the same for every x.
    varies = np.diagonal(fisher, axis1=-2, axis2=-1)[..., None, :] > 0
    slopes = np.where(varies, slopes_of_moments(case.family, lam), 0.0)
    np.testing.assert_allclose(fisher, slopes, rtol=1e-6, atol=1e-7 * abs(fisher).max())
    # By definition, along directions in which all statistics vary alike: Var(a · φ) = aᵀ V a.
    n = 20_000
    phi = case.family.stats_of(case.family.sample(lam, rng, n), case.size)
    flat = np.concatenate([s.reshape((n, 2, -1)) for s in phi], axis=-1)
    for _ in range(3):
        a = rng.normal(size=fisher.shape[:-1]) / np.sqrt(np.diagonal(fisher, axis1=-2, axis2=-1) + 1e-300)
        along = (flat * a).sum(-1)
        squares = (along - along.mean(0)) ** 2
        # An event of probability below 20 / n may never be seen, and then has no standard error.
        unseen = 20 / n * (a * a).sum(-1) if case.size else 1e-8
        wanted = np.einsum("...i,...ij,...j->...", a, fisher, a)
        assert np.all(abs(squares.mean(0) - wanted) < 6 * squares.std(0) / np.sqrt(n) + unseen)


@every_family
def test_linear_response_reads_the_value_itself(case: Case, rng: Rng) -> None:
    """Cov(φ, φ) = ∂μ/∂λ, Cov(x, φ) = ∂E[x]/∂λ, and Var(x) on the diagonal of Cov(x, x), whether or not x is a statistic."""
    family = case.family
    lam = tuple(np.asarray(g, np.float64) for g in case.lam(rng))
    found, mean = family.covariances(lam), np.asarray(family.mean(lam))
    fixed = [name in family.settings for name in family.stat_names]
    change = family.project(
        tuple(np.zeros(g.shape) if f else rng.normal(size=g.shape) for g, f in zip(lam, fixed, strict=True))
    )
    step = 1e-4 * min(
        1.0, *(float((abs(g[c != 0] / c[c != 0]) + 1e-2).min(initial=1.0)) for g, c in zip(lam, change, strict=True))
    )
    moved = [tuple(g + k * step * c for g, c in zip(lam, change, strict=True)) for k in (-2, -1, 1, 2)]

    def slope(ends: list[Any]) -> Any:
        return (8.0 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12.0 * step)

    wanted = slope([np.asarray(family.mean(near)) for near in moved])
    np.testing.assert_allclose(found.value_by(change), wanted, rtol=1e-6, atol=1e-6 * abs(wanted).max())
    for stat, ends in zip(found.times(change), zip(*map(family.expected_stats, moved), strict=True), strict=True):
        wanted = slope([np.asarray(end) for end in ends])
        np.testing.assert_allclose(stat, wanted, rtol=1e-6, atol=1e-6 * abs(wanted).max() + 1e-12)
    # Cov(φ, x) is the transpose of Cov(x, φ); an element of a symmetric matrix stands for both.
    weights = rng.normal(size=mean.shape)
    if isinstance(family, nf.Wishart | nf.NormalWishart | nf.TiedNormalWishart | nf.MatrixNormalWishart):
        size = mean.shape[-2]
        weights[..., -size:] = weights[..., -size:] + np.swapaxes(weights[..., -size:], -1, -2)
    inner = sum(float(np.vdot(a, b)) for a, b in zip(found.stats_by(weights), change, strict=True))
    np.testing.assert_allclose(inner, np.vdot(weights, found.value_by(change)), rtol=1e-8)
    variance = np.asarray(family.var(lam))
    for place in np.ndindex(mean.shape):
        unit = np.zeros(mean.shape)
        unit[place] = 1.0
        np.testing.assert_allclose(found.own(unit)[place], variance[place], rtol=1e-9, err_msg=str(place))


def slopes_of_moments(family: Any, lam: Any) -> Any:
    """∂μ/∂λ [..., P, P], by differences whose error is of fourth order in their length."""
    plates = np.shape(lam[0])[: np.ndim(lam[0]) - family.stat_ndims[0]]
    sizes = [int(np.prod(np.shape(g)[len(plates) :])) for g in lam]
    flat = np.concatenate([np.reshape(g, (*plates, -1)) for g in lam], axis=-1)

    def moments(vector: Any) -> Any:
        parts = np.split(vector, np.cumsum(sizes)[:-1], axis=-1)
        # A is a function of symmetric matrices; projecting inside gives Cov(φ), not half of it.
        inside = family.project(tuple(part.reshape(np.shape(g)) for part, g in zip(parts, lam, strict=True)))
        return np.concatenate([np.reshape(m, (*plates, -1)) for m in family.expected_stats(inside)], axis=-1)

    columns = []
    for place in range(flat.shape[-1]):
        h = 1e-3 * np.maximum(abs(flat[..., place : place + 1]), 0.01) * np.eye(flat.shape[-1])[place]
        far, near = (moments(flat + k * h) - moments(flat - k * h) for k in (2, 1))
        columns.append((8.0 * near - far) / (12.0 * h[..., place : place + 1]))
    return np.stack(columns, axis=-1)


@every_family
def test_samples_have_the_stated_mean_and_variance(case: Case, rng: Rng) -> None:
    lam = case.lam(rng)
    n = 40_000
    x = case.family.sample(lam, rng, n)
    assert case.family.sample(lam, rng).shape == x.shape[1:]
    assert x.ndim == 2 + case.family.event_ndim
    # categories are averaged as indicators
    x = case.family.stats_of(x, case.size)[0] if case.size else x
    mean, var = case.family.mean(lam), case.family.var(lam)
    assert mean.shape == var.shape == x.shape[1:]
    assert np.all(abs(x.mean(0) - mean) < 6 * x.std(0) / np.sqrt(n) + 1e-9)
    known = np.isfinite(var)
    spread = (x - mean) ** 2
    # Heavy tails (Student t) make the error of a variance unreliable: only a factor of two is asked for.
    error = np.maximum(6 * spread.std(0) / np.sqrt(n), 0.02 * var) + 1e-9
    heavy = isinstance(case.family, nf.NormalGamma | nf.NormalWishart | nf.TiedNormalWishart | nf.MatrixNormalWishart)
    assert np.all((abs(spread.mean(0) - var) < error)[known] | (heavy & (spread.mean(0) < 2 * var)[known]))


@every_family
def test_intervals_hold_their_mass(case: Case, rng: Rng) -> None:
    lam = case.lam(rng)
    if case.size or isinstance(case.family, nf.Bernoulli | nf.Binary):
        with pytest.raises(TypeError, match=r"mean\(\)"):
            case.family.interval(lam)
        return
    low, high = case.family.interval(lam, 0.8)
    n = 20_000
    x = case.family.sample(lam, rng, n)
    # Binomial error of a fraction 0.1: six times sqrt(0.09 / n) = 0.013. Counts hold more than their mass.
    below, above = (x < low).mean(0), (x > high).mean(0)
    assert np.all(below < 0.113)
    assert np.all(above < 0.113)
    if not isinstance(case.family, nf.Poisson | nf.Shares):
        assert np.all(below > 0.087)
        assert np.all(above > 0.087)
    with pytest.raises(ValueError, match="mass must lie"):
        case.family.interval(lam, 90)


@every_family
@seeds
def test_valid_sees_nan_and_infinity(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lam = case.lam(rng, PLATES)  # for other shapes another program would be compiled
    k = int(rng.integers(len(lam)))
    wanted = np.arange(*PLATES) > 0
    for bad in (np.nan, np.inf):
        broken = [g.copy() for g in lam]
        broken[k].reshape(-1)[0] = bad
        assert np.array_equal(case.family.valid(tuple(broken)), wanted)
        assert np.array_equal(_compiled(case.family, tuple(broken))[2], wanted)


@every_family
def test_centred_has_its_mean_at_the_value(case: Case, rng: Rng) -> None:
    lam = case.lam(rng)
    target = case.family.mean(case.lam(rng))
    if isinstance(case.family, nf.MarkovChain):
        target = rng.integers(3, size=(2, 5))
        start = case.family.centred(target, (lam[0], 0 * lam[1], 0 * lam[2]))
        assert np.array_equal(case.family.mean(start).argmax(-1), target)
        return
    start = case.family.centred(target, lam)
    if isinstance(case.family, nf.TruncatedNormal | nf.TruncatedExponential):
        # What is centred is the law before truncation.
        target = case.family.mean(start)
    assert [s.shape for s in start] == [g.shape for g in lam]
    assert np.all(case.family.valid(start))
    # The floor on probabilities (1e-3 / K) moves a mean by at most 1e-3.
    np.testing.assert_allclose(case.family.mean(start), target, rtol=1e-8, atol=1.1e-3)
    if isinstance(case.family, nf.Beta | nf.Dirichlet):  # as sure as before
        totals = [sum(map(np.asarray, law.values())) for law in map(case.family.usual, (start, lam))]
        np.testing.assert_allclose(*(np.sum(t, -1) if case.family.event_ndim else t for t in totals), rtol=1e-9)


@every_family
def test_plates_broadcast_and_families_are_values(case: Case, rng: Rng) -> None:
    assert case.family == type(case.family)(**vars(case.family))
    assert hash(case.family) == hash(type(case.family)(**vars(case.family)))
    for plates in ((), (2, 3)):
        lam = case.lam(rng, plates)
        mu, a = case.family.moments(lam)
        assert np.shape(a) == plates
        assert np.shape(case.family.valid(lam)) == plates
        assert [np.shape(m) for m in mu] == [np.shape(g) for g in lam]
        assert case.family.sample(lam, rng, 4).shape[: 1 + len(plates)] == (4, *plates)
        assert np.shape(case.family.kl(lam, lam)) == plates


@every_family
@seeds
def test_project_symmetrises_symmetric_statistics_only(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    noisy = tuple(g + rng.normal(size=g.shape) for g in case.lam(rng))
    for g, p, symmetric in zip(noisy, case.family.project(noisy), case.family.symmetric, strict=True):
        np.testing.assert_array_equal(p, 0.5 * (g + np.swapaxes(g, -1, -2)) if symmetric else g)


@cache
def _program(family: nf.Family) -> Callable[[nf.Stats], tuple]:
    def program(lam: nf.Stats) -> tuple:
        mu, a = family.moments(lam)
        gradient = jax.grad(lambda lam: family.log_normalizer(family.project(lam)).sum())(lam)
        return mu, a, family.valid(lam), family.inner(lam, mu), family.entropy(lam), gradient

    return compiled(program)  # kept on disk, as those of networks: compiling is nearly all of what these tests take


def _compiled(family: nf.Family, lam: nf.Stats) -> tuple:
    """Moments, A, validity, ⟨λ, μ⟩, entropy and ∇A as JAX has them; one program a family, which all tests here share."""
    with jax.enable_x64(True):
        return _program(family)(tuple(jax.numpy.asarray(g) for g in lam))


@every_family
def test_no_elements_are_no_error(case: Case, rng: Rng) -> None:
    family, lam = case.family, case.lam(rng, (0,))
    mu, a = family.moments(lam)
    assert [m.shape for m in mu] == [np.shape(g) for g in lam]
    draw = family.sample(lam, rng, 3)
    assert a.shape == family.entropy(lam).shape == family.valid(lam).shape == (0,)
    assert draw.shape[:2] == (3, 0)
    assert family.mean(lam).shape == family.var(lam).shape
    if not family.is_discrete:
        assert all(end.shape == family.mean(lam).shape for end in family.interval(lam))
    if family.covariance_broadcasts:
        assert family.covariances(lam).times(lam)[0].shape == lam[0].shape


@pytest.mark.parametrize("spread", [1.0, 500.0])  # in probabilities and in logarithms
@pytest.mark.parametrize(("n_times", "n_states"), [(1, 1), (1, 3), (4, 1)])
def test_a_chain_of_one_time_or_one_state_is_a_category(n_times: int, n_states: int, spread: float, rng: Rng) -> None:
    potentials, initial = rng.normal(size=(n_times, n_states)), rng.normal(size=n_states)
    transition = spread * rng.normal(size=(n_states, n_states))
    mu, a = nf.MarkovChain().moments((potentials, initial, transition))
    if n_times == 1:
        expected, log_z = nf.Categorical().moments((potentials[0] + initial,))
        np.testing.assert_allclose(mu[0][0], expected[0])
        np.testing.assert_allclose(a, log_z)
        np.testing.assert_array_equal(mu[2], 0.0)
    else:
        np.testing.assert_allclose(a, potentials.sum() + initial[0] + (n_times - 1) * transition[0, 0])
        np.testing.assert_allclose(mu[0], 1.0)
        np.testing.assert_allclose(mu[2], n_times - 1)


def test_a_single_share_is_one() -> None:
    for family in (nf.Dirichlet(), nf.Sticks()):
        lam = family.natural(**{param.name: np.ones(1) for param in family.params})
        assert [float(end[0]) for end in family.interval(lam)] == [1.0, 1.0]
        assert (float(family.mean(lam)[0]), float(family.var(lam)[0])) == (1.0, 0.0)


@pytest.mark.parametrize("a", [1e-9, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("b", [1e-9, 1.0, 1e6, 1e12])
def test_variances_of_sticks_keep_their_digits(a: float, b: float) -> None:
    lam = nf.Sticks().natural(a=np.array([a, 1.0]), b=np.array([b, 1.0]))
    a, b = (part[0] for part in nf.Sticks().usual(lam).values())  # with what is left of 1e-9 in a − 1
    np.testing.assert_allclose(nf.Sticks().var(lam), a * b / ((a + b) ** 2 * (a + b + 1.0)), rtol=1e-9)


@pytest.mark.parametrize("rate", [1e5, 2e6, 1e9, 1e13])
def test_quantiles_of_large_counts_are_those_of_a_gaussian(rate: float) -> None:
    lam = nf.Poisson().natural(rate=rate)
    for probability in (1e-4, 0.05, 0.5, 0.99):
        z = sp.ndtri(probability)
        gaussian = rate + z * np.sqrt(rate) + (z * z - 1.0) / 6.0 - 0.5
        assert abs(float(nf.Poisson().quantile(lam, probability)) - gaussian) <= 1.01


@pytest.mark.parametrize("mean", [-1e12, -1e10, -1e3, 1e3, 1e10, 1e12])
def test_a_normal_far_beyond_its_bounds_is_an_exponential(mean: float) -> None:
    """A of a Normal on [0, 1] is −log|mean| at the nearer bound, to the curvature over the square of the distance."""
    for sides in (3.0, 1.0 if mean < 0 else 2.0):
        lam = nf.TruncatedNormal().natural(mean=mean, precision=1.0, lower=0.0, upper=1.0, sides=sides)
        (x, *_), a = nf.TruncatedNormal().moments(lam)
        at = float(mean > 0)
        steep = abs(mean - at)
        np.testing.assert_allclose(a, lam[0] * at + lam[1] * at - np.log(steep), rtol=1e-12, atol=2.0 / steep**2)
        np.testing.assert_allclose(abs(x - at), 1.0 / steep, rtol=1e-5, atol=1e-15)
        assert nf.TruncatedNormal().kl(lam, lam) == 0.0
