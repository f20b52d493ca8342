"""From scheduled TIR to a Program: emission, micro-ops, tokens, encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm

from vtaops.config import HardwareConfig
from vtaops.isa import Encoding
from vtaops.lowering.accumulate import accumulate_in_place
from vtaops.lowering.emit import emit
from vtaops.lowering.micro_ops import place_micro_ops
from vtaops.lowering.nests import parse
from vtaops.lowering.overwrite import overwrite_instead_of_reset
from vtaops.lowering.post import post_process_outputs
from vtaops.lowering.scratchpads import ONE_TILE_EACH, Capacity
from vtaops.lowering.tokens import insert_tokens
from vtaops.program import Buffer, Program


def lower(
    module: tvm.IRModule,
    buffers: tuple[Buffer, ...],
    config: HardwareConfig,
    metadata: Mapping[str, Any],
    capacity: Capacity = ONE_TILE_EACH,
    micro_op_depth: int | None = None,
    skip_padding: bool = False,
) -> Program:
    """Return the program of a flat function.

    Parameters
    ----------
    module : IRModule
        Result of `flatten`; the parameters of ``main`` are the packed `buffers`.
    buffers : tuple of Buffer
        Arguments of the program.
    config : HardwareConfig
        Configuration to compile for.
    metadata : mapping
        Description that the program carries.
    capacity : Capacity
        Tiles of each operand that a virtual thread holds at once.
    micro_op_depth : int, optional
        Micro-ops that the device holds, where they are fewer than the configuration says.
    skip_padding : bool
        Whether products with the zeros around an image are left out.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    """
    tree = accumulate_in_place(parse(module["main"], config))
    depth = micro_op_depth or config.uop.depth
    operations = emit(tree, buffers, config, capacity, skip_padding, depth)
    if "overwrite" in config.extensions:
        operations = overwrite_instead_of_reset(operations, config.acc.depth)
    if "post" in config.extensions:
        operations = post_process_outputs(operations, config.acc.depth)
    operations, micro_ops = place_micro_ops(operations, config, depth)
    operations = insert_tokens(operations)
    return Program(
        config=config,
        instructions=Encoding.of(config).encode_all([o.instruction for o in operations]),
        relocations=np.array([o.relocation for o in operations], dtype=np.int32),
        micro_ops=micro_ops,
        buffers=buffers,
        metadata=metadata,
    )
