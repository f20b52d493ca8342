"""What the operators compute, in plain NumPy: the yardstick of every device.

Shares no code with the compiler or the simulators. Accumulates in float64, which is exact below
2**53, then wraps to int32 as the hardware does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig
from vtaops.errors import UnsupportedError
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.program import Role

Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Float = npt.NDArray[np.float64]


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
    data, weight, *bias = arrays
    acc = data @ weight.T + (bias[0] if bias else 0.0)
    return _int8(_clipped(_shifted(_int32(acc), op.shift, op.rounding), op.clip))


@_evaluate.register
def _(op: Conv2d, arrays: list[Float]) -> Int8Array:
    data, kernel, *rest = arrays
    acc = _convolve(op, data, kernel)
    if op.bias:
        acc += rest.pop(0)[:, None, None]
    own = _shifted(_int32(acc), op.shift, op.rounding)
    if op.residual:
        own = _clipped(own, op.residual_clip)
        total = _int32(own + rest.pop(0) * op.residual_scale)
        own = _shifted(total, op.residual_shift, op.rounding)
    return _int8(_clipped(own, op.clip))


def _convolve(op: Conv2d, data: Float, kernel: Float) -> Float:
    top, left, bottom, right = op.pads
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (oh, ow), (sh, sw), (dh, dw) = op.out_size, op.stride, op.dilations
    acc = np.zeros((op.batch, op.groups, op.out_channels // op.groups, oh * ow))
    for dy in range(op.kernel_size[0]):
        for dx in range(op.kernel_size[1]):
            rows = slice(dy * dh, dy * dh + (oh - 1) * sh + 1, sh)
            columns = slice(dx * dw, dx * dw + (ow - 1) * sw + 1, sw)
            pixels = padded[:, :, rows, columns].reshape(op.batch, op.groups, -1, oh * ow)
            taps = kernel[:, :, dy, dx].reshape(op.groups, -1, kernel.shape[1])
            acc += taps @ pixels
    return acc.reshape(op.batch, op.out_channels, oh, ow)


# ------------------------------------------------------------------------ post-processing


def _int32(acc: Float) -> Int32Array:
    """Wrap as the accumulators do."""
    wrapped: Int32Array = np.asarray(acc).astype(np.int64).astype(np.int32)
    return wrapped


def _shifted(acc: Int32Array, shift: int, rounding: str) -> Int32Array:
    """Shift right (left where negative); the floor, or the nearest with halves upwards."""
    if shift < 0:
        return _int32(acc * 2.0**-shift)
    scaled = acc / 2.0**shift  # exact: 32 of 53 bits
    return _int32(np.floor(scaled + 0.5) if rounding == "half_up" else np.floor(scaled))


def _clipped(value: Int32Array, bounds: tuple[int, int] | None) -> Int32Array:
    return value if bounds is None else np.clip(value, *bounds)


def _int8(value: Int32Array) -> Int8Array:
    result: Int8Array = value.astype(np.int8)
    return result


def random_arguments(op: Operator, rng: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Return random arguments of an operator: int8 over its full range, biases of 16 bits."""
    arrays: list[npt.NDArray[np.generic]] = []
    for buffer in op.buffers(HardwareConfig()):  # logical shapes are the same in any configuration
        if buffer.role in (Role.INPUT, Role.PARAMETER):
            bound = 1 << (7 if buffer.dtype == "int8" else 15)
            arrays.append(rng.integers(-bound, bound, buffer.shape).astype(buffer.dtype))
    return arrays
