"""The commands of `vtaops` for operators and programs: run, disasm, verify, tune, configs, layers.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from vtaops.base.errors import DeviceError, ShapeError, UnsupportedError, raising
from vtaops.base.files import read_array
from vtaops.base.names import suggestion
from vtaops.base.progress import refined, tracked
from vtaops.cli.options import (
    DEFAULTS,
    Bar,
    Commands,
    OperatorsOrModels,
    RunOptions,
    ShownStage,
    list_table,
    parse_tiling,
    progress_bar,
    show,
    with_run_options,
    write_arrays,
)
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program, Role, Statistics

if TYPE_CHECKING:
    from vtaops.board.measure import Measurement
    from vtaops.compiler.tuner import Effort, Tuned
    from vtaops.hardware.performance import TsimPerformance
    from vtaops.ops import Conv2d, Gemm, Operator

run_app = Commands(
    name="run",
    cls=OperatorsOrModels,
    help="Run one operator, or a network (vtaops run MODEL), on a device.",
    no_args_is_help=True,
)


Extent = int | None
"""A number of the shape; None if a named layer or the files determine it."""


@run_app.command("conv2d")
@with_run_options
def run_conv2d(
    *,
    layer: str = "",
    batch: int = 1,
    in_channels: Extent = None,
    out_channels: Extent = None,
    height: Extent = None,
    width: Extent = None,
    kernel: str = "",
    strides: str = "1",
    padding: str = "0",
    dilation: str = "1",
    groups: int = 1,
    bias: bool = False,
    shift: int = 8,
    clip: str = "-128,127",
    options: RunOptions = DEFAULTS,
) -> None:
    """Run a convolution, compare with NumPy, print the statistics report.

    Its shape is that of a named layer, of the options, or of the arrays of --input and --weights;
    other arrays are random.

    Example: vtaops run conv2d --layer resnet18.C8

    Parameters
    ----------
    batch
        Batch size.
    in_channels
        Input channels.
    out_channels
        Output channels.
    height
        Input height.
    width
        Input width.
    kernel : --kernel, --kernel-size
        Kernel: 3 or 3,5.
    strides : --strides, --stride
        Strides: 1 or 1,2.
    padding
        Padding: 1, 1,2 or top,left,bottom,right; or same.
    dilation
        Dilation: 1 or 1,2.
    groups
        Groups; as many as channels for a depthwise convolution.
    layer
        A named layer (see: vtaops layers); replaces the shape.
    """
    from vtaops.ops import Conv2d

    steps: dict[str, Any] = {
        "strides": _numbers("strides", strides),
        "padding": padding if padding.isalpha() else _numbers("padding", padding),
        "dilation": _numbers("dilation", dilation),
        "groups": groups,
        "shift": shift,
        "clip": _clip(clip),
    }
    shape = {
        "batch": batch,
        "in_channels": in_channels,
        "out_channels": out_channels,
        "height": height,
        "width": width,
        "kernel": _numbers("kernel", kernel) if kernel else None,
    }
    _run(layer, options, Conv2d, bias, shape, steps)


@run_app.command("gemm")
@with_run_options
def run_gemm(
    *,
    layer: str = "",
    m: Extent = None,
    n: Extent = None,
    k: Extent = None,
    bias: bool = False,
    shift: int = 8,
    clip: str = "-128,127",
    options: RunOptions = DEFAULTS,
) -> None:
    """Run a matrix product, compare with NumPy, print the statistics report.

    Its sizes are those of a named layer, of the options, or of the arrays of --input (m, k) and
    --weights (n, k); other arrays are random.

    Example: vtaops run gemm -m 16 -n 1000 -k 512

    Parameters
    ----------
    m : -m
        Rows of the left operand.
    n : -n
        Columns of the result.
    k : -k
        Reduction dimension.
    layer
        A named layer (see: vtaops layers); replaces the shape.
    """
    from vtaops.ops import Gemm

    steps = {"shift": shift, "clip": _clip(clip)}
    _run(layer, options, Gemm, bias, {"m": m, "n": n, "k": k}, steps)


@run_app.command("op")
@with_run_options
def run_op(operator: str, *, options: RunOptions = DEFAULTS) -> None:
    """Run any operator on random data, compare with NumPy, print the statistics report.

    Example: vtaops run op 'Elementwise(function="add", shape=(1, 64, 56, 56), shift=1)'

    Parameters
    ----------
    operator
        A named layer (see: vtaops layers), or an operator such as 'MaxPool2d(channels=64,
        height=56, width=56, kernel=3)'.
    """
    from vtaops.schedule.workloads import find

    if "(" in operator:
        _run_operator(_operator(operator), None, options)
    else:
        workload = find(operator)
        _run_operator(workload.op, workload.tiling, options, operator)


def disasm(file: Path, *, as_json: bool = False) -> None:
    """Print a program file as text.

    Example: vtaops run conv2d --layer resnet18.C8 --save c8.vta && vtaops disasm c8.vta

    Parameters
    ----------
    file
        A program file.
    """
    program = Program.load(file)
    listed = [{"name": type(i).__name__, **asdict(i)} for i in program.decode()] if as_json else []
    show(listed, as_json, program.disassemble())


def verify(file: Path, *, as_json: bool = False) -> None:
    """Prove a program, or a network, free of races, deadlocks and accesses out of bounds.

    If there is a certificate (see: vtaops prove), prove its statement again.

    Example: vtaops verify c8.vta

    Parameters
    ----------
    file
        A program file, or a compiled network: .vtam.
    """
    from vtaops.model import load_model
    from vtaops.proof import rechecked

    subject = load_model(file) if file.suffix == ".vtam" else Program.load(file)
    subject.verify()
    programs = [subject] if isinstance(subject, Program) else subject.programs
    count, name = sum(len(program) for program in programs), subject.config.bitstream_id
    facts = {"verified": True, "instructions": count, "bitstream": name}
    lines = [f"{file}: {count} instructions verified for {name}"]
    if proof := rechecked(subject):
        facts["certificate"] = "holds"
        lines.append(f"its certificate holds\n{proof}")
    show(facts, as_json, *lines)


def tune(
    *,
    layer: list[str],
    config: str = "pynq",
    device: str = "",
    effort: str = "thorough",
    fresh: bool = False,
    repeats: int = 3,
    timeout: float = 60.0,
    as_json: bool = False,
) -> None:
    """Search the tiling that takes the fewest cycles, and store it.

    Cycles come from the timing model, or from measurements on a device. A candidate that fails
    there, or computes wrong results, is reported; the exit code is 1 if a layer has no other.

    Example: vtaops tune --layer resnet18.C8 --layer resnet18.C10

    Parameters
    ----------
    layer
        A named layer; may be repeated.
    device
        Measure there: tsim, pynq://HOST:PORT, ulx3s:///dev/ttyUSB0.
    effort
        fast or thorough.
    fresh
        Ignore results of earlier searches.
    repeats
        Timed launches per candidate.
    timeout
        Time limit of a launch in seconds.
    """
    from vtaops.schedule.workloads import find

    hardware, chosen = HardwareConfig.load(config), cast("Effort", effort)
    ops = {name: find(name).op for name in layer}
    with progress_bar() as progress:
        if device:
            results = _tuned_on(device, ops, hardware, chosen, repeats, timeout)
        else:
            results = {
                n: _searched(n, op, hardware, chosen, fresh, progress) for n, op in ops.items()
            }
    rows = [
        (name, best.cycles, best.source, best.tiling.text, _cost(best.cost))
        for name, best in results.items()
        if best
    ]
    columns = {"layer": "", "cycles": ",", "from": "", "tiling": "", "measured": ""}
    table = list_table(
        f"Best tilings on {hardware.name}; cycles by the timing model", columns, rows
    )
    show({name: best and asdict(best) for name, best in results.items()}, as_json, table)
    if None in results.values():
        raise typer.Exit(1)


def _searched(
    name: str, op: Operator, hardware: HardwareConfig, effort: Effort, fresh: bool, progress: Bar
) -> Tuned:
    from vtaops.compiler.tuner import COMPILED, keep, recall, search

    task = progress.add_task(name, total=COMPILED.get(effort, 1))
    best = None if fresh else recall(op, hardware, effort)
    if best is None:
        for best in search(op, hardware, effort):
            progress.update(task, advance=1, description=f"{name}: {best.cycles:,} cycles")
        assert best is not None
        keep(op, hardware, effort, best)
    return best


def _tuned_on(
    device: str,
    ops: dict[str, Operator],
    hardware: HardwareConfig,
    effort: Effort,
    repeats: int,
    timeout: float,
) -> dict[str, Tuned | None]:
    from vtaops.board.measure import measure
    from vtaops.compiler.tuner import tune_on
    from vtaops.runtime import open_device

    if device == "fsim":
        raise UnsupportedError("fsim has no clock; measure on tsim or on a board")

    def measured(program: Program) -> Measurement | None:
        with closing(open_device(device, hardware)) as opened:  # a failure leaves any state
            try:
                return measure(program, opened, repeats=repeats, timeout=timeout)
            except DeviceError as error:
                typer.echo(f"a candidate failed on {device}: {error}", err=True)
                return None

    def costs(programs: Sequence[Program]) -> list[int | float | None]:
        return _costs([measured(each) for each in tracked("measure", programs)])

    results = tune_on(costs, list(ops.values()), hardware, effort)
    return dict(zip(ops, results, strict=True))


def _costs(found: Sequence[Measurement | None]) -> list[int | float | None]:
    """Return cycles if the device counts them, else seconds; None for a failed launch."""
    if all(one.performance for one in found if one):
        return [one.performance.cycles if one and one.performance else None for one in found]
    return [one.seconds if one else None for one in found]


def _cost(cost: int | float | None) -> str:
    """Return a measured cost as text: cycles are integers, seconds are not."""
    if cost is None:
        return ""
    return f"{cost:,} cycles" if isinstance(cost, int) else f"{1e3 * cost:.3f} ms"


def configs(config: str = "", *, as_json: bool = False) -> None:
    """List the hardware configurations shipped with vtaops, or show one.

    Example: vtaops configs pynq

    Parameters
    ----------
    config
        Show this one in detail: a name or a JSON file.
    """
    found = [HardwareConfig.load(n) for n in ([config] if config else HardwareConfig.names())]
    if config:
        title, facts = f"Configuration {found[0].name}", found[0].facts()
        table = list_table(title, dict.fromkeys(("property", "value"), ""), facts.items())
    else:
        table = _configs_table(found)
    show({c.name: c.to_dict() for c in found}, as_json, table)


def _configs_table(found: list[HardwareConfig]) -> Table:
    rows = [
        (
            c.name,
            c.target,
            f"{c.batch}x{c.block_in}x{c.block_out}",
            "/".join(str(memory.depth) for memory in (c.uop, c.inp, c.wgt, c.acc)),
        )
        for c in found
    ]
    columns = dict.fromkeys(("name", "target", "tile", "uop/inp/wgt/acc depth"), "")
    return list_table("Hardware configurations", columns, rows)


def layers(*, as_json: bool = False) -> None:
    """List the named layers.

    Example: vtaops layers
    """
    from vtaops.schedule.workloads import WORKLOADS

    columns = {"name": "", "operator": "", "multiply-adds": ",", "occurs": ","}
    rows = [(w.name, w.op.summary, w.op.macs, w.occurrences) for w in WORKLOADS.values()]
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    show(data, as_json, list_table("Named layers", columns, rows))


# ------------------------------------------------------------------------------ details


def _run(
    layer: str,
    options: RunOptions,
    kind: type[Conv2d] | type[Gemm],
    bias: bool,
    shape: dict[str, Any],
    steps: dict[str, Any],
) -> None:
    """Run a named layer, or the operator with the given shape or that of the files."""
    from vtaops.schedule.workloads import find

    if layer:
        workload = find(layer)
        if not isinstance(workload.op, kind):
            raise ShapeError(
                f"layer {layer} is a {type(workload.op).__name__}, not a {kind.__name__}"
            )
        _run_operator(workload.op, workload.tiling, options, layer)
    elif options.inputs and options.weights:
        found, _ = kind.of(_load(options.inputs[0]), _load(options.weights[0]), **steps)
        _run_operator(replace(found, bias=bias), None, options)
    else:
        stated = {name: value for name, value in shape.items() if value is not None}
        _run_operator(kind(bias=bias, **stated, **steps), None, options)


def _run_operator(op: Operator, tiling: Any, options: RunOptions, layer: str = "") -> None:
    """Compile, save, show or run an operator, as the options request."""
    from vtaops.compiler.driver import compile

    tiling = parse_tiling(options.tiling) or tiling
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
    _execute(op, hardware, tiling, options, layer or op.summary)


def _execute(
    op: Operator, hardware: HardwareConfig, tiling: Any, options: RunOptions, name: str
) -> None:
    """Run an operator, compare with NumPy and print the report; exit with code 1 if it differs."""
    from vtaops.ops.reference import evaluate
    from vtaops.runtime.device import performance_of
    from vtaops.session import Session

    arrays = _arguments(op, hardware, options)
    able = options.capabilities or None
    with Session(options.open_device(hardware), hardware, capabilities=able) as session:
        cycles = session.program(op, tiling).cycles()
        with progress_bar(), refined("simulate cycle", lambda done: (cycles, name)):
            result = session.run(op, *arrays, tiling=tiling)
        correct = bool(np.array_equal(result, evaluate(op, arrays)))
        report = session.program(op, tiling), session.stats, performance_of(session.device)
        reason = session.obstacle_on_target(op, tiling)
    if options.output is not None:
        write_arrays(options.output, ".npy", np.save, result)
    _print_run(name, *report, correct, options)
    if reason:
        typer.echo(f"note: would not run on a {hardware.target}: {reason}", err=True)
    if not correct:
        raise typer.Exit(1)


def _arguments(
    op: Operator, config: HardwareConfig, options: RunOptions
) -> tuple[npt.NDArray[Any], ...]:
    """Return the arrays of an operator: those of the files, and random ones for the others."""
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
    with raising(ShapeError, f"cannot read {file} as a .npy array", OSError, ValueError):
        return read_array(file)


def _print_run(
    name: str,
    program: Program,
    statistics: Statistics,
    performance: TsimPerformance | None,
    correct: bool,
    options: RunOptions,
) -> None:
    from vtaops.report import as_csv, performance_table, statistics_data, statistics_table

    timeline, config = program.timeline(), program.config
    data = statistics_data(program, statistics, timeline if options.timing else None)
    data["cycles"] = timeline.cycles
    if options.as_csv and not options.as_json:
        typer.echo(as_csv({name: data}), nl=False)
        return
    title = f"{name} on {options.device}, {config.name} ({config.bitstream_id})"
    tables = [statistics_table(program, statistics, title, timeline, units=options.timing)]
    if performance:
        data["performance"] = performance.as_dict()
        tables.append(performance_table(performance, "Where the cycles went"))
    verdict = f"result {'equals' if correct else 'DIFFERS FROM'} NumPy, bit for bit"
    facts = {"device": options.device, "equals_numpy": correct}
    show({**data, **facts}, options.as_json, *tables, verdict)


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


def _operator(text: str) -> Any:
    """Parse an operator written in Python: a name, and keywords with literal values."""
    from vtaops import ops

    kinds = [name for name in ops.__all__ if name != "Operator"]
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError("it is not a call with keywords")
        if call.func.id not in kinds:
            raise ValueError(f"unknown operator {call.func.id}{suggestion(call.func.id, kinds)}")
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
