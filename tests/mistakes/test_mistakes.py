"""Every mistake we could think of: the error names the node and the argument, shows the value and says what to do."""

from functools import cache

import numpy as np
import pytest
from mistakes.declarations import (
    DATA,
    DECLARATIONS,
    HALF,
    K,
    N,
    beta,
    category,
    chain,
    dirichlet,
    gamma,
    inf,
    nan,
    normal,
    read,
    vector,
    wishart,
)
from mistakes.expressions import EXPRESSIONS
from mistakes.habits import HABITS
from mistakes.leaves import LEAVES
from mistakes.said import mistake
from mistakes.structures import STRUCTURES

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch, SymmetricStart, UnreachedNode


@cache
def simple():
    return ng.Network(ng.Normal("y", normal(), gamma(), plate=N, observed=DATA))


@cache
def mixture():
    z, mu = ng.Categorical("z", dirichlet("w"), plate=N), normal(plate=K)
    return ng.Network(ng.Normal("y", mu[z], gamma(), plate=N, observed=DATA))


@cache
def counts():
    return ng.Network(ng.Poisson("y", gamma("rate", plate=K)[category()], plate=N, observed=[1, 0, 9]))


@cache
def sequence():
    return ng.Network(read(normal(plate=K)[chain()], observed=DATA))


@cache
def fitted():
    return simple().fit(max_steps=2)


# fmt: off
MISTAKES = [
    # -- draws
    (lambda: fitted()["mu"].sample("many"), TypeError, "mu", "rng", "'many'", "n="),
    (lambda: fitted()["mu"].sample(-1), TypeError, "mu", "rng", "-1", "n="),
    # -- data
    (lambda: read(0.0, observed=[1.0, 2.0]), PlateMismatch, "y", "observed", "(2,)"),
    (lambda: read(0.0, observed=[]), PlateMismatch, "y", "observed", "(0,)"),
    (lambda: ng.Normal("y", 0.0, 1.0, observed=DATA), PlateMismatch, "y", "observed", "(3,)", "Plate('name', 3)"),
    (lambda: vector("y", plate=N, observed=np.zeros((3, 4))), PlateMismatch, "y", "observed", "(3, 4)", "3}, vectors of"),
    (lambda: read(0.0, observed=["a", "b", "c"]), TypeError, "y", "observed", "'a'", "np.unique(labels, return_inverse=True)[1]"),
    (lambda: read(0.0, observed=["1", "2", "3"]), TypeError, "y", "observed", "'1'", "np.asarray(values, dtype=float)"),
    (lambda: read(0.0, observed=np.array([1.0, "b", None], object)), TypeError,
     "y", "observed", "'b'", "np.unique(labels, return_inverse=True)[1]"),
    (lambda: read(0.0, observed=(x for x in DATA)), TypeError, "y", "observed", "generator", "list(…)"),
    (lambda: read(0.0, observed=np.ones((3, 1))), PlateMismatch, "y", "(3, 1)", "observed[..., 0]"),
    (lambda: read(0.0, observed=[1.0, -1e200, 2.0]), ValueError, "y", "observed[1]", "-1e+200", "give the data"),
    (lambda: read(0.0, observed=[1j, 1, 2]), TypeError, "y", "observed", "complex"),
    (lambda: read(0.0, observed=[[1], [1, 2], [3]]), TypeError, "y", "observed", "rows"),
    (lambda: read(0.0, observed=normal()), TypeError, "y", "observed", "Normal"),
    (lambda: read(0.0, observed=[0, inf, 1]), ValueError, "y", "observed[1]", "inf", "NaN marks missing"),
    (lambda: ng.Normal("y", 0.0, 1.0, observed=inf), ValueError, "y", "observed", "inf", "NaN marks missing"),
    (lambda: read(0.0, observed=[nan, nan, nan]), ValueError, "y", "learn", "observed="),
    (lambda: dirichlet("y", plate=N, observed=[[0.5, 0.5], [nan, 1], [0.5, 0.5]]), ValueError,
     "y", "observed[1]", "NaN", "set all of"),
    (lambda: read(0.0, observed=DATA, mask=[1, 0, 1]), TypeError, "y", "mask", "dtype"),
    (lambda: read(0.0, observed=DATA, mask=[True, False]), PlateMismatch, "y", "mask", "(2,)", "(3,)"),
    (lambda: read(0.0, mask=[True, True, False]), ValueError, "y", "mask", "observed="),
    (lambda: category(observed=[0, 1, 2]), ValueError, "z", "observed[2]"),
    (lambda: category(observed=[0, -1, 1]), ValueError, "z", "observed[1]", "-1"),
    (lambda: category(observed=[0, 0.5, 1]), ValueError, "z", "observed[1]", "0.5", "categories are whole"),
    (lambda: ng.Categorical("z", [1.0, 0.0], plate=N, observed=[0, 1, 0]), ValueError, "z", "observed[1]"),
    (lambda: gamma("y", plate=N, observed=[1.0, 0.0, -1.0]), ValueError, "y", "observed[1]", "0", "Gamma"),
    (lambda: ng.Exponential("y", 1.0, plate=N, observed=[1, 0, -1]), ValueError, "y", "observed[2]", "-1", "Exponential"),
    (lambda: ng.Poisson("y", 1.0, plate=N, observed=[1, 0, -1]), ValueError, "y", "observed[2]", "-1", "Poisson"),
    (lambda: ng.Poisson("y", 1.0, plate=N, observed=[1, 1.5, 2]), ValueError, "y", "observed[1]", "1.5", "Poisson"),
    (lambda: ng.Bernoulli("y", 0.5, plate=N, observed=[0, 1, 2]), ValueError, "y", "observed[2]", "Bernoulli"),
    (lambda: ng.Bernoulli("y", 1.0, plate=N, observed=[1, 1, 0]), ValueError, "y", "observed[2]", "0"),
    (lambda: ng.Binomial("y", [3, 3, 1], 0.5, plate=N, observed=[0, 1, 2]), ValueError, "y", "observed[2]", "Binomial"),
    (lambda: ng.Binomial("y", 3, 0.5), TypeError, "y", "give observed=counts"),
    (lambda: beta("y", plate=N, observed=[0.5, 0.0, 1.0]), ValueError, "y", "observed[1]", "0", "Beta"),
    (lambda: ng.Multinomial("y", 3, HALF, plate=K, observed=[[1, 2], [1, 1]]), ValueError, "y", "observed[1]", "2"),
    (lambda: ng.Multinomial("y", None, HALF, plate=K, observed=[[1, 2], [1, -1]]), ValueError, "y", "-1", "Multinomial"),
    (lambda: dirichlet("y", plate=K, observed=[[0.5, 0.5], [0.5, 0.6]]), ValueError, "y", "observed[1]", "1.1", "divide by the"),
    (lambda: dirichlet("y", plate=K, observed=[[0.5, 0.5], [0.0, 1.0]]), ValueError, "y", "0", "Dirichlet"),
    (lambda: wishart("y", plate=K, observed=[np.eye(2), -np.eye(2)]), ValueError, "y", "observed[1]", "-1"),
    # -- chains
    (lambda: chain(plate=None), PlateMismatch, "z", "Plate('time', n)"),
    (lambda: chain(lengths=[1, 1]), PlateMismatch, "z", "lengths", "2", "n"),
    (lambda: chain(lengths=[3, 0]), ValueError, "z", "lengths[1]", "0"),
    (lambda: chain(lengths=[1.5, 1.5]), TypeError, "z", "lengths[0]", "1.5"),
    (lambda: chain(lengths=3), TypeError, "z", "lengths", "3"),
    (lambda: chain(observed=[0, 1, 2]), ValueError, "z", "observed[2]"),
    (lambda: chain(observed=[0, 1]), PlateMismatch, "z", "observed", "(2,)"),
    (lambda: chain(mask=[True, True, False]), ValueError, "z", "mask", "observed="),
    (lambda: chain(transition=np.full((3, 3), 1 / 3)), PlateMismatch, "z", "initial", "the rows of"),
    (lambda: chain(transition=HALF), PlateMismatch, "z", "transition", "(2,)", "(2, 2)"),
    (lambda: chain(transition=[[0.5, 0.5], [0.5, 0.6]]), ValueError, "z", "transition[1]", "1.1", "divide by the"),
    (lambda: chain(transition=dirichlet("A")), PlateMismatch, "z", "transition", "A"),
    (lambda: chain(transition=dirichlet("A", plate=ng.Plate("s", 3))), PlateMismatch, "z", "transition", "A", "2 is needed"),
    (lambda: chain(initial=dirichlet("i", plate=N)), PlateMismatch, "z", "initial", "i", "a chain has"),
    (lambda: chain(plate=ng.Plate("t", 3, weight=[1, 2, 1])), PlateMismatch, "z", "t"),
    # -- names and networks
    (lambda: ng.Normal(3, 0.0, 1.0), TypeError, "a node's name comes first", "3"),
    (lambda: ng.Network(ng.Normal("y", normal("a"), gamma("a"), plate=N, observed=DATA)), ValueError, "give each node"),
    (lambda: ng.Network(read(normal("y"), observed=DATA)), ValueError, "give each node", "y"),
    (lambda: ng.Network(), TypeError, "Network(y)", "Network(y1, y2)"),
    (lambda: ng.Network("y"), TypeError, "str", "give the node,"),
    (lambda: ng.Network([read(0.0, observed=DATA)]), TypeError, "list", "Network(*nodes)"),
    (lambda: ng.Network(normal("y", plate=K)[[0, 1]]), TypeError, "y[…]", "Network"),
    (lambda: ng.Network(read(normal())), ValueError, "to", "observed="),
    (lambda: ng.Network(read(normal(), observed=DATA), gamma("lonely")), UnreachedNode, "lonely", "data", "Leave it out,"),
    # -- how to fit
    (lambda: simple().fit("vb"), TypeError, "method", "'vb'"),
    (lambda: simple().fit(ng.VB), TypeError, "method", "<class 'natgrad.inference.methods.VB'>"),
    (lambda: simple().fit(step=0.5), TypeError, "step", "0.5"),
    (lambda: simple().fit(step=ng.RobbinsMonro), TypeError, "step", "<class 'natgrad.inference.step_sizes.RobbinsMonro'>"),
    (lambda: simple().fit(order=["mu"]), ValueError, "order", "tau"),
    (lambda: simple().fit(order=["mu", "tau", "mu", "y", "nope"]), ValueError, "order", "mu", "y"),
    (lambda: simple().fit(order="mu"), TypeError, "order", "'mu'"),
    (lambda: simple().fit(max_steps=0), ValueError, "max_steps", "0"),
    (lambda: simple().fit(max_steps=1.5), TypeError, "max_steps", "1.5"),
    (lambda: simple().fit(tol=-1), ValueError, "tol", "-1", "0 runs all"),
    (lambda: simple().fit(seed=-1), ValueError, "seed", "-1"),
    (lambda: simple().fit(seed=None), TypeError, "seed", "None"),
    (lambda: simple().fit(max_seconds=0), ValueError, "max_seconds", "0", "None means no"),
    (lambda: simple().fit(callbacks=3), TypeError, "callbacks", "3", "a function of"),
    (lambda: simple().fit(bound_every=0), ValueError, "bound_every", "0"),
    (lambda: simple().fit(init={"nope": 1.0}), ValueError, "init", "hidden nodes are"),
    (lambda: simple().fit(init={"y": DATA}), ValueError, "init", "hidden nodes are"),
    (lambda: simple().fit(init="zeros"), ValueError, "init", "'zeros'", 'values}, "random" or'),
    (lambda: simple().fit(init={"mu": "zeros"}), ValueError, "init['mu']", "'zeros'"),
    (lambda: simple().fit(init=[1.0, 2.0]), TypeError, "init", "list", 'values}, "random" or'),
    (lambda: simple().fit(init={"mu": nan}), ValueError, "init['mu']", "nan"),
    (lambda: simple().fit(init={"tau": -1.0}), ValueError, "init['tau']", "-1"),
    (lambda: simple().fit(init="kmeans"), ValueError, "init", "no category chooses"),
    (lambda: simple().fit(init={"mu": "kmeans"}), ValueError, "init['mu']", "mu"),
    (lambda: mixture().fit(init={"mu": [1.0, 2.0, 3.0]}), PlateMismatch, "init['mu']", "(3,)", "(2,)"),
    (lambda: mixture().fit(init={"w": [0.5, 0.6]}), ValueError, "init['w']", "1.1", "divide by the"),
    (lambda: mixture().fit(init={"z": [0, 1, 2]}), ValueError, "init['z'][2]", "2"),
    (lambda: mixture().fit(init={"mu": [1.0, 1.0]}), SymmetricStart, "init=", "z", "mu"),
    (lambda: mixture().fit(n_init=0), ValueError, "n_init", "0"),
    # -- methods and steps
    (lambda: ng.VB("c"), ValueError, "option", "'c'"),
    (lambda: ng.Children(0), ValueError, "0", "(0, 1)"),
    (lambda: ng.Children(1.5), ValueError, "1.5", "(0, 1)"),
    (lambda: ng.Children("x"), TypeError, "'x'", "N_i", "x"),
    (lambda: simple().fit(ng.Children(lambda n: inf)), ValueError, "inf", "C(3)"),
    (lambda: ng.GlobalBatch(1.0), TypeError, "GlobalBatch", "size", "1.0"),
    (lambda: simple().fit(ng.GlobalBatch(10)), ValueError, "GlobalBatch", "VB()"),
    (lambda: ng.SVI(64), TypeError, "batch", "64}, got 64"),
    (lambda: ng.SVI({"a": 1, "b": 2}), ValueError, "batch", "{'a': 1, 'b': 2}"),
    (lambda: ng.SVI({"n": 0}), ValueError, "batch", "0"),
    (lambda: ng.SVI({"n": 1}, local_tol=0), ValueError, "local_tol", "0"),
    (lambda: simple().fit(ng.SVI({"nope": 1})), PlateMismatch, "SVI", "['n']"),
    (lambda: simple().fit(ng.SVI({"n": 10})), ValueError, "SVI", "VB()"),
    (lambda: sequence().fit(ng.SVI({"n": 2}), init={"mu": [0.0, 1.0]}), PlateMismatch, "SVI", "cut", "put the sequences"),
    (lambda: mixture().fit(ng.SVI({"k": 1}), init="kmeans"), PlateMismatch, "SVI", "Sample the plate"),
    (lambda: ng.RobbinsMonro(forgetting=0.4), ValueError, "forgetting", "0.4", "Constant(rho)"),
    (lambda: ng.RobbinsMonro(first=0), ValueError, "first", "0", "1 is the"),
    (lambda: ng.RobbinsMonro(first=2), ValueError, "first", "2", "1 is the"),
    (lambda: ng.RobbinsMonro(delay=-1), ValueError, "delay", "-1", "0 starts with"),
    (lambda: ng.RobbinsMonro(delay=1, first=0.5), ValueError, "delay=1", "got delay=1 and"),
    (lambda: ng.PerNode(forgetting="x"), TypeError, "forgetting", "'x'"),
    (lambda: ng.Constant(3), ValueError, "rho", "3", "at 0 nothing"),
    (lambda: ng.HoldThenDecay(-1), ValueError, "n", "-1"),
    # -- results
    (lambda: fitted()["nope"], KeyError, "nope", "hidden nodes are"),
    (lambda: fitted()["y"], KeyError, "y", "hidden nodes are"),
    (lambda: fitted().trace["nope"], KeyError, "it has t,", "nope"),
    (lambda: fitted().continue_fit(step=3), TypeError, "step", "3"),
    (lambda: fitted().predictive("nope"), KeyError, "nope", "nodes are mu,"),
    (lambda: fitted().predictive("y", variance=1.0), TypeError, "predictive('y')", "Normal"),
    (lambda: fitted().predictive("y", sizes={"nope": 3}), PlateMismatch, "predictive('y')", "['n']"),
    (lambda: fitted().predictive("y", sizes={"n": 0}), ValueError, "plate 'n'", "size", "0"),
    (lambda: fitted().predictive("y", mean=np.zeros(4), precision=np.ones(5)), PlateMismatch, "predictive('y')", "[4, 5]"),
    (lambda: fitted().predictive("y", mean=gamma()), NotConjugate, "y", "mean", "tau", "Normal"),
    (lambda: fitted().predictive("y", mean=nan), ValueError, "y", "mean", "nan"),
    (lambda: fitted().predictive("y").interval(90), ValueError, "mass", "90"),
]
# fmt: on
CASES = DECLARATIONS + EXPRESSIONS + HABITS + LEAVES + STRUCTURES + MISTAKES


@pytest.mark.parametrize("case", CASES, ids=[" ".join(case[2:5]) for case in CASES])
def test_mistake(case):
    mistake(*case)


def test_warning_points_at_the_user():
    y = read(normal(), observed=DATA)
    with pytest.warns(UnreachedNode) as caught:
        ng.Network(y, gamma("lonely"))
    assert [warning.filename for warning in caught] == [__file__]
