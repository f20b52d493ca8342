"""Capabilities: what a device lacks is refused by compiler, verifier and simulator alike."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.checks import broken_rule, check
from helpers.program_builder import TINY, ProgramBuilder, burst

import vtaops
from vtaops import Conv2d, Elementwise, HardwareConfig, Session, Tiling
from vtaops.compiler import search
from vtaops.errors import DeviceError, UnsupportedError
from vtaops.machine.capabilities import (
    CHISEL,
    FSIM,
    FULL,
    HLS_2020,
    PORTABLE,
    PRESETS,
    Feature,
    find,
    of_target,
)
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, AluOp, Load
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Role
from vtaops.program.builder import one_row
from vtaops.program.verifier import TOKEN_CAPACITY, Rule
from vtaops.runtime import LoadedProgram
from vtaops.runtime.fsim import Fsim
from vtaops.runtime.instruction_check import check_instructions
from vtaops.schedule import default_tiling


@pytest.fixture
def loaded_anyway(monkeypatch):
    """A program is not refused when it is loaded: the device must refuse it by its own rules."""
    monkeypatch.setattr("vtaops.runtime.executor.check_instructions", lambda *_: None)


def around(*middle, config=TINY):
    """Load two accumulators, run some instructions on the compute or load unit, store one."""
    builder = ProgramBuilder(config)
    data = builder.tiles("data", Role.INPUT, 2, Memory.ACC)
    weights = builder.tiles("weights", Role.PARAMETER, 1, Memory.WGT)
    result = builder.tiles("res", Role.OUTPUT, 1)
    builder.load_micro_ops(builder.micro_ops((0, 1, 0)), 1)
    builder.load(Memory.ACC, data, 0, 0, 2)
    for instruction in middle:
        buffer = -1
        if isinstance(instruction, Load):
            buffer = weights if instruction.memory == Memory.WGT else data
        builder.add(instruction, buffer)
    builder.alu(AluOp.ADD, 0, 1, imm=0, push_next=1)
    builder.store(result, 0, 0, 1, pop_prev=1, push_prev=1)
    builder.finish(pop_next=1)
    return builder.build()


def alu(op, imm=None):
    operand = {} if imm is None else {"use_imm": 1, "imm": imm}
    return Alu(uop_end=1, iter_out=1, iter_in=1, alu_op=op, **operand)


def padded(memory):
    one = one_row(Load, memory, 0, 0, 1)
    waits = {"push_next": 1} if memory == Memory.WGT else {}
    return replace(one, x_pad_right=1, **waits)


USES = {
    Feature.WEIGHT_PADDING: [padded(Memory.WGT), replace(alu(AluOp.ADD, 0), pop_prev=1)],
    Feature.ACC_PADDING: [padded(Memory.ACC)],
    Feature.MUL: [alu(AluOp.MUL, 3)],
    Feature.ACC_8BIT: [one_row(Load, Memory.ACC_8BIT, 0, 0, 1)],
    Feature.LONG_SHIFT: [alu(AluOp.SHR, 16)],
    Feature.TENSOR_SHIFT: [alu(AluOp.SHR)],
    Feature.EMPTY_ROWS: [replace(one_row(Load, Memory.ACC, 0, 0, 1), y_size=0, y_pad_top=1)],
}


def refused_by_a_board(program, capabilities):
    try:
        check_instructions(program.config, program.instructions, capabilities)
    except UnsupportedError:
        return True
    return False


def images():
    return np.ones((2, 1, 8), np.int32), np.ones((1, 8, 8), np.int8)


CASES = [*USES.items(), (Feature.ACC_PADDING, [padded(Memory.ACC_8BIT)])]


@pytest.mark.parametrize(("feature", "uses"), CASES, ids=range(len(CASES)))
@pytest.mark.usefixtures("loaded_anyway")
def test_what_is_missing_is_refused(feature, uses):
    program = around(*uses)
    program.verify()
    program.run(Fsim("tiny"), *images())
    lacking = replace(FULL, features=tuple(f for f in Feature if f != feature), name="lacking")
    assert broken_rule(program, capabilities=lacking) is Rule.CAPABILITY
    assert refused_by_a_board(program, lacking)
    with pytest.raises(DeviceError, match="this device has no"):
        program.run(Fsim("tiny", capabilities=lacking), *images())
    assert broken_rule(around(), capabilities=lacking) is None
    around().run(Fsim("tiny", capabilities=lacking), *images())


@pytest.mark.usefixtures("loaded_anyway")
def test_an_alu_of_one_row_is_respected():
    config = HardwareConfig.load("4x8_i8w8a32_15_16_16_18")
    lacking = replace(
        FULL, features=tuple(f for f in Feature if f != Feature.ALU_BATCH), name="lacking"
    )
    assert broken_rule(around(config=config), capabilities=lacking) is Rule.CAPABILITY
    assert refused_by_a_board(around(config=config), lacking)
    data = np.ones((2, 4, 8), np.int32), np.ones((1, 8, 8), np.int8)
    with pytest.raises(DeviceError, match="an ALU for tiles of several rows"):
        around(config=config).run(Fsim(config, capabilities=lacking), *data)
    with pytest.raises(UnsupportedError, match="tiles of one row"):
        vtaops.compile(
            Conv2d(in_channels=8, out_channels=8, height=4, width=4, kernel=3, padding=1),
            config,
            capabilities=CHISEL,
        )


def test_a_bias_of_a_smaller_last_tile_is_loaded_without_padding():
    op = Conv2d(in_channels=8, out_channels=24, height=4, width=4, kernel=1, bias=True)
    check(op, TINY, Tiling(oc=16, ic=8, h=2, w=4), 1, PORTABLE)


@pytest.mark.parametrize("shift", [15, -15, -16])
def test_short_shifts_are_portable(shift):
    expected = None if abs(shift) <= 15 else Rule.CAPABILITY
    assert broken_rule(around(alu(AluOp.SHR, shift)), capabilities=PORTABLE) is expected


@pytest.mark.usefixtures("loaded_anyway")
def test_fewer_micro_ops_split_a_program():
    op = Conv2d(in_channels=16, out_channels=16, height=9, width=9, kernel=5, padding=2)
    small = replace(FULL, name="small", micro_ops=64)
    hardware = HardwareConfig.load("pynq")
    whole = vtaops.compile(op, hardware, capabilities=FULL)
    assert broken_rule(whole, capabilities=replace(small, micro_ops=8)) is Rule.CAPABILITY
    assert refused_by_a_board(whole, replace(small, micro_ops=8))
    arrays = random_arguments(op, np.random.default_rng(0))
    with pytest.raises(DeviceError, match="UOP has 8"):
        whole.run(Fsim("pynq", capabilities=replace(small, micro_ops=8)), *arrays)
    check(op, hardware, default_tiling(op, hardware), 1, small)
    check(op, hardware, default_tiling(op, hardware), 1, replace(small, micro_ops=8))


@pytest.mark.usefixtures("loaded_anyway")
def test_micro_ops_are_not_loaded_beyond_the_memory_of_the_device():
    """A memory of 8 would wrap around, and micro-op 8 replace micro-op 0."""
    small = replace(FULL, name="small", micro_ops=8)
    builder = ProgramBuilder("tiny")
    builder.load_micro_ops(builder.micro_ops((0, 0, 0)), 1, sram=8)
    builder.finish()
    program = builder.build()
    program.verify()
    assert broken_rule(program, capabilities=small) is Rule.CAPABILITY
    assert refused_by_a_board(program, small)
    with pytest.raises(DeviceError, match="UOP has 8"):
        program.run(Fsim("tiny", capabilities=small))


def test_the_token_queues_are_those_of_the_device():
    program = burst(5)
    program.verify(replace(FULL, token_capacity=5))
    assert broken_rule(program, capabilities=replace(FULL, token_capacity=4)) is Rule.TOKEN_CAPACITY
    burst(TOKEN_CAPACITY).verify(FULL)
    assert broken_rule(burst(TOKEN_CAPACITY + 1), capabilities=FULL) is Rule.TOKEN_CAPACITY
    burst(TOKEN_CAPACITY + 1).verify(HLS_2020)


def test_token_queues_overflow():
    """The load unit may be five tokens ahead; some orders of execution let it."""
    program = burst(5)

    def overflows(capacity, seed):
        able = replace(FULL, token_capacity=capacity)
        with LoadedProgram(program, Fsim("tiny", capabilities=able, seed=seed)) as loaded:
            try:
                loaded.device.launch(loaded._instructions.address, len(program), 5.0)
            except DeviceError as error:
                return "its capacity" in str(error)
        return False

    assert any(overflows(1, seed) for seed in range(10))
    assert not any(overflows(5, seed) for seed in range(10))


def stored_after_load():
    builder = ProgramBuilder("tiny")
    data = builder.tiles("data", Role.INPUT, 1, Memory.ACC)
    result = builder.tiles("res", Role.OUTPUT, 1)
    builder.load(Memory.ACC, data, 0, 0, 1, push_next=1)
    builder.store(result, 0, 0, 1, pop_prev=1, push_prev=1)
    builder.finish(pop_next=1)
    return builder.build()


def test_a_separate_output_memory_holds_what_the_alu_wrote():
    """Upstream's simulator stores accumulators; hardware stores what passed the ALU or the GEMM."""
    data = np.full((1, 1, 8), 7, np.int32)
    program = stored_after_load()
    assert (program.run(Fsim("tiny"), data) == 7).all()
    assert (program.run(Fsim("tiny", capabilities=PORTABLE), data) == 0).all()
    assert broken_rule(program) is Rule.STALE_OUTPUT


@pytest.mark.parametrize("name", PRESETS)
def test_presets_compile_and_run(name):
    op = Conv2d(
        in_channels=20,
        out_channels=20,
        height=7,
        width=7,
        kernel=3,
        padding=1,
        bias=True,
        shift=20,
        residual=True,
        residual_shift=17,
    )
    hardware = HardwareConfig.load("pynq")
    check(op, hardware, default_tiling(op, hardware), 3, name)


def test_the_target_decides_unless_told_otherwise():
    multiply = Elementwise(function="multiply", shape=(40,))
    with pytest.raises(UnsupportedError, match=r"needs 'mul', which hls-2020 lacks.*full, fsim"):
        vtaops.compile(multiply, "pynq")
    vtaops.compile(multiply, "pynq", capabilities="full").verify(FULL)
    assert of_target(HardwareConfig.load("pynq")) is HLS_2020
    assert of_target(HardwareConfig.load("tiny")) is FSIM
    assert find("chisel") is CHISEL
    assert find(CHISEL) is CHISEL
    with pytest.raises(vtaops.errors.ConfigError, match="known are full, fsim, hls-2020"):
        find("vhdl")


@pytest.mark.parametrize("given", ["vhdl", 5])
def test_names_are_taken_wherever_capabilities_are(given):
    op, tiny = vtaops.Gemm(m=3, n=5, k=7), HardwareConfig.load("tiny")
    program = vtaops.compile(op, tiny)
    graph = vtaops.Graph("small")
    graph.output(graph.add(vtaops.graph.MaxPool((2, 2), (2, 2)), graph.input("x", (1, 8, 4, 4))))
    uses = [
        lambda name: vtaops.compile(op, tiny, capabilities=name),
        lambda name: vtaops.compile_model(graph, tiny, capabilities=name),
        lambda name: program.verify(name),
        lambda name: search(op, tiny, count=1, capabilities=name),
        lambda name: Fsim(tiny, capabilities=name).close(),
        lambda name: Session("fsim", tiny, capabilities=name).close(),
    ]
    for use in uses:
        use("fsim")
        with pytest.raises(
            vtaops.errors.ConfigError, match=f"no capabilities {given!r}; known are"
        ):
            use(given)


def test_sessions_compile_for_their_device():
    x = np.arange(-20, 20, dtype=np.int8)
    with Session(Fsim("pynq")) as session:
        assert (session.multiply(x, x, shift=4) == np.minimum(x.astype(int) ** 2 >> 4, 127)).all()
    with (
        Session(Fsim("pynq", capabilities=PORTABLE)) as session,
        pytest.raises(UnsupportedError, match="needs 'mul'"),
    ):
        session.multiply(x, x)
    with Session(Fsim("pynq", capabilities=PORTABLE), fallback="cpu") as session:
        expected = evaluate(Elementwise(function="multiply", shape=(40,)), [x, x])
        assert (session.multiply(x, x) == expected).all()
        (placement,) = session.placements
        assert placement.where == "cpu"


def test_portable_programs_need_what_every_implementation_has():
    assert all(FULL.has(feature) for feature in Feature)
    for feature in Feature:
        everywhere = all(c.has(feature) for c in (FSIM, HLS_2020, CHISEL))
        assert PORTABLE.has(feature) <= (everywhere or feature is Feature.ALU_BATCH)
