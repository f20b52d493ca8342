"""Tasks whose results are kept: the best tiling by an estimate, and the cycles of a tiling.

An estimate takes milliseconds and compiles nothing. A candidate is an operator with a tiling on a
design; its identity is defined here. Scratchpad sizes do not affect the cycles of a tiling that
fits, so candidates that differ only in them are one: the program is compiled for the smallest
scratchpads that hold it. The size of the micro-op memory does matter, since micro-ops are reloaded
if they do not all fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import vtaops._timing as _timing
from vtaops.base.errors import ConfigError, StoreError, VTAError
from vtaops.base.records import MALFORMED, check_fields
from vtaops.compiler.driver import compile
from vtaops.explore.design import Design
from vtaops.machine.capabilities import of_target
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.program import Program, Statistics
from vtaops.program.timing import simulate
from vtaops.schedule import Tiling, blocked_shape, check_tiling
from vtaops.schedule.candidates import TilingList, depths_of
from vtaops.schedule.tiling import Operand

_PACKAGE = Path(__file__).parent.parent


@cache
def model_version() -> str:
    """Return a digest of the sources of vtaops: an evaluation of another version is not reused.

    The timing model's loop, in C++, contributes a digest of its own sources.
    """
    digest = hashlib.sha256(_timing.sources.encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Task:
    """What is computed once; its result is a record of a store. Its data decide the result."""

    kind: ClassVar[str]
    data: Any
    shares: Any
    """Equal for tasks that share work; these are computed together."""

    @staticmethod
    def compute(tasks: Any) -> list[Any]:
        """Return the results of tasks with equal `shares`."""
        raise NotImplementedError

    @cached_property
    def key(self) -> str:
        """Key of the record in a store: a hash of the data and the version of the model."""
        text = json.dumps({**self.data, "version": model_version()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


_Result = TypeVar("_Result")


def read_result(kind: type[_Result], data: Any) -> _Result:
    """Return a result from plain data.

    Raises
    ------
    StoreError
        If they are not those of a result.
    """
    try:
        check_fields(kind, data)
        return kind(**data)
    except (VTAError, *MALFORMED) as error:
        raise StoreError(f"{data!r:.200} is no {kind.__name__}: {error}") from error


def operator_dict(op: Operator) -> dict[str, Any]:
    """Return the identity of an operator as plain data."""
    stated = {f.name: getattr(op, f.name) for f in fields(op) if getattr(op, f.name) != f.default}
    return {"kind": type(op).__name__, **stated}


# ---------------------------------------------------------------------------------- estimates

MOST_TILES = 8
"""Largest number of tiles of an operand that `tiling_axes` holds at once."""


def tiling_axes(op: Operator, config: HardwareConfig) -> dict[str, tuple[Any, ...]]:
    """Return the values that a search or an agent may choose for each field of a tiling.

    Virtual threads and parts of the kernel are left out; not every combination fits.
    """
    shape, counts = blocked_shape(op, config), tuple(range(1, MOST_TILES + 1))
    return {
        "oc": tuple(config.block_out * n for n in range(1, shape.oc + 1)),
        "ic": tuple(config.block_in * n for n in range(1, shape.ic + 1)),
        "h": tuple(range(1, shape.rows.extent + 1)),
        "w": tuple(range(1, shape.columns.extent + 1)),
        "inp_tiles": counts,
        "wgt_tiles": counts,
        "acc_tiles": (1, 2),
        "keep": get_args(Operand),
    }


@dataclass(frozen=True)
class EstimatedTiling:
    """The tiling with the fewest estimated cycles.

    Attributes
    ----------
    text : str
        The tiling; empty if none fits.
    estimate : int
        Its estimated cycles.
    reason : str
        Why there is none.
    """

    text: str = ""
    estimate: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.estimate < 0 or not (self.tiling or self.reason):
            raise ValueError("the estimate is negative, or there is neither a tiling nor a reason")

    @property
    def tiling(self) -> Tiling | None:
        """The tiling."""
        return Tiling.parse(self.text) if self.text else None


@dataclass(frozen=True)
class TilingQuery(Task):
    """What to find a tiling for.

    Attributes
    ----------
    op : Operator
        The operator.
    design : Design
        The hardware.
    """

    kind: ClassVar[str] = "tilings"

    op: Operator
    design: Design

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the estimate depends on, as plain data."""
        return {"operator": operator_dict(self.op), "design": self.design.machine}

    @cached_property
    def shares(self) -> tuple[object, ...]:
        """A key that is equal for queries of one operator on one array: they share its tilings."""
        config = self.design.config
        return repr(self.op), config.log_batch, config.log_block, config.extensions

    @staticmethod
    def compute(tasks: Sequence[TilingQuery]) -> list[EstimatedTiling]:
        """Find the best tilings by the estimate, of queries with equal `shares`."""
        sizes = [depths_of(query.design.config) for query in tasks]
        largest = {memory: max(depths[memory] for depths in sizes) for memory in sizes[0]}
        try:
            listed = TilingList(tasks[0].op, tasks[0].design.config, largest)
        except VTAError as error:
            return [EstimatedTiling(reason=str(error)) for _ in tasks]
        return [_estimated(query.design, listed) for query in tasks]


def _estimated(design: Design, listed: TilingList) -> EstimatedTiling:
    try:
        tiling, cycles = next(listed.estimated(design.config, design.timing))
    except VTAError as error:
        return EstimatedTiling(reason=str(error))
    return EstimatedTiling(tiling.text, cycles)


# ------------------------------------------------------------------------------- evaluations


@dataclass(frozen=True)
class TilingCandidate(Task):
    """An operator with a tiling on a design.

    Attributes
    ----------
    op : Operator
        The operator.
    tiling : Tiling
        Its tiling.
    design : Design
        The hardware; of its scratchpads only the micro-op memory matters.
    """

    kind: ClassVar[str] = "evaluation"

    op: Operator
    tiling: Tiling
    design: Design

    @cached_property
    def config(self) -> HardwareConfig:
        """The configuration to compile for: the smallest scratchpads that hold the tiling."""
        return _smallest(self.op, self.tiling, self.design.config)

    @cached_property
    def data(self) -> dict[str, Any]:
        """Everything that the evaluation depends on, as plain data."""
        return {
            "operator": operator_dict(self.op),
            "tiling": self.tiling.text,
            "config": self.config.to_dict(),
            "capabilities": of_target(self.design.config).name,
            "timing": asdict(self.design.timing),
        }

    @cached_property
    def shares(self) -> tuple[object, ...]:
        """Key equal for candidates about one program, which is compiled once."""
        return repr(self.op), self.tiling.text, self.config.bitstream_id

    @staticmethod
    def compute(tasks: Sequence[TilingCandidate]) -> list[Evaluation]:
        """Compile and time candidates."""
        return [*map(evaluate, tasks)]


def _smallest(op: Operator, tiling: Tiling, config: HardwareConfig) -> HardwareConfig:
    """Return the configuration with the smallest scratchpads that hold a tiling.

    The packing rules reject a few combinations of sizes; then the next larger one is tried.
    """
    used = blocked_shape(op, config).footprint(tiling, config)
    least = {}
    for memory in ("inp", "wgt", "acc"):
        size = max(2, used[memory]) * getattr(config, memory).element_bytes  # none has fewer
        least[f"log_{memory}_buff_size"] = (size - 1).bit_length()
    for more in sorted(product(range(6), repeat=len(least)), key=sum):
        sizes = {name: log + m for (name, log), m in zip(least.items(), more, strict=True)}
        try:
            return replace(config, target="sim", **sizes)
        except ConfigError as error:
            refusal = error
    raise ConfigError(f"no scratchpads hold {tiling}: {refusal}")


@dataclass(frozen=True)
class Evaluation:
    """The program of a candidate, timed by the model.

    Attributes
    ----------
    reason : str
        Why there is no such program; if empty, the other fields are valid.
    cycles : int
        Cycles of one run, by the timing model.
    compute_cycles : int
        Cycles in which the compute unit works: GEMM, ALU, and its own loads.
    read_beats, write_beats : int
        Words transferred over the DRAM port.
    counters : dict
        Upstream's seven counters (`vtaops.Statistics`): bytes by memory, tile products, ALU passes.
    """

    reason: str = ""
    cycles: int = 0
    compute_cycles: int = 0
    read_beats: int = 0
    write_beats: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = self.cycles, self.compute_cycles, self.read_beats, self.write_beats
        if min(*counts, *vars(self.statistics).values()) < 0:
            raise ValueError("a figure is negative")

    @property
    def legal(self) -> bool:
        """Whether the program exists."""
        return not self.reason

    @property
    def statistics(self) -> Statistics:
        """Upstream's counters; zeros if nothing was counted."""
        return Statistics(**self.counters)

    @property
    def dram_nbytes(self) -> int:
        """Bytes to and from DRAM, without instructions."""
        return self.statistics.dram_nbytes


def evaluate(candidate: TilingCandidate) -> Evaluation:
    """Compile and time the program of a candidate; failure to compile is a result, too."""
    try:
        config = candidate.design.config
        check_tiling(candidate.op, config, candidate.tiling)
        capabilities = of_target(config).name
        program = _compiled(candidate.op, candidate.config, candidate.tiling, capabilities)
    except VTAError as error:
        return Evaluation(reason=str(error))
    timeline = simulate(program, candidate.design.timing, events=False)
    return Evaluation(
        cycles=timeline.cycles,
        compute_cycles=timeline.compute_work,
        read_beats=timeline.port.read_beats,
        write_beats=timeline.port.write_beats,
        counters=program.stats().as_dict(),
    )


@lru_cache(maxsize=16)
def _compiled(op: Operator, config: HardwareConfig, tiling: Tiling, capabilities: str) -> Program:
    """Return a program, to be timed on several machines."""
    return compile(op, config, tiling, capabilities=capabilities, verify=False)
