"""Inner loops of the CPU kernels on processors that are not at hand, by LLVM's model of them.

Kernels are compiled for another processor and not run. The loop of each with most multiply-adds is
given to `llvm-mca` (``apt install llvm``), which says how many cycles a turn takes if all its
loads hit the first-level cache. The table gives the multiply-adds of a cycle (numbers in float32,
sums of four or two products in bytes) as a share of what two full vectors a cycle would be, and
the accesses to the stack in the loop: spilled registers, as a rule. What a kernel does beside
this loop, and memory, are not in it. The layers are those of `cpu_operators.py`, or random calls.
PyTorch is needed (``pip install torch``); it is no dependency of vtaops.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.kernels.cpu_operators import Call, Layers
from benchmarks.kernels.cpu_random import RandomCalls
from benchmarks.options import Json, Seed, write_json

_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512vl", "avx512bw", "avx512dq")

PROCESSORS = {
    "haswell": _AVX2,
    "alderlake": (*_AVX2, "avxvnni"),
    "skylake-avx512": _AVX512,
    "icelake-server": (*_AVX512, "avx512vnni"),
}
"""Features by LLVM's name of a processor."""

_MULTIPLY_ADD = re.compile(r"\s(vf?n?m(?:add|sub)\d+ps|vpdpbusds?|vpmaddwd)\s")
_TURNS = 100


@dataclass(frozen=True)
class Loop:
    """The main loop of a call: multiply-adds of a cycle over their peak, accesses to the stack."""

    operator: str
    layer: str
    way: str
    share: float
    stack: int


class Compiled:
    """The assembly of the kernels that calls would run, for a processor; nothing is run."""

    def __init__(self, mcpu: str) -> None:
        from vtaops.kernels.cpu.kernel import CACHE
        from vtaops.kernels.cpu.target import CpuTarget

        self.target = target = CpuTarget(mcpu, PROCESSORS[mcpu], (), 1)
        self.texts: list[str] = []
        self._known: dict[Any, str] = {}
        CpuTarget.detect = classmethod(lambda cls: target)  # type: ignore[method-assign,assignment]
        CACHE.get = self._compile  # type: ignore[method-assign]

    def _compile(self, op: Any, target: Any, compile: Callable[[], Any], _: Any = ()) -> Call:
        if op not in self._known:
            self._known[op] = str(compile().mod.inspect_source("asm"))
        self.texts.append(self._known[op])
        return lambda *arrays: None

    def of(self, call: Call) -> list[str]:
        """Return the assembly of the kernels of a call."""
        self.texts.clear()
        call()
        return self.texts


def loops(assembly: str) -> Iterator[list[str]]:
    """Yield the instructions of each loop that are in no loop inside it."""
    lines = [line.split("#")[0].rstrip() for line in assembly.splitlines()]
    places = {line[:-1]: at for at, line in enumerate(lines) if line.startswith(".L")}
    jumps = ((at, re.match(r"\s+j\w+\s+(\.L\w+)$", line)) for at, line in enumerate(lines))
    found = [(places[to[1]], at) for at, to in jumps if to and places.get(to[1], at) < at]
    for first, last in found:
        inside = [(a, b) for a, b in found if first <= a and b <= last and (a, b) != (first, last)]
        own = range(first + 1, last + 1)
        kept = (at for at in own if not any(a <= at <= b for a, b in inside))
        yield [lines[at] for at in kept if re.match(r"\s+[a-z{]", lines[at])]


def multiply_adds(instructions: list[str]) -> int:
    """Return the lanes that are multiplied and added to."""
    lanes = {"z": 16, "y": 8, "x": 4}
    found = [line for line in instructions if _MULTIPLY_ADD.search(line)]
    return sum(lanes[re.findall(r"%([xyz])mm", line)[-1]] for line in found)


def cycles(instructions: list[str], mcpu: str) -> float:
    """Return the cycles of a turn, by llvm-mca."""
    command = ["llvm-mca", f"-mcpu={mcpu}", f"-iterations={_TURNS}"]
    said = subprocess.run(command, input="\n".join(instructions), capture_output=True, text=True)
    found = re.search(r"Total Cycles:\s+(\d+)", said.stdout)
    if not found:
        raise RuntimeError(f"llvm-mca: {said.stderr[:300]}")
    return int(found[1]) / _TURNS


def main_loop(texts: list[str], compiled: Compiled) -> tuple[float, int] | None:
    """Return share and accesses to the stack of the loop with most multiply-adds, if any."""
    found = max((loop for text in texts for loop in loops(text)), key=multiply_adds, default=[])
    products, mcpu = multiply_adds(found), compiled.target.mcpu
    if not products:
        return None
    peak = 2 * compiled.target.lanes
    return products / cycles(found, mcpu) / peak, sum("(%rsp" in line for line in found)


def cases(count: int, seed: int, only: str) -> Iterator[tuple[str, str, dict[str, Call]]]:
    """Yield operator, layer and calls: of the list, or so many random ones."""
    if not count:
        yield from (case for case in Layers().cases() if only in case[0])
        return
    draw = RandomCalls(seed)
    chosen = {name: case for name, case in draw.families().items() if only in name}
    for _ in range(count):
        operator = draw.pick([*chosen])
        yield (operator, *chosen[operator]())


def table(found: list[Loop]) -> str:
    """Return the median and least share by operator, and the loops with the least."""
    lines = ["| operator | loops | median | least | with stack |", "|---|--:|--:|--:|--:|"]
    for operator in sorted({loop.operator for loop in found}):
        own = [loop for loop in found if loop.operator == operator]
        shares, spilled = [loop.share for loop in own], sum(loop.stack > 0 for loop in own)
        cells = f"{median(shares):.2f} | {min(shares):.2f} | {spilled}"
        lines.append(f"| {operator} | {len(own)} | {cells} |")
    lines += ["", "| operator | layer | way | share | stack |", "|---|---|---|--:|--:|"]
    for loop in sorted(found, key=lambda loop: loop.share)[:20]:
        cells = f"{loop.layer} | {loop.way} | {loop.share:.2f} | {loop.stack}"
        lines.append(f"| {loop.operator} | {cells} |")
    return "\n".join(lines)


def main(
    processor: Annotated[
        str, typer.Option(help=f"One of {', '.join(PROCESSORS)}.")
    ] = "icelake-server",
    only: Annotated[str, typer.Option(help="Operators whose name contains this.")] = "",
    count: Annotated[int, typer.Option("--random", min=0, help="Random calls instead.")] = 0,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Show the inner loops of the kernels for a processor, by llvm-mca.

    Example: python -m benchmarks cpu_loops --processor icelake-server --only conv2d
    """
    if processor not in PROCESSORS:
        raise typer.BadParameter(f"{processor!r} is none of {', '.join(PROCESSORS)}")
    compiled, found = Compiled(processor), []
    for operator, layer, calls in cases(count, seed, only):
        for way in ("vtaops", "packed"):
            best = main_loop(compiled.of(calls[way]), compiled) if way in calls else None
            if best:
                found.append(Loop(operator, layer, "layer" if way == "packed" else "call", *best))
                shown = f"{operator:20} {layer:60} {found[-1].way} {best[0]:.2f} {best[1]}"
                print(shown, file=sys.stderr, flush=True)
    print(table(found))
    write_json(json_file, [*map(asdict, found)])
