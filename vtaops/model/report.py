"""The report of a model: placement, cycles and bytes of each layer.

Data only; `tables` prints it. A cycle belongs to the layer whose instruction the compute unit
finishes next, so the cycles of all layers add up to the total. Imports no TVM.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from vtaops.base.proof import CERTIFICATE, TRIED
from vtaops.program import OperatorRecord, Program, Statistics
from vtaops.program.region import NodePlacement

if TYPE_CHECKING:
    from vtaops.model.model import Model

SCHEMA_VERSION = 1
"""Version of `ModelReport.as_dict`."""


@dataclass(frozen=True)
class Layer(NodePlacement):
    """One operator of a network: a row of the plan, with its cost.

    Attributes
    ----------
    cycles : int
        Cycles of the accelerator; 0 on the host, and for operators without work.
    share : float
        Fraction of all cycles.
    macs : int
        Multiply-accumulates on logical shapes.
    utilization : float
        Used fraction of the GEMM array's peak in these cycles.
    counters : Statistics
        Bytes by memory, tile products, ALU passes.
    sqnr : float or None
        Signal-to-quantization-noise ratio of the result in dB, if known.
    """

    cycles: int = 0
    share: float = 0.0
    macs: int = 0
    utilization: float = 0.0
    counters: Statistics = field(default_factory=Statistics)
    sqnr: float | None = None


@dataclass(frozen=True)
class ModelReport:
    """Time and traffic of a network.

    Attributes
    ----------
    name, config : str
        The network and the configuration.
    clock_mhz : int
        The clock of the configuration's board.
    layers : tuple of Layer
        In the order of the graph.
    cycles : int
        Cycles of all launches.
    steady_cycles : int
        Cycles of a run whose weights are still on the chip; equal to `cycles` if none stay.
    launches : int
        Number of VTA regions.
    arena_nbytes, weights_nbytes, instructions_nbytes : int
        DRAM for scratch images, for weights, and for instructions with micro-ops.
    proven : int
        Launches with a certificate that they compute their nodes for every input.
    tried : tuple of str
        For each launch that has been run on random and extreme inputs instead: why, and on how
        many.
    batch : int
        Frames of a run: the first extent, if all inputs and outputs share it.
    file : str
        How the network compares with its file, as text.
    """

    name: str
    config: str
    clock_mhz: int
    layers: tuple[Layer, ...]
    cycles: int
    steady_cycles: int
    launches: int
    arena_nbytes: int
    weights_nbytes: int
    instructions_nbytes: int
    proven: int = 0
    tried: tuple[str, ...] = ()
    batch: int = 1
    file: str = ""

    @property
    def milliseconds(self) -> float:
        """Time of the accelerator in milliseconds, at the board's clock."""
        return 1e-3 * self.cycles / self.clock_mhz

    @property
    def frames_per_second(self) -> float:
        """Frame rate, excluding host time: a run has as many frames as the batch."""
        return 1e3 * self.batch / self.milliseconds if self.cycles else 0.0

    @property
    def macs(self) -> int:
        """Multiply-accumulates on the accelerator."""
        return sum(layer.macs for layer in self.layers)

    @property
    def counters(self) -> Statistics:
        """Bytes by memory, tile products and ALU passes of a run."""
        return sum((layer.counters for layer in self.layers), Statistics())

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data, ready for JSON; see `SCHEMA_VERSION`."""
        return {
            "schema_version": SCHEMA_VERSION,
            **vars(self),
            "milliseconds": self.milliseconds,
            "frames_per_second": self.frames_per_second,
            "macs": self.macs,
            "counters": self.counters.as_dict(),
            "layers": [asdict(layer) for layer in self.layers],
        }

    def __repr__(self) -> str:
        return f"<ModelReport of {self.name} on {self.config}: {self.cycles:,} cycles>"

    def __str__(self) -> str:
        from vtaops.model.tables import text

        return text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def report(model: Model, quality: Mapping[str, float]) -> ModelReport:
    """Return a model's report; as `Model.report`."""
    programs, cycles = model.programs, model.cycles()
    extents = {tensor.shape[:1] for tensor in (*model.graph.inputs, *model.graph.outputs)}
    return ModelReport(
        name=model.name,
        config=model.config.name,
        clock_mhz=model.config.board.clock_mhz,
        layers=_layers(model, quality, cycles),
        cycles=cycles,
        steady_cycles=model.steady_cycles(),
        launches=len(programs),
        arena_nbytes=max((program.arena_nbytes for program in programs), default=0),
        weights_nbytes=sum(a.nbytes for r in model.regions for a in r.parameters.values()),
        instructions_nbytes=sum(p.instructions.nbytes + p.micro_ops.nbytes for p in programs),
        proven=sum(CERTIFICATE in program.metadata for program in programs),
        tried=tuple(filter(None, map(_tried, programs))),
        batch=max(1, *extents.pop()) if len(extents) == 1 else 1,
        file=str(model.agreement),
    )


def _tried(program: Program) -> str:
    """Return how a program without a proof was tried, and why; empty if it was not."""
    tried = program.metadata.get(TRIED)
    return f"{tried['reason']}; equal on {tried['inputs']} inputs" if tried else ""


def _layers(model: Model, quality: Mapping[str, float], total: int) -> tuple[Layer, ...]:
    """Return the layers of a model, whose cycles are so many in total."""
    cycles, macs = Counter[str](), Counter[str]()
    counters = defaultdict[str, Statistics](Statistics)
    for program in model.programs:
        for number, start, end in program.timeline().layer_spans():
            cycles[program.operators[number].name] += end - start
        for record in program.operators:
            macs[record.name] = max(macs[record.name], record.macs)
            counters[record.name] += part(program, record).stats()
    peak = model.config.products_per_cycle
    return tuple(
        Layer(
            **vars(row),
            cycles=cycles[row.name],
            share=cycles[row.name] / max(1, total),
            macs=macs[row.name],
            utilization=counters[row.name].array_share(cycles[row.name], peak),
            counters=counters[row.name],
            sqnr=quality.get(row.name),
        )
        for row in model.plan
    )


def compute_time(programs: Sequence[Program], name: str) -> Counter[str]:
    """Return what the compute unit does in the cycles of a layer, by kind of work or of waiting."""
    found: Counter[str] = Counter()
    for timeline in (program.timeline() for program in programs):
        records = timeline.program.operators
        spans = [span for n, *span in timeline.layer_spans() if records[n].name == name]
        for segment in timeline.segments["compute"] if spans else ():
            ends = (min(segment.end, end) - max(segment.start, start) for start, end in spans)
            found[segment.kind] += sum(cycles for cycles in ends if cycles > 0)
    return found


def part(program: Program, record: OperatorRecord) -> Program:
    """Return the instructions of one operator, for counting, not for running."""
    rows = [i for span in record.spans for i in range(*span)]
    return Program(
        config=program.config,
        instructions=program.instructions[rows],
        relocations=program.relocations[rows],
        micro_ops=program.micro_ops,
        buffers=program.buffers,
    )
