"""Operators that PyTorch's exporter to ONNX lacks: `exported_too` teaches them to it for a while.

RMS norms, and adaptive average pools whose result does not divide the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

OPSET = 18
"""From this one on, the axes of ReduceMean are an input."""


@contextmanager
def exported_too() -> Iterator[None]:
    """Let ``torch.onnx.export`` write these operators within a block."""
    import torch

    names = [f"aten::{name}" for name in _operators()]
    for name, written in zip(names, _operators().values(), strict=True):
        torch.onnx.register_custom_op_symbolic(name, written, OPSET)
    try:
        yield
    finally:
        for name in names:
            torch.onnx.unregister_custom_op_symbolic(name, OPSET)


def _operators() -> dict[str, Any]:
    """Return what writes each operator, by its name in PyTorch."""
    from torch.onnx.symbolic_helper import parse_args

    return {
        "rms_norm": parse_args("v", "is", "v", "f")(_rms_norm),
        "adaptive_avg_pool1d": parse_args("v", "is")(_adaptive_mean),
        "adaptive_avg_pool2d": parse_args("v", "is")(_adaptive_mean),
    }


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


def _adaptive_mean(graph: Any, x: Any, counts: Sequence[int]) -> Any:
    """Write means over as equal parts of each of the last axes as whole numbers allow."""
    if {*counts} == {1}:
        return graph.op("GlobalAveragePool", x)
    rank = len(counts)
    lengths = x.type().sizes()[-rank:]
    if not any(length % count for length, count in zip(lengths, counts, strict=True)):
        step = [length // count for length, count in zip(lengths, counts, strict=True)]
        return graph.op("AveragePool", x, kernel_shape_i=step, strides_i=step)
    for axis, length, count in zip(range(-rank, 0), lengths, counts, strict=True):
        if length == count:
            continue
        axes = _constant(graph, [axis])
        ends = [(k * length // count, -(-(k + 1) * length // count)) for k in range(count)]
        parts = [
            graph.op("Slice", x, _constant(graph, [begin]), _constant(graph, [end]), axes)
            for begin, end in ends
        ]
        means = [graph.op("ReduceMean", part, axes, keepdims_i=1) for part in parts]
        x = graph.op("Concat", *means, axis_i=axis)
    return x
