"""Measure a program on a device; its outputs must be those of the functional simulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtaops.base.errors import DeviceError
from vtaops.board.random_programs import random_inputs
from vtaops.hardware.performance import TsimPerformance, launch_seconds
from vtaops.program import Program
from vtaops.runtime import Device, LoadedProgram
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.device import performance_of


@dataclass(frozen=True)
class Measurement:
    """What one launch of a program takes.

    Attributes
    ----------
    seconds : float
        Median time on the host, including a message in each direction.
    performance : TsimPerformance or None
        The counters of the logic; None if it has none.
    """

    seconds: float
    performance: TsimPerformance | None


_REPEATS = 5


def measure(program: Program, device: Device) -> Measurement:
    """Measure a program on random inputs; timed launches transfer no arrays.

    Where the logic counts cycles, one launch is timed, else `_REPEATS`.

    Raises
    ------
    DeviceError
        If an output differs from the simulator's, or the device fails.
    """
    arrays = random_inputs(program, np.random.default_rng(0))
    expected = as_tuple(program.run("fsim", *arrays))
    with LoadedProgram(program, device) as loaded:
        device.reset_stats()
        outputs = as_tuple(loaded.run(*arrays))
        performance = performance_of(device)
        for buffer, output, right in zip(program.outputs, outputs, expected, strict=True):
            if wrong := int(np.count_nonzero(output != right)):
                raise DeviceError(
                    f"{wrong} of {right.size} values of {buffer.name} differ from the simulator's"
                )
        repeats = 1 if performance else _REPEATS
        seconds = launch_seconds(loaded.launch, repeats)
    return Measurement(seconds, performance)
