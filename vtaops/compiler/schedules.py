"""compile_schedule: translate a schedule of one's own to a verified Program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tvm

from vtaops import lowering
from vtaops.base.errors import ScheduleError, ShapeError, VTAError
from vtaops.base.names import checked_call
from vtaops.compiler.driver import judged, linked
from vtaops.lowering import Capacity, LoweringOptions
from vtaops.lowering.options import ONE_TILE_EACH
from vtaops.lowering.tree.nodes import Tree, leaves
from vtaops.lowering.tree.tir import arguments, parse
from vtaops.machine.capabilities import Capabilities, of_target
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.program import Buffer, OperatorRecord, Program, Role
from vtaops.schedule.flatten import flatten, named


@checked_call
def compile_schedule(
    schedule: tvm.s_tir.Schedule | tvm.IRModule,
    config: HardwareConfig | str | Path = "pynq",
    *,
    buffers: Sequence[Buffer] | None = None,
    capacity: Capacity = ONE_TILE_EACH,
    capabilities: Capabilities | str | None = None,
    verify: bool = True,
    against: Operator | None = None,
    prove: bool | None = None,
) -> Program:
    """Build a custom schedule of any te declaration on packed tensors, with our intrinsics.

    Parameters
    ----------
    schedule : tvm.s_tir.Schedule or tvm.IRModule
        One function ``main``, whose blocks are copies between DRAM and a scratchpad, or are
        tensorized with `vtaops.schedule.gemm`, `reset` and `alu`.
    config : HardwareConfig, str or Path
        The configuration that its tiles are for.
    buffers : sequence of Buffer, optional
        Logical shape and layout of each argument, in order: `Program.run` packs and unpacks by
        the layout. By default arguments are packed tensors, as declared. For the schedule of an
        operator, use ``op.buffers(config)``.
    capacity : Capacity
        Tiles of each operand that a virtual thread holds at once; a load is omitted if its tile is
        still resident.
    capabilities : Capabilities or str, optional
        Capabilities of the device; by default those of the configuration's target.
    verify : bool
        Whether to prove the program free of races, deadlocks and out-of-bounds accesses.
    against : Operator, optional
        What the schedule computes, with these arguments in this order. Nothing else says what a
        schedule of one's own should compute.
    prove : bool, optional
        Whether to prove that it computes `against` for every input; its metadata then says
        ``proven``, or under ``unproven`` why not. By default as for `compile`, if `against` is
        given.

    Examples
    --------
    >>> program = vtaops.compile_schedule(s, "pynq")
    >>> result = program.run(vtaops.runtime.Fsim("pynq"), data_packed, kernel_packed)

    Raises
    ------
    ScheduleError
        If a block maps to no VTA instruction, a scratchpad overflows, or a copy crosses lanes; the
        message names the block and a remedy.
    ShapeError
        If `buffers` do not match the function.
    VerificationError
        If the program needs a feature that the device lacks, or reads undefined data.
    NotEquivalent
        If it computes something else than `against`.
    """
    hardware = HardwareConfig.of(config)
    supported = of_target(hardware, capabilities)
    module = _module(schedule)
    function = module["main"]
    arguments(function, set())  # of known shapes, or TVM fails
    try:
        flat = flatten(named(module))
    except VTAError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ScheduleError(f"TVM cannot lower the schedule: {reason[0][:300]}") from error
    options = LoweringOptions(capacity, supported.micro_op_depth(hardware))
    tree = parse(flat["main"], hardware)
    declared = arguments(function, _written(tree))
    placed = declared if buffers is None else _checked_buffers(tuple(buffers), declared)
    fragment = lowering.emit(tree, placed, hardware, options, OperatorRecord(kind="schedule"))
    prove = False if against is None and not prove else prove
    return judged(linked(fragment, supported), supported, prove, verify, against)


def _written(tree: Tree) -> set[str]:
    """Return the names of the arguments that a program writes."""
    written = {leaf.dst.buffer.name for leaf in leaves(tree.body) if not leaf.dst.buffer.scratchpad}
    if not written:
        raise ScheduleError(
            "no argument is written: a program stores its result in DRAM, where te's last stage "
            "lies unless its scope was set"
        )
    return written


def _module(schedule: tvm.s_tir.Schedule | tvm.IRModule) -> tvm.IRModule:
    module = schedule.mod if isinstance(schedule, tvm.s_tir.Schedule) else schedule
    if not isinstance(module, tvm.IRModule):
        raise ScheduleError(
            f"the schedule is a {type(schedule).__name__}; give a Schedule, such as "
            "vtaops.schedule.Schedule([a, b, c]), or an IRModule"
        )
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    if names != ["main"]:
        raise ScheduleError(f"the module has the functions {names}; it must have one, main")
    return module


def _checked_buffers(given: tuple[Buffer, ...], declared: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    found, wanted = ([_described(buffer) for buffer in each] for each in (given, declared))
    if found != wanted:
        raise ShapeError(
            f"buffers are {', '.join(found)} when packed; the function takes {', '.join(wanted)}: "
            f"{', '.join(buffer.name for buffer in declared)}"
        )
    return tuple(replace(own, name=its.name) for own, its in zip(given, declared, strict=True))


def _described(buffer: Buffer) -> str:
    kind = "result" if buffer.role is Role.OUTPUT else "argument"
    return f"{kind} {buffer.dtype}{[*buffer.packed_shape]}"
