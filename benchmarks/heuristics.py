"""What each heuristic constant of the compiler is worth: cycles with other values.

    python -m benchmarks heuristics                # all, some 20 minutes
    python -m benchmarks heuristics --only _SLACK

MobileNets and ResNet-18 with each constant changed alone. A constant whose other values change
nothing has no reason to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Annotated, Any

import typer

from benchmarks.options import Json, show, write_json
from trials import networks
from vtaops import compile_model
from vtaops.graph import Graph
from vtaops.lowering.linking import ordering
from vtaops.network import fragments
from vtaops.program.timing import TimingParameters
from vtaops.schedule import candidates, grouping

FREE = partial(networks.mobilenet_v2, free=True)
NETWORKS: dict[str, tuple[Callable[[], Graph], str, float | None]] = {
    "mobilenet_v1 pynq_ext": (networks.mobilenet_v1, "pynq_ext", None),
    "mobilenet_v2 pynq_ext": (networks.mobilenet_v2, "pynq_ext", None),
    "mobilenet_v2 free pynq_512 behind 14": (FREE, "pynq_512", 14.0),
    "resnet18 pynq_ext": (networks.resnet18, "pynq_ext", None),
    "mobilenet_v1 pynq": (networks.mobilenet_v1, "pynq", None),
}
"""Networks, where they run, and the bytes a cycle of the DRAM, if they have a limit."""

OTHERS: dict[ModuleType, dict[str, tuple[Any, ...]]] = {
    grouping: {
        "_SHARES": ((1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4), (1 / 4, 1 / 2, 3 / 4)),
        "_SLACK": (1.2, 2.0),
        "_ALONE": (1.0, 4.0),
        "_LATE": (4, 12),
        "_PER_TILE": (8, 32),
        "_WEIGHTS": (0.7, 0.95),
        "_ROWS": (0.5, 0.8),
        "_MOST_ROWS": (8,),
        "_MOST_BLOCKS": (6,),
    },
    candidates: {
        "TRAFFIC_SLACK": (1.1, 1.5),
        "_PER_REQUEST": (4, 16),
        "_PER_COMPUTE_INSTRUCTION": (6, 24),
        "_PER_STORE": (0, 8),
        "_PER_WAIT": (0, 100),
        "_ALIKE": (0.001, 0.01),
        "_AHEAD": (2, 8),
    },
    fragments: {
        "BREAK_EVEN": (0.97, 1.0),
        "MAX_UTILIZATION": (0.9, 1.0),
        "MAX_GROUP": (2, 4),
        "NEAR_BOUND": (1.0, 1.2),
    },
    ordering: {
        "LAG": (2, 8),
        "AHEAD": (1, 4),
        "WEIGHTS_AHEAD": (8, 128),
        "BEHIND": (2, 32),
        "MIN_ELEMENTS_PER_LOAD": (2, 8),
        "PARTS": (4, 16),
    },
}


def cycles() -> list[int]:
    """Return the cycles of each network."""
    grouping._choices.cache_clear()
    candidates._default.cache_clear()
    found = []
    for make, config, bandwidth in NETWORKS.values():
        dram = TimingParameters(dram_latency=100, bandwidth=bandwidth) if bandwidth else None
        model = compile_model(make(), config, verify=False, prove=False, check=False)
        found.append(model.cycles(dram))
    return found


def set_all(modules: Sequence[ModuleType], name: str, value: Any) -> None:
    """Set a constant where it is defined and where it is imported."""
    for module in modules:
        setattr(module, name, value)


def main(
    only: Annotated[str, typer.Option(help="Constants whose name contains this.")] = "",
    json_file: Json = None,
) -> None:
    """Compile with each constant changed alone."""
    base, rows = cycles(), {}
    for module, constants in OTHERS.items():
        for name, values in constants.items():
            if only not in name:
                continue
            kept = getattr(module, name)
            readers = [each for each in OTHERS if hasattr(each, name)]
            for value in values:
                set_all(readers, name, value)
                found = [f"{new / old - 1:+.2%}" for new, old in zip(cycles(), base, strict=True)]
                row = rows[f"{name} {value} for {kept}"] = dict(zip(NETWORKS, found, strict=True))
                print(name, value, row, flush=True)
            set_all(readers, name, kept)
    show("Cycles with another value", rows, of="constant")
    write_json(json_file, rows)
