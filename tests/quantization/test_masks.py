"""Masks of attention in the forms that exporters write: the softmax of all runs on VTA."""

import numpy as np
import onnx
import pytest

import vtaops
from trials.onnx_models import Builder
from vtaops.graph.probe import Probe
from vtaops.quantization import run_quantization

TOKENS, WIDTH = 12, 32
LEAST = float(np.finfo(np.float32).min)


def number(b, value):
    return b.constant(np.float32(value))


def linear(b, x):
    weight = b.rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
    return b.add("MatMul", x, b.constant(weight.astype(np.float32)))


def below_diagonal(b, logits):
    later = b.constant(~np.tri(TOKENS, dtype=bool)[None])
    return b.add("Where", later, number(b, -np.inf), logits)


def far_below(b, logits):
    mask = np.where(np.tri(TOKENS, dtype=bool), 0, -10000)[None].astype(np.float32)
    return b.add("Add", logits, b.constant(mask))


CONSTANT = (below_diagonal, far_below)
"""Masks without an input."""


def chosen(b, logits):
    kept = b.add("Cast", b.input([1, 1, TOKENS], "mask", onnx.TensorProto.INT64), to=9)
    return b.add("Where", kept, logits, number(b, -1e9))


def added_choice(b, logits):
    kept = b.add("Cast", b.input([1, 1, TOKENS], "mask", onnx.TensorProto.INT64), to=9)
    return b.add("Add", logits, b.add("Where", kept, number(b, 0), number(b, LEAST)))


def multiplied(b, logits, factor=-10000.0):
    kept = b.add("Cast", b.input([1, 1, TOKENS], "mask", onnx.TensorProto.INT64), to=1)
    return b.add("Add", b.add("Mul", b.add("Sub", number(b, 1), kept), number(b, factor)), logits)


def as_it_is(b, logits):
    return b.add("Add", logits, b.input([1, TOKENS, TOKENS], "mask"))


def attention(masked):
    """Return two layers with residuals, and their inputs."""
    b = Builder(7)
    x = b.input([1, TOKENS, WIDTH])
    for number_of_layer in range(2):
        keys = b.add("Transpose", linear(b, x), perm=[0, 2, 1])
        logits = b.add("Mul", b.add("MatMul", linear(b, x), keys), number(b, WIDTH**-0.5))
        if number_of_layer and masked not in CONSTANT:
            (mask,) = (value for value in b.inputs if value.name == "mask")
            b.inputs.remove(mask)  # which the second layer declares again
        shares = b.add("Softmax", masked(b, logits), axis=-1)
        x = b.add("Add", x, linear(b, b.add("MatMul", shares, linear(b, x))))
    b.output(x)
    data = {"x": b.rng.standard_normal((8, TOKENS, WIDTH)).astype(np.float32)}
    kept = np.arange(TOKENS) < b.rng.integers(4, TOKENS + 1, (8, 1, 1))
    if masked is as_it_is:
        kept = kept & np.tri(TOKENS, dtype=bool)
        data["mask"] = np.where(kept, 0, LEAST).astype(np.float32)
    elif masked not in CONSTANT:
        data["mask"] = kept.astype(np.int64)
    return b.model(), data


@pytest.mark.parametrize("form", [*CONSTANT, chosen, added_choice, multiplied, as_it_is])
def test_a_mask_ends_no_launch(form):
    """Each form took a launch more for each layer, because its softmax was the host's."""
    model, data = attention(form)
    done = run_quantization(model, data)
    assert done.quality().outputs[0].sqnr_db > 28
    compiled = vtaops.compile_model(done.model)
    assert len(compiled.regions) == 1
    assert compiled.prove().complete
    sample = {name: values[:1] for name, values in data.items()}
    found = compiled.run(*(sample[tensor.name] for tensor in compiled.graph.inputs))
    (stated,) = Probe(done.model).run(sample).values()
    step = compiled.graph.outputs[0]
    step = next(n.inputs[0].scale for n in compiled.graph.nodes if n.outputs[0] is step)
    assert np.abs(found - stated).max() <= 3 * step


def test_a_sum_that_leaves_nothing_out_is_no_mask():
    """Its terms are numbers of their own, which the file keeps."""
    model, data = attention(lambda b, logits: multiplied(b, logits, -3.0))
    done = run_quantization(model, data)
    assert "Less" not in {node.op_type for node in done.model.graph.node}


def test_rows_of_which_a_mask_leaves_nothing():
    """Float32 forgets the logits beside the least float: all places of such a row are equal."""
    model, data = attention(added_choice)
    compiled = vtaops.compile_model(run_quantization(model, data).model)
    data = {"x": data["x"][:1], "mask": np.zeros_like(data["mask"][:1])}
    arrays = [data[tensor.name] for tensor in compiled.graph.inputs]
    assert np.array_equal(compiled.run(*arrays), compiled.reference(*arrays))
    (exact,) = Probe(model).run(data).values()
    error = compiled.run(*arrays) - exact
    assert 10 * np.log10((exact**2).mean() / (error**2).mean()) > 28
