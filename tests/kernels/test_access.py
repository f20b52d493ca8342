"""Traces of memory accesses: counts and orders that follow from the loops by hand."""

from __future__ import annotations

import pytest

from examples.kernels import access
from examples.kernels.access import plot_accesses, trace
from examples.kernels.conv1d import CPU_STAGES, Conv1dOp
from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.lessons.on_cpu import STAGES
from vtaops.kernels.lessons.stages import find_stage
from vtaops.kernels.ops import MatmulOp

N = 8


def traced(op, stage):
    return trace(find_stage(STAGES[type(op)], stage).schedule(op, CpuTarget.detect()))


def reads(accesses, array):
    return [a.offset for a in accesses if a.array == array and not a.write]


def test_the_default_matmul_walks_down_the_columns_of_b():
    accesses = traced(MatmulOp(N, N, N), "default")
    assert reads(accesses, "A")[:N] == list(range(N))
    assert reads(accesses, "B")[: N + 1] == [*range(0, N * N, N), 1]
    assert len(reads(accesses, "A")) == len(reads(accesses, "B")) == N**3
    assert sum(a.write for a in accesses) == N**3 + N * N  # sums, and their zeros


def test_reordering_walks_along_the_rows_of_b_in_vectors():
    accesses = traced(MatmulOp(N, N, N), "reorder")
    assert reads(accesses, "B")[: N + 1] == list(range(N + 1))
    first = [a.step for a in accesses if a.array == "B"][:N]
    assert len(set(first)) == 1  # one vector, one step
    assert len({a.step for a in accesses}) < len(
        {a.step for a in traced(MatmulOp(N, N, N), "default")}
    )


def test_the_write_cache_stores_each_result_once():
    accesses = traced(MatmulOp(N, N, N), "cached")
    written = [a.offset for a in accesses if a.array == "C" and a.write]
    assert sorted(written) == list(range(N * N))


def test_padding_is_not_read_from_outside():
    op = Conv1dOp(50, 5, (2, 2))
    for stage in CPU_STAGES:
        offsets = reads(trace(stage.schedule(op, CpuTarget.detect())), "data")
        assert offsets
        assert 0 <= min(offsets) <= max(offsets) < 50


def test_diagrams_are_drawn_for_arrays_that_there_are(tmp_path):
    accesses = traced(MatmulOp(4, 4, 4), "default")
    both = {"default": accesses, "cached": traced(MatmulOp(4, 4, 4), "cached")}
    plot_accesses(both, ["A", "B", "C"], tmp_path / "default.svg", "matmul")
    text = (tmp_path / "default.svg").read_text()
    assert "<!-- default: A -->" in text
    assert "<!-- cached: C -->" in text
    with pytest.raises(UnsupportedError, match="'Z'"):
        plot_accesses(both, ["Z"], tmp_path / "none.svg")


def test_long_kernels_are_refused(monkeypatch):
    monkeypatch.setattr(access, "_LIMIT", 1000)
    with pytest.raises(UnsupportedError, match="smaller size"):
        traced(MatmulOp(16, 16, 16), "default")
