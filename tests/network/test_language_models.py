"""Llama's family on VTA: whole decoders in one launch, on fsim, the RTL, and as C."""

import numpy as np
import pytest

import vtaops
from trials import c_bundles
from trials.language_models import Llama, Shape

SMALL = Shape(layers=1, tokens=8, width=16, heads=2, shared=1, hidden=24, vocabulary=5)


def compiled(shape, config, opset=17, *, pairs=False):
    """Return a decoder that is compiled in one launch and proven, and an input of it."""
    decoder = Llama(shape, opset=opset, pairs=pairs)
    model = vtaops.compile_model(vtaops.quantize(decoder.build(), decoder.data()), config)
    assert len(model.regions) == 1
    assert model.prove().complete
    return model, decoder.data(1)


@pytest.mark.parametrize(
    ("config", "shape", "opset"),
    [
        ("pynq_ext", Shape(layers=1, tokens=13, width=36, heads=6, shared=2, hidden=40), 17),
        ("pynq_512", Shape(layers=1), 18),
        ("pynq_ext", Shape(layers=1, heads=2, shared=2), 23),
    ],
)
def test_a_decoder_is_one_launch(config, shape, opset):
    model, x = compiled(shape, config, opset)
    assert np.array_equal(model.run(x), model.reference(x))


def test_a_decoder_on_the_rtl_and_in_c(tmp_path):
    model, x = compiled(SMALL, "pynq_ext", pairs=True)
    expected = model.reference(x)
    with vtaops.Session("tsim", config=model.config) as session:
        assert np.array_equal(model.run(x, session=session), expected)
    model.save(tmp_path / "decoder.vtam")
    status, (found,) = c_bundles.load(vtaops.load_model(tmp_path / "decoder.vtam")).run([x])
    assert status == c_bundles.OK
    assert np.array_equal(found, expected)
