"""A network as the readers of files hand it over: operators of ONNX on tensors of static shape.

Every reader writes it with a `NetworkBuilder`, in the operators and attributes of ONNX's own
domain, as of one opset. Integers stand between QuantizeLinear and DequantizeLinear, both with a
zero point. What depends only on constants is computed when somebody asks for it (`Value.array`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.reasons import Reason
from vtaops.base.shapes import Array
from vtaops.frontends import inference

OPSET = 21
"""The opset of networks that were no ONNX file."""

BEFORE_ROUNDING = ":float"
"""Ends the name of a float tensor of which the file has only the rounded integers."""

UINT8 = 2
"""ONNX's number of the type that a QuantizeLinear rounds to by default."""

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    | {"RandomUniformLike"}
)
"""Operators whose results are random."""


class NotTranslated(Exception):
    """Why a part of the graph has no integer operator; becomes the reason of a host function.

    Parameters
    ----------
    text : str
        The reason; for ``no_operator`` the name of the operator.
    code : str
        Its code (`vtaops.base.reasons`).
    """

    def __init__(self, text: str, code: str = "form") -> None:
        super().__init__(text)
        self.reason = Reason(code, text)


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """An operator of ONNX.

    Attributes
    ----------
    op
        Its name in ONNX; `input` or `constant` if nothing computes its result.
    args
        Tensors that it reads; None for an optional one that is absent.
    attrs
        Attributes as Python values; strings are `str`.
    label
        How the user's file names it: "Conv 'conv1'".
    names
        Names of its results as the file has them; an empty one marks a result that nobody reads.
    captured
        Tensors that its subgraphs read from outside.
    results
        Its results, once it is part of a network.
    """

    op: str
    args: Sequence[Value | None]
    attrs: Mapping[str, Any]
    names: Sequence[str]
    label: str = ""
    captured: Sequence[Value] = ()
    results: list[Value] = field(default_factory=list, init=False)

    @property
    def name(self) -> str:
        """The name of its first result."""
        return self.names[0]

    def argument(self, index: int) -> Value | None:
        """Return an argument; None if it is absent."""
        return self.args[index] if index < len(self.args) else None

    def arguments(self, index: int, count: int = 3) -> list[Value | None]:
        """Return some arguments from one on; None for absent ones."""
        return [self.argument(each) for each in range(index, index + count)]

    @property
    def reads(self) -> list[Value]:
        """The tensors that it reads."""
        return [value for value in (*self.args, *self.captured) if value is not None]


@dataclass(eq=False)
class Value:
    """A tensor.

    Attributes
    ----------
    name
        Its name in the user's file; unique.
    shape
        Its static shape; None if it has none, or if it is no tensor.
    dtype
        Name of its NumPy dtype; empty if it is unknown, or if it is no tensor.
    node
        The node that computes it; one that reads nothing for inputs and constants.
    index
        Which result of the node it is.
    readers
        The values that are computed from it; None for each use as an output of the network.
    constant
        The elements of a constant.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    node: OnnxNode = field(repr=False)
    index: int = 0
    readers: list[Value | None] = field(default_factory=list, repr=False)
    constant: Array | None = field(default=None, repr=False)

    @property
    def op(self) -> str:
        """The operator that computes it."""
        return self.node.op

    @property
    def args(self) -> tuple[Value | None, ...]:
        """The arguments of its node."""
        return tuple(self.node.args)

    @property
    def first(self) -> Value:
        """Its first argument, which its operator always has."""
        (argument, *_) = self.args
        assert argument is not None
        return argument

    def argument(self, index: int) -> Value | None:
        """Return an argument; None if it is absent."""
        return self.node.argument(index)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """Its shape; raises NotTranslated if it is not static."""
        if self.shape is None:
            raise NotTranslated(f"{self.label} has no static shape")
        return self.shape

    @property
    def reads(self) -> list[Value]:
        """The tensors that its node reads."""
        return self.node.reads

    @property
    def orders(self) -> list[tuple[Value, Value]]:
        """The two tensors that its node reads, in both orders; none if these are not two."""
        return [*permutations(self.reads, 2)] if len(self.reads) == 2 else []

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of its node."""
        return self.node.attrs

    @property
    def label(self) -> str:
        """How the user's file names the operator that computes it."""
        return self.node.label

    @property
    def kind(self) -> str:
        """The operator that computes it as the user's file calls it."""
        return self.label.partition(" ")[0]

    @cached_property
    def fixed(self) -> bool:
        """Whether it depends on no input."""
        return self.op not in RANDOM | {"input"} and all(value.fixed for value in self.reads)

    @cached_property
    def array(self) -> Array | None:
        """Its elements if it is fixed, in its dtype; None if it is not, or nobody can tell."""
        known = self.constant is not None or not self.fixed
        return self.constant if known else inference.computed(self)


def reached(values: Iterable[Value], inner: Callable[[Value], Sequence[Value]]) -> Iterator[Value]:
    """Yield values and those to which a function leads from them, each once."""
    pending, seen = [*values], set[Value]()
    while pending:
        value = pending.pop()
        if value not in seen:
            seen.add(value)
            pending += inner(value)
            yield value


@dataclass(frozen=True)
class OnnxNetwork:
    """A network.

    Attributes
    ----------
    inputs
        Its inputs, in order.
    values
        All results of nodes, in the order of computation.
    outputs
        Its outputs, in order.
    opset
        The opset of its nodes.
    tflite
        Whether it rounds like TFLite's reference kernels.
    """

    inputs: tuple[Value, ...]
    values: tuple[Value, ...]
    outputs: tuple[Value, ...]
    opset: int = OPSET
    tflite: bool = False

    def forget(self) -> None:
        """Take values apart: their circles keep constants until the next collection."""
        for value in (*self.inputs, *self.values):
            del value.node
            value.readers.clear()


class NetworkBuilder:
    """Builds a network node by node; shapes and dtypes are those that ONNX infers."""

    def __init__(self, opset: int = OPSET) -> None:
        self.opset = opset
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        self._taken: dict[str, int] = {"": 0}

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Value:
        """Add an input."""
        value = self._source("input", name, tuple(shape), dtype)
        self.inputs.append(value)
        return value

    def constant(self, array: Array, name: str = "constant") -> Value:
        """Return a constant."""
        value = self._source("constant", name, array.shape, str(array.dtype))
        value.constant = array
        return value

    def _source(self, op: str, name: str, shape: tuple[int, ...], dtype: str) -> Value:
        unique = self._unique(name)
        return Value(unique, shape, dtype, OnnxNode(op, (), {}, [unique], f"{op} {unique!r}"))

    def add(
        self, op: str, *args: Value | None, name: str = "", label: str = "", **attrs: Any
    ) -> Value:
        """Add a node with one result, and return the result."""
        (value,) = self.add_node(OnnxNode(op, args, attrs, [name or op], label))
        return value

    def add_node(self, node: OnnxNode) -> list[Value]:
        """Add a node, and return its results.

        Parameters
        ----------
        node
            The node; without a label, it is named after its first result. Another name is taken
            for one that is in use. A QuantizeLinear or DequantizeLinear may lack a zero point of 0.

        Raises
        ------
        ModelError
            If ONNX refuses the arguments or the attributes, or the scales or zero points of a
            tensor are neither one nor one for each channel.
        """
        if node.op in inference.PAIRED:
            node = self._with_zero_point(node)
        unique = [name and self._unique(name) for name in node.names]
        node = replace(node, label=node.label or f"{node.op} {unique[0]!r}")
        types = inference.inferred(node, len(unique), self.opset)
        for index, (name, (shape, dtype)) in enumerate(zip(unique, types, strict=True)):
            node.results.append(Value(name, shape, dtype, node, index))
        self.values += node.results
        for read in node.reads:
            read.readers += node.results
        return node.results

    def _with_zero_point(self, node: OnnxNode) -> OnnxNode:
        """Return a half of a pair with its zero point, after a check of its grid."""
        data, scale, zero = node.arguments(0)
        if data is None or scale is None:
            raise ModelError(f"{node.label} has no scale")
        if zero is None:
            rounded = inference.dtype_of(node.attrs.get("output_dtype") or UINT8)
            dtype = data.dtype if node.op == "DequantizeLinear" else rounded
            zeros = np.zeros(scale.shape or (), np.dtype(dtype))
            zero = self.constant(zeros, f"{node.name}:zero_point")
        if not node.attrs.get("block_size"):
            _check_channels(node, data, {"scales": scale, "zero points": zero})
        return replace(node, args=[data, scale, zero])

    def rename(self, value: Value, name: str) -> None:
        """Give a value another name, or the next that is free."""
        value.name = self._unique(name)

    def network(self, outputs: Sequence[Value], *, tflite: bool = False) -> OnnxNetwork:
        """Return the network with these outputs."""
        for value in outputs:
            value.readers.append(None)
        ends = tuple(self.inputs), tuple(self.values), tuple(outputs)
        return OnnxNetwork(*ends, self.opset, tflite)

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self._taken:
            self._taken[name] += 1
            unique = f"{name}_{self._taken[name]}"
        self._taken[unique] = 0
        return unique


def _check_channels(node: OnnxNode, data: Value, parameters: Mapping[str, Value]) -> None:
    axis, extents = int(node.attrs.get("axis", 1)), data.shape or ()
    channels = extents[axis] if -len(extents) <= axis < len(extents) else 1
    for what, parameter in parameters.items():
        count = math.prod(parameter.shape or ())
        if count not in (1, channels):
            raise ModelError(
                f"the tensor {node.name!r} of shape {extents} is quantised with {count} {what} "
                f"along its axis {axis}; give one, or one for each of its {channels} channels"
            )


@dataclass(frozen=True)
class Parts:
    """Adds the operators that one of a file stands for; they bear its name and label."""

    builder: NetworkBuilder
    whole: OnnxNode

    def add(self, op: str, *args: Value | None, part: str | None = None, **attrs: Any) -> Value:
        """Add a node with one result; `part` ends the name, by default that of the operator."""
        name = self.whole.name + (f":{op}" if part is None else part)
        return self.builder.add(op, *args, name=name, label=self.whole.label, **attrs)

    def constant(self, array: Array, part: str = ":constant") -> Value:
        """Return a constant."""
        return self.builder.constant(array, self.whole.name + part)
