"""Read TFLite files, int8, uint8 or float: one rule for each operator, named as in the file.

Images are NHWC in a file. Every tensor of rank 4 has up to two forms, as written and as an NCHW
image; one is converted to the other on demand. Convolutions, pools and resizes read images,
operators whose axes can be renamed follow their operands, and all others read tensors as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError
from vtaops.base.shapes import Array, ceil_div
from vtaops.frontends.tflite_files import DTYPES, File, Operator, Tensor, read_file
from vtaops.frontends.values import Builder, Network, Value

TO_IMAGE, FROM_IMAGE = (0, 3, 1, 2), (0, 2, 3, 1)

EIGHT_BITS = frozenset({"int8", "uint8"})


def read_tflite(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Network:
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
    return _Reader(read_file(path), shapes or {}).network()


class _Reader:
    """The forms of all tensors, by their numbers: as written (False), and as an image (True)."""

    def __init__(self, file: File, shapes: Mapping[str, Sequence[int]]) -> None:
        self.file, self.checked = file, not shapes
        self.builder = Builder()
        self.forms: dict[int, dict[bool, Value]] = {}
        self.grids: dict[int, tuple[Value, Value]] = {}
        names = [file.tensors[number].name for number in file.inputs]
        if unknown := sorted(set(shapes) - set(names)):
            raise ModelError(f"{unknown[0]!r} is not an input of the model; it has {names}")
        for number in file.inputs:
            self._input(number, shapes)

    def _input(self, number: int, shapes: Mapping[str, Sequence[int]]) -> None:
        tensor = self.tensor(number)
        shape = tuple(shapes.get(tensor.name, tensor.shape))
        if shape[:1] == (-1,):
            shape = (1, *shape[1:])
        if len(shape) != len(tensor.shape) or min(shape, default=1) < 0:
            raise ModelError(
                f"the input {tensor.name!r} has the shape {list(tensor.shape)}; give a static one "
                f"of this rank by `shapes`, not {list(shape)}"
            )
        self.forms[number] = {False: self.builder.input(tensor.name, shape, tensor.dtype)}

    def network(self) -> Network:
        """Read the operators that the outputs need."""
        needed, operators = set(self.file.outputs), []
        for operator in reversed(self.file.operators):
            if needed.intersection(operator.outputs):
                operators.append(operator)
                needed.update(operator.inputs)
        for operator in reversed(operators):
            _Call(self, operator).run()
        outputs = [self.form(number, False) for number in self.file.outputs]
        return self.builder.network(outputs, tflite=True)

    def tensor(self, number: int) -> Tensor:
        """Return a tensor of the file.

        Raises
        ------
        UnsupportedError
            If its numbers have a type that vtaops does not read.
        """
        tensor = self.file.tensors[number]
        if not tensor.dtype:
            raise UnsupportedError(f"the tensor {tensor.name!r} has a type that vtaops cannot read")
        if tensor.scale is not None and tensor.data is None:
            if tensor.dtype not in EIGHT_BITS:
                raise UnsupportedError(
                    f"the tensor {tensor.name!r} is quantised to {tensor.dtype}; vtaops reads "
                    "activations of int8 and uint8: convert the model with int8 activations"
                )
            if tensor.scale.ndim:
                raise UnsupportedError(f"the activation {tensor.name!r} has several scales")
        return tensor

    # --------------------------------------------------------------------------- forms

    def form(self, number: int, image: bool) -> Value:
        """Return a tensor in one of its forms: quantised as integers."""
        forms = self.forms.setdefault(number, {})
        if image not in forms:
            tensor, axes = self.tensor(number), TO_IMAGE if image else FROM_IMAGE
            if not forms and tensor.data is not None:
                array = _as_image(tensor.data) if image else tensor.data
                forms[image] = self.builder.constant(np.ascontiguousarray(array), tensor.name)
                return forms[image]
            (other,) = forms.values()
            if len(tensor.shape) != 4:
                raise ModelError(f"{tensor.name!r} is read as an image; its rank is not 4")
            label = f"layout of {tensor.name!r}"
            name = f"{tensor.name}:{'nchw' if image else 'nhwc'}"
            real = self.real(number, other, label)
            turned = self.builder.add("Transpose", real, name=name, label=label, perm=axes)
            forms[image] = self.rounded(number, turned, label)
        return forms[image]

    def grid(self, number: int) -> tuple[Value, Value]:
        """Return scale and zero point of a quantised tensor."""
        if number not in self.grids:
            tensor, constant = self.tensor(number), self.builder.constant
            assert tensor.scale is not None and tensor.zero is not None
            scale = constant(tensor.scale, f"{tensor.name}:scale")
            self.grids[number] = scale, constant(tensor.zero, f"{tensor.name}:zero")
        return self.grids[number]

    def real(self, number: int, form: Value, label: str, axis: int = 0) -> Value:
        """Return a form of a tensor as floating-point numbers, if the tensor is quantised."""
        tensor = self.tensor(number)
        if tensor.scale is None:
            return form
        attrs = {"axis": axis} if tensor.scale.ndim else {}
        name, scale_zero = f"{tensor.name}:real", self.grid(number)
        return self.builder.add(
            "DequantizeLinear", form, *scale_zero, name=name, label=label, **attrs
        )

    def rounded(self, number: int, value: Value, label: str) -> Value:
        """Return a result as the form of a tensor: rounded to its grid, or in its dtype."""
        tensor, add = self.tensor(number), self.builder.add
        kinds = [np.dtype(kind).kind for kind in (value.dtype, tensor.dtype)]
        if tensor.scale is not None and kinds[0] == "f":
            name = f"{tensor.name}:{tensor.dtype}"
            return add("QuantizeLinear", value, *self.grid(number), name=name, label=label)
        if value.dtype == tensor.dtype:
            return value
        if tensor.scale is None and set(kinds) <= {"i", "u"}:
            return add("Cast", value, label=label, to=_onnx_type(tensor.dtype))
        raise ModelError(f"{label} makes {value.dtype}; the file declares {tensor.dtype}")


class _Call:
    """An operator of the file: what it reads, and where its results go.

    Attributes
    ----------
    image
        Whether operands are read, and results written, as images.
    """

    def __init__(self, reader: _Reader, operator: Operator) -> None:
        self.reader, self.operator, self.label = reader, operator, operator.label
        self.option, self.image = operator.option, False

    def run(self) -> None:
        """Build the operator."""
        if self.operator.kind not in RULES:
            raise UnsupportedError(
                f"{self.label} is an operator that vtaops cannot read; `vtaops ops --supported` "
                "lists those that it can: end the model before it, or leave it out"
            )
        layout, rule = RULES[self.operator.kind]
        self.image = layout(self)
        made = rule(self)
        values = [made] if isinstance(made, Value) else list(made)
        if len(values) != len(self.operator.outputs):
            raise ModelError(f"{self.label} has {len(self.operator.outputs)} results")
        for number, value in zip(self.operator.outputs, values, strict=True):
            self._place(number, value)

    def _place(self, number: int, value: Value) -> None:
        """Make a value, behind the fused activation, a tensor of the file."""
        reader, tensor = self.reader, self.reader.tensor(number)
        table = self.operator.table
        if hasattr(table, "FusedActivationFunction"):
            value = self._activated(value, self.option("FusedActivationFunction"))
        if value.shape is None:
            raise UnsupportedError(f"{self.label} has a result whose shape depends on its input")
        image = self.image and len(value.shape) == 4
        shape = [value.shape[axis] for axis in FROM_IMAGE] if image else [*value.shape]
        if reader.checked and tensor.shape and not _agree(shape, tensor.shape):
            raise ModelError(
                f"{self.label} has the shape {shape}; the file declares {[*tensor.shape]}"
            )
        if value.node is not None and value.node.label == self.label:
            reader.builder.rename(value, tensor.name)
        reader.forms[number] = {image: reader.rounded(number, value, self.label)}

    def _activated(self, value: Value, function: int) -> Value:
        if function not in ACTIVATIONS:
            raise UnsupportedError(f"{self.label} has the fused activation {function}")
        return ACTIVATIONS[function](self, value)

    # ------------------------------------------------------------------------ operands

    def has(self, k: int) -> bool:
        """Return whether there is an operand `k`."""
        return k < len(self.operator.inputs) and self.operator.inputs[k] >= 0

    def number(self, k: int) -> int:
        """Return the number of the tensor that is operand `k`."""
        if not self.has(k):
            raise ModelError(f"{self.label} has no operand {k}")
        return self.operator.inputs[k]

    def tensor(self, k: int) -> Tensor:
        """Return the tensor that is operand `k`."""
        return self.reader.tensor(self.number(k))

    def known(self, k: int) -> set[bool]:
        """Return which forms of operand `k` are computed."""
        return {*self.reader.forms.get(self.number(k), ())}

    def raw(self, k: int) -> Value:
        """Return operand `k` in the form that the operator reads, quantised as integers."""
        return self.reader.form(self.number(k), self.image)

    def real(self, k: int) -> Value:
        """Return operand `k` as floating-point numbers if it is quantised."""
        tensor, axis = self.tensor(k), self.tensor(k).axis
        if tensor.scale is not None and tensor.scale.ndim and self.image:
            axis = FROM_IMAGE[axis + 4 - len(tensor.shape)]
        return self.reader.real(self.number(k), self.raw(k), self.label, axis)

    def reals(self) -> list[Value]:
        """Return all operands as `real` does."""
        return [self.real(k) for k in range(len(self.operator.inputs))]

    def array(self, k: int) -> Array:
        """Return the elements of operand `k`, as written.

        Raises
        ------
        UnsupportedError
            If they depend on an input.
        """
        array = self.reader.form(self.number(k), False).array
        if array is None:
            name = self.tensor(k).name
            raise UnsupportedError(f"{self.label} reads {name!r}, which must be constant")
        return array

    def ints(self, k: int) -> list[int]:
        """Return the elements of operand `k`, which are integers."""
        array = self.array(k)
        if array.dtype.kind not in "iu":
            raise ModelError(f"{self.label} reads {array.dtype} where it needs integers")
        return [int(number) for number in array.reshape(-1)]

    def axis(self, axis: int, rank: int = 0) -> int:
        """Return an axis of operand 0, or of a tensor of some rank, in the form that is read."""
        rank = rank or len(self.tensor(0).shape)
        if not -rank <= axis < rank:
            raise ModelError(f"{self.label} names the axis {axis} of {rank}")
        return FROM_IMAGE[axis % rank] if self.image else axis % rank

    def weight(self, k: int, axes: Sequence[int]) -> Value:
        """Return operand `k` with its axes in another order; constants are turned now."""
        tensor, number, build = self.tensor(k), self.number(k), self.reader.builder
        if len(tensor.shape) != len(axes):
            raise ModelError(f"{self.label} has weights of rank {len(tensor.shape)}")
        if tensor.data is None:
            real = self.reader.real(number, self.reader.form(number, False), self.label)
            return self.emit("Transpose", real, perm=axes)
        turned = np.ascontiguousarray(tensor.data.transpose(axes))
        form = build.constant(turned, tensor.name)
        return self.reader.real(number, form, self.label, axes.index(tensor.axis))

    def bias(self, k: int, x: int, weight: int) -> Value | None:
        """Return operand `k` as a bias: integers on the scale of the products, whatever it says."""
        if not self.has(k):
            return None
        scales = [self.tensor(operand).scale for operand in (x, weight)]
        if scales[0] is None or scales[1] is None or self.tensor(k).data is None:
            return self.reader.real(
                self.number(k), self.reader.form(self.number(k), False), self.label
            )
        constant, scale = self.reader.builder.constant, np.asarray(scales[0] * scales[1])
        zero = constant(np.zeros(scale.shape, np.int32))
        values = self.reader.form(self.number(k), False)
        return self.emit("DequantizeLinear", values, constant(scale), zero, axis=0)

    # ----------------------------------------------------------------------- operators

    def emit(self, op: str, *args: Value | None, **attrs: Any) -> Value:
        """Add an operator of ONNX."""
        return self.many(op, args, 1, **attrs)[0]

    def many(self, op: str, args: Sequence[Value | None], count: int, **attrs: Any) -> list[Value]:
        """Add an operator of ONNX with some results."""
        names = [f"{self.label}:{op}"] * count
        return self.reader.builder.add_many(op, args, names, label=self.label, attrs=attrs)

    def const(self, data: Any, dtype: str = "int64") -> Value:
        """Return a constant."""
        return self.reader.builder.constant(np.asarray(data, dtype))

    def like(self, number: float, value: Value) -> Value:
        """Return a constant of the dtype of another value."""
        return self.const(number, value.dtype)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value in another shape."""
        return self.emit("Reshape", value, self.const(shape))


def _as_image(array: Array) -> Array:
    """Return a constant as it is broadcast against images."""
    if array.size == 1 or array.ndim > 4:
        return array
    return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_IMAGE)


def _agree(shape: Sequence[int], declared: Sequence[int]) -> bool:
    pairs = zip(shape, declared, strict=False)
    return len(shape) == len(declared) and all(b in (a, -1) for a, b in pairs)


def _onnx_type(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# --------------------------------------------------------------------------------- layouts

Layout = Callable[[_Call], bool]
Rule = Callable[[_Call], Value | Iterable[Value]]


def _written(_: _Call) -> bool:
    return False


def _image(_: _Call) -> bool:
    return True


def _follows(call: _Call) -> bool:
    """Return whether an operand is computed as an image, and all can be read as one."""
    given = [k for k in range(len(call.operator.inputs)) if call.has(k)]
    given = [k for k in given if call.tensor(k).data is None]
    ranks = {len(call.tensor(k).shape) for k in given}
    return ranks <= {0, 4} and any(True in call.known(k) for k in given)


def _padded_image(call: _Call) -> bool:
    return len(call.tensor(0).shape) == 4


def _reduced_image(call: _Call) -> bool:
    """Return whether a reduction of an image has its remaining axes in the order of the file."""
    if not _follows(call):
        return False
    reduced = {axis % 4 for axis in call.ints(1)}
    left = [FROM_IMAGE[axis] for axis in range(4) if axis not in reduced]
    return bool(call.option("KeepDims", False)) or left == sorted(left)


def _sliced_image(call: _Call) -> bool:
    masks = ("NewAxisMask", "ShrinkAxisMask", "EllipsisMask")
    return _follows(call) and not any(call.option(mask, 0) for mask in masks)


def _split_image(call: _Call) -> bool:
    return len(call.tensor(1).shape) == 4 and True in call.known(1)


def _is_point(call: _Call) -> bool:
    """Return whether the operand is an image of 1x1, whose elements lie as in the file."""
    return call.tensor(0).shape[1:3] == (1, 1) and _follows(call)


# ------------------------------------------------------------------------- windows, products


def _window(call: _Call, size: Sequence[int], kernel: Sequence[int], pool: bool) -> dict[str, Any]:
    """Return strides, pads and dilations of a window that reads an image of some size."""
    strides = call.option("StrideH"), call.option("StrideW")
    dilations = (1, 1) if pool else (call.option("DilationHFactor"), call.option("DilationWFactor"))
    if min(*strides, *dilations, *kernel) < 1:
        raise ModelError(f"{call.label} has a window of no size, stride or dilation")
    pads = [0] * 4
    for axis in range(2 if call.option("Padding") == SAME else 0):
        reach = (ceil_div(size[axis], strides[axis]) - 1) * strides[axis] + 1
        total = max(0, reach + (kernel[axis] - 1) * dilations[axis] - size[axis])
        pads[axis], pads[axis + 2] = total // 2, total - total // 2
    found = {"kernel_shape": [*kernel], "strides": strides, "pads": pads}
    return found if pool else found | {"dilations": dilations}


SAME = 0


def _convolution(call: _Call, axes: Sequence[int] = TO_IMAGE) -> Value:
    x, weight = call.real(0), call.weight(1, axes)
    assert x.shape and weight.shape
    groups = x.shape[1] // max(1, weight.shape[1])
    window = _window(call, x.shape[2:], weight.shape[2:], False)
    return call.emit("Conv", x, weight, call.bias(2, 0, 1), group=groups, **window)


def _transposed_convolution(call: _Call) -> Value:
    size, weight, x = call.ints(0), call.weight(1, (3, 0, 1, 2)), call.real(2)
    assert x.shape and weight.shape
    strides, pads, more = (call.option("StrideH"), call.option("StrideW")), [0] * 4, [0, 0]
    if len(size) != 4 or min(strides) < 1:
        raise ModelError(f"{call.label} has the shape {size} and the strides {strides}")
    for axis in range(2):
        whole = (x.shape[axis + 2] - 1) * strides[axis] + weight.shape[axis + 2]
        total = max(0, whole - size[axis + 1])
        pads[axis], pads[axis + 2] = total // 2, total - total // 2
        more[axis] = max(0, size[axis + 1] - whole)
    bias = call.bias(3, 2, 1)
    return call.emit(
        "ConvTranspose", x, weight, bias, strides=strides, pads=pads, output_padding=more
    )


def _fully_connected(call: _Call) -> Value:
    x, weight = call.real(0), call.weight(1, (1, 0))
    if call.option("WeightsFormat", 0):
        raise UnsupportedError(f"{call.label} has shuffled weights; convert the model anew")
    assert x.shape is not None and weight.shape
    if not call.option("KeepNumDims", False) and (len(x.shape) != 2 or call.image):
        x = call.reshape(x, (-1, weight.shape[0]))
    call.image = False
    product, bias = call.emit("MatMul", x, weight), call.bias(2, 0, 1)
    return product if bias is None else call.emit("Add", product, bias)


def _flat_point(call: _Call) -> bool:
    return _is_point(call) and not call.option("KeepNumDims", False)


def _batch_matmul(call: _Call) -> Value:
    operands = []
    for k, option in enumerate(("AdjX", "AdjY")):
        value = call.real(k)
        rank = len(value.shape or ())
        axes = [*range(rank - 2), rank - 1, rank - 2]
        turned = rank > 1 and call.option(option, False)
        operands.append(call.emit("Transpose", value, perm=axes) if turned else value)
    return call.emit("MatMul", *operands)


def _pool(op: str, call: _Call, **attrs: int) -> Value:
    x, kernel = call.real(0), (call.option("FilterHeight"), call.option("FilterWidth"))
    return call.emit(op, x, **attrs, **_window(call, (x.shape or ())[2:], kernel, True))


def _l2_pool(call: _Call) -> Value:
    x, kernel = call.real(0), (call.option("FilterHeight"), call.option("FilterWidth"))
    window = _window(call, (x.shape or ())[2:], kernel, True)
    return call.emit("Sqrt", call.emit("AveragePool", call.emit("Mul", x, x), **window))


def _resized(call: _Call, linear: bool) -> Value:
    x, size = call.real(0), call.ints(1)
    corners, halves = (call.option(o, False) for o in ("AlignCorners", "HalfPixelCenters"))
    if len(size) != 2 or min(size) < 1:
        raise ModelError(f"{call.label} has the size {size}")
    before = (x.shape or ())[2:]
    mode = "align_corners" if corners else "half_pixel" if halves else "asymmetric"
    rows, columns = (
        _nearest(*sizes, bool(corners), bool(halves)) for sizes in zip(before, size, strict=True)
    )
    whole = [_repeats(*pair) for pair in zip((rows, columns), before, strict=True)]
    if linear or all(whole):
        attrs = {"mode": "linear"} if linear else {"mode": "nearest", "nearest_mode": "floor"}
        attrs["coordinate_transformation_mode"] = mode if linear else "asymmetric"
        sizes = call.const([*(x.shape or ())[:2], *size])
        return call.emit("Resize", x, None, None, sizes, **attrs)
    x = call.emit("Gather", x, call.const(rows), axis=2)
    return call.emit("Gather", x, call.const(columns), axis=3)


def _nearest(before: int, after: int, corners: bool, halves: bool) -> Array:
    """Return which pixels of a row a resize to the nearest takes, in TFLite's float32."""
    pixel, one = np.arange(after, dtype=np.float32), np.float32(1)
    scale = np.float32(before) / np.float32(after)
    if corners and after > 1:
        scale = (np.float32(before) - one) / (np.float32(after) - one)
    place = (pixel + np.float32(0.5 if halves else 0)) * scale
    place = np.floor(place + np.float32(0.5)) if corners else np.floor(place)
    return np.minimum(place.astype(np.int64), before - 1)


def _repeats(pixels: Array, before: int) -> bool:
    """Return whether each pixel of a row is repeated the same number of times."""
    factor = max(1, len(pixels) // max(1, before))
    return np.array_equal(pixels, np.arange(before * factor) // factor)


# --------------------------------------------------------------------------------- elements


def _same(op: str, call: _Call, **attrs: Any) -> Value:
    """Return an operator that is ONNX's."""
    return call.emit(op, *call.reals(), **attrs)


def _clip(low: float, high: float, call: _Call, value: Value | None = None) -> Value:
    x = call.real(0) if value is None else value
    return call.emit("Clip", x, call.like(low, x), call.like(high, x))


def _square(call: _Call, value: Value | None = None) -> Value:
    x = call.real(0) if value is None else value
    return call.emit("Mul", x, x)


def _squared_difference(call: _Call) -> Value:
    return _square(call, _same("Sub", call))


def _hard_swish(call: _Call) -> Value:
    return call.emit("HardSwish", call.real(0))


def _floor_div(call: _Call) -> Value:
    a, b = call.real(0), call.real(1)
    if a.dtype.startswith("float"):
        return call.emit("Floor", call.emit("Div", a, b))
    return call.emit("Div", call.emit("Sub", a, call.emit("Mod", a, b)), b)


def _floor_mod(call: _Call) -> Value:
    a, b = call.real(0), call.real(1)
    if not a.dtype.startswith("float"):
        return call.emit("Mod", a, b)
    return call.emit("Sub", a, call.emit("Mul", call.emit("Floor", call.emit("Div", a, b)), b))


def _softmax(call: _Call) -> Value:
    x, beta = call.real(0), call.option("Beta", 1.0)
    x = x if beta == 1 else call.emit("Mul", x, call.like(beta, x))
    return call.emit("Softmax", x, axis=-1)


def _lrn(call: _Call) -> Value:
    size = 2 * call.option("Radius") + 1
    alpha, beta, bias = (float(call.option(name)) for name in ("Alpha", "Beta", "Bias"))
    return call.emit("LRN", call.real(0), size=size, alpha=alpha * size, beta=beta, bias=bias)


def _cast(call: _Call) -> Value:
    return call.emit("Cast", call.raw(0), to=_result_type(call))


def _dequantize(call: _Call) -> Value:
    x = call.real(0)
    return call.emit("Cast", x, to=_result_type(call)) if x.dtype == "float16" else x


def _result_type(call: _Call) -> int:
    outputs = call.operator.outputs
    return _onnx_type(call.reader.tensor(outputs[0]).dtype if outputs else "float32")


# ------------------------------------------------------------------------------- reductions


def _reduction(op: str, call: _Call) -> Value:
    x, rank = call.real(0), len(call.tensor(0).shape)
    axes = call.const(sorted({call.axis(axis) for axis in call.ints(1)} if rank else ()))
    kept = int(call.option("KeepDims", False))
    return call.emit(op, x, axes, keepdims=kept, noop_with_empty_axes=1)


def _arg(op: str, call: _Call) -> Value:
    (axis,) = _count(call, call.ints(1), 1)
    return call.emit(op, call.real(0), axis=call.axis(axis), keepdims=0)


def _cumulated(call: _Call) -> Value:
    (axis,) = _count(call, call.ints(1), 1)
    flags = {key: int(call.option(key.title(), False)) for key in ("exclusive", "reverse")}
    return call.emit("CumSum", call.real(0), call.const(call.axis(axis)), **flags)


def _top_k(call: _Call) -> list[Value]:
    return call.many("TopK", [call.real(0), call.const(_count(call, call.ints(1), 1))], 2)


def _count(call: _Call, numbers: list[int], count: int) -> list[int]:
    if len(numbers) != count:
        raise ModelError(f"{call.label} reads {numbers}; it needs {count} of them")
    return numbers


# --------------------------------------------------------------------------------- movement


def _pads(call: _Call) -> Array:
    """Return how much is padded before and behind each axis of operand 0."""
    rank = len(call.tensor(0).shape)
    rows = np.array(_count(call, call.ints(1), 2 * rank)).reshape(rank, 2)
    return rows[[*TO_IMAGE]] if call.image else rows


def _pad(call: _Call) -> Value:
    x, pads = call.real(0), call.const(_pads(call).T.reshape(-1))
    if not call.has(2):
        return call.emit("Pad", x, pads, call.like(0, x))
    number = call.number(2)
    amount = call.reader.real(number, call.reader.form(number, False), call.label)
    return call.emit("Pad", x, pads, call.reshape(amount, ()))


def _mirror_pad(call: _Call) -> Value:
    x, pads = call.real(0), _pads(call)
    if call.option("Mode", 0) == 0:
        return call.emit("Pad", x, call.const(pads.T.reshape(-1)), mode="reflect")
    for axis, (before, behind) in enumerate(pads.tolist()):
        extent = (x.shape or ())[axis]
        if not (0 <= before <= extent and 0 <= behind <= extent):
            raise ModelError(f"{call.label} mirrors more than its operand has")
        if before or behind:
            taken = [*range(before)][::-1], [*range(extent)], [*range(extent - behind, extent)][::-1]
            x = call.emit("Gather", x, call.const(sum(taken, [])), axis=axis)
    return x


def _reshape(call: _Call) -> Value:
    x, shape = call.real(0), call.operator.option("NewShapeAsNumpy", 0)
    call.image = False
    wanted = call.ints(1) if call.has(1) else [*np.atleast_1d(shape).tolist()]
    return call.reshape(x, wanted)


def _squeeze(call: _Call) -> Value:
    x, axes = call.real(0), call.option("SqueezeDimsAsNumpy", 0)
    found = [call.axis(axis) for axis in np.asarray(axes).reshape(-1)] if np.ndim(axes) else []
    return call.emit("Squeeze", x, call.const(found) if found else None)


def _expand_dims(call: _Call) -> Value:
    return call.emit("Unsqueeze", call.real(0), call.const(call.ints(1)))


def _transpose(call: _Call) -> Value:
    axes = [call.axis(axis) for axis in call.ints(1)]
    x, call.image = call.real(0), False
    return x if axes == [*range(len(axes))] else call.emit("Transpose", x, perm=axes)


def _concat(call: _Call) -> Value:
    return call.emit("Concat", *call.reals(), axis=call.axis(call.option("Axis")))


def _pack(call: _Call) -> Value:
    axis = call.axis(call.option("Axis", 0), len(call.tensor(0).shape) + 1)
    parts = [call.emit("Unsqueeze", x, call.const([axis])) for x in call.reals()]
    return call.emit("Concat", *parts, axis=axis)


def _split(call: _Call) -> list[Value]:
    (axis,) = _count(call, call.ints(0), 1)
    return _parts(call, 1, axis, [])


def _split_v(call: _Call) -> list[Value]:
    (axis,) = _count(call, call.ints(2), 1)
    return _parts(call, 0, axis, call.ints(1))


def _parts(call: _Call, k: int, axis: int, sizes: list[int]) -> list[Value]:
    """Split operand `k`, by default into equal parts; one size of -1 is what remains."""
    x, axis = call.real(k), call.axis(axis, len(call.tensor(k).shape))
    count, extent = len(call.operator.outputs), (x.shape or ())[axis]
    sizes = sizes or [extent // max(1, count)] * count
    sizes = [extent - sum(sizes) - 1 if size == -1 else size for size in sizes]
    if len(sizes) != count or sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ModelError(f"{call.label} splits {extent} into {count} parts of {sizes}")
    return call.many("Split", [x, call.const(sizes)], count, axis=axis)


def _unpack(call: _Call) -> list[Value]:
    axis = call.option("Axis", 0)
    parts = _parts(call, 0, axis, [1] * len(call.operator.outputs))
    return [call.emit("Squeeze", part, call.const([call.axis(axis)])) for part in parts]


def _gather(call: _Call) -> Value:
    if call.option("BatchDims", 0):
        raise UnsupportedError(f"{call.label} has batch_dims; vtaops reads those without")
    return call.emit("Gather", call.real(0), call.real(1), axis=call.axis(call.option("Axis", 0)))


def _gather_nd(call: _Call) -> Value:
    indices = call.emit("Cast", call.real(1), to=_onnx_type("int64"))
    return call.emit("GatherND", call.real(0), indices)


def _embedding(call: _Call) -> Value:
    return call.emit("Gather", call.real(1), call.real(0), axis=0)


def _cut(call: _Call, cuts: Mapping[int, slice]) -> Value:
    """Return slices of operand 0, by axis of the file."""
    x, rank = call.real(0), len(call.tensor(0).shape)
    axes = [call.axis(axis, rank) for axis in cuts]
    parts = [(cut.start, cut.stop, cut.step) for cut in cuts.values()]
    if not parts:
        return x
    starts, stops, steps = (call.const(numbers) for numbers in zip(*parts, strict=True))
    return call.emit("Slice", x, starts, stops, call.const(axes), steps)


def _slice(call: _Call) -> Value:
    shape = _shape(call)
    begins, sizes = (_count(call, call.ints(k), len(shape)) for k in (1, 2))
    ends = [
        extent if size == -1 else begin + size
        for begin, size, extent in zip(begins, sizes, shape, strict=True)
    ]
    return _cut(call, {axis: slice(*pair, 1) for axis, pair in enumerate(zip(begins, ends))})


def _reverse(call: _Call) -> Value:
    return _cut(call, {axis: slice(-1, -(2**31), -1) for axis in call.ints(1)})


def _shape(call: _Call) -> list[int]:
    """Return the shape of operand 0 as written."""
    shape = call.raw(0).shape or ()
    return [shape[axis] for axis in FROM_IMAGE] if call.image else [*shape]


def _strided_slice(call: _Call) -> Value:
    begins, ends, strides = (call.ints(k) for k in (1, 2, 3))
    _count(call, ends, len(begins)), _count(call, strides, len(begins))
    names = ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    masks = [call.option(f"{name}Mask", 0) for name in names]
    shape, cuts, kept, axis = _shape(call), dict[int, slice](), list[int | None](), 0
    for k, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        no_begin, no_end, ellipsis, new, shrink = (bool(mask >> k & 1) for mask in masks)
        if ellipsis:
            left = [j for j in range(k + 1, len(begins)) if not masks[3] >> j & 1]
            kept += range(axis, len(shape) - len(left))
            axis = max(axis, len(shape) - len(left))
        elif new:
            kept.append(None)
        elif axis >= len(shape) or not stride:
            raise ModelError(f"{call.label} slices {len(shape)} axes by {begins} and {strides}")
        else:
            end = begin + end if call.option("Offset", False) else end
            cuts[axis] = _one(call, begin, shape[axis]) if shrink else slice(
                *slice(None if no_begin else begin, None if no_end else end, stride).indices(
                    shape[axis]
                )
            )
            kept += [] if shrink else [axis]
            axis += 1
    return _sliced(call, shape, cuts, [*kept, *range(axis, len(shape))])


def _one(call: _Call, index: int, extent: int) -> slice:
    if not -extent <= index < extent:
        raise ModelError(f"{call.label} takes the index {index} of {extent}")
    return slice(index % extent, index % extent + 1, 1)


def _sliced(
    call: _Call, shape: list[int], cuts: dict[int, slice], kept: list[int | None]
) -> Value:
    """Return the slices that do something, with some axes left out and None for new ones."""
    whole = {axis: slice(0, extent, 1) for axis, extent in enumerate(shape)}
    x = _cut(call, {a: _backwards(cut) for a, cut in cuts.items() if cut != whole[a]})
    if kept == [*range(len(shape))]:
        return x
    size = x.shape or ()
    return call.reshape(x, [1 if axis is None else size[axis] for axis in kept])


def _backwards(cut: slice) -> slice:
    """Return a slice as ONNX writes it: one that runs backwards to the front ends before it."""
    return slice(cut.start, -(2**31), cut.step) if cut.stop < 0 else cut


def _blocks(call: _Call) -> tuple[list[int], list[list[int]]]:
    """Return the block of a move between space and batch, and its pads or crops."""
    block = call.ints(1)
    rows = np.array(_count(call, call.ints(2), 2 * len(block))).reshape(-1, 2).tolist()
    if min(block, default=1) < 1 or len(block) >= len(call.tensor(0).shape):
        raise ModelError(f"{call.label} has the block {block}")
    return block, rows


def _space_to_batch(call: _Call) -> Value:
    (block, rows), x = _blocks(call), call.real(0)
    m, rank = len(block), len(x.shape or ())
    pads = np.array([[0, 0], *rows, *[[0, 0]] * (rank - m - 1)])
    if pads.any():
        x = call.emit("Pad", x, call.const(pads.T.reshape(-1)), call.like(0, x))
    n, *sizes = x.shape or ()
    parts = [part for size, b in zip(sizes, block, strict=False) for part in (size // b, b)]
    x = call.reshape(x, [n, *parts, *sizes[m:]])
    axes = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, rank + m)]
    x = call.emit("Transpose", x, perm=axes)
    return call.reshape(x, [n * int(np.prod(block)), *parts[::2], *sizes[m:]])


def _batch_to_space(call: _Call) -> Value:
    (block, rows), x = _blocks(call), call.real(0)
    m, (n, *sizes) = len(block), x.shape or (1,)
    n //= int(np.prod(block))
    x = call.reshape(x, [*block, n, *sizes])
    axes = [m, *(axis for k in range(m) for axis in (m + 1 + k, k))]
    x = call.emit("Transpose", x, perm=[*axes, *range(2 * m + 1, m + 1 + len(sizes))])
    whole = [size * b for size, b in zip(sizes, block, strict=False)]
    x = call.reshape(x, [n, *whole, *sizes[m:]])
    cuts = [(before, size - behind) for (before, behind), size in zip(rows, whole, strict=True)]
    axes = [k for k in range(m) if cuts[k] != (0, whole[k])]
    if not axes:
        return x
    starts, stops = (call.const([cuts[k][end] for k in axes]) for end in (0, 1))
    return call.emit("Slice", x, starts, stops, call.const([k + 1 for k in axes]))


def _expanded(call: _Call, op: str, k: int, shape: int) -> Value:
    return call.emit(op, call.real(k), call.const(call.ints(shape)))


def _shape_of(call: _Call) -> Value:
    return call.const(_shape(call), DTYPES[call.option("OutType", 2)])


def _zeros(call: _Call) -> Value:
    x = call.real(0)
    return call.emit("Expand", call.like(0, x), call.const(x.shape))


def _scatter_nd(call: _Call) -> Value:
    indices = call.emit("Cast", call.real(0), to=_onnx_type("int64"))
    updates = call.real(1)
    zeros = call.emit("Expand", call.like(0, updates), call.const(call.ints(2)))
    return call.emit("ScatterND", zeros, indices, updates)


def _one_hot(call: _Call) -> Value:
    on, off = (call.reshape(call.real(k), [1]) for k in (2, 3))
    values = call.emit("Concat", off, on, axis=0)
    depth = call.const(call.ints(1))
    return call.emit("OneHot", call.real(0), depth, values, axis=call.option("Axis", -1))


# ------------------------------------------------------------------------------------ table

ACTIVATIONS: Mapping[int, Callable[[_Call, Value], Value]] = {
    0: lambda _, value: value,
    1: lambda call, value: call.emit("Relu", value),
    2: partial(_clip, -1, 1),
    3: partial(_clip, 0, 6),
    4: lambda call, value: call.emit("Tanh", value),
}
"""Fused activations by their numbers."""

ELEMENTWISE = {
    **{"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "POW": "Pow", "ADD_N": "Sum"},
    **{"MAXIMUM": "Max", "MINIMUM": "Min", "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh"},
    **{"ELU": "Elu", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "ABS": "Abs", "NEG": "Neg"},
    **{"FLOOR": "Floor", "CEIL": "Ceil", "ROUND": "Round", "SIN": "Sin", "COS": "Cos"},
    **{"SIGN": "Sign", "PRELU": "PRelu", "SELECT": "Where", "SELECT_V2": "Where"},
    **{"LESS": "Less", "LESS_EQUAL": "LessOrEqual", "GREATER": "Greater", "EQUAL": "Equal"},
    **{"GREATER_EQUAL": "GreaterOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or"},
    **{"LOGICAL_NOT": "Not", "HARD_SWISH": "HardSwish"},
}
"""Operators of one or more operands, element by element, that ONNX has."""

REDUCTIONS = {
    **{"MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_MAX": "ReduceMax"},
    **{"REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd", "REDUCE_ANY": "ReduceMax"},
    "REDUCE_ALL": "ReduceMin",
}

RULES: Mapping[str, tuple[Layout, Rule]] = {
    **{kind: (_follows, partial(_same, op)) for kind, op in ELEMENTWISE.items()},
    **{kind: (_reduced_image, partial(_reduction, op)) for kind, op in REDUCTIONS.items()},
    "CONV_2D": (_image, _convolution),
    "DEPTHWISE_CONV_2D": (_image, partial(_convolution, axes=(3, 0, 1, 2))),
    "TRANSPOSE_CONV": (_image, _transposed_convolution),
    "FULLY_CONNECTED": (_flat_point, _fully_connected),
    "BATCH_MATMUL": (_written, _batch_matmul),
    "AVERAGE_POOL_2D": (_image, partial(_pool, "AveragePool", count_include_pad=0)),
    "MAX_POOL_2D": (_image, partial(_pool, "MaxPool")),
    "L2_POOL_2D": (_image, _l2_pool),
    "RESIZE_BILINEAR": (_image, partial(_resized, linear=True)),
    "RESIZE_NEAREST_NEIGHBOR": (_image, partial(_resized, linear=False)),
    "LOCAL_RESPONSE_NORMALIZATION": (_image, _lrn),
    "DEPTH_TO_SPACE": (
        _image,
        lambda c: c.emit("DepthToSpace", c.real(0), blocksize=c.option("BlockSize"), mode="DCR"),
    ),
    "SPACE_TO_DEPTH": (
        _image,
        lambda c: c.emit("SpaceToDepth", c.real(0), blocksize=c.option("BlockSize")),
    ),
    "QUANTIZE": (_follows, lambda call: call.real(0)),
    "DEQUANTIZE": (_follows, _dequantize),
    "DENSIFY": (_written, lambda call: call.real(0)),
    "CAST": (_follows, _cast),
    "RELU6": (_follows, partial(_clip, 0, 6)),
    "RELU_N1_TO_1": (_follows, partial(_clip, -1, 1)),
    "RELU_0_TO_1": (_follows, partial(_clip, 0, 1)),
    "LEAKY_RELU": (
        _follows,
        lambda c: c.emit("LeakyRelu", c.real(0), alpha=float(c.option("Alpha"))),
    ),
    "GELU": (
        _follows,
        lambda c: c.emit(
            "Gelu", c.real(0), approximate="tanh" if c.option("Approximate", False) else "none"
        ),
    ),
    "SQUARE": (_follows, _square),
    "SQUARED_DIFFERENCE": (_follows, _squared_difference),
    "RSQRT": (_follows, lambda c: c.emit("Reciprocal", c.emit("Sqrt", c.real(0)))),
    "FLOOR_DIV": (_follows, _floor_div),
    "FLOOR_MOD": (_follows, _floor_mod),
    "NOT_EQUAL": (_follows, lambda c: c.emit("Not", _same("Equal", c))),
    "ZEROS_LIKE": (_follows, _zeros),
    "SOFTMAX": (_written, _softmax),
    "LOG_SOFTMAX": (_written, partial(_same, "LogSoftmax", axis=-1)),
    "L2_NORMALIZATION": (_written, partial(_same, "LpNormalization", axis=-1, p=2)),
    "ARG_MAX": (_written, partial(_arg, "ArgMax")),
    "ARG_MIN": (_written, partial(_arg, "ArgMin")),
    "TOPK_V2": (_written, _top_k),
    "CUMSUM": (_written, _cumulated),
    "PAD": (_padded_image, _pad),
    "PADV2": (_padded_image, _pad),
    "MIRROR_PAD": (_padded_image, _mirror_pad),
    "RESHAPE": (_is_point, _reshape),
    "SQUEEZE": (_written, _squeeze),
    "EXPAND_DIMS": (_written, _expand_dims),
    "TRANSPOSE": (_follows, _transpose),
    "CONCATENATION": (_follows, _concat),
    "PACK": (_written, _pack),
    "SPLIT": (_split_image, _split),
    "SPLIT_V": (_follows, _split_v),
    "UNPACK": (_written, _unpack),
    "GATHER": (_written, _gather),
    "GATHER_ND": (_written, _gather_nd),
    "EMBEDDING_LOOKUP": (_written, _embedding),
    "SLICE": (_follows, _slice),
    "STRIDED_SLICE": (_sliced_image, _strided_slice),
    "REVERSE_V2": (_follows, _reverse),
    "SPACE_TO_BATCH_ND": (_written, _space_to_batch),
    "BATCH_TO_SPACE_ND": (_written, _batch_to_space),
    "TILE": (_written, partial(_expanded, op="Tile", k=0, shape=1)),
    "BROADCAST_TO": (_written, partial(_expanded, op="Expand", k=0, shape=1)),
    "FILL": (_written, partial(_expanded, op="Expand", k=1, shape=0)),
    "SHAPE": (_follows, _shape_of),
    "RANK": (_written, lambda call: call.const(len(_shape(call)), "int32")),
    "RANGE": (_written, partial(_same, "Range")),
    "SCATTER_ND": (_written, _scatter_nd),
    "ONE_HOT": (_written, _one_hot),
}
"""For each operator of TFLite the form in which it is read, and its rule."""
