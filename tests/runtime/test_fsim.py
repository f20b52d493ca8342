"""The functional simulator: every instruction against the reference, every error, every kernel."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from types import FrameType

import numpy as np
import numpy.typing as npt
import pytest

from trials.random_streams import CONFIGS, REGION, RandomProgram
from trials.reference_isa import launch, launch_words, place, serialise
from vtaops import ConfigError, DeviceError
from vtaops.base.errors import NoRoom
from vtaops.errors import DeadlockError, DeviceTimeout
from vtaops.machine.capabilities import FULL
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    words_to_array,
)
from vtaops.runtime import DeviceBuffer, Fsim
from vtaops.runtime.fsim import available_kernels


def random_program(name: str, seed: int, **options: bool) -> RandomProgram:
    """Return a program; those with odd seeds start with loads of all scratchpads."""
    program = RandomProgram(CONFIGS[name], seed, **options)
    if seed % 2:
        program.fill_scratchpads()
    program.random_instructions(80)
    return program


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", CONFIGS)
def test_random_programs_equal_the_reference(name: str, seed: int) -> None:
    program = random_program(name, seed)
    stream = program.stream()
    for kernel in available_kernels():
        with Fsim(program.config, kernel=kernel) as device:
            region = place(device, program.image)
            assert region.address == REGION
            launch(device, stream)
            image = device.read(region, region.nbytes)
            np.testing.assert_array_equal(image, program.expected_image(), err_msg=kernel)
            assert device.stats().as_dict() == program.expected_counters()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CONFIGS)
def test_a_separate_output_memory_holds_what_the_reference_holds(name: str, seed: int) -> None:
    program = random_program(name, seed, separate_out=True)
    with Fsim(program.config, capabilities=FULL) as device:
        region = place(device, program.image)
        launch(device, program.stream())
        np.testing.assert_array_equal(device.read(region, region.nbytes), program.expected_image())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", CONFIGS)
def test_check_overflow_finds_the_first(name: str, seed: int) -> None:
    """The first overflow of the reference is the one that is reported; or there is none."""
    program = random_program(name, seed)
    with Fsim(program.config, check_overflow=True) as device:
        region = place(device, program.image)
        if program.reference.first_overflow is None:
            launch(device, program.stream())
            image = device.read(region, region.nbytes)
            np.testing.assert_array_equal(image, program.expected_image())
        else:
            with pytest.raises(DeviceError, match="int32 overflow") as caught:
                launch(device, program.stream())
            _, element, lane = program.reference.first_overflow
            assert f"accumulator {element}, lane {lane}:" in str(caught.value)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_defined_programs_give_the_same_under_every_seed(name: str, seed: int) -> None:
    program = random_program(name, 1)
    with Fsim(program.config, seed=seed) as device:
        region = place(device, program.image)
        launch(device, program.stream())
        np.testing.assert_array_equal(device.read(region, region.nbytes), program.expected_image())


# ------------------------------------------------------------- single instructions

PYNQ = CONFIGS["pynq"]
LANES = PYNQ.acc.lanes
INT32 = np.iinfo(np.int32)


@pytest.fixture(params=available_kernels())
def device(request: pytest.FixtureRequest) -> Iterator[Fsim]:
    with Fsim(PYNQ, kernel=request.param) as device:
        yield device


@pytest.fixture
def fsim() -> Iterator[Fsim]:
    with Fsim(PYNQ) as device:
        yield device


def load(device: Fsim, memory: Memory, data: npt.NDArray[np.generic], sram: int = 0) -> Load:
    """Place data in DRAM; return the LOAD of all its elements in one row."""
    unit = device.config.dram_element_bytes(memory)
    buffer = place(device, data)
    return Load(
        memory=memory,
        sram_base=sram,
        dram_base=buffer.address // unit,
        x_size=data.nbytes // unit,
        y_size=1,
    )


def load_micro_ops(device: Fsim, *table: tuple[int, int, int]) -> Load:
    return load(device, Memory.UOP, Encoding.of(device.config).encode_micro_ops(table))


def accumulators(device: Fsim, first: int, count: int) -> npt.NDArray[np.int32]:
    """Return accumulators of a device without a seed; overwrites them and micro-op 0."""
    out = device.alloc(4 * count * LANES)
    shift = Alu(alu_op=AluOp.SHR, use_imm=1, imm=8, uop_end=1, iter_out=1, iter_in=count)
    stream: list[Instruction] = [load_micro_ops(device, (first, 0, 0))]
    for byte in range(4):
        base = out.address // LANES + byte * count
        stream += [replace(shift, dst_factor_in=1)] if byte else []
        stream += [
            Store(memory=Memory.OUT, sram_base=first, dram_base=base, x_size=count, y_size=1)
        ]
    launch(device, serialise(stream))
    planes = device.read(out, out.nbytes).reshape(4, count, LANES)
    return np.ascontiguousarray(planes.transpose(1, 2, 0)).view(np.int32)[..., 0]


SHIFTS = [0, 1, 15, 16, 30, 31, 32, 33, 255, INT32.max]
SHIFTS += [-1, -15, -16, -30, -31, -32, -33, -256, INT32.min]
SHIFTED = np.array([0, 1, -1, 12345, -54321, 1 << 30, INT32.max, INT32.min], np.int32)


def shift(value: int, amount: int) -> int:
    exact = value >> amount if amount >= 0 else value << min(-amount, 64)
    return (exact + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("check_overflow", [False, True])
def test_shifts_by_accumulators(device: Fsim, check_overflow: bool) -> None:
    """Lane by lane, any int32 amount; a left shift that loses bits is no overflow."""
    if check_overflow:
        device = Fsim(PYNQ, check_overflow=True)
    values = np.repeat(SHIFTED, len(SHIFTS))
    amounts = np.tile(np.array(SHIFTS, np.int32), len(SHIFTED))
    count = -(-values.size // LANES)
    padded = np.zeros((2, count, LANES), np.int32)
    padded.reshape(2, -1)[:, : values.size] = values, amounts
    alu = Alu(alu_op=AluOp.SHR, uop_end=1, iter_out=1, iter_in=count)
    stream = [
        load_micro_ops(device, (0, count, 0)),
        load(device, Memory.ACC, padded),
        replace(alu, dst_factor_in=1, src_factor_in=1),
    ]
    launch(device, serialise(stream))
    expected = [shift(int(v), int(a)) for v, a in zip(values, amounts, strict=True)]
    result = accumulators(device, 0, count).reshape(-1)[: values.size]
    np.testing.assert_array_equal(result, np.array(expected, np.int32))


@pytest.mark.parametrize("imm", [0, 1, 15, 31, 32, 40, 32767, -1, -15, -31, -32, -33, -32768])
def test_shifts_by_immediates(device: Fsim, imm: int) -> None:
    values = np.tile(SHIFTED, 2)
    alu = Alu(alu_op=AluOp.SHR, use_imm=1, imm=imm, uop_end=1, iter_out=1, iter_in=1)
    launch(
        device,
        serialise([load_micro_ops(device, (0, 0, 0)), load(device, Memory.ACC, values), alu]),
    )
    expected = np.array([shift(int(v), imm) for v in values], np.int32)
    np.testing.assert_array_equal(accumulators(device, 0, 1)[0], expected)


def test_alu_follows_the_order_of_its_steps(device: Fsim) -> None:
    """A running sum: every step reads what the step before wrote."""
    data = np.arange(10 * LANES, dtype=np.int32).reshape(10, LANES)
    alu = Alu(alu_op=AluOp.ADD, uop_end=1, iter_out=1, iter_in=9, dst_factor_in=1, src_factor_in=1)
    launch(
        device,
        serialise([load_micro_ops(device, (1, 0, 0)), load(device, Memory.ACC, data), alu]),
    )
    np.testing.assert_array_equal(accumulators(device, 0, 10), np.cumsum(data, axis=0))


@pytest.mark.parametrize("repeated", ["micro-ops", "inner loop", "outer loop"])
def test_gemm_adds_many_products_to_one_accumulator(device: Fsim, repeated: str) -> None:
    """Products with one weight and one accumulator, however they are written down."""
    rng = np.random.default_rng(11)
    x = rng.integers(-128, 128, (7, LANES), np.int8)
    w = rng.integers(-128, 128, (LANES, LANES), np.int8)
    table = [(3, k, 0) for k in range(7 if repeated == "micro-ops" else 1)]
    gemm = Gemm(uop_end=len(table), iter_out=1, iter_in=1)
    if repeated == "inner loop":
        gemm = replace(gemm, iter_in=7, src_factor_in=1)
    if repeated == "outer loop":
        gemm = replace(gemm, iter_out=7, src_factor_out=1)
    stream = [
        load_micro_ops(device, *table),
        load(device, Memory.INP, x),
        load(device, Memory.WGT, w),
        gemm,
    ]
    launch(device, serialise(stream))
    expected = (x.astype(np.int64) @ w.astype(np.int64).T).sum(axis=0)
    np.testing.assert_array_equal(accumulators(device, 3, 1)[0], expected)


@pytest.mark.parametrize("loop", ["out", "in"])
@pytest.mark.parametrize("extent", [1, 2, 3, 4, 5, 31, 32, 33, 34, 35, 36])
def test_gemm_loops_of_any_length(device: Fsim, extent: int, loop: str) -> None:
    """Kernels treat long loops, and the remainders of blocks of four, in their own ways."""
    rng = np.random.default_rng(extent)
    x = rng.integers(-128, 128, (2 * extent, LANES), np.int8)
    w = rng.integers(-128, 128, (LANES, LANES), np.int8)
    start = rng.integers(-1000, 1000, (3 * extent, LANES), np.int32)
    other = {"out": "in", "in": "out"}[loop]
    steps = {f"iter_{loop}": extent, f"iter_{other}": 1}
    factors = {f"dst_factor_{loop}": 3, f"src_factor_{loop}": 2}
    stream = [
        load_micro_ops(device, (1, 1, 0)),
        load(device, Memory.INP, x),
        load(device, Memory.WGT, w),
        load(device, Memory.ACC, start),
        Gemm(uop_end=1, **steps, **factors),
    ]
    launch(device, serialise(stream))
    expected = start.copy()
    expected[1::3] += x[1::2].astype(np.int32) @ w.astype(np.int32).T
    np.testing.assert_array_equal(accumulators(device, 0, 3 * extent), expected)


@pytest.mark.parametrize(("iter_out", "iter_in"), [(3, 200), (5, 50)])
def test_instructions_of_millions_of_steps(device: Fsim, iter_out: int, iter_in: int) -> None:
    """They are executed in slices, between which the simulator looks at the clock."""
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (iter_in + 7 * iter_out, LANES), np.int8)
    w = rng.integers(-128, 128, (2 * iter_in + 5 * iter_out, LANES, LANES), np.int8)
    gemm = Gemm(
        uop_end=8192,
        iter_out=iter_out,
        iter_in=iter_in,
        dst_factor_out=iter_in,
        dst_factor_in=1,
        src_factor_out=7,
        src_factor_in=1,
        wgt_factor_out=5,
        wgt_factor_in=2,
    )
    add = Alu(
        alu_op=AluOp.ADD,
        use_imm=1,
        imm=3,
        uop_end=8192,
        iter_out=iter_out,
        iter_in=iter_in,
        dst_factor_out=iter_in,
        dst_factor_in=1,
    )
    uops = load_micro_ops(device, *[(0, 0, 0)] * 8192)
    inputs = [load(device, Memory.INP, x), load(device, Memory.WGT, w)]
    launch(device, serialise([uops, *inputs, gemm, add]))
    o, i = np.divmod(np.arange(iter_out * iter_in), iter_in)
    products = np.einsum("nk,nck->nc", x[7 * o + i].astype(np.int64), w[5 * o + 2 * i])
    exact = 8192 * (products + 3)
    expected = (exact + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(accumulators(device, 0, iter_out * iter_in), expected)


def test_gemm_wraps_and_takes_extreme_values(device: Fsim) -> None:
    start = np.array([INT32.max, INT32.min] * (LANES // 2), np.int32)
    x = np.full(LANES, -128, np.int8)
    w = np.tile(np.array([[-128], [127]], np.int8), (LANES // 2, LANES))
    stream = [
        load_micro_ops(device, (0, 0, 0)),
        load(device, Memory.ACC, start),
        load(device, Memory.INP, x),
        load(device, Memory.WGT, w),
        Gemm(uop_end=1, iter_out=1, iter_in=1),
    ]
    launch(device, serialise(stream))
    exact = start + (w.astype(np.int64) @ x.astype(np.int64))
    expected = (exact + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(accumulators(device, 0, 1)[0], expected)


def test_acc_8bit_extends_the_sign_and_counts_four_times(device: Fsim) -> None:
    data = np.array([-128, -1, 0, 127] * (LANES // 4), np.int8)
    launch(device, serialise([load(device, Memory.ACC_8BIT, data, sram=5)]))
    assert device.stats().acc_load_nbytes == 4 * data.size
    np.testing.assert_array_equal(accumulators(device, 5, 1)[0], data)


def test_a_load_without_rows_writes_its_padding(device: Fsim) -> None:
    data = np.ones((8, LANES), np.int32)
    padding = Load(
        memory=Memory.ACC,
        sram_base=1,
        dram_base=0xFFFFFFFF,
        x_size=1,
        x_pad_right=1,
        y_pad_top=1,
        y_pad_bottom=1,
    )
    launch(device, serialise([load(device, Memory.ACC, data), padding]))
    assert device.stats().acc_load_nbytes == data.nbytes
    expected = np.array([1, 0, 0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(accumulators(device, 0, 8)[:, 0], expected)


def test_no_operations_do_nothing(fsim: Fsim) -> None:
    """No element in a row, no iteration or no micro-op: nothing is accessed or counted."""
    everywhere = {"sram_base": 65535, "dram_base": 0xFFFFFFFF, "y_size": 9}
    uops = {"uop_begin": 8191, "uop_end": 16383}
    stream: list[Instruction] = [
        Load(memory=Memory.INP, x_pad_left=3, **everywhere),
        Store(memory=Memory.OUT, **everywhere),
        Gemm(iter_in=5, **uops),
        Alu(iter_out=5, use_imm=1, **uops),
        Gemm(iter_in=5, iter_out=5, uop_begin=9, uop_end=2),
    ]
    launch(fsim, serialise(stream))
    assert not any(fsim.stats().as_dict().values())


# ------------------------------------------------------------- order, seeds, scratchpads


def garbage_stream(device: Fsim, count: int) -> tuple[list[Instruction], Callable[[], bytes]]:
    """Return a stream that stores what it never wrote, and a function that reads it."""
    out = device.alloc(count * LANES)
    stream = [
        load_micro_ops(device, *[(k, k, k) for k in range(count)]),
        Gemm(uop_end=count, iter_out=1, iter_in=1),
        Store(memory=Memory.OUT, dram_base=out.address // LANES, x_size=count, y_size=1),
    ]
    return serialise(stream), lambda: device.read(out, out.nbytes).tobytes()


def garbage(seed: int | None, kernel: str, launches: int = 1) -> list[bytes]:
    with Fsim(PYNQ, seed=seed, kernel=kernel) as device:
        stream, read = garbage_stream(device, 16)
        results = []
        for _ in range(launches):
            launch(device, stream)
            results.append(read())
        return results


def test_undefined_scratchpads_follow_the_seed() -> None:
    reference = garbage(5, available_kernels()[0], launches=3)
    assert len({*reference}) == 3, "each launch advances the generator"
    assert garbage(6, available_kernels()[0])[0] != reference[0]
    for kernel in available_kernels():
        assert garbage(5, kernel, launches=3) == reference
        assert garbage(None, kernel) == [bytes(16 * LANES)]


def test_scratchpads_keep_their_contents_without_a_seed(device: Fsim) -> None:
    data = np.arange(-8, 8, dtype=np.int32)
    launch(device, serialise([load(device, Memory.ACC, data, sram=100)]))
    launch(device, serialise([]))
    np.testing.assert_array_equal(accumulators(device, 100, 1)[0], data)


def race(device: Fsim, *, with_token: bool) -> bytes:
    """Multiply an input by the identity, with or without a token from load to compute."""
    token = int(with_token)
    x, identity = np.arange(1, 17, dtype=np.int8), np.eye(LANES, dtype=np.int8)
    out = device.alloc(LANES)
    nop = Load(memory=Memory.INP, push_next=1)
    stream: list[Instruction] = [
        load_micro_ops(device, (0, 0, 0)),
        load(device, Memory.WGT, identity),
        replace(load(device, Memory.INP, x), push_next=token),
        Gemm(reset=1, uop_end=1, iter_out=1, iter_in=1),
        Gemm(uop_end=1, iter_out=1, iter_in=1, pop_prev=token, push_next=1),
        Store(
            memory=Memory.OUT,
            dram_base=out.address // LANES,
            x_size=1,
            y_size=1,
            pop_prev=1,
            push_prev=1,
        ),
        nop,
        Finish(pop_prev=1, pop_next=1),
    ]
    launch(device, stream)
    return device.read(out, LANES).tobytes()


def test_a_missing_token_shows() -> None:
    expected = bytes(range(1, 17))
    with_token = [race(Fsim(PYNQ, seed=seed), with_token=True) for seed in range(10)]
    assert {*with_token} == {expected}
    without = [race(Fsim(PYNQ, seed=seed), with_token=False) for seed in range(10)]
    assert len({*without}) > 1
    assert race(Fsim(PYNQ), with_token=True) == expected
    assert race(Fsim(PYNQ), with_token=False) == bytes(LANES), "compute runs before load"


# ------------------------------------------------------------- refused instructions


def refuse(device: Fsim, *stream: Instruction, match: str) -> str:
    with pytest.raises(DeviceError, match=re.escape(match)) as caught:
        launch(device, serialise(stream))
    assert type(caught.value) is DeviceError
    return str(caught.value)


MEMORIES = [Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.ACC_8BIT]


@pytest.mark.parametrize("memory", MEMORIES)
def test_load_beyond_the_scratchpad(fsim: Fsim, memory: Memory) -> None:
    pad = PYNQ.scratchpad(memory)
    data = np.zeros(4 * PYNQ.dram_element_bytes(memory), np.uint8)
    last = load(fsim, memory, data, sram=pad.depth - 5)
    launch(fsim, serialise([replace(last, x_pad_left=1)]))
    text = refuse(fsim, replace(last, x_pad_left=2), match="writes")
    name = "ACC" if memory == Memory.ACC_8BIT else memory.name
    assert f"{name} elements {pad.depth - 5}..{pad.depth + 1}; {name} has {pad.depth}" in text
    assert "instruction 0 (LOAD" in text


@pytest.mark.parametrize("memory", MEMORIES)
def test_load_beyond_the_buffer(fsim: Fsim, memory: Memory) -> None:
    unit = PYNQ.dram_element_bytes(memory)
    whole = replace(load(fsim, memory, np.zeros(6 * unit, np.uint8)), x_size=2, y_size=2)
    launch(fsim, serialise([replace(whole, x_stride=4)]))
    refuse(fsim, replace(whole, x_stride=5), match="are in no buffer")
    refuse(fsim, replace(whole, x_size=7, y_size=1), match="are in no buffer")
    refuse(fsim, replace(whole, dram_base=whole.dram_base - 1), match="are in no buffer")
    refuse(fsim, replace(whole, dram_base=0), match="are in no buffer")
    refuse(fsim, replace(whole, dram_base=0xFFFFFFFF), match="are in no buffer")


def test_buffers_are_bounded_to_the_byte_and_never_touch(fsim: Fsim) -> None:
    first, second = fsim.alloc(4096), fsim.alloc(17)
    assert second.address - first.address > 4096
    insn = Load(memory=Memory.INP, y_size=1, x_size=257, dram_base=first.address // 16)
    text = refuse(fsim, insn, match="are in no buffer")
    assert f"the nearest below is {first.address:#x}..{first.address + 4096:#x}" in text
    assert f"the nearest above is {second.address:#x}..{second.address + 17:#x}" in text
    launch(fsim, serialise([replace(insn, x_size=1, dram_base=second.address // 16)]))
    refuse(fsim, replace(insn, x_size=2, dram_base=second.address // 16), match="in no buffer")


def test_store_out_of_bounds(fsim: Fsim) -> None:
    out = fsim.alloc(4 * LANES)
    store = Store(
        memory=Memory.OUT, sram_base=2044, dram_base=out.address // LANES, y_size=2, x_size=2
    )
    store = replace(store, x_stride=2)
    launch(fsim, serialise([store]))
    refuse(
        fsim, replace(store, sram_base=2045), match="reads OUT elements 2045..2049; OUT has 2048"
    )
    refuse(fsim, replace(store, x_stride=3), match="are in no buffer")
    refuse(fsim, replace(store, y_pad_top=1), match="all pads must be 0")
    refuse(fsim, replace(store, memory=Memory.ACC), match="stores memory 3")


DEPTHS = {"uop": 8192, "dst": 2048, "src": 2048, "wgt": 1024}


@pytest.mark.parametrize("kind", [Gemm, Alu])
@pytest.mark.parametrize("field", ["dst", "src", "wgt"])
def test_indices_out_of_bounds(fsim: Fsim, kind: type[Gemm] | type[Alu], field: str) -> None:
    """The largest index may be the last element, and no more; the message names its terms."""
    if field == "wgt" and kind is Alu:
        return
    depth = DEPTHS[field]
    column = ("dst", "src", "wgt").index(field)
    table = [[0, 0, 0], [0, 0, 0]]
    table[1][column] = depth - 1 - 2 * 50 - 4 * 3
    factors = {f"{field}_factor_out": 50, f"{field}_factor_in": 3}
    insn = kind(uop_end=2, iter_out=3, iter_in=5, **factors)
    launch(fsim, serialise([load_micro_ops(fsim, *map(tuple, table)), insn]))
    table[1][column] += 1
    launch(fsim, serialise([load_micro_ops(fsim, *map(tuple, table))]))
    text = refuse(fsim, insn, match=f" {depth} = {depth - 112} + 2*50 + 4*3")
    assert "micro-op 1 reaches" in text
    assert f"has {depth} elements" in text
    if field != "dst":
        unused = {"reset": 1} if kind is Gemm else {"use_imm": 1}
        launch(fsim, serialise([replace(insn, **unused)]))


def test_micro_ops_out_of_bounds(fsim: Fsim) -> None:
    insn = Alu(uop_begin=8191, uop_end=8192, iter_out=1, iter_in=1, use_imm=1)
    launch(fsim, serialise([insn]))
    refuse(fsim, replace(insn, uop_end=8193), match="reads UOP elements 8191..8193; UOP has 8192")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (5, "opcode 5"),
        (7, "opcode 7"),
        (6 << 7, "memory 6"),
        (4 << 7, "loads the output memory"),
        (4 | 5 << 108, "ALU operation 5"),
    ],
)
def test_words_that_are_no_instructions(fsim: Fsim, word: int, text: str) -> None:
    with pytest.raises(DeviceError, match=text) as caught:
        launch_words(fsim, [0, word, 3])
    assert "instruction 1 (" in str(caught.value)


# ------------------------------------------------------------- streams as a whole


def test_finish_must_be_the_last_of_its_unit(fsim: Fsim) -> None:
    with pytest.raises(DeviceError, match="no FINISH"):
        launch(fsim, [Load(memory=Memory.UOP)])
    with pytest.raises(DeviceError, match=r"instruction 1 \(FINISH\) is followed by instruction 2"):
        launch(fsim, [Load(memory=Memory.UOP), Finish(), Load(memory=Memory.UOP)])
    with pytest.raises(DeviceError, match="followed by"):
        launch(fsim, [Finish(), Finish()])


@pytest.mark.parametrize(
    ("unit", "other"),
    [("load", Load(memory=Memory.INP)), ("store", Store(memory=Memory.OUT))],
)
def test_finish_must_wait_for_the_others(fsim: Fsim, unit: str, other: Instruction) -> None:
    """In the order without a seed, FINISH overtakes whatever it does not wait for."""
    with pytest.raises(DeviceError, match=f"while the {unit} unit had 2 instructions"):
        launch(fsim, [other, other, Load(memory=Memory.UOP), Finish()])


@pytest.mark.parametrize(
    ("insn", "queue"),
    [
        (Load(memory=Memory.UOP, push_prev=1), "compute->load 1"),
        (Load(memory=Memory.UOP, push_next=1), "compute->store 1"),
    ],
)
def test_tokens_must_not_remain(fsim: Fsim, insn: Instruction, queue: str) -> None:
    wait = [Load(memory=Memory.INP, push_next=1), Finish(pop_prev=1)]
    with pytest.raises(DeviceError, match="tokens remain") as caught:
        launch(fsim, [insn, *wait])
    assert queue in str(caught.value)
    launch(fsim, wait)  # the next launch starts without tokens


def test_one_wait_for_two_tokens_fails_in_either_order() -> None:
    """FINISH after the first load overtakes the second; after both, it leaves a token."""
    stream = [Load(memory=Memory.INP, push_next=1)] * 2 + [Finish(pop_prev=1)]
    texts = set()
    for seed in range(20):
        with Fsim(PYNQ, seed=seed) as device, pytest.raises(DeviceError) as caught:
            launch(device, stream)
        texts.add(str(caught.value).partition(" (")[0])
    assert texts == {"tokens remain after the last instruction", "instruction 2"}


def test_flags_towards_no_neighbour_are_ignored(fsim: Fsim) -> None:
    launch(
        fsim,
        [
            Load(memory=Memory.INP, pop_prev=1, push_prev=1, push_next=1),
            Load(memory=Memory.UOP, push_next=1),
            Store(memory=Memory.OUT, pop_prev=1, pop_next=1, push_prev=1, push_next=1),
            Finish(pop_prev=1, pop_next=1),
        ],
    )


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_deadlock_reports_the_state(seed: int | None) -> None:
    stream = [
        Load(memory=Memory.INP, push_next=1),
        Load(memory=Memory.WGT, push_next=1),
        Load(memory=Memory.INP, pop_next=1),
        Load(memory=Memory.UOP, pop_prev=1),
        Gemm(pop_prev=1, pop_next=1, uop_end=1),
        Finish(),
        Store(memory=Memory.OUT, pop_prev=1),
    ]
    with Fsim(PYNQ, seed=seed) as device, pytest.raises(DeadlockError) as caught:
        launch(device, stream)
    assert str(caught.value) == (
        "deadlock: no unit can continue\n"
        "  load unit: instruction 2 (LOAD INP nop) waits for a token of compute->load\n"
        "  compute unit: instruction 4 (GEMM uop 0..1 loops 0x0 dst +0,+0 src +0,+0 wgt +0,+0) "
        "waits for a token of store->compute\n"
        "  store unit: instruction 6 (STORE OUT nop) waits for a token of compute->store\n"
        "  tokens held: load->compute 1, compute->load 0, compute->store 0, store->compute 0"
    )


def test_deadlock_names_every_queue_and_units_that_are_done(fsim: Fsim) -> None:
    with pytest.raises(DeadlockError) as caught:
        launch(fsim, [Finish(pop_prev=1, pop_next=1)])
    assert "waits for a token of load->compute and of store->compute" in str(caught.value)
    assert "load unit: done" in str(caught.value)


@pytest.mark.parametrize("check_overflow", [False, True])
@pytest.mark.parametrize("insn", [Gemm, Alu])
def test_timeout(insn: type[Gemm] | type[Alu], check_overflow: bool) -> None:
    """Years of work in one instruction end in time, and the device still works."""
    with Fsim(PYNQ, check_overflow=check_overflow) as device:
        endless = insn(uop_end=8192, iter_out=16383, iter_in=16383)
        with pytest.raises(DeviceTimeout, match=r"not finished after 0\.05 s: 0 of 2") as caught:
            launch(device, [endless, Finish()], timeout=0.05)
        assert "the compute unit is at instruction 0 (" in str(caught.value)
        assert device.stats().gemm_counter == 0
        launch(device, [Finish()])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_during_a_launch_leaves_a_device_that_works() -> None:
    """The thread of the launch does not exist in the child; its locks would never be free."""
    with Fsim(PYNQ) as device:
        endless = Gemm(uop_end=8192, iter_out=16383, iter_in=16383)
        code = place(
            device, words_to_array([Encoding.of(PYNQ).encode(i) for i in (endless, Finish())])
        )

        def run() -> None:
            with pytest.raises(DeviceError, match="interrupted"):
                device.launch(code.address, 2, 600)

        thread = threading.Thread(target=run)
        thread.start()
        frames = sys._current_frames
        while thread.ident not in frames() or frames()[thread.ident].f_code.co_name != "_call":
            pass  # until the thread is about to call the simulator
        for _ in range(3):
            if child := os.fork():
                assert os.waitpid(child, 0)[1] == 0
                continue
            signal.alarm(60)
            buffer = device.alloc(8)
            device.write(buffer, np.arange(8, dtype=np.uint8))
            launch(device, [Finish()])
            assert device.stats().gemm_counter == 0
            same = device.read(buffer, 8).tolist() == [*range(8)]
            device.close()
            os._exit(0 if same else 1)
        while thread.is_alive():
            device.interrupt()
            thread.join(0.01)
        launch(device, [Finish()])


def test_interrupt_ends_a_launch(fsim: Fsim) -> None:
    class Interrupt(Exception):
        pass

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Interrupt):
            launch(fsim, [Gemm(uop_end=8192, iter_out=16383, iter_in=16383), Finish()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    launch(fsim, [Finish()])


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), 10**400, np.ones(2)])
def test_timeout_must_be_positive(fsim: Fsim, timeout: float) -> None:
    with pytest.raises(DeviceError, match="must be positive"):
        launch(fsim, [Finish()], timeout=timeout)
    launch(fsim, [Finish()], timeout=float("inf"))


def test_launch_needs_instructions(fsim: Fsim) -> None:
    buffer = fsim.alloc(64)
    for address, count, text in (
        (buffer.address, 0, "at least 1"),
        (buffer.address, 5, "are in no buffer"),
        (buffer.address + 8, 1, "not a multiple of 16"),
        (0, 1, "are in no buffer"),
        (-16, 1, "the instruction address is -16"),
        (1 << 32, 1, "the instruction address is 4294967296"),
        (4096.0, 1, "the instruction address is 4096.0; it must be an integer"),
        (buffer.address, -1, "the number of instructions is -1"),
        (buffer.address, "1", "the number of instructions is '1'"),
    ):
        with pytest.raises(DeviceError, match=text):
            fsim.launch(address, count, 1.0)


# ------------------------------------------------------------- overflow


@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_of_a_gemm_is_exact(sign: int) -> None:
    """The limit itself is no overflow, one beyond is; without the check it wraps."""
    x, w = np.zeros(LANES, np.int8), np.zeros((LANES, LANES), np.int8)
    x[2], w[9, 2] = 100, sign * 10
    limit = INT32.max if sign > 0 else INT32.min
    for excess in (0, 1):
        start = np.zeros(LANES, np.int32)
        start[9] = limit - sign * (1000 - excess)
        with Fsim(PYNQ, check_overflow=True) as device:
            stream = serialise(
                [
                    load_micro_ops(device, (77, 0, 0)),
                    load(device, Memory.ACC, start, sram=77),
                    load(device, Memory.INP, x),
                    load(device, Memory.WGT, w),
                    Gemm(uop_end=1, iter_out=1, iter_in=1),
                ]
            )
            if not excess:
                launch(device, stream)
                assert accumulators(device, 77, 1)[0, 9] == limit
                continue
            index = next(k for k, insn in enumerate(stream) if isinstance(insn, Gemm))
            with pytest.raises(DeviceError) as caught:
                launch(device, stream)
            assert str(caught.value) == (
                f"instruction {index} (GEMM uop 0..1 loops 1x1 dst +0,+0 src +0,+0 wgt +0,+0): "
                f"int32 overflow in accumulator 77, lane 9: {start[9]} + {sign * 1000} = "
                f"{limit + sign}"
            )


@pytest.mark.parametrize(
    ("op", "value", "imm", "overflows"),
    [
        (AluOp.ADD, INT32.max - 5, 5, False),
        (AluOp.ADD, INT32.max - 5, 6, True),
        (AluOp.ADD, INT32.min + 5, -6, True),
        (AluOp.MUL, 1 << 16, 1 << 14, False),
        (AluOp.MUL, 1 << 17, 1 << 14, True),
        (AluOp.MUL, INT32.min, -1, True),
        (AluOp.SHR, INT32.max, -1, False),
        (AluOp.MAX, INT32.min, 5, False),
    ],
)
def test_overflow_of_the_alu(op: AluOp, value: int, imm: int, overflows: bool) -> None:
    with Fsim(PYNQ, check_overflow=True) as device:
        alu = Alu(alu_op=op, use_imm=1, imm=imm, uop_end=1, iter_out=1, iter_in=1)
        data = np.full(LANES, value, np.int32)
        stream = [load_micro_ops(device, (0, 0, 0)), load(device, Memory.ACC, data), alu]
        if overflows:
            text = refuse(device, *stream, match="int32 overflow in accumulator 0, lane 0")
            assert op.name in text
        else:
            launch(device, serialise(stream))


# ------------------------------------------------------------- memory and life of a device


def test_memory_is_zeroed_aligned_and_apart(fsim: Fsim) -> None:
    sizes = [1, 4095, 4096, 4097, 100_000]
    buffers = [fsim.alloc(size) for size in sizes]
    assert buffers[0].address == 4096
    for buffer, size in zip(buffers, sizes, strict=True):
        assert buffer.nbytes == size
        assert buffer.address % 4096 == 0
        assert 0 < buffer.address < 1 << 32
        assert not fsim.read(buffer, size).any()
        fsim.write(buffer, np.full(size, 255, np.uint8))
    ends = [b.address + b.nbytes for b in buffers]
    for end, following in zip(ends, buffers[1:], strict=False):
        assert following.address - end >= 4096
    fsim.free(buffers[2])
    again = fsim.alloc(4096)
    assert not fsim.read(again, 4096).any()


def test_memory_is_finite_and_reused(fsim: Fsim) -> None:
    half = 1 << 31
    first = fsim.alloc(half)
    with pytest.raises(NoRoom, match="no room for 2147483648 bytes; 1 buffers are allocated"):
        fsim.alloc(half)
    fsim.free(first)
    second = fsim.alloc(half)
    assert second.address + half < 1 << 32
    small = [fsim.alloc(1 << 20) for _ in range(8)]
    for buffer in small:
        assert buffer.address + buffer.nbytes <= 1 << 32
        assert not second.address <= buffer.address < second.address + half
    for nbytes in (0, -1, (1 << 32) + 1):
        with pytest.raises(DeviceError, match="must be an integer in 1"):
            fsim.alloc(nbytes)


def test_buffers_stay_apart_under_random_use(fsim: Fsim) -> None:
    """Sizes that fill the address space several times over, so that gaps are used again."""
    rng = np.random.default_rng(0)
    live: list[DeviceBuffer] = []
    refused = 0
    for _ in range(300):
        if live and rng.random() < 0.45:
            fsim.free(live.pop(rng.integers(len(live))))
            continue
        try:
            live.append(fsim.alloc(int(2 ** rng.uniform(12, 30))))
        except DeviceError:
            refused += 1
        spans = sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in live)
        for (_, end), (begin, _) in pairwise(spans):
            assert begin - end >= 4096
        assert spans[0][0] >= 4096
        assert spans[-1][1] <= (1 << 32) - 4096
    assert refused


def test_addresses_are_reused_after_the_last(fsim: Fsim) -> None:
    """The whole space can be handed out many times, with other buffers in between."""
    kept = fsim.alloc(4096)
    addresses = set()
    for _ in range(9):
        buffer = fsim.alloc(1 << 30)
        addresses.add(buffer.address)
        fsim.free(buffer)
    assert kept.address not in addresses
    assert len(addresses) < 9


def test_write_and_read(fsim: Fsim) -> None:
    data = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    buffer = place(fsim, data)
    np.testing.assert_array_equal(fsim.read(buffer, data.nbytes).view(np.int32), data.reshape(-1))
    fsim.write(buffer, data.transpose(2, 0, 1))  # in C order
    np.testing.assert_array_equal(
        fsim.read(buffer, data.nbytes).view(np.int32), data.transpose(2, 0, 1).reshape(-1)
    )
    fsim.write(buffer, np.array([], np.int8))
    data.setflags(write=False)
    fsim.write(buffer, data)
    assert fsim.read(buffer, 0).size == 0
    for nbytes in (97, 1 << 40, 1 << 70, -1, 2.5, "4", True, None):
        with pytest.raises(DeviceError, match=r"bytes to read is .*must be an integer in 0\.\.96"):
            fsim.read(buffer, nbytes)
    with pytest.raises(DeviceError, match="97 bytes exceed buffer"):
        fsim.write(buffer, np.zeros(97, np.uint8))
    with pytest.raises(DeviceError, match="array of object"):
        fsim.write(buffer, np.array([None]))


def test_handles_are_checked(fsim: Fsim) -> None:
    buffer = fsim.alloc(64)
    with Fsim(PYNQ) as other:
        foreign = other.alloc(64)
        assert foreign.address == buffer.address
        with pytest.raises(DeviceError, match="belongs to another device"):
            fsim.free(foreign)
        with pytest.raises(DeviceError, match="belongs to another device"):
            fsim.write(foreign, np.zeros(1, np.int8))
    fsim.free(buffer)
    with pytest.raises(DeviceError, match="was freed"):
        fsim.free(buffer)
    with pytest.raises(DeviceError, match="was freed"):
        fsim.read(buffer, 1)

    class Fake:
        address, nbytes = 4096, 64

    with pytest.raises(DeviceError, match="does not belong to a functional simulator"):
        fsim.free(Fake())


def test_a_closed_device_refuses(fsim: Fsim) -> None:
    buffer = fsim.alloc(64)
    fsim.close()
    fsim.close()
    for call in (
        lambda: fsim.alloc(1),
        lambda: fsim.free(buffer),
        lambda: fsim.write(buffer, np.zeros(1, np.int8)),
        lambda: fsim.read(buffer, 1),
        lambda: fsim.launch(4096, 1, 1.0),
        fsim.stats,
        fsim.reset_stats,
    ):
        with pytest.raises(DeviceError, match="the device is closed"):
            call()


def test_construction() -> None:
    assert Fsim().config == PYNQ
    assert Fsim("tiny").config.block_in == 8
    assert Fsim().kernel == available_kernels()[0]
    assert available_kernels()[-1] == "generic"
    assert Fsim(check_overflow=True).kernel == "checked"
    assert repr(Fsim("tiny", seed=3, kernel="generic")) == "Fsim('tiny', seed=3, kernel='generic')"
    with pytest.raises(ConfigError, match="no hardware configuration"):
        Fsim("no such")
    with pytest.raises(DeviceError, match=r"no kernels '\{0\}' on this CPU; give one of auto, "):
        Fsim(kernel="{0}")
    with pytest.raises(DeviceError, match="cannot detect overflow"):
        Fsim(kernel="generic", check_overflow=True)
    for seed in (-1, 1 << 64):
        with pytest.raises(DeviceError, match="seed is"):
            Fsim(seed=seed)


def test_statistics_add_up_until_reset(fsim: Fsim) -> None:
    data = np.zeros(LANES, np.int32)
    stream = serialise([load(fsim, Memory.ACC, data)])
    launch(fsim, stream)
    launch(fsim, stream)
    assert fsim.stats().acc_load_nbytes == 2 * data.nbytes
    fsim.reset_stats()
    assert not any(fsim.stats().as_dict().values())


# ------------------------------------------------------------- threads


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run all bodies at once; raise what any of them raised."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_devices_in_threads_are_independent() -> None:
    programs = [random_program("pynq", seed) for seed in (0, 1, 2)]

    def run(program: RandomProgram) -> None:
        for _ in range(10):
            with Fsim(PYNQ) as device:
                region = place(device, program.image)
                launch(device, program.stream())
                image = device.read(region, region.nbytes)
                np.testing.assert_array_equal(image, program.expected_image())

    in_threads(*(lambda p=p: run(p) for p in programs))


def test_one_device_in_threads_is_not_corrupted(fsim: Fsim) -> None:
    """Launches, copies and allocations from three threads; each has its own accumulators."""

    def run(number: int) -> None:
        for k in range(50):
            data = np.full((4, LANES), 10 * number + k % 10, np.int32)
            out = fsim.alloc(4 * LANES)
            acc = load(fsim, Memory.ACC, data, sram=100 * number)
            store = Store(
                memory=Memory.OUT,
                sram_base=100 * number,
                dram_base=out.address // LANES,
                x_size=4,
                y_size=1,
            )
            launch(fsim, serialise([acc, store]))
            result = fsim.read(out, out.nbytes).view(np.int8)
            np.testing.assert_array_equal(result, data.reshape(-1).astype(np.int8))
            fsim.free(out)

    in_threads(*(lambda n=n: run(n) for n in range(3)))
    assert fsim.stats().acc_load_nbytes == 3 * 50 * 4 * LANES * 4


def test_python_goes_on_during_a_launch(fsim: Fsim) -> None:
    endless = [Gemm(uop_end=8192, iter_out=16383, iter_in=16383), Finish()]

    def run() -> None:
        with pytest.raises(DeviceTimeout):
            launch(fsim, endless, timeout=0.3)

    thread = threading.Thread(target=run)
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
    thread.join()
    assert turns > 100
