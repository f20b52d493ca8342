"""Resources: what a kernel occupies on the GPU, as NVIDIA's assembler reports it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vtaops.errors import UnsupportedError


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies.

    Attributes
    ----------
    registers : int
        Of one thread.
    shared : int
        Bytes of shared memory of one block.
    stack : int
        Bytes of local memory of one thread that arrays occupy which did not fit into registers.
    spills : int
        Bytes that are stored to and loaded from local memory because registers ran out.
    """

    registers: int
    shared: int
    stack: int
    spills: int


def resources(source: str, arch: str = "sm_90") -> Resources:
    """Assemble CUDA source with nvcc and return what its kernel occupies.

    Parameters
    ----------
    source : str
        CUDA C++ with one kernel.
    arch : str
        Compute capability.

    Raises
    ------
    UnsupportedError
        If nvcc is not there, or refuses the source.
    """
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise UnsupportedError(
            "nvcc was not found on the PATH; it comes with NVIDIA's CUDA toolkit"
        )
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "kernel.cu")
        code.write_text(source)
        command = [compiler, "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o"]
        done = subprocess.run(
            [*command, str(Path(folder, "kernel.cubin")), str(code)],
            capture_output=True,
            text=True,
            check=False,
        )
    report = done.stdout + done.stderr
    if done.returncode:
        raise UnsupportedError(f"nvcc refused the kernel for {arch}: {report.strip()[-500:]}")
    return Resources(
        _number(r"Used (\d+) registers", report),
        _number(r"(\d+) bytes smem", report),
        _number(r"(\d+) bytes stack frame", report),
        _number(r"(\d+) bytes spill stores", report) + _number(r"(\d+) bytes spill loads", report),
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
