"""Operator: the interface of every operator description.

An operator is a frozen dataclass of shapes and parameters. It declares its computation; the methods
for later steps (`schedule`, `lower`) call the rooms that implement them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.machine.capabilities import Feature
from vtaops.machine.config import HardwareConfig
from vtaops.ops.epilogue import VECTORS, Epilogue, Stage
from vtaops.program import Buffer

if TYPE_CHECKING:
    import tvm

    from vtaops.schedule.tiling import Tiling

LARGEST = (1 << 31) - 1
"""Largest value of a parameter."""

_ENDING = {*VECTORS, *(f.name for f in fields(Epilogue))}
"""The parameters that are of an epilogue."""

_NO_INTEGER: dict[str, Any] = {"int": (), "Pair": tuple, "Padding": tuple | str}
"""Maps parameter types to non-integer Python types that are validated elsewhere."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Operator(ABC):
    """Base class of operator descriptions: frozen dataclasses, constructed by keywords.

    Shapes have no defaults, except a batch of one image. `vtaops.base.names.SPELLINGS` are
    accepted.
    """

    def __post_init__(self) -> None:
        """Convert NumPy numbers to Python's, and sequences to tuples; reject non-numbers.

        Raises
        ------
        ShapeError
            If a parameter has the wrong type; the message names it.
        """
        for f in fields(self):
            value = plain(getattr(self, f.name))
            if f.type == "bool":
                if not isinstance(value, bool):
                    raise ShapeError(f"{f.name} is {value!r}; it must be True or False")
            elif not isinstance(value, _NO_INTEGER.get(str(f.type), object)):
                _check_integer(f.name, value)
            if isinstance(value, tuple):
                for number in value:
                    _check_integer(f.name, number)
            object.__setattr__(self, f.name, value)

    def __repr__(self) -> str:
        """Return the constructor call without defaults: shapes first, then what ends it."""
        shown = sorted(fields(self), key=lambda f: f.name in _ENDING)
        values = {f: _short(f, getattr(self, f.name)) for f in shown}
        stated = [f"{f.name}={value!r}" for f, value in values.items() if value != f.default]
        return f"{type(self).__name__}({', '.join(stated)})"

    @abstractmethod
    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        """Return the arguments in order, with logical shapes and DRAM layouts."""

    def declared_shape(self, buffer: Buffer, config: HardwareConfig) -> tuple[int, ...]:
        """Return the declared shape of a buffer: that of the packed tensor, a byte a scalar."""
        return buffer.layout.unshared.packed_shape(buffer.shape)

    def declare(self, config: HardwareConfig | str) -> tvm.IRModule:
        """Return the unscheduled computation on packed tensors, as one PrimFunc ``main``.

        `Gemm` and `Conv2d` have one.

        Raises
        ------
        ScheduleError
            If operators of its kind have none.
        ConfigError
            If the configuration's name is unknown.
        """
        from vtaops.ops.declarations import declare

        return declare(self, HardwareConfig.of(config))

    @property
    @abstractmethod
    def summary(self) -> str:
        """One-line summary for display: kind, shapes, non-default parameters."""

    @property
    def epilogue(self) -> Epilogue | None:
        """How its sums become int8; None: it has none."""
        return None

    @property
    def stages(self) -> Sequence[Stage]:
        """The steps from sums to result: vector ALU passes, or their hardware replacement."""
        return self.epilogue.stages if self.epilogue else []

    @property
    def features(self) -> frozenset[Feature]:
        """Required device features."""
        return frozenset()

    @property
    def macs(self) -> int:
        """Multiply-accumulates on logical shapes (without channel padding)."""
        return 0

    def schedule(
        self, config: HardwareConfig | str, tiling: Tiling | None = None
    ) -> tvm.s_tir.Schedule:
        """Return the schedule for VTA; ``.mod.script()`` prints it as TVMScript.

        Raises
        ------
        ScheduleError
            If the tiling does not fit the operator or the scratchpads.
        """
        from vtaops.schedule.operators import schedule

        return schedule(self, HardwareConfig.of(config), tiling)

    def lower(self, config: HardwareConfig | str, tiling: Tiling | None = None) -> tvm.IRModule:
        """Return the schedule as flat TIR: loops, copies and intrinsics on scratchpads.

        Raises
        ------
        ScheduleError
            As `schedule`.
        """
        from vtaops.schedule.flatten import flatten

        return flatten(self.schedule(config, tiling))


def _short(field: Field[Any], value: Any) -> Any:
    """Return a pair, or four-sided padding, of equal numbers as one number."""
    pairs = field.type in ("Pair", "Pair | None", "Padding") and isinstance(value, tuple)
    return value[0] if pairs and len({*value}) == 1 else value


def plain(value: Any) -> Any:
    """Convert NumPy numbers to Python's, and lists and arrays to tuples; pass others through."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and not value.ndim:
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(map(plain, value))
    return value


def _check_integer(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ShapeError(f"{name} is {value!r}; it must consist of integers")
    if abs(value) > LARGEST:
        raise ShapeError(f"{name} is {value}; no parameter may exceed {LARGEST}")
