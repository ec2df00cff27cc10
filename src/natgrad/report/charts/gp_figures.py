"""Fitted Gaussian processes in, pictures out: a curve with its intervals, a class boundary, relevances, density against time.

Every function draws on ``ax`` (by default the axes of a new figure) and returns the axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

__all__ = ["plot_boundary", "plot_density", "plot_fit", "plot_relevance"]

POINTS, GRID = 400, 120


def plot_fit(model: Any, X: Any, y: Any, *, mass: float = 0.9, ax: Any = None) -> Any:
    """The mean and the interval of a regressor with one input, the data, and where the inducing inputs are.

    Parameters
    ----------
    model : fitted SparseGPRegressor with one column of inputs and one output
    X, y : the data
    mass : float, of the interval
    ax : matplotlib axes, optional
    """
    x = np.asarray(X, dtype=np.float64).reshape(len(X), -1)
    if x.shape[1] != 1:
        raise ValueError(f"plot_fit draws a function of one input, and X has {x.shape[1]} columns")
    ax = _axes(ax)
    margin = 0.1 * np.ptp(x)
    line = np.linspace(x.min() - margin, x.max() + margin, POINTS)[:, None]
    low, high = model.interval(line, mass)
    ax.fill_between(
        line[:, 0], low, high, color="#9ecae1", alpha=0.6, lw=0, label=f"{100 * mass:g} % of new observations"
    )
    ax.plot(line[:, 0], model.predict(line), color="#08519c", label="mean")
    ax.plot(x[:, 0], y, ".", ms=3, color="0.25", label="data")
    z = model.inducing_[:, 0]
    ax.plot(z, np.full(len(z), ax.get_ylim()[0]), "^", ms=6, color="#d94801", clip_on=False, label="inducing inputs")
    ax.legend(loc="best", fontsize="small", frameon=False)
    return ax


def plot_boundary(model: Any, X: Any, y: Any, *, ax: Any = None) -> Any:
    """The probability of the second class over two inputs, its contours at ¼, ½ and ¾, the data and the inducing inputs.

    Parameters
    ----------
    model : fitted SparseGPClassifier with two classes and two columns of inputs
    X, y : the data
    ax : matplotlib axes, optional
    """
    x, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    if x.ndim != 2 or x.shape[1] != 2 or len(model.classes_) != 2:
        raise ValueError(
            f"plot_boundary draws two classes of two inputs; here X is {x.shape}, classes {model.classes_}"
        )
    ax = _axes(ax)
    ends = [np.linspace(c.min() - 0.1 * np.ptp(c), c.max() + 0.1 * np.ptp(c), GRID) for c in x.T]
    first, second = np.meshgrid(*ends)
    p = model.predict_proba(np.column_stack([first.ravel(), second.ravel()]))[:, 1].reshape(first.shape)
    ax.contourf(first, second, p, levels=np.linspace(0, 1, 21), cmap="RdBu_r", alpha=0.5)
    ax.contour(first, second, p, levels=[0.25, 0.5, 0.75], colors="k", linewidths=[0.6, 1.6, 0.6])
    for name, colour in zip(model.classes_, ("#2166ac", "#b2182b"), strict=True):
        ax.plot(*x[labels == name].T, ".", ms=4, color=colour, label=str(name))
    ax.plot(*model.inducing_.T, "^", ms=5, mfc="none", color="k", label="inducing inputs")
    ax.legend(loc="best", fontsize="small", frameon=True)
    return ax


def plot_relevance(model: Any, names: Sequence[str] | None = None, *, ax: Any = None) -> Any:
    """How fast the function changes along each input: 1/length scale, of the kernel's first part that has one for each.

    Parameters
    ----------
    model : fitted SparseGPRegressor or SparseGPClassifier
    names : of the columns, optional
    ax : matplotlib axes, optional
    """
    scales = [
        value for name, value in model._kernel.parameters.items() if "lengthscale" in name and np.ndim(value) == 1
    ]
    if not scales:
        raise ValueError(f"{model.kernel_!r} has no length scale for each column: give lengthscale an array")
    relevance = 1.0 / scales[0]
    order = np.argsort(relevance)
    labels = [f"x[{d}]" for d in range(len(relevance))] if names is None else [*names]
    ax = _axes(ax)
    ax.barh(np.arange(len(order)), relevance[order], color="#08519c")
    ax.set_yticks(np.arange(len(order)), [labels[d] for d in order])
    ax.set_xlabel("1 / length scale (standardised inputs)")
    return ax


def plot_density(
    curves: Mapping[str, Any],
    *,
    levels: Mapping[str, float] | None = None,
    score: Literal["density", "error"] = "density",
    ax: Any = None,
) -> Any:
    """Held-out negative log density, or error, against seconds: one line for each engine.

    Parameters
    ----------
    curves : {name: rows of (seconds, density) or (seconds, density, error)}
    levels : {name: score}, optional
        Models without a curve, as horizontal lines.
    score : "density" or "error"
    ax : matplotlib axes, optional
    """
    ax = _axes(ax)
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


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 3.8), layout="constrained").subplots()
