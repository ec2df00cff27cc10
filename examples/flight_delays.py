"""Flight delays: a sparse Gaussian process whose kernel says which columns work together, on 20,000 flights.

The flights are generated, so the mean delay of each is known, and the error of what is found can be measured. The delay of a
single flight is nearly all noise.
"""

import argparse

import numpy as np
from generated.flights import make_flights
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression

import natgrad as ng
from natgrad.covariance import RBF, Linear
from natgrad.models.gp import Solver

MONTH, WEEKDAY, DEPARTURE, OTHERS = 0, 2, 6, [1, 3, 4, 5, 7]


def main(figure: str | None = None) -> tuple[float, float, float]:
    flights = make_flights(22_000, seed=0)
    train, test = slice(0, 20_000), slice(20_000, None)
    lines = Linear([1.0, 1.5, 3e-4, 0.02, 3.0], active=OTHERS)  # units: minutes², and minutes² a unit² of a column
    kernel = RBF(70.0, [3.5, 4.0], active=[MONTH, DEPARTURE]) + RBF(70.0, 2.0, active=[WEEKDAY]) + lines
    settings = {"n_inducing": 50, "noise_variance": 700.0, "max_steps": 150, "solver": Solver(batch_size=2000)}
    model = ng.SparseGPRegressor(kernel, **settings, seed=0, verbose=False)
    model.fit(flights.X[train], flights.y[train])

    mean, spread = model.predict(flights.X[test], return_std=True)
    line = LinearRegression().fit(flights.X[train], flights.y[train]).predict(flights.X[test])
    error, straight = (float(np.sqrt(np.mean((guess - flights.mean[test]) ** 2))) for guess in (mean, line))
    inside = float(np.mean(np.abs(flights.y[test] - mean) < 1.645 * spread))
    print(model.stop_)
    print(f"mean delay: error {error:.1f} minutes; {straight:.1f} of a line, {flights.mean.std():.1f} of a constant")
    print(f"noise: {np.sqrt(model.noise_variance_[0]):.1f} minutes found, {flights.noise_std:.1f} true")
    print(f"delays inside the 90 % intervals: {inside:.1%}")

    if figure:
        hours = np.linspace(6, 23, 100)
        picture = Figure(figsize=(9, 3.4), layout="constrained")
        axes = picture.subplots()
        for month, colour in ((3, "#4477aa"), (7, "#bb5566"), (12, "#228833")):
            rows = np.tile(np.median(flights.X, axis=0), (100, 1))
            rows[:, MONTH], rows[:, DEPARTURE] = month, hours
            low, high = np.quantile(model.sample(rows, 200, seed=0), (0.05, 0.95), axis=0)
            axes.plot(hours, model.predict(rows), color=colour, label=f"month {month}")
            axes.fill_between(hours, low, high, color=colour, alpha=0.2, lw=0)
        axes.set(xlabel="hour of departure", ylabel="expected delay, minutes")
        axes.legend()
        picture.savefig(figure, dpi=100)
    return error, straight, inside


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
