"""Convert models of float16, bfloat16 and float64, or with such constants, to float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.graph.onnx_files import ModelProto, require, tensors


def to_single(model: ModelProto) -> None:
    """Make every float of a model float32 in place: its tensors, its ends and what its nodes say.

    Results of float16 become more precise; those of float64 less, as int8 needs no more.
    """
    types = require("onnx").TensorProto
    others = {types.FLOAT16, types.BFLOAT16, types.DOUBLE}
    for tensor in list(tensors(model)):
        if tensor.data_type in others:
            _convert(tensor)
    _convert_graph(model.graph, others)


def _convert(tensor: Any) -> None:
    helper = require("onnx").numpy_helper
    damaged = raising(ModelError, f"the constant {tensor.name!r} is damaged", ValueError, TypeError)
    with damaged, np.errstate(over="ignore"):
        value = helper.to_array(tensor).astype(np.float32)
    tensor.CopyFrom(helper.from_array(value, tensor.name))


def _convert_graph(graph: Any, others: set[int]) -> None:
    """Change the types that a graph states, and those of the graphs inside its nodes."""
    single = require("onnx").TensorProto.FLOAT
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in others:
            value.type.tensor_type.elem_type = single
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in others:
                attribute.i = single
            if attribute.HasField("g"):
                _convert_graph(attribute.g, others)
