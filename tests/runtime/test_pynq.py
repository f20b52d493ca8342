"""The driver for boards, against the virtual board in the same process."""

import dataclasses
import sys

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS

import vtaops
from trials.boards import ARRAYS, CONFIG, EXPECTED, OP, bit_file, programmed
from trials.faults import Fault
from vtaops import HardwareConfig, Session
from vtaops.base.errors import BufferLost
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.board.virtual import VirtualBoard
from vtaops.errors import DeviceError, DeviceTimeout, UnsupportedError
from vtaops.hardware.registers import HlsRegisters, RegisterMap, RtlRegisters
from vtaops.machine.capabilities import FULL, HLS_2020, PORTABLE
from vtaops.machine.config import TARGETS, Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Finish, Load, words_to_array
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import LoadedProgram
from vtaops.runtime.device import performance_of
from vtaops.runtime.fsim import Fsim
from vtaops.runtime.instruction_check import check_instructions
from vtaops.runtime.tsim import Tsim

DESIGNS = list(RegisterMap)


@pytest.fixture(params=DESIGNS, ids=lambda design: design.value)
def hardware(request, tmp_path):
    return programmed(tmp_path, request.param)


def test_results_and_counters_equal_the_simulator(hardware):
    board, accelerator = hardware
    with Session(PynqDevice(accelerator)) as session, Session("fsim", CONFIG) as reference:
        for _ in range(3):
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
            reference.run(OP, *ARRAYS)
        assert session.stats == reference.stats == board.dram.stats()
        session.reset_stats()
        assert session.stats == vtaops.Statistics()


def test_buffers_are_zeroed_and_hold_their_bytes(hardware):
    device = PynqDevice(hardware[1])
    buffer = device.alloc(5000)
    assert buffer.address % 4096 == 0
    assert not device.read(buffer, 5000).any()
    device.write_at(buffer, 100, np.arange(7, dtype=np.int32))
    expected = np.zeros(5000, np.uint8)
    expected[100:128] = np.arange(7, dtype=np.int32).view(np.uint8)
    assert np.array_equal(device.read(buffer, 5000), expected)
    assert np.array_equal(device.read(buffer, 40, 99), expected[99:139])


def test_a_partial_write_after_a_run_keeps_what_the_run_wrote(hardware):
    device = PynqDevice(hardware[1])
    program = vtaops.compile(OP, CONFIG)
    with LoadedProgram(program, device) as loaded:
        loaded.run(*ARRAYS)
        output = loaded._buffers[program.outputs[0].name]
        device.write_at(output, 0, np.full(3, 77, np.uint8))
        image = device.read(output, program.outputs[0].nbytes)
    expected = program.outputs[0].layout.pack(EXPECTED).reshape(-1).view(np.uint8).copy()
    expected[:3] = 77
    assert np.array_equal(image, expected)


@pytest.mark.parametrize("forgotten", ["flush", "invalidate"])
def test_a_forgotten_cache_operation_shows_as_wrong_data(hardware, forgotten, monkeypatch):
    board, accelerator = hardware
    buffer_class = type(board.allocate((16,), np.uint8, cacheable=1))
    device = PynqDevice(accelerator)
    program = vtaops.compile(OP, CONFIG)
    with LoadedProgram(program, device) as loaded:
        loaded.run(*ARRAYS)
        other = [np.ascontiguousarray(array[..., ::-1]) for array in ARRAYS]
        assert not np.array_equal(loaded.run(*other), EXPECTED)
        monkeypatch.setattr(buffer_class, forgotten, lambda self: None)
        assert not np.array_equal(loaded.run(*ARRAYS), EXPECTED)


def test_a_hang_ends_in_time_and_the_next_call_works(hardware):
    board, accelerator = hardware
    with Session(PynqDevice(accelerator), timeout=0.05) as session:
        session.run(OP, *ARRAYS)
        board.faults.inject(Fault.HANG)
        with pytest.raises(DeviceTimeout, match="did not reach FINISH within"):
            session.run(OP, *ARRAYS)
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)


def test_the_done_flag_of_the_run_before_is_not_taken_for_this_one(hardware):
    board, accelerator = hardware
    other = [np.ascontiguousarray(array[..., ::-1]) for array in ARRAYS]
    with Session(PynqDevice(accelerator)) as session:
        session.run(OP, *other)
        for _ in range(3):
            board.faults.inject(Fault.LATE_DONE)
            assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
            session.run(OP, *other)
        assert not board.faults.pending()


def test_a_flag_that_stays_is_a_timeout(tmp_path, monkeypatch):
    _, accelerator = programmed(tmp_path)
    monkeypatch.setattr("vtaops.board.pynq._CLEAR_SECONDS", 0.02)
    with Session(PynqDevice(accelerator)) as session:
        session.run(OP, *ARRAYS)
        with monkeypatch.context() as patch:
            patch.setattr(HlsRegisters, "finished", lambda self: True)
            with pytest.raises(DeviceTimeout, match="did not clear"):
                session.run(OP, *ARRAYS)
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)


def test_our_rtl_names_a_deadlock_and_a_fault(tmp_path):
    _, accelerator = programmed(tmp_path, RegisterMap.RTL)
    device = PynqDevice(accelerator)
    encoding = Encoding.of(CONFIG)
    buffer = device.alloc(4096)
    starving = [
        encoding.encode(Load(memory=Memory.INP, pop_next=1, push_next=1)),
        encoding.encode(Finish(pop_prev=1)),
    ]
    device.write(buffer, words_to_array(starving))
    with pytest.raises(DeviceError, match="waits for a token"):
        device.launch(buffer.address, 2, 5.0)
    buffer = device.alloc(4096)  # the logic is programmed again
    beyond = [encoding.encode(Load(memory=Memory.INP, sram_base=2047, x_size=9, y_size=1)), 3]
    device.write(buffer, words_to_array(beyond))
    with pytest.raises(DeviceError, match="fault"):
        device.launch(buffer.address, 2, 5.0)


def test_a_moment_of_standstill_is_no_deadlock(tmp_path, monkeypatch):
    board, accelerator = programmed(tmp_path, RegisterMap.RTL)
    seen = []

    def failure(self: RtlRegisters) -> str:
        seen.append(self.finished())
        return "" if seen[-1] else "all wait"

    monkeypatch.setattr(RtlRegisters, "failure", failure)
    with Session(PynqDevice(accelerator)) as session:
        board.faults.inject(Fault.LATE_DONE)
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)
    assert False in seen


def test_upstreams_cores_run_into_the_timeout_where_they_cannot_tell(tmp_path):
    _, accelerator = programmed(tmp_path)
    device = PynqDevice(accelerator)
    buffer = device.alloc(4096)
    starving = [Encoding.of(CONFIG).encode(Load(memory=Memory.INP, pop_next=1)), 3]
    device.write(buffer, words_to_array(starving))
    with pytest.raises(DeviceTimeout):
        device.launch(buffer.address, 2, 0.02)
    with pytest.raises(BufferLost, match="load the program again"):
        device.launch(buffer.address, 2, 0.02)


def test_nothing_is_touched_before_a_bitstream_is_there():
    accelerator = Accelerator(CONFIG, RegisterMap.HLS, VirtualBoard(CONFIG))
    assert accelerator.registers() == {}
    with pytest.raises(DeviceError, match="no bitstream"):
        PynqDevice(accelerator).alloc(16)
    with pytest.raises(DeviceError, match="no bitstream"):
        accelerator.launch(4096, 1, 1.0, pinned=0, since=-1, generation=0)


def test_refused_programming_leaves_no_bitstream_and_can_be_repeated(tmp_path):
    board, accelerator = programmed(tmp_path)
    board.faults.inject(Fault.REFUSE_PROGRAMMING)
    with pytest.raises(DeviceError, match="cannot program the logic"):
        accelerator.program(tmp_path / "vta.bit")
    assert not accelerator.programmed
    with pytest.raises(DeviceError, match="no bitstream"):
        PynqDevice(accelerator).alloc(16)
    accelerator.program(tmp_path / "vta.bit")
    assert PynqDevice(accelerator).alloc(16).nbytes == 16


def test_the_virtual_fpga_manager_takes_only_its_part(tmp_path):
    _, accelerator = programmed(tmp_path)
    (tmp_path / "other.bit").write_bytes(bit_file("7z010clg400").to_bytes())
    with pytest.raises(DeviceError, match="7z010"):
        accelerator.program(tmp_path / "other.bit")


def test_a_loaded_program_survives_that_another_session_programs_the_board(hardware, tmp_path):
    _, accelerator = hardware
    with Session(PynqDevice(accelerator)) as session:
        session.run(OP, *ARRAYS)
        accelerator.program(tmp_path / "vta.bit")
        assert np.array_equal(session.run(OP, *ARRAYS), EXPECTED)


def test_devices_on_one_accelerator_have_their_own_buffers_and_counters(hardware):
    board, accelerator = hardware
    first, second = PynqDevice(accelerator), PynqDevice(accelerator)
    with Session(first) as session:
        session.run(OP, *ARRAYS)
        assert second.stats() == vtaops.Statistics()
        buffer = second.alloc(64)
        for call in (first.free, lambda b: first.read(b, 1), lambda b: first.write(b, ARRAYS[0])):
            with pytest.raises(DeviceError, match="not allocated on this device"):
                call(buffer)
        with pytest.raises(DeviceError, match="one buffer of this device"):
            first.launch(buffer.address, 1, 1.0)
    second.close()
    with pytest.raises(DeviceError, match="closed"):
        second.alloc(1)
    assert len(board.blocks) <= 1  # what clears the done flag


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d, b: d.alloc(0), r"an integer in 1\.\.4294967296"),
        (lambda d, b: d.read(b, 65), "exceed"),
        (lambda d, b: d.write(b, np.zeros(65, np.uint8)), "exceed"),
        (lambda d, b: d.write_at(b, -1, np.zeros(1, np.uint8)), "the offset in bytes is -1"),
        (lambda d, b: d.launch(b.address, 5, 1.0), "one buffer"),
        (lambda d, b: d.launch(b.address, 0, 1.0), "one buffer"),
        (lambda d, b: d.launch(b.address + 8, 1, 1.0), "multiple of 16"),
        (lambda d, b: d.launch(b.address, 1, 0.0), "positive"),
    ],
)
def test_refused_calls(tmp_path, call, message):
    device = PynqDevice(programmed(tmp_path)[1])
    with pytest.raises(DeviceError, match=message):
        call(device, device.alloc(64))


def test_a_simulator_target_is_no_board():
    with pytest.raises(DeviceError, match="not a board"):
        Accelerator(HardwareConfig.load("fsim"), interface=object())


@pytest.mark.parametrize(("options", "expected"), [({}, 100), ({"clock_mhz": 80}, 80)])
def test_the_logic_gets_its_clock(tmp_path, options, expected):
    board, _ = programmed(tmp_path, **options)
    assert board.Clocks.fclk0_mhz == expected


@pytest.mark.parametrize("clock", [0, -5, 1001, float("nan")])
def test_a_clock_that_cannot_be_is_refused(clock):
    with pytest.raises(DeviceError, match=r"it must be 1\.\.1000"):
        Accelerator(CONFIG, interface=VirtualBoard(CONFIG), clock_mhz=clock)


def test_without_pynq_the_message_says_where_to_go():
    with pytest.raises(DeviceError, match=r"pynq://HOST"):
        Accelerator(CONFIG)


def test_a_folder_named_pynq_is_not_taken_for_the_package(tmp_path, monkeypatch):
    (tmp_path / "pynq").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynq", raising=False)
    with pytest.raises(DeviceError, match="a folder of that name"):
        Accelerator(CONFIG)
    monkeypatch.delitem(sys.modules, "pynq", raising=False)


@pytest.mark.parametrize("address", [0, 4097, 1 << 32])
def test_addresses_that_vta_cannot_use_are_refused(tmp_path, monkeypatch, address):
    board, accelerator = programmed(tmp_path)

    class Elsewhere:
        physical_address = address

    monkeypatch.setattr(board, "allocate", lambda *args, **kwargs: Elsewhere())
    with pytest.raises(DeviceError, match="allocated address"):
        PynqDevice(accelerator).alloc(64)


def test_register_offsets_are_those_of_the_reference():
    """Reference 5.1 (HLS block protocol) and sim/tsim/registers.sv, written out."""
    log = []

    class Page:
        def __init__(self, base, length):
            self.base = base
            assert length == 0x1000

        def write(self, offset, data):
            log.append((self.base + offset, data))

        value = 1

        def read(self, offset):
            log.append((self.base + offset, None))
            return self.value

    HlsRegisters(Page, TARGETS["pynq"].register_base).start(0x16800000, 234)
    assert log == [
        (0x43C00010, 234),
        (0x43C00018, 0x16800000),
        (0x43C01010, 0),
        (0x43C01018, 0),
        (0x43C02020, 0),
        (0x43C02028, 0),
        (0x43C03010, 0),
        (0x43C00000, 0x01),
        (0x43C01000, 0x81),
        (0x43C02000, 0x81),
        (0x43C03000, 0x81),
    ]
    log.clear()
    assert HlsRegisters(Page, TARGETS["ultra96"].register_base).finished()
    assert log == [(0xA0002018, None)]
    log.clear()
    registers = RtlRegisters(Page, TARGETS["zcu104"].register_base)
    with pytest.raises(DeviceError, match="still runs another program"):
        registers.start(0x1000, 7)
    assert log == [(0xA0000000, None)]
    log.clear()
    Page.value = 0
    registers.start(0x1000, 7)
    origins = [(0xA0000000 + offset, 0) for offset in (0x10, 0x14, 0x18, 0x1C, 0x20)]
    given = [(0xA0000008, 7), (0xA000000C, 0x1000), *origins]
    assert log == [(0xA0000000, None), *given, (0xA0000000, 1)]


# -------------------------------------------------------------------------- capabilities


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Alu(alu_op=AluOp.MUL, use_imm=1, imm=3), "multiplies"),
        (Alu(alu_op=AluOp.SHR, use_imm=1, imm=16), "by more than 15"),
        (Alu(alu_op=AluOp.SHR, use_imm=1, imm=-16), "by more than 15"),
        (Load(memory=Memory.ACC_8BIT, x_size=1, y_size=1), "8-bit"),
        (Load(memory=Memory.ACC, x_size=1, y_size=1, y_pad_top=1), "pads accumulators"),
        (Load(memory=Memory.WGT, x_size=1, y_size=1, x_pad_right=1), "pads weights"),
    ],
)
def test_what_upstreams_bitstream_cannot_do_is_refused(instruction, message):
    words = words_to_array([Encoding.of(CONFIG).encode(i) for i in (Load(), instruction)])
    check_instructions(CONFIG, words, FULL)
    with pytest.raises(UnsupportedError, match=rf"instruction 1 .*{message}"):
        check_instructions(CONFIG, words, HLS_2020)


@pytest.mark.parametrize(
    "instruction",
    [
        Alu(alu_op=AluOp.SHR, use_imm=1, imm=15),
        Alu(alu_op=AluOp.SHR, use_imm=1, imm=-15),
        Alu(alu_op=AluOp.SHR),
        Alu(alu_op=AluOp.MAX, use_imm=1, imm=100),
        Load(memory=Memory.INP, x_size=1, y_size=2, y_pad_top=1),
        Load(memory=Memory.ACC_8BIT, x_size=0, y_size=1),
    ],
)
def test_what_upstreams_bitstream_can_do_is_not_refused(instruction):
    words = words_to_array([Encoding.of(CONFIG).encode(instruction)])
    check_instructions(CONFIG, words, HLS_2020)


def test_a_shift_by_a_tile_is_refused_where_hardware_lacks_it():
    words = words_to_array([Encoding.of(CONFIG).encode(Alu(alu_op=AluOp.SHR))])
    with pytest.raises(UnsupportedError, match="shifts by a tile"):
        check_instructions(CONFIG, words, PORTABLE)


def test_a_refused_program_is_not_started(tmp_path):
    board, accelerator = programmed(tmp_path)
    device = PynqDevice(accelerator)
    buffer = device.alloc(64)
    encoding = Encoding.of(CONFIG)
    device.write(buffer, words_to_array([encoding.encode(Alu(alu_op=AluOp.MUL)), 3]))
    with pytest.raises(UnsupportedError, match="multiplies"):
        device.launch(buffer.address, 2, 1.0)
    assert board.dram.stats() == vtaops.Statistics()


def test_a_bias_that_does_not_fill_its_last_tile_runs_on_upstreams_bitstream(tmp_path):
    """The compiler asks for the capabilities of the device."""
    op = vtaops.Gemm(m=1, n=100, k=70, shift=2, bias=True)
    arrays = random_arguments(op, np.random.default_rng(6))
    with Session(PynqDevice(programmed(tmp_path)[1])) as session:
        assert np.array_equal(session.run(op, *arrays), evaluate(op, arrays))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_hand_written_programs_run_as_on_the_simulator(name, tmp_path):
    program = PROGRAMS[name]() if callable(PROGRAMS[name]) else PROGRAMS[name]
    config = dataclasses.replace(program.config, target="pynq", name="tiny on pynq")
    _, accelerator = programmed(tmp_path, RegisterMap.RTL, config)
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-99, 99, b.shape).astype(b.dtype) for b in program.inputs]
    assert np.array_equal(
        program.run(PynqDevice(accelerator), *arrays), program.run(Fsim(program.config), *arrays)
    )


def test_a_virtual_board_in_front_of_the_rtl(tmp_path):
    config = dataclasses.replace(HardwareConfig.load("tiny"), target="pynq", name="tiny on pynq")
    board = VirtualBoard(config, RegisterMap.RTL, simulator="tsim")
    accelerator = Accelerator(config, RegisterMap.RTL, board)
    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    accelerator.program(tmp_path / "vta.bit")
    op = vtaops.Conv2d(
        in_channels=8, out_channels=16, height=5, width=5, kernel=3, padding=1, shift=4
    )
    arrays = random_arguments(op, np.random.default_rng(5))
    with Session(PynqDevice(accelerator)) as session:
        for _ in range(2):
            assert np.array_equal(session.run(op, *arrays), evaluate(op, arrays))
        with Session("tsim-axi", config) as reference:
            reference.run(op, *arrays)
            once = reference.device.performance()
        assert once.cycles > 0
        assert session.device.performance() == once + once
        accelerator.program(tmp_path / "vta.bit")  # its counters start again
        session.reset_stats()
        session.run(op, *arrays)
        assert session.device.performance() == once


def test_upstreams_design_counts_no_cycles(tmp_path):
    _, accelerator = programmed(tmp_path)
    with PynqDevice(accelerator) as device:
        with pytest.raises(UnsupportedError, match="counts no cycles"):
            device.performance()
        assert performance_of(device) is None


def test_our_register_map_is_that_of_the_rtl():
    """The registers of the driver, against the RTL itself in simulation."""
    op = vtaops.Gemm(m=2, n=8, k=8, shift=0)
    program = vtaops.compile(op, "tiny")
    arrays = random_arguments(op, np.random.default_rng(4))
    device = Tsim("tiny")

    class Page:
        def __init__(self, base, length):
            assert (base, length) == (TARGETS["pynq"].register_base, 0x1000)

        def read(self, offset):
            return device._model.csr_read(offset)

        def write(self, offset, data):
            device._model.csr_write(offset, data)

    registers = RtlRegisters(Page, TARGETS["pynq"].register_base)
    with LoadedProgram(program, device) as loaded:
        result = loaded.run(*arrays)
        output = loaded._buffers[program.outputs[0].name]
        device.write(output, np.zeros(output.nbytes, np.uint8))
        device._model.reset()
        assert not registers.finished()
        registers.start(loaded._instructions.address, len(program))
        device._model.run(100_000)
        assert registers.finished()
        assert registers.failure() == ""
        assert registers.values()["count"] == len(program)
        assert registers.values()["cycles low"] > len(program)
        image = device.read(output, program.outputs[0].nbytes)
        assert np.array_equal(program.outputs[0].unpack(image), result)
        starving = [Encoding.of(program.config).encode(Load(memory=Memory.INP, pop_next=1))]
        device.write(loaded._instructions, words_to_array(starving))
        device._model.reset()
        registers.start(loaded._instructions.address, 1)
        device._model.run(10_000)
        assert registers.failure() == "load waits for a token of compute"
    assert np.array_equal(result, evaluate(op, arrays))
