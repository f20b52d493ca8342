"""What `compile` and `compile_schedule` return is proven where that costs less than compiling."""

import random
from dataclasses import replace

import pytest

import vtaops
from trials.free_schedules import KINDS, of_operator, tried
from trials.free_schedules import random_schedule as free_schedule
from trials.random_cases import FAMILIES
from vtaops import Conv2d, Gemm, HardwareConfig
from vtaops.compiler import driver
from vtaops.errors import NotEquivalent
from vtaops.machine.capabilities import find
from vtaops.machine.isa import Alu, Encoding, words_to_array
from vtaops.program import verifier
from vtaops.proof import rechecked

SMALL = Gemm(m=4, n=16, k=16, shift=5)


@pytest.fixture(autouse=True)
def proofs(monkeypatch):
    """The default of users; `conftest.py` has taken it from the other tests."""
    monkeypatch.setattr(driver, "PROVEN", 1 << 17)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_operator_is_returned_with_its_certificate(family):
    op = FAMILIES[family](random.Random(f"proven {family}"))
    program = vtaops.compile(op, "pynq", capabilities="fsim")
    assert rechecked(program).complete


def test_large_programs_say_that_they_are_not_proven():
    op = Conv2d(in_channels=64, out_channels=64, height=48, width=48, kernel=3, padding=1)
    program = vtaops.compile(op)
    assert "proof" not in program.metadata
    assert "not tried: it executes" in program.metadata["unproven"]
    assert vtaops.compile(SMALL, prove=False).metadata.keys().isdisjoint({"proof", "unproven"})


def test_a_compiler_that_errs_returns_nothing(monkeypatch):
    def wrong(fragment, able):
        program = linked(fragment, able)
        code = [replace(i, imm=6) if isinstance(i, Alu) and i.imm == 5 else i for i in program]
        words = words_to_array([*map(Encoding.of(program.config).encode, code)])
        return replace(program, instructions=words)

    linked = driver.linked
    monkeypatch.setattr(driver, "linked", wrong)
    with pytest.raises(NotEquivalent):
        vtaops.compile(SMALL)
    assert isinstance(vtaops.compile(SMALL, prove=False), vtaops.Program)


def test_a_schedule_of_ones_own_is_held_against_its_operator():
    config = replace(HardwareConfig.load("pynq"), target="sim")
    rng = random.Random("against")
    s = free_schedule(rng, of_operator(SMALL, config, 0))
    buffers = SMALL.buffers(config)
    plain = vtaops.compile_schedule(s, config, buffers=buffers)
    assert plain.metadata.keys().isdisjoint({"proven", "unproven"})
    assert "proven" in vtaops.compile_schedule(s, config, buffers=buffers, against=SMALL).metadata
    with pytest.raises(NotEquivalent):
        vtaops.compile_schedule(s, config, buffers=buffers, against=replace(SMALL, shift=6))


@pytest.mark.parametrize("kind", KINDS)
def test_schedules_with_every_freedom_are_right_or_refused(kind):
    """`python -m trials free_schedules` tries hundreds."""
    found = [tried(f"sample {seed}", kind) for seed in range(4)]
    assert not [outcome.fault for outcome in found if outcome.fault]
    assert any(outcome.program for outcome in found)


def test_what_is_proven_is_verified_once_for_its_device(monkeypatch):
    seen = []
    monkeypatch.setattr(verifier, "verify", lambda program, capabilities: seen.append(capabilities))
    able = find("hls-2020")
    for about in ({}, {"prove": True}, {"prove": False}, {"verify": False, "prove": True}):
        vtaops.compile(SMALL, "pynq", capabilities="hls-2020", **about)
        assert seen == [able], about
        seen.clear()
    vtaops.compile(SMALL, "pynq", verify=False)
    assert not seen
