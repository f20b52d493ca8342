"""Registers and memories that hold anything at first: nothing that a program shows depends on them.

The models begin with random bits in everything (``--x-initial unique``), another set for each seed,
all ones for seed 0.
What a valid program leaves in DRAM, its counters and its cycles are the same for all seeds, and no
scratchpad is written before a program runs.
"""

from __future__ import annotations

import ctypes
from unittest import mock

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

from trials.rtl_trials import EXTENDED, PARAMETERS, PLAIN, LimitedTsim, drawn, seen
from vtaops.hardware import build, rtl
from vtaops.runtime.tsim import device as device_module

pytestmark = needs_tools

RANDOM = """
static int chosen_seed = 1;
static int scratchpad_writes = 0;
extern "C" void choose_seed(int seed) { chosen_seed = seed; scratchpad_writes = 0; }
extern "C" int count_writes() { return scratchpad_writes; }
extern "C" void wrote_scratchpad() { ++scratchpad_writes; }
struct RandomContext : VerilatedContext {
  RandomContext() {
    randReset(chosen_seed ? 2 : 1);  // 1: every bit is one
    randSeed(chosen_seed ? chosen_seed : 1);
  }
};
"""
SEEDS = (0, 1, 2)


def random_library(config, axi, tmp_path):
    """Build a model of which each instance begins in another state, and that counts writes."""
    driver, *headers = build.harness(axi)
    text = driver.read_text()
    assert text.count("VerilatedContext context;") == text.count("\nnamespace {") == 1
    text = text.replace("VerilatedContext context;", "RandomContext context;")
    (tmp_path / driver.name).write_text(text.replace("\nnamespace {", RANDOM + "\nnamespace {", 1))
    paths = []
    for path in rtl.sources():
        text = path.read_text()
        if path.name == "banked_sram.sv":
            counting = (
                '    import "DPI-C" function void wrote_scratchpad();\n'
                "    always_ff @(posedge clk) if (wr_slots != '0) wrote_scratchpad();\n"
            )
            text = text.replace("endmodule", counting + "endmodule")
        paths.append(tmp_path / path.name)
        paths[-1].write_text(text)
    options = tuple("unique" if option == "fast" else option for option in build.VERILATOR_OPTIONS)
    assert options.count("unique") == 2
    with (
        mock.patch.object(build, "VERILATOR_OPTIONS", options),
        mock.patch.object(rtl, "sources", return_value=paths),
        mock.patch.object(build, "harness", return_value=[tmp_path / driver.name, *headers]),
    ):
        return build.build_model(config, PARAMETERS, axi=axi)


@pytest.mark.parametrize(("config", "axi"), [(EXTENDED, False), (PLAIN, True)], ids=["bare", "axi"])
def test_nothing_depends_on_the_first_state(config, axi, tmp_path):
    path = random_library(config, axi, tmp_path)
    library = ctypes.CDLL(str(path))
    results = set()
    with mock.patch.object(device_module, "_build", return_value=path):
        for seed in SEEDS:
            library.choose_seed(seed)
            interface = "axi" if axi else "port"
            with LimitedTsim(config, parameters=PARAMETERS, interface=interface) as device:
                assert library.count_writes() == 0, "a scratchpad was written before any program"
                found = []
                for number in range(4):
                    program, arrays, expected = drawn(config, number)
                    np.testing.assert_array_equal(program.run(device, *arrays), expected)
                    found.append(seen(device))
                results.add(repr(found))
    assert len(results) == 1
