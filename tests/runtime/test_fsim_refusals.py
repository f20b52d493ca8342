"""The functional simulator: instructions and streams that it refuses, and why."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from types import FrameType

import numpy as np
import pytest
from helpers.fsim_device import LANES, PYNQ, load, load_micro_ops, refuse

from trials.reference_isa import launch, launch_words, place, serialise
from vtaops.errors import DeadlockError, DeviceError, DeviceTimeout
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    words_to_array,
)
from vtaops.runtime import Fsim

# ------------------------------------------------------------- refused instructions


MEMORIES = [Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.ACC_8BIT]


@pytest.mark.parametrize("memory", MEMORIES)
def test_load_beyond_the_scratchpad(fsim: Fsim, memory: Memory) -> None:
    pad = PYNQ.scratchpad(memory)
    data = np.zeros(4 * PYNQ.dram_element_bytes(memory), np.uint8)
    last = load(fsim, memory, data, sram=pad.depth - 5)
    launch(fsim, serialise([replace(last, x_pad_left=1)]))
    text = refuse(fsim, replace(last, x_pad_left=2), match="writes")
    name = "ACC" if memory == Memory.ACC_8BIT else memory.name
    assert f"{name} elements {pad.depth - 5}..{pad.depth + 1}; {name} has {pad.depth}" in text
    assert "instruction 0 (LOAD" in text


@pytest.mark.parametrize("memory", MEMORIES)
def test_load_beyond_the_buffer(fsim: Fsim, memory: Memory) -> None:
    unit = PYNQ.dram_element_bytes(memory)
    whole = replace(load(fsim, memory, np.zeros(6 * unit, np.uint8)), x_size=2, y_size=2)
    launch(fsim, serialise([replace(whole, x_stride=4)]))
    refuse(fsim, replace(whole, x_stride=5), match="are in no buffer")
    refuse(fsim, replace(whole, x_size=7, y_size=1), match="are in no buffer")
    refuse(fsim, replace(whole, dram_base=whole.dram_base - 1), match="are in no buffer")
    refuse(fsim, replace(whole, dram_base=0), match="are in no buffer")
    refuse(fsim, replace(whole, dram_base=0xFFFFFFFF), match="are in no buffer")


def test_buffers_are_bounded_to_the_byte_and_never_touch(fsim: Fsim) -> None:
    first, second = fsim.alloc(4096), fsim.alloc(17)
    assert second.address - first.address > 4096
    insn = Load(memory=Memory.INP, y_size=1, x_size=257, dram_base=first.address // 16)
    text = refuse(fsim, insn, match="are in no buffer")
    assert f"the nearest below is {first.address:#x}..{first.address + 4096:#x}" in text
    assert f"the nearest above is {second.address:#x}..{second.address + 17:#x}" in text
    launch(fsim, serialise([replace(insn, x_size=1, dram_base=second.address // 16)]))
    refuse(fsim, replace(insn, x_size=2, dram_base=second.address // 16), match="in no buffer")


def test_store_out_of_bounds(fsim: Fsim) -> None:
    out = fsim.alloc(4 * LANES)
    store = Store(
        memory=Memory.OUT, sram_base=2044, dram_base=out.address // LANES, y_size=2, x_size=2
    )
    store = replace(store, x_stride=2)
    launch(fsim, serialise([store]))
    refuse(
        fsim, replace(store, sram_base=2045), match="reads OUT elements 2045..2049; OUT has 2048"
    )
    refuse(fsim, replace(store, x_stride=3), match="are in no buffer")
    refuse(fsim, replace(store, y_pad_top=1), match="all pads must be 0")
    refuse(fsim, replace(store, memory=Memory.ACC), match="stores memory 3")


DEPTHS = {"uop": 8192, "dst": 2048, "src": 2048, "wgt": 1024}


@pytest.mark.parametrize("kind", [Gemm, Alu])
@pytest.mark.parametrize("field", ["dst", "src", "wgt"])
def test_indices_out_of_bounds(fsim: Fsim, kind: type[Gemm] | type[Alu], field: str) -> None:
    """The largest index may be the last element, and no more; the message names its terms."""
    if field == "wgt" and kind is Alu:
        return
    depth = DEPTHS[field]
    column = ("dst", "src", "wgt").index(field)
    table = [[0, 0, 0], [0, 0, 0]]
    table[1][column] = depth - 1 - 2 * 50 - 4 * 3
    factors = {f"{field}_factor_out": 50, f"{field}_factor_in": 3}
    insn = kind(uop_end=2, iter_out=3, iter_in=5, **factors)
    launch(fsim, serialise([load_micro_ops(fsim, *map(tuple, table)), insn]))
    table[1][column] += 1
    launch(fsim, serialise([load_micro_ops(fsim, *map(tuple, table))]))
    text = refuse(fsim, insn, match=f" {depth} = {depth - 112} + 2*50 + 4*3")
    assert "micro-op 1 reaches" in text
    assert f"has {depth} elements" in text
    if field != "dst":
        unused = {"reset": 1} if kind is Gemm else {"use_imm": 1}
        launch(fsim, serialise([replace(insn, **unused)]))


def test_micro_ops_out_of_bounds(fsim: Fsim) -> None:
    insn = Alu(uop_begin=8191, uop_end=8192, iter_out=1, iter_in=1, use_imm=1)
    launch(fsim, serialise([insn]))
    refuse(fsim, replace(insn, uop_end=8193), match="reads UOP elements 8191..8193; UOP has 8192")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (5, "opcode 5"),
        (7, "opcode 7"),
        (6 << 7, "memory 6"),
        (4 << 7, "loads the output memory"),
        (4 | 5 << 108, "ALU operation 5"),
    ],
)
def test_words_that_are_no_instructions(fsim: Fsim, word: int, text: str) -> None:
    with pytest.raises(DeviceError, match=text) as caught:
        launch_words(fsim, [0, word, 3])
    assert "instruction 1 (" in str(caught.value)


# ------------------------------------------------------------- streams as a whole


def test_finish_must_be_the_last_of_its_unit(fsim: Fsim) -> None:
    with pytest.raises(DeviceError, match="no FINISH"):
        launch(fsim, [Load(memory=Memory.UOP)])
    with pytest.raises(DeviceError, match=r"instruction 1 \(FINISH\) is followed by instruction 2"):
        launch(fsim, [Load(memory=Memory.UOP), Finish(), Load(memory=Memory.UOP)])
    with pytest.raises(DeviceError, match="followed by"):
        launch(fsim, [Finish(), Finish()])


@pytest.mark.parametrize(
    ("unit", "other"),
    [("load", Load(memory=Memory.INP)), ("store", Store(memory=Memory.OUT))],
)
def test_finish_must_wait_for_the_others(fsim: Fsim, unit: str, other: Instruction) -> None:
    """In the order without a seed, FINISH overtakes whatever it does not wait for."""
    with pytest.raises(DeviceError, match=f"while the {unit} unit had 2 instructions"):
        launch(fsim, [other, other, Load(memory=Memory.UOP), Finish()])


@pytest.mark.parametrize(
    ("insn", "queue"),
    [
        (Load(memory=Memory.UOP, push_prev=1), "compute->load 1"),
        (Load(memory=Memory.UOP, push_next=1), "compute->store 1"),
    ],
)
def test_tokens_must_not_remain(fsim: Fsim, insn: Instruction, queue: str) -> None:
    wait = [Load(memory=Memory.INP, push_next=1), Finish(pop_prev=1)]
    with pytest.raises(DeviceError, match="tokens remain") as caught:
        launch(fsim, [insn, *wait])
    assert queue in str(caught.value)
    launch(fsim, wait)  # the next launch starts without tokens


def test_one_wait_for_two_tokens_fails_in_either_order() -> None:
    """FINISH after the first load overtakes the second; after both, it leaves a token."""
    stream = [Load(memory=Memory.INP, push_next=1)] * 2 + [Finish(pop_prev=1)]
    texts = set()
    for seed in range(20):
        with Fsim(PYNQ, seed=seed) as device, pytest.raises(DeviceError) as caught:
            launch(device, stream)
        texts.add(str(caught.value).partition(" (")[0])
    assert texts == {"tokens remain after the last instruction", "instruction 2"}


def test_flags_towards_no_neighbour_are_ignored(fsim: Fsim) -> None:
    launch(
        fsim,
        [
            Load(memory=Memory.INP, pop_prev=1, push_prev=1, push_next=1),
            Load(memory=Memory.UOP, push_next=1),
            Store(memory=Memory.OUT, pop_prev=1, pop_next=1, push_prev=1, push_next=1),
            Finish(pop_prev=1, pop_next=1),
        ],
    )


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_deadlock_reports_the_state(seed: int | None) -> None:
    stream = [
        Load(memory=Memory.INP, push_next=1),
        Load(memory=Memory.WGT, push_next=1),
        Load(memory=Memory.INP, pop_next=1),
        Load(memory=Memory.UOP, pop_prev=1),
        Gemm(pop_prev=1, pop_next=1, uop_end=1),
        Finish(),
        Store(memory=Memory.OUT, pop_prev=1),
    ]
    with Fsim(PYNQ, seed=seed) as device, pytest.raises(DeadlockError) as caught:
        launch(device, stream)
    assert str(caught.value) == (
        "deadlock: no unit can continue\n"
        "  load unit: instruction 2 (LOAD INP nop) waits for a token of compute->load\n"
        "  compute unit: instruction 4 (GEMM uop 0..1 loops 0x0 dst +0,+0 src +0,+0 wgt +0,+0) "
        "waits for a token of store->compute\n"
        "  store unit: instruction 6 (STORE OUT nop) waits for a token of compute->store\n"
        "  tokens held: load->compute 1, compute->load 0, compute->store 0, store->compute 0"
    )


def test_deadlock_names_every_queue_and_units_that_are_done(fsim: Fsim) -> None:
    with pytest.raises(DeadlockError) as caught:
        launch(fsim, [Finish(pop_prev=1, pop_next=1)])
    assert "waits for a token of load->compute and of store->compute" in str(caught.value)
    assert "load unit: done" in str(caught.value)


@pytest.mark.parametrize("check_overflow", [False, True])
@pytest.mark.parametrize("insn", [Gemm, Alu])
def test_timeout(insn: type[Gemm] | type[Alu], check_overflow: bool) -> None:
    """Years of work in one instruction end in time, and the device still works."""
    with Fsim(PYNQ, check_overflow=check_overflow) as device:
        endless = insn(uop_end=8192, iter_out=16383, iter_in=16383)
        with pytest.raises(DeviceTimeout, match=r"not finished after 0\.05 s: 0 of 2") as caught:
            launch(device, [endless, Finish()], timeout=0.05)
        assert "the compute unit is at instruction 0 (" in str(caught.value)
        assert device.stats().gemm_counter == 0
        launch(device, [Finish()])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_during_a_launch_leaves_a_device_that_works() -> None:
    """The thread of the launch does not exist in the child; its locks would never be free."""
    with Fsim(PYNQ) as device:
        endless = Gemm(uop_end=8192, iter_out=16383, iter_in=16383)
        code = place(
            device, words_to_array([Encoding.of(PYNQ).encode(i) for i in (endless, Finish())])
        )

        def run() -> None:
            with pytest.raises(DeviceError, match="interrupted"):
                device.launch(code.address, 2, 600)

        thread = threading.Thread(target=run)
        thread.start()
        frames = sys._current_frames
        while thread.ident not in frames() or frames()[thread.ident].f_code.co_name != "_call":
            pass  # until the thread is about to call the simulator
        for _ in range(3):
            if child := os.fork():
                assert os.waitpid(child, 0)[1] == 0
                continue
            signal.alarm(60)
            buffer = device.alloc(8)
            device.write(buffer, np.arange(8, dtype=np.uint8))
            launch(device, [Finish()])
            assert device.stats().gemm_counter == 0
            same = device.read(buffer, 8).tolist() == [*range(8)]
            device.close()
            os._exit(0 if same else 1)
        while thread.is_alive():
            device.interrupt()
            thread.join(0.01)
        launch(device, [Finish()])


def test_interrupt_ends_a_launch(fsim: Fsim) -> None:
    class Interrupt(Exception):
        pass

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Interrupt):
            launch(fsim, [Gemm(uop_end=8192, iter_out=16383, iter_in=16383), Finish()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    launch(fsim, [Finish()])


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), 10**400, np.ones(2)])
def test_timeout_must_be_positive(fsim: Fsim, timeout: float) -> None:
    with pytest.raises(DeviceError, match="must be positive"):
        launch(fsim, [Finish()], timeout=timeout)
    launch(fsim, [Finish()], timeout=float("inf"))


def test_launch_needs_instructions(fsim: Fsim) -> None:
    buffer = fsim.alloc(64)
    for address, count, text in (
        (buffer.address, 0, "at least 1"),
        (buffer.address, 5, "are in no buffer"),
        (buffer.address + 8, 1, "not a multiple of 16"),
        (0, 1, "are in no buffer"),
        (-16, 1, "the instruction address is -16"),
        (1 << 32, 1, "the instruction address is 4294967296"),
        (4096.0, 1, "the instruction address is 4096.0; it must be an integer"),
        (buffer.address, -1, "the number of instructions is -1"),
        (buffer.address, "1", "the number of instructions is '1'"),
    ):
        with pytest.raises(DeviceError, match=text):
            fsim.launch(address, count, 1.0)
