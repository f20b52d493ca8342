"""UartBone: access a board's bus over a serial line, checked by CRC.

The line is a serial port, a pseudo-terminal or a TCP connection. LiteX's UARTBone transfers only
bursts of words; the system of `vtaops.hardware.ulx3s` adds a CRC-32 over all bytes in both
directions, which the host computes too. While both agree, every byte has arrived and no other
client has reset or addressed the board. If they differ, any address may hold wrong data, so nothing
is repeated: the board must be reset (`UartBone.recover`).
"""

from __future__ import annotations

import os
import socket
import stat
import termios
import time
import tty
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.descriptors import READABLE, WRITABLE, wait_for
from vtaops.base.errors import DeviceError
from vtaops.base.shapes import Words32

WRITE, READ, WRITE_FIXED = 1, 2, 3
WORD_BYTES, MOST_WORDS = 4, 255  # per burst
_SYNC_TRIES = 4
_RESET_SECONDS = 0.05
_PATIENCE = {True: 0.2, False: 3.0}  # seconds: for a serial port, for a simulator
_PIECE = 4096
_LATE_PIECES = 256  # more than can be in transit
_CHECKED_WORDS = 16 * MOST_WORDS  # written between two checks


class LinkError(DeviceError):
    """Bytes between host and board were lost, changed or added, or the board was reset."""


class Line:
    """A serial port, or a TCP connection.

    Parameters
    ----------
    address : str
        Path of a serial port, or ``host:port``.
    baud : int
        Bit rate of the serial port in bits per second; Linux must support it.
    timeout : float
        Seconds without a byte after which `read` stops.

    Raises
    ------
    DeviceError
        If it cannot be opened.
    """

    def __init__(self, address: str, baud: int, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        # Seconds within which a listening board begins to answer.
        self.patience = _PATIENCE[address.startswith("/dev/tty")]
        self._socket: socket.socket | None = None
        try:
            if address.startswith("/"):
                self._file = open_serial(address, baud)
            else:
                host, _, port = address.rpartition(":")
                self._socket = socket.create_connection((host, int(port)), timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.setblocking(False)
                self._file = self._socket.fileno()
        except (OSError, ValueError, termios.error) as error:
            raise DeviceError(
                f"cannot open a board at {address!r}: {error}; give the path of its serial port, "
                f"as /dev/ttyUSB0, or HOST:PORT of a virtual board"
            ) from error

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises
        ------
        LinkError
            If the line is closed or accepts no data.
        """
        rest = memoryview(data)
        while rest:
            if not wait_for(self._file, WRITABLE, self._timeout):
                raise LinkError(f"{self._address} took no byte in {self._timeout} s")
            try:
                rest = rest[os.write(self._file, rest[:_PIECE]) :]
            except OSError as error:
                raise self._gone(error) from error

    def read(self, count: int, seconds: float | None = None) -> bytes:
        """Return `count` bytes, or fewer if none arrives within `seconds`.

        Raises
        ------
        LinkError
            If the line is gone.
        """
        received = bytearray()
        wait = self._timeout if seconds is None else seconds
        while len(received) < count and wait_for(self._file, READABLE, wait):
            try:
                piece = os.read(self._file, count - len(received))
            except OSError as error:
                raise self._gone(error) from error
            if not piece:
                raise self._gone("its other end was closed")
            received += piece
        return bytes(received)

    def close(self) -> None:
        """Close the line."""
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self._file)

    def _gone(self, reason: object) -> LinkError:
        return LinkError(f"the line to the board at {self._address} is gone: {reason}")


def open_serial(path: str, baud: int) -> int:
    """Open a serial port in raw, non-blocking mode, flush it and return its descriptor.

    Raises
    ------
    OSError, termios.error
        If it cannot be opened, or is not a serial port.
    """
    speed = getattr(termios, f"B{baud}", None)
    if speed is None:
        raise OSError(f"this system has no serial ports of {baud} bits per second")
    if not stat.S_ISCHR(Path(path).stat().st_mode):
        raise OSError("it is not a serial port")
    file = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(file)
        settings = termios.tcgetattr(file)
        settings[2] = termios.CS8 | termios.CREAD | termios.CLOCAL
        settings[4] = settings[5] = speed
        termios.tcsetattr(file, termios.TCSANOW, settings)
        termios.tcflush(file, termios.TCIOFLUSH)
    except BaseException:
        os.close(file)
        raise
    return file


class UartBone:
    """Access a board's bus.

    Parameters
    ----------
    line : Line
        Connection to the board, or what has the same methods.
    crc_address, identity_address : int
        Byte addresses of the CRC register and of the words that identify the board.
    """

    def __init__(self, line: Any, crc_address: int, identity_address: int) -> None:
        self._line = line
        self._crc_address, self._identity_address = crc_address, identity_address
        self._crc = 0
        self.sent_bytes = 0

    def write(self, address: int, words: npt.ArrayLike, *, fixed: bool = False) -> None:
        """Write words to consecutive addresses, or all to one, and verify that they arrived.

        Raises
        ------
        LinkError
            If any word may not have arrived.
        """
        values = np.asarray(words, "<u4").reshape(-1).astype(">u4")
        for start in range(0, values.size, MOST_WORDS):
            part = values[start : start + MOST_WORDS]
            kind, place = (WRITE_FIXED, address) if fixed else (WRITE, address + WORD_BYTES * start)
            self._send(_command(kind, part.size, place) + part.tobytes())
            if (start + part.size) % _CHECKED_WORDS == 0 or start + part.size == values.size:
                self._check()

    def read(self, address: int, count: int = 1) -> Words32:
        """Read words from consecutive addresses.

        Raises
        ------
        LinkError
            If any word may be wrong.
        """
        words = np.empty(count, np.uint32)
        for start in range(0, count, MOST_WORDS):
            size = min(MOST_WORDS, count - start)
            self._send(_command(READ, size, address + WORD_BYTES * start))
            words[start : start + size] = self._receive(size)
        self._check()
        return words

    def recover(self, reset_address: int) -> None:
        """Resynchronize with the board, reset it and restart the byte count.

        Raises
        ------
        LinkError
            If the board does not answer.
        """
        self._synchronise()
        self._line.write(_command(WRITE, 1, reset_address) + (1).to_bytes(WORD_BYTES, "big"))
        time.sleep(_RESET_SECONDS)  # the board's clock starts anew
        self._synchronise()
        if all(self._line.read(_PIECE, 0.0) for _ in range(_LATE_PIECES)):  # discards late answers
            raise LinkError("the board sends without end; does it hold a bitstream of vtaops?")
        self._crc = 0
        self._send(_command(READ, 1, self._crc_address))
        checksum = int(self._receive(1)[0])
        self._crc = zlib.crc32(checksum.to_bytes(WORD_BYTES, "big"), checksum)
        self._check()

    def _synchronise(self) -> None:
        """Poll until the board answers; after a pause it drops an incomplete command."""
        question = _command(READ, 1, self._identity_address)
        for _ in range(_SYNC_TRIES):
            self._line.write(question)
            if len(self._line.read(WORD_BYTES, self._line.patience)) == WORD_BYTES:
                return
        raise LinkError(
            "the board does not answer; is it switched on, does it hold a bitstream of vtaops "
            "(vtaops flash), and does no other program use its port?"
        )

    def _check(self) -> None:
        """Compare the host's CRC over all bytes with the board's."""
        self._send(_command(READ, 1, self._crc_address))
        expected = self._crc
        checksum = int(self._receive(1)[0])
        if checksum != expected:
            raise LinkError(
                f"bytes between host and board changed, or the board was reset: its CRC over them "
                f"is {checksum:#010x}, this end's {expected:#010x}"
            )

    def _send(self, data: bytes) -> None:
        self._line.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self.sent_bytes += len(data)

    def _receive(self, words: int) -> Words32:
        data = self._line.read(WORD_BYTES * words)
        if len(data) < WORD_BYTES * words:
            raise LinkError(f"the board sent {len(data)} of {WORD_BYTES * words} bytes")
        self._crc = zlib.crc32(data, self._crc)
        return np.frombuffer(data, ">u4").astype(np.uint32)


def _command(kind: int, words: int, address: int) -> bytes:
    return bytes((kind, words)) + (address // WORD_BYTES).to_bytes(4, "big")
