"""The text detector of the examples, small: on integers the boxes of the float network."""

import sys
from pathlib import Path

import numpy as np
import pytest

from vtaops.frontends import import_model
from vtaops.graph import evaluate
from vtaops.network import plan_model

SIZE = 480


@pytest.fixture
def detector(monkeypatch):
    pytest.importorskip("rapidocr_onnxruntime", reason="rapidocr-onnxruntime is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import text_detector

    yield text_detector
    sys.modules.pop("text_detector")


@pytest.mark.filterwarnings("ignore")  # of the package and what it imports
def test_text_is_found_where_the_float_network_finds_it(detector):
    network = import_model(detector.quantized(SIZE, pages=3))
    convolutions = [r for r in plan_model(network).rows if "convolution" in r.operator]
    assert sum(row.where == "vta" for row in convolutions) >= 63
    exact = detector.float_detector(SIZE)
    x = detector.tensor(detector.page(0, SIZE))
    expected, (found,) = exact(x), evaluate(network, x)
    boxes, ours = detector.find_boxes(expected), detector.find_boxes(found)
    assert len(boxes) == len(ours) == 5
    assert np.mean(detector.overlaps(boxes, ours)) >= 0.9
    assert detector.mask_overlap(expected, found) >= 0.92
