"""The graph operators: computation on int8 tensors, with weights.

Each is a frozen description. `GraphOperator.infer` infers the result and rejects invalid
inputs. `GraphOperator.reference` computes the results in NumPy: every device must match it bit for
bit. It follows ``docs/quantization.md`` and shares no code with the compiler or the simulators.

Activations are ``real = scale * (value - zero_point)``; weights and factors have no zero point.
"""

from vtaops.graph.boundary import Dequantize, FromUint8, Host, Quantize, ToUint8
from vtaops.graph.elementwise import Add, Extremum, LookupTable, Multiply, Requantize, RescaledAdd
from vtaops.graph.floats import AddTerm, FixedSoftmax, FloatOperator, LayerNorm, Softmax
from vtaops.graph.movement import Concat, Constant, Expand, Pad, Reshape, Slice, Transpose, Upsample
from vtaops.graph.normalization import RowNorm, RowSoftmax
from vtaops.graph.operator import GraphOperator
from vtaops.graph.operator import Pattern as Pattern
from vtaops.graph.operator import Requantized as Requantized
from vtaops.graph.pooling import AveragePool, MaxPool
from vtaops.graph.weighted import Convolution, Dense, Matmul, TransposedConvolution
from vtaops.graph.weighted import Weighted as Weighted

__all__ = [
    "Add",
    "AddTerm",
    "AveragePool",
    "Concat",
    "Constant",
    "Convolution",
    "Dense",
    "Dequantize",
    "Expand",
    "Extremum",
    "FixedSoftmax",
    "FloatOperator",
    "FromUint8",
    "GraphOperator",
    "Host",
    "LayerNorm",
    "LookupTable",
    "Matmul",
    "MaxPool",
    "Multiply",
    "Pad",
    "Quantize",
    "Requantize",
    "RescaledAdd",
    "Reshape",
    "RowNorm",
    "RowSoftmax",
    "Slice",
    "Softmax",
    "ToUint8",
    "Transpose",
    "TransposedConvolution",
    "Upsample",
]
