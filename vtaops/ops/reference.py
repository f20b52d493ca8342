"""Plain NumPy reference of the operators: the ground truth for every device.

For tests and self-tests; sessions never return its results. Shares no code with the compiler, the
simulators or the fallback; windows are shared with graphs (`vtaops.base.exact`). Accumulates in
float64, which is exact below 2**53, then wraps to int32 as the hardware does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce, singledispatch

import numpy as np

from vtaops import ops
from vtaops.base.errors import UnsupportedError
from vtaops.base.exact import convolve, convolve_transposed, over_windows
from vtaops.base.fixed_point import fine_scale
from vtaops.base.shapes import Array, Int8Array, Int32Array, Ints
from vtaops.machine.config import HardwareConfig
from vtaops.machine.views import constant_values
from vtaops.ops import Operator
from vtaops.ops.epilogue import Epilogue
from vtaops.program import Role


def evaluate(op: Operator, arrays: Sequence[Array]) -> Int8Array:
    """Compute an operator on its arguments.

    Raises
    ------
    UnsupportedError
        If the operator has no reference.
    """
    names = [b.name for b in op.buffers(HardwareConfig()) if b.role in _GIVEN]
    values = {n: np.asarray(a, dtype=np.float64) for n, a in zip(names, arrays, strict=True)}
    return _epilogue(op, _sums(op, values), values)


_GIVEN = (Role.INPUT, Role.PARAMETER)

Given = dict[str, Array]
"""The arguments of an operator by name."""


@singledispatch
def _sums(op: Operator, given: Given) -> Array:
    """Return the sums, or maxima, of an operator before its epilogue."""
    raise UnsupportedError(f"there is no NumPy reference for {type(op).__name__}")


@_sums.register
def _sums_of_gemm(op: ops.Gemm, given: Given) -> Array:
    total: Array = given["data"] @ given["weight"].T
    return total


@_sums.register
def _sums_of_conv2d(op: ops.Conv2d, given: Given) -> Array:
    kernel = 256 * given["kernel_high"] + given["kernel"] if op.wide else given["kernel"]
    total = convolve(given["data"], kernel, op.window, op.groups)
    if op.bias_tiles:
        weights = given["constant_scale"][:, :, 0, 0]
        total += _by_channel(op, weights @ constant_values(weights.shape[1]))
    if op.residual and op.has_factors:
        digits = [given[name] for name in op.residual_digits]
        factor = reduce(lambda high, low: 256 * high + low, digits)
        total = total + given["residual"] * factor[:, 0]  # float64
    return total


@_sums.register
def _sums_of_batch_matmul(op: ops.BatchMatmul, given: Given) -> Array:
    data, other = given["data"] - op.data_zero_point, given["other"] - op.other_zero_point
    acc: Array = data @ other.transpose(0, 2, 1) - op.epilogue.constant  # which follows the sums
    return acc


@_sums.register
def _sums_of_conv2d_transpose(op: ops.Conv2dTranspose, given: Given) -> Array:
    return convolve_transposed(given["data"], given["kernel"], op.window, op.out_size)


@_sums.register
def _sums_of_elementwise(op: ops.Elementwise, given: Given) -> Array:
    value = given["data"] * op.scale + op.data_offset
    if op.binary:
        combine = getattr(np, "subtract" if op.function == "sub" else op.function)
        value = combine(value, given["other"] * op.other_scale + op.other_offset)
    return value if op.multiplier else value + op.constant


@_sums.register
def _sums_of_max_pool2d(op: ops.MaxPool2d, given: Given) -> Array:
    return over_windows(np.maximum, given["data"], op.window, -128)


@_sums.register
def _sums_of_avg_pool2d(op: ops.AvgPool2d, given: Given) -> Array:
    total = over_windows(np.add, given["data"], op.window, 0)
    return total if op.multiplier else total * op.factor[0] + op.offset


# ----------------------------------------------------------------------------- epilogue


def _epilogue(op: Operator, sums: Array, given: Given) -> Int8Array:
    """Apply the epilogue to sums: bias, scale or shift, residual, clip; return the low 8 bits."""
    end = op.epilogue
    if end is None:
        return sums.astype(np.int8)
    if "bias" in given:
        sums = sums + _by_channel(op, given["bias"])
    if end.scaled:
        if end.multiplier:
            return _scaled(sums + end.constant, np.array(end.shared["scales"]), end)
        return _scaled(sums, _by_channel(op, given["scales"]), end)
    acc = _int32(sums)
    acc = _shifted(acc, end.shift, end.rounding)
    if end.residual:
        own = _clipped(acc, end.residual.clip)
        acc = _int32(own + given["residual"] * end.residual.scale)
        acc = _shifted(acc, end.residual.shift, end.rounding)
    result: Int8Array = _clipped(acc, end.clip).astype(np.int8)
    return result


def _by_channel(op: Operator, vector: Array) -> Array:
    """Reshape a per-channel vector to broadcast over results: last axis, or axis 1 of images."""
    return vector if isinstance(op, ops.Gemm) else vector[:, None, None]


def _int32(acc: Array) -> Int32Array:
    """Wrap as the accumulators do."""
    return acc.astype(np.int64).astype(np.int32)


def _shifted(acc: Int32Array, shift: int, rounding: str) -> Int32Array:
    """Shift right (left if negative); round down, or to nearest with halves upwards.

    Half a step of a shift by 15 or less is added to the int32 sum, and wraps with it.
    """
    if shift < 0:
        return _int32(acc * 2.0**-shift)
    half = 2.0 ** (shift - 1) if rounding == "half_up" and shift > 0 else 0.0
    total = acc + half  # exact: 33 of 53 bits
    return _int32(np.floor((_int32(total) if shift <= 15 else total) / 2.0**shift))


def _scaled(acc: Array, scales: Array, end: Epilogue) -> Int8Array:
    """Requantize by coarse or fine fixed-point scales, with exact products."""
    total, scale = _int32(acc).astype(np.int64), scales.astype(np.int64)
    multiplier, shift, nudge = scale & 0xFFFF, scale >> 16, np.zeros_like(scale)
    if end.fine:
        multiplier, shift = scale % (1 << 23) + (1 << 23), 20 + scale // (1 << 23) % 32
        nudge = (0, 0, 1 << 23, 1 << 24)[end.fine] + (scale // (1 << 28) << 14)
    half = ((1 << shift) >> 1) + np.where(total < 0, -nudge, nudge)
    value = (total * multiplier + half >> shift) + end.zero_point
    bounds = end.clip or (-128, 127)
    result: Int8Array = np.clip(value, *bounds).astype(np.int8)
    return result


def _clipped(value: Int32Array, bounds: tuple[int, int] | None) -> Int32Array:
    return value if bounds is None else np.clip(value, *bounds)


def random_arguments(op: Operator, rng: np.random.Generator) -> list[Array]:
    """Return random arguments of an operator.

    int8 values span their full range; per-channel vectors are half 16-bit, half all of int32 except
    its last 2**14, where a bias may be rejected (see `vtaops.ops.epilogue`); scales have
    multipliers and shifts over their ranges, limits included, mostly those that give int8 results.
    """
    arrays: list[Array] = []
    for buffer in op.buffers(HardwareConfig()):  # logical shapes are the same in any configuration
        if buffer.role in _GIVEN:
            if buffer.dtype == "int8":
                narrow = buffer.name in ("weight", "kernel") and getattr(op, "weight_bits", 8) == 4
                limit = 8 if narrow else 128
                values = rng.integers(-limit, limit, buffer.shape)
            elif buffer.name == "scales" and op.epilogue:
                values = _random_scales(buffer.shape, op.epilogue.fine > 0, rng)
            else:
                small = rng.integers(-(1 << 15), 1 << 15, buffer.shape)
                large = rng.integers(-(1 << 31), (1 << 31) - (1 << 14), buffer.shape)
                values = np.where(rng.random(buffer.shape) < 0.5, small, large)
            arrays.append(values.astype(buffer.dtype))
    return arrays


def _random_scales(shape: tuple[int, ...], fine: bool, rng: np.random.Generator) -> Ints:
    usual, every = (range(26, 42), range(20, 52)) if fine else (range(18, 34), range(48))
    some = rng.random(shape) < 0.3
    shift = np.where(some, rng.choice(every, shape), rng.choice(usual, shape))
    if fine:
        multiplier = rng.integers(1 << 23, 1 << 24, shape)
        return np.asarray(fine_scale(multiplier, shift, rng.integers(-8, 8, shape)))
    limits = rng.choice([0, 1, 0x5555, 0xFFFF], shape)
    multiplier = np.where(some, limits, rng.integers(1 << 15, 1 << 16, shape))
    return np.asarray(multiplier | shift << 16)
