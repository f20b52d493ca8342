"""Between the integers of a graph and the world: conversions, and functions of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.host import HostFunction
from vtaops.graph.operator import GraphOperator, Tensors, graph_operator
from vtaops.graph.tensor import DTYPES, Tensor


@graph_operator
class Quantize(GraphOperator):
    """float32 to int8: ``clip(rint(x / scale) + zero_point)``, halves to even, as in ONNX.

    NaN becomes -128, as in ONNX Runtime.
    """

    scale: float
    zero_point: int = 0
    takes = ("float32",)

    def infer(self, data: Tensor) -> Tensor:
        return Tensor("-", data.shape, "int8", self.scale, self.zero_point)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        with np.errstate(over="ignore"):  # an overflow to infinity is clipped
            steps = np.rint(data / np.float32(self.scale)) + np.float32(self.zero_point)
        return np.fmin(np.fmax(steps, -128), 127).astype(np.int8)


@graph_operator
class Dequantize(GraphOperator):
    """int8 to float32: ``(x - x.zero_point) * x.scale``, in float32."""

    def infer(self, data: Tensor) -> Tensor:
        return Tensor("-", data.shape, "float32")

    def reference(self, inputs: Tensors, data: Array) -> Any:
        steps = inputs[0].real(data).astype(np.float32)
        with np.errstate(over="ignore"):
            return np.multiply(steps, np.float32(inputs[0].scale))


@graph_operator
class FromUint8(GraphOperator):
    """uint8 to int8: 128 less. The zero point is that of the result."""

    zero_point: int = 0
    takes = ("uint8",)

    def infer(self, data: Tensor) -> Tensor:
        return Tensor("-", data.shape, "int8", data.scale, self.zero_point)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return (data ^ 128).view(np.int8)


@graph_operator
class ToUint8(GraphOperator):
    """int8 to uint8: 128 more."""

    def infer(self, data: Tensor) -> Tensor:
        return Tensor("-", data.shape, "uint8", data.scale)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return data.view(np.uint8) ^ 128


@graph_operator
class Host(GraphOperator):
    """An opaque function that an importer compiled for the host.

    Parameters
    ----------
    function : HostFunction
        Called with the input arrays.
    outputs : tuple of Tensor
        Its results: shapes, dtypes, scales (names are ignored).
    operators : tuple of str
        Display names of the model's operators that it computes.
    reason, code : str
        Why it does not run on VTA (`vtaops.base.reasons`).
    products : int
        How many convolutions and matrix products it computes.
    """

    function: HostFunction
    outputs: tuple[Tensor, ...]
    operators: tuple[str, ...] = ()
    reason: str = "it is not an integer operator"
    code: str = "float"
    products: int = 0
    arity = None
    takes = DTYPES

    @property
    def kind(self) -> str:
        return ", ".join(self.operators) or "host"

    def infer_outputs(self, inputs: Tensors) -> tuple[Tensor, ...]:
        return self.outputs

    def reference(self, inputs: Tensors, *arrays: Array) -> Any:
        return self.function(*arrays)
