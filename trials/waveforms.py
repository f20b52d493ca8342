"""What a waveform of the RTL says of its memories: how often they are read and written."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

MEMORIES = {
    "uop_mem": "uop",
    "inp_mem": "inp",
    "wgt_mem": "wgt",
    "acc_mem": "acc",
    "out_mem": "out",
    "copy": "copy",
    "bias_mem": "post",
    "scale_mem": "post",
    "tables": "table",
}
"""Instances of memories, as accesses name them."""


def accesses_of(wave: Path) -> dict[str, Fraction]:
    """Return how many elements the banks of each memory read and write in a waveform.

    A write of some lanes is a part of one. What counts is what stands before a rising edge; where
    the memory is read by the clock of twice the frequency, before each half of a cycle.
    """
    lines = (line.lstrip() for line in wave.read_text().splitlines())
    scope: list[str] = []
    uses = defaultdict(list)  # code of a signal -> what it enables, for how many lanes, by halves
    clock = read_clock = ""
    for line in lines:
        word = line.split()
        if word[:1] == ["$scope"]:
            scope.append(word[2])
        elif word[:1] == ["$upscope"]:
            scope.pop()
        elif word[:1] == ["$var"]:
            width, code, name = int(word[2]), word[3], word[4]
            if scope[-1] in ("bank", "tables") and name in ("re", "we"):
                memory = next(MEMORIES[part] for part in scope if part in MEMORIES)
                halves = name == "re" and read_clock != clock
                uses[code].append(
                    (f"{memory}_{'reads' if name == 're' else 'writes'}", width, halves)
                )
            elif name == "clk":
                clock = read_clock = code
            elif name == "rd_clk":
                read_clock = code
        elif word[:1] == ["$enddefinitions"]:
            break
    counts: dict[str, Fraction] = defaultdict(Fraction)
    active = dict.fromkeys(uses, 0)  # lanes that are enabled
    changes: dict[str, int] = {}
    for line in [*lines, "#end"]:
        if line.startswith("#"):
            edge = changes.pop(clock, -1)
            for code, lanes in active.items():
                for name, width, halves in uses[code]:
                    if edge == 1 or (edge == 0 and halves):
                        counts[name] += Fraction(lanes, width)
            active.update((code, lanes) for code, lanes in changes.items() if code in active)
            changes = {}
        elif line[:1] in ("0", "1", "b"):
            value, code = line[1:].split() if line[0] == "b" else (line[0], line[1:])
            changes[code] = value.count("1")
    return counts
