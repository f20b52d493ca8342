"""Validation of a model read from a file: the consistency of its parts.

A model from `vtaops.compile_model` is valid by construction; a file may contain anything. After
these checks a run can only fail because of its inputs, its device, or its timeout. Imports no TVM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph.operators import Host
from vtaops.program import Buffer
from vtaops.program.region import Argument, Region, Stage

MAX_ELEMENTS = 1 << 28
"""Maximum elements of a model's tensor: more would not fit a board's DRAM."""


def check_tensors(tensors: Iterable[Tensor]) -> None:
    """Check that a board can hold every tensor, before anything is computed of its shape.

    Raises
    ------
    ProgramError
        If one is too large; the message names it.
    """
    for tensor in tensors:
        if tensor.elements > MAX_ELEMENTS:
            raise ProgramError(
                f"{tensor.name} has {tensor.elements} elements; a tensor has at most {MAX_ELEMENTS}"
            )


def check_stages(graph: Graph, stages: Iterable[Stage], fingerprint: str) -> None:
    """Check that stages compute every result of a graph, each from earlier results.

    Raises
    ------
    ProgramError
        If not; the message names the tensor, the node or the buffer.
    """
    nodes = {node.name: node for node in graph.nodes}
    known = set(_names(graph.inputs))
    for number, stage in enumerate(stages):
        own = _nodes_of(stage, number, nodes)
        if isinstance(stage, Region):
            _check_program(stage, own, fingerprint)
            _require(known, (argument.tensor for argument in stage.inputs))
            _check_region(graph, stage)
            known |= {argument.tensor for argument in stage.outputs}
            continue
        for node in own:
            _require(known, _names(node.inputs))
            known.update(_names(node.outputs))
    _require(known, _names(graph.outputs))


def _nodes_of(stage: Stage, number: int, nodes: Mapping[str, Node]) -> list[Node]:
    """Return the nodes that a stage computes."""
    if not stage.nodes:
        raise ProgramError(f"stage {number} has no nodes; a stage computes at least one")
    for name in stage.nodes:
        if name not in nodes:
            raise ProgramError(f"a stage names the unknown node {name!r}")
    return [nodes[name] for name in stage.nodes]


def _names(tensors: Iterable[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]


def _check_program(region: Region, nodes: Iterable[Node], fingerprint: str) -> None:
    for node in nodes:
        if isinstance(node.op, Host):
            raise ProgramError(f"{node.name} is a function of the host; a stage has it on VTA")
    if region.program.config.fingerprint != fingerprint:
        raise ProgramError("a program of the model is for another configuration")


def _require(known: set[str], names: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ProgramError(f"{name!r} is read before any stage computes it")


def _check_region(graph: Graph, region: Region) -> None:
    """Check that tensors and parameters match the program's buffers."""
    inputs = {buffer.name: buffer for buffer in region.program.inputs}
    _check_names(region, inputs)
    for argument in region.inputs:
        _check_input(argument, _tensor(graph, argument), inputs[argument.buffer])
    outputs = {buffer.name: buffer for buffer in region.program.outputs}
    for argument in region.outputs:
        if argument.buffer not in outputs:
            raise ProgramError(f"the program has no output {argument.buffer!r}")
        _check_output(argument, _tensor(graph, argument), outputs[argument.buffer])


def _check_names(region: Region, inputs: Mapping[str, Buffer]) -> None:
    """Check that each program input is a parameter or an argument."""
    for name, array in region.parameters.items():
        if name not in inputs or array.nbytes != inputs[name].nbytes:
            raise ProgramError(f"the program has no input {name!r} of {array.nbytes} bytes")
    given = [name for name in inputs if name not in region.parameters]
    if [argument.buffer for argument in region.inputs] != given:
        raise ProgramError(f"the arguments of a program are not its inputs {given}")


def _tensor(graph: Graph, argument: Argument) -> Tensor:
    tensor = graph.tensors.get(argument.tensor)
    if tensor is None or tensor.shape != argument.shape:
        raise ProgramError(f"the graph has no tensor {argument.tensor!r} of {argument.shape}")
    return tensor


def _check_input(argument: Argument, tensor: Tensor, buffer: Buffer) -> None:
    image, axes, border = argument.image, argument.axes, argument.border
    conditions = (
        min(image, default=0) >= 1,
        min(border) >= 0,
        math.prod(image) == tensor.elements,
        not axes or sorted(axes) == [*range(len(image))],
        _held(argument) == buffer.shape,
        not argument.lanes,
        -128 <= argument.zero_point <= 127 and (any(border) or not argument.zero_point),
        tensor.dtype == buffer.dtype,
    )
    if not all(conditions):
        raise ProgramError(f"{tensor.name} does not fit the buffer {buffer.name} {buffer.shape}")


def _held(argument: Argument) -> tuple[int, ...]:
    """Return the shape of the result of `Argument.to_device`."""
    held = argument.image
    if argument.axes:
        held = tuple(held[axis] for axis in argument.axes)
    if any(argument.border):
        n, c, height, width = held
        top, left, bottom, right = argument.border
        held = n, c, height + top + bottom, width + left + right
    return held


def _in_parts(argument: Argument, held: tuple[int, ...]) -> bool:
    """Return whether a result is an image, its channels perhaps in two parts, in some order."""
    image, axes = argument.image or held, argument.axes
    joined = (image[0], image[1] * image[2], *image[3:]) if argument.image else image
    return (
        min(image) >= 1
        and len(image) >= len(held)
        and joined == held
        and (not axes or sorted(axes) == [*range(len(image))])
    )


def _check_output(argument: Argument, tensor: Tensor, buffer: Buffer) -> None:
    lanes, shape, axes = argument.lanes, buffer.shape, argument.axes
    plain = Argument(
        argument.tensor, argument.buffer, argument.shape, argument.image, lanes, axes=axes
    )
    if (
        argument != plain
        or len(shape) < 2
        or not _in_parts(argument, (shape[0], len(lanes), *shape[2:]))
        or not all(0 <= lane < shape[1] for lane in lanes)
        or shape[0] * len(lanes) * math.prod(shape[2:]) != tensor.elements
        or np.dtype(tensor.dtype) != np.dtype(buffer.dtype)
    ):
        raise ProgramError(f"{tensor.name} is not in the buffer {buffer.name} {buffer.shape}")
