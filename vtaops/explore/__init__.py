"""Design-space exploration: hardware for a network, with cycle counts exact to the RTL.

`Space` defines the hardware, `Network` the workload; `sweep` evaluates each design and `front`
returns the Pareto-optimal ones. An `Engine` computes on any executor and keeps results in a
`ResultStore`. `search` finds fronts of large spaces.
"""

from vtaops.explore.area import area, share
from vtaops.explore.design import MACHINE_AXES, Design, Space
from vtaops.explore.engine import Engine, InThisProcess, dask_executor, process_pool
from vtaops.explore.front import OBJECTIVES, front, front_by_bound
from vtaops.explore.network import Network
from vtaops.explore.search import Found, search
from vtaops.explore.shortlist import EFFORTS, Effort, Ranking, Shortlist, shortlist
from vtaops.explore.store import ResultStore
from vtaops.explore.sweep import LayerResult, Point, sweep
from vtaops.explore.verdict import Question, Verdict, answer, energy, model_version
from vtaops.program.energy import Energy

__all__ = [
    "EFFORTS",
    "MACHINE_AXES",
    "OBJECTIVES",
    "Design",
    "Effort",
    "Energy",
    "Engine",
    "Found",
    "InThisProcess",
    "LayerResult",
    "Network",
    "Point",
    "Question",
    "Ranking",
    "ResultStore",
    "Shortlist",
    "Space",
    "Verdict",
    "answer",
    "area",
    "dask_executor",
    "energy",
    "front",
    "front_by_bound",
    "model_version",
    "process_pool",
    "search",
    "share",
    "shortlist",
    "sweep",
]
