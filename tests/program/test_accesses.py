"""How often memories are read and written: counted from programs, and seen in the RTL."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from vtaops import HardwareConfig
from vtaops.config import EXTENSIONS
from vtaops.program import Program
from vtaops.program.accesses import count_accesses
from vtaops.program.random_programs import random_inputs, random_program
from vtaops.program.traffic import transfers
from vtaops.runtime.tsim import Tsim

TINY = HardwareConfig.load("tiny")
EXTENDED = replace(TINY, extensions=tuple(EXTENSIONS))

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


def dram_bytes(program: Program) -> int:
    """Return what a program moves over the port."""
    return 16 * len(program) + sum(transfer.nbytes for transfer in transfers(program))


def accesses_of(wave: Path) -> dict[str, Fraction]:
    """Return how many elements the banks of each memory read and write in a waveform.

    A write of some lanes is a part of one. What counts is what stands before a rising edge.
    """
    lines = (line.lstrip() for line in wave.read_text().splitlines())
    scope: list[str] = []
    uses = defaultdict(list)  # code of a signal -> what it enables, and for how many lanes
    clock = ""
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
                uses[code].append((f"{memory}_{'reads' if name == 're' else 'writes'}", width))
            elif name == "clk":
                clock = code
        elif word[:1] == ["$enddefinitions"]:
            break
    counts: dict[str, Fraction] = defaultdict(Fraction)
    active = dict.fromkeys(uses, 0)  # lanes that are enabled
    changes: dict[str, int] = {}
    for line in [*lines, "#end"]:
        if line.startswith("#"):
            if changes.pop(clock, 0):
                for code, lanes in active.items():
                    for name, width in uses[code]:
                        counts[name] += Fraction(lanes, width)
            active.update((code, lanes) for code, lanes in changes.items() if code in active)
            changes = {}
        elif line[:1] in ("0", "1", "b"):
            value, code = line[1:].split() if line[0] == "b" else (line[0], line[1:])
            changes[code] = value.count("1")
    return counts


@needs_tools
@pytest.mark.parametrize("config", [TINY, EXTENDED], ids=["plain", "extended"])
def test_counts_from_the_words_are_those_of_the_rtl(config, tmp_path):
    held = False
    for seed in range(4):
        rng = np.random.default_rng([seed, 29])
        program = random_program(config, rng)
        arrays = random_inputs(program, rng)
        wave = tmp_path / f"{seed}.vcd"
        with Tsim(config, trace=wave, latency=2 + 9 * seed, jitter_seed=seed or None) as device:
            program.run(device, *arrays)
        seen = accesses_of(wave)
        counted = count_accesses(program).as_dict()
        moved = {name: counted.pop(name) for name in ("dram_read_bytes", "dram_written_bytes")}
        assert sum(moved.values()) == dram_bytes(program)
        lanes = config.batch * config.block_out  # each has a copy of all tables, in port words
        words = config.table.element_bytes // 8
        seen["table_reads"] /= lanes
        seen["table_writes"] /= lanes * words
        assert counted == {name: seen[name] for name in counted}
        held |= counted["wgt_reads"] < program.stats().gemm_counter
    assert held
