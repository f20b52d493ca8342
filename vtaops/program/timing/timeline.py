"""Timeline: the result of a simulation, with cycles by unit and activity, and all events.

The totals are partitions: for each unit, work by kind, waiting by cause and idle time add up to the
cycles of the program.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, product
from typing import Any

import numpy as np

from vtaops.base.errors import ProgramError
from vtaops.machine.config import INSTRUCTION_BYTES
from vtaops.machine.isa import Unit
from vtaops.program.program import Program
from vtaops.program.timing.parameters import TimingParameters
from vtaops.program.timing.simulation import PROCESSES, WEIGHTS, traced
from vtaops.program.timing.work import CONTROL, KINDS

FETCH_WORK = "fetch"
"""Kind of work of the instruction fetch."""

WAITS = {
    "instruction": "no instruction has been dispatched to the unit yet",
    "load token": "waits for a token of the load unit",
    "compute token": "waits for a token of the compute unit",
    "store token": "waits for a token of the store unit",
    "dram": "waits for data of the DRAM: latency, or others use the port",
    "pipeline": "fills or drains a pipeline",
    "queue full": "the queue of the unit that the next instruction is for is full",
}
"""Causes of waiting, with their meaning."""

IDLE = "idle"
"""After the last instruction of a unit."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The activity of one unit in an interval.

    Attributes
    ----------
    unit : str
        ``"fetch"``, ``"load"``, ``"compute"`` or ``"store"``.
    instruction : int
        Index in the program; -1 when idle.
    kind : str
        A kind of work (`KINDS`), a cause of waiting (`WAITS`) or ``"idle"``.
    start, end : int
        Cycles, half-open.
    """

    unit: str
    instruction: int
    kind: str
    start: int
    end: int

    @property
    def busy(self) -> bool:
        return self.kind not in WAITS and self.kind != IDLE

    @property
    def cycles(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Event:
    """The history of one instruction, in cycles from the launch.

    Attributes
    ----------
    index : int
        Index in the program.
    unit, kind : str
        The unit that executes it; the kind of its work (`KINDS`).
    work : list of (int, int)
        The intervals in which it works.
    queue_stall : int
        Cycles for which its unit's queue was full.
    dispatched : int
        When the fetch passes it to its unit's queue.
    prev_token, next_token : int
        When the token from either neighbour was available; 0 if it takes none.
    taken : int
        When it leaves that queue, with its tokens.
    end : int
        End of its work.
    completed : int
        When its tokens are available to the neighbours.
    """

    index: int
    unit: str
    kind: str
    work: list[tuple[int, int]]
    queue_stall: int
    dispatched: int
    prev_token: int
    next_token: int
    taken: int
    end: int
    completed: int

    @property
    def start(self) -> int:
        """First cycle of its work."""
        return self.work[0][0]


@dataclass(frozen=True, slots=True)
class Token:
    """One token in transit.

    Attributes
    ----------
    queue : str
        Sender and receiver: ``"load>compute"``, ``"compute>load"``, ``"compute>store"``,
        ``"store>compute"``.
    sender, receiver : int
        Indices of the instructions that push and pop it.
    sent, taken : int
        When it is available, and when it is taken.
    """

    queue: str
    sender: int
    receiver: int
    sent: int
    taken: int


@dataclass(frozen=True)
class UnitTime:
    """The cycles of one unit by activity.

    Attributes
    ----------
    unit : str
        Its name.
    busy : dict
        Kind of work -> cycles.
    waiting : dict
        Cause of waiting -> cycles.
    idle : int
        Cycles after its last instruction.
    """

    unit: str
    busy: dict[str, int]
    waiting: dict[str, int]
    idle: int

    @property
    def total(self) -> int:
        """All cycles of the program."""
        return self.work + sum(self.waiting.values()) + self.idle

    @property
    def work(self) -> int:
        """All busy cycles."""
        return sum(self.busy.values())


@dataclass(frozen=True)
class PortUse:
    """Traffic over the DRAM port.

    Attributes
    ----------
    width : int
        Bytes of a beat.
    beats : dict
        Client (``"fetch"``, ``"load"``, ``"compute"``, ``"store"``) -> beats; ``"weights"``: of the
        load unit over the port of the weights, if there is one.
    contention : dict
        Client -> cycles that its requests waited while the port served others.
    """

    width: int
    beats: dict[str, int]
    contention: dict[str, int]

    @property
    def read_beats(self) -> int:
        """Beats from DRAM, over the port that has more of them."""
        return max(self.main_read_beats, self.beats[WEIGHTS])

    @property
    def main_read_beats(self) -> int:
        """Beats from DRAM over the port that all units share."""
        return self.beats["fetch"] + self.beats["load"] + self.beats["compute"]

    @property
    def write_beats(self) -> int:
        """Beats to DRAM."""
        return self.beats["store"]


class Timeline:
    """Result of `simulate`.

    Attributes
    ----------
    program : Program
        The simulated program.
    parameters : TimingParameters
        The simulated machine.
    cycles : int
        From the launch to the completion of FINISH (or of the last instruction without it).
    compute_work : int
        Cycles that the compute unit would work if its loads never stalled: micro-op steps at their
        pace, its own loads while they move data. Available without events.
    port : PortUse
        Use of the DRAM port.
    """

    def __init__(self, program: Program, parameters: TimingParameters, events: bool) -> None:
        self._work, self._found = traced(program, parameters, events)
        self.program = program
        self.parameters = parameters
        self.cycles: int = math.ceil(self._found["end"])
        self.compute_work: int = self._found["compute_work"]
        self.port = PortUse(
            parameters.port_width(program.config),
            dict(zip((*PROCESSES, WEIGHTS), self._found["beats"], strict=True)),
            {n: math.floor(c) for n, c in zip(PROCESSES, self._found["contention"], strict=True)},
        )

    def _rows(self, name: str) -> list[list[int]]:
        """Return rows of the simulation; boundaries are rounded down."""
        if len(self._found["lives"]) < len(self.program):
            raise ProgramError("the simulation kept no events; call simulate(..., events=True)")
        rows = np.floor(self._found[name]).astype(np.int64)
        if name == "lives":  # the stall ends with the dispatch, and begins at a whole cycle, too
            stall, dispatched = self._found[name][:, :2].T
            rows[:, 0] = rows[:, 1] - np.floor(dispatched - stall).astype(np.int64)
        found: list[list[int]] = rows.tolist()
        return found

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The life of every instruction, in program order."""
        stretches: list[list[tuple[int, int]]] = [[] for _ in range(len(self.program))]
        for index, start, end in self._rows("stretches"):
            stretches[index].append((start, end))
        units = [Unit(unit).name.lower() for unit in self._work.unit.tolist()]
        kinds = [KINDS[kind] for kind in self._work.kind.tolist()]
        rows = zip(units, kinds, self._rows("lives"), stretches, strict=True)
        return tuple(
            Event(index, unit, kind, work, *life)
            for index, (unit, kind, life, work) in enumerate(rows)
        )

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Every token, by queue, in the order of the queue."""
        work, events = self._work, self.events
        tokens = []
        for sender, receiver in product(Unit, Unit):
            if abs(sender - receiver) != 1:
                continue
            queue = f"{sender.name}>{receiver.name}".lower()
            pushes, pops = work.push_prev, work.pop_next
            if sender < receiver:
                pushes, pops = work.push_next, work.pop_prev
            senders = np.flatnonzero((work.unit == sender) & (pushes > 0)).tolist()
            receivers = np.flatnonzero((work.unit == receiver) & (pops > 0)).tolist()
            tokens += [
                Token(queue, i, j, events[i].completed, events[j].taken)
                for i, j in zip(senders, receivers, strict=False)  # tokens may remain
            ]
        return tuple(tokens)

    @cached_property
    def segments(self) -> dict[str, tuple[Segment, ...]]:
        """Unit -> its activity from cycle 0 to `cycles`, without gaps."""
        return {name: tuple(self._partition(name)) for name in PROCESSES}

    @cached_property
    def units(self) -> dict[str, UnitTime]:
        """Unit -> its cycles by activity."""
        return {name: _total(name, segments) for name, segments in self.segments.items()}

    @cached_property
    def grants(self) -> tuple[Segment, ...]:
        """The port over time: which client (`unit`), for which instruction, from when to when.

        The kind is ``"read"``, ``"write"``, or ``"weights"``: a read over the port of the weights.
        """
        units = (*PROCESSES, "load")
        kinds = ("read", "read", "read", "write", WEIGHTS)
        return tuple(
            Segment(units[p], i, kinds[p], start, end) for p, i, start, end in self._rows("grants")
        )

    @property
    def gemm_utilization(self) -> float:
        """Fraction of the GEMM array's peak tile products that is used."""
        products = self.program.config.products_per_cycle
        return self.program.stats().array_share(self.cycles, products)

    def as_dict(self) -> dict[str, Any]:
        """Return cycles, totals by unit and the use of the port as plain data."""
        return {
            "cycles": self.cycles,
            "gemm_utilization": self.gemm_utilization,
            "units": {
                name: {"busy": unit.busy, "waiting": unit.waiting, "idle": unit.idle}
                for name, unit in self.units.items()
            },
            "port": {
                "bytes_per_beat": self.port.width,
                "beats": self.port.beats,
                "contention": self.port.contention,
            },
        }

    def layer_spans(self) -> list[tuple[int, int, int]]:
        """Return the turns of the program's operators: (number, first cycle, end).

        A cycle belongs to the operator whose instruction the compute unit finishes next; the
        remaining cycles belong to the last operator. So the turns are contiguous.
        """
        operators = self.program.operators
        owner = {i: n for n, o in enumerate(operators) for span in o.spans for i in range(*span)}
        finished = [e for e in self.events if e.unit == "compute" and e.index in owner]
        turns = [(n, [*turn][-1].end) for n, turn in groupby(finished, lambda e: owner[e.index])]
        numbers, ends = [n for n, _ in turns], [*(end for _, end in turns[:-1]), self.cycles]
        return list(zip(numbers, [0, *ends], ends, strict=False))

    def __repr__(self) -> str:
        return f"Timeline({len(self.program)} instructions, {self.cycles} cycles)"

    def _repr_html_(self) -> str:
        from vtaops.program.timing.interactive import timeline_html

        return timeline_html(self)

    # --------------------------------------------------------------------- partitions

    def _partition(self, unit: str) -> Iterator[Segment]:
        """Partition the time of one unit into segments; overlaps belong to the first."""
        begin = clock = 0
        last = -1, IDLE
        activities = self._fetching() if unit == "fetch" else self._working(unit)
        for index, kind, until in (*activities, (-1, IDLE, self.cycles)):
            end = min(until, self.cycles)
            if end <= clock:
                continue
            if (index, kind) != last:
                if clock > begin:
                    yield Segment(unit, *last, begin, clock)
                begin, last = clock, (index, kind)
            clock = end
        if clock > begin:
            yield Segment(unit, *last, begin, clock)

    def _working(self, unit: str) -> Iterator[tuple[int, str, int]]:
        """Yield (instruction, kind, end) of what a unit does, in order."""
        for e in self.events:
            if e.unit != unit:
                continue
            for cause, until in self._causes(e):
                yield e.index, cause, min(until, e.start)
            for start, end in e.work:
                yield e.index, "dram", start
                yield e.index, e.kind, end
            if unit == "compute" and e.kind.startswith("load"):
                # The data are there; one step retires the load.
                yield e.index, "pipeline", e.end - 1
                yield e.index, KINDS[CONTROL], e.end

    def _causes(self, e: Event) -> Iterator[tuple[str, int]]:
        """Yield the causes of an instruction's waits, in order, each with the end of the wait."""
        yield "instruction", e.dispatched + self.parameters.dispatch_latency
        if e.unit == "load":
            yield "compute token", e.next_token
        elif e.unit == "store":
            yield "compute token", e.prev_token
            yield "pipeline", e.taken + self.parameters.store_fill
        else:
            yield "load token", e.prev_token
            yield "store token", e.next_token
        yield "dram" if self._work.beats[e.index] > 0 else "pipeline", e.start

    def _fetching(self) -> Iterator[tuple[int, str, int]]:
        """Yield (instruction, kind, end) of what the fetch does, in order."""
        interval = max(1, INSTRUCTION_BYTES // self.port.width)
        for e in self.events:
            begin = e.dispatched + 1 - interval
            yield e.index, "dram", begin - e.queue_stall
            yield e.index, "queue full", begin
            yield e.index, FETCH_WORK, e.dispatched + 1


def _total(name: str, segments: tuple[Segment, ...]) -> UnitTime:
    cycles: Counter[str] = Counter()
    for segment in segments:
        cycles[segment.kind] += segment.cycles
    order = (FETCH_WORK, *KINDS)
    return UnitTime(
        unit=name,
        busy={kind: cycles[kind] for kind in order if kind in cycles},
        waiting={cause: cycles[cause] for cause in WAITS if cause in cycles},
        idle=cycles[IDLE],
    )


def simulate(
    program: Program, parameters: TimingParameters | None = None, *, events: bool = True
) -> Timeline:
    """Simulate a program on the machine that `parameters` describe.

    Parameters
    ----------
    program : Program
        Any program that verifies.
    parameters : TimingParameters, optional
        By default those of ``tsim``.
    events : bool
        Whether to keep the history of each instruction. Without it, the result has only the
        cycles and the use of the port.

    Raises
    ------
    ConfigError
        If the machine's longest burst is shorter than an instruction.
    DeadlockError
        If the units deadlock.
    """
    return Timeline(program, TimingParameters() if parameters is None else parameters, events)
