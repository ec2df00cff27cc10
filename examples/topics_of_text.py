"""Topics of real text: the docstrings of seven packages that come with natgrad or with Python.

Two questions with an answer: does a document's first half predict its second, and do its topic shares, twenty
numbers, tell which package it is from? The packages were never shown to the topic model.
"""

import argparse

import numpy as np
from generated.docstrings import read_docstrings
from matplotlib.figure import Figure
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

import natgrad as ng

PACKAGES = ["asyncio", "email", "jax", "matplotlib", "numpy", "scipy", "sklearn"]


def main(figure: str | None = None) -> tuple[float, float]:
    texts, packages = read_docstrings(PACKAGES, limit=3000)
    vectoriser = CountVectorizer(stop_words="english", min_df=5, max_df=0.3, token_pattern="[a-zA-Z]{3,}")
    X = vectoriser.fit_transform(texts)
    package, train, test = np.array(packages), slice(0, 2400), slice(2400, None)

    model = ng.LDA(n_topics=20, inference="gibbs", seed=0, verbose=False)
    model.fit(X[train], vocabulary=vectoriser.get_feature_names_out())
    for words in model.top_words(6, by="relevance"):
        print("  ", " ".join(words))

    # Half of each unseen document predicts the other half; the rival knows only how common each word is.
    perplexity = model.perplexity(X[test], how="completion")
    frequency = 1.0 + np.asarray(X[train].sum(axis=0)).ravel()
    alone = np.exp(-(X[test] @ np.log(frequency / frequency.sum())).sum() / X[test].sum())
    print(f"perplexity of a word: {perplexity:.0f} given half of its document, {alone:.0f} from word frequencies")

    shares = model.transform(X)
    guess = LogisticRegression(max_iter=500).fit(shares[train], package[train])
    right = guess.score(shares[test], package[test])
    most = max(np.mean(package[test] == name) for name in PACKAGES)
    print(f"package of an unseen docstring from its 20 topic shares: {right:.0%} right; the commonest is {most:.0%}")

    if figure:
        table = np.array([shares[package == name].mean(axis=0) for name in PACKAGES])
        picture = Figure(figsize=(9, 3.2), layout="constrained")
        axes = picture.subplots()
        axes.imshow(table, aspect="auto", cmap="Blues")
        axes.set_yticks(range(len(PACKAGES)), PACKAGES)
        axes.set_xticks(range(20), [words[0] for words in model.top_words(1, by="relevance")], rotation=60, ha="right")
        axes.set_title("Mean share of each topic in the docstrings of each package")
        picture.savefig(figure, dpi=100)
    return perplexity / alone, right - most


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)
