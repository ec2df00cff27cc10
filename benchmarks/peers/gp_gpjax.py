"""GPJax: the whitened family, all parameters by Adam (it has no natural steps), one compiled function."""

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)


def build(start):
    kernel = gpx.kernels.RBF(lengthscale=jnp.asarray(start["lengthscale"]), variance=1.0)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel)
    likelihood = gpx.likelihoods.Gaussian(obs_stddev=float(np.sqrt(start["noise"])))
    q = gpx.variational_families.WhitenedVariationalGaussian(
        model=prior * likelihood, inducing_inputs=jnp.asarray(start["z"])
    )
    train = gpx.Dataset(X=jnp.asarray(start["x"]), y=jnp.asarray(start["y"][:, None]))
    try:
        from gpjax.fit import _prepare_model

        q = _prepare_model(q, train)
    except ImportError:
        pass
    optimizer = optax.adam(float(start["rate"]))
    state = optimizer.init(eqx.filter(q, eqx.is_array))

    @eqx.filter_jit
    def step(q, state, x, y):
        def loss(q):
            return -gpx.objectives.elbo(q, gpx.Dataset(X=x, y=y))

        _, gradient = eqx.filter_value_and_grad(loss)(q)
        updates, state = optimizer.update(gradient, state, eqx.filter(q, eqx.is_array))
        return eqx.apply_updates(q, updates), state

    held = {"q": q, "state": state}

    def take(x, y):
        held["q"], held["state"] = step(held["q"], held["state"], jnp.asarray(x), jnp.asarray(y[:, None]))
        jax.block_until_ready(jax.tree.leaves(eqx.filter(held["q"], eqx.is_array)))

    def predict(x):
        means, variances = [], []
        for begin in range(0, len(x), 500):
            latent = held["q"](jnp.asarray(x[begin : begin + 500]))
            observed = held["q"].model.likelihood(latent)
            means.append(np.asarray(observed.mean))
            variances.append(np.asarray(observed.variance))
        return np.concatenate(means), np.concatenate(variances)

    return take, predict, {"gpjax": gpx.__version__, "jax": jax.__version__}
