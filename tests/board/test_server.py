"""The server of a board and its client, over loopback."""

import dataclasses
import hashlib
import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import pytest
from helpers.processes import spawned, until
from helpers.tsim_support import needs_tools
from hypothesis import given
from hypothesis import strategies as st

import vtaops
from trials.boards import ARRAYS, CONFIG, EXPECTED, OP, bit_file, serving
from trials.faults import Fault
from vtaops import Session
from vtaops.base.errors import BufferLost, UnsupportedError
from vtaops.base.progress import progress_listener
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.board.server import BoardServer, Limits
from vtaops.errors import ConfigError, DeviceError, DeviceTimeout
from vtaops.graph import Convolution, Graph, Pad, Requantization
from vtaops.hardware.registers import RegisterMap
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.device import performance_of
from vtaops.runtime.remote import RemoteDevice
from vtaops.runtime.wire import (
    CHUNK_BYTES,
    MAX_HEADER_BYTES,
    PROTOCOL_VERSION,
    Connection,
    ConnectionLost,
    encode,
    parse_address,
    proof,
    proves,
    read_secret,
)

SECRET = b"a secret of more than sixteen bytes"
SOON = 0.3  # seconds; timeouts that must happen
AGAIN = {"pinned": 0, "since": -1}


def small_network() -> Graph:
    graph = Graph("small")
    x = graph.input("x", (1, 16, 4, 4))
    for _ in range(2):
        weight, bias = np.ones((16, 16, 3, 3), np.int8), np.zeros(16, np.int32)
        x = graph.add(Convolution(weight, bias, Requantization(shift=5)), x)
        x = graph.add(Pad((1, 1, 1, 1)), x)
    graph.output(x)
    return graph


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def no_secret_in_the_environment(monkeypatch):
    monkeypatch.delenv("VTAOPS_BOARD_SECRET", raising=False)
    monkeypatch.delenv("VTAOPS_BOARD_SECRET_FILE", raising=False)


# ------------------------------------------------------------------------------ results


@pytest.mark.parametrize("design", list(RegisterMap))
def test_a_session_gives_the_results_and_counters_of_the_simulator(design):
    with (
        serving(design=design) as server,
        Session(server.address, CONFIG) as session,
        Session("fsim", CONFIG) as reference,
    ):
        for _ in range(2):
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
            reference.run(OP, *ARRAYS)
        assert session.stats == reference.stats
        session.reset_stats()
        assert session.stats == vtaops.Statistics()


def test_weights_stay_on_the_board_until_another_client_runs(server):
    model = vtaops.compile_model(small_network(), CONFIG, pin_weights=True)
    (program,), x = model.programs, np.ones(model.graph.inputs[0].shape, np.int8)
    assert program.pinned
    first = Session(server.address, CONFIG)
    with first, Session(server.address, CONFIG) as second:
        expected = model.run(x)
        loaded = []
        for other in (False, False, True, False):
            if other:
                second.run(OP, *ARRAYS)
            first.reset_stats()
            assert np.array_equal(model.run(x, session=first), expected)
            loaded.append(first.stats.wgt_load_nbytes)
    whole, steady = (p.stats().wgt_load_nbytes for p in (program, program.steady))
    assert loaded == [whole, steady, whole, steady]


@needs_tools
def test_cycles_of_our_rtl_reach_the_client(server):
    config = dataclasses.replace(vtaops.HardwareConfig.load("tiny"), target="pynq", name="small")
    op = vtaops.Gemm(m=3, n=8, k=8, shift=0)
    arrays = random_arguments(op, np.random.default_rng(2))
    with (
        serving(design=RegisterMap.RTL, config=config, simulator="tsim") as counting,
        Session(counting.address, config) as session,
        Session("tsim-axi", config) as reference,
    ):
        assert performance_of(session.device) is None  # nothing has run
        for _ in range(2):
            assert np.array_equal(session.run(op, *arrays), reference.run(op, *arrays))
        assert session.device.performance() == reference.device.performance()
        assert performance_of(session.device).cycles > 0
    with RemoteDevice(server.address) as device:
        with pytest.raises(UnsupportedError, match="counts no cycles"):
            device.performance()
        assert performance_of(device) is None


def test_a_repeated_call_moves_only_activations(server):
    with RemoteDevice(server.address) as device, Session(device) as session:
        session.run(OP, *ARRAYS)
        before = device.sent_bytes, device.received_bytes
        session.run(OP, *ARRAYS)
        program = session.program(OP)
        activations = sum(b.nbytes for b in program.inputs if b.name == "data")
        assert device.sent_bytes - before[0] == activations
        assert device.received_bytes - before[1] == program.outputs[0].nbytes


def test_a_call_with_other_parameters_moves_these(server):
    data, *parameters = ARRAYS
    others = [np.where(part > 0, part - 1, part) for part in parameters]
    with RemoteDevice(server.address) as device, Session(device) as session:
        for own in (parameters, others, parameters):
            assert np.array_equal(session.run(OP, data, *own), evaluate(OP, [data, *own]))


def test_transfers_in_chunks_report_their_progress(server):
    seen = []

    size = 2 * CHUNK_BYTES + 5
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    with (
        progress_listener(lambda *told: seen.append(told[:3])),
        RemoteDevice(server.address) as device,
    ):
        buffer = device.alloc(size)
        device.write(buffer, data)
        assert np.array_equal(device.read(buffer, size), data)
        assert np.array_equal(device.read(buffer, 7), data[:7])
    chunks = (CHUNK_BYTES, 2 * CHUNK_BYTES, size)
    assert seen[:6] == [(what, done, size) for what in ("write", "read") for done in chunks]


def test_sessions_are_apart_and_their_memory_is_freed(server):
    with RemoteDevice(server.address) as first, RemoteDevice(server.address) as second:
        mine, yours = first.alloc(4096), second.alloc(4096)
        first.write(mine, np.full(4096, 1, np.uint8))
        second.write(yours, np.full(4096, 2, np.uint8))
        assert set(first.read(mine, 4096)) == {1}
        with pytest.raises(DeviceError, match="not allocated on this device"):
            second.read(mine, 1)
        with pytest.raises(DeviceError, match="one buffer of this device"):
            first.launch(yours.address, 1, 1.0)
        assert first.info()["sessions"] == 2
    server.close()  # waits for the sessions
    assert not server.board.blocks


# -------------------------------------------------------------------------------- faults

SEEN = {
    Fault.HANG: (DeviceTimeout, "did not reach FINISH"),
    Fault.DROP_REQUEST: (DeviceError, "closed the connection|broke"),
    Fault.DROP_REPLY: (DeviceError, "closed the connection|broke"),
    Fault.CORRUPT_REQUEST: (DeviceError, "corrupted on its way"),
    Fault.CORRUPT_REPLY: (DeviceError, "corrupted on its way"),
}


@pytest.mark.parametrize("fault", SEEN, ids=lambda fault: fault.value)
def test_each_fault_has_its_error_and_the_next_call_works(server, fault):
    with (
        RemoteDevice(server.address, timeout=30) as device,
        Session(device, timeout=30) as session,
    ):
        session.run(OP, *ARRAYS)
        small = vtaops.Gemm(m=1, n=16, k=16, shift=0)
        session.gemm(np.ones((1, 16), np.int8), np.ones((16, 16), np.int8), shift=0)
        if fault is Fault.HANG:
            session.residents._timeout = SOON
        server.faults.inject(fault)
        kind, message = SEEN[fault]
        with pytest.raises(kind, match=message):
            session.run(OP, *ARRAYS)
        assert not server.faults.pending()
        device._timeout = session.residents._timeout = 30
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        ones = session.run(small, np.ones((1, 16), np.int8), np.ones((16, 16), np.int8))
        assert (ones == 16).all()
    with Session(server.address, CONFIG) as other:
        assert np.array_equal(other.run(OP, *ARRAYS), EXPECTED)


def test_a_server_that_fails_or_stalls_ends_the_session_only(server, monkeypatch):
    with RemoteDevice(server.address) as device:
        with monkeypatch.context() as patch:
            patch.setattr(PynqDevice, "stats", lambda self: 1 / 0)
            with pytest.raises(DeviceError, match="the server failed: ZeroDivisionError"):
                device.stats()
            patch.setattr(PynqDevice, "stats", lambda self: time.sleep(2 * SOON))
            device._timeout = SOON
            with pytest.raises(DeviceTimeout, match="no answer in time"):
                device.stats()
        device._timeout = 30
        assert device.stats() == vtaops.Statistics()


def test_a_late_done_flag_changes_nothing(server):
    with Session(server.address, CONFIG) as session:
        session.run(OP, *ARRAYS)
        server.faults.inject(Fault.LATE_DONE)
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        assert not server.faults.pending()


def test_refused_programming_and_its_repetition(server):
    with RemoteDevice(server.address) as device:
        server.faults.inject(Fault.REFUSE_PROGRAMMING)
        with pytest.raises(DeviceError, match="cannot program the logic: TimeoutError"):
            device.program(bit_file().to_bytes(), "hls")
        assert device.info()["programmed"] is False
        with pytest.raises(DeviceError, match="no bitstream is programmed"):
            device.alloc(1)
        device.program(bit_file().to_bytes(), "hls")
        assert device.info()["bitstream"]["part"] == "7z020clg484"
        device.alloc(1)


def test_a_dead_server_is_an_error_and_a_new_one_is_found_again():
    with serving() as server:
        device = RemoteDevice(server.address, timeout=2)
        session = Session(device)
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        port = int(server.address.rpartition(":")[2])
    with pytest.raises(DeviceError):
        session.run(OP, *ARRAYS)
    with pytest.raises(DeviceError, match="cannot reach a board"):
        session.run(OP, *ARRAYS)
    with serving() as server, forwarding(port, server):
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        session.close()


class forwarding:
    """Accept one connection on a port and hand it to a server."""

    def __init__(self, port, server):
        self._listener = socket.create_server(("127.0.0.1", port))
        self._server = server

    def __enter__(self):
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        stream, address = self._listener.accept()
        self._server.serve(stream, *address)

    def __exit__(self, *_):
        self._thread.join()
        self._listener.close()


def test_a_board_that_never_answers_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        start = time.monotonic()
        with pytest.raises(DeviceTimeout, match="login: no answer in time"):
            RemoteDevice(f"127.0.0.1:{listener.getsockname()[1]}", timeout=SOON)
        assert time.monotonic() - start >= SOON


def test_a_client_that_disappears_mid_message_leaves_the_server_serving(server):
    host, port = parse_address(server.address)
    with socket.create_connection((host, port)) as stream:
        stream.sendall(encode({"op": "login"})[:10])
    with RemoteDevice(server.address) as device:
        buffer = device.alloc(100)
        device._connection._stream.sendall(encode({"op": "write"}, bytes(1000))[:100])
        device._drop()
        with pytest.raises(BufferLost, match="lost this buffer"):
            device.read(buffer, 1)
        assert device.alloc(100).nbytes == 100


def test_a_client_that_vanishes_without_a_word_is_noticed_after_a_minute(server):
    with RemoteDevice(server.address) as device:
        device.info()
        (there,) = server._open
        for end in (there._stream, device._connection._stream):
            idle, interval, count = (
                end.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert idle + interval * count == 60


# ------------------------------------------------------------------------------- refusals


def test_secrets_are_needed_where_they_are_set(monkeypatch, tmp_path):
    with serving(secret=SECRET) as server:
        with pytest.raises(DeviceError, match="asks for its shared secret"):
            RemoteDevice(server.address)
        with pytest.raises(DeviceError, match="the shared secret is wrong"):
            RemoteDevice(server.address, secret=SECRET[:-1] + b"?")
        (tmp_path / "secret").write_bytes(SECRET + b"\n")
        monkeypatch.setenv("VTAOPS_BOARD_SECRET_FILE", str(tmp_path / "secret"))
        with Session(server.address, CONFIG) as session:
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        monkeypatch.delenv("VTAOPS_BOARD_SECRET_FILE")
        monkeypatch.setenv("VTAOPS_BOARD_SECRET", SECRET.decode())
        RemoteDevice(server.address).close()
        monkeypatch.setattr("vtaops.runtime.remote.proof", lambda *_: "0" * 64)
        with pytest.raises(DeviceError, match="the shared secret is wrong"):
            RemoteDevice(server.address)


def test_a_board_that_does_not_know_the_secret_is_not_trusted(monkeypatch):
    with serving(secret=SECRET) as server:
        monkeypatch.setattr("vtaops.board.server.proof", lambda *_: "0" * 64)
        with pytest.raises(DeviceError, match="the board does not know the shared secret"):
            RemoteDevice(server.address, secret=SECRET)


def test_secrets_too_short_or_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("VTAOPS_BOARD_SECRET", "short")
    with pytest.raises(DeviceError, match="at least 16"):
        read_secret()
    with pytest.raises(DeviceError, match="cannot read the secret"):
        read_secret(tmp_path / "none")
    with pytest.raises(DeviceError, match="needs a shared secret"):
        BoardServer(object.__new__(Accelerator), "0.0.0.0", 0)


def test_proofs_depend_on_everything():
    base = (SECRET, "client", "a", "b")
    assert proves(proof(*base), *base)
    for changed in ((b"x", "client", "a", "b"), (SECRET, "server", "a", "b"),
                    (SECRET, "client", "b", "b"), (SECRET, "client", "a", "c")):  # fmt: skip
        assert not proves(proof(*base), *changed)
    assert not proves(None, *base)
    assert not proves("\ud800", *base)


def test_another_configuration_is_refused_at_connect(server):
    with pytest.raises(ConfigError, match="not 4x8"):
        Session(server.address, "4x8_i8w8a32_15_16_16_18")
    with Session(server.address, CONFIG) as session:
        other = vtaops.compile(vtaops.Gemm(m=1, n=8, k=8), "tiny")
        with pytest.raises(ConfigError, match="compiled for"):
            other.run(session.device, np.ones((1, 8), np.int8), np.ones((8, 8), np.int8))


def test_another_version_of_the_protocol_is_refused(server, monkeypatch):
    monkeypatch.setattr("vtaops.runtime.remote.PROTOCOL_VERSION", PROTOCOL_VERSION + 1)
    with pytest.raises(DeviceError, match=f"the board speaks protocol {PROTOCOL_VERSION} "):
        RemoteDevice(server.address)
    monkeypatch.setattr("vtaops.board.server.PROTOCOL_VERSION", 99)
    with pytest.raises(DeviceError, match="the board speaks protocol 99 "):
        RemoteDevice(server.address)
    host, port = parse_address(server.address)
    with socket.create_connection((host, port), 5) as stream:
        connection = Connection(stream)
        connection.receive(deadline=time.monotonic() + 5)
        connection.send({"op": "login", "protocol": 1}, deadline=time.monotonic() + 5)
        answer, _ = connection.receive(deadline=time.monotonic() + 5)
        assert answer["error"]["message"] == "this board speaks protocol 99"


def test_a_fingerprint_that_this_vtaops_does_not_compute_is_refused(server):
    device = RemoteDevice(server.address)
    answer = {"config": CONFIG.to_dict(), "config_name": "pynq", "fingerprint": "0" * 16}
    with pytest.raises(ConfigError, match="same version of vtaops"):
        device._agreed(answer)
    device.close()


@pytest.mark.parametrize(
    ("content", "design", "error", "message"),
    [
        (bit_file("7z010clg400").to_bytes(), "hls", DeviceError, "for part 7z010"),
        (bit_file("zu3eg-sbva484").to_bytes(), "hls", DeviceError, "for part zu3eg"),
        (bit_file().to_bytes()[:-4], "hls", DeviceError, "truncated or corrupted"),
        (b"not a bitstream", "hls", DeviceError, "not a .bit file"),
        (bit_file().to_bytes(), "rtl", ConfigError, "started for .* and hls"),
    ],
)
def test_wrong_bitstreams_are_refused_before_anything_is_touched(
    server, content, design, error, message
):
    with Session(server.address, CONFIG) as session:
        session.run(OP, *ARRAYS)
        before = server.accelerator.generation
        with pytest.raises(error, match=message):
            session.device.program(content, design)
        assert server.accelerator.generation == before
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)


def test_a_corrupted_upload_is_refused(server):
    with RemoteDevice(server.address) as device:
        content = bit_file().to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        device._request("upload", content[:-1] + b"?")
        fields = {"fingerprint": CONFIG.fingerprint, "register_map": "hls"}
        with pytest.raises(DeviceError, match="another hash"):
            device._request("program", sha256=digest, **fields)
        device._request("upload", content)
        with pytest.raises(ConfigError, match="has configuration"):
            device._request("program", sha256=digest, fingerprint="f" * 16, register_map="hls")


MINE = "the buffer of this session"

BAD_REQUESTS = [
    ({"op": "nonsense"}, b"", "unknown operation"),
    ({"op": ["alloc"]}, b"", "unknown operation"),
    ({"op": "alloc"}, b"", "takes the fields"),
    ({"op": "alloc", "nbytes": 1, "path": "/etc/passwd"}, b"", "takes the fields"),
    ({"op": "alloc", "nbytes": "1"}, b"", "nbytes: int"),
    ({"op": "alloc", "nbytes": True}, b"", "nbytes: int"),
    ({"op": "alloc", "nbytes": 1.0}, b"", "nbytes: int"),
    ({"op": "alloc", "nbytes": 0}, b"", "cannot allocate"),
    ({"op": "alloc", "nbytes": 1 << 40}, b"", "cannot allocate"),
    ({"op": "alloc", "nbytes": -(10**4000)}, b"", "cannot allocate"),
    ({"op": "free", "buffer": 99}, b"", "no buffer"),
    ({"op": "read", "buffer": MINE, "offset": 0, "nbytes": CHUNK_BYTES + 1}, b"", "at most"),
    ({"op": "read", "buffer": MINE, "offset": 90, "nbytes": 11}, b"", "exceed"),
    ({"op": "read", "buffer": MINE, "offset": -1, "nbytes": 1}, b"", "an integer in 0"),
    ({"op": "write", "buffer": MINE, "offset": 90}, bytes(11), "exceed"),
    ({"op": "write", "buffer": 1, "offset": 0}, b"", "no buffer"),
    ({"op": "stats"}, b"x", "takes no payload"),
    ({"op": "launch", "address": 0, "count": 1, "timeout": 1.0, **AGAIN}, b"", "one buffer"),
    ({"op": "launch", "address": 0, "count": 1, "timeout": 1e9, **AGAIN}, b"", "at most"),
    (
        {"op": "launch", "address": -(1 << 70), "count": 1, "timeout": 1.0, **AGAIN},
        b"",
        "an integer in 0",
    ),
    (
        {"op": "launch", "address": 0, "count": 1 << 70, "timeout": 1.0, **AGAIN},
        b"",
        "an integer in 0",
    ),
]


def test_malformed_requests_are_refused_and_the_session_goes_on(server):
    with RemoteDevice(server.address) as device:
        mine = device.alloc(100).address
        for header, payload, message in BAD_REQUESTS:
            fields = {
                name: mine if value is MINE else value
                for name, value in header.items()
                if name != "op"
            }
            if message is None:
                assert device._request(header["op"], payload, **fields)[0]["found"] is False
                continue
            with pytest.raises(DeviceError, match=message):
                device._request(header["op"], payload, **fields)
        device.alloc(1)


def preamble(header, payload, magic=b"VTB1", body=b"", check=None):
    start = struct.pack("<4sIII", magic, header, payload, zlib.crc32(body))
    return start + struct.pack("<I", zlib.crc32(start) if check is None else check) + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "does not speak"),
        (preamble(MAX_HEADER_BYTES + 1, 0), "exceeds the limit"),
        (preamble(2, CHUNK_BYTES + 1), "exceeds the limit"),
        (preamble(2, 0, check=1), "corrupted"),
        (preamble(2, 0, body=b"xx"), "not hold JSON"),
        (preamble(2, 0, body=b"[]"), "not hold a JSON object"),
        (preamble(20000, 0, body=b"[" * 20000), "not hold JSON"),
        (preamble(2, 0, body=b"\xff\xfe"), "not hold JSON"),
    ],
)
def test_malformed_messages_end_the_session_only(server, data, message):
    with RemoteDevice(server.address) as device, RemoteDevice(server.address) as other:
        device._connection._stream.sendall(data)
        answer, _ = device._connection.receive(deadline=time.monotonic() + 5)
        assert message in answer["error"]["message"]
        assert other.alloc(1).nbytes == 1


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_before_login_stop_the_server(data, whole):
    server = fuzzed()
    host, port = parse_address(server.address)
    with socket.create_connection((host, port), 5) as stream:
        stream.sendall(preamble(len(data), 0, body=data) if whole else data)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(4096):
            pass
    RemoteDevice(server.address).close()


_fuzzed = []


def fuzzed():
    if not _fuzzed:
        context = serving(limits=Limits(sessions=64))
        _fuzzed.extend((context, context.__enter__()))
    return _fuzzed[1]


@pytest.fixture(scope="module", autouse=True)
def stop_fuzzed():
    yield
    if _fuzzed:
        _fuzzed[0].__exit__(None, None, None)


def test_an_oversized_login_is_refused(server):
    host, port = parse_address(server.address)
    with socket.create_connection((host, port), 5) as stream:
        connection = Connection(stream)
        connection.receive(deadline=time.monotonic() + 5)
        connection.send({"op": "login", "nonce": "x" * 5000}, deadline=time.monotonic() + 5)
        answer, _ = connection.receive(deadline=time.monotonic() + 5)
        assert "exceeds the limit of 1024 + 0" in answer["error"]["message"]
        with pytest.raises(ConnectionLost):
            connection.receive(deadline=time.monotonic() + 5)
    RemoteDevice(server.address).close()


def test_limits_of_a_session():
    limits = Limits(sessions=1, session_bytes=10_000)
    with serving(limits=limits) as server, RemoteDevice(server.address) as device:
        first = device.alloc(9_000)
        with pytest.raises(DeviceError, match="uses 9000 of 10000"):
            device.alloc(1_001)
        device.free(first)
        device.alloc(10_000)
        with pytest.raises(DeviceError, match="all 1 sessions are in use"):
            RemoteDevice(server.address)


def test_a_client_that_asks_for_nothing_must_log_in_again():
    """Before, clients that said nothing could hold all sessions for ever."""
    limits = Limits(sessions=1, idle_seconds=0.2)
    with serving(limits=limits) as server, RemoteDevice(server.address) as device:
        buffer = device.alloc(1)
        until(lambda: server.sessions == 0)
        with pytest.raises(BufferLost, match=r"ended this session, because no request came in"):
            device.read(buffer, 1)
        with pytest.raises(BufferLost):
            device.read(buffer, 1)


def test_a_login_that_does_not_come_ends_in_time():
    limits = Limits(login_seconds=0.05)
    with serving(limits=limits) as server:
        host, port = parse_address(server.address)
        with socket.create_connection((host, port), 5) as stream:
            while stream.recv(4096):
                pass  # until the server closes


def test_deadlines_are_for_whole_messages():
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        reader = object.__new__(Connection)
        reader._stream = left
        right.sendall(encode({"a": 1})[:-1])
        with pytest.raises(DeviceTimeout, match="no answer in time"):
            reader.receive(deadline=time.monotonic() + 0.05)
        writer = object.__new__(Connection)
        writer._stream = right
        with pytest.raises(DeviceTimeout, match="takes no data"):
            writer.send({}, bytes(1 << 24), deadline=time.monotonic() + 0.05)
        with pytest.raises(DeviceTimeout):
            writer.send({}, deadline=-math.inf)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pynq://board:1234", ("board", 1234)),
        ("board", ("board", 9191)),
        ("pynq://192.168.2.99/", ("192.168.2.99", 9191)),
        ("pynq://[::1]:77", ("::1", 77)),
        ("[fe80::1]", ("fe80::1", 9191)),
    ],
)
def test_addresses(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["pynq://", "board:0", "board:65536", "board:http", ":9"])
def test_bad_addresses(text):
    with pytest.raises(DeviceError, match="not the address of a board"):
        RemoteDevice(text)


def test_the_server_runs_in_a_process_of_its_own_and_ends_when_told(tmp_path):
    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    (tmp_path / "secret").write_bytes(SECRET)
    command = [sys.executable, "-m", "vtaops.board", "virtual", "pynq", "--port", "0"]
    command += ["--bitstream", str(tmp_path / "vta.bit"), "--secret-file", str(tmp_path / "secret")]
    with spawned(command, cwd=tmp_path) as process:
        try:
            address = process.stdout.readline().split()[-1]
            device = RemoteDevice(address, CONFIG, secret=SECRET)
            with Session(device) as session:
                assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_server_of_a_board_needs_neither_tvm_nor_the_simulator(tmp_path):
    code = """
import sys
for name in ("tvm", "tvm_ffi", "typer", "rich", "vtaops._fsim", "hypothesis", "scipy"):
    sys.modules[name] = None  # importing them fails
from vtaops.board.__main__ import main
print(main(["serve"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )  # fmt: skip
    assert done.stdout == "1\n", done.stderr
    assert "cannot import pynq" in done.stderr


def test_information(server):
    with RemoteDevice(server.address) as device:
        facts = device.info()
    assert facts["target"] == "pynq"
    assert facts["part"] == "xc7z020clg484-1"
    assert facts["fingerprint"] == CONFIG.fingerprint
    assert facts["bitstream"]["sha256"] == hashlib.sha256(bit_file().to_bytes()).hexdigest()
    assert facts["registers"]["compute done"] == 0
    json.dumps(facts)
