"""The envelope of program and model files: detects foreign, truncated and corrupted files.

All integers are little-endian:

====================  ==========================================================================
bytes                 content
====================  ==========================================================================
8                     magic
4                     version of the format
4                     length H of the header
8                     length of the whole file
H                     header
...                   body
32                    SHA-256 of all bytes before
====================  ==========================================================================

Lengths are checked against the actual file size before anything is read.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vtaops.base.errors import ProgramError, raising
from vtaops.base.files import open_file, read_open, reason_of, write_file

_PREAMBLE = struct.Struct("<8sIIQ")
PREAMBLE_BYTES = _PREAMBLE.size
DIGEST_BYTES = hashlib.sha256().digest_size

_Content = TypeVar("_Content")


@dataclass(frozen=True)
class Envelope:
    """A kind of file.

    Attributes
    ----------
    what : str
        Name of the content in messages.
    magic : bytes
        First 8 bytes of the file.
    version : int
        The format version that is written, and the only one that is read.
    most : int
        Largest file that is read, in bytes.
    """

    what: str
    magic: bytes
    version: int
    most: int

    def save(self, data: bytes, path: str | Path) -> None:
        """Write a file atomically: a reader never sees half of it.

        Raises
        ------
        ProgramError
            If the file cannot be written.
        """
        with raising(ProgramError, f"cannot write {path}", OSError, describe=reason_of):
            write_file(path, data)

    def load(self, path: str | Path, loads: Callable[[bytes], _Content]) -> _Content:
        """Check the preamble of a file against its size, then return its decoded content.

        Raises
        ------
        ProgramError
            If the file cannot be read, or as `loads`; the message names the file.
        """
        try:
            with open_file(path) as file:
                self._check(file.read(PREAMBLE_BYTES), os.fstat(file.fileno()).st_size)
                return loads(read_open(file, self.most))
        except OSError as error:
            raise ProgramError(f"cannot read {path}: {error}") from error
        except ProgramError as error:
            raise ProgramError(f"{path}: {error}") from error

    def seal(self, header: bytes | memoryview, *body: bytes | memoryview) -> bytes:
        """Return the bytes of a file; `open` is the inverse."""
        total = PREAMBLE_BYTES + len(header) + sum(map(len, body)) + DIGEST_BYTES
        preamble = _PREAMBLE.pack(self.magic, self.version, len(header), total)
        digest = hashlib.sha256()
        for part in (preamble, header, *body):
            digest.update(part)
        return b"".join((preamble, header, *body, digest.digest()))

    def open(self, data: bytes) -> tuple[bytes, memoryview]:
        """Return the header and body of a file's bytes.

        Raises
        ------
        ProgramError
            If the file is foreign, of another version, truncated or corrupted; the message says
            which.
        """
        header_length = self._check(data, len(data))
        content = memoryview(data)[:-DIGEST_BYTES]
        if hashlib.sha256(content).digest() != data[-DIGEST_BYTES:]:
            raise ProgramError("the checksum does not match: the file is corrupted")
        end = PREAMBLE_BYTES + header_length
        if end > len(content):
            raise ProgramError(
                f"the header claims {header_length} bytes; the file has {len(content)} in all"
            )
        return bytes(content[PREAMBLE_BYTES:end]), content[end:]

    def _check(self, data: bytes, available: int) -> int:
        """Check magic, version and length of `available` bytes; return the header's length."""
        if data[: len(self.magic)] != self.magic[: len(data)] or not data:
            name = self.magic.rstrip(b"\0").decode()
            raise ProgramError(f"this is not a vtaops {self.what}: its first bytes are not {name}")
        if len(data) < PREAMBLE_BYTES:
            raise ProgramError(f"the {self.what} is truncated: it ends after {available} bytes")
        _, version, header_length, total = _PREAMBLE.unpack_from(data)
        if version != self.version:
            advice = "update vtaops" if version > self.version else "recompile"
            raise ProgramError(
                f"the {self.what} has format version {version}; this vtaops reads version "
                f"{self.version} ({advice})"
            )
        if available < total:
            raise ProgramError(f"the {self.what} is truncated: {available} of {total} bytes exist")
        if available > total or total < PREAMBLE_BYTES + DIGEST_BYTES:
            raise ProgramError(
                f"the {self.what} states a length of {total} bytes; it has {available}"
            )
        return int(header_length)
