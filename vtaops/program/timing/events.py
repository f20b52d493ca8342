"""The kernel of the simulation: processes that run in the order of time, and channels between them.

A process is a generator that computes the times of its own work. It runs ahead freely until it
needs another process: it yields a `Channel` when what it must receive has not been sent yet, and a
time, that of its request, when it uses what all share (`Port`) and another process may be earlier
(`EventLoop.horizon`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from vtaops.errors import DeadlockError

Process = Generator["float | Channel", None, None]

_NEVER = float("inf")


class Channel:
    """What one process sends another: tokens, instructions, or free places in a queue.

    Attributes
    ----------
    times : deque of float
        When each item becomes available, of those that the reader has not taken yet.
    """

    __slots__ = ("_loop", "_reader", "name", "times")

    def __init__(self, loop: EventLoop, reader: int, name: str) -> None:
        self._loop = loop
        self._reader = reader
        self.name = name
        self.times: deque[float] = deque()

    def send(self, time: float) -> None:
        """Make one item available from `time`; wakes the reader if it waits here."""
        self.times.append(time)
        self._loop.wake(self._reader, self, time)


class EventLoop:
    """Resumes the process with the earliest request, until all have ended.

    Parameters
    ----------
    names : sequence of str
        The processes; of two with the same time the first is resumed.

    Attributes
    ----------
    horizon : float
        The earliest request of the other processes: before, the running one need not yield.
    """

    __slots__ = ("_names", "_requests", "_waiting", "horizon")

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._requests = [0.0] * len(names)
        self._waiting: list[Channel | None] = [None] * len(names)
        self.horizon = 0.0

    def wake(self, reader: int, channel: Channel, time: float) -> None:
        """Let a process that waits for `channel` go on at `time`."""
        if self._waiting[reader] is channel:
            self._waiting[reader] = None
            self._requests[reader] = time
            if time < self.horizon:
                self.horizon = time

    def run(self, processes: Sequence[Process]) -> None:
        """Run the processes, in the order of their names.

        Raises
        ------
        DeadlockError
            If they wait for each other for ever.
        """
        requests, waiting = self._requests, self._waiting
        while (now := min(requests)) != _NEVER:
            best = requests.index(now)
            requests[best] = _NEVER
            self.horizon = min(requests)
            wish = next(processes[best], None)
            if isinstance(wish, Channel):
                waiting[best] = wish
            elif wish is not None:
                requests[best] = wish
        stuck = [
            f"{name} waits for {channel.name}"
            for name, channel in zip(self._names, waiting, strict=True)
            if channel is not None
        ]
        if stuck:
            raise DeadlockError(f"the program does not end: {'; '.join(stuck)}")
