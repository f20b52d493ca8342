"""Proof obligations of one program: its arguments in memory and the results they must yield."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.graph import Graph
from vtaops.program import Buffer, Program, Role
from vtaops.program.region import Region, Stage
from vtaops.proof.images import packed, to_device, unpacked
from vtaops.proof.machine import Image
from vtaops.proof.networks import meaning
from vtaops.proof.operators import Definition, Unknown
from vtaops.proof.terms import Fields, Floats, Terms

Values = Mapping[str, Terms]
"""Terms of tensors by name."""


@runtime_checkable
class CompiledNetwork(Protocol):
    """What a proof reads of a `vtaops.Model`."""

    graph: Graph
    stages: tuple[Stage, ...]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The stages on VTA."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the regions."""

    def verify(self) -> None:
        """Verify every program."""


@dataclass(frozen=True)
class ProofTask:
    """A program and its definition.

    Attributes
    ----------
    name : str
        Name of the operator or launch.
    program : Program
        The program to prove.
    define : callable
        Function of fields and the terms of `tensors`; returns results by name.
    identity : object
        Everything that the definition depends on, for the certificate.
    tensors : mapping of str to Buffer or Tensor
        The inputs, with shapes and dtypes.
    inputs : sequence of (str, str, callable, callable)
        For each buffer of the program: its name, its tensor, a function from fields and residues to
        its image, and a function from an array to the program's argument.
    outputs : mapping of str to (int, callable)
        For each result, its buffer and a function from the buffer's scalars to the result.
    parameters : mapping of str to ndarray
        Images of other buffers.
    linear : bool
        Whether at most `FEW` pairs of leaves lie below a scalar of the definition.
    unknown : str
        Reason why nothing can be proven; empty if there is none.
    """

    name: str
    program: Program
    define: Callable[[Fields, Values], Values]
    identity: Any
    tensors: Mapping[str, Any]
    inputs: Sequence[tuple[str, str, Callable[[Fields, Floats], Terms], Callable[[Array], Array]]]
    outputs: Mapping[str, tuple[int, Callable[[Array], Array]]]
    parameters: Mapping[str, Array] = field(default_factory=dict)
    linear: bool = False
    unknown: str = ""

    def evaluated(self, fields: Fields) -> tuple[dict[str, Image], Values]:
        """Return the images of symbols, and the results by definition."""
        values = {name: fields.symbols(t.shape, t.dtype) for name, t in self.tensors.items()}
        images = {b: image(fields, values[name].value) for b, name, image, _ in self.inputs}
        return {**self.parameters, **images}, self.define(fields, values)


def operator_task(program: Program, against: Any) -> ProofTask:
    """Return the task of a program of one operator, from its record or a description."""
    own, records = program.arguments, program.operators
    kind, parameters = (records[0].kind, dict(records[0].parameters)) if records else ("", {})
    declared: tuple[Buffer, ...] = own
    if against is not None:
        kind, parameters = type(against).__name__, vars(against)
        buffers = against.buffers(program.config)
        declared = tuple(b for b in buffers if b.role is not Role.CONSTANT)
    unknown = _reason(program, kind, declared)
    if len(own) == len(declared):
        # A run packs arguments as the program specifies: a bias may include rounding.
        pairs = zip(own, declared, strict=True)
        declared = tuple(replace(a, name=b.name) if a.shape == b.shape else b for a, b in pairs)
    given, results = declared[:-1], () if unknown else declared[-1:]
    return ProofTask(
        kind,
        program,
        partial(_result, kind, parameters, results),
        (kind, sorted(parameters.items())),
        {b.name: b for b in given},
        [
            (buffer.name, b.name, partial(_packed, b), partial(read_as, buffer, b))
            for buffer, b in zip(own, given, strict=False)
        ],
        {b.name: (program.buffers.index(own[-1]), partial(unpacked, b)) for b in results},
        linear=kind != "MaxPool2d",
        unknown=unknown,
    )


def _reason(program: Program, kind: str, declared: tuple[Buffer, ...]) -> str:
    """Return why a program cannot be compared with one operator; empty if it can be."""
    own, joined = program.arguments, len(program.operators)
    if kind and joined > 1:
        return f"it joins {joined} operators without their graph"
    if not own or program.outputs != own[-1:]:
        return "its last argument is not its one output, as that of an operator is"
    if any(np.dtype(b.dtype).kind not in "iu" for b in own):
        return "one of its arguments is not of integers, as those of operators are"
    same = [(b.nbytes, b.dtype) for b in own] == [(b.nbytes, b.dtype) for b in declared]
    return "" if same else f"its arguments are not those of {kind}"


def _result(
    kind: str,
    parameters: Mapping[str, Any],
    results: tuple[Buffer, ...],
    fields: Fields,
    values: Values,
) -> Values:
    """Return the result of an operator by its definition."""
    (result,) = results
    try:
        definition = Definition(fields, kind, parameters)
        if "kernel" in parameters and "data" in values:
            definition.require_reasonable(values["data"].shape, result.shape)
        found = definition.result(dict(values))
    except (ArithmeticError, LookupError, TypeError, ValueError, ShapeError) as error:
        raise Unknown(f"its record contradicts itself: {error}") from error
    if found.shape != tuple(result.shape):
        raise Unknown(
            f"its record gives a result of shape {found.shape}, and its argument has "
            f"{tuple(result.shape)}"
        )
    return {result.name: found}


def _packed(buffer: Buffer, fields: Fields, value: Floats) -> Terms:
    return packed(fields, buffer, value)


def read_as(other: Buffer, buffer: Buffer, array: Array) -> Array:
    """Return the logical tensor of a buffer in the form of another buffer with the same image."""
    if other.shape == buffer.shape:
        return array
    return other.unpack(buffer.pack(array).reshape(-1).view(np.uint8))


def launch_task(graph: Graph, region: Region) -> ProofTask:
    """Return the task of a region of a network."""
    inside, program = {*region.nodes}, region.program
    nodes = [node for node in graph.nodes if node.name in inside]
    numbers = {buffer.name: number for number, buffer in enumerate(program.buffers)}
    last = f" to {region.nodes[-1]}" if len(region.nodes) > 1 else ""

    def define(fields: Fields, values: Values) -> Values:
        known = dict(values)
        for node in nodes:
            terms = [known[tensor.name] for tensor in node.inputs]
            known[node.outputs[0].name] = meaning(fields, node, terms)
        return {a.tensor: known[a.tensor] for a in region.outputs}

    def image(argument: Any, fields: Fields, value: Floats) -> Terms:
        buffer = program.buffers[numbers[argument.buffer]]
        return packed(fields, buffer, to_device(fields, argument, value))

    def result(argument: Any, flat: Array) -> Array:
        buffer = program.buffers[numbers[argument.buffer]]
        found: Array = argument.from_device(unpacked(buffer, flat))
        return found

    return ProofTask(
        f"{region.nodes[0]}{last}",
        program,
        define,
        tuple(
            (n.name, type(n.op).__name__, sorted(vars(n.op).items()), n.inputs, n.outputs)
            for n in nodes
        ),
        {a.tensor: graph.tensors[a.tensor] for a in region.inputs},
        [(a.buffer, a.tensor, partial(image, a), a.to_device) for a in region.inputs],
        {a.tensor: (numbers[a.buffer], partial(result, a)) for a in region.outputs},
        region.parameters,
    )
