"""Leaky ReLUs of files: exact where hardware has tables, elsewhere within a step on all codes."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vtaops
from vtaops.graph import LookupTable
from vtaops.graph.probe import Probe
from vtaops.machine.config import Extension
from vtaops.network.slopes import nearest_factors

SHAPE = 2, 4, 16, 16
CODES = np.arange(-128, 128)


def leaky(slopes, scales, zeros):
    """A leaky ReLU between two grids, and each code of the first one as real numbers."""
    grids = [["s", "z"], ["t", "w"]]
    constants = dict(zip("st", np.float32(scales), strict=True))
    constants |= dict(zip("zw", np.int8(zeros), strict=True))
    each = np.float32(slopes).reshape(-1, 1, 1)
    act = helper.make_node("LeakyRelu", ["b"], ["c"], alpha=float(each.flat[0]))
    if len(each) > 1:
        act, constants["each"] = helper.make_node("PRelu", ["b", "each"], ["c"]), each
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *grids[0]], ["a"]),
        helper.make_node("DequantizeLinear", ["a", *grids[0]], ["b"]),
        act,
        helper.make_node("QuantizeLinear", ["c", *grids[1]], ["d"]),
        helper.make_node("DequantizeLinear", ["d", *grids[1]], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)] for name in "xy"]
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "leaky", *ends, tensors)
    opset = [helper.make_opsetid("", 17)]
    x = (CODES - zeros[0]) * np.float32(scales[0])
    x = np.broadcast_to(x.astype(np.float32).reshape(1, 1, 16, 16), SHAPE).copy()
    return helper.make_model(graph, opset_imports=opset, ir_version=8), x


@pytest.mark.parametrize("config", ["pynq", "pynq_ext", "pynq_exact"])
@pytest.mark.parametrize(
    ("slopes", "scales", "zeros", "factors"),
    [
        ([0.01], (0.125, 0.125), (0, 0), True),
        ([0.1], (0.05, 0.05), (0, 0), True),
        ([0.2], (0.05, 0.041), (-20, -30), True),
        ([-0.2], (0.3, 0.4), (0, 5), True),
        ([0.1], (0.05, 0.01), (-128, -128), False),  # too coarse: a table, or the host
        ([0.1, 0.25, -0.1, 1], (0.05, 0.05), (0, 0), True),
    ],
)
def test_all_codes_of_a_leaky_relu(slopes, scales, zeros, factors, config):
    source, x = leaky(slopes, scales, zeros)
    (theirs,) = Probe(source).run({"x": x}).values()
    model = vtaops.compile_model(source, config, host=True)
    found = model.run(x)
    assert np.array_equal(found, model.reference(x))
    apart = np.abs(np.rint((found - theirs) / np.float32(scales[1])))
    tables = model.config.has(Extension.TABLE) and len(slopes) == 1
    assert apart.max() <= (0 if tables or not factors else 1)
    places = {row.where for row in model.plan if "quantize" not in row.operator}
    assert places == {"vta"} if tables or factors else {"host"}


@pytest.mark.parametrize("shifts_only", [True, False])
def test_factors_are_within_a_step_of_their_table(shifts_only):
    rng = np.random.default_rng(0)
    off = []
    for _ in range(40):
        slope, ratio = rng.uniform(-0.3, 1.1), 2.0 ** rng.uniform(-3, 0.2)
        zero, own = int(rng.integers(-90, 90)), int(rng.integers(-128, 128))
        real = (CODES - zero) * ratio
        results = np.rint(np.where(zero <= CODES, real, slope * real)) + own
        table = LookupTable(np.clip(results, -128, 127).astype(np.int8), own)
        found = nearest_factors(table, zero, shifts_only=shifts_only)
        if found is not None:
            (above, below), scaling, count = found
            steps = CODES - zero
            made = scaling.apply(steps * np.where(steps >= 0, above, below))
            apart = np.abs(made.astype(int) - table.table)
            assert apart.max() <= 1
            assert np.count_nonzero(apart) == count
            off.append(count)
    assert len(off) > 35
    assert np.mean(off) < 40


def test_a_curve_has_no_factors():
    sigmoid = np.rint(127 / (1 + np.exp(-CODES / 20))).astype(np.int8)
    for table in (sigmoid, sigmoid[::-1].copy(), np.full(256, 3, np.int8)):
        assert nearest_factors(LookupTable(table, 0), 0, shifts_only=False) is None
