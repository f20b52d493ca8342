"""What long work tells of itself: quantisation, compilation, proofs, simulated cycles by layer."""

import pytest
from helpers.tsim_support import needs_tools

import vtaops
from trials.onnx_models import images, small_network
from trials.random_graphs import random_graph, random_inputs
from vtaops.base.progress import progress_listener, tracked
from vtaops.session import Session


@pytest.fixture
def told():
    """Return a list of what is told during the test."""
    heard = []
    with progress_listener(lambda *said: heard.append(said)):
        yield heard


def of(told, work):
    return [said[1:] for said in told if said[0] == work]


def test_items_are_told_before_they_are_taken_up(told):
    taken = []
    for item in tracked("work", "ab", str.upper):
        taken.append((item, told[-1]))
    assert taken == [("a", ("work", 0, 2, "A")), ("b", ("work", 1, 2, "B"))]
    assert told[-1] == ("work", 2, 2, "")


def test_every_layer_of_a_network_is_told(told):
    model = vtaops.compile_model(random_graph(35), "tiny")
    names = [step for _, _, step in of(told, "compile layer") if step]
    assert names == [o.name for program in model.programs for o in program.operators]
    last = [said for said in of(told, "prove level") if said[0] == said[1] > 0]
    assert len(last) >= len(model.programs)
    model.run(*random_inputs(model.graph, 35))
    assert of(told, "run stage")[-1] == (len(model.stages), len(model.stages), "")


def test_quantisation_counts_its_images(told):
    pytest.importorskip("onnxruntime")
    data = images()
    vtaops.quantize(small_network(), {"x": data}, equalization=True, bias_correction=True)
    for work in ("equalize", "calibrate"):
        (said,) = {name for name, *_ in told if name.startswith(work)}
        assert of(told, said) == [*((n, len(data), "") for n in range(len(data) + 1))]


@needs_tools
def test_cycles_of_tsim_are_told(told, monkeypatch):
    monkeypatch.setattr("vtaops.runtime.tsim.device._CHUNK_CYCLES", 50)
    model = vtaops.compile_model(random_graph(35), "tiny")
    with Session("tsim", "tiny") as session:
        model.run(*random_inputs(model.graph, 35), session=session)
    said = of(told, "simulate cycle")
    assert len(said) > len(model.programs)
    assert all(done % 50 == 0 for done, *_ in said)
