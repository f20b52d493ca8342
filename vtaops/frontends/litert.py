"""Compare a network with LiteRT's reference kernels, which define a TFLite file bit for bit.

The integer executor computes each operator of the file from LiteRT's integers, so a difference is
located where it arises. The graph of a file has none; the graph of a compiled network has those
that its hardware cannot avoid (`vtaops ops` counts them).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.optional import optional
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Node
from vtaops.graph import operators as ops
from vtaops.graph.executor import checked_inputs, evaluate_node

KINDS: dict[str, tuple[type[ops.GraphOperator], ...]] = {
    "CONV_2D": (ops.Convolution,),
    "DEPTHWISE_CONV_2D": (ops.Convolution,),
    "TRANSPOSE_CONV": (ops.TransposedConvolution,),
    "FULLY_CONNECTED": (ops.Dense,),
    "ADD": (ops.RescaledAdd, ops.Add, ops.LookupTable),
    "SUB": (ops.RescaledAdd, ops.Add, ops.LookupTable),
    "MUL": (ops.Multiply, ops.LookupTable),
    "AVERAGE_POOL_2D": (ops.AveragePool,),
    "MEAN": (ops.AveragePool,),
    "MAX_POOL_2D": (ops.MaxPool,),
    "CONCATENATION": (ops.Concat,),
    "SOFTMAX": (ops.FixedSoftmax,),
    **dict.fromkeys(
        ("LEAKY_RELU", "LOGISTIC", "TANH", "HARD_SWISH", "GELU", "ELU"), (ops.LookupTable,)
    ),
}
"""TFLite operators that exist in a graph; the others only move values."""

COMPUTING = tuple(kind for kinds in KINDS.values() for kind in kinds)
"""Operators of a graph that are one of a file; the others only move values."""

IMAGES = ops.Convolution | ops.TransposedConvolution | ops.AveragePool | ops.MaxPool
"""Operators on NCHW."""

Compared = tuple[str, Node, Array, Array]
"""An operator's result by name, its node, and the values of LiteRT and of the executor in NCHW."""


@dataclass(frozen=True)
class _Operator:
    """An operator of a file: numbers of its inputs and result, grid and values of the result."""

    kind: str
    name: str
    inputs: tuple[int, ...]
    output: int
    grid: tuple[float, int]
    values: Array


def has_litert() -> bool:
    """Return whether LiteRT is installed."""
    return find_spec("ai_edge_litert") is not None


_TRIAL = """
import sys
from ai_edge_litert.interpreter import Interpreter, OpResolverType
trial = Interpreter(sys.argv[1], experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
trial.allocate_tensors()
trial.invoke()
"""


def runs(path: Path) -> bool:
    """Return whether LiteRT runs a file: on some it ends its whole process, so another one tries.

    One such file has a softmax whose input has a scale below 2**-26.
    """
    tried = subprocess.run([sys.executable, "-c", _TRIAL, str(path)], capture_output=True)
    return tried.returncode == 0


def reference(path: Path, arrays: Sequence[Array]) -> tuple[list[_Operator], list[int]]:
    """Return the operators of a file with LiteRT's results, and the numbers of the file's inputs.

    Raises
    ------
    ModelError
        If the arrays do not match the inputs of the file.
    """
    purpose = "running TFLite's reference kernels needs"
    module = "ai_edge_litert.interpreter"
    litert = optional(module, "ai-edge-litert", purpose, "'vtaops[litert]'")
    interpreter = litert.Interpreter(
        str(path),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    inputs = interpreter.get_input_details()
    if len(inputs) != len(arrays):
        raise ModelError(f"{path} takes {len(inputs)} inputs; {len(arrays)} given")
    for detail, array in zip(inputs, arrays, strict=True):
        if array.shape != tuple(detail["shape"]) or array.dtype != detail["dtype"]:
            stated = f"{np.dtype(detail['dtype'])}{detail['shape'].tolist()}"
            raise ModelError(
                f"{detail['name']} is {array.dtype}{list(array.shape)}; {path} takes {stated}"
            )
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    operators = [
        _Operator(
            operator["op_name"],
            details[int(operator["outputs"][0])]["name"],
            tuple(int(number) for number in operator["inputs"]),
            int(operator["outputs"][0]),
            details[int(operator["outputs"][0])]["quantization"],
            interpreter.get_tensor(operator["outputs"][0]).copy(),
        )
        for operator in interpreter._get_ops_details()
    ]
    return operators, [int(detail["index"]) for detail in inputs]


def compare(path: Path, graph: Graph, arrays: Sequence[Array]) -> Iterator[Compared]:
    """Yield a comparison for each operator that the outputs of a file need.

    Operators that only move values have no name in it.

    Raises
    ------
    ModelError
        If the graph does not belong to the file.
    """
    left, inputs = reference(path, arrays)
    if [tensor.shape for tensor in graph.inputs] != [array.shape for array in arrays]:
        raise ModelError(f"{graph.name} is not a graph of {path}, whose inputs have other shapes")
    values = checked_inputs(graph.inputs, arrays)
    roots = _roots(left, inputs) | dict(zip(values, inputs, strict=True))
    left = [operator for operator in left if operator.kind in KINDS]
    turned: set[str] = set()
    for node in graph.nodes:
        made = evaluate_node(node, values)
        values |= made
        own, name = made[node.outputs[0].name], node.outputs[0].name
        if _is_channels_first(node, turned):
            turned.add(name)
        if not isinstance(node.op, COMPUTING):
            roots[name] = roots[node.inputs[0].name]
            yield "", node, own, own
            continue
        found = next((o for o in left if _is_of(node, o, roots)), None)
        if found is None:
            raise ModelError(f"{graph.name} is not a graph of {path}, which has no {name}")
        left.remove(found)
        roots[name] = found.output
        other = _as_in_graph(found.values, own.shape, channels_first=name in turned)
        yield found.name, node, other, own
        values[name] = other


def _as_in_graph(values: Array, shape: tuple[int, ...], *, channels_first: bool) -> Array:
    """Return the values of a file's tensor in the shape of the graph's."""
    if channels_first and values.ndim == len(shape) == 4:
        values = values.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(values.reshape(shape))


def _is_channels_first(node: Node, turned: Collection[str]) -> bool:
    """Return whether a result is NCHW; `turned` are the tensors before that are."""
    if isinstance(node.op, ops.Transpose):
        return node.op.axes == (0, 3, 1, 2)
    return node.inputs[0].name in turned or isinstance(node.op, IMAGES)


def _roots(operators: Sequence[_Operator], inputs: Sequence[int]) -> dict[str | int, int]:
    """Return the origin of each tensor of a file, following operators that only move values."""
    roots: dict[str | int, int] = {number: number for number in inputs}
    for operator in operators:
        moves = operator.kind not in KINDS and operator.inputs[0] in roots
        roots[operator.output] = roots[operator.inputs[0]] if moves else operator.output
    return roots


def _is_of(node: Node, operator: _Operator, roots: Mapping[str | int, int]) -> bool:
    """Return whether a node is an operator of the file: with the same tensors and the same grid."""
    if not isinstance(node.op, KINDS[operator.kind]):
        return False
    read = {roots[tensor.name] for tensor in node.inputs}
    result = node.outputs[0]
    grid = (np.float32(result.scale), result.zero_point)
    alike = grid == (np.float32(operator.grid[0]), int(operator.grid[1]))
    return alike and read == {roots[number] for number in operator.inputs if number in roots}
