"""The CUDA kernels, emulated on the CPU thread by thread, against NumPy; and what they occupy."""

from __future__ import annotations

from functools import partial
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.emulation import PADDED, STRIDED, check, emulated, run
from helpers.kernel_cases import inputs_of, matches, reference
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from examples.kernels.search import tile_space
from vtaops import cuda
from vtaops.base.errors import DeviceError, ScheduleError, ShapeError, UnsupportedError
from vtaops.kernels import ops
from vtaops.kernels.cuda.emulate import IN_ORDER, Emulated, profile
from vtaops.kernels.cuda.resources import find_nvcc, known_archs
from vtaops.kernels.cuda.schedule import elementwise, family, matmul, matmul_tensor
from vtaops.kernels.cuda.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.kernels.cuda.schedule.matmul_tensor import TensorTile, schedule_tensor
from vtaops.kernels.cuda.schedule.window import WindowTile, schedule_window
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.lessons.on_cuda import STAGES

ARCHS = [arch for arch in known_archs() if arch in ("sm_61", "sm_75", "sm_80", "sm_90")]
FUSED = ops.Epilogue(batch_norm=1e-5, residual=True, activation="relu")
FUSED_INT8 = ops.Epilogue(bias=True, shift=3, clip=(-128, 127))


OPERATORS = [
    ops.MatmulOp(32, 64, 48),
    ops.MatmulOp(37, 50, 19, epilogue=ops.Epilogue(bias=True, activation="relu")),
    ops.MatmulOp(20, 33, 17, transposed_b=True),
    ops.MatmulOp(33, 20, 40, "int8", "int8"),
    ops.MatmulOp(33, 20, 40, "uint8", "int8"),
    ops.MatmulOp(64, 64, 96, "float16", "float16"),
    ops.MatmulOp(37, 50, 70, "float16", "float16", True, FUSED),
    ops.MatmulOp(37, 50, 70, "int8", "int8", True, FUSED_INT8),
    ops.Conv2dOp(1, 8, 10, 19, 16, PADDED),
    ops.Conv2dOp(2, 6, 9, 11, 10, STRIDED, 2, epilogue=FUSED),
    ops.Conv2dOp(1, 3, 8, 8, 7, PADDED, dtype="int8"),
    ops.Conv2dOp(1, 13, 9, 11, 67, PADDED, epilogue=FUSED),
    ops.Conv2dOp(1, 16, 1, 100, 40, ops.Window((1, 1))),
    ops.Conv2dOp(3, 32, 4, 6, 20, ops.Window((1, 1)), dtype="int8", epilogue=FUSED_INT8),
    ops.DepthwiseOp(1, 3, 34, 37, PADDED),
    ops.DepthwiseOp(2, 3, 17, 9, STRIDED, 2, epilogue=FUSED),
    ops.PoolOp("max", 1, 2, 33, 20, PADDED),
    ops.PoolOp("avg", 1, 2, 12, 20, ops.Window((2, 2), (2, 2))),
    ops.GlobalPoolOp("avg", 5, 49),
    ops.GlobalPoolOp("max", 9, 700),
    ops.GlobalPoolOp("avg", 2, 3000),
    ops.GlobalPoolOp("max", 1, 40000),
    ops.SoftmaxOp(3, 10),
    ops.SoftmaxOp(2, 300),
    ops.SoftmaxOp(9, 64),
    ops.SoftmaxOp(1, 7000),
    ops.SoftmaxOp(1, 33000),
    ops.BroadcastOp("add", (1000,), (1000,)),
    ops.BroadcastOp("multiply", (7, 1, 5), (1, 6, 5)),
    ops.BroadcastOp("subtract", (40, 1), (40, 64)),
    ops.UnaryOp("relu", 999),
    ops.NormalizeOp(2, 5, 36, ops.Epilogue(batch_norm=1e-5)),
]


@emulated
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
def test_kernels_equal_numpy(op):
    check(op)


@emulated
def test_a_clip_to_one_value_leaves_a_kernel():
    op = ops.MatmulOp(37, 50, 70, "int8", "int8", True, ops.Epilogue(shift=3, clip=(5, 5)))
    result = run(Emulated.of(cuda.CudaKernel(op)), op, IN_ORDER)
    assert result.shape == (37, 50)
    assert np.all(result == 5)


@emulated
def test_a_maximum_keeps_nan_and_minus_infinity():
    op = ops.PoolOp("max", 1, 3, 9, 11, PADDED)
    x = inputs_of(op)["data"]
    x[0, 0, 4, 6], x[0, 1], x[0, 2, 0, 0] = np.nan, -np.inf, np.inf
    result = np.empty(op.output.shape, "float32")
    Emulated.of(cuda.CudaKernel(op))({"data": x, "result": result})
    np.testing.assert_array_equal(result, reference(op, {"data": x}))
    assert np.isnan(result).sum() == 9
    assert (result[0, 1] == -np.inf).all()


@emulated
@pytest.mark.parametrize("columns", [64, 7000])
def test_rows_of_softmax_without_a_finite_maximum_are_nan(columns):
    op = ops.SoftmaxOp(3, columns)
    x = inputs_of(op)["data"]
    x[0, 5], x[1], x[2, 7] = np.nan, -np.inf, np.inf
    result = np.zeros(op.output.shape, "float32")
    Emulated.of(cuda.CudaKernel(op))({"data": x, "result": result})
    assert np.isnan(result).all()


class EmulatedCuda(type(cuda.matmul.__self__)):
    """The calls of `vtaops.cuda`, with the emulator for a GPU."""

    def kernel(self, op):
        kernel = cuda.CudaKernel(op)
        emulator = Emulated.of(kernel)

        def run(*arrays):
            names = [spec.name for spec in op.arguments]
            emulator(dict(zip(names, arrays, strict=True)))

        return SimpleNamespace(op=op, run=run)


@emulated
def test_calls_that_the_gpu_has_for_itself():
    calls, draw = EmulatedCuda(), np.random.default_rng(0).standard_normal
    a, b = draw((20, 24)).astype("float16"), draw((24, 18)).astype("float16")
    product = calls.matmul(a, b)
    assert product.dtype == np.float32
    assert matches(product, a.astype(float) @ b.astype(float))
    assert matches(calls.dense(a, b.T.copy()), a.astype(float) @ b.astype(float))
    with pytest.raises(ShapeError, match="accepted: float16"):
        calls.matmul(a, b.astype("float32"))


STAGE_OPS = {
    "vector_add": ops.BroadcastOp("add", (9000,), (9000,)),
    ops.BroadcastOp: ops.BroadcastOp("add", (20, 1), (20, 36)),
    ops.NormalizeOp: ops.NormalizeOp(2, 3, 52, ops.Epilogue(batch_norm=1e-5)),
    ops.PoolOp: ops.PoolOp("max", 1, 2, 33, 36, PADDED),
    ops.MatmulOp: ops.MatmulOp(64, 64, 80),
    ops.Conv2dOp: ops.Conv2dOp(1, 8, 8, 17, 16, PADDED),
    ops.DepthwiseOp: ops.DepthwiseOp(1, 2, 40, 36, PADDED),
}


@emulated
@pytest.mark.parametrize(
    ("kind", "stage"),
    [(kind, stage) for kind, stages in STAGES.items() for stage in stages],
    ids=lambda value: getattr(value, "name", None) or getattr(value, "__name__", value),
)
def test_every_stage_equals_numpy(kind, stage):
    check(STAGE_OPS[kind], stage.schedule, orders=(2,))


@emulated
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_tensor_cores_with_any_tile(dtype, transposed, stages):
    step = 32 if (dtype == "int8") ^ transposed ^ (stages == 2) else 16  # with each of the others
    tile = TensorTile(2, (2, 2), step, stages)
    check(
        ops.MatmulOp(32, 128, 5 * step, dtype, dtype, transposed),
        lambda op, target: schedule_tensor(op, target, tile),
        orders=(2,),
    )


@emulated
@pytest.mark.parametrize("stages", [2, 3])
def test_fetches_that_run_ahead(stages):
    tile = MatmulTile((32, 32), (2, 4), (1, 1), 16, stages)
    check(ops.MatmulOp(32, 64, 80), lambda op, target: schedule_matmul(op, target, tile))


@emulated
@pytest.mark.parametrize(
    ("large", "small"),
    [
        (ops.MatmulOp(2048, 2048, 2048), ops.MatmulOp(128, 128, 48)),
        (
            ops.MatmulOp(2048, 2048, 2048, "float16", "float16"),
            ops.MatmulOp(64, 128, 96, "float16", "float16"),
        ),
        (
            ops.MatmulOp(2048, 2048, 2048, "int8", "int8", True),
            ops.MatmulOp(64, 128, 96, "int8", "int8", True),
        ),
    ],
    ids=["float32", "float16", "int8"],
)
def test_the_tiles_of_large_products_on_one_block(large, small):
    module = matmul_tensor if matmul_tensor.suits(large, CudaTarget()) else matmul
    tile = module.choose_tile(large, CudaTarget())
    assert tile.block == (small.m, small.n)
    schedule = family(large, CudaTarget())
    check(small, lambda op, target: schedule(op, target, tile), orders=(2,))


@emulated
@pytest.mark.parametrize("order", ["continuous", "alternate"])
@pytest.mark.parametrize("per_thread", [1, 3, 4])
def test_elements_can_be_shared_in_either_order(order, per_thread):
    op = ops.BroadcastOp("add", (1000,), (1000,))
    check(
        op,
        lambda op, target: elementwise.schedule_elementwise(op, target, order, per_thread),
        orders=(2,),
    )


@emulated
@seed(1)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([4, 8, 16])),
    st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2])),
    st.sampled_from([(False, False), (True, False), (False, True)]),
)
def test_depthwise_with_any_tile(rows, columns, threads, vthreads, way):
    tile = WindowTile((16, 32), threads, vthreads, *way)
    check(
        ops.DepthwiseOp(1, 2, rows, columns, PADDED),
        lambda op, target: schedule_window(op, target, tile),
        orders=(2,),
    )


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
def test_blocks_fit_the_gpu(op):
    kernel = cuda.CudaKernel(op)
    launch = kernel.launch
    assert 1 <= launch.threads <= kernel.target.threads
    assert max(launch.grid[1:]) <= 65535
    assert "__launch_bounds__" in kernel.source()


ONE = ops.Window((1, 1))
EXTENTS_OF_ONE = [
    ops.Conv2dOp(1, 1, 1, 1, 1, ONE),
    ops.Conv2dOp(1, 5, 1, 1, 1, ONE, epilogue=FUSED),
    ops.Conv2dOp(2, 1, 1, 5, 3, PADDED, dtype="int8"),
    ops.DepthwiseOp(1, 1, 1, 1, ONE),
    ops.DepthwiseOp(1, 1, 1, 9, PADDED, epilogue=FUSED),
    ops.PoolOp("max", 1, 1, 1, 1, ONE),
    ops.PoolOp("avg", 1, 1, 5, 1, PADDED),
    ops.GlobalPoolOp("avg", 1, 1),
    ops.GlobalPoolOp("max", 1, 1),
    ops.SoftmaxOp(1, 1),
    ops.BroadcastOp("add", (1,), (1,)),
    ops.UnaryOp("relu", 1),
    ops.NormalizeOp(1, 1, 1, ops.Epilogue(batch_norm=1e-5)),
    *(
        ops.MatmulOp(*size, dtype, dtype, transposed)
        for dtype in ("float32", "float16", "int8")
        for transposed in (False, True)
        for size in ((1, 70, 20), (17, 1, 1))
    ),
]


@emulated
@pytest.mark.parametrize("op", EXTENTS_OF_ONE, ids=lambda op: type(op).__name__)
def test_operators_with_extents_of_one(op):
    kernel = cuda.CudaKernel(op)
    emulator = Emulated.of(kernel)
    assert matches(run(emulator, op, 2), reference(op, inputs_of(op)))


PARTS = [
    (ops.MatmulOp(37, 50, 70, epilogue=FUSED), MatmulTile((32, 32), (2, 4), (1, 1), 16, 2, 3)),
    (ops.MatmulOp(32, 64, 64), MatmulTile((32, 32), (2, 4), (1, 1), 8, 3, 2)),
    (ops.MatmulOp(17, 20, 50, "int8", "int8", True, FUSED_INT8), TensorTile(2, (1, 1), 16, 2, 2)),
    (ops.MatmulOp(32, 64, 128, "float16", "float16"), TensorTile(2, (2, 2), 32, 2, 4)),
    (
        ops.Conv2dOp(2, 6, 9, 11, 10, STRIDED, 2, epilogue=FUSED),
        MatmulTile((16, 32), (2, 4), parts=2),
    ),
    (ops.Conv2dOp(1, 20, 5, 7, 9, PADDED, dtype="int8"), TensorTile(2, (1, 1), 32, 2, 3)),
]


@emulated
@pytest.mark.parametrize(("op", "tile"), PARTS, ids=lambda value: type(value).__name__)
def test_sums_in_parts(op, tile):
    by_tile = schedule_tensor if isinstance(tile, TensorTile) else schedule_matmul
    schedule = partial(by_tile, tile=tile)
    first, _ = cuda.CudaKernel(op, schedule=schedule).launches
    assert first.grid[2] == tile.parts * getattr(op, "groups", 1)
    check(op, schedule)


@emulated
def test_small_images_give_every_multiprocessor_a_block():
    deep = ops.Conv2dOp(1, 512, 7, 7, 512, PADDED)
    for many in (40, 132):
        target = CudaTarget(multiprocessors=many)
        first, _ = cuda.CudaKernel(deep, target).launches
        assert 0.9 * many < prod(first.grid) <= many
    large = ops.MatmulOp(4096, 4096, 4096)
    assert len(cuda.CudaKernel(large, target).launches) == 1


@emulated
def test_convolutions_fetch_weights_in_vectors():
    kernel = cuda.CudaKernel(ops.Conv2dOp(1, 8, 16, 16, 32, PADDED), CudaTarget(multiprocessors=8))
    assert "*(float4*)(kernel_ptr" in kernel.source()
    counts = profile(kernel)
    assert counts.overfetch < 1.3
    assert counts.shared_loads_per_fma < 0.45


def test_old_gpus_get_no_instructions_that_they_lack():
    product, half = ops.MatmulOp(2048, 2048, 2048), ops.MatmulOp(64, 64, 64, "float16", "float16")
    for arch, copies, fragments in (("sm_61", 0, 0), ("sm_75", 0, 1), ("sm_80", 1, 1)):
        target = CudaTarget(arch)
        assert ("cp.async" in cuda.CudaKernel(product, target).source()) == copies
        assert ("mma_sync" in cuda.CudaKernel(half, target).source()) == fragments
    with pytest.raises(ScheduleError, match="on sm_61"):
        schedule_tensor(half, CudaTarget("sm_61"))


NEEDS_NVCC = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc of the CUDA toolkit")


EDGES = [(20, 18, 24), (37, 40, 48), (128, 80, 64), (16, 48, 40), (65, 64, 16)]


@emulated
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("size", EDGES, ids=lambda size: "x".join(map(str, size)))
def test_products_around_the_edges_of_tiles(size, dtype):
    """Zeros take the place of elements beyond the edges, in vectors where rows lie in vectors."""
    transposed = (EDGES.index(size) + len(dtype)) % 2 == 0  # of 7, 7 and 4 letters
    check(ops.MatmulOp(*size, dtype, dtype, transposed), orders=(IN_ORDER,))


@NEEDS_NVCC
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "op",
    [
        ops.MatmulOp(20, 18, 24, "float16", "float16"),
        ops.MatmulOp(37, 40, 48, "int8", "int8", True),
        ops.MatmulOp(1024, 1024, 1024),
        ops.MatmulOp(1024, 1024, 1024, "float16", "float16"),
        ops.MatmulOp(1024, 1024, 1024, "int8", "int8", True),
        ops.Conv2dOp(1, 512, 7, 7, 512, PADDED),
    ],
    ids=["padded float16", "padded int8", "float32", "float16", "int8", "parts"],
)
def test_pipelines_are_assembled_for_old_and_new(op, arch):
    used = cuda.resources(cuda.CudaKernel(op, CudaTarget(arch)).source(), arch)
    assert used.spills == 0 < used.registers


@NEEDS_NVCC
@pytest.mark.parametrize(
    "op",
    [
        ops.MatmulOp(1024, 1024, 1024),
        ops.MatmulOp(1024, 1024, 1024, "float16", "float16"),
        ops.Conv2dOp(1, 64, 64, 64, 64, PADDED),
        ops.DepthwiseOp(1, 64, 64, 64, PADDED, epilogue=ops.Epilogue(scale_shift=True)),
        ops.PoolOp("max", 1, 64, 64, 64, PADDED),
        ops.SoftmaxOp(16, 1000),
    ],
    ids=lambda op: type(op).__name__,
)
def test_kernels_do_not_spill(op):
    kernel = cuda.CudaKernel(op)
    used = cuda.resources(kernel.source())
    assert used.spills == 0
    assert used.stack == 0
    assert 0 < used.registers <= 255
    assert used.shared <= CudaTarget().shared
    assert 0 < cuda.occupancy(used, kernel.launch.threads) <= 1


def test_occupancy_by_the_limit_that_binds():
    # The figures of NVIDIA's occupancy calculator for these limits.
    assert cuda.occupancy(cuda.Resources(32, 0, 0, 0), 256) == 1
    assert cuda.occupancy(cuda.Resources(33, 0, 0, 0), 256) == 0.75
    assert cuda.occupancy(cuda.Resources(128, 0, 0, 0), 256) == 0.25
    assert cuda.occupancy(cuda.Resources(16, 48 << 10, 0, 0), 128) == 4 * 128 / 2048
    assert cuda.occupancy(cuda.Resources(16, 48 << 10, 0, 0), 128, "sm_80") == 3 * 128 / 2048
    assert cuda.occupancy(cuda.Resources(16, 0, 0, 0), 32) == 0.5
    with pytest.raises(UnsupportedError, match="sm_70"):
        cuda.occupancy(cuda.Resources(16, 0, 0, 0), 32, "sm_70")


def test_tiles_that_cannot_be_are_refused():
    with pytest.raises(ScheduleError, match="not both"):
        WindowTile(shared=True, registers=True)
    with pytest.raises(ScheduleError, match="divisors"):
        WindowTile((32, 32), (5, 32))
    with pytest.raises(ScheduleError, match="divide"):
        MatmulTile((64, 64), (3, 4))
    tile = MatmulTile((128, 128), (2, 2))
    with pytest.raises(ScheduleError, match="4096 threads"):
        schedule_matmul(ops.MatmulOp(128, 128, 128), CudaTarget(), tile)
    tile = MatmulTile((128, 128), (8, 8), step=64)
    with pytest.raises(ScheduleError, match="shared memory"):
        schedule_matmul(ops.MatmulOp(128, 128, 128), CudaTarget(), tile)


@pytest.mark.skipif(cuda.device_present(), reason="for machines without a GPU")
def test_a_missing_gpu_is_reported():
    with pytest.raises(DeviceError, match="no NVIDIA GPU"):
        cuda.matmul(np.ones((2, 2), "float32"), np.ones((2, 2), "float32"))


@pytest.mark.skipif(not cuda.device_present(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
def test_kernels_on_a_gpu_equal_numpy(op):
    arrays = inputs_of(op)
    result = cuda.CudaKernel(op)(*arrays.values())
    assert matches(result, reference(op, arrays))


@pytest.mark.parametrize(
    "op",
    [
        *(STAGE_OPS[kind] for kind in (ops.MatmulOp, ops.Conv2dOp, ops.DepthwiseOp)),
        ops.MatmulOp(64, 64, 64, "float16", "float16"),
    ],
    ids=lambda op: type(op).__name__,
)
def test_all_tiles_of_the_search_can_be_scheduled(op):
    target = CudaTarget()
    schedule, tiles = tile_space(op, target)
    assert len({str(tile) for tile in tiles}) == len(tiles) >= 8
    for tile in tiles[:: max(1, len(tiles) // 6)]:
        assert cuda.CudaKernel(op, target, lambda o, t, tile=tile: schedule(o, t, tile)).launch


def test_operators_without_tiles_are_refused():
    with pytest.raises(UnsupportedError, match="SoftmaxOp"):
        tile_space(ops.SoftmaxOp(2, 3), CudaTarget())
