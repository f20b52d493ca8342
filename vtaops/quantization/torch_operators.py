"""RMS norms, which PyTorch's exporter lacks: `exported_too` teaches them to it for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

OPSET = 18
"""From this one on, the axes of ReduceMean are an input."""


@contextmanager
def exported_too() -> Iterator[None]:
    """Let ``torch.onnx.export`` write RMS norms within a block."""
    import torch
    from torch.onnx.symbolic_helper import parse_args

    written = parse_args("v", "is", "v", "f")(_rms_norm)
    torch.onnx.register_custom_op_symbolic("aten::rms_norm", written, OPSET)
    try:
        yield
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::rms_norm", OPSET)


def _constant(graph: Any, value: Any) -> Any:
    import torch

    return graph.op("Constant", value_t=torch.tensor(value))


def _rms_norm(graph: Any, x: Any, shape: Sequence[int], weight: Any, epsilon: float | None) -> Any:
    """Write ``x / sqrt(mean(x * x) + epsilon) * weight`` over the last axes."""
    if epsilon is None:
        epsilon = float(np.finfo(np.float32).eps)
    axes = _constant(graph, [*range(-len(shape), 0)])
    square = graph.op("Mul", x, x)
    mean = graph.op("ReduceMean", square, axes, keepdims_i=1)
    root = graph.op("Sqrt", graph.op("Add", mean, _constant(graph, epsilon)))
    normalized = graph.op("Div", x, root)
    return normalized if weight.node().mustBeNone() else graph.op("Mul", normalized, weight)
