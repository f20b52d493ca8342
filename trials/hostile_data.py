"""Data for networks that are nearly right: NumPy's files, pictures, secrets."""

from __future__ import annotations

import io
import struct
import tempfile
import zipfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from trials.fuzz import INTEGERS, mutated
from vtaops.base.errors import DeviceError, ModelError
from vtaops.base.files import read_array
from vtaops.quantization.pictures import SUFFIXES
from vtaops.quantization.samples import load_samples
from vtaops.runtime.wire import read_secret

SHAPES = {"x": (1, 3, 4, 5)}
DTYPES = (
    "<f4",
    "<f8",
    "|i1",
    "|u1",
    "<i8",
    "|b1",
    "|O",
    "<U3",
    "<c8",
    "<M8[s]",
    "|V4",
    "[('a','<f4')]",
)
LARGE = 1 << 30
"""Bytes that a small file unpacks to."""


def _npy(header: object, content: bytes) -> bytes:
    text = (header if isinstance(header, str) else repr(header)).encode(
        "latin-1", "replace"
    ) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) & 0xFFFF) + text + content


@st.composite
def arrays(draw: st.DrawFn) -> bytes:
    """Return the file of an array; in three of four its header says what is not so."""
    values = np.linspace(-1, 1, 2 * 3 * 4 * 5).astype(draw(st.sampled_from(DTYPES[:6])))
    values = values.reshape(2, 3, 4, 5)
    header: object = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
    content = values.tobytes()
    if draw(st.integers(0, 3)):
        sizes = st.lists(INTEGERS | st.integers(0, 6), max_size=40).map(tuple)
        grammar = {"descr": st.sampled_from(DTYPES), "shape": sizes}
        header = draw(mutated({**header, "shape": list(values.shape)}, grammar))
        if isinstance(header.get("shape"), list):
            header["shape"] = tuple(header["shape"])
        if not draw(st.integers(0, 5)):
            header = draw(
                st.sampled_from(["(" * 5000, "{" * 200, "__import__('os')", "", "0" * 9999])
            )
    content = content[: draw(st.sampled_from([len(content)] * 4 + [0, 7]))]
    return _npy(header, content)


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Return several arrays in a file, some of which unpack to much more than they take."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in draw(
            st.lists(
                st.sampled_from(["x", "y", "../x", "", "x/y"]), min_size=1, max_size=2, unique=True
            )
        ):
            archive.writestr(f"{name}.npy", draw(arrays()), draw(st.sampled_from([0, 8])))
    data = bytearray(file.getvalue())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
    return bytes(data) if draw(st.integers(0, 39)) else _bomb()


@cache
def _bomb() -> bytes:
    """Return a file of about a megabyte that unpacks to `LARGE` zeros."""
    file = io.BytesIO()
    shape = (LARGE // 240, 3, 4, 5)
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(_npy({"descr": "<f4", "fortran_order": False, "shape": shape}, b""))
        for _ in range(shape[0] * 240 // (1 << 20) + 1):
            member.write(bytes(1 << 20))
    return file.getvalue()


def use_data(data: bytes) -> None:
    """Read what people calibrate with or run a network on."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".npz", ".npy"):
            path = Path(folder, f"data{suffix}")
            path.write_bytes(data)
            try:
                samples = load_samples(path, SHAPES)
            except ModelError:
                continue
            assert all(sample["x"].shape == SHAPES["x"] for sample in samples)
        try:
            assert isinstance(read_array(path), np.ndarray)
        except OSError:
            return


# ------------------------------------------------------------------------------- pictures


@cache
def _pictures() -> tuple[bytes, ...]:
    """Return small pictures in the formats that vtaops reads, and in some that it does not."""
    from PIL import Image

    image = Image.fromarray(np.arange(7 * 5 * 3, dtype=np.uint8).reshape(7, 5, 3))
    found = []
    for name in ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "TGA", "PCX", "ICO", "EPS"):
        file = io.BytesIO()
        image.save(file, name)
        found.append(file.getvalue())
    return tuple(found)


def _large_png(width: int, height: int) -> bytes:
    """Return a picture whose header promises so many pixels; its rows are zeros."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packer = zlib.compressobj(1)
    rows = min((3 * width + 1) * height, LARGE)
    parts = [packer.compress(bytes(min(1 << 20, rows - at))) for at in range(0, rows, 1 << 20)]
    pixels = b"".join(parts) + packer.flush()
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


_large = cache(_large_png)


@st.composite
def pictures(draw: st.DrawFn) -> bytes:
    """Return a picture with some bytes replaced, removed or doubled; some are large."""
    if not draw(st.integers(0, 39)):
        return _large(*draw(st.sampled_from([(12_000, 12_000), (1 << 31, 1), (20_000, 16_000)])))
    data = bytearray(draw(st.deferred(lambda: st.sampled_from(_pictures()))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, min(len(data) - 1, draw(st.sampled_from([64, 1 << 20])))))
        match draw(st.integers(0, 3)):
            case 0:
                del data[place : place + draw(st.integers(1, 40))]
            case 1:
                data[place:place] = draw(st.binary(max_size=9))
            case _:
                width = draw(st.sampled_from([1, 2, 4]))
                data[place : place + width] = (
                    draw(st.sampled_from([b"\xff", b"\0", b"\x7f", b"\x80"])) * width
                )
        if not data:
            break
    return bytes(data)


def use_picture(data: bytes) -> None:
    """Read a picture under the suffixes that vtaops knows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"picture{SUFFIXES[zlib.crc32(data) % len(SUFFIXES)]}")
        path.write_bytes(data)
        for channels in (1, 3):
            try:
                (sample,) = load_samples(path, {"x": (1, channels, 6, 4)})
            except ModelError:
                continue
            assert sample["x"].shape == (1, channels, 6, 4)
            assert np.isfinite(sample["x"]).all()


# ----------------------------------------------------------------------- secrets


def use_secret(data: bytes) -> None:
    """Read the secret of a board, which any file may be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "secret")
        path.write_bytes(data)
        with suppress(DeviceError):
            assert len(read_secret(path)) >= 16
