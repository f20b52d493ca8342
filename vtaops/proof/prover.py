"""`prove`: programs against their operators, launches of networks against their nodes."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import NotEquivalent, ProgramError, ShapeError
from vtaops.base.proof import Proof
from vtaops.base.shapes import Array
from vtaops.graph import Graph
from vtaops.graph.executor import evaluate_node
from vtaops.model import Model, Region
from vtaops.program import Buffer, Program, Role
from vtaops.proof.counterexamples import TRIES, search
from vtaops.proof.images import packed, to_device, unpacked
from vtaops.proof.integers import Integers
from vtaops.proof.machine import Image, TermMachine
from vtaops.proof.names import NameMachine
from vtaops.proof.networks import meaning
from vtaops.proof.operators import Definition, Unknown
from vtaops.proof.terms import SMALL, Fields, Floats, Terms
from vtaops.runtime import ResidentPrograms

CHECKER = 2
"""Version of the checker, which certificates name."""
FEW = 8.0
"""Pairs of leaves below one scalar where sums have none: what wraps, clips and is a residual."""


def prove(
    subject: Program | Model,
    *,
    against: Any = None,
    rounds: int | None = None,
    seed: int | None = None,
) -> Proof:
    """Prove that a program or a network computes what it declares, for every input.

    Parameters
    ----------
    subject : Program or Model
        A program of one operator, for all data and weights; or a compiled network, for all data.
    against : Operator, optional
        What a program must compute; by default what its own record says. For schedules of one's
        own, whose arguments are those of the operator, in its order.
    rounds : int, optional
        Pairs of prime fields; each multiplies the probability of error. By default one for a
        program whose definition has no leaves below leaves, else two: an error below 2**-54.
    seed : int, optional
        Of the random numbers; by default they are drawn from the system.

    Raises
    ------
    NotEquivalent
        If it computes something else: with the first element that differs, the instruction that
        stored it, and inputs on which fsim shows it, if some were found.
    VerificationError
        If a program is not safe and deterministic.
    ProgramError
        If `subject` is neither a Program nor a Model, or `rounds` is no positive number.
    """
    if not isinstance(subject, Program | Model) or not (
        rounds is None or (isinstance(rounds, int) and rounds >= 1)
    ):
        raise ProgramError(
            f"prove takes a Program or a Model, and at least one round; not {subject!r} and "
            f"rounds={rounds!r}"
        )
    if isinstance(subject, Model) and against is not None:
        raise ProgramError("a Model is proven against its own graph; against must be None")
    begin = time.process_time()
    subject.verify()
    if isinstance(subject, Program):
        return _joined([_proven(_Single(subject, against), rounds, seed)], 0, begin)
    found = [_proven(_Launch(subject.graph, r), rounds, seed) for r in subject.regions]
    hosts = sum(len(stage.nodes) for stage in subject.stages if not isinstance(stage, Region))
    return _joined(found, hosts, begin)


def _joined(found: list[Proof], hosts: int, begin: float) -> Proof:
    """Return the proof of all launches; `hosts` operators run between them."""
    claims: tuple[str, ...] = sum((part.claims for part in found), ())
    if hosts:
        claims += (f"{hosts} operators on the host, by the executor that defines them",)
    return Proof(
        claims=claims,
        unproven=sum((part.unproven for part in found), ()),
        products=sum(part.products for part in found),
        leaves=sum(part.leaves for part in found),
        primes=sum((part.primes for part in found), ()),
        error=min(1.0, sum(part.error for part in found)),
        overflow=next(filter(None, (part.overflow for part in found)), ""),
        seconds=time.process_time() - begin,
        certificate={"checker": CHECKER, "parts": [dict(part.certificate) for part in found]},
    )


Evaluated = tuple[dict[str, Image], dict[str, Terms]]
"""What buffers hold before a run, and results by definition; by name."""


class _Task:
    """A program and its definition."""

    program: Program
    name: str
    linear: bool
    """Whether at most `FEW` pairs of leaves lie below a scalar of the definition."""
    identity: tuple[Any, ...] = ()

    def evaluated(self, fields: Fields) -> Evaluated:
        """Return images of symbols, and the results by definition."""
        raise NotImplementedError

    def found(self, result: str, machine: TermMachine) -> Floats:
        """Return a result of the machine as the definition has it."""
        raise NotImplementedError

    def buffer_of(self, result: str) -> int:
        """Return the number of the buffer that holds a result."""
        raise NotImplementedError

    def writers(self, result: str, machine: TermMachine) -> npt.NDArray[np.int64]:
        """Return the instruction that stored each element of a result."""
        raise NotImplementedError

    def counterexample(self, seed: int) -> Any:
        """Return inputs on which fsim differs, the result and its element."""
        raise NotImplementedError


class _Single(_Task):
    """A program of one operator."""

    def __init__(self, program: Program, against: Any) -> None:
        self.program = program
        if against is None:
            if len(program.operators) != 1:
                self._reason = f"the program has {len(program.operators)} operators, not one"
            (record,) = program.operators[:1] or (None,)
            self._kind, self._parameters = (
                (record.kind, dict(record.parameters)) if record else ("", {})
            )
            self._buffers = program.arguments
        else:
            self._kind, self._parameters = type(against).__name__, vars(against)
            declared = against.buffers(program.config)
            self._buffers = tuple(b for b in declared if b.role is not Role.CONSTANT)
        self.name = self._kind
        self.linear = self._kind != "MaxPool2d"
        *self._inputs, self._output = self._buffers
        self.identity = (self._kind, sorted(self._parameters.items()))
        pairs = zip(program.arguments, self._buffers, strict=False)
        self._fits = len(program.arguments) == len(self._buffers) and all(
            (a.nbytes, a.dtype) == (b.nbytes, b.dtype) for a, b in pairs
        )

    def _result(self, fields: Fields, given: Mapping[str, Terms]) -> Terms:
        definition = Definition(fields, self._kind, self._parameters)
        try:
            if "kernel" in self._parameters and "data" in given:
                definition.require_reasonable(given["data"].shape, self._output.shape)
            found = definition.result(dict(given))
        except (ArithmeticError, LookupError, TypeError, ValueError, ShapeError) as error:
            raise Unknown(f"its record contradicts itself: {error}") from error
        if found.shape != tuple(self._output.shape):
            raise Unknown(
                f"its record gives a result of shape {found.shape}, and its argument has "
                f"{tuple(self._output.shape)}"
            )
        return found

    def evaluated(self, fields: Fields) -> Evaluated:
        if len(self.program.operators) > 1 and self._kind:
            raise Unknown(f"it joins {len(self.program.operators)} operators without their graph")
        if not self._fits:
            raise Unknown(f"its arguments are not those of {self._kind}")
        given = {b.name: fields.symbols(b.shape, b.dtype) for b in self._inputs}
        images: dict[str, Image] = {
            own.name: packed(fields, buffer, given[buffer.name].value)
            for own, buffer in zip(self.program.arguments, self._inputs, strict=False)
        }
        return images, {self._output.name: self._result(fields, given)}

    def found(self, result: str, machine: TermMachine) -> Floats:
        return unpacked(self._output, machine.terms_of(self.buffer_of(result)))

    def buffer_of(self, result: str) -> int:
        return self.program.buffers.index(self.program.outputs[0])

    def writers(self, result: str, machine: TermMachine) -> npt.NDArray[np.int64]:
        return unpacked(self._output, machine.names.dram.stored_by(self.buffer_of(result)))

    def counterexample(self, seed: int) -> Any:
        fields = Integers(seed)

        def expected(arrays: Mapping[str, Array]) -> dict[str, Array]:
            given = {name: Terms(np.stack([a, a]).astype(float)) for name, a in arrays.items()}
            return {self._output.name: self._result(fields, given).value[0].astype(np.int8)}

        def computed(residents: ResidentPrograms, arrays: Mapping[str, Array]) -> dict[str, Array]:
            pairs = zip(self.program.arguments, self._inputs, strict=False)
            given = [_as(own, buffer, arrays[buffer.name]) for own, buffer in pairs]
            (made,) = residents.run(self.program, given)
            return {self._output.name: _as(self._output, self.program.outputs[0], made)}

        return search(self.program, {b.name: b for b in self._inputs}, expected, computed, seed)


class _Launch(_Task):
    """A region of a network."""

    linear = False

    def __init__(self, graph: Graph, region: Region) -> None:
        self.program, self._region = region.program, region
        inside = {*region.nodes}
        self._nodes = [node for node in graph.nodes if node.name in inside]
        self._graph = graph
        last = f" to {region.nodes[-1]}" if len(region.nodes) > 1 else ""
        self.name = f"{region.nodes[0]}{last}" if region.nodes else "a launch"
        self.identity = tuple(
            (
                node.name,
                type(node.op).__name__,
                sorted(vars(node.op).items()),
                node.inputs,
                node.outputs,
            )
            for node in self._nodes
        )
        self._buffers = {buffer.name: number for number, buffer in enumerate(self.program.buffers)}

    def evaluated(self, fields: Fields) -> Evaluated:
        images: dict[str, Image] = dict(self._region.parameters)
        values: dict[str, Terms] = {}
        for argument in self._region.inputs:
            tensor = self._graph.tensors[argument.tensor]
            if argument.tensor not in values:
                values[argument.tensor] = fields.symbols(tensor.shape, tensor.dtype)
            image = to_device(fields, argument, values[argument.tensor].value)
            buffer = self.program.buffers[self._buffers[argument.buffer]]
            images[argument.buffer] = packed(fields, buffer, image)
        for node in self._nodes:
            terms = [values[tensor.name] for tensor in node.inputs]
            values[node.outputs[0].name] = meaning(fields, node, terms)
        return images, {a.tensor: values[a.tensor] for a in self._region.outputs}

    def _argument(self, result: str) -> Any:
        return next(a for a in self._region.outputs if a.tensor == result)

    def found(self, result: str, machine: TermMachine) -> Floats:
        number, argument = self.buffer_of(result), self._argument(result)
        value = unpacked(self.program.buffers[number], machine.terms_of(number))
        return np.stack([argument.from_device(plane) for plane in value])

    def buffer_of(self, result: str) -> int:
        return self._buffers[self._argument(result).buffer]

    def writers(self, result: str, machine: TermMachine) -> npt.NDArray[np.int64]:
        number, argument = self.buffer_of(result), self._argument(result)
        stored = unpacked(self.program.buffers[number], machine.names.dram.stored_by(number))
        return np.asarray(argument.from_device(stored))

    def counterexample(self, seed: int) -> Any:
        region, names = self._region, [b.name for b in self.program.outputs]

        def expected(arrays: Mapping[str, Array]) -> dict[str, Array]:
            values = dict(arrays)
            for node in self._nodes:
                values.update(evaluate_node(node, values))
            return {a.tensor: values[a.tensor] for a in region.outputs}

        def computed(residents: ResidentPrograms, arrays: Mapping[str, Array]) -> dict[str, Array]:
            given = [a.to_device(arrays[a.tensor]) for a in region.inputs]
            made = dict(
                zip(names, residents.run(self.program, given, region.parameters), strict=True)
            )
            return {a.tensor: a.from_device(made[a.buffer]) for a in region.outputs}

        tensors = {a.tensor: self._graph.tensors[a.tensor] for a in region.inputs}
        return search(self.program, tensors, expected, computed, seed)


def _as(other: Buffer, buffer: Buffer, array: Array) -> Array:
    """Return the logical tensor of a buffer as another one has it, of the same image."""
    if (other.layout, other.shape) == (buffer.layout, buffer.shape):
        return array
    return other.unpack(buffer.pack(array).reshape(-1).view(np.uint8))


def _proven(task: _Task, rounds: int | None, seed: int | None) -> Proof:
    """Return the proof of one program."""
    begin = time.process_time()
    drawn = secrets.randbits(128) if seed is None else seed
    fields = Fields(drawn, rounds or (1 if task.linear else 2))
    try:
        images, wanted = task.evaluated(fields)
    except Unknown as reason:
        return Proof((), (f"{task.name}: {reason}",), seconds=time.process_time() - begin)
    names = NameMachine(task.program)
    names.run()
    machine = TermMachine(names, fields, images)
    machine.run()
    for result, terms in wanted.items():
        _compare(task, result, terms, machine, drawn)
    pairs = FEW if task.linear else max(FEW, fields.hashed * (fields.hashed / 2 + 2 * SMALL))
    error = min(1.0, pairs * (fields.degree / 2.0**30) ** len(fields.primes))
    outputs = ", ".join(wanted)
    overflow = "" if machine.overflow is None else f"instruction {machine.overflow} of {task.name}"
    return Proof(
        claims=(f"{task.name}: {outputs} equals its definition for every input",),
        products=sum(len(sums) for sums, *_ in names.products)
        * task.program.config.batch
        * task.program.config.wgt.lanes,
        leaves=fields.hashed,
        primes=fields.primes,
        error=error,
        overflow=overflow,
        seconds=time.process_time() - begin,
        certificate={
            "program": program_digest(task.program),
            "weights": _digest(images_of(task)),
            "definition": _digest(task.identity),
            "primes": list(fields.primes),
            "error": error,
        },
    )


def _compare(task: _Task, result: str, terms: Terms, machine: TermMachine, seed: int) -> None:
    """Compare a result of the machine with its definition."""
    found = task.found(result, machine)
    fields = machine.fields
    wanted = fields.keys(np.broadcast_to(terms.value, found.shape))
    differs = (fields.keys(found) != wanted).any(axis=0)
    if not differs.any():
        return
    element = tuple(np.argwhere(differs)[0].tolist())
    writers = np.unique(task.writers(result, machine)[differs])
    counterexample = task.counterexample(seed % (1 << 32))
    instruction = int(writers[0])
    raise NotEquivalent(
        task.name, result, element, int(differs.sum()), instruction, counterexample, TRIES
    )


def program_digest(program: Program) -> str:
    """Return the SHA-256 of all of a program that a proof depends on."""
    parts = program.config.fingerprint, program.instructions, program.relocations
    return _digest((*parts, program.micro_ops, program.buffers))


def images_of(task: _Task) -> Any:
    """Return the weights of a launch."""
    region = getattr(task, "_region", None)
    return sorted(region.parameters.items()) if region else ()


def _digest(value: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    if isinstance(value, np.ndarray):
        update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, list | tuple):
        update(f"({len(value)}".encode())
        for item in value:
            _feed(update, item)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        update(type(value).__name__.encode())
        _feed(update, sorted((k, v) for k, v in vars(value).items() if not k.startswith("_")))
    else:
        update(repr(value).encode() + b";")
