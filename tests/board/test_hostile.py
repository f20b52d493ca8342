"""A board among hostile and careless clients; clients of hostile boards."""

from __future__ import annotations

import logging
import signal
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.processes import spawned
from helpers.tsim_support import needs_tools
from hypothesis import given, settings

from trials.boards import ARRAYS, CONFIG, EXPECTED, OP, serving
from trials.hostile_clients import JSON, SECRET, fuzz_requests, message, raw
from vtaops import Session, VTAError
from vtaops.base.errors import ConfigError
from vtaops.board.server import Limits
from vtaops.errors import DeviceError, DeviceTimeout
from vtaops.hardware.registers import RegisterMap
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import Memory
from vtaops.machine.isa import Gemm
from vtaops.program import Program, ProgramBuilder, Role
from vtaops.runtime import LoadedProgram
from vtaops.runtime.remote import RemoteDevice
from vtaops.runtime.wire import (
    PROTOCOL_VERSION,
    Connection,
    ConnectionLost,
    encode,
)


def endless_program() -> Program:
    """Return a program that the simulator works on for minutes."""
    builder = ProgramBuilder(CONFIG)
    builder.tiles("out", Role.OUTPUT, 1)
    builder.micro_ops((0, 0, 0))
    builder.load_micro_ops(0, 1)
    loop = {"uop_begin": 0, "uop_end": 1, "iter_out": (1 << 14) - 1, "iter_in": (1 << 14) - 1}
    for _ in range(200):
        builder.add(Gemm(reset=1, **loop))
    builder.nop(Memory.ACC, push_next=1)
    builder.store(0, 0, 0, 1, pop_prev=1, push_prev=1)
    builder.finish(pop_next=1)
    return builder.build()


# ------------------------------------------------------------------------------ long runs


BOARDS = [
    (RegisterMap.HLS, "fsim"),
    (RegisterMap.RTL, "fsim"),
    pytest.param(RegisterMap.RTL, "tsim", marks=needs_tools),
]


@pytest.mark.parametrize(("design", "simulator"), BOARDS)
def test_a_run_ends_at_its_timeout_and_the_next_one_works(design, simulator):
    with (
        serving(design=design, simulator=simulator) as server,
        RemoteDevice(server.address) as device,
    ):
        with (
            LoadedProgram(endless_program(), device) as loaded,
            pytest.raises(DeviceTimeout, match=r"FINISH within 0\.2 s"),
        ):
            loaded.run(timeout=0.2)
        with Session(device) as session:
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)


@pytest.mark.parametrize(("design", "simulator"), BOARDS)
def test_memory_is_given_and_read_during_the_run_of_another(design, simulator):
    with (
        serving(design=design, simulator=simulator) as server,
        RemoteDevice(server.address) as busy,
        RemoteDevice(server.address, timeout=30) as other,
    ):
        loaded = LoadedProgram(endless_program(), busy)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(loaded.run, timeout=60.0)
            time.sleep(0.3)
            data = np.arange(100_000, dtype=np.int32)
            buffer = other.alloc(data.nbytes)
            other.write(buffer, data)
            assert np.array_equal(other.read(buffer, data.nbytes).view(np.int32), data)
            other.info()
            other.free(buffer)
            assert not run.done()
            server.close()
            with pytest.raises(DeviceError):
                run.result()


@pytest.mark.parametrize(("design", "simulator"), BOARDS)
def test_a_run_does_not_keep_a_server_from_closing(design, simulator):
    with serving(design=design, simulator=simulator) as server:
        device = RemoteDevice(server.address)
        loaded = LoadedProgram(endless_program(), device)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(loaded.run, timeout=60.0)
            time.sleep(0.3)
            start = time.monotonic()
            server.close()
            assert time.monotonic() - start < 5
            with pytest.raises(DeviceError, match=r"shutting down|closed the connection|broke"):
                run.result()


def test_a_process_ends_when_it_is_told_during_a_run():
    command = [
        sys.executable,
        "-m",
        "vtaops.board",
        "virtual",
        "pynq",
        "--port",
        "0",
        "--programmed",
    ]
    with spawned(command) as process:
        assert process.stdout is not None
        device = RemoteDevice(process.stdout.readline().split()[-1])
        loaded = LoadedProgram(endless_program(), device)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(loaded.run, timeout=60.0)
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            with pytest.raises(DeviceError):
                run.result()


# ---------------------------------------------------------------------------- log and logins


def test_wrong_secrets_are_slow_logged_and_delay_nobody_else(caplog):
    caplog.set_level(logging.INFO, "vtaops.board")
    limits = Limits(failure_seconds=0.3)
    with serving(secret=SECRET, limits=limits) as server, ThreadPoolExecutor(20) as pool:
        start = time.monotonic()
        wrong = [pool.submit(raw, server, SECRET[1:]) for _ in range(20)]
        RemoteDevice(server.address, secret=SECRET).close()
        for each in wrong:
            each.result().close()
        assert time.monotonic() - start >= 0.3
    said = [record.getMessage() for record in caplog.records]
    assert sum(line.endswith("ended: the shared secret is wrong") for line in said) == 20
    assert all(line.startswith("127.0.0.1:") for line in said)


# ------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "text",
    [
        b'{"op":"\\ud800","id":1}',
        b'{"op":"info","id":1,"\\udfff":0}',
        b'{"op":"info","id":' + b"[" * 30000 + b"]" * 30000 + b"}",
        b'{"op":"info","id":"\xff"}',
    ],
)
def test_what_is_no_json_is_answered(text):
    with serving(secret=SECRET) as server, raw(server) as stream:
        stream.sendall(message(text))
        answer, _ = Connection(stream).receive(deadline=time.monotonic() + 5)
        assert "does not hold JSON" in answer["error"]["message"]


@pytest.mark.parametrize("number", ["null", "true", "1.5", '"1"', "[1]", "NaN", "1e999"])
def test_an_id_is_an_integer(number):
    with serving(secret=SECRET) as server, raw(server) as stream:
        connection = Connection(stream)
        stream.sendall(message(f'{{"op":"info","id":{number}}}'.encode()))
        answer, _ = connection.receive(deadline=time.monotonic() + 5)
        assert "must be an integer" in answer["error"]["message"]
        stream.sendall(message(b'{"op":"info","id":7}'))
        answer, _ = connection.receive(deadline=time.monotonic() + 5)
        assert answer["id"] == 7
        assert "error" not in answer


def test_requests_of_all_kinds_are_answered():
    """A sample; `trials/hostile_inputs.py` has more."""
    fuzz_requests(40)


@settings(max_examples=100, deadline=None, database=None)
@given(JSON)
def test_capabilities_of_a_hostile_board(values):
    """What a board says about itself is an error of vtaops, or has the types that it must have."""
    fields = dict.fromkeys(Capabilities.__dataclass_fields__, values)
    try:
        able = Capabilities(**fields)
    except ConfigError:
        return
    assert isinstance(able.micro_ops, int)


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        3,
        [],
        {},
        {"name": 1},
        {"name": "x", "features": ["magic"]},
        {"name": "x", "features": "mul"},
        {"name": "x", "y": 1},
    ],
)
def test_a_hostile_board_is_an_error(monkeypatch, capabilities):
    from vtaops.board import server as module

    monkeypatch.setattr(module, "asdict", lambda _: capabilities)
    with serving() as server, pytest.raises(VTAError, match="capabilities"):
        RemoteDevice(server.address)


# ---------------------------------------------------------------------------------- crowds


def test_who_does_not_log_in_takes_no_session():
    limits = Limits(sessions=2, logins=8, login_seconds=600.0)
    with serving(secret=SECRET, limits=limits) as server:
        silent = [raw(server, login=None) for _ in range(30)]
        with Session(RemoteDevice(server.address, secret=SECRET)) as session:
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
        for stream in silent:
            stream.close()


def hostile(server, number: int, stop: threading.Event) -> None:
    """Do one of many bad things to a server, again and again."""
    rng = np.random.default_rng(number)
    while not stop.is_set():
        try:
            knows = number % 50 == 0  # a few have the secret
            secret = SECRET if knows else None
            with raw(server, secret, timeout=1.0, source="127.0.0.2") as stream:
                match number % 7:
                    case 0:
                        stream.sendall(message(b'{"op":"alloc","id":1,"nbytes":%d}' % (1 << 20)))
                    case 1:
                        stop.wait(0.5)  # says nothing
                    case 2:
                        stream.sendall(rng.bytes(200))
                    case 3:
                        stream.sendall(message(b'{"op":"login","id":NaN}'))
                    case 4:
                        stream.sendall(message(b'{"op":"login"}')[:10])
                        stop.wait(0.3)
                    case 5:
                        stream.sendall(struct.pack("<4sIII", b"VTB1", 1 << 31, 1 << 31, 0) * 2)
                    case _:
                        connection = Connection(stream)
                        connection.receive(deadline=time.monotonic() + 1)
                        login = {"op": "login", "id": 0, "protocol": PROTOCOL_VERSION}
                        guess = {**login, "nonce": "0", "proof": rng.bytes(32).hex()}
                        stream.sendall(encode(guess))
        except (OSError, ConnectionLost, DeviceTimeout):
            stop.wait(0.01)


def crowd(clients: int, calls: int, timeout: float) -> list[float]:
    """Return the seconds of each call of a good client beside many hostile ones."""
    stop = threading.Event()
    seconds = []
    with serving(secret=SECRET) as server:
        threads = [
            threading.Thread(target=hostile, args=(server, n, stop), daemon=True)
            for n in range(clients)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(calls):
                start = time.monotonic()
                device = RemoteDevice(server.address, secret=SECRET, timeout=timeout)
                with Session(device, timeout=timeout) as session:
                    assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
                seconds.append(time.monotonic() - start)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    return seconds


def test_a_good_client_among_hostile_ones_is_served():
    assert len(crowd(clients=30, calls=5, timeout=10.0)) == 5
