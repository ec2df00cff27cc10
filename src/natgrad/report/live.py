"""An estimator that is being fitted in; its page on this machine, renewed while the fit goes on, out.

The server listens on 127.0.0.1 only, and answers only those who address it so: a page from elsewhere that had its name resolve
to this machine would get nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from natgrad.inference.callbacks import Progress
from natgrad.inference.trace import Trace
from natgrad.report.page import make_page
from natgrad.report.sections.contribution import Subject

__all__ = ["LivePage", "live_page"]

# Seconds between two pages, and how long the last one waits for a reader who has been following.
EVERY, LINGER = 0.5, 5.0


class Going:
    """A fit that has not ended."""

    def __init__(self, model: Any, trace: Trace) -> None:
        self.__doc__ = type(model).__doc__
        self._model, self.trace = model, trace
        self.elbo = trace.last.elbo if len(trace) else float("nan")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """The settings of the model."""
        settings: dict[str, Any] = self._model.get_params(deep=deep)
        return settings


class LivePage:
    """The page of a fit while it goes on: ``update`` after a step, ``finish`` with the final page."""

    def __init__(self, model: Any, port: int = 0) -> None:
        self._model = model
        self._news = threading.Condition()
        self._title = f"{type(model).__name__}: fitting"
        self._text = make_page(Subject(Going(model, Trace())), title=self._title, live=True)
        self._version = 0
        self._at = -EVERY
        self._followed = self._read_last = self._done = False
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    @property
    def address(self) -> str:
        """Where to look."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __call__(self, seen: Progress) -> None:
        """A callback: a new page, if the last one is old enough."""
        self.update(seen.trace)

    def update(self, trace: Trace) -> None:
        """A new page of a trace, if the last one is old enough."""
        if time.monotonic() - self._at >= EVERY and len(trace):
            self._publish(make_page(Subject(Going(self._model, trace)), title=self._title, live=True))

    def finish(self, text: str) -> None:
        """The final page; waits a little for a reader who followed the fit."""
        self._publish(text, done=True)
        with self._news:
            if self._followed:
                self._news.wait_for(lambda: self._read_last, timeout=LINGER)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[str, str] | None:
        """The body and its type for a path that exists."""
        with self._news:
            self._followed = True
            if path == "/version":
                return str(self._version), "text/plain"
            if path != "/":
                return None
            self._read_last = self._done
            self._news.notify_all()
            return self._text, "text/html; charset=utf-8"

    def _publish(self, text: str, done: bool = False) -> None:
        with self._news:
            self._text, self._version, self._done = text, self._version + 1, done
            self._at = time.monotonic()


@contextmanager
def live_page(model: Any) -> Iterator[LivePage]:
    """Serve the page of a model while the fits inside go on, which have it among their callbacks."""
    page = LivePage(model)
    try:
        yield page
    finally:
        page.close()


def _handler(page: LivePage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            answer = page.answer(self.path.split("?", 1)[0]) if host in ("127.0.0.1", "localhost") else None
            if answer is None:
                self.send_error(404)
                return
            body, kind = answer[0].encode(), answer[1]
            self.send_response(200)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal belongs to the fit."""

    return Handler
