"""Run a generated CUDA kernel on the CPU, one thread at a time, by emulator.cpp.

The host's C++ compiler compiles the kernel against device.h. It runs under any order of its
threads, every access is checked, and the memory traffic of its warps can be counted.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.cache import cache_directory, get_or_build
from vtaops.base.errors import UnsupportedError, VTAError
from vtaops.base.temporary import TemporaryFolder
from vtaops.kernels.cuda.kernel import CudaKernel
from vtaops.kernels.cuda.target import Launch, entry_points

HERE = Path(__file__).parent
IN_ORDER, REVERSED = 0, 1
_NUMBERS = count()
_SHARED = re.compile(r"__shared__ (?:alignas\(\d+\) )?([\w: ]+?) (\w+)\[(\d+)\];")
_REGISTERS = re.compile(
    r"(?<=[;{}])(\s+)(?:alignas\(\d+\) )?([a-z][\w:<>, ]*) (?!red_buf)(\w+)\[(\d+)\];"
)
"""Arrays in registers, except those of TVM's cross-thread reductions, in which inactive lanes add
up arbitrary values that nothing reads.
"""

_LOOP = re.compile(r"for \(int (\w+) = 0; \1 < \d+; \+\+\1\) \{")
_LOOPS = 64
_HELPER = re.compile(
    r"^__forceinline__ __device__ void \w+\([^)]*\) \{\n(?:.*\n)*?\}", re.MULTILINE
)
_AHEAD = re.compile(
    r"ptx_cp_async\w+\([^;]*\);|\b\w+_commit_group\(\);|\b\w+_wait_group_(?P<groups>\d+)\(\);"
)
"""Statements of a pipeline: asynchronous copies, their groups, and waits."""

_PTX = {
    r'asm volatile\("cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], %2;"\s*'
    r':: "r"\((\w+)\), "l"\((\w+)\), "n"\((\d+)\)\);': r"emulator_copy(\1, \2, \3);",
    r'asm volatile\("cp\.async\.commit_group;" :  : \);': "emulator_commit();",
    r'asm volatile\("cp\.async\.wait_group (\d+);" :  :  : "memory"\);': r"emulator_wait(\1);",
}
"""The PTX instructions that the emulator supports; others do not compile."""

_ENTRY = 'extern "C" UNSEEN void emulator_entry_{name}(void** p) {{ {name}({arguments}); }}\n'


class KernelFault(VTAError):
    """A kernel violates the rules of a GPU: races, divergent barriers, out-of-bounds accesses."""


@dataclass(frozen=True)
class Traffic:
    """The warps' traffic to one array, reads or writes; see emulator.cpp.

    Attributes
    ----------
    array : str
        Name of the array; "shared array n" in shared memory.
    shared, write : bool
        Whether it is in shared memory, and whether writes or reads are counted.
    requests : int
        Warp-level instructions.
    lanes : int
        Participating threads, summed.
    nbytes : int
        Bytes requested by the threads.
    units : int
        Sectors of 32 bytes, summed over requests; or bank cycles in shared memory.
    fewest : int
        Minimum units for that number of distinct bytes.
    worst : int
        Maximum over requests of units by minimum: in shared memory, the ways of a bank conflict.
    touched : int
        Distinct sectors touched.
    scale : float
        Blocks of the kernel divided by blocks that ran.
    """

    array: str
    shared: bool
    write: bool
    requests: int
    lanes: int
    nbytes: int
    units: int
    fewest: int
    worst: int
    touched: int
    scale: float = 1.0


_COUNTS = ("requests", "lanes", "nbytes", "units", "fewest", "worst", "touched")


class _Traffic(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in _COUNTS)


class Emulated:
    """The kernels of one operator, compiled for the emulator.

    Parameters
    ----------
    source : str
        CUDA C++, as TVM generates it: one kernel, or several that run one after the other.
    *launches : Launch
        Grid and block of each.
    workspace : mapping
        Shape and dtype of the arrays passed from one kernel to the next.
    counting : bool
        Whether to prepare for counting: slower, and without register checks.

    Attributes
    ----------
    names : tuple of str
        Names of the arrays that they take.
    barriers : int
        Number of ``__syncthreads()`` in the source.
    points : int
        Statements that can be disabled: barriers first, then asynchronous copies, their groups,
        and waits for them.

    Raises
    ------
    UnsupportedError
        If no C++ compiler is available, or it rejects the kernel.
    """

    def __init__(
        self,
        source: str,
        *launches: Launch,
        workspace: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
        counting: bool = False,
    ) -> None:
        entries = entry_points(source)
        start = source.index('extern "C" __global__')
        # Kernel parameters are ordered differently from the host function's: match them by name.
        self.names = tuple(dict.fromkeys(name for entry in entries for name in entry.parameters))
        self._workspace = {
            name: np.empty(shape, dtype) for name, (shape, dtype) in (workspace or {}).items()
        }
        self.barriers = source.count("__syncthreads();")
        self.points = self.barriers + len(_AHEAD.findall(source[start:]))
        code = '#include "device.h"\n' + _helpers(source) + _for_the_cpu(source[start:], counting)
        for entry in entries:
            pairs = zip(entry.types, entry.parameters, strict=True)
            arguments = ", ".join(f"({kind})p[{self.names.index(name)}]" for kind, name in pairs)
            code += _ENTRY.format(name=entry.name, arguments=arguments)
        self._library = ctypes.CDLL(str(_compile(code, counting)))
        functions = (getattr(self._library, f"emulator_entry_{entry.name}") for entry in entries)
        self._kernels = list(zip(functions, launches, strict=True))
        for name in ("passed", "counted", "warp_blocks", "lane_blocks", "steps"):
            getattr(self._library, f"emulator_{name}").restype = ctypes.c_long
        self._library.emulator_traffic.restype = ctypes.c_bool
        self._counting = counting
        self._loops = min(_LOOPS, len(_LOOP.findall(source[start:])))

    def __call__(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        order: int = IN_ORDER,
        without: int = -1,
        *,
        results: Iterable[str] = (),
        blocks: Iterable[int] = (),
        steps: int = 0,
        only: int | None = None,
    ) -> None:
        """Run on arrays by name.

        Parameters
        ----------
        arrays : mapping
            All arrays of the kernel.
        order : int
            Thread order: `IN_ORDER`, `REVERSED`, or the seed of a shuffle.
        without : int
            Number of one of the `points` to disable; a wait then waits for one group less.
        results : iterable of str
            Arrays that must be written completely.
        blocks : iterable of int
            Run only these thread blocks, counted x first; empty: all.
        steps : int
            Number of accesses to record for `steps`.
        only : int, optional
            Run only the kernel of this number.

        Raises
        ------
        KernelFault
            On a race, divergent barriers, an out-of-bounds or misaligned access, use of
            uninitialized registers or shared memory, too much of either, or unwritten results.
        """
        for array in self._workspace.values():
            array.view("uint8").fill(0xFF)  # NaN, -1
        used, chosen = {**self._workspace, **arrays}, list(blocks)
        kernels = self._kernels if only is None else [self._kernels[only]]
        message = ctypes.create_string_buffer(300)
        for number, (kernel, launch) in enumerate(kernels):
            wanted = set(results) if number == len(kernels) - 1 else set()
            self._library.emulator_launch(
                kernel,
                *self._arguments(used, wanted),
                (ctypes.c_int * 3)(*launch.grid),
                (ctypes.c_int * 3)(*launch.block),
                order,
                without,
                (ctypes.c_int * len(chosen))(*chosen),
                len(chosen),
                ctypes.c_bool(self._counting),
                self._loops,
                ctypes.c_long(steps),
                ctypes.c_bool(number == 0),
                message,
                len(message),
            )
            if message.value:
                raise KernelFault(message.value.decode())

    def _arguments(self, used: Mapping[str, npt.NDArray[Any]], wanted: set[str]) -> tuple[Any, ...]:
        """Return the arrays in emulator.cpp's form, with the `wanted` ones as results."""
        arrays, size = [used[name] for name in self.names], len(self.names)
        integers = ctypes.c_int * size
        return (
            (ctypes.c_void_p * size)(*(array.ctypes.data for array in arrays)),
            (ctypes.c_char_p * size)(*(name.encode() for name in self.names)),
            integers(*(array.nbytes for array in arrays)),
            integers(*(array.itemsize for array in arrays)),
            integers(*(name in wanted for name in self.names)),
            size,
        )

    @classmethod
    def of(cls, kernel: CudaKernel, *, counting: bool = False) -> Emulated:
        """Create the emulated kernels of a `CudaKernel`."""
        return cls(kernel.source(), *kernel.launches, workspace=kernel.workspace, counting=counting)

    def passed(self, barrier: int) -> int:
        """Return how often a barrier was passed in the last run, summed over the threads."""
        return int(self._library.emulator_passed(barrier))

    def counted(self, kind: int) -> int:
        """Return the thread count of an instruction kind (device.h) in the last run."""
        return int(self._library.emulator_counted(kind))

    def convergence(self) -> float:
        """Return the average fraction of a warp's threads that execute a basic block together."""
        warps = int(self._library.emulator_warp_blocks())
        return int(self._library.emulator_lane_blocks()) / (32 * warps) if warps else 1.0

    def traffic(self) -> list[Traffic]:
        """Return the counts of each array in the last run, for reads and writes."""
        accesses: list[Traffic] = []
        shared, counted = ctypes.c_bool(), _Traffic()
        for number in count():
            for write in (False, True):
                pointers = ctypes.byref(counted), ctypes.byref(shared)
                if not self._library.emulator_traffic(number, ctypes.c_bool(write), *pointers):
                    return accesses
                arguments = len(self.names)
                name = self.names[number] if number < arguments else f"shared {number - arguments}"
                numbers = {field: getattr(counted, field) for field in _COUNTS}
                if counted.requests:
                    accesses.append(Traffic(name, shared.value, write, **numbers))
        raise AssertionError

    def steps(self) -> npt.NDArray[Any]:
        """Return the accesses recorded in the last run.

        Returns
        -------
        numpy.ndarray of int32
            (accesses, 5): thread of the grid, number of its earlier accesses, number of the array
            (arguments in order of `names`, then shared arrays), element, whether it wrote.
        """
        result = np.empty((int(self._library.emulator_steps(None)), 5), np.int32)
        self._library.emulator_steps(result.ctypes.data_as(ctypes.c_void_p))
        return result


def _helpers(source: str) -> str:
    """Return the helper functions that TVM defines before a kernel for PTX instructions."""
    text = "\n".join(match[0] for match in _HELPER.finditer(source))
    for instruction, call in _PTX.items():
        text = re.sub(instruction, call, text)
    return text.replace("unsigned int dst_addr", "void* dst_addr") + "\n"


def _for_the_cpu(body: str, counting: bool) -> str:
    """Return the kernel with numbered barriers and loops, and the emulator's arrays."""
    arrays, registers, barriers, loops = count(), count(), count(), count()
    body = _SHARED.sub(
        lambda m: (
            f"{m[1]}* {m[2]} = ({m[1]}*)emulator_shared("
            f"{next(arrays)}, sizeof({m[1]}) * {m[3]}, sizeof({m[1]}));"
        ),
        body,
    )
    if counting:
        body = _LOOP.sub(lambda m: f"{m[0]} emulator_loops[{next(loops) % _LOOPS}] = {m[1]};", body)
    else:  # registers are checked, not counted
        body = _REGISTERS.sub(
            lambda m: (
                f"{m[1]}{m[2]}* {m[3]} = ({m[2]}*)emulator_registers("
                f'{next(registers)}, "{m[3]}", sizeof({m[2]}) * {m[4]});'
            ),
            body,
        )
    points = count(body.count("__syncthreads();"))
    body = _AHEAD.sub(lambda m: _guarded(next(points), m), body)
    return re.sub(
        re.escape("__syncthreads();"), lambda _: f"emulator_barrier({next(barriers)});", body
    )


def _guarded(point: int, match: re.Match[str]) -> str:
    """Return a pipeline statement that can be disabled; a disabled wait waits for one less."""
    left_out = f"else emulator_wait({int(match['groups']) + 1});" if match["groups"] else ""
    return f"if (emulator_at({point})) {{ {match[0]} }} {left_out}"


@cache
def _folder() -> TemporaryFolder:
    return TemporaryFolder()


@cache
def _emulator() -> Path:
    """Return the cached object file of the emulator itself, which takes seconds to compile.

    An object file with a trailing hash is still valid.
    """
    source = HERE / "emulator.cpp"
    version = subprocess.run([_found(), "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(source.read_bytes() + version + os.uname().machine.encode())

    def make(folder: Path) -> Path:
        _run("-O2", "-c", "-o", folder / "emulator.o", source)
        return folder / "emulator.o"

    return get_or_build(cache_directory("emulator") / f"{digest.hexdigest()[:32]}.o", make)


# Only the kernel is instrumented, and the emulator replaces the sanitizer's library. Scalars are
# initialized to a pattern, so that an uninitialized one is far off.
_FLAGS = ("-O1", "-fsanitize=thread", "-ftrivial-auto-var-init=pattern")
_COUNTING = "-fsanitize-coverage=trace-pc"


@cache
def _headers(flags: tuple[str, ...]) -> Path:
    """Return a folder with device.h, precompiled: it dominates the compile time of a kernel."""
    folder = Path(tempfile.mkdtemp(dir=_folder().path))
    header = folder / "device.h"
    shutil.copyfile(HERE / "device.h", header)
    _run(*flags, "-x", "c++-header", "-o", folder / "device.h.gch", header)
    return folder


def _compile(code: str, counting: bool) -> Path:
    """Link a kernel and the emulator to a shared library."""
    emulator = _emulator()
    stem = _folder().path / f"kernel{next(_NUMBERS)}"
    source, compiled, library = (stem.with_suffix(suffix) for suffix in (".cpp", ".o", ".so"))
    source.write_text(code)
    flags = (*_FLAGS, _COUNTING) if counting else _FLAGS
    _run(*flags, "-I", _headers(flags), "-c", "-o", compiled, source)
    _run("-shared", "-Wl,-Bsymbolic", "-o", library, compiled, emulator)
    return library


def compiler() -> str | None:
    """Return the path of the C++ compiler that the emulator needs, or None."""
    return shutil.which("g++")


def _found() -> str:
    path = compiler()
    if path is None:
        raise UnsupportedError("the emulator needs a C++ compiler: install g++")
    return path


def _run(*arguments: Any) -> None:
    command = [_found(), "-std=c++17", "-w", "-fPIC", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnsupportedError(f"g++ refused the kernel: {done.stderr.strip()[-800:]}")
