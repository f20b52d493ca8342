"""HardwareConfig: the build parameters of one VTA instance.

Reads upstream VTA's JSON configurations (same keys), derives the geometry of tiles and scratchpads,
and rejects whatever the instruction set cannot express. Immutable; every other room takes its sizes
from here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from vtaops.base.data import data_directory
from vtaops.base.errors import ConfigError, raising
from vtaops.base.files import is_file, read_file
from vtaops.base.names import checked_call, checked_init, suggestion
from vtaops.base.quoting import is_plain_name

ISA_VERSION = "0.0.2"

NETWORK_CONFIG = "pynq_ext"
"""The configuration of networks where none is named: hardware with all that networks use.

Operators have "pynq", the published VTA.
"""
"""Version of the instruction set that vtaops encodes (3-bit memory and ALU opcodes)."""

INSTRUCTION_BYTES = 16
MICRO_OP_BYTES = 4
DRAM_BYTES = 1 << 32
"""Bytes that instructions and registers address."""

PORT_BYTES = (8, 16, 32, 64)
"""Possible widths of a DRAM port."""
LEAST = -128
"""The least value of an int8 lane, neutral for a maximum."""
PAGE_BYTES = 4096
"""DRAM allocations are aligned to this; no tile may be larger."""


class Memory(IntEnum):
    """Memory identifiers of LOAD and STORE instructions."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5
    POST = 6
    TABLE = 7


Own = TypeVar("Own", bound="Trait")


class Trait(str, Enum):
    """What some hardware has, by its name in files and commands, and what it does.

    Attributes
    ----------
    summary : str
        What it does.
    """

    summary: str

    def __new__(cls: type[Own], name: str, summary: str = "") -> Own:
        trait = str.__new__(cls, name)
        trait._value_, trait.summary = name, summary
        return trait

    __str__, __repr__ = str.__str__, str.__repr__

    @classmethod
    def listed(cls: type[Own], key: str, names: Any) -> tuple[Own, ...]:
        """Return the members of these names, in alphabetical order.

        Raises
        ------
        ConfigError
            If it is no list of names; the message calls it `key`.
        """
        if not isinstance(names, list | tuple) or any(n not in list(cls) for n in names):
            raise ConfigError(f"{key} is {names!r}; it must be a list of some of {', '.join(cls)}")
        return tuple(map(cls, sorted(names)))


class Extension(Trait):
    """Extensions of our hardware beyond upstream's instruction set; docs/isa.md describes each."""

    POST = "post", "results are scaled, rounded and clipped on their way to the output memory"
    OVERWRITE = "overwrite", "a GEMM may overwrite its accumulators, which saves the reset pass"
    DEPTHWISE = (
        "depthwise",
        "products of windows of three tiles, for convolutions with few channels per group",
    )
    POOL = "pool", "the maximum of up to three adjacent input tiles per step, for max pools"
    FORWARD = "forward", "a LOAD may take input tiles from the output memory instead of from DRAM"
    PAIRS = (
        "pairs",
        "two adjacent products of one accumulator per step, by an array at twice the clock",
    )
    TABLE = (
        "table",
        "a table of 256 values maps post-processed results: any function of an int8 (post)",
    )
    EXACT = (
        "exact",
        "24-bit multipliers, and rounding that depends on the sign, like TFLite's (post)",
    )
    NIBBLES = "nibbles", "a LOAD may expand weights of four bits, of which DRAM holds two in a byte"


POST_ROWS = 32
"""Rows of post-processing parameters: a bias and a scale tile each, for the channels of a tile."""

TABLES = 2
"""Tables of the extension ``table``: one is active while the other is loaded."""

TABLE_VALUES = 256
"""Entries of a table: one for each int8 value."""

WINDOW_TILES = 3
"""Neighbouring input tiles that one step of ``depthwise`` reads, and the maximum for ``pool``."""

WINDOW_PARTS = 4
"""Parts of a weight row: one for each tile of a window, and an unused one. A step mixes
``block_in / WINDOW_PARTS`` channels."""


@dataclass(frozen=True)
class BoardTarget:
    """Properties of the board (or simulator) that carries a VTA instance.

    Attributes
    ----------
    clock_mhz : int
        Frequency of the programmable logic.
    bus_bits : int
        Width of the AXI data bus, in bits.
    device : str
        Part number of the FPGA; empty for a simulator.
    register_base : int
        Physical byte address of the first page of control registers; 0 for a simulator.
    line_baud : int
        Baud rate of the serial line through which the host accesses DRAM; 0: shared DRAM.
    no_driver : str
        Why vtaops has no driver for the device; its programs run only on simulators.
    """

    clock_mhz: int
    bus_bits: int
    device: str
    register_base: int = 0
    line_baud: int = 0
    no_driver: str = ""


TARGETS = {
    "sim": BoardTarget(100, 64, ""),
    "tsim": BoardTarget(100, 64, ""),
    "pynq": BoardTarget(100, 64, "xc7z020clg484-1", 0x43C0_0000),
    "ultra96": BoardTarget(333, 128, "xczu3eg-sbva484-1-e", 0xA000_0000),
    "zcu104": BoardTarget(333, 128, "xczu7ev-ffvc1156-2-e", 0xA000_0000),
    "kv260": BoardTarget(150, 128, "xck26-sfvc784-2LV-c", 0xA000_0000),
    "aup_zu3": BoardTarget(150, 128, "xczu3eg-sfvc784-2-e", 0xA000_0000),
    "de10nano": BoardTarget(
        100, 64, "5CSEBA6U23I7", no_driver="upstream's Chisel design has other registers there"
    ),
    "intelfocl": BoardTarget(100, 64, "", no_driver="it is reached through Intel's OpenCL"),
    "ulx3s": BoardTarget(65, 64, "LFE5U-85F-6BG381C", line_baud=3_000_000),
}
"""Targets by value of the TARGET key. Frequencies, buses and addresses are those of upstream's
boards; kv260, aup_zu3 and ulx3s are ours. A ULX3S has no processor that maps registers."""

PORT_MHZ = {"pynq": 250, "ultra96": 333, "zcu104": 333, "kv260": 333, "aup_zu3": 333}
"""Fastest clock of an AXI port of the processing system, by target: AMD's data sheets DS187 (a 7020
of grade -1) and DS925 (grades -1 and -2), which is taken for the K26 of a KV260, too."""


@dataclass(frozen=True)
class Scratchpad:
    """One on-chip memory, addressed in whole elements (tiles).

    Attributes
    ----------
    memory : Memory
        Its identifier in LOAD and STORE instructions.
    shape : tuple of int
        Shape of one element; ``()`` for a micro-op.
    dtype : str
        NumPy dtype of the lanes.
    nbytes : int
        Size in bytes.
    """

    memory: Memory
    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    @cached_property
    def element_bytes(self) -> int:
        """Bytes of one element, in SRAM and in DRAM."""
        return self.lanes * (1 if self.dtype == "int8" else 4)

    @cached_property
    def depth(self) -> int:
        """Number of elements."""
        return self.nbytes // self.element_bytes

    @property
    def log_depth(self) -> int:
        """Base-2 logarithm of the depth: the width of an index into this scratchpad, in bits."""
        return self.depth.bit_length() - 1

    @property
    def lanes(self) -> int:
        """Number of lanes (scalars) of one element."""
        return prod(self.shape)


def _key(attribute: str) -> str:
    return attribute.upper()


_ALLOWED: dict[str, tuple[Sequence[int], str]] = {
    "log_inp_width": ((3,), "3: vtaops computes int8 x int8 -> int32"),
    "log_wgt_width": ((3,), "3: vtaops computes int8 x int8 -> int32"),
    "log_acc_width": ((5,), "5: vtaops computes int8 x int8 -> int32"),
    "port_bytes": ((0, *PORT_BYTES), "0, 8, 16, 32 or 64"),
    "weight_port": ((0, 1), "0 or 1"),
    "split_port": ((0, 1), "0 or 1"),
}
"""Values of numbers that few are right for, and in words; all others are 0..30."""

_IGNORED_KEYS = frozenset({"HW_FREQ", "HW_CLK_TARGET"})
"""Keys of upstream's historic configurations that have had no effect since 2019."""


@checked_init
@dataclass(frozen=True, repr=False)
class HardwareConfig:
    """Parameters of one VTA instance, as in upstream's ``vta_config.json``.

    All ``log_*`` values are base-2 logarithms; widths are in bits, buffer sizes in bytes.
    Construct it with keywords, with `from_dict`, or by name with `load`.

    Attributes
    ----------
    target : str
        ``TARGET``: one of `TARGETS`.
    hw_ver : str
        ``HW_VER``: version of the hardware design; part of the path of a bitstream only.
    log_inp_width, log_wgt_width, log_acc_width : int
        Widths of an input, weight and accumulator lane: 3, 3, 5 (int8 x int8 -> int32).
    log_batch, log_block : int
        Rows of a tile, and input and output channels of a tile.
    log_uop_buff_size, log_inp_buff_size, log_wgt_buff_size, log_acc_buff_size : int
        Sizes of the scratchpads.
    extensions : tuple of Extension
        ``EXTENSIONS``: those that the hardware has, also by name, kept in alphabetical order;
        upstream's configurations have none. A program for one set runs on no other.
    port_bytes : int
        ``PORT_BYTES``: bytes of a word of the DRAM port, 8, 16, 32 or 64; 0: those of the board's
        bus (`port_width`). A board brings twice its bus at the array's clock (``pairs``).
    weight_port : int
        ``WEIGHT_PORT``: 1 if what the load unit reads beside inputs (weights, parameters of `post`,
        tables) has a DRAM port of its own, as wide as the other; programs do not depend on it.
    split_port : int
        ``SPLIT_PORT``: 1 if the AXI shell divides each burst between two masters, each of which
        reaches the DRAM through a port of its own; programs do not depend on it.
    name : str
        Name of the configuration (file name without suffix); not compared.

    Raises
    ------
    ConfigError
        If a value is out of range or violates a packing rule of the ISA; the message states the
        inequality with its numbers.
    """

    target: str = "sim"
    hw_ver: str = ISA_VERSION
    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff_size: int = 15
    log_inp_buff_size: int = 15
    log_wgt_buff_size: int = 18
    log_acc_buff_size: int = 17
    extensions: tuple[Extension | str, ...] = ()
    port_bytes: int = 0
    weight_port: int = 0
    split_port: int = 0
    name: str = field(default="custom", compare=False)

    def __post_init__(self) -> None:
        extensions = Extension.listed("EXTENSIONS", self.extensions)
        if len(set(extensions)) < len(extensions):
            raise ConfigError(f"EXTENSIONS is {self.extensions!r}; it names one more than once")
        object.__setattr__(self, "extensions", extensions)
        self._check_types()
        self.check_nibbles(self.port_width)
        self._check_needs()
        self._check_geometry()
        self._check_packing()

    # ------------------------------------------------------------------ reading

    @classmethod
    @checked_call
    def of(cls, source: HardwareConfig | str | Path) -> HardwareConfig:
        """Return a configuration unchanged, or `load` it by name or file."""
        return source if isinstance(source, HardwareConfig) else cls.load(source)

    @classmethod
    @checked_call
    def load(cls, source: str | Path) -> HardwareConfig:
        """Load a configuration by name (``"pynq"``) or from a JSON file.

        Raises
        ------
        ConfigError
            If the name is unknown, the file is not JSON, or its content is invalid.
        """
        if not isinstance(source, str | Path):
            raise ConfigError(f"a configuration is {source!r}; give its name or a .json file")
        path = Path(source)
        if path.suffix != ".json" or not is_file(path):
            directory = data_directory("hw_configs")
            path = directory / f"{source}.json"
            if not is_file(path):
                known, hint = ", ".join(cls.names()), suggestion(source, cls.names())
                raise ConfigError(
                    f"no hardware configuration {str(source)!r}{hint}: give one of {known}, "
                    f"or the path of an existing .json file"
                )
        text = f"cannot read {path} as JSON"
        with raising(ConfigError, text, OSError, ValueError, RecursionError):
            values = json.loads(read_file(path).decode("utf-8"))
        if not isinstance(values, dict):
            raise ConfigError(
                f"{path} holds a JSON {type(values).__name__}; a configuration is an object"
            )
        return cls.from_dict(values, name=path.stem)

    @classmethod
    def names(cls) -> list[str]:
        """Names of the configurations that vtaops ships."""
        return sorted(path.stem for path in data_directory("hw_configs").glob("*.json"))

    @classmethod
    @checked_call
    def from_dict(cls, values: dict[str, Any], name: str = "custom") -> HardwareConfig:
        """Build a configuration from upstream's keys (``LOG_BLOCK``, ``TARGET``, ...).

        Missing keys take upstream's defaults. Keys that upstream derives (``LOG_BLOCK_IN``,
        ``LOG_BLOCK_OUT``, ``LOG_OUT_WIDTH``, ``LOG_OUT_BUFF_SIZE``) must agree with the rest.

        Raises
        ------
        ConfigError
            For an unknown key, a contradiction, or an invalid configuration.
        """
        attributes = {_key(f.name): f.name for f in fields(cls) if f.name != "name"}
        settings = {attributes[key]: value for key, value in values.items() if key in attributes}
        config = cls(**settings, name=name)
        derived = {
            "LOG_BLOCK_IN": config.log_block,
            "LOG_BLOCK_OUT": config.log_block,
            "LOG_OUT_WIDTH": config.log_inp_width,
            "LOG_OUT_BUFF_SIZE": config.log_acc_buff_size - 2,
        }
        for key, value in values.items():
            if key in derived and value != derived[key]:
                raise ConfigError(f"{key} is {value!r}, but the other keys imply {derived[key]}")
            if key not in {*attributes, *derived, *_IGNORED_KEYS}:
                hint = suggestion(key, attributes)
                raise ConfigError(
                    f"unknown key {key!r} in configuration {name!r}{hint}; known keys: "
                    f"{', '.join(attributes)}"
                )
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return upstream's keys and values; the inverse of `from_dict`."""
        values = {_key(f.name): getattr(self, f.name) for f in fields(self) if f.name != "name"}
        values["EXTENSIONS"] = list(self.extensions)
        optional = ("EXTENSIONS", "PORT_BYTES", "WEIGHT_PORT", "SPLIT_PORT")
        return {key: value for key, value in values.items() if value or key not in optional}

    def __repr__(self) -> str:
        depths = "/".join(str(pad.depth) for pad in (self.uop, self.inp, self.wgt, self.acc))
        added = f", extensions {'+'.join(self.extensions)}" if self.extensions else ""
        tile = f"{self.batch}x{self.block_in}x{self.block_out}"
        return (
            f"<HardwareConfig {self.name}: {self.target} at {self.board.clock_mhz} MHz, tiles of "
            f"{tile}, uop/inp/wgt/acc of {depths} elements{added}>"
        )

    # ----------------------------------------------------------------- geometry

    def has(self, extension: Extension) -> bool:
        """Whether the hardware has an extension."""
        return extension in self.extensions

    @property
    def batch(self) -> int:
        """Rows of an input, accumulator or output tile."""
        return 1 << self.log_batch

    @property
    def block_in(self) -> int:
        """Input channels of a tile."""
        return 1 << self.log_block

    @property
    def block_out(self) -> int:
        """Output channels of a tile (upstream's rule: equal to `block_in`)."""
        return 1 << self.log_block

    @cached_property
    def uop(self) -> Scratchpad:
        """The micro-op memory."""
        return Scratchpad(Memory.UOP, (), "uint32", 1 << self.log_uop_buff_size)

    @cached_property
    def inp(self) -> Scratchpad:
        """The input memory: tiles of (batch, block_in) int8."""
        shape = (self.batch, self.block_in)
        return Scratchpad(Memory.INP, shape, "int8", 1 << self.log_inp_buff_size)

    @cached_property
    def wgt(self) -> Scratchpad:
        """The weight memory: tiles of (block_out, block_in) int8."""
        shape = (self.block_out, self.block_in)
        return Scratchpad(Memory.WGT, shape, "int8", 1 << self.log_wgt_buff_size)

    @cached_property
    def acc(self) -> Scratchpad:
        """The accumulator memory: tiles of (batch, block_out) int32."""
        shape = (self.batch, self.block_out)
        return Scratchpad(Memory.ACC, shape, "int32", 1 << self.log_acc_buff_size)

    @cached_property
    def out(self) -> Scratchpad:
        """The output memory: tiles of (batch, block_out) int8, indexed like the accumulators."""
        return Scratchpad(Memory.OUT, self.acc.shape, "int8", self.acc.nbytes // 4)

    @cached_property
    def post(self) -> Scratchpad:
        """The memory of the extension ``post``: tiles of (1, block_out) int32.

        The first half holds biases, the second scales: multiplier (16 bits) and shift (6 bits).
        """
        nbytes = 2 * POST_ROWS * 4 * self.block_out
        return Scratchpad(Memory.POST, (1, self.block_out), "int32", nbytes)

    @cached_property
    def table(self) -> Scratchpad:
        """The memory of the extension ``table``: tables of 256 int8, for -128, -127, ..., 127."""
        return Scratchpad(Memory.TABLE, (1, TABLE_VALUES), "int8", TABLES * TABLE_VALUES)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories that LOAD and STORE can name."""
        needed = {Memory.POST: Extension.POST, Memory.TABLE: Extension.TABLE}
        return tuple(m for m in Memory if m not in needed or self.has(needed[m]))

    def scratchpad(self, memory: Memory) -> Scratchpad:
        """Return the scratchpad that a LOAD or STORE of `memory` addresses (ACC_8BIT: `acc`)."""
        name = "acc" if memory == Memory.ACC_8BIT else Memory(memory).name.lower()
        scratchpad: Scratchpad = getattr(self, name)
        return scratchpad

    def dram_element_bytes(self, memory: Memory) -> int:
        """Bytes of one DRAM element of `memory`: the unit of ``dram_base`` and ``x_stride``."""
        if memory == Memory.ACC_8BIT:
            return self.acc.lanes
        return self.scratchpad(memory).element_bytes

    @property
    def window_channels(self) -> int:
        """Neighbouring channels that the extension ``depthwise`` mixes: the largest group.

        Output channel j of a step reads its group of input channels in each tile of the window.
        """
        return self.block_in // WINDOW_PARTS

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of the array in one cycle."""
        return self.macs_per_micro_op * self.products_per_cycle

    @property
    def products_per_cycle(self) -> int:
        """Maximum GEMM micro-ops that the array executes in one cycle."""
        return 2 if self.has(Extension.PAIRS) else 1

    @property
    def forwards_per_cycle(self) -> int:
        """Tiles of the output memory that a LOAD with ``forward`` copies in a cycle.

        As many as the array takes, or forwarding bounds what follows it.
        """
        return self.products_per_cycle if self.has(Extension.FORWARD) else 0

    @property
    def macs_per_micro_op(self) -> int:
        """Multiply-accumulates of one GEMM micro-op: a step, or half a step with ``pairs``."""
        return self.batch * self.block_in * self.block_out

    @property
    def port_width(self) -> int:
        """Bytes that a DRAM port moves in a cycle and direction, if nothing else is said."""
        return self.port_bytes or self.board.bus_bits // 8

    @property
    def board(self) -> BoardTarget:
        """The target's fixed properties: clock, bus width, part."""
        return TARGETS[self.target]

    # ----------------------------------------------------------------- identity

    @property
    def bitstream_id(self) -> str:
        """Upstream's name of the bitstream, for example ``1x16_i8w8a32_15_15_18_17``.

        Extensions follow, for example ``1x16_i8w8a32_15_15_18_17_overwrite``.
        """
        return (
            f"{self.batch}x{self.block_in}"
            f"_i{1 << self.log_inp_width}w{1 << self.log_wgt_width}a{1 << self.log_acc_width}"
            f"_{self.log_uop_buff_size}_{self.log_inp_buff_size}"
            f"_{self.log_wgt_buff_size}_{self.log_acc_buff_size}"
            + "".join(f"_{name}" for name in self.extensions)
        )

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify everything a program depends on.

        Configurations with equal fingerprints run the same programs; target and hardware version
        are excluded, so a program compiled for a board also runs on the simulators.
        """
        text = f"vta isa {ISA_VERSION} {self.bitstream_id}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # ------------------------------------------------------------------- checks

    def _check_types(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("target", "hw_ver", "name"):
                right, wanted = isinstance(value, str), "a string"
            else:
                allowed, wanted = _ALLOWED.get(f.name, (range(31), "an integer in 0..30"))
                right = f.name == "extensions" or (type(value) is int and value in allowed)
            if not right:
                raise ConfigError(f"{_key(f.name)} is {value!r}; it must be {wanted}")
        if not is_plain_name(self.name):
            raise ConfigError(
                f"a configuration is named {self.name[:80]!r}; names have 1..200 letters, digits, "
                "spaces and ., + = @ ( ) - _, and begin with a letter or digit"
            )
        if self.target not in TARGETS:
            raise ConfigError(f"TARGET is {self.target!r}; it must be one of {', '.join(TARGETS)}")

    def check_nibbles(self, port_bytes: int) -> None:
        """Raise `ConfigError` if the extension ``nibbles`` cannot use a port so wide."""
        if self.has(Extension.NIBBLES) and self.wgt.element_bytes < 2 * port_bytes:
            raise ConfigError(
                f"the extension 'nibbles' fills two port words of a weight tile in a cycle; tiles "
                f"of {self.wgt.element_bytes} bytes have no two of {port_bytes} bytes "
                f"(increase LOG_BLOCK, or reduce PORT_BYTES)"
            )

    def _check_needs(self) -> None:
        for extension in (Extension.TABLE, Extension.EXACT):
            if self.has(extension) and not self.has(Extension.POST):
                raise ConfigError(
                    f"EXTENSIONS is {list(self.extensions)}; {extension!r} needs 'post' too"
                )

    def _check_geometry(self) -> None:
        if self.has(Extension.DEPTHWISE) and self.window_channels < 2:
            raise ConfigError(
                f"the extension 'depthwise' mixes a quarter of a tile's channels, at least 2; "
                f"tiles of {self.block_in} are too narrow (increase LOG_BLOCK to 3)"
            )
        bus = self.board.bus_bits // 8
        for pad in (self.inp, self.wgt, self.acc, self.out):
            if not bus <= pad.element_bytes <= PAGE_BYTES:
                raise ConfigError(
                    f"one {pad.memory.name} element has {pad.element_bytes} bytes; it must fill "
                    f"the {bus} bytes of the bus of target {self.target!r}, and fit a page of "
                    f"{PAGE_BYTES} (change LOG_BATCH or LOG_BLOCK)"
                )
        for pad in (self.uop, self.inp, self.wgt, self.acc):
            if not 2 <= pad.depth <= 1 << 16:
                raise ConfigError(
                    f"LOG_{pad.memory.name}_BUFF_SIZE gives {pad.depth} elements of "
                    f"{pad.element_bytes} bytes; a scratchpad has 2..65536, which sram_base reaches"
                )

    def _check_packing(self) -> None:
        u, i, w, a = (m.log_depth for m in (self.uop, self.inp, self.wgt, self.acc))
        rules = (
            (37 + 2 * u, 64, f"37 + 2U = 37 + 2*{u}", "GEMM word 0"),
            (2 * (a + i + w), 64, f"2(A + I + W) = 2*({a} + {i} + {w})", "GEMM word 1"),
            (4 * a + 20, 64, f"4A + 20 = 4*{a} + 20", "ALU word 1"),
            (a + max(a, i) + w, 32, f"A + max(A, I) + W = {a} + {max(a, i)} + {w}", "a micro-op"),
        )
        if self.has(Extension.OVERWRITE):
            end = 37 + 2 * u
            for width in (a, a, i, i, w, w):  # factors that fit into word 0
                if end + width > 64:
                    break
                end += width
            if end == 64:
                raise ConfigError(
                    f"the extension 'overwrite' needs bit 63 of GEMM, which a factor takes "
                    f"(U = {u}, A = {a}, I = {i}, W = {w}); change a buffer size"
                )
        broken = [
            f"{formula} = {value} bits exceed the {limit} bits of {word}"
            for value, limit, formula, word in rules
            if value > limit
        ]
        if broken:
            raise ConfigError(
                f"{'; '.join(broken)} (U, I, W, A are the logarithms of the scratchpad depths: "
                f"change a buffer size)"
            )
