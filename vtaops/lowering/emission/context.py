"""State shared by the emission of one operator: hardware, options, tiles."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from vtaops.lowering.emission.padding import PaddingMasks
from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.options import LoweringOptions
from vtaops.lowering.tree.expressions import Values
from vtaops.machine.config import HardwareConfig
from vtaops.program import Buffer

_T = TypeVar("_T")


class Memo:
    """A memo table with explicit keys."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[..., _T], *arguments: Any) -> _T:
        """Return what `make` returns for these arguments, calling it once for a key."""
        try:
            value: _T = self._known[key]
        except KeyError:
            value = self._known[key] = make(*arguments)
        return value


def picker(names: Sequence[str]) -> Callable[[Values], Hashable]:
    """Return a function that picks the values of some loops, as a key."""
    return itemgetter(*names) if names else lambda values: ()


@dataclass(frozen=True)
class Context:
    """State shared by copies and computation.

    Attributes
    ----------
    config : HardwareConfig
        The hardware.
    options : LoweringOptions
        Requirements of schedule and device.
    addresses : Addresses
        Addresses of the tiles.
    buffers : tuple of Buffer
        The arguments in DRAM.
    changing : frozenset of str
        Those that the operator both stores and loads.
    pass_after_reset : bool
        Whether the ALU adds 0 to every reset accumulator.
    padding : PaddingMasks
        Padding of the current tiles that is unwritten, or zeros. Copies record it; computation
        skips products with it.
    """

    config: HardwareConfig
    options: LoweringOptions
    addresses: Addresses
    buffers: tuple[Buffer, ...]
    changing: frozenset[str]
    pass_after_reset: bool
    padding: PaddingMasks = field(default_factory=PaddingMasks)
