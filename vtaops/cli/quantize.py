"""The command `vtaops quantize`: from a float ONNX model to a QDQ model, with its quality.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers it.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from vtaops.base.errors import ModelError
from vtaops.base.files import exists
from vtaops.cli.options import DeviationOption, MeanOption, read_preparation

if TYPE_CHECKING:
    from vtaops.quantization import Quality

NETWORKS = "Networks"
"""Heading of the commands for whole networks."""


class ScaleKind(str, Enum):
    """What scales may be."""

    pow2 = "pow2"
    free = "free"


def register(app: typer.Typer) -> None:
    """Add the command of this file to an application."""
    app.command(rich_help_panel=NETWORKS)(quantize)


def quantize(
    model: Annotated[Path, typer.Argument(help="A float ONNX model.")],
    calibration: Annotated[
        Path,
        typer.Option(
            help="Inputs as in real use: an .npz file with an array for each input (its first axis "
            "counts images), or a folder of .npz or .npy files or of pictures, which are scaled to "
            "the size of the input."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The QDQ model to write.")],
    scales: Annotated[
        ScaleKind,
        typer.Option(help="pow2: shifts only, for every VTA. free: fixed-point multipliers."),
    ] = ScaleKind.pow2,
    zero_points: Annotated[
        bool | None,
        typer.Option(help="Asymmetric activations. Default: only with free scales."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="Ranges: minmax, entropy, percentile, distribution.")
    ] = "minmax",
    equalize: Annotated[
        bool, typer.Option("--equalize", help="Bring the channels of tensors to one range first.")
    ] = False,
    correct_bias: Annotated[
        bool, typer.Option("--correct-bias", help="Take mean rounding errors out of the biases.")
    ] = False,
    mean: MeanOption = None,
    deviation: DeviationOption = None,
    rows: Annotated[int, typer.Option(help="Layers to list, the worst first; 0: all.", min=0)] = 20,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the quality as JSON; see vtaops profile --quality."),
    ] = False,
) -> None:
    """Quantise a float ONNX model to int8 with calibration data, and say what it costs.

    Example: vtaops quantize model.onnx --calibration images.npz -o model.q.onnx --scales pow2

    Example: vtaops quantize model.onnx --calibration photos -o model.q.onnx
    --mean 0.485,0.456,0.406 --deviation 0.229,0.224,0.225
    """
    from vtaops.quantization import run_quantization

    if not exists(output.parent):
        raise ModelError(f"the folder of {output} does not exist")
    preparation = read_preparation(mean, deviation)
    console = Console(stderr=True)
    with console.status("calibrate and quantise"):
        done = run_quantization(
            model,
            calibration,
            scales=scales.value,
            zero_points=zero_points,
            method=method,
            equalization=equalize,
            bias_correction=correct_bias,
            preparation=preparation,
        )
        quality = done.quality()
    _write(done.model.SerializeToString(), output)
    if as_json:
        typer.echo(json.dumps(quality.as_dict(), indent=2))
        return
    Console().print(_layers(quality, rows or len(quality.layers)))
    Console().print(_outputs(quality))
    if equalize:
        typer.echo(f"{done.equalized} tensors equalised")
    typer.echo(f"{output}: QDQ model, {len(done.samples)} samples of calibration")


def _write(data: bytes, path: Path) -> None:
    """Write beside the target and rename, so that an interrupted run leaves no half file."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def _layers(quality: Quality, rows: int) -> Table:
    shown = quality.layers[:rows]
    table = Table(title=f"Layers, the worst {len(shown)} of {len(quality.layers)} first")
    table.add_column("tensor")
    table.add_column("operator")
    table.add_column("SQNR dB", justify="right")
    for layer in shown:
        table.add_row(layer.tensor, layer.operator, f"{layer.sqnr_db:.1f}")
    return table


def _outputs(quality: Quality) -> Table:
    table = Table(title="Outputs against float")
    table.add_column("output")
    for heading in ("SQNR dB", "greatest error", "same maximum"):
        table.add_column(heading, justify="right")
    for row in quality.outputs:
        same = "" if row.top1 is None else f"{row.top1:.1%}"
        table.add_row(row.output, f"{row.sqnr_db:.1f}", f"{row.max_error:.3g}", same)
    return table
