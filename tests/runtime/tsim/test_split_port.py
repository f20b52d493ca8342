"""A burst divided between two AXI masters: programs, stops, errors of either, wrong versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.tsim_support import build_wrong_models, needs_tools, versions

import vtaops
from trials.random_streams import ConcurrentProgram
from trials.reference_isa import place
from trials.rtl_trials import (
    PLAIN,
    SHORT,
    SPLIT,
    random_trial,
    stops_at_work,
    stream_trial,
)
from vtaops.errors import DeviceError
from vtaops.hardware.registers import RtlRegisters
from vtaops.machine.config import Memory
from vtaops.machine.isa import Encoding, Finish, Load, MemoryInstruction, Store, words_to_array
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program.timing import TimingParameters

pytestmark = needs_tools

WRONG = [
    ("axi_halves.sv", "8'd1, SHIFT'(0)}", "(WRONG ? 8'd0 : 8'd1), SHIFT'(0)}"),
    ("axi_halves.sv", "^in_address[ADDRESS_BITS-1:BLOCK]",
     "(WRONG ? next : ^in_address[ADDRESS_BITS-1:BLOCK])"),
    ("axi_halves.sv", "in_length <= to_end", "in_length <= to_end + 8'(WRONG)"),
    ("axi_halves.sv", "done & wanted;", "(WRONG ? 2'b00 : done & wanted);"),
    ("axi_halves.sv", "in_valid && !known", "in_valid && (!known || WRONG)"),
    ("axi_split.sv", "of_turn ^ behind", "of_turn ^ (behind && !(WRONG))"),
    ("axi_split.sv", "(behind || of_single)", "(behind || of_single || WRONG)"),
    ("axi_split.sv", "to_turn ^ rests", "to_turn ^ (rests && !(WRONG))"),
    ("axi_split.sv", "s_wlast || half, s_wstrb", "s_wlast || half && !(WRONG), s_wstrb"),
    ("axi_split.sv", "(said & needed) == needed",
     "(WRONG ? said[by_turn] : (said & needed) == needed)"),
    ("axi_split.sv", "sends && free[to]", "sends && (free[to] || WRONG)"),
]  # fmt: skip
SILENT = [
    ("axi_split.sv", "answer[1] & {2{needed[1]}}", "answer[1] & {2{needed[1] && !(WRONG)}}"),
    ("axi_split.sv", "answer[0] & {2{needed[0]}}", "answer[0] & {2{needed[0] && !(WRONG)}}"),
    ("axi_split.sv", "s_rresp  = response[from]", "s_rresp  = response[from && !(WRONG)]"),
]
"""Versions that hide errors of one port."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_wrong_models(tmp_path_factory.mktemp("wrong"), SPLIT, SHORT, WRONG + SILENT)


@pytest.fixture
def opened(library, monkeypatch):
    """Opens the right model, or the wrong one that was chosen."""
    yield from versions(library, SPLIT, SHORT, monkeypatch)


def programs(opened, number: int) -> Iterator[bool]:
    """Yield whether programs are right: of steady and irregular memories, quick and slow ones."""
    for seed in range(8):
        limited = partial(opened(number), bandwidth=(None, 5.0, 1.0)[seed % 3])
        try:
            yield random_trial(limited, SPLIT, seed, seed % 2 == 1)[1]
            yield stream_trial(limited, ConcurrentProgram, SPLIT, seed, seed % 2 == 0)[1]
        except DeviceError:
            yield False
    yield long_store(opened(number))
    yield all(overwritten(opened(number), seed, 1) for seed in range(8))
    yield all(overwritten(opened(number), seed, SHORT.burst_beats // 2) for seed in range(8))


def long_store(opened) -> bool:
    """Whether all words of a store arrive that a slow memory makes wait for each other."""
    store = Store(memory=Memory.OUT, x_size=40, y_size=1, x_stride=40, push_prev=1)
    with opened(bandwidth=1.0) as device:
        area = place(device, np.ones(400, np.uint8))
        store = replace(store, dram_base=area.address // 8)
        try:
            launch(device, [store, Finish(pop_next=1)])
        except DeviceError:
            return False
        return np.array_equal(device.read(area, 400), [0] * 320 + [1] * 80)


def overwritten(opened, seed: int, apart: int) -> bool:
    """Whether of two stores to one address, `apart` words from the next, the later one remains.

    If they lie apart, the first one begins a word earlier: in another block, if one has so many.
    """
    tiles = np.repeat(np.array([1, 1, 2], np.int32), 8)
    with opened(jitter_seed=seed) as device:
        kept, area = place(device, tiles), place(device, np.zeros(18 * apart * 8, np.int8))
        load = Load(memory=Memory.ACC, dram_base=kept.address // 32, y_size=1, x_size=3,
                    x_stride=3, push_next=1)  # fmt: skip
        block, ahead = -(-area.address // 8 // apart) + 1, int(apart > 1)
        stores = [
            Store(memory=Memory.OUT, sram_base=base, y_size=1, x_size=1 + before, x_stride=2,
                  dram_base=(block + n) * apart - before, pop_prev=int(n + base == 0),
                  push_prev=int(n + base == 17))
            for n in range(16) for base, before in ((0, ahead), (2, 0))
        ]  # fmt: skip
        launch(device, [load, *stores, Finish(pop_next=1)])
        first = block * apart * 8 - area.address
        words = device.read(area, 18 * apart * 8)[first:].reshape(-1, 8)[: 16 * apart : apart]
        return bool((words == 2).all())


def launch(device, instructions) -> None:
    encoding = Encoding.of(device.config)
    code = place(device, words_to_array([encoding.encode(one) for one in instructions]))
    device.launch(code.address, len(instructions), 10.0)


def test_random_programs_equal_the_interpreter(opened):
    assert [*programs(opened, 0)] == [True] * 19


@pytest.mark.parametrize("number", range(1, len(WRONG) + 1))
def test_wrong_divisions_are_seen(number, opened):
    assert not all(programs(opened, number))


def test_a_stop_at_work_leaves_nothing(opened):
    found = stops_at_work(opened(), SPLIT)
    stopped = [state for state in found if len(state) == 4]
    assert len(stopped) > 60
    assert all(state == [RtlRegisters.QUIET, 0, 0, 0] for state in stopped)


FAR = {"sram_base": 0, "y_size": 1, "x_size": 1, "x_stride": 1}
LOST_LOAD = Load(memory=Memory.UOP, dram_base=(1 << 20) + 2, **FAR)
LOST_STORE = Store(memory=Memory.OUT, dram_base=1 << 17, push_prev=1, **FAR)


def unreported(opened, number: int, lost: MemoryInstruction, jitter: int | None) -> int:
    """Return how many of two accesses of one word, which different ports take, are no fault.

    Another read of one word before it makes it the other one; of a store the address does.
    """
    count, unit = 0, "store unit" if isinstance(lost, Store) else "reading side"
    for more in range(2):
        with opened(number)(jitter_seed=jitter) as device:
            kept = place(device, np.zeros(64, np.uint8)).address // 4
            near, end = Load(memory=Memory.UOP, dram_base=kept, **FAR), Finish()
            access = lost
            if isinstance(lost, Store):  # the address decides
                access, end = replace(lost, dram_base=lost.dram_base + 2 * more), Finish(pop_next=1)
                near = replace(lost, dram_base=kept // 2, push_prev=0)
            try:
                launch(device, [*[near] * more, access, end])
            except DeviceError as error:
                count -= bool(re.search(f"the {unit} accessed .* is not allocated", str(error)))
            count += 1
    return count


@pytest.mark.parametrize("jitter", [None, 1, 2])
@pytest.mark.parametrize("lost", [LOST_LOAD, LOST_STORE], ids=["load", "store"])
def test_an_error_of_either_port_is_a_fault(lost, jitter, opened):
    assert unreported(opened, 0, lost, jitter) == 0


@pytest.mark.parametrize(("number", "lost"), [(1, LOST_STORE), (2, LOST_STORE), (3, LOST_LOAD)])
def test_a_version_that_hides_the_errors_of_a_port_is_seen(number, lost, opened):
    assert unreported(opened, len(WRONG) + number, lost, None) == 1


@pytest.mark.parametrize("bandwidth", [None, 12.0, 8.0, 4.0])
def test_a_program_takes_what_one_port_of_both_bandwidths_takes_with_three_cycles_more(
    bandwidth, opened
):
    op = vtaops.Conv2d(
        in_channels=16, out_channels=16, height=8, width=8, kernel=3, padding=1, shift=8
    )
    program = vtaops.compile(op, PLAIN)
    arrays = random_arguments(op, np.random.default_rng(1))
    with opened()(latency=30, bandwidth=bandwidth) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))
        cycles = device.performance().cycles
    machine = TimingParameters(
        dram_latency=33,
        bandwidth=bandwidth,
        burst_beats=SHORT.burst_beats,
        outstanding=SHORT.outstanding,
        load_window=SHORT.load_buffer_beats,
        command_depth=SHORT.command_depth + 2,
    )
    assert cycles == pytest.approx(program.cycles(machine), rel=0.01)
