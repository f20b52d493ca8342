"""The share of a network's products that run on VTA counts those of recurrent operators."""

import numpy as np
import onnx.parser
import pytest

from trials.hostile_files import network
from trials.hostile_names import resealed
from vtaops import compile_model
from vtaops.errors import ProgramError
from vtaops.graph import Dense, Graph, Host, HostFunction, Requantization, Tensor
from vtaops.model import artefact
from vtaops.model.placement import placement
from vtaops.network import plan_model


class Halved(HostFunction):
    """A function that stands for a recurrent operator."""

    def __call__(self, array):
        return (array // 2,)

    def to_bytes(self):
        raise NotImplementedError


def test_products_of_recurrent_operators_count():
    graph = Graph()
    x = graph.input("x", (4, 16))
    y = graph.add(Dense(np.ones((16, 16), np.int8), None, Requantization(1, 4)), x)
    names, reason = ("LSTM", "Relu"), "it is a float operator"
    function = Host(Halved(), (Tensor("-", (4, 16)),), names, reason, products=2)
    graph.output(graph.add(function, y))
    share = placement(graph, plan_model(graph).rows)
    assert (share.on_vta, share.products) == (1, 3)
    assert share.little
    assert "it is a float operator" in str(share)


def test_every_product_of_a_float_part_counts():
    ones = ", ".join(["1"] * 16)
    source = f"""<ir_version: 8, opset_import: ["" : 17]>
        two (float[1, 4] x) => (float[1, 4] y) <float[4, 4] w = {{{ones}}}>
        {{ hidden = MatMul(x, w)  y = MatMul(hidden, w) }}"""
    plan = plan_model(onnx.parser.parse_model(source))
    share = placement(plan.graph, plan.rows)
    assert (share.on_vta, share.products, share.code) == (0, 2, "not_quantized")


@pytest.fixture(scope="module")
def model():
    return compile_model(network(), "tiny")


def reasoned(model, change):
    """Return a model's file with another plan, and the right checksum."""

    def changed(header):
        content = header["content"]
        return {**header, "content": {**content, "plan": change(content["plan"])}}

    return resealed(artefact._FILE, artefact.dumps(model), changed)


def test_where_a_node_runs_is_what_the_stages_of_the_file_say(model):
    loaded = artefact.loads(reasoned(model, lambda rows: rows))
    assert loaded.plan == model.plan
    assert {row.where for row in loaded.plan} == {"vta", "host"}


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]],
        lambda rows: rows[::-1][1:] + rows[-1:],
        lambda rows: [{**row, "code": "scale"} for row in rows],
        lambda rows: [{**row, "code": ""} for row in rows],
        lambda rows: [{**row, "code": row["code"] and "no such code"} for row in rows],
        lambda rows: [{**row, "code": [row["code"]]} for row in rows],
        lambda rows: [{**row, "reason": 7} for row in rows],
        lambda rows: [{**row, "where": "vta"} for row in rows],
        lambda rows: [{**row, "operator": "conv"} for row in rows],
        lambda rows: [None for _ in rows],
        lambda rows: 7,
    ],
)
def test_reasons_that_no_plan_has_are_refused(model, change):
    data = reasoned(model, change)
    with pytest.raises(ProgramError, match="the model is inconsistent"):
        artefact.loads(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stages: stages[:1] + stages, "or computed more than once"),
        (lambda stages: [*stages, {**stages[0], "nodes": ["none"]}], "unknown node"),
    ],
)
def test_every_node_is_in_one_stage(model, change, message):
    def changed(header):
        content = header["content"]
        return {**header, "content": {**content, "stages": change(content["stages"])}}

    data = resealed(artefact._FILE, artefact.dumps(model), changed)
    with pytest.raises(ProgramError, match=message):
        artefact.loads(data)
