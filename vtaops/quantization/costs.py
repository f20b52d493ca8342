"""What the rounding of each tensor costs the outputs.

The file is run with one tensor left float at a time. The gain at the outputs that the user named is
what its rounding costs there, whatever the error in the tensor itself: that of a normalised tensor
may vanish, that of a score may not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from vtaops.base.progress import tracked
from vtaops.graph.onnx_files import (
    ModelProto,
    initializers,
    make_node,
    producers,
    refill,
    rename_inner,
    replace_initializer,
    require,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.departures import operators_of
from vtaops.quantization.pairs import images
from vtaops.quantization.quality import outputs, spread, sqnrs
from vtaops.quantization.samples import Sample

JUDGES = 2
"""Most samples that judge."""

MOST_DB = 200.0
"""Cap on the SQNR of an output, for equal ones."""

LEAST_GAIN = 0.05
"""Gain in dB under which a tensor is not listed."""


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
    """

    tensor: str
    operator: str
    gain_db: float


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
    switches = Switches(model, quantized, spread(samples, JUDGES))
    rounded = switches.mean_sqnr(())
    gains = {
        name: switches.mean_sqnr([name]) - rounded
        for name in tracked("try a tensor in float", [*switches.images])
    }
    operators = operators_of(model)
    worst = sorted(gains, key=lambda name: -gains[name])[:count]
    return [Cost(n, operators[n], gains[n]) for n in worst if gains[n] > LEAST_GAIN]


class Switches:
    """A file whose tensors may pass in float, and what its outputs keep on some samples.

    Attributes
    ----------
    images
        The dequantised tensor of each tensor that may pass, all but outputs.
    """

    def __init__(self, model: ModelProto, quantized: ModelProto, samples: Sequence[Sample]) -> None:
        ends = [value.name for value in model.graph.output]
        self.images = {n: i for n, i in images(model, quantized).items() if n not in ends}
        self._probe = Probe(switched(model, quantized, self.images), ends)
        self._samples, self._exact = samples, outputs(model, samples, exact=False)

    def sqnrs(self, passing: Collection[str]) -> list[float]:
        """Return the dB of each output with some tensors in float."""
        switches = {f"switch/{name}": np.array(name in passing) for name in self.images}
        runs = (self._probe.run({**sample, **switches}) for sample in self._samples)
        return sqnrs(self._exact, runs)

    def mean_sqnr(self, passing: Collection[str]) -> float:
        """Return the mean of these dB."""
        return float(np.minimum(self.sqnrs(passing), MOST_DB).mean())


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
        node.input[:] = [renamed.get(name, name) for name in node.input]
        rename_inner(node, renamed)
        nodes += [node, *(switches[name] for name in node.output if name in switches)]
    refill(result.graph.node, nodes)
    return result
