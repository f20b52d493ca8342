"""Run inside the simulator by cocotb: models of cocotbext-axi drive the AXI shell.

Neither the AXI4-Lite master nor the AXI4 memory is ours. `CASE` names an archive with the memory's
first content and the program; what the memory holds at the end goes to `RESULT`.
"""

import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import (
    AddressSpace,
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiSlave,
    MemoryRegion,
)

CONTROL, COUNT, ADDRESS, FAULTS = 0x00, 0x08, 0x0C, 0x28
LAUNCH, FINISHED, STOP, STOPPING = 1, 2, 2, 8
MEMORY_ERROR = 1 << 6


def stalls(seed):
    """Yield whether a channel waits: never, or in a random share of the cycles."""
    rng = random.Random(seed)
    share = rng.random() * 0.8
    while True:
        yield rng.random() < share


class Bench:
    """The shell between a master of its registers and a memory of which only a part answers."""

    def __init__(self, dut, nbytes):
        self.dut = dut
        self.memory = MemoryRegion(nbytes)
        space = AddressSpace(2**32)
        space.register_region(self.memory, 0)
        cocotb.start_soon(Clock(dut.aclk, 10, "ns").start())
        self.registers = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, False
        )
        self.slave = AxiSlave(AxiBus.from_prefix(dut, "m_axi"), dut.aclk, dut.aresetn, space, False)

    async def reset(self):
        self.dut.aresetn.value = 0
        await ClockCycles(self.dut.aclk, 5)
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 2)

    def stall(self, seed):
        """Let every channel of both buses wait at random."""
        lite, full = self.registers, self.slave
        channels = [
            full.write_if.aw_channel, full.write_if.w_channel, full.write_if.b_channel,
            full.read_if.ar_channel, full.read_if.r_channel,
            lite.write_if.aw_channel, lite.write_if.w_channel, lite.write_if.b_channel,
            lite.read_if.ar_channel, lite.read_if.r_channel,
        ]  # fmt: skip
        for number, channel in enumerate(channels):
            channel.set_pause_generator(stalls(100 * seed + number))

    async def launch(self, address, count):
        await self.registers.write_dword(COUNT, count)
        await self.registers.write_dword(ADDRESS, address)
        await self.registers.write_dword(CONTROL, LAUNCH)

    async def wait(self, offset, mask, limit=40_000):
        for _ in range(limit // 50):
            if await self.registers.read_dword(offset) & mask:
                return
            await ClockCycles(self.dut.aclk, 50)
        raise AssertionError(f"register {offset:#x} never had a bit of {mask:#x}")

    async def stop(self):
        await self.registers.write_dword(CONTROL, STOP)
        for _ in range(200):
            if not await self.registers.read_dword(CONTROL) & STOPPING:
                return
        raise AssertionError("the logic does not stop")


@cocotb.test()
async def programs_run_under_random_stalls(dut):
    """The same program, each time with other stalls; the memory holds its result each time."""
    case = np.load(os.environ["CASE"])
    image = case["image"].tobytes()
    bench = Bench(dut, len(image))
    await bench.reset()
    for seed in range(3):
        bench.memory[0 : len(image)] = image
        bench.stall(seed)
        await bench.launch(int(case["code"]), int(case["count"]))
        await bench.wait(CONTROL, FINISHED)
        assert await bench.registers.read_dword(FAULTS) == 0
        found = bytes(bench.memory[0 : len(image)])
        if seed == 0:
            first = found
            np.save(os.environ["RESULT"], np.frombuffer(found, np.uint8))
        assert found == first
        await bench.stop()


@cocotb.test()
async def errors_of_the_memory_are_faults(dut):
    """Accesses beyond the memory: a fault; after a stop the next program runs as ever."""
    case = np.load(os.environ["CASE"])
    image = case["image"].tobytes()
    bench = Bench(dut, len(image))
    await bench.reset()
    for seed, code in enumerate(case["lost"].tolist()):
        bench.memory[0 : len(image)] = image
        bench.stall(50 + seed)
        await bench.launch(code, 2)
        await bench.wait(FAULTS, MEMORY_ERROR)
        await bench.stop()
        assert await bench.registers.read_dword(FAULTS) == 0
        await bench.launch(int(case["code"]), int(case["count"]))
        await bench.wait(CONTROL, FINISHED)
        assert await bench.registers.read_dword(FAULTS) == 0
        result = np.load(os.environ["RESULT"]).tobytes()
        assert bytes(bench.memory[0 : len(image)]) == result
        await bench.stop()


@cocotb.test()
async def registers_are_written_whole(dut):
    """A write of some bytes is refused and changes nothing."""
    bench = Bench(dut, 4096)
    await bench.reset()
    bench.stall(7)
    await bench.registers.write_dword(ADDRESS, 0x12345678)
    for offset, data in ((0, b"\x01"), (1, b"\x02\x03"), (2, b"\x04\x05")):
        answer = await bench.registers.write(ADDRESS + offset, data)
        assert answer.resp == AxiResp.SLVERR
    assert await bench.registers.read_dword(ADDRESS) == 0x12345678
