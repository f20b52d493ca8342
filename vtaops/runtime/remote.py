"""RemoteDevice: a board behind the `Device` protocol, over the network.

The server is ``python -m vtaops.board serve``; `vtaops.runtime.wire` describes the messages.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vtaops.base.errors import ConfigError, DeviceError, DeviceTimeout
from vtaops.base.forks import ForkLock
from vtaops.base.progress import report_progress
from vtaops.base.shapes import Array, Bytes
from vtaops.hardware.performance import TsimPerformance
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import DRAM_BYTES, HardwareConfig
from vtaops.program.statistics import Statistics
from vtaops.runtime import arguments
from vtaops.runtime.device import ConfiguredDevice, DeviceBuffer, check_config
from vtaops.runtime.pages import Block, Blocks
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

_PROGRAM_SECONDS = 60.0

_Counters = TypeVar("_Counters", Statistics, TsimPerformance)


class RemoteDevice(ConfiguredDevice):
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
        self._requests = 0
        self._closed = False
        self._blocks = Blocks()
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
        with self._lock:
            (address,) = self._numbers("alloc", "buffer", nbytes=nbytes)
            if not 0 <= address <= DRAM_BYTES - nbytes:
                raise DeviceError(f"the board sent address {address}; addresses have 32 bits")
            return self._blocks.add(Block(address, nbytes))

    def free(self, buffer: DeviceBuffer) -> None:
        with self._lock:
            block = self._blocks.remove(buffer)
            if block.generation == self._blocks.generation and self._connection is not None:
                self._request("free", buffer=block.address)

    def write(self, buffer: DeviceBuffer, data: Array) -> None:
        self.write_at(buffer, 0, data)

    def write_at(self, buffer: DeviceBuffer, offset: int, data: Array) -> None:
        """Copy the bytes of an array to a byte offset of a buffer."""
        image = arguments.as_bytes(data)
        with self._lock:
            address = self._own(buffer, image.size, offset)
            for start, chunk in _chunks("write", image.size):
                place = {"buffer": address, "offset": offset + start}
                self._request("write", image[chunk].tobytes(), **place)

    def read(self, buffer: DeviceBuffer, nbytes: int) -> Bytes:
        with self._lock:
            address = self._own(buffer, nbytes)
            image = np.empty(nbytes, np.uint8)
            for start, chunk in _chunks("read", nbytes):
                size = image[chunk].size
                _, part = self._request("read", buffer=address, offset=start, nbytes=size)
                if len(part) != size:
                    self._drop()
                    raise DeviceError(f"the board sent {len(part)} bytes; {size} were asked for")
                image[chunk] = np.frombuffer(part, np.uint8)
            return image

    def _own(self, buffer: DeviceBuffer, nbytes: int, offset: int = 0) -> int:
        """Return the address of a buffer; a lost connection has lost it."""
        if self._connection is None and not self._closed:
            self._reconnect()
        return self._blocks.own(buffer, nbytes, offset).address

    # -------------------------------------------------------------------------- runs

    def _launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> int:
        (number,) = self._numbers(
            "launch",
            "number",
            seconds=timeout + self._timeout,
            address=address,
            count=count,
            timeout=timeout,
            pinned=pinned,
            since=since,
        )
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
        names = [field.name for field in fields(kind)]
        return kind(**dict(zip(names, self._numbers(operation, *names), strict=True)))

    def reset_stats(self) -> None:
        self._request("reset_stats")

    # ---------------------------------------------------------------- beyond the protocol

    def info(self) -> dict[str, Any]:
        """Return the board's description: versions, bitstream, registers, memory."""
        answer, _ = self._request("info")
        return {name: value for name, value in answer.items() if name != "id"}

    def program(self, bitstream: bytes, register_map: str) -> None:
        """Program the logic of the board.

        Parameters
        ----------
        bitstream : bytes
            A ``.bit`` file.
        register_map : str
            Its design: "hls" or "rtl".

        Raises
        ------
        DeviceError
            If the bitstream is corrupted or for another part, or the board refuses it.
        ConfigError
            If the board serves another configuration or register map.
        """
        with self._lock:
            for _, chunk in _chunks("upload", len(bitstream)):
                self._request("upload", bitstream[chunk])
            self._request(
                "program",
                seconds=_PROGRAM_SECONDS,
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
        self._blocks.generation += 1
        try:
            return self._login(self._connection, deadline)
        except BaseException as error:
            self._drop()
            if isinstance(error, DeviceTimeout | ConnectionLost):
                raise type(error)(f"{self.address}, login: {error}") from error
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

    def _reconnect(self) -> Connection:
        if self._closed:
            raise DeviceError("this device is closed; open a new one")
        if self._connection is None:
            self._config = self._connect()
        assert self._connection is not None
        return self._connection

    def _request(
        self,
        operation: str,
        payload: bytes = b"",
        *,
        seconds: float | None = None,
        **fields: Any,
    ) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            connection = self._reconnect()
            self._requests += 1
            header = {"op": operation, "id": self._requests, **fields}
            deadline = time.monotonic() + (self._timeout if seconds is None else seconds)
            try:
                connection.send(header, payload, deadline=deadline)
                answer, data = connection.receive(deadline=deadline)
            except (DeviceTimeout, ConnectionLost) as error:
                self._drop()
                raise type(error)(f"{self.address}, {operation}: {error}") from error
            except BaseException:
                self._drop()  # a message may be incomplete
                raise
            if answer.get("id") != self._requests:  # the board's last words
                self._drop()
                _raise_error(answer, self.address)
                raise ConnectionLost(f"{self.address} answered another request")
            _raise_error(answer, self.address)
            self.sent_bytes += len(payload)
            self.received_bytes += len(data)
            return answer, data

    def _numbers(self, operation: str, *names: str, **fields: Any) -> tuple[int, ...]:
        """Return the integers that answer a request."""
        answer, _ = self._request(operation, **fields)
        values = tuple(answer.get(name) for name in names)
        if not all(type(value) is int for value in values):
            raise DeviceError(
                f"the board sent {values} for {', '.join(names)}; integers were expected"
            )
        return values  # type: ignore[return-value]

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _chunks(work: str, nbytes: int) -> Iterator[tuple[int, slice]]:
    """Yield the start and the place of each part of a transfer, and report its progress."""
    for start in range(0, nbytes, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, nbytes)
        yield start, slice(start, end)
        report_progress(work, end, nbytes)


def _raise_error(answer: dict[str, Any], address: str) -> None:
    error = answer.get("error")
    if error is None:
        return
    report = error if isinstance(error, dict) else {"message": error}
    raise error_of(report.get("kind"), f"{address}: {report.get('message')}")
