"""TFLite files to the bit: LiteRT's reference kernels are the judge where they are installed."""

from functools import partial

import numpy as np
import pytest

import vtaops
from trials.random_tflite import random_tflite, random_wide_tflite, reference
from trials.tflite_models import Writer
from vtaops.errors import ModelError
from vtaops.frontends import differences, import_model
from vtaops.graph import Host, evaluate
from vtaops.graph.fixed_softmax import softmax
from vtaops.graph.requantization import (
    FineRequantization,
    Quotient,
    Requantization,
    TfliteRequantization,
    quantized_multiplier,
)
from vtaops.graph.thresholds import (
    differing,
    fine_scale_for,
    quotient_scale,
    steps_of_requantization,
)
from vtaops.runtime import Tsim


def extremes(shape, seed):
    rng = np.random.default_rng(seed)
    noise = rng.integers(-128, 128, shape).astype(np.int8)
    return noise, np.full(shape, 127, np.int8), np.full(shape, -128, np.int8)


@pytest.mark.parametrize(
    ("seed", "transposed"),
    [*((seed, False) for seed in (1, 3, 4, 7, 12, 15)), (5, True), (7, True)],
)
def test_random_networks_equal_litert(seed, transposed, tmp_path):
    """`python -m trials random_tflite` runs more of them."""
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    content = random_tflite(seed, transposed)
    path = tmp_path / "random.tflite"
    path.write_bytes(content)
    run, graph = reference(content), import_model(path)
    model = vtaops.compile_model(path, "pynq_exact")
    for image in extremes(graph.inputs[0].shape, seed):
        (expected,) = run(image)
        assert np.array_equal(evaluate(graph, image)[0], expected)
        assert np.array_equal(model.run(image), expected)


def one_operator(kind, scale, zero, **options):
    """A file with one operator on (1, 16, 16, 1): room for each of the 256 values."""
    w = Writer(0)
    x = w.tensor((1, 16, 16, 1), "int8", 0.05, -20)
    y = w.tensor((1, 16, 16, 1), "int8", scale, zero)
    w.operator(kind, [x], [y], **options)
    return w.finish([x], [y])


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.2, -0.5, -1.3, 1.5])
def test_leaky_relus_equal_litert(alpha, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    content, path = one_operator("LEAKY_RELU", 0.04, -30, Alpha=alpha), tmp_path / "leaky.tflite"
    path.write_bytes(content)
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16, 1)
    (expected,) = reference(content)(codes)
    assert np.array_equal(evaluate(import_model(path), codes)[0], expected)
    if alpha == 0.2:
        assert np.array_equal(vtaops.compile_model(path, "pynq_exact").run(codes), expected)


def test_a_softmax_with_a_beta_stays_on_the_host(tmp_path):
    path = tmp_path / "softmax.tflite"
    path.write_bytes(one_operator("SOFTMAX", 1 / 256, -128, Beta=0.5))
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16, 1)
    graph = import_model(path)
    assert any(isinstance(node.op, Host) for node in graph.nodes)
    (expected,) = reference(path)(codes)
    assert np.abs(evaluate(graph, codes)[0].astype(int) - expected).max() <= 1
    path.write_bytes(one_operator("SOFTMAX", 1 / 256, -128, Beta=1.0))
    assert [node.op.kind for node in import_model(path).nodes] == ["softmax in fixed point"]


GRIDS = [(0.04, -30), (0.05, -20), (0.0113, 127), (0.13, -128), (0.0375, 0)]


@pytest.mark.parametrize("kind", ["ABS", "HARD_SWISH", "QUANTIZE", "RELU", "RELU6", "PRELU"])
@pytest.mark.parametrize("grid", GRIDS)
def test_functions_equal_litert(kind, grid, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    w, shape = Writer(0), (1, 16, 16, 4)
    x, y = w.tensor(shape, "int8", 0.05, -20), w.tensor(shape, "int8", *grid)
    slopes = np.array([-128, -1, 40, 127], np.int8).reshape(1, 1, 4)
    more = [w.tensor(slopes.shape, "int8", 0.011, 3, data=slopes)] if kind == "PRELU" else []
    w.operator(kind, [x, *more], [y])
    content, path = w.finish([x], [y]), tmp_path / "function.tflite"
    path.write_bytes(content)
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16, 1).repeat(4, axis=3)
    (expected,) = reference(content)(codes)
    assert np.array_equal(evaluate(import_model(path), codes)[0], expected)


@pytest.mark.parametrize("seed", [*range(24), 31, 49])
def test_random_networks_of_all_operators(seed, tmp_path):
    """Each tensor of the file from LiteRT's values of those before; uint8 for odd seeds."""
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    path = tmp_path / "random.tflite"
    path.write_bytes(random_wide_tflite(seed))
    graph = import_model(path)
    (given,) = graph.inputs
    limits, rng = np.iinfo(given.dtype), np.random.default_rng(seed)
    noise = rng.integers(limits.min, limits.max + 1, given.shape).astype(given.dtype)
    assert len(differences(path, {given.name: noise})) >= 2
    if seed < 4:
        model = vtaops.compile_model(path, "pynq_exact")
        assert np.array_equal(model.run(noise), model.reference(noise))


def test_a_network_on_the_rtl_proven_and_traced(tmp_path):
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    path = tmp_path / "random.tflite"
    path.write_bytes(random_tflite(4))
    (image, *_) = extremes(import_model(path).inputs[0].shape, 0)
    model = vtaops.compile_model(path, "pynq_exact")
    with Tsim(model.config) as device, vtaops.Session(device) as session:
        assert np.array_equal(model.run(image, session=session), reference(path)(image)[0])
    name = model.graph.inputs[0].name
    assert not any(layer.differences for layer in differences(path, {name: image}).values())
    coarse = vtaops.compile_model(path, "pynq_ext")
    notes = [row.reason for row in coarse.plan if row.where == "vta"]
    assert any("equal to TFLite but for a step" in note for note in notes)
    with pytest.raises(ModelError, match="refuses an input"):
        differences(path, {name: image.astype(np.float32)})


def twice(acc, multiplier, shift):
    """TFLite's two roundings as gemmlowp spells them."""
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    product = (acc << left) * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    total = product + nudge
    high = abs(total) >> 31
    high = high if total >= 0 else -high
    if not right:
        return high
    rest, threshold = high & ((1 << right) - 1), (((1 << right) - 1) >> 1) + (high < 0)
    return (high >> right) + (rest > threshold)


@pytest.mark.parametrize("ratio", [3e-9, 0.00213, 0.25, 0.4999999, 0.7, 1.0, 5.3])
def test_two_roundings(ratio):
    scaling = TfliteRequantization.from_ratio(ratio)
    rng = np.random.default_rng(0)
    near = np.arange(-300, 300) * max(1, round(1 / ratio)) // 2
    sums = np.concatenate([near, near + 1, rng.integers(-(1 << 27), 1 << 27, 300)])
    sums = sums[np.abs(sums) < 1 << 27]
    found = scaling.apply(sums)
    multiplier, shift = quantized_multiplier(ratio)
    expected = [np.clip(twice(int(acc), multiplier, shift), -128, 127) for acc in sums]
    assert found.tolist() == [int(value) for value in expected]


@pytest.mark.parametrize("seed", range(6))
def test_fine_scales_have_the_thresholds_that_they_claim(seed):
    """Compared on every sum of an interval, also where no scale is equal."""
    rng = np.random.default_rng(seed)
    ratio, zero = float(2.0 ** -rng.uniform(1, 14)), int(rng.integers(-128, 128))
    rounds = ("once", "twice")[seed % 2]
    scaling = TfliteRequantization.from_ratio(ratio, zero, (max(-128, zero), 127), rounds)
    low, high = sorted(rng.integers(-300_000, 300_000, 2).tolist())
    steps = steps_of_requantization(scaling, 0, low, high)
    for kind in (1, 2, 3):
        scale = fine_scale_for(steps, ratio, kind)
        numbers = scale.multiplier, scale.shift, zero, scaling.clip
        fine = FineRequantization(*numbers, scale.nudge, kind)
        sums = np.arange(low, high + 1)
        apart = np.abs(fine.apply(sums).astype(int) - scaling.apply(sums))
        assert apart.sum() == scale.differing == differing(steps, scale)
        if kind == 1 + seed % 2:
            assert scale.differing == 0


@pytest.mark.parametrize(
    "make", [Requantization, partial(TfliteRequantization, rounds="once"), TfliteRequantization]
)
def test_thresholds_are_where_results_change(make):
    multipliers, shifts = make().limits.values()
    rng = np.random.default_rng(multipliers.stop + shifts.stop)
    for _ in range(20):
        count, zero_point = int(rng.integers(1, 9)), int(rng.integers(-128, 128))
        multiplier = rng.integers(multipliers.start, multipliers.stop, count)
        shift = rng.integers(shifts.start, shifts.stop, count)
        if multipliers.start == 0:
            multiplier[0] = 0
        scaling = make(multiplier, shift, zero_point)
        low, high = rng.integers(-(1 << 30), 0, count), rng.integers(0, 1 << 30, count)
        for channel, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            own = steps_of_requantization(scaling, channel, a, b)
            one = make(multiplier[channel], shift[channel], zero_point)
            real = (a < own.first) & (own.first <= b)
            before, at = (one.apply(own.first[real] - k).astype(int) - zero_point for k in (1, 0))
            assert (before < own.levels[real]).all()
            assert (own.levels[real] <= at).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 49, 64, 125, 1000])
def test_quotients(count):
    assert quotient_scale(count).differing == 0
    values = np.arange(-128 * count, 127 * count + 1)
    away = np.sign(values) * np.floor(np.abs(values) / count + 0.5)
    assert np.array_equal(Quotient().apply(values, count), np.clip(away, -128, 127))


def test_softmax_is_close_to_the_real_one():
    values = np.random.default_rng(0).integers(-128, 128, (20, 7)).astype(np.int8)
    wide = values.astype(np.int64)
    real = np.exp((wide - wide.max(-1, keepdims=True)) * 0.11)
    real = np.clip(np.rint(256 * real / real.sum(-1, keepdims=True)) - 128, -128, 127)
    found = softmax(values, 0.11)
    assert np.abs(found.astype(int) - real).max() <= 1


def test_pools_of_the_input(tmp_path):
    """What moves an input that nothing dequantises has the grid of what it becomes."""
    writer = Writer()
    x = writer.tensor((1, 4, 4, 3), "int8", 0.1, 3)
    y = writer.tensor((1, 2, 2, 3), "int8", 0.1, 3)
    window = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    writer.operator("AVERAGE_POOL_2D", [x], [y], FusedActivationFunction=0, **window)
    content = writer.finish([x], [writer.convolution(y, 5, 1, 0.2, -3)])
    path = tmp_path / "pools.tflite"
    path.write_bytes(content)
    kinds = [node.op.kind for node in import_model(path).nodes]
    assert kinds == ["transpose", "average_pool", "convolution", "transpose"]
