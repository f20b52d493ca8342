"""The command ``vtaops evaluate``: a quantised model on data with labels, beside float.

Owns its options and its page; see `vtaops.cli`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from typer import Option

from vtaops.base.errors import ArgumentError, raising
from vtaops.base.files import read_file
from vtaops.base.shapes import Array
from vtaops.cli.networks import compiled_model, rounded
from vtaops.cli.options import (
    ConfigOrOwn,
    Mean,
    ModelFile,
    Std,
    progress_bar,
    read_preparation,
    show,
    to_write,
)
from vtaops.cli.pages import render
from vtaops.report.files import write_text
from vtaops.runtime.arguments import as_tuple

if TYPE_CHECKING:
    from vtaops.graph import Tensor
    from vtaops.model import Model
    from vtaops.quantization.datasets import Dataset
    from vtaops.quantization.evaluation import Accuracy, Runs, Task
    from vtaops.quantization.samples import Sample


def evaluate(
    model: ModelFile,
    *,
    data: Annotated[
        Path,
        Option(
            help="A folder with a folder of pictures for each class; an .npz file with an array "
            "for each input and `labels`, numbers or texts; a .json file in the format of COCO "
            "beside its pictures."
        ),
    ],
    against: Annotated[
        Path | None,
        Option(help="The float model, .onnx or .tflite, with the same inputs and outputs."),
    ] = None,
    output: Annotated[
        Path | None, to_write("Page with the worst ten samples side by side: .html.", ".html")
    ] = None,
    config: ConfigOrOwn = None,
    mean: Mean = None,
    std: Std = None,
    alphabet: Annotated[
        Path | None,
        Option(help="Text file with the characters of classes 1, 2 ..., one a line: text is read."),
    ] = None,
    samples: Annotated[
        int | None,
        Option(help="Most samples to evaluate, evenly drawn from the data. Default: all.", min=1),
    ] = None,
) -> None:
    """Tell how often a quantised model is right, and how often it agrees with the float model.

    It runs on fsim, exact to the bit. Boxes count by F1 at an intersection over union of 0.5,
    texts if they are equal.

    Example: vtaops evaluate model.vtam --data photos --against model.onnx -o worst.html
    """
    from vtaops.quantization.datasets import load_dataset

    network = compiled_model(model, config, prove=False)
    shapes = {tensor.name: tensor.shape for tensor in network.graph.inputs}
    dataset = load_dataset(data, shapes, read_preparation(mean, std))
    dataset = dataset.drawn(samples or len(dataset.cases))
    with raising(ArgumentError, f"cannot read {alphabet}", OSError, UnicodeDecodeError):
        letters = None if alphabet is None else read_file(alphabet).decode().splitlines()
    with progress_bar(f"evaluate {model.name}"):
        evaluation = evaluated(network, dataset, data, against, letters)
    if output is not None:
        write_text(output, render("worst.html", name=model.name, evaluation=evaluation))
    show(evaluation.as_dict(), str(evaluation))


def evaluated(
    model: Model,
    data: Dataset,
    source: Path,
    against: Path | None,
    alphabet: Sequence[str] | None = None,
) -> Accuracy:
    """Return how a model answers to the data of a file, beside the float model."""
    from vtaops.quantization.evaluation import evaluate

    exact = None
    if against is not None:
        shapes = {tensor.name: tensor.shape for tensor in model.graph.inputs}
        exact = _runs(
            compiled_model(against, None, host=True, shapes=shapes, prove=False, check=False)
        )
    return evaluate(_runs(model), exact, data, _task(model, data, source, alphabet))


def _task(model: Model, data: Dataset, source: Path, alphabet: Sequence[str] | None) -> Task:
    """Return what the outputs of a model mean, as its data tell."""
    from vtaops.quantization.evaluation import Boxes, Classes, Text

    if alphabet is not None:
        return Text(alphabet)
    if isinstance(data.cases[0].label, str):
        raise ArgumentError(f"the labels of {source} are texts; name its characters by --alphabet")
    if source.suffix != ".json":
        return Classes(int(np.size(data.cases[0].label)))
    (shape,) = (tensor.shape for tensor in model.graph.inputs)
    across = shape[1:3] if shape[-1] in (1, 3) else shape[2:]
    return Boxes((across[1], across[0]))


def _runs(model: Model) -> Runs:
    """Return a function that runs a model, quantised or float, on real numbers."""
    inputs, outputs = model.graph.inputs, model.graph.outputs

    def run(sample: Sample) -> Sequence[Array]:
        made = model.run({tensor.name: rounded(tensor, sample[tensor.name]) for tensor in inputs})
        return [*map(_real, outputs, as_tuple(made))]

    return run


def _real(tensor: Tensor, array: Array) -> Array:
    if tensor.dtype not in ("int8", "uint8"):
        return array
    steps = array.astype(np.float32) - tensor.zero_point
    return np.asarray(steps * np.float32(tensor.scale))
