"""The kernels among the examples: on the CPU, and in the emulator with each barrier needed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from helpers.emulation import PADDED, STRIDED, check, emulated
from helpers.kernel_cases import inputs_of, reference

from examples.kernels import conv1d, packed_int8, separable
from examples.kernels.conv1d import Conv1dOp
from examples.kernels.search import search
from examples.kernels.separable import SeparableOp
from trials.kernel_reference import conv2d_reference
from vtaops.base.errors import ShapeError
from vtaops.kernels import ops
from vtaops.kernels.build import compile_schedule
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda import CudaKernel
from vtaops.kernels.cuda.emulate import Emulated
from vtaops.kernels.cuda.target import CudaTarget

FUSED = ops.Epilogue(batch_norm=1e-5, residual=True, activation="relu")
RELU = ops.Epilogue(activation="relu")
ONE = ops.Window((1, 1))
CLIPPED = ops.Epilogue(bias=True, shift=3, clip=(0, 99))
CASES = [
    (conv1d.schedule_cuda, Conv1dOp(1000, 13, (6, 6))),
    (conv1d.schedule_cuda, Conv1dOp(100, 40, (3, 0))),
    (conv1d.schedule_cuda, Conv1dOp(1, 1, (0, 0))),
    (separable.schedule_separable, SeparableOp(1, 6, 9, 11, PADDED, 10)),
    (separable.schedule_separable, SeparableOp(2, 20, 9, 11, STRIDED, 37, 2, RELU, FUSED)),
    (separable.schedule_separable, SeparableOp(1, 1, 1, 1, ONE, 1)),
    (separable.schedule_separable, SeparableOp(1, 2, 1, 5, PADDED, 1)),
    *(
        (packed_int8.schedule_packed, op)
        for op in (
            ops.PackedConv2dOp(1, 2, 7, 11, 3, PADDED, 16, epilogue=FUSED),
            ops.PackedConv2dOp(1, 2, 7, 11, 2, STRIDED, 8, "int8", CLIPPED),
            ops.PackedConv2dOp(2, 2, 5, 6, 2, PADDED, 4, "uint8"),
            ops.PackedConv2dOp(1, 1, 1, 1, 1, ONE, 4, "int8"),
            ops.PackedConv2dOp(1, 1, 1, 5, 1, PADDED, 16),
        )
    ),
]
TILES = [
    (conv1d.schedule_cuda, conv1d.cuda_tiles, Conv1dOp(700, 5, (2, 2))),
    (separable.schedule_separable, separable.tiles, SeparableOp(1, 10, 8, 17, PADDED, 40)),
    (packed_int8.schedule_packed, packed_int8.tiles, ops.PackedConv2dOp(1, 2, 8, 8, 2, PADDED)),
]


@emulated
@pytest.mark.parametrize(("schedule", "op"), CASES, ids=lambda value: type(value).__name__)
def test_kernels_equal_numpy(schedule, op):
    check(op, schedule, needed=op.output.shape[-1] > 5)


@emulated
@pytest.mark.parametrize(
    ("op", "stage"),
    [
        *((Conv1dOp(700, 5, (2, 2)), stage) for stage in conv1d.CUDA_STAGES),
        *((SeparableOp(1, 10, 8, 17, PADDED, 40), stage) for stage in separable.STAGES),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_stage_equals_numpy(op, stage):
    check(op, stage.schedule, orders=(2,))


@pytest.mark.parametrize("stage", conv1d.CPU_STAGES, ids=lambda stage: stage.name)
def test_every_stage_on_the_cpu_equals_numpy(stage):
    op, target = Conv1dOp(500, 7, (3, 3)), CpuTarget.detect()
    function = compile_schedule(stage.schedule(op, target), target.tvm)["main"]
    arrays, result = inputs_of(op), np.zeros(op.output.shape, "float32")
    function(*arrays.values(), result)
    np.testing.assert_allclose(result, reference(op, arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("schedule", "tiles", "op"), TILES, ids=lambda v: type(v).__name__)
def test_tiles_can_be_scheduled(schedule, tiles, op):
    target = CudaTarget()
    found = [*tiles(op, target)]
    assert len({str(tile) for tile in found}) == len(found) >= 8
    for tile in found[:: max(1, len(found) // 6)]:
        assert CudaKernel(op, target, partial(schedule, tile=tile)).launch


def test_the_search_takes_a_schedule_of_ones_own():
    op, target = Conv1dOp(300, 5), CpuTarget.detect()
    tiles = [*conv1d.cpu_tiles(op, target)]
    trials = search(op, target, budget=0.0, space=(conv1d.schedule_cpu, tiles))
    assert {trial.tile for trial in trials} == {1, 2, 4, 8}


@emulated
def test_bytes_are_packed_for_the_dot_product():
    draw = np.random.default_rng(0).integers
    image, taps = (
        draw(-99, 99, shape).astype("int8") for shape in ((1, 2, 5, 6, 8), (5, 13, 3, 2))
    )
    window = ops.Window((3, 2), padding=(1, 1, 1, 1))
    op = ops.PackedConv2dOp(1, 2, 5, 6, 1, window, 8, "int8")
    result = np.zeros(op.output.shape, "int32")
    kernel = packed_int8.pack_int8_kernel(taps, 8)
    gpu = Emulated.of(CudaKernel(op, schedule=packed_int8.schedule_packed))
    gpu({"data": image, "kernel": kernel, "result": result})
    plain = image.transpose(0, 1, 4, 2, 3).reshape(1, 16, 5, 6)[:, :13]
    total = conv2d_reference(plain, taps, (1, 1), (1,) * 4, (1, 1))
    np.testing.assert_array_equal(result[:, 0].transpose(0, 3, 1, 2)[:, :5], total)
    with pytest.raises(ShapeError, match="multiple of 4"):
        packed_int8.pack_int8_kernel(taps, 6)
