"""Operators of ONNX whose attributes and optional inputs are drawn from all that there are.

Each case is a file of one operator, or of two or three that follow each other, in an opset from 9
to 21: any attribute is stated or left out, optional inputs are there or not, ranks are 1 to 5,
batches 1 to 4. Tensors lie on random grids, or only the result does, or none. What becomes of the
file is held against ONNX Runtime.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops.errors import UnsupportedError
from vtaops.frontends import import_model
from vtaops.graph import evaluate
from vtaops.graph.probe import Probe
from vtaops.runtime.arguments import as_tuple

FIRST, LAST = 9, 21
"""The opsets that are drawn."""

_HISTORY = [each for each in defs.get_all_schemas_with_history() if not each.domain]
SINCE = {
    name: min(each.since_version for each in _HISTORY if each.name == name)
    for name in {each.name for each in _HISTORY}
}
"""The first opset of each operator."""


class Case:
    """A file, operator by operator: ``Gemm/7``, ``Conv+Relu/7``.

    Attributes
    ----------
    data : dict of str to ndarray
        The inputs of the file.
    inputs : list of str
        The operands of the operator that is drawn.
    source : (str, tuple of int) or None
        The result of the operator before it, which one of its operands may be.
    """

    def __init__(self, case: str) -> None:
        self.name, kinds = case, case.split("/")[0].split("+")
        self.random = random.Random(case)
        self.numbers = np.random.default_rng(self.random.getrandbits(30))
        self.grids = self.one("all", "all", "result", "none")
        least = FIRST if self.grids == "none" else 10
        self.opset = self.random.randint(max(least, *map(SINCE.__getitem__, kinds)), LAST)
        self.batch = self.random.randint(1, 4)
        self.data: dict[str, np.ndarray] = {}
        self.exact = True  # but for the last rounding
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.source: tuple[str, tuple[int, ...]] | None = None
        for number, kind in enumerate(kinds, 1):
            self._draw(kind, last=number == len(kinds))

    def _draw(self, kind: str, *, last: bool) -> None:
        self.kind, self.outputs = kind, 1
        self.inputs: list[str] = []
        self.attributes: dict[str, Any] = {}
        KINDS[kind](self)
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()
        names = [f"y{len(self.nodes)}_{number}" for number in range(self.outputs)]
        self.nodes.append(helper.make_node(kind, self.inputs, names, **self.attributes))
        (found,) = Probe(self.model(onnx.ValueInfoProto(name=names[0]))).run(self.data).values()
        self.result, element = names[0], helper.np_dtype_to_tensor_dtype(found.dtype)
        self.step = 0.0
        real = element == TensorProto.FLOAT and found.size and np.isfinite(found).all()
        if real and ((last and self.grids != "none") or (self.grids == "all" and self.often())):
            self.result = self.pair(names[0], 2 * float(np.abs(found).max()))
            self.exact &= last
        self.source = (self.result, found.shape) if real else None
        self.output = helper.make_tensor_value_info(self.result, element, found.shape)

    def pair(self, name: str, reach: float) -> str:
        """Round a tensor to a random grid; return the result."""
        self.step = self.numbers.uniform(1, 2) * max(reach, 1e-3) / 255
        self.step = float(2.0 ** np.ceil(np.log2(self.step)) if self.one(0, 1) else self.step)
        dtype = np.dtype(self.one("int8", "int8", "uint8"))
        middle = 128 * (dtype == np.uint8)
        zero = middle + int(self.numbers.choice([0, 0, self.numbers.integers(-60, 60)]))
        grid = [self.named(f"{name}:scale", np.float32(self.step))]
        grid.append(self.named(f"{name}:zero", dtype.type(zero)))
        rounded, real = f"{name}:rounded", f"{name}:real"
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *grid], [rounded]))
        self.nodes.append(helper.make_node("DequantizeLinear", [rounded, *grid], [real]))
        return real

    def named(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def model(self, output: onnx.ValueInfoProto) -> onnx.ModelProto:
        """Return the file as it is so far, with one output."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in self.data.items()
        ]
        graph = helper.make_graph(self.nodes, "drawn", inputs, [output], self.constants)
        opset = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    # ------------------------------------------------------------------------- operands

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def often(self) -> bool:
        return self.random.random() < 0.6

    def shape(self, least: int = 1, most: int = 5) -> list[int]:
        if self.source and least <= len(self.source[1]) <= most:
            return [*self.source[1]]
        rank = self.random.randint(least, most)
        return [self.batch, *(self.random.randint(1, 6) for _ in range(rank - 1))]

    def tensor(self, shape: Any, low: float = -3, high: float = 3) -> list[int]:
        """Add an operand that varies: the source if it has this shape, otherwise an input."""
        if self.source and self.source[1] == tuple(shape):
            self.inputs.append(self.source[0])
            self.source = None
            return list(shape)
        name = f"x{len(self.data)}"
        self.data[name] = self.numbers.uniform(low, high, shape).astype(np.float32)
        reach = 2 * float(np.abs(self.data[name]).max())
        self.inputs.append(self.pair(name, reach) if self.grids == "all" else name)
        return list(shape)

    def constant(self, value: Any, dtype: Any = np.float32) -> None:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        self.inputs.append(name)

    def weight(self, *shape: int, low: float = -1) -> None:
        self.constant(self.numbers.uniform(low, 1, shape))

    def absent(self) -> None:
        self.inputs.append("")

    def state(self, **attributes: Any) -> None:
        """State some of the attributes that the operator has in this opset."""
        known = defs.get_schema(self.kind, self.opset).attributes
        for name, value in attributes.items():
            if name in known and (known[name].required or self.often()):
                self.attributes[name] = value

    def axis(self, rank: int) -> int:
        return self.random.randrange(-rank, rank)

    def axes(self, rank: int) -> list[int]:
        picked = self.random.sample(range(rank), self.random.randint(1, rank))
        return [axis - rank * self.one(0, 0, 1) for axis in picked]

    def axes_of(self, rank: int, since: int, *, needed: bool = False) -> None:
        """State axes as an attribute, or as an input since an opset."""
        if self.opset < since:
            self.state(axes=self.axes(rank))
        elif needed or self.often():
            self.constant(self.axes(rank), np.int64)

    # --------------------------------------------------------------------------- windows

    def window(self, kernel: list[int], *, more: tuple[str, ...] = ()) -> None:
        sides = len(kernel)

        def each(low: int, high: int, count: int = sides) -> list[int]:
            return [self.random.randint(low, high) for _ in range(count)]

        self.state(strides=each(1, 3), dilations=each(1, 2))
        # ONNX Runtime's pools pad by themselves as if there were no dilation.
        automatic = not ("Pool" in self.kind and "dilations" in self.attributes)
        if automatic and self.random.random() < 0.3:
            self.state(auto_pad=self.one("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
        if self.attributes.get("auto_pad", "NOTSET") == "NOTSET":
            self.state(pads=[self.random.randint(0, size - 1) for size in (*kernel, *kernel)])
        self.state(**{name: self.random.randint(0, 1) for name in more})

    def channels(self, most: int) -> int:
        """Return the channels of the source, or of the next image."""
        shape = self.source[1] if self.source else ()
        return shape[1] if 3 <= len(shape) <= 5 else self.random.randint(1, most)

    def image(self, channels: int) -> list[int]:
        shape = self.source[1] if self.source else ()
        if 3 <= len(shape) <= 5 and shape[1] == channels:
            return self.tensor(shape)
        sides = self.one(1, 2, 2, 2, 3)
        sizes = (self.random.randint(4, 8) for _ in range(sides))
        return self.tensor([self.batch, channels, *sizes])


Kind = Callable[[Case], None]


def conv(op: Case) -> None:
    channels, more = op.channels(8), op.random.randint(1, 4)
    group = op.one(1, 1, *(each for each in (2, 3, channels) if channels % each == 0))
    per = channels // group
    sides = op.image(channels)[2:]
    kernel = [op.random.randint(1, 3) for _ in sides]
    turned = op.kind == "ConvTranspose"
    op.weight(*((group * per, more) if turned else (group * more, per)), *kernel)
    if op.often():
        op.weight(group * more)
    op.attributes |= {"group": group} if group > 1 or op.often() else {}
    op.window(kernel)
    op.state(kernel_shape=kernel)
    if turned:
        if "SAME" not in op.attributes.get("auto_pad", ""):  # which ONNX Runtime makes larger
            op.state(output_padding=[op.random.randint(0, 1) for _ in sides])
        if op.random.random() < 0.2:
            op.state(output_shape=[side + op.random.randint(0, 3) for side in sides])


def pool(op: Case) -> None:
    sides = op.image(op.channels(5))[2:]
    kernel = [op.random.randint(1, 4) for _ in sides]
    op.window(kernel, more=("ceil_mode", "count_include_pad", "storage_order"))
    op.state(kernel_shape=kernel, p=op.random.randint(1, 3))


def image(op: Case) -> None:
    op.image(op.channels(6))
    op.state(p=op.random.randint(1, 3))


def gemm(op: Case) -> None:
    m, k, n = (op.random.randint(1, 6) for _ in range(3))
    turned = {name: op.random.randint(0, 1) for name in ("transA", "transB")}
    op.state(**turned, alpha=op.random.uniform(0.2, 2), beta=op.random.uniform(0.2, 2))
    first = [k, m] if op.attributes.get("transA") else [m, k]
    second = [n, k] if op.attributes.get("transB") else [k, n]
    op.tensor(first)
    op.one(op.weight, lambda *shape: op.tensor(shape))(*second)
    term = op.one(None, (n,), (m, 1), (m, n), (1, n), ())
    if term is not None:
        op.one(op.weight, lambda *shape: op.tensor(shape))(*term)
    elif op.opset < 11:
        op.weight(n)


def matmul(op: Case) -> None:
    m, k, n = (op.random.randint(1, 6) for _ in range(3))
    outer = op.shape(1, 3)
    first = op.one([m, k], [*outer, m, k], [k])
    second = op.one([k, n], [*outer, k, n], [k], [*(1 for _ in outer), k, n])
    op.tensor(first)
    op.one(op.weight, lambda *shape: op.tensor(shape))(*second)


def norm(op: Case) -> None:
    shape = op.tensor(op.shape(2, 4))
    channels = shape[1]
    op.weight(channels)
    op.weight(channels)
    if op.kind == "BatchNormalization":
        op.weight(channels)
        op.weight(channels, low=0.1)
    op.state(epsilon=op.one(1e-5, 1e-3, 0.1), momentum=0.8)


def layer_norm(op: Case) -> None:
    shape = op.tensor(op.shape(2, 4))
    axis = op.axis(len(shape))
    op.attributes |= {"axis": axis} if op.often() else {}
    rows = shape[op.attributes.get("axis", -1) :]
    op.one(op.weight, op.weight, lambda *each: op.tensor(each))(*rows)
    if op.often():
        op.one(op.weight, op.weight, lambda *each: op.tensor(each))(*rows)
    op.state(epsilon=op.one(1e-5, 1e-3, 0.1))


def group_norm(op: Case) -> None:
    op.opset = 21
    groups = op.random.randint(1, 3)
    shape = op.tensor([op.batch, groups * op.random.randint(1, 3), *op.shape(1, 2)])
    op.weight(shape[1])
    op.weight(shape[1])
    op.state(num_groups=groups, epsilon=op.one(1e-5, 0.1))


def lrn(op: Case) -> None:
    op.tensor([op.batch, op.random.randint(1, 6), 3, 4])
    numbers = {name: op.random.uniform(0.1, 1) for name in ("alpha", "beta", "bias")}
    op.state(size=op.one(1, 3, 5), **numbers)


def last_axis(op: Case) -> None:
    shape = op.tensor(op.shape())
    op.state(axis=op.axis(len(shape)), p=op.one(1, 2), axes=op.axes(len(shape)))


def binary(op: Case) -> None:
    shape = op.shape()
    low = 0.5 if op.kind in ("Div", "Pow", "Mod") else -3
    other = [op.one(1, extent, extent) for extent in shape][op.random.randrange(len(shape)) :]
    first, second = op.one((shape, other), (shape, shape), (other, shape), (shape, []))
    if op.kind == "Pow":
        op.tensor(first, 0.2, 2)
        op.constant(op.one(2, 0.5, 3, -1))
        return
    op.tensor(first)
    numbers = op.numbers.uniform(low, 3, second)
    op.constant(numbers) if op.often() else op.tensor(second, low)
    if op.kind in ("Add", "Mul", "Max", "Min") and op.one(0, 1):
        op.inputs.reverse()
    op.state(fmod=1)


def prelu(op: Case) -> None:
    shape = op.tensor(op.shape(2, 4))
    op.weight(*op.one((1,), (shape[1], *(1 for _ in shape[2:])), shape[1:]))


def variadic(op: Case) -> None:
    shape = op.shape()
    for _ in range(op.random.randint(1, 4)):
        op.tensor(shape) if op.often() else op.weight(*shape)
    if not op.data:
        op.tensor(shape)


def concat(op: Case) -> None:
    shape = op.shape()
    axis = op.axis(len(shape))
    for _ in range(op.random.randint(1, 4)):
        shape[axis] = op.random.randint(1, 4)
        op.weight(*shape) if op.data and op.one(0, 0, 1) else op.tensor(shape)
    op.attributes["axis"] = axis


def unary(op: Case) -> None:
    positive = op.kind in ("Sqrt", "Log", "Reciprocal")
    op.tensor(op.shape(), 0.1 if positive else -3)
    numbers = {
        name: op.random.uniform(-1, 2) for name in ("alpha", "beta", "gamma", "bias", "lambd")
    }
    if op.kind in ("Celu", "Selu", "Elu"):
        numbers = {name: abs(value) + 0.1 for name, value in numbers.items()}
    op.state(**numbers, approximate=op.one("none", "tanh"))


def clip(op: Case) -> None:
    op.tensor(op.shape())
    low, high = op.random.uniform(-2, 2), op.random.uniform(-2, 2)
    if op.opset < 11:
        op.state(min=min(low, high), max=max(low, high))
        return
    for bound in (low, high):  # which may exclude each other
        op.constant(bound) if op.often() else op.absent()


def reduced(op: Case) -> None:
    positive = op.kind in ("ReduceLogSum", "ReduceProd")
    shape = op.tensor(op.shape(), 0.5 if positive else -3)
    op.axes_of(len(shape), 13 if op.kind == "ReduceSum" else 18)
    op.state(keepdims=op.one(0, 1), noop_with_empty_axes=op.one(0, 1))


def arg(op: Case) -> None:
    shape = op.tensor(op.shape())
    op.state(axis=op.axis(len(shape)), keepdims=op.one(0, 1), select_last_index=op.one(0, 1))


def topk(op: Case) -> None:
    shape = op.tensor(op.shape())
    axis = op.axis(len(shape))
    op.state(axis=axis, largest=op.one(0, 1))
    op.constant([op.random.randint(1, shape[op.attributes.get("axis", -1)])], np.int64)
    if op.opset < 10:
        op.opset = 10
    op.outputs = 2


def cumsum(op: Case) -> None:
    shape = op.tensor(op.shape())
    op.constant(op.axis(len(shape)), np.int64)
    op.state(exclusive=op.one(0, 1), reverse=op.one(0, 1))


def transpose(op: Case) -> None:
    rank = len(op.tensor(op.shape()))
    op.state(perm=op.random.sample(range(rank), rank))


def reshape(op: Case) -> None:
    shape = op.tensor(op.shape())
    total = int(np.prod(shape))
    parts = [part for part in range(1, total + 1) if total % part == 0]
    first = op.one(*parts)
    target = op.one([first, total // first], [-1], [0, -1], [first, -1], [1, total, 1], [*shape, 1])
    op.constant(target, np.int64)
    op.state(allowzero=0)


def flatten(op: Case) -> None:
    rank = len(op.tensor(op.shape()))
    op.state(axis=op.random.randint(0 if op.opset < 11 else -rank, rank))


def squeeze(op: Case) -> None:
    shape = op.shape()
    ones = op.random.sample(range(len(shape)), op.random.randint(1, len(shape)))
    for axis in ones:
        shape[axis] = 1
    op.tensor(shape)
    axes = [axis - len(shape) * op.one(0, 1) for axis in ones] if op.opset >= 11 else ones
    if op.opset < 13:
        op.state(axes=axes)
    elif op.often():
        op.constant(axes, np.int64)


def unsqueeze(op: Case) -> None:
    rank = len(op.tensor(op.shape(1, 3)))
    axes = op.random.sample(range(rank + 2), op.random.randint(1, 2))
    if op.opset < 13:
        op.attributes["axes"] = axes
    else:
        op.constant(axes, np.int64)


def sliced(op: Case) -> None:
    shape = op.tensor(op.shape())
    axes = op.random.sample(range(len(shape)), op.random.randint(1, len(shape)))
    starts = [op.random.randint(-shape[axis], shape[axis] - 1) for axis in axes]
    steps = [op.one(1, 1, 2, -1, -2) if op.opset >= 10 else 1 for _ in axes]
    ends = [op.one(1 << 40, shape[a], -1) if s > 0 else op.one(-(1 << 40), 0) for a, s in
            zip(axes, steps, strict=True)]  # fmt: skip
    if op.opset < 10:
        op.attributes |= {"starts": starts, "ends": ends, "axes": axes}
        return
    for numbers in (starts, ends, axes, steps):
        op.constant(numbers, np.int64)


def gather(op: Case) -> None:
    shape = op.tensor(op.shape())
    axis = op.axis(len(shape))
    op.attributes |= {"axis": axis} if op.often() else {}
    extent = shape[op.attributes.get("axis", 0)]
    least = -extent if op.opset >= 11 else 0
    count = op.one((), (1,), (3,), (2, 2))
    op.constant(op.numbers.integers(least, extent, count), np.int64)


def split(op: Case) -> None:
    shape = op.shape()
    axis = op.axis(len(shape))
    parts = [op.random.randint(1, 3) for _ in range(op.random.randint(1, 3))]
    if op.often():
        parts = [parts[0]] * len(parts)
    shape[axis] = sum(parts)
    op.attributes["axis"] = axis
    op.tensor(shape)
    op.outputs = len(parts)
    even = len({*parts}) == 1
    if op.opset < 13:
        op.attributes |= {} if even and op.often() else {"split": parts}
    elif even and op.often():
        op.attributes |= {"num_outputs": len(parts)} if op.opset >= 18 else {}
    else:
        op.constant(parts, np.int64)


def pad(op: Case) -> None:
    shape = op.tensor(op.shape(2, 4))
    mode = op.one("constant", "constant", "reflect", "edge", *(["wrap"] if op.opset > 18 else []))
    op.state(mode=mode)
    inner = op.attributes.get("mode") in ("reflect", "wrap")
    ends = [op.random.randint(0, min(2, n - 1) if inner else 2) for n in (*shape, *shape)]
    if op.opset < 11:
        op.attributes["pads"] = ends
        op.state(value=op.random.uniform(-1, 1))
        return
    axes = (
        op.random.sample(range(len(shape)), len(shape)) if op.opset >= 18 and op.one(0, 1) else []
    )
    op.constant([ends[a + half] for half in (0, len(shape)) for a in axes] or ends, np.int64)
    op.constant(op.random.uniform(-1, 1)) if op.often() else op.absent()
    if axes:
        op.constant(axes, np.int64)


def expand(op: Case) -> None:
    shape = op.shape(1, 4)
    ones = [op.one(1, extent) for extent in shape]
    op.tensor(ones)
    op.constant([*op.one([], [2]), *shape] if op.often() else shape, np.int64)


def tile(op: Case) -> None:
    shape = op.tensor(op.shape(1, 4))
    op.constant([op.random.randint(1, 3) for _ in shape], np.int64)


def depth(op: Case) -> None:
    size = op.random.randint(1, 3)
    down = op.kind == "SpaceToDepth"
    channels, side = op.random.randint(1, 3), op.random.randint(1, 3)
    op.tensor(
        [op.batch, channels * (1 if down else size**2), side * (size if down else 1), 2 * size]
    )
    op.state(blocksize=size, mode=op.one("DCR", "CRD"))


def resize(op: Case) -> None:
    op.opset = max(op.opset, 11)
    shape = op.tensor([op.batch, 3, op.random.randint(2, 6), op.random.randint(2, 6)])
    op.state(
        mode=op.one("nearest", "linear", "cubic"),
        coordinate_transformation_mode=op.one(
            "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"
        ),
        nearest_mode=op.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        cubic_coeff_a=-0.5,
        exclude_outside=op.one(0, 1),
    )
    op.constant(np.zeros(0)) if op.opset < 13 else op.absent()
    factors = [1, 1, op.one(1, 2, 3, 0.5, 1.5), op.one(1, 2, 3, 0.5)]
    if op.often():
        op.constant(factors)
        return
    op.constant(np.zeros(0)) if op.opset < 13 else op.absent()
    op.constant([max(1, int(n * f)) for n, f in zip(shape, factors, strict=True)], np.int64)


def where(op: Case) -> None:
    shape = op.shape()
    op.constant(op.numbers.random(shape) < 0.5, bool)
    op.tensor(shape)
    op.one(op.weight, lambda *each: op.tensor(each))(*op.one(shape, shape[-1:], []))


def trilu(op: Case) -> None:
    op.tensor(op.shape(2, 4))
    op.state(upper=op.one(0, 1))
    if op.often():
        op.constant(op.random.randint(-2, 2), np.int64)


def einsum(op: Case) -> None:
    a, b, c, d = (op.random.randint(1, 5) for _ in range(4))
    sizes = {"a": a, "b": b, "c": c, "d": d}
    equation = op.one(
        *("ab,bc->ac", "abc,acd->abd", "abc,dc->abd", "ab,cb->ac", "abc,abd->acd", "ab->ba")
    )
    for term in equation.split("->")[0].split(","):
        op.tensor([sizes[letter] for letter in term])
    op.attributes["equation"] = equation


KINDS: dict[str, Kind] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), conv),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), image),
    "Gemm": gemm,
    "MatMul": matmul,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), norm),
    "LayerNormalization": layer_norm,
    "GroupNormalization": group_norm,
    "LRN": lrn,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"), last_axis),
    "MeanVarianceNormalization": last_axis,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"), binary),
    "PRelu": prelu,
    **dict.fromkeys(("Sum", "Mean"), variadic),
    "Concat": concat,
    **dict.fromkeys(
        (
            *("LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "ThresholdedRelu"),
            *("Gelu", "Mish", "Shrink", "Softplus", "Softsign", "Sigmoid", "Tanh", "Relu", "Abs"),
            *("Neg", "Exp", "Sqrt", "Log", "Floor", "Ceil", "Round", "Sign", "Reciprocal", "Erf"),
            *("Sin", "Cos", "Identity"),
        ),
        unary,
    ),
    "Clip": clip,
    **dict.fromkeys(
        (
            *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"),
            *("ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"),
        ),
        reduced,
    ),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    "TopK": topk,
    "CumSum": cumsum,
    "Transpose": transpose,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Slice": sliced,
    "Gather": gather,
    "Split": split,
    "Pad": pad,
    "Expand": expand,
    "Tile": tile,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), depth),
    "Resize": resize,
    "Where": where,
    "Trilu": trilu,
    "Einsum": einsum,
}
"""How the operands and attributes of an operator are drawn."""


# ---------------------------------------------------------------------------------- judge


def trial(case: str) -> Result:
    """Judge one file: ``Gemm/7``, ``Conv+Relu/7``."""
    row = case.split("/")[0] if "+" not in case else "chains"
    try:
        made = Case(case)
        model = made.model(made.output)
        (expected,) = Probe(model).run(made.data).values()
    except Exception:  # ONNX Runtime refuses it
        return result(row, refused_there=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (found,) = evaluate(import_model(model), *made.data.values())
            wrong = _differs(found, expected, made.step) if made.exact else ""
            if not wrong and made.grids == "all":
                config = made.one("pynq", "pynq_ext")
                compiled = vtaops.compile_model(model, config, host=True, prove=False)
                results = as_tuple(compiled.run(*made.data.values()))
                wrong = _differs(results[0], expected, 2 * made.step) if made.exact else ""
                own = as_tuple(compiled.reference(*made.data.values()))
                if not np.array_equal(results[0], own[0], equal_nan=True):
                    wrong = "the device differs from the graph"
    except vtaops.VTAError as error:
        refused = isinstance(error, UnsupportedError)
        return result(row, "" if refused else f"{type(error).__name__}: {error}", refused=refused)
    return result(row, wrong, right=not wrong)


def _differs(found: Any, expected: Any, most: float) -> str:
    """Return how a result differs by more than a distance, and than float arithmetic does."""
    if found.shape != expected.shape:
        return f"the shape is {found.shape}; ONNX Runtime's is {expected.shape}"
    far = np.abs(np.float64(found) - expected) > most * 1.01 + 1e-4 * (1 + np.abs(expected))
    if not far.any():
        return ""
    at = tuple(np.argwhere(far)[0].tolist())
    return f"{at}: {found[at]:.6g} where ONNX Runtime has {expected[at]:.6g}; steps are {most:.3g}"


JUMPS = frozenset({"Sign", "Floor", "Ceil", "Round"})
"""What makes large differences of those in the last bit of float arithmetic."""


def _chain(number: int) -> str:
    drawn = random.Random(number)
    first, *others = (drawn.choice([*KINDS]) for _ in range(drawn.randint(2, 3)))
    return "+".join([first, *(kind for kind in others if kind not in JUMPS)])


CAMPAIGN = Campaign(
    lambda count: [
        *(f"{kind}/{number}" for number in range(count // 2 // len(KINDS)) for kind in KINDS),
        *(f"{_chain(number)}/{number}" for number in range(count // 2)),
    ],
    trial,
    count=10_000,
)
