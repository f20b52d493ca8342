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

Lengths are checked against the actual file size before anything else is read.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from vtaops.base.errors import ProgramError

_PREAMBLE = struct.Struct("<8sIIQ")
PREAMBLE_BYTES = _PREAMBLE.size
DIGEST_BYTES = hashlib.sha256().digest_size


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
        header_length = self.check(data, len(data))
        content = memoryview(data)[:-DIGEST_BYTES]
        if hashlib.sha256(content).digest() != data[-DIGEST_BYTES:]:
            raise ProgramError("the checksum does not match: the file is corrupted")
        end = PREAMBLE_BYTES + header_length
        if end > len(content):
            raise ProgramError(
                f"the header claims {header_length} bytes; the file has {len(content)} in all"
            )
        return bytes(content[PREAMBLE_BYTES:end]), content[end:]

    def check(self, data: bytes, available: int) -> int:
        """Check magic, version and length of `available` bytes; return the header's length.

        Raises
        ------
        ProgramError
            As `open`.
        """
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
