"""A naive timing model for the tests: every unit is looked at in every cycle.

Describes the same machine as `vtaops.program.timing` and shares no code with it: instructions are
decoded one by one, data move one port word a cycle. Only for a port with a beat per cycle in each
direction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vtaops import Program
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, Finish, Gemm, Load, MemoryInstruction, Unit

FETCH, LOAD, COMPUTE = range(3)


def bursts_of(instruction, config, port: int, burst: int) -> list[tuple[int, bool]]:
    """List the bursts: the words of each aligned block in a row, and whether they end the row."""
    if not isinstance(instruction, MemoryInstruction) or not instruction.x_size:
        return []
    size = config.dram_element_bytes(instruction.memory)
    found = []
    for row in range(instruction.y_size):
        begin = (instruction.dram_base + row * instruction.x_stride) * size
        row_bytes = range(begin, begin + instruction.x_size * size)
        blocks = [k // (burst // port) for k in sorted({byte // port for byte in row_bytes})]
        found += [(blocks.count(b), b == blocks[-1]) for b in sorted(set(blocks))]
    return found


class Port:
    """The read direction: takes one request a cycle in turn, and serves one word a cycle."""

    def __init__(self, p):
        self.p = p
        self.offered = {}  # by client: beats, cycles of its words
        self.accepted = []  # ready, beats, cycles of its words
        self.first = FETCH

    def busy(self, client):
        return client in self.offered

    def request(self, client, beats):
        words = []
        self.offered[client] = beats, words
        return words

    def accept(self, t):
        in_flight = sum(len(words) < beats or words[-1] >= t for _, beats, words in self.accepted)
        if not self.offered or in_flight >= self.p.outstanding:
            return
        client = min(self.offered, key=lambda client: (client - self.first) % 3)
        self.first = client + 1
        ready = t + self.p.request_latency + self.p.dram_latency
        self.accepted.append((ready, *self.offered.pop(client)))

    def tick(self, t):
        for ready, beats, words in self.accepted:
            if len(words) < beats:
                if ready <= t:
                    words.append(t)
                return


@dataclass
class Job:
    """A load in its engine: pieces of (cycles, whether they write words) to write."""

    start: int
    bursts: list  # their beats
    allowed: object
    pieces: list
    words: list = field(default_factory=list)  # of each burst
    requested: int = 0
    written: int = 0
    end: int | None = None


class Engine:
    def __init__(self, p, port, client):
        self.p, self.port, self.client = p, port, client
        self.jobs, self.freed = [], []  # freed: (cycle, beats)
        self.in_flight = 0
        self.left = 0
        self.of_words = False

    def start(self, t, bursts, top, between, zeros, allowed, nop=False):
        pieces = [(top, False)]
        for beats, ends_row in bursts:
            pads = between if ends_row else 0
            pieces += [(beats, True), (pads, False)]
            zeros -= pads
        pieces[-1] = (pieces[-1][0] + zeros + nop, False)
        job = Job(t, [beats for beats, _ in bursts], allowed, [x for x in pieces if x[0]])
        self.jobs.append(job)
        return job

    def all_requested(self, t):
        """Whether the last request is made, in this cycle at the latest."""
        return all(j.requested == len(j.bursts) for j in self.jobs)

    def unfinished(self, t):
        return sum(job.end is None or job.end > t for job in self.jobs)

    def tick(self, t):
        self.tick_requests(t)
        self.tick_writes(t)

    def tick_requests(self, t):
        self.in_flight -= sum(beats for cycle, beats in self.freed if cycle == t)
        for job in self.jobs:
            if job.requested == len(job.bursts):
                continue
            size = job.bursts[job.requested]
            if (
                t > job.start
                and not self.port.busy(self.client)
                and self.in_flight + size <= self.p.load_window
            ):
                job.words.append(self.port.request(self.client, size))
                job.requested += 1
                self.in_flight += size
            return

    def tick_writes(self, t):
        job = next((j for j in self.jobs if j.end is None), None)
        if job is None:
            return
        if not self.left:
            if t < job.start + self.p.load_fill:
                return
            self.left, self.of_words = job.pieces[0]
        if self.of_words:
            burst = len(job.bursts) - sum(of_words for _, of_words in job.pieces)
            word = job.bursts[burst] - self.left
            if burst >= job.requested or len(job.words[burst]) <= word:
                return
            if job.words[burst][word] + self.p.buffer_latency > t:
                return
        if not job.allowed(t, job.written):
            return
        self.left -= 1
        job.written += 1
        if self.of_words:
            self.freed.append((t + 1, 1))
        if not self.left:
            job.pieces.pop(0)
            if not job.pieces:
                job.end = t + 1


class Machine:
    def __init__(self, program: Program, p):
        self.p = p
        self.code = program.decode()
        config = program.config
        self.depth = p.compute_depth
        if p.compute_depth is None:  # the tree adds four numbers a stage
            self.depth = 6 + max(1, len(range(0, config.block_in.bit_length() - 1, 2)))
        self.port_bytes = p.port_bytes or config.port_width
        block = self.port_bytes * p.burst_beats
        self.bursts_of = [bursts_of(i, config, self.port_bytes, block) for i in self.code]
        self.port = Port(p)
        self.mine = {u: [n for n, i in enumerate(self.code) if i.unit == u] for u in Unit}
        self.dispatched, self.taken = {}, {}
        self.started = dict.fromkeys(Unit, 0)
        self.tokens = {name: [] for name in ("l2g", "g2l", "g2s", "s2g")}
        self.popped = dict.fromkeys(self.tokens, 0)
        # fetch
        self.bursts = []
        self.last_dispatch = None
        # load, store
        self.load_engine = Engine(p, self.port, LOAD)
        self.acc_engine = Engine(p, self.port, COMPUTE)
        self.load_jobs, self.stores = [], []
        # compute
        self.next = self.current = self.before = None
        self.finished = None

    # ------------------------------------------------------------------ helpers

    def head(self, unit, t):
        """The next instruction of a unit, if it is at the head of its queue."""
        done = self.started[unit]
        if done == len(self.mine[unit]):
            return None
        n = self.mine[unit][done]
        arrived = n in self.dispatched and self.dispatched[n] + self.p.dispatch_latency <= t
        previous = self.mine[unit][done - 1] if done else None
        return n if arrived and (previous is None or self.taken[previous] < t) else None

    def take(self, n, t):
        self.taken[n] = t
        self.started[self.code[n].unit] += 1

    def available(self, queue, wanted, t):
        if not wanted:
            return True
        times, popped = self.tokens[queue], self.popped[queue]
        return popped < len(times) and times[popped] <= t

    # -------------------------------------------------------------------- units

    def fetch(self, t):
        per_burst = self.p.burst_beats * self.port_bytes // 16
        k = len(self.bursts)
        count = min(per_burst, len(self.code) - k * per_burst)
        beats = -(-count * 16 // self.port_bytes)
        taken = sum(when < t for when in self.dispatched.values()) * 16 // self.port_bytes
        capacity = self.p.fetch_bursts * self.p.burst_beats
        room = k * self.p.burst_beats + beats - taken <= capacity
        if count > 0 and room and not self.port.busy(FETCH):
            self.bursts.append(self.port.request(FETCH, beats))
        n = len(self.dispatched)
        if n == len(self.code) or n // per_burst >= len(self.bursts):
            return
        words = self.bursts[n // per_burst]
        needed = ((n % per_burst + 1) * 16 - 1) // self.port_bytes
        interval = max(1, 16 // self.port_bytes)
        unit = self.code[n].unit
        if len(words) <= needed or words[needed] + self.p.buffer_latency > t:
            return
        if self.last_dispatch is not None and t < self.last_dispatch + interval:
            return
        position = self.mine[unit].index(n)
        if position >= self.p.command_depth:
            freed = self.taken.get(self.mine[unit][position - self.p.command_depth])
            if freed is None or freed >= t:
                return
        self.dispatched[n] = self.last_dispatch = t

    def load(self, t):
        n = self.head(Unit.LOAD, t)
        if (
            n is None
            or not self.available("g2l", self.code[n].pop_next, t)
            or not self.load_engine.all_requested(t)
            or self.load_engine.unfinished(t) >= self.p.loads_in_flight
        ):
            return
        i = self.code[n]
        self.take(n, t)
        self.popped["g2l"] += i.pop_next
        nop = i.sram_size == 0
        self.load_jobs.append(
            (
                self.load_engine.start(t, self.bursts_of[n], *zeros(i), lambda *_: True, nop),
                i,
            )
        )

    def load_tokens(self):
        while self.load_jobs and self.load_jobs[0][0].end is not None:
            job, i = self.load_jobs.pop(0)
            if i.push_next:
                self.tokens["l2g"].append(job.end)

    def compute(self, t):
        # the current instruction, if it is a load whose data are there, issues its one step
        c = self.current
        if (
            c
            and c["issued"] is None
            and t >= c["begin"]
            and c["job"].end is not None
            and c["job"].end <= t
        ):
            self.issue(c, t + 1)
        # a load in `next` starts its engine
        x = self.next
        if (
            x
            and x["load"]
            and x["job"] is None
            and t > x["take"]
            and self.acc_engine.all_requested(t)
        ):
            n = x["n"]
            x["job"] = self.acc_engine.start(
                t, self.bursts_of[n], *zeros(x["i"]), self.allowed(x, c)
            )
        # next -> current
        free = c is None or (c["issued"] is not None and t >= c["issued"] - 1)
        ready = x and t >= x["take"] + self.p.compute_fill - 1 and (not x["load"] or x["job"])
        if x and free and ready:
            x["begin"] = t + 1
            x["before"] = c["issued"] if c else None
            self.current, self.next = x, None
            if not x["load"]:
                self.issue(x, t + 1 + steps(x["i"], self.p))
        # queue -> next
        n = self.head(Unit.COMPUTE, t)
        if n is None or self.next is not None:
            return
        i = self.code[n]
        if self.available("l2g", i.pop_prev, t) and self.available("s2g", i.pop_next, t):
            self.take(n, t)
            self.popped["l2g"] += i.pop_prev
            self.popped["s2g"] += i.pop_next
            load = isinstance(i, Load) and i.sram_size > 0
            self.next = {"n": n, "i": i, "take": t, "load": load, "job": None, "issued": None}

    def allowed(self, x, before):
        """When the engine may write: ACC with an empty pipeline, UOP words that no loop reads."""
        i = x["i"]
        if i.memory != Memory.UOP:
            depth = self.depth

            def in_pipeline(issued, t):
                return issued is not None and issued <= t < issued + depth

            if before and before["load"]:  # it enters the pipeline when it has written
                return lambda t, _: (
                    not (in_pipeline(before["before"], t) or in_pipeline(before["issued"], t))
                )
            return lambda t, _: (
                before is None or (before["issued"] is not None and t >= before["issued"] + depth)
            )
        if before and isinstance(before["i"], Gemm | Alu) and before["i"].iterations:
            b = before["i"]
            slots = self.port_bytes // 4
            firsts = first_elements(i, slots)

            def in_use(word):
                return firsts[word] < b.uop_end and firsts[word] + slots > b.uop_begin

            return lambda t, written: t >= before["issued"] or not in_use(written)
        return lambda *_: True

    def issue(self, x, issued):
        x["issued"] = issued
        completed = issued + self.depth
        if x["i"].push_prev:
            self.tokens["g2l"].append(completed)
        if x["i"].push_next:
            self.tokens["g2s"].append(completed)
        if isinstance(x["i"], Finish):
            self.finished = completed

    def store(self, t):
        n = self.head(Unit.STORE, t)
        previous = self.stores[-1] if self.stores else None
        # Stores that are sent wait in a queue for their acknowledgements.
        waiting = sum(s["entered"] and s["complete"] > t for s in self.stores)
        room = waiting <= self.p.stores_in_flight - 2
        drained = previous is None or t > previous["start"] + previous["beats"]
        if previous and drained and room:
            previous["entered"] = True
        if (
            n is None
            or not self.available("g2s", self.code[n].pop_prev, t)
            or not drained
            or not room
        ):
            return
        i, beats = self.code[n], sum(beats for beats, _ in self.bursts_of[n])
        self.take(n, t)
        self.popped["g2s"] += i.pop_prev
        channel_free = max((s["sent"] for s in self.stores if s["sent"] is not None), default=0)
        entry = {"start": t, "beats": beats, "sent": None, "entered": False}
        if beats:
            entry["sent"] = max(t + self.p.store_fill, channel_free) + beats
            entry["complete"] = entry["sent"] - 1 + self.p.dram_latency + self.p.store_drain
        else:
            entry["complete"] = max(t + self.p.store_fill, previous["complete"] if previous else 0)
        self.stores.append(entry)
        if i.push_prev:
            self.tokens["s2g"].append(entry["complete"])

    def run(self, limit=200_000) -> int:
        for t in range(limit):
            self.port.tick(t)
            self.fetch(t)
            self.load_engine.tick(t)
            self.acc_engine.tick(t)
            self.port.accept(t)
            self.load_tokens()
            self.load(t)
            self.compute(t)
            self.store(t)
            if self.finished is not None:
                return self.finished
        raise AssertionError("no FINISH")


def zeros(i) -> tuple[int, int, int]:
    """Elements of zeros: before the first element of data, between two rows, all but the first."""
    if not i.x_size:
        return 0, 0, 0
    kinds = [
        "0" if not i.y_pad_top <= row < i.y_pad_top + i.y_size
        or not i.x_pad_left <= column < i.x_pad_left + (i.x_size << i.nibbles) else "d"
        for row in range(i.y_pad_top + i.y_size + i.y_pad_bottom)
        for column in range(i.sram_row)
    ]  # fmt: skip
    first = kinds.index("d") if "d" in kinds else i.y_pad_top * i.sram_row
    return first, i.x_pad_left + i.x_pad_right, kinds.count("0") - first


def first_elements(i, slots: int) -> list[int]:
    """Where each port word of a LOAD UOP begins in the scratchpad."""
    return [
        i.sram_base + element
        for element in range(i.x_size)
        if element == 0 or (i.dram_base + element) % slots == 0
    ]


def steps(i, p) -> int:
    if not isinstance(i, Gemm | Alu) or not i.iterations:
        return 1
    if isinstance(i, Gemm):
        return i.iterations * p.gemm_interval
    return i.iterations * (p.alu_interval if i.use_imm else p.alu_tensor_interval)


def reference_cycles(program: Program, parameters) -> int:
    """Cycles of a program that ends with FINISH."""
    return Machine(program, parameters).run()
