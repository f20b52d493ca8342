"""Read TFLite files, int8, uint8 or float: one rule for each operator, named as in the file.

Images are NHWC in a file. Every tensor of rank 4 has up to two forms, as written and as an NCHW
image; one is converted to the other on demand. Convolutions, pools and resizes read images,
operators whose axes can be renamed follow their operands, and all others read tensors as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.shapes import Array, Ints, ceil_div
from vtaops.frontends.grids import EIGHT_BITS
from vtaops.frontends.tflite_files import (
    CORRUPT,
    DTYPES,
    File,
    TfliteOperator,
    TfliteTensor,
    read_file,
)
from vtaops.frontends.values import (
    BEFORE_ROUNDING,
    NetworkBuilder,
    NotTranslated,
    OnnxNetwork,
    OnnxNode,
    Value,
)

TO_IMAGE, FROM_IMAGE = (0, 3, 1, 2), (0, 2, 3, 1)

UNJUDGED = "SUM "
"""The operator that LiteRT 2.3 gets wrong: sums of int8 with negative values."""


def read_tflite(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> OnnxNetwork:
    """Return the network of a file.

    Parameters
    ----------
    path
        Path of the file.
    shapes
        Shapes of inputs, by name. A first dimension that is neither static nor given is 1.

    Raises
    ------
    ModelError
        If the file does not exist, is not a TFLite model, or is inconsistent.
    UnsupportedError
        If it has an operator or a type of numbers that cannot be read; the message names it.
    """
    with raising(ModelError, f"{path} is damaged", *CORRUPT):
        return _Reader(read_file(path), shapes or {}).network()


def open_shapes(path: Path) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the inputs of a file; None for dimensions that a caller may choose."""
    shapes = {tensor.name: tensor.signature or tensor.shape for tensor in read_file(path).inputs}
    return {n: tuple(d if d >= 0 else None for d in shape) for n, shape in shapes.items()}


def tensors_of(path: Path) -> dict[str, tuple[int, bool, str]]:
    """Return the tensors of a file that its graph computes, by their names there.

    Each has its number, whether the graph has it as an NCHW image, and its name in the file, which
    is empty where LiteRT does not compute what TFLite means.
    """
    reader = _Reader(read_file(path), {})
    reader.network()
    return reader.names


class _Reader:
    """The forms of all tensors: as written (False), and as an image (True)."""

    def __init__(self, file: File, shapes: Mapping[str, Sequence[int]]) -> None:
        self.file, self.builder = file, NetworkBuilder()
        self.forms: dict[TfliteTensor, dict[bool, Value]] = {}
        self.names: dict[str, tuple[int, bool, str]] = {}
        names = [tensor.name for tensor in file.inputs]
        if unknown := sorted(set(shapes) - set(names)):
            raise ModelError(f"{unknown[0]!r} is not an input of the model; it has {names}")
        for tensor in file.inputs:
            _check(tensor)
            shape = _static(tensor, shapes.get(tensor.name, tensor.shape))
            self.forms[tensor] = {False: self.builder.input(tensor.name, shape, tensor.dtype)}

    def network(self) -> OnnxNetwork:
        """Read the operators that the outputs need."""
        needed, operators = {*self.file.outputs}, []
        for operator in reversed(self.file.operators):
            if needed.intersection(operator.outputs):
                operators.append(operator)
                needed.update(operator.inputs)
        for operator in reversed(operators):
            _Call(self, operator).run()
        outputs = [self.form(tensor, False) for tensor in self.file.outputs]
        return self.builder.network(outputs, tflite=True)

    def form(self, tensor: TfliteTensor, image: bool) -> Value:
        """Return a tensor in one of its forms: quantised as integers."""
        forms = self.forms.setdefault(tensor, {})
        if image not in forms and tensor.data is not None:
            array = _as_image(tensor.data) if image else tensor.data
            forms[image] = self.builder.constant(array, tensor.name)
        elif image not in forms:
            axes, label = TO_IMAGE if image else FROM_IMAGE, f"Transpose {tensor.name!r}"
            real = self.real(tensor, forms[not image], label)
            turned = self.builder.add("Transpose", real, name=label, label=label, perm=axes)
            forms[image] = self.rounded(tensor, turned, image, label)
        return forms[image]

    def real(self, tensor: TfliteTensor, form: Value, label: str) -> Value:
        """Return a form of a tensor, if the tensor is quantised as floating-point numbers."""
        if tensor.grid is None:
            return form
        args, name = (form, *map(self.builder.constant, tensor.grid)), f"{tensor.name}:real"
        return self.builder.add("DequantizeLinear", *args, name=name, label=label, axis=tensor.axis)

    def rounded(self, tensor: TfliteTensor, value: Value, image: bool, label: str) -> Value:
        """Return a result as a form of a tensor: rounded to its grid, or in its dtype.

        An output of the network has the name of its tensor. So has the first form of all others.
        """
        second = image if tensor in self.file.outputs else tensor in self.forms
        name = tensor.name + (":nchw" if image else ":nhwc") * second
        exact = value.dtype == tensor.dtype
        if value.node.label == label:  # else it is passed through
            self.builder.rename(value, name if exact else name + BEFORE_ROUNDING)
        if tensor.grid is not None and value.dtype == "float32":
            grid = map(self.builder.constant, tensor.grid)
            value = self.builder.add("QuantizeLinear", value, *grid, name=name, label=label)
        elif not exact:
            to = _onnx_type(tensor.dtype)
            value = self.builder.add("Cast", value, name=name, label=label, to=to)
        known = "" if label.startswith(UNJUDGED) else tensor.name
        self.names[value.name] = tensor.number, image, known
        return value


def _check(tensor: TfliteTensor) -> None:
    """Raise UnsupportedError if vtaops does not read the type of a tensor's numbers."""
    if not tensor.dtype:
        raise UnsupportedError(f"the tensor {tensor.name!r} has a type that vtaops cannot read")
    if tensor.grid is None or tensor.data is not None:
        return
    if tensor.dtype not in EIGHT_BITS or tensor.grid[0].ndim:
        raise UnsupportedError(
            f"the activation {tensor.name!r} is {tensor.dtype} with {tensor.grid[0].size} scales;"
            " vtaops reads int8 and uint8 with one: convert the model anew"
        )


class _Call:
    """An operator of the file: what it reads, and where its results go.

    Attributes
    ----------
    image
        Whether operands are read, and results written, as images.
    """

    def __init__(self, reader: _Reader, operator: TfliteOperator) -> None:
        self.reader, self.operator, self.label = reader, operator, operator.label
        self.inputs, self.option, self.image = operator.inputs, operator.option, False

    def run(self) -> None:
        """Build the operator."""
        if self.operator.kind not in RULES:
            raise UnsupportedError(
                f"{self.label} is an operator that vtaops cannot read; docs/supported.md "
                "lists those that it can: end the model before it, or leave it out"
            )
        for tensor in (*self.inputs, *self.operator.outputs):
            _check(tensor)
        with raising(ModelError, f"{self.label} is malformed", *CORRUPT, NotTranslated):
            reads_images, rule = RULES[self.operator.kind]
            self.image = reads_images(self)
            made = rule(self)
            values = [made] if isinstance(made, Value) else made
            for tensor, value in zip(self.operator.outputs, values, strict=True):
                self._place(tensor, value)

    def _place(self, tensor: TfliteTensor, value: Value) -> None:
        """Make a value, behind the fused activation, a tensor of the file."""
        if hasattr(self.operator.table, "FusedActivationFunction"):
            function = self.option("FusedActivationFunction")
            if function not in ACTIVATIONS:
                raise UnsupportedError(f"{self.label} has the fused activation {function}")
            value = ACTIVATIONS[function](self, value)
        image = self.image and len(value.static_shape) == 4
        form = self.reader.rounded(tensor, value, image, self.label)
        self.reader.forms[tensor] = {image: form}

    # ------------------------------------------------------------------------ operands

    def raw(self, k: int, written: bool = False) -> Value:
        """Return operand `k` in the operator's form, or as written: quantised as integers."""
        return self.reader.form(self.inputs[k], self.image and not written)

    def real(self, k: int, written: bool = False) -> Value:
        """Return operand `k` as `raw` does, but as floating-point numbers if it is quantised."""
        return self.reader.real(self.inputs[k], self.raw(k, written), self.label)

    def reals(self) -> list[Value]:
        """Return all operands as `real` does."""
        return [self.real(k) for k in range(len(self.inputs))]

    def ints(self, k: int) -> Ints:
        """Return the elements of operand `k`, which are integers.

        Raises
        ------
        UnsupportedError
            If they depend on an input.
        """
        array = self.raw(k, written=True).array
        if array is None:
            name = self.inputs[k].name
            raise UnsupportedError(f"{self.label} reads {name!r}, which must be constant")
        return array.astype(np.int64, casting="safe").ravel()

    def axis(self, axis: int) -> int:
        """Return an axis of the form that is read."""
        return FROM_IMAGE[axis] if self.image else int(axis)

    @property
    def rank(self) -> int:
        """The highest rank of an operand."""
        return max(len(tensor.shape) for tensor in self.inputs)

    def weight(self, k: int, axes: Sequence[int]) -> Value:
        """Return operand `k` with its axes in another order."""
        return self.emit("Transpose", self.real(k, written=True), perm=axes)

    def bias(self, k: int, x: int, weight: int) -> Value | None:
        """Return operand `k`; integers count in steps of the products, whatever the file says."""
        if len(self.inputs) <= k:
            return None
        tensor, data, factors = self.inputs[k], self.inputs[x].grid, self.inputs[weight].grid
        if data and factors:
            scale = np.asarray(data[0] * factors[0])
            tensor = replace(tensor, grid=(scale, np.zeros_like(scale, np.int32)), axis=0)
        return self.reader.real(tensor, self.raw(k, written=True), self.label)

    # ----------------------------------------------------------------------- operators

    def emit(self, op: str, *args: Value | None, **attrs: Any) -> Value:
        """Add an operator of ONNX."""
        return self.reader.builder.add(
            op, *args, name=f"{self.label}:{op}", label=self.label, **attrs
        )

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value in another dtype."""
        return self.emit("Cast", value, to=_onnx_type(dtype))

    def const(self, data: Any, dtype: str = "int64") -> Value:
        """Return a constant."""
        return self.reader.builder.constant(np.asarray(data, dtype))

    def reshape(self, value: Value, shape: Sequence[int] | Array) -> Value:
        """Return a value in another shape."""
        return self.emit("Reshape", value, self.const(shape))


def _static(tensor: TfliteTensor, shape: Sequence[int]) -> list[int]:
    """Return the shape of an input whose first dimension may be open."""
    static = [1 if not axis and size == -1 else size for axis, size in enumerate(shape)]
    if len(static) != len(tensor.shape) or min(static, default=1) < 0:
        raise ModelError(
            f"the input {tensor.name!r} has the shape {[*tensor.shape]}; give a static one of this "
            f"rank by `shapes`, not {static}"
        )
    return static


def _as_image(array: Array) -> Array:
    """Return a constant as it is broadcast against images."""
    if array.size == 1:
        return array
    whole = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return np.array(whole.transpose(TO_IMAGE), order="C")


def _onnx_type(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# --------------------------------------------------------------------------------- layouts


def _written(_: _Call) -> bool:
    return False


def _is_rank_4(call: _Call) -> bool:
    return call.rank == 4


def _follows(call: _Call) -> bool:
    """Return whether an operand is an image, and all others can be read as images.

    One that has a number for each channel of another makes that one an image.
    """
    computed = [tensor for tensor in call.inputs if tensor.data is None]
    ranks = {len(tensor.shape) for tensor in computed}
    sizes = {tensor.shape[1:3] for tensor in computed}
    images = call.operator.kind == "PRELU"  # whose slopes of channels are tables for images
    images = images or (1, 1) in sizes != {(1, 1)}
    images = images or any(True in call.reader.forms[tensor] for tensor in computed)
    return images and {4} <= ranks <= {0, 4}


# ------------------------------------------------------------------------- windows, products


def _window(
    call: _Call, x: Value, kernel: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> dict[str, Any]:
    """Return the attributes of a window that reads an image."""
    strides, same = _strides(call), call.option("Padding") == SAME
    ends = zip(x.static_shape[2:], kernel, strides, dilations, strict=True)
    totals = [
        max(0, (ceil_div(size, stride) - 1) * stride + (extent - 1) * dilation + 1 - size) * same
        for size, extent, stride, dilation in ends
    ]
    pads = [(total + more) // 2 for more in (0, 1) for total in totals]
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}


def _strides(call: _Call) -> list[int]:
    return [call.option("StrideH"), call.option("StrideW")]


SAME = 0


def _convolution(call: _Call, axes: Sequence[int] = TO_IMAGE) -> Value:
    x, weight = call.real(0), call.weight(1, axes)
    _, depth, *kernel = weight.static_shape
    dilations = [call.option("DilationHFactor"), call.option("DilationWFactor")]
    attrs = _window(call, x, kernel, dilations) | {"dilations": dilations}
    groups = x.static_shape[1] // max(1, depth)
    return call.emit("Conv", x, weight, call.bias(2, 0, 1), group=groups, **attrs)


def _transposed_convolution(call: _Call) -> Value:
    (_, *size, _), weight, x = call.ints(0), call.weight(1, (3, 0, 1, 2)), call.real(2)
    attrs = {"strides": _strides(call), "output_shape": size, "auto_pad": "SAME_UPPER"}
    return call.emit("ConvTranspose", x, weight, call.bias(3, 2, 1), **attrs)


def _fully_connected(call: _Call) -> Value:
    if call.option("WeightsFormat", 0):
        raise UnsupportedError(f"{call.label} has shuffled weights; convert the model anew")
    x, weight = call.real(0), call.weight(1, (1, 0))
    if not call.option("KeepNumDims", False) and len(x.static_shape) != 2:
        x = call.reshape(x, [-1, weight.static_shape[0]])
    product, bias = call.emit("MatMul", x, weight), call.bias(2, 0, 1)
    return product if bias is None else call.emit("Add", product, bias)


def _batch_matmul(call: _Call) -> Value:
    operands = call.reals()
    for k, option in enumerate(("AdjX", "AdjY")):
        *axes, row, column = range(len(operands[k].static_shape))
        if call.option(option, False):
            operands[k] = call.emit("Transpose", operands[k], perm=[*axes, column, row])
    return call.emit("MatMul", *operands)


def _pool(op: str, call: _Call, **attrs: int) -> Value:
    x, kernel = call.real(0), [call.option("FilterHeight"), call.option("FilterWidth")]
    return call.emit(op, x, **attrs, **_window(call, x, kernel))


# --------------------------------------------------------------------------------- resizes


def _resize_bilinear(call: _Call) -> Value:
    size, x, grid = call.ints(1), call.raw(0), call.inputs[0].grid
    corners, halves = _resize_modes(call)
    if grid is None or x.dtype != "int8":  # which TFLite computes in floats
        mode = "align_corners" if corners else "half_pixel" if halves else "asymmetric"
        return _resized(call, size, mode="linear", coordinate_transformation_mode=mode)
    ends = zip(x.static_shape[2:], size, strict=True)
    rows, columns = (_weights(*extents, corners, halves) for extents in ends)
    x = call.emit("MatMul", call.const(rows, "int32"), call.cast(x, "int32"))
    x = call.emit("MatMul", x, call.const(columns.T, "int32"))
    half, one = (call.const(number, "int32") for number in (1 << 19, 1 << 20))
    steps = call.emit("Div", call.emit("Add", call.emit("Abs", x), half), one)
    steps = call.emit("Mul", call.emit("Sign", x), steps)
    scale, zero = grid
    steps = call.emit("Sub", steps, call.const(zero, "int32"))
    return call.emit("Mul", call.cast(steps, "float32"), call.const(scale, "float32"))


def _resize_modes(call: _Call) -> tuple[bool, bool]:
    """Return whether the pixels at the corners stay, and whether pixels have their centers."""
    return bool(call.option("AlignCorners", False)), bool(call.option("HalfPixelCenters", False))


def _weights(before: int, after: int, corners: bool, halves: bool) -> Array:
    """Return the weights of the pixels of a row in those of a resized one, in 1024ths.

    This is the arithmetic of TFLite's kernels for integers.
    """
    less = int(corners and after > 1)
    scale = (((before - less) << 10) + (after - less) // 2) // (after - less)
    place = np.arange(after) * scale + (scale // 2 - 512 if halves else 0)
    low, pixels = np.maximum(place >> 10, 0), np.eye(before, dtype=np.int64)
    first, second = (pixels[np.minimum(k, before - 1)] for k in (low, place + 1023 >> 10))
    share = (place - (low << 10))[:, None]
    return np.asarray(first * (1024 - share) + second * share)


def _resized(call: _Call, size: Ints, **attrs: str) -> Value:
    x = call.real(0)
    sizes = call.const([*x.static_shape[:2], *size])
    return call.emit("Resize", x, None, None, sizes, **attrs)


def _resize_nearest(call: _Call) -> Value:
    """Return a resize that repeats pixels; others are read by the indices that TFLite computes."""
    size, before = call.ints(1), call.raw(0).static_shape[2:]
    rows = [_nearest(*extents, *_resize_modes(call)) for extents in zip(before, size, strict=True)]
    repeated = [np.arange(n).repeat(len(row) // n) for n, row in zip(before, rows, strict=True)]
    if not all(map(np.array_equal, rows, repeated)):
        return _taken(call, [*map(np.arange, call.raw(0).static_shape[:2]), *rows])
    attrs = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return _resized(call, size, mode="nearest", **attrs)


def _nearest(before: int, after: int, corners: bool, halves: bool) -> Array:
    """Return which pixels of a row a resize to the nearest takes, in TFLite's float32."""
    less = int(corners and after > 1)
    scale = np.float32((before - less) / (after - less))
    place = (np.arange(after, dtype=np.float32) + np.float32(0.5 * halves)) * scale
    place = np.floor(place + np.float32(0.5 * corners))
    return np.asarray(np.minimum(place.astype(np.int64), before - 1))


def _taken(call: _Call, pixels: Sequence[Array]) -> Value:
    """Return the elements of operand 0 that have some indices along each axis."""
    x = call.real(0)
    for axis, indices in enumerate(pixels):
        if not np.array_equal(indices, np.arange(x.static_shape[axis])):
            x = call.emit("Gather", x, call.const(indices), axis=axis)
    return x


# --------------------------------------------------------------------------------- elements


def _same(op: str, call: _Call, **attrs: Any) -> Value:
    """Return an operator that is ONNX's."""
    return call.emit(op, *call.reals(), **attrs)


def _clip(low: int, high: int, call: _Call, value: Value | None = None) -> Value:
    x = value or call.real(0)
    return call.emit("Clip", x, call.const(low, x.dtype), call.const(high, x.dtype))


def _square(call: _Call, x: Value) -> Value:
    return call.emit("Mul", x, x)


def _softmax(call: _Call) -> Value:
    x, beta = call.real(0), call.option("Beta", 1.0)
    x = x if beta == 1 else call.emit("Mul", x, call.const(beta, x.dtype))
    return call.emit("Softmax", x, axis=-1)


def _gelu(call: _Call) -> Value:
    return _same("Gelu", call, approximate=("none", "tanh")[call.option("Approximate", 0)])


def _cast(call: _Call) -> Value:
    (result,) = call.operator.outputs
    return call.cast(call.raw(0), result.dtype)


# ------------------------------------------------------------------------------- reductions


def _reduction(op: str, call: _Call) -> Value:
    reduced, kept = call.ints(1), bool(call.option("KeepDims", False))
    others = [FROM_IMAGE[axis] for axis in range(4) if axis not in np.mod(reduced, 4)]
    call.image &= kept or others == sorted(others)  # else they are in another order in the file
    axes = call.const([*map(call.axis, reduced)])
    return call.emit(op, call.real(0), axes, keepdims=int(kept), noop_with_empty_axes=1)


def _arg(op: str, call: _Call) -> Value:
    (axis,) = call.ints(1)
    return call.emit(op, call.real(0), axis=axis, keepdims=0)


# --------------------------------------------------------------------------------- movement


def _pads(call: _Call) -> Array:
    """Return how much is padded before and behind each axis of operand 0."""
    rows = np.reshape(call.ints(1), (call.rank, 2))
    return rows[[*TO_IMAGE]] if call.image else rows


def _pad(call: _Call) -> Value:
    value = [call.reshape(call.real(2, True), [])] if call.inputs[2:] else []
    return call.emit("Pad", call.real(0), call.const(_pads(call).T.flat), *value)


def _mirror_pad(call: _Call) -> Value:
    x, pads = call.real(0), _pads(call)
    if not call.option("Mode", 0):
        return call.emit("Pad", x, call.const(pads.T.flat), mode="reflect")
    ends = zip(x.static_shape, pads, strict=True)
    return _taken(call, [np.pad(np.arange(size), both, "symmetric") for size, both in ends])


def _reshape(call: _Call) -> Value:
    shape = call.ints(1) if call.inputs[1:] else call.option("NewShapeAsNumpy")
    return call.reshape(call.real(0), shape)


def _squeeze(call: _Call) -> Value:
    stated = call.option("SqueezeDimsLength", 0)
    axes = [call.const(call.option("SqueezeDimsAsNumpy"))] if stated else []
    return call.emit("Squeeze", call.real(0), *axes)


def _transpose(call: _Call) -> Value:
    axes = [call.axis(range(call.rank)[axis]) for axis in call.ints(1)]
    x, call.image = call.real(0), False
    return x if axes == sorted(axes) else call.emit("Transpose", x, perm=axes)


def _concat(call: _Call) -> Value:
    return _same("Concat", call, axis=call.axis(call.option("Axis")))


def _pack(call: _Call) -> Value:
    axis = call.option("Axis", 0)
    parts = [call.emit("Unsqueeze", x, call.const([axis])) for x in call.reals()]
    return call.emit("Concat", *parts, axis=axis)


def _split(call: _Call, x: int, axes: Ints, stated: Ints | None = None) -> list[Value]:
    """Split operand `x` along an axis, by default into equal parts; a size of -1 is the rest."""
    (axis,), value, count = map(call.axis, axes), call.real(x), len(call.operator.outputs)
    extent = value.static_shape[axis]
    sizes = np.full(count, extent // count) if stated is None else stated
    sizes = np.where(sizes == -1, extent - sizes.sum() - 1, sizes)
    names, args = [f"{call.label}:Split"] * count, [value, call.const(sizes)]
    node = OnnxNode("Split", args, {"axis": axis}, names, call.label)
    return call.reader.builder.add_node(node)


def _unpack(call: _Call) -> list[Value]:
    x, axis, indices = call.real(0), call.option("Axis", 0), range(len(call.operator.outputs))
    return [call.emit("Gather", x, call.const(index), axis=axis) for index in indices]


def _gather(call: _Call) -> Value:
    if call.option("BatchDims", 0):
        raise UnsupportedError(f"{call.label} has batch_dims; vtaops reads those without")
    return call.emit("Gather", call.real(0), call.real(1), axis=call.option("Axis", 0))


END = np.iinfo(np.int64).max
"""Ends a slice where its axis ends."""


def _slice(call: _Call) -> Value:
    begins, sizes = map(call.ints, (1, 2))
    return _cut(call, begins, np.where(sizes == -1, END, begins + sizes))


def _cut(call: _Call, begins: Array, ends: Array, *steps: Value) -> Value:
    """Return a range of indices, for each axis as written, of operand 0."""
    axes = call.const([call.axis(axis) for axis in range(len(begins))])
    return call.emit("Slice", call.real(0), call.const(begins), call.const(ends), axes, *steps)


def _strided_slice(call: _Call) -> Value:
    begins, ends, steps = map(call.ints, (1, 2, 3))
    if call.option("EllipsisMask", 0) | call.option("NewAxisMask", 0) or min(steps) < 1:
        raise UnsupportedError(
            f"{call.label} adds axes, leaves some out or runs backwards; vtaops reads a range or "
            "an index for each axis: convert the model anew"
        )
    if call.option("Offset", False):
        ends = begins + ends
    from_first, to_last, is_index = (
        (call.option(f"{name}Mask", 0) >> np.arange(len(begins)) & 1).astype(bool)
        for name in ("Begin", "End", "ShrinkAxis")
    )
    call.image &= not any(is_index)
    begins = np.where(from_first, 0, begins)
    ends = np.where(is_index, np.where(begins == -1, END, begins + 1), np.where(to_last, END, ends))
    x = _cut(call, begins, ends, call.const(steps))
    return call.emit("Squeeze", x, call.const(np.flatnonzero(is_index))) if any(is_index) else x


def _blocks(call: _Call) -> tuple[Array, Array]:
    """Return the block of pixels, and what is padded or cut before and behind, of each axis."""
    sizes, first = call.ints(1), 1 + call.image
    others = first, call.rank - first - len(sizes)
    widths = np.pad(np.reshape(call.ints(2), (-1, 2)), (others, (0, 0)))
    return np.pad(sizes, others, constant_values=1), widths.T


def _space_to_batch(call: _Call) -> Value:
    (block, widths), x, rank = _blocks(call), call.real(0), call.rank
    x = call.emit("Pad", x, call.const(widths.flat))
    extents = x.static_shape // block
    x = call.reshape(x, np.stack([extents, block], axis=1).ravel())
    x = call.emit("Transpose", x, perm=[*range(1, 2 * rank, 2), *range(0, 2 * rank, 2)])
    return call.reshape(x, [-1, *extents[1:]])


def _batch_to_space(call: _Call) -> Value:
    (block, (before, behind)), x = _blocks(call), call.real(0)
    batch, *extents = x.static_shape
    extents = [batch // math.prod(block), *extents]
    x = call.reshape(x, [*block, *extents])
    axes = np.arange(2 * call.rank).reshape(2, -1)[::-1].T.ravel()
    x = call.emit("Transpose", x, perm=axes.tolist())
    whole = block * extents
    return call.emit(
        "Slice", call.reshape(x, whole), call.const(before), call.const(whole - behind)
    )


def _with_ints(op: str, call: _Call) -> Value:
    """Return an operator of ONNX whose second argument are integers."""
    return call.emit(op, call.real(0), call.const(call.ints(1)))


def _shape(call: _Call) -> Value:
    shape = np.array(call.raw(0).static_shape)
    return call.const(
        shape[[*FROM_IMAGE]] if call.image else shape, DTYPES[call.option("OutType", 2)]
    )


# ------------------------------------------------------------------------------------ table

ACTIVATIONS: Mapping[int, Callable[[_Call, Value], Value]] = {
    0: lambda _, value: value,
    1: lambda call, value: call.emit("Relu", value),
    2: partial(_clip, -1, 1),
    3: partial(_clip, 0, 6),
}
"""Fused activations by their numbers."""

Rule = Callable[[_Call], Value | Iterable[Value]]

ONNX_NAMES = {
    **{"ADD_N": "Sum", "MAXIMUM": "Max", "MINIMUM": "Min", "LOGISTIC": "Sigmoid"},
    **{"HARD_SWISH": "HardSwish", "PRELU": "PRelu", "SELECT": "Where", "SELECT_V2": "Where"},
    **{"LESS_EQUAL": "LessOrEqual", "GREATER_EQUAL": "GreaterOrEqual", "LOGICAL_AND": "And"},
    **{"LOGICAL_OR": "Or", "LOGICAL_NOT": "Not"},
    **{
        kind: kind.title()
        for kind in (
            *("ABS", "ADD", "CEIL", "COS", "DIV", "ELU", "EQUAL", "EXP", "FLOOR", "GREATER"),
            *("LESS", "LOG", "MUL", "NEG", "POW", "RELU", "ROUND", "SIGN", "SIN", "SQRT", "SUB"),
            "TANH",
        )
    },
}
"""Operators on elements that are ONNX's."""

REDUCTIONS = {
    **{"MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_PROD": "ReduceProd"},
    **{"REDUCE_MAX": "ReduceMax", "REDUCE_ANY": "ReduceMax"},
    **{"REDUCE_MIN": "ReduceMin", "REDUCE_ALL": "ReduceMin"},
}

FOLLOWING: dict[str, Rule] = {
    **{kind: partial(_same, op) for kind, op in ONNX_NAMES.items()},
    **{kind: partial(_reduction, op) for kind, op in REDUCTIONS.items()},
    "STRIDED_SLICE": _strided_slice,
    "NOT_EQUAL": lambda call: call.emit("Not", _same("Equal", call)),
    "RELU6": partial(_clip, 0, 6),
    "RELU_N1_TO_1": partial(_clip, -1, 1),
    "LEAKY_RELU": lambda call: _same("LeakyRelu", call, alpha=float(call.option("Alpha"))),
    "GELU": _gelu,
    "SQUARE": lambda call: _square(call, call.real(0)),
    "SQUARED_DIFFERENCE": lambda call: _square(call, _same("Sub", call)),
    "RSQRT": lambda call: call.emit("Reciprocal", _same("Sqrt", call)),
    "QUANTIZE": lambda call: call.real(0),
    "DEQUANTIZE": lambda call: call.real(0),
    "CAST": _cast,
    "CONCATENATION": _concat,
    "SPLIT": lambda call: _split(call, 1, call.ints(0)),
    "SPLIT_V": lambda call: _split(call, 0, call.ints(2), call.ints(1)),
    "SLICE": _slice,
    "TRANSPOSE": _transpose,
    "SHAPE": _shape,
}

LAYOUTS: Mapping[Callable[[_Call], bool], Mapping[str, Rule]] = {
    _follows: FOLLOWING,
    _is_rank_4: {
        "CONV_2D": _convolution,
        "DEPTHWISE_CONV_2D": partial(_convolution, axes=(3, 0, 1, 2)),
        "TRANSPOSE_CONV": _transposed_convolution,
        "AVERAGE_POOL_2D": partial(_pool, "AveragePool", count_include_pad=0),
        "MAX_POOL_2D": partial(_pool, "MaxPool"),
        "RESIZE_BILINEAR": _resize_bilinear,
        "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
        "DEPTH_TO_SPACE": lambda c: _same("DepthToSpace", c, blocksize=c.option("BlockSize")),
        "SPACE_TO_DEPTH": lambda c: _same("SpaceToDepth", c, blocksize=c.option("BlockSize")),
        "PAD": _pad,
        "PADV2": _pad,
        "MIRROR_PAD": _mirror_pad,
        "SPACE_TO_BATCH_ND": _space_to_batch,
        "BATCH_TO_SPACE_ND": _batch_to_space,
    },
    _written: {
        "RESHAPE": _reshape,
        "FULLY_CONNECTED": _fully_connected,
        "BATCH_MATMUL": _batch_matmul,
        "SOFTMAX": _softmax,
        "LOG_SOFTMAX": partial(_same, "LogSoftmax", axis=-1),
        "L2_NORMALIZATION": partial(_same, "LpNormalization", axis=-1, p=2),
        "ARG_MAX": partial(_arg, "ArgMax"),
        "ARG_MIN": partial(_arg, "ArgMin"),
        "SQUEEZE": _squeeze,
        "EXPAND_DIMS": partial(_with_ints, "Unsqueeze"),
        "PACK": _pack,
        "UNPACK": _unpack,
        "GATHER": _gather,
        "TILE": partial(_with_ints, "Tile"),
        "BROADCAST_TO": partial(_with_ints, "Expand"),
    },
}
"""The rule for each operator of TFLite, below what says whether it reads images."""

RULES = {kind: (where, rule) for where, rules in LAYOUTS.items() for kind, rule in rules.items()}
