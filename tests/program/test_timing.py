"""The timing model: against a naive model stepped by cycles, against bounds, and its accounting."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS, PYNQ, TINY, ProgramBuilder, edited
from helpers.timing_reference import reference_cycles
from hypothesis import given, settings
from hypothesis import strategies as st

import vtaops
from vtaops import Conv2d, Tiling
from vtaops.base.errors import ConfigError, DeadlockError, ProgramError
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, Finish, Gemm, Load, Store, Unit
from vtaops.program import NO_BUFFER
from vtaops.program.timing import IDLE, WAITS, Sdram, TimingParameters, simulate

TUTORIAL = Conv2d(in_channels=64, out_channels=64, height=14, width=14, kernel=3, padding=1)
ONE_THREAD = Tiling(oc=32, ic=16, h=7, w=14)
TWO_THREADS = replace(ONE_THREAD, oc_threads=2)

# ------------------------------------------------------------------------- random programs


@st.composite
def instructions(draw):
    """One instruction without tokens; addresses do not matter to the timing of wide elements."""
    kind = draw(st.sampled_from(["inp", "wgt", "uop", "acc", "gemm", "alu", "store", "nop"]))
    if kind in ("gemm", "alu"):
        loops = {
            "uop_begin": draw(st.integers(0, 4)),
            "iter_out": draw(st.integers(0, 4)),
            "iter_in": draw(st.integers(1, 9)),
        }
        loops["uop_end"] = loops["uop_begin"] + draw(st.integers(0, 4))
        if kind == "gemm":
            return Gemm(reset=draw(st.integers(0, 1)), **loops)
        return Alu(use_imm=draw(st.integers(0, 1)), **loops)
    if kind == "nop":
        memory = draw(st.sampled_from([Memory.INP, Memory.UOP, Memory.OUT]))
        return (Store if memory == Memory.OUT else Load)(memory=memory)
    memory = {"inp": Memory.INP, "wgt": Memory.WGT, "uop": Memory.UOP, "store": Memory.OUT}
    memory = memory.get(kind) or draw(st.sampled_from([Memory.ACC, Memory.ACC_8BIT]))
    block = {
        "memory": memory,
        "sram_base": draw(st.integers(0, 6)),
        "dram_base": draw(st.integers(0, 5)),
        "y_size": 1 if kind == "uop" else draw(st.integers(0, 3)),
        "x_size": draw(st.integers(1, 12)),
    }
    block["x_stride"] = block["x_size"] + draw(st.integers(0, 2))
    if kind == "store":
        return Store(**block)
    if kind != "uop" and draw(st.booleans()):
        pads = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
        padded = Load(**block, **{pad: draw(st.integers(0, 2)) for pad in pads})
        if padded.sram_size <= min(TINY.scratchpad(m).depth for m in Memory):
            return padded
    return Load(**block)


NEIGHBOURS = {  # unit: its token queues as (flag of the pop, sender), (flag of the push, receiver)
    Unit.LOAD: ([("pop_next", "g2l")], [("push_next", "l2g")]),
    Unit.COMPUTE: (
        [("pop_prev", "l2g"), ("pop_next", "s2g")],
        [("push_prev", "g2l"), ("push_next", "g2s")],
    ),
    Unit.STORE: ([("pop_prev", "g2s")], [("push_prev", "s2g")]),
}


@st.composite
def programs(draw):
    """Programs that end: each token is pushed before it is popped in program order."""
    b = ProgramBuilder(draw(st.sampled_from([TINY, PYNQ])))
    balance = dict.fromkeys(("l2g", "g2l", "g2s", "s2g"), 0)
    for instruction in draw(st.lists(instructions(), max_size=25)):
        pops, pushes = NEIGHBOURS[instruction.unit]
        flags = {}
        for flag, queue in pops:
            if balance[queue] and draw(st.booleans()):
                balance[queue] -= 1
                flags[flag] = 1
        for flag, queue in pushes:
            if draw(st.booleans()):
                balance[queue] += 1
                flags[flag] = 1
        b.add(replace(instruction, **flags), NO_BUFFER)
    b.finish()
    return b.build()


machines = st.builds(
    TimingParameters,
    port_bytes=st.sampled_from([8, 16, 32]),
    dram_latency=st.integers(0, 60),
    load_window=st.sampled_from([32, 64, 256]),
    outstanding=st.sampled_from([1, 2, 4, 32]),
    burst_beats=st.sampled_from([4, 16]),
    command_depth=st.sampled_from([3, 4, 8, 514]),
    compute_depth=st.integers(1, 6),
    alu_interval=st.integers(1, 2),
    loads_in_flight=st.integers(1, 6),
    stores_in_flight=st.integers(2, 6),
)

CHIP = Sdram(cas_latency=3, precharge=2, activate=2, refresh=5, refresh_interval=500)
memories = st.sampled_from(
    [
        *({"bandwidth": limit} for limit in (None, 3.0, 8.0, 20.0)),
        {"sdram": replace(CHIP, return_latency=0)},
        {"sdram": replace(CHIP, return_latency=0, most_bursts=1, refresh_interval=100)},
    ]
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(programs(), machines)
def test_equals_the_cycle_stepped_model(program, parameters):
    assert program.cycles(parameters) == reference_cycles(program, parameters)


def test_weights_of_four_bits_equal_the_cycle_stepped_model():
    rng = np.random.default_rng(0)
    pads = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
    for port in (8, 16, 32) * 4:
        builder = ProgramBuilder(replace(TINY, extensions=("nibbles",)))
        for row in rng.integers(0, 3, (20, 8)).tolist():
            sides = dict(zip(pads, row, strict=False))
            size = {"y_size": row[4], "x_size": 1 + row[5], "x_stride": 4 + row[6]}
            load = Load(memory=Memory.WGT, nibbles=row[7] % 2, **size, **sides)
            builder.add(load, NO_BUFFER)
        builder.finish()
        program, parameters = builder.build(), TimingParameters(port_bytes=port)
        assert program.cycles(parameters) == reference_cycles(program, parameters)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda c: c.name)
def test_hand_written_programs_equal_the_cycle_stepped_model(name, config):
    program = PROGRAMS[name](config)
    parameters = TimingParameters()
    assert program.cycles() == reference_cycles(program, parameters)


# ------------------------------------------------------------------------------ accounting


def check_accounting(program, parameters):
    timeline = simulate(program, parameters)
    assert timeline.cycles == simulate(program, parameters, events=False).cycles
    for name, segments in timeline.segments.items():
        clock = 0
        for segment in segments:  # a partition of the time
            assert segment.start == clock
            assert segment.end > clock
            clock = segment.end
        assert clock == timeline.cycles
        unit = timeline.units[name]
        assert unit.total == timeline.cycles
        assert set(unit.waiting) <= set(WAITS)
        assert unit.work == sum(s.cycles for s in segments if s.busy)
        assert unit.idle == sum(s.cycles for s in segments if s.kind == IDLE)
    return timeline


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(), machines, memories)
def test_cycles_of_each_unit_add_up(program, parameters, memory):
    check_accounting(program, replace(parameters, **memory))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(), machines, memories)
def test_events_are_ordered_and_tokens_precede_their_receivers(program, parameters, memory):
    timeline = simulate(program, replace(parameters, **memory))
    for event in timeline.events:
        assert 0 <= event.dispatched <= event.taken <= event.start < event.end
        assert event.end <= event.completed
    for unit in ("load", "compute", "store"):
        mine = [event for event in timeline.events if event.unit == unit]
        assert all(a.completed <= b.completed for a, b in pairwise(mine))
    for token in timeline.tokens:
        assert token.sent <= token.taken
        sender, receiver = timeline.events[token.sender], timeline.events[token.receiver]
        assert token.queue == f"{sender.unit}>{receiver.unit}"
        assert token.sent == sender.completed


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(), machines, memories)
def test_never_faster_than_any_bound(program, parameters, memory):
    timeline = simulate(program, replace(parameters, **memory))
    work = 0
    for instruction in program:
        if isinstance(instruction, Gemm):
            work += instruction.iterations
        elif isinstance(instruction, Alu):
            two = parameters.alu_tensor_interval
            interval = parameters.alu_interval if instruction.use_imm else two
            work += instruction.iterations * interval
    finish = [
        event for event in timeline.events if isinstance(program.decode()[event.index], Finish)
    ]
    assert 0 <= timeline.cycles - finish[-1].completed <= 1  # a bandwidth may divide cycles
    assert timeline.cycles >= work
    # What FINISH does not wait for may still be running; all else is bounded by the port.
    before = timeline.events[-1].completed
    last = max(before, *(event.completed for event in timeline.events))
    reads, writes = timeline.port.read_beats, timeline.port.write_beats
    assert last >= max(reads, writes)
    sdram = memory.get("sdram")
    bandwidth = sdram.word_bytes if sdram else memory["bandwidth"]
    if bandwidth is not None:
        saved = 0 if sdram else parameters.saved_beats  # an idle DRAM saves up
        assert last >= (reads + writes - saved) * timeline.port.width / bandwidth - 1


def test_work_is_what_the_instructions_say():
    program = vtaops.compile(TUTORIAL, "pynq", TWO_THREADS)
    timeline = check_accounting(program, None)
    stats, compute = program.stats(), timeline.units["compute"].busy
    assert compute["gemm"] == stats.gemm_counter
    assert compute["alu"] == stats.alu_counter
    assert compute["reset"] == 64 // 16 * 14 * 14
    assert timeline.units["store"].busy["store"] * 8 == stats.out_store_nbytes
    assert timeline.port.write_beats * 8 == stats.out_store_nbytes
    assert timeline.port.beats["load"] * 8 == stats.inp_load_nbytes + stats.wgt_load_nbytes
    assert timeline.port.beats["fetch"] * 8 == len(program) * 16
    assert timeline.gemm_utilization == stats.gemm_counter / timeline.cycles


def test_weights_over_a_port_of_their_own_take_nothing_from_the_other_one():
    program = vtaops.compile(TUTORIAL, "pynq", TWO_THREADS)
    two_ports = replace(program, config=replace(program.config, weight_port=1))
    one, two = program.timeline(), check_accounting(two_ports, None)
    stats = program.stats()
    assert two.cycles < one.cycles
    assert two.port.beats["weights"] * 8 == stats.wgt_load_nbytes
    assert two.port.beats["load"] * 8 == stats.inp_load_nbytes
    assert one.port.beats["weights"] == 0
    assert one.port.read_beats == two.port.main_read_beats + two.port.beats["weights"]
    assert {grant.kind for grant in two.grants} == {"read", "write", "weights"}
    with pytest.raises(ConfigError, match="WEIGHT_PORT 1; the SDRAM has one port"):
        two_ports.cycles(TimingParameters(sdram=Sdram(2, 2, 2, 8, 700)))


def test_two_virtual_threads_hide_the_loads():
    one = vtaops.compile(TUTORIAL, "pynq", ONE_THREAD).timeline()
    two = vtaops.compile(TUTORIAL, "pynq", TWO_THREADS).timeline()
    assert two.cycles < 0.8 * one.cycles
    hidden = two.units["compute"].waiting["load token"]
    assert hidden < 0.2 * one.units["compute"].waiting["load token"]


# ------------------------------------------------------------------------------ parameters


@pytest.mark.parametrize("tiling", [ONE_THREAD, TWO_THREADS], ids=["one thread", "two threads"])
def test_more_bandwidth_or_less_latency_is_never_slower(tiling):
    program = vtaops.compile(TUTORIAL, "pynq", tiling)
    by_bandwidth = [
        program.cycles(TimingParameters(bandwidth=b)) for b in (1, 2, 3, 4, 6, 8, 12, 16, None)
    ]
    by_port = [program.cycles(TimingParameters(port_bytes=b)) for b in (8, 16, 32, 64)]
    by_latency = [program.cycles(TimingParameters(dram_latency=n)) for n in (400, 200, 100, 32, 4)]
    for cycles in (by_bandwidth, by_port, by_latency):
        assert cycles == sorted(cycles, reverse=True)
        assert cycles[0] > cycles[-1]


@pytest.mark.parametrize(("elements", "waits"), [(1, False), (8, True)], ids=["short", "long"])
def test_loads_at_the_full_bandwidth_leave_a_short_store_what_was_saved(elements, waits):
    b = ProgramBuilder(PYNQ)
    b.add(Load(memory=Memory.INP, y_size=1, x_size=1, push_next=1), NO_BUFFER)
    b.add(Load(memory=Memory.INP, y_size=1, x_size=100), NO_BUFFER)
    b.nop(Memory.UOP, pop_prev=1, push_next=1)
    block = {"memory": Memory.OUT, "y_size": 1, "x_size": elements}
    b.add(Store(pop_prev=1, push_prev=1, **block), NO_BUFFER)
    b.finish(pop_next=1)
    program = b.build()
    unlimited = program.cycles(TimingParameters(port_bytes=8))
    limited = program.cycles(TimingParameters(port_bytes=8, bandwidth=8.0))
    assert (limited > unlimited) is waits


@pytest.mark.parametrize(
    ("stride", "gap"),
    [
        pytest.param(128, 0, id="the same row"),
        pytest.param(4096, CHIP.precharge + CHIP.activate, id="the same bank"),
        pytest.param(1024, 4 + CHIP.activate, id="the next bank, closed"),
        pytest.param(3 * 4096 + 1024, 4 + CHIP.activate, id="the next bank, another row"),
    ],
)
def test_bursts_wait_for_banks_and_rows_of_the_sdram(stride, gap):
    sdram = replace(CHIP, refresh_interval=100_000)
    b = ProgramBuilder(TINY)
    block = {"y_size": 4, "x_size": 128 // 8, "x_stride": stride // 8}
    b.add(Load(memory=Memory.INP, push_next=1, **block), NO_BUFFER)
    b.finish(pop_prev=1)
    timeline = simulate(b.build(), TimingParameters(port_bytes=8, sdram=sdram))
    uses = [use for use in timeline.grants if use.unit == "load"]
    words = 128 // sdram.word_bytes
    assert [b.start - a.start for a, b in pairwise(uses)] == [words + gap] * 3


def test_reads_and_writes_take_turns_in_runs():
    chip = replace(CHIP, refresh_interval=100_000)
    b = ProgramBuilder(TINY)
    b.add(Load(memory=Memory.INP, y_size=1, x_size=1, push_next=1), NO_BUFFER)
    b.nop(Memory.UOP, pop_prev=1, push_prev=1, push_next=1)
    block = {"y_size": 1, "x_size": 64, "x_stride": 64}  # four bursts
    b.add(Store(memory=Memory.OUT, pop_prev=1, push_prev=1, **block), NO_BUFFER)
    b.add(Load(memory=Memory.INP, pop_next=1, push_next=1, **block), NO_BUFFER)
    b.nop(Memory.UOP, pop_prev=1)
    b.finish(pop_next=1)
    program = b.build()

    def turns(most_bursts):
        machine = TimingParameters(port_bytes=8, sdram=replace(chip, most_bursts=most_bursts))
        timeline = simulate(program, machine)
        uses = sorted(timeline.grants, key=lambda use: use.start)
        writes = [use.unit == "store" for use in uses]
        return sum(a != b for a, b in pairwise(writes)), timeline.cycles

    assert turns(1)[0] > turns(4)[0] >= turns(16)[0]
    assert turns(1)[1] > turns(4)[1] >= turns(16)[1]


def test_the_port_is_that_of_the_board_unless_given():
    ultra = replace(PYNQ, target="ultra96")
    assert TimingParameters().port_width(PYNQ) == 8
    assert TimingParameters().port_width(ultra) == 16
    assert TimingParameters(port_bytes=32).port_width(ultra) == 32


@pytest.mark.parametrize(
    "bad",
    [
        {"port_bytes": 4},
        {"bandwidth": 0},
        {"bandwidth": float("nan")},
        {"dram_latency": -1},
        {"gemm_interval": 0},
        {"command_depth": 2.5},
        {"stores_in_flight": 1},
        {"burst_beats": 512},
        {"dram_latency": 4, "sdram": CHIP},
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        TimingParameters(**bad)


def test_a_deadlock_is_reported():
    b = ProgramBuilder("tiny")
    b.nop(Memory.INP, pop_next=1, push_next=1)
    b.nop(Memory.UOP, pop_prev=1, push_prev=1)
    b.finish()
    with pytest.raises(DeadlockError, match="load and compute wait forever"):
        b.build().cycles()


def test_events_that_were_not_kept_are_refused():
    timeline = simulate(PROGRAMS["small_gemm"](), events=False)
    assert timeline.cycles > 0
    with pytest.raises(ProgramError, match="kept no events"):
        timeline.units  # noqa: B018


def test_a_full_command_queue_stalls_the_fetch():
    b = ProgramBuilder("tiny")
    for _ in range(40):
        b.reset(0, 200)
    b.finish()
    timeline = check_accounting(b.build(), TimingParameters(command_depth=4))
    assert timeline.units["fetch"].waiting["queue full"] > 30 * 200


def test_unknown_words_are_no_concern_of_tokens():
    """Removing a push makes the program hang; the model says so instead of guessing."""
    program = edited(PROGRAMS["small_gemm"](), 3, push_next=0)
    with pytest.raises(DeadlockError, match=r"does not end: .*compute"):
        program.cycles()


def test_the_work_of_the_compute_unit_is_known_without_events():
    program = vtaops.compile(vtaops.Gemm(m=16, n=64, k=128), "pynq")
    found = simulate(program)
    assert found.compute_work == simulate(program, events=False).compute_work
    assert found.compute_work == pytest.approx(found.units["compute"].work, rel=0.01)
