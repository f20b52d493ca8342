"""ResNet-18 as one Program: the time to emit, link and verify it, and its cycles.

    python -m benchmarks linked_resnet18 --size 224 --json linked.json

The cycles stand beside the sum of the operators as programs of their own.
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.options import Config, Json, figure_table, write_json
from trials.linked_resnet18 import linked_resnet18
from vtaops import HardwareConfig
from vtaops.lowering import link, whole
from vtaops.machine.capabilities import of_target
from vtaops.runtime.fsim import Fsim


def main(
    size: Annotated[int, typer.Option(help="Rows and columns of the image.")] = 224,
    config_name: Config = "pynq",
    json_file: Json = None,
) -> None:
    """Link the network, verify it, run it, and print the figures."""
    config = HardwareConfig.load(config_name)
    program, arrays, expected, linker = linked_resnet18(size, config)
    start = time.process_time()
    link(linker.parts, linker.buffers)
    linking = time.process_time() - start
    start = time.process_time()
    program.verify(of_target(config))
    verifying = time.process_time() - start
    alone = {op: link([whole(f)], f.buffers).cycles() for op, f in linker.fragments.items()}
    with Fsim(config) as device:
        equal = np.array_equal(program.run(device, *arrays), expected)
    figures = {
        "operators": len(linker.parts),
        "distinct operators": len(linker.fragments),
        "instructions": len(program),
        "micro-ops": len(program.micro_ops),
        "link, s of CPU": round(linking, 3),
        "verify, s of CPU": round(verifying, 3),
        "arena, bytes": program.arena_nbytes,
        "all results, bytes": sum(b.nbytes for b in program.buffers if b.offset is not None),
        "cycles": program.cycles(),
        "cycles of the operators alone": sum(alone[step.op] for step in linker.steps),
        "equal to NumPy": equal,
    }
    table = figure_table(f"ResNet-18 of {size} x {size} as one program", ["what"], ["figure"])
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if not isinstance(value, bool) else str(value))
    Console().print(table)
    write_json(json_file, figures)
    if not equal:
        raise SystemExit(1)
