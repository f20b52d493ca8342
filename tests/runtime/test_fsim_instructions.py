"""The functional simulator: single instructions, and sums that overflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.fsim_device import LANES, PYNQ, accumulators, load, load_micro_ops, refuse

from trials.reference_isa import launch, serialise
from vtaops.errors import DeviceError
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Gemm,
    Instruction,
    Load,
    Store,
)
from vtaops.runtime import Fsim

# ------------------------------------------------------------- single instructions

INT32 = np.iinfo(np.int32)


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
