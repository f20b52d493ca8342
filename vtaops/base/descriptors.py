"""Waiting for file descriptors, of any number: `select` knows only those below 1,024."""

from __future__ import annotations

import select

READABLE, WRITABLE = select.POLLIN, select.POLLOUT


def wait_for(file: int, event: int, seconds: float) -> bool:
    """Wait until a file can be read or written, or is closed; False if that takes too long."""
    poll = select.poll()
    poll.register(file, event)
    return bool(poll.poll(seconds * 1000))
