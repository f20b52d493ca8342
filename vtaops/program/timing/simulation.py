"""The event-driven simulation: fetch, load, compute and store as processes around one DRAM port.

Each process walks its instructions in order and computes their times; nothing couples the units
but tokens, the queues of instructions, and the port. How processes meet: ``events.py``.

All times are cycle numbers from the launch; an interval is half-open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vtaops.config import INSTRUCTION_BYTES
from vtaops.isa import Unit
from vtaops.program.program import Program
from vtaops.program.timing.events import Channel, EventLoop, Process
from vtaops.program.timing.loads import Interval, LoadEngine
from vtaops.program.timing.parameters import TimingParameters
from vtaops.program.timing.pipeline import output_delay
from vtaops.program.timing.port import Port
from vtaops.program.timing.work import ALU, CONTROL, GEMM, RESET, UOP, work_of

if TYPE_CHECKING:
    from vtaops.program.timing.timeline import Timeline

FETCH, LOAD, COMPUTE, STORE = range(4)
"""Processes, and clients of the port, in the order in which the port prefers them."""

_NEVER = float("inf")

PROCESSES = ("fetch", "load", "compute", "store")


@dataclass(slots=True)
class Life:
    """What happened to one instruction, and when.

    Attributes
    ----------
    queue_stall : float
        Cycles for which the queue of its unit had no place.
    dispatched : float
        When the fetch handed it over.
    prev_token, next_token : float
        When the token that it takes from either neighbour was available; 0 where it takes none.
    taken : float
        When it left the queue of its unit, with its tokens.
    work : list of (float, float)
        The intervals in which it worked.
    end : float
        Of its work.
    completed : float
        When its tokens are available to the neighbours.
    """

    queue_stall: float = 0
    dispatched: float = 0
    prev_token: float = 0
    next_token: float = 0
    taken: float = 0
    work: list[Interval] = field(default_factory=list)
    end: float = 0
    completed: float = 0


class Simulation:
    """A program on its way through the accelerator.

    Attributes
    ----------
    work : Work
        What each instruction costs.
    port : Port
        What all share.
    compute_depth : int
        Pipeline stages behind the issue of a micro-op.
    lives : list of Life
        What happened to each instruction, where asked for.
    """

    def __init__(self, program: Program, parameters: TimingParameters, keep: bool) -> None:
        config = program.config
        self.parameters = parameters
        self.port = Port(config, parameters, len(PROCESSES), keep)
        width = self.port.width
        self.work = work_of(program, width, width * parameters.burst_beats)
        self.compute_depth = parameters.pipeline_depth(config)
        self.lives = [Life() for _ in self.work.unit] if keep else []
        self._output_delay = output_delay(config)
        self._forwards = "forward" in config.extensions
        self._finish: float | None = None
        self._last = 0.0  # end of the last process

        loop = self._loop = EventLoop(PROCESSES)
        self._l2g = Channel(loop, COMPUTE, "a token of the load unit")
        self._s2g = Channel(loop, COMPUTE, "a token of the store unit")
        self._g2l = Channel(loop, LOAD, "a token of the compute unit")
        self._g2s = Channel(loop, STORE, "a token of the compute unit")
        process = {Unit.LOAD: LOAD, Unit.COMPUTE: COMPUTE, Unit.STORE: STORE}
        self._instructions = {unit: Channel(loop, process[unit], "an instruction") for unit in Unit}
        # An instruction that leaves the queue of its unit makes a place there.
        self._places = {
            unit: Channel(loop, FETCH, f"a place in the queue of the {unit.name.lower()} unit")
            for unit in Unit
        }

    def run(self) -> None:
        """Follow the program to its end.

        Raises
        ------
        DeadlockError
            If the units wait for each other for ever.
        """
        self._loop.run([self._fetch(), self._load(), self._compute(), self._store()])

    @property
    def end(self) -> float:
        """When FINISH completes; without FINISH, all of it."""
        return self._last if self._finish is None else self._finish

    @property
    def compute_work(self) -> int:
        """Cycles that the compute unit works, if nothing holds up its loads."""
        work, p = self.work, self.parameters
        intervals = _intervals(p)
        cycles = 0
        for i in self._of(Unit.COMPUTE):
            moved = work.beats[i] + work.before[i] + work.zeros[i]
            if moved:
                cycles += moved + 1  # one step retires the load
            else:
                cycles += max(work.steps[i], 1) * intervals[work.kind[i], work.tensor[i]]
                cycles += work.held[i] * p.mul_hold
        return cycles

    def _of(self, unit: Unit) -> Iterator[int]:
        """Yield the instructions of a unit."""
        return (index for index, own in enumerate(self.work.unit) if own == unit)

    # -------------------------------------------------------------------------------- fetch

    def _fetch(self) -> Process:
        """Read the instructions in bursts and dispatch them in order, as queues have room."""
        work, p, loop, port, lives = self.work, self.parameters, self._loop, self.port, self.lives
        interval = max(1, INSTRUCTION_BYTES // port.width)  # beats of an instruction
        latency = p.request_latency + p.dram_latency
        per_burst = p.burst_beats * port.width // INSTRUCTION_BYTES
        count = len(work.unit)
        instructions = [self._instructions[unit] for unit in Unit]
        places = [self._places[unit] for unit in Unit]
        free = [p.command_depth] * len(Unit)  # places that no instruction has had yet
        # First beat of each burst that is not yet dispatched, and the cycles from beat to beat.
        arrivals: deque[tuple[float, float]] = deque()
        request, requested, last = -1.0, 0, -float(interval)
        free_beats, room, start, beat = p.fetch_bursts * p.burst_beats, 0.0, 0.0, 1.0
        for index in range(count):
            # Requests run ahead: a burst as soon as the buffer has room for it.
            while requested < count:
                size = min(per_burst, count - requested)
                beats = -(-size * INSTRUCTION_BYTES // port.width)
                if beats > free_beats:
                    break
                request = max(request + 1, room)
                ready = request + latency
                if ready >= loop.horizon:
                    yield ready
                first, end = port.grant(FETCH, Port.READ, ready, beats, requested)
                arrivals.append((first, (end - 1 - first) / (beats - 1) if beats > 1 else 1))
                requested += size
                free_beats -= beats
            position = index % per_burst
            if position == 0:
                start, beat = arrivals.popleft()
                start += p.buffer_latency
            unit = work.unit[index]
            last_beat = ((position + 1) * INSTRUCTION_BYTES - 1) // port.width
            time = arrival = max(last + interval, start + last_beat * beat)
            if free[unit]:
                free[unit] -= 1
            else:
                while not places[unit].times:
                    yield places[unit]
                time = max(time, places[unit].times.popleft() + 1)
            last, room = time, time + 1
            taken = (position + 1) * INSTRUCTION_BYTES // port.width
            free_beats += taken - position * INSTRUCTION_BYTES // port.width
            if lives:
                lives[index].dispatched = time
                lives[index].queue_stall = time - arrival
            instructions[unit].send(time + p.dispatch_latency)
        self._last = max(self._last, last + 1)

    # --------------------------------------------------------------------------------- load

    def _load(self) -> Process:
        work, p, lives = self.work, self.parameters, self.lives
        instructions, places = self._instructions[Unit.LOAD], self._places[Unit.LOAD]
        tokens = self._g2l
        engine = LoadEngine(self._loop, self.port, LOAD, work, p)
        ends: deque[float] = deque(maxlen=p.loads_in_flight)
        start = -1.0
        for index in self._of(Unit.LOAD):
            life = lives[index] if lives else None
            while not instructions.times:
                yield instructions
            start = max(instructions.times.popleft(), start + 1)
            token = 0.0
            if work.pop_next[index]:
                while not tokens.times:
                    yield tokens
                token = tokens.times.popleft()
            start = max(start, token, engine.free if work.beats[index] else 0.0)
            if len(ends) == p.loads_in_flight:
                start = max(start, ends[0])
            places.send(start)
            if work.kind[index] == CONTROL:
                engine.end = max(engine.end, start + p.load_fill) + 1
            else:
                yield from engine.move(index, start, 0, life.work if life else None)
            end = engine.end
            ends.append(end)
            if life:
                life.next_token, life.taken = token, start
                if work.kind[index] == CONTROL:
                    life.work.append((end - 1, end))
                life.end = life.completed = end
            if work.push_next[index]:
                self._l2g.send(end + self._forwards)
        self._last = max(self._last, engine.end)

    # ------------------------------------------------------------------------------ compute

    def _compute(self) -> Process:
        work, p, lives, depth = self.work, self.parameters, self.lives, self.compute_depth
        instructions, places = self._instructions[Unit.COMPUTE], self._places[Unit.COMPUTE]
        from_load, from_store = self._l2g, self._s2g
        engine = LoadEngine(self._loop, self.port, COMPUTE, work, p)
        intervals = _intervals(p)
        take, moved = -1.0, -1.0  # of the instruction before: tokens taken; moved on to execution
        issued = -1.0  # end of its last issue
        issued_before = -1.0  # of the instruction before that, if that one loads
        loads = False  # whether it does
        loops_end, loops_range = 0.0, (0, 0)
        for index in self._of(Unit.COMPUTE):
            life = lives[index] if lives else None
            while not instructions.times:
                yield instructions
            take = max(instructions.times.popleft(), take + 1, moved)
            load_token = store_token = 0.0
            if work.pop_prev[index]:
                while not from_load.times:
                    yield from_load
                load_token = from_load.times.popleft()
            if work.pop_next[index]:
                while not from_store.times:
                    yield from_store
                store_token = from_store.times.popleft()
            take = max(take, load_token, store_token)
            places.send(take)

            kind, steps = work.kind[index], work.steps[index]
            begin = max(take + p.compute_fill, issued)  # of the first issue
            if work.beats[index] or work.before[index] or work.zeros[index]:
                start = max(take + 1, engine.free if work.beats[index] else 0.0)
                moved = max(begin, start + 1) - 1
                held = (0.0, 0.0)
                if kind != UOP:  # with an empty pipeline: a LOAD enters it when it has written
                    held = (issued, issued + depth)
                    allowed = issued_before + depth if loads else held[1]
                elif work.first[index] < loops_range[1] and work.last[index] > loops_range[0]:
                    allowed = loops_end
                else:
                    allowed = 0.0
                yield from engine.move(index, start, allowed, life.work if life else None, held)
                issued_before, loads = issued, True
                issued = max(begin, engine.end) + 1
            else:
                moved, loads = begin - 1, False
                interval = intervals[kind, work.tensor[index]]
                issued = begin + max(steps, 1) * interval + work.held[index] * p.mul_hold
                if life:
                    life.work.append((begin, issued))
            if steps:
                loops_end, loops_range = issued, (work.first[index], work.last[index])
            else:
                loops_range = (0, 0)

            completed = issued + depth
            if life:
                life.prev_token, life.next_token = load_token, store_token
                life.taken, life.end, life.completed = take, issued, completed
            if work.push_prev[index]:
                self._g2l.send(completed + self._forwards * self._output_delay)
            if work.push_next[index]:
                self._g2s.send(completed + self._output_delay)
            if work.finish[index]:
                self._finish = completed
        self._last = max(self._last, issued + depth)

    # -------------------------------------------------------------------------------- store

    def _store(self) -> Process:
        work, p, loop, port, lives = self.work, self.parameters, self._loop, self.port, self.lives
        instructions, places = self._instructions[Unit.STORE], self._places[Unit.STORE]
        tokens = self._g2s
        start = -1.0
        sent = drained = complete = 0.0
        completions: deque[float] = deque(maxlen=p.stores_in_flight)
        # When the DRAM had the last bursts, as many as it queues.
        accepted = deque([0.0] * p.write_bursts, p.write_bursts)
        # When the last words were sent, one more than fit between scratchpad and port.
        words = deque([-_NEVER] * (p.store_words + 1), p.store_words + 1)
        for index in self._of(Unit.STORE):
            life = lives[index] if lives else None
            while not instructions.times:
                yield instructions
            start = max(instructions.times.popleft(), start + 1)
            token = 0.0
            if work.pop_prev[index]:
                while not tokens.times:
                    yield tokens
                token = tokens.times.popleft()
            # The store before retires from a queue: it enters when it is sent and there is a
            # place, and this one needs a place too when it does not start in that very cycle.
            entered = drained
            if len(completions) == p.stores_in_flight:
                entered = max(entered, completions[0])
            start = max(start, token, entered)
            if start > entered and len(completions) >= p.stores_in_flight - 1:
                start = max(start, completions[1 - p.stores_in_flight])
            places.send(start)
            beats = work.beats[index]
            for size, request in self._write_chunks(index):
                queued = max(start + 1 + request, accepted[0])
                if port.limited and queued >= loop.horizon:
                    yield queued
                ready = max(start + p.store_fill, sent)
                begin, sent = port.grant(STORE, Port.WRITE, ready, size, index)
                accepted.append(sent)
                pace = (sent - 1 - begin) / max(size - 1, 1)
                last = min(size, p.store_words + 1)
                words.extend(sent - 1 - k * pace for k in reversed(range(last)))
                if life:
                    life.work.append((begin, sent))
            drained = start + beats + 1
            if beats:
                drained = max(drained, words[0] + 2)
                complete = sent - 1 + p.dram_latency + p.store_drain
            else:
                complete = max(start + p.store_fill, complete)
                if life:
                    life.work.append((start, start + 1))
            if life:
                life.prev_token, life.taken = token, start
                life.end, life.completed = sent if beats else start + 1, complete
            completions.append(complete)
            if work.push_prev[index]:
                self._s2g.send(complete)
        self._last = max(self._last, complete)

    def _write_chunks(self, index: int) -> Iterator[tuple[int, int]]:
        """Yield the chunks of a store: beats, and how many cycles after the first they queue."""
        beats, bursts = self.work.beats[index], self.work.bursts[index]
        most_beats, most_bursts = self.port.grain
        chunks = max(-(-beats // most_beats), -(-bursts // most_bursts))
        if not self.port.limited:  # nobody else writes: as a whole
            chunks = min(chunks, 1)
        for chunk in range(chunks):
            size = beats * (chunk + 1) // chunks - beats * chunk // chunks
            yield size, bursts * chunk // chunks


def _intervals(p: TimingParameters) -> dict[tuple[int, bool], int]:
    """Return the cycles from micro-op to micro-op by kind and whether it has a tensor operand."""
    return {
        (GEMM, False): p.gemm_interval,
        (RESET, False): p.gemm_interval,
        (ALU, False): p.alu_interval,
        (ALU, True): p.alu_tensor_interval,
        (CONTROL, False): 1,
        (CONTROL, True): 1,  # loops without an iteration
    }


def simulate(
    program: Program, parameters: TimingParameters | None = None, *, events: bool = True
) -> Timeline:
    """Follow a program through the machine that `parameters` describe.

    Parameters
    ----------
    program : Program
        Any program that verifies.
    parameters : TimingParameters, optional
        By default those of ``tsim``.
    events : bool
        Whether to keep what happened to each instruction. Without, the result knows the cycles
        and the use of the port only, and takes half the time.

    Raises
    ------
    DeadlockError
        If the units wait for each other for ever.
    """
    from vtaops.program.timing.timeline import Timeline

    parameters = parameters or TimingParameters()
    simulation = Simulation(program, parameters, events)
    simulation.run()
    return Timeline(program, parameters, simulation)
