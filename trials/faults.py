"""A virtual board and a server with injected faults."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from vtaops.board.server import BoardServer
from vtaops.board.virtual import VirtualBoard
from vtaops.errors import DeviceError, DeviceTimeout
from vtaops.hardware.registers import REGISTER_PAGE, HlsRegisters
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


LATE_POLLS = 5
"""Polls that see nothing of a run whose flag is late."""


class FaultyVirtualBoard(VirtualBoard):
    """A virtual board with injected faults; only the functional simulator has those of runs."""

    def __init__(self, *arguments: Any, faults: Faults) -> None:
        super().__init__(*arguments)
        self.faults = faults
        self._late = _LateLogic(self._logic, faults)
        self._launch: Callable[..., Any] = self.dram.launch
        self.dram.launch = self._faulty_launch

    def _faulty_launch(self, *arguments: Any) -> None:
        if self.faults.take(Fault.HANG):
            raise DeviceTimeout("a hang was injected")
        self._launch(*arguments)

    def program(self, content: bytes) -> None:
        if self.faults.take(Fault.REFUSE_PROGRAMMING):
            with suppress(DeviceError):
                super().program(b"")  # the logic is lost
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        super().program(content)

    def register(self, address: int) -> tuple[Any, int]:
        _, offset = super().register(address)
        return self._late, offset


class _LateLogic:
    """Registers whose done flag may tell of a run too late."""

    def __init__(self, logic: Any, faults: Faults) -> None:
        self._logic, self._faults = logic, faults
        hls = logic.length > REGISTER_PAGE
        self._done = 2 * REGISTER_PAGE + HlsRegisters.COMPUTE_DONE if hls else 0
        self._keeps = hls  # the flag of the run before
        self._late = self._before = 0

    def read(self, offset: int) -> int:
        if offset == self._done and self._late:
            self._late -= 1
            return self._before
        return int(self._logic.read(offset))

    def write(self, offset: int, data: int) -> None:
        if offset == 0 and data & 1:  # a launch, by either control register
            self._before = self._logic.read(self._done) if self._keeps else 0
            self._late = LATE_POLLS * self._faults.take(Fault.LATE_DONE)
        self._logic.write(offset, data)


class FaultyServer(BoardServer):
    """A server whose connections have injected faults."""

    def __init__(self, *arguments: Any, faults: Faults, **options: Any) -> None:
        self.faults = faults
        super().__init__(*arguments, **options)

    def connection(self, stream: socket.socket) -> Connection:
        return FaultyConnection(stream, self.faults)
