"""Measurements as lines of a file, written as they are made, so that a run that was stopped goes on; and tables of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Lines", "markdown"]

RESULTS = Path(__file__).resolve().parent / "results"


class Lines:
    """The lines of ``results/<name>.jsonl``; each is a record of its own."""

    def __init__(self, name: str) -> None:
        self.path, self.page = RESULTS / f"{name}.jsonl", RESULTS / f"{name}.md"

    def all(self, **like: Any) -> list[dict[str, Any]]:
        """Those that have these values."""
        if not self.path.exists():
            return []
        found = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line for line in found if all(line.get(name) == value for name, value in like.items())]

    def has(self, **like: Any) -> bool:
        """Whether there is one."""
        return bool(self.all(**like))

    def add(self, **record: Any) -> None:
        """One more, on disk when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def write(self, page: str) -> None:
        """The table for people."""
        self.page.write_text(page)
        print(page)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column is words, the others are figures."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
