"""Models as C, run in this process: the runtime as a shared library, a Python device behind it.

So the C is judged without building the simulator in C++, and a device can fail in any way: its five
functions are Python. Also builds and runs whole bundles, for this processor or an emulated one.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from vtaops.base.cache import cache_directory, obtain
from vtaops.base.data import data_directory
from vtaops.export.bundle import bundle_files, config_word
from vtaops.model import Model
from vtaops.runtime.fsim import Fsim

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
OK, BLOB, VERSION, ENDIAN, CRC, CONTENT, CONFIG, ARENA, MEMORY, ADDRESS, NOT_READY = range(11)
ARGUMENT, DEVICE, FAULT, TIMEOUT = range(11, 15)


def compilers() -> list[str]:
    """Return the compilers of C for this processor that are installed."""
    return [name for name in ("gcc", "clang") if shutil.which(name)]


class _Device(ctypes.Structure):
    _pointer, _word = ctypes.c_void_p, ctypes.c_uint32
    Alloc = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _word, ctypes.POINTER(_word))
    Move = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _word, _pointer, _word)
    Launch = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _word, _word)
    Wait = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _word)
    _fields_ = (
        ("context", _pointer),
        ("config", _word),
        ("alloc", Alloc),
        ("write", Move),
        ("read", Move),
        ("launch", Launch),
        ("wait", Wait),
    )


class PythonDevice:
    """A device of the C interface that passes all calls to a simulator.

    `fail` maps the name of a function to a function that is called first, with the number of the
    call, and returns a status.
    """

    def __init__(self, fsim: Fsim, fail: dict[str, Callable[[int], int]] | None = None) -> None:
        self.fsim, self.fail, self.calls = fsim, fail or {}, dict[str, int]()
        self._buffers: dict[int, object] = {}
        self._launch = 0, 0
        functions = (self.alloc, self.write, self.read, self.launch, self.wait)
        kinds = (_Device.Alloc, _Device.Move, _Device.Move, _Device.Launch, _Device.Wait)
        wrapped = [k(self._guarded(f)) for k, f in zip(kinds, functions, strict=True)]
        self.struct = _Device(None, config_word(fsim.config), *wrapped)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        name = function.__name__

        def call(_: object, *arguments: object) -> int:
            number = self.calls.get(name, 0)
            self.calls[name] = number + 1
            status = self.fail[name](number) if name in self.fail else OK
            if status:
                return status
            try:
                function(*arguments)
            except Exception as error:
                self.error = error
                return FAULT if name == "wait" else DEVICE
            return OK

        return call

    def _at(self, address: int) -> tuple[object, int]:
        start = max(a for a in self._buffers if a <= address)
        return self._buffers[start], address - start

    def alloc(self, nbytes: int, address: object) -> None:
        buffer = self.fsim.alloc(nbytes)
        self._buffers[buffer.address] = buffer
        address[0] = buffer.address

    def write(self, address: int, data: int, nbytes: int) -> None:
        buffer, offset = self._at(address)
        content = np.frombuffer(ctypes.string_at(data, nbytes), np.uint8)
        if offset:
            content = np.concatenate([self.fsim.read(buffer, offset), content])
        self.fsim.write(buffer, content)

    def read(self, address: int, data: int, nbytes: int) -> None:
        buffer, offset = self._at(address)
        image = self.fsim.read(buffer, offset + nbytes)[offset:]
        ctypes.memmove(data, image.tobytes(), nbytes)

    def launch(self, address: int, count: int) -> None:
        self._launch = address, count

    def wait(self, milliseconds: int) -> None:
        self.fsim.launch(*self._launch, 1e-3 * milliseconds)


@cache
def library(compiler: str = "", *flags: str) -> ctypes.CDLL:
    """Return the runtime as a shared library.

    Undefined behaviour that the compiler's sanitizer knows ends the process.
    """
    sources = data_directory("sim/c")
    compiler = compiler or compilers()[0]

    def build(folder: Path) -> Path:
        made = folder / "runtime.so"
        trap = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        files = [str(sources / name) for name in ("vta.c", "vta_steps.c")]
        command = [compiler, *STRICT, "-O2", *trap, *flags, "-shared", "-fPIC", "-o", str(made)]
        subprocess.run([*command, *files], check=True)
        return made

    name = f"{compiler}{''.join(flags)}-{_stamp(sources, 'vta*')}.so"
    return ctypes.CDLL(str(obtain(cache_directory("c") / name, build)))


def _stamp(folder: Path, pattern: str) -> str:
    content = b"".join(path.read_bytes() for path in sorted(folder.glob(pattern)))
    return hashlib.sha256(content).hexdigest()[:12]


class Loaded:
    """A blob that was handed to the runtime; `status` is what that said."""

    def __init__(
        self,
        model: Model,
        blob: bytes,
        arena: int,
        device: PythonDevice,
        lib: ctypes.CDLL | None = None,
    ) -> None:
        self.lib, self.graph, self.device = lib or library(), model.graph, device
        words = (len(blob) + 7) // 8
        self._blob = (ctypes.c_uint64 * words)()
        ctypes.memmove(self._blob, blob, len(blob))
        self._arena = (ctypes.c_uint64 * max(1, (arena + 7) // 8))()
        ctypes.memset(self._arena, 0x5A, ctypes.sizeof(self._arena))
        self._model = (ctypes.c_uint64 * 16)()
        self.status = self.lib.vta_init(
            self._model,
            ctypes.byref(device.struct),
            self._blob,
            ctypes.c_size_t(len(blob)),
            self._arena,
            ctypes.c_size_t(arena),
        )

    def run(self, *arrays: np.ndarray) -> tuple[int, list[np.ndarray]]:
        """Run once; return the status and the outputs."""
        inputs = [np.ascontiguousarray(array) for array in arrays]
        outputs = [np.zeros(t.shape, t.dtype) for t in self.graph.outputs]
        pointers = [
            (ctypes.c_void_p * max(1, len(group)))(*(a.ctypes.data for a in group))
            for group in (inputs, outputs)
        ]
        return self.lib.vta_run(self._model, *pointers), outputs


def load(
    model: Model,
    *,
    fail: dict[str, Callable[[int], int]] | None = None,
    lib: ctypes.CDLL | None = None,
) -> Loaded:
    """Export a model and load it on fsim.

    Raises
    ------
    UnsupportedError
        As `Model.export_c`.
    """
    bundle, files = bundle_files(model, Path())
    device = PythonDevice(Fsim(model.config, capabilities=model.capabilities), fail)
    return Loaded(model, files["model.bin"], bundle.arena_nbytes, device, lib)


def same(found: Sequence[np.ndarray], wanted: object) -> bool:
    """Whether outputs equal those of `Model.run`, byte for byte."""
    expected = wanted if isinstance(wanted, tuple) else (wanted,)
    return [a.tobytes() for a in found] == [np.ascontiguousarray(a).tobytes() for a in expected]
