"""Design and Space: the hardware options of an exploration.

Defines a design (a VTA configuration with DRAM port and clock) and the expansion of axes of values
to designs. Evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from operator import ge
from typing import Any

from vtaops.base.errors import ConfigError
from vtaops.hardware.rtl import check_depths
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.program.timing import TimingParameters

MACHINE_AXES = {
    "PORT_BYTES": "width of the DRAM port, in bytes",
    "DRAM_LATENCY": "cycles from a request to its first word",
    "BANDWIDTH": "bytes per cycle of the DRAM, both directions; 0: what the port takes",
    "CLOCK_MHZ": "clock of the accelerator",
}
"""Axes in addition to the keys of upstream's configurations, with their meaning."""

_SIZES = tuple(f"LOG_{memory}_BUFF_SIZE" for memory in ("UOP", "INP", "WGT", "ACC"))

Value = int | float | str
"""A value of an axis; EXTENSIONS is written as names joined by ``+``, or empty."""


@dataclass(frozen=True)
class Design:
    """A hardware design: the parameters of the RTL and of its DRAM.

    Attributes
    ----------
    config : HardwareConfig
        The configuration.
    port_bytes : int
        Width of the DRAM port; 0: the bus of the configuration's board.
    dram_latency : int
        Cycles from a request to its first word.
    bandwidth : float
        Bytes per cycle of the DRAM, both directions together; 0: the port's maximum.
    clock_mhz : int
        Clock; 0: that of the configuration's board.

    Raises
    ------
    ConfigError
        If such hardware cannot exist.
    """

    config: HardwareConfig
    port_bytes: int = 0
    dram_latency: int = TimingParameters().dram_latency
    bandwidth: float = 0.0
    clock_mhz: int = 0

    def __post_init__(self) -> None:
        board = self.config.board
        object.__setattr__(self, "port_bytes", self.port_bytes or self.config.port_width)
        stated = 0 if self.port_bytes == board.bus_bits // 8 else self.port_bytes
        object.__setattr__(self, "config", replace(self.config, port_bytes=stated))
        object.__setattr__(self, "clock_mhz", self.clock_mhz or board.clock_mhz)
        if type(self.clock_mhz) is not int or self.clock_mhz < 1:
            raise ConfigError(f"CLOCK_MHZ is {self.clock_mhz!r}; it must be a positive integer")
        _ = self.timing  # rejects values out of range
        check_depths(self.config, self.port_bytes)

    @cached_property
    def timing(self) -> TimingParameters:
        """Parameters of the timing model."""
        return TimingParameters(
            port_bytes=self.port_bytes,
            dram_latency=self.dram_latency,
            bandwidth=self.bandwidth or None,
        )

    @property
    def sram_nbytes(self) -> int:
        """Bytes of all scratchpads."""
        c = self.config
        memories = [c.uop, c.inp, c.wgt, c.acc, c.out] + [c.post] * c.has(Extension.POST)
        return sum(memory.element_bytes * memory.depth for memory in memories)

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """A key that is equal for designs that differ only in scratchpad sizes."""
        return tuple(value for axis, value in self.as_dict().items() if axis not in _SIZES)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Base-2 logarithms of the scratchpads' bytes: micro-ops, inputs, weights, accumulators."""
        values = self.as_dict()
        return tuple(values[axis] for axis in _SIZES)

    def contains(self, other: Design) -> bool:
        """Whether every program for `other` fits this design and takes the same time."""
        return self.kind == other.kind and all(map(ge, self.sizes, other.sizes))

    @property
    def name(self) -> str:
        """A unique name, for example ``1x16_i8w8a32_15_15_18_17 8B 32c 100MHz``."""
        limited = f" {self.bandwidth:g}B/c" if self.bandwidth else ""
        ports = f"{self.port_bytes}B" + f"+{self.port_bytes}B" * self.config.weight_port
        return (
            f"{self.config.bitstream_id} {ports} {self.dram_latency}c{limited} {self.clock_mhz}MHz"
        )

    @cached_property
    def machine(self) -> dict[str, Any]:
        """The values of all axes that affect cycles: all except the clock."""
        return {axis: value for axis, value in self.as_dict().items() if axis != "CLOCK_MHZ"}

    def as_dict(self) -> dict[str, Any]:
        """Return the values of all axes."""
        values = {"WEIGHT_PORT": 0, **self.config.to_dict()}
        values["EXTENSIONS"] = "+".join(self.config.extensions)
        values |= {name: getattr(self, name.lower()) for name in MACHINE_AXES}
        return values

    @classmethod
    def of(cls, values: Mapping[str, Any], name: str = "custom") -> Design:
        """Return the design with these values; the inverse of `as_dict`.

        Raises
        ------
        ConfigError
            If a key is unknown, or such hardware cannot exist.
        """
        config = {key: value for key, value in values.items() if key not in MACHINE_AXES}
        extensions = str(config.pop("EXTENSIONS", ""))
        config["EXTENSIONS"] = [name for name in extensions.split("+") if name]
        machine = {key.lower(): value for key, value in values.items() if key in MACHINE_AXES}
        return cls(HardwareConfig.from_dict(config, name=name), **machine)


@dataclass(frozen=True)
class Space:
    """The product of the values of some axes, with a base for the others.

    Parameters
    ----------
    base : Design
        Supplies the values of all other axes.
    axes : mapping
        Axis -> values: upstream's keys and those of `MACHINE_AXES`, for example
        ``{"LOG_INP_BUFF_SIZE": [14, 15], "EXTENSIONS": ["", "overwrite+post"]}``.

    Raises
    ------
    ConfigError
        If an axis is unknown or has no values.
    """

    base: Design
    axes: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.base.as_dict()
        for axis, values in self.axes.items():
            if axis not in known:
                raise ConfigError(f"unknown axis {axis!r}; known axes: {', '.join(known)}")
            if not values:
                raise ConfigError(f"axis {axis} has no values")

    def design(self, values: Mapping[str, Value]) -> Design:
        """Return the design with these values.

        Raises
        ------
        ConfigError
            If such hardware cannot exist.
        """
        return Design.of({**self.base.as_dict(), **values}, name=self.base.config.name)

    def designs(self) -> tuple[list[Design], dict[str, str]]:
        """Return the valid designs without duplicates, and the reasons against the others.

        Returns
        -------
        designs : list of Design
            In the order of the axes.
        refused : dict
            Values as text -> reason.
        """
        designs: dict[Design, None] = {}
        refused: dict[str, str] = {}
        for chosen in product(*self.axes.values()):
            values = dict(zip(self.axes, chosen, strict=True))
            try:
                designs[self.design(values)] = None
            except ConfigError as error:
                refused[" ".join(f"{key}={value}" for key, value in values.items())] = str(error)
        return list(designs), refused
