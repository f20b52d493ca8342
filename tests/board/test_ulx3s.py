"""Designs for a ULX3S: their identity, their addresses, their timing, the commands around them."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from vtaops import HardwareConfig
from vtaops.base.errors import ConfigError
from vtaops.board import ulx3s, virtual_ulx3s
from vtaops.board.netlist import Replication, align
from vtaops.cli import app
from vtaops.errors import DeviceError
from vtaops.hardware.ulx3s import Ulx3sDesign

CONFIG = HardwareConfig.load("ulx3s")


@pytest.mark.parametrize("name", HardwareConfig.names())
@pytest.mark.parametrize("clock_mhz", [25, 62.5])
def test_the_identity_tells_the_configuration(name, clock_mhz):
    config = HardwareConfig.load(name)
    design = Ulx3sDesign(config, clock_mhz)
    found = Ulx3sDesign.of_identity(design.identity)
    assert found.config.fingerprint == config.fingerprint
    assert found.clock_mhz == clock_mhz
    assert found.cas_latency == (2 if clock_mhz <= 50 else 3)
    assert all(0 <= word < 1 << 32 for word in design.identity)
    assert Ulx3sDesign.from_dict(json.loads(json.dumps(design.to_dict()))) == design


def test_what_no_design_has_is_refused():
    identity = Ulx3sDesign(CONFIG).identity
    for wrong in (
        (0, *identity[1:]),
        (*identity[:2], 0, identity[3]),
        (identity[0], 0, *identity[2:]),
    ):
        with pytest.raises(DeviceError, match="does not hold a design"):
            Ulx3sDesign.of_identity(wrong)
    for value in ({"clock_mhz": 0.0}, {"clock_mhz": 400.0}, {"device": "LFE5U-12F"}):
        with pytest.raises(ConfigError, match="must be"):
            replace(Ulx3sDesign(CONFIG), **value)


def report(achieved=70.0, constraint=65.0, crossing=3.0, edge="posedge"):
    """Return what nextpnr reports of a routed design with two clocks."""
    step = {"delay": crossing / 2}
    return {
        "fmax": {"sys": {"achieved": achieved, "constraint": constraint},
                 "sdram": {"achieved": 200.0, "constraint": 130.0}},
        "critical_paths": [
            {"from": "posedge sys", "to": "posedge sys", "path": [{"delay": 14.0}]},
            {"from": "<async>", "to": "posedge sys", "path": [{"delay": 99.0}]},
            {"from": "posedge sys", "to": f"{edge} sdram", "path": [step, step]},
        ],
    }  # fmt: skip


def routed(monkeypatch, tmp_path, reports, seeds):
    """Return the seed of the first design that is fast enough, and the seeds that were tried."""
    tried = []

    def place_and_route(design, folder, seed):
        tried.append(seed)
        return reports[seed]

    monkeypatch.setattr(ulx3s, "_place_and_route", place_and_route)
    design = Ulx3sDesign(CONFIG, 65.0)
    return ulx3s._fast_enough(design, tmp_path, seeds, lambda text: None)[0], tried


def test_seeds_are_tried_until_a_design_keeps_its_timing(monkeypatch, tmp_path):
    reports = {1: report(achieved=64.0), 2: report(crossing=9.0), 3: report(), 4: report()}
    assert routed(monkeypatch, tmp_path, reports, (1, 2, 3, 4)) == (3, [1, 2, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"achieved": 64.9}, r"sys reaches 64\.9 MHz of 65\.0"),
        ({"crossing": 7.8}, r"sys to sdram takes 7\.8 ns of 7\.7"),
        ({"crossing": 3.9, "edge": "negedge"}, r"sys to sdram takes 3\.9 ns of 3\.8"),
        ({"constraint": 12.0}, "no clock is constrained to 65"),
    ],
)
def test_a_slow_clock_a_slow_crossing_or_a_lost_constraint_fails(
    change, message, monkeypatch, tmp_path
):
    slow = report(**change)
    with pytest.raises(DeviceError, match=message):
        routed(monkeypatch, tmp_path, {1: slow, 2: slow}, (1, 2))


def test_what_is_not_installed_is_named(monkeypatch, tmp_path):
    find = ulx3s.importlib.util.find_spec
    absent = ("litex", "migen")
    monkeypatch.setattr(
        ulx3s.importlib.util, "find_spec", lambda name: None if name in absent else find(name)
    )
    with pytest.raises(DeviceError, match=r"migen, litex.* is not installed: pip install"):
        ulx3s.build_bitstream(Ulx3sDesign(CONFIG), tmp_path)
    assert not (tmp_path / "vta.bit").exists()


def test_registers_elsewhere_than_the_host_looks_for_them_are_refused(monkeypatch, tmp_path):
    places = ulx3s.ADDRESSES | {"link_crc": 0x40}

    def litex(command, folder, **_):
        (folder / "map.json").write_text(json.dumps(places))

    monkeypatch.setattr(ulx3s.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(ulx3s, "execute_tool", litex)
    with pytest.raises(DeviceError, match="LiteX put link_crc at 64; the host expects 0x1000"):
        ulx3s.write_system(Ulx3sDesign(CONFIG), tmp_path)


@pytest.mark.skipif(not importlib.util.find_spec("litex"), reason="litex missing (extra ulx3s)")
def test_equal_designs_give_equal_systems(monkeypatch, tmp_path):
    written = []
    for seed in ("1", "2"):  # of Python's hashes: the order of sets
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        folder = tmp_path / seed
        folder.mkdir()
        ulx3s.write_system(Ulx3sDesign(CONFIG), folder)
        written.append([(folder / name).read_bytes() for name in ("soc.v", "soc.lpf")])
    assert written[0] == written[1]
    assert b"module soc (" in written[0][0]


@pytest.mark.parametrize(
    ("config", "large", "small"),
    [("tiny", 64, 72 - 24), ("ulx3s_ext", 64, 72 - 24 - 16), ("pynq", 156 - 48, 72 - 48)],
)
def test_products_take_the_multipliers_that_the_rest_leaves(config, large, small):
    design = Ulx3sDesign(HardwareConfig.load(config))
    assert design.parameters.dsp_multipliers == large
    assert replace(design, device="LFE5U-45F").parameters.dsp_multipliers == small


def test_flash_needs_a_bitstream_and_a_port_of_this_computer(monkeypatch, tmp_path):
    bitstream, run = tmp_path / "vta.bit", CliRunner().invoke
    flash = ["flash", "ulx3s:/dev/ttyUSB0", "--bitstream", str(bitstream)]
    assert "cannot read the bitstream" in str(run(app, flash).exception)
    bitstream.write_bytes(b"no bitstream")
    assert "not a bitstream for an ECP5" in str(run(app, flash).exception)
    bitstream.write_bytes(b"\xff\x00Part: LFE5U-25F-6CABGA381\x00")
    assert "FPGA is 'LFE5U-25F'; it must be LFE5U-85F or" in str(run(app, flash).exception)
    bitstream.write_bytes(b"\xff\x00Part: LFE5U-85F-6CABGA381\x00")
    loader = tmp_path / "openFPGALoader"
    loader.write_text('#!/bin/sh\necho "$@" > "$0.said"\n')
    loader.chmod(0o755)
    monkeypatch.setattr(virtual_ulx3s.shutil, "which", lambda name: str(loader))
    said = tmp_path / "openFPGALoader.said"
    monkeypatch.setattr(virtual_ulx3s, "_TERMINALS", tmp_path / "tty")
    assert "not a USB port of this computer" in str(run(app, flash).exception)
    assert not said.exists()
    usb = tmp_path / "devices" / "1-4"  # as Linux has it: port, interface, device
    (usb / "1-4:1.0" / "ttyUSB0").mkdir(parents=True)
    (usb / "busnum").write_text("1\n")
    (usb / "devnum").write_text("17\n")
    (tmp_path / "tty" / "ttyUSB0").mkdir(parents=True)
    (tmp_path / "tty" / "ttyUSB0" / "device").symlink_to(usb / "1-4:1.0" / "ttyUSB0")
    assert run(app, [*flash, "--permanent"]).exit_code == 0
    assert said.read_text() == f"-b ulx3s --busdev-num 1:17 -f {bitstream}\n"
    flash[1] = "ulx3s:"
    assert run(app, flash).exit_code == 0
    assert said.read_text() == f"-b ulx3s {bitstream}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("build arty", "is not one of 'ulx3s', 'pynq'"),
        ("virtual arty", "invalid choice: 'arty'"),
        ("virtual", "are required: {pynq,ulx3s}"),
        ("virtual ulx3s --programmed", "unrecognized arguments: --programmed"),
        ("virtual ulx3s --host 0.0.0.0", "unrecognized arguments: --host"),
        ("virtual pynq --terminal", "unrecognized arguments: --terminal"),
        ("virtual ulx3s --clock-mhz fast", "invalid float value: 'fast'"),
    ],
)
def test_other_boards_and_options_of_others_are_refused(line, message):
    found = CliRunner().invoke(app, ["board", *line.split()])
    assert found.exit_code == 2
    assert message in found.output


def test_aligned_factors_give_the_same_product():
    rng = np.random.default_rng(0)
    cell = {"type": "MULT18X18D", "port_directions": {f"P{i}": "output" for i in range(36)}}
    bits = {"A": 8, "B": 11}
    cell["connections"] = {
        **{f"{port}{i}": [f"{port}{min(i, n - 1)}"] for port, n in bits.items() for i in range(18)},
        **{f"P{i}": [f"P{i}"] for i in range(36)},
        **{"SIGNEDA": ["1"], "SIGNEDB": ["1"]},
    }
    assert align({"cells": {"m": cell}}) == 10 + 7
    pins = cell["connections"]
    for _ in range(50):
        values = {port: int(rng.integers(-1 << n - 1, 1 << n - 1)) for port, n in bits.items()}
        signals = {f"{p}{i}": values[p] >> i & 1 for p in bits for i in range(18)} | {"0": 0}
        factors = [sum(signals[pins[f"{p}{i}"][0]] << i for i in range(18)) for p in "AB"]
        signed = [f - (f >> 17 << 18) for f in factors]
        product = signed[0] * signed[1]
        expected = values["A"] * values["B"]
        for i in range(36 - 17):
            assert pins[f"P{i + 17}"] == [f"P{i}"]
            assert product >> (i + 17) & 1 == expected >> i & 1


def test_copies_of_a_driver_share_its_loads():
    loads = {f"load{i}": {"type": "LUT4", "port_directions": {"A": "input", "Z": "output"},
                          "connections": {"A": [1], "Z": [10 + i]}} for i in range(23)}  # fmt: skip
    ports = {"DI": "input", "Q": "output", "CLK": "input"}
    source = {"type": "TRELLIS_FF", "port_directions": ports,
              "connections": {"DI": [2], "Q": [1], "CLK": [3]}}  # fmt: skip
    module = {"cells": {"source": source, **loads}, "netnames": {}}
    assert Replication(module, 8).copies == 2
    drivers = {
        c["connections"]["Q"][0] for c in module["cells"].values() if "Q" in c["connections"]
    }
    taken = [module["cells"][name]["connections"]["A"][0] for name in loads]
    assert {taken.count(driver) for driver in drivers} == {8, 7}
    assert len(taken) == 23
