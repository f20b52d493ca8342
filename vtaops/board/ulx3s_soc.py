"""The system on chip of a ULX3S: VTA, its SDRAM and a UART, assembled by LiteX.

``python -m vtaops.board.ulx3s_soc DESIGN.json`` writes the Verilog of the system to the current
folder, for the board (with its pins) or for a simulator (with the same signals as ports). It runs
in its own process, because LiteX configures Python's logging and writes files to its own folder.

Only this file uses LiteX; `vtaops.hardware.ulx3s` owns addresses, and `vtaops.board.ulx3s`
builds and reports.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from litedram import modules as sdram_chips
from litedram.common import LiteDRAMNativePort
from litedram.frontend.axi import LiteDRAMAXI2NativeR, LiteDRAMAXI2NativeW
from litedram.frontend.dma import LiteDRAMDMAWriter
from litedram.phy import GENSDRPHY
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.gen import LiteXModule
from litex.soc.cores.uart import UARTPHY, UARTBone
from litex.soc.integration.export import get_csr_json
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import axi, stream
from litex.soc.interconnect.csr import AutoCSR, CSRStatus, CSRStorage
from litex_boards.platforms import radiona_ulx3s
from litex_boards.targets.radiona_ulx3s import _CRG
from migen import Cat, ClockDomain, ClockSignal, If, Instance, Module, ResetSignal, Signal

from vtaops.hardware import ulx3s

_WORD_BYTES = 4
_BUFFER_BEATS = 32
"""Number of beats buffered between VTA and the SDRAM, per direction."""

_SIMULATED_PINS = [
    *((name, 0, Pins(1)) for name in ("clock", "reset", "finished", "quiet", "fault")),
    ("serial", 0, Subsignal("tx", Pins(1)), Subsignal("rx", Pins(1))),
    (
        "sdram",
        0,
        *(Subsignal(name, Pins(1)) for name in ("we_n", "ras_n", "cas_n", "cs_n", "cke")),
        *(Subsignal(name, Pins(n)) for name, n in (("a", 13), ("dq", 16), ("ba", 2), ("dm", 2))),
    ),
]


_REQUEST = ("addr", "burst", "cache", "id", "len", "prot", "size")
_CHANNELS = {
    **{"aw": _REQUEST, "w": ("data", "last", "strb"), "b": ("id", "resp")},
    **{"ar": _REQUEST, "r": ("data", "id", "last", "resp")},
}
"""Channels of AXI, with their fields."""
_LITE = ("valid", "data", "strb", "resp")
"""Fields that AXI4-Lite has, too, but for those of requests."""


class _SimulatedClock(LiteXModule):  # type: ignore[misc]
    """Clock and reset as pins: the simulator's replacement for the board's PLL."""

    def __init__(self, platform: Any) -> None:
        self.rst = Signal()
        self.cd_sys = ClockDomain()
        self.comb += self.cd_sys.clk.eq(platform.request("clock"))
        self.comb += self.cd_sys.rst.eq(platform.request("reset") | self.rst)


class _Narrowing(Module):  # type: ignore[misc]
    """Connect a wide port of the SDRAM to its narrow one.

    LiteDRAM's own converter inserts an idle cycle per wide word, which costs a fifth of the
    bandwidth.
    """

    def __init__(self, wide: Any, narrow: Any) -> None:
        ratio = wide.data_width // narrow.data_width
        count = Signal(max=ratio)
        self.comb += [
            narrow.cmd.valid.eq(wide.cmd.valid),
            narrow.cmd.we.eq(wide.cmd.we),
            narrow.cmd.addr.eq(Cat(count, wide.cmd.addr)),
            wide.cmd.ready.eq(narrow.cmd.ready & (count == ratio - 1)),
        ]
        self.sync += If(narrow.cmd.valid & narrow.cmd.ready, count.eq(count + 1))
        for source, sink in ((wide.wdata, narrow.wdata), (narrow.rdata, wide.rdata)):
            converter = stream.StrideConverter(source.description, sink.description)
            self.submodules += converter, stream.Pipeline(source, converter, sink)


class _Memory(Module):  # type: ignore[misc]
    """AXI slave on an SDRAM port that keeps its direction as long as possible.

    LiteDRAM's own slave alternates between reads and writes with every burst, at 3 to 9 cycles
    each.
    """

    def __init__(self, bus: Any, port: Any) -> None:
        write = LiteDRAMAXI2NativeW(bus, port, _BUFFER_BEATS, 0)
        read = LiteDRAMAXI2NativeR(bus, port, _BUFFER_BEATS, 0)
        self.submodules += write, read
        reading = Signal()
        bursts = Signal(max=ulx3s.MOST_BURSTS)  # bursts so far in this direction
        goes_on, waits, ends = Signal(), Signal(), Signal()
        last = Signal()
        self.comb += [
            read.cmd_grant.eq(reading),
            write.cmd_grant.eq(~reading),
            If(reading, goes_on.eq(read.cmd_request), waits.eq(write.cmd_request)).Else(
                goes_on.eq(write.cmd_request), waits.eq(read.cmd_request)
            ),
            last.eq(bursts == ulx3s.MOST_BURSTS - 1),
            ends.eq(port.cmd.valid & port.cmd.ready & port.cmd.last),
        ]
        self.sync += If(
            waits & (~goes_on | (ends & last)), reading.eq(~reading), bursts.eq(0)
        ).Elif(ends & ~last, bursts.eq(bursts + 1))


class _Link(Module, AutoCSR):  # type: ignore[misc]
    """CRC-32 over every byte received or sent by the UART since reset, as zlib computes it.

    One register tells the host that all its bytes arrived, that all bytes it received were sent,
    and that no other client wrote to the board and no reset happened in between.
    """

    def __init__(self, phy: Any) -> None:
        self._crc = CSRStatus(32)
        state = Signal(32, reset=0xFFFF_FFFF)
        self.comb += self._crc.status.eq(~state)
        for endpoint in (phy.source, phy.sink):
            bits = [state[i] for i in range(32)]
            for i in range(8):
                out = bits[0] ^ endpoint.data[i]
                bits = [
                    above ^ out if ulx3s.CRC_POLYNOMIAL >> j & 1 else above
                    for j, above in enumerate([*bits[1:], 0])
                ]
            self.sync += If(endpoint.valid & endpoint.ready, state.eq(Cat(*bits)))


class _Lanes(Module, AutoCSR):  # type: ignore[misc]
    """Data of a `LiteDRAMDMAWriter`: tiles whose first ``count`` lanes the host sends as ``data``.

    The other lanes are zeros. Words that come too fast are lost, so the writer never finishes.
    """

    def __init__(self, writer: Any, block: int) -> None:
        self._count = CSRStorage(block.bit_length())
        self._data = CSRStorage(32)
        word, remaining, lane = Signal(32), Signal(max=_WORD_BYTES + 1), Signal(max=block)
        before, byte = Signal(8), Signal(8)  # two lanes are a word of the SDRAM
        sent, valid = Signal(), Signal()
        taken = valid & (~lane[0] | writer.sink.ready)
        self.comb += [
            sent.eq(lane < self._count.storage),
            valid.eq(~sent | (remaining != 0)),
            If(sent, byte.eq(word)),
            writer.sink.data.eq(Cat(before, byte)),
            # Zeros alone are as fast as the SDRAM.
            writer.sink.valid.eq((valid & lane[0]) | (self._count.storage == 0)),
        ]
        self.sync += [
            If(taken, lane.eq(lane + 1), before.eq(byte)),
            If(taken & sent, word.eq(word[8:]), remaining.eq(remaining - 1)),
            If(self._data.re, word.eq(self._data.storage), remaining.eq(_WORD_BYTES)),
            If(~writer._enable.storage, lane.eq(0), remaining.eq(0), before.eq(0)),
        ]


class _Identity(Module, AutoCSR):  # type: ignore[misc]
    """Constants that identify the design (`Ulx3sDesign.identity`)."""

    def __init__(self, words: tuple[int, ...]) -> None:
        for index, word in enumerate(words):
            register = CSRStatus(32, name=f"word{index}", reset=word)
            setattr(self, f"_word{index}", register)


class _System(SoCCore):  # type: ignore[misc]
    """UARTBone and VTA on one bus, both with access to the SDRAM at the system clock."""

    csr_map = ulx3s.PAGES

    def __init__(self, platform: Any, clock: Any, design: ulx3s.Ulx3sDesign) -> None:
        hertz = round(design.clock_mhz * 1e6)
        self.crg = clock
        SoCCore.__init__(
            self,
            platform,
            hertz,
            cpu_type=None,
            bus_timeout=4096,  # cycles; an unmapped address must not block the UART
            integrated_sram_size=0,
            with_uart=False,
            with_timer=False,
        )
        self.serial = UARTPHY(platform.request("serial"), hertz, design.baud)
        self.uartbone = UARTBone(self.serial, design.patience_cycles / 0.1)
        self.bus.add_master("uartbone", self.uartbone.wishbone)
        self.link = _Link(self.serial)
        self.identity = _Identity(design.identity)
        self.sdrphy = GENSDRPHY(platform.request("sdram"), hertz, cl=design.cas_latency)
        chip = getattr(sdram_chips, ulx3s.SDRAM)(hertz, "1:1")
        self.add_sdram("sdram", phy=self.sdrphy, module=chip, origin=ulx3s.MEMORY, l2_cache_size=0)
        self.fill = LiteDRAMDMAWriter(self.sdram.crossbar.get_port(mode="write"), with_csr=True)
        self.lanes = _Lanes(self.fill, design.config.block_in)
        self.specials += Instance("vta_axi", name="vta", **self._vta_ports(design))

    def _vta_ports(self, design: ulx3s.Ulx3sDesign) -> dict[str, Any]:
        bits = 8 * design.parameters.port_bytes
        master = axi.AXIInterface(data_width=bits, address_width=32, id_width=2)
        slave = axi.AXILiteInterface(data_width=32, address_width=32)
        narrow = self.sdram.crossbar.get_port()
        shift = (bits // narrow.data_width).bit_length() - 1
        wide = LiteDRAMNativePort("both", narrow.address_width - shift, bits)
        self.vta_width = _Narrowing(wide, narrow)
        self.vta_memory = _Memory(master, wide)
        self.bus.add_slave(
            "vta", slave, SoCRegion(origin=ulx3s.REGISTERS, size=0x1000, cached=False)
        )
        ports = {"i_aclk": ClockSignal(), "i_array_clk": ClockSignal(), "i_aresetn": ~ResetSignal()}
        for bus, prefix, sides in ((slave, "s_axi", ("i", "o")), (master, "m_axi", ("o", "i"))):
            for name, fields in _CHANNELS.items():
                channel = getattr(bus, name)
                source, sink = sides if name in ("aw", "w", "ar") else sides[::-1]
                ports[f"{sink}_{prefix}_{name}ready"] = channel.ready
                for field in ("valid", *fields):
                    if bus is master or field in _LITE:
                        ports[f"{source}_{prefix}_{name}{field}"] = getattr(channel, field)
        for name in ("aw", "ar"):
            ports[f"i_s_axi_{name}addr"] = getattr(slave, name).addr[:12]
            ports[f"i_s_axi_{name}prot"] = 0
        lamps = ("finished", "quiet", "fault")
        for number, name in enumerate(lamps):
            place = (name,) if design.simulated else ("user_led", number)
            ports[f"o_{name}"] = self.platform.request(*place)
        return ports


def write_system(design: ulx3s.Ulx3sDesign) -> None:
    """Write ``soc.v``, ``map.json`` and, for the board, ``soc.lpf`` to the current folder."""
    if design.simulated:
        platform = SimPlatform("SIM", _SIMULATED_PINS)
        clock: Any = _SimulatedClock(platform)
    else:
        platform = radiona_ulx3s.Platform(device=design.device)
        clock = _CRG(platform, round(design.clock_mhz * 1e6))
    system = _System(platform, clock, design)
    system.finalize()
    fragment = system.get_fragment()
    platform.finalize(fragment)  # adds the clock constraints
    verilog = platform.get_verilog(fragment, name="soc")
    verilog.write("soc.v")
    if not design.simulated:
        toolchain = platform.toolchain
        toolchain.named_sc, toolchain.named_pc = platform.resolve_signals(verilog.ns)
        toolchain._build_name = "soc"
        toolchain.build_io_constraints()
    registers = json.loads(get_csr_json(system.csr_regions))["csr_registers"]
    addresses = {"vta": system.bus.regions["vta"].origin, "memory": ulx3s.MEMORY}
    addresses |= {name: register["addr"] for name, register in registers.items()}
    Path("map.json").write_text(json.dumps(addresses, indent=1))


if __name__ == "__main__":
    write_system(ulx3s.Ulx3sDesign.from_dict(json.loads(Path(sys.argv[1]).read_text())))
