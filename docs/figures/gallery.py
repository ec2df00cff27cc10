"""The pictures of the gallery, one for each kind of model: python docs/figures/gallery.py [name …]

Each function draws one picture from a small data set that it makes itself; the page shows the function beside its picture.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import natgrad as ng

FOLDER = Path(__file__).parent / "gallery"


# --8<-- [start:network]
def network(ax):
    rng = np.random.default_rng(1)
    school = np.repeat(np.arange(12), rng.integers(3, 40, 12))
    score = rng.normal(rng.normal(60, 6, 12)[school], 10)

    schools, pupils = ng.Plate("school", 12), ng.Plate("pupil", len(score))
    mean = ng.Normal("mean", 60.0, 0.001)
    level = ng.Normal("level", mean, ng.Gamma("between", 1.0, 10.0), plate=schools)
    noise = ng.Gamma("noise", 1.0, 10.0)
    y = ng.Normal("score", level[school], noise, plate=pupils, observed=score)
    fit = ng.Network(y).fit()
    fit.plot.forest(["level"], ax=ax)
    # --8<-- [end:network]


# --8<-- [start:topics]
def topics(ax):
    rng = np.random.default_rng(0)
    words = ["goal", "team", "match", "vote", "party", "law", "gene", "cell", "virus"]
    themes = np.kron(np.eye(3), np.ones(3)) + 0.05
    shares = rng.dirichlet([0.3, 0.3, 0.3], 200)
    counts = np.array([rng.multinomial(40, row) for row in shares @ (themes / themes.sum(1, keepdims=True))])

    model = ng.LDA(n_topics=3, seed=0).fit(counts, vocabulary=words)
    ax.imshow(model.topics_, cmap="Blues", aspect="auto")
    ax.set_xticks(range(9), words, rotation=45)
    ax.set(yticks=range(3), ylabel="topic", title="Probability of each word")
    # --8<-- [end:topics]


# --8<-- [start:ratings]
def ratings(ax):
    made = ng.data.make_ratings(n_users=300, n_items=80, n_ratings=6000, seed=0)
    train, test = ng.data.train_test_split(made.ratings, test_size=0.1, seed=0)
    model = ng.MatrixFactorization(n_factors=5, seed=0).fit(train)
    users, items = test.user_ids[test.users], test.item_ids[test.items]
    predicted, stars = model.predict(users, items), np.unique(test.values)
    ax.boxplot([predicted[test.values == s] for s in stars], tick_labels=stars.astype(int), showfliers=False)
    ax.set(xlabel="stars that were given", ylabel="predicted", title="Ratings that were not seen")
    # --8<-- [end:ratings]


# --8<-- [start:states]
def states(ax):
    rng = np.random.default_rng(2)
    true = np.repeat([0, 1, 2, 0, 2, 1], 50)
    series = rng.normal(np.array([0.0, 3.0, -2.0])[true], 0.7)

    model = ng.GaussianHMM(n_states=3, seed=0).fit(series[:, None])
    path = model.predict(series[:, None])
    ax.scatter(np.arange(300), series, c=path, s=5, cmap="viridis")
    ax.step(np.arange(300), model.means_[path, 0], color="k", lw=1)
    ax.set(xlabel="time", ylabel="value", title="Likeliest states")
    # --8<-- [end:states]


# --8<-- [start:curve]
def curve(ax):
    rng = np.random.default_rng(0)
    x = np.sort(rng.choice(np.r_[rng.uniform(0, 4, 60), rng.uniform(6, 9, 40)], 100, replace=False))
    y = np.sin(1.5 * x) + 0.2 * x + rng.normal(0, 0.2, 100)

    model = ng.SparseGPRegressor(n_inducing=20, max_steps=200, seed=0).fit(x[:, None], y)
    grid = np.linspace(0, 10, 200)
    mean, sd = model.predict(grid[:, None], return_std=True)
    ax.fill_between(grid, mean - 1.64 * sd, mean + 1.64 * sd, alpha=0.25, lw=0)
    ax.plot(grid, mean)
    ax.plot(x, y, "k.", ms=3)
    ax.set(xlabel="x", ylabel="y", title="A curve, and how sure it is")
    # --8<-- [end:curve]


# --8<-- [start:mixture]
def mixture(ax):
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [4, 1], [1, 4], [5, 5]])
    X = centres[rng.integers(0, 4, 400)] + rng.normal(0, 0.7, (400, 2))

    model = ng.GaussianMixture(n_components="auto", seed=0).fit(X)
    ax.scatter(*X.T, c=model.predict(X), s=6, cmap="tab10")
    ax.plot(*model.means_.T, "k+", ms=12)
    ax.set(xlabel="first column", ylabel="second column", title=f"{len(model.means_)} components were found")
    # --8<-- [end:mixture]


# --8<-- [start:chain]
def chain(ax):
    rng = np.random.default_rng(3)
    level = np.cumsum(rng.normal(0, 0.3, 120))
    y = level + rng.normal(0, 1.0, 120)
    y[70:90] = np.nan  # what is missing is inferred

    time = ng.Plate("time", 120)
    moves, noise = ng.Gamma("moves", 1.0, 0.1), ng.Gamma("noise", 1.0, 1.0)
    path = ng.GaussianChain("path", 0.0, 0.1, 1.0, moves, plate=time)
    fit = ng.Network(ng.Normal("y", path[:, 0], noise, plate=time, observed=y)).fit()
    low, high = fit["path"].interval(0.9)
    ax.fill_between(range(120), low[:, 0], high[:, 0], alpha=0.3, lw=0)
    ax.plot(fit["path"].mean()[:, 0])
    ax.plot(y, "k.", ms=3)
    ax.set(xlabel="time", ylabel="value", title="A level that moves, with a gap")
    # --8<-- [end:chain]


DRAWN = {f.__name__: f for f in (network, topics, ratings, states, curve, mixture, chain)}


def main(names):
    FOLDER.mkdir(exist_ok=True)
    for name in names or DRAWN:
        figure, ax = plt.subplots(figsize=(4.2, 2.8), layout="constrained")
        DRAWN[name](ax)
        figure.savefig(FOLDER / f"{name}.png", dpi=110)
        plt.close(figure)
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
