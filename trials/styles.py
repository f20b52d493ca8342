"""Float networks of ONNX, quantised as the usual tools write them.

vtaops and ONNX Runtime quantise by themselves. The others are written here, pair by pair: where
PyTorch, TensorRT and Brevitas put their QuantizeLinear and DequantizeLinear, and what they look
like.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import vtaops
from vtaops.graph.probe import Probe

Model = onnx.ModelProto
Arrays = dict[str, np.ndarray[Any, Any]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

STYLES = ("pow2", "free", "ort", "ort_uint8", "qoperator", "pytorch", "tensorrt", "qcdq")
"""`vtaops.quantize` with both kinds of scales, then foreign tools."""


def quantised(model: Model, data: Floats, style: str) -> Model:
    """Return a network quantised in a style; `data` are stacked inputs."""
    if style in ("pow2", "free"):  # no product stays float: the marks say what hardware can do
        options: Any = {"scales": style, "float_nodes": ()}
        return vtaops.quantize(model, {"x": data}, **options)
    samples = _samples(model, data)
    if style in _RUNTIME:
        return _by_runtime(model, samples, **_RUNTIME[style])
    return Pairs(model, samples, **_WRITTEN[style]).model()


def with_integer_ends(model: Model, sample: Arrays) -> tuple[Model, Arrays]:
    """Return a quantised network without the first and the last half of a pair, and its input."""
    file = Model()
    file.CopyFrom(model)
    graph, constants = (
        file.graph,
        {c.name: numpy_helper.to_array(c) for c in model.graph.initializer},
    )
    first = next(n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "x")
    last = next(n for n in graph.node if graph.output[0].name in n.output)
    if last.op_type != "DequantizeLinear":
        raise ValueError("its result is not quantised")
    scale, zero = (constants[name] for name in first.input[1:3])
    info = np.iinfo(zero.dtype)
    whole = np.clip(np.rint(sample["x"] / scale) + zero, info.min, info.max).astype(zero.dtype)
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == first.output[0]:
                node.input[index] = "x"
    graph.node.remove(first)
    graph.node.remove(last)
    kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
    graph.input[0].type.tensor_type.elem_type = kind
    graph.output[0].type.tensor_type.elem_type = kind
    graph.output[0].name = last.input[0]
    return file, {"x": whole}


def _samples(model: Model, data: Floats) -> list[dict[str, Floats]]:
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    return [{"x": data[i : i + batch]} for i in range(0, len(data), batch)]


_RUNTIME: dict[str, dict[str, str]] = {
    "ort": {"kind": "QDQ", "activations": "QInt8"},
    "ort_uint8": {"kind": "QDQ", "activations": "QUInt8"},
    "qoperator": {"kind": "QOperator", "activations": "QInt8"},
}


def _by_runtime(
    model: Model, samples: list[dict[str, Floats]], kind: str, activations: str
) -> Model:
    import onnxruntime as runtime
    from onnxruntime import quantization as tool

    logging.getLogger().setLevel(logging.ERROR)  # its hints, by the root logger

    class Reader(tool.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples = iter(samples)

        def get_next(self) -> dict[str, Floats] | None:
            return next(self.samples, None)

    runtime.set_default_logger_severity(3)  # its tools open sessions that warn
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "q.onnx"
        tool.quantize_static(
            model,
            result,
            Reader(),
            quant_format=getattr(tool.QuantFormat, kind),
            activation_type=getattr(tool.QuantType, activations),
            weight_type=tool.QuantType.QInt8,
            per_channel=True,
        )
        return onnx.load(result)


_WRITTEN: dict[str, dict[str, bool]] = {
    "pytorch": {},
    "tensorrt": {"inputs_only": True, "float_weights": True, "symmetric": True},
    "qcdq": {"clips": True, "float_weights": True, "symmetric": True},
}

PRODUCTS = {"Conv": 0, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
"""Operators with weights, and the axis of their output channels; negative: the last."""

MOVES = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split", "Pad"}
    | {"Expand", "Tile", "MaxPool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth", "Identity"}
    | {"Dropout"}
)
"""Operators whose results stay on the grid of their operand."""

TENSORRT = ("Add", "AveragePool", "MaxPool", "GlobalAveragePool")
"""What TensorRT's tools put pairs before, beside products."""


@dataclass
class Pairs:
    """Writes pairs into a float network.

    Attributes
    ----------
    samples
        Inputs from which the ranges of tensors come.
    inputs_only
        Pairs before products, sums and pools only, and at the end, as in TensorRT; else behind each
        operator.
    float_weights
        Weights as float constants with both halves of a pair; else int8 with a DequantizeLinear.
    clips
        A Clip to -127 and 127 between the halves, as in Brevitas.
    symmetric
        Zero points are 0.
    """

    source: Model
    samples: list[dict[str, Floats]]
    inputs_only: bool = False
    float_weights: bool = False
    clips: bool = False
    symmetric: bool = False
    _nodes: list[onnx.NodeProto] = field(default_factory=list)
    _constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    _paired: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.source.graph
        self._weights = {c.name: numpy_helper.to_array(c) for c in graph.initializer}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._ranges = self._calibrated()
        self._grids: dict[str, tuple[np.float32, np.int8]] = {}

    def _calibrated(self) -> dict[str, tuple[float, float]]:
        graph = self.source.graph
        names = [name for node in graph.node for name in node.output if name]
        probe = Probe(self.source, names)
        found: dict[str, tuple[float, float]] = {}
        for sample in self.samples:
            for name, values in {**probe.run(sample), **sample}.items():
                if values.dtype == np.float32 and values.size:
                    low, high = found.get(name, (0.0, 0.0))
                    found[name] = min(low, float(values.min())), max(high, float(values.max()))
        return found

    def model(self) -> Model:
        """Return the network with its pairs."""
        graph = self.source.graph
        for node in graph.node:
            self._add(node)
        names = [value.name for value in graph.output]
        outputs = [self._pair(name) if name in self._ranges else name for name in names]
        constants = {**self._weights, **self._constants}
        made = helper.make_graph(
            self._nodes,
            graph.name,
            graph.input,
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
            value_info=self.source.graph.value_info,
        )
        model = helper.make_model(made, opset_imports=self.source.opset_import)
        model.ir_version = self.source.ir_version
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    def _add(self, node: onnx.NodeProto) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if not self.inputs_only or node.op_type in (*PRODUCTS, *TENSORRT):
            for index, name in enumerate(node.input):
                if index == 1 and node.op_type in PRODUCTS and name in self._weights:
                    copy.input[index] = self._weight(node, name)
                elif name in self._ranges and not self._is_fused(name):
                    copy.input[index] = self._pair(name)
        self._nodes.append(copy)
        if node.op_type in MOVES and node.input[0] in self._grids:
            self._grids |= dict.fromkeys(node.output, self._grids[node.input[0]])

    def _is_fused(self, name: str) -> bool:
        """Return whether a tensor goes to an activation alone that its operator includes."""
        readers = self._readers.get(name, [])
        return len(readers) == 1 and readers[0].op_type in ("Relu", "Clip")

    def _constant(self, value: Any) -> str:
        name = f"q{len(self._constants)}"
        self._constants[name] = np.asarray(value)
        return name

    def _node(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attrs))
        return name

    def _pair(self, name: str) -> str:
        if name not in self._paired:
            scale, zero = self._grids.setdefault(name, self._grid(name))
            grid = self._constant(scale), self._constant(zero)
            self._paired[name] = self._halves(name, *grid)
        return self._paired[name]

    def _halves(self, name: str, *grid: str, **attrs: Any) -> str:
        rounded = self._node("QuantizeLinear", name, *grid, **attrs)
        if self.clips:
            ends = (self._constant(np.int8(end)) for end in (-127, 127))
            rounded = self._node("Clip", rounded, *ends)
        return self._node("DequantizeLinear", rounded, *grid, **attrs)

    def _grid(self, name: str) -> tuple[np.float32, np.int8]:
        low, high = self._ranges[name]
        if self.symmetric:
            return np.float32(max(-low, high, 1e-6) / 127), np.int8(0)
        scale = np.float32(max(high - low, 1e-6) / 255)
        return scale, np.int8(np.clip(np.rint(-128 - low / scale), -128, 127))

    def _weight(self, node: onnx.NodeProto, name: str) -> str:
        weight = self._weights[name]
        axis = dict(_attributes(node)).get("transB", 0) - 1 if node.op_type == "Gemm" else None
        axis = PRODUCTS[node.op_type] if axis is None else (0 if axis == 0 else 1)
        axis %= max(1, weight.ndim)
        grouped = node.op_type == "ConvTranspose" and dict(_attributes(node)).get("group", 1) > 1
        if weight.ndim < 2 or grouped:
            scale, attrs = np.float32(np.abs(weight).max() / 127), {}
        else:
            others = tuple(i for i in range(weight.ndim) if i != axis)
            scale = np.float32(np.maximum(np.abs(weight).max(others), 1e-6) / 127)
            attrs = {"axis": axis}
        zero = np.zeros(np.shape(scale), np.int8)
        if self.float_weights:
            grid = self._constant(scale), self._constant(zero)
            return self._halves(name, *grid, **attrs)
        shaped = (
            scale
            if not attrs
            else scale.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
        )
        whole = np.clip(np.rint(weight / shaped), -127, 127).astype(np.int8)
        parts = [self._constant(part) for part in (whole, scale, zero)]
        return self._node("DequantizeLinear", *parts, **attrs)


def _attributes(node: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    for attribute in node.attribute:
        yield attribute.name, helper.get_attribute_value(attribute)
