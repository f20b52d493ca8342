"""Validation of a model read from a file: the consistency of its parts.

A model from `vtaops.compile_model` is valid by construction; a file may contain anything. After
these checks a run can only fail because of its inputs, its device, or its timeout. Imports no TVM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import filterfalse

from vtaops.base.errors import ProgramError
from vtaops.base.reasons import HINTS
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph.operators import Host
from vtaops.program import Buffer
from vtaops.program.region import Argument, NodePlacement, Region, Stage

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
        if not stage.nodes:
            raise ProgramError(f"stage {number} has no nodes; a stage computes at least one")
        for name in stage.nodes:
            if name not in nodes:
                raise ProgramError(f"{name!r} is an unknown node, or computed more than once")
        for read, made in _steps(stage, [nodes.pop(name) for name in stage.nodes]):
            _require(known, read)
            known.update(made)
        if isinstance(stage, Region):
            _check_region(graph, stage, fingerprint)
    _require(known, _names(graph.outputs))


def check_plan(graph: Graph, stages: Iterable[Stage], plan: Sequence[NodePlacement]) -> None:
    """Check that a plan says where the stages compute each node.

    Raises
    ------
    ProgramError
        If it does not; the message shows the first row that is wrong.
    """
    places = {name: isinstance(stage, Region) for stage in stages for name in stage.nodes}
    for node, row in zip(graph.nodes, plan, strict=True):
        where, codes = ("vta", {""}) if places.get(node.name) else ("host", HINTS.keys())
        right = replace(row, name=node.name, operator=node.op.kind, where=where)
        if node.name not in places or row != right or row.code not in codes:
            raise ProgramError(f"the plan says {row}; the stages have {node.name} on {where}")


def _steps(stage: Stage, nodes: Sequence[Node]) -> list[tuple[list[str], list[str]]]:
    """Return what a stage reads and makes: a region at once, the host node by node."""
    if not isinstance(stage, Region):
        return [(_names(node.inputs), _names(node.outputs)) for node in nodes]
    if any(isinstance(node.op, Host) for node in nodes):
        raise ProgramError(f"a stage has a function of the host on VTA: {stage.nodes}")
    return [([a.tensor for a in stage.inputs], [a.tensor for a in stage.outputs])]


def _names(tensors: Iterable[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]


def _require(known: set[str], names: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ProgramError(f"{name!r} is read before any stage computes it")


def _check_region(graph: Graph, region: Region, fingerprint: str) -> None:
    """Check that tensors and parameters match the program's buffers."""
    if region.program.config.fingerprint != fingerprint:
        raise ProgramError("a program of the model is for another configuration")
    inputs = {buffer.name: buffer for buffer in region.program.inputs}
    for name, array in region.parameters.items():
        if name not in inputs or array.nbytes != inputs[name].nbytes:
            raise ProgramError(f"the program has no input {name!r} of {array.nbytes} bytes")
    given = [*filterfalse(region.parameters.__contains__, inputs)]
    if [argument.buffer for argument in region.inputs] != given:
        raise ProgramError(f"the arguments of a program are not its inputs {given}")
    _check_arguments(region.inputs, region.program.inputs, graph, _holds)
    _check_arguments(region.outputs, region.program.outputs, graph, _has)


def _check_arguments(
    arguments: Sequence[Argument],
    buffers: Sequence[Buffer],
    graph: Graph,
    fits: Callable[[Argument, Buffer], bool],
) -> None:
    named = {buffer.name: buffer for buffer in buffers}
    for argument in arguments:
        tensor, buffer = graph.tensors.get(argument.tensor), named.get(argument.buffer)
        if tensor is None or tensor.shape != argument.shape:
            raise ProgramError(f"the graph has no tensor {argument.tensor!r} of {argument.shape}")
        if buffer is None or tensor.dtype != buffer.dtype or not fits(argument, buffer):
            raise ProgramError(f"{tensor.name} does not fit the buffer {argument.buffer} {buffer}")


def _holds(argument: Argument, buffer: Buffer) -> bool:
    """Whether `Argument.to_device` makes the content of a buffer."""
    held, border = _ordered(argument, argument.image), argument.border
    if any(border) and held:
        n, c, height, width = held
        top, left, bottom, right = border
        held = n, c, height + top + bottom, width + left + right
    return (
        min(border) >= 0
        and held == buffer.shape
        and not argument.lanes
        and -128 <= argument.zero_point <= 127
        and (any(border) or not argument.zero_point)
    )


def _has(argument: Argument, buffer: Buffer) -> bool:
    """Whether `Argument.from_device` finds a result in a buffer, perhaps in two parts."""
    lanes, (n, channels, *size) = argument.lanes, buffer.shape
    held = n, len(lanes), *size
    image = argument.image or held
    joined = (image[0], image[1] * image[2], *image[3:]) if argument.image else image
    return (
        all(lane in range(channels) for lane in lanes)
        and joined == held
        and _ordered(argument, image) is not None
        and not any((*argument.border, argument.zero_point))
    )


def _ordered(argument: Argument, image: Sequence[int]) -> tuple[int, ...] | None:
    """Return the extents of an image in the order of its axes; None if it is not of a tensor."""
    axes = argument.axes or (*range(len(image)),)
    if min(image, default=0) < 1 or math.prod(image) != math.prod(argument.shape):
        return None
    return tuple(image[a] for a in axes) if sorted(axes) == [*range(len(image))] else None
