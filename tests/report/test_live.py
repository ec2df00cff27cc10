"""The live page: served on this machine only, renewed while a fit goes on, and gone afterwards."""

import http.client
import urllib.error
import urllib.request

import pytest
from adversary.watch import watching
from small_models import letters

import natgrad as ng
from natgrad.report import live
from natgrad.report.live import live_page


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return answer.read().decode()


def test_fit_is_watched_and_the_last_page_is_the_report(monkeypatch):
    monkeypatch.setattr(live, "LINGER", 0.01)
    model = ng.LDA(n_topics=2, inference="vb", max_passes=3, tol=0.0, seed=0, verbose=False)
    with live_page(model) as page:
        assert page.address.startswith("http://127.0.0.1:")
        first = get(page.address)
        assert "fitting" in first
        assert "connect-src" in first
        model.fit(letters(), callbacks=[page])
        assert get(page.address + "version") != "0"
        assert "The bound against" in get(page.address)
        page.finish("<p>done</p>")
        assert get(page.address) == "<p>done</p>"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(page.address + "../etc/passwd")
        address = page.address
    with pytest.raises(urllib.error.URLError):
        get(address)


def test_others_who_resolve_to_this_machine_get_nothing():
    with live_page(ng.LDA()) as page:
        port = int(page.address.rsplit(":", 1)[1].strip("/"))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/", headers={"Host": "evil.example"})
        assert connection.getresponse().status == 404
        connection.close()


def test_watchers_see_every_step_and_only_of_the_fits_inside():
    seen = []
    model = ng.LDA(n_topics=2, inference="vb", max_passes=2, tol=0.0, seed=0, verbose=False)
    with watching(lambda trace: seen.append(len(trace))):
        model.fit(letters())
    assert seen == list(range(1, len(model.trace_) + 1))
    model.fit(letters())
    assert len(seen) == len(model.trace_)
