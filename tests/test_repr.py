"""What the objects of a session at the keyboard look like: one line each, whatever they hold."""

import re

import numpy as np
import pytest

import vtaops
from vtaops.graph import Requantization
from vtaops.graph.operators import Convolution, MaxPool
from vtaops.ops import Conv2d


@pytest.fixture(scope="module")
def model():
    graph = vtaops.Graph("two")
    x = graph.input("x", (1, 16, 8, 8))
    weight = np.ones((16, 16, 3, 3), np.int8)
    y = graph.add(Convolution(weight, requantization=Requantization(1, 4)), x)
    graph.output(graph.add(MaxPool((2, 2), (2, 2)), y))
    return vtaops.compile_model(graph, "pynq")


def test_a_model_tells_its_placement(model):
    assert repr(model) == "<Model two for pynq: 2 of 2 operators on VTA, 1 launch>"
    assert "convolution_0" in model._repr_html_()
    assert repr(model.report()) == f"<ModelReport of two on pynq: {model.cycles():,} cycles>"


def test_a_graph_tells_inputs_and_outputs(model):
    assert repr(model.graph) == (
        "<Graph two: 2 operators from x int8[1, 16, 8, 8] to max_pool_1 int8[1, 16, 3, 3]>"
    )
    line = "max_pool_1 int8[1, 16, 3, 3] = MaxPool(convolution_0)"
    assert str(model.graph).splitlines()[2] == line
    assert line in model.graph._repr_html_()
    text = repr(model.graph.nodes[0].op)
    assert "weight=int8[16, 16, 3, 3]" in text
    assert "multiplier=1, shift=4" in text


def test_a_program_tells_its_operators_and_sizes(model):
    (program,) = model.programs
    assert repr(program).startswith("<Program of convolution_0, max_pool_1 for pynq: ")
    assert f"{len(program)} instructions, " in repr(program)


def test_a_proof_tells_how_much_is_proven(model):
    proof = model.prove()
    assert repr(proof) == "<Proof: 1 results proven, 0 not>"
    assert "proven: convolution_0 to max_pool_1" in str(proof)


@pytest.mark.parametrize("kind", [vtaops.Graph, vtaops.Model, vtaops.Program])
def test_notebooks_show_text_of_files_as_text(kind):
    """A name from a file is no HTML."""
    graph = vtaops.Graph("<script>")
    x = graph.input("<i>", (1, 16, 4, 4))
    graph.output(graph.add(MaxPool((2, 2), (2, 2)), x))
    model = vtaops.compile_model(graph, "tiny")
    shown = {type(one): one for one in (graph, model, *model.programs)}[kind]
    assert not re.search("<script>|<i>", shown._repr_html_())


def test_no_array_is_written_out(model):
    for shown in (*model.regions, *model.programs[0].buffers, *model.graph.nodes):
        assert len(repr(shown)) < 1200
        assert "\n" not in repr(shown)


@pytest.mark.parametrize("method", ["declare", "schedule", "lower"])
def test_an_operator_takes_the_name_of_a_configuration(method):
    op = Conv2d(in_channels=16, out_channels=16, height=4, width=4, kernel=1)
    config = vtaops.HardwareConfig.load("tiny")
    named, given = getattr(op, method)("tiny"), getattr(op, method)(config)
    scripts = [getattr(made, "mod", made).script() for made in (named, given)]
    assert scripts[0] == scripts[1]
    with pytest.raises(vtaops.errors.ConfigError, match="did you mean 'tiny'"):
        getattr(op, method)("tinny")
