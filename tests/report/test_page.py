"""The page: its size, its silence, its escapes, its structure, its colours; and that its numbers are the model's."""

import colorsys
import itertools
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from promises.pages import NASTY, letters

import natgrad as ng
from natgrad.report.charts import calibration
from natgrad.report.charts import heatmap as heat
from natgrad.report.charts.svg import thinned
from natgrad.report.format import log_ticks, percent_range, tick_labels, ticks
from natgrad.report.html import Html, json_block, tag
from natgrad.report.notebook import summary
from natgrad.report.page import LIMIT, asset, make_page
from natgrad.report.sections import topics as sections_topics
from natgrad.report.sections.contribution import Subject

VOID = {"meta", "input", "br", "hr"}
LANDMARKS = {"header", "nav", "main", "footer"}


class Checked(HTMLParser):
    """Elements with their attributes; fails on nesting that a browser would have to repair."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.text: dict[int, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        assert len({key for key, _ in attributes}) == len(attributes), f"an attribute twice in {name}"
        self.elements.append((name, dict(attributes), tuple(self.open)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open, f"</{name}> without a beginning"
        assert self.open[-1] == name, f"</{name}> where </{self.open[-1]}> was due"
        self.open.pop()

    def handle_data(self, data):
        self.text[len(self.elements) - 1] = self.text.get(len(self.elements) - 1, "") + data

    def all(self, name):
        return [(a, self.text.get(i, "")) for i, (n, a, _) in enumerate(self.elements) if n == name]


@pytest.fixture(scope="module")
def pages(topics, factors, fit, states, series, process, rows):
    texts = [[*text.split(), NASTY] for text in letters()]
    return {
        "LDA": make_page(Subject(topics, texts, names=[f"{NASTY} {d}" for d in range(30)], held_out=texts[:5])),
        "LDA alone": make_page(Subject(topics)),
        "MatrixFactorization": make_page(Subject(factors)),
        "Fit": make_page(Subject(fit)),
        "GaussianHMM": make_page(Subject(states, (series, [100, 200]), held_out=series[:50])),
        "GaussianHMM alone": make_page(Subject(states)),
        "SparseGPRegressor": make_page(Subject(process, rows)),
        "SparseGPRegressor alone": make_page(Subject(process)),
    }


@pytest.fixture(
    params=[
        "LDA",
        "LDA alone",
        "MatrixFactorization",
        "Fit",
        "GaussianHMM",
        "GaussianHMM alone",
        "SparseGPRegressor",
        "SparseGPRegressor alone",
    ]
)
def page(request, pages):
    return pages[request.param]


# -- size, silence, structure --


def test_page_is_small_and_asks_nobody(page):
    assert len(page.encode()) < LIMIT
    found = Checked(page)
    for name, attributes, _ in found.elements:
        assert name not in {"link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "source"}
        for key in ("src", "href", "action", "data", "poster", "xlink:href"):
            value = attributes.get(key)
            assert value is None or value.startswith("#"), (name, key, value)
    for text in (text for name in ("style", "script") for _, text in found.all(name)):
        assert "@import" not in text
        assert not re.search(r"url\((?!#)", text)
        assert "http" not in text
    policy = next(a["content"] for a, _ in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_structure_is_accessible(page):
    found = Checked(page)
    names = [name for name, _, _ in found.elements]
    assert found.all("html")[0][0]["lang"] == "en"
    assert found.all("title")[0][1]
    assert set(names) >= LANDMARKS - {"nav"}
    assert names.count("main") == names.count("h1") == 1
    levels = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), "a heading level is left out"
    ids = [a["id"] for _, a, _ in found.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    for name, attributes, _ in found.elements:
        for key in ("aria-labelledby", "for"):
            assert set((attributes.get(key) or "").split()) <= set(ids), (name, key)
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in ids
    labelled = {a["for"] for a, _ in found.all("label")}
    for name, attributes, _ in found.elements:
        if name == "svg" and "aria-hidden" not in attributes:
            assert attributes["role"] in ("img", "group")
            assert attributes["aria-label"]
        if name in ("input", "select"):
            assert attributes["id"] in labelled or attributes.get("aria-label"), attributes
    for attributes, text in found.all("button"):
        assert text.strip() or attributes.get("aria-label")
    for name, attributes, _ in found.elements:
        if name == "th":
            assert attributes.get("scope") in ("row", "col")
        if attributes.get("role") == "region":
            assert attributes.get("tabindex") == "0", "a region that scrolls must be reachable by keyboard"


def test_same_model_same_page(topics):
    assert make_page(Subject(topics)) == make_page(Subject(topics))


# -- escapes --


def test_words_that_look_like_markup_stay_words(pages):
    page = pages["LDA"]
    assert NASTY not in page
    found = Checked(page)
    assert len([a for a, _ in found.all("script") if a.get("type") != "application/json"]) == 2
    data = json.loads(next(text for a, text in found.all("script") if a.get("id") == "topics-data"))
    assert NASTY in data["words"]
    assert any(NASTY in text for topic in data["topics"] for text, _ in topic["documents"])
    assert "<b>item" not in pages["MatrixFactorization"]
    assert "&lt;b&gt;item" in pages["MatrixFactorization"]


@given(st.text())
def test_any_text_survives_as_text(text):
    clean = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", "�", text)
    found = Checked(str(tag("p", text, title=text)))
    # A parser turns line ends into \n.
    assert (found.text.get(0, "")).replace("\r\n", "\n").replace("\r", "\n") == clean.replace("\r\n", "\n").replace(
        "\r", "\n"
    )
    block = json_block("x", {text: text})
    inside = block[block.index(">") + 1 : block.rindex("<")]
    assert "<" not in inside
    if clean == text:
        assert json.loads(inside) == {text: text}


def test_only_markup_is_taken_as_markup():
    assert tag("p", Html("<b>x</b>"), ["<i>", 3, None, False]) == "<p><b>x</b>&lt;i&gt;3</p>"
    assert tag("input", disabled=True, hidden=False, aria_label='"') == '<input disabled aria-label="&quot;">'


# -- colours --


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_meets_aa(theme):
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", asset("page.css"))
    colour = {name: pair[theme] for name, *pair in found}
    for text in ("ink", "muted", "accent", "good", "bad"):
        for ground in ("ground", "surface"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    # Numbers on the circles of the map, and names on shaded nodes.
    for ground in ("soft", "warm-soft"):
        assert contrast(colour["ink"], colour[ground]) >= 4.5, ground
    # Lines, bars and the frames of controls need 3 to what is behind them.
    for mark in ("accent", "warm", "control"):
        for ground in ("ground", "surface"):
            assert contrast(colour[mark], colour[ground]) >= 3.0, (mark, ground)


def mixed(first: str, second: str, part: float) -> str:
    pairs = [(int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part * a + (1 - part) * b):02x}" for a, b in pairs)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_on_heat_and_states(theme):
    css = asset("page.css")
    colour = {name: pair[theme] for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}
    assert contrast(colour["ink"], mixed(colour["accent"], colour["ground"], heat.MOST)) >= 4.5
    fills = re.search(
        r"\.state, .*light-dark\(hsl\(var\(--hue\) (\d+)% (\d+)%\), hsl\(var\(--hue\) (\d+)% (\d+)%\)\)", css
    )
    saturation, lightness = (int(value) / 100 for value in fills.groups()[2 * theme : 2 * theme + 2])
    text = re.search(r"\.on-state \{ fill: light-dark\((#\w{6}), (#\w{6})\)", css).group(theme + 1)
    for hue in range(360):
        parts = colorsys.hls_to_rgb(hue / 360, lightness, saturation)
        fill = "#" + "".join(f"{round(255 * part):02x}" for part in parts)
        assert contrast(text, fill) >= 4.5, hue
        assert contrast(fill, colour["surface"]) >= 3.0, hue


def test_every_colour_of_the_style_sheet_is_defined():
    css = asset("page.css")
    used = set(re.findall(r"var\(--([\w-]+)\)", css)) - {"hue"}  # set on the elements themselves
    assert used <= set(re.findall(r"--([\w-]+): light-dark", css))
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)


# -- numbers --


def test_relevance_in_the_page_is_that_of_the_model(topics, pages):
    """The script sorts λ log φ + (1 − λ) log (φ / p) over the words it was given; they must hold every answer."""
    data = json.loads(next(t for a, t in Checked(pages["LDA alone"]).all("script") if a.get("id") == "topics-data"))
    names = [str(word) for word in topics.vocabulary_]
    counts = topics.components_.sum(1) - topics.topic_prior_ * topics.topics_.shape[1]
    overall = np.exp([data["overall"][data["words"].index(str(w))] for w in topics.vocabulary_])
    np.testing.assert_allclose(counts / counts.sum(), [t["size"] for t in data["topics"]], rtol=0.05)
    for k, topic in enumerate(data["topics"]):
        words, logs = np.array(topic["words"]), np.array(topic["log"])
        for weight in np.linspace(0, 1, 21):
            score = logs - (1 - weight) * np.array(data["overall"])[words]
            best = [names.index(data["words"][w]) for w in words[np.argsort(-score)[:5]]]
            exact = np.log(topics.topics_[k]) - (1 - weight) * np.log(overall)
            # The page has three decimals of each logarithm.
            assert exact[best].min() >= np.sort(exact)[-5] - 2e-3


def test_bound_steps_and_reason_are_on_the_page(topics, pages):
    text = re.sub(r"<[^>]+>", " ", pages["LDA alone"])
    assert f"{topics.elbo_:.6g}".replace("-", "−") in text.replace(",", "")
    assert str(topics.stop_).removeprefix("converged: ")[1:] in text
    assert topics.trace_.strategy[1:] in text.replace("&#x27;", "'")
    assert ng.__version__ in text


def test_held_out_score_is_the_models(topics, pages):
    score = topics.score([[*text.split(), NASTY] for text in letters()[:5]])
    assert f"{score:.4g}".replace("-", "−") in pages["LDA"]


def test_path_in_the_page_is_the_models(states, series, pages):
    data = json.loads(next(t for a, t in Checked(pages["GaussianHMM"]).all("script") if a.get("id") == "path-data"))
    shown = np.concatenate([np.full(length, state) for _, length, state in data["stretches"]])
    np.testing.assert_array_equal(shown, states.predict(series, [100, 200]))
    assert data["ends"] == [100]
    score = states.score(series[:50]) / 50
    assert f"{score:.4g}".replace("-", "−") in pages["GaussianHMM"]


def test_curve_classes_and_relevance_of_gaussian_processes(process, rows, pages):
    relevance = rows[0].std(0) / process.kernel_.lengthscale  # in units of the standardised inputs
    assert f"input 0 {relevance[0]:.3g}, input 1 {relevance[1]:.3g}" in pages["SparseGPRegressor alone"]
    error = np.sqrt(np.mean((process.predict(rows[0]) - rows[1]) ** 2))
    assert f"error is {error:.4g}." in pages["SparseGPRegressor"]
    X, kinds = rows[0][:, :1], np.where(rows[1] > 0, "a", "<b>")
    line = ng.SparseGPRegressor(n_inducing=10, max_steps=20, verbose=False).fit(X, rows[1])
    assert "The function and its rows" in make_page(Subject(line, (X, rows[1])))
    both = np.column_stack([rows[1], np.where(rows[1] > 1, np.nan, -rows[1])])
    pair = ng.SparseGPRegressor(n_inducing=10, max_steps=20, verbose=False).fit(X, both)
    page = make_page(Subject(pair, held_out=(X, both)))
    Checked(page)
    assert f"{pair.output_correlation_[0, 1]:.3g}".replace("-", "−") in page
    assert str(np.count_nonzero(~np.isnan(both[:, 1]))) in page
    assert "Correlations of the functions" not in make_page(Subject(line, (X, rows[1])))
    classes = ng.SparseGPClassifier(n_inducing=10, max_steps=20, verbose=False).fit(rows[0], kinds)
    page = make_page(Subject(classes, held_out=(rows[0], kinds)))
    Checked(page)
    assert f"{np.mean(classes.predict(rows[0]) == kinds):.1%} right" in page
    with pytest.raises(TypeError, match=r"must be a pair \(X, y\), got ndarray"):
        make_page(Subject(line, X))


def test_long_share_of_states_is_stationary(rng):
    from natgrad.report.sections.states import _stationary

    A = rng.dirichlet(np.ones(4), 4)
    share = _stationary(A)
    np.testing.assert_allclose(share @ A, share)
    assert share.sum() == pytest.approx(1)


def test_calibration_tells_right_from_wrong(rng):
    mean, sd = rng.normal(size=4000), np.full(4000, 0.5)
    values = mean + 0.5 * rng.normal(size=4000)
    assert calibration.inside(calibration.Judged(values, mean, sd, "rows", True)) == pytest.approx(0.9, abs=0.02)
    assert calibration.inside(calibration.Judged(values, mean, sd / 3, "rows", True)) < 0.5
    place = calibration.places(calibration.Judged(values, mean, sd, "rows", True))
    assert scipy.stats.kstest(place, "uniform").pvalue > 1e-3


def test_more_data_make_no_larger_page(topics, monkeypatch):
    monkeypatch.setattr(sections_topics, "BUDGET", 3000)
    small = make_page(Subject(topics, [text.split() * 20 for text in letters()]))
    data = json.loads(next(t for a, t in Checked(small).all("script") if a.get("id") == "topics-data"))
    assert data["show"] < 30


def test_report_method_writes_the_page(topics, tmp_path):
    path = topics.report(tmp_path / "page.html", title="Letters & more")
    assert "<h1>Letters &amp; more</h1>" in path.read_text()
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        topics.report(tmp_path / "nowhere" / "page.html")
    with pytest.raises(ValueError, match="names has 2 entries and there are 30 documents"):
        topics.report(tmp_path / "page.html", data=[text.split() for text in letters()], names=["a", "b"])


def test_unfinished_history_is_no_problem():
    model = ng.LDA(n_topics=2, seed=0).partial_fit(letters())
    assert not hasattr(model, "trace_")
    assert "Topics" in make_page(Subject(model))


# -- axes --


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_round_inside_and_told_apart(low, span):
    high = low + span
    if not high > low or span < 1e-9 * abs(low):
        return
    found = ticks(low, high)
    assert 1 <= len(found) <= 7
    assert found.min() >= low - 1e-6 * span
    assert found.max() <= high + 1e-6 * span
    if len(found) > 1 and span > 1e-5 * max(abs(low), abs(high)):
        assert len(set(tick_labels(found))) == len(found)


@given(st.floats(1e-12, 1e12), st.floats(1.1, 1e12))
def test_logarithmic_ticks_lie_inside(low, factor):
    found = log_ticks(low, low * factor)
    assert len(found) <= 8
    assert ((found >= low * (1 - 1e-6)) & (found <= low * factor * (1 + 1e-6))).all()


def test_intervals_have_decimals_that_tell():
    assert percent_range(0.15, 0.1499, 0.1503) == ("15.00 %", "14.99 to 15.03 %")
    assert percent_range(0.5, 0.2, 0.9) == ("50 %", "20 to 90 %")
    assert percent_range(0.5, 0.5, 0.5) == ("50.00 %", "50.00 to 50.00 %")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000))
def test_thinning_keeps_ends_and_extremes(values):
    y = np.array(values)
    x, kept = thinned(np.arange(len(y), dtype=float), y, most=50)
    assert len(x) <= 52
    assert kept.max() == y.max()
    assert kept.min() == y.min()
    assert (x[0], x[-1]) == (0, len(y) - 1)


def test_the_page_of_a_network_says_where_its_intervals_come_from(tmp_path):
    n = ng.Plate("n", 4)
    a, b = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0)
    fit = ng.Network(ng.Normal("y", a + b, 1.0, plate=n, observed=[1.0, 2.0, 0.5, 1.5]), joint=None).fit()
    fit.report(tmp_path / "q.html")
    page = (tmp_path / "q.html").read_text()
    assert "fit.linear_response()" in page
    assert "0.447" in page
    fit.linear_response()
    fit.report(tmp_path / "lr.html")
    page = (tmp_path / "lr.html").read_text()
    assert "those of linear response" in page
    assert "0.745" in page
    assert "0.64 of the distance" in page


def test_what_the_model_says_comes_first(pages):
    """And how it was fitted last."""
    for name, page in pages.items():
        sections = re.findall(r'<section id="([^"]+)"', page)
        assert sections[-1] == "run", name
    assert re.search(r"<h1>(.*?)</h1>", pages["Fit"])[1].startswith("A network: ")


def test_the_number_of_components_is_drawn_with_the_fate_of_its_moves(tmp_path) -> None:
    rng = np.random.default_rng(0)
    x = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 8.0]])[np.arange(90) % 3] + rng.normal(size=(90, 2))
    model = ng.GaussianMixture(("auto", 6)).fit(x)
    model.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    (caption,) = re.findall(r"<figcaption>The number of components[^<]*", page)
    moves = model.trace_.moves
    accepted = sum(move.accepted for move in moves)
    assert f"From 1 to {model.n_components_}; {accepted} of {len(moves)} moves were accepted" in caption
    births = [move.accepted for move in moves if move.kind == "birth"]
    assert f"birth {sum(births)} of {len(births)}" in caption


def test_the_first_card_is_the_inference_that_was_run(topics, factors, fit, states, process, pages):
    models = {
        "LDA alone": topics,
        "MatrixFactorization": factors,
        "Fit": fit,
        "GaussianHMM": states,
        "SparseGPRegressor": process,
    }
    for name, model in models.items():
        ran = model.inference if model is fit else model.inference_
        page = Checked(pages[name])
        assert page.all("dt")[0][1] == "inference", name
        assert page.all("dd")[0][1].startswith(ran[:20]), name
        assert ran[:20] in summary(model), name
