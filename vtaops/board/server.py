"""BoardServer: serve the VTA of a board to clients, with one session per connection.

A session owns its buffers, which are freed when it ends for whatever reason. All data from a client
are checked for size, type and range before they have any effect, and never become a path on the
board. `vtaops.runtime.wire` describes the messages.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import platform
import secrets
import socket
import socketserver
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import numpy as np

from vtaops.base.errors import (
    BufferLost,
    ConfigError,
    DeviceError,
    DeviceTimeout,
    NoRoom,
    VTAError,
    raising,
)
from vtaops.base.temporary import TemporaryFolder
from vtaops.board.bitfile import MAX_BYTES, check_part, parse_bit_file
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.runtime.device import Closing, DeviceBuffer
from vtaops.runtime.wire import (
    CHUNK_BYTES,
    DEFAULT_PORT,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Connection,
    package_version,
    proof,
    proves,
)

_log = logging.getLogger("vtaops.board")

_LOGIN_HEADER_BYTES = 1024


@dataclass(frozen=True)
class Limits:
    """Resource limits for clients.

    Attributes
    ----------
    sessions : int
        Maximum number of clients that are logged in.
    logins : int
        Maximum number of connections that are not logged in; one more ends the oldest.
    session_bytes : int
        Maximum memory of a session.
    launch_seconds : float
        Maximum duration of a run.
    login_seconds, answer_seconds : float
        Maximum duration of a login, and of sending an answer.
    failure_seconds : float
        Time after which a login with a wrong secret is answered.
    idle_seconds : float
        Time without a request after which a session ends.
    """

    sessions: int = 8
    logins: int = 64
    session_bytes: int = 256 << 20
    launch_seconds: float = 600.0
    login_seconds: float = 5.0
    answer_seconds: float = 30.0
    failure_seconds: float = 1.0
    idle_seconds: float = 3600.0


class BoardServer(Closing):
    """Serve one accelerator.

    Use it as a context manager, which serves in threads, or call `serve_forever`.

    Parameters
    ----------
    accelerator : Accelerator
        The hardware.
    host, port : str, int
        Address to listen on; port 0 picks any free port.
    secret : bytes
        The shared secret; it may be empty only if no other machine can connect.
    limits : Limits
        Resource limits of clients.

    Raises
    ------
    DeviceError
        If an address that others can reach has no secret, or the port is in use.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        secret: bytes = b"",
        limits: Limits | None = None,
    ) -> None:
        if not secret and not is_loopback(host):
            raise DeviceError(
                f"listening on {host} needs a shared secret, because others can connect: give "
                f"--secret-file, or listen on 127.0.0.1"
            )
        self.accelerator = accelerator
        self.limits = limits or Limits()
        self.bitstream: dict[str, str] | None = None
        """Hash, part and date of the bitstream programmed through this server."""
        self._secret = secret
        self._lock = threading.Lock()
        self._logins: dict[Connection, None] = {}  # in the order in which they began
        self._open: set[Connection] = set()
        self._thread: threading.Thread | None = None
        with raising(DeviceError, f"cannot listen on {host}:{port}", OSError):
            self._listener = _Listener(self, host, port)
        self._folder = TemporaryFolder()

    @property
    def address(self) -> str:
        """Address for clients: ``pynq://host:port``."""
        host, port = self._listener.server_address[:2]
        return f"pynq://{host!s}:{port}"

    @property
    def sessions(self) -> int:
        """Number of clients that are logged in."""
        return len(self._open)

    def close(self) -> None:
        """End all sessions and stop; calling it again does nothing."""
        if self._thread is not None:
            self._listener.shutdown()
            self._thread.join()
            self._thread = None
        self.accelerator.close()
        with self._lock:
            for connection in (*self._open, *self._logins):
                connection.shutdown()
        self._listener.server_close()  # waits for the session threads
        self._folder.close()

    def __enter__(self) -> BoardServer:
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        return self

    # ------------------------------------------------------------------------ sessions

    def connection(self, stream: socket.socket) -> Connection:
        """Return the messages of a client."""
        return Connection(stream)

    def serve(self, stream: socket.socket, host: str, port: int) -> None:
        """Serve one connection until it ends; its errors do not affect the others.

        Parameters
        ----------
        stream : socket.socket
            The connection.
        host, port : str, int
            Address of the client.
        """
        connection = self.connection(stream)
        with self._lock:
            self._logins[connection] = None
            if len(self._logins) > self.limits.logins:
                oldest = next(iter(self._logins))
                del self._logins[oldest]
                oldest.shutdown()
        try:
            self._login(connection)
            _log.info("%s:%d logged in", host, port)
            with PynqDevice(self.accelerator) as device:
                _Session(self, connection, device)._serve()
        except DeviceError as error:
            _log.info("%s:%d ended: %s", host, port, error)
            reason = error
        except Exception as error:
            _log.exception("%s:%d failed", host, port)
            reason = DeviceError(f"the server failed: {type(error).__name__}: {error}")
        with self._lock:
            self._logins.pop(connection, None)
            self._open.discard(connection)
        with suppress(DeviceError):  # that is why it ended
            connection.send({"id": 0, "error": _error(reason)}, deadline=time.monotonic() + 1)
        connection.close()

    def _login(self, connection: Connection) -> None:
        """Log a client in, or raise the reason against it."""
        deadline = time.monotonic() + self.limits.login_seconds
        nonce = secrets.token_hex(NONCE_BYTES)
        hello = {"protocol": PROTOCOL_VERSION, "vtaops": package_version(), "nonce": nonce}
        connection.send({**hello, "secret": bool(self._secret)}, deadline=deadline)
        login, _ = connection.receive(
            deadline=deadline, max_payload=0, max_header=_LOGIN_HEADER_BYTES
        )
        nonces = nonce, str(login.get("nonce"))
        if login.get("op") != "login" or login.get("protocol") != PROTOCOL_VERSION:
            raise DeviceError(f"this board speaks protocol {PROTOCOL_VERSION}")
        if not proves(login.get("proof"), self._secret, "client", *nonces):
            time.sleep(self.limits.failure_seconds)
            raise DeviceError("the shared secret is wrong")
        with self._lock:
            self._logins.pop(connection, None)
            if len(self._open) >= self.limits.sessions:
                raise DeviceError(f"all {self.limits.sessions} sessions are in use")
            self._open.add(connection)
        config = self.accelerator.config
        answer = {
            "id": 0,
            "proof": proof(self._secret, "server", *nonces),
            "config": config.to_dict(),
            "config_name": config.name,
            "fingerprint": config.fingerprint,
            "capabilities": asdict(self.accelerator.capabilities),
        }
        connection.send(answer, deadline=deadline)

    def program(self, content: bytes) -> None:
        """Program the logic with the bytes of a ``.bit`` file after checking them.

        Raises
        ------
        DeviceError
            If they are not a bitstream for this board, or the board refuses them.
        """
        bit_file = parse_bit_file(content)
        check_part(bit_file, self.accelerator.config.board.device)
        digest = hashlib.sha256(content).hexdigest()
        path = self._folder.path / f"{digest}.bit"  # the name does not come from the client
        path.write_bytes(content)
        self.bitstream = None
        self.accelerator.program(path)
        self.bitstream = {"sha256": digest, "part": bit_file.part, "date": bit_file.date}


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, server: BoardServer, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), socketserver.BaseRequestHandler)
        self._server = server

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._server.serve(request, *client_address[:2])

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.exception("%s:%d failed", *client_address[:2])


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -------------------------------------------------------------------------------- session

_Answer = dict[str, Any] | bytes | None  # fields, or a payload


class _Session:
    """Answer the requests of one client, which is logged in.

    Each public method is an operation; its parameters are the fields of the request, and `payload`
    takes the bytes after them. It returns fields, bytes or nothing.
    """

    def __init__(self, server: BoardServer, connection: Connection, device: PynqDevice) -> None:
        self._server, self._connection, self._device = server, connection, device
        self._buffers: dict[int, DeviceBuffer] = {}
        self._uploaded = bytearray()

    def _serve(self) -> None:
        """Answer requests until the connection ends, which is a `DeviceError`."""
        limits = self._server.limits
        while True:
            try:
                header, payload = self._connection.receive(
                    deadline=time.monotonic() + limits.idle_seconds
                )
            except DeviceTimeout:
                raise BufferLost(
                    f"the board ended this session, because no request came in "
                    f"{limits.idle_seconds:g} s"
                ) from None
            number = header.get("id")
            try:
                if type(number) is not int:
                    number = 0
                    raise DeviceError("the id of a request must be an integer")
                answer, data = self._execute(header, payload)
            except VTAError as error:
                answer, data = {"error": _error(error)}, b""
            deadline = time.monotonic() + limits.answer_seconds
            self._connection.send({"id": number, **answer}, data, deadline=deadline)

    def _execute(self, header: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        operation = str(header.get("op"))
        types = _OPERATIONS.get(operation)
        if types is None:
            raise DeviceError(f"unknown operation {operation!r:.80}")
        fields = dict(header)
        del fields["op"], fields["id"]
        if "payload" in types:
            fields = {"payload": payload, **fields}  # a field of that name has the wrong type
        elif payload:
            raise DeviceError(f"{operation} takes no payload; it got {len(payload)} bytes")
        if {name: type(value) for name, value in fields.items()} != types:
            wanted = ", ".join(f"{name}: {kind.__name__}" for name, kind in types.items())
            raise DeviceError(f"{operation} takes the fields {wanted}; see {fields!r:.80}")
        answer: _Answer = getattr(self, operation)(**fields)
        return ({}, answer) if isinstance(answer, bytes) else (answer or {}, b"")

    def alloc(self, nbytes: int) -> _Answer:
        used = sum(buffer.nbytes for buffer in self._buffers.values())
        most = self._server.limits.session_bytes
        if not 0 < nbytes <= most - used:
            raise NoRoom(f"cannot allocate {nbytes!r:.80} bytes: the session uses {used} of {most}")
        buffer = self._device.alloc(nbytes)
        self._buffers[buffer.address] = buffer
        return {"buffer": buffer.address}

    def free(self, buffer: int) -> None:
        self._device.free(self._buffer(buffer))
        del self._buffers[buffer]

    def write(self, payload: bytes, buffer: int, offset: int) -> None:
        self._device.write_at(self._buffer(buffer), offset, np.frombuffer(payload, np.uint8))

    def read(self, buffer: int, offset: int, nbytes: int) -> _Answer:
        if not 0 <= nbytes <= CHUNK_BYTES:
            raise DeviceError(f"cannot send {nbytes!r:.80} bytes; at most {CHUNK_BYTES} at once")
        return self._device.read(self._buffer(buffer), nbytes, offset).tobytes()

    def launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> _Answer:
        limit = self._server.limits.launch_seconds
        if timeout > limit:
            raise DeviceError(f"timeout is {timeout} s; it must be at most {limit}")
        number = self._device.relaunch(address, count, timeout, pinned=pinned, since=since)
        return {"number": number}

    def stats(self) -> _Answer:
        return self._device.stats().as_dict()

    def performance(self) -> _Answer:
        return self._device.performance().as_dict()

    def reset_stats(self) -> None:
        self._device.reset_stats()

    def info(self) -> _Answer:
        server, accelerator = self._server, self._server.accelerator
        package = accelerator.interface
        name = getattr(package, "__name__", type(package).__name__)
        return {
            "target": accelerator.config.target,
            "part": accelerator.config.board.device,
            "config": accelerator.config.bitstream_id,
            "fingerprint": accelerator.config.fingerprint,
            "register_map": accelerator.register_map.value,
            "programmed": accelerator.programmed,
            "bitstream": server.bitstream,
            "registers": accelerator.registers(),
            "sessions": server.sessions,
            "interface": f"{name} {getattr(package, '__version__', '')}".strip(),
            "vtaops": package_version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
        }

    def upload(self, payload: bytes) -> None:
        """Take the next bytes of a bitstream, up to the next `program`."""
        if len(self._uploaded) + len(payload) > MAX_BYTES:
            raise DeviceError(f"the bitstream has more than {MAX_BYTES} bytes")
        self._uploaded += payload

    def program(self, sha256: str, fingerprint: str, register_map: str) -> None:
        content, self._uploaded = bytes(self._uploaded), bytearray()
        accelerator = self._server.accelerator
        if hashlib.sha256(content).hexdigest() != sha256:
            raise DeviceError("the bitstream has another hash: the transfer was corrupted")
        served = accelerator.config.fingerprint, accelerator.register_map.value
        if (fingerprint, register_map) != served:
            raise ConfigError(
                f"the bitstream has configuration {fingerprint!r:.80} and registers "
                f"{register_map!r:.80}; this server was started for {served[0]} "
                f"({accelerator.config.bitstream_id}) and {served[1]}"
            )
        self._server.program(content)

    def _buffer(self, address: int) -> DeviceBuffer:
        if address not in self._buffers:
            raise DeviceError(f"this session has no buffer {address!r:.80}")
        return self._buffers[address]


_OPERATIONS = {
    name: {field: kind for field, kind in get_type_hints(method).items() if field != "return"}
    for name, method in vars(_Session).items()
    if not name.startswith("_")
}
"""The types of the fields of each operation."""


def _error(error: VTAError) -> dict[str, str]:
    return {"kind": type(error).__name__, "message": str(error)}
