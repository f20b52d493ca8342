"""Errors of the RTL, simulated: faults, deadlocks, accesses beyond memory."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS
from helpers.tsim_support import needs_tools

import vtaops
from trials.random_streams import (
    CONFIGS,
)
from trials.reference_isa import launch, launch_words, place
from vtaops.errors import ConfigError, DeadlockError, DeviceError, DeviceTimeout, UnsupportedError
from vtaops.machine.config import Memory
from vtaops.machine.isa import Encoding, Finish, Gemm, Load, Store
from vtaops.runtime import Device, Fsim, open_device
from vtaops.runtime.executor import LoadedProgram
from vtaops.runtime.tsim import RtlParameters, Tsim

pytestmark = needs_tools


FINISH = Finish()


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        ([Load(memory=Memory.INP, pop_next=1), FINISH], DeadlockError, "load waits for"),
        ([Load(memory=Memory.UOP, pop_prev=1), FINISH], DeadlockError, "waits for a token of load"),
        ([Finish(pop_next=1)], DeadlockError, "compute waits for a token of store"),
        ([Store(memory=Memory.OUT, pop_prev=1), FINISH], DeadlockError, "store waits for a token"),
        ([Load(memory=Memory.INP)], DeviceError, "without FINISH"),
        ([Finish(push_next=1)], DeviceError, "tokens remain at the end: compute to store"),
        ([Load(memory=Memory.INP, y_size=1, x_size=1, dram_base=1), FINISH], DeviceError,
         "load unit accessed DRAM at 0x8, which is not allocated"),
        ([Load(memory=Memory.UOP, y_size=1, x_size=1, dram_base=2**32 - 1), FINISH],
         DeviceError, "compute unit accessed DRAM at 0x3fffffff8"),
        ([Store(memory=Memory.OUT, y_size=1, x_size=1), FINISH], DeviceError, "store unit"),
        ([Load(memory=Memory.INP, x_size=2, y_pad_top=1, sram_base=127), FINISH], DeviceError,
         "LOAD writes beyond the end"),
        ([Load(memory=Memory.ACC, x_size=65, y_pad_top=1), FINISH], DeviceError,
         "LOAD UOP or LOAD ACC writes beyond the end"),
        ([FINISH, FINISH], DeviceError, "FINISH executed before all other"),
        ([FINISH, Load(memory=Memory.INP, x_size=9, y_pad_top=9)], DeviceError, "FINISH executed"),
    ],
)  # fmt: skip
def test_programs_that_cannot_run_are_refused(stream, error, message):
    with Tsim("tiny") as device:
        with pytest.raises(error, match=message):
            launch(device, stream)
        launch(device, [FINISH])  # the device is as good as new
        assert device.performance().cycles > 0


def test_store_beyond_the_scratchpad_is_refused(tiny):
    target = place(tiny, np.zeros(4096, np.uint8))
    base = target.address // tiny.config.out.element_bytes
    store = Store(memory=Memory.OUT, y_size=1, x_size=2, dram_base=base, sram_base=63)
    with pytest.raises(DeviceError, match="STORE reads beyond the end"):
        launch(tiny, [replace(store, push_prev=1), Finish(pop_next=1)])
    tiny.free(target)


@pytest.mark.parametrize("word", [5, 7, 6 << 7, 4 << 7, 1, 1 | 5 << 7])
def test_words_that_are_no_instructions_are_refused(tiny, word):
    with pytest.raises(DeviceError, match="not defined by the ISA"):
        launch_words(tiny, [word, int(FINISH.opcode)])


def test_lost_tokens_are_reported(tiny):
    """One more than a queue holds; the pops are there, but they come too late."""
    capacity = tiny.parameters.token_capacity
    push = Load(memory=Memory.INP, push_next=1)
    pops = [Load(memory=Memory.UOP, pop_prev=1)] * (capacity - 1) + [Finish(pop_prev=1)]
    busy = Gemm(reset=1, uop_end=1, iter_out=1, iter_in=16383)
    with pytest.raises(DeviceError, match="token queue overflowed"):
        launch(tiny, [busy, busy] + [push] * (capacity + 2) + pops)
    launch(tiny, [busy, busy] + [push] * capacity + pops)


def test_timeout(tiny):
    forever = Gemm(uop_end=1, iter_out=16383, iter_in=16383)
    with pytest.raises(DeviceTimeout, match=r"within 0\.001 s"):
        launch(tiny, [forever, FINISH], timeout=0.001)


def test_closed_devices_refuse():
    device = Tsim("tiny")
    buffer = device.alloc(8)
    device.close()
    device.close()
    for call in (lambda: device.alloc(8), lambda: device.read(buffer, 8), device.stats,
                 lambda: device.launch(4096, 1, 1.0), device.performance):  # fmt: skip
        with pytest.raises(DeviceError, match="closed"):
            call()


def test_buffers_are_checked(tiny):
    with pytest.raises(DeviceError, match="size of a buffer in bytes is 0"):
        tiny.alloc(0)
    with pytest.raises(DeviceError, match="no room"):
        tiny.alloc(1 << 32)
    buffer = tiny.alloc(10)
    assert buffer.address % 4096 == 0
    assert buffer.address > 0
    with pytest.raises(DeviceError, match="exceed a buffer of 10 bytes"):
        tiny.write(buffer, np.zeros(11, np.uint8))
    with pytest.raises(DeviceError, match="exceed a buffer of 10 bytes"):
        tiny.read(buffer, 11)
    tiny.write(buffer, np.arange(5, dtype=np.uint16))
    np.testing.assert_array_equal(tiny.read(buffer, 10).view(np.uint16), np.arange(5))
    tiny.free(buffer)
    with pytest.raises(DeviceError, match="not allocated"):
        tiny.free(buffer)
    again = tiny.alloc(10)
    assert not tiny.read(again, 10).any()
    tiny.free(again)


def test_freed_memory_is_found_again(tiny):
    first = [tiny.alloc(5000) for _ in range(6)]
    for index in (1, 3, 2, 5, 0, 4):
        tiny.free(first[index])
    whole = tiny.alloc((1 << 32) - (1 << 20))
    assert whole.address == first[0].address
    tiny.free(whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency": 1}, "latency is 1"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0"),
        ({"jitter_seed": -1}, "jitter_seed is -1"),
        ({"trace": "wave.txt"}, "give one .vcd"),
        ({"trace": "missing/wave.vcd"}, "give one .vcd"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        Tsim("tiny", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"burst_beats": 12}, "burst_beats is 12"),
        ({"burst_beats": 128, "port_bytes": 64}, "4096 bytes"),
        ({"port_bytes": 12}, "port_bytes is 12; it must be 8, 16, 32 or 64"),
        ({"load_buffer_beats": 16}, "load_buffer_beats is 16"),
        ({"outstanding": 0}, "outstanding is 0"),
        ({"token_capacity": 0}, "token_capacity is 0"),
        ({"dsp_multipliers": -1}, "dsp_multipliers is -1"),
        ({"address_bits": 20}, "address_bits is 20"),
    ],
)
def test_parameters_of_the_rtl_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        RtlParameters(**options)


def test_overflow_checks_need_fsim():
    with pytest.raises(UnsupportedError, match="check_overflow needs fsim"):
        open_device("tsim", "tiny", check_overflow=True)


def test_instruction_address_is_checked(tiny):
    for address, message in ((8, "multiple of 16"), (-16, "in 0"), (1 << 32, "in 0")):
        with pytest.raises(DeviceError, match=message):
            tiny.launch(address, 1, 1.0)


def test_instructions_may_start_anywhere():
    """Also in the middle of a port word."""
    encoding = Encoding.of(CONFIGS["tiny"])
    nop = encoding.encode(Load(memory=Memory.UOP))
    words = [5, 5, 5, *[nop] * 9, encoding.encode(FINISH)]
    image = vtaops.machine.isa.words_to_array(words)
    for port_bytes in (8, 64):
        with Tsim("tiny", parameters=RtlParameters(port_bytes=port_bytes)) as device:
            buffer = place(device, image)
            device.launch(buffer.address + 3 * 16, 10, 10.0)
            assert device.performance().instructions == 10


def test_a_device_may_be_shared_by_threads():
    program = PROGRAMS["small_gemm"]()
    rng = np.random.default_rng(4)
    inp = rng.integers(-128, 128, program.inputs[0].shape).astype(np.int8)
    wgt = rng.integers(-128, 128, program.inputs[1].shape).astype(np.int8)
    results = []
    device: Device = Tsim("tiny")

    def run() -> None:
        with LoadedProgram(program, device) as loaded:
            results.extend(loaded.run(inp, wgt) for _ in range(5))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 15
    with Fsim("tiny") as fsim:
        expected = program.run(fsim, inp, wgt)
    for result in results:
        np.testing.assert_array_equal(result, expected)
    device.close()
