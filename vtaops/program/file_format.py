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
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtaops.base.envelope import Envelope
from vtaops.base.errors import ProgramError, VTAError, raising
from vtaops.base.quoting import NAME_RULE, is_name
from vtaops.machine import views
from vtaops.machine.config import DRAM_BYTES, INSTRUCTION_BYTES, MICRO_OP_BYTES, HardwareConfig
from vtaops.machine.layout import Layout
from vtaops.program.program import Buffer, OperatorRecord, Program, Role

_Scalar = TypeVar("_Scalar", bound=np.generic)

MAGIC = b"VTAPROG\0"
FORMAT_VERSION = 3

MAX_FILE_BYTES = 1 << 30
"""Maximum file size: 67 million instructions."""

_FILE = Envelope("program", MAGIC, FORMAT_VERSION, MAX_FILE_BYTES)
_RELOCATION_BYTES = 4
_DTYPES = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"})
_ROLES = tuple(role.value for role in Role)
_MAX_LAYOUT_CHARACTERS = 64
_MAX_SHOWN_CHARACTERS = 80
_HEADER_KEYS = {
    "buffers": list,
    "config": dict,
    "config_name": str,
    "fingerprint": str,
    "instructions": int,
    "metadata": dict,
    "micro_ops": int,
    "operators": list,
}
_OPTIONAL_HEADER_KEYS = {"pinned": int}
"""Optional keys of the header: for weights that stay."""
_OPERATOR_KEYS = {
    "kind": str,
    "macs": int,
    "name": str,
    "parameters": dict,
    "spans": list,
    "tiling": dict,
}
_BUFFER_KEYS = {
    "dtype": str,
    "layout": str,
    "logical": str,
    "name": str,
    "role": str,
    "shape": list,
}
_OPTIONAL_BUFFER_KEYS = {"fill": int, "offset": int, "value": list, "view": dict}
"""Optional keys of a buffer entry: for scratch that is filled or in the arena, for constants, for
layouts with a view."""


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
        If the metadata are not JSON, or a buffer has no valid description.
    """
    return _FILE.seal(
        _encode_header(_header(program)),
        program.instructions.astype("<u8").tobytes(),
        program.relocations.astype("<i4").tobytes(),
        program.micro_ops.astype("<u4").tobytes(),
    )


def loads(data: bytes) -> Program:
    """Deserialize a program; the inverse of `dumps`.

    Raises
    ------
    ProgramError
        As for `load`.
    """
    header, sections = _FILE.open(data)
    program = _program(_decode_header(header), sections)
    if dumps(program) != data:
        raise ProgramError("the header is not in the form that vtaops writes")
    return program


# --------------------------------------------------------------------------------- header


def _header(program: Program) -> dict[str, Any]:
    entries = [_buffer_entry(buffer) for buffer in program.buffers]
    _buffers(entries)  # never write what `loads` would reject
    return {
        "buffers": entries,
        "config": program.config.to_dict(),
        "config_name": program.config.name,
        "fingerprint": program.config.fingerprint,
        "instructions": len(program.instructions),
        "metadata": dict(program.metadata),
        "micro_ops": len(program.micro_ops),
        "operators": [operator.as_dict() for operator in program.operators],
        **({"pinned": program.pinned} if program.pinned else {}),
    }


def _buffer_entry(buffer: Buffer) -> dict[str, Any]:
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


def _encode_header(header: dict[str, Any]) -> bytes:
    refused = "the metadata of the program are not JSON"
    with raising(ProgramError, refused, TypeError, ValueError, RecursionError):
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _decode_header(text: bytes) -> dict[str, Any]:
    with raising(ProgramError, "the header is not JSON", ValueError, RecursionError):
        header = json.loads(text.decode("ascii"))
    return _typed(header, _with(_HEADER_KEYS, _OPTIONAL_HEADER_KEYS, header), "the header")


def _typed(value: Any, keys: Mapping[str, type], owner: str) -> dict[str, Any]:
    """Check that `value` is an object with exactly `keys`, each of its type."""
    if not isinstance(value, dict):
        raise ProgramError(f"{owner} is {_kind(type(value))}; it must be an object")
    if value.keys() != keys.keys():
        missing, unknown = sorted(keys.keys() - value.keys()), sorted(value.keys() - keys.keys())
        raise ProgramError(
            f"{owner} lacks the keys {missing} and has the unknown keys {_short(unknown)}"
        )
    for key, kind in keys.items():
        if type(value[key]) is not kind:
            raise ProgramError(
                f"{key!r} in {owner} is {_kind(type(value[key]))}; it must be {_kind(kind)}"
            )
    return value


def _with(keys: Mapping[str, type], optional: Mapping[str, type], value: Any) -> dict[str, type]:
    """Return the keys that a value must have: also the optional ones that it has."""
    own = set(value) if isinstance(value, dict) else set()
    return {**keys, **{key: kind for key, kind in optional.items() if key in own}}


def _kind(kind: type) -> str:
    return f"{'an' if kind is int else 'a'} {kind.__name__}"


# -------------------------------------------------------------------------------- program


def _program(header: dict[str, Any], sections: memoryview) -> Program:
    count, micro_op_count = header["instructions"], header["micro_ops"]
    relocations = count * INSTRUCTION_BYTES
    micro_ops = relocations + count * _RELOCATION_BYTES
    end = micro_ops + micro_op_count * MICRO_OP_BYTES
    if count < 0 or micro_op_count < 0 or end != len(sections):
        raise ProgramError(
            f"the header claims {_short(count)} instructions and {_short(micro_op_count)} "
            f"micro-ops, which do not fill the {len(sections)} bytes of the sections"
        )
    return Program(
        config=_config(header),
        instructions=_array(sections[:relocations], np.uint64).reshape(-1, 2),
        relocations=_array(sections[relocations:micro_ops], np.int32),
        micro_ops=_array(sections[micro_ops:], np.uint32),
        buffers=_buffers(header["buffers"]),
        metadata=header["metadata"],
        operators=tuple(map(_operator, header["operators"])),
        pinned=header.get("pinned", 0),
    )


def _operator(entry: Any) -> OperatorRecord:
    fields = _typed(entry, _OPERATOR_KEYS, "an operator")
    spans = fields.pop("spans")
    for span in spans:
        if not isinstance(span, list) or [type(edge) for edge in span] != [int, int]:
            raise ProgramError(f"an operator has the span {_short(span)}; spans are [first, end]")
    return OperatorRecord(**fields, spans=tuple(map(tuple, spans)))


def _array(data: memoryview, dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """Convert little-endian bytes to an array in native byte order."""
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def _short(value: object) -> str:
    """Shorten a value for a message: a file may contain numbers of thousands of digits."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."


def _config(header: dict[str, Any]) -> HardwareConfig:
    try:
        config = HardwareConfig.from_dict(header["config"], name=header["config_name"])
    except VTAError as error:
        raise ProgramError(f"the configuration of the program is refused: {error}") from error
    if config.fingerprint != header["fingerprint"]:
        raise ProgramError(
            f"the program was compiled for fingerprint {header['fingerprint']!r}; its "
            f"configuration {config.bitstream_id} has {config.fingerprint} in this vtaops"
        )
    return config


def _buffers(entries: list[Any]) -> tuple[Buffer, ...]:
    return tuple(_buffer(entry, f"buffer {i}") for i, entry in enumerate(entries))


def _buffer(entry: Any, owner: str) -> Buffer:
    fields = _typed(entry, _with(_BUFFER_KEYS, _OPTIONAL_BUFFER_KEYS, entry), owner)
    _check_values(fields, owner)
    shape, text = tuple(fields["shape"]), fields["layout"]
    try:
        view = views.from_dict(fields["view"]) if "view" in fields else None
        layout = Layout(text, fields["logical"], view)
        if not layout.accepts_rank(len(shape)):
            raise ProgramError(f"the shape {_short(shape)} does not fit the layout {text}")
        buffer = Buffer(
            fields["name"],
            Role(fields["role"]),
            shape,
            fields["dtype"],
            layout,
            tuple(fields.get("value", ())),
            fields.get("offset"),
            fields.get("fill"),
        )
        nbytes = buffer.nbytes
    except VTAError as error:
        raise ProgramError(f"{owner}: {error}") from error
    if nbytes + (buffer.offset or 0) > DRAM_BYTES:
        raise ProgramError(f"{owner} has {nbytes} bytes; DRAM ends at {DRAM_BYTES}")
    return buffer


def _check_values(fields: dict[str, Any], owner: str) -> None:
    """Reject invalid buffer values before using them."""
    name, role, dtype, shape = (fields[key] for key in ("name", "role", "dtype", "shape"))
    others = [scalar for scalar in fields.get("value", []) if type(scalar) is not int]
    longest = max(len(fields["layout"]), len(fields["logical"]))
    for right, reason in (
        (is_name(name), f"has the name {_short(name)}; {NAME_RULE}"),
        (role in _ROLES, f"has role {_short(role)}; roles are {', '.join(_ROLES)}"),
        (dtype in _DTYPES, f"has dtype {_short(dtype)}; dtypes are {', '.join(sorted(_DTYPES))}"),
        (
            all(type(extent) is int and 1 <= extent <= DRAM_BYTES for extent in shape),
            f"has shape {_short(tuple(shape))}; extents are integers from 1 on",
        ),
        (
            longest <= _MAX_LAYOUT_CHARACTERS,
            f"has a layout of more than {_MAX_LAYOUT_CHARACTERS} characters",
        ),
        (not others, f"has a value with elements that are no integers: {_short(others[:1])}"),
    ):
        if not right:
            raise ProgramError(f"{owner} {reason}")
