"""Dead loads: a tile that no instruction reads before it is overwritten need not be loaded.

Where products with padding are left out, all products of a tile of weights, or of pixels, may be.
"""

from __future__ import annotations

import numpy as np

from vtaops.lowering.operation import Operation
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Load

_OPERANDS = ("inp", "wgt")


def without_dead_loads(operations: list[Operation], config: HardwareConfig) -> list[Operation]:
    """Return the operations without the loads of inputs and weights that nobody reads."""
    live = {space: np.zeros(getattr(config, space).depth, np.bool_) for space in _OPERANDS}
    kept = []
    for operation in reversed(operations):
        touches = [touch for touch in operation.touches if touch.space in live]
        written = [touch for touch in touches if touch.write]
        read = any(live[touch.space][touch.elements].any() for touch in written)
        if isinstance(operation.instruction, Load) and written and not read:
            continue
        for touch in sorted(touches, key=lambda touch: not touch.write):  # reads come first
            live[touch.space][touch.elements] = not touch.write
        kept.append(operation)
    return kept[::-1]
