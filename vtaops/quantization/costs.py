"""What the rounding of each tensor costs the outputs, and what would help.

The file is run with one tensor left float at a time. The gain at the outputs that the user named is
what its rounding costs there, whatever the error in the tensor itself: that of a normalised tensor
may vanish, that of a score may not.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    initializers,
    make_node,
    producers,
    refill,
    replace_initializer,
    require,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.pairs import images, operators_of
from vtaops.quantization.quality import FEW, outputs, spread, sqnrs
from vtaops.quantization.rewriting import let_read
from vtaops.quantization.samples import Sample
from vtaops.quantization.scales import PRODUCTS

JUDGES = 2
"""Most samples that judge."""

MOST_DB = 200.0
"""Cap on the SQNR of an output, for equal ones."""

LEAST_GAIN = 0.05
"""Gain in dB under which a tensor is not listed."""

UNEVEN = 8
"""Ratio of ranges from which the smaller one has too few steps of one grid."""


@dataclass(frozen=True)
class Cost:
    """What the rounding of a tensor costs.

    Attributes
    ----------
    tensor, operator
        Its name in the prepared model, and the operator that writes it: "input" or "constant" if
        none does.
    gain_db
        The gain in SQNR, as the mean of all outputs, if only this tensor were float.
    steps
        The largest magnitude of its values in steps of its grid.
    advice
        What would help.
    """

    tensor: str
    operator: str
    gain_db: float
    steps: float
    advice: str


def costs(
    model: ModelProto, quantized: ModelProto, samples: Sequence[Sample], count: int
) -> list[Cost]:
    """Return the tensors that cost most, worst first.

    Parameters
    ----------
    model
        The float model, prepared.
    quantized
        Its QDQ model.
    samples
        Calibration data, of which a few are run.
    count
        How many tensors to return at most.
    """
    switches = Switches(model, quantized, samples)
    rounded = _mean(switches.sqnrs(()))
    gains = {
        name: _mean(switches.sqnrs([name])) - rounded
        for name in tracked("try a tensor in float", [*switches.images])
    }
    tensors, written, stored = Connections(model), producers(quantized), initializers(quantized)
    most = heapq.nlargest(count, gains, key=gains.__getitem__)
    worst = [name for name in most if gains[name] > LEAST_GAIN]
    known = {**tensors.constants, **samples[0]}
    known |= Probe(model, [n for n in worst if n not in known], exact=False).run(samples[0])
    kinds, result = operators_of(model), []
    for name in worst:
        value, pair = known[name], written[switches.images[name]]
        steps = float(np.abs(value).max(initial=0.0)) / float(stored[pair.input[1]].min())
        advice = _advice(name, value, steps, tensors)
        result.append(Cost(name, kinds[name], gains[name], steps, advice))
    return result


def _mean(decibels: Sequence[float]) -> float:
    return float(np.minimum(decibels, MOST_DB).mean())


class Switches:
    """A file whose tensors may pass in float, and what its outputs keep on a few samples.

    Attributes
    ----------
    images
        The dequantised tensor of each tensor that may pass, all but outputs.
    """

    def __init__(self, model: ModelProto, quantized: ModelProto, samples: Sequence[Sample]) -> None:
        ends = [value.name for value in model.graph.output]
        self.images = {n: i for n, i in images(model, quantized).items() if n not in ends}
        self._probe = Probe(switched(model, quantized, self.images))
        self._samples = spread(samples, JUDGES)
        self._exact = outputs(model, self._samples, exact=False)

    def sqnrs(self, passing: Collection[str]) -> list[float]:
        """Return the dB of each output with some tensors in float."""
        switches = {f"switch/{name}": np.array(name in passing) for name in self.images}
        runs = (self._probe.run({**sample, **switches}) for sample in self._samples)
        return sqnrs(self._exact, runs)


def switched(model: ModelProto, quantized: ModelProto, found: dict[str, str]) -> ModelProto:
    """Return the file with a boolean input for each tensor that lets its float values pass."""
    onnx, result = require("onnx"), deepcopy(quantized)
    written, constants = producers(result), initializers(model)
    switches = {}
    for name, image in found.items():
        integers = written.get(written[image].input[0])
        exact = integers.input[0] if integers is not None else f"exact/{name}"
        if integers is None:
            replace_initializer(result, exact, constants[name])
        result.graph.input.append(
            onnx.helper.make_tensor_value_info(f"switch/{name}", onnx.TensorProto.BOOL, [])
        )
        switches[image] = make_node("Where", [f"switch/{name}", exact, image], [f"switched/{name}"])
    renamed = {image: switch.output[0] for image, switch in switches.items()}
    nodes = []
    for node in result.graph.node:
        let_read(node, renamed)
        nodes += [node, *(switches[name] for name in node.output if name in switches)]
    refill(result.graph.node, nodes)
    return result


def _advice(name: str, value: Array, steps: float, tensors: Connections) -> str:
    """Return what would help: the reason that shows in the values first, a float node last."""
    writer, readers = tensors.writers.get(name), tensors.readers.get(name, [])
    if name in tensors.constants and value.ndim > 1:
        several = "free scales, one for each channel, or equalization"
        return several if _uneven(value, 0) else "learned rounding"
    joined = [reader.name for reader in readers if reader.op_type == "Concat"]
    if joined and steps < FEW:
        return f"--float {joined[0]}, whose parts have one grid"
    if value.ndim == 4 and _uneven(value, 1):
        return "equalization: its channels differ in range"
    return f"--float {_rounded_for(writer, readers).name}"


def _rounded_for(writer: NodeProto | None, readers: Sequence[NodeProto]) -> NodeProto:
    """Return the node for which a tensor is rounded: a product that writes it, else a reader."""
    written = writer is not None and (writer.op_type in PRODUCTS or not readers)
    return writer if written else readers[0]


def _uneven(value: Array, axis: int) -> bool:
    """Return whether half of the channels along an axis are far smaller than the largest one."""
    ranges = np.abs(value).max(axis=tuple({*range(value.ndim)} - {axis}))
    positive = ranges[ranges > 0]
    return bool(positive.size and positive.max() > UNEVEN * np.median(positive))
