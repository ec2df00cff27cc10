"""The Kalman filter and the Rauch–Tung–Striebel smoother in covariance form, time after time: the slow twin of GaussianChain."""

import numpy as np
from scipy import stats


def smoother(mean, covariance, dynamics, noise, emission, error, y, inputs=None):
    """Smoothed means [T, D], covariances [T, D, D], those of each time with the one before [T, D, D], and log p(y).

    ``dynamics`` has a column for each input after those for the states; NaN in ``y`` is missing, entry by entry.
    """
    size, n_times = len(mean), len(y)
    moving = np.broadcast_to(dynamics, (n_times, *np.shape(dynamics)[-2:]))
    predicted, filtered, log_evidence = [], [], 0.0
    for t in range(n_times):
        if t:
            A = moving[t][:, :size]
            mean = A @ mean + (moving[t][:, size:] @ inputs[t] if inputs is not None else 0.0)
            covariance = A @ covariance @ A.T + noise
        predicted.append((mean, covariance))
        seen = ~np.isnan(y[t])
        if seen.any():
            C, R = emission[seen], error[np.ix_(seen, seen)]
            S = C @ covariance @ C.T + R
            log_evidence += stats.multivariate_normal(C @ mean, S).logpdf(y[t][seen])
            gain = covariance @ C.T @ np.linalg.inv(S)
            mean = mean + gain @ (y[t][seen] - C @ mean)
            covariance = covariance - gain @ S @ gain.T
        filtered.append((mean, covariance))
    means, covariances, lagged = [mean], [covariance], []
    for t in range(n_times - 2, -1, -1):
        (m, P), (ahead, wide) = filtered[t], predicted[t + 1]
        gain = P @ moving[t + 1][:, :size].T @ np.linalg.inv(wide)
        lagged.append(covariances[-1] @ gain.T)
        mean = m + gain @ (means[-1] - ahead)
        covariance = P + gain @ (covariances[-1] - wide) @ gain.T
        means.append(mean)
        covariances.append(covariance)
    lagged.append(np.zeros((size, size)))
    return np.array(means[::-1]), np.array(covariances[::-1]), np.array(lagged[::-1]), log_evidence
