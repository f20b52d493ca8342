"""Timing of kernels on the host: arrays of an operator, and the median time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from vtaops.kernels.ops import TensorOp


def random_arrays(op: TensorOp) -> list[Any]:
    """Return random inputs of an operator, and an array for its output."""
    generator = np.random.default_rng(0)
    arrays: list[Any] = []
    for spec in op.inputs:
        if spec.dtype.startswith("float"):
            arrays.append(generator.random(spec.shape).astype(spec.dtype) + 0.5)
        else:
            arrays.append(generator.integers(0, 100, spec.shape).astype(spec.dtype))
    return [*arrays, np.zeros(op.output.shape, op.output.dtype)]


def median_seconds(call: Callable[[], Any], budget: float, threads: int) -> float:
    """Return the median seconds of a call; at least three samples.

    Parameters
    ----------
    call : callable
        What is timed; it is called once before.
    budget : float
        Seconds of measurement.
    threads : int
        That the call uses. CPU time of one, which other work on the machine disturbs less, else
        wall-clock time.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    samples: list[float] = []
    call()
    end = time.perf_counter() + budget
    while len(samples) < 3 or time.perf_counter() < end:
        start = clock()
        call()
        samples.append(clock() - start)
    return sorted(samples)[len(samples) // 2]
