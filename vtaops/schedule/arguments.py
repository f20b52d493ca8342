"""Arguments of a scheduled function as program buffers: packed, as declared."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from tvm import tirx

from vtaops.base.errors import ScheduleError
from vtaops.machine.layout import Layout
from vtaops.program import Buffer, Role


def packed_arguments(function: tirx.PrimFunc) -> tuple[Buffer, ...]:
    """Return a buffer for each parameter; stored parameters are outputs.

    Raises
    ------
    ScheduleError
        If a shape is not static, or a parameter is not a tensor.
    """
    written = set(_written(function.body))
    return tuple(_buffer(parameter, written) for parameter in function.params)


def _buffer(parameter: Any, written: set[str]) -> Buffer:
    name, kind = str(parameter.name), parameter.ty
    if not hasattr(kind, "shape"):
        raise ScheduleError(f"parameter {name} is a {kind}; a program takes tensors")
    if not all(isinstance(extent, tirx.IntImm) for extent in kind.shape):
        raise ScheduleError(
            f"parameter {name} has the shape {list(kind.shape)}; shapes must be known when a "
            f"program is built"
        )
    shape = tuple(int(extent) for extent in kind.shape)
    role = Role.OUTPUT if name in written else Role.INPUT
    return Buffer(name, role, shape, str(kind.dtype), Layout(ascii_uppercase[: len(shape)]))


def _written(stmt: Any) -> list[str]:
    """Return the names of the buffers that a statement's blocks write."""
    if isinstance(stmt, tirx.SeqStmt):
        return [name for child in stmt.seq for name in _written(child)]
    if isinstance(stmt, tirx.BufferStore):
        return [str(stmt.buffer.name)]
    if isinstance(stmt, tirx.IfThenElse):
        return _written(stmt.then_case)
    inner = getattr(stmt, "block", None) or getattr(stmt, "body", None)
    return _written(inner) if inner is not None else []
