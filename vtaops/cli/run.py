"""The commands of `vtaops` for operators and programs: run, disasm, asm, verify, tune.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from typer import Argument, Option
from typer.core import TyperGroup

from vtaops import ops
from vtaops.base.errors import DeviceError, ShapeError, UnsupportedError
from vtaops.base.files import exists
from vtaops.base.names import suggestion
from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.cli.options import (
    Commands,
    Config,
    Device,
    complete_devices,
    complete_layers,
    parse_tiling,
    progress_bar,
    read_npy,
    say,
    show,
    to_write,
    write_arrays,
    written,
)
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program

if TYPE_CHECKING:
    from vtaops.compiler.search import Measure
    from vtaops.ops import Operator
    from vtaops.schedule.workloads import Workload


class OperatorsOrModels(TyperGroup):
    """Commands of `vtaops run`; a file in place of a command's name is a model."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in self.commands and ("." in name or exists(name)):
            args = ["model", *args]
        return super().resolve_command(ctx, args)


run_app = Commands(
    name="run",
    cls=OperatorsOrModels,
    help="Run one operator, or a network (vtaops run MODEL), on a device.",
)


KINDS = [name for name in ops.__all__ if name != "Operator"]
"""The names of all operators."""

ShownStage = Literal["tir", "schedule", "lowered", "program"]
"""Compiler stages that `--show` prints."""


Show = Annotated[
    ShownStage | None, Option("--show", help="Print a compiler stage instead of running.")
]
Operation = Annotated[
    str,
    Argument(
        help="A named layer (see: vtaops list layers), or an operator such as "
        "'MaxPool2d(channels=64, height=56, width=56, kernel=3)'.",
        autocompletion=complete_layers,
    ),
]


@run_app.command("conv2d")
def run_conv2d(
    *,
    layer: Annotated[
        str, Option(help="A named layer (see: vtaops list layers).", autocompletion=complete_layers)
    ],
    config: Config = "pynq",
    device: Device = "fsim",
    stage: Show = None,
) -> None:
    """Run a named convolution on random data, compare with NumPy, print the statistics report.

    `vtaops run op` runs every operator, with all of its parameters.

    Example: vtaops run conv2d --layer resnet18.C8
    """
    from vtaops.ops import Conv2d
    from vtaops.schedule.workloads import find

    if not isinstance(op := find(layer).op, Conv2d):
        raise ShapeError(f"layer {layer} is a {type(op).__name__}, not a Conv2d; see vtaops run op")
    run_op(layer, config=config, device=device, stage=stage)


@run_app.command("op")
def run_op(
    operator: Operation,
    *,
    config: Config = "pynq",
    device: Device = "fsim",
    tiling: Annotated[
        str, Option(help="Explicit tiling, e.g. oc=128,ic=16,h=7,w=14,oc_threads=2.")
    ] = "",
    inputs: Annotated[
        list[Path] | None,
        Option(
            "--input",
            help="An input, then weights, then a bias: .npy; repeat for each. Default: random.",
        ),
    ] = None,
    output: Annotated[Path | None, to_write("The result: .npy.", ".npy")] = None,
    stage: Show = None,
    save: Annotated[
        Path | None, Option(help="The compiled program: .vta.", callback=written(".vta"))
    ] = None,
) -> None:
    """Run any operator, compare with NumPy, print the statistics report.

    Example: vtaops run op 'Elementwise(function="add", shape=(1, 64, 56, 56), shift=1)'

    Example: vtaops run op 'Gemm(m=16, n=1000, k=512)' --save gemm.vta
    """
    from vtaops.compiler.driver import compile
    from vtaops.ops.reference import evaluate
    from vtaops.report import performance_table, statistics_data, statistics_table
    from vtaops.runtime import open_device
    from vtaops.runtime.device import performance_of
    from vtaops.session import Session

    arrays = [read_npy(file) for file in inputs or []]
    workload = read_workload(operator)
    op, name, explicit = workload.op, workload.name, parse_tiling(tiling) or workload.tiling
    hardware = HardwareConfig.load(config)
    if save is not None:
        compile(op, hardware, explicit).save(save)
    if stage:
        say(_shown(op, hardware, explicit, stage))
        return
    operands = _arguments(op, arrays)
    with progress_bar(f"open {device}"):  # which may build a model of the RTL
        opened = open_device(device, hardware)
    with Session(opened, hardware) as session:
        with progress_bar(f"compile {name}"):
            session.program(op, explicit)
        with progress_bar(f"run {name}"):
            result = np.asarray(session.run(op, *operands, tiling=explicit))
        program, performance = session.program(op, explicit), performance_of(session.device)
        statistics, obstacle = session.stats, session.obstacle_on_target(op, explicit)
    if output is not None:
        write_arrays(output, np.save, result)
    correct = bool(np.array_equal(result, evaluate(op, operands)))
    title = f"{name} on {device}, {hardware.name} ({hardware.bitstream_id})"
    data = statistics_data(program, statistics, program.timeline())
    del data["timing"]["units"], data["timing"]["port"]  # what vtaops report program shows
    tables = [statistics_table({"value": data}, title)]
    if performance:
        data["performance"] = performance.as_dict()
        tables.append(performance_table(performance, "Where the cycles went"))
    verdict = f"result {'equals' if correct else 'DIFFERS FROM'} NumPy, bit for bit"
    if obstacle:
        say(f"note: would not run on a {hardware.target}: {obstacle}", err=True)
    show(data | {"device": device, "equals_numpy": correct}, *tables, verdict, good=correct)


def disasm(file: Annotated[Path, Argument(help="A program file.")]) -> None:
    """Print a program file as text.

    Example: vtaops run op resnet18.C8 --save c8.vta && vtaops disasm c8.vta
    """
    say(Program.load(file).disassemble())


def verify(
    file: Annotated[Path, Argument(help="A program file, or a compiled network: .vtam.")],
) -> None:
    """Prove a program, or a network, free of races, deadlocks and accesses out of bounds.

    If there is a certificate (see: vtaops prove), prove its statement again.

    Example: vtaops verify c8.vta
    """
    from vtaops.model import load_model
    from vtaops.proof import rechecked

    subject = load_model(file) if file.suffix == ".vtam" else Program.load(file)
    with progress_bar(f"verify {file.name}"):
        subject.verify()
        proof = rechecked(subject)
    programs = [subject] if isinstance(subject, Program) else subject.programs
    count, name = sum(len(program) for program in programs), subject.config.bitstream_id
    facts = {"instructions": count, "bitstream": name, "proof": proof and asdict(proof)}
    text = f"its certificate holds\n{proof}" if proof else "there is no certificate"
    show({"verified": True, **facts}, f"{file}: {count} instructions verified for {name}", text)


def tune(
    operator: Operation,
    *,
    config: Config = "pynq",
    device: Annotated[
        str,
        Option(
            help="Measure there: tsim, pynq://HOST:PORT, ulx3s:///dev/ttyUSB0.",
            autocompletion=complete_devices,
        ),
    ] = "",
    count: Annotated[int, Option("--count", help="Tilings to compile and time.")] = 12,
) -> None:
    """Search the tiling that takes the fewest cycles.

    Cycles come from the timing model, or from measurements on a device. A candidate that fails
    there, or computes wrong results, is reported; the exit code is 1 if there is no other. Give a
    tiling that was found to vtaops.compile, or to vtaops run op --tiling.

    Example: vtaops tune resnet18.C8
    """
    from vtaops.compiler.search import search

    hardware, workload = HardwareConfig.load(config), read_workload(operator)
    costs = _measure_on(device, hardware) if device else None
    with progress_bar(workload.name):
        searched = search(workload.op, hardware, costs, count=count)
    if not searched:
        raise DeviceError(f"every candidate failed on {device}")
    best = searched[0]
    cycles = best.program.cycles()
    figures = {
        "tiling": vars(best.tiling),
        "cycles": cycles,
        "cost": best.cost,
        "compiled": len(searched),
    }
    lines = [f"{best.tiling.text}: {cycles:,} cycles by the timing model on {hardware.name}"]
    if device:  # cycles are integers, seconds are not
        cost = best.cost
        text = f"{cost:,} cycles" if isinstance(cost, int) else f"{1e3 * cost:.3f} ms"
        lines.append(f"measured on {device}: {text}")
    show(figures, *lines)


def _measure_on(device: str, hardware: HardwareConfig) -> Measure:
    """Return the measure of programs on a device: cycles if it counts them, else seconds."""
    from vtaops.board.measure import measure
    from vtaops.runtime import open_device

    if device == "fsim":
        raise UnsupportedError("fsim has no clock; measure on tsim or on a board")

    def cost(program: Program) -> int | float | None:
        with closing(open_device(device, hardware)) as opened:  # a failure leaves any state
            try:
                found = measure(program, opened)
            except DeviceError as error:
                say(f"a candidate failed on {device}: {error}", err=True)
                return None
        return found.performance.cycles if found.performance else found.seconds

    return lambda programs: [cost(program) for program in tracked("measure", programs)]


# ------------------------------------------------------------------------------ details


def _shown(op: Any, hardware: HardwareConfig, tiling: Any, stage: ShownStage) -> str:
    """Return the text of a stage of the compiler."""
    from vtaops.compiler.driver import compile

    stages: dict[str, Callable[[], Any]] = {
        "tir": lambda: op.declare(hardware).script(),
        "schedule": lambda: op.schedule(hardware, tiling).mod.script(),
        "lowered": lambda: op.lower(hardware, tiling).script(),
        "program": lambda: compile(op, hardware, tiling).disassemble(),
    }
    return str(stages[stage]())


def _arguments(op: Operator, given: Sequence[Array]) -> list[Array]:
    """Return the arrays of an operator: those that are given, then random ones."""
    from vtaops.ops.reference import random_arguments

    arrays = random_arguments(op, np.random.default_rng(0))
    if len(given) > len(arrays):
        raise ShapeError(
            f"--input is given {len(given)} times; {op.summary} takes {len(arrays)} arrays"
        )
    return [*given, *arrays[len(given) :]]


def read_workload(text: str) -> Workload:
    """Return the layer of a name, or an operator written in Python.

    Raises
    ------
    ShapeError
        If there is no such layer or operator.
    """
    from vtaops.schedule.workloads import Workload, find

    if "(" not in text:
        return find(text)
    try:
        kind, values = called(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError) as error:
        raise ShapeError(
            f"cannot read the operator {text!r}: {error}; write for example "
            f"'MaxPool2d(channels=64, height=56, width=56, kernel=3)' with one of "
            f"{', '.join(KINDS)}"
        ) from error
    op = kind(**values)
    return Workload(op.summary, op)


def called(call: ast.expr) -> tuple[Any, dict[str, Any]]:
    """Return the operator that a call is of, and its keywords; ValueError says what else it is."""
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("it is not a call with keywords")
    name = ast.unparse(call.func).removeprefix("vtaops.")
    if name not in KINDS:
        raise ValueError(f"unknown operator {name}{suggestion(name, KINDS)}")
    return getattr(ops, name), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
