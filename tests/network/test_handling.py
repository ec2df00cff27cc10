"""What one does with declared nodes and their fits: nodes as keys, values that stay, categories that are not numbers."""

import numpy as np
import pytest

import natgrad as ng


@pytest.fixture(scope="module")
def mixture():
    """Nodes by name, and the fit, of a mixture of two."""
    data = np.concatenate([np.linspace(-3, -2, 6), np.linspace(2, 3, 6)])
    n, k = ng.Plate("n", 12), ng.Plate("k", 2)
    mu = ng.Normal("mu", 0.0, 0.01, plate=k)
    z = ng.Categorical("z", [0.25, 0.75], plate=n)
    x = ng.Normal("x", mu[z], 4.0, plate=n, observed=data)
    return {"mu": mu, "z": z, "x": x}, ng.Network(x).fit(init={mu: [-1.0, 1.0]})


def test_nodes_are_keys_as_good_as_their_names(mixture):
    nodes, fit = mixture
    mu, x = nodes["mu"], nodes["x"]
    np.testing.assert_array_equal(fit[mu].mean(), fit["mu"].mean())
    np.testing.assert_array_equal(fit.predictive(x).sample(0, 1), fit.predictive("x").sample(0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(fit.natural_gradient(mu), fit.natural_gradient("mu"), strict=True))
    assert mu in fit
    assert x not in fit
    stranger = ng.Normal("mu", 0.0, 1.0)
    assert stranger not in fit
    with pytest.raises(KeyError, match="<Normal 'mu'> is not in this network"):
        fit[stranger]
    with pytest.raises(KeyError, match="'x' is observed"):
        fit[x]


@pytest.mark.parametrize("name", ["value", "mask", "plates", "parameters", "observed"])
def test_a_declared_node_stays_as_it_is(mixture, name):
    x = mixture[0]["x"]
    with pytest.raises(AttributeError, match=f"'x': {name} cannot be set.*declare it anew"):
        setattr(x, name, np.zeros(12))


def test_categories_have_probabilities_and_no_mean(mixture):
    nodes, fit = mixture
    predictive = fit.predictive(nodes["z"])
    for ask in (predictive.mean, predictive.var, predictive.std, predictive.interval):
        with pytest.raises(TypeError, match=r"categories have no \w+, .*use probabilities\(\)"):
            ask()
    np.testing.assert_allclose(predictive.probabilities(), np.tile([0.25, 0.75], (12, 1)))
    with pytest.raises(TypeError, match="only categories have probabilities"):
        fit.predictive("x").probabilities()


BIG = np.array([1, 2**63 + 5], dtype=np.uint64)


def big_numbers():
    two = ng.Plate("two", 2)
    return [
        lambda: ng.Normal("y", 0.0, 1.0, plate=two, observed=BIG),
        lambda: ng.Normal("y", 0.0, 1.0, plate=two)[BIG],
        lambda: ng.table([1.0, 2.0])[BIG],
    ]


@pytest.mark.parametrize("declare", big_numbers())
def test_unsigned_numbers_do_not_turn_negative(declare):
    with pytest.raises(ValueError, match=r"\[1\] = 9223372036854775813 is above 2⁶³ − 1"):
        declare()
    small = ng.Normal("y", 0.0, 1.0, plate=ng.Plate("two", 2), observed=BIG // 2)
    assert small.value.tolist() == [0.0, float(BIG[1] // 2)]
