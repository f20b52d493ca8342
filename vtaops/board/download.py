"""Download of a file with a known SHA-256; an incomplete or wrong file is never kept.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.request
from pathlib import Path
from typing import IO

from vtaops.base.errors import DeviceError, raising
from vtaops.base.progress import report_progress
from vtaops.base.temporary import TemporaryFolder

_CHUNK_BYTES = 64 << 10
_WAIT_SECONDS = 30.0  # until the next bytes; the whole download has its own limit


def download(
    url: str,
    target: Path,
    *,
    sha256: str,
    max_bytes: int,
    timeout: float = 600.0,
) -> None:
    """Download a file; replace an existing `target` only by what has the checksum.

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
    timeout : float
        Time limit of the whole download.

    Raises
    ------
    DeviceError
        If the server cannot be reached, refuses, is too slow, or sends
        too much, too little or wrong data. Nothing is kept then.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = http.client.HTTPException, ValueError, OSError
    with TemporaryFolder(target.parent) as folder:
        path = folder / target.name
        with raising(DeviceError, f"cannot download {url}", *failures), path.open("wb") as file:
            digest = _receive(url, file, max_bytes, timeout)
        if digest != sha256:
            raise DeviceError(
                f"the file from {url} has SHA-256 {digest}, not {sha256}: it is another file, or "
                f"it was cut or corrupted on its way; nothing was kept"
            )
        path.replace(target)


def _receive(url: str, file: IO[bytes], max_bytes: int, timeout: float) -> str:
    """Download `url` to `file`; return its SHA-256."""
    deadline = time.monotonic() + timeout
    digest, done, work = hashlib.sha256(), 0, f"download {url.rpartition('/')[2]}"
    with urllib.request.urlopen(url, timeout=min(timeout, _WAIT_SECONDS)) as response:
        total = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read1(_CHUNK_BYTES):
            done += len(chunk)
            if time.monotonic() > deadline:
                raise TimeoutError(f"timed out after {done} bytes")
            if max(done, total) > max_bytes:
                raise ValueError(f"it has more than the {max_bytes} bytes that were expected")
            digest.update(chunk)
            file.write(chunk)
            report_progress(work, done, total)
    return digest.hexdigest()
