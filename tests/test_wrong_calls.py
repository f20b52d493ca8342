"""Wrong values in calls: a sample; ``trials/wrong_calls.py`` has tens of thousands."""

import re

import numpy as np
import pytest

import vtaops
from trials.onnx_models import images, small_network
from trials.wrong_calls import VALUES, calls, draw, fault
from vtaops.errors import ArgumentError, VTAError


def test_a_wrong_value_works_or_ends_by_name():
    drawn = draw("test", 60)
    assert [wrong for case in drawn if (wrong := fault(*case))] == []


def test_every_public_function_and_class_is_called():
    public = [name for name in vtaops.__all__ if callable(getattr(vtaops, name))]
    named = {re.split(r"[. ]", name)[0] for name in calls()}
    made = {"VTAError", "Proof"}  # errors and proofs are made by the package
    assert {*public} - named == made


OP = vtaops.Gemm(m=1, n=16, k=16)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: vtaops.compile(OP, capabilities=["fsim"]),
            "compile: capabilities is ['fsim']; it must be Capabilities | str | None",
        ),
        (lambda: vtaops.Session(search=["fast"]), "Session: search is ['fast']; it must be"),
        (lambda: vtaops.Gemm(m=1, n=1, k=1, zero_point=[1]), "zero_point is (1,); it must"),
        (
            lambda: vtaops.Graph().input("x", (1, 4), scale=[1]),
            "scale is [1]; it must be",
        ),
        (lambda: vtaops.load_model(3), "load: path is 3; it must be str | Path"),
    ],
)
def test_the_message_names_the_parameter_its_value_and_its_type(call, said):
    with pytest.raises(VTAError) as found:
        call()
    assert said in str(found.value)


def test_an_error_of_our_own_stays_what_it_is():
    values = np.array([1, "x"], object)
    with pytest.raises(VTAError) as found:
        vtaops.relu(values)
    assert not isinstance(found.value, ArgumentError)


def test_values_are_of_every_kind():
    kinds = {type(make()) for make in VALUES.values()}
    assert {type(None), list, str, dict, float, int, np.ndarray, tuple, set, bytes} <= kinds


def test_a_warning_is_of_the_line_that_calls():
    network = small_network()
    nodes = [node.output[0] for node in network.graph.node]
    with pytest.warns(vtaops.errors.PlacementWarning) as found:
        vtaops.quantize(network, images(4), float_nodes=nodes)
    convolutions = [node.output[0] for node in network.graph.node if node.op_type == "Conv"]
    quantized = vtaops.quantize(network, images(4), float_nodes=convolutions)
    with pytest.warns(vtaops.errors.PlacementWarning) as told:
        vtaops.compile_model(quantized, "pynq", prove=False)
    assert {each.filename for each in (*found, *told)} == {__file__}
