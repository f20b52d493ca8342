"""The cycles of the RTL, simulated: counted, explained, and those of the timing model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS, ProgramBuilder, edited
from helpers.tsim_support import MODELS, needs_tools

import vtaops
from trials.random_streams import (
    CONFIGS,
    HazardousProgram,
    ReloadingProgram,
    SummingProgram,
    run_random,
)
from trials.reference_isa import launch, place, serialise
from trials.timing_cases import compare
from vtaops import HardwareConfig
from vtaops.board.random_programs import random_inputs, random_program
from vtaops.hardware.registers import RtlRegisters
from vtaops.hardware.rtl import RtlParameters
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Finish, Gemm, Load, Store
from vtaops.program import Role
from vtaops.program.timing import TimingParameters
from vtaops.program.timing.hazards import stalled_micro_ops
from vtaops.program.timing.pipeline import compute_depth
from vtaops.runtime import Fsim
from vtaops.runtime.tsim import Tsim

pytestmark = needs_tools


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
    [([1], 1), ([1, 1], 1), ([1, 2], 2), ([1, 1, 1], 2), ([1, 1, 2, 3, 3], 3), ([1, 2] * 4, 8)],
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


def test_random_programs_take_the_cycles_of_the_model():
    """With all extensions, so that weights of four bits are among what is loaded."""
    config, rng = CONFIGS["extended"], np.random.default_rng(0)
    with Tsim(config, parameters=RtlParameters(port_bytes=8), latency=20) as device:
        parameters = TimingParameters(port_bytes=8, dram_latency=20)
        for _ in range(6):
            program = random_program(config, rng)
            arrays = random_inputs(program, rng)
            device.reset_stats()
            found = program.run(device, *arrays)
            assert np.array_equal(found, program.run(Fsim(config), *arrays))
            assert device.stats() == program.stats()
            assert device.performance().cycles == program.cycles(parameters)


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
        (SummingProgram, SummingProgram.stream, 4),
        (ReloadingProgram, ReloadingProgram.concurrent_stream, 3),
    ],
    ids=["accumulators", "sums", "tiles"],
)
def test_what_is_read_is_what_was_written_last(kind, stream, count, name, port_bytes):
    """Accumulators by the micro-ops before, and tiles by LOADs: none that is still held."""
    for seed in range(count):
        program = kind(CONFIGS[name], seed)
        with Tsim(CONFIGS[name], parameters=RtlParameters(port_bytes=port_bytes)) as device:
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
    with Tsim(config, parameters=RtlParameters(port_bytes=8)) as device:
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
        held += int(stalled_micro_ops(program)[0].sum())
        tiny.reset_stats()
        program.run(tiny)
        assert tiny.performance().cycles == program.cycles()
    assert held > 100


@pytest.mark.parametrize("bandwidth", [2.0, 5.0, 8.0, 12.0])
def test_the_timing_model_shares_the_bandwidth_as_the_dram_does(bandwidth):
    with Tsim("tiny", parameters=RtlParameters(port_bytes=8), bandwidth=bandwidth) as device:
        for build in PROGRAMS.values():
            program = build()
            device.reset_stats()
            program.run(device, *[np.zeros(b.shape, b.dtype) for b in program.inputs])
            expected = program.cycles(TimingParameters(port_bytes=8, bandwidth=bandwidth))
            assert device.performance().cycles == expected


@pytest.mark.parametrize("seed", [0, 7, 9, 11, 12, 13, 286])
def test_random_operators_take_as_long_as_the_timing_model_says_on_slow_memory(seed):
    """A slice of `trials/timing_cases.py`: cases on `tiny`."""
    case = compare(seed)
    assert case["config"] == "tiny"
    assert case["model"] == case["rtl"]


@pytest.mark.parametrize("seed", [164, 212, 284, 572])
def test_short_queues_take_as_long_as_the_timing_model_says(seed):
    """One read at a time, queues of four, a port for weights: on one model of the RTL."""
    case = compare(f"queues {seed}")
    assert case["model"] == case["rtl"]


@pytest.mark.parametrize("port_bytes", [8, 64])
def test_loads_use_the_whole_width_of_the_port(port_bytes):
    """Rows that follow each other, and instructions that follow each other, without a gap."""
    with Tsim("tiny", parameters=RtlParameters(port_bytes=port_bytes), latency=100) as device:
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
