"""Clients of a board that log in, send any bytes, or requests that are nearly right."""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from trials.boards import ARRAYS, EXPECTED, OP, serving
from trials.bounds import bounded_memory
from vtaops import Session
from vtaops.runtime.remote import RemoteDevice
from vtaops.runtime.wire import PROTOCOL_VERSION, Connection, parse_address, proof

SECRET = b"a secret of more than sixteen bytes"


def raw(
    server, login: bytes | None = SECRET, timeout: float = 10.0, source: str = ""
) -> socket.socket:
    """Connect to a server, from an address `source`; log in unless `login` is None."""
    stream = socket.create_connection(parse_address(server.address), timeout, (source, 0))
    if login is not None:
        try:
            _log_in(Connection(stream), login, timeout)
        except BaseException:
            stream.close()
            raise
    return stream


def _log_in(connection: Connection, secret: bytes, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    hello, _ = connection.receive(deadline=deadline)
    nonce = "00" * 32
    answer = {"op": "login", "id": 0, "protocol": PROTOCOL_VERSION, "nonce": nonce}
    answer["proof"] = proof(secret, "client", hello["nonce"], nonce)
    connection.send(answer, deadline=deadline)
    connection.receive(deadline=deadline)


def message(text: bytes, payload: bytes = b"") -> bytes:
    """Return a message with any bytes in place of its JSON, and right checksums."""
    check = zlib.crc32(payload, zlib.crc32(text))
    preamble = struct.pack("<4sIII", b"VTB1", len(text), len(payload), check)
    return preamble + struct.pack("<I", zlib.crc32(preamble)) + text + payload


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
OPERATIONS = {
    "alloc": ["nbytes"],
    "free": ["buffer"],
    "write": ["buffer", "offset"],
    "read": ["buffer", "offset", "nbytes"],
    "launch": ["address", "count", "timeout", "pinned", "since"],
    "stats": [],
    "performance": [],
    "reset_stats": [],
    "info": [],
    "upload": [],
    "program": ["sha256", "fingerprint", "register_map"],
}
NUMBERS = st.sampled_from([-(1 << 70), -1, 0, 1, 2, 16, 4096, 1 << 20, 1 << 31, 1 << 32, 1 << 63])


@st.composite
def requests(draw):
    """Requests that are nearly right: operations with their fields, some of them wrong."""
    operation = draw(st.sampled_from(sorted(OPERATIONS)))
    fields = {"op": operation, "id": draw(st.integers(0, 1 << 40))}
    for name in OPERATIONS[operation]:
        special = {
            "timeout": st.floats(-1, 1),
            "sha256": st.text(max_size=64),
        }
        usual = special.get(name, NUMBERS)
        fields[name] = draw(usual if draw(st.integers(0, 9)) else JSON)
    if not draw(st.integers(0, 9)):
        fields[draw(st.text(max_size=6))] = draw(JSON)
    return fields, draw(st.binary(max_size=64))


def fuzz_requests(count: int, number: int = 0) -> None:
    """Send `count` requests to a board, which answers all; `number` selects which.

    Raises
    ------
    BaseException
        What went wrong: no answer within 10 s, one that says that the server failed, or too much
        memory.
    """
    with serving(secret=SECRET) as server:
        streams = [raw(server)]

        @seed(number)
        @settings(
            max_examples=count,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(requests())
        def each_is_answered(request):
            fields, payload = request
            stream = streams[0]
            data = message(json.dumps(fields).encode(), payload)
            with bounded_memory(len(data)):
                stream.sendall(data)
                answer, _ = Connection(stream).receive(deadline=time.monotonic() + 10)
            if "error" in answer:
                assert "the server failed" not in answer["error"]["message"], (fields, answer)

        each_is_answered()
        streams[0].close()
        with Session(RemoteDevice(server.address, secret=SECRET)) as session:
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
