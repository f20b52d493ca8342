"""Fit the DRAM parameters of the timing model to a device, from the cycles of a dozen launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.board.measure import measure
from vtaops.compiler.driver import compile
from vtaops.ops import Conv2d, Elementwise, Gemm, MaxPool2d, Operator
from vtaops.program import Program
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Device
from vtaops.runtime.device import capabilities_of

PROBES: tuple[Operator, ...] = (
    Gemm(m=1, n=16, k=16),
    Gemm(m=1, n=256, k=256),
    Gemm(m=1, n=512, k=512),
    Gemm(m=16, n=64, k=64),
    Gemm(m=64, n=64, k=256),
    Conv2d(in_channels=64, out_channels=64, height=28, width=28, kernel=1),
    Conv2d(in_channels=16, out_channels=16, height=56, width=56, kernel=1),
    Conv2d(in_channels=32, out_channels=32, height=14, width=14, kernel=3, padding=1),
    Conv2d(in_channels=128, out_channels=128, height=7, width=7, kernel=3, padding=1),
    Elementwise(function="add", shape=(1, 64, 28, 28), shift=1),
    Elementwise(function="add", shape=(1, 16, 7, 7), shift=1),
    MaxPool2d(channels=32, height=28, width=28, kernel=2),
)
"""Launches bound by latency, by bandwidth, and by neither."""


@dataclass(frozen=True)
class ProbedLaunch:
    """A launch.

    Attributes
    ----------
    name : str
        Summary of the operator.
    cycles : float
        Cycles on the device; times measured by the host are converted to cycles.
    before, after : float
        Cycles by the timing model with the initial and with the fitted parameters.
    """

    name: str
    cycles: float
    before: float
    after: float


@dataclass(frozen=True)
class Calibration:
    """The timing model of a device.

    Attributes
    ----------
    parameters : TimingParameters
        The fitted ones: for `Program.cycles`, and as options ``--latency`` and ``--bandwidth``.
    overhead : float
        Additional cycles of each launch; 0 if the logic counts cycles.
    probes : tuple of ProbedLaunch
        The launches.
    """

    parameters: TimingParameters
    overhead: float
    probes: tuple[ProbedLaunch, ...]

    def error(self, name: str) -> tuple[float, float]:
        """Return the mean and the greatest relative error of ``"before"`` or ``"after"``."""
        errors = [abs(getattr(p, name) / p.cycles - 1) for p in self.probes]
        return fmean(errors), max(errors)


def calibrate(
    device: Device,
    *,
    clock_mhz: float = 100.0,
    start: TimingParameters | None = None,
) -> Calibration:
    """Measure `PROBES` on a device, and fit latency and bandwidth of the model's DRAM to them.

    Parameters
    ----------
    device : Device
        The device; if its logic does not count cycles, the host times the launches.
    clock_mhz : float
        Clock of the logic, to convert times to cycles.
    start : TimingParameters, optional
        Parameters that are not fitted; with an `Sdram`, only latency is fitted.

    Raises
    ------
    DeviceError
        If a launch fails, or its result is not the simulator's.
    """
    measured = {}
    for op in tracked("probes", PROBES, lambda op: op.summary):
        program = compile(op, device.config, capabilities=capabilities_of(device))
        measured[op.summary] = program, measure(program, device)
    samples = {
        name: (program, m.performance.cycles if m.performance else 1e6 * clock_mhz * m.seconds)
        for name, (program, m) in measured.items()
    }
    counted = all(m.performance for _, m in measured.values())
    return fit(samples, start or TimingParameters(), has_overhead=not counted)


def fit(
    launches: Mapping[str, tuple[Program, float]],
    start: TimingParameters,
    *,
    has_overhead: bool = False,
) -> Calibration:
    """Return the parameters that bring the model's cycles closest to those of a device.

    Least squares of the relative errors: the best latency, each with its best bandwidth.

    Parameters
    ----------
    launches : mapping
        Program and cycles by name.
    start : TimingParameters
        Parameters that are not fitted.
    has_overhead : bool
        Whether every launch has the same additional cycles.
    """
    programs, cycles = zip(*launches.values(), strict=True)
    wanted = np.array(cycles, np.float64)
    most = 2.0 * start.port_width(programs[0].config)  # a beat a cycle in each direction
    least = start.sdram.return_latency if start.sdram else 0

    def point(log_latency: float, halvings: float) -> TimingParameters:
        bandwidth = start.bandwidth if start.sdram else most * 2.0**-halvings
        limit = None if bandwidth == most else bandwidth
        return replace(start, dram_latency=max(least, round(2**log_latency)), bandwidth=limit)

    @cache
    def forecast(parameters: TimingParameters) -> tuple[Array, float]:
        model = np.array([program.cycles(parameters) for program in programs], np.float64)
        mean = np.average(wanted - model, weights=wanted**-2.0)  # least squares, too
        overhead = max(0.0, float(mean)) if has_overhead else 0.0
        return model + overhead, overhead

    def cost(latency: float, halvings: float) -> float:
        return float(np.square(forecast(point(latency, halvings))[0] / wanted - 1).sum())

    def halvings(latency: float) -> float:
        """Return the best bandwidth beside a latency; without a limit if that is as good."""
        if start.sdram:
            return 0.0
        return min(0.0, _lowest(partial(cost, latency), 0.0, 7.0, 10), key=partial(cost, latency))

    latency = _lowest(lambda at: cost(at, halvings(at)), 1.0, 10.0, 12)
    parameters = point(latency, halvings(latency))
    (before, _), (after, overhead) = forecast(start), forecast(parameters)
    rows = zip(launches, cycles, before.tolist(), after.tolist(), strict=True)
    return Calibration(parameters, overhead, tuple(ProbedLaunch(*row) for row in rows))


def _lowest(cost: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """Return the minimum of a unimodal function; each step halves the interval."""
    known: Callable[[float], float] = cache(cost)
    for _ in range(steps):
        points = np.linspace(high, low, 5).tolist()  # of equal points the higher
        place = points.index(min(points, key=known))
        high, low = points[max(place - 1, 0)], points[min(place + 1, 4)]
    return float(min(points, key=known))
