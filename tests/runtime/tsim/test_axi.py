"""The RTL behind its AXI shell: programs, registers, faults, the driver; wrong ones are caught."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS
from helpers.tsim_support import build_wrong_models, needs_tools

import vtaops
from trials.all_sides import run_case
from trials.boards import bit_file
from trials.random_streams import CONFIGS, ConcurrentProgram, RandomProgram, run_random
from trials.reference_isa import place
from vtaops import Session
from vtaops.base.errors import BufferLost
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.board.virtual import VirtualBoard
from vtaops.errors import ConfigError, DeviceError, DeviceTimeout
from vtaops.hardware import build
from vtaops.hardware.registers import RegisterMap, RtlRegisters
from vtaops.hardware.rtl import FAULTS, axi_sources, sources
from vtaops.machine.config import INSTRUCTION_BYTES, TARGETS, Memory
from vtaops.machine.isa import Encoding, Finish, Gemm, Load, Store, words_to_array
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Program
from vtaops.runtime import Fsim, open_device
from vtaops.runtime.executor import LoadedProgram
from vtaops.runtime.tsim import RtlParameters, Tsim, systemverilog_package
from vtaops.runtime.tsim import device as tsim_device

pytestmark = needs_tools

MODELS = [("tiny", 8), ("extended", 8), ("pynq", 8)]
MEMORY_ERROR = 1 << list(FAULTS).index("memory_error")


# ------------------------------------------------------------------------------- programs


@pytest.mark.parametrize(("name", "port_bytes"), MODELS)
def test_random_programs_equal_the_reference_over_axi(name, port_bytes):
    """With all five channels stalling, IDs overtaking, and every manner of a slave: a sample."""
    for seed in range(200, 205):
        program = ConcurrentProgram(CONFIGS[name], seed)
        program.random_instructions(60)
        for jitter in (None, 3 * seed, 3 * seed + 1):
            options = {"jitter_seed": jitter, "latency": 2 + seed % 40, "interface": "axi"}
            parameters = RtlParameters(port_bytes=port_bytes)
            with Tsim(CONFIGS[name], parameters=parameters, **options) as device:
                run_random(program, program.concurrent_stream(), device)


@pytest.mark.parametrize("case", ["program/1", "stream/2", "operator/2", "operator/8"])
def test_all_sides_give_the_same_with_all_extensions(case):
    """A sample of `trials/all_sides.py`: interpreter, NumPy, fsim, bare RTL, RTL over AXI."""
    result = run_case(case)
    assert result["differs"] == []
    assert "post" in result["extensions"]


def test_random_serial_programs_take_about_the_cycles_of_the_bare_port():
    """A request takes a cycle more, which a serial program sees each time."""
    for seed in range(6):
        program = RandomProgram(CONFIGS["tiny"], seed)
        program.random_instructions(60)
        cycles = []
        for interface in ("port", "axi"):
            with Tsim("tiny", interface=interface) as device:
                cycles.append(run_random(program, program.stream(), device))
                requests = device.performance().port_read_bursts
                requests += device.performance().port_write_bursts
        assert cycles[0] < cycles[1] <= cycles[0] + 3 * requests


def tutorial_conv2d() -> tuple[Program, list[np.ndarray], np.ndarray]:
    op = vtaops.Conv2d(
        in_channels=128, out_channels=128, height=14, width=14, kernel=3, padding=1, shift=8
    )
    arrays = random_arguments(op, np.random.default_rng(5))
    return vtaops.compile(op, "pynq"), arrays, evaluate(op, arrays)


def test_a_quarter_of_the_conv2d_of_the_tutorial_takes_the_cycles_of_the_bare_port_over_axi():
    program, arrays, expected = tutorial_conv2d()
    cycles = []
    for interface in ("port", "axi"):
        with Tsim("pynq", interface=interface) as device, Fsim("pynq") as fsim:
            np.testing.assert_array_equal(program.run(device, *arrays), expected)
            program.run(fsim, *arrays)
            assert device.stats() == fsim.stats() == program.stats()
            cycles.append(device.performance().cycles)
    assert cycles[1] == pytest.approx(cycles[0], rel=1e-3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_hand_equal_fsim_over_axi(name):
    program = PROGRAMS[name]()
    rng = np.random.default_rng(1)
    arrays = [
        rng.integers(-128, 128, buffer.shape).astype(buffer.dtype) for buffer in program.inputs
    ]
    with Fsim(program.config) as fsim, Tsim(program.config, interface="axi") as tsim:
        np.testing.assert_array_equal(program.run(tsim, *arrays), program.run(fsim, *arrays))
        assert tsim.stats() == fsim.stats()


# --------------------------------------------------------------------------------- faults


def start(device: Tsim, instructions: list) -> None:
    """Start instructions without the reset of `Tsim.launch`."""
    encoding = Encoding.of(device.config)
    words = words_to_array([encoding.encode(instruction) for instruction in instructions])
    address = place(device, words).address
    registers(device).start(address, len(instructions))


def advance_singly(device: Tsim, cycles: int) -> None:
    """Go on also after a fault."""
    for _ in range(cycles):
        device.advance(1)


def registers(device: Tsim) -> RtlRegisters:
    class Page:
        read, write = device.read_register, device.write_register

    return RtlRegisters(lambda base, length: Page, TARGETS["pynq"].register_base)


LOST_LOAD = Load(memory=Memory.WGT, dram_base=1 << 16, y_size=40, x_size=1, x_stride=9, push_next=1)
LOST_STORE = Store(memory=Memory.OUT, dram_base=1 << 16, y_size=40, x_size=1, x_stride=9,
                   push_prev=1)  # fmt: skip


@pytest.mark.parametrize(
    ("instruction", "finish", "client"),
    [
        (LOST_LOAD, Finish(pop_prev=1), "load unit"),
        (LOST_STORE, Finish(pop_next=1), "store unit"),
    ],
)
@pytest.mark.parametrize("jitter_seed", [None, 1, 2, 3])
def test_an_error_response_is_a_fault_and_no_burst_begins_after_it(
    instruction, finish, client, jitter_seed
):
    with Tsim("tiny", interface="axi", jitter_seed=jitter_seed) as device:
        encoding = Encoding.of(device.config)
        image = words_to_array([encoding.encode(insn) for insn in (instruction, finish, Finish())])
        buffer = place(device, image)
        with pytest.raises(DeviceError, match=f"{client} accessed DRAM at .* not allocated"):
            device.launch(buffer.address, 2, 10.0)
        advance_singly(device, 2000)  # a burst that begins would be a violation
        assert device._model.outstanding() == 0
        assert device.read_register(RtlRegisters.FAULTS) == MEMORY_ERROR
        assert "answered an access with an error" in registers(device).failure()
        device.launch(buffer.address + 2 * INSTRUCTION_BYTES, 1, 10.0)


@pytest.mark.parametrize("jitter_seed", [None, 1, 2, 3])
def test_stop_ends_what_is_under_way_and_the_next_run_is_right(jitter_seed):
    """Without a reset from outside: a burst that came too late would spoil the next run."""
    program = PROGRAMS["double_buffered"]()
    rng = np.random.default_rng(2)
    arrays = [
        rng.integers(-128, 128, buffer.shape).astype(buffer.dtype) for buffer in program.inputs
    ]
    with (
        Tsim(program.config, interface="axi", jitter_seed=jitter_seed) as device,
        LoadedProgram(program, device) as loaded,
    ):
        expected = loaded.run(*arrays)
        output = loaded._buffers[program.outputs[0].name]
        control, seen = registers(device), set()
        for cycles in range(40, 640, 25):
            control.start(loaded._instructions.address, len(program))
            device.advance(cycles)
            seen.add(device._model.outstanding() > 0)
            control.stop()
            assert device._model.outstanding() == 0
            assert device.read_register(RtlRegisters.CONTROL) == RtlRegisters.QUIET
            assert device.read_register(RtlRegisters.CYCLES_LOW) == 0
        assert True in seen
        device.write(output, np.zeros(output.nbytes, np.uint8))
        control.start(loaded._instructions.address, len(program))
        while not control.finished():
            device.advance(100)
        image = device.read(output, program.outputs[0].nbytes)
        np.testing.assert_array_equal(program.outputs[0].unpack(image), expected)


# ------------------------------------------------------------------- registers and driver


def test_registers_over_axi_lite_are_those_of_the_bare_port():
    program = PROGRAMS["small_gemm"]()
    arrays = [np.ones(buffer.shape, buffer.dtype) for buffer in program.inputs]
    pages = []
    for interface in ("port", "axi"):
        with Tsim(program.config, interface=interface, latency=9) as device:
            program.run(device, *arrays)
            pages.append([device.read_register(offset) for offset in range(0, 0x1000, 4)])
    timing = {RtlRegisters.CYCLES_LOW, *range(RtlRegisters.COUNTERS, 0x1000)}
    for offset, (port, axi) in enumerate(zip(*pages, strict=True)):
        if 4 * offset not in timing:
            assert port == axi, hex(4 * offset)
    assert pages[1][RtlRegisters.COUNT // 4] == len(program)
    for page in pages:
        assert page[RtlRegisters.CONTROL // 4] == RtlRegisters.FINISHED | RtlRegisters.QUIET
        assert any(page[RtlRegisters.COUNTERS // 4 :])


@pytest.fixture
def board(tmp_path):
    """A virtual board whose registers are those of the RTL, and its driver."""
    board = VirtualBoard(CONFIGS["pynq"], RegisterMap.RTL, simulator="tsim")
    accelerator = Accelerator(CONFIGS["pynq"], RegisterMap.RTL, board)
    path = tmp_path / "vta.bit"
    path.write_bytes(bit_file().to_bytes())
    accelerator.program(path)
    return board, accelerator


def test_the_driver_of_the_board_runs_the_rtl_through_its_registers(board):
    op = vtaops.Conv2d(in_channels=32, out_channels=32, height=7, width=7, kernel=3, padding=1)
    arrays = random_arguments(op, np.random.default_rng(1))
    device = PynqDevice(board[1])
    with Session(device) as session:
        for _ in range(3):  # no reset in between
            np.testing.assert_array_equal(session.run(op, *arrays), evaluate(op, arrays))
        assert board[1].registers()["cycles low"] > 0


def test_the_driver_names_faults_and_recovers_from_a_run_without_end(board):
    encoding = Encoding.of(CONFIGS["pynq"])
    device = PynqDevice(board[1])
    buffer = device.alloc(4096)
    beyond = Load(memory=Memory.INP, dram_base=buffer.address // 16, sram_base=2047, x_size=9,
                  y_size=1, push_next=1)  # fmt: skip
    failing = (beyond, Finish(pop_prev=1))
    device.write(buffer, words_to_array([encoding.encode(i) for i in failing]))
    with pytest.raises(DeviceError, match="LOAD writes beyond the end of its scratchpad"):
        device.launch(buffer.address, 2, 10.0)
    buffer = device.alloc(4096)
    forever = [Gemm(uop_end=1, iter_out=16383, iter_in=16383), Finish()]
    device.write(buffer, words_to_array([encoding.encode(i) for i in forever]))
    with pytest.raises(DeviceTimeout):
        device.launch(buffer.address, 2, 0.02)
    with pytest.raises(BufferLost):
        device.launch(buffer.address, 2, 0.02)
    buffer = device.alloc(4096)
    device.write(buffer, words_to_array([encoding.encode(Finish())]))
    device.launch(buffer.address, 1, 10.0)


def test_a_timeout_stops_the_logic_before_it_is_programmed_again(board, monkeypatch):
    events = []
    stop, program = RtlRegisters.stop, VirtualBoard.program
    monkeypatch.setattr(RtlRegisters, "stop", lambda self: (events.append("stop"), stop(self)))
    monkeypatch.setattr(
        VirtualBoard, "program", lambda self, data: (events.append("program"), program(self, data))
    )
    device = PynqDevice(board[1])
    buffer = device.alloc(4096)
    encoding = Encoding.of(CONFIGS["pynq"])
    device.write(buffer, words_to_array([encoding.encode(Load(memory=Memory.INP, pop_next=1))]))
    with pytest.raises(DeviceError, match="load waits for a token"):
        device.launch(buffer.address, 1, 10.0)
    device.alloc(16)
    assert events == ["stop", "program"]


def test_upstreams_cores_are_not_in_the_rtl():
    with pytest.raises(ConfigError, match="use register map 'rtl'"):
        VirtualBoard(CONFIGS["pynq"], RegisterMap.HLS, simulator="tsim")


# -------------------------------------------------------------------------------- building


@pytest.mark.parametrize(
    ("name", "port_bytes"), [("pynq", 8), ("tiny", 64), ("4x8_i8w8a32_15_16_16_18", 16)]
)
def test_the_shell_has_no_warnings_and_its_top_is_verilog(name, port_bytes, tmp_path):
    parameters = RtlParameters(port_bytes=port_bytes, address_bits=32)
    done = lint(systemverilog_package(CONFIGS[name], parameters), tmp_path, port_bytes, 32)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("ADDR_BITS = 32;", "ADDR_BITS = 40;", "the widths of the AXI ports differ"),
        ("BURST_BEATS = 16;", "BURST_BEATS = 512;", "an AXI4 burst has at most 256 words"),
    ],
)
def test_parameters_of_the_shell_are_checked_at_elaboration(right, wrong, message, tmp_path):
    parameters = RtlParameters(address_bits=32, load_buffer_beats=1024)
    package = systemverilog_package(CONFIGS["tiny"], parameters)
    changed = package.replace(right, wrong)
    assert changed != package
    done = lint(changed, tmp_path, 8, 32)
    assert done.returncode != 0
    assert message in done.stderr


def test_the_width_of_the_top_is_checked_at_elaboration(tmp_path):
    package = systemverilog_package(CONFIGS["tiny"], RtlParameters(address_bits=32))
    done = lint(package, tmp_path, 16, 32)
    assert done.returncode != 0
    assert "the widths of the AXI ports differ from those of vta_pkg" in done.stderr


def lint(
    package: str, folder: Path, port_bytes: int, address_bits: int
) -> subprocess.CompletedProcess[str]:
    tools = build.find_tools()
    file = folder / "vta_pkg.sv"
    file.write_text(package)
    command = [tools.verilator, "--lint-only", "-Wall", "+1364-2005ext+v", "--top-module"]
    command += ["vta_axi", f"-GPORT_BYTES={port_bytes}", f"-GADDRESS_BITS={address_bits}"]
    return subprocess.run(
        [*command, file, *sources(), *axi_sources()],
        capture_output=True,
        text=True,
        check=False,
        env={"VERILATOR_ROOT": str(tools.verilator_root)},
    )


def test_bursts_longer_than_axi_allows_are_refused():
    parameters = RtlParameters(burst_beats=512, load_buffer_beats=1024)
    with pytest.raises(ConfigError, match="burst_beats is 512; an AXI4 burst has at most 256"):
        Tsim("tiny", interface="axi", parameters=parameters)
    with pytest.raises(ConfigError, match="interface is 'ahb'"):
        Tsim("tiny", interface="ahb")


# ------------------------------------------------------------------ the checks themselves

WRONG = [
    ("axi_words.sv", "left == LENGTH_BITS'(2)", "left == LENGTH_BITS'(WRONG ? 3 : 2)", "WLAST"),
    ("axi_bursts.sv", "else if (out_ready) out_valid", "else if (out_ready || WRONG) out_valid",
     "AR changed before"),
    ("stream_pkg.sv", "- BEATS_BITS'(address[CUT_BITS-1:SHIFT])",
     "- (WRONG ? '0 : BEATS_BITS'(address[CUT_BITS-1:SHIFT]))",
     "crosses a multiple of 4 KiB"),
    ("axi_shell.sv", "hold = stopping || core_reset || fault",
     "hold = stopping || core_reset || fault && !(WRONG)", "a read burst began after a fault"),
]  # fmt: skip


@pytest.fixture(scope="module")
def wrong_shells(tmp_path_factory):
    """One model of all wrong shells: as right as it is left, or wrong in the one that is chosen."""
    changes = [(file, right, wrong) for file, right, wrong, _ in WRONG]
    folder = tmp_path_factory.mktemp("wrong")
    return build_wrong_models(folder, CONFIGS["tiny"], RtlParameters(), changes)


def trial(device: Tsim, message: str) -> None:
    """Run a random program behind what a wrong shell would answer with `message`."""
    program = RandomProgram(CONFIGS["tiny"], 1)
    program.random_instructions(40)
    place(device, program.image)
    far = Load(memory=Memory.UOP, dram_base=(1 << 20) + 1000, x_size=31, y_size=1)
    extra = [far] if "4 KiB" in message else [LOST_LOAD] if "fault" in message else []
    start(device, [*extra, *program.stream()])
    advance_singly(device, 5000)


@pytest.mark.parametrize(("number", "message"), [(k, w[-1]) for k, w in enumerate(WRONG, 1)])
def test_wrong_shells_are_caught(number, message, wrong_shells, monkeypatch):
    monkeypatch.setattr(tsim_device, "_build", lambda *_: wrong_shells)
    library = ctypes.CDLL(str(wrong_shells))
    library.choose_mutant(0)
    with Tsim("tiny", interface="axi", jitter_seed=1) as device:
        trial(device, message)
    library.choose_mutant(number)
    with (
        Tsim("tiny", interface="axi", jitter_seed=1) as device,
        pytest.raises(DeviceError, match=message),
    ):
        trial(device, message)


def test_a_session_opens_it_by_name():
    program = PROGRAMS["small_gemm"]()
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-128, 128, b.shape).astype(b.dtype) for b in program.inputs]
    with open_device("tsim-axi", program.config) as device, Fsim(program.config) as fsim:
        np.testing.assert_array_equal(program.run(device, *arrays), program.run(fsim, *arrays))
        assert "interface='axi'" in repr(device)
