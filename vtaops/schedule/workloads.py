"""Named operators: published VTA benchmark layers, and those of the tutorials.

Sources: ResNet-18, DCGAN and the grouped MobileNet as in upstream's benchmarks; the depthwise
layers of MobileNet 1.0 (arXiv 1704.04861, table 1; `mobilenet-grouped` has 16 channels a group);
LeNet-5; the shapes and schedules of TVM's VTA tutorials. workloads.json has a line for each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from vtaops import ops
from vtaops.base.errors import ShapeError
from vtaops.ops import Operator
from vtaops.schedule import Tiling


@dataclass(frozen=True)
class Workload:
    """A named operator.

    Attributes
    ----------
    name : str
        For example ``"resnet18.C8"``.
    op : Operator
        The operator.
    occurrences : int
        Number of occurrences in its network.
    tiling : Tiling or None
        The published schedule; None: the default.
    """

    name: str
    op: Operator
    occurrences: int = 1
    tiling: Tiling | None = None


def _workload(
    name: str, kind: str, occurrences: int = 1, tiling: str = "", **parameters: Any
) -> Workload:
    op = getattr(ops, kind)(**parameters)
    return Workload(name, op, occurrences, Tiling.parse(tiling) if tiling else None)


WORKLOADS = {
    name: _workload(name, **row)
    for name, row in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}
"""All named operators."""


def find(name: str) -> Workload:
    """Return a workload by name.

    Raises
    ------
    ShapeError
        If the name is unknown; the message lists similar names.
    """
    if name not in WORKLOADS:
        near = get_close_matches(name, WORKLOADS, cutoff=0.0)
        raise ShapeError(
            f"no layer {name!r}; the nearest are {', '.join(near)}; vtaops list layers lists all "
            f"{len(WORKLOADS)}"
        )
    return WORKLOADS[name]
