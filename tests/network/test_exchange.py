"""Labels that priors tell apart change places: moves have the ratio of joint densities, and draws are those of enumerations in
which a labelling that no sweep leads to has a share of the posterior."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

import natgrad as ng

# Sixty draws are few for R̂; what they say is compared with what is exact instead.
pytestmark = pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
Y = np.array([-2.4, -2.1, -2.8, 2.6, 2.2])
DRAWS = {"n": 60, "chains": 64, "warmup": 20, "verbose": False}


def same(values, wanted):
    """The average of draws [chain, draw, …] is the one wanted, but for the noise that independent chains show."""
    means = values.mean(1)
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    assert (np.abs(means.mean(0) - wanted) <= 4.5 * error).all(), (means.mean(0), wanted, error)


# -- mixtures --


def evidence(y, mean, precision):
    """log ∫ N(mu | mean, 1 / precision) Π N(y | mu, 1) dmu, and the posterior mean of mu."""
    total, pull = precision + len(y), precision * mean + y.sum()
    log = 0.5 * np.log(precision / total) - 0.5 * (precision * mean**2 + y @ y - pull**2 / total)
    return log - 0.5 * len(y) * np.log(2 * np.pi), pull / total


def enumerated(y, alpha, mean, precision):
    """Probabilities of all memberships, and posterior means of components and weights: sums over memberships."""
    size = len(alpha)
    memberships = np.array(list(itertools.product(range(size), repeat=len(y))))
    counts = np.array([np.bincount(z, minlength=size) for z in memberships])
    parts = [[evidence(y[z == k], mean[k], precision[k]) for k in range(size)] for z in memberships]
    logs, mus = np.array([[p[0] for p in row] for row in parts]), np.array([[p[1] for p in row] for row in parts])
    log = gammaln(alpha + counts).sum(1) + logs.sum(1)
    chance = np.exp(log - logsumexp(log))
    return memberships, chance, chance @ mus, chance @ (alpha + counts) / (alpha.sum() + len(y))


def mixture(y, alpha, mean, precision):
    row = ng.Plate("row", len(y))
    w = ng.Dirichlet("w", alpha)
    mu = ng.Normal("mu", mean, precision, plate=ng.Plate("part", len(alpha)))
    z = ng.Categorical("z", w, plate=row)
    return ng.Network(ng.Normal("y", mu[z], 1.0, plate=row, observed=y))


CASES = {
    "weights": (np.array([2.0, 5.0]), np.zeros(2), np.full(2, 0.2)),
    "means": (np.array([4.0, 4.0]), np.array([-0.5, 0.5]), np.full(2, 0.2)),
    "precisions": (np.array([4.0, 4.0]), np.zeros(2), np.array([0.1, 0.4])),
    # The first two are alike, and stay in the order of the fit; the third is not.
    "some alike": (np.array([3.0, 3.0, 6.0]), np.zeros(3), np.full(3, 0.2)),
}


@pytest.mark.parametrize("name", CASES)
def test_labellings_have_the_shares_of_an_enumeration(name):
    y = Y if name != "some alike" else np.append(Y, 0.1)
    alpha, mean, precision = CASES[name]
    memberships, chance, mus, weights = enumerated(y, alpha, mean, precision)
    fit = mixture(y, alpha, mean, precision).fit(verbose=False)
    draws = fit.draws(**DRAWS)
    assert draws.exchanged.min() > 0
    if name != "some alike":
        together = memberships[:, 3] == 1  # the row at 2.6 is of the second component
        share = chance @ together
        assert 0.05 < share < 0.95  # neither labelling is all
        same(draws["z"].values[..., 3] == 1, share)
        same(draws["mu"].values, mus)
        same(draws["w"].values, weights)
    else:
        # Whatever depends on the class alone: the third component, and sums over the other two.
        share = chance @ (memberships[:, 3] == 2)
        assert 0.05 < share < 0.95
        same(draws["z"].values[..., 3] == 2, share)
        for name, exact in (("mu", mus), ("w", weights)):
            same(draws[name].values[..., 2], exact[2])
            same(draws[name].values[..., :2].sum(-1), exact[:2].sum())
        # Put back: what q calls the first and the second are apart, though their posteriors are the same.
        assert abs(np.subtract(*draws["mu"].mean()[:2])) > 0.5
        assert draws.relabelled.sum() > 0


def test_without_the_move_the_other_labelling_is_missed():
    """What the move is for: rows far apart, q at one labelling, and sweeps that never reach the other."""
    y = 2.0 * Y
    alpha, mean, precision = np.array([2.0, 4.0]), np.zeros(2), np.full(2, 0.05)
    memberships, chance, *_ = enumerated(y, alpha, mean, precision)
    share = chance @ (memberships[:, 3] == 1)
    fit = mixture(y, alpha, mean, precision).fit(init={"mu": [-4.0, 4.0]}, verbose=False)
    draws = fit.draws(**DRAWS)
    assert 0.05 < share < 0.95
    same(draws["z"].values[..., 3] == 1, share)
    alone = mixture(y, np.full(2, 3.0), mean, precision).fit(init={"mu": [-4.0, 4.0]}, verbose=False)
    sweeps = alone.draws(**DRAWS)  # labels that are alike: no move is made
    assert sweeps.exchanged.sum() == sweeps.relabelled.sum() == 0
    assert (sweeps["z"].values[..., 3] == 1).all()


@pytest.mark.slow
def test_components_with_different_priors_are_calibrated():
    """Without the move 90 % intervals of the means held 68 % of 120, and p was 1e-5."""
    row, part = ng.Plate("row", 15), ng.Plate("part", 2)
    mu = ng.Normal("mu", 0.0, [0.05, 0.1], plate=part)
    z = ng.Categorical("z", ng.Dirichlet("w", [2.0, 4.0]), plate=row)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=row, observed=np.zeros(15)))
    options = {"n": 60, "chains": 8, "warmup": 30}
    found = network.calibrate(120, level="draws", draws_options=options, verbose=False)
    assert min(found.p_values().values()) > 1e-3
    assert all(0.82 < share < 0.97 for share in found.coverage(0.9).values())  # 90 % ± three standard errors of 120


def test_a_chain_whose_rows_have_different_priors():
    prior, y = np.array([[6.0, 2.0], [3.0, 4.0]]), np.array([-2.5, -2.2, -2.6, 2.4, 2.5, 2.1])
    states, time = ng.Plate("state", 2), ng.Plate("time", len(y))
    move = ng.Dirichlet("move", prior, plate=states)
    mu = ng.Normal("mu", 0.0, 0.2, plate=states)
    z = ng.MarkovChain("z", [0.3, 0.7], move, plate=time)
    fit = ng.Network(ng.Normal("y", mu[z], 1.0, plate=time, observed=y)).fit(verbose=False)
    draws = fit.draws(**DRAWS)
    paths = np.array(list(itertools.product(range(2), repeat=len(y))))
    log, rows = [], []
    for path in paths:
        counts = np.zeros((2, 2))
        np.add.at(counts, (path[:-1], path[1:]), 1.0)
        own = gammaln(prior + counts).sum() - gammaln((prior + counts).sum(1)).sum() + np.log([0.3, 0.7])[path[0]]
        log.append(own + sum(evidence(y[path == k], 0.0, 0.2)[0] for k in range(2)))
        rows.append((prior + counts) / (prior + counts).sum(1, keepdims=True))
    chance = np.exp(log - logsumexp(log))
    share = chance @ (paths[:, 0] == 0)
    assert 0.05 < share < 0.95
    assert draws.exchanged.min() > 0
    same(draws["z"].values[..., 0] == 0, share)
    same(draws["move"].values, np.tensordot(chance, np.array(rows), 1))


def test_labels_that_data_tell_stay():
    """Rows whose component is known: an exchange is accepted as seldom as these rows say."""
    alpha, mean, precision = np.array([3.0, 3.0]), np.zeros(2), np.full(2, 0.2)
    row, part = ng.Plate("row", len(Y)), ng.Plate("part", 2)
    w, mu = ng.Dirichlet("w", alpha), ng.Normal("mu", mean, precision, plate=part)
    z = ng.Categorical("z", w, plate=row, observed=np.array([0.0] + [np.nan] * 4))
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=row, observed=Y))
    draws = network.fit(verbose=False).draws(**DRAWS)
    memberships, chance, *_ = enumerated(Y, alpha, mean, precision)
    known = memberships[:, 0] == 0
    chance = np.where(known, chance, 0.0) / chance[known].sum()
    same(draws["z"].values[..., 3] == 1, chance @ (memberships[:, 3] == 1))
    same(draws["mu"].values, [chance @ [evidence(Y[m == k], 0.0, 0.2)[1] for m in memberships] for k in range(2)])


def test_a_run_with_exchanges_goes_on_with_the_same_bits(tmp_path):
    fit = mixture(Y, *CASES["weights"]).fit(verbose=False)
    whole = fit.draws(20, chains=3, warmup=5, verbose=False)

    def fails(progress):
        if progress.t == 13:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="the power is gone"):
        fit.draws(20, chains=3, warmup=5, verbose=False, checkpoint=tmp_path / "run", every=4, callbacks=[fails])
    again = fit.draws(20, chains=3, warmup=5, verbose=False, checkpoint=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again["mu"].values, whole["mu"].values)
    np.testing.assert_array_equal(again.exchanged, whole.exchanged)
    whole.save(tmp_path / "draws")
    np.testing.assert_array_equal(ng.load(tmp_path / "draws").exchanged, whole.exchanged)
    assert "several labellings" in whole.message
