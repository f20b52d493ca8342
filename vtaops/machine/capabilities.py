"""Capabilities: what an implementation of VTA can execute, where implementations disagree.

The instruction set has features that some hardware lacks. The compiler asks what a device can do
before it uses one, the verifier checks the finished program, and the functional simulator can be
built to refuse what a device lacks. What follows is portable everywhere: right shifts are split
into steps of at most 15 bits, weights and accumulators are not padded by LOAD, int8 data enter the
accumulators through a diagonal product, and what is stored was last written by the ALU or by a GEMM
that accumulates.

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
    """The ALU shifts each lane by an operand of its own."""
    EMPTY_ROWS = "empty_rows"
    """A LOAD writes padding alone (y_size 0); upstream's Chisel waits for its data for ever."""
    ALU_BATCH = "alu_batch"
    """The ALU works on all rows of a tile; others on the first alone."""


@dataclass(frozen=True)
class Capabilities:
    """What an implementation of VTA can execute.

    Attributes
    ----------
    name : str
        What it describes.
    weight_padding, acc_padding, mul, acc_8bit : bool
    long_shift, tensor_shift, empty_rows, alu_batch : bool
        Whether it has the `Feature` of that value.
    micro_ops : int
        Micro-ops that fit its memory, if fewer than the configuration says; 0: as configured.
    token_capacity : int
        Tokens that a queue holds; 0: any number.
    separate_out : bool
        Whether STORE reads a memory of its own, which only the ALU and accumulating GEMMs write,
        instead of the accumulators.
    far_shift : bool
        Whether shifts by 32 and more leave the sign, or 0. Elsewhere they are undefined: upstream's
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
        """Check what may come from another machine.

        Raises
        ------
        ConfigError
            Naming the value and its type.
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
        """Return whether it has a feature."""
        return bool(asdict(self)[feature.value])

    def micro_op_depth(self, config: HardwareConfig) -> int:
        """Return how many micro-ops its memory holds."""
        return min(config.uop.depth, self.micro_ops or config.uop.depth)


_EVERY_FEATURE = dict.fromkeys((feature.value for feature in Feature), True)

FULL = Capabilities("full", **_EVERY_FEATURE, token_capacity=0, far_shift=True)
"""All that the instruction set defines."""

FSIM = Capabilities(**{**asdict(FULL), "name": "fsim", "separate_out": False, "far_shift": False})
"""What upstream's functional simulator and ours agree in."""

HLS_2020 = Capabilities("hls-2020", token_capacity=1024, tensor_shift=True)
"""The published bitstreams of the Pynq: June 2020, before LOAD ACC learned to pad."""

CHISEL = Capabilities(
    "chisel", weight_padding=True, acc_padding=True, micro_ops=2048, alu_batch=False
)
"""Upstream's Chisel design (its simulator, DE10-Nano); tiles of one row only."""

PORTABLE = Capabilities("portable", micro_ops=2048)
"""What every implementation executes (of those that exist for tiles of several rows)."""

PRESETS = {c.name: c for c in (FULL, FSIM, HLS_2020, CHISEL, PORTABLE)}
"""Capabilities by name."""

_OF_TARGET = {"pynq": HLS_2020, "ultra96": HLS_2020, "zcu104": HLS_2020, "de10nano": CHISEL}


def find(capabilities: Capabilities | str) -> Capabilities:
    """Return capabilities by name; capabilities as they are.

    Raises
    ------
    ConfigError
        If there are none of that name; the message lists the names.
    """
    if isinstance(capabilities, Capabilities):
        return capabilities
    if capabilities not in PRESETS:
        raise ConfigError(
            f"no capabilities {capabilities!r}; known are {', '.join(PRESETS)}, or a Capabilities"
        )
    return PRESETS[capabilities]


def of_target(config: HardwareConfig, given: Capabilities | str | None = None) -> Capabilities:
    """Return what the target of a configuration can execute: a simulator if it is no board.

    Only our own hardware has extensions, and it lacks nothing else. Capabilities that are `given`,
    or named, take its place.

    Raises
    ------
    ConfigError
        If there are no capabilities of that name.
    """
    if given is not None:
        return find(given)
    if config.extensions:
        return FULL
    return _OF_TARGET.get(config.target, FSIM)
