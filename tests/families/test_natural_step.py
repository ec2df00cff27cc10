"""λ ← (1 − ρ) λ + ρ λ^temp stands in one place, and the fused kernels that blend by themselves agree with it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import natgrad
from natgrad import threads
from natgrad.data.ratings import Ratings
from natgrad.families.natural_step import blend
from natgrad.models.factorization.rows import Numbers, Scalars, Vectors

SOURCE = Path(natgrad.__file__).parent
THE_PLACE = {"families/natural_step.py"}
# Kernels that blend while they sum: held to the one place by the tests below.
FUSED = {"kernels/factorization/blocks.py", "kernels/factorization/plain.py", "kernels/factorization/ratings.py"}
# Weighted means of what is no λ.
OTHER = {
    "families/fisher.py",  # covariances of a Beta
    "inference/slicing.py",  # a point of an interval
    "kernels/network/gaussian.py",  # a point of an interval
    "kernels/lda/documents.py",  # expected counts of a document, extrapolated
    "kernels/lda/plain.py",  # the same for little data
    "models/clusters.py",  # messages scaled up to longer data
    "models/gp/finishing.py",  # noise of two processes by their weight
    "models/gp/predictor.py",  # noise and means of two processes by their weight
    "models/gp/local.py",  # a part of the noise above the least
    "models/lda/problem.py",  # hyper-parameters
    "models/lda/topics.py",  # relevance of words
    "network/draws/scales.py",  # a precision at a multiple of a value
    "network/results/conditional_quantiles.py",  # a probability between the least and one
    "report/charts/svg.py",  # colours
}


def blends(node: ast.AST) -> bool:
    """Whether an expression is (1 − ρ) a ± ρ b, or a + ρ (b − a)."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)):
        return False
    sides = _factors(node.left), _factors(node.right)
    if not any(isinstance(f, ast.BinOp) and isinstance(f.op, ast.Sub) for side in sides for f in side):
        return False  # most sums: nothing is written out for them
    factors = [{ast.unparse(f): f for f in side} for side in sides]
    for one, other in (factors, factors[::-1]):
        for factor in one.values():
            if isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Sub):
                rest = ast.unparse(factor.right)
                if isinstance(factor.left, ast.Constant) and factor.left.value == 1 and rest in other:
                    return True
                if len(one) > 1 and list(other) == [rest]:
                    return True
    return False


def _factors(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) + _factors(node.right)
    return [node]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(1.0 - rho) * a + rho * b", True),
        ("rho * f[k, h] - 2.0 * (1.0 - rho) * half[row]", True),
        ("o + b * (t - o)", True),
        ("a + rho * b", False),
        ("(1 - p) * log_q + p", True),
        ("a - (b - a)", False),
    ],
)
def test_blends_are_recognised(text: str, wanted: bool) -> None:
    assert blends(ast.parse(text, mode="eval").body) is wanted


def test_the_natural_step_stands_in_one_place() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if blends(node)
    }
    assert found == THE_PLACE | FUSED | OTHER


def test_a_step_of_each_element_of_its_own() -> None:
    lam, target = (np.ones((3, 2)), np.ones((3, 2, 2))), (np.zeros((3, 2)), np.full((3, 2, 2), 5.0))
    first, second = blend(lam, target, np.array([0.0, 0.5, 1.0]), (1, 2))
    np.testing.assert_array_equal(first, np.repeat([[1.0], [0.5], [0.0]], 2, axis=1))
    np.testing.assert_array_equal(second[:, 0, 0], [1.0, 3.0, 5.0])


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_the_kernel_of_scalars_takes_natural_steps_one_factor_after_the_other(rho: float) -> None:
    rng = np.random.default_rng(0)
    ratings = _ratings(rng)
    law, numbers, size = Scalars(), Numbers(0.7, 1.9), 3
    side = law.side(ratings.sorted_by_user)
    precision, mean = rng.uniform(0.5, 4.0, (ratings.n_users, size)), rng.normal(size=(ratings.n_users, size))
    lam, mu = (precision * mean, -0.5 * precision), (mean, mean**2 + 1 / precision)
    others = rng.normal(size=(ratings.n_items, size))
    others = (others, others**2 + rng.uniform(0.1, 1.0, others.shape))
    new = law.sweep(side, lam, mu, others, numbers, rho, last=True)
    here = tuple(part.copy() for part in mu)
    for k in range(size):
        target = law.full_target(side, here, others, numbers, k)
        a, b = blend(tuple(part[:, [k]] for part in lam), target, rho)
        np.testing.assert_allclose(new.lam[0][:, [k]], a, rtol=1e-12)
        np.testing.assert_allclose(new.lam[1][:, [k]], b, rtol=1e-12)
        here[0][:, [k]] = -0.5 * a / b
        here[1][:, [k]] = (0.5 * a / b) ** 2 - 0.5 / b


@pytest.mark.parametrize("most", [-1.0, 1e300], ids=["compiled", "plain"])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_the_kernel_of_vectors_takes_natural_steps(rho: float, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST", most)
    rng = np.random.default_rng(1)
    ratings = _ratings(rng)
    law, numbers, size = Vectors(), Numbers(0.7, 1.9), 3
    side = law.side(ratings.sorted_by_user)
    lam, mu = _vectors(rng, ratings.n_users, size)
    _, others = _vectors(rng, ratings.n_items, size)
    new = law.sweep(side, lam, mu, others, numbers, rho, last=True)
    for found, wanted in zip(new.lam, blend(lam, law.full_target(side, mu, others, numbers, None), rho), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def _ratings(rng: np.random.Generator) -> Ratings:
    cells = rng.choice(6 * 5, 17, replace=False)
    return Ratings(cells // 5, cells % 5, rng.normal(3.0, 1.0, 17), shape=(6, 5))


def _vectors(rng: np.random.Generator, n: int, size: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    roots, mean = rng.normal(size=(n, size, size + 1)), rng.normal(size=(n, size))
    precision = roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(size)
    lam = ((precision @ mean[..., None])[..., 0], -0.5 * precision)
    return lam, (mean, np.linalg.inv(precision) + mean[:, :, None] * mean[:, None, :])
