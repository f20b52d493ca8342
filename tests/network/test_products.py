"""Products of two tensors: on VTA, with zero points, and operands of the host."""

import random
from dataclasses import replace

import numpy as np
import pytest

import vtaops
from trials.onnx_models import Builder
from vtaops import HardwareConfig
from vtaops.graph import Dense, Graph, Matmul, Requantization, Requantize, Reshape, Transpose
from vtaops.graph import operators as ops
from vtaops.machine.config import Extension
from vtaops.model.artefact import dumps, loads
from vtaops.network import plan_model

RNG = np.random.default_rng(11)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def equal(model, *arrays):
    found, expected = loads(dumps(model)).run(*arrays), model.reference(*arrays)
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


EXTENDED = {
    name: replace(HardwareConfig.load(name), extensions=tuple(Extension))
    for name in ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18")
}


ROWS = replace(EXTENDED["pynq"], log_batch=1)
"""Hardware whose results are not stored like weights, so that the host passes operands."""


def random_product(rng, extended):
    """Return the graph of a product with any zero points, its operands random in shape."""
    leading = tuple(rng.randint(1, 3) for _ in range(rng.choice([0, 1, 2, 3])))
    m, k, n = rng.randint(1, 20), rng.choice([1, 7, 64, rng.randint(1, 90)]), rng.randint(1, 40)
    zeros = [rng.choice([0, -128, 127, rng.randint(-128, 127), rng.randint(-9, 9)]) for _ in "abc"]
    scaling = Requantization(1, rng.randint(0, 14), zeros[2])
    if extended:
        scaling = Requantization(rng.randint(0, 65535), rng.randint(14, 34), zeros[2])
    graph = Graph("product")
    a = graph.input("a", (*leading, m, k), zero_point=zeros[0])
    b = graph.input("b", (*leading, n, k), zero_point=zeros[1])
    order = (*range(len(leading)), len(leading) + 1, len(leading))
    turned = graph.add(Transpose(order), b)
    graph.output(graph.add(Matmul(scaling), a, turned))
    return graph


def zeros(graph):
    return [tensor.zero_point for tensor in graph.tensors.values()]


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("config", EXTENDED)
@pytest.mark.parametrize("seed", range(4))
def test_zero_points(seed, config, extended):
    """Products are exact for any zero points, extreme operands included; some need 'post'."""
    rng = random.Random(f"{seed} {config} {extended}")
    graph = random_product(rng, extended)
    model = vtaops.compile_model(graph, EXTENDED[config] if extended else config)
    assert model.plan[1].where == ("vta" if extended or not any(zeros(graph)) else "host")
    a, b = (int8(*tensor.shape) for tensor in graph.inputs)
    assert equal(model, a, b)
    for value in (-128, 127):
        assert equal(model, np.full_like(a, value), np.full_like(b, rng.choice([-128, 127])))


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
    """Where results are not stored like weights, operands pass the host, in few launches."""
    graph = attention()
    model = vtaops.compile_model(graph, ROWS)
    assert equal(model, int8(39, 16))
    kinds = [
        tuple(dict.fromkeys(n.op.kind for n in graph.nodes if n.name in stage.nodes))
        for stage in model.stages
    ]
    assert kinds == [("dense", "transpose"), ("matmul",), ("matmul",), ("dense",)]
    assert [len(stage.nodes) for stage in model.stages] == [4, 1, 2, 1]
    assert model.report().launches == 4


def split(graph, x, heads, *, last=False):
    """Return (1, tokens, width) as heads (1, heads, tokens, each), with tokens `last`, turned."""
    _, tokens, width = x.shape
    parts = graph.add(Reshape((1, tokens, heads, width // heads)), x)
    return graph.add(Transpose((0, 2, 3, 1) if last else (0, 2, 1, 3)), parts)


def layer_of_heads(heads, tokens, each, zeros, turns):
    """Return the products of attention between dense layers, the keys turned at once or twice."""
    graph = Graph("heads")
    width = heads * each
    x = graph.input("x", (1, tokens, width))
    q, k, v = (
        graph.add(Dense(int8(width, width), None, Requantization(1, 8, z)), x) for z in zeros
    )
    keys = split(graph, k, heads, last=not turns)
    if turns:
        keys = graph.add(Transpose((0, 1, 3, 2)), keys)
    scores = graph.add(Matmul(Requantization(1, 7, -128)), split(graph, q, heads), keys)
    mixed = graph.add(Matmul(Requantization(1, 9)), scores, split(graph, v, heads))
    joined = graph.add(Transpose((0, 2, 1, 3)), mixed)
    rows = graph.add(Reshape((1, tokens, width)), joined)
    graph.output(graph.add(Dense(int8(8, width), None, Requantization(1, 8)), rows))
    return graph


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(
    ("heads", "tokens", "each", "zeros"),
    [
        (3, 13, 16, (0, 0, 0)),
        (1, 32, 32, (3, -5, 7)),
        (4, 17, 8, (0, 0, 0)),
        (2, 20, 24, (1, 2, -3)),
    ],
)
@pytest.mark.parametrize("config", ["pynq_ext", "pynq_512"])
def test_heads_stay_on_the_device(config, heads, tokens, each, zeros, turns):
    model = vtaops.compile_model(layer_of_heads(heads, tokens, each, zeros, turns), config)
    report = model.report()
    assert (report.launches, {row.where for row in model.plan}) == (1, {"vta"})
    assert model.prove().complete
    assert equal(model, int8(1, tokens, heads * each))


@pytest.mark.parametrize("width", [16, 40])
def test_what_one_product_makes_is_told_apart_on_the_device(width):
    """As PyTorch does: queries, keys and values are the first axis of a tensor; here, of a head."""
    graph, tokens = Graph("together"), 13
    x = graph.input("x", (tokens, width))
    whole = graph.add(Dense(int8(3 * width, width), None, Requantization(1, 8)), x)
    parts = graph.add(Reshape((1, tokens, 1, 3, width)), whole)
    parts = graph.add(Transpose((3, 1, 2, 0, 4)), parts)
    parts = graph.add(Reshape((3, tokens, 1, width)), parts)
    scaled = [graph.add(Requantize(Requantization(1, at)), parts) for at in range(3)]
    found = [graph.add(ops.Slice(0, at, at + 1), each) for at, each in enumerate(scaled)]
    rows = (graph.add(Reshape((tokens, 1, width)), each) for each in found)
    q, k, v = (graph.add(Reshape((1, tokens, 1, width)), each) for each in rows)
    keys = graph.add(Transpose((2, 0, 3, 1)), k)
    queries, values = (graph.add(Reshape((1, 1, tokens, width)), each) for each in (q, v))
    queries, keys = (graph.add(Requantize(Requantization(1, 0, 3)), t) for t in (queries, keys))
    scores = graph.add(Matmul(Requantization(1, 7)), queries, keys)
    graph.output(graph.add(Matmul(Requantization(1, 9)), scores, values))
    model = vtaops.compile_model(graph)
    assert model.report().launches == 1
    assert model.prove().complete
    assert equal(model, int8(tokens, width))


def test_heads_that_pass_the_host(tmp_path):
    """A result in heads, and operands in heads, with an operator of the host between them."""
    graph = Graph("heads")
    x = graph.input("x", (1, 20, 24))
    q, k, v = (graph.add(Dense(int8(24, 24), None, Requantization(1, 8)), x) for _ in range(3))
    scores = graph.add(
        Matmul(Requantization(1, 8)), split(graph, q, 3), split(graph, k, 3, last=True)
    )
    softmax = graph.add(ops.FixedSoftmax(), scores)
    graph.output(graph.add(Matmul(Requantization(1, 8)), softmax, split(graph, v, 3)))
    model = vtaops.compile_model(graph)
    assert model.report().launches == 2
    model.save(tmp_path / "heads.vtam")
    assert equal(vtaops.load_model(tmp_path / "heads.vtam"), int8(1, 20, 24))


def test_a_file_keeps_them(tmp_path):
    model = vtaops.compile_model(attention())
    model.save(tmp_path / "attention.vtam")
    x = int8(39, 16)
    loaded = vtaops.load_model(tmp_path / "attention.vtam")
    assert all(map(np.array_equal, loaded.run(x), model.run(x)))


@pytest.mark.parametrize(
    ("scaling", "zero", "reason"),
    [
        (Requantization(40000, 24), 3, "is not a power of two"),
        (Requantization(8, 0), 3, "shift to the left by 3"),
        (Requantization(1, 40), 0, "shift by 40"),
        (Requantization(1, 9), 3, "without 'post' it needs 0"),
    ],
)
def test_what_stays_on_the_host(scaling, zero, reason):
    graph = Graph("product")
    a, b = graph.input("a", (4, 6), zero_point=zero), graph.input("b", (6, 5))
    graph.output(graph.add(Matmul(scaling), a, b))
    (row,) = plan_model(graph, "pynq").rows
    assert row.where == "host"
    assert reason in row.reason


def test_attention_of_a_model_file():
    """Quantised with powers of two, both products and the softmax run on VTA."""
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
    assert where["row_softmax"] == "vta"
    assert equal(model, data[:1])
