"""A whole network through a session: ResNet-18 of the examples, small, equal to NumPy."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from vtaops import Session
from vtaops.runtime.fsim import Fsim

PATH = Path(__file__).parents[2] / "examples" / "resnet18.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("resnet18", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", [32, 41])
def test_resnet18_equals_numpy(example, size):
    image = np.random.default_rng(size).integers(-128, 128, (1, 3, size, size)).astype(np.int8)
    with Session(Fsim("pynq", capabilities="hls-2020"), fallback="cpu") as session:
        recorder = example.Recorder(session)
        scores = example.resnet18(recorder, image, seed=size, classes=10)
        table = example.report(recorder.layers, session.config)
    expected = example.resnet18(example.NumPy(), image, seed=size, classes=10)
    np.testing.assert_array_equal(scores, expected)
    assert len(np.unique(expected)) > 5  # the signal survives all layers
    assert table.row_count == 24
    # 20 convolutions, a maximum, a mean, and a dense layer, all on VTA
    assert [layer.placement.where for layer in recorder.layers] == ["vta"] * 23
    assert sum(layer.products for layer in recorder.layers) > 0
