"""The quantised file is held against float: faults stand out, rounding does not."""

import numpy as np
import pytest

from trials.onnx_models import Builder, images, small_network
from vtaops.errors import AccuracyWarning
from vtaops.graph import onnx_files
from vtaops.quantization import insert, pairs, pipeline, prepare, run_quantization
from vtaops.quantization.departures import departures

SCHEMES = [
    {"scales": scales, "zero_points": zero_points}
    for scales in ("pow2", "free")
    for zero_points in (False, True)
]


def activated_residual(bounds):
    """Return ``activation(conv(x)) + x``."""
    b = Builder(5)
    x = b.input([1, 3, 12, 12])
    y = b.conv(x, 3, 3)
    clip = [b.constant(np.float32(v)) for v in bounds]
    b.output(b.add("Add", b.add("Clip", y, *clip) if clip else b.add("Relu", y), x))
    return b.model()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("bounds", [(), (0, 0.75)], ids=["Relu", "Clip"])
def test_an_activation_before_a_residual_stays(bounds, scheme):
    done = run_quantization(activated_residual(bounds), images(8), **scheme)
    assert done.departures == ()
    assert done.quality().outputs[0].sqnr_db > 30


def test_a_lost_activation_is_told(monkeypatch):
    """Without its activation, a convolution is joined to the residual; its pair had saturated."""

    def without_activation(model):
        (relu,) = (node for node in model.graph.node if node.op_type == "Relu")
        onnx_files.producers(model)[relu.input[0]].output[:] = relu.output
        model.graph.node.remove(relu)
        pairs.join_residuals(model)

    monkeypatch.setattr(insert, "join_residuals", without_activation)
    with pytest.warns(AccuracyWarning, match=r"'add2_0' \(Add\) is off by .* where rounding"):
        done = run_quantization(activated_residual(()), images(8), scales="free")
    (found,) = done.departures
    assert found.difference > 10 * found.allowed


@pytest.fixture(scope="module")
def done():
    return run_quantization(small_network(), images(), scales="free", bias_correction=False)


def faulty(done, change):
    """Return what is found in a copy of a quantised file with one fault."""
    model = onnx_files.checked(onnx_files.opened(done.model))
    change(model, onnx_files.initializers(model))
    return [d.tensor for d in departures(done.prepared, model, done.samples[0])]


def test_rounding_alone_is_no_departure(done):
    assert faulty(done, lambda model, constants: None) == []


def test_a_wrong_weight_is_found(done):
    def change(model, constants):
        name = next(n for n in constants if n.endswith(":quantized") and constants[n].ndim == 4)
        value = constants[name].copy()
        value[3, 1, 2, 0] += 2
        onnx_files.replace_initializer(model, name, value)

    assert len(faulty(done, change)) == 1


def test_a_missing_residual_is_found(done):
    add = next(n for n in done.prepared.graph.node if n.op_type == "Add")

    def change(model, constants):
        node = next(n for n in model.graph.node if n.op_type == "Add")
        onnx_files.replace_initializer(model, "nothing", np.zeros((), np.float32))
        node.input[1 - [*node.input].index(add.input[0])] = "nothing"

    (found,) = faulty(done, change)
    assert found in {n.output[0] for n in done.prepared.graph.node if add.output[0] in n.input}


def test_another_window_is_found(done):
    pool = next(n for n in done.prepared.graph.node if n.op_type == "MaxPool")

    def change(model, constants):
        node = next(n for n in model.graph.node if n.op_type == "MaxPool")
        node.op_type = "AveragePool"

    assert faulty(done, change) == [pool.output[0]]


def normalized():
    """Return ``relu(conv(conv(batch_norm(x))))``."""
    b = Builder(6)
    constants = (b.constant(np.full(3, value, np.float32)) for value in (0.9, 0.1, 0.2, 1.7))
    y = b.conv(b.add("BatchNormalization", b.input([1, 3, 12, 12]), *constants), 3, 8)
    b.output(b.conv(y, 8, 4, relu=True))
    return b.model()


@pytest.mark.parametrize("step", ["_deviation", "equalize"])
def test_what_preparation_or_equalisation_loses_is_told(step, monkeypatch):
    """They come before the model that the file is held against."""
    if step == "_deviation":
        right = prepare._deviation
        monkeypatch.setattr(prepare, step, lambda *given: 1.01 * right(*given))
    else:

        def wrong(model, samples):
            weights = onnx_files.initializers(model)
            name, array = next((n, a) for n, a in weights.items() if a.ndim == 4)
            onnx_files.replace_initializer(model, name, 1.01 * array)
            return 1

        monkeypatch.setattr(pipeline, step, wrong)
    with pytest.warns(AccuracyWarning, match=r"\(Relu\) is off by 0\.\d+ where rounding explains"):
        done = run_quantization(normalized(), images(8), scales="free", equalization=True)
    assert [found.operator for found in done.departures] == ["Relu"]


def test_right_preparation_and_equalisation_are_not_told():
    done = run_quantization(normalized(), images(8), scales="free", equalization=True)
    assert done.departures == ()
