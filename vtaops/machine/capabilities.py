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

from dataclasses import dataclass

from vtaops.base.errors import ConfigError
from vtaops.machine.config import HardwareConfig, Trait


class Feature(Trait):
    """A feature that some implementations lack, and what an instruction does that needs it."""

    WEIGHT_PADDING = "weight_padding", "pads weights"
    ACC_PADDING = "acc_padding", "pads accumulators"
    MUL = "mul", "multiplies in the ALU"
    ACC_8BIT = "acc_8bit", "loads 8-bit data"
    LONG_SHIFT = "long_shift", "shifts by more than 15"
    """Others read 5 signed bits of an immediate."""
    TENSOR_SHIFT = "tensor_shift", "shifts by a tile"
    EMPTY_ROWS = "empty_rows", "loads no row, only padding"
    """Upstream's Chisel waits for the data of a LOAD of no rows forever."""
    ALU_BATCH = "alu_batch", "works on tiles of several rows in the ALU"
    """Others process the first row only."""
    FAR_SHIFT = "far_shift", "shifts by more than 31"
    """Shifts by 32 and more leave the sign, or 0. Otherwise they are undefined: upstream's
    simulator leaves them to the processor, which takes the distance modulo 32."""


@dataclass(frozen=True)
class Capabilities:
    """The features and limits of one implementation of VTA.

    Attributes
    ----------
    name : str
        Name of the implementation.
    features : tuple of Feature
        What it has, also by name; kept in alphabetical order.
    micro_ops : int
        Capacity of the micro-op memory if below the configuration's; 0: as configured.
    token_capacity : int
        Capacity of a token queue; 0: unlimited.
    separate_out : bool
        Whether STORE reads a separate memory that only the ALU and accumulating GEMMs write,
        instead of the accumulators.
    """

    name: str
    features: tuple[Feature | str, ...] = (Feature.ALU_BATCH,)
    micro_ops: int = 0
    token_capacity: int = 255
    separate_out: bool = True

    def __post_init__(self) -> None:
        """Validate values, which may come from another machine.

        Raises
        ------
        ConfigError
            If a value is invalid; the message names it and the required type.
        """
        for name, kind in (("name", str), ("separate_out", bool)):
            value = getattr(self, name)
            if type(value) is not kind:
                raise ConfigError(f"{name} is {value!r}; it must be of type {kind.__name__}")
        for name in ("micro_ops", "token_capacity"):
            count = getattr(self, name)
            if type(count) is not int or not 0 <= count < 1 << 32:
                raise ConfigError(f"{name} is {count!r}; it must be an integer in 0..2**32-1")
        features = Feature.listed("features", self.features)
        object.__setattr__(self, "features", tuple(dict.fromkeys(features)))

    def has(self, feature: Feature) -> bool:
        """Whether the implementation has a feature."""
        return feature in self.features

    def micro_op_depth(self, config: HardwareConfig) -> int:
        """Return the number of micro-ops that fit the micro-op memory."""
        return min(config.uop.depth, self.micro_ops or config.uop.depth)


FULL = Capabilities("full", tuple(Feature), token_capacity=0)
"""Everything that the instruction set defines."""

_NEAR = tuple(feature for feature in Feature if feature != Feature.FAR_SHIFT)
FSIM = Capabilities("fsim", _NEAR, token_capacity=0, separate_out=False)
"""The common behaviour of upstream's functional simulator and ours."""

HLS_2020 = Capabilities("hls-2020", (Feature.ALU_BATCH, Feature.TENSOR_SHIFT), token_capacity=1024)
"""The published Pynq bitstreams: June 2020, before LOAD ACC could pad."""

CHISEL = Capabilities("chisel", (Feature.WEIGHT_PADDING, Feature.ACC_PADDING), micro_ops=2048)
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
