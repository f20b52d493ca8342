"""A Pynq by open tools: the RTL on the ports of the processing system, and the steps of a build."""

import ctypes
import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.tsim_support import needs_tools
from typer.testing import CliRunner

from trials.boards import bit_file
from trials.rtl_trials import drawn
from vtaops import HardwareConfig
from vtaops.base.data import data_directory
from vtaops.board import zynq
from vtaops.board.bitfile import read_bit_file
from vtaops.cli import app
from vtaops.errors import ConfigError, DeviceError
from vtaops.hardware.build import build_library
from vtaops.hardware.registers import RtlRegisters
from vtaops.machine.config import MICRO_OP_BYTES, PAGE_BYTES
from vtaops.runtime.executor import relocate

FOLDER = data_directory("tests") / "board" / "zynq"
CONFIG = replace(HardwareConfig.load("tiny"), target="pynq")
SLVERR = 2


class Page:
    """The registers, as the driver sees them."""

    def __init__(self, system):
        self.system = system

    def read(self, offset):
        return self.system.read(offset, 1)[0]

    def write(self, offset, value):
        assert self.system.write(offset, [value]) == 0


class System:
    """``bench.cpp``: every burst has another ID."""

    def __init__(self, nbytes):
        sources = [*data_directory("sim/tsim/zynq").iterdir(), *FOLDER.iterdir()]
        files = dict(zynq.zynq_rtl(CONFIG).files)
        files |= {path.name: path.read_bytes() for path in sources}
        self.native = ctypes.CDLL(str(build_library("bench", files, "bench.cpp")))
        for name in ("new", "memory"):
            getattr(self.native, f"bench_{name}").restype = ctypes.c_void_p
        self.handle = ctypes.c_void_p(self.native.bench_new(nbytes))
        address = self.native.bench_memory(self.handle)
        array = (ctypes.c_uint8 * nbytes).from_address(address)
        self.memory = np.frombuffer(array, np.uint8)
        self.bursts = 0

    def _burst(self):
        self.bursts += 1
        return self.bursts * 37 & 0xFFF

    def write(self, offset, words, strobe=15):
        data = (ctypes.c_uint32 * len(words))(*words)
        address = 0x43C0_0000 + offset
        return self.native.bench_write(
            self.handle, address, data, len(words), self._burst(), strobe
        )

    def read(self, offset, count):
        data = (ctypes.c_uint32 * count)()
        address = 0x43C0_0000 + offset
        assert self.native.bench_read(self.handle, address, data, count, self._burst()) == 0
        return list(data)

    def close(self):
        del self.memory
        self.native.bench_delete(self.handle)


@pytest.fixture
def system():
    made = System(1 << 20)
    yield made
    made.close()


def place(program, arrays, memory):
    """Write a program and its data to memory; return where its code and its output lie."""
    free = PAGE_BYTES

    def put(data):
        nonlocal free
        address, content = free, np.frombuffer(bytes(data), np.uint8)
        memory[address : address + len(content)] = content
        free += -(-len(content) // PAGE_BYTES) * PAGE_BYTES
        return address

    inputs = dict(zip((buffer.name for buffer in program.inputs), arrays, strict=True))
    arena = put(bytes(max(1, program.arena_nbytes)))
    micro_ops = put(program.micro_ops.tobytes() or bytes(MICRO_OP_BYTES))
    addresses = []
    for buffer in program.buffers:
        if buffer.offset is not None:
            addresses.append(arena + buffer.offset)
        elif buffer.name in inputs:
            addresses.append(put(buffer.pack(inputs[buffer.name]).tobytes()))
        else:
            addresses.append(put(bytes(buffer.nbytes)))
    code = put(relocate(program, addresses, micro_ops).tobytes())
    return code, addresses[program.buffers.index(program.outputs[0])]


@needs_tools
def test_programs_run_through_the_ports_of_the_processing_system(system):
    registers = RtlRegisters(lambda base, size: Page(system), 0)
    for seed in range(3):
        program, arrays, expected = drawn(CONFIG, seed)
        code, target = place(program, arrays, system.memory)
        registers.start(code, len(program))
        for _ in range(20_000):
            if registers.finished():
                break
        assert registers.failure() == ""
        assert system.native.bench_irq(system.handle) == 1
        (output,) = program.outputs
        found = output.unpack(system.memory[target : target + output.nbytes])
        np.testing.assert_array_equal(found, expected)
    assert not system.native.bench_wrong(system.handle)


@needs_tools
def test_registers_take_bursts_and_tell_that_a_word_was_refused(system):
    words = [0x1000, 0x2000_0000, 0x300, 0x40, 5]
    first = RtlRegisters.ORIGINS[0]
    assert system.write(first, words) == 0
    assert system.read(first, 5) == words
    assert [system.read(first + 4 * i, 1) for i in range(5)] == [[word] for word in words]
    assert system.write(first, [7, 8], strobe=3) == SLVERR
    assert system.write(first, [9]) == 0
    assert system.read(first, 2) == [9, words[1]]


# ------------------------------------------------------------------------- the steps of a build

PROGRAMS = {
    "nextpnr-xilinx": "echo \"Max frequency for clock 'clk': 91.00 MHz\" > nextpnr.log\n"
    "echo \"Max frequency for clock 'clk': 88.25 MHz\" >> nextpnr.log\ntouch routed.fasm\n",
    "fasm2frames": "touch routed.frames\n",
    "xc7frames2bit": 'cp "$(dirname "$0")/made.bit" routed.bit\n',
}
FILES = {"CHIPDB": "xc7z020clg400.bin", "PRJXRAY_DB_DIR": f"zynq7/{zynq.PART}/part.yaml"}


@pytest.fixture
def tools(monkeypatch, tmp_path):
    """Stand-ins for all tools, which keep what they were called with; returns their folder."""
    folder = tmp_path / "tools"
    for variable, name in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        monkeypatch.setenv(variable, str(folder))
    for name, lines in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\necho "$@" > "$0.said"\n{lines}')
        (folder / name).chmod(0o755)
    (folder / "made.bit").write_bytes(bit_file().to_bytes())
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def yosys(design, commands, folder):
        assert "read_verilog -sv axi3_control.sv vta_zynq.v;" in commands
        cells = {"LUT6": 70, "FDRE": 50, "RAMB36E1": 3, "RAMB18E1": 1, "DSP48E1": 9, "PS7": 1}
        text = json.dumps({"design": {"num_cells_by_type": cells}})
        (folder / "statistics.json").write_text(text)

    monkeypatch.setattr(zynq, "run_yosys", yosys)
    return folder


def test_a_build_writes_a_bitstream_and_what_it_is(tools, tmp_path):
    board = tmp_path / "board"
    command = ["board", "build", "pynq", "--clock-mhz", "80", "-o", str(board), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "nextpnr places and routes it" in done.output
    assert read_bit_file(board / "vta.bit").die == "7z020"
    manifest = json.loads((board / "manifest.json").read_text())
    assert HardwareConfig.from_dict(manifest["config"]) == HardwareConfig.load("pynq")
    assert manifest["clocks_mhz"] == {"clk": 88.25}
    assert manifest["cells"] == {"lut": 70, "ff": 50, "bram": 3.5, "dsp": 9, "uram": 0}
    assert {"vta.bit", "vta_zynq.v", "vta_pkg.sv", "gemm_core.sv"} <= manifest["sha256"].keys()
    said = {name: (tools / f"{name}.said").read_text() for name in PROGRAMS}
    assert f"--chipdb {tools}/xc7z020clg400.bin --json netlist.json" in said["nextpnr-xilinx"]
    assert "--freq 80.0" in said["nextpnr-xilinx"]
    assert f"--db-root {tools}/zynq7 routed.fasm routed.frames" in said["fasm2frames"]
    assert f"--part_file {tools / FILES['PRJXRAY_DB_DIR']}" in said["xc7frames2bit"]


def test_a_design_that_is_too_slow_gives_no_bitstream(tools, tmp_path):
    with pytest.raises(DeviceError, match=r"clk reaches 88\.25 MHz, of 100; build .*--clock-mhz"):
        zynq.build_bitstream(HardwareConfig.load("pynq"), tmp_path / "board")
    assert not (tmp_path / "board" / "vta.bit").exists()
    (tools / "nextpnr-xilinx").write_text("#!/bin/sh\ntouch nextpnr.log\n")
    with pytest.raises(DeviceError, match=r"reported no clock; see .*nextpnr\.log"):
        zynq.build_bitstream(HardwareConfig.load("pynq"), tmp_path / "board")


def test_every_missing_tool_is_named_with_its_origin(tools, monkeypatch, tmp_path):
    config = HardwareConfig.load("pynq_ext")
    (tools / "fasm2frames").unlink()
    with pytest.raises(DeviceError, match=r"missing:\n- fasm2frames: .*toolchain"):
        zynq.build_bitstream(config, tmp_path / "board")
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in FILES:
        monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(DeviceError) as caught:
        zynq.build_bitstream(config, tmp_path / "board")
    named = str(caught.value).split("\n- ")[1:]
    assert [line.split(":")[0].split()[-1] for line in named] == [
        "nextpnr-xilinx", "xc7z020clg400.bin", "fasm2frames", "xc7frames2bit",
        FILES["PRJXRAY_DB_DIR"],
    ]  # fmt: skip
    assert all("openXC7" in line or "bbaexport.py" in line for line in named)
    assert not (tmp_path / "board").exists()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("pynq_512", {}, "'pynq_512' has the extension 'pairs'.*vtaops hardware write"),
        ("ultra96", {}, "has target 'ultra96'; this flow builds for 'pynq'"),
        ("pynq", {"weight_port": 1}, "has WEIGHT_PORT 1"),
        ("pynq", {"split_port": 1}, "has SPLIT_PORT 1"),
        ("pynq", {"port_bytes": 16}, "has a port of 16 bytes"),
    ],
)
def test_what_the_flow_cannot_build_is_refused(name, changes, message, tmp_path):
    config = replace(HardwareConfig.load(name), **changes)
    with pytest.raises(ConfigError, match=message):
        zynq.build_bitstream(config, tmp_path)
    with pytest.raises(ConfigError, match="the clock is 0 MHz"):
        zynq.build_bitstream(HardwareConfig.load("pynq"), tmp_path, clock_mhz=0)
