"""The four steps of "bring your own codegen": regions, code, virtual machine, equal integers."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import vtaops
from examples.byoc import get_patterns, partition_for_vta
from trials.onnx_models import images, small_network
from vtaops.frontends import import_model
from vtaops.graph import evaluate

EXAMPLE = Path(__file__).parents[2] / "examples" / "byoc.py"


def regions(mod):
    return [f for f in mod.functions.values() if "Codegen" in (f.attrs or {})]


def test_the_example_runs():
    result, expected = runpy.run_path(str(EXAMPLE))["main"]()
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("zero_points", [False, True])
def test_a_partitioned_network_equals_the_integer_executor(zero_points):
    model = vtaops.quantize(small_network(), images(), zero_points=zero_points)
    mod = partition_for_vta(from_onnx(model))
    found = regions(mod)
    assert {f.attrs["Codegen"] for f in found} == {"vta"}
    convolutions = sum(f.script().count("R.nn.conv2d") for f in found)
    outside = mod["main"].script().count("R.nn.conv2d")
    assert (convolutions, outside) == (5, 0)
    built = relax.transform.RunCodegen({"vta": {"config": "pynq_ext"}})(mod)
    assert not regions(built)
    machine = relax.VirtualMachine(tvm.compile(built, target="llvm"), tvm.cpu())
    graph = import_model(model)
    for seed in range(2):
        x = images(1, seed=seed)
        result = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(result, evaluate(graph, x)[0])


def test_patterns_have_the_names_of_the_backend():
    names = [name for name, _ in get_patterns()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("vta.") for name in names)
    assert {"vta.conv2d_bias_residual_relu", "vta.dense_bias", "vta.max_pool2d"} <= set(names)
