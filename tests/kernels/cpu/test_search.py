"""Searching for tiles."""

from __future__ import annotations

import pytest

from examples.kernels.search import meta_schedule, search
from vtaops.base.errors import UnsupportedError
from vtaops.kernels import ops

PADDED = ops.Window((3, 3), padding=(1, 1, 1, 1))


@pytest.mark.parametrize(
    "op",
    [
        ops.MatmulOp(30, 40, 20),
        ops.Conv2dOp(1, 3, 10, 20, 16, PADDED),
        ops.Conv2dOp(1, 4, 1, 500, 4, ops.Window((1, 1))),
        ops.PackedConv2dOp(1, 1, 10, 10, 2, PADDED),
        ops.DepthwiseOp(1, 2, 20, 20, PADDED),
        ops.PoolOp("max", 1, 2, 20, 20, PADDED),
    ],
    ids=lambda op: type(op).__name__,
)
def test_search_tries_all_tiles_and_sorts_them(op):
    seen = []
    trials = search(op, budget=0.0, progress=lambda i, n, trial: seen.append((i, n, trial)))
    assert [i for i, _, _ in seen] == list(range(1, len(trials) + 1))
    assert {n for _, n, _ in seen} == {len(trials)}
    assert len({str(trial.tile) for trial in trials}) == len(trials) >= 4
    times = [trial.seconds for trial in trials]
    assert times == sorted(times)
    assert times[0] > 0


def test_operators_without_tiles_are_refused():
    with pytest.raises(UnsupportedError, match="SoftmaxOp"):
        search(ops.SoftmaxOp(2, 3))


def test_meta_schedule_names_what_it_lacks(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "cloudpickle", None)
    with pytest.raises(UnsupportedError, match="pip install 'cloudpickle"):
        meta_schedule(ops.MatmulOp(4, 4, 4), tmp_path)
