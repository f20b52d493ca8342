"""Norms of groups and responses, and heads that are mixed: equal to float, in one launch."""

import numpy as np
import pytest

import vtaops
from vtaops.graph.probe import Probe
from vtaops.quantization.prepare import prepare

onnx = pytest.importorskip("onnx")


def model(text, shape, **constants):
    """Return a network in ONNX's text, from x, with constants."""
    parsed = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]>\nnetwork (float{[*shape]} x) => (float[] y) {{\n'
        f"{text}\n}}"
    )
    for name, value in constants.items():
        value = np.asarray(value)
        kind = np.int64 if value.dtype.kind == "i" else np.float32
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(kind), name))
    del parsed.graph.output[0].type.tensor_type.shape.dim[:]
    parsed.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(parsed)


def check(network, shape, least, *, launches=1):
    """Check that a network is prepared without a change, quantised well, and runs in one launch."""
    data = np.random.default_rng(0).normal(0, 1, (4, *shape[1:])).astype(np.float32)
    given = {"x": data[:1]}
    expected = Probe(network).run(given)["y"]
    np.testing.assert_allclose(Probe(prepare(network)).run(given)["y"], expected, atol=1e-4)
    compiled = vtaops.compile_model(vtaops.quantize(network, {"x": data}))
    assert len(compiled.programs) == launches, [r for r in compiled.plan if r.where == "host"]
    found = compiled.run(data[:1])
    error = np.sum((found - expected) ** 2) / np.sum(expected**2)
    assert -10 * np.log10(error) > least


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(0, 0.4, shape)


@pytest.mark.parametrize("groups", [1, 2])
def test_group_norms_are_rows(groups):
    text = """a = Conv (x, w)
    b = Reshape (a, groups)
    c = InstanceNormalization <epsilon = 1e-5> (b, ones, zeros)
    s = Shape (a)
    d = Reshape (c, s)
    e = Mul (d, scale)
    f = Add (e, shift)
    y = Conv (f, v)"""
    shape = 1, 3, 6, 6
    constants = {"w": normal(32, 3, 1, 1), "v": normal(8, 32, 1, 1), "groups": [0, groups, -1]}
    constants |= {"ones": np.ones(groups), "zeros": np.zeros(groups)}
    constants |= {"scale": 1 + normal(32, 1, 1), "shift": normal(32, 1, 1)}
    check(model(text, shape, **constants), shape, 28)


def test_an_extremum_of_integers_is_no_clip():
    """A Clip of int64 with a float bound is no valid node."""
    text = """a = Cast <to = 7> (x)
    b = Min (a, bound)
    c = Cast <to = 1> (b)
    y = Conv (c, v)"""
    network = model(text, (1, 2, 4, 4), bound=np.array(1), v=normal(3, 2, 1, 1))
    data = {"x": np.random.default_rng(0).normal(0, 3, (1, 2, 4, 4)).astype(np.float32)}
    found = Probe(prepare(network)).run(data)["y"]
    np.testing.assert_allclose(found, Probe(network).run(data)["y"], atol=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_global_response_norms(last):
    turn = ("Transpose <perm = [0, 2, 3, 1]> (a)", "Transpose <perm = [0, 3, 1, 2]> (j)")
    into, back = turn if last else ("Identity (a)", "Identity (j)")
    text = f"""a0 = Conv (x, w)
    a = Relu (a0)
    b = {into}
    c = ReduceL2 <keepdims = 1> (b, pixels)
    d = ReduceMean <keepdims = 1> (c, channel)
    e = Add (d, epsilon)
    f = Div (c, e)
    g = Mul (b, f)
    h = Mul (scale, g)
    j = Add (b, h)
    k = {back}
    y = Conv (k, v)"""
    shape = 1, 3, 6, 6
    constants = {"w": normal(16, 3, 1, 1), "v": normal(8, 16, 1, 1), "epsilon": np.array(1e-6)}
    constants |= {"pixels": [1, 2] if last else [2, 3], "channel": [-1] if last else [1]}
    constants |= {"scale": normal(*(1, 1, 1, 16) if last else (1, 16, 1, 1))}
    check(model(text, shape, **constants), shape, 28)


def test_heads_that_are_mixed_stay_channels():
    text = """r = MatMul (x, w)
    p = Reshape (r, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (p)
    k = Transpose <perm = [0, 2, 3, 1]> (p)
    a = MatMul (q, k)
    b = Transpose <perm = [0, 2, 3, 1]> (a)
    c = MatMul (b, mixed)
    d = Softmax <axis = 2> (c)
    e = MatMul (d, again)
    f = Transpose <perm = [0, 3, 1, 2]> (e)
    g = MatMul (f, q)
    h = Transpose <perm = [0, 2, 1, 3]> (g)
    s = Reshape (h, rows)
    y = MatMul (s, v)"""
    shape = 1, 9, 16
    constants = {"w": normal(16, 32), "v": normal(32, 8), "heads": [0, 0, 4, 8], "rows": [0, 0, 32]}
    constants |= {"mixed": normal(4, 4), "again": normal(4, 4)}
    check(model(text, shape, **constants), shape, 20)


def test_a_norm_of_one_token():
    """What is normalised is one token, not all of them before it is chosen."""
    text = """a = MatMul (x, w)
    b = LayerNormalization <axis = -1> (a, scale)
    c = Gather <axis = 1> (b, first)
    y = MatMul (c, v)"""
    shape = 1, 9, 16
    constants = {"w": normal(16, 24), "v": normal(24, 8), "scale": 1 + normal(24)}
    network = model(text, shape, **constants, first=np.array(0))
    kinds = [node.op_type for node in prepare(network).graph.node]
    assert kinds.index("Gather") < kinds.index("LayerNormalization")
    check(network, shape, 30)
