"""Layers that pack their weights once: for networks that run more often than they are built.

Between layers data are `Packed`, NCHW[b]c with b the lanes of a vector register: a layer takes
them, or NCHW arrays, and gives them, so that nothing is transposed inside a network. Normalisations
are folded into weights and bias.

    conv = layers.PackedConv2d(weights, batch_norm=norm, padding=1, activation="relu")
    y = layers.PackedGlobalAvgPool2d()(conv(image)).numpy()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.cpu.kernel import kernel
from vtaops.cpu.target import CpuTarget
from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, empty
from vtaops.kernels.calls.arguments import FLOAT
from vtaops.kernels.calls.convolution import window_of
from vtaops.kernels.ops import (
    BroadcastOp,
    Epilogue,
    PackedConv2dOp,
    PackedWindowOp,
    SlidingWindow,
    TensorOp,
)
from vtaops.layout import Layout
from vtaops.shapes import as_pair


@dataclass(frozen=True)
class Packed:
    """Images between layers.

    Attributes
    ----------
    blocks : numpy.ndarray
        float32 (batch, blocks, rows, columns, block); channels beyond `channels` are anything.
    channels : int
        Those that mean something.
    """

    blocks: Array
    channels: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, channels, rows, columns)."""
        batch, _, rows, columns, _ = self.blocks.shape
        return batch, self.channels, rows, columns

    def numpy(self) -> Array:
        """Return the NCHW array."""
        batch, _, rows, columns, size = self.blocks.shape
        if rows == columns == 1:
            return self.blocks.reshape(batch, -1, 1, 1)[:, : self.channels]
        layout = Layout(f"NCHW{size}c")
        return layout.unpack(self.blocks, self.shape)


def pack(data: Any) -> Packed:
    """Return NCHW images as layers hand them on; what is packed already stays as it is.

    Raises
    ------
    ShapeError
        If they are no float32 NCHW images.
    """
    if isinstance(data, Packed):
        return data
    images = as_array(data, "data", FLOAT, rank=4)
    return Packed(Layout(f"NCHW{block()}c").pack(images), images.shape[1])


def block() -> int:
    """Return the channels of a block on this CPU: the lanes of a vector register."""
    return CpuTarget.detect().lanes


class _Layer:
    """A kernel for each shape that came along, and its packed weights."""

    def __init__(self) -> None:
        self._kernels: dict[Any, tuple[Callable[..., Any], tuple[int, ...], Any]] = {}

    def _run(self, key: Any, describe: Callable[[], TensorOp], arrays: tuple[Array, ...]) -> Array:
        """Run the operator that `describe` returns, which `key` names; its shape is the result's.

        The arrays need only have the elements of its inputs.
        """
        found = self._kernels.get(key)
        if found is None:
            op = describe()
            shapes = [spec.shape for spec in op.inputs]
            found = self._kernels[key] = kernel(op).run, op.output.shape, shapes
        run, shape, shapes = found
        result = empty(shape, "float32")
        run(*(a.reshape(s) for a, s in zip(arrays, shapes, strict=True)), result)
        return result


class PackedConv2d(_Layer):
    """A convolution with its weights.

    Parameters
    ----------
    weights : array_like
        float32 (O, C / groups, KH, KW).
    bias : array_like, optional
        (O,).
    batch_norm : tuple of array_like, optional
        (gamma, beta, mean, variance), each (O,), of the normalisation that follows.
    epsilon : float
        Of the normalisation.
    strides, padding, dilation
        As `vtaops.cpu.conv2d`.
    groups : int
        1, or C for a depthwise convolution with one kernel for each channel.
    activation : str, optional
        What follows; see `vtaops.cpu.activation`.

    Raises
    ------
    ShapeError
        If shapes do not fit, or `groups` is neither 1 nor C (`vtaops.cpu.conv2d` has them all).
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
    ) -> None:
        super().__init__()
        kernel = as_array(weights, "weights", FLOAT, rank=4)
        self.window = window_of(kernel.shape[2:], strides, padding, dilation)
        self.out_channels, self.in_channels = kernel.shape[0], kernel.shape[1] * groups
        self.depthwise = groups == self.out_channels and kernel.shape[1] == 1 and groups > 1
        if groups != 1 and not self.depthwise:
            raise ShapeError(
                f"groups is {groups} for weights {kernel.shape}; a layer takes 1, or as many "
                f"as channels with one kernel each: use vtaops.cpu.conv2d"
            )
        kernel, shift = _folded(kernel, bias, batch_norm, epsilon)
        size = block()
        self._block = size
        self._bias = None if shift is None else Layout(f"C{size}c").pack(shift).reshape(-1)
        self._activation = activation
        self._epilogue(False)
        # Few channels are no block: the first layer of a network reads NCHW and pads no channel.
        self._plain = not self.depthwise and self.in_channels < size
        if self.depthwise:
            order = Layout(f"CHW{size}c")
            self._kernel = order.pack(kernel[:, 0])
        else:
            inner = self.in_channels if self._plain else size
            self._kernel = Layout(f"OIHW{inner}i{size}o").pack(kernel)

    def __call__(self, data: Any, residual: Packed | None = None) -> Packed:
        """Return the convolution, with `residual` added before the activation.

        Parameters
        ----------
        data : Packed or array_like
            (N, C, H, W).
        residual : Packed or array_like, optional
            Of the shape of the result.

        Raises
        ------
        ShapeError
            If shapes do not fit.
        """
        if self._plain and not isinstance(data, Packed):
            images = as_array(data, "data", FLOAT, rank=4)
            batch, channels, height, width = images.shape
        else:
            packed = pack(data)
            batch, channels, height, width = packed.shape
            images = packed.numpy() if self._plain else packed.blocks
        if channels != self.in_channels:
            raise ShapeError(f"data has {channels} channels; the weights take {self.in_channels}")
        added = None if residual is None else pack(residual)
        shape = (batch, self.out_channels, *self.window.output(height, width))
        if added is not None and added.shape != shape:
            raise ShapeError(f"residual has shape {added.shape}; the result has {shape}")
        arrays = [images, self._kernel]
        arrays += [] if self._bias is None else [self._bias]
        arrays += [] if added is None else [added.blocks]
        size = (batch, height, width)
        key = (size, added is not None)
        blocks = self._run(key, lambda: self._op(size, added is not None), tuple(arrays))
        return Packed(blocks.reshape(batch, -1, *shape[2:], self._block), self.out_channels)

    def _op(self, size: tuple[int, int, int], residual: bool) -> TensorOp:
        batch, height, width = size
        end, out_blocks = self._epilogue(residual), -(-self.out_channels // self._block)
        if self.depthwise:
            return PackedWindowOp(
                "depthwise", batch, out_blocks, height, width, self.window, self._block, end
            )
        window = self.window
        if window == SlidingWindow((1, 1)):  # the image as one long row: no tails at the ends
            height, width = 1, height * width
        inner = self.in_channels if self._plain else self._block
        return PackedConv2dOp(
            batch,
            -(-self.in_channels // inner),
            height,
            width,
            out_blocks,
            window,
            self._block,
            "float32",
            end,
            inner,
            self._plain,
        )

    def _epilogue(self, residual: bool) -> Epilogue:
        return Epilogue(bias=self._bias is not None, residual=residual, activation=self._activation)


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
        size = as_pair("kernel_size", kernel_size)
        self.window = window_of(size, size if strides is None else strides, padding, 1)
        if any(2 * p > size[axis % 2] for axis, p in enumerate(self.window.padding)):
            raise ShapeError(
                f"padding is {self.window.padding}; pooling allows at most half the window {size}"
            )

    def __call__(self, data: Any) -> Packed:
        """Return the pooling of (N, C, H, W) data, packed or not."""
        packed = pack(data)
        batch, blocks, height, width, size = packed.blocks.shape

        def describe() -> TensorOp:
            window = self._window(height, width)
            return PackedWindowOp(self.kind, batch, blocks, height, width, window, size)

        return Packed(self._run(packed.blocks.shape, describe, (packed.blocks,)), packed.channels)

    def _window(self, height: int, width: int) -> SlidingWindow:
        return self.window


class PackedMaxPool2d(_Pool):
    """The maximum over windows; parameters as `vtaops.cpu.max_pool2d`."""

    kind = "max"


class PackedAvgPool2d(_Pool):
    """The average over windows with their padding; parameters as `vtaops.cpu.avg_pool2d`."""

    kind = "avg"


class PackedGlobalAvgPool2d(_Pool):
    """The average of each image: (N, C, H, W) to (N, C, 1, 1)."""

    kind = "avg"

    def __init__(self) -> None:
        super().__init__(1)

    def _window(self, height: int, width: int) -> SlidingWindow:
        return SlidingWindow((height, width))


class PackedAdd(_Layer):
    """The sum of two tensors of one shape."""

    def __call__(self, a: Any, b: Any) -> Packed:
        """Return ``a + b``, each packed or not."""
        left, right = pack(a), pack(b)
        if left.shape != right.shape:
            raise ShapeError(f"shapes {left.shape} and {right.shape} differ; they must be equal")
        size = (left.blocks.size,)
        sums = self._run(size, lambda: BroadcastOp("add", size, size), (left.blocks, right.blocks))
        return Packed(sums.reshape(left.blocks.shape), left.channels)


def _folded(
    kernel: Array, bias: Any, batch_norm: Any, epsilon: float
) -> tuple[Array, Array | None]:
    """Return weights and bias with a normalisation folded into them (Ioffe & Szegedy, 2015)."""
    given = [] if bias is None else [bias]
    given += [] if batch_norm is None else list(batch_norm)
    if batch_norm is not None and len(batch_norm) != 4:
        raise ShapeError(
            f"batch_norm has {len(batch_norm)} vectors; give gamma, beta, mean, variance"
        )
    vectors = [as_array(value, "bias or batch_norm", FLOAT, rank=1) for value in given]
    for vector in vectors:
        if vector.shape != kernel.shape[:1]:
            raise ShapeError(f"a vector has shape {vector.shape}; give {kernel.shape[:1]}")
    if batch_norm is None:
        return kernel, vectors[0] if vectors else None
    gamma, beta, mean, variance = vectors[-4:]
    scale = gamma / np.sqrt(variance + np.float32(epsilon))
    shift: Any = vectors[0] if bias is not None else np.float32(0)
    return kernel * scale[:, None, None, None], (shift - mean) * scale + beta
