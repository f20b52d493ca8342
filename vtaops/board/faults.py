"""Fault injection for the virtual board and the server, for tests and training."""

from __future__ import annotations

import socket
import threading
from enum import Enum

from vtaops.runtime.wire import PREAMBLE_BYTES, Connection, ConnectionLost


class Fault(str, Enum):
    """Kinds of faults; each injection causes one occurrence."""

    HANG = "hang"
    """The next run never reaches FINISH."""
    LATE_DONE = "late-done"
    """The done flag of the next run is late and first still shows the previous run."""
    REFUSE_PROGRAMMING = "refuse-programming"
    """The FPGA manager refuses the next bitstream."""
    DROP_REQUEST = "drop-request"
    """The connection ends during the next transfer to the board."""
    DROP_REPLY = "drop-reply"
    """The connection ends during the next response from the board."""
    CORRUPT_REQUEST = "corrupt-request"
    """The next transfer to the board has a flipped bit."""
    CORRUPT_REPLY = "corrupt-reply"
    """The next response from the board has a flipped bit."""


class Faults:
    """Pending faults, at most one of a kind; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Fault, int] = {}

    def inject(self, fault: Fault, after: int = 0) -> None:
        """Inject `fault` after skipping `after` occasions for it."""
        self._waiting[fault] = after

    def take(self, fault: Fault) -> bool:
        """Return whether `fault` occurs on this occasion."""
        with self._lock:
            if fault in self._waiting:
                self._waiting[fault] -= 1
            return self._waiting.get(fault) == -1 and self._waiting.pop(fault) == -1

    def clear(self) -> None:
        """Discard all pending faults."""
        self._waiting.clear()

    def pending(self) -> list[Fault]:
        """Return the kinds of pending faults."""
        return [*self._waiting]


class FaultyConnection(Connection):
    """The board's end of a connection, with injected faults.

    Parameters
    ----------
    stream : socket
        The connection.
    faults : Faults
        Faults to inject.
    """

    def __init__(self, stream: socket.socket, faults: Faults) -> None:
        super().__init__(stream)
        self._faults = faults

    def send_raw(self, data: bytes, *, deadline: float) -> None:
        take = self._faults.take
        if take(Fault.DROP_REPLY):
            super().send_raw(data[: len(data) // 2], deadline=deadline)
            self.shutdown()
            raise ConnectionLost("a drop was injected")
        if take(Fault.CORRUPT_REPLY):
            data = _with_wrong_bit(data)
        super().send_raw(data, deadline=deadline)

    def _receive_exactly(self, count: int, deadline: float) -> bytearray:
        data = super()._receive_exactly(count, deadline)
        if count == PREAMBLE_BYTES and self._faults.take(Fault.DROP_REQUEST):
            self.shutdown()
            raise ConnectionLost("a drop was injected")
        if count > PREAMBLE_BYTES and self._faults.take(Fault.CORRUPT_REQUEST):
            data = bytearray(_with_wrong_bit(data))
        return data


def _with_wrong_bit(data: bytes | bytearray) -> bytes:
    wrong = bytearray(data)
    wrong[len(wrong) // 2] ^= 0x10
    return bytes(wrong)
