"""compile: translate an operator description to a verified Program.

`emit_operator` stops halfway, for programs of several operators: `vtaops.lowering.link` joins its
results.
"""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter

from vtaops import lowering
from vtaops.base.errors import ProgramError, ScheduleError, ShapeError, UnsupportedError
from vtaops.base.names import checked_call
from vtaops.lowering import Fragment, LoweringOptions, Strides
from vtaops.machine.capabilities import PRESETS, Capabilities, Feature, of_target
from vtaops.machine.config import POST_ROWS, HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.rows import RowOperator
from vtaops.program import OperatorRecord, Program
from vtaops.program.statistics import count_instructions
from vtaops.schedule import Tiling, check_tiling, default_tiling

_log = logging.getLogger(__name__)


@checked_call
def compile(
    op: Operator,
    config: HardwareConfig | str | Path = "pynq",
    tiling: Tiling | None = None,
    *,
    capabilities: Capabilities | str | None = None,
    verify: bool = True,
    prove: bool | None = None,
) -> Program:
    """Compile an operator for a hardware configuration.

    Parameters
    ----------
    op : Operator
        For example ``vtaops.Conv2d(...)``.
    config : HardwareConfig, str or Path
        The configuration, its name, or a JSON file.
    tiling : Tiling, optional
        Blocking and virtual threads; by default the best by an estimate of its cycles
        (`vtaops.schedule.default_tiling`). `vtaops.compiler.search` compiles and times more.
    capabilities : Capabilities or str, optional
        Capabilities of the device, or their name: full, fsim, hls-2020, chisel, portable; by
        default those of the configuration's target.
    verify : bool
        Whether to prove the program free of races, deadlocks and out-of-bounds accesses.
    prove : bool, optional
        Whether to prove that it computes `op` for every input (`vtaops.prove`); its metadata then
        has the certificate under ``proof``, or under ``unproven`` the reason why there is none. By
        default if it is verified and executes at most `PROVEN` micro-ops: that costs no more than
        compiling.

    Returns
    -------
    Program
        Ready to save, or to run on any device with this configuration.

    Raises
    ------
    ConfigError
        If the configuration does not exist.
    ScheduleError
        If the tiling does not suit the operator or overflows a scratchpad.
    UnsupportedError
        If VTA, or the device, cannot run the operator.
    VerificationError, NotEquivalent
        If the compiler produced a wrong program: a bug in vtaops.
    """
    check_arguments(op, tiling)
    begin = perf_counter()
    config = HardwareConfig.of(config)
    supported = of_target(config, capabilities)
    fragment = emit_operator(op, config, tiling, capabilities=supported)
    program = judged(linked(fragment, supported), supported, prove, verify)
    seconds = perf_counter() - begin
    level = logging.INFO if verify else logging.DEBUG  # a search compiles many and verifies none
    _log.log(level, "compiled %s: %d instructions in %.2f s", op.summary, len(program), seconds)
    return program


def emit_operator(
    op: Operator,
    config: HardwareConfig | str | Path = "pynq",
    tiling: Tiling | None = None,
    *,
    capabilities: Capabilities | str | None = None,
    strides: Mapping[str, Strides] | None = None,
    rows: int = POST_ROWS,
) -> Fragment:
    """Return the operations of an operator, for linking with others to a program.

    Parameters
    ----------
    op, config, tiling, capabilities
        As `compile`.
    strides : mapping, optional
        Strides of buffers that are parts of larger images in DRAM, by buffer name.
    rows : int
        Maximum rows of post-processing parameters to use.

    Raises
    ------
    ConfigError, ScheduleError, UnsupportedError
        As `compile`.
    ShapeError
        If strides are given for a buffer that is neither image nor matrix.
    """
    check_arguments(op, tiling)
    hardware = HardwareConfig.of(config)
    supported = of_target(hardware, capabilities)
    _check_supported(op, hardware, supported)
    chosen = tiling or default_tiling(op, hardware)
    meaning = asdict(op)
    meaning.pop("weight_bits", None)  # the layout of the buffer says it
    record = OperatorRecord("", type(op).__name__, meaning, asdict(chosen), op.macs)
    depth = supported.micro_op_depth(hardware)
    options = LoweringOptions.of(chosen, alu_passes=bool(op.stages), micro_op_depth=depth)
    options = replace(
        options,
        strides=tuple(sorted((strides or {}).items(), key=lambda item: item[0])),
        capacity=replace(options.capacity, rows=rows),
    )
    if isinstance(op, RowOperator):
        return lowering.emit_rows(op, hardware, dict(options.strides), record)
    check_tiling(op, hardware, chosen)
    tree = lowering.build_tree(op, hardware, chosen)
    return lowering.emit(tree, op.buffers(hardware), hardware, options, record)


PROVEN = 1 << 11
"""Micro-op executions up to which a program is proven by default: there, of 18 named layers on two
configurations, a proof took 0.4 to 1.3 times the CPU seconds of compiling (2.3 in two dense ones),
and with 25,000 two to five times."""


def linked(fragment: Fragment, capabilities: Capabilities) -> Program:
    """Link one fragment to a program."""
    parts, metadata = [lowering.whole(fragment)], {"capabilities": capabilities.name}
    return lowering.link(parts, fragment.buffers, metadata)


def judged(
    program: Program,
    capabilities: Capabilities,
    prove: bool | None,
    verify: bool,
    against: Operator | None = None,
) -> Program:
    """Return a program that states its proof or why it has none; `prove` None decides by cost.

    A proof verifies the program; without one, `verify` decides.
    """
    wanted = verify if prove is None else prove
    counted = count_instructions(program.config, program.instructions)
    executed = counted.gemm_counter + counted.alu_counter
    costly = prove is None and executed > PROVEN
    if verify and (costly or not wanted):
        program.verify(capabilities)
    if not wanted:
        return program
    if costly:
        reason = f"not tried: it executes {executed:,} micro-ops; program.prove() takes seconds"
        return _stating(program, "unproven", reason)
    proof = program.prove(against=against, capabilities=capabilities)
    if not proof.complete:
        return _stating(program, "unproven", proof.unproven[0])
    if against is None:
        return program.certified(proof)
    return _stating(program, "proven", proof.claims[0])


def _stating(program: Program, key: str, text: str) -> Program:
    return replace(program, metadata={**program.metadata, key: text})


def check_arguments(op: Operator, tiling: Tiling | None) -> None:
    """Reject a non-operator or a non-tiling.

    Raises
    ------
    ShapeError, ScheduleError
        If so; the message quotes the argument.
    """
    if not isinstance(op, Operator):
        raise ShapeError(  # briefly, since a function of TIR is a page
            f"the operator is {reprlib.repr(op)}; give a description such as "
            f"vtaops.Gemm(m=1, n=8, k=8)"
        )
    if not isinstance(tiling, Tiling | None):
        raise ScheduleError(f"the tiling is {tiling!r}; give a vtaops.Tiling")
    _check_sizes(op)


@lru_cache(maxsize=1024)
def _check_sizes(op: Operator) -> None:
    """Reject tensors beyond VTA's address space; shapes do not depend on the configuration."""
    try:
        op.buffers(HardwareConfig())
    except ProgramError as error:
        raise ShapeError(f"{op.summary}: {error}") from error


def _check_supported(op: Operator, config: HardwareConfig, capabilities: Capabilities) -> None:
    for feature in sorted(op.features, key=lambda feature: feature.value):
        if not capabilities.has(feature):
            raise UnsupportedError(
                f"{op.summary} needs {feature.value!r}, which {capabilities.name} lacks; it runs "
                f"on {', '.join(c.name for c in PRESETS.values() if c.has(feature))}"
            )
    for extension, what in op.epilogue.needs.items() if op.epilogue else ():
        if not config.has(extension):
            raise UnsupportedError(
                f"{op.summary} has {what}; {config.name} has no extension {extension.value!r}, "
                f"which they need"
            )
    if config.batch > 1 and not capabilities.has(Feature.ALU_BATCH):
        raise UnsupportedError(
            f"{capabilities.name} has an ALU for tiles of one row; {config.name} has {config.batch}"
        )
