"""Norms of one node are what the same in single operators is."""

import numpy as np
import onnx
import pytest

import vtaops
from trials.onnx_models import Builder
from vtaops.errors import ModelError, UnsupportedError
from vtaops.frontends import read_model
from vtaops.frontends.parts import to_onnx
from vtaops.graph import onnx_files
from vtaops.graph.probe import Probe

TOKENS, WIDTH = 6, 16
RUNTIME = "com.microsoft"


class Decoder(Builder):
    """The operators of decoders between two products, as one node each or in single ones."""

    def floats(self, *shape, low=-1.0, high=1.0):
        return self.constant(self.rng.uniform(low, high, shape).astype(np.float32))

    def product(self, x, units=WIDTH):
        weight = self.rng.standard_normal((WIDTH, units)).astype(np.float32) / 4
        return self.add("MatMul", x, self.constant(weight))

    def output(self, name, shape=(1, TOKENS, WIDTH)):
        self.outputs.append(onnx.helper.make_tensor_value_info(name, 1, shape))


def norm(b, x):
    return b.add("RMSNormalization", x, b.floats(WIDTH, low=0.5), axis=2, epsilon=1e-3)


def norm_of_last_two(b, x):
    return b.add("RMSNormalization", x, b.floats(TOKENS, WIDTH, low=0.5), axis=-2)


def simplified(b, x):
    return b.add("SimplifiedLayerNormalization", x, b.floats(WIDTH, low=0.5), epsilon=1e-3)


def skipped(b, x, bias=False):
    given = [x, b.product(x), b.floats(WIDTH, low=0.5), *([b.floats(WIDTH)] if bias else [])]
    kind = "SkipSimplifiedLayerNormalization"
    y, _, _, total = b.add(kind, *given, outputs=4, domain=RUNTIME, epsilon=1e-3)
    b.nodes[-1].output[1] = b.nodes[-1].output[2] = ""
    return b.add("Add", b.product(y), total)


CASES = {
    "RMSNormalization": norm,
    "RMSNormalization of two axes": norm_of_last_two,
    "SimplifiedLayerNormalization": simplified,
    "SkipSimplifiedLayerNormalization": skipped,
    "SkipSimplifiedLayerNormalization with a bias": lambda b, x: skipped(b, x, bias=True),
}
OPSETS = {name: 23 if name.startswith("RMS") else 17 for name in CASES}


def network(name):
    """Return a network with the operator between two products, and its inputs."""
    b = Decoder(7)
    x = b.product(b.input([1, TOKENS, WIDTH]))
    b.output(b.product(CASES[name](b, x)))
    return b.model(OPSETS[name]), b.rng.standard_normal((8, TOKENS, WIDTH)).astype(np.float32)


def expanded(model):
    return to_onnx(read_model(model))


def kinds(model):
    return {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("name", CASES)
def test_single_operators_compute_the_same(name):
    model, data = network(name)
    found = expanded(model)
    onnx.checker.check_model(found)
    assert kinds(found).isdisjoint({n for n in kinds(model) if "Norm" in n})
    (expected,), (result,) = (Probe(m).run({"x": data[:1]}).values() for m in (model, found))
    assert np.allclose(result, expected, atol=1e-5)
    assert {o.name for o in found.graph.output} == {o.name for o in model.graph.output}


@pytest.mark.parametrize("name", CASES)
def test_it_is_quantised_as_in_single_operators(name):
    """The same file, whichever way the float one says it; the same integers, places, and steps."""
    model, data = network(name)
    files = [vtaops.quantize(m, data, scales="free") for m in (model, expanded(model))]
    assert files[0].SerializeToString() == files[1].SerializeToString()


def test_two_norms_of_a_decoder_are_on_vta():
    b = Decoder(7)
    x = b.product(b.input([1, TOKENS, WIDTH]))
    y = b.add("Add", x, b.product(norm(b, x)))
    b.output(b.product(norm(b, y)))
    data = b.rng.standard_normal((8, TOKENS, WIDTH)).astype(np.float32)
    model = vtaops.compile_model(vtaops.quantize(b.model(23), data, scales="free"), "pynq_ext")
    places = {row.operator: row.where for row in model.plan}
    assert (places["row_norm"], len(model.regions)) == ("vta", 1)
    assert np.array_equal(model.run(data[:1]), model.reference(data[:1]))


def test_files_with_pairs_hold_it():
    """A file of another quantiser, whose pairs stand around the operator, is read."""
    model, data = network("RMSNormalization")
    steps = {"scale": np.float32(1 / 16), "zero": np.int8(0)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in steps.items())
    nodes = []
    for node in model.graph.node:
        result = node.output[0]
        node.output[0] = f"{result}/float"
        nodes += [
            node,
            onnx.helper.make_node("QuantizeLinear", [node.output[0], *steps], [f"{result}/q"]),
            onnx.helper.make_node("DequantizeLinear", [f"{result}/q", *steps], [result]),
        ]
    onnx_files.refill(model.graph.node, nodes)
    graphs = [vtaops.frontends.import_model(m) for m in (model, expanded(model))]
    assert [type(n.op) for n in graphs[0].nodes] == [type(n.op) for n in graphs[1].nodes]
    (expected,) = Probe(model).run({"x": data[:1]}).values()
    found = vtaops.compile_model(model, "pynq_ext").run(data[:1])
    assert np.abs(found - expected).max() < 0.2


def test_statistics_are_refused():
    b = Decoder(7)
    y, _, _ = b.add(
        "SkipSimplifiedLayerNormalization", b.input([1, 4, 8]), b.floats(1, 4, 8), b.floats(8),
        outputs=3, domain=RUNTIME,
    )  # fmt: skip
    b.output(y, (1, 4, 8))
    with pytest.raises(UnsupportedError, match="gives statistics"):
        expanded(b.model(23))


@pytest.mark.parametrize(
    ("kind", "domain", "given"),
    [
        ("RMSNormalization", "", 1),
        ("SkipSimplifiedLayerNormalization", RUNTIME, 2),
    ],
)
def test_too_few_inputs_are_an_error_by_name(kind, domain, given):
    b = Decoder(7)
    x = b.input([1, 4, 8])
    b.output(b.add(kind, x, *[b.floats(4, 4)] * (given - 1), domain=domain))
    with pytest.raises(ModelError, match=f"{kind}|valid"):
        vtaops.frontends.import_model(onnx_files.opened(b.model(23)))
