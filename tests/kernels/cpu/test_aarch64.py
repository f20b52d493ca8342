"""The CPU kernels for aarch64 against NumPy, run by QEMU; see `aarch64` for what that needs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import aarch64
from scipy import special

from examples.kernels.packed_int8 import pack_int8_kernel
from trials.kernel_reference import conv2d_reference, depthwise_reference, random, windows
from vtaops.kernels.ops import MatmulOp, PackedConv2dOp, Window
from vtaops.machine.layout import Layout

pytestmark = pytest.mark.skipif(bool(aarch64.lacking()), reason=aarch64.lacking())


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return aarch64.Emulated(aarch64.PLAIN, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module", params=[aarch64.PLAIN, aarch64.DOT], ids=lambda t: t.mcpu)
def integer(request, tmp_path_factory):
    return aarch64.Emulated(request.param, tmp_path_factory.mktemp("integer"))


def close(result, reference, tolerance=2e-4):
    assert result.shape == reference.shape
    np.testing.assert_allclose(result, reference, rtol=tolerance, atol=tolerance)


def test_matrix_products(plain):
    a, b, bias = random((23, 37)), random((37, 41), at=1), random((41,), at=2)
    close(plain.matmul(a, b), a @ b)
    fused = plain.dense(a, b.T, bias=bias, activation="relu")
    close(fused, np.maximum(a @ b + bias, 0))
    large, other = random((130, 100)), random((100, 140), at=1)
    close(plain.matmul(large, other), large @ other)  # shared among threads


@pytest.mark.parametrize("size", [7, 19])
def test_conv2d(plain, size):
    x, w = random((2, 3, size, size + 1)), random((10, 3, 3, 2), at=1)
    result = plain.conv2d(x, w, strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2))
    close(result, conv2d_reference(x, w, (2, 1), (1, 0, 2, 1), (1, 2)))


def test_conv2d_with_everything_fused(plain):
    x, w = random((1, 4, 12, 12)), random((8, 4, 3, 3), at=1)
    gamma, beta, mean = (random((8,), at=at) for at in (2, 3, 4))
    variance, residual = np.abs(random((8,), at=5)) + np.float32(0.5), random((1, 8, 12, 12), at=6)
    scale = gamma / np.sqrt(variance + 1e-5)
    shift = beta - mean * scale
    total = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    expected = total * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1) + residual
    result = plain.conv2d(
        x,
        w,
        padding=1,
        batch_norm=(gamma, beta, mean, variance),
        residual=residual,
        activation="relu",
    )
    close(result, np.maximum(expected, 0), 1e-3)


def packed_conv2d(backend, x, kernel):
    """Return what a kernel makes of images with eight channels in a block."""
    op = PackedConv2dOp(1, 1, *x.shape[2:], 1, Window((3, 3), padding=(1,) * 4), 8, x.dtype.name)
    data, result = Layout("NCHW8c"), np.zeros(op.output.shape, op.output.dtype)
    backend.kernel(op).run(data.pack(x), kernel, result)
    return data.unpack(result, x.shape)


def test_packed_conv2d(plain):
    x, w = random((1, 8, 9, 9)), random((8, 8, 3, 3), at=1)
    reference = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    close(packed_conv2d(plain, x, Layout("OIHW8i8o").pack(w)), reference)


@pytest.mark.parametrize("strides", [1, 2])
def test_depthwise_conv2d(plain, strides):
    x, w = random((1, 5, 17, 14)), random((5, 2, 3, 3), at=1)
    scale, shift = random((10,), at=2), random((10,), at=3)
    total = depthwise_reference(x, w, (strides, strides), (1,) * 4, (1, 1))
    expected = np.maximum(total * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1), 0)
    result = plain.depthwise_conv2d(
        x, w, strides=strides, padding=1, scale_shift=(scale, shift), activation="relu"
    )
    close(result, expected)


def test_conv1d(plain):
    x, w = random((1, 1, 1001)), random((1, 1, 13), at=1)
    close(plain.conv1d(x, w, padding=6)[0, 0], np.correlate(x[0, 0], w[0, 0], "same"))


def test_pools_and_softmax(plain):
    x = random((1, 3, 15, 18))
    view = windows(x, (3, 3), (2, 2), (1,) * 4, (1, 1), -np.inf)
    assert np.array_equal(plain.max_pool2d(x, 3, strides=2, padding=1), view.max(axis=(4, 5)))
    mean = windows(x, (2, 2), (2, 2), (0,) * 4, (1, 1)).mean(axis=(4, 5))
    close(plain.avg_pool2d(x, 2), mean)
    close(plain.global_avg_pool2d(x), x.mean(axis=(2, 3), keepdims=True))
    rows = random((5, 67)) * 10
    close(plain.softmax(rows), special.softmax(rows.astype(np.float64), -1), 1e-6)


def test_elementwise(plain):
    a, b = random((5, 1, 7)), random((3, 7), at=1)
    assert np.array_equal(plain.add(a, b), a + b)
    assert np.array_equal(plain.relu(a), np.maximum(a, 0))
    x, scale, shift = random((2, 3, 5)), random((3,), at=1), random((3,), at=2)
    close(plain.scale_shift(x, scale, shift), x * scale[:, None] + shift[:, None])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_matrix_products_are_exact(integer, dtype):
    a, b = random((13, 30), dtype), random((30, 21), "int8", at=1)
    assert np.array_equal(integer.matmul(a, b), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_convolutions_are_exact(integer, dtype):
    x, w = random((1, 6, 9, 10), dtype), random((9, 6, 3, 3), "int8", at=1)
    total = conv2d_reference(x, w, (2, 1), (1,) * 4, (1, 1))
    result = integer.conv2d(x, w, strides=(2, 1), padding=1, shift=6, clip=(-128, 127))
    assert np.array_equal(result, np.clip(total >> 6, -128, 127))


def test_integer_depthwise_convolutions_are_exact(integer):
    x, w = random((1, 4, 9, 10), "int8"), random((4, 1, 3, 3), "int8", at=1)
    total = depthwise_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    assert np.array_equal(integer.depthwise_conv2d(x, w, padding=1), total)


def test_the_dot_product_instruction_is_used_where_it_is(integer):
    kernel = integer.kernel(MatmulOp(8, 8, 8, "uint8", "int8"))
    assert ("usdot" in kernel.assembly()) == ("i8mm" in integer.target.features)


def test_packed_integer_convolutions_are_exact(integer):
    x, w = random((1, 8, 7, 7), "uint8"), random((8, 8, 3, 3), "int8", at=1)
    reference = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    assert np.array_equal(packed_conv2d(integer, x, pack_int8_kernel(w, 8)), reference)
