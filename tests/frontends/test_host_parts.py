"""Parts of ONNX models that ONNX Runtime executes: bit for bit what it does alone."""

import os
import signal
import sys
import threading
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import vtaops
from trials.onnx_models import Builder, images
from vtaops.frontends import import_model
from vtaops.graph import Host, evaluate
from vtaops.graph.onnx_files import checked, opened
from vtaops.graph.onnx_function import OnnxFunction
from vtaops.graph.probe import Probe

SHAPE = (3, 8, 8)


def stem(seed=1):
    b = Builder(seed)
    return b, b.conv(b.input([1, *SHAPE]), 3, 16, relu=True)


def weights(b, *shape):
    return b.constant((b.rng.standard_normal(shape) / 4).astype(np.float32))


def vector(b, x):
    return b.add("Flatten", b.add("GlobalAveragePool", x))


def sequence_of_rows(b, x):
    rows = b.add("Reshape", x, b.constant(np.array([1, 16, 64])))
    return b.add("Transpose", rows, perm=[2, 0, 1])


def lstm(b, x):
    rows = sequence_of_rows(b, x)
    y, *_ = b.add(
        "LSTM", rows, weights(b, 1, 32, 16), weights(b, 1, 32, 8), outputs=3, hidden_size=8
    )
    return b.add("Reshape", y, b.constant(np.array([1, 512]))), 512


def gru(b, x):
    rows = sequence_of_rows(b, x)
    y, _ = b.add("GRU", rows, weights(b, 1, 24, 16), weights(b, 1, 24, 8), outputs=2, hidden_size=8)
    return b.add("Reshape", y, b.constant(np.array([1, 512]))), 512


def norm(b, x):
    return b.add("LpNormalization", vector(b, x), axis=1, p=2), 16


def branch(b, x):
    x = vector(b, x)
    positive = b.add("Greater", b.add("ReduceSum", x, keepdims=0), b.constant(np.float32(0)))
    value = helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 16])
    same = b.add("Identity", x)  # which the branches read by this name
    bodies = [
        helper.make_graph([helper.make_node(kind, [same], ["r"])], kind, [], [value])
        for kind in ("Neg", "Abs")
    ]
    return b.add("If", positive, then_branch=bodies[0], else_branch=bodies[1]), 16


def dynamic(b, x):
    """Compute with a tensor whose shape only the data say."""
    x = vector(b, x)
    count = b.add("Shape", b.add("NonZero", x))
    count = b.add("Cast", b.add("ReduceProd", count, keepdims=1), to=TensorProto.FLOAT)
    return b.add("Mul", x, count), 16


@pytest.mark.parametrize("part", [lstm, gru, norm, branch, dynamic])
def test_what_tvm_does_not_know_is_what_onnx_runtime_does_alone(part):
    b, x = stem()
    y, channels = part(b, x)
    b.output(b.gemm(y, channels, 10))
    model = vtaops.quantize(b.model(), images(4, SHAPE))
    compiled = vtaops.compile_model(model)
    data = images(1, SHAPE, seed=7)
    np.testing.assert_array_equal(compiled.run(data), compiled.reference(data))
    assert any(row.where == "vta" for row in compiled.plan)
    _check_hosts(model, compiled.graph, data)


def _check_hosts(model, graph, data):
    """Compare each function with the same tensors of the whole model in one session."""
    functions = [node for node in graph.nodes if isinstance(node.op, Host)]
    assert functions
    for node in functions:
        part = onnx.load_model_from_string(node.op.function.data)
        ends = [v.name for v in (*part.graph.input, *part.graph.output)]
        whole = checked(opened(model))
        known = {v.name: v for v in (*whole.graph.value_info, *whole.graph.output)}
        del whole.graph.output[:]
        whole.graph.output.extend(known[name] for name in ends)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        alone = onnxruntime.InferenceSession(whole.SerializeToString(), options)
        given = dict(zip(ends, alone.run(None, {"x": data}), strict=True))
        results = node.op.function(*(given[v.name] for v in part.graph.input))
        for value, result in zip(part.graph.output, results, strict=True):
            np.testing.assert_array_equal(result, given[value.name])


def test_integers_that_the_host_makes_are_no_grid():
    b = Builder()
    grid = b.constant(np.float32(0.03125)), b.constant(np.int8(0))
    x = b.add("QuantizeLinear", b.input([1, *SHAPE]), *grid)
    x = b.add("MaxPool", b.add("DequantizeLinear", x, *grid), kernel_shape=[2, 2])
    positive = b.add("Greater", b.add("ReduceMax", x, keepdims=0), b.constant(np.float32(0)))
    x = b.add("QuantizeLinear", x, *grid)
    value = helper.make_tensor_value_info("r", TensorProto.INT8, [1, 3, 7, 7])
    bodies = [
        helper.make_graph([helper.make_node(kind, [x], ["r"])], kind, [], [value])
        for kind in ("Abs", "Identity")
    ]
    x = b.add("If", positive, then_branch=bodies[0], else_branch=bodies[1])
    b.output(b.add("DequantizeLinear", x, *grid))
    model = b.model()
    compiled = vtaops.compile_model(model)
    data = images(1, SHAPE, seed=7)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data})[0]
    np.testing.assert_array_equal(compiled.run(data), wanted)


def test_a_file_with_such_a_part_needs_no_consent(tmp_path):
    b, x = stem()
    b.output(norm(b, x)[0])
    compiled = vtaops.compile_model(vtaops.quantize(b.model(), images(4, SHAPE)))
    compiled.save(tmp_path / "norm.vtam")
    again = vtaops.load_model(tmp_path / "norm.vtam")
    data = images(1, SHAPE)
    np.testing.assert_array_equal(again.run(data), compiled.run(data))


def test_a_part_from_a_file_holds_data_alone(tmp_path):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    onnx.external_data_helper.set_external_data(weight, "secret")
    weight.ClearField("raw_data")
    add = helper.make_node("Add", ["x", "w"], ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([add], "g", [value], [result], [weight])
    with pytest.raises(vtaops.errors.ProgramError, match="weights in another file"):
        OnnxFunction(helper.make_model(graph).SerializeToString())(np.ones(2, np.float32))
    del graph.initializer[:]
    foreign = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.other", 1)])
    with pytest.raises(vtaops.errors.ProgramError, match="not ONNX's own"):
        OnnxFunction(foreign.SerializeToString())(np.ones(2, np.float32))


def value(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def part(*nodes, **constants):
    """Return a part of a file that computes y from x, both of two numbers."""
    tensors = [numpy_helper.from_array(np.asarray(c), name) for name, c in constants.items()]
    graph = helper.make_graph([*nodes], "g", [value("x", 2)], [value("y", 2)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return OnnxFunction(model.SerializeToString())


def loop(count, *inside, source="x", step="a", result="y"):
    """Return a Loop that adds to x, while its condition, which never changes, holds."""
    flag = TensorProto.BOOL
    go, add = ("Identity", ["go"], ["on"]), ("Add", ["a", step], ["b"])
    nodes = [*inside, helper.make_node(*go), helper.make_node(*add)]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", kind=TensorProto.INT64), value("go", kind=flag), value("a", 2)],
        [value("on", kind=flag), value("b", 2)],
    )
    return helper.make_node("Loop", [count, "", source], [result], body=body)


def scan(source, **more):
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"])],
        "body",
        [value("s", 2), value("e")],
        [value("t", 2)],
    )
    return helper.make_node("Scan", ["x", source], ["y"], body=body, num_scan_inputs=1, **more)


def test_loops_that_say_how_often_they_run_do():
    two = np.array([1, 3], np.float32)
    np.testing.assert_array_equal(part(loop("n"), n=np.int64(3))(two)[0], 8 * two)
    np.testing.assert_array_equal(part(scan("e"), e=np.float32([1, 2, 3]))(two)[0], two + 6)


def indexed(*nodes):
    return [*nodes, helper.make_node("Gather", ["long", "zero"], ["y"])]


@pytest.mark.parametrize(
    ("nodes", "constants", "said"),
    [
        ([loop("")], {}, "Loop 'y' must state how often it runs"),
        ([loop("n")], {"n": np.int64(1 << 62)}, "Loop 'y' must state how often"),
        ([loop("n")], {"n": np.int64(-1)}, "Loop 'y' must state how often"),
        (
            [helper.make_node("Cast", ["x"], ["m"], to=TensorProto.INT64), loop("m")],
            {},
            "Loop 'y' must state how often",
        ),
        (
            [loop("n", loop("n", result="z"))],
            {"n": np.int64(1000)},
            "Loop 'z' must .* at most 65,536",
        ),
        (
            [
                helper.make_node("NonZero", ["x"], ["l"]),
                helper.make_node("Cast", ["l"], ["m"], to=TensorProto.FLOAT),
                scan("m", scan_input_axes=[1]),
            ],
            {},
            "Scan 'y' must state how often",
        ),
        (
            indexed(helper.make_node("ConstantOfShape", ["s"], ["long"])),
            {"s": np.array([3 << 28, 2]), "zero": np.int64(0)},
            "the tensor 'long' has 6,442,450,944 bytes, more than 1,073,741,824",
        ),
        (
            indexed(
                helper.make_node("ConstantOfShape", ["s"], ["a"]),
                helper.make_node("Neg", ["a"], ["b"]),
                helper.make_node("Exp", ["b"], ["long"]),
            ),
            {"s": np.array([1 << 27, 2]), "zero": np.int64(0)},
            "constants are computed of 3,221,225,480 bytes",
        ),
    ],
)
def test_a_part_without_bounds_is_refused_before_it_runs(nodes, constants, said):
    with pytest.raises(vtaops.errors.UnsupportedError, match=said):
        part(*nodes, **constants)(np.ones(2, np.float32))


@pytest.mark.parametrize("restarts", [False, True])
def test_an_interruption_ends_a_part_that_runs(restarts):
    """Also where a signal restarts system calls, as libraries that once handled SIGINT leave it."""
    inside = [
        helper.make_node("ReduceSum", ["a"], ["total"], keepdims=0),
        helper.make_node("Mul", ["big", "total"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "big"], ["product"]),
        helper.make_node("ReduceMax", ["product"], ["step"], keepdims=0),
    ]
    big = np.ones((512, 512), np.float32)
    long = part(loop("n", *inside, step="step"), n=np.int64(1 << 16), big=big)
    begin = time.monotonic()
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    signal.siginterrupt(signal.SIGINT, not restarts)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            long(np.ones(2, np.float32))
        timer.join()
    finally:
        signal.siginterrupt(signal.SIGINT, True)
    assert time.monotonic() - begin < 30  # to its end it takes several minutes


def test_import_refuses_a_loop_without_bounds():
    b, x = stem()
    rows = b.add("Reshape", vector(b, x), b.constant(np.array([8, 2])))
    b.output(b.add("ReduceSum", rows, b.constant(np.array([0])), keepdims=0))
    model = vtaops.quantize(b.model(), images(4, SHAPE))
    last = model.graph.node[-1]
    last.output[0], result = "sums", last.output[0]
    endless = loop("", source="sums", result=result)
    model.graph.node.append(endless)
    with pytest.raises(vtaops.errors.UnsupportedError, match="must state how often it runs"):
        import_model(model)


def test_without_onnx_runtime_the_error_says_what_to_install(monkeypatch):
    b, x = stem()
    b.output(norm(b, x)[0])
    graph = import_model(vtaops.quantize(b.model(), images(4, SHAPE)))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(vtaops.errors.UnsupportedError, match="pip install onnxruntime"):
        evaluate(graph, images(1, SHAPE))
    with pytest.raises(vtaops.errors.UnsupportedError, match="pip install onnxruntime"):
        vtaops.quantize(b.model(), images(4, SHAPE))


def test_a_result_without_static_shape_is_named():
    b, x = stem()
    b.output(b.add("NonZero", vector(b, x)))
    with pytest.raises(
        vtaops.errors.ModelError, match=r"which NonZero .* computes, has no static shape"
    ):
        import_model(vtaops.quantize(b.model(), images(4, SHAPE)))


def test_a_file_whose_scales_are_computed_when_it_runs_is_the_hosts():
    """As `quantize_dynamic` of ONNX Runtime writes it."""
    b = Builder(2)
    x = b.input([3, 8])
    data, scale, zero = b.add("DynamicQuantizeLinear", x, outputs=3)
    weight = b.constant(b.rng.integers(-128, 128, (8, 4)).astype(np.int8))
    product = b.add("Cast", b.add("MatMulInteger", data, weight, zero), to=TensorProto.FLOAT)
    b.output(b.add("Mul", product, scale))
    model = b.model()
    with pytest.warns(vtaops.errors.PlacementWarning):
        compiled = vtaops.compile_model(model)
    array = images(1, (3, 8))[0]
    (expected,) = Probe(model).run({"x": array}).values()
    np.testing.assert_allclose(compiled.run(array), expected, rtol=1e-6)


def test_a_layer_norm_keeps_a_bias_that_is_no_constant():
    b = Builder()
    x, bias = b.input([2, 8]), b.input([8], "bias")
    b.output(b.add("LayerNormalization", x, b.constant(np.ones(8, np.float32)), bias, axis=-1))
    rng = np.random.default_rng(0)
    sample = {n: rng.normal(size=s).astype(np.float32) for n, s in (("x", (2, 8)), ("bias", 8))}
    model = b.model()
    (expected,) = Probe(model).run(sample).values()
    (found,) = evaluate(import_model(model), *sample.values())
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_rms_norm_with_a_weight_for_each_row_keeps_it():
    """As many rows as channels: the weights would fit both."""
    b = Builder()
    x = b.input([8, 8])
    mean = b.add("ReduceMean", b.add("Mul", x, x), axes=[-1], keepdims=1)
    root = b.add("Sqrt", b.add("Add", mean, b.constant(np.float32(1e-3))))
    weight = b.constant(np.arange(8, dtype=np.float32).reshape(8, 1))
    b.output(b.add("Mul", b.add("Div", x, root), weight))
    data, model = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), b.model()
    (expected,) = Probe(model).run({"x": data}).values()
    (found,) = evaluate(import_model(model), data)
    np.testing.assert_allclose(found, expected, atol=1e-5)
