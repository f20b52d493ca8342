"""Quantisation for a device: what is tried, what is taken, and rounding that is learned."""

import numpy as np
import pytest

import vtaops
from trials.onnx_models import Builder, images, small_network
from vtaops.errors import ModelError
from vtaops.frontends import import_model
from vtaops.graph import LookupTable, onnx_files
from vtaops.graph.learned_rounding import rounded
from vtaops.quantization import compare, equalize, pipeline, run_quantization
from vtaops.quantization.observers import observe


@pytest.mark.parametrize("config", ["pynq", "pynq_ext"])
def test_the_best_way_is_taken(config):
    """What is chosen for a device is no worse than the first recipe, on samples held out."""
    data = {"x": images(8)}
    done = run_quantization(small_network(), data, config=config)
    assert len(done.samples) == 6
    assert done.recipe.learned_rounding
    first = {"equalization": False, "learned_rounding": False, "bias_correction": False}
    zeros = config == "pynq_ext"
    plain = run_quantization(small_network(), data, config=config, zero_points=zeros, **first)
    others = [{"x": image[None]} for image in data["x"][3::4]]
    noise = [compare(d.prepared, d.model, others).outputs[0].sqnr_db for d in (plain, done)]
    assert noise[1] > noise[0]


def test_what_is_given_is_not_tried():
    options = {"zero_points": False, "equalization": False, "learned_rounding": False}
    done = run_quantization(small_network(), {"x": images(8)}, config="pynq", **options)
    assert str(done.recipe) in ("plain", "bias correction")


def test_a_device_that_is_none_is_refused():
    with pytest.raises(vtaops.errors.ConfigError):
        vtaops.quantize(small_network(), {"x": images(4)}, config="no such device")


def uneven_network():
    """A hard-swish between convolutions, whose channels differ by factors up to 2**7."""
    b = Builder()
    y = b.conv(b.input([1, 3, 8, 8]), 3, 8)
    y = b.add("Mul", y, b.constant(2.0 ** np.arange(-4, 4).astype(np.float32).reshape(8, 1, 1)))
    y = b.add("HardSwish", y)
    b.output(b.conv(y, 8, 4, kernel=1))
    return b.model()


@pytest.mark.parametrize("scales", ["free", "pow2"])
def test_equalisation_keeps_one_table_for_all_channels(scales):
    data = {"x": images(8, (3, 8, 8))}
    done = run_quantization(uneven_network(), data, scales=scales, equalization=True)
    tables = [n.op.table for n in import_model(done.model).nodes if isinstance(n.op, LookupTable)]
    assert [table.ndim for table in tables] == [1]


def test_one_table_for_a_device_is_one_launch():
    data = {"x": images(8, (3, 8, 8))}
    done = run_quantization(uneven_network(), data, config="pynq_ext", equalization=True)
    assert len(vtaops.compile_model(done.model, "pynq_ext").regions) == 1


@pytest.mark.parametrize("groups", [1, 3])
def test_learned_rounding_lowers_the_error_of_the_sums(groups):
    rng = np.random.default_rng(groups)
    common = rng.standard_normal((groups, 400, 1))
    inputs = common + 0.3 * rng.standard_normal((groups, 400, 9)) + 0.5
    weight = rng.standard_normal((groups, 8, 9))
    scale = np.abs(weight).max(axis=2, keepdims=True) / 127 * np.ones(9) * 4
    found = rounded(weight, scale, inputs.transpose(0, 2, 1) @ inputs / 400, 127)
    assert np.array_equal(found, np.rint(found))
    assert np.abs(found).max() <= 127

    def error(steps):
        sums = inputs @ (steps * scale - weight).transpose(0, 2, 1)
        return np.square(sums).mean()

    assert error(found) < 0.3 * error(np.rint(weight / scale))


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_learned_rounding_changes_no_scale_and_lowers_the_noise(scales):
    data, others = {"x": images(32)}, [{"x": image[None]} for image in images(16, seed=9)]
    plain, learned = (
        run_quantization(
            small_network(), data, scales=scales, learned_rounding=wanted, bias_correction=False
        )
        for wanted in (False, True)
    )
    before, after = (onnx_files.initializers(done.model) for done in (plain, learned))
    assert before.keys() == after.keys()
    stated = [name for name in before if name.endswith(":quantized::scale")]
    assert len(stated) > 10
    for name in stated:
        assert np.array_equal(before[name], after[name])
    noise = [
        compare(done.prepared, done.model, others).outputs[0].sqnr_db for done in (plain, learned)
    ]
    assert noise[1] > noise[0]


def test_the_quality_of_corrected_biases_is_that_against_the_float_model():
    model, data = small_network(3), {"x": images(16)}
    plain = run_quantization(model, data)
    corrected = run_quantization(model, data, bias_correction=True)
    biases = [
        [v for k, v in sorted(onnx_files.initializers(done.prepared).items()) if v.ndim == 1]
        for done in (plain, corrected)
    ]
    assert all(map(np.array_equal, *biases))


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({}, 8),
        ({"scales": "free"}, 8),
        ({"learned_rounding": True, "bias_correction": True}, 8),
        ({"equalization": True, "learned_rounding": True, "bias_correction": True}, 16),
        ({"config": "pynq"}, 18),  # two are held out; both networks are observed
    ],
)
def test_calibration_data_run_once(options, runs, monkeypatch):
    """For each float network, of which equalisation makes another, whatever is observed."""
    seen = []

    def noted(model, samples, observers, what):
        seen.append(len(samples) * bool([name for each in observers for name in each.names]))
        observe(model, samples, observers, what)

    monkeypatch.setattr(pipeline, "observe", noted)
    monkeypatch.setattr(equalize, "observe", noted)
    run_quantization(small_network(), {"x": images(8)}, **options)
    assert sum(seen) == runs


def worst_db(done):
    return min(output.sqnr_db for output in done.quality().outputs)


def test_weights_of_products_of_one_group_have_four_bits():
    given, data = small_network(), {"x": images(8)}
    done = run_quantization(given, data, weight_bits=4)
    found = {}
    for node in import_model(done.model).nodes:
        if (weight := getattr(node.op, "weight", None)) is not None:
            narrow = getattr(node.op, "groups", 1) == 1
            found.setdefault(narrow, []).append(int(np.abs(weight).max()))
    assert {*found[True]} == {7}
    assert {*found[False]} == {127}
    nearest = run_quantization(given, data, weight_bits=4, learned_rounding=False)
    assert worst_db(done) > worst_db(nearest) + 2
    for options in ({"weight_bits": 5}, {"weight_bits": 4, "scales": "pow2"}):
        with pytest.raises(ModelError, match=r"weights have 8 bits, or with free scales 4"):
            run_quantization(given, data, **options)


def test_rounding_is_learned_whichever_axis_has_the_outputs():
    builder = Builder(3)
    x = builder.input([1, 48])
    weight = builder.constant(builder.rng.normal(0, 1, (48, 12)).astype(np.float32))
    builder.output(builder.add("Gemm", x, weight))
    data = {"x": np.random.default_rng(0).normal(0, 1, (64, 48)).astype(np.float32)}
    data["x"][:, 1:] += data["x"][:, :-1]
    ways = [
        run_quantization(builder.model(), data, weight_bits=4, learned_rounding=learned)
        for learned in (True, False)
    ]
    assert worst_db(ways[0]) > worst_db(ways[1]) + 1
