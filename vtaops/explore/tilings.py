"""Tilings of an operator: the best on a design by the estimate, and the values of each field.

Estimates take milliseconds and compile nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, get_args

from vtaops.base.errors import ScheduleError, StoreError, VTAError
from vtaops.explore.bounds import least_cycles
from vtaops.explore.design import Design
from vtaops.explore.evaluation import (
    array_of,
    is_count,
    key_of,
    name_of,
    operator_dict,
)
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
    tiling : Tiling or None
        The tiling; None if none fits.
    estimate : int
        Its estimated cycles.
    least : int
        Lower bound of any tiling's cycles.
    reason : str
        Why there is none.
    """

    tiling: Tiling | None = None
    estimate: int = 0
    least: int = 0
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; the inverse is `of`."""
        return {**vars(self), "tiling": self.tiling and vars(self.tiling)}

    @classmethod
    def of(cls, data: dict[str, Any]) -> EstimatedTiling:
        """Deserialize an estimate.

        Raises
        ------
        StoreError
            If `data` is not from `as_dict`.
        """
        try:
            tiling = data["tiling"]
            estimated = cls(**{**data, "tiling": None if tiling is None else Tiling(**tiling)})
        except (KeyError, TypeError, ScheduleError) as error:
            raise StoreError(f"this is no estimated tiling: {str(data)[:200]}") from error
        known = (
            is_count(estimated.estimate)
            and is_count(estimated.least)
            and type(estimated.reason) is str
        )
        if not known or (estimated.tiling is None and not estimated.reason):
            raise StoreError(f"this is no estimated tiling: {str(data)[:200]}")
        return estimated


@dataclass(frozen=True)
class TilingQuery:
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
    def key(self) -> str:
        """Key of the record in a store."""
        return key_of(self.data)

    @cached_property
    def shares(self) -> tuple[object, ...]:
        """A key that is equal for queries of one operator on one array."""
        return name_of(self.op), *array_of(self.design.config)


def estimate_tilings(queries: Sequence[TilingQuery]) -> list[EstimatedTiling]:
    """Find the best tilings of operators on designs, by the estimate.

    Consecutive queries of one operator on one array share the enumeration of its tilings.
    """
    estimates: list[EstimatedTiling] = []
    for _, group in groupby(queries, lambda query: query.shares):
        same = list(group)
        sizes = [depths_of(query.design.config) for query in same]
        largest = {memory: max(depths[memory] for depths in sizes) for memory in sizes[0]}
        try:
            config = same[0].design.config
            listed = TilingList(same[0].op, config, largest)
        except VTAError as error:
            estimates += [EstimatedTiling(reason=str(error)) for _ in same]
        else:
            estimates += [_estimated(query.design, listed) for query in same]
    return estimates


def _estimated(design: Design, listed: TilingList) -> EstimatedTiling:
    try:
        tiling, cycles = next(listed.estimated(design.config, design.timing))
        least = least_cycles(listed, design.config, design.timing)
    except VTAError as error:
        return EstimatedTiling(reason=str(error))
    return EstimatedTiling(tiling, cycles, least)
