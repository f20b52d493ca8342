"""Products of two tensors: on VTA where nothing but a shift follows, with operands of the host."""

import numpy as np
import pytest
from helpers.onnx_models import Builder

import vtaops
from vtaops.graph import Dense, Graph, Matmul, Requantization, Transpose
from vtaops.network import plan_model

RNG = np.random.default_rng(11)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def equal(model, *arrays):
    found, expected = model.run(*arrays), model.reference(*arrays)
    found, expected = (v if isinstance(v, tuple) else (v,) for v in (found, expected))
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("config", ["pynq", "pynq_ext", "tiny", "4x8_i8w8a32_15_16_16_18"])
@pytest.mark.parametrize(
    "shapes", [((5, 7), (7, 9)), ((3, 20, 33), (3, 33, 17)), ((2, 3, 6, 8), (2, 3, 8, 40))]
)
def test_matrices_of_every_rank(shapes, config):
    graph = Graph("product")
    operands = [graph.input(name, shape) for name, shape in zip("ab", shapes, strict=True)]
    graph.output(graph.add(Matmul(Requantization(1, 9, clip=(-100, 127))), *operands))
    model = vtaops.compile_model(graph, config)
    assert [row.where for row in model.plan] == ["vta"]
    assert equal(model, *(int8(*shape) for shape in shapes))


def attention(heads=3, tokens=13, width=16):
    """Return the graph of products as attention has them, its softmax left out."""
    graph = Graph("attention")
    x = graph.input("x", (heads * tokens, width))
    scaling = Requantization(1, 8)
    q, k, v = (graph.add(Dense(int8(width, width), None, scaling), x) for _ in range(3))
    keys = graph.add(Transpose((1, 0)), k)
    scores = graph.add(Matmul(Requantization(1, 7)), q, keys)
    mixed = graph.add(Matmul(Requantization(1, 9)), scores, v)
    again = graph.add(Matmul(Requantization(1, 9)), scores, q)  # beside the other
    graph.output(graph.add(Dense(int8(8, width), None, scaling), mixed), again)
    return graph


def test_products_between_layers_on_vta():
    """Their operands pass the host, products that can run together share a launch."""
    graph = attention()
    model = vtaops.compile_model(graph)
    assert equal(model, int8(39, 16))
    kinds = [
        tuple(dict.fromkeys(n.op.kind for n in graph.nodes if n.name in stage.nodes))
        for stage in model.stages
    ]
    assert kinds == [("dense",), ("transpose",), ("matmul",), ("matmul",), ("dense",)]
    assert [len(stage.nodes) for stage in model.stages] == [3, 1, 1, 2, 1]
    assert model.report().launches == 4


def test_a_file_keeps_them(tmp_path):
    model = vtaops.compile_model(attention())
    model.save(tmp_path / "attention.vtam")
    x = int8(39, 16)
    loaded = vtaops.load_model(tmp_path / "attention.vtam")
    assert all(map(np.array_equal, loaded.run(x), model.run(x)))


@pytest.mark.parametrize(
    ("scaling", "zero", "reason"),
    [
        (Requantization(40000, 24), 0, "need a multiplier"),
        (Requantization(1, 8), 3, "need 0"),
        (Requantization(1, 40), 0, "shift by 40"),
    ],
)
def test_what_stays_on_the_host(scaling, zero, reason):
    graph = Graph("product")
    a, b = graph.input("a", (4, 6), zero_point=zero), graph.input("b", (6, 5))
    graph.output(graph.add(Matmul(scaling), a, b))
    (row,) = plan_model(graph).rows
    assert row.where == "host"
    assert reason in row.reason


def test_attention_of_a_model_file():
    """Quantised with powers of two, both products run on VTA; softmax stays on the host."""
    b = Builder(2)
    x = b.input([1, 12, 16])
    q, k, v = (
        b.add("MatMul", x, b.constant((b.rng.standard_normal((16, 16)) / 4).astype(np.float32)))
        for _ in range(3)
    )
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=[0, 2, 1]))
    b.output(b.add("MatMul", b.add("Softmax", scores, axis=-1), v))
    data = np.random.default_rng(3).standard_normal((4, 12, 16)).astype(np.float32)
    quantized = vtaops.quantize(b.model(), {"x": data})
    model = vtaops.compile_model(quantized)
    where = {row.operator: row.where for row in model.plan}
    assert where["matmul"] == where["dense"] == "vta"
    assert where["nn.softmax"] == "host"
    assert equal(model, data[:1])
