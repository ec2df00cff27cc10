"""Small models that the tests of pages and commands share; each is fitted once."""

from pathlib import Path

import numpy as np
import pytest

import natgrad as ng

THEMES = {
    "kitchen": "flour butter oven sugar salt dough bread",
    "garden": "soil seed rain root leaf spade flower",
    "sea": "wave sail harbour tide anchor salt boat",
}
NASTY = "<script>alert(1)</script>"


def letters(n: int = 30) -> list[str]:
    """Texts of mostly one theme each, with a word that looks like markup."""
    rng = np.random.default_rng(0)
    groups = [words.split() for words in THEMES.values()]
    texts = []
    for d in range(n):
        words = [*rng.choice(groups[d % 3], 30), *rng.choice(groups[(d + 1) % 3], 4)]
        texts.append(" ".join(rng.permutation(words)))
    return texts


@pytest.fixture(scope="session")
def topics() -> ng.LDA:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer()
    counts = counter.fit_transform(letters())
    words = counter.get_feature_names_out().astype(object)
    words[0] = NASTY
    return ng.LDA(n_topics=3, seed=1, inference="vb", max_passes=10, verbose=False).fit(counts, vocabulary=words)


@pytest.fixture(scope="session")
def ratings() -> ng.Ratings:
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((20, 12)) < 0.6)
    values = np.clip(np.round(3 + rng.normal(size=20)[users] * rng.normal(size=12)[items]), 1, 5)
    return ng.Ratings([f"user {u}" for u in users], [f"<b>item {i}" for i in items], values)


@pytest.fixture(scope="session")
def factors(ratings) -> ng.MatrixFactorization:
    return ng.MatrixFactorization(n_factors=2, max_steps=10, verbose=False).fit(ratings)


@pytest.fixture(scope="session")
def series() -> np.ndarray:
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1, 0, 1, 0], 60)
    return np.column_stack([3.0 * states + rng.normal(size=300), rng.normal(size=300)])


@pytest.fixture(scope="session")
def states(series):
    return ng.GaussianHMM(n_states=2, n_init=2, max_passes=20, seed=0, verbose=False).fit(series)


@pytest.fixture(scope="session")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(40, 2))  # the shapes of rows.csv below: what was compiled for one serves the other
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)


@pytest.fixture(scope="session")
def process(rows):
    return ng.SparseGPRegressor(n_inducing=10, max_steps=60, verbose=False).fit(*rows)


@pytest.fixture(scope="session")
def fit():
    rng = np.random.default_rng(0)
    x, n = rng.normal(size=(40, 3)), ng.Plate("n", 40)
    w = ng.MultivariateNormal("w", 0.0, 1.0, size=3)
    tau = ng.Gamma("tau", 1.0, 1.0)
    y = ng.Normal("y", ng.dot(x, w), tau, plate=n, observed=x @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=40))
    return ng.Network(y).fit(verbose=False)


REVIEWS = ("apple pear plum apple", "bolt nut screw bolt", "pear plum apple", "nut screw nut")


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Path:
    """A folder with a corpus and ratings in it, as the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "letters"
    folder.mkdir()
    for number, text in enumerate(letters()):
        (folder / f"{number:02}.txt").write_text(text)
    rng = np.random.default_rng(1)
    people = ["ann", "bob", "cat", "dan"]
    pairs = [(p, i) for p in people for i in range(8) if (p, i) != ("ann", 3) and rng.random() < 0.8]
    lines = [f"{p},{i},{rng.integers(1, 6)}" for p, i in pairs]
    rows = [
        f"{REVIEWS[d % 4]},{2 + 7 * (d % 2)},{2020 + d // 20},{('ann;eve', 'bob')[d % 2]},{d % 3}" for d in range(40)
    ]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,price,year,author,shop", *rows, ""]))
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    times = [f"{line},{2000 + n % 6},{('tv', 'phone')[n % 2]}" for n, line in enumerate(lines)]
    (tmp_path / "rated.csv").write_text("\n".join(["user,item,rating,year,device", *times, ""]))
    levels = np.repeat([0, 1, 0, 1], 30)
    rows = [f"{level + 0.2 * rng.normal():.3f},{rng.random() < 0.2 + 0.6 * level:d}" for level in levels]
    (tmp_path / "series.csv").write_text("\n".join(["level,symbol", *rows, ""]))
    x = np.linspace(0, 6, 40)
    rows = [f"{a:.3f},{np.sin(a):.4f},{'up' if np.cos(a) > 0 else 'down'}" for a in x]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y,kind", *rows, ""]))
    (tmp_path / "pairs.csv").write_text("user,item\nann,3\nbob,0\n")
    return tmp_path
