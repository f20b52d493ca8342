"""Graphs: networks on integers, built by hand or by an importer, and what they mean."""

from vtaops.graph.executor import evaluate, evaluate_all
from vtaops.graph.graph import Graph, Node
from vtaops.graph.host import HostFunction
from vtaops.graph.operators import (
    Add,
    AveragePool,
    ChannelShuffle,
    Concat,
    Convolution,
    Dense,
    Dequantize,
    GraphOperator,
    Host,
    LeakyRelu,
    LookupTable,
    Matmul,
    MaxPool,
    Multiply,
    Pad,
    Quantize,
    Requantize,
    Reshape,
    Slice,
    Transpose,
    TransposedConvolution,
    Upsample,
)
from vtaops.graph.requantization import Requantization
from vtaops.graph.tensor import Tensor

__all__ = [
    "Add",
    "AveragePool",
    "ChannelShuffle",
    "Concat",
    "Convolution",
    "Dense",
    "Dequantize",
    "Graph",
    "GraphOperator",
    "Host",
    "HostFunction",
    "LeakyRelu",
    "LookupTable",
    "Matmul",
    "MaxPool",
    "Multiply",
    "Node",
    "Pad",
    "Quantize",
    "Requantization",
    "Requantize",
    "Reshape",
    "Slice",
    "Tensor",
    "Transpose",
    "TransposedConvolution",
    "Upsample",
    "evaluate",
    "evaluate_all",
]
