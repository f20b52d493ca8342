"""Measured peaks of this processor: register multiply-adds and memory bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tvm import te

from vtaops.kernels.build import compile_schedule, create_schedule
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.timing import median_seconds

_CHAINS, _STEPS = 12, 50_000
"""Independent sums that hide a multiply-add's latency, and the length of each."""

_COPIED = 1 << 26
"""Size in bytes of an array that exceeds every cache."""


@dataclass(frozen=True)
class Peaks:
    """Processor limits: arithmetic of all kernel threads, memory bandwidth of one thread.

    Attributes
    ----------
    gflops : float
        float32 operations per nanosecond; a multiply-add counts as two.
    gigabytes_per_second : float
        Memory bandwidth, by copying in one thread: bytes read plus bytes written.
    """

    gflops: float
    gigabytes_per_second: float


@cache
def measured_peaks(budget: float = 0.3) -> Peaks:
    """Measure the limits, for `budget` seconds each, once per process.

    Takes the best of several medians: other load on the machine can only hide a limit.
    """
    target = CpuTarget.detect()
    a, b = te.placeholder((target.lanes,), name="a"), te.placeholder((_CHAINS,), name="b")
    k = te.reduce_axis((0, _STEPS), name="k")
    shape = (target.cores, _CHAINS, target.lanes)
    total = te.compute(shape, lambda _, i, j: te.sum(a[j] * b[i], axis=k), name="total")
    s = create_schedule([a, b, total])
    block = s.get_sblock("total")
    stored = s.cache_write(block, 0, "local")
    thread, i, j, k = s.get_loops(block)
    s.reorder(thread, k, i, j)
    s.parallel(thread)
    s.unroll(i)
    s.vectorize(j)
    s.reverse_compute_at(stored, thread)
    s.decompose_reduction(block, k)
    function = compile_schedule(s, target.tvm)["main"]
    arrays = [np.zeros(size, "float32") for size in (target.lanes, _CHAINS, shape)]
    seconds = _best(lambda: function(*arrays), budget, target.cores)
    source = np.ones(_COPIED, "uint8")
    copy = np.empty_like(source)
    copying = _best(lambda: np.copyto(copy, source), budget, 1)
    operations = 2.0 * target.cores * _CHAINS * target.lanes * _STEPS
    return Peaks(operations / seconds / 1e9, 2 * _COPIED / copying / 1e9)


def _best(call: Callable[[], Any], budget: float, threads: int) -> float:
    return min(median_seconds(call, budget / 10, threads) for _ in range(10))
