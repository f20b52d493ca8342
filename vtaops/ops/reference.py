"""What the operators compute, in plain NumPy: the yardstick of every device.

For tests and self-tests; no result of a session comes from here. Shares no code with the compiler,
the simulators or the fallback. Accumulates in float64, which is exact below
2**53, then wraps to int32 as the hardware does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import UnsupportedError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.views import constant_values
from vtaops.ops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    DepthwiseConv2dAlu,
    Elementwise,
    Gemm,
    MaxPool2d,
    Operator,
)
from vtaops.program import Role

Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Float = npt.NDArray[np.floating[Any]]


def evaluate(op: Operator, arrays: Sequence[npt.NDArray[np.generic]]) -> Int8Array:
    """Compute an operator on its arguments.

    Raises
    ------
    UnsupportedError
        If there is no reference for this operator.
    """
    return _evaluate(op, [np.asarray(array, dtype=np.float64) for array in arrays])


@singledispatch
def _evaluate(op: Operator, arrays: list[Float]) -> Int8Array:
    raise UnsupportedError(f"there is no NumPy reference for {type(op).__name__}")


@_evaluate.register
def _(op: Gemm, arrays: list[Float]) -> Int8Array:
    data, weight, *vectors = arrays
    acc = data @ weight.T + (vectors[0] if op.bias else 0.0)
    if op.scales:
        return _scaled(acc, vectors[-1], op.zero_point, op.clip)
    return _int8(_clipped(_shifted(_int32(acc), op.shift, op.rounding), op.clip))


@_evaluate.register
def _(op: Conv2d, arrays: list[Float]) -> Int8Array:
    data, kernel, *rest = arrays
    acc = _convolve(op, data, kernel)
    if op.bias:
        acc += rest.pop(0)[:, None, None]
    if op.bias_tiles:
        weights = rest.pop(0)[:, :, 0, 0]
        acc += (weights @ constant_values(weights.shape[1]))[:, None, None]
    if op.scales:
        scales = rest.pop(0)
        if op.residual:
            added, high, low = rest
            acc += added * (256 * high + low)[:, 0]
        return _scaled(acc, scales[:, None, None], op.zero_point, op.clip)
    if op.multiplier:
        wrapped = np.asarray(_int32(acc), np.int64)
        acc = np.asarray(wrapped * rest.pop(0)[:, None, None].astype(np.int64), np.longdouble)
    own = _shifted(_int32(acc), op.shift, op.rounding)
    if op.residual:
        own = _clipped(own, op.residual_clip)
        total = _int32(own + rest.pop(0) * op.residual_scale)
        own = _shifted(total, op.residual_shift, op.rounding)
    return _int8(_clipped(own, op.clip))


def _convolve(op: Conv2d, data: Float, kernel: Float) -> Float:
    top, left, bottom, right = op.pads
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    oh, ow = op.out_size
    acc = np.zeros((op.batch, op.groups, op.out_channels // op.groups, oh * ow))
    for dy, dx, seen in op.window.taps(oh, ow):
        pixels = padded[seen].reshape(op.batch, op.groups, -1, oh * ow)
        taps = kernel[:, :, dy, dx].reshape(op.groups, -1, kernel.shape[1])
        acc += taps @ pixels
    return acc.reshape(op.batch, op.out_channels, oh, ow)


@_evaluate.register
def _(op: BatchMatmul, arrays: list[Float]) -> Int8Array:
    data, other, *coarse = arrays
    acc = data @ other.transpose(0, 2, 1)
    if coarse:
        acc += 128 * (coarse[0] @ coarse[1].transpose(0, 2, 1))
    if op.multiplier:
        return _scaled(acc, np.array(op.multiplier | op.shift << 16), op.zero_point, op.clip)
    return _int8(_clipped(_shifted(_int32(acc), op.shift, op.rounding), op.clip))


@_evaluate.register
def _(op: Conv2dTranspose, arrays: list[Float]) -> Int8Array:
    data, kernel, *vectors = arrays
    (oh, ow), (top, left, *_), channels = op.out_size, op.pads, op.out_channels
    # Every pixel adds its scaled kernel to the output; then the padding is cut off.
    rows, columns = op.window.reach(op.height, op.width)
    whole = np.zeros((op.batch, channels, max(rows, top + oh), max(columns, left + ow)))
    pixels = data.reshape(op.batch, op.in_channels, -1)
    for dy, dx, seen in op.window.taps(op.height, op.width):
        values = (kernel[:, :, dy, dx].T @ pixels).reshape(op.batch, channels, *data.shape[2:])
        whole[seen] += values
    acc = whole[:, :, top : top + oh, left : left + ow]
    if op.bias:
        acc = acc + vectors[0][:, None, None]
    if op.scales:
        return _scaled(acc, vectors[-1][:, None, None], op.zero_point, op.clip)
    return _int8(_clipped(_shifted(_int32(acc), op.shift, op.rounding), op.clip))


@_evaluate.register
def _(op: Elementwise, arrays: list[Float]) -> Int8Array:
    first, *second = arrays
    value = first * op.scale
    if second:
        combine = {
            "add": np.add,
            "sub": np.subtract,
            "multiply": np.multiply,
            "minimum": np.minimum,
            "maximum": np.maximum,
        }[op.function]
        value = combine(value, second[0] * op.other_scale)
    if op.multiplier:
        scale = np.array(op.multiplier | op.shift << 16, np.float64)
        return _scaled(value + op.constant, scale, op.zero_point, op.clip)
    return _int8(_clipped(_shifted(_int32(value), op.shift, op.rounding), op.clip))


@_evaluate.register
def _(op: DepthwiseConv2dAlu, arrays: list[Float]) -> Int8Array:
    data, kernel, *bias = arrays
    acc = np.einsum("nchwyx,cyx->nchw", _windows(op, data, 0.0), kernel[:, 0])
    if bias:
        acc += bias[0][:, None, None]
    return _int8(_clipped(_shifted(_int32(acc), op.shift, op.rounding), op.clip))


@_evaluate.register
def _(op: MaxPool2d, arrays: list[Float]) -> Int8Array:
    return _int8(_int32(_windows(op, arrays[0], -128.0).max(axis=(-2, -1))))


@_evaluate.register
def _(op: AvgPool2d, arrays: list[Float]) -> Int8Array:
    total = _windows(op, arrays[0], 0.0).sum(axis=(-2, -1))
    if op.scaling:
        scale = np.array(op.multiplier | op.shift << 16, np.float64)
        return _scaled(total + op.constant, scale, op.zero_point, op.clip)
    if op.count_include_pad or not any(op.pads):
        multiplier, shift = op.factor
        value = _shifted(_int32(total * multiplier + op.offset), shift, op.rounding)
    else:
        counted = _windows(op, np.ones_like(arrays[0]), 0.0).sum(axis=(-2, -1))
        half = 0.5 if op.rounding == "half_up" else 0.0
        value = _int32(np.floor(total / np.maximum(counted, 1) + half))
    return _int8(_clipped(value, op.clip))


def _windows(op: MaxPool2d | AvgPool2d | DepthwiseConv2dAlu, data: Float, padding: float) -> Float:
    """Return the windows of a padded image: shape (N, C, OH, OW, KH, KW)."""
    top, left, bottom, right = op.pads
    (kh, kw), (sh, sw) = op.window.kernel, op.window.strides
    sides = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(data, sides, constant_values=padding)
    windows: Float = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))
    return windows[:, :, ::sh, ::sw]


# ------------------------------------------------------------------------ post-processing


def _int32(acc: Float) -> Int32Array:
    """Wrap as the accumulators do."""
    wrapped: Int32Array = np.asarray(acc).astype(np.int64).astype(np.int32)
    return wrapped


def _shifted(acc: Int32Array, shift: int, rounding: str) -> Int32Array:
    """Shift right (left where negative); the floor, or the nearest with halves upwards.

    Half a step of a shift by 15 or less belongs to the int32 sum, and wraps with it.
    """
    if shift < 0:
        return _int32(acc * 2.0**-shift)
    half = 2.0 ** (shift - 1) if rounding == "half_up" and shift > 0 else 0.0
    total = acc + half  # exact: 33 of 53 bits
    return _int32(np.floor((_int32(total) if shift <= 15 else total) / 2.0**shift))


def _scaled(acc: Float, scales: Float, zero_point: int, clip: tuple[int, int] | None) -> Int8Array:
    """Requantise by fixed-point scales, ``multiplier | shift << 16``; the product has 48 bits."""
    total, scale = _int32(acc).astype(np.int64), scales.astype(np.int64)
    shift = scale >> 16
    value = (total * (scale & 0xFFFF) + ((1 << shift) >> 1) >> shift) + zero_point
    assert clip is not None
    result: Int8Array = np.clip(value, *clip).astype(np.int8)
    return result


def _clipped(value: Int32Array, bounds: tuple[int, int] | None) -> Int32Array:
    return value if bounds is None else np.clip(value, *bounds)


def _int8(value: Int32Array) -> Int8Array:
    result: Int8Array = value.astype(np.int8)
    return result


def random_arguments(op: Operator, rng: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Return random arguments of an operator.

    int8 over its full range; vectors of channels half of 16 bits, half over all of int32 but its
    last 2**14, where a bias may be refused (see `vtaops.ops.epilogue`); scales with multipliers
    and shifts over their ranges, limits included, most near those that leave int8 values.
    """
    arrays: list[npt.NDArray[np.generic]] = []
    for buffer in op.buffers(HardwareConfig()):  # logical shapes are the same in any configuration
        if buffer.role in (Role.INPUT, Role.PARAMETER):
            if buffer.dtype == "int8":
                values = rng.integers(-128, 128, buffer.shape)
            elif buffer.name == "scales":
                values = _random_scales(buffer.shape, rng)
            else:
                small = rng.integers(-(1 << 15), 1 << 15, buffer.shape)
                large = rng.integers(-(1 << 31), (1 << 31) - (1 << 14), buffer.shape)
                values = np.where(rng.random(buffer.shape) < 0.5, small, large)
            arrays.append(values.astype(buffer.dtype))
    return arrays


def _random_scales(shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    multiplier = rng.integers(1 << 15, 1 << 16, shape)
    shift = rng.integers(18, 34, shape)
    anything = rng.integers(0, 1 << 16, shape), rng.integers(0, 48, shape)
    limit = rng.choice([0, 1, 0xFFFF], shape), rng.choice([0, 1, 47], shape)
    kind = rng.random(shape)
    for (m, s), share in ((anything, 0.3), (limit, 0.1)):
        multiplier, shift = np.where(kind < share, m, multiplier), np.where(kind < share, s, shift)
    return multiplier | shift << 16
