"""The files for Vivado: their parameters, and the script run against stand-ins for its commands."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from vtaops import HardwareConfig, cli
from vtaops.board import vivado
from vtaops.errors import ConfigError
from vtaops.hardware.rtl import axi_sources, sources
from vtaops.machine.config import PORT_MHZ, TARGETS, Extension
from vtaops.runtime.tsim import RtlParameters

try:
    import tkinter
except ImportError:  # a distribution may leave it out
    tkinter = None

BIT = b"the bits"

STAND_INS = r"""
proc log {args} { lappend ::log $args }
foreach name {
    add_files apply_bd_automation connect_bd_intf_net connect_bd_net create_bd_design
    generate_target launch_runs open_run report_utilization save_bd_design set_property
    update_compile_order validate_bd_design wait_on_run assign_bd_address create_bd_cell
} { proc $name args "log $name {*}\$args" }
foreach name {get_bd_cells get_bd_pins get_bd_intf_pins get_bd_addr_spaces get_bd_addr_segs
              get_files get_runs} { proc $name name { return $name } }
proc current_fileset {} { return sources_1 }
proc create_project {args} { log create_project {*}$args; set ::project [lindex $args 2] }
proc make_wrapper {args} {
    set folder [file join $::project vta.gen sources_1 bd vta_system hw_handoff]
    file mkdir $folder
    close [open [file join $folder vta_system.hwh] w]
    return wrapper.v
}
proc get_property {name object} {
    return [dict get $::properties $name]
}
proc report_timing_summary {args} { log report_timing_summary {*}$args }
proc write_bitstream {args} {
    log write_bitstream {*}$args
    set file [open [lindex $args end] w]
    puts -nonewline $file "the bits"
    close $file
}
proc puts_kept {text} { lappend ::printed $text }
rename puts real_puts
proc puts {args} {
    if {[llength $args] == 1} { lappend ::printed [lindex $args 0] } else { real_puts {*}$args }
}
"""


class Vivado:
    """Tcl in which the commands of Vivado only take note."""

    def __init__(self, **properties: str) -> None:
        self._tcl = tkinter.Tcl()
        found = {"PROGRESS": "100%", "STATUS": "stopped", "STATS.WNS": "0.31", "STATS.WHS": "0.02"}
        found |= {name.replace("_", "."): value for name, value in properties.items()}
        self._tcl.eval("set properties [dict create {}]".format(" ".join(
            f"{name} {{{value}}}" for name, value in found.items())))  # fmt: skip
        self._tcl.eval("set log {}; set printed {}")
        self._tcl.eval(STAND_INS)

    def source(self, script) -> None:
        self._tcl.eval(f"source {{{script}}}")

    @property
    def log(self) -> list[tuple[str, ...]]:
        lines = self._tcl.splitlist(self._tcl.eval("set log"))
        return [tuple(self._tcl.splitlist(line)) for line in lines]

    @property
    def printed(self) -> list[str]:
        return list(self._tcl.splitlist(self._tcl.eval("set printed")))

    def calls(self, command: str) -> list[tuple[str, ...]]:
        return [line[1:] for line in self.log if line[0] == command]


needs_tcl = pytest.mark.skipif(tkinter is None, reason="tkinter, which has a Tcl, is missing")


PORTS = {
    "pynq": "", "pynq_512": "", "kv260_2048": "", "pynq_ext": "weight_port",
    "ultra96": "weight_port",
    "pynq_exact": "split_port", "zcu104_2048": "split_port",
}  # fmt: skip
"""Configuration -> the second port that it is given."""
MASTERS = {"": set(), "weight_port": {"vta/w_axi"}, "split_port": {"vta/n_axi"}}


@pytest.fixture(params=PORTS)
def design(request, tmp_path):
    name = request.param
    none = dict.fromkeys(("weight_port", "split_port"), 0)
    config = replace(HardwareConfig.load(name), **none)
    config = replace(config, **({PORTS[name]: 1} if PORTS[name] else {}))
    return config, vivado.write_design(config, tmp_path / "design with a space")


@needs_tcl
def test_the_script_builds_the_design_of_each_board(design):
    config, script = design
    tool = Vivado()
    tool.source(script)
    folder = script.parent
    (project,) = tool.calls("create_project")
    assert project[-1] == vivado.PARTS[config.target][1]
    added = [path for line in tool.calls("add_files") for path in tool._tcl.splitlist(line[0])]
    rtl = {path.rsplit("/", 1)[-1] for path in added if "/rtl/" in path}
    assert rtl == {path.name for path in [*sources(), *axi_sources()]} | {"vta_pkg.sv"}

    addresses = {line[-1]: line for line in tool.calls("assign_bd_address")}
    control = addresses["vta/s_axi/reg0"]
    base = int(control[control.index("-offset") + 1], 16)
    assert base == TARGETS[config.target].register_base
    assert control[control.index("-range") + 1] == "4096"
    assert any("HP0_DDR" in segment for segment in addresses)

    widths = dict(zip(*[iter(next(
        tool._tcl.splitlist(value)
        for flag, value, *_ in tool.calls("set_property")
        if flag == "-dict" and "CONFIG.PORT_BYTES" in value
    ))] * 2, strict=True))  # fmt: skip
    assert widths == {
        "CONFIG.PORT_BYTES": str(config.port_width),
        "CONFIG.ADDRESS_BITS": "32",
    }
    assert (folder / "array.xdc").is_file() == (config.has(Extension.PAIRS))
    runs = [line[0] for line in tool.calls("launch_runs")]
    assert runs == ["synth_1", "impl_1"]
    memories = folder / "memories.xdc"
    assert memories.is_file() == (config.target == "kv260")
    if memories.is_file():  # read by synthesis, which is one for the block design and its wrapper
        line = memories.read_text()
        assert line.startswith("set_property RAM_STYLE ULTRA [get_cells -hierarchical -filter {")
        assert "NAME =~ */acc_mem/*mem_reg* || " in line
        assert "NAME =~ */loader?buffer/*mem_reg*" in line
        settings = tool.calls("set_property")
        assert ("USED_IN_IMPLEMENTATION", "false", "memories.xdc") in settings
        assert ("SYNTH_CHECKPOINT_MODE", "None", "vta_system.bd") in settings
    assert (folder / f"{config.bitstream_id}.bit").read_bytes() == BIT
    assert (folder / f"{config.bitstream_id}.hwh").is_file()
    assert f"sha256:    {hashlib.sha256(BIT).hexdigest()}" in tool.printed
    assert f"{config.bitstream_id}.bit" in tool.printed[-1]


@needs_tcl
def test_every_pin_of_the_block_design_belongs_to_a_cell_and_is_connected_once(design, request):
    tool = Vivado()
    tool.source(design[1])
    cells = {line[-1] for line in tool.calls("create_bd_cell")}
    pairs = design[0].has(Extension.PAIRS)
    wizard = {"clocks"} if pairs else set()
    split = design[0].split_port
    second = {"second_bus"} if split or design[0].weight_port else set()
    assert cells == {"ps", "vta", "reset", "control_bus", "memory_bus"} | wizard | second
    sources = {net[1]: net[0] for net in tool.calls("connect_bd_net")}
    both = ("clocks/clk_out1", "clocks/clk_out2") if pairs else (sources["vta/aclk"],) * 2
    assert (sources["vta/aclk"], sources["vta/array_clk"]) == both
    own = {"pynq": "ps/FCLK_CLK1"}.get(design[0].target, "ps/pl_clk1")
    fast = own if split else both[pairs and design[0].port_width > 8]
    ports = [pin for n in range(2) for pin in (f"ps/S_AXI_HP{n}_ACLK", f"ps/saxihp{n}_fpd_aclk")]
    clocks = [sources[pin] for pin in ports if pin in sources]
    assert clocks == [fast] * (1 + bool(second))
    mhz = [v for _, v in clock_settings(tool, "PL1_REF_CTRL__FREQMHZ", "FPGA1_PERIPHERAL_FREQMHZ")]
    assert mhz == [str(PORT_MHZ[design[0].target])] * split
    nets = [*tool.calls("connect_bd_net"), *tool.calls("connect_bd_intf_net")]
    targets = [net[1] for net in nets]
    assert len({*targets}) == len(targets)
    assert {pin.split("/")[0] for net in nets for pin in net} <= cells
    for cell in ("vta", "control_bus", "memory_bus", *second):
        assert {f"{cell}/aclk", f"{cell}/aresetn"} <= {*targets}
    used = {pin for net in nets for pin in net if pin.startswith("vta/")}
    buses = {"vta/s_axi", "vta/m_axi"} | MASTERS[PORTS[request.node.callspec.params["design"]]]
    assert used == {"vta/aclk", "vta/array_clk", "vta/aresetn", "vta/irq"} | buses
    assert "vta/irq" in (sources.get("ps/IRQ_F2P"), sources.get("ps/pl_ps_irq0"))
    spaces = {
        line[line.index("-target_address_space") + 1] for line in tool.calls("assign_bd_address")
    }
    assert spaces == {"ps/Data"} | (buses - {"vta/s_axi"})
    (top,) = (path.read_text() for path in axi_sources() if path.suffix == ".v")
    for port in ("aclk", "aresetn", "irq", "s_axi_awvalid", "m_axi_arvalid", "n_axi_bready"):
        assert re.search(rf"\b{port}\b", top)


def clock_settings(tool, *names):
    """Return the properties of the processing system that are called so."""
    lists = [
        tool._tcl.splitlist(line[1]) for line in tool.calls("set_property") if line[-1] == "ps"
    ]
    pairs = [pair for values in lists for pair in zip(values[::2], values[1::2], strict=True)]
    return [pair for pair in pairs if pair[0].endswith(names)]


@needs_tcl
def test_the_clock_of_the_array_comes_from_a_net_and_holds_the_reset_until_it_is_locked(design):
    config, script = design
    tool = Vivado()
    tool.source(script)
    sources = {net[1]: net[0] for net in tool.calls("connect_bd_net")}
    wizards = [line[1] for line in tool.calls("set_property") if line[-1] == "clocks"]
    kept = ("USED_IN_SYNTHESIS", "false", "array.xdc")
    if not config.has(Extension.PAIRS):
        assert "reset/dcm_locked" not in sources
        assert not wizards
        assert kept not in tool.calls("set_property")
        return
    assert sources["reset/dcm_locked"] == "clocks/locked"
    (values,) = wizards
    values = tool._tcl.splitlist(values)
    settings = dict(zip(values[::2], values[1::2], strict=True))
    assert settings["CONFIG.PRIM_SOURCE"] == "No_buffer"
    assert settings["CONFIG.USE_LOCKED"] == "true"
    slow, fast = (int(settings[f"CONFIG.CLKOUT{n}_REQUESTED_OUT_FREQ"]) for n in (1, 2))
    assert fast == 2 * slow
    # The multicycle paths are those of the implementation: synthesis has no such names yet.
    assert tool.log.index(("set_property", *kept)) < tool.log.index(
        next(line for line in tool.log if line[0] == "launch_runs")
    )


@needs_tcl
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"STATS_WNS": "-0.004"}, "timing is not met: WNS is '-0.004' ns"),
        ({"STATS_WHS": "-1"}, "timing is not met: WHS"),
        ({"STATS_WNS": ""}, "timing is not met: WNS is ''"),
        ({"PROGRESS": "40%"}, "synth_1 failed: stopped"),
    ],
)
def test_the_script_fails_and_writes_no_bitstream(properties, message, tmp_path):
    script = vivado.write_design(HardwareConfig.load("pynq"), tmp_path)
    tool = Vivado(**properties)
    with pytest.raises(tkinter.TclError, match=re.escape(message)):
        tool.source(script)
    assert not tool.calls("write_bitstream")
    assert not [*tmp_path.glob("*.bit")]
    assert "PROGRESS" in properties or tool.calls("report_timing_summary")


@needs_tcl
def test_the_script_says_how_its_bitstream_is_used(tmp_path):
    script = vivado.write_design(HardwareConfig.load("pynq"), tmp_path)
    tool = Vivado()
    tool.source(script)
    printed = tool.printed[-1]
    assert "vtaops flash BOARD --bitstream" in printed
    assert printed.endswith("1x16_i8w8a32_15_15_18_17.bit")


def test_as_many_multipliers_are_in_dsp_blocks_as_fit():
    assert vivado.zynq_parameters(HardwareConfig.load("pynq")).dsp_multipliers == 168  # of 220
    assert vivado.zynq_parameters(HardwareConfig.load("zcu104")).dsp_multipliers == 256  # all


def test_parameters_reach_the_package(tmp_path):
    parameters = RtlParameters(port_bytes=16, dsp_multipliers=5, burst_beats=8)
    config = HardwareConfig.load("pynq")
    vivado.write_design(config, tmp_path, parameters, clock_mhz=80, jobs=3)
    package = (tmp_path / "rtl" / "vta_pkg.sv").read_text()
    for text in ("PORT_BYTES = 16;", "ADDR_BITS = 32;", "BURST_BEATS = 8;", "DSP_MULTIPLIERS = 5;"):
        assert text in package
    assert config.bitstream_id in package
    design = (tmp_path / "design.tcl").read_text()
    for text in ("set port_bytes 16\n", "set clock_mhz 80\n", "set jobs 3\n"):
        assert text in design


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tiny", {}, "has target 'sim'; this flow builds for 'pynq' or 'ultra96' or"),
        ("pynq", {"clock_mhz": 0}, "the clock is 0 MHz"),
        ("kv260_2048", {"clock_mhz": 167}, "clock is 167 MHz.* most 333: words of 32 bytes"),
        ("pynq_512", {"clock_mhz": 126}, "clock is 126 MHz.* most 250: words of 16 bytes"),
    ],
)
def test_what_cannot_be_built_is_refused(name, options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        vivado.write_design(HardwareConfig.load(name), tmp_path, **options)


def test_command_line_writes_the_design(tmp_path):
    folder = tmp_path / "vta"
    done = CliRunner().invoke(
        cli.app, ["hardware", "write", "--config", "pynq", "--output", str(folder)]
    )
    assert done.exit_code == 0, done.output
    assert "vivado -mode batch -source build.tcl" in done.output
    assert {path.name for path in folder.iterdir()} == {"rtl", "build.tcl", "design.tcl"}
