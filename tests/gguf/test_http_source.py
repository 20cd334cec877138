"""Range requests against a server in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from planner.errors import ModelFileError
from planner.gguf import http_source
from planner.gguf.analyze import analyze
from planner.gguf.http_source import HttpSource, is_url


class Handler(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}
    sent = 0

    def do_GET(self) -> None:
        name, _, _ = self.path.partition("?")
        if name.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", name.removeprefix("/to/"))
            self.end_headers()
            return
        body = self.files.get(name.removeprefix("/whole").removeprefix("/wrong").removeprefix("/short"))
        if body is None:
            self.send_error(404)
            return
        if name.startswith("/whole"):
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
            return
        self.send_part(body, name)

    def send_part(self, body: bytes, name: str) -> None:
        first, last = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
        last = min(last, len(body) - 1)
        part = body[first : last + 1]
        shift = 1 if name.startswith("/wrong") else 0
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first + shift}-{last}/{len(body)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        part = part[:-1] if name.startswith("/short") else part
        type(self).sent += len(part)
        self.wfile.write(part)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.files, Handler.sent = {}, 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_is_url() -> None:
    assert is_url("https://host/a.gguf")
    assert is_url("HTTP://host/a.gguf")
    assert not is_url("/https://a")


def test_reads_across_blocks(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "BLOCK", 1000)
    Handler.files["/a"] = bytes(i % 251 for i in range(10_000))
    source = HttpSource(server + "/a")
    assert source.size == 10_000
    assert source.read_at(900, 2500) == Handler.files["/a"][900:3400]
    assert source.read_at(9990, 100) == Handler.files["/a"][9990:]


def test_a_remote_model_costs_its_header_only(server: str, moe, tmp_path: Path) -> None:
    body = moe().data()
    Handler.files["/m.gguf"] = body + b"\0" * (20 << 20)
    local = tmp_path / "m.gguf"
    local.write_bytes(Handler.files["/m.gguf"])
    remote = analyze(server + "/m.gguf?download=true")
    assert remote.tensors == analyze(str(local)).tensors
    assert remote.fingerprint == analyze(str(local)).fingerprint
    assert Handler.sent <= 5 << 20


def test_shards_of_a_url_keep_its_query(server: str, moe) -> None:
    whole = moe().u32("split.count", 2)
    Handler.files["/m-00001-of-00002.gguf"] = whole.data()
    with pytest.raises(ModelFileError) as caught:
        analyze(server + "/m-00001-of-00002.gguf?x=1")
    assert caught.value.subject == server + "/m-00002-of-00002.gguf?x=1"
    assert "shard 2 of 2" in str(caught.value)


def refused(url: str) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        HttpSource(url).read_at(0, 1)
    assert str(caught.value).isprintable()
    return caught.value


def test_a_server_without_ranges_sends_nothing(server: str) -> None:
    Handler.files["/a"] = b"GGUF"
    assert "206" in refused(server + "/whole/a").expected
    assert Handler.sent == 0


def test_wrong_answers(server: str) -> None:
    Handler.files["/a"] = bytes(1000)
    assert "404" in refused(server + "/b").found
    assert "bytes 1-999/1000" in refused(server + "/wrong/a").found
    assert "before the connection closed" in refused(server + "/short/a").found
    assert refused("http://127.0.0.1:9/a").expected == "an answer"


def test_redirects_stay_where_they_may(server: str) -> None:
    Handler.files["/a"] = bytes(1000)
    assert HttpSource(f"{server}/to/{server}/a").size == 1000
    assert refused(f"{server}/to/ftp://127.0.0.1/a").expected == "a redirect to https://"
    assert refused(f"{server}/to/http://192.0.2.1/a").expected == "a redirect to https://"


@pytest.mark.parametrize("url", ["http://example.com/a.gguf", "http://[::1/a", "https"])
def test_other_urls(url: str) -> None:
    assert refused(url).expected == "an https:// URL"


def test_byte_cap(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "BLOCK", 100)
    monkeypatch.setattr(http_source, "BYTE_CAP", 300)
    Handler.files["/a"] = bytes(1000)
    source = HttpSource(server + "/a")
    with pytest.raises(ModelFileError):
        source.read_at(0, 1000)
    assert Handler.sent == 300
