"""The share of a network's products that run on VTA counts those of recurrent operators."""

import numpy as np
import onnx.parser

from vtaops.graph import Dense, Graph, Host, HostFunction, Requantization, Tensor
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
