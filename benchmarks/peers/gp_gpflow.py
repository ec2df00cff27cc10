"""GPflow: SVGP, NaturalGradient on q(u), Adam on the rest, both compiled in one function."""

import gpflow
import numpy as np
import tensorflow as tf


def build(start):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=start["lengthscale"])
    model = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Gaussian(float(start["noise"])), start["z"].copy(), num_data=len(start["x"])
    )
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    natural = gpflow.optimizers.NaturalGradient(gamma=float(start["rho"]))
    adam = tf.optimizers.Adam(float(start["rate"]))
    q = [(model.q_mu, model.q_sqrt)]

    @tf.function
    def step(x, y):
        def loss():
            return model.training_loss((x, y))

        natural.minimize(loss, q)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(model.trainable_variables)
            value = loss()
        slopes = tape.gradient(value, model.trainable_variables)
        adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))

    def take(x, y):
        step(tf.convert_to_tensor(x), tf.convert_to_tensor(y[:, None]))

    def predict(x):
        mean, var = model.predict_y(x)
        return np.asarray(mean)[:, 0], np.asarray(var)[:, 0]

    return take, predict, {"gpflow": gpflow.__version__, "tensorflow": tf.__version__}
