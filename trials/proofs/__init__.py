"""Properties of blocks of the RTL, proven for all inputs and all times, by induction.

The properties stand in this folder. Yosys translates block and properties to a SAT problem
and proves: they hold after reset, and if they hold for some cycles they hold in the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vtaops import HardwareConfig
from vtaops.hardware.rtl import axi_sources, sources
from vtaops.hardware.synthesis import READ_SLANG, execute_yosys
from vtaops.runtime.tsim import RtlParameters, systemverilog_package

FOLDER = Path(__file__).parent
PACKAGE = systemverilog_package(
    HardwareConfig.load("tiny"), RtlParameters(burst_beats=4, command_depth=2, load_buffer_beats=16)
)
BLOCKS = {path.stem: path.read_text() for path in [*sources(), *axi_sources()]}
CORE_PORTS = BLOCKS["vta"].partition("\n);")[0] + "\n);\nendmodule\n"
"""The whole but its content."""

USES = {
    "row_cut": ("stream_pkg",),
    "burst_generator": ("stream_pkg", "row_cut"),
    "burst_credit": ("stream_pkg",),
    "dram_port": ("stream_pkg",),
    "fetch": ("stream_pkg", "fifo", "row_cut", "burst_generator", "burst_credit"),
    "tensor_load": ("stream_pkg", "fifo", "row_cut", "burst_generator", "burst_credit"),
    "compute_load": (
        "stream_pkg",
        "fifo",
        "row_cut",
        "burst_generator",
        "burst_credit",
        "tensor_load",
    ),
    "compute_decode": (
        "stream_pkg",
        "fifo",
        "row_cut",
        "command_queue",
        "compute_issue",
        "micro_op_sequencer",
    ),
    "scratchpad": ("stream_pkg", "sram", "banked_sram"),
    "axi_words": ("fifo",),
    "axi_shell": ("stream_pkg", "fifo", "axi_bursts", "axi_words", "axi_control", "vta"),
}
"""Block -> the files that it needs beside its own."""

PROVEN: tuple[tuple[str, dict[str, int]], ...] = (
    ("token_queue", {"CAPACITY": 1}),
    ("token_queue", {"CAPACITY": 5}),
    ("token_queue", {"CAPACITY": 1024}),
    ("fifo", {"DEPTH": 2, "WIDTH": 8}),
    ("fifo", {"DEPTH": 4, "WIDTH": 8}),
    ("fifo", {"DEPTH": 8, "WIDTH": 4}),
    ("burst_generator", {}),
    ("burst_generator", {"AHEAD": 0}),
    ("row_cut", {}),
    ("burst_credit", {}),
    ("dram_port", {}),
    ("fetch", {}),
    ("tensor_load", {}),
    ("compute_load", {}),
    ("compute_decode", {}),
    ("scratchpad", {}),
    ("scratchpad", {"SLOTS": 1}),
    ("scratchpad", {"SLOTS": 1, "READ_SLOTS": 3, "BANKS": 4}),
    ("scratchpad", {"SLOTS": 1, "READ_SLOTS": 3, "BANKS": 4, "HOLD": 2}),
    ("scratchpad", {"SLOTS": 1, "READ_SLOTS": 3, "BANKS": 4, "HOLD": 2, "WHOLE": 2}),
    ("scratchpad", {"HOLD": 2}),
    ("axi_bursts", {"LIMIT": 5}),
    ("axi_bursts", {"LIMIT": 32}),
    ("axi_halves", {}),
    ("axi_halves", {"HALF": 8}),
    ("axi_words", {}),
    ("axi_words", {"LENGTH_BITS": 5}),  # bursts of 16 words, as in the hardware
    ("axi_control", {}),
    ("axi_shell", {}),
)
"""Blocks and parameters with which they are proven."""

INDUCTION = dict.fromkeys(
    ("burst_generator", "dram_port", "tensor_load", "compute_load", "compute_decode", "fetch"), 1
)
"""Block -> cycles of induction with which it is proven, where more take long to refute."""


def prove(block: str, text: str, folder: Path, cycles: int = 4, **parameters: int) -> None:
    """Prove the properties of a block with induction over at most `cycles` cycles.

    Raises
    ------
    DeviceError
        If they do not hold, or cannot be proven.
    """
    _write(block, folder)
    (folder / f"{block}.sv").write_text(text)
    execute_yosys(_proof(block, block, cycles, "-verify", parameters), folder)


def refute(block: str, texts: Sequence[str], folder: Path, **parameters: int) -> None:
    """Find that the properties hold for none of some texts of a block, one after the other.

    Raises
    ------
    DeviceError
        If one is proven.
    """
    _write(block, folder)
    scripts = []
    for number, text in enumerate(texts):
        (folder / f"{block}_{number}.sv").write_text(text)
        scripts.append(_proof(block, f"{block}_{number}", 3, "-falsify", parameters))
    execute_yosys("; design -reset; ".join(scripts), folder)


def _write(block: str, folder: Path) -> None:
    """Write what the proof of a block reads beside its text."""
    (folder / "vta_pkg.sv").write_text(PACKAGE)
    for name in USES.get(block, ()):
        (folder / f"{name}.sv").write_text(CORE_PORTS if name == "vta" else BLOCKS[name])
    for path in (FOLDER / f"{block}_proof.sv", FOLDER / "begins_right.svh"):
        (folder / path.name).write_text(path.read_text())


def _proof(block: str, file: str, cycles: int, wanted: str, parameters: Mapping[str, int]) -> str:
    """Return the commands for Yosys that prove a block whose text is in a file."""
    top = f"{block}_proof"
    names = " ".join(f"{name}.sv" for name in ("vta_pkg", *USES.get(block, ()), file, top))
    values = " ".join(f"-G {name}={value}" for name, value in parameters.items())
    steps = INDUCTION.get(block, cycles)
    return (
        f"{READ_SLANG} --blackboxed-module vta --top {top} {values} {names}; "
        # Outputs of a core that is taken out are inputs of the proof: anything.
        f"hierarchy -check -top {top}; proc; flatten; delete t:vta*; setundef -undriven -expose; "
        "opt -full; memory -nomap; memory_map; "
        "opt -full; async2sync; dffunmap; chformal -lower; opt -full; "
        # -seq 1: in the first cycle, the one of the reset, nothing is claimed.
        f"sat -tempinduct -prove-asserts -set-assumes -seq 1 -maxsteps {steps} {wanted} {top}"
    )
