"""The interrupt of a board's logic, through Linux's userspace I/O.

PYNQ images give the first interrupt of the logic to the driver ``uio_pdrv_genirq`` under the name
``fabric``. Reading its file blocks until the interrupt; the kernel masks it then, and writing 1
unmasks it (Linux, Documentation/driver-api/uio-howto.rst).
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path

from vtaops.base.descriptors import READABLE, wait_for

NAME = "fabric"
SYSTEM = Path("/sys/class/uio")
_ONE = (1).to_bytes(4, "little")


class Interrupt:
    """An interrupt line that a process can wait for.

    Parameters
    ----------
    path : Path
        The file, ``/dev/uioN``.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        weakref.finalize(self, os.close, self._file)

    @classmethod
    def find(cls, system: Path = SYSTEM, devices: Path = Path("/dev")) -> Interrupt | None:
        """Return the interrupt of the logic; None if the system offers none."""
        for name in sorted(system.glob("uio*/name")):
            with suppress(OSError):
                if name.read_text().strip() == NAME:
                    return cls(devices / name.parent.name)
        return None

    def wait(self, seconds: float) -> bool:
        """Wait at most so long until the line is high; return whether it was."""
        os.write(self._file, _ONE)
        ready = wait_for(self._file, READABLE, seconds)
        return bool(ready and os.read(self._file, len(_ONE)))
