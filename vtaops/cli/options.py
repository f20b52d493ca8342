"""Options that several commands of `vtaops` share, and what they are read into.

A command decorated with `with_run_options` takes the fields of `RunOptions` as its own options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich import box
from rich.table import Table
from typer.core import TyperGroup

from vtaops.base.errors import ModelError, ShapeError, UnsupportedError
from vtaops.base.files import exists
from vtaops.machine.config import HardwareConfig
from vtaops.quantization.pictures import Preparation

if TYPE_CHECKING:
    from vtaops.runtime import Device

ConfigArgument = Annotated[str, typer.Argument(help="Configuration: a name or a JSON file.")]
ConfigOption = Annotated[
    str,
    typer.Option("--config", help="Configuration: a name (see: vtaops configs) or a JSON file."),
]
LayerOption = Annotated[
    str, typer.Option("--layer", help="A named layer (see: vtaops layers); replaces the shape.")
]
MeanOption = Annotated[
    str | None,
    typer.Option(
        help="Of pictures, after scaling to 0..1: one number, or red,green,blue. Default: 0.5."
    ),
]
DeviationOption = Annotated[
    str | None, typer.Option(help="What pictures are divided by then, as --mean. Default: 0.5.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print the report as CSV.")]


class ShownStage(str, Enum):
    """Stages of the compiler that `--show` prints."""

    tir = "tir"
    schedule = "schedule"
    lowered = "lowered"
    program = "program"


@dataclass(frozen=True)
class RunOptions:
    """How an operator is compiled, where it runs, and what is told of it."""

    tiling: Annotated[
        str,
        typer.Option("--tiling", help="Explicit tiling, e.g. oc=128,ic=16,h=7,w=14,oc_threads=2."),
    ] = ""
    config: ConfigOption = "pynq"
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="Where to run: fsim, tsim, pynq://HOST:PORT … (see: vtaops device list).",
        ),
    ] = "fsim"
    capabilities: Annotated[
        str,
        typer.Option(
            "--capabilities",
            help="What the program may use: full, fsim, hls-2020, chisel, portable. "
            "Default: what the device can.",
        ),
    ] = ""
    inputs: Annotated[
        list[Path],
        typer.Option("--input", help="An input: .npy; again for the next. Default: random."),
    ] = field(default_factory=list)
    weights: Annotated[
        list[Path],
        typer.Option("--weights", help="Weights, then a bias: .npy, as --input. Default: random."),
    ] = field(default_factory=list)
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the result: .npy.")
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random arguments.")] = 0
    show: Annotated[
        ShownStage | None,
        typer.Option("--show", help="Print a stage of the compiler and do not run."),
    ] = None
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the compiled program to this file.")
    ] = None
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Waveform file of tsim: .vcd or .fst.")
    ] = None
    trace_window: Annotated[
        str, typer.Option("--trace-window", help="Cycles of the waveform, e.g. 1000:2000.")
    ] = ""
    timing: Annotated[
        bool, typer.Option("--timing", help="Add the cycles of every unit, by the timing model.")
    ] = False
    as_json: JsonOption = False
    as_csv: CsvOption = False

    def open_device(self, config: HardwareConfig) -> Device:
        """Open the device, with a waveform if one is asked for.

        Raises
        ------
        DeviceError
            If it cannot be opened.
        UnsupportedError
            If it records no waveforms and one is asked for.
        """
        from vtaops.runtime import TSIM_INTERFACES, open_device
        from vtaops.runtime.tsim import Tsim

        if self.trace is None:
            return open_device(self.device, config)
        if self.device not in TSIM_INTERFACES:
            raise UnsupportedError(f"device {self.device!r} records no waveform; use --device tsim")
        interface, window = TSIM_INTERFACES[self.device], self._window()
        return Tsim(config, interface=interface, trace=self.trace, trace_window=window)

    def _window(self) -> tuple[int, int] | None:
        if not self.trace_window:
            return None
        try:
            first, end = (int(part) for part in self.trace_window.split(":"))
        except ValueError as error:
            raise ShapeError(
                f"--trace-window is {self.trace_window!r}; write first:end, e.g. 1000:2000"
            ) from error
        return first, end


class OperatorsOrModels(TyperGroup):
    """The commands of `vtaops run`: a file in the place of a command's name is a model."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in self.commands and ("." in name or exists(name)):
            args = ["model", *args]
        return super().resolve_command(ctx, args)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of `RunOptions` as options; it takes them as ``options``."""
    hints = get_type_hints(RunOptions, include_extras=True)
    own = get_type_hints(command, include_extras=True)
    shared = {
        f.name: inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=[] if f.default is MISSING else f.default,
            annotation=hints[f.name],
        )
        for f in fields(RunOptions)
    }

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = RunOptions(**{name: given.pop(name) for name in shared})
        command(**given, options=options)

    kept = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
    kept = [p.replace(annotation=own[p.name], kind=p.KEYWORD_ONLY) for p in kept]
    with_options.__signature__ = inspect.Signature([*kept, *shared.values()])  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in [*kept, *shared.values()]}
    return with_options


def read_preparation(mean: str | None, deviation: str | None) -> Preparation | None:
    """Return what `--mean` and `--deviation` ask for, None if neither is given.

    Raises
    ------
    ModelError
        If they are no numbers, or none that suit.
    """
    given = {"mean": mean, "deviation": deviation}
    numbers = {}
    for name, text in given.items():
        if text is None:
            continue
        try:
            numbers[name] = tuple(float(number) for number in text.split(","))
        except ValueError as error:
            raise ModelError(
                f"--{name} is {text!r}; it must be a number, or three as 0.485,0.456,0.406"
            ) from error
    return Preparation(**numbers) if numbers else None


def list_table(title: str) -> Table:
    """Return an empty table as the commands print their lists."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
