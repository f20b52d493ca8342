"""The program file: a small container that is read back exactly or rejected.

Owns header and body of the file; the framing is `vtaops.base.envelope`'s. All integers are
little-endian:

====================  ==========================================================================
bytes                 content
====================  ==========================================================================
H                     header: JSON, ASCII, keys sorted, no spaces
16 n                  instructions (low half first)
4 n                   relocations (signed)
4 m                   micro-ops
====================  ==========================================================================

Equal programs give equal bytes, and `loads` accepts only bytes that `dumps` writes. The header is
not trusted: its counts must fill the body exactly.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtaops.base.envelope import Envelope
from vtaops.base.errors import ProgramError, VTAError, raising
from vtaops.base.quoting import NAME_RULE, is_name
from vtaops.base.records import MALFORMED, check_fields
from vtaops.machine import views
from vtaops.machine.config import DRAM_BYTES, INSTRUCTION_BYTES, MICRO_OP_BYTES, HardwareConfig
from vtaops.machine.layout import Layout
from vtaops.program.program import Buffer, OperatorRecord, Program, Role

_Scalar = TypeVar("_Scalar", bound=np.generic)

MAGIC = b"VTAPROG\0"
FORMAT_VERSION = 4

MAX_FILE_BYTES = 1 << 30
"""Maximum file size: 67 million instructions."""

_FILE = Envelope("program", MAGIC, FORMAT_VERSION, MAX_FILE_BYTES)
_RELOCATION_BYTES = 4
_DTYPES = "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"


def save(program: Program, path: str | Path) -> None:
    """Write `program` to a file atomically: a reader never sees half of it.

    Raises
    ------
    ProgramError
        If the program cannot be described (see `dumps`) or the file cannot be written.
    """
    _FILE.save(dumps(program), path)


def load(path: str | Path) -> Program:
    """Read a program from a file.

    Raises
    ------
    ProgramError
        If the file cannot be read or is not exactly what `save` writes; the message says whether
        it is foreign, of a newer version, truncated, corrupted or inconsistent.
    """
    return _FILE.load(path, loads)


def dumps(program: Program) -> bytes:
    """Return the bytes of a program's file; equal programs give equal bytes.

    Raises
    ------
    ProgramError
        If the metadata are not JSON, or a buffer or an operator has no valid description.
    """
    for operator in program.operators:
        check_fields(OperatorRecord, vars(operator))
    header = {
        "buffers": [*map(_checked, program.buffers)],
        "config": program.config.to_dict(),
        "config_name": program.config.name,
        "fingerprint": program.config.fingerprint,
        "instructions": len(program.instructions),
        "metadata": dict(program.metadata),
        "micro_ops": len(program.micro_ops),
        "operators": [operator.as_dict() for operator in program.operators],
        **({"pinned": program.pinned} if program.pinned else {}),
    }
    refused = "the metadata of the program are not JSON"
    with raising(ProgramError, refused, TypeError, ValueError, RecursionError):
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _FILE.seal(
        text.encode("ascii"),
        program.instructions.astype("<u8").tobytes(),
        program.relocations.astype("<i4").tobytes(),
        program.micro_ops.astype("<u4").tobytes(),
    )


def loads(data: bytes) -> Program:
    """Deserialize a program; the inverse of `dumps`.

    What a header states is checked by writing it again: other types, keys and orders are not what
    `dumps` writes.

    Raises
    ------
    ProgramError
        As for `load`.
    """
    text, sections = _FILE.open(data)
    try:
        program = _program(json.loads(text), sections)
        if dumps(program) == data:
            return program
    except ProgramError:
        raise
    except (VTAError, *MALFORMED) as error:
        raise ProgramError(f"the header is inconsistent: {error!r}") from error
    raise ProgramError("the header is not in the form that vtaops writes")


def entry_of(buffer: Buffer) -> dict[str, Any]:
    """Return the description of a buffer, with the optional keys that it needs, first of all."""
    view = buffer.layout.view
    optional = {
        "view": view.to_dict() if view else None,
        "value": list(buffer.value) or None,
        "offset": buffer.offset,
        "fill": buffer.fill,
    }
    return {
        **{key: value for key, value in optional.items() if value is not None},
        "dtype": buffer.dtype,
        "layout": buffer.layout.text,
        "logical": buffer.layout.logical,
        "name": buffer.name,
        "role": buffer.role.value,
        "shape": [int(extent) for extent in buffer.shape],
    }


def buffer_of(entry: Mapping[str, Any]) -> Buffer:
    """Return the buffer of a description; the inverse of `entry_of`.

    Raises
    ------
    ProgramError, ShapeError, or one of `MALFORMED`
        If it describes none.
    """
    values = dict(entry)
    view = views.from_dict(values.pop("view")) if "view" in values else None
    layout = Layout(values["layout"], values.pop("logical"), view)
    shape, value = tuple(values["shape"]), tuple(values.get("value", ()))
    made = {"layout": layout, "role": Role(values["role"]), "shape": shape, "value": value}
    return Buffer(**values | made)


def _checked(buffer: Buffer) -> dict[str, Any]:
    """Return the description of a buffer that a file may hold."""
    entry = entry_of(buffer)
    own = {f.name: getattr(buffer, f.name) for f in fields(Buffer)}
    check_fields(Buffer, {**own, "shape": tuple(entry["shape"])})
    for right, reason in (
        (is_name(buffer.name), f"the name {buffer.name!r}; {NAME_RULE}"),
        (buffer.dtype in _DTYPES, f"dtype {buffer.dtype!r}; dtypes are {', '.join(_DTYPES)}"),
        (min(buffer.shape, default=1) > 0, f"shape {buffer.shape}; extents are from 1 on"),
        (
            buffer.nbytes + (buffer.offset or 0) <= DRAM_BYTES,
            f"{buffer.nbytes} bytes; DRAM ends at {DRAM_BYTES}",
        ),
    ):
        if not right:
            raise ProgramError(f"buffer {buffer.name!r} has {reason}")
    return entry


def _program(header: dict[str, Any], sections: memoryview) -> Program:
    """Return the program of a header, which may claim anything, and its sections."""
    count, micro_op_count = header["instructions"], header["micro_ops"]
    relocations = count * INSTRUCTION_BYTES
    micro_ops = relocations + count * _RELOCATION_BYTES
    end = micro_ops + micro_op_count * MICRO_OP_BYTES
    if count < 0 or micro_op_count < 0 or end != len(sections):
        raise ProgramError(
            f"the header claims {count} instructions and {micro_op_count} micro-ops, which do not "
            f"fill the {len(sections)} bytes of the sections"
        )
    return Program(
        config=_config(header),
        instructions=_array(sections[:relocations], np.uint64).reshape(-1, 2),
        relocations=_array(sections[relocations:micro_ops], np.int32),
        micro_ops=_array(sections[micro_ops:], np.uint32),
        buffers=tuple(map(buffer_of, header["buffers"])),
        metadata=header["metadata"],
        operators=tuple(map(OperatorRecord.of, header["operators"])),
        pinned=header.get("pinned", 0),
    )


def _array(data: memoryview, dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """Convert little-endian bytes to an array in native byte order."""
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def _config(header: dict[str, Any]) -> HardwareConfig:
    config = HardwareConfig.from_dict(header["config"], name=header["config_name"])
    if config.fingerprint != header["fingerprint"]:
        raise ProgramError(
            f"the program was compiled for fingerprint {header['fingerprint']!r}; its "
            f"configuration {config.bitstream_id} has {config.fingerprint} in this vtaops"
        )
    return config
