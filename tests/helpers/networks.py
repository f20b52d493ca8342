"""Networks built by hand: compiled, proven, and equal to the executor in Python and in C."""

import numpy as np

import vtaops
from trials import c_bundles
from vtaops.graph import Requantization, evaluate

RNG = np.random.default_rng(11)


def drawn(dtype, *shape):
    """Return random values of a type, over its whole range."""
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def int8(*shape):
    return drawn(np.int8, *shape)


def scaling(config, channels=1, zero_point=3):
    """Return far scales where the hardware has them."""
    if "pynq_e" not in config:
        return Requantization(1, 9, zero_point)
    size = channels if channels > 1 else ()
    return Requantization(RNG.integers(1 << 15, 1 << 16, size), 25, zero_point)


def compiled(graph, config="pynq", launches=1, *, near=False):
    """Compile; compare model, C and executor; return the model.

    A model that is near the graph, but for steps that its plan tells, has a graph of its own.
    """
    model = vtaops.compile_model(graph, config)
    assert len(model.programs) == launches, [row for row in model.plan if row.where == "host"]
    assert model.report().proven == launches
    arrays = [drawn(tensor.dtype, *tensor.shape) for tensor in graph.inputs]
    found, expected = model.run(*arrays), evaluate(model.graph if near else graph, *arrays)
    found = found if isinstance(found, tuple) else (found,)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    if c_bundles.compilers():
        status, found = c_bundles.load(model).run(*arrays)
        assert status == c_bundles.OK
        assert c_bundles.same(found, expected)
    return model


def on_host(model):
    """Return the operators that run on the host."""
    return [row.operator for row in model.plan if row.where == "host"]
