"""The commands of `vtaops` for operators and programs: run, disasm, asm, verify, tune.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.table import Table
from typer import Argument, Option
from typer.core import TyperGroup

from vtaops.base.errors import DeviceError, ProgramError, ShapeError, UnsupportedError, raising
from vtaops.base.files import exists, read_array, read_file
from vtaops.base.names import suggestion
from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.cli import options
from vtaops.cli.options import Commands, parse_tiling, progress_bar, say, show
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Encoding
from vtaops.program import Program, Role, Statistics
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from vtaops.board.measure import Measurement
    from vtaops.compiler.search import Measure
    from vtaops.hardware.performance import TsimPerformance
    from vtaops.ops import Operator
    from vtaops.schedule.workloads import Workload
    from vtaops.session import Session


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


ShownStage = Literal["tir", "schedule", "lowered", "program"]
"""Compiler stages that `--show` prints."""


Show = Annotated[
    ShownStage | None, Option("--show", help="Print a compiler stage instead of running.")
]
Timing = Annotated[
    bool, Option("--timing", help="Add the cycles of every unit by the timing model.")
]


@run_app.command("conv2d")
def run_conv2d(
    *,
    layer: options.Layer,
    config: options.Config = "pynq",
    device: options.Device = "fsim",
    stage: Show = None,
    timing: Timing = False,
) -> None:
    """Run a named convolution on random data, compare with NumPy, print the statistics report.

    `vtaops run op` runs every operator, with all of its parameters.

    Example: vtaops run conv2d --layer resnet18.C8
    """
    from vtaops.ops import Conv2d
    from vtaops.schedule.workloads import find

    if not isinstance(op := find(layer).op, Conv2d):
        raise ShapeError(f"layer {layer} is a {type(op).__name__}, not a Conv2d; see vtaops run op")
    run_op(layer, config=config, device=device, stage=stage, timing=timing)


@run_app.command("op")
def run_op(
    operator: Annotated[
        str,
        Argument(
            help="A named layer (see: vtaops list layers), or an operator such as "
            "'MaxPool2d(channels=64, height=56, width=56, kernel=3)'.",
            autocompletion=options.complete_layers,
        ),
    ],
    *,
    config: options.Config = "pynq",
    device: options.Device = "fsim",
    capabilities: Annotated[
        str,
        Option(
            help="Capabilities that the program may use: full, fsim, hls-2020, chisel, portable. "
            "Default: those of the device."
        ),
    ] = "",
    tiling: Annotated[
        str, Option(help="Explicit tiling, e.g. oc=128,ic=16,h=7,w=14,oc_threads=2.")
    ] = "",
    inputs: Annotated[
        list[Path] | None,
        Option("--input", help="An input: .npy; repeat for further inputs. Default: random."),
    ] = None,
    weights: Annotated[
        list[Path] | None,
        Option(help="Weights, then a bias: .npy, like --input. Default: random."),
    ] = None,
    output: Annotated[
        Path | None,
        options.to_write("The result: .npy.", ".npy"),
    ] = None,
    seed: options.Seed = 0,
    stage: Show = None,
    save: Annotated[
        Path | None, Option(help="The compiled program: .vta.", callback=options.written(".vta"))
    ] = None,
    timing: Timing = False,
) -> None:
    """Run any operator, compare with NumPy, print the statistics report.

    Example: vtaops run op 'Elementwise(function="add", shape=(1, 64, 56, 56), shift=1)'

    Example: vtaops run op 'Gemm(m=16, n=1000, k=512)' --save gemm.vta
    """
    from vtaops.ops.reference import evaluate
    from vtaops.runtime import open_device
    from vtaops.runtime.device import performance_of
    from vtaops.session import Session

    arrays = {"--input": _load(inputs), "--weights": _load(weights)}
    workload = _workload(operator)
    op, name, explicit = workload.op, workload.name, parse_tiling(tiling) or workload.tiling
    hardware = HardwareConfig.load(config)
    _compile(op, hardware, explicit, capabilities, stage, save)
    if stage:
        return
    operands = _arguments(op, hardware, arrays, seed)
    with progress_bar(f"open {device}"):  # which may build a model of the RTL
        opened = open_device(device, hardware)
    with Session(opened, hardware, capabilities=capabilities or None) as session:
        result = _execute(session, op, operands, explicit, name)
        program, performance = session.program(op, explicit), performance_of(session.device)
        statistics, obstacle = session.stats, session.obstacle_on_target(op, explicit)
    if output is not None:
        options.write_arrays(output, np.save, result)
    correct = bool(np.array_equal(result, evaluate(op, operands)))
    title = f"{name} on {device}, {hardware.name} ({hardware.bitstream_id})"
    data, tables = _report(program, statistics, performance, title, timing)
    verdict = f"result {'equals' if correct else 'DIFFERS FROM'} NumPy, bit for bit"
    show(data | {"device": device, "equals_numpy": correct}, *tables, verdict)
    if obstacle:
        say(f"note: would not run on a {hardware.target}: {obstacle}", err=True)
    raise typer.Exit(not correct)


def disasm(
    file: Annotated[Path, Argument(help="A program file.")],
) -> None:
    """Print a program file as text.

    Example: vtaops run op resnet18.C8 --save c8.vta && vtaops disasm c8.vta
    """
    program = Program.load(file)
    show(_listed(program), program.disassemble())


def _listed(program: Program) -> dict[str, Any]:
    """Return what the text of a program says, as JSON."""
    micro_ops = Encoding.of(program.config).decode_micro_ops(program.micro_ops)
    return {
        "bitstream": program.config.bitstream_id,
        "fingerprint": program.config.fingerprint,
        "metadata": dict(program.metadata),
        "operators": [{"kind": each.kind, "name": each.name} for each in program.operators],
        "buffers": [
            {"name": b.name, "role": b.role.value, "shape": b.shape, "bytes": b.nbytes}
            for b in program.buffers
        ],
        "instructions": [{"name": type(i).__name__, **asdict(i)} for i in program.decode()],
        "micro_ops": [
            dict(zip(("dst", "src", "wgt"), row, strict=True)) for row in micro_ops.tolist()
        ],
    }


def asm(
    file: Annotated[Path, Argument(help="A program as text, as `vtaops disasm` prints it.")],
    *,
    output: Annotated[
        Path,
        options.to_write("Where to write the program: .vta.", ".vta"),
    ],
    config: Annotated[
        str, Option(help="Configuration of a text whose first line names none.")
    ] = "",
) -> None:
    """Assemble a program from text, the inverse of disasm; errors name line and column.

    Example: vtaops disasm c8.vta > c8.txt && vtaops asm c8.txt -o c8.vta
    """
    from vtaops.program import assemble

    with raising(ProgramError, f"cannot read {file}", OSError, ValueError):
        text = read_file(file).decode()
    program = assemble(text, config or None)
    program.save(output)
    facts = {"instructions": len(program), "micro_ops": len(program.micro_ops)}
    show({"file": str(output), **facts}, f"{output}: {program!r}")


def verify(
    file: Annotated[
        Path,
        Argument(help="A program file, or a compiled network: .vtam. With --signers: any file."),
    ],
    *,
    signers: Annotated[
        Path | None,
        Option(
            help="Allowed signers (OpenSSH): one of these public keys must have signed FILE.sig."
        ),
    ] = None,
) -> None:
    """Prove a program, or a network, free of races, deadlocks and accesses out of bounds.

    If there is a certificate (see: vtaops prove), prove its statement again. Of other files, such
    as bitstreams, only the signature is checked.

    Example: vtaops verify c8.vta

    Example: vtaops verify network.vtam --signers signers.txt
    """
    from vtaops.cli.signatures import signed_content
    from vtaops.model import artefact, load_model
    from vtaops.program import file_format
    from vtaops.proof import rechecked

    facts: dict[str, Any] = {"verified": True}
    lines = []
    loads: dict[str, Any] = {".vtam": artefact.loads, ".vta": file_format.loads}
    if signers is None:
        subject = load_model(file) if file.suffix == ".vtam" else Program.load(file)
    else:
        content, facts["signer"] = signed_content(file, signers)
        lines.append(f"{file}: signed by {facts['signer']}")
        if file.suffix not in loads:
            show(facts, *lines)
            return
        subject = loads[file.suffix](content)
    with progress_bar(f"verify {file.name}"):
        subject.verify()
        proof = rechecked(subject)
    programs = [subject] if isinstance(subject, Program) else subject.programs
    count, name = sum(len(program) for program in programs), subject.config.bitstream_id
    facts |= {"instructions": count, "bitstream": name}
    lines.append(f"{file}: {count} instructions verified for {name}")
    if proof:
        facts |= {"certificate": "holds", "proof": asdict(proof)}
        lines.append(f"its certificate holds\n{proof}")
    show(facts, *lines)


def tune(
    *,
    layer: options.RequiredLayers,
    config: options.Config = "pynq",
    device: Annotated[
        str,
        Option(
            help="Measure there: tsim, pynq://HOST:PORT, ulx3s:///dev/ttyUSB0.",
            autocompletion=options.complete_devices,
        ),
    ] = "",
    count: Annotated[int, Option("--count", help="Tilings to compile and time.")] = 12,
) -> None:
    """Search the tiling that takes the fewest cycles.

    Cycles come from the timing model, or from measurements on a device. A candidate that fails
    there, or computes wrong results, is reported; the exit code is 1 if a layer has no other.
    Give a tiling that was found to vtaops.compile, or to vtaops run op --tiling.

    Example: vtaops tune --layer resnet18.C8 --layer resnet18.C10
    """
    from vtaops.compiler.search import search
    from vtaops.schedule.workloads import find

    hardware = HardwareConfig.load(config)
    costs = _measure_on(device, hardware) if device else None
    searched = {}
    for name in layer:
        with progress_bar(name):
            searched[name] = search(find(name).op, hardware, costs, count=count)
    best = {name: candidates[0] for name, candidates in searched.items() if candidates}
    rows = [
        (name, one.program.cycles(), one.tiling.text, _cost(one.cost) if device else "")
        for name, one in best.items()
    ]
    columns = {"layer": "", "cycles": ",", "tiling": "", "measured": ""}
    title = f"Best tilings on {hardware.name}; cycles by the timing model"
    figures = dict.fromkeys(layer) | {
        name: {
            "tiling": vars(one.tiling),
            "cycles": one.program.cycles(),
            "cost": one.cost,
            "compiled": len(searched[name]),
        }
        for name, one in best.items()
    }
    show(figures, list_table(title, columns, rows))
    if len(best) < len(searched):
        raise typer.Exit(1)


def _measure_on(device: str, hardware: HardwareConfig) -> Measure:
    """Return the measure of programs on a device."""
    from vtaops.board.measure import measure
    from vtaops.runtime import open_device

    if device == "fsim":
        raise UnsupportedError("fsim has no clock; measure on tsim or on a board")

    def measured(program: Program) -> Measurement | None:
        with closing(open_device(device, hardware)) as opened:  # a failure leaves any state
            try:
                return measure(program, opened)
            except DeviceError as error:
                say(f"a candidate failed on {device}: {error}", err=True)
                return None

    return lambda programs: _costs([measured(each) for each in tracked("measure", programs)])


def _costs(found: Sequence[Measurement | None]) -> list[int | float | None]:
    """Return cycles if the device counts them, else seconds; None for a failed launch."""
    if all(one.performance for one in found if one):
        return [one.performance.cycles if one and one.performance else None for one in found]
    return [one.seconds if one else None for one in found]


def _cost(cost: int | float) -> str:
    """Return a measured cost as text: cycles are integers, seconds are not."""
    return f"{cost:,} cycles" if isinstance(cost, int) else f"{1e3 * cost:.3f} ms"


# ------------------------------------------------------------------------------ details


def _compile(
    op: Operator,
    hardware: HardwareConfig,
    tiling: Any,
    capabilities: str,
    stage: ShownStage | None,
    save: Path | None,
) -> None:
    """Print a stage of the compiler, and save the program."""
    from vtaops.compiler.driver import compile

    if stage not in (None, "program"):
        _show(op, hardware, tiling, stage)
    if stage == "program" or save is not None:
        program = compile(op, hardware, tiling, capabilities=capabilities or None)
        if save is not None:
            program.save(save)
        if stage == "program":
            say(program.disassemble())


def _execute(
    session: Session, op: Operator, arrays: Sequence[Array], tiling: Any, name: str
) -> Array:
    """Run an operator, showing the progress of a simulator of cycles."""
    with progress_bar(f"compile {name}"):
        session.program(op, tiling)
    with progress_bar(f"run {name}"):
        return np.asarray(session.run(op, *arrays, tiling=tiling))


def _report(
    program: Program,
    statistics: Statistics,
    performance: TsimPerformance | None,
    title: str,
    timing: bool,
) -> tuple[dict[str, Any], list[Table]]:
    """Return the statistics report as data and as tables."""
    from vtaops.report import performance_table, statistics_data, statistics_table

    timeline = program.timeline()
    data = statistics_data(program, statistics, timeline)
    if not timing:
        del data["timing"]["units"], data["timing"]["port"]
    tables = [statistics_table({"value": data}, title)]
    if performance:
        data["performance"] = performance.as_dict()
        tables.append(performance_table(performance, "Where the cycles went"))
    return data, tables


def _load(files: list[Path] | None) -> list[Array]:
    arrays = []
    for file in files or []:
        with raising(ShapeError, f"cannot read {file} as a .npy array", OSError, ValueError):
            arrays.append(read_array(file))
    return arrays


def _arguments(
    op: Operator, config: HardwareConfig, given: Mapping[str, Sequence[Array]], seed: int
) -> list[Array]:
    """Return the arrays of an operator: those given for an option, and random ones."""
    from vtaops.ops.reference import random_arguments

    arrays = list(random_arguments(op, np.random.default_rng(seed)))
    read = [b for b in op.buffers(config) if b.role in (Role.INPUT, Role.PARAMETER)]
    for role, option in (Role.INPUT, "--input"), (Role.PARAMETER, "--weights"):
        places = [place for place, buffer in enumerate(read) if buffer.role is role]
        if len(given[option]) > len(places):
            names = ", ".join(read[place].name for place in places) or "none"
            raise ShapeError(
                f"{option} is given {len(given[option])} times; {op.summary} takes {names}"
            )
        for place, array in zip(places, given[option], strict=False):
            arrays[place] = array
    return arrays


def _show(op: Any, hardware: HardwareConfig, tiling: Any, stage: ShownStage) -> None:
    module = {
        "tir": lambda: op.declare(hardware),
        "schedule": lambda: op.schedule(hardware, tiling).mod,
        "lowered": lambda: op.lower(hardware, tiling),
    }[stage]()
    say(module.script())


def _workload(text: str) -> Workload:
    """Return the layer of a name, or an operator written in Python."""
    from vtaops.schedule.workloads import Workload, find

    if "(" not in text:
        return find(text)
    try:
        kind, values = called(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError) as error:
        raise ShapeError(
            f"cannot read the operator {text!r}: {error}; write for example "
            f"'MaxPool2d(channels=64, height=56, width=56, kernel=3)' with one of "
            f"{', '.join(_kinds())}"
        ) from error
    op = kind(**values)
    return Workload(op.summary, op)


def _kinds() -> list[str]:
    """Return the names of all operators."""
    from vtaops import ops

    return [name for name in ops.__all__ if name != "Operator"]


def called(call: ast.expr) -> tuple[Any, dict[str, Any]]:
    """Return the operator that a call is of, and its keywords; ValueError says what else it is."""
    from vtaops import ops

    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("it is not a call with keywords")
    name = ast.unparse(call.func).removeprefix("vtaops.")
    if name not in _kinds():
        raise ValueError(f"unknown operator {name}{suggestion(name, _kinds())}")
    return getattr(ops, name), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
