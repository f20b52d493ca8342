"""Machine code from NVIDIA's compiler, and its report of a kernel's resources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

from vtaops.base.errors import UnsupportedError
from vtaops.base.temporary import TemporaryFolder
from vtaops.kernels.cuda.target import WARP
from vtaops.kernels.ops.common import ceil_div

_REPORT = re.compile(
    r"Compiling entry function '\w+' for '(\w+)'(.*?)(?=ptxas info *: Compil|\Z)", re.DOTALL
)

_AMOUNTS = (
    r"Used (\d+) registers",
    r"(\d+) bytes smem",
    r"(\d+) bytes stack frame",
    r"(\d+) bytes spill (?:stores|loads)",
)
"""Patterns in a report for the fields of `Resources`."""


@dataclass(frozen=True)
class Resources:
    """Resource usage of a kernel; of several in one source, the maximum.

    Attributes
    ----------
    registers : int
        Per thread.
    shared : int
        Bytes of shared memory per block.
    stack : int
        Bytes of local memory per thread for arrays that do not fit into registers.
    spills : int
        Bytes stored to and loaded from local memory because registers ran out.
    """

    registers: int
    shared: int
    stack: int
    spills: int


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of a multiprocessor for its blocks (CUDA programming guide, compute capabilities).

    Attributes
    ----------
    registers, shared, threads, blocks : int
        Maximum registers, bytes of shared memory, threads and blocks.
    """

    registers: int
    shared: int
    threads: int
    blocks: int


MULTIPROCESSORS = {
    "sm_61": Multiprocessor(1 << 16, 96 << 10, 2048, 32),
    "sm_75": Multiprocessor(1 << 16, 64 << 10, 1024, 16),
    "sm_80": Multiprocessor(1 << 16, 164 << 10, 2048, 32),
    "sm_90": Multiprocessor(1 << 16, 228 << 10, 2048, 32),
}
_RESERVED = 1 << 10
"""Bytes of shared memory that the system reserves per block, from sm_80 on."""

_REGISTER_UNIT = 8
"""Allocation granularity of a thread's registers."""


def occupancy(used: Resources, threads: int, arch: str = "sm_90") -> float:
    """Return the fraction of a multiprocessor's threads that a kernel's blocks can occupy, 0 to 1.

    Parameters
    ----------
    used : Resources
        Resources of the kernel.
    threads : int
        Threads per block.
    arch : str
        One of `MULTIPROCESSORS`.

    Raises
    ------
    UnsupportedError
        If the architecture's limits are unknown.
    """
    if arch not in MULTIPROCESSORS:
        raise UnsupportedError(f"limits are known of {', '.join(MULTIPROCESSORS)}, not of {arch}")
    limits = MULTIPROCESSORS[arch]
    whole_warps = ceil_div(threads, WARP) * WARP
    reserved = _RESERVED if arch in ("sm_80", "sm_90") else 0
    registers = ceil_div(used.registers, _REGISTER_UNIT) * _REGISTER_UNIT * whole_warps
    blocks = min(
        limits.blocks,
        limits.threads // whole_warps,
        limits.registers // registers,
        limits.shared // max(1, used.shared + reserved),
    )
    return blocks * whole_warps / limits.threads


def resources(source: str, arch: str = "sm_90") -> Resources:
    """Assemble CUDA source with nvcc; return its kernels' resource usage.

    Parameters
    ----------
    source : str
        CUDA C++.
    arch : str
        Compute capability.

    Raises
    ------
    UnsupportedError
        If nvcc is not available, or rejects the source.
    """
    return assemble(source, (arch,))[1][arch]


def assemble(source: str, archs: tuple[str, ...]) -> tuple[bytes, dict[str, Resources]]:
    """Return the machine code of source for several GPUs (a fatbin), and its resource usage.

    Includes PTX for the last of them: newer GPUs translate it at load time.

    Parameters
    ----------
    source : str
        CUDA C++.
    archs : tuple of str
        Compute capabilities, ascending.

    Raises
    ------
    UnsupportedError
        If nvcc is not available, or rejects the source.
    """
    compiler = find_nvcc()
    if compiler is None:
        raise UnsupportedError(
            "nvcc was not found: it is on the PATH with NVIDIA's CUDA toolkit, and comes from PyPI "
            "with nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm, nvidia-cuda-runtime and "
            "nvidia-cuda-cccl"
        )
    numbers = [arch.removeprefix("sm_") for arch in archs]
    codes = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in numbers]
    codes.append(f"-gencode=arch=compute_{numbers[-1]},code=compute_{numbers[-1]}")
    with TemporaryFolder() as folder:
        code, result = folder / "kernel.cu", folder / "kernel.fatbin"
        code.write_text(source)
        done = subprocess.run(
            [compiler, "-fatbin", *codes, "-Xptxas", "-v", "-o", str(result), str(code)],
            capture_output=True,
            text=True,
            check=False,
        )
        report = done.stdout + done.stderr
        if done.returncode:
            wanted = ", ".join(archs)
            raise UnsupportedError(f"nvcc refused the kernel for {wanted}: {report.strip()[-500:]}")
        return result.read_bytes(), reported(report)


def reported(report: str) -> dict[str, Resources]:
    """Parse the resource usage by architecture from the output of ``ptxas -v``."""
    used: dict[str, Resources] = {}
    for arch, text in _REPORT.findall(report):
        amounts = [sum(map(int, re.findall(amount, text))) for amount in _AMOUNTS]
        before = astuple(used.get(arch, Resources(0, 0, 0, 0)))
        used[arch] = Resources(*map(max, before, amounts))
    return used


def find_nvcc() -> str | None:
    """Return the path of nvcc: from the PATH, or from NVIDIA's PyPI packages."""
    packages = Path(sysconfig.get_path("purelib"), "nvidia")
    return shutil.which("nvcc") or next(
        (str(path) for path in sorted(packages.glob("*/bin/nvcc"))), None
    )


@cache
def known_archs() -> tuple[str, ...]:
    """Return the compute capabilities that nvcc supports, oldest first; empty without nvcc."""
    compiler = find_nvcc()
    if compiler is None:
        return ()
    done = subprocess.run(
        [compiler, "--list-gpu-code"], capture_output=True, text=True, check=False
    )
    archs = re.findall(r"^sm_\d+$", done.stdout, re.MULTILINE)
    return tuple(sorted(archs, key=lambda arch: int(arch.removeprefix("sm_"))))
