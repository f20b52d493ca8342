"""Every operator of ONNX that networks of today hold, in its forms, each as a small float network.

A form stands between two products: a convolution or a matrix product before it, another behind it.
`FORMS` has them all. `trials/styles.py` quantises them, `trials/marks.py` judges the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import onnx

from trials.onnx_models import Builder

OPSETS = (13, 17, 21)
BATCHES = (1, 2, 1, 3, 4)

IMAGE = (8, 7, 6)
LINE = (8, 9)
"""Channels and length."""

TOKENS = (5, 8)
"""Tokens and features."""

VECTOR = (12,)

RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


class Network(Builder):
    """A builder that knows its opset and its batch, and has constants of the usual kinds."""

    def __init__(self, seed: int, opset: int, batch: int) -> None:
        super().__init__(seed)
        self.opset, self.batch = opset, batch
        self.known: list[onnx.ValueInfoProto] = []

    def ints(self, *numbers: Any) -> str:
        return str(self.constant(np.array(numbers, np.int64)))

    def floats(self, value: Any) -> str:
        return str(self.constant(np.array(value, np.float32)))

    def weight(self, *shape: int) -> str:
        scale = np.sqrt(2 / max(1, np.prod(shape[1:])))
        return self.floats(self.rng.standard_normal(shape) * scale)

    def uniform(self, low: float, high: float, *shape: int) -> str:
        return self.floats(self.rng.uniform(low, high, shape))

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(d.dim_value for d in self.type_of(name).shape.dim)

    def type_of(self, name: str) -> Any:
        """Return the type of a tensor, as ONNX infers it."""
        made = self.model(self.opset)
        made.graph.output.append(onnx.ValueInfoProto(name=name))
        known = onnx.shape_inference.infer_shapes(made, data_prop=True).graph
        found = [v for v in (*known.value_info, *known.output, *known.input) if v.name == name]
        types = [v.type.tensor_type for v in found if v.type.HasField("tensor_type")]
        return types[0] if types else onnx.TypeProto.Tensor()

    def declare(self, name: str, shape: Sequence[int]) -> str:
        """State the shape of a tensor, which ONNX does not infer, and return its name."""
        kind = onnx.TensorProto.FLOAT
        self.known.append(onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def model(self, opset: int = 17) -> onnx.ModelProto:
        made = super().model(opset)
        del made.graph.value_info[:]  # without what shapes depend on
        made.graph.value_info.extend(self.known)
        return onnx.shape_inference.infer_shapes(made, data_prop=True)

    def axes(self, kind: str, x: str, axes: Sequence[int], since: int = 13, **attrs: Any) -> str:
        """Add an operator whose axes are an attribute before an opset, and an input from it on."""
        if self.opset < since:
            return str(self.add(kind, x, axes=list(axes), **attrs))
        return str(self.add(kind, x, self.ints(*axes), **attrs))

    def reduce(self, kind: str, x: str, axes: Sequence[int], keep: int = 1) -> str:
        return self.axes(kind, x, axes, 13 if kind == "ReduceSum" else 18, keepdims=keep)

    def split(self, x: str, parts: int, axis: int) -> list[str]:
        more = {"num_outputs": parts} if self.opset >= 18 else {}
        return list(self.add("Split", x, outputs=parts, axis=axis, **more))

    def product(self, x: str, units: int = 8) -> str:
        """Add a convolution or a matrix product with constant weights."""
        shape = self.shape_of(x)
        if len(shape) == 4:
            return str(self.conv(x, shape[1], units, kernel=1))
        weight = self.rng.standard_normal((shape[-1], units)) / np.sqrt(shape[-1])
        return str(self.add("MatMul", x, self.floats(weight)))

    def line(self, x: str, units: int = 8) -> str:
        """Add a one-dimensional convolution of a tensor (n, c, l)."""
        return str(self.add("Conv", x, self.weight(units, self.shape_of(x)[1], 1)))


Build = Callable[[Network, str], str]


@dataclass(frozen=True)
class Form:
    """An operator in one form.

    Attributes
    ----------
    group, operator, variant
        What it is, for people; the last two name it.
    build
        Adds it to a network behind a tensor, and returns its result.
    shape
        Shape of that tensor without the batch.
    opset
        The first opset that has it.
    """

    group: str
    operator: str
    variant: str
    build: Build
    shape: tuple[int, ...] = IMAGE
    opset: int = 13

    @property
    def name(self) -> str:
        """Operator and variant."""
        return f"{self.operator} {self.variant}".strip()

    def drawn(self, style: str) -> tuple[int, int]:
        """Return the opset and the batch with which a style has it."""
        number = crc32(f"{self.name}/{style}".encode())
        opset = OPSETS[number % len(OPSETS)]
        return max(opset, self.opset), BATCHES[number // 7 % len(BATCHES)]

    def network(self, opset: int, batch: int) -> tuple[onnx.ModelProto, np.ndarray[Any, Any]]:
        """Return a float network that has it, and four inputs, stacked."""
        seed = crc32(self.name.encode())
        b = Network(seed, opset, batch)
        product = b.line if self.shape == LINE else b.product
        units = self.shape[-1 if len(self.shape) in (1, 4) or self.shape == TOKENS else 0]
        y = self.build(b, product(b.input([batch, *self.shape]), units))
        kind, shape = b.type_of(y).elem_type, b.shape_of(y)
        product = b.line if self.shape == LINE and len(shape) == 3 else b.product
        follows = kind == onnx.TensorProto.FLOAT and len(shape) in (2, 3, 4) and all(shape)
        b.output(product(y) if follows else y)
        data = np.random.default_rng(seed).standard_normal((4 * batch, *self.shape))
        return b.model(opset), data.astype(np.float32)


FORMS: list[Form] = []
"""All of them."""


def _group(title: str, shape: tuple[int, ...] = IMAGE) -> Callable[..., None]:
    """Return what adds a form of a group."""

    def add(operator: str, variant: str, build: Build, *, opset: int = 13, **more: Any) -> None:
        FORMS.append(Form(title, operator, variant, build, more.get("shape", shape), opset))

    return add


def _node(kind: str, **attrs: Any) -> Build:
    """Return what adds an operator of one tensor."""
    return lambda b, x: str(b.add(kind, x, **attrs))


# ------------------------------------------------------------------------------ convolutions


def _conv(*weight: int, bias: bool = False, **attrs: Any) -> Build:
    def build(b: Network, x: str) -> str:
        more = [b.uniform(-0.2, 0.2, weight[0])] if bias else []
        return str(b.add("Conv", x, b.weight(*weight), *more, **attrs))

    return build


def _transposed(*weight: int, **attrs: Any) -> Build:
    return lambda b, x: str(b.add("ConvTranspose", x, b.weight(*weight), **attrs))


conv = _group("Convolutions")
THREE = {"kernel_shape": [3, 3]}
conv("Conv", "3x3, pads 1", _conv(16, 8, 3, 3, pads=[1] * 4, **THREE))
conv("Conv", "bias", _conv(16, 8, 3, 3, bias=True, pads=[1] * 4, **THREE))
conv("Conv", "no kernel_shape", _conv(16, 8, 3, 3, pads=[1] * 4))
conv("Conv", "pads that differ by side", _conv(16, 8, 3, 3, pads=[0, 1, 2, 3], **THREE))
conv("Conv", "pads beyond the kernel", _conv(16, 8, 3, 3, pads=[3, 3, 3, 3], **THREE))
for _auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    conv("Conv", f"auto_pad={_auto}", _conv(16, 8, 3, 3, auto_pad=_auto, **THREE))
    conv(
        "Conv",
        f"auto_pad={_auto}, strides 2",
        _conv(16, 8, 3, 3, auto_pad=_auto, strides=[2, 2], **THREE),
    )
conv("Conv", "strides (2, 1)", _conv(16, 8, 3, 3, strides=[2, 1], pads=[1] * 4, **THREE))
conv("Conv", "strides beyond the kernel", _conv(16, 8, 1, 1, strides=[3, 3]))
conv("Conv", "dilations 2", _conv(8, 8, 3, 3, dilations=[2, 2], pads=[2] * 4, **THREE))
conv("Conv", "dilations (1, 2)", _conv(8, 8, 3, 3, dilations=[1, 2], pads=[1, 2, 1, 2], **THREE))
conv("Conv", "1x1", _conv(16, 8, 1, 1))
conv("Conv", "2x2", _conv(16, 8, 2, 2))
conv("Conv", "5x1", _conv(8, 8, 5, 1, pads=[2, 0, 2, 0]))
conv("Conv", "1x7", _conv(8, 8, 1, 7, pads=[0, 3, 0, 3]))
conv("Conv", "kernel of the image's size", _conv(16, 8, 7, 6))
conv("Conv", "group 2", _conv(16, 4, 3, 3, group=2, pads=[1] * 4))
conv("Conv", "group 4, strides 2", _conv(8, 2, 3, 3, group=4, pads=[1] * 4, strides=[2, 2]))
conv("Conv", "depthwise", _conv(8, 1, 3, 3, group=8, pads=[1] * 4))
conv("Conv", "depthwise, strides 2", _conv(8, 1, 3, 3, group=8, pads=[1] * 4, strides=[2, 2]))
conv("Conv", "depthwise, dilations 2", _conv(8, 1, 3, 3, group=8, pads=[2] * 4, dilations=[2, 2]))
conv("Conv", "depthwise, multiplier 2", _conv(16, 1, 3, 3, group=8, pads=[1] * 4))
conv("Conv", "one output channel", _conv(1, 8, 3, 3, pads=[1] * 4))
conv("Conv", "Relu behind", lambda b, x: b.add("Relu", _conv(16, 8, 3, 3)(b, x)))
conv(
    "Conv",
    "Clip(0, 6) behind",
    lambda b, x: b.add("Clip", _conv(16, 8, 3, 3)(b, x), b.floats(0), b.floats(6)),
)
conv("Conv", "weights shared by two", lambda b, x: _shared(b, x))
conv("Conv", "3-D", _conv(4, 8, 1, 3, 3, pads=[0, 1, 1, 0, 1, 1]), shape=(8, 2, 5, 5))
line = _group("Convolutions", LINE)
line("Conv", "1-D, pads 1", _conv(16, 8, 3, pads=[1, 1]))
line(
    "Conv",
    "1-D, auto_pad=SAME_UPPER, strides 2",
    _conv(8, 8, 3, auto_pad="SAME_UPPER", strides=[2]),
)
line("Conv", "1-D, dilations 2", _conv(8, 8, 3, pads=[2, 2], dilations=[2]))
line("Conv", "1-D, group 2", _conv(8, 4, 3, pads=[1, 1], group=2))
line("Conv", "1-D, depthwise", _conv(8, 1, 3, pads=[1, 1], group=8))
line("Conv", "1-D, causal: Pad, then dilations 2", lambda b, x: _causal(b, x))
for _title, _weights, _attrs in (
    ("2x2, strides 2", (8, 6, 2, 2), {"strides": [2, 2]}),
    (
        "3x3, strides 2, output_padding 1",
        (8, 6, 3, 3),
        {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    ("4x4, strides 2, pads 1", (8, 6, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    ("strides 1", (8, 6, 3, 3), {"pads": [1] * 4}),
    ("strides (2, 1)", (8, 6, 3, 3), {"strides": [2, 1], "pads": [1] * 4}),
    ("strides 3", (8, 6, 2, 2), {"strides": [3, 3]}),
    ("auto_pad=SAME_UPPER", (8, 6, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("auto_pad=SAME_LOWER", (8, 6, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ("output_shape", (8, 6, 3, 3), {"strides": [2, 2], "output_shape": [14, 12]}),
    ("group 2", (8, 3, 3, 3), {"strides": [2, 2], "group": 2, "pads": [1] * 4}),
    ("depthwise", (8, 1, 4, 4), {"strides": [2, 2], "group": 8, "pads": [1] * 4}),
    ("dilations 2", (8, 6, 3, 3), {"dilations": [2, 2]}),
    ("dilations 2, strides 2", (8, 6, 3, 3), {"dilations": [2, 2], "strides": [2, 2]}),
):
    conv("ConvTranspose", _title, _transposed(*_weights, **_attrs))
line("ConvTranspose", "1-D, strides 2", _transposed(8, 6, 4, strides=[2], pads=[1, 1]))


def _shared(b: Network, x: str) -> str:
    weight = b.weight(8, 8, 3, 3)
    first, second = (
        b.add("Conv", y, weight, pads=[1] * 4) for y in (x, b.add("Mul", x, b.floats(0.3)))
    )
    return str(b.add("Add", first, second))


def _causal(b: Network, x: str) -> str:
    padded = b.add("Pad", x, b.ints(0, 0, 4, 0, 0, 0))
    return str(b.add("Conv", padded, b.weight(8, 8, 3), dilations=[2]))


# ------------------------------------------------------------------------------------- pools

pool = _group("Pools")
for _kind in ("MaxPool", "AveragePool"):
    for _title, _attrs in (
        ("2x2, strides 2", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("3x3, strides 2, pads 1", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
        ("3x3, strides 1, pads 1", {"kernel_shape": [3, 3], "pads": [1] * 4}),
        ("pads that differ by side", {"kernel_shape": [3, 3], "pads": [0, 1, 2, 1]}),
        ("ceil_mode", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        (
            "ceil_mode, pads 1",
            {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1] * 4},
        ),
        (
            "auto_pad=SAME_UPPER",
            {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        ),
        (
            "auto_pad=SAME_LOWER",
            {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        ),
        ("5x5, strides 1 (SPP)", {"kernel_shape": [5, 5], "pads": [2] * 4}),
        ("(3, 1)", {"kernel_shape": [3, 1], "strides": [2, 1]}),
    ):
        pool(_kind, _title, _node(_kind, **_attrs))
    pool(_kind, "1-D", _node(_kind, kernel_shape=[3], strides=[2], pads=[1, 1]), shape=LINE)
    pool(
        _kind,
        "dilations 2",
        _node(_kind, kernel_shape=[2, 2], dilations=[2, 2]),
        opset=13 if _kind == "MaxPool" else 19,
    )
_INCLUDE = {"kernel_shape": [3, 3], "strides": [2, 2], "count_include_pad": 1}
pool("AveragePool", "count_include_pad", _node("AveragePool", pads=[1] * 4, **_INCLUDE))
pool(
    "AveragePool",
    "count_include_pad, SAME_UPPER",
    _node("AveragePool", auto_pad="SAME_UPPER", **_INCLUDE),
)
pool(
    "AveragePool",
    "count_include_pad, ceil_mode",
    _node("AveragePool", pads=[1] * 4, ceil_mode=1, **_INCLUDE),
    opset=19,
)
for _kind in ("GlobalAveragePool", "GlobalMaxPool"):
    pool(_kind, "", _node(_kind))
    pool(_kind, "1-D", _node(_kind), shape=LINE)
pool("LpPool", "2x2", _node("LpPool", kernel_shape=[2, 2], strides=[2, 2]))
pool("GlobalLpPool", "", _node("GlobalLpPool"))

# ---------------------------------------------------------------------------------- products


def _gemm(weight: tuple[int, ...], bias: tuple[int, ...] | None = None, **attrs: Any) -> Build:
    def build(b: Network, x: str) -> str:
        more = [] if bias is None else [b.uniform(-1, 1, *bias)]
        return str(b.add("Gemm", x, b.weight(*weight), *more, **attrs))

    return build


def _matmul(*weight: int, left: bool = False, bias: int = 0) -> Build:
    def build(b: Network, x: str) -> str:
        w = b.floats(b.rng.standard_normal(weight) / np.sqrt(weight[-1 if left else -2]))
        y = str(b.add("MatMul", *((w, x) if left else (x, w))))
        return str(b.add("Add", y, b.uniform(-1, 1, bias))) if bias else y

    return build


product = _group("Matrix products", VECTOR)
product("Gemm", "transB, bias", _gemm((10, 12), (10,), transB=1))
product("Gemm", "bias (1, n)", _gemm((12, 10), (1, 10)))
product("Gemm", "scalar bias", _gemm((12, 10), ()))
product("Gemm", "no bias", _gemm((12, 10)))
product("Gemm", "alpha 0.5, beta 2", _gemm((10, 12), (10,), transB=1, alpha=0.5, beta=2.0))
product(
    "Gemm",
    "transA of a constant",
    lambda b, x: b.add("Gemm", x, b.add("Transpose", b.weight(10, 12), perm=[1, 0])),
)
product("MatMul", "(n, k) by a constant", _matmul(12, 10))
product("MatMul", "(n, k) by a constant, bias", _matmul(12, 10, bias=10))
product("MatMul", "(n, t, k) by a constant", _matmul(8, 10), shape=TOKENS)
product("MatMul", "(n, t, k) by a constant, bias", _matmul(8, 10, bias=10), shape=TOKENS)
product("MatMul", "(n, h, w, k) by a constant", _matmul(6, 10), shape=IMAGE)
product("MatMul", "(n, h, w, k) by a constant, bias", _matmul(6, 10, bias=10), shape=IMAGE)
product("MatMul", "rank 5 by a constant", _matmul(6, 10), shape=(2, 3, 4, 6))
product("MatMul", "a constant by (n, t, k)", _matmul(7, 5, left=True), shape=TOKENS)
product("MatMul", "a constant by (n, c, h, w)", _matmul(9, 7, left=True), shape=IMAGE)
product("MatMul", "by a matrix for each channel", _matmul(8, 6, 5), shape=IMAGE)
product(
    "MatMul",
    "by one vector",
    lambda b, x: b.axes("Unsqueeze", b.add("MatMul", x, b.weight(12)), [1]),
)


def _attention(*, heads: bool = False, shared: bool = False, scale: bool = True) -> Build:
    """Return self-attention on (n, t, k)."""

    def build(b: Network, x: str) -> str:
        q, k, v = (b.add("MatMul", x, b.weight(8, 8)) for _ in range(3))
        last = (0, 2, 1)
        if heads:
            split = [b.add("Reshape", y, b.ints(0, 0, 2, 4)) for y in (q, k, v)]
            q, k, v = (b.add("Transpose", y, perm=[0, 2, 1, 3]) for y in split)
            last = (0, 1, 3, 2)
        scores = b.add("MatMul", q, b.add("Transpose", k, perm=list(last)))
        scores = b.add("Mul", scores, b.floats(0.35)) if scale else scores
        y = b.add("MatMul", b.add("Softmax", scores, axis=-1), v)
        if heads:
            y = b.add("Reshape", b.add("Transpose", y, perm=[0, 2, 1, 3]), b.ints(0, 0, 8))
        return str(y)

    return build


def _squared(b: Network, x: str) -> str:
    rank = len(b.shape_of(x))
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return str(b.add("MatMul", x, b.add("Transpose", x, perm=perm)))


product("MatMul", "two tensors, rank 2", lambda b, x: _squared(b, x), shape=VECTOR)
product("MatMul", "two tensors, rank 3", lambda b, x: _squared(b, x), shape=TOKENS)
product("MatMul", "two tensors, rank 4", lambda b, x: _squared(b, x), shape=IMAGE)
product("MatMul", "(n, c, h, w) by (n, 1, w, k)", lambda b, x: _shared_keys(b, x), shape=IMAGE)
product("MatMul", "attention of one head", _attention(), shape=TOKENS)
product("MatMul", "attention of two heads", _attention(heads=True), shape=TOKENS)
product(
    "Einsum",
    "bij,jk->bik",
    lambda b, x: b.add("Einsum", x, b.weight(8, 10), equation="bij,jk->bik"),
    shape=TOKENS,
)
product(
    "Einsum",
    "two tensors",
    lambda b, x: b.add("Einsum", x, x, equation="bij,bkj->bik"),
    shape=TOKENS,
)


def _shared_keys(b: Network, x: str) -> str:
    keys = b.add("Slice", x, b.ints(0), b.ints(1), b.ints(1))
    return str(b.add("MatMul", x, b.add("Transpose", keys, perm=[0, 1, 3, 2])))


# ------------------------------------------------------------------------------- elementwise

SECOND: dict[str, Callable[[Network, str], str]] = {
    "two of one shape": lambda b, x: b.conv(x, 8, 8, kernel=1),
    "a vector per image (n, c, 1, 1)": lambda b, x: b.conv(
        b.add("GlobalAveragePool", x), 8, 8, kernel=1
    ),
    "a map (n, 1, h, w)": lambda b, x: b.conv(x, 8, 1, kernel=1),
    "a row (n, c, 1, w)": lambda b, x: b.reduce("ReduceMax", x, [2]),
}
"""The second operand."""


def _above_half(b: Network, x: str) -> str:
    """Return values of which every power is a number."""
    return str(b.add("Add", b.add("Sigmoid", x), b.floats(0.5)))


two = _group("Two tensors")
for _kind in ("Add", "Sub", "Mul", "Max", "Min"):
    for _title, _second in SECOND.items():
        two(_kind, _title, lambda b, x, k=_kind, s=_second: b.add(k, x, s(b, x)))
    if _kind in ("Sub", "Mul", "Add"):
        two(
            _kind,
            "a vector per image first",
            lambda b, x, k=_kind: b.add(k, SECOND["a vector per image (n, c, 1, 1)"](b, x), x),
        )
for _title, _second in SECOND.items():
    two("Div", _title, lambda b, x, s=_second: b.add("Div", x, b.add("Exp", s(b, x))))
    two("Pow", _title, lambda b, x, s=_second: b.add("Pow", _above_half(b, x), s(b, x)))
two("Add", "a tensor and itself", lambda b, x: b.add("Add", x, x))
two("Mul", "a tensor and itself", lambda b, x: b.add("Mul", x, x))
two("Add", "Relu behind", lambda b, x: b.add("Relu", b.add("Add", x, b.conv(x, 8, 8))))
two("Add", "rank 2", lambda b, x: b.add("Add", x, b.gemm(x, 12, 12)), shape=VECTOR)
two("Add", "rank 3", lambda b, x: b.add("Add", x, b.product(x, 8)), shape=TOKENS)
two("Mul", "rank 3", lambda b, x: b.add("Mul", x, b.product(x, 8)), shape=TOKENS)
two("Sum", "of three", lambda b, x: b.add("Sum", x, b.conv(x, 8, 8), b.conv(x, 8, 8, kernel=1)))
two("Max", "of three", lambda b, x: b.add("Max", x, b.conv(x, 8, 8), b.conv(x, 8, 8, kernel=1)))
two("Mean", "of two", lambda b, x: b.add("Mean", x, b.conv(x, 8, 8)))
two(
    "Where",
    "constant condition",
    lambda b, x: b.add("Where", b.constant(b.rng.random((1, 8, 7, 6)) < 0.5), x, b.conv(x, 8, 8)),
)
two(
    "Where",
    "x > 0",
    lambda b, x: b.add("Where", b.add("Greater", x, b.floats(0)), x, b.conv(x, 8, 8)),
)

constant = _group("With a constant")
_SHAPES: dict[str, tuple[int, ...]] = {
    "scalar": (),
    "shape (1,)": (1,),
    "per channel (1, c, 1, 1)": (1, 8, 1, 1),
    "per channel (c, 1, 1)": (8, 1, 1),
    "per column (w,)": (6,),
    "per pixel (1, 1, h, w)": (1, 1, 7, 6),
    "per element (1, c, h, w)": (1, 8, 7, 6),
}
for _kind in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
    for _title, _size in _SHAPES.items():
        constant(_kind, _title, lambda b, x, k=_kind, s=_size: b.add(k, x, b.uniform(0.5, 1.5, *s)))
constant(
    "Add", "rank 2, per column", lambda b, x: b.add("Add", x, b.uniform(-1, 1, 12)), shape=VECTOR
)
constant(
    "Mul", "rank 2, per column", lambda b, x: b.add("Mul", x, b.uniform(-1, 1, 12)), shape=VECTOR
)
constant(
    "Add",
    "position embedding (1, t, k)",
    lambda b, x: b.add("Add", x, b.uniform(-1, 1, 1, 5, 8)),
    shape=TOKENS,
)
constant(
    "Mul",
    "rank 3, per feature (k,)",
    lambda b, x: b.add("Mul", x, b.uniform(0.5, 1, 8)),
    shape=TOKENS,
)
constant("Mul", "negative scalar", lambda b, x: b.add("Mul", x, b.floats(-0.7)))
constant(
    "Mul",
    "layer scale of 1e-3, per channel",
    lambda b, x: b.add("Add", x, b.add("Mul", b.conv(x, 8, 8), b.uniform(5e-4, 1e-3, 1, 8, 1, 1))),
)
constant("Sub", "1 - x", lambda b, x: b.add("Sub", b.floats(1), x))
constant(
    "Div",
    "1 / x",
    lambda b, x: b.add("Div", b.floats(1), b.add("Add", b.add("Relu", x), b.floats(0.5))),
)
constant("Pow", "2", lambda b, x: b.add("Pow", x, b.floats(2)))
constant("Pow", "0.5", lambda b, x: b.add("Pow", b.add("Relu", x), b.floats(0.5)))
constant("Mod", "fmod", lambda b, x: b.add("Mod", x, b.floats(0.7), fmod=1))

# ------------------------------------------------------------------------------- activations

active = _group("Activations")
for _kind in (
    *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"),
    *("Softplus", "Softsign", "ThresholdedRelu", "Abs", "Neg", "Exp", "Floor", "Ceil", "Round"),
    *("Sign", "Erf", "Sin", "Cos", "Atan", "Sinh", "Shrink"),
):
    active(_kind, "", _node(_kind), opset=14 if _kind == "HardSwish" else 13)
active("Mish", "", _node("Mish"), opset=18)
active("Gelu", "", _node("Gelu"), opset=20)
active("Gelu", "approximate=tanh", _node("Gelu", approximate="tanh"), opset=20)
active("LeakyRelu", "alpha 0.1", _node("LeakyRelu", alpha=0.1))
active("LeakyRelu", "alpha 1.3", _node("LeakyRelu", alpha=1.3))
active("HardSigmoid", "alpha 1/6", _node("HardSigmoid", alpha=1 / 6, beta=0.5))
active("Elu", "alpha 0.5", _node("Elu", alpha=0.5))
active(
    "Log", "of x + 0.5", lambda b, x: b.add("Log", b.add("Add", b.add("Relu", x), b.floats(0.5)))
)
active("Sqrt", "of Relu", lambda b, x: b.add("Sqrt", b.add("Relu", x)))
active(
    "Reciprocal",
    "of x + 0.5",
    lambda b, x: b.add("Reciprocal", b.add("Add", b.add("Relu", x), b.floats(0.5))),
)
active("Clip", "0 to 6", lambda b, x: b.add("Clip", x, b.floats(0), b.floats(6)))
active("Clip", "-0.5 to 0.7", lambda b, x: b.add("Clip", x, b.floats(-0.5), b.floats(0.7)))
active("Clip", "max only", lambda b, x: b.add("Clip", x, "", b.floats(1)))
active("Clip", "no bounds", _node("Clip"))
active("PRelu", "per channel", lambda b, x: b.add("PRelu", x, b.uniform(0.05, 0.4, 8, 1, 1)))
active("PRelu", "one slope", lambda b, x: b.add("PRelu", x, b.floats([0.2])))
active("PRelu", "negative slopes", lambda b, x: b.add("PRelu", x, b.uniform(-0.4, 0.4, 8, 1, 1)))
active("SiLU", "x Sigmoid(x)", lambda b, x: b.add("Mul", x, b.add("Sigmoid", x)))
active("GELU", "by Erf", lambda b, x: _gelu(b, x))
active("HardSwish", "by Clip", lambda b, x: _hard_swish(b, x))
active("Relu", "rank 2", _node("Relu"), shape=VECTOR)
active("Relu", "rank 3", _node("Relu"), shape=TOKENS)
active("Sigmoid", "rank 2", _node("Sigmoid"), shape=VECTOR)
active("GELU", "rank 3, by Erf", lambda b, x: _gelu(b, x), shape=TOKENS)


def _gelu(b: Network, x: str) -> str:
    inner = b.add("Erf", b.add("Div", x, b.floats(2**0.5)))
    return str(b.add("Mul", b.add("Mul", x, b.add("Add", inner, b.floats(1))), b.floats(0.5)))


def _hard_swish(b: Network, x: str) -> str:
    inner = b.add("Clip", b.add("Add", x, b.floats(3)), b.floats(0), b.floats(6))
    return str(b.add("Div", b.add("Mul", x, inner), b.floats(6)))


# ---------------------------------------------------------------------------- normalisations


def _batch_norm(b: Network, x: str) -> str:
    channels = b.shape_of(x)[1]
    given = [
        b.uniform(low, high, channels)
        for low, high in ((0.5, 1.5), (-0.3, 0.3), (-0.2, 0.2), (0.5, 1.5))
    ]
    return str(b.add("BatchNormalization", x, *given))


def _affine(kind: str, size: int, **attrs: Any) -> Build:
    def build(b: Network, x: str) -> str:
        given = b.uniform(0.5, 1.5, size), b.uniform(-0.3, 0.3, size)
        return b.declare(b.add(kind, x, *given, **attrs), b.shape_of(x))

    return build


def _layer_norm(b: Network, x: str) -> str:
    centred = b.add("Sub", x, b.reduce("ReduceMean", x, [-1]))
    variance = b.reduce("ReduceMean", b.add("Pow", centred, b.floats(2)), [-1])
    root = b.add("Sqrt", b.add("Add", variance, b.floats(1e-5)))
    scaled = b.add("Mul", b.add("Div", centred, root), b.uniform(0.5, 1.5, 8))
    return str(b.add("Add", scaled, b.uniform(-0.3, 0.3, 8)))


def _rms_norm(b: Network, x: str) -> str:
    mean = b.reduce("ReduceMean", b.add("Mul", x, x), [-1])
    inverse = b.add("Reciprocal", b.add("Sqrt", b.add("Add", mean, b.floats(1e-5))))
    return str(b.add("Mul", b.add("Mul", x, inverse), b.uniform(0.5, 1.5, 8)))


def _skip_norm(b: Network, x: str) -> str:
    kind = "SkipSimplifiedLayerNormalization"
    y = b.add(kind, x, b.product(b.add("Relu", x)), b.uniform(0.5, 1.5, 8), domain=RUNTIME)
    return b.declare(y, b.shape_of(x))


norm = _group("Normalisations")
norm(
    "BatchNormalization", "behind a Conv", lambda b, x: _batch_norm(b, b.conv(x, 8, 8, bias=False))
)
norm(
    "BatchNormalization",
    "before a Conv",
    lambda b, x: b.conv(_batch_norm(b, b.add("Relu", x)), 8, 8),
)
norm(
    "BatchNormalization",
    "behind a sum",
    lambda b, x: b.add("Relu", _batch_norm(b, b.add("Add", x, b.conv(x, 8, 8)))),
)
norm("BatchNormalization", "rank 3", lambda b, x: _batch_norm(b, x), shape=LINE)
norm(
    "BatchNormalization",
    "rank 2, behind a Gemm",
    lambda b, x: _batch_norm(b, b.gemm(x, 12, 10)),
    shape=VECTOR,
)
norm(
    "BatchNormalization",
    "rank 2, before a Gemm",
    lambda b, x: b.gemm(_batch_norm(b, b.add("Relu", x)), 12, 10),
    shape=VECTOR,
)
norm("InstanceNormalization", "", _affine("InstanceNormalization", 8))
norm("LayerNormalization", "last axis", _affine("LayerNormalization", 8), shape=TOKENS, opset=17)
norm(
    "LayerNormalization",
    "of channels, between two Transposes",
    lambda b, x: b.add(
        "Transpose",
        _affine("LayerNormalization", 8)(b, b.add("Transpose", x, perm=[0, 2, 3, 1])),
        perm=[0, 3, 1, 2],
    ),
    opset=17,
)
norm("LayerNormalization", "by single operators", _layer_norm, shape=TOKENS)
norm("RMSNormalization", "by single operators", _rms_norm, shape=TOKENS)
norm(
    "RMSNormalization",
    "last axis",
    lambda b, x: b.add("RMSNormalization", x, b.uniform(0.5, 1.5, 8), axis=-1),
    shape=TOKENS,
    opset=23,
)
norm("SkipSimplifiedLayerNormalization", "of ONNX Runtime", _skip_norm, shape=TOKENS)
norm("GroupNormalization", "", _affine("GroupNormalization", 8, num_groups=2), opset=21)
norm("LpNormalization", "axis 1", _node("LpNormalization", axis=1))
norm("LRN", "size 5", _node("LRN", size=5))
norm(
    "MeanVarianceNormalization",
    "",
    lambda b, x: b.declare(b.add("MeanVarianceNormalization", x), b.shape_of(x)),
)

# -------------------------------------------------------------------------------- reductions

reduction = _group("Reductions")
for _kind in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"):
    for _axes in ((2, 3), (1,), (-1,), (2,), (1, 2, 3)):
        for _keep in (1, 0):
            reduction(
                _kind, f"axes {_axes}, keepdims {_keep}".replace(",)", ")"),
                lambda b, x, k=_kind, a=_axes, d=_keep: b.reduce(k, x, a, d),
            )  # fmt: skip
    reduction(_kind, "tokens", lambda b, x, k=_kind: b.reduce(k, x, [1], 0), shape=TOKENS)
for _kind in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSumExp"):
    reduction(_kind, "axes (2, 3)", lambda b, x, k=_kind: b.reduce(k, x, [2, 3]))
reduction("Softmax", "axis -1, rank 2", _node("Softmax", axis=-1), shape=VECTOR)
reduction("Softmax", "axis -1, rank 3", _node("Softmax", axis=-1), shape=TOKENS)
reduction("Softmax", "axis 1, rank 4", _node("Softmax", axis=1))
reduction("LogSoftmax", "axis -1", _node("LogSoftmax", axis=-1), shape=VECTOR)
reduction("ArgMax", "axis 1", _node("ArgMax", axis=1, keepdims=0))
reduction(
    "TopK",
    "2 of the last axis",
    lambda b, x: b.add("TopK", x, b.ints(2), outputs=2)[0],
    shape=VECTOR,
)
reduction(
    "CumSum", "last axis", lambda b, x: b.add("CumSum", x, b.constant(np.array(2))), shape=TOKENS
)
reduction("Hardmax", "last axis", _node("Hardmax", axis=-1), shape=VECTOR)

# ------------------------------------------------------------------------------------- moves

move = _group("Shapes")
move("Reshape", "(n, c, h, w) to (n, -1)", lambda b, x: b.add("Reshape", x, b.ints(0, -1)))
move("Reshape", "(n, c, h, w) to (n, c, h w)", lambda b, x: b.add("Reshape", x, b.ints(0, 0, -1)))
move(
    "Reshape",
    "(n, k) to an image",
    lambda b, x: b.add("Reshape", x, b.ints(-1, 3, 2, 2)),
    shape=VECTOR,
)
move("Reshape", "by Shape, Gather, Concat", lambda b, x: _computed_shape(b, x))
move(
    "Reshape",
    "behind a global pool",
    lambda b, x: b.add("Reshape", b.add("GlobalAveragePool", x), b.ints(0, -1)),
)
move("Flatten", "axis 1", _node("Flatten"))
move("Flatten", "axis 2", _node("Flatten", axis=2))
move(
    "Squeeze", "axes (2, 3)", lambda b, x: b.axes("Squeeze", b.add("GlobalAveragePool", x), [2, 3])
)
move("Unsqueeze", "axes (2, 3)", lambda b, x: b.axes("Unsqueeze", x, [2, 3]), shape=VECTOR)
move("Unsqueeze", "rank 3 to 4", lambda b, x: b.axes("Unsqueeze", x, [2]), shape=LINE)
move("Transpose", "to channels last", _node("Transpose", perm=[0, 2, 3, 1]))
move(
    "Transpose",
    "to channels last and back",
    lambda b, x: b.add(
        "Transpose", b.add("Relu", b.add("Transpose", x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]
    ),
)
move("Transpose", "rows and columns", _node("Transpose", perm=[0, 1, 3, 2]))
move("Transpose", "tokens and features", _node("Transpose", perm=[0, 2, 1]), shape=TOKENS)
move(
    "Transpose",
    "to tokens: Reshape, Transpose",
    lambda b, x: b.add("Transpose", b.add("Reshape", x, b.ints(0, 8, 42)), perm=[0, 2, 1]),
)
for _title, _axis in (("channels", 1), ("rows", 2), ("columns", -1)):
    move("Concat", _title, lambda b, x, a=_axis: b.add("Concat", x, b.conv(x, 8, 8), axis=a))
move(
    "Concat",
    "of other grids",
    lambda b, x: b.add(
        "Concat", x, b.add("Mul", b.conv(x, 8, 8), b.floats(5)), b.add("Sigmoid", x), axis=1
    ),
)
move("Concat", "a tensor and itself", lambda b, x: b.add("Concat", x, x, axis=1))
move(
    "Concat",
    "with a constant",
    lambda b, x: b.add("Concat", x, b.uniform(-1, 1, b.batch, 2, 7, 6), axis=1),
)
move(
    "Concat",
    "3 channels and 5 (not of blocks)",
    lambda b, x: b.add("Concat", b.conv(x, 8, 3), b.conv(x, 8, 5), axis=1),
)
move(
    "Concat",
    "class token, rank 3",
    lambda b, x: b.add("Concat", b.uniform(-1, 1, b.batch, 1, 8), x, axis=1),
    shape=TOKENS,
)
move("Concat", "rank 2", lambda b, x: b.add("Concat", x, b.gemm(x, 12, 6), axis=1), shape=VECTOR)
move("Split", "2 of the channels", lambda b, x: b.add("Concat", *b.split(x, 2, 1)[::-1], axis=1))
move(
    "Split",
    "uneven",
    lambda b, x: b.add(
        "Concat", *reversed(b.add("Split", x, b.ints(3, 5), outputs=2, axis=1)), axis=1
    ),
)
move("Split", "gate (GLU)", lambda b, x: _glu(b, x))
move(
    "Split",
    "rows",
    lambda b, x: b.add("Add", *b.split(b.add("Slice", x, b.ints(0), b.ints(6), b.ints(2)), 2, 2)),
)
move("Split", "q, k, v of (n, t, k)", lambda b, x: b.add("Add", *b.split(x, 2, -1)), shape=TOKENS)
for _title, _given in {
    "channels": ((0,), (5,), (1,), (1,)),
    "channels, negative ends": ((-6,), (-1,), (1,), (1,)),
    "rows and columns": ((1, 2), (6, 5), (2, 3), (1, 1)),
    "step 2": ((0, 0), (7, 6), (2, 3), (2, 2)),
    "step 2 of channels": ((0,), (8,), (1,), (2,)),
    "reversed": ((-1,), (-100,), (3,), (-1,)),
    "ends beyond the extents": ((2,), (2**31 - 1,), (2,), (1,)),
}.items():
    move("Slice", _title, lambda b, x, g=_given: b.add("Slice", x, *(b.ints(*part) for part in g)))
move(
    "Slice",
    "last token",
    lambda b, x: b.add("Slice", x, b.ints(-1), b.ints(100), b.ints(1)),
    shape=TOKENS,
)
move("Slice", "of the batch", lambda b, x: b.add("Slice", x, b.ints(0), b.ints(1), b.ints(0)))
move("Gather", "channels", lambda b, x: b.add("Gather", x, b.ints(3, 0, 7, 7), axis=1))
move("Gather", "rows", lambda b, x: b.add("Gather", x, b.ints(4, 1, 1), axis=2))
move(
    "Gather",
    "one token",
    lambda b, x: b.add("Gather", x, b.constant(np.array(0)), axis=1),
    shape=TOKENS,
)
move(
    "GatherND",
    "",
    lambda b, x: (
        b.add("GatherND", x, b.ints([2], [5], [1]), batch_dims=0)
        if b.batch > 5
        else b.add("GatherND", x, b.constant(np.zeros((b.batch, 3, 1), np.int64)), batch_dims=1)
    ),
)
move(
    "GatherElements",
    "",
    lambda b, x: b.add(
        "GatherElements", x, b.constant(np.zeros((b.batch, 8, 7, 3), np.int64)), axis=3
    ),
)
move("ScatterND", "", lambda b, x: b.add("ScatterND", x, b.ints([0]), b.uniform(-1, 1, 1, 8, 7, 6)))
move(
    "Expand",
    "(n, c, 1, 1) to the image",
    lambda b, x: b.add("Expand", b.add("GlobalAveragePool", x), b.ints(1, 1, 7, 6)),
)
move("Tile", "rows", lambda b, x: b.add("Tile", x, b.ints(1, 1, 2, 1)))
move("Tile", "channels", lambda b, x: b.add("Tile", x, b.ints(1, 2, 1, 1)))
for _mode in ("constant", "reflect", "edge"):
    move(
        "Pad", _mode, lambda b, x, m=_mode: b.add("Pad", x, b.ints(0, 0, 1, 2, 0, 0, 2, 1), mode=m)
    )
move(
    "Pad",
    "wrap",
    lambda b, x: b.add("Pad", x, b.ints(0, 0, 1, 1, 0, 0, 1, 1), mode="wrap"),
    opset=19,
)
move(
    "Pad",
    "constant 1.5",
    lambda b, x: b.add("Pad", x, b.ints(0, 0, 1, 1, 0, 0, 1, 1), b.floats(1.5)),
)
move("Pad", "channels", lambda b, x: b.add("Pad", x, b.ints(0, 2, 0, 0, 0, 6, 0, 0)))
move("Pad", "negative", lambda b, x: b.add("Pad", x, b.ints(0, 0, -1, 0, 0, 0, 0, -2)))
move("Pad", "axes", lambda b, x: b.add("Pad", x, b.ints(1, 1, 1, 1), "", b.ints(2, 3)), opset=18)
move(
    "Pad",
    "before a strided Conv",
    lambda b, x: b.add(
        "Conv",
        b.add("Pad", x, b.ints(0, 0, 0, 0, 0, 0, 1, 1)),
        b.weight(8, 8, 3, 3),
        strides=[2, 2],
    ),
)
move(
    "Pad",
    "reflect, before a Conv",
    lambda b, x: b.add(
        "Conv",
        b.add("Pad", x, b.ints(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),
        b.weight(8, 8, 3, 3),
    ),
)
move("Pad", "rank 3", lambda b, x: b.add("Pad", x, b.ints(0, 0, 2, 0, 0, 0)), shape=LINE)
for _mode in ("DCR", "CRD"):
    move("DepthToSpace", _mode, _node("DepthToSpace", blocksize=2, mode=_mode))
move("SpaceToDepth", "2", _node("SpaceToDepth", blocksize=2), shape=(4, 6, 8))
move(
    "SpaceToDepth", "by Reshape and Transpose", lambda b, x: _space_to_depth(b, x), shape=(4, 6, 8)
)
move("Channel shuffle", "", lambda b, x: _shuffle(b, x))
move("Windows", "of Swin", lambda b, x: _windows(b, x), shape=(8, 6, 8))
move("Roll", "by Slice and Concat", lambda b, x: _roll(b, x))
move("Identity", "", _node("Identity"))
move("Dropout", "", _node("Dropout"))
move("Cast", "to float32", _node("Cast", to=1))
move("Cast", "to float16 and back", lambda b, x: b.add("Cast", b.add("Cast", x, to=10), to=1))

resize = _group("Resize")
for _title, _scales, _attrs in (
    (
        "nearest x2, asymmetric, floor",
        (2, 2),
        {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
    ),
    ("nearest x2, half_pixel", (2, 2), {"mode": "nearest"}),
    (
        "nearest x2, half_pixel, round_prefer_ceil",
        (2, 2),
        {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    ),
    (
        "nearest x2, align_corners",
        (2, 2),
        {"mode": "nearest", "coordinate_transformation_mode": "align_corners"},
    ),
    ("nearest x3", (3, 3), {"mode": "nearest"}),
    ("nearest (1, 2)", (1, 2), {"mode": "nearest"}),
    ("nearest x1.5", (1.5, 1.5), {"mode": "nearest"}),
    (
        "nearest x0.5",
        (0.5, 0.5),
        {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
    ),
    ("linear x2, half_pixel", (2, 2), {"mode": "linear"}),
    (
        "linear x2, pytorch_half_pixel",
        (2, 2),
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    ),
    (
        "linear x2, align_corners",
        (2, 2),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    (
        "linear x2, asymmetric",
        (2, 2),
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    ),
    ("linear x4, half_pixel", (4, 4), {"mode": "linear"}),
    ("linear x0.5", (0.5, 0.5), {"mode": "linear"}),
    ("cubic x2", (2, 2), {"mode": "cubic"}),
):
    resize(
        "Resize",
        _title,
        lambda b, x, s=_scales, a=_attrs: b.add("Resize", x, "", b.floats([1, 1, *s]), **a),
    )
resize(
    "Resize",
    "nearest, sizes",
    lambda b, x: b.add("Resize", x, "", "", b.ints(b.batch, 8, 14, 12), mode="nearest"),
)
resize(
    "Resize",
    "linear, sizes",
    lambda b, x: b.add("Resize", x, "", "", b.ints(b.batch, 8, 14, 12), mode="linear"),
)
resize(
    "Resize",
    "1-D nearest x2",
    lambda b, x: b.add("Resize", x, "", b.floats([1, 1, 2]), mode="nearest"),
    shape=LINE,
)
resize("Resize", "sizes by Shape", lambda b, x: _sized_like(b, x), shape=(8, 6, 8))


def _computed_shape(b: Network, x: str) -> str:
    size = b.axes(
        "Unsqueeze", b.add("Gather", b.add("Shape", x), b.constant(np.array(0)), axis=0), [0]
    )
    y = b.add("Reshape", x, b.add("Concat", size, b.ints(-1), axis=0))
    return b.declare(y, (b.batch, int(np.prod(IMAGE))))


def _sized_like(b: Network, x: str) -> str:
    size = b.add("Slice", b.add("Shape", x), b.ints(2), b.ints(4), b.ints(0))
    small = b.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    sizes = b.add("Concat", b.ints(b.batch, 8), size, axis=0)
    return str(b.add("Resize", small, "", "", sizes, mode="nearest"))


def _glu(b: Network, x: str) -> str:
    value, gate = b.split(x, 2, 1)
    return str(b.add("Mul", value, b.add("Sigmoid", gate)))


def _space_to_depth(b: Network, x: str) -> str:
    parts = b.add("Reshape", x, b.ints(0, 4, 3, 2, 4, 2))
    return str(
        b.add("Reshape", b.add("Transpose", parts, perm=[0, 3, 5, 1, 2, 4]), b.ints(0, 16, 3, 4))
    )


def _shuffle(b: Network, x: str) -> str:
    parts = b.add("Reshape", x, b.ints(0, 2, 4, 7, 6))
    return str(
        b.add("Reshape", b.add("Transpose", parts, perm=[0, 2, 1, 3, 4]), b.ints(0, 8, 7, 6))
    )


def _windows(b: Network, x: str) -> str:
    last = b.add("Reshape", b.add("Transpose", x, perm=[0, 2, 3, 1]), b.ints(0, 3, 2, 4, 2, 8))
    return str(
        b.add("Reshape", b.add("Transpose", last, perm=[0, 1, 3, 2, 4, 5]), b.ints(-1, 4, 8))
    )


def _roll(b: Network, x: str) -> str:
    ends = ((2, 100), (0, 2))
    parts = [b.add("Slice", x, b.ints(low), b.ints(high), b.ints(2)) for low, high in ends]
    return str(b.add("Concat", *parts, axis=2))


# ------------------------------------------------------------------------------------ blocks


def _gate(b: Network, x: str) -> str:
    small = b.add("Relu", b.conv(b.add("GlobalAveragePool", x), 8, 4, kernel=1))
    return str(b.add("Mul", x, b.add("Sigmoid", b.conv(small, 4, 8, kernel=1))))


def _eca(b: Network, x: str) -> str:
    mean = b.axes("Squeeze", b.add("GlobalAveragePool", x), [-1])
    line = b.add("Transpose", mean, perm=[0, 2, 1])
    line = b.add("Sigmoid", b.add("Conv", line, b.weight(1, 1, 3), pads=[1, 1]))
    return str(b.add("Mul", x, b.axes("Unsqueeze", b.add("Transpose", line, perm=[0, 2, 1]), [-1])))


def _recurrent(kind: str, gates: int, *, both: bool = False) -> Build:
    def build(b: Network, x: str) -> str:
        sides = 2 if both else 1
        series = b.add("Transpose", x, perm=[1, 0, 2])
        given = b.weight(sides, gates * 6, 8), b.weight(sides, gates * 6, 6)
        attrs = {"direction": "bidirectional"} if both else {}
        y = b.add(kind, series, *given, outputs=2, hidden_size=6, **attrs)[0]
        y = b.add("Reshape", b.add("Transpose", y, perm=[2, 0, 1, 3]), b.ints(0, 0, 6 * sides))
        return str(y)

    return build


def _rotary(b: Network, x: str) -> str:
    left, right = b.split(x, 2, -1)
    turned = b.add("Concat", b.add("Neg", right), left, axis=-1)
    cosine, sine = b.uniform(-1, 1, 1, 5, 8), b.uniform(-1, 1, 1, 5, 8)
    return str(b.add("Add", b.add("Mul", x, cosine), b.add("Mul", turned, sine)))


def _rotated(b: Network, x: str) -> str:
    """Rotate two heads by ONNX's operator."""
    caches = b.uniform(-1, 1, 9, 2), b.uniform(-1, 1, 9, 2)
    positions = b.constant(np.tile(np.arange(5), (b.batch, 1)))
    return str(b.add("RotaryEmbedding", x, *caches, positions, num_heads=2))


def _if(b: Network, x: str) -> str:
    make = onnx.helper.make_graph
    kind = onnx.helper.make_tensor_value_info
    shape = b.shape_of(x)
    branches = [
        make([onnx.helper.make_node(op, [x], [out])], op, [], [kind(out, 1, shape)])
        for op, out in (("Relu", "then_y"), ("Neg", "else_y"))
    ]
    return str(
        b.add("If", b.constant(np.array(True)), then_branch=branches[0], else_branch=branches[1])
    )


def _stacked(b: Network, x: str) -> str:
    parts = [b.axes("Unsqueeze", b.conv(x, 8, 8, relu=True), [1]) for _ in range(2)]
    return b.reduce("ReduceSum", b.add("Concat", *parts, axis=1), [1], 0)


block = _group("Blocks")
block(
    "Residual",
    "",
    lambda b, x: b.add("Relu", b.add("Add", b.conv(b.conv(x, 8, 8, relu=True), 8, 8), x)),
)
block("Inverted residual", "Clip(0, 6)", lambda b, x: _inverted(b, x))
block("Squeeze and excitation", "", _gate)
block("ECA", "", _eca)
block(
    "Global context",
    "x + Conv(mean(x))",
    lambda b, x: b.add("Add", x, b.conv(b.add("GlobalAveragePool", x), 8, 8, kernel=1)),
)
block("Stacked branches", "sum over a new axis", _stacked)
block("Linear in channels last", "", lambda b, x: _linear_last(b, x))
block("MLP", "GELU", lambda b, x: b.product(_gelu(b, b.product(x, 16)), 8), shape=TOKENS)
block("Rotary embedding", "", _rotary, shape=TOKENS)
block("RotaryEmbedding", "two heads", _rotated, shape=TOKENS, opset=23)
block("LSTM", "", _recurrent("LSTM", 4), shape=TOKENS)
block("LSTM", "bidirectional", _recurrent("LSTM", 4, both=True), shape=TOKENS)
block("GRU", "", _recurrent("GRU", 3), shape=TOKENS)
block("RNN", "", _recurrent("RNN", 1), shape=TOKENS)
block("If", "constant condition", _if)
block(
    "Classifier",
    "GlobalAveragePool, Flatten, Gemm, Softmax",
    lambda b, x: b.add("Softmax", b.gemm(b.add("Flatten", b.add("GlobalAveragePool", x)), 8, 10)),
)
block("NonZero", "a shape from data", lambda b, x: b.add("NonZero", x))


def _linear_last(b: Network, x: str) -> str:
    last = b.add("MatMul", b.add("Transpose", x, perm=[0, 2, 3, 1]), b.weight(8, 8))
    return str(b.add("Transpose", b.add("Add", last, b.uniform(-0.1, 0.1, 8)), perm=[0, 3, 1, 2]))


def _inverted(b: Network, x: str) -> str:
    wide = b.add("Clip", b.conv(x, 8, 16, kernel=1), b.floats(0), b.floats(6))
    deep = b.add("Clip", b.conv(wide, 16, 16, group=16), b.floats(0), b.floats(6))
    return str(b.add("Add", x, b.conv(deep, 16, 8, kernel=1)))


BY_NAME = {form.name: form for form in FORMS}
assert len(BY_NAME) == len(FORMS)
