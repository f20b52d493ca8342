"""float16 and bfloat16: computed in float32, rounded once. `trials/random_calls.py` draws more."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from trials import random_calls
from trials.kernel_reference import conv2d_reference
from vtaops import cpu
from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.kernels.cpu import layers
from vtaops.kernels.cpu.kernel import CpuKernel
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops import BroadcastOp
from vtaops.kernels.ops.storage import stored

DTYPES = random_calls.STORED


pytestmark = pytest.mark.usefixtures("no_files")


def same(result, expected):
    """Whether all bits are equal; a NaN is like another."""
    assert result.dtype == expected.dtype
    equal = result.view("uint16") == expected.view("uint16")
    return (equal | (np.isnan(result) & np.isnan(expected))).all()


def random(*shape, dtype="float32"):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_number_is_widened_and_rounded_as_numpy_does(dtype):
    """All 65,536: NaN, infinities, both zeros, subnormal numbers, overflow to infinity, ties."""
    x = np.arange(1 << 16, dtype="uint16").view(dtype)
    with np.errstate(all="ignore"):  # NaN that signal
        assert same(cpu.relu(x), cpu.relu(x.astype("float32")).astype(dtype))
        for name in ("add", "subtract", "multiply"):
            for other in (x[::-1].copy(), np.roll(x, 4093)):
                wide = getattr(np, name)(x.astype("float32"), other.astype("float32"))
                assert same(getattr(cpu, name)(x, other), wide.astype(dtype)), name


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("channels", [8, 16])
def test_a_convolution_is_rounded_once(channels, dtype):
    x, w, bias = random(1, 16, 30, 30), random(channels, 16, 3, 3), random(channels)
    x, w, bias = (a.astype(dtype) for a in (x, w, bias))
    wide = cpu.conv2d(*(a.astype("float32") for a in (x, w)), bias=bias.astype("float32"))
    assert same(cpu.conv2d(x, w, bias=bias), wide.astype(dtype))
    exact = conv2d_reference(x, w, (1, 1), (0,) * 4, (1, 1)) + bias.astype("float64")[:, None, None]
    np.testing.assert_allclose(wide, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_layers_take_weights_of_16_bits_with_either_data(dtype):
    x, w, matrix = random(1, 16, 9, 9), random(20, 16, 3, 3).astype(dtype), random(40, 20)
    conv, dense = layers.PackedConv2d(w, padding=1), layers.PackedDense(matrix.astype(dtype))
    expected = cpu.conv2d(x, w.astype("float32"), padding=1)
    np.testing.assert_allclose(conv(x).numpy(), expected, rtol=1e-4, atol=1e-4)
    half = x.astype(dtype)
    image = conv(half, residual=conv(half))
    assert image.blocks.dtype == dtype
    pooled = layers.PackedGlobalAvgPool2d()(layers.PackedAdd()(image, image)).numpy()
    result = dense(pooled.reshape(1, -1))
    wide = 4 * cpu.conv2d(half.astype("float32"), w.astype("float32"), padding=1)
    expected = wide.mean(axis=(2, 3)) @ matrix.T
    bound = 8 * float(ml_dtypes.finfo(dtype).eps) * np.abs(expected).max()
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype("float32"), expected, rtol=0, atol=bound)
    with pytest.raises(ShapeError, match="data has dtype float64; accepted: "):
        conv(x.astype("float64"))
    with pytest.raises(ShapeError, match="data has dtype float32; accepted: "):
        layers.PackedAdd()(image, x)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_mixed_dtypes_are_named(dtype):
    a = random(3, 4, dtype=dtype)
    with pytest.raises(ShapeError, match=r"float16, float32|bfloat16, float32"):
        cpu.add(a, random(3, 4))
    with pytest.raises(ShapeError, match=r"float16, float32|bfloat16, float32"):
        cpu.dense(a, a, bias=random(3))
    with pytest.raises(ShapeError, match="out has shape"):
        cpu.add(a, a, out=random(3, 4))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_results_may_overlap_and_shapes_may_be_empty(dtype):
    z, b = random(8, 8, dtype=dtype), random(8, 8, dtype=dtype)
    expected = cpu.matmul(z, b)
    assert same(cpu.matmul(z, b, out=z), expected)
    assert cpu.matmul(np.empty((0, 3), dtype), np.empty((3, 2), dtype)).dtype == dtype
    assert cpu.matmul(np.empty((0, 4, 3), dtype), np.empty((0, 3, 2), dtype)).dtype == dtype


def test_a_processor_without_f16c_refuses_float16_alone():
    old = replace(CpuTarget.detect(), mcpu="nehalem", features=(), missing=())
    op = BroadcastOp("add", (32,), (32,))
    with pytest.raises(UnsupportedError, match="nehalem has no instruction that converts float16"):
        CpuKernel(stored(op, ["float16"] * 2), old)
    x, out = np.arange(32).astype("uint16"), np.empty(32, "uint16")
    CpuKernel(stored(op, ["bfloat16"] * 2), old).run(x, x, out)
    assert (out == (2 * x.view(ml_dtypes.bfloat16)).view("uint16")).all()


def test_tensors_of_16_bits_in_and_out():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(5, 6).to(dtype)
        assert torch.equal(cpu.add(x[:, ::2], x[:, ::2]), x[:, ::2] + x[:, ::2])
        out = torch.empty(5, 6, dtype=dtype)
        assert cpu.multiply(x, x, out=out) is out
        assert torch.equal(out, x * x)
