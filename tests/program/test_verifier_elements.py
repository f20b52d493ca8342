"""The verifier's index sets and bounds beside the triple loop of the ISA, run step by step."""

from dataclasses import replace
from itertools import product

import pytest
from helpers.checks import broken_rule
from helpers.program_builder import (
    TINY,
    ProgramBuilder,
    edited,
    small_gemm,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from vtaops.errors import VerificationError
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    AluOp,
    Gemm,
    Load,
)
from vtaops.program import Role
from vtaops.program.verifier import Rule, verify


@st.composite
def loops(draw):
    """A GEMM on the tiny configuration with micro-ops and loops that may leave its scratchpads."""
    factor = st.one_of(st.integers(0, 3), st.integers(0, 40))
    micro_ops = draw(
        st.lists(st.tuples(st.integers(0, 63), st.integers(0, 127), st.integers(0, 127)),
                 min_size=1, max_size=4)
    )  # fmt: skip
    gemm = Gemm(
        pop_prev=1, push_next=1, uop_end=len(micro_ops),
        iter_out=draw(st.integers(1, 5)), iter_in=draw(st.integers(1, 9)),
        dst_factor_out=draw(factor), dst_factor_in=draw(factor),
        src_factor_out=draw(factor), src_factor_in=draw(factor),
        wgt_factor_out=draw(factor), wgt_factor_in=draw(factor),
    )  # fmt: skip
    return micro_ops, gemm


def touched_by(micro_ops, gemm):
    """Return the elements of acc, inp and wgt that a GEMM touches, by its definition."""
    acc, inp, wgt = set(), set(), set()
    for o, i, (d, s, w) in product(range(gemm.iter_out), range(gemm.iter_in), micro_ops):
        acc.add(d + o * gemm.dst_factor_out + i * gemm.dst_factor_in)
        inp.add(s + o * gemm.src_factor_out + i * gemm.src_factor_in)
        wgt.add(w + o * gemm.wgt_factor_out + i * gemm.wgt_factor_in)
    return acc, inp, wgt


def gemm_on(micro_ops, gemm, acc, inp, wgt):
    """A program that defines exactly the given elements, one by one, and runs the GEMM on them."""
    b = ProgramBuilder("tiny")
    source = b.tiles("inp", Role.INPUT, 1, Memory.INP)
    weights = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    zeros = b.tiles("acc", Role.INPUT, 1, Memory.ACC)
    for element in sorted(inp):
        b.load(Memory.INP, source, element, 0, 1)
    for element in sorted(wgt):
        b.load(Memory.WGT, weights, element, 0, 1)
    for element in sorted(acc):
        b.load(Memory.ACC, zeros, element, 0, 1)
    b.nop(Memory.INP, push_next=1)
    b.load_micro_ops(b.micro_ops(*micro_ops), len(micro_ops))
    b.add(replace(gemm, push_next=0))
    b.finish()
    return b.build()


@settings(max_examples=150, deadline=None)
@given(loops(), st.data())
def test_index_sets_are_exact(micro_ops_and_gemm, data):
    """Defining what the loops touch is enough; leaving out any one element is noticed."""
    micro_ops, gemm = micro_ops_and_gemm
    sets = touched_by(micro_ops, gemm)
    depths = (TINY.acc.depth, TINY.inp.depth, TINY.wgt.depth)
    if any(max(s) >= depth for s, depth in zip(sets, depths, strict=True)):
        inside = [{e for e in s if e < n} for s, n in zip(sets, depths, strict=True)]
        assert broken_rule(gemm_on(micro_ops, gemm, *inside)) is Rule.SRAM_BOUNDS
        return
    verify(gemm_on(micro_ops, gemm, *sets))
    which = data.draw(st.integers(0, 2))
    missing = data.draw(st.sampled_from(sorted(sets[which])))
    fewer = [s - {missing} if n == which else s for n, s in enumerate(sets)]
    with pytest.raises(VerificationError) as caught:
        verify(gemm_on(micro_ops, gemm, *fewer))
    assert f"element {missing} of {('ACC', 'INP', 'WGT')[which]} was never written" in str(
        caught.value
    )


@settings(max_examples=100, deadline=None)
@given(
    y=st.integers(1, 4), x=st.integers(1, 5), stride=st.integers(0, 7), base=st.integers(0, 6),
    stored=st.sets(st.integers(0, 30), min_size=1),
)  # fmt: skip
def test_scratch_elements_are_exact(y, x, stride, base, stored):
    """A strided LOAD verifies if and only if each of its elements was stored before."""
    b = ProgramBuilder("tiny")
    zeros = b.tiles("zeros", Role.INPUT, 1, Memory.ACC)
    scratch = b.tiles("scratch", Role.SCRATCH, 31)
    b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
    b.load(Memory.ACC, zeros, 0, 0, 1)
    b.alu(AluOp.ADD, 0, 1, 1, push_next=1)
    b.nop(Memory.OUT, pop_prev=1)
    for element in sorted(stored):
        b.store(scratch, 0, element, 1)
    b.nop(Memory.OUT, push_prev=1)
    b.nop(Memory.UOP, pop_next=1, push_prev=1)
    b.add(
        Load(pop_next=1, push_next=1, memory=Memory.INP, dram_base=base, y_size=y, x_size=x,
             x_stride=stride),
        scratch,
    )  # fmt: skip
    b.finish(pop_prev=1)
    wanted = {base + r * stride + c for r, c in product(range(y), range(x))}
    if max(wanted) > 30:
        expected = Rule.DRAM_BOUNDS
    else:
        expected = None if wanted <= stored else Rule.UNDEFINED_DRAM
    assert broken_rule(b.build()) is expected


def test_elements_of_different_sizes_share_bytes():
    """Four stored output tiles are one accumulator tile; three are not."""
    for stored, expected in ((4, None), (3, Rule.UNDEFINED_DRAM)):
        b = ProgramBuilder("tiny")
        zeros = b.tiles("zeros", Role.INPUT, 4, Memory.ACC)
        scratch = b.tiles("scratch", Role.SCRATCH, 4)
        b.load_micro_ops(b.micro_ops((0, 0, 0)), 1)
        b.load(Memory.ACC, zeros, 0, 0, 4)
        b.alu(AluOp.ADD, 0, 4, 1, push_next=1)
        b.store(scratch, 0, 0, stored, pop_prev=1, push_prev=1)
        b.load(Memory.ACC, scratch, 0, 0, 1, pop_next=1)
        b.finish()
        assert broken_rule(b.build()) is expected


def test_zero_rows_between_padding_read_nothing():
    """A tile that lies in the padding as a whole is a LOAD of zeros; only its address counts."""
    edited(small_gemm(), 2, y_size=0, y_pad_top=1).verify()
    edited(small_gemm(), 2, y_size=0, y_pad_top=1, dram_base=6, x_stride=9).verify()
    beyond = edited(small_gemm(), 2, y_size=0, y_pad_top=1, dram_base=7)
    assert broken_rule(beyond) is Rule.DRAM_BOUNDS
