"""The list of operators: a part of it is measured again, and what it says of itself."""

import json
import logging

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vtaops
from docs.supported import NONE, PAGE, FormOutcome, cases, page, read_rows, rows, supported, trial
from trials import foreign_networks
from trials.forms import BY_NAME
from trials.marks import Mark
from trials.styles import quantised
from vtaops.errors import UnsupportedError
from vtaops.frontends import import_model
from vtaops.frontends.litert import has_litert
from vtaops.graph import evaluate
from vtaops.graph.probe import runtime_session

ALL = cases()
SAMPLE = [case for case in ALL[7::83] if has_litert() or case.split("|")[0] in BY_NAME]


def known(case):
    """Return the mark of the list; None if it has none."""
    name, style, config = case.split("|")
    for row in supported():
        if f"{row.operator} {row.form}".strip() == name and f"{style}/{config}" in row.outcomes:
            found = row.outcomes[f"{style}/{config}"]
            return Mark(found.place, found.steps, found.apart, found.launches)
    return None


@pytest.mark.parametrize("case", SAMPLE)
def test_no_mark_is_worse_than_in_the_list(case):
    logging.disable(logging.WARNING)
    found, before = trial(case), known(case)
    if found["place"] == NONE:
        assert before is None
    else:
        assert before is not None, "python -m docs supported --write measures what is new"
        assert not Mark(**found).is_worse(before), (found, before)


@pytest.mark.parametrize("seed", range(300, 306))
def test_random_networks_of_foreign_quantisers_are_right(seed):
    logging.disable(logging.WARNING)
    found = foreign_networks.judged(seed)
    assert found is None or found[1].place in ("host", "part", "moves", "vta"), found


def test_a_worse_mark_is_one():
    vta = Mark("vta", steps=1, apart=0.01, launches=1)
    assert not vta.is_worse(vta)
    assert Mark("part").is_worse(vta)
    assert Mark("wrong").is_worse(Mark("refused"))
    assert Mark("vta", steps=4, launches=1).is_worse(vta)
    assert Mark("vta", apart=0.02, launches=1).is_worse(vta)
    assert Mark("vta", launches=2).is_worse(vta)
    assert not Mark("vta", launches=3).is_worse(Mark("part", launches=2))


def test_the_list_has_every_form():
    names = {f"{row.operator} {row.form}".strip() for row in supported()}
    assert {*BY_NAME} <= names


def test_the_page_is_of_the_list():
    assert PAGE.read_text() == page(supported())


def test_rows_have_reasons_of_the_most_able_hardware_last():
    results = {
        "Conv 1x1|pow2|pynq": {"place": "part", "reason": "no 'x' here; no y"},
        "Conv 1x1|free|pynq_ext": {"place": "part", "reason": "VTA has none", "launches": 2},
        "Conv 1x1|ort|pynq_ext": {"place": "vta", "apart": 0.004, "launches": 1},
        "Conv 1x1|qcdq|pynq_ext": {"place": NONE},
    }
    (row,) = read_rows(json.dumps({"rows": [*rows(results)]}))
    assert (row.group, row.operator, row.form) == ("Convolutions", "Conv", "1x1")
    assert row.reasons == {"no here": ["pow2/pynq"], "VTA has none": ["free/pynq_ext"]}
    assert row.reason == "VTA has none"
    assert row.outcomes["ort/pynq_ext"] == FormOutcome("vta", 0, 0.004, 1)


# ----------------------------------------------------------------- what the list has found wrong


def small(opset=21, batch=2):
    model, data = BY_NAME["Conv Relu behind"].network(opset, batch)
    return model, data, data[:batch]


@pytest.mark.parametrize("opset", [13, 21])
def test_brevitas_clips_are_on_vta(opset):
    """A Clip of integers between QuantizeLinear and DequantizeLinear."""
    model, data, sample = small(opset)
    file = quantised(model, 9 * data, "qcdq")
    assert sum(node.op_type == "Clip" for node in file.graph.node) > 3
    compiled = vtaops.compile_model(file, "pynq_ext")
    kinds = {row.operator for row in compiled.plan if row.where == "host"}
    assert kinds == {"quantize", "dequantize"}
    assert compiled.agreement.halves == 0
    # -128 is clipped to -127, at the input as well
    loud = -100 * np.abs(sample)
    (expected,) = runtime_session(file, "ORT_DISABLE_ALL").run(None, {"x": loud})
    found = compiled.run(loud)
    assert np.abs(expected - found).max() <= 1.01 * np.abs(np.diff(np.unique(expected))).min()


@pytest.mark.parametrize(("low", "high"), [(-8, 7), (None, 3), (0, None)])
def test_integers_are_clipped_as_in_the_file(low, high):
    names = ["low" if low is not None else "", "high" if high is not None else ""]
    ends = {"low": low, "high": high}
    given = {"s": np.float32(0.3), "z": np.int8(5)}
    given |= {name: np.int8(ends[name]) for name in names if name}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Clip", ["q", *names], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "clips",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 200])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 200])],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in given.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    x = np.linspace(-60, 60, 200, dtype=np.float32).reshape(1, 1, 1, -1)
    (expected,) = runtime_session(model, "ORT_DISABLE_ALL").run(None, {"x": x})
    assert np.array_equal(evaluate(import_model(model), x)[0], expected)


def test_an_integer_average_that_counts_what_it_rounds_up_is_refused():
    """ONNX Runtime's QLinearAveragePool divides by its whole kernel there."""
    model, data = BY_NAME["AveragePool count_include_pad, ceil_mode"].network(21, 2)
    file = quantised(model, data, "qoperator")
    with pytest.raises(UnsupportedError, match="has ceil_mode and count_include_pad"):
        import_model(file)


@pytest.mark.parametrize("form", ["Pad axes", "Pad constant 1.5", "Resize nearest x1.5"])
def test_what_moves_integers_of_a_file_equals_onnxruntime(form):
    """What VTA cannot do of it, such as a pad by no zero, is the host's, on integers."""
    model, data = BY_NAME[form].network(21, 2)
    file = quantised(model, data, "qoperator")
    assert any(node.op_type in ("Pad", "Resize") for node in file.graph.node)
    compiled = vtaops.compile_model(file, "pynq_ext")
    (expected,) = runtime_session(file, "ORT_DISABLE_ALL").run(None, {"x": data[:2]})
    step = np.abs(np.diff(np.unique(expected))).min()
    assert np.abs(compiled.run(data[:2]) - expected).max() <= 1.01 * step


@pytest.mark.parametrize("zero", [-128, -3, 0, 7])
@pytest.mark.parametrize("value", ["zero point", "none", 5])
def test_integers_are_padded_by_the_integer_of_the_file(zero, value):
    """Without a constant, that is 0 and not the zero point."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-9, 9, (16, 16, 3, 3)).astype(np.int8)
    given = {"s": np.float32(0.1), "z": np.int8(zero), "w": weight, "o": np.int8(0)}
    given |= {"widths": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "t": np.float32(2.0)}
    given |= {"value": np.int8(zero if value == "zero point" else 5)}
    read = ["q", "widths"] + ([] if value == "none" else ["value"])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Pad", read, ["p"]),
        helper.make_node("QLinearConv", ["p", "s", "z", "w", "s", "o", "t", "o"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "t", "o"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 16, 6, 6)) for name in "xy"]
    values = [numpy_helper.from_array(np.asarray(v), name) for name, v in given.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = rng.uniform(-12, 12, (2, 16, 6, 6)).astype(np.float32)
    (expected,) = runtime_session(model, "ORT_DISABLE_ALL").run(None, {"x": x})
    found = vtaops.compile_model(model, "pynq_ext").run(x)
    assert np.abs(found - expected).max() <= given["t"]  # one step: halves are rounded up
