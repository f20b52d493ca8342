"""Options, tables, JSON and progress bars that several commands of `vtaops` share.

A command decorated with `with_run_options` takes the fields of `RunOptions` as its own options.

A parameter that a command's docstring does not describe has the same meaning in all commands:

Parameters
----------
as_csv : --csv
    Print the report as CSV.
as_json : --json
    Print the report as JSON.
bandwidth
    Bytes per cycle, both directions; 0: that of the port.
bias
    Add an int32 bias.
board
    Address of a board server: HOST or HOST:PORT.
clip
    Bounds of the result: 0,127 is a ReLU; 'none' keeps the low bits.
config
    Configuration: a name (see: vtaops configs) or a JSON file.
deviation
    Deviation by which pictures are then divided, like --mean. Default: 0.5.
file
    A .bit file.
files
    Program files (see: vtaops run ... --save).
latency
    Latency of the DRAM in cycles.
layer
    A named layer (see: vtaops layers); may be repeated.
mean
    Mean of pictures after scaling to 0..1: one number, or red,green,blue. Default: 0.5.
model
    A model: .onnx, .tflite, or the output of `vtaops compile` (.vtam).
output : --output, -o
    Output file.
path
    The store; the one that sweeps use by default.
shift
    Right shift of the accumulators, 0..31.
tiling
    A tiling, e.g. oc=128,ic=16,h=7,w=14, or 'default'; may be repeated.
timeout
    Time limit of a message to the board in seconds.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, wraps
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from typer.core import TyperGroup

from vtaops.base.cache import cache_directory, keep, trusted
from vtaops.base.errors import (
    ArgumentError,
    ModelError,
    ShapeError,
    UnsupportedError,
    VTAError,
    raising,
)
from vtaops.base.files import exists, reason_of, require_folder
from vtaops.base.progress import heard_by
from vtaops.machine.config import HardwareConfig
from vtaops.program.timing import TimingParameters
from vtaops.quantization.pictures import Preparation

if TYPE_CHECKING:
    from vtaops.runtime import Device

DEFAULT_LATENCY = TimingParameters().dram_latency


class ShownStage(str, Enum):
    """Compiler stages that `--show` prints."""

    tir = "tir"
    schedule = "schedule"
    lowered = "lowered"
    program = "program"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to compile an operator, where to run it, and what to print.

    Attributes
    ----------
    tiling
        Explicit tiling, e.g. oc=128,ic=16,h=7,w=14,oc_threads=2.
    device
        Where to run: fsim, tsim, pynq://HOST:PORT … (see: vtaops device list).
    capabilities
        Capabilities that the program may use: full, fsim, hls-2020, chisel, portable. Default:
        those of the device.
    inputs : --input
        An input: .npy; repeat for further inputs. Default: random.
    weights
        Weights, then a bias: .npy, like --input. Default: random.
    output : --output, -o
        Write the result: .npy.
    seed
        Seed of the random arguments.
    show
        Print a compiler stage instead of running.
    save
        Write the compiled program to this file.
    trace
        Waveform file of tsim: .vcd or .fst.
    trace_window
        Cycles of the waveform, e.g. 1000:2000.
    timing
        Add the cycles of every unit by the timing model.
    """

    tiling: str = ""
    config: str = "pynq"
    device: str = "fsim"
    capabilities: str = ""
    inputs: list[Path] = field(default_factory=list)
    weights: list[Path] = field(default_factory=list)
    output: Path | None = None
    seed: Annotated[int, typer.Option(min=0)] = 0
    show: ShownStage | None = None
    save: Path | None = None
    trace: Path | None = None
    trace_window: str = ""
    timing: bool = False
    as_json: bool = False
    as_csv: bool = False

    def open_device(self, config: HardwareConfig) -> Device:
        """Open the device, recording a waveform if requested.

        Raises
        ------
        DeviceError
            If the device cannot be opened.
        UnsupportedError
            If a waveform is requested and the device does not record any.
        """
        from vtaops.runtime import TSIM_INTERFACES, open_device
        from vtaops.runtime.tsim import Tsim

        if self.trace is None:
            return open_device(self.device, config)
        if self.device not in TSIM_INTERFACES:
            raise UnsupportedError(f"device {self.device!r} records no waveform; use --device tsim")
        window = read_cycles("--trace-window", self.trace_window)
        interface = TSIM_INTERFACES[self.device]
        return Tsim(config, interface=interface, trace=self.trace, trace_window=window)


DEFAULTS = RunOptions()


class OperatorsOrModels(TyperGroup):
    """Commands of `vtaops run`; a file in place of a command's name is a model."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in self.commands and ("." in name or exists(name)):
            args = ["model", *args]
        return super().resolve_command(ctx, args)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of `RunOptions` as options; it receives them as ``options``."""
    fields = _described(RunOptions, "Attributes")[1]
    shared = [p.replace(default=getattr(DEFAULTS, p.name)) for p in fields]
    text, own = _described(command, "Parameters")

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = RunOptions(**{p.name: given.pop(p.name) for p in shared})
        command(**given, options=options)

    _declare(with_options, text, [*(p for p in own if p.name != "options"), *shared])
    return with_options


class Commands(typer.Typer):
    """Commands described by their NumPy-style docstrings.

    Positional parameters of the function become arguments, keyword-only ones options. The section
    ``Parameters`` has the help of each. Flags follow the name if they differ from it:
    ``output : --output, -o``.
    """

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        register = super().command(*args, **kwargs)

        def described(function: Callable[..., None]) -> Callable[..., None]:
            _declare(function, *_described(function, "Parameters"))
            return register(function)

        return described


def _declare(function: Any, text: str, parameters: list[inspect.Parameter]) -> None:
    """Set the docstring and parameters of a function in the form that Typer reads."""
    function.__doc__ = text
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {p.name: p.annotation for p in parameters}


def _described(documented: Any, section: str) -> tuple[str, list[inspect.Parameter]]:
    """Return a docstring up to a section, and the parameters that the section describes."""
    text, own = _entries(inspect.getdoc(documented), section)
    about = _entries(__doc__, "Parameters")[1] | own
    hints = get_type_hints(documented, include_extras=True)
    parameters = [
        p.replace(annotation=hints[p.name])
        for p in inspect.signature(documented).parameters.values()
    ]
    return text, [_option(p, *about[p.name]) if p.name in about else p for p in parameters]


@cache
def _entries(doc: str | None, section: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return a docstring up to a section, and the flags and text of each entry of the section."""
    text, _, entries = (doc or "").partition(f"\n{section}\n{'-' * len(section)}\n")
    return text, {
        name: (flags, " ".join(lines.split()))
        for name, flags, lines in _ENTRY.findall(entries + "\n")
    }


_ENTRY = re.compile(r"^(\w+)(?: : (.+))?\n((?: +.+\n)+)", re.MULTILINE)


def _option(parameter: inspect.Parameter, flags: str, about: str) -> inspect.Parameter:
    """Return a parameter with its description for Typer."""
    hint, keyword = parameter.annotation, parameter.kind is parameter.KEYWORD_ONLY
    (found,) = getattr(hint, "__metadata__", None) or (None,)
    info = copy(found) or (typer.Option() if keyword else typer.Argument())
    if info.help:  # one of `RunOptions`
        return parameter
    info.help = about
    # A default marks a folder.
    if parameter.name in _WRITTEN and not isinstance(parameter.default, Path):
        info.callback = _require_folders
    if parameter.name in _COMPLETED:
        info.autocompletion = _COMPLETED[parameter.name]
    if flags:
        info.param_decls = tuple(flags.split(", "))
    elif hint is bool and not parameter.default:  # omit the flag --no-...
        info.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    kind = get_args(hint)[0] if found else hint
    return parameter.replace(annotation=Annotated[kind, info])


def _layers(incomplete: str) -> list[str]:
    source = Path(__file__).parents[1] / "schedule" / "workloads.py"
    path = cache_directory("layers") / f"{source.stat().st_mtime_ns}.txt"
    if not trusted(path):
        # Loads TVM, which takes too long for completion.
        from vtaops.schedule.workloads import WORKLOADS

        with suppress(OSError):
            keep("\n".join(WORKLOADS).encode(), path)
    names = path.read_text().split() if trusted(path) else []
    return [name for name in names if name.startswith(incomplete)]


def _configs(incomplete: str) -> list[str]:
    return [name for name in HardwareConfig.names() if name.startswith(incomplete)]


def _devices(incomplete: str) -> list[str]:
    from vtaops.runtime import device_names

    found = (name.removesuffix("HOST:PORT") for name in device_names())
    return [name for name in found if name.startswith(incomplete)]


_COMPLETED = {"layer": _layers, "config": _configs, "against": _configs, "device": _devices}
"""Parameters whose values a shell completes, and the functions that do."""

_WRITTEN = {"output", "save", "trace", "parallel", "plot"}
"""Options that name output files."""


def _require_folders(paths: Any) -> Any:
    """Reject an output file that could not be written, before hours of work."""
    for path in paths if isinstance(paths, list) else [paths]:
        if path is not None:
            with raising(VTAError, f"cannot write {str(path)!r}", OSError, told=reason_of):
                require_folder(path)
    return paths


def write_arrays(
    path: Path, suffix: str, save: Callable[..., None], *args: Any, **named: Any
) -> None:
    """Write the output of `numpy.save` or `numpy.savez` atomically.

    Raises
    ------
    VTAError
        If it cannot be written.
    """
    from vtaops.report.files import write_bytes

    content = BytesIO()
    save(content, *args, **named)
    write_bytes(path if path.suffix == suffix else Path(f"{path}{suffix}"), content.getvalue())


def read_preparation(mean: str | None, deviation: str | None) -> Preparation | None:
    """Return the preparation that `--mean` and `--deviation` specify; None if neither is given.

    Raises
    ------
    ModelError
        If the values are not numbers, or are not valid.
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


def read_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Return the input shapes of `--shapes NAME=1,3,224,224`; None if it is not given.

    Raises
    ------
    ArgumentError
        If the text is malformed.
    """
    found = {}
    for text in texts or []:
        name, _, numbers = text.rpartition("=")
        extents = numbers.split(",")
        if not name or not all(extent.strip().isdecimal() for extent in extents):
            raise ArgumentError(f"--shapes is {text!r}; it must be like x=1,3,224,224")
        found[name] = tuple(map(int, extents))
    return found or None


def parse_tiling(text: str) -> Any:
    """Parse ``oc=128,ic=16,...``; an empty text means the default tiling."""
    from vtaops.schedule import Tiling

    return Tiling.parse(text) if text else None


def read_cycles(option: str, text: str) -> tuple[int, int] | None:
    """Parse ``1000:2000``, the first cycle and the end of a window; None for an empty text.

    Raises
    ------
    ShapeError
        If the text is not two integers.
    """
    if not text:
        return None
    try:
        first, end = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise ShapeError(f"{option} is {text!r}; write two cycles: 0:20000") from error
    return first, end


def list_table(title: str, columns: Mapping[str, str], rows: Iterable[Iterable[Any]]) -> Table:
    """Return a table in the style of the command line.

    Parameters
    ----------
    title : str
        Title of the table.
    columns : mapping
        Heading -> format of the values, which are then right-aligned; empty for text.
    rows : iterable
        Rows of values; None leaves a cell empty.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, form in columns.items():
        table.add_column(heading, justify="right" if form else "left", overflow="fold")
    for row in rows:
        cells = zip(row, columns.values(), strict=True)
        table.add_row(*("" if value is None else format(value, form) for value, form in cells))
    return table


def show(data: object, as_json: bool, *parts: Table | str) -> None:
    """Print data as JSON, or else tables and lines for people."""
    if as_json:
        typer.echo(json.dumps(data, indent=2))
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        else:
            Console(markup=False).print(part)  # names come from files


class Bar(Progress):
    """Progress on standard error with the remaining time; it disappears at the end."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
            *(TextColumn("left"), TimeRemainingColumn()),
            console=console,
            transient=True,
            disable=not console.is_terminal,  # else it would end in an empty line
        )
        self._works: dict[str, TaskID] = {}

    def tell(self, work: str, done: int, total: int, step: str = "") -> None:
        """Show the progress of a task; work before the first call counts as done, not as speed."""
        if work not in self._works:
            self._works[work] = self.add_task(work, total=None)
        text = f"{work} {step}".rstrip()
        self.update(self._works[work], completed=done, total=total or None, description=text)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Show the progress reported within the context (`vtaops.base.progress`)."""
    with Bar() as bar, heard_by(bar.tell):
        yield bar
