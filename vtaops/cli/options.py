"""Options, outputs, tables, JSON and progress bars that several commands of `vtaops` share."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.segment import Segments
from rich.table import Table
from typer import Argument, Option
from typer.core import TyperCommand, TyperOption

from vtaops.base.errors import ArgumentError, ModelError, ShapeError, UnsupportedError, raising
from vtaops.base.files import is_special, read_array, require_folder, require_own, same_file
from vtaops.base.progress import progress_listener
from vtaops.base.quoting import terminal_text
from vtaops.base.shapes import Array
from vtaops.machine.config import HardwareConfig
from vtaops.report.files import write_bytes, writing

if TYPE_CHECKING:
    from vtaops.quantization.pictures import Preparation


# ------------------------------------------------------------------------------ options


def complete_layers(incomplete: str) -> list[str]:
    """Return the layers that a word may become."""
    from vtaops.schedule.workloads import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]


def complete_configs(incomplete: str) -> list[str]:
    """Return the configurations that a word may become."""
    return [name for name in HardwareConfig.names() if name.startswith(incomplete)]


def complete_devices(incomplete: str) -> list[str]:
    """Return the devices that a word may become."""
    from vtaops.runtime import device_names

    names = (name.removesuffix("HOST:PORT") for name in device_names())
    return [name for name in names if name.startswith(incomplete)]


CONFIG_HELP = "Configuration: a name (see: vtaops list configs) or a JSON file."

Config = Annotated[str, Option(help=CONFIG_HELP, autocompletion=complete_configs)]
ConfigOrOwn = Annotated[
    str | None,
    Option(
        help=f"{CONFIG_HELP} Default: pynq_ext, or that of a .vtam file. Operators: pynq.",
        autocompletion=complete_configs,
    ),
]
Configs = Annotated[
    list[str] | None,
    Option(
        "--config",
        help=f"{CONFIG_HELP} Default: pynq, for networks pynq_ext or that of a .vtam file; may be "
        "repeated.",
        autocompletion=complete_configs,
    ),
]
Layers = Annotated[
    list[str] | None,
    Option(
        "--layer",
        help="A named layer (see: vtaops list layers); may be repeated.",
        autocompletion=complete_layers,
    ),
]
Device = Annotated[
    str,
    Option(
        help="Where to run: fsim, tsim, pynq://HOST:PORT … (see: vtaops list devices).",
        autocompletion=complete_devices,
    ),
]
BOARD_HELP = (
    "HOST or HOST:PORT of a board server; ulx3s:/dev/ttyUSB0 for the ULX3S at that port, ulx3s: "
    "for the first one found."
)
Board = Annotated[str, Argument(help=BOARD_HELP)]
ModelFile = Annotated[
    Path, Argument(help="A model: .onnx, .tflite, or the output of vtaops compile (.vtam).")
]
Shapes = Annotated[
    list[str] | None,
    Option(help="Shape of an input that the model leaves open, as x=1,3,224,224; may be repeated."),
]
Mean = Annotated[
    str | None,
    Option(
        help="Mean of pictures after scaling to 0..1: one number, or red,green,blue. Default: 0.5."
    ),
]
Std = Annotated[
    str | None,
    Option(
        help="Standard deviation by which pictures are then divided, like --mean. Default: 0.5."
    ),
]
Seed = Annotated[int, Option(help="Seed of all random numbers.", min=0)]
Force = Annotated[bool, Option("--force", help="Replace files that something else wrote.")]


# ------------------------------------------------------------------------------ outputs


class Command(TyperCommand):
    """A command that refuses to write over what it reads, or two outputs to one file."""

    def invoke(self, ctx: Any) -> Any:
        names = ctx.meta.get(__name__, ())
        known = [*_paths(value for name, value in ctx.params.items() if name not in names)]
        for path in _paths(ctx.params[name] for name in names):
            if other := next((other for other in known if same_file(path, other)), None):
                raise ArgumentError(
                    f"cannot write {str(path)!r}: the command reads or writes it already, as "
                    f"{str(other)!r}"
                )
            known.append(path)
        return super().invoke(ctx)


class Report(Command):
    """A command that takes `--json`, of which `show` knows."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params.append(
            TyperOption(
                param_decls=["--json"],
                is_flag=True,
                help="Print the report as JSON.",
                expose_value=False,
                callback=_set_json,
            )
        )


def _paths(values: Iterable[Any]) -> Iterator[Path]:
    """Yield all values that may name files."""
    for value in values:
        if isinstance(value, str | Path):
            yield Path(value)
        elif isinstance(value, list | tuple):
            yield from _paths(value)


_JSON = ContextVar("_JSON", default=False)


def _set_json(_: Any, __: Any, wanted: bool) -> None:
    _JSON.set(wanted)


def as_json() -> bool:
    """Whether the command prints JSON."""
    return _JSON.get()


_Function = TypeVar("_Function", bound=Callable[..., None])
_T = TypeVar("_T")


class Commands(typer.Typer):
    """A group of commands, by default reports; alone it prints its help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, **settings)

    def command(self, *args: Any, **kwargs: Any) -> Callable[[_Function], _Function]:
        return super().command(*args, **{"cls": Report, **kwargs})


def written(*suffixes: str) -> Callable[..., Any]:
    """Return a callback of an option that names output files.

    It rejects what could not be written before hours of work. A device or pipe may have any name if
    there is one format.
    """

    def check(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
        context.meta.setdefault(__name__, []).append(option.name)
        for path in _paths([value]):
            if not (path.suffix.lower() in suffixes or (len(suffixes) == 1 and is_special(path))):
                raise UnsupportedError(
                    f"cannot write {str(path)!r}; its name must end in {' or '.join(suffixes)}"
                )
            with writing(repr(str(path))):
                require_folder(path)
        return value

    return check


def to_write(help: str, *suffixes: str) -> Any:
    """Return the option ``--output`` of a folder, or of a file whose name ends in one of these."""
    return Option("--output", "-o", help=help, callback=written(*suffixes) if suffixes else None)


def claim(folder: Path, names: Iterable[str], force: bool) -> None:
    """Create a folder to write these files to; refuse one that has some of something else.

    Raises
    ------
    VTAError
        If it cannot be created, or has files that the user may want to keep.
    """
    with writing(f"to the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if not force:
            require_own(folder, names)


def write_arrays(path: Path, save: Callable[..., None], *args: Any, **named: Any) -> None:
    """Write the output of `numpy.save` or `numpy.savez`.

    Raises
    ------
    VTAError
        If it cannot be written.
    """
    content = BytesIO()
    save(content, *args, **named)
    write_bytes(path, content.getvalue())


# ------------------------------------------------------------------------------ values


def read_npy(path: Path) -> Array:
    """Return the array of a file.

    Raises
    ------
    ShapeError
        If it is no .npy file.
    """
    with raising(ShapeError, f"cannot read {path} as a .npy array", OSError):
        return read_array(path)


def read_preparation(mean: str | None, std: str | None) -> Preparation | None:
    """Return the preparation that `--mean` and `--std` specify; None if neither is given.

    Raises
    ------
    ModelError
        If the values are not numbers, or are not valid.
    """
    from vtaops.quantization.pictures import Preparation

    numbers = {}
    for name, option, text in ("mean", "--mean", mean), ("deviation", "--std", std):
        must = f"{option} is {text!r}; it must be a number, or three as 0.485,0.456,0.406"
        if text is not None:
            with raising(ModelError, must, ValueError):
                numbers[name] = tuple(map(float, text.split(",")))
    return Preparation(**numbers) if numbers else None


def _pairs(
    option: str, like: str, read: Callable[[str], _T], texts: list[str] | None
) -> dict[str, _T]:
    """Return the pairs of an option `NAME=VALUE`, which may be repeated.

    Raises
    ------
    ArgumentError
        If a text is malformed.
    """
    values = {}
    for text in texts or []:
        name, _, value = text.rpartition("=")
        try:
            values[name] = read(value)
        except ValueError:
            name = ""
        if not name:
            raise ArgumentError(f"{option} is {text!r}; it must be like {like}")
    return values


def read_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Return the input shapes of `--shapes NAME=1,3,224,224`; None if it is not given."""

    def extents(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(",")))

    return _pairs("--shapes", "x=1,3,224,224", extents, texts) or None


read_fixed = partial(_pairs, "--fix", "sr=16000", float)
"""Return the values of `--fix NAME=NUMBER`."""

read_state = partial(_pairs, "--state", "past=present", str)
"""Return the pairs of `--state PAST=PRESENT`."""


def parse_tiling(text: str) -> Any:
    """Parse ``oc=128,ic=16,...``; an empty text means the default tiling."""
    from vtaops.schedule import Tiling

    return Tiling.parse(text) if text else None


# ------------------------------------------------------------------------------ printing


def say(text: object, *, err: bool = False) -> None:
    """Print text, which may hold names from files and from boards."""
    typer.echo(terminal_text(str(text)), err=err)


def show(data: object, *parts: Table | str, good: bool = True) -> None:
    """Print data as JSON, or else tables and lines for people; end with exit code 1 if not good.

    Texts of tables, which may be names from files, lose what terminals obey.
    """
    if as_json():
        typer.echo(json.dumps(data, indent=2))
        parts = ()
    for part in parts:
        if isinstance(part, str):
            say(part)
        else:
            console = Console(markup=False)
            segments = console.render(part)
            console.print(Segments(s._replace(text=terminal_text(s.text)) for s in segments))
    if not good:
        raise typer.Exit(1)


class Bar(Progress):
    """Progress on standard error with the remaining time; it disappears at the end."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            *Progress.get_default_columns()[1:],
            console=console,
            transient=True,
            disable=not console.is_terminal,  # else it would end in an empty line
        )
        self._task = cache(partial(self.add_task, total=None))

    def tell(self, work: str, done: int, total: int, step: str = "") -> None:
        """Show the progress of a task; work before the first call counts as done, not as speed."""
        text = f"{work} {step}".rstrip()
        self.update(self._task(work), completed=done, total=total or None, description=text)


@contextmanager
def progress_bar(work: str = "") -> Iterator[None]:
    """Show the progress reported within the context (`vtaops.base.progress`).

    `work` names what runs while nothing is reported.
    """
    with Bar() as bar, progress_listener(bar.tell):
        if work:
            bar.add_task(work, total=None)
        yield


@contextmanager
def step(*words: object) -> Iterator[str]:
    """Print a command, yield it, and print the seconds that the context took."""
    command = shlex.join(["vtaops", *map(str, words)])
    say(f"$ {command}")
    begin = time.perf_counter()
    with progress_bar(str(words[0])):
        yield command
    say(f"  {time.perf_counter() - begin:.1f} s")
