"""What MatrixFactorization does with few ratings by default, beside q alone and myFM: several sets, three splits of each.

    python benchmarks/factorization_finish.py                               # Jester and generated sets: a quarter of an hour
    python benchmarks/factorization_finish.py --file "Films=ratings.tsv"    # a set of your own: user, item, rating a line
    python benchmarks/factorization_finish.py --set "Jester, 350 users"     # one set; the others keep their last results

RMSE and mean log predictive density of a tenth of the ratings, held out at random, and processor seconds of one thread: means
over splits 0, 1 and 2. ``finish=None`` is what the default was. myFM (`pip install myfm`) makes 100 sweeps, of which the last 95
are kept (with the last 50 alone its errors are larger), and is left out where it is not installed. Where there are no draws, the
default is q alone. The least ratings and the least for each row were chosen on split 0 of these sets, the most sweeps on all
splits of the smallest.

Results: ``benchmarks/results/factorization-finish.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from factorization import DATA, HERE, RANK, split, warm_up
from factorization_defaults import generated
from factorization_draws import myfm

import natgrad as ng

RESULTS = HERE / "results" / "factorization-finish"
SPLITS, KEPT = (0, 1, 2), 95
Split = tuple[list[np.ndarray], list[np.ndarray], tuple[int, int]]


def jester_users(n: int, seed: int) -> Split:
    """The ratings of some users of Jester."""
    data = np.load(DATA / "ratings" / "jester1.npz")
    chosen = np.random.default_rng(100 + seed).choice(int(data["shape"][0]), n, replace=False)
    inside = np.isin(data["user"], chosen)
    users = np.unique(data["user"][inside], return_inverse=True)[1]
    return *split(users, data["item"][inside], data["rating"][inside].astype(np.float64), seed), (n, 100)


def generated_film_ratings(share: float | None, seed: int) -> Split:
    """The generated million, or a share of its users; items that these have rated."""
    data = np.load(DATA / "ratings" / "synthetic_netflix_1m.npz")
    n_users, n_items = (int(n) for n in data["shape"])
    if share is None:
        return *split(data["user"], data["item"], data["rating"].astype(np.float64), seed), (n_users, n_items)
    inside = np.isin(data["user"], np.random.default_rng(seed).choice(n_users, int(share * n_users), replace=False))
    users, items = (np.unique(data[name][inside], return_inverse=True)[1] for name in ("user", "item"))
    shape = int(users.max()) + 1, int(items.max()) + 1
    return *split(users, items, data["rating"][inside].astype(np.float64), seed), shape


def of_file(path: str, seed: int) -> Split:
    """Lines of user, item and rating, and whatever follows."""
    users, items, values = np.loadtxt(path, usecols=(0, 1, 2), unpack=True)
    users, items = (np.unique(ids, return_inverse=True)[1] for ids in (users, items))
    shape = int(users.max()) + 1, int(items.max()) + 1
    return *split(users, items, values, seed), shape


SETS: dict[str, Callable[[int], Split]] = {
    "Jester, 350 users": lambda seed: jester_users(350, seed),
    "Jester, 1,380 users": lambda seed: jester_users(1380, seed),
    "Jester, 2,500 users": lambda seed: jester_users(2500, seed),
    "generated, six factors, one noise": lambda seed: generated(False, 2027 + seed),
    "generated, six factors, noise by user": lambda seed: generated(True, 2026 + seed),
    "generated, a tenth of the million": lambda seed: generated_film_ratings(0.1, seed),
    "generated, the million": lambda seed: generated_film_ratings(None, seed),
}


def ours(train: list[np.ndarray], test: list[np.ndarray], shape: tuple[int, int], finish: str | None) -> dict:
    ratings = ng.data.Ratings(*train, shape=shape)
    begun = time.process_time()
    model = ng.MatrixFactorization(RANK, finish=finish, n_jobs=1, verbose=False).fit(ratings)
    cpu = time.process_time() - begun
    rmse = float(np.sqrt(np.mean((model.predict(*test[:2]) - test[2]) ** 2)))
    row = {"rmse": rmse, "log density": model.score(ng.data.Ratings(*test, shape=shape)), "cpu": cpu}
    return row | {
        "ratings": len(ratings),
        "draws": len(model.draws_["noise"].values[0]) if hasattr(model, "draws_") else 0,
    }


def peer(train: list[np.ndarray], test: list[np.ndarray], shape: tuple[int, int]) -> dict:
    rmse, density, _, seconds = myfm(train, test, shape, kept=KEPT)
    return {
        "rmse": float(rmse),
        "log density": float(density),
        "cpu": float(seconds),
        "ratings": len(train[0]),
        "draws": KEPT,
    }


def tables(found: dict) -> None:
    lines = ["| set | ratings | | RMSE | log density | CPU seconds | draws |", "|---|---:|---|---:|---:|---:|---:|"]
    for name, rows in found.items():
        for who, splits in rows.items():
            mean = {key: float(np.mean([row[key] for row in splits.values()])) for key in next(iter(splits.values()))}
            cells = f"{mean['rmse']:.4f} | {mean['log density']:.4f} | {mean['cpu']:.1f} | {mean['draws']:.0f}"
            lines.append(f"| {name} | {mean['ratings']:,.0f} | {who} | {cells} |")
    lines += ["", f"{RANK} factors, one thread, means over splits. `python benchmarks/factorization_finish.py`"]
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="*", help="only these")
    parser.add_argument("--file", nargs="*", default=(), help="NAME=PATH of ratings: user, item, rating in each line")
    parser.add_argument("--splits", nargs="*", type=int, default=SPLITS)
    parser.add_argument("--without-myfm", action="store_true")
    options = parser.parse_args()
    warm_up()
    train = jester_users(60, 0)[0]
    ng.MatrixFactorization(RANK, finish="gibbs", finish_sweeps=3, n_jobs=1, verbose=False).fit(
        ng.data.Ratings(*train)
    ).predict([0], [0])
    files = {name: path for name, path in (given.split("=", 1) for given in options.file)}
    sets = SETS | {name: (lambda seed, path=path: of_file(path, seed)) for name, path in files.items()}
    wanted = options.set if options.set is not None else list(files or SETS)
    found = json.loads(RESULTS.with_suffix(".json").read_text()) if RESULTS.with_suffix(".json").exists() else {}
    for name in wanted:
        for seed in options.splits:
            data = sets[name](seed)
            rows = found.setdefault(name, {})
            rows.setdefault("finish=None, the former default", {})[str(seed)] = ours(*data, None)
            rows.setdefault("the default", {})[str(seed)] = ours(*data, "auto")
            if not options.without_myfm:
                try:
                    rows.setdefault("myFM, 100 sweeps", {})[str(seed)] = peer(*data)
                except ImportError:
                    rows.pop("myFM, 100 sweeps")
            RESULTS.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
            tables(found)
            print(
                name, seed, {who: {k: round(v, 4) for k, v in rows[who][str(seed)].items()} for who in rows}, flush=True
            )


if __name__ == "__main__":
    main()
