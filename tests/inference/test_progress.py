"""The progress bar says what it waits for."""

import time

from natgrad.compiling import compiling
from natgrad.inference.callbacks import progress_bar
from natgrad.inference.trace import Trace


def test_a_bar_that_stands_still_says_that_something_is_compiled(capsys, monkeypatch):
    for name, value in {"TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    with progress_bar(10, True) as update:
        update(Trace())
        assert "compiling" not in drawn(capsys, "bound")
        with compiling():
            assert "compiling" in drawn(capsys, "compiling")
        assert "bound" in drawn(capsys, "bound")


def drawn(capsys, word):
    """What the bar, which draws itself ten times a second, has drawn until a word appears; all of it, if none does."""
    text = ""
    for _ in range(400):
        text += capsys.readouterr().err
        if word in text:
            break
        time.sleep(0.05)
    return text
