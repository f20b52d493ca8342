"""The simulation of a program on the accelerator, executed by ``sim/timing``.

Fetch, load, compute and store are processes around one DRAM port, coupled only by tokens,
instruction queues, and the port. The loop is C++ (the module ``vtaops._timing``); this file passes
it the work and the machine, and names its results.

All times are cycle numbers from the launch; intervals are half-open.
"""

from __future__ import annotations

from typing import Any

import vtaops._timing as _timing
from vtaops.base.errors import ConfigError, DeadlockError
from vtaops.machine.config import INSTRUCTION_BYTES, Extension, HardwareConfig, Memory
from vtaops.program.program import Program
from vtaops.program.timing.parameters import Sdram, TimingParameters
from vtaops.program.timing.pipeline import output_delay
from vtaops.program.timing.work import InstructionCosts, work_of

PROCESSES = ("fetch", "load", "compute", "store")
"""Processes, and clients of the port, in order of priority at the port."""

WEIGHTS = "weights"
"""What the load unit reads over a port of its own, as a client."""


def traced(
    program: Program, parameters: TimingParameters, keep: bool
) -> tuple[InstructionCosts, dict[str, Any]]:
    """Simulate a program.

    Parameters
    ----------
    program : Program
        The program.
    parameters : TimingParameters
        The machine.
    keep : bool
        Whether to keep the history of each instruction.

    Returns
    -------
    work : InstructionCosts
        The cost of each instruction.
    found : dict
        What ``vtaops._timing`` found: ``end``, the cycle in which FINISH completes (without FINISH,
        all of it); ``compute_work``; by client of the port ``beats`` (the last:
        over that of the weights), and ``contention``; and, if kept, the rows of ``lives``,
        ``stretches`` and ``grants``.

    Raises
    ------
    ConfigError
        If the machine's longest burst is shorter than an instruction.
    DeadlockError
        If the units deadlock.
    """
    if not isinstance(parameters, TimingParameters):
        raise ConfigError(f"timing is {parameters!r}; it must be TimingParameters")
    width = parameters.port_width(program.config)
    burst_bytes = width * parameters.burst_beats
    if parameters.sdram and program.config.weight_port:
        raise ConfigError(
            f"configuration {program.config.name!r} has WEIGHT_PORT 1; the SDRAM has one port"
        )
    if burst_bytes < INSTRUCTION_BYTES:
        raise ConfigError(
            f"a burst of {parameters.burst_beats} beats of {width} bytes holds no "
            f"instruction, which has {INSTRUCTION_BYTES} bytes"
        )
    work = work_of(program, width)
    machine = _machine(parameters, program.config) | {"left_out": program.left_out}
    trace: dict[str, Any] = _timing.simulate(vars(work), machine, keep)
    stuck = zip(PROCESSES, trace["stuck"], strict=True)
    if waits := [name for name, event in stuck if event >= 0]:
        raise DeadlockError(
            f"the program does not end: {' and '.join(waits)} wait forever; "
            f"Program.verify names the token"
        )
    return work, trace


def _machine(parameters: TimingParameters, config: HardwareConfig) -> dict[str, int | float | None]:
    port_bytes = parameters.port_width(config)
    sdram = parameters.sdram
    return {
        **vars(parameters),
        **(vars(sdram) if sdram else dict.fromkeys(Sdram.__dataclass_fields__, 0)),
        "beat_words": port_bytes // sdram.word_bytes if sdram else 0,
        "port_bytes": port_bytes,
        "beat_micro_ops": port_bytes // config.dram_element_bytes(Memory.UOP),
        "instruction_bytes": INSTRUCTION_BYTES,
        "compute_depth": parameters.pipeline_depth(config),
        "output_delay": output_delay(config),
        "forwards": int(config.has(Extension.FORWARD)),
        "weight_port": config.weight_port,
        "beat_cycles": port_bytes / parameters.bandwidth if parameters.bandwidth else 0.0,
    }
