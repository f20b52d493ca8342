"""Lowering: trees of tiles to fragments (`emit`), and fragments to a Program (`link`)."""

from vtaops.lowering.emission.emit import emit
from vtaops.lowering.emission.images import extents_of
from vtaops.lowering.linking.link import BufferSlice, PlacedFragment, link, whole
from vtaops.lowering.operation import Fragment
from vtaops.lowering.options import Capacity, LoweringOptions, Strides
from vtaops.lowering.rows import RowLayout, emit_rows
from vtaops.lowering.tree.build import build_tree

__all__ = [
    "BufferSlice",
    "Capacity",
    "Fragment",
    "LoweringOptions",
    "PlacedFragment",
    "RowLayout",
    "Strides",
    "build_tree",
    "emit",
    "emit_rows",
    "extents_of",
    "link",
    "whole",
]
