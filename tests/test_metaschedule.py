"""MetaSchedule on schedules of one's own: it searches what it is given, and counts true cycles."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

import vtaops
from examples import metaschedule
from examples.metaschedule import HOST, Builder, Runner, seconds_of, tune, without_processors
from trials.own_schedules import Convolution, Plan
from vtaops import HardwareConfig
from vtaops.errors import ScheduleError
from vtaops.lowering import Capacity
from vtaops.runtime import Fsim

TINY = HardwareConfig.load("tiny")
OP = Convolution(TINY, out_blocks=4, in_blocks=2, height=8, width=8)
ROWS = [1, 2, 3, 4, 8]
"""Rows of a tile: 3 overhang the operator, 8 overflow the accumulators."""


def declaration():
    return tvm.IRModule({"main": OP.declare()})


def space(s):
    """The schedule of `Plan`, its rows drawn by TVM."""
    rows = s.sample_categorical(ROWS, [1 / len(ROWS)] * len(ROWS))
    Plan(oc=2, y=rows, x=8).apply(s, OP)


def test_the_best_candidate_is_the_fastest_of_the_space_and_equals_numpy():
    best = tune(declaration(), space, TINY, trials=16, seed=1)
    program = vtaops.compile_schedule(best, TINY)
    every = [
        vtaops.compile_schedule(Plan(oc=2, y=y, x=8).schedule(OP), TINY).cycles() for y in ROWS[:-1]
    ]
    assert program.cycles() == min(every) < max(every)
    arrays = OP.arrays(np.random.default_rng(0))
    with Fsim(TINY) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), OP.expected(*arrays))


def test_the_pieces_work_in_a_tuner_of_tvm(tmp_path):
    """Records of tune_tir: seconds are cycles at the clock, artifacts are deleted."""
    counted = []

    def make(module):
        counted.append(vtaops.compile_schedule(module, TINY, capacity=Capacity(inp=2, wgt=2)))
        return counted[-1]

    host = tvm.target.Target(HOST)
    with without_processors():
        database = ms.tir_integration.tune_tir(
            declaration(),
            host,
            str(tmp_path),
            max_trials_global=6,
            num_trials_per_iter=3,
            builder=Builder(make=make),
            runner=Runner(),
            space=lambda s: Plan(oc=2, y=s.sample_perfect_tile(axis(s), 2, 4)[1], x=8).apply(s, OP),
            strategy="replay-trace",
            database="memory",
            cost_model="random",
            num_tuning_cores=1,
            seed=2,
        )
    found = sorted(float(r.run_secs[0]) for r in database.get_all_tuning_records())
    assert found == sorted(seconds_of(program) for program in counted)
    assert found[0] == pytest.approx(min(p.cycles() for p in counted) / 100e6)
    best = vtaops.compile_schedule(
        ms.tir_integration.compile_tir(database, declaration(), host), TINY
    )
    assert seconds_of(make(best_module(database, host))) == found[0]
    assert best.cycles() >= found[0] * 100e6  # with one place for each operand


def axis(s):
    return s.get_loops(s.get_sblock("res"))[2]


def best_module(database, host):
    return ms.tir_integration.compile_tir(database, declaration(), host).mod


def test_a_seed_draws_the_same_schedules():
    def drawn(seed):
        scripts = []

        def make(module):
            scripts.append(module.script())
            return vtaops.compile_schedule(module, TINY)

        tune(declaration(), space, TINY, trials=6, seed=seed, make=make)
        return scripts

    first = drawn(7)
    assert len(first) == 6
    assert drawn(7) == first != drawn(8)


def test_nothing_that_fits_is_an_error_with_the_reason():
    op = Convolution(TINY, 9, 1, 30, 30)
    with pytest.raises(ScheduleError, match=r"none of 2 schedules can be built; .* too many"):
        tune(
            tvm.IRModule({"main": op.declare()}),
            lambda s: Plan(oc=9, y=30, x=30).apply(s, op),
            TINY,
            trials=2,
            seed=1,
        )


def test_a_strategy_that_replays_traces_wants_tiles_that_divide():
    with pytest.raises(ScheduleError, match=r"overhang .* 'replay-func'"):
        tune(
            declaration(),
            lambda s: Plan(oc=2, y=3, x=5).apply(s, OP),
            TINY,
            trials=2,
            seed=1,
            strategy="replay-trace",
        )


def test_errors_of_the_schedule_come_through():
    def wrong(s):
        vtaops.schedule.tensorize(s, "shr", vtaops.schedule.alu(TINY, "sub"))

    with pytest.raises(ScheduleError, match="the ALU has no 'sub'"):
        tune(declaration(), wrong, TINY, trials=2, seed=1)


def test_a_runner_of_ones_own_measures_the_programs():
    program = vtaops.compile_schedule(Plan(oc=2, y=2, x=8).schedule(OP), TINY)
    asked = []
    runner = Runner(lambda each: asked.append(each) or 0.25)
    result = Builder(TINY).build([ms.builder.BuilderInput(Plan().schedule(OP).mod, None)])
    (future,) = runner.run([ms.runner.RunnerInput(result[0].artifact_path, "llvm", [])])
    assert [float(s) for s in future.result().run_secs] == [0.25]
    assert asked[0].config == program.config


def test_a_builder_refuses_what_is_not_proven_against_a_description():
    """OP shifts by 6 and takes the maximum with -100."""
    right = vtaops.Conv2d(
        in_channels=2 * TINY.block_in,
        out_channels=4 * TINY.block_out,
        height=8,
        width=8,
        kernel=3,
        padding=1,
        shift=6,
        clip=(-100, 127),
    )
    op = replace(OP, stages=(("shr", "shr", 6), ("low", "max", -100), ("high", "min", 127)))
    candidates = [ms.builder.BuilderInput(Plan().schedule(op).mod, None)]
    (built,) = Builder(TINY, against=right).build(candidates)
    assert built.error_msg is None
    (refused,) = Builder(TINY, against=replace(right, shift=7)).build(candidates)
    assert "does not compute what it declares" in refused.error_msg
    (unknown,) = Builder(TINY, against=replace(right, bias=True)).build(candidates)
    assert "its arguments are not those of Conv2d" in unknown.error_msg


def test_the_intrinsics_of_processors_can_be_imported_afterwards():
    name = "tvm.s_tir.tensor_intrin"
    before = sys.modules.get(name)
    with without_processors():
        pass
    assert sys.modules.get(name) is before


def test_the_example_searches_and_equals_numpy():
    best = tune(
        metaschedule.declare(8, 4), metaschedule.schedule, metaschedule.CONFIG, trials=4, seed=1
    )
    program = vtaops.compile_schedule(best, metaschedule.CONFIG)
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (8, 4, 1, 16)).astype(np.int8)
    b = rng.integers(-128, 128, (4, 4, 16, 16)).astype(np.int8)
    with Fsim(metaschedule.CONFIG) as device:
        found = program.run(device, a, b)
    total = np.einsum("mkri,nkvi->mnrv", a.astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(found, (total >> 8).astype(np.int8))
