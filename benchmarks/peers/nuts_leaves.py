"""NumPyro's NUTS on regressions with twelve kinds of leaves: an .npz file comes in, one with posterior draws goes out.

Run by ``benchmarks/leaves.py`` inside an environment of its own. ``kind`` names the likelihood; the priors are those there.
"""

import sys
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402 - after the precision is set
import numpy as np  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from jax.scipy.special import log_ndtr  # noqa: E402
from jax.scipy.stats import norm  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402


def log_sticks(psi, y):
    """Of K − 1 stick-breaking logits [n, K − 1]."""
    reached, taken = y[:, None] >= jnp.arange(psi.shape[1]), y[:, None] == jnp.arange(psi.shape[1])
    return jnp.where(taken, jax.nn.log_sigmoid(psi), jnp.where(reached, jax.nn.log_sigmoid(-psi), 0.0)).sum()


def model(kind, x, y, extra, size):
    """Coefficients N(0, 2), a precision Gamma(1, 1) where there is noise."""
    shape = (size, x.shape[1]) if kind == "logits" else (x.shape[1],)
    w = numpyro.sample("w", dist.Normal(jnp.zeros(shape), 2.0**0.5))
    psi = x @ w.T
    if kind in ("student", "laplace", "censored", "lognormal"):
        scale = numpyro.sample("tau", dist.Gamma(1.0, 1.0)) ** -0.5
    if kind == "logit":
        numpyro.sample("y", dist.BernoulliLogits(psi), obs=y)
    elif kind == "probit":
        numpyro.factor("y", log_ndtr(jnp.where(y == 1, psi, -psi)).sum())
    elif kind == "logits":
        numpyro.factor("y", log_sticks(psi, y))
    elif kind == "binomial":
        numpyro.sample("y", dist.BinomialLogits(psi, extra.astype(int)), obs=y)
    elif kind == "negative":
        numpyro.sample("y", dist.NegativeBinomial2(extra * jnp.exp(psi), extra), obs=y)
    elif kind == "student":
        numpyro.sample("y", dist.StudentT(4.0, psi, scale), obs=y)
    elif kind == "laplace":
        numpyro.sample("y", dist.Laplace(psi, scale), obs=y)
    elif kind == "lognormal":
        numpyro.sample("y", dist.LogNormal(psi, scale), obs=y)
    elif kind == "censored":
        seen = jnp.where(extra == 1, norm.logsf((y - psi) / scale), norm.logpdf(y, psi, scale))
        numpyro.factor("y", seen.sum())
    else:
        ends = jnp.concatenate([jnp.array([-jnp.inf]), extra[:2], jnp.array([jnp.inf])])
        numpyro.factor(
            "y", jnp.log(norm.cdf(ends[y.astype(int) + 1] - psi) - norm.cdf(ends[y.astype(int)] - psi)).sum()
        )


def main():
    given = np.load(sys.argv[1])
    out, names = {}, sorted({key.split("/")[0] for key in given.files})
    for name in names:
        kind = str(given[f"{name}/kind"])
        arguments = (
            jnp.asarray(given[f"{name}/x"]),
            jnp.asarray(given[f"{name}/y"]),
            jnp.asarray(given[f"{name}/extra"]),
        )
        own = time.process_time()
        chain = MCMC(NUTS(model), num_warmup=500, num_samples=2000, progress_bar=False)
        chain.run(jax.random.PRNGKey(0), kind, *arguments, int(given[f"{name}/size"]))
        draws = chain.get_samples()
        out[f"{name}/w"] = np.asarray(draws["w"])
        out[f"{name}/tau"] = np.asarray(draws.get("tau", jnp.ones(len(draws["w"]))))
        out[f"{name}/cpu"] = time.process_time() - own
        print(name, round(float(out[f"{name}/cpu"]), 1), flush=True)
    np.savez(sys.argv[2], **out)


if __name__ == "__main__":
    main()
