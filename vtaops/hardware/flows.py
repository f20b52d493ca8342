"""The table of flows: what each way from a configuration to an FPGA gives, asked before it begins.

A design that lacks something of this table would be wrong in silence or fail after minutes. The
capacity is a lower bound, so nothing that fits is refused; the tools judge the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vtaops.base.errors import ConfigError
from vtaops.hardware.rtl import check_depths
from vtaops.hardware.synthesis import (
    BRAM_BITS,
    CAPACITY,
    URAM_BITS,
    FpgaResources,
    bits_of,
    part_of,
)
from vtaops.machine.config import PORT_BYTES, PORT_MHZ, Extension, HardwareConfig

DSP_PER_ALU_LANE, DSP_PER_POST_LANE = 3, 2
"""DSP blocks of a lane: for a 32-bit MUL, and for the scaling of post-processing."""

_PRODUCT_LUTS, _SUM_LUTS = 32, 16
"""Fewest look-up tables of an 8-bit product outside DSP blocks, two of whose 64 partial products
share one, and of its addition."""


@dataclass(frozen=True)
class Flow:
    """What a flow gives to the hardware of a configuration.

    Attributes
    ----------
    command : str
        The command that takes it.
    targets : tuple of str
        Targets of the configurations that it builds.
    parts : dict
        FPGA -> its resources; the first one is the default. Empty: it fits no part.
    clocks : int
        1 if the array can have no clock of its own.
    ports : int
        Ports to DRAM.
    port_bytes : tuple of int
        Widths of such a port.
    clock_mhz : tuple of float
        Its slowest and fastest clock; `check_clock` knows what ports to DRAM allow, too.
    instead : str
        What builds the configurations that it refuses.
    """

    command: str
    targets: tuple[str, ...]
    parts: dict[str, FpgaResources]
    clocks: int = 2
    ports: int = 2
    port_bytes: tuple[int, ...] = PORT_BYTES
    clock_mhz: tuple[float, float] = (1, 1000)
    instead: str = "give another configuration"

    def check(self, config: HardwareConfig, part: str = "") -> None:
        """Check that it can build a configuration, for the target's part unless one is named.

        Raises
        ------
        ConfigError
            If not; the message says what the flow lacks, and what would be right.
        """
        reason = self._target(config) or self._wiring(config)
        if not reason and self.parts:
            reason = self._space(config, part or part_of(config, self.parts))
        if reason:
            raise ConfigError(
                f"configuration {config.name!r} {reason} ({self.command}); {self.instead}"
            )
        check_depths(config, config.port_width)

    def check_clock(self, clock_mhz: float, config: HardwareConfig, port_bytes: int = 0) -> None:
        """Raise `ConfigError` if the clock is out of range, or too fast for the ports to DRAM.

        These are `port_bytes` wide, by default as `config` says.
        """
        low, high = self.clock_mhz
        if not low <= clock_mhz <= high:
            raise ConfigError(f"the clock is {clock_mhz} MHz; it must be {low}..{high}")
        width = port_bytes or config.port_width
        times, most = port_clock(config, width)
        if not config.split_port and times * clock_mhz > most:
            twice = f"words of {width} bytes pass at twice the clock, "
            raise ConfigError(
                f"the clock is {clock_mhz} MHz; a port of the processing system of "
                f"{config.target!r} takes at most {most:g}: {twice if times > 1 else ''}give "
                f"--clock-mhz {most // times:g} or less"
            )

    def check_part(self, part: str) -> None:
        """Raise `ConfigError` if it does not build for an FPGA."""
        if part not in self.parts:
            raise ConfigError(f"the FPGA is {part!r}; it must be {' or '.join(self.parts)}")

    def _target(self, config: HardwareConfig) -> str:
        if config.target in self.targets:
            return ""
        names = " or ".join(map(repr, self.targets))
        return f"has target {config.target!r}; this flow builds for {names}"

    def _wiring(self, config: HardwareConfig) -> str:
        if config.has(Extension.PAIRS) and self.clocks < 2:
            return (
                "has the extension 'pairs', whose array needs a clock of twice the frequency; this "
                "flow has one clock: leave 'pairs' out"
            )
        both = {"WEIGHT_PORT": config.weight_port, "SPLIT_PORT": config.split_port}
        more = [key for key, value in both.items() if value]
        if len(more) >= self.ports:
            count = "one port" if self.ports == 1 else f"{self.ports} ports"
            given = " and ".join(f"{key} 1" for key in more)
            return f"has {given}; this flow connects {count} to DRAM: give {more[-1]} 0"
        if config.port_width not in self.port_bytes:
            widths = " or ".join(map(str, self.port_bytes))
            return f"has a port of {config.port_width} bytes; this flow has {widths}"
        return ""

    def _space(self, config: HardwareConfig, part: str) -> str:
        has, needs = self.parts[part], least_resources(config, self.parts[part])
        for name, unit in (
            ("bram", "block RAMs of 36 Kbit"),
            ("dsp", "DSP blocks"),
            ("lut", "LUTs"),
        ):
            least, most = getattr(needs, name), getattr(has, name)
            if least > most:
                return (
                    f"needs at least {least:,.0f} {unit}, and {part} has {most:,.0f}: give smaller "
                    f"{'buffers' if name == 'bram' else 'tiles'} or another device"
                )
        return ""


def port_clock(config: HardwareConfig, port_bytes: int) -> tuple[int, float]:
    """Return how often a port to DRAM is clocked in a cycle, and its fastest clock, MHz.

    Words wider than the port pass it in halves, at the clock of the array (``pairs``). With
    ``SPLIT_PORT`` the ports have their fastest clock, whatever that of the logic is.
    """
    wide = config.has(Extension.PAIRS) and 8 * port_bytes > config.board.bus_bits
    return 1 + wide, PORT_MHZ.get(config.target, math.inf)


def dsp_for_products(config: HardwareConfig, part: FpgaResources, reserve: int = 0) -> int:
    """Return the DSP blocks that the vector ALU and post-processing leave to the array."""
    return max(0, part.dsp - dsp_of_lanes(config) - reserve)


def least_resources(config: HardwareConfig, part: FpgaResources) -> FpgaResources:
    """Return resources that every design of a configuration on a part takes."""
    bits = bits_of(config.inp, config.wgt)
    bits += max(0, bits_of(config.uop, config.acc, config.out) - part.uram * URAM_BITS)
    products = config.macs_per_micro_op
    outside = products - min(products, 2 * dsp_for_products(config, part))  # two to a block
    return FpgaResources(
        lut=products * _SUM_LUTS + outside * _PRODUCT_LUTS,
        bram=bits / BRAM_BITS,
        dsp=dsp_of_lanes(config),
    )


def dsp_of_lanes(config: HardwareConfig) -> int:
    """Return the DSP blocks of the vector ALU and of post-processing."""
    per_lane = DSP_PER_ALU_LANE + DSP_PER_POST_LANE * config.has(Extension.POST)
    return config.acc.lanes * per_lane


_SIMULATORS = ("sim", "tsim")
_ZYNQ = {part: has for part, (_, has) in CAPACITY.items()}
_SDRAM_BYTES = 8
"""Width of the port to the SDRAM of a ULX3S, four of its words."""

ULX3S = Flow(
    "vtaops board build ulx3s",
    targets=("ulx3s", *_SIMULATORS),
    parts={
        "LFE5U-85F": FpgaResources(lut=83_640, ff=83_640, bram=104, dsp=156),
        "LFE5U-45F": FpgaResources(lut=43_848, ff=43_848, bram=54, dsp=72),
    },
    clocks=1,
    ports=1,
    port_bytes=(_SDRAM_BYTES,),
    clock_mhz=(20, 100),
    instead="ulx3s and ulx3s_ext are configurations of a ULX3S",
)
"""LiteX, Yosys and nextpnr, and the virtual board. Resources: Lattice's data sheet FPGA-DS-02012,
whose block RAMs have 18 Kbit."""

OPEN_ZYNQ = Flow(
    "vtaops board build pynq",
    targets=("pynq",),
    parts={"xc7z020": _ZYNQ["xc7z020"]},
    clocks=1,
    ports=1,
    port_bytes=(8,),
    instead="Vivado builds it: vtaops hardware write",
)
"""Yosys, nextpnr-xilinx and Project X-Ray."""

VIVADO = Flow(
    "vtaops hardware write",
    targets=("pynq", "ultra96", "zcu104", "kv260", "aup_zu3"),
    parts=_ZYNQ,
    instead="the configurations of these names, aup_zu3_512 and others are of such boards",
)
"""Vivado's script, whose SmartConnects convert widths."""

SYNTHESIS = Flow(
    "vtaops hardware synth",
    targets=(*_SIMULATORS, *VIVADO.targets),
    parts={},
    instead="a ULX3S reports its cells: vtaops board build ulx3s",
)
"""Yosys's estimate, for the boards of `VIVADO`, whether or not the design fits."""
