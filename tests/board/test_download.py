"""`vtaops fetch`: against a server on this machine, and everything that can go wrong."""

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from trials.boards import bit_file
from vtaops.base.progress import progress_listener
from vtaops.board.catalogue import Catalogue, Entry
from vtaops.board.download import download
from vtaops.cli import app
from vtaops.errors import DeviceError
from vtaops.hardware.registers import RegisterMap

CONTENT = bit_file().to_bytes()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SOON = 0.2  # seconds; a timeout that must happen


class Handler(BaseHTTPRequestHandler):
    """Each path is something that a server may do."""

    def do_GET(self):
        name = urlsplit(self.path).path.strip("/")
        getattr(self, f"serve_{name}", self.serve_nothing)()

    def serve_file(self, content=CONTENT, length=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def serve_damaged(self):
        self.serve_file(CONTENT[:-1] + b"?")

    def serve_truncated(self):
        self.serve_file(CONTENT[:1000], len(CONTENT))

    def serve_endless(self, piece=bytes(65536)):
        self.send_response(200)
        self.end_headers()  # no length
        while not self.server.stopping.is_set():
            self.wfile.write(piece)

    def serve_dripping(self):
        self.serve_endless(b"?")

    def serve_stalled(self):
        self.serve_file(CONTENT[:1000], len(CONTENT))
        self.server.stopping.wait()

    def serve_nowhere(self):
        self.serve_moved("http://[::1")

    def serve_moved(self, where="/file"):
        self.send_response(302)
        self.send_header("Location", where)
        self.end_headers()

    def serve_away(self):
        self.serve_moved("file:///etc/hostname")

    def serve_circle(self):
        self.serve_moved("/circle")

    def serve_malformed(self):
        self.wfile.write(b"?\r\n\r\n")

    def serve_nothing(self):
        self.send_error(404)

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # the client had enough


@pytest.fixture(scope="module")
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    server.stopping = threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.stopping.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def entry(url, board="pynq", sha256=DIGEST):
    return Entry("own", board, "pynq", RegisterMap.HLS, sha256, "here", "", url, len(CONTENT))


def catalogue(folder, known):
    found = Catalogue(folder)
    found.entries = {known.id: known}
    return found


@contextmanager
def refused(folder, message):
    """A `DeviceError`, after which the folder holds what it held before."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(DeviceError, match=message):
        yield
    assert sorted(folder.rglob("*")) == before


def test_a_fetched_bitstream_is_in_the_cache_and_is_not_fetched_again(site, tmp_path):
    seen = []
    cache = catalogue(tmp_path / "cache", entry(f"{site}/file"))
    with progress_listener(lambda *told: seen.append(told)):
        path = cache.fetch("own")
    assert path == cache.verify("own")
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == [f"{DIGEST}.bit"]
    assert seen[-1] == ("download file", len(CONTENT), len(CONTENT), "")
    cache.entries["own"] = replace(entry(f"{site}/nothing"))
    assert cache.fetch("own") == path


def test_a_damaged_file_in_the_cache_is_fetched_again(site, tmp_path):
    cache = catalogue(tmp_path, entry(f"{site}/moved"))
    path = cache.fetch("own")
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(DeviceError, match="corrupted"):
        cache.verify("own")
    assert cache.fetch("own").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "cannot download .*HTTP Error 404"),
        ("damaged", rf"not {DIGEST}: .* nothing was kept"),
        ("truncated", rf"not {DIGEST}: .* it was cut"),
        ("endless", rf"more than the {len(CONTENT)} bytes that were expected"),
        ("away", "HTTP Error 302"),
        ("circle", "HTTP Error 302.*redirect"),
        ("malformed", "cannot download .*"),
        ("nowhere", "cannot download .*Invalid IPv6"),
    ],
)
def test_what_servers_may_do(site, tmp_path, name, message):
    with refused(tmp_path, message):
        catalogue(tmp_path, entry(f"{site}/{name}")).fetch("own")


def test_a_file_that_says_it_is_too_large_is_not_read(site, tmp_path):
    known = replace(entry(f"{site}/file"), nbytes=len(CONTENT) - 1)
    with refused(tmp_path, "were expected"):
        catalogue(tmp_path, known).fetch("own")


@pytest.mark.parametrize("name", ["stalled", "dripping"])
def test_a_slow_server_is_a_timeout(site, tmp_path, name):
    with refused(tmp_path, "timed out"):
        download(
            f"{site}/{name}",
            tmp_path / "x.bit",
            sha256=DIGEST,
            max_bytes=1 << 60,
            timeout=SOON,
        )


def test_without_a_network_the_message_asks_for_one(tmp_path):
    with refused(tmp_path, r"cannot download http://127\.0\.0\.1:1/x: .*refused"):
        catalogue(tmp_path, entry("http://127.0.0.1:1/x")).fetch("own")


def test_what_is_not_published_says_how_it_is_built(tmp_path):
    with refused(
        tmp_path, r"no file of pynq-rtl-1x16 .*vtaops hardware write.* vtaops flash BOARD"
    ):
        Catalogue(tmp_path).fetch("pynq-rtl-1x16")
    with refused(tmp_path, "known ids: pynq-hls-1x16"):
        Catalogue(tmp_path).fetch("nothing")


def test_published_bitstreams_have_an_address_and_a_size(tmp_path):
    published = [e for e in Catalogue(tmp_path).entries.values() if e.url]
    assert {e.id for e in published} == {"pynq-hls-1x16"}
    for e in published:
        assert e.url.startswith("https://")
        assert e.nbytes == 4045671


def test_the_command(site, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = asdict(entry(f"{site}/file"))
    monkeypatch.setattr("vtaops.board.catalogue._manifest", lambda: [known])
    assert "no (fetch it)" in CliRunner().invoke(app, ["list", "bitstreams"]).output
    output = CliRunner().invoke(app, ["fetch", "own"]).output
    assert "own is in the cache, and intact" in output
    (path,) = (tmp_path / "vtaops" / "bitstreams").iterdir()
    assert path.name in output.replace("\n", "")
    assert path.read_bytes() == CONTENT
