"""Networks of what stops a quantiser become files that load and keep what float computes."""

import numpy as np
import onnx
import pytest

import vtaops
from trials.onnx_models import Builder, images
from trials.random_parts import check, network
from vtaops.graph import onnx_files
from vtaops.graph.probe import Probe
from vtaops.quantization.prepare import prepare

SEEDS = (*range(20), 21, 28)
"""Together they have each kind of part."""


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_stops_and_only_rounding_differs(seed):
    """A sample of the campaign, every other two with scales of any value."""
    scales = "free" if seed // 2 % 2 else "pow2"
    result = check(seed, scales, equalization=bool(seed % 2))
    assert result["refused"] == result["error"] == ""


def test_what_stops_is_drawn():
    """Each kind of part is in some network of the test above."""
    models = [network(seed)[0] for seed in SEEDS]
    kinds = {node.op_type for model in models for node in model.graph.node}
    wanted = {"Softmax", "Where", "Erf", "Gemm", "Cast", "ConvTranspose", "Concat", "Resize"}
    assert wanted | {"If", "PRelu", "Pad", "Slice", "LeakyRelu"} <= kinds
    ranks = {len(m.graph.output[0].type.tensor_type.shape.dim) for m in models}
    assert {0, 1, 2, 3, 4} <= ranks
    constants = [c for m in models for c in onnx_files.initializers(m).values()]
    assert any(c.dtype in (np.float16, np.float64) for c in constants)
    assert any(c.size == 0 for c in constants)
    assert any(c.dtype == np.float32 and c.size and c.min() <= -1e30 for c in constants)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (5,), (1, 5), (2, 5), (2, 1)])
@pytest.mark.parametrize("factors", [{}, {"alpha": 0.5, "beta": 2.0}])
def test_a_bias_of_any_shape(shape, factors):
    b = Builder()
    weight = b.constant(b.rng.standard_normal((12, 5)).astype(np.float32))
    bias = b.constant(np.asarray(b.rng.standard_normal(shape), np.float32))
    b.output(b.add("Gemm", b.input([2, 12]), weight, bias, **factors))
    x = b.rng.standard_normal((2, 12)).astype(np.float32)
    exact, kept = (
        next(iter(Probe(m).run({"x": x}).values())) for m in (b.model(), prepare(b.model()))
    )
    np.testing.assert_allclose(exact, kept, rtol=1e-5, atol=1e-6)
    found = next(iter(Probe(vtaops.quantize(b.model(), x)).run({"x": x}).values()))
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_dead_channel_costs_nothing(scales):
    """A batch norm of scale 0 leaves weights near 0 beside a bias: once its sums left int32."""
    b = Builder(2)
    stem = b.conv(b.input([1, 3, 8, 8]), 3, 8, relu=True)
    weight = (b.rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32)
    bias = b.rng.normal(0, 1, 8).astype(np.float32)
    weight[2:5] *= np.float32([[[[3e-6]]], [[[1e-6]]], [[[1e-11]]]])
    parts = [b.constant(value) for value in (weight, bias)]
    y = b.add("Relu", b.add("Conv", stem, *parts, pads=[1] * 4))
    b.output(b.conv(y, 8, 4))
    data = images(8, (3, 8, 8))
    model = vtaops.compile_model(vtaops.quantize(b.model(), data, scales=scales), "pynq_ext")
    assert [row.operator for row in model.plan if row.where == "host"] == ["quantize", "dequantize"]
    assert len(model.programs) == 1
    exact = next(iter(Probe(b.model()).run({"x": data[:1]}).values()))
    noise = np.square(exact - model.run(data[:1])).sum()
    assert noise < np.square(exact).sum() / 100


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floats_become_float32(kind):
    b = Builder()
    x = b.input([1, 16], kind=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    weight = b.constant(b.rng.standard_normal((16, 4)).astype(kind))
    b.output(b.add("MatMul", x, weight))
    data = b.rng.standard_normal((8, 16)).astype(kind)
    file = vtaops.quantize(b.model(), data)
    assert onnx_files.input_dtypes(file) == {"x": np.float32}
    found = next(iter(Probe(file).run({"x": data[:1].astype(np.float32)}).values()))
    exact = data[:1].astype(np.float64) @ onnx_files.initializers(b.model())[weight]
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
