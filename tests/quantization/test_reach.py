"""Ranges without what functions do not tell apart."""

import numpy as np
import pytest

from trials.onnx_models import Builder
from vtaops.graph import probe
from vtaops.graph.onnx_files import Connections
from vtaops.quantization import run_quantization
from vtaops.quantization.prepare import prepare
from vtaops.quantization.reach import reached


def _leaky(b, x):
    leaky = b.add("LeakyRelu", x, alpha=0.2)
    return b.add("Max", leaky, b.constant(np.float32(-0.4)))


def _silu(b, x):
    return b.add("Mul", x, b.add("Sigmoid", x))


def _by_channel(b, x):
    below = np.linspace(-4, -1, 8, dtype=np.float32).reshape(8, 1, 1)
    return b.add("Relu", b.add("Sub", b.add("Add", x, x), b.constant(below)))


def _gates(b, x):
    left, right = b.add("Split", x, outputs=2, axis=1)
    return b.add("Mul", b.add("Sigmoid", left), b.add("Tanh", right))


def _pooled(b, x):
    return b.add("MaxPool", x, kernel_shape=[8, 8])


FUNCTIONS = {
    _leaky: (-2.1, -1.9),
    _silu: (-9, -5),
    lambda b, x: b.add("HardSwish", x): (-3.1, -2.9),
    lambda b, x: b.add("Relu", x): (-0.05, 0),
    _by_channel: (-2.1, -1.9),
    _gates: (-10, -5),
    _pooled: (-20, 0),
    lambda b, x: b.add("Mul", x, _silu(b, x)): (-20, -2),
}


def _network(function):
    b = Builder(3)
    x = b.input([1, 3, 8, 8])
    y = b.conv(x, 3, 8)
    z = function(b, y)
    b.output(b.conv(z, 4 if function is _gates else 8, 4, pads=[0] * 4, kernel=1))
    return prepare(b.model()), y


def _wide(count):
    return np.random.default_rng(5).normal(0, 5, (count, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_ranges_end_where_functions_are_flat(function):
    model, argument = _network(function)
    names = [*Connections(model).writers]
    ran = probe.Probe(model, names)
    values = [ran.run({"x": image[None]}) for image in _wide(8)]
    ranges = {
        name: (
            min(0.0, *(float(each[name].min()) for each in values)),
            max(0.0, *(float(each[name].max()) for each in values)),
        )
        for name in names
    }
    low, high = reached(model, ranges)[argument]
    least, greatest = FUNCTIONS[function]
    assert max(least, ranges[argument][0]) <= low <= greatest
    assert 0 <= high <= ranges[argument][1]


def test_a_tensor_that_something_else_reads_keeps_its_range():
    b = Builder()
    y = b.conv(b.input([1, 3, 8, 8]), 3, 8)
    b.output(b.add("Add", b.add("HardSwish", y), y))
    model = prepare(b.model())
    ranges = dict.fromkeys(Connections(model).writers, (-20.0, 20.0))
    assert reached(model, ranges) == ranges


@pytest.mark.parametrize("scales", ["free", "pow2"])
def test_steps_are_for_values_that_matter(scales):
    model, _ = _network(_leaky)
    images = _wide(20)
    done = run_quantization(model, images, scales=scales)
    assert not done.departures
    (output,) = done.quality().outputs
    assert output.sqnr_db > (34.9 if scales == "free" else 31)  # free: 34.5 with the whole range
    assert min(layer.sqnr_db for layer in done.quality().layers) > 25
