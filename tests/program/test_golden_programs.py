"""Known programs with known results: upstream's tutorial and the examples of standalone-vta.

Instruction words and counters are those that were published or recorded with upstream's simulator;
results are compared with NumPy. The streams are written by hand, tokens included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from trials.reference_isa import launch, launch_words, place, serialise
from vtaops import HardwareConfig
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, AluOp, Encoding, Finish, Gemm, Instruction, Load, Store, Unit
from vtaops.program import Statistics
from vtaops.runtime import Fsim
from vtaops.runtime.fsim import available_kernels

PYNQ = HardwareConfig.load("pynq")
BLOCK = 16
Matrix = npt.NDArray[np.int8]


def counters(**values: int) -> dict[str, int]:
    return Statistics(**values).as_dict()


def random_matrix(rows: int, columns: int, seed: int, low: int = -128, high: int = 128) -> Matrix:
    return np.random.default_rng(seed).integers(low, high, (rows, columns), np.int8)


def wrapped_product(x: Matrix, w: Matrix) -> npt.NDArray[np.int32]:
    """Return x @ w.T in int32."""
    return x.astype(np.int32) @ w.astype(np.int32).T


# ------------------------------------------------------- the program "16x16", word by word

WORDS_16X16 = [
    0x00000001000100010000004000000000,
    0x000000000000080000200008002000A2,
    0x00000010001000010000000400000110,
    0x000000010001000100000000800000C0,
    0x00000001000100010000004004000408,
    0x00000002000008000020000800400142,
    0x00000010001000010000000C00000229,
    0x00000000000000000000000000000140,
    0x00000000000000000000000000000018,
    0x00000000000000000000000000000003,
]

INSTRUCTIONS_16X16 = [
    Load(memory=Memory.UOP, dram_base=4096, y_size=1, x_size=1, x_stride=1),
    Gemm(reset=1, push_prev=1, uop_end=1, iter_out=1, iter_in=16, dst_factor_in=1),
    Load(memory=Memory.INP, pop_next=1, dram_base=256, y_size=1, x_size=16, x_stride=16),
    Load(memory=Memory.WGT, push_next=1, dram_base=32, y_size=1, x_size=1, x_stride=1),
    Load(
        memory=Memory.UOP,
        pop_prev=1,
        sram_base=1,
        dram_base=4097,
        y_size=1,
        x_size=1,
        x_stride=1,
    ),
    Gemm(
        push_next=1,
        uop_begin=1,
        uop_end=2,
        iter_out=1,
        iter_in=16,
        dst_factor_in=1,
        src_factor_in=1,
    ),
    Store(
        memory=Memory.OUT,
        pop_prev=1,
        push_prev=1,
        dram_base=768,
        y_size=1,
        x_size=16,
        x_stride=16,
    ),
    Load(memory=Memory.INP, push_next=1),
    Load(memory=Memory.UOP, pop_prev=1, pop_next=1),
    Finish(),
]


def test_words_of_16x16_decode_and_encode() -> None:
    encoding = Encoding.of(PYNQ)
    assert [encoding.decode(word) for word in WORDS_16X16] == INSTRUCTIONS_16X16
    assert [encoding.encode(insn) for insn in INSTRUCTIONS_16X16] == WORDS_16X16


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("kernel", available_kernels())
def test_16x16_at_its_absolute_addresses(kernel: str, seed: int | None) -> None:
    x, w = random_matrix(16, 16, 1), random_matrix(16, 16, 2)
    image = np.zeros(16384 + 8 - 4096, np.uint8)  # addresses 4096 (inp) to 16392 (micro-ops)
    image[0:256] = x.reshape(-1).view(np.uint8)
    image[4096:4352] = w.reshape(-1).view(np.uint8)
    with Fsim("pynq", kernel=kernel, seed=seed) as device:
        buffer = place(device, image)
        assert buffer.address == 4096
        launch_words(device, WORDS_16X16)
        result = device.read(buffer, buffer.nbytes)[8192 : 8192 + 256].view(np.int8)
        np.testing.assert_array_equal(result.reshape(16, 16), wrapped_product(x, w).astype(np.int8))
        assert device.stats().as_dict() == counters(
            uop_load_nbytes=8,
            inp_load_nbytes=256,
            wgt_load_nbytes=256,
            gemm_counter=16,
            out_store_nbytes=256,
        )


# ----------------------------------------------------- matrix programs of standalone-vta


@dataclass(frozen=True)
class MatrixCase:
    """``relu(x @ w.T)`` on int8 with the token scheme of 16x16; counters from the reference."""

    name: str
    rows: int
    inner: int
    columns: int
    relu: bool
    uops: int
    inp: int
    wgt: int
    gemm: int
    alu: int
    out: int


MATRIX_CASES = [
    MatrixCase("smm", 1, 16, 16, False, 2, 16, 256, 1, 0, 16),
    MatrixCase("16x16", 16, 16, 16, False, 2, 256, 256, 16, 0, 256),
    MatrixCase("16x16_relu", 16, 16, 16, True, 3, 256, 256, 16, 16, 256),
    MatrixCase("32x32", 32, 32, 32, False, 5, 1024, 1024, 128, 0, 1024),
    MatrixCase("32x32_relu", 32, 32, 32, True, 6, 1024, 1024, 128, 64, 1024),
    MatrixCase("lenet5_conv1", 784, 32, 16, False, 3, 25088, 512, 1568, 0, 12544),
    MatrixCase("lenet5_conv1_relu", 784, 32, 16, True, 4, 25088, 512, 1568, 784, 12544),
]


def tiles_of(matrix: Matrix) -> Matrix:
    """Return the 1x16 tiles of a matrix: 16 rows of one column block, then the next block."""
    rows, columns = matrix.shape
    height = min(rows, BLOCK)
    blocks = matrix.reshape(rows // height, height, columns // BLOCK, BLOCK)
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))


def matrix_micro_ops(case: MatrixCase) -> npt.NDArray[np.uint32]:
    """Reset, one for each output block and inner block of a block of rows, ReLU."""
    height = min(case.rows, BLOCK)
    inner, outer = case.inner // BLOCK, case.columns // BLOCK
    products = [(height * n, height * k, n * inner + k) for n in range(outer) for k in range(inner)]
    table = [(0, 0, 0), *products] + [(0, 0, 0)] * case.relu
    return Encoding.of(PYNQ).encode_micro_ops(table)


def matrix_stream(case: MatrixCase, bases: dict[str, int]) -> list[Instruction]:
    """The 16x16 scheme: reset, load, multiply, ReLU, store, meet, finish.

    The outer loop goes over blocks of 16 rows, the inner loop over the rows of a block.
    """
    height = min(case.rows, BLOCK)
    blocks, inner, outer = case.rows // height, case.inner // BLOCK, case.columns // BLOCK
    loops = Gemm(iter_out=blocks, iter_in=height, dst_factor_out=height * outer, dst_factor_in=1)
    products = 1 + inner * outer
    inputs, outputs = case.rows * inner, case.rows * outer

    def row(memory: Memory, base: int, count: int, **fields: int) -> Load:
        return Load(memory=memory, dram_base=base, y_size=1, x_size=count, x_stride=count, **fields)

    gemm = replace(
        loops, uop_begin=1, uop_end=products, src_factor_out=height * inner, src_factor_in=1
    )
    every = outer * blocks * height
    relu = Alu(
        alu_op=AluOp.MAX,
        use_imm=1,
        uop_begin=products,
        uop_end=products + 1,
        iter_out=1,
        iter_in=every,
        dst_factor_in=1,
        src_factor_in=1,
    )
    compute: list[Instruction] = [gemm, relu] if case.relu else [gemm]
    compute[-1] = replace(compute[-1], push_next=1)
    return [
        row(Memory.UOP, bases["uop"], 1),
        replace(loops, reset=1, push_prev=1, uop_end=1, iter_out=1, iter_in=every, dst_factor_in=1),
        row(Memory.INP, bases["inp"], inputs, pop_next=1),
        row(Memory.WGT, bases["wgt"], inner * outer, push_next=1),
        row(Memory.UOP, bases["uop"] + 1, case.uops - 1, pop_prev=1, sram_base=1),
        *compute,
        Store(
            memory=Memory.OUT,
            pop_prev=1,
            push_prev=1,
            dram_base=bases["out"],
            y_size=1,
            x_size=outputs,
            x_stride=outputs,
        ),
        Load(memory=Memory.INP, push_next=1),
        Load(memory=Memory.UOP, pop_prev=1, pop_next=1),
        Finish(),
    ]


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("case", MATRIX_CASES, ids=lambda case: case.name)
def test_matrix_programs(case: MatrixCase, seed: int | None) -> None:
    x = random_matrix(case.rows, case.inner, 3, -6, 7)
    w = random_matrix(case.columns, case.inner, 4, -6, 7)
    micro_ops = matrix_micro_ops(case)
    assert len(micro_ops) == case.uops
    with Fsim("pynq", seed=seed) as device:
        weights = w.reshape(-1, BLOCK, case.inner // BLOCK, BLOCK).transpose(0, 2, 1, 3)
        images = {"inp": tiles_of(x), "wgt": np.ascontiguousarray(weights), "uop": micro_ops}
        buffers = {name: place(device, image) for name, image in images.items()}
        buffers["out"] = device.alloc(case.rows * case.columns)
        unit = {"inp": 16, "wgt": 256, "uop": 4, "out": 16}
        bases = {name: buffer.address // unit[name] for name, buffer in buffers.items()}
        launch(device, matrix_stream(case, bases))

        expected = wrapped_product(x, w)
        expected = np.maximum(expected, 0) if case.relu else expected
        result = device.read(buffers["out"], case.out).view(np.int8)
        np.testing.assert_array_equal(result, tiles_of(expected.astype(np.int8)).reshape(-1))
        assert device.stats().as_dict() == counters(
            uop_load_nbytes=4 * case.uops,
            inp_load_nbytes=case.inp,
            wgt_load_nbytes=case.wgt,
            gemm_counter=case.gemm,
            alu_counter=case.alu,
            out_store_nbytes=case.out,
        )


def test_words_of_lenet5_conv1_relu() -> None:
    case = MATRIX_CASES[-1]
    encoding = Encoding.of(PYNQ)
    stream = matrix_stream(case, dict.fromkeys(("uop", "inp", "wgt", "out"), 0))
    gemm = next(insn for insn in stream if isinstance(insn, Gemm) and not insn.reset)
    assert encoding.encode(gemm) == 0x00000002080008100020018800600102
    alu = encoding.decode(0x00009002040008100020018800800344)
    assert alu == Alu(
        push_next=1,
        uop_begin=3,
        uop_end=4,
        iter_out=49,
        iter_in=16,
        dst_factor_out=16,
        dst_factor_in=1,
        src_factor_out=16,
        src_factor_in=1,
        alu_op=AluOp.MAX,
        use_imm=1,
    )


def run_on_accumulators(
    data: npt.NDArray[np.int32], body: list[Instruction], table: list[tuple[int, int, int]]
) -> tuple[npt.NDArray[np.int8], dict[str, int]]:
    """Load micro-ops and accumulators, run the body; return all accumulators as int8, counters."""
    with Fsim("pynq") as device:
        acc, out = place(device, data), device.alloc(data.size)
        uop = place(device, Encoding.of(PYNQ).encode_micro_ops(table))
        row = Load(memory=Memory.UOP, dram_base=uop.address // 4, y_size=1, x_size=len(table))
        loads = [
            row,
            replace(row, memory=Memory.ACC, dram_base=acc.address // 64, x_size=len(data)),
        ]
        launch(device, serialise([*loads, *body]))
        stats = device.stats().as_dict()
        store = Store(memory=Memory.OUT, dram_base=out.address // 16, y_size=1, x_size=len(data))
        launch(device, serialise([store]))
        return device.read(out, data.size).view(np.int8).reshape(data.shape), stats


def test_relu_program() -> None:
    data = np.random.default_rng(7).integers(-120, 120, (1, BLOCK), np.int32)
    relu = Alu(alu_op=AluOp.MAX, use_imm=1, uop_end=1, iter_out=1, iter_in=1)
    result, stats = run_on_accumulators(data, [relu], [(0, 0, 0)])
    np.testing.assert_array_equal(result, np.maximum(data, 0))
    assert stats == counters(uop_load_nbytes=4, acc_load_nbytes=64, alu_counter=1)


def test_average_pooling_program() -> None:
    """2x2 windows of a 4x4 image, in place: add three neighbours to each corner, divide by 4."""
    data = np.random.default_rng(7).integers(-120, 120, (16, BLOCK), np.int32)
    add = Alu(
        alu_op=AluOp.ADD,
        uop_end=3,
        iter_out=2,
        iter_in=2,
        dst_factor_out=8,
        src_factor_out=8,
        dst_factor_in=2,
        src_factor_in=2,
    )
    divide = replace(add, alu_op=AluOp.SHR, use_imm=1, imm=2, uop_end=1)
    result, stats = run_on_accumulators(data, [add, divide], [(0, 1, 0), (0, 4, 0), (0, 5, 0)])
    sums = data.reshape(2, 2, 2, 2, BLOCK).sum(axis=(1, 3)).reshape(4, BLOCK)
    np.testing.assert_array_equal(result[[0, 2, 8, 10]], sums >> 2)
    assert stats == counters(uop_load_nbytes=12, acc_load_nbytes=1024, alu_counter=16)


# ------------------------------------------------------------- the tutorial's convolution


class TutorialConv2d:
    """14x14, 256 to 256 channels, 3x3, padding 1, on 1x16, as upstream's tutorial schedules it.

    Blocks of 128 output channels, 16 input channels, 7 rows and 14 columns; two virtual threads
    over the output channels, each with its own half of the contexts (INP 144, WGT 72, ACC 784
    elements). Loads of one thread run under the products of the other.
    """

    counters = counters(
        inp_load_nbytes=114688,
        wgt_load_nbytes=1179648,
        uop_load_nbytes=1144,
        out_store_nbytes=50176,
        gemm_counter=451584,
        alu_counter=9408,
    )

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.data = rng.integers(-128, 128, (256, 14, 14), np.int8)
        self.kernel = rng.integers(-128, 128, (256, 256, 3, 3), np.int8)

    def expected(self) -> npt.NDArray[np.int8]:
        """Return clip(conv2d >> 8, 0, 127)."""
        padded = np.pad(self.data, ((0, 0), (1, 1), (1, 1))).astype(np.int32)
        sums = np.zeros((256, 14 * 14), np.int32)
        for dy in range(3):
            for dx in range(3):
                window = padded[:, dy : dy + 14, dx : dx + 14].reshape(256, -1)
                tap = self.kernel[:, :, dy, dx].astype(np.float64) @ window.astype(np.float64)
                sums += tap.astype(np.int32)
        return np.clip(sums >> 8, 0, 127).astype(np.int8).reshape(256, 14, 14)

    def packed_data(self) -> npt.NDArray[np.int8]:
        return np.ascontiguousarray(self.data.reshape(16, 16, 14, 14).transpose(0, 2, 3, 1))

    def packed_kernel(self) -> npt.NDArray[np.int8]:
        blocks = self.kernel.reshape(16, 16, 16, 16, 3, 3)  # oc block, oc, ic block, ic, y, x
        return np.ascontiguousarray(blocks.transpose(0, 2, 4, 5, 1, 3))

    @staticmethod
    def unpacked_result(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
        return (
            image.view(np.int8).reshape(16, 14, 14, 16).transpose(0, 3, 1, 2).reshape(256, 14, 14)
        )

    @staticmethod
    def micro_ops() -> npt.NDArray[np.uint32]:
        """For each thread: 14 of the reset, 126 of the product, 3 of the ALU."""
        table: list[tuple[int, int, int]] = []
        for t in range(2):
            dst, src, wgt = 784 * t, 144 * t, 72 * t
            table += [(dst + j, 0, 0) for j in range(14)]
            table += [
                (dst + j, src + 16 * dy + dx + j, wgt + 3 * dy + dx)
                for dy in range(3)
                for dx in range(3)
                for j in range(14)
            ]
            table += [(dst, dst, 0)] * 3
        return Encoding.of(PYNQ).encode_micro_ops(table)

    @staticmethod
    def stream(inp: int, wgt: int, uop: int, out: int) -> list[Instruction]:
        """Return the instructions, for buffers at these DRAM elements."""
        stream: list[Instruction] = []

        def load_micro_ops(first: int, count: int) -> None:
            stream.append(
                Load(
                    memory=Memory.UOP,
                    sram_base=first,
                    dram_base=uop + first,
                    y_size=1,
                    x_size=count,
                )
            )

        for tile in range(2):
            for t in range(2):
                first = 143 * t
                if tile == 0:
                    load_micro_ops(first, 14)
                stream.append(  # after the store of this thread's last tile
                    Gemm(
                        reset=1,
                        pop_next=tile,
                        uop_begin=first,
                        uop_end=first + 14,
                        iter_out=8,
                        iter_in=7,
                        dst_factor_out=98,
                        dst_factor_in=14,
                    )
                )
            for ic in range(16):
                for t in range(2):
                    is_first, is_last = tile == 0 and ic == 0, tile == 1 and ic == 15
                    stream += [
                        Load(
                            memory=Memory.INP,
                            pop_next=int(not is_first),  # the product that read this context
                            sram_base=144 * t,
                            dram_base=inp + ic * 196 + tile * 6 * 14,
                            y_size=8,
                            x_size=14,
                            x_stride=14,
                            y_pad_top=1 - tile,
                            y_pad_bottom=tile,
                            x_pad_left=1,
                            x_pad_right=1,
                        ),
                        Load(
                            memory=Memory.WGT,
                            push_next=1,
                            sram_base=72 * t,
                            dram_base=wgt + (8 * t * 16 + ic) * 9,
                            y_size=8,
                            x_size=9,
                            x_stride=16 * 9,
                        ),
                    ]
                    if is_first:
                        load_micro_ops(143 * t + 14, 126)
                    stream.append(
                        Gemm(
                            pop_prev=1,
                            push_prev=int(not is_last),
                            uop_begin=143 * t + 14,
                            uop_end=143 * t + 140,
                            iter_out=8,
                            iter_in=7,
                            dst_factor_out=98,
                            dst_factor_in=14,
                            src_factor_in=16,
                            wgt_factor_out=9,
                        )
                    )
            for t in range(2):
                post = ((AluOp.SHR, 8), (AluOp.MAX, 0), (AluOp.MIN, 127))
                for k, (op, imm) in enumerate(post):
                    first = 143 * t + 140 + k
                    if tile == 0:
                        load_micro_ops(first, 1)
                    stream.append(
                        Alu(
                            alu_op=op,
                            use_imm=1,
                            imm=imm,
                            push_next=int(k == 2),
                            uop_begin=first,
                            uop_end=first + 1,
                            iter_out=1,
                            iter_in=784,
                            dst_factor_in=1,
                            src_factor_in=1,
                        )
                    )
                stream.append(
                    Store(
                        memory=Memory.OUT,
                        pop_prev=1,
                        push_prev=1,
                        sram_base=784 * t,
                        dram_base=out + 8 * t * 196 + tile * 98,
                        y_size=8,
                        x_size=98,
                        x_stride=196,
                    )
                )
        return [*stream, Load(memory=Memory.UOP, pop_next=1), Finish(pop_next=1)]


@pytest.fixture(scope="module")
def tutorial() -> tuple[TutorialConv2d, npt.NDArray[np.int8]]:
    """The convolution and what NumPy makes of it."""
    conv = TutorialConv2d(seed=1)
    return conv, conv.expected()


def run_tutorial(
    device: Fsim,
    conv: TutorialConv2d,
    edit: Callable[[list[Instruction]], list[Instruction]] = list,
) -> npt.NDArray[np.int8]:
    """Run the stream, after an edit, in fresh buffers; return the result."""
    inp, wgt = place(device, conv.packed_data()), place(device, conv.packed_kernel())
    uop, out = place(device, conv.micro_ops()), device.alloc(256 * 14 * 14)
    stream = conv.stream(inp.address // 16, wgt.address // 256, uop.address // 4, out.address // 16)
    launch(device, edit(stream))
    return conv.unpacked_result(device.read(out, out.nbytes))


@pytest.mark.parametrize("kernel", available_kernels())
@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_tutorial_conv2d(
    tutorial: tuple[TutorialConv2d, npt.NDArray[np.int8]], seed: int | None, kernel: str
) -> None:
    """Counters and result, in several orders of the units; a second run works as well."""
    conv, expected = tutorial
    with Fsim("pynq", seed=seed, kernel=kernel) as device:
        for _ in range(2):
            device.reset_stats()
            np.testing.assert_array_equal(run_tutorial(device, conv), expected)
            assert device.stats().as_dict() == conv.counters


QUEUES = {
    "load->compute": (Unit.LOAD, "push_next", Unit.COMPUTE, "pop_prev"),
    "compute->load": (Unit.COMPUTE, "push_prev", Unit.LOAD, "pop_next"),
    "compute->store": (Unit.COMPUTE, "push_next", Unit.STORE, "pop_prev"),
    "store->compute": (Unit.STORE, "push_prev", Unit.COMPUTE, "pop_next"),
}


def without_tokens(stream: list[Instruction], queue: str) -> list[Instruction]:
    """Return the stream without one kind of token, but with a FINISH that waits for all units."""
    producer, push, consumer, pop = QUEUES[queue]
    edited = []
    for insn in stream[:-1]:
        if insn.unit == producer:
            insn = replace(insn, **{push: 0})
        if insn.unit == consumer:
            insn = replace(insn, **{pop: 0})
        edited.append(insn)
    meeting = [Load(memory=Memory.INP, push_next=1), Store(memory=Memory.OUT, push_prev=1)]
    kept = int(queue != "store->compute")
    return [
        *edited,
        *meeting,
        Load(memory=Memory.UOP, pop_prev=1, pop_next=kept),
        Finish(pop_next=1),
    ]


@pytest.mark.parametrize("queue", QUEUES)
def test_tutorial_conv2d_needs_its_tokens(
    tutorial: tuple[TutorialConv2d, npt.NDArray[np.int8]], queue: str
) -> None:
    """Without one kind of token, some order of the units gives a wrong result."""
    conv, expected = tutorial

    def is_wrong(seed: int) -> bool:
        with Fsim("pynq", seed=seed) as device:
            result = run_tutorial(device, conv, lambda stream: without_tokens(stream, queue))
        return bool((result != expected).any())

    assert any(is_wrong(seed) for seed in range(8))
