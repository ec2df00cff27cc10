"""MatrixFactorization(inference="gibbs") beside plain variational inference and myFM on Jester, in one process.

    python benchmarks/factorization_draws.py                    # 1.6 million ratings; ten minutes, most of them myFM
    python benchmarks/factorization_draws.py --ratings 400000   # some of them; other sizes keep their last results

RMSE, mean log predictive density and coverage of 95 % intervals of a tenth of the ratings, held out at random; processor seconds.
myFM (`pip install myfm`) makes 100 sweeps of Gibbs sampling of a factorisation machine of users and items with the same rank; its
predictive is a mixture of Gaussians, one for each kept draw (the last 50), as ours is. It is left out where it is not installed.
Sweeps, burn-in and where sampling takes over from q were chosen on 44,444 other ratings of the training part, noise by item and
30 factors on a tenth of it. Results:
``benchmarks/results/factorization-draws.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from factorization import HERE, RANK, jester, warm_up
from scipy.special import logsumexp
from scipy.stats import norm

import natgrad as ng

Parts = list[np.ndarray]


def scored(
    mean: np.ndarray, log_density: np.ndarray | float, inside: np.ndarray, values: np.ndarray, seconds: float
) -> list[str]:
    """The cells of a row."""
    rmse = float(np.sqrt(np.mean((mean - values) ** 2)))
    return [f"{rmse:.4f}", f"{np.mean(log_density):.4f}", f"{np.mean(inside):.1%}", f"{seconds:.1f}"]


def ours(
    train: Parts, test: Parts, shape: tuple[int, int], inference: str, rank: int = RANK, **settings: str
) -> list[str]:
    """A fit with defaults but for these settings, with or without sweeps of Gibbs sampling at its end."""
    ratings = ng.data.Ratings(*train, shape=shape)
    begun = time.process_time()
    model = ng.MatrixFactorization(rank, inference=inference, verbose=False, **settings).fit(ratings)
    seconds = time.process_time() - begun
    low, high = model.interval(*test[:2], 0.95)
    density = model.score(ng.data.Ratings(*test, shape=shape), metric="log_likelihood")
    return scored(model.predict(*test[:2]), density, (low <= test[2]) & (test[2] <= high), test[2], seconds)


def myfm(train: Parts, test: Parts, shape: tuple[int, int], sweeps: int = 100, kept: int = 50) -> list[str]:
    """Bayesian factorisation machines, their draws one by one."""
    from myfm import MyFMGibbsRegressor
    from scipy.sparse import csr_matrix, hstack

    def table(users: np.ndarray, items: np.ndarray) -> csr_matrix:
        rows, ones = np.arange(len(users)), np.ones(len(users))
        parts = [
            csr_matrix((ones, (rows, c)), shape=(len(users), n)) for c, n in zip((users, items), shape, strict=True)
        ]
        return hstack(parts).tocsr()

    begun = time.process_time()
    machine = MyFMGibbsRegressor(rank=RANK, random_seed=0)
    machine.fit(table(*train[:2]), train[2], n_iter=sweeps, n_kept_samples=kept, group_shapes=list(shape))
    seconds = time.process_time() - begun
    users, items, values = test
    offset = shape[0]
    means, sds = [], []
    for draw in machine.predictor_.samples:
        of_user, of_item = draw.V[users], draw.V[offset + items]
        means.append(draw.w0 + draw.w[users] + draw.w[offset + items] + (of_user * of_item).sum(1))
    sds = [alpha**-0.5 for alpha in machine.get_hyper_trace()["alpha"][-kept:]]
    centres, spread = np.array(means), np.array(sds)[: len(means), None]
    density = logsumexp(norm.logpdf(values, centres, spread), axis=0) - np.log(len(centres))
    place = norm.cdf(values, centres, spread).mean(0)
    return scored(centres.mean(0), density, np.abs(place - 0.5) <= 0.475, values, seconds)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratings", type=int, help="learn from so many, chosen at random")
    parser.add_argument("--only-natgrad", action="store_true", help="keep the last result of myFM")
    options = parser.parse_args()
    train, test, shape = jester()
    if options.ratings is not None:
        some = np.random.default_rng(1).permutation(len(train[0]))[: options.ratings]
        train, test = [part[some] for part in train], [part[: options.ratings // 9] for part in test]
    warm_up()
    few = [part[:30_000] for part in train]
    ours(few, [part[:100] for part in test], shape, "gibbs")  # its kernels
    runs = {
        "natgrad": lambda: ours(train, test, shape, "vb"),
        'natgrad, inference="gibbs"': lambda: ours(train, test, shape, "gibbs"),
        'natgrad, inference="gibbs", noise="item"': lambda: ours(train, test, shape, "gibbs", noise="item"),
        'natgrad, inference="gibbs", noise="item", 30 factors': lambda: ours(
            train, test, shape, "gibbs", 30, noise="item"
        ),
        "myFM, 100 sweeps": lambda: myfm(train, test, shape),
    }
    path = HERE / "results" / "factorization-draws.json"
    found: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    size = f"{len(train[0]):,}"
    for name, run in runs.items():
        begins = f"| {size} | {name} | "
        kept = [line for line in found.get(size, []) if not line.startswith(begins)]
        if name.startswith("myFM") and options.only_natgrad:
            continue
        try:
            found[size] = [*kept, f"{begins}{' | '.join(run())} |"]
        except ImportError as reason:
            print(f"{name} is left out: {reason}")
            continue
        print(found[size][-1], flush=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        head = "| ratings learned from | model | RMSE | log density | 95 % intervals hold | processor seconds |"
        lines = [head, "|---|---|---|---|---|---|", *(line for part in found.values() for line in part)]
        (HERE / "results" / "factorization-draws.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
