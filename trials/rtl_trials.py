"""Short trials of the RTL, each with all that can be seen of it: results, faults, counters, cycles.

A trial runs on devices that `opened` makes, and returns what it saw as JSON can hold it: so a
changed RTL is compared with the right one, whose results are those of the interpreter.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from trials.random_streams import (
    REGION,
    ConcurrentProgram,
    HazardousProgram,
    RacingProgram,
    RandomProgram,
    ReloadingProgram,
    SummingProgram,
)
from trials.reference_isa import launch, launch_words, place, serialise
from trials.waveforms import accesses_of
from vtaops import HardwareConfig, VTAError
from vtaops.board.random_programs import random_inputs, random_program
from vtaops.errors import DeviceTimeout
from vtaops.hardware.registers import RtlRegisters
from vtaops.machine.config import POST_ROWS, TARGETS, Extension, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Depthwise,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemoryInstruction,
    Post,
    Store,
    words_to_array,
)
from vtaops.program import Program
from vtaops.program.interpreter import interpret
from vtaops.runtime import Tsim
from vtaops.runtime.tsim import RtlParameters
from vtaops.runtime.tsim.model import Result

PARAMETERS = RtlParameters(load_buffer_beats=32, outstanding=4, command_depth=16, token_capacity=31)
"""Queues so short that programs of a few thousand cycles fill them."""

PLAIN = HardwareConfig.load("tiny")
EXTENDED = replace(PLAIN, extensions=tuple(Extension))
TWO_ROWS = replace(EXTENDED, log_batch=1, weight_port=1)
"""All extensions, two rows to a tile (lanes behind the first row have wires of their own), and a
port for weights."""

SPLIT = replace(PLAIN, split_port=1)
SHORT = replace(PARAMETERS, burst_beats=4, outstanding=16)
"""Each half of a divided port has room for eight words, fewer than are in flight: often none."""

LIMIT = 100_000
"""Cycles; all trials need less."""

SMALL = replace(
    PLAIN, log_batch=3, log_block=2, log_uop_buff_size=9, log_inp_buff_size=12,
    log_wgt_buff_size=11, log_acc_buff_size=15,
)  # fmt: skip
MIXED = replace(PARAMETERS, port_bytes=8, dsp_multipliers=5, packed_multipliers=False)
"""Tiles of four port words, an adder tree of one stage, and a multiplier for each product, most
of them from LUTs."""

Opened = Callable[..., Tsim]
"""Makes a device of the model on trial; takes options of `Tsim`."""


class LimitedTsim(Tsim):
    """A device on which no launch may take longer than `LIMIT` cycles, however slow the machine."""

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        model = self._open()
        run, left = model.run, LIMIT

        def limited(cycles: int) -> Result:
            nonlocal left
            if not left:
                raise DeviceTimeout(f"FINISH was not reached within {LIMIT} cycles")
            cycles = min(cycles, left)
            left -= cycles
            return run(cycles)

        model.run = limited  # type: ignore[method-assign]
        try:
            super().launch(insn_address, count, timeout)
        finally:
            model.run = run  # type: ignore[method-assign]


def digest(data: Any) -> str:
    """Return a short name of an array's content."""
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:12]


def seen(device: Tsim) -> list[Any]:
    """Return the counters of a device, from the last launch, and its cycles."""
    return [[*device.stats().as_dict().values()], [*device.performance().as_dict().values()]]


@cache
def drawn(config: HardwareConfig, seed: int) -> tuple[Program, list[Any], Any]:
    """Return a random program, its inputs, and its result by the interpreter."""
    rng = np.random.default_rng([seed, 77])
    program = random_program(config, rng)
    arrays = random_inputs(program, rng)
    return program, arrays, interpret(program, *arrays)


def random_trial(opened: Opened, config: HardwareConfig, seed: int, jitter: bool) -> list[Any]:
    program, arrays, expected = drawn(config, seed)
    with opened(latency=2 + 13 * (seed % 4), jitter_seed=seed if jitter else None) as device:
        result = program.run(device, *arrays)
        return [digest(result), bool(np.array_equal(result, expected)), *seen(device)]


@cache
def stream(kind: type[RandomProgram], config: HardwareConfig, seed: int) -> RandomProgram:
    program = kind(config, seed)
    if kind in (RandomProgram, ConcurrentProgram):
        program.random_instructions(60)
    return program


@cache
def instructions(kind: type[RandomProgram], config: HardwareConfig, seed: int) -> list[Instruction]:
    program = stream(kind, config, seed)
    return (
        program.concurrent_stream() if isinstance(program, ConcurrentProgram) else program.stream()
    )


def stream_trial(
    opened: Opened, kind: type[RandomProgram], config: HardwareConfig, seed: int, jitter: bool
) -> list[Any]:
    program = stream(kind, config, seed)
    with opened(latency=2 + 17 * (seed % 3), jitter_seed=seed if jitter else None) as device:
        region = place(device, program.image)
        launch(device, instructions(kind, config, seed))
        image = device.read(region, region.nbytes)
        same = np.array_equal(image, program.expected_image())
        return [digest(image), bool(same), *seen(device)]


# ----------------------------------------------------------------------- directed programs


def held_load(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Micro-ops in more words than the load buffer has, which a GEMM holds back for long."""
    with opened() as device:
        count = config.uop.depth
        tiles = min(64, config.acc.depth)
        per_word = device.parameters.port_bytes // 4
        burst = device.parameters.burst_beats * per_word
        source = place(device, np.zeros(count + burst, np.uint32))
        target = device.alloc(tiles * config.out.element_bytes)
        first = source.address // 4 + burst - 2 * per_word  # the first burst is two words
        launch(
            device,
            serialise(
                [
                    Gemm(reset=1, uop_end=1, iter_out=1, iter_in=3000),
                    Load(memory=Memory.UOP, dram_base=first, x_size=count, y_size=1),
                    Alu(alu_op=AluOp.ADD, use_imm=1, imm=5, uop_begin=count - 1, uop_end=count,
                        iter_out=1, iter_in=tiles, dst_factor_in=1),
                    Store(memory=Memory.OUT,
                          dram_base=target.address // config.out.element_bytes,
                          x_size=tiles, y_size=1),
                ]
            ),
        )  # fmt: skip
        return [digest(device.read(target, target.nbytes)), *seen(device)]


def micro_op_in_use(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Words of micro-ops around those of the running instruction, of every alignment."""
    found: list[Any] = []
    with opened(latency=2) as device:
        table = np.array([[0, 0, 0]] * 64 + [[1, 0, 0]] * 64)
        old, new = Encoding.of(config).encode_micro_ops(table).reshape(2, 64)
        before, after = place(device, old), place(device, new)
        target = device.alloc(2 * config.out.element_bytes)
        store = Store(
            memory=Memory.OUT, dram_base=target.address // config.out.element_bytes, x_size=2,
            y_size=1,
        )  # fmt: skip
        for first in (1, 2, 17, 31):
            load = Load(memory=Memory.UOP, x_size=40, y_size=1)
            launch(
                device,
                serialise(
                    [
                        replace(load, dram_base=before.address // 4),
                        Gemm(reset=1, uop_end=1, iter_out=1, iter_in=2, dst_factor_in=1),
                        Alu(alu_op=AluOp.ADD, use_imm=1, imm=1, uop_begin=first, uop_end=first + 1,
                            iter_out=1, iter_in=300),
                        replace(load, dram_base=after.address // 4),
                        store,
                    ]
                ),
            )  # fmt: skip
            found += [digest(device.read(target, target.nbytes)), seen(device)]
    return found


def waiting_accumulators(opened: Opened, config: HardwareConfig) -> list[Any]:
    """A LOAD ACC whose data lie ready when the pipeline still has to write what it replaces."""
    found: list[Any] = []
    tiles = min(64, config.acc.depth)
    for latency in (2, 10, 30):
        with opened(latency=latency) as device:
            unit = config.out.element_bytes
            source = place(device, np.arange(tiles * config.acc.lanes, dtype=np.int32))
            uop = place(device, np.zeros(1, np.uint32))
            target = device.alloc(tiles * unit)
            loops = {"uop_end": 1, "iter_out": 1, "dst_factor_in": 1}
            stream = [
                Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
                Gemm(reset=1, iter_in=tiles, **loops),
                Alu(alu_op=AluOp.ADD, use_imm=1, imm=77, iter_in=tiles - 4, **loops),
                Load(memory=Memory.ACC, dram_base=source.address // config.acc.element_bytes,
                     sram_base=tiles - 4, x_size=4, y_size=1),
                Store(memory=Memory.OUT, dram_base=target.address // unit, x_size=tiles, y_size=1),
            ]  # fmt: skip
            launch(device, serialise(stream))
            found += [digest(device.read(target, target.nbytes)), seen(device)]
    return found


def far_rows(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Rows that lie as far apart as instructions can say, for every memory."""
    found: list[Any] = []
    with opened() as device:
        out = config.out.element_bytes
        uop = place(device, Encoding.of(config).encode_micro_ops(np.array([[0, 0, 0], [1, 1, 1]])))
        target = place(device, np.zeros((1 << 17) * out, np.uint8))
        for memory in (Memory.INP, Memory.WGT, Memory.UOP, Memory.ACC, Memory.ACC_8BIT):
            unit = config.dram_element_bytes(memory)
            for stride in (0xFFFF, 0x8001):
                far = device.alloc((stride + 8) * unit)
                image = np.zeros(far.nbytes, np.uint8)
                image[: 2 * unit], image[stride * unit :][: 2 * unit] = 3, 0x85
                if memory is Memory.UOP:
                    image[:] = 0
                device.write(far, image)
                loops = {"uop_end": 2, "iter_out": 1, "iter_in": 3, "dst_factor_in": 1}
                launch(device, serialise([
                    Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=2, y_size=1),
                    Load(memory=memory, dram_base=far.address // unit, x_size=2, y_size=2,
                         x_stride=stride),
                    Gemm(**loops, src_factor_in=1, wgt_factor_in=1),
                    Alu(alu_op=AluOp.ADD, use_imm=1, imm=7, **loops),
                    Store(memory=Memory.OUT, dram_base=target.address // out, x_size=2, y_size=2,
                          x_stride=stride),
                ]))  # fmt: skip
                found += [digest(device.read(target, target.nbytes)), seen(device)]
                device.free(far)
    return found


def long_loops(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Loops and ranges of micro-ops as long as instructions can say, and beyond half of it."""
    found: list[Any] = []
    with opened(latency=2) as device:
        depth = config.uop.depth
        uop = place(device, np.zeros(depth, np.uint32))
        target = device.alloc(config.out.element_bytes)
        for begin, end, iter_out, iter_in in (
            (0, 1, 0x3FFF, 1), (0, 1, 1, 0x3FFF), (0, 1, 0x2001, 2), (0, 1, 2, 0x2001),
            (0, depth, 3, 2), (depth - 1, depth, 3, 3), (depth // 2 - 1, depth // 2 + 1, 2, 2),
        ):  # fmt: skip
            loops = {"uop_begin": begin, "uop_end": end, "iter_out": iter_out, "iter_in": iter_in}
            launch(device, serialise([
                Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=depth, y_size=1),
                Alu(alu_op=AluOp.ADD, use_imm=1, imm=1, **loops),
                Store(memory=Memory.OUT, dram_base=target.address // target.nbytes, x_size=1,
                      y_size=1),
            ]))  # fmt: skip
            found += [digest(device.read(target, target.nbytes)), seen(device)]
    return found


def ignored_bits(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Bits that mean nothing in an instruction, set: of a GEMM that resets, of an ALU, of POST."""
    found: list[Any] = []
    with opened() as device:
        uop = place(device, np.zeros(1, np.uint32))
        target = device.alloc(config.out.element_bytes)
        loops = {"uop_end": 1, "iter_out": 1, "iter_in": 3}
        for op in AluOp:
            launch(device, serialise([
                Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
                Gemm(reset=1, src_factor_in=1, wgt_factor_in=1, **loops),
                Alu(alu_op=AluOp.ADD, use_imm=1, imm=5, **loops),
                Alu(reset=1, alu_op=op, use_imm=1, imm=3, **loops),
                Alu(reset=1, alu_op=op, use_imm=0, imm=-1, **loops),
                Store(memory=Memory.OUT, dram_base=target.address // target.nbytes, x_size=1,
                      y_size=1),
            ]))  # fmt: skip
            found += [digest(device.read(target, target.nbytes)), seen(device)]
        # A LOAD has the bit of `forward` only for inputs, and with the extension.
        memory = Memory.UOP if config.has(Extension.FORWARD) else Memory.INP
        encoding, slots = Encoding.of(config), Encoding.of(EXTENDED).slots[Load]
        (forward,) = (slot.offset for slot in slots if slot.name == "forward")
        unit = config.dram_element_bytes(memory)
        first = place(device, np.zeros(1 << 12, np.uint8)).address // unit
        load = Load(memory=memory, dram_base=first, y_size=3, x_size=5, x_stride=5)
        if memory == Memory.INP:
            code = [replace(load, push_next=1), Finish(pop_prev=1)]
        else:
            code = [load, Finish()]
        words = [encoding.encode(insn) for insn in code]
        words[0] |= 1 << forward
        found.append([outcome(device, lambda: launch_words(device, words)), seen(device)])
    return found


# ------------------------------------------------------------ started by hand, without a reset


def begin(device: Tsim, stream: list[Instruction], origins: tuple[int, ...] = (0,) * 5) -> None:
    """Start a stream by the registers; the logic is not reset."""
    words = words_to_array([Encoding.of(device.config).encode(insn) for insn in stream])
    for register, origin in zip(RtlRegisters.ORIGINS, origins, strict=True):
        device.write_register(register, origin)
    device.write_register(RtlRegisters.COUNT, len(stream))
    device.write_register(RtlRegisters.ADDRESS, place(device, words).address)
    device.write_register(RtlRegisters.CONTROL, RtlRegisters.LAUNCH)


def state(device: Tsim) -> list[int]:
    """Return what the registers say of the state of all units."""
    return [device.read_register(r) for r in (0, RtlRegisters.FAULTS, RtlRegisters.TOKENS)]


def watched(opened: Opened, config: HardwareConfig) -> list[Any]:
    """The registers of state in every cycle: of a random program, and of one that mostly waits."""
    found: list[Any] = []
    nothing = Load(memory=Memory.UOP)
    short = Gemm(reset=1, uop_end=1, iter_out=1, iter_in=1)
    waits = [
        Load(memory=Memory.INP, push_next=1),
        replace(nothing, pop_prev=1, push_next=1),
        Store(memory=Memory.OUT, pop_prev=1, push_prev=1),
        replace(short, pop_next=1, push_prev=1, push_next=1),
        Load(memory=Memory.WGT, pop_next=1, push_next=1),
        Store(memory=Memory.OUT, pop_prev=1, push_prev=1),
        replace(nothing, pop_prev=1, pop_next=1, push_next=1),
        Store(memory=Memory.OUT, pop_prev=1, push_prev=1),
        Finish(pop_next=1),
    ]
    for latency, seed in ((2, None), (40, None), (9, 4)):
        with opened(latency=latency, jitter_seed=seed) as device:
            program = stream(ConcurrentProgram, config, 4)
            region = place(device, program.image)
            for code, cycles in ((waits, 150), (instructions(ConcurrentProgram, config, 4), 900)):
                begin(device, code)
                trace = []
                for _ in range(cycles):
                    device.advance(1)
                    trace.append(state(device))
                found.append(digest(np.array(trace)))
            found.append(digest(device.read(region, region.nbytes)))
    return found


def high_addresses(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Everything in the upper half of 32-bit addresses: by DRAM indices, and by origins."""
    program, arrays, _ = drawn(config, 2)
    random = stream(HazardousProgram, config, 5)  # loads all of all memories, and reads it
    found: list[Any] = []
    with opened() as device:
        device.alloc(1 << 31)
        found += [digest(program.run(device, *arrays)), *seen(device)]
        region = place(device, random.image)
        code, origins = with_origins(config, instructions(HazardousProgram, config, 5))
        begin(device, code, tuple(region.address - REGION + origin for origin in origins))
        device.advance(LIMIT)
        found += [state(device), digest(device.read(region, region.nbytes)), region.address]
    return found


def with_origins(
    config: HardwareConfig, code: list[Instruction]
) -> tuple[list[Instruction], list[int]]:
    """Return a stream whose indices count from an origin of each memory, and these, negative."""
    of = {Memory.UOP: 0, Memory.INP: 1, Memory.WGT: 2, Memory.POST: 2, Memory.TABLE: 2}
    of |= {Memory.ACC: 3, Memory.ACC_8BIT: 3, Memory.OUT: 4}

    def moved(insn: Instruction) -> Instruction:
        if not isinstance(insn, MemoryInstruction) or getattr(insn, "forward", 0):
            return insn
        ahead = 4096 * of[insn.memory] // config.dram_element_bytes(insn.memory)
        return replace(insn, dram_base=insn.dram_base + ahead)

    return [moved(insn) for insn in code], [-4096 * k for k in range(5)]


def reset_at_work(opened: Opened, config: HardwareConfig) -> list[Any]:
    """A program cut by a reset at many times, and a whole one after it."""
    program, arrays, _ = drawn(config, 5)
    cut = stream(ConcurrentProgram, config, 1)
    found: list[Any] = []
    for seed in (None, 3):
        with opened(latency=7, jitter_seed=seed) as device:
            place(device, cut.image)
            for cycles in (40, 150, 333, 480, 700, 1111):
                begin(device, instructions(ConcurrentProgram, config, 1))
                device.advance(cycles)
                device.reset_logic()
                found.append(state(device))
                device.advance(40)
                found += [state(device), digest(program.run(device, *arrays)), *seen(device)]
    return found


def forgotten_settings(opened: Opened, config: HardwareConfig) -> list[Any]:
    """What POST has set is forgotten at FINISH, and at a reset."""
    found: list[Any] = []
    with opened() as device:
        uop = place(device, np.zeros(1, np.uint32))
        target = device.alloc(config.out.element_bytes)
        unset = serialise([
            Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
            Gemm(reset=1, uop_end=1, iter_out=1, iter_in=1),
            Alu(alu_op=AluOp.ADD, use_imm=1, imm=17, uop_end=1, iter_out=1, iter_in=1),
            Store(memory=Memory.OUT, dram_base=target.address // target.nbytes, x_size=1, y_size=1),
        ])  # fmt: skip
        post = Post(enable=1, zero_point=55, low=-128, high=99)
        for end in (Finish(), Load(memory=Memory.UOP, pop_prev=1)):
            begin(device, [post, end])
            device.advance(300)
            if isinstance(end, Load):
                device.reset_logic()
            begin(device, unset)
            device.advance(1000)
            found += [state(device), digest(device.read(target, target.nbytes))]
    return found


def post_bounds(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Values of every size around the bounds of the result, negative upper ones too."""
    found: list[Any] = []
    with opened() as device:
        unit, lanes = config.out.element_bytes, config.acc.lanes
        count = min(config.acc.depth, -(-800 // lanes))
        values = (np.arange(count * lanes) - count * lanes // 2).astype(np.int32)
        source = place(device, values)
        uop = place(device, np.zeros(1, np.uint32))
        target = device.alloc(count * unit)
        bounds = [(-128, high) for high in (-128, -127, -100, -1, 0, 1, 127)]
        bounds += [(-127, -127), (-100, -27), (-1, -1), (-1, 0), (0, 0), (1, 126), (127, 127)]
        store = Store(memory=Memory.OUT, dram_base=target.address // unit, x_size=count, y_size=1)
        for low, high in bounds:
            for zero_point in (0, -128, 127):
                launch(device, serialise([
                    Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
                    Load(memory=Memory.ACC, dram_base=source.address // config.acc.element_bytes,
                         x_size=count, y_size=1),
                    Post(enable=1, multiplier=1, zero_point=zero_point, low=low, high=high),
                    Alu(alu_op=AluOp.ADD, use_imm=1, uop_end=1, iter_out=1, iter_in=count,
                        dst_factor_in=1),
                    store,
                ]))  # fmt: skip
                result = device.read(target, target.nbytes).view(np.int8)
                expected = (values + zero_point).clip(low, high)
                found += [digest(result), bool(np.array_equal(result, expected))]
    return found


def post_rows(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Rows of parameters that are loaded around others: each keeps what it held."""
    found: list[Any] = []
    with opened() as device:
        unit, row = config.out.element_bytes, config.dram_element_bytes(Memory.POST)
        kept = np.arange(config.post.depth * config.block_out).reshape(config.post.depth, -1)
        kept[:POST_ROWS] = kept[:POST_ROWS] % 41 - 20
        kept[POST_ROWS:] = kept[POST_ROWS:] % 23 | (kept[POST_ROWS:] % 3) << 16
        images = [place(device, (kept ^ change).astype(np.int32)) for change in (0, 1 << 16 | 4)]
        uop = place(device, np.zeros(1, np.uint32))
        target = device.alloc(POST_ROWS * unit)
        loops = {"uop_end": 1, "iter_out": 1, "iter_in": POST_ROWS, "dst_factor_in": 1}
        whole = Load(memory=Memory.POST, x_size=config.post.depth, y_size=1)
        for first in (0, 1, 2, 3, 17, 30, 31, 32, 33, 34, 35, 62):
            for count, pads in ((1, {}), (2, {}), (1, {"x_pad_right": 1})):
                loads = [
                    replace(whole, dram_base=images[0].address // row),
                    replace(whole, dram_base=images[1].address // row + first, sram_base=first,
                            x_size=count, **pads),
                ]  # fmt: skip
                launch(device, serialise([
                    Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
                    Gemm(reset=1, **loops),
                    *loads,
                    Post(enable=1, use_bias=1, use_scale=1, low=-128, high=127, row_factor_in=1),
                    Alu(alu_op=AluOp.ADD, use_imm=1, imm=3, **loops),
                    Store(memory=Memory.OUT, dram_base=target.address // unit, x_size=POST_ROWS,
                          y_size=1),
                ]))  # fmt: skip
                found += [digest(device.read(target, target.nbytes)), seen(device)]
    return found


def far_factors(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Steps to the last elements of each memory, by each factor of each loop."""
    found: list[Any] = []
    with opened() as device:
        rng = np.random.default_rng(1)
        loads = []
        for memory in (Memory.INP, Memory.WGT, Memory.ACC):
            depth, unit = config.scratchpad(memory).depth, config.dram_element_bytes(memory)
            data = place(device, rng.integers(0, 256, depth * unit, np.uint8))
            loads.append(Load(memory=memory, dram_base=data.address // unit, x_size=depth,
                              y_size=1))  # fmt: skip
        uop = place(device, np.zeros(1, np.uint32))
        loads.append(Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1))
        unit, depth = config.out.element_bytes, config.acc.depth
        target = device.alloc(depth * unit)
        kept = Alu(alu_op=AluOp.ADD, use_imm=1, uop_end=1, iter_out=1, iter_in=depth,
                   dst_factor_in=1)  # fmt: skip
        store = Store(memory=Memory.OUT, dram_base=target.address // unit, x_size=depth, y_size=1)
        last = {"dst": depth - 1, "src": config.inp.depth - 1, "wgt": config.wgt.depth - 1}
        for loop, extents in (("out", (2, 1)), ("in", (1, 2))):
            step = dict(zip(("uop_end", "iter_out", "iter_in"), (1, *extents), strict=True))
            for name, index in last.items():
                for far in (index, index // 2 + 1):
                    steps: list[Instruction] = [Gemm(**step, **{f"{name}_factor_{loop}": far})]
                    if name != "wgt":
                        near = {f"{name}_factor_{loop}": min(far, depth - 1)}
                        steps.append(Alu(alu_op=AluOp.ADD, **step, **near))
                    launch(device, serialise([*loads, *steps, kept, store]))
                    found += [digest(device.read(target, target.nbytes)), seen(device)]
    return found


def reloaded(opened: Opened, config: HardwareConfig) -> list[Any]:
    """One element of a memory is loaded anew between products that read it, or its neighbours.

    The product before may be the second one of a pair.
    """
    found: list[Any] = []
    with opened(latency=2) as device:
        rng = np.random.default_rng(2)
        units = {memory: config.dram_element_bytes(memory) for memory in (Memory.INP, Memory.WGT)}
        images = {m: [place(device, rng.integers(0, 256, 16 * unit, np.uint8)) for _ in range(2)]
                  for m, unit in units.items()}  # fmt: skip
        rows = np.array([[0, 4, 4], [0, 7, 7]])
        uop = place(device, Encoding.of(config).encode_micro_ops(rows))
        unit = config.out.element_bytes
        target = device.alloc(unit)
        whole = [Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=2, y_size=1)]
        whole += [Load(memory=m, dram_base=images[m][0].address // units[m], x_size=16, y_size=1)
                  for m in units]  # fmt: skip
        store = Store(memory=Memory.OUT, dram_base=target.address // unit, x_size=1, y_size=1)
        windows = config.has(Extension.DEPTHWISE)
        pairs = [(Gemm, Gemm), *[(Depthwise, Depthwise), (Gemm, Depthwise)] * windows]
        for memory in units:
            for first, last in ((0, 0), (1, 1), (0, 1)):
                loops = {"uop_begin": last, "uop_end": last + 1, "iter_out": 1, "iter_in": 1}
                read = int(rows[last, 1])
                for written in range(read - 4, read + 5):
                    source = images[memory][1].address // units[memory] + written
                    again = Load(memory=memory, sram_base=written, dram_base=source, x_size=1,
                                 y_size=1)  # fmt: skip
                    for before, after in pairs:
                        both = before(**{**loops, "uop_begin": first})
                        products = [Gemm(reset=1, **loops), both, again, after(**loops)]
                        launch(device, serialise([*whole, *products, store]))
                        found += [digest(device.read(target, target.nbytes)), seen(device)]
    return found


def memory_accesses(opened: Opened, config: HardwareConfig) -> list[Any]:
    """How often each memory is read and written by random programs, in waveforms."""

    def random_one(device: Tsim, seed: int) -> None:
        program, arrays, _ = drawn(config, seed)
        program.run(device, *arrays)

    def of_kind(device: Tsim, kind: type[RandomProgram]) -> None:
        place(device, stream(kind, config, 0).image)
        launch(device, instructions(kind, config, 0))

    runs: list[Callable[[Tsim], None]] = [partial(random_one, seed=seed) for seed in range(3)]
    runs += [partial(of_kind, kind=kind) for kind in (ReloadingProgram, RacingProgram)]
    found: list[Any] = []
    for number, run in enumerate(runs):
        with tempfile.TemporaryDirectory() as folder:
            wave = Path(folder) / "wave.vcd"
            with opened(trace=wave, jitter_seed=number or None) as device:
                run(device)
            found.append({name: str(count) for name, count in sorted(accesses_of(wave).items())})
    return found


def behind_finish(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Instructions of each unit behind FINISH, at every distance: whether they are seen."""
    found: list[Any] = []
    behind = (
        Load(memory=Memory.INP), Store(memory=Memory.OUT), Load(memory=Memory.UOP),
        Load(memory=Memory.UOP, x_size=1, y_size=1), Load(memory=Memory.ACC, x_size=1, y_size=1),
        Load(memory=Memory.INP, x_size=1, y_size=1), Store(memory=Memory.OUT, x_size=1, y_size=1),
        Gemm(reset=1, uop_end=1, iter_out=1, iter_in=1),
    )  # fmt: skip
    with opened(latency=40) as device:
        area = place(device, np.zeros(1 << 12, np.uint8))
        for insn in behind:
            if isinstance(insn, MemoryInstruction) and not insn.is_nop:
                unit = config.dram_element_bytes(Memory(insn.memory))
                insn = replace(insn, dram_base=area.address // unit)
            for count in (1, 2, 3, 4, 5):
                code = [Finish(), *[insn] * count]
                found.append(outcome(device, lambda code=code: launch(device, code)))
    return found


# ------------------------------------------------------------------------- what is refused


def refused(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Programs that fault or stand still: the message, and that the next one runs."""
    finish = Finish()
    streams: list[list[Instruction]] = [
        [Load(memory=Memory.INP, pop_next=1), finish],
        [Load(memory=Memory.UOP, pop_prev=1), finish],
        [Load(memory=Memory.UOP, pop_next=1), finish],
        [finish, Store(memory=Memory.OUT, pop_prev=1)],
        [Store(memory=Memory.OUT, pop_prev=1), finish],
        [Load(memory=Memory.INP)],
        [Finish(push_next=1)],
        [Finish(push_prev=1)],
        [Load(memory=Memory.INP, push_next=1), finish],
        [Load(memory=Memory.WGT, y_size=1, x_size=1, dram_base=1), finish],
        [Load(memory=Memory.UOP, y_size=1, x_size=1, dram_base=2**32 - 1), finish],
        [Store(memory=Memory.OUT, y_size=1, x_size=1), finish],
        [finish, finish],
        [finish, Load(memory=Memory.INP, x_size=9, y_pad_top=9)],
        [finish, Gemm(reset=1, uop_end=1, iter_out=2, iter_in=9)],
        *(
            [Load(memory=memory, x_size=2, y_pad_top=1, sram_base=depth - extra), finish]
            for memory in (Memory.INP, Memory.WGT, Memory.UOP, Memory.ACC, Memory.ACC_8BIT)
            for depth in [config.scratchpad(memory).depth]
            for extra in (1, 2)
        ),
    ]
    found: list[Any] = []
    with opened() as device:
        if config.has(Extension.TABLE):  # a table has no zeros around it
            streams.append([Load(memory=Memory.TABLE, x_size=1, y_pad_top=1), finish])
        long = place(device, np.zeros(1 << 19, np.uint8)).address
        # Sizes that need their highest bit: without it, none or one would be left.
        sizes = [(x, y) for size in (1 << 15, (1 << 15) + 1) for x, y in ((size, 1), (1, size))]
        for x_size, y_size in sizes:
            for begins, ends in (
                (Load(memory=Memory.INP, push_next=1), Finish(pop_prev=1)),
                (Load(memory=Memory.UOP), finish),
                (Store(memory=Memory.OUT, push_prev=1), Finish(pop_next=1)),
            ):
                first = long // config.dram_element_bytes(Memory(begins.memory))
                moves = replace(begins, dram_base=first, x_size=x_size, y_size=y_size)
                streams.append([moves, ends])
        if config.has(Extension.NIBBLES):
            first = long // config.dram_element_bytes(Memory.WGT)
            narrow = Load(memory=Memory.WGT, nibbles=1, dram_base=first, push_next=1)
            streams += [[replace(narrow, x_size=x, y_size=y), Finish(pop_prev=1)] for x, y in sizes]
        target = place(device, np.zeros(4096, np.uint8))
        base = target.address // config.out.element_bytes
        for extra in (1, 2):
            store = Store(
                memory=Memory.OUT, y_size=1, x_size=2, dram_base=base, push_prev=1,
                sram_base=config.out.depth - extra,
            )  # fmt: skip
            streams.append([store, Finish(pop_next=1)])
        for stream in streams:
            found.append(outcome(device, lambda stream=stream: launch(device, stream)))
        (alu_op,) = (s.offset for s in Encoding.of(config).slots[Alu] if s.name == "alu_op")
        no_operation = [4 | op << alu_op for op in (5, 6, 7)]
        for word in (5, 7, 6 << 7, 7 << 7, 4 << 7, 1, 1 | 5 << 7, *no_operation, 6, 0x7F << 8 | 3):
            words = [word, Encoding.of(config).encode(finish)]
            found.append(outcome(device, lambda words=words: launch_words(device, words)))
        launch(device, [finish])
        found.append(seen(device))
        found.append([device.read_register(4 * i) for i in range(14)])
    return found


def narrow_rows(opened: Opened, config: HardwareConfig) -> list[Any]:
    """LOADs of rows of one element, with zeros on all or some sides."""
    found: list[Any] = []
    with opened() as device:
        first = place(device, np.arange(64, dtype=np.uint8)).address // config.inp.element_bytes
        for pads in itertools.product((0, 2), repeat=4):
            names = ("x_pad_left", "x_pad_right", "y_pad_top", "y_pad_bottom")
            load = Load(
                memory=Memory.INP, dram_base=first, x_size=1, y_size=1, push_next=1,
                **dict(zip(names, pads, strict=True)),
            )  # fmt: skip
            launch(device, [load, Finish(pop_prev=1)])
            found.append(seen(device))
    return found


def wrong_forwards(opened: Opened, config: HardwareConfig) -> list[Any]:
    """A LOAD of the last element of the output memory, others beyond it, into each memory."""
    encoding = Encoding.of(config)
    (forward,) = (slot.offset for slot in encoding.slots[Load] if slot.name == "forward")
    last = Load(memory=Memory.INP, x_size=1, y_size=1, push_next=1, dram_base=config.out.depth - 1)
    loads = [last, replace(last, x_size=2), replace(last, y_size=2, x_stride=1)]
    loads += [replace(last, memory=memory) for memory in (Memory.WGT, Memory.POST, Memory.TABLE)]
    found: list[Any] = []
    with opened() as device:
        for load in loads:
            words = [encoding.encode(load) | 1 << forward, encoding.encode(Finish(pop_prev=1))]
            found.append(outcome(device, lambda words=words: launch_words(device, words)))
    return found


def wrong_nibbles(opened: Opened, config: HardwareConfig) -> list[Any]:
    """The bit of weights of four bits in LOADs of every memory: of data, of zeros, of nothing."""
    encoding = Encoding.of(config)
    (nibbles,) = (slot.offset for slot in encoding.slots[Load] if slot.name == "nibbles")
    found: list[Any] = []
    with opened() as device:
        area = place(device, np.zeros(1 << 12, np.uint8)).address
        for memory in sorted(set(Memory) - {Memory.OUT}):
            first = area // config.dram_element_bytes(memory)
            loaded = int(memory not in (Memory.UOP, Memory.ACC, Memory.ACC_8BIT))
            data = Load(memory=memory, dram_base=first, x_size=1, y_size=1, push_next=loaded)
            end = encoding.encode(Finish(pop_prev=loaded))
            for load in (data, replace(data, y_size=0, y_pad_top=1), replace(data, x_size=0)):
                words = [encoding.encode(load) | 1 << nibbles, end]
                found.append(outcome(device, lambda words=words: launch_words(device, words)))
    return found


def overlapping_rows(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Rows with the most zeros on their right, that begin before the row before them ends."""
    found: list[Any] = []
    with opened() as device:
        for memory in (Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT):
            program = RandomProgram(config, memory)
            program.fill_scratchpads()
            unit = config.dram_element_bytes(memory)
            for x_size, stride in ((2, 1), (5, 0), (5, 2), (5, 4)):
                load = Load(memory=memory, dram_base=program.data // unit + 3, sram_base=2,
                            x_size=x_size, y_size=3, x_stride=stride, x_pad_right=15)  # fmt: skip
                if load.sram_base + load.sram_size <= config.scratchpad(memory).depth:
                    program.emit(load)
                    program.random_instructions(5)
            region = place(device, program.image)
            launch(device, program.stream())
            same = np.array_equal(device.read(region, region.nbytes), program.expected_image())
            found += [bool(same), *seen(device)]
            device.free(region)
    return found


def second_launch(opened: Opened, config: HardwareConfig) -> list[Any]:
    """A launch at every cycle of a program that runs: it is ignored, and counts nothing."""
    found: list[Any] = []
    with opened(latency=2) as device:
        code = [Gemm(reset=1, uop_end=1, iter_out=1, iter_in=9), Finish()]
        for cycles in range(40):
            device.reset_logic()
            begin(device, code)
            device.advance(cycles)
            device.write_register(RtlRegisters.CONTROL, RtlRegisters.LAUNCH)
            device.advance(200)
            found += [state(device), device.read_register(RtlRegisters.CYCLES_LOW)]
    return found


def lasting_fault(opened: Opened, config: HardwareConfig) -> list[Any]:
    """A fault stays when another program is launched, until a reset."""
    found: list[Any] = []
    beyond = Load(memory=Memory.INP, x_size=2, y_pad_top=1, sram_base=config.inp.depth - 1)
    with opened() as device:
        for code in ([beyond, Finish()], [Finish(), Finish()], [Finish(push_next=1), Finish()]):
            begin(device, code)
            for _ in range(200):
                device.advance(1)
            found.append(state(device))
            begin(device, [Finish()])
            for _ in range(200):
                device.advance(1)
            found.append(state(device))
            device.reset_logic()
            found.append(state(device))
    return found


def outcome(device: Tsim, run: Callable[[], None]) -> str:
    try:
        run()
    except VTAError as error:
        return f"{type(error).__name__}: {error} {device.read_register(RtlRegisters.FAULTS)}"
    return "ran"


def overflow(opened: Opened, config: HardwareConfig) -> list[Any]:
    """One token fewer than a queue holds, as many, and one more, in each of the four queues."""
    found: list[Any] = []
    with opened() as device:
        capacity = device.parameters.token_capacity
        for count in (capacity - 1, capacity, capacity + 1):
            for one, flag in (
                (Load(memory=Memory.INP), "push_next"),
                (Load(memory=Memory.UOP), "push_prev"),
                (Load(memory=Memory.UOP), "push_next"),
                (Store(memory=Memory.OUT), "push_prev"),
            ):
                stream = [replace(one, **{flag: 1})] * count + [Finish()]
                found.append(outcome(device, lambda stream=stream: launch(device, stream)))
    return found


def odd_addresses(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Instructions that begin anywhere in a port word, and few of them, or none."""
    found: list[Any] = []
    with opened() as device:
        encoding = Encoding.of(config)
        for count in (0, 1, 2, 5):
            nop = encoding.encode(Load(memory=Memory.UOP))
            words = words_to_array([*[nop] * (count - 1), encoding.encode(Finish())])
            for offset in range(5):
                image = np.zeros((offset + len(words), *words.shape[1:]), words.dtype)
                image[offset:] = words
                buffer = place(device, image)
                first = buffer.address + 16 * offset
                found.append(outcome(device, lambda a=first, n=count: device.launch(a, n, 1.0)))
                found.append(seen(device))
                device.free(buffer)
    return found


# ------------------------------------------------------------------------------ AXI shell


def stops(opened: Opened, config: HardwareConfig) -> list[Any]:
    """A program stopped by its register at many times, and then run to its end."""
    program, arrays, _ = drawn(config, 3)
    found: list[Any] = []
    for seed in (None, 1, 2):
        with opened(jitter_seed=seed) as device:
            result = program.run(device, *arrays)

            class Page:
                read, write = device.read_register, device.write_register

            control = RtlRegisters(lambda base, length: Page, TARGETS["pynq"].register_base)
            encoding = Encoding.of(config)
            load = Load(
                memory=Memory.WGT, dram_base=64, y_size=40, x_size=1, x_stride=3, push_next=1
            )
            store = Store(
                memory=Memory.OUT, dram_base=64, y_size=40, x_size=1, x_stride=3, push_prev=1
            )
            area = place(device, np.zeros(1 << 14, np.uint8))
            words = [load, store, Finish(pop_prev=1, pop_next=1)]
            code = place(device, words_to_array([encoding.encode(i) for i in words]))
            for cycles in range(20, 320, 25):
                control.start(code.address, len(words))
                device.advance(cycles)
                control.stop()
                found.append(
                    [device._model.outstanding()]
                    + [device.read_register(4 * i) for i in (0, 1, 10, 11)]
                )
            found.append([area.nbytes, digest(result), bool(np.array_equal(
                program.run(device, *arrays), result)), *seen(device)])  # fmt: skip
    return found


def stops_at_work(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Programs of all units stopped while they work: nothing of them is left to the next run."""
    program, arrays, _ = drawn(config, 4)
    tokens = [Load(memory=Memory.INP, x_size=1, y_pad_top=1, push_next=1)] * 40
    codes = (instructions(ConcurrentProgram, config, 2), tokens, tokens[:1] * 3)
    found: list[Any] = []
    for seed in (None, 5):
        with opened(latency=9, jitter_seed=seed) as device:
            place(device, stream(ConcurrentProgram, config, 2).image)
            for code, ends in zip(codes, (range(40, 1200, 97), range(40, 64), (200,)), strict=True):
                for cycles in ends:
                    begin(device, code)
                    device.advance(cycles)
                    device.write_register(RtlRegisters.CONTROL, RtlRegisters.STOP)
                    while device.read_register(RtlRegisters.CONTROL) & RtlRegisters.STOPPING:
                        device.advance(1)
                    found.append([*state(device), device.read_register(RtlRegisters.CYCLES_LOW)])
            device.reset_stats()
            found.append([digest(program.run(device, *arrays)), *seen(device)])
    return found


def stopped_loads(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Loads stopped when later ones, of weights, have ended; the next run waits for its own."""
    rng = np.random.default_rng(3)
    found: list[Any] = []
    for cycles in (200, 300, 400):
        with opened(latency=40) as device:
            unit = {m: config.dram_element_bytes(m) for m in (Memory.INP, Memory.WGT, Memory.OUT)}
            x = rng.integers(-8, 8, (1 << 12) // config.block_in * config.block_in, np.int8)
            depth = config.wgt.depth
            w = rng.integers(-8, 8, (depth, config.block_out, config.block_in), np.int8)
            inputs, weights = place(device, x), place(device, w)
            first_input, first_weight = inputs.address // unit[Memory.INP], weights.address
            few = Load(memory=Memory.WGT, dram_base=first_weight // unit[Memory.WGT], x_size=1,
                       y_size=1)  # fmt: skip
            rows = Load(memory=Memory.INP, dram_base=first_input, x_size=1, y_size=60, x_stride=2)
            begin(device, [rows, few, few, few])
            device.advance(cycles)
            device.write_register(RtlRegisters.CONTROL, RtlRegisters.STOP)
            while device.read_register(RtlRegisters.CONTROL) & RtlRegisters.STOPPING:
                device.advance(1)
            uop = place(device, Encoding.of(config).encode_micro_ops(np.array([[0, 0, depth - 1]])))
            out = device.alloc(unit[Memory.OUT])
            loops = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
            launch(device, serialise([
                Load(memory=Memory.UOP, dram_base=uop.address // 4, x_size=1, y_size=1),
                Gemm(reset=1, **loops),
                Load(memory=Memory.INP, dram_base=first_input, x_size=1, y_size=1),
                replace(few, x_size=depth),
                Gemm(**loops),
                Store(memory=Memory.OUT, dram_base=out.address // out.nbytes, x_size=1, y_size=1),
            ]))  # fmt: skip
            tile = x[: config.batch * config.block_in].reshape(config.batch, -1).astype(int)
            result = device.read(out, out.nbytes)
            expected = (tile @ w[-1].T.astype(int)).astype(np.int8)
            found += [bool(np.array_equal(result.view(np.int8), expected.reshape(-1)))]
            found += seen(device)
    return found


def error_responses(opened: Opened, config: HardwareConfig) -> list[Any]:
    """An access to nothing: a fault, after which no burst begins and a run from new is right."""
    found: list[Any] = []
    for seed in (None, 1, 2):
        for insn in (
            Load(memory=Memory.WGT, dram_base=1 << 16, y_size=40, x_size=1, x_stride=9),
            Load(memory=Memory.UOP, dram_base=1 << 20, y_size=9, x_size=9, x_stride=99),
            Store(memory=Memory.OUT, dram_base=1 << 16, y_size=40, x_size=1, x_stride=9),
        ):
            with opened(jitter_seed=seed) as device:
                found.append(outcome(device, lambda i=insn, d=device: launch(d, [i, Finish()])))
                for _ in range(400):
                    device.advance(1)
                found.append([device._model.outstanding(), *(
                    device.read_register(4 * i) for i in (0, 10, 11))])  # fmt: skip
                launch(device, [Finish()])
                found.append(seen(device))
    return found


def lost_words(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Accesses of one word to nothing: each port of a divided one has some."""
    found: list[Any] = []
    unit = {memory: config.dram_element_bytes(memory) for memory in (Memory.UOP, Memory.OUT)}
    for seed, more in itertools.product((None, 1), range(4)):
        for memory, end in ((Memory.UOP, Finish()), (Memory.OUT, Finish(pop_next=1))):
            with opened(jitter_seed=seed) as device:
                kept = place(device, np.zeros(64, np.uint8)).address
                last = {"push_prev": 1} if memory == Memory.OUT else {}
                access = Load if memory == Memory.UOP else Store
                near = access(memory=memory, dram_base=kept // unit[memory], y_size=1, x_size=1)
                lost = (1 << 22) // unit[memory] + 2 * more * (memory == Memory.OUT)
                code = [*[near] * more, replace(near, dram_base=lost, **last), end]
                found.append(outcome(device, lambda d=device, c=code: launch(d, c)))
    return found


def slow_bursts(opened: Opened, config: HardwareConfig) -> list[Any]:
    """Long rows that a slow memory makes wait for each other; a reset in the middle of them."""
    unit = config.out.element_bytes
    found: list[Any] = []
    for bandwidth, seed in ((1.0, None), (4.0, 2), (None, 1)):
        with opened(bandwidth=bandwidth, jitter_seed=seed) as device:
            tiles = min(160, config.acc.depth)
            values = np.arange(tiles * config.acc.lanes, dtype=np.int32)
            source, target = place(device, values), device.alloc(tiles * unit)
            load = Load(memory=Memory.ACC, dram_base=source.address // config.acc.element_bytes,
                        x_size=tiles, y_size=1)  # fmt: skip
            store = Store(memory=Memory.OUT, dram_base=target.address // unit, x_size=tiles,
                          y_size=1)  # fmt: skip
            code = serialise([load, store])
            for cycles in range(60, 400, 17):
                begin(device, code)
                device.advance(cycles)
                device.reset_logic()
                found.append(state(device))
            launch(device, code)
            found += [digest(device.read(target, target.nbytes)), *seen(device)]
    return found


def pages(opened: Opened, config: HardwareConfig) -> list[Any]:
    """All registers after a program, and those that can be written."""
    program, arrays, _ = drawn(config, 1)
    with opened(latency=9) as device:
        program.run(device, *arrays)
        page = [device.read_register(4 * i) for i in range(0x400)]
        for i in range(2, 10):
            device.write_register(4 * i, 0xFFFFFFFF - i)
        return [*page, *(device.read_register(4 * i) for i in range(16))]


def trials(config: HardwareConfig, axi: bool, count: int = 6) -> dict[str, Callable[[Opened], Any]]:
    """Return the trials of a model by name, those that see most first."""
    found: dict[str, Callable[[Opened], Any]] = {}
    for seed in range(count):
        for jitter in (False, True):
            found[f"random {seed}{' jitter' * jitter}"] = lambda opened, s=seed, j=jitter: (
                random_trial(opened, config, s, j)
            )
    kinds = (RandomProgram, ConcurrentProgram, HazardousProgram)
    streams = [(kinds[seed % 3], seed) for seed in range(count)]
    others = (ReloadingProgram, RacingProgram, SummingProgram)
    streams += itertools.product(others, range(count // 2))
    for kind, seed in streams:
        found[f"{kind.__name__} {seed}"] = lambda opened, s=seed, k=kind: stream_trial(
            opened, k, config, s, s % 2 == 1
        )
    directed = [held_load, micro_op_in_use, waiting_accumulators, refused, overflow, odd_addresses]
    directed += [watched, high_addresses, reset_at_work, behind_finish, ignored_bits, far_rows]
    directed += [long_loops, far_factors, reloaded, narrow_rows, overlapping_rows]
    directed += [second_launch, lasting_fault]
    if config.has(Extension.FORWARD):
        directed.append(wrong_forwards)
    if config.has(Extension.NIBBLES):
        directed.append(wrong_nibbles)
    if config.has(Extension.POST):
        directed += [forgotten_settings, post_bounds, post_rows]
    if axi:
        directed += [stops, stops_at_work, stopped_loads, error_responses, lost_words]
        directed.append(slow_bursts)
    for trial in (*directed, pages):
        found[trial.__name__] = lambda opened, t=trial: t(opened, config)
    return found
