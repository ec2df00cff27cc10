"""Make or read the ratings of a problem, by its name.

Real data are looked for in ``$NATGRAD_DATA``, else in ``../shared/data`` from the project's root. With ``quick`` the same
problems are made small, to try the scripts.
"""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

import natgrad as ng

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("NATGRAD_DATA", ROOT.parent / "shared" / "data"))
TITLES = {
    "paper": "generated, the paper's shape: 4,805 users × 16,015 items, 1 M ratings of 1–5 stars",
    "jester": "Jester as it is: 24,983 users × 100 items, 1.81 M ratings from −10 to 10",
    "stars": "Jester scaled to stars, 1 + 4 (r + 10)/20",
}


def is_there(name: str) -> bool:
    files = {"jester": JESTER, "stars": JESTER}
    return name not in files or files[name].exists()


JESTER = DATA / "ratings" / "jester1.npz"


@lru_cache(maxsize=3)
def load_ratings(name: str, quick: bool) -> ng.Ratings:
    if name == "paper":
        ratings = ng.data.make_ratings(*((300, 1000, 20_000) if quick else (4805, 16015, 1_000_000))).ratings
    else:
        ratings = _jester(quick, stars=name == "stars")
    return ratings


def _jester(quick: bool, stars: bool) -> ng.Ratings:
    with np.load(JESTER) as file:
        user, item, rating, shape = (file[name] for name in ("user", "item", "rating", "shape"))
    rating = rating.astype(np.float64)
    n_users = 500 if quick else int(shape[0])
    kept = user < n_users
    values = 1 + 4 * (rating[kept] + 10) / 20 if stars else rating[kept]
    return ng.Ratings(user[kept], item[kept], values, shape=(n_users, int(shape[1])))
