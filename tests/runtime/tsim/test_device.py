"""The RTL, simulated: every instruction against the reference, whole operators against fsim."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS, ProgramBuilder, edited
from helpers.tsim_support import needs_tools
from typer.testing import CliRunner, Result

import vtaops
from trials.random_cases import FAMILIES, random_scaled, random_tiling
from trials.random_graphs import random_graph, random_inputs
from trials.random_streams import (
    CONFIGS,
    ConcurrentProgram,
    HazardousProgram,
    RandomProgram,
    ReloadingProgram,
    run_random,
)
from trials.reference_isa import launch, launch_words, place, serialise
from trials.timing_cases import compare
from vtaops import ConfigError, DeviceError, HardwareConfig, ShapeError, UnsupportedError, cli
from vtaops.errors import DeadlockError, DeviceTimeout
from vtaops.graph import evaluate as evaluate_graph
from vtaops.hardware.registers import RtlRegisters
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Finish, Gemm, Load, Store
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Role
from vtaops.program.timing import TimingParameters
from vtaops.program.timing.hazards import held_micro_ops
from vtaops.program.timing.pipeline import compute_depth
from vtaops.runtime import Device, Fsim, open_device
from vtaops.runtime.executor import LoadedProgram
from vtaops.runtime.tsim import RtlParameters, Tsim

pytestmark = needs_tools

# Few models, each built once: the least and the usual tiles, batches, words that hold several
# elements of a scratchpad and words that are a part of one.
MODELS = [
    ("tiny", 8), ("tiny", 64), ("pynq", 8), ("4x8_i8w8a32_15_16_16_18", 32), ("extended", 8)
]  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    with Tsim("tiny") as device:
        yield device


# --------------------------------------------------------------------- random programs


@pytest.mark.parametrize(("name", "port_bytes"), MODELS)
def test_random_serial_programs_equal_the_reference(name, port_bytes):
    for seed in range(9):
        with Tsim(CONFIGS[name], port_bytes=port_bytes, latency=2 + 20 * (seed % 3)) as device:
            program = RandomProgram(CONFIGS[name], seed)
            program.random_instructions(60)
            run_random(program, program.stream(), device)


@pytest.mark.parametrize("dsp_multipliers", [None, 21])
def test_other_multipliers_compute_the_same(dsp_multipliers):
    """One product to a DSP block, and some products from LUTs."""
    parameters = RtlParameters(packed_multipliers=False, dsp_multipliers=dsp_multipliers)
    for seed in range(200, 206):
        program = RandomProgram(CONFIGS["tiny"], seed)
        program.random_instructions(60)
        with Tsim(CONFIGS["tiny"], parameters=parameters) as device:
            cycles = run_random(program, program.stream(), device)
        with Tsim(CONFIGS["tiny"], port_bytes=parameters.port_bytes) as device:
            assert run_random(program, program.stream(), device) == cycles


def test_without_counters_the_rest_is_the_same():
    program = RandomProgram(CONFIGS["tiny"], 17)
    program.random_instructions(40)
    with Tsim("tiny", parameters=RtlParameters(performance_counters=False)) as device:
        region = place(device, program.image)
        launch(device, program.stream())
        image = device.read(region, region.nbytes)
        cycles = device.read_register(RtlRegisters.CYCLES_LOW)
        assert device.read_register(RtlRegisters.CONTROL) & RtlRegisters.UNCOUNTED
        for ask in device.stats, device.performance:
            with pytest.raises(UnsupportedError, match="built without performance counters"):
                ask()
    np.testing.assert_array_equal(image, program.expected_image())
    with Tsim("tiny") as device:
        assert run_random(program, program.stream(), device) == cycles
        assert not device.read_register(RtlRegisters.CONTROL) & RtlRegisters.UNCOUNTED


@pytest.mark.parametrize(("name", "port_bytes"), MODELS)
def test_random_concurrent_programs_equal_the_reference(name, port_bytes):
    """And the irregularities of the DRAM change when things happen, never what."""
    for seed in range(100, 111):
        program = ConcurrentProgram(CONFIGS[name], seed)
        program.random_instructions(60)
        cycles = set()
        for jitter in (None, seed, seed + 1):
            with Tsim(CONFIGS[name], port_bytes=port_bytes, jitter_seed=jitter) as device:
                cycles.add(run_random(program, program.concurrent_stream(), device))
        assert len(cycles) > 1


def test_jitter_is_reproducible():
    program = ConcurrentProgram(CONFIGS["tiny"], 7)
    program.random_instructions(40)
    cycles = set()
    for _ in range(2):
        with Tsim("tiny", jitter_seed=5) as device:
            cycles.add(run_random(program, program.concurrent_stream(), device))
    assert len(cycles) == 1


# ------------------------------------------------------------------------ whole programs


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_hand_equal_fsim(name):
    program = PROGRAMS[name]()
    rng = np.random.default_rng(1)
    arrays = [
        rng.integers(-128, 128, buffer.shape).astype(buffer.dtype) for buffer in program.inputs
    ]
    with Fsim(program.config) as fsim, Tsim(program.config, jitter_seed=3) as tsim:
        np.testing.assert_array_equal(program.run(tsim, *arrays), program.run(fsim, *arrays))
        assert tsim.stats() == fsim.stats() == program.stats()


OPERATORS = {
    "conv3x3": (
        "pynq",
        vtaops.Conv2d(in_channels=32, out_channels=48, height=9, width=7, kernel=3, padding=1),
    ),
    "conv1x1_strided": (
        "pynq",
        vtaops.Conv2d(in_channels=64, out_channels=32, height=8, width=8, kernel=1, strides=2),
    ),
    "conv_bias": (
        "pynq",
        vtaops.Conv2d(
            in_channels=16, out_channels=32, height=6, width=6, kernel=3, padding=1, bias=True
        ),
    ),
    "gemm": ("pynq", vtaops.Gemm(m=5, n=48, k=80, bias=True)),
    "tiny_conv": (
        "tiny",
        vtaops.Conv2d(
            batch=2, in_channels=8, out_channels=16, height=6, width=5, kernel=3, padding=1, shift=4
        ),
    ),
    "batch4_gemm": ("4x8_i8w8a32_15_16_16_18", vtaops.Gemm(m=8, n=24, k=40)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_equal_numpy_and_count_as_fsim(name):
    config, op = OPERATORS[name]
    program = vtaops.compile(op, config)
    arrays = random_arguments(op, np.random.default_rng(2))
    port_bytes = dict(MODELS[:1] + MODELS[2:])[config]
    with Fsim(config) as fsim, Tsim(config, port_bytes=port_bytes) as tsim:
        result = program.run(tsim, *arrays)
        np.testing.assert_array_equal(result, evaluate(op, arrays))
        program.run(fsim, *arrays)
        assert tsim.stats() == fsim.stats() == program.stats()


@pytest.mark.parametrize("config", ["pynq", "tiny", "4x8_i8w8a32_15_16_16_18"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_every_family_of_operators_equals_numpy(family, config, seed):
    """Random operators and tilings; what needs MUL or ACC_8BIT included."""
    rng = random.Random(f"tsim {family} {config} {seed}")
    hardware = HardwareConfig.load(config)
    op = FAMILIES[family](rng)
    program = vtaops.compile(op, hardware, random_tiling(rng, op, hardware), capabilities="full")
    arrays = random_arguments(op, np.random.default_rng(seed))
    port_bytes = dict(MODELS[:1] + MODELS[2:])[config]
    with Tsim(hardware, port_bytes=port_bytes) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))
        assert device.stats() == program.stats()


def test_fixed_point_scales_equal_numpy():
    """Operators and a network with scales for each channel, on hardware with all extensions."""
    hardware = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
    with Tsim(hardware, jitter_seed=1) as device:
        for seed in range(8):
            rng = random.Random(seed)
            op = random_scaled(rng)
            program = vtaops.compile(op, hardware, random_tiling(rng, op, hardware, taps="all"))
            arrays = random_arguments(op, np.random.default_rng(seed))
            np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))
        graph = random_graph(1, free=True)
        images = random_inputs(graph, 1)
        found = vtaops.compile_model(graph, hardware).run(*images, session=vtaops.Session(device))
        for result, expected in zip(found, evaluate_graph(graph, *images), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_session_runs_on_tsim():
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-128, 128, shape, np.int8) for shape in ((3, 40), (24, 40)))
    with vtaops.Session("tsim", "tiny") as session, vtaops.Session("fsim", "tiny") as other:
        np.testing.assert_array_equal(session.gemm(x, w), other.gemm(x, w))
        assert session.stats == other.stats


# -------------------------------------------------------------------------------- cycles


def gemm_cycles(device: Tsim, *instructions: Gemm | Alu) -> int:
    device.reset_stats()
    launch(device, [*instructions, Finish()])
    return device.performance().cycles


@pytest.mark.parametrize(
    ("instruction", "cycles_per_step"),
    [
        (Gemm(uop_end=1, iter_out=20, iter_in=50), 1),  # always the same accumulator
        (Gemm(uop_end=4, iter_out=5, iter_in=50, dst_factor_in=1), 1),
        (Gemm(uop_end=1, iter_out=1, iter_in=1), 2),  # fetched at two port words per instruction
        (Gemm(reset=1, uop_end=1, iter_out=20, iter_in=50), 1),
        (Alu(alu_op=AluOp.ADD, uop_end=1, iter_out=20, iter_in=50, use_imm=1, imm=1), 1),
        (Alu(alu_op=AluOp.ADD, uop_end=1, iter_out=20, iter_in=50), 2),
        (Alu(alu_op=AluOp.MUL, uop_end=1, iter_out=20, iter_in=50, dst_factor_in=1, use_imm=1), 1),
        # A MUL of what the MUL before has written waits a cycle, the only such case.
        (Alu(alu_op=AluOp.MUL, uop_end=1, iter_out=20, iter_in=50, use_imm=1), 2),
        (Alu(alu_op=AluOp.MUL, uop_end=1, iter_out=20, iter_in=50), 3),
    ],
)
def test_compute_unit_loses_no_cycle_within_and_between_instructions(
    tiny, instruction, cycles_per_step
):
    alone = gemm_cycles(tiny)
    steps = instruction.iterations * cycles_per_step
    for count in (1, 2, 5):
        assert gemm_cycles(tiny, *[instruction] * count) <= alone + count * steps + 2


@pytest.mark.parametrize(
    ("accumulators", "cycles_per_step"),
    [([1], 1), ([1, 1], 1), ([1, 2], 2), ([1, 1, 1], 2), ([1, 1, 2, 3, 3], 4), ([1, 2] * 4, 8)],
)
def test_products_of_one_accumulator_share_a_cycle(accumulators, cycles_per_step):
    hardware = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
    micro_ops = [(dst, 0, 0) for dst in accumulators]
    words = Encoding.of(hardware).encode_micro_ops(micro_ops).view(np.uint8)
    with Tsim(hardware) as device:
        buffer = place(device, words)
        load = Load(
            memory=Memory.UOP, dram_base=buffer.address // 4, x_size=len(micro_ops), y_size=1
        )
        product = Gemm(uop_end=len(micro_ops), iter_out=20, iter_in=30)
        alone = gemm_cycles(device, load)
        for count in (1, 3):
            steps = 600 * cycles_per_step * count
            found = gemm_cycles(device, load, *[product] * count)
            assert steps <= found <= alone + steps + 2 + count
            assert device.stats().gemm_counter == 600 * len(micro_ops) * count
            assert device.performance().compute_gemm == steps


def test_accumulations_into_one_element_are_all_counted(tiny):
    """The write of each step is read by the next: without forwarding most would be lost."""
    program = PROGRAMS["small_gemm"](tiles=1)
    (index,) = (
        index
        for index, insn in enumerate(program.decode())
        if isinstance(insn, Gemm) and not insn.reset
    )
    program = edited(program, index, iter_out=9)
    inp = np.ones((1, 1, 8), np.int8)
    wgt = np.ones((1, 8, 8), np.int8)
    assert (program.run(tiny, inp, wgt) == 9 * 8 >> 3).all()


@pytest.mark.parametrize(("name", "port_bytes"), MODELS)
@pytest.mark.parametrize(
    ("kind", "stream", "count"),
    [
        (HazardousProgram, HazardousProgram.stream, 6),
        (ReloadingProgram, ReloadingProgram.concurrent_stream, 3),
    ],
    ids=["accumulators", "tiles"],
)
def test_what_is_read_is_what_was_written_last(kind, stream, count, name, port_bytes):
    """Accumulators by the micro-ops before, and tiles by LOADs: none that is still held."""
    for seed in range(count):
        program = kind(CONFIGS[name], seed)
        with Tsim(CONFIGS[name], port_bytes=port_bytes) as device:
            run_random(program, stream(program), device)


@pytest.mark.parametrize(("log_batch", "log_block", "depth"), [(1, 2, 7), (0, 5, 9)])
def test_pipelines_of_other_depths(log_batch, log_block, depth):
    """One stage in the adder tree, and three of which the first has a single level."""
    config = replace(
        CONFIGS["pynq"],
        log_batch=log_batch,
        log_block=log_block,
        log_uop_buff_size=12,
        log_inp_buff_size=10 + log_batch + log_block,
        log_wgt_buff_size=8 + 2 * log_block,
        log_acc_buff_size=12 + log_batch + log_block,
    )
    assert compute_depth(config) == depth
    program = HazardousProgram(config, 3)
    with Tsim(config, port_bytes=8) as device:
        run_random(program, program.stream(), device)


def test_the_timing_model_counts_the_micro_ops_that_wait_for_a_mul(tiny):
    rng = np.random.default_rng(9)
    held = 0
    for _ in range(20):
        b = ProgramBuilder(tiny.config)
        count = int(rng.integers(1, 5))
        rows = rng.integers(0, 3, (count, 3)).tolist()
        b.load_micro_ops(b.micro_ops(*map(tuple, rows)), count)
        for _ in range(5):
            loops = dict(zip(("iter_out", "iter_in", "dst_factor_in", "src_factor_in"),
                             rng.integers(1, 4, 4).tolist(), strict=True))  # fmt: skip
            loops["dst_factor_in"] -= 1
            op = AluOp.MUL if rng.random() < 0.8 else AluOp.ADD
            b.add(Alu(alu_op=op, uop_end=count, use_imm=int(rng.integers(2)), imm=3, **loops))
        b.add(replace(b.instructions.pop(), push_next=1), b.relocations.pop())
        y = b.tiles("y", Role.OUTPUT, 1)
        b.store(y, 0, 0, 1, pop_prev=1, push_prev=1)
        b.finish(pop_next=1)
        program = b.build()
        held += int(held_micro_ops(program)[0].sum())
        tiny.reset_stats()
        program.run(tiny)
        assert tiny.performance().cycles == program.cycles()
    assert held > 100


@pytest.mark.parametrize("bandwidth", [2.0, 5.0, 8.0, 12.0])
def test_the_timing_model_shares_the_bandwidth_as_the_dram_does(bandwidth):
    with Tsim("tiny", port_bytes=8, bandwidth=bandwidth) as device:
        for build in PROGRAMS.values():
            program = build()
            device.reset_stats()
            program.run(device, *[np.zeros(b.shape, b.dtype) for b in program.inputs])
            expected = program.cycles(TimingParameters(port_bytes=8, bandwidth=bandwidth))
            assert device.performance().cycles == expected


@pytest.mark.parametrize("seed", [0, 7, 9, 11, 12, 13, 16])
def test_random_operators_take_as_long_as_the_timing_model_says_on_slow_memory(seed):
    """A slice of `trials/timing_cases.py`: cases on `tiny`."""
    case = compare(seed)
    assert case["config"] == "tiny"
    assert case["model"] == case["rtl"]


@pytest.mark.parametrize("port_bytes", [8, 64])
def test_loads_use_the_whole_width_of_the_port(port_bytes):
    """Rows that follow each other, and instructions that follow each other, without a gap."""
    with Tsim("tiny", port_bytes=port_bytes, latency=100) as device:
        nbytes = 64 * device.config.wgt.element_bytes
        source = place(device, np.zeros(nbytes, np.uint8))
        base = source.address // device.config.wgt.element_bytes
        load = Load(memory=Memory.WGT, dram_base=base, y_size=4, x_size=16, x_stride=16)
        stream = [load] * 20 + [replace(load, push_next=1), Finish(pop_prev=1)]
        launch(device, stream)
        performance = device.performance()
        beats = 21 * nbytes // port_bytes
        assert performance.load_busy == beats
        assert performance.cycles < beats + 250


def test_every_unit_accounts_for_each_cycle(tiny):
    program = PROGRAMS["double_buffered"]()
    tiny.reset_stats()
    program.run(tiny, *[np.zeros(buffer.shape, buffer.dtype) for buffer in program.inputs])
    p = tiny.performance().as_dict()
    sums = [
        sum(value for name, value in p.items() if name.startswith(unit))
        for unit in ("load_", "compute_", "store_")
    ]
    assert len({*sums}) == 1
    assert p["cycles"] <= sums[0] < p["cycles"] + 100


def test_bandwidth_and_latency_of_the_dram_cost_cycles():
    program = PROGRAMS["small_gemm"]()
    arrays = [np.zeros(buffer.shape, buffer.dtype) for buffer in program.inputs]
    cycles = []
    for options in ({}, {"latency": 100}, {"bandwidth": 1.0}):
        with Tsim("tiny", **options) as device:
            program.run(device, *arrays)
            cycles.append(device.performance().cycles)
    assert cycles[0] < cycles[1]
    assert cycles[0] < cycles[2]


def test_a_load_of_accumulators_waits_for_the_pipeline():
    """Its data lie ready when the last micro-ops before it still have to write."""
    for latency in (2, 10, 30):
        with Tsim("tiny", latency=latency) as device:
            source = place(device, np.arange(64 * 8, dtype=np.int32))
            uop = place(device, np.zeros(1, np.uint32))
            target = device.alloc(64 * 8)
            loops = {"uop_end": 1, "iter_out": 1, "dst_factor_in": 1}
            stream = [
                Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
                Gemm(reset=1, iter_in=64, **loops),
                Alu(alu_op=AluOp.ADD, use_imm=1, imm=77, iter_in=60, **loops),
                Load(memory=Memory.ACC, dram_base=source.address // 32, sram_base=60, x_size=4,
                     y_size=1),
                Store(memory=Memory.OUT, dram_base=target.address // 8, x_size=64, y_size=1),
            ]  # fmt: skip
            launch(device, serialise(stream))
            got = device.read(target, 64 * 8).view(np.int8)
            np.testing.assert_array_equal(got[: 60 * 8], 77)
            np.testing.assert_array_equal(got[60 * 8 :], np.arange(32))


def test_data_that_must_wait_are_never_more_than_their_buffer_holds():
    """A load of three times the buffer, requested while a long GEMM forbids to write it."""
    with Tsim("pynq") as device:
        values = np.arange(100 * 16, dtype=np.int32) % 251 - 125
        source, target = place(device, values), device.alloc(100 * 16)
        stream = [
            Gemm(reset=1, uop_end=1, iter_out=1, iter_in=3000),
            Load(memory=Memory.ACC, dram_base=source.address // 64, x_size=100, y_size=1),
            Store(memory=Memory.OUT, dram_base=target.address // 16, x_size=100, y_size=1),
        ]
        assert values.nbytes // device.parameters.port_bytes > 3 * 256
        launch(device, serialise(stream))
        np.testing.assert_array_equal(device.read(target, 1600).view(np.int8), values)


def test_a_last_burst_waits_until_all_of_it_fits_into_the_buffer():
    """The first burst is two words: those of full length end two words beyond the buffer."""
    with Tsim("pynq") as device:
        values = (np.arange(200 * 16) % 251 - 125).astype(np.int8)
        block = place(device, np.concatenate([np.zeros(7 * 16, np.int8), values]))
        target = device.alloc(200 * 16)
        first = block.address // 16 + 7
        assert first % 8 == 7
        stream = [
            Gemm(reset=1, uop_end=1, iter_out=1, iter_in=3000),
            Load(memory=Memory.ACC_8BIT, dram_base=first, x_size=200, y_size=1),
            Store(memory=Memory.OUT, dram_base=target.address // 16, x_size=200, y_size=1),
        ]
        launch(device, serialise(stream))
        np.testing.assert_array_equal(device.read(target, 200 * 16).view(np.int8), values)


@pytest.mark.parametrize("early", [0, 1])
def test_no_slot_of_a_word_changes_a_micro_op_in_use(tiny, early):
    """A word of micro-ops that begins one before those of the running instruction, or behind."""
    old, new = (
        Encoding.of(tiny.config)
        .encode_micro_ops(np.array([[0, 0, 0]] * 4 + [[1, 0, 0]] * 4))
        .reshape(2, 4)
    )
    before, after = place(tiny, old), place(tiny, new)
    target = tiny.alloc(2 * 8)
    loops = {"uop_begin": 1 + early, "uop_end": 2 + early, "iter_out": 10, "iter_in": 300}
    load = Load(memory=Memory.UOP, x_size=4, y_size=1)
    stream = [
        replace(load, dram_base=before.address // 4),
        Gemm(reset=1, uop_end=1, iter_out=1, iter_in=2, dst_factor_in=1),
        Alu(alu_op=AluOp.ADD, use_imm=1, imm=1, **loops),
        replace(load, dram_base=after.address // 4),
        Store(memory=Memory.OUT, dram_base=target.address // 8, x_size=2, y_size=1),
    ]
    launch(tiny, serialise(stream))
    result = tiny.read(target, 2 * 8).view(np.int8)
    np.testing.assert_array_equal(result, [3000 % 256 - 256] * 8 + [0] * 8)


@pytest.mark.parametrize("rows", [0, 1])
def test_padding_above_and_below_is_written_whole(tiny, rows):
    source = place(tiny, np.zeros(8, np.uint8))
    shape = {"x_size": 1, "x_stride": 1, "y_size": rows, "y_pad_top": 1, "y_pad_bottom": 15}
    load = Load(memory=Memory.INP, dram_base=source.address // 8, **shape, push_next=1)
    tiny.reset_stats()
    launch(tiny, [load, Finish(pop_prev=1)])
    assert tiny.performance().load_busy == 16 + rows


def test_each_memory_has_an_origin_of_its_own():
    """DRAM indices count from five registers: every LOAD and the STORE from that of its memory."""
    with Tsim("tiny") as device:
        config, rng = device.config, np.random.default_rng(5)
        acc = rng.integers(-20, 20, (2, 8)).astype(np.int32)
        inp, wgt = (rng.integers(-3, 4, shape).astype(np.int8) for shape in ((1, 8), (8, 8)))
        blocks = {
            Memory.UOP: Encoding.of(config).encode_micro_ops(np.array([[1, 0, 0]])),
            Memory.INP: inp,
            Memory.WGT: wgt,
            Memory.ACC: acc,
            Memory.OUT: np.zeros((2, 8), np.int8),
        }
        placed = {memory: place(device, data) for memory, data in blocks.items()}
        stream = [
            *(Load(memory=memory, x_size=1 + (memory is Memory.ACC), y_size=1)
              for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC)),
            Gemm(uop_end=1, iter_out=1, iter_in=1),
            Store(memory=Memory.OUT, x_size=2, y_size=1),
        ]  # fmt: skip
        words = [Encoding.of(config).encode(insn) for insn in serialise(stream)]
        code = place(device, vtaops.machine.isa.words_to_array(words))
        for number, memory in enumerate(placed):
            device.write_register(0x10 + 4 * number, placed[memory].address)
        device.write_register(RtlRegisters.COUNT, len(words))
        device.write_register(RtlRegisters.ADDRESS, code.address)
        device.write_register(RtlRegisters.CONTROL, RtlRegisters.LAUNCH)
        device.advance(2000)
        result = device.read(placed[Memory.OUT], 16).view(np.int8).reshape(2, 8)
        expected = acc.copy()
        expected[1] += (inp.astype(np.int32) @ wgt.T.astype(np.int32))[0]
        np.testing.assert_array_equal(result, expected.astype(np.int8))


# -------------------------------------------------------------------------------- errors

FINISH = Finish()


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        ([Load(memory=Memory.INP, pop_next=1), FINISH], DeadlockError, "load waits for"),
        ([Load(memory=Memory.UOP, pop_prev=1), FINISH], DeadlockError, "waits for a token of load"),
        ([Finish(pop_next=1)], DeadlockError, "compute waits for a token of store"),
        ([Store(memory=Memory.OUT, pop_prev=1), FINISH], DeadlockError, "store waits for a token"),
        ([Load(memory=Memory.INP)], DeviceError, "without FINISH"),
        ([Finish(push_next=1)], DeviceError, "tokens remain at the end: compute to store"),
        ([Load(memory=Memory.INP, y_size=1, x_size=1, dram_base=1), FINISH], DeviceError,
         "load unit accessed DRAM at 0x8, which is not allocated"),
        ([Load(memory=Memory.UOP, y_size=1, x_size=1, dram_base=2**32 - 1), FINISH],
         DeviceError, "compute unit accessed DRAM at 0x3fffffff8"),
        ([Store(memory=Memory.OUT, y_size=1, x_size=1), FINISH], DeviceError, "store unit"),
        ([Load(memory=Memory.INP, x_size=2, y_pad_top=1, sram_base=127), FINISH], DeviceError,
         "LOAD writes beyond the end"),
        ([Load(memory=Memory.ACC, x_size=65, y_pad_top=1), FINISH], DeviceError,
         "LOAD UOP or LOAD ACC writes beyond the end"),
        ([FINISH, FINISH], DeviceError, "FINISH executed before all other"),
        ([FINISH, Load(memory=Memory.INP, x_size=9, y_pad_top=9)], DeviceError, "FINISH executed"),
    ],
)  # fmt: skip
def test_programs_that_cannot_run_are_refused(stream, error, message):
    with Tsim("tiny") as device:
        with pytest.raises(error, match=message):
            launch(device, stream)
        launch(device, [FINISH])  # the device is as good as new
        assert device.performance().cycles > 0


def test_store_beyond_the_scratchpad_is_refused(tiny):
    target = place(tiny, np.zeros(4096, np.uint8))
    base = target.address // tiny.config.out.element_bytes
    store = Store(memory=Memory.OUT, y_size=1, x_size=2, dram_base=base, sram_base=63)
    with pytest.raises(DeviceError, match="STORE reads beyond the end"):
        launch(tiny, [replace(store, push_prev=1), Finish(pop_next=1)])
    tiny.free(target)


@pytest.mark.parametrize("word", [5, 7, 6 << 7, 4 << 7, 1, 1 | 5 << 7])
def test_words_that_are_no_instructions_are_refused(tiny, word):
    with pytest.raises(DeviceError, match="not defined by the ISA"):
        launch_words(tiny, [word, int(FINISH.opcode)])


def test_lost_tokens_are_reported(tiny):
    """One more than a queue holds; the pops are there, but they come too late."""
    capacity = tiny.parameters.token_capacity
    push = Load(memory=Memory.INP, push_next=1)
    pops = [Load(memory=Memory.UOP, pop_prev=1)] * (capacity - 1) + [Finish(pop_prev=1)]
    busy = Gemm(reset=1, uop_end=1, iter_out=1, iter_in=16383)
    with pytest.raises(DeviceError, match="token queue overflowed"):
        launch(tiny, [busy, busy] + [push] * (capacity + 2) + pops)
    launch(tiny, [busy, busy] + [push] * capacity + pops)


def test_timeout(tiny):
    forever = Gemm(uop_end=1, iter_out=16383, iter_in=16383)
    with pytest.raises(DeviceTimeout, match=r"within 0\.001 s"):
        launch(tiny, [forever, FINISH], timeout=0.001)


def test_closed_devices_refuse():
    device = Tsim("tiny")
    buffer = device.alloc(8)
    device.close()
    device.close()
    for call in (lambda: device.alloc(8), lambda: device.read(buffer, 8), device.stats,
                 lambda: device.launch(4096, 1, 1.0), device.performance):  # fmt: skip
        with pytest.raises(DeviceError, match="closed"):
            call()


def test_buffers_are_checked(tiny):
    with pytest.raises(DeviceError, match="size of a buffer in bytes is 0"):
        tiny.alloc(0)
    with pytest.raises(DeviceError, match="no room"):
        tiny.alloc(1 << 32)
    buffer = tiny.alloc(10)
    assert buffer.address % 4096 == 0
    assert buffer.address > 0
    with pytest.raises(DeviceError, match="exceed a buffer of 10 bytes"):
        tiny.write(buffer, np.zeros(11, np.uint8))
    with pytest.raises(DeviceError, match="exceed a buffer of 10 bytes"):
        tiny.read(buffer, 11)
    tiny.write(buffer, np.arange(5, dtype=np.uint16))
    np.testing.assert_array_equal(tiny.read(buffer, 10).view(np.uint16), np.arange(5))
    tiny.free(buffer)
    with pytest.raises(DeviceError, match="not allocated"):
        tiny.free(buffer)
    again = tiny.alloc(10)
    assert not tiny.read(again, 10).any()
    tiny.free(again)


def test_freed_memory_is_found_again(tiny):
    first = [tiny.alloc(5000) for _ in range(6)]
    for index in (1, 3, 2, 5, 0, 4):
        tiny.free(first[index])
    whole = tiny.alloc((1 << 32) - (1 << 20))
    assert whole.address == first[0].address
    tiny.free(whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port_bytes": 12}, "port_bytes is 12; it must be 8, 16, 32 or 64"),
        ({"latency": 1}, "latency is 1"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0"),
        ({"jitter_seed": -1}, "jitter_seed is -1"),
        ({"trace": "wave.txt"}, "must end in .vcd or .fst"),
        ({"port_bytes": 16, "parameters": RtlParameters()}, "give one"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        Tsim("tiny", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"burst_beats": 12}, "burst_beats is 12"),
        ({"burst_beats": 128, "port_bytes": 64}, "4096 bytes"),
        ({"load_buffer_beats": 16}, "load_buffer_beats is 16"),
        ({"outstanding": 0}, "outstanding is 0"),
        ({"token_capacity": 0}, "token_capacity is 0"),
        ({"dsp_multipliers": -1}, "dsp_multipliers is -1"),
        ({"address_bits": 20}, "address_bits is 20"),
    ],
)
def test_parameters_of_the_rtl_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        RtlParameters(**options)


def test_overflow_checks_need_fsim():
    with pytest.raises(UnsupportedError, match="check_overflow needs fsim"):
        open_device("tsim", "tiny", check_overflow=True)


def test_instruction_address_is_checked(tiny):
    for address, message in ((8, "multiple of 16"), (-16, "in 0"), (1 << 32, "in 0")):
        with pytest.raises(DeviceError, match=message):
            tiny.launch(address, 1, 1.0)


def test_instructions_may_start_anywhere():
    """Also in the middle of a port word."""
    encoding = Encoding.of(CONFIGS["tiny"])
    nop = encoding.encode(Load(memory=Memory.UOP))
    words = [5, 5, 5, *[nop] * 9, encoding.encode(FINISH)]
    image = vtaops.machine.isa.words_to_array(words)
    for port_bytes in (8, 64):
        with Tsim("tiny", port_bytes=port_bytes) as device:
            buffer = place(device, image)
            device.launch(buffer.address + 3 * 16, 10, 10.0)
            assert device.performance().instructions == 10


def test_a_device_may_be_shared_by_threads():
    program = PROGRAMS["small_gemm"]()
    rng = np.random.default_rng(4)
    inp = rng.integers(-128, 128, program.inputs[0].shape).astype(np.int8)
    wgt = rng.integers(-128, 128, program.inputs[1].shape).astype(np.int8)
    results = []
    device: Device = Tsim("tiny")

    def run() -> None:
        with LoadedProgram(program, device) as loaded:
            results.extend(loaded.run(inp, wgt) for _ in range(5))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 15
    with Fsim("tiny") as fsim:
        expected = program.run(fsim, inp, wgt)
    for result in results:
        np.testing.assert_array_equal(result, expected)
    device.close()


# -------------------------------------------------------------------------- command line


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, [*arguments])


def test_command_line_runs_on_tsim(tmp_path):
    wave = tmp_path / "wave.vcd"
    arguments = ["run", "op", "Gemm(m=3, n=8, k=8)", "--config", "tiny"]
    arguments += ["--device", "tsim"]
    plain = command(*arguments, "--trace", str(wave), "--trace-window", "0:5")
    assert plain.exit_code == 0, plain.output
    for text in ("equals NumPy", "Where the cycles went", "for a token of the load unit"):
        assert text in plain.output
    assert wave.stat().st_size > 0
    report = json.loads(command(*arguments, "--json").stdout)
    assert report["performance"]["gemm_ops"] == report["counters"]["gemm_counter"] == 3
    assert report["performance"]["cycles"] > 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--device", "fsim", "--trace", "w.vcd"], UnsupportedError, "use --device tsim"),
        (["--device", "tsim", "--trace", "w.vcd", "--trace-window", "5"], ShapeError, "two cycles"),
    ],
)
def test_command_line_refuses_traces_that_cannot_be(options, error, message):
    result = command("run", "op", "Gemm(m=1, n=8, k=8)", "--config", "tiny", *options)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)


def test_command_line_builds_models():
    result = command("hardware", "build", "tiny")
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()).is_file()
