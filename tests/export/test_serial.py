"""A bundle on a ULX3S at a serial line: what `Model.run` gives, or a code, whatever happens."""

import shutil
import subprocess
import threading
from importlib.util import find_spec

import numpy as np
import pytest
from helpers.uartbone import EndlessTerminal, FakeBoard, TerminalBoard

import vtaops
from trials import c_bundles
from trials.networks import Builder
from trials.random_graphs import random_graph, random_inputs
from vtaops import HardwareConfig
from vtaops.board.virtual_ulx3s import VirtualUlx3s, open_terminal
from vtaops.hardware.registers import RtlRegisters

pytestmark = pytest.mark.skipif(
    not c_bundles.compilers() or not shutil.which("make"), reason="no compiler of C, or no make"
)
CONFIG = HardwareConfig.load("tiny")
PATIENCE = 400  # milliseconds: longer than the board waits for the rest of a command
SANITIZED = "-O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A built bundle with launches and host stages, its inputs, and the outputs that must come."""
    return build(random_graph(5), tmp_path_factory.mktemp("serial"))


def build(graph, folder):
    model = vtaops.compile_model(graph, CONFIG)
    arrays = random_inputs(model.graph, 3)
    model.export_c(folder)
    for number, array in enumerate(arrays):
        array.tofile(folder / f"in{number}")
    flags = f"{SANITIZED} -DVTA_DEFAULT_TIMEOUT=50u"
    c_bundles.make(folder, "network-linux", CC=c_bundles.compilers()[0], CFLAGS=flags)
    made = model.reference(*arrays)
    outputs = made if isinstance(made, tuple) else (made,)
    return folder, [f"in{n}" for n in range(len(arrays))], outputs


def run(bundle, board, *options):
    """Run the program against a board; return what it did, and whether its outputs are right."""
    folder, inputs, outputs = bundle
    for number in range(len(outputs)):
        (folder / f"out{number}.bin").unlink(missing_ok=True)
    with TerminalBoard(board) as served:
        line = "--serial", served.path, "--patience", str(PATIENCE)
        command = ["./network-linux", *inputs, *line, "--output", "out", *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    right = done.returncode == 0 and all(
        (folder / f"out{n}.bin").read_bytes() == np.ascontiguousarray(array).tobytes()
        for n, array in enumerate(outputs)
    )
    return done, right


def test_on_a_board(bundle):
    board = FakeBoard(CONFIG)
    for turn in ("1", "3"):  # a second host resets the board
        done, right = run(bundle, board, "--repeat", turn)
        assert right, done.stderr


def three_channels():
    """Return a network whose input has zeros in five of eight lanes."""
    net = Builder("three channels", 16)
    net.convolve(16, 1)
    net.graph.output(net.x)
    return net.graph


def test_of_tiles_that_end_in_zeros_only_the_other_lanes_are_sent(tmp_path):
    board = FakeBoard(CONFIG)
    done, right = run(build(three_channels(), tmp_path), board)
    assert right, done.stderr
    assert board.most_lanes == 3


def test_a_host_that_was_killed_in_the_middle_leaves_nothing_behind(bundle):
    board = FakeBoard(CONFIG)
    board.write(b"\x01\xff\x10\x00\x00\x00\x07")
    done, right = run(bundle, board)
    assert right, done.stderr


@pytest.mark.parametrize("direction", ["to_board", "from_board"])
def test_no_fault_of_the_line_gives_a_wrong_result(bundle, direction):
    """Bytes are flipped, lost and added, at any place: a code or the right result."""
    faults = (
        lambda byte: bytes([byte ^ 1 << int(rng.integers(8))]),
        lambda byte: b"",
        lambda byte: bytes([byte, byte ^ 0x55]),
    )
    board, rng = FakeBoard(CONFIG), np.random.default_rng(len(direction))
    whole = getattr(board, direction)
    done, right = run(bundle, board)
    assert right, done.stderr
    length, said = (board.sent, board.received)[direction == "from_board"], set()
    for fault in faults * 2:
        now = (board.sent, board.received)[direction == "from_board"]
        at = now + int(rng.integers(length))
        setattr(
            board,
            direction,
            lambda n, byte, at=at, f=fault: f(byte) if n == at else bytes([byte]),
        )
        done, right = run(bundle, board)
        assert right or done.returncode == 1, done.stderr
        said.add(done.stderr.strip().rpartition(": ")[2])
        setattr(board, direction, whole)
    assert any("open it again" in text for text in said), said
    done, right = run(bundle, board)
    assert right, done.stderr


def after_launch(board, control, faults=0):
    """Let every launch end with these registers."""
    registers = {RtlRegisters.CONTROL: control, RtlRegisters.FAULTS: faults}
    board.run = lambda: board.vta_registers.update(registers)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda board: after_launch(board, 0), "a launch did not finish in time"),
        (lambda board: after_launch(board, RtlRegisters.QUIET, 4), "reports a fault"),
        (lambda board: setattr(board, "run", board.reset), "the device was reset"),
        (lambda board: setattr(board, "run", board.switch_on), "the device was reset"),
        (lambda board: setattr(board, "identity", (1, 2, 3, 4)), "cannot be reached"),
        (lambda board: setattr(board, "take", lambda byte: None), "cannot be reached"),
    ],
)
def test_a_board_that_fails_ends_in_a_code(bundle, spoil, said):
    board = FakeBoard(CONFIG)
    spoil(board)
    done, _ = run(bundle, board)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (bundle[0] / "out0.bin").exists()


def test_what_sends_without_end_ends_in_a_code(bundle):
    with EndlessTerminal(None) as served:
        command = ["./network-linux", *bundle[1], "--serial", served.path, "--patience", "200"]
        done = subprocess.run(command, cwd=bundle[0], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "open it again" in done.stderr


def test_a_board_of_another_configuration_is_refused(bundle):
    done, _ = run(bundle, FakeBoard(HardwareConfig.load("ulx3s")))
    assert done.returncode == 1
    assert "another configuration" in done.stderr


@pytest.mark.skipif(not find_spec("litex"), reason="LiteX is missing (extra ulx3s)")
@pytest.mark.parametrize("graph", [random_graph(5), three_channels()], ids=["stages", "lanes"])
def test_at_the_pins_of_the_board(graph, tmp_path):
    """The system of the bitstream and its SDRAM, simulated, behind a pseudo-terminal."""
    _, inputs, outputs = build(graph, tmp_path)
    (tmp_path / "vta.o").unlink()  # there a launch may take long
    c_bundles.make(tmp_path, "network-linux", CC=c_bundles.compilers()[0], CFLAGS=SANITIZED)
    master, terminal = open_terminal()
    ended = threading.Event()
    with VirtualUlx3s(CONFIG) as board:
        server = threading.Thread(target=board.serve, args=(master, ended.is_set))
        server.start()
        command = ["./network-linux", *inputs, "--serial", terminal, "--patience", "60000"]
        done = subprocess.run(
            [*command, "--output", "out"], cwd=tmp_path, capture_output=True, text=True
        )
        ended.set()
        server.join()
    assert done.returncode == 0, done.stderr
    for number, array in enumerate(outputs):
        assert (tmp_path / f"out{number}.bin").read_bytes() == np.ascontiguousarray(array).tobytes()
