"""Exploration with a model: its operators are those that the compiler of networks would take."""

import numpy as np
import onnx
import pytest

import vtaops
from trials.onnx_models import images, small_network
from vtaops import HardwareConfig
from vtaops.base.errors import ModelError, ShapeError
from vtaops.explore import Design, Engine, Network, sweep
from vtaops.graph import Dense, Graph, Matmul, Requantization
from vtaops.ops import AvgPool2d, BatchMatmul
from vtaops.schedule import default_tiling

PYNQ, TINY, EXTENDED = (Design(HardwareConfig.load(name)) for name in ("pynq", "tiny", "pynq_ext"))


@pytest.fixture(scope="module")
def quantized():
    return vtaops.quantize(small_network(), {"x": images()}, scales="pow2")


def test_a_file_is_judged_by_what_would_be_compiled(quantized, tmp_path):
    path = tmp_path / "small.q.onnx"
    onnx.save(quantized, path)
    network = Network.model(path)
    assert (network.name, network.layers) == ("small.q", ())
    model = vtaops.compile_model(path, "pynq")
    layers = network.on(PYNQ)
    free = {"reshape", "concat"}
    rows = [row for row in model.plan if row.where == "vta" and row.operator not in free]
    assert sum(layer.occurrences for layer in layers) == len(rows)
    assert {layer.name for layer in layers} <= {row.name for row in rows}
    assert any(isinstance(layer.op, AvgPool2d) for layer in layers)
    with Engine() as engine:
        points = sweep([PYNQ, TINY], network, engine)
    for point, design in zip(points, (PYNQ, TINY), strict=True):
        assert not point.failures
        config = design.config
        each = [
            (vtaops.compile(w.op, config, default_tiling(w.op, config)), w.occurrences)
            for w in network.on(design)
        ]
        assert point.cycles == sum(program.cycles() * times for program, times in each)
    whole = model.cycles()  # one program, whose layers overlap a little
    assert 0.8 * points[0].cycles < whole < points[0].cycles


def test_operators_depend_on_the_design(quantized):
    """Blocks decide how many lanes there are, scratchpads what fits, extensions what has scales."""
    network = Network.model(quantized)
    assert [w.op for w in network.on(TINY)] != [w.op for w in network.on(PYNQ)]
    free = Network.model(vtaops.quantize(small_network(), {"x": images()}, scales="free"))
    assert not any(w.op.wide for w in free.on(EXTENDED) if isinstance(w.op, vtaops.Conv2d))
    assert any(w.op.wide for w in free.on(PYNQ) if isinstance(w.op, vtaops.Conv2d))


def test_equal_layers_are_one_question():
    rng = np.random.default_rng(0)
    graph = Graph("chain")
    x = graph.input("x", (4, 32))
    for _ in range(3):
        weight = rng.integers(-128, 128, (32, 32)).astype(np.int8)
        x = graph.add(Dense(weight, None, Requantization(1, 9)), x)
    graph.output(x)
    (layer,) = Network.model(graph).on(PYNQ)
    assert layer.occurrences == 3


def test_products_of_two_tensors_count():
    graph = Graph("product")
    a, b = graph.input("a", (2, 9, 8)), graph.input("b", (2, 8, 5))
    graph.output(graph.add(Matmul(Requantization(1, 8)), a, b))
    (layer,) = Network.model(graph).on(PYNQ)
    assert isinstance(layer.op, BatchMatmul)


def test_models_that_are_none(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        Network.model(tmp_path / "none.onnx")
    with pytest.raises(ShapeError, match=r"nothing of .* runs on 1x16"):
        Network.model(small_network()).on(PYNQ)
