"""Run generated CUDA kernels on the CPU thread by thread and find their races: emulator.cpp."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")
IN_ORDER, REVERSED = 0, 1
_FOLDER = tempfile.TemporaryDirectory(prefix="cuda_emulator")
_NUMBERS = count()
_PROTOTYPE = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)\s*;'
)
_SHARED = re.compile(r"__shared__ (?:alignas\(\d+\) )?([\w: ]+?) (\w+)\[(\d+)\];")
_HELPER = re.compile(
    r"^__forceinline__ __device__ void \w+\([^)]*\) \{\n(?:.*\n)*?\}", re.MULTILINE
)
_PTX = {
    r'asm volatile\("cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], %2;"\s*'
    r':: "r"\((\w+)\), "l"\((\w+)\), "n"\((\d+)\)\);': r"emulator_copy(\1, \2, \3);",
    r'asm volatile\("cp\.async\.commit_group;" :  : \);': "emulator_commit();",
    r'asm volatile\("cp\.async\.wait_group (\d+);" :  :  : "memory"\);': r"emulator_wait(\1);",
}
"""The PTX instructions that the emulator knows; others do not compile."""

_CODE = """#include "{header}"
{body}
extern "C" UNSEEN void emulator_entry(void** p) {{ {kernel}({arguments}); }}
"""


class KernelFault(Exception):
    """A kernel does what it must not do on a GPU: a race, divergent barriers, bounds."""


class Emulated:
    """One kernel, compiled for the emulator.

    Parameters
    ----------
    source : str
        CUDA C++ with one kernel, as TVM generates it.
    launch : vtaops.cuda.target.Launch
        Its grid and block.
    """

    def __init__(self, source, launch):
        prototype = _PROTOTYPE.search(source)
        parameters = [text.strip() for text in prototype[2].split(",")]
        # Kernel parameters are not in the order of the host function: match them by name.
        self.names = [re.sub("_ptr$", "", text.split()[-1]) for text in parameters]
        types = [text.rsplit(" ", 1)[0].replace("__restrict__", "") for text in parameters]
        self.barriers = source.count("__syncthreads();")
        self.launch = launch
        code = _CODE.format(
            header=HERE / "device.h",
            body=_helpers(source) + _for_the_cpu(source[prototype.start() :]),
            kernel=prototype[1],
            arguments=", ".join(f"({kind})p[{i}]" for i, kind in enumerate(types)),
        )
        self.library = ctypes.CDLL(str(_compile(code)))
        self.library.emulator_passed.restype = ctypes.c_long

    def __call__(self, arrays, order=IN_ORDER, without=-1):
        """Run on arrays by name.

        `order` of the threads: `IN_ORDER`, `REVERSED`, else the seed of a shuffle. `without` is the
        number of a ``__syncthreads()`` in the source that is left out.

        Raises
        ------
        KernelFault
            On a race, divergent barriers, access outside of an array, or use of unwritten memory.
        """
        used = [arrays[name] for name in self.names]
        size = len(used)
        message = ctypes.create_string_buffer(300)
        self.library.emulator_launch(
            self.library.emulator_entry,
            (ctypes.c_void_p * size)(*(array.ctypes.data for array in used)),
            (ctypes.c_char_p * size)(*(name.encode() for name in self.names)),
            (ctypes.c_int * size)(*(array.nbytes for array in used)),
            (ctypes.c_int * size)(*(array.itemsize for array in used)),
            size,
            (ctypes.c_int * 3)(*self.launch.grid),
            (ctypes.c_int * 3)(*self.launch.block),
            order,
            without,
            message,
            len(message),
        )
        if message.value:
            raise KernelFault(message.value.decode())

    def passed(self, barrier):
        """Return how often a barrier was passed in the last run, summed over the threads."""
        return self.library.emulator_passed(barrier)


def _helpers(source):
    """Return the functions that TVM defines ahead of a kernel for PTX instructions."""
    text = "\n".join(match[0] for match in _HELPER.finditer(source))
    for instruction, call in _PTX.items():
        text = re.sub(instruction, call, text)
    return text.replace("unsigned int dst_addr", "void* dst_addr") + "\n"


def _for_the_cpu(body):
    """Return the kernel with numbered barriers, and shared arrays that the emulator provides."""
    arrays, barriers = count(), count()
    body = _SHARED.sub(
        lambda m: (
            f"{m[1]}* {m[2]} = ({m[1]}*)emulator_shared("
            f"{next(arrays)}, sizeof({m[1]}) * {m[3]}, sizeof({m[1]}));"
        ),
        body,
    )
    return re.sub(
        re.escape("__syncthreads();"), lambda _: f"emulator_barrier({next(barriers)});", body
    )


@cache
def _emulator():
    """Return the object file of the emulator itself."""
    path = Path(_FOLDER.name, "emulator.o")
    _run("-O2", "-c", "-o", path, HERE / "emulator.cpp")
    return path


def _compile(code):
    """Return the shared library of a kernel and the emulator."""
    stem = Path(_FOLDER.name, f"kernel{next(_NUMBERS)}")
    source, compiled, library = (stem.with_suffix(suffix) for suffix in (".cpp", ".o", ".so"))
    source.write_text(code)
    # Only the kernel is instrumented, and the emulator takes the place of the sanitizer's library.
    _run("-O1", "-fsanitize=thread", "-c", "-o", compiled, source)
    _run("-shared", "-Wl,-Bsymbolic", "-o", library, compiled, _emulator())
    return library


def _run(*arguments):
    subprocess.run([COMPILER, "-std=c++17", "-w", "-fPIC", *arguments], check=True)
