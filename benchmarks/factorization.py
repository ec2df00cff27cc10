"""MatrixFactorization against its peers: the error on Jester, time by size, recommending, likes alone, chunks.

    python benchmarks/factorization.py                          # everything, about half an hour
    python benchmarks/factorization.py quality --peer myfm      # one part, one peer
    python benchmarks/factorization.py tables                   # only write the tables anew

Each peer runs alone in an environment of its own (``--environments``, by default ``.bench``; made on the first call) and
answers through files. The split is 90/10 at random, seed 0, the same for
all. natgrad is compiled on a small set before its time is taken.
Jester and the generated million are read from the folder in NATGRAD_DATA, or ../shared/data.

Results: ``benchmarks/results/factorization.json`` and ``benchmarks/results/factorization-*.md``.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import factorization_likes as likes
import factorization_tables as tables
import numpy as np

import natgrad as ng

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("NATGRAD_DATA", HERE.parent.parent / "shared" / "data"))
RESULTS = HERE / "results" / "factorization.json"
RANK = 20
REQUIREMENTS = {
    "surprise": ["scikit-surprise", "pandas"],
    "lenskit": ["lenskit", "pandas"],
    "cornac": ["cornac"],
    "smurff": ["smurff", "pandas", "scipy"],
    "myfm": ["setuptools<80", "wheel", "myfm"],
    "implicit": ["implicit"],
}
QUALITY_PEERS = ("surprise", "lenskit", "cornac", "smurff", "myfm")


def split(users, items, values, seed=0):
    """Nine tenths to learn from, one tenth to be judged on."""
    held = np.zeros(len(users), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(users))[: len(users) // 10]] = True
    return [part[~held] for part in (users, items, values)], [part[held] for part in (users, items, values)]


def jester():
    data = np.load(DATA / "ratings" / "jester1.npz")
    return *split(data["user"], data["item"], data["rating"].astype(np.float64)), tuple(int(n) for n in data["shape"])


def jester_sample():
    """The ratings of 1,380 of its users."""
    train, test, shape = jester()
    chosen = np.random.default_rng(0).choice(shape[0], 1380, replace=False)
    number = np.full(shape[0], -1)
    number[chosen] = np.arange(len(chosen))
    train, test = ([number[data[0]], *data[1:]] for data in (train, test))
    train, test = ([part[data[0] >= 0] for part in data] for data in (train, test))
    return train, test, (len(chosen), shape[1])


def generated_pairs():
    data = np.load(DATA / "ratings" / "synthetic_netflix_1m.npz")
    shape = tuple(int(n) for n in data["shape"])
    return *split(data["user"], data["item"], np.ones(len(data["user"]))), shape


def ask_peer(options, peer, name, train, test, shape, **more):
    """Seconds and answers of one peer."""
    home = Path(options.environments) / f"mf-{peer}"
    if not home.exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", *REQUIREMENTS[peer]], check=True)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "split.npz", Path(folder) / "answer.npz"
        named = dict(zip(("train_user", "train_item", "train_value"), train, strict=True))
        np.savez(source, test_user=test[0], test_item=test[1], shape=shape, **named, **more)
        script = HERE / "peers" / "factorization_peers.py"
        subprocess.run([home / "bin" / "python", script, name, source, target], check=True)
        with np.load(target) as answer:
            facts = json.loads(str(answer["facts"]))
            return facts, {key: answer[key] for key in answer if key != "facts"}


def warm_up():
    """Compile everything on some ratings, as many as the numbers for likes need to be searched for."""
    small = ng.data.make_ratings(50, 60, 1500).ratings
    for likelihood in ("gaussian", "bernoulli"):
        values = (
            small
            if likelihood == "gaussian"
            else ng.data.Ratings(small.users, small.items, np.ones(1500), shape=small.shape)
        )
        model = ng.MatrixFactorization(3, likelihood=likelihood, max_steps=10, verbose=False).fit(values)
        model.recommend(n=3)
        model.predict([0], [0], return_std=True)


def quality(options):
    train, test, shape = jester()
    found = {}
    if options.peer in (None, "natgrad"):
        warm_up()
        for name, more in (("natgrad", {}), ("natgrad, noise by user", {"noise": "user"})):
            ratings = ng.data.Ratings(*train, shape=shape)
            began = time.perf_counter()
            model = ng.MatrixFactorization(RANK, verbose=False, **more).fit(ratings)
            seconds = time.perf_counter() - began
            low, high = model.interval(*test[:2], 0.95)
            mean = model.predict(*test[:2])
            found[name] = {
                "version": f"natgrad {ng.__version__}",
                "seconds": seconds,
                "rmse": float(np.sqrt(np.mean((mean - test[2]) ** 2))),
                "coverage": float(np.mean((low <= test[2]) & (test[2] <= high))),
                "log_likelihood": model.score(ng.data.Ratings(*test, shape=shape)),
                "sweeps": model.n_steps_,
            }
    for peer in [name for name in QUALITY_PEERS if options.peer in (None, name)]:
        facts, answer = ask_peer(options, peer, peer, train, test, shape)
        found[peer] = {**facts, "rmse": float(np.sqrt(np.mean((answer["mean"] - test[2]) ** 2)))}
    return found


def small(options):
    """A hundred thousand ratings of Jester: processor seconds of one thread, noise chosen and fixed, and of myFM."""
    train, test, shape = jester_sample()
    warm_up()
    found = {}
    for name, n_factors, by in (
        ("natgrad", RANK, "auto"),
        ("natgrad, one noise", RANK, None),
        ("natgrad, 40 factors", 2 * RANK, "auto"),
    ):
        ratings = ng.data.Ratings(*train, shape=shape)
        began = time.process_time()
        model = ng.MatrixFactorization(n_factors, noise=by, n_jobs=1, verbose=False).fit(ratings)
        cpu = time.process_time() - began
        mean = model.predict(*test[:2])
        found[name] = {
            "version": f"natgrad {ng.__version__}",
            "cpu": cpu,
            "sweeps": model.n_steps_,
            "noise": model.noise_per_,
            "rmse": float(np.sqrt(np.mean((mean - test[2]) ** 2))),
            "log_likelihood": model.score(ng.data.Ratings(*test, shape=shape)),
        }
    if options.peer in (None, "myfm"):
        facts, answer = ask_peer(options, "myfm", "myfm", train, test, shape)
        found["myfm"] = {**facts, "rmse": float(np.sqrt(np.mean((answer["mean"] - test[2]) ** 2)))}
    return found


def growth(options):
    """Seconds for one pass (both sides, the bound) by ratings and factors, and the memory of the largest fit."""
    warm_up()
    rows = []
    sizes = {"1 M": (4805, 16015, 1_000_000), "10 M": (71_567, 10_681, 10_000_000)}
    cases = [*(("1 M", n_factors) for n_factors in (10, 20, 40)), ("10 M", 20)]
    made = {}
    for size, n_factors in cases:
        if size not in made:
            began = time.perf_counter()
            made = {size: _drawn(*sizes[size])}
            print(f"{size}: drawn in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        # Fixed sweeps: no extrapolation is tried twice, so that a step is a pass.
        model = ng.MatrixFactorization(
            n_factors, method=ng.VB(), tol=0, max_steps=4, verbose=False
        ).fit(made[size])  # fmt: skip
        seconds = float(np.median(np.diff(model.trace_["seconds"])))
        rows.append({"ratings": size, "factors": n_factors, "seconds": seconds})
        print(rows[-1], file=sys.stderr)
    return {"passes": rows}


def _drawn(n_users, n_items, n_ratings):
    """Ratings of the paper's law; the ten million are drawn with replacement of the order of pairs, which is much faster."""
    if n_ratings <= 1_000_000:
        return ng.data.make_ratings(n_users, n_items, n_ratings).ratings
    rng = np.random.default_rng(0)
    weight = (0.01 * n_items + 1.0 + np.arange(n_items)) ** -1.0
    activity = (0.01 * n_users + 1.0 + np.arange(n_users)) ** -0.9
    pairs = np.empty(0, dtype=np.int64)
    while len(pairs) < n_ratings:
        more = int(1.3 * (n_ratings - len(pairs))) + 1000
        users = rng.choice(n_users, more, p=activity / activity.sum())
        items = rng.choice(n_items, more, p=weight / weight.sum())
        pairs = np.unique(np.concatenate([pairs, users * n_items + items]))
    pairs = rng.permutation(pairs)[:n_ratings]
    users, items = pairs // n_items, pairs % n_items
    taste, trait = rng.normal(size=(n_users, 5)), rng.normal(size=(n_items, 5))
    values = 3.6 + 0.3 * np.einsum("nk,nk->n", taste[users], trait[items]) + 0.75 * rng.normal(size=n_ratings)
    return ng.data.Ratings(users, items, np.clip(np.round(values), 1, 5), shape=(n_users, n_items), duplicates="keep")


def memory(options):
    """The largest resident size of a process that fits ten million ratings with `Auto`."""
    ratings = _drawn(71_567, 10_681, 10_000_000)
    began = time.perf_counter()
    model = ng.MatrixFactorization(RANK, tol=0, max_steps=4, verbose=False).fit(ratings)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"peak_gb": peak, "seconds": time.perf_counter() - began, "sweeps": model.n_steps_}


def recommending(options):
    """All users of the generated million, ten items each, on equal factors."""
    train, test, shape = generated_pairs()
    warm_up()
    ratings = ng.data.Ratings(*train, shape=shape)
    model = ng.MatrixFactorization(
        RANK, priors=ng.recommenders.FactorPriors(biases=False), max_steps=2, verbose=False
    ).fit(ratings)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        best = model.recommend(n=10)
        times.append(time.perf_counter() - began)
    users, items = (np.ascontiguousarray(part, dtype=np.float32) for part in model._predictor.vectors())
    facts, answer = ask_peer(
        options, "implicit", "implicit_recommend", train, test, shape, user_factors=users, item_factors=items
    )
    return {
        "natgrad": float(np.median(times[1:])),
        "implicit": facts["seconds"],
        "version": facts["version"],
        "same_scores": float(np.mean(np.isclose(best.scores, answer["scores"], rtol=1e-3))),
    }


def one_class(options):
    """Likes alone: Jester's, generated ones that depend on taste, and the pairs of the million, which popularity decides."""
    warm_up()
    found = json.loads(RESULTS.read_text()).get("likes", {}) if RESULTS.exists() else {}
    for name in [name for name in LIKES if options.peer in (None, name)]:
        users, items, shape, truth = LIKES[name]()
        who = likes.EVERYBODY if options.only is None else options.only.split(",")
        compared = likes.compared(
            users, items, shape, truth, lambda *what, **more: ask_peer(options, "implicit", *what, **more), who
        )
        found[name] = found.get(name, {}) | compared
        print(name, json.dumps(found[name], indent=1), file=sys.stderr)
    return found


def likes_of_files(options):
    """Likes alone of the user: ``--file likes.tsv``, a user and an item in each line; the row is called as the file is."""
    found = json.loads(RESULTS.read_text()).get("files", {}) if RESULTS.exists() else {}
    warm_up()
    for path in map(Path, options.file):
        users, items, shape, _ = _of_file(path)
        feasible = [
            name for name in likes.EVERYBODY if name != "BPR" and (name != "EASE" or shape[1] <= likes.MOST_ITEMS)
        ]
        rows = likes.compared(
            users,
            items,
            shape,
            None,
            lambda *what, **more: ask_peer(options, "implicit", *what, **more),
            feasible if options.only is None else options.only.split(","),
        )
        kept = found.get(path.stem, {}).get("rows", {})
        found[path.stem] = {"shape": shape, "likes": len(users), "rows": kept | rows}
        print(path.stem, json.dumps(rows, indent=1), file=sys.stderr)
    return found


def _of_file(path):
    pairs = np.unique(np.loadtxt(path, dtype=str, usecols=(0, 1)), axis=0)
    users, items = (np.unique(column, return_inverse=True)[1] for column in pairs.T)
    return users, items, (int(users.max()) + 1, int(items.max()) + 1), None


def jester_likes():
    """Ratings above zero."""
    data = np.load(DATA / "ratings" / "jester1.npz")
    liked = data["rating"] > 0
    return (
        data["user"][liked].astype(np.int64),
        data["item"][liked].astype(np.int64),
        tuple(int(n) for n in data["shape"]),
        None,
    )


def million_pairs():
    data = np.load(DATA / "ratings" / "synthetic_netflix_1m.npz")
    return data["user"].astype(np.int64), data["item"].astype(np.int64), tuple(int(n) for n in data["shape"]), None


LIKES = {
    "Jester": jester_likes, "taste": likes.generated, "films": likes.films, "popularity alone": million_pairs,
    "crowd": likes.crowd, "half and half": likes.half_and_half,
}  # fmt: skip


def chunks(options):
    """`partial_fit` over ten chunks of Jester against one `fit`."""
    train, test, shape = jester()
    held = ng.data.Ratings(*test, shape=shape)
    began = time.perf_counter()
    model = ng.MatrixFactorization(RANK, verbose=False)
    for part in np.array_split(np.random.default_rng(1).permutation(len(train[0])), 10):
        model.partial_fit(ng.data.Ratings(*(column[part] for column in train)))
    return {"rmse": model.score(held, metric="rmse"), "seconds": time.perf_counter() - began}


PARTS = {
    "small": small, "quality": quality, "growth": growth,
    "memory": memory, "recommend": recommending, "likes": one_class, "files": likes_of_files, "chunks": chunks,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "tables"], help="one part; all without it")
    parser.add_argument("--peer", help="one peer of the part; of likes, one set")
    parser.add_argument("--only", help="of likes, who is measured, as ALS,EASE; the other rows are kept")
    parser.add_argument("--file", nargs="*", default=(), help="of files: likes, a user and an item in each line")
    parser.add_argument("--environments", default=HERE.parent / ".bench")
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, measure in PARTS.items():
        if options.part in (None, name):
            found.setdefault(name, {}).update(measure(options))
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    tables.write(found, HERE / "results")


if __name__ == "__main__":
    main()
