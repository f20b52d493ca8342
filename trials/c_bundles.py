"""Models as C, run in this process: the runtime as a shared library, a Python device behind it.

So the C is judged without building the simulator in C++, and a device can fail in any way: its five
functions are Python. Also builds and runs whole bundles, for this processor or an emulated one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pty
import select
import shutil
import struct
import subprocess
import threading
import tty
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from trials.random_graphs import shuffled
from vtaops import HardwareConfig
from vtaops.base.cache import cache_directory, get_or_build
from vtaops.base.data import data_directory
from vtaops.graph import (
    Add,
    AddTerm,
    AveragePool,
    Concat,
    Constant,
    Convolution,
    Dense,
    Dequantize,
    Expand,
    Extremum,
    FineRequantization,
    FixedSoftmax,
    FromUint8,
    Graph,
    LayerNorm,
    LookupTable,
    Matmul,
    MaxPool,
    Multiply,
    Pad,
    Quantize,
    Quotient,
    Requantization,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Tensor,
    TfliteRequantization,
    ToUint8,
    Transpose,
    TransposedConvolution,
    Upsample,
    operators,
)
from vtaops.hardware.registers import REGISTER_PAGE, HlsRegisters, RtlRegisters
from vtaops.machine.capabilities import FULL
from vtaops.model import HostStage, Model
from vtaops.model.export.bundle import bundle_files, config_word
from vtaops.model.export.state import ends, growing_state
from vtaops.runtime.fsim import Fsim

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
OK, BLOB, VERSION, ENDIAN, CRC, CONTENT, CONFIG, ARENA, MEMORY, ADDRESS, NOT_READY = range(11)
ARGUMENT, DEVICE, FAULT, TIMEOUT, LOST, NO_ROOM = range(11, 17)


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


class NoDevice(PythonDevice):
    """A device that does nothing: what is left of a run is the host's part."""

    def alloc(self, nbytes: int, address: object) -> None:
        address[0] = 4096

    def write(self, address: int, data: int, nbytes: int) -> None:
        pass

    read, wait = write, lambda self, milliseconds: None


TRAPS = "-O2", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"
"""Undefined behaviour that the compiler's sanitizer knows ends the process."""


@cache
def library(compiler: str = "", flags: tuple[str, ...] = TRAPS) -> ctypes.CDLL:
    """Return the runtime as a shared library."""
    sources = data_directory("sim/c")
    compiler = compiler or compilers()[0]

    def build(folder: Path) -> Path:
        made = folder / "runtime.so"
        files = [str(sources / name) for name in ("vta.c", "vta_steps.c", "vta_products.c")]
        command = [compiler, *STRICT, *flags, "-shared", "-fPIC", "-o", str(made)]
        subprocess.run([*command, *files], check=True)
        return made

    name = f"{compiler}{''.join(flags)}-{_stamp(sources, 'vta*')}.so"
    return ctypes.CDLL(str(get_or_build(cache_directory("c") / name, build)))


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
        self.lib, self.device = lib or library(), device
        self.inputs, self.outputs = ends(model.graph, growing_state(model))
        words = (len(blob) + 7) // 8
        self._blob = (ctypes.c_uint64 * words)()
        ctypes.memmove(self._blob, blob, len(blob))
        self._arena = (ctypes.c_uint64 * max(1, (arena + 7) // 8))()
        ctypes.memset(self._arena, 0x5A, ctypes.sizeof(self._arena))
        self._model = (ctypes.c_uint64 * 16)()
        self._held: tuple[list[np.ndarray], list[np.ndarray], object] = [], [], None
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
        return self._begun("vta_run", arrays)

    def prepare(self, *arrays: np.ndarray) -> int:
        """Do what comes before the launch; return the status."""
        return self._begun("vta_prepare", arrays)[0]

    def start(self) -> int:
        """Begin the launch; return the status."""
        return self.lib.vta_start(self._model)

    def finish(self) -> tuple[int, list[np.ndarray]]:
        """Wait for it, do the rest; return the status and the outputs."""
        return self.lib.vta_finish(self._model), self._held[1]

    def _begun(self, function: str, arrays: Sequence[np.ndarray]) -> tuple[int, list[np.ndarray]]:
        inputs = [np.ascontiguousarray(array) for array in arrays]
        outputs = [np.zeros(t.shape, t.dtype) for t in self.outputs]
        pointers = [
            (ctypes.c_void_p * max(1, len(group)))(*(a.ctypes.data for a in group))
            for group in (inputs, outputs)
        ]
        if not self._fit(inputs, outputs):
            return CONTENT, outputs
        status = getattr(self.lib, function)(self._model, *pointers)
        if status == OK:
            self._held = inputs, outputs, pointers  # until the run is finished
        return status, outputs

    def reset(self) -> int:
        """Begin again; return the status."""
        return self.lib.vta_reset(self._model)

    def _fit(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> bool:
        """Whether the blob takes and gives arrays of these sizes, as ``model.c`` asks too."""
        kinds = (self.lib.vta_input_nbytes, inputs), (self.lib.vta_output_nbytes, outputs)
        return all(
            0 <= nbytes(self._model, number) <= array.nbytes
            for nbytes, group in kinds
            for number, array in enumerate(group)
        )


def load(
    model: Model,
    *,
    fail: dict[str, Callable[[int], int]] | None = None,
    lib: ctypes.CDLL | None = None,
    device: PythonDevice | None = None,
) -> Loaded:
    """Export a model and load it on fsim, or on a device that another one is on.

    Raises
    ------
    UnsupportedError
        As `Model.export_c`.
    """
    bundle, files = bundle_files(model, Path())
    device = device or PythonDevice(Fsim(model.config, capabilities=model.capabilities), fail)
    return Loaded(model, files["model.bin"], bundle.arena_nbytes, device, lib)


def same(found: Sequence[np.ndarray], wanted: object) -> bool:
    """Whether outputs equal those of `Model.run`, byte for byte."""
    expected = wanted if isinstance(wanted, tuple) else (wanted,)
    return [a.tobytes() for a in found] == [np.ascontiguousarray(a).tobytes() for a in expected]


def rewritten(blob: bytes, change: Callable[[bytearray], object]) -> bytes:
    """Return a blob with changed bytes and a right CRC."""
    data = bytearray(blob)
    change(data)
    data[12:16] = struct.pack("<I", zlib.crc32(data[16:]))
    return bytes(data)


def contradictions(model: Model, count: int, seed: int = 0) -> dict[int, int]:
    """Run blobs in which one word of the slots or the steps is another; count the statuses.

    Their CRC is right, so nothing but the checks of the runtime can refuse them.
    """
    rng = np.random.default_rng(seed)
    bundle, files = bundle_files(model, Path())
    blob = files["model.bin"]
    arrays = [np.zeros(t.shape, t.dtype) for t in model.graph.inputs]
    slots_at, slots, *_, steps_at, words = struct.unpack_from("<8I", blob, 72)
    numbers = [0, 1, 2, 255, 1 << 16, 1 << 31, (1 << 32) - 1]
    found: dict[int, int] = {}
    for _ in range(count):
        first, size = ((slots_at, 3 * slots), (steps_at, words))[rng.integers(2)]
        word = int(rng.choice([*numbers, rng.integers(1 << 32)]))
        place = first + 4 * int(rng.integers(size))
        data = rewritten(blob, lambda d, p=place, w=word: struct.pack_into("<I", d, p, w))
        device = NoDevice(Fsim(model.config))
        loaded = Loaded(model, data, bundle.arena_nbytes, device)
        status = loaded.status or loaded.run(*arrays)[0]
        found[status] = found.get(status, 0) + 1
    return found


# ------------------------------------------------------------------------- whole bundles


def simulator() -> Path:
    """Return the functional simulator as one object file, for the variable FSIM of a Makefile."""
    sources = data_directory("sim/fsim")

    def build(folder: Path) -> Path:
        skipped = ("module", "baseline")
        files = [
            p for p in sources.glob("*.cpp") if not p.stem.startswith((*skipped, "kernels_avx"))
        ]
        compile_one = ["g++", "-std=c++17", "-O1", "-c"]
        subprocess.run([*compile_one, *map(str, files)], cwd=folder, check=True)
        made = folder / "fsim.o"
        objects = [f"{path.stem}.o" for path in files]
        subprocess.run(["ld", "-r", "-o", str(made), *objects], cwd=folder, check=True)
        return made

    return get_or_build(cache_directory("c") / f"fsim-{_stamp(sources, '*pp')}.o", build)


def make(folder: Path, target: str, **variables: str) -> Path:
    """Build a target of a bundle; return its path."""
    settings = [f"{name}={value}" for name, value in variables.items()]
    command = ["make", "-C", str(folder), *settings, target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / target


class FileBoard:
    """A board whose registers and memory are files: what the driver for Linux maps.

    Its processor may be emulated. A thread plays the logic: it sees a start in the registers, runs
    the instructions on fsim, and sets the flags. With the fault ``"hang"`` it never does; with
    ``"reset"`` a start resets it. A terminal stands for the UIO device of its interrupt.
    """

    PHYSICAL = 0x1000  # the first address of fsim

    def __init__(
        self,
        model: Model,
        folder: Path,
        design: str,
        *,
        fault: str = "",
        nbytes: int = 1 << 24,
        interrupt: bool = False,
    ) -> None:
        self._hls, self.fault, self._done = design == "hls", fault, threading.Event()
        self.paths = folder / "registers", folder / "memory"
        for path in self.paths:
            path.unlink(missing_ok=True)  # of the board before
        self.options = [
            *("--design", design),
            *("--registers", f"{self.paths[0]}@0"),
            *("--memory", f"{self.paths[1]}@0"),
            *("--physical", hex(self.PHYSICAL), "--nbytes", str(nbytes)),
        ]
        self._terminal: tuple[int, ...] = pty.openpty() if interrupt else ()
        if interrupt:
            tty.setraw(self._terminal[1])
            self.options += ["--interrupt", os.ttyname(self._terminal[1])]
        self._map(model, (self.paths[0], 0), (self.paths[1], 0), nbytes)

    @classmethod
    def of_dev_mem(cls, model: Model, path: Path, physical: int, nbytes: int) -> FileBoard:
        """Return a board of upstream's design whose whole memory is one file, with many holes."""
        board = cls.__new__(cls)
        board._hls, board.fault, board._done = True, "", threading.Event()
        board._terminal = ()
        registers = model.config.board.register_base
        board._map(model, (path, registers), (path, physical), nbytes)
        return board

    def _map(
        self, model: Model, registers: tuple[Path, int], memory: tuple[Path, int], nbytes: int
    ) -> None:
        for (path, offset), size in ((registers, 4 * REGISTER_PAGE), (memory, nbytes)):
            with path.open("ab") as file:
                file.truncate(max(path.stat().st_size, offset + size))
        words = REGISTER_PAGE  # of four pages
        self.registers = np.memmap(registers[0], np.uint32, "r+", registers[1], words)
        self._memory = np.memmap(memory[0], np.uint8, "r+", memory[1], nbytes)
        self._fsim = Fsim(model.config)
        physical = memory[1] or self.PHYSICAL
        if physical > self.PHYSICAL:  # so much lies before it, and a page that is never in use
            self._fsim.alloc(physical - 0x2000)
        self._buffer = self._fsim.alloc(nbytes)
        assert self._buffer.address == physical
        self._thread = threading.Thread(target=self._play)

    def __enter__(self) -> FileBoard:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._terminal:
            words, _, _ = select.select(self._terminal[:1], [], [], 0)
            self.allowed = os.read(self._terminal[0], 4096) if words else b""
            for file in self._terminal:
                os.close(file)

    def _play(self) -> None:
        step = self._play_hls if self._hls else self._play_rtl
        while not self._done.wait(0.0005):
            step()

    def _run(self, address: int, count: int) -> bool:
        """Run instructions; return whether they ended with FINISH."""
        if self.fault == "reset":
            self.registers[:] = 0
        if self.fault:
            return False
        if count == 1:  # the one that clears the flag of the HLS design
            return False
        self._fsim.write(self._buffer, self._memory)
        self._fsim.launch(address, count, 60.0)
        self._memory[:] = self._fsim.read(self._buffer, self._memory.size)
        return True

    def _play_hls(self) -> None:
        page, hls = REGISTER_PAGE // 4, HlsRegisters
        if self.registers[hls.CONTROL // 4] & hls.START:
            self.registers[hls.CONTROL // 4] = 0
            where = self.registers[[hls.FETCH_ADDRESS // 4, hls.FETCH_COUNT // 4]].tolist()
            self.registers[2 * page + hls.COMPUTE_DONE // 4] = self._run(*where)

    def _play_rtl(self) -> None:
        rtl = RtlRegisters
        if self.registers[rtl.CONTROL // 4] & rtl.LAUNCH:
            where = self.registers[[rtl.ADDRESS // 4, rtl.COUNT // 4]].tolist()
            done = self._run(*where)
            self.registers[rtl.CONTROL // 4] = (rtl.FINISHED | rtl.QUIET) * done
            if self._terminal and done:
                os.write(self._terminal[0], struct.pack("<I", 1))


# ------------------------------------------------------------------------------ networks


WITHOUT_C = ("FloatOperator", "GraphOperator", "Host", "RescaledAdd", "RowNorm", "RowSoftmax")
"""Operators without a step of their own; those of rows are made only where VTA runs them."""


def _moved_and_pooled(graph: Graph, x: Tensor, free: Callable, weights: Callable) -> list[Tensor]:
    """Add groups, dilation, sizes that are rounded up, repeated borders and axes, constants."""
    up = TransposedConvolution(
        weights(5, 2, 2, 3), None, free(10), strides=(2, 1), dilation=(2, 3), groups=5
    )
    found = [graph.add(up, x)]
    window = {"kernel": (3, 2), "strides": (2, 2), "padding": (1, 1, 1, 1)}
    found.append(graph.add(MaxPool(**window, dilation=(1, 3)), x))
    means = {"requantization": Requantization(40000, 18, 5), **window}
    pools = [AveragePool(**means, dilation=(2, 1), exclude_padding=b) for b in (True, False)]
    found += [graph.add(pool, x) for pool in pools]
    found.append(graph.add(Pad((2, 1, 0, 3), "edge"), graph.add(Pad((1, 0, 2, 2), "reflect"), x)))
    one = graph.add(Constant(weights(5, 1, 1), -4))
    found.append(graph.add(Add((1, 1), Requantization(1, 1)), x, graph.add(Expand(x.shape), one)))
    found.append(graph.add(FromUint8(-2), graph.add(ToUint8(), x)))
    for b in (weights(8, 3), weights(5, 8, 2)):
        factor = graph.add(Constant(b, 3))
        found.append(graph.add(Matmul(Requantization(50000, 22)), x, factor))
    return found


def every_operator() -> Graph:
    """Return a graph with each operator at least once, most with unusual parameters."""
    rng = np.random.default_rng(7)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-128, 128, shape).astype(np.int8)

    def free(channels: int) -> Requantization:
        return Requantization(rng.integers(1 << 15, 1 << 16, channels), 22 + rng.integers(0, 3), -7)

    graph = Graph("every operator")
    image = graph.add(Quantize(0.1, 11), graph.input("image", (2, 5, 9, 8), "float32"))
    rows = graph.input("rows", (2, 3, 6), zero_point=-3)
    bias = rng.integers(-9999, 9999, 8).astype(np.int32)
    y = graph.add(Convolution(weights(8, 5, 3, 2), bias, free(8), padding=(1, 0, 2, 1)), image)
    y = graph.add(
        Convolution(
            weights(8, 1, 3, 3), None, free(8), groups=8, padding=(2, 2, 2, 2), dilation=(2, 2)
        ),
        y,
    )
    factors = np.arange(1, 9) * 300
    y = graph.add(
        Convolution(weights(8, 4, 1, 1), bias, free(8), groups=2, residual_factor=factors), y, y
    )
    up = TransposedConvolution(
        weights(8, 4, 3, 2),
        None,
        free(4),
        strides=(2, 3),
        padding=(1, 0, 0, 1),
        output_padding=(1, 0),
    )
    graph.output(graph.add(up, y))
    y = graph.add(MaxPool((3, 2), (2, 1), (1, 1, 0, 0)), y)
    means = {
        "kernel": (3, 3),
        "padding": (1, 1, 1, 1),
        "requantization": Requantization(40000, 19, 5),
    }
    y = graph.add(
        Concat(1), *(graph.add(AveragePool(**means, exclude_padding=b), y) for b in (True, False))
    )
    whole = graph.add(AveragePool(requantization=Requantization(30000, 20)), y)
    y = graph.add(Multiply(Requantization(50000, 21, 3)), y, whole)
    y = graph.add(Add((3, -2), Requantization(20000, 14, 1, (-100, 90))), y, y)
    y = graph.add(Requantize(free(16)), y)
    threshold = graph.add(Requantize(Requantization(1, 1, -7)), whole)
    y = graph.add(Extremum("minimum"), graph.add(Extremum(), y, threshold), y)
    y = graph.add(LookupTable(weights(16, 256)), y)
    y = shuffled(graph, graph.add(LookupTable(weights(256)), y), 4)
    y = graph.add(Slice(3, 1, 8, 3), graph.add(Pad((1, 0, 2, 3)), y))
    graph.output(graph.add(Upsample((2, 3)), y))
    graph.output(*_moved_and_pooled(graph, image, free, weights))
    twice = TfliteRequantization(rng.integers(1 << 30, 1 << 31, 9), 38 + np.arange(9), 5)
    t = graph.add(Convolution(weights(9, 5, 3, 3), None, twice, padding=(1, 1, 1, 1)), image)
    nudges = rng.integers(-8, 8, 8)
    fine = rng.integers(1 << 23, 1 << 24, 8), 31, -3, (-120, 127), nudges, 2
    t = graph.add(Convolution(weights(8, 9, 1, 1), None, FineRequantization(*fine)), t)
    means = {"kernel": (3, 3), "padding": (1, 1, 1, 1), "requantization": Quotient()}
    t = graph.add(AveragePool(**means, exclude_padding=True), t)
    once = TfliteRequantization(rng.integers(1 << 30, 1 << 31, 7), 38, 9, rounds="once")
    t = graph.add(Dense(weights(7, 576), None, once), graph.add(Reshape((2, 576)), t), scale=0.07)
    graph.output(t, graph.add(FixedSoftmax(), t))
    z = graph.add(Dense(weights(5, 6), rng.integers(-99, 99, 5).astype(np.int32), free(5)), rows)
    product = graph.add(Matmul(Requantization(50000, 20)), z, graph.add(Transpose((0, 2, 1)), z))
    flat = graph.add(Reshape((2, 9)), product, scale=0.05)
    graph.output(flat)
    graph.output(graph.add(Softmax(), graph.add(Dequantize(), flat)), flat)
    for data in (graph.add(Dequantize(), z), graph.inputs[0]):
        size = data.shape[-1]
        terms = (rng.standard_normal((3, size)) * 3).astype(np.float32)
        normal = graph.add(LayerNorm(terms[0], terms[1], 1e-3), data)
        graph.output(graph.add(LayerNorm(terms[0], terms[1], 1e-3, centered=False), data))
        graph.output(normal, graph.add(AddTerm(terms[2]), normal))
    covered = {type(node.op).__name__ for node in graph.nodes}
    known = {name for name in operators.__all__ if name not in WITHOUT_C}
    assert covered == known
    return graph


def on_host(graph: Graph) -> Model:
    """Return a model that runs everything on the host."""
    names = tuple(node.name for node in graph.nodes)
    config = HardwareConfig.load("pynq")
    return Model(graph, config, FULL, (), (HostStage(names),))
