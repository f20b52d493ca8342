"""The emulator of GPUs: counts by hand, faults by hand, and mutations of pipelines."""

from __future__ import annotations

import re
from functools import cache, partial

import numpy as np
import pytest
from helpers.kernel_cases import inputs_of, matches, reference

from vtaops import cuda
from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cuda.emulate import (
    CARDS,
    REVERSED,
    Emulated,
    KernelFault,
    card,
    compiler,
    profile,
)
from vtaops.kernels.cuda.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.kernels.cuda.schedule.matmul_tensor import TensorTile, schedule_tensor
from vtaops.kernels.cuda.target import Launch
from vtaops.kernels.ops import BroadcastOp, MatmulOp

pytestmark = pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")


def kernel_of(body, shared="__shared__ alignas(64) float S_ptr[8];"):
    """Return the source of a kernel by hand, as TVM would write it."""
    head = 'extern "C" __global__ void k(float* __restrict__ A_ptr)'
    return f"{head};\n{head} {{ {shared} const int x = ((int)threadIdx.x); {body} }}"


def counted(body, *, threads=32):
    """Run a kernel by hand and return what was counted of A, and the emulator."""
    emulator = Emulated(kernel_of(body), Launch((1, 1, 1), (threads, 1, 1)), counting=True)
    emulator({"A": np.zeros(4096, "float32")})
    return {t.write: t for t in emulator.traffic()}, emulator


def all_counted(cases, shared=""):
    """Run one kernel whose statements each read an array of their own; return what was counted."""
    names = [f"{kind}{i}" for kind in "AB" for i in range(len(cases))]
    head = 'extern "C" __global__ void k({})'.format(
        ", ".join(f"float* __restrict__ {name}_ptr" for name in names)
    )
    lines = [re.sub(r"\b([ABS])_ptr", rf"\g<1>{i}_ptr", code) for i, (code, *_) in enumerate(cases)]
    body = f"const int x = ((int)threadIdx.x); {shared} {' '.join(lines)}"
    launch = Launch((1, 1, 1), (32, 1, 1))
    emulator = Emulated(f"{head};\n{head} {{ {body} }}", launch, counting=True)
    emulator({name: np.zeros(2048, "float32") for name in names})
    return {(t.array, t.write): t for t in emulator.traffic()}


GLOBAL = [  # code, sectors of its one read of A, sectors that its bytes need, sectors of its write
    ("B_ptr[x] = A_ptr[x];", 4, 4, 4),
    ("B_ptr[x] = A_ptr[2 * x];", 8, 4, 4),
    ("B_ptr[8 * x] = A_ptr[8 * x];", 32, 4, 32),
    ("B_ptr[x] = A_ptr[5];", 1, 1, 4),
    ("B_ptr[x + 1] = A_ptr[x + 1];", 5, 4, 5),
    ("B_ptr[x] = A_ptr[31 - x];", 4, 4, 4),
    ("*(float4*)(B_ptr + 4 * x) = *(float4*)(A_ptr + 4 * x);", 16, 16, 16),
]


def test_sectors_of_global_memory():
    found = all_counted(GLOBAL)
    for i, (code, sectors, fewest, written) in enumerate(GLOBAL):
        read, write = found[f"A{i}", False], found[f"B{i}", True]
        assert (read.requests, read.lanes) == (1, 32), code
        assert (read.units, read.fewest, read.touched) == (sectors, fewest, sectors), code
        assert (write.requests, write.units) == (1, written), code
        assert read.nbytes == 32 * (16 if "float4" in code else 4), code


SHARED = [  # code, turns of its one read, ways of the conflict
    *((f"A_ptr[x] = S_ptr[{n} * x];", n, n) for n in (1, 2, 4, 8, 16, 32)),
    ("A_ptr[x] = S_ptr[7];", 1, 1),
    ("A_ptr[x] = S_ptr[31 * x];", 1, 1),
    ("A_ptr[x] = S_ptr[3 * x];", 1, 1),
    ("*(float4*)(A_ptr + 4 * x) = *(float4*)(S_ptr + 4 * x);", 4, 1),
    ("*(float4*)(A_ptr + 4 * x) = *(float4*)(S_ptr + 8 * x);", 8, 2),
    ("*(float2*)(A_ptr + 2 * x) = *(float2*)(S_ptr + 2 * x);", 2, 1),
]


def test_conflicts_of_banks():
    arrays = [f"__shared__ alignas(64) float S{i}_ptr[1024];" for i in range(len(SHARED))]
    fill = " ".join(f"S{i}_ptr[32 * i + x] = 1;" for i in range(len(SHARED)))
    loop = "for (int i = 0; i < 32; ++i) { FILL } __syncthreads();".replace("FILL", fill)
    loop = re.sub(r"S(\d+)_ptr\[32 \* \d+", r"S\1_ptr[32 * i", loop)
    found = all_counted(SHARED, " ".join(arrays) + loop)
    for i, (code, turns, ways) in enumerate(SHARED):
        read, write = found[f"shared {i}", False], found[f"shared {i}", True]
        assert (read.requests, read.units, read.worst) == (1, turns, ways), code
        assert (write.requests, write.units, write.worst) == (32, 32, 1), code


def test_divergence_is_seen_in_lanes_and_basic_blocks():
    found, emulator = counted("if (x < 8) { A_ptr[x] = 1; }")
    assert (found[True].requests, found[True].lanes, found[True].units) == (1, 8, 1)
    assert emulator.convergence() < 1
    # Of 4 iterations a thread skips those below its number: requests of 8, 16, 24 and 32 lanes.
    body = "for (int i = 0; i < 4; ++i) { if (x < 8 * i + 8) { A_ptr[32 * i + x] = 1; } }"
    found, _ = counted(body)
    assert (found[True].requests, found[True].lanes) == (4, 80)
    assert found[True].units == 1 + 2 + 3 + 4
    _, straight = counted("A_ptr[x] = 1;")
    assert straight.convergence() == 1


def test_several_warps_ask_each_for_itself():
    found, _ = counted("A_ptr[x] = 1;", threads=96)
    assert (found[True].requests, found[True].units) == (3, 12)


def test_a_profile_scales_some_blocks_to_all():
    op = MatmulOp(128, 128, 64)
    tile = MatmulTile((32, 32), (2, 4), step=16)
    kernel = cuda.CudaKernel(op, schedule=lambda o, t: schedule_matmul(o, t, tile))
    some, all_of_them = profile(kernel, blocks=2), profile(kernel, blocks=16)
    assert some.blocks == 16
    assert {part.scale for part in some.traffic} == {8}
    for shared in (False, True):
        assert some.sum("units", shared=shared) == all_of_them.sum("units", shared=shared)
    # Each of 16 blocks fetches 32 x 64 elements of A and of B and writes 32 x 32 of C.
    assert all_of_them.sum("nbytes", shared=False) == 16 * 4 * (2 * 32 * 64 + 32 * 32)
    assert all_of_them.barriers == 2 * 64 / 16
    bounds = some.bounds(CARDS["T4"])
    assert bounds["arithmetic"] == op.flops / (2 * 64 * 40 * 1.59e9)
    assert bounds["memory"] == op.nbytes / 320e9
    with pytest.raises(UnsupportedError, match="H100"):
        card("Voodoo")


def test_a_profile_counts_both_kernels_of_sums_in_parts():
    tile = MatmulTile((32, 32), (2, 4), step=8, stages=2, parts=2)
    found = profile(
        cuda.CudaKernel(MatmulOp(32, 64, 64), schedule=partial(schedule_matmul, tile=tile))
    )
    assert found.blocks == 4
    # Each of 4 blocks fetches 32 x 32 of A and of B and writes 32 x 32 sums; all are read again.
    assert found.sum("nbytes", shared=False) == 4 * (4 * (2 + 1 + 1) * 32 * 32 + 32 * 64)


def test_a_profile_knows_tensor_cores():
    op = MatmulOp(64, 64, 64, "float16", "float16")
    found = profile(op, blocks=100)
    assert found.instructions["tensor products"] == 4**3
    # 32 rows of 32 bytes, in banks of 128 bytes: a fragment of 512 bytes takes 4 turns at least.
    loads = [t for t in found.traffic if t.shared and not t.write and t.array != "shared 2"]
    assert all(t.fewest == 4 * t.requests for t in loads)


def test_the_elementwise_kernel_is_coalesced():
    found = profile(BroadcastOp("add", (8192,), (8192,)))
    assert found.overfetch == 1
    assert found.global_bytes == 3 * 4 * 8192


FAULTS = {
    "divergence": "if (x < 3) { __syncthreads(); } A_ptr[x] = 1;",
    "divergence: some": "if (x < 2) { __syncthreads(); } else { __syncthreads(); } A_ptr[x] = 1;",
    "read after write": "S_ptr[x] = 1; if (x == 0) { A_ptr[0] = S_ptr[3]; }",
    "write after read": "S_ptr[x] = 1; __syncthreads(); A_ptr[x] = S_ptr[3 - x]; S_ptr[x] = 2;",
    "write after write": "S_ptr[x / 2] = x; __syncthreads(); A_ptr[x] = S_ptr[0];",
    "never written": "A_ptr[x] = S_ptr[x];",
    "register never written: r_ptr, byte 4": "float r_ptr[2]; r_ptr[0] = x; "
    "A_ptr[x] = r_ptr[x / 3];",
    "register never written: s_ptr, byte 0": "for (int i = 0; i < 2; ++i) { float r_ptr[2]; "
    "alignas(64) int s_ptr[1]; if (i == 0) { s_ptr[0] = x; } A_ptr[x] = s_ptr[0]; }",
    "never written: A": "if (x != 2) { A_ptr[x] = 1; }",
    "out of bounds": "S_ptr[x] = 1; A_ptr[x] = S_ptr[x + 8 * (x == 3)];",
    "not aligned: A": "if (x == 1) { *(float2*)(A_ptr + 1) = *(float2*)(A_ptr + 2); }",
    "not aligned: shared": "S_ptr[x] = 1; *(int*)((char*)S_ptr + 2 * x) = 1;",
    "A[0]": "A_ptr[0] = x;",
    "too many registers: r_ptr": "float r_ptr[5000]; r_ptr[x] = 1; A_ptr[x] = r_ptr[x];",
}


@cache
def faulty(kind):
    return Emulated(kernel_of(FAULTS[kind]), Launch((1, 1, 1), (4, 1, 1)))


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("order", [REVERSED, 2])
def test_faults_are_noticed_in_any_order_of_the_threads(kind, order):
    with pytest.raises(KernelFault) as caught:
        faulty(kind)({"A": np.zeros(4, "float32")}, order, results=("A",))
    orders_decide = {"write after read", "read after write", "A[0]"}
    assert kind in str(caught.value) or kind in orders_decide


def test_too_much_shared_memory_is_noticed():
    source = kernel_of("S_ptr[x] = 1;", "__shared__ alignas(64) float S_ptr[12289];")
    with pytest.raises(KernelFault, match="too much shared memory"):
        Emulated(source, Launch((1, 1, 1), (1, 1, 1)))({"A": np.zeros(4, "float32")})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_sum_that_nobody_set_to_zero_is_named(dtype):
    op = MatmulOp(32, 32, 16, dtype, dtype)
    kernel = cuda.CudaKernel(op)
    unset = r"product_local_ptr\[\d+\] = 0x0p.*|nvcuda::wmma::fill_fragment.*"
    emulator = Emulated(re.sub(unset, "", kernel.source()), kernel.launch)
    with pytest.raises(KernelFault, match="register never written: product_"):
        emulator({**inputs_of(op), "C": np.zeros((32, 32), "float32")})


def test_blocks_race_for_global_memory_whatever_barriers_they_have():
    emulator = Emulated(kernel_of("__syncthreads(); A_ptr[x] = 1;"), Launch((2, 1, 1), (4, 1, 1)))
    with pytest.raises(KernelFault, match="write after write: A"):
        emulator({"A": np.zeros(4, "float32")})


def test_a_barrier_that_orders_nothing_is_not_missed():
    body = "S_ptr[x] = 1; __syncthreads(); A_ptr[x] = S_ptr[x]; "
    emulator = Emulated(kernel_of(body), Launch((1, 1, 1), (4, 1, 1)))
    emulator({"A": np.zeros(4, "float32")}, without=0)
    assert emulator.passed(0) == 4


def right(emulator, op, without=-1):
    """Return whether a kernel runs without a fault and gives what it should."""
    arrays = inputs_of(op)
    expected = reference(op, arrays)
    arrays[op.output.name] = np.zeros(op.output.shape, op.output.dtype)
    try:
        emulator(arrays, 2, without, results=(op.output.name,))
    except KernelFault:
        return False
    return matches(arrays[op.output.name], expected)


PLAIN, TENSOR = MatmulOp(32, 32, 80), MatmulOp(32, 64, 96, "float16", "float16")
PIPELINES = [
    (PLAIN, schedule_matmul, MatmulTile((32, 32), (2, 4), (1, 1), 16, 3)),
    (PLAIN, schedule_matmul, MatmulTile((32, 32), (2, 4), (1, 1), 16, 2)),
    (TENSOR, schedule_tensor, TensorTile(2, (2, 2), 16, 3)),
    (TENSOR, schedule_tensor, TensorTile(2, (2, 2), 16, 2)),
]


def test_every_statement_of_a_pipeline_is_needed():
    tried = 0
    for op, schedule, tile in PIPELINES:
        kernel = cuda.CudaKernel(op, schedule=partial(schedule, tile=tile))
        emulator = Emulated.of(kernel)
        assert right(emulator, op)
        needless = [point for point in range(emulator.points) if right(emulator, op, point)]
        assert not needless, (tile, needless)
        tried += emulator.points
    assert tried >= 30


@pytest.mark.parametrize("number", range(len(PIPELINES)))
def test_a_tile_of_the_wrong_stage_is_noticed(number):
    op, schedule, tile = PIPELINES[number]
    kernel = cuda.CudaKernel(op, schedule=partial(schedule, tile=tile))
    source = kernel.source()
    stages = list(re.finditer(r"(\(\w+ \+ \d+\)|\b\w+) ([&%]) ([13])\b", source))
    match = stages[-1]
    changed = f"({match[1]} + 1) {match[2]} {match[3]}"
    mutant = source[: match.start()] + changed + source[match.end() :]
    assert not right(Emulated(mutant, kernel.launch), op)
