"""Expressions as people write them: the same network, the same bound, as the one that is written with every node once."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

N, K, D = ng.Plate("n", 6), ng.Plate("k", 2), 3
Y = np.array([0.3, -1.2, 0.8, 2.1, 0.4, -0.5])
X, Z = np.random.default_rng(0).normal(size=(2, 6, D))


def bound(mean, **nodes):
    # A factor for each node: plates have no other.
    fit = ng.Network(ng.Normal("y", mean, 2.0, plate=N, observed=Y), joint=None).fit(
        max_steps=5, tol=0.0, backend="numpy", init=nodes
    )
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    return fit.elbo


def scalars():
    return [ng.Normal(name, mean, 1.0) for name, mean in (("a", 0.5), ("b", -0.3), ("c", 1.0))]


def vectors():
    return [ng.MultivariateNormal(name, np.full(D, 0.3), 1.0) for name in ("w", "v")]


@pytest.mark.parametrize(
    ("written", "once"),
    [
        (lambda a, b, c: a * b + b * c, lambda a, b, c: b * (a + c)),
        (lambda a, b, c: b + a * b, lambda a, b, c: b * (a + 1.0)),
        (lambda a, b, c: 2.0 * b + a * b - b * c, lambda a, b, c: b * (a - c + 2.0)),
        (lambda a, b, c: a * b + c * b + 0.5, lambda a, b, c: (a + c) * b + 0.5),
        (lambda a, b, c: 2.0 * a + 3.0 * a + c, lambda a, b, c: 5.0 * a + c),
        (lambda a, b, c: X[:, 0] * a + X[:, 1] * a, lambda a, b, c: (X[:, 0] + X[:, 1]) * a),
        (lambda a, b, c: a * b + a * b, lambda a, b, c: 2.0 * (a * b)),
    ],
)
def test_products_that_share_a_node(written, once):
    assert bound(written(*scalars())) == pytest.approx(bound(once(*scalars())), abs=1e-10)


def test_dots_that_share_a_vector():
    w, v = vectors()
    assert bound(ng.dot(X, w) + ng.dot(Z, w)) == pytest.approx(bound(ng.dot(X + Z, w)), abs=1e-10)
    assert bound(ng.dot(X, w) + 1.0 - ng.dot(w, Z)) == pytest.approx(bound(ng.dot(X - Z, w) + 1.0), abs=1e-10)
    a = scalars()[0]
    assert bound(ng.dot(X, a * w + a * v)) == pytest.approx(bound(ng.dot(X, a * (w + v))), abs=1e-10)


def test_nested_readings():
    z = ng.Categorical("z", [0.4, 0.6], plate=ng.Plate("m", 4))
    mu = ng.Normal("mu", [-1.0, 1.0], 1.0, plate=K)
    index = np.array([0, 1, 2, 3, 0, 1])
    assert bound(mu[z][index]) == pytest.approx(bound(mu[z[index]]), abs=1e-12)
    assert bound(mu[z][[3, 2, 1, 0]][index]) == pytest.approx(bound(mu[z[np.array([3, 2, 1, 0])[index]]]), abs=1e-12)
    deep = ng.Normal("deep", 0.0, 1.0, plate=ng.Plate("l", 5))
    assert bound(deep[[4, 3, 2]][[0, 1, 2, 2, 1, 0]]) == pytest.approx(bound(deep[[4, 3, 2, 2, 3, 4]]), abs=1e-12)
    sliced = ng.Normal("s", 0.0, 1.0, plate=ng.Plate("l", 8))
    assert bound(sliced[2:]) == pytest.approx(bound(sliced[np.arange(2, 8)]), abs=1e-12)


def test_entries_and_slices_are_known_maps():
    w, _ = vectors()
    unit = np.eye(D)
    assert bound(w[1] * X[:, 0]) == pytest.approx(bound(ng.dot(X[:, :1] * unit[1], w)), abs=1e-10)
    assert bound(ng.dot(X[:, :2], w[:2])) == pytest.approx(bound(ng.dot(X * [1, 1, 0], w)), abs=1e-10)
    assert bound(ng.dot(X[:, :2], w[[2, 0]])) == pytest.approx(bound(ng.dot(X[:, [1, 2, 0]] * [1, 0, 1], w)), abs=1e-10)
    rows = ng.MultivariateNormal("r", np.full(D, 0.3), 1.0, plate=N)
    assert bound(rows[:, -1]) == pytest.approx(bound(ng.dot(np.tile(unit[2], (6, 1)), rows)), abs=1e-10)


def test_parts_of_one_vector_in_one_sum():
    w, _ = vectors()
    once = bound(ng.dot(X, w))
    assert bound(ng.dot(X[:, :2], w[:2]) + X[:, 2] * w[2]) == pytest.approx(once, abs=1e-12)
    assert bound(w[0] * X[:, 0] + ng.dot(X[:, 1:], w[1:])) == pytest.approx(once, abs=1e-12)
    assert bound(ng.dot(X, ng.concatenate([w[:1], w[1:]]))) == pytest.approx(once, abs=1e-12)
    turned = w[[1, 2, 0]] - w  # a known map of w, which is in it twice
    once = bound(ng.dot(X[:, [2, 0, 1]] - X, w))
    assert bound(ng.dot(X, turned)) == pytest.approx(once, abs=1e-12)


def test_an_index_of_an_index_counts_what_was_chosen():
    mu = ng.Normal("mu", [-1.0, 0.3, 1.0], 1.0, plate=ng.Plate("g", 3))
    first, second = np.array([2, 0, 1, 1, 0]), np.array([4, 0, 3, 3, 1, 2])
    once = bound(mu[first[second]])
    assert bound(mu[first][second]) == pytest.approx(once, abs=1e-12)
    long = np.array([0, 2, 1, 0, 2, 1, 0])
    assert bound(mu[long][1:]) == pytest.approx(bound(mu[long[1:]]), abs=1e-12)
    z = ng.Categorical("z", [0.2, 0.3, 0.5], plate=ng.Plate("unit", 7))
    assert bound(mu[z][1:]) == pytest.approx(bound(mu[z[1:]]), abs=1e-12)
    with pytest.raises(IndexError, match=r"= 5 is outside mu\[…\], which was read from plate 'g', with elements 0 … 4"):
        mu[first][[5, 0, 0, 0, 0, 0]]
    with pytest.raises(PlateMismatch, match="one element of plate 'g' is chosen already"):
        mu[0][0]


def test_concatenated_vectors():
    w, v = vectors()
    a = scalars()[0]
    whole = np.hstack([X, Z, X[:, :1]])
    parts = ng.dot(X, w) + ng.dot(Z, v) + X[:, 0] * a
    assert bound(ng.dot(whole, ng.concatenate([w, v, a]))) == pytest.approx(bound(parts), abs=1e-10)
    known = ng.dot(np.hstack([X, Z[:, :1]]), ng.concatenate([w, [2.0]]))
    assert bound(known) == pytest.approx(bound(ng.dot(X, w) + 2.0 * Z[:, 0]), abs=1e-10)


def test_sums_along_a_plate_and_of_many_terms():
    x = ng.Normal("x", 0.2, 1.0, plate=(N, K))
    assert bound(ng.sum_over(x, K)) == pytest.approx(bound(ng.dot(np.ones((6, 2)), x, over=K)), abs=1e-10)
    many = [ng.Normal(f"t{i}", 0.1, 1.0) for i in range(40)]
    total = sum(many[1:], many[0])
    stacked = ng.Normal("t", 0.1, 1.0, plate=ng.Plate("many", 40))
    assert bound(total) == pytest.approx(bound(ng.sum_over(stacked, ng.Plate("many", 40))), abs=1e-8)


@pytest.mark.parametrize(
    "matrix", [np.eye(2), np.array([[2.0, -0.5], [-0.5, 1.0]]), np.array([[2.0, 0.5], [0.5, 1.0]])]
)
def test_a_positive_number_times_a_known_matrix(matrix):
    tau, rows = ng.Gamma("tau", 2.0, 1.0), np.column_stack([Y, Y[::-1]])
    w = ng.MultivariateNormal("w", np.zeros(2), 1.0)

    def fit(precision):
        return ng.Network(ng.MultivariateNormal("y", w, precision, plate=N, observed=rows)).fit(
            tol=1e-9, backend="numpy"
        )

    one = fit(tau * matrix)
    assert one.elbo == pytest.approx(fit(matrix * tau).elbo, abs=1e-10)
    # By hand: log p = ½ (2 log τ + log|M|) − ½ τ (y − w)ᵀ M (y − w) − log 2π.
    t, w_moments = one["tau"].moments, one["w"].moments
    away = sum(
        np.outer(r, r) - np.outer(r, w_moments["x"]) - np.outer(w_moments["x"], r) + w_moments["xx"] for r in rows
    )
    expected = 6 * (t["log"] + 0.5 * np.linalg.slogdet(matrix)[1] - np.log(2 * np.pi)) - 0.5 * t["x"] * np.trace(
        matrix @ away
    )
    assert one.elbo_by_node()["y"] == pytest.approx(float(expected), rel=1e-10)


def test_what_cannot_be_written_once_is_refused():
    (a, b, c), (w, _) = scalars(), vectors()
    with pytest.raises(NotConjugate, match=r"Write it once: 2 \* a, b \* \(a \+ c\)"):
        a * ng.dot(X, w) + ng.dot(Z, w)
    with pytest.raises(NotConjugate, match="stands on both sides"):
        a * b + c * c


def test_arrays_on_the_left_are_operands():
    a, b, _ = scalars()
    assert bound(np.float64(2.0) * a + np.ones(6)) == pytest.approx(bound(a * 2.0 + 1.0), abs=1e-12)
    assert bound(Y - a) == pytest.approx(bound(-1.0 * a + Y), abs=1e-12)
    assert bound(np.add(a, b)) == pytest.approx(bound(a + b), abs=1e-12)
    with pytest.raises(TypeError, match="comparing it with"):
        _ = np.ones(2) == a


@pytest.mark.parametrize(
    "written",
    [
        lambda a, b, c: a * b + b * c + a * c,
        lambda a, b, c: a * b + b * c + a * c + 2.0 * a - 0.7,
        lambda a, b, c: X[:, 0] * a * b + b * (c - 1.0) + X[:, 1] * (a * c),
        lambda a, b, c: a * b * c + a * b + c,
        lambda a, b, c: (a + 1.0) * (b + c) - a * c * b,
    ],
)
def test_sums_of_products_that_no_node_can_be_taken_out_of(written):
    """The bound is E_q[log p − log q], by Gauss and Hermite's rule, which is exact for the polynomials that these are."""
    nodes = scalars()
    y = ng.Normal("y", written(*nodes), 2.0, plate=N, observed=Y)
    fit = ng.Network(y, joint=None).fit(max_steps=30, tol=0.0, backend="numpy")
    assert np.diff(fit.trace["elbo"]).min() > -1e-11
    points, weights = np.polynomial.hermite_e.hermegauss(6)
    weights = weights / weights.sum()
    grids = np.meshgrid(*(fit[n.name].mean() + fit[n.name].std() * points for n in nodes), indexing="ij")
    chance = weights[:, None, None] * weights[:, None] * weights
    value = np.moveaxis(written(*(grid[..., None] for grid in grids)) + np.zeros(6), -1, 0)
    expected = (chance * (Y[:, None, None, None] - value) ** 2).sum()
    total = 3.0 * np.log(2.0 / (2.0 * np.pi)) - expected
    for node, prior in zip(nodes, (0.5, -0.3, 1.0), strict=True):
        mean, var = fit[node.name].mean(), fit[node.name].var()
        total += 0.5 * (1.0 + np.log(var)) - 0.5 * (var + (mean - prior) ** 2)
    assert fit.elbo == pytest.approx(total, rel=1e-12)


def test_products_multiplied_out_have_each_node_once():
    a, b, c = scalars()
    for wrong in (lambda: a * b + b * c + a * c * a, lambda: (a * b + b * c + a * c) * a):
        with pytest.raises(NotConjugate, match="'a' stands on both sides"):
            wrong()
