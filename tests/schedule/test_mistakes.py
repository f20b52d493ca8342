"""Mistakes in the tutorials' schedules: a sample; ``trials/schedule_mistakes.py`` tries all."""

import random

import pytest
from tvm import te
from tvm_ffi import structural_equal

import vtaops
from trials.schedule_mistakes import TUTORIALS, mistakes, outcome, statements, told_well
from vtaops import schedule as vta
from vtaops.errors import ScheduleError


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_a_mistake_is_told_on_a_screen_or_harmless(tutorial):
    known = list(mistakes(tutorial))
    assert len(known) >= 45
    assert outcome(tutorial, statements(tutorial)[1]) == "right"
    for what, steps in random.Random(tutorial).sample(known, 8):
        assert outcome(tutorial, steps) in ("right", "refused"), what


PYNQ = vtaops.HardwareConfig.load("pynq")


def small():
    """A schedule of two blocks, one of them on chip."""
    a = te.placeholder((4, 1, 16), "int32", name="a")
    half = te.compute(a.shape, lambda *i: a(*i) >> 1, name="half")
    res = te.compute(a.shape, lambda *i: half(*i).astype("int8"), name="res")
    return vta.Schedule([a, res])


@pytest.mark.parametrize(
    ("step", "texts"),
    [
        (
            lambda s: s.get_sblock("hlaf"),
            ["get_sblock: ", "blocks are half, res (did you mean 'half'?)"],
        ),
        (
            lambda s: s.tensorize(s.get_loops(s.get_sblock("half"))[0], vta.alu(PYNQ, "shr", 1)),
            ["loop i0 of 4, around half", "replaces loops of [16]", "found [4, 1, 16]"],
        ),
        (
            lambda s: s.tensorize(s.get_loops(s.get_sblock("half"))[-1], vta.alu(PYNQ, "shr", 1)),
            ["a and half lie in DRAM", "s.set_scope"],
        ),
        (
            lambda s: s.compute_at(s.get_sblock("res"), s.get_loops(s.get_sblock("half"))[0]),
            ["compute_at: ", "block res, in the loops ", "loop i0 of 4, around half"],
        ),
    ],
)
def test_a_failing_step_names_blocks_and_loops(step, texts):
    with pytest.raises(ScheduleError) as caught:
        step(small())
    assert told_well(str(caught.value)) == "refused"
    assert all(text in str(caught.value) for text in texts), caught.value
    assert "docs/tutorials/matrix_multiply.md" in str(caught.value)


def test_what_is_no_schedule_is_not_printed():
    function = small().mod["main"]
    for other in (function, {"main": function}, 3):
        with pytest.raises(ScheduleError, match=r"give a Schedule, such as") as caught:
            vtaops.compile_schedule(other)
        assert len(str(caught.value)) < 200


def test_a_schedule_is_made_of_tensors_a_function_or_a_module():
    module = small().mod
    for given in (module, module["main"]):
        assert structural_equal(vta.Schedule(given).mod, module)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("con2d", "did you mean 'conv2d'"), ("get_env", "docs/migration.md"), ("Convd2d", "Conv2d")],
)
def test_names_that_are_not_there_lead_to_those_that_are(name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(vtaops, name)
