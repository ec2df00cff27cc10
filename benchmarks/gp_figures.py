"""Pictures of fitted Gaussian processes for the pages: a curve with its intervals, a boundary, relevances, density over time."""

import numpy as np
from matplotlib.figure import Figure

POINTS, GRID = 400, 120


def axes():
    return Figure(figsize=(6.4, 3.8), layout="constrained").subplots()


def plot_fit(model, x, y, mass=0.9):
    """The mean and the interval of a regressor with one input, the data, and where the inducing inputs are."""
    ax, margin = axes(), 0.1 * np.ptp(x)
    line = np.linspace(x.min() - margin, x.max() + margin, POINTS)[:, None]
    low, high = model.interval(line, mass)
    label = f"{100 * mass:g} % of new observations"
    ax.fill_between(line[:, 0], low, high, color="#9ecae1", alpha=0.6, lw=0, label=label)
    ax.plot(line[:, 0], model.predict(line), color="#08519c", label="mean")
    ax.plot(x[:, 0], y, ".", ms=3, color="0.25", label="data")
    z = model.inducing_[:, 0]
    ax.plot(z, np.full(len(z), ax.get_ylim()[0]), "^", ms=6, color="#d94801", clip_on=False, label="inducing inputs")
    ax.legend(loc="best", fontsize="small", frameon=False)
    return ax


def plot_boundary(model, x, y):
    """The probability of the second class over two inputs, its contours at ¼, ½ and ¾, the data and the inducing inputs."""
    ax = axes()
    ends = [np.linspace(c.min() - 0.1 * np.ptp(c), c.max() + 0.1 * np.ptp(c), GRID) for c in x.T]
    first, second = np.meshgrid(*ends)
    p = model.predict_proba(np.column_stack([first.ravel(), second.ravel()]))[:, 1].reshape(first.shape)
    ax.contourf(first, second, p, levels=np.linspace(0, 1, 21), cmap="RdBu_r", alpha=0.5)
    ax.contour(first, second, p, levels=[0.25, 0.5, 0.75], colors="k", linewidths=[0.6, 1.6, 0.6])
    for name, colour in zip(model.classes_, ("#2166ac", "#b2182b"), strict=True):
        ax.plot(*x[y == name].T, ".", ms=4, color=colour, label=str(name))
    ax.plot(*model.inducing_.T, "^", ms=5, mfc="none", color="k", label="inducing inputs")
    ax.legend(loc="best", fontsize="small", frameon=True)
    return ax


def plot_relevance(model, sd):
    """How fast the function changes along each input: 1 / length scale in units of standard deviations ``sd`` of the inputs."""
    relevance = sd / model.kernel_.lengthscale
    order, ax = np.argsort(relevance), axes()
    ax.barh(np.arange(len(order)), relevance[order], color="#08519c")
    ax.set_yticks(np.arange(len(order)), [f"x[{d}]" for d in order])
    ax.set_xlabel("1 / length scale (standardised inputs)")
    return ax


def plot_density(curves, levels=None, score="density", ax=None):
    """Held-out negative log density, or error, against seconds: one line for each engine, models without a curve as levels."""
    ax = axes() if ax is None else ax
    for name, rows in curves.items():
        table = np.asarray(rows, dtype=np.float64)
        ax.plot(table[:, 0], table[:, 1 if score == "density" else 2], "o-", ms=3, label=name)
    for number, (name, level) in enumerate((levels or {}).items()):
        ax.axhline(level, color="0.4", lw=1, ls=("--", ":", "-.")[number % 3], label=name)
    ax.set_xscale("log")
    ax.set_xlabel("seconds")
    ax.set_ylabel("held-out negative log density" if score == "density" else "held-out root mean squared error")
    ax.legend(fontsize="small", frameon=False)
    return ax
