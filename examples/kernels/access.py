"""Space-time diagrams: the array elements that a scheduled kernel accesses over time.

`trace_threads` has those of a GPU from the emulator. `trace` walks the loops of a CPU schedule
as a processor would, one step per innermost statement (the
lanes of a vector share a step), and records every array read and write. Meant for small sizes: it
shows the effect of tiling, reordering and vectorizing on the order of accesses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tvm import s_tir, tirx
from tvm.ir.transform import Sequential

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cuda import CudaKernel
from vtaops.kernels.cuda.emulate import Emulated

_LIMIT = 1_000_000
"""Accesses after which a trace is abandoned: the size is too large for a diagram."""


@dataclass(frozen=True)
class ArrayAccess:
    """One access: its step, the array's name, the offset in elements, and whether it writes."""

    step: int
    array: str
    offset: int
    write: bool


def trace(schedule: Any) -> list[ArrayAccess]:
    """Return the accesses of a scheduled CPU kernel, in order.

    Raises
    ------
    UnsupportedError
        If the kernel contains statements other than loops, conditions and stores, or runs too long.
    """
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    function = Sequential(passes)(schedule.mod)["main"]
    tracer = _Tracer()
    tracer.run(function.body)
    return tracer.accesses


def trace_threads(kernel: CudaKernel, threads: int = 32) -> list[ArrayAccess]:
    """Return the accesses of the first threads of a kernel; those of a warp share their steps.

    A step is the number of accesses that a thread made before. Shared memory is "shared 0" and so
    on, in the order of the source.

    Raises
    ------
    UnsupportedError
        If there is no C++ compiler.
    """
    emulated = Emulated.of(kernel, counting=True)
    specs = kernel.op.arguments
    emulated({spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}, steps=1 << 20)
    names = [*emulated.names, *(f"shared {n}" for n in range(16))]
    return [
        ArrayAccess(int(step), names[array], int(element), bool(write))
        for thread, step, array, element, write in emulated.steps()
        if thread < threads
    ]


_BINARY: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Div": operator.floordiv,
    "Mod": operator.mod,
    "Min": min,
    "Max": max,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}


@dataclass
class _Tracer:
    """A TIR interpreter that evaluates indices and conditions, but not values."""

    accesses: list[ArrayAccess] = field(default_factory=list)
    values: dict[Any, int] = field(default_factory=dict)
    step: int = 0
    lanes: bool = False  # inside a vectorized loop, where the step does not advance

    def run(self, statement: Any) -> None:
        """Execute a statement."""
        match type(statement).__name__:
            case "For":
                self._loop(statement)
            case "SeqStmt":
                for part in statement.seq:
                    self.run(part)
            case "IfThenElse":
                holds = self.value(statement.condition)
                self.run(statement.then_case if holds else statement.else_case)
            case "BufferStore":
                self.value(statement.value)
                self._access(statement.buffer, statement.indices, write=True)
                self.step += not self.lanes
            case "Evaluate":
                self.value(statement.value)
            case "AllocBuffer" | "DeclBuffer" | "AttrStmt":
                self.run(getattr(statement, "body", None))
            case "NoneType":  # no else branch, or no body of an allocation
                pass
            case other:
                raise UnsupportedError(f"cannot trace a statement of kind {other}")

    def _loop(self, loop: Any) -> None:
        first, extent = self.value(loop.min), self.value(loop.extent)
        vector, around = loop.kind == tirx.ForKind.VECTORIZED, self.lanes
        self.lanes = vector or around
        for index in range(first, first + extent):
            self.values[loop.loop_var] = index
            self.run(loop.body)
        self.lanes = around
        self.step += vector

    def _access(self, buffer: Any, indices: Any, write: bool) -> None:
        offset = 0
        for index, extent in zip(indices, buffer.shape, strict=True):
            offset = offset * self.value(extent) + self.value(index)
        self.accesses.append(ArrayAccess(self.step, str(buffer.name), offset, write))
        if len(self.accesses) > _LIMIT:
            raise UnsupportedError(f"more than {_LIMIT} accesses; choose a smaller size")

    def value(self, expression: Any) -> int:
        """Evaluate an integer expression; record the reads of others and return 0."""
        if isinstance(expression, int):
            return expression
        name = type(expression).__name__
        if name in _BINARY:
            left, right = self.value(expression.a), self.value(expression.b)
            return _BINARY[name](left, right) if right or "Div" not in name else 0
        if name not in _VALUES:
            raise UnsupportedError(f"cannot trace an expression of kind {name}")
        return _VALUES[name](self, expression)

    def _load(self, load: Any) -> int:
        self._access(load.source, load.indices, write=False)
        return 0

    def _call(self, call: Any) -> int:
        if str(call.op.name).endswith("if_then_else"):
            condition, yes, no = call.args
            return self.value(yes if self.value(condition) else no)
        for argument in call.args:
            self.value(argument)
        return 0


_VALUES: dict[str, Callable[[_Tracer, Any], int]] = {
    "IntImm": lambda _, constant: int(constant.value),
    "Var": lambda tracer, var: tracer.values[var],
    "FloatImm": lambda *_: 0,
    "StringImm": lambda *_: 0,
    "Cast": lambda tracer, cast: tracer.value(cast.value),
    "And": lambda tracer, both: tracer.value(both.a) and tracer.value(both.b),
    "Or": lambda tracer, either: tracer.value(either.a) or tracer.value(either.b),
    "Not": lambda tracer, negation: not tracer.value(negation.a),
    "TensorLoad": _Tracer._load,
    "Call": _Tracer._call,
}
"""Evaluates expressions other than `_BINARY`, by kind."""


def plot_accesses(
    traces: dict[str, list[ArrayAccess]], arrays: list[str], path: Path, title: str = ""
) -> None:
    """Draw offset over step: one row of panels per trace, with a common time axis.

    Reads are blue; writes are smaller, red, and drawn on top. A panel is empty if a trace does not
    access the array.

    Parameters
    ----------
    traces : dict of str to list of ArrayAccess
        Traces by row title, as returned by `trace`.
    arrays : list of str
        Names of the arrays to show, one column each.
    path : Path
        Output file; the suffix selects the format.
    title : str
        Title of the figure.

    Raises
    ------
    UnsupportedError
        If an array is not accessed in any trace.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    present = {access.array for accesses in traces.values() for access in accesses}
    if missing := set(arrays) - present:
        raise UnsupportedError(f"{sorted(missing)} are not accessed; there are {sorted(present)}")
    figure, panels = pyplot.subplots(
        len(traces),
        len(arrays),
        figsize=(3.4 * len(arrays), 2.6 * len(traces) + 0.6),
        layout="constrained",
        squeeze=False,
        sharex="all",
        sharey="col",
    )
    for row, (name, accesses) in zip(panels, traces.items(), strict=True):
        for panel, array in zip(row, arrays, strict=True):
            _plot_array(panel, [access for access in accesses if access.array == array])
            panel.set_title(f"{name}: {array}", fontsize=9)
        row[0].set_ylabel("element")
    for panel in panels[-1]:
        panel.set_xlabel("step")
        panel.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    figure.suptitle(f"{title} (reads blue, writes red over them)")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _plot_array(panel: Any, accesses: list[ArrayAccess]) -> None:
    """Draw the accesses of one array."""
    for write, colour, size in ((False, "tab:blue", 4.5), (True, "tab:red", 2.2)):
        some = [access for access in accesses if access.write is write]
        steps, offsets = [a.step for a in some], [a.offset for a in some]
        panel.plot(steps, offsets, ".", markersize=size, color=colour)
