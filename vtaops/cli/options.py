"""What several commands of `vtaops` share: options, tables, JSON, progress bars.

A command decorated with `with_run_options` takes the fields of `RunOptions` as its own options.

What the docstring of a command does not describe has the same meaning in all commands:

Parameters
----------
as_csv : --csv
    Print the report as CSV.
as_json : --json
    Print the report as JSON.
bandwidth
    Bytes per cycle, both directions; 0: what the port takes.
bias
    Add an int32 bias.
board
    Its address: HOST or HOST:PORT, where it is served.
clip
    Bounds of the result: 0,127 is a ReLU; 'none' keeps the low bits.
config
    Configuration: a name (see: vtaops configs) or a JSON file.
deviation
    What pictures are divided by then, as --mean. Default: 0.5.
file
    A .bit file.
files
    Program files (see: vtaops run ... --save).
latency
    Latency of the DRAM in cycles.
layer
    A named layer (see: vtaops layers); may be repeated.
mean
    Of pictures, after scaling to 0..1: one number, or red,green,blue. Default: 0.5.
model
    A model: .onnx, .tflite, or what `vtaops compile` wrote (.vtam).
output : --output, -o
    File to write.
path
    The store; by default the one that sweeps use.
shift
    Right shift of the accumulators, 0..31.
tiling
    A tiling, e.g. oc=128,ic=16,h=7,w=14, or 'default'; may be repeated.
timeout
    Seconds that the board may take for a message.
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
from vtaops.base.errors import ArgumentError, ModelError, ShapeError, UnsupportedError, VTAError
from vtaops.base.files import exists, require_folder
from vtaops.base.progress import heard_by
from vtaops.machine.config import HardwareConfig
from vtaops.program.timing import TimingParameters
from vtaops.quantization.pictures import Preparation

if TYPE_CHECKING:
    from vtaops.runtime import Device

DEFAULT_LATENCY = TimingParameters().dram_latency


class ShownStage(str, Enum):
    """Stages of the compiler that `--show` prints."""

    tir = "tir"
    schedule = "schedule"
    lowered = "lowered"
    program = "program"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How an operator is compiled, where it runs, and what is told of it.

    Attributes
    ----------
    tiling
        Explicit tiling, e.g. oc=128,ic=16,h=7,w=14,oc_threads=2.
    device
        Where to run: fsim, tsim, pynq://HOST:PORT … (see: vtaops device list).
    capabilities
        What the program may use: full, fsim, hls-2020, chisel, portable. Default: what the device
        can.
    inputs : --input
        An input: .npy; again for the next. Default: random.
    weights
        Weights, then a bias: .npy, as --input. Default: random.
    output : --output, -o
        Write the result: .npy.
    seed
        Seed of the random arguments.
    show
        Print a stage of the compiler and do not run.
    save
        Write the compiled program to this file.
    trace
        Waveform file of tsim: .vcd or .fst.
    trace_window
        Cycles of the waveform, e.g. 1000:2000.
    timing
        Add the cycles of every unit, by the timing model.
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
        window = read_cycles("--trace-window", self.trace_window)
        interface = TSIM_INTERFACES[self.device]
        return Tsim(config, interface=interface, trace=self.trace, trace_window=window)


DEFAULTS = RunOptions()


class OperatorsOrModels(TyperGroup):
    """The commands of `vtaops run`: a file in the place of a command's name is a model."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name not in self.commands and ("." in name or exists(name)):
            args = ["model", *args]
        return super().resolve_command(ctx, args)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of `RunOptions` as options; it takes them as ``options``."""
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
    """Commands that are described by the NumPy style of their docstrings.

    Positional parameters of the function become arguments, keyword-only ones options. Below
    ``Parameters`` stands the help of each, behind its name the flags where the name is not all of
    them: ``output : --output, -o``.
    """

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        register = super().command(*args, **kwargs)

        def described(function: Callable[..., None]) -> Callable[..., None]:
            _declare(function, *_described(function, "Parameters"))
            return register(function)

        return described


def _declare(function: Any, text: str, parameters: list[inspect.Parameter]) -> None:
    """Set docstring and parameters of a function, as Typer reads them."""
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
    """Return a docstring up to a section, and flags and text of each entry of the section."""
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
    if parameter.name in _WRITTEN and not isinstance(parameter.default, Path):  # that is a folder
        info.callback = _require_folders
    if parameter.name in _COMPLETED:
        info.autocompletion = _COMPLETED[parameter.name]
    if flags:
        info.param_decls = tuple(flags.split(", "))
    elif hint is bool and not parameter.default:  # no flag --no-...
        info.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    kind = get_args(hint)[0] if found else hint
    return parameter.replace(annotation=Annotated[kind, info])


def _layers(incomplete: str) -> list[str]:
    source = Path(__file__).parents[1] / "schedule" / "workloads.py"
    path = cache_directory("layers") / f"{source.stat().st_mtime_ns}.txt"
    if not trusted(path):
        from vtaops.schedule.workloads import WORKLOADS  # loads TVM: seconds, too long for a key

        with suppress(OSError):
            keep("\n".join(WORKLOADS).encode(), path)
    names = path.read_text().split() if trusted(path) else []
    return [name for name in names if name.startswith(incomplete)]


def _configs(incomplete: str) -> list[str]:
    return [name for name in HardwareConfig.names() if name.startswith(incomplete)]


def _devices(incomplete: str) -> list[str]:
    from vtaops.runtime import DEVICES

    return [n for d in DEVICES if (n := d.removesuffix("HOST:PORT")).startswith(incomplete)]


_COMPLETED = {"layer": _layers, "config": _configs, "against": _configs, "device": _devices}
"""Parameters whose values a shell completes, and how."""

_WRITTEN = {"output", "save", "trace", "parallel", "plot"}
"""Options that name files to write."""


def _require_folders(paths: Any) -> Any:
    """Refuse a file that could not be written, before hours of work."""
    for path in paths if isinstance(paths, list) else [paths]:
        if path is not None:
            try:
                require_folder(path)
            except OSError as error:
                raise VTAError(f"cannot write {str(path)!r}: {error.strerror}") from error
    return paths


def write_arrays(
    path: Path, suffix: str, save: Callable[..., None], *args: Any, **named: Any
) -> None:
    """Write what `numpy.save` or `numpy.savez` makes, whole or not at all.

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


def read_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of inputs that `--shapes NAME=1,3,224,224` gives, None if it is not given.

    Raises
    ------
    ArgumentError
        If it is no such text.
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
    """Parse ``oc=128,ic=16,...``; empty means the default tiling."""
    from vtaops.schedule import Tiling

    return Tiling.parse(text) if text else None


def read_cycles(option: str, text: str) -> tuple[int, int] | None:
    """Parse ``1000:2000``, the first cycle and the end of a window; None if the text is empty.

    Raises
    ------
    ShapeError
        If these are not two integers.
    """
    if not text:
        return None
    try:
        first, end = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise ShapeError(f"{option} is {text!r}; write two cycles: 0:20000") from error
    return first, end


def list_table(title: str, columns: Mapping[str, str], rows: Iterable[Iterable[Any]]) -> Table:
    """Return a table as the commands print their lists.

    Parameters
    ----------
    title : str
        Above the table.
    columns : mapping
        Heading -> format of the values, which are aligned to the right then; empty for text.
    rows : iterable
        The values; None leaves a cell empty.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, form in columns.items():
        table.add_column(heading, justify="right" if form else "left", overflow="fold")
    for row in rows:
        cells = zip(row, columns.values(), strict=True)
        table.add_row(*("" if value is None else format(value, form) for value, form in cells))
    return table


def show(data: object, as_json: bool, *parts: Table | str) -> None:
    """Print data as JSON, or else their parts for people: tables and lines."""
    if as_json:
        typer.echo(json.dumps(data, indent=2))
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        else:
            Console(markup=False).print(part)  # names come from files


class Bar(Progress):
    """Progress on the error stream, with the time that is left; it vanishes at the end."""

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
        """Show how far a work is; what was done before it is told counts as done, not as speed."""
        if work not in self._works:
            self._works[work] = self.add_task(work, total=None)
        text = f"{work} {step}".rstrip()
        self.update(self._works[work], completed=done, total=total or None, description=text)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Show what is told of long work within (`vtaops.base.progress`)."""
    with Bar() as bar, heard_by(bar.tell):
        yield bar
