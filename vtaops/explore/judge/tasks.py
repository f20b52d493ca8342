"""Tasks of the judge: what to compute, on which hardware, in which DRAM; all of it data.

A task is an operator, or a small graph of integers whose weights belong to it. The buffers of the
compiled program are its DRAM layout, and the compiler's cycles are what an answer competes with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

import vtaops.ops as ops
from vtaops.base.errors import ScheduleError, ShapeError, UnsupportedError
from vtaops.compiler.driver import compile
from vtaops.graph import (
    Add,
    Convolution,
    Dense,
    Graph,
    Requantization,
)
from vtaops.machine.config import HardwareConfig
from vtaops.network import compile_model
from vtaops.ops import AvgPool2d, BatchMatmul, Conv2d, Conv2dTranspose, Gemm, MaxPool2d, Operator
from vtaops.program import Buffer, Program, Role
from vtaops.program.region import Region
from vtaops.program.timing.parameters import TimingParameters
from vtaops.proof.tasks import ProofTask, launch_task, operator_task
from vtaops.schedule import Tiling, blocked_shape
from vtaops.schedule.candidates import computed_cycles
from vtaops.schedule.workloads import find


@dataclass(frozen=True, eq=False)
class KernelTask:
    """Something to compute with as few cycles as possible.

    Attributes
    ----------
    name : str
        For example ``"pynq/resnet18.C2"``.
    config : HardwareConfig
        The hardware.
    definition : Operator or Graph
        What to compute. The weights of a graph are part of the task, those of an operator are
        arguments.
    """

    name: str
    config: HardwareConfig
    definition: Operator | Graph

    @cached_property
    def region(self) -> Region | None:
        """The compiled launch of a graph; None for an operator.

        Raises
        ------
        UnsupportedError
            If the graph is not one launch.
        """
        if isinstance(self.definition, Operator):
            return None
        model = compile_model(self.definition, self.config, prove=False, check=False)
        if len(model.regions) != 1 or len(model.stages) != 1:
            raise UnsupportedError(f"{self.name} is {len(model.stages)} stages; a task is one")
        return model.regions[0]

    @cached_property
    def compiled(self) -> Program:
        """The compiler's answer, without records."""
        if self.region is not None:
            program = self.region.program
        else:
            program = compile(self.definition, self.config, prove=False)  # type: ignore[arg-type]
        return replace(program, metadata={}, operators=())

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The DRAM that every answer gets."""
        return self.compiled.buffers

    @cached_property
    def cycles(self) -> int:
        """The cycles of the compiler's program."""
        return self.compiled.cycles()

    def tiled(self, tiling: Tiling) -> Program:
        """Return the program of a tiling.

        Raises
        ------
        ScheduleError
            If the task is a graph, or the tiling does not fit.
        """
        if not isinstance(self.definition, Operator):
            raise ScheduleError(
                f"{self.name} is a graph of several operators; a tiling answers a task of one "
                "operator. Answer with a stream or a schedule"
            )
        return compile(self.definition, self.config, tiling, prove=False, verify=False)

    def obligation(self, program: Program) -> ProofTask:
        """Return what is to be proven of a program with the buffers of this task."""
        if self.region is None:
            return operator_task(program, self.definition)
        assert isinstance(self.definition, Graph)
        return launch_task(self.definition, replace(self.region, program=program))

    @cached_property
    def bound(self) -> int:
        """A lower bound on the cycles: products and passes, or weights and results over the port.

        Each is counted once, whichever is more; results within a launch may stay on the chip.
        """
        port = TimingParameters().port_width(self.config)
        read, written = (
            sum(b.nbytes for b in self.buffers if b.role is role) / port
            for role in (Role.PARAMETER, Role.OUTPUT)
        )
        if isinstance(self.definition, Operator):
            operators = [self.definition]
        else:
            assert self.region is not None
            records = self.region.program.operators
            operators = [getattr(ops, record.kind)(**record.parameters) for record in records]
        shapes = (blocked_shape(op, self.config) for op in operators)
        computed = sum(computed_cycles(shape, self.config, 1, least=True) for shape in shapes)
        return int(max(read, written, computed))

    @property
    def about(self) -> str:
        """The definition in a line."""
        if isinstance(self.definition, Operator):
            return self.definition.summary
        return " > ".join(node.op.kind for node in self.definition.nodes)


# ----------------------------------------------------------------------------------- graphs


def _block(
    channels: int, *layers: tuple[int, int, int], residual: bool = True, free: bool = True
) -> Graph:
    """Return convolutions (channels, kernel, groups) with seeded weights, one behind the other.

    The last one adds the data if they are a residual.
    """
    rng, graph = np.random.default_rng(61), Graph("task")
    x = data = graph.input("data", (1, channels, 14, 14))
    for number, (outputs, kernel, groups) in enumerate(layers, 1):
        inputs, others = x.shape[1] // groups, [data] * (residual and number == len(layers))
        weight = rng.integers(-64, 65, (outputs, inputs, kernel, kernel)).astype(np.int8)
        bias = rng.integers(-4000, 4001, outputs).astype(np.int32)
        shift = 6 + (inputs * kernel * kernel).bit_length() // 2
        factor = 1 << shift if others else None
        multiplier, more = (rng.integers(1 << 15, 1 << 16, outputs), 16) if free else (1, 0)
        scaling = Requantization(multiplier, shift + more, 0, (0, 127))
        window = (1, 1), (kernel // 2,) * 4, (1, 1)
        x = graph.add(Convolution(weight, bias, scaling, *window, groups, factor), x, *others)
    graph.output(x)
    return graph


def _residual_sum() -> Graph:
    graph = Graph("task")
    first, second = (graph.input(name, (1, 64, 14, 14)) for name in ("first", "second"))
    graph.output(graph.add(Add((1, 1), Requantization(1, 1, 0, (0, 127))), first, second))
    return graph


def _attention_head() -> Graph:
    """Return a head over learned keys and values: queries, scores of the keys, sums of values."""
    rng, graph = np.random.default_rng(61), Graph("task")
    x = graph.input("data", (32, 64))
    for outputs, inputs in ((32, 64), (48, 32), (64, 48)):
        weight = rng.integers(-64, 65, (outputs, inputs)).astype(np.int8)
        x = graph.add(Dense(weight, None, Requantization(1, 10, 0, (0, 127))), x)
    graph.output(x)
    return graph


# ------------------------------------------------------------------------------------- list

_SMALL = {"in_channels": 32, "out_channels": 32, "height": 14, "width": 14, "shift": 8}
RELU = (0, 127)
_GEMM = Gemm(m=32, n=128, k=256, shift=8, clip=RELU)
_MAX_POOL = MaxPool2d(channels=32, height=14, width=14, kernel=3, strides=2, padding=1)


def _conv(kernel: int = 3, padding: int = 1, **more: Any) -> Operator:
    return Conv2d(kernel=kernel, padding=padding, **{**_SMALL, "clip": RELU, **more})


_DEFINITIONS: dict[str, Operator | Callable[[], Graph]] = {
    "tiny/first": Gemm(m=1, n=8, k=8, shift=4),
    "tiny/gemm": Gemm(m=8, n=32, k=32, shift=6, clip=RELU),
    "tiny/conv2d": _conv(in_channels=16, out_channels=16, height=8, width=8),
    "tiny/max_pool": MaxPool2d(channels=16, height=8, width=8, kernel=2, strides=2),
    "pynq/gemm": _GEMM,
    "pynq/batch_matmul": BatchMatmul(batch=4, m=16, n=32, k=32, shift=6),
    **{f"pynq/resnet18.C{n}": find(f"resnet18.C{n}").op for n in range(2, 12)},
    "pynq/strided": _conv(strides=2),
    "pynq/dilated": _conv(dilation=2, padding=2),
    "pynq/grouped": _conv(groups=2),
    "pynq/transposed": Conv2dTranspose(
        in_channels=32, out_channels=32, height=7, width=7, kernel=4, strides=2, padding=1, shift=8
    ),
    "pynq/depthwise": _conv(groups=32),
    "pynq/max_pool": _MAX_POOL,
    "pynq/avg_pool": AvgPool2d(channels=32, height=14, width=14, kernel=2, strides=2),
    "pynq/residual_sum": _residual_sum,
    "pynq/basic_block": partial(_block, 32, (32, 3, 1), (32, 3, 1), free=False),
    "pynq_ext/attention_scores": BatchMatmul(batch=4, m=32, n=32, k=64, shift=9),
    "pynq_ext/conv2d": _conv(),
    "pynq_ext/depthwise": _conv(groups=32),
    "pynq_ext/max_pool": _MAX_POOL,
    "pynq_ext/scales": _conv(bias=True, scales=True, shift=0),
    "pynq_ext/fused_pair": partial(_block, 32, (32, 1, 1), (32, 3, 32), residual=False),
    "pynq_ext/bottleneck": partial(_block, 64, (16, 1, 1), (16, 3, 1), (64, 1, 1)),
    "pynq_ext/inverted_residual": partial(_block, 16, (96, 1, 1), (96, 3, 96), (16, 1, 1)),
    "pynq_ext/attention_head": _attention_head,
    "pynq_512/gemm": _GEMM,
    "pynq_512/conv2d": _conv(),
}  # fmt: skip


def task_names() -> list[str]:
    """Return the names of all tasks."""
    return [*_DEFINITIONS]


def find_task(name: str) -> KernelTask:
    """Return a task by its name; the part before the slash is its configuration.

    Raises
    ------
    ShapeError
        If there is none of that name.
    """
    if name not in _DEFINITIONS:
        raise ShapeError(f"no task {name!r}; there are those that vtaops judge lists")
    made = _DEFINITIONS[name]
    definition = made if isinstance(made, Operator) else made()
    return KernelTask(name, HardwareConfig.load(name.partition("/")[0]), definition)
