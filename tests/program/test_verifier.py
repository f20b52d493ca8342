"""The verifier: accepts what is safe; capacities of tokens; absurd programs end soon."""

import tracemalloc
from dataclasses import replace

import house
import numpy as np
import pytest
from helpers.checks import broken_rule
from helpers.program_builder import (
    PROGRAMS,
    PYNQ,
    TINY,
    ProgramBuilder,
    burst,
    double_buffered,
    edited,
    small_gemm,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from vtaops import HardwareConfig
from vtaops.errors import VerificationError
from vtaops.machine.capabilities import FULL
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Gemm,
    words_to_array,
)
from vtaops.program import MICRO_OPS, Program, Role
from vtaops.program.verifier import Rule, verify

CONFIGS = [HardwareConfig.load(name) for name in HardwareConfig.names()]


# -------------------------------------------------------------------------------- acceptance


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_hand_made_programs_verify(make, config):
    make(config).verify()


def test_the_golden_program_of_standalone_vta_verifies():
    """Reference 8.5 word by word; only the DRAM addresses are made relative to buffers."""
    words = [
        0x00000001000100010000004000000000, 0x000000000000080000200008002000A2,
        0x00000010001000010000000400000110, 0x000000010001000100000000800000C0,
        0x00000001000100010000004004000408, 0x00000002000008000020000800400142,
        0x00000010001000010000000C00000229, 0x00000000000000000000000000000140,
        0x00000000000000000000000000000018, 0x00000000000000000000000000000003,
    ]  # fmt: skip
    bases = {0: 4096, 2: 256, 3: 32, 4: 4096, 6: 768}
    words = [word - (bases.get(i, 0) << 26) for i, word in enumerate(words)]
    builder = ProgramBuilder(PYNQ)
    inp = builder.tiles("inp", Role.INPUT, 16, Memory.INP)
    wgt = builder.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    out = builder.tiles("out", Role.OUTPUT, 16)
    relocations = [MICRO_OPS, -1, inp, wgt, MICRO_OPS, -1, out, -1, -1, -1]
    program = Program(
        PYNQ,
        words_to_array(words),
        np.array(relocations, np.int32),
        np.zeros(2, np.uint32),
        tuple(builder.buffers),
    )
    program.verify()


def test_units_may_idle():
    builder = ProgramBuilder("tiny")
    builder.finish()
    builder.build().verify()


def test_loads_may_overtake_what_was_issued_before_them():
    """The loads of the second round stand behind the first STORE, and wait for nothing of it."""
    program = double_buffered(TINY, rounds=3)
    program.verify()
    events = program.timeline().events
    (first, *_) = [event for event in events if event.unit == "store"]
    overtaking = [e for e in events if e.unit == "load" and e.index > first.index]
    assert any(event.end <= first.start for event in overtaking)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(1, 8))
def test_double_buffering_of_any_length_verifies(config, rounds):
    double_buffered(config, rounds).verify()


# -------------------------------------------------------------------------- token capacity


def ping_pong(rounds):
    """Each token is answered before the next is sent."""
    builder = ProgramBuilder("tiny")
    for r in range(rounds):
        builder.nop(Memory.INP, push_next=1, pop_next=int(r > 0))
        builder.nop(Memory.UOP, pop_prev=1, push_prev=int(r < rounds - 1))
    builder.finish()
    return builder.build()


@pytest.mark.parametrize("capacity", [1, 2, 7, 255])
def test_capacity_is_exact(capacity):
    verify(burst(capacity), capabilities=replace(FULL, token_capacity=capacity))
    assert (
        broken_rule(burst(capacity + 1), capabilities=replace(FULL, token_capacity=capacity))
        is Rule.TOKEN_CAPACITY
    )


def test_the_default_capacity_is_255():
    burst(255).verify()
    with pytest.raises(VerificationError, match=r"can hold 256 tokens after it; its capacity is"):
        burst(256).verify()


def test_capacity_counts_what_can_be_outstanding_not_what_is_sent():
    verify(ping_pong(300), capabilities=replace(FULL, token_capacity=1))


# ------------------------------------------------------------------------------ absurd programs


def absurd(dst_factor=0, **fields):
    b = ProgramBuilder(PYNQ)
    count = PYNQ.uop.depth
    b.load_micro_ops(b.micro_ops(*[(0, 0, 0)] * count), count)
    b.add(
        Gemm(reset=1, uop_end=count, iter_out=16383, iter_in=16383, dst_factor_out=dst_factor,
             dst_factor_in=dst_factor)
    )  # fmt: skip
    b.finish()
    return b.build()


def test_the_longest_loops_cost_neither_time_nor_memory():
    """2.2e12 iterations: the index set is built by doubling, never by enumeration."""
    program = absurd()
    tracemalloc.start()
    try:
        verify(program)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert broken_rule(absurd(dst_factor=1)) is Rule.SRAM_BOUNDS


def test_the_largest_transfers_are_refused_before_any_set_is_built():
    size = 65535
    pads = dict.fromkeys(("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right"), 15)
    program = edited(small_gemm(), 2, y_size=size, x_size=size, x_stride=size, **pads)
    assert broken_rule(program) is Rule.SRAM_BOUNDS


# --------------------------------------------------------------------------------- the file


def test_the_verifier_shares_no_code_with_the_compiler():
    """It may import the ISA, the configuration and the program; nothing that emits."""
    own = "vtaops.program.verifier"
    imports = [found for found in house.inner_imports() if found.file.startswith(own)]
    ours = {found.module for found in imports if not found.module.startswith(own)}
    assert ours == {
        "vtaops.machine.capabilities",
        "vtaops.machine.config",
        "vtaops.base.errors",
        "vtaops.base.shapes",
        "vtaops.machine.isa",
        "vtaops.machine.text",
        "vtaops.program.features",
        "vtaops.program.program",
    }
