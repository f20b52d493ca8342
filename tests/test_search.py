"""Tilings: the default, the search, and the estimate of cycles that both rest on."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from trials.boards import serving
from trials.faults import Fault
from vtaops import Conv2d, Gemm, HardwareConfig, Session, Tiling
from vtaops.board.measure import measure
from vtaops.cli import app
from vtaops.compiler import search
from vtaops.errors import DeviceError
from vtaops.runtime.fsim import Fsim
from vtaops.schedule import blocked_shape, default_tiling
from vtaops.schedule.blocked import Axis
from vtaops.schedule.candidates import (
    TilingList,
    _divisions,
    candidates,
    computed_cycles,
    cycle_bound,
    depths_of,
    dram_traffic,
)
from vtaops.schedule.workloads import WORKLOADS, find

CONFIG = HardwareConfig.load("pynq")
OP = Conv2d(in_channels=32, out_channels=48, height=9, width=10, kernel=3, padding=1)


def test_the_cheapest_of_the_measured_tilings_comes_first():
    found = search(OP, CONFIG)
    sizes = {(t.oc, t.ic, t.h, t.w, t.keep) for t in (one.tiling for one in found)}
    assert len(found) == len(sizes) == 12
    costs = [one.cost for one in found]
    assert costs == sorted(one.program.cycles() for one in found)
    assert default_tiling(OP, CONFIG) in [one.tiling for one in found]
    assert search(OP, CONFIG, count=1)[0].tiling == default_tiling(OP, CONFIG)
    best = found[0].tiling
    assert vtaops.compile(OP, CONFIG, best).cycles() == costs[0]
    assert [one.tiling for one in search(OP, "pynq")] == [one.tiling for one in found]


def test_a_measure_sees_verified_programs_and_decides():
    asked = []

    def measure(programs):
        """By the number of instructions; the first one cannot be measured."""
        asked.extend(programs)
        return [None, *(float(len(program)) for program in programs[1:])]

    found = search(OP, CONFIG, measure, count=5)
    assert len(asked) == 5
    assert [one.cost for one in found] == sorted(len(program) for program in asked[1:])
    assert not search(OP, CONFIG, lambda programs: [None] * len(programs), count=2)


def test_searches_that_cannot_be():
    with pytest.raises(
        vtaops.errors.ScheduleError, match="count is 0; a search compiles at least 1"
    ):
        search(OP, CONFIG, count=0)
    with pytest.raises(
        vtaops.errors.ShapeError, match="the operator is 'conv'; give a description"
    ):
        search("conv", CONFIG)


def test_the_default_is_what_compile_takes():
    program = vtaops.compile(OP, CONFIG)
    assert program.operators[0].tiling == vars(default_tiling(OP, CONFIG))
    with Session("fsim", CONFIG) as session:
        assert session.program(OP).operators[0].tiling == vars(default_tiling(OP, CONFIG))
        explicit = Tiling(16, 16, 3, 5)
        assert session.program(OP, explicit).operators[0].tiling == vars(explicit)


@pytest.mark.parametrize("name", [n for n in WORKLOADS if n.startswith("resnet18.")])
def test_default_tilings_reach_the_bound(name):
    """Every layer within 8 % of its bound, and little more DRAM traffic than necessary."""
    op = WORKLOADS[name].op
    program = vtaops.compile(op, CONFIG, verify=False)
    shape, moved = blocked_shape(op, CONFIG), program.stats().dram_nbytes
    assert program.cycles() <= 1.08 * max(computed_cycles(shape, CONFIG, 1), moved / 8)
    grid, fit = candidates(shape, depths_of(CONFIG))
    fitting = grid.at(fit, fit.shape)
    assert moved <= 1.25 * sum(dram_traffic(shape, CONFIG, fitting)).min()


def test_default_tilings_of_resnet18_beat_the_published_cycles():
    layers = [w for n, w in WORKLOADS.items() if n.startswith("resnet18.") and n != "resnet18.C1"]
    cycles = {w: vtaops.compile(w.op, CONFIG, verify=False).cycles() for w in layers}
    assert sum(w.occurrences for w in layers) == 19
    assert sum(w.occurrences * cycles[w] for w in layers) <= 7_200_000  # published: 8,828,000


@pytest.mark.parametrize(
    "op",
    [
        OP,
        Conv2d(
            in_channels=32, out_channels=64, height=12, width=12, kernel=3, strides=2, padding=1
        ),
        Gemm(m=12, n=100, k=80),
    ],
    ids=["conv", "strided", "gemm"],
)
def test_the_predicted_traffic_is_the_real_one(op):
    """The analytic model of reuse equals what lowering loads, micro-ops aside."""
    shape = blocked_shape(op, CONFIG)
    grid, fit = candidates(shape, depths_of(CONFIG))
    found = grid.at(fit, fit.shape)
    predicted = sum(dram_traffic(shape, CONFIG, found))
    bound = cycle_bound(shape, CONFIG, found)
    assert (bound == cycle_bound(shape, CONFIG, grid)[fit]).all()
    for row in range(0, len(bound), max(1, len(bound) // 12)):
        program = vtaops.compile(op, CONFIG, found.tiling(row, CONFIG))
        moved = program.stats().dram_nbytes - program.stats().uop_load_nbytes
        assert moved == predicted[row], found.tiling(row, CONFIG)
        assert program.cycles() >= computed_cycles(shape, CONFIG, 1)
    assert (bound >= computed_cycles(shape, CONFIG, 1)).all()


def test_counts_over_pieces_equal_naive_loops():
    for extent in range(1, 80):
        assert _divisions(extent) == sorted({-(-extent // n) for n in range(1, extent + 1)})
    rng = np.random.default_rng(0)
    for step, window in ((1, 3), (2, 3), (3, 1)):
        axis = Axis(11, step, window, bytes(rng.random(11 * step + window) < 0.7))
        for tile in range(1, 12):
            pieces = [(y, min(tile, 11 - y)) for y in range(0, 11, tile)]
            spans = [axis.real[y * step :][: axis.span(n)] for y, n in pieces]
            assert axis.loaded(tile) == sum(map(sum, spans))


def test_long_tensors_find_their_tiling_at_once():
    """Ten million elements: the choice is as good as that of a tenth, in pieces of like size."""
    long, short = (
        vtaops.Elementwise(function="add", shape=(size,)) for size in (10_000_000, 1_000_000)
    )
    assert abs(default_tiling(long, CONFIG).h - default_tiling(short, CONFIG).h) < 50


def test_operators_of_equal_extents_share_their_tiling():
    """Neither shifts nor clips matter to it; a bias takes accumulators."""
    assert default_tiling(replace(OP, shift=3, clip=(0, 100)), CONFIG) is default_tiling(OP, CONFIG)
    assert default_tiling(replace(OP, bias=True), CONFIG) is not default_tiling(OP, CONFIG)


@pytest.mark.parametrize("name", ["resnet18.C8", "mobilenet.D9"])
def test_designs_share_the_enumeration_of_tilings(name):
    """What larger scratchpads hold as well does not change the order."""
    op = find(name).op
    small = replace(CONFIG, log_inp_buff_size=12, log_acc_buff_size=14)
    tilings = TilingList(op, CONFIG)
    shared = list(islice(tilings.estimated(small), 50))
    assert shared == list(islice(TilingList(op, small).estimated(small), 50))
    assert shared != list(islice(tilings.estimated(CONFIG), 50))


TUNE = ("tune", "resnet18.C10", "--count", "4", "--json")


def test_the_command_measures_on_a_board():
    with serving() as server:
        result = CliRunner().invoke(app, [*TUNE, "--device", server.address])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["compiled"] == 4
    assert 0 < found["cost"] < 60
    assert not result.stderr


def test_a_candidate_that_fails_is_told_and_left_out():
    with serving() as server:
        server.board.faults.inject(Fault.CORRUPT_REQUEST, after=3)  # behind the login
        result = CliRunner().invoke(app, [*TUNE, "--device", server.address])
    assert result.exit_code == 0, result.output
    assert result.stderr.count("a candidate failed on") == 1
    assert json.loads(result.stdout)["compiled"] == 3


def test_a_board_that_measures_nothing():
    with serving(flashed=False) as server:
        result = CliRunner().invoke(app, [*TUNE, "--device", server.address])
    assert result.exit_code == 1
    assert "every candidate failed" in str(result.exception)
    assert "no bitstream is programmed" in result.stderr
    result = CliRunner().invoke(app, [*TUNE, "--device", "pynq://127.0.0.1:9"])
    assert "cannot reach a board" in str(result.exception)
    result = CliRunner().invoke(app, [*TUNE, "--device", "fsim"])
    assert "fsim has no clock" in str(result.exception)


def test_a_result_that_differs_is_no_measurement():
    class Wrong(Fsim):
        def read(self, buffer, nbytes):
            return super().read(buffer, nbytes) ^ 1

    program = vtaops.compile(OP, CONFIG)
    with Fsim(CONFIG) as device:
        assert measure(program, device).seconds > 0
    with Wrong(CONFIG) as device, pytest.raises(DeviceError, match="differ from the simulator's"):
        measure(program, device)
