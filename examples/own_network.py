"""A network of your own: defects in thirty factories, some with one week of records, some with many.

    rate of a factory ~ Gamma(2, scale),   scale ~ Gamma(1, 1),   defects of a week ~ Poisson(rate of its factory)

A factory with few records leans on the others. Nobody writes an update: the network is declared, `fit` does the rest.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import natgrad as ng

N = 30


def main(figure: str | None = None) -> tuple[float, float, float]:
    rng = np.random.default_rng(3)
    true = rng.gamma(2.0, 0.5, size=N)
    factory = np.repeat(np.arange(N), rng.integers(1, 12, size=N))
    defects = rng.poisson(true[factory])

    factories, weeks = ng.Plate("factory", N), ng.Plate("week", len(factory))
    scale = ng.Gamma("scale", 1.0, 1.0)
    rate = ng.Gamma("rate", 2.0, scale, plate=factories)
    y = ng.Poisson("defects", rate[weeks.index(factory)], plate=weeks, observed=defects)
    fit = ng.Network(y).fit(tol=1e-10)
    print(f"{fit.stop}; bound {fit.elbo:.2f}")

    found, (low, high) = fit["rate"].mean(), fit["rate"].interval(0.9)
    alone = np.bincount(factory, weights=defects) / np.bincount(factory)
    error, without = (float(np.sqrt(np.mean((guess - true) ** 2))) for guess in (found, alone))
    inside = float(np.mean((low <= true) & (true <= high)))
    print(f"rates: root mean square error {error:.3f}; {without:.3f} if every factory stood alone")
    print(f"true rates inside the 90 % intervals: {inside:.0%} of {N}")

    if figure:
        order = np.argsort(true)
        picture = Figure(figsize=(9, 3.2), layout="constrained")
        axes = picture.subplots()
        axes.vlines(range(N), low[order], high[order], color="#4477aa", alpha=0.5, label="90 % interval")
        axes.plot(range(N), found[order], "o", color="#4477aa", label="posterior mean")
        axes.plot(range(N), alone[order], "x", color="0.5", label="the factory's own mean")
        axes.plot(range(N), true[order], color="#bb5566", label="true rate")
        axes.set(xlabel="factories, by their true rate", ylabel="defects a week")
        axes.legend()
        picture.savefig(figure, dpi=100)
    return error, without, inside


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
