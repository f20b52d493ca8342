"""The simulation: a program on its way through the accelerator, followed by ``sim/timing``.

Fetch, load, compute and store are processes around one DRAM port; nothing couples them but tokens,
the queues of instructions, and the port. The loop is C++ (the module ``vtaops._timing``); this file
hands it the work and the machine, and gives names to what it found.

All times are cycle numbers from the launch; an interval is half-open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import vtaops._timing as _timing
from vtaops.base.errors import ConfigError, DeadlockError
from vtaops.machine.config import INSTRUCTION_BYTES, HardwareConfig, Memory
from vtaops.machine.isa import Unit
from vtaops.program.program import Program
from vtaops.program.timing.parameters import TimingParameters
from vtaops.program.timing.pipeline import output_delay
from vtaops.program.timing.work import work_of

if TYPE_CHECKING:
    from vtaops.program.timing.timeline import Timeline

FETCH, LOAD, COMPUTE, STORE = range(4)
"""Processes, and clients of the port, in the order in which the port prefers them."""

PROCESSES = ("fetch", "load", "compute", "store")

_CHANNELS = (
    *("a token of the load unit", "a token of the store unit"),
    *("a token of the compute unit", "a token of the compute unit"),
    *("an instruction", "an instruction", "an instruction"),
    *(f"a place in the queue of the {unit.name.lower()} unit" for unit in Unit),
)
"""What a process may wait for."""

Interval = tuple[float, float]

Grant = tuple[int, int, float, float]
"""A use of the port: client, index of the instruction, start and end (cycles, half-open)."""


@dataclass(slots=True)
class Life:
    """What happened to one instruction, and when.

    Attributes
    ----------
    queue_stall : float
        Cycles for which the queue of its unit had no place.
    dispatched : float
        When the fetch handed it over.
    prev_token, next_token : float
        When the token that it takes from either neighbour was available; 0 where it takes none.
    taken : float
        When it left the queue of its unit, with its tokens.
    end : float
        Of its work.
    completed : float
        When its tokens are available to the neighbours.
    work : list of (float, float)
        The intervals in which it worked.
    """

    queue_stall: float
    dispatched: float
    prev_token: float
    next_token: float
    taken: float
    end: float
    completed: float
    work: list[Interval] = field(default_factory=list, init=False)


class Simulation:
    """What happened to a program on a machine.

    Attributes
    ----------
    work : Work
        What each instruction costs.
    width : int
        Bytes of a beat of the port.
    compute_depth : int
        Pipeline stages behind the issue of a micro-op.
    end : float
        When FINISH completes; without FINISH, all of it.
    compute_work : int
        Cycles that the compute unit works, if nothing holds up its loads.
    beats : list of int
        Beats that the port served, by client.
    contention : list of float
        Cycles that requests waited because the port served others, by client.

    Raises
    ------
    ConfigError
        If the longest burst of the machine holds no instruction.
    DeadlockError
        If the units wait for each other for ever.
    """

    def __init__(self, program: Program, parameters: TimingParameters, keep: bool) -> None:
        config = program.config
        self.parameters = parameters
        self.width = parameters.port_width(config)
        burst_bytes = self.width * parameters.burst_beats
        if burst_bytes < INSTRUCTION_BYTES:
            raise ConfigError(
                f"a burst of {parameters.burst_beats} beats of {self.width} bytes holds no "
                f"instruction, which has {INSTRUCTION_BYTES} bytes"
            )
        self.work = work_of(program, self.width, burst_bytes)
        self.compute_depth = parameters.pipeline_depth(config)
        machine = _machine(parameters, config)
        self._found = _timing.simulate(vars(self.work), machine, keep)
        stuck = [
            f"{name} waits for {_CHANNELS[channel]}"
            for name, channel in zip(PROCESSES, self._found["stuck"], strict=True)
            if channel >= 0
        ]
        if stuck:
            raise DeadlockError(f"the program does not end: {'; '.join(stuck)}")
        self.end: float = self._found["end"]
        self.compute_work: int = self._found["compute_work"]
        self.beats: list[int] = self._found["beats"]
        self.contention: list[float] = self._found["contention"]

    @cached_property
    def lives(self) -> list[Life]:
        """What happened to each instruction, where it was kept."""
        lives = [Life(*times) for times in _rows(self._found["lives"])]
        for index, start, end in _rows(self._found["stretches"]):
            lives[int(index)].work.append((start, end))
        return lives

    @property
    def grants(self) -> list[Grant]:
        """Every use of the port, where it was kept."""
        return [(int(client), int(i), s, e) for client, i, s, e in _rows(self._found["grants"])]


def _machine(parameters: TimingParameters, config: HardwareConfig) -> dict[str, int | float | None]:
    """Return the numbers of a machine, those that the configuration gives among them."""
    port_bytes = parameters.port_width(config)
    return {
        **vars(parameters),
        "port_bytes": port_bytes,
        "beat_micro_ops": port_bytes // config.dram_element_bytes(Memory.UOP),
        "instruction_bytes": INSTRUCTION_BYTES,
        "compute_depth": parameters.pipeline_depth(config),
        "output_delay": output_delay(config),
        "forwards": int("forward" in config.extensions),
        "beat_cycles": parameters.budget_cycles(config),
    }


def _rows(table: npt.NDArray[np.float64]) -> list[list[float]]:
    rows: list[list[float]] = table.tolist()
    return rows


def simulate(
    program: Program, parameters: TimingParameters | None = None, *, events: bool = True
) -> Timeline:
    """Follow a program through the machine that `parameters` describe.

    Parameters
    ----------
    program : Program
        Any program that verifies.
    parameters : TimingParameters, optional
        By default those of ``tsim``.
    events : bool
        Whether to keep what happened to each instruction. Without, the result knows the cycles
        and the use of the port only.

    Raises
    ------
    ConfigError
        If the longest burst of the machine holds no instruction.
    DeadlockError
        If the units wait for each other for ever.
    """
    from vtaops.program.timing.timeline import Timeline

    parameters = parameters or TimingParameters()
    return Timeline(program, parameters, Simulation(program, parameters, events))
