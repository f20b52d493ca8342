"""The log of a board's server: lines that nobody reads are dropped, so that no session waits."""

from __future__ import annotations

import logging
import os

from vtaops.base.descriptors import WRITABLE, wait_for
from vtaops.base.quoting import terminal_text

LINE_BYTES = 4096
"""Most bytes of a line: a pipe that can be written to takes as many at once."""


class DroppingHandler(logging.Handler):
    """Write lines to a file descriptor, and drop those that it does not take at once.

    Only this process may write to a pipe; another one could fill it between the look and the
    write.

    Parameters
    ----------
    descriptor : int
        A file, a pipe, a socket or a terminal.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.dropped = 0
        """Number of lines that were dropped since the last one that was written."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.dropped and self._write(f"{self.dropped} lines were dropped: nobody read them"):
            self.dropped = 0
        if self.dropped or not self._write(self.format(record)):
            self.dropped += 1

    def _write(self, text: str) -> bool:
        line = terminal_text(text).encode(errors="replace")[: LINE_BYTES - 1] + b"\n"
        try:
            if not wait_for(self._descriptor, WRITABLE, 0):
                return False
            os.write(self._descriptor, line)
        except OSError:  # a closed pipe, a full disk
            return False
        return True


def start_log(descriptor: int) -> None:
    """Let all that is logged or warned of go to a file descriptor."""
    logging.captureWarnings(True)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(name)s: %(message)s",
        handlers=[DroppingHandler(descriptor)],
    )
