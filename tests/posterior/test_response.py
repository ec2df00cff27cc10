"""Linear response: exact for Gaussians, the derivative of a fit under a tilt for everything else."""

import warnings
from typing import Any

import numpy as np
import pytest
from promises.networks import CASES

import natgrad as ng
from natgrad.errors import NotAtMaximum, NotConverged, PoorApproximation
from natgrad.inference.problem import State

TIGHT = {"tol": 1e-13, "max_steps": 300}


def regression(seed: int = 0, order: Any = None, names: str = "abc", scale: float = 1.0, shift: float = 0.0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3)) + np.array([0.0, 0.0, 4.0])
    x[:, 1] = 0.9 * x[:, 0] + 0.2 * x[:, 1]
    y = x @ [1.0, 2.0, -1.0] + rng.normal(size=40)
    coefficients = [ng.Normal(names[i], 0.0, 0.01 / scale**2) for i in range(3)]
    mean = sum(coefficients[i] * x[:, i] for i in order or range(3)) + shift
    node = ng.Normal("y", mean, 2.0 / scale**2, plate=ng.Plate("n", 40), observed=scale * y + shift)
    covariance = scale**2 * np.linalg.inv(0.01 * np.eye(3) + 2.0 * x.T @ x)
    return ng.Network(node, joint=None), covariance, x, y


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_factorised_regression_has_the_exact_covariance(backend):
    network, covariance, x, y = regression()
    fit = network.fit(backend=backend, tol=1e-13)
    lr = fit.linear_response()
    sd = np.sqrt(np.diag(covariance))
    assert min(float(fit[n].std()) / s for n, s in zip("abc", sd, strict=True)) < 0.3  # what there is to repair
    for i, first in enumerate("abc"):
        np.testing.assert_allclose(lr[first].std(), sd[i], rtol=1e-8)
        for j, second in enumerate("abc"):
            np.testing.assert_allclose(lr.cov(first, second), covariance[i, j], rtol=1e-7, atol=1e-9)
    contrast = np.array([1.0, -1.0, 0.0])
    np.testing.assert_allclose(lr.std(lambda m: m["a"] - m["b"]), np.sqrt(contrast @ covariance @ contrast), rtol=1e-7)
    residual = y - x @ (covariance @ (2.0 * x.T @ y))
    np.testing.assert_allclose(lr.influence("a")["y"], 2.0 * (x @ covariance[0]) * residual, atol=1e-7)


def test_names_order_and_units_do_not_matter():
    for options in ({"order": [2, 0, 1]}, {"names": "wvu"}, {"scale": 1e6}, {"scale": 1e-6}, {"shift": 1e6}):
        network, wanted, _, _ = regression(**options)
        lr = network.fit(tol=1e-13).linear_response()
        found = [float(lr[n].std()) for n in options.get("names", "abc")]
        np.testing.assert_allclose(found, np.sqrt(np.diag(wanted)), rtol=1e-7, err_msg=str(options))


def converged(name: str, backend: Any = "numpy") -> Any:
    case = CASES[name]()
    return case.network.fit(init=case.init, order=case.order, backend=backend, **TIGHT)


def ascend(problem: Any, state: State, tilt: dict[str, tuple], sweeps: int = 400) -> State:
    """Coordinate ascent on the bound of the tilted log joint: a message of its own for one block."""
    zero = {n: tuple(np.zeros(np.shape(p)) for p in state.lam[n]) for n in problem.blocks}
    extra = {**zero, **tilt}
    for _ in range(sweeps):
        old = state
        for name, block in problem.blocks.items():
            for number in range(block.n_columns):
                column = number if block.column_axis is not None else None
                target = problem.target(block, state, column=column)
                added = (
                    extra[name] if column is None else tuple(np.take(e, number, block.column_axis) for e in extra[name])
                )
                rho = 1.0 if block.colours is None else (block.colours == number).astype(float)
                target = tuple(t + e for t, e in zip(target, added, strict=True))
                state, _ = problem.step_block(block, state, target, rho, column)
        moved = max(
            np.abs(np.asarray(a) - np.asarray(b)).max() / (1e-300 + np.abs(np.asarray(b)).max())
            for n in problem.blocks
            for a, b in zip(state.lam[n], old.lam[n], strict=True)
        )
        if moved < 1e-12:
            break
    return state


TILTED = [
    ("scalar_mixture", "mu", ("mu", "tau")),
    ("counts", "theta", ("rate", "theta")),
    pytest.param("hmm", "tau", ("mu", "tau", "A", "pi"), marks=pytest.mark.slow),
    pytest.param("several", "a", ("a", "b"), marks=pytest.mark.slow),
    pytest.param("skills", "skill", ("skill", "noise"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("case", "name", "others"), TILTED)
def test_it_is_the_derivative_of_the_fit_under_a_tilt(case, name, others):
    fit = converged(case)
    problem = fit.problem
    lr = fit.linear_response()
    mean = fit[name].mean()
    place = (0,) * mean.ndim
    step = 1e-3 / float(np.ravel(fit[name].std())[0])
    ends = []
    for sign in (1.0, -1.0):
        tilt = np.zeros(mean.shape)
        tilt[place] = sign * step
        rest = tuple(np.zeros(np.shape(p)) for p in fit.state.lam[name][1:])
        lam = ascend(problem, fit.state, {name: (tilt, *rest)}).lam
        ends.append({n: problem.blocks[n].family.mean(lam[n]) for n in others})
    for other in others:
        slope = (ends[0][other] - ends[1][other]) / (2.0 * step)
        # In units of standard deviations: a correlation to 1e-6.
        unit = float(np.ravel(lr[name].std())[0]) * lr[other].std()
        np.testing.assert_allclose(
            lr.cov(lambda m: m[name][place], other) / unit, slope / unit, atol=2e-6, rtol=1e-5, err_msg=other
        )


def test_an_element_of_weight_w_is_w_elements():
    from promises.networks import lda

    found = []
    for counts in (True, False):
        case = lda(counts=counts)
        fit = case.network.fit(init=case.init, order=case.order, backend="numpy", tol=1e-7, max_steps=150)
        found.append(fit.linear_response())
    quantity = [lambda m: m["phi"][:, :2], lambda m: m["theta"][0]]
    for function in quantity:
        np.testing.assert_allclose(found[0].std(function), found[1].std(function), rtol=1e-6)
    # There is something to find: phi and theta are correlated, and q has them apart.
    assert np.abs(found[0].correlation(*quantity)).max() > 0.1


def test_weights_of_data_are_copies_of_rows():
    rng = np.random.default_rng(1)
    y, x, weight = rng.normal(size=6), rng.normal(size=6), np.array([1.0, 3.0, 2.0, 1.0, 1.0, 2.0])
    copies = np.repeat(np.arange(6), weight.astype(int))

    def sd(rows: Any, weight: Any) -> tuple[Any, Any]:
        plate = ng.Plate("n", len(rows), weight=weight)
        a, b, tau = ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        node = ng.Normal("y", a + b * x[rows], tau, plate=plate, observed=y[rows])
        lr = ng.Network(node).fit(tol=1e-13).linear_response()
        return np.array([lr[n].std() for n in ("a", "b", "tau")]), lr.influence("b")["y"]

    (whole, influence), (repeated, each) = sd(np.arange(6), weight), sd(copies, None)
    np.testing.assert_allclose(whole, repeated, rtol=1e-7)
    np.testing.assert_allclose(influence, np.bincount(copies, each), atol=1e-7)


def test_influence_is_the_derivative_by_the_weight_of_a_row():
    rng = np.random.default_rng(2)
    y, x = rng.normal(size=8), rng.normal(size=8)

    def fitted(weight: Any) -> Any:
        plate = ng.Plate("n", 8, weight=weight)
        a, b, tau = ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", a + b * x, tau, plate=plate, observed=y)).fit(tol=1e-14, max_steps=3000)

    found = fitted(np.ones(8)).linear_response().influence("tau")["y"]
    step, unit = 1e-4, np.eye(8)
    for row in range(3):
        ends = [float(fitted(np.ones(8) + sign * step * unit[row])["tau"].mean()) for sign in (1, -1)]
        np.testing.assert_allclose(found[row], (ends[0] - ends[1]) / (2 * step), atol=1e-6)


@pytest.mark.slow
def test_influence_foretells_what_leaving_a_row_out_changes():
    """Every row of a regression with unknown noise left out in turn, by its weight, and the fit made again."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=40) + 2.0
    y = 1.0 + 0.5 * x + rng.normal(size=40)

    def mean(weight: Any) -> Any:
        plate = ng.Plate("n", 40, weight=weight)
        a, b, tau = ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", a + b * x, tau, plate=plate, observed=y)).fit(tol=1e-10)

    whole = mean(np.ones(40))
    for name in ("b", "tau"):
        foretold = -whole.linear_response().influence(name)["y"]
        found = np.array([float(mean(1.0 - row)[name].mean() - whole[name].mean()) for row in np.eye(40)])
        assert np.corrcoef(foretold, found)[0, 1] > 0.98, name
        assert 0.9 < foretold @ found / (foretold @ foretold) < 1.3, name


def test_contraction_is_the_rate_of_sweeps():
    """D scalars with equal coupling r: sweeps of two contract by r²."""
    n = ng.Plate("n", 4)
    a, b = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0)
    fit = ng.Network(ng.Normal("y", a + b, 1.0, plate=n, observed=[1.0, 2.0, 0.5, 1.5]), joint=None).fit()
    r = 4.0 / 5.0
    np.testing.assert_allclose(fit.linear_response().contraction, r**2, rtol=1e-3)


def many(n: int = 260) -> ng.Network:
    """A level and a slope shared by many groups: hundreds of elements, and an exact answer by the matrix."""
    rng = np.random.default_rng(0)
    group = ng.Plate("group", n)
    level = ng.Normal("level", 0.0, 0.1)
    theta = ng.Normal("theta", level + ng.Normal("slope", 0.0, 0.1) * rng.normal(size=n), 1.0, plate=group)
    return ng.Network(ng.Normal("y", theta, rng.uniform(0.2, 2.0, n), plate=group, observed=rng.normal(size=n)))


def crossed(n: int = 260, each: int = 4) -> tuple[ng.Network, np.ndarray]:
    """Two sets of effects that meet in few observations: no direction carries much, and the exact answer is an inverse."""
    rng = np.random.default_rng(0)
    one, two = (np.concatenate([rng.permutation(n) for _ in range(each)]) for _ in range(2))
    row = ng.Plate("row", n * each)
    a, b = (ng.Normal(name, 0.0, 1.0, plate=ng.Plate(f"of {name}", n)) for name in "ab")
    node = ng.Normal("y", a[one] + b[two], 1.0, plate=row, observed=rng.normal(size=n * each))
    design = np.concatenate([np.eye(n)[one], np.eye(n)[two]], axis=1)
    return ng.Network(node), np.sqrt(np.diagonal(np.linalg.inv(np.eye(2 * n) + design.T @ design)))[:n]


def test_probing_is_as_good_as_it_says():
    network, wanted = crossed()
    fit = network.fit(tol=1e-12)
    assert (fit["a"].std() / wanted).max() < 0.95  # what there is to find
    for probes in (8, 64):
        probed = fit.linear_response(probes=probes)
        error = probed["a"].std_error()
        assert error.min() > 0
        assert np.median(error / wanted) < 0.13 / np.sqrt(probes)
        assert 0.6 < np.sqrt(np.mean(((probed["a"].std() - wanted) / error) ** 2)) < 1.5
    np.testing.assert_allclose(probed.std(lambda m: m["a"][7]), wanted[7], rtol=1e-6)


def test_what_few_directions_carry_needs_few_probes():
    """A level and a slope are all that groups have in common: two directions, and nothing random is left."""
    fit = many().fit(tol=1e-12)
    exact, probed = fit.linear_response(exact=True), fit.linear_response(probes=12)
    assert np.all(exact["theta"].std_error() == 0.0)
    np.testing.assert_allclose(probed["theta"].std(), exact["theta"].std(), rtol=1e-4)
    assert (probed["theta"].std_error() / exact["theta"].std()).max() < 1e-3


def test_what_all_elements_share_needs_no_probes():
    """With a level alone, what groups have in common is all that is not their own: one solve, and an exact answer."""
    rng, group = np.random.default_rng(0), ng.Plate("group", 260)
    theta = ng.Normal("theta", ng.Normal("level", 0.0, 0.1), 1.0, plate=group)
    fit = ng.Network(ng.Normal("y", theta, rng.uniform(0.2, 2.0, 260), plate=group, observed=rng.normal(size=260))).fit(
        tol=1e-12
    )
    exact, probed = fit.linear_response(exact=True), fit.linear_response(probes=2)
    np.testing.assert_allclose(probed["theta"].std(), exact["theta"].std(), rtol=1e-6)


def test_a_saddle_is_not_a_maximum():
    """Two equal components: the bound rises when they part."""
    y = np.r_[np.full(20, -3.0), np.full(20, 3.0)]
    point, component = ng.Plate("point", 40), ng.Plate("component", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=point)
    mu = ng.Normal("mu", 0.0, 0.1, plate=component)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=point, observed=y))
    fit = network.fit(init={"mu": [-1e-9, 1e-9]}, order=["z", "mu"], max_steps=2, tol=0.0)
    with pytest.raises(NotAtMaximum, match="rises along a direction of"):
        fit.linear_response()["mu"].std()


def test_what_has_not_converged_is_said():
    network = regression()[0]
    fit = network.fit(max_steps=1)
    with pytest.warns(NotConverged, match="nats are left to gain"):
        fit.linear_response()
    done = crossed()[0].fit()
    with pytest.warns(NotConverged, match="conjugate gradients stopped after 1 products"):
        done.linear_response(max_iterations=1).std(lambda m: m["a"][0])


def test_a_rotation_is_flat_whatever_its_curvature_looks_like_beside_the_optimum():
    """Curvature along a rotation is below 0 as often as above, by as much as the state is off: no saddle, and no variance."""
    rng = np.random.default_rng(1)
    y = rng.normal(size=(14, 2)) @ rng.normal(size=(2, 10)) + 0.9 * rng.normal(size=(14, 10))
    who, what = np.nonzero(rng.random((14, 10)) < 0.6)
    u = ng.MultivariateNormal("u", np.zeros(2), np.eye(2), plate=ng.Plate("user", 14))
    v = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=ng.Plate("item", 10))
    rating = ng.Plate("rating", len(who))
    node = ng.Normal("r", ng.dot(u[who], v[what]), ng.Gamma("tau", 1.0, 1.0), plate=rating, observed=y[who, what])
    network, spread = ng.Network(node), []
    for tol in (1e-6, 1e-3):
        fit = network.fit(init="random", seed=1, tol=tol)
        lr = fit.linear_response()
        spread.append([float(lr["tau"].std()), float(lr.std(lambda m: m["u"][0] @ m["v"][1]))])
        assert lr["tau"].std() > fit["tau"].std()
        assert 0.01 < spread[-1][1] < 1.0  # what does not change along the rotation
        with pytest.raises(NotAtMaximum, match="flat along a direction of 'u' and 'v'"):
            lr["u"].std()
    np.testing.assert_allclose(spread, [spread[0]] * 2, rtol=1e-4)


def test_a_positive_number_that_is_not_determined_is_said_to_be_so():
    """Vectors may be longer on one side and shorter on the other: a straight line puts ± 20 on precisions of 1."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 25)) + rng.normal(size=(40, 25))
    table[rng.random(table.shape) > 0.4] = np.nan
    model = ng.MatrixFactorization(
        2, verbose=False, tol=1e-9, max_steps=3000, priors=ng.recommenders.FactorPriors(biases=False)
    ).fit(table)
    lr = model.linear_response()
    with pytest.warns(
        PoorApproximation, match=r"2 of 2 standard deviations of 'user_precision' are larger than their means"
    ):
        assert lr["user_precision"].std().max() > lr["user_precision"].mean().max()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lr["noise"].std() < 0.2 * lr["noise"].mean()
        assert lr.std(model.expected([0], [2])) < 1.0


def test_it_reads_like_a_fit():
    pytest.importorskip("pandas")
    fit = CASES["counts"]().network.fit(backend="numpy", tol=1e-12)
    lr = fit.linear_response(["theta", "rate"])
    low, high = lr["theta"].interval(0.9)
    assert np.all(low > 0)
    assert np.all(low < fit["theta"].mean())
    assert np.all(high > fit["theta"].interval(0.9)[1])
    np.testing.assert_array_equal(lr["theta"].mean(), fit["theta"].mean())
    np.testing.assert_allclose(lr["theta"].var(), lr["theta"].std() ** 2)
    draws = lr.sample(0, 20_000)
    np.testing.assert_allclose(draws["theta"].std(0), lr["theta"].std(), rtol=0.05)
    np.testing.assert_allclose(
        np.corrcoef(draws["rate"], draws["theta"][:, 0])[0, 1], lr.correlation("rate", "theta")[0], atol=0.05
    )
    assert lr["theta"].sample(np.random.default_rng(1)).shape == (4,)
    assert lr["theta"].sample(1, 3).shape == (3, 4)
    table = lr.to_pandas()
    np.testing.assert_allclose(table.loc["theta[2]", "sd"], lr["theta"].std()[2])
    assert lr.to_arviz(n=10).posterior["theta"].shape == (1, 10, 4)
    with pytest.raises(KeyError, match="not a hidden node"):
        lr["y"]
    with pytest.raises(KeyError, match="observed"):
        fit.linear_response(["x"])


def test_a_function_counts_as_it_is_near_the_means():
    """Far away it may be constant: on which of many elements it depends is found by small steps."""
    group = ng.Plate("group", 40)
    x = ng.Normal("x", 0.0, 1.0, plate=group)
    fit = ng.Network(ng.Normal("y", x, 2.0, plate=group, observed=np.arange(40.0) / 20)).fit()
    mean, lr = float(fit["x"].mean()[17]), fit.linear_response()
    found = lr.std(lambda m: np.where(np.abs(m["x"][17] - mean) < 0.1, m["x"][17], mean))
    assert found == pytest.approx(lr["x"].std()[17], rel=1e-5)


def test_an_uncoupled_node_keeps_the_variance_of_q():
    fit = CASES["several"]().network.fit(backend="numpy", tol=1e-12)
    lr = fit.linear_response()
    for name in ("p", "rate", "share"):
        np.testing.assert_allclose(lr[name].std(), fit[name].std(), rtol=1e-10)
        np.testing.assert_allclose(lr[name].interval(0.8), fit[name].interval(0.8), rtol=1e-8)


def test_what_is_missing_of_an_observed_node_is_a_hidden_node():
    rng = np.random.default_rng(0)
    x = rng.normal(size=12)
    y, seen = 1.0 + 2.0 * x + 0.5 * rng.normal(size=12), np.where(np.arange(12) < 3, np.nan, x)

    def parents() -> Any:
        return ng.Normal("m", 0.0, 1.0), ng.Gamma("t", 1.0, 1.0), ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.1)

    m, t, a, b = parents()
    n = ng.Plate("n", 12)
    node = ng.Normal("y", a + b * ng.Normal("x", m, t, plate=n, observed=seen), 4.0, plate=n, observed=y)
    lr = ng.Network(node).fit(tol=1e-11).linear_response()
    m, t, a, b = parents()
    gone, there = ng.Plate("gone", 3), ng.Plate("there", 9)
    leaves = [
        ng.Normal("y1", a + b * ng.Normal("x1", m, t, plate=gone), 4.0, plate=gone, observed=y[:3]),
        ng.Normal("y2", a + b * x[3:], 4.0, plate=there, observed=y[3:]),
        ng.Normal("x2", m, t, plate=there, observed=x[3:]),
    ]
    apart = ng.Network(*leaves).fit(tol=1e-11).linear_response()
    for name in "mtab":
        np.testing.assert_allclose(lr[name].std(), apart[name].std(), rtol=1e-6)
    np.testing.assert_allclose(lr["x"].std(), [*apart["x1"].std(), *np.zeros(9)], rtol=1e-6)
    np.testing.assert_array_equal(lr["x"].interval()[0][3:], x[3:])


def test_auxiliary_nodes_respond_and_are_not_shown():
    """A logistic regression: near a Gaussian with the curvature of its density."""
    rng = np.random.default_rng(0)
    x = 2.0 + rng.normal(size=200)
    y = (rng.random(200) < 1.0 / (1.0 + np.exp(1.0 - 0.7 * x))).astype(int)
    a, b = ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.1)
    fit = ng.Network(ng.Bernoulli("y", logit=a + b * x, plate=ng.Plate("n", 200), observed=y), joint=None).fit(tol=1e-9)
    lr = fit.linear_response()
    assert set(lr) == {"a", "b"}
    rows, mean = np.stack([np.ones(200), x], axis=1), np.array([fit["a"].mean(), fit["b"].mean()])
    p = 1.0 / (1.0 + np.exp(-rows @ mean))
    wanted = np.linalg.inv(0.1 * np.eye(2) + (rows * (p * (1 - p))[:, None]).T @ rows)
    np.testing.assert_allclose([lr["a"].std(), lr["b"].std()], np.sqrt(np.diag(wanted)), rtol=0.02)
    assert fit["b"].std() < 0.5 * lr["b"].std()
