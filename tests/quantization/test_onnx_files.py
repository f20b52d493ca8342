"""ONNX files and the files that they name: what is read, how much of it, and what is refused."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vtaops
from vtaops.errors import ModelError, UnsupportedError
from vtaops.graph.onnx_files import initializers, opened

WEIGHTS = np.arange(16, dtype=np.float32).reshape(4, 4)


def network(location=None, dims=(4, 4), data_type=TensorProto.FLOAT, **where):
    """Return the product of an input and weights, which lie in a file if there is a location."""
    weights = TensorProto(name="w", dims=dims, data_type=data_type)
    if location is None:
        weights.raw_data = WEIGHTS.tobytes()
    else:
        weights.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **where}.items():
            weights.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a `network` beside files of all kinds."""
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights").write_bytes(b"\0" * 8 + WEIGHTS.tobytes())
    (folder / "inner" / "weights").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to("loop")
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")

    def save(*args, **where):
        path = folder / "network.onnx"
        path.write_bytes(network(*args, **where).SerializeToString())
        return path

    return save


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("weights", {"offset": 8}),
        ("weights", {"offset": 8, "length": 64}),
        ("inner/weights", {}),
    ],
)
def test_weights_in_files_beside_the_model_are_read(saved, location, where):
    assert np.array_equal(initializers(opened(saved(location, **where)))["w"], WEIGHTS)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link", "folder/secret", "loop",
                                      "inner/../weights", "", "x\0y", "x" * 5000])  # fmt: skip
def test_files_elsewhere_are_not_read(saved, location):
    with pytest.raises(ModelError, match=r"network\.onnx: cannot read the tensor 'w'"):
        opened(saved(location))


@pytest.mark.parametrize("location", ["nothing", "inner", "pipe"])
def test_what_is_no_file_is_refused(saved, location):
    with pytest.raises(ModelError, match=r"No such file|Is a directory|regular file"):
        opened(saved(location))


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"offset": 9}, "72 bytes, not 64 from 9"),
        ({"offset": -8}, "not 64 from -8"),
        ({"offset": 10**30}, "not 64 from 1000"),
        ({"offset": "eight"}, "eight"),
        ({"length": 63}, "63 bytes there; its type and shape say 64"),
        ({"length": 10**30}, "its type and shape say 64"),
        ({"dims": (1 << 40, 1 << 40)}, "more than"),
        ({"dims": (-4, -4)}, r"\(-4, -4\)"),
        ({"data_type": TensorProto.STRING}, "its type is 8"),
    ],
)
def test_offset_and_length_are_judged_by_type_and_shape(saved, where, reason):
    with pytest.raises(ModelError, match=reason):
        opened(saved("weights", **where))


def test_no_more_is_read_of_a_file_than_the_model_needs(saved):
    path = saved("weights", offset=8)
    os.truncate(path.parent / "weights", 1 << 40)  # sparse
    assert np.array_equal(initializers(opened(path))["w"], WEIGHTS)


def test_a_model_in_memory_reads_no_files(saved, monkeypatch):
    monkeypatch.chdir(saved("weights").parent)
    with pytest.raises(ModelError, match="lies in another file: give the path"):
        opened(network("weights"))


def constant_of_type(data_type):
    """Return a network with a tensor of a type in the attribute of a node."""
    model = network()
    value = TensorProto(name="c", dims=[1], data_type=data_type, raw_data=b"\0" * 16)
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(value)
    model.graph.node.insert(0, node)
    return model


@pytest.mark.parametrize("data_type", [-1, 0, 14, 17, 23, 99, 2**31 - 1])
@pytest.mark.parametrize("read", [vtaops.compile_model, lambda model: vtaops.quantize(model, [])])
def test_types_that_nothing_reads_are_named(data_type, read):
    text = rf"has the data type {data_type}( \(\w+\))?; vtaops reads"
    for model in (network(data_type=data_type), constant_of_type(data_type)):
        with pytest.raises(UnsupportedError, match=text):
            read(model)


def test_pairs_without_a_zero_point_have_that_of_onnx():
    # Then it is 0 of type uint8: what the pair reads is clipped at zero.
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    constants = {"scale": np.float32(0.015), "w": WEIGHTS}
    pair = [
        helper.make_node(f"{kind}Linear", [source, "scale"], [result])
        for kind, source, result in (("Quantize", "x", "q"), ("Dequantize", "q", "d"))
    ]
    product = helper.make_node("MatMul", ["d", "w"], ["y"])
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([*pair, product], "pairs", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
    quantized = vtaops.quantize(model, {"x": x})
    assert "Clip" in [node.op_type for node in quantized.graph.node]
    result = vtaops.compile_model(quantized).run(np.float32([[-1, -2, 0, -3]]))
    assert (result == 0).all()
