"""VTA on a ULX3S: the design and its addresses; `vtaops.board.ulx3s` makes its bitstream."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from vtaops.base.errors import ConfigError, DeviceError
from vtaops.hardware.flows import ULX3S, dsp_for_products
from vtaops.hardware.rtl import RtlDesign, RtlParameters, rtl_design
from vtaops.machine.config import TARGETS, Extension, HardwareConfig
from vtaops.program.timing import Sdram, TimingParameters

DEFAULT_CLOCK_MHZ = float(TARGETS["ulx3s"].clock_mhz)
BAUD = TARGETS["ulx3s"].line_baud
"""Bit rate of the UART in bits per second: the maximum of the board's USB chip."""
SIMULATED_BIT_CYCLES = 4
"""Cycles per bit in simulation, where each byte costs simulation time."""
SDRAM = "MT48LC16M16"
"""SDRAM chip whose timing LiteDRAM uses; every ULX3S has this chip or a faster one."""
MEMORY, MEMORY_BYTES = 0x4000_0000, 32 << 20
"""Address of the SDRAM for the host; VTA sees it at address 0."""
REGISTERS = 0x3000_0000
"""Address of VTA's registers for the host."""
MOST_BURSTS = 16
"""Maximum number of VTA bursts in one direction while the other direction waits."""
CRC_POLYNOMIAL = 0xEDB8_8320
"""Polynomial of `zlib.crc32`, with the lowest power in the highest bit."""
IDENTITY_MAGIC = 0x5654_4102
"""First word of the identity: "VTA" and the version of the addresses and their meanings."""

_PAGE = 0x800
PAGES = {"ctrl": 0, "sdram": 1, "link": 2, "identity": 3, "fill": 4, "lanes": 5}
"""Register pages of LiteX, by module."""


def _addresses(module: str, *names: str) -> dict[str, int]:
    base = PAGES[module] * _PAGE
    return {f"{module}_{name}": base + 4 * index for index, name in enumerate(names)}


ADDRESSES = {
    "vta": REGISTERS,
    "memory": MEMORY,
    **_addresses("ctrl", "reset"),
    **_addresses(
        "sdram",
        *("dfii_control", "dfii_pi0_command", "dfii_pi0_command_issue"),
        *("dfii_pi0_address", "dfii_pi0_baddress"),
    ),
    **_addresses("link", "crc"),
    **_addresses("identity", "word0", "word1", "word2", "word3"),
    **_addresses("fill", "base", "length", "enable", "done"),
    **_addresses("lanes", "count", "data"),
}
"""Byte addresses of the registers that the host uses; the generated system must match them."""

_SIZES = (
    *(f"log_{name}_buff_size" for name in ("uop", "inp", "wgt", "acc")),
    *("log_batch", "log_block"),
)
"""Attributes of a configuration in the identity of a design, a byte each."""


@dataclass(frozen=True)
class Ulx3sDesign:
    """Parameters of the design.

    Attributes
    ----------
    config : HardwareConfig
        The configuration of VTA.
    clock_mhz : float
        Clock of VTA, bus and SDRAM.
    device : str
        The board's FPGA.
    simulated : bool
        Build for the virtual board: the same system, with clock and reset as pins.
    multipliers : int, optional
        Number of the GEMM core's multipliers in DSP blocks; the others are built from LUTs. The
        default is as many as the FPGA has left.

    Raises
    ------
    ConfigError
        If the clock is out of range, or the board does not exist.
    """

    config: HardwareConfig
    clock_mhz: float = DEFAULT_CLOCK_MHZ
    device: str = "LFE5U-85F"
    simulated: bool = False
    multipliers: int | None = None

    def __post_init__(self) -> None:
        ULX3S.check_clock(self.clock_mhz, self.config)
        ULX3S.check_part(self.device)

    @property
    def cas_latency(self) -> int:
        """Cycles from a read command to the SDRAM's first word: 2 up to 50 MHz."""
        return 2 if self.clock_mhz <= 50 else 3

    @property
    def sdram_start(self) -> tuple[tuple[str, int], ...]:
        """Initialization sequence from the SDRAM's data sheet: registers and their values."""
        chip, write, column, row = 1, 2, 4, 8
        precharge, refresh, load_mode = chip | write | row, chip | column | row, 15
        all_banks, mode = 1 << 10, self.cas_latency << 4
        steps = ((all_banks, precharge), (0, refresh), (0, refresh), (mode, load_mode))
        settings: list[tuple[str, int]] = [("control", 0x02)]  # enable the chip's clock
        for address, command in steps:
            settings += [("pi0_address", address), ("pi0_baddress", 0)]
            settings += [("pi0_command", command), ("pi0_command_issue", 1)]
        settings.append(("control", 0x01))  # hand over to the controller
        return tuple((f"sdram_dfii_{name}", value) for name, value in settings)

    @property
    def timing(self) -> TimingParameters:
        """Timing of the SDRAM as VTA sees it through LiteDRAM (docs/board.md)."""
        sdram = Sdram(
            cas_latency=self.cas_latency,
            precharge=self._cycles(20),
            activate=self._cycles(20),
            refresh=self._cycles(66),
            refresh_interval=self._cycles(64e6 / 8192),
            most_bursts=MOST_BURSTS,
        )
        return TimingParameters(bandwidth=2.0, dram_latency=16, store_words=40, sdram=sdram)

    def _cycles(self, nanoseconds: float) -> int:
        return math.ceil(nanoseconds * self.clock_mhz / 1000)

    @property
    def baud(self) -> int:
        """Bits per second of the UART; in simulation, the most that it can receive."""
        if self.simulated:
            return round(1e6 * self.clock_mhz / SIMULATED_BIT_CYCLES)
        return BAUD

    @property
    def patience_cycles(self) -> int:
        """Cycles after which the UART bridge drops an incomplete command: 0.1 s."""
        return 200_000 if self.simulated else round(1e5 * self.clock_mhz)

    @property
    def parameters(self) -> RtlParameters:
        """Parameters of the RTL: an 8-byte port, and one product per DSP block."""
        free = dsp_for_products(self.config, ULX3S.parts[self.device])
        wanted = self.config.macs_per_micro_op if self.multipliers is None else self.multipliers
        return RtlParameters(
            port_bytes=ULX3S.port_bytes[0],
            address_bits=32,
            packed_multipliers=False,
            dsp_multipliers=min(wanted, free),
        )

    @property
    def identity(self) -> tuple[int, ...]:
        """Words that identify the design to the host; the inverse is `of_identity`."""
        config = self.config
        extensions = sum(1 << i for i, e in enumerate(Extension) if config.has(e))
        sizes = bytes(getattr(config, name) for name in _SIZES)
        return (
            IDENTITY_MAGIC,
            round(1000 * self.clock_mhz),
            int.from_bytes(sizes[:4], "little"),
            int.from_bytes(sizes[4:], "little") | extensions << 16,
        )

    @classmethod
    def of_identity(cls, words: tuple[int, ...]) -> Ulx3sDesign:
        """Return the design of a board from its `identity`.

        Raises
        ------
        DeviceError
            If it does not belong to this version of vtaops.
        """
        try:
            magic, kilohertz, sizes, geometry = words
            if magic != IDENTITY_MAGIC:
                raise ConfigError(f"its first word is {magic:#x}, not {IDENTITY_MAGIC:#x}")
            numbers = (sizes | geometry << 32).to_bytes(8, "little")
            logs: dict[str, Any] = dict(zip(_SIZES, numbers, strict=False))
            config = HardwareConfig(
                "ulx3s",
                extensions=tuple(e for i, e in enumerate(Extension) if geometry >> 16 + i & 1),
                **logs,
            )
            return cls(config, kilohertz / 1000)
        except ValueError as error:
            raise DeviceError(
                f"the board does not hold a design of this version of vtaops ({error}); "
                f"build and flash it again: vtaops board build ulx3s"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the design as a JSON object."""
        values = asdict(self)
        return values | {"config": self.config.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Ulx3sDesign:
        """Return the design from the result of `to_dict`."""
        return cls(**values | {"config": HardwareConfig.from_dict(values["config"])})

    def rtl(self) -> RtlDesign:
        """Return the RTL of VTA in its AXI shell."""
        return rtl_design(self.config, self.parameters, axi=True)
