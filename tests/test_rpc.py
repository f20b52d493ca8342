"""TVM's RPC: the tutorial from connect to a checked result, in another process."""

import os
import signal

import numpy as np
import pytest
import tvm
from helpers.tsim_support import needs_tools

import vtaops
from trials.boards import ARRAYS, CONFIG, EXPECTED, OP, bit_file, free_port, serving_rpc
from vtaops import ConfigError, DeviceError, ShapeError, UnsupportedError
from vtaops.board.rpc import RpcBuffer, RpcSession, connect
from vtaops.graph import Convolution, Graph, MaxPool, Requantization
from vtaops.ops.reference import random_arguments


@pytest.fixture(scope="module")
def virtual():
    with serving_rpc("virtual") as port:
        yield port


def test_connect_program_upload_run(virtual, tmp_path):
    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    program = vtaops.compile(OP, CONFIG)
    with connect("127.0.0.1", virtual, CONFIG) as remote:
        assert remote.info["device"] == "virtual"
        with pytest.raises(DeviceError, match="no bitstream is programmed"):
            remote.load(program)
        remote.program_fpga(tmp_path / "vta.bit")
        run = remote.load(program)
        for _ in range(2):
            assert np.array_equal(run(*ARRAYS), EXPECTED)
        once = program.stats()
        assert remote.stats() == once + once
        remote.reset_stats()
        assert remote.stats() == vtaops.Statistics()
        with pytest.raises(ShapeError, match="the program was compiled for"):
            run(*ARRAYS[::-1])
        assert np.array_equal(run(*ARRAYS), EXPECTED)


def test_a_network_sends_its_weights_once_and_survives_its_server():
    rng = np.random.default_rng(0)
    graph = Graph("remote")
    x = graph.input("x", (1, 16, 12, 12))
    for channels in (48, 32):
        weight = rng.integers(-128, 128, (channels, x.shape[1], 3, 3)).astype(np.int8)
        x = graph.add(Convolution(weight, None, Requantization(1, 10), padding=(1, 1, 1, 1)), x)
    graph.output(graph.add(MaxPool((2, 2), (2, 2)), x))
    model = vtaops.compile_model(graph, "pynq")
    weights = sum(array.nbytes for array in model.regions[0].parameters.values())
    images = [rng.integers(-128, 128, (1, 16, 12, 12)).astype(np.int8) for _ in range(3)]
    with serving_rpc("fsim") as port, connect("127.0.0.1", port, "pynq") as remote:
        expected = [model.reference(image) for image in images]
        assert np.array_equal(model.run(images[0], session=remote), expected[0])
        assert remote.sent_bytes > weights
        sent, received = remote.sent_bytes, remote.received_bytes
        assert np.array_equal(model.run(images[1], session=remote), expected[1])
        # Weights and program are there: the image goes, the scores come.
        assert remote.sent_bytes - sent == images[1].nbytes
        assert remote.received_bytes - received == model.programs[0].outputs[0].nbytes
        assert remote.info["pid"] != os.getpid()
        os.kill(remote.info["pid"], signal.SIGKILL)
        with pytest.raises(DeviceError):
            model.run(images[2], session=remote)
        with connect("127.0.0.1", port, "pynq") as again:
            assert np.array_equal(model.run(images[2], session=again), expected[2])


def test_refusals(virtual, tmp_path):
    with pytest.raises(ConfigError, match="has configuration"):
        connect("127.0.0.1", virtual, "tiny")
    (tmp_path / "x.bit").write_bytes(bit_file("7z010clg400").to_bytes())
    with connect("127.0.0.1", virtual) as remote:
        with pytest.raises(DeviceError, match="for part 7z010"):
            remote.program_fpga(tmp_path / "x.bit")
        with pytest.raises(DeviceError, match="cannot read"):
            remote.program_fpga(tmp_path / "none.bit")
        (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
        remote.program_fpga(tmp_path / "vta.bit")
        with pytest.raises(ConfigError, match="compiled for"):
            remote.load(vtaops.compile(vtaops.Gemm(m=1, n=8, k=8), "tiny"))
    with pytest.raises(DeviceError, match="no RPC server"):
        connect("127.0.0.1", free_port())


def test_a_crashed_session_leaves_the_server_serving_rpc(virtual):
    remote = connect("127.0.0.1", virtual)
    os.kill(remote.info["pid"], signal.SIGKILL)
    with pytest.raises(DeviceError, match=r"TVM's RPC failed in stats"):
        remote.stats()
    with connect("127.0.0.1", virtual) as again:
        assert again.info["pid"] != remote.info["pid"]


def test_simulators_are_served_too():
    with serving_rpc("fsim") as port, connect("127.0.0.1", port, CONFIG) as remote:
        run = remote.load(vtaops.compile(OP, CONFIG))
        assert np.array_equal(run(*ARRAYS), EXPECTED)
        assert remote.stats() == vtaops.compile(OP, CONFIG).stats()
        assert np.array_equal(vtaops.compile(OP, CONFIG).run(remote, *ARRAYS), EXPECTED)
        with pytest.raises(DeviceError, match="no buffer is allocated"):
            remote.read(RpcBuffer(4, 8), 8)
        with pytest.raises(DeviceError, match="no logic to program"):
            remote._call("program_fpga", bit_file().to_bytes())


@needs_tools
def test_cycles_over_rpc(virtual):
    op = vtaops.Gemm(m=2, n=16, k=16, shift=0)
    arrays = random_arguments(op, np.random.default_rng(1))
    with serving_rpc("tsim") as port, connect("127.0.0.1", port, CONFIG) as remote:
        remote.load(vtaops.compile(op, CONFIG))(*arrays)
        with vtaops.Session("tsim", CONFIG) as local:
            local.run(op, *arrays)
            assert remote.performance() == local.device.performance()
    with (
        connect("127.0.0.1", virtual) as remote,
        pytest.raises(UnsupportedError, match="counts no cycles"),
    ):
        remote.performance()


def test_a_tracker_hands_out_the_board(tmp_path):
    for package in ("cloudpickle", "psutil", "tornado"):
        pytest.importorskip(package, reason="TVM's tracker needs it: pip install vtaops[rpc]")
    from tvm.rpc.tracker import Tracker

    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    tracker = Tracker("127.0.0.1", free_port(), port_end=65535, silent=True)
    try:
        options = ("--tracker", f"127.0.0.1:{tracker.port}", "--key", "pynq")
        with serving_rpc("virtual", *options):
            client = tvm.rpc.connect_tracker("127.0.0.1", tracker.port)
            for _ in range(2):  # it registers again after a session
                with RpcSession(client.request("pynq", session_timeout=60), CONFIG) as remote:
                    remote.program_fpga(tmp_path / "vta.bit")
                    run = remote.load(vtaops.compile(OP, CONFIG))
                    assert np.array_equal(run(*ARRAYS), EXPECTED)
    finally:
        tracker.terminate()
