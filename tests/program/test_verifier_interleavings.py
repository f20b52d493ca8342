"""The verifier beside an exhaustive search over all interleavings of the three units.

The search shares no code with it: tokens, races, completion.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from helpers.checks import broken_rule
from helpers.program_builder import (
    EXTENDED,
    ProgramBuilder,
    chained,
    double_buffered,
    edited,
    forwarding,
    small_gemm,
    strided,
    tensor_alu,
)

from vtaops.base.errors import VerificationError
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Gemm,
    Load,
    MemoryInstruction,
    Store,
    Unit,
)
from vtaops.program import NO_BUFFER, Role
from vtaops.program.builder import one_row
from vtaops.program.verifier import Rule
from vtaops.program.verifier.format import decode
from vtaops.program.verifier.tokens import happens_before

TOKENS = ("pop_prev", "pop_next", "push_prev", "push_next")


LOAD, COMPUTE, STORE = range(3)
UNIT_OF = {
    (0, 0): COMPUTE, (0, 1): LOAD, (0, 2): LOAD, (0, 3): COMPUTE, (0, 5): COMPUTE,
}  # fmt: skip


def unit_of(i):
    """Dispatch of reference 2.5, from the opcode and memory numbers."""
    if int(i.opcode) == 0:
        return UNIT_OF[0, i.memory]
    return STORE if int(i.opcode) == 1 else COMPUTE


def accesses(program):
    """For each instruction its sets of (memory, element) read and written, one by one."""
    sizes = {m: program.config.dram_element_bytes(Memory(m)) for m in range(6)}
    micro_ops = {}
    table = words_to_rows(program)
    result = []
    for i, where in zip(program.decode(), program.relocations.tolist(), strict=True):
        reads, writes = set(), set()
        if isinstance(i, MemoryInstruction) and i.x_size:
            dram = {
                place(program, where, (i.dram_base + r * i.x_stride + c) * sizes[i.memory] + byte)
                for r, c, byte in product(range(i.y_size), range(i.x_size), range(sizes[i.memory]))
            }
            if isinstance(i, Load) and i.forward:
                dram = {
                    ("acc", i.dram_base + r * i.x_stride + c)
                    for r, c in product(range(i.y_size), range(i.x_size))
                }
            rows = i.y_pad_top + i.y_size + i.y_pad_bottom
            row_size = i.x_pad_left + i.x_size + i.x_pad_right
            name = {1: "wgt", 2: "inp"}.get(i.memory, "acc")
            sram = {(name, i.sram_base + n) for n in range(rows * row_size)}
            if i.memory == Memory.UOP:
                for n in range(i.x_size):
                    micro_ops[i.sram_base + n] = table[i.dram_base + n]
            elif isinstance(i, Load):
                reads, writes = dram, sram
            else:
                reads, writes = sram, dram
        elif isinstance(i, Gemm | Alu):
            for o, n, u in product(
                range(i.iter_out), range(i.iter_in), range(i.uop_begin, i.uop_end)
            ):
                dst, src, wgt = micro_ops[u]
                d = ("acc", dst + o * i.dst_factor_out + n * i.dst_factor_in)
                s = src + o * i.src_factor_out + n * i.src_factor_in
                writes.add(d)
                if isinstance(i, Alu):
                    reads |= {d} if i.use_imm else {d, ("acc", s)}
                elif not i.reset:
                    w = wgt + o * i.wgt_factor_out + n * i.wgt_factor_in
                    reads |= {d, ("inp", s), ("wgt", w)}
        result.append((reads, writes))
    return result


def place(program, where, byte):
    """Which memory, and which byte of it, a byte of a buffer is."""
    offset = program.buffers[where].offset if where >= 0 else None
    return (f"buffer {where}", byte) if offset is None else ("arena", offset + byte)


def words_to_rows(program):
    a, i, w = (m.log_depth for m in (program.config.acc, program.config.inp, program.config.wgt))
    s = max(a, i)
    return [
        (word % (1 << a), (word >> a) % (1 << s), (word >> (a + s)) % (1 << w))
        for word in program.micro_ops.tolist()
    ]


WRITTEN = (Role.OUTPUT, Role.SCRATCH)


class Interleavings:
    """Every reachable state of three units that start and complete instructions in order."""

    def __init__(self, program):
        self.instructions = program.decode()
        self.streams = [
            [n for n, i in enumerate(self.instructions) if unit_of(i) == unit] for unit in range(3)
        ]
        self.earliest = {}  # instruction -> for each unit the fewest completed when it starts
        self.most_tokens = 0
        self.deadlock = False
        self.leftover = False
        self._explore()

    def _tokens(self, started, done):
        """Tokens in each queue (sender, receiver): sent by completed, taken by started ones."""
        counts = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 0)
        for unit, stream in enumerate(self.streams):
            for place, n in enumerate(stream[: started[unit]]):
                i = self.instructions[n]
                if place < done[unit]:
                    for flag, other in ((i.push_prev, unit - 1), (i.push_next, unit + 1)):
                        if flag:
                            counts[unit, other] += 1
                for flag, other in ((i.pop_prev, unit - 1), (i.pop_next, unit + 1)):
                    if flag:
                        counts[other, unit] -= 1
        return counts

    def _explore(self):
        initial = ((0, 0, 0), (0, 0, 0))
        seen, todo = {initial}, [initial]
        while todo:
            started, done = todo.pop()
            tokens = self._tokens(started, done)
            self.most_tokens = max(self.most_tokens, *tokens.values())
            following = []
            for unit in range(3):
                bump = tuple(int(u == unit) for u in range(3))
                if started[unit] > done[unit]:
                    following.append((started, tuple(map(sum, zip(done, bump, strict=True)))))
                elif started[unit] < len(self.streams[unit]):
                    n = self.streams[unit][started[unit]]
                    i = self.instructions[n]
                    waits = [(unit - 1, unit)] * i.pop_prev + [(unit + 1, unit)] * i.pop_next
                    if all(tokens[queue] > 0 for queue in waits):
                        before = self.earliest.get(n, done)
                        self.earliest[n] = tuple(map(min, zip(before, done, strict=True)))
                        following.append((tuple(map(sum, zip(started, bump, strict=True))), done))
            if not following:
                self.deadlock |= any(d < len(s) for d, s in zip(done, self.streams, strict=True))
                self.leftover |= any(tokens.values())
            for state in following:
                if state not in seen:
                    seen.add(state)
                    todo.append(state)

    def always_before(self, first, second):
        """Whether `first` is complete in every state in which `second` starts."""
        unit = unit_of(self.instructions[first])
        return self.streams[unit].index(first) < self.earliest[second][unit]

    def stuck_in_program_order(self):
        """Whether a device that runs one instruction at a time waits for a token for ever."""
        tokens = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 0)
        for i in self.instructions:
            unit = unit_of(i)
            for flag, other in ((i.pop_prev, unit - 1), (i.pop_next, unit + 1)):
                if flag:
                    tokens[other, unit] -= 1
            if min(tokens.values()) < 0:
                return True
            for flag, other in ((i.push_prev, unit - 1), (i.push_next, unit + 1)):
                if flag:
                    tokens[unit, other] += 1
        return False


def faults(program):
    """Return the rules that the search over all interleavings sees broken."""
    search = Interleavings(program)
    if search.stuck_in_program_order():
        return {Rule.TOKEN_ORDER}
    assert not search.deadlock  # the theorem's second point
    found = set()
    if search.leftover:
        found.add(Rule.TOKEN_BALANCE)
    touched = accesses(program)
    units = [unit_of(i) for i in search.instructions]
    last = len(units) - 1
    for k in range(len(units)):
        for i in range(k):
            if units[i] == units[k] or search.always_before(i, k):
                continue
            (reads_i, writes_i), (reads_k, writes_k) = touched[i], touched[k]
            if writes_i & (reads_k | writes_k) or reads_i & writes_k:
                found.add(Rule.RACE)
            if k == last:
                found.add(Rule.COMPLETION)
    owner = {}  # byte of DRAM -> the buffer through which it was stored last
    own = {place(program, n, 0)[0] for n, b in enumerate(program.buffers) if b.role in WRITTEN}
    for (reads, writes), where in zip(touched, program.relocations.tolist(), strict=True):
        if any(owner.get(byte) != where for byte in reads if byte[0] in own):
            found.add(Rule.UNDEFINED_DRAM)
        owner |= {byte: where for byte in writes if byte[0] in own}
    return found


def agree(program):
    """Compare verifier and search; return the verifier's verdict."""
    verdict = broken_rule(program)
    expected = faults(program)
    if verdict is None:
        assert not expected, program.disassemble()
    else:
        assert verdict in expected, program.disassemble()
    return verdict


def tokens_of(program):
    """All (queue, sender index, receiver index) of a balanced program, in order of sending."""
    pairs = []
    for sender, receiver in ((LOAD, COMPUTE), (COMPUTE, LOAD), (COMPUTE, STORE), (STORE, COMPUTE)):
        push = "push_next" if receiver > sender else "push_prev"
        pop = "pop_prev" if receiver > sender else "pop_next"
        instructions = [*enumerate(program.decode())]
        pushes = [n for n, i in instructions if unit_of(i) == sender and getattr(i, push)]
        pops = [n for n, i in instructions if unit_of(i) == receiver and getattr(i, pop)]
        pairs += [(push, pop, a, b) for a, b in zip(pushes, pops, strict=True)]
    return pairs


SMALL = {
    "small_gemm": small_gemm(tiles=2),
    "tensor_alu": tensor_alu(tiles=2),
    "double_buffered": double_buffered(rounds=3),
    "chained": chained(tiles=2),
    "strided": strided(),
    "forwarding": forwarding(),
}
each_program = pytest.mark.parametrize("program", SMALL.values(), ids=SMALL)


@each_program
def test_hand_made_programs_are_safe_under_every_interleaving(program):
    assert agree(program) is None


@each_program
def test_every_token_is_needed(program):
    """Without one token (its push and its pop) the program is unsafe; both sides see it."""
    pairs = tokens_of(program)
    assert pairs
    for push, pop, sender, receiver in pairs:
        without = edited(edited(program, sender, **{push: 0}), receiver, **{pop: 0})
        assert agree(without) in {Rule.RACE, Rule.COMPLETION}


@each_program
def test_every_single_flag_flipped_is_rejected(program):
    for index, instruction in enumerate(program.decode()):
        for flag in TOKENS:
            changed = edited(program, index, **{flag: 1 - getattr(instruction, flag)})
            verdict = broken_rule(changed)
            unit = unit_of(instruction)
            if (unit == LOAD and flag.endswith("prev")) or (
                unit == STORE and flag.endswith("next")
            ):
                assert verdict is Rule.NEIGHBOUR
            else:
                assert verdict in {Rule.TOKEN_ORDER, Rule.TOKEN_BALANCE, Rule.RACE}


@each_program
def test_every_added_token_is_judged_rightly(program):
    """A further token can be harmless, or can feed a pop that waited for a later push."""
    instructions = program.decode()
    for (a, sender), (b, receiver) in product(enumerate(instructions), repeat=2):
        if abs(unit_of(sender) - unit_of(receiver)) != 1:
            continue
        forward = unit_of(receiver) > unit_of(sender)
        push, pop = ("push_next", "pop_prev") if forward else ("push_prev", "pop_next")
        if not getattr(sender, push) and not getattr(receiver, pop):
            agree(edited(edited(program, a, **{push: 1}), b, **{pop: 1}))


def random_program(rng):
    """Random instructions on two slots of every memory, with random tokens, framed by barriers."""
    b = ProgramBuilder(EXTENDED)
    inp = b.tiles("inp", Role.INPUT, 2, Memory.INP)
    wgt = b.tiles("wgt", Role.PARAMETER, 1, Memory.WGT)
    scratch = b.tiles("scratch", Role.SCRATCH, 2)
    out = b.tiles("out", Role.OUTPUT, 2)
    slots = [scratch]
    if rng.integers(2):  # a second buffer lies over the end of the first
        slots.append(b.tiles("other", Role.SCRATCH, 2))
        for slot, offset in zip(slots, (0, 8), strict=True):
            b.buffers[slot] = replace(b.buffers[slot], offset=offset)
    b.load_micro_ops(b.micro_ops((0, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0)), 4)
    b.load(Memory.WGT, wgt, 0, 0, 1)
    b.load(Memory.INP, inp, 0, 0, 2, push_next=1)
    b.reset(0, 2)
    b.gemm(0, 2, pop_prev=1, push_next=1)
    b.store(scratch, 0, 0, 2, pop_prev=1)
    b.store(out, 0, 0, 2, push_prev=1)
    b.nop(Memory.UOP, pop_next=1, push_prev=1, push_next=1)
    b.nop(Memory.INP, pop_next=1)
    b.nop(Memory.OUT, pop_prev=1)

    def one(kind):
        slot, other, uop = (int(rng.integers(n)) for n in (2, 2, 4))
        if kind == "load":
            return one_row(Load, Memory.INP, slot, other, 1), inp
        if kind == "reload":
            return one_row(Load, Memory.INP, slot, other, 1), int(rng.choice(slots))
        if kind == "forward":
            return replace(one_row(Load, Memory.INP, slot, other, 1), forward=1), NO_BUFFER
        if kind == "gemm":
            return Gemm(uop_begin=uop, uop_end=uop + 1, iter_out=1, iter_in=1), NO_BUFFER
        if kind == "alu":
            use_imm = int(rng.integers(2))
            return Alu(uop_begin=uop, uop_end=uop + 1, iter_out=1, iter_in=1, alu_op=AluOp.ADD,
                       use_imm=use_imm), NO_BUFFER  # fmt: skip
        target = int(rng.choice(slots)) if kind == "spill" else out
        return one_row(Store, Memory.OUT, slot, other, 1), target

    kinds = ["load", "reload", "forward", "gemm", "alu", "spill", "store"]
    body = [one(k) for k in rng.choice(kinds, 6)]
    for _ in range(rng.integers(2, 9)):
        p, q = sorted(rng.choice(len(body), 2, replace=False).tolist())
        (a, where_a), (c, where_c) = body[p], body[q]
        if abs(unit_of(a) - unit_of(c)) == 1:
            forward = unit_of(c) > unit_of(a)
            body[p] = (replace(a, **{"push_next" if forward else "push_prev": 1}), where_a)
            body[q] = (replace(c, **{"pop_prev" if forward else "pop_next": 1}), where_c)
    for instruction, where in body:
        b.add(instruction, where)
    b.nop(Memory.INP, push_next=1)
    b.nop(Memory.OUT, push_prev=1)
    b.nop(Memory.UOP, pop_prev=1, pop_next=1)
    b.finish()
    return b.build()


def test_random_programs_are_judged_as_by_the_search():
    """Sound and complete on small programs; the counts show that neither verdict is rare."""
    rng = np.random.default_rng(2024)
    verdicts = [agree(random_program(rng)) for _ in range(600)]
    assert verdicts.count(None) >= 40
    assert verdicts.count(Rule.RACE) >= 60
    assert verdicts.count(Rule.TOKEN_BALANCE) + verdicts.count(Rule.TOKEN_ORDER) >= 20
    assert verdicts.count(Rule.UNDEFINED_DRAM) >= 10


@pytest.mark.parametrize("seed", range(4))
def test_the_capacity_bound_is_what_some_interleaving_reaches(seed):
    rng = np.random.default_rng(seed)
    checked = 0
    while checked < 5:
        program = random_program(rng)
        if broken_rule(program) is None:
            most = Interleavings(program).most_tokens
            happens_before(decode(program), most)
            with pytest.raises(VerificationError, match="breaks the rule 'token-capacity'"):
                happens_before(decode(program), most - 1)
            checked += 1


def test_units_of_the_oracle_are_those_of_the_isa():
    for program in SMALL.values():
        assert [unit_of(i) for i in program.decode()] == [i.unit for i in program.decode()]
    assert [*map(int, Unit)] == [LOAD, COMPUTE, STORE]
