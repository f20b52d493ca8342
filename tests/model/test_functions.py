"""What a model's file holds for the host is data: an ONNX model that the first run reads."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from typer.testing import CliRunner

import vtaops
from vtaops.cli import app
from vtaops.errors import ProgramError
from vtaops.graph import Convolution, Dequantize, Host, Quantize, Requantization, Tensor
from vtaops.graph.host import HostFunction
from vtaops.graph.onnx_function import OnnxFunction
from vtaops.model import artefact
from vtaops.model.artefact import dumps
from vtaops.model.deflated import deflated, inflated

SHAPE = (1, 8, 4, 4)
X = np.random.default_rng(0).integers(-9, 9, SHAPE).astype(np.float32)


def negation():
    """Return a part of an ONNX model: y = -x."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "part", [x], [y])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return OnnxFunction(model.SerializeToString())


def network(function):
    """Return a network of a convolution and a function on the host."""
    graph = vtaops.Graph("network")
    x = graph.input("x", SHAPE, "float32")
    weight = np.ones((8, 8, 1, 1), np.int8)
    q = graph.add(Convolution(weight, None, Requantization(1, 3)), graph.add(Quantize(1.0), x))
    host = Host(function, (Tensor("-", SHAPE, "float32"),), ("Neg",), "it is float")
    graph.output(graph.add(host, graph.add(Dequantize(), q)))
    return graph


@pytest.fixture(scope="module")
def model():
    return vtaops.compile_model(network(negation()), "tiny")


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "network.vtam")
    return tmp_path / "network.vtam"


def test_a_file_computes_what_its_model_does(model, path):
    assert np.array_equal(vtaops.load_model(path).run(X), model.run(X))


def test_reading_a_model_does_not_read_its_functions(model, tmp_path):
    path = tmp_path / "bad.vtam"
    bad = vtaops.compile_model(network(OnnxFunction(b"nonsense")), "tiny", prove=False)
    bad.save(path)
    loaded = vtaops.load_model(path)
    loaded.verify()
    loaded.report()
    assert dumps(loaded) == path.read_bytes()
    for run in (loaded.run, loaded.reference):
        with pytest.raises(ProgramError, match="is not an ONNX model"):
            run(X)
    done = CliRunner().invoke(app, ["run", str(path)])
    assert isinstance(done.exception, ProgramError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.update(nbytes=4), "deflated bytes are not 4, as the file says"),
        (lambda f: f.update(nbytes=1 << 40), "deflated bytes cannot be 1,099,511,627,776"),
        (lambda f: f.update(nbytes=-1), "deflated bytes cannot be -1"),
        (lambda f: f.update(nbytes=True), "HostFunction cannot have nbytes = True"),
        (lambda f: f.update(data=None), "HostFunction cannot have data = None"),
        (lambda f: f["data"].update(blob=1 << 40), "IndexError"),
    ],
)
def test_functions_are_as_long_as_the_file_says(path, change, message):
    changed(path, lambda header: change(own(header)))
    with pytest.raises(ProgramError, match=message):
        vtaops.load_model(path)


@given(st.binary(max_size=9), st.integers(0, 60), st.integers(1, 255))
def test_deflated_bytes_come_back_or_are_refused(data, place, flip):
    packed = bytearray(deflated(data))
    assert inflated(packed, len(data)) == data
    packed[place % len(packed)] ^= flip
    with suppress(ProgramError):
        assert len(inflated(packed, len(data))) == len(data)
    with pytest.raises(ProgramError, match="as the file says"):
        inflated(deflated(data), len(data) + 4)


def test_floats_take_less_room():
    numbers = np.random.default_rng(0).standard_normal(1 << 14).astype(np.float32)
    assert len(deflated(numbers.tobytes())) < 0.9 * numbers.nbytes


class Own(HostFunction):
    def __call__(self, *arrays):
        return tuple(-array for array in arrays)


def test_code_of_this_process_runs_and_is_not_saved(tmp_path):
    own = vtaops.compile_model(network(Own()), "tiny")
    assert np.array_equal(own.run(X), own.reference(X))
    with pytest.raises(ProgramError, match="Own is code of this process"):
        own.save(tmp_path / "own.vtam")
    assert not (tmp_path / "own.vtam").exists()


def changed(path, change):
    """Write a model with another header and the right checksum."""
    header, blobs = artefact._FILE.opened(path.read_bytes())
    change(header)
    path.write_bytes(artefact._FILE.sealed(header, blobs))


def node(header, operator):
    nodes = header["content"]["graph"]["nodes"]
    return next(n for n in nodes if n["operator"]["record"] == operator)


def own(header):
    return node(header, "Host")["operator"]["function"]


def put(operator, name, wrap=lambda function: function):
    """Return a change that places the function in a parameter of a node."""

    def change(header):
        node(header, operator)["operator"][name] = wrap(own(header))

    return change


def on_vta(header):
    """Let a stage claim that VTA computes the function."""
    (stage,) = (s for s in header["content"]["stages"] if s["record"] == "Region")
    stage["nodes"] += node(header, "Host")["outputs"]


def inconsistent(header):
    header["content"]["graph"]["outputs"] = ["nothing"]


MISPLACED = {
    "weight": put("Convolution", "weight"),
    "bias": put("Convolution", "bias"),
    "residual": put("Convolution", "residual_factor"),
    "scaling": put(
        "Convolution", "requantization", lambda f: {"record": "Requantization", "multiplier": f}
    ),
    "padding": put("Convolution", "padding", lambda f: [f] * 4),
    "scale": put("Quantize", "scale"),
    "unknown parameter": put("Dequantize", "function"),
    "results": put("Host", "outputs", lambda f: [f]),
    "reason": put("Host", "reason"),
    "a tensor": put("Host", "outputs", lambda f: [{"record": "Tensor", "name": f}]),
    "on VTA": on_vta,
    "a name": lambda header: own(header).update(data="python"),
    "no blob": lambda header: own(header)["data"].update(blob=99),
    "a blob from behind": lambda header: own(header)["data"].update(blob=-1),
    "a blob that is true": lambda header: own(header)["data"].update(blob=True),
    "a blob by its name": lambda header: own(header)["data"].update(blob="x"),
    "more": lambda header: own(header).update(record="Host"),
    "elsewhere inconsistent": inconsistent,
}


@pytest.mark.parametrize("place", MISPLACED)
def test_a_function_out_of_place_is_refused(place, path):
    changed(path, MISPLACED[place])
    with pytest.raises(ProgramError):
        vtaops.load_model(path)
    for command in ("plan", "report profile", "run"):
        assert isinstance(
            CliRunner().invoke(app, [*command.split(), str(path)]).exception, ProgramError
        )
