"""Tilings of an operator: the best on a design by the estimate, and the values of each field.

Estimates take milliseconds and compile nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, get_args

from vtaops.base.errors import VTAError
from vtaops.explore.design import Design
from vtaops.explore.evaluation import Task, array_of, operator_dict
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.schedule import Tiling, blocked_shape
from vtaops.schedule.candidates import TilingList, depths_of
from vtaops.schedule.tiling import Operand

MOST_TILES = 8
"""Largest number of tiles of an operand that `tiling_axes` holds at once."""


def tiling_axes(op: Operator, config: HardwareConfig) -> dict[str, tuple[Any, ...]]:
    """Return the values that a search or an agent may choose for each field of a tiling.

    Virtual threads and parts of the kernel are left out; not every combination fits.
    """
    shape, counts = blocked_shape(op, config), tuple(range(1, MOST_TILES + 1))
    return {
        "oc": tuple(config.block_out * n for n in range(1, shape.oc + 1)),
        "ic": tuple(config.block_in * n for n in range(1, shape.ic + 1)),
        "h": tuple(range(1, shape.rows.extent + 1)),
        "w": tuple(range(1, shape.columns.extent + 1)),
        "inp_tiles": counts,
        "wgt_tiles": counts,
        "acc_tiles": (1, 2),
        "keep": get_args(Operand),
    }


@dataclass(frozen=True)
class EstimatedTiling:
    """The tiling with the fewest estimated cycles.

    Attributes
    ----------
    text : str
        The tiling; empty if none fits.
    estimate : int
        Its estimated cycles.
    reason : str
        Why there is none.
    """

    text: str = ""
    estimate: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.estimate < 0 or not (self.tiling or self.reason):
            raise ValueError("the estimate is negative, or there is neither a tiling nor a reason")

    @property
    def tiling(self) -> Tiling | None:
        """The tiling."""
        return Tiling.parse(self.text) if self.text else None


@dataclass(frozen=True)
class TilingQuery(Task):
    """What to find a tiling for.

    Attributes
    ----------
    op : Operator
        The operator.
    design : Design
        The hardware.
    """

    kind: ClassVar[str] = "tilings"

    op: Operator
    design: Design

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the estimate depends on, as plain data."""
        return {"operator": operator_dict(self.op), "design": self.design.machine}

    @cached_property
    def shares(self) -> tuple[object, ...]:
        """A key that is equal for queries of one operator on one array: they share its tilings."""
        return repr(self.op), *array_of(self.design.config)

    @staticmethod
    def compute(tasks: Sequence[TilingQuery]) -> list[EstimatedTiling]:
        """Find the best tilings by the estimate, of queries with equal `shares`."""
        sizes = [depths_of(query.design.config) for query in tasks]
        largest = {memory: max(depths[memory] for depths in sizes) for memory in sizes[0]}
        try:
            listed = TilingList(tasks[0].op, tasks[0].design.config, largest)
        except VTAError as error:
            return [EstimatedTiling(reason=str(error)) for _ in tasks]
        return [_estimated(query.design, listed) for query in tasks]


def _estimated(design: Design, listed: TilingList) -> EstimatedTiling:
    try:
        tiling, cycles = next(listed.estimated(design.config, design.timing))
    except VTAError as error:
        return EstimatedTiling(reason=str(error))
    return EstimatedTiling(tiling.text, cycles)
