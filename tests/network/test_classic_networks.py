"""Networks of others, small: quantised, compiled and run as the integer executor says."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import vtaops
from trials.onnx_models import Builder, images


@pytest.fixture
def light(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import networks

    yield networks.light
    sys.modules.pop("networks")


def equal(model, x):
    np.testing.assert_array_equal(model.run(x), model.reference(x))
    return {row.operator for row in model.plan if row.where == "host"}


def test_squeezenet_of_the_package_onnx(light):
    model = light("squeezenet")
    (value,) = (v for v in model.graph.input if v.name == "data_0")
    for axis in (2, 3):
        value.type.tensor_type.shape.dim[axis].dim_value = 48
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.shape.Clear()
    data = images(2, (3, 48, 48))
    compiled = vtaops.compile_model(vtaops.quantize(model, {"data_0": data}))
    host = equal(compiled, data[:1])
    assert host <= {"quantize", "dequantize", "softmax", "Softmax, Reshape", "reshape"}
    assert len(compiled.programs) == 1


def test_response_normalisation_is_the_hosts_and_nothing_behind_it():
    b = Builder()
    y = b.conv(b.input([1, 3, 16, 16]), 3, 16, relu=True)
    y = b.add("LRN", y, size=5, alpha=1e-4, beta=0.75, bias=1.0)
    y = b.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2])
    y = b.conv(y, 16, 16, group=2, relu=True)
    b.output(b.add("Softmax", b.gemm(b.add("Flatten", y), 16 * 49, 10)))
    data = images(2, (3, 16, 16))
    compiled = vtaops.compile_model(vtaops.quantize(b.model(), {"x": data}))
    host = equal(compiled, data[:1])
    assert not any("conv" in kind or "pool2d" in kind or "dense" in kind for kind in host)
    assert {"max_pool", "convolution", "dense"} <= {
        row.operator for row in compiled.plan if row.where == "vta"
    }
    (reason,) = (row.reason for row in compiled.plan if "LRN" in row.operator)
    assert reason == "VTA has no operator LRN"


def test_a_float_model_is_planned_to_the_host(tmp_path, light):
    onnx.save(light("shufflenet"), tmp_path / "net.onnx")
    rows = vtaops.network.plan_model(tmp_path / "net.onnx", "pynq").rows
    assert {row.where for row in rows} == {"host"}
    assert "vtaops quantize" in rows[0].reason
