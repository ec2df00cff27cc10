"""Topic models beyond LDA: a fitted one in; the explorer of its topics, and what it has besides words, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import as_corpus
from natgrad.report.charts.topic_map import Sizes, sizes_from_counts, sizes_from_shares
from natgrad.report.format import count, percent, short
from natgrad.report.html import Html, tag
from natgrad.report.sections.contribution import Fact, Section, Subject
from natgrad.report.sections.lda import Documents, explored, texts_of
from natgrad.topics.base import TopicNetwork, read_documents
from natgrad.topics.first import as_shares

__all__ = ["facts", "sections"]

Floats = npt.NDArray[np.float64]
MOST_ROWS, FEW = 40, 5


class _Topics(NamedTuple):
    """What the explorer asks for."""

    topics_: Floats
    components_: Floats
    vocabulary_: npt.NDArray[Any]
    top_words: Callable[..., list[list[Any]]]


def facts(subject: Subject) -> list[Fact]:
    """How much was read, and how well other documents are predicted."""
    model: TopicNetwork = subject.model
    shown = [
        Fact("documents", count(model.n_documents_seen_)),
        Fact("vocabulary", f"{count(len(model.vocabulary_))} words"),
        Fact("topics", count(model.n_topics)),
        Fact("seed", str(model.seed)),
    ]
    if subject.held_out is not None:
        given = subject.held_out if isinstance(subject.held_out, tuple) else (subject.held_out,)
        score = model.score(*given)
        words = f"{short(score)} nats a word (perplexity {short(float(np.exp(-score)))})"
        shown.append(Fact("held-out score", words))
    return shown


def sections(subject: Subject) -> list[Section]:
    """The explorer, the table of all topics, and what the model learned besides."""
    model: TopicNetwork = subject.model
    documents = _documents(subject)
    counts = model._word_counts()
    topics = _Topics(model._mean_topics(), counts, model.vocabulary_, model.top_words)
    own = BESIDES[type(model).__name__](model)
    return [*explored(topics, _sizes(documents, counts), documents), own]


def _documents(subject: Subject) -> Documents | None:
    model: TopicNetwork = subject.model
    if subject.data is None:
        return None
    corpus = as_corpus(subject.data, model._names, len(model.vocabulary_))
    gamma = read_documents(corpus, model._mean_topics(), np.full(model.n_topics, 1.0 / model.n_topics))
    shares = as_shares(gamma)
    sd = np.sqrt(shares * (1.0 - shares) / (gamma.sum(1, keepdims=True) + 1.0))
    return Documents(shares, sd, corpus.lengths, texts_of(subject, corpus, model.vocabulary_))


def _sizes(documents: Documents | None, counts: Floats) -> Sizes:
    if documents is not None and documents.lengths.sum() > 0:
        return sizes_from_shares(documents.shares, documents.sd, documents.lengths)
    return sizes_from_counts(np.maximum(counts.sum(1), 1e-12))


# -- what each model has besides --


def _responses(model: Any) -> Section:
    sd = np.sqrt(np.diag(model.coefficient_covariance_))
    order = np.argsort(-model.coefficients_, kind="stable")[:MOST_ROWS]
    rows = [
        [f"Topic {k}", short(model.coefficients_[k]), f"± {short(sd[k])}", _words(model, k)] for k in order.tolist()
    ]
    of = "logit" if model.response == "bernoulli" else "response"
    caption = f"The {of} of a document with one topic alone, and its standard deviation."
    return Section("responses", "Responses", _table(caption, ["topic", of, "sd", "words"], rows))


def _correlations(model: Any) -> Section:
    upper = np.triu_indices(model.n_topics, 1)
    values = model.correlations_[upper]
    order = np.argsort(-np.abs(values), kind="stable")[:MOST_ROWS]
    rows = [
        [
            f"{upper[0][i]} and {upper[1][i]}",
            f"{values[i]:.2f}",
            f"{_words(model, upper[0][i])} / {_words(model, upper[1][i])}",
        ]
        for i in order.tolist()
    ]
    caption = "Correlations of the logarithms of shares over documents, the strongest first."
    return Section("correlations", "Correlations", _table(caption, ["topics", "correlation", "words"], rows))


def _authors(model: Any) -> Section:
    share = dict(zip(model.authors_.tolist(), model.author_shares_, strict=True))
    rows = [
        [f"Topic {k}", ", ".join(f"{name} ({percent(share[name][k])})" for name in names)]
        for k, names in enumerate(model.top_authors(FEW)[:MOST_ROWS])
    ]
    caption = "Authors with the largest shares of each topic."
    return Section("authors", "Authors", _table(caption, ["topic", "authors"], rows))


def _times(model: Any) -> Section:
    first, last = (model.top_words(FEW, time=model.times_[place]) for place in (0, -1))
    rows = [
        [f"Topic {k}", " ".join(map(str, early)), " ".join(map(str, late))]
        for k, (early, late) in enumerate(zip(first[:MOST_ROWS], last, strict=False))
    ]
    head = ["topic", str(model.times_[0]), str(model.times_[-1])]
    return Section("times", "Times", _table("The likeliest words at the first and at the last time.", head, rows))


BESIDES: dict[str, Callable[[Any], Section]] = {
    "SupervisedLDA": _responses,
    "CorrelatedTopics": _correlations,
    "AuthorTopics": _authors,
    "DynamicTopics": _times,
}


def _words(model: Any, k: int) -> str:
    return " ".join(str(word) for word in model.top_words(FEW)[k])


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    grid = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", [tag("th", text, scope="col") for text in head])),
        tag(
            "tbody", [tag("tr", tag("th", row[0], scope="row"), [tag("td", cell) for cell in row[1:]]) for row in rows]
        ),
    )
    return tag("div", grid, class_="scroll", role="region", tabindex="0", aria_label=caption)
