"""Several ways of reading one node in one network, and networks that are longer than Python's stack."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import NotConjugate


def regression(first, second, shape=()):
    """Two leaves that read the weights: by a dot, and in the given way; their fit."""
    rng = np.random.default_rng(5)
    X, y, extra = rng.normal(size=(20, 4)), rng.normal(size=20), rng.normal(size=shape)
    w = ng.Normal("w", 0.0, 1.0, plate=ng.Plate("column", 4))
    leaf = ng.Normal("y", ng.dot(X, w), 2.0, plate=ng.Plate("row", 20), observed=y)
    plate = ng.Plate("more", shape[0]) if shape else None
    more = ng.Normal("m", first(w) if second is None else ng.dot(second, w), 3.0, plate=plate, observed=extra)
    return ng.Network(leaf, more)


@pytest.mark.parametrize("index", [2, [3, 0, 3, 1, 1]], ids=["one", "several"])
def test_a_dot_and_an_index_of_the_same_weights(index):
    """Reading w[i] is the same as a dot with a row of the identity; samples of all children are the same as none."""
    shape = np.shape(index)
    chosen = regression(lambda w: w[index], None, shape)
    dotted = regression(None, np.eye(4)[index], shape).fit(max_steps=60, tol=0)
    for options in ({}, {"method": ng.Children(20), "step": ng.Constant(1.0)}):
        fit = chosen.fit(**options, max_steps=60, tol=0)
        np.testing.assert_allclose(fit["w"].mean(), dotted["w"].mean(), rtol=1e-9)
        assert fit.elbo == pytest.approx(dotted.elbo, rel=1e-10)


def test_a_dot_and_an_index_in_one_term_are_refused():
    w = ng.Normal("w", 0.0, 1.0, plate=ng.Plate("column", 2))
    y = ng.Normal("y", ng.dot(np.ones((3, 2)), w) + w[0], 1.0, plate=ng.Plate("n", 3), observed=np.zeros(3))
    with pytest.raises(NotConjugate, match="'y' reads 'w' twice, summed over plate 'column'"):
        ng.Network(y).fit()


def test_a_chain_of_nodes_longer_than_the_stack():
    x = first = ng.Normal("x0", 0.0, 1.0)
    for i in range(1, 1200):
        x = ng.Normal(f"x{i}", x, 1.0)
    network = ng.Network(ng.Normal("y", x, 1.0, observed=0.0))
    assert next(iter(network.nodes)) == first.name
    assert len(network.nodes) == 1201


def test_a_sum_of_more_terms_than_the_stack_is_deep():
    terms = [ng.Normal(f"a{i}", 0.0, 1.0) for i in range(1100)]
    total = sum(terms[1:], terms[0])
    assert [access.node for access in total.accesses()] == terms
    assert str(total) == "(a0 + a1 + a2 + a3 + a4 + a5 + a6 + …)"
    with pytest.raises(NotConjugate, match="'a17' stands on both sides"):
        total.__add__(terms[17])


def test_the_order_and_the_nesting_of_a_sum_do_not_matter(rng):
    """E[(Σ a)²] of a flat sum, of sums in sums and of vectors: the same bound however it is written."""
    n, y, X = ng.Plate("n", 6), rng.normal(size=6), rng.normal(size=(6, 3))
    a, b = ng.Normal("a", 1.0, 2.0), ng.Normal("b", 0.0, 1.0, plate=n)
    w, t = ng.MultivariateNormal("w", np.zeros(3), np.eye(3)), ng.Gamma("t", 2.0, 1.0)
    orders = [a + b + ng.dot(X, w) + 3.0, (1.0 + ng.dot(X, w)) - (-b - a) + 2.0]
    options = {"init": {a: 0.5, b: y, w: np.ones(3)}, "order": list("tbaw"), "max_steps": 2, "tol": 0}
    one, other = (ng.Network(ng.Normal("y", m, t, plate=n, observed=y)).fit(**options).elbo for m in orders)
    assert one == pytest.approx(other, rel=1e-12)
