"""Downloads, from files on this disk: fetched once, checked always, whole or not at all."""

import hashlib
import io
import urllib.request
from email.message import Message
from types import MappingProxyType

import pytest

from natgrad.data import DATASETS
from natgrad.data import download as public
from natgrad.data.datasets.download import ChecksumError, DataSet, RemoteFile, download

CONTENT = b"1 2 3\n" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source" / "toy.txt"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def catalogue(monkeypatch, source):
    """One data set at a file:// address, with the checksum that a test wants."""
    import sys

    def offer(sha256):
        offered = {"toy": DataSet((RemoteFile("toy.txt", source.as_uri(), sha256),), "a toy", "free")}
        monkeypatch.setattr(sys.modules["natgrad.data.datasets.download"], "DATASETS", MappingProxyType(offered))

    return offer


def test_public_name_is_the_function():
    assert public is download


@pytest.mark.parametrize("sha256", [SHA, None])
def test_a_file_is_fetched_once_and_then_reused(catalogue, source, tmp_path, sha256):
    catalogue(sha256)
    (path,) = download("toy", folder=tmp_path / "kept")
    assert path.read_bytes() == CONTENT
    source.unlink()  # a second fetch would fail
    assert download("toy", folder=tmp_path / "kept") == [path]
    assert sorted(p.name for p in path.parent.iterdir()) == ["toy.txt", "toy.txt.sha256"]
    assert (path.parent / "toy.txt.sha256").read_text() == f"{SHA}  toy.txt\n"


def test_a_wrong_checksum_keeps_nothing(catalogue, tmp_path):
    catalogue("0" * 64)
    with pytest.raises(ChecksumError, match=f"{SHA}, expected 0000"):
        download("toy", folder=tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_kept_file_that_changed_is_refused(catalogue, tmp_path):
    catalogue(None)  # nobody published one: the first download was recorded
    (path,) = download("toy", folder=tmp_path)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ChecksumError, match="delete the file to fetch it again"):
        download("toy", folder=tmp_path)


def test_a_source_that_changed_since_the_first_download_is_refused(catalogue, source, tmp_path):
    catalogue(None)
    (path,) = download("toy", folder=tmp_path)
    path.unlink()
    source.write_bytes(CONTENT + b"more")
    with pytest.raises(ChecksumError, match="nothing was kept"):
        download("toy", folder=tmp_path)
    assert not path.exists()


class Broken(io.BytesIO):
    """An answer that announces more than it has, or that fails on the way."""

    def __init__(self, announced, error=None):
        super().__init__(CONTENT)
        self.headers = Message()
        self.headers["Content-Length"] = str(announced)
        self.error = error

    def read(self, size=-1):
        if self.error and self.tell():
            raise self.error
        return super().read(min(size, 1000))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Broken(len(CONTENT) + 1), ConnectionError),
        (Broken(len(CONTENT), ConnectionResetError("reset")), ConnectionResetError),
        (Broken(len(CONTENT), KeyboardInterrupt()), KeyboardInterrupt),
    ],
    ids=["broke off", "reset", "interrupted"],
)
def test_an_interrupted_download_leaves_nothing(catalogue, monkeypatch, tmp_path, answer, error):
    catalogue(None)
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: answer)
    with pytest.raises(error):
        download("toy", folder=tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_no_network_says_what_to_do(catalogue, source, tmp_path):
    catalogue(None)
    source.unlink()
    with pytest.raises(ConnectionError, match="put it at"):
        download("toy", folder=tmp_path / "kept")


def test_the_default_folder_follows_the_environment(catalogue, monkeypatch, tmp_path):
    catalogue(SHA)
    monkeypatch.setenv("NATGRAD_CACHE", str(tmp_path / "cache"))
    assert download("toy") == [tmp_path / "cache" / "toy" / "toy.txt"]


def test_an_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="movielens-100k"):
        download("movielens")


def test_the_catalogue_is_well_formed():
    for name, entry in DATASETS.items():
        assert entry.files, name
        assert entry.about, name
        assert entry.terms, name
        for file in entry.files:
            assert file.url.startswith("https://")
            assert "/" not in file.name
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16) >= 0)
