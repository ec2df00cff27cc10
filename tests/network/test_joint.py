"""Coupled Gaussian means solved together: the mean-field optimum, however collinear the columns are."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.execute.joint import joint_groups


def optimum(design, y, prior):
    """Means and standard deviations of the factorised posterior with learned noise, by dense algebra."""
    gram, tau = design.T @ design, 1.0
    for _ in range(200):
        precision = np.diag(gram) * tau + prior
        mean = np.linalg.solve(tau * gram + prior * np.eye(len(gram)), tau * design.T @ y)
        rate = 1.0 + 0.5 * (((y - design @ mean) ** 2).sum() + (np.diag(gram) / precision).sum())
        tau = (1.0 + len(y) / 2) / rate
    return mean, precision**-0.5


def twins(n, apart):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    design = np.stack([np.ones(n), x, x + apart * rng.normal(size=n)], axis=1)
    return design, design @ [1.0, 2.0, -1.0] + rng.normal(size=n)


def powers(n, degree):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, n)
    return x[:, None] ** np.arange(degree + 1), np.sin(3 * x) + 0.1 * rng.normal(size=n)


def on_a_plate(design, y):
    w = ng.Normal("w", 0.0, 0.01, plate=ng.Plate("column", design.shape[1]))
    noise, row = ng.Gamma("tau", 1.0, 1.0), ng.Plate("row", len(y))
    return ng.Network(ng.Normal("y", ng.dot(design, w), noise, plate=row, observed=y)), lambda fit: fit["w"].mean()


def as_nodes(design, y):
    nodes = [ng.Normal(f"w{j}", 0.0, 0.01) for j in range(design.shape[1])]
    mean = sum((w * x for w, x in zip(nodes[1:], design.T[1:], strict=True)), nodes[0] * design[:, 0])
    tau = ng.Gamma("tau", 1.0, 1.0)
    network = ng.Network(ng.Normal("y", mean, tau, plate=ng.Plate("row", len(y)), observed=y), joint=None)
    return network, lambda fit: np.array([float(fit[w.name].mean()) for w in nodes])


@pytest.mark.parametrize(
    ("data", "declared"),
    [
        (twins(300, 1e-3), on_a_plate),
        (twins(300, 1e-3), as_nodes),
        (twins(300, 1e-6), on_a_plate),
        pytest.param(twins(200_000, 1e-3), on_a_plate, marks=pytest.mark.slow),
        (powers(60, 7), on_a_plate),
    ],
    ids=["twins", "twins as nodes", "closer twins", "many rows", "polynomial"],
)
def test_nearly_equal_columns_end_at_the_mean_field_optimum(data, declared):
    network, means = declared(*data)
    fit = network.fit()
    mean, sd = optimum(*data, 0.01)
    assert fit.stop.converged
    assert len(fit.trace) < 30
    np.testing.assert_array_less(np.abs(means(fit) - mean) / sd, 0.05)


def test_vectors_and_weighted_rows_that_meet_are_solved_together():
    """A level and the effects of groups, vectors both: in turn they creep, 0.01 nats short after 20,000 sweeps.

    With known precisions the means of a factorised Gaussian are those of the exact posterior.
    """
    rng = np.random.default_rng(0)
    y, where, weight = 50.0 + rng.normal(size=(200, 2)), rng.integers(0, 5, 200), rng.integers(0, 3, 200)
    row, group = ng.Plate("row", 200, weight=weight), ng.Plate("group", 5)
    level = ng.MultivariateNormal("level", np.zeros(2), 1e-4 * np.eye(2))
    effect = ng.MultivariateNormal("effect", np.zeros(2), 1e-2 * np.eye(2), plate=group)
    network = ng.Network(ng.MultivariateNormal("y", level + effect[where], np.eye(2), plate=row, observed=y))
    assert joint_groups(network.problem) == (("level", "effect"),)
    fit = network.fit()
    design = np.column_stack([np.ones(200), where[:, None] == np.arange(5)])
    precision = design.T @ (weight[:, None] * design) + np.diag([1e-4, *[1e-2] * 5])
    mean = np.linalg.solve(precision, design.T @ (weight[:, None] * y))
    assert len(fit.trace) < 10
    found = np.vstack([fit["level"].mean(), fit["effect"].mean()])
    np.testing.assert_array_less(np.abs(found - mean) * np.sqrt(np.diag(precision))[:, None], 0.01)


def test_products_of_two_hidden_nodes_are_never_solved_together():
    row, column = ng.Plate("row", 4), ng.Plate("column", 3)
    u = ng.Normal("u", 0.0, 1.0, plate=row)
    v = ng.Normal("v", ng.Normal("top", 0.0, 1.0), 1.0, plate=column)
    y = ng.Normal("y", u * v, 1.0, plate=(row, column), observed=np.ones((4, 3)))
    assert joint_groups(ng.Network(y).problem) == (("top", "v"),)
