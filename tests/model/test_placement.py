"""The share of a network's products that run on VTA counts those of recurrent operators."""

import numpy as np

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
    function = Host(Halved(), (Tensor("-", (4, 16)),), ("LSTM", "relu"), "it is a float operator")
    graph.output(graph.add(function, y))
    share = placement(graph, plan_model(graph).rows)
    assert (share.on_vta, share.products) == (1, 3)
    assert share.little
    assert "it is a float operator" in str(share)
