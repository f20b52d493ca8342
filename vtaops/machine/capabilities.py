"""Capabilities: the features in which implementations of VTA differ.

Some hardware lacks features of the instruction set. The compiler checks a device's capabilities
before it uses one, the verifier checks the finished program, and the functional simulator can be
built to reject unsupported features. These are portable everywhere: right shifts are split into
steps of at most 15 bits, LOAD does not pad weights or accumulators, int8 data enter the
accumulators through a diagonal product, and every stored tile was last written by the ALU or by an
accumulating GEMM.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import Enum

from vtaops.base.errors import ConfigError
from vtaops.machine.config import HardwareConfig


class Feature(str, Enum):
    """A feature that some implementations lack."""

    WEIGHT_PADDING = "weight_padding"
    """LOAD WGT writes padding."""
    ACC_PADDING = "acc_padding"
    """LOAD ACC writes padding."""
    MUL = "mul"
    """The ALU multiplies."""
    ACC_8BIT = "acc_8bit"
    """LOAD ACC_8BIT widens int8 to int32 on the way."""
    LONG_SHIFT = "long_shift"
    """The ALU shifts by immediates outside -15..15; others read 5 signed bits."""
    TENSOR_SHIFT = "tensor_shift"
    """The ALU shifts each lane by its own operand."""
    EMPTY_ROWS = "empty_rows"
    """A LOAD writes only padding (y_size 0); upstream's Chisel waits for its data forever."""
    ALU_BATCH = "alu_batch"
    """The ALU processes all rows of a tile; others only the first."""


@dataclass(frozen=True)
class Capabilities:
    """The features and limits of one implementation of VTA.

    Attributes
    ----------
    name : str
        Name of the implementation.
    weight_padding, acc_padding, mul, acc_8bit : bool
    long_shift, tensor_shift, empty_rows, alu_batch : bool
        Whether it has the `Feature` of that value.
    micro_ops : int
        Capacity of the micro-op memory if below the configuration's; 0: as configured.
    token_capacity : int
        Capacity of a token queue; 0: unlimited.
    separate_out : bool
        Whether STORE reads a separate memory that only the ALU and accumulating GEMMs write,
        instead of the accumulators.
    far_shift : bool
        Whether shifts by 32 and more leave the sign, or 0. Otherwise they are undefined: upstream's
        simulator leaves them to the processor, which takes the distance modulo 32.
    """

    name: str
    weight_padding: bool = False
    acc_padding: bool = False
    mul: bool = False
    acc_8bit: bool = False
    long_shift: bool = False
    tensor_shift: bool = False
    empty_rows: bool = False
    alu_batch: bool = True
    micro_ops: int = 0
    token_capacity: int = 255
    separate_out: bool = True
    far_shift: bool = False

    def __post_init__(self) -> None:
        """Validate values, which may come from another machine.

        Raises
        ------
        ConfigError
            If a value is invalid; the message names it and the required type.
        """
        counts = {"micro_ops": self.micro_ops, "token_capacity": self.token_capacity}
        for name, count in counts.items():
            if type(count) is not int or not 0 <= count < 1 << 32:
                raise ConfigError(f"{name} is {count!r}; it must be an integer in 0..2**32-1")
        for f in fields(self):
            value, kind = getattr(self, f.name), str if f.name == "name" else bool
            if f.name not in counts and type(value) is not kind:
                raise ConfigError(f"{f.name} is {value!r}; it must be of type {kind.__name__}")

    def has(self, feature: Feature) -> bool:
        """Whether the implementation has a feature."""
        return bool(asdict(self)[feature.value])

    def micro_op_depth(self, config: HardwareConfig) -> int:
        """Return the number of micro-ops that fit the micro-op memory."""
        return min(config.uop.depth, self.micro_ops or config.uop.depth)


_EVERY_FEATURE = dict.fromkeys((feature.value for feature in Feature), True)

FULL = Capabilities("full", **_EVERY_FEATURE, token_capacity=0, far_shift=True)
"""Everything that the instruction set defines."""

FSIM = Capabilities(**{**asdict(FULL), "name": "fsim", "separate_out": False, "far_shift": False})
"""The common behaviour of upstream's functional simulator and ours."""

HLS_2020 = Capabilities("hls-2020", token_capacity=1024, tensor_shift=True)
"""The published Pynq bitstreams: June 2020, before LOAD ACC could pad."""

CHISEL = Capabilities(
    "chisel", weight_padding=True, acc_padding=True, micro_ops=2048, alu_batch=False
)
"""Upstream's Chisel design (its simulator, DE10-Nano); tiles of one row only."""

PORTABLE = Capabilities("portable", micro_ops=2048)
"""Supported by every implementation (of those that exist for tiles of several rows)."""

PRESETS = {c.name: c for c in (FULL, FSIM, HLS_2020, CHISEL, PORTABLE)}
"""Capabilities by name."""

_OF_TARGET = {"pynq": HLS_2020, "ultra96": HLS_2020, "zcu104": HLS_2020, "de10nano": CHISEL}


def find(capabilities: Capabilities | str) -> Capabilities:
    """Return capabilities by name; pass a `Capabilities` through.

    Raises
    ------
    ConfigError
        If the name is unknown; the message lists the known names.
    """
    if isinstance(capabilities, Capabilities):
        return capabilities
    if capabilities not in PRESETS:
        raise ConfigError(
            f"no capabilities {capabilities!r}; known are {', '.join(PRESETS)}, or a Capabilities"
        )
    return PRESETS[capabilities]


def of_target(config: HardwareConfig, given: Capabilities | str | None = None) -> Capabilities:
    """Return the capabilities of a configuration's target: a simulator's if it is not a board.

    Only our own hardware has extensions, and it supports everything else. Capabilities `given` as
    an object or by name override the target's.

    Raises
    ------
    ConfigError
        If `given` is an unknown name.
    """
    if given is not None:
        return find(given)
    if config.extensions:
        return FULL
    return _OF_TARGET.get(config.target, FSIM)
