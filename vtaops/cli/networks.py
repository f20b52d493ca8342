"""The commands of `vtaops` for whole networks: compile, ops, profile, and `run MODEL`.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from vtaops.base.errors import ModelError, UnsupportedError
from vtaops.base.files import exists, read_array, read_file
from vtaops.cli.options import DeviationOption, JsonOption, MeanOption, read_preparation
from vtaops.cli.quantize import NETWORKS
from vtaops.cli.run import run_app
from vtaops.quantization.pictures import Preparation, read_picture

if TYPE_CHECKING:
    from vtaops.graph import Tensor
    from vtaops.model import Model

SourceArgument = Annotated[
    Path, typer.Argument(help="A model: .onnx, .tflite, or what `vtaops compile` wrote (.vtam).")
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        help="Configuration: a name (see: vtaops configs) or a JSON file. Default: pynq, or what a "
        ".vtam was compiled for."
    ),
]
SearchOption = Annotated[
    str, typer.Option("--search", help="How tilings are found: off, fast or thorough.")
]


DEFAULT_CONFIG = "pynq"


def register(app: typer.Typer) -> None:
    """Add the commands of this file to an application."""
    for command in (compile_network, ops, profile):
        app.command(command.__name__.removesuffix("_network"), rich_help_panel=NETWORKS)(command)
    run_app.command("model")(run_model)


def compile_network(
    model: SourceArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: .vtam.")],
    config: ConfigOption = None,
    search: SearchOption = "off",
    as_json: JsonOption = False,
) -> None:
    """Compile a network to one file that runs without the compiler.

    Example: vtaops compile network.q.onnx -o network.vtam
    """
    from vtaops.model.tables import summary

    if _is_compiled(model):
        raise UnsupportedError(f"{model} is compiled already")
    compiled = _compiled(model, config, search)
    compiled.save(output)
    report = compiled.report()
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        typer.echo(f"{summary(report)}\nwritten to {output}, {output.stat().st_size:,} bytes")


def ops(model: SourceArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what of a network would run where, and why, without compiling it.

    Example: vtaops ops network.q.onnx --config ultra96
    """
    from vtaops.model.tables import plan_table

    if _is_compiled(model):
        compiled = _compiled(model, config)
        rows, name = compiled.plan, compiled.config.name
    else:
        source, name = _source(model), config or DEFAULT_CONFIG
        from vtaops.network import plan_model  # loads TVM: seconds

        rows = plan_model(source, name).rows
    if as_json:
        typer.echo(json.dumps([vars(row) for row in rows], indent=2))
        return
    Console().print(plan_table(rows, f"{model.name} on {name}"))
    typer.echo(f"{sum(row.where == 'vta' for row in rows)} of {len(rows)} operators on VTA")


def profile(
    model: SourceArgument,
    config: ConfigOption = None,
    against: Annotated[
        str, typer.Option("--against", help="A second configuration, shown side by side.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A page (.html: timeline of the network) or a picture (.png, .svg, .pdf).",
        ),
    ] = None,
    picture: Annotated[
        str, typer.Option("--picture", help="What a picture shows: roofline or memory.")
    ] = "roofline",
    quality: Annotated[
        Path | None,
        typer.Option(help="What `vtaops quantize --json` printed: SQNR of every layer."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where the cycles and the bytes of a network go, layer by layer.

    Example: vtaops profile network.vtam -o network.html
    """
    from vtaops.model import tables
    from vtaops.report import network_pictures, save_figure, write_text

    compiled = _compiled(model, config)
    known = _quality(quality) if quality else {}
    report = compiled.report(quality=known)
    if against:
        if _is_compiled(model):
            raise UnsupportedError(
                f"{model} is compiled for {report.config}; a comparison needs the model itself"
            )
        other = _compiled(model, against).report(quality=known)
        if as_json:
            typer.echo(json.dumps([report.as_dict(), other.as_dict()], indent=2))
        else:
            Console().print(tables.network_comparison(report, other))
    elif as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        console = Console()
        console.print(tables.network_table(report, console.width))
        typer.echo(tables.summary(report))
    if output is None:
        return
    if output.suffix == ".html":
        write_text(output, network_pictures.network_page(compiled))
    elif picture == "memory":
        save_figure(network_pictures.memory_map(compiled), output)
    elif picture == "roofline":
        save_figure(network_pictures.network_roofline(compiled), output)
    else:
        raise UnsupportedError(f"--picture is {picture!r}; it must be roofline or memory")
    typer.echo(f"written to {output}", err=True)


def run_model(
    model: SourceArgument,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", help="An input: .npy, or a picture; repeat for several."),
    ] = None,
    mean: MeanOption = None,
    deviation: DeviationOption = None,
    config: ConfigOption = None,
    device: Annotated[
        str, typer.Option("--device", help="Where to run: fsim, tsim, tsim-axi, pynq://HOST:PORT.")
    ] = "fsim",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the results: .npz.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the integer reference, bit for bit.")
    ] = False,
    profiled: Annotated[
        bool, typer.Option("--profile", help="Show what the device counted, and the time.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run machine code for this host that a .vtam may hold.")
    ] = False,
) -> None:
    """Run a network on inputs.

    Pictures are scaled to the size of the network's input and to -1..1, or as --mean and
    --deviation say, which are those of `vtaops quantize`. Without an input, random numbers are
    taken.

    Example: vtaops run network.vtam --input picture.png --mean 0.485,0.456,0.406
    --deviation 0.229,0.224,0.225
    """
    from vtaops.runtime import ResidentPrograms, open_device

    preparation = read_preparation(mean, deviation)
    if preparation and all(path.suffix == ".npy" for path in inputs or []):
        raise ModelError("--mean and --deviation prepare pictures; no --input is one")
    compiled = _compiled(model, config, trusted=trust)
    tensors = compiled.graph.inputs
    arrays = [read_input(t, p, preparation) for t, p in zip(tensors, inputs or [], strict=False)]
    if inputs and len(inputs) != len(tensors):
        raise ModelError(f"{len(inputs)} inputs are given; the network takes {len(tensors)}")
    if not inputs:
        arrays = [random_input(tensor) for tensor in tensors]
    opened = open_device(device, compiled.config)

    class Opened:
        residents = ResidentPrograms(opened, timeout=600)

    console = Console(stderr=True)
    begin = time.perf_counter()
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("", total=len(compiled.stages))

            def advance(text: str) -> None:
                progress.update(task, advance=1, description=text)

            found = compiled.run(*arrays, session=Opened(), progress=advance)
        seconds = time.perf_counter() - begin
        results = found if isinstance(found, tuple) else (found,)
        if profiled:
            counters = ", ".join(f"{k} {v:,}" for k, v in opened.stats().as_dict().items())
            typer.echo(f"{seconds * 1e3:,.1f} ms of this host, with loading; {counters}", err=True)
    finally:
        Opened.residents.close()
        opened.close()
    for tensor, array in zip(compiled.graph.outputs, results, strict=True):
        typer.echo(f"{tensor.name} {array.dtype}{list(array.shape)}: {top(array)}")
    if output is not None:
        names = [tensor.name.replace("/", "_") for tensor in compiled.graph.outputs]
        np.savez(output, **dict(zip(names, results, strict=True)))
    if check:
        expected = compiled.reference(*arrays)
        expected = expected if isinstance(expected, tuple) else (expected,)
        if not all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True)):
            typer.echo("the results differ from the reference", err=True)
            raise typer.Exit(1)
        typer.echo("equal to the reference")


# ------------------------------------------------------------------------------ details


def read_input(
    tensor: Tensor, path: Path, preparation: Preparation | None = None
) -> np.ndarray[Any, Any]:
    """Return an input from a file: an array as it is, a picture prepared for the tensor.

    Raises
    ------
    ModelError
        If the file cannot be read, or does not suit.
    """
    if path.suffix == ".npy":
        try:
            return read_array(path)
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}: {error}") from error
    scaled = read_picture(path, tensor.name, tensor.shape, preparation)
    if tensor.dtype == "float32":
        return scaled
    steps = np.rint(scaled / tensor.scale) + tensor.zero_point
    return np.asarray(np.clip(steps, -128, 127)).astype(np.int8)


def random_input(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return random numbers for an input; the same at every call."""
    rng = np.random.default_rng(0)
    if tensor.dtype == "float32":
        return rng.uniform(-1, 1, tensor.shape).astype(np.float32)
    return rng.integers(-128, 128, tensor.shape).astype(tensor.dtype)


def top(array: np.ndarray[Any, Any], count: int = 5) -> str:
    """Return the greatest values of an array with their positions."""
    flat = array.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    return ", ".join(f"[{i}] {flat[i]:.4g}" for i in order)


def _is_compiled(path: Path) -> bool:
    from vtaops.model.artefact import SUFFIX

    return path.suffix == SUFFIX


def _source(path: Path) -> Path:
    if not exists(path):
        raise ModelError(f"there is no file {path}")
    return path


def _compiled(path: Path, config: str | None, search: str = "off", trusted: bool = False) -> Model:
    """Return a model: compiled now, or read from its file.

    Raises
    ------
    UnsupportedError
        If the file was compiled for another configuration than the one that is asked for.
    """
    if _is_compiled(path):
        return _loaded(path, config, trusted)
    source, chosen = _source(path), config or DEFAULT_CONFIG
    from vtaops.network import compile_model  # loads TVM: seconds

    with Console(stderr=True).status(f"compiling {path.name} for {chosen}"):
        return compile_model(source, chosen, search=search)  # type: ignore[arg-type]


def _loaded(path: Path, config: str | None, trusted: bool) -> Model:
    from vtaops.machine.config import HardwareConfig
    from vtaops.model import load_model

    model = load_model(path, trusted=trusted)
    if config and HardwareConfig.load(config).fingerprint != model.config.fingerprint:
        raise UnsupportedError(
            f"{path} is compiled for {model.config.name}, not for {config}; another configuration "
            "needs the model that it was compiled from"
        )
    return model


def _quality(path: Path) -> dict[str, float]:
    """Return the SQNR of layers by name, from what `vtaops quantize --json` printed."""
    try:
        found = json.loads(read_file(path))
        return {str(layer["tensor"]): float(layer["sqnr_db"]) for layer in found["layers"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} is not what vtaops quantize --json prints: {error}") from error
