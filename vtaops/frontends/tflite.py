"""Read TFLite files, int8, uint8 or float: one rule for each operator, named as in the file.

Images are NHWC in a file. Every tensor of rank 4 has up to two forms, as written and as an NCHW
image; one is converted to the other on demand. Convolutions, pools and resizes read images,
operators whose axes can be renamed follow their operands, and all others read tensors as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.shapes import Array, ceil_div
from vtaops.frontends.grids import EIGHT_BITS
from vtaops.frontends.tflite_files import (
    CORRUPT,
    DTYPES,
    File,
    TfliteOperator,
    TfliteTensor,
    read_file,
)
from vtaops.frontends.values import NetworkBuilder, OnnxNetwork, OnnxNode, Value

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
    file = read_file(path)
    inputs = [file.tensors[number] for number in file.inputs]
    shapes = {tensor.name: tensor.signature or tensor.shape for tensor in inputs}
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
    """The forms of all tensors, by their numbers: as written (False), and as an image (True)."""

    def __init__(self, file: File, shapes: Mapping[str, Sequence[int]]) -> None:
        self.file, self.builder = file, NetworkBuilder()
        self.forms: dict[int, dict[bool, Value]] = {}
        self.names: dict[str, tuple[int, bool, str]] = {}
        names = [file.tensors[number].name for number in file.inputs]
        if unknown := sorted(set(shapes) - set(names)):
            raise ModelError(f"{unknown[0]!r} is not an input of the model; it has {names}")
        for number in file.inputs:
            tensor = self.tensor(number)
            shape = _static(tensor, shapes.get(tensor.name, tensor.shape))
            self.forms[number] = {False: self.builder.input(tensor.name, shape, tensor.dtype)}

    def network(self) -> OnnxNetwork:
        """Read the operators that the outputs need."""
        needed, operators = {*self.file.outputs}, []
        for operator in reversed(self.file.operators):
            if needed.intersection(operator.outputs):
                operators.append(operator)
                needed.update(operator.inputs)
        for operator in reversed(operators):
            _Call(self, operator).run()
        outputs = [self.form(number, False) for number in self.file.outputs]
        return self.builder.network(outputs, tflite=True)

    def tensor(self, number: int) -> TfliteTensor:
        """Return a tensor of the file.

        Raises
        ------
        UnsupportedError
            If its numbers have a type that vtaops does not read.
        """
        tensor = self.file.tensors[number]
        if not tensor.dtype:
            raise UnsupportedError(f"the tensor {tensor.name!r} has a type that vtaops cannot read")
        if tensor.scale is None or tensor.data is not None:
            return tensor
        if tensor.dtype not in EIGHT_BITS or tensor.scale.ndim:
            raise UnsupportedError(
                f"the activation {tensor.name!r} is {tensor.dtype} with {tensor.scale.size} scales;"
                " vtaops reads int8 and uint8 with one: convert the model anew"
            )
        return tensor

    def form(self, number: int, image: bool) -> Value:
        """Return a tensor in one of its forms: quantised as integers."""
        forms, tensor = self.forms.setdefault(number, {}), self.tensor(number)
        if image not in forms and tensor.data is not None:
            array = _as_image(tensor.data) if image else tensor.data
            forms[image] = self.builder.constant(np.asarray(array, order="C"), tensor.name)
        elif image not in forms:
            axes, label = TO_IMAGE if image else FROM_IMAGE, f"Transpose {tensor.name!r}"
            real = self.real(number, forms[not image], label)
            turned = self.builder.add("Transpose", real, name=label, label=label, perm=axes)
            self.put(number, turned, image, label)
        return forms[image]

    def grid(self, number: int) -> tuple[Value, Value]:
        """Return scale and zero point of a quantised tensor."""
        tensor, constant = self.tensor(number), self.builder.constant
        scale, zero = np.asarray(tensor.scale), np.asarray(tensor.zero)
        return constant(scale, "scale"), constant(zero, "zero")

    def real(self, number: int, form: Value, label: str, **attrs: int) -> Value:
        """Return a form of a tensor, if the tensor is quantised as floating-point numbers."""
        tensor = self.tensor(number)
        if tensor.scale is None:
            return form
        name, args = f"{tensor.name}:real", (form, *self.grid(number))
        return self.builder.add("DequantizeLinear", *args, name=name, label=label, **attrs)

    def put(self, number: int, value: Value, image: bool, label: str) -> None:
        """Make a result a form of a tensor: rounded to its grid, or in its dtype.

        An output of the network has the name of its tensor. So have all other forms before they
        are rounded, but for the second one of a tensor.
        """
        tensor, build, real = self.tensor(number), self.builder, value
        name, is_output = self._name(number, image), number in self.file.outputs and not image
        if tensor.scale is None or value.dtype != "float32":
            _rename(build, value, name, label)
            if value.dtype != tensor.dtype:
                value = build.add("Cast", value, label=label, to=_onnx_type(tensor.dtype))
            real = value
        else:
            _rename(build, value, f"{name}:real" if is_output else name, label)
            own = name if is_output else f"{name}:{tensor.dtype}"
            args = value, *self.grid(number)
            value = build.add("QuantizeLinear", *args, name=own, label=label)
            real = value if is_output else real
        known = "" if label.startswith(UNJUDGED) else tensor.name
        self.names[real.name] = number, image, known
        self.forms.setdefault(number, {})[image] = value

    def _name(self, number: int, image: bool) -> str:
        second = image if number in self.file.outputs else number in self.forms
        return self.tensor(number).name + (":nchw" if image else ":nhwc") * second


def _rename(build: NetworkBuilder, value: Value, name: str, label: str) -> None:
    """Name a result of an operator; another's result, passed through, keeps its name."""
    if value.node is not None and value.node.label == label:
        build.rename(value, name)


class _Call:
    """An operator of the file: what it reads, and where its results go.

    Attributes
    ----------
    image
        Whether operands are read, and results written, as images.
    """

    def __init__(self, reader: _Reader, operator: TfliteOperator) -> None:
        self.reader, self.operator, self.label = reader, operator, operator.label
        self.option, self.image = operator.option, False

    def run(self) -> None:
        """Build the operator."""
        kind = self.operator.kind
        if kind not in RULES:
            raise UnsupportedError(
                f"{self.label} is an operator that vtaops cannot read; docs/supported.md "
                "lists those that it can: end the model before it, or leave it out"
            )
        with raising(ModelError, f"{self.label} is malformed", *CORRUPT):
            reads_images, rule = RULES[kind]
            self.image = reads_images(self)
            made = rule(self)
            values = [made] if isinstance(made, Value) else made
            for number, value in zip(self.operator.outputs, values, strict=True):
                self._place(number, value)

    def _place(self, number: int, value: Value) -> None:
        """Make a value, behind the fused activation, a tensor of the file."""
        if hasattr(self.operator.table, "FusedActivationFunction"):
            function = self.option("FusedActivationFunction")
            if function not in ACTIVATIONS:
                raise UnsupportedError(f"{self.label} has the fused activation {function}")
            value = ACTIVATIONS[function](self, value)
        self.reader.forms.pop(number, None)
        self.reader.put(number, value, self.image and len(_shape(value)) == 4, self.label)

    # ------------------------------------------------------------------------ operands

    def has(self, k: int) -> bool:
        """Return whether there is an operand `k`."""
        return max(self.operator.inputs[k : k + 1], default=-1) >= 0

    def number(self, k: int) -> int:
        """Return the number of the tensor that is operand `k`."""
        return self.operator.inputs[k]

    def tensor(self, k: int) -> TfliteTensor:
        """Return the tensor that is operand `k`."""
        return self.reader.tensor(self.number(k))

    def raw(self, k: int, image: bool | None = None) -> Value:
        """Return operand `k`, by default in the operator's form: quantised as integers."""
        return self.reader.form(self.number(k), self.image if image is None else image)

    def real(self, k: int, image: bool | None = None) -> Value:
        """Return operand `k` as `raw` does, but as floating-point numbers if it is quantised."""
        value, axis = self.raw(k, image), self.tensor(k).axis
        return self.reader.real(self.number(k), value, self.label, axis=axis)

    def reals(self) -> list[Value]:
        """Return all operands as `real` does."""
        return [self.real(k) for k in range(len(self.operator.inputs))]

    def ints(self, k: int) -> list[int]:
        """Return the elements of operand `k`, which are integers.

        Raises
        ------
        UnsupportedError
            If they depend on an input.
        """
        array = self.raw(k, False).array
        if array is None:
            name = self.tensor(k).name
            raise UnsupportedError(f"{self.label} reads {name!r}, which must be constant")
        numbers: list[int] = array.astype(np.int64, casting="safe").ravel().tolist()
        return numbers

    def axis(self, axis: int, more: int = 0) -> int:
        """Return an axis of the form that is read; `more` is by how much its rank is higher."""
        axis = range(self.rank + more)[axis]
        return FROM_IMAGE[axis] if self.image else axis

    @property
    def shape(self) -> list[int]:
        """The shape of operand 0 as written."""
        shape = _shape(self.raw(0))
        return [shape[axis] for axis in FROM_IMAGE] if self.image else shape

    @property
    def rank(self) -> int:
        """The highest rank of an operand."""
        return max(len(self.reader.tensor(n).shape) for n in self.operator.inputs if n >= 0)

    def weight(self, k: int, axes: Sequence[int]) -> Value:
        """Return operand `k` with its axes in another order."""
        return self.emit("Transpose", self.real(k, False), perm=axes)

    def bias(self, k: int, x: int, weight: int) -> Value | None:
        """Return operand `k`; integers count in steps of the products, whatever the file says."""
        if not self.has(k):
            return None
        scales = [self.tensor(operand).scale for operand in (x, weight)]
        if scales[0] is None or scales[1] is None or self.tensor(k).data is None:
            return self.real(k, False)
        scale = np.asarray(scales[0] * scales[1])
        grid = self.const(scale, "float32"), self.const(np.zeros_like(scale), "int32")
        return self.emit("DequantizeLinear", self.raw(k, False), *grid, axis=0)

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
    return np.transpose(whole, TO_IMAGE)


def _shape(value: Value) -> list[int]:
    if value.shape is None:
        raise UnsupportedError(f"{value.label} has a result whose shape depends on its input")
    return [*value.shape]


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
    computed = [n for n in call.operator.inputs if n >= 0 and call.reader.tensor(n).data is None]
    shapes = {call.reader.tensor(number).shape for number in computed}
    ranks, sizes = {*map(len, shapes)}, {shape[1:3] for shape in shapes}
    images = call.operator.kind == "PRELU"  # whose slopes of channels are tables for images
    images = images or (1, 1) in sizes != {(1, 1)}
    images = images or any(True in call.reader.forms[number] for number in computed)
    return images and {4} <= ranks <= {0, 4}


def _keeps_order(call: _Call) -> bool:
    """Return whether a reduction of an image leaves its axes in the order of the file."""
    if not _follows(call):
        return False
    kept = {*range(4)} - {axis % 4 for axis in call.ints(1)}
    order = [FROM_IMAGE[axis] for axis in sorted(kept)]
    return bool(call.option("KeepDims", False)) or order == sorted(order)


def _keeps_axes(call: _Call) -> bool:
    return _follows(call) and not call.option("ShrinkAxisMask", 0)


# ------------------------------------------------------------------------- windows, products


def _window(call: _Call, x: Value, kernel: Sequence[int], *dilations: int) -> dict[str, Any]:
    """Return the attributes of a window that reads an image."""
    strides, pads = [call.option("StrideH"), call.option("StrideW")], [0] * 4
    for axis in range(2 if call.option("Padding") == SAME else 0):
        size, reach = _shape(x)[axis + 2], (kernel[axis] - 1) * (dilations or (1, 1))[axis] + 1
        total = max(0, (ceil_div(size, strides[axis]) - 1) * strides[axis] + reach - size)
        pads[axis], pads[axis + 2] = total // 2, total - total // 2
    window = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    return window | ({"dilations": dilations} if dilations else {})


SAME = 0


def _convolution(call: _Call, axes: Sequence[int] = TO_IMAGE) -> Value:
    x, weight = call.real(0), call.weight(1, axes)
    _, depth, *kernel = _shape(weight)
    dilations = call.option("DilationHFactor"), call.option("DilationWFactor")
    attrs = _window(call, x, kernel, *dilations) | {"group": _shape(x)[1] // max(1, depth)}
    return call.emit("Conv", x, weight, call.bias(2, 0, 1), **attrs)


def _transposed_convolution(call: _Call) -> Value:
    (_, *size, _), weight, x = call.ints(0), call.weight(1, (3, 0, 1, 2)), call.real(2)
    strides = [call.option("StrideH"), call.option("StrideW")]
    attrs = {"strides": strides, "output_shape": size, "auto_pad": "SAME_UPPER"}
    return call.emit("ConvTranspose", x, weight, call.bias(3, 2, 1), **attrs)


def _fully_connected(call: _Call) -> Value:
    if call.option("WeightsFormat", 0):
        raise UnsupportedError(f"{call.label} has shuffled weights; convert the model anew")
    x, weight = call.real(0), call.weight(1, (1, 0))
    if not call.option("KeepNumDims", False) and len(_shape(x)) != 2:
        x = call.reshape(x, [-1, _shape(weight)[0]])
    product, bias = call.emit("MatMul", x, weight), call.bias(2, 0, 1)
    return product if bias is None else call.emit("Add", product, bias)


def _batch_matmul(call: _Call) -> Value:
    operands = call.reals()
    for k, option in enumerate(("AdjX", "AdjY")):
        *axes, row, column = range(len(_shape(operands[k])))
        if call.option(option, False):
            operands[k] = call.emit("Transpose", operands[k], perm=[*axes, column, row])
    return call.emit("MatMul", *operands)


def _pool(op: str, call: _Call, **attrs: int) -> Value:
    x, kernel = call.real(0), [call.option("FilterHeight"), call.option("FilterWidth")]
    return call.emit(op, x, **attrs, **_window(call, x, kernel))


def _resize_bilinear(call: _Call) -> Value:
    size, modes = call.ints(1), ("AlignCorners", "HalfPixelCenters")
    corners, halves = (bool(call.option(mode, False)) for mode in modes)
    tensor = call.tensor(0)
    if tensor.zero is None or tensor.dtype != "int8":  # which TFLite computes in floats
        mode = "align_corners" if corners else "half_pixel" if halves else "asymmetric"
        return _resized(call, size, mode="linear", coordinate_transformation_mode=mode)
    ends = zip(call.shape[1:3], size, strict=True)
    rows, columns = (_weights(*extents, corners, halves) for extents in ends)
    x = call.emit("MatMul", call.const(rows, "int32"), call.cast(call.raw(0), "int32"))
    x = call.emit("MatMul", x, call.const(columns.T, "int32"))
    half, one = (call.const(number, "int32") for number in (1 << 19, 1 << 20))
    steps = call.emit("Div", call.emit("Add", call.emit("Abs", x), half), one)
    steps = call.emit("Mul", call.emit("Sign", x), steps)
    steps = call.emit("Sub", steps, call.const(tensor.zero, "int32"))
    return call.emit("Mul", call.cast(steps, "float32"), call.const(tensor.scale, "float32"))


def _weights(before: int, after: int, corners: bool, halves: bool) -> Array:
    """Return the weights of the pixels of a row in those of a resized one, in 1024ths.

    This is the arithmetic of TFLite's kernels for integers.
    """
    less = int(corners and after > 1)
    scale = (((before - less) << 10) + (after - less) // 2) // (after - less)
    place = np.arange(after) * scale + (scale // 2 - 512 if halves else 0)
    low, weights = np.maximum(place >> 10, 0), np.zeros((after, before), np.int64)
    for pixel, weight in (
        (low, 1024 - place + (low << 10)),
        (place + 1023 >> 10, place - (low << 10)),
    ):
        np.add.at(weights, (np.arange(after), np.clip(pixel, 0, before - 1)), weight)
    return weights


def _resized(call: _Call, size: Sequence[int], **attrs: str) -> Value:
    x = call.real(0)
    sizes = call.const([*_shape(x)[:2], *size])
    return call.emit("Resize", x, None, None, sizes, **attrs)


def _resize_nearest(call: _Call) -> Value:
    """Return a resize that repeats pixels; others are read by the indices that TFLite computes."""
    size, before = call.ints(1), call.shape[1:3]
    pixels = {k + 2: _nearest(call, *pair) for k, pair in enumerate(zip(before, size, strict=True))}
    repeated = (
        np.arange(before[k - 2]).repeat(len(row) // before[k - 2]) for k, row in pixels.items()
    )
    if not all(map(np.array_equal, pixels.values(), repeated)):
        return _taken(call, call.real(0), pixels)
    attrs = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return _resized(call, size, mode="nearest", **attrs)


def _nearest(call: _Call, before: int, after: int) -> Array:
    """Return which pixels of a row a resize to the nearest takes, in TFLite's float32."""
    corners, halves = call.option("AlignCorners", False), call.option("HalfPixelCenters", False)
    less = int(corners and after > 1)
    scale = np.float32((before - less) / (after - less))
    place = (np.arange(after, dtype=np.float32) + np.float32(0.5 if halves else 0)) * scale
    place = np.floor(place + np.float32(0.5 if corners else 0))
    return np.asarray(np.minimum(place.astype(np.int64), before - 1))


def _taken(call: _Call, x: Value, pixels: Mapping[int, Array]) -> Value:
    """Return the elements of some indices along each axis."""
    for axis, indices in pixels.items():
        if not np.array_equal(indices, np.arange(_shape(x)[axis])):
            x = call.emit("Gather", x, call.const(indices), axis=axis)
    return x


# --------------------------------------------------------------------------------- elements


def _same(op: str, call: _Call, **attrs: Any) -> Value:
    """Return an operator that is ONNX's."""
    return call.emit(op, *call.reals(), **attrs)


def _clip(low: int, high: int, call: _Call, value: Value | None = None) -> Value:
    x = value or call.real(0)
    return call.emit("Clip", x, call.const(low, x.dtype), call.const(high, x.dtype))


def _square(call: _Call, value: Value | None = None) -> Value:
    x = value or call.real(0)
    return call.emit("Mul", x, x)


def _softmax(call: _Call) -> Value:
    x, beta = call.real(0), call.option("Beta", 1.0)
    x = x if beta == 1 else call.emit("Mul", x, call.const(beta, x.dtype))
    return call.emit("Softmax", x, axis=-1)


def _gelu(call: _Call) -> Value:
    approximate = "tanh" if call.option("Approximate", False) else "none"
    return call.emit("Gelu", call.real(0), approximate=approximate)


def _cast(call: _Call) -> Value:
    """Return the operand as the dtype that the file declares; halves of floats become float32."""
    (number,) = call.operator.outputs
    return call.cast(call.raw(0), call.reader.tensor(number).dtype)


# ------------------------------------------------------------------------------- reductions


def _reduction(op: str, call: _Call) -> Value:
    axes = call.const(sorted(call.axis(axis) for axis in call.ints(1)))
    kept = int(call.option("KeepDims", False))
    return call.emit(op, call.real(0), axes, keepdims=kept, noop_with_empty_axes=1)


def _arg(op: str, call: _Call) -> Value:
    (axis,) = call.ints(1)
    return call.emit(op, call.real(0), axis=axis, keepdims=0)


# --------------------------------------------------------------------------------- movement


def _pads(call: _Call) -> Array:
    """Return how much is padded before and behind each axis of operand 0."""
    rows = np.reshape(call.ints(1), (call.rank, 2))
    return rows[[*TO_IMAGE]] if call.image else rows


def _pad(call: _Call) -> Value:
    x, pads = call.real(0), call.const(_pads(call).T.flat)
    value = call.reshape(call.real(2, False), []) if call.has(2) else call.const(0, x.dtype)
    return call.emit("Pad", x, pads, value)


def _mirror_pad(call: _Call) -> Value:
    x, pads = call.real(0), _pads(call)
    if not call.option("Mode", 0):
        return call.emit("Pad", x, call.const(pads.T.flat), mode="reflect")
    sizes = zip(_shape(x), pads, strict=True)
    pixels = [np.pad(np.arange(size), both, "symmetric") for size, both in sizes]
    return _taken(call, x, dict(enumerate(pixels)))


def _reshape(call: _Call) -> Value:
    shape = call.ints(1) if call.has(1) else call.option("NewShapeAsNumpy").tolist()
    return call.reshape(call.real(0), shape)


def _squeeze(call: _Call) -> Value:
    stated = call.option("SqueezeDimsLength", 0)
    axes = [call.const(call.option("SqueezeDimsAsNumpy"))] if stated else []
    return call.emit("Squeeze", call.real(0), *axes)


def _transpose(call: _Call) -> Value:
    axes = [call.axis(axis) for axis in call.ints(1)]
    x, call.image = call.real(0), False
    return x if axes == sorted(axes) else call.emit("Transpose", x, perm=axes)


def _concat(call: _Call) -> Value:
    return call.emit("Concat", *call.reals(), axis=call.axis(call.option("Axis")))


def _pack(call: _Call) -> Value:
    axis = call.axis(call.option("Axis", 0), 1)
    parts = [call.emit("Unsqueeze", x, call.const([axis])) for x in call.reals()]
    return call.emit("Concat", *parts, axis=axis)


def _split(call: _Call, x: int, axes: Sequence[int], sizes: Sequence[int] = ()) -> list[Value]:
    """Split operand `x` along an axis, by default into equal parts; a size of -1 is the rest."""
    (axis,), value, count = map(call.axis, axes), call.real(x), len(call.operator.outputs)
    extent = _shape(value)[axis]
    sizes = sizes or [extent // count] * count
    rest = extent - sum(sizes) - 1
    args = value, call.const([rest if size == -1 else size for size in sizes])
    names, attrs = [f"{call.label}:Split"] * count, {"axis": axis}
    return call.reader.builder.add_node(OnnxNode("Split", args, attrs, names, call.label))


def _unpack(call: _Call) -> list[Value]:
    axes = [call.option("Axis", 0)]
    return [call.emit("Squeeze", part, call.const(axes)) for part in _split(call, 0, axes)]


def _gather(call: _Call) -> Value:
    if call.option("BatchDims", 0):
        raise UnsupportedError(f"{call.label} has batch_dims; vtaops reads those without")
    return call.emit("Gather", call.real(0), call.real(1), axis=call.option("Axis", 0))


def _cut(call: _Call, ranges: Iterable[range]) -> Value:
    """Return what ranges of indices, one for each axis as written, leave of operand 0."""
    x, shape = call.real(0), call.shape
    cuts = {call.axis(k): cut for k, cut in enumerate(ranges) if cut != range(shape[k])}
    if not cuts:
        return x
    ends = [(cut.start, cut.stop, cut.step) for cut in cuts.values()]
    starts, stops, steps = map(call.const, zip(*ends, strict=True))
    return call.emit("Slice", x, starts, stops, call.const([*cuts]), steps)


def _slice(call: _Call) -> Value:
    limits = zip(call.ints(1), call.ints(2), call.shape, strict=True)
    return _cut(call, [range(a, size if n == -1 else a + n) for a, n, size in limits])


def _strided_slice(call: _Call) -> Value:
    begins, ends, steps = map(call.ints, (1, 2, 3))
    if call.option("EllipsisMask", 0) | call.option("NewAxisMask", 0) or min(steps) < 1:
        raise UnsupportedError(
            f"{call.label} adds axes, leaves some out or runs backwards; vtaops reads a range or "
            "an index for each axis: convert the model anew"
        )
    if call.option("Offset", False):
        ends = np.add(begins, ends).tolist()
    masks = [call.option(name, 0) for name in ("BeginMask", "EndMask", "ShrinkAxisMask")]
    ranges = [*map(range, call.shape)]
    for k, bounds in enumerate(zip(begins, ends, steps, strict=True)):
        ranges[k] = ranges[k][_axis_cut(*bounds, *(mask >> k & 1 for mask in masks))]
    x = _cut(call, ranges)
    kept = [len(each) for k, each in enumerate(ranges) if not masks[2] >> k & 1]
    return call.reshape(x, kept) if masks[2] else x


def _axis_cut(begin: int, end: int, step: int, no_begin: int, no_end: int, is_index: int) -> slice:
    start = 0 if no_begin else begin
    if is_index:
        return slice(start, start + 1 or None)
    return slice(start, None if no_end else end, step)


def _blocks(call: _Call, *, back: bool) -> Value:
    """Return an image whose blocks of pixels are moved to the batch, or back."""
    first, sizes, widths = 1 + call.image, call.ints(1), np.reshape(call.ints(2), (-1, 2))
    table = np.tile(np.array([[1], [0], [0]]), call.rank)
    table[:, first : first + len(sizes)] = sizes, *widths.T
    (block, before, behind), x = table, call.real(0)
    if not back:
        x = call.emit("Pad", x, call.const(table[1:].flat), call.const(0, x.dtype))
    whole = np.array(_shape(x)) * (block if back else 1)
    whole[0] //= math.prod(block) if back else 1
    parts = np.stack([whole // block, block], axis=1).ravel()
    axes = np.arange(2 * call.rank).reshape(-1, 2).T[::-1].ravel()
    if back:
        x = call.reshape(x, parts[axes])
        x = call.emit("Transpose", x, perm=np.argsort(axes).tolist())
        x = call.reshape(x, whole)
        return call.emit("Slice", x, call.const(before), call.const(whole - behind))
    x = call.emit("Transpose", call.reshape(x, parts), perm=axes.tolist())
    return call.reshape(x, [-1, *parts[2::2]])


def _with_ints(op: str, call: _Call) -> Value:
    """Return an operator of ONNX whose second argument are integers."""
    return call.emit(op, call.real(0), call.const(call.ints(1)))


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

ELEMENTWISE: dict[str, Rule] = {
    **{kind: partial(_same, op) for kind, op in ONNX_NAMES.items()},
    "NOT_EQUAL": lambda call: call.emit("Not", _same("Equal", call)),
    "RELU6": partial(_clip, 0, 6),
    "RELU_N1_TO_1": partial(_clip, -1, 1),
    "LEAKY_RELU": lambda call: _same("LeakyRelu", call, alpha=float(call.option("Alpha"))),
    "GELU": _gelu,
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": lambda call: _square(call, _same("Sub", call)),
    "RSQRT": lambda call: call.emit("Reciprocal", _same("Sqrt", call)),
    "QUANTIZE": lambda call: call.real(0),
    "DEQUANTIZE": lambda call: _cast(call) if call.tensor(0).scale is None else call.real(0),
    "CAST": _cast,
    "CONCATENATION": _concat,
    "SPLIT": lambda call: _split(call, 1, call.ints(0)),
    "SPLIT_V": lambda call: _split(call, 0, call.ints(2), call.ints(1)),
    "SLICE": _slice,
    "TRANSPOSE": _transpose,
    "SHAPE": lambda call: call.const(call.shape, DTYPES[call.option("OutType", 2)]),
}

LAYOUTS: Mapping[Callable[[_Call], bool], Mapping[str, Rule]] = {
    _follows: ELEMENTWISE,
    _keeps_order: {kind: partial(_reduction, op) for kind, op in REDUCTIONS.items()},
    _keeps_axes: {"STRIDED_SLICE": _strided_slice},
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
        "SPACE_TO_BATCH_ND": partial(_blocks, back=False),
        "BATCH_TO_SPACE_ND": partial(_blocks, back=True),
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
