"""Layers with prepacked weights, for networks that run many times.

Layers exchange `Packed` data, NCHW[b]c with b the lanes of a vector register; they also accept
NCHW arrays. So nothing is transposed inside a network. Normalizations are folded into weights and
bias.

    conv = layers.PackedConv2d(weights, batch_norm=norm, padding=1, activation="relu")
    y = layers.PackedGlobalAvgPool2d()(conv(image)).numpy()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.kernels import cpu, ops
from vtaops.kernels.arrays import aligned, as_array, dtype_name, empty
from vtaops.kernels.calls.arguments import ANY, FLOAT, INTEGER, check_shapes, fused_epilogue
from vtaops.kernels.calls.backend import CallPlan, KernelCall
from vtaops.kernels.cpu.kernel import kernel
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import ACCUMULATOR, ceil_div, round_up
from vtaops.kernels.ops.storage import STORAGE, stored
from vtaops.machine.layout import Layout

Shape = tuple[int, ...]

WEIGHTS = ("float32", "int8", *STORAGE)
"""Dtypes of weights."""

_OFFSET = 128
"""Added to int8 data, since the instruction multiplies unsigned by signed bytes."""


@dataclass(frozen=True)
class Packed:
    """Images as exchanged between layers.

    Attributes
    ----------
    blocks : numpy.ndarray
        (batch, blocks, rows, columns, block), float32, float16, bfloat16, or for quantized layers
        int8, uint8 or int32; channels beyond `channels` are undefined. Copied if a kernel cannot
        read it in place.
    channels : int
        Number of valid channels.

    Raises
    ------
    ShapeError
        If `blocks` is not an array with five axes.
    """

    blocks: Array
    channels: int

    def __post_init__(self) -> None:
        blocks = self.blocks
        if type(blocks) is not np.ndarray or blocks.ndim != 5 or not blocks.flags.carray:
            readable = as_array(blocks, "blocks", (*ANY, "int32"), rank=5)
            object.__setattr__(self, "blocks", readable)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, channels, rows, columns)."""
        batch, _, rows, columns, _ = self.blocks.shape
        return batch, self.channels, rows, columns

    def numpy(self) -> Array:
        """Return the NCHW array."""
        batch, _, rows, columns, size = self.blocks.shape
        if rows == columns == 1:
            return np.ascontiguousarray(self.blocks.reshape(batch, -1, 1, 1)[:, : self.channels])
        layout = Layout(f"NCHW{size}c")
        return layout.unpack(self.blocks, self.shape)


def pack(data: Any, size: int | None = None, dtypes: tuple[str, ...] = (*ANY, "int32")) -> Packed:
    """Pack NCHW images into channel blocks; return packed images unchanged.

    Parameters
    ----------
    data : Packed or array_like
        (N, C, H, W).
    size : int, optional
        Channels per block; by default `block`.
    dtypes : tuple of str
        Accepted dtypes.

    Raises
    ------
    ShapeError
        If `data` are not NCHW images of an accepted dtype.
    """
    size = size or block()
    if isinstance(data, Packed):
        if data.blocks.shape[-1] == size and dtype_name(data.blocks) in dtypes:
            return data
        data = data.numpy()
    images = as_array(data, "data", dtypes, rank=4)
    return Packed(Layout(f"NCHW{size}c").pack(images), images.shape[1])


def block() -> int:
    """Return the channels per block on this CPU: the lanes of a vector register."""
    return CpuTarget.detect().lanes


class _Layer:
    """A layer with one kernel per input shape."""

    _describe: Callable[..., tuple[ops.TensorOp, Shape]]
    """Validates the parameters of a call; returns its operator and the shape of its result."""

    def __init__(self) -> None:
        self._plans: dict[Any, CallPlan] = {}

    def _run(self, key: tuple[Any, ...], *arrays: Array) -> Array:
        """Run the operator that ``_describe(*key)`` returns; it is called once per key.

        The arrays have the operator's element counts. A call has some microseconds of overhead.
        """
        plan = self._plans.get(key)
        if plan is None:
            op, shape = self._describe(*key)
            op = stored(op, [*map(dtype_name, arrays)])
            plan = self._plans[key] = CallPlan(KernelCall(op, arrays, shape), kernel(op))
        return plan.run(arrays, None)


class _Weighted(_Layer):
    """A layer with weights and an epilogue."""

    def _fold(
        self, weights: Array, offset: int, bias: Any, batch_norm: Any, epsilon: float, **ends: Any
    ) -> Array:
        """Store the bias for each data dtype, and the epilogue; return the folded weights.

        A normalization is folded into weights and bias (Ioffe & Szegedy, 2015). int8 data are
        shifted by `offset`; the bias compensates.
        """
        kind = dtype_name(weights)
        self._bytes = kind == "int8"
        self._dtypes: tuple[str, ...] = INTEGER
        if not self._bytes:
            self._dtypes = tuple(dict.fromkeys((kind, *FLOAT)))
            weights = weights.astype(np.float32, copy=False)
            bias = None if bias is None else _wide(bias, "bias")
            if batch_norm is not None:
                batch_norm = [_wide(vector, "batch_norm") for vector in batch_norm]
        kind = "int32" if self._bytes else "float32"
        epilogue, vectors = fused_epilogue(
            accumulator=kind, bias=bias, batch_norm=batch_norm, epsilon=epsilon, **ends
        )
        check_shapes(epilogue.inputs(len(weights), (), ""), vectors)
        added: Any = vectors[0] if vectors else np.zeros(len(weights), kind)
        if batch_norm is not None:
            weights, added = _normalized(weights, bias, batch_norm, epsilon)
        if self._bytes:
            moved = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int32) * np.int32(offset)
            self._bias = {"uint8": added, "int8": added - moved}
        else:
            self._bias = dict.fromkeys(FLOAT + STORAGE, added) if vectors else {}
        self._epilogue = replace(epilogue, bias=bool(self._bias), batch_norm=None)
        return weights

    def _operands(
        self, data: Array, weights: Array, added: Array | None, *, shifted: bool = True
    ) -> list[Array]:
        """Return the arrays of the kernel; int8 data are optionally `shifted` to uint8."""
        dtype = dtype_name(data)
        if shifted and dtype == "int8":
            data = data.view(np.uint8) ^ np.uint8(_OFFSET)
        bias = [self._bias[dtype]] if self._bias else []
        return [data, weights, *bias, *([] if added is None else [added])]


def _wide(vector: Any, name: str) -> Array:
    """Convert a floating-point vector to float32."""
    return as_array(vector, name, FLOAT + STORAGE, rank=1).astype(np.float32, copy=False)


def _normalized(
    weights: Array, bias: Array | None, batch_norm: Sequence[Array], epsilon: float
) -> tuple[Array, Array]:
    """Return weights and bias with a normalization folded into them."""
    gamma, beta, mean, variance = batch_norm
    scale = gamma / np.sqrt(variance + np.float32(epsilon))
    shift = ((np.float32(0) if bias is None else bias) - mean) * scale + beta
    return weights * scale.reshape(-1, *[1] * (weights.ndim - 1)), shift


def _sum_dtype(dtype: str) -> str:
    """Return the dtype of results without `clip`, and of a residual."""
    return dtype if dtype in STORAGE else ACCUMULATOR[dtype]


class PackedConv2d(_Weighted):
    """A convolution layer.

    Parameters
    ----------
    weights : array_like
        (O, C / groups, KH, KW); float32, or int8 for int8 and uint8 data. float16 or bfloat16 for
        float32 data and for data of that dtype: half the memory to read, sums in float32.
    bias : array_like, optional
        (O,); int32 for int8 weights.
    batch_norm : tuple of array_like, optional
        (gamma, beta, mean, variance), each (O,), of the following normalization.
    epsilon : float
        Epsilon of the normalization.
    strides, padding, dilation
        As `vtaops.cpu.conv2d`.
    groups : int
        1, or C for a depthwise convolution with one kernel per channel.
    activation : str, optional
        Final activation; see `vtaops.cpu.activation`.
    shift, clip : optional
        For int8 weights: as `vtaops.cpu.conv2d`; with `clip` results are int8, else int32.

    Raises
    ------
    ShapeError
        If shapes or dtypes do not fit, or `groups` is neither 1 nor C (`vtaops.cpu.conv2d`
        supports all).
    """

    def __init__(
        self,
        weights: Any,
        *,
        bias: Any = None,
        batch_norm: Any = None,
        epsilon: float = 1e-5,
        strides: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        activation: str | None = None,
        shift: int | None = None,
        clip: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        kernel = as_array(weights, "weights", WEIGHTS, rank=4)
        self.window = ops.Window.of(kernel.shape[2:], strides, padding, dilation)
        self.out_channels, self.in_channels = kernel.shape[0], kernel.shape[1] * groups
        self.depthwise = groups == self.out_channels and kernel.shape[1] == 1 and groups > 1
        if groups != 1 and not self.depthwise:
            raise ShapeError(
                f"groups is {groups} for weights {kernel.shape}; a layer takes 1, or as many as "
                f"channels with one kernel each: use vtaops.cpu.conv2d"
            )
        self._block = block()
        # Dot products multiply shifted bytes; sums within a channel use them unshifted.
        self._shifted = kernel.dtype == np.int8 and not self.depthwise
        ends = {"activation": activation, "shift": shift, "clip": clip}
        folded = self._fold(kernel, _OFFSET * self._shifted, bias, batch_norm, epsilon, **ends)
        # Few channels do not fill a block: a network's first layer reads NCHW without padding.
        floats = not (self.depthwise or self._bytes)
        self._plain = floats and self.in_channels < self._block
        vectors = Layout(f"C{self._block}c")
        self._bias = {k: vectors.pack(v).reshape(-1) for k, v in self._bias.items()}
        self._inner = self.in_channels if self._plain else self._block
        self._kernel = aligned(self._packed(folded).astype(kernel.dtype, copy=False))

    def _packed(self, kernel: Array) -> Array:
        """Return the blocked weights; for bytes, set the number of data channels per block."""
        size = self._block
        if self.depthwise:
            return Layout(f"CHW{size}c").pack(kernel[:, 0])
        if self._bytes:
            self._inner = min(size, round_up(self.in_channels, 4))
        packed = Layout(f"OIHW{self._inner}i{size}o").pack(kernel)
        if self._bytes:
            packed = packed.reshape(*packed.shape[:4], -1, 4, size).swapaxes(-1, -2)
        return packed

    def __call__(self, data: Any, residual: Packed | None = None) -> Packed:
        """Compute the convolution, adding `residual` before the activation.

        Parameters
        ----------
        data : Packed or array_like
            (N, C, H, W).
        residual : Packed or array_like, optional
            Has the shape of the result.

        Raises
        ------
        ShapeError
            If shapes do not fit.
        """
        if self._plain and not isinstance(data, Packed):
            images = as_array(data, "data", self._dtypes, rank=4)
            channels = images.shape[1]
        else:
            packed = pack(data, self._inner if self._shifted else self._block, self._dtypes)
            images, channels = packed.numpy() if self._plain else packed.blocks, packed.channels
        dtype = dtype_name(images)
        added = None if residual is None else pack(residual, dtypes=(_sum_dtype(dtype),))
        beside, blocks = (None, None) if added is None else (added.shape, added.blocks)
        arrays = self._operands(images, self._kernel, blocks, shifted=self._shifted)
        key = images.shape, dtype, channels, beside
        return Packed(self._run(key, *arrays), self.out_channels)

    def _describe(
        self, images: Shape, dtype: str, channels: int, added: Shape | None
    ) -> tuple[ops.TensorOp, Shape]:
        """Return the operator for images, and the blocked shape of its result."""
        batch, window = images[0], self.window
        epilogue = replace(self._epilogue, residual=added is not None)
        height, width = images[2:4]
        if channels != self.in_channels:
            raise ShapeError(f"data has {channels} channels; the weights take {self.in_channels}")
        rows, columns = window.out_size(height, width)
        result = batch, self.out_channels, rows, columns
        if added not in (None, result):
            raise ShapeError(f"residual has shape {added}; the result has {result}")
        out_blocks = ceil_div(self.out_channels, self._block)
        computed = dtype if self._bytes else "float32"
        shape = batch, out_blocks, rows, columns, self._block
        if self.depthwise:
            data = batch, out_blocks, height, width
            return ops.PackedWindowOp(
                "depthwise", *data, window, self._block, epilogue, computed
            ), shape
        if window == ops.Window((1, 1)):  # treat the image as one long row: no tails at row ends
            height, width = 1, height * width
        data = batch, ceil_div(self.in_channels, self._inner), height, width
        op = ops.PackedConv2dOp(
            *data,
            out_blocks,
            window,
            self._block,
            "uint8" if self._bytes else "float32",
            epilogue,
            self._inner,
            self._plain,
            zero_point=_OFFSET if dtype == "int8" else 0,
            used=0 if self._bytes or self.in_channels % 4 else self.in_channels,
        )
        return op, shape


class PackedDense(_Weighted):
    """A fully connected layer.

    Parameters
    ----------
    weights : array_like
        (N, K); dtypes as for `PackedConv2d`.
    bias, batch_norm, epsilon, activation, shift, clip
        As for `PackedConv2d`, with N elements.

    Raises
    ------
    ShapeError
        If shapes or dtypes do not fit.
    """

    def __init__(
        self,
        weights: Any,
        *,
        bias: Any = None,
        batch_norm: Any = None,
        epsilon: float = 1e-5,
        activation: str | None = None,
        shift: int | None = None,
        clip: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        matrix = as_array(weights, "weights", WEIGHTS, rank=2)
        self.outputs, self.inputs = matrix.shape
        ends = {"activation": activation, "shift": shift, "clip": clip}
        folded = self._fold(matrix, _OFFSET, bias, batch_norm, epsilon, **ends)
        target = CpuTarget.detect()
        self._panel = (target.dot_lanes or target.lanes) if self._bytes else 2 * target.lanes
        layout = Layout(f"NK{self._panel}n" + ("4k" if self._bytes else ""))
        self._matrix = aligned(layout.pack(folded).astype(matrix.dtype, copy=False))

    def __call__(self, data: Any, residual: Any = None) -> Array:
        """Compute ``data @ weights.T`` and the epilogue.

        Parameters
        ----------
        data : array_like
            (..., K).
        residual : array_like, optional
            Has the shape of the result; added before the activation; int32 for int8 weights.

        Raises
        ------
        ShapeError
            If shapes or dtypes do not fit.
        """
        x = as_array(data, "data", self._dtypes)
        if x.ndim == 0 or x.shape[-1] != self.inputs:
            raise ShapeError(f"data has shape {x.shape}; the weights take (..., {self.inputs})")
        dtype, shape = dtype_name(x), (*x.shape[:-1], self.outputs)
        if 0 in shape[:-1]:
            return empty(shape, self._epilogue.result_dtype(_sum_dtype(dtype)))
        added = None
        if residual is not None:
            added = as_array(residual, "residual", (_sum_dtype(dtype),))
            if added.shape != shape:
                raise ShapeError(f"residual has shape {added.shape}; the result has {shape}")
        arrays = self._operands(x, self._matrix, added)
        return self._run((shape, dtype, residual is not None), *arrays)

    def _describe(self, shape: Shape, _: str, added: bool) -> tuple[ops.TensorOp, Shape]:
        kinds = ("uint8", "int8") if self._bytes else ("float32", "float32")
        epilogue, size = replace(self._epilogue, residual=added), (self.outputs, self.inputs)
        return ops.MatmulOp(prod(shape[:-1]), *size, *kinds, True, epilogue, self._panel), shape


class _Pool(_Layer):
    kind = ""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        *,
        strides: int | tuple[int, int] | None = None,
        padding: int | tuple[int, ...] = 0,
    ) -> None:
        super().__init__()
        self.window = ops.Window.of(kernel_size, strides, padding)
        self.window.check_for_pooling()

    def __call__(self, data: Any) -> Packed:
        """Pool (N, C, H, W) data, packed or not."""
        packed = pack(data, dtypes=FLOAT + STORAGE)
        key = packed.blocks.shape, packed.blocks.dtype
        return Packed(self._run(key, packed.blocks), packed.channels)

    def _describe(self, shape: Shape, _: Any) -> tuple[ops.TensorOp, Shape]:
        batch, blocks, height, width, size = shape
        window = self._window(height, width)
        op = ops.PackedWindowOp(self.kind, batch, blocks, height, width, window, size)
        return op, op.output.shape

    def _window(self, height: int, width: int) -> ops.Window:
        return self.window


class PackedMaxPool2d(_Pool):
    """The maximum over windows; parameters as `vtaops.cpu.max_pool2d`."""

    kind = "max"


class PackedAvgPool2d(_Pool):
    """The average over padded windows; parameters as `vtaops.cpu.avg_pool2d`."""

    kind = "avg"


class PackedGlobalAvgPool2d(_Pool):
    """The average of each image: (N, C, H, W) to (N, C, 1, 1)."""

    kind = "avg"

    def __init__(self) -> None:
        super().__init__(1)

    def _window(self, height: int, width: int) -> ops.Window:
        return ops.Window((height, width))


class PackedAdd:
    """The sum of two tensors of equal shape."""

    def __call__(self, a: Any, b: Any) -> Packed:
        """Return ``a + b``; each may be packed or not."""
        left = pack(a, dtypes=FLOAT + STORAGE)
        right = pack(b, dtypes=(dtype_name(left.blocks),))
        if left.shape != right.shape:
            raise ShapeError(f"shapes {left.shape} and {right.shape} differ; they must be equal")
        return Packed(cpu.add(left.blocks, right.blocks), left.channels)
