"""Blobs of models as C with wrong words and a right CRC: a status, and no byte outside of them.

Blob, arena, inputs and outputs end right before pages that nobody may touch, so an access outside
ends the process; undefined behaviour that the compiler's sanitizer knows does too. The device
checks that the runtime stays within what it has allocated there.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import vtaops
from trials import c_bundles
from trials.guarded_memory import place
from trials.networks import growing
from trials.random_graphs import random_graph
from vtaops import HardwareConfig

_LARGEST = 1 << 22
"""Bytes of an arena, an input or an output that are given."""

_HEADER, _TABLES = 112, 72
_ROWS = (12, 16, 20, 4)
"""Bytes of the entries of the four tables: slots, buffers, programs, words of steps."""

WORDS = (0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 4096, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


@cache
def blobs() -> tuple[bytes, ...]:
    """Return the blobs that are damaged: all operators on the host, launches, and state.

    What reads them is built here, where no use of a file is being watched.
    """
    c_bundles.library()
    models = (
        c_bundles.on_host(c_bundles.every_operator()),
        vtaops.compile_model(random_graph(5), "pynq"),
        vtaops.compile_model(growing(), "pynq"),
    )
    return tuple(c_bundles.bundle_files(model, Path())[1]["model.bin"] for model in models)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Return a blob with up to four words replaced, most in its tables; some are cut."""
    blob = bytearray(draw(st.deferred(lambda: st.sampled_from(blobs()))))
    tables = struct.unpack_from("<8I", blob, _TABLES)
    areas = [(16, _HEADER - 16)]
    counted = zip(tables[::2], tables[1::2], _ROWS, strict=True)
    areas += [(start, count * nbytes) for start, count, nbytes in counted]
    areas += [(start, 64) for start in _programs(blob, *tables[4:6])]
    steps = _steps(blob, *tables[6:])
    places = st.sampled_from([area for area in areas if area[1] >= 4]) | st.sampled_from(
        sorted(steps)
    ).flatmap(lambda kind: st.sampled_from(steps[kind]))
    for _ in range(draw(st.integers(1, 4))):
        first, nbytes = draw(places)
        at = min(first + 4 * draw(st.integers(0, nbytes // 4 - 1)), len(blob) - 4)
        (old,) = struct.unpack_from("<I", blob, at)
        near = [(old + step) & WORDS[-1] for step in (-8, -4, -1, 1, 4, 8)]
        word = draw(st.sampled_from(near) | st.sampled_from(WORDS) | st.integers(0, WORDS[-1]))
        struct.pack_into("<I", blob, at, word)
    if not draw(st.integers(0, 15)):
        del blob[draw(st.integers(0, len(blob))) :]
    if len(blob) >= 16 and draw(st.integers(0, 15)):
        blob[8:12] = struct.pack("<I", len(blob))
        blob = bytearray(c_bundles.rewritten(bytes(blob), lambda data: None))
    return bytes(blob)


def _programs(blob: bytearray, at: int, count: int) -> list[int]:
    """Return where instructions and relocations begin."""
    rows = [struct.unpack_from("<5I", blob, at + 20 * row) for row in range(count)]
    return [place for row in rows for place in (row[1], row[3])]


def _steps(blob: bytearray, at: int, words: int) -> dict[int, list[tuple[int, int]]]:
    """Return for each kind where its steps begin, and their bytes: rare kinds are met as often."""
    found: dict[int, list[tuple[int, int]]] = {}
    end = at + 4 * words
    while at < end:
        (head,) = struct.unpack_from("<I", blob, at)
        nbytes = 4 + 4 * (head >> 8)
        found.setdefault(head & 255, []).append((at, nbytes))
        at += nbytes
    return found


def use(data: bytes) -> None:
    """Load a blob, and run it twice."""
    device = _Memory(HardwareConfig.load("pynq"))
    arena_nbytes = struct.unpack_from("<I", data, 60)[0] if len(data) >= 64 else 0
    arena = _guarded(np.full(_aligned(min(arena_nbytes, _LARGEST)), 0x5A, np.uint8), written=True)
    blob = _guarded(np.frombuffer(data.ljust(_aligned(len(data)), b"\xff"), np.uint8))
    runtime, model = c_bundles.library(), (ctypes.c_uint64 * 16)()
    sizes = ctypes.c_size_t(len(data)), ctypes.c_size_t(arena.nbytes)
    status = runtime.vta_init(
        model, ctypes.byref(device.struct), _pointer(blob), sizes[0], _pointer(arena), sizes[1]
    )
    _check(status, device)
    if status:
        return
    counts = struct.unpack_from("<2I", data, 64)
    if max(counts) > 16:
        return
    sizes_of = runtime.vta_input_nbytes, runtime.vta_output_nbytes
    needs = [
        [function(model, number) & WORDS[-1] for number in range(count)]
        for function, count in zip(sizes_of, counts, strict=True)
    ]
    if max(sum(needs, start=[0])) > _LARGEST:
        return
    arrays = [
        [_guarded(np.zeros(_aligned(nbytes), np.uint8), written=kind == 1) for nbytes in group]
        for kind, group in enumerate(needs)
    ]
    pointers = [(ctypes.c_void_p * (len(group) + 1))(*map(_pointer, group)) for group in arrays]
    for _ in range(2):
        _check(runtime.vta_run(model, *pointers), device)


def _aligned(nbytes: int) -> int:
    """Return the multiple of 8 that memory of so many bytes takes."""
    return nbytes + 7 & ~7


def _check(status: int, device: _Memory) -> None:
    """Refuse a status that says what is not so."""
    assert 0 <= status <= c_bundles.NO_ROOM, status
    error = getattr(device, "error", None)
    assert not isinstance(error, AssertionError), error


def _guarded(array: npt.NDArray[np.uint8], *, written: bool = False) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = place(array, at_end=True, written=written)
    return found


def _pointer(array: npt.NDArray[np.uint8]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class _Memory(c_bundles.PythonDevice):
    """A device that only allocates, and checks where the runtime reads, writes and launches."""

    def __init__(self, config: HardwareConfig) -> None:
        super().__init__(c_bundles.Fsim(config))
        self._next, self._ranges = 4096, list[range]()

    def alloc(self, nbytes: int, address: object) -> None:
        if self._next + nbytes >= 1 << 32:
            raise MemoryError(nbytes)
        address[0] = self._next
        self._ranges.append(range(self._next, self._next + nbytes))
        self._next += nbytes + 4096 & -4096

    def write(self, address: int, data: int, nbytes: int) -> None:
        self._require(address, nbytes)
        ctypes.string_at(data, nbytes)

    def read(self, address: int, data: int, nbytes: int) -> None:
        self._require(address, nbytes)
        ctypes.memset(data, 0x11, nbytes)

    def launch(self, address: int, count: int) -> None:
        self._require(address, 16 * count)

    def wait(self, milliseconds: int) -> None:
        pass

    def _require(self, address: int, nbytes: int) -> None:
        inside = (r for r in self._ranges if r.start <= address <= address + nbytes <= r.stop)
        assert not nbytes or next(inside, None), f"{nbytes} bytes at {address}"
