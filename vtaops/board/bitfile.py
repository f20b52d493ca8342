"""The ``.bit`` file of Xilinx tools: its header.

A header of tagged fields precedes the configuration data:

=========  =======================================================================================
bytes      content
=========  =======================================================================================
2 + n      length and bytes of a magic field
2          1
tag ``a``  2 bytes of length, text: design, then attributes after semicolons (``Version=``)
tag ``b``  the same: part, without the leading "xc"
tag ``c``  the same: date
tag ``d``  the same: time
tag ``e``  4 bytes of length, configuration data up to the end of the file
=========  =======================================================================================

All lengths are big-endian; texts end with a zero byte.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vtaops.base.errors import DeviceError
from vtaops.base.files import read_file

MAX_BYTES = 64 << 20
"""Maximum size of a file; bitstreams of the boards are smaller."""

_START = bytes.fromhex("0009 0ff00ff00ff00ff000 0001")
_TEXT_FIELDS = (b"a", b"b", b"c", b"d")
_SYNC_WORD = bytes.fromhex("aa995566")
_SYNC_WITHIN = 4096  # the synchronisation word is near the start of the data
_DIE = re.compile(r"(7z\d{3}s?|zu\d+[a-z]{2}|k\d+)")


@dataclass(frozen=True)
class BitFile:
    """A parsed ``.bit`` file.

    Attributes
    ----------
    design : str
        Name of the design, and attributes set by the tool.
    part, date, time : str
        As in the header; the part has no leading "xc" and usually no speed grade.
    data : bytes
        Configuration data.
    """

    design: str
    part: str
    date: str
    time: str
    data: bytes

    @property
    def die(self) -> str:
        """The part without package and speed grade, which determines whether a bitstream fits."""
        return die(self.part)

    def to_bytes(self) -> bytes:
        """Return the bytes of the ``.bit`` file."""
        out = _START
        texts = (self.design, self.part, self.date, self.time)
        for tag, text in zip(_TEXT_FIELDS, texts, strict=True):
            content = text.encode("ascii") + b"\0"
            out += tag + struct.pack(">H", len(content)) + content
        return out + b"e" + struct.pack(">I", len(self.data)) + self.data


def blank_bit_file(part: str) -> BitFile:
    """Return a bitstream without a design, for the virtual board only."""
    return BitFile("blank", part.removeprefix("xc"), "", "", _SYNC_WORD * 64)


def die(part: str) -> str:
    """Return the family and size of a part: ``7z020`` for ``xc7z020clg484-1``.

    Raises
    ------
    DeviceError
        If the part is not a Zynq-7000, Zynq UltraScale+ or Kria.
    """
    match = _DIE.match(part.lower().removeprefix("xc"))
    if match is None:
        raise DeviceError(
            f"part {part!r} is not a Zynq-7000 (7z020...), UltraScale+ (zu3eg...) or Kria (k26...)"
        )
    return match.group(1)


def parse_bit_file(content: bytes) -> BitFile:
    """Parse the bytes of a ``.bit`` file.

    Raises
    ------
    DeviceError
        If they are not one valid file; the message says what is wrong.
    """
    if not content.startswith(_START):
        raise DeviceError("this is not a .bit file: it does not start with the header of one")
    stream = io.BytesIO(content[len(_START) :])
    texts = [_field(stream, tag, ">H") for tag in _TEXT_FIELDS]
    data = _field(stream, b"e", ">I")
    if stream.read() or not all(text.endswith(b"\0") and text.isascii() for text in texts):
        raise DeviceError("the .bit file is corrupted: a text has no end, or the data have none")
    if len(data) % 4 or _SYNC_WORD not in data[:_SYNC_WITHIN]:
        raise DeviceError("the data of the .bit file are not configuration data: no sync word")
    design, part, date, time = (text[:-1].decode() for text in texts)
    return BitFile(design, part, date, time, data)


def _field(stream: IO[bytes], tag: bytes, form: str) -> bytes:
    """Return the content of the next field, which has a tag and a length."""
    head = stream.read(1 + struct.calcsize(form))
    if head[:1] == tag and len(head) > struct.calcsize(form):
        (length,) = struct.unpack(form, head[1:])
        content = stream.read(length)
        if len(content) == length:
            return content
    raise DeviceError(f"the .bit file is truncated or corrupted: bad field {tag.decode()!r}")


def read_bit_file(path: Path) -> BitFile:
    """Read a ``.bit`` file.

    Raises
    ------
    DeviceError
        If the file cannot be read or parsed.
    """
    try:
        return parse_bit_file(read_file(path, MAX_BYTES))
    except (OSError, DeviceError) as error:
        raise DeviceError(f"cannot read {path}: {error}") from error


def check_part(bit_file: BitFile, part: str) -> None:
    """Check that a bitstream fits the part of a board, ignoring the package.

    Raises
    ------
    DeviceError
        If it is for a different die.
    """
    if bit_file.die != die(part):
        raise DeviceError(
            f"the bitstream is for part {bit_file.part} (die {bit_file.die}); the board has "
            f"{part} (die {die(part)})"
        )
