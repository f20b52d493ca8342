"""The int8 grids of values: those that a file states, and those that moving a tensor keeps."""

from __future__ import annotations

from vtaops.base.errors import ModelError
from vtaops.frontends.constants import RESHAPING, real
from vtaops.frontends.values import NotTranslated, Value, reached
from vtaops.graph.grid import Grid

EIGHT_BITS = {"int8": 0, "uint8": 128}
"""The integers of files that VTA computes with, and by how much they exceed those of a graph."""

KEEPING = RESHAPING | {
    *("Transpose", "Concat", "Split", "Slice", "Gather", "Expand", "Pad", "Resize"),
    *("DepthToSpace", "SpaceToDepth", "MaxPool", "GlobalMaxPool", "ReduceMax", "Relu"),
}
"""Operators whose results lie on the grid of what they move."""


def grid_of(value: Value) -> Grid:
    """Return the grid of a QuantizeLinear or DequantizeLinear.

    Raises
    ------
    NotTranslated
        If it has per-channel scales or is not of 8 bits.
    ModelError
        If the scale is not a positive finite number.
    """
    data, scale, zero = value.reads
    kind = value.dtype if value.op == "QuantizeLinear" else data.dtype
    steps, offsets = real(scale), real(zero)
    if kind not in EIGHT_BITS:
        raise NotTranslated(f"{value.label} is of {kind}; VTA computes with 8 bits")
    if steps is None or offsets is None:
        raise NotTranslated(f"{value.label} has a scale that is computed when it runs")
    if steps.size != 1 or offsets.size != 1:
        raise NotTranslated(f"{value.label} has a scale for each channel of an activation")
    step = float(steps.reshape(()))
    if not 0 < step < float("inf"):
        raise ModelError(
            f"the tensor {value.name!r} is quantised with the scale {step}; it must be positive "
            "and finite"
        )
    return Grid(step, int(offsets.reshape(())) - EIGHT_BITS[kind])


def natural_grid(value: Value) -> Grid | None:
    """Return the grid of a value that is quantised, or consists of quantised values moved around.

    Raises
    ------
    NotTranslated
        If it is quantised in a way that VTA does not support.
    """
    grids = {_own_grid(each) for each in reached([value], _moved) if not _moved(each)}
    return grids.pop() if len(grids) == 1 else None


def _own_grid(value: Value) -> Grid | None:
    """Return the grid that a file states for a value."""
    if value.op == "QuantizeLinear":
        return grid_of(value)
    if value.op == "DequantizeLinear":
        return _read_grid(value)
    return _input_grid(value) if value.op == "input" else None


def _read_grid(value: Value) -> Grid:
    """Return the grid on which a DequantizeLinear reads its argument, which may have no other."""
    grid, own = grid_of(value), natural_grid(value.first)
    if own not in (None, grid):
        raise NotTranslated(f"{value.label} reads as {grid} what was quantised as {own}")
    return grid


def _moved(value: Value) -> list[Value]:
    """Return the values whose elements a value consists of, on their grid."""
    if value.op == "Clip":  # of the integers of a QuantizeLinear
        keeps = value.dtype in EIGHT_BITS and value.first.op == "QuantizeLinear"
    else:
        keeps = value.op in KEEPING and (not value.index or value.op == "Split")
        keeps &= value.op != "Resize" or value.attrs.get("mode", "nearest") == "nearest"
    if not keeps:
        return []
    return value.reads if value.op == "Concat" else [value.first]


def _input_grid(value: Value) -> Grid | None:
    """Return the grid from which an integer input is dequantised."""
    reader = next((r for r in value.readers if r and r.op == "DequantizeLinear"), None)
    return None if reader is None or value.dtype not in EIGHT_BITS else grid_of(reader)


def through_pairs(value: Value) -> Value:
    """Return the value before quantize/dequantize pairs on the grid that it has already."""
    while value.op == "DequantizeLinear" and value.first.op == "QuantizeLinear":
        before = value.first.first
        grid = grid_of(value)
        if grid_of(value.first) != grid or natural_grid(before) != grid:
            break
        value = before
    return value
