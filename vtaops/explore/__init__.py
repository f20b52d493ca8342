"""Design-space exploration: hardware for a network, with cycle counts exact to the RTL.

`Space` defines the hardware, `Network` the workload; `sweep` evaluates each design and `front`
returns the Pareto-optimal ones. An `Engine` computes on any executor and keeps results in a
`ResultStore`.
"""

from vtaops.explore.area import area, shares
from vtaops.explore.design import MACHINE_AXES, Design, Space
from vtaops.explore.energy import energy_pj
from vtaops.explore.engine import Engine, dask_executor, process_pool
from vtaops.explore.evaluation import (
    EstimatedTiling,
    Evaluation,
    TilingCandidate,
    TilingQuery,
    evaluate,
    model_version,
)
from vtaops.explore.network import Network
from vtaops.explore.store import ResultStore
from vtaops.explore.sweep import OBJECTIVES, LayerResult, Point, front, sweep

__all__ = [
    "MACHINE_AXES",
    "OBJECTIVES",
    "Design",
    "Engine",
    "EstimatedTiling",
    "Evaluation",
    "LayerResult",
    "Network",
    "Point",
    "ResultStore",
    "Space",
    "TilingCandidate",
    "TilingQuery",
    "area",
    "dask_executor",
    "energy_pj",
    "evaluate",
    "front",
    "model_version",
    "process_pool",
    "shares",
    "sweep",
]
