"""A Relax function as plain values: the input of a translation, without TVM's classes.

Each `Value` is one binding: an operator, the tensors that it reads, and its other arguments as
Python numbers and tuples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vtaops.base.errors import ModelError, UnsupportedError
from vtaops.base.shapes import Array
from vtaops.graph.requantization import along

FOREIGN = "onnx."
"""Prefix of the packed functions that represent ONNX nodes that TVM does not support."""


@dataclass(frozen=True, eq=False)
class Value:
    """The result of one binding of a Relax function.

    Attributes
    ----------
    name
        Name of the Relax variable.
    op
        Name of the operator without `relax.`; also `input`, `constant`, `get_item` (of a tuple),
        `tir.NAME` (a call of a TIR function) and `onnx.KIND` (a node that TVM does not support).
    args
        Tensors that it reads.
    extra
        Its other arguments in order: shapes, numbers.
    shape, dtype
        Shape and dtype of the result; () and "tuple" for a tuple of tensors, () and "any" for a
        dynamic shape or anything else.
    attrs
        TVM's attributes of the operator; for `tir.NAME`, the TIR function.
    array
        The elements of a constant.
    var
        The Relax variable; None for constants.
    fixed
        Whether it depends only on constants.
    readers
        Bindings that read it; None for each use as an output of the function.
    steps
        Results of a translation by grid, for reuse.
    """

    name: str
    op: str
    args: tuple[Value, ...]
    shape: tuple[int, ...]
    dtype: str
    extra: tuple[Any, ...] = ()
    attrs: Any = None
    array: Array | None = None
    var: Any = None
    fixed: bool = False
    readers: list[Value | None] = field(default_factory=list, repr=False)
    steps: dict[Any, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Body:
    """A function: its inputs, all bindings in order, and its results.

    `single` is true if the function returns one tensor instead of a tuple.
    """

    inputs: tuple[Value, ...]
    bindings: tuple[Value, ...]
    outputs: tuple[Value, ...]
    single: bool


def read(mod: Any, function: str = "main") -> Body:
    """Return the values of a function of a Relax module without dataflow blocks.

    Raises
    ------
    ModelError
        If the function does not exist, a shape is not static, a variable is read before it is
        bound, or the number of scales of a grid is neither one nor that of the channels.
    UnsupportedError
        If it contains control flow or calls other Relax functions.
    """
    names = {variable.name_hint: variable for variable in mod.get_global_vars()}
    if function not in names or not isinstance(mod[function], relax.Function):
        raise ModelError(f"the module has no Relax function {function!r}; it has {sorted(names)}")
    return _Reader(mod).body(mod[function])


def bindings_of(function: Any) -> list[Any]:
    """Return the bindings of all blocks of a Relax function."""
    return [binding for block in function.body.blocks for binding in block.bindings]


Found = tuple[str, tuple[Value, ...], tuple[Any, ...], Any]
"""Operator, tensors, other arguments and attributes of a binding."""


class _Reader:
    def __init__(self, mod: Any) -> None:
        self._mod = mod
        self._values: dict[Any, Value] = {}
        self._bindings: list[Value] = []

    def body(self, function: Any) -> Body:
        inputs = []
        for parameter in function.params:
            shape, dtype = _type(parameter.ty, parameter.name, dynamic=False)
            value = Value(parameter.name, "input", (), shape, dtype, var=parameter)
            self._values[parameter] = value
            inputs.append(value)
        if not isinstance(function.body, relax.SeqExpr):
            raise UnsupportedError("a Relax function whose body is not a sequence of bindings")
        for binding in bindings_of(function):
            self._bind(binding)
        last = function.body.body
        single = not isinstance(last, relax.Tuple) and not isinstance(last.ty, relax.TupleType)
        outputs = (self._tensor(last),) if single else self._tensors(last)
        for value in outputs:
            value.readers.append(None)
        return Body(tuple(inputs), tuple(self._bindings), outputs, single)

    def _bind(self, binding: Any) -> None:
        variable, expression = binding.var, binding.value
        if not isinstance(expression, relax.TupleGetItem) and not hasattr(expression, "op"):
            self._values[variable] = self._tensor(expression)
            return
        shape, dtype = _type(variable.ty, variable.name)
        if isinstance(expression, relax.TupleGetItem):
            whole, index = self._tensor(expression.tuple_value), int(expression.index)
            if whole.op == "tuple":
                self._values[variable] = whole.args[index]
                return
            found: Found = "get_item", (whole,), (index,), None
        else:
            found = self._call(expression)
        op, args, extra, attrs = found
        fixed = all(argument.fixed for argument in args)
        value = Value(
            variable.name, op, args, shape, dtype, extra, attrs, var=variable, fixed=fixed
        )
        if op in ("quantize", "dequantize"):
            _check_grid(value)
        self._values[variable] = value
        self._bindings.append(value)
        for argument in args:
            argument.readers.append(value)

    def _call(self, call: Any) -> Found:
        name = getattr(call.op, "name", None)
        if name is None:
            raise UnsupportedError(
                f"a call of the Relax function {getattr(call.op, 'name_hint', call.op)}; vtaops "
                "reads one function: inline the others (relax.transform.InlinePrivateFunctions)"
            )
        if name == "relax.call_tir" and isinstance(call.args[0], tvm.ir.GlobalVar):
            args = self._tensors(call.args[1])
            function = call.args[0].name_hint
            return _tir_name(function, self._mod[function]), args, (), self._mod[function]
        arguments = list(call.args)
        if name == "relax.call_pure_packed":
            name = arguments.pop(0).global_symbol
        args_: list[Value] = []
        extra: list[Any] = []
        for argument in arguments:
            self._argument(argument, args_, extra)
        return name.removeprefix("relax."), tuple(args_), tuple(extra), call.attrs

    def _argument(self, argument: Any, args: list[Value], extra: list[Any]) -> None:
        fields = argument.fields if isinstance(argument, relax.Tuple) else [argument]
        if any(map(_is_tensor, fields)):
            args.extend(self._tensors(argument))
        elif isinstance(argument, relax.Tuple):
            extra.append(tuple(map(_number, fields)))
        elif isinstance(argument, relax.ShapeExpr):
            extra.append(tuple(map(_number, argument.values)))
        else:
            extra.append(_number(argument))

    def _tensors(self, expression: Any) -> tuple[Value, ...]:
        """Return a tensor, or the tensors of a tuple."""
        whole = self._tensor(expression)
        return whole.args if whole.op == "tuple" else (whole,)

    def _tensor(self, expression: Any) -> Value:
        if isinstance(expression, relax.Var):
            if expression not in self._values:
                raise ModelError(
                    f"the Relax variable {expression.name!r} is read where nothing is bound to it"
                )
            return self._values[expression]
        if isinstance(expression, relax.Tuple):
            fields = tuple(map(self._tensor, expression.fields))
            return Value("tuple", "tuple", fields, (), "tuple")
        if hasattr(expression, "value"):
            array = expression.value.numpy()
            kind = str(array.dtype)
            return Value("constant", "constant", (), array.shape, kind, array=array, fixed=True)
        raise UnsupportedError(f"an expression {type(expression).__name__} inside another one")


def _check_grid(value: Value) -> None:
    """Reject errors that TVM accepts: a wrong number of scales, non-integer zero points."""
    axis, extents = int(value.attrs.axis), value.args[0].shape
    channels = extents[axis] if -len(extents) <= axis < len(extents) else 1
    for parameter, name in zip(value.args[1:], ("scales", "zero points"), strict=True):
        count = math.prod(parameter.shape)
        if count not in (1, channels):
            raise ModelError(
                f"the tensor {value.name!r} of shape {extents} is quantised with {count} {name} "
                f"along its axis {axis}; give one, or one for each of its {channels} channels"
            )
    zero = value.args[2].array
    if zero is not None and not np.array_equal(zero, np.rint(zero)):
        raise ModelError(f"the tensor {value.name!r} is quantised with a zero point {zero.flat[0]}")


def _tir_name(name: str, function: Any) -> str:
    """Return the operator that a TIR function implements, if a front end emitted it as such."""
    for operator, sign in (("maximum", "T.max("), ("minimum", "T.min(")):
        if name.startswith(operator) and function.script().count(sign) == 1:
            return operator
    return f"tir.{name}"


def _is_tensor(expression: Any) -> bool:
    return isinstance(expression, relax.Var) or hasattr(getattr(expression, "value", 0), "numpy")


def _number(expression: Any) -> Any:
    value = getattr(expression, "value", expression)
    if isinstance(value, int | float | str):
        return value
    return str(expression)


def _type(annotation: Any, name: str, *, dynamic: bool = True) -> tuple[tuple[int, ...], str]:
    """Return the shape and dtype of a Relax type; "any" for a dynamic one, if allowed."""
    if hasattr(annotation, "fields"):
        return (), "tuple"
    shape = getattr(annotation, "shape", None)
    try:
        extents = None if shape is None else tuple(int(extent) for extent in shape)
    except TypeError:
        extents = None
    if extents is not None:
        dtype = annotation.dtype
        return extents, str(getattr(dtype, "dtype", dtype))
    if not dynamic:
        raise ModelError(
            f"the input {name!r} has the dynamic shape {shape}; VTA's programs are compiled for "
            "one shape"
        )
    return (), "any"


# ------------------------------------------------------- constants and attributes


def pair(numbers: Any) -> tuple[int, int]:
    """Return two TVM numbers as a tuple; a single number is repeated."""
    found = [int(number) for number in numbers]
    return found[0], found[-1]


def sides(padding: Any) -> tuple[int, int, int, int]:
    """Return TVM's padding of one, two or four numbers as (top, left, bottom, right)."""
    found = [int(side) for side in padding]
    top, left, bottom, right = found * (4 // len(found))
    return top, left, bottom, right


def real(value: Value) -> Array | None:
    """Return the elements of a value that depends only on constants, else None."""
    if not value.fixed:
        return None
    if value.array is not None:
        return value.array.astype(np.float64) if value.array.dtype.kind == "f" else value.array
    if value.op == "dequantize":
        found = integers(value)
        return found and found[0] * found[1]
    function = _FOLDED.get(value.op)
    arguments = [real(argument) for argument in value.args]
    if function is None or any(argument is None for argument in arguments):
        return None
    with np.errstate(all="ignore"):  # readers of a scale or a table check that it is finite
        return np.asarray(function(value, *arguments))


def integers(value: Value) -> tuple[Array, Array] | None:
    """Return the integers, less their zero point, and the scales of a dequantised constant.

    The scales broadcast to the shape of the integers. None for any other value.
    """
    if value.fixed and value.op in ("reshape", "permute_dims", "expand_dims", "squeeze"):
        found = integers(value.args[0])
        if found is None:
            return None
        first, second = np.broadcast_arrays(*found)
        return _FOLDED[value.op](value, first), _FOLDED[value.op](value, second)
    if not value.fixed or value.op != "dequantize":
        return None
    data, scale, zero = map(real, value.args)
    if data is None or scale is None or zero is None or data.dtype.kind not in "iu":
        return None
    axis, rank = int(value.attrs.axis), data.ndim
    zero = along(axis, rank, zero.astype(np.int64).squeeze())
    return data.astype(np.int64) - zero, along(axis, rank, scale.squeeze())


def _reshaped(value: Value, x: Array) -> Array:
    return x.reshape(value.shape)


def _transposed(value: Value, x: Array) -> Array:
    axes = value.attrs.axes
    return np.transpose(x, None if axes is None else [int(axis) for axis in axes])


def _quantized(value: Value, x: Array, scale: Array, zero: Array) -> Array:
    """Return the integers of a constant that the file quantises when it runs."""
    axis, kind = int(value.attrs.axis), np.iinfo(value.dtype)
    steps, offset = (along(axis, x.ndim, part.squeeze()) for part in (scale, zero))
    rounded = np.rint(x.astype(np.float32) / steps.astype(np.float32)) + offset
    return rounded.clip(kind.min, kind.max).astype(value.dtype)


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda _, x, y: x + y,
    "subtract": lambda _, x, y: x - y,
    "multiply": lambda _, x, y: x * y,
    "divide": lambda _, x, y: x / y,
    "sqrt": lambda _, x: np.sqrt(x),
    "rsqrt": lambda _, x: 1 / np.sqrt(x),
}
"""Operators of Relax in NumPy; they take their value and the arguments."""

_FOLDED: dict[str, Callable[..., Any]] = ARITHMETIC | {
    "reshape": _reshaped,
    "expand_dims": _reshaped,
    "squeeze": _reshaped,
    "permute_dims": _transposed,
    "quantize": _quantized,
    "isnan": lambda _, x: np.isnan(x),
    "where": lambda _, c, x, y: np.where(c, x, y),
    "astype": lambda value, x: x.astype(value.dtype),
}
"""Operators on constants that front ends leave in a graph."""
