"""Every configuration with every flow to hardware: refused by the table, or sound before tools."""

import json
import math
import random
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from trials.pins import PinBoard
from trials.tilings import random_hardware
from vtaops import HardwareConfig
from vtaops.board import ulx3s as builds
from vtaops.board import virtual_ulx3s, vivado, zynq
from vtaops.cli import app
from vtaops.errors import ConfigError
from vtaops.explore.area import area
from vtaops.explore.design import Design
from vtaops.hardware import flows, synthesis, ulx3s
from vtaops.machine.config import Extension

RANDOM = [replace(random_hardware(random.Random(n)), name=f"random{n}") for n in range(20)]
CONFIGS = [*map(HardwareConfig.load, HardwareConfig.names()), *RANDOM]
TINY = HardwareConfig.load("tiny")


class Started(Exception):
    """A flow started a tool, or is about to."""


@pytest.fixture
def stopped(monkeypatch):
    """Let every flow end where it would start its first tool."""

    def start(*_, **__):
        raise Started

    monkeypatch.setattr(builds.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(builds, "execute_tool", start)
    monkeypatch.setattr(zynq, "locate", start)
    monkeypatch.setattr(synthesis, "execute_tool", start)


def build_ulx3s(config, folder):
    builds.build_bitstream(ulx3s.Ulx3sDesign(config), folder)


def virtual_ulx3s_of(config, folder):
    virtual_ulx3s.VirtualUlx3s(config)


def mapped_ulx3s_of(config, folder):
    PinBoard(config, mapped=True)


def open_zynq(config, folder):
    zynq.build_bitstream(config, folder)


def write(config, folder):
    vivado.write_design(config, folder)
    raise Started


def synth(config, folder):
    file = folder.with_suffix(".json")
    file.write_text(json.dumps(config.to_dict()))
    done = CliRunner().invoke(app, ["hardware", "synth", "--config", str(file)])
    raise done.exception


ENTRIES = {
    build_ulx3s: flows.ULX3S,
    virtual_ulx3s_of: flows.ULX3S,
    mapped_ulx3s_of: flows.ULX3S,
    open_zynq: flows.OPEN_ZYNQ,
    write: flows.VIVADO,
    synth: flows.SYNTHESIS,
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_a_flow_refuses_what_it_cannot_give_before_its_tools(entry, stopped, tmp_path):
    flow, refused = ENTRIES[entry], 0
    for number, config in enumerate(CONFIGS):
        folder = tmp_path / str(number)
        with pytest.raises((ConfigError, Started)) as caught:
            entry(config, folder)
        if caught.type is Started:
            is_sound(flow, config)
        else:
            refused += 1
            told = str(caught.value)
            assert flow.command in told or re.match(
                "a port word of|the (in|out)put scratchpad has", told
            )
            assert not folder.exists()
    assert 0 < refused < len(CONFIGS)


def is_sound(flow, config):
    """Check what can be known without tools of a design that a flow would build."""
    if flow.clocks == 1:  # the shell ties both clocks of the RTL together
        assert not config.has(Extension.PAIRS)
    if flow.ports == 1:
        assert not config.weight_port
        assert not config.split_port
    assert config.port_width in flow.port_bytes
    if flow is flows.SYNTHESIS:
        return
    if flow is flows.ULX3S:
        design = ulx3s.Ulx3sDesign(config)
        parameters, capacity = design.parameters, flow.parts[design.device]
        told = ulx3s.Ulx3sDesign.of_identity(design.identity)
        assert told.config.fingerprint == config.fingerprint
    else:
        parameters = vivado.zynq_parameters(config)
        _, capacity = synthesis.CAPACITY[synthesis.part_of(config)]
    assert parameters.port_bytes == config.port_width
    lanes = config.acc.lanes * (3 + 2 * config.has(Extension.POST))
    assert lanes + parameters.dsp_multipliers <= capacity.dsp


@pytest.mark.parametrize(
    "flow", [flows.ULX3S, flows.OPEN_ZYNQ, flows.VIVADO], ids=lambda flow: flow.command
)
def test_the_least_resources_are_no_more_than_the_estimate(flow):
    usual = next(iter(flow.parts.values()))
    for config in CONFIGS:
        try:
            estimate = area(Design(config))
        except ConfigError:
            continue  # no such hardware: a scratchpad is too small
        ultra = synthesis.in_ultra_ram(config)
        _, own = synthesis.CAPACITY[synthesis.part_of(config)]
        least = flows.least_resources(config, own if ultra else usual)
        assert least.bram <= estimate.bram <= (own.bram if ultra else math.inf)
        assert (0 < estimate.uram <= own.uram) == ultra
        assert least.dsp <= estimate.dsp


@pytest.mark.parametrize(
    ("flow", "config", "message"),
    [
        (flows.ULX3S, replace(TINY, extensions=("pairs",)),
         "'pairs', whose array needs a clock of twice .* one clock: leave 'pairs' out"),
        (flows.ULX3S, replace(TINY, weight_port=1), "WEIGHT_PORT 1.*one port to DRAM: give WEIGHT"),
        (flows.ULX3S, replace(TINY, split_port=1), "SPLIT_PORT 1.*one port to DRAM: give SPLIT"),
        (flows.VIVADO, replace(HardwareConfig.load("zcu104"), split_port=1, weight_port=1),
         "has WEIGHT_PORT 1 and SPLIT_PORT 1; .* connects 2 ports to DRAM: give SPLIT_PORT 0"),
        (flows.ULX3S, replace(TINY, port_bytes=16), "has a port of 16 bytes; this flow has 8"),
        (flows.ULX3S, HardwareConfig.load("pynq"), "target 'pynq'.*'ulx3s' or 'sim' or 'tsim'"),
        (flows.ULX3S, HardwareConfig.load("fsim"), "needs at least 107 block.*LFE5U-85F has 104"),
        (flows.ULX3S, replace(TINY, log_batch=3, log_block=3), "at least 192 DSP blocks, and LFE"),
        (flows.SYNTHESIS, HardwareConfig.load("ulx3s"), "target 'ulx3s'.*vtaops board build ulx3s"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_missing_and_what_would_be_right(flow, config, message):
    with pytest.raises(ConfigError, match=message):
        flow.check(config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_a_port_to_dram_has_a_fastest_clock(config):
    """What the data sheets allow passes, a megahertz more does not."""
    config = replace(config, split_port=0)  # else ports have a clock of their own
    times, most = flows.port_clock(config, config.port_width)
    assert math.isfinite(most) == (config.target in flows.VIVADO.targets)
    if math.isfinite(most):
        for flow in (flows.OPEN_ZYNQ, flows.VIVADO):
            flow.check_clock(most // times, config)
            told = f"takes at most {most}: .*{most // times} or less"
            with pytest.raises(ConfigError, match=told):
                flow.check_clock(most // times + 1, config)


@pytest.mark.parametrize(
    ("name", "port_bytes", "fastest"),
    [("pynq_ext", 8, 250), ("pynq_512", 16, 125), ("pynq_512", 8, 250), ("zcu104_2048", 64, 166)],
)
def test_wide_words_halve_the_clock_that_a_port_allows(name, port_bytes, fastest, tmp_path):
    config = replace(HardwareConfig.load(name), port_bytes=port_bytes, split_port=0)
    vivado.write_design(config, tmp_path, clock_mhz=fastest)
    with pytest.raises(ConfigError, match=f"give --clock-mhz {fastest} or less"):
        vivado.write_design(config, tmp_path, clock_mhz=fastest + 1)


def test_a_smaller_fpga_has_less():
    config = HardwareConfig.load("ulx3s_batch")
    flows.ULX3S.check(config)
    with pytest.raises(
        ConfigError, match="at least 59 block RAMs of 36 Kbit, and LFE5U-45F has 54"
    ):
        flows.ULX3S.check(config, "LFE5U-45F")
