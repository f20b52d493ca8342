"""The longest paths of small netlists of the 7 series, by hand."""

from __future__ import annotations

import pytest

from trials.static_timing import (
    FASTER,
    PUBLISHED,
    SEVEN_SERIES,
    ULTRASCALE_PLUS,
    Timing,
    clock_net,
    route,
)

IN, OUT = "input", "output"
ONE = f"{1:032b}"
LOST = SEVEN_SERIES.uncertainty + SEVEN_SERIES.skew
WAYS = {
    "FDRE": {"C": IN, "CE": IN, "R": IN, "D": IN, "Q": OUT},
    "LUT2": {"I0": IN, "I1": IN, "O": OUT},
    "CARRY4": {"CI": IN, "CYINIT": IN, "S": IN, "DI": IN, "O": OUT, "CO": OUT},
    "RAMB36E1": {
        "CLKARDCLK": IN,
        "CLKBWRCLK": IN,
        "ADDRARDADDR": IN,
        "ENBWREN": IN,
        "DOADO": OUT,
        "DOBDO": OUT,
    },
    "DSP48E1": {"CLK": IN, "A": IN, "P": OUT},
}


def netlist(**cells):
    """Return a module of cells given as (type, parameters, pins)."""
    return {
        "netnames": {"start": {"bits": [10]}, "word": {"bits": [20, 21]}, "$1": {"bits": [30]}},
        "cells": {
            name: {"type": kind, "parameters": parameters, "port_directions": WAYS[kind],
                   "connections": {**{pin: ["0"] for pin in WAYS[kind]}, **pins}}
            for name, (kind, parameters, pins) in cells.items()
        },
    }  # fmt: skip


def flip_flop(q, d="0", **pins):
    return "FDRE", {}, {"C": [2], "Q": [q], "D": [d], **pins}


def test_a_path_through_a_look_up_table():
    module = netlist(
        a=flip_flop(10), b=("LUT2", {}, {"I0": [10], "I1": ["1"], "O": [30]}),
        c=flip_flop(20, 30), d=flip_flop(21, CE=[10]),
    )  # fmt: skip
    rows = Timing(module).longest(0.0)
    through, enable = rows
    expected = (
        SEVEN_SERIES.ff_out
        + SEVEN_SERIES.net(2)
        + SEVEN_SERIES.lut
        + SEVEN_SERIES.net(1)
        + SEVEN_SERIES.ff_setup["D"]
        + LOST
    )
    assert through["ns"] == pytest.approx(expected, abs=0.01)
    assert (through["from"], through["to"], through["levels"]) == ("start", "word.D", 1)
    assert through["loads"] == [2, 1]
    assert enable["ns"] == pytest.approx(
        LOST + SEVEN_SERIES.ff_out + SEVEN_SERIES.net(2) + SEVEN_SERIES.ff_setup["CE"], abs=0.01
    )
    assert enable["to"] == "word.CE"


def test_carries_take_no_fabric():
    module = netlist(
        a=flip_flop(10),
        b=("CARRY4", {}, {"S": [10, "0", "0", "0"], "DI": ["0"] * 4, "CI": ["0"], "CYINIT": ["0"],
                          "O": ["x"] * 4, "CO": ["x", "x", "x", 40]}),
        c=("CARRY4", {}, {"S": ["0"] * 4, "DI": ["0"] * 4, "CI": [40], "CYINIT": ["0"],
                          "O": [30, "x", "x", "x"], "CO": ["x", "x", "x", 41]}),
        d=flip_flop(20, 30), e=flip_flop(21, 41),
    )  # fmt: skip
    sums, carry = Timing(module).longest(0.0)[0], SEVEN_SERIES.carry_in_out
    expected = (
        SEVEN_SERIES.ff_out
        + SEVEN_SERIES.net(1)
        + SEVEN_SERIES.carry_out
        + max(SEVEN_SERIES.carry_in_sum, carry)
        + SEVEN_SERIES.net(1)
    )
    assert sums["ns"] == pytest.approx(expected + SEVEN_SERIES.ff_setup["D"] + LOST, abs=0.01)


def test_memories_and_multipliers_begin_late():
    module = netlist(
        a=("RAMB36E1", {}, {"ADDRARDADDR": [10], "DOADO": [30]}), b=flip_flop(20, 30),
        c=("DSP48E1", {"MREG": ONE, "AREG": ONE}, {"A": [10], "P": [31]}),
        d=flip_flop(21, 31), e=flip_flop(10),
    )  # fmt: skip
    starts = Timing(module).starts
    assert starts[30] == SEVEN_SERIES.block_out
    assert starts[31] == SEVEN_SERIES.dsp_m
    longest = Timing(module).longest(100.0)
    assert len(longest) == 1
    assert longest[0]["ns"] == pytest.approx(
        SEVEN_SERIES.block_out + SEVEN_SERIES.net(1) + SEVEN_SERIES.ff_setup["D"] + LOST, abs=0.01
    )


@pytest.mark.parametrize("m", [0, 1])
def test_a_product_takes_a_period_of_its_block(m):
    """Shorter than any path from outside, it is listed nevertheless."""
    registers = {"AREG": ONE, "PREG": ONE, "MREG": f"{m:b}", "USE_MULT": "MULTIPLY"}
    module = netlist(a=("DSP48E1", registers, {"CLK": [2], "A": [10], "P": [31]}))
    (row,) = Timing(module, 2, 2).longest(0.0)
    assert (row["from"], row["to"]) == ("a", "a.P")
    assert row["ns"] == pytest.approx(SEVEN_SERIES.dsp_inside[m] + LOST, abs=0.01)
    assert Timing(module, 3, 3).longest(0.0) == []


def test_published_paths_are_met_within_a_seventh():
    """The reports say: 7 ns met, and 5 ns missed by 0.2."""
    errors = [path.estimate / path.routed - 1 for path in PUBLISHED]
    assert max(map(abs, errors)) < 1 / 7
    assert min(errors) < 0 < max(errors)
    later = [path.estimate / path.routed - 1 for path in FASTER]
    assert 0 < min(later) < max(later) < 0.35


def test_an_ultrascale_plus_is_faster_in_each_respect():
    for name, slow in vars(SEVEN_SERIES).items():
        fast = getattr(ULTRASCALE_PLUS, name)
        if isinstance(slow, dict):
            assert all(fast[key] < slow[key] for key in slow)
        else:
            assert fast < slow or name.startswith(("crossing", "carry_sum"))
    module = netlist(a=flip_flop(10), b=("LUT2", {}, {"I0": [10], "O": [30]}), c=flip_flop(20, 30))
    (slow,), (fast,) = (
        Timing(module, delays=delays).longest(0.0) for delays in (SEVEN_SERIES, ULTRASCALE_PLUS)
    )
    assert 2 < slow["ns"] / fast["ns"] < 3.5


def test_paths_from_one_clock_to_the_other():
    fast = {"C": [3], "D": [30], "Q": [20]}
    module = netlist(
        a=flip_flop(10), b=("LUT2", {}, {"I0": [10], "I1": [20], "O": [30]}),
        c=("FDRE", {}, fast), d=flip_flop(21, 20),
    )  # fmt: skip
    ways = {}
    for one, other in ((2, 2), (2, 3), (3, 2), (3, 3)):
        rows = Timing(module, one, other).longest(0)
        ways[one, other] = [(row["from"], row["to"]) for row in rows]
    assert ways == {
        (2, 2): [], (2, 3): [("start", "word.D")], (3, 2): [("word", "word.D")],
        (3, 3): [("word", "word.D")],
    }  # fmt: skip
    crossing, within = (Timing(module, one, 3).longest(0)[0]["ns"] for one in (2, 3))
    other_loads = SEVEN_SERIES.net(2) - SEVEN_SERIES.net(1)  # of the register that the path leaves
    lost = SEVEN_SERIES.crossing_uncertainty + SEVEN_SERIES.crossing_skew - LOST
    assert crossing - within == pytest.approx(lost - other_loads, abs=0.02)


def test_a_clock_is_found_behind_its_buffers():
    pins = {"IBUF": {"I": [2], "O": [5]}, "BUFG": {"I": [5], "O": [9]}}
    cells = {kind: {"type": kind, "connections": ends} for kind, ends in pins.items()}
    module = {"ports": {"clk": {"bits": [2]}, "other": {"bits": [4]}}, "cells": cells}
    assert (clock_net(module, "clk"), clock_net(module, "other")) == (9, 4)


def test_routing_uses_what_is_installed(monkeypatch, tmp_path):
    (tmp_path / "xc7z020clg400.bin").touch()
    program = tmp_path / "nextpnr-xilinx"
    program.write_text(
        '#!/bin/sh\necho "$@" > arguments\n'
        "echo \"Info: Max frequency for clock 'clk': 99.00 MHz\" > nextpnr.log\n"
        "echo \"Info: Max frequency for clock 'clk': 88.25 MHz\" >> nextpnr.log\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CHIPDB", str(tmp_path))
    assert route(tmp_path, 120.0) == 88.25
    arguments = (tmp_path / "arguments").read_text()
    assert f"--chipdb {tmp_path / 'xc7z020clg400.bin'} --json netlist.json" in arguments
    assert "--xdc pins.xdc" in arguments
    assert "LOC H16 [get_ports clk]" in (tmp_path / "pins.xdc").read_text()


@pytest.mark.parametrize(("mode", "pin"), [("SDP", "DOBDO"), ("TDP", "DOADO")])
def test_each_port_of_a_block_memory_has_its_clock(mode, pin):
    """A word of a simple memory leaves through both ports' outputs, in the clock that reads."""
    clocks = {"CLKARDCLK": [2], "CLKBWRCLK": [3]}
    module = netlist(
        a=("RAMB36E1", {"RAM_MODE": mode}, {**clocks, pin: [10]}), b=flip_flop(20, 10),
        c=("RAMB36E1", {"RAM_MODE": mode}, {**clocks, "ENBWREN": [20]}),
    )  # fmt: skip
    (row,) = Timing(module, launch=2, capture=2).longest(0.0)
    assert row["ns"] == pytest.approx(
        SEVEN_SERIES.block_out + SEVEN_SERIES.net(1) + SEVEN_SERIES.ff_setup["D"] + LOST, abs=0.01
    )
    assert Timing(module, launch=3, capture=2).longest(0.0) == []
    (row,) = Timing(module, launch=2, capture=3).longest(0.0)
    assert (row["from"], row["to"]) == ("word", "c.ENBWREN")
