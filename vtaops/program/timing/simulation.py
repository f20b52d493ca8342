"""The event-driven simulation: four processes (fetch, load, compute, store) and one DRAM port.

Each process is a generator that walks its instructions in order and computes their times. It
yields before it uses the port, with the cycle in which the DRAM is ready to serve it, so that the
kernel (`_run`) serves requests in the order of time; and it yields when it needs a token, or an
instruction, that nobody has sent yet. Between two yields a process runs ahead freely: nothing else
couples the units.

All times are cycle numbers from the launch; an interval is half-open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING

from vtaops.errors import DeadlockError
from vtaops.isa import Unit
from vtaops.program.program import Program
from vtaops.program.timing.parameters import TimingParameters
from vtaops.program.timing.pipeline import output_delay
from vtaops.program.timing.work import CONTROL, UOP, Work, work_of

if TYPE_CHECKING:
    from vtaops.program.timing.timeline import Timeline

FETCH, LOAD, COMPUTE, STORE = range(4)
"""Processes, and clients of the port, in the order in which the port prefers them."""

PROCESSES = ("fetch", "load", "compute", "store")

Process = Generator["float | Channel", None, None]
Interval = tuple[float, float]

_NEVER = float("inf")
_INSTRUCTION_BYTES = 16


class Channel:
    """Times of what one process sends another: tokens, instructions, or free queue places."""

    __slots__ = ("machine", "name", "reader", "times")

    def __init__(self, machine: Machine, reader: int, name: str) -> None:
        self.machine = machine
        self.reader = reader
        self.name = name
        self.times: list[float] = []

    def send(self, time: float) -> None:
        """Make one item available from `time`; wakes the reader if it waits here."""
        self.times.append(time)
        machine = self.machine
        if machine.waiting[self.reader] is self:
            machine.waiting[self.reader] = None
            machine.next_time[self.reader] = time
            if time < machine.horizon:
                machine.horizon = time


class Machine:
    """What the processes share: the port, the channels, and the records of what happened."""

    def __init__(
        self, program: Program, work: Work, parameters: TimingParameters, record: bool
    ) -> None:
        self.work = work
        self.parameters = parameters
        self.port_bytes = parameters.port_width(program.config)
        self.budget_cycles = parameters.budget_cycles(program.config)
        self.compute_depth = parameters.pipeline_depth(program.config)
        self.output_delay = output_delay(program.config)

        self.next_time: list[float] = [0.0] * len(PROCESSES)
        self.waiting: list[Channel | None] = [None] * len(PROCESSES)
        self.horizon: float = 0  # no other process asks for the port before

        # The port: when the read and the write direction are free. A limited bandwidth is a budget
        # of both directions, which the idle DRAM saves up: `spent` is when it would be whole again.
        self.limited = self.budget_cycles > 0
        self.free: list[float] = [0, 0]
        self.spent = 0.0
        self.credit = (parameters.saved_beats - 1) * self.budget_cycles
        self.granted = [0] * len(PROCESSES)  # beats
        self.contention: list[float] = [0] * len(PROCESSES)
        self._served = [0.0, 0.0]  # cycles granted so far, by direction
        self._served_at_last = [0.0] * len(PROCESSES)

        channel = Channel
        self.l2g = channel(self, COMPUTE, "a token of the load unit")
        self.s2g = channel(self, COMPUTE, "a token of the store unit")
        self.g2l = channel(self, LOAD, "a token of the compute unit")
        self.g2s = channel(self, STORE, "a token of the compute unit")
        self.dispatched = {
            unit: channel(self, process, "an instruction") for unit, process in _PROCESS.items()
        }
        self.taken = {
            unit: channel(self, FETCH, f"a place in the queue of the {unit.name.lower()} unit")
            for unit in Unit
        }
        # Clock of each unit's last completion; the cycle in which FINISH completes.
        self.completed: list[float] = [0.0] * len(PROCESSES)
        self.finish: float = _NEVER

        # Per instruction, where they are asked for.
        self.record = record
        count = len(work.unit)
        self.queue_stall: list[float] = [0] * count if record else []
        self.dispatch_time: list[float] = [0] * count if record else []
        self.prev_token: list[float] = [0] * count if record else []
        self.next_token: list[float] = [0] * count if record else []
        self.taken_time: list[float] = [0] * count if record else []
        self.end_time: list[float] = [0] * count if record else []
        self.segments: list[list[Interval]] = [[] for _ in range(count)] if record else []
        self.sent_time: list[float] = [0] * count if record else []
        self.grants: list[tuple[int, int, float, float]] = []  # process, instruction, start, end

    def grant(
        self, process: int, direction: int, ready: float, beats: int, index: int
    ) -> tuple[float, float]:
        """Serve `beats` for a process from `ready` on; return start and end."""
        start = self.free[direction]
        if start > ready:
            others = self._served[direction] - self._served_at_last[process]
            self.contention[process] += min(start - ready, others)
        else:
            start = ready
        end = start + beats
        if self.limited:
            spent = max(self.spent, start)
            end = max(end, spent + (beats - 1) * self.budget_cycles - self.credit + 1)
            start = max(start, spent - self.credit)
            self.spent = spent + beats * self.budget_cycles
        self.free[direction] = end
        self.granted[process] += beats
        self._served[direction] += end - start
        self._served_at_last[process] = self._served[direction]
        if self.record:
            self.grants.append((process, index, start, end))
        return start, end


_PROCESS = {Unit.LOAD: LOAD, Unit.COMPUTE: COMPUTE, Unit.STORE: STORE}


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
    port = parameters.port_width(program.config)
    work = work_of(program, port, port * parameters.burst_beats)
    machine = Machine(program, work, parameters, events)
    _run(machine, [_fetch(machine), _load(machine), _compute(machine), _store(machine)])
    return Timeline(program, parameters, machine)


def _run(machine: Machine, processes: list[Process]) -> None:
    """Resume the process with the earliest request until all have ended."""
    times, waiting = machine.next_time, machine.waiting
    while True:
        now = min(times)
        if now == _NEVER:
            break
        best = times.index(now)
        times[best] = _NEVER
        machine.horizon = min(times)
        wish = next(processes[best], None)
        if isinstance(wish, Channel):
            waiting[best] = wish
        elif wish is not None:
            times[best] = wish
    stuck = [
        f"{name} waits for {channel.name}"
        for name, channel in zip(PROCESSES, waiting, strict=True)
        if channel is not None
    ]
    if stuck:
        raise DeadlockError(f"the program does not end: {'; '.join(stuck)}")


# ---------------------------------------------------------------------------------- fetch


def _fetch(machine: Machine) -> Process:
    """Read the instructions in bursts and dispatch them in order, as queues have room."""
    work, p = machine.work, machine.parameters
    port = machine.port_bytes
    interval = max(1, _INSTRUCTION_BYTES // port)  # beats of an instruction
    latency = p.request_latency + p.dram_latency
    per_burst = p.burst_beats * port // _INSTRUCTION_BYTES
    count = len(work.unit)
    sent = [0, 0, 0]
    channels = [machine.dispatched[unit] for unit in Unit]
    places = [machine.taken[unit] for unit in Unit]
    # First beat of each burst that is not yet dispatched, and the cycles from beat to beat.
    arrivals: deque[tuple[float, float]] = deque()
    request, requested, last = -1.0, 0, -float(interval)
    for begin in range(0, count, per_burst):
        # Requests run ahead; a burst makes room for another when its instructions are dispatched.
        free = last + 1 if begin else 0.0
        while len(arrivals) < p.fetch_bursts and requested < count:
            size = min(per_burst, count - requested)
            request = max(request + 1, free)
            ready = request + latency
            if ready >= machine.horizon:
                yield ready
            beats = -(-size * _INSTRUCTION_BYTES // port)
            first, end = machine.grant(FETCH, 0, ready, beats, requested)
            arrivals.append((first, (end - 1 - first) / (beats - 1) if beats > 1 else 1))
            requested += size
        start, beat = arrivals.popleft()
        start += p.buffer_latency
        for index in range(begin, min(begin + per_burst, count)):
            unit = work.unit[index]
            last_beat = ((index - begin + 1) * _INSTRUCTION_BYTES - 1) // port
            time = max(last + interval, start + last_beat * beat)
            if sent[unit] >= p.command_depth:
                place = sent[unit] - p.command_depth
                while len(places[unit].times) <= place:
                    yield places[unit]
                room = places[unit].times[place] + 1
                if machine.record:
                    machine.queue_stall[index] = max(0, room - time)
                time = max(time, room)
            sent[unit] += 1
            last = time
            if machine.record:
                machine.dispatch_time[index] = time
            channels[unit].send(time + p.dispatch_latency)
    machine.completed[FETCH] = last + 1


# ---------------------------------------------------------------------------------- loads


class _LoadEngine:
    """Moves data from the port into scratchpads: requests run ahead, writes happen in order."""

    __slots__ = (
        "_beats_in_flight",
        "_bursts_in_flight",
        "_machine",
        "_process",
        "_to_arrive",
        "_to_write",
        "end",
        "last_request",
    )

    def __init__(self, machine: Machine, process: int) -> None:
        self._machine = machine
        self._process = process
        # Chunks that hold places: bursts until their data arrive, beats until they are written.
        self._to_arrive: deque[tuple[int, float]] = deque()
        self._to_write: deque[tuple[int, float]] = deque()
        self._bursts_in_flight = self._beats_in_flight = 0
        self.end = 0.0  # of the last write
        self.last_request = -1.0

    def move(self, index: int, start: float, allowed: float) -> Process:
        """Execute the load `index`, started at `start`; writes may begin at `allowed`."""
        machine, work, p = self._machine, self._machine.work, self._machine.parameters
        latency, buffer = p.request_latency + p.dram_latency, p.buffer_latency
        process, window, outstanding = self._process, p.load_window, p.outstanding
        to_arrive, to_write = self._to_arrive, self._to_write
        beats, before, zeros = work.beats[index], work.before[index], work.zeros[index]
        bursts = work.bursts[index]
        segments = machine.segments[index] if machine.record else None

        end = max(self.end, start + p.load_fill, allowed)
        if before:
            if segments is not None:
                segments.append((end, end + before))
            end += before
        request, done, requested, padded = start + 1, 0, 0, 0
        chunks = max(-(-beats // p.chunk_beats), -(-bursts // p.chunk_bursts))
        for chunk in range(1, chunks + 1):
            size = beats * chunk // chunks - done
            count = bursts * chunk // chunks - requested
            pads = zeros * chunk // chunks - padded
            done, requested, padded = done + size, requested + count, padded + pads
            while self._beats_in_flight + size > window:
                freed, time = to_write.popleft()
                self._beats_in_flight -= freed
                request = max(request, time)
            while self._bursts_in_flight + count > outstanding:
                freed, time = to_arrive.popleft()
                self._bursts_in_flight -= freed
                request = max(request, time)
            ready = request + latency
            if ready >= machine.horizon:
                yield ready
            first, last = machine.grant(process, 0, ready, size, index)
            begin = max(end, first + buffer)
            end = max(begin + size + pads, last + buffer)
            if segments is not None:
                segments.append((end - size - pads, end))
            to_write.append((size, end))
            to_arrive.append((count, last))
            self._beats_in_flight += size
            self._bursts_in_flight += count
            self.last_request = request + max(count, 1) - 1
            request = self.last_request + 1
        if zeros > padded:  # no data at all: only padding
            if segments is not None:
                segments.append((end, end + zeros))
            end += zeros
        self.end = end


def _load(machine: Machine) -> Process:
    work, p = machine.work, machine.parameters
    instructions = machine.dispatched[Unit.LOAD]
    taken, tokens, out = machine.taken[Unit.LOAD], machine.g2l, machine.l2g
    engine = _LoadEngine(machine, LOAD)
    ends: deque[float] = deque(maxlen=p.loads_in_flight)
    start, popped = -1.0, 0
    for number, index in enumerate(i for i, u in enumerate(work.unit) if u == Unit.LOAD):
        while len(instructions.times) <= number:
            yield instructions
        start = max(instructions.times[number], start + 1)
        token = 0.0
        if work.pop_next[index]:
            while len(tokens.times) <= popped:
                yield tokens
            token = tokens.times[popped]
            popped += 1
        start = max(start, token, engine.last_request)
        if len(ends) == p.loads_in_flight:
            start = max(start, ends[0])
        taken.send(start)
        if work.kind[index] == CONTROL:
            engine.end = max(engine.end, start + p.load_fill) + 1
        else:
            yield from engine.move(index, start, 0)
        end = engine.end
        ends.append(end)
        if machine.record:
            machine.next_token[index] = token
            machine.taken_time[index] = start
            if work.kind[index] == CONTROL:
                machine.segments[index].append((end - 1, end))
            machine.end_time[index] = machine.sent_time[index] = end
        if work.push_next[index]:
            out.send(end)
    machine.completed[LOAD] = engine.end


# -------------------------------------------------------------------------------- compute


def _compute(machine: Machine) -> Process:
    work, p = machine.work, machine.parameters
    instructions, taken = machine.dispatched[Unit.COMPUTE], machine.taken[Unit.COMPUTE]
    from_load, from_store = machine.l2g, machine.s2g
    to_load, to_store = machine.g2l, machine.g2s
    engine = _LoadEngine(machine, COMPUTE)
    intervals, depth = _intervals(p), machine.compute_depth
    take, moved = -1.0, -1.0  # of the instruction before: tokens taken; moved on to execution
    issued = -1.0  # end of its last issue
    loops_end, loops_range = 0.0, (0, 0)
    popped_load = popped_store = 0
    for number, index in enumerate(i for i, u in enumerate(work.unit) if u == Unit.COMPUTE):
        while len(instructions.times) <= number:
            yield instructions
        take = max(instructions.times[number], take + 1, moved)
        load_token = store_token = 0.0
        if work.pop_prev[index]:
            while len(from_load.times) <= popped_load:
                yield from_load
            load_token = from_load.times[popped_load]
            popped_load += 1
        if work.pop_next[index]:
            while len(from_store.times) <= popped_store:
                yield from_store
            store_token = from_store.times[popped_store]
            popped_store += 1
        take = max(take, load_token, store_token)
        taken.send(take)

        kind = work.kind[index]
        begin = max(take + p.compute_fill, issued)  # of the first issue
        if work.beats[index] or work.before[index] or work.zeros[index]:
            start = max(take + 1, engine.last_request)
            moved = max(begin, start + 1) - 1
            if kind != UOP:
                allowed = issued + depth
            elif work.first[index] < loops_range[1] and work.last[index] > loops_range[0]:
                allowed = loops_end
            else:
                allowed = 0.0
            yield from engine.move(index, start, allowed)
            issued = max(begin, engine.end) + 1
        else:
            moved = begin - 1
            steps = max(work.steps[index], 1)
            issued = begin + steps * intervals[kind + work.tensor[index]]
            issued += work.held[index] * p.mul_hold
            if machine.record:
                machine.segments[index].append((begin, issued))
        if work.steps[index]:
            loops_end, loops_range = issued, (work.first[index], work.last[index])
        else:
            loops_range = (0, 0)

        completed = issued + depth
        if machine.record:
            machine.prev_token[index] = load_token
            machine.next_token[index] = store_token
            machine.taken_time[index] = take
            machine.end_time[index] = issued
            machine.sent_time[index] = completed
        if work.push_prev[index]:
            to_load.send(completed)
        if work.push_next[index]:
            to_store.send(completed + machine.output_delay)
        if work.finish[index]:
            machine.finish = completed
    machine.completed[COMPUTE] = issued + depth


def _intervals(p: TimingParameters) -> list[int]:
    """Cycles of a micro-op by kind; the entry behind ALU is that with a tensor operand."""
    from vtaops.program.timing.work import ALU, KINDS

    intervals = [p.gemm_interval] * (len(KINDS) + 1)
    intervals[ALU], intervals[ALU + 1] = p.alu_interval, p.alu_tensor_interval
    intervals[CONTROL] = 1
    return intervals


# ---------------------------------------------------------------------------------- store


def _store(machine: Machine) -> Process:
    work, p = machine.work, machine.parameters
    instructions, taken = machine.dispatched[Unit.STORE], machine.taken[Unit.STORE]
    tokens, out = machine.g2s, machine.s2g
    limited = machine.limited
    start, popped = -1.0, 0
    sent = drained = complete = 0.0
    completions: deque[float] = deque(maxlen=p.stores_in_flight)
    for number, index in enumerate(i for i, u in enumerate(work.unit) if u == Unit.STORE):
        while len(instructions.times) <= number:
            yield instructions
        start = max(instructions.times[number], start + 1)
        token = 0.0
        if work.pop_prev[index]:
            while len(tokens.times) <= popped:
                yield tokens
            token = tokens.times[popped]
            popped += 1
        # The store before retires from a queue: it enters when it is sent and there is a place, and
        # this one needs a place too when it does not start in that very cycle.
        entered = drained
        if len(completions) == p.stores_in_flight:
            entered = max(entered, completions[0])
        start = max(start, token, entered)
        if start > entered and len(completions) >= p.stores_in_flight - 1:
            start = max(start, completions[1 - p.stores_in_flight])
        taken.send(start)
        beats = work.beats[index]
        done = 0
        while done < beats:
            ready = max(start + p.store_fill, sent)
            if limited and ready >= machine.horizon:
                yield ready
            size = min(p.chunk_beats, beats - done) if limited else beats
            begin, sent = machine.grant(STORE, 1, ready, size, index)
            done += size
            if machine.record:
                machine.segments[index].append((begin, sent))
        if beats:
            drained = sent - p.store_overlap - 1
            complete = sent - 1 + p.dram_latency + p.store_drain
        else:
            drained = start + 1
            complete = max(start + p.store_fill, complete)
            if machine.record:
                machine.segments[index].append((start, start + 1))
        if machine.record:
            machine.prev_token[index] = token
            machine.taken_time[index] = start
            machine.end_time[index] = sent if beats else start + 1
            machine.sent_time[index] = complete
        completions.append(complete)
        if work.push_prev[index]:
            out.send(complete)
    machine.completed[STORE] = complete
