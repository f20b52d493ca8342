"""Generate the SystemVerilog package with everything that depends on a configuration.

Bit positions come from `vtaops.machine.isa.Encoding`, sizes from `HardwareConfig`; the modules in
``sim/tsim`` import the package and contain no such numbers. This file also defines the parameters
of the RTL that are not part of the ISA (port width, queue depths).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import accumulate
from pathlib import Path

from vtaops.base.data import data_directory
from vtaops.base.errors import ConfigError
from vtaops.base.fixed_point import BASES, FINE_BITS, FINE_SHIFTS, MULTIPLIER_BITS, NUDGE_STEP
from vtaops.base.shapes import ceil_div
from vtaops.hardware.performance import COUNTERS
from vtaops.machine import isa
from vtaops.machine.config import (
    INSTRUCTION_BYTES,
    PORT_BYTES,
    WINDOW_PARTS,
    WINDOW_TILES,
    Extension,
    HardwareConfig,
    Memory,
)
from vtaops.program.timing.parameters import TimingParameters
from vtaops.program.timing.pipeline import compute_depth, gemm_stages, post_stages, tree_stages

TOP_MODULE = "vta"
AXI_TOP_MODULE = "vta_axi"
AXI_BURST_BEATS = 256
PACKAGE = "vta_pkg"

FAULTS = {
    "dispatch": "the opcode or the memory of an instruction is not defined by the ISA",
    "load": "LOAD writes beyond the end of its scratchpad, pads a table, or forwards from beyond "
    "the output scratchpad or to another memory than that of the inputs",
    "compute": "LOAD UOP or LOAD ACC writes beyond the end of its scratchpad",
    "store": "STORE reads beyond the end of the output scratchpad",
    "token_overflow": "a token queue overflowed",
    "early_finish": "FINISH executed before all other instructions were complete",
    "memory_error": "the memory answered an access with an error",
}
"""Bits of the fault register, from the lowest: name in the RTL -> meaning."""

EVENT_BITS = 5
"""Width of the increment of a counter per cycle: at most the 16 elements of a port word."""


@dataclass(frozen=True)
class RtlParameters:
    """Parameters of the RTL that do not affect programs.

    Attributes
    ----------
    port_bytes : int
        Width of the DRAM port: 8, 16, 32 or 64 bytes per cycle, in each direction.
    burst_beats : int
        Longest burst, in port words (a power of two; AXI3 allows 16).
    outstanding : int
        Maximum number of read bursts in flight.
    load_buffer_beats : int
        Maximum number of port words that a load unit can have in flight. Below the latency of
        the DRAM in cycles, loads cannot use the full bandwidth.
    command_depth : int
        Capacity of the instruction queue in front of each unit.
    token_capacity : int
        Capacity of a token queue.
    address_bits : int
        Width of a DRAM byte address.
    dsp_multipliers : int or None
        Number of the GEMM core's multipliers that use DSP blocks of an FPGA; the others are
        built from LUTs. None for all.
    packed_multipliers : bool
        Whether a DSP block computes two products, those of one input with the weights of two
        adjacent output channels (``gemm_core.sv``), instead of one.
    performance_counters : bool
        Include the performance counters of `TsimPerformance`; without them a device cannot
        report cycles by cause. Cycles, faults and tokens are counted in any case.

    Raises
    ------
    ConfigError
        If a value is not supported.
    """

    port_bytes: int = 8
    burst_beats: int = TimingParameters.burst_beats
    outstanding: int = TimingParameters.outstanding
    load_buffer_beats: int = TimingParameters.load_window
    command_depth: int = TimingParameters.command_depth - 2  # the queue's output registers
    token_capacity: int = 1024
    address_bits: int = 40
    dsp_multipliers: int | None = None
    packed_multipliers: bool = True
    performance_counters: bool = True

    def __post_init__(self) -> None:
        if self.port_bytes not in PORT_BYTES:
            raise ConfigError(f"port_bytes is {self.port_bytes}; it must be 8, 16, 32 or 64")
        for name in ("burst_beats", "load_buffer_beats", "command_depth"):
            value = getattr(self, name)
            if value < 2 or value & (value - 1):
                raise ConfigError(f"{name} is {value}; it must be a power of two of at least 2")
        if self.burst_beats * self.port_bytes > 4096:
            raise ConfigError(
                f"a burst of {self.burst_beats} x {self.port_bytes} bytes exceeds the 4096 bytes "
                "that an AXI burst may span"
            )
        if self.load_buffer_beats < 2 * self.burst_beats:
            raise ConfigError(
                f"load_buffer_beats is {self.load_buffer_beats}; two bursts need "
                f"{2 * self.burst_beats}"
            )
        for name, low, high in (
            ("outstanding", 1, 256),
            ("token_capacity", 1, 1 << 16),
            ("address_bits", 32, 48),
            ("dsp_multipliers", 0, 1 << 24),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be in {low}..{high}")


def sources() -> list[Path]:
    """Return the SystemVerilog files of the RTL, packages first, except the generated one."""
    files = data_directory("sim/tsim").glob("*.sv")
    return sorted(files, key=lambda path: (not path.stem.endswith("_pkg"), path.name))


def axi_sources() -> list[Path]:
    """Return the files of the AXI shell around the RTL: SystemVerilog and the Verilog top."""
    folder = data_directory("sim/tsim/axi")
    return [*sorted(folder.glob("*.sv")), folder / f"{AXI_TOP_MODULE}.v"]


@dataclass(frozen=True)
class RtlDesign:
    """The RTL of one configuration.

    Attributes
    ----------
    files : dict
        File name -> content, packages first.
    top : str
        Name of the top module.
    values : dict
        Values of the top module's parameters.
    """

    files: dict[str, bytes]
    top: str
    values: dict[str, int]

    def write(self, folder: Path) -> None:
        """Write the files to a folder."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


def rtl_design(config: HardwareConfig, parameters: RtlParameters, axi: bool) -> RtlDesign:
    """Return the RTL of a configuration, with or without its AXI shell.

    Raises
    ------
    ConfigError
        If these parameters are not supported.
    """
    if axi and parameters.burst_beats > AXI_BURST_BEATS:
        raise ConfigError(
            f"burst_beats is {parameters.burst_beats}; an AXI4 burst has at most {AXI_BURST_BEATS} "
            "words"
        )
    files = {f"{PACKAGE}.sv": systemverilog_package(config, parameters).encode()}
    for path in (*sources(), *(axi_sources() if axi else [])):
        files[path.name] = path.read_bytes()
    if not axi:
        return RtlDesign(files, TOP_MODULE, {})
    values = {"PORT_BYTES": parameters.port_bytes, "ADDRESS_BITS": parameters.address_bits}
    return RtlDesign(files, AXI_TOP_MODULE, values)


def harness(axi: bool = False) -> list[Path]:
    """Return the C++ files that drive the model and simulate DRAM; the first includes the rest."""
    folder = data_directory("sim/tsim")
    port = "axi/axi_port.h" if axi else "bare_port.h"
    return [folder / name for name in ("harness.cpp", "dram.h", port)]


def systemverilog_package(config: HardwareConfig, parameters: RtlParameters) -> str:
    """Return the text of the package ``vta_pkg`` for one configuration.

    Parameters
    ----------
    config : HardwareConfig
        The configuration, which determines geometry and field widths.
    parameters : RtlParameters
        Port width, queue depths and the like.

    Raises
    ------
    ConfigError
        If the port is too wide for a scratchpad of this configuration.
    """
    check_depths(config, parameters.port_bytes)
    sections = (
        [f"// Generated for {config.bitstream_id} by vtaops.hardware.rtl: do not edit."],
        ["/* verilator lint_off UNUSEDPARAM */", f"package {PACKAGE};"],
        _constants(config, parameters),
        *(
            _instruction(config, cls)
            for cls in (*isa.INSTRUCTIONS, *isa.EXTENSION_INSTRUCTIONS.values())
        ),
        _post_slot(config),
        _record("events_t", dict.fromkeys(COUNTERS, EVENT_BITS)),
        _record("faults_t", dict.fromkeys(FAULTS, 1)),
        _struct(
            "micro_op_t", _places(isa.Encoding.of(config).slots[isa.MicroOp]), isa.MICRO_OP_BITS
        ),
        _memory_functions(config, parameters),
        ["endpackage", "/* verilator lint_on UNUSEDPARAM */", ""],
    )
    return "\n".join(line for section in sections for line in section)


def check_depths(config: HardwareConfig, port_bytes: int) -> None:
    """Raise `ConfigError` if the port is too wide, or a window too large, for a scratchpad."""
    for pad, element in (
        (config.uop, config.uop.element_bytes),
        (config.inp, config.inp.element_bytes),
        (config.wgt, config.wgt.element_bytes),
        (config.acc, config.out.element_bytes),  # LOAD ACC_8BIT and STORE move output elements
    ):
        slots = port_bytes // element
        if pad.depth <= slots:
            raise ConfigError(
                f"a port word of {port_bytes} bytes holds {slots} elements of "
                f"{pad.memory.name}, whose scratchpad has only {pad.depth}; choose a narrower port"
            )
    config.check_nibbles(port_bytes)
    _check_banks(config)


def _check_banks(config: HardwareConfig) -> None:
    forwards, reads = config.forwards_per_cycle, _reads(config, 1, 1)
    for name, key, pad, banks, extensions in (
        ("micro-op", "UOP", config.uop, reads["UOP_BANKS"], "'pairs'"),
        ("input", "INP", config.inp, forwards, "'forward'"),
        ("output", "ACC", config.out, forwards, "'forward'"),
        ("input", "INP", config.inp, reads["INP_BANKS"], "'depthwise' or 'pool'"),
    ):
        if pad.depth <= banks > 1:
            raise ConfigError(
                f"the {name} scratchpad has {pad.depth} elements; with the extension {extensions} "
                f"it has {banks} banks and needs more (increase LOG_{key}_BUFF_SIZE)"
            )


WINDOW_BANKS = 4
"""Number of banks of the input scratchpad, a power of two, if windows of three tiles are read."""

MICRO_OP_BANKS = 4
"""The same of the micro-op scratchpad with the extension ``pairs``, which reads three at once."""


def reads_windows(config: HardwareConfig) -> bool:
    """Return whether the configuration reads three input tiles at once."""
    return config.has(Extension.DEPTHWISE) or config.has(Extension.POOL)


def _log2(value: int) -> int:
    return value.bit_length() - 1


def _scratchpads(config: HardwareConfig, port: int) -> dict[str, int]:
    """Return the sizes of each scratchpad, and how its elements lie in port words."""
    names = ("UOP", "INP", "WGT", "ACC", "OUT", "POST", "TABLE")
    values = {}
    for name in names:
        memory = config.scratchpad(Memory[name])
        values[f"{name}_BYTES"] = memory.element_bytes
        values[f"{name}_BITS"] = memory.element_bytes * 8
        values[f"{name}_DEPTH"] = memory.depth
        values[f"{name}_INDEX_BITS"] = memory.log_depth
        # Elements, and parts of an element, per port word.
        values[f"{name}_SLOTS"] = max(1, port // memory.element_bytes)
        values[f"{name}_PARTS"] = max(1, memory.element_bytes // port)
    values["FORWARD_TILES"] = config.forwards_per_cycle
    values["FORWARD_BITS"] = max(1, config.forwards_per_cycle) * values["INP_BITS"]
    values["WORD_SLOTS"] = max(values["FORWARD_TILES"], *(values[f"{n}_SLOTS"] for n in names))
    return values


def _reads(config: HardwareConfig, uop_slots: int, inp_slots: int) -> dict[str, int]:
    """Return how many elements of a scratchpad are read at once, and the banks that this needs.

    A port word holds `uop_slots` micro-ops and `inp_slots` input tiles.
    """
    # A pair is compared with the micro-op behind it.
    micro_ops, micro_op_banks = (3, MICRO_OP_BANKS) if config.has(Extension.PAIRS) else (1, 1)
    tiles, banks = (WINDOW_TILES, WINDOW_BANKS) if reads_windows(config) else (1, 1)
    return {
        "UOP_READS": micro_ops,
        "UOP_BANKS": max(uop_slots, micro_op_banks),
        "WINDOW_PARTS": WINDOW_PARTS,
        "INP_READS": tiles,
        "INP_BANKS": max(inp_slots, banks, config.forwards_per_cycle),
        "INP_GROUPS": WINDOW_PARTS if config.has(Extension.DEPTHWISE) else 1,  # of the GEMM core
    }


def _constants(config: HardwareConfig, parameters: RtlParameters) -> list[str]:
    port = parameters.port_bytes
    widest = max(config.scratchpad(memory).element_bytes for memory in config.memories)
    values = {
        "BATCH": config.batch,
        "BLOCK_IN": config.block_in,
        "BLOCK_OUT": config.block_out,
        "INP_WIDTH": 1 << config.log_inp_width,
        "WGT_WIDTH": 1 << config.log_wgt_width,
        "ACC_WIDTH": 1 << config.log_acc_width,
        "OUT_WIDTH": 1 << config.log_inp_width,
        "ACC_LANES": config.acc.lanes,
        "SRC_BITS": max(config.acc.log_depth, config.inp.log_depth),
        "PORT_BYTES": port,
        "PORT_BITS": port * 8,
        "BURST_BEATS": parameters.burst_beats,
        "BEATS_BITS": _log2(parameters.burst_beats) + 1,
        "OUTSTANDING": parameters.outstanding,
        "LOAD_BUFFER_BEATS": parameters.load_buffer_beats,
        "COMMAND_DEPTH": parameters.command_depth,
        "TOKEN_CAPACITY": parameters.token_capacity,
        "ADDR_BITS": parameters.address_bits,
        "DSP_MULTIPLIERS": _multipliers(config, parameters),
        "PACKED_MULTIPLIERS": int(parameters.packed_multipliers),
        "TREE_STAGES": tree_stages(config),
        "GEMM_STAGES": gemm_stages(config),
        "COMPUTE_DEPTH": compute_depth(config),
        "POST_STAGES": post_stages(config),
        "POST_MULTIPLIER_BITS": FINE_BITS if config.has(Extension.EXACT) else MULTIPLIER_BITS,
        "FINE_SHIFT": FINE_SHIFTS.start,
        "NUDGE_STEP": NUDGE_STEP,
        "LOG_NUDGE_BASE": BASES[2].bit_length() - 1,
        "POST_ROW_BITS": config.post.log_depth - 1,
        "READ_CLIENTS": 3,
        "CLIENT_BITS": 2,
        "INSN_BITS": INSTRUCTION_BYTES * 8,
        "INSN_BYTES": INSTRUCTION_BYTES,
        "SRAM_BITS": 16,
        "PART_BITS": max(1, _log2(max(widest // port, 2))),
        **_extension_bits(config),
        "HAS_COUNTERS": int(parameters.performance_counters),
        "HAS_WEIGHT_PORT": config.weight_port,
        "HAS_SPLIT_PORT": config.split_port,
        "COUNTERS": len(COUNTERS),
        "EVENT_BITS": EVENT_BITS,
    }
    values |= _scratchpads(config, port)
    values |= _reads(config, values["UOP_SLOTS"], values["INP_SLOTS"])
    lines = [f"    localparam int {name} = {value};" for name, value in values.items()]
    codes = {f"{p}_{member.name}": member.value for p, members in _CODES for member in members}
    codes["ALU_LAST"] = max(isa.AluOp).value
    return lines + [f"    localparam logic [2:0] {name} = 3'd{v};" for name, v in codes.items()]


_CODES: tuple[tuple[str, type[IntEnum]], ...] = (
    ("OP", isa.Opcode),
    ("MEM", Memory),
    ("ALU", isa.AluOp),
)
"""The codes of the instruction set, with the beginning of their names."""


def _multipliers(config: HardwareConfig, parameters: RtlParameters) -> int:
    """Return how many multipliers are in DSP blocks."""
    most = config.macs_per_micro_op
    if parameters.packed_multipliers:
        most = config.batch * config.block_in * ceil_div(config.block_out, 2)
    stated = parameters.dsp_multipliers
    return most if stated is None else min(most, stated)


def _extension_bits(config: HardwareConfig) -> dict[str, int]:
    """Return whether the configuration has each extension, and the positions of its bits."""
    bits = {f"HAS_{e.name}": int(config.has(e)) for e in Extension}
    for cls in (*isa.INSTRUCTIONS, *isa.EXTENSION_INSTRUCTIONS.values()):
        offsets = {slot.name: slot.offset for slot in isa.Encoding.of(config).slots.get(cls, ())}
        for f in fields(cls):
            if f.metadata["extension"]:
                name = f"{f.name.upper()}_BIT"
                bits[name] = max(bits.get(name, 0), offsets.get(f.name, 0))
    return bits


def _struct(name: str, fields: Iterable[tuple[int, int, str]], total: int) -> list[str]:
    """Return a packed struct of (offset, width, name), most significant first, gaps filled."""
    lines: list[str] = []
    position = 0
    for offset, width, member in [*sorted(fields), (total, 0, "")]:
        if offset > position:
            lines.append(f"        logic [{offset - position - 1}:0] unused_{position};")
        if width:
            lines.append(f"        logic [{width - 1}:0] {member};")
        position = offset + width
    return ["    typedef struct packed {", *lines[::-1], f"    }} {name};"]


def _record(name: str, widths: dict[str, int]) -> list[str]:
    """Return a packed struct whose first member has the lowest bits."""
    offsets = accumulate(widths.values(), initial=0)
    fields = [(next(offsets), width, member) for member, width in widths.items()]
    return _struct(name, fields, sum(widths.values()))


def _places(slots: Iterable[isa.Slot]) -> list[tuple[int, int, str]]:
    return [(slot.offset, slot.width, slot.name) for slot in slots]


def _instruction(config: HardwareConfig, cls: type[isa.Instruction]) -> list[str]:
    fields = [(0, isa.OPCODE_BITS, "opcode"), *_places(isa.slots_of(cls, config))]
    return _struct(f"{cls.__name__.lower()}_t", fields, 2 * isa.WORD_BITS)


def _post_slot(config: HardwareConfig) -> list[str]:
    """Return the fields of POST that accompany a pipeline step: all except the factors."""
    common = {f.name for f in fields(isa.Instruction)} | {"row_factor_out", "row_factor_in"}
    slots = [slot for slot in isa.slots_of(isa.Post, config) if slot.name not in common]
    # Fields of absent extensions are 0.
    extended = {"use_table": 1, "table_index": config.table.log_depth, "fine": 2}
    return _record("post_slot_t", {**{slot.name: slot.width for slot in slots}, **extended})


def _memory_functions(config: HardwareConfig, parameters: RtlParameters) -> list[str]:
    """Return functions of a memory identifier: the layout of its elements in DRAM and in SRAM."""
    port = parameters.port_bytes
    sizes = {memory: config.dram_element_bytes(memory) for memory in config.memories}
    per_beat = [max(1, port // size) for size in sizes.values()]
    last_beats = [max(1, size // port) - 1 for size in sizes.values()]
    lines: list[str] = []
    for name, bits, width, values in (
        ("log_element_bytes", "3", "4", [_log2(n) for n in sizes.values()]),
        ("log_elements_per_beat", "3", "4", [_log2(n) for n in per_beat]),
        ("last_beat_of_element", "PART_BITS-1", "PART_BITS", last_beats),
        ("scratchpad_depth", "16", "17", [config.scratchpad(m).depth for m in sizes]),
    ):
        cases = zip(sizes, values, strict=True)
        lines += [
            f"    function automatic logic [{bits}:0] {name}(input logic [2:0] memory);",
            "        case (memory)",
            *(f"            MEM_{m.name}: {name} = {width}'({value});" for m, value in cases),
            f"            default: {name} = {width}'(0);",
            "        endcase",
            "    endfunction",
        ]
    return lines
