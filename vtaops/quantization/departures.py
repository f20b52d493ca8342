"""Find what a quantised file computes differently from float, other than by rounding.

The float nodes before a tensor are computed again, from the file's own values of the nearest
tensors that have pairs, and from the file's constants. What the file holds instead may differ by
half a step of the tensor's grid, within its range. Errors of earlier layers do not count, so the
bound is exact, and a node that the file lost or computes differently stands out. What comes before
quantisation, preparation and equalisation, rounds nothing: there the outputs are those of the
user's network.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    Arrays,
    ModelProto,
    NodeProto,
    along_axis,
    graph_inputs,
    initializers,
    producers,
    read_by,
    replace_initializer,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.pairs import images, operators_of
from vtaops.quantization.rewriting import let_read
from vtaops.quantization.samples import Sample

PRECISION = 1e-4
"""Error of float32 arithmetic, relative to the largest value of its tensor."""


@dataclass(frozen=True)
class Departure:
    """A tensor whose values the rounding of its pair does not explain.

    Attributes
    ----------
    tensor, operator
        Its name in the float model, and the operator that writes it: "input" or "constant" if none
        does.
    difference
        The largest difference from x within the range of the grid.
    allowed
        The largest difference that rounding explains.
    """

    tensor: str
    operator: str
    difference: float
    allowed: float

    def __str__(self) -> str:
        return (
            f"{self.tensor!r} ({self.operator}) is off by {self.difference:.3g} where rounding "
            f"explains {self.allowed:.3g}"
        )


def departures(model: ModelProto, quantized: ModelProto, sample: Sample) -> tuple[Departure, ...]:
    """Return the tensors that differ by more than their rounding, in order.

    Parameters
    ----------
    model
        The float model whose tensors were quantised.
    quantized
        Its QDQ model.
    sample
        One input of both.

    Raises
    ------
    ModelError
        If ONNX Runtime rejects the file.
    """
    file, held = _beside(model, quantized)
    known, operators = {**initializers(model), **sample}, operators_of(model)
    shown = [f"float/{name}" for name in held if name not in known]
    values = Probe(file, [*shown, *held.values()]).run(sample)
    pairs, constants = producers(quantized), initializers(quantized)
    result = list[Departure]()
    for name, image in held.items():
        exact = known[name] if name in known else values[f"float/{name}"]
        within, step = _on_grid(exact, pairs.get(image), constants)
        result += _departure((name, operators[name]), exact, within, step, values[image])
    return tuple(result)


def changed_outputs(
    model: ModelProto, prepared: ModelProto, sample: Sample
) -> tuple[Departure, ...]:
    """Return the outputs that a float model has lost before its tensors were quantised.

    Parameters
    ----------
    model
        The user's float model.
    prepared
        Its prepared and equalised form.
    sample
        One input of both.

    Raises
    ------
    ModelError
        If ONNX Runtime rejects the model.
    """
    values, held_values = Probe(model).run(sample), Probe(prepared, exact=False).run(sample)
    operators, result = operators_of(model), list[Departure]()
    for name, held in held_values.items():
        if (exact := values[name]).dtype.kind == "f":
            result += _departure((name, operators[name]), exact, exact, np.zeros(()), held)
    return tuple(result)


def _departure(
    tensor: tuple[str, str], exact: Array, within: Array, step: Array, held: Array
) -> list[Departure]:
    """Return by how much a tensor is off, and what rounding explains, if that is less.

    None too if the exact values are not all finite, which nothing measures.
    """
    room = step / 2 + PRECISION * np.abs(exact).max(initial=0.0)
    off = np.abs(held - within)
    if not np.isfinite(exact).all() or (off <= room).all():
        return []
    worst = np.unravel_index(np.argmax(off - room), off.shape)
    return [Departure(*tensor, float(off[worst]), float(np.broadcast_to(room, off.shape)[worst]))]


def _beside(model: ModelProto, quantized: ModelProto) -> tuple[ModelProto, dict[str, str]]:
    """Return the file with the float nodes beside its own, and the tensors to compare.

    Returns
    -------
    file
        The file with the nodes of the float model, which read the file's values of tensors that
        have them. They write ``float/NAME``.
    held
        The file's tensor for each tensor of the float model that it has.
    """
    file, written, constants = deepcopy(quantized), producers(quantized), initializers(model)
    held, twins = images(model, quantized), {node.name: node for node in quantized.graph.node}
    read = {value.name: value.name for value in graph_inputs(model)} | held
    for name in constants.keys() - held.keys():
        replace_initializer(file, _float(name), constants[name])
    for node in model.graph.node:
        beside = file.graph.node.add()
        beside.CopyFrom(node)
        beside.name = _float(node.name)
        shared = {*twins[node.name].input} & held.keys() if node.name in twins else {}
        known = read | dict(zip(shared, shared, strict=True))  # floats that have integers beside
        let_read(beside, {name: known.get(name, _float(name)) for name in read_by(node)})
        beside.output[:] = map(_float, node.output)
    ends = {value.name: value.name for value in model.graph.output if value.name in written}
    return file, ends | held


def _float(name: str) -> str:
    """Return the name of a float node, or of its tensor; none for none."""
    return name and f"float/{name}"


def _on_grid(exact: Array, pair: NodeProto | None, constants: Arrays) -> tuple[Array, Array]:
    """Return values within the range of a pair's grid, and the grid's steps; 0 without a pair."""
    if pair is None or pair.op_type != "DequantizeLinear":
        return exact, np.zeros(())
    scale, zero = (along_axis(pair, constants[name], exact.ndim) for name in pair.input[1:3])
    kind, offset = np.iinfo(zero.dtype), zero.astype(np.float64)
    ends = ((end - offset) * scale for end in (kind.min, kind.max))
    return np.clip(exact, *ends), scale
