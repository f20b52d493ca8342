"""compile: the whole way from an operator description to a verified Program.

`emit` goes half the way, for programs of several operators: `vtaops.lowering.link` joins what it
returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from vtaops.capabilities import PRESETS, Capabilities, Feature, find, of_target
from vtaops.config import HardwareConfig
from vtaops.errors import ScheduleError, ShapeError, UnsupportedError
from vtaops.lowering import Border, Fragment, LoweringOptions, link, whole
from vtaops.lowering import emit as emit_module
from vtaops.ops import Operator
from vtaops.program import OperatorRecord, Program
from vtaops.schedule import Tiling, default_tiling


def compile(
    op: Operator,
    config: HardwareConfig | str | Path = "pynq",
    tiling: Tiling | None = None,
    *,
    capabilities: Capabilities | str | None = None,
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
    capabilities : Capabilities or str, optional
        What the device can execute, or a name: full, fsim, hls-2020, chisel, portable; by default
        what the target of the configuration can.
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
    UnsupportedError
        If VTA, or this device, cannot run the operator.
    VerificationError
        If the compiler has produced a wrong program: a defect of vtaops.
    """
    check_arguments(op, tiling)
    able = _capabilities(config, capabilities)
    fragment = emit(op, config, tiling, capabilities=able)
    program = link([whole(fragment)], fragment.buffers, {"capabilities": able.name})
    if verify:
        program.verify(able)
    return program


def emit(
    op: Operator,
    config: HardwareConfig | str | Path = "pynq",
    tiling: Tiling | None = None,
    *,
    capabilities: Capabilities | str | None = None,
    borders: Mapping[str, Border] | None = None,
) -> Fragment:
    """Return the operations of an operator, to be joined with those of others to a program.

    Parameters
    ----------
    op, config, tiling, capabilities
        As `compile`.
    borders : mapping, optional
        For buffers of the operator, by name: what surrounds their image in DRAM.

    Raises
    ------
    ConfigError, ScheduleError, UnsupportedError
        As `compile`.
    ShapeError
        If a border is asked for around something that is no image of the operator.
    """
    check_arguments(op, tiling)
    hardware = _hardware(config)
    able = _capabilities(hardware, capabilities)
    _check_supported(op, hardware, able)
    chosen = tiling or default_tiling(op, hardware)
    record = OperatorRecord(
        kind=type(op).__name__,
        parameters=asdict(op),  # type: ignore[call-overload]
        tiling=asdict(chosen),
        macs=op.macs,
    )
    depth = able.micro_op_depth(hardware)
    options = LoweringOptions.of(chosen, alu_passes=bool(op.stages), micro_op_depth=depth)
    options = replace(options, borders=tuple(sorted((borders or {}).items())))
    module = op.lower(hardware, chosen)
    return emit_module(module, op.buffers(hardware), hardware, options, record)


def _hardware(config: HardwareConfig | str | Path) -> HardwareConfig:
    return config if isinstance(config, HardwareConfig) else HardwareConfig.load(config)


def _capabilities(
    config: HardwareConfig | str | Path, capabilities: Capabilities | str | None
) -> Capabilities:
    return of_target(_hardware(config)) if capabilities is None else find(capabilities)


def check_arguments(op: Operator, tiling: Tiling | None) -> None:
    """Refuse what is no operator, or no tiling.

    Raises
    ------
    ShapeError, ScheduleError
        Naming what was given.
    """
    if not isinstance(op, Operator):
        raise ShapeError(f"the operator is {op!r}; give a description such as vtaops.Gemm(m=1)")
    if not isinstance(tiling, Tiling | None):
        raise ScheduleError(f"the tiling is {tiling!r}; give a vtaops.Tiling")


def _check_supported(op: Operator, config: HardwareConfig, able: Capabilities) -> None:
    for feature in op.features:
        if not able.has(feature):
            raise UnsupportedError(
                f"{op.summary} needs {feature.value!r}, which {able.name} lacks; it runs on "
                f"{', '.join(c.name for c in PRESETS.values() if c.has(feature))}"
            )
    if config.batch > 1 and not able.has(Feature.ALU_BATCH):
        raise UnsupportedError(
            f"{able.name} has an ALU for tiles of one row; {config.name} has {config.batch}"
        )
