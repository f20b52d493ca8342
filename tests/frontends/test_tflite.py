"""TFLite files, int8, uint8 and float: LiteRT's reference kernels say what each operator means."""

import numpy as np
import pytest

import vtaops
from trials.random_tflite import reference
from trials.tflite_models import Writer, float_tflite, small_tflite
from trials.tflite_operators import cases, inputs
from vtaops.errors import ModelError, UnsupportedError
from vtaops.frontends import differences, import_model, read_model
from vtaops.frontends.tflite import RULES
from vtaops.graph import Host, evaluate

WRONG_IN_LITERT = {("SUM", "int8")}
"""It takes negative sums of int8 for others."""

KINDS = sorted({case.kind for case in cases()})


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "model.tflite"
        path.write_bytes(content)
        return path

    return write


def judge(content):
    """Return LiteRT's reference kernels on a file; skip what they do not know."""
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    return reference(content)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_operators_mean_what_litert_computes(kind, batch, write):
    """To the bit, but for one step of what the host computes in floats, and of tables."""
    compared = 0
    for case in [case for case in cases(batch) if case.kind == kind]:
        for dtype in case.dtypes:
            content = case.file(dtype)
            path, arrays = write(content), inputs(case, dtype)
            try:
                expected = judge(content)(*arrays)
            except (RuntimeError, ValueError):  # LiteRT has no such kernel
                assert import_model(path).nodes
                continue
            found = evaluate(import_model(path), *arrays)
            for ours, theirs in zip(found, expected, strict=True):
                assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
                if (kind, dtype) not in WRONG_IN_LITERT:
                    tolerance = 1 if theirs.dtype.kind in "iu" else 1e-4 * np.abs(theirs).max()
                    assert np.allclose(ours.astype(float), theirs, rtol=0, atol=tolerance)
            compared += 1
    assert compared or kind in ("BROADCAST_TO", "CEIL", "ELU", "ROUND")


def test_every_rule_is_tried():
    products = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}
    types = {"DEQUANTIZE", "QUANTIZE"}
    others = {"SELECT", "SELECT_V2", "SHAPE"}
    truths = {"LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "REDUCE_ALL", "REDUCE_ANY"}
    assert RULES.keys() - {*KINDS} == products | types | truths | others


def test_truth_values(write):
    w, shape = Writer(), (2, 4, 4, 8)
    x, y = w.tensor(shape, "float32"), w.tensor(shape, "float32")

    def truth(kind, *operands, shape=shape, **options):
        result = w.tensor(shape, "bool")
        w.operator(kind, operands, [result], **options)
        return result

    above, near = truth("GREATER", x, y), truth("LESS", x, y)
    either, both = truth("LOGICAL_OR", above, near), truth("LOGICAL_AND", above, near)
    neither = truth("LOGICAL_NOT", either)
    axes = w.constant([1, 2])
    some = [truth(f"REDUCE_{kind}", above, axes, shape=(2, 8)) for kind in ("ANY", "ALL")]
    largest = w.tensor(shape, "float32")
    w.operator("SELECT_V2", [above, x, y], [largest])
    content = w.finish([x, y], [both, neither, *some, largest])
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 5, shape).astype(np.float32) for _ in range(2)]
    found = evaluate(import_model(write(content)), *arrays)
    for ours, theirs in zip(found, judge(content)(*arrays), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_a_network_means_what_litert_computes(kind, write):
    content = small_tflite(kind, pad=True)
    path = write(content)
    rng = np.random.default_rng(1)
    image = rng.integers(-128, 128, (1, 12, 10, 3)).astype(np.int8)
    if kind == "float32":
        image = ((image.astype(np.float32) - 3) * 0.02).astype(np.float32)
    graph = import_model(path)
    assert np.array_equal(evaluate(graph, image)[0], judge(content)(image)[0])
    kinds = [node.op.kind for node in graph.nodes]
    assert not [node for node in graph.nodes if isinstance(node.op, Host)]
    assert kinds.count("transpose") == 1  # the image, at the border


def test_a_float_network(write):
    content = float_tflite()
    image = np.random.default_rng(1).normal(size=(1, 12, 10, 3)).astype(np.float32)
    (found,) = evaluate(import_model(write(content)), image)
    assert np.allclose(found, judge(content)(image)[0], atol=1e-5)


def test_a_network_runs_on_vta(write):
    model = vtaops.compile_model(write(small_tflite(pad=True)), "pynq_ext")
    image = np.random.default_rng(2).integers(-128, 128, (1, 12, 10, 3)).astype(np.int8)
    assert np.array_equal(model.run(image), model.reference(image))
    assert [row.operator for row in model.plan if row.where == "host"] == ["transpose"]


def test_a_network_of_uint8_runs_on_vta(write):
    """As of 2018: weights have a zero point, and one scale."""
    w, rng = Writer(), np.random.default_rng(0)
    x, y = w.tensor((1, 8, 8, 16), "uint8", 0.04, 119), w.tensor((1, 8, 8, 16), "uint8", 0.1, 128)
    data = rng.integers(0, 256, (16, 3, 3, 16)).astype(np.uint8)
    weight = w.tensor(data.shape, "uint8", 0.004, 128, data=data)
    bias = w.tensor((16,), "int32", 0.04 * 0.004, data=rng.integers(-900, 900, 16, np.int32))
    ones = ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
    options = {"Padding": 0, "FusedActivationFunction": 1, **dict.fromkeys(ones, 1)}
    w.operator("CONV_2D", [x, weight, bias], [y], **options)
    content = w.finish([x], [y])
    image = rng.integers(0, 256, (1, 8, 8, 16)).astype(np.uint8)
    model = vtaops.compile_model(write(content), "pynq_exact")
    assert np.array_equal(model.run(image), judge(content)(image)[0])
    hosts = [row.operator for row in model.plan if row.where == "host"]
    assert hosts == ["from_uint8", "transpose", "transpose", "to_uint8"]


def test_tensors_have_the_names_of_the_file(write):
    graph = import_model(write(small_tflite()))
    assert (graph.inputs[0].name, graph.outputs[0].name) == ("t0", "t22")
    names = [node.name for node in graph.nodes]
    assert names[:4] == ["t0:nchw", "t3", "t6", "t9"]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_dense_layer_of_an_image_of_one_pixel(keeps, write):
    w, rng = Writer(), np.random.default_rng(0)
    x = w.tensor((2, 1, 1, 6), "int8", 0.05, 3)
    data = rng.integers(-127, 128, (5, 8)).astype(np.int8)
    weight = w.tensor(data.shape, "int8", 0.01, data=data)
    bias = w.tensor((5,), "int32", 0.0005, data=rng.integers(-900, 900, 5).astype(np.int32))
    y = w.tensor((2, 1, 1, 5) if keeps else (2, 5), "int8", 0.06, -4)
    operands = [w.convolution(x, 8, 1, 0.05, 3), weight, bias]
    w.operator("FULLY_CONNECTED", operands, [y], FusedActivationFunction=0, KeepNumDims=keeps)
    content = w.finish([x], [y])
    image = rng.integers(-128, 128, (2, 1, 1, 6)).astype(np.int8)
    assert np.array_equal(
        evaluate(import_model(write(content)), image)[0], judge(content)(image)[0]
    )


# ---------------------------------------------------------------------------------- weights


def convolution(weight, x=("int8", 0.05, 3), y=("int8", 0.06, -5), **options):
    """A file with a 1x1 convolution of 3 channels to 5; `weight` adds the filters."""
    w = Writer(1)
    data, result = w.tensor((1, 4, 4, 3), *x), w.tensor((1, 4, 4, 5), *y)
    filters = weight(w)
    kind, steps = ("float32", None) if x[0] == "float32" else ("int32", 0.05 * np.full(5, 0.1))
    bias = w.tensor((5,), kind, steps, data=np.zeros(5, kind))
    options = {"Padding": 1, "FusedActivationFunction": 0, **options}
    ones = ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
    w.operator("CONV_2D", [data, filters, bias], [result], **options, **dict.fromkeys(ones, 1))
    return w.finish([data], [result])


def test_weights_of_four_bits(write):
    data = np.random.default_rng(0).integers(-7, 8, (5, 1, 1, 3))
    halves = np.append(data.reshape(-1), 0) & 15
    packed = (halves[::2] | halves[1::2] << 4).astype(np.uint8)
    content = convolution(lambda w: w.tensor((5, 1, 1, 3), "int4", np.full(5, 0.1), data=packed))
    image = np.random.default_rng(1).integers(-128, 128, (1, 4, 4, 3)).astype(np.int8)
    (node,) = [node for node in import_model(write(content)).nodes if node.op.kind == "convolution"]
    assert np.array_equal(node.op.weight, data.transpose(0, 3, 1, 2))
    assert np.array_equal(
        evaluate(import_model(write(content)), image)[0], judge(content)(image)[0]
    )


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_weights_of_float_networks_may_be_smaller(dtype, write):
    """LiteRT rounds the activations of a network whose weights alone are int8."""

    def weight(w):
        data = np.random.default_rng(0).integers(-127, 128, (5, 1, 1, 3)).astype(dtype)
        if dtype == "int8":
            return w.tensor(data.shape, dtype, 0.01, data=data)
        wide = w.tensor(data.shape, "float32")
        w.operator("DEQUANTIZE", [w.tensor(data.shape, dtype, data=data)], [wide])
        return wide

    content = convolution(weight, ("float32",), ("float32",))
    image = np.random.default_rng(1).normal(size=(1, 4, 4, 3)).astype(np.float32)
    (found,), (expected,) = evaluate(import_model(write(content)), image), judge(content)(image)
    assert np.allclose(found, expected, atol=0.01 * np.abs(expected).max())


def test_sparse_weights_are_refused(write):
    w = Writer(0)
    x, y = w.tensor((3, 8), "float32"), w.tensor((3, 5), "float32")
    sparse = w.compressed_rows(np.eye(5, 8, dtype=np.float32), "float32")
    w.operator("FULLY_CONNECTED", [x, sparse, -1], [y], FusedActivationFunction=0)
    with pytest.raises(UnsupportedError, match="the tensor 't2' is sparse"):
        import_model(write(w.finish([x], [y])))


def test_the_scale_of_a_bias_is_that_of_the_products(write):
    """As in LiteRT, which adds the integers whatever the file says."""
    w = Writer(1)
    x, y = w.tensor((2, 6), "int8", 0.05, 3), w.tensor((2, 5), "int8", 0.06, -5)
    rng = np.random.default_rng(0)
    weight = w.tensor((5, 6), "int8", 0.01, data=rng.integers(-127, 128, (5, 6)).astype(np.int8))
    numbers = rng.integers(-900, 900, 5).astype(np.int32)
    bias = w.tensor((5,), "int32", data=numbers)
    w.operator("FULLY_CONNECTED", [x, weight, bias], [y], FusedActivationFunction=0)
    path = write(w.finish([x], [y]))
    (node,) = import_model(path).nodes
    assert np.array_equal(node.op.bias, numbers)


# ----------------------------------------------------------------------------------- shapes


def shape_arithmetic():
    """A file that flattens all but the batch, by the shape that it computes."""
    w = Writer()
    x, shape = w.tensor((3, 4, 5, 6), "int8", 0.05, 3), w.tensor((4,), "int32")
    w.operator("SHAPE", [x], [shape], OutType=2)
    batch, wanted = w.tensor((), "int32"), w.tensor((2,), "int32")
    ends = [w.constant([number]) for number in (0, 1, 1)]
    w.operator("STRIDED_SLICE", [shape, *ends], [batch], ShrinkAxisMask=1)
    w.operator("PACK", [batch, w.constant(-1)], [wanted], ValuesCount=2, Axis=0)
    y = w.tensor((3, 120), "int8", 0.05, 3)
    w.operator("RESHAPE", [x, wanted], [y])
    return w.finish([x], [y])


def test_shapes_that_the_file_computes_are_known(write):
    path = write(shape_arithmetic())
    image = np.random.default_rng(0).integers(-128, 128, (3, 4, 5, 6)).astype(np.int8)
    assert np.array_equal(evaluate(import_model(path), image)[0], image.reshape(3, 120))
    assert read_model(path, shapes={"t0": (2, 4, 5, 6)}).outputs[0].shape == (2, 120)
    with pytest.raises(ModelError, match=r"'x' is not an input of the model; it has \['t0'\]"):
        import_model(path, shapes={"x": (1,)})
    with pytest.raises(ModelError, match=r"has the shape \[3, 4, 5, 6\]; give a static one"):
        import_model(path, shapes={"t0": (1, 2)})


def test_a_batch_that_is_open_is_one(write):
    w = Writer()
    x, y = (w.tensor((-1, 8), "int8", 0.05, 3) for _ in range(2))
    w.operator("RELU", [x], [y])
    assert import_model(write(w.finish([x], [y]))).outputs[0].shape == (1, 8)


# ------------------------------------------------------------------------------------ errors


def test_bad_files(write, tmp_path):
    with pytest.raises(ModelError, match=r"cannot read .*none\.tflite: No such file"):
        import_model(tmp_path / "none.tflite")
    with pytest.raises(ModelError, match="not a TFLite model"):
        import_model(write(b"no model"))
    whole = small_tflite()
    with pytest.raises(ModelError, match="is damaged"):
        import_model(write(whole[: len(whole) // 2]))


def one(kind, dtype="int8", shape=(1, 8), result=None, **options):
    w = Writer()
    x, y = w.tensor(shape, dtype, 0.05), w.tensor(result or shape, dtype, 0.05)
    w.operator(kind, [x], [y], **options)
    return w.finish([x], [y])


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (lambda: one("READ_VARIABLE"), UnsupportedError, "READ_VARIABLE 't1' is an operator that"),
        (lambda: one("WHILE"), UnsupportedError, "WHILE 't1' is an operator that"),
        (lambda: one("CUSTOM"), UnsupportedError, "CUSTOM 't1' is an operator that"),
        (lambda: one("LOGISTIC", "int16"), UnsupportedError, "'t0' is int16 with 1 scales"),
        (lambda: one("CUMSUM"), UnsupportedError, "CUMSUM 't1' is an operator that"),
        (lambda: one("TILE"), ModelError, "TILE 't1' is malformed"),
    ],
)
def test_what_cannot_be_read_is_named(content, error, message, write):
    with pytest.raises(error, match=message):
        import_model(write(content()))


def test_what_no_output_needs_is_not_read(write):
    w = Writer()
    x, y, z = (w.tensor((1, 8), "int8", 0.05) for _ in range(3))
    w.operator("RELU", [x], [y])
    w.operator("WHILE", [x], [z])
    assert len(import_model(write(w.finish([x], [y]))).nodes) == 1


@pytest.mark.parametrize("axes", [[1], [2], [3], [1, 2], [1, 3], [1, 2, 3]])
@pytest.mark.parametrize("scale", [0.05, 0.031])
def test_means_equal_litert_on_their_own_grid_and_another(axes, scale, write):
    w = Writer(0)
    x = w.tensor((2, 6, 5, 4), "int8", 0.05, -20)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate((2, 6, 5, 4)))
    y = w.tensor(shape, "int8", scale, -20)
    w.operator("MEAN", [x, w.constant(axes)], [y], KeepDims=True)
    content = w.finish([x], [y])
    data = np.random.default_rng(0).integers(-128, 128, (2, 6, 5, 4)).astype(np.int8)
    (expected,) = judge(content)(data)
    assert np.array_equal(evaluate(import_model(write(content)), data)[0], expected)


def test_sums_are_not_compared_with_litert(write):
    """It computes -1 of all sums with a negative value; what follows is compared all the same."""
    w = Writer()
    x, y = w.tensor((1, 4, 4, 16), "int8", 0.05), w.tensor((1, 1, 1, 16), "int8", 0.2)
    w.operator("SUM", [x, w.constant([1, 2])], [y], KeepDims=True)
    z = w.convolution(y, 8, 1, 0.1, 3)
    content, image = w.finish([x], [y, z]), np.full((1, 4, 4, 16), -2, np.int8)
    expected, path = judge(content)(image), write(content)
    (total, _), model = (
        evaluate(import_model(path), image),
        vtaops.compile_model(path, "pynq_exact"),
    )
    assert (total == -8).all()  # 16 times -0.1, in steps of 0.2
    assert (expected[0] == -1).all()
    assert model.agreement.tensors == 2  # the image, and the convolution


def test_all_tensors_of_a_file_are_compared(write):
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    path = write(small_tflite(pad=True))
    image = np.random.default_rng(2).integers(-128, 128, (1, 12, 10, 3)).astype(np.int8)
    graph = import_model(path)
    found = differences(path, {graph.inputs[0].name: image})
    assert found.keys() >= {"t3", "t6", "t9", "t10", "t13", "t15", "t18"}
