"""`prove`: compare programs with their operators, and launches of networks with their nodes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from vtaops.base.errors import NotEquivalent, ProgramError
from vtaops.base.heap import collection_paused, keep_freed_memory, one_thread, return_memory
from vtaops.base.names import checked_call
from vtaops.base.proof import Proof
from vtaops.machine.capabilities import Capabilities
from vtaops.program import Program
from vtaops.program.region import Region
from vtaops.proof.counterexamples import TRIES, Examples
from vtaops.proof.machine import TermMachine
from vtaops.proof.names import NameMachine
from vtaops.proof.records import Unknown
from vtaops.proof.tasks import CompiledNetwork, ProofTask, Values, launch_task, operator_task
from vtaops.proof.terms import SMALL, Fields, Terms

CHECKER = 3
"""Version of the checker, which certificates state."""
FEW = 8.0
"""Pairs of leaves below a scalar whose definition has no nonlinear operations but those of an
epilogue: wrapping, clipping, a residual."""


@checked_call
def prove(
    subject: Program | CompiledNetwork,
    *,
    against: Any = None,
    capabilities: Capabilities | str | None = None,
    seed: int | None = None,
) -> Proof:
    """Prove that a program or a network computes what it declares, for every input.

    Parameters
    ----------
    subject : Program or Model
        A program of one operator, for all data and weights; or a compiled network, for all data.
    against : Operator, optional
        What a program must compute; by default, its own record. Needed for user-written schedules,
        whose arguments must be those of the operator, in its order.
    capabilities : Capabilities or str, optional
        What the device of a program can execute, for its verification; by default everything.
    seed : int, optional
        Seed of the random numbers; by default they come from the operating system.

    Raises
    ------
    NotEquivalent
        If it computes something else: with the first differing element, the instruction that
        stored it, and inputs on which fsim shows the difference, if any are found.
    VerificationError
        If a program is not safe and deterministic.
    ProgramError
        If `subject` is neither a Program nor a Model, or `seed` is negative.
    """
    if not isinstance(subject, Program | CompiledNetwork):
        raise ProgramError(f"prove takes a Program or a Model; not {subject!r}")
    if isinstance(seed, int) and seed < 0:
        raise ProgramError(f"seed is {seed}; it must be at least 0")
    begin = time.process_time()
    if isinstance(subject, Program):
        subject.verify(capabilities)
        return _joined([proven(operator_task(subject, against), seed)], 0, begin)
    if against is not None or capabilities is not None:
        raise ProgramError(
            "a Model is proven against its own graph, for its own capabilities; against and "
            "capabilities must be None"
        )
    return _of_network(subject, seed, begin)


@one_thread()
@collection_paused()
def _of_network(network: CompiledNetwork, seed: int | None, begin: float) -> Proof:
    """Return the proof of all launches of a network."""
    network.verify()
    keep_freed_memory()
    proofs = [proven(launch_task(network.graph, r), seed) for r in network.regions]
    return_memory()
    hosts = sum(len(stage.nodes) for stage in network.stages if not isinstance(stage, Region))
    return _joined(proofs, hosts, begin)


def _joined(found: list[Proof], hosts: int, begin: float) -> Proof:
    """Merge the proofs of all launches; `hosts` operators run between them."""
    claims: tuple[str, ...] = sum((part.claims for part in found), ())
    if hosts:
        claims += (f"{hosts} operators on the host, by the executor that defines them",)
    return Proof(
        claims=claims,
        unproven=sum((part.unproven for part in found), ()),
        leaves=sum(part.leaves for part in found),
        primes=sum((part.primes for part in found), ()),
        error=min(1.0, sum(part.error for part in found)),
        seconds=time.process_time() - begin,
        certificate={"checker": CHECKER, "parts": [dict(part.certificate) for part in found]},
    )


def proven(task: ProofTask, seed: int | None = None, pairs: int = 0, spent: float = 0.0) -> Proof:
    """Return the proof of one program, which must verify.

    Pairs of fields multiply the probability of error. By default it is one for a definition without
    nested leaves, and two for others, for an error below 2**-54. `spent` is the probability of
    error of earlier attempts. Raises NotEquivalent.
    """
    begin = time.process_time()
    fields = Fields(seed, pairs or (1 if task.linear else 2))
    try:
        machine, wanted = _executed(task, fields)
    except Unknown as reason:
        return Proof((), (f"{task.name}: {reason}",), seconds=time.process_time() - begin)
    error = min(1.0, spent + _error(task, fields))
    for result, terms in wanted.items():
        differs = _differences(task, result, terms, machine)
        if differs.any():
            break
    else:
        return _accepted(task, machine, ", ".join(wanted), error, begin)
    if not pairs and task.linear:  # two pairs of fields identify constants
        return proven(task, seed, 2, error)
    raise _refutation(task, result, differs, machine)


def _error(task: ProofTask, fields: Fields) -> float:
    """Return a bound of the probability that terms of one attempt are equal by chance."""
    pairs = FEW if task.linear else max(FEW, fields.hashed * (fields.hashed / 2 + 4 * SMALL))
    return pairs * (fields.degree / 2.0**30) ** len(fields.primes)


def _accepted(
    task: ProofTask, machine: TermMachine, results: str, error: float, begin: float
) -> Proof:
    """Return the proof of a program whose results are those of its definition."""
    program, fields = task.program, machine.fields
    parts = program.config.fingerprint, program.instructions, program.relocations
    return Proof(
        claims=(f"{task.name}: {results} equals its definition for every input{task.remark}",),
        leaves=fields.hashed,
        primes=fields.primes,
        error=error,
        seconds=time.process_time() - begin,
        certificate={
            "program": _digest((*parts, program.micro_ops, program.buffers)),
            "weights": _digest(sorted(task.parameters.items())),
            "definition": _digest(task.identity),
            "primes": list(fields.primes),
            "error": error,
        },
    )


def _executed(task: ProofTask, fields: Fields) -> tuple[TermMachine, Values]:
    """Return a machine that executed the program, and the results by definition."""
    if task.unknown:
        raise Unknown(task.unknown)
    names = NameMachine(task.program)
    names.run()
    images, wanted = task.evaluated(fields)
    machine = TermMachine(names, fields, images)
    machine.run()
    return machine, wanted


def _differences(task: ProofTask, result: str, terms: Terms, machine: TermMachine) -> Any:
    """Return which elements of a result differ from its definition."""
    fields, (buffer, unpack) = machine.fields, task.outputs[result]
    computed = np.stack([unpack(plane) for plane in machine.terms_of(buffer)])
    wanted = fields.keys(np.broadcast_to(terms.value, computed.shape))
    return (fields.keys(computed) != wanted).any(axis=0)


def _refutation(task: ProofTask, result: str, differs: Any, machine: TermMachine) -> NotEquivalent:
    buffer, unpack = task.outputs[result]
    element = tuple(np.argwhere(differs)[0].tolist())
    writer = unpack(machine.written_by(buffer))[differs].min()
    drawn = int(machine.fields.random.integers(1 << 32))
    shown = Examples(task, drawn).difference(task.program, range(TRIES))
    return NotEquivalent(task.name, result, element, int(differs.sum()), int(writer), shown, TRIES)


def _digest(value: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    if isinstance(value, np.ndarray):
        update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, list | tuple):
        update(f"({len(value)}".encode())
        if {*map(type, value)} == {int}:  # the same as below, at once
            update("".join(f"{item!r};" for item in value).encode())
            return
        for item in value:
            _feed(update, item)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        update(type(value).__name__.encode())
        _feed(update, sorted((k, v) for k, v in vars(value).items() if not k.startswith("_")))
    else:
        update(repr(value).encode() + b";")
