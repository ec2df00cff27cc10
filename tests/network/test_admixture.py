"""Admixture with a Beta for each locus: fastStructure's variational updates (Raj, Stephens & Pritchard 2014), written out."""

import numpy as np
from scipy.special import betaln, digamma, gammaln, logsumexp

import natgrad as ng

PEOPLE, LOCI, KINDS = 15, 40, 3


def generated(rng):
    share = rng.dirichlet(np.full(KINDS, 0.4), PEOPLE)
    frequency = rng.beta(0.5, 0.5, (LOCI, KINDS))
    kind = (rng.random((PEOPLE, LOCI, 2, 1)) > share.cumsum(-1)[:, None, None]).sum(-1)
    return (rng.random(kind.shape) < frequency[np.arange(LOCI)[:, None], kind]).astype(float), share


def expected_logs(q, u, v):
    both = digamma(u + v)
    return digamma(q) - digamma(q.sum(-1, keepdims=True)), digamma(u) - both, digamma(v) - both


def theirs(alleles, q, u, v):
    """One round of their updates from Dirichlets q [N, K] and Betas (u, v) [L, K], and the bound at the start of it."""
    log_q, log_p, log_rest = expected_logs(q, u, v)
    one = alleles[..., None]
    logits = log_q[:, None, None] + one * log_p[:, None] + (1 - one) * log_rest[:, None]
    z = np.exp(logits - logsumexp(logits, -1, keepdims=True))
    bound = logsumexp(logits, -1).sum()
    log_norm = gammaln(KINDS * 1.0) - KINDS * gammaln(1.0)
    bound += (log_norm + ((1.0 - q) * log_q).sum(-1) + gammaln(q).sum(-1) - gammaln(q.sum(-1))).sum()
    bound += ((1.0 - u) * log_p + (1.0 - v) * log_rest + betaln(u, v) - betaln(1.0, 1.0)).sum()
    return 1.0 + z.sum((1, 2)), 1.0 + (one * z).sum((0, 2)), 1.0 + ((1 - one) * z).sum((0, 2)), bound


def test_the_optimum_is_a_fixed_point_of_fast_structure_with_its_bound():
    alleles, truth = generated(np.random.default_rng(1))
    person, locus, copy, kind = (
        ng.Plate("person", PEOPLE), ng.Plate("locus", LOCI), ng.Plate("copy", 2), ng.Plate("kind", KINDS)
    )  # fmt: skip
    share = ng.Dirichlet("share", 1.0, size=KINDS, plate=person)
    frequency = ng.Beta("frequency", 1.0, 1.0, plate=(locus, kind))
    z = ng.Categorical("z", share, plate=(person, locus, copy))
    allele = ng.Bernoulli("allele", frequency[:, z], plate=(person, locus, copy), observed=alleles)
    fit = ng.Network(allele).fit(init="random", tol=1e-10, max_steps=3000, seed=2)
    q, (u, v) = fit["share"].parameters["concentration"], (fit["frequency"].parameters[name] for name in "ab")
    new_q, new_u, new_v, bound = theirs(alleles, q, u, v)
    np.testing.assert_allclose(bound, fit.elbo, rtol=1e-9)
    for old, new in ((q, new_q), (u, new_u), (v, new_v)):
        np.testing.assert_allclose(old, new, atol=1e-3)
    # The shares of people are those that generated them, but for names of the populations.
    found = q / q.sum(-1, keepdims=True)
    order = np.argmax(np.corrcoef(truth.T, found.T)[:KINDS, KINDS:], axis=1)
    assert sorted(order) == [0, 1, 2]
    assert np.abs(found[:, order] - truth).mean() < 0.12
