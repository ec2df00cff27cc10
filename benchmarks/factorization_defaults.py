"""What the defaults of MatrixFactorization cost and whether they are right: more factors than needed, and whose noise differs.

    python benchmarks/factorization_defaults.py factors                        # 20 and 40 factors
    python benchmarks/factorization_defaults.py factors --set million --n 20   # one row
    python benchmarks/factorization_defaults.py noise --set Jester             # one set
    … --label "before: "                                                       # in front of the name of each row

Processor seconds of one thread; a tenth of the ratings is held out at random, seed 0. ``noise`` fits the four kinds of noise and
says which of them is the default of q (the fit is then the same one; the seconds of the choice are counted apart). Generated sets
have 1,500 users, 600 items and six factors: noise of all ratings alike, or with standard deviations by user, log-normal.

Results: ``benchmarks/results/factorization-defaults.json`` and ``factorization-factors.md``, ``factorization-noise.md``.
"""

import argparse
import json
import time
import warnings

import numpy as np
from factorization import DATA, HERE, jester, jester_sample, split, warm_up

import natgrad as ng
from natgrad.models.factorization.noise import chosen_noise
from natgrad.threads import at_most

RESULTS = HERE / "results" / "factorization-defaults.json"
COMMAND = "python benchmarks/factorization_defaults.py"


def million():
    data = np.load(DATA / "ratings" / "synthetic_netflix_1m.npz")
    return *split(data["user"], data["item"], data["rating"].astype(np.float64)), tuple(int(n) for n in data["shape"])


def generated(by_user, seed):
    rng = np.random.default_rng(seed)
    n_users, n_items, n = 1500, 600, 100_000
    key = rng.choice(n_users * n_items, n, replace=False)
    users, items = key // n_items, key % n_items
    signal = 0.4 * (rng.normal(size=(n_users, 6))[users] * rng.normal(size=(n_items, 6))[items]).sum(1)
    signal += 0.5 * rng.normal(size=n_users)[users] + 0.5 * rng.normal(size=n_items)[items]
    spread = np.exp(0.5 * rng.normal(size=n_users))[users] if by_user else 1.0
    return *split(users, items, 3.0 + signal + spread * rng.normal(size=n)), (n_users, n_items)


SETS = {
    "Jester": jester, "Jester, 1,380 users": jester_sample, "million": million,
    "generated, noise by user": lambda: generated(True, 2026), "generated, one noise": lambda: generated(False, 2027),
}  # fmt: skip


def measured(train, test, shape, n_factors, **more):
    ratings = ng.data.Ratings(*train, shape=shape)
    began = time.process_time()
    model = ng.MatrixFactorization(n_factors, finish=None, n_jobs=1, verbose=False, **more).fit(ratings)
    cpu = time.process_time() - began
    return {
        "cpu": cpu,
        "sweeps": model.n_steps_,
        "in use": model.n_factors_,
        "noise": model.noise_per_ or "one",
        "rmse": float(np.sqrt(np.mean((model.predict(*test[:2]) - test[2]) ** 2))),
        "log_likelihood": model.score(ng.data.Ratings(*test, shape=shape)),
        "bound": model.elbo_ / len(ratings),
    }


def factors(options, found):
    for name in [name for name in ("million", "Jester") if options.set in (None, name)]:
        data = SETS[name]()
        for n in [n for n in (20, 40) if options.n in (None, n)]:
            found[f"{name}|{options.label}{n} factors"] = measured(*data, n)
            yield


def noise(options, found):
    for name in [name for name in SETS if options.set in (None, name)]:
        train, test, shape = SETS[name]()
        ratings = ng.data.Ratings(*train, shape=shape)
        began = time.process_time()
        with at_most(1):
            chosen = chosen_noise(ng.MatrixFactorization(20)._settings(), ratings, 0).noise_per
        choice = time.process_time() - began
        for by in (None, "user", "item", "both"):
            row = measured(train, test, shape, 20, noise_per=by)
            found[f"{name}|{by or 'one for all'}"] = row | ({"choice": choice} if by == chosen else {})
            yield


def tables(found):
    rows = found.get("factors", {})
    lines = [
        "| set | | test RMSE | log likelihood | CPU seconds | sweeps | factors in use | noise | bound a rating |",
        "|---" * 9 + "|",
    ]
    for name, row in sorted(rows.items()):
        ends = f"{row['rmse']:.4f} | {row['log_likelihood']:.4f} | {row['cpu']:.1f} | {row['sweeps']} | {row['in use']}"
        lines.append(f"| {' | '.join(name.split('|'))} | {ends} | {row['noise']} | {row['bound']:.5f} |")
    lines += [
        "",
        f"The generated million (4,805 users, 16,015 items, rank 5) and Jester, one thread. `{COMMAND} factors`",
    ]
    (HERE / "results" / "factorization-factors.md").write_text("\n".join(lines) + "\n")
    rows = found.get("noise", {})
    lines = ["| set | noise | test RMSE | log likelihood | CPU seconds | sweeps | the default |", "|---" * 7 + "|"]
    for name, row in rows.items():
        default = f"yes, chosen in {row['choice']:.1f} s" if "choice" in row else ""
        ends = f"{row['rmse']:.4f} | {row['log_likelihood']:.4f} | {row['cpu']:.1f} | {row['sweeps']} | {default}"
        lines.append(f"| {' | '.join(name.split('|'))} | {ends} |")
    lines += ["", f"20 factors, one thread. `{COMMAND} noise`"]
    (HERE / "results" / "factorization-noise.md").write_text("\n".join(lines) + "\n")


PARTS = {"factors": factors, "noise": noise}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--n", type=int, help="factors")
    parser.add_argument("--label", default="", help="in front of the names of rows")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ng.errors.NotConverged)
    warm_up()
    for name in [name for name in PARTS if options.part in (None, name)]:
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for _ in PARTS[name](options, found.setdefault(name, {})):
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
            tables(found)


if __name__ == "__main__":
    main()
