"""The CPU operators against NumPy and SciPy. `helpers/random_calls.py` draws shapes and dtypes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from examples.kernels.packed_int8 import pack_int8_kernel
from trials.kernel_reference import conv2d_reference, depthwise_reference, random, windows
from vtaops import cpu
from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.kernels.cpu import layers
from vtaops.kernels.ops import PackedConv2dOp, Window
from vtaops.machine.layout import Layout

pytestmark = pytest.mark.usefixtures("no_files")


def close(result, reference, tolerance=2e-4):
    assert result.shape == reference.shape
    np.testing.assert_allclose(result, reference, rtol=tolerance, atol=tolerance)


def test_large_matmul_packs_and_matches():
    a, b = random((250, 700)), random((700, 610), at=1)
    close(cpu.matmul(a, b), a.astype(np.float64) @ b, 1e-3)


@pytest.mark.parametrize(
    ("ins", "outs", "size", "kernel", "stride", "padding"),
    [(5, 33, 7, 3, 1, 1), (8, 16, 64, 3, 1, 1), (3, 40, 30, 7, 2, 3), (20, 48, 9, 1, 1, 0)],
)
def test_conv2d_takes_each_way(ins, outs, size, kernel, stride, padding):
    x, w = random((2, ins, size, size)), random((outs, ins, kernel, kernel), at=1)
    result = cpu.conv2d(x, w, strides=stride, padding=padding)
    sides = (padding,) * 4
    close(result, conv2d_reference(x, w, (stride, stride), sides, (1, 1)), 1e-3)


@pytest.mark.parametrize("outs", [3, 40])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    ("size", "kernel", "strides", "padding", "dilation"),
    [
        ((1, 1), (5, 3), (1, 1), (2, 1, 2, 1), (1, 1)),
        ((1, 1), (3, 3), (2, 2), (2, 2, 2, 2), (2, 2)),
        ((3, 3), (7, 7), (1, 1), (3, 3, 3, 3), (1, 1)),
        ((2, 30), (7, 5), (1, 2), (6, 4, 6, 4), (2, 2)),
        ((2, 2), (2, 5), (1, 1), (1, 1, 3, 4), (3, 1)),  # the first row of taps cannot be cut off
        ((2, 2), (1, 1), (9, 9), (1, 0, 0, 1), (1, 1)),  # padding and nothing else
    ],
)
def test_conv2d_whose_kernel_reaches_into_padding(
    size, kernel, strides, padding, dilation, dtype, outs
):
    """The edges of such a kernel are left out."""
    x, w = random((2, 5, *size), dtype), random((outs, 5, *kernel), dtype, at=1)
    result = cpu.conv2d(x, w, strides=strides, padding=padding, dilation=dilation)
    close(result, conv2d_reference(x, w, strides, padding, dilation))


def test_int8_depthwise_is_exact():
    x, w = random((1, 5, 11, 13), "int8"), random((5, 2, 3, 3), "int8", at=1)
    result = cpu.depthwise_conv2d(x, w, padding=1)
    assert np.array_equal(result, depthwise_reference(x, w, (1, 1), (1,) * 4, (1, 1)))


def test_grouped_conv2d_with_one_channel_per_group_is_depthwise():
    x, w = random((1, 6, 12, 12)), random((12, 1, 3, 3), at=1)
    close(
        cpu.conv2d(x, w, groups=6, padding=1),
        conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1), groups=6),
    )


@pytest.mark.parametrize(
    "shape",
    [
        *((5, 7, 4, 9), (3, 40, 20, 20), (33, 9, 7, 7), (16, 8, 16, 16), (4, 4, 3, 3)),
        *((64, 70, 33, 31), (7, 20, 40, 48), (6, 5, 45, 50)),  # panels of some tiles
        *((24, 2, 50, 41), (13, 1, 9, 9), (9, 2, 47, 43)),  # very few output channels
    ],
)
def test_pointwise_conv2d(shape):
    inputs, outputs, height, width = shape
    x, w = random((2, inputs, height, width)), random((outputs, inputs, 1, 1), at=1)
    reference = conv2d_reference(x, w, (1, 1), (0,) * 4, (1, 1))
    close(cpu.conv2d(x, w), reference, 1e-3)
    vectors, residual = fused_arrays(outputs, reference.shape)
    result = cpu.conv2d(
        x, w, batch_norm=tuple(vectors.values()), residual=residual, activation="relu"
    )
    close(result, fused_reference(reference, vectors, residual), 1e-3)


def test_depthwise_separable_equals_its_parts():
    x, d, p = random((1, 5, 17, 19)), random((5, 2, 3, 3), at=1), random((7, 10, 1, 1), at=2)
    middle = np.maximum(depthwise_reference(x, d, (2, 2), (1,) * 4, (1, 1)), 0)
    last = conv2d_reference(middle.astype(np.float32), p, (1, 1), (0,) * 4, (1, 1))
    result = cpu.depthwise_separable_conv2d(x, d, p, strides=2, padding=1, activation="relu")
    close(result, np.maximum(last, 0))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("ins", "outs", "size", "padding"), [(16, 32, 9, 1), (20, 5, 12, 0)])
def test_packed_int8_conv2d_is_exact(dtype, ins, outs, size, padding):
    x, w = random((2, ins, size, size), dtype), random((outs, ins, 3, 3), "int8", at=1)
    result = layers.PackedConv2d(w, padding=padding)(x).numpy()
    sides = (padding,) * 4
    reference = conv2d_reference(x.astype(np.int64), w.astype(np.int64), (1, 1), sides, (1, 1))
    assert result.dtype == np.int32
    assert np.array_equal(result, reference)


def test_long_conv1d_matches_numpy():
    x, w = random((1, 1, 9001)), random((1, 1, 13), at=1)
    close(cpu.conv1d(x, w, padding=6)[0, 0], np.correlate(x[0, 0], w[0, 0], mode="same"))


def test_conv1d_of_channels():
    x, w = random((2, 4, 50)), random((6, 2, 5), at=1)
    reference = conv2d_reference(
        x[:, :, None], w[:, :, None], (1, 2), (0, 3, 0, 1), (1, 2), groups=2
    )
    result = cpu.conv1d(x, w, strides=2, padding=(3, 1), dilation=2, groups=2)
    close(result, reference[:, :, 0])


@pytest.mark.parametrize("size", [1, 3, 7, 20, 200])
def test_global_pools(size):
    x = random((2, 3, size, size + 1))
    close(cpu.global_avg_pool2d(x), x.mean(axis=(2, 3), keepdims=True))
    close(cpu.global_max_pool2d(x), x.max(axis=(2, 3), keepdims=True))


def test_large_arithmetic_runs_on_threads():
    a, b = random((40_007,)), random((40_007,), at=1)
    assert np.array_equal(cpu.vector_add(a, b), a + b)
    column, square = random((300, 1)), random((300, 301), at=1)
    assert np.array_equal(cpu.subtract(column, square), column - square)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 5), (2, 8, 9, 9)])
def test_batch_norm_and_scale_shift(shape):
    x = random(shape)
    gamma, beta, mean = (random((shape[1],), at=i) for i in (1, 2, 3))
    variance = np.abs(random((shape[1],), at=4)) + np.float32(0.1)
    per_channel = (1, shape[1]) + (1,) * (len(shape) - 2)
    g, b, m, v = (a.reshape(per_channel).astype(np.float64) for a in (gamma, beta, mean, variance))
    close(cpu.batch_norm(x, gamma, beta, mean, variance), (x - m) / np.sqrt(v + 1e-5) * g + b)
    close(cpu.scale_shift(x, gamma, beta, activation="relu"), np.maximum(x * g + b, 0))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_relu(dtype):
    x = random((3, 5, 7), dtype)
    assert np.array_equal(cpu.relu(x), np.maximum(x, 0))


@pytest.mark.parametrize(
    ("rows", "columns"), [(6, 1), (6, 5), (2, 16), (6, 67), (1, 1000), (300, 200)]
)
def test_softmax(rows, columns):
    x = random((rows, columns)) * 20
    result = cpu.softmax(x)
    distance = x - x.max(axis=-1, keepdims=True)  # rounded to float32, as any float32 softmax does
    reference = special.softmax(distance.astype(np.float64), -1)
    np.testing.assert_allclose(result, reference, rtol=1e-6, atol=1e-37)


def fused_arrays(channels, shape):
    names = ("gamma", "beta", "mean")
    vectors = {name: random((channels,), at=i) for i, name in enumerate(names, 10)}
    vectors["variance"] = np.abs(random((channels,), at=20)) + np.float32(0.5)
    return vectors, random(shape, at=21)


def fused_reference(total, vectors, residual):
    at = (1, -1, 1, 1)
    scale = vectors["gamma"] / np.sqrt(vectors["variance"] + 1e-5)
    shift = vectors["beta"] - vectors["mean"] * scale
    return np.maximum(total * scale.reshape(at) + shift.reshape(at) + residual, 0)


@pytest.mark.parametrize("size", [8, 20, 33])
def test_conv2d_fuses_batch_norm_residual_and_relu(size):
    x, w = random((2, 4, size, size)), random((18, 4, 3, 3), at=1)
    total = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    vectors, residual = fused_arrays(18, total.shape)
    result = cpu.conv2d(
        x, w, padding=1, batch_norm=tuple(vectors.values()), residual=residual, activation="relu"
    )
    close(result, fused_reference(total, vectors, residual), 1e-3)


def test_depthwise_fuses_batch_norm_residual_and_relu():
    x, w = random((2, 5, 21, 18)), random((5, 2, 3, 3), at=1)
    total = depthwise_reference(x, w, (2, 2), (1,) * 4, (1, 1))
    vectors, residual = fused_arrays(10, total.shape)
    result = cpu.depthwise_conv2d(
        x,
        w,
        strides=2,
        padding=1,
        batch_norm=tuple(vectors.values()),
        residual=residual,
        activation="relu",
    )
    close(result, fused_reference(total, vectors, residual), 1e-3)


@pytest.mark.parametrize("clip", [(0, 127), (5, 5)])
def test_int8_conv2d_requantises_as_the_accelerator_does(clip):
    x, w = random((1, 6, 9, 10), "int8"), random((17, 6, 3, 3), "int8", at=1)
    bias = np.random.default_rng(2).integers(-5000, 5000, 17).astype("int32")
    total = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1)) + bias.reshape(1, -1, 1, 1)
    result = cpu.conv2d(x, w, padding=1, bias=bias, shift=8, clip=clip)
    assert result.dtype == np.int8
    assert np.array_equal(result, np.clip(total >> 8, *clip))


def test_matmul_fuses_bias_and_relu():
    a, b, bias = random((9, 20)), random((33, 20), at=1), random((33,), at=2)
    close(cpu.dense(a, b, bias=bias, activation="relu"), np.maximum(a @ b.T + bias, 0))


@pytest.mark.parametrize("block", [4, 8, 32])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_packed_blocks_may_be_narrower_or_wider_than_a_vector(block, dtype):
    weights, tolerance = ("int8", 0) if dtype == "uint8" else (dtype, 1e-3)
    x, w = random((1, 64, 20, 20), dtype), random((32, 64, 3, 3), weights, at=1)
    op = PackedConv2dOp(1, 64 // block, 20, 20, 32 // block, Window((3, 3)), block, dtype)
    kernel = Layout(f"OIHW{block}i{block}o").pack(w)
    if dtype == "uint8":
        kernel = pack_int8_kernel(w, block)
    data = Layout(f"NCHW{block}c")
    result = cpu.kernel(op)(data.pack(x), kernel)
    reference = conv2d_reference(x, w, (1, 1), (0,) * 4, (1, 1))
    close(data.unpack(result, reference.shape), reference, tolerance)
    with pytest.raises(UnsupportedError, match="shift them to uint8"):
        cpu.kernel(replace(op, dtype="int8"))


def test_work_that_is_shared_among_threads_is_right():
    a, b = random((300, 200), "int8"), random((200, 310), "int8", at=1)
    assert np.array_equal(cpu.matmul(a, b), a.astype(np.int32) @ b.astype(np.int32))
    x, w = random((2, 36, 40, 40), "int8"), random((40, 36, 3, 3), "int8", at=1)
    reference = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    assert np.array_equal(cpu.conv2d(x, w, padding=1), reference)
    images, kernel = random((3, 70, 65, 66)), random((70, 2, 3, 3), at=1)
    reference = depthwise_reference(images, kernel, (2, 2), (1,) * 4, (1, 1))
    close(cpu.depthwise_conv2d(images, kernel, padding=1, strides=2), reference)
    maxima = windows(images, (3, 3), (2, 2), (1,) * 4, (1, 1), -np.inf).max(axis=(4, 5))
    assert np.array_equal(cpu.max_pool2d(images, 3, strides=2, padding=1), maxima)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cpu.matmul(random((2, 3)), random((4, 5))), "must be equal"),
        (lambda: cpu.matmul(random((2, 3), "float64"), random((3, 2))), "accepted: float32, int8"),
        (lambda: cpu.matmul(random((2,)), random((2, 2))), "needs 2 axes"),
        (lambda: cpu.conv2d(random((1, 4, 8, 8)), random((4, 3, 3, 3))), "channels"),
        (lambda: cpu.conv2d(random((1, 4, 2, 2)), random((4, 4, 3, 3))), "spans 3 pixels"),
        (
            lambda: cpu.conv2d(random((1, 4, 8, 8)), random((4, 4, 3, 3)), strides=0),
            "stride_h is 0",
        ),
        (
            lambda: cpu.conv2d(random((1, 4, 8, 8)), random((4, 4, 3, 3)), padding=-1),
            "padding_top is -1",
        ),
        (lambda: cpu.conv2d(random((1, 4, 8, 8)), random((4, 4, 1, 1)), shift=8), "int8"),
        (lambda: cpu.dense(random((1, 4)), random((2, 4)), activation="mish"), "relu"),
        (lambda: cpu.dense(random((1, 4)), random((2, 4)), bias=random((3,))), "must be"),
        (lambda: cpu.max_pool2d(random((1, 1, 8, 8)), 2, padding=2), "half the window"),
        (lambda: cpu.add(random((3,)), random((4,))), "broadcast"),
        (lambda: cpu.add(random((3,)), random((3,), "float64")), "must be equal"),
        (lambda: cpu.vector_add(random((3,)), random((4,))), "must be equal"),
        (lambda: cpu.softmax(random((2, 2), "int8")), "accepted: float32"),
        (lambda: cpu.relu(np.zeros((2, 2), bool)), "dtype bool"),
        (lambda: cpu.add(random((3,)), random((3,)), out=np.empty(4, "float32")), "out has shape"),
        (lambda: cpu.add([[1], [1, 2]], random((3,))), "not an array"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ShapeError, match=message):
        call()


def unaligned(array):
    raw = np.empty(array.nbytes + 128, np.uint8)
    start = (-raw.ctypes.data) % 64 + array.itemsize
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def test_unaligned_arrays_are_accepted():
    x, w = unaligned(random((1, 8, 33, 33))), unaligned(random((16, 8, 3, 3), at=1))
    out = unaligned(np.zeros((1, 16, 33, 33), "float32"))
    assert all(a.ctypes.data % 64 for a in (x, w, out))
    close(cpu.conv2d(x, w, padding=1, out=out), conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1)))
    a, b = unaligned(random((64, 64))), unaligned(random((64, 64), at=1))
    close(cpu.matmul(a, b), a @ b)


def test_strided_and_reversed_and_read_only_arrays_are_accepted():
    whole = random((40, 60))
    a, b = whole[::2, ::-1], random((60, 30)).T[::-1].T
    close(cpu.matmul(a, b), a @ b)
    fixed = random((20, 20))
    fixed.flags.writeable = False
    close(cpu.matmul(fixed, fixed), fixed @ fixed)
    swapped = random((5, 5)).astype(">f4")
    close(cpu.relu(swapped), np.maximum(swapped, 0))


class Exported:
    """An array that is known by the DLPack protocol alone, as other libraries' tensors are."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_objects_are_accepted():
    a, b, out = random((9, 9)), random((9, 9), at=1), np.zeros((9, 9), "float32")
    target = Exported(out)
    assert cpu.matmul(Exported(a), Exported(b), out=target) is target
    close(out, a @ b)


class Tensor(Exported):
    """As a PyTorch tensor that has a gradient: to be detached before it becomes an array."""

    def detach(self):
        return Detached(self.array)


class Detached(Exported):
    def __array__(self, dtype=None, copy=None):
        return self.array


def test_tensors_with_gradients_are_detached():
    a, b = random((9, 9)), random((9, 9), at=1)
    for _ in range(2):
        close(cpu.dense(Tensor(a), Tensor(b), bias=Tensor(a[0])), a @ b.T + a[0])


def test_what_is_in_no_host_memory_is_refused():
    class Unreadable(Exported):
        def __dlpack__(self, **options):
            raise BufferError("sparse")

    with pytest.raises(ShapeError, match="data is not an array of numbers in host memory: sparse"):
        cpu.relu(Unreadable(random((3,))))


def test_a_repeated_call_takes_the_arrays_that_it_is_given():
    a, b, bias = random((8, 8)), random((8, 8), at=1), random((8,), at=2)
    for left, right in [(a, a), (a, b), (b, a), (b.T, a), (a, b[::-1])]:
        close(cpu.matmul(left, right), left @ right)
        close(cpu.matmul(left, right, residual=a, bias=bias), left @ right + bias + a)
        close(cpu.matmul(left, right, bias=bias, residual=b), left @ right + bias + b)
        close(cpu.matmul(left, right, bias=bias), left @ right + bias)
    x = random((1, 2, 6, 6))
    for padding in (0, [1, 1], (1, 1), 1):
        pooled = cpu.max_pool2d(x, [3, 3], strides=1, padding=padding)
        around = 0 if padding == 0 else 1
        view = windows(x, (3, 3), (1, 1), (around,) * 4, (1, 1), -np.inf)
        assert np.array_equal(pooled, view.max(axis=(4, 5)))


def test_results_may_replace_an_input():
    a, b = random((8, 8)), random((8, 8), at=1)
    total = a + b
    assert cpu.add(a, b, out=a) is a
    assert np.array_equal(a, total)
    product = a @ b
    assert cpu.matmul(a, b, out=b) is b
    close(b, product)


def test_a_repeated_call_is_checked_as_the_first():
    a, b = random((8, 8)), random((8, 8), at=1)
    for _ in range(2):
        close(cpu.matmul(a, b), a @ b)
        for wrong in (a.astype("float64"), a.astype(bool), a[0]):
            with pytest.raises(ShapeError):
                cpu.matmul(wrong, b)
        for out in (np.empty((8, 7), "float32"), np.empty((8, 8)), np.empty((16, 8), "f4")[::2]):
            with pytest.raises(ShapeError, match="out"):
                cpu.matmul(a, b, out=out)
        swapped = a.astype(">f4")
        close(cpu.matmul(swapped, b), a @ b)


def test_foreign_devices_are_refused():
    class Elsewhere(Exported):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(ShapeError, match="copy it to the CPU"):
        cpu.relu(Elsewhere(random((3,))))


def test_out_is_written_and_returned():
    a, b = random((6, 6)), random((6, 6), at=1)
    out = np.empty((6, 6), "float32")
    assert cpu.add(a, b, out=out) is not None
    assert np.array_equal(out, a + b)
    read_only = np.zeros((6, 6), "float32")
    read_only.flags.writeable = False
    with pytest.raises(ShapeError, match="read-only"):
        cpu.add(a, b, out=read_only)
    with pytest.raises(ShapeError, match="contiguous"):
        cpu.add(a, b, out=np.zeros((6, 12), "float32")[:, ::2])
