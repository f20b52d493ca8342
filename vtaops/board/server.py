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
import math
import platform
import secrets
import socket
import socketserver
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from vtaops.base.errors import ConfigError, DeviceError, NoRoom, VTAError
from vtaops.base.temporary import TemporaryFolder
from vtaops.board.bitfile import MAX_BYTES, BitFile, check_part, parse_bit_file
from vtaops.board.faults import Fault, Faults, FaultyConnection
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.runtime.device import Closing, DeviceBuffer
from vtaops.runtime.wire import (
    CHUNK_BYTES,
    DEFAULT_PORT,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Connection,
    ConnectionLost,
    package_version,
    proof,
    proves,
)

_log = logging.getLogger("vtaops.board")

_LOGIN_HEADER_BYTES = 1024
_DRAIN_SECONDS = 1.0  # lets the sender of a malformed message read the reason


@dataclass(frozen=True)
class Limits:
    """Resource limits for clients.

    Attributes
    ----------
    sessions : int
        Maximum number of clients that are logged in.
    logins : int
        Maximum number of connections that are not logged in; one more ends the oldest.
    session_bytes, buffers : int
        Maximum memory and number of buffers of a session.
    cache_bytes : int
        Memory for programs and parameters that clients may reuse.
    launch_seconds : float
        Maximum duration of a run.
    login_seconds, message_seconds : float
        Maximum duration of a login, and of the rest of a message once it has begun.
    failure_seconds : float
        Time after a login with a wrong secret in which no other one from its address is judged.
    idle_seconds : float
        Idle time after which a client must leave if all sessions are in use and another client
        connects.
    """

    sessions: int = 8
    logins: int = 64
    session_bytes: int = 256 << 20
    buffers: int = 4096
    cache_bytes: int = 64 << 20
    launch_seconds: float = 600.0
    login_seconds: float = 5.0
    message_seconds: float = 30.0
    failure_seconds: float = 1.0
    idle_seconds: float = 600.0


class BlobCache:
    """An LRU cache of byte strings by SHA-256; thread-safe.

    Parameters
    ----------
    capacity : int
        Maximum number of bytes.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._used = 0

    def get(self, digest: str) -> bytes | None:
        """Return the bytes with this hash, if they are still cached."""
        with self._lock:
            blob = self._blobs.get(digest)
            if blob is not None:
                self._blobs.move_to_end(digest)
            return blob

    def put(self, digest: str, blob: bytes) -> None:
        """Cache bytes; the caller must have checked their hash."""
        with self._lock:
            if digest in self._blobs or len(blob) > self._capacity:
                return
            self._blobs[digest] = blob
            self._used += len(blob)
            while self._used > self._capacity:
                self._used -= len(self._blobs.popitem(last=False)[1])

    @property
    def used(self) -> int:
        """Number of cached bytes."""
        return self._used


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
    faults : Faults, optional
        Faults to inject, for tests.

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
        faults: Faults | None = None,
    ) -> None:
        if not secret and not is_loopback(host):
            raise DeviceError(
                f"listening on {host} needs a shared secret, because others can connect: give "
                f"--secret-file, or listen on 127.0.0.1"
            )
        self.accelerator = accelerator
        self.limits = limits or Limits()
        self.cache = BlobCache(self.limits.cache_bytes)
        self.faults = faults
        self.bitstream: dict[str, str] | None = None
        """Hash, part and date of the bitstream programmed through this server."""
        self._secret = secret
        self._folder = TemporaryFolder()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # logins, or whose turn it is
        self._logins: dict[Connection, None] = {}  # in the order in which they began
        self._turns: dict[str, float] = {}  # when the next login of an address is judged
        # Start of its idle time; infinity if it is not idle.
        self._open: dict[Connection, float] = {}
        self._thread: threading.Thread | None = None
        try:
            self._listener = _Listener(self, host, port)
        except OSError as error:
            self._folder.close()
            raise DeviceError(f"cannot listen on {host}:{port}: {error}") from error

    @property
    def address(self) -> str:
        """Address for clients: ``pynq://host:port``."""
        host, port = self._listener.server_address[:2]
        return f"pynq://{host!s}:{port}"

    @property
    def sessions(self) -> int:
        """Number of clients that are logged in."""
        return len(self._open)

    def serve_forever(self) -> None:
        """Serve until `close` is called from another thread, or the process is interrupted."""
        self._listener.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        """End all sessions and stop; calling it again does nothing."""
        if self._thread is not None:
            self._listener.shutdown()
            self._thread.join()
            self._thread = None
        self.accelerator.close()
        with self._changed:
            for connection in (*self._open, *self._logins):
                connection.shutdown()
            self._logins.clear()
            self._changed.notify_all()
        self._listener.server_close()  # waits for the session threads
        self._folder.close()

    def __enter__(self) -> BoardServer:
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()
        return self

    # ------------------------------------------------------------------------ sessions

    def serve(self, stream: socket.socket, host: str, port: int) -> None:
        """Serve one connection until it ends; its errors do not affect the others.

        Parameters
        ----------
        stream : socket.socket
            The connection.
        host, port : str, int
            Address of the client.
        """
        connection = Connection(stream)
        if self.faults is not None:
            connection = FaultyConnection(stream, self.faults)
        with self._lock:
            self._logins[connection] = None
            if len(self._logins) > self.limits.logins:
                oldest = next(iter(self._logins))
                del self._logins[oldest]
                oldest.shutdown()
                self._changed.notify_all()
        try:
            if reason := self._login(connection, _network(host)):
                _log.warning("%s:%d refused: %s", host, port, reason)
            else:
                _log.info("%s:%d logged in", host, port)
                with PynqDevice(self.accelerator) as device:
                    ClientHandler(self, connection, device).serve()
        except DeviceError as error:
            _log.info("%s:%d ended: %s", host, port, error)
        except Exception:
            _log.exception("%s:%d failed", host, port)
        finally:
            with self._lock:
                self._logins.pop(connection, None)
                self._open.pop(connection, None)
            connection.close()

    def _admit(self, connection: Connection) -> bool:
        """Admit a logged-in client if a session is free or an idle client can be dismissed."""
        idlest = None
        with self._lock:
            self._logins.pop(connection, None)
            if len(self._open) >= self.limits.sessions:
                idlest = min(self._open, key=lambda open: self._open[open])
                if self._open[idlest] > time.monotonic() - self.limits.idle_seconds:
                    return False
                del self._open[idlest]
            self._open[connection] = time.monotonic()
        if idlest is not None:
            self._dismiss(idlest)
        return True

    def _dismiss(self, connection: Connection) -> None:
        """End the session of an idle client."""
        error = DeviceError(
            f"the board ended this session, because it was idle for {self.limits.idle_seconds:g} s "
            "and another client needed its place"
        )
        with suppress(DeviceError):
            connection.send({"id": 0, "error": _error(error)}, deadline=time.monotonic() + 1)
        connection.shutdown()

    @contextmanager
    def idle(self, connection: Connection) -> Iterator[None]:
        """Track a client's idle time."""
        self._set_idle_since(connection, time.monotonic())
        yield
        self._set_idle_since(connection, math.inf)

    def _set_idle_since(self, connection: Connection, moment: float) -> None:
        with self._lock:
            if connection in self._open:
                self._open[connection] = moment

    def _login(self, connection: Connection, network: str) -> str:
        """Log a client in; return why it was refused, if it was."""
        deadline = time.monotonic() + self.limits.login_seconds
        nonce = secrets.token_hex(NONCE_BYTES)
        hello = {"protocol": PROTOCOL_VERSION, "vtaops": package_version(), "nonce": nonce}
        connection.send({**hello, "secret": bool(self._secret)}, deadline=deadline)
        try:
            login, _ = connection.receive(
                deadline=deadline, max_payload=0, max_header=_LOGIN_HEADER_BYTES
            )
        except ConnectionLost as error:
            self._refuse(connection, str(error))
            connection.drain(_DRAIN_SECONDS)
            raise
        nonces = nonce, str(login.get("nonce"))
        reason = ""
        if login.get("op") != "login" or login.get("protocol") != PROTOCOL_VERSION:
            reason = f"this board speaks protocol {PROTOCOL_VERSION}"
        elif not self._take_turn(connection, network, deadline):
            reason = "too many logins with a wrong secret came from this address: try again later"
        elif not proves(login.get("proof"), self._secret, "client", *nonces):
            reason = "the shared secret is wrong"
        else:
            self._end_turn(network)
            if not self._admit(connection):
                reason = f"all {self.limits.sessions} sessions are in use"
        if reason:
            self._refuse(connection, reason)
            return reason
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
        return ""

    def _take_turn(self, connection: Connection, network: str, deadline: float) -> bool:
        """Wait until a login of a network may be judged; return whether that is in time.

        The turn ends by `_end_turn`, or after `failure_seconds`. So a secret cannot be guessed
        faster by many connections, or by leaving before the answer; and who knows the secret
        waits for nobody at another address.
        """
        with self._changed:
            while connection in self._logins:
                now = time.monotonic()
                wait = self._turns.get(network, now) - now
                if wait <= 0:
                    waiting = {key: end for key, end in self._turns.items() if end > now}
                    self._turns = {**waiting, network: now + self.limits.failure_seconds}
                    return True
                if now >= deadline:
                    return False
                self._changed.wait(min(wait, deadline - now))
        return False

    def _end_turn(self, network: str) -> None:
        with self._changed:
            self._turns.pop(network, None)
            self._changed.notify_all()

    def _refuse(self, connection: Connection, reason: str) -> None:
        deadline = time.monotonic() + self.limits.login_seconds
        connection.send({"id": 0, "error": _error(DeviceError(reason))}, deadline=deadline)

    def program(self, content: bytes) -> None:
        """Program the logic with the bytes of a ``.bit`` file after checking them.

        Raises
        ------
        DeviceError
            If they are not a bitstream for this board, or the board refuses them.
        """
        bit_file: BitFile = parse_bit_file(content)
        check_part(bit_file, self.accelerator.config.board.device)
        digest = hashlib.sha256(content).hexdigest()
        path = self._folder.path / f"{digest}.bit"  # the name does not come from the client
        path.write_bytes(content)
        self.bitstream = None
        self.accelerator.program(path)
        self.bitstream = {"sha256": digest, "part": bit_file.part, "date": bit_file.date}


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    block_on_close = True
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


def _network(host: str) -> str:
    """Return what one client surely owns: an address of IPv4, or 2^64 addresses of IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return host
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.IPv6Network((address, 64), strict=False))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -------------------------------------------------------------------------------- session

_Answer = dict[str, Any] | bytes | None  # fields, or a payload
_NOTHING = 0, "", 0  # the buffer, hash and size of what the next writes bring


class ClientHandler:
    """Handle the messages of one client.

    Parameters
    ----------
    server : BoardServer
        Server that owns this session.
    connection : Connection
        Connection to the client, which is logged in.
    device : PynqDevice
        The client's view of the accelerator.
    """

    def __init__(self, server: BoardServer, connection: Connection, device: PynqDevice) -> None:
        self._server = server
        self._connection = connection
        self._operations = Operations(server, device)

    def serve(self) -> None:
        """Answer requests until the client disconnects.

        Raises
        ------
        DeviceError
            If the connection ends in another way.
        """
        while True:
            try:
                with self._server.idle(self._connection):
                    header, payload = self._connection.receive(
                        deadline=math.inf, rest_within=self._server.limits.message_seconds
                    )
            except ConnectionLost as error:
                self._answer({"id": 0, "error": _error(error), "last": True})
                self._connection.drain(_DRAIN_SECONDS)
                raise
            self._serve_one(header, payload)

    def _serve_one(self, header: dict[str, Any], payload: bytes) -> None:
        number = header.get("id")
        if type(number) is not int:
            error = DeviceError(f"the id of a request is {_short(number)}; it must be an integer")
            self._answer({"id": 0, "error": _error(error)})
            return
        try:
            answer, data = self._execute(header, payload)
        except VTAError as error:
            self._answer({"id": number, "error": _error(error)})
        except Exception as error:
            failure = DeviceError(f"the server failed: {type(error).__name__}: {error}")
            self._answer({"id": number, "error": _error(failure), "last": True})
            raise
        else:
            self._answer({"id": number, **answer}, data)

    def _execute(self, header: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        faults = self._server.faults
        if faults is not None and faults.take(Fault.CRASH):
            raise RuntimeError("a crash was injected")
        operation = str(header.get("op"))
        types = _field_types().get(operation)
        if types is None:
            raise DeviceError(f"unknown operation {_short(operation)}")
        fields = {name: value for name, value in header.items() if name not in ("op", "id")}
        if "payload" in types:
            fields = {"payload": payload, **fields}  # a field of that name has the wrong type
        elif payload:
            raise DeviceError(f"{operation} takes no payload; it got {len(payload)} bytes")
        _check_fields(operation, fields, types)
        answer: _Answer = getattr(self._operations, operation)(**fields)
        return ({}, answer) if isinstance(answer, bytes) else (answer or {}, b"")

    def _answer(self, header: dict[str, Any], payload: bytes = b"") -> None:
        deadline = time.monotonic() + self._server.limits.message_seconds
        self._connection.send(header, payload, deadline=deadline)


class Operations:
    """Operations of one client: each public method is an operation, its parameters are the fields.

    The parameter ``payload`` takes the bytes after the fields; operations without it accept none.
    An operation returns fields, bytes or nothing.

    Parameters
    ----------
    server : BoardServer
        Server that owns this session.
    device : PynqDevice
        The client's own view of the accelerator.
    """

    def __init__(self, server: BoardServer, device: PynqDevice) -> None:
        self._server = server
        self._device = device
        self._buffers: dict[int, DeviceBuffer] = {}
        self._next_handle = 1
        self._used = 0
        self._uploaded = bytearray()
        self._awaited = _NOTHING

    def alloc(self, nbytes: int) -> _Answer:
        limits = self._server.limits
        if not 0 < nbytes <= limits.session_bytes - self._used:
            raise NoRoom(
                f"cannot allocate {_short(nbytes)} bytes: the session uses {self._used} of "
                f"{limits.session_bytes}"
            )
        if len(self._buffers) >= limits.buffers:
            raise NoRoom(f"the session has {limits.buffers} buffers; that is the limit")
        buffer = self._device.alloc(nbytes)
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._buffers[handle] = buffer
        self._used += nbytes
        return {"buffer": handle, "address": buffer.address}

    def free(self, buffer: int) -> None:
        block = self._buffer(buffer)
        del self._buffers[buffer]
        self._used -= block.nbytes
        self._device.free(block)

    def write(self, payload: bytes, buffer: int, offset: int) -> None:
        block = self._buffer(buffer)
        self._device.write_at(block, offset, np.frombuffer(payload, np.uint8))
        handle, sha256, nbytes = self._awaited
        if (buffer, offset + len(payload)) == (handle, nbytes):
            self._awaited = _NOTHING
            blob = self._device.read(block, nbytes).tobytes()
            _check_hash(blob, sha256)
            self._server.cache.put(sha256, blob)

    def read(self, buffer: int, offset: int, nbytes: int) -> _Answer:
        if not 0 <= nbytes <= CHUNK_BYTES:
            raise DeviceError(f"cannot send {_short(nbytes)} bytes; at most {CHUNK_BYTES} at once")
        return self._device.read_at(self._buffer(buffer), offset, nbytes).tobytes()

    def fill(self, buffer: int, sha256: str, nbytes: int) -> _Answer:
        """Write the bytes with a hash; if they are unknown, the next writes bring them."""
        block = self._buffer(buffer)
        blob = self._server.cache.get(sha256)
        if blob is None or len(blob) != nbytes:
            self._awaited = buffer, sha256, nbytes
            return {"found": False}
        self._device.write(block, np.frombuffer(blob, np.uint8))
        return {"found": True}

    def launch(self, address: int, count: int, timeout: float, pinned: int, since: int) -> _Answer:
        limit = self._server.limits.launch_seconds
        if not 0 < timeout <= limit:
            raise DeviceError(f"timeout is {timeout} s; it must be positive and at most {limit}")
        number = self._device.relaunch(address, count, timeout, pinned=pinned, since=since)
        return {"number": number}

    def stats(self) -> _Answer:
        return dict(self._device.stats().as_dict())

    def performance(self) -> _Answer:
        return dict(self._device.performance().as_dict())

    def reset_stats(self) -> None:
        self._device.reset_stats()

    def info(self) -> _Answer:
        server, accelerator = self._server, self._server.accelerator
        package = accelerator.interface
        name = getattr(package, "__name__", type(package).__name__)
        return {
            "target": accelerator.config.target,
            "part": accelerator.config.board.device,
            "config": accelerator.config.to_dict(),
            "fingerprint": accelerator.config.fingerprint,
            "register_map": accelerator.register_map.value,
            "capabilities": asdict(accelerator.capabilities),
            "programmed": accelerator.programmed,
            "bitstream": server.bitstream,
            "registers": accelerator.registers(),
            "sessions": server.sessions,
            "session_bytes": self._used,
            "cache_bytes": server.cache.used,
            "limits": asdict(server.limits),
            "interface": f"{name} {getattr(package, '__version__', '')}".strip(),
            "vtaops": package_version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
        }

    def upload(self, payload: bytes, offset: int, total: int) -> None:
        if offset == 0:
            self._uploaded = bytearray()
        if offset != len(self._uploaded) or not offset + len(payload) <= total <= MAX_BYTES:
            raise DeviceError(
                f"{len(payload)} bytes at {_short(offset)} of {_short(total)} do not follow the "
                f"{len(self._uploaded)} received so far, or exceed {MAX_BYTES}"
            )
        self._uploaded += payload

    def program(self, sha256: str, fingerprint: str, register_map: str) -> None:
        content, self._uploaded = bytes(self._uploaded), bytearray()
        _check_hash(content, sha256)
        accelerator = self._server.accelerator
        if fingerprint != accelerator.config.fingerprint:
            raise ConfigError(
                f"the bitstream has configuration {_short(fingerprint)}; this server was started "
                f"for {accelerator.config.bitstream_id} ({accelerator.config.fingerprint})"
            )
        if register_map != accelerator.register_map.value:
            raise ConfigError(
                f"the bitstream has registers {_short(register_map)}; this server was started for "
                f"{accelerator.register_map.value}"
            )
        self._server.program(content)

    def _buffer(self, handle: int) -> DeviceBuffer:
        if handle not in self._buffers:
            raise DeviceError(f"this session has no buffer {_short(handle)}")
        return self._buffers[handle]


@cache
def _field_types() -> dict[str, dict[str, type]]:
    """Return the types of the fields of each operation."""
    types_of = {
        name: get_type_hints(method)
        for name, method in vars(Operations).items()
        if not name.startswith("_")
    }
    for types in types_of.values():
        del types["return"]
    return types_of


def _check_fields(operation: str, fields: dict[str, Any], types: dict[str, type]) -> None:
    if fields.keys() != types.keys():
        raise DeviceError(f"{operation} takes the fields {sorted(types)}; see {_short(fields)}")
    for name, kind in types.items():
        if type(fields[name]) is not kind:
            raise DeviceError(
                f"{name} of {operation} is {_short(fields[name])}; it must be {kind.__name__}"
            )


def _check_hash(content: bytes, sha256: str) -> None:
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DeviceError("the received data have another hash: the transfer was corrupted")


def _error(error: VTAError) -> dict[str, str]:
    return {"kind": type(error).__name__, "message": str(error)}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
