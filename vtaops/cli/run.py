"""The commands of `vtaops` for operators and programs: run, disasm, verify, tune, configs, layers.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers them.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.progress import Progress
from rich.syntax import Syntax

from vtaops.base.errors import ShapeError
from vtaops.base.files import read_array
from vtaops.base.names import suggestion
from vtaops.cli.options import (
    ConfigOption,
    JsonOption,
    LayerOption,
    OperatorsOrModels,
    RunOptions,
    ShownStage,
    list_table,
    with_run_options,
)
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program, Role, Statistics

if TYPE_CHECKING:
    from vtaops.hardware.performance import TsimPerformance
    from vtaops.ops import Operator

DEFAULTS = RunOptions()

PROGRAMS = "Operators and programs"
"""Heading of the commands of this file."""

run_app = typer.Typer(
    cls=OperatorsOrModels,
    help="Run one operator, or a network (vtaops run MODEL), on a device.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this file to an application."""
    app.add_typer(run_app, name="run", rich_help_panel=PROGRAMS)
    for command in (disasm, verify, tune, configs, layers):
        app.command(rich_help_panel=PROGRAMS)(command)


ShiftOption = Annotated[
    int, typer.Option("--shift", help="Right shift of the accumulators, 0..31.")
]
BiasOption = Annotated[bool, typer.Option("--bias", help="Add an int32 bias.")]
ClipOption = Annotated[
    str,
    typer.Option(
        "--clip", help="Bounds of the result: 0,127 is a ReLU; 'none' keeps the low bits."
    ),
]
Extent = int | None
"""A number of the shape, or nothing: a named layer or the files have it."""


@run_app.command("conv2d")
@with_run_options
def run_conv2d(
    layer: LayerOption = "",
    batch: Annotated[int, typer.Option(help="Images.")] = 1,
    in_channels: Annotated[Extent, typer.Option(help="Input channels.")] = None,
    out_channels: Annotated[Extent, typer.Option(help="Output channels.")] = None,
    height: Annotated[Extent, typer.Option(help="Input height.")] = None,
    width: Annotated[Extent, typer.Option(help="Input width.")] = None,
    kernel: Annotated[
        str, typer.Option("--kernel", "--kernel-size", help="Kernel: 3 or 3,5.")
    ] = "",
    strides: Annotated[str, typer.Option("--strides", "--stride", help="Strides: 1 or 1,2.")] = "1",
    padding: Annotated[
        str, typer.Option(help="Padding: 1, 1,2 or top,left,bottom,right; or same.")
    ] = "0",
    dilation: Annotated[str, typer.Option(help="Dilation: 1 or 1,2.")] = "1",
    groups: Annotated[int, typer.Option(help="Groups; as many as channels: depthwise.")] = 1,
    bias: BiasOption = False,
    shift: ShiftOption = 8,
    clip: ClipOption = "-128,127",
    options: RunOptions = DEFAULTS,
) -> None:
    """Run a convolution, compare with NumPy, print the statistics report.

    It is a named layer, or has the shape that is given, or that of the arrays of --input and
    --weights; arrays that are not given are random.

    Example: vtaops run conv2d --layer resnet18.C8
    """
    from vtaops.ops import Conv2d

    def explicit() -> Conv2d:
        steps: dict[str, Any] = {
            "strides": _numbers("strides", strides),
            "padding": padding if padding.isalpha() else _numbers("padding", padding),
            "dilation": _numbers("dilation", dilation),
            "groups": groups,
            "shift": shift,
            "clip": _clip(clip),
        }
        if options.inputs and options.weights:
            found, _ = Conv2d.of(_load(options.inputs[0]), _load(options.weights[0]), **steps)
            return replace(found, bias=bias)
        shape = _stated(
            in_channels=in_channels, out_channels=out_channels, height=height, width=width,
            kernel=_numbers("kernel", kernel) if kernel else None,
        )  # fmt: skip
        return Conv2d(batch=batch, bias=bias, **shape, **steps)

    _run(layer, explicit, Conv2d, options)


@run_app.command("gemm")
@with_run_options
def run_gemm(
    layer: LayerOption = "",
    m: Annotated[Extent, typer.Option("-m", help="Rows of the left operand.")] = None,
    n: Annotated[Extent, typer.Option("-n", help="Columns of the result.")] = None,
    k: Annotated[Extent, typer.Option("-k", help="Reduction.")] = None,
    bias: BiasOption = False,
    shift: ShiftOption = 8,
    clip: ClipOption = "-128,127",
    options: RunOptions = DEFAULTS,
) -> None:
    """Run a matrix product, compare with NumPy, print the statistics report.

    It is a named layer, or has the sizes that are given, or those of the arrays of --input (m, k)
    and --weights (n, k); arrays that are not given are random.

    Example: vtaops run gemm -m 16 -n 1000 -k 512
    """
    from vtaops.ops import Gemm

    def explicit() -> Gemm:
        if options.inputs and options.weights:
            left, right = _load(options.inputs[0]), _load(options.weights[0])
            found, _ = Gemm.of(left, right, shift=shift, clip=_clip(clip))
            return replace(found, bias=bias)
        return Gemm(bias=bias, shift=shift, clip=_clip(clip), **_stated(m=m, n=n, k=k))

    _run(layer, explicit, Gemm, options)


@run_app.command("op")
@with_run_options
def run_op(
    operator: Annotated[
        str,
        typer.Argument(
            help="A named layer (see: vtaops layers), or an operator such as "
            "'MaxPool2d(channels=64, height=56, width=56, kernel=3)'."
        ),
    ],
    options: RunOptions = DEFAULTS,
) -> None:
    """Run any operator on random data, compare with NumPy, print the statistics report.

    Example: vtaops run op 'Elementwise(function="add", shape=(1, 64, 56, 56), shift=1)'
    """
    from vtaops.ops import Operator

    layer = "" if "(" in operator else operator
    _run(layer, partial(_operator, operator), Operator, options)


def disasm(file: Annotated[Path, typer.Argument(help="A program file.")]) -> None:
    """Print a program file as text.

    Example: vtaops run conv2d --layer resnet18.C8 --save c8.vta && vtaops disasm c8.vta
    """
    typer.echo(Program.load(file).disassemble())


def verify(file: Annotated[Path, typer.Argument(help="A program file.")]) -> None:
    """Prove a program file free of races, deadlocks and accesses out of bounds.

    Example: vtaops verify c8.vta
    """
    program = Program.load(file)
    program.verify()
    typer.echo(f"{file}: {len(program)} instructions verified for {program.config.bitstream_id}")


def tune(
    layer: Annotated[list[str], typer.Option("--layer", help="A named layer; may be repeated.")],
    config: ConfigOption = "pynq",
    effort: Annotated[str, typer.Option(help="fast or thorough.")] = "thorough",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore results of earlier searches.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Search the tiling with the fewest cycles by the timing model, and keep it.

    Example: vtaops tune --layer resnet18.C8 --layer resnet18.C10
    """
    from vtaops.compiler.tuner import COMPILED, Effort, Tuned, keep, recall, search
    from vtaops.schedule.workloads import find

    hardware, chosen = HardwareConfig.load(config), cast(Effort, effort)
    workloads = [find(name) for name in layer]
    results: dict[str, Tuned] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for workload in workloads:
            task = progress.add_task(workload.name, total=COMPILED.get(chosen, 1))
            best = None if fresh else recall(workload.op, hardware, chosen)
            if best is None:
                for best in search(workload.op, hardware, chosen):
                    description = f"{workload.name}: {best.cycles:,} cycles"
                    progress.update(task, advance=1, description=description)
                assert best is not None
                keep(workload.op, hardware, chosen, best)
            results[workload.name] = best
    if as_json:
        typer.echo(json.dumps({name: asdict(best) for name, best in results.items()}, indent=2))
        return
    table = list_table(f"Best tilings on {hardware.name}")
    for column in ("layer", "cycles", "from", "tiling"):
        table.add_column(column, overflow="fold")
    for name, best in results.items():
        table.add_row(name, f"{best.cycles:,}", best.source, best.tiling.text)
    Console().print(table)


def configs(
    name: Annotated[str, typer.Argument(help="Show this one in detail: a name or a file.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the hardware configurations that vtaops ships, or show one.

    Example: vtaops configs pynq
    """
    found = [HardwareConfig.load(n) for n in ([name] if name else HardwareConfig.names())]
    if as_json:
        typer.echo(json.dumps({c.name: c.to_dict() for c in found}, indent=2))
    elif name:
        _show_config(found[0])
    else:
        table = list_table("Hardware configurations")
        for column in ("name", "target", "tile", "uop/inp/wgt/acc depth"):
            table.add_column(column, overflow="fold")
        for c in found:
            depths = "/".join(str(memory.depth) for memory in (c.uop, c.inp, c.wgt, c.acc))
            table.add_row(c.name, c.target, f"{c.batch}x{c.block_in}x{c.block_out}", depths)
        Console().print(table)


def layers() -> None:
    """List the named layers.

    Example: vtaops layers
    """
    from vtaops.schedule.workloads import WORKLOADS

    table = list_table("Named layers")
    for column in ("name", "operator", "multiply-adds", "occurs"):
        table.add_column(column, overflow="fold")
    for workload in WORKLOADS.values():
        row = workload.name, workload.op.summary, f"{workload.op.macs:,}", workload.occurrences
        table.add_row(*map(str, row))
    Console().print(table)


# ------------------------------------------------------------------------------ details


def _run(layer: str, explicit: Callable[[], Operator], kind: type, options: RunOptions) -> None:
    from vtaops.compiler.driver import compile
    from vtaops.ops.reference import evaluate
    from vtaops.runtime.device import performance_of
    from vtaops.schedule.workloads import find
    from vtaops.session import Session

    op, tiling = explicit() if not layer else find(layer).op, parse_tiling(options.tiling)
    if layer:
        tiling = tiling or find(layer).tiling
        if not isinstance(op, kind):
            raise ShapeError(f"layer {layer} is a {type(op).__name__}, not a {kind.__name__}")
    hardware = HardwareConfig.load(options.config)
    if options.show not in (None, ShownStage.program):
        _show(op, hardware, tiling, options.show)
        return
    if options.show or options.save is not None:
        program = compile(op, hardware, tiling, capabilities=options.capabilities or None)
        if options.save is not None:
            program.save(options.save)
        if options.show:
            typer.echo(program.disassemble())
            return
    arrays = _arguments(op, hardware, options)
    able = options.capabilities or None
    with Session(options.open_device(hardware), hardware, capabilities=able) as session:
        result = session.run(op, *arrays, tiling=tiling)
        correct = bool(np.array_equal(result, evaluate(op, arrays)))
        report = session.program(op, tiling), session.stats, performance_of(session.device)
        obstacle = session.obstacle_on_target(op, tiling)
    if options.output is not None:
        np.save(options.output, result)
    _print_run(layer or op.summary, *report, correct, options)
    if obstacle:
        typer.echo(f"note: would not run on a {hardware.target}: {obstacle}", err=True)
    if not correct:
        raise typer.Exit(1)


def _arguments(
    op: Operator, config: HardwareConfig, options: RunOptions
) -> tuple[npt.NDArray[Any], ...]:
    """Return the arrays of an operator: those of the files, and random ones for the rest."""
    from vtaops.ops.reference import random_arguments

    arrays = list(random_arguments(op, np.random.default_rng(options.seed)))
    taken = [b for b in op.buffers(config) if b.role in (Role.INPUT, Role.PARAMETER)]
    for role, files, option in (
        (Role.INPUT, options.inputs, "--input"),
        (Role.PARAMETER, options.weights, "--weights"),
    ):
        places = [place for place, buffer in enumerate(taken) if buffer.role is role]
        if len(files) > len(places):
            names = ", ".join(taken[place].name for place in places) or "none"
            raise ShapeError(f"{option} is given {len(files)} times; {op.summary} takes {names}")
        for place, file in zip(places, files, strict=False):
            arrays[place] = _load(file)
    return (*arrays,)


def _load(file: Path) -> npt.NDArray[Any]:
    try:
        return read_array(file)
    except (OSError, ValueError) as error:
        raise ShapeError(f"cannot read {file} as a .npy array: {error}") from error


def _stated(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _print_run(
    name: str,
    program: Program,
    statistics: Statistics,
    performance: TsimPerformance | None,
    correct: bool,
    options: RunOptions,
) -> None:
    from vtaops.report import as_csv, performance_table, statistics_data, statistics_table

    timeline, config = program.timeline() if options.timing else None, program.config
    if options.as_json:
        report = statistics_data(program, statistics, timeline)
        if performance:
            report["performance"] = performance.as_dict()
        facts = {"device": options.device, "equals_numpy": correct}
        typer.echo(json.dumps({**report, **facts}, indent=2))
    elif options.as_csv:
        typer.echo(as_csv({name: statistics_data(program, statistics, timeline)}), nl=False)
    else:
        title = f"{name} on {options.device}, {config.name} ({config.bitstream_id})"
        Console().print(statistics_table(program, statistics, title, timeline))
        if performance:
            Console().print(performance_table(performance, "Where the cycles went"))
        typer.echo(f"result {'equals' if correct else 'DIFFERS FROM'} NumPy, bit for bit")


def _show_config(config: HardwareConfig) -> None:
    table = list_table(f"Configuration {config.name}")
    table.add_column("property")
    table.add_column("value", overflow="fold")
    for row in config.facts().items():
        table.add_row(*row)
    Console().print(table)


def _show(op: Any, hardware: HardwareConfig, tiling: Any, stage: ShownStage) -> None:
    module = {
        ShownStage.tir: lambda: op.declare(hardware),
        ShownStage.schedule: lambda: op.schedule(hardware, tiling).mod,
        ShownStage.lowered: lambda: op.lower(hardware, tiling),
    }[stage]()
    text = module.script()
    if sys.stdout.isatty():
        Console().print(Syntax(text, "python", background_color="default", word_wrap=True))
    else:
        typer.echo(text)


def parse_tiling(text: str) -> Any:
    """Parse ``oc=128,ic=16,...``; empty means the default tiling."""
    from vtaops.schedule import Tiling

    return Tiling.parse(text) if text else None


def _operator(text: str) -> Any:
    """Read an operator as it is written in Python: a name and keywords with literal values."""
    from vtaops import ops

    kinds = [name for name in ops.__all__ if name != "Operator"]
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError("it is no call with keywords")
        if call.func.id not in kinds:
            raise ValueError(
                f"there is no operator {call.func.id}{suggestion(call.func.id, kinds)}"
            )
        values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError) as error:
        raise ShapeError(
            f"cannot read the operator {text!r}: {error}; write for example "
            f"'MaxPool2d(channels=64, height=56, width=56, kernel=3)' with one of "
            f"{', '.join(kinds)}"
        ) from error
    return getattr(ops, call.func.id)(**values)


def _numbers(name: str, text: str) -> Any:
    """Parse ``3`` or ``3,5``."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ShapeError(f"--{name} is {text!r}; write integers separated by commas") from error
    return values[0] if len(values) == 1 else values


def _clip(text: str) -> Any:
    return None if text == "none" else _numbers("clip", text)
