"""The optimisation stages: every one computes the same, and the lessons show them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.kernel_cases import inputs_of, reference

from vtaops.base.errors import ScheduleError, UnsupportedError
from vtaops.kernels import ops
from vtaops.kernels.build import compile_schedule
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda.emulate import compiler
from vtaops.kernels.lessons import (
    LessonRow,
    _remark,
    find_lesson,
    lesson_plot,
    lesson_table,
    lessons,
    limits,
    run_lesson,
)
from vtaops.kernels.lessons.on_cpu import STAGES
from vtaops.kernels.lessons.stages import find_stage

PADDED = ops.Window((3, 3), padding=(1, 1, 1, 1))

OPERATORS = [
    ops.MatmulOp(64, 48, 40),
    ops.Conv2dOp(1, 6, 16, 40, 12, PADDED),
    ops.DepthwiseOp(1, 4, 20, 33, PADDED),
    ops.BroadcastOp("add", (20, 1), (20, 36)),
    ops.PoolOp("max", 2, 3, 17, 34, PADDED),
    ops.PoolOp("avg", 2, 3, 17, 34, PADDED),
    ops.NormalizeOp(2, 3, 50, ops.Epilogue(batch_norm=1e-5)),
]
CASES = [(op, stage) for op in OPERATORS for stage in STAGES[type(op)]]
CASES += [(ops.BroadcastOp("add", (1000,), (1000,)), stage) for stage in STAGES["vector_add"]]


@pytest.mark.parametrize(
    ("op", "stage"), CASES, ids=lambda value: getattr(value, "name", type(value).__name__)
)
def test_every_cpu_stage_equals_numpy(op, stage):
    target = CpuTarget.detect()
    function = compile_schedule(stage.schedule(op, target), target.tvm)["main"]
    arrays, result = inputs_of(op), np.zeros(op.output.shape, "float32")
    function(*arrays.values(), result)
    np.testing.assert_allclose(result, reference(op, arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stages", STAGES.values(), ids=lambda s: s[-1].explanation[:8])
def test_stages_differ_and_have_names(stages):
    assert len({stage.name for stage in stages}) == len(stages)
    assert all(stage.explanation for stage in stages)
    assert stages[0].name == "default"


def test_a_cpu_lesson_has_a_row_per_stage():
    rows = run_lesson(find_lesson("matmul"), size=64, budget=0.001)
    assert [row.stage for row in rows] == [s.name for s in lessons("cpu")["matmul"].stages]
    assert rows[0].speedup == 1
    assert all(row.seconds > 0 and row.gflops > 0 and row.speedup > 0 for row in rows)
    assert "T.vectorized" not in rows[0].script
    assert "T.vectorized" in rows[-1].script
    assert len({row.script for row in rows[:5]}) == 5


@pytest.mark.parametrize("name", lessons("cpu"))
def test_every_cpu_lesson_shows_its_first_and_last_stage(name):
    lesson = lessons("cpu")[name]
    first, last = lesson.stages[0].name, lesson.stages[-1].name
    rows = run_lesson(lesson, size=4, stages=(last, first), budget=0.0)
    assert [row.stage for row in rows] == [last, first]
    assert all("T.prim_func" in row.script for row in rows)
    assert all(row.seconds > 0 for row in rows)


def test_some_stages_can_be_chosen(tmp_path):
    rows = run_lesson(find_lesson("conv2d"), size=4, stages=("default", "tuned"), budget=0.001)
    assert [row.stage for row in rows] == ["default", "tuned"]
    table = lesson_table(rows, "conv2d")
    assert table.row_count == 2
    lesson_plot(find_lesson("conv2d"), {4: rows}, tmp_path / "conv2d.svg")
    assert "<svg" in (tmp_path / "conv2d.svg").read_text()


def test_a_cuda_lesson_has_source_and_counts(tmp_path):
    from vtaops import cuda

    rows = run_lesson(
        find_lesson("depthwise", "cuda"), size=4, stages=("blocked", "tuned"), card="H100"
    )
    assert all("__global__" in row.source for row in rows)
    assert "__shared__" in rows[0].source
    assert "__shared__" not in rows[1].source
    assert all((row.seconds is not None) == cuda.device_present() for row in rows)
    if not cuda.device_present() and compiler():
        blocked, tuned = (row.counts for row in rows)
        assert blocked["shared loads per multiply-add"] > 1 > tuned["overfetch"] - 0.5
        assert tuned["bank conflict"] == 1
        assert blocked["card"] == "H100"
        table = lesson_table(rows, "depthwise")
        assert "bound on H100" in [column.header for column in table.columns]
        lesson_plot(find_lesson("depthwise", "cuda"), {4: rows}, tmp_path / "depthwise.svg", "H100")
        assert "least us on H100" in (tmp_path / "depthwise.svg").read_text()


def test_a_stage_that_is_slower_says_so():
    first = LessonRow("a", "", "", "", 1.0, 1.0, 1.0)
    assert "2.0 times slower" in _remark([first], replace(first, gflops=0.5))
    assert "nothing" in _remark([first], replace(first, gflops=1.02))
    assert _remark([first], replace(first, gflops=2.0)) == ""
    counted = replace(first, gflops=None, counts={"most GFLOPS": 8.0})
    assert "4.0 times slower" in _remark([counted], replace(counted, counts={"most GFLOPS": 2.0}))
    assert _remark([first], replace(first, gflops=None)) == ""
    slower, third = replace(first, gflops=0.2), replace(first, gflops=first.gflops / 2)
    assert "still 2.0 times slower than the first" in _remark([first, slower], third)


def test_curves_have_a_line_for_each_stage_and_limit(tmp_path):
    sizes, lesson = (16, 32), find_lesson("matmul")
    rows = {n: run_lesson(lesson, size=n, stages=("default", "cached"), budget=0) for n in sizes}
    most = {n: limits(lesson, n) for n in sizes}
    assert all(found["peak"] > 0 < found["memory"] for found in most.values())
    lesson_plot(lesson, rows, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in ("default", "cached", "peak", "memory"))
    card = limits(find_lesson("matmul", "cuda"), 128, "T4")
    assert card == {"peak": 2 * 64 * 40 * 1.59, "memory": 320 * 2 * 128 / 12}


def test_neighbouring_threads_take_neighbouring_elements():
    if compiler():
        rows = run_lesson(find_lesson("vector_add", "cuda"), size=1 << 14)
        assert [row.counts["overfetch"] for row in rows] == [8, 1, 1]


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="matmul"):
        find_lesson("sort")
    with pytest.raises(UnsupportedError, match="cuda"):
        find_lesson("matmul", "opencl")
    with pytest.raises(ScheduleError, match="reorder"):
        find_stage(STAGES[ops.MatmulOp], "magic")
    with pytest.raises(UnsupportedError, match="nothing to plot"):
        lesson_plot(find_lesson("matmul"), {8: []}, tmp_path / "empty.svg")
