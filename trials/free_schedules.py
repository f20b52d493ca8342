"""Schedules with every freedom that TVM gives: any order and cut of loops, stages at any loop.

`trials.own_operators.random_schedule` blocks as a tutorial does: tiles of the result, and all else
inside. Here each block is computed at any loop of its reader, or before it as a whole; its loops
are cut and put in any order, sums among rows; a sum is reset at any loop that TVM allows. The
subjects are declarations of one's own, and those of the library's operators, in batches of 1 to 4.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir.schedule.schedule import ScheduleError as TvmScheduleError

import vtaops
from trials.campaign import Campaign, Result, result
from trials.own_operators import RANDOM, Own
from trials.random_cases import random_gemm
from vtaops import HardwareConfig, Program, ops
from vtaops import schedule as vta
from vtaops.base.errors import ScheduleError, ShapeError
from vtaops.lowering import Capacity
from vtaops.machine.isa import AluOp
from vtaops.ops import Operator
from vtaops.ops.declarations import tensors
from vtaops.ops.epilogue import VECTORS
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim

SCOPES = {"inp": vta.inp_scope, "wgt": vta.wgt_scope, "acc": vta.acc_scope}


@dataclass
class Subject:
    """A declaration, what each of its blocks becomes, and a case to run.

    Attributes
    ----------
    config : HardwareConfig
        The hardware.
    tensors : list
        Its arguments, then its result ``res``.
    loads : dict
        The scratchpad of each block that loads.
    stages : dict
        The intrinsic of each block of the ALU.
    sums : dict
        The reset and the step of each block that is a reduction.
    arrays, expected
        Arguments and the result.
    operator : Operator, optional
        The operator, if the library declares it.
    """

    config: HardwareConfig
    tensors: list[te.Tensor]
    loads: dict[str, str]
    stages: dict[str, str]
    sums: dict[str, tuple[str, str]]
    arrays: list[np.ndarray]
    expected: np.ndarray
    operator: Operator | None = None

    def lanes(self, block: str) -> int:
        """Return the innermost axes of a block that are lanes of a tile."""
        multiplies = "vta.gemm" in self.sums.get(block, ("", ""))[1]
        return 3 if multiplies else 2


# -------------------------------------------------------------------------------- subjects


def of_own(own: Own) -> Subject:
    """Return the subject of a declaration of one's own."""
    config = own.config
    stages = {name: vta.alu(config, op, imm) for name, op, imm in own.stages}
    sums = {}
    if own.reduction == "gemm":
        sums["total"] = vta.reset(config), vta.gemm(config)
    elif own.reduction:
        sums["total"] = vta.reset(config, -128), vta.alu_reduction(config, AluOp.MAX)
    return Subject(config, own.arguments, own.loads, stages, sums, own.arrays, own.expected)


def of_operator(op: Operator, config: HardwareConfig, seed: int) -> Subject:
    """Return the subject of an operator, on configurations without extensions."""
    arrays = random_arguments(op, np.random.default_rng(seed))
    product = vta.reset(config), vta.gemm(config)
    loads = {"data_buf": "inp", "kernel_buf": "wgt"}
    sums = {"res_gem" if isinstance(op, ops.Gemm) else "res_conv": product}
    vectors = {f"{name}_buf": "acc" for s in op.stages for name in {*s.operands} & {*VECTORS}}
    return Subject(
        config,
        tensors(op, config),
        {**loads, **vectors},
        {stage.name: vta.alu(config, stage.op, stage.imm) for stage in op.stages},
        sums,
        arrays,
        evaluate(op, arrays),
        op,
    )


def _image(rng: random.Random, kernel: tuple[int, int]) -> dict[str, Any]:
    return {
        "batch": rng.randint(1, 4),
        "height": rng.randint(kernel[0], 9),
        "width": rng.randint(kernel[1], 9),
        "kernel": kernel,
        "strides": (rng.randint(1, 2), rng.randint(1, 2)),
        "padding": rng.randint(0, 1),
    }


def _kernel(rng: random.Random) -> tuple[int, int]:
    return rng.randint(1, 3), rng.randint(1, 3)


def _epilogue(rng: random.Random) -> dict[str, Any]:
    clip = rng.choice([None, (0, 127), (-100, 50)])
    return {"bias": rng.random() < 0.5, "shift": rng.randint(0, 9), "clip": clip}


OPERATORS: dict[str, Callable[[random.Random], Operator]] = {
    "conv2d": lambda rng: ops.Conv2d(
        in_channels=rng.randint(1, 40),
        out_channels=rng.randint(1, 40),
        **_image(rng, _kernel(rng)),
        **_epilogue(rng),
    ),
    "gemm": lambda rng: replace(random_gemm(rng), k=rng.randint(1, 90), n=rng.randint(1, 90)),
}
KINDS = (*(f"own {kind}" for kind in RANDOM), *OPERATORS)


def random_config(rng: random.Random) -> HardwareConfig:
    """Return a configuration without extensions, of one row to four, for the simulator."""
    config = HardwareConfig.load(rng.choice(["pynq", "tiny"]))
    return replace(config, log_batch=rng.randint(0, 2), target="sim", extensions=())


def random_subject(rng: random.Random, kind: str) -> Subject:
    """Return a subject of one of the `KINDS`."""
    config = random_config(rng)
    if kind not in OPERATORS:
        return of_own(RANDOM[kind.removeprefix("own ")](rng, config))
    while True:
        with suppress(ShapeError, ScheduleError):  # of windows, or rows that are skipped
            return of_operator(OPERATORS[kind](rng), config, rng.getrandbits(32))


# ------------------------------------------------------------------------------- schedules


def random_schedule(rng: random.Random, subject: Subject) -> tvm.s_tir.Schedule:
    """Return a schedule drawn at random; it may not fit, or not be one for VTA.

    Raises
    ------
    tvm.s_tir.schedule.ScheduleError
        If TVM does not allow it.
    """
    s = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func(subject.tensors)}))
    blocks = [str(s.get(b).name_hint) for b in s.get_child_blocks(s.get_sblock("root"))]
    resets = {}
    for name in reversed(blocks):
        if name != "res":
            _attach(rng, s, subject, name)
            s.set_scope(s.get_sblock(name), 0, SCOPES[subject.loads.get(name, "acc")])
        if name not in subject.loads or rng.random() < 0.2:
            resets[name] = _shuffle(rng, s, subject, name)
    for name, (reset, step) in subject.sums.items():
        loops = s.get_loops(s.get_sblock(name))
        last = resets[name]
        first = rng.choice([last, last, rng.randint(0, last)])
        s.decompose_reduction(s.get_sblock(name), loops[first])
        vta.tensorize(s, f"{name}_init", reset)
        vta.tensorize(s, f"{name}_update", step)
    for name, intrinsic in subject.stages.items():
        vta.tensorize(s, name, intrinsic)
    return s


def _attach(rng: random.Random, s: tvm.s_tir.Schedule, subject: Subject, name: str) -> None:
    """Compute a block at a loop of its reader, as deep as TVM allows from one drawn; or whole."""
    block = s.get_sblock(name)
    reader = s.get_consumers(block)[0]
    lanes = subject.lanes(str(s.get(reader).name_hint))
    loops = s.get_loops(reader)[:-lanes]
    if not loops or rng.random() < 0.15:
        return
    for depth in range(rng.randrange(len(loops)), -1, -1):
        with suppress(TvmScheduleError):
            s.compute_at(block, loops[depth], preserve_unit_loops=True)
            return


def _shuffle(rng: random.Random, s: tvm.s_tir.Schedule, subject: Subject, name: str) -> int:
    """Cut a block's own loops and put them in any order; return where the first sum stands."""
    block = s.get_sblock(name)
    kinds = [int(axis.iter_type) == 2 for axis in s.get(block).iter_vars]
    before = len(s.get_loops(block)) - len(kinds)
    own = [*zip(s.get_loops(block)[before:], kinds, strict=True)]
    sums = kinds.count(True)
    lanes = own[len(own) - sums - 2 : len(own) - sums]
    rest = own[: len(own) - sums - 2] + own[len(own) - sums :]
    if subject.lanes(name) == 3:
        lanes.append(rest.pop())
    cut = []
    for loop, is_sum in rest:
        extent = int(s.get(loop).extent)
        if extent > 1 and rng.random() < 0.5:
            exact = [n for n in range(1, extent + 1) if extent % n == 0]
            size = rng.choice(exact) if rng.random() < 0.8 else rng.randint(1, extent)
            cut += [(part, is_sum) for part in s.split(loop, [None, size])]
        else:
            cut.append((loop, is_sum))
    rng.shuffle(cut)
    if cut:
        s.reorder(*(loop for loop, _ in (*cut, *lanes)))
    order = [is_sum for _, is_sum in cut]
    return before + (order.index(True) if True in order else len(order))


# ---------------------------------------------------------------------------------- trials


@dataclass(frozen=True)
class Outcome:
    """What became of a case: the text is empty for what is right, else a refusal or a fault."""

    refused: str = ""
    fault: str = ""
    program: Program | None = None


def drawn(rng: random.Random, kind: str) -> tuple[Subject, tvm.s_tir.Schedule]:
    """Return a subject and a schedule of it that TVM allows."""
    while True:
        subject = random_subject(rng, kind)
        with suppress(TvmScheduleError):
            return subject, random_schedule(rng, subject)


def tried(seed: str, kind: str) -> Outcome:
    """Build a random schedule, run it on fsim and compare the result with NumPy."""
    rng = random.Random(f"{kind} {seed}")
    capacity = Capacity(*rng.choices([1, 2], k=3))
    try:
        subject, s = drawn(rng, kind)
        buffers = None if subject.operator is None else subject.operator.buffers(subject.config)
        how = {"buffers": buffers, "capacity": capacity, "capabilities": "fsim"}
        program = vtaops.compile_schedule(s, subject.config, **how)
    except vtaops.errors.ScheduleError as error:
        return Outcome(refused=str(error))
    except vtaops.VTAError as error:
        return Outcome(fault=f"{type(error).__name__}: {error}")
    with Fsim(subject.config, seed=rng.getrandbits(32)) as device:
        found = program.run(device, *subject.arrays)
    wrong = int((found != subject.expected).sum())
    fault = f"{wrong} of {found.size} values are wrong" if wrong else ""
    return Outcome(fault=fault, program=program)


def trial(case: str) -> Result:
    """Try one schedule: ``own conv2d/7``."""
    kind, _, number = case.partition("/")
    found = tried(number, kind)
    outcome = "fault" if found.fault else "refused" if found.refused else "right"
    if outcome == "refused" and "too many" in found.refused:
        outcome = "too large"
    counts = {name: name == outcome for name in ("right", "too large", "refused", "fault")}
    made = result(kind, found.fault, **counts)
    if outcome == "refused":
        reason = re.sub(r"'[^']*'|\d+", "…", found.refused.split(": ")[0])[:90]
        made["counts"][f"refused: {reason}"] = {"refused": 1}
    return made


CAMPAIGN = Campaign(
    lambda count: [f"{kind}/{n}" for n in range(count) for kind in KINDS], trial, count=50
)
