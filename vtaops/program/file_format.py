"""The program file: a program that is read back exactly or rejected (`vtaops.base.records`).

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from vtaops.base.records import Archive, Kinds
from vtaops.base.window import Window
from vtaops.machine import views
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout
from vtaops.program.program import Buffer, OperatorRecord, Program, Role

MAGIC = b"VTAPROG\0"
FORMAT_VERSION = 4

MAX_FILE_BYTES = 1 << 30
"""Maximum file size: 67 million instructions."""


def _role(value: str) -> Role:
    return Role(value)


KINDS: Kinds = {
    **{cls.__name__: cls for cls in (Program, Buffer, OperatorRecord, Layout, HardwareConfig)},
    "Window": Window,
    **views.KINDS,
    "Role": _role,
}
"""What makes the records of a program, by name."""

_FILE = Archive("program", MAGIC, FORMAT_VERSION, MAX_FILE_BYTES, Program, KINDS)

dumps, loads, save, load = _FILE.dumps, _FILE.loads, _FILE.save, _FILE.load
