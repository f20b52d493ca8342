"""Runs the CPU kernels of aarch64 anywhere: compiled with TVM's LLVM, linked with `driver.c` by a
cross compiler, run by QEMU. On Debian: ``apt install gcc-aarch64-linux-gnu qemu-user``.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np

from vtaops.kernels.build import compile_schedule
from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.cpu.schedule import schedule
from vtaops.kernels.cpu.target import CpuTarget

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

PLAIN = CpuTarget("cortex-a72", ("neon",), (), 2, "aarch64-linux-gnu")
"""ARMv8.0, as a Raspberry Pi 4 has it."""

DOT = CpuTarget("neoverse-n2", ("neon", "dotprod", "i8mm"), (), 2, "aarch64-linux-gnu")
"""A server's core, with the dot product of unsigned and signed bytes."""

_CODES = {"i": 0, "u": 1, "f": 2}  # of DLPack, by NumPy's kinds


def lacking():
    """Return what is missing to run anything here, as text; empty if nothing is."""
    missing = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)}" if missing else ""


class Emulated(OperatorCalls):
    """The operators of `vtaops.cpu` on an emulated aarch64.

    Parameters
    ----------
    target : CpuTarget
        `PLAIN` or `DOT`.
    folder : Path
        For the programs; one at a time.
    """

    def __init__(self, target: CpuTarget, folder: Path) -> None:
        super().__init__()
        self.target, self.folder = target, folder

    def kernel(self, op):
        return _Kernel(op, self.target, self.folder)


class _Kernel:
    def __init__(self, op, target: CpuTarget, folder: Path) -> None:
        self.op, self.folder = op, folder
        executable = compile_schedule(schedule(op, target), target.tvm)
        self.program = folder / f"program_{abs(hash(op))}"
        executable.mod.write_to_file(str(folder / "kernel.o"), "o")
        _link(folder / "kernel.o", self.program)

    def run(self, *arrays) -> None:
        """Run on inputs and an output."""
        arguments, result = self.folder / "arguments", self.folder / "result"
        arguments.write_bytes(_encode(arrays))
        command = [EMULATOR, "-cpu", "max", str(self.program), str(arguments), str(result)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        arrays[-1][...] = np.fromfile(result, arrays[-1].dtype).reshape(arrays[-1].shape)

    def assembly(self) -> str:
        """Return the instructions of the kernel."""
        command = [COMPILER.replace("gcc", "objdump"), "-d", str(self.folder / "kernel.o")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _link(kernel: Path, program: Path) -> None:
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    source = Path(__file__).with_name("driver.c")
    folders = [f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}"]
    command = [COMPILER, "-O1", "-static", *folders, str(source), str(kernel), "-lm"]
    subprocess.run([*command, "-o", str(program)], check=True)


def _encode(arrays) -> bytes:
    """Return the arguments as the driver reads them."""
    parts = [struct.pack("<i", len(arrays))]
    for array in arrays:
        kind, bits = _CODES[array.dtype.kind], 8 * array.itemsize
        parts.append(struct.pack(f"<{3 + array.ndim}i", kind, bits, array.ndim, *array.shape))
        parts.append(array.tobytes())
    return b"".join(parts)
