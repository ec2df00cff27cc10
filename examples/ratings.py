"""Ratings: what users would give to items that they have not rated, and how sure that is.

The ratings are generated, so the liking behind each is known, as it was before noise and before it was rounded to a star.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import natgrad as ng


def main(figure: str | None = None) -> tuple[float, float, float]:
    made = ng.data.make_ratings(n_users=1000, n_items=300, n_ratings=40_000, seed=0)
    users, items, stars = made.ratings.users, made.ratings.items, made.ratings.values
    test = np.random.default_rng(0).random(len(stars)) < 0.1
    known = ng.data.Ratings(users[~test], items[~test], stars[~test])
    test &= np.isin(users, users[~test]) & np.isin(items, items[~test])  # somebody new has no vector yet

    model = ng.MatrixFactorization(n_factors=10, seed=0, verbose=False).fit(known)
    mean, spread = model.predict(users[test], items[test], return_std=True)
    average = np.array([stars[~test & (items == item)].mean() for item in range(300)])[items[test]]
    error, plain = (float(np.sqrt(np.mean((guess - stars[test]) ** 2))) for guess in (mean, average))
    behind = float(np.sqrt(np.mean((mean - np.clip(made.liking[test], 1, 5)) ** 2)))
    inside = float(np.mean(np.abs(stars[test] - mean) < 1.645 * spread))
    print(model.stop_)
    print(f"{test.sum()} unseen ratings: root mean square error {error:.3f} stars; {plain:.3f} of the item's mean")
    print(f"against the liking behind them: {behind:.3f}; ratings inside the 90 % intervals: {inside:.1%}")
    print(f"the five best for user 0: {model.recommend(0, n=5).items.tolist()}")

    if figure:
        picture = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = picture.subplots(1, 2)
        left.plot(made.liking[test], mean, ".", ms=2, alpha=0.4, color="#4477aa")
        left.plot((0, 6), (0, 6), color="0.5")
        left.set(xlabel="liking behind the rating", ylabel="prediction", xlim=(0, 6), ylim=(0, 6))
        size = np.bincount(known.users, minlength=1000)[users[test]]
        right.semilogx(size, spread, ".", ms=2, alpha=0.4, color="#bb5566")
        right.set(xlabel="ratings of the user", ylabel="standard deviation of the prediction")
        picture.savefig(figure, dpi=100)
    return error, plain, inside


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
