"""An input that is fixed decides an If: one of its branches is the network."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import vtaops
from trials.onnx_models import Builder, images
from vtaops.cli import app
from vtaops.errors import ModelError
from vtaops.graph.branches import fix_inputs
from vtaops.graph.probe import Probe


def two_rates():
    """A convolution for each of two rates, one of which an If inside chooses by a constant."""
    b = Builder(5)
    x, rate = b.input([1, 3, 8, 8]), "rate"
    weights = [b.constant(b.rng.standard_normal((4, 3, 3, 3)).astype("f")) for _ in range(2)]
    wide, yes = b.constant(np.array(16000)), b.constant(np.array(True))
    shape = [1, 4, 6, 6]

    def branch(name, nodes, result):
        value = helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)
        return helper.make_graph(nodes, name, [], [value])

    make = helper.make_node
    first = branch("first", [make("Conv", [x, weights[0]], ["a"])], "a")
    other = branch("other", [make("Conv", [x, weights[1]], ["c"])], "c")
    inner = make("If", [yes], ["b"], then_branch=other, else_branch=first)
    second = branch("second", [inner], "b")
    same = b.add("Equal", rate, wide)
    b.output(b.add("If", same, then_branch=first, else_branch=second))
    model = b.model()
    model.graph.input.append(helper.make_tensor_value_info(rate, TensorProto.INT64, []))
    return model, {"x": images(6, (3, 8, 8)), "rate": np.full(6, 16000)}


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_fixed_input_takes_a_branch(rate):
    model, data = two_rates()
    quantized = vtaops.quantize(model, data, fixed={"rate": rate})
    assert [value.name for value in quantized.graph.input] == ["x"]
    compiled = vtaops.compile_model(quantized, "pynq_ext")
    assert [row.where for row in compiled.plan].count("vta") == 1
    sample = {"x": data["x"][:1], "rate": np.array(rate)}
    (exact,) = Probe(model).run(sample).values()
    assert np.abs(compiled.run(data["x"][:1]) - exact).max() < 0.02 * np.abs(exact).max()


def test_a_network_in_branches_that_data_decide_stays_float():
    model, data = two_rates()
    with pytest.warns(vtaops.errors.PlacementWarning, match=r"\(Equal, If\) .* stays float"):
        vtaops.quantize(model, data)


@pytest.mark.parametrize(
    ("values", "told"),
    [({"rat": 1}, "did you mean 'rate'"), ({"rate": 0.5}, "is int64"), ({"rate": [1, 2]}, "shape")],
)
def test_values_must_suit_their_input(values, told):
    with pytest.raises(ModelError, match=told):
        fix_inputs(two_rates()[0], values)


def test_the_command_fixes_inputs(tmp_path):
    model, data = two_rates()
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "data.npz", **data)
    given = ["quantize", str(tmp_path / "net.onnx"), "--calibration", str(tmp_path / "data.npz")]
    given += ["-o", str(tmp_path / "net.q.onnx")]
    assert CliRunner().invoke(app, [*given, "--fix", "rate=16000"]).exit_code == 0
    wrong = CliRunner().invoke(app, [*given, "--fix", "rate"])
    assert str(wrong.exception) == "--fix is 'rate'; it must be like sr=16000"
