"""Download of a file with a known SHA-256; an incomplete or wrong file is never kept.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from vtaops.base.errors import DeviceError
from vtaops.base.progress import report_progress
from vtaops.base.temporary import TemporaryFolder

HTTPS_ONLY = frozenset({"https"})
"""URL schemes for downloads, including redirections: they authenticate the server."""

_CHUNK_BYTES = 64 << 10
_WAIT_SECONDS = 30.0  # until the next bytes; the whole download has its own limit


def download(
    url: str,
    target: Path,
    *,
    sha256: str,
    max_bytes: int,
    check: Callable[[Path], None] | None = None,
    timeout: float = 600.0,
    schemes: Collection[str] = HTTPS_ONLY,
) -> None:
    """Download a file; replace an existing `target` only after all checks pass.

    Parameters
    ----------
    url : str
        URL of the file.
    target : Path
        Destination; its folder is created.
    sha256 : str
        Expected SHA-256 in hexadecimal.
    max_bytes : int
        Maximum size; a larger download is stopped.
    check : callable, optional
        Checks the downloaded file before it replaces `target`; raises an error to reject it.
    timeout : float
        Time limit of the whole download.
    schemes : collection of str
        URL schemes that are followed.

    Raises
    ------
    DeviceError
        If the server cannot be reached, refuses, redirects to another scheme, is too slow, or sends
        too much, too little or wrong data. Nothing is kept then.
    """
    _require_scheme(url, schemes)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(target.parent) as folder:
        path = folder / target.name
        with path.open("wb") as file:
            digest = _receive(url, file, max_bytes, timeout, schemes)
        if digest != sha256:
            raise DeviceError(
                f"the file from {url} has SHA-256 {digest}, not {sha256}: it is another file, or "
                f"it was corrupted on its way; nothing was kept"
            )
        if check is not None:
            check(path)
        path.replace(target)


def _receive(
    url: str,
    file: IO[bytes],
    max_bytes: int,
    timeout: float,
    schemes: Collection[str],
) -> str:
    """Download `url` to `file`; return its SHA-256."""
    deadline = time.monotonic() + timeout
    digest, done, work = hashlib.sha256(), 0, f"download {url.rpartition('/')[2]}"
    opener = urllib.request.build_opener(_Redirections(schemes))
    try:
        with opener.open(url, timeout=min(timeout, _WAIT_SECONDS)) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read1(_CHUNK_BYTES):
                done += len(chunk)
                if time.monotonic() > deadline:
                    raise TimeoutError
                if max(done, total) > max_bytes:
                    raise DeviceError(
                        f"{url} has {max(done, total)} bytes or more; at most {max_bytes} were "
                        f"expected"
                    )
                digest.update(chunk)
                file.write(chunk)
                report_progress(work, done, total)
    except urllib.error.HTTPError as error:
        raise DeviceError(f"{url}: the server answers {error.code} {error.reason}") from error
    except (http.client.HTTPException, ValueError, OSError) as error:
        raise DeviceError(_reason(url, done, error)) from error
    if done < total:
        raise DeviceError(f"{url}: the connection ended after {done} of {total} bytes")
    return digest.hexdigest()


def _reason(url: str, done: int, error: Exception) -> str:
    """Return why a download broke."""
    if isinstance(error, TimeoutError):
        return f"{url}: timed out after {done} bytes"
    if isinstance(error, urllib.error.URLError):
        return f"cannot reach {url} ({error.reason}); is this machine online?"
    return f"{url}: the download broke after {done} bytes ({error!r})"


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follow redirections to the given schemes only."""

    def __init__(self, schemes: Collection[str]) -> None:
        self._schemes = schemes

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str):  # type: ignore[no-untyped-def]
        _require_scheme(newurl, self._schemes)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_scheme(url: str, schemes: Collection[str]) -> None:
    if urlsplit(url).scheme not in schemes:
        raise DeviceError(f"{url} is not allowed: only {', '.join(sorted(schemes))} is used")
