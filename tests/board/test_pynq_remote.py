"""The unmodified ``pynq`` 4.0.0 client against the virtual board, over gRPC.

That package needs NumPy below 2, so these tests run in an environment of its own, named by
VTAOPS_PYNQ_PYTHON; without it they are skipped:

    python3 -m venv .venv-pynq && PYNQ_REMOTE=1 .venv-pynq/bin/pip install pynq==4.0.0
    .venv-pynq/bin/pip install --no-deps .
    VTAOPS_PYNQ_PYTHON=$PWD/.venv-pynq/bin/python pytest tests/board/test_pynq_remote.py
"""

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import vtaops
from trials.boards import ARRAYS, CONFIG, EXPECTED, OP, bit_file
from vtaops.board.__main__ import main
from vtaops.hardware.registers import RegisterMap

PYTHON = os.environ.get("VTAOPS_PYNQ_PYTHON", "")
needs_pynq = pytest.mark.skipif(not PYTHON, reason="VTAOPS_PYNQ_PYTHON names no environment")

CLIENT = """
import gc, sys
from pathlib import Path
import numpy as np
from vtaops import DeviceTimeout, HardwareConfig, Program
from vtaops.board.pynq_remote import PynqRemote
from vtaops.runtime import LoadedProgram
from vtaops.runtime.pynq import Accelerator, PynqDevice
from vtaops.hardware.registers import RegisterMap

port, design, folder = int(sys.argv[1]), RegisterMap(sys.argv[2]), Path(sys.argv[3])
interface = PynqRemote("127.0.0.1", port)
accelerator = Accelerator(HardwareConfig.load("pynq"), design, interface)
accelerator.program(folder / "vta.bit")
program = Program.load(folder / "program.vta")
arrays = np.load(folder / "arrays.npz")
with PynqDevice(accelerator) as device, LoadedProgram(program, device) as loaded:
    for _ in range(3):
        result = loaded.run(arrays["data"], arrays["kernel"])
        assert np.array_equal(result, arrays["expected"])
    once = program.stats()
    assert device.stats() == once + once + once
print("numpy", np.__version__, "passed")
"""


FAULTS = """
import sys
from pathlib import Path
import numpy as np
from vtaops import DeviceError, DeviceTimeout, HardwareConfig, Program
from vtaops.board.pynq_remote import PynqRemote
from vtaops.runtime import LoadedProgram
from vtaops.runtime.pynq import Accelerator, PynqDevice

port, folder = int(sys.argv[1]), Path(sys.argv[2])
accelerator = Accelerator(HardwareConfig.load("pynq"), interface=PynqRemote("127.0.0.1", port))
try:
    accelerator.program(folder / "vta.bit")
except DeviceError as error:
    print("refused:", str(error).splitlines()[0])
assert not accelerator.programmed
accelerator.program(folder / "vta.bit")
program = Program.load(folder / "program.vta")
arrays = np.load(folder / "arrays.npz")
with PynqDevice(accelerator) as device, LoadedProgram(program, device) as loaded:
    try:
        loaded.run(arrays["data"], arrays["kernel"], timeout=0.3)
    except DeviceTimeout as error:
        print("hung:", error)
    for _ in range(2):  # the second done flag comes late
        result = loaded.run(arrays["data"], arrays["kernel"])
        assert np.array_equal(result, arrays["expected"])
print("passed")
"""


def save_program(folder):
    (folder / "vta.bit").write_bytes(bit_file().to_bytes())
    vtaops.compile(OP, CONFIG).save(folder / "program.vta")
    data, kernel = ARRAYS
    np.savez(folder / "arrays.npz", data=data, kernel=kernel, expected=EXPECTED)


@contextmanager
def serving(folder, *options):
    command = [PYTHON, "-m", "vtaops.board", "virtual-remote", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            yield process.stdout.readline().strip().rpartition(":")[2]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def execute(folder, *command):
    environment = {**os.environ, "PYNQ_REMOTE_DEVICES": "127.0.0.1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


@needs_pynq
@pytest.mark.parametrize("design", [design.value for design in RegisterMap])
def test_the_driver_on_the_host_through_pynqs_own_client(tmp_path, design):
    save_program(tmp_path)
    with serving(tmp_path, "--register-map", design) as port:
        done = execute(tmp_path, PYTHON, "-c", CLIENT, port, design, str(tmp_path))
    assert done.stdout.endswith("passed\n"), done.stdout + done.stderr
    assert done.stdout.startswith("numpy 1.")


@needs_pynq
def test_faults_reach_the_user_through_pynqs_own_client(tmp_path):
    save_program(tmp_path)
    faults = ("--fault", "refuse-programming", "--fault", "hang", "--fault", "late-done:1")
    with serving(tmp_path, *faults) as port:
        done = execute(tmp_path, PYTHON, "-c", FAULTS, port, str(tmp_path))
    assert done.stdout.endswith("passed\n"), done.stdout + done.stderr
    assert "refused: cannot program the logic" in done.stdout
    assert "hung: the board did not reach FINISH within 0.3 s" in done.stdout


@needs_pynq
def test_faults_of_our_own_connection_are_not_had_there(tmp_path):
    done = execute(tmp_path, PYTHON, "-m", "vtaops.board", "virtual-remote", "--fault", "crash")
    assert done.returncode == 1
    assert "those here are hang, late-done, refuse-programming" in done.stderr


@needs_pynq
def test_pynqs_own_self_test_passes(tmp_path):
    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    selftest = str(Path(PYTHON).parent / "pynq-remote-selftest")
    with serving(tmp_path, "--bitstream", "vta.bit") as port:
        done = execute(tmp_path, selftest, "--ip", "127.0.0.1", "--port", port)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_pynq_the_command_says_what_to_install(capsys):
    assert main(["virtual-remote"]) == 1
    assert "pip install pynq==4.0.0" in capsys.readouterr().err
