"""The extension `forward`: loads from the output memory, and fused operators."""

import random
from dataclasses import replace

import pytest

from trials.chains import PYNQ, SMALL, TINY, chain, check, check_on, linked
from trials.random_cases import random_tiling
from vtaops.machine.isa import Load, Store
from vtaops.runtime.tsim import Tsim
from vtaops.schedule.grouping import fused_tilings

PLAIN = replace(TINY, extensions=tuple(name for name in TINY.extensions if name != "forward"))


def forwarded(program):
    return [i for i in program if isinstance(i, Load) and i.forward]


@pytest.mark.parametrize("seed", range(9))
def test_random_tilings(seed):
    rng = random.Random(seed)
    count = rng.choice([2, 3])
    ops = chain(rng.choice([16, 24, 40]), rng.randint(6, 14), rng.choice([1, 2]))[:count]
    tilings = [random_tiling(rng, op, SMALL, taps="all") for op in ops]
    check(linked(ops, tilings, TINY, together=seed % 3 > 0, close=seed % 3 == 2), ops, TINY)


@pytest.mark.parametrize(
    ("channels", "size", "stride", "inputs", "count"),
    [(16, 9, 1, 8, 2), (24, 7, 2, 16, 2), (16, 7, 1, 8, 3)],
)
def test_hand_in_hand(channels, size, stride, inputs, count):
    ops = chain(channels, size, stride, inputs=inputs)[:count]
    found = 0
    plans = [each.tilings for each in fused_tilings(ops, TINY, limit=1e9)]
    for tilings in plans[:4]:
        program = linked(ops, tilings, TINY, together=True, close=True)
        found += len(forwarded(program))
        check(program, ops, TINY)
    assert found


def test_what_goes_over_the_port_is_what_two_bands_read():
    ops = chain(48, 28, stride=2, inputs=16)[:2]
    tilings = next(fused_tilings(ops, PYNQ, limit=1e9)).tilings
    without = replace(PYNQ, extensions=tuple(e for e in PYNQ.extensions if e != "forward"))
    on_chip = linked(ops, tilings, PYNQ, together=True, close=True)
    over_dram = linked(ops, tilings, without, together=True, close=True)
    check(on_chip, ops, PYNQ)
    assert not forwarded(over_dram)
    ours, theirs = on_chip.stats(), over_dram.stats()
    assert ours.dram_nbytes < 0.6 * theirs.dram_nbytes
    assert ours.gemm_counter == theirs.gemm_counter
    stored = sum(i.x_size * i.y_size for i in on_chip if isinstance(i, Store))
    assert 16 * stored == ours.out_store_nbytes
    assert on_chip.cycles() < over_dram.cycles()


def test_plain_hardware_has_no_such_loads():
    ops = chain(16, 8)[:2]
    rng = random.Random(3)
    tilings = [random_tiling(rng, op, SMALL, taps="all") for op in ops]
    program = linked(ops, tilings, PLAIN, together=True, close=True)
    assert not forwarded(program)
    check(program, ops, PLAIN)


def test_rtl():
    """Pads, rows at a distance, and what is on chip beside what comes from DRAM."""
    ops = chain(16, 10, stride=1, inputs=8)[:2]
    rng = random.Random(1)
    with Tsim(TINY) as device:
        expected = 0
        for _ in range(4):
            tilings = [random_tiling(rng, op, SMALL, taps="all") for op in ops]
            program = linked(ops, tilings, TINY, together=True, close=True)
            check_on(device, program, ops)
            expected += program.cycles()
        assert abs(expected - device.performance().cycles) < 0.004 * expected
