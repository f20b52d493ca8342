"""Whatever ONNX Runtime's basic optimisation makes of a float graph goes through the importer.

`vtaops.quantize` optimises at that level first. Each case is a graph that one of its fusions or
eliminations rewrites; all must be quantised, compiled, and equal the reference.
"""

import numpy as np
import pytest

import vtaops
from trials.onnx_models import Builder, images

SHAPE = (3, 8, 8)


def value(b, *shape):
    return b.constant((b.rng.standard_normal(shape) / 4).astype(np.float32))


def integers(b, *values):
    return b.constant(np.array(values, np.int64))


def bn(b, x, channels):
    spread = b.constant(np.abs(b.rng.standard_normal(channels)).astype(np.float32) + 0.5)
    rest = [value(b, channels) for _ in range(3)]
    return b.add("BatchNormalization", x, *rest, spread)


def focus(b, x):
    """Strided slices that are joined, as YOLOv5 and YOLOX begin: SpaceToDepth and Gather."""
    parts = []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        part = x
        for axis, start in ((2, row), (3, column)):
            limits = (integers(b, v) for v in (start, 99, axis, 2))
            part = b.add("Slice", part, *limits)
        parts.append(part)
    return b.conv(b.add("Concat", *parts, axis=1), 12, 16, relu=True), 16


def conv_bn(b, x):
    return bn(b, b.conv(x, 3, 16), 16), 16


def conv_mul_add(b, x):
    y = b.add("Mul", b.conv(x, 3, 16), value(b, 16, 1, 1))
    return b.add("Add", y, value(b, 1, 16, 1, 1)), 16


def pad_conv(b, x):
    y = b.add("Pad", x, integers(b, 0, 0, 1, 1, 0, 0, 1, 1))
    return b.add("Conv", y, value(b, 16, 3, 3, 3), kernel_shape=[3, 3]), 16


def pad_pool(b, x):
    y = b.add("Pad", b.conv(x, 3, 16, relu=True), integers(b, 0, 0, 1, 1, 0, 0, 1, 1))
    return b.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2]), 16


def relu_clip(b, x):
    y = b.add("Relu", b.conv(x, 3, 16))
    return b.add("Clip", y, b.constant(np.float32(-1)), b.constant(np.float32(6))), 16


def clip_clip(b, x):
    y = b.conv(x, 3, 16)
    for low, high in ((-2, 6), (0, 8)):
        y = b.add("Clip", y, b.constant(np.float32(low)), b.constant(np.float32(high)))
    return y, 16


def matmul_add(b, x):
    rows = b.add("Flatten", b.add("GlobalAveragePool", b.conv(x, 3, 16)))
    return b.add("Add", b.add("MatMul", rows, value(b, 16, 8)), value(b, 8)), 0


def matmul_bn(b, x):
    rows = b.add("Flatten", b.add("GlobalAveragePool", b.conv(x, 3, 16)))
    return bn(b, b.add("MatMul", rows, value(b, 16, 8)), 8), 0


def gemm_transposed(b, x):
    rows = b.add("Flatten", b.add("GlobalAveragePool", b.conv(x, 3, 16)))
    weight = b.add("Transpose", value(b, 8, 16), perm=[1, 0])
    return b.add("Gemm", rows, weight, value(b, 8)), 0


def gemm_sum(b, x):
    rows = b.add("Flatten", b.add("GlobalAveragePool", b.conv(x, 3, 16)))
    return b.add("Sum", b.add("Gemm", rows, value(b, 16, 8)), value(b, 8)), 0


def reshapes(b, x):
    y = b.add("Reshape", b.conv(x, 3, 16), integers(b, 1, 16, 64))
    y = b.add("Reshape", y, integers(b, 1, 16, 8, 8))
    return b.conv(y, 16, 16), 16


def reshape_by_shape(b, x):
    y = b.conv(x, 3, 16)
    parts = [b.add("Gather", b.add("Shape", y), b.constant(np.array(i))) for i in (0, 1)]
    parts = [b.add("Unsqueeze", p, integers(b, 0)) for p in parts]
    shape = b.add("Concat", *parts, integers(b, -1), axis=0)
    y = b.add("Reshape", y, shape)
    return b.conv(b.add("Reshape", y, integers(b, 1, 16, 8, 8)), 16, 16), 16


def transposes(b, x):
    y = b.add("Transpose", b.conv(x, 3, 16), perm=[0, 2, 3, 1])
    return b.conv(b.add("Transpose", y, perm=[0, 3, 1, 2]), 16, 16), 16


def idle(b, x):
    """Nodes that change nothing."""
    y = b.add("Identity", b.conv(x, 3, 16))
    y = b.add("Dropout", y)
    y = b.add("Cast", y, to=1)
    y = b.add("Add", y, b.constant(np.zeros(1, np.float32)))
    y = b.add("Mul", y, b.constant(np.ones(1, np.float32)))
    y = b.add("Expand", y, integers(b, 1, 16, 8, 8))
    y = b.add("Slice", y, integers(b, 0), integers(b, 99), integers(b, 2))
    y = b.add("Concat", y, axis=1)
    return b.conv(y, 16, 16), 16


def twice(b, x):
    """Equal nodes become one."""
    y = b.conv(x, 3, 16)
    left, right = (b.add("Relu", y) for _ in range(2))
    return b.add("Add", left, right), 16


def constants(b, x):
    scale = b.add("Sqrt", b.add("Exp", value(b, 1, 16, 1, 1)))
    return b.add("Mul", b.conv(x, 3, 16), scale), 16


def gelu(b, x):
    y = b.conv(x, 3, 16)
    erf = b.add("Erf", b.add("Div", y, b.constant(np.float32(np.sqrt(2)))))
    y = b.add("Mul", y, b.add("Add", erf, b.constant(np.float32(1))))
    return b.add("Mul", y, b.constant(np.float32(0.5))), 16


def layer_norm(b, x):
    y = b.add("Transpose", b.conv(x, 3, 16), perm=[0, 2, 3, 1])
    y = b.add("Sub", y, b.add("ReduceMean", y, axes=[-1], keepdims=1))
    power = b.add("Pow", y, b.constant(np.float32(2)))
    spread = b.add("ReduceMean", power, axes=[-1], keepdims=1)
    spread = b.add("Sqrt", b.add("Add", spread, b.constant(np.float32(1e-5))))
    y = b.add("Mul", b.add("Div", y, spread), value(b, 16))
    return b.add("Transpose", b.add("Add", y, value(b, 16)), perm=[0, 3, 1, 2]), 16


def hard_sigmoid(b, x):
    y = b.conv(x, 3, 16)
    gate = b.add("Add", y, b.constant(np.float32(3)))
    gate = b.add("Clip", gate, b.constant(np.float32(0)), b.constant(np.float32(6)))
    return b.add("Mul", y, b.add("Div", gate, b.constant(np.float32(6)))), 16


def moved_pixels(b, x):
    y = b.add("DepthToSpace", b.conv(x, 3, 16), blocksize=2, mode="CRD")
    return b.conv(b.add("SpaceToDepth", y, blocksize=4), 64, 8), 8


def chosen(b, x):
    y = b.conv(x, 3, 16)
    condition = b.constant(np.arange(16).reshape(1, 16, 1, 1) % 2 == 0)
    return b.add("Where", b.add("Not", condition), y, b.add("Neg", y)), 16


CASES = [
    *(focus, conv_bn, conv_mul_add, pad_conv, pad_pool, relu_clip, clip_clip, matmul_add),
    *(matmul_bn, gemm_transposed, gemm_sum, reshapes, reshape_by_shape, transposes, idle, twice),
    *(constants, gelu, layer_norm, hard_sigmoid, moved_pixels, chosen),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore::vtaops.base.errors.PlacementWarning")
def test_a_fusion_goes_through(case):
    b = Builder(3)
    y, channels = case(b, b.input([1, *SHAPE]))
    b.output(b.conv(y, channels, 8, kernel=1) if channels else y)
    model = vtaops.compile_model(vtaops.quantize(b.model(), images(4, SHAPE)), "pynq_ext")
    x = images(1, SHAPE, seed=9)
    np.testing.assert_array_equal(model.run(x), model.reference(x))
    assert any(row.where == "vta" for row in model.plan)
