"""The page in a real browser: it loads, its controls work, nothing complains, nothing is fetched. Skipped without a browser."""

import os
import shutil

import numpy as np
import pytest
from promises.pages import letters

from natgrad.report.page import write_report

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'natgrad[browser]'")
BROWSER = os.environ.get("NATGRAD_BROWSER") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if BROWSER is None:
    pytest.skip("no Chromium: install it, or set NATGRAD_BROWSER", allow_module_level=True)
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=OPTIONS)
        yield found
        found.close()


@pytest.fixture
def opened(browser):
    """A function that opens a page file; afterwards nothing may have complained, and nothing been asked for."""
    complaints, asked, contexts = [], [], []

    def open_(path, **settings):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **settings})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path if isinstance(path, str) else path.as_uri())
        return page

    open_.asked = asked
    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def path(topics, tmp_path_factory):
    return topics.report(tmp_path_factory.mktemp("pages") / "topics.html", data=letters())


def words(page):
    return page.locator("#topic-words .word").all_inner_texts()


def test_slider_reorders_words_by_relevance(opened, path, topics):
    page = opened(path)
    topic = int(page.locator("#topic-choice").input_value())
    share = topics.components_.sum(1) / topics.components_.sum()
    slider = page.locator("#relevance")
    seen = {}
    for weight in (1.0, 0.5, 0.0):
        slider.fill(str(weight))
        seen[weight] = words(page)
        score = np.log(topics.topics_[topic]) - (1 - weight) * np.log(share @ topics.topics_)
        near = {str(topics.vocabulary_[v]) for v in np.argsort(-score)[:8]}
        assert set(seen[weight][:6]) <= near
    assert seen[1.0] != seen[0.0]
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#relevance-value").inner_text() == "0.05"
    assert opened.asked == [path.as_uri()]


def test_topics_are_chosen_by_mouse_keyboard_and_list(opened, path):
    page = opened(path)
    chosen = page.locator("#topic-choice")
    page.locator(".map .topic").last.click()
    smallest = int(page.locator(".map .topic").last.get_attribute("data-topic"))
    assert int(chosen.input_value()) == smallest
    assert page.locator("#topic-size").inner_text().startswith(f"Topic {smallest} has ")
    page.locator(f'.map .topic[data-topic="{smallest}"]').focus()
    page.keyboard.press("ArrowRight")
    after = int(chosen.input_value())
    assert after == (smallest + 1) % 3
    assert page.evaluate("document.activeElement.dataset.topic") == str(after)
    page.locator("[data-show='0']").click()
    assert chosen.input_value() == "0"
    page.locator("#topic-next").click()
    assert chosen.input_value() == "1"
    assert page.locator("#topic-documents li").count() == 5
    pressed = page.locator('.map .topic[aria-pressed="true"]')
    assert pressed.get_attribute("data-topic") == "1"


def test_theme_button_goes_round_and_the_system_is_followed(opened, path):
    page = opened(path, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    button = page.locator("#theme")
    button.click()
    assert button.inner_text() == "Theme: light"
    light = page.evaluate(ground)
    assert light != dark
    button.click()
    assert page.evaluate(ground) == dark
    button.click()
    assert button.inner_text() == "Theme: system"
    assert opened(path, color_scheme="light").evaluate(ground) == light


@pytest.mark.parametrize("kind", ["topics", "factors", "fit", "states", "process"])
def test_nothing_is_wider_than_a_phone(kind, opened, request, tmp_path):
    page = opened(request.getfixturevalue(kind).report(tmp_path / "page.html"), viewport={"width": 360, "height": 780})
    for part in page.locator("details").all():
        part.evaluate("e => { e.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_every_control_is_reached_by_tab(opened, path):
    page = opened(path)
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("(e => e.id || e.className.baseVal || e.tagName)(document.activeElement)"))
    assert seen >= {"theme", "topic-choice", "topic-previous", "topic-next", "relevance", "topic", "bound-by-steps"}


def test_axis_of_the_bound_is_chosen_without_a_script(browser, path):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator(".panel.steps").is_visible()
    page.locator("label[for=bound-by-seconds]").click()
    assert page.locator(".panel.seconds").is_visible()
    assert not page.locator(".panel.steps").is_visible()
    context.close()


def test_path_of_states_zooms_by_button_and_keyboard(opened, states, series, tmp_path):
    page = opened(write_report(states, tmp_path / "page.html", data=series))
    range_ = page.locator("#path-range")
    assert range_.inner_text() == "times 0 to 300 of 300"
    page.locator("#path-in").click()
    assert range_.inner_text() == "times 75 to 225 of 300"
    page.locator("#path-strip").focus()
    page.keyboard.press("ArrowRight")
    assert range_.inner_text() == "times 150 to 300 of 300"
    page.keyboard.press("0")
    assert range_.inner_text() == "times 0 to 300 of 300"
    assert page.locator("#path-strip .state").count() >= 5
