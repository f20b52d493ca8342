"""Messages between a board's client and server: framing, checks, login.

A message consists of a preamble, a JSON object and a payload:

=====  ===========================================================================================
bytes  content (integers little-endian)
=====  ===========================================================================================
4      magic, ``VTB1``
4      length H of the object
4      length P of the payload
4      CRC-32 of object and payload
4      CRC-32 of the 16 bytes before
H      JSON object, UTF-8
P      payload
=====  ===========================================================================================

The client sends requests ``{"op": ..., "id": n, ...}``; the server answers each with
``{"id": n, ...}``, plus ``"error"`` (kind and message) if it failed. Lengths are bounded before
anything is read. At login both sides prove with HMAC-SHA-256 over two fresh random numbers that
they know the shared secret, which is never sent. A CRC protects later messages against accidents,
not against an attacker who can change packets: use an SSH tunnel where that matters.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vtaops.base import errors
from vtaops.base.errors import DeviceError, DeviceTimeout, VTAError, raising
from vtaops.base.files import read_file

PROTOCOL_VERSION = 5
DEFAULT_PORT = 9191
CHUNK_BYTES = 1 << 20
"""Maximum payload; larger transfers are split into messages of this size."""

MAX_HEADER_BYTES = 64 << 10
NONCE_BYTES = 32
MIN_SECRET_BYTES = 16
SECRET_VARIABLE = "VTAOPS_BOARD_SECRET"
SECRET_FILE_VARIABLE = "VTAOPS_BOARD_SECRET_FILE"

_MAGIC = b"VTB1"
_PREAMBLE = struct.Struct("<4sIII")
_CHECK = struct.Struct("<I")
PREAMBLE_BYTES = _PREAMBLE.size + _CHECK.size

# Detect a peer that vanished (power, cable) after about a minute instead of two hours.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

_SHORTEST_WAIT = 1e-3  # seconds; 0 would make a socket non-blocking


def package_version() -> str:
    """Return the version of vtaops for messages."""
    try:
        return importlib.metadata.version("vtaops")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class ConnectionLost(DeviceError):
    """The peer is unreachable or does not speak this protocol."""


class Connection:
    """A message socket; each message has a deadline in the time of `time.monotonic`.

    After an error the connection cannot be used; close it.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def send(
        self, header: Mapping[str, Any], payload: bytes | memoryview = b"", *, deadline: float
    ) -> None:
        """Send one message.

        Raises
        ------
        DeviceTimeout
            If it cannot be sent in time.
        ConnectionLost
            If the peer has closed the connection.
        """
        self.send_raw(encode(header, payload), deadline=deadline)

    def send_raw(self, data: bytes, *, deadline: float) -> None:
        """Send the bytes of a message; see `encode`."""
        view = memoryview(data)
        try:
            while view:
                self._wait_until(deadline)
                view = view[self._stream.send(view) :]
        except TimeoutError:
            raise DeviceTimeout("the other side takes no data") from None
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error

    def receive(
        self,
        *,
        deadline: float,
        max_payload: int = CHUNK_BYTES,
        max_header: int = MAX_HEADER_BYTES,
    ) -> tuple[dict[str, Any], bytes]:
        """Receive one message: its object and its payload.

        Parameters
        ----------
        deadline : float
            Time by which the message must be complete.
        max_payload, max_header : int
            Maximum accepted lengths in bytes.

        Raises
        ------
        DeviceTimeout
            If no message arrives in time.
        ConnectionLost
            If the peer closed the connection or sent an invalid message.
        """
        preamble = self._receive_exactly(PREAMBLE_BYTES, deadline)
        magic, header_length, payload_length, check = _PREAMBLE.unpack_from(preamble)
        (preamble_check,) = _CHECK.unpack_from(preamble, _PREAMBLE.size)
        if magic != _MAGIC:
            raise ConnectionLost("the other side does not speak the protocol of vtaops boards")
        if zlib.crc32(preamble[: _PREAMBLE.size]) != preamble_check:
            raise ConnectionLost("a message was corrupted on its way (preamble)")
        if header_length > max_header or payload_length > max_payload:
            raise ConnectionLost(
                f"a message of {header_length} + {payload_length} bytes exceeds the limit of "
                f"{max_header} + {max_payload}"
            )
        body = self._receive_exactly(header_length + payload_length, deadline)
        if zlib.crc32(body) != check:
            raise ConnectionLost("a message was corrupted on its way (checksum)")
        return _decode_header(body[:header_length]), bytes(body[header_length:])

    def close(self) -> None:
        """Close the socket."""
        self._stream.close()

    def shutdown(self) -> None:
        """Shut the connection down; a `receive` blocked in another thread then raises an error."""
        with suppress(OSError):  # the peer was faster
            self._stream.shutdown(socket.SHUT_RDWR)

    def _receive_exactly(self, count: int, deadline: float) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        try:
            while view:
                self._wait_until(deadline)
                received = self._stream.recv_into(view)
                if not received:
                    raise ConnectionLost("the other side closed the connection")
                view = view[received:]
        except TimeoutError:
            raise DeviceTimeout("no answer in time") from None
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error
        return data

    def _wait_until(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._stream.settimeout(max(remaining, _SHORTEST_WAIT))


def error_of(kind: object, message: object) -> VTAError:
    """Return the error reported by the peer; a `DeviceError` if its kind is unknown."""
    error_type = getattr(errors, str(kind), None)
    if isinstance(error_type, type) and issubclass(error_type, VTAError):
        with suppress(TypeError):  # boards do not send errors with more than a message
            return error_type(str(message))
    return DeviceError(str(message))


def encode(header: Mapping[str, Any], payload: bytes | memoryview = b"") -> bytes:
    """Return the bytes of a message."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    check = zlib.crc32(payload, zlib.crc32(text))
    preamble = _PREAMBLE.pack(_MAGIC, len(text), len(payload), check)
    return b"".join((preamble, _CHECK.pack(zlib.crc32(preamble)), text, payload))


def _decode_header(text: bytes | bytearray) -> dict[str, Any]:
    with raising(ConnectionLost, "a message does not hold JSON", ValueError, RecursionError):
        header = json.loads(text.decode())
        json.dumps(header, ensure_ascii=False).encode()  # fails on half a surrogate pair
    if not isinstance(header, dict):
        raise ConnectionLost("a message does not hold a JSON object")
    return header


# ---------------------------------------------------------------------------------- secret


def read_secret(path: str | Path | None = None) -> bytes:
    """Return the shared secret from a file or the environment; empty if neither provides one.

    VTAOPS_BOARD_SECRET holds the secret, or VTAOPS_BOARD_SECRET_FILE names a file with it.
    Surrounding whitespace is removed.

    Raises
    ------
    DeviceError
        If the file cannot be read or the secret is too short.
    """
    chosen = path or os.environ.get(SECRET_FILE_VARIABLE, "")
    if chosen:
        with raising(DeviceError, "cannot read the secret", OSError):
            secret = read_file(chosen).strip()
    else:
        secret = os.environ.get(SECRET_VARIABLE, "").encode().strip()
        if not secret:
            return b""
    if len(secret) < MIN_SECRET_BYTES:
        raise DeviceError(
            f"the shared secret has {len(secret)} bytes; give at least {MIN_SECRET_BYTES}, for "
            f"example those of: python3 -c 'import secrets; print(secrets.token_hex())'"
        )
    return secret


def proof(secret: bytes, side: str, server_nonce: str, client_nonce: str) -> str:
    """Return the proof that `side` ("client" or "server") knows the secret."""
    message = f"vtaops board {side} {server_nonce} {client_nonce}".encode()
    return hmac.new(secret, message, hashlib.sha256).hexdigest()


def proves(given: Any, secret: bytes, side: str, server_nonce: str, client_nonce: str) -> bool:
    """Return whether `given` equals the `proof`, compared in constant time."""
    expected = proof(secret, side, server_nonce, client_nonce)
    return hmac.compare_digest(ascii(given), ascii(expected))


def parse_address(address: str) -> tuple[str, int]:
    """Return the host and port of ``pynq://host:port``, ``host:port`` or ``host``.

    Raises
    ------
    DeviceError
        If the address is invalid.
    """
    text = f"'{address}' is not the address of a board; write pynq://HOST or pynq://HOST:PORT"
    with raising(DeviceError, text, ValueError):
        parts = urlsplit(address if "://" in address else f"pynq://{address}")
        port = DEFAULT_PORT if parts.port is None else parts.port
    if parts.scheme != "pynq" or not parts.hostname or not port:
        raise DeviceError(text)
    return parts.hostname, port
