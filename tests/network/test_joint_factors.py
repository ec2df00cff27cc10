"""Several Gaussian nodes in one factor: the same as one vector that was declared, read by the names of the nodes."""

from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch


def data(n: int = 40, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = 5.0 + rng.normal(size=n)
    return x, 1.0 + 0.5 * x + rng.normal(size=n) + shift


def scalars(joint: Any = None, shift: float = 0.0, **options: Any) -> ng.Network:
    x, y = data(shift=shift)
    slope, start = ng.Normal("slope", 0.0, 0.01), ng.Normal("start", 0.3, 0.02)
    tau = ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(
        ng.Normal("y", start + slope * x, tau, plate=ng.Plate("n", 40, **options), observed=y), joint=joint
    )


def vector(shift: float = 0.0, **options: Any) -> ng.Network:
    x, y = data(shift=shift)
    both = ng.MultivariateNormal("both", [0.0, 0.3], np.diag([0.01, 0.02]))
    tau = ng.Gamma("tau", 1.0, 1.0)
    rows = np.stack([x, np.ones(40)], axis=1)
    return ng.Network(ng.Normal("y", ng.dot(both, rows), tau, plate=ng.Plate("n", 40, **options), observed=y))


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("joint", [[("slope", "start")], "auto"])
def test_it_is_the_declared_vector(joint, backend):
    apart, together = scalars().fit(), vector().fit(tol=1e-12)
    fit = scalars(joint).fit(backend=backend, tol=1e-12)
    np.testing.assert_allclose(fit.elbo, together.elbo, rtol=1e-10)
    assert fit.elbo > apart.elbo + 1.0
    np.testing.assert_allclose([fit["slope"].mean(), fit["start"].mean()], together["both"].mean(), rtol=1e-8)
    np.testing.assert_allclose([fit["slope"].std(), fit["start"].std()], together["both"].std(), rtol=1e-8)
    covariance = np.linalg.inv(together["both"].parameters["precision"])
    np.testing.assert_allclose(
        fit.correlation("slope", "start"), covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]), rtol=1e-8
    )
    assert list(fit) == ["slope", "start", "tau"] or set(fit) == {"slope", "start", "tau"}
    assert fit["slope"].family.name == "Normal"
    assert fit.correlation("slope", "tau") == 0.0


def test_it_is_the_default_for_scalars_that_meet():
    x, y = data()
    network = scalars(None)
    assert network.problem.plan.members == {}
    assert set(network.problem.blocks) == {"slope", "start", "tau"}
    assert set(ng.Network(network.nodes["y"]).problem.blocks) == {"start+slope", "tau"}
    assert set(network.with_joint("auto").problem.blocks) == {"start+slope", "tau"}
    assert set(network.problem.blocks) == {"slope", "start", "tau"}  # which is another network
    # Not: products, nodes on plates, too many, flat priors. Declarations with columns as those with arrays.
    row, k = ng.Plate("n", 40), ng.Plate("k", 3)
    a, b, c = (ng.Normal(name, 0.0, 1.0) for name in "abc")
    mixed = ng.Normal("y", a * b + c + ng.Normal("d", 0.0, 1.0, plate=k)[np.arange(40) % 3], 1.0, plate=row, observed=y)
    assert set(ng.Network(mixed).problem.plan.members) in ({"a", "c"}, {"b", "c"})
    many = [ng.Normal(f"w{i}", 0.0, 1.0) for i in range(33)]
    total = many[0] + many[1]
    for node in many[2:]:
        total = total + node
    groups = {
        m.joint for m in ng.Network(ng.Normal("y", total, 1.0, plate=row, observed=y)).problem.plan.members.values()
    }
    assert [name.count("+") + 1 for name in groups] == [32]
    column = ng.Network(ng.Normal("y", a + b * ng.Column("x"), 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    assert set(column.bind({"x": x, "y": y}).problem.blocks) == {"a+b"}


def test_data_far_from_zero_and_weights():
    # The means are a fifth of their standard deviation: 1e-7 of them are 2e-16 nats, far below the rounding of the bound.
    far, wanted = scalars([("slope", "start")], shift=1e4).fit(tol=1e-16), vector(shift=1e4).fit(tol=1e-16)
    np.testing.assert_allclose(far.elbo, wanted.elbo, rtol=1e-9)
    np.testing.assert_allclose([far["slope"].mean(), far["start"].mean()], wanted["both"].mean(), rtol=1e-7)
    np.testing.assert_allclose([far["slope"].std(), far["start"].std()], wanted["both"].std(), rtol=1e-7)
    weight = np.random.default_rng(1).integers(1, 4, 40).astype(float)
    np.testing.assert_allclose(
        scalars("auto", weight=weight).fit(tol=1e-12).elbo, vector(weight=weight).fit(tol=1e-12).elbo, rtol=1e-10
    )


def test_linear_response_and_summary_and_predictions_read_members():
    fit, together = scalars("auto").fit(tol=1e-12), vector().fit(tol=1e-12)
    lr, wanted = fit.linear_response(), together.linear_response()
    np.testing.assert_allclose([lr["slope"].std(), lr["start"].std()], wanted["both"].std(), rtol=1e-7)
    np.testing.assert_allclose(lr.cov("slope", "tau"), wanted.cov(lambda m: m["both"][0], "tau"), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(
        lr.std(lambda m: m["slope"] - m["start"]), wanted.std(lambda m: m["both"][0] - m["both"][1]), rtol=1e-6
    )
    assert set(fit.summary().rows) == {"slope", "start", "tau"}
    slope, start = (fit.problem.plan.declared[name] for name in ("slope", "start"))
    new = fit.predictive("y", mean=start + slope * np.array([5.0, 9.0]))
    both = together.problem.plan.declared["both"]
    other = together.predictive("y", mean=ng.dot(both, np.array([[5.0, 1.0], [9.0, 1.0]])))
    np.testing.assert_allclose(new.mean(), other.mean(), rtol=1e-7)
    np.testing.assert_allclose(new.std(), other.std(), rtol=0.06)  # 2,000 draws
    drawn = fit.draws(n=200, chains=2, verbose=False)
    np.testing.assert_allclose(drawn["slope"].mean(), fit["slope"].mean(), atol=4 * float(fit["slope"].std()))


def test_plates_and_vectors_can_be_joined():
    """An intercept and two slopes for each group, declared as a number and a vector."""
    rng = np.random.default_rng(2)
    group = rng.integers(0, 4, 60)
    x = 2.0 + rng.normal(size=(60, 2))
    y = rng.normal(size=60) + x.sum(1)
    rows, groups = ng.Plate("row", 60), ng.Plate("group", 4)

    def network(joined: bool) -> ng.Network:
        if joined:
            a = ng.Normal("a", 0.5, 0.5, plate=groups)
            b = ng.MultivariateNormal("b", np.zeros(2), np.eye(2), plate=groups)
            node = ng.Normal("y", a[group] + ng.dot(b[group], x), 1.0, plate=rows, observed=y)
            return ng.Network(node, joint=[(a, b)])
        both = ng.MultivariateNormal("both", [0.5, 0.0, 0.0], np.diag([0.5, 1.0, 1.0]), plate=groups)
        wide = np.concatenate([np.ones((60, 1)), x], axis=1)
        return ng.Network(ng.Normal("y", ng.dot(both[group], wide), 1.0, plate=rows, observed=y))

    fit, wanted = network(True).fit(tol=1e-12), network(False).fit(tol=1e-12)
    np.testing.assert_allclose(fit.elbo, wanted.elbo, rtol=1e-10)
    np.testing.assert_allclose(fit["a"].std(), wanted["both"].std()[:, 0], rtol=1e-8)
    np.testing.assert_allclose(fit["b"].mean(), wanted["both"].mean()[:, 1:], rtol=1e-7)


def test_hierarchies_keep_their_parents():
    """Means and precisions above the members are nodes of their own."""
    x, y = data()
    level, spread = ng.Normal("level", 0.0, 0.1), ng.Gamma("spread", 2.0, 2.0)
    slope, start = ng.Normal("slope", level, spread), ng.Normal("start", level, spread)
    node = ng.Normal("y", start + slope * x, 1.0, plate=ng.Plate("n", 40), observed=y)
    apart, joined = (
        ng.Network(node, joint=None).fit(tol=1e-11),
        ng.Network(node, joint=[("slope", "start")]).fit(tol=1e-11),
    )
    assert joined.elbo > apart.elbo + 0.5
    whole = ng.Network(node, joint=[("slope", "start", "level")]).fit(tol=1e-11)
    assert whole.elbo > joined.elbo
    np.testing.assert_allclose(ng.Network(node).fit(tol=1e-11).elbo, whole.elbo, rtol=1e-12)
    lr = ng.Network(node, joint=None).fit(tol=1e-11).linear_response()
    assert abs(float(whole.correlation("slope", "start") - lr.correlation("slope", "start"))) < 0.02


def test_what_cannot_be_joined_says_why():
    _, y = data()
    n, k = ng.Plate("n", 40), ng.Plate("k", 2)
    a, b, tau = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0), ng.Gamma("tau", 1.0, 1.0)
    product = ng.Normal("y", a * b, tau, plate=n, observed=y)
    with pytest.raises(NotConjugate, match="third moments"):
        ng.Network(product, joint=[("a", "b")]).fit()
    assert ng.Network(product, joint="auto").problem.plan.members == {}
    learned = ng.Gamma("learned", ng.GammaShape("shape", 1.0, 1.0), 1.0)
    total = ng.Normal("y", a + b, learned, plate=n, observed=y)
    for joint, error, words in [
        ([("a", "shape")], NotConjugate, "'shape' is a GammaShape; .* a Gamma or a Wishart"),
        ([("a", "y")], ValueError, "'y' is observed"),
        ([("a", "c")], ValueError, "'c' is not in this network"),
        ([("a",)], ValueError, "two nodes or more"),
        (["ab"], TypeError, "a group is a list of nodes"),
        ("a", TypeError, 'joint must be "auto", "full", None or a list of groups'),
        ([("a", "b"), ("b", "a")], ValueError, "is in two groups"),
    ]:
        with pytest.raises(error, match=words):
            ng.Network(total, joint=joint)
    c = ng.Normal("c", 0.0, 1.0, plate=k)
    other = ng.Normal("z", a + c, 1.0, plate=k, observed=[1.0, 2.0])
    with pytest.raises(PlateMismatch, match="different plates"):
        ng.Network(other, joint=[("a", "c")])
