"""Fork-safe locks: a child never waits for a thread that exists only in its parent."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

from vtaops.base.errors import DeviceError

_LOCKS: WeakSet[ForkLock] = WeakSet()
"""All locks of this process."""


class ForkLock:
    """A re-entrant lock; a context manager.

    If another thread holds it when the process forks, the child gets a free lock, as if that thread
    had been interrupted. If `what` is given, the child's attempts to take the lock raise instead.

    Parameters
    ----------
    what : str, optional
        The resource that cannot be used after an interruption, as the subject of the error.
    """

    def __init__(self, what: str = "") -> None:
        self._what = what
        self._lock = threading.RLock()
        self._is_lost = False
        _LOCKS.add(self)

    def __enter__(self) -> None:
        """Wait for the lock.

        Raises
        ------
        DeviceError
            In a forked child, if another thread of the parent was using the named resource.
        """
        if self._is_lost:
            raise DeviceError(
                f"{self._what} was in use by another thread when this process was forked; "
                "open it again here"
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _after_fork(self) -> None:
        if self._lock.acquire(blocking=False):  # free, or held by the thread that forked
            self._lock.release()
            return
        self._lock = threading.RLock()
        self._is_lost = bool(self._what)


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
