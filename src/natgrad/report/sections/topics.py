"""Show the topics of a model: their explorer and table, and what topic models beyond LDA have besides words.

Distances on the map are √JSD, the square root of the Jensen–Shannon divergence, a metric that embeds in a Hilbert space (Endres
and Schindelin, 2003), so that classical scaling loses nothing but the dimensions it drops. Relevance is that of Sievert and
Shirley (2014): λ log φ + (1 − λ) log (φ / p).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.models.lda.estimator import LDA
from natgrad.report.charts.svg import picture
from natgrad.report.format import count, percent, percent_range, short
from natgrad.report.html import Html, join, json_block, tag
from natgrad.report.sections.contribution import Fact, Section, Subject
from natgrad.topics.base import TopicNetwork, as_shares, read_documents

__all__ = [
    "Sizes",
    "distances",
    "facts",
    "places",
    "relevant_words",
    "sections",
    "sizes_from_counts",
    "sizes_from_shares",
]

Floats = npt.NDArray[np.float64]
# What the explorer and the table may take of the page; with more topics or longer documents fewer of each are shown.
BUDGET = 400_000
LEAST_OF_A_WORD = 12  # bytes: its number and its logarithm
MOST_LISTED, FEW_WORDS = 250, 100
AMOUNTS = ((30, 5, 240), (20, 4, 160), (15, 3, 120), (10, 2, 80), (6, 1, 60), (4, 0, 0))
LONGEST_WORD = 40
COLUMNS = ("topic", "size", "interval", "words, by relevance")
MAP, MARGIN = 440.0, 40.0
MOST_ROWS, FEW = 40, 5
Ints = npt.NDArray[np.int64]
# Numbers that the distances may read; with more, rare words are put together into one.
MOST_NUMBERS = 1e8
SLIDER = np.linspace(0.0, 1.0, 21)
MASS = 0.9


class Documents(NamedTuple):
    """Shares of the topics in documents [D, K], their standard deviations, lengths, and a text to show for each."""

    shares: Floats
    sd: Floats
    lengths: Floats
    texts: list[str]


class _Topics(NamedTuple):
    """What the explorer asks for."""

    topics_: Floats
    components_: Floats
    vocabulary_: npt.NDArray[Any]
    top_words: Callable[..., list[list[Any]]]


def facts(subject: Subject) -> list[Fact]:
    """How much was read, and how well other documents are predicted."""
    if isinstance(subject.model, LDA):
        return _facts_of_lda(subject)
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
    if isinstance(subject.model, LDA):
        return _sections_of_lda(subject)
    model: TopicNetwork = subject.model
    documents = _documents(subject)
    counts = model._word_counts()
    topics = _Topics(model._mean_topics(), counts, model.vocabulary_, model.top_words)
    own = next(section for known, section in BESIDES.items() if hasattr(model, known))(model)
    return [*_explored(topics, _sizes(documents, counts), documents), own]


def _documents(subject: Subject) -> Documents | None:
    model: TopicNetwork = subject.model
    if subject.data is None:
        return None
    corpus = as_corpus(subject.data, model._names, len(model.vocabulary_))
    gamma = read_documents(corpus, model._mean_topics(), np.full(model.n_topics, 1.0 / model.n_topics))
    shares = as_shares(gamma)
    sd = np.sqrt(shares * (1.0 - shares) / (gamma.sum(1, keepdims=True) + 1.0))
    return Documents(shares, sd, corpus.lengths, _texts_of(subject, corpus, model.vocabulary_))


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


# By the attribute that only one model has.
BESIDES: dict[str, Callable[[Any], Section]] = {
    "coefficients_": _responses,
    "correlations_": _correlations,
    "author_shares_": _authors,
    "times_": _times,
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


# -- LDA, and the explorer of topics --


def _facts_of_lda(subject: Subject) -> list[Fact]:
    """How much was read, and how well other documents are predicted."""
    model: LDA = subject.model
    facts_shown = [
        Fact("documents", count(model.n_documents_seen_)),
        Fact("vocabulary", f"{count(model.topics_.shape[1])} words"),
        Fact("topics", count(len(model.topics_))),
        Fact("seed", str(model.seed)),
    ]
    corpus = _corpus_of_fit(model)
    if corpus is not None:
        facts_shown.insert(1, Fact("words read", count(corpus.n_tokens)))
    if subject.held_out is not None:
        score = model.score(subject.held_out)
        facts_shown.append(
            Fact("held-out bound", f"{short(score)} nats a word (perplexity {short(float(np.exp(-score)))})")
        )
    return facts_shown


def _sections_of_lda(subject: Subject) -> list[Section]:
    """The explorer and the table of all topics."""
    documents = _documents_of_lda(subject)
    return _explored(subject.model, _sizes_of_lda(subject.model, documents), documents)


def _explored(model: Any, sizes: Sizes, documents: Documents | None) -> list[Section]:
    """The same of whatever has ``topics_``, ``components_``, ``vocabulary_`` and ``top_words``."""
    overall = sizes.mean @ model.topics_
    explorer, listed = _explorer(model, sizes), _table_of_topics(model, sizes)
    room = BUDGET - len(explorer.encode()) - len(listed.encode())
    payload = _payload(model, sizes, overall, documents, room)
    words = "Topics that use the same words are near each other; the area of a circle is the size of its topic."
    body = join([tag("p", words), explorer, json_block("topics-data", payload)])
    return [Section("topics", "Topics", body, "topics.js"), Section("sizes", "All topics", listed)]


# -- what is known of the documents --


def _documents_of_lda(subject: Subject) -> Documents | None:
    """The documents that were given; or those of the fit, if the model still has them."""
    model: LDA = subject.model
    if subject.data is not None:
        names = getattr(model, "_names", None)
        corpus = as_corpus(subject.data, names, len(model.vocabulary_))
        mean, sd = model.transform(corpus, return_std=True)
    else:
        held, theta = _corpus_of_fit(model), model.posterior_.get("theta")
        if held is None or theta is None:
            return None
        corpus, mean, sd = held, theta.mean(), theta.std()
    return Documents(mean, sd, corpus.lengths, _texts_of(subject, corpus, model.vocabulary_))


def _corpus_of_fit(model: LDA) -> Corpus | None:
    corpus = getattr(getattr(model, "_fitted", None), "corpus", None)
    there = isinstance(corpus, Corpus) and len(corpus) == model.n_documents_seen_ and corpus.n_tokens > 0
    return corpus if there else None  # a model that was loaded from a file has forgotten the words


def _texts_of(subject: Subject, corpus: Corpus, vocabulary: npt.NDArray[Any]) -> list[str]:
    """A name, the text itself, or the most frequent words of each document."""
    names = None if subject.names is None else [str(name) for name in subject.names]
    if names is not None and len(names) != len(corpus):
        raise ValueError(f"names has {len(names)} entries and there are {len(corpus)} documents: give one for each")
    data = subject.data
    if isinstance(data, (list, tuple)) and data and all(isinstance(text, str) for text in data):
        texts = [" ".join(text[:1000].split()) for text in data]
        return texts if names is None else [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
    return names if names is not None else [_frequent(corpus, d, vocabulary) for d in range(len(corpus))]


def _frequent(corpus: Corpus, d: int, vocabulary: npt.NDArray[Any]) -> str:
    part = slice(int(corpus.start[d]), int(corpus.start[d + 1]))
    best = np.argsort(-corpus.counts[part], kind="stable")[:8]
    return f"document {d}: " + " ".join(str(vocabulary[v]) for v in corpus.words[part][best])


def _sizes_of_lda(model: LDA, documents: Documents | None) -> Sizes:
    if documents is not None and documents.lengths.sum() > 0:
        return sizes_from_shares(documents.shares, documents.sd, documents.lengths)
    return sizes_from_counts(
        model.components_.sum(1) - getattr(model, "topic_prior_", model.topic_prior) * model.components_.shape[1]
    )


# -- data of the explorer --


def _payload(model: LDA, sizes: Sizes, overall: Floats, documents: Documents | None, room: int) -> dict[str, Any]:
    """What the script needs, as much of it as fits."""
    payload: dict[str, Any] = {}
    K = len(model.topics_)
    for n_words, n_documents, length in AMOUNTS:
        # What is sure not to fit is not tried: looking for the words takes longest.
        if K * (LEAST_OF_A_WORD * n_words) > room and n_words > AMOUNTS[-1][0]:
            continue
        payload = _payload_of(model, sizes, overall, documents, n_words, n_documents, length)
        if len(json_block("topics-data", payload).encode()) <= room:
            break
    return payload


def _payload_of(
    model: LDA, sizes: Sizes, overall: Floats, documents: Documents | None, n_words: int, n_documents: int, length: int
) -> dict[str, Any]:
    chosen = relevant_words(model.topics_, overall, n_words)
    used = np.unique(np.concatenate(chosen))
    number = {int(v): place for place, v in enumerate(used)}
    log_topics = np.log(model.topics_)
    return {
        "show": n_words,
        "words": [str(model.vocabulary_[v])[:LONGEST_WORD] for v in used],
        "overall": [round(float(value), 3) for value in np.log(overall[used])],
        "topics": [
            {
                "size": float(f"{sizes.mean[k]:.4g}"),
                "words_of_size": "{} of all words ({})".format(*_size_in_words(sizes, k)),
                "total": round(float(model.components_[k].sum()), 1),
                "words": [number[int(v)] for v in chosen[k]],
                "log": [round(float(value), 3) for value in log_topics[k, chosen[k]]],
                "documents": _best(documents, k, n_documents, length),
            }
            for k in range(len(model.topics_))
        ],
    }


def _best(documents: Documents | None, k: int, n: int, length: int) -> list[list[Any]]:
    """The documents with the largest shares of a topic; of two alike, the one of which more is known."""
    if documents is None or n == 0:
        return []
    sure = documents.shares[:, k] - documents.sd[:, k]
    order = np.argsort(-sure, kind="stable")[:n]
    return [[_cut(documents.texts[d], length), round(float(documents.shares[d, k]), 4)] for d in order]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


# -- what is there without a script --


def _explorer(model: LDA, sizes: Sizes) -> Html:
    first = int(np.argmax(sizes.mean))
    chosen = tag(
        "select",
        [
            tag("option", f"Topic {k}: {', '.join(words)}", value=k, selected=k == first)
            for k, words in enumerate(_labels(model, 3))
        ],
        id="topic-choice",
        aria_label="Topic",
    )
    step = [
        tag("button", text, type="button", id=f"topic-{key}", aria_label=label)
        for key, text, label in (("previous", "←", "Previous topic"), ("next", "→", "Next topic"))
    ]
    slider = tag(
        "div",
        tag(
            "label",
            "Order of words: λ = ",
            tag("output", "0.6", id="relevance-value", for_="relevance"),
            for_="relevance",
        ),
        tag("input", type="range", id="relevance", min=0, max=1, step=0.05, value=0.6),
        tag(
            "div",
            tag("span", "typical of the topic"),
            tag("span", "frequent in the topic"),
            class_="ends",
            aria_hidden="true",
        ),
        class_="slider",
    )
    words = tag(
        "div",
        tag("div", chosen, step, class_="controls"),
        tag("p", id="topic-size", aria_live="polite"),
        slider,
        tag(
            "p",
            "Whole bars: how often a word comes in all topics; the stronger part: in this one. Numbers: its probability here.",
            class_="note",
        ),
        tag("ol", id="topic-words", class_="words", aria_label="Words of the topic"),
        tag(
            "div",
            tag("h3", "Documents"),
            tag("ol", id="topic-documents", class_="documents"),
            id="documents-part",
            hidden=True,
        ),
        tag("noscript", tag("p", "The words of all topics are in the table below; the slider needs JavaScript.")),
    )
    return tag("div", tag("div", _map(model, sizes, first), class_="map"), words, class_="explorer")


def _map(model: LDA, sizes: Sizes, first: int) -> Html:
    points = places(distances(model.topics_))
    radius = np.maximum(7.0, min(70.0, 130.0 / len(sizes.mean) ** 0.25) * np.sqrt(sizes.mean / sizes.mean.max()) * 0.6)
    room = MAP - 2 * MARGIN
    span = float(np.ptp(points, axis=0).max()) or 1.0
    centre = (points.max(0) + points.min(0)) / 2
    at = MAP / 2 + (points - centre) / span * room * np.array([1.0, -1.0])
    labels = _labels(model, 5 if len(sizes.mean) <= FEW_WORDS else 2)
    # Large circles first, so that small ones can be reached.
    circles = [
        tag(
            "g",
            tag("title", f"Topic {k}, {percent(sizes.mean[k])} of all words: {', '.join(labels[k])}"),
            tag("circle", cx=f"{at[k, 0]:.1f}", cy=f"{at[k, 1]:.1f}", r=f"{radius[k]:.1f}"),
            class_="topic",
            role="button",
            data_topic=k,
            tabindex=0 if k == first else -1,
            aria_pressed="true" if k == first else "false",
        )
        for k in np.argsort(-sizes.mean, kind="stable").tolist()
    ]
    numbers = [tag("text", k, x=f"{x:.1f}", y=f"{y + 4:.1f}") for k, (x, y) in enumerate(at)]
    words = "Map of topics by the words they use; arrow keys go from topic to topic"
    drawn = picture(
        MAP, MAP, [circles, tag("g", numbers, class_="numbers", aria_hidden="true")], title=words, description=""
    )
    # A group of buttons, not one image: what is inside must be reachable.
    return Html(drawn.replace('role="img"', 'role="group"', 1))


def _labels(model: LDA, n: int) -> list[list[str]]:
    return [[str(word)[:LONGEST_WORD] for word in words] for words in model.top_words(n, by="relevance")]


def _table_of_topics(model: LDA, sizes: Sizes) -> Html:
    labels = _labels(model, 8)
    top = float(sizes.high.max())
    rows = []
    order = np.argsort(-sizes.mean, kind="stable").tolist()
    for k in order[:MOST_LISTED]:
        mean, interval = _size_in_words(sizes, k)
        rows.append(
            tag(
                "tr",
                tag("th", tag("button", f"Topic {k}", type="button", class_="link", data_show=k), scope="row"),
                tag("td", mean, class_="number"),
                tag("td", _size_bar(sizes, k, top, interval), class_="interval"),
                tag("td", " ".join(labels[k]), class_="wide"),
            )
        )
    head = tag("tr", [tag("th", text, scope="col", class_=text if text == "interval" else None) for text in COLUMNS])
    cut = f" The {MOST_LISTED} largest of {len(order)}." if len(order) > MOST_LISTED else ""
    caption = tag("caption", f"Sizes with {sizes.meaning}. Numbers are rows of topics_.{cut}")
    grid = tag("table", caption, tag("thead", head), tag("tbody", rows), class_="sizes")
    return tag("div", grid, class_="scroll", role="region", tabindex="0", aria_label="All topics with sizes and words")


def _size_in_words(sizes: Sizes, k: int) -> tuple[str, str]:
    return percent_range(float(sizes.mean[k]), float(sizes.low[k]), float(sizes.high[k]))


def _size_bar(sizes: Sizes, k: int, top: float, words: str) -> Html:
    scale = 150.0 / top
    parts = [
        tag("rect", class_="bar", x=0, y=4, width=f"{sizes.mean[k] * scale:.1f}", height=8, rx=1),
        tag("path", class_="whisker", d=f"M{sizes.low[k] * scale:.1f} 8H{sizes.high[k] * scale:.1f}"),
    ]
    return picture(160, 16, parts, title=words, description="")


class Sizes(NamedTuple):
    """The part of all words that each topic has [K], the ends of its interval, and what the interval means."""

    mean: Floats
    low: Floats
    high: Floats
    meaning: str


def distances(topics: Floats, max_numbers: float = MOST_NUMBERS) -> Floats:
    """√JSD between all pairs of topics [K, K], in nats: 0 for the same, √log 2 for topics without a common word.

    The rarest words count as one where there are more than ``max_numbers`` numbers of words and pairs.
    """
    K, V = topics.shape
    kept = int(max_numbers / max(K * K / 2, 1))
    if kept < V:
        order = np.argsort(-topics.sum(0), kind="stable")
        rest = topics[:, order[kept:]].sum(1, keepdims=True)
        topics = np.hstack([topics[:, order[:kept]], rest])
    own = _entropy(topics)
    out = np.zeros((K, K))
    for k in range(K - 1):
        mixed = _entropy((topics[k] + topics[k + 1 :]) / 2)
        out[k, k + 1 :] = np.sqrt(np.maximum(mixed - (own[k] + own[k + 1 :]) / 2, 0.0))
    return out + out.T


def places(distance: Floats) -> Floats:
    """Classical scaling: points [K, 2] whose distances come nearest to those given; signs are fixed, not random.

    Examples
    --------
    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0]))
    >>> found = places(line)
    >>> np.abs(np.subtract.outer(found[:, 0], found[:, 0])).round(6).tolist()
    [[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]
    """
    K = len(distance)
    if K == 1:
        return np.zeros((1, 2))
    centre = np.eye(K) - 1.0 / K
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    chosen = np.argsort(-values)[:2]
    axes = vectors[:, chosen] * np.sign(vectors[np.abs(vectors[:, chosen]).argmax(0), chosen])
    return np.asarray(axes * np.sqrt(np.maximum(values[chosen], 0.0)))


def relevant_words(topics: Floats, overall: Floats, n: int) -> list[Ints]:
    """For each topic the words that are among the n most relevant at any position of the slider."""
    log_topic, log_overall = np.log(topics), np.log(overall)
    words = []
    for row in log_topic:
        chosen: set[int] = set()
        for weight in SLIDER:
            score = row - (1.0 - weight) * log_overall
            chosen.update(np.argpartition(-score, min(n, len(score)) - 1)[:n].tolist())
        words.append(np.array(sorted(chosen), dtype=np.int64))
    return words


def sizes_from_shares(mean: Floats, sd: Floats, lengths: Floats) -> Sizes:
    """Sizes from the shares of documents [D, K]: independent under q, so their variances add up."""
    part = lengths / lengths.sum()
    middle, spread = part @ mean, np.sqrt(part**2 @ sd**2)
    reach = special.ndtri(0.5 + MASS / 2) * spread
    meaning = "90 % intervals of the share of all words, from the posterior of the documents' shares"
    return Sizes(middle, np.maximum(middle - reach, 0.0), np.minimum(middle + reach, 1.0), meaning)


def sizes_from_counts(counts: Floats) -> Sizes:
    """Sizes from the expected number of words in each topic: intervals of a proportion with as many words counted."""
    counts = np.maximum(counts, 1e-9)
    total = counts.sum()
    ends = [special.betaincinv(counts + 0.5, total - counts + 0.5, q) for q in (0.5 - MASS / 2, 0.5 + MASS / 2)]
    mean = counts / total
    meaning = "90 % intervals of a proportion with as many words; documents to read would give those of the posterior"
    return Sizes(mean, np.minimum(ends[0], mean), np.maximum(ends[1], mean), meaning)


def _entropy(rows: Floats) -> Floats:
    return np.asarray(-np.sum(rows * np.log(np.maximum(rows, 1e-300)), axis=-1))
