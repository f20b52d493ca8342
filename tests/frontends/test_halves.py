"""Sums of powers of two that lose one bit: halves to even, as in ONNX Runtime."""

import numpy as np
import pytest

import vtaops
from trials.onnx_models import Builder
from vtaops.frontends import import_model
from vtaops.graph import evaluate
from vtaops.graph.operators import Add
from vtaops.graph.probe import Probe

SHAPE = (1, 1, 256, 256)


def file(scales, zeros, shape=SHAPE):
    """Return a QDQ sum of two tensors, whose scales and zero points are those of a, b and y."""
    b = Builder()
    grids = [
        [b.constant(np.array(scale, np.float32)), b.constant(np.array(zero, np.int8))]
        for scale, zero in zip(scales, zeros, strict=True)
    ]
    read = [
        b.add("DequantizeLinear", b.add("QuantizeLinear", b.input(list(shape), name), *grid), *grid)
        for name, grid in zip("ab", grids, strict=False)
    ]
    total = b.add("QuantizeLinear", b.add("Add", *read), *grids[2])
    b.output(b.add("DequantizeLinear", total, *grids[2]))
    return b.model()


@pytest.mark.parametrize(
    ("scales", "zeros"),
    [
        ((0.5, 1, 1), (0, 0, 0)),
        ((1, 0.5, 1), (0, 0, 5)),
        ((0.5, 0.5, 1), (0, 0, 0)),
        ((0.5, 0.5, 1), (-128, -128, -128)),
        ((0.5, 1, 1), (-128, 40, -20)),
        ((0.25, 0.25, 0.5), (127, -128, 3)),
    ],
)
def test_all_pairs_of_values_equal_onnx_runtime(scales, zeros):
    model = file(scales, zeros)
    steps = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    data = {
        name: np.broadcast_to((step - zero) * np.float32(scale), SHAPE).astype(np.float32)
        for name, step, scale, zero in zip("ab", steps, scales, zeros, strict=False)
    }
    (expected,) = Probe(model).run(data).values()
    (found,) = evaluate(import_model(model), *data.values())
    np.testing.assert_array_equal(found, expected)


def test_the_device_computes_them():
    shape = (2, 8, 6, 6)
    model = file((0.5, 1, 1), (0, 0, 0), shape)
    compiled = vtaops.compile_model(model, "tiny")
    rng = np.random.default_rng(0)
    data = [rng.integers(-100, 100, shape).astype(np.float32) / 2 for _ in range(2)]
    np.testing.assert_array_equal(compiled.run(*data), compiled.reference(*data))


def test_other_sums_stay_whole():
    for scales in ((1, 1, 1), (0.25, 1, 1), (0.3, 1, 1), (0.5, 8, 1)):
        graph = import_model(file(scales, (0, 0, 0)))
        assert sum(isinstance(node.op, Add) for node in graph.nodes) == 1
