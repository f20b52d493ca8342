"""Proof obligations of one program: its arguments in memory and the results they must yield."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Node
from vtaops.graph.executor import evaluate_node
from vtaops.ops import Operator
from vtaops.ops.families import WindowOperator
from vtaops.ops.reference import evaluate
from vtaops.program import Buffer, OperatorRecord, Program, Role
from vtaops.program.region import Region, Stage
from vtaops.proof.images import moved, packed, unpacked
from vtaops.proof.machine import Image
from vtaops.proof.networks import meaning
from vtaops.proof.operators import require_reasonable, result_of
from vtaops.proof.records import Unknown, meaning_of, operator_of
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
    executed : callable
        Function of the arrays of `tensors`; returns results by name.
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
        Whether the definition nests no nonlinear operation but its epilogue, so that one pair of
        primes suffices.
    unknown : str
        Reason why nothing can be proven; empty if there is none.
    remark : str
        What the claim is restricted to; begins with a comma, or empty.
    """

    name: str
    program: Program
    define: Callable[[Fields, Values], Values]
    executed: Callable[[dict[str, Array]], dict[str, Array]]
    identity: Any
    tensors: Mapping[str, Any]
    inputs: Sequence[tuple[str, str, Callable[[Fields, Floats], Terms], Callable[[Array], Array]]]
    outputs: Mapping[str, tuple[int, Callable[[Array], Array]]]
    parameters: Mapping[str, Array] = field(default_factory=dict)
    linear: bool = False
    unknown: str = ""
    remark: str = ""

    def evaluated(self, fields: Fields) -> tuple[dict[str, Image], Values]:
        """Return the images of symbols, and the results by definition."""
        values = {name: fields.symbols(t.shape, t.dtype) for name, t in self.tensors.items()}
        images = {b: image(fields, values[name].value) for b, name, image, _ in self.inputs}
        return {**self.parameters, **images}, self.define(fields, values)


def operator_task(program: Program, against: Any) -> ProofTask:
    """Return the task of a program of one operator, from its record or a description."""
    if against is not None and not isinstance(against, Operator):
        raise ProgramError(f"against is {against!r}; it must be an operator")
    own, stated = program.arguments, (*program.operators, OperatorRecord())[0]
    kind = type(against).__name__ if against else stated.kind
    try:
        op = against or operator_of(kind, stated.parameters)
        buffers, images = _arguments(program, op, named=against is None)
    except Unknown as reason:
        return _unknown(kind, program, str(reason))
    *arguments, result = buffers
    packed_as = f", where {', '.join(images)} are images in the DRAM of {kind}" if images else ""
    return ProofTask(
        kind,
        program,
        partial(_result, op, result),
        lambda arrays: {result.name: evaluate(op, [arrays[b.name] for b in arguments])},
        (kind, sorted(meaning_of(op).items())),
        {b.name: b for b in arguments},
        [
            (buffer.name, b.name, partial(packed, b), partial(read_as, buffer, b))
            for buffer, b in zip(own, arguments, strict=False)
        ],
        {result.name: (program.buffers.index(own[-1]), partial(unpacked, result))},
        linear=kind != "MaxPool2d",
        remark=packed_as,
    )


def _unknown(name: str, program: Program, reason: str) -> ProofTask:
    return ProofTask(name, program, lambda *_: {}, lambda _: {}, (), {}, (), {}, unknown=reason)


def _arguments(program: Program, op: Operator, *, named: bool) -> tuple[list[Buffer], list[str]]:
    """Return the arguments that an operator demands, as a run packs them; and which are images.

    A program of one's own schedule, whose arguments are not `named` as those of the operator, may
    take them as they lie in DRAM.
    """
    _require_one_result(program)
    own, kind = program.arguments, type(op).__name__
    demanded = [b for b in op.buffers(program.config) if b.role is not Role.CONSTANT]
    if len(own) != len(demanded):
        raise Unknown(f"its arguments are not those of {kind}")
    buffers, images = [], []
    for buffer, wanted in zip(own, demanded, strict=True):
        is_named = not named or buffer.name == wanted.name
        if is_named and (buffer.shape, buffer.dtype) == (wanted.shape, wanted.dtype):
            # A run packs arguments as the program specifies: a bias may include rounding.
            buffers.append(replace(buffer, name=wanted.name))
            continue
        if named or not _lies_as(buffer, wanted):
            text = f"{wanted.name} of {kind} is {wanted.dtype}{[*wanted.shape]}"
            raise Unknown(f"its argument {buffer.name} is {buffer.dtype}{[*buffer.shape]}; {text}")
        buffers.append(wanted)
        images.append(wanted.name)
    return buffers, images


def _require_one_result(program: Program) -> None:
    """Require a program of one operator; raises Unknown."""
    own, joined = program.arguments, len(program.operators)
    if joined > 1:
        raise Unknown(f"it joins {joined} operators without their graph")
    if not own or program.outputs != own[-1:]:
        raise Unknown("its last argument is not its one output, as that of an operator is")


def _lies_as(buffer: Buffer, other: Buffer) -> bool:
    """Whether a buffer lies in DRAM in the order of its scalars, as many as another one."""
    order = np.arange(math.prod(buffer.shape))
    return (
        (buffer.nbytes, buffer.dtype) == (other.nbytes, other.dtype)
        and buffer.nbytes == order.size * np.dtype(buffer.dtype).itemsize
        and np.array_equal(unpacked(buffer, order).reshape(-1), order)
    )


def _result(op: Operator, result: Buffer, fields: Fields, values: Values) -> Values:
    if isinstance(op, WindowOperator):
        require_reasonable(op, values["data"].shape, result.shape)
    made = result_of(fields, op, values)
    if made.shape != result.shape:
        raise Unknown(f"its result has the shape {result.shape}; by definition {made.shape}")
    return {result.name: made}


def read_as(other: Buffer, buffer: Buffer, array: Array) -> Array:
    """Return the logical tensor of a buffer in the form of another buffer with the same image."""
    if other.shape == buffer.shape:
        return array
    return other.unpack(buffer.pack(array).reshape(-1).view(np.uint8))


def launch_task(graph: Graph, region: Region) -> ProofTask:
    """Return the task of a region of a network."""
    inside, program = {*region.nodes}, region.program
    results = [argument.tensor for argument in region.outputs]
    nodes = [node for node in graph.nodes if node.name in inside]
    numbers = {buffer.name: number for number, buffer in enumerate(program.buffers)}
    if reason := _incomplete(nodes, region):
        return _unknown(_title(region), program, reason)

    def image(argument: Any, fields: Fields, value: Floats) -> Terms:
        buffer = program.buffers[numbers[argument.buffer]]
        return packed(buffer, fields, moved(fields, value, argument.to_device))

    def result(argument: Any, flat: Array) -> Array:
        buffer = program.buffers[numbers[argument.buffer]]
        array: Array = argument.from_device(unpacked(buffer, flat))
        return array

    return ProofTask(
        _title(region),
        program,
        partial(_by_nodes, nodes, results),
        partial(_by_executor, nodes, results),
        tuple(
            (n.name, type(n.op).__name__, sorted(vars(n.op).items()), n.inputs, n.outputs)
            for n in nodes
        ),
        {a.tensor: graph.tensors[a.tensor] for a in region.inputs},
        [(a.buffer, a.tensor, partial(image, a), a.to_device) for a in region.inputs],
        {a.tensor: (numbers[a.buffer], partial(result, a)) for a in region.outputs},
        region.parameters,
    )


def _title(region: Region) -> str:
    """Return the first node of a region, and the last one if there are several."""
    return " to ".join(dict.fromkeys((region.nodes[0], region.nodes[-1])))


def _by_nodes(
    nodes: Sequence[Node], results: Sequence[str], fields: Fields, values: Values
) -> Values:
    """Return the terms of results by the meaning of nodes, in their order; no other is kept."""
    known = dict(values)
    last = {tensor.name: node for node in nodes for tensor in node.inputs}
    for node in nodes:
        terms = [known[tensor.name] for tensor in node.inputs]
        known[node.outputs[0].name] = meaning(fields, node, terms)
        for tensor in node.inputs:
            if last[tensor.name] is node and tensor.name not in results:
                known.pop(tensor.name, None)
    return {name: known[name] for name in results}


def _by_executor(
    nodes: Sequence[Node], results: Sequence[str], arrays: dict[str, Array]
) -> dict[str, Array]:
    """Return the arrays of results as the executor of graphs computes them."""
    for node in nodes:
        arrays = arrays | evaluate_node(node, arrays)
    return {name: arrays[name] for name in results}


def _incomplete(nodes: Sequence[Node], region: Region) -> str:
    """Return why nodes do not define the results of a region; empty if they do."""
    known = {argument.tensor for argument in region.inputs}
    for node in nodes:
        for tensor in (*node.inputs, *node.outputs):
            if tensor.dtype != "int8":
                return f"{tensor.name} is {tensor.dtype}; VTA computes on int8"
            if tensor in node.inputs and tensor.name not in known:
                return f"neither its arguments nor its nodes give {tensor.name}"
        known |= {tensor.name for tensor in node.outputs}
    missing = {a.tensor for a in region.outputs} - known
    return f"none of its nodes gives {min(missing)}" if missing else ""
