"""A bundle builds with every compiler that is there, and gives what `Model.run` gives."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from trials import c_bundles
from trials.boards import bit_file, serving
from trials.networks import resnet20
from trials.random_graphs import random_graph, random_inputs
from vtaops.cli import app
from vtaops.hardware.build import build_model
from vtaops.hardware.registers import RtlRegisters
from vtaops.hardware.rtl import RtlParameters
from vtaops.runtime import Tsim
from vtaops.runtime.arguments import as_tuple

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not c_bundles.compilers() or not shutil.which("make"), reason="no compiler of C, or no make"
)


@pytest.fixture(scope="module")
def model():
    """A network with launches, host stages, several inputs and outputs."""
    return vtaops.compile_model(random_graph(5), "pynq")


@pytest.fixture
def bundle(model, tmp_path):
    """The bundle with raw inputs; and the outputs that must come."""
    arrays = random_inputs(model.graph, 3)
    model.export_c(tmp_path)
    for number, array in enumerate(arrays):
        array.tofile(tmp_path / f"in{number}")
    made = model.reference(*arrays)
    return (
        tmp_path,
        [f"in{n}" for n in range(len(arrays))],
        made if isinstance(made, tuple) else (made,),
    )


def run(folder, *command):
    """Run a program in a bundle."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def check(folder, outputs, *command):
    """Run a program of a bundle and compare what it writes."""
    done = run(folder, *command, "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "processor time" in done.stdout
    for number, array in enumerate(outputs):
        assert (folder / f"out{number}.bin").read_bytes() == np.ascontiguousarray(array).tobytes()


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler of C++ is installed")
def test_on_the_simulator(bundle):
    folder, inputs, outputs = bundle
    c_bundles.make(folder, "network-fsim", FSIM=str(c_bundles.simulator()), CXXFLAGS="-O1")
    check(folder, outputs, "./network-fsim", *inputs, "--repeat", "3")
    for words, said in (
        (inputs[:-1], "give a file for this input"),
        ([*inputs, inputs[0]], "the network has fewer inputs"),
        ([*inputs[:-1], "Makefile"], "takes exactly"),
        ([*inputs, "--colour", "red"], "no such option"),
        ([*inputs[:-1], "absent"], "cannot be opened"),
    ):
        done = run(folder, "./network-fsim", *words)
        assert done.returncode == 1
        assert said in done.stderr


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler of C++ is installed")
def test_on_the_rtl(tmp_path):
    """Cycle by cycle: the same results, in as many cycles as in Python."""
    config = vtaops.HardwareConfig.load("tiny")
    model = vtaops.compile_model(random_graph(5), config)
    arrays = random_inputs(model.graph, 3)
    with vtaops.Session(Tsim(config)) as session:
        wanted = as_tuple(model.run(*arrays, session=session))
        cycles = session.device.performance().cycles
    model.export_c(tmp_path)
    for number, array in enumerate(arrays):
        array.tofile(tmp_path / f"in{number}")
    built = build_model(config, RtlParameters(port_bytes=config.port_width))
    c_bundles.make(tmp_path, "network-tsim", TSIM=str(built), VERILATOR="false", CXXFLAGS="-O1")
    program = "./network-tsim", *(f"in{number}" for number in range(len(arrays)))
    check(tmp_path, wanted, *program)
    assert f"{cycles} cycles of the RTL" in run(tmp_path, *program).stderr


SANITIZED = "-O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
TRAPS = "-O1 -g -fsanitize=undefined -fsanitize-trap=undefined"
"""Those of clang that need no library of its own, which few have installed."""


@pytest.mark.parametrize(
    ("compiler", "design"), [("gcc", "hls"), ("gcc", "rtl"), ("clang", "hls"), ("arm", "hls")]
)
def test_on_a_board_with_linux(bundle, model, compiler, design):
    """Registers and memory are files, whose logic is a thread; sanitizers watch the processor."""
    folder, inputs, outputs = bundle
    emulator, flags = [], TRAPS if compiler == "clang" else SANITIZED
    if compiler == "arm":
        compiler, emulator, flags = "arm-linux-gnueabihf-gcc", ["qemu-arm"], "-O2 -static"
    missing = [name for name in (compiler, *emulator) if not shutil.which(name)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    c_bundles.make(folder, "network-linux", CC=compiler, CFLAGS=flags)
    program = [*emulator, "./network-linux", *inputs]
    with c_bundles.FileBoard(model, folder, design) as board:
        check(folder, outputs, *program, *board.options, "--repeat", "2")


BOARD = """#!/bin/sh
# Stands for programs that reach a board: its files lie in a folder, its processor is emulated.
cd {folder}/board
case "${{0##*/}}" in
  scp) while [ $# -gt 1 ]; do cp "{folder}/$1" .; shift; done ;;
  ssh) shift; exec "$@" ;;
  sudo) exec qemu-arm -L {folder}/board "$@" ;;
esac
"""


def test_the_five_commands_of_the_page(tmp_path):
    """From a .vtam to scores, as docs/c.md says, on the virtual board and an emulated armv7."""
    for name in ("arm-linux-gnueabihf-gcc", "qemu-arm"):
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")
    page = (ROOT / "docs" / "c.md").read_text().partition("## On a Pynq")[2]
    commands = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(commands) == 5
    model = vtaops.compile_model(resnet20(), "pynq")
    (tmp_path / "demo").mkdir()
    model.save(tmp_path / "demo" / "glyphs.vtam")
    array = np.random.default_rng(0).integers(-128, 128, (1, 3, 32, 32)).astype(np.int8)
    array.tofile(tmp_path / "image.bin")
    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    (tmp_path / "board" / "dev").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in ("scp", "ssh", "sudo"):
        (tmp_path / "bin" / name).write_text(BOARD.format(folder=tmp_path))
        (tmp_path / "bin" / name).chmod(0o755)
    folders = tmp_path / "bin", Path(sys.executable).parent, os.environ["PATH"]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(map(str, folders)),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def shell(command):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    memory = tmp_path / "board" / "dev" / "mem"
    with serving(flashed=False) as server:
        board = c_bundles.FileBoard.of_dev_mem(model, memory, 0x1E000000, 0x2000000)
        with board:
            commands[2] = commands[2].replace("192.168.2.99", server.address)
            commands[2] = commands[2].replace("pynq-hls-1x16", "vta.bit")
            said = [shell(command) for command in commands]
        assert server.board.programmed
    assert "programmed" in said[2]
    scores = model.graph.outputs[0].scale * model.run(array).reshape(-1)
    found = {int(k): float(v) for k, v in re.findall(r"\[(\d+)\] (-?[\d.]+)", said[4])}
    assert found == pytest.approx(dict(enumerate(scores.tolist())))


@pytest.mark.parametrize("design", ["hls", "rtl"])
def test_a_board_that_fails_ends_in_a_code(bundle, model, design):
    folder, inputs, _ = bundle
    c_bundles.make(folder, "network-linux", CC="gcc", CFLAGS="-O1 -DVTA_DEFAULT_TIMEOUT=50u")
    for fault, said in (("hang", "did not finish in time"), ("reset", "the device was reset")):
        with c_bundles.FileBoard(model, folder, design, fault=fault) as board:
            done = run(folder, "./network-linux", *inputs, *board.options, "--output", "out")
        assert done.returncode == 1
        assert said in done.stderr
        assert not (folder / "out0.bin").exists()
    for options, said in (
        ((*board.options[:-1], "8192"), "the device has no room for the model"),
        (board.options[:2], "say where the memory for VTA lies"),
        (("--serial", "absent"), "the device cannot be reached"),
        (("--serial", "Makefile"), "the device cannot be reached"),
    ):
        done = run(folder, "./network-linux", *inputs, *options)
        assert done.returncode == 1
        assert said in done.stderr


def test_an_interrupt_says_that_a_launch_ended(bundle, model):
    """It only wakes the program: the registers tell what happened, an end in time too."""
    folder, inputs, outputs = bundle
    c_bundles.make(folder, "network-linux", CC=c_bundles.compilers()[0], CFLAGS=SANITIZED)
    with c_bundles.FileBoard(model, folder, "rtl", interrupt=True) as board:
        check(folder, outputs, "./network-linux", *inputs, *board.options, "--repeat", "2")
    (folder / "vta.o").unlink()
    flags = f"{SANITIZED} -DVTA_DEFAULT_TIMEOUT=50u"
    c_bundles.make(folder, "network-linux", CC=c_bundles.compilers()[0], CFLAGS=flags)
    with c_bundles.FileBoard(model, folder, "rtl", fault="hang", interrupt=True) as board:
        done = run(folder, "./network-linux", *inputs, *board.options)
    assert "did not finish in time" in done.stderr
    assert set(board.allowed[::4]) == {1}  # words that allow an interrupt, not thousands of polls
    assert 1 <= len(board.allowed) // 4 <= 500
    done = run(folder, "./network-linux", *inputs, *board.options[:-1], "absent")
    assert "the device cannot be reached" in done.stderr


def test_logic_that_still_runs_takes_no_launch(bundle, model):
    """It would ignore the launch, and the end of the other run would be taken for ours."""
    folder, inputs, _ = bundle
    c_bundles.make(folder, "network-linux", CC="gcc", CFLAGS="-O1")
    board = c_bundles.FileBoard(model, folder, "rtl")
    board.registers[RtlRegisters.CONTROL // 4] = RtlRegisters.RUNNING
    done = run(folder, "./network-linux", *inputs, *board.options)
    assert "the device cannot be reached, or refused a call" in done.stderr


def test_the_runtime_has_no_heap_and_little_stack(bundle):
    """Only memcpy, memmove and memset are called; the deepest chain of frames fits."""
    folder = bundle[0]
    c_bundles.make(folder, "libvta.a", CC="gcc", CFLAGS="-Os -fstack-usage")
    listed = run(folder, "nm", "-u", "libvta.a").stdout
    outside = {line.split()[-1] for line in listed.splitlines() if " U " in line}
    own = {name for name in outside if name.startswith("vta_")}
    assert outside - own <= {
        "memcpy",
        "memmove",
        "memset",
        "_GLOBAL_OFFSET_TABLE_",
        "__stack_chk_fail",
    }
    frames = {
        line.split(":")[-1].split("\t")[0]: int(line.split("\t")[1])
        for name in ("vta", "vta_steps", "vta_products", "model")
        for line in (folder / f"{name}.su").read_text().splitlines()
    }
    (stated,) = re.findall(r"VTA_STACK_NBYTES (\d+)", (folder / "model.h").read_text())
    assert sum(sorted(frames.values())[-6:]) < int(stated)


def test_a_picture_as_input(tmp_path):
    """Of a network that gives its input back: pixels become values of the input's scale."""
    graph = vtaops.graph.Graph("echo")
    x = graph.input("x", (1, 3, 4, 5), scale=2 / 255, zero_point=-1)
    graph.output(graph.add(vtaops.graph.Transpose((0, 2, 3, 1)), x))
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    vtaops.compile_model(graph).export_c(tmp_path)
    (tmp_path / "a.ppm").write_bytes(b"P6\n# comment\n5 4\n255\n" + pixels.tobytes())
    (tmp_path / "b.ppm").write_bytes(b"P6 4 5 255\n" + pixels.tobytes())
    c_bundles.make(tmp_path, "network-linux", CC=c_bundles.compilers()[0], CFLAGS="-O1")
    memory = tmp_path / "memory"
    memory.write_bytes(bytes(1 << 16))
    files = ["--registers", "memory@0", "--memory", "memory@0", "--nbytes", "8192"]
    board = [*files, "--physical", "4096"]
    done = run(tmp_path, "./network-linux", "a.ppm", *board, "--output", "out")
    assert done.returncode == 0, done.stderr
    found = np.fromfile(tmp_path / "out0.bin", np.int8)
    wanted = np.floor(pixels / 2 + 0.5) - 1
    np.testing.assert_array_equal(found, wanted.reshape(-1).astype(np.int8))
    done = run(tmp_path, "./network-linux", "b.ppm", *board)
    assert "the picture has 4 x 5 pixels of 0..255; give 5 x 4" in done.stderr


def test_the_command(model, tmp_path):
    model.save(tmp_path / "network.vtam")
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "network.vtam"), "-o", str(tmp_path / "c")]
    )
    assert result.exit_code == 0, result.output
    assert "bytes of constants" in result.output
    assert (tmp_path / "c" / "model.bin").stat().st_size > 0
    header = (tmp_path / "c" / "model.h").read_text()
    for tensor in (*model.graph.inputs, *model.graph.outputs):
        assert f'{{"{tensor.name}", "{tensor.dtype}"' in header
    (tmp_path / "file").write_text("")
    with pytest.raises(vtaops.errors.ProgramError, match="cannot write a bundle"):
        model.export_c(tmp_path / "file")
