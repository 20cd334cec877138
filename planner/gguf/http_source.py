"""The header of a remote GGUF, by range requests. ``urllib`` is imported only when a URL is given."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from planner.errors import ModelFileError
from planner.gguf.names import printable

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

BLOCK: Final = 4 << 20
"""Bytes asked for at once: a header is a few of these."""
BYTE_CAP: Final = 256 << 20
"""Most bytes that one file may cost."""
TIMEOUT_S: Final = 20.0
"""For one answer to begin, and for each pause within it."""
DEADLINE_S: Final = 120.0
"""For one block."""
_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def is_url(path: str) -> bool:
    """True for ``https://…`` and ``http://…``; anything else is a path."""
    return path.lower().startswith(("https://", "http://"))


class HttpSource:
    """An ``https://`` URL (``http://`` only on this machine itself), read by range requests.

    Demands a 206 answer, so a server that ignores ranges never sends the whole model. Redirects may not
    leave https.

    Raises:
        ModelFileError: no answer, any answer but 206, a range other than the one asked for.
    """

    def __init__(self, url: str) -> None:
        self.subject = printable(url, 4096)
        self._url = url
        self._opener = _opener(url, self.subject)
        self._spent = 0
        self._start, self._block = 0, b""
        self.size = -1
        self._load(0)

    def read_at(self, offset: int, n: int) -> bytes:
        parts = []
        n = min(n, self.size - offset)
        while n > 0:
            if not self._start <= offset < self._start + len(self._block):
                self._load(offset)
            part = self._block[offset - self._start : offset - self._start + n]
            parts.append(part)
            offset, n = offset + len(part), n - len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._block = b""

    def _load(self, offset: int) -> None:
        if self._spent >= BYTE_CAP:
            raise self._error("a header that fits in 256 MiB", "more than that")
        last = offset + BLOCK - 1
        if self.size >= 0:
            last = min(last, self.size - 1)
        self._block = self._fetch(offset, last)
        self._start = offset
        self._spent += len(self._block)

    def _fetch(self, first: int, last: int) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        headers = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity", "User-Agent": "moeplan"}
        try:
            with self._opener.open(Request(self._url, headers=headers), timeout=TIMEOUT_S) as answer:
                return self._body(answer, first, last)
        except HTTPError as error:
            advice = "check the URL" if error.code == 404 else ""
            raise self._error("an answer of 206", f"HTTP status {error.code}", advice) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise self._error("an answer", printable(str(reason)) or type(error).__name__) from None

    def _body(self, answer: HTTPResponse, first: int, last: int) -> bytes:
        if answer.status != 206:
            raise self._error(
                "an answer of 206 (partial content)",
                f"HTTP status {answer.status}: this server does not serve parts of a file",
                "download the model and give its path",
            )
        match = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        start, end, size = (int(g) for g in match.groups()) if match else (-1, -1, -1)
        if start != first or end > last or end != min(last, size - 1) or self.size not in (-1, size):
            found = printable(answer.headers.get("Content-Range", "no Content-Range"))
            raise self._error(f"bytes {first}-{last} of a file of fixed size", found)
        self.size = size
        body = self._drain(answer, end - start + 1)
        if len(body) != end - start + 1:
            raise self._error(f"{end - start + 1} bytes", f"{len(body)} before the connection closed")
        return body

    def _drain(self, answer: HTTPResponse, n: int) -> bytes:
        until = time.monotonic() + DEADLINE_S
        body = bytearray()
        while len(body) < n and (part := answer.read1(n - len(body))):
            body += part
            if time.monotonic() > until:
                raise self._error(f"{n} bytes within {DEADLINE_S:.0f} s", f"{len(body)} bytes")
        return bytes(body)

    def _error(self, expected: str, found: str, advice: str = "") -> ModelFileError:
        return ModelFileError(self.subject, expected=expected, found=found, advice=advice)


def _allowed(url: str, plain_http: bool) -> bool:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.scheme == "https" or (plain_http and parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _opener(url: str, subject: str) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    try:
        allowed, plain = _allowed(url, plain_http=True), not _allowed(url, plain_http=False)
    except ValueError:
        allowed, plain = False, False
    if not allowed:
        raise ModelFileError(subject, expected="an https:// URL", found="another scheme or a malformed URL")

    class Redirects(HTTPRedirectHandler):
        def redirect_request(  # type: ignore[no-untyped-def]
            self, req, fp, code, msg, headers, newurl
        ) -> Request | None:
            if not _allowed(newurl, plain_http=plain):
                raise ModelFileError(subject, expected="a redirect to https://", found=printable(newurl))
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    return build_opener(Redirects)
