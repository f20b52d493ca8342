"""Records: what a run reads of a file is what is proven, or it is refused."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

import vtaops
from trials.record_mutants import CRASHED, MISSED, mutants
from vtaops.base.errors import NotEquivalent, ProgramError, ShapeError
from vtaops.graph import (
    AveragePool,
    Convolution,
    Graph,
    Multiply,
    Quotient,
    Requantization,
    TfliteRequantization,
)
from vtaops.machine.layout import Layout
from vtaops.machine.views import Plus
from vtaops.model import Model, Region
from vtaops.model.artefact import dumps, loads
from vtaops.ops.reference import evaluate
from vtaops.proof.records import Unknown, operator_of
from vtaops.proof.terms import Terms

GEMM = vtaops.Gemm(m=4, n=16, k=16)


def int8(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


# ------------------------------------------------------------------------------ records


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"leaky_slope": 3}, "cannot have leaky_slope = 3"),
        ({"activation": "gelu"}, "cannot have activation = 'gelu'"),
        ({"k": 17}, r"data is int8\[4, 16\]; data of Gemm is int8\[4, 17\]"),
        ({"k": 16.0}, "cannot have k = 16.0"),
        ({"bias": 0}, "cannot have bias = 0"),
        ({"rounding": "up"}, "cannot have rounding = 'up'"),
        ({"shift": -1}, "shift is -1"),
        ({"clip": (5, 4)}, r"clip is \(5, 4\)"),
        ({"clip": None}, "not compute what it declares"),
        ({"fine": 1}, "fine, without scales, is 1"),
    ],
)
def test_unknown_names_and_other_values_are_not_proven(changed, message):
    program = vtaops.compile(GEMM, "tiny")
    (record,) = program.operators
    changed = replace(record, parameters={**record.parameters, **changed})
    other = replace(program, operators=(changed,))
    with pytest.raises((NotEquivalent, ProgramError), match=message):
        other.prove().require()


def test_missing_names_are_not_proven():
    program = vtaops.compile(GEMM, "tiny")
    (record,) = program.operators
    for name in record.parameters:
        others = {key: value for key, value in record.parameters.items() if key != name}
        proof = replace(program, operators=(replace(record, parameters=others),)).prove()
        assert not proof.complete
        assert f"lacks {name}" in proof.unproven[0]


def test_numbers_that_no_operator_has_are_refused():
    with pytest.raises(Unknown, match="k is 2147483648"):
        operator_of("Gemm", {**asdict(GEMM), "k": 1 << 31})
    with pytest.raises(Unknown, match="no meaning of Novel"):
        operator_of("Novel", {})
    for kind in ("Operator", "", "asdict"):
        with pytest.raises(Unknown, match="no meaning of"):
            operator_of(kind, {})


# -------------------------------------------------------------------- buffers, views, types


def sum_of_two() -> vtaops.Program:
    return vtaops.compile(vtaops.Elementwise(function="add", shape=(64,), clip=(5, 5)), "tiny")


def test_a_result_has_no_view_of_arguments():
    result = sum_of_two().buffers[-1]
    with pytest.raises(ProgramError, match=r"res .*is a result; the view Plus"):
        replace(result, layout=Layout("L8l", view=Plus(1)))


def test_a_fill_is_an_int8():
    graph = Graph("fill")
    x = graph.input("x", (1, 16, 4, 4))
    first = Convolution(int8(1, 16, 16, 1, 1), None, Requantization(1, 9, 7))
    second = Convolution(int8(2, 16, 16, 3, 3), None, Requantization(1, 12), padding=(1,) * 4)
    graph.output(graph.add(second, graph.add(first, x)))
    (region,) = vtaops.compile_model(graph, "pynq").regions
    (filled,) = (b for b in region.program.buffers if b.fill is not None)
    with pytest.raises(ProgramError, match="a fill is an int8"):
        replace(filled, dtype="int32")


def test_a_result_that_is_read_as_another_type_is_not_proven():
    program = sum_of_two()
    buffers = (*program.buffers[:-1], replace(program.buffers[-1], dtype="uint8"))
    proof = replace(program, buffers=buffers).prove()
    assert "res is uint8[64]; res of Elementwise is int8[64]" in proof.unproven[0]


def test_sums_that_may_reach_two_to_the_31_may_wrap():
    for k, wraps in ((131071, False), (131072, True)):
        sums = Terms(np.zeros((2, 1)), np.float64(0), np.float64(k * 2.0**14))
        assert bool(sums.fits) != wraps
        program = vtaops.compile(vtaops.Gemm(m=1, n=8, k=k), "tiny")
        assert program.prove().complete


# ----------------------------------------------------------------------------- networks


def with_graph(model: Model, graph: Graph) -> Model:
    return loads(dumps(Model(graph, model.config, model.capabilities, model.plan, model.stages)))


def test_a_rounding_that_only_the_host_has_is_not_proven():
    weight, bias = int8(1, 16, 16, 1, 1), np.full(16, 25_000_000, np.int32)

    def network(make):
        graph = Graph("rounding")
        scaling = make(40000, 33, 0, (-128, 127))
        x = graph.input("x", (2, 16, 3, 3))
        graph.output(graph.add(Convolution(weight, bias, scaling), x, name="y"))
        return graph

    model = vtaops.compile_model(network(Requantization), "pynq_ext")
    proof = with_graph(model, network(TfliteRequantization)).prove()
    assert not proof.complete
    assert "rounds twice has no meaning" in proof.unproven[0]


def test_a_quotient_has_as_many_pixels_as_a_scale_divides_by():
    graph = Graph("large")
    x = graph.input("x", (1, 1, 728, 720))
    with pytest.raises(ShapeError, match=r"524160 pixels has a quotient; .* at most 65535"):
        graph.add(AveragePool(requantization=Quotient()), x)


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (AveragePool(factor=3, requantization=Quotient()), 1, "factor"),
        (
            AveragePool((2, 2), padding=(1, 0, 0, 0), requantization=Quotient()),
            1,
            "excludes its padding",
        ),
        (Multiply(requantization=Requantization([1, 2])), 2, "has one scale for all"),
    ],
)
def test_what_no_device_rounds_is_refused_when_it_is_made(op, shapes, message):
    graph = Graph("refused")
    inputs = [graph.input(f"x{number}", (1, 2, 3, 3)) for number in range(shapes)]
    with pytest.raises(ShapeError, match=message):
        graph.add(op, *inputs)


def region_model() -> tuple[Model, Region]:
    graph = Graph("region")
    x = graph.input("x", (2, 8, 3, 3))
    y = graph.add(Convolution(int8(1, 8, 8, 1, 1), None, Requantization(1, 9)), x, name="y")
    graph.output(graph.add(Convolution(int8(2, 8, 8, 1, 1), None, Requantization(1, 9)), y))
    model = vtaops.compile_model(graph, "pynq")
    return model, model.regions[0]


def test_a_region_without_one_of_its_nodes_is_not_proven():
    model, region = region_model()
    for nodes, message in ((region.nodes[1:], "give y"), (region.nodes[:1], "none of its nodes")):
        stages = [replace(region, nodes=nodes)]
        other = Model(model.graph, model.config, model.capabilities, model.plan, stages)
        assert message in other.prove().unproven[0]


@pytest.mark.parametrize(
    "changed", [{"lanes": (0,)}, {"zero_point": 3}, {"image": (8, 2, 3, 3)}, {"axes": (0, 1)}]
)
def test_an_argument_with_fields_that_no_run_reads_is_refused(changed):
    model, region = region_model()
    stages = [replace(region, inputs=(replace(region.inputs[0], **changed),))]
    other = Model(model.graph, model.config, model.capabilities, model.plan, stages)
    with pytest.raises(ProgramError, match="does not fit the buffer"):
        loads(dumps(other))


# ------------------------------------------------------------------------ counterexamples


def test_counterexamples_of_one_value_a_channel_and_of_biases_that_round():
    op = vtaops.Elementwise(function="maximum", shape=(2, 8, 2, 2), by_channel=True)
    convolution = vtaops.Conv2d(
        in_channels=8, out_channels=8, height=2, width=2, kernel=1, bias=True, rounding="half_up"
    )
    for made, asked in (
        (op, replace(op, clip=(-3, 3))),
        (convolution, replace(convolution, clip=(-3, 3))),
    ):
        program = vtaops.compile(made, "tiny")
        with pytest.raises(NotEquivalent) as caught:
            program.prove(against=asked)
        arrays = [*caught.value.counterexample.values()]
        assert not np.array_equal(program.run("fsim", *arrays), evaluate(asked, arrays))


def test_arguments_of_other_shapes_are_proven_as_images_alone():
    tiled = vtaops.compile(vtaops.Elementwise(function="identity", shape=(64,)), "tiny")
    images = tuple(
        replace(b, shape=(8, 8), layout=Layout("AB")) if b.name in ("data", "res") else b
        for b in tiled.buffers
    )
    own = replace(tiled, buffers=images)
    wide = vtaops.Elementwise(function="identity", shape=(64,))
    (claim,) = own.prove(against=wide).claims
    assert claim.endswith("where data, res are images in the DRAM of Elementwise")
    blocked = vtaops.Elementwise(function="identity", shape=(1, 16, 2, 2))
    other = vtaops.compile(blocked, "tiny")
    assert "data is int8[1, 16, 2, 2]" in other.prove(against=wide).unproven[0]


# -------------------------------------------------------------------------------- mutants


@pytest.mark.parametrize("case", ["operator 3", "operator 8", "network 4", "network 6"])
def test_mutants_of_records_are_refused_or_what_is_proven(case):
    verdicts = [*mutants(case, 25)]
    assert not [found for found in verdicts if found[1] in (MISSED, CRASHED)]
    assert len({verdict for _, verdict, _ in verdicts}) >= 2
