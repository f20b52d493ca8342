"""Compare a network layer by layer with ONNX Runtime or LiteRT, and find the cause of differences.

Each layer of a QDQ model, from the quantised tensors that it reads to the one that it writes, is
imported alone and gets the integers that ONNX Runtime computed. A difference therefore arises in
that layer, and ONNX Runtime's value before rounding explains it. By induction over the layers, the
difference of the whole network follows from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import Add, AveragePool, Convolution, Graph, Host, Node, evaluate, onnx_files
from vtaops.graph.onnx_files import ModelProto, NodeProto
from vtaops.graph.probe import Probe
from vtaops.relax.importing import import_model
from vtaops.relax.litert import compare
from vtaops.relax.promises import FACTOR_ERROR, FLOAT_ERROR, MULTIPLIER_ERROR, SUM_ERROR


@dataclass(frozen=True)
class LayerDifference:
    """Differences of one layer.

    Attributes
    ----------
    tensor
        Name in the file of the quantised tensor that the layer writes.
    operators
        Kinds of the integer operators that compute the layer.
    values
        Number of elements of the tensor.
    ties
        Differences where ONNX Runtime rounded an exact half to even, while vtaops rounds it up.
    multipliers
        Differences where its value is as close to a half as the error of the multiplier.
    factors
        Differences within the error of an integer factor or term: of an average that uses only
        shifts, of a residual or an addition whose ratio of scales is not a power of two, or of a
        bias that is in floating point in the file and in steps of the sums here.
    unexplained
        All other differences.
    first
        Index, reference value and our value of the first difference; None if there is none.
        Images are NCHW.
    """

    tensor: str
    operators: tuple[str, ...]
    values: int
    ties: int = 0
    multipliers: int = 0
    factors: int = 0
    unexplained: int = 0
    first: tuple[tuple[int, ...], int, int] | None = None

    @property
    def differences(self) -> int:
        """Number of elements that differ."""
        return self.ties + self.multipliers + self.factors + self.unexplained


def trace_differences(
    model: str | Path | ModelProto, sample: Mapping[str, Array], *, graph: Graph | None = None
) -> list[LayerDifference]:
    """Compare the integer executor with ONNX Runtime on one sample, layer by layer.

    A TFLite file is compared with LiteRT's reference kernels (the extra ``litert``).

    Parameters
    ----------
    model
        A QDQ model, or the path of a TFLite file.
    sample
        One array per input.
    graph
        For a TFLite file: the graph to compare, such as that of a compiled model, whose hardware
        may round differently. The default is the graph of the file, which has no differences.

    Returns
    -------
    list of LayerDifference
        In the order of the model. Layers that compute in floating point and the initial rounding
        of an input are omitted, because there is nothing to compare.

    Raises
    ------
    ModelError, UnsupportedError
        As for `import_model`.
    """
    if isinstance(model, str | Path) and Path(model).suffix == ".tflite":
        compared = compare(Path(model), graph or import_model(model), [*sample.values()])
        return [_of_tflite(*one) for one in compared if one[0]]
    return _of_onnx(onnx_files.load(model), sample)


def _of_onnx(loaded: ModelProto, sample: Mapping[str, Array]) -> list[LayerDifference]:
    constants = onnx_files.initializers(loaded)
    layers = [
        layer
        for node in loaded.graph.node
        if node.op_type == "QuantizeLinear" and (layer := _Layer.ending_in(node, loaded, constants))
    ]
    names = {n for layer in layers for n in (*layer.inputs, layer.before, layer.result)}
    inputs = {value.name for value in loaded.graph.input}
    values = {**sample, **Probe(loaded, sorted(names - inputs)).run(dict(sample))}
    return [found for layer in layers if (found := layer.compare(loaded, values, constants))]


def _of_tflite(name: str, node: Node, theirs: Array, ours: Array) -> LayerDifference:
    """Compare an operator of a TFLite file; differences of one step come from hardware scales."""
    apart = np.abs(theirs.astype(np.int64) - ours)
    scaling = getattr(node.op, "requantization", None)
    own = scaling is not None and scaling.rounding in ("half_up", "nudged")
    steps = int(np.count_nonzero(apart == 1)) if own else 0
    return LayerDifference(
        name,
        (node.op.kind,),
        apart.size,
        multipliers=steps,
        unexplained=int(np.count_nonzero(apart)) - steps,
        first=_first(theirs, ours),
    )


def _first(theirs: Array, ours: Array) -> tuple[tuple[int, ...], int, int] | None:
    """Return the index and both values of the first difference."""
    places = np.argwhere(theirs != ours)
    if not len(places):
        return None
    index = tuple(places[0].tolist())
    return index, int(theirs[index]), int(ours[index])


@dataclass(frozen=True)
class _Layer:
    """A part of a model between quantised tensors."""

    rounding: NodeProto
    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]

    @property
    def before(self) -> str:
        """The float tensor before rounding."""
        return str(self.rounding.input[0])

    @property
    def result(self) -> str:
        """The quantised result."""
        return str(self.rounding.output[0])

    @staticmethod
    def ending_in(
        rounding: NodeProto, model: ModelProto, constants: Mapping[str, Array]
    ) -> _Layer | None:
        """Return the layer that ends with a rounding; None if it starts in floating point."""
        writers = onnx_files.producers(model)
        found = {"", *constants}
        inputs: dict[str, None] = {}
        stack = [rounding.output[0]]
        if not _is_fixed(rounding, constants):
            return None
        while stack:
            name = stack.pop()
            if name in found:
                continue
            found.add(name)
            node = writers.get(name)
            if node is None:
                return None
            if node.op_type == "DequantizeLinear" and node.input[0] not in constants:
                inputs[node.input[0]] = None
                if not _is_fixed(node, constants):
                    return None
            else:
                stack.extend(node.input)
        nodes = tuple(n for n in model.graph.node if not found.isdisjoint(n.output))
        return _Layer(rounding, nodes, tuple(inputs)) if inputs else None

    def compare(
        self, model: ModelProto, values: Mapping[str, Array], constants: Mapping[str, Array]
    ) -> LayerDifference | None:
        """Return the differences; None if some operators stay in floating point."""
        graph = import_model(self._alone(model, values))
        operators = [node.op for node in graph.nodes]
        if any(isinstance(op, Host) and "astype" not in op.operators for op in operators):
            return None
        (ours,) = evaluate(graph, *(self._real(name, values, constants) for name in self.inputs))
        scale, zero = _grid(self.rounding, constants)
        exact = values[self.before].astype(np.float64) / scale
        theirs, mine = values[self.result].astype(np.int64), ours.astype(np.int64)
        differs = mine != theirs
        low, high = np.iinfo(values[self.result].dtype).min, np.iinfo(values[self.result].dtype).max
        # Distance of our integer from ONNX Runtime's value, except where that is saturated.
        distance = np.abs(np.clip(exact, low - zero, high - zero) - (mine - zero))
        near = np.abs(exact) * (MULTIPLIER_ERROR + FLOAT_ERROR) + FLOAT_ERROR
        far = near + sum(_factor_error(node, scale, exact) for node in graph.nodes)
        if not self._has_integer_biases(constants):
            far = far + 0.5 * max((_step_of_sums(node) for node in graph.nodes), default=0.0)
        ties = differs & (distance == 0.5) & (mine > theirs)
        multipliers = differs & ~ties & (distance <= 0.5 + near) & (not shifts_only(graph))
        factors = differs & ~ties & ~multipliers & (distance <= 0.5 + far)
        rest = differs & ~ties & ~multipliers & ~factors
        causes = ties, multipliers, factors, rest
        counts: tuple[int, int, int, int] = tuple(int(np.count_nonzero(c)) for c in causes)  # type: ignore[assignment]
        kinds = tuple(dict.fromkeys(op.kind for op in operators))
        first = _first(theirs, mine)
        return LayerDifference(self.result, kinds, mine.size, *counts, first)

    def _has_integer_biases(self, constants: Mapping[str, Array]) -> bool:
        """Return whether every term added to the sums lies on the grid of the sums."""
        integers = {
            node.output[0]
            for node in self.nodes
            if node.op_type == "DequantizeLinear"
            and node.input[0] in constants
            and constants[node.input[0]].dtype == np.int32
        }
        fixed = {*constants, *(n.output[0] for n in self.nodes if {*n.input} <= {*constants})}
        return all(_adds_integers(node, integers, fixed) for node in self.nodes)

    def _reader(self, name: str) -> NodeProto:
        """Return the node that dequantises an input."""
        return next(node for node in self.nodes if node.input[0] == name)

    def _real(
        self, name: str, values: Mapping[str, Array], constants: Mapping[str, Array]
    ) -> Array:
        """Return an input as real values that round to the same integers."""
        scale, zero = _grid(self._reader(name), constants)
        return ((values[name] - zero) * scale).astype(np.float32)

    def _alone(self, model: ModelProto, values: Mapping[str, Array]) -> ModelProto:
        """Return the layer as a model whose inputs are rounded to their grids."""
        onnx = onnx_files.require("onnx")
        read = {name for node in self.nodes for name in node.input}
        roundings = [
            onnx_files.make_node(
                "QuantizeLinear", [_real_name(name), *self._reader(name).input[1:]], [name]
            )
            for name in self.inputs
        ]

        def value(name: str, array: Array, kind: type) -> Any:
            dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            return onnx.helper.make_tensor_value_info(name, dtype, array.shape)

        result = values[self.result]
        graph = onnx.helper.make_graph(
            [*roundings, *self.nodes],
            "layer",
            [value(_real_name(name), values[name], np.float32) for name in self.inputs],
            [value(self.result, result, result.dtype.type)],
            [tensor for tensor in model.graph.initializer if tensor.name in read],
        )
        return onnx.helper.make_model(
            graph, opset_imports=model.opset_import, ir_version=model.ir_version
        )


def _is_fixed(node: NodeProto, constants: Mapping[str, Array]) -> bool:
    """Return whether a file states scale and zero point of a QuantizeLinear or DequantizeLinear."""
    return {*filter(None, node.input[1:])} <= {*constants}


def _grid(node: NodeProto, constants: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return scale and zero point of a QuantizeLinear or DequantizeLinear, as numbers."""
    scale, *zeros = (constants[name] for name in node.input[1:] if name)
    return scale.astype(np.float64), zeros[0].astype(np.int64) if zeros else np.zeros((), np.int64)


def _adds_integers(node: NodeProto, integers: set[str], fixed: set[str]) -> bool:
    """Return whether a node adds neither a real constant nor one of `integers`."""
    if node.op_type in ("Conv", "ConvTranspose", "Gemm"):
        return len(node.input) < 3 or node.input[2] in integers
    return node.op_type not in ("Add", "Sub") or fixed.isdisjoint(node.input)


def shifts_only(graph: Graph) -> bool:
    """Return whether all operators of a graph round by shifts, which is exact except for halves."""
    scalings = [getattr(node.op, "requantization", None) for node in graph.nodes]
    return all(s is None or s.right_shift is not None for s in scalings)


def _factor_error(node: Node, scale: Array, exact: Array) -> Array | float:
    """Return the error caused by integer factors of an operator, in steps of its result."""
    op = node.op
    if isinstance(op, AveragePool):
        return np.abs(exact) * FACTOR_ERROR
    if isinstance(op, Convolution) and op.residual_factor is not None:
        reach = 255 * node.inputs[1].scale / scale
        return float(reach / (2 * op.residual_factor.min()))
    if isinstance(op, Add):
        return float(sum(255 * t.scale for t in node.inputs) / scale * SUM_ERROR)
    return 0.0


def _step_of_sums(node: Node) -> float:
    """Return the step of an operator's sums, in steps of its result."""
    scaling = getattr(node.op, "requantization", None)
    return 0.0 if scaling is None else float((scaling.multiplier / 2.0**scaling.shift).max())


def _real_name(name: str) -> str:
    return f"{name}_real"
