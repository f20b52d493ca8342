"""Layers that pack their weights once: for networks that run more often than they are built.

Between layers data are `Packed`, NCHW[b]c with b the lanes of a vector register: a layer takes
them, or NCHW arrays, and gives them, so that nothing is transposed inside a network. Normalisations
are folded into weights and bias.

    conv = layers.PackedConv2d(weights, batch_norm=norm, padding=1, activation="relu")
    y = layers.PackedGlobalAvgPool2d()(conv(image)).numpy()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vtaops.cpu.kernel import kernel
from vtaops.cpu.target import CpuTarget
from vtaops.errors import ShapeError
from vtaops.kernels.arrays import (
    Array,
    aligned,
    allocator,
    as_array,
    dtype_name,
    dtype_of,
    empty,
)
from vtaops.kernels.calls.arguments import ANY, FLOAT, INTEGER, tail
from vtaops.kernels.calls.convolution import window_of
from vtaops.kernels.ops import (
    BroadcastOp,
    Epilogue,
    MatmulOp,
    PackedConv2dOp,
    PackedWindowOp,
    SlidingWindow,
    TensorOp,
)
from vtaops.kernels.ops.common import ACCUMULATOR
from vtaops.kernels.ops.storage import STORAGE, StoredOp
from vtaops.layout import Layout
from vtaops.shapes import as_pair

Shape = tuple[int, ...]

WEIGHTS = ("float32", "int8", *STORAGE)
"""What layers take as weights."""

_OFFSET = 128
"""What is added to int8 data, since the instruction multiplies unsigned by signed bytes."""


@dataclass(frozen=True)
class Packed:
    """Images between layers.

    Attributes
    ----------
    blocks : numpy.ndarray
        (batch, blocks, rows, columns, block), float32, float16, bfloat16, or of quantized layers
        int8, uint8 or int32; channels beyond `channels` are anything. Copied if a kernel could not
        read it as it is.
    channels : int
        Those that mean something.

    Raises
    ------
    ShapeError
        If `blocks` is no array of five axes.
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
    """Return NCHW images as layers hand them on; what is packed already stays as it is.

    Parameters
    ----------
    data : Packed or array_like
        (N, C, H, W).
    size : int, optional
        Channels of a block; by default `block`.
    dtypes : tuple of str
        What the elements may be.

    Raises
    ------
    ShapeError
        If they are no NCHW images of such a dtype.
    """
    size = size or block()
    if isinstance(data, Packed):
        if data.blocks.shape[-1] == size and dtype_name(data.blocks) in dtypes:
            return data
        data = data.numpy()
    images = as_array(data, "data", dtypes, rank=4)
    return Packed(Layout(f"NCHW{size}c").pack(images), images.shape[1])


def block() -> int:
    """Return the channels of a block on this CPU: the lanes of a vector register."""
    return CpuTarget.detect().lanes


class _Layer:
    """A kernel for each shape that came along, and its packed weights."""

    def __init__(self) -> None:
        self._kernels: dict[Any, tuple[Any, ...]] = {}

    def _run(
        self, key: Any, describe: Callable[[], tuple[TensorOp, Shape]], arrays: tuple[Array, ...]
    ) -> Array:
        """Run an operator on arrays that have as many elements as its inputs.

        `key` names the operator; `describe` checks the arguments, once, and returns it with the
        shape in which its result is wanted. A call takes some microseconds beside its kernel.
        """
        found = self._kernels.get(key)
        if found is None:
            op, shape = describe()
            op = _stored(op, arrays)
            output = op.output
            views = [
                (at, spec.shape)
                for at, (spec, array) in enumerate(zip(op.inputs, arrays, strict=True))
                if spec.shape != array.shape
            ]
            view = None if shape == output.shape else output.shape
            allocate = allocator(output.nbytes)
            kind = dtype_of(output.dtype)
            found = self._kernels[key] = kernel(op), views, allocate, shape, kind, view
        compiled, views, allocate, shape, kind, view = found
        result: Array = allocate(shape, kind)
        if views:
            shaped = list(arrays)
            for at, needed in views:
                shaped[at] = shaped[at].reshape(needed)
            arrays = tuple(shaped)
        compiled.run(*arrays, result if view is None else result.reshape(view))
        return result


def _stored(op: TensorOp, arrays: tuple[Array, ...]) -> TensorOp:
    """Return a float32 operator as one between the arrays, of which some may have 16 bits.

    The result is stored as the first is, the data.
    """
    kinds = {spec.name: dtype_name(a) for spec, a in zip(op.inputs, arrays, strict=True)}
    kinds[op.output.name] = dtype_name(arrays[0])
    names = tuple(name for name, kind in kinds.items() if kind in STORAGE)
    return StoredOp(op, kinds[names[0]], names) if names else op


def _sum_dtype(dtype: str) -> str:
    """Return the dtype of results without `clip`, and of what is added to them."""
    return dtype if dtype in STORAGE else ACCUMULATOR[dtype]


class PackedConv2d(_Layer):
    """A convolution with its weights.

    Parameters
    ----------
    weights : array_like
        (O, C / groups, KH, KW); float32, or int8 for int8 and uint8 data. float16 or bfloat16 for
        float32 data and for data of that dtype: half the memory to read, sums in float32.
    bias : array_like, optional
        (O,); int32 for int8 weights.
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
    shift, clip : optional
        Of int8 weights: as `vtaops.cpu.conv2d`; with `clip` results are int8, else int32.

    Raises
    ------
    ShapeError
        If shapes or dtypes do not fit, or `groups` is neither 1 nor C (`vtaops.cpu.conv2d` has
        them all).
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
        self.window = window_of(kernel.shape[2:], strides, padding, dilation)
        self.out_channels, self.in_channels = kernel.shape[0], kernel.shape[1] * groups
        self.depthwise = groups == self.out_channels and kernel.shape[1] == 1 and groups > 1
        self._bytes = kernel.dtype == np.int8
        self._dtypes = _data_dtypes(kernel)
        if groups != 1 and not self.depthwise:
            raise ShapeError(
                f"groups is {groups} for weights {kernel.shape}; a layer takes 1, or as many as "
                f"channels with one kernel each: use vtaops.cpu.conv2d"
            )
        size = self._block = block()
        # Few channels are no block: the first layer of a network reads NCHW and pads no channel.
        self._plain = not (self.depthwise or self._bytes) and self.in_channels < size
        # Dot products multiply shifted bytes; sums within a channel take them as they are.
        self._shifted = self._bytes and not self.depthwise
        offset = _OFFSET if self._shifted else 0
        stored = kernel.dtype
        kernel, shifts = _ends(kernel, bias, batch_norm, epsilon, (1, 2, 3), offset)
        self._bias = {k: Layout(f"C{size}c").pack(v).reshape(-1) for k, v in shifts.items()}
        self._end = _end(self._bytes, bool(shifts), activation, shift, clip)
        self._inner, self._gathered = self.in_channels if self._plain else size, 1
        if self.depthwise:
            packed = Layout(f"CHW{size}c").pack(kernel[:, 0])
        elif self._bytes:
            self._inner = min(size, -(-self.in_channels // 4) * 4)
            if CpuTarget.detect().amx and self.in_channels % (4 * size) == 0:
                self._gathered = 4  # rows of a tile register
            inputs = self._gathered * self._inner
            packed = Layout(f"OIHW{inputs}i{size}o").pack(kernel)
            packed = packed.reshape(*packed.shape[:4], -1, 4, size).swapaxes(-1, -2)
        else:
            packed = Layout(f"OIHW{self._inner}i{size}o").pack(kernel)
        self._kernel = aligned(packed.astype(stored, copy=False))

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
            images = as_array(data, "data", self._dtypes, rank=4)
            channels = images.shape[1]
        else:
            packed = pack(data, self._inner if self._shifted else self._block, self._dtypes)
            images, channels = packed.numpy() if self._plain else packed.blocks, packed.channels
        dtype = dtype_name(images)
        added = None if residual is None else pack(residual, dtypes=(_sum_dtype(dtype),))
        moved = self._shifted and dtype == "int8"
        arrays = [_unsigned(images) if moved else images, self._kernel]
        arrays += [self._bias[dtype]] if self._bias else []
        beside = None
        if added is not None:
            arrays, beside = [*arrays, added.blocks], added.shape

        def describe() -> tuple[TensorOp, Shape]:
            return self._describe(images.shape, dtype, channels, beside)

        key = images.shape, dtype, channels, beside
        return Packed(self._run(key, describe, tuple(arrays)), self.out_channels)

    def _describe(
        self, images: Shape, dtype: str, channels: int, added: Shape | None
    ) -> tuple[TensorOp, Shape]:
        """Return the operator for images, and the shape of the blocks of its result."""
        batch, window, end = images[0], self.window, replace(self._end, residual=added is not None)
        height, width = images[2:4]
        if channels != self.in_channels:
            raise ShapeError(f"data has {channels} channels; the weights take {self.in_channels}")
        rows, columns = window.output(height, width)
        if added not in (None, (batch, self.out_channels, rows, columns)):
            raise ShapeError(
                f"residual has shape {added}; the result has "
                f"{(batch, self.out_channels, rows, columns)}"
            )
        out_blocks = -(-self.out_channels // self._block)
        computed = dtype if self._bytes else "float32"
        shape = batch, out_blocks, rows, columns, self._block
        if self.depthwise:
            return PackedWindowOp(
                "depthwise", batch, out_blocks, height, width, window, self._block, end, computed
            ), shape
        if window == SlidingWindow((1, 1)):  # the image as one long row: no tails at the ends
            height, width = 1, height * width
        return PackedConv2dOp(
            batch,
            -(-self.in_channels // self._inner),
            height,
            width,
            out_blocks,
            window,
            self._block,
            "uint8" if self._bytes else "float32",
            end,
            self._inner,
            self._plain,
            zero_point=_OFFSET if dtype == "int8" else 0,
            gathered=self._gathered,
            used=0 if self._bytes or self.in_channels % 4 else self.in_channels,
        ), shape


class PackedDense(_Layer):
    """A fully connected layer with its weights.

    Parameters
    ----------
    weights : array_like
        (N, K); dtypes as of `PackedConv2d`.
    bias, batch_norm, epsilon, activation, shift, clip
        As `PackedConv2d`, of N elements.

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
        self._bytes, self._dtypes = matrix.dtype == np.int8, _data_dtypes(matrix)
        stored = matrix.dtype
        matrix, self._bias = _ends(matrix, bias, batch_norm, epsilon, (1,))
        self._end = _end(self._bytes, bool(self._bias), activation, shift, clip)
        target = CpuTarget.detect()
        if self._bytes:
            self._panel = target.dot_lanes or target.lanes
            layout = f"NK{self._panel}n4k"
        else:
            self._panel = 2 * target.lanes
            layout = f"NK{self._panel}n"
        self._matrix = aligned(Layout(layout).pack(matrix).astype(stored, copy=False))

    def __call__(self, data: Any, residual: Any = None) -> Array:
        """Return ``data @ weights.T``, with what follows it.

        Parameters
        ----------
        data : array_like
            (..., K).
        residual : array_like, optional
            Of the shape of the result, added before the activation; int32 for int8 weights.

        Raises
        ------
        ShapeError
            If shapes or dtypes do not fit.
        """
        x = as_array(data, "data", self._dtypes)
        if x.ndim == 0 or x.shape[-1] != self.inputs:
            raise ShapeError(f"data has shape {x.shape}; the weights take (..., {self.inputs})")
        dtype, shape = dtype_name(x), (*x.shape[:-1], self.outputs)
        rows = x.size // self.inputs
        if rows == 0:
            return empty(shape, self._end.result_dtype(_sum_dtype(dtype)))
        arrays = [_unsigned(x) if dtype == "int8" else x, self._matrix]
        arrays += [self._bias[dtype]] if self._bias else []
        if residual is not None:
            added = as_array(residual, "residual", (_sum_dtype(dtype),))
            if added.shape != shape:
                raise ShapeError(f"residual has shape {added.shape}; the result has {shape}")
            arrays.append(added)

        def describe() -> tuple[TensorOp, Shape]:
            kinds = ("uint8", "int8") if self._bytes else ("float32", "float32")
            end = replace(self._end, residual=residual is not None)
            op = MatmulOp(rows, self.outputs, self.inputs, *kinds, True, end, self._panel)
            return op, shape

        return self._run((shape, dtype, residual is None), describe, tuple(arrays))


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
        packed = pack(data, dtypes=FLOAT + STORAGE)
        batch, blocks, height, width, size = packed.blocks.shape

        def describe() -> tuple[TensorOp, Shape]:
            window = self._window(height, width)
            op = PackedWindowOp(self.kind, batch, blocks, height, width, window, size)
            return op, op.output.shape

        key = packed.blocks.shape, packed.blocks.dtype
        return Packed(self._run(key, describe, (packed.blocks,)), packed.channels)

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
        left = pack(a, dtypes=FLOAT + STORAGE)
        right = pack(b, dtypes=(dtype_name(left.blocks),))
        if left.shape != right.shape:
            raise ShapeError(f"shapes {left.shape} and {right.shape} differ; they must be equal")

        def describe() -> tuple[TensorOp, Shape]:
            size = (left.blocks.size,)
            return BroadcastOp("add", size, size), left.blocks.shape

        key = left.blocks.shape, left.blocks.dtype
        sums = self._run(key, describe, (left.blocks, right.blocks))
        return Packed(sums, left.channels)


def _ends(
    weights: Array,
    bias: Any,
    batch_norm: Any,
    epsilon: float,
    over: tuple[int, ...],
    offset: int = _OFFSET,
) -> tuple[Array, dict[str, Array]]:
    """Return the weights, and what is added to their sums for data of each dtype, if anything.

    A normalisation is folded into them (Ioffe & Szegedy, 2015). int8 data are shifted by `offset`,
    and the bias takes off what that adds; `over` are the axes of the sums.
    """
    if weights.dtype == np.int8:
        if batch_norm is not None:
            raise ShapeError("batch_norm needs float32 weights; int8 has shift and clip")
        given = np.zeros(weights.shape[:1], np.int32) if bias is None else bias
        plain = as_array(given, "bias", ("int32",), rank=1)
        _check_vectors(weights, [plain])
        moved = weights.sum(axis=over, dtype=np.int32) * np.int32(offset)
        return weights, {"uint8": plain, "int8": plain - moved}
    if batch_norm is not None and len(batch_norm) != 4:
        raise ShapeError(
            f"batch_norm has {len(batch_norm)} vectors; give gamma, beta, mean, variance"
        )
    given = [] if bias is None else [bias]
    given += [] if batch_norm is None else list(batch_norm)
    kinds = FLOAT + STORAGE
    vectors: list[Any] = [
        as_array(value, "bias or batch_norm", kinds, rank=1).astype(np.float32, copy=False)
        for value in given
    ]
    weights = weights.astype(np.float32, copy=False)
    _check_vectors(weights, vectors)
    if batch_norm is None:
        return weights, dict.fromkeys(kinds, vectors[0]) if vectors else {}
    gamma, beta, mean, variance = vectors[-4:]
    scale = gamma / np.sqrt(variance + np.float32(epsilon))
    shift: Any = vectors[0] if bias is not None else np.float32(0)
    added = (shift - mean) * scale + beta
    return weights * np.expand_dims(scale, over), dict.fromkeys(kinds, added)


def _data_dtypes(weights: Array) -> tuple[str, ...]:
    """Return what data weights meet."""
    kind = dtype_name(weights)
    return INTEGER if kind == "int8" else tuple(dict.fromkeys((kind, *FLOAT)))


def _check_vectors(weights: Array, vectors: list[Array]) -> None:
    for vector in vectors:
        if vector.shape != weights.shape[:1]:
            raise ShapeError(f"a vector has shape {vector.shape}; give {weights.shape[:1]}")


def _end(
    integer: bool,
    bias: bool,
    activation: str | None,
    shift: int | None,
    clip: tuple[int, int] | None,
) -> Epilogue:
    """Return what follows the sums, checked as the arguments of a call are."""
    accumulator = "int32" if integer else "float32"
    checked = tail(accumulator=accumulator, activation=activation, shift=shift, clip=clip)
    return replace(checked.epilogue, bias=bias)


def _unsigned(data: Array) -> Array:
    """Return int8 as uint8, shifted by 128."""
    shifted: Array = data.view(np.uint8) ^ np.uint8(_OFFSET)
    return shifted
