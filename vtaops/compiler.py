"""compile: the whole way from an operator description to a verified Program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from vtaops.config import HardwareConfig
from vtaops.lowering import Capacity, lower
from vtaops.ops import Operator
from vtaops.program import Program
from vtaops.schedule import Tiling, default_tiling


def compile(
    op: Operator,
    config: HardwareConfig | str | Path = "pynq",
    tiling: Tiling | None = None,
    *,
    verify: bool = True,
) -> Program:
    """Compile an operator for a hardware configuration.

    Parameters
    ----------
    op : Operator
        For example ``vtaops.Conv2d(...)``.
    config : HardwareConfig, str or Path
        The configuration, its name, or a JSON file.
    tiling : Tiling, optional
        Blocking and virtual threads; by default the best by a bound on cycles.
    verify : bool
        Whether to prove the result free of races, deadlocks and accesses out of bounds.

    Returns
    -------
    Program
        Ready to save, or to run on any device of this configuration.

    Raises
    ------
    ConfigError
        If there is no such configuration.
    ScheduleError
        If the tiling does not suit the operator or overflows a scratchpad.
    VerificationError
        If the compiler has produced a wrong program: a defect of vtaops.
    """
    hardware = config if isinstance(config, HardwareConfig) else HardwareConfig.load(config)
    chosen = tiling or default_tiling(op, hardware)
    metadata = {
        "operator": type(op).__name__,
        "parameters": asdict(op),  # type: ignore[call-overload]
        "tiling": asdict(chosen),
        "macs": op.macs,
    }
    capacity = Capacity(chosen.inp_tiles, chosen.wgt_tiles, chosen.acc_tiles)
    program = lower(op.lower(hardware, chosen), op.buffers(hardware), hardware, metadata, capacity)
    if verify:
        program.verify()
    return program
