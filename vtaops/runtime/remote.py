"""RemoteDevice: a board behind the `Device` protocol, over the network.

The server is ``python -m vtaops.board serve``. Programs and parameters are first offered by hash,
so that each travels only once; `vtaops.runtime.wire` describes the messages.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vtaops.base.errors import BufferLost, ConfigError, DeviceError, DeviceTimeout
from vtaops.base.forks import ForkLock
from vtaops.base.progress import report_progress
from vtaops.base.shapes import Array, Bytes
from vtaops.hardware.performance import TsimPerformance
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import DRAM_BYTES, HardwareConfig
from vtaops.program.statistics import Statistics
from vtaops.runtime import arguments
from vtaops.runtime.device import DeviceBuffer, check_config
from vtaops.runtime.launches import RelaunchingDevice
from vtaops.runtime.wire import (
    CHUNK_BYTES,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Connection,
    ConnectionLost,
    error_of,
    package_version,
    parse_address,
    proof,
    proves,
    read_secret,
)

DEFAULT_TIMEOUT = 10.0
"""Time limit of one message in seconds; a launch gets its own timeout in addition."""

_Counters = TypeVar("_Counters", Statistics, TsimPerformance)

_MIN_CACHED_BYTES = 4096  # smaller data are sent at once, because asking takes as long


@dataclass(frozen=True, eq=False)
class RemoteBuffer:
    """A block of the board's DRAM.

    Attributes
    ----------
    address, nbytes : int
        Physical byte address on the board, and size.
    handle : int
        Its number within the session.
    connection : int
        The connection that owns the buffer; the buffer is lost when it closes.
    """

    address: int
    nbytes: int
    handle: int
    connection: int


class RemoteDevice(RelaunchingDevice):
    """A board served at an address.

    If the connection fails, the call raises an error, and the next call reconnects. Buffers and
    counters of the old connection are lost (a `LoadedProgram` reloads itself).
    Calls from several threads are serialized.

    Parameters
    ----------
    address : str
        ``pynq://host:port``.
    config : HardwareConfig, str or Path, optional
        Required configuration; any configuration is accepted by default.
    secret : bytes, optional
        The shared secret; taken from the environment by default (`read_secret`).
    timeout : float
        Time limit of one message in seconds.

    Raises
    ------
    DeviceError
        If the board cannot be reached, uses another protocol version, or refuses the secret.
    ConfigError
        If the board has another configuration.
    """

    def __init__(
        self,
        address: str,
        config: HardwareConfig | str | Path | None = None,
        *,
        secret: bytes | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        timeout = arguments.as_seconds(timeout)
        self._host, self._port = parse_address(address)
        self._wanted = None if config is None else HardwareConfig.of(config)
        self._secret = read_secret() if secret is None else secret
        self._timeout = timeout
        self._lock = ForkLock("the connection to the board")
        self._connection: Connection | None = None
        self._connections = 0
        self._requests = 0
        self._closed = False
        self.sent_bytes = 0
        """Bytes of data, without message overhead, sent to the board."""
        self.received_bytes = 0
        """Bytes of data received from the board."""
        super().__init__(self._connect())

    @property
    def address(self) -> str:
        """The board's address."""
        return f"pynq://{self._host}:{self._port}"

    # ------------------------------------------------------------------------ memory

    def alloc(self, nbytes: int) -> DeviceBuffer:
        nbytes = arguments.as_nbytes(nbytes)
        answer, _ = self._request("alloc", nbytes=nbytes)
        address, handle = _integers(answer, "address", "buffer")
        if not 0 <= address <= DRAM_BYTES - nbytes:
            raise DeviceError(f"the board sent address {address}; addresses have 32 bits")
        return RemoteBuffer(address, nbytes, handle, self._connections)

    def free(self, buffer: DeviceBuffer) -> None:
        with self._lock:
            if not isinstance(buffer, RemoteBuffer):
                raise arguments.foreign_buffer(buffer)
            if buffer.connection == self._connections and self._connection is not None:
                self._request("free", buffer=buffer.handle)

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        self.write_at(buffer, 0, data)

    def write_at(self, buffer: DeviceBuffer, offset: int, data: Array) -> None:
        """Copy the bytes of an array to a byte offset of a buffer."""
        image = _image(data)
        with self._lock:
            self._send("write", image, offset, buffer=self._handle(buffer, len(image), offset))

    def write_cached(self, buffer: DeviceBuffer, data: Array) -> None:
        """Write data, without sending them if the board still holds them.

        The board verifies the hash of its copy.
        """
        image = _image(data)
        if len(image) < _MIN_CACHED_BYTES:
            self.write(buffer, data)
            return
        digest = hashlib.sha256(image).hexdigest()
        with self._lock:
            handle = self._handle(buffer, len(image))
            answer, _ = self._request("fill", buffer=handle, sha256=digest, nbytes=len(image))
            if answer.get("found") is not True:
                self.write(buffer, data)

    def read(self, buffer: DeviceBuffer, nbytes: int) -> Bytes:
        with self._lock:
            handle = self._handle(buffer, nbytes)
            image = np.empty(nbytes, np.uint8)
            for start in range(0, nbytes, CHUNK_BYTES):
                size = min(CHUNK_BYTES, nbytes - start)
                _, chunk = self._request("read", buffer=handle, offset=start, nbytes=size)
                if len(chunk) != size:
                    self._drop()
                    raise DeviceError(f"the board sent {len(chunk)} bytes; {size} were asked for")
                image[start : start + size] = np.frombuffer(chunk, np.uint8)
                report_progress("read", start + size, nbytes)
            return image

    # -------------------------------------------------------------------------- runs

    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        answer, _ = self._request(
            "launch",
            seconds=timeout + self._timeout,
            address=address,
            count=count,
            timeout=timeout,
            pinned=pinned,
            since=since,
        )
        (number,) = _integers(answer, "number")
        return number

    def stats(self) -> Statistics:
        return self._counted(Statistics, "stats")

    def performance(self) -> TsimPerformance:
        """Return cycles by cause, counted by the logic since `reset_stats`.

        Raises
        ------
        UnsupportedError
            If the logic is upstream's HLS design, which has no cycle counters.
        """
        return self._counted(TsimPerformance, "performance")

    def _counted(self, kind: type[_Counters], operation: str) -> _Counters:
        answer, _ = self._request(operation)
        names = [field.name for field in fields(kind)]
        return kind(**dict(zip(names, _integers(answer, *names), strict=True)))

    def reset_stats(self) -> None:
        self._request("reset_stats")

    # ---------------------------------------------------------------- beyond the protocol

    def info(self) -> dict[str, Any]:
        """Return the board's description: versions, bitstream, registers, memory."""
        answer, _ = self._request("info")
        return {name: value for name, value in answer.items() if name != "id"}

    def program(self, bitstream: bytes, register_map: str, *, timeout: float = 60.0) -> None:
        """Program the logic of the board.

        Parameters
        ----------
        bitstream : bytes
            A ``.bit`` file.
        register_map : str
            Its design: "hls" or "rtl".
        timeout : float
            Time limit of the programming in seconds.

        Raises
        ------
        DeviceError
            If the bitstream is corrupted or for another part, or the board refuses it.
        ConfigError
            If the board serves another configuration or register map.
        """
        with self._lock:
            self._send("upload", memoryview(bitstream), total=len(bitstream))
            self._request(
                "program",
                seconds=timeout,
                sha256=hashlib.sha256(bitstream).hexdigest(),
                fingerprint=self._config.fingerprint,
                register_map=register_map,
            )

    def close(self) -> None:
        """End the session, which frees its memory on the board; any later call is an error."""
        with self._lock:
            self._closed = True
            self._drop()

    def __repr__(self) -> str:
        return f"RemoteDevice({self.address!r}, {self._config.bitstream_id})"

    # ----------------------------------------------------------------------- connection

    def _connect(self) -> HardwareConfig:
        deadline = time.monotonic() + self._timeout
        try:
            stream = socket.create_connection((self._host, self._port), self._timeout)
        except (OSError, UnicodeError) as error:  # the latter of names such as "."
            raise DeviceError(
                f"cannot reach a board at {self.address} within {self._timeout} s ({error}); is "
                f"'python3 -m vtaops.board serve' running there?"
            ) from error
        self._connection = Connection(stream)
        self._connections += 1
        try:
            return self._login(self._connection, deadline)
        except BaseException as error:
            self._drop()
            if isinstance(error, DeviceTimeout):
                text = f"{self.address} did not answer in {self._timeout} s"
                raise DeviceTimeout(text) from error
            if isinstance(error, ConnectionLost):
                raise ConnectionLost(f"{self.address}, login: {error}") from error
            raise

    def _login(self, connection: Connection, deadline: float) -> HardwareConfig:
        hello, _ = connection.receive(deadline=deadline, max_payload=0)
        _raise_error(hello, self.address)
        if hello.get("protocol") != PROTOCOL_VERSION:
            raise DeviceError(
                f"the board speaks protocol {hello.get('protocol')} (vtaops "
                f"{hello.get('vtaops')}), this is protocol {PROTOCOL_VERSION} (vtaops "
                f"{package_version()}); install the same version on both"
            )
        if hello.get("secret") and not self._secret:
            raise DeviceError(
                "the board asks for its shared secret; set VTAOPS_BOARD_SECRET, or "
                "VTAOPS_BOARD_SECRET_FILE to a file that holds it"
            )
        nonces = str(hello.get("nonce")), secrets.token_hex(NONCE_BYTES)
        own_proof = proof(self._secret, "client", *nonces)
        login = {"op": "login", "id": 0, "protocol": PROTOCOL_VERSION}
        connection.send({**login, "nonce": nonces[1], "proof": own_proof}, deadline=deadline)
        answer, _ = connection.receive(deadline=deadline, max_payload=0)
        _raise_error(answer, self.address)
        if not proves(answer.get("proof"), self._secret, "server", *nonces):
            raise DeviceError("the board does not know the shared secret; is it the right board?")
        return self._agreed(answer)

    def _agreed(self, answer: dict[str, Any]) -> HardwareConfig:
        values, name = answer.get("config"), answer.get("config_name")
        if not isinstance(values, dict):
            raise DeviceError("the board sent no configuration")
        config = HardwareConfig.from_dict(values, str(name))
        if config.fingerprint != answer.get("fingerprint"):
            raise ConfigError(
                f"the board calls its configuration {answer.get('fingerprint')}, in this vtaops it "
                f"is {config.fingerprint}; install the same version of vtaops on both"
            )
        try:
            self.capabilities = Capabilities(**answer["capabilities"])
        except (KeyError, TypeError, ConfigError) as error:
            raise DeviceError(f"the board sent unknown capabilities: {error}") from error
        check_config(config, self._wanted, "program")
        return config

    def _request(
        self,
        operation: str,
        payload: bytes | memoryview = b"",
        *,
        seconds: float | None = None,
        **fields: Any,
    ) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            if self._closed:
                raise DeviceError("this device is closed; open a new one")
            if self._connection is None:
                self._config = self._connect()
            connection = self._connection
            assert connection is not None
            self._requests += 1
            header = {"op": operation, "id": self._requests, **fields}
            deadline = time.monotonic() + (self._timeout if seconds is None else seconds)
            try:
                connection.send(header, payload, deadline=deadline)
                answer, data = connection.receive(deadline=deadline)
            except (DeviceTimeout, ConnectionLost) as error:
                reason = self._last_words(connection, error)
                self._drop()
                raise type(error)(f"{self.address}, {operation}: {reason}") from error
            except BaseException:
                self._drop()  # a message may be incomplete
                raise
            if answer.get("id") != self._requests:
                self._drop()
                _raise_error(answer, self.address)
                raise ConnectionLost(f"{self.address} answered another request")
            if answer.get("last") is True:
                self._drop()
            _raise_error(answer, self.address)
            self.sent_bytes += len(payload)
            self.received_bytes += len(data)
            return answer, data

    def _send(self, operation: str, image: memoryview, first: int = 0, **fields: Any) -> None:
        """Send an image to the offset `first` in chunks, one per request."""
        for start in range(0, len(image), CHUNK_BYTES):
            chunk = image[start : start + CHUNK_BYTES]
            self._request(operation, chunk, offset=first + start, **fields)
            report_progress(operation, start + len(chunk), len(image))

    def _last_words(self, connection: Connection, error: DeviceError) -> str:
        """Return the board's last error before it closed the connection, or `error`'s text."""
        if isinstance(error, ConnectionLost):
            try:
                answer, _ = connection.receive(deadline=time.monotonic() + 0.1, max_payload=0)
                return str(answer["error"]["message"])
            except (DeviceError, KeyError, TypeError):
                pass
        return str(error)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _handle(self, buffer: DeviceBuffer, nbytes: int, offset: int = 0) -> int:
        if not isinstance(buffer, RemoteBuffer):
            raise arguments.foreign_buffer(buffer)
        if buffer.connection != self._connections or self._connection is None:
            raise BufferLost("the buffer was lost with its connection; load the program again")
        arguments.as_extent(buffer, nbytes, offset)
        return buffer.handle


def _image(data: Array) -> memoryview:
    flat = arguments.as_bytes(data)
    return memoryview(flat)  # type: ignore[arg-type]  # NumPy declares no buffer protocol


def _integers(answer: dict[str, Any], *names: str) -> tuple[int, ...]:
    values = tuple(answer.get(name) for name in names)
    if not all(type(value) is int for value in values):
        raise DeviceError(f"the board sent {values} for {', '.join(names)}; integers were expected")
    return values  # type: ignore[return-value]


def _raise_error(answer: dict[str, Any], address: str) -> None:
    error = answer.get("error")
    if error is None:
        return
    report = error if isinstance(error, dict) else {"message": error}
    raise error_of(report.get("kind"), f"{address}: {report.get('message')}")
