"""Transformers on VTA: norms of rows on integers, and whole random layers in one launch."""

import numpy as np
import pytest

import vtaops
from trials import c_bundles
from trials.random_transformers import check
from vtaops.errors import ShapeError
from vtaops.graph import Dense, Graph, Requantization, evaluate
from vtaops.graph import operators as ops
from vtaops.graph.normalization import RowNorm, RowSoftmax
from vtaops.network import plan_model

RNG = np.random.default_rng(7)


def norm(shape, *, scale=0.05, epsilon=1e-5, result=0.03, zero=3, centered=True):
    """Return the graph of a norm in floats before a dense layer."""
    graph = Graph("norm")
    x = graph.input("x", shape, scale=scale, zero_point=zero)
    weight, bias = (RNG.normal(mean, 0.3, shape[-1]).astype(np.float32) for mean in (1, 0))
    real = graph.add(ops.Dequantize(), x)
    normal = graph.add(ops.LayerNorm(weight, bias, epsilon, centered), real)
    rows = graph.add(ops.Quantize(result, -4), normal)
    weights = RNG.integers(-128, 128, (5, shape[-1])).astype(np.int8)
    graph.output(rows, graph.add(Dense(weights, None, Requantization(1, 9)), rows))
    return graph


def inputs(shape):
    """Yield rows: noise, extremes, equal values, and few different ones."""
    yield RNG.integers(-128, 128, shape)
    yield RNG.choice([-128, 127], shape)
    yield np.full(shape, 127)
    yield np.rint(RNG.normal(20, 2, shape))
    yield np.eye(shape[-2], shape[-1]) * 127 - 128 * np.ones(shape)


@pytest.mark.parametrize("config", ["pynq_ext", "pynq_512"])
@pytest.mark.parametrize("shape", [(13, 16), (1, 20, 24), (2, 18, 40), (1, 1, 33), (1, 40, 100)])
def test_norms_are_on_integers(shape, config):
    check_norm(norm(shape), shape, config)


@pytest.mark.parametrize("zero", [0, -128, 5])
@pytest.mark.parametrize(
    ("shape", "config"),
    [((1, 20, 24), "pynq_ext"), ((2, 18, 40), "pynq_512"), ((3, 16), "pynq_ext")],
)
def test_rms_norms_are_on_integers(shape, config, zero):
    """What lies at the zero point counts as 0."""
    check_norm(norm(shape, zero=zero, centered=False), shape, config)


@pytest.mark.parametrize("scale", [1e-3, 2e-4])
def test_epsilons_that_outweigh_small_rows(scale):
    """Of 16 bits and more, as behind a convolution whose results are some thousandths."""
    check_norm(norm((1, 20, 24), scale=scale), (1, 20, 24), "pynq_ext")


def check_norm(graph, shape, config):
    """A norm is proven, equal to the executor, and within a step of the float norm."""
    model = vtaops.compile_model(graph, config)
    assert (len(model.regions), {row.where for row in model.plan}) == (1, {"vta"})
    assert model.prove().complete
    for values in inputs(shape):
        x = values.astype(np.int8)
        found, expected = model.run(x), model.reference(x)
        assert all(map(np.array_equal, found, expected))
        real = evaluate(graph, x)[0]
        assert np.abs(found[0].astype(int) - real.astype(int)).max() <= 1


@pytest.mark.parametrize("centered", [True, False])
def test_a_norm_on_the_rtl_and_in_c(tmp_path, centered):
    graph = norm((1, 19, 24), centered=centered)
    model = vtaops.compile_model(graph)
    x = RNG.integers(-128, 128, (1, 19, 24)).astype(np.int8)
    expected = model.reference(x)
    with vtaops.Session("tsim", config=model.config) as session:
        assert all(map(np.array_equal, model.run(x, session=session), expected))
    model.save(tmp_path / "norm.vtam")
    status, found = c_bundles.load(vtaops.load_model(tmp_path / "norm.vtam")).run([x])
    assert status == c_bundles.OK
    assert all(map(np.array_equal, found, expected))


@pytest.mark.parametrize(
    ("shape", "config", "scale"),
    [((4, 16), "pynq", 0.05), ((4, 16385), "pynq_ext", 0.05), ((4, 16), "pynq_ext", 1e-6)],
)
def test_norms_that_stay_float(shape, config, scale):
    """Where the hardware cannot multiply and round, or numbers are out of range."""
    rows = plan_model(norm(shape, scale=scale), config).rows
    assert {row.operator: row.where for row in rows}["layer_norm"] == "host"


@pytest.mark.parametrize("spread", [1.5, 12, 60])
@pytest.mark.parametrize("channels", [16, 192, 1024])
def test_the_definition_is_close_to_float(channels, spread):
    """At most a step off; the share of such results is that of docs/quantization.md."""
    rng = np.random.default_rng(channels)
    x = np.clip(np.rint(rng.normal(20, spread, (64, channels))), -128, 127).astype(np.int8)
    weight, bias = (rng.normal(mean, 0.3, channels).astype(np.float32) for mean in (1, 0))
    real = x.astype(np.float64)
    real = (real - real.mean(-1, keepdims=True)) / real.std(-1, keepdims=True) * weight + bias
    step = float(np.abs(real).max() / 127)
    graph = Graph("norm")
    given = graph.input("x", x.shape, scale=1.0)
    result = vtaops.graph.Tensor("y", x.shape, scale=step)
    graph.output(graph.add(RowNorm.of(ops.LayerNorm(weight, bias, 0.0), given, result), given))
    difference = np.abs(evaluate(graph, x)[0] - np.rint(real / step))
    assert difference.max() <= 1
    assert difference.mean() <= (0.12 if spread < 2 else 0.02)


def softmax(shape, scale, result=1 / 256, zero_point=-128, mask=None):
    """Return the graph of a softmax in floats."""
    graph = Graph("softmax")
    x = graph.input("x", shape, scale=scale, zero_point=3)
    real = graph.add(ops.Dequantize(), x)
    if mask is not None:
        real = graph.add(ops.AddTerm(np.where(mask, 0, -3e38).astype(np.float32)), real)
    real = graph.add(ops.Softmax(), real)
    graph.output(graph.add(ops.Quantize(result, zero_point), real))
    return graph


def results_of(graph, shape, config):
    """Yield results of a softmax in one launch: proven, as the executor's, a step from float."""
    model = vtaops.compile_model(graph, config)
    assert (len(model.regions), {row.where for row in model.plan}) == (1, {"vta"})
    assert model.prove().complete
    for values in inputs(shape):
        x = values.astype(np.int8)
        found = model.run(x)
        assert np.array_equal(found, model.reference(x))
        assert np.abs(found.astype(int) - evaluate(graph, x)[0].astype(int)).max() <= 1
        yield found


@pytest.mark.parametrize("config", ["pynq_ext", "pynq_512"])
@pytest.mark.parametrize(
    ("shape", "scale"),
    [((13, 16), 0.05), ((1, 20, 24), 0.02), ((2, 18, 40), 0.3), ((1, 1, 33), 0.1), ((3, 7, 1), 1)],
)
def test_softmax_is_on_integers(shape, scale, config):
    """It is proven, equal to the executor, and within a step of the float softmax."""
    assert [*results_of(softmax(shape, scale), shape, config)]


@pytest.mark.parametrize(
    ("shape", "scale", "mask", "config"),
    [
        ((1, 3, 16, 16), 0.05, np.tri(16), "pynq_ext"),
        ((2, 1, 21, 21), 0.3, np.tri(21), "pynq_512"),
        ((1, 2, 5, 37), 0.01, np.arange(37) < 30, "pynq_ext"),
    ],
)
def test_masked_softmax_is_on_integers(shape, scale, mask, config):
    """What a mask leaves out is 0, whatever it is, and the rest at most a step from float."""
    for found in results_of(softmax(shape, scale, mask=mask), shape, config):
        assert (found == -128)[..., ~np.broadcast_to(mask, shape[-2:]).astype(bool)].all()


@pytest.mark.parametrize(
    ("shape", "extents", "config"),
    [
        ((1, 3, 16, 16), (1, 1, 1, 16), "pynq_ext"),
        ((2, 2, 21, 37), (2, 1, 1, 37), "pynq_ext"),
        ((1, 2, 18, 40), (18, 40), "pynq_512"),
        ((3, 7, 33), (3, 7, 33), "pynq_512"),
    ],
)
def test_a_mask_that_the_network_is_given(shape, extents, config, tmp_path):
    """Each run has its own; a row of which nothing is left is that of equal logits."""
    graph = Graph("softmax")
    x, mask = graph.input("x", shape, scale=0.2), graph.input("mask", extents, "float32")
    real = graph.add(ops.Softmax(), graph.add(ops.Dequantize(), x), mask)
    graph.output(graph.add(ops.Quantize(1 / 256, -128), real))
    model = vtaops.compile_model(graph, config)
    assert len(model.regions) == 1
    assert model.prove().complete
    model.save(tmp_path / "masked.vtam")
    loaded = vtaops.load_model(tmp_path / "masked.vtam")
    for kept in (0.6, 0.05, 1):
        data = RNG.integers(-128, 128, shape).astype(np.int8)
        given = np.where(RNG.random(extents) < kept, 0, np.finfo("f").min).astype("f")
        found = loaded.run(data, given)
        assert np.array_equal(found, model.reference(data, given))
        assert np.abs(found.astype(int) - evaluate(graph, data, given)[0]).max() <= 1


@pytest.mark.parametrize(("count", "tokens"), [(2, 16), (3, 5), (4, 20)])
def test_values_of_several_sequences_that_one_layer_makes(count, tokens):
    """Queries, keys and values are parts of the channels of an image for each sequence."""
    graph, width = Graph("attention"), 16
    x = graph.input("x", (count, tokens, width), scale=0.05)
    weight = RNG.integers(-128, 128, (3 * width, width)).astype(np.int8)
    joined = graph.add(Dense(weight, None, Requantization(1, 9)), x, scale=0.05)
    q, k, v = (
        graph.add(ops.Slice(2, width * part, width * (part + 1)), joined) for part in range(3)
    )
    product = ops.Matmul(Requantization(1, 8))
    scores = graph.add(product, q, graph.add(ops.Transpose((0, 2, 1)), k), scale=0.05)
    shares = graph.add(ops.Softmax(), graph.add(ops.Dequantize(), scores))
    shares = graph.add(ops.Quantize(1 / 256, -128), shares)
    graph.output(graph.add(product, shares, v, scale=0.05))
    model = vtaops.compile_model(graph)
    data = RNG.integers(-128, 128, (count, tokens, width)).astype(np.int8)
    assert len(model.regions) == 1
    assert np.array_equal(model.run(data), model.reference(data))


def test_masks_that_are_none():
    graph = Graph("softmax")
    real, integers = graph.input("real", (2, 4), "float32"), graph.input("integers", (2, 4))
    for shape in ((4, 4), (2,), (1, 2, 4)):
        mask = graph.input(f"mask{shape}", shape, "float32")
        with pytest.raises(ShapeError, match=r"a softmax of \(2, 4\) has one mask of such a shape"):
            graph.add(ops.Softmax(), real, mask)
    op = RowSoftmax.of(integers, vtaops.graph.Tensor("y", (2, 4), scale=1 / 256), masked=True)
    for mask in (graph.input("small", (1, 4)), graph.input("other", (2, 4), zero_point=1)):
        with pytest.raises(ShapeError, match="the mask of a softmax has the shape of its input"):
            graph.add(op, integers, mask)


def test_a_masked_softmax_in_a_file_and_in_c(tmp_path):
    model = vtaops.compile_model(softmax((1, 2, 7, 7), 0.1, mask=np.tri(7)))
    model.save(tmp_path / "masked.vtam")
    loaded = vtaops.load_model(tmp_path / "masked.vtam")
    x = RNG.integers(-128, 128, (1, 2, 7, 7)).astype(np.int8)
    assert loaded.prove().complete
    assert np.array_equal(loaded.reference(x), model.reference(x))
    status, (found,) = c_bundles.load(loaded).run([x])
    assert status == c_bundles.OK
    assert np.array_equal(found, model.reference(x))


def test_a_mask_that_is_none_stays_float():
    """Terms that are neither 0 nor below all logits, and rows that nothing is left of."""
    for term in (np.where(np.tri(5), 0, -3), np.full((5, 5), -1e9)):
        graph = Graph("softmax")
        x = graph.input("x", (5, 5), scale=0.05)
        real = graph.add(ops.AddTerm(term.astype(np.float32)), graph.add(ops.Dequantize(), x))
        graph.output(graph.add(ops.Quantize(1 / 256, -128), graph.add(ops.Softmax(), real)))
        assert {row.where for row in plan_model(graph, "pynq_ext").rows} == {"host"}


@pytest.mark.parametrize("columns", [2, 16, 197, 2048])
@pytest.mark.parametrize("scale", [0.001, 0.03, 0.2])
def test_the_softmax_is_close_to_float(columns, scale):
    """At most a step off, also where the largest share decides the step."""
    rng = np.random.default_rng(columns)
    x = rng.integers(-128, 128, (32, columns)).astype(np.int8)
    real = np.exp(scale * (x - x.max(-1, keepdims=True).astype(float)))
    real /= real.sum(-1, keepdims=True)
    step = float(real.max() / 255)
    graph = Graph("softmax")
    given = graph.input("x", x.shape, scale=scale)
    result = vtaops.graph.Tensor("y", x.shape, scale=step, zero_point=-128)
    graph.output(graph.add(RowSoftmax.of(given, result), given))
    difference = np.abs(evaluate(graph, x)[0] - (np.rint(real / step) - 128))
    assert difference.max() <= 1
    assert difference.mean() <= 0.07


@pytest.mark.parametrize(
    ("weight", "bias", "said"),
    [
        (np.full(4, 32767, np.int32), np.full(4, 2**30 + 40000, np.int32), "beyond int32"),
        (np.ones(4, np.int8), np.ones(4, np.int32), r"weight is int8\[4\]; it must be int32\[4\]"),
        (np.ones(4, np.int32), np.ones(3, np.int32), r"bias is int32\[3\]"),
    ],
)
def test_what_no_norm_has(weight, bias, said):
    graph = Graph("norm")
    x = graph.input("x", (2, 4))
    with pytest.raises(vtaops.errors.ShapeError, match=said):
        graph.add(RowNorm(weight, bias), x)


def test_what_no_softmax_has():
    table = np.stack([np.arange(-128, 128)] * 2).astype(np.int8)
    for wrong in (table[1:], table[:, ::-1], table.astype(np.int16)):
        with pytest.raises(vtaops.errors.ShapeError, match="the tables of a softmax are int8"):
            RowSoftmax(wrong)
    for mask in (np.zeros((2, 4), bool), np.ones((2, 4), bool), np.eye(4, dtype=np.int8)):
        with pytest.raises(vtaops.errors.ShapeError, match="the mask of a softmax is bool"):
            RowSoftmax(table, mask=mask)
    with pytest.raises(vtaops.errors.ShapeError, match="begin with -127 and -128"):
        RowSoftmax(np.full((2, 256), 127, np.int8), mask=np.tri(4, dtype=bool))
    with pytest.raises(vtaops.errors.ShapeError, match="one scale for all channels"):
        RowSoftmax(table, Requantization(np.array([1, 2]), 3))
    graph = Graph("softmax")
    x = graph.input("x", (2, 4096))
    with pytest.raises(vtaops.errors.ShapeError, match="softmax of 4096 values"):
        graph.add(RowSoftmax(table), x)


@pytest.mark.parametrize(
    ("seed", "config"),
    [(0, "pynq_ext"), (3, "pynq_512"), (13, "pynq_ext"), (16, "pynq_512"), (29, "pynq_ext")],
)
def test_random_transformers_in_one_launch(seed, config):
    """A sample; `trials/random_transformers.py` has more of them."""
    assert check(seed, config) == ([], 1)
