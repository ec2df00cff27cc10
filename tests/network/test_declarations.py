"""Unusual but valid declarations: they mean what they say, fit sensibly, and leave the user's arrays alone."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import PlateMismatch

pd = pytest.importorskip("pandas")

DROP = 1e-9  # a bound that falls by less is rounding
RNG = np.random.default_rng(1)
Y = np.concatenate([RNG.normal(-2, 0.5, 10), RNG.normal(2, 1.0, 10)])
INDEX = RNG.integers(0, 3, 20)


def n(**options):
    return ng.Plate("n", 20, **options)


def k(name="k", size=2):
    return ng.Plate(name, size)


def dirichlet(name="a", size=2, **options):
    return ng.Dirichlet(name, 1.0, size=size, **options)


def normal(name="mu", **options):
    return ng.Normal(name, 0.0, 0.1, **options)


def gamma(name="tau", **options):
    return ng.Gamma(name, 1.0, 1.0, **options)


def fit(*leaves, max_steps=15, **options):
    result = ng.Network(*leaves).fit(max_steps=max_steps, tol=0, **options)
    bound = result.trace["elbo"]
    assert np.isfinite(bound).all()
    assert (np.diff(bound) >= -DROP * np.abs(bound[1:])).all()
    return result


def last(result):
    """The bound after the last step, from the trace: no need to compile it once more."""
    return result.trace["elbo"][-1]


# -- the same data in many forms --

FORMS = {
    "list": [1, 0, 1],
    "tuple": (1.0, 0.0, 1.0),
    "int8": np.array([1, 0, 1], dtype=np.int8),
    "uint64": np.array([1, 0, 1], dtype=np.uint64),
    "float32": np.array([1, 0, 1], dtype=np.float32),
    "boolean": np.array([True, False, True]),
    "every second": np.array([1, 9, 0, 9, 1])[::2],
    "Series": pd.Series([1, 0, 1], index=[7, 8, 9]),
    "nullable Series": pd.Series([1, 0, 1], dtype="Int64"),
    "unmasked": np.ma.array([1, 0, 1]),
}
MISSING = {
    "NaN": [1, np.nan, 1],
    "None": [1, None, 1],
    "masked": np.ma.array([1, 5, 1], mask=[False, True, False]),
    "nullable Series": pd.Series([1, None, 1], dtype="Int64"),
}
LEAVES = {
    "Normal": lambda **o: ng.Normal("y", 0.0, 1.0, **o),
    "Categorical": lambda **o: ng.Categorical("y", [0.5, 0.5], **o),
    "Bernoulli": lambda **o: ng.Bernoulli("y", 0.5, **o),
    "Poisson": lambda **o: ng.Poisson("y", 1.0, **o),
}


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
def test_forms_of_data(leaf):
    plate = ng.Plate("n", np.int32(3))
    for form in FORMS.values():
        node = leaf(plate=[plate], observed=form)
        assert node.value.tolist() == [1, 0, 1]
        assert node.mask is None
    for form in MISSING.values():
        node = leaf(plate=(plate,), observed=form)
        assert node.value[[0, 2]].tolist() == [1, 1]
        assert node.mask.tolist() == [1, 0, 1]
    assert leaf(plate=plate, observed=[1, 7, 1], mask=[True, False, True]).mask.tolist() == [1, 0, 1]
    assert leaf(observed=np.array(1)).value == 1


def test_tables_and_masked_rows():
    values = np.arange(6.0).reshape(3, 2)
    for observed in (pd.DataFrame(values), values.tolist(), np.asfortranarray(values)):
        node = ng.MultivariateNormal("y", 0.0, 1.0, plate=ng.Plate("n", 3), observed=observed)
        np.testing.assert_array_equal(node.value, values)
    hidden = np.zeros((3, 2), dtype=bool)
    hidden[1] = True
    node = ng.MultivariateNormal("y", 0.0, 1.0, plate=ng.Plate("n", 3), observed=np.ma.array(values, mask=hidden))
    assert node.mask.tolist() == [1, 0, 1]
    hidden[1, 0] = False
    node = ng.MultivariateNormal("y", 0.0, 1.0, plate=ng.Plate("n", 3), observed=np.ma.array(values, mask=hidden))
    assert node.entries.tolist() == [[1, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize("index", [INDEX.astype(np.int8), INDEX.tolist(), pd.Series(INDEX), INDEX.astype(np.uint64)])
def test_forms_of_indices(index):
    values = (
        ng.Normal("y", normal(plate=k("g", 3))[index], 1.0, plate=n(), observed=Y)
        .parameters["mean"]
        .selectors[0]
        .values
    )
    np.testing.assert_array_equal(values, INDEX)


# -- the user's arrays --


def arrays():
    rng = np.random.default_rng(0)
    return {
        "weight": rng.random(20),
        "observed": Y.copy(),
        "mask": rng.random(20) < 0.9,
        "offset": rng.normal(size=20),
        "rows": rng.normal(size=(20, 3)),
        "prior": 2.0 * np.eye(3),
        "index": INDEX.copy(),
        "concentration": np.ones(2),
        "start": np.array([-1.0, 1.0]),
    }


def declared(given):
    plate = n(weight=given["weight"])
    z = ng.Categorical("z", ng.Dirichlet("a", given["concentration"]), plate=plate)
    w = ng.MultivariateNormal("w", np.zeros(3), given["prior"])
    group = normal("g", plate=k("g", 3))
    mean = normal(plate=k())[z] + ng.dot(given["rows"], w) + group[given["index"]] + given["offset"]
    y = ng.Normal("y", mean, gamma(), plate=plate, observed=given["observed"], mask=given["mask"])
    return ng.Network(y)


def test_inputs_are_neither_modified_nor_aliased():
    given, untouched = arrays(), arrays()
    network = declared(given)
    result = network.fit(init={"mu": given["start"]}, max_steps=5, tol=0)
    for name, array in given.items():
        np.testing.assert_array_equal(array, untouched[name], err_msg=name)
    again = declared(given)
    for array in given.values():
        array[...] = 0  # the declaration has copies, so this changes nothing
    other = again.fit(init={"mu": untouched["start"]}, max_steps=5, tol=0)
    assert last(other) == last(result)
    for node in network.nodes.values():
        assert node.value is None or not node.value.flags.writeable


def test_a_start_is_copied():
    start = np.array([-1.0, 1.0])
    z = ng.Categorical("z", [0.5, 0.5], plate=n())
    network = ng.Network(ng.Normal("y", normal(plate=k())[z], 1.0, plate=n(), observed=Y))
    result = network.fit(init={"mu": start}, max_steps=1, callbacks=[lambda seen: start.fill(np.nan)])
    assert np.isfinite(last(result))


# -- gates: a category chooses everything at once, whatever plate it chooses from --


def test_two_plates_of_components_are_as_good_as_one():
    def bound(other):
        z = ng.Categorical("z", dirichlet(), plate=n())
        y = ng.Normal("y", normal(plate=k())[z], gamma(plate=k(other))[z], plate=n(), observed=Y)
        return fit(y, init={"mu": [-1.0, 1.0]}).trace["elbo"]

    np.testing.assert_allclose(bound("j"), bound("k"), rtol=1e-12)


def test_one_category_on_both_axes_chooses_the_diagonal():
    z = ng.Categorical("z", [0.5, 0.5], plate=n())
    square = normal("B", plate=(k("i"), k("j")))
    one = fit(ng.Normal("y", square[z, z], 1.0, plate=n(), observed=Y), init={"B": np.diag([-1.0, 1.0])})
    line = normal("B", plate=k("i"))
    other = fit(ng.Normal("y", line[z], 1.0, plate=n(), observed=Y), init={"B": [-1.0, 1.0]})
    assert last(one) == pytest.approx(last(other), rel=1e-12)
    np.testing.assert_allclose(np.diag(one["B"].mean()), other["B"].mean(), rtol=1e-10)
    np.testing.assert_allclose(one["B"].mean()[[0, 1], [1, 0]], 0.0, atol=1e-12)


def test_two_gathers_of_a_category_are_told_apart():
    def bound(other):
        z = ng.Categorical("z", [0.5, 0.5], plate=ng.Plate("p", 5))
        i = np.arange(20) % 5
        mean = normal(plate=k())[z[i]] + normal("nu", plate=k(other))[z[(i + 1) % 5]]
        return last(fit(ng.Normal("y", mean, 1.0, plate=n(), observed=Y), init={"mu": [-1, 1], "nu": [0.5, -0.5]}))

    assert bound("k") == pytest.approx(bound("j"), rel=1e-12)


def gated_means():
    z = ng.Categorical("z", dirichlet(), plate=n())
    w = ng.Categorical("w", dirichlet("b", 3), plate=n())
    state = ng.Categorical("s", dirichlet("c", 2), plate=k("j", 3))
    mu, nu = normal(plate=k()), normal("nu", plate=k("l"))
    return {
        "sum": (mu[z] + nu[z], lambda q: q["mu"][q["z"]] + q["nu"][q["z"]]),
        "product": (mu[z] * nu[z], lambda q: q["mu"][q["z"]] * q["nu"][q["z"]]),
        "nested": (mu[state[w]] + nu[z], lambda q: q["mu"][q["s"][q["w"]]] + q["nu"][q["z"]]),
    }


@pytest.mark.parametrize("name", gated_means())
def test_expected_log_density_of_gates_by_sampling(name):
    mean, value = gated_means()[name]
    result = fit(ng.Normal("y", mean, 0.7, plate=n(), observed=Y), init="random", max_steps=3)
    rng, draws = np.random.default_rng(0), []
    for _ in range(1000):
        drawn = value({node: result[node].sample(rng) for node in result})
        draws.append((0.5 * np.log(0.7 / (2 * np.pi)) - 0.35 * (Y - drawn) ** 2).sum())
    # Four standard errors of the average.
    assert result.elbo_by_node()["y"] == pytest.approx(np.mean(draws), abs=4 * np.std(draws) / np.sqrt(len(draws)))


# -- equal declarations, equal fits --


def test_a_known_matrix_times_a_vector_has_the_evidence_of_its_closed_form():
    matrix, shift, y = (
        np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]]),
        np.array([1.0, 0.0, 0.0]),
        np.array([1.0, -2.0, 0.5]),
    )
    w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    fit = ng.Network(ng.MultivariateNormal("x", matrix @ w + shift, 2 * np.eye(3), observed=y)).fit()
    precision = np.eye(2) + 2 * matrix.T @ matrix
    np.testing.assert_allclose(fit["w"].mean(), np.linalg.solve(precision, 2 * matrix.T @ (y - shift)), rtol=1e-12)
    spread = np.eye(3) / 2 + matrix @ matrix.T
    errors = (y - shift) @ np.linalg.solve(spread, y - shift)
    np.testing.assert_allclose(fit.elbo, -0.5 * (errors + np.linalg.slogdet(2 * np.pi * spread)[1]), rtol=1e-12)


def test_missing_values_are_absent_rows():
    holes = np.arange(20) % 4 == 0
    kept = ng.Plate("n", int((~holes).sum()))
    other = last(fit(ng.Normal("y", normal(), gamma(), plate=kept, observed=Y[~holes])))
    forms = [{"observed": np.where(holes, np.nan, Y)}, {"observed": np.ma.array(Y, mask=holes)}]
    for form in [*forms, {"observed": Y, "mask": ~holes}]:
        assert last(fit(ng.Normal("y", normal(), gamma(), plate=n(), **form))) == pytest.approx(other, rel=1e-10)


def test_starts_of_a_category():
    z = ng.Categorical("z", dirichlet(), plate=n())
    network = ng.Network(ng.Normal("y", normal(plate=k())[z], gamma(), plate=n(), observed=Y))
    labels = (Y > 0).astype(int)
    bounds = [
        last(network.fit(init={"z": start}, order=["mu", "tau", "a", "z"], max_steps=40, tol=0))
        for start in (labels, labels.astype(float), np.eye(2, dtype=int)[labels], 0.8 * np.eye(2)[labels] + 0.1)
    ]
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-8)


def test_names_carry_no_meaning():
    def bound(point, component, category, mean):
        plate = ng.Plate(point, 20)
        z = ng.Categorical(category, [0.5, 0.5], plate=plate)
        mu = normal(mean, plate=ng.Plate(component, 2))
        return last(fit(ng.Normal("y", mu[z], 1.0, plate=plate, observed=Y), init="kmeans"))

    assert bound("a|b'0", "k[0]", "z|[1]", "weight:n") == bound("n", "k", "z", "mu")


def test_plates_of_one_name_and_size_are_one_plate():
    y = ng.Normal("y", normal(plate=n()), 1.0, plate=n(), observed=Y)
    assert fit(y)["mu"].mean().shape == (20,)
    with pytest.raises(PlateMismatch, match="different weights"):
        ng.Network(ng.Normal("y", normal(plate=n(weight=np.ones(20))), 1.0, plate=n(), observed=Y))


# -- a zoo: every one of them fits, and its bound never falls --


def zoo():
    table = Y.reshape(4, 5)
    row, column = ng.Plate("row", 4), ng.Plate("column", 5)
    pairs = np.triu_indices(6, 1)
    people = ng.Categorical("z", dirichlet(), plate=ng.Plate("p", 6))
    links = ng.Beta("B", 1.0, 1.0, plate=(k("i"), k("j")))
    holes = np.where(np.arange(20).reshape(4, 5) == 7, np.nan, table)
    rates = gamma("r", plate=(k("i"), k("j")))
    cells = [ng.Categorical(c, dirichlet("p" + c), plate=p) for c, p in (("z", row), ("w", column))]
    weighted = [ng.Plate("row", 4, weight=[1, 2, 0, 1]), ng.Plate("column", 5, weight=[1, 1, 3, 1, 0.5])]
    two = [normal(name, plate=plate) for name, plate in zip("ab", weighted, strict=True)]
    factors = [ng.Normal(name, 0.0, 1.0, plate=(plate, k("f"))) for name, plate in (("u", row), ("v", column))]
    skill = ng.Normal("s", 0.0, 1.0, plate=k("g", 3))
    middle = ng.Exponential("mid", gamma("top"), plate=k())
    chain = ng.MarkovChain("z", dirichlet("i"), dirichlet("A", plate=k()), plate=n(), lengths=np.array([12, 8]))
    vector = ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    mean = normal()
    return {
        "links": ng.Bernoulli("y", links[people[pairs[0]], people[pairs[1]]], plate=ng.Plate("e", 15), observed=[1, 0, 1] * 5),
        "two-way clusters": ng.Poisson("y", rates[cells[0], cells[1]], plate=(row, column), observed=np.round(np.abs(table))),
        "index on two plates": ng.Normal("y", skill[INDEX.reshape(4, 5)], gamma(), plate=[row, column], observed=table),
        "half an index": ng.Normal(
            "y", normal(plate=(k("g", 3), column))[[0, 1, 2, 0]], gamma(plate=row), plate=(row, column), observed=table
        ),
        "single elements": ng.Normal("y", skill[1] - skill[np.int8(2)], 1.0, plate=n(), observed=Y),
        "differences": ng.Normal("y", skill[INDEX] - 2 * skill[(INDEX + 1) % 3] / 3, 1.0, plate=n(), observed=Y),
        "scaled vector": ng.MultivariateNormal(
            "y", mean * vector, gamma() * ng.Wishart("W", 3, np.eye(2)), plate=k("n", 10), observed=Y.reshape(10, 2)
        ),
        "weighted plates": ng.Normal("y", two[0] + two[1], gamma(), plate=weighted, observed=table),
        "factors with a hole": ng.Normal("y", ng.dot(*factors, over=k("f")), gamma(), plate=(row, column), observed=holes),
        "rates of rates": ng.Exponential(
            "y", ng.Gamma("r", [2.0, 3.0], 2 * middle, plate=k())[INDEX % 2], plate=n(), observed=np.abs(Y)
        ),
        "sequences end to end": ng.Normal("y", normal(plate=k())[chain], gamma(plate=k("j"))[chain], plate=n(), observed=Y),
        "two leaves": (
            ng.Normal("y", mean, 1.0, plate=n(), observed=Y),
            ng.Normal("x", mean + 1, gamma(), plate=column, observed=Y[:5]),
        ),
        "nothing hidden": ng.Normal("y", 0.0, 1.0, plate=n(), observed=Y),
    }  # fmt: skip


@pytest.mark.parametrize("name", zoo())
def test_zoo(name):
    leaves = zoo()[name]
    fit(*(leaves if isinstance(leaves, tuple) else (leaves,)), init="random")
