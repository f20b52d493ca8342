"""What the operators compute, in plain NumPy: the yardstick of every device.

Shares no code with the compiler or the simulators. Accumulates in float64, which is exact below
2**53, then wraps to int32 as the hardware does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig
from vtaops.errors import UnsupportedError
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.program import Role

Int8Array = npt.NDArray[np.int8]


def evaluate(op: Operator, arrays: Sequence[npt.NDArray[np.generic]]) -> Int8Array:
    """Compute an operator on its arguments.

    Raises
    ------
    UnsupportedError
        If there is no reference for this operator.
    """
    data, weight, *rest = (np.asarray(array, dtype=np.float64) for array in arrays)
    if isinstance(op, Conv2d):
        acc = _convolve(op, data, weight)
        bias = rest[0][:, None, None] if rest else 0.0
    elif isinstance(op, Gemm):
        acc = data @ weight.T
        bias = rest[0] if rest else 0.0
    else:
        raise UnsupportedError(f"there is no NumPy reference for {type(op).__name__}")
    return _requantize(acc + bias, op.shift, op.clip)


def _convolve(
    op: Conv2d, data: npt.NDArray[np.float64], kernel: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    top, left, bottom, right = op.pads
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (oh, ow), (sh, sw), (dh, dw) = op.out_size, op.stride, op.dilations
    acc = np.zeros((op.batch, op.out_channels, oh, ow))
    for dy in range(op.kernel_size[0]):
        for dx in range(op.kernel_size[1]):
            rows = slice(dy * dh, dy * dh + (oh - 1) * sh + 1, sh)
            columns = slice(dx * dw, dx * dw + (ow - 1) * sw + 1, sw)
            pixels = padded[:, :, rows, columns].reshape(op.batch, op.in_channels, -1)
            acc += (kernel[:, :, dy, dx] @ pixels).reshape(acc.shape)
    return acc


def _requantize(
    acc: npt.NDArray[np.float64], shift: int, clip: tuple[int, int] | None
) -> Int8Array:
    value = acc.astype(np.int64).astype(np.int32) >> np.int32(shift)
    bounded = value if clip is None else np.clip(value, *clip)
    result: Int8Array = bounded.astype(np.int8)
    return result


def random_arguments(op: Operator, rng: np.random.Generator) -> list[npt.NDArray[np.generic]]:
    """Return random arguments of an operator: int8 over its full range, biases of 16 bits."""
    arrays: list[npt.NDArray[np.generic]] = []
    for buffer in op.buffers(HardwareConfig()):  # logical shapes are the same in any configuration
        if buffer.role is not Role.OUTPUT:
            bound = 1 << (7 if buffer.dtype == "int8" else 15)
            arrays.append(rng.integers(-bound, bound, buffer.shape).astype(buffer.dtype))
    return arrays
