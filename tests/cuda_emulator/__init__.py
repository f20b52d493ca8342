"""Run generated CUDA kernels on the CPU, thread by thread; see emulator.h."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HEADER = Path(__file__).with_name("emulator.h")
COMPILER = shutil.which("g++") or shutil.which("c++")
_PROTOTYPE = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)\s*;'
)
_RUN = """
extern "C" int run(void** p, const int* g, const int* b, unsigned seed, long* barriers) {
  int result = emulator::launch({g[0], g[1], g[2]}, {b[0], b[1], b[2]}, seed, [=]() { %s; });
  *barriers = emulator::barriers;
  return result;
}
"""


class BarrierDivergenceError(Exception):
    """Some threads of a block wait at a barrier that others never reach."""


class Emulated:
    """One kernel, compiled for the emulator.

    Parameters
    ----------
    source : str
        CUDA C++ with one kernel, as TVM generates it.
    launch : vtaops.kernels.gpu.Launch
        Its grid and block.
    """

    def __init__(self, source, launch):
        prototype = _PROTOTYPE.search(source)
        body = re.sub(r"__shared__ (alignas\(\d+\))", r"\1 static", source[prototype.start() :])
        parameters = [text.strip() for text in prototype[2].split(",")]
        # Kernel parameters are not in the order of the host function: match them by name.
        self.names = [re.sub("_ptr$", "", text.split()[-1]) for text in parameters]
        types = [text.rsplit(" ", 1)[0].replace("__restrict__", "") for text in parameters]
        arguments = ", ".join(f"({kind})p[{i}]" for i, kind in enumerate(types))
        call = f"{prototype[1]}({arguments})"
        text = f'#include "{HEADER}"\n{body}\n{_RUN % call}'
        self.launch = launch
        with tempfile.TemporaryDirectory() as folder:
            code, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            code.write_text(text)
            flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC"]
            subprocess.run([COMPILER, *flags, "-o", library, code], check=True)
            self.library = ctypes.CDLL(str(library))

    def __call__(self, arrays, seed=1):
        """Run on arrays by name; `seed` shuffles the threads, 0 leaves them in order.

        Returns the number of barriers that were passed, summed over the threads.
        """
        pointers = (ctypes.c_void_p * len(self.names))(
            *(arrays[name].ctypes.data for name in self.names)
        )
        barriers = ctypes.c_long()
        result = self.library.run(
            pointers,
            (ctypes.c_int * 3)(*self.launch.grid),
            (ctypes.c_int * 3)(*self.launch.block),
            seed,
            ctypes.byref(barriers),
        )
        if result:
            raise BarrierDivergenceError
        return barriers.value


def without_barrier(source, index):
    """Return the source with its barrier number `index` deleted."""
    parts = source.split("__syncthreads();")
    return (
        "__syncthreads();".join(parts[: index + 1])
        + ";"
        + "__syncthreads();".join(parts[index + 1 :])
    )
