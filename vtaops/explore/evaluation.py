"""Tasks whose results are kept; one is an operator with a tiling on a design, and its cycles.

Defines the identity of such a candidate. Scratchpad sizes do not affect the cycles of a tiling that
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
from typing import Any, ClassVar, TypeVar

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


def array_of(config: HardwareConfig) -> tuple[object, ...]:
    """Return a key that is equal for configurations that differ only in scratchpad sizes."""
    return config.log_batch, config.log_block, config.extensions


def operator_dict(op: Operator) -> dict[str, Any]:
    """Return the identity of an operator as plain data."""
    stated = {f.name: getattr(op, f.name) for f in fields(op) if getattr(op, f.name) != f.default}
    return {"kind": type(op).__name__, **stated}


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
