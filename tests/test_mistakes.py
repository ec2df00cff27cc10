"""Every mistake we could think of, and the whole text a user reads: it names the node, shows the value, says what to do."""

from functools import cache

import numpy as np
import pytest
from wrong_declarations import (
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
from wrong_expressions import EXPRESSIONS
from wrong_habits import HABITS
from wrong_leaves import LEAVES
from wrong_structures import STRUCTURES

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
    # -- data
    (lambda: read(0.0, observed=[1.0, 2.0]), PlateMismatch,
     "'y': observed has shape (2,), but (3,) is needed (plates {'n': 3})"),
    (lambda: read(0.0, observed=[]), PlateMismatch,
     "'y': observed has shape (0,), but (3,) is needed (plates {'n': 3})"),
    (lambda: ng.Normal("y", 0.0, 1.0, observed=DATA), PlateMismatch,
     "'y': observed has shape (3,), but one number is needed (no plates): give plate=Plate('name', 3)"),
    (lambda: vector("y", plate=N, observed=np.zeros((3, 4))), PlateMismatch,
     "'y': observed has shape (3, 4), but (3, 2) is needed (plates {'n': 3}, vectors of length 2)"),
    (lambda: read(0.0, observed=["a", "b", "c"]), TypeError,
     "'y': observed must be numbers, got strings such as 'a': encode labels as integers, "
     "np.unique(labels, return_inverse=True)[1]"),
    (lambda: read(0.0, observed=["1", "2", "3"]), TypeError,
     "'y': observed must be numbers, got strings such as '1': these are numbers in quotes, np.asarray(values, dtype=float)"),
    (lambda: read(0.0, observed=np.array([1.0, "b", None], object)), TypeError,
     "'y': observed must be numbers, got objects such as 'b': encode labels as integers, "
     "np.unique(labels, return_inverse=True)[1]"),
    (lambda: read(0.0, observed=(x for x in DATA)), TypeError,
     "'y': observed must be numbers, got generator: give list(…)"),
    (lambda: read(0.0, observed=np.ones((3, 1))), PlateMismatch,
     "'y': observed has shape (3, 1), but (3,) is needed (plates {'n': 3}): give observed[..., 0]"),
    (lambda: read(0.0, observed=[1.0, -1e200, 2.0]), ValueError,
     "'y': observed[1] = -1e+200 is above 1e+100 in size: squares of larger ones overflow, so give the data in another unit"),
    (lambda: read(0.0, observed=[1j, 1, 2]), TypeError,
     "'y': observed must be numbers, got complex numbers"),
    (lambda: read(0.0, observed=[[1], [1, 2], [3]]), TypeError,
     "'y': observed must be numbers, got rows of different lengths"),
    (lambda: read(0.0, observed=normal()), TypeError,
     "'y': observed must be numbers, got Normal"),
    (lambda: read(0.0, observed=[0, inf, 1]), ValueError,
     "'y': observed[1] = inf is not finite; NaN marks missing values"),
    (lambda: ng.Normal("y", 0.0, 1.0, observed=inf), ValueError,
     "'y': observed = inf is not finite; NaN marks missing values"),
    (lambda: read(0.0, observed=[nan, nan, nan]), ValueError,
     "'y': every observation is missing: there is nothing to learn from. Leave out observed= if it is hidden"),
    (lambda: dirichlet("y", plate=N, observed=[[0.5, 0.5], [nan, 1], [0.5, 0.5]]), ValueError,
     "'y': observed[1] is partly NaN, but a vector of probabilities is observed as a whole: set all of it to NaN, or fill it in"),
    (lambda: read(0.0, observed=DATA, mask=[1, 0, 1]), TypeError,
     "'y': mask must be booleans, True where observed, got dtype int64"),
    (lambda: read(0.0, observed=DATA, mask=[True, False]), PlateMismatch,
     "'y': mask has shape (2,), but (3,) is needed, one for each element"),
    (lambda: read(0.0, mask=[True, True, False]), ValueError,
     "'y': mask says which observations count, but there are none: give observed= too"),
    (lambda: category(observed=[0, 1, 2]), ValueError,
     "'z': observed[2] = 2 is outside the categories 0 … 1 (1 such)"),
    (lambda: category(observed=[0, -1, 1]), ValueError,
     "'z': observed[1] = -1 is outside the categories 0 … 1 (1 such)"),
    (lambda: category(observed=[0, 0.5, 1]), ValueError,
     "'z': observed[1] = 0.5, but categories are whole numbers 0 … 1"),
    (lambda: ng.Categorical("z", [1.0, 0.0], plate=N, observed=[0, 1, 0]), ValueError,
     "'z': observed[1] = 1 has probability 0 under the probs given"),
    (lambda: gamma("y", plate=N, observed=[1.0, 0.0, -1.0]), ValueError,
     "'y': observed[1] = 0, but a Gamma takes values > 0 (2 such)"),
    (lambda: ng.Exponential("y", 1.0, plate=N, observed=[1, 0, -1]), ValueError,
     "'y': observed[2] = -1, but an Exponential takes values ≥ 0 (1 such)"),
    (lambda: ng.Poisson("y", 1.0, plate=N, observed=[1, 0, -1]), ValueError,
     "'y': observed[2] = -1, but a Poisson takes whole numbers ≥ 0 (1 such)"),
    (lambda: ng.Poisson("y", 1.0, plate=N, observed=[1, 1.5, 2]), ValueError,
     "'y': observed[1] = 1.5, but a Poisson takes whole numbers ≥ 0 (1 such)"),
    (lambda: ng.Bernoulli("y", 0.5, plate=N, observed=[0, 1, 2]), ValueError,
     "'y': observed[2] = 2, but a Bernoulli takes 0 or 1 (1 such)"),
    (lambda: ng.Bernoulli("y", 1.0, plate=N, observed=[1, 1, 0]), ValueError,
     "'y': observed[2] = 0 has probability 0 under the prob given"),
    (lambda: ng.Binomial("y", [3, 3, 1], 0.5, plate=N, observed=[0, 1, 2]), ValueError,
     "'y': observed[2] = 2, but a Binomial takes whole numbers 0 … trials (1 such)"),
    (lambda: ng.Binomial("y", 3, 0.5), TypeError,
     "'y': a Binomial must be observed: give observed=counts"),
    (lambda: beta("y", plate=N, observed=[0.5, 0.0, 1.0]), ValueError,
     "'y': observed[1] = 0, but a Beta takes values strictly between 0 and 1 (2 such)"),
    (lambda: ng.Multinomial("y", 3, HALF, plate=K, observed=[[1, 2], [1, 1]]), ValueError,
     "'y': observed[1] sums to 2, but trials = 3; trials=None takes the row sums"),
    (lambda: ng.Multinomial("y", None, HALF, plate=K, observed=[[1, 2], [1, -1]]), ValueError,
     "'y': observed[1, 1] = -1, but a Multinomial takes whole numbers ≥ 0 (1 such)"),
    (lambda: dirichlet("y", plate=K, observed=[[0.5, 0.5], [0.5, 0.6]]), ValueError,
     "'y': observed[1] sums to 1.1, not to 1: divide by the sum"),
    (lambda: dirichlet("y", plate=K, observed=[[0.5, 0.5], [0.0, 1.0]]), ValueError,
     "'y': observed[1, 0] = 0, but a Dirichlet takes positive entries that sum to 1 (1 such)"),
    (lambda: wishart("y", plate=K, observed=[np.eye(2), -np.eye(2)]), ValueError,
     "'y': observed[1] must be positive definite, but its smallest eigenvalue is -1"),
    # -- chains
    (lambda: chain(plate=None), PlateMismatch,
     "'z': a chain needs a plate of time steps: give plate=Plate('time', n)"),
    (lambda: chain(lengths=[1, 1]), PlateMismatch,
     "'z': lengths sum to 2, but plate 'n' has 3 elements"),
    (lambda: chain(lengths=[3, 0]), ValueError,
     "'z': lengths[1] must be a whole number ≥ 1, got 0"),
    (lambda: chain(lengths=[1.5, 1.5]), TypeError,
     "'z': lengths[0] must be a whole number ≥ 1, got 1.5"),
    (lambda: chain(lengths=3), TypeError,
     "'z': lengths must be a list of whole numbers, one for each sequence, got 3"),
    (lambda: chain(observed=[0, 1, 2]), ValueError,
     "'z': observed[2] = 2 is outside the categories 0 … 1 (1 such)"),
    (lambda: chain(observed=[0, 1]), PlateMismatch,
     "'z': observed has shape (2,), but (3,) is needed (plates {'n': 3})"),
    (lambda: chain(mask=[True, True, False]), ValueError,
     "'z': mask says which states were observed, but there are none: give observed= too"),
    (lambda: chain(transition=np.full((3, 3), 1 / 3)), PlateMismatch,
     "'z': initial has 2 states, but the rows of transition have 3"),
    (lambda: chain(transition=HALF), PlateMismatch,
     "'z': transition has shape (2,), but (2, 2) is needed"),
    (lambda: chain(transition=[[0.5, 0.5], [0.5, 0.6]]), ValueError,
     "'z': transition[1] sums to 1.1, not to 1: divide by the sum"),
    (lambda: chain(transition=dirichlet("A")), PlateMismatch,
     "'z': transition = A, a row for each state, must lie along one plate that 'z' is not on, found none"),
    (lambda: chain(transition=dirichlet("A", plate=ng.Plate("s", 3))), PlateMismatch,
     "'z': transition = A, a row for each state, lies along plate 's' of size 3, but 2 is needed"),
    (lambda: chain(initial=dirichlet("i", plate=N)), PlateMismatch,
     "'z': initial = i lies on the time plate 'n', but a chain has one initial for all times"),
    (lambda: chain(plate=ng.Plate("t", 3, weight=[1, 2, 1])), PlateMismatch,
     "'z': the time plate 't' of a chain cannot carry weights"),
    # -- names and networks
    (lambda: ng.Normal(3, 0.0, 1.0), TypeError,
     "a node's name comes first: write Normal('name', …), got 3"),
    (lambda: ng.Network(ng.Normal("y", normal("a"), gamma("a"), plate=N, observed=DATA)), ValueError,
     "two different nodes are called 'a': give each node its own name"),
    (lambda: ng.Network(read(normal("y"), observed=DATA)), ValueError,
     "two different nodes are called 'y': give each node its own name"),
    (lambda: ng.Network(), TypeError,
     "Network needs the observed nodes: Network(y), or Network(y1, y2)"),
    (lambda: ng.Network("y"), TypeError,
     "Network takes nodes, got str: give the node, not its name"),
    (lambda: ng.Network([read(0.0, observed=DATA)]), TypeError,
     "Network takes nodes, got list: write Network(*nodes)"),
    (lambda: ng.Network(normal("y", plate=K)[[0, 1]]), TypeError,
     "Network takes nodes, got the expression y[…]"),
    (lambda: ng.Network(read(normal())), ValueError,
     "no node is observed among mu, y: give observed= to at least one"),
    (lambda: ng.Network(read(normal(), observed=DATA), gamma("lonely")), UnreachedNode,
     "'lonely' is hidden and has no path to data: its posterior will be its prior. Leave it out, or observe a node that "
     "depends on it"),
    # -- how to fit
    (lambda: simple().fit("vb"), TypeError,
     "method must be VB(), Children(C), GlobalBatch(size) or SVI(batch), got 'vb'"),
    (lambda: simple().fit(ng.VB), TypeError,
     "method must be VB(), Children(C), GlobalBatch(size) or SVI(batch), got <class 'natgrad.inference.methods.VB'>"),
    (lambda: simple().fit(step=0.5), TypeError,
     "step must be RobbinsMonro(…), Constant(ρ), HoldThenDecay(…), PerNode() or Auto(), got 0.5"),
    (lambda: simple().fit(step=ng.RobbinsMonro), TypeError,
     "step must be RobbinsMonro(…), Constant(ρ), HoldThenDecay(…), PerNode() or Auto(), got <class "
     "'natgrad.inference.step_sizes.RobbinsMonro'>"),
    (lambda: simple().fit(order=["mu"]), ValueError,
     "order must name every hidden node once: 'tau' is missing"),
    (lambda: simple().fit(order=["mu", "tau", "mu", "y", "nope"]), ValueError,
     "order must name every hidden node once: 'mu' is there 2 times, 'y' is observed, 'nope' is not in this network"),
    (lambda: simple().fit(order="mu"), TypeError,
     "order must be a list of the hidden nodes' names, such as ['mu', 'tau'], got 'mu'"),
    (lambda: simple().fit(max_steps=0), ValueError,
     "max_steps must be a whole number ≥ 1, got 0"),
    (lambda: simple().fit(max_steps=1.5), TypeError,
     "max_steps must be a whole number ≥ 1, got 1.5"),
    (lambda: simple().fit(tol=-1), ValueError,
     "tol must be ≥ 0, got -1: 0 runs all steps"),
    (lambda: simple().fit(seed=-1), ValueError,
     "seed must be a whole number ≥ 0, got -1"),
    (lambda: simple().fit(seed=None), TypeError,
     "seed must be a whole number ≥ 0, got None"),
    (lambda: simple().fit(max_seconds=0), ValueError,
     "max_seconds must be > 0, got 0: None means no limit"),
    (lambda: simple().fit(callbacks=3), TypeError,
     "callbacks must be a list of functions, got 3: a function of the progress, or an object with log_metrics, log_metric or "
     "add_scalar"),
    (lambda: simple().fit(bound_every=0), ValueError,
     "bound_every must be a whole number ≥ 1, got 0"),
    (lambda: simple().fit(init={"nope": 1.0}), ValueError,
     "init: 'nope' is not in this network; hidden nodes are mu, tau"),
    (lambda: simple().fit(init={"y": DATA}), ValueError,
     "init: 'y' is observed: it starts and stays at its data; hidden nodes are mu, tau"),
    (lambda: simple().fit(init="zeros"), ValueError,
     "init must be {name: values}, \"random\" or \"kmeans\", got 'zeros'"),
    (lambda: simple().fit(init={"mu": "zeros"}), ValueError,
     "init['mu'] must be an array, \"random\" or \"kmeans\", got 'zeros'"),
    (lambda: simple().fit(init=[1.0, 2.0]), TypeError,
     'init must be {name: values}, "random" or "kmeans", got list'),
    (lambda: simple().fit(init={"mu": nan}), ValueError,
     "init['mu'] = nan must be finite"),
    (lambda: simple().fit(init={"tau": -1.0}), ValueError,
     "init['tau'] = -1 must be > 0"),
    (lambda: simple().fit(init="kmeans"), ValueError,
     'init="kmeans" needs a mixture: no category chooses components in this network'),
    (lambda: simple().fit(init={"mu": "kmeans"}), ValueError,
     "init['mu'] = \"kmeans\" is for a category that chooses components; 'mu' chooses none"),
    (lambda: mixture().fit(init={"mu": [1.0, 2.0, 3.0]}), PlateMismatch,
     "init['mu'] has shape (3,), but (2,) is needed"),
    (lambda: mixture().fit(init={"w": [0.5, 0.6]}), ValueError,
     "init['w'] sums to 1.1, not to 1: divide by the sum"),
    (lambda: mixture().fit(init={"z": [0, 1, 2]}), ValueError,
     "init['z'][2] = 2 is outside the categories 0 … 1 (1 such)"),
    (lambda: mixture().fit(init={"mu": [1.0, 1.0]}), SymmetricStart,
     "the components that 'z' chooses from ('mu') all start equal, so no update can tell them apart. Give a start: "
     'init={"mu": values}, init="random", or init="kmeans"'),
    (lambda: mixture().fit(n_init=0), ValueError, "n_init must be a whole number ≥ 1, got 0"),
    # -- methods and steps
    (lambda: ng.VB("c"), ValueError,
     "option must be \"a\" (each block moves at once) or \"b\" (all move together), got 'c'"),
    (lambda: ng.Children(0), ValueError,
     "C must be a whole number ≥ 1 or a fraction in (0, 1), got 0"),
    (lambda: ng.Children(1.5), ValueError,
     "C must be a whole number ≥ 1 or a fraction in (0, 1), got 1.5"),
    (lambda: ng.Children("x"), TypeError,
     "C must be a number of children, a fraction or a function of N_i, got 'x'"),
    (lambda: simple().fit(ng.Children(lambda n: inf)), ValueError,
     "C must return a finite number ≥ 0 of children, but C(3) = inf"),
    (lambda: ng.GlobalBatch(1.0), TypeError,
     "GlobalBatch: size must be a whole number ≥ 1, got 1.0"),
    (lambda: simple().fit(ng.GlobalBatch(10)), ValueError,
     "GlobalBatch: a batch of 10 is larger than the data with 3 observations; VB() reads all of them"),
    (lambda: ng.SVI(64), TypeError,
     "batch must name one plate and how many of its elements to draw, as {documents: 64}, got 64"),
    (lambda: ng.SVI({"a": 1, "b": 2}), ValueError,
     "batch must name one plate and how many of its elements to draw, as {documents: 64}, got {'a': 1, 'b': 2}"),
    (lambda: ng.SVI({"n": 0}), ValueError,
     "batch: the number of elements of 'n' must be a whole number ≥ 1, got 0"),
    (lambda: ng.SVI({"n": 1}, local_tol=0), ValueError,
     "local_tol must be > 0, got 0"),
    (lambda: simple().fit(ng.SVI({"nope": 1})), PlateMismatch,
     "SVI: there is no plate 'nope' in this network; it has ['n']"),
    (lambda: simple().fit(ng.SVI({"n": 10})), ValueError,
     "SVI: a batch of 10 is larger than plate 'n' with 3 elements; VB() reads all of them"),
    (lambda: sequence().fit(ng.SVI({"n": 2}), init={"mu": [0.0, 1.0]}), PlateMismatch,
     "SVI: 'n' is the time of the chain 'z' and cannot be cut into independent groups; put the sequences on a plate of "
     "their own and sample that"),
    (lambda: mixture().fit(ng.SVI({"k": 1}), init="kmeans"), PlateMismatch,
     "SVI: 'y' reads 'mu' but is not on plate 'k', whose elements are thus not independent of one another. Sample the plate "
     "of the data instead"),
    (lambda: ng.RobbinsMonro(forgetting=0.4), ValueError,
     "forgetting (κ) must lie in (0.5, 1], got 0.4: at or below 0.5 the noise never averages out, above 1 the steps die "
     "before the optimum. For a fixed length use Constant(rho)."),
    (lambda: ng.RobbinsMonro(first=0), ValueError,
     "first (ρ₁) must lie in (0, 1], got 0: 1 is the exact update, 0 does not move"),
    (lambda: ng.RobbinsMonro(first=2), ValueError,
     "first (ρ₁) must lie in (0, 1], got 2: 1 is the exact update, 0 does not move"),
    (lambda: ng.RobbinsMonro(delay=-1), ValueError,
     "delay (τ) must be finite and ≥ 0, got -1: 0 starts with a step of length 1"),
    (lambda: ng.RobbinsMonro(delay=1, first=0.5), ValueError,
     "give delay (τ) or first (ρ₁), not both: got delay=1 and first=0.5"),
    (lambda: ng.PerNode(forgetting="x"), TypeError,
     "forgetting (κ) must be a number, got 'x'"),
    (lambda: ng.Constant(3), ValueError,
     "rho must lie in (0, 2], got 3: at 0 nothing moves, beyond 2 every block overshoots"),
    (lambda: ng.HoldThenDecay(-1), ValueError,
     "n must be a whole number ≥ 0, got -1"),
    # -- results
    (lambda: fitted()["nope"], KeyError,
     "'nope' is not in this network; hidden nodes are mu, tau"),
    (lambda: fitted()["y"], KeyError,
     "'y' is observed; hidden nodes are mu, tau"),
    (lambda: fitted().trace["nope"], KeyError,
     "the trace has no column 'nope'; it has t, elbo, elbo_estimate, rho, relative_change, messages_read, seconds, held_out"),
    (lambda: fitted().continue_fit(step=3), TypeError,
     "step must be RobbinsMonro(…), Constant(ρ), HoldThenDecay(…), PerNode() or Auto(), got 3"),
    (lambda: fitted().predictive("nope"), KeyError,
     "'nope' is not in this network; nodes are mu, tau, y"),
    (lambda: fitted().predictive("y", variance=1.0), TypeError,
     "predictive('y'): there is no parameter 'variance'; Normal has mean, precision"),
    (lambda: fitted().predictive("y", sizes={"nope": 3}), PlateMismatch,
     "predictive('y'): there is no plate 'nope'; the network has ['n']"),
    (lambda: fitted().predictive("y", sizes={"n": 0}), ValueError,
     "plate 'n': size must be a whole number ≥ 1, got 0"),
    (lambda: fitted().predictive("y", mean=np.zeros(4), precision=np.ones(5)), PlateMismatch,
     "predictive('y'): the new arrays have different lengths [4, 5]"),
    (lambda: fitted().predictive("y", mean=gamma()), NotConjugate,
     "'y': mean cannot be the Gamma tau: the edge tau → y is not conjugate. mean takes a constant, a Normal, a dot, a sum "
     "or a known multiple of these"),
    (lambda: fitted().predictive("y", mean=nan), ValueError,
     "'y': mean = nan must be finite"),
    (lambda: fitted().predictive("y").interval(90), ValueError,
     "mass must lie in (0, 1), got 90"),
]
# fmt: on
CASES = DECLARATIONS + EXPRESSIONS + HABITS + LEAVES + STRUCTURES + MISTAKES


@pytest.mark.parametrize(("mistake", "error", "message"), CASES, ids=[message[:40] for _, _, message in CASES])
def test_mistake(mistake, error, message):
    with pytest.raises(error) as caught:
        mistake()
    assert type(caught.value) is error
    assert caught.value.args[0] == message  # str() of a KeyError would put quotes around it


def test_warning_points_at_the_user():
    y = read(normal(), observed=DATA)
    with pytest.warns(UnreachedNode) as caught:
        ng.Network(y, gamma("lonely"))
    assert [warning.filename for warning in caught] == [__file__]
