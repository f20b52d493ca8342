"""State shared by the emission of one operator: hardware, options, tiles."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtaops.lowering.emission.padding import Paddings
from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.options import LoweringOptions
from vtaops.lowering.tree.expressions import Expression, Values
from vtaops.lowering.tree.nodes import Loop, grid_of
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


def picker(names: Iterable[str]) -> Callable[[Values], Hashable]:
    """Return a function that picks the values of some loops, as a key."""
    own = sorted(names)
    return itemgetter(*own) if own else lambda values: ()


class Iterations:
    """The iterations of a nest, over which expressions are evaluated.

    Parameters
    ----------
    loops : sequence of Loop
        The loops of the nest.
    deciding : iterable of Expression
        Those whose values say what the nest does.
    """

    def __init__(self, loops: Sequence[Loop], deciding: Iterable[Expression]) -> None:
        self._points = grid_of(loops)
        self._deciding = [(e, self.picker([e]), dict[Hashable, bytes]()) for e in deciding]

    def picker(self, expressions: Iterable[Expression]) -> Callable[[Values], Hashable]:
        """Return a function that picks the values of the outer loops that expressions use."""
        return picker({name for e in expressions for name in e.names} - self._points.keys())

    def evaluate(self, expression: Expression, values: Values) -> npt.NDArray[Any]:
        """Evaluate an expression over all iterations; other loops' axes have extent 1."""
        found = np.asarray(expression({**values, **self._points}))
        return found.reshape((1,) * (len(self._points) - found.ndim) + found.shape)

    def decided(self, values: Values) -> tuple[bytes, ...]:
        """Return what the expressions say for the current values of the outer loops, as a key."""
        found = []
        for expression, pick, known in self._deciding:
            point = pick(values)
            if point not in known:
                known[point] = self.evaluate(expression, values).tobytes()
            found.append(known[point])
        return (*found,)


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
    paddings : Paddings
        Padding of the current tiles that is unwritten, or zeros. Copies record it; computation
        skips products with it.
    """

    config: HardwareConfig
    options: LoweringOptions
    addresses: Addresses
    buffers: tuple[Buffer, ...]
    changing: frozenset[str]
    pass_after_reset: bool
    paddings: Paddings = field(default_factory=Paddings)
