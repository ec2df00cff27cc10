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


PAIRS = np.triu_indices(3, 1)


def products_of_one_node(vectors, prior, y):
    """A latent-space model of a graph of three: E[y_ij] = x_i x_j, or u_i · u_j."""
    node, edge = ng.Plate("node", 3), ng.Plate("edge", 3)
    if vectors:
        x = ng.MultivariateNormal("x", prior, 2.0 * np.eye(2), plate=node)
        mean = ng.dot(x[PAIRS[0]], x[PAIRS[1]])
    else:
        x = ng.Normal("x", prior, 2.0, plate=node)
        mean = x[PAIRS[0]] * x[PAIRS[1]]
    return ng.Network(ng.Normal("y", mean, 3.0, plate=edge, observed=y))


@pytest.mark.parametrize("vectors", [False, True])
def test_a_block_whose_elements_are_multiplied_is_no_group(vectors):
    """Four of its means are in a term: a quadratic step lowered the bound, by up to 700 nats, and ended as converged."""
    network = products_of_one_node(vectors, np.full((3, 2) if vectors else 3, 0.7), [4.0, -3.0, 5.0])
    assert joint_groups(network.problem) == ()
    fit, plain = network.fit(), network.fit(method=ng.VB())
    assert fit.elbo >= plain.elbo - 1e-3
    assert np.diff([record.elbo for record in fit.trace.records]).min() > -1e-9


def test_draws_of_elements_that_are_multiplied_are_from_the_posterior():
    y, prior = np.array([0.8, -0.3, 0.4]), np.array([0.7, 0.5, 0.9])
    draws = products_of_one_node(False, prior, y).fit().draws(2000)["x"].values.reshape(-1, 3)
    grid = np.linspace(-3.5, 3.5, 71)
    x = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    log_joint = -((x - prior) ** 2).sum(axis=1) - 1.5 * ((y - x[:, PAIRS[0]] * x[:, PAIRS[1]]) ** 2).sum(axis=1)
    weight = np.exp(log_joint - log_joint.max()) / np.exp(log_joint - log_joint.max()).sum()
    pairs = draws[:, PAIRS[0]] * draws[:, PAIRS[1]]
    wanted = weight @ np.concatenate([x, x**2, x[:, PAIRS[0]] * x[:, PAIRS[1]]], axis=1)
    # Six standard errors of 8,000 draws that are worth a quarter of it.
    assert np.allclose(np.concatenate([draws, draws**2, pairs], axis=1).mean(axis=0), wanted, atol=6 * 0.8 / 2000**0.5)


@pytest.mark.parametrize("vectors", [False, True])
def test_linear_response_of_elements_that_are_multiplied_is_the_derivative_of_their_means(vectors):
    """Along the prior's own mean: a shift by h is a tilt of 2 h, the precision's multiple of it."""
    prior = np.array([[0.7, 0.2], [0.5, 0.1], [0.9, -0.3]]) if vectors else np.array([0.7, 0.5, 0.9])
    y = [0.8, -0.3, 0.4]
    got = products_of_one_node(vectors, prior, y).fit(tol=1e-12).linear_response()["x"].var()
    for place in np.ndindex(prior.shape):
        shift = np.zeros_like(prior)
        shift[place] = 1e-3
        up, down = (
            products_of_one_node(vectors, prior + s, y).fit(tol=1e-12)["x"].mean()[place] for s in (shift, -shift)
        )
        assert got[place] == pytest.approx((up - down) / 4e-3, rel=1e-4)
