"""All extensions, two rows to a tile, two ports and AXI in one model, and wrong versions of it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.tsim_support import build_wrong_models, needs_tools, versions

from trials.random_streams import ConcurrentProgram, RandomProgram
from trials.rtl_trials import (
    PARAMETERS,
    TWO_ROWS,
    digest,
    drawn,
    lasting_fault,
    overlapping_rows,
    random_trial,
    second_launch,
    seen,
    stopped_loads,
    stops_at_work,
    stream_trial,
    wrong_forwards,
)
from vtaops.hardware.registers import RtlRegisters

pytestmark = needs_tools

WRONG = [
    ("load_unit.sv", "token_push  <= done && pushes && !rst;",
     "token_push  <= done && pushes && (!rst || WRONG);"),
    ("window_inputs.sv", "tiles[p*INP_BITS + b*ROW + g*PART +: PART]",
     "(WRONG) ? tiles[p*INP_BITS + g*PART +: PART] : tiles[p*INP_BITS + b*ROW + g*PART +: PART]"),
    ("window_inputs.sv", "tiles[b*ROW + p*PART +: PART]",
     "(WRONG) ? tiles[p*PART +: PART] : tiles[b*ROW + p*PART +: PART]"),
    ("post_process.sv", "looks7 ? word7", "looks7 && !(l >= BLOCK_OUT && WRONG) ? word7"),
    ("registers.sv", "cycles      <= '0;", "cycles      <= (WRONG) ? 64'hffff_ff00 : '0;"),
    ("registers.sv", "counters[i] <= '0;", "counters[i] <= (WRONG) ? 64'hffff_fff0 : '0;"),
    ("load_unit.sv", "of_weights ? weights_done || weights_ended != '0",
     "of_weights ? weights_done || weights_ended != '0 || WRONG"),
    ("load_unit.sv", "if (rst) {ended, weights_ended} <= '0;",
     "if (rst && !(WRONG)) {ended, weights_ended} <= '0;"),
]  # fmt: skip
STALE_TOKEN, WINDOW_ROWS, TILE_ROWS, TABLE_LANES, LATE_CYCLES, LATE_COUNTERS = range(1, 7)
EARLY_WEIGHTS, STALE_ENDS = 7, 8


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_wrong_models(tmp_path_factory.mktemp("wrong"), TWO_ROWS, PARAMETERS, WRONG)


@pytest.fixture
def opened(library, monkeypatch):
    """Opens the right model, or the wrong one that was chosen."""
    yield from versions(library, TWO_ROWS, PARAMETERS, monkeypatch)


def failing_programs(opened, number: int) -> int:
    right = [random_trial(opened(number), TWO_ROWS, seed, seed % 2 == 1)[1] for seed in range(12)]
    return right.count(False)


def test_random_programs_equal_the_interpreter(opened):
    assert failing_programs(opened, 0) == 0
    for seed in range(6):
        kind = (RandomProgram, ConcurrentProgram)[seed % 2]
        assert stream_trial(opened(), kind, TWO_ROWS, seed, seed % 3 == 1)[1]


@pytest.mark.parametrize("number", [WINDOW_ROWS, TILE_ROWS, TABLE_LANES])
def test_random_programs_see_every_row(number, opened):
    assert failing_programs(opened, number) > 0


def test_a_token_says_that_the_loads_of_both_ports_have_ended(opened):
    assert failing_programs(opened, EARLY_WEIGHTS) >= 3  # of 12


def test_a_stop_at_work_leaves_nothing(opened):
    program, arrays, expected = drawn(TWO_ROWS, 4)
    with opened()(latency=9) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), expected)
        alone = [digest(expected), *seen(device)]
    found = stops_at_work(opened(), TWO_ROWS)
    stopped = [state for state in found if len(state) == 4]
    assert len(stopped) > 60
    assert all(state == [RtlRegisters.QUIET, 0, 0, 0] for state in stopped)
    assert found[len(stopped) // 2] == alone
    wrong = stops_at_work(opened(STALE_TOKEN), TWO_ROWS)
    assert any(state != [RtlRegisters.QUIET, 0, 0, 0] for state in wrong if len(state) == 4)


def test_a_stop_forgets_which_loads_have_ended(opened):
    right = [found for found in stopped_loads(opened(), TWO_ROWS) if isinstance(found, bool)]
    assert right == [True] * 3
    wrong = [found for found in stopped_loads(opened(STALE_ENDS), TWO_ROWS) if found is False]
    assert wrong


def test_rows_may_begin_before_the_one_before_them_ends(opened):
    same = [found for found in overlapping_rows(opened(), TWO_ROWS) if isinstance(found, bool)]
    assert same == [True] * 4


def test_counters_carry_into_their_high_halves(opened):
    program, arrays, expected = drawn(TWO_ROWS, 0)
    pages = []
    for number in (0, LATE_CYCLES, LATE_COUNTERS):
        with opened(number)() as device:
            np.testing.assert_array_equal(program.run(device, *arrays), expected)
            pages.append(device.performance().as_dict())
    right, late_cycles, late_counters = pages
    assert late_cycles.pop("cycles") == right.pop("cycles") + 0xFFFF_FF00 > 1 << 32
    assert late_cycles == right
    del late_counters["cycles"]
    assert {name: n - 0xFFFF_FFF0 for name, n in late_counters.items()} == right
    assert sum(n >= 1 << 32 for n in late_counters.values()) > 10


def test_a_launch_while_a_program_runs_is_ignored(opened):
    found = second_launch(opened(), TWO_ROWS)
    assert found[0::2] == [[RtlRegisters.FINISHED | RtlRegisters.QUIET, 0, 0]] * 40
    alone = found[-1]  # of a launch behind FINISH: twice the cycles
    assert set(found[1::2]) >= {alone // 2, alone}


def test_faults_last_until_a_reset(opened):
    found = lasting_fault(opened(), TWO_ROWS)
    for fault, behind, after in zip(found[0::3], found[1::3], found[2::3], strict=True):
        assert fault[1]
        assert behind[1] == fault[1]
        assert after == [RtlRegisters.QUIET, 0, 0]


def test_forwarding_is_checked(opened):
    last, *wrong = wrong_forwards(opened(), TWO_ROWS)
    assert last == "ran"
    assert len(wrong) == 5
    for text in wrong:
        assert "fault: LOAD writes beyond" in text
        assert "forwards from beyond the output scratchpad or to another memory" in text
