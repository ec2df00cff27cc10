"""What every error says: its class, the argument, the value that came, and what to do; words, and never whole sentences."""

import re
from collections.abc import Callable
from typing import Any

import pytest


def mistake(call: Callable[[], Any], error: type[Exception], name: str, *clauses: str) -> None:
    """The call raises this very class, and its text has the name of the argument, the value and the remedy in it, as words."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    text = str(caught.value.args[0])  # str() of a KeyError would put quotes around it
    missing = [words for words in (name, *clauses) if not re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text)]
    assert not missing, f"{missing} not in: {text}"
