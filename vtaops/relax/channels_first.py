"""Convert images from channels last, as in TFLite, to channels first in Relax.

Every tensor of rank 4 has up to two forms, as written and as an NCHW image; one is converted to the
other on demand. Convolutions and pools read images, elementwise operators follow their operands,
and all other operators read tensors as written. Operators that the front end computes directly on
quantised integers (activations, pools, reshapes) are placed between dequantize and quantize on the
grid of their operand, which is the normal form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvm import relax

from vtaops.relax.values import bindings_of

TO_IMAGE, FROM_IMAGE = (0, 3, 1, 2), (0, 2, 3, 1)

ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        *("quantize", "dequantize", "add", "subtract", "multiply", "divide", "maximum", "minimum"),
        *("clip", "sigmoid", "tanh", "exp", "sqrt", "abs", "negative"),
        *("nn.relu", "nn.leakyrelu", "nn.gelu", "nn.silu"),
    )
)
"""Operators that are independent of the layout."""

Grid = tuple[Any, Any, str]
"""Scale and zero point as Relax constants, and the integer dtype."""

Get = Callable[[Any], Any]


def channels_first(mod: Any) -> Any:
    """Return a Relax module whose `main` computes on NCHW images; its arguments do not change.

    Parameters
    ----------
    mod
        A module without dataflow blocks, whose convolutions and pools read NHWC images.
    """
    function = mod["main"]
    bindings = bindings_of(function)
    parameters = [relax.Var(old.name, old.ty) for old in function.params]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        rewriter = _Rewriter(builder, bindings)
        rewriter.written.update(zip(function.params, parameters, strict=True))
        for binding in bindings:
            rewriter.bind(binding.var, binding.value)
        builder.emit_func_output(rewriter.as_written(function.body.body))
    return builder.get()


class _Rewriter:
    """The forms of all tensors, by variable of the source module."""

    def __init__(self, builder: Any, bindings: Iterable[Any]) -> None:
        self.emit = builder.emit
        self.written: dict[Any, Any] = {}
        self.images: dict[Any, Any] = {}
        self.grids = _grids(bindings)

    def bind(self, var: Any, value: Any) -> None:
        """Emit a binding that computes on images."""
        name = getattr(getattr(value, "op", None), "name", "")
        if name == "relax.astype" and var in self.grids:  # the same grid with more bits
            self._alias(var, value.args[0])
            return
        image = self._is_image(name, value)
        get: Get = self.as_image if image else self.as_written
        moves = name in KEEPING and value.args[0] in self.grids
        grid = self.grids.get(var) if moves else None
        read = get if grid is None else lambda e: self._real(get(e), self.grids.get(e))
        made = self._call(name, value, read, image, grid)
        if grid is not None:
            made = self._rounded(self.emit(made), grid)
        kept = self.images if image and _rank(var) == 4 else self.written
        kept[var] = self.emit(made)

    def _alias(self, var: Any, other: Any) -> None:
        for forms in (self.written, self.images):
            if other in forms:
                forms[var] = forms[other]

    # --------------------------------------------------------------------------- forms

    def as_written(self, expression: Any) -> Any:
        """Return an expression on tensors as written."""
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self.as_written(field) for field in expression.fields])
        if not isinstance(expression, relax.Var):
            return expression
        if expression not in self.written:
            self.written[expression] = self._turned(expression, self.images, FROM_IMAGE)
        return self.written[expression]

    def as_image(self, expression: Any) -> Any:
        """Return a tensor of rank 4 as an image; per-channel values have shape (1, C, 1, 1)."""
        if isinstance(expression, relax.Var) and _rank(expression) == 4:
            if expression not in self.images:
                self.images[expression] = self._turned(expression, self.written, TO_IMAGE)
            return self.images[expression]
        found = self.as_written(expression)
        rank = _rank(found)
        if rank == 4:
            return self.emit(relax.op.permute_dims(found, TO_IMAGE))
        if rank == 1:
            return self.emit(relax.op.reshape(found, (1, int(found.ty.shape[0]), 1, 1)))
        return found

    def _turned(self, old: Any, forms: dict[Any, Any], axes: tuple[int, ...]) -> Any:
        grid = self.grids.get(old)
        turned = self.emit(relax.op.permute_dims(self._real(forms[old], grid), axes))
        return turned if grid is None else self.emit(self._rounded(turned, grid))

    def _real(self, form: Any, grid: Grid | None) -> Any:
        return form if grid is None else self.emit(relax.op.dequantize(form, *grid[:2], axis=0))

    @staticmethod
    def _rounded(form: Any, grid: Grid) -> Any:
        scale, zero, kind = grid
        return relax.op.quantize(form, scale, zero, axis=0, out_dtype=kind)

    # ----------------------------------------------------------------------- operators

    def _is_image(self, name: str, value: Any) -> bool:
        """Return whether an operator is computed on images."""
        if name in IMAGES:
            return _rank(value.args[0]) == 4
        if name not in ELEMENTWISE and name not in FOLLOWING:
            return False
        first = value.args[0]
        fields = first.fields if isinstance(first, relax.Tuple) else value.args
        tensors = [field for field in fields if isinstance(field, relax.Var)]
        if self.images.keys().isdisjoint(tensors) or {2, 3} & {*map(_rank, tensors)}:
            return False
        return name in ELEMENTWISE or FOLLOWING[name](value)

    def _call(self, name: str, value: Any, get: Get, image: bool, grid: Grid | None) -> Any:
        if not hasattr(value, "op"):
            return get(value)
        if name == "relax.clip" and grid is not None:
            scale, zero = (float(constant.value.numpy()) for constant in grid[:2])
            low, high = ((float(bound.value) - zero) * scale for bound in value.args[1:])
            return relax.op.clip(get(value.args[0]), low, high)
        if image and name in OPERATORS:
            return OPERATORS[name](value, get, self)
        pairs = name in ("relax.quantize", "relax.dequantize")
        first, *others = value.args
        args = [get(first), *(others if pairs else map(get, others))]
        return relax.Call(value.op, args, value.attrs, value.ty_args)


def _grids(bindings: Iterable[Any]) -> dict[Any, Grid]:
    """Return the grids of integer tensors; operators that move or clip values keep the grid."""
    found: dict[Any, Grid] = {}
    every = list(bindings)
    for binding in every:
        value = binding.value
        name = getattr(getattr(value, "op", None), "name", "")
        if name == "relax.quantize":
            found[binding.var] = (*value.args[1:3], str(value.attrs.out_dtype))
        elif name == "relax.dequantize" and isinstance(value.args[0], relax.Var):
            kind = str(value.args[0].ty.dtype)
            found.setdefault(value.args[0], (*value.args[1:3], kind))
        elif name in KEEPING and value.args[0] in found:
            found[binding.var] = found[value.args[0]]
    for binding in reversed(every):  # operators that move an input before it is dequantised
        name = getattr(getattr(binding.value, "op", None), "name", "")
        kept = name in KEEPING and binding.var in found
        if kept and isinstance(binding.value.args[0], relax.Var):
            found.setdefault(binding.value.args[0], found[binding.var])
    return found


KEEPING = frozenset(
    f"relax.{name}"
    for name in (
        *("astype", "clip", "reshape", "squeeze", "expand_dims", "permute_dims", "strided_slice"),
        *("nn.max_pool2d", "nn.avg_pool2d", "nn.relu", "image.resize2d"),
    )
)
"""Integer operators whose results have the grid of their operand."""


def _rank(expression: Any) -> int:
    shape = getattr(getattr(expression, "ty", None), "shape", None)
    return -1 if shape is None else len(shape)


def _numbers(values: Iterable[Any]) -> list[int]:
    return [int(value) for value in values]


def _attributes(value: Any, *names: str) -> dict[str, Any]:
    """Return attributes of an operator as Python numbers, lists and strings."""
    found = {name: getattr(value.attrs, name) for name in names}
    return {name: v if isinstance(v, int | str) else _numbers(v) for name, v in found.items()}


def _convolution(value: Any, get: Get, rewriter: _Rewriter) -> Any:
    weight = rewriter.as_written(value.args[1])
    axes = {"HWIO": (3, 2, 0, 1), "HWOI": (2, 3, 0, 1)}[str(value.attrs.kernel_layout)]
    return relax.op.nn.conv2d(
        get(value.args[0]),
        rewriter.emit(relax.op.permute_dims(weight, axes)),
        **_attributes(value, "strides", "padding", "dilation", "groups"),
    )


def _transposed_convolution(value: Any, get: Get, rewriter: _Rewriter) -> Any:
    attrs = _attributes(value, "strides", "padding", "output_padding", "dilation", "groups")
    weight = rewriter.as_written(value.args[1])  # TVM's front end writes IOHW
    return relax.op.nn.conv2d_transpose(get(value.args[0]), weight, **attrs)


def _pool(value: Any, get: Get, _: _Rewriter) -> Any:
    make = getattr(relax.op.nn, value.op.name.removeprefix("relax.nn."))
    window = _attributes(value, "pool_size", "strides", "padding", "dilation")
    counted = _attributes(value, "ceil_mode", "count_include_pad")
    return make(get(value.args[0]), **window, **counted)


def _resize(value: Any, get: Get, _: _Rewriter) -> Any:
    attrs = _attributes(value, "method", "coordinate_transformation_mode", "rounding_method")
    return relax.op.image.resize2d(get(value.args[0]), value.args[1], layout="NCHW", **attrs)


def _pad(value: Any, get: Get, _: _Rewriter) -> Any:
    widths = _numbers(value.attrs.pad_width)
    turned = [width for axis in TO_IMAGE for width in widths[2 * axis : 2 * axis + 2]]
    return relax.op.nn.pad(get(value.args[0]), turned, value.attrs.pad_mode, *value.args[1:])


def _mean(value: Any, get: Get, _: _Rewriter) -> Any:
    return relax.op.mean(get(value.args[0]), [2, 3], bool(value.attrs.keepdims))


def _concat(value: Any, get: Get, _: _Rewriter) -> Any:
    return relax.op.concat([get(field) for field in value.args[0].fields], axis=1)


OPERATORS: dict[str, Callable[[Any, Get, _Rewriter], Any]] = {
    "relax.nn.conv2d": _convolution,
    "relax.nn.conv2d_transpose": _transposed_convolution,
    "relax.nn.max_pool2d": _pool,
    "relax.nn.avg_pool2d": _pool,
    "relax.image.resize2d": _resize,
    "relax.nn.pad": _pad,
    "relax.mean": _mean,
    "relax.concat": _concat,
    "relax.reshape": lambda value, get, _: relax.op.reshape(get(value.args[0]), value.args[1]),
}
"""How to compute operators with axes on images."""

IMAGES = frozenset(list(OPERATORS)[:6])
"""Operators that are always computed on images."""

FOLLOWING: dict[str, Callable[[Any], bool]] = {
    "relax.mean": lambda value: _numbers(value.attrs.axis) == [1, 2],
    "relax.concat": lambda value: int(value.attrs.axis) in (3, -1),
    "relax.reshape": lambda value: _numbers(value.args[0].ty.shape)[1:3] == [1, 1],
}
"""Operators that are computed on images if their operand is one, with a condition."""
