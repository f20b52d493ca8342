"""Timing of kernels on the host: arguments for an operator, and the median time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vtaops.kernels.ops import TensorOp


def random_arrays(op: TensorOp) -> list[Any]:
    """Return random inputs of an operator, and an output array."""
    generator = np.random.default_rng(0)
    arrays: list[Any] = []
    for spec in op.inputs:
        if spec.dtype.startswith("float"):
            arrays.append(generator.random(spec.shape).astype(spec.dtype) + 0.5)
        else:
            arrays.append(generator.integers(0, 100, spec.shape).astype(spec.dtype))
    return [*arrays, np.zeros(op.output.shape, op.output.dtype)]


def median_seconds(call: Callable[[], Any], budget: float, threads: int) -> float:
    """Return the median seconds of a call; see `medians_in_turn`."""
    return medians_in_turn([call], budget, threads)[0]


def medians_in_turn(
    calls: Sequence[Callable[[], Any]], budget: float, threads: int, rounds: int = 3
) -> list[float]:
    """Return the median seconds of each call, for a fair comparison.

    Every round times all calls, so that a slowdown of the machine affects all alike.

    Parameters
    ----------
    calls : sequence of callable
        The calls to time, after one untimed call per round.
    budget : float
        Seconds of measurement per call.
    threads : int
        Number of threads that the calls use. For one, CPU time is measured, which is less sensitive
        to other processes; otherwise wall-clock time.
    rounds : int
        Number of rounds; each takes at least one sample of every call.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, samples, strict=True):
            call()
            end, start = time.perf_counter() + budget / rounds, 0.0
            while not start or time.perf_counter() < end:
                start = clock()
                call()
                times.append(clock() - start)
    return [sorted(times)[len(times) // 2] for times in samples]
