"""What a compiled sweep packs, and what travels through it once: the same numbers as without."""

import jax
import numpy as np
import pytest

import natgrad as ng
from natgrad._jax import in_64_bits
from natgrad.network.execute.addressing import WHOLE, Piece
from natgrad.network.execute.choice import make_backend
from natgrad.network.execute.lower import Job
from natgrad.network.execute.packing import packed_readers
from natgrad.network.execute.programs import Repeated
from natgrad.network.polynomial import Factor, Mark, Monomial, Take

FIRST, SECOND, GATE = Mark("i", 0), Mark("i", 1), Mark("gate", 2)
LAM = Factor("lam", 0, (GATE, FIRST, SECOND), known=False)
Z = Factor("z", 0, ("point", GATE), known=False)
X = [Factor("x", 0, ("point", label), known=True) for label in (FIRST, SECOND)]
SIZES, SYMMETRIC = {"point": 6, GATE: 2, FIRST: 3, SECOND: 3}, frozenset({("lam", 0)})


def lowered(monomial, moments, known, name, symmetric):
    piece = Piece((monomial,), SIZES, ("point",), symmetric=symmetric)
    job = Job([piece], name, packed=packed_readers)
    return job.at(make_backend("jax"), moments, known)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_a_packed_square_has_the_value_and_the_symmetric_gradient_of_the_sum(order, rng):
    matrix = rng.normal(size=(2, 3, 3))
    known, z = {"x": rng.normal(size=(6, 3))}, rng.dirichlet(np.ones(2), 6)
    monomial = Monomial(-0.5, tuple([LAM, *X, Z][n] for n in order))

    def both(lam, z):
        stats = {"lam": (lam,), "z": (z,)}
        return [
            [lowered(monomial, stats, known, name, symmetric) for name in (None, "lam", "z")]
            for symmetric in (frozenset(), SYMMETRIC)
        ]

    with in_64_bits():
        plain, packed = jax.tree.map(np.asarray, jax.jit(both)(matrix, z))
    value, (by_lam,), (by_z,) = plain
    packed_value, (packed_lam,), (packed_z,) = packed
    np.testing.assert_allclose(value, -0.5 * np.einsum("gij,ni,nj,ng->", matrix, known["x"], known["x"], z))
    np.testing.assert_allclose(packed_value, value, rtol=1e-13)
    np.testing.assert_allclose(packed_lam, 0.5 * (by_lam + np.swapaxes(by_lam, 1, 2)), rtol=1e-13)
    np.testing.assert_allclose(packed_lam, np.swapaxes(packed_lam, 1, 2), rtol=1e-15)
    np.testing.assert_allclose(packed_z, by_z, rtol=1e-13)


@pytest.mark.parametrize(
    "factors",
    [
        pytest.param((LAM, X[0], Factor("other", 0, ("point", SECOND), known=True), Z), id="two different arrays"),
        pytest.param((LAM, X[0], Factor("x", 0, ("point", SECOND), known=False), Z), id="a random one"),
        pytest.param((LAM, X[0], Factor("x", 0, (Take("n", ("point",)), SECOND), known=True), Z), id="another row"),
        pytest.param((LAM, Factor("mu", 1, (GATE, FIRST, SECOND), known=False), Z), id="two matrices"),
        pytest.param(
            (Factor("pairs", 2, (GATE, FIRST, SECOND), known=False), *X, Z), id="a table that is not symmetric"
        ),
        pytest.param((Factor("lam", 0, (FIRST, FIRST, SECOND), known=False), *X), id="a label twice"),
    ],
)
def test_what_is_no_square_is_left_as_it_is(factors):
    piece = Piece((), SIZES, ("point",), symmetric=SYMMETRIC)
    assert packed_readers(Monomial(1.0, factors), piece, WHOLE) is None


def test_precisions_that_rows_share_travel_once(rng):
    row, column = ng.Plate("row", 5), ng.Plate("column", 4)
    w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    network = ng.Network(ng.Normal("y", ng.dot(w, x), 1.0, plate=(row, column), observed=rng.normal(size=(5, 4))))
    problem = network.problem_on("numpy")
    repeated = Repeated(problem.program)
    assert repeated.plates["x"] == ((), (0,))
    state = network.fit(max_steps=2, tol=0, backend="numpy", verbose=False).state
    short = repeated.once(state.lam, ("x",))
    assert short["x"][1].shape == (1, 2, 2)
    assert short["w"] is state.lam["w"]  # a sweep of x alone leaves it as it is
    for part, whole in zip(repeated.for_all(short, ("x",))["x"], state.lam["x"], strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-13)


def test_columns_of_vectors_are_packed_with_the_column_that_is_differentiated():
    """Classes of a softmax are updated in turn; what is packed once ignored which one, and the bound of compiled sweeps fell."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 2)), rng.integers(0, 3, 9)

    def fit(backend):
        w = ng.MultivariateNormal("w", 0.0, 1.0, size=2, plate=ng.Plate("kind", 3))
        leaf = ng.Categorical("y", softmax=ng.dot(w, x), plate=ng.Plate("row", 9), observed=y)
        return ng.Network(leaf).fit(ng.VB(), backend=backend, max_steps=3, tol=0)

    compiled, interpreted = fit("jax"), fit("numpy")
    np.testing.assert_allclose(compiled.trace["elbo"], interpreted.trace["elbo"], rtol=1e-12)
    block, state = interpreted.problem.blocks["w"], interpreted.state
    for number in range(3):
        pair = (one.problem.target(block, state, column=number) for one in (compiled, interpreted))
        for ours, twin in zip(*pair, strict=True):
            np.testing.assert_allclose(ours, twin, rtol=1e-11, atol=1e-13)
