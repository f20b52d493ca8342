"""The command ``vtaops evaluate``: a quantised model on data with labels, beside float.

Owns its options and its page; see `vtaops.cli`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from typer import Option

from vtaops.base.errors import ArgumentError
from vtaops.base.shapes import Array
from vtaops.cli import options
from vtaops.cli.networks import compiled_model, rounded
from vtaops.cli.pages import render
from vtaops.report.files import write_text
from vtaops.runtime.arguments import as_tuple

if TYPE_CHECKING:
    from vtaops.graph import Tensor
    from vtaops.model import Model
    from vtaops.quantization.datasets import Dataset
    from vtaops.quantization.evaluation import Classes, Runs
    from vtaops.quantization.samples import Sample


def evaluate(
    model: options.ModelFile,
    *,
    data: Annotated[
        Path,
        Option(
            help="A folder with a folder of pictures for each class; an .npz file with an array "
            "for each input and `labels`."
        ),
    ],
    against: Annotated[
        Path | None,
        Option(help="The float model, .onnx or .tflite, with the same inputs and outputs."),
    ] = None,
    output: Annotated[
        Path | None,
        options.to_write("Page with the worst ten samples side by side: .html.", ".html"),
    ] = None,
    config: options.ConfigOrOwn = None,
    mean: options.Mean = None,
    std: options.Std = None,
    samples: options.Samples = None,
) -> None:
    """Tell how often a quantised model is right, and how often it agrees with the float model.

    It runs on fsim, exact to the bit.

    Example: vtaops evaluate model.vtam --data photos --against model.onnx -o worst.html
    """
    from vtaops.quantization.datasets import load_dataset
    from vtaops.quantization.evaluation import evaluate as judged

    network = compiled_model(model, config, prove=False)
    shapes = {tensor.name: tensor.shape for tensor in network.graph.inputs}
    dataset = load_dataset(data, shapes, options.read_preparation(mean, std))
    dataset = dataset.drawn(samples or len(dataset.cases))
    task = task_of(dataset)
    with options.progress_bar(f"evaluate {model.name}"):
        evaluation = judged(runs(network), exact_runs(against, network), dataset, task)
    if output is not None:
        write_text(output, render("worst.html", name=model.name, evaluation=evaluation))
    options.show(evaluation.as_dict(), str(evaluation))


def task_of(data: Dataset) -> Classes:
    """Return what the outputs of a model mean, as the labels of its data tell."""
    from vtaops.quantization.evaluation import Classes

    return Classes(int(np.size(data.cases[0].label)))


def runs(model: Model) -> Runs:
    """Return a function that runs a model on real numbers."""
    inputs, outputs = model.graph.inputs, model.graph.outputs

    def run(sample: Sample) -> Sequence[Array]:
        made = model.run({tensor.name: rounded(tensor, sample[tensor.name]) for tensor in inputs})
        return [_real(*pair) for pair in zip(outputs, as_tuple(made), strict=True)]

    return run


def _real(tensor: Tensor, array: Array) -> Array:
    if tensor.dtype not in ("int8", "uint8"):
        return array
    steps = array.astype(np.float32) - tensor.zero_point
    return np.asarray(steps * np.float32(tensor.scale))


def exact_runs(path: Path | None, model: Model) -> Runs | None:
    """Return a function that runs the float model, whose inputs are those of a model in order."""
    if path is None:
        return None
    from vtaops.graph.onnx_files import input_dtypes, opened, read
    from vtaops.graph.probe import Probe
    from vtaops.quantization.sources import from_relax, is_relax

    source = from_relax(path, None) if is_relax(path) else path
    kinds, inputs = input_dtypes(read(path) if source is path else source), model.graph.inputs
    if len(kinds) != len(inputs):
        raise ArgumentError(f"{path} has {len(kinds)} inputs, {model.name} {len(inputs)}")
    shapes = {name: tensor.shape for name, tensor in zip(kinds, inputs, strict=True)}
    probe = Probe(opened(source, shapes), exact=False)

    def run(sample: Sample) -> Sequence[Array]:
        pairs = zip(kinds.items(), inputs, strict=True)
        arrays = {name: sample[tensor.name].astype(kind) for (name, kind), tensor in pairs}
        return [*probe.run(arrays).values()]

    return run
