"""The float graph before it is quantised: optimised, and in the operators that VTA has.

Every rewrite keeps the function of the model: a sum of two becomes an addition, a batch norm that
no convolution takes in becomes a depthwise 1x1 convolution, a mean over the image a global average;
factors and terms behind a convolution move into it, activations behind a concatenation into its
parts, where they cost nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.quantization.affine import fold_affine
from vtaops.quantization.onnx_files import (
    Connections,
    attributes,
    initializers,
    replace_initializer,
    require,
)
from vtaops.quantization.probe import runtime_errors
from vtaops.quantization.scales import SATURATING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def prepare(model: ModelProto) -> ModelProto:
    """Return the model optimised by ONNX Runtime and rewritten to operators that VTA has.

    Raises
    ------
    ModelError
        If ONNX Runtime refuses the model.
    """
    onnx = require("onnx")
    ort = require("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(path)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 3
        with runtime_errors():
            ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        prepared = onnx.load(str(path))
    nodes = [new for node in prepared.graph.node for new in _rewritten(prepared, node)]
    del prepared.graph.node[:]
    prepared.graph.node.extend(nodes)
    _activate_parts(prepared)
    fold_affine(prepared)
    _name_nodes(prepared)
    result: ModelProto = onnx.shape_inference.infer_shapes(prepared)
    return result


def _rewritten(model: ModelProto, node: NodeProto) -> list[NodeProto]:
    rewrite = {"Sum": _sum, "BatchNormalization": _batch_norm, "ReduceMean": _reduce_mean}
    return rewrite[node.op_type](model, node) if node.op_type in rewrite else [node]


def _sum(_: ModelProto, node: NodeProto) -> list[NodeProto]:
    """Sum of n tensors: n - 1 additions."""
    make = require("onnx").helper.make_node
    terms = list(node.input)
    if len(terms) == 1:
        return [make("Identity", terms, node.output)]
    parts = [f"{node.output[0]}_part{i}" for i in range(len(terms) - 2)] + [node.output[0]]
    left, nodes = terms[0], []
    for term, part in zip(terms[1:], parts, strict=True):
        nodes.append(make("Add", [left, term], [part]))
        left = part
    return nodes


def _batch_norm(model: ModelProto, node: NodeProto) -> list[NodeProto]:
    """Batch norm of inference: a depthwise 1x1 convolution with scale / deviation."""
    constants = initializers(model)
    if len(node.output) != 1 or not all(name in constants for name in node.input[1:]):
        return [node]
    scale, shift, mean, variance = (constants[n].astype(np.float64) for n in node.input[1:])
    spread = variance + attributes(node).get("epsilon", 1e-5)
    if not (np.isfinite(spread).all() and spread.min(initial=1.0) > 0):
        raise ModelError(
            f"BatchNormalization {node.name or node.output[0]!r} has a variance of "
            f"{spread.min():g} with epsilon; it must be positive and finite"
        )
    factor = scale / np.sqrt(spread)
    names = [f"{node.output[0]}_{part}" for part in ("weight", "bias")]
    weight = factor.reshape(-1, 1, 1, 1)
    for name, value in zip(names, (weight, shift - mean * factor), strict=True):
        replace_initializer(model, name, value.astype(np.float32))
    make = require("onnx").helper.make_node
    kernel = {"kernel_shape": [1, 1], "group": len(factor)}
    return [make("Conv", [node.input[0], *names], node.output, **kernel)]


def _reduce_mean(model: ModelProto, node: NodeProto) -> list[NodeProto]:
    """Mean over height and width: a global average, flattened where axes are dropped."""
    found = attributes(node)
    axes = found.get("axes")
    if axes is None and len(node.input) == 2:
        axes = initializers(model).get(node.input[1])
    if axes is None or sorted(int(a) for a in axes) not in ([2, 3], [-2, -1]):
        return [node]
    if sorted(int(a) for a in axes) == [-2, -1] and _rank(model, node.input[0]) != 4:
        return [node]
    make = require("onnx").helper.make_node
    if found.get("keepdims", 1):
        return [make("GlobalAveragePool", node.input[:1], node.output)]
    whole = f"{node.output[0]}_pooled"
    pool = make("GlobalAveragePool", node.input[:1], [whole])
    return [pool, make("Flatten", [whole], node.output)]


def _rank(model: ModelProto, name: str) -> int:
    for value in (*model.graph.input, *model.graph.value_info):
        if value.name == name:
            return len(value.type.tensor_type.shape.dim)
    return 0


def _activate_parts(model: ModelProto) -> None:
    """Move activations in front of the concatenations whose only readers they are."""
    make = require("onnx").helper.make_node
    tensors = Connections(model)
    nodes = list(model.graph.node)
    for concat in [node for node in nodes if node.op_type == "Concat"]:
        activation = tensors.only_reader(concat.output[0])
        if activation is None or activation.op_type not in SATURATING:
            continue
        parts = [f"{activation.output[0]}_part{i}" for i in range(len(concat.input))]
        place = nodes.index(concat)
        nodes[place:place] = [
            make(activation.op_type, [name, *activation.input[1:]], [part])
            for name, part in zip(concat.input, parts, strict=True)
        ]
        concat.input[:] = parts
        concat.output[:] = activation.output
        nodes.remove(activation)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _name_nodes(model: ModelProto) -> None:
    """ONNX Runtime's quantiser tells nodes apart by name."""
    seen = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
        seen.add(node.name)
